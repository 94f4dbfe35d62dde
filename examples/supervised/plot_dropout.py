"""
GaussianDropoutClassifier: probabilities of a network that mean something
=========================================================================

A network that is trained to the end is sure of everything, also where it is wrong.
:class:`~skvrem.GaussianDropoutClassifier` multiplies what its last layer sees by noise
while it learns, and averages over the noise when it predicts.
"""

# %%
# Two moons that overlap
# ----------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.neural_network import MLPClassifier

from skvrem import GaussianDropoutClassifier

X, y = make_moons(200, noise=0.35, random_state=0)
X_new, y_new = make_moons(5000, noise=0.35, random_state=1)
models = {
    "to the end": MLPClassifier((50,), solver="lbfgs", max_iter=5000, random_state=0),
    "stopped early": MLPClassifier((50,), max_iter=2000, random_state=0),
    "dropout": GaussianDropoutClassifier((50,), max_iter=1000, random_state=0),
}
for model in models.values():
    model.fit(X, y)

# %%
# Where each is sure
# ------------------
# The log-loss is what is paid for a probability: small where it was right to be sure.
# The network that is trained to the end has learned the noise. Stopping early helps,
# where somebody knows when to stop: adam happens to, here. Dropout goes to its end,
# under the penalty that foretells rows held out best, and pays less.

grid = np.stack(
    np.meshgrid(np.linspace(-2, 3, 120), np.linspace(-1.5, 2, 120)), axis=-1
)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    p = model.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(grid.shape[:2])
    shown = ax.contourf(*grid.transpose(2, 0, 1), p, 20, cmap="RdBu_r", vmin=0, vmax=1)
    ax.scatter(*X.T, c=y, cmap="RdBu_r", edgecolor="black", s=18)
    of_new = model.predict_proba(X_new)[np.arange(len(y_new)), y_new]
    loss = -np.log(np.maximum(of_new, 1e-15)).mean()
    right = model.score(X_new, y_new)
    ax.set_title(f"{name}\n{100 * right:.1f} % right, log-loss {loss:.2f}")
figure.colorbar(shown, ax=axes, label="probability of the second moon")
plt.show()
