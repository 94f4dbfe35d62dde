"""A mixture of multinomials on CSR counts: the contract's second, sparse model.

Plain NumPy, one formula a line. It is here to prove that the solvers are not shaped by
dense rows alone: its statistics touch the words of a batch and no others.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.utils._algebra import Rows
from skvrem.utils._averaging import Averaging, AveragingPoint


class Parameters(NamedTuple):
    weights: np.ndarray  # (n_components,)
    words: np.ndarray  # (n_features, n_components), columns sum to 1


class Statistics(NamedTuple):
    sum_w: np.ndarray
    sum_x: object  # Rows of a (n_features, n_components) array, or the array
    objective: float
    entropy: float


class MultinomialMixtureModel(Averaging):
    """MAP estimate with Dirichlet(1 + prior) on the words of every component."""

    def __init__(self, prior, n_units, keep_sums=True):
        self.prior = prior
        self.n_units = n_units
        self.keep_sums = keep_sums
        self.recall_passes = 0 if keep_sums else 1

    def statistics(self, point, batch, beta):
        rows = sp.csr_matrix(
            (batch.rows.data, batch.rows.indices, batch.rows.indptr),
            shape=(len(batch.rows.indptr) - 1, batch.rows.n_features),
        )[batch.ids]
        weight = (
            batch.weight[batch.ids] if batch.weight.size else np.ones(batch.n_units)
        )
        touched = np.unique(rows.indices)
        counts = rows[:, touched]
        weights, words = point.parameters
        joint = np.log(weights) + counts @ np.log(words[touched])
        scaled = beta * joint
        norm = np.logaddexp.reduce(scaled, axis=1)
        share = np.exp(scaled - norm[:, None]) * weight[:, None]
        return Statistics(
            share.sum(axis=0),
            Rows(touched, counts.T @ share, words.shape[0]),
            float(weight @ norm / beta),
            float(weight @ norm / beta - (share * joint).sum()),
        )

    def maximize(self, statistics, point, repair):
        words = statistics.sum_x + self.prior / self.n_units
        if not repair and (words.min() <= 0 or statistics.sum_w.min() <= 0):
            return None
        weights = statistics.sum_w / statistics.sum_w.sum()
        return Parameters(weights, words / words.sum(axis=0)), ()

    def objective(self, point, mean):
        prior = self.prior * np.log(point.parameters.words).sum()
        return float(mean.objective + prior / self.n_units)

    def surrogate(self, point, sums):
        weights, words = point.parameters
        logs = np.log(words)
        if isinstance(sums.sum_x, Rows):
            expected = (sums.sum_x.values * logs[sums.sum_x.index]).sum()
        else:
            expected = (sums.sum_x * logs).sum()
        prior = self.prior * logs.sum() / self.n_units
        return float(sums.sum_w @ np.log(weights) + expected + prior)

    def norm(self, point, sums):
        return float(np.sqrt(sum(np.square(part).sum() for part in sums[:2])))

    def start(self, parameters):
        weights, words = parameters
        mean_length = 1.0
        statistics = Statistics(weights, words * mean_length * weights, 0.0, 0.0)
        return AveragingPoint(parameters, statistics)
