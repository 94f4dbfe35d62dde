"""A user's own model: the scikit-learn shell."""

import math
import time
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import solvers
from skvrem.utils._base import VersionedPickle, summary_table
from skvrem.utils._columns import Given
from skvrem.utils._control import mean_within
from skvrem.utils._remote import of_dask
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import as_generator, check_parameters, check_weight
from skvrem.vi.blackbox._fit import Fit, pairs_of_draws
from skvrem.vi.blackbox._input import (
    check_density,
    check_model,
    check_names,
    check_rows,
    check_vector,
    weigh_rows,
)
from skvrem.vi.blackbox._model import DrawnModel, opposite_draws
from skvrem.vi.blackbox._model_density import Target
from skvrem.vi.blackbox._model_low_rank import LowRankModel
from skvrem.vi.blackbox._stream import Seen
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws
from skvrem.vi.diagnostics._pareto import ParetoMixin
from skvrem.vi.gaussian._answers import interval_columns
from skvrem.vi.gaussian._guards import (
    LEAST_SCALE,
    MOST_SCALE,
    StreamsWithoutBound,
    check_in_memory,
    whole_fit,
)
from skvrem.vi.gaussian._minibatch import (
    MinibatchSteps,
    TakesSteps,
    check_steps,
    steps_of,
)
from skvrem.vi.gaussian._model_posterior import FlatPrior, MeanField
from skvrem.vi.gaussian._plan import FULL_RANK, as_structure, plan_fit

ADVICE = (
    "The posterior may be improper, as with a flat log_prior and a likelihood that has "
    "no maximum: give the model a proper log_prior."
)
CLOSER = "or start closer, by `initial` of the model"

# Pairs of fresh draws that the bound is estimated from at the end, at least and at
# most; and rows that more of them may look at.
BOUND_PAIRS, BOUND_LOOKS = (8, 50), 100_000
# Draws that predictive densities are taken from.
PREDICT_DRAWS = 100


