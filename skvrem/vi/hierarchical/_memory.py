"""What a stream keeps of the rows of groups: a quadratic of all, and samples.

What rows say of their group is kept as a quadratic of its coefficients, about where the
posterior was: of rows of one class, say, it errs where others lead the group elsewhere.
So each group has a sample of its rows, which is seen again where the group moves; what
the quadratic holds of these rows is taken out of it.
"""

from typing import Any, NamedTuple

import numpy as np

from skvrem.data import KeptRows, as_source, joined
from skvrem.vi.gaussian.nested._input import number_groups

#: Rows that are kept, of all groups; and of each, at least so many a coefficient, but
#: for more than so many a class, which are as many numbers as a fit needs.
KEPT, EACH, MOST = 1000, 4, 64
# How far a group moves, in squares of its posterior's width a coefficient, where the
# rows kept are seen again; and how many times as many rows choose a prior anew.
FAR, GROWTH = 0.3, 2.0


class GroupMemory(NamedTuple):
    """Rows of a stream by group, and where they were last seen.

    Attributes
    ----------
    kept : KeptRows
        As they came.
    about : ndarray of shape (n_groups, p, k), or None
        Means of groups when their rows that are kept were last seen, NaN where they
        are being seen; None where all are.
    begun : int
        Rows of which the prior was made; 0 where it is not of the stream.
    """

    kept: KeptRows = KeptRows()
    about: Any = None
    begun: int = 0

    def after(self, new, posterior):
        """Return the memory after a batch, which has led to a posterior."""
        at, before = posterior.group_mean, self.about
        about = at if before is None else np.where(np.isnan(before), at, before)
        p, k = posterior.mean.shape
        most = max(KEPT // len(at), min(EACH * p * k, MOST * k))
        data = as_source(new.rows, new.weight)
        kept = self.kept.after(data, new.numbers, most, new.ids)
        return self._replace(kept=kept, about=about)

    def begins_anew(self, new, n_seen):
        """Whether a batch makes enough of what is known to choose a prior anew.

        Where all rows are kept: of these and of it.
        """
        kept = self.kept
        if not self.begun or not kept.are_all or kept.n_seen < n_seen:
            return False
        grown = n_seen + len(new.rows) >= GROWTH * self.begun
        return bool(grown or not np.isin(new.numbers, kept.targets).all())

    def begin_anew(self, new):
        """Return rows to be seen, which are all, and the memory of them."""
        seen = self.beside(new)
        return seen, self._replace(about=None, begun=len(seen.rows))

    def recall(self, new, units, past, posterior, groups, counts):
        """Return rows to be seen for a batch, and what is known of others.

        Parameters
        ----------
        new : GroupedRows
            The batch.
        units : Units or None
        past : Quadratic or Past
            Of all rows before.
        posterior : NestedPosterior or GroupPosterior
        groups, counts : ndarray of shape (n_groups,)
            Ids, and how many rows there were.

        Returns
        -------
        seen : GroupedRows
        past : Quadratic or Past
        memory : GroupMemory
        """
        known = new.part(number_groups(new.ids, groups) >= 0).within(units)
        away = posterior.step(known.said(groups, posterior))
        away += posterior.group_mean - self.about
        moved = posterior.squares(away) > FAR * posterior.mean.size
        if not self.kept.n_seen or not moved.any():
            return new, past, self
        place = number_groups(self.kept.groups, groups)
        some, n_kept = moved[place], np.bincount(place, minlength=len(groups))
        again = self.beside(new.part(slice(0)), some).within(units)
        past = past.without(again.said(groups, posterior), moved & (n_kept == counts))
        about = np.where(moved[:, None, None], np.nan, self.about)
        return self.beside(new, some), past, self._replace(about=about)

    def beside(self, new, some=slice(None)):
        """Return rows that are kept, some or all, before those of a batch."""
        rows, targets, weight, _, _, share, groups = self.kept
        ones = np.ones(len(new.rows)) if new.weight is None else new.weight
        return new._replace(
            rows=joined(rows[some], new.rows),
            numbers=joined(targets[some], new.numbers),
            weight=joined((weight * share)[some], ones),
            ids=joined(groups[some], new.ids),
        )
