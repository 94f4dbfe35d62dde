"""What each state says of the values of a column: densities, by their tails alone."""

from typing import NamedTuple

import numpy as np

from skvrem.hmm._input import observed_names, ready, split_columns
from skvrem.hmm.emissions.discrete._categories import Multinomial

# Points of a density; rows that one is averaged over where it depends on rows.
POINTS, ROWS = 200, 200
# Integers up to which every one has its probability; of more some have, as densities.
MOST_INTEGERS = 500
# The width of the differences that densities are, as a part of the range of a column.
STEP = 1e-4


class Curves(NamedTuple):
    """Values and densities of every column that states emit; see `EmissionsDisplay`."""

    values: list
    points: list
    densities: list
    discrete: list
    names: list


def emission_curves(estimator, X, groups=None, lengths=None):
    """Return the states' densities, each times its share of the rows.

    Every family has tails, so none has to say more of itself. Where a density depends
    on the row, it is that of the rows on average, each as much as the state is
    probable.

    Raises
    ------
    ValueError
        Of multinomial counts, whose columns have no distributions of their own.
    """
    posterior = estimator.predict_proba(X, groups=groups, lengths=lengths)
    estimator = ready(estimator, X)
    observed = split_columns(estimator, estimator._of_fit, X, reset=False)[0]
    emission, names = estimator.emission_, observed_names(estimator)
    if any(isinstance(part, Multinomial) for part in emission.families()):
        raise ValueError(
            "The columns of multinomial counts add up to the trials, so that none has "
            "a distribution of its own that a histogram could be compared with."
        )
    rows, parameters = emission.enter(observed), emission.parameters()
    some, shares = rows[:1], posterior.mean(axis=0, keepdims=True)
    if emission.depends_on_rows():
        at = np.unique(np.linspace(0, len(rows) - 1, ROWS).astype(int))
        some, shares = rows[at], posterior[at] / len(at)
    some = np.where(np.isnan(some), 0.0, some)
    drawn = Curves([], [], [], [], [])
    for j, column in enumerate(emission.emits):
        place = emission.value_places()[j]

        def below(x, j=j, place=place):
            """Probabilities of less than x, and half that of x."""
            total = 0.0
            for row, share in zip(some, shares, strict=True):
                probe = np.tile(np.asarray(row, float), (len(x), 1))
                probe[:, place] = x
                total = total + share * emission.tails_at(probe, j, parameters)[0]
            return total

        values = np.asarray(observed[:, column], float)
        values = values[~np.isnan(values)]
        discrete = emission.is_discrete(j)
        points = _points(values, discrete)
        if discrete and points[0] == 0.0:  # every integer
            density = _middle_probabilities(below, points)
        else:
            density = _mean_densities(below, points, discrete)
        for part, value in zip(
            drawn, (values, points, density, discrete, names[column]), strict=True
        ):
            part.append(value)
    return drawn


def _points(values, discrete):
    """Return where to evaluate what is compared with some values."""
    if discrete and values.max(initial=0.0) < MOST_INTEGERS:
        return np.arange(values.max(initial=0.0) + 1.0)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    points = np.linspace(low, high if high > low else low + 1.0, POINTS)
    if len(values):  # close where values are
        middle = np.quantile(values, np.linspace(0.0, 1.0, POINTS))
        points = np.concatenate([points, middle])
        points = np.unique(np.round(points) if discrete else points)
    # A zero may have a probability, and no density.
    return points[points != 0.0] if low == 0.0 else points


def _mean_densities(below, points, discrete):
    step = STEP * (points[-1] - points[0])
    if discrete:  # a density of integers is their mean probability
        step = max(1.0, np.round(step))
    low = np.maximum(points - step, points[0])
    high = np.minimum(points + step, points[-1])
    return (below(high) - below(low)) / (high - low)[:, None]


def _middle_probabilities(below, points):
    """Return probabilities from those of less than a number, and half that of it."""
    masses = below(points)
    reached = np.zeros(masses.shape[1])
    for at, middle in enumerate(masses):
        masses[at] = np.maximum(2.0 * (middle - reached), 0.0)
        reached += masses[at]
    return masses
