r"""The convergence theorems of the papers, as slopes that were measured.

    python -m benchmarks.papers.rates                  # three minutes
    python -m benchmarks.papers.rates --parts toy global

Chen, Zhu, Teh and Zhang (2018), on the toy of section 4.1, a mixture with one unknown,
where the constants of the theorems can be computed (`toy`), and Theorem 2 (`global`);
their linear rate for a Gaussian mixture of the package (`mixture`); Theorem 1 of Sidrow
et al. (2024) for the second version of their algorithm (`hmm`). The other papers have
no theorem about a rate. Slopes are of least squares, medians of five repetitions with
their ranges.
"""

import argparse
import warnings
from functools import partial

import numba
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.papers.hmm_killer_whales import Version2
from benchmarks.papers.hmm_simulation import (
    METHODS,
    by_run,
    draw_start,
    open_model,
    simulate,
)
from benchmarks.papers.measured import told
from benchmarks.papers.sem_vr_toy import (
    draw,
    maximum_likelihood,
    mean_share,
    responsibility,
    share,
    sweep_vr,
)
from skvrem import VRGaussianMixture
from skvrem.hmm._plan import _make_sweeps
from skvrem.hmm.em_vrso._model import _SweptModel

REPEATS = 5
# Where runs on the toy begin: this far from the maximum.
AWAY = 0.05


def slope(x, y):
    """Return the slope of least squares, and the share of the variance it explains."""
    (a, b), y = np.polyfit(x, y, 1), np.asarray(y)
    left = np.sum((y - a * np.asarray(x) - b) ** 2)
    return a, 1.0 - left / np.sum((y - y.mean()) ** 2)


def table(heads, rows):
    """Print a Markdown table."""
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


# Chen et al. (2018): one unknown


@numba.njit
def stochastic(x, mu, c, t0, power, marks, rng):
    """Plain sEM with rho_t = c / (t + t0)^power; mu after so many steps."""
    found, t = np.empty(len(marks)), 0
    for i in range(len(marks)):
        while t < marks[i]:
            rate = min(1.0, c / (t + t0) ** power)
            mu += rate * (share(x[rng.integers(0, len(x))], mu) - mu)
            t += 1
        found[i] = mu
    return found


def constants(x, mle):
    """Return lambda, L_f and beta_f about the maximum, by differences."""
    h = 1e-4
    grid = mle + np.linspace(-AWAY, AWAY, 21)
    first = [(mean_share(x, m + h) - mean_share(x, m - h)) / (2 * h) for m in grid]
    g = responsibility(x[:, None], grid)
    steepest = np.max(4.0 * np.square(x)[:, None] * g * (1.0 - g))
    bend = np.max(np.abs(np.diff(first))) / (grid[1] - grid[0])
    return 1.0 - first[10], steepest, bend


def factor_of(x, mle, rate, n_epochs, seed, n_runs=20):
    """Return by what sEM-vr shrinks the mean squared error in an epoch."""
    errors = np.zeros(n_epochs + 1)
    for run in range(n_runs):
        rng = np.random.default_rng([seed, run])
        mu = mle + AWAY
        errors[0] += AWAY**2
        for epoch in range(n_epochs):
            order = rng.integers(len(x), size=len(x))
            mu, _, _ = sweep_vr(x, order, mu, rate, len(x))
            errors[epoch + 1] += (mu - mle) ** 2
    errors /= n_runs
    # Not below the rounding of mu.
    seen = np.flatnonzero(errors > 1e-27)
    return slope(seen, np.log(errors[seen]))


