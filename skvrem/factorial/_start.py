"""Where a fit of the factorial mixture begins, and how it cools."""

from itertools import cycle, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import kmeans_plusplus

from skvrem.data import column_moments, fitted_to_some
from skvrem.factorial._model import FactorialPoint
from skvrem.factorial._model_bound import Parameters, Statistics, calibration
from skvrem.schedules import LearnedTemperature
from skvrem.solvers import remembered
from skvrem.utils._parallel import row_chunks
from skvrem.utils._validation import among, check_given

# What is to be learned starts from: activations, and the noise's part of the variance.
ACTIVATION, NOISE_SHARE = 0.3, 0.3
# The latter of untempered starts, in turn. Where noise is as wide as clusters are apart
# these are one, and what is between them is noise for good: less stays until they part.
NOISES = NOISE_SHARE, 0.03, NOISE_SHARE, 0.1, NOISE_SHARE, 0.01
# The smallest noise that is learned, as a part of the variance.
LEAST_NOISE = 1e-6
# Deviations that components start apart, in those of the rows.
APART = 0.1
# The part of a cluster's way from the mean that a component starts with: several are
# active in a row, and the sum of whole ones would overshoot.
NEAR = 0.3
# Squared lengths of the mean, in parts of the variance, above which one component may
# have to hold it, and above which it is the likelier start: parts that are active in
# less than half of the rows lie below, unless they overlap much.
FAR, FARTHER = 0.5, 2.0
# And above which there are no moves: the prior that components share is then as wide as
# the mean is long, and the bound is higher where some are nothing.
FARTHEST = 1e3
# Activation that is to be learned of a component that begins at the mean, in all rows.
ALWAYS = 0.99
# Rounding of sums of squares, in parts of the variance, that leaves a fit its sense.
ROUNDING = 1e-3
TILE_SIZE = 1 << 18
# Rows, and numbers in them, that the first temperature and directions are found from.
SAMPLE, SAMPLE_SIZE = 1000, 1 << 20
# Rows for each component that directions are found from, however many features.
FEWEST_ROWS = 5
# Numbers of X times components that pairs of starts look at altogether, one pair at
# least and three at most, with as many untempered starts more as pairs would follow, up
# to 24: optima differ by tenths of nats a row.
WORTH, MOST_PAIRS, MOST_MORE = 4_000_000, 3, 24
# Of larger X, numbers of rows times components that are fitted with more starts and
# moves to begin from, the fewest rows for each feature or component of these, and the
# most of all.
SAMPLE_WORTH, FEWEST_SAMPLED, MOST_SAMPLED = 500_000, 5, 2000
# A variance with an inverse.
LEAST_VARIANCE = 1e-290

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


class KindOfStart(NamedTuple):
    """What a start is like.

    Attributes
    ----------
    temperature : float or "auto"
        The first.
    directions : {"isotropic", "rows", "clusters", "sample"} or None
        Where those of the components are from; None where the start is warm. "sample"
        begins where a fit of some of the rows has ended.
    intercept : bool
        Whether one component begins at the mean, active in all rows, and the others
        beside zero.
    noise : float, default=NOISE_SHARE
        That it begins with, where it is learned, as a part of the variance. Below
        NOISE_SHARE it stays so until the start has ended, and is learned from there on.
    """

    temperature: Any
    directions: str | None
    intercept: bool = False
    noise: float = NOISE_SHARE


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


