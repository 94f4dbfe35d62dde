"""Codes of rows that are found anew where a fit of the factorial mixture ends.

A visit begins where the last one has left the code of a row, and coordinate ascent can
stay there in an optimum of components as these were once: rows keep codes that are
poor for the components as they stand now, and the components those that suit them.
"""

from functools import partial

import numpy as np

from skvrem.factorial._moves import LEFT, among_best
from skvrem.solvers import Batch, Run

# How often, from one end on.
AGAIN = 3


class FreshCodes:
    """Where codes that are found anew lead from the end of a start, and moves then.

    If it is one of the best, and as long as the bound rises.

    Parameters
    ----------
    make : callable
        Returns a FactorialModel.
    data : source
    least : float
        What codes must gain a row.
    ends : list of float
        Where starts have ended before, to which this one adds its own.
    moves : FactorMoves, default=None
        What else leads on, and back to here.

    Attributes
    ----------
    moved : bool
        Whether the last point was that of a move.
    """

    def __init__(self, make, data, least, ends, moves=None):
        self.make, self.data, self.least = make, data, least
        self.ends, self.moves = ends, moves
        self.left, self.known, self.moved = AGAIN, -np.inf, False

    def __call__(self, end, left, search):
        """Return a point to begin from once more, or None, what it cost, and False.

        Parameters
        ----------
        end : skvrem.solvers.Result
        left : int
            Epochs that there may be.
        search : callable
            See :class:`skvrem.solvers.Start`.
        """
        point, passes, more = None, 0.0, 0.0
        if end.converged and left >= LEFT and self._stale(end.objective):
            point, passes = search("codes", partial(self._find, end))
        self.moved = point is None
        if self.moved and self.moves is not None:
            point, more, _ = self.moves(end, left, search)
        return point, passes + more, False

    def _stale(self, objective):
        """Whether codes are to be found anew, as of an end of that objective."""
        if self.left == AGAIN:
            if not among_best(self.ends, objective):
                self.left = 0
        if not self.left or objective <= self.known + self.least:
            return False
        self.left, self.known = self.left - 1, objective
        return True

    def _find(self, end):
        """Return where new codes lead, None if not higher, and the passes made.

        Those of rows that lie elsewhere lie there, and do not compare with new ones
        row by row: there they may be worse.
        """
        model = self.make()
        kept = None if self.data.remote else end.point.codes
        point, passes = model.refill(end.point, self.data, kept)
        rng = np.random.default_rng(0)
        begun = Run(model, Batch(), self.data, point, tol=0.0, rng=rng).advance(0)
        passes += begun.passes
        if begun.anchor.objective <= end.objective + self.least:
            return None, passes
        return begun.anchor.point, passes
