"""Softmax regression with coefficients by group: the scikit-learn shell."""

import time
import warnings
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin

from skvrem import solvers
from skvrem.data import of_dask, streamed
from skvrem.exceptions import FewGroupsWarning
from skvrem.utils._base import VersionedPickle, check_unchanged, feature_names
from skvrem.utils._classes import number_classes, stream_classes
from skvrem.utils._columns import check_column, column_number
from skvrem.utils._parallel import one_blas_thread
from skvrem.utils._remote import check_has_targets
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    outside,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    among,
    check_parameters,
    check_weight,
)
from skvrem.vi.diagnostics._arviz import ArviZMixin
from skvrem.vi.gaussian._answers import (
    PredictsByGroup,
)
from skvrem.vi.gaussian._fit import fit_bound
from skvrem.vi.gaussian._guards import (
    CENTRE,
    SCALES,
    StreamsWithoutBound,
    check_prior_scale,
    feature_scales,
    warn_one_class,
    whole_fit,
)
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian.nested._input import (
    FEW_GROUPS,
    check_kind,
    few_groups,
    number_groups,
    open_groups,
    wide_groups,
    widest,
)
from skvrem.vi.gaussian.nested._width import learned_width
from skvrem.vi.hierarchical import _inference
from skvrem.vi.hierarchical._input import GroupedBlocks, GroupedRows
from skvrem.vi.hierarchical._memory import GroupMemory
from skvrem.vi.hierarchical._model import (
    GroupSums,
    HierarchicalModel,
    HierarchicalPrior,
    Past,
)
from skvrem.vi.hierarchical._units import Units, columns_of

# Where "auto" is "nested": coefficients of a group, and numbers in their matrices.
MOST_COEFFICIENTS, MOST_NUMBERS = 100, 4_000_000
# Of features, to be squared beside priors of scales near one: with more, a shift of all
# classes' coefficients, which only the prior knows, drowns the rest in floating point.
MOST_SPREAD = 500.0
# How far groups lie apart, of the width of their means' prior that is learned for both,
# of "nested": with 1 means far from zero draw groups apart that do not differ.
# "meanfield" finds scales that are too small with 1 already.
APART = 0.25
# What `prior_scale` may be but numbers.
LEARN = ("learn",)


