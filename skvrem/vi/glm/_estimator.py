"""What the estimators of generalised linear models share: fit, stream, posterior."""

import math
import time
from functools import partial

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import schedules, solvers
from skvrem.data import as_source
from skvrem.utils._base import VersionedPickle, summary_table
from skvrem.utils._parallel import one_blas_thread, parallel_map, row_chunks, threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    check_integer,
    check_magnitude,
    check_options,
    check_real,
    validate_data,
)
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws, feature_names
from skvrem.vi.diagnostics._pareto import ParetoMixin
from skvrem.vi.diagnostics._variance import ESTIMATORS, decompose
from skvrem.vi.gaussian._guards import (
    CENTRE,
    StreamsWithoutBound,
    check_columns,
    check_in_memory,
    check_pivots,
    check_scales,
    check_unchanged,
    whole_fit,
)
from skvrem.vi.gaussian._minibatch import check_steps, steps_of
from skvrem.vi.gaussian._model import Full, GaussianModel, structure_of
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._model_steps import SteppingModel
from skvrem.vi.gaussian._plan import STOCHASTIC, as_structure, plan_fit
from skvrem.vi.gaussian._prior import check_prior_scale, prior_scales
from skvrem.vi.gaussian._refinement import refine

__all__ = ["GaussianPosterior"]

# Draws of coefficients at once, for the shape of the importance weights.
DRAWS_AT_ONCE = 50
# Rows a task of a prediction.
PREDICT_ROWS = 4096


