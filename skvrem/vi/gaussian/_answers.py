"""What estimators with Gaussian predictors need to answer for rows."""

import numpy as np
from numpy.polynomial.chebyshev import Chebyshev
from scipy.special import ndtri, stdtrit
from sklearn.utils.validation import check_is_fitted

from skvrem.data import lazily
from skvrem.utils._columns import Given, MatrixLike
from skvrem.utils._parallel import one_blas_thread, parallel_map, row_chunks, threads

# Rows a task of a prediction, and numbers of a block of draws.
PREDICT_ROWS, BLOCK = 4096, 4_000_000
# How many distributions are inverted one by one. Of more, of so many degrees of freedom
# and probability in the tail or more, the degree of a polynomial right to eight digits.
MOST_INVERTED, LEAST_DF, LEAST_TAIL, DEGREE = 500, 2.0, 1e-9, 20


def in_chunks(estimator, evaluate, n_rows, chunk_rows=PREDICT_ROWS):
    """Return what a function of a chunk (start, stop) says of all rows."""
    with threads(estimator.n_jobs), one_blas_thread():
        chunks = row_chunks(0, n_rows, chunk_rows)
        return np.concatenate(list(parallel_map(evaluate, chunks)))


def check_method(method):
    """Check how probabilities are to be averaged over a posterior."""
    if method not in ("quadrature", "mc", "plugin"):
        raise ValueError(
            f"method must be 'quadrature', 'mc' or 'plugin', got {method!r}."
        )


def tail_of(level):
    """Return what a central interval of posterior probability `level` leaves below."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
    return 0.5 * (1.0 - level)


def noisy_predictors(a, half, noise):
    """Yield slices of rows, and draws (m, n_draws, k) of their predictors.

    Parameters
    ----------
    a : ndarray of shape (n, k)
        Means.
    half : ndarray of shape (n, k) or (n, k * k)
        Standard deviations, or lower triangular roots of covariances.
    noise : ndarray of shape (n_draws, k)
        Standard normal.
    """
    n, k = a.shape
    size = max(1, BLOCK // (len(noise) * k))
    for start in range(0, n, size):
        some = slice(start, start + size)
        if half.shape[1] == k:
            away = half[some, None] * noise
        else:
            root = np.tril(half[some].reshape(-1, k, k))
            away = noise @ root.transpose(0, 2, 1)
        yield some, a[some, None] + away


def quantile(p, df=np.inf):
    """Return the quantile of Student's t, or of the normal where `df` is infinite.

    Of many `df` (n,), as of rows with one each, by a polynomial in 1 / df, of which it
    is a smooth function: inverting each distribution takes longer than all the rest of
    an interval.
    """
    df = np.asarray(df, np.float64)
    known = np.isfinite(df)
    many = df.size > MOST_INVERTED and min(p, 1.0 - p) >= LEAST_TAIL
    if many and df.min() >= LEAST_DF:
        inverse = 1.0 / df
        low, high = inverse.min(), inverse.max()
        if high > low:
            of = Chebyshev.interpolate(_of_inverse, DEGREE, [low, high], [p])
            return np.where(known, of(inverse), ndtri(p))
    return np.where(known, stdtrit(df, p), ndtri(p))


def _of_inverse(inverse, p):
    return stdtrit(1.0 / inverse, p)


def deviation(df):
    """Return the standard deviation of Student's t; `df` is above 2."""
    return 1.0 / np.sqrt(1.0 - 2.0 / df)


def interval_columns(mean, scale, label="", df=np.inf):
    """Return the columns of a table: means, standard deviations, 95 % intervals.

    Of normal distributions, or Student's t with so many degrees of freedom, one for all
    or one each.
    """
    before, half = f"{label} " if label else "", quantile(0.975, df) * scale
    return {
        label or "mean": mean,
        f"{before}sd": deviation(df) * scale,
        f"{before}2.5 %": mean - half,
        f"{before}97.5 %": mean + half,
    }


class PredictsByGroup:
    """Classifiers whose ``predict_proba(X, groups=groups)`` says all."""

    @lazily
    def predict(self, X: MatrixLike, groups: Given = None) -> np.ndarray:
        """Return the most probable class of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,), default=None
            As in `predict_proba`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X, groups=groups).argmax(axis=1)]

    @lazily
    def predict_log_proba(self, X: MatrixLike, groups: Given = None) -> np.ndarray:
        """Return the logarithms of the probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,), default=None
            As in `predict_proba`.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, groups=groups))
