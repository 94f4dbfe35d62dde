"""Coefficients given the scales: quadratics of rows, modes, and their covariances.

Letters are those of ``_model.py``.
"""

from typing import NamedTuple

import numpy as np


class Local(NamedTuple):
    """What rows say of coefficients at s points at once.

    Attributes
    ----------
    value : ndarray of shape (s,)
        log p(y | Z, beta), in nats.
    gradient : ndarray of shape (s, n_groups, q)
    hessian : ndarray of shape (s, n_groups, q, q)
        H
    of_shared : ndarray of shape (s, p - q)
        The gradient by beta.
    cross : ndarray of shape (s, n_groups, q, p - q)
        X
    within_shared : ndarray of shape (s, p - q, p - q)
    """

    value: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray
    of_shared: np.ndarray
    cross: np.ndarray
    within_shared: np.ndarray


class Skewness(NamedTuple):
    """Gradients of tr(Sigma H), by groups and by what they share, at s points.

    Attributes
    ----------
    groups : ndarray of shape (s, n_groups, q)
    shared : ndarray of shape (s, p - q)
    """

    groups: np.ndarray
    shared: np.ndarray


class Quadratic(NamedTuple):
    """Rows whose log-likelihood is, or is taken for, a quadratic.

    Attributes
    ----------
    at : ndarray of shape (n_groups, q)
    shared_at : ndarray of shape (p - q,)
        About where it is written.
    level : float
        Its value there, in nats.
    gradient, hessian, of_shared, cross, within_shared : ndarray
        As of `Local`, there, without the axis of points.
    """

    at: np.ndarray
    shared_at: np.ndarray
    level: float
    gradient: np.ndarray
    hessian: np.ndarray
    of_shared: np.ndarray
    cross: np.ndarray
    within_shared: np.ndarray

    #: Passes over rows of an evaluation.
    n_rows = 0

    def local(self, groups, shared):
        """Return the `Local` of groups (s, n_groups, q) and shared ones (s, p - q)."""
        away, apart = groups - self.at, shared - self.shared_at
        bent = (self.hessian @ away[..., None])[..., 0]
        bent += np.einsum("mjl,sl->smj", self.cross, apart)
        of_shared = np.einsum("mjl,smj->sl", self.cross, away)
        of_shared += apart @ self.within_shared
        value = self.level + (away * (self.gradient - 0.5 * bent)).sum(axis=(1, 2))
        value += (apart * (self.of_shared - 0.5 * of_shared)).sum(axis=1)
        many = (len(groups),)
        return Local(
            value,
            self.gradient - bent,
            np.broadcast_to(self.hessian, many + self.hessian.shape),
            self.of_shared - of_shared,
            np.broadcast_to(self.cross, many + self.cross.shape),
            np.broadcast_to(self.within_shared, many + self.within_shared.shape),
        )

    def skewness(self, groups, shared, covariance, cross, within_shared):
        """Return the gradient of tr(Sigma H) by groups and shared ones: none."""
        return np.zeros(groups.shape), np.zeros(shared.shape)

    def scaled(self, factor, more=0.0):
        """Return a multiple of it, and so much more."""
        level = factor * self.level + more
        return Quadratic(*self[:2], level, *(factor * part for part in self[3:]))

    def spread(self, at, n_groups):
        """Return it with groups that it does not know between those that it does."""

        def wide(part):
            out = np.zeros((n_groups, *part.shape[1:]))
            out[at] = part
            return out

        names = "at", "gradient", "hessian", "cross"
        return self._replace(**{name: wide(getattr(self, name)) for name in names})

    def seen_from(self, change, intercept):
        """Return it of rows whose origin has changed.

        Parameters
        ----------
        change : ndarray of shape (q,)
            Of the columns, zero for the intercept's.
        intercept : int
            Its place.
        """
        ahead = np.eye(len(change))
        ahead[intercept] += change
        back = np.eye(len(change))
        back[intercept] -= change
        return self._replace(
            at=self.at @ ahead.T,
            gradient=self.gradient @ back,
            hessian=back.T @ self.hessian @ back,
            cross=back.T @ self.cross,
        )

    def plus(self, other):
        """Return the sum with another of the same groups, about where this is."""
        there = other.local(self.at[None], self.shared_at[None])
        first, *rest = (part[0] for part in there)
        parts = (own + one for own, one in zip(self[3:], rest, strict=True))
        return Quadratic(*self[:2], self.level + float(first), *parts)

    def without(self, some, empty):
        """Return it without some rows, of groups that share nothing.

        Where these have more curvature than it, as it errs, none is left; and nothing
        of groups that are `empty` without.
        """
        left = self.plus(some.scaled(-1.0))
        values, axes = np.linalg.eigh(left.hessian)
        values = np.maximum(values, 0.0)[:, None]
        hessian = (axes * values) @ axes.swapaxes(1, 2)
        gradient = np.where(empty[:, None], 0.0, left.gradient)
        hessian[empty] = 0.0
        return left._replace(gradient=gradient, hessian=hessian)


