"""Where a fit of the factorial mixture begins, and how it cools."""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from sklearn.cluster import kmeans_plusplus

from skvrem.data import column_moments, fitted_to_some
from skvrem.factorial._codes import FreshCodes
from skvrem.factorial._kinds import (
    NOISE_SHARE,
    kinds_of_starts,
    moves_lead_on,
    rows_of_a_sample,
)
from skvrem.factorial._model import FactorialPoint
from skvrem.factorial._model_bound import Parameters, Statistics, calibration
from skvrem.factorial._moves import FactorMoves
from skvrem.schedules import Constant, LearnedTemperature, Linear
from skvrem.solvers import Batch, Run, Start, remembered
from skvrem.utils._parallel import row_chunks
from skvrem.utils._validation import among, check_given

# What activations that are to be learned start from.
ACTIVATION = 0.3
# The smallest noise that is learned, as a part of the variance.
LEAST_NOISE = 1e-6
# Deviations that components start apart, in those of the rows.
APART = 0.1
# The part of a cluster's way from the mean that a component starts with: several are
# active in a row, and the sum of whole ones would overshoot.
NEAR = 0.3
# Activation that is to be learned of a component that begins at the mean, in all rows.
ALWAYS = 0.99
# Rounding of sums of squares, in parts of the variance, that leaves a fit its sense.
ROUNDING = 1e-3
TILE_SIZE = 1 << 18
# Rows, and numbers in them, that the first temperature and directions are found from.
SAMPLE, SAMPLE_SIZE = 1000, 1 << 20
# Rows for each component that directions are found from, however many features.
FEWEST_ROWS = 5
# A variance with an inverse.
LEAST_VARIANCE = 1e-290

# Epochs of annealing where nobody says how many.
MOST_ANNEALING = 100
N_TEMPERATURES = 100
# The share of the first temperatures that is left when the learning ends: exp(-4).
DECAY = 4.0


class RowMoments(NamedTuple):
    """Mean of the rows, and mean over features of their variance."""

    mean: np.ndarray
    variance: float

    @property
    def distance(self):
        """Squared length of the mean, in parts of the variance."""
        return float(np.square(self.mean).mean() / self.variance)


class Starts:
    """Makes the starts of a fit, of one kind after the other.

    Parameters
    ----------
    estimator : FactorialMixture
    make : callable
        Returns a FactorialModel.
    data : source
    moments : RowMoments
    describe : callable
        Turns a point and its objective into fitted attributes.
    warm : bool
        Whether the one start is where the last fit has ended.
    last : FactorialPoint or None
        That end, where it was of the same rows.

    Attributes
    ----------
    kinds : list of KindOfStart
    """

    def __init__(self, estimator, make, data, moments, describe, warm, last):
        self.estimator, self.make, self.data = estimator, make, data
        self.moments, self.describe = moments, describe
        self.warm, self.last = warm, last
        self.kinds = kinds_of_starts(estimator, data, moments, warm)
        self._left = iter(self.kinds)
        self._moving = not warm and moves_lead_on(estimator, data, moments)
        # Of starts that have ended, before and after codes were found anew.
        self._ends: list = []
        self._stale: list = []

    def begin(self, rng):
        """Return the next start."""
        model, kind = self.make(), next(self._left)
        point, passes = self._point(model, kind, rng)
        first, variance = kind.temperature, self.moments.variance
        if first == "auto":
            at = point.parameters
            first = starting_temperature(model, at, self.data, variance, rng)
        temperature = temperature_of(self.estimator, first, self.data.total_weight)
        how = model, point, self.describe, passes, temperature
        return Start(*how, again=self._leads_on())

    def _point(self, model, kind, rng):
        """Return where a start of a kind begins, and the passes it has cost."""
        estimator, data = self.estimator, self.data
        from_fit, passes = estimator if self.warm else None, 0.0
        if kind.directions == "sample":
            size = rows_of_a_sample(estimator, data, self.moments)
            from_fit, passes = fit_of_sample(estimator, data, size, rng)
        if from_fit is not None:
            point = resume(from_fit, model, data, data.n_features, self.last)
            if self.last is not None:
                return point, passes
            point, more = model.refill(point, data)
            return point, passes + more
        begun = starting_parameters(estimator, self.moments, data, rng, kind)
        point = model.start(begun, data)
        quiet = among(estimator.noise_variance, ["learn"]) and kind.noise < NOISE_SHARE
        return self._quietly(point, rng) if quiet else (point, passes)

    def _quietly(self, point, rng):
        """Return where a point leads while its noise is what it is, and the passes."""
        model = self.make()
        model = replace(model, learn=(False, *model.learn[1:]))
        how = {"tol": self.estimator.tol, "rng": rng}
        run = Run(model, Batch(), self.data, point, **how)
        end = run.advance(self.estimator.max_iter).result()
        return end.point, end.history[-1].passes

    def _leads_on(self):
        """Return what leads on from the end of a start, or None.

        Other solvers would begin once more, with steps that can lead away.
        """
        known = self.make, self.data, self.estimator.tol
        moves = FactorMoves(*known, self._ends) if self._moving else None
        if not among(self.estimator.solver, ["auto", "batch"]):
            return moves
        return FreshCodes(*known, self._stale, moves)


