"""Small problems drawn at random: shapes, scales and flaws that tables of users have.

A problem is told by its number: the generator of its own seed draws everything.
"""

import numpy as np
import scipy.sparse as sp

__all__ = ["BOUNDED", "classes_of", "rows", "size", "thinned", "weights"]

SHAPES = ("tall", "square", "wide", "tiny")
FLAWS = (
    "none",
    "repeated rows",
    "constant column",
    "collinear",
    "scales",
    "tiny",
    "huge",
    "heavy tails",
    "integers",
    "far from zero",
    "binary",
)
#: Those that leave the likelihood of a mixture bounded.
BOUNDED = "none", "heavy tails", "far from zero", "scales"


def size(rng, low, high):
    """Return a whole number that is uniform in its logarithm."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def rows(rng, most_rows=5000, most_columns=300, entries=200_000, flaws=FLAWS):
    """Draw rows, of groups and with a flaw; return them with what they are called."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    if shape == "tiny":
        n, d = rng.integers(2, 12), rng.integers(1, 6)
    elif shape == "tall":
        n, d = size(rng, 100, most_rows), size(rng, 1, 30)
    elif shape == "wide":
        n, d = size(rng, 3, 60), size(rng, 20, most_columns)
    else:
        n = d = size(rng, 5, most_columns)
    d = min(d, most_columns)
    n = int(max(2, min(n, most_rows, entries // d)))
    groups = rng.integers(1, 6)
    X = (
        rng.normal(size=(n, d))
        + 3.0 * rng.normal(size=(groups, d))[rng.integers(groups, size=n)]
    )
    flaw = flaws[rng.integers(len(flaws))]
    if flaw == "repeated rows":
        X = X[rng.integers(max(1, n // 3), size=n)]
    elif flaw == "constant column":
        X[:, rng.integers(d)] = rng.choice([0.0, 1.0, 1e3])
    elif flaw == "collinear":
        rank = rng.integers(1, d + 1)
        X = X[:, :rank] @ rng.normal(size=(rank, d))
    elif flaw == "scales":
        X *= 10.0 ** rng.uniform(-8, 8, size=d)
    elif flaw == "tiny":
        X *= 1e-8
    elif flaw == "huge":
        X *= 1e8
    elif flaw == "heavy tails":
        X *= np.abs(rng.standard_t(1.0, size=(n, 1)))
    elif flaw == "integers":
        X = np.round(X)
    elif flaw == "far from zero":
        X += 10.0 ** rng.uniform(1, 5)
    elif flaw == "binary":
        X = (X > rng.uniform(0, 2)).astype(float)
    return X, f"{shape}, {flaw}"


def thinned(rng, X):
    """Return rows as a sparse matrix, after most entries were dropped."""
    return sp.csr_matrix(X * (rng.uniform(size=X.shape) < rng.uniform(0.02, 0.5)))


def weights(rng, n):
    """Return weights of rows, or None: some zero, some large."""
    kind = rng.integers(4)
    if kind < 2:
        return None
    weight = rng.exponential(size=n) if kind == 2 else rng.integers(4, size=n) * 1.0
    weight[rng.uniform(size=n) < 0.2] = 0.0
    return weight * 10.0 ** rng.choice([0, 0, -3, 3])


def classes_of(rng, X):
    """Draw classes of rows: separable, noisy, by chance, or one of them rare."""
    n = X.shape[0]
    k = int(rng.choice([2, 2, 3, 5]))
    k = min(k, n)
    spread = np.asarray(
        abs(X).max(axis=0).todense() if sp.issparse(X) else abs(X).max(axis=0)
    ).ravel()
    w = rng.normal(size=(X.shape[1], k)) / np.where(spread > 0.0, spread, 1.0)[:, None]
    logits = X @ w
    logits = (logits - logits.mean(axis=0)) / max(logits.std(), 1e-300)
    logits = logits * rng.choice([0.0, 1.0, 5.0]) + rng.choice([0.0, 1.0]) * rng.gumbel(
        size=(n, k)
    )
    logits[:, 0] += rng.choice([0.0, 0.0, 4.0])
    y = logits.argmax(axis=1)
    y[rng.permutation(n)[:k]] = np.arange(k)  # each is there
    return y
