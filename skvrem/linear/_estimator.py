"""The scikit-learn shell of the logistic regression: parameters, fit, partial_fit."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from skvrem import solvers
from skvrem.data import StreamRows, averaged, lazily, of_dask, streamed
from skvrem.data._reservoir import weight_of
from skvrem.linear._arguments import OTHER_SOLVERS, check_twin_arguments
from skvrem.linear._input import check_precision, find_center, open_rows
from skvrem.linear._model import Parameters, Statistics
from skvrem.linear._model_dual import dual_start, takes_dual
from skvrem.linear._plan import (
    MANY_ROWS,
    count_blocks,
    curvature_rows,
    plan_fit,
    row_entries,
    start_rows,
)
from skvrem.linear._stream import ClassOrder, RowsAgain
from skvrem.utils._algebra import scale
from skvrem.utils._base import VersionedPickle, feature_names, summary_table
from skvrem.utils._classes import PredictsByProba, stream_classes
from skvrem.utils._columns import Given, MatrixLike
from skvrem.utils._parallel import one_blas_thread
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    ABOVE_0,
    AT_LEAST_1,
    all_or_nothing,
    as_generator,
    check_options,
    check_parameters,
    validate_data,
)

SOLVERS = ("auto", "batch", "stochastic", "svrg")
# In a stream that has seen enough rows, one in so many is taken for the curvature.
THIN = 8
# A fit to a sample ends where what is left to gain is this share of its sampling error.
START_PRECISION = 0.1
START_STEPS = 24
# A curvature that costs more passes is taken once, not for the sample as well.
DEAR = 1.0


class SBMLogisticRegression(
    PredictsByProba,
    CallbackSupportMixin,
    VersionedPickle,
    ClassifierMixin,
    BaseEstimator,
):
    r"""Logistic regression by bound majorization, for data in memory and streams.

    A drop-in for :class:`sklearn.linear_model.LogisticRegression` with a quadratic
    penalty: the same objective, binary or multinomial, to any precision. It makes the
    curvature of the objective from a sample of the rows and needs a few passes where
    rows are many for the features; and it learns from a stream (:meth:`partial_fit`)
    without a step size.

    Parameters
    ----------
    penalty : {"l2", None}, default="l2"
        As in scikit-learn; None is ``C=np.inf``, and a warning where C is given.
    C : float, default=1.0
        Inverse of the strength of the penalty; ``np.inf`` is none.
    l1_ratio : 0, default=0.0
        As in scikit-learn: 0 is the quadratic penalty, the only one here.
    dual : False, default=False
        As in scikit-learn; there is no dual form here.
    tol : float, default=1e-6
        Converged when less is left to gain, in nats a row, and no derivative of the
        mean objective is larger, as in scikit-learn's "lbfgs"; or when rounding of the
        objective hides what is left.
    fit_intercept : bool, default=True
        Add an intercept to the logits.
    intercept_scaling : 1, default=1
        As in scikit-learn; see `penalize_intercept`.
    class_weight : dict or "balanced", default=None
        Factors of the weights of rows by class, as in scikit-learn.
    random_state : int, RandomState instance or None, default=None
        Seeds the sample that the curvature is taken from, and the minibatches. With
        None "auto", "batch" and scikit-learn's solvers draw that sample from a fixed
        seed, so that a fit repeats to the last bit; those in minibatches do not.
    solver : str, default="auto"
        "auto", "batch", "stochastic" or "svrg"; scikit-learn's names mean "auto".
        "batch" is bound majorization [1]_ (steps that are no longer the bound's, of
        the Hessian, a `curvature_rank` or a diagonal, have their length searched);
        "stochastic" its stochastic form [2]_ in blocks, at the level of the sampling
        error after one pass (``max_iter=1``), which full passes follow where its epochs
        are noise or slow; "svrg" has the bound as the preconditioner of a
        variance-reduced gradient.
        "auto" is "batch" with ``acceleration="lbfgs"``, which begins with dual
        coordinate ascent where rows are sparse, of two classes and more than 2,000
        features. The choice is in ``solver_``.
    max_iter : int, default=500
        Epochs: passes for "batch", steps with "lbfgs", passes over the minibatches for
        the others.
    verbose : int, default=0
        1: a progress bar, or lines for the first epoch, every `verbose_interval`-th and
        the last; 2: every epoch.
    warm_start : bool, default=False
        Start from the last solution, as along a path of values of C.
    n_jobs : int or None, default=None
        Threads; None is all cores, and one inside a joblib or dask worker. Results do
        not depend on it.
    penalize_intercept : bool, default=False
        The penalty holds for the intercept too, as in liblinear and in [2]_.
    acceleration : {"auto", "lbfgs", None}, default="auto"
        "lbfgs" fits a sample of the rows first, takes the curvature there, and makes
        L-BFGS steps in its metric on all rows, each checked; for ``solver="batch"`` or
        "auto". None is none, with which "auto" is plain "batch"; "auto" is "lbfgs" with
        ``solver="auto"``, else none.
    curvature : {"auto", "bound", "hessian"}, default="auto"
        Row weights of the curvature: of the bound or of the Hessian. "auto" is the
        Hessian with acceleration, else the bound; "batch" and "svrg" go on with
        quasi-Newton steps in the Hessian's metric where the bound is slow, and a fit by
        "stochastic" takes the Hessian and the outer products of rows' gradients, no
        more than the bound where rows are misjudged, as does a stream whose classes
        come mixed.
    curvature_rank : int or None, default=None
        Keep the curvature as this rank plus a diagonal, in memory of so many numbers
        a feature. None is a matrix for up to 2,000 features, beyond a diagonal (sparse
        X) or rank 20.
    step_size : float or "auto", default="auto"
        Factor of the steps of "svrg" ("auto": 1) and "stochastic" ("auto": 1.5 for two
        classes; for more 1.25 with up to 1,000 coefficients, else 1, and 2 with the
        `curvature` of a name; 1 with `curvature_rank` or a diagonal and in
        :meth:`partial_fit`).
    batch_size : int or "auto", default="auto"
        Rows a minibatch; "auto" makes 32 minibatches for "svrg", blocks of 64 to 256
        rows, or as many as features, for "stochastic", and for :meth:`partial_fit`
        of 256, or as many as features, where classes come mixed, else of about 1,024.
    gradient_memory : float, default=0.0
        Share of the rows seen whose gradients "stochastic" remembers: 0 forgets all
        but the newest block's; 1 is the form of [2]_, which does not converge in useful
        time and is there for study.
    total_samples : float or None, default=None
        Rows that a stream will have, which the penalty is spread over. None: those
        seen so far.
    compute_std : bool, default=False
        Compute ``coef_std_`` in a fit; :meth:`partial_fit` has none.
    verbose_interval : int, default=10
        Epochs between two lines.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    coef_std_, intercept_std_ : ndarray
        Standard errors by Laplace's approximation, shapes as above. With several
        classes, of parameters whose sum over classes is zero.
    curvature_ : ndarray
        With `compute_std`: minus the Hessian of the penalised log-likelihood, classes
        by features and intercept, both ways.
    n_iter_ : ndarray of shape (1,)
        Epochs of the last fit, or batches of a stream; an array as in scikit-learn.
    converged_ : bool
        By `tol`; ``stop_reason_`` and ``gap_left_`` say why the fit ended, and what is
        left to gain.
    objective_ : float
        Log-likelihood less the penalty, in nats a row: what is maximised, as in
        ``history_["objective"]`` and unlike scikit-learn's loss, which is ``-C`` times
        the sum of the weights times this. Of a stream, that of the newest batch
        before its steps.
    history_ : dict of ndarray
        passes, seconds, objective, step_size, temperature, predicted_gain by epoch.
    solver_, step_size_, batch_size_ : str, float, int
        What was used.
    n_samples_seen_ : int
        Rows of the fit, or of the stream.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    sklearn.linear_model.LogisticRegression : Other penalties and solvers.
    skvrem.linear.bound : The bound, for any log-linear model.

    References
    ----------
    .. [1] Jebara, Choromanska (2012). Majorization for CRFs and latent likelihoods.
       NeurIPS.
    .. [2] Choromanska, Jebara (2013). Stochastic bound majorization.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skvrem import SBMLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SBMLogisticRegression(random_state=0).fit(X, y)
    >>> model.predict(X[:2])
    array([0, 0])
    >>> model.score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        penalty: Literal["l2"] | None = "l2",
        *,
        C: float = 1.0,
        l1_ratio: float | None = 0.0,
        dual: bool = False,
        tol: float = 1e-6,
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        solver: str = "auto",
        max_iter: int = 500,
        verbose: int = 0,
        warm_start: bool = False,
        n_jobs: int | None = None,
        penalize_intercept: bool = False,
        acceleration: Literal["auto", "lbfgs"] | None = "auto",
        curvature: Literal["auto", "bound", "hessian"] = "auto",
        curvature_rank: int | None = None,
        step_size: float | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        gradient_memory: float = 0.0,
        total_samples: float | None = None,
        compute_std: bool = False,
        verbose_interval: int = 10,
    ):
        self.penalty = penalty
        self.C = C
        self.l1_ratio = l1_ratio
        self.dual = dual
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.random_state = random_state
        self.solver = solver
        self.max_iter = max_iter
        self.verbose = verbose
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.penalize_intercept = penalize_intercept
        self.acceleration = acceleration
        self.curvature = curvature
        self.curvature_rank = curvature_rank
        self.step_size = step_size
        self.batch_size = batch_size
        self.gradient_memory = gradient_memory
        self.total_samples = total_samples
        self.compute_std = compute_std
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self):
        """Check what does not depend on the data; return C and the solver."""
        C, solver = check_twin_arguments(self)
        check_parameters(
            self,
            penalty=None,  # with the twin's arguments
            C=None,
            curvature_rank=AT_LEAST_1,
            gradient_memory={"most": 1.0},
            total_samples=ABOVE_0,
        )
        check_options(self, solver=(*SOLVERS, *OTHER_SOLVERS))
        if solver == "auto" and self.acceleration is None:
            solver = "batch"
        if self.acceleration == "lbfgs" and solver not in ("auto", "batch"):
            raise ValueError(
                f"acceleration={self.acceleration!r} goes with solver='batch' or "
                f"'auto', not {self.solver!r}: it is a sequence of full passes."
            )
        return C, solver

    # Fits

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: Given = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : SBMLogisticRegression
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, arguments of scikit-learn's without an
            equivalent, a single class, or rows that are not finite. The estimator is
            then as it was before.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        """
        with all_or_nothing(self) as (C, solver), one_blas_thread():
            with self._explained(X), solvers.checkpointed(self, X, y, sample_weight):
                self._fit(X, y, sample_weight, C, solver)
        return self

    @contextmanager
    def _explained(self, X):
        """Say what is wrong with the rows where their sums were not finite."""
        try:
            yield
        except FloatingPointError as error:
            if not sp.issparse(X) and not of_dask(X):
                check_array(X, input_name="X", estimator=self)
            raise ValueError(
                "The logits of some rows overflow: scale the columns of X."
            ) from error

    @with_callbacks
    def _fit(self, X, y, sample_weight, C, solver):
        rows = open_rows(self, X, y, sample_weight, reset=True)
        n_samples, classes = rows.data.n_units, rows.classes
        # The number of rows is what curvature, first fit and minibatches are chosen by.
        rows = rows.without_weightless(self)
        data = rows.data
        center = find_center(self, rows)
        model, plan = plan_fit(self, solver, rows, C, center=center)
        random_state = None  # solvers without minibatches repeat, as the twin's do
        if self.random_state is not None or plan.name in ("stochastic", "svrg"):
            random_state = check_random_state(self.random_state)

        def describe(point, objective):
            found = self._attributes(model, point, classes, rows.dtype) | {
                "objective_": objective,
                "n_samples_seen_": n_samples,
                "_seen": data.total_weight,
                "_center": center,
                # A fit by full passes keeps none: the first batch of a stream brings
                # it.
                "_curvature": None,
                "_class_order": ClassOrder.unknown(len(classes)),
                "_again": RowsAgain(),
                "_gradient": None,
            }
            if plan.name == "stochastic":
                sums = point.statistics
                found["_curvature"] = model.curvature.by_class(sums.curvature)
                found["_gradient"] = sums.gradient
            return found

        def start(rng):
            theta, passes = self._first_theta(model, plan.name, data, classes, rng)
            point = model.start(Parameters(theta))
            if plan.name == "svrg":
                point, cost = model.recondition(point, data, rng)
                passes += cost
            return solvers.Start(model, point, describe, passes)

        with Progress(self, X, y, 1) as progress:
            result, attributes = solvers.run_starts(
                self, start, plan, data, progress, random_state
            )
        del attributes["init_scores_"], attributes["init_epochs_"]  # there is one start
        check_precision(center, result.point.parameters.theta, rows.dtype)
        warn_not_converged(self, result, advice="a smaller C makes the problem easier")
        for name in ("coef_std_", "intercept_std_", "curvature_", "init_scores_"):
            vars(self).pop(name, None)
        n_iter = np.array([result.n_iter], np.int32)
        vars(self).update(attributes, n_iter_=n_iter)
        if model.online:  # whose steps go by curvature, shares and this factor
            self.step_size_ = model.online.scale
        if self.compute_std:
            vars(self).update(self._standard_errors(model, data, result.point))

    def _first_theta(self, model, name, data, classes, rng):
        """Return where to start, and the passes that finding it has cost.

        A cold start of the accelerated and the variance-reduced fit is the fit to a
        sample, as precise as the sample deserves; or dual coordinate ascent.
        """
        shape = (len(model.ridge), model.k)
        if self.warm_start and hasattr(self, "coef_"):
            theta = self._theta(classes, shape)
            if theta is not None:
                return model.about_center(theta), 0.0
        if name == "batch+lbfgs" and takes_dual(model, data):
            return dual_start(model, data, self.tol, rng)
        rows = start_rows(shape[0], data.n_units)
        cold = name in ("batch", "stochastic") or not rows or model.sample_cost > DEAR
        if cold:
            return np.zeros(shape), 0.0
        sample = data.some(rows, rng)
        tol = START_PRECISION * shape[0] * shape[1] / (2.0 * rows)
        entries = row_entries(data)
        sample_rows = curvature_rows(model.curvature, *shape, rows, entries)
        changes = {"sample_rows": sample_rows, "metric_cost": START_STEPS}
        result = solvers.run(
            replace(model, newton=False, **changes),
            solvers.QuasiNewton(tol),
            sample,
            model.start(Parameters(np.zeros(shape))),
            max_iter=START_STEPS,
            tol=tol,
            rng=rng,
        )
        passes = result.history[-1].passes * rows / data.n_units
        return result.point.parameters.theta, passes

    def _theta(self, classes, shape):
        """Return the fitted parameters as an array, or None where they do not fit."""
        coef = self.coef_.toarray() if sp.issparse(self.coef_) else self.coef_
        same = np.array_equal(classes, self.classes_)
        if not same or coef.shape != (shape[1], self.n_features_in_):
            return None
        theta = np.zeros(shape)
        theta[: coef.shape[1]] = coef.T
        if self.fit_intercept:
            theta[-1] = self.intercept_
        return theta

    def _attributes(self, model, point, classes, dtype):
        """Return the fitted attributes of a point."""
        theta = model.about_center(point.parameters.theta, -1.0)
        coef, intercept = theta.T, np.zeros(theta.shape[1])
        if model.intercept:
            coef, intercept = theta[:-1].T, theta[-1]
        return {
            "classes_": classes,
            "coef_": np.ascontiguousarray(coef, dtype),
            "intercept_": intercept.astype(dtype),
        }

    def _standard_errors(self, model, data, point):
        """Return standard errors by Laplace's approximation at the optimum."""
        hessian, std = model.laplace(point, data)
        d = data.n_features
        return {
            "curvature_": hessian,
            "coef_std_": np.ascontiguousarray(std[:d].T),
            "intercept_std_": std[d] if self.fit_intercept else np.zeros(std.shape[1]),
        }

    @streamed
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: Given = None,
    ) -> Self:
        r"""Update the model with one batch of a stream.

        A step of stochastic bound majorization for every `batch_size` rows: curvature
        and, with `gradient_memory`, gradients are averaged over all that has been seen,
        and the step is the share of the newest rows in it. With "auto" blocks have
        about 256 rows, or as many as features, and the curvature is that of
        "stochastic", where all classes come mixed, as batches tell; else about 1,000
        and the bound's, as rows may come class by class.

        While all rows take no more than 8 MB (50,000 of 20 features) they are kept,
        and the coefficients are those of a fit to them, in whatever order they come,
        as soon as all classes have. It is made anew where a hundredth of the rows is
        new. Beyond, steps go on from the last one where classes come mixed. Else, and
        with a `step_size`, `curvature` or `gradient_memory` of its own, which are kept
        to, the model is where steps alone have led. Pickles have the rows that are
        kept. Goes on from a `fit`, whose rows are not known: by steps alone. There are
        no standard errors of a stream.

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

        Returns
        -------
        self : SBMLogisticRegression
            The fitted model.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call or differs later, or y holds a
            class that is not among them.
        """
        first = not hasattr(self, "coef_")
        with all_or_nothing(self) as (C, _), one_blas_thread():
            classes = stream_classes(self, classes)
            if not first and self.fit_intercept != self._of_fit.fit_intercept:
                raise ValueError(
                    f"fit_intercept={self.fit_intercept!r}, but the model was fitted "
                    f"with {self._of_fit.fit_intercept!r}: call fit."
                )
            with self._explained(X):
                self._step(X, y, classes, sample_weight, C, first)
        return self

    def _step(self, X, y, classes, sample_weight, C, first):
        rows = open_rows(self, X, y, sample_weight, first, classes)
        data = rows.data
        seen = 0.0 if first else self._seen
        total = seen + data.total_weight
        n_total = max(total, self.total_samples or 0.0)
        # A stream keeps the origin that its curvature is taken about.
        known = None if first else self._curvature
        center = getattr(self, "_center", None)  # older pickles have none
        center = find_center(self, rows) if known is None else center
        model, _ = plan_fit(self, "stochastic", rows, C, n_total, center)
        shape = (len(model.ridge), model.k)
        unknown = ClassOrder.unknown(len(classes))
        order = unknown if first else getattr(self, "_class_order", unknown)
        order = order.after(data.targets[weight_of(data) > 0.0])
        free = self.curvature == "auto" and self.gradient_memory == 0.0
        again = RowsAgain(StreamRows()) if first else getattr(self, "_again", None)
        if not free or self.step_size != "auto":  # the steps are those asked for
            again = None
        mixed = order.mixed and free
        again = (again or RowsAgain()).with_rows(rows, mixed)
        if mixed:
            model.kind = "star"
        n_blocks = count_blocks(
            "stochastic",
            data.n_units,
            shape[0],
            self.batch_size,
            stream=True,
            mixed=mixed,
        )
        dtype = rows.dtype if first else self.coef_.dtype
        theta = again.theta
        if theta is None:
            theta = np.zeros(shape) if first else self._theta(classes, shape)
            theta = model.about_center(theta)
        point = model.start(Parameters(theta))
        if known is not None and known.shape == model.curvature.shape:
            point = point._replace(statistics=Statistics(self._gradient, known, 0.0))
        elif known is None and not first and data.total_weight > 0.0:
            # After a fit that is near its end, that of a few rows would lead too far.
            sums = data.chunks().sum(partial(model.statistics, point, beta=1.0))
            mean = scale(sums, 1.0 / data.total_weight)
            point = point._replace(statistics=mean)
        model.online = model.online._replace(
            # Rows may come in any order: whatever a longer step gains elsewhere, it
            # forgets here.
            scale=1.0 if self.step_size == "auto" else float(self.step_size),
            share=data.total_weight / n_blocks / n_total,
            thin=THIN if seen > MANY_ROWS * shape[0] else 1,
        )
        partition = data.chunks()
        # Some rows of a block stand for all in its curvature, and may come by class.
        thinned = mixed and model.online.thin > 1 and data.n_units > 1
        if n_blocks > 1 or len(partition) > 1 or thinned:
            partition = data.blocks(n_blocks, as_generator(self.random_state))
        objective = 0.0
        for batch in partition.batches:
            weight = batch.total_weight
            if not weight > 0.0:
                continue
            sums = model.statistics(point, batch, 1.0)
            mean = scale(sums, 1.0 / weight)
            objective += weight * model.objective(point, mean)
            seen += weight
            point = model.update(point, None, mean, weight / seen)
        again = again.after(self, rows, C, n_total, center, point.parameters.theta)
        if again.fitted is not None:
            point = point._replace(parameters=Parameters(again.fitted))
        check_precision(center, point.parameters.theta, dtype)
        # They are of a fit that is past.
        of_fit = ("history_", "stop_reason_", "gap_left_")
        for name in (*of_fit, "coef_std_", "intercept_std_", "curvature_"):
            vars(self).pop(name, None)
        vars(self).update(
            self._attributes(model, point, classes, dtype),
            converged_=False,
            n_iter_=np.array([np.max(getattr(self, "n_iter_", 0)) + 1], np.int32),
            objective_=objective / data.total_weight,
            solver_="stochastic",
            step_size_=data.total_weight / total,
            batch_size_=-(-data.n_units // n_blocks),
            n_samples_seen_=getattr(self, "n_samples_seen_", 0) + data.n_units,
            _seen=total,
            _center=center,
            _class_order=order,
            _again=again,
            _curvature=point.statistics.curvature,
            _gradient=point.statistics.gradient,
        )

    # Answers

    predict = lazily(PredictsByProba.predict)
    predict_log_proba = lazily(PredictsByProba.predict_log_proba)

    @lazily
    def decision_function(self, X: MatrixLike) -> np.ndarray:
        """Return the logits of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        logits : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, the log-odds of ``classes_[1]``.
        """
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=(np.float64, np.float32)
        )
        Z = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        return Z[:, 0] if Z.shape[1] == 1 else Z

    def _most_probable(self, X):
        Z = self.decision_function(X)
        return (Z > 0).astype(int) if Z.ndim == 1 else Z.argmax(axis=1)

    @lazily
    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Return the probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        Z = self.decision_function(X)
        if Z.ndim == 1:
            return np.stack([expit(-Z), expit(Z)], axis=1)
        return softmax(Z, axis=1)

    def _log_proba(self, X):
        # Exact where probabilities round to 0.
        Z = self.decision_function(X)
        if Z.ndim == 1:
            return np.stack([log_expit(-Z), log_expit(Z)], axis=1)
        return log_softmax(Z, axis=1)

    @averaged
    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: Given = None) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        score : float
            Share of the rows whose class is predicted.
        """
        return super().score(X, y, sample_weight)

    def densify(self) -> Self:
        """Make ``coef_`` a dense array, as it is after a fit.

        Returns
        -------
        self : SBMLogisticRegression
            The same estimator.
        """
        check_is_fitted(self)
        if sp.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self

    def sparsify(self) -> Self:
        """Make ``coef_`` a sparse matrix, for coefficients that are mostly zero.

        A quadratic penalty makes few zeros; after setting small coefficients to zero
        this saves memory. `fit` and `partial_fit` make it dense again.

        Returns
        -------
        self : SBMLogisticRegression
            The same estimator.
        """
        check_is_fitted(self)
        self.coef_ = sp.csr_matrix(self.coef_)
        return self

    def summary(self) -> Any:
        """Return a table of the coefficients.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a feature and, where there is one, the intercept; a column a class
            (one for two classes) with, after ``compute_std=True``, standard errors and
            95 % intervals. The frame's ``attrs`` hold objective, solver, passes and
            convergence; the text ends with them.
        """
        check_is_fitted(self)
        dense = self.coef_.toarray() if sp.issparse(self.coef_) else self.coef_
        table = np.column_stack([dense, self.intercept_])
        labels = self.classes_[1:] if len(dense) == 1 else self.classes_
        std = getattr(self, "coef_std_", None)
        columns = {}
        for number, label in enumerate(labels):
            columns[f"{label}"] = table[number]
            if std is not None:
                error = np.append(std[number], self.intercept_std_[number])
                columns[f"{label} se"] = error
                columns[f"{label} 2.5 %"] = table[number] - 1.959964 * error
                columns[f"{label} 97.5 %"] = table[number] + 1.959964 * error
        facts = {"objective": self.objective_, "solver": self.solver_}
        if hasattr(self, "history_"):
            facts["passes"] = float(self.history_["passes"][-1])
            facts["converged"] = self.converged_
        return summary_table(columns, [*feature_names(self), "intercept"], facts)
