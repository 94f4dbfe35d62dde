"""The search that ``n_init="auto"`` makes for a start, on a sample of the rows."""

from functools import partial
from itertools import cycle, islice

import numpy as np

from skvrem import solvers
from skvrem.data import as_source, draw
from skvrem.mixture._moves import moves
from skvrem.mixture._start import starting_parameters

# Kinds of starts that take turns, after the one that was asked for; and where rows are
# few for so many parameters, of which the highest of like starts fits the most noise.
KINDS = "random_from_data", "kmeans", "k-means++"
FEW_ROWS_KINDS = "random_from_data", "k-means++", "random_from_data"
# Rows that are searched: a part, but so many at least, and for each parameter; and the
# most that are worth it.
PART, FEWEST_ROWS, ROWS_A_PARAMETER, MOST_ROWS = 4, 7_000, 5, 50_000
# Of k-means, which epochs of EM follow.
LLOYD_ITERATIONS = 10
# Times the passes of a search that the first fit to the end must have taken for moves
# to be tried on from there, on other rows: then these cost little beside it. Times the
# epochs of that fit that must be left.
LONG, LEFT = 0.5, 2


def can_search(estimator, warm):
    """Whether there is something to search for, and nothing that says where it is."""
    given = (estimator.weights_init, estimator.means_init, estimator.precisions_init)
    free = not warm and all(value is None for value in given)
    moving = estimator.max_iter > 0 and estimator.tempering is None
    return estimator.n_init == "auto" and estimator.n_components > 1 and free and moving


def search(estimator, make, data, n_parameters, rng):
    """Search for a start.

    Parameters
    ----------
    estimator : VRGaussianMixture
    make : callable
        Returns a GaussianMixtureModel.
    data : source
    n_parameters : int
    rng : numpy.random.Generator

    Returns
    -------
    found : skvrem.solvers.SearchResult
    point : AveragingPoint
    passes : float
        Passes over all rows that it cost.
    """
    few = data.n_weighted < ROWS_A_PARAMETER * n_parameters
    others = islice(cycle(FEW_ROWS_KINDS if few else KINDS), solvers.STARTS - 1)
    kinds = [estimator.init_params, *others]
    size = _n_searched(data, n_parameters)
    look = partial(_led, make, estimator.n_components, kinds)
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

    def start(number, rng):
        model = make()
        how = n_components, kinds[number], rng, LLOYD_ITERATIONS
        parameters, passes = starting_parameters(model, some, *how)
        return model, model.start(parameters), passes

    return solvers.search(start, moves, _noise(make(), some), some, rng)


def _led_on(make, parameters, some, rng):
    """Return where moves lead from parameters, None if nowhere, and passes."""
    model = make()
    how = moves, _noise(model, some), some, rng
    point, passes = solvers.climb(model, model.start(parameters), *how)
    return None if point is None else point.parameters, passes


def _noise(model, some):
    """Return what a component gains a row by fitting noise: half a nat a parameter."""
    return 0.5 * model.n_own_parameters(some.n_features) / some.total_weight


def _led_beside(look, sample, rng):
    """Return what a search has come to, of rows that are put side by side."""
    rows, weight = sample.rows, sample.weight if sample.weight.size else None
    if len(rows) > sample.n_units:  # others are side by side, and in order
        rows, weight = rows[sample.ids], None if weight is None else weight[sample.ids]
    return look(as_source(rows, weight), rng)


class Trail:
    """What is fitted to its end after the start that a search has found.

    Other starts, as long as these are poor; and, once, where moves lead from the end on
    rows that were drawn anew, if it was so far away that this costs little.

    Parameters
    ----------
    found : skvrem.solvers.SearchResult
    make : callable
        Returns a GaussianMixtureModel.
    data : source
    n_parameters : int
    degenerate : callable
        How many components of a point stand for no structure of the data.

    Attributes
    ----------
    scores, epochs : ndarray
        Those of `found`, and of the ends of those that were fitted.
    """

    def __init__(self, found, make, data, n_parameters, degenerate):
        self.make, self.data, self.degenerate = make, data, degenerate
        self.size = _n_searched(data, n_parameters)
        self.scores, self.epochs = found.scores.copy(), found.epochs.copy()
        self.number, self.rest = found.number, iter(found.rest)
        self.moved = False

    def again(self, end, left):
        """Return where to begin once more, None if the end will do, and its passes.

        Parameters
        ----------
        end : skvrem.solvers.Result
        left : int
            Epochs that there may be.
        """
        self.scores[self.number] = end.objective
        self.epochs[self.number] += end.n_iter
        if not self.degenerate(end.point):
            return self._moved(end, left)
        sound = ((n, point) for n, point in self.rest if not self.degenerate(point))
        self.number, point = next(sound, (self.number, None))
        return None if point is None else self.make().start(point.parameters), 0.0

    def _moved(self, end, left):
        before, after = end.history[0].passes, end.history[-1].passes
        near = after - before < LONG * before or left < LEFT * end.n_iter
        if self.moved or near:
            return None, 0.0
        self.moved = True
        look = partial(_led_on, self.make, end.point.parameters)
        rng = np.random.default_rng(0)
        parameters, passes = _ask(look, self.data, self.size, rng)
        passes *= self.size / self.data.n_units
        if parameters is None:
            return None, passes
        self.epochs[self.number] -= end.n_iter  # which the next end counts as well
        return self.make().start(parameters), passes
