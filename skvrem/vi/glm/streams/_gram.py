"""What a stream of real numbers keeps of its rows: the sums of all of them."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data import as_source, container, joined, weights_of
from skvrem.vi.gaussian._model_posterior import MeanField

#: Coefficients up to which sums of squares and products are kept.
MOST_IN_GRAM = 1000
# Rows that sums are made of at once.
AT_ONCE = 8192


class Gram(NamedTuple):
    """Rows of a regression with Gaussian noise, few that have the sums of all.

    With R from the QR decomposition of the weighted columns 1, X, y, turned so that its
    first column is constant, a row of R is a weighted row with a one: their number, and
    all sums of squares and products, are those of the rows seen.

    Attributes
    ----------
    rows : ndarray of shape (m, n_features)
    targets, weight : ndarray of shape (m,)
    prior : MeanField
        Of the stream, before any rows.
    seen : ColumnMoments, default=None
        Of the columns of all rows, which the prior follows; None for one that stands.
    """

    rows: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    prior: MeanField
    seen: Any = None

    @classmethod
    def of(cls, data, targets, prior, before=None):
        """Return the sums of some rows, and of those before."""
        rows, weight = container(data.rows), weights_of(data)
        seen = None if before is None else before.seen
        prior = prior if before is None else before.prior
        for first in range(0, data.n_units, AT_ONCE):
            some = slice(first, first + AT_ONCE)
            part = rows[some].toarray() if sp.issparse(rows) else rows[some].copy()
            parts = part, targets[some].copy(), weight[some].copy()
            if before is not None:
                parts = map(joined, before[:3], parts)
            before = cls(*parts, prior, seen)._reduced()
        return before

    @classmethod
    def of_blocks(cls, data):
        """Return the sums of rows that lie elsewhere, whose batches bring targets."""
        return data.chunks().reduce(_gram_of_block, cls.joined)

    def joined(self, other):
        """Return the sums of these rows and others."""
        parts = map(joined, self[:3], other[:3])
        return Gram(*parts, self.prior, self.seen)._reduced()

    def _reduced(self):
        """Return as few rows as have these sums."""
        rows, targets, weight, *about = self
        if len(rows) <= rows.shape[1] + 2 or not weight.any():
            return self
        columns = np.column_stack([np.ones(len(rows)), rows, targets])
        R = np.linalg.qr(columns * np.sqrt(weight)[:, None], mode="r")
        # The reflection that takes the first axis to the diagonal of all.
        normal = np.full(len(R), -1.0 / np.sqrt(len(R)))
        normal[0] += 1.0
        R -= np.outer(normal, (2.0 / (normal @ normal)) * (normal @ R))
        one = R[:, :1]
        of_ones = R / one
        return Gram(of_ones[:, 1:-1], of_ones[:, -1], np.square(one[:, 0]), *about)

    def prior_and_rows(self, data, targets):
        """Return the stream's prior, a source of all rows or what they are, targets."""
        rows = joined(self.rows, container(data.rows))
        weight = joined(self.weight, weights_of(data))
        source = as_source(rows, weight)
        return self.prior, source, joined(self.targets, targets)


def _gram_of_block(batch):
    return Gram.of(batch, batch.targets, None)
