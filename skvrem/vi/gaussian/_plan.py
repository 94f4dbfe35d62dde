"""Which posterior, which solver: what "auto" means, and what does not go together."""

from typing import NamedTuple

from skvrem import solvers
from skvrem.vi.gaussian._minibatch import steps_of

__all__ = ["Choices", "plan_fit", "takes_sparse_rows"]

# Coefficients up to which "auto" keeps a full covariance, and the rank beyond.
FULL_RANK, DEFAULT_RANK = 1000, 10
# Coefficients up to which the mean of a diagonal posterior makes Newton's steps, with
# one predictor a row, and with several, whose curvature takes k^2 / 2 products.
NEWTON, NEWTON_CLASSES = 300, 60
MOVES = {
    "fullrank": ("natural",),
    "meanfield": ("natural", "lbfgs"),
    "lowrank": ("lbfgs",),
}
# Of posteriors whose expectations are averages over draws, which know the curvature
# roughly.
MOVES_BY_DRAWS = MOVES | {"meanfield": ("lbfgs",)}
STOCHASTIC = ("stochastic", "svrg", "saga")


class Choices(NamedTuple):
    """How a posterior is fitted: names, of which a model makes its own solver.

    Attributes
    ----------
    solver : str
    expectation : {"quadrature", "mc", "draws"}
    optimizer : str
    posterior : {"fullrank", "lowrank", "meanfield"}
    rank : int
    matrix : bool
        Whether passes bring the whole curvature.
    step_size : float or None
        None where it is known only when the model has been made.
    batch_size : int or None
    """

    solver: str
    expectation: str
    optimizer: str
    posterior: str = "meanfield"
    rank: int = 0
    matrix: bool = False
    step_size: float | None = None
    batch_size: int | None = None

    def ascent(self, tol):
        """Return the solver of full passes."""
        return (
            solvers.QuasiNewton(tol, name="batch")
            if self.optimizer == "lbfgs"
            else solvers.Ascent()
        )


def plan_fit(estimator, n_parameters, n_predictors, drawn=False, sparse=False):
    """Return the `Choices` of an estimator whose parameters have been checked.

    drawn: expectations are averages over draws, whatever `steps` says. sparse: steps
    would be among few of the parameters, if these were independent.

    Raises
    ------
    ValueError
        For parameters that do not go together.
    """
    solver, posterior, optimizer = (
        estimator.solver,
        estimator.posterior,
        steps_of(estimator).optimizer,
    )
    expectation = "draws" if drawn else steps_of(estimator).expectation
    moves = MOVES_BY_DRAWS if drawn else MOVES
    steps = optimizer in ("adam", "sgd") or expectation == "mc"
    if solver == "auto":
        solver = "svrg" if steps else "batch"
    if solver in STOCHASTIC:
        return _plan_steps(
            estimator, solver, expectation, n_parameters, n_predictors, sparse
        )
    if steps:
        other = f"expectation={expectation!r} and no " if expectation == "mc" else ""
        raise ValueError(
            f"solver='batch' makes full passes without noise: it has no {other}"
            f"optimizer={optimizer!r}. Leave that to 'auto', or choose solver='svrg'."
        )
    if posterior == "auto":
        posterior = "fullrank" if n_parameters <= FULL_RANK else "lowrank"
    if optimizer == "auto":
        few = n_parameters <= (NEWTON if n_predictors == 1 else NEWTON_CLASSES)
        newton = "natural" in moves[posterior] and (posterior == "fullrank" or few)
        optimizer = "natural" if newton else "lbfgs"
    if optimizer not in moves[posterior]:
        allowed = " or ".join(map(repr, moves[posterior]))
        raise ValueError(
            f"optimizer={optimizer!r} does not go with posterior={posterior!r}, which "
            f"is moved by {allowed}."
        )
    return Choices(
        solver,
        "draws" if drawn else "quadrature",
        optimizer,
        posterior,
        _rank(estimator, posterior, n_parameters),
        optimizer == "natural" and n_parameters <= FULL_RANK,
    )


def _rank(estimator, posterior, n_parameters):
    if posterior != "lowrank":
        return 0
    return min(estimator.rank or DEFAULT_RANK, n_parameters)


def _plan_steps(estimator, solver, expectation, n_parameters, n_predictors, sparse):
    """Return the plan of a fit by minibatches."""
    optimizer, posterior = steps_of(estimator).optimizer, estimator.posterior
    own = expectation == "draws"
    if not own and posterior not in ("auto", "meanfield"):
        raise ValueError(
            f"solver={solver!r} is for posterior='meanfield' (or 'auto'), got "
            f"{posterior!r}: choose solver='batch' for a full or low rank."
        )
    natural = optimizer in ("auto", "natural")
    if posterior == "auto":
        together = own and natural and not sparse
        posterior = "fullrank" if n_parameters <= FULL_RANK else "lowrank"
        posterior = posterior if together else "meanfield"
    if optimizer == "lbfgs":
        raise ValueError(
            f"optimizer='lbfgs' needs full passes: choose 'natural', 'adam' or 'sgd' "
            f"with solver={solver!r}."
        )
    if expectation == "quadrature" and n_predictors > 1:
        raise ValueError(
            "expectation='quadrature' of more than two classes is for "
            f"solver='batch': choose expectation='mc' with solver={solver!r}."
        )
    if expectation == "auto":
        expectation = "quadrature" if n_predictors == 1 else "mc"
    needs = solver in ("svrg", "saga") and expectation in ("mc", "draws")
    if needs and steps_of(estimator).control_variate is None:
        raise ValueError(
            f"solver={solver!r} by draws needs a control variate whose mean over them "
            "is known, or every step would need a full pass: "
            "choose control_variate='taylor' or 'antithetic'."
        )
    if posterior != "meanfield" and not natural:
        raise ValueError(
            f"optimizer={optimizer!r} is for posterior='meanfield', got {posterior!r}, "
            "whose steps are in the metric of its covariance: choose 'natural'."
        )
    rank = _rank(estimator, posterior, n_parameters)
    optimizer = "natural" if natural else optimizer
    return Choices(solver, expectation, optimizer, posterior, rank)


def as_structure(posterior):
    """Return what the model calls a posterior's covariance."""
    return "full" if posterior == "fullrank" else "diagonal"


def takes_sparse_rows(estimator):
    """Whether the solver of an estimator is one by full passes."""
    # Parameters that have not been checked may be anything, as arrays.
    solver, optimizer, expectation = (
        value if isinstance(value, str) else None
        for value in (
            estimator.solver,
            getattr(estimator.steps, "optimizer", "auto"),
            getattr(estimator.steps, "expectation", "auto"),
        )
    )
    steps = optimizer in ("adam", "sgd") or expectation == "mc"
    return solver == "batch" or (solver == "auto" and not steps)
