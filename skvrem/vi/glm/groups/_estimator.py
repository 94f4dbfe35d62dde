"""Fits of generalised linear models whose coefficients differ by group."""

import time
import warnings
from functools import partial

import numpy as np

from skvrem import schedules, solvers
from skvrem.data import column_moments, of_dask
from skvrem.exceptions import FewGroupsWarning
from skvrem.utils._base import check_unchanged
from skvrem.utils._columns import check_column, column_names, column_number
from skvrem.utils._remote import check_has_targets
from skvrem.utils._reports import (
    Progress,
    outside,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import among, check_weight
from skvrem.vi.gaussian._fit import fit_bound
from skvrem.vi.gaussian._guards import (
    check_spread,
)
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._width import deviation_of_mode, units_of
from skvrem.vi.gaussian.nested._input import (
    check_kind,
    few_groups,
    number_groups,
    numbered_groups,
    open_group_blocks,
    open_groups,
    wide_groups,
    widest,
)
from skvrem.vi.gaussian.nested._model import NestedPrior, Scales
from skvrem.vi.gaussian.nested._model_origin import (
    FARTHEST,
    OriginModel,
    seen_from,
)
from skvrem.vi.gaussian.nested._width import learned_width
from skvrem.vi.glm.groups._answers import GroupAnswers
from skvrem.vi.glm.groups._look import GroupLook, GroupPrior, OpenedGroups
from skvrem.vi.glm.groups._model import GroupedModel, integrated
from skvrem.vi.glm.groups._model_posterior import VaryingPosterior

# Standard deviation of the logarithms of the population's scales, in the prior.
SPREAD = 1.0
# Attributes of fits without groups, and of fits with them.
OF_OTHERS = (
    "elbo_",
    "elbo_error_",
    "noise_df_",
    "_memory",
    "_rows",
    "_pareto_k",
    "_width",
    "_posterior_given_prior",
)
OF_GROUPS = (
    "groups_",
    "n_group_samples_",
    "group_coef_",
    "group_coef_std_",
    "group_intercept_",
    "group_intercept_std_",
    "population_scale_",
    "population_log_scale_std_",
    "population_intercept_scale_",
    "population_intercept_log_scale_std_",
    "population_origin_",
    "log_marginal_likelihood_",
    "_group_state",
    "_grouped",
)
# Groups from which the scales of some of them are found first, and one in how many.
MANY_GROUPS, ONE_IN = 2000, 16


def _origin_of(posterior):
    """Return the origin of a posterior, whose older pickles have none."""
    if posterior.origin is None:
        return np.zeros(posterior.order.size)
    return posterior.origin


class ByGroup(GroupAnswers):
    """What estimators with coefficients by group do where they are given groups.

    A class that inherits this has ``_check_targets(y)``, ``_targets(y, weight, given,
    **more)``, which returns targets as its family wants them, ``_with_targets(data,
    seen)``, which does so where batches bring them, labels or numbers
    (`_target_kind`), and ``_likely_group_scales(seen)``, the medians of the priors of
    the population's scales for ``population_scale="auto"``, of features (n_features,)
    and of the intercept; ``_prior_of`` and ``_moments``, which returns what is seen,
    are those of :class:`GaussianPosterior`; ``_memory_of_groups`` and
    ``_keep_for_a_stream`` of :class:`StreamsWithMemory`.
    """

    _target_kind: str

    #: Whether the width of the prior is learned of rows with groups.
    _learns_width = False

    def _check_varying(self, grouped):
        """Refuse to leave out in silence what was to differ by group."""
        if not grouped and not among(self.varying, ("intercept",)):
            raise ValueError(
                f"varying={self.varying!r} says what differs from group to group, but "
                "no groups are given: give one id a row as the keyword groups, or name "
                "the column that holds them by the parameter groups."
            )

    def _check_groups(self):
        """Check the parameters that say what differs by group."""
        check_column(self, "groups")
        varying = self.varying
        if among(varying, ("intercept", "all")):
            if varying == "intercept" and not self.fit_intercept:
                raise ValueError(
                    "varying='intercept' needs fit_intercept=True: give 'all', or a "
                    "list of the columns whose coefficients differ by group."
                )
            return
        if isinstance(varying, str) or not np.iterable(varying):
            raise ValueError(
                "varying must be 'intercept', 'all' or a list of columns, got "
                f"{varying!r}."
            )

    def _order(self, X, n_features):
        """Return the columns of coefficients, those that differ first, and how many."""
        every = np.arange(n_features + self.fit_intercept)
        varying = self.varying
        if among(varying, ("all",)):
            return every, every.size
        some = [n_features] if self.fit_intercept else []
        if not among(varying, ("intercept",)):
            names = [f"{name}" for name in column_names(X)]
            n_columns = n_features + (self.groups is not None)
            ids = n_columns
            if self.groups is not None:
                ids = column_number(self.groups, "groups", names, n_columns)
            for column in varying:
                at = column_number(column, "varying", names, n_columns)
                if at == ids:
                    raise ValueError(
                        f"varying has the column {column!r}, which holds the ids of "
                        "groups."
                    )
                some.append(at - (at > ids))
        some = list(dict.fromkeys(some))
        if not some:
            raise ValueError("varying has no column, and there is no intercept.")
        rest = np.setdiff1d(every, some)
        return np.concatenate([np.array(some, int), rest]).astype(np.int64), len(some)

    @with_callbacks
    def _fit_groups(self, X, y, sample_weight, groups, stream=False, **more):
        """Fit to rows of groups, or to a batch beside what is known of them."""
        began = time.perf_counter()
        go_on = stream and hasattr(self, "posterior_")
        self._check_groups()
        self._check_whole_passes()
        if go_on:
            check_unchanged(self, *self._lasting, "groups", "varying")
        last = self._known(go_on)
        new = self._open_groups(X, y, sample_weight, groups, not go_on, **more)
        last = self._start_from(last, go_on)
        memory = self._memory_of_groups(go_on) if stream else None
        look = self._look_at_groups(new, memory, go_on)
        known = self._prior_of_groups(X, look, stream)
        model, units = self._model_of_groups(look, known, last)
        if look.before is not None and look.past is None and model.family.overflows:
            last = None  # steps from far away may lead nowhere
        point = self._group_start(model, look, last)
        if units is not None:
            model = OriginModel(model, *units)
            point = model.placed(point)
        model, known, point, passes = self._begin_groups(
            model, units, look, known, point, last is None
        )
        n_units = new.data.n_units
        n_seen = n_units + (self.n_samples_seen_ if go_on else 0)
        dtype = self.coef_.dtype if go_on else new.data.dtype
        drawn = self._drawn_before(look, n_seen)

        def describe(point, objective, model=model):
            here, place = model.at(point)
            found = here.posterior(place, drawn=drawn)
            state = {"past": here.seen(place), "n_rows": look.n_rows, **known.kept()}
            state["least"] = here.least_noise
            if stream:
                state["drawn"] = drawn or here.drawn(place, found, n_seen)
            own = self._of_grouped_family(here, found)
            about = {"groups_": look.labels, "n_group_samples_": look.counts}
            return {
                **self._group_attributes(here.rows, dtype, found, **about),
                **own,
                "log_marginal_likelihood_": model.log_marginal(point, found),
                "objective_": objective,
                "n_samples_seen_": n_seen,
                "solver_": "batch",
                "expectation_": here.expectation,
                "optimizer_": "lbfgs",
                "step_size_": 1.0,
                "batch_size_": n_units,
                "_group_state": state,
                "_grouped": True,
            }

        with Progress(self, X, y, 1) as progress:
            report = progress.start(0, describe)
            given = model, solvers.Whole(), solvers.QuasiNewton(self.tol), point
            how = {"passes": passes}
            result, last, _ = fit_bound(self, *given, report, began, **how)
        warn_not_converged(self, result, unit="")
        for name in OF_OTHERS:
            vars(self).pop(name, None)
        vars(self).update(
            describe(result.point, result.objective, last), **result.attributes()
        )
        if stream:
            if memory is not None:
                memory = memory.after_groups(new.data, new.targets, new.ids)
            looked = memory is not None and look.past is None
            self._memory = memory.looked() if looked else memory
        else:
            self._keep_for_a_stream(new)
            self._warn_of_groups(known.prior, known.q)

    def _look_at_groups(self, new, memory, go_on):
        """Return the `GroupLook` at a fit's rows, or at a batch and those before it."""
        if not go_on:
            if self.fit_intercept:
                check_spread(new.data)
            return GroupLook.of(new)
        check_kind(new.labels, self.groups_)
        # All rows of the stream are seen again, or those before are a quadratic.
        again = memory is not None
        again = again and (memory.short or memory.grown(new.data.n_units))
        opened = new.beside(memory.kept) if again else new
        before = self._group_state, again, self.groups_, self.n_group_samples_
        return GroupLook.of(opened, *before)

    def _prior_of_groups(self, X, look, stream):
        """Return the `GroupPrior` of rows; the width of one that is learned is 1."""
        data, targets, *_ = look.opened
        if look.before is not None:
            known, learned = GroupPrior.before(look.before), False
            if known.seen is None:
                return known
            seen = self._moments(data, targets)
            seen = seen if look.past is None else known.seen.merged(seen)
            order, q, so_far = known.order, known.q, seen
        else:
            learned = self._learns_width and not stream
            learned = learned and among(self.prior_scale, ("learn",))
            order, q = self._order(X, data.n_features)
            seen = self._moments(data, targets)
            # It warns of columns that a given prior lets hardly matter, at first.
            so_far = seen if learned else None
        one_of = self._prior_of(data, targets, learned, so_far)
        scales = self._group_scales(seen)[order[:q]]

        def of_width(*width):
            one = one_of(*width)
            self._keep_prior(one)
            mean, variance = one.own.mean[order], one.own.variance[order]
            centre = np.append(one.centre, np.zeros(order.size))[order]
            own = mean, variance, np.log(scales), SPREAD
            return NestedPrior(*own, centre=centre)

        if learned:  # a stream that goes on from here keeps the width, and the prior
            return GroupPrior(of_width(1.0), order, q, scales, None, of_width)
        return GroupPrior(of_width(), order, q, scales, seen)

    def _model_of_groups(self, look, known, last):
        """Return the model of rows, and moments of columns to learn an origin by."""
        if look.before is not None:
            origin, units = _origin_of(self.posterior_), None
        else:
            origin, units = self._start_of_origin(look.opened.data, known, last)
        about = known.order, known.q, look.now, len(look.labels), origin
        rows = look.opened.rows(*about)
        return self._integrated_model(rows, look, known, look.n_rows), units

    def _integrated_model(self, rows, look, known, n_rows):
        data, targets, *_ = look.opened
        how = {"go_on": look.before is not None, "seen": known.seen}
        given = rows, data, targets, known.prior, look.past, n_rows
        return integrated(self._grouped_model(*given, **how))

    def _begin_groups(self, model, units, look, known, point, cold):
        """Learn the width of a prior where that is to be, and begin near the end.

        Returns
        -------
        model : GroupedModel or OriginModel
        known : GroupPrior
            With what has been learned of its width.
        point : Point
        passes : float
            Made over the rows.
        """
        learn, near, passes = None, {}, 0.0
        if known.of_width is not None:
            features = known.order < look.opened.data.n_features
            about = {"prior_of": known.of_width, "features": features}
            learn = partial(learned_width, data=solvers.Whole(), **about)
        if cold and len(look.labels) >= MANY_GROUPS:
            given = model, units, look, known, point, learn
            near, point, passes = self._found_on_some(*given)
        if learn is not None:
            width, curvature, point, more = learn(model, point=point, **near)
            # What is not known of the width is in no covariance here: without it
            # intervals of few coefficients would be too short.
            wider = np.exp(deviation_of_mode(curvature))
            known = known._replace(prior=known.of_width(width * wider))
            model, passes = model.of_prior(known.prior), passes + more
        return model, known, point, passes

    def _drawn_before(self, look, n_seen):
        """Return the draws of a stream's scales that still hold, None without."""
        drawn = None if look.before is None else look.before.get("drawn")
        if drawn is None or not drawn.is_of(n_seen):
            return None
        at = np.searchsorted(look.labels, self.groups_)
        return drawn.spread(at, len(look.labels))

    def _warn_of_groups(self, prior, q):
        """Warn of groups that say little of what groups have in common."""
        instead = "Where groups need not differ, leave them out."
        n_groups, posterior = len(self.groups_), self.posterior_
        text = few_groups(type(self).__name__, n_groups, instead)
        if text is None:
            p = posterior.order.size
            spread = np.sqrt(np.diagonal(posterior.parts.covariance)[p : p + q])
            log_tau, scale = posterior.parts.scales[:q], np.sqrt(prior.variance[:q])
            at, times = widest(log_tau, spread, scale, n_groups)
            if at is not None:
                names, column = self._names(), posterior.order[at[0]]
                of_feature = column < len(names)
                what = names[column] if of_feature else "the intercept"
                text = wide_groups(what, times, "" if of_feature else "intercept_")
        if text is not None:
            warnings.warn(text, FewGroupsWarning, stacklevel=outside())

    def _check_whole_passes(self):
        """Check that what is asked for beside groups goes with them."""
        for name, options in (("posterior", ("auto",)), ("solver", ("auto", "batch"))):
            value = getattr(self, name)
            if not among(value, options):
                raise ValueError(
                    f"{name}={value!r} does not go with groups, whose posterior is a "
                    f"nested Gaussian by full passes: leave {name}='auto'."
                )

    def _open_groups(self, X, y, sample_weight, groups, reset, **more):
        """Return the `OpenedGroups` of a fit, or of a batch of a stream."""
        if any(map(of_dask, (X, y, sample_weight, groups, *more.values()))):
            return self._open_group_blocks(X, y, sample_weight, groups, **more)
        if hasattr(X, "tocsr"):
            raise ValueError("groups= needs dense rows: pass X.toarray().")
        check_has_targets(self, y, required=True)
        self._check_targets(y)
        rows, y, ids = open_groups(self, X, y, groups, self.groups, reset=reset)
        weight = check_weight(sample_weight, len(rows))
        targets = self._targets(y, weight, self, **more)
        return OpenedGroups.of(rows, targets, weight, ids)

    def _open_group_blocks(self, X, y, sample_weight, groups, offset=None):
        """Return the `OpenedGroups` of a fit on dask."""
        if y is None or not of_dask(y):
            self._check_targets(y)
        given = self, X, y, groups, sample_weight
        data, seen, labels, counts = open_group_blocks(
            *given, self._target_kind, offset
        )
        data = self._with_targets(data, seen)
        data = data.with_columns(partial(numbered_groups, labels))
        return OpenedGroups(data, None, labels, counts)

    def _grouped_model(
        self, rows, data, targets, prior, past, n_rows, go_on, seen=None
    ):
        """Return the model of rows of groups, with `_moments` of all of a stream."""
        family = self._family(self)
        return GroupedModel(family, rows, prior, past)

    def _of_grouped_family(self, model, found):
        """Return the fitted attributes of what the family has learnt."""
        return {}

    def _group_scales(self, seen):
        """Return medians of priors of the population's scales, that of intercepts last.

        seen: what `_moments` returns, of all rows of a stream.
        """
        slopes, intercept = self._likely_group_scales(seen)
        if not among(self.population_scale, ("auto",)):
            intercept = float(self.population_scale)
            slopes = np.full(slopes.size, intercept)
        return np.append(slopes, intercept) if self.fit_intercept else slopes

    def _first_intercept(self, data, targets):
        """Return where a cold fit starts the intercept, None at its prior's mean."""

    def _first_noise(self, data, targets):
        return 1.0

    def _group_start(self, model, look, last):
        """Return the point to start from: the prior, or what is known of groups."""
        prior, order = model.prior, model.rows.order
        data, targets, *_ = look.opened
        same = isinstance(last, VaryingPosterior) and np.array_equal(last.order, order)
        if same and last.q == model.q and last.parts.scales.size == model.n_scales:
            old = number_groups(look.labels, self.groups_)
            mean, rows = last.parts.mean, model.rows
            groups = np.where(
                (old < 0)[:, None], mean[: model.q], last.parts.groups[old]
            )
            change = (rows.origin - _origin_of(last))[: model.q]
            parts = seen_from(change, rows.intercept, mean, groups)
            return Point(Scales(last.parts.scales, *parts))
        mean = prior.mean.copy()
        first = self._first_intercept(data, targets)
        if first is not None and self.fit_intercept:
            mean[np.argmax(order)] = first
        return model.start(None, mean, self._first_noise(data, targets))

    def _start_of_origin(self, data, known, last):
        """Return an origin (p,), and the moments of columns if it is to be learnt."""
        order, q = known.order, known.q
        if q == 1 or not self.fit_intercept:
            return np.zeros(order.size), None
        seen = column_moments(data).weighted
        units = seen.mean, units_of(seen.mean, seen.deviation)
        given = zip(units, (0.0, 1.0), strict=True)
        centre, deviation = (np.append(part, own)[order] for part, own in given)
        origin = centre.copy()
        if isinstance(last, VaryingPosterior) and np.array_equal(last.order, order):
            # Of other rows it may lie anywhere.
            reach = FARTHEST * deviation
            origin = np.clip(_origin_of(last), centre - reach, centre + reach)
        origin[q:] = 0.0
        return origin, (centre, deviation)

    def _found_on_some(self, model, units, look, known, point, learn):
        """Return what some of the groups lead to.

        Returns
        -------
        near : dict
            Where `learn` is to go on with the width of the prior, if it is learned.
        point : Point
        passes : float
            Made over all rows.
        """
        few, share = model.at(point)[0].rows.some(ONE_IN)
        look = look._replace(before=None, past=None)
        known = known._replace(seen=None)
        smaller = self._integrated_model(few, look, known, share * look.n_rows)
        if units is not None:
            smaller = OriginModel(smaller, *units)
        parameters, near = point.parameters, {}
        start = Point(parameters._replace(groups=parameters.groups[::ONE_IN]))
        if learn is not None:
            width, curvature, found, passes = learn(smaller, point=start)
            near = {"at": width, "curvature": curvature}
        else:
            result = solvers.run(
                smaller,
                solvers.QuasiNewton(self.tol),
                solvers.Whole(),
                start,
                step_size=schedules.Constant(1.0),
                temperature=schedules.Constant(1.0),
                max_iter=self.max_iter,
                tol=self.tol,
                rng=None,
            )
            found, passes = result.point, result.history[-1].passes
        groups = np.tile(found.parameters.mean[: model.q], (model.n_groups, 1))
        found = Point(found.parameters._replace(groups=groups))
        return near, found, share * passes

    def _group_attributes(self, rows, dtype, parts, **others):
        """Return the fitted attributes of a posterior of rows."""
        q = VaryingPosterior(parts, rows.order, rows.origin)
        scales, spread = q.population
        found = {"posterior_": q, **others}
        origin = np.zeros(rows.order.size)
        origin[rows.order] = rows.origin
        found["population_origin_"] = self._columns(origin, 1, self)[0][0]
        split = {
            "coef": (q.mean, q.scale),
            "group_coef": (q.group_mean, q.group_scale),
        }
        for name, both in split.items():
            for part, values in zip(("", "_std"), both, strict=True):
                coef, intercept = self._columns(values, 1, self)
                other = name.replace("coef", "intercept")
                found[f"{name}{part}_"] = coef[..., 0, :].astype(dtype)
                found[f"{other}{part}_"] = intercept[..., 0].astype(dtype)
        for name, values in (("scale", scales), ("log_scale_std", spread)):
            coef, intercept = self._columns(values, 1, self)
            found[f"population_{name}_"] = coef[0].astype(dtype)
            found[f"population_intercept_{name}_"] = float(intercept[0])
        return found
