"""What a fitted hidden Markov model says of itself: draws, order, a summary."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.hmm.forward_backward._columns import find_places
from skvrem.utils._base import summary_table

__all__ = ["HMMDescription"]


def _attribute(name, family, field, text):
    """A property of the estimator that is an attribute of one emission family."""

    def get(self):
        check_is_fitted(self)
        if type(self.emission_).__name__ != family:
            raise AttributeError(
                f"{name} is an attribute of {family} emissions; this model has "
                f"{type(self.emission_).__name__}, see emission_."
            )
        value = getattr(self.emission_, field)
        return value() if callable(value) else value

    return property(get, doc=text)


class HMMDescription:
    """Methods of a fitted model that need no rows."""

    means_ = _attribute(
        "means_", "Gaussian", "mean_", "Means of Gaussian emissions, a row a state."
    )
    covars_ = _attribute(
        "covars_",
        "Gaussian",
        "full_covariance",
        "Covariance matrices of Gaussian emissions, one a state.",
    )
    lambdas_ = _attribute(
        "lambdas_", "Poisson", "rate_", "Rates of Poisson emissions, a row a state."
    )
    emissionprob_ = _attribute(
        "emissionprob_",
        "Categorical",
        "probability_",
        "Probabilities of categories, a row a state.",
    )

    def sample(self, n_samples=1, random_state=None, *, inputs=None):
        """Draw a sequence from the model.

        Parameters
        ----------
        n_samples : int, default=1
            Length of the sequence.
        random_state : int, RandomState instance or None, default=None
            None is that of the constructor.
        inputs : array-like of shape (n_samples, n_inputs), default=None
            The columns that transitions depend on, where they do. Not needed where
            states emit them.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The observed features.
        states : ndarray of int of shape (n_samples,)
            The states that they were drawn in.
        """
        parameters = self._parameters()
        whole = isinstance(n_samples, Integral) and not isinstance(n_samples, bool)
        if not (whole and n_samples >= 1):
            raise ValueError(
                f"n_samples must be an integer of at least 1, got {n_samples!r}."
            )
        seed = self.random_state if random_state is None else random_state
        rng = np.random.default_rng(check_random_state(seed).randint(2**31 - 1))
        first = np.cumsum(parameters.startprob)
        u = rng.random(n_samples)
        transitions, packed = self._fitted_transitions(), parameters.transmat
        if transitions.columns and inputs is None and transitions.observed:
            return self._sample_inputs(parameters, u, rng)
        if transitions.columns:
            inputs = self._check_sampled(inputs, n_samples)
        tables, which = transitions.tables(packed, inputs)
        edges = np.cumsum(tables, axis=2)
        states = np.empty(n_samples, np.int64)
        for t in range(n_samples):
            table = which[t - 1] if which.size else 0
            row = edges[table, states[t - 1]] if t else first
            states[t] = _pick(row, u[t])
        return self.emission_.draw(parameters.emission, states, rng), states

    def _check_sampled(self, inputs, n_samples):
        transitions = self.transitions_
        shape = n_samples, len(transitions.columns)
        inputs = np.asarray(np.nan if inputs is None else inputs, float)
        inputs = inputs[:, None] if inputs.ndim == 1 else inputs
        if inputs.shape != shape or not np.isfinite(inputs).all():
            raise ValueError(
                f"Transitions depend on the columns {list(transitions.columns)} of X: "
                f"give them as inputs, an array of shape {shape}."
            )
        return transitions.check_inputs(inputs)

    def _sample_inputs(self, parameters, u, rng):
        """Draw row by row where transitions depend on what has been drawn."""
        states = np.empty(len(u), np.int64)
        rows = np.empty((len(u), self.emission_.n_columns_))
        edges, at = np.cumsum(parameters.startprob), self._input_places()
        for t in range(len(u)):
            states[t] = _pick(edges, u[t])
            rows[t] = self.emission_.draw(parameters.emission, states[t : t + 1], rng)
            tables, which = self.transitions_.tables(
                parameters.transmat, rows[t : t + 1, at]
            )
            edges = np.cumsum(tables[which[0], states[t]])
        return rows, states

    def relabel(self, order):
        """Put the states into another order, in place.

        Parameters
        ----------
        order : array-like of int of shape (n_components,)
            ``order[0]`` is the state that becomes the first.

        Returns
        -------
        self : estimator
            The same, with every fitted array in the new order.
        """
        parameters = self._parameters()
        n = len(parameters.startprob)
        order = np.asarray(order)
        if order.shape != (n,) or not np.array_equal(np.sort(order), np.arange(n)):
            raise ValueError(
                f"order must be a permutation of 0 to {n - 1}, got {order.tolist()}."
            )
        dtype, transitions = self.startprob_.dtype, self._fitted_transitions()
        start, pairs, features = self._sums
        packed = transitions.permute(parameters.transmat, order)
        pairs = transitions.permute(pairs, order)
        if hasattr(self, "transitions_"):
            transitions.reorder(order)
        self.startprob_ = self.startprob_[order]
        self.transmat_ = transitions.publish(packed, dtype)
        self.emission_.publish(parameters.emission[order], dtype)
        features = self.emission_.permute(features, order)
        self._sums = start[order], pairs, features
        return self

    def summary(self):
        """Return a table of the states.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a state: its share of the rows, expected number of rows until it is
            left, and parameters of its emissions. The frame's ``attrs`` hold
            log-likelihood, number of parameters, solver, convergence, passes; the text
            ends with them.
        """
        check_is_fitted(self)
        share = self.emission_.weight(self._sums[2])
        with np.errstate(divide="ignore"):
            duration = 1.0 / (1.0 - np.minimum(np.diagonal(self.transmat_), 1.0))
        columns = {"share": share / share.sum(), "duration": duration}
        columns |= self.emission_.describe(self._observed_names())
        facts = {
            "log_likelihood": self.log_likelihood_,
            "n_parameters": self.n_parameters_,
            "solver": self.solver_,
            "converged": self.converged_,
        }
        if hasattr(self, "history_"):  # a stream has none
            facts["passes"] = float(self.history_["passes"][-1])
        index = [f"state {k}" for k in range(len(share))]
        return summary_table(columns, index, facts)

    def _observed_names(self, parameters=None):
        """Names of the columns of X that are observed."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(self.n_features_in_)]
        return [names[j] for j in self._places(parameters).observed]

    def _places(self, parameters=None):
        names = list(getattr(self, "feature_names_in_", ()))
        parameters = self._of_fit if parameters is None else parameters
        return find_places(parameters, names, self.n_features_in_)

    def _input_places(self):
        """Numbers, among the observed columns, of inputs that are observed too."""
        places = self._places()
        return [places.observed.index(j) for j in places.inputs]


def _pick(edges, u):
    """Number of the interval that u, in [0, 1), falls into."""
    # Rounding may leave the last sum below 1.
    place = np.searchsorted(edges, u * edges[-1], side="right")
    return min(place, len(edges) - 1)
