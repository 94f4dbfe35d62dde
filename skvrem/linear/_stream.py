"""What a stream keeps: its rows while they are few, and whether classes come mixed."""

from typing import Any, NamedTuple

import numpy as np

from skvrem import solvers
from skvrem.data import MOST_BYTES, as_source
from skvrem.linear._model import Parameters
from skvrem.linear._plan import plan_fit
from skvrem.utils._classes import count_classes

# The rows kept are seen again where there are so many times as many as when they last
# were: of rows sorted by a column, whose last ones lie apart, few are left that only a
# step has seen, and all looks take at most a hundred times one's time.
GROWTH = 1.01
# Rows that are counted together at least.
FEWEST = 32
# Times that a class has come: rows of the first may be the first of a long run. Before,
# each time, and no class is rarer than this part of an even share.
TIMES, RARE = 3, 0.5
# Of the spread of the classes, what is found among rows that came together.
MIXED = 0.8


class ClassOrder(NamedTuple):
    r"""How the classes of a stream's rows are spread over its batches.

    The probability that two rows are of different classes, :math:`1 - \sum_c \pi_c^2`,
    is the same among the rows of a batch as among all where rows are in random order
    (but for ``1 / n`` of it in n rows), and much smaller where they come by class.

    Attributes
    ----------
    seen : ndarray of shape (n_classes,)
        Rows of each class, the newest left out.
    within : float
        The probability among rows that came together, times the number of rows.
    newest : ndarray of shape (n_classes,)
        Rows of the newest batches, while they are few.
    times : ndarray of shape (n_classes,)
        In how many batches, or few together, rows of each class have come.
    n_batches : int
        Of how many.
    """

    seen: np.ndarray
    within: float
    newest: np.ndarray
    times: np.ndarray
    n_batches: int = 0

    @classmethod
    def unknown(cls, n_classes):
        """Return that of a stream of which nothing has been seen."""
        return cls(np.zeros(n_classes), 0.0, *np.zeros((2, n_classes)))

    def after(self, y):
        """Return the order with that of a batch of rows of classes y (n,)."""
        newest = self.newest + np.bincount(y, minlength=len(self.seen))
        if newest.sum() < FEWEST:
            return self._replace(newest=newest)
        return ClassOrder(
            self.seen + newest,
            self.within + _spread(newest),
            np.zeros_like(newest),
            self.times + (newest > 0),
            self.n_batches + 1,
        )

    @property
    def mixed(self):
        """Whether all classes have come, and in random order as far as batches tell."""
        known = self.times.min() >= min(TIMES, self.n_batches)
        if self.n_batches < TIMES:
            known &= self.seen.min() >= RARE * self.seen.mean()
        return bool(known and self.within > MIXED * _spread(self.seen))


class RowsAgain(NamedTuple):
    """The rows of a stream, while all of them fit in little memory.

    Steps see a row once, at coefficients that later rows change, and how wrong that is
    depends on the order of rows. A fit to all of them does not. Steps go their own way
    until rows have become too many: then they go on from the last fit, if classes come
    mixed; a fit to the first rows would take a class that is last for rare.

    Attributes
    ----------
    kept : StreamRows, or None
        None where there are too many, for good.
    theta : ndarray of shape (p, k), or None
        Where steps have led; None where the model's own coefficients are that.
    fitted : ndarray of shape (p, k), or None
        The last fit; None as long as there is none.
    n_looked : int
        Rows that it was to.
    """

    kept: Any = None
    theta: Any = None
    fitted: Any = None
    n_looked: int = 0

    def with_rows(self, rows, mixed):
        """Return the same with some more rows, and with where steps go on from."""
        if self.kept is None:
            return RowsAgain()
        kept = self.kept.after(rows.data, rows.data.targets, MOST_BYTES, 0, _alike)
        if kept.are_all:
            return self._replace(kept=kept)
        return RowsAgain(None, self.last if mixed else self.theta)

    @property
    def last(self):
        """The last fit, or where steps have led where there is none."""
        return self.theta if self.fitted is None else self.fitted

    def after(self, estimator, rows, C, n_total, center, theta):
        """Return the same after steps over the new rows, with a fit to all of them.

        A fit is made only where the number of rows has grown and all classes have come:
        the coefficients of those to come would run away.

        Parameters
        ----------
        estimator : SBMLogisticRegression
        rows : LabelledRows
            The new ones.
        C, n_total, center : as of ``plan_fit``
        theta : ndarray of shape (p, k)
            Where steps have led.
        """
        kept, now = self.kept, self._replace(theta=theta)
        if kept is None:
            return RowsAgain()
        if kept.n_seen < GROWTH * self.n_looked:
            return now
        whole = kept.whole()
        counts = count_classes(whole.targets, len(rows.classes), whole.weight)
        if not counts.min() > 0.0:
            return now
        data = as_source(whole.rows, whole.weight, whole.targets)
        rows = rows._replace(data=data, dtype=whole.rows.dtype)
        model, plan = plan_fit(estimator, "auto", rows, C, n_total, center)
        fit = solvers.run(
            model,
            plan.solver,
            data,
            model.start(Parameters(now.last)),
            max_iter=estimator.max_iter,
            tol=estimator.tol,
            rng=np.random.default_rng(0),
        )
        return now._replace(fitted=fit.point.parameters.theta, n_looked=kept.n_seen)


def _alike(rows):
    return np.zeros(rows.shape[0])


def _spread(counts):
    """Return the probability that two of the rows differ, times their number."""
    total = max(counts.sum(), 1.0)
    return float(total - np.square(counts).sum() / total)
