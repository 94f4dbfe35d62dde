"""What users give of a family's parameters."""

import numpy as np

from skvrem.hmm.emissions._coordinates import SimplexRows


def given(emission, name, shape):
    """Return a parameter that the user gave, spread to `shape`, or None.

    Raises
    ------
    ValueError
        If it has another shape.
    """
    value = getattr(emission, name)
    if value is None:
        return None
    try:
        return np.array(np.broadcast_to(np.asarray(value, float), shape))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} of {type(emission).__name__} must be numbers of shape {shape}, "
            f"got {value!r}."
        ) from None


def check_shares(value, what, shape):
    """Return rows of probabilities that sum to 1.

    Raises
    ------
    ValueError
        If they do not, beginning with `what` they are.
    """
    array = np.asarray(value, float)
    if array.shape != shape or not (
        array.min() >= 0.0 and np.allclose(array.sum(axis=-1), 1.0, atol=1e-6)
    ):
        raise ValueError(
            f"{what} must be rows of probabilities of shape {shape} that sum to 1, got "
            f"{value!r}."
        )
    return array


def given_shares(emission, name, prior=1.0):
    """Return the `SimplexRows` of what the user gave of probabilities, NaN where free.

    Raises
    ------
    ValueError
        If those given cannot be a part of what sums to 1, or a prior is below 1.
    """
    what, shape = f"{name} of {type(emission).__name__}", emission._shape(name)
    value = given(emission, name, shape)
    fixed = np.full(shape, np.nan) if value is None else value
    check_given_shares(fixed, what)
    try:
        prior = np.broadcast_to(np.asarray(prior, float), shape)
    except (TypeError, ValueError):
        prior = np.zeros(1)
    if not (prior >= 1.0).all():
        raise ValueError(
            f"prior of {type(emission).__name__} must be at least 1, one number or an "
            f"array of shape {shape}, got {emission.prior!r}."
        )
    return SimplexRows(np.isnan(fixed), None, np.nan_to_num(fixed), prior - 1.0)


def check_given_shares(fixed, what):
    """Raise a ValueError where rows of probabilities, NaN where free, cannot sum to 1.

    It begins with `what` they are.
    """
    free = np.isnan(fixed)
    rest, full = 1.0 - np.nansum(fixed, axis=-1), ~free.any(axis=-1)
    wrong = np.where(full, abs(rest) > 1e-6, rest <= 0.0)
    if (fixed < 0.0).any() or wrong.any():
        raise ValueError(
            f"{what} must be rows of probabilities that sum to 1, or to less where "
            f"others are free (NaN), got {fixed.tolist()}."
        )
