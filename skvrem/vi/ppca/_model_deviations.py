r"""What loadings vary by, all of them together.

Independent loadings know each other's deviations only. That components lengthen, or
mix, is a sum of all their loadings, W to :math:`W (I + X)` with X (k, k), and rows know
that no better than up to :math:`1 / \sqrt n`, however many loadings there are. What
loadings vary by goes along: longer ones vary more, by a volume :math:`|I + X|^d`, which
weighs as much as the prior of as many columns does. So X has the second order of the
bound where q goes along,

.. math:: E_q \ell(W (I + X)) + \log p(W (I + X)) + d \log |I + X| .

Across the components loadings have the second order of the likelihood in all of them
where they are few (`joint_root`); of many, they are independent.
"""

from typing import NamedTuple

import numpy as np

from skvrem.vi.ppca._model import (
    LEAST_PRECISION,
    SecondMoments,
    hessian_times,
    likelihood,
)

# Of the logarithm of the noise variance, for differences.
STEP = 1e-4
# Pairs of draws that the covariance of all loadings is expected by, and what they are
# times loadings where these are many: a draw costs the square of these.
JOINT_PAIRS, JOINT_WORK = (2, 16), 2000
# And that components among each other are: all of their loadings go into these.
SPAN_PAIRS = 4
# So many components, the longest, go together where loadings are many: matrices have
# the fourth power of that.
MOST_TOGETHER = 30


def are_found(W, scale):
    """Return which components (k,) are longer than what they vary by."""
    return np.square(W).sum(axis=0) > np.square(scale).sum(axis=0)


def without_turns(W):
    """Return a basis (d k, m) of directions of W (d, k) in which it does not turn.

    Along :math:`W A`, A antisymmetric, all components turn together.
    """
    d, k = W.shape
    if k < 2:
        return np.eye(d * k)
    pairs = np.triu_indices(k, 1)
    turns = np.zeros((len(pairs[0]), d, k))
    numbers = np.arange(len(turns))
    turns[numbers, :, pairs[0]] = W[:, pairs[1]].T
    turns[numbers, :, pairs[1]] = -W[:, pairs[0]].T
    basis, _ = np.linalg.qr(turns.reshape(len(turns), -1).T, mode="complete")
    return basis[:, len(turns) :]


