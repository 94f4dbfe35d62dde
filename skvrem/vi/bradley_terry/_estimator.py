"""Skills from matches: the scikit-learn shell of the Bradley-Terry model."""

import time
import warnings
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skvrem import solvers
from skvrem.utils._base import VersionedPickle, check_unchanged
from skvrem.utils._columns import Given
from skvrem.utils._parallel import one_blas_thread, threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    outside,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import among, check_parameters
from skvrem.vi.bradley_terry import _inference
from skvrem.vi.bradley_terry._input import (
    aggregate,
    appended,
    count_groups,
    numbered_labels,
    open_matches,
)
from skvrem.vi.bradley_terry._model import SkillModel
from skvrem.vi.bradley_terry._model_stream import Played
from skvrem.vi.bradley_terry._scale import learned_scale, of_scale
from skvrem.vi.bradley_terry._stream import KeptMatches
from skvrem.vi.diagnostics._arviz import ArviZMixin
from skvrem.vi.diagnostics._pareto import ParetoMixin
from skvrem.vi.gaussian._guards import (
    SCALES,
    StreamsWithoutBound,
    whole_fit,
)
from skvrem.vi.gaussian._model_posterior import FullRank, MeanField
from skvrem.vi.gaussian._width import with_unknown_width

# posterior="auto" keeps the whole covariance of so many parameters; of twice as many
# where few matches of a stream go on from one, whose directions take seconds to find.
MOST_FULL, MOST_ON = 1500, 3000
# Mean and precision of the logarithm of a tie parameter before any match: equal items
# tie a third of their matches, give or take a factor of e of the parameter. That is
# Rao and Kupper's theta of 2, of which `SkillModel` has theta^2 - 1.
TIE_PRIORS = {"davidson": (0.0, 1.0), "rao-kupper": (float(np.log(3.0)), 1.0)}
# Matches of which all may be won at home by chance: fewer, as of the batch of a stream.
BY_CHANCE = 10
ADVICE = "Give sample_weight or prior_scale on a smaller scale."
# Where the fit of independent skills, at which the others start, ends, in nats.
ROUGH = 1.0


