"""The search that ``n_init="auto"`` makes for a start, on a sample of the rows."""

from copy import copy
from functools import partial
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np

from skvrem import solvers
from skvrem.data import as_source, draw
from skvrem.mixture._cuts import cut_start, has_codes
from skvrem.mixture._moves import moves, split_start
from skvrem.mixture._start import starting_parameters

# Kinds of starts that take turns, after the one that was asked for; and where rows are
# few for so many parameters, of which the highest of like starts fits the most noise.
KINDS = "random_from_data", "kmeans", "k-means++"
FEW_ROWS_KINDS = "random_from_data", "k-means++", "random_from_data"
# One more where the covariance is shared and a column has few values: it shrinks where
# components come apart, which spheres cannot tell from where the data are long.
CUTS = "cuts"
# One more where each has its own and columns have atoms: components at several of them.
SPLITS = "splits"
OWN_STARTS = {CUTS: cut_start, SPLITS: split_start}
# Rows that are searched: a part, but so many at least, and for each parameter; and the
# most that are worth it.
PART, FEWEST_ROWS, ROWS_A_PARAMETER, MOST_ROWS = 4, 7_000, 5, 50_000
# Of k-means, which epochs of EM follow.
LLOYD_ITERATIONS = 10
# Times the epochs of a fit that must be left to go on where it has ended.
LEFT = 2
# What a move must gain a row at least. Epochs to settle a point on some of them.
GAIN, SETTLE = 1e-4, 15


class Effort(NamedTuple):
    """How far a search goes.

    Attributes
    ----------
    starts : int
        Of the search.
    ends : int
        Of these, how many are fitted to their ends.
    cost : float
        Times the passes of the first fit to the end, what the search and moves on from
        there may take in all.
    """

    starts: int
    ends: int
    cost: float

    @property
    def n_points(self):
        """Points that the fit may begin from."""
        return self.ends + SPARE_POINTS


USUAL = Effort(solvers.STARTS, 1, 2.0)
# An epoch takes about rows times components times the numbers of one, and as much as
# some more whatever these are. Data of which it takes little have many optima for next
# to no seconds: what ends highest is often among the last after a few epochs, so that
# as many ends are looked at as take so much together.
FIXED, WORTH, MOST_ENDS = 10, 4_000_000, 12
STARTS_AN_END, COST_OF_AN_END = 4, 5.0
# More points a fit may begin from than it looks at ends, where these are degenerate.
SPARE_POINTS = 3


def can_search(estimator, warm):
    """Whether there is something to search for, and nothing that says where it is."""
    given = (estimator.weights_init, estimator.means_init, estimator.precisions_init)
    free = not warm and all(value is None for value in given)
    moving = estimator.max_iter > 0 and estimator.tempering is None
    return estimator.n_init == "auto" and estimator.n_components > 1 and free and moving


