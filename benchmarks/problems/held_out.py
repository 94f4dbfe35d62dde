"""Fits that are judged by held-out document completion."""

from benchmarks.harness import timed
from benchmarks.problems import evaluation

__all__ = ["Fits"]

#: Epochs after which we give up.
MOST = 512


class Fits:
    """CPU seconds and held-out values of fits by their number of epochs.

    Parameters
    ----------
    make : callable
        Takes ``max_iter`` and returns an estimator with ``components_`` to be.
    X : csr_matrix
    halves : tuple of csr_matrix
        Of held-out documents, from `evaluation.halve`.
    alpha : float
        Prior of the evaluator.
    """

    def __init__(self, make, X, halves, alpha):
        self.make, self.X, self.halves, self.alpha = make, X, halves, alpha
        self.found = {}

    def fit(self, n_iter):
        """Return CPU seconds of a whole fit, start and checks included, and topics."""
        model = self.make(max_iter=n_iter)
        seconds, _ = timed(lambda: model.fit(self.X))
        return seconds, model.components_

    def __call__(self, n_iter):
        """Return the seconds and the held-out value of so many epochs, fitted once."""
        if n_iter not in self.found:
            seconds, topics = self.fit(n_iter)
            value = evaluation.complete(self.halves, topics, self.alpha)
            self.found[n_iter] = seconds, value
        return self.found[n_iter]

    def value(self, n_iter):
        return self(n_iter)[1]

    def epochs_to(self, level):
        """Epochs after which a fit has the level, to 15 %; None if it never does.

        It will not where the value has fallen from one number to its double, twice.
        """
        few, many, falls = 0, 1, 0
        while self.value(many) < level:
            few, many = many, 2 * many
            falls = falls + 1 if self.value(many) < self.value(few) else 0
            if many > MOST or falls == 2:
                return None
        while many > 1.15 * few + 1:
            middle = (few + many) // 2
            if self.value(middle) < level:
                few = middle
            else:
                many = middle
        return many
