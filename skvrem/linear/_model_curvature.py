r"""Curvatures: sums over rows that are additive, and the metrics made of them.

For parameters of p rows (features and intercept) and k columns (classes; one column
for two classes) a curvature is one of

"gram"
    a Gram matrix for each column, :math:`S_j = \sum_i w_{ij} x_i x_i^T`, of shape
    (k, p, p): the diagonal blocks of a Hessian; or one for all columns, (1, p, p).
"joint"
    one matrix for all parameters, (k, p, k, p): the Hessian,
    :math:`\sum_i w_i (\mathrm{diag}(p_i) - p_i p_i^T) \otimes x_i x_i^T`, or of stars:
    a row of class y adds :math:`\sum_{j \ne y} w_{ij}\, l_j l_j^T \otimes x_i x_i^T`,
    :math:`l_j = e_y - e_j`.
"diagonal"
    their diagonals only, (p, k) or (p, 1).
"sketch"
    diagonal and :math:`Y = S \Omega`, (p, 1 + r), with a fixed random
    :math:`\Omega` (p, r). Y is linear in the rows as S is, so sketches of parts of the
    data add up. The metric is low rank plus diagonal, :math:`V^T S V + D`, by
    Nyström's :math:`S \approx Y (\Omega^T Y)^{-1} Y^T`.

A metric solves with the curvature a unit of weight plus the ridge.
"""

from itertools import combinations

import numpy as np
from scipy.linalg import cholesky, eigh
from scipy.linalg.lapack import dpotrs

# Relative to the diagonal: makes the factor of a singular matrix exist.
JITTER = 1e-13
# Of a sketch: what is less than this share of the largest is rounding.
SMALL = 1e-10


class Curvature:
    """How a curvature is kept, added up and solved with.

    Parameters
    ----------
    kind : {"gram", "joint", "diagonal", "sketch"}
    n_features : int
        p, with the intercept.
    columns : int
        k where each column has a matrix of its own, 1 where all share one.
    rank : int
        r of "sketch".
    """

    def __init__(self, kind, n_features, columns, rank=0):
        self.kind = kind
        self.columns = columns
        self.shape = {
            "gram": (columns, n_features, n_features),
            "joint": (columns, n_features, columns, n_features),
            "diagonal": (n_features, columns),
            "sketch": (n_features, 1 + rank),
        }[kind]
        if kind == "sketch":
            # Fixed, so that the sketches of a stream stay comparable.
            rng = np.random.default_rng(0)
            self.omega = rng.standard_normal((n_features, rank))

    def zeros(self):
        """An empty sum."""
        return np.zeros(self.shape)

    def add(self, tile, weight, out, y=None):
        """Add the rows of a tile with weights (m, columns), all of them positive.

        "joint" of stars has to know their classes y (m,).
        """
        if self.kind == "gram":
            for column in range(self.columns):
                tile.add_gram(np.ascontiguousarray(weight[:, column]), out[column])
        elif self.kind == "joint":
            self._add_pairs(tile, weight, y, out)
        elif self.kind == "diagonal":
            tile.squared().add_transposed(weight, out)
        else:
            part = np.zeros((len(out), 1))
            tile.squared().add_transposed(weight, part)
            out[:, :1] += part
            part = np.zeros((len(out), self.shape[1] - 1))
            tile.add_transposed(weight * tile.times(self.omega), part)
            out[:, 1:] += part

    def _add_pairs(self, tile, weight, y, out):
        """Add a Gram matrix for each pair of classes: of the rows of either."""
        of_class = [np.flatnonzero(y == c) for c in range(self.columns)]
        gram = np.empty((self.shape[1],) * 2)
        for a, b in combinations(range(self.columns), 2):
            rows = np.concatenate([of_class[a], of_class[b]])
            if rows.size == 0:
                continue
            gram[:] = 0.0
            tile.take(rows).add_gram(weight[rows, np.where(y[rows] == a, b, a)], gram)
            out[a, :, a] += gram
            out[b, :, b] += gram
            out[a, :, b] -= gram
            out[b, :, a] -= gram

    def add_joint(self, tile, probabilities, weight, out):
        """Add the Hessian of the rows of a tile, with probabilities (m, columns)."""
        gram = np.empty((self.shape[1],) * 2)
        for a, b in combinations(range(self.columns), 2):
            gram[:] = 0.0
            tile.add_gram(weight * probabilities[:, a] * probabilities[:, b], gram)
            out[a, :, a] += gram  # what is p_a (1 - p_a) in all
            out[b, :, b] += gram
            out[a, :, b] -= gram
            out[b, :, a] -= gram

    def diagonal(self, total):
        """Return a view of the diagonal of a sum, of shape (p, columns)."""
        if self.kind in ("gram", "joint"):
            axes = {"gram": "jaa->aj", "joint": "jaja->aj"}[self.kind]
            return np.einsum(axes, total)
        return total[:, : self.columns]

    def raise_diagonal(self, mean, least):
        """Raise what is less than half of `least` (p, columns) to it, in place.

        What is nearly right stays as it is: where columns are nearly collinear, the
        rest of the matrix hangs on it.
        """
        diagonal = self.diagonal(mean)
        np.copyto(diagonal, least, where=diagonal < 0.5 * least)

    def by_class(self, total):
        """Return a sum as one of the classes' own matrices."""
        return np.einsum("jajb->jab", total).copy() if self.kind == "joint" else total

    def metric(self, mean, ridge):
        """Return what solves with a mean curvature plus a diagonal ridge (p,)."""
        if self.kind == "gram":
            return GramMetric(mean, ridge)
        if self.kind == "joint":
            return JointMetric(mean, ridge)
        if self.kind == "diagonal":
            return DiagonalMetric(mean + ridge[:, None])
        return LowRankMetric(mean[:, 0], mean[:, 1:], self.omega, ridge)