class Modes(NamedTuple):
    """Coefficients of largest density given the scales, at s points at once.

    Attributes
    ----------
    scales : ndarray of shape (s, q) or (s, q + 1)
    mean : ndarray of shape (s, p)
    groups : ndarray of shape (s, n_groups, q)
    inverses : ndarray of shape (s, n_groups, q, q)
        Of P.
    of_mean : ndarray of shape (s, p, p)
        The inverse of S.
    objective : ndarray of shape (s,)
        L
    local : Local
        What rows say there.
    """

    scales: np.ndarray
    mean: np.ndarray
    groups: np.ndarray
    inverses: np.ndarray
    of_mean: np.ndarray
    objective: np.ndarray
    local: Local

    @property
    def q(self):
        """Number of coefficients of a group."""
        return self.groups.shape[2]

    @property
    def precision(self):
        """T, (s, 1, q)."""
        return np.exp(-2.0 * self.scales[:, : self.q])[:, None]

    @property
    def away(self):
        """E, (s, n_groups, q)."""
        return self.groups - self.mean[:, None, : self.q]

    @property
    def follow(self):
        """K, by how much groups follow what they share, (s, n_groups, q, p)."""
        K = self.inverses * self.precision[:, None]
        if not self.local.cross.shape[3]:
            return K
        return np.concatenate([K, -self.inverses @ self.local.cross], axis=3)

    def solve(self, of_groups, of_mean):
        """Return the inverse of the arrow times (s, n_groups, q, r) and (s, p, r)."""
        T, cross, q = self.precision.swapaxes(1, 2), self.local.cross, self.q
        w = self.inverses @ of_groups
        right = np.array(np.broadcast_to(of_mean, (len(w), *of_mean.shape[-2:])))
        right[:, :q] += T * w.sum(axis=1)
        if cross.shape[3]:
            right[:, q:] -= np.einsum("smjl,smjr->slr", cross, w)
        u = self.of_mean @ right
        back = (T * u[:, :q])[:, None]
        if cross.shape[3]:
            back = back - cross @ u[:, None, q:]
        return w + self.inverses @ back, u

    def response(self, changes):
        """Return the first-order changes of modes with those of the scales (h, r)."""
        q = self.q
        turn = 2.0 * (self.precision * self.away)[..., None] * changes[:q]
        of_mean = np.zeros((*self.mean.shape, changes.shape[1]))
        of_mean[:, :q] = -turn.sum(axis=1)
        if len(changes) > q:  # rows count less the more noise there is
            turn = turn - 2.0 * self.local.gradient[..., None] * changes[q]
            of_mean[:, q:] = -2.0 * self.local.of_shared[..., None] * changes[q]
        return self.solve(turn, of_mean)

    def covariances(self, against=0.0):
        """Return cov(z - against mu), (s, n_groups, q, q)."""
        K = self.follow
        if against:
            K = K - against * np.eye(self.q, K.shape[3])
        return self.inverses + K @ self.of_mean[:, None] @ K.swapaxes(2, 3)

    def joint(self):
        """Return cov(z), cov(z, beta) and cov(beta)."""
        q, K = self.q, self.follow
        both = K @ self.of_mean[:, None]
        own = self.inverses + both @ K.swapaxes(2, 3)
        return own, both[..., q:], self.of_mean[:, q:, q:]


class Parts(NamedTuple):
    """Means and covariances of a posterior, of h scales.

    Attributes
    ----------
    groups : ndarray of shape (n_groups, q)
    of_groups : ndarray of shape (n_groups, q, q)
    mean : ndarray of shape (p,)
    scales : ndarray of shape (h,)
    covariance : ndarray of shape (p + h, p + h)
        Of b and the scales, one after the other.
    coupling : ndarray of shape (n_groups, q, p + h)
        Covariances of the coefficients of groups with both.
    """

    groups: np.ndarray
    of_groups: np.ndarray
    mean: np.ndarray
    scales: np.ndarray
    covariance: np.ndarray
    coupling: np.ndarray

    def sample(self, n_samples, rng):
        """Draw b (n, p), scales (n, h), and coefficients of groups (n, n_groups, q)."""
        p = self.mean.size
        away = rng.standard_normal((n_samples, len(self.covariance)))
        away = away @ root_of(self.covariance).T
        follow = np.linalg.solve(self.covariance, self.coupling.swapaxes(1, 2))
        left = self.of_groups - self.coupling @ follow
        noise = rng.standard_normal((n_samples, *self.groups.shape))
        groups = np.einsum("mij,smj->smi", root_of(left), noise)
        groups += np.einsum("mji,sj->smi", follow, away)
        mean, scales = self.mean + away[:, :p], self.scales + away[:, p:]
        return mean, scales, self.groups + groups


def root_of(covariance):
    """Return R with R R^T = covariance; rounding may have left it singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
