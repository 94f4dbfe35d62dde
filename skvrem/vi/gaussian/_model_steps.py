"""A mean-field posterior that minibatch steps move: what a sweep needs of it."""

from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np

from skvrem.utils._algebra import rescale
from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.vi.gaussian import _kernels_steps
from skvrem.vi.gaussian._model import STEP_ROWS, Point, SteppedModel
from skvrem.vi.gaussian._model_posterior import MOST_SCALE

# What the kernels know them as.
CONTROLS = {
    None: _kernels_steps.NONE,
    "taylor": _kernels_steps.TAYLOR,
    "antithetic": _kernels_steps.ANTITHETIC,
    "quadrature": _kernels_steps.QUADRATURE,
}
OPTIMIZERS = {
    "natural": _kernels_steps.NATURAL,
    "adam": _kernels_steps.ADAM,
    "sgd": _kernels_steps.SGD,
}
# Coefficients up to which all of the curvature is taken to say what is left to gain.
MOST_COEFFICIENTS = 1000
# Draws of a row in a step, where noise asks for more than one.
MOST_DRAWS = 16
NO_NODES = np.empty((0, 0)), np.empty(0)
NO_ESTIMATES = np.empty((0, 0, 0, 0))


class Known(NamedTuple):
    """What rows remember of an earlier point.

    Attributes
    ----------
    totals : ndarray of shape (2, k, p)
        Sums over all rows of the known means, gradient and curvature.
    memory : ndarray of shape (n, width)
    fresh : ndarray of shape (n, width), or (0, width)
        Where visits leave what takes the place of `memory` in the next epoch.
    change : ndarray of shape (2, k, p)
        By how much these change the totals.
    """

    totals: np.ndarray
    memory: np.ndarray
    fresh: np.ndarray
    change: np.ndarray


class KnownSums(NamedTuple):
    """The `totals` of `Known`, of some rows or of all."""

    totals: np.ndarray


class AdamMoments(NamedTuple):
    """What Adam knows of the steps that have led to a point.

    Attributes
    ----------
    values : ndarray of shape (4, k, p)
        First and second moments of the gradients by means, and by scales.
    count : int
        Steps so far.
    visits : ndarray of shape (k p,), or (0,)
        Steps of each parameter, where these are not those of all.
    """

    values: np.ndarray
    count: int
    visits: np.ndarray


class Work:
    """What an epoch moves.

    Attributes
    ----------
    point : Point
        Where it begins.
    mean, log_scale, scale : ndarray of shape (k, p)
    values, count, visits : see `AdamMoments`
    seen : ndarray of shape (2, ...)
        Sums of the estimates and of their squares.
    n_seen : int
    """

    def __init__(self, point, shape, seen, n_visits=0):
        q = point.parameters
        self.point = point
        self.mean, self.log_scale = q.mean.T.copy(), q.log_scale.T.copy()
        self.scale = np.exp(self.log_scale)
        last = point.moments
        if last is None:
            last = AdamMoments(np.zeros((4, *shape)), 0, np.zeros(n_visits, np.int64))
        self.values, self.visits = last.values.copy(), last.visits.copy()
        self.count = last.count
        self.seen, self.n_seen = np.zeros(seen), 0

    def __getstate__(self):
        return {k: v for k, v in vars(self).items() if k != "point"}

    def close(self):
        """Return the point that the epoch has led to."""
        # Steps that were too long may lead beyond floating point: that is undone, as
        # the bound says. No posterior is wider than the widest prior, or lies further.
        means = np.clip(self.mean, -MOST_SCALE, MOST_SCALE)
        scales = np.minimum(self.log_scale, np.log(MOST_SCALE))
        mean, log_scale = map(np.ascontiguousarray, (means.T, scales.T))
        q = self.point.parameters._replace(mean=mean, log_scale=log_scale)
        return Point(q, moments=AdamMoments(self.values, self.count, self.visits))


