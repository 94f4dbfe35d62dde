"""What the posterior of a generalised linear model says: draws, predictors, a table."""

from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.data import as_source
from skvrem.utils._base import summary_table
from skvrem.utils._parallel import one_blas_thread, row_chunks, threads
from skvrem.utils._validation import as_generator
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws
from skvrem.vi.diagnostics._pareto import ParetoMixin
from skvrem.vi.diagnostics._variance import ESTIMATORS, decompose
from skvrem.vi.gaussian._answers import PREDICT_ROWS, in_chunks, interval_columns
from skvrem.vi.gaussian._guards import checked
from skvrem.vi.gaussian._model import GaussianModel, structure_of

# Draws of coefficients at once, for the shape of the importance weights.
DRAWS_AT_ONCE = 50


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


class PosteriorAnswers(ParetoMixin, ArviZMixin):
    """What an estimator answers by the posterior of its coefficients.

    With groups these are the answers of :class:`ByGroup`. A class that inherits this
    has ``posterior_``, what `_open` and `_family` of :class:`GaussianPosterior` return,
    and ``_columns(vectors, k, given)``, numbers by feature and those of intercepts.
    """

    @property
    def _given_prior(self):
        """See `ParetoMixin`; older pickles and fits with groups have but one."""
        return vars(self).get("_posterior_given_prior", self.posterior_)

    def _scale_and_df(self, whole, given_prior):
        """Return what scales coefficients, and degrees of freedom of Student's t.

        Of a posterior, and the same given its prior.
        """
        return whole.scale, np.inf  # a normal's, as of a known dispersion

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
        offset=None,
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
        offset : array-like of shape (n_samples,), default=None
            Added to the predictors, as in `fit` of counts and numbers.
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
        if offset is not None and not hasattr(self, "family"):
            raise ValueError("offset is for counts and numbers: classes have none.")
        more = {} if offset is None else {"offset": offset}
        data, targets, _ = self._open_fitted(X, y, sample_weight, **more)
        given = self._of_fit
        if self._family(given).code is None:
            raise ValueError(f"family={given.family!r} has no stochastic gradients.")
        if not isinstance(data.rows, np.ndarray):
            raise ValueError("gradient_variance needs dense rows: pass X.toarray().")
        rows = np.asarray(data.rows, np.float64)
        if given.fit_intercept:
            rows = np.column_stack([rows, np.ones(len(rows))])
        q, k = self._given_prior, self._n_predictors
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
        scale, df = self._scale_and_df(q, self._given_prior)
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
