r"""Minibatch steps on the log density of a user's own model.

With :math:`z = \mu + v`, :math:`v = \sigma \epsilon`, one draw for a batch, and the
batch's gradient g and Hessian H (times the number of batches, and with the prior's), an
estimate of the gradient of the expected log density by :math:`\mu`, and of minus its
curvature by the scales, is

    naive (Eq. 4 of Wang et al. 2024)     g(z),                       g(z) eps / sigma
    cv (Eq. 9)                            g(z) - H(mu) v,             the same
    joint (Eq. 5)                         g(z) - g(b) - H(b) v + G,   the same

where b is an earlier point, of all rows (Algorithm 2) or of the batch's last visit
(Algorithm 1), and G the sum over all rows of g(b). As the mean of H v is zero whatever
:math:`\sigma` is, today's will do. Where the diagonal of H is known, the scales are
controlled likewise: g(z) - g(b) - H(b) v takes the place of g(z) there, plus the
diagonal of all rows. H(b) v may be half of g(b + v) - g(b - v), which is odd in
:math:`\epsilon` as well ("antithetic").

Passes certify each epoch on draws that stay, and know G and C there, of all rows and
draws, with their own control variate K. A step that has one of these draws,
:math:`z = \mu + \sigma \epsilon`, and its place at the anchor, :math:`z' = \mu' +
\sigma' \epsilon`, is controlled by that:

    of passes    g(z) - g(z') + G',    (sigma' C' - (g(z) - g(z')) eps) / sigma

which is the joint estimate, less what Taylor's expansion leaves of it at the anchor,
plus the mean of that over the draws. Nothing varies at the anchor, and steps end where
the passes see no gradient; the end of fresh draws is another. It takes the place of the
joint estimate of both algorithms, but for independent scales whose curvature is not
known: the second moments of a few draws would be far from the normal's.

Where the model says which parameters a batch depends on, a step takes place among these
alone: draws, g, H, G, prior and entropy. Of an epoch's n batches :math:`c_j` have the
parameter j; what they say of it is multiplied by :math:`c_j` rather than by n, which is
the same mean over those that have it, and their step is :math:`n / c_j` times as long.
So weight times estimate, zero without a visit, has the gradient of the bound for its
mean over an epoch, dense terms included.
"""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from skvrem.utils._control import controlled
from skvrem.vi.blackbox._model import convex, dense, probed_curvature
from skvrem.vi.blackbox._model_density import ALL, DensityBatch
from skvrem.vi.gaussian import _kernels_steps
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_steps import Steps, Work


class EarlierPoint(NamedTuple):
    """What is known of an earlier point.

    Attributes
    ----------
    at : ndarray of shape (d,)
    kept : ndarray of shape (d,), or None
        The batch's gradient there, if it has been kept.
    gradient : ndarray of shape (d,)
        That of all rows.
    diagonal : ndarray of shape (d,), or None
        Of minus the Hessian of all rows, if the scales are controlled.
    """

    at: np.ndarray
    kept: np.ndarray | None
    gradient: np.ndarray
    diagonal: np.ndarray | None

    def among(self, support):
        """Return what is known by some of the parameters."""
        return EarlierPoint(*(None if part is None else part[support] for part in self))


class DrawnPoint(NamedTuple):
    """What a pass at all its draws says of an earlier point.

    Attributes
    ----------
    at : ndarray of shape (d,)
    scale : ndarray of shape (d,), or None
        Of the posterior, if it moves.
    gradient, curvature : ndarray of shape (d,)
        G, and C for the scales.
    """

    at: np.ndarray
    scale: np.ndarray | None
    gradient: np.ndarray
    curvature: np.ndarray | None

    def among(self, support):
        """Return what is known by some of the parameters."""
        return DrawnPoint(*(None if part is None else part[support] for part in self))


class Table(NamedTuple):
    """What each batch of a partition saw at its last visit.

    Attributes
    ----------
    partition : list of DensityBatch
    visited : list of tuple (point, gradient, diagonal)
    fresh : list of tuple
        Of this epoch, for the next.
    earlier : Earlier
        Gradient and diagonal of all rows.
    """

    partition: list
    visited: list
    fresh: list
    earlier: EarlierPoint


