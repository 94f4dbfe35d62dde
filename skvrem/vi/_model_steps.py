"""A mean-field posterior that makes minibatch steps: what it keeps between epochs."""

from functools import partial
from typing import NamedTuple

import numpy as np

from skvrem.utils._algebra import rescale
from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.vi import _kernels_steps
from skvrem.vi._model import STEP_ROWS, Point

__all__ = ["OPTIMIZERS", "SteppingModel", "Steps"]

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
# Numbers of noise at once.
NOISE = 1_000_000
# Coefficients up to which all of the curvature is taken to say what is left to gain.
MOST_COEFFICIENTS = 1000
NO_NODES = np.empty(0)


class Totals(NamedTuple):
    """Sums over all rows of the known means, gradient and curvature (k, p)."""

    gradient: np.ndarray
    curvature: np.ndarray


class Steps:
    """What models have in common whose update is an epoch of steps.

    Parameters
    ----------
    model : GaussianModel
        With a diagonal posterior and prior; makes the anchors' passes.
    kind : {"stochastic", "svrg", "saga"}
    optimizer : {"natural", "adam", "sgd"}
    batch_size : int
    """

    def __init__(self, model, kind, optimizer, batch_size):
        self.model = model
        self.kind = kind
        self.optimizer = OPTIMIZERS[optimizer]
        self.batch_size = batch_size
        self.filled = False
        self.shape = (model.k, model.prior.n_dim // model.k)
        self.moments, self.count = np.zeros((4, *self.shape)), 0
        self.variances, self._variance, self._moved = [], np.nan, True

    @property
    def reduced(self):
        """Whether what rows remember controls the subsampling."""
        return self.kind != "stochastic"

    def statistics(self, point, batch, beta):
        """Return the sums of a batch, without noise."""
        return self.model.statistics(point, batch, beta)

    def objective(self, point, mean):
        """Return the evidence lower bound, in nats."""
        return self.model.objective(point, mean)

    def promise(self, point, mean):
        """Return what a natural-gradient step is about to gain, in nats."""
        # Of the epoch before; of none, at the start and after one that was taken back.
        if self._moved:
            self.variances.append(self._variance)
        self._variance, self._moved = np.nan, False
        return self._promise(point, mean)

    def _promise(self, point, mean):
        return self.model.promise(point, mean)

    def recentre(self, point):
        """Return the point: there is no reference."""
        return point

    def revive(self, point, data, rng):
        """Return the point: no part of it can collapse."""
        return point

    def forget(self):
        """What rows remember is of steps that have been taken back."""
        self.filled = False
        self.variances[-1:] = [np.nan]
        self.moments[:] = 0.0
        self.count = 0

    def _prior(self):
        prior = self.model.prior
        return np.stack(
            [
                prior.mean.reshape(self.shape),
                prior.precision_diagonal.reshape(self.shape),
            ]
        )

    def _see(self, seen, n_steps):
        """Take note of the variance of estimates whose sums have been added up."""
        first, second = seen / max(1, n_steps)
        self._variance, self._moved = float(np.sum(second - first * first)), True

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
    """A `GaussianModel` whose update is an epoch of steps.

    Parameters
    ----------
    model : GaussianModel
        With a diagonal posterior and prior; makes the anchors' passes.
    data : source
        Dense rows in memory.
    kind : {"stochastic", "svrg", "saga"}
    control : {None, "taylor", "antithetic", "quadrature"}
        "quadrature" has no noise to control.
    control_scale : bool
    optimizer : {"natural", "adam", "sgd"}
    batch_size, n_draws : int
    """

    def __init__(
        self,
        model,
        data,
        kind,
        control,
        control_scale,
        optimizer,
        batch_size,
        n_draws,
    ):
        super().__init__(model, kind, optimizer, batch_size)
        self.data = data
        self.control = CONTROLS[control]
        self.control_scale = control_scale
        self.n_draws = n_draws
        self.order = np.arange(data.n_units, dtype=np.int32)
        self.y = np.asarray(model.y, np.float64)
        family = model.family
        scalar = control == "quadrature" and family.code == _kernels_steps.LOGISTIC
        self.nodes = (
            (family.nodes, family.node_weights) if scalar else (NO_NODES, NO_NODES)
        )
        self.phi = float(family.dispersion)
        width = 2 if control == "quadrature" else model.k
        n_memory = 0 if kind == "stochastic" else data.n_units
        self.memory = np.empty((n_memory, width))
        self.fresh = np.empty((n_memory if kind == "saga" else 0, width))
        self.totals = Totals(np.zeros(self.shape), np.zeros(self.shape))
        if model.prior.n_dim <= MOST_COEFFICIENTS:
            self.left_to_gain = self._left_to_gain

    def _left_to_gain(self, point):
        """Return what is left to gain, in nats, by Newton's step of the means.

        What independent coefficients promise is short where features correlate.
        """
        newton, chunks = self.model.with_matrix(), self.data.chunks()
        sums = chunks.sum(partial(newton.statistics, point, beta=1.0))
        return newton.promise(point, rescale(sums, 1.0 / chunks.total_weight))

    def update(self, point, mean, rng, size):
        """Return the point after an epoch of steps; without noise, the point."""
        if rng is None:
            return point
        q = point.parameters
        at = q.mean.T.copy(), q.log_scale.T.copy()
        self._anchor(*at)
        rng.shuffle(self.order)
        seen, change = np.zeros((2, *at[0].shape)), np.zeros((2, *at[0].shape))
        began, n = self.count, self.data.n_units
        drawn = self.control != _kernels_steps.QUADRATURE
        width = self.n_draws * self.model.k if drawn else 0
        rows = n if not width else max(1, NOISE // (width * self.batch_size))
        rows *= self.batch_size
        for start in range(0, n, rows):
            order = self.order[start : start + rows]
            noise = np.empty((0, self.n_draws, self.model.k))
            if drawn:
                noise = rng.standard_normal((order.size, self.n_draws, self.model.k))
            self.count = _kernels_steps.sweep(
                *self._rows(),
                order,
                self.batch_size,
                noise,
                self.model.family.code,
                self.phi,
                self.control,
                self.control_scale,
                self.reduced,
                self.kind == "saga",
                *self.nodes,
                self.memory,
                self.fresh,
                *self.totals,
                change,
                *at,
                self._prior(),
                self.moments,
                self.count,
                self.optimizer,
                size,
                seen,
            )
        if self.kind == "saga":
            self.memory, self.fresh = self.fresh, self.memory
            for total, part in zip(self.totals, change, strict=True):
                total += part
        self._see(seen, self.count - began)
        mean, log_scale = (np.ascontiguousarray(part.T) for part in at)
        return Point(q._replace(mean=mean, log_scale=log_scale))

    def _rows(self):
        return self.data.rows, self.y, self.data.weight

    def _anchor(self, mean, log_scale):
        """Let rows remember this point, where they do not remember their visits."""
        if not self.reduced or (self.kind == "saga" and self.filled):
            return
        shape, scale = mean.shape, np.exp(log_scale)

        def fill(chunk):
            sums = Totals(np.zeros(shape), np.zeros(shape))
            _kernels_steps.anchor(
                *self._rows(),
                *chunk,
                self.model.family.code,
                self.phi,
                self.control,
                *self.nodes,
                mean,
                scale,
                self.memory,
                *sums,
            )
            return sums

        chunks = row_chunks(0, self.data.n_units, STEP_ROWS)
        parts = list(parallel_map(fill, chunks))
        self.totals = Totals(*(sum(part) for part in zip(*parts, strict=True)))
        self.filled = True
