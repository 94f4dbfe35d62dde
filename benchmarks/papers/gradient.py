"""SMD and RSGD for pLSA, each with and without SVRG: the paper's gradient baselines.

Chen, Zhu, Teh and Zhang (2018), section 4.2.2: stochastic mirror descent, and
stochastic gradient descent on the logits of theta and phi ("reparameterized"). Here
phi_kv is the probability of word v in topic k, theta_dk the share of topic k in
document d, and x_dv the counts. The MAP objective is a sum over minibatches b of
documents,

    L_b = sum_{d in b} [ sum_v x_dv log p_dv + alpha sum_k log theta_dk ]
          + beta sum_{v in b} sum_k log phi_kv / m_v,      p_dv = sum_k theta_dk phi_kv

where m_v is the number of minibatches that have word v: without that share of the
prior every step would have to visit all words. With M minibatches M dL_b is an unbiased
estimate of the gradient. By phi

    g_kv = M [ A_kv + beta / (m_v phi_kv) ],    A_kv = sum_{d in b} x_dv theta_dk / p_dv
    c_k  = sum_v phi_kv g_kv

and both methods multiply phi_kv by exp(rho u_kv) and normalise, with

    SMD   u_kv = g_kv - c_k              (the constant c_k cancels)
    RSGD  u_kv = phi_kv (g_kv - c_k)     (the derivative by the logit)

and the same for theta by document. SVRG takes u(now) - u(anchor) + full u(anchor).

A minibatch costs its nonzeros times K. What a step owes to words it does not have (the
full gradient at the anchor, c_k) is paid when the word comes next, with phi_kv as it
was left, and at the end of an epoch for all. Until then the word counts in the
normaliser as it was left: a difference of second order in the step, which
``check_gradient.py`` measures against steps over all words, along with the gradients
themselves.
"""

import numba
import numpy as np

from skvrem.utils._math import exp

__all__ = ["GradientDescent"]

#: A step multiplies a parameter by no more than e^10, up or down.
LARGEST = 10.0
#: Parameters stay within, so that beta / phi and, should a fit diverge, sums of them
#: can be computed.
LOWEST, HIGHEST = 1e-12, 1e12

numeric = numba.njit(
    cache=True,
    error_model="numpy",
    fastmath={"contract", "reassoc", "nsz", "arcp"},
)


@numeric
def _anchor(indptr, indices, counts, theta, phi, alpha, beta, mirror, ratio, up, ut):
    """Full pass: x / p of each nonzero, and u of all words and documents."""
    n_documents, n_topics = theta.shape
    n_words = phi.shape[0]
    for v in range(n_words):
        for k in range(n_topics):
            up[v, k] = 0.0
    for d in range(n_documents):
        n_tokens = 0.0
        for k in range(n_topics):
            ut[d, k] = 0.0
        for i in range(indptr[d], indptr[d + 1]):
            v = indices[i]
            p = theta[d, 0] * phi[v, 0]
            for k in range(1, n_topics):
                p += theta[d, k] * phi[v, k]
            w = counts[i] / p
            ratio[i] = w
            n_tokens += counts[i]
            for k in range(n_topics):
                up[v, k] += w * theta[d, k]
                ut[d, k] += w * phi[v, k]
        center = n_tokens + n_topics * alpha
        for k in range(n_topics):
            u = ut[d, k] + alpha / theta[d, k] - center
            ut[d, k] = u if mirror else u * theta[d, k]
    center_k = np.zeros(n_topics)
    for v in range(n_words):
        for k in range(n_topics):
            up[v, k] += beta / phi[v, k]
            center_k[k] += phi[v, k] * up[v, k]
    for v in range(n_words):
        for k in range(n_topics):
            u = up[v, k] - center_k[k]
            up[v, k] = u if mirror else u * phi[v, k]


@numeric
def _move(row, step):
    """Multiply by e^step, within bounds."""
    kind = row.dtype.type
    least, highest, most = kind(LOWEST), kind(HIGHEST), kind(LARGEST)
    for k in range(len(row)):
        factor = exp(min(max(step[k], -most), most))
        row[k] = min(max(row[k] * factor, least), highest)


@numeric
def _normalize(row):
    total = 0.0
    for k in range(len(row)):
        total += row[k]
    for k in range(len(row)):
        row[k] /= total


@numeric
def _pay(
    v, t, paid, phi, sums, mirror, reduced, rho_sum, c_sum, c0_sum, phi0, up, step
):
    """Make the part of steps paid[v]..t-1 that word v was not there for."""
    since = paid[v]
    paid[v] = t
    if since == t or (mirror and not reduced):
        return
    n_topics = phi.shape[1]
    kind = phi.dtype.type
    rho = kind(rho_sum[t] - rho_sum[since])
    for k in range(n_topics):
        step[k] = 0.0
        if not mirror:
            share = phi[v, k] / kind(sums[k])
            step[k] -= share * kind(c_sum[t, k] - c_sum[since, k])
            if reduced:
                step[k] += phi0[v, k] * kind(c0_sum[t, k] - c0_sum[since, k])
        if reduced:
            step[k] += rho * up[v, k]
    row = phi[v]
    for k in range(n_topics):
        sums[k] -= row[k]
    _move(row, step)
    for k in range(n_topics):
        sums[k] += row[k]


