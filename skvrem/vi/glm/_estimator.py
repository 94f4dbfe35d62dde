"""What the estimators of generalised linear models share: fit, stream, posterior."""

import time
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import solvers
from skvrem.data import as_source, drawn_rows
from skvrem.utils._base import VersionedPickle, check_unchanged, summary_table
from skvrem.utils._columns import Given, MatrixLike
from skvrem.utils._parallel import one_blas_thread, row_chunks, threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import among, as_generator, check_parameters
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws
from skvrem.vi.diagnostics._pareto import ParetoMixin
from skvrem.vi.diagnostics._variance import ESTIMATORS, decompose
from skvrem.vi.gaussian._answers import PREDICT_ROWS, in_chunks, interval_columns
from skvrem.vi.gaussian._fit import fit_bound, warn_quadrature
from skvrem.vi.gaussian._guards import (
    CENTRE,
    SCALES,
    StreamsWithoutBound,
    check_pivots,
    check_prior_scale,
    check_spread,
    checked,
    feature_scales,
    whole_fit,
)
from skvrem.vi.gaussian._minibatch import TakesSteps, check_steps, steps_of
from skvrem.vi.gaussian._model import Full, GaussianModel, structure_of
from skvrem.vi.gaussian._model_families import GaussianNoise
from skvrem.vi.gaussian._model_posterior import LowRank, MeanField
from skvrem.vi.gaussian._model_steps import SteppingModel
from skvrem.vi.gaussian._plan import (
    FULL_RANK,
    as_structure,
    plan_fit,
    takes_sparse_rows,
)
from skvrem.vi.gaussian._width import deviation_of_mode
from skvrem.vi.glm._evidence import (
    Width,
    of_predictors,
    width_of_prior,
)
from skvrem.vi.glm._input import REACH, ColumnUnits, warn_unseen
from skvrem.vi.glm._memory import FEW, GROWTH, Gram, Memory
from skvrem.vi.glm._span import Span, in_coordinates
from skvrem.vi.glm.groups._estimator import OF_GROUPS, ByGroup

ADVICE = "a smaller prior_scale, or features on one scale, make the problem easier"
# Draws of coefficients at once, for the shape of the importance weights.
DRAWS_AT_ONCE = 50
# A column varies that goes farther from its mean, relative to it.
ROUNDING = 1e-12
# Prior standard deviation of a logit where all features are at their means.
WIDE_INTERCEPT = 10.0
# Numbers up to which rows are turned into their span, where they are sparse or kept.
MOST_IN_SPAN = 100_000_000
# The width of a prior is learned again by a batch that makes the rows of a stream so
# many times as many, or where it has moved by such a share of its own deviation.
MUCH, MOVED = 1.1, 0.06
# Parameters that are above zero, where an estimator has them.
POSITIVE = (
    "intercept_prior_scale",
    "noise_scale",
    "concentration",
    "population_scale",
)


class LogLikelihoods(NamedTuple):
    """Log-likelihoods of all rows at draws of the coefficients, of shape (n_draws,)."""

    total: np.ndarray


