"""pLSA whose shares of topics live beside the documents."""

from functools import partial

import numpy as np

from skvrem.topics._blocks import later, shares_beside
from skvrem.topics.plsa._model import PLSAModel, uniform_shares


class BlockPLSAModel(PLSAModel):
    """pLSA of documents that lie in blocks elsewhere, and their θ with them.

    A point's own are `Shares`. θ that are not known are found anew from the topics, by
    the visit that needs them.
    """

    def uniform(self, n_documents):
        """Return θ of documents that nothing is known of."""
        return shares_beside(partial(uniform_shares, self.n_components, self.dtype))

    def _before_and_after(self, theta):
        return theta

    def renew(self, own, sums):
        """Return θ as last visited, and room for those of the next visits."""
        return later(own)

    def pack(self, point):
        """Return the point without θ, which do not travel."""
        return point._replace(own=None)

    def unpack(self, point):
        """Return the point with θ to be found anew."""
        return self.refill(point, None)[0]

    def refill(self, point, data):
        """Return the point with θ to be found anew, and no pass made."""
        fresh = partial(_unknown, len(self.doc_prior), self.dtype)
        return point._replace(own=shares_beside(fresh)), 0.0


def _unknown(width, dtype, n_documents):
    return np.full((n_documents, width), np.nan, dtype)
