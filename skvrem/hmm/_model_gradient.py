r"""Gradients in free coordinates, and what metrics are made of.

With parameters :math:`\phi(u)` of free coordinates u (``_coordinates.py``), the
expected complete-data log-likelihood :math:`Q(\phi | \phi')` (Sidrow et al. 2023,
Eq. 11) and the log-prior :math:`\pi`, Fisher's identity is

.. math:: \nabla_u [\log p(y; \phi) + \log \pi(\phi)]
          = \nabla_u [Q(\phi | \phi') + \log \pi(\phi)]_{\phi' = \phi},

a function of the sums that a pass of Baum-Welch makes. The metric of quasi-Newton
steps is the information of the complete data: minus the Hessian of Q at sums that are
what the model expects, the one whose inverse turns the gradient into a step of EM.
"""

import numpy as np
from scipy.linalg import eigh

# Step of central differences.
STEP = 1e-4
# Information a row below which a coordinate is of no account, and the share of the
# largest scaled eigenvalue below which a direction of the metric counts as that large.
NOTHING, FLAT = 1e-8, 1e-8


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


def definite(matrix):
    """Return a positive definite matrix near a symmetric one."""
    unit = np.sqrt(np.maximum(matrix.diagonal(), NOTHING))
    values, vectors = eigh(matrix / np.outer(unit, unit))
    values = np.maximum(np.abs(values), FLAT * max(values.max(initial=0.0), 1.0))
    return (vectors * values) @ vectors.T * np.outer(unit, unit)
