r"""Stochastic M steps (Sidrow et al. 2023, Algorithms 3-5).

The loss is a mean of shares :math:`F_b` of rows or of blocks of rows. A step follows

.. math:: \nabla F_b(\phi) - \hat\nabla F_b + \hat\nabla F           (Eq. 23)

where hats are of the anchor, at which a full E step has been made (svrg), or of the
last visit of the block, in the epoch before (saga: the table stands still within an
epoch, as in :class:`~skvrem.solvers.SAGA`). With a partial E step the block's
posteriors are renewed from the messages of its neighbours first. Step sizes are
1 / (3 L), one for the transitions and one for the emissions; the estimates L double
until a step along the share's own gradient lowers the share as far as it would if L
were right (Eq. 30). Unlike the paper's, steps are in coordinates that the information
of the complete data scales anew at every anchor, as L is that of the steepest one and
others would hardly move, and first states make an M step of their own there.

`RowSweeps` visits single rows, in a kernel that knows the families that ship;
`BlockSweeps` blocks of any model, through its gradient. Both are what
:class:`~skvrem.solvers._protocols.Swept` asks for; with the full E steps that certify,
epochs of :class:`~skvrem.solvers.Sweeps` are Algorithm 5, EM-VRSO.
"""

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from skvrem.hmm.em_vrso import _kernels as kernels
from skvrem.hmm.em_vrso._kernels_search import MOST_DOUBLINGS, ROUNDING, SHORT
from skvrem.hmm.em_vrso._model_rows import row_model
from skvrem.utils._algebra import scale
from skvrem.utils._control import controlled

LIPSCHITZ = 100.0 / 3.0
# Steps of EM that tell what those of a sweep have left: the ratio of the last gains is
# that of the flat directions.
EM_STEPS = 3
NO_ESTIMATES = np.empty((0, 0))


class RowsKnown(NamedTuple):
    """What is known of all rows at an earlier point.

    Attributes
    ----------
    mean : ndarray of shape (p,)
        Of the gradients.
    u : ndarray of shape (p,)
        Free coordinates of the anchor, and constants behind them. From these and its
        posteriors `gamma` and `xi` svrg makes the gradients of rows again.
    gamma : ndarray of shape (n_rows, n)
    xi : ndarray of shape (n_rows, n * n)
    table, fresh : ndarray of shape (n_rows, p), or (0, p)
        Gradients that saga keeps: of the epoch before, and of this one for the next.
    """

    mean: np.ndarray
    u: np.ndarray
    gamma: np.ndarray
    xi: np.ndarray
    table: np.ndarray
    fresh: np.ndarray


class KnownMean(NamedTuple):
    """A share of the `mean` of `RowsKnown`."""

    mean: np.ndarray


class BlocksKnown(NamedTuple):
    """What is known of all blocks: gradients (n_blocks, p), fresh ones, their mean."""

    mean: np.ndarray
    table: np.ndarray
    fresh: np.ndarray


class SweepState:
    """What a sweep moves: the free coordinates, and what an E step has found."""

    def __init__(self, anchor, u, metric):
        self.point, self.u, self.parameters = anchor.point, u, anchor.point.parameters
        self.metric = metric
        self.messages: Any = anchor.memory