class GaussianPosterior(
    StreamsWithoutBound,
    ParetoMixin,
    ArviZMixin,
    CallbackSupportMixin,
    VersionedPickle,
):
    """Estimators with coefficients, a Gaussian prior and a Gaussian posterior.

    A class that inherits this has ``_open(X, y, sample_weight, given, reset, known)``,
    which returns a source, targets as the family wants them and the dtype of the rows;
    and ``_family(n_rows, given)``. `given` has the parameters: the estimator in a fit,
    those of the fit for an answer. `known` are the classes of a stream.
    """

    def _learn(self, data, targets, n_seen):
        """Learn what the family needs from rows that come after `n_seen` others."""

    def _check_parameters(self):
        check_integer(self, "max_iter", "verbose")
        check_integer(self, "verbose_interval", least=1)
        check_integer(self, "rank", least=1, options=(None,))
        check_integer(self, "batch_size", least=1, options=("auto",))
        check_real(self, "tol")
        check_scales(self, "intercept_prior_scale")
        check_real(self, "step_size", above=True, options=("auto",))
        check_options(
            self,
            posterior=("auto", "fullrank", "lowrank", "meanfield"),
            solver=("auto", "batch", *STOCHASTIC),
            fit_intercept=(True, False),
            warm_start=(True, False),
        )
        check_steps(self)
        check_prior_scale(self)

    def _prior(self, n_features, n_predictors):
        """Return the prior over all coefficients, class by class."""
        scale = np.tile(prior_scales(self, n_features), n_predictors)
        return MeanField(np.zeros(scale.size), scale)

    def fit(self, X, y, sample_weight=None):
        """Fit the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : estimator
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range or that do not go together, and rows or targets
            that the model cannot have. The estimator is then as it was before.
        TypeError
            For a dask array.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        """
        with whole_fit(self, CENTRE), threads(self.n_jobs), one_blas_thread():
            self._check_parameters()
            self._fit(X, y, sample_weight)
        return self

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        began = time.perf_counter()
        data, targets, dtype = self._open_rows(X, y, sample_weight, reset=True)
        self._learn(data, targets, 0)
        family = self._family(data.n_units, self)
        prior = self._prior(data.n_features, family.n_predictors)
        with Progress(self, X, y, 1) as progress:
            self._infer(data, targets, family, prior, dtype, began, progress)
        self.n_samples_seen_ = data.n_units

    def _open_rows(self, X, y, sample_weight, reset, known=None):
        """Return what `_open` does, of rows to be fitted."""
        check_in_memory(X=X, y=y, sample_weight=sample_weight)
        found = self._open(X, y, sample_weight, self, reset, known)
        # Columns of a later batch may hardly vary: what was before tells them apart.
        if reset and self.fit_intercept and isinstance(found[0].rows, np.ndarray):
            check_columns(found[0].rows)
        return found

    def _infer(self, data, targets, family, prior, dtype, began, progress, start=None):
        """Fit the posterior of rows given a prior, and set what has been fitted."""
        plan = plan_fit(self, prior.n_dim, family.n_predictors)
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(2**31 - 1)
        )
        model = GaussianModel(
            family,
            targets,
            prior,
            data.total_weight,
            self.fit_intercept,
            as_structure(plan.posterior),
            plan.rank,
            plan.matrix,
        )
        point = self._start(model, data, prior, rng, start)
        attributes = partial(self._attributes, model, dtype=dtype)
        report = progress.start(0, lambda at: attributes(at.parameters))
        solver, step_size, batch_size = plan.ascent(self.tol), 1.0, data.n_units
        if plan.solver in STOCHASTIC:
            model, step_size, batch_size = self._stepping(model, data, plan, point)
            solver = solvers.Sweeps(plan.solver, self.tol)
        fit = partial(
            solvers.run,
            solver=solver,
            data=data,
            step_size=schedules.Constant(step_size),
            temperature=schedules.Constant(1.0),
            tol=self.tol,
            rng=rng,
            report=report,
        )
        seconds = time.perf_counter() - began
        result = fit(model, point=point, max_iter=self.max_iter, seconds=seconds)
        error = math.nan if family.n_predictors > 1 else 0.0
        if plan.solver not in STOCHASTIC and family.n_predictors > 1:
            ends = self.tol, self.max_iter
            result, model, error = refine(model, data, result, *ends, fit, began)
        report.end()
        point = result.point
        if isinstance(point.parameters, Full):
            check_pivots(point.parameters.precision)
        warn_not_converged(
            self,
            result,
            unit="",
            advice="a smaller prior_scale, or features on one scale, make the problem "
            "easier",
            stacklevel=6,
        )
        used = result.attributes()
        if plan.solver in STOCHASTIC:
            model = model.model
        vars(self).update(
            attributes(point.parameters),
            elbo_=result.objective,
            objective_=result.objective,
            elbo_error_=error,
            **used,
            solver_=plan.solver,
            expectation_=plan.expectation,
            optimizer_=plan.optimizer,
            step_size_=step_size,
            batch_size_=batch_size,
            _rows=(data, targets, prior),
        )
        vars(self).pop("_pareto_k", None)

    def _stepping(self, model, data, plan, point):
        """Return the model of minibatch steps, their size, and rows a batch."""
        if not isinstance(data.rows, np.ndarray):
            raise ValueError(
                f"solver={plan.solver!r} needs dense rows: pass X.toarray(), or choose "
                "solver='batch', which takes sparse ones."
            )
        if not isinstance(model.prior, MeanField):
            raise ValueError(
                f"solver={plan.solver!r} goes on from a mean-field posterior: choose "
                "solver='batch', or fit with posterior='meanfield'."
            )
        batch_size = self.batch_size
        if batch_size == "auto":
            batch_size = int(np.clip(data.n_units // 64, 5, 100))
        given = steps_of(self)
        control = given.control_variate
        if plan.expectation == "quadrature":
            control = "quadrature"
        steps = SteppingModel(
            model,
            data,
            plan.solver,
            control,
            given.control_scale,
            plan.optimizer,
            min(batch_size, data.n_units),
            1 if given.n_draws == "auto" else given.n_draws,
        )
        size = self.step_size
        if size == "auto":
            size = steps.auto_step(point)
        return steps, float(size), steps.batch_size

    def _start(self, model, data, prior, rng, start):
        """Return the point to start from: a posterior, the last one, or the prior."""
        if start is None and self.warm_start and hasattr(self, "posterior_"):
            start = self.posterior_
        if start is not None and start.n_dim == prior.n_dim:
            point = model.point_of(start)
            if point is not None:
                return point
        return model.start(self._first_mean(model, data, prior), data, rng)

    def _first_mean(self, model, data, prior):
        """Return the means (p, k) that a cold fit starts from."""
        return prior.mean.reshape(model.k, -1).T.copy()

    def _attributes(self, model, parameters, dtype):
        """Return the fitted attributes of parameters."""
        posterior = model.posterior(parameters)
        mean, scale = (
            part.reshape(model.k, -1) for part in (posterior.mean, posterior.scale)
        )
        d = mean.shape[1] - self.fit_intercept
        zero = np.zeros(model.k)
        return {
            "posterior_": posterior,
            "coef_": np.ascontiguousarray(mean[:, :d], dtype),
            "coef_std_": np.ascontiguousarray(scale[:, :d], dtype),
            "intercept_": (mean[:, d] if self.fit_intercept else zero).astype(dtype),
            "intercept_std_": (scale[:, d] if self.fit_intercept else zero).astype(
                dtype
            ),
        }

    def _stream(self, X, y, sample_weight, known=None):
        """Update the posterior with one batch, for which it is the prior."""
        began = time.perf_counter()
        first = not hasattr(self, "posterior_")
        if not first:
            check_unchanged(self, "fit_intercept")
        seen = 0 if first else self.n_samples_seen_
        data, targets, dtype = self._open_rows(X, y, sample_weight, first, known)
        self._learn(data, targets, seen)
        family, start = self._family(data.n_units, self), None
        if first:
            prior = self._prior(data.n_features, family.n_predictors)
        else:
            prior = start = self.posterior_
            dtype = self.coef_.dtype
        with Progress(self, X, y, 1) as progress:
            self._infer(data, targets, family, prior, dtype, began, progress, start)
        self.n_samples_seen_ = seen + data.n_units
        self._forget_bound()

    def __getstate__(self):
        # Rows stay where they are: only what has been learnt travels.
        state = super().__getstate__()
        state.pop("_rows", None)
        return state

    # The posterior

    def sample_posterior(self, n_samples=1, random_state=None):
        """Draw coefficients from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            How many draws.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        draws : dict of str to ndarray of shape (n_samples, ...)
            "coef" and "intercept", each draw in the shape of ``coef_`` and
            ``intercept_``.
        """
        check_is_fitted(self)
        draws = self.posterior_.sample(n_samples, check_random_state(random_state))
        k, d = np.atleast_2d(self.coef_).shape
        draws = draws.reshape(n_samples, k, -1)
        coef, intercept = draws[:, :, :d], np.zeros((n_samples, k))
        if self._of_fit.fit_intercept:
            intercept = draws[:, :, d]
        shapes = np.shape(self.coef_), np.shape(self.intercept_)
        return {
            "coef": coef.reshape(n_samples, *shapes[0]),
            "intercept": intercept.reshape(n_samples, *shapes[1]),
        }

    def _draws(self, X, y, n_samples, rng):
        """See `ArviZMixin`."""
        data, targets, _ = self._open_fitted(X, y, None)
        draws = self.posterior_.sample(n_samples, rng)
        model = self._posterior_model(data.n_units, targets)
        each = model.log_likelihoods(draws, data.batch(0, data.n_units))
        columns = draws.reshape(n_samples, self._n_predictors, -1)
        d = self.n_features_in_
        posterior = {"coef": columns[:, :, :d]}
        if self._of_fit.fit_intercept:
            posterior["intercept"] = columns[:, :, d]
        dims = {"coef": ["predictor", "feature"], "intercept": ["predictor"]}
        coords = {"predictor": self._labels(), "feature": feature_names(self)}
        return Draws(posterior, dims, coords, each, targets)

    def _log_joint(self, draws):
        """See `ParetoMixin`."""
        data, targets, prior = self._rows
        model = self._posterior_model(data.n_units, targets)
        with threads(self.n_jobs), one_blas_thread():
            total = np.concatenate(
                [
                    sum(self._weighed_log_likelihoods(model, data, some))
                    for some in np.split(draws, len(draws) // DRAWS_AT_ONCE)
                ]
            )
        return total + prior.logpdf(draws)

    def _weighed_log_likelihoods(self, model, data, draws):
        """Yield sums over chunks of rows of the log-likelihood at each draw."""

        def total(chunk):
            batch = data.batch(*chunk)
            values = model.log_likelihoods(draws, batch)
            weight = data.weight[slice(*chunk)] if data.weight.size else None
            return values.sum(axis=1) if weight is None else values @ weight

        return parallel_map(total, row_chunks(0, data.n_units, PREDICT_ROWS))

    def _open_fitted(self, X, y, sample_weight):
        """Return what `_open` does, of rows for an answer."""
        known = vars(self).get("classes_")
        return self._open(X, y, sample_weight, self._of_fit, False, known)

    def _posterior_model(self, n_rows, targets=None):
        """Return a model for predictions by the fitted posterior."""
        if targets is None:
            targets = np.zeros(n_rows, np.int32 if self._n_predictors > 1 else float)
        given = self._of_fit
        return GaussianModel(
            self._family(n_rows, given),
            targets,
            None,
            float(n_rows),
            given.fit_intercept,
            *structure_of(self.posterior_),
        )

    def _predictor(self, X):
        """Return the model, its parameters and the checked rows of a prediction."""
        check_is_fitted(self)
        X = validate_data(
            self,
            X,
            reset=False,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            order="C",
        )
        check_magnitude(X)
        data = as_source(X, dask=False)
        model = self._posterior_model(data.n_units)
        return model, model.point_of(self.posterior_).parameters, data

    def _by_chunks(self, evaluate, data):
        with threads(self.n_jobs), one_blas_thread():
            chunks = row_chunks(0, data.n_units, PREDICT_ROWS)
            return np.concatenate(list(parallel_map(evaluate, chunks)))

    @property
    def _n_predictors(self):
        return len(np.atleast_2d(self.coef_))

    def gradient_variance(
        self,
        X,
        y,
        sample_weight=None,
        *,
        estimators=ESTIMATORS,
        batch_size=5,
        n_draws=200,
        random_state=None,
    ):
        """Return where the variance of stochastic gradients comes from.

        At the fitted means and standard deviations, taken as independent, with one draw
        a batch: as in Table 1 of Wang, Geffner and Domke (2024), but for the prior,
        whose gradient is exact here. Anchors stand at the same point: what is left of
        "joint" is the error of Taylor's approximation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.
        estimators : sequence of str
            Among "naive", "cv", "joint", "joint, scales" (with the scales controlled),
            "antithetic" (joint, by pairs of opposite draws) and "quadrature"
            (stochastic, without draws).
        batch_size : int, default=5
            Rows a batch.
        n_draws : int, default=200
            Draws that the variances over draws are estimated from.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        variances : dict of str to float
            Traces: "V(rows, draws)", "V(rows)" with the draws integrated out,
            "V(draws)" with all rows, then the estimators.
        """
        check_is_fitted(self)
        unknown = sorted(set(estimators) - set(ESTIMATORS))
        if unknown:
            raise ValueError(
                f"estimators are among {', '.join(ESTIMATORS)}; got {unknown}."
            )
        data, targets, _ = self._open_fitted(X, y, sample_weight)
        given = self._of_fit
        if not isinstance(data.rows, np.ndarray):
            raise ValueError("gradient_variance needs dense rows: pass X.toarray().")
        rows = np.asarray(data.rows, np.float64)
        if given.fit_intercept:
            rows = np.column_stack([rows, np.ones(len(rows))])
        k = self._n_predictors
        mean, scale = (
            part.reshape(k, -1).T
            for part in (self.posterior_.mean, self.posterior_.scale)
        )
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        return decompose(
            self._family(len(rows), given),
            rows,
            targets,
            data.weight,
            mean,
            scale,
            estimators,
            batch_size,
            n_draws,
            rng,
        )

    def summary(self):
        """Return a table of the coefficients.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a feature and, where there is one, the intercept; a column a class
            (one for two classes, and for a regression) with the posterior's standard
            deviations and 95 % intervals. The frame's ``attrs`` hold the evidence lower
            bound, solver, passes and convergence; the text ends with them.
        """
        check_is_fitted(self)
        coef, std = np.atleast_2d(self.coef_), np.atleast_2d(self.coef_std_)
        names = list(getattr(self, "feature_names_in_", ()))
        names = names or [f"x{j}" for j in range(coef.shape[1])]
        if self._of_fit.fit_intercept:
            names.append("intercept")
            coef = np.column_stack([coef, np.atleast_1d(self.intercept_)])
            std = np.column_stack([std, np.atleast_1d(self.intercept_std_)])
        columns = {}
        for label, mean, scale in zip(self._labels(), coef, std, strict=True):
            columns[label] = mean
            columns[f"{label} sd"] = scale
            columns[f"{label} 2.5 %"] = mean - 1.959964 * scale
            columns[f"{label} 97.5 %"] = mean + 1.959964 * scale
        kind = type(self.posterior_).__name__
        facts = {
            **({"elbo": self.elbo_} if hasattr(self, "elbo_") else {}),
            "posterior": kind,
            "solver": self.solver_,
            "passes": float(self.history_["passes"][-1]),
            "converged": self.converged_,
        }
        if kind == "MeanField":
            facts["note"] = (
                "a mean-field posterior has standard deviations that are too small "
                "where features are correlated"
            )
        return summary_table(columns, names, facts)
