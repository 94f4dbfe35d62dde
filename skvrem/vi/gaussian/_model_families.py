r"""Likelihoods, and their expectations where the predictors are Gaussian.

A family answers for rows with predictors :math:`z \sim N(a, V)` what
``skvrem.vi.gaussian._kernels`` says: loss, residual and curvature, each an
expectation. With one
predictor a row these are integrals over one dimension, by Gauss-Hermite quadrature or
in closed form; with K of them, sums over nodes of a quasi-Monte-Carlo rule whose mean
and covariance are exact, so that they err from the fourth order on.

Expectation propagation (Minka 2001) has a site :math:`\exp(b z - h z^2 / 2)` in place
of the likelihood of a predictor: of precision h and shift b. Its cavity is the Gaussian
of all others, and the site gives it the mean and the variance that the likelihood does.
"""

from functools import lru_cache

import numpy as np
from scipy.special import digamma, expit, gammaln, ndtri, softmax

from skvrem.vi.gaussian import _kernels

# Nodes and weights of the expectation under a standard normal.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS /= WEIGHTS.sum()
# Pairs of nodes for several predictors, and where fewer do: of so many rows, and so
# many for each feature, predictors vary little, and the nodes' error is as the fourth
# power of that.
MANY_PAIRS, FEW_PAIRS, MANY_ROWS, ROWS_A_FEATURE = 64, 16, 10_000, 100
# Products that a node costs for each predictor, and how many times the nodes there are
# where rows cost that much without; and classes beyond which there are more anyway.
NODE_COST, BESIDE, MANY_CLASSES = 20, 8, 16
# How many times the nodes a refined rule has, and numbers of a pass that it may make.
FINER, MOST_REFINED = 8, 3 << 23
# Sets of nodes that rows are scattered over, and pairs in each, by the number of rows
# up to which; and numbers that all of them may have.
SCATTERED = ((2000, 64, 128), (16_000, 256, 64), (np.inf, 512, 32))
MOST_NUMBERS = 1 << 22
# Probabilities, in nodes of one, that nodes alone do not tell, as they end after some
# three standard deviations; how far those for the tails reach; and the logarithm of the
# least probability there is.
FEW_NODES, REACH, LEAST_LOG = 4.0, 6.0, -700.0
# What mixes the bits of a key; of rows whose nodes are those of all.
GOLDEN, NO_KEYS = np.uint64(0x9E3779B97F4A7C15), np.empty(0, np.uint64)
# Bits of a variance that a key does not have, 12 digits being left: so rounding hardly
# ever tells. A factor keeps variances that are fractions of small numbers off its ends.
UNTOLD, OFF_ENDS = np.uint64(40), 0.7548776662466927
# Least share of a precision that a site has, and the most, but for rounding errors.
LEAST_SITE, MOST_SITE = 1e-10, 1.0 - 1e-10
# Nats that no rows lose, whose targets have finite fourth powers: products of what is
# larger would overflow.
OVERFLOWED = 1e100


def keys_of(variance):
    """Return keys (m,) of rows by how much a predictor varies by its prior, (m,).

    Which it does whatever the units, zeros, order or coordinates of the features are;
    and rows that are there twice have the same.
    """
    bits = (OFF_ENDS * variance.astype(np.float64)).view(np.uint64)
    return (bits >> UNTOLD) * GOLDEN


def cubature(n_dim, n_pairs):
    """Return nodes (2 n_pairs, n_dim) and weights for a standard normal vector.

    Shifted Sobol points mapped to normals, in pairs of opposite sign, whitened: odd
    moments vanish and second moments are those of the normal.
    """
    # A shift by the golden ratio keeps points off 0, which maps to infinity.
    nodes = _opposite_normals(n_dim, n_pairs, 0.6180339887498949 + 0.5 / n_pairs)
    root = np.linalg.cholesky(nodes.T @ nodes / len(nodes))
    nodes = np.linalg.solve(root, nodes.T).T
    return np.ascontiguousarray(nodes), np.full(len(nodes), 1.0 / len(nodes))


def shifted_nodes(n_dim, n_pairs, n_sets, rng):
    """Return sets of nodes whose sums have no error on average over `rng`.

    Sobol points shifted by a random vector a set, in pairs of opposite sign, of shape
    (n_sets, n_dim, 2 n_pairs).
    """
    shifts = rng.uniform(1e-9, 1.0, (n_sets, 1, n_dim))
    nodes = _opposite_normals(n_dim, n_pairs, shifts)
    return np.ascontiguousarray(nodes.swapaxes(1, 2))