def _log_likelihoods(model, draws, batch):
    """Return those of a batch, some rows and draws at a time."""
    total = np.zeros(len(draws))
    for start, stop in row_chunks(batch.start, batch.stop, PREDICT_ROWS):
        part = batch._replace(start=start, stop=stop)
        weight = batch.weight[part.ids] if batch.weight.size else np.ones(stop - start)
        some = np.array_split(draws, max(1, len(draws) // DRAWS_AT_ONCE))
        each = [model.log_likelihoods(one, part) @ weight for one in some]
        total += np.concatenate(each)
    return LogLikelihoods(total)


def _vary(targets):
    """Whether targets (n,) differ, or their first column (n, 2)."""
    first = targets if targets.ndim == 1 else targets[:, 0]
    return bool((first != first[0]).any())


class GaussianPosterior(
    ByGroup,
    TakesSteps,
    StreamsWithoutBound,
    ParetoMixin,
    ArviZMixin,
    CallbackSupportMixin,
    VersionedPickle,
):
    """Estimators with coefficients, a Gaussian prior and a Gaussian posterior.

    A class that inherits this has ``_open(X, y, sample_weight, given, reset, **more)``,
    which returns a source, targets as the family wants them and the dtype of the rows;
    and ``_family(given, n_rows=0, n_features=0)``, of a fit's rows. `given` has the
    parameters: the estimator in a fit, those of the fit for an answer. `more` is what
    else belongs to rows or classes.
    """

    #: Parameters that a stream goes on with; what `prior_scale` may be but numbers.
    _lasting = ("fit_intercept",)
    #: What has been learned of the width of the prior, where that is not by sums.
    _width: Width | None = None
    _prior_options: tuple = ("learn",)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse_rows(self)
        return tags

    def _check_parameters(self):
        check_parameters(self, **dict.fromkeys(POSITIVE, SCALES))
        check_steps(self)
        check_prior_scale(self, self._prior_options)

    def _meaning(self, given):
        """Return what coefficients mean: those that mean something else start no fit.

        `given` has the parameters.
        """
        names = vars(self).get("feature_names_in_")
        return given.fit_intercept, None if names is None else tuple(names)

    def _known(self, go_on):
        """Return a posterior to start from, None without, and what it is of.

        As long as no rows have been opened.
        """
        posterior = vars(self).get("posterior_") if go_on or self.warm_start else None
        return posterior, None if posterior is None else self._meaning(self._of_fit)

    def _start_from(self, known, go_on):
        """Return the posterior to start from, None where its coefficients are others.

        With rows opened; known: by `_known`.
        """
        posterior, meaning = known
        if not go_on and (posterior is None or self._meaning(self) != meaning):
            vars(self).pop("_step_length", None)
            return None
        return posterior

    def _learn(self, data, targets, prior, n_seen, prior_of=None):
        """Learn what the family needs from rows that come after `n_seen` others.

        Parameters
        ----------
        prior_of : callable, default=None
            What `_prior_of` returns, where a width is to be learned as well.

        Returns
        -------
        prior : MeanField, FullRank or LowRank
            The one that is given, or one whose width is learned as well.
        """
        return prior

    def _moments(self, data, targets):
        """Return what a prior follows of rows and targets."""
        return ColumnUnits.of(data)

    def _prior_of(self, data, targets, learned=False, seen=None):
        """Return a function that has the prior over the coefficients of a predictor.

        It takes the width of the prior of standardised coefficients, where that is
        learned.

        Parameters
        ----------
        seen : ColumnUnits or ColumnMoments, default=None
            What `_moments` returns, of all rows of a stream that has begun.
        """
        wide = self.intercept_prior_scale
        if among(self.prior_scale, self._prior_options):
            fixed = np.ones(data.n_features)
        else:
            fixed = feature_scales(self, data.n_features)
        if seen is None and not learned and not data.remote:
            warn_unseen(self, data, fixed)
        centring = self.fit_intercept and among(wide, ("auto",))
        if seen is None and (learned or centring):
            seen = self._moments(data, targets)
        if centring:
            # What does not vary is an intercept of its own.
            varies = seen.reach > ROUNDING * np.abs(seen.mean)
            centre = np.where(varies, seen.mean, 0.0)
        if learned:
            # By its deviation a rare one, as of a category, had next to no prior.
            units = np.maximum(seen.deviation, seen.reach / REACH)
            if data.n_features > FULL_RANK:
                units = np.full(data.n_features, np.sqrt(np.mean(np.square(units))))

        def prior_of(width=None):
            scale = fixed if width is None else width / units
            if self.fit_intercept:
                # Zero is where the features' means, times their coefficients, lead to.
                spread = wide
                if centring:
                    spread = np.hypot(WIDE_INTERCEPT, np.linalg.norm(scale * centre))
                scale = np.append(scale, spread)
            return MeanField(np.zeros(scale.size), scale)

        return prior_of

    def _keep_prior(self, one):
        """Set the fitted attributes of the prior of a predictor."""
        scale = one.scale
        if self.fit_intercept:
            *_, spread = scale
            self.intercept_prior_scale_, scale = float(spread), scale[:-1]
        self.prior_scale_ = scale

    def _prior_anew(self, memory, posterior, data, targets):
        """Return a memory and a posterior whose prior follows a batch as well."""
        if memory.short:
            seen = self._moments(*memory.kept.beside(data, targets))
        else:
            seen = memory.seen.merged(self._moments(data, targets))
        memory = memory._replace(seen=seen)
        width = self._width if among(self.prior_scale, ("learn",)) else None
        prior_of = self._prior_of(data, targets, width is not None, seen)
        one = prior_of() if width is None else prior_of(width.value)
        prior = of_predictors(one, memory.prior.n_dim // one.n_dim)
        memory, posterior = memory.with_prior(prior, posterior)
        if memory.prior is prior:
            self._keep_prior(one)
        return memory, posterior

    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: Given = None,
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
        groups : array-like of shape (n_samples,), default=None
            Ids of the groups that coefficients differ by, in any order.

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
            For sparse chunks of a dask array with groups.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        DataScaleWarning
            Of :class:`BayesianLogisticRegression`, if columns vary by so little that a
            given `prior_scale` lets them hardly matter.
        FewGroupsWarning
            With fewer than four groups, or where they differ by much more than the
            prior of their mean allows for.
        PosteriorWarning
            If logits of several classes are so uncertain that ``elbo_error_`` is more
            than a twentieth of the bound.
        """
        return self._see(X, y, sample_weight, groups)

    def _see(self, X, y, sample_weight, groups=None, **stream):
        """Fit to rows, or to a batch of a stream, wholly or not at all."""
        with whole_fit(self, CENTRE), one_blas_thread():
            grouped = groups is not None or self.groups is not None
            self._check_varying(grouped)
            if "stream" in stream and hasattr(self, "posterior_"):
                self._check_same(grouped)
            elif not grouped:
                for name in OF_GROUPS:
                    vars(self).pop(name, None)
            given = X, y, sample_weight, groups, stream.get("offset")
            with solvers.checkpointed(self, *given, stream="stream" in stream):
                if grouped:
                    self._fit_groups(X, y, sample_weight, groups, **stream)
                else:
                    self._fit(X, y, sample_weight, **stream)
        return self

    @with_callbacks
    def _fit(self, X, y, sample_weight, stream=False, **more):
        """Fit to rows, or to one batch whose prior is the posterior of those before."""
        began = time.perf_counter()
        go_on = stream and hasattr(self, "posterior_")
        if go_on:
            check_unchanged(self, *self._lasting)
        seen = self.n_samples_seen_ if go_on else 0
        given, last = (X, y, sample_weight, self, not go_on), self._known(go_on)
        data, targets, dtype = self._open(*given, **more)
        last = self._start_from(last, go_on)
        # Columns of a later batch may hardly vary: what was before tells them apart.
        seen_by_sums = getattr(data, "stands_for", None)
        if not go_on and self.fit_intercept and not data.sparse and not seen_by_sums:
            check_spread(data)
        new, memory, known, before = (data, targets), None, seen, None
        learned = among(self.prior_scale, ("learn",))
        anew = not go_on
        if go_on:
            prior, dtype = self.posterior_, self.coef_.dtype
            memory = self._memory_before()
            if isinstance(memory, Gram):
                prior, data, targets = memory.prior_and_rows(data, targets)
                known, anew = 0, memory.seen is not None
                if anew:
                    moments = memory.seen.merged(self._moments(*new))
                    memory = memory._replace(seen=moments)
                    prior_of = self._prior_of(data, targets, seen=moments)
            elif isinstance(memory, Memory) and memory.seen is not None:
                before = memory.prior
                memory, prior = self._prior_anew(memory, prior, *new)
            learned = learned and anew
        else:
            self._width = None
            prior_of = self._prior_of(data, targets, learned)
        if anew:
            prior = prior_of()
            # The width of a batch that is not kept is not that of the rows to come.
            again = go_on or not stream or self._keeps_rows(data, prior)
            learned = learned and again
        given = data, targets, prior, known
        prior = one = self._learn(*given, prior_of if learned else None)
        if anew:
            self._keep_prior(one)
        family = self._family(self, data.n_units, data.n_features)
        if not go_on:
            prior = of_predictors(one, family.n_predictors)
        if isinstance(memory, Memory):
            about = prior, family, self.fit_intercept
            prior, data, targets = memory.prior_and_rows(*about, data, targets)
            k = family.n_predictors
            if prior is memory.prior and self._learns_anew(
                memory, data, last, before, k
            ):
                learned = True
                prior_of = self._prior_of(data, targets, True, memory.seen)
        n_units = seen_by_sums or new[0].n_units
        alone = not seen
        if isinstance(memory, Memory):
            again = data is not new[0]
            # Of a fit that was pickled none are here.
            complete = again and memory.kept.n_seen == seen
            alone = complete or (None if again or data.n_units < FEW else False)
        model_of = partial(self._model, alone=alone)
        # Gaussian noise has been learned with the width.
        apart = isinstance(family, GaussianNoise)
        spans = (apart or not stream) and self._in_span(data, prior)
        size = data.n_units if spans else prior.n_dim
        plan = plan_fit(self, size, family.n_predictors)
        rng = as_generator(self.random_state)
        kind = as_structure(plan.posterior), plan.rank, plan.matrix
        k, weight = family.n_predictors, data.total_weight
        intercept, p = self.fit_intercept, prior.n_dim // k
        if plan.posterior == "fullrank":
            family = family.beside((k * min(p, data.n_units)) ** 2)
        given, passes, near = (family, targets, prior, weight, intercept), 0.0, None
        model = model_of(data, *given, *kind)
        mean, rows = self._first_mean(model, data, prior), data
        afresh = isinstance(memory, Memory) and prior is memory.prior
        if learned and not apart:
            if stream and targets is not None and not _vary(targets):
                self._width = Width.of(0.0, 1.0, 0)  # that of its own prior
            elif prior.n_dim <= FULL_RANK:
                whole = model_of(data, *given, "full")
                start = self._start(whole, data, mean, last if afresh else None, rng)
                found = width_of_prior(whole, data, start, prior_of, self._width)
                self._width, near, family, passes = found
                mean = near.parameters.mean
            else:
                given_some = model_of, data, targets, prior_of, k, rng
                self._width = self._width_by_some(*given_some)
            one = prior_of(self._width.value)
            self._keep_prior(one)
            prior = of_predictors(one, k)
            if afresh:
                memory = memory._replace(prior=prior)
            given = family, targets, prior, weight, intercept
            model = model_of(data, *given, *kind)
        posterior_of = model.posterior
        if last is not None and last.n_dim != prior.n_dim:
            last = None
        few = data.n_units < p and not go_on
        if plan.posterior == "fullrank" and (few or spans):
            span = Span(data, one, intercept)
            rows, mean, near = span.data, span.means(mean), None
            if isinstance(last, LowRank):  # no digit of it may be left in the span
                last = None
            last = None if last is None else span.project(last, k)
            given = family, targets, span.prior(k), weight, False
            model = model_of(rows, *given, *kind)

            def posterior_of(parameters):
                q = model.posterior(parameters)
                return span.lift_low(q) if spans else span.lift(q, k)

        point = None if last is None else model.point_of(last)
        if point is None or afresh or (family.overflows and not go_on):
            if model.full and near is not None:
                point = near
            else:
                point = self._start(model, rows, mean, last, rng)

        moved, plan = model, plan.stepping(1.0, seen_by_sums or data.n_units)
        if plan.name != "batch":
            moved, plan = self._stepping(model, data, plan, point)

        def describe(point, objective):
            return {
                **self._attributes(posterior_of(point.parameters), k, dtype),
                "elbo_": objective,
                "objective_": objective,
                "n_samples_seen_": seen + n_units,
                "_step_length": getattr(plan.solver, "length", 1.0),
                **plan.attributes(),
            }

        how = {"step_size": plan.step_size, "rng": rng, "passes": passes}
        with Progress(self, X, y, 1) as progress:
            report = progress.start(0, describe)
            result, last_model, error = fit_bound(
                self, moved, rows, plan.solver, point, report, began, **how
            )
        parameters = result.point.parameters
        if isinstance(parameters, Full):
            check_pivots(parameters.precision)
        warn_not_converged(self, result, unit="", advice=ADVICE)
        error = error if family.n_predictors > 1 else 0.0
        warn_quadrature(self, error, result.objective)
        vars(self).update(
            describe(result.point, result.objective),
            elbo_error_=error,
            **result.attributes(),
            **self._of_family(last_model, result.point),
            _rows=(data, targets, prior),
        )
        if learned and not apart:
            about = self.posterior_, prior, k, intercept
            self._width = self._width.rested(*about)
        vars(self).pop("_memory", None)
        if stream:
            self._forget_bound()
            if isinstance(memory, Gram) and anew:
                memory = memory._replace(prior=prior)
            self._memory = self._memory_of(*new, prior, memory)
            if not go_on and self._memory is not None:
                self._memory = self._memory._replace(seen=self._moments(*new))
            if isinstance(self._memory, Memory) and (not go_on or data is not new[0]):
                self._memory = self._memory.looked(self.posterior_)

    def _learns_anew(self, memory, data, posterior, prior, k):
        """Whether the width of a prior is learned by all rows of a stream, again.

        Where there are many more of them than when it was, or in this batch, or their
        posterior, by the prior that it has, tells of another by now.
        """
        before, n_rows = self._width, data.n_units
        if not among(self.prior_scale, ("learn",)) or memory.seen is None:
            return False
        if before is None or n_rows >= GROWTH * before.n_rows:
            return True
        # Of many coefficients some rows tell it, which are not those of the posterior.
        if prior.n_dim > FULL_RANK:
            return False
        if n_rows >= MUCH * memory.kept.n_seen:
            return True
        moved = before.moved(posterior, prior, k, self.fit_intercept)
        return abs(moved) > MOVED * deviation_of_mode(before.curvature)

    def _width_by_some(self, model_of, data, targets, prior_of, k, rng):
        """Return how wide the prior is of many coefficients, as some rows tell.

        They know of as many coefficients as they are, those of their span.
        """
        base, intercept = prior_of(1.0), self.fit_intercept
        size = FULL_RANK // k - intercept
        rows, weight, targets = drawn_rows(data, targets, size, rng)
        some, of_coordinates = in_coordinates(as_source(rows, weight), base)

        def prior_in_span(width):
            return of_coordinates(prior_of(width))

        prior = of_predictors(prior_in_span(1.0), k)
        family = self._family(self, some.n_units, some.n_units)
        about = family, targets, prior, some.total_weight, intercept
        model = model_of(some, *about, "full")
        start = model.start(self._first_mean(model, some, prior), some, rng)
        width, *_ = width_of_prior(model, some, start, prior_in_span)
        return width._replace(n_rows=data.n_units)

    def _in_span(self, data, prior, n_before=0):
        """Whether there is a posterior of more coefficients than a full rank is for.

        As the prior less a rank, that of the rows.
        """
        n_rows, p = n_before + data.n_units, prior.n_dim
        exact = among(self.posterior, ("auto",)) and takes_sparse_rows(self)
        natural = among(steps_of(self).optimizer, ("auto", "natural"))
        wide = n_rows <= FULL_RANK < p and isinstance(prior, MeanField)
        alone = p == data.n_features + self.fit_intercept  # one predictor a row
        # Dense rows of a fit have place for as many numbers again.
        fits = n_rows * p <= MOST_IN_SPAN or not (data.sparse or n_before)
        return exact and natural and wide and alone and fits

    @staticmethod
    def _start(model, rows, mean, last, rng):
        """Return the point of a posterior, or of means where rows have their precision.

        Steps lead from any posterior but where expectations overflow, as those of
        exponentials of rows in new units, or of new ones by the width that earlier ones
        have left: these start where rows are explained better.
        """
        point = None if last is None else model.point_of(last)
        if point is not None and not model.family.overflows:
            return point
        start = model.start(mean, rows, rng)
        if point is None:
            return start
        return min(start, point, key=partial(model.loss, data=rows))

    def _keeps_rows(self, data, prior, n_before=0):
        """Whether a stream keeps rows, or sums of all of them."""
        return True

    def _memory_of(self, data, targets, prior, before=None):
        """Return what is kept of rows, and of those before; None is the posterior."""
        family = self._family(self, data.n_units, data.n_features)
        about = self.posterior_, family, self.fit_intercept
        return Memory.of(data, targets, prior, about, before)

    def _memory_before(self):
        """Return what is kept of the rows before a batch."""
        if "_memory" in vars(self):
            return self._memory
        if "_rows" in vars(self) and not self._rows[0].remote:
            data, targets, _ = self._rows
            found = self._memory_of(*self._rows)
            found = found._replace(seen=self._moments(data, targets))
            return found.looked(self.posterior_)
        return Memory.nothing(self.posterior_)  # rows of a fit do not travel

    def _stepping(self, model, data, plan, point):
        """Return the model of minibatch steps, and the plan with what they are."""
        if data.sparse:
            raise ValueError(
                f"solver={plan.name!r} needs dense rows: pass X.toarray(), or choose "
                "solver='batch', which takes sparse ones."
            )
        if model.family.code is None:
            raise ValueError(
                f"solver={plan.name!r} has no steps for family={self.family!r}: choose "
                "solver='batch'."
            )
        y = data.sample(1, np.random.default_rng(0)).targets if data.remote else model.y
        if y.ndim > 1:
            raise ValueError(
                f"solver={plan.name!r} takes no offset: choose solver='batch'."
            )
        if not isinstance(model.prior, MeanField):
            raise ValueError(
                f"solver={plan.name!r} goes on from a mean-field posterior: choose "
                "solver='batch', or fit with posterior='meanfield'."
            )
        size, batch_size, given = self.step_size, self.batch_size, steps_of(self)
        if batch_size == "auto":
            batch_size = int(np.clip(data.n_units // 64, 5, 100))
        batch_size = min(batch_size, data.n_units)
        drawn = plan.expectation == "mc"
        control = given.control_variate if drawn else "quadrature"
        how = control, given.control_scale, plan.optimizer, batch_size, given.n_draws
        steps = SteppingModel(model, data, plan.name, *how)
        size = steps.auto_step(point) if size == "auto" else size
        return steps, plan.stepping(size, batch_size)

    def _model(self, data, *given, alone=True):
        """Return the model of rows.

        alone: whether there are none but these; None if they tell of coefficients only,
        as there are few, or some of the rows before among them.
        """
        return GaussianModel(*given)

    def _of_family(self, model, point):
        """Return the fitted attributes of what the family has learnt."""
        return {}

    def _first_mean(self, model, data, prior):
        """Return the means (p, k) that a cold fit starts from."""
        return prior.mean.reshape(model.k, -1).T.copy()

    def _attributes(self, posterior, k, dtype):
        """Return the fitted attributes of a posterior of k predictors."""
        found = {"posterior_": posterior}
        for name, part in (("", posterior.mean), ("_std", posterior.scale)):
            coef, intercept = self._columns(part, k, self)
            found[f"coef{name}_"] = np.ascontiguousarray(coef, dtype)
            found[f"intercept{name}_"] = intercept.astype(dtype)
        return found

    def _columns(self, vectors, k, given):
        """Return numbers (..., D) by feature (..., k, d), and intercepts or zeros."""
        parts = vectors.reshape(*vectors.shape[:-1], k, -1)
        if given.fit_intercept:
            return parts[..., :-1], parts[..., -1]
        return parts, np.zeros(parts.shape[:-1])

    def __getstate__(self):
        # Rows stay where they are: only what has been learnt travels.
        state = super().__getstate__()
        state.pop("_rows", None)
        return state

    # The posterior

    def _scale_and_df(self, posterior):
        """Return what scales coefficients, and degrees of freedom of Student's t."""
        return posterior.scale, np.inf  # a normal's, as of a known dispersion

    def _sample(self, n_samples, rng):
        """Return draws (n_samples, D), and factors of the dispersion (n_samples, 1)."""
        return self.posterior_.sample(n_samples, rng), np.ones((n_samples, 1))

    def _dispersed(self, each, times):
        """Return log-likelihoods at such factors of the noise, and its variables."""
        return each, {}

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
            ``intercept_``. With groups "group_coef", "group_intercept" (n_groups, ...),
            "population_scale", "population_intercept_scale" and a noise that is learnt
            as well; "coef" has one axis then.
        """
        check_is_fitted(self)
        if self._grouped:
            return self._sample_groups(n_samples, as_generator(random_state))
        draws, _ = self._sample(n_samples, check_random_state(random_state))
        coef, intercept = self._columns(draws, self._n_predictors, self._of_fit)
        return {
            "coef": coef.reshape(n_samples, *np.shape(self.coef_)),
            "intercept": intercept.reshape(n_samples, *np.shape(self.intercept_)),
        }

    def _draw_targets(self, model, draws, times, data, offset, rng):
        """Return new targets (n_samples, n_rows), as numbers, at draws."""
        z = model.draws_of_predictors(draws, data.batch(0, data.n_units))
        return model.family.draw(z + offset, rng)

    def _sample_predictive(self, X, n_samples, random_state, groups, offset=0.0):
        """Return draws of new targets (n_samples, n_rows), as numbers."""
        check_is_fitted(self)
        if self._grouped:
            rng = as_generator(random_state)
            z, noise = self._group_draws(X, groups, n_samples, rng)
            return self._draw_at(z + offset, noise, rng)
        self._check_no_groups(groups)
        data = as_source(checked(self, X, accept_sparse="csr"))
        rng = check_random_state(random_state)
        draws, times = self._sample(n_samples, rng)
        model = self._posterior_model(data.n_units)
        return self._draw_targets(model, draws, times, data, offset, rng)

    def _draw_at(self, z, noise, rng):
        """Return new targets (n_samples, n_rows) at predictors (..., 1) of groups."""
        return self._family(self._of_fit).draw(z, rng)

    def _draws(self, X, y, n_samples, rng):
        """See `ArviZMixin`."""
        if self._grouped:
            return self._draws_of_groups(X, y, n_samples, rng)
        data, targets, _ = self._open_fitted(X, y, None)
        draws, times = self._sample(n_samples, rng)
        model = self._posterior_model(data.n_units, targets)
        each = model.log_likelihoods(draws, data.batch(0, data.n_units))
        each, dispersion = self._dispersed(each, times)
        new = self._draw_targets(model, draws, times, data, 0.0, rng)
        coef, intercept = self._columns(draws, self._n_predictors, self._of_fit)
        posterior = {"coef": coef} | dispersion
        if self._of_fit.fit_intercept:
            posterior["intercept"] = intercept
        dims = {"coef": ["predictor", "feature"], "intercept": ["predictor"]}
        coords = {"predictor": self._labels(), "feature": self._names()}
        return Draws(posterior, dims, coords, each, targets, new)

    def _n_looked_at(self):
        """See `ParetoMixin`."""
        self._refuse_groups("pareto_k_")
        return self._rows[0].n_units

    def _log_joint(self, draws):
        """See `ParetoMixin`."""
        data, targets, prior = self._rows
        model = self._posterior_model(data.n_units, targets)

        with threads(self.n_jobs), one_blas_thread():
            found = data.chunks().sum(partial(_log_likelihoods, model, draws)).total
        return found + prior.logpdf(draws)

    def _open_fitted(self, X, y, sample_weight, **more):
        """Return what `_open` does, of rows for an answer."""
        return self._open(X, y, sample_weight, self._of_fit, False, **more)

    def _posterior_model(self, n_rows, targets=None):
        """Return a model for predictions by the fitted posterior."""
        family, given = self._family(self._of_fit), self._of_fit
        kind = given.fit_intercept, *structure_of(self.posterior_)
        return GaussianModel(family, targets, None, float(n_rows), *kind)

    def _predictors(self, X, answer, groups=None, spread=True):
        """Return what a function says of the predictors of rows, chunk by chunk.

        It gets their means (m, k), and variances (m, 1) or the roots of covariances,
        maybe None without `spread`; the family; the model and the chunk as a batch,
        both None for groups.
        """
        check_is_fitted(self)
        if self._grouped:
            return self._group_predictors(X, groups, answer)
        self._check_no_groups(groups)
        data = as_source(checked(self, X, accept_sparse="csr"))
        model = self._posterior_model(data.n_units)
        point, less = model.point_of(self.posterior_), self.posterior_

        def evaluate(chunk):
            batch = data.batch(*chunk)
            if point is None:
                moments = model.predictors_less(less, batch)
            elif not spread:
                moments = model.means(point.parameters, batch), None
            else:
                moments = model.predictors(point.parameters, batch)
            return answer(*moments, model.family, model, batch)

        return in_chunks(self, evaluate, data.n_units)

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
        self._refuse_groups("gradient_variance")
        unknown = sorted(set(estimators) - set(ESTIMATORS))
        if unknown:
            raise ValueError(
                f"estimators are among {', '.join(ESTIMATORS)}; got {unknown}."
            )
        data, targets, _ = self._open_fitted(X, y, sample_weight)
        given = self._of_fit
        if self._family(given).code is None:
            raise ValueError(f"family={given.family!r} has no stochastic gradients.")
        if not isinstance(data.rows, np.ndarray):
            raise ValueError("gradient_variance needs dense rows: pass X.toarray().")
        rows = np.asarray(data.rows, np.float64)
        if given.fit_intercept:
            rows = np.column_stack([rows, np.ones(len(rows))])
        q, k = self.posterior_, self._n_predictors
        moments = (part.reshape(k, -1).T for part in (q.mean, q.scale))
        rng = as_generator(random_state)
        data = self._family(given), rows, targets, data.weight
        return decompose(*data, *moments, estimators, batch_size, n_draws, rng)

    def _more_columns(self):
        """Return what else the summary says of each coefficient."""
        return {}

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
        q, names, columns = self.posterior_, self._names(), {}
        if self._of_fit.fit_intercept:
            names.append("intercept")
        scale, df = self._scale_and_df(q)
        moments = (part.reshape(-1, len(names)) for part in (q.mean, scale))
        for label, mean, scale in zip(self._labels(), *moments, strict=True):
            columns |= interval_columns(mean, scale, label, df)
        columns |= self._more_columns()
        kind = type(q).__name__
        facts = {"elbo": self.elbo_} if hasattr(self, "elbo_") else {}
        if self._grouped:
            columns["scale of groups"] = q.population[0]
            facts = {
                "groups": len(self.groups_),
                "log_marginal_likelihood": self.log_marginal_likelihood_,
            }
        facts |= {
            "posterior": kind,
            "solver": self.solver_,
            "passes": float(self.history_["passes"][-1]),
            "converged": self.converged_,
        } | ({} if self._grouped else self._fact_of_k())
        if kind == "MeanField":
            facts["note"] = (
                "a mean-field posterior has standard deviations that are too small "
                "where features are correlated"
            )
        return summary_table(columns, names, facts)
