"""The scikit-learn shell of the hidden Markov model: parameters and fit."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from skvrem import solvers
from skvrem.hmm._description import HMMDescription
from skvrem.hmm._fitting import HMMFitting
from skvrem.hmm._forecast import HMMOutlook
from skvrem.hmm._inference import HMMInference
from skvrem.hmm._intervals import HMMIntervals
from skvrem.hmm._model import HMMModel
from skvrem.hmm._plan import check_solver
from skvrem.hmm._stream import HMMStream
from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._continuous import Gamma, VonMises
from skvrem.hmm.emissions._discrete import Bernoulli, Categorical, Poisson
from skvrem.hmm.emissions._gaussian import Gaussian
from skvrem.hmm.transitions._homogeneous import (
    Homogeneous,
    Transitions,
    check_startprob,
)
from skvrem.utils._base import VersionedPickle
from skvrem.utils._columns import check_column
from skvrem.utils._parallel import threads
from skvrem.utils._reports import CallbackSupportMixin
from skvrem.utils._validation import (
    all_or_nothing,
    check_integer,
    check_options,
    check_real,
)

__all__ = ["VRHMM"]

EMISSIONS = {
    "gaussian": Gaussian,
    "poisson": Poisson,
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "gamma": Gamma,
    "vonmises": VonMises,
}


class VRHMM(
    HMMFitting,
    HMMInference,
    HMMDescription,
    HMMOutlook,
    HMMIntervals,
    HMMStream,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
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
    reg_covar : float, default=1e-6
        Added to the variances of ``emission="gaussian"``.
    transitions : Homogeneous, Hierarchical or Covariates, default=None
        Masks, fixed entries, starting values and priors of the transition matrix, or
        transitions that change with columns of X.
    startprob : str or array-like of shape (n_components,), default="free"
        Distribution of the first state: "free" is estimated, "stationary" that of the
        long run under the transition matrix, an array is given.
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
        stochastic EM with decreasing steps, on blocks of whole sequences.
    acceleration : {None, "squarem", "lbfgs"}, default=None
        On top of "batch": extrapolation [2]_; or, after 6 epochs, quasi-Newton steps
        by the exact gradient, whose first metric is the information of the complete
        data. Where Baum-Welch is slow, because states overlap, the latter needs the
        fewest passes.
    batch_size : int or "auto", default="auto"
        Rows of a block, rounded to a multiple of 128 or more. "auto" is 4096 for
        "incremental" and "stochastic", and at least 8 blocks; for "svrg" and "saga"
        single rows where emissions are Gaussian with ``covariance_type="diag"`` and
        nothing is fixed, masked, missing, weighted, labelled or has a prior, else a
        thousandth of the rows.
    partial_e_step : bool, default=True
        "svrg" and "saga" renew the posteriors of the rows that they visit.
    inner_passes : int, default=1
        Times that "svrg" and "saga" visit every row between two full E steps.
    max_iter : int, default=500
        Epochs: passes over the data; of "incremental" a pass and two sweeps over the
        blocks, of "svrg" and "saga" a pass and a stochastic M step.
    tol : float, default=1e-6
        Converged when an epoch gains less than this, in nats a row.
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
        Starts. Each makes 6 epochs, and the best goes on; with annealing each goes to
        its end. "auto" is 8, or 1 where there is one state, or with annealing.
    init_params : {"kmeans", "random"}, default="kmeans"
        Starts from clusters of rows, every second one from randomly chosen rows; or
        all from these.
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
    emission_ : emission family
        With its fitted attributes, as ``emission_.mean_``.
    means_, covars_ : ndarray
        Of Gaussian emissions, shapes (n_components, n_features) and
        (n_components, n_features, n_features).
    lambdas_ : ndarray of shape (n_components, n_features)
        Of Poisson emissions.
    emissionprob_ : ndarray of shape (n_components, n_categories)
        Of categorical emissions.
    log_likelihood_ : float
        In nats a row, before the last update.
    n_parameters_ : int
        Free parameters; what is masked or fixed does not count.
    converged_ : bool
    n_iter_ : int
        Epochs of the start that was continued.
    history_ : dict of ndarray
        passes, seconds, objective, step_size, temperature by epoch. The objective is
        the log-likelihood a row, and that of the priors where there are any.
    init_scores_ : ndarray of shape (n_init,)
        Objective that each start had reached when the best was chosen.
    solver_ : str
        What was used.
    n_samples_seen_ : int
        Rows of all fits since the last start.
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

    _state_format = 2
    # Sequence ids go with X wherever metadata routing is on.
    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__predict: ClassVar = {"groups": True}
    __metadata_request__predict_proba: ClassVar = {"groups": True}
    __metadata_request__score: ClassVar = {"groups": True}

    def __init__(
        self,
        n_components: int = 1,
        *,
        emission: str | BaseEstimator = "gaussian",
        covariance_type: Literal["diag", "full", "tied", "spherical"] = "diag",
        reg_covar: float = 1e-6,
        transitions: BaseEstimator | None = None,
        startprob: str | ArrayLike = "free",
        startprob_init: ArrayLike | None = None,
        startprob_prior: float = 1.0,
        groups: str | int | None = None,
        algorithm: Literal["viterbi", "map"] = "viterbi",
        solver: Literal["auto", "batch", "stochastic", "svrg", "saga"] = "auto",
        acceleration: Literal["squarem", "lbfgs"] | None = None,
        batch_size: int | Literal["auto"] = "auto",
        partial_e_step: bool = True,
        inner_passes: int = 1,
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
        self.inner_passes = inner_passes
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
        check_integer(self, "n_components", "verbose_interval", "inner_passes", least=1)
        check_integer(self, "max_iter", "annealing_iter", "verbose")
        check_integer(self, "n_init", "batch_size", least=1, options=("auto",))
        check_real(self, "tol", "reg_covar")
        check_real(self, "temperature", least=1.0)
        check_real(self, "step_size", above=True, options=("auto",))
        check_real(self, "step_decay", above=True, most=1.0)
        check_real(self, "step_offset", above=True)
        check_options(
            self,
            algorithm=("viterbi", "map"),
            covariance_type=("diag", "full", "tied", "spherical"),
            solver=solvers.names_for(HMMModel),
            partial_e_step=(False, True),
            acceleration=(None, "squarem", "lbfgs"),
            tempering=(None, "annealed"),
            init_params=("kmeans", "random"),
            warm_start=(False, True),
        )
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
        X,
        y=None,
        *,
        sample_weight=None,
        groups=None,
        lengths=None,
        state_labels=None,
    ):
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
            If the default of `reg_covar` is more than 1 % of the variance of a column,
            or a larger one more than all variances.
        CollapsedComponentWarning
            If Gaussian states have come down to it on few rows.
        """
        with all_or_nothing(self), threads(self.n_jobs):
            self._check_parameters()
            self._fit(X, y, sample_weight, groups, lengths, state_labels)
        return self
