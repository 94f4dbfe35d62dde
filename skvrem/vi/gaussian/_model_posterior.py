r"""Gaussian distributions over a vector: independent, full rank, low rank and diagonal.

All have the same methods, and all are priors as well: an old posterior is the prior of
new rows. With the mean :math:`\mu` and the covariance :math:`\Sigma` of d numbers,

====================  ==========================================  ==================
class                 covariance                                  memory
====================  ==========================================  ==================
:class:`MeanField`    :math:`\mathrm{diag}(s^2)`                  d
:class:`FullRank`     :math:`L L^T`, L lower triangular           d²
:class:`LowRank`      :math:`\mathrm{diag}(\delta) + U C U^T`     d r
====================  ==========================================  ==================

with signs C, which are ones unless the covariance is less than the diagonal along some
columns of U. The low rank is never multiplied out: its inverse and determinant are
those of the r by r matrix :math:`M = C + U^T \mathrm{diag}(\delta)^{-1} U`.
"""

import copy
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import block_diag, cho_factor, solve, solve_triangular
from scipy.linalg.lapack import dpotri

LOG_2PI = np.log(2.0 * np.pi)
# Scales of priors whose squares, and squares of these, are floating-point numbers.
LEAST_SCALE, MOST_SCALE = 1e-50, 1e50
# Nats a coefficient that are left to gain where points are mixed, and what is added to
# the squares that weigh them, as a share.
MIXED_EACH, RIDGE = 0.02, 1e-8


class _GaussianDensity:
    """What all Gaussians have in common."""

    def __eq__(self, other):
        return type(self) is type(other) and all(
            np.array_equal(value, vars(other)[name])
            for name, value in vars(self).items()
        )

    __hash__ = None  # arrays can change

    @property
    def n_dim(self):
        """Number of dimensions."""
        return self.mean.size

    @property
    def scale(self):
        """Standard deviation of each dimension, an array (d,)."""
        return np.sqrt(self.variance)

    def sample(self, n_samples=1, random_state=None):
        """Draw vectors.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        random_state : int, Generator, RandomState or None, default=None
            Seeds the draws.

        Returns
        -------
        Z : ndarray of shape (n_samples, d)
            One vector a row.
        """
        if isinstance(random_state, np.random.RandomState):
            random_state = random_state.randint(2**31 - 1)
        return self.mean + self._draw(n_samples, np.random.default_rng(random_state))

    def logpdf(self, Z):
        """Return the log density of vectors.

        Parameters
        ----------
        Z : array-like of shape (n_samples, d) or (d,)
            One vector a row.

        Returns
        -------
        log_density : ndarray of shape (n_samples,), or float
            In nats.
        """
        delta = np.asarray(Z, np.float64) - self.mean
        constant = self.n_dim * LOG_2PI + self.log_determinant
        return -0.5 * (constant + np.sum(delta * self.precision_times(delta), axis=-1))

    @property
    def precision(self):
        """Inverse covariance, an array (d, d)."""
        return self.precision_times(np.eye(self.n_dim))

    def precision_operator(self):
        """Return `precision_times`, with what it needs found once."""
        return self.precision_times

    def moved(self, mean):
        """Return the same distribution about another mean (d,)."""
        other = copy.copy(self)
        other.mean = mean
        return other

    def entropy(self):
        """Return the entropy in nats."""
        return 0.5 * (self.n_dim * (1.0 + LOG_2PI) + self.log_determinant)

    def kl(self, prior):
        """Return the Kullback-Leibler divergence to another Gaussian, in nats.

        Parameters
        ----------
        prior : MeanField, FullRank or LowRank
            Of the same dimension.

        Returns
        -------
        divergence : float
            E log(self / prior) under self.
        """
        delta = self.mean - prior.mean
        distance = delta @ prior.precision_times(delta)
        ratio = prior.log_determinant - self.log_determinant
        return 0.5 * (prior.precision_trace(self) + distance - self.n_dim + ratio)


