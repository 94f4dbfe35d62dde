"""Training objective against time: svrg against batch EM and the best stochastic EM."""

from itertools import product

import numpy as np
from harness import Row

from topics_rows import each_corpus
from topics_rows.curves import exact_curve, fit, seconds_an_epoch, try_grid

__all__ = ["solver_rows"]

#: Steps of stochastic EM are a / (t + t0)^kappa, at most 1.
GRID = [
    {"step_size": a, "step_offset": t0, "step_decay": kappa}
    for a, t0, kappa in product((0.1, 1, 10), (10, 100, 1000), (0.5, 0.75, 1))
]
#: Of the grid and the default, so many that are best early and late go on.
FINALISTS = 2
#: Epochs of the screening fits.
SCREEN = 20
#: Moments of the comparison, and from which on svrg has to lead, in batch passes.
MARKS, FROM = (30, 60, 120, 240), 60


def name_of(parameters):
    if not parameters:
        return "default"
    a, t0, kappa = parameters.values()
    return f"{a:g}/(t+{t0:g})^{kappa:g}"


def screen(X, n_topics, n_epochs):
    """Return those of the grid, and of the defaults, that are best early and late."""
    grid = [*GRID, {}]

    def value(steps, n_iter):
        return fit(X, n_topics, n_iter, solver="stochastic", **steps).objective_

    found = try_grid(grid, value, n_epochs)
    best = {i for part in found for i in sorted(part, key=part.get)[-FINALISTS:]}
    finalists = {name_of(grid[i]): grid[i] for i in sorted(best)}
    tried = [{name_of(grid[i]): part[i] for i in part} for part in found]
    return finalists, tried


def solver_rows(settings):
    """Say from when on svrg has the best objective, in batch passes."""
    marks = MARKS[:2] if settings.quick else MARKS
    for corpus in each_corpus(settings):
        X = corpus.train
        for n_topics in settings.topics:
            settings.log(f"solvers, {corpus.name}, K={n_topics}: screening")
            finalists, tried = screen(X, n_topics, 5 if settings.quick else SCREEN)
            settings.log(f"solvers, {corpus.name}, K={n_topics}: {list(finalists)}")
            a_pass = seconds_an_epoch(fit(X, n_topics, 20, solver="batch"))

            def curve(moments, X=X, n_topics=n_topics, a_pass=a_pass, **parameters):
                epoch = seconds_an_epoch(fit(X, n_topics, 6, **parameters)) / a_pass
                epochs = [max(1, int(passes / epoch)) for passes in moments]
                return exact_curve(X, n_topics, epochs, **parameters)

            beyond = 1.05 * marks[-1]
            batch = curve([beyond], solver="batch")
            svrg = curve([beyond], solver="svrg")
            stochastic = {
                name: curve(marks, solver="stochastic", **steps)
                for name, steps in finalists.items()
            }
            # At each moment the best of the grid, which no single fit is.
            times = a_pass * np.array(marks)
            ours, plain = svrg.at(times), batch.at(times)
            others = np.array([c.at(times) for c in stochastic.values()])
            best = others.max(axis=0)
            behind = np.flatnonzero(ours < np.maximum(plain, best))
            first = int(behind[-1]) + 1 if behind.size else 0
            since = marks[first] if first < len(marks) else None
            listed = "; ".join(
                f"{passes}: {a:.4f}, {b:.4f}, {c:.4f}"
                for passes, a, b, c in zip(marks, ours, plain, best, strict=True)
            )
            when = (
                f"from {since} batch passes' time on" if since else "not in this time"
            )
            winner = list(stochastic)[int(others[:, -1].argmax())]
            yield Row(
                "solvers",
                "svrg ahead of batch EM and of the best stochastic EM of a grid, "
                f"training objective against time, {corpus.name}, K={n_topics}",
                f"{when} (a pass {a_pass:.4f} s; svrg, batch, stochastic at {listed}; "
                f"the last stochastic {winner})",
                f"from {FROM} on",
                since is not None and since <= FROM,
                {
                    "since": since,
                    "seconds a pass": a_pass,
                    "marks": list(marks),
                    "at the marks": [c.tolist() for c in (ours, plain, best)],
                    "svrg": [part.tolist() for part in svrg],
                    "batch": [part.tolist() for part in batch],
                    "stochastic": {
                        name: [part.tolist() for part in curve]
                        for name, curve in stochastic.items()
                    },
                    "screened": tried,
                },
            )