class _SweptModel:
    """What both kinds share.

    Parameters
    ----------
    model : HMMModel
    data : Data
    saga : bool
        Otherwise svrg.
    partial : bool
        With partial E steps.
    inner_iter : int
        Visits of every row in a sweep.
    """

    #: Gradients at an anchor are no pass, as the paper counts them.
    known_passes = 0.0
    rows_a_visit = 1
    noise_width = 0
    #: Whether information scales coordinates; the paper's steps are plain.
    scaled = True

    def __init__(self, model, data, *, saga, partial, inner_iter):
        self.model = model
        self.data = data
        self.saga = saga
        self.partial = partial
        self.rounds = inner_iter
        #: Passes of a sweep as the paper counts them: gradients, and partial E steps.
        self.sweep_passes = float(inner_iter * (1 + partial))
        self.lipschitz = np.full(2, LIPSCHITZ)

    def objective(self, point, mean):
        """Return the penalised log-likelihood a row."""
        return self.model.objective(point, mean)

    def predicted_gain(self, point, mean):
        """Return infinity: nobody knows what is left to gain."""
        return np.inf

    def climbed(self, anchor):
        """Return the objectives that steps of EM from an anchor lead to."""
        point, mean, reached = anchor.point, anchor.mean, []
        for _ in range(EM_STEPS):
            point = self.model.update(point, mean, None, 1.0)
            point, mean, _ = self.full_pass(point, self.data)
            reached.append(self.objective(point, mean))
        return reached

    def depart(self, work, anchor):
        """Let first states make an M step of their own.

        A row of a sequence tells of them: steps there are few.
        """
        initial, parameters = self.model.initial, anchor.point.parameters
        if not (self.scaled and initial.n_parameters()):
            return
        sums = anchor.mean.start * self.model.total
        startprob = initial.maximize(sums, parameters.startprob)
        work.parameters = parameters._replace(startprob=startprob)
        work.u[: initial.n_parameters()] = initial.free(startprob)

    def _metric(self, anchor, n_units):
        """Return what gradients are divided by, one number a coordinate, (p,).

        The information of complete data at the anchor: in a unit of their own each,
        coordinates are as steep as each other, and one step size suits all. Those of
        transitions that hardly happen are as steep as a row makes them, those of first
        states as if all units told of them, or these few would shorten all steps.
        """
        if not self.scaled:
            return np.ones(self.model.n_parameters())
        n_rows = int(self.data.rows.bounds[-1])
        found = self.model.curvature(anchor.point.parameters, anchor.mean)
        least = np.full(len(found), 1.0 / n_rows)
        least[: self.model.initial.n_parameters()] *= n_units
        return np.maximum(found, least)

    def visits(self, known, rng):
        """Return numbers of rows or blocks: all without replacement, and again."""
        n = self.n_units
        return np.concatenate([rng.permutation(n) for _ in range(self.rounds)])

    def noise(self, work, visits, rng):
        """Return None: there is none."""

    def renewed(self, known):
        """Let what an epoch saw take the place of what was known.

        The mean of the gradients moves by Eq. 25 of Sidrow et al. (2023), for all that
        the visits of the epoch have brought at once.
        """
        mean = known.fresh.mean(axis=0)
        return known._replace(mean=mean, table=known.fresh, fresh=known.table)

    def close(self, work):
        """Return the point that a sweep has led to.

        Raises
        ------
        FloatingPointError
            If the steps went too far.
        """
        if not np.isfinite(work.u).all():
            raise FloatingPointError("the steps have left the numbers")
        parameters = self.model.bind(work.u, work.point.parameters)
        return work.point._replace(parameters=parameters)


