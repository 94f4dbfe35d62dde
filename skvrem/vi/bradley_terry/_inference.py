"""What fitted skills say: of matches, of differences and of ranks."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit, ndtri
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import summary_table
from skvrem.utils._parallel import threads
from skvrem.utils._validation import check_options
from skvrem.vi.bradley_terry._input import open_labels, open_matches
from skvrem.vi.bradley_terry._model import PairsModel, rule_for
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws
from skvrem.vi.diagnostics._pareto import ParetoMixin

__all__ = ["Interval", "PairsInference"]

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


class PairsInference(ParetoMixin, ArviZMixin):
    """Methods of `BradleyTerry` that use fitted attributes only."""

    # Matches

    def predict_proba(self, X, method="quadrature"):
        """Return the probabilities of the results of matches.

        Parameters
        ----------
        X : array-like of shape (n_matches, 2)
            Labels of the two items of each match.
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
        if method not in ("quadrature", "plugin"):
            raise ValueError(
                f"method must be 'quadrature' or 'plugin', got {method!r}."
            )
        mean, variance = self._predictors(open_labels(self, X, reset=False))
        if method == "plugin":
            return self._outcomes(mean)
        sd = np.sqrt(variance)
        nodes, weights = rule_for(sd.max(initial=0.0))
        total = 0.0
        for node, weight in zip(nodes, weights, strict=True):
            total = total + weight * self._outcomes(mean + node * sd)
        return total

    def predict_log_proba(self, X, method="quadrature"):
        """Return the logarithms of the probabilities of the results of matches.

        Parameters
        ----------
        X : array-like of shape (n_matches, 2)
            Labels of the two items of each match.
        method : {"quadrature", "plugin"}, default="quadrature"
            As in `predict_proba`.

        Returns
        -------
        log_probabilities : ndarray of shape (n_matches, n_classes)
            In the order of ``classes_``.
        """
        with np.errstate(divide="ignore"):  # a probability of zero has one too
            return np.log(self.predict_proba(X, method))

    def predict(self, X):
        """Return the most probable result of matches.

        Parameters
        ----------
        X : array-like of shape (n_matches, 2)
            Labels of the two items of each match.

        Returns
        -------
        results : ndarray of shape (n_matches,)
            Elements of ``classes_``: 1 where the first item wins.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def score(self, X, y=None, sample_weight=None):
        """Return the mean log probability of results, in nats a match.

        Parameters
        ----------
        X : array-like of shape (n_matches, 2)
            Labels of the two items of each match.
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
        ties = self._of_fit.ties
        labels, result, weight = open_matches(
            self, X, y, sample_weight, ties, reset=False
        )
        log_p = self.predict_log_proba(labels)
        if ties is None:
            each = result * log_p[:, 1] + (1.0 - result) * log_p[:, 0]
        else:
            each = np.take_along_axis(log_p, (2.0 * result).astype(int)[:, None], 1)
        return float(np.average(each.ravel(), weights=weight))

    def _draws(self, X, y, n_samples, rng):
        """See `ArviZMixin`."""
        ties = self._of_fit.ties
        labels, won, _ = open_matches(self, X, y, None, ties, reset=False)
        theta = self.posterior_.sample(n_samples, rng)
        skills = theta[:, self._offset :]
        a, b = self._known(labels).T
        u = skills[:, a] - skills[:, b]
        if self._offset:
            u += theta[:, :1]
        log_p = np.log(self._outcomes(u.ravel())).reshape(*u.shape, -1)
        if ties is None:
            each = won * log_p[..., 1] + (1.0 - won) * log_p[..., 0]
        else:
            column = np.broadcast_to((2.0 * won).astype(int), u.shape)[..., None]
            each = np.take_along_axis(log_p, column, axis=-1)[..., 0]
        posterior = {"skill": skills - skills.mean(axis=1, keepdims=True)}
        if self._offset:
            posterior["home_advantage"] = theta[:, 0]
        coords = {"item": list(map(str, self.items_))}
        return Draws(posterior, {"skill": ["item"]}, coords, each, won)

    def _outcomes(self, u):
        """Probabilities (n, n_classes) for known predictors."""
        ties = self._of_fit.ties
        if ties is None:
            return np.stack([expit(-u), expit(u)], axis=1)
        if ties == "rao-kupper":
            t = 0.5 * np.logaddexp(0.0, self._eta)
            win, loss = expit(u - t), expit(-u - t)
            tie = np.exp(self._eta) * win * loss
            return np.stack([loss, tie, win], axis=1)
        logits = np.stack([-0.5 * u, np.full_like(u, self._eta), 0.5 * u], axis=1)
        logits -= logits.max(axis=1, keepdims=True)
        found = np.exp(logits)
        return found / found.sum(axis=1, keepdims=True)

    def _predictors(self, labels):
        """Return means and variances (n,) of the predictors of matches."""
        codes = self._numbers_of(labels.ravel()).reshape(labels.shape)
        unknown = codes < 0
        check_options(self, handle_unknown=("prior", "error"))
        if self.handle_unknown == "error" and unknown.any():
            raise ValueError(self._unknown(labels[unknown]))
        n, q = len(codes), self.posterior_
        values = np.where(unknown, 0.0, [1.0, -1.0])
        columns = np.where(unknown, 0, codes + self._offset)
        if self._offset:
            values = np.column_stack([values, np.ones(n)])
            columns = np.column_stack([columns, np.zeros(n, columns.dtype)])
        rows = np.repeat(np.arange(n), columns.shape[1])
        X = sparse.csr_array(
            (values.ravel(), (rows, columns.ravel())), shape=(n, q.n_dim)
        )
        variance = [
            q.predictor_variance(X[start : start + CHUNK])
            for start in range(0, n, CHUNK)
        ]
        prior = unknown.sum(axis=1) * self._of_fit.prior_scale**2
        return X @ q.mean, np.concatenate(variance) + prior

    def _numbers_of(self, labels):
        """Return the numbers of labels, -1 for those that are unknown."""
        numbers = {item: number for number, item in enumerate(self.items_.tolist())}
        return np.array([numbers.get(label, -1) for label in labels.tolist()], int)

    def _known(self, labels):
        labels = np.asarray(labels)
        numbers = self._numbers_of(labels.ravel())
        if (numbers < 0).any():
            raise ValueError(self._unknown(labels.ravel()[numbers < 0]))
        return numbers.reshape(labels.shape)

    def _unknown(self, labels):
        names = list(dict.fromkeys(labels.tolist()))
        shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        return f"{len(names)} items were not in the fit: {shown}."

    # Skills

    def difference_interval(self, a, b, level=0.95):
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
        z = _half_width(level)
        a, b = np.broadcast_arrays(self._known(a), self._known(b))
        q = self.posterior_
        pair = np.stack([a.ravel(), b.ravel()], axis=1) + self._offset
        rows = np.repeat(np.arange(len(pair)), 2)
        values = np.tile([1.0, -1.0], len(pair))
        X = sparse.csr_array((values, (rows, pair.ravel())), (len(pair), q.n_dim))
        mean, sd = X @ q.mean, np.sqrt(q.predictor_variance(X))
        ends = (mean, mean - z * sd, mean + z * sd)
        return Interval(*(end.reshape(a.shape)[()] for end in ends))

    def sample_posterior(self, n_samples=1, random_state=None):
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

    def _log_joint(self, draws):
        """See `ParetoMixin`. The tie parameter is known."""
        pairs, prior = self._rows
        model = PairsModel(pairs, prior, "meanfield", self._of_fit.ties)
        with threads(self.n_jobs):
            each = [model.log_likelihood(theta, self._eta) for theta in draws]
        return np.array(each) + prior.logpdf(draws)

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
        numbers = np.arange(self.items_.size) if items is None else self._known(items)
        q = self.posterior_.marginal(numbers.ravel() + self._offset)
        rng = check_random_state(random_state)
        counts = np.zeros((q.n_dim, q.n_dim))
        rows = np.arange(q.n_dim)
        for start in range(0, n_samples, DRAWS):
            skills = q.sample(min(DRAWS, n_samples - start), rng)
            for draw in np.argsort(-skills, axis=1, kind="stable"):
                counts[draw, rows] += 1.0
        return counts / n_samples

    def ranking(self, level=0.95, top=None):
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
        order = np.argsort(-self.skill_, kind="stable")[:top]
        return self._table(order, np.arange(1, order.size + 1), level)

    def summary(self, level=0.95):
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
        order = np.arange(self.items_.size)
        rank = np.empty(order.size, int)
        rank[np.argsort(-self.skill_, kind="stable")] = order + 1
        return self._table(order, rank, level)

    def _table(self, order, rank, level):
        z = _half_width(level)
        skill, sd = self.skill_[order], self.skill_std_[order]
        tail = 50.0 * (1.0 - level)
        columns = {
            "rank": rank,
            "skill": skill,
            "sd": sd,
            f"{tail:g} %": skill - z * sd,
            f"{100.0 - tail:g} %": skill + z * sd,
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


def _half_width(level):
    if not 0.0 < level < 1.0:
        raise ValueError(
            f"level must be a probability, above 0 and below 1: {level!r}."
        )
    return ndtri(0.5 + 0.5 * level)
