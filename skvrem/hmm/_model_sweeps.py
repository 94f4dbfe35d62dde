r"""Stochastic M steps (Sidrow et al. 2023, Algorithms 3-5).

The loss is a mean of shares :math:`F_b` of rows or of blocks of rows. A step follows

.. math:: \nabla F_b(\phi) - \hat\nabla F_b + \hat\nabla F                     (23)

where hats are of the anchor, at which a full E step has been made (svrg), or of the
last visit of the block (saga). With a partial E step the block's posteriors are renewed
from the messages of its neighbours first. Step sizes are 1 / (3 L), one for the
transitions and one for the emissions; the estimates L double until a step along the
share's own gradient lowers the share as far as it would if L were right (30).

`RowSweeps` visits single rows in a kernel, for Gaussian emissions; `BlockSweeps` blocks
of any model, through its gradient.
"""

from typing import Any, NamedTuple

import numpy as np

from skvrem.hmm import _kernels_sweeps as kernels
from skvrem.utils._algebra import scale

__all__ = ["BlockSweeps", "RowSweeps"]

LIPSCHITZ = 100.0 / 3.0
# Gradients below are not searched along; what a loss may be off, relatively.
SHORT, MOST_DOUBLINGS, ROUNDING = 1e-8, 60, 1e-13


class Anchored(NamedTuple):
    """A point, its mean statistics and objective, and what sweeps from it need."""

    point: Any
    mean: Any
    objective: float
    memory: Any


class _Sweeps:
    """What both kinds share.

    Parameters
    ----------
    model : HMMModel
    data : Data
    saga : bool
        Otherwise svrg.
    partial : bool
        With partial E steps.
    inner_passes : int
        Visits of every row in a sweep.
    """

    def __init__(self, model, data, *, saga, partial, inner_passes):
        self.model = model
        self.data = data
        self.saga = saga
        self.partial = partial
        self.inner_passes = inner_passes
        #: Passes of a sweep as the paper counts them: gradients, and partial E steps.
        self.passes = float(inner_passes * (1 + partial))
        self.lipschitz = np.full(2, LIPSCHITZ)

    def _order(self, n, rng):
        """Visits without replacement, again and again."""
        return np.concatenate([rng.permutation(n) for _ in range(self.inner_passes)])


class RowSweeps(_Sweeps):
    """Sweeps over single rows, for Gaussian emissions with diagonal covariances."""

    @staticmethod
    def can(model, rows):
        """Whether a kernel knows the model: nothing fixed, masked, missing, prior."""
        emission, parts = model.emission, (model.initial, model.transitions)
        plain = type(emission).__name__ == "Gaussian" and not model.labelled
        plain = plain and emission.covariance_type == "diag"
        plain = plain and emission.mean is None and emission.covariance is None
        n = emission.n_states_
        free = [n - 1, n * (n - 1)]
        prior = getattr(model.transitions, "prior", 1.0)
        return bool(
            plain
            and [part.n_parameters() for part in parts] == free
            and type(model.transitions).__name__ == "Homogeneous"
            and not (model.initial.prior or np.any(np.not_equal(prior, 1.0)))
            and not np.isnan(rows.X.sum())
        )

    def __init__(self, model, data, **options):
        super().__init__(model, data, **options)
        emission, rows = model.emission, data.rows
        self.Z = (rows.X - emission._centre) / emission._width
        self.unit = 1.0 / np.square(emission._width)
        self.begins = np.zeros(len(self.Z), bool)
        self.begins[rows.bounds[:-1]] = True
        self.ends = np.zeros(len(self.Z), bool)
        self.ends[np.asarray(rows.bounds[1:]) - 1] = True

    def evaluate(self, point):
        """Make a full E step at a point."""
        model = self.model
        mean = model.mean(point, self.data)
        u, n = model.free(point.parameters), model.emission.n_states_
        shape = len(self.Z), n
        arrays = *(np.empty(shape) for _ in range(3)), np.empty((len(self.Z), n * n))
        kernels.messages(
            self.Z,
            self.begins,
            self.ends,
            u,
            float(model.emission.reg_covar),
            self.unit,
            n,
            *arrays,
        )
        return Anchored(point, mean, model.objective(point, mean), arrays)

    def sweep(self, anchor, factor, rng):
        """Return the point that a sweep from an anchor leads to."""
        model, reg = self.model, float(self.model.emission.reg_covar)
        alpha, beta, gamma, xi = anchor.memory
        u0 = model.free(anchor.point.parameters)
        u, table = u0.copy(), np.empty((0, 0))
        if self.saga:
            table = np.empty((len(self.Z), len(u)))
            kernels.fill_table(
                self.Z, self.begins, gamma, xi, u0, reg, self.unit, table
            )
        if self.partial:
            alpha, beta = alpha.copy(), beta.copy()
        kernels.sweep(
            self.Z,
            self.begins,
            self.ends,
            self._order(len(self.Z), rng),
            self.partial,
            float(factor),
            u0,
            -model.slope(anchor.point.parameters, anchor.mean),
            reg,
            self.unit,
            gamma,
            xi,
            alpha,
            beta,
            table,
            self.lipschitz,
            u,
        )
        if not np.isfinite(u).all():
            raise FloatingPointError("the steps have left the numbers")
        parameters = model.bind(u, anchor.point.parameters)
        return anchor.point._replace(parameters=parameters)