class VariationalInference(
    TakesSteps,
    StreamsWithoutBound,
    ParetoMixin,
    ArviZMixin,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""A Gaussian posterior of the parameters of your own model.

    A model is any object that says how probable rows are and in which direction they
    become more probable. Nothing is to be tuned: full passes take expectations over
    fixed draws with the second order of the log density as their control variate,
    start at a mode, or at the best diagonal where a mode is but a spike, and stop where
    less than `tol` nats are left to gain; steps by minibatches start there too, and
    have the joint control variate of [1]_, for rows and draws together.

    Parameters
    ----------
    model : object
        With ``n_samples``, ``n_parameters``, ``log_likelihood(parameters, indices)``
        (one number a row) and ``gradient(parameters, indices)`` (of the rows' sum).
        What else it may have is in the notes. It holds the data and is not changed.
        The default, None, is there for tools that make estimators without arguments:
        `fit` asks for a model.
    prior_mean : float or array-like of shape (n_parameters,), default=0.0
        Mean of the Gaussian prior of a model without ``log_prior``.
    prior_scale : float, array-like of shape (n_parameters,), or None, default=None
        Its standard deviation; None is 1. It is what a fit measures parameters by: they
        may be in any units, as long as it says how large they may be.
    posterior : {"auto", "fullrank", "lowrank", "meanfield"}, default="auto"
        Covariance of the posterior: any; a diagonal that is more, or less, along `rank`
        directions; a diagonal. "auto" is "fullrank" up to 1,000 parameters, "lowrank"
        beyond, and "meanfield" for "adam" and "sgd", and for minibatches of a model
        with a ``support``: a covariance ties all parameters together, and a step by a
        few rows would be as long as all of them. The standard deviations of "meanfield"
        are too small where parameters go together, and so are its intervals; those of
        "lowrank" less so.
    rank : int or None, default=None
        Directions of "lowrank"; None is 10.
    solver : {"auto", "batch", "stochastic", "svrg", "saga"}, default="auto"
        "batch" makes full passes. "stochastic" has minibatches, and with a control
        variate for the noise of draws alone; "svrg" and "saga" are Algorithms 2 and 1
        of [1]_. For a covariance, and where the diagonal of the Hessian is at hand,
        their steps have the draws of the passes that certify each epoch and are
        controlled by these: then they are the same, as the pass is there anyway that
        a table would save. "auto" is "batch", or "svrg" where `steps` ask for
        minibatches.
    steps : MinibatchSteps or None, default=None
        How steps are made, :class:`skvrem.vi.MinibatchSteps`; None is its defaults. Its
        ``control_variate`` "taylor" is the second order of the log density; full passes
        always have pairs of draws; with None ``elbo_`` does without that order, too.
        Its ``control_scale`` is for minibatches of "meanfield", where the diagonal of
        the Hessian is at hand: from the model, or by differences of gradients for up to
        32 parameters. Its ``optimizer`` "natural" is for "fullrank" and for
        minibatches, "lbfgs" for full passes of the others,
        "adam" and "sgd" for minibatches of "meanfield". Its ``n_draws`` are those that
        full passes take expectations over, in pairs of opposite sign: an even number.
        "auto" is 128 up to 3,000 rows, 8 from 50,000 on, and at least two a parameter
        where passes are cheap; a quarter of it beside minibatches. Of full passes they
        are doubled, up to 4,096 or 400,000 rows looked at, while that changes the
        posterior by more than `tol`. It has no use for
        ``expectation``: all are over draws.
    step_size : float or "auto", default="auto"
        Of minibatches; that of "adam" is in standard deviations of the prior. It is
        halved wherever an epoch lowers the bound; "auto" starts where that happens
        seldom.
    batch_size : int or "auto", default="auto"
        Rows a minibatch; "auto" makes 64 minibatches of at least 5 and at most 500
        rows. One draw serves a minibatch.
    max_iter : int, default=500
        Epochs: full passes at all draws, each followed by a pass over the minibatches
        where there are any.
    tol : float, default=0.01
        Converged when what is left to gain is less, in nats of the bound.
    warm_start : bool, default=False
        Start from the last posterior.
    random_state : int, RandomState instance or None, default=None
        Seeds draws, minibatches and the start of a low rank.
    verbose : int, default=0
        1: a progress bar, or a line every `verbose_interval` epochs; 2: every epoch.
    verbose_interval : int, default=10
        Epochs between two lines.

    Attributes
    ----------
    mean_, std_ : ndarray of shape (n_parameters,)
        Posterior means and standard deviations.
    posterior_ : MeanField, FullRank or LowRank
        Over the parameters: ``mean``, ``scale``, ``covariance()``, ``sample``,
        ``logpdf``.
    parameter_names_ : list of str
    elbo_, elbo_se_ : float
        Lower bound of the log evidence in nats, and its standard error: from fresh
        draws, at the end, controlled as much as these show that it helps. A stream has
        none.
    objective_ : float
        The bound on the draws of the fit, in nats, priors included; of a stream that of
        the rows fitted last, given what came before.
    history_ : dict of ndarray
        passes (at all draws), seconds, objective (the bound on the draws of the fit),
        step_size, temperature and predicted_gain by epoch, and gradient_variance for
        solvers by minibatches.
    pareto_k_, pareto_k_se_ : float
        Below 0.7 the posterior is near the exact one, and its standard error. Computed
        by the fit where that costs a tenth of it, or next to nothing, else when asked
        for.
    n_passes_ : float
        Rows that the model was asked about, for values, gradients and products, over
        the rows there are.
    converged_ : bool
    n_iter_ : int
    n_samples_seen_ : int
        Rows of the fit.
    solver_, optimizer_, step_size_, batch_size_ : str, float, int
        What was used.

    See Also
    --------
    BayesianLogisticRegression : Has no noise of draws, and needs no gradients.
    skvrem.vi.JaxModel : Derives all that a model needs from its log-likelihood.

    Notes
    -----
    A model may have more, each of which saves something; :doc:`the user guide
    </user_guide/own_model>` has the details. ``log_prior(parameters)`` and
    ``log_prior_gradient(parameters)`` replace the Gaussian prior.
    ``hessian_vector_product(parameters, vector, indices)``,
    ``hessian_diagonal(parameters, indices)`` and ``hessian(parameters, indices)``, of
    the rows' sum, replace differences of gradients. ``support(indices)`` says which of
    many parameters rows depend on, so that a step by a minibatch costs no more than
    these do. ``initial``, ``parameter_names`` and ``unravel(parameters)`` say where to
    start, and how to name and shape what comes out.

    Before anything is fitted the model is tried at the start: derivatives are compared
    with differences, and an error names the method, and a row where it went wrong, or
    a parameter that a support leaves out.

    References
    ----------
    .. [1] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
       variational inference. AISTATS.

    Examples
    --------
    Counts whose logarithmic rate is linear in x:

    >>> import numpy as np
    >>> from skvrem import VariationalInference
    >>> class Counts:
    ...     n_samples, n_parameters = 200, 2
    ...     rng = np.random.default_rng(0)
    ...     X = np.column_stack([np.ones(200), rng.normal(size=200)])
    ...     y = rng.poisson(np.exp(X @ [1.0, -0.5]))
    ...
    ...     def log_likelihood(self, parameters, indices):
    ...         z = self.X[indices] @ parameters
    ...         return self.y[indices] * z - np.exp(z)
    ...
    ...     def gradient(self, parameters, indices):
    ...         X = self.X[indices]
    ...         return X.T @ (self.y[indices] - np.exp(X @ parameters))
    >>> fitted = VariationalInference(Counts(), random_state=0).fit()
    >>> bool((abs(fitted.mean_ - [1.0, -0.5]) < 3.0 * fitted.std_).all())
    True
    """

    def __init__(
        self,
        model: Any = None,
        *,
        prior_mean: float | ArrayLike = 0.0,
        prior_scale: float | Given = None,
        posterior: Literal["auto", "fullrank", "lowrank", "meanfield"] = "auto",
        rank: int | None = None,
        solver: Literal["auto", "batch", "stochastic", "svrg", "saga"] = "auto",
        steps: MinibatchSteps | None = None,
        step_size: float | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 500,
        tol: float = 1e-2,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.model = model
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.posterior = posterior
        self.rank = rank
        self.solver = solver
        self.steps = steps
        self.step_size = step_size
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def _check_parameters(self):
        check_parameters(self)
        check_steps(self, unused=("expectation",), least_draws=2)
        n_draws = steps_of(self).n_draws
        if n_draws != "auto" and n_draws % 2:
            raise ValueError(
                f"n_draws must be even, as draws come in pairs, got {n_draws}."
            )

    def fit(self, X: Given = None, y: Any = None, sample_weight: Given = None) -> Self:
        """Fit the posterior.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of the rows to fit, as of a fold of cross-validation; None is all of
            the model's. A row that is there twice counts twice.
        y : None
            Ignored: targets belong to the model.
        sample_weight : array-like of shape (n_rows,), default=None
            Rows count so many times. A model says what rows come to together, so that
            a pass takes as many calls as there are different weights.

        Returns
        -------
        self : VariationalInference
            The fitted model.

        Raises
        ------
        TypeError
            For a model without a method that is needed, or one that returns something
            else than numbers.
        ValueError
            For parameters out of range or that do not go together, and for a model
            that returns a wrong shape, NaN, a derivative that is none, or a support
            that is none or leaves a parameter out; that is NaN or impossible at draws
            from its posterior; or whose posterior is improper. The estimator is then
            as it was before.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        PosteriorWarning
            If ``pareto_k_``, where the fit computes it, may be above 0.7, and draws
            are worth less than a quarter of exact ones.
        """
        with whole_fit(self, ADVICE), solvers.checkpointed(self, X, sample_weight):
            self._fit(X, sample_weight)
        self._take_pareto_k(self.n_passes_)
        return self

    def partial_fit(self, X=None, y=None, sample_weight=None):
        """Update the posterior with further rows, in whatever order they come.

        The first call is a `fit`, with the prior of the model or of the estimator.
        Then the posterior is the prior of what comes; or all rows of the stream are
        fitted anew, given what was known before them. That is done with up to 1,000
        rows, where they have become twice as many since, and where new ones would move
        the posterior by more than its width, as rows of one class do: each row's
        likelihood has been approximated where the posterior was. For that the model
        has to have earlier rows yet. Where it is another one, or says something else
        of them, the posterior is all that is known, and a sorted stream ends far off.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of the rows that are new; None is all of the model's. The model may
            be another one with the same parameters, ``set_params(model=...)``.
        y : None
            Ignored: targets belong to the model.
        sample_weight : array-like of shape (n_rows,), default=None
            Rows count so many times.

        Returns
        -------
        self : VariationalInference
            The fitted model. ``n_samples_seen_`` is that of all rows, ``history_``,
            ``n_iter_`` and ``pareto_k_`` are those of the rows that were fitted. There
            is no ``elbo_``, as the sum of the bounds of batches is no bound.

        Raises
        ------
        TypeError, ValueError
            As `fit`, and for a model with another number of parameters.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        """
        with whole_fit(self, ADVICE):
            before = vars(self).get("posterior_")
            seen = 0 if before is None else self.n_samples_seen_
            known = vars(self).get("_seen")
            if before is None:
                self._fit(X, sample_weight)
            else:
                self._go_on(X, sample_weight, before, known)
            self.n_samples_seen_ += seen
            self._forget_bound()
        return self

    def _go_on(self, X, sample_weight, before, known):
        """Fit rows given a posterior, or given what was before it with all rows."""
        again = None
        if known is not None and known.is_of(self.model, before.n_dim):
            rows = self._rows_of(X, sample_weight)[1:]
            known = known.with_rows(*rows)
            away = known.due or known.lead_away(before, *rows)
            if away and known.are_as_before():
                again = known
            elif away:
                known = None  # the model has other rows by now
        else:
            known = None
        self._fit(X, sample_weight, before, again)
        if known is not None and again is None:
            self._seen = known

    def _rows_of(self, X, sample_weight):
        """Return how many rows are given; which, and how often they count."""
        rows = check_rows(X, self.model)
        weight = check_weight(sample_weight, rows.size)
        return rows.size, *weigh_rows(rows, weight)

    @with_callbacks
    def _fit(self, X, sample_weight, before=None, again=None):
        """Fit rows.

        Parameters
        ----------
        before : MeanField, FullRank or LowRank, default=None
            The posterior of earlier rows, of a stream.
        again : Seen, default=None
            These and earlier rows, which are to be fitted instead.
        """
        began = time.perf_counter()
        if of_dask(X) or of_dask(sample_weight):
            raise TypeError(
                "VariationalInference takes no dask array: its model owns the data, "
                "and X are but numbers of rows."
            )
        check_model(self.model)
        n_rows, *rows = self._rows_of(X, sample_weight)
        # With covariances it is a part of the log density, in place of the model's.
        own = getattr(self.model, "log_prior", None)  # None of a JaxModel without
        apart = isinstance(before, MeanField) and own is None
        within = None if apart else before
        if again is not None:
            rows, within = [again.rows, again.weight], again.within
        d = int(self.model.n_parameters)
        if before is not None and before.n_dim != d:
            raise ValueError(
                f"the model has {d} parameters, and the posterior {before.n_dim}: "
                "partial_fit goes on with the same ones; use fit."
            )
        units = self._units()
        known = None if within is None else within.scaled(1.0 / units)
        target = Target(self.model, *rows, known, units)
        prior = None if again is None else again.prior
        prior = self._prior(target, before) if prior is None else prior
        plan = plan_fit(self, d, 1, True, target.sparse)
        target.sparse &= plan.posterior == "meanfield"
        rng = as_generator(self.random_state)
        start = prior.mean if before is None else before.mean
        if before is None and getattr(self.model, "initial", None) is not None:
            start = check_vector(self.model.initial, d, "initial of the model")
        batch, few = plan.name == "batch", not plan.rank and d <= FULL_RANK
        whole = plan.posterior == "fullrank" or (batch and few)
        start = start / units
        check_density(target, start, whole, products=not (batch and whole))
        names = check_names(self.model)
        n_pairs = pairs_of_draws(self, plan, target.rows.size, d)
        draws = opposite_draws(rng, n_pairs, d)
        given = prior.scaled(1.0 / units)
        if plan.rank:
            model = LowRankModel(target, given, plan.rank, draws)
        else:
            model = DrawnModel(target, given, as_structure(plan.posterior), draws)
        last = vars(self).get("posterior_") if self.warm_start else None
        warm = last is not None and last.n_dim == d
        point = model.point_of(last.scaled(1.0 / units)) if warm else None

        def describe(point, objective):
            return {
                **self._attributes(model, point),
                "parameter_names_": names,
                "elbo_": objective,
                "elbo_se_": math.nan,
                "objective_": objective,
                "n_passes_": target.n_evaluated / target.rows.size,
                "n_samples_seen_": n_rows,
                "solver_": plan.name,
                "optimizer_": plan.optimizer,
            }

        with Progress(self, X, None, 1) as progress:
            report = progress.start(0, describe)
            fit = Fit(self, model, plan, start, rng, began, report)
            point, curvature = fit.double_draws(*fit.run(point))
            report.end()
        # A diagonal that is an estimate would be an error that the draws do not know.
        exact = d <= FULL_RANK or target.knows_diagonal
        exact = exact and steps_of(self).control_variate is not None
        n_pairs = int(np.clip(2 * n_pairs, *BOUND_PAIRS))
        control = curvature if exact else None

        def bound(n_pairs):
            return model.bound(point, rng.standard_normal((n_pairs, d)), control)

        most = max(1, BOUND_LOOKS // (2 * self.model.n_samples))
        elbo, error = mean_within(self.tol, bound, n_pairs, most)
        result = fit.runs.result()
        vars(self).update(
            describe(point, result.objective),
            elbo_=elbo,
            elbo_se_=error,
            step_size_=fit.step_size,
            batch_size_=fit.batch_size,
            _rows=(*rows, within, prior),
            **result.attributes(),
        )
        self._seen = Seen.of(self.model, *self._rows, self.posterior_)
        warn_not_converged(self, result, unit="", advice=CLOSER)

    def _prior(self, target, before=None):
        """Return the Gaussian prior, or none where the log density has it."""
        d, name = target.n_dim, f"of {type(self).__name__}"
        if before is not None:
            return before if target.prior is None else FlatPrior(d)
        if target.has_prior:
            if self.prior_scale is not None:
                raise ValueError(
                    f"the model has a log_prior of its own: leave prior_scale {name} "
                    f"to None, got {self.prior_scale!r}."
                )
            return FlatPrior(d)
        mean = check_vector(self.prior_mean, d, f"prior_mean {name}")
        return MeanField(mean, self._units())

    def _units(self):
        """Return the scales of the Gaussian prior, which a fit works in; or ones."""
        name = f"prior_scale of {type(self).__name__}"
        scale = 1.0 if self.prior_scale is None else self.prior_scale
        scale = check_vector(scale, int(self.model.n_parameters), name)
        if not ((scale >= LEAST_SCALE) & (scale <= MOST_SCALE)).all():
            raise ValueError(
                f"{name} must be positive, from {LEAST_SCALE:g} to {MOST_SCALE:g}, "
                f"got {self.prior_scale!r}."
            )
        return scale

    def _attributes(self, model, point):
        q = model.posterior(point.parameters).scaled(model.target.units)
        return {"posterior_": q, "mean_": q.mean, "std_": q.scale}

    def sample_posterior(
        self, n_samples: int = 1, random_state: Any = None, *, corrected: bool = False
    ) -> dict:
        """Draw parameters from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            How many draws.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.
        corrected : bool, default=False
            Choose among four times as many draws, and 4,000 at least, by their
            importance weights, the largest Pareto smoothed [1]_: nearer to the exact
            posterior where ``pareto_k_`` is below 0.7, of no use above. Some draws come
            more than once.

        Returns
        -------
        draws : dict of str to ndarray of shape (n_samples, ...)
            "parameters" (n_parameters), or the dict that ``unravel`` of the model
            makes of them; where that makes something else, it is "parameters".

        References
        ----------
        .. [1] Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance
           sampling. Journal of Machine Learning Research 25.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        draw = self._corrected if corrected else self.posterior_.sample
        draws = draw(n_samples, rng)
        unravel = getattr(self._of_fit.model, "unravel", None)
        shaped = draws if unravel is None else unravel(draws)
        return shaped if isinstance(shaped, dict) else {"parameters": shaped}

    def score_samples(self, X: Given = None) -> np.ndarray:
        """Return the log predictive density of rows, averaged over the posterior.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of rows, as in `fit`.

        Returns
        -------
        log_density : ndarray of shape (n_rows,)
            In nats, from 100 draws that are always the same.
        """
        check_is_fitted(self)
        each = self._log_likelihoods(
            X, self.posterior_.sample(PREDICT_DRAWS, np.random.default_rng(0))
        )
        return np.logaddexp.reduce(each, axis=0) - np.log(PREDICT_DRAWS)

    def score(self, X: Given = None, y: Any = None) -> float:
        """Return the mean log predictive density of rows, in nats a row.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of rows, as in `fit`: those that were left out of it, say.
        y : None
            Ignored.

        Returns
        -------
        score : float
            The mean of `score_samples`.
        """
        return float(self.score_samples(X).mean())

    def _log_likelihoods(self, X, draws):
        """Return log p(row | draw), (n_draws, n_rows)."""
        check_in_memory(X=X)
        model = self._of_fit.model
        target = Target(model, check_rows(X, model))
        return np.stack([target.each(z, target.rows) for z in draws])

    def _n_looked_at(self):
        """See `ParetoMixin`."""
        return self._rows[0].size

    def _log_joint(self, draws):
        """See `ParetoMixin`."""
        *rows, prior = self._rows
        target = Target(self._of_fit.model, *rows)
        each = np.array([target.log_density(z) for z in draws])
        return each + prior.logpdf(draws)

    def to_arviz(self, X=None, n_samples=1000, random_state=None):
        """Return draws from the posterior and what they say of rows, for ArviZ.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of rows that log-likelihoods are wanted of, as in `fit`.
        n_samples : int, default=1000
            How many draws, independent of each other: one chain.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        data : arviz.InferenceData
            With the groups posterior and log_likelihood: one variable, "parameters",
            or those of the dict that ``unravel`` of the model returns.

        Raises
        ------
        ImportError
            Where ArviZ is not installed.
        """
        return super().to_arviz(X, None, n_samples, random_state)

    def _draws(self, X, y, n_samples, rng):
        """See `ArviZMixin`."""
        draws = self.posterior_.sample(n_samples, rng)
        each = self._log_likelihoods(X, draws)
        unravel = getattr(self._of_fit.model, "unravel", None)
        shaped = draws if unravel is None else unravel(draws)
        if isinstance(shaped, dict):
            return Draws(shaped, {}, {}, each, None)
        dims = {"parameters": ["parameter"]}
        coords = {"parameter": self.parameter_names_}
        return Draws({"parameters": draws}, dims, coords, each, None)

    def summary(self) -> Any:
        """Return a table of the parameters.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a parameter with its mean, standard deviation and 95 % interval. The
            frame's ``attrs`` hold the bound, its standard error, the solver and
            convergence; the text ends with them.
        """
        check_is_fitted(self)
        columns = interval_columns(self.mean_, self.std_)
        kind = type(self.posterior_).__name__
        bound = hasattr(self, "elbo_")
        facts = {"elbo": self.elbo_, "its se": self.elbo_se_} if bound else {}
        facts |= {
            "posterior": kind,
            "solver": self.solver_,
            "passes": self.n_passes_,
            "converged": self.converged_,
        } | self._fact_of_k()
        if kind == "MeanField":
            facts["note"] = (
                "a mean-field posterior has standard deviations that are too small "
                "where parameters go together"
            )
        return summary_table(columns, self.parameter_names_, facts)