class RowSweeps(_SweptModel):
    """Sweeps over single rows, for models that kernels of rows know.

    Parameters
    ----------
    of_rows : RowModel
        What :func:`~skvrem.hmm.em_vrso._model_rows.row_model` makes of model and data;
        where these lie elsewhere, of any of their blocks.
    """

    def __init__(self, model, data, of_rows, **options):
        super().__init__(model, data, **options)
        self._take(of_rows)
        self.cut = model.n_chain_coordinates()
        self.n_rows = int(data.rows.bounds[-1])
        self.weight_scale = self.n_rows / data.total_weight
        self.messages = None  # those of the work
        self.far = data.remote

    def _take(self, of_rows):
        rows, chain, states, self.n_derived, self.n_parts, self.constants = of_rows
        self.parts = *rows, *chain, *states

    def __getstate__(self):
        away = {"data": None, "parts": None} if self.far else {}
        return vars(self) | away

    @property
    def n_units(self):
        """Rows."""
        return len(self.data.rows.X)

    def _free(self, parameters):
        """Coordinates, and the constants behind them."""
        return np.append(self.model.free(parameters), self.constants)

    def full_pass(self, point, data):
        """Make a full E step at a point; return it, its mean, and all messages."""
        mean = self.model.mean(point, self.data)
        point = point._replace(statistics=mean)
        return point, mean, None if self.far else self._messages(point)

    def _messages(self, point):
        """Return messages and posteriors at a point, by row."""
        n, n_rows = len(point.statistics.start), self.n_units
        sizes = n, n, self.n_parts, n * n
        arrays = tuple(np.empty((n_rows, size)) for size in sizes)
        u = self._free(point.parameters)
        kernels.messages(*self.parts, self.n_derived, u, *arrays)
        return arrays

    def known_at(self, anchor, rng):
        """Return what is known of rows at an anchor."""
        _, _, gamma, xi = anchor.memory
        mean = -self.model.slope(anchor.point.parameters, anchor.mean)
        u = self._free(anchor.point.parameters)
        table = np.empty((self.n_units if self.saga else 0, len(mean)))
        if self.saga:
            kernels.fill_table(*self.parts, self.n_derived, u, gamma, xi, table)
        return RowsKnown(mean, u, gamma, xi, table, table.copy())

    def open(self, anchor):
        """Return what a sweep from an anchor moves."""
        u = self._free(anchor.point.parameters)
        work = SweepState(anchor, u, self._metric(anchor, self.n_rows))
        if self.far:
            work.lipschitz = self.lipschitz.copy()
        elif self.partial:
            alpha, beta, *posteriors = work.messages
            work.messages = alpha.copy(), beta.copy(), *posteriors
        return work

    def sweep(self, work, known, rows, noise, sizes, estimates=NO_ESTIMATES):
        """Make a step for each of some rows; return how many were impossible."""
        messages, lipschitz = work.messages, self.lipschitz
        if self.messages is not None:
            messages, lipschitz = self.messages, work.lipschitz
        alpha, beta, gamma, xi = messages
        return kernels.sweep(
            *self.parts,
            self.n_derived,
            self.cut,
            rows,
            self.partial,
            sizes,
            *known,
            gamma,
            xi,
            alpha,
            beta,
            lipschitz,
            work.metric,
            self.n_rows,
            work.u,
            estimates,
        )

    def estimates(self, work, known, rows, noise):
        """Return the gradients that steps would follow, (m, p), by the same kernel."""
        found = np.empty((len(rows), len(known.mean)))
        self.sweep(work, known, rows, noise, np.zeros(len(rows)), found)
        return -found

    def close(self, work):
        """Return the point that a sweep has led to."""
        work.u = work.u[: self.model.n_parameters()]
        if self.far:
            self.lipschitz = work.lipschitz
        return super().close(work)

    # Where rows lie elsewhere

    def at(self, batch, n_rows):
        """Return the model of the rows of some whole sequences.

        Raises
        ------
        ValueError
            If no kernel knows them.
        """
        there = copy(self)
        there.data = batch
        there._take(known_rows(self.model, batch, self.weight_scale))
        return there

    def know(self, anchor):
        """Return the mean of all gradients at an anchor, and those of rows for saga."""
        mean = -self.model.slope(anchor.point.parameters, anchor.mean)
        table = np.empty((self.n_units if self.saga else 0, len(mean)))
        if self.saga:
            _, _, gamma, xi = self._messages(anchor.point)
            where = self._free(anchor.point.parameters), gamma, xi, table
            kernels.fill_table(*self.parts, self.n_derived, *where)
        return mean, table

    def parted(self, known):
        """Return the share of the mean, and what rows have of their own."""
        mean, table = known
        return KnownMean(mean * (self.n_units / self.n_rows)), table

    def joined(self, sums, own, work):
        """Return what is known of rows, with the mean of all and their messages."""
        self.messages = self._messages(work.point)
        _, _, gamma, xi = self.messages
        where = self._free(work.point.parameters), gamma, xi
        return RowsKnown(sums.mean, *where, own, np.empty_like(own))

    def seen(self, known):
        """Return by how much visits change the mean, and what is known next."""
        if not self.saga:
            return None, known.table
        change = known.fresh.sum(axis=0) - known.table.sum(axis=0)
        return KnownMean(change / self.n_rows), known.fresh


def known_rows(model, batch, scale):
    """Return the `RowModel` of whole sequences that lie elsewhere."""
    of_rows = row_model(model, batch, scale)
    if of_rows is None:
        raise ValueError(
            "On a dask array solver='svrg' and 'saga' visit single rows, by kernels "
            "that do not know emissions by their density and your own, full "
            "covariances of rows that are missing in part, priors, and first states "
            "that follow from the transitions: blocks of rows, which hand on "
            "messages, are cut in memory. Choose solver='auto' or 'incremental'."
        )
    return of_rows


