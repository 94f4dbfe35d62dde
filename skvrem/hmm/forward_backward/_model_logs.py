"""The passes in logarithms, for what floating point numbers do not hold.

Messages of :mod:`_model_passes` lose what is below 1e-308 of the rest. Where a chain
has transitions that rare, that can be what later rows tell to have been so. Logarithms
lose nothing and take some ten times as long.
"""

import numpy as np
from scipy.special import logsumexp

from skvrem.hmm.forward_backward._kernels import NOWHERE
from skvrem.hmm.forward_backward._kernels_logs import filter_logs, smooth_logs
from skvrem.hmm.forward_backward._model_viterbi import PRODUCT_ROWS, log_densities
from skvrem.utils._parallel import row_chunks


class LogPasses:
    """The E step, in logarithms, of one thread.

    Parameters
    ----------
    layout : Layout
    chain : Chain
    carried : ndarray of shape (n_states,), default=None
        Of a layout that is opened: the states' probabilities in the row before.
    """

    def __init__(self, layout, chain, carried=None):
        self.layout, self.chain = layout, chain
        n = len(chain.start)
        joint = log_densities(layout.rows, chain, layout)
        self.parts = None
        if joint.shape[1] > n:
            self.parts = joint.reshape(len(joint), n, -1)
            joint = logsumexp(self.parts, axis=2)
        joint[joint < NOWHERE] = -np.inf
        self.joint = joint
        with np.errstate(divide="ignore"):
            self.start = np.log(chain.start)
            self.before = np.log(np.empty(0) if carried is None else carried)
            self.tables, self.which = self._tables()

    def _tables(self):
        """Logarithms of matrices, and which of them leads into each row."""
        chain, rows, n_rows = self.chain, self.layout.rows, self.layout.n_rows
        if chain.coefficients is not None:
            design = rows.design[self.layout.select(0, n_rows)]
            tables = np.einsum("ijp,tp->tij", chain.coefficients, design)
            self.logs = tables - logsumexp(tables, axis=2, keepdims=True)
            self.logs[self.logs < NOWHERE] = -np.inf
            return chain.beta * self.logs, np.arange(n_rows)
        if chain.other is not None:
            switched = rows.switched[self.layout.select(0, n_rows)]
            both = np.stack([chain.transitions, chain.other])
            return np.log(both), switched.astype(np.int64)
        return np.log(chain.transitions)[None], np.empty(0, np.int64)

    def forward(self):
        """Run forward; return the row of probability 0, -1 where there is none."""
        self.alpha = np.empty_like(self.joint)
        self.shares = np.empty(len(self.joint))
        bounds = self.layout.bounds
        about = bounds, self.start, self.before, self.tables, self.which
        return filter_logs(self.joint, *about, self.alpha, self.shares)

    def objective(self):
        """Return the weighted log-likelihood."""
        sums = np.add.reduceat(self.shares, self.layout.bounds[:-1])
        return float(self.layout.weight @ sums)

    def backward(self):
        """Run backward; return the sums as `Passes.backward` does."""
        layout, chain = self.layout, self.chain
        start, xi = np.zeros(len(chain.start)), np.zeros(self.tables.shape)
        self.gamma = np.empty_like(self.joint)
        weight = np.ascontiguousarray(layout.weight, float)
        smooth_logs(
            self.joint,
            layout.bounds,
            weight,
            self.before,
            self.tables,
            self.which,
            self.alpha,
            self.shares,
            self.gamma,
            start,
            xi,
        )
        sums = start, self._pairs(xi), self._features()
        if chain.follows is None:
            return sums
        selected = layout.select(0, layout.n_rows)
        return *sums, layout.rows.collect(selected, self.gamma, chain.follows)

    def _pairs(self, xi):
        if self.chain.coefficients is None:
            return xi if self.chain.other is not None else xi[0]
        layout, seen = self.layout, xi > 0.0
        design = layout.rows.design[layout.select(0, layout.n_rows)]
        value = (xi[seen] * self.logs[seen]).sum()
        p, leave = np.exp(self.logs), xi.sum(axis=2, keepdims=True)
        gradient = np.einsum("tij,tp->ijp", xi - leave * p, design)
        n = len(self.chain.start)
        (j, k), (r, s) = np.triu_indices(n), np.triu_indices(design.shape[1])
        weights = leave * p[:, :, j] * ((j == k) - p[:, :, k])
        hessian = np.einsum("tia,tb->iab", weights, design[:, r] * design[:, s])
        parts = xi.sum(axis=0), [value], gradient, hessian
        return np.concatenate([np.ravel(part) for part in parts])

    def _features(self):
        """Sums of features, weighted by the posteriors of states or of their parts."""
        layout, chain = self.layout, self.chain
        features = np.zeros(chain.theta.shape)
        for a, b in row_chunks(0, layout.n_rows, PRODUCT_ROWS):
            weights = self.gamma[a:b]
            if self.parts is not None:
                whole = np.maximum(self.joint[a:b, :, None], NOWHERE)
                shares = np.exp(self.parts[a:b] - whole)
                weights = (weights[..., None] * shares).reshape(b - a, -1)
            rows = layout.rows.features(layout.select(a, b), chain.follows)
            features += weights.T @ rows
        return features
