"""pLSA whose shares of topics live beside the documents."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.data import beside_rows
from skvrem.topics._blocks import VisitedWhereTheyLie
from skvrem.topics.plsa._model import PLSAModel, uniform_shares


class RowShares(NamedTuple):
    """What lives beside documents: shares before a visit, and after it.

    Attributes
    ----------
    before, after : skvrem.data._dask.RowState
        Where a block is evaluated, arrays of shape (n_documents, K); before a first
        visit NaN where they are not known.
    """

    before: Any
    after: Any

    #: What visits write to, the first where it is found anew.
    written = ("before", "after")

    @classmethod
    def of(cls, fresh):
        """Return those that documents begin with, ``fresh(n_documents)`` of a block."""
        return cls(beside_rows(fresh), beside_rows(fresh))


class BlockPLSAModel(VisitedWhereTheyLie, PLSAModel):
    """pLSA of documents that lie in blocks elsewhere, and their θ with them.

    A point's own are `RowShares`. θ that are not known are found anew from the topics,
    by the visit that needs them.
    """

    def own_of(self, own, point, documents):
        """Return θ of the documents of a block, before a visit and after it."""
        before, ids = own.before, documents.ids
        if np.isnan(before[ids[:1]]).any():
            numbers = np.arange(len(ids), dtype=np.int32)
            before[ids] = self.found_anew(point, documents._replace(ids=numbers))
        return tuple(own)

    def uniform(self, n_documents):
        """Return θ of documents that nothing is known of."""
        return RowShares.of(partial(uniform_shares, self.n_components, self.dtype))

    def _before_and_after(self, theta):
        return theta

    def renew(self, own, sums):
        """Return θ as last visited, and room for those of the next visits."""
        before, unknown = own.after.copy(), self._unknown()
        before.fresh = unknown  # what is lost from now on
        return RowShares(before, beside_rows(unknown))

    def pack(self, point):
        """Return the point without θ, which do not travel."""
        return point._replace(own=None)

    def unpack(self, point):
        """Return the point with θ to be found anew."""
        return self.refill(point, None)[0]

    def refill(self, point, data):
        """Return the point with θ to be found anew, and no pass made."""
        return point._replace(own=RowShares.of(self._unknown())), 0.0

    def _unknown(self):
        return partial(_unknown, len(self.doc_prior), self.dtype)


def _unknown(width, dtype, n_documents):
    return np.full((n_documents, width), np.nan, dtype)
