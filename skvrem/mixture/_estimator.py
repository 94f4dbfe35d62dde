"""The scikit-learn shell of the Gaussian mixture."""

from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import schedules, solvers
from skvrem.data import (
    as_source,
    averaged,
    begin_stream,
    forget_stream,
    lazily,
    of_dask,
    open_remote,
    total_over_blocks,
)
from skvrem.mixture._inference import (
    ConditionalGaussian,
    condition_on,
    dense_covariances,
    evaluate_rows,
    find_missing,
    look,
    number_features,
)
from skvrem.mixture._model import GaussianMixtureModel, Parameters, Statistics
from skvrem.mixture._search import Trail, can_search, plan_search, search
from skvrem.mixture._start import previous_parameters, starting_point
from skvrem.utils._averaging import AveragingPoint
from skvrem.utils._base import VersionedPickle, feature_names, fit_facts, summary_table
from skvrem.utils._columns import Given
from skvrem.utils._parallel import few_blas_threads, threads
from skvrem.utils._reports import (
    WIDE,
    CallbackSupportMixin,
    Progress,
    find_collapsed,
    warn_annealing_too_long,
    warn_not_converged,
    warn_scale,
    with_callbacks,
)
from skvrem.utils._validation import (
    all_or_nothing,
    as_generator,
    check_columns_of,
    check_em,
    check_order,
    check_weight,
    check_weighted,
    validate_data,
)

# Statistics of all blocks that variance reduction may keep.
TABLE_BYTES = 1 << 26
# Rows below which visits of minibatches take longer than the passes that they save.
VISITED_ROWS = 40_000
# Rows of a visit that take as long as all else of it.
VISIT_ROWS = 1000
DEFAULT_TEMPERATURE, DEFAULT_ANNEALING = 2.0, 10