class TargetSteps(Steps):
    """A `DrawnModel` whose diagonal posterior is moved by minibatch steps.

    Eqs. 4, 5 and 9 of Wang et al. (2024); Algorithms 1 and 2.

    Parameters
    ----------
    model : DrawnModel
        With a diagonal posterior.
    kind : {"stochastic", "svrg", "saga"}
    control : {None, "taylor", "antithetic"}
    control_scale : bool
    optimizer : {"natural", "adam", "sgd"}
    batch_size : int
    """

    #: Of the estimates: G, and C for the scales.
    n_parts = 2

    def __init__(self, model, kind, control, control_scale, optimizer, batch_size):
        super().__init__(model, kind, optimizer, batch_size)
        self.target = model.target
        self.control = control
        known = control == "taylor" and self.target.knows_diagonal
        self.control_scale = control_scale and known and self.n_parts == 2
        self.n_batches = -(-self.target.rows.size // int(batch_size))
        self.curvature = None

    def full_pass(self, point, data):
        """Return the averages over all draws, and the curvature that controls them."""
        _, mean, _ = super().full_pass(point, data)
        return point, mean, self.curvature

    def statistics(self, point, batch, beta):
        """Return the averages over all draws, controlled by the curvature there."""
        at = point.parameters.mean[:, 0]
        if self.target.knows_hessian:
            self.curvature = dense(-self.target.hessian(at))
            self.model.scale_by(convex(self.curvature.matrix, self.model.prior))
        elif self.target.knows_diagonal:
            self.curvature = probed_curvature(self.target, at[None], None, 0)
        if self.curvature is not None:
            self.model.control(self.curvature, point)
        return self.model.statistics(point, batch, beta)

    def batches(self, rng):
        """Return all rows as batches in random order."""
        parts = np.array_split(rng.permutation(self.target.rows), self.n_batches)
        if not self.target.sparse:
            return [DensityBatch(part, float(self.n_batches)) for part in parts]
        supports = [self.target.support(part) for part in parts]
        counts = np.bincount(np.concatenate(supports), minlength=self.target.n_dim)
        return [
            DensityBatch(part, counts[support].astype(np.float64), support)
            for part, support in zip(parts, supports, strict=True)
        ]

    def estimate(self, mean, scale, noise, batch, anchor=None):
        """Return a batch's estimates of G and C (2, d) at one draw.

        Parameters
        ----------
        mean, scale, noise : ndarray of shape (d,)
            Of the parameters of the batch's support, as the estimates are.
        batch : DensityBatch
        anchor : Earlier, default=None
            Of svrg and saga.
        """
        if isinstance(anchor, DrawnPoint):
            both = mean + scale * noise, anchor.at + anchor.scale * noise
            now, then = (self.target.gradient(z, batch) for z in both)
            first = controlled(now, then, anchor.gradient)
            along = anchor.curvature * anchor.scale
            return np.stack([first, (along - (now - then) * noise) / scale])
        first, by_scale = self.by_mean(mean, scale * noise, batch, anchor)
        second = -by_scale * noise / scale
        if self.control_scale:
            known = anchor and anchor.diagonal
            second += self._diagonal(mean, batch) if known is None else known
        return np.stack([first, second])

    def by_mean(self, mean, v, batch, anchor):
        """Return an estimate of G, and what of a gradient at the draw is the scales'.

        Parameters
        ----------
        mean, v : ndarray of shape (d,)
            The draw is the mean plus v.
        batch : DensityBatch
        anchor : Earlier or None
        """
        target = self.target
        slope = target.gradient(mean + v, batch)
        if self.control is None:
            return slope, slope
        if anchor is None and self.control == "antithetic":
            other = target.gradient(mean - v, batch)
            return 0.5 * (slope + other), 0.5 * (slope - other)
        base = mean if anchor is None else anchor.at
        if self.control == "taylor":
            change = target.hessian_times(base, v, batch)
        else:
            ahead, behind = (target.gradient(base + u, batch) for u in (v, -v))
            change = 0.5 * (ahead - behind)
        level = 0.0 if anchor is None else anchor.kept
        if level is None or (anchor is None and self.control_scale):
            level = target.gradient(base, batch)
        if anchor is None:
            first = controlled(slope, change, 0.0)
        else:
            first = controlled(slope, level + change, anchor.gradient)
        return first, slope - level - change if self.control_scale else slope

    # A sweep

    def open(self, anchor):
        """Return what an epoch moves."""
        d = self.target.n_dim
        work = Work(anchor.point, self.shape, (2, 2, d), d if self.target.sparse else 0)
        work.prior, work.of_passes = self._prior(), self._of_passes(anchor)
        work.met = np.zeros(d, bool)
        self.target.rest(work.mean[0])
        return work

    def _of_passes(self, anchor):
        """Whether steps from an anchor have the draws of the pass that made it."""
        known = self.n_parts == 1 or self.curvature is not None
        return known and self.reduced and anchor.mean is not None

    def _drawn_point(self, q, mean):
        scale = np.exp(q.log_scale[:, 0])
        parts = mean.gradient[:, 0], mean.curvature[:, 0]
        return DrawnPoint(q.mean[:, 0].copy(), scale, *parts)

    def visits(self, known, rng):
        """Return batches in random order, with their numbers in a fixed partition."""
        if not isinstance(known, Table):
            return [(None, batch) for batch in self.batches(rng)]
        order = rng.permutation(self.n_batches)
        return [(number, known.partition[number]) for number in order]

    def noise(self, work, visits, rng):
        """Return a draw for each visit, by its support: one of passes, or new."""
        if work.of_passes:
            draws = _some_of(self.model.draws, len(visits), rng)
            both = zip(visits, draws, strict=True)
            return [draw[batch.support] for (_, batch), draw in both]
        mean = work.mean[0]
        return [rng.standard_normal(mean[batch.support].size) for _, batch in visits]

    def sweep(self, work, known, visits, noise, sizes):
        """Make a step for each batch; return how many were not finite."""
        seen, first = self._visited(work, known, visits, noise), work.n_seen
        for (batch, found), size in zip(seen, sizes, strict=True):
            work.met[batch.support] = True
            if np.isfinite(found).all():
                work.n_seen += 1
                self._move(work, found, batch, size)
        return len(visits) - (work.n_seen - first)

    def estimates(self, work, known, visits, noise):
        """Return what steps would be made of, G and C (m, 2, d) or G (m, 1, d).

        Times the weights of the supports, zero without a visit.
        """
        found = np.zeros((len(visits), self.n_parts, self.target.n_dim))
        seen = self._visited(work, known, visits, noise)
        for row, (batch, estimate) in zip(found, seen, strict=True):
            row[:, batch.support] = self.n_batches / batch.factor * estimate
        return found

    def _visited(self, work, known, visits, noise):
        """Yield batches, and their estimates where the epoch has come to."""
        for (number, batch), draw in zip(visits, noise, strict=True):
            earlier = self._earlier(work.mean[0], known, number, batch)
            yield batch, self._estimate(work, draw, batch, earlier)

    def _estimate(self, work, noise, batch, earlier):
        mean, scale = work.mean[0, batch.support], work.scale[0, batch.support]
        return self.estimate(mean, scale, noise, batch, earlier)

    def _move(self, work, found, batch, size):
        state = work.mean, work.log_scale, work.scale, work.prior, work.values
        work.count += 1
        if batch.support is not ALL:
            weight = self.n_batches / batch.factor
            how = batch.support, weight, self.optimizer, size
            _kernels_steps.step_on(*how, *found, *state, work.visits, work.seen)
            return
        work.seen += [found, np.square(found)]
        if self.optimizer == _kernels_steps.NATURAL:
            found[0] = self._preconditioned(found[0], work)
        _kernels_steps.step(self.optimizer, size, *found[:, None], *state, work.count)

    def close(self, work):
        """Return the point; what no row depends on has its prior for its posterior."""
        work.mean[0, ~work.met] = work.prior[0, 0, ~work.met]
        work.log_scale[0, ~work.met] = -0.5 * np.log(work.prior[1, 0, ~work.met])
        return super().close(work)

    def _preconditioned(self, gradient, work):
        """Return the gradient whose natural step is that in the model's metric."""
        mean, variance, prior = work.mean[0], work.scale[0] ** 2, work.prior
        pull = prior[1, 0] * (mean - prior[0, 0])
        return self.model.preconditioned(gradient - pull, variance) / variance + pull

    # What controls it

    def known_at(self, anchor, rng):
        """Return what is known at an anchor: of all rows, or batch by batch."""
        q, curvature = anchor.point.parameters, anchor.memory
        mean = q.mean[:, 0]
        if self._of_passes(anchor):
            return self._drawn_point(q, anchor.mean)
        if self.kind == "svrg":
            diagonal = curvature and curvature.diagonal
            if not self.control_scale or curvature is None:
                diagonal = self._diagonal(mean)
            return EarlierPoint(mean.copy(), None, self.target.gradient(mean), diagonal)
        partition = self.batches(rng)
        return self._table(partition, [self._seen(mean, b) for b in partition])

    def renewed(self, known):
        """Let what batches saw in an epoch take the place of what was known."""
        if isinstance(known, DrawnPoint):
            return None  # the next pass is at hand
        return self._table(known.partition, known.fresh)

    def _table(self, partition, visited):
        _, *seen = zip(*visited, strict=True)
        total = (self._total(partition, parts) for parts in seen)
        return Table(
            partition, visited, list(visited), EarlierPoint(None, None, *total)
        )

    def _earlier(self, mean, known, number, batch):
        """Return what is known where a batch is visited, and keep what it sees."""
        if known is None:
            return None
        if number is None:
            return known.among(batch.support)
        at, kept, _ = known.visited[number]
        known.fresh[number] = self._seen(mean, batch)
        return known.earlier.among(batch.support)._replace(at=at, kept=kept)

    def _total(self, partition, parts):
        """Return the sum over all rows of what the batches of a partition found."""
        if parts[0] is None:
            return None
        total = np.zeros(self.target.n_dim)
        for batch, part in zip(partition, parts, strict=True):
            total[batch.support] += part / batch.factor
        return total

    def _seen(self, mean, batch):
        """Return a point, and gradient and diagonal of a batch there."""
        at = mean[batch.support].copy()
        return at, self.target.gradient(at, batch), self._diagonal(at, batch)

    def _diagonal(self, mean, batch=None):
        if not self.control_scale:
            return None
        return -self.target.hessian_diagonal(mean, batch)


class MeanSteps(TargetSteps):
    """A `DrawnModel` of a full or low rank, whose means are moved by minibatch steps.

    The steps are the means', in the metric of a covariance that stands: one draw of a
    minibatch says hardly anything of a covariance, and the curvature all.
    """

    n_parts = 1

    def statistics(self, point, batch, beta):
        """Return the averages over all draws."""
        return self.model.statistics(point, batch, beta)

    def predicted_gain(self, point, mean):
        """Return what a natural-gradient step is about to gain, in nats."""
        q = point.parameters
        slope = self.model.prior.precision_times(self.model.prior.mean - q.mean[:, 0])
        slope += mean.gradient[:, 0]
        return float(0.5 * slope @ self.model.posterior(q).covariance_times(slope))

    def auto_step(self, point):
        """Return a size of steps that seldom overshoots, as for a diagonal."""
        prior, posterior = self.model.prior, self.model.posterior(point.parameters)
        effective = max(0.0, posterior.n_dim - prior.precision_trace(posterior))
        return 0.5 / (1.0 + effective / np.sqrt(self.batch_size))

    def open(self, anchor):
        """Return what an epoch moves; see `Work`."""
        q, d = anchor.point.parameters, self.target.n_dim
        work = SimpleNamespace(point=anchor.point, mean=q.mean.T.copy(), n_seen=0)
        work.seen, work.met = np.zeros((2, d)), np.zeros(d, bool)
        work.posterior, work.away = self.model.posterior(q), self.model.away(q)
        work.of_passes = self._of_passes(anchor)
        return work

    def noise(self, work, visits, rng):
        """Return a draw for each visit, less the mean of the posterior."""
        if work.of_passes:
            return _some_of(work.away, len(visits), rng)
        q = work.posterior
        return [q.sample(1, rng)[0] - q.mean for _ in visits]

    def _drawn_point(self, q, mean):
        return DrawnPoint(q.mean[:, 0].copy(), None, mean.gradient[:, 0], None)

    def _estimate(self, work, noise, batch, earlier):
        at = work.mean[0]
        if isinstance(earlier, DrawnPoint):
            now, then = (
                self.target.gradient(z + noise, batch) for z in (at, earlier.at)
            )
            return controlled(now, then, earlier.gradient)[None]
        return self.by_mean(at, noise, batch, earlier)[0][None]

    def _move(self, work, found, batch, size):
        (found,) = found
        work.seen += [found, np.square(found)]
        at, prior = work.mean[0], self.model.prior
        slope = found - prior.precision_times(at - prior.mean)
        at += size * work.posterior.covariance_times(slope)

    def close(self, work):
        """Return the point that an epoch has led to."""
        return Point(work.point.parameters._replace(mean=work.mean.T.copy()))


def _some_of(draws, n, rng):
    """Return n of the draws (m, d) and their opposites, at random."""
    both = np.concatenate([draws, -draws])
    return both[(rng.random(n) * len(both)).astype(np.intp)]
