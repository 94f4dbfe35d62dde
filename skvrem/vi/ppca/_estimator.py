"""Principal components with uncertainty: the scikit-learn shell."""

import math
import time
import warnings
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import solvers
from skvrem.data import averaged, lazily, of_dask, open_remote
from skvrem.exceptions import DataScaleWarning
from skvrem.utils._base import (
    ComponentsMixin,
    VersionedPickle,
    feature_names,
    summary_table,
)
from skvrem.utils._columns import Given
from skvrem.utils._control import mean_within
from skvrem.utils._parallel import few_blas_threads
from skvrem.utils._reports import (
    ROUNDING,
    CallbackSupportMixin,
    Progress,
    name_columns,
    outside,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    among,
    check_block,
    check_columns_of,
    check_magnitude,
    check_parameters,
    check_weight,
    check_weighted,
    validate_data,
)
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws
from skvrem.vi.gaussian._guards import CENTRE, SCALES, whole_fit
from skvrem.vi.gaussian._model_posterior import LowRank, MeanField
from skvrem.vi.ppca._model import (
    PPCAModel,
    SecondMoments,
    log_densities,
)
from skvrem.vi.ppca._model_deviations import AllDeviations, SpanDeviations
from skvrem.vi.ppca._model_prior import GivenScale, UnknownScales, prior_of
from skvrem.vi.ppca._model_rotations import rotation_entropy
from skvrem.vi.ppca._model_rows import RowDensity
from skvrem.vi.ppca._model_wide import WidePPCAModel, are_sums_enough

# Turns of means and standard deviations, at most.
TURNS = 1000
# Of few rows a turn leaves the means this share of what deviations had to gain before
# it: they move together, and more is of no use before deviations have followed. So many
# pairs of steps are remembered then.
SHARE, MEMORY = 0.3, 20
# Pairs of draws by default: so many numbers, but at least and at most so many pairs.
DRAWN, PAIRS = 100_000, (4, 32)
# And so many times as many say what the bound is, at most.
BOUND = 8
# Numbers that all pairs take by a root of the second moments.
ROOM = 2e7
# Loadings whose covariance is kept track of.
MOST_LOADINGS = 1000
# Noise of so many times the least that is learnt would rather be less.
AT_LEAST = 2.0
# Variance of all columns under which noise would have an infinite precision.
LEAST_TRACE = 1e-75


def _moments_of_block(batch):
    """Return the moments of a block of rows."""
    weight = batch.weight if batch.weight.size else None
    if weight is not None and not weight.any():
        return None
    return SecondMoments.of(batch.rows, weight)


def _merged(a, b):
    """Return the moments of two blocks, None of one that has no weight."""
    if a is None or b is None:
        return a if b is None else b
    return a.merged(b)


