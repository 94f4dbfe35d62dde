"""The scikit-learn shell of the factorial mixture."""

import warnings
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import solvers
from skvrem.data import (
    as_source,
    averaged,
    begin_stream,
    forget_stream,
    lazily,
    of_dask,
    open_remote,
    streamed,
)
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.factorial._model import FactorialModel
from skvrem.factorial._model_bound import Parameters
from skvrem.factorial._start import LEAST_NOISE, Starts, moments, resume
from skvrem.utils._base import (
    ComponentsMixin,
    VersionedPickle,
    fit_facts,
    summary_table,
)
from skvrem.utils._columns import Given
from skvrem.utils._parallel import one_blas_thread, threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    outside,
    warn_annealing_too_long,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    all_or_nothing,
    among,
    as_generator,
    check_block,
    check_columns_of,
    check_em,
    check_integer,
    check_magnitude,
    check_order,
    check_real,
    check_weight,
    check_weighted,
    validate_data,
)

# Statistics of all blocks that variance reduction may keep.
TABLE_BYTES = 1 << 26


class FactorialMixture(
    ComponentsMixin,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""Binary latent factors by annealed variational inference.

    A row is a sum of components that are each there or not, and noise,

    .. math:: x_n = \sum_k Z_{nk} \mu_k + \varepsilon_n, \quad
              Z_{nk} \sim \mathrm{Bern}(\pi_k), \quad
              \mu_k \sim N(0, \sigma_\mu^2 I), \quad
              \varepsilon_n \sim N(0, \sigma^2 I) .

    Unlike the groups of a mixture, any number of components may be active in a row.
    The fit is variational; a temperature that comes down to 1 keeps it from the poor
    optima that this model is full of [1]_.

    Parameters
    ----------
    n_components : int, default=10
        Number of components.
    noise_variance : float or "learn", default="learn"
        :math:`\sigma^2`, a variance and not a deviation.
    component_variance : float or "learn", default="learn"
        :math:`\sigma_\mu^2`, of the components' prior.
    activation_prior : float, array-like or "learn", default="learn"
        :math:`\pi`, between 0 and 1, one or shape (n_components,).
    posterior : {"fullrank", "meanfield"}, default="fullrank"
        Posterior of the components: jointly, with their K x K covariance, or each by
        itself, as in [1]_. "fullrank" has the higher bound, at the same cost.
    solver : str, default="auto"
        "auto", "batch", "stochastic", "svrg", "saga" or "incremental".
        How the mean of the sufficient statistics is estimated. "batch" is coordinate
        ascent; "stochastic" is stochastic variational inference with decreasing
        steps, and "batch" from where these would end by `tol`;
        "svrg" its variance-reduced form and "saga" that in one pass an epoch;
        "incremental" replaces the share of one minibatch after the other; "auto" is
        "batch".
    step_size : float or "auto", default="auto"
        Step of "svrg" and "saga"; "auto" makes a step times the number of minibatches
        ``min(20, n_samples / (3 * n_parameters))``, at least 1. Factor of the steps
        of "stochastic".
    step_decay, step_offset : float, default=0.6, 2.0
        Steps of "stochastic" and of :meth:`partial_fit` are
        ``step_size * (t + step_offset) ** -step_decay``.
    batch_size : int or "auto", default="auto"
        Rows a minibatch; "auto" makes at most 100 of at least 256 rows.
    inner_iter : int, default=5
        Most sweeps over the components a visit to a row.
    max_inner_iter : int, default=100
        Most sweeps for a new row, in `transform`, `score` and `partial_fit`.
    inner_tol : float, default=1e-4
        They end when a sweep moves no probability of the row by more than this.
    max_iter : int, default=300
        Epochs: passes for "batch", passes over the minibatches for the others.
    tol : float, default=1e-3
        Converged when less than this is left to gain, in nats a row, as the last gains
        tell.
    tempering : {None, "annealed", "global"}, default="annealed"
        "annealed" lowers the temperature linearly; "global" is variational tempering,
        which learns a distribution over temperatures (see Notes).
    temperature : float or "auto", default="auto"
        Where it starts. "auto" finds it from the data: half-way, in ratios, between
        the critical temperature, below which components at one place part (the
        largest eigenvalue of the rows' covariance over the noise variance), and 0.3 of
        the mean variance of the features over the noise variance, which is where a
        learned noise variance starts. What is learned beside the components is
        learned when the temperature has come down to 1.
    annealing_iter : int or "auto", default="auto"
        Epochs until it is 1; "auto" is 100, at most half of `max_iter`. With "global"
        temperatures are learned in them, and half as many more bring the rest to 1.
    n_init : int or "auto", default="auto"
        Starts, of which the best is kept; see ``init_scores_``. "auto" is two where
        `temperature` is "auto", the first of them not tempered, so that no fit ends
        below that of ``tempering=None``; four or six where X has up to 2 or 1.3 million
        numbers times components; else one. Below 1 million, where `solver` is "auto" or
        "batch", up to 24 untempered ones follow, every other one of which keeps a noise
        of 3, 10 or 1 % of the variance until it has ended (up to `max_iter` epochs
        more) and learns it from there on, and moves lead on from ends that are among
        the best three when they are reached: optima differ by more there than they cost
        in seconds (see Notes). Of larger X one start follows, whatever the `solver`,
        that begins where such a fit of at most 2,000 of the rows has ended, unless
        these would be fewer than five for each feature or component. With more features
        than rows, where neither `temperature` nor `components_init` is given, two only,
        and one more that begins near clusters of rows, not tempered. An integer makes
        starts of each kind in turn, of the tempered ones first, and if it is more than
        one with moves where "auto" has them, or the last of them from some rows. Where
        the squared mean is more than half of the variance and no `components_init` is
        given, each of these has a twin in which one component begins as the mean,
        active in all rows; sizes count twice then, and twelve follow, or none beyond a
        thousand times the variance.
    components_init : array-like of shape (n_components, n_features), default=None
        Components to start from, in place of random ones. These are near each other,
        apart in random directions; with more features than rows, which random
        directions say nothing of, the first of every two starts has random directions
        times the covariance of the rows.
    warm_start : bool, default=False
        Start from the last solution; cold, unless `temperature` is a number. Where
        that was of the same X in this process, codes of its rows are kept.
    random_state : int, RandomState instance or None, default=None
        Seeds the start, the minibatches and `sample`.
    n_jobs : int or None, default=None
        Threads; None is all cores, and one inside a joblib or dask worker. Results do
        not depend on it.
    verbose : int, default=0
        1: a progress bar, or lines for the first epoch, every `verbose_interval`-th and
        the last; 2: every epoch.
    verbose_interval : int, default=10
        Epochs between two lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Posterior means of the components.
    components_variance_ : ndarray of shape (n_components,)
        Posterior variance of each component's values, the same for all features.
    components_covariance_ : ndarray of shape (n_components, n_components)
        Posterior covariance of the components' values at a feature; diagonal with
        ``posterior="meanfield"``.
    noise_variance_ : float
        Given or learned.
    component_variance_ : float
        Variance of the components' prior, given or learned.
    activation_prior_ : ndarray of shape (n_components,)
        Given or learned.
    objective_ : float
        Bound of the log-likelihood a row at a temperature of 1, in nats, with the
        divergence of the components from their prior; after :meth:`partial_fit` that
        of the batch, before the step.
    converged_ : bool
        Whether less than `tol` was left to gain; ``stop_reason_`` and ``gap_left_`` say
        why the fit ended, and what is left.
    n_iter_ : int
        Epochs of the best start; batches seen, on a stream.
    history_ : dict of ndarray
        passes, seconds, objective, step_size, temperature by epoch. The objective is
        the annealed bound: those of different temperatures do not compare.
    init_scores_ : ndarray of shape (n_init,)
        Bound that each start reached.
    init_epochs_ : ndarray of shape (n_init,)
        Epochs that each start made.
    solver_, step_size_, batch_size_ : str, float, int
        What was used.
    n_samples_seen_ : int
        Rows of all fits since the last start.
    n_features_in_ : int
        Features.
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    VRGaussianMixture : One component a row.
    sklearn.decomposition.FactorAnalysis : Factors that are real numbers.

    Notes
    -----
    The model has no intercept: what a row without any component is, is zero. What all
    rows share is a component that is always active, which some starts try where the
    mean is far from zero, and which is one of `n_components`. Subtract the mean to
    have it for others.

    Codes are updated one component after the other, since all at once overshoot. They
    are kept between epochs as 16-bit fractions, twice 2 bytes a row and component;
    tiles of rows are all the memory that is needed besides, whatever the number of
    features.

    With "global" the distribution over temperatures starts at the highest one and
    moves towards its optimum by a constant step; what remains of the temperature after
    `annealing_iter` epochs goes in half as many more.

    Codes can stay in optima of components as these were once. Where a start has
    converged among the best three, codes are found anew as `transform` finds them, kept
    where they are better, and the fit goes on while that gains `tol`, at most three
    times; by "batch" only, as steps of other solvers would begin again.

    A move takes one component away and puts a binary factor of what the others leave in
    its place, where k-means with a centre that stays at zero finds it. It is taken if
    some epochs from there gain `tol` and half a nat for each number in a component.
    Passes count their trials; epochs do not.

    Too hot, all components are best the same; noise keeps them apart. A fit whose
    starts are all tempered warns of those that have not parted; any fit warns of those
    that are nothing.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering.
       AISTATS. Eqs. 4, 8, 9 and 12.
    .. [2] Ghahramani (1995). Factorial learning and the EM algorithm. NeurIPS.
    .. [3] Hoffman, Blei, Wang, Paisley (2013). Stochastic variational inference. JMLR.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import FactorialMixture
    >>> rng = np.random.default_rng(0)
    >>> parts = np.array([[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 3.0]])
    >>> codes = rng.integers(2, size=(500, 2))
    >>> X = codes @ parts + 0.1 * rng.normal(size=(500, 4))
    >>> mixture = FactorialMixture(n_components=2, n_init=3, random_state=0).fit(X)
    >>> np.sort(mixture.components_.sum(axis=1)).round(1)
    array([4., 6.])
    >>> mixture.predict([[2.0, 2.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    array([[1, 1],
           [0, 0]])
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        noise_variance: float | Literal["learn"] = "learn",
        component_variance: float | Literal["learn"] = "learn",
        activation_prior: float | ArrayLike | Literal["learn"] = "learn",
        posterior: Literal["fullrank", "meanfield"] = "fullrank",
        solver: Literal[
            "auto", "batch", "stochastic", "svrg", "saga", "incremental"
        ] = "auto",
        step_size: float | Literal["auto"] = "auto",
        step_decay: float = 0.6,
        step_offset: float = 2.0,
        batch_size: int | Literal["auto"] = "auto",
        inner_iter: int = 5,
        max_inner_iter: int = 100,
        inner_tol: float = 1e-4,
        max_iter: int = 300,
        tol: float = 1e-3,
        tempering: Literal["annealed", "global"] | None = "annealed",
        temperature: float | Literal["auto"] = "auto",
        annealing_iter: int | Literal["auto"] = "auto",
        n_init: int | Literal["auto"] = "auto",
        components_init: Given = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.n_components = n_components
        self.noise_variance = noise_variance
        self.component_variance = component_variance
        self.activation_prior = activation_prior
        self.posterior = posterior
        self.solver = solver
        self.step_size = step_size
        self.step_decay = step_decay
        self.step_offset = step_offset
        self.batch_size = batch_size
        self.inner_iter = inner_iter
        self.max_inner_iter = max_inner_iter
        self.inner_tol = inner_tol
        self.max_iter = max_iter
        self.tol = tol
        self.tempering = tempering
        self.temperature = temperature
        self.annealing_iter = annealing_iter
        self.n_init = n_init
        self.components_init = components_init
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def _check_parameters(self):
        variance = {"least": 1e-100, "most": 1e100}
        ranges = {"noise_variance": variance, "component_variance": variance}
        check_em(self, solvers.names_for(FactorialModel), **ranges)
        prior = np.asarray(self.activation_prior)
        shapes = ((), (self.n_components,))
        numbers = prior.dtype.kind in "fiu" and prior.shape in shapes
        chances = numbers and ((prior > 0.0) & (prior < 1.0)).all()
        if not (chances or among(self.activation_prior, ["learn"])):
            raise ValueError(
                "activation_prior of FactorialMixture must be 'learn' or probabilities "
                "above 0 and below 1, one or one for each of the "
                f"{self.n_components} components, got {self.activation_prior!r}."
            )
        warn_annealing_too_long(self)

    def _check_codes(self):
        """Check the parameters of answers too, which may change after a fit."""
        check_integer(self, "max_inner_iter", least=1)
        check_real(self, "inner_tol")

    def fit(self, X: ArrayLike, y=None, sample_weight: Given = None) -> Self:
        """Find the components of rows.

        Parameters
        ----------
        X : {array-like, memmap, dask array} of shape (n_samples, n_features)
            Rows.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : FactorialMixture
            The fitted mixture.

        Raises
        ------
        ValueError
            For parameters out of range, rows that are not finite numbers, rows that
            are all the same, or rows whose mean is so far from zero (2e6 standard
            deviations, 90 in float32) that sums of squares lose what they differ by.
            The estimator is then as it was before.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        CollapsedComponentWarning
            If components are nothing, or, where all starts were tempered, the same as
            others.
        UserWarning
            If `max_iter` is less than `annealing_iter`.
        """
        with all_or_nothing(self), one_blas_thread():
            with solvers.checkpointed(self, X, sample_weight):
                self._fit(X, y, sample_weight)
            forget_stream(self)
        return self

    def _check_X(self, X, reset):
        dtypes = (np.float64, np.float32)
        X = validate_data(self, X, reset=reset, dtype=dtypes, order="C")
        check_magnitude(X)
        return X

    def _open(self, X, sample_weight, reset):
        """Validate rows and weights; return their source and dtype."""
        if of_dask(X) or of_dask(sample_weight):
            _, weight = check_columns_of(self, X, None, sample_weight, reset=reset)
            data, _ = open_remote(X, check_block, weight)
            check_weighted(data)
            return data, data.dtype
        X = self._check_X(X, reset)
        return as_source(X, check_weight(sample_weight, X.shape[0])), X.dtype

    def _model(self, total_weight, dtype, variance, inner_iter, keep_sums=True):
        given = (self.noise_variance, self.component_variance, self.activation_prior)
        return FactorialModel(
            total_weight,
            dtype,
            learn=tuple(among(value, ["learn"]) for value in given),
            full=self.posterior == "fullrank",
            least_noise=LEAST_NOISE * variance,
            inner_iter=inner_iter,
            inner_tol=self.inner_tol,
            keep_sums=keep_sums,
        )

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        data, dtype = self._open(X, sample_weight, reset=True)
        found = moments(data)
        k, d = int(self.n_components), data.n_features
        blocks = TABLE_BYTES // (8 * k * (1 + k + d))
        solver = "batch" if self.solver == "auto" else self.solver
        plan = solvers.plan_em(
            self,
            data.n_units,
            k * d,
            solver=solver,
            most_blocks=blocks,
            far=data.remote,
        )
        # Those of dask stay with the rows.
        keep_sums = data.remote or plan.keeps_sums(blocks)
        given = X, sample_weight
        warm = self.warm_start and hasattr(self, "components_")
        last = solvers.of_rows(self, given, "components_") if warm else None
        total, variance = data.total_weight, found.variance
        known = (self.n_samples_seen_, self._seen_weight()) if warm else (0, 0.0)
        seen = {
            "n_samples_seen_": known[0] + data.n_units,
            "_weight_seen": known[1] + total,
        }

        def describe(point, objective):
            return {**seen, **self._attributes(point, dtype)}

        how = total, dtype, variance, self.inner_iter, keep_sums
        make = partial(self._model, *how)
        random_state = check_random_state(self.random_state)
        starts = Starts(self, make, data, found, describe, warm, last)
        with Progress(self, X, y, len(starts.kinds)) as progress:
            best, attributes = solvers.run_starts(
                self, starts.begin, plan, data, progress, random_state
            )
        warn_not_converged(self, best)
        temperatures = [kind.temperature for kind in starts.kinds]
        self._warn_vanished(best.point.parameters, temperatures)
        vars(self).update(attributes)
        if not data.remote:
            point = make().pack(best.point)
            solvers.keep_of_rows(self, given, "components_", point)

    def _warn_vanished(self, parameters, temperatures):
        nothing = FactorialModel.nothing(parameters)
        # Of untempered starts one that is the same as another is what data need not.
        vanished = FactorialModel.vanished(parameters) & (1.0 not in temperatures)
        which = ", ".join(map(str, np.flatnonzero(nothing | vanished)))
        starts = "temperature='auto' and n_init='auto', which tries"
        if nothing.all():
            what = (
                "All components of FactorialMixture are nothing: to this fit X is "
                "noise alone. Where features outnumber rows, keep only as many as "
                f"there are rows, those that vary the most. Leave {starts} several "
                "kinds of starts. If components stay nothing, X has no parts, or too "
                "few rows to tell."
            )
        elif vanished.any():
            what = (
                "After annealing some components of FactorialMixture are nothing, or "
                "the same as another, within the deviation of the posterior: "
                f"{which}. Leave {starts} "
                "without annealing as well, or raise annealing_iter; if they stay, "
                "take fewer components."
            )
        elif nothing.any():
            more = "" if self.n_init == "auto" else "leave n_init='auto', or "
            what = (
                f"Some components of FactorialMixture are nothing: {which}. No start "
                f"found a use for them: {more}take fewer components."
            )
        else:
            return
        warnings.warn(what, CollapsedComponentWarning, stacklevel=outside())

    @staticmethod
    def _attributes(point, dtype):
        """Return the fitted attributes of a point, and its statistics."""
        means, covariance, activation, noise, spread = point.parameters
        return {
            "components_": means.astype(dtype),
            "components_variance_": np.diagonal(covariance).astype(dtype),
            "components_covariance_": covariance.astype(dtype),
            "activation_prior_": activation.astype(dtype),
            "noise_variance_": float(noise),
            "component_variance_": float(spread),
            "_sums": tuple(point.statistics[:5]),
        }

    @streamed
    def partial_fit(self, X: ArrayLike, y=None, sample_weight: Given = None) -> Self:
        """Update the components with one batch of a stream.

        The first 1,000 rows (two for each number in ``components_`` if that is more,
        10,000 at most) are kept, and fitted as `fit` does whenever they have doubled. A
        later batch is a step of stochastic variational inference at a temperature of 1:
        the statistics move by ``step_size * (t + step_offset) ** -step_decay`` towards
        those of the batch, where t is the number of such batches seen; a batch of fewer
        rows than those that were kept makes its share of a step. The prior of the
        components counts once for all rows seen so far. Goes on from a `fit`.

        Later 5,000 are kept, or those if they are more: a uniform sample of all. Where
        a batch is explained far worse than those before, as of rows of a new kind, they
        are fitted too, at most each time that the stream is a tenth longer, and the
        stream goes on from there if that explains them better. So it does where they
        are explained worse than they were, as steps follow rows that come sorted; it
        looks each time that it is a quarter longer, after the step of the batch. From
        then on all rows count the same, in steps of ``1 / (t + 1)``. With a
        `step_decay` of at most 0.5, whose steps forget, it begins again after such
        batches only, and its steps stay as they are. Components may change their order
        when rows that are kept are fitted; after a `fit` or `relabel` none are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The batch.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : FactorialMixture
            The fitted mixture.

        Raises
        ------
        ValueError
            As `fit`.
        """
        first = not hasattr(self, "components_")
        with all_or_nothing(self), one_blas_thread():
            batch, dtype = self._open(X, sample_weight, reset=first)
            rng = as_generator(self.random_state)
            seen = 0 if first else self.n_samples_seen_
            dtype = dtype if first else self.components_.dtype
            n_parameters = int(self.n_components) * batch.n_features
            begun = begin_stream(self, batch, n_parameters, seen, rng)
            known, data = begun.estimator, begun.data
            how = {"share": begun.share, "decay": begun.decay}
            total = batch.total_weight + (0.0 if first else self._seen_weight())
            variance = known.noise_variance_
            model = self._model(total, dtype, variance, self.max_inner_iter)
            point = resume(known, model, None, data.n_features)
            step = solvers.stream_step(self, model, point, data, begun.count, **how)
            moved = model.reseed(step.point, data, rng)
            seen += batch.n_units
            found = self._attributes(moved, dtype) | {
                "objective_": model.objective(point, step.mean),
                "n_samples_seen_": seen,
                "_weight_seen": total,
            }
            step.record(self, found, batch.n_units)

            def attributes(other):
                point = resume(other, model, None, data.n_features)
                return self._attributes(point, dtype)

            begun.end(self, step, seen, rng, attributes)
        return self

    def _seen_weight(self):
        """Return the weight of all rows that were seen."""
        # Of fits that another version has kept, as if each weighed one.
        return vars(self).get("_weight_seen", float(self.n_samples_seen_))

    def _parameters(self):
        check_is_fitted(self)
        names = ("components_", "components_covariance_", "activation_prior_")
        arrays = (np.array(getattr(self, name), np.float64) for name in names)
        numbers = float(self.noise_variance_), float(self.component_variance_)
        return Parameters(*arrays, *numbers)

    def _evaluate(self, X, codes=True):
        """Return the codes of rows and the bounds of their log-likelihood."""
        parameters = self._parameters()
        self._check_codes()
        X = self._check_X(X, reset=False)
        model = FactorialModel(
            1.0, X.dtype, inner_iter=self.max_inner_iter, inner_tol=self.inner_tol
        )
        with one_blas_thread(), threads(self.n_jobs):
            return model.evaluate(parameters, X, codes)

    @lazily
    def transform(self, X: ArrayLike) -> np.ndarray:
        r"""Return the probabilities that the components are active in each row.

        The mean field :math:`\nu` of a row given the components: coordinate ascent, at
        most `max_inner_iter` sweeps, until none moves by `inner_tol`; once from the
        prior, and once through ten falling temperatures, of which the better bound
        counts. The more features a row has, the more ascent from the prior alone would
        end in a poor optimum.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_components)
            Between 0 and 1; rows do not sum to anything.
        """
        return self._evaluate(X)[0]

    @lazily
    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the binary codes of rows: which components are active.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        codes : ndarray of int of shape (n_samples, n_components)
            1 where the activation probability is above a half.
        """
        return (self._evaluate(X)[0] > 0.5).astype(np.int64)

    @lazily
    def inverse_transform(self, X: ArrayLike) -> np.ndarray:
        """Return the rows that codes, or activation probabilities, stand for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Codes, or what :meth:`transform` returns.

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features)
            Sums of the active components.
        """
        check_is_fitted(self)
        return self._mix(X, self.components_, "components")

    @lazily
    def score_samples(self, X: ArrayLike) -> np.ndarray:
        r"""Return a lower bound of the predictive log-likelihood of each row.

        .. math:: \log p(x^* | X) \ge \max_\nu E_q[\log p(x^*, Z^* | \mu)] + H(\nu)

        with the posterior of the components, whose uncertainty counts, and the codes
        of :meth:`transform`. Deterministic; the more of the row's codes are certain,
        the closer it is.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, seen before or not.

        Returns
        -------
        bounds : ndarray of shape (n_samples,)
            In nats.
        """
        return self._evaluate(X, codes=False)[1]

    @averaged
    def score(self, X: ArrayLike, y=None, sample_weight: Given = None) -> float:
        """Return the average of :meth:`score_samples`, in nats a row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Held-out rows.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        score : float
            The higher, the better.
        """
        bounds = self.score_samples(X)
        weight = check_weight(sample_weight, len(bounds))
        return float(np.average(bounds.astype(np.float64), weights=weight))

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw from the fitted mixture, its components at their means.

        Parameters
        ----------
        n_samples : int, default=1
            How many to draw.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The draws.
        codes : ndarray of int of shape (n_samples, n_components)
            The components that are active in each.
        """
        parameters = self._parameters()
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        rng = check_random_state(self.random_state)
        means, activation = parameters.means, parameters.activation
        codes = (rng.uniform(size=(n_samples, len(means))) < activation).astype(int)
        X = codes @ means
        X += np.sqrt(parameters.noise) * rng.standard_normal(X.shape)
        return X, codes

    def relabel(self, order: ArrayLike) -> Self:
        """Put the components into another order, in place.

        Parameters
        ----------
        order : array-like of int of shape (n_components,)
            ``order[0]`` is the component that becomes the first.

        Returns
        -------
        self : estimator
            The same, with every fitted array in the new order.
        """
        check_is_fitted(self)
        order = check_order(order, len(self.components_))
        for name in ("components_", "components_variance_", "activation_prior_"):
            setattr(self, name, getattr(self, name)[order])
        square = np.ix_(order, order)
        self.components_covariance_ = self.components_covariance_[square]
        sum_z, sum_zz, sum_zx, *rest = self._sums
        self._sums = (sum_z[order], sum_zz[square], sum_zx[order], *rest)
        forget_stream(self)  # another fit would have its own order
        return self

    def summary(self) -> Any:
        """Return a table of the components.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a component: how often it is active, its length, the share of the
            model's variance that it brings, and the posterior standard deviation of
            its values. The frame's ``attrs`` hold the bound, the noise, solver,
            convergence, passes and how many starts reached the best; the text ends
            with them.
        """
        parameters = self._parameters()
        activation, means = parameters.activation, parameters.means
        square = np.einsum("kd,kd->k", means, means)
        variance = activation * (1.0 - activation) * square
        total = variance.sum() + means.shape[1] * parameters.noise
        columns = {
            "active": activation,
            "length": np.sqrt(square),
            "variance share": variance / total,
            "sd": np.sqrt(np.diagonal(parameters.covariance)),
        }
        facts = {"objective": self.objective_, "noise_variance": parameters.noise}
        facts |= fit_facts(self, self.objective_)
        index = [f"component {k}" for k in range(len(means))]
        return summary_table(columns, index, facts)
