"""What a fitted regression says of the targets of rows."""

import warnings
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, pdtr, xlogy
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.utils.validation import (
    _num_samples,
    check_array,
    check_is_fitted,
    column_or_1d,
)

from skvrem.data import lazily, of_dask, total_over_blocks
from skvrem.exceptions import PosteriorWarning
from skvrem.utils._columns import Given, MatrixLike, check_one_each
from skvrem.utils._remote import refuse_dask
from skvrem.utils._reports import outside
from skvrem.utils._validation import check_magnitude
from skvrem.vi.gaussian._answers import deviation, quantile, tail_of
from skvrem.vi.glm._counts import count_quantile

# Logarithm of the largest rate that is told from others, of 64 bits.
MOST_LOG = 700.0
# Standard deviation of the logarithm of a rate beyond which its mean, a hundred times
# its median, says nothing; rates up to which that misleads nobody.
WIDE_RATE, FEW_COUNTS = 3.0, 10.0


def checked_offset(offset, n_rows):
    """Return the offset of each row, or zero."""
    if offset is None:
        return np.zeros(n_rows)
    offset = check_array(offset, ensure_2d=False, dtype=np.float64, input_name="offset")
    check_one_each(offset, "offset must have one number", n_rows, "rows")
    check_magnitude(offset, "offset")
    return offset


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
    if estimator._of_fit.family == "gaussian":
        if not deviations:
            found = estimator._predictors(X, lambda a, *_: a, groups, spread=False)
            return found + checked_offset(offset, len(found))[..., None]
        mean, variance, df = _of_numbers(estimator, X, offset, groups, noisy=True)
        variance = variance * deviation(df) ** 2
    else:
        a, v = _moments(estimator, X, offset, groups)
        more = 0.0
        if estimator._of_fit.family == "negative-binomial":
            more = 1.0 / estimator.concentration_
        mean = _exp(a + 0.5 * v)
        _warn_of_rates(estimator, mean, v)
        wider = np.expm1(np.minimum(v, MOST_LOG)) + more * _exp(v)
        with np.errstate(over="ignore"):
            std = np.hypot(np.sqrt(mean), mean * np.sqrt(wider))
        return np.column_stack([mean, np.minimum(std, np.exp(MOST_LOG))])
    return np.column_stack([mean, np.sqrt(variance)])


def _exp(logarithms):
    """Return exponentials, of logarithms that are too large the largest."""
    return np.exp(np.minimum(logarithms, MOST_LOG))


def _warn_of_rates(estimator, mean, variance):
    """Warn of means that say nothing of rates, by the variances of their logarithms.

    Of rates of a few counts at most, as where all counts were zero, they may say so.
    """
    far = (variance > WIDE_RATE**2) & (mean > FEW_COUNTS)
    if far.any():
        warnings.warn(
            "The logarithm of the rate has a posterior standard deviation above "
            f"{WIDE_RATE:g}, up to {np.sqrt(variance[far].max()):.3g}, for {far.sum()} "
            f"of {far.size} rows of predict of {type(estimator).__name__}: the mean of "
            "such a rate says nothing, as hardly likely coefficients make most of it. "
            "Where columns go farther than in the fit, give np.log1p of those with "
            "long tails, or limits to them; else a smaller prior_scale. The ends of "
            "predict_mean_interval say what is known.",
            PosteriorWarning,
            stacklevel=outside(),
        )


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
    tail = tail_of(level)
    if self._of_fit.family == "gaussian":
        return _ends(*_of_numbers(self, X, offset, groups), tail)
    return _exp(_ends(*_moments(self, X, offset, groups), np.inf, tail))


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
    tail = tail_of(level)
    if self._of_fit.family == "gaussian":
        return _ends(*_of_numbers(self, X, offset, groups, noisy=True), tail)
    a, v = _moments(self, X, offset, groups)
    distribution, more = pdtr, 0.0
    if self._of_fit.family == "negative-binomial":
        r = self.concentration_
        more = 1.0 / r

        def distribution(counts, mean):
            return betainc(r, counts + 1.0, r / (r + mean))

    given = a, np.sqrt(v), distribution
    ends = [count_quantile(*given, p, more) for p in (tail, 1.0 - tail)]
    return np.stack(ends, axis=1)


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
    if self._of_fit.family == "gaussian" or len(mean) < 2:
        return r2_score(y, mean, sample_weight=sample_weight)
    y = column_or_1d(y)
    if len(y) == len(mean) and (y == y[0]).all():
        return float(np.array_equal(y, mean))
    return d2_tweedie_score(y, mean, sample_weight=sample_weight, power=1)


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

    def lost(about):
        if estimator._of_fit.family == "gaussian":
            return np.sum(weight * np.square(y - about))
        return np.sum(weight * 2.0 * (xlogy(y, y / about) - y + about))

    return np.array([lost(found), lost(mean) if mean else 0.0])


def _ends(mean, variance, df, tail):
    """Return the ends (n, 2) of central intervals, of Student's t or normals."""
    half = -quantile(tail, df) * np.sqrt(variance)
    return np.column_stack([mean - half, mean + half])


def _of_numbers(estimator, X, offset, groups, noisy=False):
    """Return means, squared scales and degrees of freedom of rows, or new targets."""
    about = estimator.posterior_, estimator._given_prior
    learnt, noise = estimator._learnt_noise(*about), 0.0
    if noisy:
        noise = estimator._noise
    if learnt is not None:
        spread = learnt.of_rows(estimator._of_fit.fit_intercept)

    def answer(a, v, family, model=None, batch=None):
        if learnt is None:
            return np.column_stack([a, v + noise, np.full(len(v), np.inf)])
        return np.column_stack([a, *spread(v[:, 0], noise, batch)])

    a, variance, df = estimator._predictors(X, answer, groups).T
    return a + checked_offset(offset, len(a)), variance, df


def _moments(estimator, X, offset, groups):
    """Return means and variances of the linear predictors of rows."""
    both = estimator._predictors(X, lambda a, v, *_: np.column_stack([a, v]), groups)
    a, v = both.T
    return a + checked_offset(offset, len(a)), v
