"""Starting values: windows of rows, clustered, and the M step on the clusters."""

from itertools import pairwise

import numpy as np
from sklearn.cluster import kmeans_plusplus

from skvrem.hmm._model import Parameters

__all__ = ["starting_parameters"]

# Rows that a start looks at, in runs, and their share of every state's first sums.
MOST_ROWS, RUN_ROWS, SHARED = 20_000, 100, 0.02
LLOYD_ITERATIONS = 20


def starting_parameters(model, rows, method, rng):
    """Return the parameters that a fit starts from.

    Parameters
    ----------
    model : HMMModel
    rows : SequenceRows
    method : {"kmeans", "random"}
        Clusters of rows; or the clusters of randomly chosen rows.
    rng : numpy.random.Generator

    Returns
    -------
    parameters : Parameters
    """
    emission, n = model.emission, model.emission.n_states_
    runs = _runs(rows.bounds, rng)
    picked = np.concatenate([np.arange(a, b) for a, b in runs])
    X = np.asarray(rows.X[picked], np.float64)
    known = None if rows.labels is None else rows.labels[picked]
    labels = _cluster(emission, X, n, method, known, rng)
    features = rows.features(picked)
    if model.transitions.ordered and known is None:
        labels = _in_order(labels, picked, rows.bounds, n)
    members = (labels[:, None] == np.arange(n)).astype(float)
    sums = model.features.widen(members.T @ features)
    mean = model.features.widen(features.mean(axis=0, keepdims=True))
    sums += SHARED * np.maximum(members.sum(axis=0), 1.0)[:, None] * mean
    anywhere = np.repeat(mean, n, axis=0)
    blank = emission.maximize(anywhere, emission.blank(), True)
    packed = emission.given_start(emission.maximize(sums, blank, True))
    counts = np.zeros((n, n))
    ends = np.cumsum([b - a for a, b in runs])[:-1]
    inside = np.delete(np.arange(1, len(X)), ends - 1)
    np.add.at(counts, (labels[inside - 1], labels[inside]), 1.0)
    return Parameters(model.initial.start(), model.transitions.start(counts), packed)


def _in_order(labels, picked, bounds, n):
    """Number clusters by where in a sequence their rows lie on average."""
    sequence = np.searchsorted(bounds, picked, side="right") - 1
    place = (picked - bounds[sequence]) / np.diff(bounds)[sequence]
    total = np.bincount(labels, weights=place, minlength=n)
    mean = total / np.maximum(np.bincount(labels, minlength=n), 1)
    return np.argsort(np.argsort(mean))[labels]


def _runs(bounds, rng):
    """Return stretches of sequences, of few rows altogether."""
    runs = []
    for a, b in pairwise(bounds):
        edges = np.arange(a, b, RUN_ROWS)
        runs += [(start, min(start + RUN_ROWS, b)) for start in edges]
    most = max(1, MOST_ROWS // RUN_ROWS)
    if bounds[-1] > MOST_ROWS and len(runs) > most:
        chosen = rng.choice(len(runs), most, replace=False)
        runs = [runs[i] for i in np.sort(chosen)]
    return runs


def _cluster(emission, X, n, method, known, rng):
    """Return a label for every row, the same within a window but for known ones."""
    Z = emission.start_columns(X)
    window = max(1, min(emission.window, len(X) // (4 * n)))
    if known is not None:
        window = 1
    edges = np.arange(0, len(X), window)
    counts = np.diff(np.append(edges, len(X)))
    Z = np.add.reduceat(Z, edges, axis=0) / counts[:, None]
    scale = Z.std(axis=0)
    Z = (Z - Z.mean(axis=0)) / np.where(scale > 0.0, scale, 1.0)
    seed = int(rng.integers(2**31 - 1))
    if method == "random" or len(Z) < n:
        centres = Z[rng.choice(len(Z), n, replace=len(Z) < n)]
    else:
        centres, _ = kmeans_plusplus(Z, n, random_state=seed)
    if known is not None:
        for state in np.unique(known[known >= 0]):
            centres[state] = Z[known == state].mean(axis=0)
    norms = np.square(Z).sum(axis=1)
    for _ in range(LLOYD_ITERATIONS if method == "kmeans" else 1):
        far = norms[:, None] - 2.0 * Z @ centres.T + np.square(centres).sum(axis=1)
        labels = far.argmin(axis=1)
        if known is not None:
            labels = np.where(known >= 0, known, labels)
        members = labels == np.arange(n)[:, None]
        size = members.sum(axis=1, keepdims=True)
        moved = np.where(size > 0, members @ Z / np.maximum(size, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return np.repeat(labels, counts)
