r"""Families that are known by their log-density alone.

In the coordinates u of a state (``_coordinates.py``), what rows say of parameters close
to those at hand, :math:`u_0`, is a second-order expansion,

.. math:: \log f(y; u) \approx \log f(y; u_0) + g^T (u - u_0)
          + \tfrac{1}{2} (u - u_0)^T C (u - u_0) = a + b^T u + \tfrac{1}{2} u^T C u ,

linear in the features (a, b, C) of a row. So the E step, which takes the log-density
itself, is exact, an M step is a step of Newton's method on the expected log-likelihood,
and sums of features can be averaged, though rows were seen at different parameters: a
sum of expansions is that of the sum. Where steps no longer move, gradients are zero.

A parameter may have several coordinates: with a design :math:`z_t` of the rows it is
:math:`z_t^T u_k` on its scale, and with first and second derivatives :math:`l_k` and
:math:`l_{km}` of the log-density by parameters on their scales,

.. math:: g_k = \sum_t \gamma_t l_k z_t, \qquad
          C_{km} = \sum_t \gamma_t l_{km} z_t z_t^T .

A parameter without a design has one of ones.
"""

from collections.abc import Mapping
from functools import cache
from itertools import product

import numpy as np

from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._coordinates import IMPOSSIBLE, SCALES
from skvrem.hmm.emissions._facts import extremes, fill, filled_moments
from skvrem.hmm.emissions.densities._model_counts import CountTable
from skvrem.utils._parallel import row_chunks

# Step of differences, of second ones too, in coordinates of the size of 1.
STEP = 1e-4
# A step changes no coordinate by more, and no direction counts as flatter than this
# share of the steepest.
LONGEST, FLAT = 0.5, 1e-6
# Rows that are looked at together.
BLOCK = 8192
# Rows that a search for starting values looks at, powers of their size that it tries,
# and the least and the largest number there.
LOOKED_AT, POWERS, POSSIBLE = 100, (0, 1, -1, 2, -2), (1e-100, 1e100)


