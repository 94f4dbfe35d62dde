"""Starting values of a Gaussian mixture, from a subsample or one pass.

scikit-learn's KMeans is OpenMP code, which hangs in a process forked after it ran.
k-means is the zero-temperature limit of a mixture of equal spheres, so the mixture's
own kernels run it here, and the assignment of all rows to the nearest start as well.
"""

from functools import partial

import numpy as np
from sklearn.cluster import kmeans_plusplus

from skvrem.data import draw
from skvrem.mixture._model import Parameters
from skvrem.solvers import Batch
from skvrem.utils._algebra import scale
from skvrem.utils._validation import check_given

# All rows of small data, so that the start is as good as k-means can make it; of large
# data a few, so that the start costs a pass or two.
ALL_ROWS, FEW_ROWS, MOST_ROWS = 10_000, 5_000, 20_000
LLOYD_ITERATIONS = 30
# Rows of a sample for each element of the covariances that they are to give.
ROWS_A_NUMBER = 10
# Inverse temperatures, in units of the total variance, at which a row belongs to the
# nearest component alone, and to all of them alike.
HARD, SOFT = 1e10, 1e-10


def starting_point(estimator, model, data, rng):
    """Return the point that a fit starts from, and the passes that it cost.

    Raises
    ------
    ValueError
        If the estimator's `*_init` or, with `warm_start`, its earlier fit do not do.
    """
    k, d = estimator.n_components, data.n_features
    weights, means, precisions = inits = _check_inits(estimator, k, d)
    if estimator.warm_start and hasattr(estimator, "weights_"):
        return model.start(previous_parameters(estimator, d)), 0.0
    parameters, passes = Parameters(None, None, None, None), 0.0
    if any(value is None for value in inits):
        method = estimator.init_params
        parameters, passes = starting_parameters(model, data, k, method, rng)
    changes = {"weights": weights, "means": means}
    if precisions is not None:
        changes["covariances"], bad = _inverse(precisions, model)
        if bad:
            kind = "symmetric, positive-definite" if model.dense else "positive"
            raise ValueError(
                f"precisions_init of {model.covariance_type!r} must be {kind}."
            )
        factors, _ = model.precisions_cholesky(changes["covariances"])
        changes["precisions_cholesky"] = factors
    changes = {name: value for name, value in changes.items() if value is not None}
    return model.start(parameters._replace(**changes)), passes


def previous_parameters(estimator, n_features):
    """Return the fitted parameters to go on from.

    Raises
    ------
    ValueError
        If parameters of the estimator were changed since, so that they do not fit.
    """
    parameters = estimator._parameters()
    k, d = estimator.n_components, n_features
    shape = _shape(estimator.covariance_type, k, d)
    # Shapes alone do not tell "tied" from "diag" where k = d.
    same = estimator.covariance_type == estimator._of_fit.covariance_type
    shapes = parameters.means.shape, parameters.covariances.shape
    if not same or shapes != ((k, d), shape):
        raise ValueError(
            f"The earlier fit, of shape {parameters.means.shape} with covariances "
            f"of shape {parameters.covariances.shape}, cannot be gone on from with "
            f"n_components={k}, covariance_type={estimator.covariance_type!r} and "
            f"{d} features: use a new estimator, or warm_start=False."
        )
    return parameters


def _shape(covariance_type, k, d):
    """Shape of covariances, and of their inverses."""
    shapes = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
    return shapes[covariance_type]


def _check_inits(estimator, k, d):
    """Return what the user gave to start with: weights, means, precisions."""
    precisions = _shape(estimator.covariance_type, k, d)
    shapes = {"weights_init": (k,), "means_init": (k, d), "precisions_init": precisions}
    found = [check_given(getattr(estimator, n), n, shapes[n]) for n in shapes]
    weights = found[0]
    if weights is not None and not (
        weights.min() >= 0.0 and np.isclose(weights.sum(), 1.0, atol=1e-6)
    ):
        raise ValueError(
            "weights_init must be non-negative and sum to 1, got the sum "
            f"{weights.sum():g} and the minimum {weights.min():g}."
        )
    return found


def _inverse(precisions, model):
    """Covariances of precisions, and whether some are not positive definite."""
    if not model.dense:
        return 1.0 / np.where(precisions > 0, precisions, 1.0), (precisions <= 0).any()
    factors, bad = model.precisions_cholesky(precisions)
    symmetric = np.allclose(precisions, precisions.swapaxes(-1, -2))
    return factors @ factors.swapaxes(-1, -2), bool(bad.any()) or not symmetric


