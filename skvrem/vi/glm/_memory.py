r"""What a stream keeps of its rows: a Gaussian of all of them, and a sample.

The posterior of the rows before is the prior of a batch, but for a sample of these,
which are seen again: what the Gaussian holds of them is taken out of it. Of a row the
natural parameters of a posterior q hold its curvature, :math:`C_n x_n x_n^T`, and
:math:`(g_n + C_n x_n^T \mu)\, x_n` with its slope g. So with weights w that make the
sample stand for all rows,

.. math:: \log p(y | \theta) \approx \log q(\theta) + \sum_n w_n \left[
          \log p(y_n | x_n^T \theta) - \hat\ell_n(x_n^T \theta) \right]

which is the difference of a control variate, now for a log-likelihood: what the
expansions :math:`\hat\ell` of rows at an earlier posterior get wrong is estimated by
the sample. While all rows are kept the posterior is that of a fit to all.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data import as_source
from skvrem.vi.gaussian._model import GaussianModel, as_vector, structure_of
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField

#: Rows that are kept, and that sums are made of at once.
KEPT, AT_ONCE = 1000, 8192
# Share of a posterior's precision that is left, at least, without the rows kept; and
# how far it moves, in squares of its width a coefficient, where expansions are wrong.
LEAST, FAR = 1e-3, 1.0


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
    """

    rows: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    prior: MeanField

    @classmethod
    def of(cls, data, targets, prior, before=None):
        """Return the sums of some rows, and of those before."""
        rows, weight = _container(data.rows), _weight(data)
        prior = prior if before is None else before.prior
        for first in range(0, data.n_units, AT_ONCE):
            some = slice(first, first + AT_ONCE)
            part = rows[some].toarray() if sp.issparse(rows) else rows[some]
            parts = part, targets[some], weight[some]
            if before is not None:
                parts = map(_joined, before[:3], parts)
            before = cls(*parts, prior)._reduced()
        return before

    @classmethod
    def of_blocks(cls, data):
        """Return the sums of rows that lie elsewhere, whose batches bring targets."""
        return data.chunks().reduce(_gram_of_block, cls.joined)

    def joined(self, other):
        """Return the sums of these rows and others."""
        parts = map(_joined, self[:3], other[:3])
        return Gram(*parts, self.prior)._reduced()

    def _reduced(self):
        """Return as few rows as have these sums."""
        rows, targets, weight, prior = self
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
        return Gram(of_ones[:, 1:-1], of_ones[:, -1], np.square(one[:, 0]), prior)

    def prior_and_rows(self, data, targets):
        """Return the stream's prior, a source of all rows or what they are, targets."""
        rows = _joined(self.rows, _container(data.rows))
        weight = _joined(self.weight, _weight(data))
        source = as_source(rows, weight)
        return self.prior, source, _joined(self.targets, targets)


def _gram_of_block(batch):
    return Gram.of(batch, batch.targets, None)


