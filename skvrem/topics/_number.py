"""How many topics: held-out documents say which of too many are needed.

Fits with ever more topics go on until held-out documents are no likelier by them. Of
the last one topics are merged or left out where held-out documents do not miss them.
Where the first ones are no better than one topic, few are tried in place of more.
Of few documents each may be held out once, from one of a few fits.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvrem.text._likelihood import completion_split, log_likelihood
from skvrem.text._topics import check_counts, with_tokens, word_probabilities
from skvrem.topics._documents import as_documents
from skvrem.utils._reports import outside

# The number of topics that, where it is better than one, is doubled until held-out
# documents gain no more than TOLERANCE, in nats a token; so much may be lost for fewer
# topics as well. Where it is not, these are tried.
START, MOST, TOLERANCE, SMALL = 16, 1024, 0.002, (2, 4, 8)
# Topics are too many where so large a share has died.
ALIVE = 0.75
# Epochs of a fit from random topics, and from merged ones; so many more of "batch".
EPOCHS, EPOCHS_MERGED, BATCH_FACTOR = 15, 5, 4
# Documents held out: a share, within bounds, and no more than the last share.
HELD_OUT, LEAST_HELD_OUT, MOST_HELD_OUT, MOST_SHARE = 0.1, 200, 2000, 0.25
LEAST_DOCUMENTS = 20
# Documents are few below so many, or so many tokens: that share would be noise. They
# make parts, each held out once; more topics are tried, as those that are not needed
# die where priors are learned, and epochs are more, as that takes some.
# Fewer than the least of them would leave a standard error of a handful.
FEW_DOCUMENTS, FEW_TOKENS, LEAST_IN_PARTS = 1000, 100_000, 100
FEW_EPOCHS, FEW_ALIVE = 30, 0.5
# A topic is compared with so many that are like it, by documents that have it.
NEIGHBOURS, LEAST_SHARE = 3, 1e-3
# At a time at most so much of the topics goes; that less is left of does not matter.
MOST_GONE, LEAST_GONE = 1 / 3, 1 / 20
# Random topics are fitted to their end, until so little is left to gain, and race with
# the merged ones where they are not so far below these. By fewer tokens than so many
# the merged ones only seem better, as the same tokens have chosen moves.
TOL_TO_THE_END, FAR_BELOW, LEAST_SCORED = TOLERANCE / 2, 0.01, 1000
# Nonzeros at a time, and a probability in place of rounding.
PART, TINY = 1 << 14, 1e-30


class StartingTopics(NamedTuple):
    """Topics for a fit to begin with.

    Attributes
    ----------
    topics : ndarray of shape (n_topics, n_features) or None
        Probabilities times shares; None where random ones do as well.
    n_topics : int
    races : bool
        Whether random topics are to be tried as well.
    passes : float
        That finding them has cost.
    path : dict of ndarrays
        "n_components" and "completion", nats a token, of all that was tried.
    """

    topics: np.ndarray | None
    n_topics: int
    races: bool
    passes: float
    path: dict


class _SearchPart(NamedTuple):
    """Documents to fit, halves of others, and which of these choose and judge moves."""

    train: Any
    observed: Any
    scored: Any
    choosing: slice = slice(None)
    judging: slice = slice(None)


class _FittedPart(NamedTuple):
    """Topics that have tokens, and their shares of held-out documents."""

    topics: np.ndarray
    shares: np.ndarray
    theta: np.ndarray


class _Trial(NamedTuple):
    """A fit of each part, and what held-out documents say of them.

    Attributes
    ----------
    fits : list of _FittedPart
    completion : float
        Nats a token of all that are held out.
    judged : ndarray of shape (n_judging,)
        Nats of each document that judges moves.
    """

    fits: list
    completion: float
    judged: np.ndarray

    @property
    def number(self):
        """Mean number of topics."""
        return float(np.mean([len(fit.shares) for fit in self.fits]))


def find_number(fit, data, rng, factor=1, n_parts=1, races=None):
    """Return the topics that documents need.

    Parameters
    ----------
    fit : callable
        Of a source of documents, a number of topics, epochs, and topics to begin with
        or None, returns a fitted estimator. Epochs of None are as many as it takes.
    data : source of documents
    rng : numpy.random.Generator
    factor : int, default=1
        Times as many epochs as usual.
    n_parts : int, default=1
        Of few documents, parts that are held out in turn; 1 holds out one, as of many.
    races : callable, default=None
        Of a number of topics, whether several random starts of so many are made. Where
        given, random topics are fitted to their end: those that held-out documents find
        likelier than what was merged take its place, and those that they find hardly
        worse race with it, where several are made.

    Returns
    -------
    found : StartingTopics

    Raises
    ------
    ValueError
        If the documents are too few to hold some out.
    """
    search = _Search(fit, _hold_out(data, rng, n_parts), factor)
    grown = search.grown()
    trial = search.merged(grown)
    completion, n_topics = search.best.completion, search.best_number
    stuck = search.best is not grown and completion > trial.completion
    if stuck and not search.few:  # of few documents these begin as they are
        trial = search.merged(search.best)
    together = search.few
    if races is not None:
        n_topics = len(trial.fits[0].shares)
        completion = search.try_(n_topics, None).completion
        close = completion >= trial.completion - FAR_BELOW
        together = races(n_topics) and (close or search.scored < LEAST_SCORED)
    tried = {"n_components": search.numbers, "completion": search.values}
    path = {name: np.array(values) for name, values in tried.items()}
    passes = search.passes / data.total_weight
    random = trial.completion < completion and (search.few or races is not None)
    if random or (search.few and trial is grown):
        # So many as by all documents do not die, or are likelier.
        return StartingTopics(None, n_topics, True, passes, path)
    fits = sorted(trial.fits, key=lambda fit: len(fit.shares))
    middle = fits[len(fits) // 2]
    topics = middle.topics * middle.shares[:, None]
    return StartingTopics(topics, len(topics), together, passes, path)


def _hold_out(data, rng, n_parts):
    """Return the parts of a search: one, or of few documents some."""
    tokens = data.X.sum(axis=1)
    usable = (tokens >= 2) & ((data.weight > 0.0) if data.weight.size else True)
    order = rng.permutation(np.flatnonzero(usable)).astype(np.int32)
    n = len(order)
    if n < LEAST_DOCUMENTS:
        raise ValueError(
            f"n_components='auto' holds documents out, and needs {LEAST_DOCUMENTS} of "
            f"two words or more; X has {n}. Give the number of topics."
        )
    few = n < FEW_DOCUMENTS or tokens[usable].sum() < FEW_TOKENS
    if few and n >= LEAST_IN_PARTS and n_parts > 1:
        parts = np.array_split(order, n_parts)
        return [_part(data, order, some, rng) for some in parts]
    size = max(n * HELD_OUT, min(LEAST_HELD_OUT, n * MOST_SHARE))
    size = int(min(size, MOST_HELD_OUT))
    held_out, kept = order[:size], np.sort(order[size:])
    return [
        _SearchPart(_some(data, kept), *completion_split(_counts(data, held_out), rng))
    ]


def _part(data, order, held_out, rng):
    """Return the part of few documents without some of them.

    Those that choose moves do not judge them: what a few happen not to miss is not what
    nobody misses. A word that is in none of the others says nothing: it is the likelier
    the more topics there are, whatever these are.
    """
    train = _some(data, np.sort(np.setdiff1d(order, held_out)))
    counts = _counts(data, held_out)
    known = np.zeros(data.n_features, counts.dtype)
    known[train.X.indices] = 1
    halves = completion_split(check_counts(counts.multiply(known[None, :])), rng)
    half = len(held_out) // 2
    return _SearchPart(train, *halves, slice(half), slice(half, None))


def _some(data, rows):
    weight = data.weight[rows] if data.weight.size else None
    return as_documents(data.X[rows], weight, data.dtype)


def _counts(data, rows):
    return check_counts(data.X[rows])


class _Search:
    """Fits to some of the documents, judged by others."""

    def __init__(self, fit, parts, factor):
        self.fit, self.parts, self.few = fit, parts, len(parts) > 1
        self.factor = factor
        self.scored = float(sum(part.scored[part.judging].sum() for part in parts))
        self.passes, self.numbers, self.values = 0.0, [], []
        # Of random topics, the trial that is the best, and how many it began with.
        self.best, self.best_number = None, 0

    def try_(self, n_topics, n_epochs, topics=None):
        """Return the `_Trial` of so many topics, or of some for each part."""
        fits, judged, value, tokens = [], [], 0.0, 0.0
        topics = [None] * len(self.parts) if topics is None else topics
        epochs = None if n_epochs is None else self.factor * n_epochs
        for part, given in zip(self.parts, topics, strict=True):
            k = n_topics if given is None else len(given)
            fitted = self.fit(part.train, k, epochs, given)
            theta = fitted.transform(part.observed)
            each = log_likelihood(theta, fitted.components_, part.scored)
            judged.append(each[part.judging])
            value, tokens = value + each.sum(), tokens + part.scored.sum()
            alive = with_tokens(fitted.topic_shares_, part.train.total_weight)
            self.passes += fitted.history_["passes"][-1] * part.train.total_weight
            words = word_probabilities(fitted.components_[alive])[0].T
            fits.append(
                _FittedPart(words, fitted.topic_shares_[alive], theta[:, alive])
            )
        value = float(value / max(tokens, 1.0))
        trial = _Trial(fits, value, np.concatenate(judged))
        self.numbers.append(round(trial.number))
        self.values.append(value)
        return trial

    def grown(self):
        """Return the trial with enough topics, and mostly too many.

        Even where it is not the best: what random topics have split, merging finds. But
        it is to gain on one topic. Topics that overfit are worse than the words of all
        documents, which they come to with ever more of them: each doubling gains on the
        one before, and few topics, which are better, would not be tried.
        """
        epochs, alive = (FEW_EPOCHS, FEW_ALIVE) if self.few else (EPOCHS, ALIVE)
        most = min(MOST, max(START, self.parts[0].train.n_units))
        self.random(1, EPOCHS_MERGED)  # nothing but the words is to be found
        trial, gain = self.random(START, epochs)
        if gain < TOLERANCE:
            for n_topics in SMALL:
                self.random(n_topics, epochs)
            return trial
        n_topics = START
        while gain >= TOLERANCE and trial.number >= alive * n_topics:
            if n_topics == most:
                if n_topics > START:  # else no doubling says so
                    _warn_of_more(n_topics, gain)
                break
            n_topics = min(2 * n_topics, most)
            trial, gain = self.random(n_topics, epochs)
        return trial

    def random(self, n_topics, n_epochs):
        """Return the trial of random topics, and its gain on the best one before."""
        trial = self.try_(n_topics, n_epochs)
        gain = np.inf if self.best is None else trial.completion - self.best.completion
        if gain > 0.0:
            self.best, self.best_number = trial, n_topics
        return trial, gain

    def merged(self, trial):
        """Return the trial with as few topics as do."""
        best, none = trial, [[]] * len(self.parts)
        while True:
            fewer = self.fewer(trial, best)
            if fewer is None:
                # It may be the epochs that lose, not the topics that are gone.
                same = self.after(trial, none)
                if not self.will_do(same, best):
                    best = same
                    fewer = self.fewer(same, best)
            if fewer is None:
                return trial
            trial = fewer
            if trial.judged.sum() > best.judged.sum():
                best = trial

    def will_do(self, trial, best):
        """Whether a trial loses no more than the tolerance.

        By few documents it is to gain more than a standard error: too few topics cost
        more than too many, of which some die, and those that are split do gain.
        """
        gains = trial.judged - best.judged
        if self.few:
            return gains.sum() >= gains.std() * np.sqrt(len(gains))
        return gains.sum() >= -TOLERANCE * self.scored

    def fewer(self, trial, best):
        """Return a trial after moves that will do, None without."""
        moves = [self.moves(*one) for one in zip(self.parts, trial.fits, strict=True)]
        gone = sum(map(len, moves)) // len(moves)
        while gone:
            # All parts come to one number, which none would leave for a worse one.
            left = round(trial.number - gone)
            some = [
                best_moves[: max(0, len(fit.shares) - left)]
                for fit, best_moves in zip(trial.fits, moves, strict=True)
            ]
            fewer = self.after(trial, some)
            if self.will_do(fewer, best):
                return fewer
            gone //= 2
            if gone < LEAST_GONE * trial.number:
                break
        return None

    def after(self, trial, moves):
        """Return the trial of the topics that moves leave."""
        topics = [_apply(*one) for one in zip(trial.fits, moves, strict=True)]
        return self.try_(None, EPOCHS_MERGED, topics)

    def moves(self, part, fit):
        """Return pairs of topics to merge, the second one -1 where one is to go.

        The best first, no topic in two of them; in all they lose at most the tolerance,
        but for the very best: shares that are not found anew say it loses more than it
        does.
        """
        found, used, lost = [], set(), 0.0
        limit = max(1, int(MOST_GONE * len(fit.shares)))
        for gain, pair in self.gains(part, fit):
            lost -= min(gain, 0.0)
            if found and (lost > TOLERANCE or len(found) == limit):
                break
            if used.isdisjoint(pair):
                found.append(pair)
                used.update(k for k in pair if k >= 0)
            else:
                lost += min(gain, 0.0)
        return found

    def gains(self, part, fit):
        """Return what held-out tokens gain by moves, sorted, for the shares as found.

        Of a merged pair a document has the sum of its shares; those of a topic that
        goes are spread in proportion.
        """
        counts = part.scored[part.choosing].tocoo()
        rows, columns, counts = counts.row, counts.col, counts.data.astype(float)
        words, theta = np.ascontiguousarray(fit.topics.T), fit.theta[part.choosing]
        p = np.empty(len(rows))
        for begin in range(0, len(rows), PART):
            some = slice(begin, begin + PART)
            each = theta[rows[some]], words[columns[some]]
            p[some] = np.einsum("ik,ik->i", *each, dtype=float)
        theta = np.ascontiguousarray(theta.T, float)

        def gain(pair):
            j, k = pair
            share = theta[j] if k < 0 else theta[j] + theta[k]
            at = np.flatnonzero((share > LEAST_SHARE)[rows])
            d, v, before = rows[at], columns[at], p[at]
            if k < 0:
                after = before - theta[j][d] * fit.topics[j][v]
                after /= np.maximum(1.0 - theta[j][d], TINY)
            else:
                both = np.average(fit.topics[[j, k]], 0, fit.shares[[j, k]])
                after = before + theta[j][d] * (both - fit.topics[j])[v]
                after += theta[k][d] * (both - fit.topics[k])[v]
            ratio = np.log(np.maximum(after, TINY) / np.maximum(before, TINY))
            return float(counts[at] @ ratio / counts.sum())

        moves = sorted(_pairs(fit.topics))
        if len(fit.topics) > 1:
            moves += [(j, -1) for j in range(len(fit.topics))]
        return sorted(((gain(pair), pair) for pair in moves), reverse=True)


def _warn_of_more(n_topics, gain):
    """Warn that the search has ended where held-out documents still gained."""
    gained = (
        f"held-out documents still gained {gain:.2g} nats a token by the last ones: "
        "there may be more topics. Give a number, n_components="
    )
    if n_topics == MOST:
        about = f"tries {n_topics:,} topics at most, and {gained}{2 * n_topics} or more"
    else:
        about = (
            f"tries no more topics than the {n_topics:,} documents that are not held "
            f"out, and {gained}{n_topics} or more"
        )
    warnings.warn(
        f"n_components='auto' {about}, and compare `score` of documents that are held "
        "out.",
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


def _apply(fit, moves):
    """Return the topics after moves, times their shares."""
    topics = fit.topics * fit.shares[:, None]
    for j, k in moves:
        if k >= 0:
            topics[j] += topics[k]
    gone = [j if k < 0 else k for j, k in moves]
    return np.delete(topics, gone, axis=0)