def _opposite_normals(n_dim, n_pairs, shift):
    """Return shifted Sobol points mapped to normals, and then their opposites."""
    half = ndtri((_sobol(n_dim, n_pairs) + shift) % 1.0)
    return np.concatenate([half, -half], axis=-2)


@lru_cache(maxsize=8)
def _sobol(n_dim, n_points):
    """Return Sobol points, which take longer to make than nodes of them."""
    from scipy.stats import qmc

    return qmc.Sobol(n_dim, scramble=False).random(n_points)


class _Family:
    """Exponential families with their natural parameters as predictors."""

    #: What divides residuals and curvatures.
    dispersion = 1.0
    #: Whether expectations grow without bound where predictors are uncertain.
    overflows = False
    #: Whether nodes of a row are turned by its key.
    turns = False

    def expected_loss(self, *given):
        """Return the loss of `expectations` alone."""
        return self.expectations(*given)[0]

    def residual(self, z, y):
        """Return d log p(y | z) / dz at predictors (m, k)."""
        return (self.indicator(y) - self.mean(z)) / self.dispersion

    def beside(self, n_products):
        """Return the family with nodes for rows that cost as many products without."""
        return self

    def without_offset(self, z, y):
        """Return predictors (..., m, k) with the offset in them, and targets (m,)."""
        return (z, y) if y.ndim == 1 else (z + y[:, 1:], y[:, 0])

    def indicator(self, y):
        """Return targets as columns (m, k), whose mean is the mean."""
        return y[:, None]

    def variance_times(self, mean, t):
        """Return minus the second derivative at a mean (m, k), times t (m, k)."""
        return self.variance_of(mean) * t / self.dispersion


class Logistic(_Family):
    """Two classes: y in [0, 1] is the probability of the second."""

    n_predictors = 1
    #: Number under which the kernels know the family.
    code = 0

    nodes, node_weights = NODES, WEIGHTS

    def expectations(self, a, v, y, weight):
        """Return loss, residual (m, 1) and curvature (m, 1) for a, v of (m, 1)."""
        residual, curvature = np.empty(len(a)), np.empty(len(a))
        nodes, node_weights = self.nodes, self.node_weights
        if not v.any():  # nothing to integrate over
            nodes, node_weights = np.zeros(1), np.ones(1)
        loss = _kernels.logistic_expectations(
            a[:, 0], v[:, 0], y, weight, nodes, node_weights, residual, curvature
        )
        return loss, residual[:, None], curvature[:, None]

    def log_likelihood(self, z, y):
        """Return log p(y | z) of predictors (..., 1), of shape (...)."""
        z = z[..., 0]
        return y * z - np.logaddexp(0.0, z)

    def draw(self, z, rng):
        """Return draws of y (...) at predictors (..., 1)."""
        return (rng.random(z.shape[:-1]) < expit(z[..., 0])).astype(float)

    def mean(self, z):
        """Return E(y | z)."""
        return expit(z)

    def variance_of(self, mean):
        """Return Var(y | z) by the mean."""
        return mean * (1.0 - mean)


class PoissonCounts(_Family):
    """Counts with the logarithm of their mean as predictor.

    A second column of targets is an offset, which is added to the predictor.
    """

    n_predictors = 1
    code = 1
    overflows = True

    def expectations(self, a, v, y, weight):
        """See :class:`Logistic`; E exp(z) = exp(a + v / 2)."""
        a, y = self.without_offset(a, y)
        a, v = a[:, 0], v[:, 0]
        w = weight if weight.size else 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            rate = np.exp(a + 0.5 * v)
            loss = np.sum(w * (rate - y * a + gammaln(y + 1.0)))
        if not loss < OVERFLOWED:  # no step leads here, nor on from here
            loss, rate = np.inf, np.zeros(rate.shape)
        return float(loss), (w * (y - rate))[:, None], (w * rate)[:, None]

    def log_likelihood(self, z, y):
        """Return log p(y | z) of predictors (..., 1), of shape (...)."""
        z, y = self.without_offset(z, y)
        z = z[..., 0]
        return y * z - np.exp(z) - gammaln(y + 1.0)

    def draw(self, z, rng):
        """Return draws of y (...) at predictors (..., 1)."""
        return rng.poisson(np.exp(z[..., 0])).astype(float)

    def mean(self, z):
        """Return E(y | z)."""
        return np.exp(z)

    def variance_of(self, mean):
        """Return Var(y | z) by the mean."""
        return mean


