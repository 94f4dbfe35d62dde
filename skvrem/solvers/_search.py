"""A search for a start: short runs from several, and moves out of poor optima."""

import math
from typing import Any, NamedTuple

import numpy as np

from skvrem.solvers._run import Run
from skvrem.solvers.estimate._batch import Batch
from skvrem.utils._parallel import parallel_map

# Of Gaussian mixtures (``python -m benchmarks run "starts"``): starts, their
# epochs, and more for the best; trials of moves, how many in a row may fail, the most
# epochs of one.
STARTS, EPOCHS, MORE = 4, 6, 15
TRIALS, FAILURES, TRIAL_EPOCHS = 12, 5, 15
# The most epochs of one where a fit has ended, of which moves out take longer.
CLIMB_EPOCHS = 40
# Starts that differ by less, in nats a unit, are one optimum: the first of them counts,
# whatever the rounding.
TIED = 1e-6
# Epochs of a trial that are made whatever comes of them.
SURE = 3
# How often a part is given up, between two moves that are taken.
MERGES = 2


class SearchResult(NamedTuple):
    """What a search has come to.

    Attributes
    ----------
    point : Any
    passes : float
        Passes over the searched units, of all runs.
    scores : ndarray of shape (n_starts,)
        Objective a unit that each start reached.
    epochs : ndarray of int of shape (n_starts,)
        Epochs that it made, those of moves among them.
    number : int
        Of the start that led to the point.
    rest : list of (int, Any)
        Numbers and points of the other starts, the best first, and of this one where
        moves have led on from it.
    degenerate : bool, default=False
        Whether the point has parts that stand for no structure of the data.
    leaders : int, default=1
        Searches that this is of, each with a point: the others are the first of `rest`.
    """

    point: Any
    passes: float
    scores: np.ndarray
    epochs: np.ndarray
    number: int
    rest: list
    degenerate: bool = False
    leaders: int = 1

    def beside(self, other):
        """Return this search and another one of the same data, whose starts follow."""
        losses = [(one.degenerate, -one.scores[one.number]) for one in (self, other)]
        more = len(self.scores)
        rest = [(more + number, point) for number, point in other.rest]
        other = other._replace(number=more + other.number, rest=rest)
        first, second = (self, other) if losses[0] <= losses[1] else (other, self)
        return first._replace(
            passes=self.passes + other.passes,
            scores=np.concatenate([self.scores, other.scores]),
            epochs=np.concatenate([self.epochs, other.epochs]),
            rest=[(second.number, second.point), *first.rest, *second.rest],
            leaders=self.leaders + other.leaders,
        )


def search(start, moves, gain, data, rng, n_starts=STARTS):
    """Return the point that short runs of batch EM, and moves from the best, lead to.

    Parameters
    ----------
    start : callable
        Called with the number of a start and a Generator, returns a model of its own
        (`Searched`, see ``_protocols.py``), a point and the passes it has cost.
    moves : callable
        Called with model, point, `data` and `rng`, yields points that may lead higher,
        the most promising first; of those that do, it is sent where they lead.
    gain : float
        What a move must gain to be taken, a unit: more than noise does.
    data : see ``_protocols.py``
    rng : numpy.random.Generator
    n_starts : int

    Returns
    -------
    found : SearchResult
    """

    def enter(task):
        number, seed = task
        model, point, passes = start(number, np.random.default_rng(seed))
        return _begun(model, point, data, seed, passes).advance(EPOCHS)

    seeds = rng.integers(2**63, size=n_starts).tolist()
    entered = list(parallel_map(enter, enumerate(seeds)))
    losses = [(_n_degenerate(fit) > 0, -fit.anchor.objective) for fit in entered]
    collapsed, least = min(losses)
    tied = [loss <= (collapsed, least + TIED) for loss in losses]
    first = tied.index(True)
    best, tried = _moved(entered[first].advance(MORE), moves, gain, rng, seeds[first])
    rest = [
        (number, entered[number].anchor.point)
        for number in sorted(range(n_starts), key=losses.__getitem__)
        if entered[number] is not best
    ]
    scores = np.array([fit.anchor.objective for fit in entered])
    epochs = np.array([fit.n_iter for fit in entered])
    scores[first] = best.anchor.objective
    epochs[first] += sum(fit.n_iter for fit in tried)
    passes = sum(fit.passes for fit in entered + tried)
    degenerate = _n_degenerate(best) > 0
    found = best.anchor.point, passes, scores, epochs, first, rest, degenerate
    return SearchResult(*found)


