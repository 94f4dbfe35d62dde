r"""The best covariance of each kind for given curvatures of the likelihood of matches.

With the expected curvature h of all matches held, the bound is, but for constants,
:math:`\frac12 \log |\Sigma| - \frac12 \mathrm{tr}(P \Sigma)` with
:math:`P = P_0 + X^T \mathrm{diag}(h) X` and the prior's :math:`P_0`. A kind knows the
covariance that maximises it, and how to divide by P. Where h is that of the covariance
it gave, the covariance is the optimum of the bound itself.
"""

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, cg, eigsh

from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField

# Conjugate gradients end where the residual is this share of the gradient.
PRECISION, MOST_ITERATIONS = 1e-2, 500
# Eigenvectors are as good as the rest of a step needs at this tolerance.
EIGEN_PRECISION, EIGEN_STEPS = 0.05, 40


class _Kind:
    """What is common.

    Parameters
    ----------
    matches : Matches
    prior : MeanField, FullRank or LowRank
    rank : int
        Of a low rank.
    """

    def __init__(self, matches, prior, rank):
        self.matches = matches
        self.prior = prior
        self.prior_diagonal = prior.precision_diagonal
        self.rank = rank

    def diagonal(self, curvature):
        """Diagonal of P."""
        d = self.prior_diagonal.size
        return self.prior_diagonal + self.matches.curvature_diagonal(curvature, d)

    def scaled(self, curvature, root):
        """R P R as an operator, with the diagonal R (d,) of a root."""
        of_prior = self.prior.precision_operator()

        def product(x):
            x = root * x.ravel()
            times = self.matches.curvature_times(curvature, x)
            return root * (times + of_prior(x))

        return LinearOperator((root.size, root.size), product, dtype=np.float64)

    def divide(self, curvature, target, best):
        """Return P^-1 times a vector; `best` is the posterior for P."""
        root = self.diagonal(curvature) ** -0.5  # Jacobi's preconditioner
        scaled, _ = cg(
            self.scaled(curvature, root),
            root * target,
            rtol=PRECISION,
            maxiter=MOST_ITERATIONS,
        )
        return root * scaled


class MeanFieldKind(_Kind):
    """Variances are one over the diagonal of P."""

    def best(self, curvature, diagonal=None):
        """Return the posterior, about zero, and None."""
        diagonal = self.diagonal(curvature)
        return MeanField(np.zeros(diagonal.size), diagonal**-0.5), None


class FullRankKind(_Kind):
    """The covariance is the inverse of P."""

    def best(self, curvature, diagonal=None):
        """Return the posterior, about zero, and None."""
        P = self.prior.precision
        P += self.matches.curvature_matrix(curvature, len(P))
        # Turned round, so that the factor of the inverse is lower triangular.
        upper = cholesky(P[::-1, ::-1], lower=True, check_finite=False)[::-1, ::-1]
        factor, _ = dtrtri(upper.T, lower=1)
        return FullRank(np.zeros(len(P)), factor), None

    def divide(self, curvature, target, best):
        """Return P^-1 times a vector, by the covariance at hand."""
        return best.factor @ (best.factor.T @ target)


class LowRankKind(_Kind):
    r"""Given its diagonal D, the low rank is made of eigenvectors.

    :math:`D^{1/2} P D^{1/2} e_k = \lambda_k e_k` with the smallest eigenvalues, below
    1, gives :math:`U_k = D^{1/2} e_k \sqrt{1 / \lambda_k - 1}`; and given those,
    :math:`D_{ii} = (1 - \sum_k (1 - \lambda_k) e_{ik}^2) / P_{ii}`: in turns.
    """

    def best(self, curvature, diagonal=None):
        """Return the posterior, about zero, and the diagonal that it leads to.

        That one is for the next call: a fit is a sequence of them.
        """
        P = self.diagonal(curvature)
        D = 1.0 / P if diagonal is None else diagonal
        values, vectors = self._smallest(curvature, np.sqrt(D))
        following = (1.0 - vectors**2 @ (1.0 - values)) / P
        factor = np.sqrt(D)[:, None] * vectors * np.sqrt(1.0 / values - 1.0)
        return LowRank(np.zeros(D.size), D, factor), following

    def _smallest(self, curvature, root):
        """Return the smallest eigenvalues, as far as below 1, and their vectors."""
        try:
            values, vectors = eigsh(
                self.scaled(curvature, root),
                k=min(self.rank, root.size - 1),
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
