"""The factorial mixture by brute force: every code of every row, dense matrices."""

from itertools import product

import numpy as np


def all_codes(k):
    return np.array(list(product((0.0, 1.0), repeat=k)))


def log_joint(X, codes, means, activation, noise, covariance=None):
    """E_q(μ) log p(x, z | μ) of all rows and codes, shape (n, 2^K)."""
    d = X.shape[1]
    square = np.square(X[:, None, :] - codes @ means).sum(axis=2)
    if covariance is not None:
        square = square + d * np.einsum("zk,kl,zl->z", codes, covariance, codes)
    prior = codes @ np.log(activation) + (1.0 - codes) @ np.log1p(-activation)
    return prior - 0.5 * (square / noise + d * np.log(2.0 * np.pi * noise))


def log_likelihood(X, means, activation, noise):
    codes = all_codes(len(means))
    return np.logaddexp.reduce(log_joint(X, codes, means, activation, noise), axis=1)


def code_weights(nu):
    """Probabilities of all codes of rows under q, shape (n, 2^K)."""
    codes = all_codes(nu.shape[1])
    return np.where(codes == 1.0, nu[:, None, :], 1.0 - nu[:, None, :]).prod(axis=2)


def annealed_rows(X, nu, parameters, beta=1.0):
    """b E_q log p(x_n, Z_n | μ) + H(ν_n) of each row."""
    q = code_weights(nu)
    joint = log_joint(
        X,
        all_codes(nu.shape[1]),
        parameters.means,
        parameters.activation,
        parameters.noise,
        parameters.covariance,
    )
    return (q * (beta * joint - np.log(np.where(q > 0.0, q, 1.0)))).sum(axis=1)


def divergence(parameters):
    """KL(q(μ) ‖ p(μ)) with the covariance of all K D values as one matrix."""
    means, covariance, _, _, spread = parameters
    k, d = means.shape
    whole = np.kron(covariance, np.eye(d))
    _, log_det = np.linalg.slogdet(whole)
    square = np.square(means).sum() + np.trace(whole)
    return 0.5 * (square / spread - k * d - log_det + k * d * np.log(spread))


def bound(X, nu, parameters, beta=1.0, weight=None):
    """Annealed bound a unit of weight, Eq. 4."""
    weight = np.ones(len(X)) if weight is None else weight
    rows = weight @ annealed_rows(X, nu, parameters, beta)
    return (rows - divergence(parameters)) / weight.sum()


def sweep(X, nu, parameters, beta=1.0):
    """One sweep of every row over its coordinates, in place."""
    k = nu.shape[1]
    for row, v in zip(X, nu, strict=True):
        for c in range(k):
            on, off = v.copy(), v.copy()
            on[c], off[c] = 1.0, 0.0
            energies = [energy(row, state, parameters) for state in (on, off)]
            v[c] = 1.0 / (1.0 + np.exp(-beta * (energies[0] - energies[1])))


def energy(row, v, parameters):
    """E_q log p(x, Z | μ) of a row."""
    joint = log_joint(
        row[None],
        all_codes(len(v)),
        parameters.means,
        parameters.activation,
        parameters.noise,
        parameters.covariance,
    )
    return float(code_weights(v[None])[0] @ joint[0])
