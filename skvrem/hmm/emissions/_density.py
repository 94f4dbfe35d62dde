r"""Families that are known by their log-density alone.

In the coordinates u of a state (``_coordinates.py``), what rows say of parameters close
to those at hand, :math:`u_0`, is a second-order expansion,

.. math:: \log f(y; u) \approx \log f(y; u_0) + g^T (u - u_0)
          + \tfrac{1}{2} (u - u_0)^T C (u - u_0) = a + b^T u + \tfrac{1}{2} u^T C u ,

linear in the features (a, b, C) of a row. So the E step, which takes the log-density
itself, is exact, an M step is a step of Newton's method on the expected log-likelihood,
and sums of features can be averaged, though rows were seen at different parameters: a
sum of expansions is that of the sum. Where steps no longer move, gradients are zero.
"""

import numpy as np

from skvrem.hmm.emissions._base import Emission, fill
from skvrem.hmm.emissions._coordinates import IMPOSSIBLE, rescale

# Step of differences, of second ones too, in coordinates of the size of 1.
STEP = 1e-4
# A step changes no coordinate by more, and no direction counts as flatter than this
# share of the steepest.
LONGEST, FLAT = 1.0, 1e-6


class DensityEmission(Emission):
    """Base of families of columns that are independent given the state.

    A subclass must define

    - ``parameter_scales``: names of the parameters, and what they are: "location" (of
      the unit of the column), "real", "positive" or "probability";
    - ``log_density(x, *parameters)``: as ``logpdf`` and ``logpmf`` of scipy.stats, of
      arrays that are spread against each other;
    - ``sample(rng, *parameters)``: a value for each of the parameters, which are arrays
      of one shape.

    It may define ``cdf(x, *parameters)``, of which residuals are made, and says by
    ``discrete = True`` that values have probabilities. Everything else is as of
    :class:`Emission`: ``check(X)`` says what values there are, ``blank()`` where a
    search for starting values begins, ``moments(parameters)`` spares an average over
    draws, and parameters that the constructor takes can be fixed.

    A pass evaluates ``log_density`` in every state at points around the parameters, 9
    for two of them, 19 for three. Where its features are the same for all parameters,
    an :class:`Emission` is faster.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from skvrem.hmm import VRHMM, DensityEmission
    >>> class Logistic(DensityEmission):
    ...     parameter_scales = {"middle": "location", "width": "positive"}
    ...     def log_density(self, x, middle, width):
    ...         return stats.logistic.logpdf(x, middle, width)
    ...     def sample(self, rng, middle, width):
    ...         return rng.logistic(middle, width)
    >>> rng = np.random.default_rng(0)
    >>> X = rng.logistic(np.repeat([[0.0], [9.0]], 200, axis=0))
    >>> hmm = VRHMM(2, emission=Logistic(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.middle_.ravel()).round()
    array([0., 9.])
    """

    required = "parameter_scales", "log_density", "sample"
    follows = True
    #: Whether values have probabilities.
    discrete = False
    _kinds = 1

    def prepare(self, X):
        """Look at the rows of a fit: units, and what users gave."""
        tiny, largest = np.finfo(float).tiny, np.finfo(float).max
        ends = {"positive": (tiny, largest), "probability": (0.0, 1.0)}
        for name, scale in self.parameter_scales.items():
            self._check_given(name, *ends.get(scale, (-largest, largest)))
        filled = fill(np.asarray(X, float))
        self._typical = filled[len(X) // 2]
        located = [scale == "location" for scale in self.parameter_scales.values()]
        width = filled.std(axis=0)
        self._zero = np.outer(located, filled.mean(axis=0))
        self._unit = np.ones_like(self._zero)
        self._unit[located] = np.where(width > 0.0, width, 1.0)
        self._upper = np.triu_indices(len(located))

    # Coordinates (n_states, n_parameters, n_columns): locations in widths of a column

    def scales(self):
        """Return the scale of every column of the parameters."""
        return ["real" if scale == "location" else scale for scale in super().scales()]

    def blank(self):
        """Return parameters for states that have no rows at all."""
        rows = super().blank().reshape(self.n_states_, *self._zero.shape)
        return (rows + self._zero).reshape(self.n_states_, -1)

    def _coordinates(self, parameters):
        u = rescale(parameters, self.scales(), "to")
        return (u.reshape(-1, *self._zero.shape) - self._zero) / self._unit

    def _values(self, u):
        """Return the parameters of coordinates, one array of a row a state."""
        u = (self._zero + self._unit * u).reshape(len(u), -1)
        return rescale(u, self.scales(), "back")

    def free(self, parameters):
        """Return the free coordinates."""
        return self._coordinates(parameters).reshape(parameters.shape)[self.varies()]

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        varies, u = self.varies(), self._coordinates(parameters)
        u.reshape(parameters.shape)[varies] = vector
        return np.where(varies, self._values(u), parameters)

    # Features of rows: masks, the log-density, a, b, the upper triangle of C

    def _pairs(self):
        n_parameters = len(self.parameter_scales)
        n = 3 + n_parameters + len(self._upper[0])
        return [(column, self.ONE) for column in range(n * self.n_columns_)]

    def features(self, missing):
        """Return the columns of every feature, in each state its own."""
        n, width = self.n_states_, len(self._pairs())
        first = np.arange(n * width).reshape(n, width)
        return self._merge(np.stack([first, np.full_like(first, self.ONE)], axis=2))

    def columns(self, X, missing, parameters=None):
        """Return the features of rows in every state, by parameters."""
        n, width = self.n_states_, len(self._pairs())
        if parameters is None:
            return np.zeros((len(X), n * width))
        seen = ~np.isnan(X)
        x = np.where(seen, X, self._typical).astype(float)[:, None]
        u = self._coordinates(parameters)
        log_f, b, C = self._expand(x, u)
        i, j = self._upper
        square = _products(u, i, j)
        shape = log_f.shape
        Cu = np.zeros(b.shape)
        for k in range(len(i)):
            Cu[:, :, i[k]] += C[:, :, k] * u[:, j[k]]
            if i[k] != j[k]:
                Cu[:, :, j[k]] += C[:, :, k] * u[:, i[k]]
        b = b - Cu
        a = log_f - (b * u).sum(axis=2) - (C * square).sum(axis=2)
        ones = np.ones((*shape[:2], 1, shape[2]))
        parts = ones, log_f[:, :, None], a[:, :, None], b, C
        found = np.concatenate(parts, axis=2) * seen[:, None, None]
        return found.reshape(len(X), n * width)

    @np.errstate(all="ignore")  # of what is impossible
    def _expand(self, x, u):
        """Return log f, its gradient and its Hessian of rows x (n_rows, 1, n_columns).

        Of shapes (n_rows, n_states, n_columns), and the same with parameters, or pairs
        of these, before the last axis. Derivatives of what is impossible are 0.
        """
        i, j = self._upper
        n_parameters = u.shape[1]

        def at(*steps):
            moved = u.copy()
            for k, step in steps:
                moved[:, k] += step
            values = np.hsplit(self._values(moved), n_parameters)
            return np.asarray(self.log_density(x, *values), float)

        here = at()
        ends = {(k, s): at((k, s)) for k in range(n_parameters) for s in (STEP, -STEP)}
        gradient, hessian = [], []
        for k in range(n_parameters):
            gradient.append((ends[k, STEP] - ends[k, -STEP]) / (2.0 * STEP))
        for k, m in zip(i, j, strict=True):
            if k == m:
                corners = ends[k, STEP] - 2.0 * here + ends[k, -STEP]
                hessian.append(corners / STEP**2)
                continue
            corners = at((k, STEP), (m, STEP)) + at((k, -STEP), (m, -STEP))
            corners -= at((k, STEP), (m, -STEP)) + at((k, -STEP), (m, STEP))
            hessian.append(corners / (4.0 * STEP**2))
        gradient, hessian = np.stack(gradient, axis=2), np.stack(hessian, axis=2)
        known = np.isfinite(gradient).all(axis=2) & np.isfinite(hessian).all(axis=2)
        gradient = np.where(known[:, :, None], gradient, 0.0)
        hessian = np.where(known[:, :, None], hessian, 0.0)
        return np.where(here > IMPOSSIBLE, here, IMPOSSIBLE), gradient, hessian

    def theta(self, parameters):
        """Return the coefficients of a, b and C; those of the others are 0."""
        u = self._coordinates(parameters)
        zeros = np.zeros((len(u), 2, self.n_columns_))
        ones, square = np.ones_like(zeros[:, :1]), _products(u, *self._upper)
        theta = np.concatenate([zeros, ones, u, square], axis=1)
        return theta.reshape(len(u), -1)

    def kernel_theta(self, parameters):
        """Return the coefficients of the log-density, which is exact."""
        width = len(self._pairs())
        log_f = np.arange(width) // self.n_columns_ == 1
        return np.tile(log_f.astype(float), (len(parameters), 1))

    def _quadratic(self, parameters, features):
        """Return coordinates, gradients there and C, parameters in the last axes."""
        u = self._coordinates(parameters).swapaxes(1, 2)
        n_parameters = u.shape[2]
        sums = features.reshape(len(u), -1, self.n_columns_).swapaxes(1, 2)
        b, packed = np.split(sums[:, :, 3:], [n_parameters], axis=2)
        C = np.zeros((*u.shape, n_parameters))
        i, j = self._upper
        C[:, :, i, j] = C[:, :, j, i] = packed
        return u, b + (C @ u[..., None])[..., 0], C

    def maximize(self, features, before, repair):
        """Return the parameters after a step of Newton's method, of limited length."""
        weight = features[:, : self.n_columns_]
        if not repair and weight.min() < 0.0:
            return None
        u, gradient, C = self._quadratic(before, features)
        varies = self.varies().reshape(len(u), -1, self.n_columns_).swapaxes(1, 2)
        gradient = np.where(varies, gradient, 0.0)
        both = varies[..., None] & varies[:, :, None]
        values, vectors = np.linalg.eigh(np.where(both, -C, 0.0))
        # Towards less where the log-likelihood is not concave, too.
        values = np.abs(values)
        values = np.maximum(values, FLAT * values.max(axis=-1, keepdims=True))
        values = np.maximum(values, np.finfo(float).tiny)
        along = (gradient[..., None, :] @ vectors)[..., 0, :] / values
        step = (vectors @ along[..., None])[..., 0]
        longest = np.abs(step).max(axis=-1, keepdims=True)
        step *= LONGEST / np.maximum(longest, LONGEST)
        step = np.where(varies & (weight > 0.0)[..., None], step, 0.0)
        moved = self._values((u + step).swapaxes(1, 2))
        return np.where(self.varies(), moved, before)

    def slopes(self, parameters, features):
        """Return the gradient in the coordinates of every parameter."""
        _, gradient, _ = self._quadratic(parameters, features)
        return gradient.swapaxes(1, 2).reshape(parameters.shape)

    # Draws, and what is known of the distribution

    def start_columns(self, X):
        """Return what is clustered to find a start: the values themselves."""
        return fill(X)

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        values = (part[states] for part in self._split(parameters))
        return np.asarray(self.sample(rng, *values), float)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in column j."""
        if not hasattr(self, "cdf"):
            return super().tails(x, j, parameters)
        values = [part[:, j] for part in self._split(parameters)]
        below = np.asarray(self.cdf(x[:, None], *values), float)
        if self.discrete:  # half of what is as large
            below = below - 0.5 * np.exp(self.log_density(x[:, None], *values))
        return below, 1.0 - below


def _products(u, i, j):
    """What the upper triangle of C is multiplied by in the expansion."""
    return np.where(i == j, 0.5, 1.0)[:, None] * u[:, i] * u[:, j]