class BradleyTerry(
    StreamsWithoutBound,
    ParetoMixin,
    ArviZMixin,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""Skills of players, teams or products from matches of two, with uncertainty.

    Item a beats item b with probability
    :math:`1 / (1 + \exp(\theta_b - \theta_a))` [1]_; skills have the prior
    :math:`N(0, \mathrm{prior\_scale}^2)`, and the posterior is a Gaussian found by
    variational inference on an exact, noise-free bound: there is no step size, and a
    fit says when it has converged. A pass costs a few operations for every two items
    that met.

    Parameters
    ----------
    prior_scale : float or "learn", default="learn"
        Standard deviation of skills before any match. "learn": by the evidence, that of
        expectation propagation [4]_, under a log-normal prior of its own (median 1,
        spread 1), whatever the `posterior`; what is not known of it is in the
        covariances of "fullrank" and "lowrank". A number is that of the advantage of
        `home_advantage` too, which is 1 else.
    ties : {None, "davidson", "rao-kupper"}, default=None
        How matches without a winner, y = 0.5, come about. None: half a win for each
        side, and they are never predicted. "davidson" [2]_ and "rao-kupper" [3]_ give
        them a probability, with one more parameter, ``tie_parameter_``.
    home_advantage : bool, default=False
        Being at home is an advantage of one size, ``home_advantage_``. The first item
        of every row is at home, unless X has a third column that says who is.
    posterior : {"auto", "fullrank", "lowrank", "meanfield"}, default="auto"
        What is kept of the covariance of the skills: all of it, a diagonal and a low
        rank, or a diagonal. "auto" is "fullrank" up to 1,500 parameters, then
        "lowrank". "meanfield" takes skills for independent: their standard deviations
        are too small, and those of differences can be wrong either way.
    rank : int, default=20
        Of "lowrank".
    handle_unknown : {"prior", "error"}, default="prior"
        What a prediction makes of an item that was not in the fit: a skill that is
        known by the prior only, or an error that names it.
    max_iter : int, default=100
        Steps, each a pass over the matches.
    tol : float, default=1e-4
        Converged when less is left to gain, in nats of the bound ``elbo_``.
    warm_start : bool, default=False
        Start from the last skills; items that were not there from the prior. Of the
        same matches a learned `prior_scale_` stays as it is.
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
    prior_scale_ : float
        Standard deviation of skills before any match: given, or learned. Items that
        were not in the fit have it.
    skill_, skill_std_ : ndarray of shape (n_items,)
        Posterior means and standard deviations of the skills, in the order of
        ``items_``. Skills sum to zero: only their differences bear on matches.
    n_matches_ : ndarray of shape (n_items,)
        Matches of each item, by weight.
    home_advantage_, home_advantage_std_ : float
        With `home_advantage`.
    tie_parameter_ : float
        With `ties`: Davidson's :math:`\nu` or Rao and Kupper's :math:`\theta`. The
        value of the highest bound: it has no posterior. The logarithm of :math:`\nu`,
        or of :math:`(\theta^2 - 1) / 3`, has the prior N(0, 1): all results of equal
        items are alike before any match, and a few without a tie, or with nothing
        else, do not make ties impossible, or certain.
    classes_ : ndarray of shape (2,) or (3,)
        Results, in the order of the columns of `predict_proba`: 0, 0.5 with `ties`, 1.
    posterior_ : Gaussian
        Of the parameters before they are made to sum to zero: the advantage, where
        there is one, and the skills. ``mean``, ``scale``, ``sample``, ``logpdf``. With
        what is not known of a learned scale, unless skills are independent.
    elbo_ : float
        Lower bound of the log evidence, in nats, given `prior_scale_`, by the posterior
        that takes this for known. A stream has none.
    objective_ : float
        The same bound, in nats, priors included; of a stream that of its last batch,
        given what came before.
    pareto_k_ : float
        Below 0.7 the posterior is near the exact one, both given the tie parameter and
        `prior_scale_`; computed when asked for, from the matches of the last fit.
    n_iter_ : int
        Steps of the last fit.
    converged_ : bool
    history_ : dict of ndarray
        passes, seconds, objective (the bound), step_size, temperature and
        predicted_gain by step.
    n_features_in_ : int
        2, or 3 with a column that says who is at home.
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    skvrem.SBMLogisticRegression : Matches of more than skills, as rows of features.

    Notes
    -----
    To scikit-learn this is no classifier: what needs one, as the scorer "roc_auc" and
    ``CalibratedClassifierCV``, fails. Its own `score`, which cross-validation takes by
    default, is the one to use.

    References
    ----------
    .. [1] Bradley, Terry (1952). Rank analysis of incomplete block designs: I. The
       method of paired comparisons. Biometrika 39.
    .. [2] Davidson (1970). On extending the Bradley-Terry model to accommodate ties in
       paired comparison experiments. Journal of the American Statistical Association
       65.
    .. [3] Rao, Kupper (1967). Ties in paired-comparison experiments. Journal of the
       American Statistical Association 62.
    .. [4] Herbrich, Minka, Graepel (2006). TrueSkill: a Bayesian skill rating system.
       Advances in Neural Information Processing Systems 19.

    Examples
    --------
    >>> from skvrem import BradleyTerry
    >>> won = [("Ann", "Bo"), ("Ann", "Cy"), ("Bo", "Cy"), ("Cy", "Bo"), ("Ann", "Bo")]
    >>> model = BradleyTerry().fit(won)
    >>> model.items_
    array(['Ann', 'Bo', 'Cy'], dtype='<U3')
    >>> model.skill_.round(2), model.skill_std_.round(2)
    (array([ 0.94, -0.54, -0.4 ]), array([1.09, 0.74, 0.78]))
    >>> model.predict_proba([("Ann", "Cy")]).round(2)
    array([[0.29, 0.71]])
    """

    def __init__(
        self,
        prior_scale: float | Literal["learn"] = "learn",
        *,
        ties: Literal["davidson", "rao-kupper"] | None = None,
        home_advantage: bool = False,
        posterior: Literal["auto", "fullrank", "lowrank", "meanfield"] = "auto",
        rank: int = 20,
        handle_unknown: Literal["prior", "error"] = "prior",
        max_iter: int = 100,
        tol: float = 1e-4,
        warm_start: bool = False,
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
        self.warm_start = warm_start
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
        check_parameters(self, prior_scale=SCALES)

    # Fits

    def fit(self, X: ArrayLike, y: Given = None, sample_weight: Given = None) -> Self:
        """Fit the skills.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_matches, 2) or (n_matches, 3)
            Labels of the two items of each match: strings, integers or other things
            that can be sorted. With `home_advantage`, a third column may say who is
            at home: 1 the first, 0 neither, -1 the second.
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
            For parameters out of range, a missing label, labels of more than one type,
            an item that meets itself, or a result that is no such number. The
            estimator is then as it was before.

        Warns
        -----
        UserWarning
            If the items fall into groups that never meet, or all matches were won, or
            all lost, by who was at home.
        ConvergenceWarning
            If `max_iter` steps were not enough.
        """
        with whole_fit(self, ADVICE), solvers.checkpointed(self, X, y, sample_weight):
            with one_blas_thread():  # more cost more than they save
                self._fit(X, y, sample_weight)
            self._kept = None
        return self

    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the skills with further matches, the posterior as their prior.

        Items may be new, with `prior_scale_` for their prior. Skills do not change with
        time: matches of long ago count as much as those of today. Up to 8 MB of matches
        (some 200,000 different ones) are kept. Where they weigh a fifth more than when
        they last were, all are seen again, and a learned scale follows them: then the
        skills are those of a fit to all. A stream that goes on from `fit` keeps none.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_matches, 2) or (n_matches, 3)
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
        with whole_fit(self, ADVICE), one_blas_thread():
            go_on = hasattr(self, "items_")
            if go_on:
                check_unchanged(self, "home_advantage", "ties")
            before = vars(self).get("_kept") if go_on else KeptMatches()
            self._kept = self._fit(X, y, sample_weight, go_on, before)
            self._forget_bound()
        return self

    @with_callbacks
    def _fit(self, X, y, sample_weight, go_on=False, kept=None):
        """Fit the matches, and return what a stream keeps of them and those before."""
        began = time.perf_counter()
        labels, home, won, weight = open_matches(
            self, X, y, sample_weight, self.ties, reset=not go_on
        )
        items, codes = self._number_items(labels, go_on)
        n_matches = np.bincount(codes.ravel(), np.repeat(weight, 2), items.size)
        offset, tied = int(self.home_advantage), self.ties is not None
        home = home if offset else home[:0]
        matches = aggregate(codes + offset, home, won, weight, tied)
        if kept is not None:
            kept = kept.after(matches)
        again = go_on and kept is not None and kept.due
        learns, known = among(self.prior_scale, ("learn",)), ()
        scale = 1.0 if learns else float(self.prior_scale)
        nothing = np.zeros(items.size + offset)
        prior = MeanField(nothing, nothing + scale)
        mean, warm = prior.mean, False
        if go_on:
            n_matches[: self.n_matches_.size] += self.n_matches_
            last_scale = self.prior_scale_ if learns else scale
            n_more = items.size - self.items_.size
            last = self.posterior_.widened(n_more, last_scale)
            mean = last.mean
            if again:
                matches, known = kept.matches, (np.log(last_scale),)
            else:
                prior, scale, learns = last, last_scale, False
        else:
            self._warn_of_groups(count_groups(codes, items.size))
            if offset:
                _warn_of_homes(home, won)
        eta, tie_prior = self._tie_prior(won, weight, go_on)
        if again:  # what came before is among the matches
            tie_prior = TIE_PRIORS.get(self.ties, tie_prior)
        if self.warm_start and not go_on:
            mean, eta, warm = self._warm_mean(items, offset, eta)
        few = isinstance(prior, FullRank) and len(matches.first) < prior.n_dim
        kind = self.posterior
        if kind == "auto":
            most = MOST_ON if few else MOST_FULL
            kind = "fullrank" if prior.n_dim <= most else "lowrank"
        played = None
        if few and kind == "fullrank":
            played = Played(matches, prior)
            matches, prior = played.matches, played.prior
            mean = prior.mean

        def of_all(point):
            if played is not None:
                return played.all_from(point)
            if len(known) < 2:
                return point
            # The advantage of being at home keeps its prior.
            scales = np.append(np.full(offset, np.inf), np.full(items.size, scale))
            whole = with_unknown_width(point.posterior, scales, known[1])
            return point._replace(posterior=whole)

        def describe(point, objective):
            return {
                **self._attributes(of_all(point), items, n_matches, offset),
                "classes_": np.array([0.0, 0.5, 1.0] if tied else [0.0, 1.0]),
                "elbo_": float(objective),
                "objective_": float(objective),
                "_eta_precision": tie_prior[1],
                "prior_scale_": scale,
                "_of_scale": known,
            }

        with Progress(self, X, y, 1) as progress:
            report = progress.start(0, describe)
            runs = solvers.Runs(self.max_iter, began, rng=None, report=report)
            given = self.ties, tie_prior, self.rank
            last = None
            if warm:
                model = SkillModel(matches, prior, kind, *given)
                if learns:
                    model = of_scale(model, self.prior_scale_)
                last = self._last_point(model)
                if learns and last is not None:  # of the same matches it is the same
                    scale, learns, known = self.prior_scale_, False, self._of_scale
            # Independent skills roughly, then what is asked for from there.
            stages = [("meanfield", ROUGH), (kind, self.tol)]
            for name, tol in stages[kind == "meanfield" or (warm and not learns) :]:
                passes, point = 1.0, last
                if last is None:
                    model = SkillModel(matches, prior, name, *given)
                    point = model.start(mean, eta)
                if learns and name == "meanfield":
                    scale, point, known, passes = learned_scale(model, point, known)
                    model = of_scale(model, scale)
                    point, prior = model.adopt(point), model.prior
                how = {"passes": passes, "tol": tol}
                result = runs.go_on(model, solvers.Ascent(), point, **how)
                mean, eta = result.point.posterior.mean, result.point.eta
                if result.stopped:
                    break
            report.end()
        result = runs.result()
        warn_not_converged(self, result, unit="")
        seen = (matches, model.prior) if played is None else played.whole
        vars(self).update(
            describe(result.point, result.objective),
            **result.attributes(),
            _rows=(*seen, (type(model.kind), result.point)),
        )
        if tied:
            found = model.statistics(result.point, None, 1.0)
            self._eta_precision = model.direction(result.point, found).eta_precision
        if kept is not None and (again or not go_on):
            kept = kept.looked_at()
        return kept

    def __getstate__(self):
        # Matches stay where they are: only what has been learnt travels.
        state = super().__getstate__()
        state.pop("_rows", None)
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if "posterior_" in state and "prior_scale_" not in state:
            self.prior_scale_ = float(self._of_fit.prior_scale)  # none was learned

    def _number_items(self, labels, go_on):
        """Return all items, those known first, and the numbers (n, 2) of the labels."""
        found, where = numbered_labels(labels)
        if not go_on:
            return found, where
        numbers = self._numbers_of(found)
        fresh = numbers < 0
        numbers[fresh] = self.items_.size + np.arange(fresh.sum())
        items = appended(self.items_, found[fresh])
        if items.dtype.kind == "O":
            numbered_labels(items)  # of one type, or it says so
        return items, numbers[where]

    def _warm_mean(self, items, offset, eta):
        """Return where to start from the last skills, and whether there are any."""
        mean = np.zeros(items.size + offset)
        last = vars(self).get("posterior_")
        if last is None or offset != self._offset:
            return mean, eta, False
        numbers = self._numbers_of(items)
        mean[:offset] = last.mean[:offset]
        known = last.mean[offset:][np.maximum(numbers, 0)]
        mean[offset:] = np.where(numbers >= 0, known, 0.0)
        same = self.ties is not None and self.ties == self._of_fit.ties
        return mean, self._eta if same else eta, True

    def _last_point(self, model):
        """Return where the last fit of the same ended, None where there is none.

        A posterior alone does not say at which curvatures of the matches it is best.
        """
        if "_rows" not in vars(self) or any(
            getattr(self, name) != getattr(self._of_fit, name)
            for name in ("ties", "prior_scale")
        ):
            return None
        matches, prior, (kind, point) = self._rows
        same = kind is type(model.kind) and all(
            np.array_equal(last, now)
            for last, now in (
                *zip(matches, model.matches, strict=True),
                (prior.mean, model.prior.mean),
                (prior.variance, model.prior.variance),
            )
        )
        return point if same else None

    def _tie_prior(self, won, weight, go_on):
        """Return where the tie parameter starts, and its prior (mean, precision)."""
        if self.ties is None:
            return 0.0, (0.0, 0.0)
        if go_on and self._eta_precision:
            return self._eta, (self._eta, self._eta_precision)
        prior = TIE_PRIORS[self.ties]
        # As for equal skills, with one match more that each result has a third of.
        tied = (float(weight @ (won == 0.5)) + 1.0 / 3.0) / (weight.sum() + 1.0)
        if self.ties == "davidson":
            return float(np.log(2.0 * tied / (1.0 - tied))), prior
        theta = (1.0 + tied) / (1.0 - tied)
        return float(np.log(theta**2 - 1.0)), prior

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
                stacklevel=outside(),
            )

    def _example_rows(self):
        """Return a match, as X has them."""
        match = self.items_[:2].tolist()
        more = [1] * (self.n_features_in_ - 2)
        return np.array([match + more], self.items_.dtype if not more else object)

    def _numbers_of(self, labels):
        """Return the numbers of labels, -1 for those that are unknown."""
        numbers = {item: number for number, item in enumerate(self.items_.tolist())}
        return np.array([numbers.get(label, -1) for label in labels.tolist()], int)

    def _n_looked_at(self):
        """See `ParetoMixin`."""
        return len(self._rows[0].first)

    @property
    def _given_prior(self):
        """See `ParetoMixin`. Of matches beside a posterior of others it is known."""
        known = vars(self).get("_of_scale", ())
        if "_rows" not in vars(self) or len(known) < 2:
            return self.posterior_
        return self._rows[2][1].posterior

    def _log_joint(self, draws):
        """See `ParetoMixin`. The tie parameter is known."""
        matches, prior, _ = self._rows
        model = SkillModel(matches, prior, "meanfield", self._of_fit.ties)
        with threads(self.n_jobs):
            each = [model.log_likelihood(theta, self._eta) for theta in draws]
        return np.array(each) + prior.logpdf(draws)

    # Answers are functions of a fitted state, documented where they are computed.

    predict_proba = _inference.predict_proba
    predict_log_proba = _inference.predict_log_proba
    predict = _inference.predict
    score = _inference.score
    sample_predictive = _inference.sample_predictive
    difference_interval = _inference.difference_interval
    sample_posterior = _inference.sample_posterior
    rank_probability = _inference.rank_probability
    ranking = _inference.ranking
    summary = _inference.summary
    _draws = _inference.draws


def _warn_of_homes(home, won):
    """Say where nothing but the prior tells how large an advantage is."""
    shares = np.where(home > 0.0, won, 1.0 - won)[home != 0.0]
    for result, told in ((1.0, "won"), (0.0, "lost")):
        if shares.size >= BY_CHANCE and (shares == result).all():
            warnings.warn(
                f"Whoever was at home {told} every match, so that the "
                "prior alone tells how large home_advantage_ is. The first item of a "
                "row is at home, and has won without y: give the results as y, or who "
                "was at home as a third column of X.",
                UserWarning,
                stacklevel=outside(),
            )
            return
