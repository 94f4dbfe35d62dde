"""Algorithm 1 of Choromanska and Jebara (2013) for one partition function."""

import numpy as np

from skvrem.linear import _kernels

__all__ = ["log_linear_bound"]


def log_linear_bound(features, theta, log_prior, descending):
    """Return log z, gradient and curvature; see :func:`skvrem.linear.bound`."""
    log_alpha = log_prior + features @ theta
    d = len(theta)
    order = np.arange(len(log_alpha))
    if descending:
        order = np.argsort(-log_alpha, kind="stable")
    sigma, gradient = np.zeros((d, d)), np.zeros(d)
    log_z = _kernels.partition_bound(features, log_alpha, order, sigma, gradient)
    return log_z, gradient, sigma