class OverdispersedCounts(_Family):
    r"""Negative binomial counts with the logarithm of their mean as predictor.

    Their variance is :math:`\mu + \mu^2 / r` for the mean :math:`\mu` and the
    concentration r. With :math:`s = z - \log r` the log-likelihood is that of y ones
    among y + r draws of a logistic regression,

    .. math:: y s - (y + r) \log(1 + e^s)
              + \log \frac{\Gamma(y + r)}{\Gamma(r) \, y!} .

    A second column of targets is an offset, which is added to the predictor.
    """

    n_predictors = 1
    code = None

    def __init__(self, concentration):
        self.concentration = concentration

    def expectations(self, a, v, y, weight):
        """See :class:`Logistic`."""
        a, y = self.without_offset(a, y)
        r, n = self.concentration, y + self.concentration
        w = weight if weight.size else np.ones(len(y))
        row = a - np.log(r), v, y / n, w * n
        loss, residual, curvature = Logistic().expectations(*row)
        return float(loss - w @ self._constant(y)), residual, curvature

    def slope(self, a, v, y, weight):
        """Return the derivative of the expected loss by the log-concentration."""
        a, y = self.without_offset(a, y)
        r, w = self.concentration, weight if weight.size else np.ones(len(y))
        # Of log(1 + e^s) alone, and of the predictor, that the concentration shifts.
        row = a - np.log(r), v, np.zeros(len(y)), w
        loss, residual, _ = Logistic().expectations(*row)
        shift = w @ y + (y + r) @ residual[:, 0]
        return float(shift + r * (loss - w @ (digamma(y + r) - digamma(r))))

    def _constant(self, y):
        r = self.concentration
        return gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)

    def log_likelihood(self, z, y):
        """Return log p(y | z) of predictors (..., 1), of shape (...)."""
        z, y = self.without_offset(z, y)
        s, r = z[..., 0] - np.log(self.concentration), self.concentration
        return y * s - (y + r) * np.logaddexp(0.0, s) + self._constant(y)

    def draw(self, z, rng):
        """Return draws of y (...) at predictors (..., 1)."""
        r = self.concentration
        return rng.negative_binomial(r, r / (r + np.exp(z[..., 0]))).astype(float)

    def mean(self, z):
        """Return E(y | z)."""
        return np.exp(z)


class GaussianNoise(_Family):
    """Real numbers with noise of a given variance about the predictor."""

    n_predictors = 1
    code = 2

    def __init__(self, variance):
        #: What divides residuals is the noise itself.
        self.variance = self.dispersion = variance

    def expectations(self, a, v, y, weight):
        """See :class:`Logistic`."""
        a, v = a[:, 0], v[:, 0]
        w = weight if weight.size else np.ones(len(a))
        error = y - a
        loss = np.square(error) + v + self.variance * np.log(2 * np.pi * self.variance)
        loss = 0.5 * float(w @ loss) / self.variance
        residual, curvature = w * error / self.variance, w / self.variance
        return loss, residual[:, None], curvature[:, None]

    def log_likelihood(self, z, y):
        """Return log p(y | z) of predictors (..., 1), of shape (...)."""
        square = np.square(y - z[..., 0]) / self.variance
        return -0.5 * (square + np.log(2.0 * np.pi * self.variance))

    def draw(self, z, rng):
        """Return draws of y (...) at predictors (..., 1)."""
        return rng.normal(z[..., 0], np.sqrt(self.variance))

    def mean(self, z):
        """Return E(y | z)."""
        return z

    def variance_of(self, mean):
        """Return Var(y | z) over the dispersion."""
        return np.ones_like(mean)


