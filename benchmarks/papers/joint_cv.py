"""Tables 1 and 3 of Wang, Geffner and Domke (2024), re-measured: noise and its price.

    python -m benchmarks.papers.joint_cv [--tasks sonar australian mnist ppca tennis
        ratings]

Mean-field posteriors at their optimum, found by full passes; batches of 5 rows for
Sonar and Australian, of 100 for the others, one draw a batch, anchors at the same
point. The prior and the entropy are in closed form, while the paper's naive gradient
has their noise. The ratings are simulated from the model at the size of MovieLens100K:
100,000 rows of 943 users, 18 genres, 5 classes. Costs are CPU milliseconds of a step
of the same NumPy code, the fastest of several. Variances are medians of five seeds of
the draws, with their ranges. Data are read from the folder named by
SKVREM_DATA.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.harness.data import read
from benchmarks.papers.measured import told
from benchmarks.problems.posteriors import load
from skvrem import (
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    HierarchicalSoftmaxClassifier,
)
from skvrem.vi.gaussian._model_families import Logistic, Softmax
from skvrem.vi.ppca._model import SecondMoments, likelihood

# V(rows, draws), V(rows), V(draws) as published.
PUBLISHED = {
    "sonar": (4.04e4, 2.02e4, 1.16e4),
    "australian": (9.16e4, 8.61e4, 2.07e3),
    "mnist": (4.21e8, 3.21e8, 1.75e4),
    "ppca": (1.69e10, 1.68e10, 3.73e7),
    "tennis": (9.96e7, 9.59e7, 8.56e4),
    "ratings": (1.78e9, 1.69e9, 1.75e6),
}
# Milliseconds of a step as published: naive, cv, joint, full naive, full cv.
PUBLISHED_COST = {
    "mnist": (10.4, 12.8, 17.6, 201.0, 360.0),
    "ppca": (12.8, 18.5, 31.2, 740.0, 1606.0),
    "tennis": (10.2, 14.6, 29.6, 203.0, 246.0),
    "ratings": (16.3, 19.6, 24.4, 267.0, 702.0),
}
COSTS = ("naive", "cv", "joint", "full naive", "full cv")


class Dense:
    """Rows with features; parameters (p, k)."""

    def __init__(self, X):
        self.X, self.n = np.asarray(X, np.float64), len(X)

    def take(self, rows):
        """Return some of the rows."""
        return Dense(self.X[rows])

    def times(self, rows, W, power=1):
        """Return the predictors (m, k), or what powers of the features make."""
        return _raised(self.X[rows], power) @ W

    def scatter(self, rows, r, shape, power=1):
        """Return the sum over rows of features times r."""
        return _raised(self.X[rows], power).T @ r


class Pairs:
    """Rows of a winner and a loser; parameters (n_players, 1)."""

    def __init__(self, pairs):
        self.a, self.b = pairs.T
        self.n = len(pairs)

    def take(self, rows):
        """See `Dense`."""
        return Pairs(np.stack([self.a[rows], self.b[rows]], axis=1))

    def times(self, rows, W, power=1):
        """See `Dense`."""
        return W[self.a[rows]] + (-1.0) ** power * W[self.b[rows]]

    def scatter(self, rows, r, shape, power=1):
        """See `Dense`."""
        first, second = (
            np.bincount(side[rows], r[:, 0], shape[0]) for side in (self.a, self.b)
        )
        return (first + (-1.0) ** power * second)[:, None]


class Groups:
    """Rows with features, and a group; parameters (n_groups, p, k)."""

    def __init__(self, X, group):
        self.X, self.group, self.n = X, group, len(X)

    def take(self, rows):
        """See `Dense`."""
        return Groups(self.X[rows], self.group[rows])

    def times(self, rows, W, power=1):
        """See `Dense`."""
        return np.einsum(
            "nj,njk->nk", _raised(self.X[rows], power), W[self.group[rows]]
        )

    def scatter(self, rows, r, shape, power=1):
        """See `Dense`."""
        out = np.zeros(shape)
        each = _raised(self.X[rows], power)[:, :, None] * r[:, None, :]
        np.add.at(out, self.group[rows], each)
        return out


def _raised(X, power):
    """Return powers of elements, without a copy where that is one."""
    return X if power == 1 else X**power


class LinearTask:
    """Predictors that are linear in the parameters.

    Parameters
    ----------
    design : Dense, Pairs or Groups
    family : Logistic or Softmax
    y : ndarray of shape (n,)
    mean, scale : ndarray
        Of the posterior, in the shape of the parameters.
    """

    def __init__(self, design, family, y, mean, scale):
        self.design, self.family, self.y = design, family, y
        self.mean, self.scale, self.n = mean, scale, design.n
        self.shape = mean.shape

    def residuals(self, rows, noise):
        """Return r at a draw, Taylor's and antithetic ones, and r at the means."""
        y = self.y[rows]
        a = self.design.times(rows, self.mean)
        t = self.design.times(rows, noise)
        r = self.family.residual(a + t, y)
        known = self.family.residual(a, y)
        taylor = known - self.family.variance_times(self.family.mean(a), t)
        pair = 0.5 * (self.family.mean(a + t) - self.family.mean(a - t))
        return r, taylor, known - pair, known

    def variances(self, batch_size, n_draws, rng):
        """Return the traces of variances by name."""
        rows, design = np.arange(self.n), self.design
        ones = np.ones(self.shape)
        norms = design.times(rows, ones, 2)
        within, totals = {}, {}
        for _ in range(n_draws):
            noise = self.scale * rng.standard_normal(self.shape)
            weights = design.times(rows, noise**2, 2)
            r, taylor, opposite, known = self.residuals(rows, noise)
            parts = {
                "naive": (r, r),
                "cv": (r - taylor + known, r),
                "joint": (r - taylor, r),
                "joint, scales": (r - taylor, r - taylor),
                "antithetic": (r - opposite, r),
            }
            for name, (first, second) in parts.items():
                square = np.sum(norms * first**2) + np.sum(weights * second**2)
                total = np.stack(
                    [
                        design.scatter(rows, first, self.shape),
                        design.scatter(rows, second, self.shape) * noise,
                    ]
                )
                spread = square - np.sum(total**2) / self.n
                within.setdefault(name, []).append(spread)
                totals.setdefault(name, _Moments()).add(total)
        factor = self.n / batch_size * (self.n - batch_size) / (self.n - 1)
        out = {
            name: factor * np.mean(within[name]) + totals[name].variance()
            for name in within
        }
        by_rows = factor * self._without_draws(rows, norms)
        table = {"V(rows, draws)": out["naive"], "V(rows)": by_rows}
        return table | {"V(draws)": totals["naive"].variance()} | out

    def _without_draws(self, rows, norms):
        variance = self.scale**2
        _, r, c = self.expectations(rows)
        weights = self.design.times(rows, variance**2, 4)
        square = np.sum(norms * r**2) + np.sum(weights * c**2)
        first = self.design.scatter(rows, r, self.shape)
        second = self.design.scatter(rows, c, self.shape, 2) * variance
        return square - (np.sum(first**2) + np.sum(second**2)) / self.n

    def expectations(self, rows):
        """Return loss, residuals and curvatures of rows, without draws."""
        a = self.design.times(rows, self.mean)
        v = self.design.times(rows, self.scale**2, 2)
        half = np.sqrt(v) if self.family.n_predictors > 1 else v
        return self.family.expectations(a, half, self.y[rows], np.empty(0))

    def log_likelihood(self):
        """Return the expected log-likelihood of all rows, without draws."""
        return -sum(self.expectations(rows)[0] for rows in tiles(self.n))

    def refresh(self):
        """Put the anchor at the means: a pass over all rows."""
        self.anchor, self.known = self.mean.copy(), np.zeros(self.shape)
        for rows in tiles(self.n):
            a = self.design.times(rows, self.anchor)
            r = self.family.residual(a, self.y[rows])
            self.known += self.design.scatter(rows, r, self.shape)

    def step(self, name, rows, rng):
        """Estimate the gradient of the log-likelihood by means and log scales."""
        noise = self.scale * rng.standard_normal(self.shape)
        batch, y, every = self.design.take(rows), self.y[rows], slice(None)
        factor = self.n / batch.n
        if name == "naive":
            r = self.family.residual(batch.times(every, self.mean + noise), y)
            naive = factor * batch.scatter(every, r, self.shape)
            return naive, naive * noise
        t = batch.times(every, noise)
        a = before = batch.times(every, self.mean)
        if name == "joint":
            before = batch.times(every, self.anchor)
        r = self.family.residual(a + t, y)
        second = factor * batch.scatter(every, r, self.shape) * noise
        r += self.family.variance_times(self.family.mean(before), t)
        if name == "joint":
            r -= self.family.residual(before, y)
        by_mean = factor * batch.scatter(every, r, self.shape)
        return by_mean + self.known if name == "joint" else by_mean, second


