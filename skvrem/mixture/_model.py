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
from skvrem.utils._algebra import Packed, accumulate
from skvrem.utils._averaging import Averaging, AveragingPoint
from skvrem.utils._columns import values_of
from skvrem.utils._parallel import parallel_map, row_chunks

# Rows a thread takes of a minibatch.
STEP_ROWS = 4096
# Rows scored to find a place for a collapsed component.
RESEED_ROWS = 10_000
# Rows that a component must have where there are no covariances of the columns, else
# two for each row of the matrix and the mean.
FEWEST_ROWS = 5
# So many times as many are a class, whatever its width, where no other lies about it.
CLASS = 2.5
# Times `reg_covar`, the variance along some axis below which `reg_covar` is most of it.
NARROW = 2.0
# Share of the squared length of an axis that lies along columns of atoms.
ALONG = 0.99
# Rows that are looked at for atoms.
LOOK = 2000
LOG_2PI = float(np.log(2.0 * np.pi))
# Of a component that has lost its rows, as a share of all.
LEAST_WEIGHT = 10.0 * float(np.finfo(float).eps)


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


class Statistics(Packed):
    """Sums over rows; see the solvers' protocol for the two numbers."""

    __slots__ = ()
    names = "sum_w", "sum_x", "sum_xx", "objective", "entropy"


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
    _kernels_m_step.precisions_cholesky(stack, factors, bad, np.empty((d, d)))
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
        self._seen = None

    @property
    def dense(self):
        """Whether the statistics hold whole scatter matrices."""
        return self.covariance_type in ("full", "tied")

    # E step

    def by_component(self, array):
        """Return covariances or factors with the axes of the statistics.

        An axis along which they are all the same is of length 1.
        """
        if self.covariance_type == "tied":
            return array[None]
        return array[:, None] if self.covariance_type == "spherical" else array

    def _shapes(self, k, d):
        return (k,), (k, d), ((k, d, d) if self.dense else (k, d)), (), ()

    def statistics(self, point, batch, beta):
        """Return the statistics of a batch about the point's reference."""
        weights, means, _, factors = point.parameters
        factors, variances = self.by_component(factors), None
        k, d = means.shape
        if self.missing:
            # What a missing entry is expected to add. The M step adds reg_covar, so
            # it is left out here: a feature that is never seen keeps its variance.
            variances = np.maximum(1.0 / np.square(factors) - self.reg_covar, 0.0)
            variances = np.ascontiguousarray(np.broadcast_to(variances, (k, d)))
        size, shapes = (
            k * (1 + d + (d * d if self.dense else d)) + 2,
            self._shapes(k, d),
        )
        of_parameters = weights, means, factors, beta, variances

        def evaluate(rows):
            sums = Statistics(np.zeros(size), shapes)
            of_rows = batch.rows, batch.index, *rows, batch.weight
            how = *of_parameters, point.reference
            _kernels.visit_rows(*of_rows, *how, sums.values, None)
            return sums

        rows = batch.start, batch.stop
        # A minibatch; a full pass comes in chunks already.
        if batch.index.size and batch.n_units > STEP_ROWS:
            parts = parallel_map(evaluate, row_chunks(*rows, STEP_ROWS))
            sums = reduce(accumulate, parts)
        else:
            sums = evaluate(rows)
        if self.missing:
            # That of the missing entries, which the kernel integrates out, as well.
            sums.values[-1] = sums.objective - self.surrogate(point, sums)
        return sums

    def log_joint(self, parameters, batch, dtype):
        """Return log p(x_i, k), an array of shape (n_rows, n_components)."""
        out = np.empty((batch.n_units, len(parameters.weights)), dtype)
        weights, means, _, factors = parameters
        # Weights of the type that sums have: parts of the kernel are those of sums.
        of_rows = batch.rows, batch.index, batch.start, batch.stop, batch.weight
        of_parameters = weights, means, self.by_component(factors), 1.0
        missing = means if self.missing else None
        _kernels.visit_rows(*of_rows, *of_parameters, missing, means, None, out)
        return out

    # M step

    def maximize(self, statistics, point, repair):
        """Return R(statistics) and the components that were left as they were."""
        before, reference = point.parameters, point.reference
        k, d = reference.shape
        shape, left = before.covariances.shape, np.empty(k, bool)
        after = np.empty(k), np.empty((k, d)), np.zeros(shape), np.empty(shape)
        after = Parameters(*after)
        n_left = _kernels_m_step.maximize(
            statistics.values,
            reference,
            self.reg_covar,
            LEAST_WEIGHT,
            repair,
            self._views(before),
            self._views(after),
            left,
            np.empty((d, d)),
        )
        if n_left < 0:
            return None
        return after, tuple(np.flatnonzero(left).tolist()) if n_left else ()

    def _views(self, parameters):
        weights, means, *rest = parameters
        return weights, means, *map(self.by_component, rest)

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
        shapes = self._shapes(*means.shape)
        constant = self.reg_covar * (np.eye(means.shape[1]) if self.dense else 1.0)
        variances = self.by_component(covariances) - constant
        sum_xx = weights.reshape((-1,) + (1,) * (variances.ndim - 1)) * variances
        sum_xx = np.broadcast_to(sum_xx, shapes[2])
        statistics = Statistics.of(weights, np.zeros(shapes[1]), sum_xx, 0.0, 0.0)
        return AveragingPoint(parameters, statistics, means)

    def for_batches(self, point, visit=None):
        """Return the point without the statistics, which sums are not made of."""
        return point._replace(statistics=None)

    def recentre(self, point):
        """Take statistics about the current means."""
        means = point.parameters.means
        statistics = self.translate(point.statistics, point.reference, means)
        return point._replace(statistics=statistics, reference=means)

    def translate(self, sums, reference, new_reference):
        """Return sums about `reference` as sums about `new_reference`."""
        if reference is new_reference:
            return sums
        moved = np.empty_like(sums.values)
        _kernels_m_step.translate(sums.values, reference - new_reference, moved)
        return Statistics(moved, sums.shapes)

    def surrogate(self, point, sums):
        """Return Q of `sums`, the expected complete-data log-likelihood.

        A row's: Chen et al. 2018, Eq. 2, over N.
        """
        weights, means, _, factors = point.parameters
        factors = self.by_component(factors)
        about = self.translate(sums, point.reference, means)
        sum_w, _, sum_xx = about[:3]
        if self.dense:
            # tr(U U^T S) = sum of the elements of U * (S U)
            distance = (factors * (sum_xx @ factors)).sum()
            roots = np.diagonal(factors, axis1=1, axis2=2)
        else:
            distance = (np.square(factors) * sum_xx).sum()
            roots = np.broadcast_to(factors, means.shape)
        with np.errstate(divide="ignore"):
            constants = np.log(weights) + np.log(roots).sum(axis=1)
        constants -= 0.5 * means.shape[1] * LOG_2PI
        constants = np.where(sum_w != 0.0, constants, 0.0)
        return float(sum_w @ constants - 0.5 * distance)

    def norm(self, point, sums):
        """Return the length of a change of statistics in units of the components."""
        weights = point.parameters.weights
        factors = self.by_component(point.parameters.precisions_cholesky)
        sum_w, sum_x, sum_xx = sums[:3]
        if self.dense:
            x = (sum_x[:, None] @ factors)[:, 0]
            xx = factors.transpose(0, 2, 1) @ sum_xx @ factors
            squares = 0.5 * np.square(xx).sum(axis=(1, 2))
        else:
            x = sum_x * factors
            squares = 0.5 * np.square(sum_xx * np.square(factors)).sum(axis=1)
        squares += np.square(sum_w) + np.square(x).sum(axis=1)
        return float(
            np.sqrt((squares / np.maximum(weights, np.finfo(float).tiny)).sum())
        )

    def variances(self, parameters):
        """Return the variances of the columns, shape (n_components, n_features)."""
        variances = self.by_component(parameters.covariances)
        if self.dense:
            variances = np.diagonal(variances, axis1=1, axis2=2)
        return np.broadcast_to(variances, parameters.means.shape)

    def n_own_parameters(self, n_features):
        """Return how many numbers a component has that it does not share."""
        d = n_features
        widths = {"full": d * (d + 1) // 2, "tied": 0, "diag": d, "spherical": 1}
        return 1 + d + widths[self.covariance_type]

    def fewest_rows(self, n_features):
        """Return how many rows a component must have not to be one of outliers."""
        return 2 * (n_features + 1) if self.dense else FEWEST_ROWS

    def n_degenerate(self, point, data):
        """Return how many components have too few rows, or no width but `reg_covar`.

        Their likelihood is high for no structure of the data, but of a covariance that
        all share, and of a class of many rows in which a column is constant.
        """
        if self.covariance_type == "tied":
            return 0
        rows = point.parameters.weights * data.n_units
        fewest = self.fewest_rows(data.n_features)
        narrow, cut = self._narrow(point, data, NARROW)
        if self.covariance_type == "full" and narrow.any():
            narrow &= (rows < CLASS * fewest) | cut & ~self._apart(point)
        return int(((rows < fewest) | narrow).sum())

    def _narrow(self, point, data, wide):
        """Return which components have no width but `reg_covar` along some axis.

        The data are to have more than `wide` times that variance along it, and no atom
        where the component lies.

        Returns
        -------
        narrow, cut : ndarrays of shape (n_components,), bool
            `cut` are those of which such an axis lies along columns whose values come
            again, as rounded ones do.
        """
        factors = self.by_component(point.parameters.precisions_cholesky)
        of_data, axes = self.spread(point)[1], None
        if self.dense:
            # Not of the covariances, whose small eigenvalues are lost to rounding where
            # columns are of different scales.
            axes, factors, _ = np.linalg.svd(factors)
            of_data = np.einsum("kji,jl,kli->ki", axes, of_data, axes)
        elif self.covariance_type == "spherical":
            of_data = of_data.mean()
        narrow = NARROW * self.reg_covar * np.square(factors) > 1.0
        narrow &= of_data > wide * self.reg_covar
        if not narrow.any():
            none = np.zeros(len(narrow), bool)
            return none, none
        atoms, again = self.seen(data)
        means = point.parameters.means
        at = (np.square(means[:, None] - atoms) <= NARROW * self.reg_covar).any(axis=1)
        again = np.broadcast_to(again, means.shape)
        if self.dense:
            at, again = (
                np.einsum("kji,kj->ki", np.square(axes), columns) > ALONG
                for columns in (at, again)
            )
        elif self.covariance_type == "spherical":
            at = at.all(axis=1)[:, None]
        narrow &= ~at
        return narrow.any(axis=1), (narrow & again).any(axis=1)

    def seen(self, data):
        """Return `values_of` the data, of the first that were looked at."""
        if self._seen is None:
            sample = data.sample(LOOK, np.random.default_rng(0))
            self._seen = values_of(sample.rows[sample.ids])
        return self._seen

    def has_atoms(self, data):
        """Whether a component may be narrow at a value of one column alone."""
        of_columns = self.covariance_type in ("full", "diag")
        return of_columns and not np.isnan(self.seen(data)[0]).all()

    def spread(self, point):
        """Return the mean of all rows, and their scatter about it, shape of one part.

        A component's statistics do not matter, only their sums.
        """
        sums = point.statistics
        total = sums.sum_w.sum()
        mean = point.reference.T @ sums.sum_w + sums.sum_x.sum(axis=0)
        mean /= total
        scatter = self.translate(sums, point.reference, mean).sum_xx.sum(axis=0)
        return mean, scatter / total

    def collapsed(self, point, data, wide):
        """Return which components are narrow for no structure of the data, bool.

        They have too few rows for a matrix, or their mean lies among the rows of
        another one: a plane cut out of it, by a value that comes again where
        measurements are rounded, or of few rows. Others may be classes in which a
        column is constant, and planes that no chance puts so many rows on.
        """
        if self.covariance_type != "full":
            return np.zeros(len(point.parameters.weights), bool)
        rows = point.parameters.weights * data.n_units
        narrow, cut = self._narrow(point, data, wide)
        cut = cut | (rows < CLASS * self.fewest_rows(data.n_features))
        few = rows < data.n_features + 0.5
        return narrow & (few | cut & ~self._apart(point))

    @staticmethod
    def _apart(point):
        """Return which components, "full", have their means beside all others, bool."""
        means, factors = point.parameters.means, point.parameters.precisions_cholesky
        away = (means[:, None, None] - means[:, None]) @ factors
        distances = np.square(away[:, :, 0]).sum(axis=2)
        np.fill_diagonal(distances, np.inf)
        return distances.min(axis=1) >= means.shape[1]

    def reseed(self, point, data, rng, n_rows=None):
        """Re-seed components that have lost their rows where the density is lowest.

        A component is gone when less than half a row belongs to it, or when its
        covariance has no Cholesky factor. It gets the mean of a badly explained row
        and the average covariance of the others. At most one re-seeding a component
        on average, so that a fit with more components than distinct rows ends. The
        statistics are means over `n_rows`, of a stream more than the data are.
        """
        parameters = point.parameters
        k = len(parameters.weights)
        dead = parameters.weights * (n_rows or data.n_units) < 0.5
        dead[list(point.repaired)] = True
        dead[np.flatnonzero(dead)[data.n_units :]] = False
        n_dead = int(dead.sum())
        counted = point.n_reseeded + n_dead
        if n_dead == 0 or n_dead == k or counted > k:
            return point._replace(repaired=())
        sample = data.sample(RESEED_ROWS, rng)
        dead[np.flatnonzero(dead)[sample.ids.size :]] = False  # others weigh nothing
        log_joint = self.log_joint(parameters, sample, np.float64)
        density = np.logaddexp.reduce(log_joint[:, ~dead], axis=1)
        lowest = np.argsort(density)[: int(dead.sum())]
        rows = sample.rows[sample.ids[lowest]].astype(float)
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
        repaired = tuple(np.flatnonzero(dead).tolist())
        return reseeded._replace(repaired=repaired, n_reseeded=counted)