def moments(data):
    """Return the weighted moments of the rows, tile by tile.

    Raises
    ------
    ValueError
        If all rows are the same, or so far from zero that sums of squares lose what
        they differ by.
    """
    if data.remote:
        found = column_moments(data).weighted
        variance = found.square.sum() / (found.weight * data.n_features)
        return _checked(data, found.mean, float(variance), data.dtype)
    X, weight, n = data.rows, data.weight, data.n_units
    size = max(1, TILE_SIZE // X.shape[1])
    tiles = row_chunks(0, n, size)

    def weighed(tile, values):
        if weight.size:
            return weight[slice(*tile)] @ values
        return values.sum(axis=0, dtype=np.float64)

    total = sum(weighed(tile, X[slice(*tile)]) for tile in tiles)
    mean = total / data.total_weight
    square = 0.0
    for tile in tiles:
        apart = X[slice(*tile)] - mean
        square += weighed(tile, np.einsum("nd,nd->n", apart, apart))
    variance = float(square / (data.total_weight * X.shape[1]))
    return _checked(data, mean, variance, X.dtype)


def _checked(data, mean, variance, dtype):
    if 0.0 < variance < LEAST_VARIANCE:
        raise ValueError(
            f"The variance of X is {variance:.3g}, too small for floating point: "
            "scale X."
        )
    if not variance > np.square(10.0 * np.finfo(dtype).eps * np.abs(mean).max()):
        raise ValueError(
            "X has zero variance: all rows (n_samples = "
            f"{data.n_weighted}) are the same, and there are no factors to find."
        )
    found = RowMoments(mean, variance)
    if found.distance * np.finfo(dtype).eps > ROUNDING:
        raise ValueError(
            f"The mean of X lies {np.sqrt(found.distance):.3g} standard deviations "
            "from zero, too far for what rows differ by to be told in "
            f"{np.dtype(dtype).name}. Subtract it "
            "(sklearn.preprocessing.StandardScaler(with_std=False))."
        )
    return found


def fit_of_sample(estimator, data, n_rows, rng):
    """Return an estimator that was fitted to some rows, and the passes that it made.

    None where no fit can be: the rows may be all the same, or all weigh nothing.
    """

    def fit():
        seed = int(rng.integers(2**31 - 1))
        try:
            how = {"random_state": seed, "solver": "auto", "n_init": "auto"}
            return fitted_to_some(estimator, data, n_rows, rng, **how)
        except ValueError:
            return None

    fitted = remembered("sample", fit, rng)
    if fitted is None:
        return None, 0.0
    # Of the best start, trials of its moves included, and of all others.
    epochs = fitted.history_["passes"][-1] - fitted.n_iter_ + fitted.init_epochs_.sum()
    return fitted, float(epochs * n_rows / data.n_units)


def starting_parameters(estimator, moments, data, rng, kind):
    """Return parameters to start from: those given, and the rest from the moments.

    Components start near the part of the mean that each would have if all were alike,
    apart in random directions: of one length each way, or longer where the rows vary
    more (once through their covariance), or the first and part of the way to a cluster.
    With an intercept the component that is active most often has all of the mean.

    Parameters
    ----------
    estimator : FactorialMixture
    moments : RowMoments
    data : source
    rng : numpy.random.Generator
    kind : KindOfStart

    Returns
    -------
    parameters : Parameters
    """
    k, d = estimator.n_components, len(moments.mean)
    activation = estimator.activation_prior
    activation = ACTIVATION if among(activation, ["learn"]) else activation
    activation = np.broadcast_to(np.asarray(activation, float), k).copy()
    noise, spread = estimator.noise_variance, estimator.component_variance
    noise = kind.noise * moments.variance if noise == "learn" else float(noise)
    if spread == "learn":
        square = moments.variance + np.square(moments.mean).mean()
        spread = square / activation.sum()
    means = check_given(estimator.components_init, "components_init", (k, d))
    if means is None:
        apart = APART * np.sqrt(moments.variance) * rng.standard_normal((k, d))
        if kind.directions != "isotropic":
            seed = int(rng.integers(2**31 - 1))
            rows, share = _apart_from(moments.mean, data, apart, seed)
            if kind.directions == "rows":
                length = np.linalg.norm(apart)
                rows /= np.sqrt(moments.variance)  # whose cubes are finite
                apart = apart @ rows.T * share @ rows
                apart *= length / (np.linalg.norm(apart) or 1.0)
            else:
                found = _clusters(rows, share, k, seed)
                apart[: len(found)] += NEAR * found
        if kind.intercept:
            means, always = apart, np.argmax(activation)
            means[always] = moments.mean
            if among(estimator.activation_prior, ["learn"]):
                activation[always] = ALWAYS
        else:
            means = moments.mean / activation.sum() + apart
    return Parameters(means, None, activation, noise, float(spread))


def _apart_from(mean, data, directions, seed):
    """Return different rows less the mean, drawn at random, and their shares of weight.

    In their order along one of the directions, and from a seed of its own: where all
    rows are drawn, nothing tells weights from repetitions.
    """
    k, d = directions.shape
    size = int(np.clip(SAMPLE_SIZE // d, FEWEST_ROWS * k, SAMPLE))
    batch = data.sample(size, np.random.default_rng(seed))
    rows = np.asarray(batch.rows[batch.index], np.float64)
    rows -= mean
    weight = batch.weight[batch.index] if batch.weight.size else np.ones(len(rows))
    order = np.argsort(rows @ directions[0])
    same = [np.array_equal(rows[i], rows[j]) for i, j in pairwise(order)]
    first = np.flatnonzero([True, *np.logical_not(same)])
    share = np.add.reduceat(weight[order], first) / weight.sum()
    return rows[order[first]], share


def _clusters(rows, share, n_components, seed):
    """Return means of the rows that are nearest to each of some that are far apart."""
    n = min(n_components, len(rows))
    centres, _ = kmeans_plusplus(rows, n, sample_weight=share, random_state=seed)
    gaps = np.einsum("kd,kd->k", centres, centres) - 2.0 * rows @ centres.T
    own = share * (np.argmin(gaps, axis=1) == np.arange(n)[:, None])
    size = own.sum(axis=1)[:, None]
    return np.where(size > 0.0, own @ rows / np.where(size > 0.0, size, 1.0), centres)


def resume(estimator, model, data, n_features, last=None):
    """Return the point where an earlier fit or stream has ended.

    The `last` one, where it was of the same rows.

    Raises
    ------
    ValueError
        If it has another number of components or features.
    """
    shape = (estimator.n_components, n_features)
    if estimator.components_.shape != shape:
        raise ValueError(
            f"The last fit has components of shape {estimator.components_.shape}, and "
            f"{shape} is needed to go on from it: call fit, without warm_start."
        )
    parameters = estimator._parameters() if last is None else last.parameters
    given = {
        "activation": estimator.activation_prior,
        "noise": estimator.noise_variance,
        "spread": estimator.component_variance,
    }
    for name, value in given.items():
        if not among(value, ["learn"]):
            like = getattr(parameters, name)
            value = np.broadcast_to(np.asarray(value, float), np.shape(like))[()]
            parameters = parameters._replace(**{name: value})
    if last is not None:
        return model.unpack(last._replace(parameters=parameters))
    codes = model.codes_of(parameters.activation, data)
    sums = Statistics(*estimator._sums, 0.0, 0.0)
    return FactorialPoint(parameters, sums, codes, codes.copy())


def starting_temperature(model, parameters, data, variance, rng):
    """Return the temperature that annealing starts from where none is given.

    At the critical one components begin to part, all along one direction, and what the
    others hold comes too late for them. At NOISE_SHARE of the variance over the noise,
    which is 1 where the noise is learned, many part at once, and each takes what is
    next to it. It is half-way, in ratios.
    """
    size = int(np.clip(SAMPLE_SIZE // data.n_features, 2, SAMPLE))
    first = model.critical_temperature(parameters, data.sample(size, rng))
    last = NOISE_SHARE * variance / parameters.noise
    return max(1.0, float(np.sqrt(first * last)))


def temperature_of(estimator, highest, total_weight):
    """Return the temperature of an epoch, as a function of its number."""
    if highest == 1.0:
        return Constant(1.0)
    length = estimator.annealing_iter
    if length == "auto":
        length = min(MOST_ANNEALING, estimator.max_iter // 2)
    if estimator.tempering == "global":
        return learned_temperature(highest, length, total_weight)
    return Linear(highest, length)


def learned_temperature(highest, length, total_weight):
    """Return a temperature that is learned, and starts at the highest.

    What is left of it after `length` epochs goes in half as many, so that a fit ends
    at 1.

    Parameters
    ----------
    highest : float
        The grid is from 1 to that.
    length : int
        Epochs in which it is learned.
    total_weight : float
        Of all rows.

    Returns
    -------
    temperature : LearnedTemperature
    """
    temperatures = np.geomspace(1.0, max(highest, 1.0), N_TEMPERATURES)
    share = np.zeros(N_TEMPERATURES)
    share[-1] = 1.0
    return LearnedTemperature(
        temperatures,
        share,
        lambda point, _: calibration(point, 1.0 / temperatures),
        total_weight=total_weight,
        rate=min(1.0, DECAY / max(length, 1)),
        length=length,
        end=length + -(-length // 2),
        blind=1,  # the statistics of a start are made up
    )