def plan_search(estimator, make, data):
    """Return how far to search for a start; parameters as of `search`."""
    n_components, d = int(estimator.n_components), data.n_features
    scatter = d * (d + 1) // 2 if make().dense else d
    work = data.n_units * n_components * (FIXED + 1 + d + scatter)
    ends = min(WORTH // work, MOST_ENDS)
    # Elsewhere a pass over few rows costs as much as one over many. Of few rows the
    # highest of more optima fits the most noise.
    if data.remote or ends < 2 or _has_few_rows(estimator, make, data):
        return USUAL
    starts = min(STARTS_AN_END * ends, MOST_ENDS)
    return Effort(starts, ends, COST_OF_AN_END * ends)


def _has_few_rows(estimator, make, data):
    return data.n_weighted < ROWS_A_PARAMETER * _n_parameters(estimator, make, data)


def _n_parameters(estimator, make, data):
    return int(estimator.n_components) * make().n_own_parameters(data.n_features)


def search(estimator, make, data, effort, rng):
    """Search for a start.

    Parameters
    ----------
    estimator : VRGaussianMixture
    make : callable
        Returns a GaussianMixtureModel.
    data : source
    effort : Effort
    rng : numpy.random.Generator

    Returns
    -------
    found : skvrem.solvers.SearchResult
    point : AveragingPoint
    passes : float
        Passes over all rows that it cost.
    """
    n_components = int(estimator.n_components)
    n_parameters = _n_parameters(estimator, make, data)
    few = _has_few_rows(estimator, make, data)
    others = islice(cycle(FEW_ROWS_KINDS if few else KINDS), effort.starts - 1)
    kinds = [estimator.init_params, *others]
    if estimator.covariance_type == "tied" and has_codes(data):
        kinds.append(CUTS)
    size = _n_searched(data, n_parameters)
    look = partial(_led, make, n_components, kinds)
    found = _ask(look, data, size, rng)
    passes = found.passes * size / data.n_units
    return found, make().start(found.point.parameters), passes


def _n_searched(data, n_parameters):
    """Return how many rows are searched."""
    part = min(data.n_units // PART, MOST_ROWS)
    # Rows without weight are none.
    size = max(part, FEWEST_ROWS, ROWS_A_PARAMETER * n_parameters)
    size = int(size * data.n_units / data.n_weighted)
    return min(size, data.n_units)


def _ask(look, data, size, rng):
    """Return what a look at so many rows has come to."""
    every = size == data.n_units
    if every and not data.remote:
        return look(data, rng)
    # Of all rows, which no drawing decides, none is: as of those in memory.
    units = np.arange(size) if every else draw(data.n_units, size, rng)
    return data.ask(partial(_led_beside, look), units, rng)


def _led(make, n_components, kinds, some, rng):
    """Return what a search of some rows has come to."""
    first = make()

    def search_of(kinds):
        def start(number, rng):
            # Copies have the values of the rows, which are looked for once.
            model, kind, parameters, passes = copy(first), kinds[number], None, 0.0
            if kind in OWN_STARTS:
                given = model, some, n_components, rng
                parameters, passes = OWN_STARTS[kind](*given)
                kind = KINDS[-1]
            if parameters is None:
                how = n_components, kind, rng, LLOYD_ITERATIONS
                parameters, more = starting_parameters(model, some, *how)
                passes += more
            return model, model.start(parameters), passes

        how = moves, _least(make(), some), some, rng, len(kinds)
        return solvers.search(start, *how)

    found = search_of(kinds)
    if not first.has_atoms(some):
        return found
    # Components of rows at one value shrink within an epoch: after a few they are above
    # others that end higher, and neither is the end of the other.
    return found.beside(search_of([SPLITS]))


def _led_on(make, parameters, weight, most, some, rng):
    """Return where moves lead from parameters, None if nowhere, and passes."""
    model, settle = make(), SETTLE if some.total_weight < weight else 0
    how = moves, _least(model, some), some, rng, most, settle
    point, passes = solvers.climb(model, model.start(parameters), *how)
    return None if point is None else point.parameters, passes


def _least(model, some):
    """Return what a move must gain a row: more than a component does by noise."""
    noise = 0.5 * model.n_own_parameters(some.n_features)  # half a nat a parameter
    return max(GAIN, noise / some.total_weight)


def _led_beside(look, sample, rng):
    """Return what a search has come to, of rows that are put side by side."""
    rows, weight = sample.rows, sample.weight if sample.weight.size else None
    if len(rows) > sample.n_units:  # others are side by side, and in order
        rows, weight = rows[sample.ids], None if weight is None else weight[sample.ids]
    return look(as_source(rows, weight), rng)


class Trail:
    """What is fitted to its end after the start that a search has found.

    Other starts, as long as these are poor or more ends are wanted; and where moves
    lead from an end above all others, on all rows or a great many, again and again if
    it was so far away that this costs little.

    Parameters
    ----------
    found : skvrem.solvers.SearchResult
    make : callable
        Returns a GaussianMixtureModel.
    data : source
    effort : Effort
    degenerate : callable
        How many components of a point stand for no structure of the data.

    Attributes
    ----------
    scores, epochs : ndarray
        Those of `found`, and of the ends of those that were fitted.
    """

    def __init__(self, found, make, data, effort, degenerate):
        self.make, self.data, self.degenerate = make, data, degenerate
        self.scores, self.epochs = found.scores.copy(), found.epochs.copy()
        self.number, self.rest = found.number, found.rest
        self.cost, self.ends = effort.cost, effort.ends + found.leaders - 1
        # Whether one more is, if search and moves have left some of what they may cost:
        # a fit that takes long has been searched for little.
        self.spare = effort.ends == 1 and data.n_units <= MOST_ROWS
        self.most: Any = None
        self.least = -np.inf

    def again(self, end, left, search=None):
        """Return where to begin once more, what it cost, and whether at another start.

        Parameters
        ----------
        end : skvrem.solvers.Result
        left : int
            Epochs that there may be.
        search : callable, default=None
            Of no use: nobody else starts beside it, to leave an end behind.

        Returns
        -------
        point : AveragingPoint
            None if the end will do.
        passes : float
        anew : bool
        """
        self.scores[self.number] = end.objective
        self.epochs[self.number] += end.n_iter
        passes = 0.0
        if not self.degenerate(end.point):
            parameters, passes = self._moved(end, left)
            if parameters is not None:
                self.epochs[self.number] -= end.n_iter  # which the next counts as well
                return self.make().start(parameters), passes, False
            if self.spare and self.most > 0.0:
                self.spare = False
            else:
                self.ends -= 1
            if self.ends < 1 or left < LEFT * end.n_iter:
                return None, passes, False
            # Where a start was before it moved leads nowhere else.
            self.rest = [other for other in self.rest if other[0] != self.number]
        while self.rest:
            (self.number, point), *self.rest = self.rest
            if not self.degenerate(point):
                return self.make().start(point.parameters), passes, True
        return None, passes, True

    def tell(self, best):
        """Note the end that is returned, of which `again` knows nothing.

        It is the last, where it took the epochs that there might be.
        """
        if best.objective not in self.scores:
            self.scores[self.number] = best.objective
            self.epochs[self.number] += best.n_iter

    def _moved(self, end, left):
        """Return parameters that lead higher, None if none do, and passes."""
        begun, ended = end.history[0].passes, end.history[-1].passes
        if self.most is None:
            self.most = self.cost * (ended - begun) - begun
        # What is higher on some rows need not be so on all.
        lower, least = end.objective < self.least, end.objective + GAIN
        self.least = max(self.least, least)
        if lower or self.most <= 0.0 or left < LEFT * end.n_iter:
            return None, 0.0
        size = min(self.data.n_units, MOST_ROWS)
        share = size / self.data.n_units
        how = end.point.parameters, self.data.total_weight, self.most / share
        rng = np.random.default_rng(0)
        look = partial(_led_on, self.make, *how)
        parameters, passes = _ask(look, self.data, size, rng)
        passes *= share
        self.most -= passes
        return parameters, passes