class DensityEmission(Emission):
    """Base of families of columns that are independent given the state.

    A subclass must define

    - ``parameter_scales``: names of the parameters, and what they are: "location" (of
      the unit of the column), "real", "positive", "probability" or "direction" (an
      angle, from -pi to pi);
    - ``log_density(x, *parameters)``: as ``logpdf`` and ``logpmf`` of scipy.stats, of
      arrays that are spread against each other;
    - ``sample(rng, *parameters)``: a value for each of the parameters, which are arrays
      of one shape.

    It may define ``cdf(x, *parameters)``, of which residuals are made, and says by
    ``discrete = True`` that values have probabilities. ``mean_variance(*parameters)``
    spares an average over draws, and ``derivatives(x, *parameters)`` differences: it
    returns the log-density, a list of its derivatives by every parameter, on its scale
    (locations and real numbers as they are, logarithms of what is positive, log-odds
    of probabilities), and a list of the second ones by every pair, (0, 0), (0, 1) ...
    (1, 1) ... Everything else is as of :class:`Emission`: ``check(X)`` says what values
    there are, ``blank()`` where a search for starting values begins, and parameters
    that the constructor takes can be fixed.

    A pass evaluates ``log_density`` in every state at points around the parameters, 9
    for two of them, 19 for three; at counts that come again, once. Where its features
    are the same for all parameters, an :class:`Emission` is faster.

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
    # Least and largest values of what rows of one value would move on and on.
    _ends: Mapping = {}

    def prepare(self, X):
        """Look at the rows of a fit: units, and what users gave."""
        tiny, largest = np.finfo(float).tiny, np.finfo(float).max
        ends = {"positive": (tiny, largest), "probability": (0.0, 1.0)}
        for name, scale in self.parameter_scales.items():
            self._check_given(name, *ends.get(scale, (-largest, largest)))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, width = filled_moments(X)
        typical = np.asarray(X[len(X) // 2], float)
        self._typical = np.where(np.isnan(typical), mean, typical)
        located = [scale == "location" for scale in self.parameter_scales.values()]
        if any(located) and not np.isfinite(width).all():
            j = int((~np.isfinite(width)).argmax())
            raise ValueError(
                f"Column {j} of {type(self).__name__} emissions holds values as large "
                f"as {np.nanmax(np.abs(extremes(X)), axis=0)[j]:.3g}: their squares "
                "are beyond floating point. Look for outliers, or scale the data "
                "(sklearn.preprocessing.StandardScaler)."
            )
        self._zero = np.outer(located, mean)
        self._unit = np.ones_like(self._zero)
        width = np.where(width > 0.0, width, 1.0)
        self._unit[located] = width
        sizes = width if any(located) else np.where(mean > 0.0, mean, 1.0)
        self._blank = self._likely(X, sizes)

    @np.errstate(all="ignore")  # of what is impossible
    def _likely(self, X, sizes):
        """Return parameters (n_parameters, n_columns) that say something of any unit.

        What is positive is the power of the size of values, as of means, precisions
        and shapes, that is most likely given the others: Newton's steps from one would
        need the more of them the farther off it is.
        """
        scales = self._scales()
        values = self._zero + super().blank()[0].reshape(self._zero.shape)
        x = np.asarray(X[:: max(1, len(X) // LOOKED_AT)], float)
        seen = ~np.isnan(x)
        x, best = np.where(seen, x, self._typical), np.full(x.shape[1], -np.inf)
        for k, power in product(np.flatnonzero(np.array(scales) == "positive"), POWERS):
            tried = values.copy()
            tried[k] = np.clip(sizes**power, *POSSIBLE)
            log_f = np.asarray(self.log_density(x, *tried[:, None]), float)
            log_f = np.where(log_f > IMPOSSIBLE, log_f, IMPOSSIBLE)
            found = (log_f * seen).sum(axis=0)
            values[k] = np.where(found > best, tried[k], values[k])
            best = np.maximum(best, found)
        return values

    # Coordinates (n_states, n_coordinates, n_columns): locations in widths of a column

    def scales(self):
        """Return the scale of every column of the parameters."""
        return np.repeat(self._scales(), self.n_columns_)

    def _scales(self):
        scales = self.parameter_scales.values()
        return ["real" if scale == "location" else scale for scale in scales]

    def blank(self):
        """Return parameters for states that have no rows at all."""
        return np.tile(self._blank.ravel(), (self.n_states_, 1))

    def _coordinates(self, parameters):
        u = np.array(parameters, float).reshape(-1, *self._zero.shape)
        for k, scale in enumerate(self._scales()):
            if scale != "real":
                u[:, k] = SCALES[scale].to(u[:, k])
        u -= self._zero
        u /= self._unit
        return u

    def _values(self, u):
        """Return the parameters of coordinates, one array of a row a state."""
        natural = self._zero + self._unit * u
        for k, scale in enumerate(self._scales()):
            natural[:, k] = SCALES[scale].back(natural[:, k])
        return natural.reshape(len(u), -1)

    def free(self, parameters):
        """Return the free coordinates."""
        return self._coordinates(parameters).reshape(parameters.shape)[self.varies()]

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        varies, u = self.varies(), self._coordinates(parameters)
        u.reshape(parameters.shape)[varies] = vector
        return np.where(varies, self._values(u), parameters)

    # Rows: values, and a design of every parameter, None where that is constant

    def _read(self, X):
        """Return values (n_rows, n_columns), NaN where missing, and the designs."""
        return X, [None] * len(self._zero)

    def _slots(self):
        """Return which coordinates are of every parameter, slices."""
        return [slice(k, k + 1) for k in range(len(self._zero))]

    def _predictors(self, u, designs):
        """Return parameters of rows on their scales, each (n_rows or 1, n, d)."""
        each = zip(self._slots(), designs, self._zero, self._unit, strict=False)
        return [
            zero
            + unit
            * (
                u[None, :, slot.start]
                if design is None
                else np.tensordot(design, u[:, slot], (1, 1))
            )
            for slot, design, zero, unit in each
        ]

    def _natural(self, eta):
        return [
            SCALES[scale].back(own)
            for scale, own in zip(self._scales(), eta, strict=True)
        ]

    def _table(self, x, designs):
        """Return the table of counts whose values are evaluated in place of x."""
        if not self.discrete or any(design is not None for design in designs):
            return None
        return CountTable.of(x)

    @np.errstate(all="ignore")  # of what is impossible
    def _log_densities(self, x, u, designs):
        """Return the log-densities (n_rows, n_states, n_columns), none infinite."""
        values = self._natural(self._predictors(u, designs))
        log_f = np.asarray(self.log_density(x[:, None], *values), float)
        return np.where(log_f > IMPOSSIBLE, log_f, IMPOSSIBLE)

    def columns(self, X, missing, parameters=None):
        """Return the log-densities of rows in every state, by parameters."""
        if parameters is None:
            return np.zeros((len(X), self.n_states_))
        u, out = self._coordinates(parameters), np.zeros((len(X), self.n_states_))
        for a, z in row_chunks(0, len(X), BLOCK):
            x, designs = self._read(np.asarray(X[a:z], float))
            table = self._table(x, designs)
            if table is not None:
                log_f = self._log_densities(table.values, u, designs)
                table.look_up(log_f, out[a:z])
                continue
            seen = ~np.isnan(x)
            log_f = self._log_densities(np.where(seen, x, self._typical), u, designs)
            out[a:z] = (log_f * seen[:, None]).sum(axis=2)
        return out

    # Sums: masks, a, b, the upper triangle of C

    def n_features(self):
        """Return how many features the M step takes."""
        n = self._slots()[-1].stop
        return (2 + n + n * (n + 1) // 2) * self.n_columns_

    def collect(self, X, weights, parameters):
        """Return the sums of expansions about the parameters."""
        u = self._coordinates(parameters)
        n, n_coordinates, d = u.shape
        slots, pairs = self._slots(), _upper(len(self._zero))[:2]
        parts, weight = [], np.zeros((n, d))
        for a, z in row_chunks(0, len(X), BLOCK):
            x, designs = self._read(np.asarray(X[a:z], float))
            table = self._table(x, designs)
            if table is not None:
                x, w = table.values, table.tally(weights[a:z])
            else:
                seen = ~np.isnan(x)
                w = np.multiply(weights[a:z].T[:, None], seen.T, order="C")
                x = np.where(seen, x, self._typical)
            weight += w.sum(axis=2)
            log_f, gradient, hessian = self._expand(x, u, designs)
            own, w = designs[: len(slots)], w.transpose(2, 0, 1)
            values = log_f, *gradient, *hessian
            if all(design is None for design in own):
                parts.append(_weighted(w, values))
                continue
            by = [(None, None), *((design, None) for design in own)]
            by += [(own[k], own[m]) for k, m in zip(*pairs, strict=True)]
            by = zip(by, values, strict=True)
            parts.append([_against(*both, w, value) for both, value in by])
        total, *sums = (sum(part) for part in zip(*parts, strict=True))
        g = np.concatenate([part[:, :, 0] for part in sums[: len(slots)]], axis=1)
        C = np.empty((n, n_coordinates, n_coordinates, d))
        for k, m, block in zip(*pairs, sums[len(slots) :], strict=True):
            C[:, slots[k], slots[m]] = block
            C[:, slots[m], slots[k]] = block.swapaxes(1, 2)
        unit = np.repeat(self._unit, [slot.stop - slot.start for slot in slots], axis=0)
        g *= unit
        C *= unit[:, None] * unit
        b = g - np.einsum("nkmd,nmd->nkd", C, u)
        # g u - u C u / 2, as C u = g - b
        a = total[:, 0] - 0.5 * ((g + b) * u).sum(axis=1, keepdims=True)
        i, j, *_ = _upper(n_coordinates)
        sums = np.concatenate([weight[:, None], a, b, C[:, i, j]], axis=1)
        return sums.reshape(n, -1)

    @np.errstate(all="ignore")  # of what is impossible
    def _expand(self, x, u, designs):
        """Return log f and its derivatives by parameters on their scales.

        Each (n_rows, n_states, n_columns); derivatives of what is impossible are 0.
        """
        return self._expand_at(x[:, None], self._predictors(u, designs))

    @np.errstate(all="ignore")
    def _expand_at(self, x, eta):
        if hasattr(self, "derivatives"):
            here, gradient, hessian = self.derivatives(x, *self._natural(eta))
        else:
            here, gradient, hessian = self._differences(x, eta)
        known = np.isfinite(sum((*gradient, *hessian), here)) & (here > IMPOSSIBLE)
        if known.all():
            return here, gradient, hessian
        gradient = [np.where(known, part, 0.0) for part in gradient]
        hessian = [np.where(known, part, 0.0) for part in hessian]
        return np.where(here > IMPOSSIBLE, here, IMPOSSIBLE), gradient, hessian

    def _differences(self, x, eta):
        """Return log f and its derivatives by central differences."""
        steps = STEP * self._unit

        def at(*moves):
            moved = list(eta)
            for k, sign in moves:
                moved[k] = moved[k] + sign * steps[k]
            return np.asarray(self.log_density(x, *self._natural(moved)), float)

        here, n = at(), len(eta)
        ends = {(k, s): at((k, s)) for k in range(n) for s in (1, -1)}
        gradient = [(ends[k, 1] - ends[k, -1]) / (2.0 * steps[k]) for k in range(n)]
        hessian = []
        for k, m in zip(*_upper(n)[:2], strict=True):
            if k == m:
                corners = ends[k, 1] - 2.0 * here + ends[k, -1]
                hessian.append(corners / steps[k] ** 2)
                continue
            corners = at((k, 1), (m, 1)) + at((k, -1), (m, -1))
            corners -= at((k, 1), (m, -1)) + at((k, -1), (m, 1))
            hessian.append(corners / (4.0 * steps[k] * steps[m]))
        return here, gradient, hessian

    def theta(self, parameters):
        """Return the coefficients of a, b and C; those of masks are 0."""
        u = self._coordinates(parameters)
        i, j, _, share = _upper(u.shape[1])
        theta = np.ones((len(u), 2 + u.shape[1] + len(i), u.shape[2]))
        theta[:, 0], theta[:, 2 : 2 + u.shape[1]] = 0.0, u
        theta[:, 2 + u.shape[1] :] = share[:, None] * u[:, i] * u[:, j]
        return theta.reshape(len(u), -1)

    def expected(self, parameters):
        """Return sums at whose expansion the parameters are the maximum."""
        u = self._coordinates(parameters)
        i, j, *_ = _upper(u.shape[1])
        ones, C = np.ones_like(u[:, :1]), -1.0 * (i == j)[:, None]
        C = np.broadcast_to(C, (len(u), *C.shape[:1], u.shape[2]))
        return np.concatenate([ones, 0.0 * ones, u, C], axis=1).reshape(len(u), -1)

    def spread(self, parameters):
        """Return what changes of the sums are compared with; a has no effect."""
        sums = np.ones((len(parameters), self.n_features()))
        sums[:, self.n_columns_ : 2 * self.n_columns_] = np.inf
        return sums

    def model_sums(self, parameters, features):
        """Return the same sums: the curvature of the expansion is the information."""
        return features

    def _quadratic(self, parameters, features):
        """Return coordinates, gradients there and C, coordinates in the last axes."""
        u = self._coordinates(parameters).swapaxes(1, 2)
        n = u.shape[2]
        sums = features.reshape(len(u), -1, self.n_columns_).swapaxes(1, 2)
        C, ridge = sums[:, :, 2 + n :][:, :, _upper(n)[2]], self._ridge(n)
        gradient = sums[:, :, 2 : 2 + n] + (C @ u[..., None])[..., 0] - ridge * u
        return u, gradient, C - np.diag(ridge)

    def _ridge(self, n_coordinates):
        """Return the penalties of squares of the coordinates."""
        return np.zeros(n_coordinates)

    def log_prior(self, parameters):
        """Return the penalty of the free coordinates."""
        ridge = self._ridge(self._slots()[-1].stop)
        if not ridge.any():
            return 0.0
        squares = np.square(self._coordinates(parameters)) * ridge[:, None]
        return -0.5 * float(squares.sum())

    def maximize(self, features, before, repair):
        """Return the parameters after a step of Newton's method, of limited length."""
        weight = features[:, : self.n_columns_]
        if not repair and weight.min() < 0.0:
            return None
        u, gradient, C = self._quadratic(before, features)
        varies = self.varies()
        step = self._newton(gradient, C, weight, varies)
        # Damped by what the step promises, in roots of nats a row, far from its end.
        promised = (gradient.swapaxes(1, 2) * step).sum(axis=1, keepdims=True)
        promised = promised / np.where(weight > 0.0, weight, 1.0)[:, None]
        step /= 1.0 + 2.0 * np.sqrt(np.maximum(promised, 0.0))
        longest = np.abs(step).max(axis=1, keepdims=True)
        step *= LONGEST / np.maximum(longest, LONGEST)
        u = u.swapaxes(1, 2) + step
        for slot, (low, high) in zip(self._slots(), self._limits(), strict=True):
            np.clip(u[:, slot.start], low, high, out=u[:, slot.start])
        return np.where(varies, self._values(u), before)

    def _limits(self):
        """Return the ends of every parameter, coordinates.

        Of what depends on regressors they are for where all of these are zero.
        """
        each = zip(self.parameter_scales, self._scales(), strict=True)
        limits = np.full((len(self._zero), 2, self.n_columns_), [[-np.inf], [np.inf]])
        for k, (name, scale) in enumerate(each):
            for i, end in enumerate(self._ends.get(name, ())):
                limits[k, i] = SCALES[scale].to(np.asarray(end, float))
        return (limits - self._zero[:, None]) / self._unit[:, None]

    def _newton(self, gradient, C, weight, varies):
        """Return steps of the coordinates, (n_states, n_coordinates, n_columns)."""
        shape = len(gradient), -1, self.n_columns_
        varies = varies.reshape(shape).swapaxes(1, 2) & (weight > 0.0)[..., None]
        curve = -C
        if not varies.all():
            gradient = np.where(varies, gradient, 0.0)
            curve = np.where(varies[..., None] & varies[:, :, None], curve, 0.0)
        # Each in its own unit: curvatures by degrees of freedom end far below others.
        unit = np.sqrt(np.abs(np.diagonal(C, axis1=2, axis2=3)))
        unit[~(unit > 0.0)] = 1.0
        gradient = gradient / unit
        values, vectors = np.linalg.eigh(curve / (unit[..., None] * unit[:, :, None]))
        # Towards less where the log-likelihood is not concave, too.
        values = np.abs(values)
        values = np.maximum(values, FLAT * values.max(axis=-1, keepdims=True))
        values = np.maximum(values, np.finfo(float).tiny)
        along = (gradient[..., None, :] @ vectors)[..., 0, :] / values
        step = (vectors @ along[..., None])[..., 0] / unit
        return np.where(varies, step, 0.0).swapaxes(1, 2)

    def slopes(self, parameters, features):
        """Return the gradient, and that of the penalty, in every coordinate."""
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

    def moments(self, parameters):
        """Return mean and variance of the observed values."""
        if not hasattr(self, "mean_variance"):
            return super().moments(parameters)
        return self.mean_variance(*self._split(parameters))

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in column j."""
        if not hasattr(self, "cdf"):
            return super().tails(x, j, parameters)
        return self._tails(
            x[:, None], *(part[:, j] for part in self._split(parameters))
        )

    def _tails(self, x, *values):
        below = np.asarray(self.cdf(x, *values), float)
        if self.discrete:  # half of what is as large
            below = below - 0.5 * np.exp(self.log_density(x, *values))
        return below, 1.0 - below


@cache
def _upper(n):
    """Return what an upper triangle (n, n) is packed by.

    The rows and columns of its entries, the numbers of these (n, n), and half of the
    times that each comes in a quadratic form.
    """
    i, j = np.triu_indices(n)
    numbers = np.empty((n, n), np.int64)
    numbers[i, j] = numbers[j, i] = np.arange(len(i))
    return i, j, numbers, np.where(i == j, 0.5, 1.0)


def _weighted(weights, values):
    """Return weighted sums of all values, (n_values, n_states, 1, 1, n_columns).

    In one call, of rows that lie side by side, as weights and those of kernels do.
    """
    n_rows, *rest = weights.shape
    laid = np.empty((len(values), *rest, n_rows)).transpose(0, 3, 1, 2)
    for out, value in zip(laid, values, strict=True):
        out[:] = value
    return np.einsum("rnd,krnd->knd", weights, laid)[:, :, None, None]


def _against(one, other, weights, values):
    """Return weighted sums of values times two designs, (n_states, p, q, n_columns).

    A design that is None is one of ones.
    """
    if one is None and other is None:
        return np.einsum("rnd,rnd->nd", weights, values)[:, None, None]
    values = weights * values
    flat, shape = values.reshape(len(values), -1), values.shape[1:]
    if one is None or other is None:
        sums = (other if one is None else one).T @ flat
        sums = sums.reshape(-1, *shape).swapaxes(0, 1)
        return sums[:, None] if one is None else sums[:, :, None]
    blocks = [one.T @ (other * column[:, None]) for column in flat.T]
    return np.moveaxis(np.reshape(blocks, (*shape, *blocks[0].shape)), 1, 3)
