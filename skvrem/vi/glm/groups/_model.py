r"""Generalised linear models some of whose coefficients differ by group.

The posterior is that of ``skvrem.vi.gaussian.nested``; rows are summed by
``_model_rows.py``.

Laplace's method takes the posterior of a group's coefficient for a Gaussian. Of few
rows it is none: the scales come out too small where rows have two classes, and with
them what groups share. Where one coefficient differs by group its integral is one of
one dimension, F in ``_kernels.py``, and with :math:`b = (\mu, \beta)`

.. math:: L(t) = \log p(b^*) + \sum_m F_m(b^*, t) - \tfrac12 \log |S| + \log p(t),
          \qquad S = S_0^{-1} - \sum_m \partial_b^2 F_m(b^*, t),

at the mode of b. Means and variances of coefficients given b, and how means follow b,
are those of the quadrature: they stand where Laplace's method has modes, inverses of
:math:`P_m` and :math:`K_m`, so that the arrow of ``nested._model`` is that of these.
With :math:`\Sigma = S^{-1}` the mean of b lies at :math:`\delta = \tfrac12 \Sigma
\sum_m \partial_b \mathrm{tr}(\Sigma \partial_b^2 F_m)` from its mode, and

.. math:: \frac{dL}{dt} = \sum_m \partial_t F_m + \delta^T \sum_m \partial_b \partial_t
          F_m + \tfrac12 \sum_m \partial_t \mathrm{tr}(\Sigma \partial_b^2 F_m)
          - \frac{t - \lambda}{\kappa^2} .
"""

from copy import copy

import numpy as np

from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
)
from skvrem.vi.gaussian.nested._model import NestedModel
from skvrem.vi.gaussian.nested._model_modes import Local
from skvrem.vi.glm.groups import _kernels as kernels
from skvrem.vi.glm.groups._model_posterior import VaryingPosterior
from skvrem.vi.glm.groups._model_rows import GroupRows

# Rows of half of the groups up to which their posteriors are no Gaussians: scales by
# Laplace's method are too small at ten rows still, and hardly at fifty, and quadrature
# takes some times as long.
FEW_ROWS = 30


class GroupedModel(NestedModel):
    """Rows of groups with a predictor each.

    Parameters
    ----------
    family : Logistic, PoissonCounts, OverdispersedCounts or GaussianNoise
    rows : GroupRows or GroupBlocks
    prior : NestedPrior
        Of rows whose origin is zero.
    past : Quadratic, default=None
        What other rows have said.
    search : object, default=None
        Of a better family: ``slope(of_rows)`` returns what ``step(slope, family)``
        takes, which returns one and the search after it. See `ConcentrationSearch`.
    n_rows : float, default=0.0
        Of Gaussian noise: rows of now and of the past, which is of noise one then.
    least_noise : float, default=None
        Of Gaussian noise that is learnt.
    """

    #: How coefficients are integrated out.
    expectation = "laplace"

    def __init__(
        self,
        family,
        rows,
        prior,
        past=None,
        search=None,
        n_rows=0.0,
        least_noise=None,
    ):
        self.family, self.rows, self.of_zero = family, rows, prior
        prior = prior.seen_from(rows.origin, rows.intercept)
        self.search, noise, self.sums = search, {}, None
        of_rows = rows.likelihood(family)
        if isinstance(family, GaussianNoise):
            of_rows = of_rows.quadratic(prior.mean, rows.n_groups)
            self.sums = of_rows if past is None else of_rows.plus(past)
            of_rows, past = self.sums, None
            if least_noise is None:
                constant = -0.5 * n_rows * np.log(2.0 * np.pi * family.variance)
                of_rows = of_rows.scaled(1.0 / family.variance, constant)
            else:
                noise = {"n_noisy": n_rows, "least_noise": least_noise}
        super().__init__(of_rows, prior, rows.n_groups, past, **noise)

    def of_prior(self, prior):
        """Return the model with another prior."""
        model, rows = copy(self), self.rows
        model.of_zero, model._known = prior, (None, None)
        model.prior = prior.seen_from(rows.origin, rows.intercept)
        return model

    def seen_from(self, origin):
        """Return the model of the same rows with another origin."""
        model, at = copy(self), self.rows.intercept
        model.rows = self.rows.seen_from(origin)
        change = (origin - self.rows.origin)[: self.q], at
        if self.sums is None:
            model.likelihood = model.rows.likelihood(self.family)
        else:
            model.likelihood = self.likelihood.seen_from(*change)
            model.sums = self.sums.seen_from(*change)
        if self.past is not None:
            model.past = self.past.seen_from(*change)
        return model.of_prior(self.of_zero)

    def at(self, point):
        """Return itself and the point, as `OriginModel` returns what it is there."""
        return self, point

    @property
    def left(self):
        """Nats that were left to gain before this family, None if it is not learned."""
        return None if self.search is None else self.search.left

    def refined(self, point):
        """Return the model with a better family, None where it is known."""
        if self.search is None:
            return None
        slope = self.loss_slope(self.posterior(point, False))
        family, search = self.search.step(slope, self.family)
        return type(self)(family, self.rows, self.of_zero, self.past, search)

    def loss_slope(self, parts):
        """Return the slope of the loss of rows at `Parts`, by what is searched."""
        posterior = VaryingPosterior(parts, self.rows.order, self.rows.origin)
        return self.search.slope(self.rows.slopes(posterior))

    def seen(self, point):
        """Return what all rows say of groups, as the past of those to come.

        That of Gaussian noise is exact, and of noise one.
        """
        return super().seen(point) if self.sums is None else self.sums


