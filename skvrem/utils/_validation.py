"""Checks that raise in `fit`, before any state changes, and say what to do."""

import inspect
from contextlib import contextmanager
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array

__all__ = [
    "all_or_nothing",
    "check_aliases",
    "check_integer",
    "check_options",
    "check_order",
    "check_real",
    "check_weight",
]


@contextmanager
def all_or_nothing(estimator):
    """Put back every attribute of the estimator if the block does not end well.

    Covers errors and KeyboardInterrupt. Fitted arrays must be replaced, not written
    to, as only the references are kept.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def _fail(estimator, name, expected):
    value = getattr(estimator, name)
    raise ValueError(
        f"{name} of {type(estimator).__name__} must be {expected}, got {value!r}."
    )


def check_options(estimator, **options):
    """Check that parameters are among their options.

    Parameters
    ----------
    estimator : BaseEstimator
    **options : tuples, by name of parameter
    """
    for name, allowed in options.items():
        value = getattr(estimator, name)
        # Types first: an array compares elementwise, and True equals 1.
        if not any(type(value) is type(a) and value == a for a in allowed):
            _fail(estimator, name, " or ".join(map(repr, allowed)))


def check_aliases(estimator, aliases):
    """Check that no parameter is given under two names.

    Parameters
    ----------
    estimator : estimator
    aliases : dict of str to str
        Names that are None unless given, and the parameters that they stand for.

    Raises
    ------
    ValueError
        If both are given, the second as another value than its default.
    """
    parameters = inspect.signature(type(estimator)).parameters
    for alias, name in aliases.items():
        given = getattr(estimator, alias) is not None
        if given and getattr(estimator, name) != parameters[name].default:
            raise ValueError(
                f"{alias} is another name of {name}: give one of the two, not both."
            )


def check_integer(estimator, *names, least=0, options=()):
    """Check that parameters are integers of at least `least`, or among `options`."""
    for name in names:
        value = getattr(estimator, name)
        if any(type(value) is type(a) and value == a for a in options):
            continue
        ok = isinstance(value, Integral) and not isinstance(value, bool | np.bool_)
        if not (ok and value >= least):
            others = "".join(f" or {a!r}" for a in options)
            _fail(estimator, name, f"an integer of at least {least}{others}")


def check_real(estimator, *names, least=0.0, above=False, most=np.inf, options=()):
    """Check that parameters are finite numbers in a range, or among `options`.

    Parameters
    ----------
    estimator : BaseEstimator
    *names : str
    least, most : float
        Bounds; with `above`, the lower one is excluded.
    above : bool
    options : tuple
        Other values that are allowed, as "auto" or None.
    """
    for name in names:
        value = getattr(estimator, name)
        if any(type(value) is type(a) and value == a for a in options):
            continue
        ok = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        ok = ok and np.isfinite(value) and least <= value <= most
        if not ok or (above and value == least):
            lower = f"{'above' if above else 'of at least'} {least:g}"
            upper = "" if most == np.inf else f" and at most {most:g}"
            others = "".join(f" or {a!r}" for a in options)
            _fail(estimator, name, f"a number {lower}{upper}{others}")


def check_weight(sample_weight, n_samples):
    """Return sample weights as float64, or None where all are the same 1.

    Raises
    ------
    ValueError
        If they are not one finite, non-negative number a sample, or all zero.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_samples, sample_weight)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have one number for each of the {n_samples} samples, "
            f"got shape {weight.shape}."
        )
    if weight.min() < 0.0:
        raise ValueError(
            f"sample_weight must not be negative, got {weight.min():g} in row "
            f"{int(weight.argmin())}."
        )
    if not weight.any():
        raise ValueError("sample_weight is zero for every sample: nothing to fit.")
    return weight


def check_order(order, n_parts):
    """Return a permutation of the parts of a model as an array.

    Raises
    ------
    ValueError
        If it is none.
    """
    order = np.asarray(order)
    if order.shape != (n_parts,) or not np.array_equal(
        np.sort(order), np.arange(n_parts)
    ):
        raise ValueError(
            f"order must be a permutation of 0 to {n_parts - 1}, got {order.tolist()}."
        )
    return order
