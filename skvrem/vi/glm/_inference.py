"""What a fitted regression says of the targets of rows."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import r2_score
from sklearn.utils.validation import _num_samples, check_is_fitted

from skvrem.data import lazily, of_dask, total_over_blocks
from skvrem.utils._columns import Given, MatrixLike
from skvrem.utils._remote import refuse_dask
from skvrem.vi.gaussian._answers import tail_of
from skvrem.vi.glm._input import checked_offset


def predict(
    self,
    X: MatrixLike,
    return_std: bool = False,
    *,
    offset: Given = None,
    groups: Given = None,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Return the expected target of rows, averaged over the posterior.

    Parameters
    ----------
    X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
        Rows.
    return_std : bool, default=False
        Return the standard deviation of a new target as well.
    offset : array-like of shape (n_samples,), default=None
        Added to the linear predictor of each row.
    groups : array-like of shape (n_samples,), default=None
        Ids of their groups, where the fit had groups: rows of others, and without
        ids, have the coefficients that the population lets expect.

    Returns
    -------
    mean : ndarray of shape (n_samples,)
        For counts, the mean of the rate.
    std : ndarray of shape (n_samples,)
        If asked for: of what is not known and of the noise together.

    Warns
    -----
    PosteriorWarning
        If so little is known of the rates of counts that their means say nothing.
    """
    both = _means_and_deviations(self, X, return_std, offset=offset, groups=groups)
    return (both[:, 0], both[:, 1]) if return_std else both[:, 0]


@lazily
def _means_and_deviations(estimator, X, deviations, *, offset=None, groups=None):
    """Return means and, if asked for, standard deviations of new targets, (n, 2)."""
    given = estimator, X, offset, groups, deviations
    return estimator._targets_of_fit.means_and_deviations(*given)


@lazily
def predict_mean_interval(
    self,
    X: MatrixLike,
    level: float = 0.95,
    *,
    offset: Given = None,
    groups: Given = None,
) -> np.ndarray:
    """Return central credible intervals of the mean of rows, without its noise.

    Parameters
    ----------
    X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
        Rows.
    level : float, default=0.95
        Posterior probability of the interval.
    offset : array-like of shape (n_samples,), default=None
        Added to the linear predictor of each row.
    groups : array-like of shape (n_samples,), default=None
        Ids of their groups, where the fit had groups: rows of others, and without
        ids, have the coefficients that the population lets expect.

    Returns
    -------
    intervals : ndarray of shape (n_samples, 2)
        Lower and upper ends.
    """
    given = self, X, offset, groups, tail_of(level)
    return self._targets_of_fit.mean_interval(*given)


@lazily
def predict_interval(
    self,
    X: MatrixLike,
    level: float = 0.95,
    *,
    offset: Given = None,
    groups: Given = None,
) -> np.ndarray:
    """Return central intervals of new targets of rows, their noise included.

    Parameters
    ----------
    X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
        Rows.
    level : float, default=0.95
        Posterior probability of the interval; of counts, which come in steps, at
        least.
    offset : array-like of shape (n_samples,), default=None
        Added to the linear predictor of each row.
    groups : array-like of shape (n_samples,), default=None
        Ids of their groups, where the fit had groups: rows of others, and without
        ids, have the coefficients that the population lets expect.

    Returns
    -------
    intervals : ndarray of shape (n_samples, 2)
        Lower and upper ends, which belong to the interval.
    """
    given = self, X, offset, groups, tail_of(level)
    return self._targets_of_fit.interval(*given)


def sample_predictive(
    self,
    X: MatrixLike,
    n_samples: int = 1,
    random_state: Any = None,
    *,
    offset: Given = None,
    groups: Given = None,
) -> np.ndarray:
    """Draw new targets of rows, by their noise and by the posterior.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_rows, n_features)
        Rows.
    n_samples : int, default=1
        Draws of each; a draw has the same coefficients for all rows.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.
    offset : array-like of shape (n_rows,), default=None
        Added to the linear predictor of each row.
    groups : array-like of shape (n_samples,), default=None
        Ids of their groups, where the fit had groups: rows of others, and without
        ids, have the coefficients that the population lets expect.

    Returns
    -------
    targets : ndarray of shape (n_samples, n_rows)
        Numbers; of counts, whole ones.
    """
    check_is_fitted(self)
    if offset is None:
        offset = 0.0
    else:
        refuse_dask(X)
        offset = checked_offset(offset, _num_samples(X))[:, None]
    return self._sample_predictive(X, n_samples, random_state, groups, offset)


def score(
    self,
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: Given = None,
    offset: Given = None,
    groups: Given = None,
) -> float:
    """Return the explained share of the deviance, which is R^2 for "gaussian".

    Parameters
    ----------
    X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Their targets.
    sample_weight : array-like of shape (n_samples,), default=None
        Rows count so many times.
    offset : array-like of shape (n_samples,), default=None
        Added to the linear predictor of each row.
    groups : array-like of shape (n_samples,), default=None
        Ids of their groups, where the fit had groups: rows of others, and without
        ids, have the coefficients that the population lets expect.

    Returns
    -------
    score : float
        At most 1; for counts that of the deviance of Poisson's. Of targets that
        are all the same, 1 if they are predicted exactly and 0 otherwise; of a
        single row NaN, with a warning.
    """
    given = X, y, sample_weight, offset, groups
    if any(map(of_dask, given)):
        return _score_blocks(self, *given)
    mean = self.predict(X, offset=offset, groups=groups)
    return self._targets_of_fit.score(y, mean, sample_weight)


def _score_blocks(estimator, X, y, sample_weight, offset, groups):
    """Return the score of rows of dask, by two passes over them."""
    given = {"y": y, "sample_weight": sample_weight}
    given |= {"offset": offset, "groups": groups}
    n, weight, mean = total_over_blocks(estimator, _targets_summed, X, **given)
    if not weight > 0.0:
        raise ValueError("sample_weight is zero for every sample of X.")
    mean /= weight
    about = partial(_losses, float(mean))
    lost, total = total_over_blocks(estimator, about, X, **given)
    if n < 2.0:
        return r2_score([0.0], [0.0])  # which warns, and says NaN
    if total == 0.0:
        return 1.0 if lost == 0.0 else 0.0
    return float(1.0 - lost / total)


def _targets_summed(estimator, X, y, sample_weight=None, **given):
    """Return the number of rows of a block, their weight, and weighted targets."""
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    y = np.asarray(y, np.float64)
    return np.array([len(y), np.sum(weight), np.sum(weight * y)])


def _losses(mean, estimator, X, y, sample_weight=None, **given):
    """Return what predictions of a block lose, and what the mean of all targets does.

    Squares; of counts, Poisson's deviance.
    """
    if not len(y):
        return np.zeros(2)
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    y, found = np.asarray(y, np.float64), estimator.predict(X, **given)
    loss = estimator._targets_of_fit.loss
    of_mean = np.sum(weight * loss(y, mean)) if mean else 0.0
    return np.array([np.sum(weight * loss(y, found)), of_mean])