def toy():
    """Theorem 1, and the rates of batch and of plain stochastic EM beside it."""
    x = draw(10_000)
    mle = maximum_likelihood(x)
    contraction, steepest, bend = constants(x, mle)
    print(
        f"\nToy: 10,000 rows, lambda {contraction:.3f}, L_f {steepest:.2f}, beta_f "
        f"{bend:.2f}, radius {contraction / bend:.3f}, largest step of Theorem 1 "
        f"{contraction / (32 * steepest**2):.1e}, kappa^2 "
        f"{128 * steepest**2 / contraction**2:.0f}\n"
    )
    mu, errors = mle + AWAY, []
    for _ in range(20):
        errors.append((mu - mle) ** 2)
        mu = mean_share(x, mu)
    measured, fit = slope(range(20), np.log(errors))
    print("Squared error by epoch, natural logarithm, and its slope:\n")
    rows = [("bEM", "2 log(1 - lambda)", f"{2 * np.log(1 - contraction):.3f}",
             f"{measured:.3f}", f"{fit:.4f}")]  # fmt: skip
    marks = np.unique(np.geomspace(1e4, 1e6, 12).astype(int))
    for c, t0, power, predicted in (
        (3.0, 10.0, 1.0, -1.0),
        (20.0, 100.0, 1.0, -1.0),
        (0.5, 10.0, 1.0, -2.0 * 0.5 * contraction),
        (1.0, 10.0, 0.75, -0.75),
    ):
        found = []
        for repeat in range(REPEATS):
            rng = np.random.default_rng(repeat)
            runs = [
                stochastic(x, mle + AWAY, c, t0, power, marks, rng) for _ in range(40)
            ]
            error = np.mean(np.square(np.array(runs) - mle), axis=0)
            found.append(slope(np.log(marks), np.log(error)))
        slopes, fits = zip(*found, strict=True)
        name = f"sEM {c:g}/(t+{t0:g})^{power:g}, by log t"
        why = "-2 c lambda" if c < 1 else f"-{power:g}"
        rows.append((name, why, f"{predicted:.3f}", told(slopes), told(fits)))
    table(("method", "predicted", "", "measured", "R^2"), rows)

    print("\nsEM-vr, M = 10,000: log of the factor of an epoch, against rho\n")
    rows, rates, logs = [], (1e-4, 2e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1), []
    for rate in rates:
        found = [factor_of(x, mle, rate, 6, repeat) for repeat in range(REPEATS)]
        slopes, fits = zip(*found, strict=True)
        logs.append(np.median(slopes))
        bound = np.exp(-len(x) * contraction * rate / 4)
        bound += 32 * steepest**2 * rate / contraction
        allowed = rate <= contraction / (32 * steepest**2)
        rows.append(
            (f"{rate:g}", "yes" if allowed else "no", f"{np.log(bound):.2f}",
             f"{-2 * len(x) * contraction * rate:.2f}", told(slopes), told(fits))
        )  # fmt: skip
    heads = "rho", "allowed by Theorem 1", "bound (6)", "-2 M lambda rho"
    table((*heads, "measured", "R^2"), rows)
    by_rate, _ = slope(np.log(rates[:3]), np.log(-np.array(logs[:3])))
    print(f"\nof -log(factor) by log(rho), up to rho = {rates[2]:g}: {by_rate:.2f} (1)")

    print("\nsEM-vr, the best factor of an epoch over steps, against M\n")
    rows, sizes = [], (300, 1000, 3000, 10_000, 30_000, 100_000)
    best = np.empty((REPEATS, len(sizes)))
    for i, n in enumerate(sizes):
        rows_, steps = draw(n), np.empty(REPEATS)
        top = maximum_likelihood(rows_)
        for repeat in range(REPEATS):
            found = {
                rate: factor_of(rows_, top, rate, 4, repeat)[0]
                for rate in np.array([1.0, 2.0, 4.0, 8.0, 16.0]) * np.log(n) / n
                if rate < 1.0
            }
            steps[repeat] = min(found, key=found.get)
            best[repeat, i] = found[steps[repeat]]
        rows.append((n, told(best[:, i]), told(steps)))
    table(("M", "log of the factor", "at rho"), rows)
    slopes = [slope(np.log(sizes), row)[0] for row in best]
    print(f"\nof log(factor) by log(M): {told(slopes)}; by (7) -1, but for log log M")


@numba.njit
def sweep_blocks(x, order, mu, rate):
    """One epoch of sEM-vr over blocks (m, rows); returns mu."""
    means = np.empty(len(x))
    for b in range(len(x)):
        means[b] = mean_share(x[b], mu)
    full = means.mean()
    for b in order:
        mu += rate * (mean_share(x[b], mu) - means[b] + full - mu)
    return mu


def log_likelihood(x, mu):
    """Return the log-likelihood a row."""
    parts = 0.2 * np.exp(-0.5 * (x - mu) ** 2) + 0.8 * np.exp(-0.5 * (x + mu) ** 2)
    return np.mean(np.log(parts))


def everywhere(n_epochs=3000, n_starts=50):
    """Theorem 2: a constant step converges from wherever it begins."""
    print("\nTheorem 2: 5,000 rows in M blocks, 50 starts from -3 to 3\n")
    x, rows = draw(5000), []
    for n_blocks in (5, 10, 20):
        blocks = x.reshape(n_blocks, -1)
        # eta(mu) = mu, and log p(x, h; mu) is -(x -+ mu)^2 / 2: both constants are 1.
        steepest = np.max(np.mean(blocks**2, axis=1))
        largest = 1.0 / (n_blocks * (n_blocks - 1) * steepest)
        for rate in (0.99 * largest, 0.1, 0.5, 1.0):
            left, epochs, fallen = [], [], 0
            for seed in range(n_starts):
                rng = np.random.default_rng(seed)
                mu = rng.uniform(-3.0, 3.0)
                value, done = log_likelihood(x, mu), n_epochs
                for epoch in range(n_epochs):
                    mu = sweep_blocks(blocks, rng.permutation(n_blocks), mu, rate)
                    before, value = value, log_likelihood(x, mu)
                    fallen += value < before - 1e-13
                    if abs(mean_share(x, mu) - mu) < 1e-10:
                        done = epoch + 1
                        break
                left.append(abs(mean_share(x, mu) - mu))
                epochs.append(done)
            there = f"{np.mean(np.array(left) < 1e-10):.0%}"
            allowed = "yes" if rate < largest else "no"
            took = told(epochs, "{:.0f}")
            rows.append((n_blocks, f"{rate:.2g}", allowed, there, took, fallen))
    heads = "M", "rho", "allowed", "at a stationary point", "epochs", "epochs that fell"
    table(heads, rows)


