"""Skills of items that meet in pairs: expected log-likelihood, curvature, Newton steps.

The parameters are the skills and, where the first of a pair has an advantage, that
behind them. A pair's predictor is the difference of two skills, so everything a fit
needs costs a few operations a pair; matches of one pair are counted once.
"""

from typing import NamedTuple

import numpy as np

from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.vi import _kernels_pairs as kernels

__all__ = ["Expectation", "PairsModel", "hermite"]

# Pairs that a thread takes at a time.
CHUNK = 1 << 15
# Nodes by the largest standard deviation of a predictor up to which they are enough.
NODES = ((1.5, 10), (3.0, 20), (6.0, 40), (np.inf, 80))
# Conjugate gradients end where the residual is this share of the gradient.
PRECISION, MOST_ITERATIONS = 1e-2, 500


def hermite(n_nodes):
    """Return nodes and weights of a quadrature for the standard Gaussian."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


class Expectation(NamedTuple):
    """Expectations under a Gaussian, summed over pairs or one a pair.

    Attributes
    ----------
    value : float
        Expected log-likelihood.
    slope, curvature : ndarray of shape (n_pairs,)
        First derivative by the predictor, and minus the second.
    cross : ndarray of shape (n_pairs,)
        Minus the second derivative by predictor and tie parameter.
    tie_slope, tie_curvature : float
        First derivative by the tie parameter, and minus the second.
    """

    value: float
    slope: np.ndarray
    curvature: np.ndarray
    cross: np.ndarray
    tie_slope: float = 0.0
    tie_curvature: float = 0.0


class PairsModel:
    """Log-likelihood of the matches of pairs.

    Parameters
    ----------
    first, second : ndarray of shape (n_pairs,), int32
        Items of each pair.
    win, loss, tie : ndarray of shape (n_pairs,)
        Counts of the first item's results.
    n_dim : int
        Numbers that a vector of parameters has.
    home : int
        Which of them is the advantage of the first item; -1 for none.
    ties : {None, "davidson", "rao-kupper"}
    largest_sd : float
        No predictor has a larger standard deviation under the prior.
    """

    def __init__(self, first, second, win, loss, tie, n_dim, home, ties, largest_sd):
        self.index = (first, second, home)
        self.counts = (win, loss) if ties is None else (win, loss, tie)
        self.n_dim = n_dim
        self.ties = ties
        n_nodes = next(n for sd, n in NODES if largest_sd <= sd)
        self.nodes, self.weights = hermite(n_nodes)

    @property
    def n_pairs(self):
        """Number of different pairs."""
        return self.index[0].size

    def predictor(self, theta):
        """Return the predictor (n_pairs,) of every pair."""
        out = np.empty(self.n_pairs)
        kernels.differences(*self.index, theta, out)
        return out

    def expectation(self, mean, variance, eta):
        """Return the `Expectation` of Gaussian predictors.

        Parameters
        ----------
        mean, variance : ndarray of shape (n_pairs,)
        eta : float
            Tie parameter.
        """
        slope, curvature, cross = np.empty((3, self.n_pairs))
        rule = (self.nodes, self.weights)
        if self.ties is None:

            def part(rows):
                return kernels.expect_no_ties(
                    mean, variance, *self.counts, *rule, *rows, slope, curvature
                )

            chunks = row_chunks(0, self.n_pairs, CHUNK)
            value = sum(parallel_map(part, chunks))
            return Expectation(value, slope, curvature, cross)
        function = {
            "davidson": kernels.expect_davidson,
            "rao-kupper": kernels.expect_rao_kupper,
        }[self.ties]

        def part_with_ties(rows):
            out = (slope, curvature, cross)
            return function(mean, variance, *self.counts, eta, *rule, *rows, *out)

        parts = parallel_map(part_with_ties, row_chunks(0, self.n_pairs, CHUNK))
        value, tie_slope, tie_curvature = map(sum, zip(*parts, strict=True))
        return Expectation(value, slope, curvature, cross, tie_slope, tie_curvature)

    def gather(self, value):
        """Return the gradient (n_dim,) of what has the derivatives `value` by pair."""
        out = np.zeros(self.n_dim)
        kernels.add_rows(*self.index, value, -1.0, out)
        return out

    def curvature_diagonal(self, curvature):
        """Return the diagonal (n_dim,) of minus the expected Hessian."""
        out = np.zeros(self.n_dim)
        kernels.add_rows(*self.index, curvature, 1.0, out)
        return out

    def curvature_times(self, curvature, x):
        """Return minus the expected Hessian times a vector (n_dim,)."""
        out = np.zeros(self.n_dim)
        kernels.add_curvature_times(*self.index, curvature, x, out)
        return out

    def curvature_matrix(self, curvature):
        """Return minus the expected Hessian (n_dim, n_dim)."""
        out = np.zeros((self.n_dim, self.n_dim))
        kernels.add_curvature(*self.index, curvature, out)
        return out

    def variance_of_diagonal(self, variance):
        """Return predictors' variances (n_pairs,) for independent parameters."""
        first, second, home = self.index
        return variance[first] + variance[second] + (variance[home] if home >= 0 else 0)

    def variance_of_factor(self, diagonal, factor):
        """Return predictors' variances (n_pairs,) for a diagonal plus a low rank."""
        out = self.variance_of_diagonal(diagonal)
        kernels.difference_norms(*self.index, factor, out)
        return out

    def variance_of_matrix(self, covariance):
        """Return predictors' variances (n_pairs,) for a covariance matrix."""
        out = np.empty(self.n_pairs)
        kernels.difference_variances(*self.index, covariance, out)
        return out


def solve_symmetric(times, diagonal, target, precision=PRECISION):
    """Solve a positive definite system by conjugate gradients.

    Parameters
    ----------
    times : callable
        Multiplies the matrix with a vector.
    diagonal : ndarray of shape (d,)
        The matrix's own, for Jacobi's preconditioner.
    target : ndarray of shape (d,)
    precision : float
        Largest residual, as a share of the target's length in the preconditioner's
        metric.

    Returns
    -------
    x : ndarray of shape (d,)
    """
    x = np.zeros(target.size)
    residual = target.copy()
    scaled = residual / diagonal
    direction = scaled.copy()
    length = first = float(residual @ scaled)
    for _ in range(MOST_ITERATIONS):
        if length <= precision**2 * first:
            break
        image = times(direction)
        step = length / float(direction @ image)
        x += step * direction
        residual -= step * image
        scaled = residual / diagonal
        length, before = float(residual @ scaled), length
        direction *= length / before
        direction += scaled
    return x
