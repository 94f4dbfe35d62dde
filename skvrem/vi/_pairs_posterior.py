r"""The best Gaussian of each kind for a given curvature of the log-likelihood of pairs.

With the expected curvature :math:`h` of every pair held, the bound is, but for
constants, :math:`\frac12 \log |\Sigma| - \frac12 \mathrm{tr}(P \Sigma)` with
:math:`P = P_0 + X^T \mathrm{diag}(h) X` and the prior's :math:`P_0`. A kind of posterior
knows the covariance that maximises it, and how to divide by P. The fixed point, where h
is that of the covariance it gave, is the optimum of the bound itself.
"""

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from skvrem.vi._model_pairs import solve_symmetric
from skvrem.vi._posterior import FullRank, LowRank, MeanField

__all__ = ["KINDS"]

# Eigenvectors are as good as the rest of an iteration needs at this tolerance.
EIGEN_PRECISION, EIGEN_STEPS = 1e-2, 40
# Below, the largest step of the diagonal of a low-rank posterior ends its search.
DIAGONAL_PRECISION, DIAGONAL_STEPS = 1e-3, 3


class _Kind:
    def __init__(self, model, prior, rank):
        self.model = model
        self.prior = prior
        self.rank = rank

    def diagonal(self, curvature):
        """Diagonal of P."""
        own = self.model.curvature_diagonal(curvature)
        return own + self.prior.precision_diagonal

    def times(self, curvature, x):
        """P times a vector."""
        own = self.model.curvature_times(curvature, x)
        return own + self.prior.precision_times(x)

    def divide(self, curvature, target, posterior):
        """Return P^-1 times a vector; the posterior is the best one for P."""
        return solve_symmetric(
            lambda x: self.times(curvature, x), self.diagonal(curvature), target
        )


class MeanFieldKind(_Kind):
    """Variances are one over the diagonal of P."""

    def best(self, mean, curvature):
        """Return the posterior."""
        return MeanField(mean, self.diagonal(curvature) ** -0.5)

    def predictor_variance(self, posterior):
        """Return the variance of every pair's predictor."""
        return self.model.variance_of_diagonal(posterior.variance)


class FullRankKind(_Kind):
    """The covariance is the inverse of P."""

    def best(self, mean, curvature):
        """Return the posterior."""
        P = self.model.curvature_matrix(curvature)
        P += self.prior.precision
        # Turned round, so that the factor of the inverse is lower triangular.
        upper = cholesky(P[::-1, ::-1], lower=True, overwrite_a=True)[::-1, ::-1]
        inverse, _ = dtrtri(upper.T, lower=1)
        return FullRank(mean, inverse)

    def divide(self, curvature, target, posterior):
        """Return P^-1 times a vector, by the covariance at hand."""
        return posterior.factor @ (posterior.factor.T @ target)

    def predictor_variance(self, posterior):
        """Return the variance of every pair's predictor."""
        return self.model.variance_of_matrix(posterior.covariance())


class LowRankKind(_Kind):
    r"""Given its diagonal D, the low rank is made of eigenvectors.

    :math:`D^{1/2} P D^{1/2} e_k = \lambda_k e_k` with the smallest eigenvalues, below
    1, gives :math:`U_k = D^{1/2} e_k \sqrt{1 / \lambda_k - 1}`; and given those
    :math:`D_{ii} = (1 - \sum_k (1 - \lambda_k) e_{ik}^2) / P_{ii}`, in turns.
    """

    diagonal_ = None

    def best(self, mean, curvature):
        """Return the posterior."""
        P = self.diagonal(curvature)
        D = 1.0 / P if self.diagonal_ is None else self.diagonal_
        for _ in range(DIAGONAL_STEPS):
            values, vectors = self._smallest(curvature, np.sqrt(D))
            new = (1.0 - vectors**2 @ (1.0 - values)) / P
            change = np.abs(new / D - 1.0).max()
            D = new
            if change < DIAGONAL_PRECISION:
                break
        self.diagonal_ = D
        root = np.sqrt(D)
        values, vectors = self._smallest(curvature, root)
        factor = root[:, None] * vectors * np.sqrt(1.0 / values - 1.0)
        return LowRank(mean, D, factor)

    def predictor_variance(self, posterior):
        """Return the variance of every pair's predictor."""
        return self.model.variance_of_factor(posterior.diagonal, posterior.factor)

    def _smallest(self, curvature, root):
        """Return the smallest eigenvalues, as far as below 1, and their vectors."""
        d = root.size
        operator = LinearOperator(
            (d, d),
            matvec=lambda x: root * self.times(curvature, root * x.ravel()),
            dtype=np.float64,
        )
        try:
            values, vectors = eigsh(
                operator,
                k=min(self.rank, d - 1),
                which="SA",
                v0=1.0 / root,
                tol=EIGEN_PRECISION,
                maxiter=EIGEN_STEPS,
            )
        except ArpackNoConvergence as error:
            values, vectors = error.eigenvalues, error.eigenvectors
        below = values < 1.0
        return values[below], vectors[:, below]


KINDS = {"meanfield": MeanFieldKind, "fullrank": FullRankKind, "lowrank": LowRankKind}
