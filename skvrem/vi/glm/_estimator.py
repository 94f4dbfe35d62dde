"""What the estimators of generalised linear models share: the fit of a posterior."""

import time
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from skvrem import solvers
from skvrem.data import as_source, drawn_rows
from skvrem.utils._base import VersionedPickle, check_unchanged
from skvrem.utils._columns import Given, MatrixLike
from skvrem.utils._parallel import one_blas_thread
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import among, as_generator, check_parameters
from skvrem.vi.gaussian._fit import fit_bound, warn_quadrature
from skvrem.vi.gaussian._guards import (
    CENTRE,
    SCALES,
    check_pivots,
    check_prior_scale,
    check_spread,
    feature_scales,
    whole_fit,
)
from skvrem.vi.gaussian._minibatch import TakesSteps, check_steps, steps_of
from skvrem.vi.gaussian._model import Full, GaussianModel
from skvrem.vi.gaussian._model_families import GaussianNoise
from skvrem.vi.gaussian._model_posterior import (
    CentredMeanField,
    LowRank,
    MeanField,
)
from skvrem.vi.gaussian._model_steps import SteppingModel
from skvrem.vi.gaussian._plan import (
    FULL_RANK,
    as_structure,
    plan_fit,
    takes_sparse_rows,
)
from skvrem.vi.gaussian._width import with_unknown_width
from skvrem.vi.glm._input import ColumnUnits, warn_unseen
from skvrem.vi.glm._posterior import PosteriorAnswers
from skvrem.vi.glm._span import Span, in_coordinates
from skvrem.vi.glm.groups._estimator import OF_GROUPS, ByGroup
from skvrem.vi.glm.streams._estimator import StreamsWithMemory
from skvrem.vi.glm.streams._width import Width, width_of_prior
from skvrem.vi.glm.streams._width_by_messages import MANY_CLASSES
from skvrem.vi.glm.streams._width_of_classes import width_of_classes

ADVICE = "a smaller prior_scale, or features on one scale, make the problem easier"
# A column varies that goes farther from its mean, relative to it.
ROUNDING = 1e-12
# Prior standard deviation of a logit where all features are at their means.
WIDE_INTERCEPT = 10.0
# Numbers up to which rows are turned into their span, where they are sparse or kept.
MOST_IN_SPAN = 100_000_000
# The same of several predictors, which a prediction takes as many products of.
MOST_IN_SPANS = 10_000_000
# Rows that tell how wide a prior is of more coefficients than a full rank is for: what
# fewer rows of a hundred classes say is chance.
FEWEST_TELL = 10
# Parameters that are above zero, where an estimator has them.
POSITIVE = (
    "intercept_prior_scale",
    "noise_scale",
    "concentration",
    "population_scale",
)


