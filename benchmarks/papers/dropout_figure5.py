r"""Figure 5 of Wang, Geffner and Domke (2024): Gaussian dropout by learning rate.

    SKVREM_DATA=... python -m benchmarks.papers.dropout_figure5        # two minutes

Appendix E: the last layer W of a network, of which each input is multiplied by noise
from N(1, sigma^2), sigma = 0.5, is fine-tuned by plain SGD with batches of 100 rows.
The estimators are naive, cv and joint with a table of W at every row's last visit
(Algorithm 3), by the Taylor approximation of Eqs. 57 and 58 about the inputs without
noise. In the place of CIFAR-10's LeNet features there are those of a network of 84
hidden units that has seen 1,000 other rows of MNIST, of 5,000 rows. Five starts, which
share the network and its output layer, and differ by batches and noise. The objective
is the expected log loss, by four pairs of fixed draws of opposite sign.
"""

import argparse
import warnings
from collections import defaultdict

import numpy as np
from numba import njit
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks.papers.measured import FIGURES, told
from benchmarks.problems.posteriors import load

NAMES = "naive", "cv", "joint"
NAIVE, CV, JOINT = range(3)
SIGMA, BATCH = 0.5, 100
RATES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
FEATURES, SEEN, ROWS = 84, 1000, 5000


def features():
    """Return what the last layer sees (n, d), classes, and the layer's weights."""
    X, y = load("mnist")
    network = MLPClassifier((FEATURES,), max_iter=100, random_state=0)
    network.fit(X[:SEEN], y[:SEEN])
    hidden, out = network.coefs_
    inputs = np.maximum(X[SEEN : SEEN + ROWS] @ hidden + network.intercepts_[0], 0.0)
    # A one among the inputs is the intercept; without noise in the network, with here.
    inputs = np.column_stack([inputs, np.ones(ROWS)]).astype(np.float64)
    weights = np.vstack([out, network.intercepts_[1]])
    return inputs, y[SEEN : SEEN + ROWS], np.ascontiguousarray(weights.T, np.float64)


@njit(cache=True)
def softmax(z, out):
    """Fill out with the probabilities of logits."""
    total, top = 0.0, z.max()
    for k in range(len(z)):
        out[k] = np.exp(z[k] - top)
        total += out[k]
    out /= total


@njit(cache=True)
def naive_gradient(W, x, y, delta, out):
    """Add to out (k, d) the gradient of the loss under the noise 1 + delta (Eq. 55)."""
    u = x * (1.0 + delta)
    p = np.empty(len(W))
    softmax(W @ u, p)
    p[y] -= 1.0
    for k in range(len(W)):
        for j in range(len(x)):
            out[k, j] += p[k] * u[j]


@njit(cache=True)
def taylor_gradient(W, x, y, delta, share, out):
    """Add to out share times the gradient of Eq. 57 at a draw."""
    n_classes = len(W)
    p = np.empty(n_classes)
    softmax(W @ x, p)
    u = x * delta
    t = W @ u
    first = p @ t
    second = p @ (t * t)
    for k in range(n_classes):
        r = p[k] - (1.0 if k == y else 0.0)
        by_t = r + p[k] * (t[k] - first)
        # Of half t' H t by z.
        bent = 0.5 * p[k] * (t[k] ** 2 - second - 2.0 * first * (t[k] - first))
        by_z = by_t + bent
        for j in range(len(x)):
            out[k, j] += share * (by_z * x[j] + by_t * u[j])


@njit(cache=True)
def mean_taylor_gradient(W, x, y, share, out):
    """Add to out share times its expectation (the gradient of Eq. 58)."""
    n_classes = len(W)
    p = np.empty(n_classes)
    softmax(W @ x, p)
    variances = SIGMA**2 * x * x
    S = (W * variances) @ W.T
    Sp = S @ p
    within, across = 0.0, p @ Sp
    for k in range(n_classes):
        within += p[k] * S[k, k]
    center = p @ W
    for k in range(n_classes):
        r = p[k] - (1.0 if k == y else 0.0)
        bent = 0.5 * p[k] * (S[k, k] - within - 2.0 * (Sp[k] - across))
        for j in range(len(x)):
            # H W by the variances of the inputs: of half the trace of H S by W.
            own = p[k] * (W[k, j] - center[j]) * variances[j]
            out[k, j] += share * ((r + bent) * x[j] + own)


@njit(cache=True)
def epoch(kind, X, y, W, table, known, rate, order, rng):
    """Go through the rows in batches; W, the table and its mean gradient move."""
    n, d = X.shape
    gradient, moved = np.empty_like(W), np.empty_like(W)
    for start in range(0, n - BATCH + 1, BATCH):
        gradient[:] = 0.0
        moved[:] = 0.0
        for i in order[start : start + BATCH]:
            x, c = X[i], y[i]
            delta = SIGMA * rng.standard_normal(d)
            naive_gradient(W, x, c, delta, gradient)
            if kind == CV:
                taylor_gradient(W, x, c, delta, -1.0, gradient)
                mean_taylor_gradient(W, x, c, 1.0, gradient)
            if kind == JOINT:
                taylor_gradient(table[i], x, c, delta, -1.0, gradient)
                mean_taylor_gradient(table[i], x, c, -1.0 / n, moved)
                mean_taylor_gradient(W, x, c, 1.0 / n, moved)
                table[i] = W
        gradient /= BATCH
        if kind == JOINT:
            gradient += known
            known += moved
        W -= rate * gradient


