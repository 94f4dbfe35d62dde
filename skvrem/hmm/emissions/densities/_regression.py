r"""Emissions that depend on other columns of X: generalized linear models by state.

With covariates z of a row, transformed and scaled to variance 1, the parameters of a
density that depend on them are :math:`z^T u` on their scales in each state: the mean of
Gaussian rows as it is, logarithms of rates, log-odds of probabilities. What rows say of
u is a sum of expansions (``_density.py``), an M step a step of iteratively reweighted
least squares. For Gaussian rows sums of :math:`z z^T`, :math:`z y` and :math:`y^2` say
all, and the M step is weighted least squares in closed form (``_least_squares.py``).
"""

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skvrem.hmm.emissions._coordinates import SCALES
from skvrem.hmm.emissions._factors import as_levels, indicator_names, indicators
from skvrem.hmm.emissions._facts import fill
from skvrem.hmm.emissions._given import given
from skvrem.hmm.emissions.densities._density import DensityEmission
from skvrem.hmm.emissions.densities._least_squares import LeastSquares
from skvrem.hmm.emissions.densities._responses import (
    Angle,
    Choice,
    Count,
    Event,
    Normal,
    Positive,
)
from skvrem.hmm.emissions.discrete._categories import Categorical
from skvrem.utils._columns import Given, column_number
from skvrem.utils._validation import check_real

FAMILIES = {
    "gaussian": Normal,
    "poisson": Count,
    "bernoulli": Event,
    "categorical": Choice,
    "gamma": Positive,
    "vonmises": Angle,
}
# Steps to a fit of all rows, covariates whose scores are clustered, draws of a value.
STEPS, SCORED, DRAWS = 50, 6, 200
# Rows of a state of some starts beyond those that coefficients fit whatever they are:
# the fewer, the more often they are all of one state.
BEYOND = 1


