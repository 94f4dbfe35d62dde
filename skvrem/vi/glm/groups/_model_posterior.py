"""The posterior of coefficients that differ by group, as it is reported."""

from typing import NamedTuple

import numpy as np

from skvrem.utils._algebra import read_only
from skvrem.vi.gaussian.nested._model_modes import Parts
from skvrem.vi.glm.groups import _kernels as kernels


class VaryingPosterior(NamedTuple):
    """The posterior of coefficients that groups share, and of those that differ.

    Attributes
    ----------
    parts : Parts
        Means and covariances of all of them and of the logarithms of the scales.
    order : ndarray of int64 of shape (p,)
        Columns of the coefficients, those that differ by group first.
    origin : ndarray of shape (p,), default=None
        As of `Design`, which `parts` are of; None is zero. All that is said of
        intercepts is of rows whose columns are zero, but for the population's scale,
        which is of rows at the origin.
    """

    parts: Parts
    order: np.ndarray
    origin: np.ndarray | None = None

    @property
    def q(self):
        """How many coefficients differ by group."""
        return self.parts.groups.shape[1]

    @property
    def _place(self):
        """The intercept's place, and what it is where columns are zero, of all (p,)."""
        if self.origin is None or not self.origin.any():
            return None
        at = int(np.argmax(self.order))
        axis = -self.origin
        axis[at] = 1.0
        return at, axis

    def _at_zero(self, values):
        """Return coefficients (..., p) with the intercept where columns are zero."""
        if self._place is None:
            return values
        at, axis = self._place
        values = np.array(values)
        values[..., at] = values @ axis
        return values

    def _variances(self, covariance):
        """Return variances (..., r) of the same, of covariances (..., r, r)."""
        found = np.array(np.diagonal(covariance, axis1=-2, axis2=-1))
        if self._place is not None:
            at, axis = self._place
            axis = axis[: found.shape[-1]]
            found[..., at] = np.maximum(covariance @ axis @ axis, 0.0)
        return found

    def _unordered(self, values):
        """Return values (..., p), or (..., q) and zeros, by column."""
        out = np.zeros((*values.shape[:-1], self.order.size))
        out[..., self.order[: values.shape[-1]]] = values
        return out

    @property
    def mean(self):
        """Of the coefficients that groups share and of the population's means, (p,)."""
        return self._unordered(self._at_zero(self.parts.mean))

    @property
    def scale(self):
        """Standard deviations of the same, (p,)."""
        p = self.order.size
        variance = self._variances(self.parts.covariance[:p, :p])
        return self._unordered(np.sqrt(variance))

    @property
    def population(self):
        """Medians of the population's scales, and deviations of their logarithms."""
        p, q = self.order.size, self.q
        spread = np.sqrt(np.diagonal(self.parts.covariance)[p : p + q])
        scales = np.exp(self.parts.scales[:q])
        return self._unordered(scales), self._unordered(spread)

    @property
    def noise(self):
        """Median of a noise that is learnt, and the deviation of its logarithm."""
        spread = np.sqrt(self.parts.covariance[-1, -1])
        return float(np.exp(self.parts.scales[-1])), float(spread)

    @property
    def group_mean(self):
        """Coefficients of groups, (n_groups, p)."""
        q, groups = self.q, self.parts.groups
        shared = np.broadcast_to(
            self.parts.mean[q:], (len(groups), len(self.order) - q)
        )
        return self._unordered(self._at_zero(np.hstack([groups, shared])))

    @property
    def group_scale(self):
        """Their standard deviations, (n_groups, p)."""
        q, p = self.q, self.order.size
        own = self._variances(self.parts.of_groups)
        shared = np.diagonal(self.parts.covariance)[q:p]
        shared = np.broadcast_to(shared, (len(own), p - q))
        return self._unordered(np.sqrt(np.hstack([own, shared])))

    def predictors(self, rows, place):
        """Return means and variances (n,) of the predictors of rows (n, d).

        place (n,) are the numbers of their groups, -1 for one that has not been seen.
        """
        parts, q, p = self.parts, self.q, self.order.size
        # About the mean, of the mean scale: the mean of its square is of few draws.
        spread = np.diagonal(parts.covariance)[p : p + q]
        inner = np.exp(2.0 * parts.scales[:q] + spread)
        place = np.asarray(place, np.int64)
        a, v = np.empty(len(place)), np.empty(len(place))
        shared = np.ascontiguousarray(parts.covariance[:p, :p])
        cross = np.ascontiguousarray(parts.coupling[:, :, q:p])
        of_groups = parts.groups, parts.of_groups, cross, shared
        origin = np.zeros(p) if self.origin is None else self.origin
        about = read_only(rows), self.order, read_only(origin), place
        about += *of_groups, parts.mean, inner
        kernels.fill_moments(*about, a, v)
        return a, np.maximum(v, 0.0)

    def among(self, numbers):
        """Return the posterior of some groups."""
        names = "groups", "of_groups", "coupling"
        some = {name: getattr(self.parts, name)[numbers] for name in names}
        return self._replace(parts=self.parts._replace(**some))

    def sample(self, n_samples, rng):
        """Draw coefficients and scales.

        Returns
        -------
        mean : ndarray of shape (n_samples, p)
        scales : ndarray of shape (n_samples, p)
            Zero where groups do not differ.
        noise : ndarray of shape (n_samples, h - q)
            Where it is learnt, of one number.
        groups : ndarray of shape (n_samples, n_groups, p)
        new : ndarray of shape (n_samples, p)
            Of a group that has not been seen.
        """
        q = self.q
        mean, scales, groups = self.parts.sample(n_samples, rng)
        many = (*groups.shape[:2], self.order.size - q)
        shared = np.broadcast_to(mean[:, None, q:], many)
        whole = np.concatenate([groups, shared], axis=2)
        spread, noise = np.exp(scales[:, :q]), np.exp(scales[:, q:])
        new = mean.copy()
        new[:, :q] += spread * rng.standard_normal(spread.shape)
        mean, whole, new = (
            self._unordered(self._at_zero(part)) for part in (mean, whole, new)
        )
        return mean, self._unordered(spread), noise, whole, new