def climb(model, point, moves, gain, data, rng, most, settle=0):
    """Return where moves lead from the end of a fit, and what they cost.

    Parameters
    ----------
    model, point : see ``_protocols.py``
    moves, gain, data, rng : as `search`
    most : float
        Passes over `data` after which no trial begins.
    settle : int
        Epochs before the trials, where the point comes from other data, to which these
        would adapt it as well.

    Returns
    -------
    point : Any
        None where no move leads higher.
    passes : float
        Over `data`.
    """
    seed = int(rng.integers(2**63))
    begun = _begun(model, point, data, seed).advance(settle)
    most -= begun.passes
    best, tried = _moved(begun, moves, gain, rng, seed, CLIMB_EPOCHS, most)
    passes = sum(run.passes for run in (begun, *tried))
    return None if best is begun else best.anchor.point, passes


def _begun(model, point, data, seed, passes=0.0):
    """Return a run of batch EM."""
    rng = np.random.default_rng(seed)
    return Run(model, Batch(), data, point, tol=0.0, rng=rng, passes=passes)


def _n_degenerate(run):
    return run.model.n_degenerate(run.anchor.point, run.data)


def _moved(best, moves, gain, rng, seed, n_epochs=TRIAL_EPOCHS, most=math.inf):
    """Return the run that moves from one lead to, and all that were tried."""
    tried: list = []
    failures = 0
    proposals = moves(best.model, best.anchor.point, best.data, rng)
    taken = None
    while len(tried) < TRIALS and failures < FAILURES and most > 0.0:
        try:
            proposal = proposals.send(taken)
        except StopIteration:
            break
        least = best.anchor.objective + gain
        trial = _begun(best.model, proposal, best.data, seed)
        tried.append(try_out(trial, n_epochs, least))
        most -= trial.passes
        failures, taken = failures + 1, None
        higher = trial.anchor.objective > least
        if higher and _n_degenerate(trial) <= _n_degenerate(best):
            best, failures, taken = trial, 0, trial.anchor.point
    return best, tried


def try_out(run, n_epochs, least):
    """Make so many epochs, or fewer where `least` is out of reach.

    That is where no epoch left reaches it though all gain as much as the last has.

    Parameters
    ----------
    run : Run
        Not begun.
    n_epochs : int
    least : float
        Objective a unit.

    Returns
    -------
    run : Run
        The same.
    """
    run.advance(min(SURE, n_epochs))
    while run.n_iter < n_epochs:
        before, last = (epoch.objective for epoch in run.history[-2:])
        if last + (n_epochs - run.n_iter) * (last - before) <= least:
            break
        run.advance(1)
    return run


def ranked_moves(promise):
    """Yield pairs of parts of a mixture to split and to give up, the best first.

    Parameters
    ----------
    promise : ndarray of shape (n_parts, n_parts)
        Gain of splitting one, less the loss of giving up another; the diagonal, of
        which there is none, is written to.
    """
    np.fill_diagonal(promise, -np.inf)
    splits, merges = set(), [0] * len(promise)
    for at in np.argsort(-promise, axis=None, kind="stable"):
        split, merged = divmod(int(at), len(promise))
        if promise[split, merged] == -np.inf:
            return
        if split not in splits and merges[merged] < MERGES:
            splits.add(split)
            merges[merged] += 1
            yield split, merged
