"""What a fitted hidden Markov model says of rows: states, probabilities, densities."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvrem.hmm._model import HMMModel, Parameters
from skvrem.hmm.emissions._base import bounded_log
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.hmm.forward_backward._model_viterbi import most_probable_paths
from skvrem.hmm.forward_backward._source import (
    SequenceSource,
    of_sequences,
    open_sequences,
)
from skvrem.hmm.transitions._homogeneous import Homogeneous
from skvrem.utils._parallel import threads
from skvrem.utils._validation import among

__all__ = ["HMMInference", "explain_impossible"]

# Values so many times the median are too far for the squares of others to be told.
FAR = 1e10


def explain_impossible(error, sequences):
    """Return the error to raise for a row of probability zero."""
    row, sequence, inside = sequences.place(error.row)
    where = (
        f"Row {row} of X (row {inside} of sequence {sequence}) has probability zero "
        "given the rows before it"
    )
    far = _far_value(sequences.X)
    if far is not None:
        value, row, column = far
        return ValueError(
            f"{where}, in floating point: observed column {column} holds {value:g} in "
            f"row {sequences.place(row)[0]}, too far from all other values. Look for "
            "outliers."
        )
    return ValueError(
        f"{where}: no state that can follow emits it. Look at the mask, at fixed or "
        "zero transition and start probabilities, and at emission probabilities of "
        "zero."
    )


def _far_value(X):
    """A value too far from the rest for sums of squares, its row and column."""
    size = np.abs(np.where(np.isnan(X), 0.0, X))
    top, middle = size.max(axis=0), np.median(size, axis=0)
    far = top > FAR * np.where(middle > 0.0, middle, 1.0)
    if not far.any():
        return None
    column = int(far.argmax())
    row = int(size[:, column].argmax())
    return X[row, column], row, column


class HMMInference:
    """Methods of a fitted model; they use its public attributes only."""

    def _parameters(self):
        check_is_fitted(self)
        return Parameters(
            np.asarray(self.startprob_, float),
            self._fitted_transitions().parameters(np.asarray(self.transmat_, float)),
            self.emission_.parameters(),
        )

    def _fitted_transitions(self):
        # Models of before there were several families have no such attribute.
        return vars(self).get("transitions_") or Homogeneous()

    def _open_fitted(self, X, groups, lengths, sample_weight=None, y=None):
        """Return sequences, their source and the model."""
        parameters = self._parameters()
        sequences = open_sequences(self, X, groups, lengths, sample_weight, y=y)
        self.emission_.check(sequences.X)
        transitions = self._fitted_transitions()
        source = SequenceSource(sequences, self.emission_, transitions)
        model = HMMModel(source.emission, source.features, None, transitions, 1.0)
        return parameters, sequences, source, model

    def _run(self, X, groups, lengths, backward=False):
        """Run over rows; return the sequences and the passes."""
        parameters, sequences, source, model = self._open_fitted(X, groups, lengths)
        (batch,) = source.chunks().batches
        passes = model.passes(parameters, batch, by_row=True)
        with threads(self.n_jobs):
            try:
                passes.forward()
            except Impossible as error:
                raise explain_impossible(error, sequences) from None
            if backward:
                passes.backward()
        return sequences, passes

    def _state_probabilities(self, X, groups, lengths, smoothed):
        sequences, passes = self._run(X, groups, lengths, smoothed)
        laid = passes.posteriors if smoothed else passes.alpha
        probabilities = np.maximum(passes.layout.gather(laid, passes.n), 0.0)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities.astype(sequences.X.dtype, copy=False)

    @of_sequences
    def predict(self, X, *, groups=None, lengths=None):
        """Return the state of each row, by `algorithm`.

        Parameters
        ----------
        {rows}
        {ids}

        Returns
        -------
        states : ndarray of int of shape (n_samples,)
            The most probable path of states, or with ``algorithm="map"`` the most
            probable state of each row.
        """
        return self.decode(X, groups=groups, lengths=lengths)[1]

    @of_sequences
    def decode(self, X, *, groups=None, lengths=None, algorithm=None):
        """Return the states of the rows and how probable they are.

        Parameters
        ----------
        {rows}
        {ids}
        algorithm : {"viterbi", "map"}, default=None
            None is that of the constructor.

        Returns
        -------
        log_prob : float
            Joint log-probability of all rows and their most probable paths; of "map"
            the sum of the posterior probabilities of the states.
        states : ndarray of int of shape (n_samples,)
            States of the rows.
        """
        algorithm = self.algorithm if algorithm is None else algorithm
        if not among(algorithm, ("viterbi", "map")):
            raise ValueError(
                f"algorithm must be 'viterbi' or 'map', got {algorithm!r}."
            )
        if algorithm == "map":
            posterior = self._state_probabilities(X, groups, lengths, True)
            states = posterior.argmax(axis=1)
            return float(posterior.max(axis=1).sum(dtype=float)), states
        parameters, sequences, source, model = self._open_fitted(X, groups, lengths)
        chain = model.chain(parameters)
        tables, which = model.transitions.tables(parameters.transmat, sequences.inputs)
        with threads(self.n_jobs):
            states, scores = most_probable_paths(
                source.rows,
                chain.theta,
                bounded_log(chain.start),
                bounded_log(tables),
                which,
            )
        if scores.min() < -1e99:
            self._run(X, groups, lengths)  # says which row
        return float(scores.sum()), states

    @of_sequences
    def predict_proba(self, X, *, groups=None, lengths=None):
        """Return the probability of each state for each row, given its whole sequence.

        Parameters
        ----------
        {rows}
        {ids}

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_components)
            Smoothed probabilities, rows that sum to 1.
        """
        return self._state_probabilities(X, groups, lengths, True)

    @of_sequences
    def filter_proba(self, X, *, groups=None, lengths=None):
        """Return the probability of each state given the sequence up to each row.

        Parameters
        ----------
        {rows}
        {ids}

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_components)
            Filtered probabilities, rows that sum to 1.
        """
        return self._state_probabilities(X, groups, lengths, False)

    @of_sequences
    def score_samples(self, X, *, groups=None, lengths=None):
        """Return the log-density of each row given the rows of its sequence before it.

        Parameters
        ----------
        {rows}
        {ids}

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats; its sum is the log-likelihood.
        """
        sequences, passes = self._run(X, groups, lengths)
        shares = passes.layout.gather(passes.row_shares, 1)[:, 0]
        return shares.astype(sequences.X.dtype, copy=False)

    @of_sequences
    def score(self, X, y=None, *, sample_weight=None, groups=None, lengths=None):
        """Return the log-likelihood in nats a row.

        Parameters
        ----------
        {rows}
        y : Ignored
            Present by convention, with an entry a row; `lengths` go by name.
        sample_weight : array-like of shape (n_samples,), default=None
            The same for all rows of a sequence.
        {ids}

        Returns
        -------
        score : float
            The higher, the better.
        """
        parameters, sequences, source, model = self._open_fitted(
            X, groups, lengths, sample_weight, y
        )
        (batch,) = source.chunks().batches
        with threads(self.n_jobs):
            try:
                total = model.passes(parameters, batch).forward()
            except Impossible as error:
                raise explain_impossible(error, sequences) from None
        return float(total / source.total_weight)

    @of_sequences
    def aic(self, X, *, groups=None, lengths=None):
        """Return the Akaike information criterion on X.

        Parameters
        ----------
        {rows}
        {ids}

        Returns
        -------
        aic : float
            The lower, the better.
        """
        shares = self.score_samples(X, groups=groups, lengths=lengths)
        return float(2.0 * self.n_parameters_ - 2.0 * shares.sum(dtype=float))

    @of_sequences
    def bic(self, X, *, groups=None, lengths=None):
        """Return the Bayesian information criterion on X.

        Parameters
        ----------
        {rows}
        {ids}

        Returns
        -------
        bic : float
            The lower, the better.
        """
        shares = self.score_samples(X, groups=groups, lengths=lengths)
        penalty = self.n_parameters_ * np.log(len(shares))
        return float(penalty - 2.0 * shares.sum(dtype=float))
