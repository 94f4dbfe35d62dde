"""
VRGaussianMixture: how does a mixture follow a stream?
======================================================

``partial_fit`` takes the rows as they come, keeps only a sample of them, and can be
pickled in between. How fast it forgets is a matter of its step size.
"""

# %%
# A stream that drifts
# --------------------
# Three clusters, one of which starts to move around the others. Every batch holds 500
# rows.

import pickle

import matplotlib.pyplot as plt
import numpy as np

from skvrem import VRGaussianMixture

N_BATCHES = 200
home = np.array([[-1.5, 0.0], [1.5, 0.0], [0.0, 4.0]])


def stream(seed):
    """Yield batches of rows, and where the third cluster is at that time."""
    rng = np.random.default_rng(seed)
    for t in range(N_BATCHES):
        means = home.copy()
        angle = np.pi * max(0.0, t / N_BATCHES - 0.25)
        means[2] = 4.0 * np.sin(angle), 4.0 * np.cos(angle)
        labels = rng.integers(3, size=500)
        yield means[labels] + rng.normal(scale=0.7, size=(500, 2)), means[2]


# %%
# The step t of ``partial_fit`` is ``step_size * (t + step_offset) ** -step_decay``.
# Decreasing steps average over all that was seen, as is right for rows in random order;
# nearly constant ones forget after about ``1 / step_size`` batches.

mixtures = {
    "decreasing steps (default)": VRGaussianMixture(3, random_state=0),
    "nearly constant steps": VRGaussianMixture(
        3, step_size=0.2, step_decay=0.001, random_state=0
    ),
}
paths = {label: [] for label in mixtures}
errors = {label: [] for label in mixtures}
for X, moving in stream(seed=0):
    for label, mixture in mixtures.items():
        mixture.partial_fit(X)
        distances = np.linalg.norm(mixture.means_ - moving, axis=1)
        paths[label].append(mixture.means_[distances.argmin()])
        errors[label].append(distances.min())

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
truth = np.array([moving for _, moving in stream(seed=0)])
left.scatter(*X.T, s=6, color="lightgray", label="last batch")
left.plot(*truth.T, color="black", lw=4, alpha=0.3, label="moving cluster")
for label, path in paths.items():
    left.plot(*np.transpose(path), marker=".", ms=3, lw=1, label=label)
    right.plot(errors[label], label=label)
left.legend(loc="upper left", fontsize=8)
left.set(title="nearest mean and the cluster", xlim=(-5.5, 5.5), ylim=(-5.5, 6))
right.set(xlabel="batch", ylabel="distance", title="distance of the two")
right.legend()

# %%
# The default lags behind more and more, since it still remembers where the cluster has
# been. Whoever expects drift gives a step that does not vanish, and pays with noise
# where nothing moves.
#
# Pickled in the middle
# ---------------------
# What a stream has taught is in plain attributes. A copy that went through a file at
# batch 100 ends with the same bits.

mixture = VRGaussianMixture(3, random_state=0)
for t, (X, _) in enumerate(stream(seed=1)):
    mixture.partial_fit(X)
    if t == 99:
        frozen = pickle.dumps(mixture)
copy = pickle.loads(frozen)
for t, (X, _) in enumerate(stream(seed=1)):
    if t > 99:
        copy.partial_fit(X)
print(f"{len(frozen)} bytes; the same means: {np.all(copy.means_ == mixture.means_)}")

# %%
# Rows that come sorted
# ---------------------
# The first batches of a stream sorted by cluster have one cluster only. When the next
# one comes, the mixture begins again from its sample of the rows so far. Log-likelihood
# a row on fresh rows:

rng = np.random.default_rng(2)
labels = np.sort(rng.integers(3, size=30_000))
X = home[labels] + rng.normal(scale=0.7, size=(30_000, 2))
fresh = home[rng.integers(3, size=10_000)] + rng.normal(scale=0.7, size=(10_000, 2))

for name, rows in {"sorted": X, "shuffled": rng.permutation(X)}.items():
    mixture = VRGaussianMixture(3, random_state=0)
    for batch in rows.reshape(60, 500, 2):
        mixture.partial_fit(batch)
    print(f"{name:<9}{mixture.score(fresh):8.3f}")

# %%
# Where all rows are at hand, in an array or a memory map, ``fit`` is the better way: it
# draws its minibatches in random order and comes back to each.
plt.show()