class Memory(NamedTuple):
    """Rows of a stream, each with the same probability among those kept.

    Attributes
    ----------
    rows : ndarray or CSR of shape (n_kept, n_features)
    targets : ndarray of shape (n_kept, ...)
    weight : ndarray of shape (n_kept,)
        The users' own.
    keys : ndarray of shape (n_kept,)
        Random numbers: rows are kept whose keys are least.
    n_seen : int
    prior : MeanField
        Of the stream, before any rows.
    """

    rows: Any
    targets: np.ndarray
    weight: np.ndarray
    keys: np.ndarray
    n_seen: int
    prior: MeanField

    @classmethod
    def of(cls, data, targets, prior, before=None):
        """Return the memory of some rows, and of those before."""
        n, n_seen = data.n_units, 0 if before is None else before.n_seen
        weight = _weight(data)
        # Of the number of rows before, so that a stream does not depend on a seed.
        keys = np.random.default_rng(n_seen).random(n)
        rows = _container(data.rows)
        if n_seen:
            rows, targets, weight, keys = (
                _joined(*parts)
                for parts in zip(before[:4], (rows, targets, weight, keys), strict=True)
            )
        kept = np.sort(np.argpartition(keys, KEPT)[:KEPT]) if len(keys) > KEPT else ...
        parts = (part[kept] for part in (targets, weight, keys))
        rows = rows[kept] if kept is not ... else rows
        prior = prior if before is None else before.prior
        return cls(rows, *parts, n_seen + n, prior)

    @classmethod
    def nothing(cls, prior):
        """Return the memory before any rows, but what a Gaussian knows."""
        return cls(None, None, None, np.empty(0), 0, prior)

    def beside(self, data, targets):
        """Return a source of the rows kept and of new ones, and their targets."""
        weight = _joined(self._weight, _weight(data))
        rows = _joined(self.rows, _container(data.rows))
        return as_source(rows, weight), _joined(self.targets, targets)

    @property
    def _weight(self):
        return self.weight * (self.n_seen / len(self.keys))

    def prior_and_rows(self, posterior, family, intercept, data, targets):
        """Return the prior of a batch, a source of what is to be seen, and targets.

        The rows kept are seen again while they are all, and where the batch moves the
        posterior by more than its width: else nothing is wrong with its expansions.
        """
        if not self.n_seen:
            return self.prior, data, targets
        if len(self.keys) == self.n_seen:
            return self.prior, *self.beside(data, targets)
        if isinstance(posterior, LowRank):
            return posterior, data, targets
        about = posterior, family, intercept
        slope, curvature = _sums(*about, data, targets)
        if isinstance(posterior, FullRank):
            precision = posterior.precision
            step = np.linalg.solve(precision + curvature, slope)
            length = step @ precision @ step
        else:
            precision = 1.0 / np.square(posterior.scale)
            length = precision @ np.square(slope / (precision + curvature))
        if length < FAR * slope.size:
            return posterior, data, targets
        return self._without(*about), *self.beside(data, targets)

    def _without(self, posterior, family, intercept):
        """Return the Gaussian that is left of a posterior without the rows kept.

        Where the sample has more curvature than the posterior, as it errs, next to none
        is left, and what the rows kept lack of balance at the mean is made up for.
        """
        data = as_source(self.rows, self._weight)
        about = posterior, family, intercept
        slope, curvature = _sums(*about, data, self.targets)
        mean = posterior.mean
        if not isinstance(posterior, FullRank):
            precision = 1.0 / np.square(posterior.scale)
            precision *= np.maximum(1.0 - curvature / precision, LEAST)
            return MeanField(mean - slope / precision, 1.0 / np.sqrt(precision))
        # In the axes where the posterior is round.
        root = posterior.factor
        left, axes = np.linalg.eigh(root.T @ curvature @ root)
        axes = root @ (axes / np.sqrt(np.maximum(1.0 - left, LEAST)))
        covariance = axes @ axes.T
        factor = np.linalg.cholesky(covariance)
        return FullRank(mean - covariance @ slope, factor)


def _sums(posterior, family, intercept, data, targets):
    """Return slope (D,) and curvature, (D, D) or (D,), of rows at a posterior."""
    given = targets, None, data.total_weight, intercept
    model = GaussianModel(family, *given, *structure_of(posterior))
    point = model.point_of(posterior)
    sums = data.chunks().sum(partial(model.statistics, point, beta=1.0))
    curvature = sums.curvature if model.full else as_vector(sums.curvature)
    return as_vector(sums.gradient), curvature


def _weight(data):
    return np.asarray(data.weight if data.weight.size else np.ones(data.n_units), float)


def _container(rows):
    """Return rows of a source as an array or a sparse one."""
    if isinstance(rows, np.ndarray):
        return rows
    values, indices, starts, n_features = rows
    return sp.csr_array((values, indices, starts), (len(starts) - 1, n_features))


def _joined(before, now):
    """Return one after the other; a batch may be sparse, or have an offset, alone."""
    if sp.issparse(before) or sp.issparse(now):
        return sp.vstack([before, now], format="csr")
    if before.ndim < now.ndim:
        before = np.column_stack([before, np.zeros_like(before)])
    if now.ndim < before.ndim:
        now = np.column_stack([now, np.zeros_like(now)])
    return np.concatenate([before, now])
