"""
Checkpoint: what does a fit lose that is cut off?
=================================================

A fit that runs for hours may be ended by others: a power cut, the limit of a batch
system, a machine that is taken away. What :class:`~skvrem.Checkpoint` has written goes
on in another process.
"""

# %%
# A fit, and its end
# ------------------
# Components that overlap take EM many passes. Here ``max_iter`` is what ends the fit
# too early.

import tempfile
import warnings
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from sklearn.exceptions import ConvergenceWarning

from skvrem import Checkpoint, VRGaussianMixture

rng = np.random.default_rng(0)
means = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])
X = means[rng.integers(3, size=20_000)] + rng.normal(size=(20_000, 2))
settings = {
    "tol": 1e-7,
    "solver": "svrg",
    "step_size": 0.1,
    "n_init": 1,
    "random_state": 0,
}

folder = tempfile.TemporaryDirectory()
path = str(Path(folder.name) / "mixture.skvrem")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    cut = VRGaussianMixture(3, max_iter=8, **settings)
    Checkpoint(path).fit(cut, X)
print(f"cut off: {cut.n_iter_} epochs, {cut.lower_bound_:.7f} nats a row")

# %%
# The next morning
# ----------------
# Epochs are counted on, and the generator of random numbers is where it was: the fit
# ends where it would have ended.

gone_on = Checkpoint.load(path).set_params(warm_start=True, max_iter=300)
gone_on.fit(X)
whole = VRGaussianMixture(3, max_iter=300, **settings).fit(X)
for name, fit in {"gone on": gone_on, "not cut off": whole}.items():
    print(f"{name}: {fit.n_iter_} epochs, {fit.lower_bound_:.7f} nats a row")
size = Path(path).stat().st_size
print(f"{size / 1e3:.0f} kB for rows of {X.nbytes / 1e3:.0f} kB")

best = whole.history_["objective"].max()
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, fit, style in (
    ("not cut off", whole, {"lw": 6, "alpha": 0.3}),
    ("gone on", gone_on, {}),
    ("until it was cut off", cut, {"marker": "."}),
):
    gap = best - fit.history_["objective"]
    ax.semilogy(np.arange(1, gap.size + 1), gap + 1e-9, label=name, **style)
ax.set(xlabel="epoch", ylabel="gap to the best log-likelihood, nats a row")
ax.legend()
folder.cleanup()
plt.show()
