"""Which solver, how many blocks, which step: the choices that "auto" makes."""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from skvrem.schedules import Constant, Power
from skvrem.solvers._switch import AfterEpochs, Switch, WhenNoisy
from skvrem.solvers.estimate._batch import Batch
from skvrem.solvers.estimate._incremental import Incremental
from skvrem.solvers.estimate._saga import SAGA
from skvrem.solvers.estimate._stochastic import Stochastic
from skvrem.solvers.estimate._svrg import SVRG
from skvrem.solvers.step._squarem import Squarem

ONE = Constant(1.0)
# Measured on synthetic and real mixtures (user guide, and what comes of it by
# ``make bench only=mixture/passes``): an epoch of variance
# reduction is worth up to 20 steps of batch EM; more than a third of a row for each
# parameter and such step is infeasible too often; fewer than 3 steps do not pay.
STEPS_AN_EPOCH, ROWS_A_PARAMETER, WORTH_IT = 20.0, 3.0, 3.0
BLOCKS, BLOCK_ROWS, FEWEST_BLOCKS = 100, 256, 20
# Where a visit is a journey to rows that are far away: at most so many an epoch.
FAR_BLOCKS = 40

BY_NAME = {
    "stochastic": Stochastic,
    "svrg": SVRG,
    "saga": SAGA,
    "incremental": Incremental,
}


def names_for(model):
    """Return what `solver` may be of an estimator whose model averages.

    Whoever adds to `BY_NAME` reaches them all. A solver with a table knows a bound of
    the objective only (``exact = False``), which it makes of the model's `surrogate`.

    Parameters
    ----------
    model : type
        See ``_protocols.py``.

    Returns
    -------
    names : tuple of str
    """
    bounds = hasattr(model, "surrogate")
    able = (name for name, made in BY_NAME.items() if bounds or not _has_table(made))
    return ("auto", "batch", *able)


def _has_table(solver):
    return solver.exact is False


def reduces_variance(name):
    """Whether a solver's steps can be as long near the end as at the start.

    Those of "batch" and "stochastic" are what they are.
    """
    return name not in ("auto", "batch", "stochastic")