class BlockSweeps(_Sweeps):
    """Sweeps over blocks of consecutive rows, for every model.

    Parameters
    ----------
    partition : Stretches
    """

    def __init__(self, model, data, partition, **options):
        super().__init__(model, data, **options)
        self.partition = partition
        self.relay = partition.batches[0].rows
        self.share = len(partition) / partition.total_weight

    def evaluate(self, point):
        """Make a full E step at a point."""
        model = self.model
        shares = [
            scale(sums, self.share)
            for sums in self.partition.map(lambda b: model.statistics(point, b, 1.0))
        ]
        fields = zip(*shares, strict=True)
        mean = type(shares[0])(*(sum(field) / len(shares) for field in fields))
        alpha = [part.copy() for part in self.relay.alpha]
        memory = shares, alpha, self.relay.messages.copy()
        return Anchored(point, mean, model.objective(point, mean), memory)

    def sweep(self, anchor, factor, rng):
        """Return where a sweep from an anchor leads (Algorithm 4, Eqs. 23-25)."""
        model, (shares, alpha, messages) = self.model, anchor.memory
        for mine, kept in zip(self.relay.alpha, alpha, strict=True):
            mine[:] = kept
        self.relay.messages[:] = messages
        start = parameters = anchor.point.parameters
        table = [model.slope(start, share) for share in shares]
        mean = model.slope(start, anchor.mean)
        cut = model.n_chain_coordinates()
        parts = (
            (slice(0, cut), model.bind_chain, model.chain_surrogate),
            (slice(cut, None), model.bind_emission, model.rows_surrogate),
        )
        shrink = 2.0 ** (-1.0 / len(shares))
        u = model.free(start)
        for block in self._order(len(shares), rng):
            share = shares[block]
            if self.partial:
                point = anchor.point._replace(parameters=parameters)
                batch = self.partition.batches[block]
                share = scale(model.statistics(point, batch, 1.0), self.share)
            slope = model.slope(parameters, share)
            ascent = slope - table[block] + mean
            for number, (part, bind, surrogate) in enumerate(parts):
                own = u[part], slope[part]
                self._search(number, bind, surrogate, parameters, share, *own)
            for number, (part, _, _) in enumerate(parts):
                u[part] += factor / (3.0 * self.lipschitz[number]) * ascent[part]
            parameters = model.bind(u, parameters)
            if self.saga:
                mean = mean + (slope - table[block]) / len(shares)
                table[block] = slope
            self.lipschitz *= shrink
        if not np.isfinite(u).all():
            raise FloatingPointError("the steps have left the numbers")
        return anchor.point._replace(parameters=parameters)

    def _search(self, number, bind, surrogate, parameters, share, u, slope):
        """Double one part's Lipschitz estimate until Eq. 30 holds."""
        square = float(slope @ slope)
        if square < SHORT**2:
            return
        here = surrogate(parameters, share)
        slack = ROUNDING * abs(here)
        for _ in range(MOST_DOUBLINGS):
            there = bind(u + slope / self.lipschitz[number], parameters)
            gain = surrogate(there, share) - here
            if gain >= 0.5 * square / self.lipschitz[number] - slack:
                return
            self.lipschitz[number] *= 2.0