class HierarchicalSoftmaxClassifier(
    PredictsByGroup,
    StreamsWithoutBound,
    ArviZMixin,
    ClassifierMixin,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""Softmax regression whose coefficients differ by group, as users' tastes do.

    Each group has coefficients of its own, drawn from a population whose means and
    scales are learnt as well [1]_: groups with many rows are judged by these, those
    with few like the others, and a group that has not been seen is the population's.
    Predictions average over the posterior distribution. There is no step size, and a
    fit stops where less than `tol` nats are left to gain.

    Parameters
    ----------
    groups : str or int, default=None
        Name or number of the column of X with the ids of groups, which is no feature
        then. None: ids come with the keyword ``groups`` of the methods; without one
        all rows are of one group. Cross-validation cuts a column as it should; the
        keyword needs scikit-learn's metadata routing.
    prior_scale : "learn", float or array-like of shape (n_features,), default="learn"
        Standard deviation of the prior of the population's means, which is zero on
        average. It does not cover the intercept. "learn": one over the standard
        deviation of the feature, times the factor of the highest evidence (or bound),
        which has a log-normal prior of median and spread 1. Units and zeros of features
        do not matter then: intercepts have their priors at the features' means. A
        stream keeps what its first rows have said, as long as all of them are kept.
    fit_intercept : bool, default=True
        Add an intercept to the logits, by group as well.
    intercept_prior_scale : float or "auto", default="auto"
        The same of the intercept, where features have their means if `prior_scale` is
        "learn", else where they are zero. "auto" is 1, and the standard deviation of
        the logarithms of the frequencies of classes more. A wider one leaves a group
        that has not been seen without a mean where there are one or two groups: by any
        posterior, the exact one too, predictions for it are then by chance. A stream
        keeps the frequencies of its first rows.
    population_scale : float or "auto", default="auto"
        Median of the prior of the population's scales: by how much groups differ.
        "auto" is 1 where `prior_scale` is given, else a quarter of what is learned for
        it, as groups mostly have more in common than apart; all of it for "meanfield",
        which finds scales that are too small. It covers the intercept, whose features
        have no unit.
    population_scale_spread : float, default=1.0
        Standard deviation of the logarithm of these scales, in the prior.
    posterior : {"auto", "nested", "meanfield"}, default="auto"
        "nested" integrates over the scales of the population last, by a Gaussian of
        their logarithms about the mode of Laplace's approximation of their marginal
        [2]_; given the scales all coefficients are one Gaussian. "meanfield" has
        independent coefficients but for the means that groups share, by the largest
        evidence lower bound: its intervals are too narrow, those of the scales by
        more the more groups there are. "auto" is "nested" up to 100 coefficients a
        group (features, with the intercept, times classes), up to 4 million numbers in
        the matrices of all groups, and for features whose root mean squares are at
        most 500: beyond, floating point does not hold it. A stream goes on as it has
        begun.
    max_iter : int, default=500
        Steps, of a pass or a little more each.
    tol : float, default=0.01
        Converged when what is left to gain is less, in nats of the bound.
    warm_start : bool, default=False
        Start from the last posterior, for groups that were there.
    n_jobs : int or None, default=None
        Threads; None is all cores, and one inside a joblib or dask worker. Results do
        not depend on it.
    verbose : int, default=0
        1: a progress bar, or a line every `verbose_interval` steps; 2: every step.
    verbose_interval : int, default=10
        Steps between two lines.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    groups_ : ndarray of shape (n_groups,)
        Ids, sorted, of groups with rows that weigh something: others are unseen ones.
    group_coef_, group_coef_std_ : ndarray of shape (n_groups, n_classes, n_features)
        Posterior means and standard deviations, for the features as they are.
    group_intercept_, group_intercept_std_ : ndarray of shape (n_groups, n_classes)
    population_mean_, population_mean_std_ : ndarray of shape (n_classes, n_features)
        The same of the population's means.
    population_scale_ : ndarray of shape (n_classes, n_features)
        Medians of how far groups lie from the mean of the population.
    population_log_scale_std_ : ndarray of shape (n_classes, n_features)
        Standard deviations of the logarithms of these.
    population_intercept_mean_ : ndarray of shape (n_classes,)
        The same of the intercepts, as the next three.
    population_intercept_mean_std_ : ndarray of shape (n_classes,)
    population_intercept_scale_ : ndarray of shape (n_classes,)
    population_intercept_log_scale_std_ : ndarray of shape (n_classes,)
        Of a learned `prior_scale` these two are at the features' means.
    n_group_samples_ : ndarray of shape (n_groups,)
        Rows of each group that weigh something.
    posterior_ : GroupPosterior
        All parameters of the posterior, with ``sample(n_samples, rng)``; those of
        standardised features where `prior_scale` is learned.
    prior_scale_ : ndarray of shape (n_features,)
        Given, or learned.
    intercept_prior_scale_ : float
        What was taken.
    posterior_kind_ : str
        "nested" or "meanfield".
    log_marginal_likelihood_ : float
        Of the classes given the rows, in nats, by Laplace's method: no bound. Of
        "nested" only.
    elbo_, elbo_error_ : float
        Evidence lower bound, and about what its quadrature errs by, both in nats. Of
        "meanfield" only, and a stream has none.
    objective_ : float
        What is climbed, in nats, priors included: the log-density of the scales, their
        coefficients integrated out, or the bound; of a stream with what is known of
        earlier rows in their place.
    history_ : dict of ndarray
        passes, seconds, objective, step_size, temperature and predicted_gain by step.
        A pass of "nested" is an evaluation of the marginal, of two to five Newton
        steps of all coefficients.
    converged_ : bool
    n_iter_ : int
    n_features_in_ : int
        With the column of ids, where there is one.
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    skvrem.BayesianLogisticRegression : One set of coefficients for all rows.

    Notes
    -----
    Of truths drawn from the prior, ten rows a group, 95 % intervals of "nested" hold
    94 to 96 % of the population's means and of groups' coefficients, 93 to 95 % of
    contrasts of classes, and 90 to 92 % of the logarithms of the scales, as long as
    groups have more rows than coefficients. With fewer the scales come out too small.
    A stream keeps what earlier rows said of their group as a Gaussian of its
    coefficients, which no longer turns where the scales move: of five batches its
    intervals hold 92 to 95 %, 89 % of contrasts and 85 % of the scales. Those of
    "meanfield" hold 51 to 76 %, 87 and 33 to 46 %, the less the more groups there are.

    "meanfield" keeps some 70 numbers for each coefficient of a group, most of them for
    the last directions of L-BFGS, and "nested" matrices of J x J, J coefficients a
    group. There is no ``pareto_k_``: only the prior tells one class's coefficients from
    a shift of all classes'.

    References
    ----------
    .. [1] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
       variational inference. AISTATS. Section 7.1.
    .. [2] Rue, Martino, Chopin (2009). Approximate Bayesian inference for latent
       Gaussian models by using integrated nested Laplace approximations. Journal of
       the Royal Statistical Society B, 71.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import HierarchicalSoftmaxClassifier
    >>> rng = np.random.default_rng(0)
    >>> user = rng.integers(30, size=900)
    >>> taste = rng.normal(size=(30, 2))
    >>> X = rng.normal(size=(900, 2))
    >>> y = (np.sum(X * taste[user], axis=1) > 0).astype(int)
    >>> model = HierarchicalSoftmaxClassifier().fit(X, y, groups=user)
    >>> model.group_coef_.shape
    (30, 2, 2)
    >>> model.score(X, y, groups=user) > model.score(X, y) + 0.2
    True
    """

    #: Whether the fit had no groups; not before a fit, nor in older pickles.
    _alone = False
    #: Features of the priors and of `posterior_`; None is as they are, as in these.
    _units = None

    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__partial_fit: ClassVar = {"groups": True}
    __metadata_request__predict: ClassVar = {"groups": True}
    __metadata_request__predict_proba: ClassVar = {"groups": True}
    __metadata_request__predict_log_proba: ClassVar = {"groups": True}
    __metadata_request__score: ClassVar = {"groups": True}

    def __init__(
        self,
        groups: str | int | None = None,
        *,
        prior_scale: float | ArrayLike | Literal["learn"] = "learn",
        fit_intercept: bool = True,
        intercept_prior_scale: float | Literal["auto"] = "auto",
        population_scale: float | Literal["auto"] = "auto",
        population_scale_spread: float = 1.0,
        posterior: Literal["auto", "nested", "meanfield"] = "auto",
        max_iter: int = 500,
        tol: float = 1e-2,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.groups = groups
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.intercept_prior_scale = intercept_prior_scale
        self.population_scale = population_scale
        self.population_scale_spread = population_scale_spread
        self.posterior = posterior
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __setstate__(self, state):
        super().__setstate__(state)
        if "posterior_" in state and "prior_scale_" not in state:  # none was learned
            n_features = self.population_mean_.shape[1]
            self.prior_scale_ = feature_scales(self._of_fit, n_features)

    def _check_parameters(self):
        population = {"population_scale": SCALES, "population_scale_spread": SCALES}
        check_parameters(self, intercept_prior_scale=SCALES, **population)
        check_column(self, "groups")
        check_prior_scale(self, LEARN)

    def fit(self, X, y, groups=None, sample_weight=None):
        """Fit the posterior.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        groups : array-like of shape (n_samples,), default=None
            Ids of their groups, in any order; where the constructor names no column.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times: those of weight zero are as if left out.

        Returns
        -------
        self : HierarchicalSoftmaxClassifier
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, a single class, ids that are missing or not
            one a row, rows that are not finite, and with ``posterior="nested"``
            features far from the scale of the priors. The estimator is then as it was
            before.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` steps were not enough.
        FewGroupsWarning
            Without groups, with fewer than four, or where groups differ by much more
            than the prior of the population's means allows for: a group that has not
            been seen is then poorly known.
        """
        with whole_fit(self, CENTRE), one_blas_thread():
            with solvers.checkpointed(self, X, y, groups, sample_weight):
                self._fit(X, y, groups, sample_weight)
            self._warn_of_groups()
        return self

    def _warn_of_groups(self):
        """Warn of groups that say little of what groups have in common."""
        name, n_groups, q = type(self).__name__, len(self.groups_), self.posterior_
        prior = self._last_prior()
        spread = np.exp(q.log_tau_log_scale)
        at, times = widest(q.log_tau, spread, np.sqrt(prior.variance), n_groups)
        text = None
        if self._alone:
            text = (
                f"{name} was given no groups, and takes all rows for one: if that is "
                "what is meant, BayesianLogisticRegression is for it, and judges "
                "coefficients better. Ids of groups go to fit(X, y, groups=...) or "
                "are a column of X that the constructor's groups names."
            )
        elif n_groups < FEW_GROUPS:
            instead = "Where groups need not differ, take BayesianLogisticRegression."
            text = few_groups(name, n_groups, instead)
        elif at is not None:
            names = [*self._feature_names(self), "the intercept"]
            which = "intercept_" if at[0] == len(names) - 1 else ""
            label = self.classes_.tolist()[at[1]]
            text = wide_groups(f"{names[at[0]]} (class {label!r})", times, which)
        if text is not None:
            warnings.warn(text, FewGroupsWarning, stacklevel=outside())

    @streamed
    def partial_fit(self, X, y, classes=None, groups=None, sample_weight=None):
        """Update the posterior with further rows, of groups that may be new.

        What earlier rows said of their group is kept as a Gaussian factor of its
        coefficients, and the population is judged anew by all groups: the posterior is
        near that of a `fit` to all rows. So that these may be sorted, a sample of the
        rows of each group is kept beside, 1,000 in all or four a coefficient of a group
        (at most 64 a class), and seen again where the group moves. The prior is that of
        the first rows: it is made anew when they have become twice as many or hold
        another class, as long as all of them are kept. What is not known of the scales
        of "nested" is averaged over anew each time that rows are half as many more.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            The rows that are new.
        y : array-like of shape (n_samples,)
            Their classes.
        classes : array-like of shape (n_classes,), default=None
            All classes of the stream, needed in the first call.
        groups : array-like of shape (n_samples,), default=None
            As in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times: those of weight zero are as if left out.

        Returns
        -------
        self : HierarchicalSoftmaxClassifier
            The fitted model. ``n_group_samples_`` counts all rows; ``history_``,
            ``n_iter_`` and ``converged_`` are those of the new ones. There is no
            ``elbo_``, as what earlier rows said is known about only.

        Raises
        ------
        ValueError
            As `fit`; if `classes` is missing in the first call or differs later, y
            holds a class that is not among them, or rows have ids where the first had
            none, or none where they had.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` steps were not enough.
        FewGroupsWarning
            As `fit`, in the first call for rows without groups only.
        OneClassWarning
            If the first rows are of one class only and `posterior` is "meanfield".
        """
        with whole_fit(self, CENTRE), one_blas_thread():
            known = stream_classes(self, classes)
            first = not hasattr(self, "posterior_")
            if not first:
                check_unchanged(self, "fit_intercept", "groups")
            self._fit(X, y, groups, sample_weight, known)
            self._forget_bound()
            if first and self._alone:
                self._warn_of_groups()
        return self

    @with_callbacks
    def _fit(self, X, y, groups, sample_weight, known=None):
        began = time.perf_counter()
        stream = known is not None
        go_on = stream and hasattr(self, "posterior_")
        given = X, y, groups, sample_weight
        if any(map(of_dask, given)):
            seen = self._open_blocks(*given)
        else:
            seen = self._open(*given, known, go_on)
        new, labels, classes, past, counts = seen, seen.labels, seen.classes, None, 0
        memory = GroupMemory(begun=int(seen.count(labels).sum()))
        if go_on:
            seen, labels, past, counts, memory = self._with_past(seen)
        # Of a stream the prior is made of the rows that can be seen at once.
        anew = past is None
        learns, units = among(self.prior_scale, LEARN) and anew, None
        if learns:
            units = seen.units
        elif go_on:
            units = self._units
        seen = seen.within(units)
        nested = self._is_nested(len(labels), seen, go_on)
        if stream and not go_on and not nested:
            warn_one_class(self, seen.numbers, classes)
        scale = self._intercept_scale(seen.class_weights, not anew)
        prior_of = partial(self._prior, nested, seen.n_features, scale, units)
        begin = seen.begin_nested if nested else seen.begin_mean_field
        prior = prior_of()
        model, data, passes = begin(labels, prior, past)
        point = self._start(model, data, classes, labels, not anew)
        if learns:
            common = among(self.population_scale, ("auto",))
            known = self._units if self.warm_start and self._units else units
            given = model, data, point, prior_of, slice(seen.n_features), common
            *found, point, more = learned_width(*given, known.width, known.curvature)
            units, passes = Units(*units[:2], *found), passes + more
            prior = prior_of(units.width)
            model = model.of_prior(prior)
        scales = np.sqrt(prior.variance[: seen.n_features, 0])
        attributes = partial(
            self._attributes,
            units=units,
            prior_scale_=scales if units is None else scales / units.deviation,
            dtype=self.group_coef_.dtype if go_on else seen.dtype,
            classes_=classes,
            groups_=labels,
            n_group_samples_=new.count(labels) + counts,
            posterior_kind_="nested" if nested else "meanfield",
            intercept_prior_scale_=scale,
            _alone=seen.alone,
        )
        solver = solvers.QuasiNewton(self.tol)
        n_seen = int(np.sum(counts)) + int(new.count(labels).sum())
        drawn = None if anew else self._drawn_before(labels, n_seen)

        def describe(point, objective):
            q = model.posterior(point, drawn=drawn)
            found = attributes(q) | {"objective_": objective}
            if not nested:
                return found | {"elbo_": objective}
            if stream:
                found["_drawn"] = drawn or model.drawn(point, q, n_seen)
            return found | {
                "log_marginal_likelihood_": model.log_marginal(point, q),
                "_seen": model.seen(point),
            }

        with Progress(self, X, y, 1) as progress:
            report = progress.start(0, describe)
            result, _, error = fit_bound(
                self, model, data, solver, point, report, began, passes=passes
            )
        warn_not_converged(self, result, unit="")
        found = describe(result.point, result.objective)
        if nested:
            self._forget_bound()
        else:
            found["elbo_error_"] = error
            for name in ("log_marginal_likelihood_", "_seen"):
                vars(self).pop(name, None)
        vars(self).update(found, **result.attributes())
        if not stream:
            vars(self).pop("_drawn", None)
        for name in ("_memory", "_rows"):
            vars(self).pop(name, None)
        if stream:
            self._memory = memory.after(new, self.posterior_)
        elif isinstance(new, GroupedRows):
            self._rows = new

    def __getstate__(self):
        state = super().__getstate__()
        state.pop("_rows", None)  # which stay where they are
        return state

    def _drawn_before(self, labels, n_seen):
        """Return what draws have added to a posterior, None where it is time to draw.

        Of groups with such ids, and for so many rows of the stream.
        """
        drawn = vars(self).get("_drawn")
        if drawn is None or not drawn.is_of(n_seen):
            return None
        return drawn.spread(np.searchsorted(labels, self.groups_), len(labels))

    def _memory_before(self):
        """Return what is kept of the rows before a batch."""
        if "_memory" in vars(self):
            return self._memory
        if "_rows" in vars(self):
            return GroupMemory().after(self._rows, self.posterior_)
        return GroupMemory(about=self.posterior_.group_mean)  # of rows that are gone

    def _open(self, X, y, groups, sample_weight, known, go_on):
        """Return the `GroupedRows` of a fit, or of a batch of a stream."""
        check_has_targets(self, y, required=True)
        column = self.groups
        rows, targets, ids = open_groups(self, X, y, groups, column, reset=not go_on)
        weight = check_weight(sample_weight, len(rows))
        classes, numbers = number_classes(self, targets, weight, known)
        if go_on and (ids is None) != self._alone:
            raise ValueError(
                "groups must be there for all batches of a stream or for none: "
                f"{'the first had none' if self._alone else 'this one has none'}."
            )
        alone = ids is None
        return GroupedRows.of(rows, numbers, classes, weight, ids, alone, self)

    def _open_blocks(self, X, y, groups, sample_weight):
        """Return the `GroupedBlocks` of a fit to rows of dask."""
        return GroupedBlocks.of(self, X, y, groups, sample_weight)

    def _is_nested(self, n_groups, seen, go_on):
        """Whether the scales of the population are integrated out last."""
        if go_on:
            return self.posterior_kind_ == "nested"
        square = seen.mean_square
        near = bool((square <= MOST_SPREAD**2).all())
        if self.posterior == "nested" and not near:
            column = self._feature_names(self)[int(square.argmax())]
            raise ValueError(
                f"posterior='nested' needs features whose root mean square is at most "
                f"{MOST_SPREAD:g}: that of {column} is {np.sqrt(square.max()):.3g}. "
                f"{CENTRE} posterior='meanfield' takes them as they are."
            )
        if self.posterior != "auto":
            return self.posterior == "nested"
        size = (seen.n_features + self.fit_intercept) * len(seen.classes)
        few = size <= MOST_COEFFICIENTS and n_groups * size**2 <= MOST_NUMBERS
        return few and near

    def _intercept_scale(self, counts, go_on):
        """Return the prior scale of the intercept."""
        if self.intercept_prior_scale != "auto":
            return float(self.intercept_prior_scale)
        if go_on:
            return self.intercept_prior_scale_
        return float(1.0 + np.log(counts + 1.0).std())

    def _prior(self, nested, n_features, intercept_scale, units=None, width=None):
        """Return the prior of features in units, of their width or another."""
        known = Units(0.0, np.ones(n_features)) if units is None else units
        width = known.width if width is None else width
        learned = among(self.prior_scale, LEARN)
        if learned:
            scales = np.full(n_features, width)
        else:
            scales = feature_scales(self, n_features) * known.deviation
        auto = among(self.population_scale, ("auto",))
        if auto and learned and units is not None:
            of_intercepts = APART * width if nested else width
            of_groups = np.full(n_features, of_intercepts)
        else:
            of_intercepts = 1.0 if auto else float(self.population_scale)
            of_groups = of_intercepts * known.deviation
        if self.fit_intercept:
            scales = np.append(scales, intercept_scale)
            of_groups = np.append(of_groups, of_intercepts)
        return HierarchicalPrior(
            np.square(scales)[:, None],
            np.log(of_groups)[:, None],
            float(self.population_scale_spread),
        )

    def _last_prior(self):
        """Return the prior of the last fit, or of the next batch of its stream."""
        nested = self.posterior_kind_ == "nested"
        n_features = self.population_mean_.shape[1]
        return self._prior(nested, n_features, self.intercept_prior_scale_, self._units)

    def _with_past(self, new):
        """Return what a batch makes a stream look at.

        Returns
        -------
        seen : GroupedRows
            The batch, and rows that are kept.
        every : ndarray of shape (n_groups,)
            Ids of all groups.
        past : Quadratic, Past or None
            What other rows say of these; None where there are none.
        counts : ndarray of shape (n_groups,)
            Rows of each before the batch.
        memory : GroupMemory
        """
        memory, counts = self._memory_before(), self.n_group_samples_
        groups = new.labels
        check_kind(groups, self.groups_)
        every = np.union1d(self.groups_, groups)
        at = np.searchsorted(every, self.groups_)

        def spread(part, empty=0.0):
            out = np.full((len(every), *part.shape[1:]), empty, part.dtype)
            out[at] = part
            return out

        if memory.begins_anew(new, counts.sum()):
            seen, memory = memory.begin_anew(new)
            return seen, every, None, spread(counts), memory
        q, nested = self.posterior_, self.posterior_kind_ == "nested"
        past = self._seen if nested else self._past(q)
        given = new, self._units, past, q, self.groups_, counts
        seen, past, memory = memory.recall(*given)
        memory = memory._replace(about=spread(memory.about, np.nan))
        if nested:
            past = past.spread(at, len(every))
        else:
            past = Past(*map(spread, past[:3]), past.level)
        return seen, every, past, spread(counts), memory

    def _past(self, q):
        """Return what all rows say of groups, of a mean-field posterior."""
        past = Past.of(q)
        known = len(q.group_mean), self._last_prior(), 1.0, past
        model = HierarchicalModel(None, None, None, *known)
        # What the rows' expected log-likelihood was.
        none = GroupSums(None, None, 0.0)
        return past._replace(level=self.objective_ - model.objective(Point(q), none))

    def _start(self, model, data, classes, labels, go_on):
        """Return the point to start from: zero, or what is known of groups."""
        point = model.start(data)
        before = vars(self).get("posterior_") if go_on or self.warm_start else None
        if before is None or not np.array_equal(classes, self.classes_):
            return point
        if before.mean.size != point.parameters.mean.size:
            return point
        # New groups are the population's.
        old = number_groups(labels, self.groups_)
        mean = np.where((old < 0)[:, None, None], before.mean, before.group_mean[old])
        return model.resume(point, before, mean, old)

    def _attributes(self, q, dtype, units, **others):
        """Return the fitted attributes of parameters."""
        found = {"posterior_": q, "_units": units, **others}
        parts = {
            "group_{}": q.group_mean,
            "group_{}_std": np.sqrt(q.group_variance),
            "population_{}mean": q.mean,
            "population_{}mean_std": np.exp(q.log_scale),
            "population_{}scale": np.exp(q.log_tau),
            "population_{}log_scale_std": np.exp(q.log_tau_log_scale),
        }
        if units is not None:
            parts |= units.of_features(parts, q, self.fit_intercept)
        for name, part in parts.items():
            own = name.startswith("group")
            names = ("coef", "intercept") if own else ("", "intercept_")
            for one, columns in zip(names, columns_of(part, self), strict=True):
                found[f"{name.format(one)}_"] = np.array(columns, dtype, order="C")
        return found

    def _feature_names(self, given=None):
        """Names of the features, without the column of ids."""
        names = feature_names(self)
        column = (given or self._of_fit).groups
        if column is not None:
            del names[column_number(column, "groups", names, len(names))]
        return names

    # Answers are functions of a fitted state, documented where they are computed.

    predict_proba = _inference.predict_proba
    score = _inference.score
    sample_posterior = _inference.sample_posterior
    sample_predictive = _inference.sample_predictive
    summary = _inference.summary
    _draws = _inference.draws
