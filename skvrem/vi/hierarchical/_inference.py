"""What coefficients by group say of rows, and of groups and population."""

import numpy as np
from scipy.special import softmax
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.data import as_source
from skvrem.utils._base import summary_table
from skvrem.utils._classes import check_known
from skvrem.utils._columns import column_number
from skvrem.utils._parallel import parallel_map, row_chunks, threads
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws, feature_names
from skvrem.vi.gaussian._guards import check_in_memory
from skvrem.vi.gaussian._model_families import Softmax, expected_probabilities
from skvrem.vi.hierarchical._input import check_kind, number_groups, open_groups
from skvrem.vi.hierarchical._model import predictors

__all__ = ["GroupsInference"]

# Rows a task of a prediction, and draws of the predictors for method="mc".
PREDICT_ROWS, DRAWS = 4096, 1000
# Numbers of a block of draws.
BLOCK = 4_000_000


class GroupsInference(ArviZMixin):
    """Methods that use fitted attributes only."""

    #: Whether the fit had no groups; not before a fit, nor in older pickles.
    _alone = False

    # Rows

    def predict_proba(self, X, groups=None, method="quadrature"):
        """Return the probabilities of the classes, averaged over the posterior.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,), default=None
            Ids of their groups. A group that was not in the fit has the coefficients
            that the population lets expect; so have all rows without `groups`, unless
            the fit was without.
        method : {"quadrature", "mc", "plugin"}, default="quadrature"
            "quadrature" integrates over the Gaussian logits of a row, "mc" averages
            over 1,000 draws of them, "plugin" takes their mean alone, and so is too
            sure.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        if method not in ("quadrature", "mc", "plugin"):
            raise ValueError(
                f"method must be 'quadrature', 'mc' or 'plugin', got {method!r}."
            )
        data, group = self._open_fitted(X, groups)
        mean, variance = self._with_population()
        family = Softmax(len(self.classes_), 0)
        noise = np.random.default_rng(0).standard_normal((DRAWS, len(self.classes_)))

        def evaluate(chunk):
            where = slice(*chunk)
            a, spread = predictors(mean, variance, data.batch(*chunk), group[where])
            if method == "mc":
                return _averaged(a, spread, noise)
            if method == "plugin":
                return softmax(a, axis=1)
            return expected_probabilities(family, a, spread)

        with threads(self.n_jobs):
            chunks = row_chunks(0, data.n_units, PREDICT_ROWS)
            return np.concatenate(list(parallel_map(evaluate, chunks)))

    def predict_log_proba(self, X, groups=None):
        """Return the logarithms of the probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,), default=None
            As in `predict_proba`.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, groups))

    def predict(self, X, groups=None):
        """Return the most probable class of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,), default=None
            As in `predict_proba`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X, groups).argmax(axis=1)]

    def score(self, X, y, groups=None, sample_weight=None):
        """Return the share of rows whose class is the most probable one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        groups : array-like of shape (n_samples,), default=None
            As in `predict_proba`.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        accuracy : float
            Between 0 and 1.

        Raises
        ------
        ValueError
            If y has a class that was not in the fit.
        """
        check_is_fitted(self)
        check_in_memory(y=y, sample_weight=sample_weight)
        check_known(y, self.classes_)
        return accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight)

    def _open_fitted(self, X, groups):
        """Return rows as a source, and numbers of groups in `_with_population`."""
        column = self._of_fit.groups
        rows, _, ids = open_groups(self, X, None, groups, column, reset=False)
        group = np.full(len(rows), len(self.groups_))
        if ids is not None:
            if not self._alone:
                check_kind(ids, self.groups_)
            group = number_groups(ids, self.groups_, len(self.groups_))
        elif len(self.groups_) == 1:
            group = np.zeros(len(rows), np.int64)
        return as_source(rows, dask=False), group

    def _with_population(self):
        """Return means and variances of groups and, behind them, of a new one."""
        q = self.posterior_
        mean = np.concatenate([q.group_mean, q.mean[None]])
        return mean, np.concatenate([q.group_variance, q.new_variance[None]])

    def _feature_names(self, given=None):
        """Names of the features, without the column of ids."""
        names = feature_names(self)
        column = (given or self._of_fit).groups
        if column is not None:
            del names[column_number(column, "groups", names, len(names))]
        return names

    def _numbers_of(self, labels):
        """Return the numbers of groups, -1 for those that are unknown."""
        return number_groups(np.asarray(labels), self.groups_, -1)

    # Groups and population

    def sample_posterior(self, n_samples=1, groups=None, random_state=None):
        """Draw coefficients from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            How many draws.
        groups : array-like of ids, default=None
            Groups to be drawn; None is all of them.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        draws : dict of str to ndarray of shape (n_samples, ...)
            "group_coef" (n_groups, n_classes, n_features), "group_intercept"
            (n_groups, n_classes; zero without one), "population_mean" and
            "population_scale" (n_classes, n_features), behind the axis of draws.

        Raises
        ------
        ValueError
            For a group that was not in the fit.
        """
        check_is_fitted(self)
        q = self.posterior_
        if groups is not None:
            numbers = self._numbers_of(groups)
            if (numbers < 0).any():
                unknown = np.asarray(groups)[numbers < 0].tolist()
                raise ValueError(f"Groups that were not in the fit: {unknown[:5]}.")
            q = q._replace(
                group_mean=q.group_mean[numbers],
                group_log_scale=q.group_log_scale[numbers],
            )
        seed = check_random_state(random_state).randint(2**31 - 1)
        means, scales, draws = q.sample(n_samples, np.random.default_rng(seed))
        with_intercept = self._of_fit.fit_intercept
        d = q.mean.shape[0] - with_intercept
        intercept = draws[..., d, :] if with_intercept else 0.0 * draws[..., 0, :]
        of_features = (
            np.swapaxes(a[..., :d, :], -1, -2) for a in (draws, means, scales)
        )
        coef, means, scales = of_features
        return {
            "group_coef": coef,
            "group_intercept": intercept,
            "population_mean": means,
            "population_scale": scales,
        }

    def _draws(self, X, y, n_samples, rng):
        """See `ArviZMixin`."""
        given = self._of_fit
        rows, y, ids = open_groups(self, X, y, None, given.groups, reset=False)
        check_known(y, self.classes_)
        number = np.searchsorted(self.classes_, y)
        group = np.zeros(len(rows), np.int64) if ids is None else self._numbers_of(ids)
        if (group < 0).any() or (ids is None and len(self.groups_) > 1):
            raise ValueError(
                "to_arviz needs rows of groups that were in the fit, named by a column "
                "of X that the constructor's groups names."
            )
        draws = self.sample_posterior(n_samples, random_state=rng)
        each = np.empty((n_samples, len(rows)))
        for number_of, out in enumerate(each):
            z = np.einsum("nj,nkj->nk", rows, draws["group_coef"][number_of][group])
            z += draws["group_intercept"][number_of][group]
            out[:] = Softmax(len(self.classes_), 0).log_likelihood(z, number)
        names = self._feature_names()
        if not given.fit_intercept:
            del draws["group_intercept"]
        dims = {
            "group_coef": ["group", "class", "feature"],
            "group_intercept": ["group", "class"],
            "population_mean": ["class", "feature"],
            "population_scale": ["class", "feature"],
        }
        coords = {
            "group": self.groups_.tolist(),
            "class": [f"{label}" for label in self.classes_],
            "feature": names,
        }
        return Draws(draws, dims, coords, each, number)

    def summary(self):
        """Return a table of the population.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a class and feature (or the intercept): mean of the population with
            its posterior's standard deviation and 95 % interval, and how far groups
            spread about it. The frame's ``attrs`` hold the number of groups, the
            evidence lower bound, passes and convergence; the text ends with them.
        """
        check_is_fitted(self)
        q = self.posterior_
        names = self._feature_names()
        if self._of_fit.fit_intercept:
            names = [*names, "intercept"]
        mean, sd = q.mean.T.ravel(), np.exp(q.log_scale).T.ravel()
        columns = {
            "mean": mean,
            "sd": sd,
            "2.5 %": mean - 1.959964 * sd,
            "97.5 %": mean + 1.959964 * sd,
            "scale of groups": np.exp(q.log_tau).T.ravel(),
        }
        index = [f"{label}, {name}" for label in self.classes_ for name in names]
        facts = {
            "groups": len(self.groups_),
            **({"elbo": self.elbo_} if hasattr(self, "elbo_") else {}),
            "passes": float(self.history_["passes"][-1]),
            "converged": self.converged_,
        }
        return summary_table(columns, index, facts)


def _averaged(a, spread, noise):
    """Return probabilities averaged over draws of independent logits."""
    m, k = a.shape
    out = np.empty((m, k))
    size = max(1, BLOCK // (len(noise) * k))
    for start in range(0, m, size):
        some = slice(start, start + size)
        out[some] = softmax(a[some, None] + spread[some, None] * noise, axis=2).mean(1)
    return out
