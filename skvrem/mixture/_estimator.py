"""The scikit-learn shell of the Gaussian mixture: parameters, fit, partial_fit."""

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.data import as_source, is_dask, known_sizes
from skvrem.mixture._inference import (
    GaussianMixtureInference,
    check_block,
    find_missing,
)
from skvrem.mixture._model import (
    GaussianMixtureModel,
    Statistics,
)
from skvrem.mixture._start import previous_parameters, starting_point
from skvrem.utils._averaging import AveragingPoint
from skvrem.utils._base import VersionedPickle
from skvrem.utils._parallel import threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_annealing_too_long,
    warn_not_converged,
    warn_scale,
    with_callbacks,
)
from skvrem.utils._validation import (
    all_or_nothing,
    among,
    check_integer,
    check_options,
    check_real,
    check_weight,
)

__all__ = ["VRGaussianMixture"]

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
# Statistics of all blocks that variance reduction may keep.
TABLE_BYTES = 1 << 26
DEFAULT_TEMPERATURE, DEFAULT_ANNEALING = 2.0, 10


class VRGaussianMixture(
    GaussianMixtureInference,
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
        Converged when an epoch gains less than this, in nats a row.
    reg_covar : float, default=1e-6
        Added to the diagonals of the covariances.
    max_iter : int, default=100
        Epochs: passes for "batch", passes over the minibatches for the others.
    n_init : int, default=1
        Starts, of which the best is kept; see ``init_scores_``.
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
        Neal and Hinton [2]_. All but "stochastic" end at a fixed point of EM.
        "auto" is "saga" where rows are many for the parameters, otherwise "batch"
        with SQUAREM. The choice is in ``solver_``.
    acceleration : {None, "squarem"}, default=None
        Extrapolation [3]_ on top of "batch". None leaves "auto" free to take it.
    step_size : float or "auto", default="auto"
        Step of "svrg" and "saga"; "auto" makes a step times the number of
        minibatches ``min(20, n_samples / (3 * n_parameters))``. Factor of the steps
        of "stochastic". The step of "batch" and "incremental" is always 1.
    step_decay, step_offset : float, default=0.6, 2.0
        Steps of "stochastic" and of :meth:`partial_fit` are
        ``step_size * (t + step_offset) ** -step_decay``.
    batch_size : int or "auto", default="auto"
        Rows a minibatch; "auto" makes at most 100 of at least 256 rows.
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
    n_iter_ : int
        Epochs of the best start.
    lower_bound_ : float
        Log-likelihood a row, in nats, before the last update.
    lower_bounds_ : list of float
        Its course over the epochs (a bound of it with "saga" and "incremental").
    history_ : dict of ndarray
        passes, seconds, objective, step_size, temperature by epoch.
    solver_, step_size_, batch_size_ : str, float, int
        What was used.
    init_scores_ : ndarray of shape (n_init,)
        Log-likelihood a row that each start reached.
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
    C-contiguous is copied once. From a dask array only statistics are fetched by full
    passes, which is what "auto" then makes; the other solvers fetch a block at a time.

    References
    ----------
    .. [1] Chen, Zhu, Teh, Zhang (2018). Stochastic expectation maximization with
       variance reduction. NeurIPS.
    .. [2] Neal, Hinton (1998). A view of the EM algorithm that justifies incremental,
       sparse, and other variants.
    .. [3] Varadhan, Roland (2008). Simple and globally convergent methods for
       accelerating the convergence of any EM algorithm.

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
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        precisions_init: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        solver: Literal["auto", "batch", "stochastic", "svrg", "saga"] = "auto",
        acceleration: Literal["squarem"] | None = None,
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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # As text: whatever stands there, tags are asked of a fitted estimator too.
        tags.input_tags.allow_nan = str(self.covariance_type) in ("diag", "spherical")
        return tags

    def _check_parameters(self):
        check_integer(self, "n_components", "n_init", "verbose_interval", least=1)
        check_integer(self, "max_iter", "annealing_iter", "verbose")
        check_integer(self, "batch_size", least=1, options=("auto",))
        check_real(self, "tol", "reg_covar")
        # Beyond 1 the statistics overshoot; those of "stochastic" are cut there.
        most = np.inf if among(self.solver, ["stochastic"]) else 1.0
        check_real(self, "step_size", above=True, most=most, options=("auto",))
        check_real(self, "step_decay", above=True, most=1.0)
        check_real(self, "step_offset", above=True)
        check_real(self, "temperature", least=1.0)
        check_options(
            self,
            covariance_type=COVARIANCE_TYPES,
            init_params=("kmeans", "k-means++", "random", "random_from_data"),
            solver=solvers.names_for(GaussianMixtureModel),
            acceleration=(None, "squarem"),
            tempering=(None, "annealed"),
            warm_start=(False, True),
        )
        if self.acceleration is not None and self.solver not in ("auto", "batch"):
            raise ValueError(
                f"acceleration={self.acceleration!r} extrapolates full passes: it "
                f"goes with solver='batch' or 'auto', not {self.solver!r}."
            )
        warn_annealing_too_long(self)

    def fit(self, X, y=None, sample_weight=None):
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
            If components have come down to it on few rows.
        """
        with all_or_nothing(self), threads(self.n_jobs):
            self._check_parameters()
            # Callbacks are torn down before attributes are put back: they are some.
            self._fit(X, y, sample_weight)
        return self

    def fit_predict(self, X, y=None, sample_weight=None):
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
            Lazy where X is a dask array.
        """
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def _open(self, X, sample_weight, reset):
        """Validate rows and weights; return their source, dtype and missingness."""
        X = self._check_X(X, reset)
        if is_dask(X):
            X = known_sizes(X)
        if is_dask(sample_weight):
            sample_weight = sample_weight.compute()
        data = as_source(X, check_weight(sample_weight, X.shape[0]))
        if is_dask(X):
            missing = data.any(
                partial(check_block, covariance_type=self.covariance_type)
            )
        else:
            missing = find_missing(X, self.covariance_type)
        n_rows = data.n_weighted
        if reset and n_rows < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = "
                f"{self.n_components}, n_samples = {n_rows}"
                f"{' of positive weight' if n_rows < data.n_units else ''}."
            )
        return data, X.dtype, missing

    def _plan(self, data, n_features):
        """Choose solver, blocks and step; see :func:`skvrem.solvers.plan_em`."""
        scatter = (n_features + 1) / 2 if self._dense else 1
        size = 1 + n_features + n_features * (n_features if self._dense else 1)
        blocks = TABLE_BYTES // (8 * self.n_components * size)
        plan = solvers.plan_em(
            data.n_units,
            self.n_components * (1 + n_features + n_features * scatter),
            solver=self.solver,
            acceleration=self.acceleration,
            step_size=self.step_size,
            batch_size=self.batch_size,
            step_decay=self.step_decay,
            step_offset=self.step_offset,
            most_blocks=blocks,
            prefer_passes=data.remote,
        )
        return plan, plan.keeps_sums(blocks)

    @property
    def _dense(self):
        return self.covariance_type in ("full", "tied")

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        data, dtype, missing = self._open(X, sample_weight, reset=True)
        plan, keep_sums = self._plan(data, data.n_features)
        random_state = check_random_state(self.random_state)
        temperature = schedules.Constant(1.0)
        if self.tempering == "annealed":
            temperature = schedules.Linear(self.temperature, self.annealing_iter)
        warm = self.warm_start and hasattr(self, "weights_")
        n_init = 1 if warm else self.n_init

        def start(rng):
            model = GaussianMixtureModel(
                self.covariance_type, self.reg_covar, missing, keep_sums
            )
            point, passes = starting_point(self, model, data, rng)
            attributes = partial(self._attributes, model, dtype=dtype)
            return solvers.Start(model, point, attributes, passes, temperature)

        with Progress(self, X, y, n_init) as progress:
            best, attributes = solvers.run_starts(
                start,
                n_init,
                plan=plan,
                data=data,
                progress=progress,
                random_state=random_state,
                max_iter=self.max_iter,
                tol=self.tol,
            )
        warn_not_converged(self, best)
        if best.converged:
            self._warn_widths(attributes, data.n_units)
        history = attributes["history_"]
        vars(self).update(
            attributes,
            lower_bound_=best.objective,
            lower_bounds_=history["objective"][1:].tolist(),
            n_samples_seen_=data.n_units + (self.n_samples_seen_ if warm else 0),
        )

    def _warn_widths(self, attributes, n_rows):
        """Warn of variances that are those of reg_covar."""
        weight, first, second = attributes["_sums"]
        means, covariances = attributes["means_"], attributes["covariances_"]
        if second.ndim == 3:
            second = np.diagonal(second, axis1=1, axis2=2)
        if self._dense:
            covariances = np.diagonal(covariances, axis1=-2, axis2=-1)
        elif self.covariance_type == "spherical":
            covariances = covariances[:, None]
        # Those of the data, by the law of total variance.
        total = weight.sum()
        mean = (weight @ means + first.sum(axis=0)) / total
        gap = means - mean
        between = weight[:, None] * np.square(gap) + 2.0 * first * gap
        variances = (second + between).sum(axis=0) / total
        if self.covariance_type == "spherical":
            variances = np.full_like(variances, variances.mean())
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(len(mean))] if names is None else names
        warn_scale(
            self,
            self.reg_covar,
            variances,
            mean,
            list(names),
            "component",
            np.broadcast_to(covariances, means.shape),
            weight / total * n_rows,
        )

    def _attributes(self, model, point, dtype):
        """Return the fitted attributes of a point, and its statistics."""
        weights, means, covariances, factors = (
            np.asarray(part, dtype) for part in point.parameters
        )
        precisions = factors @ factors.swapaxes(-1, -2) if self._dense else factors**2
        # About the means as they are stored, which float32 rounds.
        sums = model.translate(
            point.statistics, point.reference, means.astype(np.float64)
        )
        return {
            "weights_": weights,
            "means_": means,
            "covariances_": covariances,
            "precisions_": precisions,
            "precisions_cholesky_": factors,
            "_sums": tuple(sums[:3]),
        }

    def partial_fit(self, X, y=None, sample_weight=None):
        r"""Update the mixture with one batch of a stream.

        One step of stochastic EM (Cappé and Moulines 2009): the statistics move by
        ``step_size * (t + step_offset) ** -step_decay`` towards those of the batch,
        where t is the number of such batches seen. The first batch finds the starting
        values, so it should hold a few hundred rows or more. Goes on from a `fit`.

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
        with all_or_nothing(self), threads(self.n_jobs):
            self._check_parameters()
            data, dtype, missing = self._open(X, sample_weight, reset=first)
            model = GaussianMixtureModel(self.covariance_type, self.reg_covar, missing)
            random_state = check_random_state(self.random_state)
            rng = np.random.default_rng(random_state.randint(2**31 - 1))
            if first:
                point, _ = starting_point(self, model, data, rng)
                seen = 0
            else:
                dtype = self.means_.dtype
                sums = Statistics(*self._sums, 0.0, 0.0)
                parameters = previous_parameters(self, data.n_features)
                point = AveragingPoint(parameters, sums, parameters.means)
                seen = self.n_samples_seen_
            step = solvers.stream_step(
                model,
                point,
                data,
                seen / data.n_units,
                step_size=self.step_size,
                step_offset=self.step_offset,
                step_decay=self.step_decay,
            )
            objective = model.objective(point, step.mean)
            moved = model.reseed(step.point, data, rng)
            found = self._attributes(model, moved, dtype) | {
                "lower_bound_": objective,
                "n_samples_seen_": seen + data.n_units,
            }
            step.record(self, found, data.n_units, past=("lower_bounds_",))
        return self
