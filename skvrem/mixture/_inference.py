"""What a fitted Gaussian mixture says of rows: labels, probabilities, densities."""

from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp, softmax
from sklearn.utils import check_array

from skvrem.data import as_source, is_dask
from skvrem.mixture._description import GaussianMixtureDescription
from skvrem.mixture._model import GaussianMixtureModel
from skvrem.utils._parallel import parallel_map, row_chunks, threads
from skvrem.utils._validation import check_magnitude, check_weight, validate_data

__all__ = ["GaussianMixtureInference", "check_block", "find_missing"]

# Rows scored at a time, so that their joint densities stay in the cache.
SCORE_ROWS = 8192


def find_missing(X, covariance_type):
    """Whether X holds NaN.

    Raises
    ------
    ValueError
        If it does, and the covariances have off-diagonal elements; or numbers whose
        squares overflow.
    """
    # The sum of a column is NaN if one of its elements is; no temporary of X's size.
    with np.errstate(over="ignore", invalid="ignore"):
        missing = bool(np.isnan(X.sum()))
    if missing:  # or else large numbers of both signs have overflowed
        chunks = row_chunks(0, len(X), SCORE_ROWS)
        missing = any(np.isnan(X[start:stop]).any() for start, stop in chunks)
    if missing and covariance_type in ("full", "tied"):
        raise ValueError(
            "X contains NaN. Missing values are integrated out with "
            "covariance_type='diag' or 'spherical'; for "
            f"{covariance_type!r} impute them first."
        )
    if X.size:
        check_magnitude(X)
    return missing


def check_block(X, covariance_type):
    """Check a block of a dask array as scikit-learn checks an array."""
    _refuse_sparse_chunks(X)
    X = check_array(X, dtype=None, ensure_all_finite="allow-nan", ensure_min_samples=0)
    return find_missing(X, covariance_type)


def _refuse_sparse_chunks(block):
    """Raise a TypeError for a sparse block of a dask array."""
    if sp.issparse(block) or hasattr(block, "todense"):
        raise TypeError(
            f"The chunks of X are sparse ({type(block).__name__}), and a mixture of "
            "Gaussians needs dense ones: pass "
            "X.map_blocks(lambda block: block.toarray())."
        )


def _evaluate_rows(X, what, parameters, covariance_type):
    """Labels, probabilities or log-densities of the rows of an array in memory."""
    _refuse_sparse_chunks(X)
    model = GaussianMixtureModel(covariance_type, 0.0, find_missing(X, covariance_type))
    source = as_source(X)
    n, k = X.shape[0], len(parameters.weights)
    kinds = {
        "labels": ((n,), np.int64, partial(np.argmax, axis=1)),
        "probabilities": ((n, k), X.dtype, partial(softmax, axis=1)),
        "log_density": ((n,), X.dtype, partial(logsumexp, axis=1)),
    }
    shape, dtype, function = kinds[what]
    out = np.empty(shape, dtype)

    def fill(rows):
        start, stop = rows
        batch = source.batch(start, stop)
        out[start:stop] = function(model.log_joint(parameters, batch, X.dtype))

    for _ in parallel_map(fill, row_chunks(0, n, SCORE_ROWS)):
        pass
    return out


class GaussianMixtureInference(GaussianMixtureDescription):
    """Methods of a fitted mixture; they use its public attributes only."""

    def _check_X(self, X, reset):
        """Validate X without loading a dask array."""
        if is_dask(X) and hasattr(X, "numblocks"):
            if X.ndim != 2:
                raise ValueError(
                    f"Expected a 2-dimensional dask array, got {X.ndim} dimensions."
                )
            if np.isnan(X.shape[1]):
                raise ValueError(
                    "X does not know how many columns its chunks have: call "
                    "X.compute_chunk_sizes() first."
                )
            if X.shape[0] == 0:
                raise ValueError("Found array with 0 sample(s): X has no rows.")
            _refuse_sparse_chunks(X._meta)
            if X.dtype.kind not in "fiub":
                raise ValueError(f"X must be numeric, got dtype {X.dtype}.")
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
        if hasattr(X, "to_dask_array"):
            raise TypeError(
                f"{type(self).__name__} takes dask arrays, not a dask "
                f"{type(X).__name__}: pass X.to_dask_array(lengths=True)."
            )
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=(np.float64, np.float32),
            order="C",
            ensure_all_finite="allow-nan",
        )

    def _evaluate(self, X, what, columns=()):
        parameters = self._parameters()
        X = self._check_X(X, reset=False)
        evaluate = partial(
            _evaluate_rows,
            what=what,
            parameters=parameters,
            covariance_type=self._of_fit.covariance_type,
        )
        if is_dask(X):
            if X.numblocks[1] > 1:
                X = X.rechunk({1: -1})
            chunks = (X.chunks[0], *((c,) for c in columns))
            return X.map_blocks(
                evaluate,
                chunks=chunks,
                dtype=np.int64 if what == "labels" else X.dtype,
                drop_axis=None if columns else 1,
                meta=np.empty((0,) * len(chunks), X.dtype),
            )
        with threads(self.n_jobs):
            return evaluate(X)

    def predict(self, X):
        """Return the most probable component of each row.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        labels : ndarray or dask array of int of shape (n_samples,)
            Lazy where X is a dask array.
        """
        return self._evaluate(X, "labels")

    def predict_proba(self, X):
        """Return the probability of each component for each row.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        probabilities : ndarray or dask array of shape (n_samples, n_components)
            Each row sums to 1; lazy where X is a dask array.
        """
        return self._evaluate(X, "probabilities", (len(self._parameters().weights),))

    def score_samples(self, X):
        """Return the log-density of each row, in nats.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        log_density : ndarray or dask array of shape (n_samples,)
            Lazy where X is a dask array.
        """
        return self._evaluate(X, "log_density")

    def score(self, X, y=None, sample_weight=None):
        """Return the average log-density of the rows, in nats a row.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        score : float
            The higher, the better.
        """
        log_density = self.score_samples(X)
        if is_dask(log_density):
            # Only the numbers a row travel, never the rows.
            log_density = log_density.compute()
        if is_dask(sample_weight):
            sample_weight = sample_weight.compute()
        weight = check_weight(sample_weight, len(log_density))
        return float(np.average(log_density, weights=weight))

    def _n_parameters(self):
        k, d = self.means_.shape
        covariance = {
            "full": k * d * (d + 1) // 2,
            "tied": d * (d + 1) // 2,
            "diag": k * d,
            "spherical": k,
        }
        return covariance[self._of_fit.covariance_type] + k * d + k - 1

    def bic(self, X):
        """Return the Bayesian information criterion on X.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        bic : float
            The lower, the better.
        """
        log_density = np.asarray(self.score_samples(X))
        penalty = self._n_parameters() * np.log(len(log_density))
        return float(-2.0 * log_density.sum(dtype=float) + penalty)

    def aic(self, X):
        """Return the Akaike information criterion on X.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        aic : float
            The lower, the better.
        """
        log_density = np.asarray(self.score_samples(X))
        return float(-2.0 * log_density.sum(dtype=float) + 2 * self._n_parameters())