class BlockSweeps(_SweptModel):
    """Sweeps over blocks of consecutive rows, for every model.

    Parameters
    ----------
    partition : RowBlocks
    """

    def __init__(self, model, data, partition, **options):
        super().__init__(model, data, **options)
        self.partition = partition
        self.blocks = partition.batches[0].rows
        self.share = len(partition) / partition.total_weight

    @property
    def n_units(self):
        """Blocks."""
        return len(self.partition)

    def full_pass(self, point, data):
        """Make a full E step at a point; return it, its mean, shares and messages."""
        model = self.model
        shares = [
            scale(sums, self.share)
            for sums in self.partition.map(lambda b: model.statistics(point, b, 1.0))
        ]
        fields = zip(*shares, strict=True)
        mean = type(shares[0])(*(sum(field) / len(shares) for field in fields))
        alpha = [part.copy() for part in self.blocks.alpha]
        memory = shares, alpha, self.blocks.messages.copy()
        return point._replace(statistics=mean), mean, memory

    def known_at(self, anchor, rng):
        """Return the gradients of blocks at an anchor, and their mean."""
        parameters, (shares, *_) = anchor.point.parameters, anchor.memory
        table = np.stack([self.model.slope(parameters, share) for share in shares])
        mean = self.model.slope(parameters, anchor.mean)
        return BlocksKnown(mean, table, table.copy())

    def open(self, anchor):
        """Return what a sweep moves; blocks hand on the messages of the anchor."""
        shares, alpha, messages = anchor.memory
        for mine, kept in zip(self.blocks.alpha, alpha, strict=True):
            mine[:] = kept
        self.blocks.messages[:] = messages
        u = self.model.free(anchor.point.parameters)
        work = SweepState(anchor, u, self._metric(anchor, self.n_units))
        work.shares = shares
        return work

    def sweep(self, work, known, blocks, noise, sizes):
        """Make steps for some blocks (Algorithm 4, Eqs. 23, 24); none is rejected."""
        model, cut = self.model, self.model.n_chain_coordinates()
        parts = (
            (slice(0, cut), model.bind_chain, model.chain_surrogate),
            (slice(cut, None), model.bind_emission, model.rows_surrogate),
        )
        shrink = 2.0 ** (-1.0 / len(self.partition))
        for block, size in zip(blocks, sizes, strict=True):
            share, slope, ascent = self._estimate(work, known, block)
            for number, (part, bind, surrogate) in enumerate(parts):
                own = work.u[part], slope[part], work.metric[part]
                self._search(number, bind, surrogate, work.parameters, share, *own)
            for number, (part, _, _) in enumerate(parts):
                length = size / (3.0 * self.lipschitz[number])
                work.u[part] += length * ascent[part] / work.metric[part]
            work.parameters = model.bind(work.u, work.parameters)
            if self.saga:
                known.fresh[block] = slope
            self.lipschitz *= shrink
        return 0

    def estimates(self, work, known, blocks, noise):
        """Return the gradients that steps would follow, (m, p)."""
        return np.stack([self._estimate(work, known, block)[2] for block in blocks])

    def _estimate(self, work, known, block):
        """Return a block's share, its own gradient, and the estimate of that of all."""
        share = work.shares[block]
        if self.partial:
            point = work.point._replace(parameters=work.parameters)
            batch = self.partition.batches[block]
            share = scale(self.model.statistics(point, batch, 1.0), self.share)
        slope = self.model.slope(work.parameters, share)
        return share, slope, controlled(slope, known.table[block], known.mean)

    def _search(self, number, bind, surrogate, parameters, share, u, slope, metric):
        """Double one part's Lipschitz estimate until Eq. 30 holds."""
        ahead = slope / metric
        square = float(slope @ ahead)
        if square < SHORT**2:
            return
        here = surrogate(parameters, share)
        # A sum of many rows is off by more than one of them.
        slack = 10.0 * ROUNDING * abs(here)
        for _ in range(MOST_DOUBLINGS):
            there = bind(u + ahead / self.lipschitz[number], parameters)
            gain = surrogate(there, share) - here
            if gain >= 0.5 * square / self.lipschitz[number] - slack:
                return
            self.lipschitz[number] *= 2.0
