"""
Can the rows lie on other machines?
===================================

An estimator that is given a dask array sends its model to the blocks and adds up what
comes back. Here the other machines are two workers in this process, as a script wants
it that has no main function (``processes=True`` makes them processes of their own);
with the address of a scheduler in ``Client`` they are any.
"""

# %%
# A cluster, and rows that it keeps
# ---------------------------------
# Each worker draws its own blocks; the client never has all rows.

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from skvrem import SBMLogisticRegression, VRGaussianMixture

cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
)
client = Client(cluster)

n, d = 400_000, 6
normal = da.random.default_rng(0).normal
kinds = da.random.default_rng(1).integers(3, size=(n, 1), chunks=(50_000, 1))
X = (normal(size=(n, d), chunks=(50_000, d)) + 2.0 * kinds).persist()
wait(X)
print(X)

# %%
# A mixture by full passes
# ------------------------
# The same call as for an array in memory. "auto" makes full passes, of which nothing
# but sums over rows travels: some kilobytes a block.

mixture = VRGaussianMixture(3, n_init=1, random_state=0).fit(X)
print(mixture.summary().round(2))
print("passes:", mixture.history_["passes"][-1], "by", mixture.solver_)

# %%
# Answers are lazy
# ----------------
# They are dask arrays with the chunks of X, and cost nothing until they are asked for.

labels = mixture.predict(X)
print(labels)
print("rows of each component:", np.bincount(labels.compute()))
print("log-likelihood a row:", round(mixture.score(X), 3))

# %%
# Classes that lie beside the rows
# --------------------------------

y = (X[:, 0] + X[:, 1] + normal(size=n, chunks=50_000) > 4.0).astype(int).persist()
model = SBMLogisticRegression().fit(X, y)
print("coefficients:", model.coef_.round(2), "in", model.n_iter_[0], "steps")
print("accuracy:", round(model.score(X, y), 3))

# %%
# The answer of memory
# --------------------
# Few enough rows to compare.

some, classes = X[:50_000], y[:50_000]
here = SBMLogisticRegression().fit(some.compute(), classes.compute())
there = SBMLogisticRegression().fit(some, classes)
print("largest difference:", np.abs(here.coef_ - there.coef_).max())

client.close()
cluster.close()