class VRGaussianMixture(
    CallbackSupportMixin,
    VersionedPickle,
    DensityMixin,
    BaseEstimator,
):
    r"""Gaussian mixture fitted by batch, stochastic or variance-reduced EM.

    A drop-in for :class:`sklearn.mixture.GaussianMixture`: all its parameters,
    attributes and methods, on all cores, in memory that does not grow with
    ``n_samples * n_components``. Beyond it: sample weights, streams
    (:meth:`partial_fit`), memory maps and dask arrays, missing values, conditional
    distributions, and solvers that need a fraction of the passes over the data.

    Parameters
    ----------
    n_components : int, default=1
        Number of components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        A matrix for each component, one for all, variances, one variance each.
    tol : float, default=1e-3
        Converged when less than this is left to gain, in nats a row, as the last gains
        tell; scikit-learn compares the last gain itself.
    reg_covar : float, default=1e-6
        Added to the diagonals of the covariances.
    max_iter : int, default=100
        Epochs of a start: passes for "batch", passes over the minibatches for the
        others.
    n_init : int or "auto", default="auto"
        Starts that are fitted to their ends, of which the best is kept; one that ends
        with collapsed components (see `fit`) loses to any without. "auto" searches
        for one: a few epochs from `init_params` and three other starts (four if a
        column has few values, "tied", or some that come again for a reason, as codes
        and zeros do, "full" and "diag") on a quarter of the rows (7,000 at least), then
        split-merge moves [4]_ from the best, and on all rows from where a long fit
        ends, or one other start that it fits to its end. Where an epoch takes little it
        makes up to twelve starts and fits as many to their ends as take tenths of a
        second together, and one more where values come again. See ``init_scores_``. It
        makes one start where values to start from are given.
    init_params : str, default="kmeans"
        "kmeans", "k-means++", "random" or "random_from_data".
        Starting values; the first two from a subsample where rows are more than 10,000.
    weights_init, means_init, precisions_init : array-like, default=None
        Starting values in place of those of `init_params`, shapes as the attributes.
    random_state : int, RandomState instance or None, default=None
        Seeds the starts, the minibatches and `sample`.
    warm_start : bool, default=False
        Start from the last solution.
    verbose : int, default=0
        1: a progress bar, or lines for the first epoch, every `verbose_interval`-th and
        the last; 2: every epoch.
    verbose_interval : int, default=10
        Epochs between two lines.
    solver : str, default="auto"
        "auto", "batch", "stochastic", "svrg", "saga" or "incremental".
        How the mean of the sufficient statistics is estimated. "batch" is EM;
        "stochastic" is stochastic EM with decreasing steps; "svrg" is sEM-vr [1]_,
        two passes an epoch; "saga" its one-pass form; "incremental" is the EM of
        Neal and Hinton [2]_. Where "stochastic" would end by `tol`, batch EM goes on.
        "auto" is "saga" for 40,000 rows and more, if they are many for the parameters,
        otherwise "batch" with SQUAREM. The choice is in ``solver_``.
    acceleration : {"auto", None, "squarem"}, default="auto"
        Extrapolation [3]_ on top of "batch". "auto" is "squarem" where
        ``solver="auto"`` has chosen "batch", None for a "batch" that was asked for.
    step_size : float or "auto", default="auto"
        Step of "svrg" and "saga"; "auto" makes a step times the number of
        minibatches ``min(20, n_samples / (3 * n_parameters))``. Factor of the steps
        of "stochastic". The step of "batch" and "incremental" is always 1.
    step_decay, step_offset : float, default=0.6, 2.0
        Steps of "stochastic" and of :meth:`partial_fit` are
        ``step_size * (t + step_offset) ** -step_decay``.
    batch_size : int or "auto", default="auto"
        Rows a minibatch; "auto" makes at most 100 of at least 256 rows, of solvers that
        reduce the variance 20 to 100 of about 1,000.
    tempering : {None, "annealed"}, default=None
        "annealed" is deterministic annealing: responsibilities are flattened by a
        temperature that comes down to 1. Less dependent on the start, slower.
    temperature : float, default=2.0
        Where annealing starts.
    annealing_iter : int, default=10
        Epochs it takes to come down to 1.
    n_jobs : int or None, default=None
        Threads; None is all cores, and one inside a joblib or dask worker. Results do
        not depend on it.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    covariances_, precisions_, precisions_cholesky_ : ndarray
        Shape (n_components, n_features, n_features) if "full",
        (n_features, n_features) if "tied", (n_components, n_features) if "diag",
        (n_components,) if "spherical".
    converged_ : bool
        Whether less than `tol` was left to gain; ``stop_reason_`` and ``gap_left_`` say
        why the fit ended, and what is left.
    n_iter_ : int
        Epochs of the best start.
    objective_, lower_bound_ : float
        Log-likelihood a row, in nats; after :meth:`partial_fit` that of the batch,
        before the step. The second is scikit-learn's name of it.
    lower_bounds_ : list of float
        Its course over the epochs (a bound of it with "saga" and "incremental").
    history_ : dict of ndarray
        passes, seconds, objective, step_size, temperature by epoch.
    solver_, step_size_, batch_size_ : str, float, int
        What was used.
    init_scores_ : ndarray of shape (n_init,), or (4,) or (12,) of a search
        Log-likelihood a row that each start reached, of those that a search left on
        the rows that were searched; one more where values of a column come again (see
        `n_init`).
    init_epochs_ : ndarray of int of that shape
        Epochs that each start made.
    n_samples_seen_ : int
        Rows of all fits since the last start.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    sklearn.mixture.GaussianMixture : Batch EM.

    Notes
    -----
    Missing values (NaN) are taken as missing at random and integrated out with
    "diag" and "spherical" covariances. A component that loses its rows, or whose
    covariance degenerates, is re-seeded where the density is lowest. An X that is not
    C-contiguous is copied once. Blocks of a dask array are evaluated where they lie:
    only statistics are fetched, and "auto" makes full passes.

    References
    ----------
    .. [1] Chen, Zhu, Teh, Zhang (2018). Stochastic expectation maximization with
       variance reduction. NeurIPS.
    .. [2] Neal, Hinton (1998). A view of the EM algorithm that justifies incremental,
       sparse, and other variants.
    .. [3] Varadhan, Roland (2008). Simple and globally convergent methods for
       accelerating the convergence of any EM algorithm.
    .. [4] Ueda, Nakano, Ghahramani, Hinton (2000). SMEM algorithm for mixture models.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import VRGaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> mixture = VRGaussianMixture(n_components=2, random_state=0).fit(X)
    >>> np.sort(mixture.means_, axis=0)
    array([[ 1.,  2.],
           [10.,  2.]])
    >>> labels = mixture.predict([[0, 0], [12, 3]])
    >>> bool(labels[0] != labels[1])
    True
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: Literal["full", "tied", "diag", "spherical"] = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int | Literal["auto"] = "auto",
        init_params: Literal[
            "kmeans", "k-means++", "random", "random_from_data"
        ] = "kmeans",
        weights_init: Given = None,
        means_init: Given = None,
        precisions_init: Given = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        solver: Literal[
            "auto", "batch", "stochastic", "svrg", "saga", "incremental"
        ] = "auto",
        acceleration: Literal["auto", "squarem"] | None = "auto",
        step_size: float | Literal["auto"] = "auto",
        step_decay: float = 0.6,
        step_offset: float = 2.0,
        batch_size: int | Literal["auto"] = "auto",
        tempering: Literal["annealed"] | None = None,
        temperature: float = DEFAULT_TEMPERATURE,
        annealing_iter: int = DEFAULT_ANNEALING,
        n_jobs: int | None = None,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.solver = solver
        self.acceleration = acceleration
        self.step_size = step_size
        self.step_decay = step_decay
        self.step_offset = step_offset
        self.batch_size = batch_size
        self.tempering = tempering
        self.temperature = temperature
        self.annealing_iter = annealing_iter
        self.n_jobs = n_jobs

    @property
    def lower_bound_(self) -> float:
        """Log-likelihood a row, by scikit-learn's name of ``objective_``."""
        return self.objective_

    @property
    def lower_bounds_(self) -> list[float]:
        """Its course over the epochs of a fit, a list of float."""
        return self.history_["objective"][1:].tolist()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # As text: whatever stands there, tags are asked of a fitted estimator too.
        tags.input_tags.allow_nan = str(self.covariance_type) in ("diag", "spherical")
        return tags

    def _check_parameters(self):
        check_em(self, solvers.names_for(GaussianMixtureModel))
        if self.acceleration == "squarem" and self.solver not in ("auto", "batch"):
            raise ValueError(
                f"acceleration={self.acceleration!r} extrapolates full passes: it "
                f"goes with solver='batch' or 'auto', not {self.solver!r}."
            )
        warn_annealing_too_long(self)

    def fit(self, X: ArrayLike, y=None, sample_weight: Given = None) -> Self:
        """Estimate the mixture.

        Parameters
        ----------
        X : {array-like, memmap, dask array} of shape (n_samples, n_features)
            Rows; NaN is missing, for "diag" and "spherical" covariances.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : VRGaussianMixture
            The fitted mixture.

        Raises
        ------
        ValueError
            For parameters out of range, fewer rows than components, or rows that are
            not numbers. The estimator is then as it was before.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        DataScaleWarning
            If the default of `reg_covar` is more than 1 % of the variance of a column,
            or a larger one more than all variances.
        CollapsedComponentWarning
            If components have come down to it: on few rows, or "full" ones along some
            axis on no more than `n_features` rows or among the rows of another one.
        """
        # Callbacks are torn down before attributes are put back: they are some.
        with all_or_nothing(self), solvers.checkpointed(self, X, sample_weight):
            self._fit(X, y, sample_weight)
            forget_stream(self)
        return self

    def fit_predict(self, X: ArrayLike, y=None, sample_weight: Given = None) -> Any:
        """Estimate the mixture and return the most probable component of each row.

        Parameters
        ----------
        X : {array-like, memmap, dask array} of shape (n_samples, n_features)
            Rows; NaN is missing, for "diag" and "spherical" covariances.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        labels : ndarray or dask array of int of shape (n_samples,)
            Lazy where X is of dask.
        """
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def _check_X(self, X, reset):
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=(np.float64, np.float32),
            order="C",
            ensure_all_finite="allow-nan",
        )

    def _open(self, X, sample_weight, reset):
        """Validate rows and weights; return their source, dtype and missingness."""
        if of_dask(X) or of_dask(sample_weight):
            _, weight = check_columns_of(self, X, None, sample_weight, reset=reset)
            data, seen = open_remote(X, partial(look, self.covariance_type), weight)
            check_weighted(data)
            dtype, missing = data.dtype, any(seen)
        else:
            X = self._check_X(X, reset)
            data = as_source(X, check_weight(sample_weight, X.shape[0]))
            dtype, missing = X.dtype, find_missing(X, self.covariance_type)
        n_rows = data.n_weighted
        if reset and n_rows < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = "
                f"{self.n_components}, n_samples = {n_rows}"
                f"{' of positive weight' if n_rows < data.n_units else ''}."
            )
        return data, dtype, missing

    @property
    def _dense(self):
        return self.covariance_type in ("full", "tied")

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        data, dtype, missing = self._open(X, sample_weight, reset=True)
        k, d = int(self.n_components), data.n_features
        scatter, square = ((d + 1) / 2, d * d) if self._dense else (1, d)
        blocks = TABLE_BYTES // (8 * k * (1 + d + square))
        sizes = data.n_units, k * (1 + d + d * scatter)
        passes = data.n_units < VISITED_ROWS
        how = {"most_blocks": blocks, "visit_rows": VISIT_ROWS, "prefer_passes": passes}
        how["far"] = data.remote
        plan = solvers.plan_em(self, *sizes, **how)
        # Those of dask stay with the rows.
        keep_sums = data.remote or plan.keeps_sums(blocks)
        random_state = check_random_state(self.random_state)
        length = 0 if self.tempering is None else self.annealing_iter
        temperature = schedules.Linear(self.temperature, length)
        warm = self.warm_start and hasattr(self, "weights_")
        searching, trail = can_search(self, warm), None
        seen = data.n_units + (self.n_samples_seen_ if warm else 0)
        constants = {"n_samples_seen_": seen}
        make = partial(
            GaussianMixtureModel,
            self.covariance_type,
            self.reg_covar,
            missing,
            keep_sums,
        )

        def start(rng):
            nonlocal trail
            model = make()

            def degenerate(point):
                about = self._widths(model, point, data)
                return find_collapsed(*about).sum()

            if searching:
                effort = plan_search(self, make, data)
                look = partial(search, self, make, data, effort, rng)
                found, point, passes = solvers.remembered("search", look, rng)
                trail = Trail(found, make, data, effort, degenerate)
            else:
                point, passes = starting_point(self, model, data, rng)

            def attributes(point, objective):
                return constants | self._attributes(model, point, dtype)

            given = model, point, attributes, passes, temperature, degenerate
            if trail is None:
                return solvers.Start(*given)
            return solvers.Start(*given, trail.again, effort.n_points)

        n_init = 1 if warm or self.n_init == "auto" else self.n_init
        with Progress(self, X, y, n_init) as progress:
            with few_blas_threads(d):
                best, attributes = solvers.run_starts(
                    self, start, plan, data, progress, random_state
                )
        if trail is not None:
            trail.tell(best)
            attributes["init_scores_"] = trail.scores
            attributes["init_epochs_"] = trail.epochs
        warn_not_converged(self, best)
        if best.converged:
            warn_scale(self, *self._widths(make(), best.point, data))
        vars(self).update(attributes)

    def _widths(self, model, point, data):
        """Return what says whether variances are those of reg_covar alone."""
        mean, scatter = model.spread(point)
        variances = np.diagonal(scatter) if self._dense else scatter
        if self.covariance_type == "spherical":
            variances = np.full_like(variances, variances.mean())
        columns = variances, mean, feature_names(self)
        rows = data.n_units * point.parameters.weights
        narrow = model.collapsed(point, data, WIDE)
        parts = model.variances(point.parameters), rows, narrow
        return self.reg_covar, *columns, "component", *parts

    def _attributes(self, model, point, dtype):
        """Return the fitted attributes of a point, and its statistics."""
        weights, means, covariances, factors = (
            np.asarray(part, dtype) for part in point.parameters
        )
        precisions = factors @ factors.swapaxes(-1, -2) if self._dense else factors**2
        # About the means as they are stored, which float32 rounds.
        stored = means.astype(np.float64)
        sums = model.translate(point.statistics, point.reference, stored)
        return {
            "weights_": weights,
            "means_": means,
            "covariances_": covariances,
            "precisions_": precisions,
            "precisions_cholesky_": factors,
            "_sums": tuple(sums[:3]),
        }

    def partial_fit(self, X: ArrayLike, y=None, sample_weight: Given = None) -> Self:
        r"""Update the mixture with one batch of a stream.

        The first 1,000 rows (two for each parameter if that is more, 10,000 at most)
        are kept, and fitted as `fit` does whenever they have doubled, so that they may
        come in batches of any size, of which the first has a row for each component or
        more. A later batch is a step of stochastic EM (Cappé and Moulines 2009): the
        statistics move by
        ``step_size * (t + step_offset) ** -step_decay`` towards those of the batch,
        where t is the number of such batches seen; a batch of fewer rows than those
        that were kept makes its share of a step. Goes on from a `fit`.

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
        X : {array-like, dask array} of shape (n_samples, n_features)
            The batch.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : VRGaussianMixture
            The fitted mixture.
        """
        first = not hasattr(self, "weights_")
        with all_or_nothing(self):
            batch, dtype, missing = self._open(X, sample_weight, reset=first)
            rng = as_generator(self.random_state)
            seen = 0 if first else self.n_samples_seen_
            dtype = dtype if first else self.means_.dtype
            model = GaussianMixtureModel(self.covariance_type, self.reg_covar, missing)
            k = int(self.n_components)
            n_parameters = k * model.n_own_parameters(batch.n_features)
            begun = begin_stream(self, batch, n_parameters, seen, rng)
            data, how = begun.data, {"share": begun.share, "decay": begun.decay}
            if data is not batch:
                model.missing = find_missing(data.rows, self.covariance_type)

            def point_of(known):
                sums = Statistics.of(*known._sums, 0.0, 0.0)
                parameters = previous_parameters(known, data.n_features)
                return AveragingPoint(parameters, sums, parameters.means)

            def attributes(point):
                return self._attributes(model, point, dtype)

            point = point_of(begun.estimator)
            step = solvers.stream_step(self, model, point, data, begun.count, **how)
            # Those that the statistics are means over.
            n_rows = data.n_units / step.step_size
            moved = model.reseed(step.point, data, rng, n_rows)
            seen += batch.n_units
            found = attributes(moved) | {
                "objective_": model.objective(point, step.mean),
                "n_samples_seen_": seen,
            }
            step.record(self, found, batch.n_units)
            begun.end(self, step, seen, rng, lambda other: attributes(point_of(other)))
        return self

    def _parameters(self):
        check_is_fitted(self)
        # Copies: kernels are compiled anew for arrays that are mapped read-only.
        names = ("weights_", "means_", "covariances_", "precisions_cholesky_")
        return Parameters(*(np.array(getattr(self, n), np.float64) for n in names))

    def _covariances(self):
        """Covariances as matrices, shape (n_components, n_features, n_features)."""
        covariances = np.asarray(self.covariances_, np.float64)
        return dense_covariances(self.means_, covariances, self._of_fit.covariance_type)

    def _evaluate(self, X, what):
        parameters, kind = self._parameters(), self._of_fit.covariance_type
        X = self._check_X(X, reset=False)
        with threads(self.n_jobs):
            return evaluate_rows(what, parameters, kind, X)

    @lazily
    def predict(self, X: ArrayLike) -> Any:
        """Return the most probable component of each row.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        labels : ndarray or dask array of int of shape (n_samples,)
            Lazy where X is of dask.
        """
        return self._evaluate(X, "labels")

    @lazily
    def predict_proba(self, X: ArrayLike) -> Any:
        """Return the probability of each component for each row.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        probabilities : ndarray or dask array of shape (n_samples, n_components)
            Each row sums to 1; lazy where X is a dask array.
        """
        return self._evaluate(X, "probabilities")

    @lazily
    def score_samples(self, X: ArrayLike) -> Any:
        """Return the log-density of each row, in nats.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        log_density : ndarray or dask array of shape (n_samples,)
            Lazy where X is of dask.
        """
        return self._evaluate(X, "log_density")

    @averaged
    def score(self, X: ArrayLike, y=None, sample_weight: Given = None) -> float:
        """Return the average log-density of the rows, in nats a row.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        score : float
            The higher, the better.
        """
        log_density = self.score_samples(X)
        weight = check_weight(sample_weight, len(log_density))
        return float(np.average(log_density, weights=weight))

    def _n_parameters(self):
        k, d = self.means_.shape
        size = self.covariances_.size
        if self._of_fit.covariance_type in ("full", "tied"):  # of which half is free
            size = size // d * (d + 1) // 2
        return size + k * d + k - 1

    def _criterion(self, X, price):
        """Twice the negative log-likelihood, and a price for each parameter."""
        total, n_rows = total_over_blocks(self, _total_score, X)
        return float(-2.0 * total + self._n_parameters() * price(n_rows))

    def bic(self, X: ArrayLike) -> float:
        """Return the Bayesian information criterion on X.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        bic : float
            The lower, the better.
        """
        return self._criterion(X, np.log)

    def aic(self, X: ArrayLike) -> float:
        """Return the Akaike information criterion on X.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows, with the features of the fit.

        Returns
        -------
        aic : float
            The lower, the better.
        """
        return self._criterion(X, lambda n_samples: 2.0)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw from the fitted mixture.

        Parameters
        ----------
        n_samples : int, default=1
            How many to draw.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The draws.
        y : ndarray of int of shape (n_samples,)
            Component of each draw; draws come sorted by it.
        """
        weights, means, *_ = self._parameters()
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        rng = check_random_state(self.random_state)
        counts = rng.multinomial(n_samples, weights / weights.sum())
        y = np.repeat(np.arange(len(weights)), counts)
        X = means[y]
        draws = rng.standard_normal(X.shape)
        # Those of columns of very different widths are positive only but for rounding.
        values, vectors = np.linalg.eigh(self._covariances())
        factors = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        for k, rows in enumerate(np.split(np.arange(len(y)), np.cumsum(counts)[:-1])):
            X[rows] += draws[rows] @ factors[k].T
        return X, y

    def condition(self, given: ArrayLike, values: ArrayLike) -> ConditionalGaussian:
        """Return the distribution of the other features given some.

        Parameters
        ----------
        given : array-like of int or of str
            Columns that are known, by number or by name.
        values : array-like of shape (n, n_given)
            What they are known to be; one row is enough.

        Returns
        -------
        conditional : ConditionalGaussian
            Conditional means and covariances, of the mixture and of its components.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import VRGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=500)
        >>> mixture = VRGaussianMixture().fit(np.column_stack([x, 2 * x]))
        >>> mixture.condition(given=[0], values=[[1.0]]).mean.round(3)
        array([[2.]])
        """
        parameters = self._parameters()
        names = list(getattr(self, "feature_names_in_", ()))
        known = number_features(given, names, parameters.means.shape[1])
        return condition_on(parameters, self._covariances(), known, values)

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
        order = check_order(order, len(self.weights_))
        names = ["weights_", "means_"]
        if self._of_fit.covariance_type != "tied":
            names += ["covariances_", "precisions_", "precisions_cholesky_"]
        for name in names:
            setattr(self, name, getattr(self, name)[order])
        self._sums = tuple(part[order] for part in self._sums)
        forget_stream(self)  # another fit would have its own order
        return self

    def summary(self) -> Any:
        """Return a table of the components.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a component: its share, then mean and standard deviation of every
            feature. The frame's ``attrs`` hold log-likelihood, solver, convergence,
            passes and how many starts reached the best; the text ends with them.
        """
        check_is_fitted(self)
        names = feature_names(self)
        deviations = np.sqrt(np.diagonal(self._covariances(), axis1=1, axis2=2))
        columns = {"share": self.weights_}
        for j, name in enumerate(names):
            columns[f"{name} mean"] = self.means_[:, j]
            columns[f"{name} sd"] = deviations[:, j]
        facts = {"log_likelihood": self.objective_}
        facts |= fit_facts(self, self.objective_)
        index = [f"component {k}" for k in range(len(self.weights_))]
        return summary_table(columns, index, facts)


def _total_score(mixture, X):
    """Return the log-likelihood of rows, and their number."""
    log_density = mixture.score_samples(X)
    return np.array([log_density.sum(dtype=float), len(log_density)])