# A mixture of the package


def mixture(n_rows=20_000, n_epochs=60):
    """Slopes of the log gap of the likelihood by epoch."""
    print(f"\nVRGaussianMixture: {n_rows} rows, 3 overlapping components, 2 features\n")
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = {}
    for seed in range(REPEATS):
        rng = np.random.default_rng(seed)
        means = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
        X = means[rng.integers(3, size=n_rows)] + rng.normal(size=(n_rows, 2))
        made = partial(
            VRGaussianMixture, 3, tol=0.0, reg_covar=0.0, n_init=1, n_jobs=1,
            means_init=means + 0.2 * rng.normal(size=means.shape), random_state=seed,
            weights_init=np.full(3, 1 / 3),
            precisions_init=np.tile(np.eye(2), (3, 1, 1)),
        )  # fmt: skip
        top = made(solver="batch", acceleration="squarem", max_iter=3000).fit(X)
        best = top.history_["objective"].max()
        for name, options in {
            "batch": {"solver": "batch", "acceleration": None, "max_iter": 300},
            **{
                f"svrg, rho={rate:g}": {"solver": "svrg", "step_size": rate}
                for rate in (0.01, 0.03, 0.1, 0.3)
            },
            "saga, rho=0.1": {"solver": "saga", "step_size": 0.1},
            "stochastic": {"solver": "stochastic"},
        }.items():
            model = made(**{"max_iter": n_epochs, **options}).fit(X)
            gap = best - model.history_["objective"]
            # From where it is near, to where rounding begins.
            seen = np.flatnonzero((gap < 1e-3) & (gap > 1e-11))
            if len(seen) < 4:
                seen = np.flatnonzero(gap > 1e-11)
            a, fit = slope(seen, np.log(gap[seen]))
            passes = model.history_["passes"][-1] / len(model.history_["passes"])
            found.setdefault(name, []).append((a, a / passes, fit, gap[-1]))
    rows = []
    for name, runs in found.items():
        by_epoch, by_pass, fits, ends = zip(*runs, strict=True)
        rows.append(
            (name, told(by_epoch), told(by_pass), told(fits), told(ends, "{:.1e}"))
        )
    table(("solver", "slope by epoch", "by pass", "R^2", "gap at the end"), rows)


# Sidrow et al. (2024)


def hmm(n_rows=1000, n_states=3, n_features=3, small=1e-5, most=300):
    """Theorem 1: the likelihood rises every epoch, the gradient goes to zero."""
    print(f"\nHidden Markov model: {n_rows} rows, to a norm of {small:g}\n")
    make = partial(_make_sweeps, batch_size=1, saga=False, partial=False, inner_iter=1)
    second = partial(
        by_run,
        lambda data: (Version2("svrg", patience=2, noisy=False, make=make), data),
    )
    names = "Baum-Welch", "SVRG", "SVRG PE", "SAGA PE"
    methods = {"SVRG, version 2": second} | {name: METHODS[name] for name in names}
    found = {}
    for repeat in range(REPEATS):
        rng = np.random.default_rng([n_rows, n_states, n_features, repeat])
        X = simulate(n_rows, n_states, n_features, rng)
        model, data = open_model(X, n_states, np.full(n_states, 1 / n_states))
        start = draw_start(X, n_states, rng)
        for name, method in methods.items():
            trace = method(model, data, start, repeat, small=small, most=most)
            epochs, values, norms = np.array(trace).T
            falls = np.sum(np.diff(values) < -1e-12)
            # The optimum is chosen by then; norms of the first epochs are of the start.
            late = slice(int(np.flatnonzero(norms > 1e-2)[-1]), None)
            a, fit = slope(epochs[late], np.log(norms[late]))
            found.setdefault(name, []).append((epochs[-1], norms[-1], falls, a, fit))
    rows = []
    for name, runs in found.items():
        epochs, norms, falls, slopes, fits = zip(*runs, strict=True)
        rows.append(
            (name, told(epochs, "{:.0f}"), told(norms, "{:.1e}"), sum(falls),
             told(slopes), told(fits))
        )  # fmt: skip
    heads = "method", "epochs", "norm of the gradient / T", "epochs that fell"
    table((*heads, "slope of its log below 1e-2", "R^2"), rows)


PARTS = {"toy": toy, "global": everywhere, "mixture": mixture, "hmm": hmm}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    _SweptModel.scaled = False  # the steps of the paper
    for name in parser.parse_args().parts:
        PARTS[name]()


if __name__ == "__main__":
    main()
