"""Arguments of scikit-learn's LogisticRegression: what they mean here, or why not."""

import warnings

import numpy as np

from skvrem.utils._reports import outside
from skvrem.utils._validation import among

# scikit-learn's solvers all look for the same optimum, so "auto" stands in for them.
OTHER_SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "sag", "saga")
ELSEWHERE = (
    "For l1 or elastic net use sklearn.linear_model.LogisticRegression(solver='saga')."
)
# Parameters that have no choice here: what they may be, and why nothing else.
FIXED = {
    "penalty": (
        ("l2", "deprecated", None),
        "{name} has a quadratic penalty (penalty='l2'), or none (C=np.inf). "
        + ELSEWHERE,
    ),
    "l1_ratio": (
        (0, 0.0, None),
        "{name} has the quadratic penalty of l1_ratio=0. " + ELSEWHERE,
    ),
    "dual": (
        (False, np.False_),
        "{name} solves the primal problem, dual=False, whose optimum is the same.",
    ),
    "intercept_scaling": (
        (1, 1.0),
        "the intercept is not penalised here. For a penalised one use "
        "penalize_intercept=True.",
    ),
}


def check_twin_arguments(estimator):
    """Return (C, solver) as they are meant; see `SBMLogisticRegression`.

    Raises
    ------
    ValueError
        For an argument without an equivalent, with the nearest one named.
    """
    name = type(estimator).__name__
    for parameter, (allowed, why) in FIXED.items():
        value = getattr(estimator, parameter)
        if not among(value, allowed):
            raise ValueError(
                f"{parameter}={value!r} is not available: {why.format(name=name)}"
            )
    C, solver = estimator.C, estimator.solver
    if isinstance(C, bool | str) or not np.isscalar(C) or not C > 0:
        raise ValueError(f"C of {name} must be a number above 0 or np.inf, got {C!r}.")
    if among(solver, ("liblinear",)):
        raise ValueError(
            "solver='liblinear' penalises the intercept: use solver='auto' with "
            "penalize_intercept=True, or solver='auto' for an intercept that is free."
        )
    if estimator.penalty is None and C not in (1.0, np.inf):
        warnings.warn(
            "Setting penalty=None will ignore the C and l1_ratio parameters: there is "
            f"no penalty, so C={C!r} has no effect; no penalty is C=np.inf alone.",
            UserWarning,
            stacklevel=outside(),
        )
    if among(solver, OTHER_SOLVERS):
        solver = "auto"
    return (np.inf if estimator.penalty is None else float(C)), solver
