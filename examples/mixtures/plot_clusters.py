"""
VRGaussianMixture: how many kinds of wine?
==========================================

Of 178 wines from one region of Italy some chemistry was measured. How many kinds are
there, which wine is of which, and which of none for sure? That three cultivars are
behind them is kept for the end.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from skvrem import VRGaussianMixture

columns = ["flavanoids", "color_intensity", "hue", "proline"]
wines, cultivar = load_wine(return_X_y=True, as_frame=True)
X = wines[columns]

# %%
# How many
# --------
#
# More components always fit better. BIC takes off what they would gain by chance: the
# lowest says which number to take, and which shape of the covariances. A default fit
# tries several starts and moves out of poor optima: one fit a number is enough.

numbers = range(1, 8)
shapes = ["full", "diag", "tied"]
fits = {
    (shape, k): VRGaussianMixture(k, covariance_type=shape, random_state=0).fit(X)
    for shape in shapes
    for k in numbers
}
bic = {key: mixture.bic(X) for key, mixture in fits.items()}
shape, k = min(bic, key=bic.get)
mixture = fits[shape, k]
print(f"lowest BIC: {k} components, {shape} covariances")

figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name in shapes:
    ax.plot(numbers, [bic[name, k] for k in numbers], marker=".", label=name)
ax.set(xlabel="components", ylabel="BIC")
ax.legend(title="covariance_type")

# %%
# Which
# -----
#
# Two of the four columns, with the ellipses that hold nine tenths of each component's
# wines. A cross marks those whose component is less sure than 90 %.

component = mixture.predict(X)
unsure = mixture.predict_proba(X).max(axis=1) < 0.9

figure, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
for c in range(k):
    wine = X[component == c]
    ax.plot(wine[columns[0]], wine[columns[1]], ".", color=f"C{c}")
    variances, axes = np.linalg.eigh(mixture.covariances_[c, :2, :2])
    # 4.605 is the 90 % point of a chi-squared variable with two degrees of freedom.
    height, width = 2.0 * np.sqrt(4.605 * variances)
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
    place = mixture.means_[c, :2]
    ax.add_patch(Ellipse(place, width, height, angle=angle, color=f"C{c}", alpha=0.2))
doubt = X[unsure]
ax.plot(doubt[columns[0]], doubt[columns[1]], "x", color="black", label="unsure")
ax.set(xlabel=columns[0], ylabel=columns[1])
ax.legend()

# %%
# The cultivars, which the fit has not seen, are nearly the components:

print(f"adjusted Rand index {adjusted_rand_score(cultivar, component):.2f}")
right = np.array([np.bincount(cultivar[component == c]).max() for c in range(k)])
print(f"{right.sum()} of {len(X)} wines with their cultivar's own, ", end="")
print(f"{unsure.sum()} unsure")
