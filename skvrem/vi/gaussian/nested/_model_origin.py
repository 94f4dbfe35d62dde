r"""Groups whose intercepts and slopes are correlated, by an origin that is learnt.

Of rows that are seen from the origin c, :math:`x - c`, the intercept a and the slopes
:math:`b_j` of a group are independent given the population. Where columns are zero the
intercept is :math:`a - \sum_j c_j b_j`, so that the origin is what correlates it with
slopes: of one slope by any covariance there is. Slopes are independent of each other.
The origin is the mean of the columns and u of their standard deviations, of which

.. math:: u_j \sim N(0, \omega^2), \qquad \frac{dL}{dc_j} = -T_a \sum_m E (a_m - \mu_a)
          (b_{mj} - \mu_j),

L and T as in ``_model.py``: coefficients where columns have their means are what they
are, and :math:`a_m - \mu_a` moves by :math:`b_{mj} - \mu_j`. So the model does not
change where a constant is added to a column. The origin is where this ends; what is not
known of it is in the marginal likelihood, by Laplace's method, and not in the posterior
of coefficients, which is that given the origin.
"""

from typing import NamedTuple

import numpy as np

from skvrem.vi.gaussian._model import PlainModel, Point
from skvrem.vi.gaussian.nested._model import LONGEST, Scales, ScaleSums

# The deviation of u in the prior, how far it may go, and the least share of the
# information of coefficients that are known which is believed.
SPREAD, FARTHEST, LEAST = 1.0, 10.0, 0.15


class Placed(NamedTuple):
    """Where a fit stands: as `Scales`, and the origin.

    Attributes
    ----------
    scales, mean, groups : ndarray
        Of rows seen from the origin.
    away : ndarray of shape (q - 1,)
        u
    """

    scales: np.ndarray
    mean: np.ndarray
    groups: np.ndarray
    away: np.ndarray


