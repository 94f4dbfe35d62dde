"""Other packages' solvers of the same problem, each as a ladder of growing precision.

A peer is a function of rows, classes and threads that yields functions of nothing,
which fit from scratch, validation included, and return the coefficients. A package that
is not installed yields none.
"""

from itertools import product

import numpy as np
from numba import njit

__all__ = ["PEERS", "averaged_sgd"]


def _sklearn(solver):
    def ladder(X, y, threads):
        from sklearn.linear_model import LogisticRegression

        tolerances = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10]
        if solver == "newton-cholesky" and X.shape[1] * len(np.unique(y)) > 3000:
            return  # a Hessian of the square of this
        for tol in tolerances:
            model = LogisticRegression(
                solver=solver, tol=tol, max_iter=20_000, fit_intercept=False
            )
            yield lambda model=model: model.fit(X, y).coef_

    return ladder


def _liblinear(dual):
    def ladder(X, y, threads):
        from sklearn.linear_model import LogisticRegression

        if len(np.unique(y)) > 2:
            return  # one versus rest: another objective
        for tol in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8):
            model = LogisticRegression(
                solver="liblinear",
                dual=dual,
                tol=tol,
                max_iter=20_000,
                fit_intercept=False,
                random_state=0,
            )
            yield lambda model=model: model.fit(X, y).coef_

    return ladder


def _glum(solver):
    def ladder(X, y, threads):
        try:
            from glum import GeneralizedLinearRegressor
        except ImportError:
            return
        if len(np.unique(y)) > 2 or (solver == "irls-ls" and X.shape[1] > 5000):
            return  # several arrays of the square of its columns
        for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
            model = GeneralizedLinearRegressor(
                family="binomial",
                alpha=1.0 / X.shape[0],
                l1_ratio=0.0,
                solver=solver,
                gradient_tol=tol,
                max_iter=5000,
                fit_intercept=False,
            )
            yield lambda model=model: model.fit(X, y.astype(float)).coef_

    return ladder


def _snapml(dual):
    def ladder(X, y, threads):
        try:
            from snapml import LogisticRegression
        except ImportError:
            return
        if len(np.unique(y)) > 2:
            return
        for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
            model = LogisticRegression(
                regularizer=1.0,
                dual=dual,
                tol=tol,
                max_iter=2000,
                fit_intercept=False,
                n_jobs=threads,
            )
            yield lambda model=model: np.ravel(model.fit(X, y).coef_)

    return ladder


PEERS = {
    **{
        f"sklearn-{name}": _sklearn(name)
        for name in ("lbfgs", "newton-cg", "newton-cholesky", "sag", "saga")
    },
    "liblinear-dual": _liblinear(True),
    "liblinear-primal": _liblinear(False),
    "glum-irls": _glum("irls-ls"),
    "glum-lbfgs": _glum("lbfgs"),
    "snapml-dual": _snapml(True),
    "snapml-primal": _snapml(False),
}


# Averaged stochastic gradients: steps rate / (1 + rate * t)^power over the rows' mean
# square. All are averaged, or those past half of the t that their epoch ends with.
RATES, POWERS, BEGINNINGS = 2.0 ** np.arange(-10, 6, 2), (0.0, 0.5, 0.75), (0.0, 0.5)


def averaged_sgd(X, y, n_epochs):
    """Yield a setting, and coefficients after each of the epochs, for all 48 settings.

    As :class:`sklearn.linear_model.SGDClassifier` with ``average=True``, which for more
    than two classes has another objective: the averages go on over epochs.
    """
    classes, number = np.unique(y, return_inverse=True)
    k, (n, d) = len(classes), X.shape
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(n) for _ in range(n_epochs)])
    unit = float(np.square(X).sum() / n)
    for rate, power, begin in product(RATES, POWERS, BEGINNINGS):
        coefs = np.empty((n_epochs, 1 if k == 2 else k, d))
        _averaged_steps(X, number, orders, rate, unit, power, begin, coefs)
        yield (float(rate), power, begin), coefs


@njit(cache=True, fastmath=True)
def _averaged_steps(X, y, orders, rate, unit, power, begin, coefs):
    n_epochs, n = orders.shape
    k, d = coefs.shape[1:]
    theta, mean, z = np.zeros((k, d)), np.zeros((k, d)), np.empty(k)
    n_steps = n_averaged = 0
    for epoch in range(n_epochs):
        for i in orders[epoch]:
            step = rate * (1.0 + rate * n_steps) ** -power / unit
            n_steps += 1
            for j in range(k):
                z[j] = 0.0
                for a in range(d):
                    z[j] += X[i, a] * theta[j, a]
            if k == 1:
                z[0] = y[i] - 1.0 / (1.0 + np.exp(-z[0]))
            else:
                p = np.exp(z - z.max())
                z[:] = -p / p.sum()
                z[y[i]] += 1.0
            share = 0.0
            if n_steps > begin * n * (epoch + 1):
                n_averaged += 1
                share = 1.0 / n_averaged
            for j in range(k):
                for a in range(d):
                    theta[j, a] += step * (z[j] * X[i, a] - theta[j, a] / n)
                    mean[j, a] += share * (theta[j, a] - mean[j, a])
        coefs[epoch] = mean
