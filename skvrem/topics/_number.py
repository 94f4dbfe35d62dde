"""How many topics: held-out documents say which of too many are needed.

Fits with ever more topics go on until held-out documents are no likelier by them. Of
the last one topics are merged or left out where held-out documents do not miss them.
"""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvrem.text._likelihood import completion_split, log_likelihood
from skvrem.text._topics import check_counts, with_tokens, word_probabilities
from skvrem.topics._documents import as_documents
from skvrem.utils._reports import outside

# The first number of topics, doubled until held-out documents gain no more than
# TOLERANCE, in nats a token; so much may be lost for fewer topics as well.
START, MOST, TOLERANCE = 16, 1024, 0.002
# Topics are too many where so large a share has died, or a document has so few.
ALIVE, DOCUMENTS_A_TOPIC = 0.75, 2
# Epochs of a fit from random topics, and from merged ones; so many more of "batch".
EPOCHS, EPOCHS_MERGED, BATCH_FACTOR = 15, 5, 4
# Documents held out: a share, within bounds, and no more than the last share.
HELD_OUT, LEAST_HELD_OUT, MOST_HELD_OUT, MOST_SHARE = 0.1, 200, 2000, 0.25
LEAST_DOCUMENTS = 20
# A topic is compared with so many that are like it, by documents that have it.
NEIGHBOURS, LEAST_SHARE = 3, 1e-3
# At a time at most so much of the topics goes; that less is left of does not matter.
MOST_GONE, LEAST_GONE = 1 / 3, 1 / 20
# Nonzeros at a time, and a probability in place of rounding.
PART, TINY = 1 << 14, 1e-30


class StartingTopics(NamedTuple):
    """Topics for a fit to begin with.

    Attributes
    ----------
    topics : ndarray of shape (n_topics, n_features)
        Probabilities times shares.
    passes : float
        That finding them has cost.
    path : dict of ndarrays
        "n_components" and "completion", nats a token, of all that was tried.
    """

    topics: np.ndarray
    passes: float
    path: dict


class _Trial(NamedTuple):
    """A fit, its topics that have tokens, and what held-out documents say of it."""

    topics: np.ndarray
    shares: np.ndarray
    theta: np.ndarray
    completion: float


def find_number(fit, data, rng, factor=1):
    """Return the topics that documents need.

    Parameters
    ----------
    fit : callable
        Of a source of documents, a number of topics, epochs, and topics to begin with
        or None, returns a fitted estimator.
    data : source of documents
    rng : numpy.random.Generator
    factor : int, default=1
        Times as many epochs as usual.

    Returns
    -------
    found : StartingTopics

    Raises
    ------
    ValueError
        If the documents are too few to hold some out.
    """
    train, halves = _hold_out(data, rng)
    search = _Search(fit, train, halves, factor)
    trial = search.merged(search.grown())
    tried = {"n_components": search.numbers, "completion": search.values}
    path = {name: np.array(values) for name, values in tried.items()}
    topics = trial.topics * trial.shares[:, None]
    return StartingTopics(topics, search.passes / data.total_weight, path)


def _hold_out(data, rng):
    """Return the source of most documents, and halves of the others."""
    tokens = data.X.sum(axis=1)
    usable = (tokens >= 2) & ((data.weight > 0.0) if data.weight.size else True)
    order = rng.permutation(np.flatnonzero(usable)).astype(np.int32)
    n = len(order)
    if n < LEAST_DOCUMENTS:
        raise ValueError(
            f"n_components='auto' holds documents out, and needs {LEAST_DOCUMENTS} of "
            f"two words or more; X has {n}. Give the number of topics."
        )
    size = max(n * HELD_OUT, min(LEAST_HELD_OUT, n * MOST_SHARE))
    size = int(min(size, MOST_HELD_OUT))
    held_out, kept = order[:size], np.sort(order[size:])
    weight = data.weight[kept] if data.weight.size else None
    train = as_documents(data.X[kept], weight, data.dtype)
    return train, completion_split(check_counts(data.X[held_out]), rng)


