r"""The Gaussian mixture: parameters, statistics, E step, M step.

.. math:: p(x) = \sum_k \pi_k N(x; \mu_k, \Sigma_k), \qquad
          r_{ik} \propto \exp\{\beta (\log \pi_k + \log N(x_i; \mu_k, \Sigma_k))\}

with the inverse temperature :math:`\beta`, 1 but while annealing. The statistics of
the rows i with weights w are taken about reference points :math:`c_k`,

.. math:: N_k = \sum_i w_i r_{ik}, \quad
          s_k = \sum_i w_i r_{ik} (x_i - c_k), \quad
          S_k = \sum_i w_i r_{ik} (x_i - c_k)(x_i - c_k)^T

(only the diagonal of :math:`S_k` for "diag" and "spherical"), and the M step R is

.. math:: \pi_k = N_k / \sum_l N_l, \quad \mu_k = c_k + s_k / N_k, \quad
          \Sigma_k = S_k / N_k - (\mu_k - c_k)(\mu_k - c_k)^T + \epsilon I .

The kernels take them about the components' current means, so that nothing cancels;
they are moved to the reference of the epoch afterwards, exactly, as they are sums.
"""

from functools import reduce
from typing import NamedTuple

import numpy as np

from skvrem.mixture import _kernels, _kernels_m_step
from skvrem.utils._algebra import accumulate
from skvrem.utils._averaging import Averaging, AveragingPoint
from skvrem.utils._parallel import parallel_map, row_chunks

# Rows a thread takes of a minibatch.
STEP_ROWS = 4096
# Rows scored to find a place for a collapsed component.
RESEED_ROWS = 10_000
# Rows that a component must have where there are no covariances of the columns, else
# two for each row of the matrix and the mean.
FEWEST_ROWS = 5
LOG_2PI = float(np.log(2.0 * np.pi))


class Parameters(NamedTuple):
    """Parameters of a mixture; shapes of the last two as in scikit-learn.

    Attributes
    ----------
    weights : ndarray of shape (n_components,)
    means : ndarray of shape (n_components, n_features)
    covariances, precisions_cholesky : ndarray
        (k, d, d) "full", (d, d) "tied", (k, d) "diag", (k,) "spherical".
        The Cholesky factors are upper triangular, precision = U U^T.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    precisions_cholesky: np.ndarray


class Statistics(NamedTuple):
    """Sums over rows; see the solvers' protocol for the two numbers."""

    sum_w: np.ndarray
    sum_x: np.ndarray
    sum_xx: np.ndarray
    objective: float
    entropy: float


def precisions_cholesky(covariances):
    """Return upper U with inverse(covariance) = U U^T, and where there is none.

    Parameters
    ----------
    covariances : ndarray of shape (..., n_features, n_features)

    Returns
    -------
    factors : ndarray of shape (..., n_features, n_features)
    bad : ndarray of bool of shape (...)
    """
    shape, d = covariances.shape[:-2], covariances.shape[-1]
    stack = np.ascontiguousarray(covariances, np.float64).reshape(-1, d, d)
    factors, bad = np.zeros_like(stack), np.zeros(len(stack), bool)
    _kernels_m_step.precisions_cholesky(stack, np.empty_like(stack), factors, bad)
    return factors.reshape(covariances.shape), bad.reshape(shape)


