r"""Loops of the Gaussian mixture's M step, once a minibatch.

LAPACK needs a call a component, and its threads are slower than these loops on the
small matrices of a mixture; they also fight for the cores that the E step uses.
Elements are indexed one by one: a view of a row takes longer to compile than the loop.
"""

from math import sqrt

from skvrem.utils._jit import REDUCE, kernel


@kernel
def full_covariances(sum_w, sum_x, sum_xx, reg_covar, covariances):
    r"""Covariances of components from statistics about any reference.

    .. math:: \Sigma_k = S_k / N_k - \delta_k \delta_k^T + \epsilon I, \qquad
              \delta_k = s_k / N_k

    sum_w (k,), sum_x (k, d), sum_xx and covariances (k, d, d); sum_w > 0.
    """
    k, d = sum_x.shape
    for c in range(k):
        scale = 1.0 / sum_w[c]
        for i in range(d):
            shift = sum_x[c, i] * scale
            for j in range(d):
                rest = sum_xx[c, i, j] - shift * sum_x[c, j]
                covariances[c, i, j] = rest * scale
            covariances[c, i, i] += reg_covar


@kernel
def full_translate(sum_w, sum_x, sum_xx, delta, moved_x, moved_xx):
    r"""Statistics about a reference as statistics about reference - delta.

    .. math:: s' = s + N \delta, \qquad
              S' = S + \delta s^T + s \delta^T + N \delta \delta^T

    delta, sum_x, moved_x (k, d); sum_xx, moved_xx (k, d, d).
    """
    k, d = sum_x.shape
    for c in range(k):
        for i in range(d):
            moved_x[c, i] = sum_x[c, i] + sum_w[c] * delta[c, i]
        for i in range(d):
            for j in range(d):
                cross = delta[c, i] * sum_x[c, j] + moved_x[c, i] * delta[c, j]
                moved_xx[c, i, j] = sum_xx[c, i, j] + cross


@kernel(fastmath=REDUCE)
def precisions_cholesky(covariances, lower, factors, bad):
    r"""Upper U with inverse(Sigma) = U U^T, from Sigma = L L^T: U is L^{-T}.

    covariances, lower (workspace), factors (k, d, d); bad (k,) is set where a matrix
    is not positive definite, or not finite, and its factor is left unfinished.
    """
    k, d, _ = covariances.shape
    for c in range(k):
        bad[c] = False
        for i in range(d):
            for j in range(i):
                rest = covariances[c, i, j]
                for p in range(j):
                    rest -= lower[c, i, p] * lower[c, j, p]
                lower[c, i, j] = rest / lower[c, j, j]
            square = covariances[c, i, i]
            rest = square
            for p in range(i):
                rest -= lower[c, i, p] * lower[c, i, p]
            # As LAPACK, and written so that NaN is bad.
            if not (rest > 0.0 and square < 1e300):
                bad[c] = True
                break
            lower[c, i, i] = sqrt(rest)
        if bad[c]:
            continue
        for j in range(d):
            for i in range(j):
                factors[c, j, i] = 0.0
            factors[c, j, j] = 1.0 / lower[c, j, j]
            for i in range(j + 1, d):
                rest = 0.0
                for p in range(j, i):
                    rest -= lower[c, i, p] * factors[c, j, p]
                factors[c, j, i] = rest / lower[c, i, i]
