"""Fits and answers of generalised linear models whose coefficients differ by group."""

import time
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvrem import schedules, solvers
from skvrem.data import as_source, column_moments, joined, of_dask
from skvrem.exceptions import FewGroupsWarning
from skvrem.utils._base import check_unchanged, feature_names
from skvrem.utils._columns import check_column, column_names, column_number
from skvrem.utils._reports import (
    Progress,
    outside,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import among, as_generator, check_weight
from skvrem.vi.diagnostics._arviz import Draws
from skvrem.vi.gaussian._answers import in_chunks
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
from skvrem.vi.glm.groups._model import GroupedModel, integrated
from skvrem.vi.glm.groups._model_posterior import VaryingPosterior
from skvrem.vi.glm.groups._model_rows import Design, GroupBlocks, GroupRows

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


class OpenedGroups(NamedTuple):
    """Rows of groups, here or in the blocks of dask.

    Attributes
    ----------
    data : source
        In memory rows of a group are together; batches of dask bring targets and
        numbers of groups.
    targets : ndarray of shape (n_rows, ...), or None where batches bring them
    labels, counts : ndarray of shape (n_groups,)
        Ids of the groups, sorted, and how many rows they have.
    """

    data: Any
    targets: Any
    labels: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, rows, targets, weight, ids):
        """Return rows in memory, those of a group together."""
        labels, group = np.unique(ids, return_inverse=True)
        if (np.diff(group) < 0).any():
            turn = np.argsort(group, kind="stable")
            rows, targets = rows[turn], targets[turn]
            weight = weight[turn] if weight is not None and len(weight) else weight
        data = as_source(np.ascontiguousarray(rows), weight)
        return cls(data, targets, labels, np.bincount(group))

    @property
    def ids(self):
        """Ids of the groups of rows in memory, (n_rows,)."""
        return np.repeat(self.labels, self.counts)

    def beside(self, kept):
        """Return them beside the rows that a stream has kept."""
        data, targets = kept.beside(self.data, self.targets)
        return self.of(data.rows, targets, data.weight, joined(kept.groups, self.ids))

    def rows(self, order, q, at, n_groups, origin):
        """Return the rows for a model of groups of which these are the numbers at."""
        counts = np.zeros(n_groups, np.int64)
        counts[at] = self.counts
        if self.data.remote:
            return GroupBlocks(self.data, counts, order, q, origin)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        design = Design(self.data.rows, bounds, order, q, origin)
        return GroupRows(design, self.targets, self.data.weight)


def _origin_of(posterior):
    """Return the origin of a posterior, whose older pickles have none."""
    if posterior.origin is None:
        return np.zeros(posterior.order.size)
    return posterior.origin


