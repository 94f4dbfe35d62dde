"""Training objective against time: svrg against batch EM and the best stochastic EM."""

from itertools import product

import numpy as np
from benchmark_utils.curves import fit_curve
from harness import Row

from topics_rows import each_corpus

__all__ = ["solver_rows"]

#: Steps of stochastic EM are a / (t + t0)^kappa.
GRID = [
    {"step_size": a, "step_offset": t0, "step_decay": kappa}
    for a, t0, kappa in product(
        (0.1, 1.0, 10.0), (10.0, 100.0, 1000.0), (0.5, 0.75, 1.0)
    )
]
#: Of the grid, so many that are best after a short and after a longer fit go on.
FINALISTS = 4
#: Batch passes of the first fit, of the comparison, and from which on svrg has to lead.
SCREEN, LONGEST, FROM = 40, 240, 60


def _name(parameters):
    a, t0, kappa = parameters.values()
    return f"{a:g}/(t+{t0:g})^{kappa:g}"


def _until(X, n_topics, seconds, **parameters):
    """Return the curve of a fit that takes about so many seconds, or more."""
    short = fit_curve(X, n_topics, 6, **parameters)
    epoch = (short.seconds[-1] - short.seconds[1]) / (len(short.seconds) - 2)
    return fit_curve(X, n_topics, int(np.ceil(1.1 * seconds / epoch)) + 1, **parameters)


def solver_rows(settings):
    """Say from when on svrg has the best objective, in batch passes."""
    for corpus in each_corpus(settings):
        X = corpus.train
        for n_topics in settings.topics:
            settings.log(f"solvers, {corpus.name}, K={n_topics}")
            screen, longest = (10, 60) if settings.quick else (SCREEN, LONGEST)
            batch = fit_curve(X, n_topics, longest, solver="batch")
            a_pass = batch.seconds[-1] / batch.passes[-1]
            svrg = _until(X, n_topics, longest * a_pass, solver="svrg")
            tried = []
            for parameters in GRID:
                curve = _until(
                    X, n_topics, screen * a_pass, solver="stochastic", **parameters
                )
                tried.append((parameters, curve.at(screen * a_pass / np.array([3, 1]))))
            best = [
                sorted(tried, key=lambda item, i=i: item[1][i])[-FINALISTS:]
                for i in (0, 1)
            ]
            finalists = {_name(item[0]): item[0] for part in best for item in part}
            stochastic = {
                name: _until(
                    X, n_topics, longest * a_pass, solver="stochastic", **parameters
                )
                for name, parameters in finalists.items()
            }
            # Against the best of the grid at each moment, which no single fit is.
            times = a_pass * np.arange(1, longest + 1)
            ours = svrg.at(times)
            plain = batch.at(times)
            envelope = np.max([c.at(times) for c in stochastic.values()], axis=0)
            behind = np.flatnonzero(ours < np.maximum(plain, envelope))
            since = int(behind[-1]) + 2 if behind.size else 1
            last = max(stochastic, key=lambda name: stochastic[name].at(times[-1]))
            marks = {}
            for passes in (FROM // 2, FROM, 2 * FROM, longest):
                i = passes - 1
                if passes <= longest:
                    marks[passes] = [float(c[i]) for c in (ours, plain, envelope)]
            listed = "; ".join(
                f"{passes}: {a:.4f}, {b:.4f}, {c:.4f}"
                for passes, (a, b, c) in marks.items()
            )
            when = (
                f"from {since} batch passes' time on"
                if since <= longest
                else "not within the time"
            )
            yield Row(
                "solvers",
                "svrg ahead of batch EM and of the best stochastic EM of a grid, "
                f"training objective against time, {corpus.name}, K={n_topics}",
                f"{when} (a pass {a_pass:.4f} s; objectives of svrg, batch, stochastic "
                f"at {listed}; stochastic at the end {last})",
                f"from {FROM} on",
                since <= FROM,
                {
                    "since": since,
                    "seconds a pass": a_pass,
                    "marks": marks,
                    "svrg": [part.tolist() for part in svrg],
                    "batch": [part.tolist() for part in batch],
                    "stochastic": {
                        name: [part.tolist() for part in curve]
                        for name, curve in stochastic.items()
                    },
                    "tried": [(_name(p), v.tolist()) for p, v in tried],
                },
            )
