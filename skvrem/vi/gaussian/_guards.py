"""What estimators of this folder refuse, in one manner, and what no stream has."""

import warnings
from contextlib import contextmanager

import numpy as np

from skvrem.data import column_moments
from skvrem.exceptions import OneClassWarning
from skvrem.utils._remote import refuse_dask
from skvrem.utils._reports import outside
from skvrem.utils._validation import (
    all_or_nothing,
    among,
    check_magnitude,
    validate_data,
)
from skvrem.vi.gaussian._model_posterior import LEAST_SCALE, MOST_SCALE

SCALES = {"least": LEAST_SCALE, "most": MOST_SCALE}
# Standard deviations that a column may lie away from zero: beyond, its coefficient and
# the intercept are told apart by the last digits of their products only.
FAR = 1e6
# Least share of a precision that is left where the coefficients before are known.
LEAST_PIVOT = 1e-13
# Attributes that a fit has and a stream has not.
BOUNDS = ("elbo_", "elbo_se_", "elbo_error_")

CENTRE = (
    "Centre the features and put them on one scale "
    "(sklearn.preprocessing.StandardScaler, or a Pipeline with it)."
)


class StreamsWithoutBound:
    """Estimators whose bound is that of a fit: after a stream there is none."""

    def __getattr__(self, name):
        descriptor = getattr(type(self), name, None)
        if isinstance(descriptor, property):
            return descriptor.fget(self)  # it has none, and says why itself
        known = vars(self)
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in BOUNDS and "log_marginal_likelihood_" in known:
            text += (
                ": the nested posterior of groups has no bound of the evidence, but an "
                "approximation, log_marginal_likelihood_."
            )
        elif name in BOUNDS and "posterior_" in known:
            text += (
                ": after partial_fit there is no bound of the evidence of all rows. "
                "The posterior of earlier batches is an approximation, and sums of "
                "bounds given such priors can exceed the evidence. fit(X, y) to all "
                'rows has one; history_["objective"] is the bound of the last batch '
                "given what came before."
            )
        raise AttributeError(text)

    def _forget_bound(self):
        """Leave no bound behind: rows were added to a posterior."""
        for name in BOUNDS:
            vars(self).pop(name, None)


@contextmanager
def whole_fit(estimator, advice):
    """Make a fit happen wholly or not at all, and say why where algebra fails.

    Parameters
    ----------
    estimator : estimator
    advice : str
        What to do where a matrix is not positive definite in floating point.
    """
    with all_or_nothing(estimator):
        try:
            yield
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"The precision of the posterior of {type(estimator).__name__} is not "
                f"positive definite in floating point ({error}). {advice}"
            ) from error


def check_in_memory(**containers):
    """Raise a TypeError that names the argument for a container of dask.

    Parameters
    ----------
    **containers : by name of the argument
    """
    for name, container in containers.items():
        try:
            refuse_dask(container)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None


def checked(estimator, X, *y, reset=False, **options):
    """Return rows, and targets where they are given, as arrays that can be squared.

    `options` go to scikit-learn's `validate_data`.
    """
    options |= {"dtype": (np.float64, np.float32), "order": "C", "reset": reset}
    found = validate_data(estimator, X, *y, **options)
    check_magnitude(found[0] if y else found)
    return found


def check_spread(data):
    """Check that no column of a source lies too far from zero for its spread."""
    if data.remote:
        check_moments(column_moments(data).plain)
    else:
        check_columns(data.rows)


def check_columns(X):
    """Check that no column lies too far from zero for its spread.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)

    Raises
    ------
    ValueError
        With the first such column. Columns that are constant are not meant.
    """
    if len(X) < 2:
        return
    mean = X.mean(axis=0, dtype=np.float64)
    # Two values so far apart have half their distance for a standard deviation, the
    # rest of n rows at their mean: no column's is less.
    least = np.abs(X[0].astype(np.float64) - X[-1]) / np.sqrt(2.0 * len(X))
    for j in np.flatnonzero(np.abs(mean) > FAR * least):
        column = np.asarray(X[:, j], np.float64)
        if column.max() > column.min():
            _check_column(j, mean[j], column.std())


def check_moments(moments):
    """Check the same by the moments of columns."""
    for j, column in enumerate(zip(moments.mean, moments.deviation, strict=True)):
        if column[1] > 0.0:
            _check_column(j, *column)


def _check_column(j, mean, deviation):
    if np.abs(mean) > FAR * deviation:
        raise ValueError(
            f"Column {j} of X lies about {mean:.3g} and varies by {deviation:.3g} "
            "only, which is too far from zero for its coefficient to be told from the "
            f"intercept. {CENTRE}"
        )


def check_pivots(precision):
    """Check that coefficients can be told apart in floating point.

    Parameters
    ----------
    precision : ndarray of shape (d, d)

    Raises
    ------
    ValueError
        If a coefficient is known to fewer digits than there are, given those before.
    """
    pivots = np.square(np.linalg.cholesky(precision).diagonal())
    if (pivots < LEAST_PIVOT * precision.diagonal()).any():
        raise ValueError(
            "Coefficients cannot be told apart in floating point: features lie far "
            f"from zero for their spread, or nearly depend on each other. {CENTRE}"
        )


def warn_one_class(estimator, numbers, classes):
    """Warn of a stream that begins with rows of one of its classes, as sorted ones."""
    if numbers.size and numbers.min() == numbers.max():
        warnings.warn(
            f"The first batch of {type(estimator).__name__} has rows of the class "
            f"{classes.tolist()[numbers[0]]!r} only. Of a stream that is sorted by "
            "class, in small batches, posterior='meanfield' may end .1 nats a row "
            "above the log-loss of a fit to all rows: shuffle the rows, take batches "
            "of a thousand, or posterior='nested', which ends near a fit.",
            OneClassWarning,
            stacklevel=outside(),
        )


def check_prior_scale(estimator, options=()):
    """Check `prior_scale`, of an estimator whose rows have not been seen.

    It may be one of the words in `options`.

    Raises
    ------
    ValueError
        If it is neither a positive number nor a row of them.
    """
    if among(estimator.prior_scale, options):
        return
    try:
        scale = np.asarray(estimator.prior_scale)
    except ValueError:  # ragged
        scale = np.array("")
    if not (
        scale.dtype.kind in "fiu"
        and scale.ndim < 2
        and (scale >= LEAST_SCALE).all()
        and (scale <= MOST_SCALE).all()
    ):
        words = "".join(f"{option!r}, " for option in options)
        raise ValueError(
            f"prior_scale of {type(estimator).__name__} must be {words}a positive "
            f"number, or one for each feature, from {LEAST_SCALE:g} to "
            f"{MOST_SCALE:g}, got {estimator.prior_scale!r}."
        )


def feature_scales(estimator, n_features):
    """Return the prior scale of each feature.

    Raises
    ------
    ValueError
        If `prior_scale` has another number of them.
    """
    scale = np.asarray(estimator.prior_scale, np.float64)
    if scale.ndim and scale.shape != (n_features,):
        raise ValueError(
            f"prior_scale must be one number, or one for each of the {n_features} "
            f"features, got {scale.size}."
        )
    return np.broadcast_to(scale, n_features)
