"""A sample of all rows of a stream, from which it may begin again."""

import warnings
from typing import NamedTuple

import numpy as np

# Rows of a sample, but for more that a stream begins with.
SAMPLE = 5000
# Of these, by which the stream looks how well it is explained.
FEW = 1000
# A batch so many standard errors below those before holds rows of another kind.
SURPRISE = 6.0
# The stream may begin again after a surprise when it has become so many times as long,
# and looks as often whether its sample is still explained as well as it was.
GROWTH, LOOKS = 1.1, 1.25
# Steps that decay by more forget nothing in the end (Robbins and Monro 1951): with
# others a stream is to forget.
FORGETS = 0.5
# It does where the gain, less what a fit gains in any case, is so many standard errors
# (Vuong 1989): not where a few rows far out make it. A loss of so many makes it try.
CERTAIN, LOST = 3.0, 2.0


class Reservoir(NamedTuple):
    """A uniform sample of the rows of a stream, and how well batches are explained.

    Attributes
    ----------
    rows : list of ndarray of shape (n_features,)
        Copies, so that a batch replaces some without a copy of the others.
    weight : list of float
    n_fitted : int
        Rows of the stream when its model was last fitted to such a sample.
    n_parameters : int
    level : float
        Mean log-likelihood of the batches, forgotten as their statistics are.
    spread : float
        Variance of the log-likelihood of a row.
    most : int
        Rows of the sample when it is full.
    surprised : bool
        A batch has been explained far worse than those before.
    ordered : bool
        The stream has begun again: its rows have an order.
    n_looked : int
        Rows of the stream when it last looked how well the sample was explained.
    best : float
        Mean log-likelihood of rows of the sample when they were explained best.
    """

    rows: list
    weight: list
    n_fitted: int
    n_parameters: int
    level: float
    spread: float
    most: int
    surprised: bool = False
    ordered: bool = False
    n_looked: int = 0
    best: float = -np.inf

    @classmethod
    def of(cls, estimator, data, n_rows, n_parameters, level):
        """Return a sample of the rows that an estimator was fitted to."""
        most = max(n_rows, SAMPLE)
        some = data.sample(most, np.random.default_rng(0)).ids
        rows, weight = np.array(data.rows[some]), weight_of(data)[some]
        explained = _explained(estimator, rows)
        best = float(np.average(explained[:FEW], weights=weight[:FEW]))
        best -= n_parameters / len(rows)
        about = data.n_units, n_parameters, level, float(explained.var()), most
        return cls(list(rows), weight.tolist(), *about, best=best)

    @property
    def optimism(self):
        """What fitted rows are explained better than others by (Akaike 1974)."""
        return self.n_parameters / len(self.rows)

    @property
    def equal(self):
        """Whether all rows are to count the same, as they have an order.

        Not while some of another kind wait for the stream to begin again.
        """
        return self.ordered and not self.surprised

    def after(self, data, seen, level, step_size):
        """Return the sample after a batch (Vitter 1985, algorithm R).

        Parameters
        ----------
        data : source
            The batch.
        seen : int
            Rows of the batches before.
        level : float
            Mean log-likelihood of its rows, before the step.
        step_size : float

        Returns
        -------
        reservoir : Reservoir
        """
        numbers = np.arange(seen, seen + data.n_units)
        # Not of the estimator's seed, which would draw the same for every batch.
        places = np.random.default_rng(seen).integers(numbers + 1)
        given = weight_of(data)
        rows, weight = self.rows, self.weight
        places[: self.most - len(rows)] = self.most - 1  # where it is not full
        taken = np.flatnonzero((places < self.most) & (given > 0.0)).tolist()
        if taken:
            rows, weight = rows.copy(), weight.copy()
        for i in taken:
            at = slice(places[i], places[i] + 1)
            rows[at], weight[at] = [data.rows[i].copy()], [float(given[i])]
        error = SURPRISE * np.sqrt(self.spread / data.n_units)
        return self._replace(
            rows=rows,
            weight=weight,
            level=self.level + step_size * (level - self.level),
            surprised=self.surprised or level < self.level - self.optimism - error,
        )

    def begin_again(self, estimator, seen, fitted):
        """Return an estimator that explains the sample better, if a fit does.

        Parameters
        ----------
        estimator : estimator
            Of the stream.
        seen : int
        fitted : callable
            ``fitted(rows, weight)`` returns an estimator like it.

        Returns
        -------
        estimator : estimator
        reservoir : Reservoir
        """
        surprised = self.surprised and seen >= GROWTH * self.n_fitted
        looks = seen >= LOOKS * max(self.n_fitted, self.n_looked)
        looks &= estimator.step_decay > FORGETS
        if not surprised and not looks:
            return estimator, self
        now = self._replace(n_looked=seen)
        if not surprised and not self.ordered:
            rows = np.array(self.rows[:FEW])
            before = _explained(estimator, rows)
            level = float(np.average(before, weights=self.weight[:FEW]))
            now = now._replace(best=max(level, self.best))
            if level > self.best - LOST * before.std() / np.sqrt(len(rows)):
                return estimator, now
            now = now._replace(best=level)
        rows, weight = np.array(self.rows), np.array(self.weight)
        other = fitted(rows, weight)
        now = now._replace(n_fitted=seen, surprised=False)
        before, after = _explained(estimator, rows), _explained(other, rows)
        gain = (after - before) * weight / weight.mean()
        error = CERTAIN * gain.std() / np.sqrt(len(rows))
        if gain.mean() < self.optimism + error:
            return estimator, now
        level = float(np.average(after, weights=weight))
        spread = float(after.var())
        return other, now._replace(level=level, spread=spread, ordered=True)


def _explained(estimator, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns have lost their names
        return np.asarray(estimator.score_samples(rows), float)


def weight_of(data):
    """Return the weights of all rows of a source."""
    return data.weight if data.weight.size else np.ones(data.n_units)
