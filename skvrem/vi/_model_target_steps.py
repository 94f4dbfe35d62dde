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

Where the model says which parameters a batch depends on, a step takes place among these
alone: draws, g, H, G, prior and entropy. Of an epoch's n batches :math:`c_j` have the
parameter j; what they say of it is multiplied by :math:`c_j` rather than by n, which is
the same mean over those that have it, and their step is :math:`n / c_j` times as long.
So weight times estimate, zero without a visit, has the gradient of the bound for its
mean over an epoch, dense terms included.
"""

from typing import NamedTuple

import numpy as np

from skvrem.vi import _kernels_steps
from skvrem.vi._model import Point
from skvrem.vi._model_draws import Dense, Products, convex
from skvrem.vi._model_steps import Steps
from skvrem.vi._model_target import ALL, Batch

__all__ = ["Anchor", "MeanSteps", "TargetSteps"]


class Anchor(NamedTuple):
    """What is known of an earlier point.

    Attributes
    ----------
    at : ndarray of shape (d,)
    own : ndarray of shape (d,), or None
        The batch's gradient there, if it has been kept.
    gradient : ndarray of shape (d,)
        That of all rows.
    diagonal : ndarray of shape (d,), or None
        Of minus the Hessian of all rows, if the scales are controlled.
    """

    at: np.ndarray
    own: np.ndarray | None
    gradient: np.ndarray
    diagonal: np.ndarray | None

    def among(self, support):
        """Return what is known by some of the parameters."""
        return Anchor(*(None if part is None else part[support] for part in self))


class TargetSteps(Steps):
    """A `DrawnModel` with epochs of steps (Eqs. 4, 5 and 9; Algorithms 1 and 2).

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

    def __init__(self, model, kind, control, control_scale, optimizer, batch_size):
        super().__init__(model, kind, optimizer, batch_size)
        self.target = model.target
        self.control = control
        self.control_scale = (
            control_scale and control == "taylor" and self.target.knows_diagonal
        )
        self.n_batches = -(-self.target.rows.size // int(batch_size))
        self.partition = self.visited = self.curvature = self.at = None
        # Steps of each parameter, where these are not those of all.
        self.visits = np.zeros(self.target.n_dim if self.target.sparse else 0, np.int64)

    def forget(self):
        """What is remembered is of steps that have been taken back."""
        super().forget()
        self.visits[:] = 0

    def statistics(self, point, batch, beta):
        """Return the averages over all draws, controlled by the curvature there."""
        self.at = point.parameters.mean[:, 0]
        if self.target.knows_hessian:
            self.curvature = Dense(-self.target.hessian(self.at))
            self.model.scale_by(convex(self.curvature.matrix, self.model.prior))
        elif self.target.knows_diagonal:
            diagonal = -self.target.hessian_diagonal(self.at)
            self.curvature = Products(self.target, self.at[None], diagonal)
        if self.curvature is not None:
            self.model.control(self.curvature, point)
        return self.model.statistics(point, batch, beta)

    def batches(self, rng):
        """Return all rows as batches in random order."""
        rows = rng.permutation(self.target.rows)
        parts = np.array_split(rows, self.n_batches)
        if not self.target.sparse:
            return [Batch(part, float(self.n_batches)) for part in parts]
        supports = [self.target.support(part) for part in parts]
        counts = np.bincount(np.concatenate(supports), minlength=self.target.n_dim)
        return [
            Batch(part, counts[own].astype(np.float64), own)
            for part, own in zip(parts, supports, strict=True)
        ]

    def estimate(self, mean, scale, noise, batch, anchor=None):
        """Return a batch's estimates of G and C, (d,) each, at one draw.

        Parameters
        ----------
        mean, scale, noise : ndarray of shape (d,)
            Of the parameters of the batch's support, as the estimates are.
        batch : Batch
        anchor : Anchor, default=None
            Of svrg and saga.
        """
        first, odd = self.ends(mean, scale * noise, batch, anchor)
        second = -odd * noise / scale
        if not self.control_scale:
            return first, second
        if anchor is None:
            return first, second - self.target.hessian_diagonal(mean, batch)
        return first, second + anchor.diagonal

    def ends(self, mean, v, batch, anchor):
        """Return an estimate of G, and what of a gradient at the draw is the scales'.

        Parameters
        ----------
        mean, v : ndarray of shape (d,)
            The draw is the mean plus v.
        batch : Batch
        anchor : Anchor or None
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
            bent = target.hessian_times(base, v, batch)
        else:
            ahead, behind = (target.gradient(base + u, batch) for u in (v, -v))
            bent = 0.5 * (ahead - behind)
        level = anchor.own if anchor is not None else None
        if level is None and (anchor is not None or self.control_scale):
            level = target.gradient(base, batch)
        first = slope - bent
        if anchor is not None:
            first += anchor.gradient - level
        return first, slope - level - bent if self.control_scale else slope

    def update(self, point, mean, rng, size):
        """Return the point after an epoch of steps; without noise, the point."""
        if rng is None:
            return point
        q = point.parameters
        at, log_scale = q.mean.T.copy(), q.log_scale.T.copy()
        scale, prior = np.exp(log_scale), self._prior()
        state = at, log_scale, scale, prior, self.moments
        seen, began = np.zeros((2, 2, at.size)), self.count
        known = np.zeros(at.size, bool)
        self.target.rest(at[0])
        for batch, anchor in self._visits(at[0], rng):
            known[batch.support] = True
            centre, spread = at[0, batch.support], scale[0, batch.support]
            noise = rng.standard_normal(centre.size)
            found = np.stack(self.estimate(centre, spread, noise, batch, anchor))
            if not np.isfinite(found).all():
                continue
            self.count += 1
            if batch.support is not ALL:
                weight = self.n_batches / batch.factor
                how = batch.support, weight, self.optimizer, size
                _kernels_steps.step_on(*how, *found, *state, self.visits, seen)
                continue
            seen += [found, np.square(found)]
            if self.optimizer == _kernels_steps.NATURAL:
                found[0] = self._turned(found[0], at[0], scale[0] ** 2, prior)
            _kernels_steps.step(
                self.optimizer, size, *found[:, None], *state, self.count
            )
        # What no row depends on has its prior for its posterior.
        at[0, ~known] = prior[0, 0, ~known]
        log_scale[0, ~known] = -0.5 * np.log(prior[1, 0, ~known])
        self._see(seen, self.count - began)
        return Point(q._replace(mean=at.T.copy(), log_scale=log_scale.T.copy()))

    def _turned(self, gradient, mean, variance, prior):
        """Return the gradient whose natural step is that in the model's metric."""
        pull = prior[1, 0] * (mean - prior[0, 0])
        return self.model.turned(gradient - pull, variance) / variance + pull

    # Anchors

    def _visits(self, mean, rng):
        """Yield batches with what is known of them; mean moves meanwhile."""
        if not self.reduced:
            for batch in self.batches(rng):
                yield batch, None
        elif self.kind == "svrg":
            at, diagonal = mean.copy(), self._known_diagonal(mean)
            anchor = Anchor(at, None, self.target.gradient(at), diagonal)
            for batch in self.batches(rng):
                yield batch, anchor.among(batch.support)
        else:
            yield from self._table_visits(mean, rng)

    def _table_visits(self, mean, rng):
        """Visit a fixed partition; what is remembered counts from the next epoch on."""
        if not self.filled:
            self.partition = self.batches(rng)
            self.visited = [self._remember(mean, b) for b in self.partition]
            self.filled = True
        _, *seen = zip(*self.visited, strict=True)
        known = Anchor(None, None, *map(self._total, seen))
        fresh = list(self.visited)
        for number in rng.permutation(self.n_batches):
            batch, (at, own, _) = self.partition[number], self.visited[number]
            fresh[number] = self._remember(mean, batch)
            yield batch, known.among(batch.support)._replace(at=at, own=own)
        self.visited = fresh

    def _total(self, parts):
        """Return the sum over all rows of what the batches of the partition found."""
        if parts[0] is None:
            return None
        total = np.zeros(self.target.n_dim)
        for batch, part in zip(self.partition, parts, strict=True):
            total[batch.support] += part / batch.factor
        return total

    def _remember(self, mean, batch):
        """Return a point, and gradient and diagonal of a batch there."""
        at = mean[batch.support].copy()
        return at, self.target.gradient(at, batch), self._diagonal(at, batch)

    def _diagonal(self, mean, batch=None):
        if not self.control_scale:
            return None
        return -self.target.hessian_diagonal(mean, batch)

    def _known_diagonal(self, mean):
        """Return that of all rows, which the pass at the same point has."""
        if self.control_scale and self.at is not None and np.array_equal(self.at, mean):
            return self.curvature.diagonal
        return self._diagonal(mean)


class MeanSteps(TargetSteps):
    """A `DrawnModel` of a full or low rank whose update is an epoch of steps.

    The steps are the means', in the metric of a covariance that stands: one draw of a
    minibatch says hardly anything of a covariance, and the curvature all.
    """

    def __init__(self, model, kind, control, control_scale, optimizer, batch_size):
        super().__init__(model, kind, control, False, optimizer, batch_size)

    def statistics(self, point, batch, beta):
        """Return the averages over all draws."""
        return self.model.statistics(point, batch, beta)

    def _promise(self, point, mean):
        q = point.parameters
        slope = self.model.prior.precision_times(self.model.prior.mean - q.mean[:, 0])
        slope += mean.gradient[:, 0]
        return float(0.5 * slope @ self.model.posterior(q).covariance_times(slope))

    def auto_step(self, point):
        """Return a size of steps that seldom overshoots, as for a diagonal."""
        prior, posterior = self.model.prior, self.model.posterior(point.parameters)
        effective = max(0.0, posterior.n_dim - prior.precision_trace(posterior))
        return 0.5 / (1.0 + effective / np.sqrt(self.batch_size))

    def update(self, point, mean, rng, size):
        """Return the point after an epoch of steps; without noise, the point."""
        if rng is None:
            return point
        q, prior = point.parameters, self.model.prior
        posterior = self.model.posterior(q)
        at, began = q.mean[:, 0].copy(), self.count
        seen = np.zeros((2, at.size))
        for batch, anchor in self._visits(at, rng):
            v = posterior.sample(1, rng)[0] - posterior.mean
            first, _ = self.ends(at, v, batch, anchor)
            if not np.isfinite(first).all():
                continue
            self.count += 1
            seen += [first, np.square(first)]
            slope = first - prior.precision_times(at - prior.mean)
            at += size * posterior.covariance_times(slope)
        self._see(seen, self.count - began)
        return Point(q._replace(mean=at[:, None]))
