"""
VRGaussianMixture: how much memory does a fit need beside the data?
===================================================================

Rows can stay in a file. A memory map is read in blocks, and what a fit allocates
depends on the number of components and features, and by one index a row on the number
of rows.
"""

# %%
# A file of rows
# --------------
# Written in pieces, as a file is that never was in memory: two million rows of eight
# features in single precision. ``tracemalloc`` counts what Python and NumPy allocate;
# the pages of a memory map belong to the file and are not counted.

import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from skvrem import VRGaussianMixture

n, d, k = 2_000_000, 8, 5
rng = np.random.default_rng(0)
means = 1.5 * rng.normal(size=(k, d))

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "rows.dat"
with path.open("wb") as file:
    for _ in range(20):
        labels = rng.integers(k, size=n // 20)
        rows = means[labels] + rng.normal(size=(n // 20, d))
        file.write(rows.astype(np.float32).tobytes())
print(f"{path.stat().st_size / 1e6:.0f} MB on disk")


def measured(method, X):
    """Return a result, its seconds and the megabytes allocated at the peak."""
    tracemalloc.start()
    began = time.perf_counter()
    result = method(X)
    seconds = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return result, seconds, peak


# %%
# Fit from the file
# -----------------
# A small fit first, so that compiling the kernels is not part of what is measured.

X = np.memmap(path, dtype=np.float32, mode="r", shape=(n, d))
for solver in ("saga", "batch"):
    VRGaussianMixture(k, solver=solver, random_state=0).fit(X[:5000])

mixtures = {}
for solver in ("batch", "svrg", "saga"):
    mixture = VRGaussianMixture(k, n_init=1, solver=solver, tol=1e-5, random_state=0)
    mixtures[solver], seconds, peak = measured(mixture.fit, X)
    print(
        f"{solver:<6}{mixture.lower_bound_:11.5f} nats a row, "
        f"{mixture.history_['passes'][-1]:3.0f} passes, {seconds:5.2f} s, "
        f"{peak:5.1f} MB allocated"
    )

# %%
# Full passes read the file from front to back. The minibatches of the other solvers are
# random but made of runs of neighbouring rows, so that whole pages are read; and they
# keep the order of the rows, four bytes each.
#
# Scores come in the same way, a chunk at a time:

score, seconds, peak = measured(mixtures["saga"].score, X)
print(f"score {score:.5f} in {seconds:.2f} s, {peak:.1f} MB allocated")

# %%
# Where the blocks are elsewhere
# ------------------------------
# A dask array is never loaded as a whole. Parameters go to the blocks and statistics
# come back; ``solver="auto"`` makes full passes on it, since those move no rows.
# ``predict`` gives a dask array, which is computed block by block.

try:
    import dask.array as da
except ImportError:
    print("dask is not installed")
else:
    blocks = da.from_array(X, chunks=(200_000, d))
    mixture = VRGaussianMixture(k, tol=1e-5, random_state=0)
    _, seconds, peak = measured(mixture.fit, blocks)
    print(
        f"dask, {mixture.solver_}: {mixture.lower_bound_:.5f} nats a row, "
        f"{mixture.history_['passes'][-1]:.0f} passes, {seconds:.2f} s, "
        f"{peak:.1f} MB allocated"
    )
    labels = mixture.predict(blocks)
    counts = da.bincount(labels, minlength=k).compute()
    print("rows of each component:", *counts)

# %%
# Streams, of which no row can be read twice, are the subject of
# :ref:`sphx_glr_auto_examples_scale_plot_streaming.py`.

X = None  # an open map would keep the file
folder.cleanup()
