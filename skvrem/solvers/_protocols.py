"""The contract between models, solvers and data, on one page.

Every fit estimates a mean over units (expected sufficient statistics, gradients)
and does something with it. A *solver* says how the mean is estimated; a *model* says
what is averaged and what the update is; the loop in ``_run.py`` knows neither. What
solvers call of a model, a point, data or each other stands here, by role, and nothing
else is called.

A variance-reduced estimate is one line for all models
(:func:`~skvrem.utils._control.controlled`): a mean that is known from an earlier point,
plus a correction that is seen on this batch,

    mean + scale * (statistics(point, batch) - recall(memory[batch], point, batch))

with ``scale = n_blocks / total weight``, so that over a partition it averages to the
mean at `point` exactly, whatever the weights of the blocks. Where steps are too short
for a loop in Python, or have noise beside that of the batch, a model sweeps through
them by itself (`Swept`), by the same line.
"""

import math
from typing import Any, NamedTuple, Protocol


class Anchor(NamedTuple):
    """What is known of a point between two epochs: its certificate.

    Attributes
    ----------
    mean : NamedTuple
        Estimate of the mean over all units. ``R(mean)`` is a step of batch EM from
        the anchor (of incremental EM, for a table), the place to go back to.
    objective : float
        Objective a unit, or a lower bound of it (see `Solver.exact`).
    passes : float
        Passes over the data that making it cost.
    point : Any
        Point at which it was made.
    memory : Any
        Whatever `Solver.restore` needs.
    predicted_gain : float
        What is left to gain a unit, where the solver can tell; NaN where it cannot,
        and the loop estimates it from the gains of the last epochs.
    """

    mean: Any
    objective: float
    passes: float
    point: Any
    memory: Any = None
    predicted_gain: float = math.nan


class Moved(NamedTuple):
    """Where an epoch has led.

    Attributes
    ----------
    point : Any
    passes : float
        Passes over the data that it took.
    n_steps, n_rejected : int
        Updates, and those that were not feasible at their length.
    step_size : float
        Of the last update.
    certified : Anchor
        Certificate of the point, where the epoch ended with one: the length of its
        step was tried by full passes. None where the loop has to ask for it.
    stalled : bool
        No step could be taken though some gain was predicted.
    gradient_variance : float
        Of the estimates that the steps were made of; NaN where it is not kept.
    """

    point: Any
    passes: float
    n_steps: int = 1
    n_rejected: int = 0
    step_size: float = 1.0
    certified: Any = None
    stalled: bool = False
    gradient_variance: float = math.nan


class Point(Protocol):
    """Where a fit stands: a NamedTuple of the model's own with what solvers know."""

    #: Mean statistics a unit, of averaging models.
    statistics: Any
    #: What these are taken about; None where there is no reference.
    reference: Any
    #: Fractions of the last correction that were infeasible.
    trials: int
    #: Parts that the last step has left as they were or seeded anew.
    repaired: tuple


class Model(Protocol):
    """What every solver asks for. Plain functions of their arguments."""

    #: What the objective a unit may fall by though the steps are good. Only where it is
    #: not what they raise, as a pseudo-likelihood.
    slack: float

    def statistics(self, point, batch, beta) -> NamedTuple:
        """Return sums over the batch's units at inverse temperature `beta`.

        Additive over units; a NamedTuple, or :class:`~skvrem.utils._algebra.Packed`,
        its like in one array, which costs a step less. Two fields are numbers that
        solvers know: `objective` is the units' objective; `entropy`, only needed by
        solvers with a table, is what it exceeds the surrogate by at this point (the
        entropy of the posteriors over beta).
        """

    def update(self, point, mean, correction, step):
        """Return the next point; `mean` or `correction` may be None (zero)."""

    def objective(self, point, mean) -> float:
        """Return the objective a unit at `point`, from the mean taken there."""

    def recentre(self, point):
        """Return the point as an epoch begins with it, about a new reference.

        Only for models whose points are another there.
        """

    def reseed(self, point, data, rng):
        """Return the point with collapsed parts re-seeded, or the same point.

        Only for models whose parts can collapse.
        """

    def spent(self, point):
        """Return the point without what ``update(point, mean, None, 1.0)`` replaces.

        Only for models where that is large: of the last good anchor it is all that a
        fit may come back to.
        """

    def pack(self, point):
        """Return the point without what the next visits write anew, for a checkpoint.

        Only for models whose points have room for such things.
        """

    def unpack(self, point):
        """Return a packed point with room for them. Only for models that pack."""

    def for_batches(self, point, visit):
        """Return the point with no more than sums of a batch are made of.

        Of any batch, where `visit` is None.

        Only for models whose points have more, which would travel to each batch.
        """

    def may_end(self, point, mean, tol) -> bool:
        """Whether a fit may end at `point`, where less than `tol` is left to gain.

        Only for models that ask for more than that.
        """


