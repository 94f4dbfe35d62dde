"""What a fitted posterior of skills says of matches and items."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import ndtri
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.data import averaged, lazily
from skvrem.utils._base import summary_table
from skvrem.utils._columns import Given
from skvrem.utils._validation import check_options
from skvrem.vi.bradley_terry._input import open_labels, open_matches
from skvrem.vi.bradley_terry._model import outcomes, quadrature_for
from skvrem.vi.diagnostics._arviz import Draws
from skvrem.vi.gaussian._answers import tail_of

# Matches whose predictors' variances are taken at a time, and draws of ranks.
CHUNK, DRAWS = 4096, 256


class Interval(NamedTuple):
    """A quantity and where it lies.

    Attributes
    ----------
    mean : float or ndarray
        Posterior mean.
    lower, upper : float or ndarray
        Ends of the interval, with equal probability beyond each.
    """

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@lazily
def predict_proba(self, X: ArrayLike, method: str = "quadrature") -> np.ndarray:
    """Return the probabilities of the results of matches.

    Parameters
    ----------
    X : {array-like, dask array} of shape (n_matches, 2) or (n_matches, 3)
        Labels of the two items of each match, with as many columns as in `fit`.
    method : {"quadrature", "plugin"}, default="quadrature"
        Average over the posterior, so that little-known items are not judged with
        confidence; or take the posterior means for the skills.

    Returns
    -------
    probabilities : ndarray of shape (n_matches, n_classes)
        In the order of ``classes_``: the first item loses, ties, wins.

    Raises
    ------
    ValueError
        For labels that are missing, or unknown with ``handle_unknown="error"``.
    """
    check_is_fitted(self)
    check_options(self, handle_unknown=("prior", "error"))
    if method not in ("quadrature", "plugin"):
        raise ValueError(f"method must be 'quadrature' or 'plugin', got {method!r}.")
    return _outcomes(self, *open_labels(self, X, reset=False), method)


def _outcomes(self, labels, home, method="quadrature"):
    """Return the probabilities of the results of matches that have been opened."""
    codes = _known(self, labels, self.handle_unknown)
    mean, variance = differences(self, codes, home if self._offset else None)
    sd = np.sqrt(variance)
    rule = np.zeros(1), np.ones(1)
    if method == "quadrature":
        rule = quadrature_for(sd.max(initial=0.0))
    ties, eta = self._of_fit.ties, self._eta
    return sum(
        weight * outcomes(ties, mean + node * sd, eta)
        for node, weight in zip(*rule, strict=True)
    )


@lazily
def predict_log_proba(self, X: ArrayLike, method: str = "quadrature") -> np.ndarray:
    """Return the logarithms of the probabilities of the results of matches.

    Parameters
    ----------
    X : {array-like, dask array} of shape (n_matches, 2) or (n_matches, 3)
        Labels of the two items of each match, with as many columns as in `fit`.
    method : {"quadrature", "plugin"}, default="quadrature"
        As in `predict_proba`.

    Returns
    -------
    log_probabilities : ndarray of shape (n_matches, n_classes)
        In the order of ``classes_``.
    """
    with np.errstate(divide="ignore"):  # a probability of zero has one too
        return np.log(self.predict_proba(X, method))


@lazily
def predict(self, X: ArrayLike) -> np.ndarray:
    """Return the most probable result of matches.

    Parameters
    ----------
    X : {array-like, dask array} of shape (n_matches, 2) or (n_matches, 3)
        Labels of the two items of each match, with as many columns as in `fit`.

    Returns
    -------
    results : ndarray of shape (n_matches,)
        Elements of ``classes_``: 1 where the first item wins.
    """
    proba = self.predict_proba(X)
    return self.classes_[proba.argmax(axis=1)]


@averaged
def score(self, X: ArrayLike, y: Given = None, sample_weight: Given = None) -> float:
    """Return the mean log probability of results, in nats a match.

    Parameters
    ----------
    X : {array-like, dask array} of shape (n_matches, 2) or (n_matches, 3)
        Labels of the two items of each match, with as many columns as in `fit`.
    y : array-like of shape (n_matches,), default=None
        Results, as in `fit`.
    sample_weight : array-like of shape (n_matches,), default=None
        Matches count so many times.

    Returns
    -------
    score : float
        Averaged over the posterior; guessing scores log(1/2) without ties.
    """
    check_is_fitted(self)
    check_options(self, handle_unknown=("prior", "error"))
    *matches, result, weight = open_matches(
        self, X, y, sample_weight, self._of_fit.ties, reset=False
    )
    with np.errstate(divide="ignore"):
        log_p = np.log(_outcomes(self, *matches))
    each = _log_of_results(self, log_p, result)
    return float(np.average(each, weights=weight))


def _log_of_results(self, log_p, result):
    """Pick results (n,) from the log probabilities (..., n, n_classes) of all."""
    if self._of_fit.ties is None:
        return result * log_p[..., 1] + (1.0 - result) * log_p[..., 0]
    column = np.broadcast_to((2.0 * result).astype(int), log_p.shape[:-1])
    return np.take_along_axis(log_p, column[..., None], axis=-1)[..., 0]


def sample_predictive(
    self, X: ArrayLike, n_samples: int = 1, random_state: Any = None
) -> np.ndarray:
    """Draw new results of matches, by their chance and by the posterior.

    Parameters
    ----------
    X : {array-like, dask array} of shape (n_matches, 2) or (n_matches, 3)
        Labels of the two items of each match, with as many columns as in `fit`.
    n_samples : int, default=1
        Draws of each; a draw has the same skills for all matches.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.

    Returns
    -------
    results : ndarray of shape (n_samples, n_matches)
        Of ``classes_``.

    Raises
    ------
    ValueError
        As `predict_proba`.
    """
    check_is_fitted(self)
    rng = check_random_state(random_state)
    labels, home = open_labels(self, X, reset=False)
    codes = _known(self, labels, self.handle_unknown)
    theta = self.posterior_.sample(n_samples, rng)
    # Items that are known by the prior only, each with a skill of its own.
    unknown, number = np.unique(np.asarray(labels)[codes < 0], return_inverse=True)
    codes[codes < 0] = self.items_.size + number
    more = self.prior_scale_ * rng.standard_normal((n_samples, unknown.size))
    p = _outcomes_at(self, np.hstack([theta, more]), codes, home)
    return _drawn(self, p, rng)


def _outcomes_at(self, theta, codes, home):
    """Return the probabilities (s, n, n_classes) of results at draws (s, d)."""
    skills, (a, b) = theta[:, self._offset :], codes.T
    u = skills[:, a] - skills[:, b]
    if self._offset:
        u += theta[:, :1] * home
    return outcomes(self._of_fit.ties, u, self._eta)


def _drawn(self, p, rng):
    """Return results that are drawn with the probabilities (..., n_classes)."""
    ends = np.cumsum(p, axis=-1)[..., :-1]
    number = (rng.uniform(size=(*p.shape[:-1], 1)) > ends).sum(axis=-1)
    return self.classes_[number]


def draws(self, X, y, n_samples, rng):
    """See `ArviZMixin`."""
    ties = self._of_fit.ties
    labels, home, won, _ = open_matches(self, X, y, None, ties, reset=False)
    theta = self.posterior_.sample(n_samples, rng)
    p = _outcomes_at(self, theta, _known(self, labels), home)
    each, new = _log_of_results(self, np.log(p), won), _drawn(self, p, rng)
    skills = theta[:, self._offset :]
    posterior = {"skill": skills - skills.mean(axis=1, keepdims=True)}
    if self._offset:
        posterior["home_advantage"] = theta[:, 0]
    coords = {"item": list(map(str, self.items_))}
    return Draws(posterior, {"skill": ["item"]}, coords, each, won, new)


def differences(self, codes, home=None):
    """Return means and variances (n,) of differences of items (n, 2).

    With home (n,) times the advantage where it is given; -1 is the number of an
    item that is known by the prior only.
    """
    n, q, unknown = len(codes), self.posterior_, codes < 0
    # Columns and values of the rows of a design.
    columns = np.where(unknown, 0, codes + self._offset)
    values = np.where(unknown, 0.0, [1.0, -1.0])
    if home is not None:
        columns = np.column_stack([columns, np.zeros(n, int)])
        values = np.column_stack([values, home])
    rows = np.repeat(np.arange(n), columns.shape[1])
    X = sparse.csr_array((values.ravel(), (rows, columns.ravel())), (n, q.n_dim))
    variance = self.prior_scale_**2 * unknown.sum(axis=1)
    for start in range(0, n, CHUNK):
        some = slice(start, start + CHUNK)
        variance[some] += q.predictor_variance(X[some])
    return X @ q.mean, variance


def _known(self, labels, handle_unknown="error"):
    """Return the numbers of labels; -1 is an item that the prior stands for."""
    labels = _as_labels(labels, isinstance(self.items_[0], tuple))
    numbers = self._numbers_of(labels.ravel())
    unknown = labels.ravel()[numbers < 0]
    if handle_unknown == "error" and unknown.size:
        names = list(dict.fromkeys(unknown.tolist()))
        shown = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
        raise ValueError(f"{len(names)} items were not in the fit: {shown}.")
    return numbers.reshape(labels.shape)


def _as_labels(given, of_tuples):
    """Return a label or several as an array, in which a tuple may be one."""
    if not of_tuples or isinstance(given, np.ndarray):
        return np.asarray(given)
    if isinstance(given, tuple) and not any(isinstance(one, tuple) for one in given):
        labels = np.empty((), object)
        labels[()] = given
        return labels
    return np.fromiter(given, object, len(given))


def difference_interval(self, a: Any, b: Any, level: float = 0.95) -> Interval:
    """Return by how much items are better than others.

    Parameters
    ----------
    a, b : label or array-like of labels
        Items; arrays give one interval for each pair.
    level : float, default=0.95
        Probability of the interval.

    Returns
    -------
    interval : Interval
        Its mean, lower and upper end are those of skill a - skill b.

    Raises
    ------
    ValueError
        For an item that was not in the fit, or a level that is no probability.
    """
    check_is_fitted(self)
    z = -ndtri(tail_of(level))
    a, b = np.broadcast_arrays(_known(self, a), _known(self, b))
    mean, variance = differences(self, np.stack([a.ravel(), b.ravel()], axis=1))
    half = z * np.sqrt(variance)
    ends = (mean, mean - half, mean + half)
    return Interval(*(end.reshape(a.shape)[()] for end in ends))


def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> dict:
    """Draw skills from the posterior.

    Parameters
    ----------
    n_samples : int, default=1
        How many.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.

    Returns
    -------
    draws : dict of str to ndarray of shape (n_samples, ...)
        "skills" (n_items), of which each draw sums to zero.
    """
    check_is_fitted(self)
    rng = check_random_state(random_state)
    skills = self.posterior_.sample(n_samples, rng)[:, self._offset :]
    return {"skills": skills - skills.mean(axis=1, keepdims=True)}


def rank_probability(self, items=None, n_samples=10_000, random_state=None):
    """Return how probable it is that items have each rank among themselves.

    Parameters
    ----------
    items : array-like of labels, default=None
        Items to be ranked; None is all of them.
    n_samples : int, default=10_000
        Draws of the skills, so that probabilities have standard errors of 0.005 at
        most.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.

    Returns
    -------
    probabilities : ndarray of shape (n, n)
        A row an item, in the order given, and a column a rank, the best first.
    """
    check_is_fitted(self)
    numbers = np.arange(self.items_.size) if items is None else _known(self, items)
    q = self.posterior_.marginal(numbers.ravel() + self._offset)
    rng = check_random_state(random_state)
    counts = np.zeros((q.n_dim, q.n_dim))
    rows = np.arange(q.n_dim)
    for start in range(0, n_samples, DRAWS):
        skills = q.sample(min(DRAWS, n_samples - start), rng)
        for draw in np.argsort(-skills, axis=1, kind="stable"):
            counts[draw, rows] += 1.0
    return counts / n_samples


def ranking(self, level: float = 0.95, top: int | None = None) -> Any:
    """Return a table of the items, the best first.

    Parameters
    ----------
    level : float, default=0.95
        Probability of the intervals.
    top : int, default=None
        The first so many; None is all.

    Returns
    -------
    table : pandas.DataFrame, or str where pandas is not installed
        A row an item: rank, skill, its standard deviation and interval, matches.
        Skills sum to zero over all items. The frame's ``attrs`` hold what
        concerns the whole fit; the text ends with it.
    """
    check_is_fitted(self)
    return _table(self, np.argsort(-self.skill_, kind="stable")[:top], level)


def summary(self, level: float = 0.95) -> Any:
    """Return a table of the items, in the order of ``items_``.

    Parameters
    ----------
    level : float, default=0.95
        Probability of the intervals.

    Returns
    -------
    table : pandas.DataFrame, or str where pandas is not installed
        As `ranking`.
    """
    check_is_fitted(self)
    return _table(self, np.arange(self.items_.size), level)


def _table(self, order, level):
    tail, best_first = tail_of(level), np.argsort(-self.skill_, kind="stable")
    skill, sd = self.skill_[order], self.skill_std_[order]
    half, tail = -ndtri(tail) * sd, 100.0 * tail
    columns = {
        "rank": np.argsort(best_first)[order] + 1,
        "skill": skill,
        "sd": sd,
        f"{tail:g} %": skill - half,
        f"{100.0 - tail:g} %": skill + half,
        "matches": self.n_matches_[order],
    }
    facts = {"elbo": self.elbo_} if hasattr(self, "elbo_") else {}
    facts["converged"] = self.converged_
    facts["posterior"] = type(self.posterior_).__name__
    if facts["posterior"] == "MeanField":
        facts["note"] = "standard deviations of independent skills are too small"
    if self._offset:
        facts["home advantage"] = self.home_advantage_
        facts["its sd"] = self.home_advantage_std_
    if self._of_fit.ties is not None:
        facts["tie parameter"] = self.tie_parameter_
    return summary_table(columns, list(map(str, self.items_[order])), facts)
