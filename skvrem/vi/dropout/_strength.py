"""How strong a penalty rows ask for: of a few strengths the one that foretells best."""

from copy import copy
from functools import cache, partial

import numpy as np

from skvrem import schedules, solvers
from skvrem.data import as_source
from skvrem.utils._parallel import parallel_map
from skvrem.vi.dropout._model import Weights
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import (
    Logistic,
    Softmax,
    expected_probabilities,
)

#: Strengths that are tried, and the one where rows are too few to tell.
STRENGTHS, PLAIN = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0), 1.0
#: Parts of the rows that are foretold from the others (three choose worse), and rows
#: that suffice.
FOLDS, ROWS = 5, 500
#: Times the tolerance of the fit that fits to some of the rows have.
ROUGH = 10.0
#: Epochs, which tell strengths apart long before they end. Not those of the fit, which
#: may go on from a shorter one.
MOST = 30
#: Rows, no two with the same features, below which nothing is tried.
FEW = 20


def folds_of(rows, numbers, rng):
    """Return the fold of each row, None where there are too few.

    Rows of the same features are in one, whatever their classes: a row that is there
    twice is foretold no better, a weight of two is as good as two rows, and where some
    features have several classes, one held out would be foretold as the others, so that
    to shrink seems best. Every class is spread over all, those of few features first.
    """
    alike, place = np.unique(rows, axis=0, return_inverse=True)
    if len(alike) < FEW:
        return None
    place = place.ravel()
    has = np.zeros((len(alike), int(numbers.max()) + 1), dtype=bool)
    has[place, numbers.astype(int)] = True
    rarest = np.where(has, has.sum(axis=0), np.inf).argmin(axis=1)
    order = rng.permutation(len(alike))
    order = order[np.argsort(rarest[order], kind="stable")]
    folds = np.empty(len(alike), dtype=int)
    folds[order] = np.arange(len(alike)) % FOLDS
    return folds[place]


def strength_of(model_of, start_of, rows, solver, rng):
    """Return the strength of the penalty with the least loss of rows held out.

    Parameters
    ----------
    model_of : callable
        Returns the `DropoutModel` of a source, numbers of classes and a strength.
    start_of : callable
        Returns the weights to start from, of a model and a generator.
    rows : tuple of arrays (n, n_features), (n,), (n,) or None
        Rows, numbers of their classes, and weights.
    solver : solver
        Makes full passes.
    rng : numpy.random.Generator
    """
    rows, numbers, weight = rows
    weight = np.ones(len(rows)) if weight is None else weight
    seen = weight > 0.0
    rows, numbers, weight = rows[seen], numbers[seen], weight[seen]
    folds = folds_of(rows, numbers, rng)
    if folds is None:
        return PLAIN
    seed, constant = rng.integers(2**31), schedules.Constant(1.0)
    how = {"temperature": constant, "step_size": constant, "max_iter": MOST}
    how |= {"tol": solver.tol, "rng": None}

    def held_out(place, fold):
        out = folds == fold
        data = as_source(rows[~out], weight[~out])
        strength = STRENGTHS[place] * data.total_weight / weight.sum()
        model = model_of(data, numbers[~out], strength)
        first = Weights(start_of(model, np.random.default_rng(seed)))
        found = solvers.run(model, copy(solver), data, Point(first), **how)
        p = _foretold(model.network, found.point.parameters.vector, rows[out])
        right = np.take_along_axis(p, numbers[out, None].astype(int), axis=1)
        with np.errstate(divide="ignore"):
            return -weight[out] @ np.log(right[:, 0])

    @cache
    def loss(place):
        return sum(parallel_map(partial(held_out, place), range(FOLDS)))

    place = STRENGTHS.index(PLAIN)
    for step in (1, -1):
        while 0 <= place + step < len(STRENGTHS) and loss(place + step) < loss(place):
            place += step
    return STRENGTHS[place]


def _foretold(network, vector, rows):
    """Return probabilities of the classes, averaged over the noise."""
    layers = network.layers(vector)
    inputs, a = network.forward(layers, rows)
    family = Logistic() if a.shape[1] == 1 else Softmax(a.shape[1])
    return expected_probabilities(family, a, network.spread(layers, inputs[-1]))
