r"""A Gaussian posterior of a generalised linear model: sums over rows, and the update.

With rows x (p,), one behind the features for the intercept, and a column of
coefficients for each of k predictors, :math:`q = N(\mu, \Sigma)` over all
:math:`D = k p` of them and a Gaussian prior, the evidence lower bound is

.. math:: L(q) = \sum_n w_n E_q \log p(y_n | x_n^T \theta) - KL(q, p).

A row's predictors are Gaussian, with the mean :math:`\mu^T x` and the covariance
:math:`x^T \Sigma x`, so that a row needs an expectation over k numbers. The sums over
rows of residuals times x and of curvatures times :math:`x x^T`, G and C, are the
gradient by :math:`\mu` and minus twice that by :math:`\Sigma` (Bonnet, Price). Then

.. math:: P \leftarrow (1 - \rho) P + \rho (P_0 + C), \qquad
          \mu \leftarrow \mu + \rho\, P^{-1} (G - P_0 (\mu - \mu_0))

is a step along the natural gradient, with :math:`P = \Sigma^{-1}`, predicted to gain

.. math:: \tfrac12 g^T \Sigma g + \tfrac14 |\Sigma (P_0 + C) - I|^2

nats, whatever the units of the features. A diagonal plus a low rank is moved along
L-BFGS directions in the same metric.
"""

from copy import copy
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from skvrem.utils._algebra import accumulate, combination
from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.utils._tiles import DenseTile, tiles
from skvrem.vi.gaussian import _kernels
from skvrem.vi.gaussian._model_families import keys_of
from skvrem.vi.gaussian._model_posterior import (
    FullRank,
    LowRank,
    MeanField,
    Trace,
    cholesky,
    inverse_of,
    mixture,
)

# Rows a thread takes of a batch, and numbers in the covariances of their predictors: as
# many as a curvature of a thousand coefficients has.
STEP_ROWS, STEP_NUMBERS = 8192, 1 << 20
# By how much a start may be narrower than rows say, where their bound overflows.
MOST_TIMES = 1e6
# A step may change a log scale by so much.
LARGEST_CHANGE = 3.0
# Share of a precision that another one is at least, and halvings of a change that are
# tried, where curvatures err so much that precisions would not be positive.
LEAST_SHARE, HALVINGS = 1e-6, 30


class Diagonal(NamedTuple):
    """Independent coefficients, plus a low rank.

    Attributes
    ----------
    mean, log_scale : ndarray of shape (p, k)
        Means, and logarithms of standard deviations beside the low rank.
    factor : ndarray of shape (p, k, r)
        r = 0 is the mean field.
    """

    mean: np.ndarray
    log_scale: np.ndarray
    factor: np.ndarray


class Full(NamedTuple):
    """Any covariance.

    Attributes
    ----------
    mean : ndarray of shape (p, k)
    covariance, precision : ndarray of shape (k p, k p)
        In the order of the columns of the mean, one after the other.
    """

    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray


class Statistics(NamedTuple):
    """Sums over rows, of expectations under q.

    Attributes
    ----------
    gradient : ndarray of shape (p, k)
        G
    curvature : ndarray of shape (p, k) or (k p, k p)
        Diagonal of C, or all of it.
    image : ndarray of shape (p, k, r)
        C times the low rank.
    objective : float
        Expected log-likelihood.
    """

    gradient: np.ndarray
    curvature: np.ndarray
    image: np.ndarray
    objective: float


class Point(NamedTuple):
    """Where a fit stands; see ``utils/_averaging.py`` for what is never used here.

    `moments` are what an optimizer of minibatch steps knows of those before.
    """

    parameters: Diagonal | Full
    statistics: None = None
    reference: None = None
    trials: int = 0
    repaired: tuple = ()
    moments: Any = None


def as_vector(columns):
    """Return columns (p, k) one after the other, (k p,)."""
    return columns.T.ravel()


def structure_of(posterior):
    """Return what the model calls a distribution's covariance, and its rank."""
    if isinstance(posterior, FullRank):
        return "full", 0
    return "diagonal", getattr(posterior, "factor", np.zeros((0, 0))).shape[1]