class GaussianMixtureModel(Averaging):
    """Gaussian mixture with one of scikit-learn's four covariance types.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    reg_covar : float
        Added to the diagonals of the covariances in the M step.
    missing : bool
        Rows may hold NaN, to be integrated out ("diag" and "spherical").
    keep_sums : bool
        Variance reduction keeps the sums of every batch. Otherwise it keeps the
        anchor's parameters and evaluates them again: no memory, one more pass.
    """

    def __init__(self, covariance_type, reg_covar, missing=False, keep_sums=True):
        self.covariance_type = covariance_type
        self.reg_covar = reg_covar
        self.missing = missing
        self.keep_sums = keep_sums
        self.recall_passes = 0 if keep_sums else 1
        self.n_reseeded = 0
        self._arguments = None, None

    @property
    def dense(self):
        """Whether the statistics hold whole scatter matrices."""
        return self.covariance_type in ("full", "tied")

    # E step

    def _kernel_arguments(self, parameters):
        """Parameters as kernels take them: one factor a component, constants."""
        # A point is evaluated several times: its last batch, the surrogate, the norm.
        if self._arguments[0] is parameters:
            return self._arguments[1]
        means, factors = parameters.means, parameters.precisions_cholesky
        factors = self.by_component(factors, *means.shape)
        diagonals = np.diagonal(factors, axis1=1, axis2=2) if self.dense else factors
        with np.errstate(divide="ignore"):
            log_constants = np.log(parameters.weights)
        log_constants -= 0.5 * means.shape[1] * LOG_2PI
        log_constants += np.log(diagonals).sum(axis=1)
        arguments = means, np.ascontiguousarray(factors), log_constants
        self._arguments = parameters, arguments
        return arguments

    def by_component(self, array, k, d):
        """Return covariances or factors with the axes of the statistics."""
        if self.covariance_type == "tied":
            return np.broadcast_to(array, (k, d, d))
        if self.covariance_type == "spherical":
            return np.broadcast_to(array[:, None], (k, d))
        return array

    def statistics(self, point, batch, beta):
        """Return the statistics of a batch about the point's reference."""
        k, d = point.parameters.means.shape
        arguments, variances = self._kernel_arguments(point.parameters), None
        if self.missing:
            # What a missing entry is expected to add. The M step adds reg_covar, so
            # it is left out here: a feature that is never seen keeps its variance.
            variances = 1.0 / np.square(arguments[1]) - self.reg_covar
            variances = np.maximum(variances, 0.0)

        def evaluate(rows):
            sum_w, sum_x = np.zeros(k), np.zeros((k, d))
            sum_xx = np.zeros((k, d, d) if self.dense else (k, d))
            of_rows = batch.rows, batch.index, *rows, batch.weight
            how = *arguments, beta, variances
            sums = sum_w, sum_x, sum_xx
            return Statistics(*sums, *_kernels.visit_rows(*of_rows, *how, sums, None))

        chunks = [(batch.start, batch.stop)]
        if batch.index.size:  # a minibatch; a full pass comes in chunks already
            chunks = row_chunks(batch.start, batch.stop, STEP_ROWS)
        sums = reduce(accumulate, parallel_map(evaluate, chunks), None)
        sums = self.translate(sums, point.parameters.means, point.reference)
        if self.missing:
            # That of the missing entries, which the kernel integrates out, as well.
            entropy = sums.objective - self.surrogate(point, sums)
            sums = sums._replace(entropy=entropy)
        return sums

    def log_joint(self, parameters, batch, dtype):
        """Return log p(x_i, k), an array of shape (n_rows, n_components)."""
        out = np.empty((batch.n_units, len(parameters.weights)), dtype)
        of_rows = batch.rows, batch.index, batch.start, batch.stop, np.empty(0)
        arguments = self._kernel_arguments(parameters)
        missing = parameters.means if self.missing else None
        _kernels.visit_rows(*of_rows, *arguments, 1.0, missing, None, out)
        return out

    # M step

    def maximize(self, statistics, point, repair):
        """Return R(statistics) and the components that were left as they were."""
        sum_w, sum_x, sum_xx = statistics[:3]
        before = point.parameters
        empty = ~(sum_w > 10 * np.finfo(float).eps)
        if empty.any() and not repair:
            return None
        safe = np.where(empty, 1.0, sum_w)
        shift = sum_x / safe[:, None]
        means = np.where(empty[:, None], before.means, point.reference + shift)
        weights = np.where(empty, 0.0, sum_w)
        weights = weights / weights.sum()
        covariances = self._covariances(safe, sum_x, sum_xx)
        factors, keep = self.precisions_cholesky(covariances)
        if keep.any() and not repair:
            return None
        if keep.ndim:  # a covariance for each component
            keep |= empty
            empty = keep
        if keep.any():
            where = keep.reshape(keep.shape + (1,) * (covariances.ndim - keep.ndim))
            covariances = np.where(where, before.covariances, covariances)
            factors = np.where(where, before.precisions_cholesky, factors)
        parameters = Parameters(weights, means, covariances, factors)
        return parameters, tuple(np.flatnonzero(empty).tolist())

    def _covariances(self, sum_w, sum_x, sum_xx):
        if self.covariance_type == "full":
            covariances = np.empty_like(sum_xx)
            _kernels_m_step.full_covariances(
                sum_w, sum_x, sum_xx, self.reg_covar, covariances
            )
            return covariances
        shift = sum_x / sum_w[:, None]
        if self.covariance_type == "tied":
            covariances = sum_xx.sum(axis=0) - (sum_w[:, None] * shift).T @ shift
            covariances /= sum_w.sum()
            covariances.flat[:: len(covariances) + 1] += self.reg_covar
            return covariances
        covariances = sum_xx / sum_w[:, None] - np.square(shift)
        if self.covariance_type == "spherical":
            covariances = covariances.mean(axis=1)
        return covariances + self.reg_covar

    def is_singular(self, statistics):
        """Whether statistics give no component a covariance with an inverse."""
        alive = statistics.sum_w > 10 * np.finfo(float).eps
        sum_w = np.where(alive, statistics.sum_w, 1.0)
        covariances = self._covariances(sum_w, *statistics[1:3])
        return bool((self.precisions_cholesky(covariances)[1] | ~alive).all())

    def precisions_cholesky(self, covariances):
        """Upper Cholesky factors of the precisions, and which do not exist."""
        if self.dense:
            return precisions_cholesky(covariances)
        bad = ~(np.isfinite(covariances) & (covariances > 0.0))
        factors = 1.0 / np.sqrt(np.where(bad, 1.0, covariances))
        return factors, (bad.any(axis=1) if bad.ndim == 2 else bad)

    # What the solvers ask for

    def start(self, parameters):
        """Return the point whose statistics give `parameters`, about its means."""
        weights, means, covariances, _ = parameters
        k, d = means.shape
        constant = self.reg_covar * (np.eye(d) if self.dense else 1.0)
        variances = self.by_component(covariances, k, d) - constant
        sum_xx = weights.reshape((k,) + (1,) * (variances.ndim - 1)) * variances
        statistics = Statistics(weights, np.zeros((k, d)), sum_xx, 0.0, 0.0)
        return AveragingPoint(parameters, statistics, means)

    def recentre(self, point):
        """Take statistics about the current means."""
        means = point.parameters.means
        statistics = self.translate(point.statistics, point.reference, means)
        return point._replace(statistics=statistics, reference=means)

    def translate(self, sums, reference, new_reference):
        """Return sums about `reference` as sums about `new_reference`."""
        if reference is new_reference:
            return sums
        delta = reference - new_reference
        sum_w, sum_x, sum_xx = sums[:3]
        if self.dense:
            moved_x, moved_xx = np.empty_like(sum_x), np.empty_like(sum_xx)
            _kernels_m_step.full_translate(
                sum_w, sum_x, sum_xx, delta, moved_x, moved_xx
            )
        else:
            moved_x = sum_x + sum_w[:, None] * delta
            moved_xx = sum_xx + delta * (sum_x + moved_x)
        return sums._replace(sum_x=moved_x, sum_xx=moved_xx)

    def surrogate(self, point, sums):
        """Return Q of `sums`, the expected complete-data log-likelihood.

        A row's: Chen et al. 2018, Eq. 2, over N.
        """
        parameters = point.parameters
        means, factors, log_constants = self._kernel_arguments(parameters)
        about = self.translate(sums, point.reference, means)
        if self.dense:
            # tr(U U^T S) = sum of the elements of U * (S U)
            distance = np.einsum("kij,kij->k", factors, about.sum_xx @ factors)
        else:
            distance = (np.square(factors) * about.sum_xx).sum(axis=1)
        alive = about.sum_w != 0.0
        constants = np.where(alive, log_constants, 0.0)
        return float(about.sum_w @ constants - 0.5 * distance.sum())

    def norm(self, point, sums):
        """Return the length of a change of statistics in units of the components."""
        _, factors, _ = self._kernel_arguments(point.parameters)
        if self.dense:
            x = np.einsum("ki,kij->kj", sums.sum_x, factors)
            xx = factors.transpose(0, 2, 1) @ sums.sum_xx @ factors
            squares = 0.5 * np.square(xx).sum(axis=(1, 2))
        else:
            x = sums.sum_x * factors
            squares = 0.5 * np.square(sums.sum_xx * np.square(factors)).sum(axis=1)
        squares += np.square(sums.sum_w) + np.square(x).sum(axis=1)
        weights = np.maximum(point.parameters.weights, np.finfo(float).tiny)
        return float(np.sqrt((squares / weights).sum()))

    def variances(self, parameters):
        """Return the variances of the columns, shape (n_components, n_features)."""
        shape = parameters.means.shape
        covariances = self.by_component(parameters.covariances, *shape)
        return np.diagonal(covariances, axis1=1, axis2=2) if self.dense else covariances

    def n_own_parameters(self, n_features):
        """Return how many numbers a component has that it does not share."""
        d = n_features
        widths = {"full": d * (d + 1) // 2, "tied": 0, "diag": d, "spherical": 1}
        return 1 + d + widths[self.covariance_type]

    def fewest_rows(self, n_features):
        """Return how many rows a component must have not to be one of outliers."""
        return 2 * (n_features + 1) if self.dense else FEWEST_ROWS

    def n_degenerate(self, point, data):
        """Return how many components have too few rows.

        Their likelihood is high for no structure of the data.
        """
        fewest = self.fewest_rows(data.n_features)
        return int((point.parameters.weights * data.n_units < fewest).sum())

    def reseed(self, point, data, rng):
        """Re-seed components that have lost their rows where the density is lowest.

        A component is gone when less than half a row belongs to it, or when its
        covariance has no Cholesky factor. It gets the mean of a badly explained row
        and the average covariance of the others. At most one re-seeding a component
        on average, so that a fit with more components than distinct rows ends.
        """
        parameters = point.parameters
        k = len(parameters.weights)
        dead = parameters.weights * data.n_units < 0.5
        dead[list(point.repaired)] = True
        n_dead = int(dead.sum())
        if n_dead == 0 or n_dead == k or self.n_reseeded + n_dead > k:
            return point._replace(repaired=())
        self.n_reseeded += n_dead
        sample = data.sample(RESEED_ROWS, rng)
        log_joint = self.log_joint(parameters, sample, np.float64)
        density = np.logaddexp.reduce(log_joint[:, ~dead], axis=1)
        if sample.weight.size:
            density[sample.weight[sample.ids] == 0.0] = np.inf
        rows = sample.rows[sample.ids[np.argsort(density)[:n_dead]]].astype(float)
        weights, means = parameters.weights.copy(), parameters.means.copy()
        covariances = parameters.covariances
        means[dead] = np.where(np.isnan(rows), weights @ means, rows)
        weights[dead] = 0.5 / k
        weights /= weights.sum()
        if self.covariance_type != "tied":
            covariances = covariances.copy()
            alive = parameters.weights[~dead]
            covariances[dead] = np.average(covariances[~dead], axis=0, weights=alive)
        factors, _ = self.precisions_cholesky(covariances)
        reseeded = self.start(Parameters(weights, means, covariances, factors))
        return reseeded._replace(repaired=tuple(np.flatnonzero(dead).tolist()))