class IntegratedModel(GroupedModel):
    r"""Rows of groups with a predictor each, and one coefficient by group.

    Sums over nodes are of columns that are seen from their means c, where intercepts
    are what differs: :math:`\mu + c^T \beta` is known far better than both where c is
    large, and what sums err by counts as often as b varies.
    """

    expectation = "quadrature"
    #: Sums over nodes err by so much where scales are a hundred times a row's.
    uncertain = 1e-7
    #: Of one number, by points that are spread evenly.
    enough_draws = 16

    def __init__(self, *given, **how):
        super().__init__(*given, **how)
        design = self.rows.design
        self._centre = np.zeros(len(design.order))
        if design.order[0] == design.rows.shape[1]:
            columns = design.order[1:]
            self._centre[1:] = design.rows.mean(axis=0, dtype=np.float64)[columns]
        self._centred = self.rows.seen_from(self._centre).likelihood(self.family)

    def _sums(self, kernel, outputs, sums, scales, mean, groups, *given):
        mean, level = mean.copy(), mean @ self._centre
        mean[:, 0] += level
        about = scales[:, 0].copy(), mean, groups[..., 0] + level[:, None]
        return self._centred.sums(kernel, outputs, sums, *about, *given)

    def _about(self, scales, mean, groups):
        """Return means of coefficients, the `Local` of their moments, and log p(b, y).

        Rows of a normal density with that slope and curvature at the means would lead
        to these means and variances.
        """
        (s, M, _), f = groups.shape, mean.shape[1] - 1
        value, means, variance = (np.empty((s, M)) for _ in range(3))
        outputs, sums = (
            [value, means, variance, np.empty((s, M, f))],
            [(s, f), (s, f, f)],
        )
        about = scales, mean, groups
        of_shared, within = self._sums(kernels.fill_integrals, outputs, sums, *about)
        c, T = self._centre[1:], np.exp(-2.0 * scales)
        means -= (mean @ self._centre)[:, None]
        slope, curvature = T * (means - mean[:, :1]), 1.0 / variance - T
        cross = -outputs[3] / variance[..., None]
        within -= np.einsum("sml,smr->slr", cross, outputs[3])
        # Where columns are zero.
        of_shared += c * slope.sum(axis=1)[:, None]
        beside = cross.sum(axis=1)[:, None] * c[:, None]
        within += beside + beside.swapaxes(1, 2)
        within += np.outer(c, c) * curvature.sum(axis=1)[:, None, None]
        cross += c * curvature[..., None]
        value = value.sum(axis=1) + self.likelihood.constant
        local = Local(
            value,
            slope[..., None],
            curvature[..., None, None],
            of_shared,
            cross[:, :, None],
            within,
        )
        prior = self.prior
        square = ((prior.mean - mean) * prior.pull(mean)).sum(axis=1)
        return means[..., None], local, value - 0.5 * (square + prior.log_det)

    def _marginal(self, modes, density):
        """Return L where log p(b, y) is `density`."""
        of_groups = np.linalg.slogdet(modes.inverses)[1].sum(axis=1)
        return super()._marginal(modes, density) - 0.5 * of_groups

    def _bends(self, modes):
        """Return what the curvature of F does; see `kernels.fill_bends`."""
        (s, M, _), p = modes.groups.shape, modes.mean.shape[1]
        bent, sums, seen = np.empty((s, M)), [(s, p), (s,), (s, p)], np.eye(p)
        seen[0] += self._centre
        about = modes.scales, modes.mean, modes.groups, seen @ modes.of_mean @ seen.T
        found = self._sums(kernels.fill_bends, [bent], sums, *about)
        by_mean, by_scale, mixed = found
        return bent, by_mean @ seen, by_scale, mixed @ seen

    def _shift(self, modes, bent, by_mean):
        of_mean = 0.5 * (modes.of_mean @ by_mean[..., None])[..., 0]
        of_groups = (modes.follow @ of_mean[:, None, :, None])[..., 0]
        return of_groups + 0.5 * bent[..., None], of_mean

    def shift(self, modes):
        """Return what leads to means, of groups from those given b, of b from modes."""
        return self._shift(modes, *self._bends(modes)[:2])

    def slope(self, modes):
        """Return dL / dt, (s, 1)."""
        bent, by_mean, by_scale, mixed = self._bends(modes)
        _, of_mean = self._shift(modes, bent, by_mean)
        square = np.square(modes.away) + modes.inverses[..., 0]
        slope = (modes.precision * square).sum(axis=(1, 2)) - self.n_groups
        slope += (of_mean * mixed).sum(axis=1) + 0.5 * by_scale
        away = modes.scales - self.prior.log_scale
        return slope[:, None] - away / self.prior.log_scale_std**2

    def seen(self, point):
        """Return what all rows say of groups, as the past of those to come.

        That is a quadratic about modes, for which Laplace's method goes on.
        """
        given = self.family, self.rows, self.of_zero, None, self.search
        return GroupedModel(*given).seen(point)


def integrated(model):
    """Return a `GroupedModel` with quadrature, where it can be had and is needed.

    Rows of a group have to lie together, which in the blocks of dask they do not; and
    what is known of rows of the past is a quadratic, about a mode.
    """
    rows = model.rows
    if model.q > 1 or isinstance(model.family, GaussianNoise):
        return model
    if model.past is not None or not isinstance(rows, GroupRows):
        return model
    if np.median(np.diff(rows.design.bounds)) > FEW_ROWS:
        return model
    return IntegratedModel(model.family, rows, model.of_zero, None, model.search)