class ByGroup:
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
    #: Whether the fit had groups; not in older pickles.
    _grouped = False

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
        if any(map(of_dask, (X, y, sample_weight, groups, *more.values()))):
            opened = self._open_group_blocks(X, y, sample_weight, groups, **more)
        else:
            given = X, y, sample_weight, groups, not go_on
            opened = self._open_group_rows(*given, **more)
        last = self._start_from(last, go_on)
        new, memory = opened, self._memory_of_groups(go_on) if stream else None
        if go_on:
            check_kind(new.labels, self.groups_)
        # All rows of the stream are seen again, or those before are a quadratic.
        again = go_on and memory is not None
        again = again and (memory.short or memory.grown(new.data.n_units))
        if again:
            opened = new.beside(memory.kept)
        data, targets, labels, counts = opened
        if not go_on and self.fit_intercept:
            check_spread(data)
        before = self._group_state if go_on else None
        others = go_on and not again
        now, past, drawn = np.arange(len(labels)), None, None
        learned = self._learns_width and not stream
        learned = learned and among(self.prior_scale, ("learn",))
        moments, scales = None, None
        if others:
            every = np.union1d(self.groups_, labels)
            at = np.searchsorted(every, self.groups_)
            now, labels = np.searchsorted(every, labels), every
            past = before["past"].spread(at, len(every))
        if go_on:
            prior, order, q, scales = (before[name] for name in before["fixed"])
            origin, units = _origin_of(self.posterior_), None
            if before.get("seen") is not None:
                moments = self._moments(data, targets)
                moments = before["seen"].merged(moments) if others else moments
        else:
            order, q = self._order(X, data.n_features)
            origin, units = self._start_of_origin(data, order, q, last)
            moments = self._moments(data, targets)
        if moments is not None:
            # It warns of columns that a given prior lets hardly matter, at first.
            known = moments if go_on or learned else None
            one_of = self._prior_of(data, targets, learned, known)
            scales = self._group_scales(moments)[order[:q]]

            def prior_of(*width):
                one = one_of(*width)
                self._keep_prior(one)
                mean, variance = one.own.mean[order], one.own.variance[order]
                centre = np.append(one.centre, np.zeros(order.size))[order]
                own = mean, variance, np.log(scales), SPREAD
                return NestedPrior(*own, centre=centre)

            prior = prior_of(1.0) if learned else prior_of()
        if learned:  # a stream that goes on from here keeps the width, and the prior
            moments = None
        rows = opened.rows(order, q, now, len(labels), origin)
        each = np.zeros(len(labels), int)
        each[now] = counts
        if others:
            each[at] += self.n_group_samples_
        n_rows = data.total_weight
        n_rows += before["n_rows"] if others else 0.0
        given = data, targets, prior
        how = {"go_on": go_on, "seen": moments}
        model = self._grouped_model(rows, *given, past, n_rows, **how)
        model = integrated(model)
        if again and model.family.overflows:  # Steps from far away may lead nowhere.
            last = None
        point = self._group_start(model, data, targets, labels, last)
        if units is not None:
            model = OriginModel(model, *units)
            point = model.placed(point)
        solver = solvers.QuasiNewton(self.tol)
        learn, near, passes = None, {}, 0.0
        if not go_on and learned:
            features = order < data.n_features
            about = {"prior_of": prior_of, "features": features}
            learn = partial(learned_width, data=solvers.Whole(), **about)
        if last is None and len(labels) >= MANY_GROUPS:
            given = model, units, *given, n_rows, point, learn
            near, point, passes = self._found_on_some(*given)
        if learn is not None:
            width, curvature, point, more = learn(model, point=point, **near)
            # What is not known of the width is in no covariance here: without it
            # intervals of few coefficients would be too short.
            wider = np.exp(deviation_of_mode(curvature))
            prior, passes = prior_of(width * wider), passes + more
            model = model.of_prior(prior)
        dtype = self.coef_.dtype if go_on else data.dtype
        n_units = new.data.n_units
        n_seen = n_units + (self.n_samples_seen_ if go_on else 0)
        if go_on and "drawn" in before and before["drawn"].is_of(n_seen):
            at = np.searchsorted(labels, self.groups_)
            drawn = before["drawn"].spread(at, len(labels))

        def describe(point, objective, model=model):
            here, place = model.at(point)
            found = here.posterior(place, drawn=drawn)
            state = {"past": here.seen(place), "n_rows": n_rows}
            if stream:
                state["drawn"] = drawn or here.drawn(place, found, n_seen)
            state["least"], state["seen"] = here.least_noise, moments
            state |= {"prior": prior, "order": order, "q": q, "scales": scales}
            state["fixed"] = "prior", "order", "q", "scales"
            own = self._of_grouped_family(here, found)
            return {
                **self._group_attributes(
                    here.rows,
                    dtype,
                    found,
                    groups_=labels,
                    n_group_samples_=each,
                ),
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
            how = {"passes": passes}
            result, last, _ = fit_bound(
                self, model, solvers.Whole(), solver, point, report, began, **how
            )
        warn_not_converged(self, result, unit="")
        for name in OF_OTHERS:
            vars(self).pop(name, None)
        vars(self).update(
            describe(result.point, result.objective, last), **result.attributes()
        )
        if stream:
            if memory is not None:
                memory = memory.after_groups(new.data, new.targets, new.ids)
            looked = memory is not None and not others
            self._memory = memory.looked() if looked else memory
        else:
            self._keep_for_a_stream(opened)
            self._warn_of_groups(prior, q)

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

    def _open_group_rows(self, X, y, sample_weight, groups, reset, **more):
        """Return the `OpenedGroups` rows of a fit, or of a batch of a stream."""
        if hasattr(X, "tocsr"):
            raise ValueError("groups= needs dense rows: pass X.toarray().")
        self._check_targets(y)
        rows, y, ids = open_groups(self, X, y, groups, self.groups, reset=reset)
        weight = check_weight(sample_weight, len(rows))
        targets = self._targets(y, weight, self, **more)
        return OpenedGroups.of(rows, targets, weight, ids)

    def _open_group_blocks(self, X, y, sample_weight, groups, offset=None):
        """Return the `OpenedGroups` rows of a fit on dask."""
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

    def _group_start(self, model, data, targets, labels, last):
        """Return the point to start from: the prior, or what is known of groups."""
        prior, order = model.prior, model.rows.order
        same = isinstance(last, VaryingPosterior) and np.array_equal(last.order, order)
        if same and last.q == model.q and last.parts.scales.size == model.n_scales:
            old = number_groups(labels, self.groups_)
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

    def _start_of_origin(self, data, order, q, last):
        """Return an origin (p,), and the moments of columns if it is to be learnt."""
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

    def _found_on_some(self, model, units, data, targets, prior, n_rows, point, learn):
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
        given = data, targets, prior, None, share * n_rows
        smaller = integrated(self._grouped_model(few, *given, go_on=False))
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

    # Answers

    def _names(self):
        """Names of the features, without the column of ids."""
        names = feature_names(self)
        if self._grouped and self._of_fit.groups is not None:
            del names[column_number(self._of_fit.groups, "groups", names, len(names))]
        return names

    def _open_rows(self, X, groups):
        """Return rows and numbers of their groups, -1 for those of none."""
        column = self._of_fit.groups
        rows, _, ids = open_groups(self, X, None, groups, column, reset=False)
        if ids is None:
            return rows, np.full(len(rows), -1)
        check_kind(ids, self.groups_)
        return rows, number_groups(ids, self.groups_)

    def _check_no_groups(self, groups):
        if groups is not None:
            raise ValueError(
                f"This {type(self).__name__} was fitted without groups: fit(X, y, "
                "groups=...) takes ids."
            )

    def _group_predictors(self, X, groups, answer):
        """Return what a function says of the predictors of rows, chunk by chunk."""
        check_is_fitted(self)
        rows, place = self._open_rows(X, groups)
        q, family = self.posterior_, self._family(self._of_fit)

        def evaluate(chunk):
            some = slice(*chunk)
            a, v = q.predictors(rows[some], place[some])
            return answer(a[:, None], v[:, None], family)

        return in_chunks(self, evaluate, len(rows))

    def _group_draws(self, X, groups, n_samples, rng):
        """Return predictors of rows (n_samples, n_rows, 1) at draws, and the noise."""
        rows, place = self._open_rows(X, groups)
        known, at = np.unique(place, return_inverse=True)
        draws = self.posterior_.among(known[known >= 0]).sample(n_samples, rng)
        return self._at_draws(rows, at - (known[0] < 0), draws, rng), draws[2]

    def _at_draws(self, rows, place, draws, rng):
        """Return predictors of rows (n_samples, n_rows, 1) at draws.

        place (n_rows,) are numbers of the groups drawn; -1 is one new group.
        """
        *_, of_groups, new = draws
        of_groups = np.concatenate([of_groups, new[:, None]], axis=1)
        coef, intercept = self._columns(of_groups, 1, self._of_fit)
        z = np.empty((len(new), len(rows), 1))
        parts = zip(z[..., 0], coef[..., 0, :], intercept[..., 0], strict=True)
        for out, own, constant in parts:
            out[:] = np.einsum("nj,nj->n", rows, own[place]) + constant[place]
        return z

    def _named(self, draws):
        """Return draws by their names."""
        mean, scales, noise, groups, _ = draws
        found = {}
        for name, part in (("", mean), ("group_", groups), ("population_", scales)):
            coef, intercept = self._columns(part, 1, self._of_fit)
            names = f"{name}coef", f"{name}intercept"
            if name == "population_":
                names = "population_scale", "population_intercept_scale"
            found[names[0]], found[names[1]] = coef[..., 0, :], intercept[..., 0]
        if noise.shape[1]:
            found["noise_scale"] = noise[:, 0]
        return found

    def _sample_groups(self, n_samples, rng):
        """Return draws of the posterior by their names."""
        return self._named(self.posterior_.sample(n_samples, rng))

    def _draws_of_groups(self, X, y, n_samples, rng):
        """See `ArviZMixin`: ids are a column of X, or rows are of a new group."""
        rng = as_generator(rng)
        rows, place = self._open_rows(X, None)
        draws = self.posterior_.sample(n_samples, rng)
        z, noise = self._at_draws(rows, place, draws, rng), draws[2]
        self._check_targets(y)
        column = self._of_fit.groups
        _, targets, _ = open_groups(self, X, y, None, column, reset=False)
        targets = self._targets(targets, None, self._of_fit)
        each = self._log_likelihood_at(z, noise, targets)
        new, posterior = self._draw_at(z, noise, rng), self._named(draws)
        dims = {
            "coef": ["feature"],
            "group_coef": ["group", "feature"],
            "group_intercept": ["group"],
            "population_scale": ["feature"],
        }
        coords = {"group": self.groups_.tolist(), "feature": self._names()}
        return Draws(posterior, dims, coords, each, targets, new)

    def _log_likelihood_at(self, z, noise, targets):
        """Return log-likelihoods (n_samples, n_rows) at predictors (..., 1)."""
        return self._family(self._of_fit).log_likelihood(z, targets)

    def _check_same(self, grouped):
        """Check that all batches of a stream have groups, or none has."""
        if grouped != self._grouped:
            raise ValueError(
                "groups must be there for all batches of a stream or for none: "
                f"{'the first had them' if self._grouped else 'the first had none'}."
            )

    def _refuse_groups(self, what):
        if self._grouped:
            raise AttributeError(
                f"{what} of {type(self).__name__} is not known for a fit with groups."
            )