def tiles(n, size=1000):
    """Return slices that cover n rows."""
    return [slice(start, start + size) for start in range(0, n, size)]


def costs(task, batch_size, rng, repeats=20):
    """Return CPU milliseconds of a step by name."""
    task.refresh()
    out = {}
    for name in COSTS:
        kind, best = name.split()[-1], np.inf
        for _ in range(3 if "full" in name else repeats):
            rows = slice(None)
            if "full" not in name:
                rows = rng.choice(task.n, batch_size, replace=False)
            began = time.process_time()
            task.step(kind, rows, rng)
            best = min(best, time.process_time() - began)
        out[name] = 1000.0 * best
    return out


class _Moments:
    """Mean and trace of the variance of arrays, one after the other."""

    def __init__(self):
        self.count, self.mean, self.square = 0, 0.0, 0.0

    def add(self, value):
        self.count += 1
        self.mean = self.mean + value
        self.square += np.sum(value**2)

    def variance(self):
        mean = np.sum((self.mean / self.count) ** 2)
        return (self.square / self.count - mean) * self.count / (self.count - 1)


class ComponentsTask:
    """Probabilistic principal components, x ~ N(0, W W^T + I).

    The gradient of a row by W is a b^T - C with a = S^-1 x, b = W^T a, C = S^-1 W.
    Means of the rows come from their second moments, squares from some of the rows.
    """

    def __init__(self, X, mean, scale, rng, n_rows=1000):
        self.X, self.n, self.mean, self.scale = X, len(X), mean, scale
        self.some = X[rng.choice(len(X), n_rows, replace=False)]
        # About zero, which is the mean of this model.
        own = SecondMoments.of(X)
        about_zero = own.matrix + np.outer(own.mean, own.mean)
        zero = np.zeros_like(own.mean)
        self.moments = SecondMoments(own.weight, zero, matrix=about_zero)
        shape = self.BOUND_DRAWS, *mean.shape
        self.draws = np.random.default_rng(1).standard_normal(shape)

    # Pairs of fixed draws of opposite sign, for the bound.
    BOUND_DRAWS = 32

    def _solved(self, W):
        """Return S^-1."""
        inner = np.linalg.inv(np.eye(W.shape[1]) + W.T @ W)
        return np.eye(len(W)) - W @ inner @ W.T

    def _rows(self, W, D):
        """Return vectors whose products sum to gradients, and to Taylor's of them.

        Each is a list of pairs (u, v) of arrays of rows, and a constant.
        """
        P, Q = self._solved(W + D), self._solved(W)
        a, a0 = self.some @ P, self.some @ Q
        b, b0 = a @ (W + D), a0 @ W
        dS = D @ W.T + W @ D.T
        da = -(a0 @ dS) @ Q
        db = a0 @ D + da @ W
        naive = [(a, b)], -P @ (W + D)
        known = [(a0, b0)], -Q @ W
        bent = Q @ D - Q @ dS @ Q @ W
        taylor = [(a0 + da, b0), (a0, db)], -(Q @ W + bent)
        return naive, taylor, known

    def _total(self, W, D, kind):
        """Return the mean over all rows of naive gradients, or of Taylor's."""
        P, Q, M = self._solved(W + D), self._solved(W), self.moments.matrix
        if kind == "naive":
            return P @ M @ P @ (W + D) - P @ (W + D)
        A, C = Q @ M @ Q, Q @ W
        if kind == "known":
            return A @ W - C
        dS = D @ W.T + W @ D.T
        change = -Q @ dS @ A @ W - A @ dS @ C + A @ D
        return A @ W - C + change - (Q @ D - Q @ dS @ C)

    @staticmethod
    def _square(pairs, constant, weight=None):
        """Return the mean over rows of |sum u v^T + constant|^2, elements weighed."""
        ones = np.ones_like(constant) if weight is None else weight
        total = np.sum(ones * constant**2)
        for u, v in pairs:
            total += 2.0 * np.mean(np.sum((u @ (ones * constant)) * v, axis=1))
            for s, t in pairs:
                total += np.mean(np.sum(((u * s) @ ones) * (v * t), axis=1))
        return total

    def variances(self, batch_size, n_draws, rng):
        """See `LinearTask`; V(rows) from pairs of different draws."""
        within, totals, draws = {}, {}, []
        for _ in range(n_draws):
            noise = self.scale * rng.standard_normal(self.mean.shape)
            naive, taylor, known = self._rows(self.mean, noise)
            less = [(-u, v) for u, v in taylor[0]], -taylor[1]
            joint = naive[0] + less[0], naive[1] + less[1]
            control = joint[0] + known[0], joint[1] + known[1]
            exact = {
                kind: self._total(self.mean, noise, kind)
                for kind in ("naive", "taylor", "known")
            }
            left = exact["naive"] - exact["taylor"]
            parts = {
                "naive": (naive, naive, exact["naive"], exact["naive"]),
                "cv": (control, naive, left + exact["known"], exact["naive"]),
                "joint": (joint, naive, left, exact["naive"]),
            }
            for name, (first, second, mean, other) in parts.items():
                square = self._square(*first) + self._square(*second, noise**2)
                total = np.stack([mean, other * noise])
                within.setdefault(name, []).append(square - np.sum(total**2))
                totals.setdefault(name, _Moments()).add(self.n * total)
            draws.append((naive, noise, exact["naive"]))
        factor = self.n**2 / batch_size * (self.n - batch_size) / (self.n - 1)
        out = {
            name: factor * np.mean(within[name]) + totals[name].variance()
            for name in within
        }
        by_rows = factor * self._between(draws)
        table = {"V(rows, draws)": out["naive"], "V(rows)": by_rows}
        return table | {"V(draws)": totals["naive"].variance()} | out

    def log_likelihood(self):
        """Return the expected log-likelihood of all rows, by fixed draws."""
        total = 0.0
        for sign in (1.0, -1.0):
            W = self.mean + sign * self.scale * self.draws
            total += likelihood(self.moments, W, 1.0).value.mean()
        return 0.5 * self.n * total

    def refresh(self):
        """See `LinearTask`."""
        self.anchor, self.known = self.mean.copy(), np.zeros(self.mean.shape)
        solve = _solver(self.anchor)
        for rows in tiles(self.n):
            a = solve(self.X[rows])
            self.known += a.T @ (a @ self.anchor)
        self.known -= self.n * solve(self.anchor.T).T

    def step(self, name, rows, rng):
        """See `LinearTask`."""
        X = self.X[rows]
        noise = self.scale * rng.standard_normal(self.mean.shape)
        V, factor = self.mean + noise, self.n / len(X)
        solve = _solver(V)
        a = solve(X)
        naive = by_mean = factor * (a.T @ (a @ V)) - self.n * solve(V.T).T
        if name != "naive":
            W = self.anchor if name == "joint" else self.mean
            solve = _solver(W)
            a, C = solve(X), solve(W.T).T
            b, bent = a @ W, solve(noise.T).T
            da = -solve((a @ noise) @ W.T + b @ noise.T)
            bent -= solve((W @ (noise.T @ C) + noise @ (W.T @ C)).T).T
            # Taylor's gradient less its mean over draws, that of the anchor apart.
            taylor = factor * (da.T @ b + a.T @ (a @ noise + da @ W)) - self.n * bent
            by_mean = naive - taylor
            if name == "joint":
                by_mean += self.known + self.n * C - factor * (a.T @ b)
        return by_mean, naive * noise

    def _between(self, draws):
        """Return the variance over rows of gradients averaged over draws."""
        found = []
        for (one, noise, total), (two, other, mean) in zip(
            draws[::2], draws[1::2], strict=True
        ):
            for weight in (np.ones_like(noise), noise * other):
                inner = np.sum(weight * one[1] * two[1])
                for u, v in one[0]:
                    inner += np.mean(np.sum((u @ (weight * two[1])) * v, axis=1))
                    for s, t in two[0]:
                        both = ((u * s) @ weight) * (v * t)
                        inner += np.mean(np.sum(both, axis=1))
                for s, t in two[0]:
                    inner += np.mean(np.sum((s @ (weight * one[1])) * t, axis=1))
                found.append(inner - np.sum(weight * total * mean))
        return np.mean(np.sum(np.reshape(found, (-1, 2)), axis=1))