def kinds_of_starts(estimator, data, moments, warm):
    """Return what each start is like.

    Where features outnumber rows, what a row has along a random direction is little
    beside what the values of a component cost, and all components vanish at once. So
    every other start has directions of the rows there, and one more has clusters.

    Where the mean is far from zero, components that share it would have to be active
    in nearly all rows, and starts that give each a part of it end where they are not.
    So every start has a twin with an intercept.

    Parameters
    ----------
    estimator : FactorialMixture
    data : source
    moments : RowMoments
    warm : bool
        Whether the one start is where the last fit has ended.

    Returns
    -------
    kinds : list of KindOfStart
    """
    plain, temperature = estimator.tempering is None, estimator.temperature
    highest = 1.0 if plain or (warm and temperature == "auto") else temperature
    if warm:
        return [KindOfStart(highest, None)]
    given = estimator.components_init is not None
    wide = data.n_features > data.total_weight and not given
    first, other = "rows" if wide else "isotropic", "isotropic"
    begins = _begins(estimator, moments)

    def twins(*kinds, begins=begins):
        return [KindOfStart(*kind, begin) for kind in kinds for begin in begins]

    if estimator.n_init != "auto":
        found = [(highest, first), (highest, other)][: 1 + wide]
        if highest == "auto":
            cold = [(1.0, "clusters"), (1.0, first)][not wide :]
            found = [kind for pair in zip(found, cold, strict=True) for kind in pair]
        # Of few starts the likelier come first.
        order = begins[::-1] if moments.distance > FARTHER else begins
        noises = NOISES if highest == "auto" and not wide else (NOISE_SHARE,)
        kinds = [
            kind._replace(noise=noise) if kind.temperature == 1.0 else kind
            for noise in noises
            for kind in twins(*found, begins=order)
        ]
        return list(islice(cycle(kinds), estimator.n_init))
    if temperature != "auto":
        return twins((highest, first))
    if plain:
        starts = twins((1.0, first))
    else:
        n_pairs = min(n_affordable(estimator, data, moments), MOST_PAIRS)
        starts = n_pairs * twins((1.0, first), (highest, other))
        more = islice(cycle(NOISES), n_more_starts(estimator, data, moments))
        starts += [
            kind._replace(noise=noise) for noise in more for kind in twins((1.0, first))
        ]
        if rows_of_a_sample(estimator, data, moments):
            starts.append(KindOfStart(1.0, "sample"))
    return starts + (twins((1.0, "clusters")) if wide else [])


def _begins(estimator, moments):
    """Return whether starts have an intercept, one after the other."""
    far = moments.distance > FAR and estimator.components_init is None
    return (False, True) if far else (False,)


def n_affordable(estimator, data, moments):
    """Return how many pairs of starts data are small enough for, one at least."""
    wide = data.n_features > data.total_weight
    if wide or data.remote or estimator.components_init is not None:
        return 1
    size = data.n_units * data.n_features * int(estimator.n_components)
    return max(1, int(WORTH // (size * len(_begins(estimator, moments)))))


def n_more_starts(estimator, data, moments):
    """Return how many untempered starts, or twins, "auto" makes beside the pairs."""
    if estimator.n_init != "auto" or not _searches(estimator, moments):
        return 0
    begins = _begins(estimator, moments)
    spare = n_affordable(estimator, data, moments) - MOST_PAIRS
    return max(0, min(spare, MOST_MORE // len(begins)))


def moves_lead_on(estimator, data, moments):
    """Whether moves lead on from the best ends of several starts."""
    if estimator.n_init == "auto":
        return n_more_starts(estimator, data, moments) > 0
    small = n_affordable(estimator, data, moments) > MOST_PAIRS
    return estimator.n_init > 1 and small and _searches(estimator, moments)


def rows_of_a_sample(estimator, data, moments):
    """Return how many rows "auto" fits by themselves to begin from; 0 for none.

    As many as have more starts, and moves, where these are too many for any.
    """
    k, d = int(estimator.n_components), data.n_features
    n_rows = min(SAMPLE_WORTH // (k * d), MOST_SAMPLED)
    enough = FEWEST_SAMPLED * max(k, d) <= n_rows < data.n_units
    given = estimator.components_init is not None
    if estimator.n_init != "auto" or given or not enough:
        return 0
    if not _searches(estimator, moments):
        return 0
    small = n_affordable(estimator, data, moments) > MOST_PAIRS
    return 0 if small else n_rows


def _searches(estimator, moments):
    """Whether a fit may look farther than pairs of starts do."""
    chosen = estimator.temperature, estimator.solver
    near = moments.distance < FARTHEST
    return chosen == ("auto", "auto") and estimator.tempering is not None and near


def fit_of_sample(estimator, data, n_rows, rng):
    """Return an estimator that was fitted to some rows, and the passes that it made.

    None where no fit can be: the rows may be all the same, or all weigh nothing.
    """

    def fit():
        seed = int(rng.integers(2**31 - 1))
        try:
            return fitted_to_some(estimator, data, n_rows, rng, random_state=seed)
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