class _Search:
    """Fits to one part of the documents, judged by another."""

    def __init__(self, fit, train, halves, factor):
        self.fit, self.train, self.factor = fit, train, factor
        self.observed, self.scored = halves
        self.passes, self.numbers, self.values = 0.0, [], []

    def try_(self, n_topics, n_epochs, topics=None):
        """Return the `_Trial` of so many topics."""
        fitted = self.fit(self.train, n_topics, self.factor * n_epochs, topics)
        theta = fitted.transform(self.observed)
        each = log_likelihood(theta, fitted.components_, self.scored)
        value = float(each.sum() / max(self.scored.sum(), 1.0))
        alive = with_tokens(fitted.topic_shares_, self.train.total_weight)
        self.passes += fitted.history_["passes"][-1] * self.train.total_weight
        self.numbers.append(len(alive))
        self.values.append(value)
        words = word_probabilities(fitted.components_[alive])[0].T
        shares = fitted.topic_shares_[alive]
        return _Trial(words, shares, theta[:, alive], value)

    def grown(self):
        """Return the trial with enough topics, and mostly too many.

        Even where it is not the best: what random topics have split, merging finds.
        """
        useful = max(START, self.train.n_units // DOCUMENTS_A_TOPIC)
        n_topics, gain, trial = START, np.inf, self.try_(START, EPOCHS)
        while gain >= TOLERANCE and len(trial.shares) >= ALIVE * n_topics:
            if 2 * n_topics > min(MOST, useful):
                if 2 * n_topics <= useful:
                    _warn_of_more(n_topics, gain)
                break
            n_topics, before = 2 * n_topics, trial.completion
            trial = self.try_(n_topics, EPOCHS)
            gain = trial.completion - before
        return trial

    def merged(self, trial):
        """Return the trial with as few topics as do."""
        least = trial.completion - TOLERANCE
        while True:
            fewer = self.fewer(trial, least)
            if fewer is None:
                # It may be the epochs that lose, not the topics that are gone.
                same = self.after(trial, [])
                if same.completion < least:
                    least = same.completion - TOLERANCE
                    fewer = self.fewer(same, least)
            if fewer is None:
                return trial
            trial = fewer
            least = max(least, trial.completion - TOLERANCE)

    def fewer(self, trial, least):
        """Return a trial after moves that is no worse than `least`, None without."""
        moves = self.moves(trial)
        while moves:
            fewer = self.after(trial, moves)
            if fewer.completion >= least:
                return fewer
            moves = moves[: len(moves) // 2]
            if len(moves) < LEAST_GONE * len(trial.shares):
                break
        return None

    def after(self, trial, moves):
        """Return the trial of the topics that moves leave."""
        topics = _apply(trial, moves)
        return self.try_(len(topics), EPOCHS_MERGED, topics)

    def moves(self, trial):
        """Return pairs of topics to merge, the second one -1 where one is to go.

        The best first, no topic in two of them; in all they lose at most the tolerance,
        but for the very best: shares that are not found anew say it loses more than it
        does.
        """
        found, used, lost = [], set(), 0.0
        limit = max(1, int(MOST_GONE * len(trial.shares)))
        for gain, pair in self.gains(trial):
            lost -= min(gain, 0.0)
            if found and (lost > TOLERANCE or len(found) == limit):
                break
            if used.isdisjoint(pair):
                found.append(pair)
                used.update(k for k in pair if k >= 0)
            else:
                lost += min(gain, 0.0)
        return found

    def gains(self, trial):
        """Return what held-out tokens gain by moves, sorted, for the shares as found.

        Of a merged pair a document has the sum of its shares; those of a topic that
        goes are spread in proportion.
        """
        counts = self.scored.tocoo()
        rows, columns, counts = counts.row, counts.col, counts.data.astype(float)
        words, theta = np.ascontiguousarray(trial.topics.T), trial.theta
        p = np.empty(len(rows))
        for part in range(0, len(rows), PART):
            some = slice(part, part + PART)
            each = theta[rows[some]], words[columns[some]]
            p[some] = np.einsum("ik,ik->i", *each, dtype=float)
        theta = np.ascontiguousarray(theta.T, float)

        def gain(pair):
            j, k = pair
            share = theta[j] if k < 0 else theta[j] + theta[k]
            at = np.flatnonzero((share > LEAST_SHARE)[rows])
            d, v, before = rows[at], columns[at], p[at]
            if k < 0:
                after = before - theta[j][d] * trial.topics[j][v]
                after /= np.maximum(1.0 - theta[j][d], TINY)
            else:
                both = np.average(trial.topics[[j, k]], 0, trial.shares[[j, k]])
                after = before + theta[j][d] * (both - trial.topics[j])[v]
                after += theta[k][d] * (both - trial.topics[k])[v]
            ratio = np.log(np.maximum(after, TINY) / np.maximum(before, TINY))
            return float(counts[at] @ ratio / counts.sum())

        moves = sorted(_pairs(trial.topics))
        if len(trial.topics) > 1:
            moves += [(j, -1) for j in range(len(trial.topics))]
        return sorted(((gain(pair), pair) for pair in moves), reverse=True)


def _warn_of_more(n_topics, gain):
    """Warn that the search has ended where held-out documents still gained."""
    warnings.warn(
        f"n_components='auto' tries {n_topics:,} topics at most, and held-out "
        f"documents still gained {gain:.2g} nats a token by the last doubling: there "
        f"may be more topics. Give a number, n_components={2 * n_topics} or more, and "
        "compare `score` of documents that are held out.",
        ConvergenceWarning,
        stacklevel=outside(),
    )


def _pairs(topics):
    """Return each topic with those that are most like it."""
    roots = np.sqrt(topics)
    alike = roots @ roots.T
    np.fill_diagonal(alike, -1.0)
    n = min(NEIGHBOURS, len(topics) - 1)
    near = np.argsort(-alike, axis=1, kind="stable")[:, :n]
    return {tuple(sorted((j, int(k)))) for j, row in enumerate(near) for k in row}


def _apply(trial, moves):
    """Return the topics after moves, times their shares."""
    topics = trial.topics * trial.shares[:, None]
    for j, k in moves:
        if k >= 0:
            topics[j] += topics[k]
    gone = [j if k < 0 else k for j, k in moves]
    return np.delete(topics, gone, axis=0)