def _solver(W):
    """Return the function that multiplies rows by S^-1."""
    inner = np.linalg.inv(np.eye(W.shape[1]) + W.T @ W)
    return lambda rows: rows - ((rows @ W) @ inner) @ W.T


def classes_task(task, most=10_000):
    """Return a logistic or softmax regression at its posterior.

    It is fitted to all rows; variances are those of so many of MNIST.
    """
    X, y = load(task)
    large = task == "mnist"
    model = BayesianLogisticRegression(
        1.0, posterior="meanfield", fit_intercept=False, max_iter=40 if large else 500
    ).fit(X, y)
    if large:  # as many rows as fit into memory, several times over
        X, y = X[:most], y[:most]
    family = Softmax(10, len(X)) if large else Logistic()
    y = y.astype(np.int32) if large else y.astype(float)
    return LinearTask(Dense(X), family, y, model.coef_.T, model.coef_std_.T), model


def components_task(task):
    """Return PPCA of standardised MNIST with 16 components at its posterior."""
    X = load("mnist")[0].astype(float)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    model = BayesianPPCA(16, prior_scale=1.0, noise_variance=1.0, random_state=0).fit(X)
    mean, scale = model.components_.T.copy(), model.components_std_.T.copy()
    return ComponentsTask(X, mean, scale, np.random.default_rng(0)), model


