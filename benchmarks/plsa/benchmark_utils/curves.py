"""Training objective against time of our solvers, from their own ``history_``."""

from typing import NamedTuple

import numpy as np
from harness.timing import quiet
from skvrem import VRPLSA
from threadpoolctl import threadpool_limits

__all__ = ["Curve", "fit_curve"]


class Curve(NamedTuple):
    """What a fit had reached, and when.

    Attributes
    ----------
    seconds, objective, passes : ndarray of shape (n_points,)
        The best objective so far, exact, in nats a token.
    """

    seconds: np.ndarray
    objective: np.ndarray
    passes: np.ndarray

    def at(self, seconds):
        """Return the best objective at a time, -inf before the first point."""
        place = np.searchsorted(self.seconds, seconds, side="right") - 1
        return np.where(place < 0, -np.inf, self.objective[np.maximum(place, 0)])


def fit_curve(X, n_topics, n_iter, *, seed=0, **parameters):
    """Fit for so many epochs on one thread; return the `Curve`."""
    model = VRPLSA(
        n_topics, max_iter=n_iter, tol=0.0, random_state=seed, n_jobs=1, **parameters
    )
    with quiet(), threadpool_limits(1):
        history = model.fit(X).history_
    return Curve(
        np.asarray(history["seconds"]),
        np.maximum.accumulate(history["objective"]),
        np.asarray(history["passes"]),
    )
