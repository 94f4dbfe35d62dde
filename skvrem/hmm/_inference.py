"""What a fitted hidden Markov model says of rows that it is shown."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from skvrem.hmm import _blocks
from skvrem.hmm._input import fitted_parameters, naming_impossible, open_rows, ready
from skvrem.hmm.emissions._coordinates import bounded_log
from skvrem.hmm.forward_backward._model_viterbi import draw_paths, most_probable_paths
from skvrem.utils._parallel import threads
from skvrem.utils._remote import of_dask
from skvrem.utils._validation import among, as_generator, check_size

# What may be given of every row.
PerRow = ArrayLike | None

TINY = np.finfo(float).tiny
# Of angles: the least difference of two probabilities, and radians within which, by the
# rounding of float32, an angle is where it is measured from.
THIN, AT_CUT = 1e-15, 1e-6


def run(estimator, X, groups, lengths, backward=False):
    """Run over rows; return the sequences and the passes."""
    estimator = ready(estimator, X)
    sequences, data, model = open_rows(estimator, X, groups=groups, lengths=lengths)
    parameters = fitted_parameters(estimator)
    passes = model.passes(parameters, data.whole(), by_row=True)
    with threads(estimator.n_jobs), naming_impossible(sequences):
        passes.forward()
        if backward:
            passes.backward()
    return sequences, passes


def log_likelihood(estimator, X, *given):
    """Return the log-likelihood of weighted sequences, and the weight of rows."""
    estimator = ready(estimator, X)
    sequences, data, model = open_rows(estimator, X, *given)
    with threads(estimator.n_jobs), naming_impossible(sequences):
        total = model.log_likelihood(fitted_parameters(estimator), data)
    return total, data.total_weight


def _total(estimator, X, y, *given):
    """Return the same of rows wherever they are."""
    if of_dask(X):
        return _blocks.total(estimator, log_likelihood, X, *given)
    return log_likelihood(estimator, X, y, *given)


def predict(
    self, X: ArrayLike, *, groups: PerRow = None, lengths: ArrayLike | None = None
) -> np.ndarray:
    """Return the state of each row, by `algorithm`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    states : ndarray of int of shape (n_samples,)
        The most probable path of states, or with ``algorithm="map"`` the most
        probable state of each row.
    """
    if of_dask(X):
        return _blocks.answer(self, "predict", X, groups, lengths)
    return self.decode(X, groups=groups, lengths=lengths)[1]


def decode(self, X, *, groups=None, lengths=None, algorithm=None):
    """Return the states of the rows and how probable they are.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.
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
        raise ValueError(f"algorithm must be 'viterbi' or 'map', got {algorithm!r}.")
    if algorithm == "map":
        proba = self.predict_proba(X, groups=groups, lengths=lengths)
        return float(proba.max(axis=1).sum(dtype=float)), proba.argmax(axis=1)
    estimator = ready(self, X)
    sequences, data, model = open_rows(estimator, X, groups=groups, lengths=lengths)
    parameters = fitted_parameters(estimator)
    chain = model.chain(parameters)
    tables, which = model.transitions.tables(parameters.transmat, sequences.inputs)
    logs = bounded_log(chain.start), bounded_log(tables)
    with threads(estimator.n_jobs):
        states, scores = most_probable_paths(data.rows, chain, *logs, which)
    if scores.min() < -1e99:
        run(estimator, X, groups, lengths)  # says which row
    return float(scores.sum()), states


def predict_proba(
    self, X: ArrayLike, *, groups: PerRow = None, lengths: ArrayLike | None = None
) -> np.ndarray:
    """Return the probability of each state for each row, given its whole sequence.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    probabilities : ndarray of shape (n_samples, n_components)
        Smoothed probabilities, rows that sum to 1.
    """
    if of_dask(X):
        return _blocks.answer(self, "predict_proba", X, groups, lengths)
    return _state_probabilities(self, X, groups, lengths, True)