def pairs_task(task):
    """Return Bradley and Terry's model of tennis at its posterior."""
    file = read("tennis_jointcv")
    pairs = np.stack([file["winner"], file["loser"]], axis=1).astype(np.int64)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    model = BradleyTerry(1.0, posterior="meanfield").fit(pairs)
    q = model.posterior_
    numbers = np.searchsorted(model.items_, pairs)
    mean, scale = q.mean[:, None], q.scale[:, None]
    return LinearTask(
        Pairs(numbers), Logistic(), np.ones(len(pairs)), mean, scale
    ), model


def simulated_ratings(n=100_000, n_users=943, seed=0):
    """Draw ratings from the model of section 7.1, some users more than others."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, 18)) < rng.uniform(0.02, 0.4, 18)).astype(float)
    X[np.arange(n), rng.integers(18, size=n)] = 1.0
    # Twenty of each user at least, as there.
    more = rng.choice(n_users, n - 20 * n_users, p=rng.dirichlet(np.ones(n_users)))
    user = np.sort(np.concatenate([np.repeat(np.arange(n_users), 20), more]))
    Z = rng.normal(size=(18, 5)) + np.exp(rng.normal(size=(18, 5))) * rng.normal(
        size=(n_users, 18, 5)
    )
    z = np.einsum("nj,njk->nk", X, Z[user])
    return X, user, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def groups_task(task):
    """Return the hierarchical model of simulated ratings at its posterior."""
    X, user, y = simulated_ratings()
    model = HierarchicalSoftmaxClassifier(
        prior_scale=1.0, fit_intercept=False, posterior="meanfield", tol=1.0
    )
    model.fit(X, y, groups=user)
    group = np.searchsorted(model.groups_, user)
    q = model.posterior_
    scale = np.sqrt(q.group_variance)
    design = Groups(X, group)
    family = Softmax(5, len(X))
    return LinearTask(design, family, y.astype(np.int32), q.group_mean, scale), model


TASKS = {
    "sonar": classes_task,
    "australian": classes_task,
    "mnist": classes_task,
    "ppca": components_task,
    "tennis": pairs_task,
    "ratings": groups_task,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=PUBLISHED, default=PUBLISHED)
    parser.add_argument("--seeds", type=int, default=5, help="of the draws")
    options = parser.parse_args()
    for name in options.tasks:
        began = time.process_time()
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            task, model = TASKS[name](name)
            seconds = time.process_time() - began
            small = name in ("sonar", "australian")
            batch, draws = (5, 2000) if small else (100, 20)
            runs = [
                task.variances(batch, draws, np.random.default_rng(seed))
                for seed in range(options.seeds)
            ]
            rng = np.random.default_rng(0)
            found = {name: told([run[name] for run in runs]) for name in runs[0]}
            print(
                f"{name}, {task.n} rows, {task.mean.size} parameters, bound "
                f"{model.elbo_:.2f}, fitted in {seconds:.1f} s of CPU"
            )
            for key, paper in zip(found, PUBLISHED[name], strict=False):
                print(f"  {key:<16} {found[key]}   published {paper:.3g}")
            for key in list(found)[4:]:
                print(f"  {key:<16} {found[key]}")
            if name in PUBLISHED_COST:
                cost = costs(task, batch, rng)
                for key, paper in zip(COSTS, PUBLISHED_COST[name], strict=True):
                    ratio = cost[key] / cost["naive"]
                    of_paper = paper / PUBLISHED_COST[name][0]
                    print(
                        f"  {key:<16} {cost[key]:10.3g} ms, {ratio:.2f} of naive"
                        f"   published {of_paper:.2f}"
                    )


if __name__ == "__main__":
    main()
