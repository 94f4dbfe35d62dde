"""How steps are made: a nested parameter of estimators with a Gaussian posterior."""

import inspect
from typing import Any, Literal, Self

from sklearn.base import BaseEstimator

from skvrem.utils._validation import check_options, check_parameters


class MinibatchSteps(BaseEstimator):
    """How the steps of a Bayesian estimator take expectations, and what they follow.

    The parameter ``steps`` of :class:`~skvrem.BayesianLogisticRegression`,
    :class:`~skvrem.BayesianGLMRegressor`, :class:`~skvrem.GaussianDropoutClassifier`
    and :class:`~skvrem.VariationalInference`; None, its default, is
    ``MinibatchSteps()``. A search reaches the parameters as ``steps__optimizer``, where
    `steps` is None as well. Not every estimator has a use for all of them: its
    docstring says for which, and one that it has none for must be left at its default.

    Parameters
    ----------
    expectation : {"auto", "quadrature", "mc"}, default="auto"
        How expectations are taken. "quadrature": without noise, over nodes. "mc": by
        draws that each step makes anew, whose noise leaves a fit below the top. "auto"
        is "quadrature", but "mc" for minibatches of more than two classes of
        :class:`~skvrem.GaussianDropoutClassifier`.
    control_variate : {"taylor", "antithetic", None}, default="taylor"
        Approximation whose mean over draws is known: Taylor's of second order ([1]_,
        Eq. 61), pairs of opposite draws, or none.
    control_scale : bool, default=True
        Control the gradient by the posterior's scales too, by the diagonal of the
        Hessian; False is [1]_.
    optimizer : {"auto", "natural", "lbfgs", "adam", "sgd"}, default="auto"
        "natural": natural-gradient steps, Newton's where the curvature is at hand.
        "lbfgs": for full passes only. "adam" and "sgd": for minibatches. "auto" takes
        what needs fewest passes.
    n_draws : int or "auto", default="auto"
        Draws a minibatch step; "auto" begins with one and doubles them, up to 16, with
        every epoch that lowers the bound. :class:`~skvrem.VariationalInference` makes
        one, and has them for full passes.

    References
    ----------
    .. [1] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
       variational inference. AISTATS.

    Examples
    --------
    >>> from skvrem import BayesianLogisticRegression
    >>> from skvrem.vi import MinibatchSteps
    >>> steps = MinibatchSteps(expectation="mc", optimizer="adam")
    >>> BayesianLogisticRegression(steps=steps).get_params()["steps__optimizer"]
    'adam'
    """

    def __init__(
        self,
        *,
        expectation: Literal["auto", "quadrature", "mc"] = "auto",
        control_variate: Literal["taylor", "antithetic"] | None = "taylor",
        control_scale: bool = True,
        optimizer: Literal["auto", "natural", "lbfgs", "adam", "sgd"] = "auto",
        n_draws: int | Literal["auto"] = "auto",
    ):
        self.expectation = expectation
        self.control_variate = control_variate
        self.control_scale = control_scale
        self.optimizer = optimizer
        self.n_draws = n_draws


class TakesSteps:
    """Estimators with the parameter `steps`."""

    def set_params(self, **params: Any) -> Self:
        """Set the parameters, those of `steps` as ``steps__optimizer``.

        Parameters
        ----------
        **params
            By name. One of the steps makes a :class:`skvrem.vi.MinibatchSteps` where
            `steps` is None.

        Returns
        -------
        self : estimator
            With these parameters, not fitted anew.
        """
        nested = any(name.startswith("steps__") for name in params)
        if nested and params.get("steps", self.steps) is None:
            params["steps"] = MinibatchSteps()
        return super().set_params(**params)


def steps_of(estimator):
    """Return the `MinibatchSteps` of an estimator; None stands for the defaults."""
    steps = estimator.steps
    return steps if isinstance(steps, MinibatchSteps) else MinibatchSteps()


def check_steps(estimator, *, unused=(), least_draws=1, **options):
    """Check the parameter `steps` of an estimator.

    Parameters
    ----------
    estimator : BaseEstimator
    unused : sequence of str
        Parameters of the steps that it has no use for.
    least_draws : int
    **options : tuples, by name of parameter
        Where they are fewer than those of `MinibatchSteps`.

    Raises
    ------
    ValueError
        If it is something else, or one of its parameters is none of the options, or
        is set where nothing depends on it.
    """
    name = type(estimator).__name__
    steps = estimator.steps
    if steps is not None and not isinstance(steps, MinibatchSteps):
        raise ValueError(
            f"steps of {name} must be a MinibatchSteps or None, got {steps!r}."
        )
    steps = steps_of(estimator)
    check_options(steps, **options)
    check_parameters(steps, n_draws={"least": least_draws})
    parameters = inspect.signature(MinibatchSteps).parameters
    for one in unused:
        value, default = getattr(steps, one), parameters[one].default
        if value != default:
            raise ValueError(
                f"{name} has no use for {one} of its steps: leave it at {default!r}, "
                f"got {value!r}."
            )
