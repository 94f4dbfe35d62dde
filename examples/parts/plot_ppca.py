"""
BayesianPPCA: which directions are there, and how sure are they?
================================================================

Principal components are always found, also in noise.
:class:`~skvrem.BayesianPPCA` has a posterior of the loadings: a direction that the rows
do not support is known to be unknown.
"""

# %%
# Three directions, few rows
# --------------------------
# Thirty columns; sixty rows first, six hundred then.

import matplotlib.pyplot as plt
import numpy as np

from skvrem import BayesianPPCA

rng = np.random.default_rng(0)
columns = np.arange(30)
truth = np.stack(
    [
        1.5 * np.exp(-0.5 * ((columns - 7) / 2.5) ** 2),
        1.2 * np.exp(-0.5 * ((columns - 16) / 2.5) ** 2),
        0.9 * np.exp(-0.5 * ((columns - 25) / 2.0) ** 2),
    ]
)


def draw(n):
    """Return rows of three hidden sizes times the directions, and noise."""
    return rng.normal(size=(n, 3)) @ truth + 0.7 * rng.normal(size=(n, 30))


# %%
# Loadings and their deviations
# -----------------------------
# Directions are found up to a rotation among themselves; what the model says of the
# covariance of two columns is not touched by that. Bars are two standard deviations of
# the loadings.

figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharey="row", layout="constrained")
for row, n in zip(axes, (60, 600), strict=True):
    model = BayesianPPCA(3, random_state=0).fit(draw(n))
    loadings, deviations = model.components_, model.components_std_
    for k, ax in enumerate(row):
        sign = np.sign(loadings[k].sum())
        ax.errorbar(columns, sign * loadings[k], 2.0 * deviations[k], fmt=".")
        ax.axhline(0.0, color="black", linewidth=0.8)
        ax.set_title(f"{n} rows, component {k}", fontsize=9)
axes[1, 1].set_xlabel("column")
plt.show()

# %%
# Is it a good description?
# -------------------------
# Held-out log-likelihood a row by the number of components; three are right.

X, X_new = draw(200), draw(2000)
numbers = range(1, 8)
scores = [BayesianPPCA(k, random_state=0).fit(X).score(X_new) for k in numbers]
figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.plot(numbers, scores, "o-")
ax.set(xlabel="components", ylabel="held-out log-likelihood, nats a row")
plt.show()
