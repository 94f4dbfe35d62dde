r"""Logistic regression: objective, statistics, updates.

With a one behind every row x where there is an intercept, parameters :math:`\theta`
(p, k), logits :math:`z = \theta^T x`, weights w of total :math:`n`, and the ridge
:math:`\Lambda` (p,), which is 1 / C but for the intercept, the objective a unit of
weight is

.. math:: J(\theta) = \frac1n \Big[ \sum_i w_i \log p(y_i | x_i)
          - \frac12 \sum_j \theta_j^T \Lambda\, \theta_j \Big]

(Choromanska and Jebara 2013, Eq. 1, over n). Its gradient and a curvature are sums over
rows. The update is that of bound majorization (Eq. 2),

.. math:: \theta \leftarrow \theta + \eta\, (\Sigma + \Lambda)^{-1} \nabla,

with the gradient of all rows, of one block, or variance-reduced, as the solver
estimates it. With several classes steps keep the sum of the columns of :math:`\theta`
zero, where the ridge puts the optimum and the likelihood does not care.
"""

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skvrem.linear import _kernels
from skvrem.linear._model_curvature import Curvature, Factor
from skvrem.utils._algebra import accumulate
from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.utils._tiles import tiles

# Rows a thread takes of a batch.
STEP_ROWS = 8192
# The ridge that limits steps where a sample has missed the curvature, as a share of the
# columns' typical one.
LEAST_RIDGE = 1e-8
# Mean curvature, a row, that coordinates without a ridge have at least in a metric: a
# matrix sees directions that its parts do not.
LEAST_CURVATURE, LEAST_OF_MATRICES = 1e-6, 1e-12
# The least curvature of a direction, as a share of its columns': fewer than all rows do
# not tell less from none.
LEAST_SEEN = 1e-6
# The rows' least weight in a metric, times the root of their mean. Weights of rows that
# are far on their side vanish, but only there: steps of the length that they allow lead
# to where they do not. The smaller the mean, the more they differ.
LEAST_WEIGHT = 1e-3
# By what share a start is worse than coefficients of zero, not by rounding.
WORSE = 1e-3
# The share of a sample in all rows beyond which a pass over them is little beside it.
FEW_BESIDE = 0.3


class Parameters(NamedTuple):
    """Coefficients of shape (p, k), the intercepts in the last row."""

    theta: np.ndarray


class Statistics(NamedTuple):
    """Sums over rows.

    Attributes
    ----------
    gradient : ndarray of shape (p, k)
        Of the log-likelihood, without the ridge.
    curvature : ndarray
        See ``_model_curvature.py``; of shape (0,) where it is not asked for.
    objective : float
        Log-likelihood.
    """

    gradient: np.ndarray
    curvature: np.ndarray
    objective: float


