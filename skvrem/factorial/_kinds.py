"""What starts of a fit of the factorial mixture are like, and how many there are."""

from itertools import cycle, islice
from typing import Any, NamedTuple

from skvrem.utils._validation import among

# What noise that is to be learned starts from, as a part of the variance.
NOISE_SHARE = 0.3
# That of untempered starts, in turn. Where noise is as wide as clusters are apart
# these are one, and what is between them is noise for good: less stays until they part.
NOISES = NOISE_SHARE, 0.03, NOISE_SHARE, 0.1, NOISE_SHARE, 0.01
# Squared lengths of the mean, in parts of the variance, above which one component may
# have to hold it, and above which it is the likelier start: parts that are active in
# less than half of the rows lie below, unless they overlap much.
FAR, FARTHER = 0.5, 2.0
# And above which there are no moves: the prior that components share is then as wide as
# the mean is long, and the bound is higher where some are nothing.
FARTHEST = 1e3
# Numbers of X times components that pairs of starts look at altogether, one pair at
# least and three at most, with as many untempered starts more as pairs would follow, up
# to 24: optima differ by tenths of nats a row.
WORTH, MOST_PAIRS, MOST_MORE = 4_000_000, 3, 24
# Of larger X, numbers of rows times components that are fitted with more starts and
# moves to begin from, the fewest rows for each feature or component of these, and the
# most of all.
SAMPLE_WORTH, FEWEST_SAMPLED, MOST_SAMPLED = 500_000, 5, 2000


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
        starts = list(islice(cycle(kinds), estimator.n_init))
        if rows_of_a_sample(estimator, data, moments):
            starts[-1] = KindOfStart(1.0, "sample")
        return starts
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
    if estimator.n_init != "auto" or not _can_move(estimator, moments):
        return 0
    begins = _begins(estimator, moments)
    spare = n_affordable(estimator, data, moments) - MOST_PAIRS
    return max(0, min(spare, MOST_MORE // len(begins)))


def moves_lead_on(estimator, data, moments):
    """Whether moves lead on from the best ends of several starts."""
    if estimator.n_init == "auto":
        return n_more_starts(estimator, data, moments) > 0
    small = n_affordable(estimator, data, moments) > MOST_PAIRS
    return estimator.n_init > 1 and small and _can_move(estimator, moments)


def rows_of_a_sample(estimator, data, moments):
    """Return how many rows are fitted by themselves to begin from; 0 for none.

    As many as have more starts, and moves, where these are too many for any. An integer
    number of starts has one of that kind, if it is more than one.
    """
    k, d = int(estimator.n_components), data.n_features
    n_rows = min(SAMPLE_WORTH // (k * d), MOST_SAMPLED)
    enough = FEWEST_SAMPLED * max(k, d) <= n_rows < data.n_units
    given = estimator.components_init is not None
    if estimator.n_init == 1 or given or not enough:
        return 0
    if not _searches(estimator, moments):
        return 0
    small = n_affordable(estimator, data, moments) > MOST_PAIRS
    return 0 if small else n_rows


def _searches(estimator, moments):
    """Whether a fit may look farther than pairs of starts do."""
    learned = among(estimator.temperature, ["auto"]) and estimator.tempering is not None
    return learned and moments.distance < FARTHEST


def _can_move(estimator, moments):
    """Whether moves may lead on, which other solvers have none of."""
    full = among(estimator.solver, ["auto", "batch"])
    return full and _searches(estimator, moments)
