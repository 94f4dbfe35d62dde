"""Other packages' solvers of the same problem, each as a ladder of growing precision.

A peer is a function of rows, classes and threads that yields functions of nothing,
which fit from scratch, validation included, and return the coefficients. A package that
is not installed yields none.
"""

import numpy as np

__all__ = ["PEERS"]


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
