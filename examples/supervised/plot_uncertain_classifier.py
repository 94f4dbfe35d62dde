"""
BayesianLogisticRegression: how sure may a classifier be?
=========================================================

A logistic regression that is fitted to a few dozen rows gives probabilities near 0 and
1 wherever it is asked, also where it has seen nothing. A posterior over the
coefficients knows better: far away from the rows many directions of the boundary are
possible, and averaged over them the probability is nearer to one half.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression

from skvrem import BayesianLogisticRegression, GradientVarianceDisplay

X, y = make_moons(40, noise=0.35, random_state=1)
point = LogisticRegression(C=np.inf).fit(X, y)
bayes = BayesianLogisticRegression(prior_scale=3.0).fit(X, y)
print(bayes.summary())

# %%
# The probability of the second class: of the point estimate, averaged over the
# posterior, and the width of its 90 % interval.

grid = np.linspace(-8.0, 8.0, 200)
plane = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
interval = bayes.predict_proba_interval(plane, level=0.9)[:, 1]
pictures = {
    "point estimate": point.predict_proba(plane)[:, 1],
    "averaged over the posterior": bayes.predict_proba(plane)[:, 1],
    "width of the 90 % interval": interval[:, 1] - interval[:, 0],
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
for ax, (title, values) in zip(axes, pictures.items(), strict=True):
    picture = ax.contourf(grid, grid, values.reshape(200, 200), np.linspace(0, 1, 11))
    ax.scatter(*X.T, c=y, cmap="gray", edgecolors="w", s=14)
    ax.set_title(title)
figure.colorbar(picture, ax=axes)

# %%
# How far the Gaussian may be trusted says the shape of the tail of its importance
# weights; below 0.7 it is near the exact posterior.

print(f"Pareto k: {bayes.pareto_k_:.2f}")

# %%
# This fit made no noise at all. One by minibatches and draws has two sources of it,
# and control variates for either or both.

field = BayesianLogisticRegression(3.0, posterior="meanfield").fit(X, y)
GradientVarianceDisplay.from_estimator(field, X, y, random_state=0)
plt.show()
