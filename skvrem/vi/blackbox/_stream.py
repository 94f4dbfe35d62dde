r"""What a stream of a user's own model knows of its rows: their numbers.

The posterior of the rows before is the prior of a batch, a Gaussian that holds each of
them by its expansion where the posterior then was. Where a batch leads away from there,
as rows of another target do, expansions are wrong, by any number of standard
deviations. The model has the rows yet: those seen are then seen again, and the
posterior is that of a fit to all.
"""

from typing import Any, NamedTuple

import numpy as np

from skvrem.vi.blackbox._fit import mode_of
from skvrem.vi.blackbox._input import weigh_rows
from skvrem.vi.blackbox._model_density import Target
from skvrem.vi.gaussian._model_posterior import FlatPrior

# Rows up to which all are seen with every batch; and how many times those last seen
# together there are where they are seen again: for few passes over all of a stream.
FEW, TIMES = 1000, 2
# How far a posterior moves, in squares of its width a parameter, where expansions are
# wrong: by a batch, and by all since rows were seen together, which one width is
# expected of.
FAR, DRIFT = 1.0, 2.0
# Relative change of a row's log-likelihood that is more than rounding.
CHANGED = 1e-4


class Seen(NamedTuple):
    """The rows of a stream, and what it knew before them.

    Attributes
    ----------
    model : object
        Whose rows they are.
    rows, weight : ndarray, and ndarray or None
        As `weigh_rows` returns them.
    within : MeanField, FullRank or LowRank, or None
        What was known before, as a part of the log density.
    prior : MeanField or FlatPrior
        The same, apart from it.
    about : MeanField, FullRank or LowRank
        The posterior where the rows were last seen together.
    n_about : int
        Rows that they then were.
    at : ndarray of shape (d,)
        Where log-likelihoods of rows are taken, to know them by.
    told : ndarray of shape (n_samples,)
        The log-likelihood there of each row when it was new, NaN before.
    """

    model: Any
    rows: np.ndarray
    weight: np.ndarray | None
    within: Any
    prior: Any
    about: Any
    n_about: int
    at: np.ndarray
    told: np.ndarray

    @classmethod
    def of(cls, model, rows, weight, within, prior, posterior):
        """Return what is known after a fit to rows."""
        known = model, rows, weight, within, prior, posterior, rows.size
        return cls(*known, posterior.mean, np.empty(0))._hear(rows)

    def with_rows(self, rows, weight):
        """Return the same with further rows, not seen together with those before."""
        joined, times = np.concatenate([self.rows, rows]), None
        if self.weight is not None or weight is not None:
            both = (self.rows, self.weight), (rows, weight)
            counts = (np.ones(r.size) if w is None else w for r, w in both)
            joined, times = weigh_rows(joined, np.concatenate(list(counts)))
        return self._replace(rows=joined, weight=times)._hear(rows)

    def _hear(self, rows):
        """Return the same with what rows say that are new."""
        told = np.full(int(self.model.n_samples), np.nan)
        told[: self.told.size] = self.told
        new = rows[np.isnan(told[rows])]
        if new.size:
            told[new] = Target(self.model, new).each(self.at, new)
        return self._replace(told=told)

    def is_of(self, model, n_dim):
        """Whether these are rows of a model that has as many yet, and parameters."""
        same = model is self.model and int(model.n_parameters) == n_dim
        return same and int(model.n_samples) >= self.told.size

    def are_as_before(self):
        """Whether rows say what they said when they were new."""
        now = Target(self.model, self.rows).each(self.at, self.rows)
        return np.allclose(now, self.told[self.rows], CHANGED, CHANGED, equal_nan=True)

    @property
    def due(self):
        """Whether all rows are to be seen together, wherever the last ones lead."""
        n = self.rows.size
        return n <= FEW or n >= TIMES * self.n_about

    def lead_away(self, posterior, rows, weight):
        """Whether new rows lead so far that expansions of those before are wrong."""
        units = posterior.scale
        known = posterior.scaled(1.0 / units)
        target = Target(self.model, rows, weight, known, units)
        top = units * mode_of(target, FlatPrior(known.n_dim), known.mean)
        return _beyond(FAR, posterior, top) or _beyond(DRIFT, self.about, top)


def _beyond(far, posterior, z):
    """Whether parameters are so many squared widths a parameter from a posterior."""
    away = z - posterior.mean
    return away @ posterior.precision_times(away) > far * away.size
