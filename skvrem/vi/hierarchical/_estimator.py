"""Softmax regression with coefficients by group: the scikit-learn shell."""

import time
import warnings
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin

from skvrem import schedules, solvers
from skvrem.data import as_source
from skvrem.exceptions import FewGroupsWarning
from skvrem.utils._base import VersionedPickle
from skvrem.utils._classes import number_classes, stream_classes
from skvrem.utils._columns import check_column
from skvrem.utils._parallel import threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    check_integer,
    check_options,
    check_real,
    check_weight,
)
from skvrem.vi.gaussian._guards import (
    CENTRE,
    StreamsWithoutBound,
    check_in_memory,
    check_scales,
    check_unchanged,
    warn_one_class,
    whole_fit,
)
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import Softmax
from skvrem.vi.gaussian._prior import check_prior_scale, prior_scales
from skvrem.vi.gaussian._refinement import refine
from skvrem.vi.hierarchical._inference import GroupsInference
from skvrem.vi.hierarchical._input import check_kind, open_groups
from skvrem.vi.hierarchical._model import (
    Hierarchical,
    HierarchicalModel,
    HierarchicalPrior,
    Past,
    Sums,
)

__all__ = ["HierarchicalSoftmaxClassifier"]

# Groups that say something of what groups have in common; and how many times the prior
# scale the deviation of their mean may be: beyond, the prior takes two thirds of it.
FEW_GROUPS, WIDE = 4, 1.5


