"""Gaussian emissions with the four covariance types."""

from copy import copy
from typing import Literal

import numpy as np
from scipy.special import ndtr

from skvrem.hmm.emissions._coordinates import EDGE, LOG_2PI, SCALES, RowPieces, numbered
from skvrem.hmm.emissions._facts import extremes, minus_row, moments, n_rows
from skvrem.hmm.emissions._m_step import GaussianMStep
from skvrem.hmm.emissions.patterns import _model_patterns
from skvrem.utils._columns import Given
from skvrem.utils._reports import NARROW, ROUNDING
from skvrem.utils._validation import among, check_options, check_real

# Values, and variances, beyond which squares, and inverses, may be infinite.
LARGEST, SMALLEST = 1e140, 1e-200
# Of the variance of a column, what is added to that of the states.
RELATIVE = 1e-6


class Gaussian(GaussianMStep):
    """Gaussian emissions.

    Parameters
    ----------
    covariance_type : {"diag", "full", "tied", "spherical"}, default="diag"
        Variances, a matrix a state, one matrix for all, one variance a state.
    reg_covar : float or "auto", default="auto"
        Added to the variances in the M step. "auto" is 1e-6 of the variance of each
        column, so that units are all the same; of the least of a column that varies if
        "spherical", and where a column does not vary.
    mean : array-like of shape (n_states, n_features), default=None
        Fixed means; NaN are free, and with "full" and "tied" follow those of their
        state that are fixed as far as columns vary together.
    covariance : array-like, default=None
        Fixed covariances, shape as `covariance_`; NaN are free, and matrices are so as
        a whole.
    mean_init, covariance_init : array-like, default=None
        Starting values.
    mean_prior : array-like of shape (n_states, n_features), default=None
        Means of a conjugate prior of the means; None is that of all rows.
    mean_weight : float, default=0.0
        How many rows of every state that prior is worth; 0 is none.
    covariance_prior : array-like, default=None
        Variances, or covariance matrices, of a conjugate prior, shape as `covariance_`;
        None is the variances of all rows.
    covariance_weight : float, default=0.0
        How many rows of every state that prior is worth, of "tied" altogether; 0 is
        none.

    Attributes
    ----------
    mean_ : ndarray of shape (n_states, n_features)
        Means of the states.
    covariance_ : ndarray
        Shape (n_states, n_features) if "diag", (n_states, n_features, n_features) if
        "full", (n_features, n_features) if "tied", (n_states,) if "spherical".

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Gaussian
    >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
    >>> X += 0.1 * np.random.default_rng(0).normal(size=X.shape)
    >>> hmm = VRHMM(2, emission=Gaussian("full"), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.mean_.ravel()).round()
    array([0., 5.])
    """

    def __init__(
        self,
        covariance_type: Literal["diag", "full", "tied", "spherical"] = "diag",
        *,
        reg_covar: float | Literal["auto"] = "auto",
        mean: Given = None,
        covariance: Given = None,
        mean_init: Given = None,
        covariance_init: Given = None,
        mean_prior: Given = None,
        mean_weight: float = 0.0,
        covariance_prior: Given = None,
        covariance_weight: float = 0.0,
    ):
        self.covariance_type = covariance_type
        self.reg_covar = reg_covar
        self.mean = mean
        self.covariance = covariance
        self.mean_init = mean_init
        self.covariance_init = covariance_init
        self.mean_prior = mean_prior
        self.mean_weight = mean_weight
        self.covariance_prior = covariance_prior
        self.covariance_weight = covariance_weight

    parameter_scales = {"mean": "real", "covariance": "positive"}

    @property
    def _dense(self):
        return self.covariance_type in ("full", "tied")

    @property
    def patterned(self):
        """Whether features depend on which values of a row are missing."""
        return self._dense

    @property
    def shrinks(self):
        """Whether each state has a width of its own in each column, never 0."""
        return self.covariance_type in ("full", "diag") and bool(np.all(self.added))

    def prepare(self, X):
        check_options(self, covariance_type=("diag", "full", "tied", "spherical"))
        check_real(self, "reg_covar", options=("auto",))
        # Second moments about a common centre: what far-away data would cancel.
        with np.errstate(over="ignore", invalid="ignore"):
            self._centre, self._variance = moments(X)
        #: `reg_covar`, as a number, or one of each column.
        self.added = self._number_added()
        self._check_size(X)
        # What gradient methods measure lengths in.
        self._width = np.sqrt(self._variance)
        self._width[self._width <= 0.0] = 1.0
        self._upper = np.triu_indices(self.n_columns_)
        for name in ("mean", "mean_init"):
            value = self._given(name)
            if value is not None and np.isinf(value).any():
                raise ValueError(f"{name} of Gaussian must be finite, or NaN.")
        for name in ("covariance", "covariance_init", "covariance_prior"):
            value = self._given(name)
            if value is None:
                continue
            if np.isnan(value).any() and not self._free_matrices(value):
                raise ValueError(
                    f"{name} of Gaussian: matrices are given as a whole, or free as a "
                    "whole by NaN."
                )
            known = value[~np.isnan(value).reshape(len(value), -1).any(axis=1)]
            if not self._dense:
                known = value[~np.isnan(value)]
            if known.size and self._factor(known) is None:
                raise ValueError(
                    f"{name} of Gaussian must be positive"
                    f"{' definite' if self._dense else ''} variances, got {value}."
                )
        self._prepare_priors()

    def _free_matrices(self, value):
        """Whether what is NaN is so as a whole."""
        if not self._dense:
            return True
        free = np.isnan(value).reshape(len(value), -1)
        return bool((free.all(axis=1) | ~free.any(axis=1)).all())

    def _number_added(self):
        if not among(self.reg_covar, ("auto",)):
            return self.reg_covar
        varies = np.sqrt(self._variance) > ROUNDING * np.abs(self._centre)
        varies &= np.isfinite(self._variance)
        least = float(self._variance[varies].min()) if varies.any() else 1.0
        if self.covariance_type == "spherical":
            return RELATIVE * least
        return RELATIVE * np.where(varies, self._variance, least)

    def _check_size(self, X):
        """Raise a ValueError where squares leave what floating point can hold."""
        large = ~(np.abs(self._centre) < LARGEST)
        large |= ~(self._variance * n_rows(X) < LARGEST**2)
        small = (self._variance > 0.0) & (self._variance + self.added < SMALLEST)
        if large.any() or small.any():
            j = int((large | small).argmax())
            most = f"{np.nanmax(np.abs(extremes(X)), axis=0)[j]:.3g}"
            raise ValueError(
                f"Column {j} of Gaussian emissions holds values as large as {most}: "
                "their squares are beyond floating point. Look for outliers, or scale "
                "the data (sklearn.preprocessing.StandardScaler)."
                if large[j]
                else f"Column {j} of Gaussian emissions varies by so little, about "
                f"{np.sqrt(self._variance[j]):.3g}, that its variance is beyond "
                "floating point: scale the data "
                "(sklearn.preprocessing.StandardScaler)."
            )

    def _covariance_shape(self, n, d):
        shapes = {"diag": (n, d), "full": (n, d, d), "tied": (d, d), "spherical": (n,)}
        return shapes[self.covariance_type]

    def _shape(self, name):
        n, d = self.n_states_, self.n_columns_
        means = name.startswith("mean")
        return (n, d) if means else self._covariance_shape(n, d)

    def _given(self, name):
        value = super()._given(name)
        means = value is None or name.startswith("mean")
        return value if means else self._spread_out(value)

    def _names_given(self):
        names = super()._names_given()
        if self.covariance_type != "tied":
            return names
        return [name for name in names if name.startswith("mean")]

    def reorder(self, order):
        """Put what users gave of states into another order."""
        super().reorder(order)
        self._prepare_priors()

    # Features: masks, x, x x^T

    _patterns = None

    def bound(self, X):
        """Return the family for the values that are missing in X."""
        family, seen = copy(self), ~np.isnan(X)
        partly = self._dense and (seen.any(axis=1) & ~seen.all(axis=1)).any()
        family._patterns = _model_patterns.Patterns(seen) if partly else None
        family.follows = family.exact = bool(partly and family._patterns.many)
        return family

    @property
    def _by_features(self):
        """Whether rows are made into features of patterns."""
        return self._patterns is not None and not self.follows

    def n_row_features(self):
        """Return how many features rows are made into."""
        if not self._by_features:
            return super().n_row_features()
        return len(self._patterns.pairs(self.ONE))

    def features(self, missing):
        """Return the columns of every feature, equal features merged."""
        if not self._by_features:
            return super().features(missing)
        return self._merge(np.asarray(self._patterns.pairs(self.ONE), np.int64))

    def columns(self, X, missing, parameters=None):
        """Return the columns of some rows; they follow the parameters if `follows`."""
        if self._by_features:
            return self._patterns.columns(minus_row(X, self._centre))
        if not self.follows:
            return super().columns(X, missing)
        if parameters is None:
            return np.zeros((len(X), self.n_states_))
        return _model_patterns.log_densities(*self._about_centre(X, parameters))

    def _about_centre(self, X, parameters):
        """Rows, means and covariances as kernels take them."""
        mean, covariance = self._split(parameters)
        parts = minus_row(X, self._centre), mean - self._centre, covariance
        return tuple(np.array(part, float, order="C") for part in parts)

    def kernel_theta(self, parameters):
        """Return the coefficients of the features that rows are made into."""
        if not self._by_features:
            return super().kernel_theta(parameters)
        mean, covariance = self._split(parameters)
        return self._patterns.theta(mean - self._centre, covariance)

    def collect(self, X, weights, parameters):
        """Return sums of complete rows, missing values by their conditional moments."""
        return _model_patterns.collect(weights, *self._about_centre(X, parameters))

    def complete(self, sums, parameters, collected=None):
        """Return sums of complete rows, missing values by their conditional moments."""
        if not self._by_features:
            return super().complete(sums, parameters, collected)
        mean, covariance = self._split(parameters)
        return self._patterns.complete(sums, mean - self._centre, covariance)

    def sufficient(self, X):
        return minus_row(X, self._centre)

    def _seen(self, X):
        seen = ~np.isnan(X)
        return seen.all(axis=1, keepdims=True) if self._dense else seen

    def _n_masks(self):
        return 1 if self._dense else self.n_columns_

    def _pairs(self):
        d = self.n_columns_
        masks = [(self.MASK - b, self.ONE) for b in range(self._n_masks())]
        i, j = self._upper if self._dense else (range(d), range(d))
        squares = zip(i, j, strict=True)
        return [*masks, *((j, self.ONE) for j in range(d)), *squares]

    def theta(self, parameters):
        """Return the coefficients of masks, of x and of the products."""
        mean, covariance = self._split(parameters)
        mean = mean - self._centre
        if not self._dense:
            precision = 1.0 / covariance
            constant = -0.5 * (LOG_2PI + np.log(covariance) + mean**2 * precision)
            return np.concatenate(
                [constant, mean * precision, -0.5 * precision], axis=1
            )
        return _model_patterns.dense_theta(mean, covariance)

    def expected(self, parameters):
        """Return the means of the features."""
        mean, covariance = self._split(parameters)
        mean = mean - self._centre
        masks = np.ones((len(mean), self._n_masks()))
        if not self._dense:
            return np.hstack([masks, mean, np.square(mean) + covariance])
        products = covariance + mean[:, :, None] * mean[:, None, :]
        return np.hstack([masks, mean, products[:, *self._upper]])

    def spread(self, parameters):
        """Return standard deviations of the features about the states' means."""
        mean, covariance = self._split(parameters)
        masks = np.ones((len(mean), self._n_masks()))
        if not self._dense:
            return np.concatenate(
                [masks, np.sqrt(covariance), np.sqrt(2.0) * covariance], axis=1
            )
        sd = np.sqrt(_diagonals(covariance))
        i, j = self._upper
        return np.hstack([masks, sd, sd[:, i] * sd[:, j] * np.where(i == j, 2**0.5, 1)])

    def _split_features(self, features):
        first = self._n_masks()
        second = first + self.n_columns_
        return features[:, :first], features[:, first:second], features[:, second:]

    # Parameters: means, then variances or matrices, a row a state

    def _split(self, parameters):
        d = self.n_columns_
        mean, covariance = parameters[:, :d], parameters[:, d:]
        return mean, covariance.reshape(-1, d, d) if self._dense else covariance

    def _spread_out(self, covariance):
        n, d = self.n_states_, self.n_columns_
        if self.covariance_type == "tied":
            return np.broadcast_to(covariance, (n, d, d))
        if self.covariance_type == "spherical":
            return np.broadcast_to(covariance[:, None], (n, d))
        return covariance

    def blank(self):
        """Return parameters for states that have no rows at all."""
        n, d = self.n_states_, self.n_columns_
        ones = np.broadcast_to(np.eye(d), (n, d, d)) if self._dense else np.ones((n, d))
        return self._join(np.broadcast_to(self._centre, (n, d)), ones)

    def publish(self, parameters, dtype):
        """Set the fitted attributes."""
        mean, covariance = self._split(parameters)
        if self.covariance_type == "tied":
            covariance = covariance[0]
        elif self.covariance_type == "spherical":
            covariance = covariance[:, 0]
        self.mean_, self.covariance_ = mean.astype(dtype), covariance.astype(dtype)

    def parameters(self):
        """Return the fitted parameters."""
        covariance = self._spread_out(np.asarray(self.covariance_, float))
        return self._join(np.asarray(self.mean_, float), covariance)

    def n_parameters(self):
        """Return the number of free parameters of all states."""
        size = self.n_columns_ * (self.n_columns_ + 1) // 2 if self._dense else 1
        return int(self._free_means().sum() + size * self._free_covariances().sum())

    # Free coordinates: means from the centre, in standard deviations of the rows; of
    # covariances without reg_covar, in the same unit, logarithms of variances or
    # Cholesky factors whose diagonals are logarithms

    def scales(self):
        """Return the scale of every parameter."""
        d = self.n_columns_
        real = ~np.eye(d, dtype=bool).ravel() if self._dense else np.zeros(d, bool)
        return ["real"] * d + ["real" if r else "positive" for r in real]

    def _free_means(self):
        mean = self._given("mean")
        free = np.ones((self.n_states_, self.n_columns_), bool)
        return free if mean is None else np.isnan(mean)

    def _free_covariances(self):
        """Which variances, or matrices, are free, of those that are not the same."""
        shape = {
            "diag": (self.n_states_, self.n_columns_),
            "full": (self.n_states_,),
            "tied": (1,),
            "spherical": (self.n_states_, 1),
        }[self.covariance_type]
        fixed = self._given("covariance")
        if fixed is None:
            return np.ones(shape, bool)
        free = np.isnan(self._own(fixed))
        return free.all(axis=(1, 2)) if self._dense else free

    def _own(self, values):
        """Of something for every state (and feature), what is not the same twice."""
        if self.covariance_type == "tied":
            return values[:1]
        return values[:, :1] if self.covariance_type == "spherical" else values

    def free(self, parameters):
        """Return the free coordinates."""
        mean, covariance = self._split(parameters)
        means = ((mean - self._centre) / self._width)[self._free_means()]
        covariance, spreads = self._own(covariance), self._free_covariances()
        if not self._dense:
            rest = np.maximum(covariance - self.added, EDGE * covariance)
            return np.concatenate([means, SCALES["positive"].to(rest[spreads])])
        covariance = covariance[spreads]
        factors = self._factors(covariance)
        diagonal = _diagonals(factors)
        diagonal[:] = np.log(diagonal)
        lower = np.tril_indices(self.n_columns_)
        return np.concatenate([means, factors[:, *lower].ravel()])

    def _factors(self, covariance):
        """Cholesky factors of matrices less reg_covar, in the unit of the rows."""
        rest = covariance - self.added * np.eye(self.n_columns_)
        values, vectors = np.linalg.eigh(
            rest / (self._width[:, None] * self._width)  # a floor needs one unit
        )
        floor = EDGE * np.maximum(values[:, -1:], EDGE)
        if (values >= floor).all():
            rest = rest / (self._width[:, None] * self._width)
        else:
            values = np.maximum(values, floor)
            rest = (vectors * values[:, None, :]) @ vectors.swapaxes(1, 2)
        return np.linalg.cholesky(rest)

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        mean, covariance = map(np.array, self._split(parameters))
        varies = self._free_means()
        cut = np.count_nonzero(varies)
        means, rest = vector[:cut], vector[cut:]
        column = np.nonzero(varies)[1]
        mean[varies] = self._centre[column] + self._width[column] * means
        own, spreads = np.array(self._own(covariance)), self._free_covariances()
        if not self._dense:
            added = np.broadcast_to(self.added, own.shape)[spreads]
            found = SCALES["positive"].back(rest) + added
        else:
            factors = self._as_factors(rest) * self._width[:, None]
            found = factors @ factors.swapaxes(1, 2)
            found = found + self.added * np.eye(self.n_columns_)
        own[spreads] = found
        return self._join(mean, np.broadcast_to(own, covariance.shape))

    def _as_factors(self, vector):
        d = self.n_columns_
        rows = vector.reshape(-1, d * (d + 1) // 2)
        factors = np.zeros((len(rows), d, d))
        factors[:, *np.tril_indices(d)] = rows
        diagonal = _diagonals(factors)
        diagonal[:] = SCALES["positive"].back(diagonal)
        return factors

    def slope(self, parameters, features):
        """Return the gradient, in free coordinates, of Q."""
        masks, x, xx = self._split_features(features)
        mean, covariance = self._split(parameters)
        shift = mean - self._centre
        scatter, weight = self._scatter_of(shift, masks, x, xx)
        residual = x - masks * shift
        if self.mean_weight:
            residual = residual + self.mean_weight * (self._prior_mean - shift)
        if not self._dense:
            means = residual / covariance
            slope = 0.5 * (scatter / covariance - weight) / covariance
            if self.covariance_type == "spherical":
                slope = slope.sum(axis=1, keepdims=True)
            own = self._own(covariance)
            slope = slope * np.maximum(own - self.added, EDGE * own)
            slope = slope[self._free_covariances()]
        else:
            precision, _ = _model_patterns.inverses(covariance)
            means = np.einsum("kij,kj->ki", precision, residual)
            slope = precision @ scatter @ precision - weight * precision
            if self.covariance_type == "tied":
                slope = slope.sum(axis=0, keepdims=True)
            width = self._width
            free = self._free_covariances()
            factors, slope = self._factors(self._own(covariance)[free]), slope[free]
            slope = (width[:, None] * slope * width) @ factors
            _diagonals(slope)[:] *= _diagonals(factors)
            slope = slope[:, *np.tril_indices(self.n_columns_)]
        means = (means * self._width)[self._free_means()]
        return np.append(means, slope)

    def row_pieces(self, X):
        """Return what kernels of single rows take.

        None for rows missing in part, priors, and covariances given in part.
        """
        spreads = self._free_covariances()
        if self._patterns is not None or self.mean_weight or self.covariance_weight:
            return None
        if spreads.any() and not spreads.all():
            return None
        n, d, free = self.n_states_, self.n_columns_, self._free_means()
        mean, covariance = self._split(self.given_start(self.blank()))
        unit, added = np.square(1.0 / self._width), self.added
        if not spreads.any():
            added = 0.0
        if self._dense:
            kernel, width = "multinormal", d * (d + 1) // 2
            shape = (1 if self.covariance_type == "tied" else n, width)
            factors = np.linalg.cholesky(
                covariance / self._width[:, None] / self._width
            )
            diagonal = _diagonals(factors)
            diagonal[:] = np.log(diagonal)
            spread, fixed = factors[:, *np.tril_indices(d)], added * unit[None]
        else:
            kernel, width = "normal", d
            shape = (n, 1 if self.covariance_type == "spherical" else d)
            fixed = np.stack([unit, added * unit])
            spread = np.log(covariance)
        own = np.arange(np.prod(shape)).reshape(shape) + np.count_nonzero(free)
        if not spreads.any():
            own = -1
        index = np.hstack([numbered(free), np.broadcast_to(own, (n, width))])
        constants = np.hstack([(mean - self._centre) / self._width, spread])
        columns = (np.asarray(X, float) - self._centre) / self._width
        return [RowPieces(kernel, d, columns, index, constants, fixed)]

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        mean, covariance = self._split(parameters)
        noise = rng.standard_normal((len(states), self.n_columns_))
        if not self._dense:
            return mean[states] + noise * np.sqrt(covariance)[states]
        factors = np.linalg.cholesky(covariance)
        for state in range(len(mean)):
            rows = states == state
            noise[rows] = noise[rows] @ factors[state].T
        return mean[states] + noise

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        mean, covariance = self._split(parameters)
        return mean, _diagonals(covariance) if self._dense else covariance

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in feature j."""
        mean, variance = self.moments(parameters)
        z = (x[:, None] - mean[:, j]) / np.sqrt(variance[:, j])
        return ndtr(z), ndtr(-z)

    def widths(self, parameters, features, names):
        """Yield variances of the data and of the states."""
        if not self._free_covariances().all():
            return
        variances = self._variance
        if self.covariance_type == "spherical":
            variances = np.full_like(variances, variances.mean())
        parts, weight = self.moments(parameters)[1], self.row_weight(features)
        if self._dense and np.all(self.added):
            # No more rows than columns lie on a plane; all rows do where columns are
            # sums of others.
            least = self._narrowest(parameters)
            if least.max() > NARROW:
                parts = np.minimum(parts, least[:, None] * self.added)
        about = variances, self._centre, names, "state"
        yield self.added, *about, parts, weight

    def _narrowest(self, parameters):
        """Return the least variance of each state, in units of what is added to all."""
        covariance = self._split(parameters)[1]
        unit = np.sqrt(np.broadcast_to(self.added, self.n_columns_))
        return np.linalg.eigvalsh(covariance / np.outer(unit, unit))[:, 0]

    def full_covariance(self):
        """Return the covariances as (n_states, n_features, n_features)."""
        covariance = self._spread_out(np.asarray(self.covariance_))
        if self._dense:
            return np.array(covariance)
        return covariance[:, :, None] * np.eye(self.n_columns_, dtype=covariance.dtype)

    def describe(self, names):
        """Return columns of a summary: mean and standard deviation of each feature."""
        sd = np.sqrt(_diagonals(self.full_covariance()))
        columns = {}
        for j, name in enumerate(names):
            columns[f"{name} mean"] = self.mean_[:, j]
            columns[f"{name} sd"] = sd[:, j]
        return columns


def _diagonals(matrices):
    """A view, that can be written to, of the diagonals."""
    return np.einsum("kii->ki", matrices)