class Steps(SteppedModel):
    """What models have in common whose means and scales are moved by minibatch steps.

    Parameters
    ----------
    model : GaussianModel
        With a diagonal posterior and prior; makes the anchors' passes.
    kind : {"stochastic", "svrg", "saga"}
    optimizer : {"natural", "adam", "sgd"}
    batch_size : int
    """

    rows_a_visit = 1
    noise_width = 0

    def __init__(self, model, kind, optimizer, batch_size):
        self.model = model
        self.kind = kind
        self.optimizer = OPTIMIZERS[optimizer]
        self.batch_size = batch_size
        self.shape = (model.k, model.prior.n_dim // model.k)

    @property
    def reduced(self):
        """Whether what rows remember controls the subsampling."""
        return self.kind != "stochastic"

    def full_pass(self, point, data):
        """Return the point, the mean there without noise, and nothing else."""
        chunks = data.chunks()
        sums = chunks.sum(partial(self.statistics, point, beta=1.0))
        return point, rescale(sums, 1.0 / chunks.total_weight), None

    def statistics(self, point, batch, beta):
        """Return the sums of a batch, without noise."""
        return self.model.statistics(point, batch, beta)

    def _prior(self):
        parts = self.model.prior.mean, self.model.prior.precision_diagonal
        return np.stack([part.reshape(self.shape) for part in parts])

    def variance(self, work):
        """Return the variance of the estimates of an epoch, over all of them."""
        first, second = work.seen / max(1, work.n_seen)
        return float(np.sum(second - first * first))

    def auto_step(self, point):
        """Return a size of steps that seldom overshoots.

        For "natural", half of one over the trace of covariance times curvature, which
        the largest eigenvalue of a single row's share does not exceed by much; the more
        rows a batch has, the closer its curvature is to that of all. "sgd" makes as
        long a step along the narrowest coefficient; "adam" steps by 0.02.
        """
        if self.optimizer == _kernels_steps.ADAM:
            return 0.02
        variance = np.exp(2.0 * point.parameters.log_scale)
        precision = self.model.prior.precision_diagonal.reshape(self.model.k, -1).T
        effective = float(np.sum(np.maximum(1.0 - variance * precision, 0.0)))
        size = 0.5 / (1.0 + effective / np.sqrt(self.batch_size))
        if self.optimizer == _kernels_steps.NATURAL:
            return size
        return size * float(variance.min())


class SteppingModel(Steps):
    """A `GaussianModel` whose epoch is one compiled sweep.

    Parameters
    ----------
    model : GaussianModel
        With a diagonal posterior and prior; makes the anchors' passes.
    data : source
        Dense rows. Elsewhere, sweeps are made `at` their blocks.
    kind : {"stochastic", "svrg", "saga"}
    control : {None, "taylor", "antithetic", "quadrature"}
        "quadrature" has no noise to control: steps climb to the top of the bound that
        passes evaluate, by the same nodes.
    control_scale : bool
    optimizer : {"natural", "adam", "sgd"}
    batch_size : int
    n_draws : int or "auto"
        "auto" begins with one, and has as many again with every epoch that lost, up to
        `MOST_DRAWS`: shorter steps alone would average as much noise, and lead nowhere.
    """

    def __init__(
        self, model, data, kind, control, control_scale, optimizer, batch_size, n_draws
    ):
        super().__init__(model, kind, optimizer, batch_size)
        self.data = data
        self.control = CONTROLS[control]
        self.control_scale = control_scale
        self.free = n_draws == "auto"
        self.n_draws = 1 if self.free else int(n_draws)  # of no narrow type
        self.n_rows = float(data.n_units)
        self.y = None if data.remote else np.asarray(model.y, np.float64)
        self.width = 2 * model.k if control == "quadrature" else model.k
        self._take_nodes()
        if model.prior.n_dim <= MOST_COEFFICIENTS:
            self.left_to_gain = self._left_to_gain

    def _take_nodes(self):
        """Make steps by the nodes of the model's passes."""
        family, nodes = self.model.family, NO_NODES
        if self.control == _kernels_steps.QUADRATURE and hasattr(family, "nodes"):
            columns = family.nodes.reshape(-1, self.model.k).T
            nodes = np.ascontiguousarray(columns), family.node_weights
        self.likelihood = family.code, float(family.dispersion), *nodes

    def __getstate__(self):
        if self.y is not None:
            return vars(self)
        state = {k: v for k, v in vars(self).items() if k != "left_to_gain"}
        # Rows stay where they are, and what is known of points here.
        return state | {"data": None, "model": self.model.changed()}

    def steady(self, n_lost):
        """Take more draws where epochs have lost, if their number is free."""
        if self.free:
            self.n_draws = min(2**n_lost, MOST_DRAWS)

    @property
    def rows_a_visit(self):
        """Rows of a batch."""
        return self.batch_size

    @property
    def noise_width(self):
        """Numbers of noise that a visit asks for."""
        if self.control == _kernels_steps.QUADRATURE:
            return 0
        return self.batch_size * self.n_draws * self.model.k

    def _left_to_gain(self, point):
        """Return what is left to gain, in nats, by Newton's step of the means.

        What independent coefficients predict is short where features correlate.
        """
        newton, chunks = self.model.changed(matrix=True), self.data.chunks()
        sums = chunks.sum(partial(newton.statistics, point, beta=1.0))
        return newton.predicted_gain(point, rescale(sums, 1.0 / chunks.total_weight))

    # Nodes of several predictors, which err

    @property
    def _by_nodes(self):
        return self.control == _kernels_steps.QUADRATURE and self.model.k > 1

    def refined(self, point):
        """Return the model with finer quadrature, None where there is none.

        Steps of "svrg" know the mean over all rows from the anchor's pass with finer
        nodes, and need these for nothing else: of what rows have changed since the
        anchor, few nodes err by less, and by nothing at the end.
        """
        model = self.model.refined(point) if self._by_nodes else None
        if model is None:
            return None
        finer = copy(self)
        finer.model, finer.data = model, self.data  # which does not travel
        if self.kind != "svrg":
            finer._take_nodes()
        if hasattr(self, "left_to_gain"):
            finer.left_to_gain = finer._left_to_gain
        return finer

    def sampled_error(self, point, data):
        """Return what finer quadrature changes in the bound, about: NaN if unknown."""
        return self.model.sampled_error(point, data) if self._by_nodes else np.nan

    # A sweep

    def visits(self, known, rng):
        """Return all rows in random order."""
        return rng.permutation(self.data.n_units).astype(np.int32)

    def noise(self, work, rows, rng):
        """Return standard normal numbers for some rows, none for quadrature."""
        n_rows = rows.size if self.noise_width else 0
        return rng.standard_normal((n_rows, self.n_draws, self.model.k))

    def open(self, anchor):
        """Return what an epoch moves."""
        return Work(anchor.point, self.shape, (2, *self.shape))

    def sweep(self, work, known, rows, noise, sizes, estimates=NO_ESTIMATES):
        """Make a step for each batch of some rows; none can be rejected."""
        if known is None:
            known = self._nothing(0)
        visits = rows, self.batch_size, self.n_rows, noise
        control = self.control, self.control_scale, self.reduced, self.kind == "saga"
        state = work.mean, work.log_scale, work.scale, self._prior(), work.values
        moves = self.optimizer, sizes, work.count
        how = self._rows(), visits, self.likelihood, control, known, state, moves
        exact = np.empty((2, self.batch_size, self.model.k)) if self._by_nodes else None
        work.count = _kernels_steps.sweep(*how, work.seen, estimates, exact)
        work.n_seen += len(sizes)
        return 0

    def estimates(self, work, known, rows, noise):
        """Return what steps would be made of, G and C by batch (m, 2, k, p).

        Their kernel is that of the steps.
        """
        n = -(-len(rows) // self.batch_size)
        found = np.empty((n, 2, *self.shape))
        self.sweep(work, known, rows, noise, np.zeros(n), found)
        return found

    # What controls it

    def _nothing(self, n_rows):
        return Known(
            np.zeros((2, *self.shape)),
            np.empty((n_rows, self.width)),
            np.empty((n_rows if self.kind == "saga" else 0, self.width)),
            np.zeros((2, *self.shape)),
        )

    def known_at(self, anchor, rng):
        """Let rows remember the point of an anchor."""
        known, at = self._nothing(self.data.n_units), self.open(anchor)

        chunks = row_chunks(0, self.data.n_units, STEP_ROWS)
        if self._by_nodes:  # of the anchor's pass, whose nodes may be finer
            list(parallel_map(partial(self._remember, at, known.memory), chunks))
            sums = anchor.mean.gradient.T, anchor.mean.curvature.T
            return known._replace(totals=self.data.total_weight * np.stack(sums))

        def fill(chunk):
            sums = np.zeros((2, *self.shape))
            where = self._rows(), chunk, self.likelihood, self.control
            _kernels_steps.anchor(*where, at.mean, at.scale, known.memory, sums)
            return sums

        return known._replace(totals=sum(parallel_map(fill, chunks)))

    def _remember(self, at, memory, chunk):
        """Let rows of a chunk (start, stop) remember expectations over nodes."""
        some = np.arange(*chunk, dtype=np.int32)
        found = np.empty((2, some.size, self.model.k))
        where = self._rows(), some, at.mean, at.scale, *self.likelihood[2:]
        _kernels_steps.expected_of_classes(*where, found)
        memory[slice(*chunk)] = np.hstack(found)

    def renewed(self, known):
        """Let what the visits of an epoch saw take the place of what was known.

        The table of Algorithm 1 of Wang et al. (2024), and the sum over it.
        """
        totals, nothing = known.totals + known.change, np.zeros_like(known.change)
        return Known(totals, known.fresh, known.memory, nothing)

    def _rows(self):
        return self.data.rows, self.y, self.data.weight

    # Where rows lie elsewhere

    def at(self, batch, n_rows):
        """Return the model of the rows of a batch, which stand for so many in all."""
        there = copy(self)
        there.data, there.n_rows = batch, n_rows
        there.y = np.asarray(batch.targets, np.float64)
        return there

    def know(self, anchor):
        """Return what is known of the rows at an anchor."""
        return self.known_at(anchor, None)

    def parted(self, known):
        """Return the sums of what is known, and what each row remembers."""
        return KnownSums(known.totals), known.memory

    def joined(self, sums, own, work):
        """Return what is known of rows, with the sums over all."""
        return self._nothing(len(own))._replace(totals=sums.totals, memory=own)

    def seen(self, known):
        """Return by how much visits change the sums, and what rows remember next."""
        if self.kind != "saga":
            return None, known.memory
        return KnownSums(known.change), known.fresh
