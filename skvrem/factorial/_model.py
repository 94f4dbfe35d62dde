r"""The factorial mixture: parameters, statistics, E step, M step.

.. math:: x_n = \sum_k Z_{nk} \mu_k + \varepsilon_n, \quad
          Z_{nk} \sim \mathrm{Bern}(\pi_k), \quad
          \mu_k \sim N(0, \sigma_\mu^2 I), \quad
          \varepsilon_n \sim N(0, \sigma^2 I)

(Mandt et al. 2016, Eq. 12), with the mean field
:math:`q(\mu) \prod_{nk} \mathrm{Bern}(Z_{nk}; \nu_{nk})`, where every feature of the
components has the same posterior covariance S (K, K) about the means M (K, D). What is
maximised is the annealed bound (Eq. 4), a row,

.. math:: \frac1N \sum_n w_n \left( b\, E_q \log p(x_n, Z_n | \mu) + H(\nu_n) \right)
          - \frac1N KL(q(\mu) \| p(\mu))

with the inverse temperature b. All it needs of the rows are the sums

.. math:: t = \left( \sum_n w_n \nu_n,\ \sum_n w_n E[Z_n Z_n^T],\
          \sum_n w_n \nu_n x_n^T,\ \sum_n w_n |x_n|^2,\ \sum_n w_n \right)

and, as in Eq. 8, it is b t that is averaged: the M step then needs no temperature.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, eigh

from skvrem.factorial import _kernels as kernels
from skvrem.factorial._model_bound import (
    LOG_2PI,
    Parameters,
    Statistics,
    divergence,
    expected,
    gram,
    residual,
)
from skvrem.utils._algebra import accumulate, read_only
from skvrem.utils._averaging import Averaging
from skvrem.utils._parallel import map_chunks, parallel_map, row_chunks

# Rows of a tile: as many as keep the tile in the second-level cache, within bounds.
TILE_SIZE, FEWEST, MOST = 1 << 17, 128, 2048
# Multiplications that are worth a task of their own.
TASK_WORK = 1 << 26
NO_IDS = np.empty(0, np.int32)
NO_IDS.flags.writeable = False
# Two components are one where their difference is this small a part of them; noise of
# JITTER parts then tells them apart.
MERGED, JITTER = 1e-3, 0.1
# A component is nothing below this part of its deviation. What rows bring to it, weak
# as it may be, is of the order of the deviation; without any it is zero.
NOTHING = 0.1
# Temperatures at which the codes of new rows are found first, and sweeps at each.
COOLING_STEPS, COOLING_SWEEPS = 10, 5


class FactorialPoint(NamedTuple):
    """Where a fit stands; see :class:`~skvrem.utils._averaging.AveragingPoint`.

    `codes` (n_rows, K) are ν of the rows as 16-bit fractions, where a visit begins
    them. They stand still within an epoch; what the visits find goes to `after`, and
    `recentre` lets the two change places. Without rows a visit begins at π. Those of
    rows that lie elsewhere lie there, too. `tempered`: the last estimate was of a
    temperature above 1. The statistics, an average, would not say so of an update at
    once. `n_reseeded`: how many components have been told apart at a temperature of 1.
    """

    parameters: Parameters
    statistics: Statistics
    codes: np.ndarray
    after: np.ndarray
    reference: Any = None
    trials: int = 0
    repaired: tuple = ()
    tempered: bool = False
    n_reseeded: int = 0

    #: What a pass writes to.
    written = ("after",)


@dataclass(eq=False)
class FactorialModel(Averaging):
    """Binary latent factors with Gaussian components and noise (Eq. 12).

    Parameters
    ----------
    total_weight : float
        Of all rows: the prior of the components counts once for them.
    dtype : dtype
        Of the rows, in which tiles are computed.
    learn : tuple of bool
        Whether the M step finds the noise variance, the variance of the components'
        prior, the prior of the activations.
    full : bool
        Joint posterior of the components; otherwise S is diagonal.
    least_noise : float
        Smallest noise variance that is learned.
    inner_iter : int
        Most sweeps over a row's code a visit.
    inner_tol : float
        No more of them where one moves no ν of the row by more than this.
    keep_sums : bool
        Variance reduction keeps the sums of every batch. Otherwise it keeps the
        anchor's parameters and evaluates them again: no memory, one more pass.
    """

    total_weight: float
    dtype: Any
    _: KW_ONLY
    learn: tuple = (True, True, True)
    full: bool = True
    least_noise: float = 0.0
    inner_iter: int = 5
    inner_tol: float = 1e-4
    keep_sums: bool = True

    def __post_init__(self):
        self.dtype = np.dtype(self.dtype)
        self.recall_passes = 0 if self.keep_sums else 1

    # E step

    def statistics(self, point, batch, beta):
        """Return the sums of a batch after sweeps over its rows' codes."""
        parameters = point.parameters
        k, d = parameters.means.shape
        # By the size of the model alone, as all that decides the order of sums.
        size = max(rows_of_a_tile(d), TASK_WORK // (k * (2 * d + 4 * k)))
        tables = self.tables(parameters, beta)
        evaluate = partial(self._sums, point, tables, batch, beta)
        chunks = row_chunks(batch.start, batch.stop, size)
        sums = reduce(accumulate, parallel_map(evaluate, chunks), None)
        likelihood = expected(parameters, sums)
        penalty = divergence(parameters) * sums.sum_w / beta / self.total_weight
        return sums._replace(objective=likelihood + sums.entropy - penalty)

    def tables(self, parameters, beta):
        """What sweeps need of the parameters: M, g off the diagonal, bias, b/σ², π."""
        activation, noise = parameters.activation, parameters.noise
        products = gram(parameters)
        logit = np.log(activation) - np.log1p(-activation)
        bias = beta * (logit - 0.5 * np.diagonal(products) / noise)
        np.fill_diagonal(products, 0.0)
        scale = self.dtype.type(beta / noise)
        tables = (parameters.means, products, bias, activation)
        means, products, bias, prior = (np.asarray(t, self.dtype) for t in tables)
        return means, products, bias, scale, prior

    def infer(self, tables, rows, *kept):
        """Return ν (K, n) of a tile of rows, their entropies, and a_nk (K, n)."""
        scores = tables[0] @ rows.T
        return *self.settle(tables, scores, *kept), scores

    def settle(
        self, tables, scores, ids=NO_IDS, start=0, codes=None, after=None, n_sweeps=None
    ):
        """Return ν (K, n) of rows by their a_nk, and their entropies.

        Codes to begin with and to leave are those of all rows, of which `ids`, or those
        from `start` on, are looked at; None is none.
        """
        nothing = no_codes(tables[-1][None])
        codes, after = (nothing if c is None else c for c in (codes, after))
        nu, entropy = np.empty_like(scores), np.empty(scores.shape[1])
        most = self.inner_iter if n_sweeps is None else min(n_sweeps, self.inner_iter)
        of_rows, tol = (scores, ids, start), self.dtype.type(self.inner_tol)
        kernels.infer_codes(*of_rows, tables, most, tol, codes, after, nu, entropy)
        return nu, entropy

    def _sums(self, point, tables, batch, beta, rows):
        """Sums of a range of rows, tile by tile; the objective is left open."""
        k, d = point.parameters.means.shape
        sum_z, sum_zz, sum_zx = np.zeros(k), np.zeros((k, k)), np.zeros((k, d))
        sum_xx = sum_w = entropies = 0.0
        for start, stop in row_chunks(*rows, rows_of_a_tile(d)):
            ids = batch.index[start:stop]
            x = batch.rows[ids] if ids.size else batch.rows[start:stop]
            nu, entropy, _ = self.infer(tables, x, ids, start, point.codes, point.after)
            square = np.empty(len(x))
            kernels.squares(x, square)
            weighted, weight = nu, len(x)
            if batch.weight.size:
                w = batch.weight[ids] if ids.size else batch.weight[start:stop]
                weighted, weight = nu * w.astype(self.dtype), w.sum()
                entropy, square = entropy * w, square * w
            sum_z += weighted.sum(axis=1, dtype=np.float64)
            sum_zz += weighted @ nu.T
            sum_zx += weighted @ x
            sum_xx += square.sum()
            sum_w += weight
            entropies += entropy.sum()
        # A square of 0 or 1 is itself.
        np.fill_diagonal(sum_zz, sum_z)
        scaled = (beta * t for t in (sum_z, sum_zz, sum_zx, sum_xx, sum_w))
        return Statistics(*scaled, 0.0, entropies)

    def cooling(self, parameters):
        """Return inverse temperatures at which codes of new rows are found first.

        They begin where the components no longer compete for a row: at the largest
        eigenvalue of their covariance among rows, in units of the noise.
        """
        activation = parameters.activation
        sd = np.sqrt(activation * (1.0 - activation))
        products = gram(parameters) * sd[:, None] * sd / parameters.noise
        highest = float(np.linalg.eigvalsh(products)[-1])
        if not highest > 1.0:
            return np.empty(0)
        return 1.0 / np.geomspace(highest, 1.0, COOLING_STEPS, endpoint=False)

    def bounds(self, parameters, x, cooling=(), kept=None):
        """Return the bound of log p(x) of each row at T=1, and ν (K, n).

        Found from π on and, where there are temperatures, through those as well, and
        from codes that are `kept`, if any: what is best, row by row.
        """
        tables = self.tables(parameters, 1.0)
        nu, entropy, scores = self.infer(tables, x)
        square = np.empty(len(x))
        kernels.squares(x, square)
        constant = np.log1p(-parameters.activation).sum() - 0.5 * (
            square / parameters.noise
            + parameters.means.shape[1] * (LOG_2PI + np.log(parameters.noise))
        )
        value = entropy + self._share(parameters, tables, scores, nu)
        others = [self._cool(tables, scores, cooling)] if len(cooling) else []
        if kept is not None:
            others.append(self.settle(tables, scores, codes=kept))
        for found, entropy in others:
            other = entropy + self._share(parameters, tables, scores, found)
            better = other > value
            value = np.where(better, other, value)
            nu = np.where(better, found, nu)
        return value + constant, nu

    def evaluate(self, parameters, X, codes=True, kept=None):
        """Return the codes of rows, none without `codes`, and their bounds at T=1.

        With codes that are `kept`, these are where they are better.
        """
        X, cooling = read_only(X), self.cooling(parameters)
        n, k = len(X), len(parameters.activation)
        nu = np.empty((n if codes else 0, k), X.dtype)
        bounds = np.empty(n, X.dtype)

        def fill(start, stop):
            known = None if kept is None else kept[start:stop]
            given = parameters, X[start:stop], cooling, known
            bounds[start:stop], part = self.bounds(*given)
            if codes:
                nu[start:stop] = part.T

        map_chunks(fill, n, rows_of_a_tile(X.shape[1]))
        return nu, bounds

    @staticmethod
    def _share(parameters, tables, scores, nu):
        """Return what depends on ν of E log p(x, Z) of rows."""
        products, bias = (np.asarray(t, np.float64) for t in tables[1:3])
        # ν (a - gν/2) / σ² + ν bias, with g zero on the diagonal.
        inner = (scores - 0.5 * (products @ nu)) / parameters.noise
        return np.einsum("kn,kn->n", nu, inner + bias[:, None])

    def _cool(self, tables, scores, cooling):
        """Return ν of rows and their entropies, from π through temperatures to 1."""
        means, products, bias, scale, prior = tables
        codes = self.codes(prior, scores.shape[1])
        for b in cooling.astype(self.dtype):
            at_b = means, products, b * bias, b * scale, prior
            kept = {"codes": codes, "after": codes}
            self.settle(at_b, scores, n_sweeps=COOLING_SWEEPS, **kept)
        return self.settle(tables, scores, codes=codes)

    def recall(self, memory, point, batch):
        """Return the sums of a batch where they were remembered."""
        if not self.keep_sums:  # the visits of then leave no codes
            at, beta = memory
            memory = at._replace(after=no_codes(at.codes)), beta
        return super().recall(memory, point, batch)

    # M step

    def update(self, point, mean, correction, step):
        """Return the point after one step (Eq. 8); see `Averaging`."""
        weight = sum(part.sum_w for part in (mean, correction) if part is not None)
        # The sums are of beta times the weights.
        point = point._replace(tempered=weight < 1.0 - 1e-9)
        return super().update(point, mean, correction, step)

    def maximize(self, statistics, point, repair):
        """Return R(statistics): q(μ), then what is learned, each given the rest."""
        before = point.parameters
        sum_z, sum_zz, sum_zx, _, sum_w = statistics[:5]
        posterior = self._posterior(sum_zz, sum_zx, before)
        if posterior is None:
            return (before, ()) if repair else None
        k, d = sum_zx.shape
        means, covariance = posterior
        parameters = before._replace(means=means, covariance=covariance)
        # Tempered, components are alike: all else would be taken for noise, and a
        # prior that shrinks with them would keep them from parting.
        if point.tempered:
            return parameters, ()
        learn_noise, learn_spread, learn_activation = self.learn
        if learn_noise:
            noise = residual(parameters, statistics) / (sum_w * d)
            if not noise > 0.0:
                if not repair:
                    return None
                noise = before.noise
            parameters = parameters._replace(noise=max(noise, self.least_noise))
        if learn_spread:
            square = np.vdot(means, means) + d * np.trace(covariance)
            parameters = parameters._replace(spread=square / (k * d))
        if learn_activation:
            # Half a row on or off at least: a component may come back.
            edge = min(0.5 / self.total_weight, 0.25)
            share = np.clip(sum_z / sum_w, edge, 1.0 - edge)
            parameters = parameters._replace(activation=share)
        return parameters, ()

    def _posterior(self, sum_zz, sum_zx, parameters):
        """M and S of q(μ), or None where the precision is not positive definite.

        S⁻¹ = I / σ_μ² + N E[ZᵀZ] / σ² (or its diagonal), M = N P⁻¹ E[ZᵀX] / σ² with
        the whole of that precision P either way: the optimum over all M at once.
        """
        factor = self.total_weight / parameters.noise
        precision = factor * sum_zz
        precision.flat[:: len(precision) + 1] += 1.0 / parameters.spread
        try:
            lower = cholesky(precision, lower=True)
        except (LinAlgError, ValueError):
            return None
        means = cho_solve((lower, True), factor * sum_zx)
        if self.full:
            covariance = cho_solve((lower, True), np.eye(len(precision)))
        else:
            covariance = np.diag(1.0 / np.diagonal(precision))
        return means, covariance

    # Temperatures

    def critical_temperature(self, parameters, batch):
        r"""Return the temperature below which components at one place part.

        With all components the same, :math:`m_k = m` and :math:`\nu_{nk} = \nu_n`, let
        them move apart, :math:`\sum_k \delta_k = 0`. To first order a pass over the
        codes and the M step give, but for what S changes,

        .. math:: \delta\nu_{nk} = \frac{v_n}{T \sigma^2}\, y_n^T \delta_k, \qquad
                  \Big( \frac{\sum_n v_n}{T \sigma^2} + \frac{1}{\sigma_\mu^2} \Big)
                  \delta_k' = \frac{1}{T \sigma^2} \sum_n \delta\nu_{nk}\, y_n

        with :math:`v_n = \nu_n (1 - \nu_n)` and what a row is beside its share of m,
        :math:`y_n = x_n - K \nu_n m + (2 \nu_n - 1) m`. Hot, :math:`\nu_n` are a half
        and :math:`y_n` the row less the mean, whose covariance has the largest
        eigenvalue :math:`\lambda`: differences grow where

        .. math:: \frac{\lambda}{a} > 1 + \frac{4 a}{N \sigma_\mu^2}, \qquad
                  a = T \sigma^2,

        (Rose 1998: a below :math:`\lambda`, for clusters without a prior).
        """
        rows = batch.rows[batch.index].astype(np.float64)
        weight = batch.weight[batch.index] if batch.weight.size else np.ones(len(rows))
        share = weight / (weight.sum() or 1.0)  # all that were drawn may weigh nothing
        rows -= share @ rows
        rows *= np.sqrt(share)[:, None]
        products = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
        last = len(products) - 1
        (largest,) = eigh(products, eigvals_only=True, subset_by_index=(last, last))
        half = 0.125 * self.total_weight * parameters.spread
        return float(np.sqrt(half * (half + 2.0 * largest)) - half) / parameters.noise

    @staticmethod
    def vanished(parameters):
        """Return which components are nothing, or the same as one before them.

        Those that differ from zero, or from another, by less than the posterior's own
        deviation from its mean.
        """
        products = parameters.means @ parameters.means.T
        spread = parameters.means.shape[1] * parameters.covariance
        square, variance = np.diagonal(products), np.diagonal(spread)
        gap = square[:, None] + square - 2.0 * products
        same = gap <= variance[:, None] + variance - 2.0 * spread
        return (square <= variance) | np.tril(same, -1).any(axis=1)

    @staticmethod
    def nothing(parameters):
        """Return which components are zero, to NOTHING of their deviation."""
        square = np.square(parameters.means).sum(axis=1)
        variance = parameters.means.shape[1] * np.diagonal(parameters.covariance)
        return square <= NOTHING**2 * variance

    # What the solvers ask for

    def start(self, parameters, data=None):
        """Return the point of the given parameters, with codes for the rows of `data`.

        Its statistics are those of independent activations, and give the same means;
        where there is no covariance, it is the one that they give.
        """
        activation = parameters.activation
        sum_zz = np.outer(activation, activation)
        np.fill_diagonal(sum_zz, activation)
        codes = self.codes_of(activation, data)
        sum_zx = self._sum_zx(sum_zz, parameters)
        if parameters.covariance is None:
            _, covariance = self._posterior(sum_zz, sum_zx, parameters)
            parameters = parameters._replace(covariance=covariance)
        statistics = Statistics(activation, sum_zz, sum_zx, 0.0, 1.0, 0.0, 0.0)
        square = parameters.noise * sum_zx.shape[1] - residual(parameters, statistics)
        statistics = statistics._replace(sum_xx=square)
        return FactorialPoint(parameters, statistics, codes, codes.copy())

    def codes_of(self, activation, data):
        """Return codes of the rows of a source, or of none."""
        if data is None:
            return self.codes(activation, 0)
        return data.beside(partial(self.codes, activation), self.codes_again)

    def codes_again(self, point, rows, kept=None):
        """Return codes of rows that have lost theirs, as the components stand now.

        Found through temperatures, as the fit may have found them: from π alone, many
        would end elsewhere, and the components follow.
        """
        rows = np.asarray(rows, self.dtype)
        nu, _ = self.evaluate(point.parameters, rows, kept=kept)
        return to_fractions(nu)

    @staticmethod
    def codes(activation, n_rows):
        """Return codes of rows that have not been visited: π."""
        return np.tile(to_fractions(activation), (n_rows, 1))

    def _sum_zx(self, sum_zz, parameters):
        """E[ZᵀX] that gives the means of `parameters`."""
        inverse_factor = parameters.noise / self.total_weight
        ridge = inverse_factor / parameters.spread * parameters.means
        return sum_zz @ parameters.means + ridge

    def pack(self, point):
        """Return the point without codes that the next visits find."""
        return point._replace(after=None)

    def unpack(self, point):
        """Return the point with room for them."""
        return point._replace(after=point.codes.copy())

    def refill(self, point, data, kept=None):
        """Return the point with codes that its parameters lead to, and passes made.

        Codes that are `kept` stay where they are better.
        """
        codes = data.beside_again(partial(self.codes_again, kept=kept), point)
        return point._replace(codes=codes, after=codes.copy()), 1.0

    def for_batches(self, point, visit=None):
        """Return the point without the statistics, which sums are not made of."""
        return point._replace(statistics=None)

    def recentre(self, point):
        """Begin the next visits where the last ones have left the codes."""
        return point._replace(codes=point.after, after=point.codes)

    def surrogate(self, point, sums):
        """Return the bound (Eq. 4) of mean sums without the rows' entropies."""
        parameters = point.parameters
        penalty = divergence(parameters) / self.total_weight
        return expected(parameters, sums) - penalty

    def norm(self, point, sums):
        """Return the length of a change of statistics in units of the noise."""
        noise = point.parameters.noise
        squares = np.square(sums.sum_zx).sum() / noise
        own = np.sqrt(np.diagonal(gram(point.parameters)))
        squares += np.square(sums.sum_zz * own[:, None] * own).sum() / noise**2
        return float(np.sqrt(squares + np.square(sums.sum_z).sum()))

    def reseed(self, point, data, rng):
        """Tell components apart that have become one.

        Too hot, all components are best the same, and what is left of their
        differences takes long to grow again. One of two that agree gets noise of a
        tenth of its size; at a temperature of 1 at most once a component, so that a
        fit with more components than the data have ends.
        """
        means = point.parameters.means
        k = len(means)
        square = np.einsum("kd,kd->k", means, means)
        gap = square[:, None] + square - 2.0 * means @ means.T
        same = gap <= MERGED * 0.5 * (square[:, None] + square)
        twins = np.flatnonzero(np.tril(same, -1).any(axis=1))
        counted = point.n_reseeded + (0 if point.tempered else twins.size)
        if not twins.size or (not point.tempered and counted > k):
            return point._replace(repaired=())
        size = JITTER * np.sqrt(square[twins] / means.shape[1])
        noise = size[:, None] * rng.standard_normal((twins.size, means.shape[1]))
        means = means.copy()
        means[twins] += noise
        parameters = point.parameters._replace(means=means)
        sum_zx = self._sum_zx(point.statistics.sum_zz, parameters)
        return point._replace(
            parameters=parameters,
            statistics=point.statistics._replace(sum_zx=sum_zx),
            repaired=tuple(twins.tolist()),
            n_reseeded=counted,
        )


def to_fractions(nu):
    """Return ν as the 16-bit fractions that are kept."""
    return np.rint(nu * kernels.WHOLE).astype(np.uint16)


def from_fractions(codes):
    """Return ν of what is kept."""
    return codes / kernels.WHOLE


def no_codes(codes):
    """Return codes of no rows."""
    return np.empty((0, codes.shape[1]), np.uint16)


def rows_of_a_tile(n_features):
    """Rows of a tile, by the number of features alone."""
    return int(np.clip(TILE_SIZE // n_features, FEWEST, MOST))
