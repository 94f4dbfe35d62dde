"""Whether the classes of a stream come mixed, which its curvature depends on."""

from typing import NamedTuple

import numpy as np

# Rows that are counted together at least.
FEWEST = 32
# Times that a class has come: rows of the first may be the first of a long run. Before,
# each time, and no class is rarer than this part of an even share.
TIMES, RARE = 3, 0.5
# Of the spread of the classes, what is found among rows that came together.
MIXED = 0.8


class ClassOrder(NamedTuple):
    r"""How the classes of a stream's rows are spread over its batches.

    The probability that two rows are of different classes, :math:`1 - \sum_c \pi_c^2`,
    is the same among the rows of a batch as among all where rows are in random order
    (but for ``1 / n`` of it in n rows), and much smaller where they come by class.

    Attributes
    ----------
    seen : ndarray of shape (n_classes,)
        Rows of each class, the newest left out.
    within : float
        The probability among rows that came together, times the number of rows.
    newest : ndarray of shape (n_classes,)
        Rows of the newest batches, while they are few.
    times : ndarray of shape (n_classes,)
        In how many batches, or few together, rows of each class have come.
    n_batches : int
        Of how many.
    """

    seen: np.ndarray
    within: float
    newest: np.ndarray
    times: np.ndarray
    n_batches: int = 0

    @classmethod
    def unknown(cls, n_classes):
        """Return that of a stream of which nothing has been seen."""
        return cls(np.zeros(n_classes), 0.0, *np.zeros((2, n_classes)))

    def after(self, y):
        """Return the order with that of a batch of rows of classes y (n,)."""
        newest = self.newest + np.bincount(y, minlength=len(self.seen))
        if newest.sum() < FEWEST:
            return self._replace(newest=newest)
        return ClassOrder(
            self.seen + newest,
            self.within + _spread(newest),
            np.zeros_like(newest),
            self.times + (newest > 0),
            self.n_batches + 1,
        )

    @property
    def mixed(self):
        """Whether all classes have come, and in random order as far as batches tell."""
        known = self.times.min() >= min(TIMES, self.n_batches)
        if self.n_batches < TIMES:
            known &= self.seen.min() >= RARE * self.seen.mean()
        return bool(known and self.within > MIXED * _spread(self.seen))


def _spread(counts):
    """Return the probability that two of the rows differ, times their number."""
    total = max(counts.sum(), 1.0)
    return float(total - np.square(counts).sum() / total)
