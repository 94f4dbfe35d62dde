"""Figures 2 and 3 of Wang, Geffner and Domke (2024), with their baselines.

    python -m benchmarks.papers.joint_cv_baselines [--tasks sonar australian]

Bayesian logistic regression with independent Gaussians, prior N(0, 1), no intercept,
batches of 5 rows with one draw each, SGD. The estimators are the paper's, with the
parameters of every row in a table: naive (Eq. 4), cv (9), inc (13), ens (15, beta one
half), joint by SAGA (Algorithm 1) and SMISO (appendix A, alpha 0.9); and joint with the
scales controlled too, which is ours. Prior and entropy are in closed form. Data are
read from the folder named by SKVREM_DATA.
"""

import argparse
import warnings

import numpy as np
from numba import njit
from numpy.polynomial.hermite_e import hermegauss
from sklearn.exceptions import ConvergenceWarning

from benchmarks.problems.posteriors import load
from skvrem import BayesianLogisticRegression

NAIVE, CV, INC, ENS, JOINT, SCALES, SMISO = range(7)
NAMES = ("naive", "cv", "inc", "ens", "joint", "joint, scales", "SMISO")
BATCH, BETA, ALPHA = 5, 0.5, 0.9
STEPS = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3)
GAPS = (5.0, 1.0, 0.1)
EVERY = 50


@njit(cache=True)
def likelihood_gradient(x, y, w, eps, out):
    """Fill out (2 d) with the gradient of log p(y | x) by means and log scales."""
    d = x.size
    z = 0.0
    for j in range(d):
        z += x[j] * (w[j] + np.exp(w[d + j]) * eps[j])
    r = y - 1.0 / (1.0 + np.exp(-z))
    for j in range(d):
        out[j] = r * x[j]
        out[d + j] = r * x[j] * np.exp(w[d + j]) * eps[j]


@njit(cache=True)
def taylor_gradient(x, y, w, now, eps, scales, out, mean):
    """Fill out with Taylor's gradient at w, and mean with its mean over eps.

    The scales are those of `now`. By log scales both are zero but for `scales`.
    """
    d = x.size
    a = t = 0.0
    for j in range(d):
        a += x[j] * w[j]
        t += x[j] * np.exp(now[d + j]) * eps[j]
    p = 1.0 / (1.0 + np.exp(-a))
    for j in range(d):
        s = np.exp(now[d + j])
        out[j] = (y - p - p * (1.0 - p) * t) * x[j]
        mean[j] = (y - p) * x[j]
        out[d + j] = out[j] * s * eps[j] if scales else 0.0
        mean[d + j] = -p * (1.0 - p) * x[j] * x[j] * s * s if scales else 0.0


@njit(cache=True)
def estimate(kind, X, y, w, table, sums, rows, eps):
    """Return an estimate of the gradient of the bound, (2 d,).

    Of Wang et al. (2024): naive (Eq. 4), cv (Eq. 9), inc (Eq. 13), ens (Eq. 15), joint
    (Eq. 5); or the two others.

    table (n, 2 d): w at the last visit of each row; sums (2, d): over all rows the
    gradients at the table's means, and the curvatures.
    """
    n, d = X.shape
    g, own, old, mean = np.zeros(2 * d), w.copy(), w.copy(), w.copy()
    for i in rows:
        likelihood_gradient(X[i], y[i], w, eps, own)
        g += own / rows.size
        if kind == CV or kind == ENS:
            taylor_gradient(X[i], y[i], w, w, eps, False, old, mean)
            g += (BETA if kind == ENS else 1.0) * (mean - old) / rows.size
        if kind == INC or kind == ENS:
            likelihood_gradient(X[i], y[i], table[i], eps, old)
            g -= (1.0 - BETA if kind == ENS else 1.0) * old / rows.size
        if kind == JOINT or kind == SCALES:
            taylor_gradient(X[i], y[i], table[i], w, eps, kind == SCALES, old, mean)
            g -= old / rows.size
    if kind == INC or kind == ENS:
        for i in range(n):
            likelihood_gradient(X[i], y[i], table[i], eps, old)
            g += (1.0 - BETA if kind == ENS else 1.0) * old / n
    for j in range(d):
        variance = np.exp(2.0 * w[d + j])
        g[j] = n * g[j] - w[j]
        g[d + j] = n * g[d + j] - variance + 1.0
        if kind == JOINT or kind == SCALES:
            g[j] += sums[0, j]
            if kind == SCALES:
                g[d + j] -= sums[1, j] * variance
    return g


