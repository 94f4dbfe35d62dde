"""What families of counts and of categories share."""

import numpy as np
from scipy.special import betainc


def binomial_tails(x, n, p):
    """Return the probabilities of less and of more than x of n, and half that of x."""
    below = betainc(n - x + 1.0, np.maximum(x, 1.0), 1.0 - p)
    above = betainc(x + 1.0, np.maximum(n - x, 1.0), p)
    below, above = np.where(x > 0.0, below, 0.0), np.where(x < n, above, 0.0)
    half = 0.5 * (1.0 - below - above)
    return below + half, above + half
