"""What a user's own model and its rows must be."""

import inspect
from numbers import Integral

import numpy as np

__all__ = ["check_model", "check_rows", "check_vector", "weigh_rows"]

SIZES = ("n_samples", "n_parameters")
METHODS = ("log_likelihood", "gradient")
OPTIONAL = (
    "log_prior",
    "log_prior_gradient",
    "hessian_vector_product",
    "hessian_diagonal",
    "hessian",
    "support",
    "unravel",
)


def check_model(model):
    """Check that a model has what is needed.

    Raises
    ------
    TypeError
        If something is missing or is not what it should be.
    ValueError
        For a number of rows or parameters that is none.
    """
    if model is None:
        raise TypeError(
            "VariationalInference needs a model: an object with n_samples, "
            "n_parameters, log_likelihood(parameters, indices) and "
            "gradient(parameters, indices)."
        )
    if inspect.isclass(model):
        raise TypeError(
            f"model must be an object, got the class {model.__name__}: call it first."
        )
    kind = type(model).__name__
    missing = [name for name in (*SIZES, *METHODS) if not hasattr(model, name)]
    if missing:
        raise TypeError(f"the model {kind} has no {', '.join(missing)}.")
    for name in (*METHODS, *OPTIONAL):
        method = getattr(model, name, None)
        if name in METHODS or method is not None:
            if not callable(method):
                raise TypeError(f"{name} of the model {kind} must be a method.")
    for name in SIZES:
        value = getattr(model, name)
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not (whole and value > 0):
            raise ValueError(
                f"{name} of the model {kind} must be a positive integer, got {value!r}."
            )
    if callable(getattr(model, "log_prior", None)) != callable(
        getattr(model, "log_prior_gradient", None)
    ):
        raise TypeError(
            f"log_prior and log_prior_gradient of the model {kind} go together: it has "
            "one of them."
        )


def check_rows(X, model):
    """Return numbers of rows of a model; None is all of them."""
    n = int(model.n_samples)
    if X is None:
        return np.arange(n)
    rows = np.asarray(X)
    rows = rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows
    ok = rows.ndim == 1 and rows.size and np.issubdtype(rows.dtype, np.number)
    if not ok or not np.array_equal(rows, np.floor(rows.real)):
        raise ValueError(
            "X must be numbers of rows of the model, one integer a row, or None for "
            f"all {n}: data belong to the model."
        )
    wrong = (rows < 0) | (rows >= n)
    if wrong.any():
        raise ValueError(
            f"X has row {rows[wrong][0]:g}, and the model has rows 0 to {n - 1}."
        )
    return rows.astype(np.intp)


def weigh_rows(rows, weight):
    """Return rows that count, once each, and how many times they do; None is once."""
    if weight is None:
        return rows, None
    rows, numbers = np.unique(rows, return_inverse=True)
    weight = np.bincount(numbers, weight)
    return rows[weight > 0.0], weight[weight > 0.0]


def check_vector(value, n_dim, name):
    """Return one finite number for each parameter, float64."""
    try:
        vector = np.broadcast_to(np.asarray(value, np.float64), n_dim).copy()
    except (TypeError, ValueError):
        vector = np.array([np.nan])
    if not np.isfinite(vector).all():
        raise ValueError(
            f"{name} must be a finite number, or one for each of the {n_dim} "
            f"parameters, got {value!r}."
        )
    return vector