class Factor:
    """Cholesky factor of a positive matrix, scaled to a unit diagonal."""

    def __init__(self, matrix):
        diagonal = np.diagonal(matrix)
        # A column of zeros without a ridge has no gradient either: any scale does.
        self.scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
        scaled = matrix * self.scale * self.scale[:, None]
        jitter = JITTER
        while True:
            np.fill_diagonal(scaled, 1.0 + jitter)
            try:
                self.lower = cholesky(scaled, lower=True, check_finite=False)
                return
            except np.linalg.LinAlgError:
                jitter *= 100.0

    def solve(self, V):
        """Return the solution for right-hand sides V (p, k)."""
        scale = self.scale[:, None]
        return dpotrs(self.lower, V * scale, lower=1)[0] * scale


class GramMetric:
    """A factor for each column, or one for all."""

    def __init__(self, matrices, ridge):
        self.factors = [Factor(matrix + np.diag(ridge)) for matrix in matrices]

    def solve(self, V):
        """Return the solution for right-hand sides V (p, k)."""
        if len(self.factors) == 1:
            return self.factors[0].solve(V)
        columns = [f.solve(V[:, [j]]) for j, f in enumerate(self.factors)]
        return np.concatenate(columns, axis=1)


class JointMetric:
    """A factor for all columns, which sum to zero."""

    def __init__(self, matrix, ridge):
        k, p = matrix.shape[:2]
        # 11^T acts on what is common to the columns only, and does not touch the rest.
        common = matrix.reshape(k * p, -1).diagonal().reshape(k, p).mean(axis=0)
        matrix = matrix + np.diag(common / k)[None, :, None, :]
        matrix = matrix.reshape(k * p, k * p)
        matrix.flat[:: k * p + 1] += np.tile(ridge, k)
        self.factor = Factor(matrix)

    def solve(self, V):
        """Return the solution for right-hand sides V (p, k) whose columns sum to 0."""
        p, k = V.shape
        return self.factor.solve(V.T.reshape(-1, 1)).reshape(k, p).T


class DiagonalMetric:
    """Division by a diagonal, of shape (p, k) or (p, 1)."""

    def __init__(self, diagonal):
        # As above: where there is no curvature there is no gradient.
        self.inverse = 1.0 / np.where(diagonal > 0.0, diagonal, 1.0)

    def solve(self, V):
        """Return the solution for right-hand sides V (p, k)."""
        return self.inverse * V


class LowRankMetric:
    r"""Low rank plus diagonal, inverted by Woodbury's formula.

    .. math:: (D + V^T S V)^{-1} =
              D^{-1} - D^{-1} V^T (S^{-1} + V D^{-1} V^T)^{-1} V D^{-1}

    with V (r, p) orthonormal and S diagonal. The sign is a minus; section 3.2 of
    Choromanska and Jebara (2013) prints a plus.
    """

    def __init__(self, diagonal, sketch, omega, ridge):
        # Nyström: S = B B^T with B = Y (omega^T Y)^{-1/2}; its SVD gives V and S.
        values, vectors = eigh(omega.T @ sketch, check_finite=False)
        keep = values > SMALL * max(values[-1], np.finfo(float).tiny)
        B = sketch @ (vectors[:, keep] / np.sqrt(values[keep]))
        left, singular, _ = np.linalg.svd(B, full_matrices=False)
        keep = singular > 0.0
        self.V, self.S = left[:, keep].T.copy(), singular[keep] ** 2
        # The rest of the diagonal, which Nyström leaves positive but for rounding.
        rest = diagonal - np.einsum("rp,r,rp->p", self.V, self.S, self.V)
        D = np.maximum(rest, 0.0) + ridge
        floor = SMALL * np.where(diagonal > 0.0, diagonal, 1.0)
        self.inverse = 1.0 / np.maximum(D, floor)
        inner = (self.V * self.inverse) @ self.V.T
        inner.flat[:: len(inner) + 1] += 1.0 / self.S
        self.factor = Factor(inner)

    def solve(self, V):
        """Return the solution for right-hand sides V (p, k)."""
        out = self.inverse[:, None] * V
        return out - self.inverse[:, None] * (
            self.V.T @ self.factor.solve(self.V @ out)
        )