class Point(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    parameters : Parameters
    statistics : Statistics
        Means that the stochastic solver has accumulated: the curvature, and the
        gradient as far as it is remembered.
    metric : object
        Solves with a curvature taken elsewhere; None where statistics bring theirs.
    reference, trials, repaired
        See ``utils/_averaging.py``; none of it happens here.
    """

    parameters: Parameters
    statistics: Statistics
    metric: Any = None
    reference: Any = None
    trials: int = 0
    repaired: tuple = ()


class Online(NamedTuple):
    """How the stochastic solver steps.

    Attributes
    ----------
    memory : float
        Share of the rows seen whose gradients are remembered: 0, only the newest
        block's; 1, all of them.
    scale : float
        Factor of the step.
    share : float
        Of a block in all rows, the paper's constant step.
    thin : int
        The curvature is that of one row in so many, for all.
    """

    memory: float = 0.0
    scale: float = 1.0
    share: float = 1.0
    thin: int = 1


class CurvatureSums(NamedTuple):
    """A curvature without the rest of `Statistics`."""

    curvature: np.ndarray


class Grams(NamedTuple):
    """Weighted products of rows, of shape (n_pairs, p, p)."""

    grams: np.ndarray


def _weight(batch, where):
    """Weights of rows; empty for ones."""
    return batch.weight[where] if batch.weight.size else batch.weight


@dataclass(eq=False)
class LogisticModel:
    """Binary or multinomial logistic regression with a quadratic penalty.

    Parameters
    ----------
    n_classes : int
        Batches bring the numbers of their rows' classes as targets.
    penalty : ndarray of shape (p,)
        1 / C, and for the intercept 0 or the same.
    total_weight : float
        n, what the penalty is spread over: `ridge` is that of a unit.
    intercept : bool
    curvature : Curvature
    kind : {"bound", "hessian", "star"}
        What the curvature's row weights are (``_kernels.py``).
    every : bool
        Statistics bring the curvature. Otherwise it is that of the point, taken by
        `recondition` on some rows.
    sample_rows : int
        That many.
    sample_cost : float
        The time that this takes, in passes for the gradient.
    metric_cost : float
        The same, with the diagonal of all rows beside it.
    newton : bool
        It is the Hessian itself, of all rows, and next to nothing to take: it is taken
        anew as soon as it does not do.
    online : Online or None
        For the stochastic solver.
    rounding : float
        Of the rows' numbers, and so of their logits.
    center : ndarray of shape (n_features,) and the rows' dtype, or None
        Where the rows have their origin: the coefficients are the same about any, the
        free intercept is that of rows less this. Far from their origin the columns are
        hardly to be told from it.
    """

    n_classes: int
    penalty: np.ndarray
    total_weight: float
    intercept: bool
    curvature: Curvature
    kind: str = "bound"
    every: bool = True
    sample_rows: int = 0
    sample_cost: float = 0.0
    metric_cost: float = 0.0
    newton: bool = False
    online: Online | None = None
    rounding: float = 0.0
    center: np.ndarray | None = None
    #: `remember` keeps the sums.
    recall_passes: ClassVar[float] = 0
    keep_sums: ClassVar[bool] = True
    #: No objective is above that of classes without doubt and no penalty.
    highest: ClassVar[float] = 0.0

    def __post_init__(self):
        self.k = 1 if self.n_classes == 2 else self.n_classes
        self.ridge = self.penalty / self.total_weight
        self._factored = None, None

    def start(self, parameters):
        """Return the point of parameters, which has seen nothing."""
        gradient = np.zeros_like(parameters.theta)
        return Point(parameters, Statistics(gradient, self.curvature.zeros(), 0.0))

    def for_batches(self, point, visit=None):
        """Return the point with its parameters, which are all that sums are made of."""
        return Point(point.parameters, None)

    def __getstate__(self):
        return vars(self) | {"_factored": (None, None)}  # others solve nothing

    # The origin

    def about_center(self, theta, sign=1.0):
        """Return parameters about zero as those about the centre; with -1, back."""
        if self.center is None:
            return theta
        theta = theta.copy()
        theta[-1] += sign * (self.center.astype(np.float64) @ theta[:-1])
        return theta

    # Sums over rows

    def _tiles(self, batch, start, stop):
        return tiles(batch, start, stop, self.intercept, self.center)

    def statistics(self, point, batch, beta):
        """Return the sums of a batch.

        There is nothing latent to temper: `beta` makes no difference.

        Raises
        ------
        FloatingPointError
            If a row holds NaN or infinity, or its logits overflow.
        """
        evaluate = partial(self._sums, point.parameters.theta, batch)
        return self._over_chunks(evaluate, batch)

    def _over_chunks(self, evaluate, batch):
        """Sum what chunks of a batch come to, and see that it is finite."""
        chunks = row_chunks(batch.start, batch.stop, STEP_ROWS)
        sums = reduce(accumulate, parallel_map(evaluate, chunks), None)
        # A sum of many elements is finite only if all are.
        with np.errstate(over="ignore", invalid="ignore"):
            total = sum(np.sum(part) for part in sums)
        if not np.isfinite(total):
            raise FloatingPointError("the rows or their logits are not finite")
        return sums

    def _sums(self, theta, batch, chunk):
        gradient, objective, curvature = np.zeros_like(theta), 0.0, np.zeros(0)
        # What is not finite is found out of the sums.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.every:
                curvature = self._curvature_sums(theta, batch, chunk)
            for tile, where in self._tiles(batch, *chunk):
                y, weight = batch.targets[where], _weight(batch, where)
                if tile.sparse:
                    rows = *tile.parts, self.intercept, theta.astype(tile.dtype)
                    objective -= _kernels.csr_sums(*rows, y, weight, gradient)
                    continue
                Z = tile.times(theta)
                loss = np.empty(len(Z), Z.dtype)
                if self.k == 1:
                    _kernels.logistic_residuals(Z[:, 0], y, weight, loss)
                else:
                    _kernels.softmax_residuals(Z, y, weight, loss)
                objective -= float(loss.sum(dtype=np.float64))
                tile.add_transposed(Z, gradient)
        return Statistics(gradient, curvature, objective)

    def _curvature_sums(self, theta, batch, chunk, curvature=None, least=None):
        curvature = curvature or self.curvature
        thin = self.online.thin if self.online else 1
        out, (start, stop) = curvature.zeros(), chunk
        stop = start + -(-(stop - start) // thin)
        for tile, where in self._tiles(batch, start, stop):
            y, weight = batch.targets[where], _weight(batch, where)
            if curvature.kind == "joint" and self.kind == "hessian":
                Z = tile.times(theta)
                P = np.empty(Z.shape)
                _kernels.probabilities(Z, P)
                factor = weight if weight.size else 1.0
                curvature.add_joint(tile, P, factor, out)
                continue
            weights = self._row_weights(tile.times(theta), y, weight, least)
            curvature.add(tile, weights, out, y)
        out *= thin
        return out

    def _row_weights(self, Z, y, weight, least=None):
        """Weights of the rows in the curvature, of shape (m, columns).

        At least `least` (k,) a unit of weight, of the Hessian.
        """
        shared = self.curvature.columns < self.k
        out = np.empty((len(Z), self.curvature.columns))
        if self.kind == "bound":
            # What holds of all columns of theta at once, or of one at a time.
            if self.k == 1:
                _kernels.logistic_bound(Z[:, 0], weight, out[:, 0])
            elif shared:
                _kernels.softmax_bound(Z, weight, out[:, 0])
            else:
                _kernels.softmax_class_bounds(Z, weight, out)
            return out
        p = np.empty((len(Z), self.k))
        if self.kind == "star":
            _kernels.star_weights(Z, y, weight, p)
        else:
            _kernels.probabilities(Z, p)
            p *= 1.0 - p
            if least is not None:
                np.maximum(p, least, out=p)
            if weight.size:
                p *= weight[:, None]
        if shared:
            # The trace, spread over the k - 1 directions that the matrix acts on.
            return p.sum(axis=1, keepdims=True) / (self.k - 1)
        return p

    def _taken(self, data, sums):
        """Return what ``sums(batch, chunk)`` makes of data, a unit of weight."""
        (found,) = data.chunks().sum(partial(self._taken_of, sums))
        return found / max(data.total_weight, np.finfo(float).tiny)

    def _taken_of(self, sums, batch):
        """Return the sum of what ``sums(batch, chunk)`` makes of chunks of a batch."""

        def evaluate(chunk):
            with np.errstate(over="ignore", invalid="ignore"):
                return CurvatureSums(sums(batch, chunk))

        return self._over_chunks(evaluate, batch)

    def _weight_sums(self, theta, batch, chunk):
        """Sums of the rows' weights in the Hessian, of shape (k,)."""
        out = np.zeros(self.k)
        for tile, where in self._tiles(batch, *chunk):
            Z = tile.times(theta)
            p = np.empty(Z.shape)
            _kernels.probabilities(Z, p)
            weight = _weight(batch, where) if batch.weight.size else np.ones(len(p))
            out += weight @ (p * (1.0 - p))
        return out

    def remember(self, point, batch, beta):
        """Return the sums of a batch, which are all that need be kept."""
        sums = self.statistics(point, batch, beta)
        return sums, sums

    def recall(self, memory, point, batch):
        """Return the sums of a batch where they were remembered."""
        return memory

    # Updates

    def update(self, point, mean, correction, step):
        """Return the point after a step of bound majorization (Eq. 2).

        With a mean (batch, svrg) its curvature is used, or the point's; without one
        (stochastic) the batch is averaged into the point's curvature first.
        """
        if mean is None:
            return self._stochastic_update(point, correction, step)
        if self.online:
            return point  # the loop ends on a batch step, of which nobody spoke
        gradient = mean.gradient
        if correction is not None:
            gradient = gradient + correction.gradient
        metric = self.metric(mean.curvature) if self.every else point.metric
        return self._ascend(point, metric, gradient, step)

    def _stochastic_update(self, point, batch, step):
        r"""Corrected Algorithm 2 of Choromanska and Jebara (2013), in blocks.

        With the share :math:`\rho` of the block in what has been seen,
        :math:`\bar\Sigma \leftarrow (1 - \rho) \bar\Sigma + \rho \Sigma_B` and
        :math:`\theta \leftarrow \theta + \rho (\bar\Sigma + \Lambda/n)^{-1}
        (\nabla_B - \Lambda\theta)/n`. The paper's form, `gradient_memory` 1, has the
        running mean of all past gradients in place of the block's, and the block's
        share in all rows in place of :math:`\rho`.
        """
        before, online = point.statistics, self.online or Online()
        memory = online.memory
        fresh = 1.0 if memory == 0.0 else min(1.0, step / memory)
        gradient = before.gradient + fresh * (batch.gradient - before.gradient)
        if before.curvature.any():
            # Stars shrink as rows get fitted: blocks count by their number.
            newest = 2.0 * step / (1.0 + step) if self.kind == "star" else step
            curvature = (1.0 - newest) * before.curvature
            batch.curvature[:] *= newest  # nobody else's; it may be large
            curvature += batch.curvature
        else:
            gradient, curvature = batch.gradient, batch.curvature
        statistics = Statistics(gradient, curvature, 0.0)
        point = point._replace(statistics=statistics)
        step = online.scale * ((1.0 - memory) * step + memory * online.share)
        return self._ascend(point, self.metric(curvature), gradient, step)

    def metric(self, curvature):
        """Return what solves with a mean curvature and the ridge."""
        # Those of an anchor are used by all visits of its epoch.
        if self._factored[0] is not curvature:
            self._factored = None, None  # so that two are never there at once
            self._factored = curvature, self.curvature.metric(curvature, self.ridge)
        return self._factored[1]

    def _ascend(self, point, metric, gradient, step):
        theta = point.parameters.theta
        gradient = gradient - self.ridge[:, None] * theta
        theta = theta + step * self._solve(metric, gradient)
        return point._replace(parameters=Parameters(theta))

    def _solve(self, metric, gradient):
        """Solve, and stay where the columns of theta sum to zero."""
        if self.k == 1:
            return metric.solve(gradient)
        solution = metric.solve(gradient - gradient.mean(axis=1, keepdims=True))
        return solution - solution.mean(axis=1, keepdims=True)

    def laplace(self, point, data):
        r"""Return minus the Hessian of the objective and the standard errors.

        The Hessian, of shape (k p, k p), is that of the sum over rows, the ridge
        included; errors (p, k) are the roots of the diagonal of its inverse. With
        several classes a constant added to all columns changes nothing, so that the
        inverse is taken where the columns sum to zero.
        """
        theta = point.parameters.theta
        p, k = theta.shape
        pairs = [(a, b) for a in range(k) for b in range(a, k)]
        (grams,) = data.chunks().sum(partial(self._grams, theta, pairs))
        hessian = np.zeros((k, p, k, p))
        for gram, (a, b) in zip(grams, pairs, strict=True):
            hessian[a, :, b] = hessian[b, :, a] = gram if a == b else -gram
        hessian = hessian.reshape(k * p, k * p)
        hessian.flat[:: k * p + 1] += np.tile(self.penalty, k)
        shifted, common = hessian, np.zeros(p)
        if k > 1:
            # 11^T acts on what is common to the columns only, and is taken out again.
            amount = np.maximum(hessian.diagonal().reshape(k, p).mean(axis=0), 1e-300)
            shifted = hessian + np.kron(np.full((k, k), 1.0 / k), np.diag(amount))
            common = 1.0 / (k * (amount + self.penalty))
        inverse = Factor(shifted).solve(np.eye(k * p))
        variance = inverse.diagonal().reshape(k, p) - common
        if self.center is not None:
            # The intercept about zero is that about the centre, less the logit there.
            # The Hessian is a quadratic form: it takes the opposite transformation.
            back = np.append(-self.center.astype(np.float64), 1.0)
            blocks = inverse.reshape(k, p, k, p)[np.arange(k), :, np.arange(k), :]
            variance[:, -1] = (blocks @ back) @ back - np.square(back) @ common
            forth = np.eye(p)
            forth[-1, :-1] = -back[:-1]
            forth = np.kron(np.eye(k), forth)
            hessian = forth.T @ hessian @ forth
        return hessian, np.sqrt(np.maximum(variance, 0.0)).T

    def _grams(self, theta, pairs, batch):
        """Return the weighted products of a batch's rows, for pairs of classes."""
        p = len(theta)
        grams = np.zeros((len(pairs), p, p))
        for tile, where in self._tiles(batch, batch.start, batch.stop):
            Z = tile.times(theta)
            P = np.empty(Z.shape)
            _kernels.probabilities(Z, P)
            weight = _weight(batch, where) if batch.weight.size else 1.0
            for out, (a, b) in zip(grams, pairs, strict=True):
                other = 1.0 - P[:, a] if a == b else P[:, b]
                tile.add_gram(weight * P[:, a] * other, out)
        return Grams(grams)

    # What the solvers ask for

    def objective(self, point, mean):
        """Return the penalised log-likelihood a unit of weight (Eq. 1 over n)."""
        theta = point.parameters.theta
        return float(mean.objective - 0.5 * (self.ridge @ np.square(theta)).sum())

    # What preconditioned L-BFGS asks for

    def gradient(self, point, mean):
        """Return the gradient of the objective a unit."""
        theta = point.parameters.theta
        return (mean.gradient - self.ridge[:, None] * theta).ravel()

    def may_end(self, point, mean, tol):
        """Whether no derivative of the objective is larger than `tol`.

        Little can be left to gain long before the coefficients are found.
        """
        return bool(np.abs(self.gradient(point, mean)).max() <= tol)

    def most_left(self, point, mean):
        """Return what no point gains more than a unit: by the ridge's concavity."""
        least = self.ridge.min()
        with np.errstate(over="ignore"):
            square = np.square(self.gradient(point, mean)).sum()
            return float(0.5 * square / least) if least > 0.0 else np.inf

    def better(self, point, objective):
        """Return the point with coefficients of zero, where those are better.

        What they come to is known: a fit to few rows may be far off on all.
        """
        zeros = -np.log(self.n_classes)
        if objective >= (1.0 + WORSE) * zeros:
            return None
        theta = np.zeros_like(point.parameters.theta)
        return point._replace(parameters=Parameters(theta))

    def move(self, point, step):
        """Return the point with its parameters moved."""
        theta = point.parameters.theta
        return point._replace(parameters=Parameters(theta + step.reshape(theta.shape)))

    def precondition(self, point, vector):
        """Solve with the point's metric."""
        shape = point.parameters.theta.shape
        return self._solve(point.metric, vector.reshape(shape)).ravel()

    def recondition(self, point, data, rng):
        """Return the point with the curvature of a sample of rows, and its cost.

        A sample may miss columns of few entries, and steps along those have no limit
        but the ridge's. So the diagonal is that of all rows where they are few beside
        the sample, the ridge is small, or a metric without it has not done.
        """
        theta, sample, cost = point.parameters.theta, data, 1.0
        if self.sample_rows < data.n_units:
            sample = data.some(self.sample_rows, rng)
            cost = sample.n_units / data.n_units
        least = None
        if (
            self.kind == "hessian"
            and self.curvature.kind != "joint"
            and not self.newton
        ):
            weights = self._taken(sample, partial(self._weight_sums, theta))
            least = LEAST_WEIGHT * np.sqrt(weights)
        taken = partial(self._curvature_sums, theta, least=least)
        curvature = self._taken(sample, taken)
        known = point.metric is None and cost <= FEW_BESIDE
        if known:
            typical = np.median(self.curvature.diagonal(curvature))
            known = self.ridge[0] > LEAST_RIDGE * typical
        if cost < 1.0 and not known:
            diagonal = Curvature("diagonal", len(theta), self.curvature.columns)
            of_all = self._taken(data, partial(taken, curvature=diagonal))
            self.curvature.raise_diagonal(curvature, of_all)
            cost += 1.0
        # Where all rows are far on their side, a free intercept has no curvature left.
        whole = self.curvature.kind in ("gram", "joint")
        free = LEAST_OF_MATRICES if whole else LEAST_CURVATURE
        ridge = np.where(self.ridge > 0.0, self.ridge, free)
        if sample is not data:
            seen = self.curvature.diagonal(curvature).mean(axis=1)
            ridge = np.maximum(ridge, LEAST_SEEN * seen)
        return point._replace(metric=self.curvature.metric(curvature, ridge)), cost


def log_linear_bound(features, theta, log_prior, descending):
    """Return log z, gradient and curvature; see :func:`skvrem.linear.bound`."""
    log_alpha = log_prior + features @ theta
    d = len(theta)
    order = np.arange(len(log_alpha))
    if descending:
        order = np.argsort(-log_alpha, kind="stable")
    sigma, gradient = np.zeros((d, d)), np.zeros(d)
    log_z = _kernels.partition_bound(features, log_alpha, order, sigma, gradient)
    return log_z, gradient, sigma
