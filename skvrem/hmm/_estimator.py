"""The scikit-learn shell of the hidden Markov model."""

from copy import copy
from functools import partial
from itertools import chain, cycle, repeat
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import schedules, solvers
from skvrem.hmm import _forecast, _inference, _intervals, _stream
from skvrem.hmm._blocks import open_blocks
from skvrem.hmm._curves import emission_curves
from skvrem.hmm._inference import PerRow
from skvrem.hmm._input import (
    attributes_of,
    emitted_columns,
    fitted_parameters,
    naming_impossible,
    observed_names,
    open_rows,
)
from skvrem.hmm._model import HMMModel
from skvrem.hmm._plan import check_solver, plan_fit
from skvrem.hmm._start import (
    Moves,
    are_alike,
    given_start,
    starting_parameters,
    take_sample,
    warm_parameters,
)
from skvrem.hmm.clusters._atoms import find_atoms
from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._gaussian import Gaussian
from skvrem.hmm.emissions.continuous._angles import VonMises
from skvrem.hmm.emissions.continuous._positive import Gamma
from skvrem.hmm.emissions.discrete._categories import Categorical
from skvrem.hmm.emissions.discrete._counts import Poisson
from skvrem.hmm.emissions.discrete._trials import Bernoulli
from skvrem.hmm.transitions._homogeneous import (
    Homogeneous,
    Transitions,
    check_startprob,
)
from skvrem.utils._base import VersionedPickle, summary_table
from skvrem.utils._columns import check_column
from skvrem.utils._remote import of_dask
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    find_collapsed,
    warn_not_converged,
    warn_scale,
    with_callbacks,
)
from skvrem.utils._validation import (
    AT_LEAST_1,
    all_or_nothing,
    check_options,
    check_order,
    check_parameters,
)

EMISSIONS = {
    "gaussian": Gaussian,
    "poisson": Poisson,
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "gamma": Gamma,
    "vonmises": VonMises,
}


def _of_emission(name, family, field, text):
    """Return a property of the estimator that is an attribute of one family."""

    def get(self):
        check_is_fitted(self)
        if type(self.emission_).__name__ != family:
            raise AttributeError(
                f"{name} is an attribute of {family} emissions; this model has "
                f"{type(self.emission_).__name__}, see emission_."
            )
        value = getattr(self.emission_, field)
        return value() if callable(value) else value

    def refuse(self, value):
        begin = f"{field.removeprefix('full_').removesuffix('_')}_init"
        raise AttributeError(
            f"{name} is what a fit finds and is not set. Values to begin from are "
            f"emission={family}({begin}=...), and what stays the same has no _init."
        )

    return property(get, refuse, doc=text)


