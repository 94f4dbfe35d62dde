r"""The hidden Markov model: parameters, statistics, E step, M step.

.. math:: p(y, x) = \delta_{x_1} \prod_{t \ge 2} \Gamma_{x_{t-1} x_t}
          \prod_t f_{x_t}(y_t)

with states x, of which posteriors are taken at inverse temperature :math:`\beta`, 1 but
while annealing: :math:`p(y, x)^\beta`, normalised. The statistics of sequences with
weights w are sums of

.. math:: \gamma_{1,i}, \qquad \sum_{t \ge 2} \xi_t(i, j), \qquad
          \sum_t \gamma_{t,i} F(y_t)

over sequences (Sidrow et al. 2023, Eqs. 7, 8 and 11), where the log-density is
:math:`\log f_i(y) = \theta_i^T F(y)`. Families of distributions say what F is, how
:math:`\theta` follows from their parameters, and how those follow from sums of F.

With parameters :math:`\phi(u)` of free coordinates u (``_coordinates.py``), the
expected complete-data log-likelihood :math:`Q(\phi | \phi')` (Sidrow et al. 2023,
Eq. 11) and the log-prior :math:`\pi`, Fisher's identity is

.. math:: \nabla_u [\log p(y; \phi) + \log \pi(\phi)]
          = \nabla_u [Q(\phi | \phi') + \log \pi(\phi)]_{\phi' = \phi},

a function of the sums that a pass of Baum-Welch makes. The metric of quasi-Newton
steps is the information of the complete data: minus the Hessian of Q at sums that are
what the model expects, the one whose inverse turns the gradient into a step of EM.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from skvrem.hmm.forward_backward._model_passes import Chain, stationary
from skvrem.utils._algebra import pieces, rescale
from skvrem.utils._averaging import Averaging, AveragingPoint

# Share of every state's first sums that is that of all rows.
SHARED = 0.02
# M steps to the parameters of rows whose features follow them, and nats a row that
# one has to gain: degrees of freedom of light tails would go on until nothing tells
# them the way back.
START_STEPS, START_GAIN = 50, 1e-4
# Rows of a cluster that such steps look at, and for each of a state's parameters.
CLUSTER_ROWS, ROWS_A_PARAMETER = 1000, 20
# Step of central differences.
STEP = 1e-4
# Information a row below which a coordinate is of no account, and the share of the
# largest scaled eigenvalue below which a direction of the metric counts as that large.
NOTHING, FLAT = 1e-8, 1e-8


class Parameters(NamedTuple):
    """Parameters of a hidden Markov model.

    Attributes
    ----------
    startprob : ndarray of shape (n_states,)
    transmat : ndarray of shape (n_states, n_states)
        Or what else the family of transitions has.
    emission : ndarray of shape (n_states, n_parameters)
        Those of the family, a row a state.
    """

    startprob: np.ndarray
    transmat: np.ndarray
    emission: np.ndarray


class Statistics(NamedTuple):
    """Sums over sequences; see the solvers' protocol for the two numbers."""

    start: np.ndarray
    pairs: np.ndarray
    features: np.ndarray
    objective: float
    entropy: float


class LogLikelihood(NamedTuple):
    """The weighted log-likelihood of some sequences."""

    value: float


