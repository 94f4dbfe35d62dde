"""Which posterior, which solver: what "auto" means, and what does not go together."""

from dataclasses import dataclass, replace

from skvrem import schedules, solvers
from skvrem.utils._validation import among
from skvrem.vi.gaussian._minibatch import steps_of

# Parameters up to which "auto" keeps a full covariance, by draws or of many predictors,
# and else: there its few passes take little more time than the many of a low rank,
# which knows next to nothing of what rows tell. And the rank beyond.
FULL_RANK, MOST_FULL, DEFAULT_RANK = 1000, 2000, 10
# Coefficients up to which the mean of a diagonal posterior makes Newton's steps, with
# one predictor a row, and with several, whose curvature takes k^2 / 2 products.
NEWTON, NEWTON_CLASSES = 300, 60
# Predictors up to which "auto" has more than a diagonal of many coefficients: a row's
# covariance takes k^2 products of each node where a diagonal takes k, and of tens
# of classes a rank of ten is little of what coefficients have in common.
MOST_LOW_RANK = 10
MOVES = {
    "fullrank": ("natural",),
    "meanfield": ("natural", "lbfgs"),
    "lowrank": ("lbfgs",),
}
# Of posteriors whose expectations are averages over draws, which know the curvature
# roughly.
MOVES_BY_DRAWS = MOVES | {"meanfield": ("lbfgs",)}


@dataclass(frozen=True)
class PosteriorPlan(solvers.Plan):
    """How a posterior is fitted.

    Its step size, and its batch, are what a model may have to be made for first.

    Attributes
    ----------
    expectation : {"quadrature", "mc", "draws"}
    optimizer : str
    posterior : {"fullrank", "lowrank", "meanfield"}
    rank : int
    matrix : bool
        Whether passes bring the whole curvature.
    batch_size : int or None
        Rows a step.
    """

    expectation: str = "quadrature"
    optimizer: str = "natural"
    posterior: str = "meanfield"
    rank: int = 0
    matrix: bool = False
    batch_size: int | None = None

    def stepping(self, step_size, batch_size):
        """Return the plan with the size of its steps, and of their batches."""
        step_size = schedules.Constant(float(step_size))
        return replace(self, step_size=step_size, batch_size=int(batch_size))

    def attributes(self, n_units=None):
        """Return the fitted attributes that tell what was used."""
        used = "expectation", "optimizer", "batch_size"
        found = {f"{name}_": getattr(self, name) for name in used}
        return found | {"solver_": self.name, "step_size_": float(self.step_size(0))}


def plan_fit(estimator, n_parameters, n_predictors, drawn=False, sparse=False):
    """Return the `PosteriorPlan` of an estimator whose parameters have been checked.

    drawn: expectations are averages over draws, whatever `steps` says. sparse: steps
    would be among few of the parameters, if these were independent.

    Raises
    ------
    ValueError
        For parameters that do not go together.
    """
    steps, solver = steps_of(estimator), estimator.solver
    posterior = estimator.posterior
    expectation, optimizer = steps.expectation, steps.optimizer
    if solver == "auto":
        solver = "svrg" if asks_for_minibatches(steps) else "batch"
    batch, natural = solver == "batch", optimizer in ("auto", "natural")
    if not (batch or drawn) and posterior not in ("auto", "meanfield"):
        raise ValueError(
            f"solver={solver!r} is for posterior='meanfield' (or 'auto'), got "
            f"{posterior!r}: choose solver='batch' for a full or low rank."
        )
    if expectation == "auto":
        expectation = "quadrature"
    expectation = "draws" if drawn else expectation
    check_combination(solver, expectation, optimizer, steps.control_variate)
    few = n_parameters <= FULL_RANK
    if posterior == "auto":
        whole = few
        if not drawn and n_predictors <= MOST_LOW_RANK and estimator.rank is None:
            whole = n_parameters <= MOST_FULL
        covariance = batch or (drawn and natural and not sparse)
        low = n_predictors <= MOST_LOW_RANK or estimator.rank is not None
        beyond = "lowrank" if low else "meanfield"
        posterior = ("fullrank" if whole else beyond) if covariance else "meanfield"
    if not batch and posterior != "meanfield" and not natural:
        raise ValueError(
            f"optimizer={optimizer!r} is for posterior='meanfield', got {posterior!r}, "
            "whose steps are in the metric of its covariance: choose 'natural'."
        )
    if natural and not batch:
        optimizer = "natural"
    elif batch:
        moves = (MOVES_BY_DRAWS if drawn else MOVES)[posterior]
        if optimizer == "auto":
            most = NEWTON if n_predictors == 1 else NEWTON_CLASSES
            newton = posterior == "fullrank" or n_parameters <= most
            optimizer = "natural" if newton and "natural" in moves else "lbfgs"
        if optimizer not in moves:
            allowed = " or ".join(map(repr, moves))
            raise ValueError(
                f"optimizer={optimizer!r} does not go with posterior={posterior!r}, "
                f"which is moved by {allowed}."
            )
    if not batch:
        made = solvers.Sweeps(solver, estimator.tol)
    elif optimizer == "lbfgs":
        made = solvers.QuasiNewton(estimator.tol, name="batch")
    else:
        # A fit that goes on has a length of steps.
        known = vars(estimator).get("_step_length", 1.0)
        made = solvers.Ascent(known if estimator.warm_start else 1.0)
    how = {"expectation": expectation, "optimizer": optimizer, "posterior": posterior}
    rank = min(estimator.rank or DEFAULT_RANK, n_parameters)
    rank = rank if posterior == "lowrank" else 0
    matrix = batch and optimizer == "natural" and few
    return PosteriorPlan(solver, made, **how, rank=rank, matrix=matrix)


def asks_for_minibatches(steps):
    """Whether only minibatches make such steps."""
    return among(steps.optimizer, ("adam", "sgd")) or among(steps.expectation, ("mc",))


def check_combination(
    solver, expectation, optimizer, control_variate, controls=("taylor", "antithetic")
):
    """Check that a solver can make the steps that it is asked for.

    Raises
    ------
    ValueError
        If it cannot.
    """
    if solver == "batch" and (expectation == "mc" or optimizer in ("adam", "sgd")):
        mc = expectation == "mc"
        other = "expectation='mc'" if mc else f"optimizer={optimizer!r}"
        raise ValueError(
            f"solver='batch' makes full passes without noise: it has no {other}. "
            "Leave that to 'auto', or choose a solver by minibatches."
        )
    if solver != "batch" and optimizer == "lbfgs":
        raise ValueError(
            "optimizer='lbfgs' needs full passes: choose another, or leave it to "
            f"'auto', with solver={solver!r}."
        )
    controlled = solver in ("svrg", "saga") and expectation in ("mc", "draws")
    if controlled and control_variate is None:
        raise ValueError(
            f"solver={solver!r} by draws needs a control variate whose mean over them "
            "is known, or every step would need a full pass: "
            f"choose control_variate={' or '.join(map(repr, controls))}."
        )


def as_structure(posterior):
    """Return what the model calls a posterior's covariance."""
    return "full" if posterior == "fullrank" else "diagonal"


def takes_sparse_rows(estimator):
    """Whether the solver of an estimator, of any parameters, is one by full passes."""
    solver, full = estimator.solver, not asks_for_minibatches(steps_of(estimator))
    return among(solver, ("batch",)) or (among(solver, ("auto",)) and full)