class VRHMM(CallbackSupportMixin, VersionedPickle, BaseEstimator):
    r"""Hidden Markov model of one or many sequences.

    A row of X is an observation, and the rows of a sequence follow each other in time.
    Fitted by Baum-Welch (EM), 16 stretches of the data side by side in the lanes of
    the processor's vectors; the likelihood is exact.

    Parameters
    ----------
    n_components : int, default=1
        Number of states.
    emission : str or emission family, default="gaussian"
        Distribution of a row given the state: "gaussian", "poisson", "bernoulli",
        "categorical", "gamma", "vonmises", or an object such as
        ``Gaussian("full", mean_init=...)`` or a ``Product`` of families over columns.
    covariance_type : {"diag", "full", "tied", "spherical"}, default="diag"
        Of ``emission="gaussian"``; an object has its own.
    reg_covar : float or "auto", default="auto"
        Added to the variances of ``emission="gaussian"``. "auto" is 1e-6 of the
        variance of each column (of the least one if "spherical").
    transitions : Homogeneous, Hierarchical or Covariates, default=None
        Masks, fixed entries, starting values and priors of the transition matrix, or
        transitions that change with columns of X.
    startprob : str or array-like of shape (n_components,), default="free"
        Distribution of the first state: "free" is estimated, "stationary" that of the
        long run under the transition matrix, an array is given, but for NaN.
    startprob_init : array-like of shape (n_components,), default=None
        Starting values of it; None is uniform.
    startprob_prior : float, default=1.0
        Parameter of a symmetric Dirichlet distribution of it; 1 is none.
    groups : str or int, default=None
        Name or number of a column of X that holds the ids of the sequences. It works
        in every tool that passes X on, and is not an observed feature.
    algorithm : {"viterbi", "map"}, default="viterbi"
        What `predict` returns: the most probable path, or the most probable state of
        each row.
    solver : str, default="auto"
        "auto", "batch", "incremental", "svrg", "saga" or "stochastic".
        "batch" is Baum-Welch; "auto" is that with SQUAREM. "incremental" cuts the rows
        into blocks that hand on their messages and updates the model after each:
        fewer passes, of more work each. "svrg" and "saga" are those of [1]_: M steps
        by variance-reduced gradients in free coordinates. They are slower where the M
        step has a closed form, and more often leave a poor optimum. "stochastic" is
        stochastic EM with decreasing steps, on blocks of whole sequences, and batch
        steps from where it would end by `tol`.
    acceleration : {"auto", "squarem", "lbfgs", None}, default="auto"
        On top of "batch": extrapolation [2]_, which "auto" is with ``solver="auto"``
        and not with "batch"; or, after 6 epochs, quasi-Newton steps
        by the exact gradient, whose first metric is the information of the complete
        data. Where Baum-Welch is slow, because states overlap, the latter needs the
        fewest passes.
    batch_size : int or "auto", default="auto"
        Rows of a block, rounded to a multiple of 128 or more. "auto" is 4096 for
        "incremental" and "stochastic", and at least 8 blocks; for "svrg" and "saga"
        single rows, of the families that strings name, `MixtureGaussian` and products
        of these, else a thousandth of the rows: with priors, first states as in the
        long run, and rows of full covariances that are missing in part, too.
    partial_e_step : bool, default=True
        "svrg" and "saga" renew the posteriors of the rows that they visit.
    inner_iter : int, default=1
        Times that "svrg" and "saga" visit every row between two full E steps.
    max_iter : int, default=500
        Epochs: passes over the data; of "incremental" a pass and two sweeps over the
        blocks, of "svrg" and "saga" a pass and a stochastic M step.
    tol : float, default=1e-6
        Converged when less than this is left to gain, in nats a row, as the last gains
        tell.
    tempering : {None, "annealed"}, default=None
        "annealed" is deterministic annealing: posteriors are flattened by a
        temperature that comes down to 1. Less dependent on the start, slower.
    temperature : float, default=3.0
        Where annealing starts.
    annealing_iter : int, default=20
        Epochs it takes to come down to 1.
    step_size : float or "auto", default="auto"
        Factor of the steps of :meth:`partial_fit` and "stochastic", and of those of
        "svrg" and "saga", which a line search finds; "auto" is 1.
    step_decay, step_offset : float, default=0.6, 2.0
        Steps of :meth:`partial_fit` and "stochastic" are
        ``step_size * (t + step_offset) ** -step_decay``.
    n_init : int or "auto", default="auto"
        Starts, of which each goes to its end and the best is kept. "auto" is a race: 12
        starts make 3 epochs (of long data on a quarter of the rows, 25,000 to 200,000
        of them, or 1,000 a parameter if that is more), the best 4 of them 4 more, the
        best 2 (with minibatches 1) go to the end. Where passes are cheap more are worth
        about half a second. Full passes over short data, whose rows times states times
        the sum of features of a row, states and 6 are 200,000 at most, make 32 starts,
        of which half go on after 15 epochs and half of these after 40 more; up to
        2,000,000, 32 of which a quarter go on after 5 epochs and an eighth to the end
        after 5 more; and beyond as many fewer as passes cost more, down to the 12.
        Features are 3 a column with variances and (d + 1) (d + 2) / 2 of d columns with
        full covariances; families that look at rows again count eight times, and
        between the first of these limits and twelve starts are worth 16, which go on as
        those of short data. Nine states or more, or phases of segments in up to 25,000
        rows, are worth 20 where data are not short: half of them go on after 5 epochs,
        again after 10 more, and after 40 more. Of codes 32 starts (of more than 60,000
        rows times states fewer, down to 12, or 20 of many states) go on as those of
        short data. Nobody goes on whom as many epochs again, each as good as the last,
        would not bring up to the best.
        One more begins with a state at values that come again and again, as no change
        of a price, where three states or more of a continuous family, or part of a
        `Product`, each have a width of their own, as of ``Gaussian("diag")``.
        There is one start where there is one state, or with annealing. Of five to eight
        states one of 12 goes to its end; from five on an end leads on by moves that
        split one state and leave another to the others, unless something is known of
        them: labels, given parameters, an order, covariates.
    init_params : {"kmeans", "random"}, default="kmeans"
        The first start from clusters of rows and the others from randomly chosen rows,
        or every second one of a given number; or all from these. Every third start
        looks at means of a few rows in place of rows, or the other way round: every
        second of the latter is from clusters too, which find the few rows that lie far
        out. Starts of codes (`Categorical`) are by turns states of codes that come
        before and after the same ones, random probabilities, and either of the former;
        or all random. Three of four starts of a `Regression` have states that each fit
        a few rows.
    warm_start : bool, default=False
        Start from the last solution.
    random_state : int, RandomState instance or None, default=None
        Seeds the starts and `sample`.
    verbose : int, default=0
        1: a progress bar, or a line every `verbose_interval` epochs; 2: every epoch.
    verbose_interval : int, default=10
        Epochs between two lines.
    n_jobs : int or None, default=None
        Threads; None is all cores, and one inside a joblib or dask worker. Results do
        not depend on it.

    Attributes
    ----------
    startprob_ : ndarray of shape (n_components,)
    transmat_ : ndarray of shape (n_components, n_components)
        Probability of the state in the column after that in the row.
    transitions_ : family of transitions
        With its fitted attributes, as ``transitions_.coarse_transmat_``.
    stationary_ : ndarray of shape (n_components,)
        Probabilities of the states in the long run.
    emission_ : emission family
        With its fitted attributes, as ``emission_.mean_``.
    means_, covars_ : ndarray
        Of Gaussian emissions, shapes (n_components, n_features) and
        (n_components, n_features, n_features).
    lambdas_ : ndarray of shape (n_components, n_features)
        Of Poisson emissions.
    emissionprob_ : ndarray of shape (n_components, n_categories)
        Of categorical emissions.
    objective_ : float
        In nats a row: the log-likelihood, and that of the priors where there are any.
        What ``history_["objective"]`` ends with.
    log_likelihood_ : float
        The same without the priors.
    n_parameters_ : int
        Free parameters; what is masked or fixed does not count.
    converged_ : bool
    n_iter_ : int
        Epochs of the start that was continued, those on all rows.
    history_ : dict of ndarray
        passes, seconds, objective, step_size, temperature by epoch.
    init_scores_ : ndarray of shape (n_init,)
        Objective that each start reached.
    init_epochs_ : ndarray of shape (n_init,)
        Epochs that each start made.
    solver_ : str
        What was used.
    n_samples_seen_ : int
        Rows of all fits since the last start.
    levels_ : dict of ndarray
        Of columns of text that transitions or emissions depend on, by name or number:
        their levels, of which the first is the reference of the others.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    VRGaussianMixture : The same without time.

    Notes
    -----
    NaN is a value missing at random: it is integrated out, exactly, in single values
    and in whole rows. A state that loses all its rows keeps its parameters.

    Where every parameter is given (of the emissions, ``startprob``, and
    ``Homogeneous(fixed=...)``) nothing is left to fit: `sample`, `predict`, `score`
    and the other answers need no `fit`.

    References
    ----------
    .. [1] Sidrow, Heckman, Bouchard-Côté, Fortune, Trites, Auger-Méthé (2024).
       Variance-reduced stochastic optimization for efficient inference of hidden
       Markov models. Journal of Computational and Graphical Statistics, 33.
    .. [2] Varadhan, Roland (2008). Simple and globally convergent methods for
       accelerating the convergence of any EM algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import VRHMM
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 50)
    >>> X = 3.0 * states[:, None] + rng.normal(size=(200, 1))
    >>> hmm = VRHMM(2, random_state=0).fit(X)
    >>> np.sort(hmm.means_.ravel()).round(1)
    array([0. , 2.9])
    >>> hmm.predict(X).shape
    (200,)
    """

    _state_format = 4
    # Sequence ids go with X wherever metadata routing is on.
    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__partial_fit: ClassVar = {"groups": True}
    __metadata_request__predict: ClassVar = {"groups": True}
    __metadata_request__predict_proba: ClassVar = {"groups": True}
    __metadata_request__score: ClassVar = {"groups": True}

    def __init__(
        self,
        n_components: int = 1,
        *,
        emission: str | BaseEstimator = "gaussian",
        covariance_type: Literal["diag", "full", "tied", "spherical"] = "diag",
        reg_covar: float | Literal["auto"] = "auto",
        transitions: BaseEstimator | None = None,
        startprob: str | ArrayLike = "free",
        startprob_init: ArrayLike | None = None,
        startprob_prior: float = 1.0,
        groups: str | int | None = None,
        algorithm: Literal["viterbi", "map"] = "viterbi",
        solver: Literal[
            "auto", "batch", "stochastic", "svrg", "saga", "incremental"
        ] = "auto",
        acceleration: Literal["auto", "squarem", "lbfgs"] | None = "auto",
        batch_size: int | Literal["auto"] = "auto",
        partial_e_step: bool = True,
        inner_iter: int = 1,
        max_iter: int = 500,
        tol: float = 1e-6,
        tempering: Literal["annealed"] | None = None,
        temperature: float = 3.0,
        annealing_iter: int = 20,
        step_size: float | Literal["auto"] = "auto",
        step_decay: float = 0.6,
        step_offset: float = 2.0,
        n_init: int | Literal["auto"] = "auto",
        init_params: Literal["kmeans", "random"] = "kmeans",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
        n_jobs: int | None = None,
    ):
        self.n_components = n_components
        self.emission = emission
        self.covariance_type = covariance_type
        self.reg_covar = reg_covar
        self.transitions = transitions
        self.startprob = startprob
        self.startprob_init = startprob_init
        self.startprob_prior = startprob_prior
        self.groups = groups
        self.algorithm = algorithm
        self.solver = solver
        self.acceleration = acceleration
        self.batch_size = batch_size
        self.partial_e_step = partial_e_step
        self.inner_iter = inner_iter
        self.max_iter = max_iter
        self.tol = tol
        self.tempering = tempering
        self.temperature = temperature
        self.annealing_iter = annealing_iter
        self.step_size = step_size
        self.step_decay = step_decay
        self.step_offset = step_offset
        self.n_init = n_init
        self.init_params = init_params
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        emission = self.emission
        if isinstance(emission, str):
            emission = EMISSIONS.get(emission)
        tags.input_tags.allow_nan = getattr(emission, "allows_nan", True)
        return tags

    def _check_parameters(self):
        check_parameters(self, solver=None, startprob_prior=AT_LEAST_1)
        check_options(self, solver=solvers.names_for(HMMModel))
        check_solver(self)
        if isinstance(self.emission, str):
            check_options(self, emission=tuple(EMISSIONS))
        elif not isinstance(self.emission, Emission):
            raise ValueError(
                f"emission must be one of {', '.join(map(repr, EMISSIONS))} or an "
                f"emission family, got {self.emission!r}."
            )
        if not (self.transitions is None or isinstance(self.transitions, Transitions)):
            raise ValueError(
                "transitions must be Homogeneous(...) or another family of them, got "
                f"{self.transitions!r}."
            )
        if isinstance(self.startprob, str) and self.startprob == "stationary":
            if not isinstance(self.transitions, Homogeneous | None):
                raise ValueError(
                    "startprob='stationary' is the long run of transitions that are "
                    f"always the same, which {type(self.transitions).__name__} are not."
                )
        check_column(self, "groups")
        check_startprob(self)

    def _family(self):
        """Return an emission family that is not opened yet."""
        if self.emission == "gaussian":
            return Gaussian(self.covariance_type, reg_covar=self.reg_covar)
        if isinstance(self.emission, str):
            return EMISSIONS[self.emission]()
        return clone(self.emission)

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        sample_weight: PerRow = None,
        groups: PerRow = None,
        lengths: ArrayLike | None = None,
        state_labels: PerRow = None,
    ) -> Self:
        """Estimate the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of sequences, one after another; NaN is missing.
        y : Ignored
            Present by convention, with an entry a row; `lengths` go by name.
        sample_weight : array-like of shape (n_samples,), default=None
            Sequences count so many times: the same for all rows of one.
        groups : array-like of shape (n_samples,), default=None
            The id of each row's sequence, rows of which follow each other; None is one
            sequence. Requested by default where metadata routing is on.
        lengths : array-like of int, default=None
            Lengths of the sequences, in place of `groups`. Cross-validation does not
            cut them.
        state_labels : array-like of int of shape (n_samples,), default=None
            States that are known, -1 where they are not.

        Returns
        -------
        self : VRHMM
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, rows that the emissions do not know, sequences
            that do not add up, fewer rows than states, or a row that no path of states
            can reach. The estimator is then as it was before.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        DataScaleWarning
            If a given `reg_covar` is more than 1 % of the variance of a column, or one
            above 1e-6 more than all variances.
        CollapsedComponentWarning
            If states of continuous emissions have come down to the least width of
            their family on few rows, from all starts; or in some column on any rows,
            where that is a constant, and not a parameter as `reg_covar` of Gaussians.
        """
        given = sample_weight, groups, lengths, state_labels
        with all_or_nothing(self), solvers.checkpointed(self, X, *given):
            self._fit(X, y, *given)
        return self

    @with_callbacks
    def _fit(self, X, y, *given, led=None):
        opened = open_blocks if of_dask(X) else partial(open_rows, fresh=True)
        sequences, data, model = opened(self, X, y, *given)
        dtype = sequences.X.dtype
        warm = self.warm_start and hasattr(self, "transmat_")
        plan, visited, n_init, moving, lead = plan_fit(self, model, data, warm, led)
        atoms, n_others = None, n_init
        if self.n_init == "auto" and n_init > 1 and are_alike(self, model, data):
            atoms = find_atoms(model.emission, sequences.X)
            n_init += atoms is not None
        seen = int(sequences.bounds[-1]) + (self.n_samples_seen_ if warm else 0)

        def describe(point, objective):
            prior = model.log_prior(point.parameters) / model.total
            return attributes_of(model, point, dtype) | {
                "objective_": objective,
                "log_likelihood_": objective - prior,
                "n_parameters_": model.n_parameters(),
                "n_samples_seen_": seen,
            }

        temperature = schedules.Constant(1.0)
        if self.tempering is not None:
            temperature = schedules.Linear(self.temperature, self.annealing_iter)
        others = "others" if self.init_params == "kmeans" else "random"
        methods = cycle((self.init_params, others))
        if self.n_init == "auto":
            methods = chain((self.init_params,), repeat(others))

        names = observed_names(self)

        def collapsed(point):
            found = _widths(model, point, names)
            return any(find_collapsed(*about).any() for about, _ in found)

        sample, begun, again = None, 0, None

        def start(rng):
            nonlocal sample, begun, again
            leads = lead is not None and begun == n_others - 1
            if leads:
                # What fewer rows did not hold would stay impossible.
                parameters = model.relax(fitted_parameters(lead), data.rows)
            elif warm:
                parameters = warm_parameters(self, model, data)
            else:
                parameters = given_start(model)
            if parameters is None:
                sample = sample or take_sample(model, data, rng)
                method = atoms if begun == n_others else next(methods)
                parameters = starting_parameters(model, sample, method, begun, rng)
                # That at atoms has moves of its own: others know nothing of it.
                if moving and (again is None or method is atoms):
                    again = Moves(model, data, sample, plan.sample or data)
            beside, begun = begun == n_others, begun + 1
            if begun == n_init:
                sample = None  # free to go
            point = model.start(parameters)
            how = {"temperature": temperature, "degenerate": collapsed}
            how |= {"apart": leads, "beside": beside}
            return solvers.Start(model, point, describe, **how, again=again)

        with Progress(self, X, y, n_init) as progress, naming_impossible(sequences):
            random_state = check_random_state(self.random_state)
            best, attributes = solvers.run_starts(
                self, start, plan, visited, progress, random_state
            )
            if self.acceleration == "lbfgs":  # whose points have no statistics
                point = best.point._replace(statistics=model.mean(best.point, data))
                best = best._replace(point=point)
                attributes |= describe(point, best.objective)
        warn_not_converged(self, best)
        if best.converged:
            for found, own in _widths(model, best.point, names):
                if warn_scale(self, *found, often=own):
                    break
        for name in ("_carried", "_first"):  # of a stream that is past
            vars(self).pop(name, None)
        vars(self).update(attributes)

    def partial_fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        sample_weight: PerRow = None,
        groups: PerRow = None,
        lengths: ArrayLike | None = None,
        state_labels: PerRow = None,
        continues: bool = False,
    ) -> Self:
        """Update the model with some sequences, or the next rows of an endless one.

        The first 1,000 rows (two for each parameter if that is more, 10,000 at most)
        are kept, and fitted as `fit` does whenever they have doubled, so that they may
        come in batches of any size, of which the first has a row for each state or
        more; states may change their order then, unless `relabel` has been called.
        With ``n_init="auto"`` where the last of these fits has led to is a start of the
        next, and only the last one of all has as many others as a `fit`. A later batch
        is a step of stochastic EM: the statistics move by
        ``step_size * (t + step_offset) ** -step_decay`` towards those of the batch,
        where t is the number of such batches seen; a batch of fewer rows than those
        that were kept makes its share of a step. Goes on from a `fit`.
        What batches may hold later need not be in the first, but the number of
        categories must be given, as ``Categorical(n_categories=...)``, if it is not.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of sequences, one after another; NaN is missing.
        y : Ignored
            Present by convention, with an entry a row; `lengths` go by name.
        sample_weight : array-like of shape (n_samples,), default=None
            Sequences count so many times: the same for all rows of one.
        groups : array-like of shape (n_samples,), default=None
            The id of each row's sequence; None is one sequence.
        lengths : array-like of int, default=None
            Lengths of the sequences, in place of `groups`.
        state_labels : array-like of int of shape (n_samples,), default=None
            States that are known, -1 where they are not.
        continues : bool, default=False
            The first row follows the last row of the last batch, whose state's
            probabilities have been kept.

        Returns
        -------
        self : VRHMM
            The fitted model.
        """
        structure = vars(self).get("_fit_parameters")
        with all_or_nothing(self):
            given = y, sample_weight, groups, lengths, state_labels
            _stream.step(self, X, continues, *given)
        # What later batches are given to counts as it did for the first.
        if structure is not None:
            self._fit_parameters = structure
        return self

    # Answers are functions of a fitted state, documented where they are computed.

    predict = _inference.predict
    decode = _inference.decode
    predict_proba = _inference.predict_proba
    filter_proba = _inference.filter_proba
    score_samples = _inference.score_samples
    score = _inference.score
    aic = _inference.aic
    bic = _inference.bic
    pseudo_residuals = _inference.pseudo_residuals
    sample_states = _inference.sample_states
    forecast = _forecast.forecast
    sample = _forecast.sample
    confidence_intervals = _intervals.confidence_intervals
    transition_proba = _intervals.transition_proba
    stationary_proba = _intervals.stationary_proba
    # What displays name, and draw.
    _emitted_columns = emitted_columns
    _emission_curves = emission_curves

    @property
    def stationary_(self):
        """Probabilities of the states in the long run, at the mean of covariates."""
        check_is_fitted(self)
        return _intervals.long_run(self.transmat_[None])[0]

    def relabel(self, order):
        """Put the states into another order, in place.

        What was given of a state (fixed parameters and probabilities, priors, masks)
        stays that of the same state: in `partial_fit`, and in a fit with `warm_start`,
        which takes the constructor's parameters in the order that they had in the
        first fit.

        Parameters
        ----------
        order : array-like of int of shape (n_components,)
            ``order[0]`` is the state that becomes the first.

        Returns
        -------
        self : estimator
            The same, with every fitted array in the new order.
        """
        startprob, packed, emission = fitted_parameters(self)
        order = check_order(order, len(startprob))
        # Copies of the estimator may share all that it holds.
        family, transitions = copy(self.emission_), copy(self.transitions_)
        dtype = self.startprob_.dtype
        start, pairs, features = self._sums
        packed = transitions.permute(packed, order)
        pairs = transitions.permute(pairs, order)
        transitions.reorder(order)
        family.reorder(order)
        family.publish(emission[order], dtype)
        found = {
            "startprob_": self.startprob_[order],
            "transmat_": transitions.publish(packed, dtype),
            "transitions_": transitions,
            "emission_": family,
            "_sums": (start[order], pairs, family.permute(features, order)),
        }
        if hasattr(self, "_carried"):
            carried, inputs = self._carried
            found["_carried"] = carried[order], inputs
        vars(self).update(found)
        vars(self).pop("_first", None)  # another fit would have its own order
        return self

    def summary(self):
        """Return a table of the states.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a state: its share of the rows, expected number of rows until it is
            left, and parameters of its emissions. The frame's ``attrs`` hold
            log-likelihood, number of parameters, solver, convergence, passes; the text
            ends with them.
        """
        check_is_fitted(self)
        share = self.emission_.row_weight(self._sums[2])
        with np.errstate(divide="ignore"):
            staying = np.minimum(np.diagonal(self.transmat_), 1.0)
            duration = 1.0 / (1.0 - staying)
        columns = {"share": share / share.sum(), "duration": duration}
        columns |= self.emission_.describe(observed_names(self))
        facts = {
            name: getattr(self, f"{name}_")
            for name in ("log_likelihood", "n_parameters", "solver", "converged")
        }
        if hasattr(self, "history_"):  # a stream has none
            facts["passes"] = float(self.history_["passes"][-1])
        index = [f"state {k}" for k in range(len(share))]
        return summary_table(columns, index, facts)

    means_ = _of_emission(
        "means_", "Gaussian", "mean_", "Means of Gaussian emissions, a row a state."
    )
    covars_ = _of_emission(
        "covars_",
        "Gaussian",
        "full_covariance",
        "Covariance matrices of Gaussian emissions, one a state.",
    )
    lambdas_ = _of_emission(
        "lambdas_", "Poisson", "rate_", "Rates of Poisson emissions, a row a state."
    )
    emissionprob_ = _of_emission(
        "emissionprob_",
        "Categorical",
        "probability_",
        "Probabilities of categories, a row a state.",
    )


def _widths(model, point, names):
    """Yield what says whether variances of states are those of reg_covar alone.

    And whether that is no parameter, but the least width of a family.
    """
    about = point.parameters.emission, point.statistics.features, names
    for (*found, weight), own in model.emission.floors(*about):
        yield (*found, weight * model.total), own