@dataclass(frozen=True)
class Plan:
    """How a fit is to be made.

    Who chooses more than a solver has a subclass (`skvrem.vi.gaussian._plan`).

    Attributes
    ----------
    name : str
        Solver, with its acceleration.
    solver : Solver
    step_size : callable
    n_blocks : int or None
        None where solvers have steps and blocks of their own.
    lead : callable, default=None
        Returns the solver of a race's first epochs, that of the whole fit where None.
    rungs : tuple of (int, int)
        A race of starts: epochs that all who are left make, and how many of them go
        on. Those whom the last rung leaves go to their ends; without rungs all do.
    sample : see ``_protocols.py``, default=None
        Some of the data, that the first rung looks at.
    """

    name: str
    solver: Any
    step_size: Any = ONE
    n_blocks: int | None = None
    lead: Any = None
    rungs: tuple = ()
    sample: Any = None

    def racing(self, n_epochs):
        """Return a plan that starts race by, all so many epochs and one to its end."""
        return replace(self, rungs=((n_epochs, 1),))

    def leading(self):
        """Return the solver of a start's first epochs.

        The start's own one: what it learns of the data goes with the start.
        """
        races = self.rungs and self.lead is not None
        return self.lead() if races else deepcopy(self.solver)

    def keeps_sums(self, most_blocks):
        """Whether the sums of blocks are kept, of which so many fit in memory.

        A table is made of them; other solvers can evaluate again.
        """
        return self.n_blocks <= most_blocks or _has_table(type(self.solver))

    def attributes(self, n_units):
        """Return the fitted attributes that tell the step and the size of a batch."""
        if self.n_blocks is None:
            return {}
        return {
            "step_size_": float(self.step_size(0)),
            "batch_size_": -(-n_units // self.n_blocks),
        }


def plan_em(
    estimator,
    n_units,
    n_parameters,
    *,
    most_blocks=BLOCKS,
    visit_rows=BLOCK_ROWS,
    prefer_passes=False,
    far=False,
    pilot=0,
    **chosen,
):
    """Choose what the user left open, for a model of the EM family.

    Parameters
    ----------
    estimator : estimator
        With `solver`, `step_size`, `batch_size`, `step_decay`, `step_offset`, and
        `acceleration` where it has it.
    n_units : int
    n_parameters : int
        Of all components together.
    most_blocks : int
        Blocks whose statistics fit in memory twice.
    visit_rows : int
        Units that take about as long as the rest of a visit: minibatches of variance
        reduction are no smaller where that leaves 20 of them.
    prefer_passes : bool
        "auto" makes full passes only.
    far : bool
        Rows are far away: visits are a journey each, and "auto" makes none.
    pilot : int, default=0
        First epochs of "svrg" without an anchor, which a random start is not worth:
        those of "stochastic", with its own constant step.
    **chosen
        Values of these parameters in place of the estimator's.

    Returns
    -------
    plan : Plan
    """
    names = ("solver", "step_size", "batch_size", "step_decay", "step_offset")
    solver, step_size, batch_size, step_decay, step_offset = (
        chosen[name] if name in chosen else getattr(estimator, name) for name in names
    )
    acceleration = getattr(estimator, "acceleration", None)
    again = reduces_variance(solver) and not _has_table(BY_NAME[solver])
    if again and most_blocks < FEWEST_BLOCKS:
        most_blocks = BLOCKS  # it evaluates again what it cannot keep
    most = FAR_BLOCKS if far else BLOCKS
    n_blocks = max(1, min(most, most_blocks, n_units // BLOCK_ROWS))
    if solver != "stochastic":
        n_blocks = min(n_blocks, max(FEWEST_BLOCKS, n_units // visit_rows))
    if batch_size != "auto":
        n_blocks = max(1, round(n_units / batch_size))
    steps = min(STEPS_AN_EPOCH, n_units / (ROWS_A_PARAMETER * n_parameters))
    accelerated = acceleration == "squarem"
    if solver == "auto":
        few = steps < WORTH_IT or n_blocks < FEWEST_BLOCKS
        if few or prefer_passes or far or acceleration == "squarem":
            solver, accelerated = "batch", acceleration is not None
        else:
            solver = "saga"
    if solver == "batch":
        made = Squarem() if accelerated else Batch()
        return Plan(made.name, made, ONE, 1)
    schedule: Any
    if solver == "stochastic":
        if batch_size == "auto":
            n_blocks = max(1, min(n_blocks, int(n_units / (2 * n_parameters))))
        scale = 1.0 if step_size == "auto" else step_size
        schedule = Power(scale, step_offset, step_decay)
        made = _to_the_end(Stochastic(n_blocks), estimator)
        return Plan(solver, made, schedule, n_blocks)
    elif solver == "incremental":
        schedule = ONE
    else:
        automatic = min(1.0, max(1.0, steps) / n_blocks)
        schedule = Constant(automatic if step_size == "auto" else step_size)
        if solver == "svrg" and pilot:
            after = Switch(Stochastic(n_blocks), SVRG(n_blocks), AfterEpochs(pilot))
            return Plan(solver, after, schedule, n_blocks)
    return Plan(solver, BY_NAME[solver](n_blocks), schedule, n_blocks)


def _to_the_end(noisy, estimator):
    """Return a solver whose steps shrink, with full passes from where it would end.

    Gains of steps that shrink do not tell what is left, so that other steps have to
    certify the end, and to go on where it is not one.
    """
    passes = Squarem() if hasattr(estimator, "acceleration") else Batch()
    return Switch(noisy, passes, WhenNoisy(estimator.tol, noisy.patience))
