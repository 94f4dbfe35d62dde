"""What a fitted hidden Markov model expects: the next rows, and how well it did."""

from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from skvrem.hmm.forward_backward._source import of_sequences

__all__ = ["Forecast", "HMMOutlook"]

TINY = np.finfo(float).tiny


class Forecast(NamedTuple):
    """Distribution of the rows to come after the end of each sequence.

    Attributes
    ----------
    states : ndarray of shape (n_sequences, horizon, n_components)
        Probabilities of the states.
    mean, sd : ndarray of shape (n_sequences, horizon, n_features)
        Mean and standard deviation of the observed features, the spread between
        states included. Categories are numbers here: see `states`.
    """

    states: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


class HMMOutlook:
    """Methods of a fitted model that look ahead of rows."""

    @of_sequences
    def forecast(self, X, horizon=1, *, groups=None, lengths=None, inputs=None):
        """Return the distribution of the rows after the end of each sequence.

        Parameters
        ----------
        {rows}
        horizon : int, default=1
            How many rows ahead.
        {ids}
        inputs : array-like, default=None
            Where transitions depend on columns of X: these in the rows ahead but the
            last, shape (n_sequences, horizon - 1, n_inputs), or without the first axis
            where they are the same for all. None is as in the last row of a sequence
            with `Covariates`, and with `Hierarchical` the probability that the states
            emit them, or no boundary.

        Returns
        -------
        forecast : Forecast
            Named tuple of `states`, `mean` and `sd`.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import VRHMM
        >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
        >>> X += np.random.default_rng(0).normal(size=X.shape)
        >>> hmm = VRHMM(2, random_state=0).fit(X)
        >>> hmm.forecast(X, horizon=3).mean.shape
        (1, 3, 1)
        """
        whole = isinstance(horizon, Real) and not isinstance(horizon, bool)
        if not (whole and horizon == np.floor(horizon) and 1 <= horizon < np.inf):
            raise ValueError(
                f"horizon must be an integer of at least 1, got {horizon!r}."
            )
        parameters = self._parameters()
        sequences, passes = self._run(X, groups, lengths)
        filtered = passes.layout.gather(passes.alpha, passes.n)
        mean, variance = self.emission_.moments(parameters.emission)
        ends = sequences.bounds[1:] - 1
        states = self._states_ahead(
            parameters.transmat,
            filtered[ends],
            None if sequences.inputs is None else sequences.inputs[ends],
            self._future_inputs(inputs, len(ends), int(horizon)),
            mean,
            int(horizon),
        )
        expected = states @ mean
        second = states @ (variance + np.square(mean))
        spread = np.sqrt(np.maximum(second - np.square(expected), 0.0))
        return Forecast(states, expected, spread)

    def _states_ahead(self, packed, state, last, future, mean, horizon):
        """States of the rows to come: (n_sequences, horizon, n_states)."""
        transitions = self._fitted_transitions()
        mean = mean[:, self._input_places()] if transitions.observed else None
        states = np.empty((len(state), horizon, state.shape[1]))
        for step in range(horizon):
            if step == 0:
                state = transitions.steps(packed, state, last)
            elif future is not None:
                state = transitions.steps(packed, state, future[:, step - 1])
            else:
                state = transitions.ahead(packed, state, last, mean)
            states[:, step] = state
        return states

    def _future_inputs(self, inputs, n_sequences, horizon):
        if inputs is None:
            return None
        transitions = self._fitted_transitions()
        shape = n_sequences, horizon - 1, len(transitions.columns)
        inputs = np.asarray(inputs, float)
        if shape[2] == 0 or inputs.shape not in (shape, shape[1:]):
            raise ValueError(
                "inputs of a forecast are what transitions depend on in the rows ahead "
                f"but the last, of shape {shape} or {shape[1:]}, got {inputs.shape}."
            )
        inputs = np.broadcast_to(inputs, shape)
        transitions.check_inputs(inputs.reshape(-1, shape[2]))
        return inputs

    @of_sequences
    def pseudo_residuals(self, X, *, groups=None, lengths=None):
        r"""Return how each value lies in its distribution given the rows before it.

        With :math:`u = P(Y_t \le y_t \mid y_1, \dots, y_{t-1})`, of discrete
        distributions the middle of the jump, the residual is
        :math:`\Phi^{-1}(u)`: standard normal where the model is right.

        Parameters
        ----------
        {rows}
        {ids}

        Returns
        -------
        residuals : ndarray of shape (n_samples, n_features)
            NaN where X is; at most 38 in size, where tails are too thin for floats.

        References
        ----------
        Zucchini, MacDonald, Langrock (2016). Hidden Markov Models for Time Series,
        section 6.2.
        """
        parameters = self._parameters()
        sequences, passes = self._run(X, groups, lengths)
        filtered = passes.layout.gather(passes.alpha, passes.n)
        predicted = np.empty_like(filtered)
        transitions, inputs = self._fitted_transitions(), sequences.inputs
        predicted[1:] = transitions.steps(
            parameters.transmat,
            filtered[:-1],
            None if inputs is None else inputs[:-1],
        )
        predicted[sequences.bounds[:-1]] = parameters.startprob
        rows = np.asarray(sequences.X, np.float64)
        residuals = np.empty_like(rows)
        # Of each tail the one that keeps its digits.
        for j, (below, above) in enumerate(self._tails(rows, parameters.emission)):
            lower = (predicted * below).sum(axis=1)
            upper = (predicted * above).sum(axis=1)
            low = lower < upper
            tail = ndtri(np.clip(np.where(low, lower, upper), TINY, 0.5))
            residuals[:, j] = np.where(low, tail, -tail)
        return np.where(np.isnan(rows), np.nan, residuals)

    def _tails(self, rows, parameters):
        """Yield P(below) and P(above) of every column, half a jump in each."""
        for j in range(rows.shape[1]):
            known = np.where(np.isnan(rows[:, j]), 0.0, rows[:, j])
            yield self.emission_.tails(known, j, parameters)