class Way(NamedTuple):
    """Where a step from a point leads.

    Attributes
    ----------
    step : ndarray of shape (D,)
        Of the mean; the gradient for a full covariance, whose own step decides what it
        is multiplied by.
    target : ndarray of shape (D,) or (D, D)
        Precision.
    slope, move : ndarray of shape (D,)
        Gradient by the mean, and how far it would go by itself.
    drift : ndarray of shape (D,) or (D, D)
        Covariance times target, less the identity.
    predicted : float
        Gain.
    """

    step: np.ndarray
    target: np.ndarray
    slope: np.ndarray
    move: np.ndarray
    drift: np.ndarray
    predicted: float


class PlainModel:
    """What solvers ask for and models without latent variables or references lack."""

    recall_passes = 0
    metric_cost = 0.0

    def remember(self, point, batch, beta):
        """Return the sums of a batch, which are all that need be kept."""
        sums = self.statistics(point, batch, beta)
        return sums, sums

    def recall(self, memory, point, batch):
        """Return the sums of a batch where they were remembered."""
        return memory

    def recondition(self, point, data, rng):
        """Return the point: its metric is its own, at no cost."""
        return point, 0.0


class SteppedModel(PlainModel):
    """A model that minibatch steps move; passes without noise are those of ``model``.

    What an epoch moves is a ``Work``, which it opens and closes.
    """

    #: Passes of a sweep, and of what it is controlled by.
    sweep_passes = known_passes = 1.0

    def objective(self, point, mean):
        """Return the objective of the model."""
        return self.model.objective(point, mean)

    def predicted_gain(self, point, mean):
        """Return what a step of the model without noise is about to gain, in nats."""
        return self.model.predicted_gain(point, mean)

    def update(self, point, mean, correction, step):
        """Return the point: a step without noise is not of this model."""
        return point

    def close(self, work):
        """Return the point that an epoch has led to."""
        return work.close()


def times(tile, columns):
    """Return rows times columns in double precision."""
    return tile.times(columns).astype(np.float64, copy=False)


def positive_definite(matrix, change):
    """Return a positive definite matrix after as much of a change as leaves it that.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Positive definite.
    change : ndarray of shape (d, d) or float
        As of curvatures that nodes of quadrature have estimated: all of it, or a half,
        a quarter ...

    Returns
    -------
    changed : ndarray of shape (d, d)
    root : tuple
        Its Cholesky factor, as `scipy.linalg.cho_solve` takes it.
    """
    for _ in range(HALVINGS):
        changed = matrix + change
        try:
            return changed, cholesky(changed)
        except np.linalg.LinAlgError:
            change = 0.5 * change
    return matrix, cholesky(matrix)


# Rows that can tell what quadrature errs by: of hundreds of classes fewer can be had.
FEWEST_TOLD = 100


