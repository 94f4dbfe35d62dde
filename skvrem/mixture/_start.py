"""Starting values of a Gaussian mixture, from a subsample or one pass.

scikit-learn's KMeans is OpenMP code, which hangs in a process forked after it ran.
k-means is the zero-temperature limit of a mixture of equal spheres, so the mixture's
own kernels run it here, and the assignment of all rows to the nearest start as well.
"""

import numpy as np
from sklearn.cluster import kmeans_plusplus

from skvrem.mixture._model import Parameters
from skvrem.solvers import Batch
from skvrem.utils._algebra import scale

__all__ = ["starting_parameters"]

# All rows of small data, so that the start is as good as k-means can make it; of large
# data a few, so that the start costs a pass or two.
ALL_ROWS, FEW_ROWS, MOST_ROWS = 10_000, 5_000, 20_000
LLOYD_ITERATIONS = 30
# Rows of a sample for each element of the covariances that they are to give.
ROWS_A_NUMBER = 10
# Inverse temperatures, in units of the total variance, at which a row belongs to the
# nearest component alone, and to all of them alike.
HARD, SOFT = 1e10, 1e-10


def starting_parameters(model, data, n_components, method, rng):
    """Return parameters to start from, and the passes over the data they cost.

    Parameters
    ----------
    model : GaussianMixtureModel
    data : source
    n_components : int
    method : {"kmeans", "k-means++", "random", "random_from_data"}
    rng : numpy.random.Generator

    Returns
    -------
    parameters : Parameters
    passes : float
    """
    n_rows = data.n_units
    if n_rows > ALL_ROWS:
        share = min(n_rows // 50, MOST_ROWS)
        n_rows = max(FEW_ROWS, share, 100 * n_components)
    sample = data.sample(n_rows, rng)
    rows, weight = _in_memory(sample)
    center = np.average(rows, axis=0, weights=weight)
    rows -= center
    variance = np.average(np.square(rows), axis=0, weights=weight).mean()
    variance = variance if variance > 0.0 else 1.0
    passes = 0.0
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
    means = means + center
    if method == "kmeans":
        means, n_iter = _lloyd(model, sample, means, variance)
        passes += n_iter * sample.n_units / data.n_units
    point = model.start(_spheres(model.covariance_type, means, variance))
    beta = SOFT if method == "random" else HARD
    scatter = point.statistics.sum_xx.size
    if sample.n_units > ROWS_A_NUMBER * scatter or sample.n_units == data.n_units:
        sums = model.statistics(point, sample, beta)
        mean = scale(sums, 1.0 / sample.total_weight)
        passes += sample.n_units / data.n_units
    else:
        batch = Batch()
        batch.start(model, data, rng)
        mean = batch.begin(point, beta).mean
        passes += 1.0
    parameters = model.update(point, mean, None, 1.0).parameters
    if method == "random":
        # Every component has the mean and covariance of the data; set them apart.
        parameters = parameters._replace(means=means)
    return parameters, passes


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
    shape = {"full": (k, 1, 1), "tied": (1, 1), "diag": (k, d), "spherical": (k,)}
    unit = np.ones(shape[covariance_type])
    if covariance_type in ("full", "tied"):
        unit = unit * np.eye(d)
    weights = np.full(k, 1.0 / k)
    return Parameters(weights, means, unit * variance, unit / np.sqrt(variance))


def _lloyd(model, sample, means, variance):
    """k-means on the sample; returns the means and the number of iterations.

    Spheres would do, but the model's own kernel is compiled anyway.
    """
    n_iter, moved = 0, np.inf
    while moved > 1e-4 * variance and n_iter < LLOYD_ITERATIONS:
        point = model.start(_spheres(model.covariance_type, means, variance))
        sum_w, sum_x = model.statistics(point, sample, HARD)[:2]
        shift = sum_x / np.where(sum_w > 0.0, sum_w, 1.0)[:, None]
        means = means + shift
        moved = np.square(shift).sum()
        n_iter += 1
    return means, n_iter