def filter_proba(self, X, *, groups=None, lengths=None):
    """Return the probability of each state given the sequence up to each row.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    probabilities : ndarray of shape (n_samples, n_components)
        Filtered probabilities, rows that sum to 1.
    """
    if of_dask(X):
        return _blocks.answer(self, "filter_proba", X, groups, lengths)
    return _state_probabilities(self, X, groups, lengths, False)


def _state_probabilities(estimator, X, groups, lengths, smoothed):
    """Return the states' probabilities, given the whole sequence or up to each row."""
    sequences, passes = run(estimator, X, groups, lengths, smoothed)
    probabilities = passes.smoothed() if smoothed else passes.filtered()
    probabilities = np.maximum(probabilities, 0.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities.astype(sequences.X.dtype, copy=False)


def score_samples(self, X, *, groups=None, lengths=None):
    """Return the log-density of each row given the rows of its sequence before it.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    log_density : ndarray of shape (n_samples,)
        In nats; its sum is the log-likelihood.
    """
    if of_dask(X):
        return _blocks.answer(self, "score_samples", X, groups, lengths)
    sequences, passes = run(self, X, groups, lengths)
    shares = passes.shares_by_row()
    return shares.astype(sequences.X.dtype, copy=False)


def score(
    self,
    X: ArrayLike,
    y: Any = None,
    *,
    sample_weight: PerRow = None,
    groups: PerRow = None,
    lengths: ArrayLike | None = None,
) -> float:
    """Return the log-likelihood in nats a row.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    y : Ignored
        Present by convention, with an entry a row; `lengths` go by name.
    sample_weight : array-like of shape (n_samples,), default=None
        The same for all rows of a sequence.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    score : float
        The higher, the better.
    """
    total, weight = _total(self, X, y, sample_weight, groups, lengths)
    return float(total / weight)


def aic(self, X, *, sample_weight=None, groups=None, lengths=None):
    """Return the Akaike information criterion on X.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    sample_weight : array-like of shape (n_samples,), default=None
        The same for all rows of a sequence.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    aic : float
        The lower, the better.
    """
    total, _ = _total(self, X, None, sample_weight, groups, lengths)
    # What has answers without a fit has nothing free.
    return float(2.0 * getattr(self, "n_parameters_", 0) - 2.0 * total)


def bic(self, X, *, sample_weight=None, groups=None, lengths=None):
    """Return the Bayesian information criterion on X.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    sample_weight : array-like of shape (n_samples,), default=None
        The same for all rows of a sequence.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    bic : float
        The lower, the better. The penalty is of as many rows as they weigh.
    """
    total, weight = _total(self, X, None, sample_weight, groups, lengths)
    penalty = getattr(self, "n_parameters_", 0) * np.log(weight)
    return float(penalty - 2.0 * total)


def pseudo_residuals(self, X, *, groups=None, lengths=None):
    r"""Return how each value lies in its distribution given the rows before it.

    With :math:`u = P(Y_t \le y_t \mid y_1, \dots, y_{t-1})`, of discrete
    distributions the middle of the jump, the residual is
    :math:`\Phi^{-1}(u)`: standard normal where the model is right. An angle is measured
    from the point opposite to the mean direction that is expected of its row: its
    residual is negative to the right of this and positive to the left.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    residuals : ndarray of shape (n_samples, n_features)
        NaN where X is, and of an angle at the very point that it is measured from, as
        :math:`\pi` where a mean is fixed at 0: u is 0 or 1 alike there. At most 38 in
        size, of angles 8, where tails are too thin for floats.

    References
    ----------
    Zucchini, MacDonald, Langrock (2016). Hidden Markov Models for Time Series,
    section 6.2.
    """
    if of_dask(X):
        return _blocks.answer(self, "pseudo_residuals", X, groups, lengths)
    estimator = ready(self, X)
    sequences, passes = run(estimator, X, groups, lengths)
    filtered = passes.filtered()
    emission, inputs = estimator.emission_, sequences.inputs
    parameters = fitted_parameters(estimator)
    predicted = np.empty_like(filtered)
    before = None if inputs is None else inputs[:-1]
    predicted[1:] = estimator.transitions_.steps(
        parameters.transmat, filtered[:-1], before
    )
    predicted[sequences.bounds[:-1]] = parameters.startprob
    rows = np.asarray(passes.layout.rows.X, np.float64)
    known = np.where(np.isnan(rows), 0.0, rows)
    # Missing is as well what depends on a covariate that is.
    residuals, angles = rows[:, emission.value_places()], emission.angles()
    for j, column in enumerate(residuals.T):
        if angles[j]:
            column[:] = _of_angles(
                emission, j, known, predicted, parameters.emission, column
            )
            continue
        tails = emission.tails_at(known, j, parameters.emission)
        # Of each tail the one that keeps its digits.
        lower, upper = ((predicted * tail).sum(axis=1) for tail in tails)
        low = lower < upper
        tail = ndtri(np.clip(np.where(low, lower, upper), TINY, 0.5))
        column[:] = np.where(np.isnan(column), np.nan, np.where(low, tail, -tail))
    return residuals


def _of_angles(emission, j, known, predicted, parameters, angle):
    """Return residuals of column j, angles; see `pseudo_residuals`."""
    mean, variance = (
        part[:, :, [j]] for part in emission.moments_at(parameters, known)
    )
    # Where angles are the least expected, as no choice makes the two sides of it one.
    cut = np.angle(-mean_resultant(predicted, mean, variance)[:, 0])
    at_cut = known.copy()
    at_cut[:, emission.value_places()[j]] = cut
    below, to_cut = (
        (predicted * emission.tails_at(X, j, parameters)[0]).sum(axis=1)
        for X in (known, at_cut)
    )
    u, turn = (below - to_cut) % 1.0, np.angle(np.exp(1j * (angle - cut)))
    # By rounding it could be on either side.
    thin = np.minimum(u, 1.0 - u) < THIN
    u = np.where(thin, np.where(turn > 0.0, THIN, 1.0 - THIN), u)
    return np.where(np.abs(turn) > AT_CUT, ndtri(u), np.nan)


def mean_resultant(shares, mean, variance):
    """Return mean resultant vectors of angles over states, complex.

    Parameters
    ----------
    shares : ndarray of shape (..., n_states)
    mean, variance : ndarray of shape (..., n_states, n)
        Mean angles, and 2 less twice the lengths of the mean resultant vectors.
    """
    length = np.maximum(1.0 - 0.5 * variance, 0.0)
    return np.einsum("...k,...kd->...d", shares, length * np.exp(1j * mean))


def sample_states(self, X, n_paths=1, random_state=None, *, groups=None, lengths=None):
    """Draw paths of states from their distribution given the rows.

    What is computed of paths, as times spent in a state or runs of it, has its
    uncertainty by computing it of many.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    n_paths : int, default=1
        How many.
    random_state : int, RandomState instance or None, default=None
        None is that of the constructor.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

    Returns
    -------
    states : ndarray of int of shape (n_paths, n_samples)
        A path a row.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import VRHMM
    >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
    >>> X += np.random.default_rng(0).normal(size=X.shape)
    >>> hmm = VRHMM(2, random_state=0).fit(X)
    >>> hmm.sample_states(X, 100).shape
    (100, 90)
    """
    check_size("n_paths", n_paths)
    estimator = ready(self, X)
    sequences, passes = run(estimator, X, groups, lengths)
    filtered = passes.log_filtered()
    parameters = fitted_parameters(estimator)
    tables, which = estimator.transitions_.tables(parameters.transmat, sequences.inputs)
    uniform = generator_of(estimator, random_state).random(
        (int(n_paths), len(filtered))
    )
    with threads(estimator.n_jobs):
        return draw_paths(filtered, sequences.bounds, tables, which, uniform)


def generator_of(estimator, random_state):
    """Return a generator by what was given, else by what the constructor was."""
    seed = estimator.random_state if random_state is None else random_state
    return as_generator(seed)