class BayesianPPCA(
    ArviZMixin,
    ComponentsMixin,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""Probabilistic principal component analysis with a posterior of the loadings.

    Rows are :math:`x \sim N(m, W W^T + \lambda^2 I)` [1]_; loadings W of a feature have
    a Gaussian prior, and independent Gaussians for their posterior, found by
    variational inference [2]_. The likelihood sees the rows by their second moments
    only, so that a fit costs one pass over the data and steps that do not depend on the
    number of rows.

    Parameters
    ----------
    n_components : int, default=2
        Columns of W.
    prior_scale : float or "auto", default="auto"
        Standard deviation of loadings before any data, in the units of the features.
        "auto" has one for each component, unknown and integrated out, and learns what
        they have in common. One that is given says how long components are, the more
        the more features there are: give it where that is known.
    noise_variance : float or "learn", default="learn"
        :math:`\lambda^2`. "learn" takes that of the highest bound.
    n_draws : int or "auto", default="auto"
        Draws that expectations are taken over, in pairs of opposite sign: an even
        number. "auto" is 64 for up to 3,000 loadings, 8 from 25,000 on. Few are enough
        where rows are many; ``elbo_se_`` says what they leave open. From 100 columns
        on, none of which is nearly a component, only ``elbo_`` is by draws.
    max_iter : int, default=2000
        Steps.
    tol : float, default=1e-2
        Converged when less is left to gain, in nats of the bound.
    warm_start : bool, default=False
        Start from the last posterior.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.
    verbose : int, default=0
        1: a progress bar, or a line every `verbose_interval` steps; 2: every step.
    verbose_interval : int, default=10
        Steps between two lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Posterior means of the loadings, transposed, the longest first.
    components_std_ : ndarray of shape (n_components, n_features)
        Their standard deviations: given where the components point, as rotations of
        all of them together, which the data say nothing of, are left out. They are of
        all loadings and the noise together, by the second order of the likelihood; of
        more than 1,000 loadings only for how components lengthen and mix, up to 30 of
        them, and of independent loadings else, as of components that rows have no use
        for.
    mean_ : ndarray of shape (n_features,)
        Mean of the rows.
    noise_variance_ : float
    prior_scale_ : float
        Standard deviation of loadings before any data, given or learned.
    posterior_ : MeanField
        The independent Gaussians of the bound, in the order of
        ``components_.ravel()``: ``mean``, ``scale``, ``sample``, ``logpdf``.
    elbo_, elbo_se_ : float
        Lower bound of the log evidence in nats, and its standard error: from fresh
        draws, at the end, of which there are more where their error is above `tol`.
        Of ``posterior_`` turned every way, up to 50 components: rows are the same for
        all rotations of these, so that the bound is higher by the entropy of that, by
        Laplace's method. It compares numbers of components.
    objective_ : float
        The bound of ``posterior_`` as it is, in nats, priors included: on the draws of
        the fit, for which it is too high where loadings are many beside them, or
        without draws, a few nats from that.
    n_iter_ : int
        Steps.
    converged_ : bool
        By `tol`; ``stop_reason_`` and ``gap_left_`` say why the fit ended, and what is
        left to gain.
    history_ : dict of ndarray
        passes, seconds, objective (the bound on the draws of the fit), step_size,
        temperature by step.
    n_samples_seen_ : int
        Rows of the fit, or of the stream so far. `partial_fit` goes on from their
        second moments, which are kept: up to n_features squared numbers.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    sklearn.decomposition.PCA : Its loadings are those of the highest likelihood.
    sklearn.decomposition.FactorAnalysis : A noise variance for each feature.

    Notes
    -----
    There is no ``pareto_k_``: the data say nothing of rotations of all components,
    so that the posterior of the loadings is flat along them where this one is narrow,
    and importance weights have heavy tails however well each loading is judged.

    References
    ----------
    .. [1] Tipping, Bishop (1999). Probabilistic principal component analysis. Journal
       of the Royal Statistical Society B 61.
    .. [2] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
       variational inference. AISTATS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skvrem import BayesianPPCA
    >>> model = BayesianPPCA(2, random_state=0)
    >>> model.fit_transform(load_iris().data).shape
    (150, 2)
    >>> model.components_[0].round(1)
    array([ 0.7, -0.2,  1.7,  0.7])
    >>> bool(model.components_std_.max() < 0.15)
    True
    """

    #: Of pickles from when scales were always given.
    _freedom = None

    def __init__(
        self,
        n_components: int = 2,
        *,
        prior_scale: float | Literal["auto"] = "auto",
        noise_variance: float | Literal["learn"] = "learn",
        n_draws: int | Literal["auto"] = "auto",
        max_iter: int = 2000,
        tol: float = 1e-2,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.n_components = n_components
        self.prior_scale = prior_scale
        self.noise_variance = noise_variance
        self.n_draws = n_draws
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def _check_parameters(self):
        scales = dict.fromkeys(("prior_scale", "noise_variance"), SCALES)
        if among(self.prior_scale, ("auto",)):
            scales["prior_scale"] = None
        check_parameters(self, n_draws={"least": 2}, **scales)
        if self.n_draws != "auto" and self.n_draws % 2:
            raise ValueError(
                f"n_draws must be even, as draws come in pairs, got {self.n_draws}."
            )

    # Fits

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: Given = None) -> Self:
        """Fit the loadings.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : BayesianPPCA
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, more components than features, a single row,
            or rows that are all the same. The estimator is then as it was before.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` steps were not enough.
        DataScaleWarning
            If columns are in units so far apart that learnt noise, at its least, hides
            some of them: by some 1e6 in memory, up to 790 columns, and 1e3 on dask.
        """
        with whole_fit(self, CENTRE), solvers.checkpointed(self, X, sample_weight):
            self._fit(X, y, sample_weight)
        return self

    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the loadings with further rows.

        The likelihood sees rows by their second moments only, which add up: the result
        is that of a `fit` to all rows so far, at a cost that does not grow with them.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            The rows that are new.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : BayesianPPCA
            The fitted model.

        Raises
        ------
        ValueError
            As `fit`; in the first call for a single row, in later ones for another
            number of features.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` steps were not enough.
        DataScaleWarning
            If columns are in units so far apart that learnt noise, at its least, hides
            some of them.
        """
        with whole_fit(self, CENTRE):
            self._fit(X, y, sample_weight, go_on=hasattr(self, "components_"))
        return self

    @with_callbacks
    def _fit(self, X, y, sample_weight, go_on=False):
        began = time.perf_counter()
        moments, n_rows, dtype = self._moments_of(X, sample_weight, go_on)
        with few_blas_threads(moments.d):
            self._fit_moments(X, y, moments, n_rows, dtype, go_on, began)

    def _fit_moments(self, X, y, moments, n_rows, dtype, go_on, began):
        d, k = moments.d, int(self.n_components)
        if k > d:
            raise ValueError(
                f"n_components={k} must be at most n_features={d}, the number of "
                "columns of X."
            )
        if go_on:
            moments = SecondMoments(*self._moments).merged(moments)
            n_rows, dtype = n_rows + self.n_samples_seen_, self.components_.dtype
        if not moments.trace > 0.0:
            raise ValueError("All rows of X are the same: there is nothing to explain.")
        if moments.trace < LEAST_TRACE:
            raise ValueError(
                f"The columns of X vary by {moments.trace:.3g} in all, whose inverse "
                f"is infinite in floating point. {CENTRE}"
            )
        n_pairs = usual = int(np.clip(DRAWN // (d * k), *PAIRS))
        if self.n_draws != "auto":
            n_pairs = self.n_draws // 2
        rng = check_random_state(self.random_state)
        draws = rng.standard_normal((n_pairs, d, k))
        learn, scale = self.noise_variance == "learn", self.prior_scale
        if among(scale, ("auto",)):
            shared = float(np.sqrt(moments.trace / (d * k)))
            prior = UnknownScales.of(shared, (d, k))
        else:
            prior = GivenScale(float(scale))
        way = WidePPCAModel if are_sums_enough(moments, k) else PPCAModel
        model = way(moments, prior, learn, draws)

        def describe(point, objective):
            known = moments.weight, moments.mean, moments.rows, moments.matrix
            known = *known, moments.root
            return {
                **self._attributes(model, point, moments.mean, dtype),
                "elbo_": float(objective),
                "elbo_se_": math.nan,
                "objective_": float(objective),
                "n_samples_seen_": n_rows,
                "prior_scale_": model.prior.scale,
                "_freedom": getattr(model.prior, "freedom", None),
                "_moments": known,
                "_learned": learn,
            }

        with Progress(self, X, y, 1) as progress:
            report = progress.start(0, describe)
            result = self._run(model, began, report)
            report.end()
        warn_not_converged(self, result, unit="")

        def bound(n):
            return model.bound(result.point, rng.standard_normal((n, d, k)))

        most = max(n_pairs, BOUND * usual)
        elbo, error = mean_within(self.tol, bound, n_pairs, most)
        found = describe(result.point, result.objective)
        q, shape = found["posterior_"], (k, d)
        elbo += rotation_entropy(q.mean.reshape(shape), q.scale.reshape(shape))
        vars(self).update(found, elbo_=elbo, elbo_se_=error, **result.attributes())
        if learn and self.noise_variance_ < AT_LEAST * moments.least_noise:
            self._warn_unseen(moments)
        self.components_std_ = self._deviations().scales().T.astype(dtype)

    def _moments_of(self, X, sample_weight, go_on):
        """Return the moments of rows, their number and their dtype."""
        least = 1 if go_on else 2
        if not (of_dask(X) or of_dask(sample_weight)):
            X = self._rows(X, reset=not go_on, ensure_min_samples=least)
            weight = check_weight(sample_weight, len(X))
            moments = SecondMoments.of(X, weight)
            if not go_on and PAIRS[1] * moments.d**2 <= ROOM and moments.trace > 0.0:
                moments = moments.with_root(X, weight)
            return moments, len(X), X.dtype
        _, weight = check_columns_of(self, X, None, sample_weight, reset=not go_on)
        data, _ = open_remote(X, partial(check_block, power=4), weight)
        check_weighted(data)
        if data.n_units < least:
            raise ValueError(f"X has {data.n_units} sample(s), at least 2 are needed.")
        moments = data.chunks().reduce(_moments_of_block, _merged)
        return moments, data.n_units, data.dtype

    def _warn_unseen(self, moments):
        """Warn of columns that noise hides which is the least that can be learnt."""
        variances = moments.diagonal
        varies = variances > np.square(ROUNDING * moments.mean)
        unseen = varies & (variances < moments.least_noise)
        if not unseen.any():
            return
        which = name_columns(unseen, variances, feature_names(self))
        warnings.warn(
            f"{type(self).__name__} learns noise down to {moments.least_noise:.3g}, as "
            "less cannot be told beside the widest columns of X. It hides those of a "
            f"smaller variance: {which}. Scale the data "
            "(sklearn.preprocessing.StandardScaler).",
            DataScaleWarning,
            stacklevel=outside(),
        )

    def _run(self, model, began, report):
        """Find means and standard deviations in turns, until neither moves."""
        noise = None if model.learn_noise else float(self.noise_variance)
        k, d = int(self.n_components), model.moments.d
        before = getattr(self, "components_", None) if self.warm_start else None
        if before is not None and before.shape == (k, d):
            q = self.posterior_
            W, scale = (part.reshape(k, d).T for part in (q.mean, q.scale))
            point = model.resume(W, scale, noise or self.noise_variance_)
        else:
            point = model.start(noise)
        runs = solvers.Runs(self.max_iter, began, rng=None, report=report)
        # Of many rows deviations hardly move once the means are at their end.
        gain = model.spread(point, 1.0) if model.few else np.inf
        step, passes = 1.0, 1.0
        for _ in range(TURNS):
            tol, before = self.tol, gain
            if model.few:
                tol = max(tol, SHARE * gain)
            given = (tol, MEMORY) if model.few else (tol,)
            solver = solvers.QuasiNewton(*given)
            result = runs.go_on(model, solver, point, passes=passes, tol=tol)
            point, passes = result.point, 0.0
            if runs.ended:
                break
            gain = model.spread(point, step)
            if result.converged and max(tol, gain) <= self.tol:
                return runs.result()
            if gain > before:  # whole steps go too far
                step = 0.5
        whole = runs.result()
        if whole.converged:  # the means, but not the deviations
            whole = whole._replace(reason="max_iter")
        return whole

    def _attributes(self, model, point, mean, dtype):
        q = model.posterior(point)
        shape = point.mean.shape
        order = np.argsort(-np.square(point.mean).sum(axis=0), kind="stable")
        loadings, scale = (
            part.reshape(shape)[:, order].T for part in (q.mean, q.scale)
        )
        return {
            "components_": loadings.astype(dtype),
            "components_std_": scale.astype(dtype),
            "mean_": mean.astype(dtype),
            "noise_variance_": float(np.exp(point.log_noise)),
            "posterior_": MeanField(loadings.ravel(), scale.ravel()),
        }

    def _deviations(self):
        """Return what loadings vary by, all of them together."""
        (k, d), q = self.components_.shape, self.posterior_
        way = AllDeviations if q.n_dim <= MOST_LOADINGS else SpanDeviations
        W, scale = (part.reshape(k, d).T for part in (q.mean, q.scale))
        moments, noise = SecondMoments(*self._moments), self.noise_variance_
        prior = prior_of(self.prior_scale_, self._freedom, d)
        return way.of(moments, W, scale, noise, prior, self._learned)

    # What it says of rows

    def _rows(self, X, reset=False, **options):
        options |= {"reset": reset, "dtype": (np.float64, np.float32)}
        X = validate_data(self, X, **options)
        check_magnitude(X, power=4)
        return X

    def _predictive(self):
        """Return the Gaussian of a row: what W varies by is noise beside its means."""
        check_is_fitted(self)
        variance = self.posterior_.variance.reshape(self.components_.shape)
        noise = self.noise_variance_ + variance.sum(axis=0)
        return LowRank(self.mean_, noise, self.components_.T)

    def _drawn_from(self):
        """Return what rows are drawn from."""
        q, shape = self.posterior_, self.components_.shape
        W, variance = (part.reshape(shape).T for part in (q.mean, q.variance))
        return RowDensity(W, variance, self.noise_variance_)

    @lazily
    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the posterior means of the latent variables of rows.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
            The best linear predictions under `get_covariance`, which counts what is
            not known of the loadings as noise.
        """
        q = self._predictive()
        X = self._rows(X)
        projection = q.precision_times(q.factor.T).T
        return (X - self.mean_) @ projection.astype(X.dtype)

    @lazily
    def inverse_transform(self, Z: ArrayLike) -> np.ndarray:
        """Return the rows that latent variables stand for.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Latent variables.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Without noise.
        """
        check_is_fitted(self)
        Z = check_array(Z, dtype=(np.float64, np.float32), input_name="Z")
        k = self.components_.shape[0]
        if Z.shape[1] != k:
            raise ValueError(
                f"Z must have a column for each of the {k} components, as transform "
                f"returns it; got {Z.shape[1]}."
            )
        return Z @ self.components_ + self.mean_

    def get_covariance(self) -> np.ndarray:
        """Return the covariance of a new row, averaged over the posterior.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            Of the means of the loadings, and on its diagonal their variances and the
            noise.
        """
        return self._predictive().covariance()

    def get_precision(self) -> np.ndarray:
        """Return the inverse of `get_covariance`.

        Returns
        -------
        precision : ndarray of shape (n_features, n_features)
            By Woodbury's formula.
        """
        return self._predictive().precision

    @lazily
    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log density of rows, averaged over ``posterior_``, in nats.

        Of a row whose latent variables are large, wide loadings say little, and of one
        whose are small, much: the density has heavier tails and a sharper top than the
        Gaussian of `get_covariance`. They are the same where rows of the fit are many.
        Loadings that `sample_posterior` draws go together, and are wider.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            By importance sampling with 64 draws of the latent variables of each row,
            the same in every call.
        """
        q, X = self._predictive(), self._rows(X)
        drawn_from = self._drawn_from()
        if not drawn_from.gaussian:
            return drawn_from.log_densities(X - q.mean)
        # As `logpdf` of the Gaussian, with one array of the size of X rather than six.
        root = np.sqrt(q.diagonal)
        rows = X - q.mean
        rows /= root
        (found,) = log_densities(rows, [q.factor.T / root], 1.0)
        return found - np.log(root).sum()

    @averaged
    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean log density of rows, in nats a row.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.

        Returns
        -------
        score : float
            The mean of `score_samples`.
        """
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows from the density of `score_samples`.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            One draw a row.
        """
        check_is_fitted(self)
        rows = self._drawn_from().sample(n_samples, check_random_state(random_state))
        return self.mean_ + rows

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> dict:
        """Draw loadings from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        draws : dict of str to ndarray of shape (n_samples, ...)
            "components", each draw in the shape of ``components_``.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        away = self._deviations().sample(n_samples, rng)
        mean = self.posterior_.mean.reshape(self.components_.shape)
        return {"components": mean + away.swapaxes(1, 2)}

    def _draws(self, X, y, n_samples, rng):
        """See `ArviZMixin`."""
        rows = np.asarray(self._rows(X), np.float64)
        W = self.sample_posterior(n_samples, rng)["components"]
        each = log_densities(rows - self.mean_, W, self.noise_variance_)
        coords = {
            "component": list(self.get_feature_names_out()),
            "feature": feature_names(self),
        }
        dims = {"loading": ["component", "feature"]}
        return Draws({"loading": W}, dims, coords, each, rows)

    def summary(self) -> Any:
        """Return a table of the components.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a component: its variance (the expected squared length of its
            loadings), the share of the variance of the rows, and the root mean square
            of the standard deviations of its loadings. The frame's ``attrs`` hold what
            concerns the whole fit; the text ends with it.
        """
        check_is_fitted(self)
        lengths = np.square(self.components_, dtype=np.float64).sum(axis=1)
        known = self.posterior_.variance.reshape(self.components_.shape)
        variance = lengths + known.sum(axis=1)
        total = variance.sum() + self.n_features_in_ * self.noise_variance_
        columns = {
            "variance": variance,
            "share": variance / total,
            "loading sd": np.sqrt(np.square(self.components_std_).mean(axis=1)),
        }
        facts = {
            "noise variance": self.noise_variance_,
            "elbo": self.elbo_,
            "its se": self.elbo_se_,
            "converged": self.converged_,
        }
        return summary_table(columns, list(self.get_feature_names_out()), facts)