class MeanField(_GaussianDensity):
    """Independent Gaussians.

    Parameters
    ----------
    mean, scale : array-like of shape (d,)
        Means and standard deviations.
    """

    #: As of `CentredMeanField`: intercepts are those of features that are zero.
    centre = np.zeros(0)

    def __init__(self, mean, scale):
        self.mean = np.asarray(mean, np.float64)
        self.variance = np.asarray(scale, np.float64) ** 2

    @property
    def log_determinant(self):
        """Logarithm of the determinant of the covariance."""
        return float(np.log(self.variance).sum())

    @property
    def precision_diagonal(self):
        """Diagonal of the inverse covariance, an array (d,)."""
        return 1.0 / self.variance

    def precision_times(self, Z):
        """Return the inverse covariance times vectors, one a row."""
        return Z / self.variance

    def precision_trace(self, other):
        """Return the trace of the inverse covariance times another's covariance."""
        return float((other.variance / self.variance).sum())

    def covariance(self, A=None):
        """Return the covariance (m, m) of linear combinations, the rows of A (m, d)."""
        if A is None:
            return np.diag(self.variance)
        A = np.asarray(A, np.float64)
        return (A * self.variance) @ A.T

    def covariance_times(self, Z):
        """Return the covariance times vectors, one a row."""
        return Z * self.variance

    def predictor_variance(self, X):
        """Return the variance (n,) of the linear predictor of each row of X (n, d)."""
        return _square(X) @ self.variance

    def marginal(self, index):
        """Return the distribution of some of the dimensions."""
        return MeanField(self.mean[index], self.scale[index])

    def widened(self, n_more, scale):
        """Return the distribution with independent dimensions added, about zero."""
        mean = np.append(self.mean, np.zeros(n_more))
        return MeanField(mean, np.append(self.scale, np.full(n_more, scale)))

    def scaled(self, units):
        """Return the distribution of vectors times units (d,)."""
        return MeanField(units * self.mean, units * self.scale)

    def repeated(self, k):
        """Return the distribution of the coefficients of k predictors, each by this."""
        return MeanField(np.tile(self.mean, k), np.tile(self.scale, k))

    def of_first(self, k):
        """Return the distribution that is `repeated` k times."""
        some = slice(self.n_dim // k)
        return MeanField(self.mean[some], self.scale[some])

    @property
    def own(self):
        """As of `CentredMeanField`."""
        return self

    def with_origin(self, change):
        """Return the distribution with intercepts of other rows; as of `FullRank`."""
        if not change.any():
            return self
        mean, parts = (
            with_intercepts(self.mean, change),
            of_shear(self.variance, change),
        )
        return LowRank(mean, self.variance, *parts)

    def _draw(self, n_samples, rng):
        return np.sqrt(self.variance) * rng.standard_normal((n_samples, self.n_dim))


class CentredMeanField(_GaussianDensity):
    r"""Independent coefficients and intercepts that are of other rows than zero.

    With the coefficients w of a predictor's features and the intercept b behind them, w
    and :math:`b + c^T w` are independent: where c is the features' means, nothing that
    this is the prior of depends on where their zero is. The covariance of b with w is
    :math:`-c \circ s^2`, and the precision a diagonal and a rank of one.

    Parameters
    ----------
    own : MeanField
        Of the coefficients of one or more predictors, with such intercepts.
    centre : ndarray of shape (n_features,)
        c
    """

    def __init__(self, own, centre):
        self.centre = np.asarray(centre, np.float64)
        self.own_variance = own.variance
        self.mean = with_intercepts(own.mean, -self.centre)
        self.variance = own.variance.copy()
        parts = self.variance.reshape(-1, self.centre.size + 1)
        parts[:, -1] += parts[:, :-1] @ np.square(self.centre)

    @property
    def own(self):
        """The distribution of the coefficients with intercepts at the centre."""
        mean = with_intercepts(self.mean, self.centre)
        return MeanField(mean, np.sqrt(self.own_variance))

    def repeated(self, k):
        """Return the distribution of the coefficients of k predictors, each by this."""
        return CentredMeanField(self.own.repeated(k), self.centre)

    def of_first(self, k):
        """Return the distribution that is `repeated` k times."""
        return CentredMeanField(self.own.of_first(k), self.centre)

    @property
    def log_determinant(self):
        """Logarithm of the determinant of the covariance."""
        return float(np.log(self.own_variance).sum())

    @property
    def precision_diagonal(self):
        """Diagonal of the inverse covariance, an array (d,)."""
        found = 1.0 / self.own_variance
        parts = found.reshape(-1, self.centre.size + 1)
        parts[:, :-1] += np.square(self.centre) * parts[:, -1:]
        return found

    def precision_times(self, Z):
        """Return the inverse covariance times vectors, one a row."""
        own = with_intercepts(Z, self.centre) / self.own_variance
        return _seen_from(own, -self.centre)

    def precision_trace(self, other):
        """Return the trace of the inverse covariance times another's covariance."""
        k = self.n_dim // (self.centre.size + 1)
        of_centre = np.kron(np.eye(k), np.append(self.centre, 1.0))
        variance = other.variance.copy()
        variance.reshape(k, -1)[:, -1] = other.predictor_variance(of_centre)
        return float((variance / self.own_variance).sum())

    def covariance(self, A=None):
        """Return the covariance (m, m) of linear combinations, the rows of A (m, d)."""
        own = _seen_from(np.eye(self.n_dim) if A is None else A, self.centre)
        return (own * self.own_variance) @ own.T

    def covariance_times(self, Z):
        """Return the covariance times vectors, one a row."""
        own = _seen_from(Z, self.centre) * self.own_variance
        return with_intercepts(own, -self.centre)

    def predictor_variance(self, X):
        """Return the variance (n,) of the linear predictor of each row of X (n, d)."""
        return np.square(_seen_from(X, self.centre)) @ self.own_variance

    def _draw(self, n_samples, rng):
        own = np.sqrt(self.own_variance) * rng.standard_normal((n_samples, self.n_dim))
        return with_intercepts(own, -self.centre)


class FullRank(_GaussianDensity):
    """A Gaussian with any covariance, held by its Cholesky factor.

    Parameters
    ----------
    mean : array-like of shape (d,)
    factor : array-like of shape (d, d)
        Lower triangular; the covariance is the factor times its transpose.
    """

    def __init__(self, mean, factor):
        self.mean = np.asarray(mean, np.float64)
        self.factor = np.asarray(factor, np.float64)
        self.variance = np.einsum("ij,ij->i", self.factor, self.factor)

    def scaled(self, units):
        """Return the distribution of vectors times units (d,)."""
        return FullRank(units * self.mean, units[:, None] * self.factor)

    @property
    def log_determinant(self):
        """Logarithm of the determinant of the covariance."""
        return float(2.0 * np.log(np.diagonal(self.factor)).sum())

    @property
    def precision_diagonal(self):
        """Diagonal of the inverse covariance, an array (d,)."""
        return (self._whiten(np.eye(self.n_dim)) ** 2).sum(axis=0)

    def precision_times(self, Z):
        """Return the inverse covariance times vectors, one a row."""
        white = self._whiten(np.asarray(Z, np.float64).T)
        return solve_triangular(self.factor, white, lower=True, trans="T").T

    def precision_trace(self, other):
        """Return the trace of the inverse covariance times another's covariance."""
        if isinstance(other, FullRank):
            return float((self._whiten(other.factor) ** 2).sum())
        return float(other.predictor_variance(self._whiten(np.eye(self.n_dim))).sum())

    def covariance(self, A=None):
        """Return the covariance (m, m) of linear combinations, the rows of A (m, d)."""
        half = self.factor if A is None else np.asarray(A, np.float64) @ self.factor
        return half @ half.T

    def covariance_times(self, Z):
        """Return the covariance times vectors, one a row."""
        return (Z @ self.factor) @ self.factor.T

    def predictor_variance(self, X):
        """Return the variance (n,) of the linear predictor of each row of X (n, d)."""
        half = X @ self.factor
        return np.einsum("ij,ij->i", half, half)

    def marginal(self, index):
        """Return the distribution of some of the dimensions."""
        half = self.factor[index]
        return FullRank(self.mean[index], np.linalg.cholesky(half @ half.T))

    def widened(self, n_more, scale):
        """Return the distribution with independent dimensions added, about zero."""
        if not n_more:
            return self
        factor = block_diag(self.factor, scale * np.eye(n_more))
        return FullRank(np.append(self.mean, np.zeros(n_more)), factor)

    def with_origin(self, change):
        """Return the distribution with intercepts of other rows.

        Parameters
        ----------
        change : ndarray of shape (n_features,)
            Intercepts, behind the coefficients of each predictor, become those of rows
            from here.
        """
        if not change.any():
            return self
        factor = with_intercepts(self.factor.T, change).T
        return FullRank(with_intercepts(self.mean, change), factor)

    def _whiten(self, columns):
        return solve_triangular(self.factor, columns, lower=True)

    def _draw(self, n_samples, rng):
        return rng.standard_normal((n_samples, self.n_dim)) @ self.factor.T


class LowRank(_GaussianDensity):
    """A Gaussian whose covariance is a diagonal plus, or minus, a low rank.

    Parameters
    ----------
    mean : array-like of shape (d,)
    diagonal : array-like of shape (d,)
        Variances beside the low rank.
    factor : array-like of shape (d, r)
        The low rank is the factor, times signs, times its transpose.
    sign : array-like of shape (r,), default=None
        1 or -1 for each column of the factor; None is 1 for all.
    """

    def __init__(self, mean, diagonal, factor, sign=None):
        self.mean = np.asarray(mean, np.float64)
        self.diagonal = np.asarray(diagonal, np.float64)
        self.factor = np.asarray(factor, np.float64)
        rank = self.factor.shape[1]
        self.sign = np.ones(rank) if sign is None else np.asarray(sign, np.float64)
        self.variance = self.diagonal + np.square(self.factor) @ self.sign

    def scaled(self, units):
        """Return the distribution of vectors times units (d,)."""
        factor = units[:, None] * self.factor
        return LowRank(units * self.mean, units**2 * self.diagonal, factor, self.sign)

    @property
    def log_determinant(self):
        """Logarithm of the determinant of the covariance."""
        # That of M C, which is positive as the covariance is.
        inner = np.linalg.slogdet(self._inner())[1]
        return float(np.log(self.diagonal).sum() + inner)

    @property
    def precision_diagonal(self):
        """Diagonal of the inverse covariance, an array (d,)."""
        half, sign = self._correction()
        return 1.0 / self.diagonal - sign @ np.square(half)

    def precision_times(self, Z):
        """Return the inverse covariance times vectors, one a row."""
        return self.precision_operator()(Z)

    def precision_operator(self):
        """Return `precision_times`, with what it needs found once."""
        half, sign = self._correction()
        return lambda Z: Z / self.diagonal - ((Z @ half.T) * sign) @ half

    def precision_trace(self, other):
        """Return the trace of the inverse covariance times another's covariance."""
        half, sign = self._correction()
        rest = sign @ other.predictor_variance(half)
        return float((other.variance / self.diagonal).sum() - rest)

    def covariance(self, A=None):
        """Return the covariance (m, m) of linear combinations, the rows of A (m, d)."""
        if A is None:
            return np.diag(self.diagonal) + (self.factor * self.sign) @ self.factor.T
        A = np.asarray(A, np.float64)
        half = A @ self.factor
        return (A * self.diagonal) @ A.T + (half * self.sign) @ half.T

    def covariance_times(self, Z):
        """Return the covariance times vectors, one a row."""
        return Z * self.diagonal + ((Z @ self.factor) * self.sign) @ self.factor.T

    def marginal(self, index):
        """Return the distribution of some of the dimensions."""
        return LowRank(
            self.mean[index], self.diagonal[index], self.factor[index], self.sign
        )

    def widened(self, n_more, scale):
        """Return the distribution with independent dimensions added, about zero."""
        return LowRank(
            np.append(self.mean, np.zeros(n_more)),
            np.append(self.diagonal, np.full(n_more, scale**2)),
            np.concatenate([self.factor, np.zeros((n_more, self.factor.shape[1]))]),
            self.sign,
        )

    def with_origin(self, change):
        """Return the distribution with intercepts of other rows; as of `FullRank`."""
        if not change.any():
            return self
        mean, factor = with_intercepts(self.mean, change), self.factor.T
        more, sign = of_shear(self.diagonal, change)
        factor = np.column_stack([with_intercepts(factor, change).T, more])
        return LowRank(mean, self.diagonal, factor, np.append(self.sign, sign))

    def predictor_variance(self, X):
        """Return the variance (n,) of the linear predictor of each row of X (n, d)."""
        return _square(X) @ self.diagonal + np.square(X @ self.factor) @ self.sign

    def directions(self):
        r"""Return orthonormal V (d, r) and what the variance is along them.

        With the roots s of the diagonal the covariance is :math:`\mathrm{diag}(s) (I +
        V (\mathrm{diag}(\omega) - I) V^T) \mathrm{diag}(s)`; returns V and
        :math:`\omega`, which is 1 where there is no more than the diagonal.
        """
        Q, R = np.linalg.qr(self.factor / np.sqrt(self.diagonal)[:, None])
        more, turn = np.linalg.eigh((R * self.sign) @ R.T)
        return Q @ turn, 1.0 + more

    def _inner(self):
        """M."""
        inner = self.factor.T @ (self.factor / self.diagonal[:, None])
        inner.flat[:: len(inner) + 1] += self.sign
        return inner

    def _correction(self):
        """Root (r, d) and signs of what the low rank takes from the inverse."""
        values, vectors = np.linalg.eigh(self._inner())
        root = vectors.T / np.sqrt(np.abs(values))[:, None]
        return root @ (self.factor / self.diagonal[:, None]).T, np.sign(values)

    def _draw(self, n_samples, rng):
        own = rng.standard_normal((n_samples, self.n_dim))
        V, variance = self.directions()
        own += ((own @ V) * (np.sqrt(variance) - 1.0)) @ V.T
        return own * np.sqrt(self.diagonal)


class FlatPrior:
    """No prior at all: a density that is 1 everywhere.

    The divergence of a Gaussian to it is minus its entropy.

    Parameters
    ----------
    n_dim : int
    """

    def __init__(self, n_dim):
        self.n_dim = n_dim
        self.mean = self.precision_diagonal = np.zeros(n_dim)
        self.log_determinant = -n_dim * LOG_2PI

    precision = _GaussianDensity.precision

    def scaled(self, units):
        """Return the same: it knows no units."""
        return self

    def logpdf(self, Z):
        """Return the logarithms of the density."""
        return np.zeros(np.shape(Z)[:-1])

    def precision_times(self, Z):
        """Return zeros."""
        return np.zeros(np.shape(Z))

    def precision_trace(self, other):
        """Return zero."""
        return 0.0


def with_intercepts(vectors, change):
    """Return vectors (..., D) of coefficients with intercepts of rows from `change`."""
    if not change.size:
        return vectors
    found, parts = _of_predictors(vectors, change.size)
    parts[..., -1] += parts[..., :-1] @ change
    return found


def _seen_from(rows, centre):
    """Return rows (..., D), whose intercepts have a one, less so many times `centre`.

    They have the predictors of before with intercepts that are those there.
    """
    found, parts = _of_predictors(rows, centre.size)
    parts[..., :-1] -= parts[..., -1:] * centre
    return found


def _of_predictors(vectors, n_features):
    """Return a copy of vectors (..., D), and a view of it, (..., k, p)."""
    found = np.array(vectors, np.float64, order="C")
    *lengths, size = found.shape
    return found, found.reshape(*lengths, size // (n_features + 1), n_features + 1)


def of_shear(variance, change):
    r"""Return what variances of coefficients with other intercepts have beside them.

    With the intercept :math:`b + c^T w`, its unit vector e, :math:`d = s^2 \circ c` and
    :math:`g = c^T d` that is :math:`g e e^T + e d^T + d e^T = (\sqrt g e + d /
    \sqrt g) (\sqrt g e + d / \sqrt g)^T - d d^T / g`.

    Returns
    -------
    factor : ndarray of shape (D, r)
        Two columns for each predictor.
    sign : ndarray of shape (r,)
    """
    parts = variance.reshape(-1, change.size + 1).copy()
    k, p = parts.shape
    parts[:, :-1] *= change
    root = np.sqrt(parts[:, :-1] @ change)
    parts[:, -1] = 0.0
    parts /= np.where(root > 0.0, root, 1.0)[:, None]
    factor = np.zeros((k, p, k, 2))
    every = np.arange(k)
    factor[every, :, every] = parts[:, :, None]
    factor[every, -1, every, 0] = root
    return factor.reshape(k * p, 2 * k), np.tile([1.0, -1.0], k)


def _square(X):
    return X.multiply(X) if sparse.issparse(X) else np.square(X)


class Trace(NamedTuple):
    """What is kept of a point, for mixtures with later ones.

    Attributes
    ----------
    precision : ndarray of shape (D, D)
        Where a step of length one leads.
    shift : ndarray of shape (D,)
        There, precision times mean.
    way : Way
        Of the point, without what `precision` is.
    """

    precision: np.ndarray
    shift: np.ndarray
    way: Any


def mixture(traces):
    """Return the mixture of where steps lead that leaves the least way, about.

    In natural parameters, precision and precision times mean, steps are straight, and
    ways are measured by the covariance, whatever the units (Anderson 1965). None of one
    point alone, or far from the end, where what is left of the way is no linear
    function of the point, or where it is no distribution.

    Parameters
    ----------
    traces : list of Trace
        The newest last.

    Returns
    -------
    precision, covariance : ndarray of shape (D, D)
    mean : ndarray of shape (D,)
    """
    *others, last = traces
    if not others or last.way.predicted > MIXED_EACH * last.shift.size:
        return None
    ways = [(t.way.drift, t.way.slope, t.way.move) for t in traces]
    precision, shift = last.precision.copy(), last.shift.copy()
    try:
        shares = solve(*inner_products(ways[:-1], ways[-1]), assume_a="pos")
        for share, other in zip(shares, others, strict=True):
            precision += share * (other.precision - last.precision)
            shift += share * (other.shift - last.shift)
        covariance = inverse_of(cholesky(precision))
    except np.linalg.LinAlgError:
        return None
    return precision, covariance, covariance @ shift


def inner_products(others, last):
    """Return inner products of ways (drift, slope, move), by their covariances.

    Of those by which the ways of others differ from the last one, with each other, a
    matrix to which a small ridge is added, and with the last way, of the other sign.
    """
    away = [[a - b for a, b in zip(other, last, strict=True)] for other in others]

    def inner(a, b):
        by_mean = a[1] @ b[2] + b[1] @ a[2]
        return 0.5 * (by_mean + np.einsum("ij,ji->", a[0], b[0]))

    matrix = np.array([[inner(a, b) for b in away] for a in away])
    matrix.flat[:: len(away) + 1] *= 1.0 + RIDGE
    return matrix, np.array([-inner(a, last) for a in away])


def cholesky(matrix):
    """Return the factor of a matrix, as `scipy.linalg.cho_solve` takes it."""
    if not np.isfinite(matrix).all():
        raise np.linalg.LinAlgError("it has entries that are not finite")
    return cho_factor(matrix, lower=True, check_finite=False)


def inverse_of(root):
    """Return the inverse of a matrix by its factor, as `cholesky` returns it."""
    lower, failed = dpotri(root[0], lower=True)
    if failed:
        raise np.linalg.LinAlgError("its factor has zeros on the diagonal")
    inverse = np.tril(lower)
    return inverse + np.tril(inverse, -1).T
