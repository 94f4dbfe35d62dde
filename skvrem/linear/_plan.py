"""How a fit is made: which curvature, from how many rows, which solver and steps."""

from typing import NamedTuple

import numpy as np

from skvrem.linear._model_curvature import Curvature

__all__ = ["Sample", "choose_curvature", "curvature_rows", "start_rows"]

# Matrices of more features take longer to factor than they save.
MOST_FEATURES = 2000
# All matrices of a curvature together.
CURVATURE_BYTES = 1 << 26
# Rows a feature that make a curvature right to some 15 %, and to some 30 %.
MANY_ROWS, FEW_ROWS = 40, 10
# What taking the curvature may cost beyond FEW_ROWS, in passes for the gradient.
CURVATURE_PASSES = 3.0
# The first fit is to a share of the rows, but to so many a feature at least; and it
# pays only where they are few among all.
START_SHARE, START_ROWS, WORTH_IT = 16, 10, 4
# Rank of the automatic sketch for dense rows of many features.
AUTO_RANK = 20


def choose_curvature(p, k, n_rows, *, sparse, rank, own, stream=False):
    """Return how the curvature is kept.

    Parameters
    ----------
    p, k : int
        Rows and columns of the parameters.
    n_rows : int
    sparse : bool
    rank : int or None
        The user's choice.
    own : bool
        Each class has a matrix of its own, where they are not too large.
    stream : bool
        It is added up block by block, so that its matrices are factored often.
    """
    if rank is not None:
        return Curvature("sketch", p, 1, min(rank, p))
    if p > MOST_FEATURES or (p > n_rows and p > 200 and not stream):
        if sparse:
            return Curvature("diagonal", p, k if own else 1)
        return Curvature("sketch", p, 1, min(AUTO_RANK, p))
    own = own and 8 * k * p * p <= CURVATURE_BYTES
    return Curvature("gram", p, k if own else 1)


def curvature_rows(curvature, p, k, n_rows, row_entries):
    """Return from how many rows a curvature is taken."""
    if curvature.kind != "gram":
        return min(n_rows, max(4096, n_rows // 4))
    affordable = CURVATURE_PASSES * 4.0 * n_rows * k / row_entries / curvature.columns
    rows = np.clip(affordable, FEW_ROWS * p, MANY_ROWS * p)
    return int(min(n_rows, max(rows, 1024)))


def start_rows(p, n_rows):
    """Return the rows of the first fit, 0 where it would not pay."""
    rows = max(n_rows // START_SHARE, START_ROWS * p)
    return rows if rows * WORTH_IT <= n_rows else 0


class Chunks(NamedTuple):
    """Ranges of the rows of a sample: a partition for full passes."""

    batches: list
    total_weight: float

    def sum(self, function):
        """Return ``function`` of the whole sample, which cuts it itself."""
        (batch,) = self.batches
        return function(batch)


class Sample:
    """Some rows of a source as a source of their own, without a copy.

    Parameters
    ----------
    batch : skvrem.data batch
    """

    def __init__(self, batch):
        self.batch = batch
        self.n_units = batch.n_units
        self.total_weight = batch.total_weight

    def chunks(self):
        """All rows of the sample."""
        return Chunks([self.batch], self.total_weight)

    def sample(self, n_units, rng):
        """Return at most `n_units` of the rows, drawn without replacement."""
        n_units = min(n_units, self.n_units)
        chosen = rng.choice(self.n_units, n_units, replace=False, shuffle=False)
        index = np.sort(self.batch.index[chosen])
        index.flags.writeable = False
        return self.batch._replace(index=index, start=0, stop=n_units)
