"""Bayesian generalised linear regression: the scikit-learn shell."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin

from skvrem.data import as_source, column_moments, of_dask, streamed
from skvrem.utils._columns import Given, MatrixLike
from skvrem.utils._validation import among, check_magnitude, check_weight
from skvrem.vi.gaussian._guards import check_moments, checked, feature_scales
from skvrem.vi.gaussian._minibatch import MinibatchSteps
from skvrem.vi.gaussian._model_posterior import CentredMeanField, MeanField
from skvrem.vi.glm import _inference
from skvrem.vi.glm._input import checked_offset, few_in_memory, open_blocks
from skvrem.vi.glm._noise import NoisyPosterior
from skvrem.vi.glm._targets import TARGETS, WIDE
from skvrem.vi.glm.streams._gram import MOST_IN_GRAM, Gram

# Median of the prior of the population's scales, in standard deviations of the
# targets for one of a feature.
SOME = 0.5


def _targets_of_block(estimator, columns):
    """Return the columns of a block with targets as the family wants them."""
    weight, y, offset = columns.weight, columns.targets, columns.offset
    if len(y):
        estimator._check_targets(y)
        y = estimator._targets(y, weight, estimator, offset)
    elif offset is not None:
        y = TARGETS[estimator.family].of_none()
    return columns._replace(targets=np.asarray(y, np.float64), offset=None)


class BayesianGLMRegressor(NoisyPosterior, RegressorMixin, BaseEstimator):
    r"""Linear or Poisson regression whose coefficients have a posterior distribution.

    Coefficients have a Gaussian prior and, by variational inference, a Gaussian
    posterior. For ``family="gaussian"`` with a full rank it is the exact posterior.
    Fits make no Monte Carlo error and need no step size.

    Parameters
    ----------
    family : {"gaussian", "poisson", "negative-binomial"}, default="gaussian"
        Real numbers with noise; counts whose logarithmic mean is linear; or such counts
        that vary more, by full passes only.
    prior_scale : {"learn", "auto"}, float or array-like, default="learn"
        Standard deviation of the prior of the coefficients, whose mean is zero, or one
        for each feature, of shape (n_features,). "auto" follows the units: 2.5 standard
        deviations of the targets, or 2.5 in the logarithm of the mean of counts, for a
        standard deviation of the feature. Of counts, for a rare feature, of which most
        rows have one value, for no less than a quarter of how far the others lie from
        its mean (root mean square). These are those of the rows, in a stream of
        all so far (see `partial_fit`). "learn" has, in the place of 2.5, the width of
        the largest evidence (of counts, the highest bound), under a log-normal prior of
        its own (median 1, spread 1): the mean of it, as far as rows tell; what they do
        not is in the posterior, but of "meanfield". Of counts with more
        than 1,000 coefficients some of the rows tell it. A stream learns it again as it
        grows, as long as it keeps all rows or their sums (see `partial_fit`); in others
        of "gaussian", and with groups, it is "auto".
    noise_scale : float or "learn", default="learn"
        Standard deviation of the noise of "gaussian". "learn": by the largest
        evidence, as no less than 1e-3 of the targets' standard deviation. What is
        not known of it widens standard deviations and intervals, which are those of
        Student's t; what is the prior's, as rows do not tell, keeps its width.
    concentration : float or "learn", default="learn"
        Of "negative-binomial", whose variance is mean + mean^2 / concentration.
        "learn": that of the highest bound, under a half-normal prior of scale 3 on
        one by its root, how much rates vary beside their mean: where (nearly) all
        counts are zero, a concentration of next to none would explain them at any rate.
    fit_intercept : bool, default=True
        Add an intercept.
    intercept_prior_scale : float or "auto", default="auto"
        Standard deviation of the prior of the intercept, about zero, where features are
        zero. "auto": where all features are at their means, the prior is about the mean
        of the targets (of counts, its logarithm), as wide as that of a standardised
        coefficient of ``prior_scale="auto"``, whatever the coefficients: so nothing
        depends on where a feature has its zero, but by posterior "lowrank", or
        "meanfield", whose prior is independent too, and as wide at zero.
    groups : str or int, default=None
        Name or number of the column of X with the ids of groups that coefficients
        differ by, which is no feature then. None: ids come with the keyword ``groups``
        of the methods, and without one all rows are alike.
    varying : {"intercept", "all"} or list of str or int, default="intercept"
        What differs from group to group: the intercept, everything, or the intercept
        and the coefficients of some columns. But for "intercept" it needs groups.
    population_scale : float or "auto", default="auto"
        Median of the prior of how far groups lie from their mean, whose logarithm has
        the standard deviation one. "auto" is half a standard deviation of the targets,
        or 1/2 of counts, for a standard deviation of the feature.
    posterior : {"auto", "fullrank", "lowrank", "meanfield"}, default="auto"
        Covariance of the posterior: any; a diagonal plus `rank`; a diagonal.
        "auto" is "fullrank" up to 2,000 coefficients, beyond "lowrank"; with a solver
        by minibatches it is "meanfield". Up to 1,000 rows that are fewer than
        coefficients have that of a full rank at any number of these, the exact one of
        "gaussian": what rows take from the prior has a rank of their number (as long as
        sparse rows have no more than 1e8 places, of which the basis is dense; of counts
        not in streams). The standard deviations of "meanfield" are too small where
        features are correlated, of "lowrank" where more directions than `rank` are
        told, and so are their intervals. With groups it is a Gaussian of all
        coefficients nested in one of the scales of groups.
    rank : int or None, default=None
        Of "lowrank"; None is 10.
    solver, steps : str, MinibatchSteps
        As of :class:`BayesianLogisticRegression`.
    step_size, batch_size : float, int
        As of :class:`BayesianLogisticRegression`.
    max_iter : int, default=500
        Epochs.
    tol : float, default=0.01
        Converged when what is left to gain is less, in nats of the bound; by a
        concentration that is learned, too.
    warm_start : bool, default=False
        Start from the last posterior, of the same family, features and
        `fit_intercept`; else anew.
    n_jobs : int or None, default=None
        Threads of full passes; None is all cores, and one inside a joblib or dask
        worker. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seeds minibatches, draws and the start of a low rank.
    verbose : int, default=0
        1: a progress bar, or a line every `verbose_interval` epochs; 2: every epoch.
    verbose_interval : int, default=10
        Epochs between two lines.

    Attributes
    ----------
    coef_, coef_std_ : ndarray of shape (n_features,)
        Posterior means and standard deviations.
    intercept_, intercept_std_ : float
    noise_scale_ : float
        Of "gaussian".
    noise_df_ : float
        Of "gaussian": degrees of freedom of the noise where it is learnt, which are
        those of coefficients that rows tell all of; else infinity.
    concentration_ : float
        Of "negative-binomial".
    prior_scale_ : ndarray of shape (n_features,)
        Prior standard deviations of the coefficients.
    intercept_prior_mean_, intercept_prior_scale_ : float
        With an intercept, of its prior where features are zero.
    posterior_ : MeanField, FullRank or LowRank
        Over coefficients and intercept, given the noise, with what is not known of a
        learned width of the prior; ``elbo_`` and ``pareto_k_`` are given that width.
        The exact one of fewer rows than coefficients, beyond 1,000 of these, is a
        LowRank whose ``sign`` is -1, but for one column of that width and one of the
        intercept.
    elbo_, elbo_error_, objective_, history_, pareto_k_ : float, dict
    converged_, n_iter_ : bool, int
        As of :class:`BayesianLogisticRegression`.
    groups_, n_group_samples_ : ndarray of shape (n_groups,)
        With groups: their ids, sorted, and rows. ``coef_`` and ``intercept_`` are the
        population's then.
    group_coef_, group_coef_std_ : ndarray of shape (n_groups, n_features)
        With groups: posterior means and standard deviations of their coefficients.
    group_intercept_, group_intercept_std_ : ndarray of shape (n_groups,)
    population_scale_, population_log_scale_std_ : ndarray of shape (n_features,)
        With groups: medians of how far they lie from their mean, zero where they do
        not differ, and standard deviations of their logarithms.
    population_intercept_scale_, population_intercept_log_scale_std_ : float
        The same of intercepts, of rows that lie at `population_origin_`.
    population_origin_ : ndarray of shape (n_features,)
        With groups: where a group's intercept and its slopes are independent given the
        population, which is learnt; zero for features whose coefficients do not differ.
        So intercepts at zero lie apart by the root of ``population_intercept_scale_**2
        + sum((population_origin_ * population_scale_)**2)``, and have with a slope the
        covariance ``-population_origin_ * population_scale_**2``. All else that is
        said of intercepts is of features that are zero.
    log_marginal_likelihood_ : float
        With groups, in place of ``elbo_``: of the targets, by Laplace's method; by
        quadrature over the intercepts of groups of few rows, where they alone differ.
    solver_, expectation_, optimizer_, step_size_, batch_size_ : str, float, int
        What was used.
    n_samples_seen_ : int
        Rows of the fit, or of the stream.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    sklearn.linear_model.BayesianRidge : The prior's scale is learnt too.
    sklearn.linear_model.PoissonRegressor : A point in place of a distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import BayesianGLMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = rng.poisson(np.exp(X @ [0.5, -1.0] + 1.0))
    >>> model = BayesianGLMRegressor("poisson").fit(X, y)
    >>> bool((abs(model.coef_ - [0.5, -1.0]) < 3.0 * model.coef_std_).all())
    True
    """

    # Ids of groups that cross-validation cuts by are asked for, not taken.
    __metadata_request__fit: ClassVar = {"groups": False}
    __metadata_request__partial_fit: ClassVar = {"groups": False}
    __metadata_request__predict: ClassVar = {"groups": False}
    __metadata_request__score: ClassVar = {"groups": False}

    _lasting = ("family", "fit_intercept")
    _prior_options = ("learn", "auto")
    _target_kind = "numbers"

    def __init__(
        self,
        family: Literal["gaussian", "poisson", "negative-binomial"] = "gaussian",
        *,
        prior_scale: float | ArrayLike | Literal["learn", "auto"] = "learn",
        noise_scale: float | Literal["learn"] = "learn",
        concentration: float | Literal["learn"] = "learn",
        fit_intercept: bool = True,
        intercept_prior_scale: float | Literal["auto"] = "auto",
        groups: str | int | None = None,
        varying: str | Sequence[str | int] = "intercept",
        population_scale: float | Literal["auto"] = "auto",
        posterior: Literal["auto", "fullrank", "lowrank", "meanfield"] = "auto",
        rank: int | None = None,
        solver: Literal["auto", "batch", "stochastic", "svrg", "saga"] = "auto",
        steps: MinibatchSteps | None = None,
        step_size: float | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 500,
        tol: float = 1e-2,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.family = family
        self.prior_scale = prior_scale
        self.noise_scale = noise_scale
        self.concentration = concentration
        self.fit_intercept = fit_intercept
        self.intercept_prior_scale = intercept_prior_scale
        self.groups = groups
        self.varying = varying
        self.population_scale = population_scale
        self.posterior = posterior
        self.rank = rank
        self.solver = solver
        self.steps = steps
        self.step_size = step_size
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        of_family = TARGETS.get(self.family) if isinstance(self.family, str) else None
        tags.target_tags.positive_only = of_family is not None and of_family.are_counts
        return tags

    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: Given = None,
        offset: Given = None,
        groups: Given = None,
    ) -> Self:
        """Fit the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.
        offset : array-like of shape (n_samples,), default=None
            Added to the linear predictor of each row, with the coefficient one: of
            counts, the logarithm of what they were counted in (exposure, area, time).
        groups : array-like of shape (n_samples,), default=None
            Ids of the groups that coefficients differ by, in any order.

        Returns
        -------
        self : BayesianGLMRegressor
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range or that do not go together, and rows or targets
            that the model cannot have. The estimator is then as it was before.
        TypeError
            For sparse chunks of a dask array with groups.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        FewGroupsWarning
            With fewer than four groups, or where they differ by much more than the
            prior of their mean allows for.
        """
        return self._see(X, y, sample_weight, groups, offset=offset)

    def _meaning(self, given):
        return given.family, *super()._meaning(given)

    def _open(self, X, y, sample_weight, given, reset, offset=None):
        if any(map(of_dask, (X, y, sample_weight, offset))):
            return self._open_blocks(X, y, sample_weight, reset, offset)
        self._check_targets(y)
        options = {"accept_sparse": "csr", "y_numeric": True}
        X, y = checked(self, X, y, reset=reset, **options)
        weight = check_weight(sample_weight, X.shape[0])
        targets = self._targets(y, weight, given, offset)
        return as_source(X, weight), targets, X.dtype

    def _open_blocks(self, X, y, sample_weight, reset, offset):
        """Return what `_open` does, of the rows of a fit on dask."""
        if y is None or not of_dask(y):
            self._check_targets(y)
        given = self, X, y, sample_weight, reset
        data, seen = open_blocks(*given, self._target_kind, offset)
        data = self._with_targets(data, seen)
        if self._has_sums(data):
            if self.fit_intercept and not data.sparse:
                check_moments(column_moments(data).plain)
            sums, n_rows = Gram.of_blocks(data), data.n_units
            few = as_source(sums.rows, sums.weight, stands_for=n_rows)
            return few, sums.targets, data.dtype
        return *few_in_memory(self, data), data.dtype

    @property
    def _targets_of_fit(self):
        """What the family of the fit has, for answers."""
        return TARGETS[self._of_fit.family]

    @property
    def _has_gram(self):
        return TARGETS[self.family].has_sums

    def _has_sums(self, data):
        """Whether few rows, with the sums of those elsewhere, have their posterior."""
        passes = among(self.solver, ("auto", "batch"))
        size = data.n_features + self.fit_intercept
        small = size < MOST_IN_GRAM and size + 1 < data.n_units
        return self._has_gram and passes and small

    def _with_targets(self, data, seen):
        return data.with_columns(partial(_targets_of_block, self._of_parameters()))

    def _of_parameters(self):
        """Return an estimator of the same parameters, which travels light."""
        return type(self)(**self.get_params(deep=False))

    def _targets(self, y, weight, given, offset=None):
        y = np.asarray(y, np.float64)
        check_magnitude(y, "y", power=4)
        of_family = TARGETS[given.family]
        of_family.check(y)
        if offset is None:
            return y
        return of_family.beside(y, checked_offset(offset, len(y)))

    def _check_targets(self, y):
        """Check targets that come as objects, words or dates."""
        if y is None:
            return  # scikit-learn says what is missing
        y = np.asarray(y)
        if y.dtype.kind not in "OUSMm":
            return
        try:
            finite = y.dtype.kind not in "Mm" and np.isfinite(y.astype(float)).all()
        except (TypeError, ValueError):
            finite = False
        if not finite:
            raise ValueError(
                f"y of {type(self).__name__} must be finite numbers, got an array of "
                f"{y.dtype} with others: leave out rows without a target, and for "
                "classes take BayesianLogisticRegression."
            )

    def _family(self, given, n_rows=0, n_features=0):
        return TARGETS[given.family].likelihood(self)

    def _moments(self, data, targets):
        return TARGETS[self.family].moments(data, targets)

    def _units(self, data, targets, seen=None):
        """Return the targets' mean and deviation, and the means and units of features.

        Where features are at their means; seen: what `_moments` returns.
        """
        seen = self._moments(data, targets) if seen is None else seen
        mean, unit, units = TARGETS[self.family].units(seen)
        return mean, unit, seen.mean[:-1], units

    def _prior_of(self, data, targets, learned=False, seen=None):
        mean, unit, centre, deviations = self._units(data, targets, seen)
        given, wide = self.prior_scale, self.intercept_prior_scale

        def prior_of(width=WIDE):
            if among(given, self._prior_options):
                scale = width * unit / deviations
            else:
                scale = feature_scales(self, data.n_features)
            if not self.fit_intercept:
                return MeanField(np.zeros(scale.size), scale)
            if wide != "auto":
                return MeanField(np.zeros(scale.size + 1), np.append(scale, wide))
            parts = np.append(np.zeros(scale.size), mean), np.append(scale, WIDE * unit)
            return CentredMeanField(MeanField(*parts), centre)

        return prior_of

    def _keep_prior(self, one):
        super()._keep_prior(one)
        if self.fit_intercept:
            self.intercept_prior_mean_ = float(one.mean[-1])

    def _likely_group_scales(self, seen):
        _, unit, units = TARGETS[self.family].units(seen)
        return SOME * unit / units, SOME * unit

    def _grouped_model(
        self, rows, data, targets, prior, past, n_rows, go_on, seen=None
    ):
        given = self, rows, data, targets, prior, past, n_rows, go_on, seen
        return TARGETS[self.family].grouped_model(*given)

    def _first_intercept(self, data, targets):
        return TARGETS[self.family].first_intercept(data, targets)

    def _first_noise(self, data, targets):
        return TARGETS[self.family].first_noise(data, targets)

    def _of_grouped_family(self, model, found):
        return TARGETS[self.family].learnt_of_groups(self, model, found)

    def _more_columns(self):
        prior = self.prior_scale_
        if self._of_fit.fit_intercept:
            prior = np.append(prior, self.intercept_prior_scale_)
        return {"prior sd": prior}

    def _learn(self, data, targets, prior, n_seen, prior_of=None):
        given = self, data, targets, prior, n_seen, prior_of
        return TARGETS[self.family].learn(*given)

    def _model(self, data, *given, alone=True):
        return TARGETS[self.family].model(self, data, *given, alone=alone)

    def _of_family(self, model, point):
        return TARGETS[self.family].learnt(model, point)

    def _first_mean(self, model, data, prior):
        mean, of_family = super()._first_mean(model, data, prior), TARGETS[self.family]
        first = of_family.first_intercept(data, model.y)
        if first is not None and self.fit_intercept:
            mean[-1] = first
        return mean

    def _attributes(self, posterior, k, dtype):
        fitted = super()._attributes(posterior, k, dtype)
        for name in ("coef_", "coef_std_"):
            fitted[name] = fitted[name][0].astype(dtype, copy=False)
        for name in ("intercept_", "intercept_std_"):
            fitted[name] = float(fitted[name][0])
        return fitted

    def _group_attributes(self, rows, dtype, parts, **others):
        found = super()._group_attributes(rows, dtype, parts, **others)
        for name in ("intercept_", "intercept_std_"):
            found[name] = float(found[name])
        return found

    def _labels(self):
        return ["coefficient"]

    @streamed
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: Given = None,
        offset: Given = None,
        groups: Given = None,
    ) -> Self:
        """Update the posterior with one batch of a stream.

        The posterior of what has been seen is the prior of the batch. Of counts,
        without groups, all rows are kept up to 1,000, or as many as 8 MB hold, and the
        posterior ends at that of a fit to them, with a width of the prior that is
        learned (while all counts are the same, that of its own prior); beyond these
        the width stays, and a sample is kept, in which rows have a larger share the
        more uncertain their predictors were. Up to 1,000 rows
        these are seen again with each batch, later where the stream has grown by a
        fifth, or a batch, or many small ones, move the posterior by more than its
        width. Pickles have the rows that are kept. Goes on from a `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            The batch.
        y : array-like of shape (n_samples,)
            Targets of its rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.
        offset : array-like of shape (n_samples,), default=None
            As in `fit`.
        groups : array-like of shape (n_samples,), default=None
            As in `fit`, for all batches of a stream or for none. Of "gaussian" all that
            earlier rows said of their group is kept. Of counts so are all rows, as long
            as they are up to 1,000 or take up to 8 MB: they are seen again with each
            batch, beyond 1,000 where the stream has grown by a fifth. So the posterior
            ends at that of a fit to them, given ``population_origin_``, which is that
            of the first batch. Between, with more rows, or going on from a pickled fit
            or one on dask, what earlier rows said is a Gaussian of coefficients, which
            rows sorted by their targets may lead elsewhere.

        Returns
        -------
        self : BayesianGLMRegressor
            The fitted model.

        Notes
        -----
        There is no ``elbo_`` then, as the sum of the bounds of batches is no bound.
        Scales of priors that follow units are made anew with each batch, as a first one
        may have columns or targets that do not vary: those of groups always, else up to
        1,000 rows, or while sums of all are kept. Later those of counts with a full
        rank are, where one would change by a factor of two; others stay.
        Of "gaussian" up to 1,000 coefficients the sums of squares and products of all
        rows are kept, and the posterior and a noise and a width of the prior that are
        learnt are those of a fit to all rows, in whatever order they come. So they are
        with more, while all rows are up to 1,000, fewer than coefficients and of up to
        1e8 places: these are kept. Else, or going on from a pickled fit, the noise of
        the batch is pooled with that of the batches before, whose posterior stands as
        it is.
        """
        return self._see(X, y, sample_weight, groups, stream=True, offset=offset)

    # Predictions

    predict = _inference.predict
    predict_mean_interval = _inference.predict_mean_interval
    predict_interval = _inference.predict_interval
    sample_predictive = _inference.sample_predictive
    score = _inference.score
