r"""The exact gradient of a hidden Markov model in free coordinates.

With parameters :math:`\phi(u)` of free coordinates u (``_coordinates.py``), the
expected complete-data log-likelihood :math:`Q(\phi | \phi')` (Sidrow et al. 2023,
Eq. 11) and the log-prior :math:`\pi`, Fisher's identity is

.. math:: \nabla_u [\log p(y; \phi) + \log \pi(\phi)]
          = \nabla_u [Q(\phi | \phi') + \log \pi(\phi)]_{\phi' = \phi},

a function of the sums that a pass of Baum-Welch makes. The metric of quasi-Newton
steps is the information of the complete data: minus the Hessian of Q at sums that are
what the model expects, the one whose inverse turns the gradient into a step of EM.
"""

from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from skvrem.utils._algebra import pieces, rescale

__all__ = ["FreeCoordinates"]

# Step of central differences.
STEP = 1e-4
# Information a row below which a coordinate is of no account, and the share of the
# largest scaled eigenvalue below which a direction of the metric counts as that large.
NOTHING, FLAT = 1e-8, 1e-8


class FreeCoordinates:
    """What gradient methods ask a model for; mixed into the model."""

    #: A metric is made of differences, without the rows, and one pass.
    metric_cost = 2.0
    #: Logarithms and log-odds that move by more leave what the gradient knows.
    longest_step = 2.0

    def free(self, parameters):
        """Return the free coordinates of parameters, one vector."""
        startprob, transmat, emission = parameters
        return np.concatenate(
            [
                self.initial.free(startprob),
                self.transitions.free(transmat),
                self.emission.free(emission),
            ]
        )

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

    # What preconditioned L-BFGS asks for

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
        startprob, transmat, emission = parameters
        weight = np.maximum(self.emission.weight(mean.features), 1e-12)
        expected = mean._replace(
            start=startprob * mean.start.sum(),
            pairs=self.transitions.model_sums(transmat, mean.pairs),
            features=self.emission.weighted(emission, weight),
        )
        negative = -differences(
            lambda vector: self.slope(self.bind(vector, parameters), expected),
            self.free(parameters),
        )
        return _definite(0.5 * (negative + negative.T))


def differences(function, vector):
    """Return the Jacobian of a function of a vector, by central differences."""
    columns = []
    for i, value in enumerate(vector):
        step = STEP * max(1.0, abs(value))
        ahead, back = vector.copy(), vector.copy()
        ahead[i] += step
        back[i] -= step
        columns.append((function(ahead) - function(back)) / (2.0 * step))
    return np.column_stack(columns) if columns else np.zeros((0, 0))


def _definite(matrix):
    """Return a positive definite matrix near a symmetric one."""
    unit = np.sqrt(np.maximum(matrix.diagonal(), NOTHING))
    values, vectors = eigh(matrix / np.outer(unit, unit))
    values = np.maximum(np.abs(values), FLAT * max(values.max(initial=0.0), 1.0))
    return (vectors * values) @ vectors.T * np.outer(unit, unit)