@njit(cache=True)
def remember(X, y, table, sums, i, w):
    """Put w into a row of the table; the sums follow."""
    d = X.shape[1]
    before = after = 0.0
    for j in range(d):
        before += X[i, j] * table[i, j]
        after += X[i, j] * w[j]
    p, q = 1.0 / (1.0 + np.exp(-before)), 1.0 / (1.0 + np.exp(-after))
    for j in range(d):
        sums[0, j] += (p - q) * X[i, j]
        sums[1, j] += (q * (1.0 - q) - p * (1.0 - p)) * X[i, j] * X[i, j]
    for j in range(2 * d):
        table[i, j] = w[j]


@njit(cache=True)
def bound(X, y, w, nodes, weights):
    """Return the evidence lower bound, by quadrature."""
    n, d = X.shape
    total = 0.0
    for i in range(n):
        a = v = 0.0
        for j in range(d):
            a += X[i, j] * w[j]
            v += (X[i, j] * np.exp(w[d + j])) ** 2
        for s in range(nodes.size):
            u = a + np.sqrt(v) * nodes[s]
            loss = max(-u, 0.0) + np.log1p(np.exp(-abs(u)))
            total -= weights[s] * (loss + (1.0 - y[i]) * u)
    for j in range(d):
        variance = np.exp(2.0 * w[d + j])
        total -= 0.5 * (variance + w[j] ** 2 - 1.0) - w[d + j]
    return total