class Regression(LeastSquares):
    r"""Rows that depend on other columns of X, in each state in its own way.

    Generalized linear models of which the hidden state chooses one (GLM-HMM), and with
    columns of :func:`add_lags` autoregressive models.

    Parameters
    ----------
    family : str or DensityEmission, default="gaussian"
        Distribution of the values: "gaussian" (with ``sd_``), "poisson", "bernoulli",
        "categorical", "gamma" (with ``shape_``, one over the squared coefficient of
        variation), "vonmises" (with ``concentration_``); or any family known by its
        density, as ``NegativeBinomial()`` or one of your own.
    covariates : list of str or int
        Names or numbers of the columns of X that the values depend on. States do not
        emit them. Where one is missing, so is what depends on it. Of text, or of a
        categorical dtype, each level but the first has an indicator, if no transformer
        makes something else of them.
    depends : list of str, default=None
        Parameters of the family that depend on them; None is the first, as the mean,
        and of categories all.
    transformer : scikit-learn transformer, default=None
        Makes regressors of the covariates, as ``SplineTransformer`` or
        ``OneHotEncoder``. Fitted to the rows of the fit, and applied to all others.
        Text is handed to it as it is.
    offset : str or int, default=None
        Name or number of a column that is added to the first linear predictor, as the
        logarithm of an exposure.
    alpha : float, default=1e-3
        Ridge penalty: ``alpha / 2`` times the squares of the coefficients of
        regressors that are scaled to variance 1. The log-likelihood it adds to is that
        of all rows.
    coef : array-like of shape (n_states, n_outputs, n_regressors), default=None
        Fixed coefficients; NaN are free.
    intercept : array-like of shape (n_states, n_outputs), default=None
        Fixed intercepts; NaN are free.
    coef_init, intercept_init : array-like, default=None
        Starting values.
    fixed : dict, default=None
        Fixed values of parameters that depend on nothing, by name, each array-like of
        shape (n_states, n_values), as ``{"sd": [[1.0], [2.0]]}``; NaN are free. With
        these, `coef` and `intercept` all given, a model needs no fit; a transformer
        must then be in a ``FrozenEstimator``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_states, n_outputs, n_regressors)
        In the units of the columns. Outputs are the columns of values, or all
        categories but the first; those of one of `parameters` after another.
    intercept_ : ndarray of shape (n_states, n_outputs)
        Linear predictors are means of Gaussian rows, logarithms of rates, means and
        shapes, log-odds of probabilities, tangents of half a mean angle.
    family_ : DensityEmission
        The family; parameters that depend on nothing are attributes as well, as
        ``sd_``.
    transformer_ : transformer or None
        Fitted.
    terms_ : list of str
        Names of the regressors, the last axis of ``coef_``.

    References
    ----------
    Ashwood, Roy, Stone, IBL, Urai, Churchland, Pouget, Pillow (2022). Mice alternate
    between discrete strategies during perceptual decision-making. Nature Neuroscience,
    25.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Regression
    >>> rng = np.random.default_rng(0)
    >>> z, states = rng.normal(size=2000), np.repeat([0, 1, 0, 1], 500)
    >>> y = np.where(states, 2.0, -1.0) * z + 0.5 * rng.normal(size=2000)
    >>> slopes = Regression("gaussian", covariates=[1])
    >>> hmm = VRHMM(2, emission=slopes, random_state=0).fit(np.column_stack([y, z]))
    >>> np.sort(hmm.emission_.coef_.ravel()).round(1)
    array([-1.,  2.])
    """

    required = ()  # they are the family's
    window = 5
    _factors: Mapping = {}  # levels of covariates that are text, by their places

    def __init__(
        self,
        family: str | BaseEstimator = "gaussian",
        covariates: Sequence[str | int] = (),
        *,
        depends: Sequence[str] | None = None,
        transformer: BaseEstimator | None = None,
        offset: str | int | None = None,
        alpha: float = 1e-3,
        coef: Given = None,
        intercept: Given = None,
        coef_init: Given = None,
        intercept_init: Given = None,
        fixed: dict[str, ArrayLike] | None = None,
    ):
        self.family = family
        self.covariates = covariates
        self.depends = depends
        self.transformer = transformer
        self.offset = offset
        self.alpha = alpha
        self.coef = coef
        self.intercept = intercept
        self.coef_init = coef_init
        self.intercept_init = intercept_init
        self.fixed = fixed

    def is_given(self):
        """Whether users gave all parameters, and no transformer is left to fit."""
        family = self._family()
        others = set(family.parameter_scales) - set(self._depending(family))
        values = [self.coef, self.intercept]
        values += [getattr(family, name, None) for name in others]
        if any(v is None or np.isnan(np.asarray(v, float)).any() for v in values):
            return False
        return self.transformer is None or _is_fitted(clone(self.transformer))

    def n_given(self):
        """Return how many columns of X there are, by what users gave."""
        family = self._family()
        columns = [*self.covariates, *([] if self.offset is None else [self.offset])]
        if any(isinstance(column, str) for column in columns):
            raise ValueError(
                "Covariates of Regression that are named need rows that have the "
                "names: give a data frame as covariates."
            )
        n_values = 1
        if not isinstance(family, Choice):
            n_values = np.shape(self.intercept)[-1] // len(self._depending(family))
        return max(len({*columns}) + n_values, 1 + max(columns))

    # Columns of X: values, covariates and offset

    def _named_columns(self, names, n_columns):
        """Return the numbers of the covariates, and of the offset if there is one."""
        if isinstance(self.covariates, str) or not len(self.covariates):
            raise ValueError(
                "covariates of Regression must be a list of names or numbers of "
                f"columns of X, got {self.covariates!r}."
            )
        columns = [*self.covariates, *([] if self.offset is None else [self.offset])]
        use = "A covariate of Regression"
        return [column_number(c, use, names, n_columns) for c in columns]

    def reads(self, names, n_columns, rest):
        """Return the numbers of the columns of X that are values or covariates."""
        inputs = self._named_columns(names, n_columns)
        return sorted({*rest, *inputs})

    def factors(self, names, n_columns):
        """Return the numbers of the columns of X that may hold text."""
        return self._named_columns(names, n_columns)[: len(self.covariates)]

    @property
    def terms_(self):
        """Names of the regressors."""
        return self._terms

    def open(self, X, n_states, names=None, numbers=None):
        """Remember what concerns the data: columns, family, regressors, scales."""
        check_real(self, "alpha")
        numbers = list(range(X.shape[1])) if numbers is None else list(numbers)
        names = list(names or ())
        by_name = [c for c in self.covariates if isinstance(c, str)]
        by_name += [self.offset] * isinstance(self.offset, str)

        def place(column):
            if isinstance(column, str):
                return column_number(column, "A covariate", names, X.shape[1])
            return numbers.index(column)

        self._from = [place(column) for column in self.covariates]
        self._offset = [] if self.offset is None else [place(self.offset)]
        inputs = {*self._from, *self._offset}
        self._own = [j for j in range(X.shape[1]) if j not in inputs]
        if not self._own:
            raise ValueError(
                "All columns of a Regression are covariates: none is left."
            )
        self.n_states_, self.n_columns_ = n_states, len(self._own)
        self._terms = [str(names[j]) if names else f"x{numbers[j]}" for j in self._from]
        levels = [self.text_levels.get(numbers[j]) for j in self._from]
        self._factors = {i: own for i, own in enumerate(levels) if own is not None}
        self.family_ = self._family()
        values = X[:, self._own]
        if self.is_given():  # then rows say nothing of it
            values = np.full_like(values, np.nan, dtype=float)
            if isinstance(self.family_, Choice):
                self.family_.n_categories = np.shape(self.intercept)[-1] + 1
        self.family_.open(values, n_states)
        self._centre = np.zeros(self.n_columns_)
        self._follow_family()
        self._open_regressors(X)
        self._check_coefficients()
        return self

    def _family(self):
        """Return the family, not opened, with what is fixed of it."""
        family = self._response()
        fixed = {} if self.fixed is None else self.fixed
        known = {*family.parameter_scales} - {*self._depending(family)}
        if not (isinstance(fixed, dict) and {*fixed} <= known):
            raise ValueError(
                "fixed of Regression must be a dict of values by name of parameters "
                f"that depend on nothing, here {sorted(known)}, got {self.fixed!r}."
            )
        for name, value in fixed.items():
            setattr(family, name, value)
        return family

    def _response(self):
        family = self.family
        if isinstance(family, Categorical):
            return Choice(family.n_categories)
        if isinstance(family, DensityEmission) and not isinstance(family, Regression):
            return clone(family)
        if not (isinstance(family, str) and family in FAMILIES):
            raise ValueError(
                "family of Regression must be a DensityEmission or one of "
                f"{', '.join(map(repr, FAMILIES))}, got {family!r}."
            )
        return FAMILIES[family]()

    def _depending(self, family):
        """Names of the family's parameters that depend on covariates."""
        if self.depends is not None:
            return self.depends
        names = list(family.parameter_scales)
        return names if isinstance(family, Choice) else names[:1]

    def _follow_family(self):
        """Find out which parameters depend on covariates, and units."""
        family = self.family_
        names, depends = list(family.parameter_scales), self._depending(family)
        if isinstance(depends, str) or not (len(depends) and {*depends} <= {*names}):
            raise ValueError(
                f"depends of Regression must list some of the parameters {names} "
                f"of its family, got {self.depends!r}."
            )
        self._depends = [name in depends for name in names]
        #: Whether sums of products of columns say all that rows say.
        self.exact = isinstance(family, Normal) and self._depends == [True, False]

    @property
    def parameter_scales(self):
        """Names of the family's parameters, and their scales."""
        return self.family_.parameter_scales

    @property
    def discrete(self):
        """Whether values have probabilities."""
        return self.family_.discrete

    @property
    def support(self):
        """What values are."""
        return self.family_.support

    def _open_regressors(self, X):
        inputs = X[:, self._from]
        inputs = np.asarray(inputs[~np.isnan(inputs).any(axis=1)], float)
        self.transformer_ = None
        if self.transformer is not None:
            self.transformer_ = clone(self.transformer)
        elif self._factors:
            if self.is_given():
                raise ValueError(
                    "Coefficients of text that are given without a fit need a "
                    "transformer that has been fitted, in a FrozenEstimator: which "
                    "of them is of which level is not known."
                )
            self._terms = indicator_names(self._terms, self._factors)
        if self.transformer_ is not None and len(inputs):
            self.transformer_.fit(as_levels(inputs, self._factors), None)
            try:
                terms = self.transformer_.get_feature_names_out(self._terms)
                self._terms = [str(term) for term in terms]
            except (AttributeError, ValueError):
                n_terms = self._regressors(inputs[:1]).shape[1]
                self._terms = [f"regressor {j}" for j in range(n_terms)]
        if len(inputs) or self.transformer_ is None:
            Z = self._regressors(inputs)
        else:  # as many as there are coefficients
            Z = np.zeros((0, np.shape(self.coef if self.is_given() else None)[-1]))
        n, p, outputs = self.n_states_, Z.shape[1], self._n_outputs()
        self._middle, self._width = np.zeros(p), np.ones(p)
        if len(Z):
            sd = Z.std(axis=0)
            self._middle, self._width = Z.mean(axis=0), np.where(sd > 0.0, sd, 1.0)
        # Coordinates are about zero where what is fixed is of zero.
        self._zero, self._unit = self.family_._zero.copy(), self.family_._unit
        intercept = given(self, "intercept", (n, outputs))
        if intercept is not None and not np.isnan(intercept).all():
            self._middle[:] = 0.0
            self._zero[self._depends] = 0.0
        self._typical = self.family_._typical
        exposed = np.asarray(X[:, self._offset], float)
        self._usual_offset = fill(exposed).sum() / max(len(exposed), 1)

    @property
    def few_rows(self):
        """Rows that states of some starts fit in place of clusters."""
        return 1 + len(self._middle) + BEYOND

    def _regressors(self, inputs):
        if self.transformer_ is None:
            return indicators(np.asarray(inputs, float), self._factors)
        Z = self.transformer_.transform(as_levels(inputs, self._factors))
        return np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z, float)

    def _n_outputs(self):
        return sum(self._depends) * self.n_columns_

    def _check_coefficients(self):
        shape = self.n_states_, self._n_outputs()
        for end in ("", "_init"):
            given(self, f"coef{end}", (*shape, len(self._middle)))
            given(self, f"intercept{end}", shape)

    def reorder(self, order):
        """Put what users gave of states into another order."""
        self._note_order(order)
        self.family_ = copy(self.family_)
        self.family_.reorder(order)
        for name in ("coef", "intercept", "coef_init", "intercept_init"):
            value = getattr(self, name)
            if value is not None:
                shape = self.n_states_, self._n_outputs(), len(self._middle)
                shape = shape if name.startswith("coef") else shape[:2]
                setattr(self, name, given(self, name, shape)[order])

    @property
    def emits(self):
        """Which of the columns it reads are values."""
        return self._own

    def check(self, X):
        """Raise a ValueError where X holds values that the family does not know."""
        self.family_.check(X[:, self._own])

    def enter(self, X):
        """Return values, offset, a column of ones and regressors scaled to variance 1.

        Values whose covariates are missing are missing.
        """
        X = np.asarray(X, float)
        known = ~np.isnan(X[:, [*self._from, *self._offset]]).any(axis=1)
        Z = np.zeros((len(X), len(self._middle)))
        if known.any():
            made = self._regressors(X[known][:, self._from])
            Z[known] = (made - self._middle) / self._width
        values = np.where(known[:, None], X[:, self._own], np.nan)
        offset = np.where(known[:, None], X[:, self._offset], 0.0)
        return np.hstack([values, offset, np.ones((len(X), 1)), Z])

    def bound(self, X):
        """Return the family for the values that are missing in X."""
        return self

    def _read(self, X):
        d = self.n_columns_
        first = d + len(self._offset)
        designs = [X[:, first:] if depends else None for depends in self._depends]
        return X[:, :d], [*designs, X[:, d:first]]

    def _slots(self):
        slots, stop = [], 0
        for depends in self._depends:
            start, stop = stop, stop + (1 + len(self._middle) if depends else 1)
            slots.append(slice(start, stop))
        return slots

    def _predictors(self, u, designs):
        eta = super()._predictors(u, designs)
        offset = designs[-1]
        if offset.shape[1]:
            first = self._depends.index(True)
            eta[first] = eta[first] + offset[:, :, None]
        return eta

    # Parameters, natural ones: of every parameter, intercept and coefficients

    def _scales(self):
        scales = []
        for depends, scale in zip(self._depends, self.family_._scales(), strict=True):
            scales += ["real"] * (1 + len(self._middle)) if depends else [scale]
        return scales

    def _natural(self, eta):
        return self.family_._natural(eta)

    def _pack(self, intercept, coef, others):
        """Return parameters (n_states, n_parameters) from the attributes."""
        n, d = self.n_states_, self.n_columns_
        parts, at, others = [], 0, iter(others)
        for depends in self._depends:
            if depends:
                outputs = slice(at, at + d)
                at += d
                parts += [intercept[:, None, outputs], coef[:, outputs].swapaxes(1, 2)]
            else:
                parts.append(np.reshape(next(others), (n, 1, d)))
        return np.concatenate(parts, axis=1).reshape(n, -1)

    def _unpack(self, parameters):
        """Return intercepts, coefficients, and the other parameters by name."""
        natural = parameters.reshape(len(parameters), -1, self.n_columns_)
        intercept, coef, others = [], [], {}
        each = zip(self.parameter_scales, self._slots(), self._depends, strict=True)
        for name, slot, depends in each:
            if depends:
                intercept.append(natural[:, slot.start])
                coef.append(natural[:, slot.start + 1 : slot.stop].swapaxes(1, 2))
            else:
                others[name] = natural[:, slot.start]
        return np.hstack(intercept), np.concatenate(coef, axis=1), others

    def _packed_given(self, end=""):
        """What users gave, NaN where nothing, as parameters."""
        n, outputs = self.n_states_, self._n_outputs()
        shapes = {"intercept": (n, outputs), "coef": (n, outputs, len(self._middle))}
        own = []
        for name, shape in shapes.items():
            value = given(self, f"{name}{end}", shape)
            own.append(np.full(shape, np.nan) if value is None else value)
        others = []
        for name, depends in zip(self.parameter_scales, self._depends, strict=True):
            if not depends:
                value = self.family_._given(f"{name}{end}")
                shape = n, self.n_columns_
                others.append(np.full(shape, np.nan) if value is None else value)
        return self._pack(*own, others)

    def varies(self):
        """Return which parameters are free."""
        return np.isnan(self._packed_given())

    def _limits(self):
        zero, unit = self.family_._zero, self.family_._unit
        limits = zero[:, None] + unit[:, None] * self.family_._limits()
        return (limits - self._zero[:, None]) / self._unit[:, None]

    def widths(self, parameters, features, names):
        """Yield widths of the states as the family does, at means of the covariates.

        A column for every coefficient: means pass through as many rows.
        """
        p, names = 1 + len(self._middle), [names[j] for j in self._own]
        at = np.hstack([value[0] for value in self._at(parameters, None)])
        for found in self.family_.widths(at, features, np.repeat(names, p)):
            least, variances, mean, names, kind, parts, weight = found
            columns = (np.repeat(part, p) for part in (least, variances, mean))
            yield *columns, names, kind, np.repeat(parts, p, axis=1), weight

    def given_start(self, parameters):
        """Put what the user gave in the place of starting values."""
        for end in ("_init", ""):
            own = self._packed_given(end)
            parameters = np.where(np.isnan(own), parameters, own)
        return parameters

    def blank(self):
        """Return parameters for states that have no rows at all."""
        n, d, p = self.n_states_, self.n_columns_, len(self._middle)
        blank = self.family_._split(self.family_.blank())
        parts, offset = [], self._usual_offset  # of the first that depends
        each = zip(blank, self.family_._scales(), self._depends, strict=True)
        for value, scale, depends in each:
            if depends:
                value, offset = SCALES[scale].to(value) - offset, 0.0
            parts += [value[:, None], np.zeros((n, p * depends, d))]
        blank = np.concatenate(parts, axis=1).reshape(n, -1)
        fixed = self._packed_given()
        return np.where(np.isnan(fixed), blank, fixed)

    def _coordinates(self, parameters):
        natural = parameters.reshape(len(parameters), -1, self.n_columns_)
        u = natural.copy()
        for k, slot in enumerate(self._slots()):
            zero, unit = self._zero[k], self._unit[k]
            if not self._depends[k]:
                scale = SCALES[self.family_._scales()[k]]
                u[:, slot] = (scale.to(natural[:, slot]) - zero) / unit
                continue
            coef = natural[:, slot.start + 1 : slot.stop]
            middle = natural[:, slot.start] + np.einsum("npd,p->nd", coef, self._middle)
            u[:, slot.start] = (middle - zero) / unit
            u[:, slot.start + 1 : slot.stop] = coef * self._width[:, None] / unit
        return u

    def _values(self, u):
        natural = u.copy()
        for k, slot in enumerate(self._slots()):
            zero, unit = self._zero[k], self._unit[k]
            if not self._depends[k]:
                scale = SCALES[self.family_._scales()[k]]
                natural[:, slot] = scale.back(zero + unit * u[:, slot])
                continue
            coef = u[:, slot.start + 1 : slot.stop] * unit / self._width[:, None]
            middle = zero + unit * u[:, slot.start]
            shift = np.einsum("npd,p->nd", coef, self._middle)
            natural[:, slot.start] = middle - shift
            natural[:, slot.start + 1 : slot.stop] = coef
        return natural.reshape(len(u), -1)

    def _ridge(self, n_coordinates):
        ridge = np.zeros(n_coordinates)
        for slot, depends in zip(self._slots(), self._depends, strict=True):
            if depends:
                ridge[slot.start + 1 : slot.stop] = self.alpha
        return ridge

    # Fitted attributes

    def publish(self, parameters, dtype):
        """Set the fitted attributes."""
        intercept, coef, others = self._unpack(parameters)
        self.intercept_, self.coef_ = intercept.astype(dtype), coef.astype(dtype)
        for name, value in others.items():
            setattr(self, f"{name}_", value.astype(dtype))

    def parameters(self):
        """Return the fitted parameters."""
        names = zip(self.parameter_scales, self._depends, strict=True)
        others = [getattr(self, f"{name}_") for name, depends in names if not depends]
        parts = [np.asarray(part, float) for part in (self.intercept_, self.coef_)]
        return self._pack(*parts, [np.asarray(part, float) for part in others])

    def describe(self, names):
        """Return columns of a summary: intercepts, coefficients, other parameters."""
        names, columns, at = [names[j] for j in self._own], {}, 0
        for name, depends in zip(self.parameter_scales, self._depends, strict=True):
            for j, feature in enumerate(names):
                about = f"{feature} {name}"
                if not depends:
                    columns[about] = getattr(self, f"{name}_")[:, j]
                    continue
                columns[f"{about} ~ 1"] = self.intercept_[:, at]
                for k, term in enumerate(self._terms):
                    columns[f"{about} ~ {term}"] = self.coef_[:, at, k]
                at += 1
        return columns

    # What the family says of values, given their rows

    def log_density(self, x, *values):
        return self.family_.log_density(x, *values)

    def _expand(self, x, u, designs):
        eta = self._predictors(u, designs)
        return self.family_._expand_at(x[:, None], eta)

    def start_columns(self, X):
        """Return the scores of rows under one fit of all."""
        one = copy(self)
        one.n_states_ = 1
        one.coef = one.intercept = one.coef_init = one.intercept_init = None
        one.family_ = copy(self.family_)
        one.family_.n_states_ = 1
        for name in self.parameter_scales:
            for end in ("", "_init"):
                if hasattr(one.family_, f"{name}{end}"):
                    setattr(one.family_, f"{name}{end}", None)
        packed, every = one.blank(), np.ones((len(X), 1))
        for _ in range(1 if self.exact else STEPS):
            before = packed
            packed = one.maximize(one.collect(X, every, before), before, True)
            if np.allclose(packed, before, rtol=1e-4):
                break
        x, designs = self._read(X)
        seen = ~np.isnan(x)
        _, scores, _ = one._expand(
            np.where(seen, x, self._typical), one._coordinates(packed), designs
        )
        columns = [np.where(seen, own[:, 0], 0.0) for own in scores]
        design = X[:, X.shape[1] - len(self._middle) :][:, :SCORED]
        for own, depends in zip(list(columns), self._depends, strict=True):
            if depends:
                columns += [own * z[:, None] for z in design.T]
        return np.hstack(columns)

    def _at(self, parameters, X):
        """Return the family's parameters in rows, each (n_rows, n_states, n_columns).

        Without rows, those of the mean of the covariates.
        """
        if X is None:
            p = len(self._middle)
            X = np.zeros((1, self.n_columns_ + len(self._offset) + 1 + p))
            X[0, -1 - p] = 1.0
        _, designs = self._read(np.asarray(X, float))
        eta = self._predictors(self._coordinates(parameters), designs)
        shape = len(X), len(parameters), self.n_columns_
        return [np.broadcast_to(value, shape) for value in self._natural(eta)]

    def moments_at(self, parameters, X):
        """Return mean and variance of the values of rows in every state."""
        values = self._at(parameters, X)
        if hasattr(self.family_, "mean_variance"):
            return self.family_.mean_variance(*values)
        rng = np.random.default_rng(0)
        draws = np.stack([self.family_.sample(rng, *values) for _ in range(DRAWS)])
        return self.family_._moments_of(draws, axis=0)

    def moments(self, parameters):
        """Return mean and variance of the values at the mean of the covariates."""
        return tuple(part[0] for part in self.moments_at(parameters, None))

    def draw_at(self, parameters, states, rng, X):
        """Return values for rows in given states."""
        rows = np.arange(len(states))
        values = [value[rows, states] for value in self._at(parameters, X)]
        return np.asarray(self.family_.sample(rng, *values), float)

    def draw(self, parameters, states, rng):
        """Return values for every state at the mean of the covariates."""
        values = [value[0, states] for value in self._at(parameters, None)]
        return np.asarray(self.family_.sample(rng, *values), float)

    def tails_at(self, X, j, parameters):
        """Return the probabilities of less and of more than the values of column j."""
        values = [value[:, :, j] for value in self._at(parameters, X)]
        if hasattr(self.family_, "cdf"):
            return self.family_._tails(X[:, j, None], *values)
        rng = np.random.default_rng(0)
        draws = np.stack([self.family_.sample(rng, *values) for _ in range(DRAWS)])
        x = X[:, j, None]
        below = (draws < x).sum(axis=0) + 0.5 * (draws == x).sum(axis=0)
        below = (below + 0.5) / (DRAWS + 1.0)
        return below, 1.0 - below

    def probabilities_at(self, parameters, X):
        """Return the probabilities of categories (n_rows, n_states, n), or None."""
        if not isinstance(self.family_, Choice):
            return None
        shares = self.family_.probabilities(*self._at(parameters, X))
        return np.moveaxis(shares[..., 0], 0, 2)


def _is_fitted(transformer):
    """Whether a transformer knows what to do, as one that is frozen does."""
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        return False
    return True
