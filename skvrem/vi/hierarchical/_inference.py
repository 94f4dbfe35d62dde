"""What a fitted posterior says of rows, groups and their population."""

from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from skvrem.data import as_source, averaged, lazily
from skvrem.utils._base import summary_table
from skvrem.utils._classes import check_known
from skvrem.utils._validation import as_generator
from skvrem.vi.diagnostics._arviz import Draws
from skvrem.vi.gaussian._answers import (
    check_method,
    in_chunks,
    interval_columns,
    noisy_predictors,
)
from skvrem.vi.gaussian._model_families import Softmax, expected_probabilities
from skvrem.vi.gaussian.nested._input import check_kind, number_groups, open_groups
from skvrem.vi.hierarchical._units import columns_of

# What is known of the evidence of all rows.
EVIDENCE = "log_marginal_likelihood_", "elbo_"
# Draws of the predictors for method="mc".
DRAWS = 1000


def open_fitted(self, X, y, groups):
    """Return rows, targets, and numbers of groups, -1 for those of none."""
    column = self._of_fit.groups
    rows, y, ids = open_groups(self, X, y, groups, column, reset=False)
    if ids is None:
        return rows, y, np.full(len(rows), 0 if len(self.groups_) == 1 else -1)
    if not self._alone:
        check_kind(ids, self.groups_)
    return rows, y, number_groups(ids, self.groups_)


def _within(self, rows):
    """Return rows in the units of the fit."""
    return rows if self._units is None else self._units(rows)


@lazily
def predict_proba(self, X, groups=None, method="quadrature"):
    """Return the probabilities of the classes, averaged over the posterior.

    Parameters
    ----------
    X : {array-like, dask array} of shape (n_samples, n_features)
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
    check_method(method)
    rows, _, group = open_fitted(self, X, None, groups)
    data = as_source(_within(self, rows))
    predictors, k = self.posterior_.predictor(), len(self.classes_)
    noise = np.random.default_rng(0).standard_normal((DRAWS, k))

    def evaluate(chunk):
        where = slice(*chunk)
        a, spread = predictors(data.batch(*chunk), group[where])
        if method == "quadrature":
            return expected_probabilities(Softmax(k), a, spread)
        out = softmax(a, axis=1)
        if method == "mc":
            for some, z in noisy_predictors(a, spread, noise):
                out[some] = softmax(z, axis=2).mean(1)
        return out

    return in_chunks(self, evaluate, data.n_units)


@averaged
def score(self, X, y, groups=None, sample_weight=None):
    """Return the share of rows whose class is the most probable one.

    Parameters
    ----------
    X : {array-like, dask array} of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Their classes. One that was not in the fit is never right.
    groups : array-like of shape (n_samples,), default=None
        As in `predict_proba`.
    sample_weight : array-like of shape (n_samples,), default=None
        Rows count so many times.

    Returns
    -------
    accuracy : float
        Between 0 and 1.
    """
    check_is_fitted(self)
    return accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight)


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
        numbers = number_groups(np.asarray(groups), self.groups_)
        if (numbers < 0).any():
            unknown = np.asarray(groups)[numbers < 0].tolist()
            raise ValueError(f"Groups that were not in the fit: {unknown[:5]}.")
        q = q.among(numbers)
    means, scales, draws = q.sample(n_samples, as_generator(random_state))
    coef, intercept = columns_of(draws, self._of_fit)
    found = {
        "group_coef": coef,
        "group_intercept": intercept,
        "population_mean": columns_of(means, self._of_fit)[0],
        "population_scale": columns_of(scales, self._of_fit)[0],
    }
    if self._units is not None:
        found |= self._units.of_draws(found, draws, self._of_fit.fit_intercept)
    return found


def sample_predictive(self, X, n_samples=1, groups=None, random_state=None):
    """Draw new labels of rows, their chance and the posterior's.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Rows.
    n_samples : int, default=1
        Draws of each; a draw has the same coefficients for all rows of a group.
    groups : array-like of shape (n_rows,), default=None
        As in `predict_proba`; rows of groups that were not in the fit are of one
        new group, drawn from the population.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.

    Returns
    -------
    labels : ndarray of shape (n_samples, n_rows)
        Of ``classes_``.
    """
    check_is_fitted(self)
    rows, _, group = open_fitted(self, X, None, groups)
    rng = as_generator(random_state)
    known, place = np.unique(group, return_inverse=True)
    means, scales, draws = self.posterior_.among(known).sample(n_samples, rng)
    if known[0] < 0:
        noise = rng.standard_normal(means.shape)
        draws[:, 0] = means + scales * noise
    coef, intercept = columns_of(draws, self._of_fit)
    family = Softmax(len(self.classes_))
    labels = np.empty((n_samples, len(rows)), np.int64)
    rows = _within(self, rows)
    for own, constant, out in zip(coef, intercept, labels, strict=True):
        z = np.einsum("nj,nkj->nk", rows, own[place]) + constant[place]
        out[:] = family.draw(z, rng)
    return self.classes_[labels]


def draws(self, X, y, n_samples, rng):
    """See `ArviZMixin`."""
    given = self._of_fit
    rows, y, group = open_fitted(self, X, y, None)
    check_known(y, self.classes_)
    number = np.searchsorted(self.classes_, y)
    if (group < 0).any():
        raise ValueError(
            "to_arviz needs rows of groups that were in the fit, named by a column "
            "of X that the constructor's groups names."
        )
    draws = self.sample_posterior(n_samples, random_state=rng)
    each, family = np.empty((n_samples, len(rows))), Softmax(len(self.classes_))
    of_groups, new = (draws["group_coef"], draws["group_intercept"]), each.copy()
    for coef, intercept, out, one in zip(*of_groups, each, new, strict=True):
        z = np.einsum("nj,nkj->nk", rows, coef[group]) + intercept[group]
        out[:] = family.log_likelihood(z, number)
        one[:] = family.draw(z, rng)
    names, axes = self._feature_names(), ["class", "feature"]
    if not given.fit_intercept:
        del draws["group_intercept"]
    dims = {
        "group_coef": ["group", "class", "feature"],
        "group_intercept": ["group", "class"],
        **dict.fromkeys(("population_mean", "population_scale"), axes),
    }
    coords = {
        "group": self.groups_.tolist(),
        "class": [f"{label}" for label in self.classes_],
        "feature": names,
    }
    return Draws(draws, dims, coords, each, number, new)


def summary(self) -> Any:
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
    names, parts = self._feature_names(), []
    for name in ("mean", "mean_std", "scale"):
        part = getattr(self, f"population_{name}_")
        if self._of_fit.fit_intercept:
            own = getattr(self, f"population_intercept_{name}_")
            part = np.column_stack([part, own])
        parts.append(part.ravel())
    if self._of_fit.fit_intercept:
        names = [*names, "intercept"]
    columns = interval_columns(*parts[:2])
    columns["scale of groups"] = parts[2]
    index = [f"{label}, {name}" for label in self.classes_ for name in names]
    facts = {
        "groups": len(self.groups_),
        **{name[:-1]: vars(self)[name] for name in EVIDENCE if name in vars(self)},
        "passes": float(self.history_["passes"][-1]),
        "converged": self.converged_,
    }
    return summary_table(columns, index, facts)