class HMMModel(Averaging):
    """Hidden Markov model whose units are sequences, and means are a row.

    Parameters
    ----------
    emission : emission family
        Opened on the data.
    features : Features
        Those of the family on this data.
    initial : initial distribution
    transitions : transition family
    total : float
        Rows, or the sum of their weights: what priors are divided by.
    labelled : bool
        Some rows are known not to be in some states.
    keep_sums : bool
        Variance reduction keeps the sums of every batch, or evaluates them again.
    """

    #: A metric is made of differences, without the rows, and one pass.
    metric_cost = 2.0
    #: Logarithms and log-odds that move by more leave what the gradient knows.
    longest_step = 2.0

    def __init__(
        self,
        emission,
        features,
        initial,
        transitions,
        total,
        labelled=False,
        keep_sums=True,
    ):
        self.emission = emission
        self.features = features
        self.initial = initial
        self.transitions = transitions
        self.parts = initial, transitions, emission
        self.total = total
        self.labelled = labelled
        self.keep_sums = keep_sums
        self.recall_passes = 0 if keep_sums else 1
        self._last = None, None

    # E step

    def chain(self, parameters, beta=1.0):
        """Return the parameters as kernels take them, to the power of beta."""
        theta = self.features.collapse(self.emission.kernel_theta(parameters.emission))
        if self.labelled:
            n = len(parameters.startprob)
            forbidden = np.repeat(np.eye(n), len(theta) // n, axis=0)
            forbidden *= self.emission.IMPOSSIBLE
            theta = np.hstack([theta, forbidden])
        start = parameters.startprob
        if beta != 1.0:
            theta, start = theta * beta, start**beta
        pairs = self.transitions.chain(parameters.transmat, beta)
        follows = parameters.emission if self.emission.follows else None
        return Chain(theta, start, **pairs, follows=follows)

    def _theta(self, emission):
        # A point is evaluated several times.
        last = self._last
        if last[0] is not emission:
            last = self._last = emission, self.emission.theta(emission)
        return last[1]

    def passes(self, parameters, batch, beta=1.0, by_row=False):
        """Return the forward and backward passes over a batch, not yet run."""
        return batch.rows.passes(batch, self.chain(parameters, beta), by_row)

    def log_likelihood(self, parameters, data):
        """Return the weighted log-likelihood of all sequences, by a forward pass."""
        total = data.chunks().sum(partial(self._forward, parameters))
        return float(total.value)

    def _forward(self, parameters, batch):
        return LogLikelihood(self.passes(parameters, batch).forward())

    def statistics(self, point, batch, beta):
        """Return the statistics of a batch of sequences (Algorithm 1)."""
        return self.collect(self.passes(point.parameters, batch, beta), point, beta)

    def collect(self, passes, point, beta=1.0):
        """Run the passes and return their statistics."""
        objective = passes.forward() / beta
        start, pairs, features, *collected = passes.backward()
        pairs = self.transitions.complete(pairs, point.parameters.transmat)
        features = self.features.expand(features)
        emission = point.parameters.emission
        features = self.emission.complete(features, emission, *collected)
        sums = Statistics(start, pairs, features, objective, math.nan)
        expected = self._expected_chain(point.parameters, sums)
        expected += self._expected_rows(point.parameters, sums)
        return sums._replace(entropy=objective - expected)

    # M step

    def maximize(self, statistics, point, repair):
        """Return R(statistics) (Eq. 10), and that no part was left out."""
        before = point.parameters
        weight = self.emission.row_weight(statistics.features)
        least = statistics.start.min() + self.emission.LEFT_OVER
        if not repair and not min(least, weight.min()) >= 0.0:
            return None
        start = np.maximum(statistics.start, 0.0) * self.total
        pairs = statistics.pairs * self.total
        transmat = self.transitions.maximize(pairs, before.transmat, repair)
        if transmat is None:
            return None
        if self.initial.stationary:
            transmat = self.transitions.maximize_stationary(
                np.maximum(pairs, 0.0), start, before.transmat
            )
            startprob = stationary(transmat)
        else:
            startprob = self.initial.maximize(start, before.startprob)
        features = statistics.features * self.total
        emission = self.emission.maximize(features, before.emission, repair)
        if emission is None:
            return None
        # A state without rows keeps what it had, which is not worth a word.
        return Parameters(startprob, transmat, emission), ()

    # What the solvers ask for

    def start(self, parameters):
        """Return the point of these parameters; its statistics are not used yet."""
        n = len(parameters.startprob)
        weight = np.full(n, 1.0 / n)
        statistics = Statistics(
            parameters.startprob / self.total,
            self.transitions.expected(parameters.transmat, weight),
            self.emission.weighted(parameters.emission, weight),
            0.0,
            0.0,
        )
        return AveragingPoint(parameters, statistics)

    def fit_clusters(self, rows, picked, members, kept, shared=SHARED):
        """Return the emissions' parameters that rows of clusters are likeliest under.

        Parameters
        ----------
        rows : SequenceRows
        picked : ndarray of int of shape (n_picked,)
        members : ndarray of shape (n_picked, n_states * n_parts)
            Which cluster each is in.
        kept : dict
            What is the same for other clusters of these rows, which is filled.
        shared : float or ndarray of shape (n_states * n_parts,)
            How many times the rows of a cluster it takes of what all rows hold.
        """
        emission, here = self.emission, {}
        if emission.follows and not emission.exact:
            each = ROWS_A_PARAMETER * emission.n_parameters() // members.shape[1]
            picked, members = _thinned(picked, members, max(CLUSTER_ROWS, each))
        else:
            if "features" not in kept:
                kept["features"] = rows.few_features(picked)
            here["features"] = kept["features"]
        share = np.einsum("ij->i", members)[:, None]
        every = np.broadcast_to(share / share.sum(), members.shape)
        weight = (shared * np.maximum(np.einsum("ij->j", members), 1.0))[:, None]

        def of_all(packed):
            # What no picked row holds must not be impossible in every state.
            if emission.excludes:
                return self._mean_sums(rows, packed)
            return self._sums(rows, picked, every, packed, kept)

        def of_clusters(packed):
            if emission.follows and not emission.excludes:  # in one look at the rows
                both = members + weight.T * every
                return self._sums(rows, picked, both, packed, here)
            own = self._sums(rows, picked, members, packed, here)
            return own + weight * of_all(packed)

        if "packed" not in kept:
            kept["packed"] = self._climb(of_all, emission.blank())
        return self._climb(of_clusters, kept["packed"])

    def _climb(self, sums_at, packed):
        """Return parameters that M steps lead to, of sums that may follow them."""
        emission, value = self.emission, np.inf
        for _ in range(START_STEPS if emission.follows and not emission.exact else 1):
            sums, before, last = sums_at(packed), packed, value
            packed = emission.maximize(sums, before, True)
            value = np.vdot(sums, emission.theta(before))
            value /= emission.row_weight(sums).sum()
            little = 0.0 < value - last < START_GAIN
            if little or np.allclose(packed, before, rtol=1e-3, atol=0.0):
                break
        return packed

    def _sums(self, rows, picked, members, packed, kept):
        """Return sums of the families' features over rows that states weigh so.

        Those that do not depend on parameters are looked up in `kept`.
        """
        emission, collected = self.emission, ()
        if emission.follows:
            states = members.reshape(len(members), emission.n_states_, -1).sum(axis=2)
            collected = (rows.collect(picked, states, packed),)
        if "sums" not in kept:
            features = kept.get("features")
            kept["sums"] = rows.weighted_features(picked, members, features)
        found = self.features.expand(kept["sums"])
        return emission.complete(found, packed, *collected)

    def _mean_sums(self, rows, packed):
        """Return means of the families' features over all rows, in every state."""
        emission, collected = self.emission, ()
        n = emission.n_states_
        if emission.follows:
            collected = (rows.mean_collected(n, packed),)
        sums = np.repeat(rows.mean_features()[None], n * emission.n_parts, axis=0)
        return emission.complete(self.features.expand(sums), packed, *collected)

    def relax(self, parameters, rows):
        """Return parameters under which only what is given is impossible.

        They take a small share of what all rows hold, in every state, and of all
        transitions.

        Parameters
        ----------
        parameters : Parameters
        rows : SequenceRows
        """
        startprob, transmat, emission = parameters
        n, sums = len(startprob), self.start(parameters).statistics
        if self.transitions.scale == "probability":  # logits exclude nothing
            pairs = (sums.pairs + SHARED / n**2) * self.total
            transmat = self.transitions.maximize(pairs, transmat, True)
        if self.initial.stationary:
            startprob = stationary(transmat)
        else:
            startprob = self.initial.maximize(startprob + SHARED / n, startprob)
        features = sums.features + SHARED / n * self._mean_sums(rows, emission)
        emission = self.emission.maximize(features * self.total, emission, True)
        return Parameters(startprob, transmat, emission)

    def n_parameters(self):
        """Return the number of free parameters."""
        return sum(part.n_parameters() for part in self.parts)

    def log_prior(self, parameters):
        """Return the log-density of the parameters' priors, up to constants."""
        return self._chain_prior(parameters) + self.emission.log_prior(
            parameters.emission
        )

    def _chain_prior(self, parameters):
        first = self.initial.log_prior(parameters.startprob)
        return first + self.transitions.log_prior(parameters.transmat)

    def objective(self, point, mean):
        """Return the penalised log-likelihood a row."""
        prior = self.log_prior(point.parameters) / self.total
        return float(mean.objective) + prior

    def surrogate(self, point, sums):
        """Return Q, the expected complete-data log-likelihood (Eq. 11), with priors."""
        chain = self.chain_surrogate(point.parameters, sums)
        return chain + self.rows_surrogate(point.parameters, sums)

    def chain_surrogate(self, parameters, sums):
        """Return the hidden chain's share in Q, priors included."""
        prior = self._chain_prior(parameters) / self.total
        return self._expected_chain(parameters, sums) + prior

    def rows_surrogate(self, parameters, sums):
        """Return the emissions' share in Q, priors included."""
        prior = self.emission.log_prior(parameters.emission) / self.total
        return self._expected_rows(parameters, sums) + prior

    def _expected_chain(self, parameters, sums):
        pairs = self.transitions.log_likelihood(sums.pairs, parameters.transmat)
        return float(_sum_log(sums.start, parameters.startprob) + pairs)

    def _expected_rows(self, parameters, sums):
        theta, features = self._theta(parameters.emission), sums.features
        impossible = theta <= self.emission.IMPOSSIBLE
        if impossible.any():
            # What control variates leave of no weight, of either sign, is no weight.
            rounding = impossible & (np.abs(features) < self.emission.LEFT_OVER)
            features = np.where(rounding, 0.0, features)
        value = float(np.vdot(features, theta))
        if math.isfinite(value):
            return value
        # What is impossible, and has no weight.
        return float(np.sum(features * theta, where=features != 0.0))

    def norm(self, point, sums):
        """Return the length of a change of statistics in units of the states."""
        before = point.statistics
        weight = np.maximum(self.emission.row_weight(before.features), 1e-12)
        spread = self.emission.spread(point.parameters.emission)
        with np.errstate(over="ignore"):  # of outliers: then nothing is extrapolated
            squares = np.square(sums.features / spread)
        squares = squares.reshape(len(weight), -1).sum(axis=1)
        squares += self.transitions.squares(sums.pairs)
        squares += np.square(sums.start)
        return float(np.sqrt((squares / weight).sum()))

    # Free coordinates, and what preconditioned L-BFGS asks for

    def free(self, parameters):
        """Return the free coordinates of parameters, one vector."""
        parts = zip(self.parts, parameters, strict=True)
        return np.concatenate([part.free(own) for part, own in parts])

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        cut = self.n_chain_coordinates()
        parameters = self.bind_chain(vector[:cut], parameters)
        return self.bind_emission(vector[cut:], parameters)

    def n_chain_coordinates(self):
        """Return how many coordinates come before those of the emissions."""
        return self.initial.n_parameters() + self.transitions.n_parameters()

    def bind_chain(self, vector, parameters):
        """Return the parameters with these coordinates of the hidden chain."""
        first, pairs = pieces(
            vector, (self.initial.n_parameters(), self.transitions.n_parameters())
        )
        transmat = self.transitions.bind(pairs, parameters.transmat)
        startprob = self.initial.bind(first, parameters.startprob, transmat)
        return parameters._replace(startprob=startprob, transmat=transmat)

    def bind_emission(self, vector, parameters):
        """Return the parameters with these coordinates of the emissions."""
        emission = self.emission.bind(vector, parameters.emission)
        return parameters._replace(emission=emission)

    def slope(self, parameters, mean):
        """Return the gradient of Q and the priors a unit, from mean statistics."""
        startprob, transmat, emission = parameters
        start, pairs, features = (part * self.total for part in mean[:3])
        first = start if self.initial.stationary else None
        parts = [
            self.initial.slope(startprob, start),
            self.transitions.slope(transmat, pairs, first),
            self.emission.slope(emission, features),
        ]
        return np.concatenate(parts) / self.total

    def gradient(self, point, mean):
        """Return the gradient of the objective a unit."""
        return self.slope(point.parameters, mean)

    def move(self, point, step):
        """Return the point with its free coordinates moved."""
        vector = self.free(point.parameters) + step
        return point._replace(parameters=self.bind(vector, point.parameters))

    def precondition(self, point, vector):
        """Solve with the information of the complete data."""
        return cho_solve(self._metric, vector)

    def recondition(self, point, data, rng):
        """Return the point, for which the metric is taken, and the passes it cost."""
        mean = self.mean(point, data)
        self._metric = cho_factor(self._information(point.parameters, mean))
        return point, 1.0

    def mean(self, point, data):
        """Return the mean statistics, by a pass."""
        total = data.chunks().sum(partial(self.statistics, point, beta=1.0))
        return rescale(total, 1.0 / data.total_weight)

    def _information(self, parameters, mean):
        """Minus the Hessian of Q where sums are what the model expects of them."""
        expected = self._expected(parameters, mean)
        negative = -differences(
            lambda vector: self.slope(self.bind(vector, parameters), expected),
            self.free(parameters),
        )
        return definite(0.5 * (negative + negative.T))

    def curvature(self, parameters, mean):
        """Return the diagonal of the information of the complete data.

        No part has anything to do with the coordinates of another.
        """
        startprob, transmat, emission = parameters
        expected = self._expected(parameters, mean)
        start, pairs, features = (part * self.total for part in expected[:3])
        first = start if self.initial.stationary else None
        slopes = (
            lambda v: self.initial.slope(
                self.initial.bind(v, startprob, transmat), start
            ),
            lambda v: self.transitions.slope(
                self.transitions.bind(v, transmat), pairs, first
            ),
            lambda v: self.emission.slope(self.emission.bind(v, emission), features),
        )
        found = [
            -column[i]
            for part, own, slope in zip(self.parts, parameters, slopes, strict=True)
            for i, column in enumerate(slopes_along(slope, part.free(own)))
        ]
        return np.array(found) / self.total

    def _expected(self, parameters, mean):
        """Return mean statistics with the sums that the model expects of such rows."""
        startprob, transmat, emission = parameters
        return mean._replace(
            start=startprob * mean.start.sum(),
            pairs=self.transitions.model_sums(transmat, mean.pairs),
            features=self.emission.model_sums(emission, mean.features),
        )


def _thinned(picked, members, most):
    """Return at most about so many rows of each cluster, which weigh as all of them."""
    weight = np.zeros((len(members), 1))
    for column in members.T:
        own = np.flatnonzero(column)
        some = own[:: max(1, len(own) // most)]
        weight[some] = len(own) / max(1, len(some))
    kept = weight[:, 0] > 0.0
    return picked[kept], (members * weight)[kept]


def _sum_log(sums, probabilities):
    seen = sums != 0.0
    with np.errstate(divide="ignore"):
        return float(sums[seen] @ np.log(probabilities[seen]))


def differences(function, vector):
    """Return the Jacobian of a function of a vector, by central differences."""
    columns = list(slopes_along(function, vector))
    return np.column_stack(columns) if columns else np.zeros((0, 0))


def slopes_along(function, vector):
    """Yield the columns of a Jacobian, by central differences."""
    for i, value in enumerate(vector):
        step = STEP * max(1.0, abs(value))
        ahead, back = vector.copy(), vector.copy()
        ahead[i] += step
        back[i] -= step
        yield (function(ahead) - function(back)) / (2.0 * step)


def definite(matrix):
    """Return a positive definite matrix near a symmetric one."""
    unit = np.sqrt(np.maximum(matrix.diagonal(), NOTHING))
    values, vectors = eigh(matrix / np.outer(unit, unit))
    values = np.maximum(np.abs(values), FLAT * max(values.max(initial=0.0), 1.0))
    return (vectors * values) @ vectors.T * np.outer(unit, unit)
