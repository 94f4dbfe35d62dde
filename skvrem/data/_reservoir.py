"""A sample of all rows of a stream, from which it may begin again."""

import warnings
from typing import NamedTuple

import numpy as np

# A batch so many standard errors below those before holds rows of another kind.
SURPRISE = 6.0
# The stream may begin again when it has become so many times as long.
GROWTH = 1.25
# It does where the gain, less what a fit gains in any case, is so many standard errors
# (Vuong 1989): not where a few rows far out make it.
CERTAIN = 2.0


class Reservoir(NamedTuple):
    """A uniform sample of the rows of a stream, and how well batches are explained.

    Attributes
    ----------
    rows : list of ndarray of shape (n_features,)
        Copies, so that a batch replaces some without a copy of the others.
    weight : list of float
    n_fitted : int
        Rows of the stream when its model was last fitted to such a sample.
    optimism : float
        ``n_parameters / n_rows``: what the mean log-likelihood of fitted rows is
        expected to lie above that of others (Akaike 1974).
    level : float
        Mean log-likelihood of the batches, forgotten as their statistics are.
    spread : float
        Variance of the log-likelihood of a row.
    surprised : bool
        A batch has been explained far worse than those before.
    """

    rows: list
    weight: list
    n_fitted: int
    optimism: float
    level: float
    spread: float
    surprised: bool = False

    @classmethod
    def of(cls, estimator, data, n_rows, n_parameters, level):
        """Return a sample of the rows that an estimator was fitted to."""
        some = data.sample(n_rows, np.random.default_rng(0)).ids
        rows = np.array(data.rows[some])
        spread = float(_explained(estimator, rows).var())
        optimism = n_parameters / len(rows)
        weight = weight_of(data)[some].tolist()
        return cls(list(rows), weight, data.n_units, optimism, level, spread)

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
        taken = np.flatnonzero((places < len(self.rows)) & (given > 0.0)).tolist()
        rows, weight = self.rows, self.weight
        if taken:
            rows, weight = rows.copy(), weight.copy()
        for i in taken:
            rows[places[i]], weight[places[i]] = data.rows[i].copy(), float(given[i])
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
        if not self.surprised or seen < GROWTH * self.n_fitted:
            return estimator, self
        now = self._replace(n_fitted=seen, surprised=False)
        rows, weight = np.array(self.rows), np.array(self.weight)
        other = fitted(rows, weight)
        before, after = _explained(estimator, rows), _explained(other, rows)
        gain = (after - before) * weight / weight.mean()
        error = CERTAIN * gain.std() / np.sqrt(len(rows))
        if gain.mean() < self.optimism + error:
            return estimator, now
        level = float(np.average(after, weights=weight))
        return other, now._replace(level=level, spread=float(after.var()))


def _explained(estimator, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns have lost their names
        return np.asarray(estimator.score_samples(rows), float)


def weight_of(data):
    """Return the weights of all rows of a source."""
    return data.weight if data.weight.size else np.ones(data.n_units)
