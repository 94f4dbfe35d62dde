"""Matches of a stream that are kept, to be seen again as they grow."""

from typing import NamedTuple

import numpy as np

from skvrem.data import MOST_BYTES
from skvrem.vi.bradley_terry._input import counted_together
from skvrem.vi.bradley_terry._model import Matches

#: All are seen again where they weigh so many times as much as when they last were: the
#: looks together take at most six times as long as one at the end.
GROWTH = 1.2


class KeptMatches(NamedTuple):
    """All matches of a stream, those of the same two items counted together.

    Attributes
    ----------
    matches : Matches, default=None
        None before any.
    looked : float, default=0.0
        What they weighed when all were last seen.
    """

    matches: Matches | None = None
    looked: float = 0.0

    @property
    def weight(self):
        """What all matches weigh."""
        return sum(float(count.sum()) for count in self.matches[3:])

    @property
    def due(self):
        """Whether all are to be seen again."""
        return self.weight >= GROWTH * self.looked

    def after(self, matches):
        """Return what is kept after some more, None where that is too much."""
        joined = matches
        if self.matches is not None:
            joined = counted_together(*map(_appended, self.matches, matches))
        if sum(part.nbytes for part in joined) > MOST_BYTES:
            return None
        return self._replace(matches=joined)

    def looked_at(self):
        """Return the same, as all have just been seen."""
        return self._replace(looked=self.weight)


def _appended(before, now):
    return np.concatenate([before, now])
