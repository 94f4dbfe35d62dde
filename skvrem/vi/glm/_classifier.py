"""Bayesian logistic regression: the scikit-learn shell."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.data import as_source, averaged, lazily, of_dask, streamed
from skvrem.utils._classes import number_classes, stream_classes
from skvrem.utils._columns import Given, MatrixLike
from skvrem.utils._validation import check_weight, classes_of, numbered
from skvrem.vi.gaussian._answers import (
    BLOCK,
    PredictsByGroup,
    check_method,
    noisy_predictors,
    tail_of,
)
from skvrem.vi.gaussian._guards import checked
from skvrem.vi.gaussian._minibatch import MinibatchSteps
from skvrem.vi.gaussian._model_families import (
    Logistic,
    Softmax,
    expected_probabilities,
    probabilities,
)
from skvrem.vi.glm._estimator import GaussianPosterior
from skvrem.vi.glm._input import few_in_memory, open_blocks

# Draws of the predictors for intervals, and of coefficients for method="mc".
DRAWS = 1000
# Medians of the priors of how far logits of groups lie apart: with features a standard
# deviation from their means as by slopes alone, and at their means.
BY_SLOPE, AT_MEANS = 0.25, 1.0
# Signs of the ends of an interval, away from a quantile below the mean.
BOTH = np.array([1.0, -1.0])


class BayesianLogisticRegression(
    PredictsByGroup, GaussianPosterior, ClassifierMixin, BaseEstimator
):
    r"""Logistic regression whose coefficients have a posterior distribution.

    Coefficients have a Gaussian prior and, by variational inference, a Gaussian
    posterior: the one with the largest evidence lower bound. Fits of two classes make
    no Monte Carlo error, need no step size, and stop where less than `tol` nats are
    left to gain. Predictions average over the posterior, so that they are less sure
    where the data say little.

    Parameters
    ----------
    prior_scale : "learn", float or array-like of shape (n_features,), default="learn"
        Standard deviation of the prior of the coefficients, whose mean is zero. It does
        not cover the intercept. "learn" follows the units of the features, and has for
        standardised ones the scale of the highest bound, under a log-normal prior of
        its own (median 1, spread 1): the mean of it, as far as rows tell; what they do
        not is in the posterior, but of "meanfield". The unit of a rare feature, of
        which most rows have one value, is no less than a quarter of how far the others
        lie from its mean (root mean square). Of more than 1,000 features it is one
        scale for all. Of two classes with fewer rows than coefficients, or than four
        times as many of 50 and more, or with more than 1,000 of these, rows (1,100 or
        more of many) tell it by expectation propagation, whose evidence is not too low
        for wide priors, as bounds are. So it is of 3 to 9 classes with fewer rows than
        features (but for "lowrank"), and with more than 1,000 coefficients where two
        have three rows for each feature; two classes at a time. Else of more than 1,000
        coefficients up to 1,000 / K rows of K classes tell it. Of 10 classes and more
        up to 50,000 / K rows do, by a posterior of independent coefficients, and by
        Laplace's approximation for hundreds of rows whether a wider one has more
        evidence; of more than 90 it is one. A stream learns it again as it grows, as
        long as it keeps all rows (see `partial_fit`). With groups it is of what they
        have in common, a standard deviation wider in place of that, and 1 in a stream.
        A number is for features on one scale.
    fit_intercept : bool, default=True
        Add an intercept to the logits.
    intercept_prior_scale : float or "auto", default="auto"
        Standard deviation of the prior of the intercept, about zero, where features are
        zero. "auto": ten, of the logit where all features are at their means, whatever
        the coefficients: so nothing depends on where a feature has its zero, but by
        posterior "lowrank", or "meanfield", whose prior is independent too, and as wide
        at zero; in a stream, by its rows so far, as scales of priors of
        :meth:`BayesianGLMRegressor.partial_fit` for counts.
    groups : str or int, default=None
        Name or number of the column of X with the ids of groups that coefficients
        differ by, which is no feature then. None: ids come with the keyword ``groups``
        of the methods, and without one all rows are alike. Two classes only:
        :class:`HierarchicalSoftmaxClassifier` takes more.
    varying : {"intercept", "all"} or list of str or int, default="intercept"
        What differs from group to group: the intercept, everything, or the intercept
        and the coefficients of some columns. But for "intercept" it needs groups.
    population_scale : float or "auto", default="auto"
        Median of the prior of how far groups lie from their mean, whose logarithm has
        the standard deviation one. "auto" is 1 of the intercept, where features have
        their means, and of coefficients 1/4 for a standard deviation of the feature, or
        a quarter of the unit of a rare one (see `prior_scale`): slopes mostly differ
        by less than levels, and held-out rows are predicted best so, or nearly. A
        stream takes these of all its rows so far; one that goes on from a fit with a
        width that is learned keeps those of the fit. A number is for features on one
        scale.
    posterior : {"auto", "fullrank", "lowrank", "meanfield"}, default="auto"
        Covariance of the posterior: any; a diagonal plus `rank`; a diagonal.
        "auto" is "fullrank" up to 2,000 coefficients and "lowrank" beyond, or of more
        than ten classes, whose passes take that long, up to 1,000 and "meanfield"
        beyond, but where `rank` is given; with a solver by minibatches it is
        "meanfield". Up to 1,000 rows that are fewer than coefficients have that of a
        full rank at any number of these, but in streams: what rows take from the prior
        has a rank of their number. Of K > 2 classes that is up to 1,000 / K rows, as
        long as K**2 times rows times features, the products that a prediction makes,
        are no more than ten million. The standard deviations of "meanfield" are too
        small where features are correlated, of "lowrank" where more directions than
        `rank` are told, and so are their intervals. With groups it is a Gaussian of all
        coefficients nested in one of the scales of groups.
    rank : int or None, default=None
        Of "lowrank"; None is 10.
    solver : {"auto", "batch", "stochastic", "svrg", "saga"}, default="auto"
        How sums over rows are estimated. "batch" makes full passes, "stochastic" has
        minibatches, and with a control variate for the Monte Carlo noise alone; "svrg"
        and "saga" are the joint control variate of [1]_, Algorithms 2 and 1, which
        takes out the noise of minibatches and of draws together. "auto" is "batch",
        or "svrg" where `steps` ask for minibatches.
    steps : MinibatchSteps or None, default=None
        How steps are made, :class:`skvrem.vi.MinibatchSteps`; None is its defaults. Its
        ``expectation`` under the posterior by "quadrature" takes Gauss-Hermite nodes
        for two classes, for more 32 to 128 quasi-Monte-Carlo nodes, or four times the
        classes if that is more; where finer ones change the bound by more than `tol`, a
        fit goes on with these, a stream once.
        Its ``optimizer`` "lbfgs" is for "lowrank" and for "meanfield" of many
        coefficients.
    step_size : float or "auto", default="auto"
        Of minibatches. It is halved wherever an epoch lowers the bound; "auto" starts
        where that happens seldom.
    batch_size : int or "auto", default="auto"
        Rows a minibatch; "auto" makes 64 minibatches of at least 5 and at most 100
        rows.
    max_iter : int, default=500
        Epochs: passes for "batch", passes over the minibatches for the others.
    tol : float, default=0.01
        Converged when what is left to gain is less, in nats of the bound.
    warm_start : bool, default=False
        Start from the last posterior, of the same classes, features and
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
    classes_ : ndarray of shape (n_classes,)
    coef_, coef_std_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Posterior means and standard deviations.
    intercept_, intercept_std_ : ndarray of shape (1,) or (n_classes,)
    posterior_ : MeanField, FullRank or LowRank
        Over the coefficients and intercept of each class, one after the other:
        ``mean``, ``scale``, ``covariance()``, ``sample``, ``logpdf``. With what is not
        known of a `prior_scale` that is learned.
    elbo_, elbo_error_ : float
        Evidence lower bound in nats, given `prior_scale_`, by the posterior that takes
        this for known, and what quadrature errs by in it, about: near
        `tol`, but where that would take too long; then as some rows tell. A stream has
        none, and NaN is not known: of more than two classes by draws, and of hundreds.
    objective_ : float
        The same bound, in nats, priors included; of a stream that of its last batch,
        given what came before.
    history_ : dict of ndarray
        passes, seconds, objective (the bound), step_size, temperature and
        predicted_gain by epoch, and gradient_variance for solvers by minibatches.
    pareto_k_ : float
        Below 0.7 the posterior is near the exact one, both given `prior_scale_`;
        computed when asked for.
    converged_ : bool
    n_iter_ : int
    prior_scale_, intercept_prior_scale_ : ndarray of shape (n_features,), float
        What was taken; the second with an intercept, where features are zero.
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
    HierarchicalSoftmaxClassifier : Coefficients by group, of several classes.
    sklearn.linear_model.LogisticRegression : A point in place of a distribution.
    skvrem.SBMLogisticRegression : Likewise, with standard errors.

    References
    ----------
    .. [1] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
       variational inference. AISTATS.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from skvrem import BayesianLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianLogisticRegression().fit(scale(X), y)
    >>> model.converged_, model.n_iter_ < 20
    (True, True)
    >>> model.predict_proba_interval(scale(X)[:1], level=0.9).shape
    (1, 2, 2)
    """

    _target_kind = "labels"
    _learns_width = True

    # Ids of groups that cross-validation cuts by are asked for, not taken.
    __metadata_request__fit: ClassVar = {"groups": False}
    __metadata_request__partial_fit: ClassVar = {"groups": False}
    __metadata_request__predict: ClassVar = {"groups": False}
    __metadata_request__score: ClassVar = {"groups": False}
    __metadata_request__predict_proba: ClassVar = {"groups": False}
    __metadata_request__predict_log_proba: ClassVar = {"groups": False}

    def __init__(
        self,
        prior_scale: float | ArrayLike | Literal["learn"] = "learn",
        *,
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
        self.prior_scale = prior_scale
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

    def _meaning(self, given):
        return self.classes_.tolist(), *super()._meaning(given)

    def _open(self, X, y, sample_weight, given, reset, known=None):
        if any(map(of_dask, (X, y, sample_weight))):
            return self._open_blocks(X, y, sample_weight, reset)
        X, y = checked(self, X, y, reset=reset, accept_sparse="csr")
        weight = check_weight(sample_weight, X.shape[0])
        targets = self._targets(y, weight, given, known)
        return as_source(X, weight), targets, X.dtype

    def _open_blocks(self, X, y, sample_weight, reset):
        """Return what `_open` does, of the rows of a fit on dask."""
        given = self, X, y, sample_weight, reset
        data, seen = open_blocks(*given, self._target_kind)
        data = self._with_targets(data, seen)
        return *few_in_memory(self, data), data.dtype

    def _with_targets(self, data, seen):
        self.classes_, _ = classes_of(self, seen)
        dtype = np.float64 if len(self.classes_) == 2 else np.int32
        return data.with_columns(partial(numbered, self.classes_, dtype=dtype))

    def _targets(self, y, weight, given, known=None):
        known = known if given is self else self.classes_
        classes, numbers = number_classes(self, y, weight, known)
        if given is self:
            self.classes_ = classes
        return numbers.astype(np.float64 if len(classes) == 2 else np.int32)

    def _check_targets(self, y):
        """Targets of any kind are numbered; see `ByGroup`."""

    def _likely_group_scales(self, seen):
        if len(self.classes_) > 2:
            raise ValueError(
                f"groups= of {type(self).__name__} is for two classes, got "
                f"{len(self.classes_)}: HierarchicalSoftmaxClassifier takes more."
            )
        return BY_SLOPE / seen.units, AT_MEANS

    def _group_attributes(self, rows, dtype, parts, **others):
        found = super()._group_attributes(rows, dtype, parts, **others)
        # As scikit-learn's, of one row.
        for name in ("coef_", "coef_std_", "intercept_", "intercept_std_"):
            found[name] = np.atleast_1d(found[name])
            if name.startswith("coef"):
                found[name] = found[name][None]
        return found

    def _family(self, given, n_rows=0, n_features=0):
        k = len(self.classes_)
        return Logistic() if k == 2 else Softmax(k, n_rows, n_features=n_features)

    def _labels(self):
        labels = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [f"{label}" for label in labels]

    @streamed
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: Given = None,
        sample_weight: Given = None,
        groups: Given = None,
    ) -> Self:
        """Update the posterior with one batch of a stream.

        Without groups all rows are kept up to 1,000, or as many as 8 MB hold (100,000
        of six features): so far the posterior, and a width of the prior that is
        learned, end near those of a fit to all of them, in whatever order they come; of
        rows of one class the width is that of its own prior. Beyond, it stays, and a
        Gaussian of all is kept beside a sample that 8 MB hold, or of 1,000, in which
        rows have a larger share the more uncertain their logits were. Up to 1,000 rows
        these are seen again with each batch, later where the stream has grown by a
        fifth, or a batch, or many small ones, move the posterior by more than its
        width. Pickles have the rows that are kept. Goes on from a `fit`. There is no
        ``elbo_`` then, as the sum of the bounds of batches is no bound.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            The batch.
        y : array-like of shape (n_samples,)
            Classes of its rows.
        classes : array-like of shape (n_classes,), default=None
            All classes of the stream, needed in the first call.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.
        groups : array-like of shape (n_samples,), default=None
            As in `fit`, for all batches of a stream or for none. All rows are kept as
            long as they are up to 1,000 or take up to 8 MB, and seen again with each
            batch, beyond 1,000 where the stream has grown by a fifth. So the posterior
            ends at that of a fit to them, given the prior and ``population_origin_``,
            which is that of the first batch. Between, with more rows, or going on from
            a pickled fit or one on dask, what earlier rows said is a Gaussian of
            coefficients, which rows sorted by class may lead elsewhere. No sample is
            kept then.

        Returns
        -------
        self : BayesianLogisticRegression
            The fitted model.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call or differs later, or y holds a
            class that is not among them; if `fit_intercept` has changed.
        """
        known = stream_classes(self, classes)
        return self._see(X, y, sample_weight, groups, stream=True, known=known)

    def sample_predictive(
        self,
        X: MatrixLike,
        n_samples: int = 1,
        random_state: Any = None,
        groups: Given = None,
    ) -> np.ndarray:
        """Draw new labels of rows, their chance and the posterior's.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
            Rows.
        n_samples : int, default=1
            Draws of each; a draw has the same coefficients for all rows.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.
        groups : array-like of shape (n_rows,), default=None
            As in `predict_proba`; rows of groups that were not in the fit are of one
            new group.

        Returns
        -------
        labels : ndarray of shape (n_samples, n_rows)
            Of ``classes_``.
        """
        numbers = self._sample_predictive(X, n_samples, random_state, groups)
        return self.classes_[numbers.astype(int)]

    @averaged
    def score(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: Given = None,
        groups: Given = None,
    ) -> float:
        """Return the share of rows whose class is the most probable one.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.
        groups : array-like of shape (n_samples,), default=None
            As in `predict_proba`.

        Returns
        -------
        accuracy : float
            Between 0 and 1.
        """
        labels = self.predict(X, groups)
        return float(accuracy_score(y, labels, sample_weight=sample_weight))

    # Predictions

    @lazily
    def predict_proba(
        self,
        X: MatrixLike,
        method: Literal["quadrature", "mc", "plugin"] = "quadrature",
        groups: Given = None,
    ) -> np.ndarray:
        r"""Return the probabilities of the classes, averaged over the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        method : {"quadrature", "mc", "plugin"}, default="quadrature"
            "quadrature" integrates over the Gaussian logits of a row, "mc" averages
            over 1,000 draws of the coefficients, "plugin" takes their mean alone, and
            so is too sure.
        groups : array-like of shape (n_samples,), default=None
            Ids of their groups, where the fit had groups: rows of others, and without
            ids, have the coefficients that the population lets expect.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        check_method(method)
        check_is_fitted(self)
        if method == "mc":
            seed = check_random_state(self.random_state)
            if self._grouped:
                noise = seed.standard_normal((DRAWS, 1))
            else:
                draws = self.posterior_.sample(DRAWS, seed)

        def answer(a, half, family, model=None, batch=None):
            if method == "mc" and model is None:
                out = np.empty((len(a), 2))
                for some, z in noisy_predictors(a, np.sqrt(half), noise):
                    out[some] = probabilities(family, z).mean(axis=1)
                return out
            if method == "mc":
                return self._averaged(model, draws, batch)
            if method == "plugin":
                return probabilities(family, a)
            return expected_probabilities(family, a, half)

        return self._predictors(X, answer, groups)

    @lazily
    def predict_proba_interval(
        self, X: MatrixLike, level: float = 0.95, groups: Given = None
    ) -> np.ndarray:
        """Return central credible intervals of the probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        level : float, default=0.95
            Posterior probability of the interval.
        groups : array-like of shape (n_samples,), default=None
            As in `predict_proba`.

        Returns
        -------
        intervals : ndarray of shape (n_samples, n_classes, 2)
            Lower and upper ends. Exact quantiles for two classes, of 1,000 draws for
            more.
        """
        tail = tail_of(level)

        def answer(a, half, family, model=None, batch=None):
            out = np.empty((*a.shape, 2))
            if family.n_predictors == 1:
                ends = family.mean(a + np.sqrt(half) * (ndtri(tail) * BOTH))
                return np.stack([1.0 - ends[:, ::-1], ends], axis=1)
            noise = np.random.default_rng(0).standard_normal((DRAWS, model.k))
            for some, z in noisy_predictors(a, half, noise):
                quantiles = np.quantile(family.mean(z), [tail, 1.0 - tail], axis=1)
                out[some] = quantiles.transpose(1, 2, 0)
            return out

        return self._predictors(X, answer, groups)

    def _averaged(self, model, draws, batch):
        """Return probabilities averaged over draws of the coefficients."""
        total, n_numbers = 0.0, len(draws) * batch.n_units * model.k
        for some in np.array_split(draws, -(-n_numbers // BLOCK)):
            z = model.draws_of_predictors(some, batch)
            total = total + probabilities(model.family, z).sum(axis=0)
        return total / len(draws)
