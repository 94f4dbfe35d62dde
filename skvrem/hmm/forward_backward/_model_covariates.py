"""Transitions that covariates lead, for the groups of a layout."""

import numpy as np

from skvrem.hmm.forward_backward import _kernels_covariates
from skvrem.hmm.forward_backward._kernels import LANES, TILE

__all__ = ["explain", "probabilities"]


def probabilities(design, coefficients, beta, out):
    """Fill out with the transition matrices into all rows of a group, and return it.

    Parameters
    ----------
    design : ndarray
        Flat, (n_tiles, n_inputs, TILE).
    coefficients : ndarray of shape (n_states, n_states, n_inputs)
    beta : float
        Power of the probabilities.
    out : ndarray
        Flat, (n_tiles, n_states, n_states, TILE).
    """
    n, _, n_inputs = coefficients.shape
    _kernels_covariates.probabilities(
        design,
        n_inputs,
        coefficients.ravel(),
        n,
        design.size // (n_inputs * TILE),
        TILE,
        beta,
        out,
    )
    return out


def explain(design, coefficients, beta, left, alpha, matrices, ratios):
    """Return sums of xi, xi log p and their derivatives in the coefficients, flat.

    Parameters
    ----------
    design, coefficients, beta : see `probabilities`
    left, alpha, ratios : ndarray
        What the passes over a group have left.
    matrices : ndarray
        The probabilities to the power of beta.
    """
    n, _, n_inputs = coefficients.shape
    plain = matrices
    if beta != 1.0:
        plain = probabilities(design, coefficients, 1.0, np.empty_like(matrices))
    triangles = n * (n + 1) // 2, n_inputs * (n_inputs + 1) // 2
    counts, gradient = np.zeros(n * n), np.zeros(n * n * n_inputs)
    hessian = np.zeros(n * triangles[0] * triangles[1])
    value = _kernels_covariates.explain(
        design,
        n_inputs,
        n,
        design.size // (n_inputs * TILE),
        TILE,
        LANES,
        left,
        alpha,
        matrices,
        plain,
        ratios,
        counts,
        gradient,
        hessian,
    )
    return np.concatenate([counts, [value], gradient, hessian])