class GaussianPosterior(
    ByGroup,
    StreamsWithMemory,
    PosteriorAnswers,
    TakesSteps,
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
        before = (go_on or self.warm_start) and "posterior_" in vars(self)
        posterior = self._given_prior if before else None
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

        Its intercept is of rows where features have their means, or zero where it is
        given. It takes the width of the prior of standardised coefficients, where that
        is learned.

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
            units = seen.units
            if data.n_features > FULL_RANK:
                units = np.full(data.n_features, np.sqrt(np.mean(np.square(units))))

        def prior_of(width=None):
            scale = fixed if width is None else width / units
            if not self.fit_intercept:
                return MeanField(np.zeros(scale.size), scale)
            own = np.append(scale, WIDE_INTERCEPT if centring else wide)
            prior = MeanField(np.zeros(own.size), own)
            return CentredMeanField(prior, centre) if centring else prior

        return prior_of

    def _keep_prior(self, one):
        """Set the fitted attributes of the prior of a predictor."""
        scale, self._prior = one.scale, one
        if self.fit_intercept:
            *_, spread = scale
            self.intercept_prior_scale_, scale = float(spread), scale[:-1]
        self.prior_scale_ = scale

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
        new = data, targets
        if go_on:
            dtype = self.coef_.dtype
            look = self._recall(data, targets, last)
        else:
            look = self._begin(data, targets, stream)
        data, targets, family, _, prior, prior_of, _, alone = look
        n_units = seen_by_sums or new[0].n_units
        model_of = partial(self._model, alone=alone)
        # Gaussian noise has been learned with the width.
        apart = isinstance(family, GaussianNoise)
        spans = (apart or not stream) and self._in_span(data, prior)
        k, weight = family.n_predictors, data.total_weight
        size = k * data.n_units if spans else prior.n_dim
        plan = plan_fit(self, size, k)
        rng = as_generator(self.random_state)
        kind = as_structure(plan.posterior), plan.rank, plan.matrix
        intercept, p = self.fit_intercept, prior.n_dim // k
        few = data.n_units < p
        if plan.posterior == "fullrank":
            family = family.beside(_products(k * min(p, data.n_units), data.n_units))
        look = look._replace(family=family)
        learned = prior_of is not None and not apart
        if learned and family.turns:  # by the units of features, as all that follow
            prior = prior_of(1.0).repeated(k)
        given, passes, near = (family, targets, prior, weight, intercept), 0.0, None
        model = model_of(data, *given, *kind)
        mean, rows = self._first_mean(model, data, prior), data
        if learned:
            spanned = stream and few and k > 1 and plan.posterior == "fullrank"
            how = model_of, mean, last, rng, stream, spanned
            look, near, passes = self._learn_width(look, *how)
            _, _, family, _, prior, *_ = look
            mean = mean if near is None else near.parameters.mean
            given = family, targets, prior, weight, intercept
            model = model_of(data, *given, *kind).changed(turned=model.turned)
        if plan.posterior == "meanfield" and isinstance(prior, CentredMeanField):
            # As of the posterior there are no correlations: it is as wide at zero.
            prior = MeanField(prior.mean, prior.scale)
            self._prior, model = prior.of_first(k), model.changed(prior=prior)
        posterior_of = model.posterior
        if last is not None and last.n_dim != prior.n_dim:
            last = None
        few &= look.afresh or not go_on
        if plan.posterior == "fullrank" and (few or spans):
            about = model_of, look, kind, weight, mean, last, spans
            form = model.turned
            model, rows, mean, last, posterior_of = self._within_span(*about, form)
            near = None
        anew = look.afresh or (family.overflows and not go_on)
        about = model, rows, mean, near, last, rng
        point = self._first_point(*about, anew, plan.name == "batch")
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
        how["once"] = stream
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
        if not stream:  # which has no bound, and mends with its next batch
            warn_quadrature(self, error, result.objective)
        vars(self).update(
            describe(result.point, result.objective),
            elbo_error_=error,
            **result.attributes(),
            **self._of_family(last_model, result.point),
            _rows=(data, targets, prior),
        )
        if learned:
            about = self._given_prior, prior, k, intercept
            self._width = self._width.rested(*about)
        vars(self).pop("_memory", None)
        if stream:
            self._remember(new, look, go_on)

    def _within_span(self, model_of, look, kind, weight, mean, last, spans, form):
        """Return what a fit goes on with where few rows tell of many coefficients.

        form: of rows, by which their nodes are turned; None for no turns.

        Returns
        -------
        model : GaussianModel
            Of the coefficients of the span of the rows.
        rows : source
            In its coordinates.
        mean : ndarray of shape (p, k)
            To start from, there.
        last : posterior, or None
        posterior_of : callable
            Returns the posterior of all coefficients at parameters there.
        """
        k, intercept = look.family.n_predictors, self.fit_intercept
        span = Span(look.data, look.prior.of_first(k), intercept)
        if isinstance(last, LowRank):  # no digit of it may be left in the span
            last = None
        last = None if last is None else span.project(last, k)
        given = look.family, look.targets, span.prior(k), weight, False
        model = model_of(span.data, *given, *kind)
        if form is not None:
            model = model.changed(turned=span.of_rows(form))
        lift = span.lift_low if spans else span.lift

        def posterior_of(parameters):
            return lift(model.posterior(parameters), k)

        return model, span.data, span.means(mean), last, posterior_of

    def _first_point(self, model, rows, mean, near, last, rng, anew, whole):
        """Return the point that steps begin at.

        near: about where the posterior is, None if that is not known; anew: whether
        `last`, the posterior before, is no place to begin at; whole: whether a step
        takes all rows.
        """
        point = None if last is None else model.point_of(last)
        if point is not None and not anew:
            return point
        if model.full and near is not None:
            return near
        if near is not None and model.family.n_predictors > 1 and not whole:
            # Rows that are told apart say nothing of scales at a mean alone.
            return model.spread(mean, near.parameters.precision, rng)
        return self._start(model, rows, mean, last, rng)

    def _width_by_some(self, model_of, data, targets, prior_of, k, rng):
        """Return how wide the prior is of many coefficients, as some rows tell.

        They know of as many coefficients as they are, those of their span. Where these
        are few for a full rank of all, all rows tell it. Of many classes that is for a
        few rows of each, which say nothing: other posteriors do by more. Of so many
        that these are few as well, it is that of its own prior.
        """
        base, intercept = prior_of(1.0), self.fit_intercept
        size = FULL_RANK // k - intercept
        if size < min(FEWEST_TELL, data.n_units):
            return Width.of(0.0, 1.0, data.n_units)
        if k >= MANY_CLASSES and size < data.n_units:
            made_by = partial(self._family, self), model_of
            about = data, targets, prior_of, k, made_by, rng
            return width_of_classes(*about, self._width)
        rows, weight, targets = drawn_rows(data, size, rng, targets)
        some, of_coordinates = in_coordinates(as_source(rows, weight), base)

        def prior_in_span(width):
            return of_coordinates(prior_of(width))

        prior = prior_in_span(1.0).repeated(k)
        family = self._family(self, some.n_units, some.n_units)
        family = family.beside(_products(k * some.n_units, some.n_units))
        about = family, targets, prior, some.total_weight, intercept
        model = model_of(some, *about, "full")
        start = model.start(self._first_mean(model, some, prior), some, rng)
        width, *_ = width_of_prior(model, some, start, prior_in_span, self._width)
        return width._replace(n_rows=data.n_units)

    def _in_span(self, data, prior, n_before=0):
        """Whether there is a posterior of more coefficients than a full rank is for.

        As the prior less a rank, that of the rows.
        """
        n_rows, size = n_before + data.n_units, prior.n_dim
        k = size // (data.n_features + self.fit_intercept)
        exact = among(self.posterior, ("auto",)) and takes_sparse_rows(self)
        natural = among(steps_of(self).optimizer, ("auto", "natural"))
        wide = k * n_rows <= FULL_RANK < size
        wide = wide and isinstance(prior, (MeanField, CentredMeanField))
        # Dense rows of a fit have place for as many numbers again; those of several
        # predictors have k^2 times as many in all their spans.
        room = k == 1 and not (data.sparse or n_before)
        most = MOST_IN_SPAN if k == 1 else MOST_IN_SPANS
        fits = room or k * n_rows * size <= most
        return exact and natural and wide and fits

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
        """Return the fitted attributes of a posterior, given its prior."""
        whole = self._with_unknown_width(posterior, k)
        found = {"posterior_": whole, "_posterior_given_prior": posterior}
        for name, part in (("", whole.mean), ("_std", whole.scale)):
            coef, intercept = self._columns(part, k, self)
            found[f"coef{name}_"] = np.ascontiguousarray(coef, dtype)
            found[f"intercept{name}_"] = intercept.astype(dtype)
        return found

    def _with_unknown_width(self, posterior, k):
        """Return a posterior with what is not known of a width that is learned."""
        if self._width is None or not among(self.prior_scale, ("learn",)):
            return posterior
        scales = self._scales_by_width(posterior.n_dim, k)
        return with_unknown_width(posterior, scales, self._width.curvature)

    def _scales_by_width(self, n_dim, k):
        """Return scales of the prior of all k predictors, infinity of intercepts."""
        scale = self.prior_scale_
        return np.tile(np.append(scale, np.full(n_dim // k - scale.size, np.inf)), k)

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


def _products(size, n_rows):
    """Return the products that a pass takes for each row, beside those of nodes.

    Of squares of a full rank, and for its inverse where rows are fewer.
    """
    return size**2 * (1 + size // n_rows)