class Softmax(_Family):
    """Several classes with a predictor each; y are their numbers.

    Parameters
    ----------
    n_classes : int
    n_rows : int, default=0
        Of a fit. Predictions have none, as one row's may not depend on the others.
    n_pairs : int, default=None
        Of nodes; None is as many as are enough for so many rows.
    by_root : bool, default=True
        Curvatures are the slopes of the sums over nodes, so that steps climb to the top
        of just these; else they are sums over nodes themselves.
    n_features : int, default=0
        Of a fit, which take rows to be known.
    """

    code = 3
    turns = True

    def __init__(self, n_classes, n_rows=0, n_pairs=None, by_root=True, n_features=0):
        self.n_predictors, self.n_rows = n_classes, n_rows
        if n_pairs is None:
            many = n_rows >= max(MANY_ROWS, ROWS_A_FEATURE * n_features)
            n_pairs = FEW_PAIRS if many else MANY_PAIRS
        # A power of two, as the points are made for, and twice the classes at least: of
        # fewer some lie in a space of fewer dimensions, so that nothing whitens them.
        self.n_pairs = max(n_pairs, 1 << (2 * n_classes - 1).bit_length())
        self.by_root = by_root
        self.nodes, self.node_weights = cubature(n_classes, self.n_pairs)
        self.columns = np.ascontiguousarray(self.nodes.T)

    def beside(self, n_products):
        """Return the family with more nodes where they take no longer than the rest.

        Steps that few nodes send astray are many: of many classes there are twice as
        many nodes, whatever they take.
        """
        if self.n_pairs < MANY_PAIRS:
            return self
        times = 2 if self.n_predictors > MANY_CLASSES else 1
        if n_products >= NODE_COST * BESIDE * MANY_PAIRS * self.n_predictors:
            times = BESIDE
        # Of classes that have more anyway, no more than of others.
        times = times * MANY_PAIRS // self.n_pairs
        return self.finer(times) if times > 1 else self

    def finer(self, times=FINER):
        """Return the family with so many times the nodes."""
        n_pairs = times * self.n_pairs
        return Softmax(self.n_predictors, self.n_rows, n_pairs, self.by_root)

    @property
    def most_refined(self):
        """Rows that a pass with the nodes of `finer` may have."""
        return MOST_REFINED // (2 * FINER * self.n_pairs * self.n_predictors)

    @property
    def can_refine(self):
        """Whether more nodes would not take too long."""
        return self.n_rows <= self.most_refined

    def refined(self):
        """Return the family with more nodes, None where they would take too long."""
        return self.finer() if self.can_refine else None

    def expectations(self, a, half, y, weight, keys=NO_KEYS):
        """Return loss, residual (m, k) and curvature, as wide as `half`.

        Of rows with keys (m,), nodes are turned by these; `half` are roots then.
        """
        return self._sums(a, half, y, weight, keys, self.columns)

    def _sums(self, a, half, y, weight, keys, nodes):
        residual, curvature = np.empty(a.shape), np.empty(half.shape)
        node_weights = self.node_weights
        if not half.any():  # nothing to integrate over
            nodes, node_weights = np.zeros((len(nodes), 1)), np.ones(1)
        rule = nodes, node_weights, self.by_root
        loss = _kernels.softmax_expectations(
            a, half, y, weight, keys, *rule, residual, curvature
        )
        return loss, residual, curvature

    def log_likelihood(self, z, y):
        """Return log p(y | z) of predictors (..., m, k), of shape (..., m)."""
        top = z.max(axis=-1, keepdims=True)
        mass = np.log(np.exp(z - top).sum(axis=-1)) + top[..., 0]
        numbers = np.broadcast_to(y[:, None], (*z.shape[:-1], 1))
        return np.take_along_axis(z, numbers, axis=-1)[..., 0] - mass

    def indicator(self, y):
        """Return targets as columns (m, k), whose mean is the mean."""
        return np.eye(self.n_predictors)[y]

    def draw(self, z, rng):
        """Return draws of the numbers of classes (...) at predictors (..., k)."""
        # The largest of logits with Gumbel's noise (Maddison et al. 2014).
        return (z + rng.gumbel(size=z.shape)).argmax(axis=-1)

    def mean(self, z):
        """Return the probabilities of the classes."""
        return softmax(z, axis=-1)

    def variance_times(self, mean, t):
        """Return minus the second derivative at a mean (m, k), times t (m, k)."""
        return mean * (t - np.sum(mean * t, axis=1, keepdims=True))