class HierarchicalSoftmaxClassifier(
    StreamsWithoutBound,
    GroupsInference,
    ClassifierMixin,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""Softmax regression whose coefficients differ by group, as users' tastes do.

    Each group has coefficients of its own, drawn from a population whose means and
    scales are learnt as well [1]_: groups with many rows are judged by these, those
    with few like the others, and a group that has not been seen is the population's.
    The posterior distribution is the one with the largest evidence lower bound, and
    predictions average over it. There is no step size, and a fit stops where less
    than `tol` nats are left to gain.

    Parameters
    ----------
    groups : str or int, default=None
        Name or number of the column of X with the ids of groups, which is no feature
        then. None: ids come with the keyword ``groups`` of the methods; without one
        all rows are of one group. Cross-validation cuts a column as it should; the
        keyword needs scikit-learn's metadata routing.
    prior_scale : float or array-like of shape (n_features,), default=1.0
        Standard deviation of the prior of the population's means, which is zero on
        average. It does not cover the intercept.
    fit_intercept : bool, default=True
        Add an intercept to the logits, by group as well.
    intercept_prior_scale : float, default=10.0
        The same of the intercept.
    population_scale : float, default=1.0
        Median of the prior of the population's scales: by how much groups differ.
    population_scale_spread : float, default=1.0
        Standard deviation of the logarithm of these scales, in the prior.
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
        Ids, sorted.
    group_coef_, group_coef_std_ : ndarray of shape (n_groups, n_classes, n_features)
        Posterior means and standard deviations.
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
    n_group_samples_ : ndarray of shape (n_groups,)
        Rows of each group.
    posterior_ : Hierarchical
        All parameters of the posterior, with ``sample(n_samples, rng)``.
    elbo_, elbo_error_ : float
        Evidence lower bound, and about what its quadrature errs by, both in nats.
    history_ : dict of ndarray
        passes, seconds, objective (the bound), step_size, temperature and
        predicted_gain by step.
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
    Coefficients of a group are independent in the posterior but for what they share,
    the means of the population: their standard deviations are too small where features
    are correlated. Nor is the bound concave: where groups differ little it has saddles,
    at which fits are slow and rounding decides where they go on. A fit needs some 70
    numbers for each coefficient of a group, most of them for the last directions of
    L-BFGS. There is no ``pareto_k_``: only the prior tells one class's coefficients
    from a shift of all classes', which independent coefficients leave out, so that
    importance weights of all of them together have heavy tails even for one group.

    References
    ----------
    .. [1] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
       variational inference. AISTATS. Section 7.1.

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
        prior_scale: float | ArrayLike = 1.0,
        fit_intercept: bool = True,
        intercept_prior_scale: float = 10.0,
        population_scale: float = 1.0,
        population_scale_spread: float = 1.0,
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
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def _check_parameters(self):
        check_integer(self, "max_iter", "verbose")
        check_integer(self, "verbose_interval", least=1)
        check_real(self, "tol")
        check_scales(self, "intercept_prior_scale", "population_scale")
        check_scales(self, "population_scale_spread")
        check_options(self, fit_intercept=(True, False), warm_start=(True, False))
        check_column(self, "groups")
        check_prior_scale(self)

    def fit(self, X, y, groups=None, sample_weight=None):
        """Fit the posterior.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        groups : array-like of shape (n_samples,), default=None
            Ids of their groups, in any order; where the constructor names no column.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : HierarchicalSoftmaxClassifier
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, a single class, ids that are missing or not
            one a row, and rows that are not finite. The estimator is then as it was
            before.
        TypeError
            For a dask array.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` steps were not enough.
        FewGroupsWarning
            Without groups, with fewer than four, or where groups differ by much more
            than the prior of the population's means allows for: a group that has not
            been seen is then poorly known.
        """
        with whole_fit(self, CENTRE), threads(self.n_jobs):
            self._check_parameters()
            self._fit(X, y, groups, sample_weight)
            self._warn_of_groups()
        return self

    def _warn_of_groups(self):
        """Warn of groups that say little of what groups have in common."""
        name, n_groups, q = type(self).__name__, len(self.groups_), self.posterior_
        prior = np.sqrt(self._prior(self.population_mean_.shape[1]).variance)
        wide = np.exp(q.log_tau) / prior
        text = None
        if self._alone:
            text = (
                f"{name} was given no groups, and takes all rows for one: if that is "
                "what is meant, BayesianLogisticRegression is for it, and judges "
                "coefficients better. Ids of groups go to fit(X, y, groups=...) or "
                "are a column of X that the constructor's groups names."
            )
        elif n_groups < FEW_GROUPS:
            text = (
                f"{name} was given {n_groups} groups, too few to learn what groups "
                "have in common: predictions for a group that is not among them are "
                "little better than the prior. Where groups need not differ, take "
                "BayesianLogisticRegression."
            )
        elif (wide > WIDE * np.sqrt(n_groups)).any():
            feature, column = np.unravel_index(wide.argmax(), wide.shape)
            names = [*self._feature_names(self), "the intercept"]
            text = (
                f"Coefficients of {names[feature]} (class "
                f"{self.classes_.tolist()[column]!r}) spread {wide.max():.3g} times "
                "as far from group to group as the prior lets their mean lie from "
                "zero: predictions for a group that is not in the fit may be poor. "
                "Raise prior_scale, or put features on one scale."
            )
        if text is not None:
            warnings.warn(text, FewGroupsWarning, stacklevel=3)

    def partial_fit(self, X, y, classes=None, groups=None, sample_weight=None):
        """Update the posterior with further rows, of groups that may be new.

        What earlier rows said of their group is kept as a Gaussian factor of its
        coefficients, and the population is judged anew by all groups: the posterior is
        near that of a `fit` to all rows. The prior is the same for all batches.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows that are new.
        y : array-like of shape (n_samples,)
            Their classes.
        classes : array-like of shape (n_classes,), default=None
            All classes of the stream, needed in the first call.
        groups : array-like of shape (n_samples,), default=None
            As in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

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
            If the first rows are of one class only.
        """
        with whole_fit(self, CENTRE), threads(self.n_jobs):
            self._check_parameters()
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
        go_on = known is not None and hasattr(self, "posterior_")
        check_in_memory(X=X, y=y, groups=groups, sample_weight=sample_weight)
        column = self.groups
        rows, targets, ids = open_groups(self, X, y, groups, column, reset=not go_on)
        weight = check_weight(sample_weight, len(rows))
        classes, numbers = number_classes(self, targets, weight, known)
        if known is not None and not go_on:
            warn_one_class(self, numbers, classes)
        if go_on and (ids is None) != self._alone:
            raise ValueError(
                "groups must be there for all batches of a stream or for none: "
                f"{'the first had none' if self._alone else 'this one has none'}."
            )
        alone = ids is None
        if alone:
            ids = np.zeros(len(rows), int)
        labels, past, counts = np.unique(ids), None, 0
        if go_on:
            labels, past, counts = self._with_past(labels, rows.shape[1])
        group = np.searchsorted(labels, ids)
        order = np.argsort(group, kind="stable")  # a group's rows together
        data = as_source(
            np.ascontiguousarray(rows[order]),
            None if weight is None else weight[order],
            dask=False,
        )
        model = HierarchicalModel(
            # Coefficients of a group vary too much for nodes to be trusted so far.
            Softmax(len(classes), data.n_units, by_root=False),
            numbers[order],
            group[order].astype(np.int64),
            len(labels),
            self._prior(data.n_features),
            data.total_weight,
            past,
        )
        attributes = partial(
            self._attributes,
            dtype=self.group_coef_.dtype if go_on else rows.dtype,
            classes_=classes,
            groups_=labels,
            n_group_samples_=np.bincount(group, minlength=len(labels)) + counts,
            _alone=alone,
        )
        point = self._start(model, data, classes, labels, go_on)
        with Progress(self, X, y, 1) as progress:
            report = progress.start(0, lambda at: attributes(at.parameters))
            fit = partial(
                solvers.run,
                solver=solvers.QuasiNewton(self.tol),
                data=data,
                step_size=schedules.Constant(1.0),
                temperature=schedules.Constant(1.0),
                tol=self.tol,
                rng=None,
                report=report,
            )
            seconds = time.perf_counter() - began
            result = fit(
                model, point=point, max_iter=self.max_iter, passes=1.0, seconds=seconds
            )
            ends = self.tol, self.max_iter
            result, _, error = refine(model, data, result, *ends, fit, began)
            report.end()
        warn_not_converged(self, result, unit="")
        vars(self).update(
            attributes(result.point.parameters),
            elbo_=result.objective,
            elbo_error_=error,
            _bound=result.objective,
            **result.attributes(),
        )

    def _prior(self, n_features):
        return HierarchicalPrior(
            np.square(prior_scales(self, n_features))[:, None],
            float(np.log(self.population_scale)),
            float(self.population_scale_spread),
        )

    def _with_past(self, labels, n_features):
        """Return ids of all groups, what is known of them, and their rows so far."""
        check_kind(labels, self.groups_)
        q = self.posterior_
        before = Past.of(q)
        model = HierarchicalModel(
            None, None, None, len(q.group_mean), self._prior(n_features), 1.0, before
        )
        # What the rows' expected log-likelihood was.
        bound = vars(self).get("_bound", vars(self).get("elbo_"))
        level = bound - model.objective(Point(q), Sums(None, None, 0.0))
        labels = np.union1d(self.groups_, labels)
        at = np.searchsorted(labels, self.groups_)
        parts = np.zeros((3, len(labels), *q.mean.shape))
        parts[:, at] = before[:3]
        counts = np.zeros(len(labels), int)
        counts[at] = self.n_group_samples_
        return labels, Past(*parts, level), counts

    def _start(self, model, data, classes, labels, go_on):
        """Return the point to start from: zero, or what is known of groups."""
        point = model.start(data)
        go_on = go_on or self.warm_start
        before = vars(self).get("posterior_") if go_on else None
        if before is None or before.mean.shape != point.parameters.mean.shape:
            return point
        if not np.array_equal(classes, self.classes_):
            return point
        # New groups are the population's.
        old = self._numbers_of(labels)
        seen = old >= 0
        q = point.parameters
        mean = np.broadcast_to(before.mean, q.group_mean.shape).copy()
        log_scale = q.group_log_scale.copy()
        mean[seen] = before.group_mean[old[seen]]
        log_scale[seen] = before.group_log_scale[old[seen]]
        return Point(before._replace(group_mean=mean, group_log_scale=log_scale))

    def _attributes(self, q, dtype, **others):
        """Return the fitted attributes of parameters."""
        found = {"posterior_": Hierarchical(*q), **others}
        parts = {
            "group_{}": q.group_mean,
            "group_{}_std": np.sqrt(q.group_variance),
            "population_{}mean": q.mean,
            "population_{}mean_std": np.exp(q.log_scale),
            "population_{}scale": np.exp(q.log_tau),
            "population_{}log_scale_std": np.exp(q.log_tau_log_scale),
        }
        d = q.mean.shape[0] - self.fit_intercept
        for name, part in parts.items():
            own = name.startswith("group")
            coef, intercept = ("coef", "intercept") if own else ("", "intercept_")
            columns = np.ascontiguousarray(np.swapaxes(part[..., :d, :], -1, -2), dtype)
            found[name.format(coef) + "_"] = columns
            rest = (
                part[..., d, :]
                if self.fit_intercept
                else np.zeros_like(part[..., 0, :])
            )
            found[name.format(intercept) + "_"] = rest.astype(dtype)
        return found
