"""What draws of the scales add to a posterior, kept for the batches of a stream.

Draws cost as much as many batches, and what they add changes little from one batch to
the next: a stream draws anew each time that it is so much longer.
"""

from typing import NamedTuple

import numpy as np

from skvrem.vi.gaussian.nested._model_modes import Parts

# How many times as many rows are worth new draws.
LONGER = 1.5


class Drawn(NamedTuple):
    r"""What draws make of a posterior whose coefficients move linearly with the scales.

    Where that is :math:`N(m, C C^T)`, C triangular, draws make it
    :math:`N(m + C a, C R R^T C^T)`.

    Attributes
    ----------
    groups : ndarray of shape (n_groups, q)
    of_groups : ndarray of shape (n_groups, q, q)
        a and R of each group.
    both : ndarray of shape (p + h,)
    of_both : ndarray of shape (p + h, p + h)
        The same of all else.
    n_seen : int
        Rows of the stream at the time.
    """

    groups: np.ndarray
    of_groups: np.ndarray
    both: np.ndarray
    of_both: np.ndarray
    n_seen: int

    @classmethod
    def of(cls, parts, linear, n_seen):
        """Return what leads to the `Parts` of draws from others."""
        away = parts.groups - linear.groups
        groups = _leads(away, linear.of_groups, parts.of_groups)
        both = np.concatenate([parts.mean, parts.scales])
        both -= np.concatenate([linear.mean, linear.scales])
        return cls(*groups, *_leads(both, linear.covariance, parts.covariance), n_seen)

    def is_of(self, n_seen):
        """Whether it does for so many rows."""
        return n_seen < LONGER * self.n_seen

    def spread(self, at, n_groups):
        """Return it with groups that it does not know, of which it changes nothing."""
        q = self.groups.shape[1]
        groups, of_groups = np.zeros((n_groups, q)), np.zeros((n_groups, q, q))
        of_groups += np.eye(q)
        groups[at], of_groups[at] = self.groups, self.of_groups
        return self._replace(groups=groups, of_groups=of_groups)

    def on(self, linear):
        """Return the `Parts` that draws would make of others, about."""
        root, p = np.linalg.cholesky(linear.covariance), linear.mean.size
        own = np.linalg.cholesky(linear.of_groups)
        # By one matrix each, so that all is one Gaussian still.
        turn, turn_own = _turned(root, self.of_both), _turned(own, self.of_groups)
        away = root @ self.both
        return Parts(
            linear.groups + (own @ self.groups[..., None])[..., 0],
            turn_own @ linear.of_groups @ turn_own.swapaxes(1, 2),
            linear.mean + away[:p],
            linear.scales + away[p:],
            turn @ linear.covariance @ turn.T,
            turn_own @ linear.coupling @ turn.T,
        )


def _leads(away, before, after):
    """Return a and R."""
    root, other = np.linalg.cholesky(before), np.linalg.cholesky(after)
    return np.linalg.solve(root, away[..., None])[..., 0], np.linalg.solve(root, other)


def _turned(root, within):
    """Return C R C^-1."""
    across = root.swapaxes(-1, -2), within.swapaxes(-1, -2)
    return root @ np.linalg.solve(*across).swapaxes(-1, -2)