def objective(X, y, W, draws):
    """Return the expected loss a row."""
    total, rows = 0.0, np.arange(len(X))
    for delta in draws:
        for sign in (1.0, -1.0):
            z = (X * (1.0 + sign * SIGMA * delta)) @ W.T
            z -= z.max(axis=1, keepdims=True)
            total += np.mean(np.log(np.exp(z).sum(axis=1)) - z[rows, y])
    return total / (2 * len(draws))


def check(X, y, W):
    """Compare the gradients with differences, and the mean with that of draws."""
    rng, h = np.random.default_rng(0), 1e-6
    x, c, n_classes = X[0], y[0], len(W)

    def approximation(W, delta):
        p = np.exp(W @ x - (W @ x).max())
        p /= p.sum()
        t = W @ (x * delta)
        r = p - np.eye(n_classes)[c]
        return -np.log(p[c]) + r @ t + 0.5 * (p @ t**2 - (p @ t) ** 2)

    def mean(W):
        p = np.exp(W @ x - (W @ x).max())
        p /= p.sum()
        S = (W * (SIGMA * x) ** 2) @ W.T
        return -np.log(p[c]) + 0.5 * (p @ np.diag(S) - p @ S @ p)

    delta = SIGMA * rng.standard_normal(len(x))
    drawn, expected = np.zeros_like(W), np.zeros_like(W)
    taylor_gradient(W, x, c, delta, 1.0, drawn)
    mean_taylor_gradient(W, x, c, 1.0, expected)
    for value, gradient in (
        (lambda V: approximation(V, delta), drawn),
        (mean, expected),
    ):
        for _ in range(5):
            D = rng.standard_normal(W.shape)
            slope = (value(W + h * D) - value(W - h * D)) / (2.0 * h)
            if abs(slope - np.sum(gradient * D)) > 1e-5 * (1.0 + abs(slope)):
                raise SystemExit("a gradient is not that of its function")


def measure(n_epochs, n_seeds):
    """Return losses (seed, epoch) by estimator and rate."""
    X, y, start = features()
    check(X, y, start)
    n = len(X)
    draws = np.random.default_rng(1).standard_normal((4, n, X.shape[1]))
    found = {}
    print(f"{n} rows, start {objective(X, y, start, draws):.4f}")
    for number, kind in enumerate(NAMES):
        for rate in RATES:
            losses = []
            for seed in range(n_seeds):
                rng = np.random.default_rng(seed)
                W, table = start.copy(), np.tile(start, (n, 1, 1))
                known = np.zeros_like(W)
                if kind == "joint":
                    for i in range(n):
                        mean_taylor_gradient(W, X[i], y[i], 1.0 / n, known)
                losses.append([])
                for _ in range(n_epochs):
                    order = rng.permutation(n)
                    epoch(number, X, y, W, table, known, rate, order, rng)
                    losses[-1].append(objective(X, y, W, draws))
            found[kind, rate] = np.array(losses)
    return found


def summarise(found, best, looks):
    """Print losses by rate, and at the best rate."""
    for look in looks:
        print(f"\nLoss above {best:.4f} after {look} epochs\n")
        print("| learning rate | " + " | ".join(NAMES) + " |")
        print("|---" * (1 + len(NAMES)) + "|")
        for rate in RATES:
            cells = [told(found[k, rate][:, look - 1] - best, "{:.4f}") for k in NAMES]
            print(f"| {rate:g} | " + " | ".join(cells) + " |")
        cells = []
        for kind in NAMES:
            ends = {r: found[kind, r][:, look - 1] - best for r in RATES}
            rate = min(ends, key=lambda r: np.median(ends[r]))
            cells.append(f"{told(ends[rate], '{:.4f}')} at {rate:g}")
        print("| the best | " + " | ".join(cells) + " |")


def draw(found, best, looks, path):
    """Save the four panels of the figure."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    sums = defaultdict(dict)
    for (kind, rate), losses in found.items():
        sums[kind][rate] = np.median(losses, axis=0) - best
    for i, kind in enumerate(NAMES):
        curves, style = sums[kind], {"color": f"C{i}", "label": kind}
        epochs = np.arange(1, len(curves[RATES[0]]) + 1)
        axes[0].plot(epochs, curves[0.2], **style)
        axes[1].plot(epochs, np.min(list(curves.values()), axis=0), **style)
        for axis, look in zip(axes[2:], looks, strict=True):
            axis.plot(RATES, [curves[r][look - 1] for r in RATES], marker=".", **style)
            axis.set(xscale="log", xlabel="learning rate", title=f"{look} epochs")
    axes[0].set(xlabel="epoch", ylabel="expected loss - best", title="rate 0.2")
    axes[1].set(xlabel="epoch", title="best rate at each epoch")
    for axis in axes:
        axis.set_yscale("log")
    axes[0].legend()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = measure(options.epochs, options.seeds)
    looks = (max(1, options.epochs // 5), options.epochs)
    best = min(losses.min() for losses in found.values())
    best = np.floor(best * 1e4 - 1.0) / 1e4  # so that a logarithm shows all
    summarise(found, best, looks)
    draw(found, best, looks, FIGURES / "dropout_figure5.png")


if __name__ == "__main__":
    main()
