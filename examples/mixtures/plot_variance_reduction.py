"""
VRGaussianMixture: what does variance reduction buy?
====================================================

EM needs the mean of the expected sufficient statistics over all rows, and a minibatch
estimates it with an error. Stochastic EM lets that error die out by ever smaller steps.
The variance-reduced solvers make the error itself vanish as the fit converges, so the
steps can stay large [1]_.
"""

# %%
# The error of one minibatch
# --------------------------
# Take the simplest mixture, two unit Gaussians at :math:`\pm\mu` with only
# :math:`\mu` unknown. Its mean statistic is :math:`F(\mu) = \frac1N\sum_i
# \tanh(\mu x_i)\,x_i`. A minibatch B estimates it by its own mean :math:`f_B(\mu)`,
# or, with the full mean known at an earlier point :math:`\mu_0`, by
# :math:`f_B(\mu) - f_B(\mu_0) + F(\mu_0)`. The row that is far out is so in both terms,
# and the difference forgets it.

import matplotlib.pyplot as plt
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=100_000) + 0.5 * rng.choice([-1, 1], size=100_000)
batches = rng.permutation(x).reshape(100, -1)


def batch_means(mu):
    return (np.tanh(mu * batches) * batches).mean(axis=1)


mu = 0.5
distances = np.logspace(-6, 0, 13)
plain = np.full(distances.size, batch_means(mu).std())
reduced = [(batch_means(mu) - batch_means(mu + d)).std() for d in distances]

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.loglog(distances, plain, marker=".", label="minibatch alone")
ax.loglog(distances, reduced, marker=".", label="corrected by an earlier point")
ax.set(
    xlabel=r"distance to the earlier point, $|\mu - \mu_0|$",
    ylabel="standard deviation of the estimate",
)
ax.legend()

# %%
# The error is proportional to the distance to the earlier point. When the fit
# converges, that distance goes to zero, and the error with it.
#
# What it does to a fit
# ---------------------
# Components that overlap make EM slow: it moves by a small part of the way each pass.
# All solvers start from the same k-means start here.

import warnings

from sklearn.exceptions import ConvergenceWarning

from skvrem import ConvergenceDisplay, VRGaussianMixture

n, d, k = 100_000, 5, 6
means = 0.6 * rng.normal(size=(k, d))
X = means[rng.integers(k, size=n)] + rng.normal(size=(n, d))

settings = {
    "batch": {"solver": "batch"},
    "batch with SQUAREM": {"solver": "batch", "acceleration": "squarem"},
    "stochastic": {"solver": "stochastic", "max_iter": 100},
    "svrg": {"solver": "svrg"},
    "saga": {"solver": "saga"},
}
fits = {}
with warnings.catch_warnings():
    # "stochastic" is still moving after its epochs.
    warnings.simplefilter("ignore", ConvergenceWarning)
    for label, setting in settings.items():
        options = {"max_iter": 3000, "tol": 1e-8, "covariance_type": "tied", **setting}
        fits[label] = VRGaussianMixture(k, n_init=1, random_state=0, **options).fit(X)

for label, fit in fits.items():
    print(
        f"{label:<20}{fit.history_['passes'][-1]:5.0f} passes"
        f"{fit.history_['seconds'][-1]:7.2f} s   {fit.lower_bound_:.7f} nats a row"
    )

# %%
# The gap to the best log-likelihood, by passes over the data. "stochastic" is the first
# to come near and then stays at a distance; "svrg" and "saga" fall like "batch", only
# in fewer passes. ("stochastic" shows what its batches saw while the point moved, and
# the exact value at the end.)

figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ConvergenceDisplay.from_estimator(fits, y="gap", ax=ax)
ax.set(xlim=(0, 150), ylim=(1e-8, None))
ax.grid(alpha=0.3)
plt.show()

# %%
# When it pays
# ------------
# Where clusters are apart, EM itself needs few passes and there is little to gain; and
# where rows are few for the number of parameters, the correction of a minibatch is too
# noisy to be worth a step. ``solver="auto"`` decides by that number: see the user
# guide. None of the solvers finds a better optimum reliably, only the nearest one
# sooner: for that there is ``n_init``.
#
# References
# ----------
# .. [1] Chen, Zhu, Teh, Zhang (2018). Stochastic expectation maximization with variance
#    reduction. NeurIPS.