class GaussianModel(PlainModel):
    """Rows with a likelihood, coefficients with a Gaussian prior and posterior.

    Parameters
    ----------
    family : object
        Of ``_model_families.py``.
    y : ndarray or None
        Targets of the rows of the container, as the family wants them; None: batches
        bring theirs.
    prior : MeanField, FullRank or LowRank
        Over all D coefficients.
    total_weight : float
        Of the rows.
    intercept : bool
    structure : {"full", "diagonal"}
    rank : int
        Of what is added to a diagonal.
    matrix : bool
        Statistics bring all of C, also where the posterior is diagonal: then the step
        of the mean is Newton's.
    """

    def __init__(
        self, family, y, prior, total_weight, intercept, structure, rank=0, matrix=False
    ):
        self.family = family
        self.y = y
        self.prior = prior
        self.total_weight = total_weight
        self.intercept = intercept
        self.full = structure == "full"
        self.rank = rank
        self.matrix = matrix or self.full
        self.k = family.n_predictors
        self._directed = None, None, None
        #: Quadratic form (p, p) of rows that the keys of their nodes are made of: the
        #: covariance of a predictor's coefficients by the prior, and by no later one.
        #: None where no nodes are turned.
        self.turned = None
        if self.full and family.turns and prior is not None:
            p = prior.n_dim // self.k
            self.turned = prior.covariance(np.eye(p, prior.n_dim))

    @property
    def coarse(self):
        """Whether all rows can have finer quadrature."""
        return getattr(self.family, "can_refine", False)

    def refined(self, point):
        """Return the model with finer quadrature, None where there is none."""
        family = getattr(self.family, "refined", lambda: None)()
        return None if family is None else self.changed(family=family)

    def learned(self, point):
        """Return the model with what its family learns at a point, if anything."""
        return self

    def sampled_error(self, point, data):
        """Return what finer quadrature changes in the bound, about: NaN if unknown.

        As some rows tell, where all would take too long.
        """
        if getattr(self.family, "most_refined", 0) < FEWEST_TOLD:
            return np.nan
        rows = data.some(self.family.most_refined, np.random.default_rng(0))
        found = []
        for model in self, self.changed(family=self.family.finer()):
            evaluate = partial(model.statistics, point, beta=1.0)
            found.append(rows.chunks().sum(evaluate).objective)
        share = rows.total_weight / data.total_weight
        return abs(found[0] - found[1]) / max(share, np.finfo(float).tiny)

    def changed(self, **changes):
        """Return the model with other attributes, that knows nothing of a point."""
        model = copy(self)
        vars(model).update(changes, _directed=(None, None, None))
        vars(model).pop("_prior_precision", None)
        return model

    # Posteriors

    def posterior(self, parameters):
        """Return q as a distribution over all coefficients."""
        mean = as_vector(parameters.mean)
        if self.full:
            return FullRank(mean, np.linalg.cholesky(parameters.covariance))
        scale = np.exp(as_vector(parameters.log_scale))
        if not self.rank:
            return MeanField(mean, scale)
        return LowRank(mean, scale**2, self._stack(parameters.factor))

    def _stack(self, factor):
        """Return (p, k, r) as (k p, r)."""
        p, k, rank = factor.shape
        return factor.transpose(1, 0, 2).reshape(k * p, rank)

    def _unstack(self, vectors):
        """Return (k p, r) as (p, k, r)."""
        p, rank = len(vectors) // self.k, vectors.shape[1]
        return vectors.reshape(self.k, p, rank).transpose(1, 0, 2)

    def columns(self, vector):
        """Return (k p,) as (p, k)."""
        return vector.reshape(self.k, -1).T

    def point_of(self, posterior):
        """Return the point of a distribution, None where its structure is another.

        A low rank is only added here, never taken away.
        """
        if structure_of(posterior) != ("full" if self.full else "diagonal", self.rank):
            return None
        if self.rank and (posterior.sign < 0.0).any():
            return None
        mean = self.columns(posterior.mean)
        if self.full:
            return Point(Full(mean, posterior.covariance(), posterior.precision))
        factor, variance = np.zeros((posterior.n_dim, 0)), posterior.variance
        if self.rank:
            factor, variance = posterior.factor, posterior.diagonal
        log_scale = self.columns(0.5 * np.log(variance))
        return Point(Diagonal(mean, log_scale, self._unstack(factor)))

    def start(self, mean, data, rng):
        """Return the point with the precision that rows have where q is a point.

        Or ten, a hundred ... times as much, where the bound gains more than a nat a row
        by it, as one that overflows.
        """
        D = mean.size
        if self.full:
            near = Full(mean, np.zeros((D, D)), np.eye(D))
        else:
            nothing = np.zeros((*mean.shape, 0))
            near = Diagonal(mean, np.full(mean.shape, -np.inf), nothing)
        sums = data.chunks().sum(partial(self.statistics, Point(near), beta=1.0))
        point = self.spread(mean, self._target(sums), rng)
        if self.rank or not self.family.overflows:
            return point
        best, share = self.loss(point, data), 1.0
        while share < MOST_TIMES:
            share *= 10.0
            other = self.spread(mean, self._target(sums, share), rng)
            loss = self.loss(other, data)
            if best < loss + self.total_weight:
                break
            point, best = other, loss
        return point

    def loss(self, point, data):
        """Return minus the bound of a point, infinity where that overflows."""
        sums = data.chunks().sum(partial(self.statistics, point, beta=1.0))
        mean = sums._replace(objective=sums.objective / self.total_weight)
        bound = self.objective(point, mean)
        return -bound if np.isfinite(bound) else np.inf

    def spread(self, mean, precision, rng):
        """Return the point of means (p, k) and precisions (D, D) or (D,)."""
        if self.full:
            return Point(self._full(mean, precision))
        if precision.ndim > 1:
            precision = precision.diagonal()
        log_scale = self.columns(-0.5 * np.log(precision))
        rank = self.rank
        factor = rng.standard_normal((*mean.shape, rank)) / np.sqrt(max(1, rank))
        factor *= 0.1 * np.exp(log_scale)[:, :, None]
        return Point(Diagonal(mean, log_scale, factor))

    def _full(self, mean, precision, change=0.0):
        precision, root = positive_definite(precision, change)
        return Full(mean, inverse_of(root), precision)

    # Sums over rows

    def statistics(self, point, batch, beta):
        """Return the sums of a batch. There is nothing latent to temper."""
        evaluate = partial(self._sums, point.parameters, batch)
        most = min(STEP_ROWS, max(1, STEP_NUMBERS // self.k**2))
        chunks = row_chunks(batch.start, batch.stop, most)
        return reduce(accumulate, parallel_map(evaluate, chunks), None)

    def targets_of(self, batch):
        """Return the targets of the rows of a batch's container."""
        return batch.targets if self.y is None else self.y

    def _sums(self, parameters, batch, chunk):
        p, k = parameters.mean.shape
        rank = 0 if self.full else parameters.factor.shape[2]
        gradient, objective = np.zeros((p, k)), 0.0
        image = np.zeros((p, k, rank))
        curvature = np.zeros((k, p, k, p) if self.matrix else (p, k))
        for tile, where in tiles(batch, *chunk, self.intercept):
            weight = batch.weight[where] if batch.weight.size else batch.weight
            a, low, half = self._predictors(parameters, tile)
            y = self.targets_of(batch)[where]
            given = a, half, y, weight
            if self.turned is not None:
                given = *given, keys_of(tile.quadratic(self.turned))
            loss, residual, curve = self.family.expectations(*given)
            objective -= loss
            tile.add_transposed(residual, gradient)
            self._add_curvature(tile, curve, curvature)
            if low is not None:
                self._add_image(tile, curve, low, image)
        if self.matrix:
            curvature = curvature.reshape(k * p, k * p)
        return Statistics(gradient, curvature, image, objective)

    def _predictors(self, parameters, tile):
        """Return means (m, k), x^T U (m, k, r) or None, and what `_spread` does."""
        (p, k), low = parameters.mean.shape, None
        if not self.full and (rank := parameters.factor.shape[2]):
            low = times(tile, parameters.factor.reshape(p, k * rank))
            low = low.reshape(-1, k, rank)
        return times(tile, parameters.mean), low, self._spread(parameters, tile, low)

    def _spread(self, parameters, tile, low):
        """Return variances (m, 1), or roots of the covariances of k predictors."""
        k = self.k
        if self.full:
            p = len(parameters.mean)
            blocks = parameters.covariance.reshape(k, p, k, p)
            lower = np.tril_indices(k)
            pairs = tile.quadratics(blocks[lower[0], :, lower[1]])
            V = np.zeros((len(pairs), k * k))
            V[:, np.ravel_multi_index(lower, (k, k))] = pairs
        else:
            own = times(tile.squared(), np.exp(2.0 * parameters.log_scale))
            if k > 1 and low is None and not self.matrix:
                return np.sqrt(own)
            V = np.zeros((len(own), k * k))
            V[:, :: k + 1] = own
            if low is not None:
                V += (low @ low.transpose(0, 2, 1)).reshape(V.shape)
        if k == 1:
            return np.maximum(V, 0.0)
        _kernels.roots(V, k)
        return V

    def _add_curvature(self, tile, curve, out):
        k, p = self.k, out.shape[1]
        if not self.matrix:
            diagonal = curve[:, :: k + 1] if curve.shape[1] > k else curve
            tile.squared().add_transposed(diagonal, out)
            return
        if k > 1:
            first, second = np.triu_indices(k)
            grams = np.zeros((len(first), p, p))
            tile.add_grams(curve[:, first * k + second], grams)
            out[first, :, second] += grams
            off = first != second
            out[second[off], :, first[off]] += grams[off]
            return
        # Roots are taken of weights, of one predictor, that are hardly ever negative.
        for sign in (1.0, -1.0):
            part = np.maximum(sign * curve[:, 0], 0.0)
            if part.any():
                gram = np.zeros((p, p))
                tile.add_gram(part, gram)
                out[0, :, 0] += sign * gram

    def _add_image(self, tile, curve, low, out):
        m, k, rank = low.shape
        product = curve.reshape(m, k, k) @ low
        flat = out.reshape(len(out), k * rank)
        tile.add_transposed(product.reshape(m, k * rank), flat)

    # Predictions

    def predictors(self, parameters, batch):
        """Return means (m, k) of the predictors, and variances (m, 1) or roots."""
        means, spreads = [], []
        for tile, _ in tiles(batch, batch.start, batch.stop, self.intercept):
            a, _, half = self._predictors(parameters, tile)
            means.append(a)
            spreads.append(half)
        return np.concatenate(means), np.concatenate(spreads)

    def means(self, parameters, batch):
        """Return the means of `predictors` alone, which take no time beside these."""
        parts = tiles(batch, batch.start, batch.stop, self.intercept)
        return np.concatenate([times(tile, parameters.mean) for tile, _ in parts])

    def predictors_less(self, posterior, batch):
        """Return what `predictors` does of a low rank that is taken from a diagonal.

        Some of it may be added. A predictor has what rounding leaves of its variance
        at least.
        """
        mean, own = map(self.columns, (posterior.mean, posterior.diagonal))
        factor = self._unstack(posterior.factor)
        p, k, rank = factor.shape
        factor = factor.reshape(p, k * rank)
        means, spreads = [], []
        for tile, _ in tiles(batch, batch.start, batch.stop, self.intercept):
            if not tile.sparse:
                tile = DenseTile(tile.x.astype(np.float64, copy=False), self.intercept)
            means.append(times(tile, mean))
            whole = times(tile.squared(), own)
            low = times(tile, factor).reshape(-1, k, rank)
            V = (low * posterior.sign) @ low.transpose(0, 2, 1)
            V = V.reshape(-1, k * k)
            least = np.finfo(float).eps * whole
            V[:, :: k + 1] = np.maximum(V[:, :: k + 1] + whole, least)
            if k > 1:
                _kernels.roots(V, k)
            spreads.append(V)
        return np.concatenate(means), np.concatenate(spreads)

    def log_likelihoods(self, draws, batch):
        """Return log p(y | x, theta) of draws (s, D) for each row, of shape (s, m)."""
        z = self.draws_of_predictors(draws, batch)
        return self.family.log_likelihood(z, self.targets_of(batch)[batch.ids])

    def draws_of_predictors(self, draws, batch):
        """Return the predictors of rows at draws (s, D), of shape (s, m, k)."""
        columns = draws.reshape(len(draws) * self.k, -1).T
        parts = []
        for tile, _ in tiles(batch, batch.start, batch.stop, self.intercept):
            parts.append(times(tile, columns).reshape(-1, len(draws), self.k))
        return np.concatenate(parts).transpose(1, 0, 2)

    # Updates

    @cached_property
    def _prior_precision(self):
        """P_0, of shape (D,) or (D, D)."""
        if not self.matrix:
            return self.prior.precision_diagonal
        return self.prior.precision

    def _target(self, sums, scale=1.0):
        """Return the precision P_0 + C, of shape (D,) or (D, D)."""
        curvature = sums.curvature if self.matrix else as_vector(sums.curvature)
        return self._prior_precision + scale * curvature

    def _slope(self, parameters, sums):
        """Return the gradient by the mean, of shape (D,)."""
        away = as_vector(parameters.mean) - self.prior.mean
        fit = self.total_weight * as_vector(sums.gradient)
        return fit - self.prior.precision_times(away)

    def _direction(self, point, sums):
        """Return the `Way` of an anchor, which is kept."""
        if self._directed[0] is not sums or self._directed[1] is not point:
            q = point.parameters
            slope = self._slope(q, sums)
            target = self._target(sums, self.total_weight)
            if self.full:
                drift = q.covariance @ target
                drift.flat[:: len(drift) + 1] -= 1.0
                step, move = slope, q.covariance @ slope
            else:
                diagonal = target.diagonal() if self.matrix else target
                drift = np.exp(2.0 * as_vector(q.log_scale)) * diagonal - 1.0
                own = np.exp(-2.0 * as_vector(q.log_scale))
                if self.matrix:
                    root = positive_definite(np.diag(own), target - np.diag(own))[1]
                    step = cho_solve(root, slope)
                else:
                    step = slope / np.maximum(target, LEAST_SHARE * own)
                move = step
            predicted = 0.5 * slope @ move + 0.25 * np.sum(drift * drift.T)
            way = Way(step, target, slope, move, drift, float(predicted))
            self._directed = sums, point, way
        return self._directed[2]

    def update(self, point, mean, correction, step):
        """Return the point after a natural-gradient step of size `step`."""
        sums = mean
        if mean is None or correction is not None:
            sums = combination((1.0, mean), (1.0, correction))
        direction, target, *_ = self._direction(point, sums)
        q = point.parameters
        if self.full:
            moved = self._full(q.mean, q.precision, step * (target - q.precision))
            change = step * (moved.covariance @ direction)
            return Point(moved._replace(mean=q.mean + self.columns(change)))
        diagonal = target.diagonal() if self.matrix else target
        log_precision = -2.0 * as_vector(q.log_scale)
        ratio = (1.0 - step) + step * diagonal * np.exp(-log_precision)
        turn = np.log(np.maximum(ratio, LEAST_SHARE))
        turn = np.clip(turn, -LARGEST_CHANGE, LARGEST_CHANGE)
        mean = q.mean + self.columns(step * direction)
        log_scale = self.columns(-0.5 * (log_precision + turn))
        return Point(q._replace(mean=mean, log_scale=log_scale))

    # Mixtures of where steps lead

    def trace(self, point, mean):
        """Return the `Trace` of a point."""
        way = self._direction(point, mean)
        shift = way.target @ as_vector(point.parameters.mean) + way.slope
        return Trace(way.target, shift, way._replace(target=None))

    def mixed(self, traces):
        """Return the mixture of where steps lead that leaves the least way, about.

        None of one point alone, or far from the end.

        Parameters
        ----------
        traces : list of Trace
            The newest last.
        """
        found = mixture(traces) if self.full else None
        if found is None:
            return None
        precision, covariance, mean = found
        return Point(Full(self.columns(mean), covariance, precision))

    # What the solvers ask for

    def objective(self, point, mean):
        """Return the evidence lower bound, in nats: none of what is no distribution.

        Where rates overflow, a step may lead to a covariance that rounding has left
        without a root.
        """
        try:
            divergence = self.posterior(point.parameters).kl(self.prior)
        except np.linalg.LinAlgError:
            return -np.inf
        return float(self.total_weight * mean.objective - divergence)

    def predicted_gain(self, point, mean):
        """Return what a natural-gradient step is about to gain, in nats.

        Infinite where the bound overflows: nothing is known of it there.
        """
        if not np.isfinite(mean.objective):
            return np.inf
        return self._direction(point, mean).predicted

    def slope_left(self, before, after):
        """Return what share of the slope along a step is left at its end, about.

        About, as both ends are taken in the metric of their own covariance.
        """
        way, then = (self._direction(at.point, at.mean) for at in (before, after))
        left = then.slope @ way.move + 0.5 * np.sum(then.drift * way.drift.T)
        return float(left) / max(2.0 * way.predicted, np.finfo(float).tiny)

    # What preconditioned L-BFGS asks for

    def gradient(self, point, mean):
        """Return the gradient by means, log scales and low rank."""
        q, posterior = point.parameters, self.posterior(point.parameters)
        n = self.total_weight
        variance = np.exp(2.0 * as_vector(q.log_scale))
        by_scale = posterior.precision_diagonal - self.prior.precision_diagonal
        by_scale = variance * (by_scale - n * as_vector(mean.curvature))
        U = self._stack(q.factor).T
        own = posterior.precision_times(U) - self.prior.precision_times(U)
        by_factor = own.T.ravel() - n * self._stack(mean.image).ravel()
        return np.concatenate([self._slope(q, mean), by_scale, by_factor])

    def move(self, point, step):
        """Return the point with its parameters moved."""
        q = point.parameters
        D = q.mean.size
        turn = np.clip(step[D : 2 * D], -LARGEST_CHANGE, LARGEST_CHANGE)
        mean, log_scale = self.columns(step[:D]), self.columns(turn)
        factor = self._unstack(step[2 * D :].reshape(D, self.rank))
        return Point(Diagonal(*map(np.add, q, (mean, log_scale, factor))))

    def precondition(self, point, vector):
        """Multiply by the inverse of the Fisher information of q, about."""
        q = point.parameters
        D = q.mean.size
        variance = np.exp(2.0 * as_vector(q.log_scale))
        U = self._stack(q.factor)
        by_mean = variance * vector[:D] + U @ (U.T @ vector[:D])
        low = variance[:, None] * vector[2 * D :].reshape(D, self.rank)
        return np.concatenate([by_mean, 0.5 * vector[D : 2 * D], low.ravel()])