def joint_root(moments, W, scale, noise, prior, learned):
    r"""Return a root (d k, r) of the covariance of all loadings together.

    That of the expected second order about W, with the noise integrated out where it is
    learned,

    .. math:: \Sigma^{-1} = K - n \Big[ H - \frac{h h^T}{\eta} \Big],

    with the curvature K of the prior, the Hessian H by W, the derivative h of the
    gradient by the logarithm of the noise variance, and the second derivative
    :math:`\eta` by that. It is taken where components do not turn: along :math:`W A`,
    A antisymmetric, the likelihood is flat. Components that are shorter than what they
    vary by are at a saddle, where no second order holds them: their loadings are
    independent.

    Parameters
    ----------
    moments : SecondMoments
    W, scale : ndarrays of shape (d, k)
        Means and deviations of independent loadings.
    noise : float
        Noise variance.
    prior : GivenScale or UnknownScales
    learned : bool
        The noise is.
    """
    (d, k), n = W.shape, moments.weight
    found = are_found(W, scale)
    free, V, n_found = np.tile(found, d), W[:, found], int(found.sum())
    one_by_one = np.eye(d * k)[free].reshape(-1, d, k)
    n_pairs = int(np.clip(JOINT_WORK // (d * k), *JOINT_PAIRS))
    away = np.random.default_rng(0).standard_normal((n_pairs, d, k)) * scale
    H, h, eta = np.zeros((d * n_found, d * n_found)), np.zeros((d, k)), 0.0
    for drawn in W + np.concatenate([away, -away]):
        at = likelihood(moments, drawn, noise)
        columns = hessian_times(moments, drawn, noise, at, one_by_one)
        H += columns.reshape(-1, d * k)[:, free]
        if learned:
            less, more = (
                likelihood(moments, drawn, noise * np.exp(step))
                for step in (-STEP, STEP)
            )
            h += (more.gradient - less.gradient) / (2.0 * STEP)
            eta += (more.by_noise - less.by_noise) / (2.0 * STEP)
    if eta < 0.0:
        H -= np.outer(h[:, found], h[:, found]) / eta
    H /= 2 * n_pairs
    apart = without_turns(V)
    T = prior.precision(W, scale**2)
    K = prior.curvature(W, T, one_by_one).reshape(-1, d * k)[:, free]
    values, vectors = np.linalg.eigh(apart.T @ (K - n * H) @ apart)
    precision = np.maximum(values, LEAST_PRECISION * np.linalg.eigvalsh(T)[0])
    among = apart @ (vectors / np.sqrt(precision))
    root = np.diag(scale.ravel())[:, ~free]
    root = np.hstack([root, np.zeros((d * k, among.shape[1]))])
    root[free, d * k - d * n_found :] = among
    return root


def span_root(moments, W, scale, noise, prior, learned):
    """Return what the components that are found vary by among each other.

    Parameters as of `joint_root`.

    Returns
    -------
    which : ndarray of int of shape (m,)
        Components, the longest that are found.
    U : ndarray of shape (d, m)
        Orthonormal, of the same span as their means.
    root : ndarray of shape (m, m, r)
        Of the covariance of :math:`U^T W`.
    """
    n = moments.weight
    squares = np.where(are_found(W, scale), np.square(W).sum(axis=0), 0.0)
    longest = np.argsort(-squares, kind="stable")[:MOST_TOGETHER]
    which = np.sort(longest[squares[longest] > 0.0])
    d, m = len(W), which.size
    if not m:
        return which, np.zeros((d, 0)), np.zeros((0, 0, 0))
    U, R = np.linalg.qr(W[:, which])
    # X such that U^T W moves by one number each.
    X = np.linalg.inv(R) @ np.eye(m * m).reshape(m * m, m, m)
    n_pairs = SPAN_PAIRS
    away = np.random.default_rng(0).standard_normal((n_pairs, *W.shape)) * scale
    H, h, eta = np.zeros((m * m, m * m)), np.zeros((m, m)), 0.0
    for drawn in W + np.concatenate([away, -away]):
        within, loadings = _within(moments, drawn)
        at = likelihood(within, loadings, noise)
        V = loadings[:, which] @ X
        every = np.zeros((m * m, *loadings.shape))
        every[:, :, which] = V
        image = hessian_times(within, loadings, noise, at, every)[:, :, which]
        H += image.reshape(m * m, -1) @ V.reshape(m * m, -1).T
        if learned:
            less, more = (
                likelihood(moments, drawn, noise * np.exp(step))
                for step in (-STEP, STEP)
            )
            by_noise = (more.gradient - less.gradient)[:, which] / (2.0 * STEP)
            h += drawn[:, which].T @ by_noise
            eta += (more.by_noise - less.by_noise) / (2.0 * STEP)
    by_noise = np.einsum("sij,ij->s", X, h)
    if eta < 0.0:
        H -= np.outer(by_noise, by_noise) / eta
    H /= 2 * n_pairs
    second = W[:, which].T @ W[:, which]
    second += np.diag(np.square(scale[:, which]).sum(axis=0))
    length, T = np.linalg.cholesky(second).T, prior.precision(W, scale**2)
    T = T[np.ix_(which, which)]
    V = length @ X
    K = prior.curvature(length, T, V).reshape(m * m, -1) @ V.reshape(m * m, -1).T
    K += d * np.einsum("sij,tji->st", X, X)
    apart = without_turns(R)
    values, vectors = np.linalg.eigh(apart.T @ (K - n * H) @ apart)
    precision = np.maximum(values, LEAST_PRECISION * np.linalg.eigvalsh(T)[0])
    root = apart @ (vectors / np.sqrt(precision))
    return which, U, root.reshape(m, m, -1)


def _within(moments, W):
    """Return second moments and loadings in the span of loadings (d, k)."""
    U, R = np.linalg.qr(W)
    root = None if moments.root is None else moments.root @ U
    nothing, matrix = np.zeros(R.shape[0]), U.T @ moments.times(U)
    return SecondMoments(moments.weight, nothing, matrix=matrix, root=root), R


class AllDeviations(NamedTuple):
    """What loadings vary by, of few of them.

    Attributes
    ----------
    root : ndarray of shape (d, k, r)
        Of the covariance of all loadings.
    """

    root: np.ndarray

    @classmethod
    def of(cls, moments, W, *given):
        """Return them at loadings (d, k), see `joint_root`."""
        root = joint_root(moments, W, *given).reshape(*W.shape, -1)
        which, U, along = span_root(moments, W, *given)
        inside = np.einsum("ia,ijr->ajr", U, root[:, which])
        root[:, which] -= np.einsum("ia,ajr->ijr", U, inside)
        more = np.zeros((*W.shape, along.shape[-1]))
        more[:, which] = np.einsum("ia,ajr->ijr", U, along)
        return cls(np.concatenate([root, more], axis=-1))

    def scales(self):
        """Return standard deviations (d, k) of loadings."""
        return np.sqrt(np.square(self.root).sum(axis=-1))

    def sample(self, n, rng):
        """Draw what loadings are away from their means by, (n, d, k)."""
        d, k, r = self.root.shape
        away = rng.standard_normal((n, r)) @ self.root.reshape(d * k, r).T
        return away.reshape(n, d, k)


class SpanDeviations(NamedTuple):
    """What loadings vary by, of many.

    Attributes
    ----------
    scale : ndarray of shape (d, k)
        Standard deviations of independent loadings.
    which, U, root
        See `span_root`.
    """

    scale: np.ndarray
    which: np.ndarray
    U: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, moments, W, scale, *given):
        """Return them at loadings (d, k), see `joint_root`."""
        return cls(scale, *span_root(moments, W, scale, *given))

    def scales(self):
        """Return standard deviations (d, k) of loadings."""
        U, variance = self.U, self.scale**2
        away = variance[:, self.which]
        shared = np.square(U).sum(axis=1)[:, None]
        # Of what is across U, and of what is along.
        inner = np.einsum("ia,ij,ib->jab", U, away, U, optimize=True)
        across = away * (1.0 - 2.0 * shared)
        across += np.einsum("ia,jab,ib->ij", U, inner, U, optimize=True)
        covariance = np.einsum("ajr,bjr->jab", self.root, self.root, optimize=True)
        along = np.einsum("ia,jab,ib->ij", U, covariance, U, optimize=True)
        variance[:, self.which] = across + along
        return np.sqrt(variance)

    def sample(self, n, rng):
        """Draw what loadings are away from their means by, (n, d, k)."""
        away = self.scale * rng.standard_normal((n, *self.scale.shape))
        U, some, (m, _, r) = self.U, away[:, :, self.which], self.root.shape
        along = rng.standard_normal((n, r)) @ self.root.reshape(m * m, r).T
        away[:, :, self.which] = some + U @ (along.reshape(n, m, m) - U.T @ some)
        return away
