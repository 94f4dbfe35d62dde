"""Perplexity, and ends of fits by it."""

import numpy as np

__all__ = ["perplexity_of", "perplexity_stop"]


def perplexity_of(bound):
    """Return exp(-bound), of a bound in nats a token."""
    with np.errstate(over="ignore"):  # infinite is what it is
        return float(np.exp(-bound))


def perplexity_stop(evaluate_every, perp_tol):
    """Return the test of scikit-learn's parameters of these names, None for never.

    Epochs at temperature 1 are counted; every `evaluate_every`-th is compared with the
    one before.
    """
    if evaluate_every <= 0:
        return None
    seen = []

    def stop(epoch):
        if epoch.temperature != 1.0 or np.isnan(epoch.objective):
            return False
        seen.append(perplexity_of(epoch.objective))
        looked = seen[::evaluate_every]
        due = (len(seen) - 1) % evaluate_every == 0
        return due and len(looked) > 1 and abs(looked[-1] - looked[-2]) < perp_tol

    return stop