@numeric
def _epoch(
    indptr, indices, counts, members, starts, words, word_starts, local, visits,
    order, rates, theta, phi, alpha, beta, mirror, reduced, ratio, theta0, phi0, up, ut,
):  # fmt: skip
    """Steps over all minibatches in the given order; theta and phi (v, k) move."""
    n_batches = len(order)
    n_words, n_topics = phi.shape
    kind = phi.dtype.type  # float64 among float32 would make float64 of all
    zero = kind(0.0)
    scale = kind(n_batches)
    largest = 0
    for b in range(n_batches):
        largest = max(largest, word_starts[b + 1] - word_starts[b])
    share = np.empty((largest, n_topics), phi.dtype)  # phi of the minibatch
    grad = np.empty((largest, n_topics), phi.dtype)
    grad0 = np.empty((largest if reduced else 1, n_topics), phi.dtype)
    g_theta = np.empty(n_topics, phi.dtype)
    step = np.empty(n_topics, phi.dtype)
    center, center0 = np.empty(n_topics, phi.dtype), np.empty(n_topics, phi.dtype)
    inverse = np.empty(n_topics, phi.dtype)
    sums = np.zeros(n_topics)
    for v in range(n_words):
        for k in range(n_topics):
            sums[k] += phi[v, k]
    paid = np.zeros(n_words, np.int64)
    rho_sum = np.zeros(n_batches + 1)
    c_sum = np.zeros((n_batches + 1, n_topics))
    c0_sum = np.zeros((n_batches + 1, n_topics))
    total_rho = 0.0
    for t in range(n_batches):
        total_rho += rates[t]
    for t in range(n_batches):
        b, rho = order[t], kind(rates[t])
        before = kind(rho_sum[t])
        after = kind(total_rho - rho_sum[t] - rates[t])
        for k in range(n_topics):
            inverse[k] = 1.0 / sums[k]
        first, last = word_starts[b], word_starts[b + 1]
        rho_sum[t + 1] = rho_sum[t] + rates[t]
        for j in range(first, last):
            _pay(
                words[j], t, paid, phi, sums, mirror, reduced,
                rho_sum, c_sum, c0_sum, phi0, up, step,
            )  # fmt: skip
        for j in range(last - first):
            v = words[first + j]
            for k in range(n_topics):
                share[j, k] = phi[v, k] * inverse[k]
                grad[j, k] = zero
                if reduced:
                    grad0[j, k] = zero
        for m in range(starts[b], starts[b + 1]):
            d = members[m]
            row = theta[d]
            if reduced:  # the anchor's part of the steps before this one
                for k in range(n_topics):
                    step[k] = before * ut[d, k]
                _move(row, step)
                _normalize(row)
            for k in range(n_topics):
                g_theta[k] = zero
            n_tokens = zero
            for i in range(indptr[d], indptr[d + 1]):
                j = local[i]
                p = row[0] * share[j, 0]
                for k in range(1, n_topics):
                    p += row[k] * share[j, k]
                w = counts[i] / p
                n_tokens += counts[i]
                for k in range(n_topics):
                    grad[j, k] += w * row[k]
                    g_theta[k] += w * share[j, k]
                if reduced:
                    w0 = ratio[i]
                    for k in range(n_topics):
                        grad0[j, k] += w0 * theta0[d, k]
            middle = n_tokens + kind(n_topics) * alpha
            for k in range(n_topics):
                u = g_theta[k] + alpha / row[k] - middle
                u = u if mirror else u * row[k]
                # The minibatches are a partition: the anchor's u of a document that
                # its minibatch gives is its full u.
                if reduced:
                    u = scale * (u - ut[d, k]) + ut[d, k]
                else:
                    u = scale * u
                step[k] = rho * u
            _move(row, step)
            if reduced:  # and of those after it
                for k in range(n_topics):
                    step[k] = after * ut[d, k]
                _move(row, step)
            _normalize(row)
        for k in range(n_topics):
            center[k] = center0[k] = zero
        for j in range(last - first):
            v = words[first + j]
            prior = beta / kind(visits[v])
            for k in range(n_topics):
                grad[j, k] = scale * (grad[j, k] + prior / share[j, k])
                center[k] += share[j, k] * grad[j, k]
                if reduced:
                    grad0[j, k] = scale * (grad0[j, k] + prior / phi0[v, k])
                    center0[k] += phi0[v, k] * grad0[j, k]
        for j in range(last - first):
            v = words[first + j]
            for k in range(n_topics):
                u = grad[j, k] - center[k]
                if not mirror:
                    u *= share[j, k]
                if reduced:
                    u0 = grad0[j, k] - center0[k]
                    if not mirror:
                        u0 *= phi0[v, k]
                    u += up[v, k] - u0
                elif mirror:
                    u = grad[j, k]  # a common factor, which words not here lack too
                step[k] = rho * u
            if mirror and reduced:  # likewise: only differences between words count
                for k in range(n_topics):
                    step[k] += rho * (center[k] - center0[k])
            row = phi[v]
            for k in range(n_topics):
                sums[k] -= row[k]
            _move(row, step)
            for k in range(n_topics):
                sums[k] += row[k]
            paid[v] = t + 1
        for k in range(n_topics):
            c_sum[t + 1, k] = c_sum[t, k] + rho * center[k]
            c0_sum[t + 1, k] = c0_sum[t, k] + rho * center0[k]
    for v in range(n_words):
        _pay(
            v, n_batches, paid, phi, sums, mirror, reduced,
            rho_sum, c_sum, c0_sum, phi0, up, step,
        )  # fmt: skip
    for k in range(n_topics):
        sums[k] = 0.0
    for v in range(n_words):
        for k in range(n_topics):
            sums[k] += phi[v, k]
    for v in range(n_words):
        for k in range(n_topics):
            phi[v, k] = max(phi[v, k] / sums[k], LOWEST)