@njit(cache=True)
def descend(kind, X, y, w, table, sums, order, noise, size, nodes, weights, every):
    """Make a step with each row of `order` (k, batch); return bounds by the way."""
    n = len(X)
    bounds = np.empty(len(order) // every)
    for k in range(len(order)):
        rows = order[k]
        if kind == SMISO:  # w is the mean of the table
            gamma = size * n / (ALPHA * rows.size)
            new = w.copy()
            for i in rows:
                g = estimate(NAIVE, X, y, w, table, sums, np.array([i]), noise[k])
                change = ALPHA * (w + gamma * g - table[i])
                table[i] += change
                new += change / n
            w[:] = new
        else:
            w += size * estimate(kind, X, y, w, table, sums, rows, noise[k])
            for i in rows:
                remember(X, y, table, sums, i, w)
        if (k + 1) % every == 0:
            bounds[k // every] = bound(X, y, w, nodes, weights)
            if not bounds[k // every] > -1e6:
                bounds[k // every :] = -np.inf
                break
    return bounds


def begin(X, y, rng):
    """Return where all start: the table at one point."""
    n, d = X.shape
    w = np.concatenate([rng.standard_normal(d), np.full(d, -1.0)])
    p = 1.0 / (1.0 + np.exp(-X @ w[:d]))
    sums = np.stack([X.T @ (y - p), np.square(X).T @ (p * (1.0 - p))])
    return w, np.tile(w, (n, 1)), sums


def batches(n, n_steps, rng):
    """Return batches of row numbers, shuffled each epoch."""
    each = n // BATCH
    epochs = [rng.permutation(n)[: each * BATCH] for _ in range(-(-n_steps // each))]
    return np.concatenate(epochs)[: n_steps * BATCH].reshape(n_steps, BATCH)


def figure_3(X, y, best, n_steps, n_seeds):
    """Print iterations to a gap, at the best step for each: medians and ranges."""
    nodes, weights = hermegauss(20)
    weights = weights / weights.sum()
    print("  iterations to a gap of", *GAPS, "| least gap, at the best step for each")
    for kind, name in enumerate(NAMES):
        found = {}
        for size in STEPS:
            gaps = []
            for seed in range(n_seeds):
                rng = np.random.default_rng(seed)
                w, table, sums = begin(X, y, rng)
                order = batches(len(X), n_steps, rng)
                noise = rng.standard_normal((n_steps, X.shape[1]))
                state = X, y, w, table, sums, order, noise
                bounds = descend(kind, *state, size, nodes, weights, EVERY)
                gaps.append(best - bounds)
            for gap in GAPS:
                found.setdefault(gap, []).append(
                    [
                        EVERY * (1 + np.argmax(g < gap)) if (g < gap).any() else np.inf
                        for g in gaps
                    ]
                )
            found.setdefault("least", []).append([g[-1] for g in gaps])
        cells = []
        for runs in found.values():
            of_best = min(runs, key=np.median)
            middle, low, high = np.median(of_best), min(of_best), max(of_best)
            cells.append(f"{middle:.4g} ({low:.3g}, {high:.3g})")
        print(f"  {name:<14}", *(f"{cell:>22}" for cell in cells), flush=True)


def figure_2(X, y, checkpoints, size, n_draws):
    """Print variances of all estimators along the path of the joint one."""
    rng = np.random.default_rng(0)
    w, table, sums = begin(X, y, rng)
    nodes, weights = np.zeros(1), np.ones(1)
    done = 0
    print("  variance after", *NAMES[:6], "| V(rows) V(draws)")
    for at in checkpoints:
        order = batches(len(X), at - done, rng)
        noise = rng.standard_normal((at - done, X.shape[1]))
        every = at - done + 1
        descend(JOINT, X, y, w, table, sums, order, noise, size, nodes, weights, every)
        done, cells = at, []
        for kind in range(6):
            draws = [
                estimate(
                    kind,
                    X,
                    y,
                    w,
                    table,
                    sums,
                    rng.choice(len(X), BATCH, replace=False),
                    rng.standard_normal(X.shape[1]),
                )
                for _ in range(n_draws)
            ]
            cells.append(np.var(draws, axis=0).sum())
        everyone = np.arange(len(X))
        draws = [
            estimate(
                NAIVE, X, y, w, table, sums, everyone, rng.standard_normal(X.shape[1])
            )
            for _ in range(n_draws)
        ]
        by_draws = np.var(draws, axis=0).sum()
        each = np.zeros((len(X), 2 * X.shape[1]))
        for _ in range(100):
            eps = rng.standard_normal(X.shape[1])
            for sign in (1.0, -1.0):
                for i in everyone:
                    one = everyone[i : i + 1]
                    each[i] += (
                        estimate(NAIVE, X, y, w, table, sums, one, sign * eps) / 200.0
                    )
        n = len(X)
        by_rows = np.var(each, axis=0, ddof=1).sum() * (1 - BATCH / n) / BATCH
        cells += [by_rows, by_draws]
        print(f"  {at:>6}", *[f"{cell:9.3g}" for cell in cells])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", default=("sonar", "australian"))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    for task in arguments.tasks:
        X, y = load(task)
        X, y = np.ascontiguousarray(X), y.astype(float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = BayesianLogisticRegression(
                1.0, posterior="meanfield", fit_intercept=False, tol=1e-8
            ).fit(X, y.astype(int))
        print(f"{task}, {len(X)} x {X.shape[1]}, bound {best.elbo_:.3f}")
        figure_2(X, y, (200, 1000, 5000, 20_000), 2e-4, 2000)
        figure_3(X, y, best.elbo_, arguments.steps, arguments.seeds)


if __name__ == "__main__":
    main()