class Reduced(Model, Protocol):
    """What variance reduction (svrg, saga, incremental) and SQUAREM ask for beside."""

    #: Passes that `recall` costs, 0 where `remember` keeps the sums themselves.
    recall_passes: float
    #: `recall` comes before the `statistics` of a batch, which write where it looks.
    #: Only where they do; in the other order less is held at a time.
    recalls_first: bool

    def remember(self, point, batch, beta) -> tuple[NamedTuple, Any]:
        """Return the same sums, and what it takes to evaluate them here again."""

    def recall(self, memory, point, batch) -> NamedTuple:
        """Return the sums where `memory` was made, about the reference of `point`."""

    def surrogate(self, point, sums) -> float:
        """Return Q, the expected complete-data objective a unit, of a mean at `point`.

        Only needed by solvers with a table (saga, incremental), for their bound.
        """

    def norm(self, point, sums) -> float:
        """Return the length of a change of statistics, in the model's own metric.

        Only needed by extrapolation (SQUAREM), whose step is a ratio of lengths.
        """

    def translate(self, sums, reference, new_reference):
        """Return sums about one reference as sums about another.

        Only for models whose points have a reference.
        """


class Climbing(Model, Protocol):
    """What solvers ask for that follow an exact gradient (Ascent, QuasiNewton)."""

    #: Time that a new metric takes, in passes for the gradient.
    metric_cost: float
    #: The metric is the curvature, and costs next to nothing. Only where it can be.
    newton: bool
    #: How far a step may move a parameter. Only where there is a limit.
    longest_step: float
    #: Error of the objective, as a share of it, by the rows' own precision. Only where
    #: that is less than the objective's.
    rounding: float

    def predicted_gain(self, point, mean) -> float:
        """Return what is left to gain a unit, about; infinity where nobody knows."""

    def slope_left(self, before, after) -> float:
        """Return what share of the slope along a step is left at its end, about.

        Of two anchors, the first one that `update` led away from. Only where steps
        overshoot.
        """

    def gradient(self, point, mean):
        """Return the gradient of the objective a unit, an array of one dimension."""

    def most_left(self, point, mean) -> float:
        """Return what is proved to be the most left to gain. Only where it can be."""

    def better(self, point, objective):
        """Return a point that is known to be better than one of such an objective.

        Or None. Only where one is known without a pass.
        """

    def move(self, point, step):
        """Return the point with its parameters moved by such an array."""

    def precondition(self, point, vector):
        """Return the inverse of a metric near the negative curvature times a vector."""

    def recondition(self, point, data, rng):
        """Return the point with the metric taken there, and the passes it cost."""


class Searched(Model, Protocol):
    """What a search for a start asks for beside."""

    def n_degenerate(self, point, data) -> int:
        """Return how many parts of `point` stand for no structure of the data.

        A start with such parts loses to any without, and moves may not add to them.
        """


class Swept(Protocol):
    """What `Sweeps` asks for: epochs of steps that are the model's own.

    What is known of all units (`known_at`) and what an epoch moves (`open`) are objects
    of the model's own making; the solver keeps them, and decides what is swept when.
    """

    #: Passes of a sweep, and of making what is known.
    sweep_passes: float
    known_passes: float
    #: Elements of `visits` that make one step, and numbers of noise that it asks for.
    rows_a_visit: int
    noise_width: int
    #: Visits of every row in a sweep. Only where these are not one.
    rounds: int

    def full_pass(self, point, data):
        """Return the point, the mean there without noise, and what an epoch needs."""

    def objective(self, point, mean) -> float:
        """Return the objective, from the mean of a full pass."""

    def predicted_gain(self, point, mean) -> float:
        """Return what a step is about to gain; infinity where nobody knows."""

    def left_to_gain(self, point) -> float:
        """Return what is left by all of the curvature.

        Only for models whose prediction can be too small: asked where a fit would end.
        """

    def climbed(self, anchor):
        """Return the objectives that some steps of EM from an anchor lead to.

        Only where these are cheap, and tell what steps of a sweep have left.
        """

    def known_at(self, anchor, rng):
        """Return what is known of all units at an anchor, by a pass (svrg, saga)."""

    def renewed(self, known):
        """Return what the visits of an epoch have seen, in its place.

        Only for models that "saga" fits.
        """

    def steady(self, n_lost):
        """Make estimates whose noise is what so many epochs that lost ask for.

        Only for models that can have less of it.
        """

    def open(self, anchor):
        """Return what an epoch moves, a copy of what the anchor has."""

    def depart(self, work, anchor):
        """Move what the full pass has shown to be best, before any step.

        Only for models with parts that steps would hardly move.
        """

    def visits(self, known, rng):
        """Return what an epoch visits, in random order, as a sequence."""

    def noise(self, work, visits, rng):
        """Return the noise of some visits, None where there is none."""

    def sweep(self, work, known, visits, noise, sizes) -> int:
        """Make a step of its size for each visit; return how many failed."""

    def estimates(self, work, known, visits, noise):
        """Return what these steps would be made of (n_visits, ...), with no step made.

        By the code of the steps: what the laws look at.
        """

    def at(self, batch, n_rows):
        """Return the model of the rows of a batch, which stand for so many in all.

        Here and below: only for models whose rows may lie elsewhere.
        """

    def know(self, anchor):
        """Return what is known of some rows at an anchor, and more where needed."""

    def parted(self, known) -> tuple[NamedTuple, Any]:
        """Return what is known of some rows as sums, and what belongs to each row."""

    def joined(self, sums, own, work):
        """Return what is known of some rows, with the sums over all, for an epoch."""

    def seen(self, known) -> tuple[NamedTuple, Any]:
        """Return by how much a sweep changes the sums, and what takes `own`'s place.

        Of "svrg" None, and `own`.
        """

    def variance(self, work) -> float:
        """Return the variance of the epoch's estimates, over all coordinates.

        Only for models that keep it.
        """

    def close(self, work):
        """Return the point; a FloatingPointError says that the steps went too far."""