def partition(X, n_batches, rng):
    """Put documents into minibatches; return what `_epoch` wants to know of them.

    Returns
    -------
    members, starts : documents of minibatch b are members[starts[b]:starts[b + 1]]
    words, word_starts : its words likewise
    local : place of each nonzero's word among those of its minibatch
    visits : number of minibatches that have a word
    """
    n = X.shape[0]
    members = rng.permutation(n)
    starts = np.linspace(0, n, n_batches + 1).astype(np.int64)
    local = np.empty(X.nnz, dtype=np.int64)
    visits = np.zeros(X.shape[1], dtype=np.int64)
    words, word_starts = [], [0]
    for b in range(n_batches):
        spans = [
            np.arange(X.indptr[d], X.indptr[d + 1])
            for d in members[starts[b] : starts[b + 1]]
        ]
        where = np.concatenate(spans)
        here, local[where] = np.unique(X.indices[where], return_inverse=True)
        visits[here] += 1
        words.append(here)
        word_starts.append(word_starts[-1] + len(here))
    words = np.concatenate(words).astype(np.int64)
    return members, starts, words, np.array(word_starts), local, visits


class GradientDescent:
    """SMD or RSGD on the MAP objective of pLSA.

    Parameters
    ----------
    X : csr_matrix of shape (n_documents, n_words)
        Every word occurs.
    theta : ndarray of shape (n_documents, n_topics)
    components : ndarray of shape (n_topics, n_words)
        Where to start; copied.
    alpha, beta : float
    method : {"smd", "rsgd"}
    variance_reduction : bool
        SVRG with an anchor an epoch.
    n_batches : int
    step_size, step_offset, step_decay : float
        Step t is ``step_size / (t + step_offset) ** step_decay``.
    dtype : numpy dtype
    seed : int
    """

    def __init__(
        self, X, theta, components, alpha, beta, *, method, variance_reduction,
        n_batches=50, step_size=1e-5, step_offset=100.0, step_decay=0.5,
        dtype=np.float32, seed=0,
    ):  # fmt: skip
        self.X = X
        self.theta = np.array(theta, dtype=dtype)
        self.phi = np.ascontiguousarray(np.asarray(components).T, dtype=dtype)
        for part in (self.theta, self.phi):
            np.maximum(part, LOWEST, out=part)
        self.alpha, self.beta = dtype(alpha), dtype(beta)
        self.mirror = method == "smd"
        self.reduced = variance_reduction
        self.schedule = step_size, step_offset, step_decay
        self.rng = np.random.default_rng(seed)
        self.n_batches = min(n_batches, X.shape[0])
        self.structure = partition(X, self.n_batches, self.rng)
        self.n_steps = 0
        small = np.empty((1, self.phi.shape[1]), dtype)
        self.ratio = np.empty(X.nnz if self.reduced else 1, dtype)
        self.up = np.empty_like(self.phi) if self.reduced else small
        self.ut = np.empty_like(self.theta) if self.reduced else small

    @property
    def components(self):
        return self.phi.T

    def epoch(self):
        """Make one epoch."""
        X = self.X
        data = X.indptr, X.indices, X.data
        priors = self.alpha, self.beta, self.mirror
        theta0, phi0 = self.ut, self.up
        if self.reduced:
            theta0, phi0 = self.theta.copy(), self.phi.copy()
            _anchor(*data, theta0, phi0, *priors, self.ratio, self.up, self.ut)
        a, t0, kappa = self.schedule
        t = self.n_steps + np.arange(self.n_batches)
        self.n_steps += self.n_batches
        _epoch(
            *data, *self.structure, self.rng.permutation(self.n_batches),
            a / (t + t0) ** kappa, self.theta, self.phi, *priors, self.reduced,
            self.ratio, theta0, phi0, self.up, self.ut,
        )  # fmt: skip
        return self