class ScatteredSoftmax(Softmax):
    """Several classes, with nodes that differ from row to row.

    Nodes that all rows share err for all of them alike. Of sets with random shifts
    each errs by chance, and errors average out over rows. A row's set follows from its
    numbers, so that a row that is there twice counts twice.
    """

    by_root = False

    def __init__(self, n_classes, n_rows):
        self.n_predictors = n_classes
        n_sets, n_pairs = next(sizes for most, *sizes in SCATTERED if n_rows <= most)
        n_sets = int(np.clip(MOST_NUMBERS // (2 * n_pairs * n_classes), 1, n_sets))
        rng = np.random.default_rng(0)
        self.sets = shifted_nodes(n_classes, n_pairs, n_sets, rng)
        self.node_weights = np.full(2 * n_pairs, 0.5 / n_pairs)

    def sets_of(self, X):
        """Return the number of the set of nodes of each row of X (m, d)."""
        bits = np.ascontiguousarray(X, np.float64) + 0.0  # no zero is negative
        odd = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64)
        mixed = (bits.view(np.uint64) * (2 * odd + 1)).sum(axis=1, dtype=np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * GOLDEN
        return ((mixed >> np.uint64(33)) % np.uint64(len(self.sets))).astype(np.intp)

    def expectations(self, a, half, y, weight, sets):
        """See :class:`Softmax`; sets (m,) are numbers of the rows' sets of nodes."""
        residual, curvature = np.empty(a.shape), np.empty(half.shape)
        loss = self._scattered(a, half, y, weight, sets, residual, curvature)
        return loss, residual, curvature

    def expected_loss(self, a, half, y, weight, sets):
        """Return the loss alone, in much less time."""
        nothing = np.empty((0, half.shape[1]))
        return self._scattered(a, half, y, weight, sets, np.empty(a.shape), nothing)

    def _scattered(self, a, half, y, weight, sets, residual, curvature):
        """Fill residuals and, where there is room, curvatures; return the loss."""
        if not half.any():  # nothing to integrate over
            nothing = np.zeros((self.n_predictors, 1)), np.ones(1)
            return _kernels.softmax_expectations(
                a, half, y, weight, NO_KEYS, *nothing, False, residual, curvature
            )
        order = np.argsort(sets, kind="stable")
        kinds = sets[order]
        ends = np.append(np.flatnonzero(np.diff(kinds)) + 1, len(kinds))
        first, second = np.empty(a.shape), np.empty(curvature.shape)
        loss = _kernels.scattered_expectations(
            a[order],
            half[order],
            y[order],
            weight[order] if weight.size else weight,
            NO_KEYS,
            ends,
            kinds[ends - 1],
            self.sets,
            self.node_weights,
            first,
            second,
        )
        residual[order] = first
        if curvature.size:
            curvature[order] = second
        return loss


def probabilities(family, z):
    """Return probabilities (..., n_classes) of classes at logits (..., k)."""
    if family.n_predictors > 1:
        return family.mean(z)
    return np.concatenate([family.mean(-z), family.mean(z)], axis=-1)


def expected_probabilities(family, a, half):
    """Return expected probabilities (m, n_classes) of classes with Gaussian logits.

    `family` is Logistic or Softmax; a and half are as it wants them.
    """
    if family.n_predictors == 1:
        return _of_two(a, half)
    # A residual is the indicator of a class minus probability, whose digits cancel: of
    # a probable class some are left.
    top = a.argmax(axis=1).astype(np.int32)
    _, residual, _ = family.expectations(a, half, top, np.empty(0))
    p = -residual
    p[np.arange(len(p)), top] += 1.0
    if half.any():
        n = len(family.nodes)
        away = REACH * (_evenly(n) * 2.0 - 1.0)
        _kernels.softmax_tails(a, half, family.columns, away, FEW_NODES / n, p)
    return p


def _evenly(n):
    """Return n numbers between 0 and 1, those of opposite nodes side by side."""
    place = np.arange(n // 2)
    return np.concatenate([place + 0.25, place + 0.75]) / (n // 2)


def _of_two(a, v):
    """Return expected probabilities (m, 2) of two classes.

    Of the less probable one, of which no digit may cancel, and one minus that. With
    s for the logistic function, E s(z) is exp(a + v / 2) E s(-z - v): so what is very
    improbable, too, is a number near one, times a factor that is known.
    """
    low = -np.abs(a)
    far = low < -0.5 * v
    factor = np.where(far, np.exp(np.clip(low + 0.5 * v, LEAST_LOG, 0.0)), 1.0)
    y = np.zeros(len(a))
    near = np.where(far, -(low + v), low)
    _, residual, _ = Logistic().expectations(near, v, y, np.empty(0))
    small = np.maximum(-residual * factor, np.exp(LEAST_LOG))
    first = np.where(a > 0.0, small, 1.0 - small)
    return np.concatenate([first, np.where(a > 0.0, 1.0 - small, small)], axis=1)


def cavity_variance(variance, precision):
    """Return variances of predictors without their sites, of such precisions."""
    return variance / (1.0 - np.minimum(variance * precision, MOST_SITE))


def cavity_mean(mean, variance, precision, shift):
    """Return means of predictors without their sites, and with those variances."""
    return mean + variance * (precision * mean - shift)


def sites(mean, variance, without, spread):
    """Return precisions and shifts of sites, which give predictors their moments.

    Parameters
    ----------
    mean, variance : ndarray of shape (n,)
        Of predictors, as their likelihoods have it.
    without, spread : ndarray of shape (n,)
        Mean and variance of their cavities.
    """
    precision = np.maximum(1.0 / variance, (1.0 + LEAST_SITE) / spread) - 1.0 / spread
    return precision, precision * mean + (mean - without) / spread
