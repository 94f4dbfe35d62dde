"""Skills from matches: the scikit-learn shell of the Bradley-Terry model."""

import time
import warnings
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from skvrem import schedules, solvers
from skvrem.utils._base import VersionedPickle
from skvrem.utils._parallel import threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    check_integer,
    check_options,
    check_real,
)
from skvrem.vi.bradley_terry._inference import PairsInference
from skvrem.vi.bradley_terry._input import aggregate, count_groups, open_matches
from skvrem.vi.bradley_terry._model import PairsModel
from skvrem.vi.gaussian._guards import (
    StreamsWithoutBound,
    check_scales,
    check_unchanged,
    whole_fit,
)
from skvrem.vi.gaussian._model_posterior import MeanField

__all__ = ["BradleyTerry"]

# posterior="auto" keeps the whole covariance of so many parameters.
MOST_FULL = 1000
ADVICE = "Give sample_weight or prior_scale on a smaller scale."
# Where the fit of independent skills, at which the others start, ends, in nats.
ROUGH = 1.0


class BradleyTerry(
    StreamsWithoutBound,
    PairsInference,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""Skills of players, teams or products from matches of two, with uncertainty.

    Item a beats item b with probability
    :math:`1 / (1 + \exp(\theta_b - \theta_a))` [1]_; skills have the prior
    :math:`N(0, \mathrm{prior\_scale}^2)`, and the posterior is a Gaussian found by
    variational inference on an exact, noise-free bound: there is no step size, and a
    fit says when it has converged. A pass costs a few operations a pair that met.

    Parameters
    ----------
    prior_scale : float, default=1.0
        Standard deviation of skills before any match, and of the advantage of
        `home_advantage`.
    ties : {None, "davidson", "rao-kupper"}, default=None
        How matches without a winner, y = 0.5, come about. None: half a win for each
        side, and they are never predicted. "davidson" [2]_ and "rao-kupper" [3]_ give
        them a probability, with one more parameter, ``tie_parameter_``.
    home_advantage : bool, default=False
        The first item of every row has an advantage of one size, ``home_advantage_``.
    posterior : {"auto", "fullrank", "lowrank", "meanfield"}, default="auto"
        What is kept of the covariance of the skills: all of it, a diagonal and a low
        rank, or a diagonal. "auto" is "fullrank" up to 1,000 parameters, then
        "lowrank". "meanfield" takes skills for independent: their standard deviations
        are too small, and those of differences can be wrong either way.
    rank : int, default=20
        Of "lowrank".
    handle_unknown : {"prior", "error"}, default="prior"
        What a prediction makes of an item that was not in the fit: a skill that is
        known by the prior only, or an error that names it.
    max_iter : int, default=100
        Steps, each a pass over the pairs.
    tol : float, default=1e-4
        Converged when less is left to gain, in nats of the bound ``elbo_``.
    n_jobs : int or None, default=None
        Threads; None is all cores, and one inside a joblib or dask worker. Results do
        not depend on it.
    verbose : int, default=0
        1: a progress bar, or a line every `verbose_interval` steps; 2: every step.
    verbose_interval : int, default=10
        Steps between two lines.

    Attributes
    ----------
    items_ : ndarray of shape (n_items,)
        Labels of the items.
    skill_, skill_std_ : ndarray of shape (n_items,)
        Posterior means and standard deviations of the skills, in the order of
        ``items_``. Skills sum to zero: only their differences bear on matches.
    n_matches_ : ndarray of shape (n_items,)
        Matches of each item, by weight.
    home_advantage_, home_advantage_std_ : float
        With `home_advantage`.
    tie_parameter_ : float
        With `ties`: Davidson's :math:`\nu` or Rao and Kupper's :math:`\theta`. The
        value of the highest bound: it has no posterior.
    classes_ : ndarray of shape (2,) or (3,)
        Results, in the order of the columns of `predict_proba`: 0, 0.5 with `ties`, 1.
    posterior_ : Gaussian
        Of the parameters before they are made to sum to zero: the advantage, where
        there is one, and the skills. ``mean``, ``scale``, ``sample``, ``logpdf``.
    elbo_ : float
        Lower bound of the log evidence, in nats. A stream has none.
    pareto_k_ : float
        Below 0.7 the posterior is near the exact one, given the tie parameter; computed
        when asked for, from the matches of the last fit.
    n_iter_ : int
        Steps of the last fit.
    converged_ : bool
    history_ : dict of ndarray
        passes, seconds, objective (the bound), step_size, temperature and
        predicted_gain by step.
    n_features_in_ : int
        2.
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    skvrem.SBMLogisticRegression : Matches of more than skills, as rows of features.

    References
    ----------
    .. [1] Bradley, Terry (1952). Rank analysis of incomplete block designs: I. The
       method of paired comparisons. Biometrika 39.
    .. [2] Davidson (1970). On extending the Bradley-Terry model to accommodate ties in
       paired comparison experiments. Journal of the American Statistical Association
       65.
    .. [3] Rao, Kupper (1967). Ties in paired-comparison experiments. Journal of the
       American Statistical Association 62.

    Examples
    --------
    >>> from skvrem import BradleyTerry
    >>> won = [("Ann", "Bo"), ("Ann", "Cy"), ("Bo", "Cy"), ("Cy", "Bo"), ("Ann", "Bo")]
    >>> model = BradleyTerry().fit(won)
    >>> model.items_
    array(['Ann', 'Bo', 'Cy'], dtype='<U3')
    >>> model.skill_.round(2), model.skill_std_.round(2)
    (array([ 0.8 , -0.46, -0.34]), array([0.62, 0.56, 0.6 ]))
    >>> model.predict_proba([("Ann", "Cy")]).round(2)
    array([[0.28, 0.72]])
    """

    def __init__(
        self,
        prior_scale: float = 1.0,
        *,
        ties: Literal["davidson", "rao-kupper"] | None = None,
        home_advantage: bool = False,
        posterior: Literal["auto", "fullrank", "lowrank", "meanfield"] = "auto",
        rank: int = 20,
        handle_unknown: Literal["prior", "error"] = "prior",
        max_iter: int = 100,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.prior_scale = prior_scale
        self.ties = ties
        self.home_advantage = home_advantage
        self.posterior = posterior
        self.rank = rank
        self.handle_unknown = handle_unknown
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Two columns of labels: rows of numbers, as most estimators take, they are not.
        tags.input_tags.two_d_array = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _check_parameters(self):
        check_scales(self, "prior_scale")
        check_real(self, "tol")
        check_integer(self, "max_iter", "verbose")
        check_integer(self, "rank", "verbose_interval", least=1)
        check_options(
            self,
            ties=(None, "davidson", "rao-kupper"),
            home_advantage=(False, True),
            posterior=("auto", "fullrank", "lowrank", "meanfield"),
            handle_unknown=("prior", "error"),
        )

    # Fits

    def fit(self, X, y=None, sample_weight=None):
        """Fit the skills.

        Parameters
        ----------
        X : array-like of shape (n_matches, 2)
            Labels of the two items of each match: strings, integers or other things
            that can be sorted.
        y : array-like of shape (n_matches,), default=None
            1 where the first item won, 0 where it lost, 0.5 for a tie; without `ties`
            any share of a win. None: the first item won every match.
        sample_weight : array-like of shape (n_matches,), default=None
            Matches count so many times.

        Returns
        -------
        self : BradleyTerry
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, a missing label, an item that meets itself, a
            result out of range, or `ties` where there is none, or nothing else. The
            estimator is then as it was before.

        Warns
        -----
        UserWarning
            If the items fall into groups that never meet.
        ConvergenceWarning
            If `max_iter` steps were not enough.
        """
        with whole_fit(self, ADVICE), threads(self.n_jobs):
            self._check_parameters()
            for name in (
                "items_",
                "posterior_",
                "n_matches_",
                "_eta",
                "_eta_precision",
            ):
                vars(self).pop(name, None)
            self._fit(X, y, sample_weight)
        return self

    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the skills with further matches, the posterior as their prior.

        Items may be new. Skills do not change with time: matches of long ago count as
        much as those of today.

        Parameters
        ----------
        X : array-like of shape (n_matches, 2)
            As in `fit`.
        y : array-like of shape (n_matches,), default=None
            As in `fit`.
        sample_weight : array-like of shape (n_matches,), default=None
            As in `fit`.

        Returns
        -------
        self : BradleyTerry
            The fitted model. ``history_``, ``n_iter_`` and ``converged_`` are those of
            the new matches. There is no ``elbo_``, as the sum of the bounds of batches
            is no bound.

        Raises
        ------
        ValueError
            As `fit`.
        """
        with whole_fit(self, ADVICE), threads(self.n_jobs):
            self._check_parameters()
            if hasattr(self, "items_"):
                check_unchanged(self, "home_advantage", "ties")
            self._fit(X, y, sample_weight)
            self._forget_bound()
        return self

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        began = time.perf_counter()
        new = not hasattr(self, "items_")
        labels, won, weight = open_matches(
            self, X, y, sample_weight, self.ties, reset=new
        )
        items, codes = self._number_items(labels)
        prior = self._prior(items)
        if new:
            self._warn_of_groups(count_groups(codes, items.size))
        eta, tie_prior = self._tie_prior(won, weight)
        offset = int(self.home_advantage)
        pairs = aggregate(
            codes + offset, won, weight, self.ties is not None, bool(offset)
        )
        kind = self.posterior
        if kind == "auto":
            kind = "fullrank" if prior.n_dim <= MOST_FULL else "lowrank"
        n_matches = np.bincount(codes.ravel(), np.repeat(weight, 2), items.size)
        if not new:
            n_matches[: self.n_matches_.size] += self.n_matches_

        def attributes(point):
            return self._attributes(point, items, n_matches, offset)

        with Progress(self, X, y, 1) as progress:
            report = progress.start(0, attributes)
            ties = eta, tie_prior
            model, result = self._run(pairs, prior, kind, ties, began, report)
            report.end()
        warn_not_converged(self, result, unit="")
        self._eta_precision = tie_prior[1]
        if self.ties is not None:
            found = model.statistics(result.point, pairs, 1.0)
            self._eta_precision = model.direction(result.point, found).eta_precision
        vars(self).update(
            attributes(result.point),
            classes_=np.array([0.0, 1.0] if self.ties is None else [0.0, 0.5, 1.0]),
            elbo_=float(result.objective),
            **result.attributes(),
            _rows=(pairs, prior),
        )
        vars(self).pop("_pareto_k", None)

    def __getstate__(self):
        # Matches stay where they are: only what has been learnt travels.
        state = super().__getstate__()
        state.pop("_rows", None)
        return state

    def _run(self, pairs, prior, kind, ties, began, report):
        """Fit independent skills roughly, then the posterior asked for from there."""
        mean, runs, left = prior.mean, [], self.max_iter
        eta, tie_prior = ties
        passes = 0.0
        stages = [("meanfield", ROUGH), (kind, self.tol)]
        for name, tol in stages if kind != "meanfield" else stages[1:]:
            model = PairsModel(pairs, prior, name, self.ties, tie_prior, self.rank)
            solver = solvers.Ascent()
            result = solvers.run(
                model,
                solver,
                pairs,
                model.start(mean, eta),
                step_size=schedules.Constant(1.0),
                temperature=schedules.Constant(1.0),
                max_iter=left,
                tol=tol,
                rng=None,
                report=report,
                passes=passes + 1.0,
                seconds=time.perf_counter() - began,
            )
            runs.append(result)
            mean, eta = result.point.posterior.mean, result.point.eta
            passes = result.history[-1].passes
            left = max(0, left - result.n_iter)
            if result.stopped:
                break
        return model, solvers.joined(runs)

    def _number_items(self, labels):
        """Return all items, those known first, and the numbers (n, 2) of the labels."""
        try:
            found, where = np.unique(labels, return_inverse=True)
        except TypeError:
            kinds = sorted({type(label).__name__ for label in labels.ravel()})
            raise ValueError(
                f"Labels of items must be of one type that can be sorted, got "
                f"{' and '.join(kinds)}: make them all strings."
            ) from None
        where = where.reshape(labels.shape)
        if not hasattr(self, "items_"):
            return found, where
        numbers = self._numbers_of(found)
        fresh = numbers < 0
        numbers[fresh] = self.items_.size + np.arange(fresh.sum())
        return np.concatenate([self.items_, found[fresh]]), numbers[where]

    def _prior(self, items):
        if hasattr(self, "posterior_"):
            n_more = items.size - self.items_.size
            return self.posterior_.widened(n_more, self.prior_scale)
        n_dim = items.size + int(self.home_advantage)
        return MeanField(np.zeros(n_dim), np.full(n_dim, float(self.prior_scale)))

    def _tie_prior(self, won, weight):
        """Return where the tie parameter starts, and its prior (mean, precision)."""
        if self.ties is None:
            return 0.0, (0.0, 0.0)
        precision = getattr(self, "_eta_precision", 0.0)
        if precision:
            return self._eta, (self._eta, precision)
        ties = np.average(won == 0.5, weights=weight)
        if not 0.0 < ties < 1.0:
            what = "no tie" if not ties else "nothing but ties"
            raise ValueError(
                f"There is {what} in y, so that ties={self.ties!r} has nothing to "
                "learn from: use ties=None."
            )
        # As for equal skills.
        if self.ties == "davidson":
            return float(np.log(2.0 * ties / (1.0 - ties))), (0.0, 0.0)
        theta = (1.0 + ties) / (1.0 - ties)
        return float(np.log(theta**2 - 1.0)), (0.0, 0.0)

    def _attributes(self, point, items, n_matches, offset):
        """Return the fitted attributes of a point."""
        q = point.posterior
        # The mean of all skills, as a linear combination of the parameters.
        mean = np.full(q.n_dim, 1.0 / items.size)
        mean[:offset] = 0.0
        along = q.covariance_times(mean)
        variance = q.variance - 2.0 * along + mean @ along
        found = {
            "items_": items,
            "posterior_": q,
            "skill_": q.mean[offset:] - mean @ q.mean,
            "skill_std_": np.sqrt(variance[offset:]),
            "n_matches_": n_matches,
            "_offset": offset,
            "_eta": float(point.eta),
        }
        if offset:
            found["home_advantage_"] = float(q.mean[0])
            found["home_advantage_std_"] = float(q.scale[0])
        if self.ties is not None:
            parameter = np.exp(point.eta)
            if self.ties == "rao-kupper":
                parameter = np.sqrt(1.0 + parameter)
            found["tie_parameter_"] = float(parameter)
        return found

    def _warn_of_groups(self, sizes):
        if sizes.size > 1:
            shown = ", ".join(map(str, sizes[:5])) + (", ..." if sizes.size > 5 else "")
            warnings.warn(
                f"The items fall into {sizes.size} groups ({shown} items) without a "
                "match between them: skills of different groups are compared by the "
                "prior only.",
                UserWarning,
                stacklevel=4,
            )