def starting_parameters(model, data, n_components, method, rng, most=LLOYD_ITERATIONS):
    """Return parameters to start from, and the passes over the data they cost.

    Parameters
    ----------
    model : GaussianMixtureModel
    data : source
    n_components : int
    method : {"kmeans", "k-means++", "random", "random_from_data"}
    rng : numpy.random.Generator
    most : int
        Iterations of k-means.

    Returns
    -------
    parameters : Parameters
    passes : float
    """
    n_rows = data.n_units
    if n_rows > ALL_ROWS:
        share = min(n_rows // 50, MOST_ROWS)
        n_rows = max(FEW_ROWS, share, 100 * n_components)
    begun = partial(_begun, model, n_components, method, data.n_units, most)
    means, variance, mean, passes = data.ask(
        begun, draw(data.n_units, n_rows, rng), rng
    )
    point = model.start(_spheres(model.covariance_type, means, variance))
    if mean is None:
        batch = Batch()
        batch.start(model, data, rng)
        mean = batch.certify(point, SOFT if method == "random" else HARD).mean
        passes += 1.0
    first = model.update(point, mean, None, 1.0)
    if len(first.repaired) == n_components:
        raise ValueError(
            "Fitting the mixture model failed because some components have "
            "ill-defined empirical covariance: all of them, as there are columns that "
            "do not vary or depend on each other, or few different rows. Increase "
            f"reg_covar, which is {model.reg_covar:g}, or leave out such columns."
        )
    parameters = first.parameters
    if method == "random":
        # Every component has the mean and covariance of the data; set them apart.
        parameters = parameters._replace(means=means)
    return parameters, passes


def _begun(model, n_components, method, n_units, most, sample, rng):
    """Return means, variance, statistics if these are enough, and passes."""
    rows, weight = _in_memory(sample)
    center = np.average(rows, axis=0, weights=weight)
    rows -= center
    variance = np.average(np.square(rows), axis=0, weights=weight).mean()
    variance = variance if variance > 0.0 else 1.0
    if method == "random":
        share = rng.uniform(size=(len(rows), n_components))
        share /= share.sum(axis=1, keepdims=True)
        share *= 1.0 if weight is None else weight[:, None]
        means = share.T @ rows / share.sum(axis=0)[:, None]
    elif method == "random_from_data":
        chances = None if weight is None else weight / weight.sum()
        means = rows[rng.choice(len(rows), n_components, replace=False, p=chances)]
    else:
        seed = int(rng.integers(2**31 - 1))
        means, _ = kmeans_plusplus(
            rows, n_components, sample_weight=weight, random_state=seed
        )
    means, n_iter = means + center, 0
    if method == "kmeans":
        means, n_iter = _lloyd(model, sample, means, variance, most)
    passes = n_iter * sample.n_units / n_units
    point = model.start(_spheres(model.covariance_type, means, variance))
    scatter, mean = point.statistics.sum_xx.size, None
    if sample.n_units > ROWS_A_NUMBER * scatter or sample.n_units == n_units:
        sums = model.statistics(point, sample, SOFT if method == "random" else HARD)
        mean = scale(sums, 1.0 / sample.total_weight)
        passes += sample.n_units / n_units
    return means, variance, mean, passes


def _in_memory(sample):
    """Rows of a sample as float64, missing values at their column's mean; weights."""
    rows = sample.rows[sample.ids].astype(np.float64)
    missing = np.isnan(rows)
    if missing.any():
        known = np.maximum((~missing).sum(axis=0), 1)
        means = np.where(missing, 0.0, rows).sum(axis=0) / known
        rows = np.where(missing, means, rows)
    weight = sample.weight[sample.ids] if sample.weight.size else None
    return rows, weight


def _spheres(covariance_type, means, variance):
    """Parameters of equal spheres, in the shapes of `covariance_type`."""
    k, d = means.shape
    unit = np.ones(_shape(covariance_type, k, d))
    if covariance_type in ("full", "tied"):
        unit *= np.eye(d)
    weights = np.full(k, 1.0 / k)
    return Parameters(weights, means, unit * variance, unit / np.sqrt(variance))


def _lloyd(model, sample, means, variance, most):
    """k-means on the sample; returns the means and the number of iterations.

    Spheres would do, but the model's own kernel is compiled anyway.
    """
    n_iter, moved = 0, np.inf
    while moved > 1e-4 * variance and n_iter < most:
        point = model.start(_spheres(model.covariance_type, means, variance))
        sum_w, sum_x = model.statistics(point, sample, HARD)[:2]
        shift = sum_x / np.where(sum_w > 0.0, sum_w, 1.0)[:, None]
        means = means + shift
        moved = np.square(shift).sum()
        n_iter += 1
    return means, n_iter
