"""Topics of documents in blocks; counts of collapsed ones live beside the documents."""

from functools import partial

import numpy as np

from skvrem.data import beside_rows, lives_beside, sum_beside
from skvrem.topics._blocks import VisitedWhereTheyLie
from skvrem.topics.lda._model import LDAModel
from skvrem.topics.lda._model_collapsed import CollapsedLDAModel, draws_of


class BlockLDAModel(VisitedWhereTheyLie, LDAModel):
    """Mean field of documents that lie in blocks elsewhere."""


class BlockCollapsedLDAModel(VisitedWhereTheyLie, CollapsedLDAModel):
    """Collapsed topics of documents that lie in blocks elsewhere, and n_d with them."""

    def for_batches(self, point, visit):
        """Return what a visit needs of the point."""
        own = point.own._replace(reached=None)
        return super().for_batches(point._replace(own=own), visit)

    def _counts_of(self, n_documents, width):
        return beside_rows(partial(_zeros, width, self.dtype))

    def _room_beside(self, before):
        return self._counts_of(None, len(self.doc_prior))

    def _looked_at(self, own):
        return lives_beside(own.chances)

    def _to_look_at(self, own):
        width, dtype = len(self.doc_prior), self.dtype
        chances = beside_rows(partial(_zeros, width, dtype))
        return own._replace(chances=chances, weight=beside_rows(partial(_flat, dtype)))

    def _not_looked_at(self, own):
        width = len(self.doc_prior)
        nothing = np.empty((0, width), self.dtype), np.empty(0, self.dtype)
        return own._replace(chances=nothing[0], weight=nothing[1])

    def _swapped(self, own):
        return own._replace(before=own.after, after=self._room_beside(own.after))

    def _draws(self, own, prior):
        about = own.after, own.chances, own.weight
        return sum_beside(partial(draws_of, prior), *about)

    def pack(self, point):
        """Return the point without what lives beside documents."""
        point = super().pack(point)
        return point._replace(own=point.own._replace(before=None))

    def unpack(self, point):
        """Return the point with counts to be found anew."""
        none = self._counts_of(None, len(self.doc_prior))
        return super().unpack(point._replace(own=point.own._replace(before=none)))


def _zeros(width, dtype, n_documents):
    return np.zeros((n_documents, width), dtype)


def _flat(dtype, n_documents):
    return np.zeros(n_documents, dtype)