class Visit(Protocol):
    """One block of units."""

    block: int
    total_weight: float


class Partition(Protocol):
    """All units, cut into blocks."""

    total_weight: float

    #: Units of each block, where they lie elsewhere, and whether something that lives
    #: beside them was lost.
    sizes: list
    remade: bool

    def __len__(self):
        """Return the number of blocks."""

    def map(self, function):
        """Yield ``function(batch)`` in the order of the blocks."""

    def sum(self, function):
        """Return the sum of ``function(batch)`` over all blocks."""

    def shuffled(self, rng):
        """Yield each batch once, in random order: a `Visit` to where it lies."""

    def keep(self, function):
        """Return the sum of the first that ``function(batch)`` returns, and a table.

        That of the second, one a batch. Entries stay with the batches.
        """

    def visit(self, function, visit, entry=None):
        """Return ``function(batch, entry)``, of a visit and its entry of a table."""

    def renew(self, function, visit, entry):
        """Return the first of what ``function(batch, entry)`` returns, and an entry.

        A new one, made of the second.
        """

    def mapped(self, function, table):
        """Return the table of ``function(entry)``."""

    def total(self, table):
        """Return the sum of the entries of a table."""


class Data(Protocol):
    """A source of units (``skvrem/data``)."""

    n_units: int
    total_weight: float

    def chunks(self) -> Partition:
        """All units in storage order."""

    def blocks(self, n_blocks, rng) -> Partition:
        """Return a fixed random partition."""

    def sample(self, n_units, rng):
        """Return a batch of random units."""


class Solver(Protocol):
    """How the mean over all units is estimated, and an epoch of steps made of it."""

    #: As it stands in histories and in ``solver_``.
    name: str
    #: The objective of an anchor is exact; it is a lower bound (False), where one
    #: decrease means nothing; or it is noise (None), to be shown only.
    exact: bool | None
    #: A decrease of the objective sends the fit back to the last good anchor. Batch has
    #: nothing better to go back to, stochastic nothing to go by.
    certifies: bool
    #: Epochs in a row that must predict little gain before the fit has converged,
    #: where the loop predicts from the gains it has seen. Where these are `noisy`,
    #: epochs over which they are added up.
    patience: int
    noisy: bool
    #: Ratios of gains settle as fast directions die out. Only where they do.
    steady: bool
    #: How many times what the gains say may be left. Only where it is not once.
    caution: float
    #: Epochs in a row whose own prediction must be below the tolerance.
    confirms: int

    def start(self, model, data, rng) -> None:
        """Set up for a fit: partition the data."""

    def certify(self, point, beta) -> Anchor:
        """Say what is known at `point`, with the temperature frozen at 1/beta.

        By a full pass, by the bound of a table, or by what the last epoch has seen.
        The next epoch begins there.
        """

    def may_end(self, anchor, tol):
        """Return whether a fit may end at `anchor`, and what passes it cost to tell.

        Only of solvers whose gains, which say that less than `tol` is left, can be of
        steep directions alone.
        """

    def epoch(self, anchor, pace, rng) -> Moved:
        """Make the steps of one epoch from the last anchor.

        ``pace(i)`` is the size of its i-th step.
        """

    def follow(self, temperature) -> None:
        """Take the temperature of each visit of the next epoch from a function.

        Of the share of the epoch that is over. Only for solvers without an anchor.
        """

    def restore(self, anchor) -> None:
        """Go back to where `anchor` was made; the loop moves the point itself."""

    def remade(self) -> bool:
        """Whether something beside rows was made anew since this was last asked.

        Only of solvers that visit a partition.
        """

    def state(self) -> dict:
        """Return what an epoch needs beside the point, as plain numbers and arrays.

        Neither anchors nor tables, which `certify` makes.
        """

    def resume(self, state) -> None:
        """Take a state back, after `start` and before the point is certified."""


class Temperature(Protocol):
    """The temperature of an epoch, by the number of epochs before it."""

    #: Whether it changes within epochs, at fractions of them. Only where it does.
    within_epochs: bool

    def __call__(self, count) -> float:
        """Return it."""

    def observe(self, point) -> None:
        """Take note of a point that has been certified. Only where it is learned."""

    def state(self) -> dict:
        """Return what has been learned. Only where it is."""

    def resume(self, state) -> None:
        """Take it back. Only where it is learned."""


def recentred(model, point):
    """Return the point as an epoch begins with it."""
    return model.recentre(point) if hasattr(model, "recentre") else point