class OriginModel(PlainModel):
    """A model of groups whose origin is learnt with the scales.

    Parameters
    ----------
    model : NestedModel
        With any origin in `rows`, which has the place of the `intercept` too, and with
        ``seen_from(origin)``, which returns that of the same rows with another.
    centre, deviation : ndarray of shape (p,)
        Of the columns, in the order of the coefficients.
    """

    longest_step = LONGEST

    def __init__(self, model, centre, deviation):
        self.model, self.centre, self.deviation = model, centre, deviation
        self.q, self.n_scales = model.q, model.n_scales
        self.n_groups = model.n_groups
        self.intercept = model.rows.intercept
        self.slopes = np.delete(np.arange(self.q), self.intercept)
        self._known = None, None, None

    def _origin(self, away):
        """Return the origin (p,) of some u."""
        origin = np.zeros(len(self.centre))
        some = self.slopes
        origin[some] = self.centre[some] + away * self.deviation[some]
        return origin

    def placed(self, point):
        """Return the point of one of the model with its origin."""
        some = self.slopes
        away = (self.model.rows.origin - self.centre)[some] / self.deviation[some]
        return Point(Placed(*point.parameters, away))

    def at(self, point):
        """Return the model with the origin of a point, and the rest of the point."""
        *scales, away = point.parameters
        if self._known[0] is not point.parameters:
            origin, model = self._origin(away), self._known[1]
            if model is None or (model.rows.origin != origin).any():
                model = self.model.seen_from(origin)
            self._known = point.parameters, model, Point(Scales(*scales))
        return self._known[1:]

    def _of(self, model):
        return OriginModel(model, self.centre, self.deviation)

    def of_prior(self, prior):
        """Return the model with another prior."""
        return self._of(self.model.of_prior(prior))

    def refined(self, point):
        """Return the model with the best family at a point, None where it is known."""
        model, place = self.at(point)
        finer = model.refined(place)
        return None if finer is None else self._of(finer)

    @property
    def left(self):
        """Nats that were left to gain before this family, None if it is not learned."""
        return getattr(self.model, "left", None)

    # What the solver asks for

    def statistics(self, point, batch, beta):
        """Return L, with the prior of the origin, and its gradient."""
        model, place = self.at(point)
        away = point.parameters.away
        found = model.statistics(place, batch, beta)
        slope = self.deviation[self.slopes] * self._slope(model, place)
        slope -= away / SPREAD**2
        objective = found.objective - 0.5 * away @ away / SPREAD**2
        return ScaleSums(objective, np.append(found.gradient, slope))

    def _slope(self, model, place):
        """Return dL / dc, (q - 1,)."""
        modes, a, some = model.modes(place), self.intercept, self.slopes
        by_groups, by_mean = (part[0] for part in model.shift(modes))
        e, moved = modes.away[0], by_groups - by_mean[: self.q]
        D = modes.covariances(against=1.0)[0]
        both = (e + moved)[:, [a]] * e[:, some] + e[:, [a]] * moved[:, some]
        return -modes.precision[0, 0, a] * (both + D[:, a, some]).sum(axis=0)

    def objective(self, point, mean):
        """Return L with the prior of the origin, in nats."""
        return float(mean.objective)

    def gradient(self, point, mean):
        """Return the gradient of the same."""
        return mean.gradient

    def information(self, point):
        """Return Louis' information of scales and u, and that if groups were known.

        Returns
        -------
        observed, complete : ndarray of shape (h + q - 1, h + q - 1)
            The prior's in them.
        """
        model, place = self.at(point)
        modes, a, some = model.modes(place), self.intercept, self.slopes
        T, e = modes.precision[0, 0], modes.away[0]
        D, P = modes.covariances(against=1.0)[0], modes.inverses[0]
        K = modes.follow[0]
        K = K - np.eye(self.q, K.shape[2])
        ea, ej, own = e[:, a], e[:, some], np.ix_(np.arange(len(e)), some, some)
        square = e.T @ e + D.sum(axis=0)
        # The covariances of scores, by groups and by what these share.
        Da, Pa = D[:, a, some], P[:, a, some]
        inner = np.einsum("m,mjk->jk", D[:, a, a], D[own]) + Da.T @ Da
        inner += np.einsum("m,mjk->jk", np.square(ea), P[own])
        inner += (ej * P[:, a, a][:, None]).T @ ej
        both = (ea[:, None] * Pa).T @ ej
        inner += both + both.T
        between = np.einsum("mi,mij->ij", D[:, a], D[:, :, some])
        between += np.einsum("mi,m,mij->ij", e, ea, P[:, :, some])
        between += (e * P[:, a]).T @ ej
        W = np.einsum("m,mjl->jl", ea, K[:, some]) + ej.T @ K[:, a]
        of_scales = T[:, None] * np.einsum("mi,mil->il", e, K)
        inner += W @ modes.of_mean[0] @ W.T
        between += of_scales / T[:, None] @ modes.of_mean[0] @ W.T
        cross = 2.0 * T[:, None] * T[a] * between
        cross[a] -= 2.0 * T[a] * square[a, some]
        q, h, unit = self.q, self.n_scales, self.deviation[some]
        units, prior = np.outer(unit, unit), np.eye(len(some)) / SPREAD**2
        whole = units * T[a] * square[np.ix_(some, some)]
        observed, complete = np.zeros((2, h + len(some), h + len(some)))
        observed[:h, :h] = model.information(modes)
        observed[:q, h:] = cross * unit
        observed[h:, :q] = observed[:q, h:].T
        observed[h:, h:] = whole - units * T[a] ** 2 * inner + prior
        complete[:h, :h] = np.diag(np.diagonal(observed)[:h])
        known = 2.0 * T * np.diagonal(square) + 1.0 / model.prior.log_scale_std**2
        complete[:q, :q] = np.diag(known)
        complete[h:, h:] = whole + prior
        return observed, complete

    def precondition(self, point, vector):
        """Multiply by the inverse of Louis' information, of scales and of origin."""
        observed, complete = self.information(point)
        root = np.linalg.cholesky(complete)
        share = np.linalg.solve(root, np.linalg.solve(root, observed).T)
        values, axes = np.linalg.eigh(0.5 * (share + share.T))
        axes = np.linalg.solve(root.T, axes)
        return axes @ ((axes.T @ vector) / np.maximum(values, LEAST))

    def move(self, point, step):
        """Return the point moved: what rows at the mean say of groups stays."""
        model, place = self.at(point)
        of_scales, of_origin = np.split(step, [self.n_scales])
        scales = model.move(place, of_scales).parameters
        away = np.clip(point.parameters.away + of_origin, -FARTHEST, FARTHEST)
        change = self._origin(away) - model.rows.origin
        mean, groups = seen_from(change[: self.q], self.intercept, *scales[1:])
        return Point(Placed(scales.scales, mean, groups, away))

    # What the width of a prior is judged by, and what a fit leaves

    def of_population(self, point):
        """See `NestedModel`."""
        model, place = self.at(point)
        return model.of_population(place)

    def volume_gained(self, other, point):
        """See `NestedModel`."""
        model, place = self.at(point)
        return model.volume_gained(other.at(point)[0], place)

    def log_marginal(self, point, parts):
        """Return log p(y) by Laplace's method over the origin as well."""
        model, place = self.at(point)
        away, h = point.parameters.away / SPREAD, self.n_scales
        observed, _ = self.information(point)
        beside = np.linalg.solve(observed[:h, :h], observed[:h, h:])
        left = SPREAD**2 * (observed[h:, h:] - observed[h:, :h] @ beside)
        # At least what the prior says.
        volume = np.log(np.maximum(np.linalg.eigvalsh(left), 1.0)).sum()
        found = model.log_marginal(place, parts)
        return float(found - 0.5 * (away @ away + volume))


def seen_from(change, intercept, mean, groups):
    """Return means and groups of rows whose origin has changed, (q,)."""
    mean, groups, q = mean.copy(), groups.copy(), len(change)
    mean[intercept] += change @ mean[:q]
    groups[:, intercept] += groups @ change
    return mean, groups
