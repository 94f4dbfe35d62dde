"""
FactorialMixture: which parts does an image have?
=================================================

Images that are sums of parts, each of which is there or not. Plain variational
inference gets stuck where parts are mixed up; annealed, it finds more of them.
"""

# %%
# Data
# ----
# Eight shapes of 4 x 4 pixels, each with its own brightness and present in three of ten
# images, and noise.

import matplotlib.pyplot as plt
import numpy as np

from skvrem import ComponentsDisplay, ConvergenceDisplay, FactorialMixture

shapes = np.zeros((8, 4, 4))
shapes[0, 0] = shapes[1, :, 0] = shapes[2, :, 3] = shapes[3, 3] = 1.0
shapes[4, 1:3, 1:3] = shapes[7, :2, :2] = 1.0
shapes[5], shapes[6] = np.eye(4), np.eye(4)[::-1]

rng = np.random.default_rng(0)
parts = shapes.reshape(8, 16) * rng.uniform(0.5, 1.0, (8, 1))
codes = rng.uniform(size=(2000, 8)) < 0.3
X = codes @ parts + 0.15 * rng.normal(size=(2000, 16))
ComponentsDisplay(X[:16], (4, 4), titles=[""] * 16).plot().figure_.suptitle("images")

# %%
# Three fits
# ----------
# Noise variance, activation prior and prior variance of the components are learned. The
# second and the third fit make two starts, that of the first and one that is tempered.

fits = {
    "plain": FactorialMixture(8, tempering=None, max_iter=500, random_state=0),
    "annealed": FactorialMixture(8, random_state=0),
    "variational tempering": FactorialMixture(8, tempering="global", random_state=0),
}
for name, fit in fits.items():
    fit.fit(X)
    print(f"{name}: bound {fit.objective_:.3f} nats a row, {fit.n_iter_} epochs")

# %%
# The components of each, and the shapes that the images are made of.

figure = plt.figure(figsize=(9, 5.5), layout="constrained")
rows = {name: fit.components_ for name, fit in fits.items()} | {"truth": parts}
for part, (name, components) in zip(figure.subfigures(4, 1), rows.items(), strict=True):
    part.suptitle(name)
    ComponentsDisplay(components, (4, 4), titles=[""] * 8).plot(
        ax=part.subplots(1, 8), vmin=-1.2, vmax=1.2
    )

# %%
# Temperatures
# ------------
# All end at a temperature of 1, where the bounds compare.

ConvergenceDisplay.from_estimator(fits, x="epoch", y="temperature")

# %%
# Codes
# -----
# What the annealed fit says of new images: which parts there are. The summary shows how
# often each component is active and the share of the variance that it brings.

fit = fits["annealed"]
found = fit.predict(X[:5])
print(found.sum(axis=1), codes[:5].sum(axis=1))
fit.summary()
