"""LDA in which every document has a temperature of its own (local tempering).

Mandt et al. (2016), Eqs. 10 and 11. The inverse temperature of the loop is here the
largest that a document may have: it rises to 1, so that documents cannot cool before
the topics have separated.
"""

import numpy as np

from skvrem.topics._model_word_sums import NO_WORDS, by_topics, padded_zeros, word_rows
from skvrem.topics._model_words import Statistics
from skvrem.topics.lda import _kernels as kernels
from skvrem.topics.lda._model import LDAModel

__all__ = ["LocallyTemperedLDAModel"]

# Inverse temperatures of a document. 0 would make all its words equally likely.
GRID = np.linspace(0.05, 1.0, 20)


class LocallyTemperedLDAModel(LDAModel):
    """Variational posterior of topics and of the documents' temperatures.

    Parameters are those of `LDAModel`. A point's own are the partition functions.
    """

    def remember(self, point, batch, beta):
        """Return the sums of a batch, and what gives them again without rounds."""
        logs, top = self.words_of(point.sums, batch)
        _, objective, w, at, inverse = self.infer_tempered(
            logs, top, batch, beta, point.own
        )
        sums = self._tempered_counts(batch, w, at, inverse, logs)
        return Statistics(sums, objective), (w, at, inverse, point.sums)

    def recall(self, memory, point, batch):
        """Return the sums where `memory` was made."""
        w, at, inverse, sums = memory
        logs, _ = self.words_of(sums, batch)
        return Statistics(self._tempered_counts(batch, w, at, inverse, logs), 0.0)

    def infer_tempered(self, logs, top, batch, beta, partition):
        """Return as `infer`, and the inverse temperatures of the documents.

        Parameters
        ----------
        logs, top : ndarrays of shapes (n_words, K) and (n_words,)
            E log β relative to the largest entry of a word, and that entry.
        batch : batch of documents
        beta : float
            Largest inverse temperature.
        partition : ndarray of shape (n_temperatures, K)
            S_k(b) for the grid.
        """
        allowed = GRID <= beta * (1.0 + 1e-9)
        inverse = np.empty(batch.n_units, self.dtype)
        tempered = GRID[allowed], partition[allowed], inverse
        found = self.infer(logs, top, batch, beta, tempered)
        return *found, inverse

    def _tempered_counts(self, batch, w, at, inverse, logs):
        counts = batch.rows
        sums = padded_zeros(*logs.shape, self.dtype)

        def add(topics):
            kernels.sum_tempered_words(
                w, counts.index, counts.indptr, at, inverse, logs, *topics, sums
            )

        by_topics(add, logs.shape[1])
        return word_rows(batch, sums)

    def renew(self, own, sums):
        """Return the partition functions S_k(b) of the topics."""
        topics = self._topics(sums, NO_WORDS)
        return self.partition(*self.expect_log(topics, self.psi_totals(topics)), GRID)

    def temperatures(self, topics, batch):
        """Return 1 / b_d of documents, given padded topics λ; nothing caps b_d."""
        psi_totals = self.psi_totals(topics)
        logs, top = self.expect_log(topics, psi_totals)
        partition = self.partition(logs, top, GRID)
        words = batch.rows.words
        own, own_top = (logs[words], top[words]) if words.size else (logs, top)
        *_, inverse = self.infer_tempered(own, own_top, batch, 1.0, partition)
        return 1.0 / inverse.astype(np.float64)
