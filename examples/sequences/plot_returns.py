"""
VRHMM: calm and nervous markets
===============================

Returns of a minute are a few ten-thousandths, and now and then ten times as much. Their
mean says little; that nervous hours follow each other says a lot. A hidden Markov model
has regimes of its own spread each, with tails as heavy as they are.
"""

# %%
# Returns
# -------
# Simulated: three regimes, which last for hours, and Student's t of four degrees of
# freedom in each. The numbers are small, as those of minutes are; nothing is scaled.

import matplotlib.pyplot as plt
import numpy as np

from skvrem import VRHMM, EmissionsDisplay, ResidualsDisplay, compare_models
from skvrem.hmm import Gaussian, StudentT

rng = np.random.default_rng(0)
spreads = np.array([1.0e-4, 3.0e-4, 1.2e-3])
transitions = np.array([[0.99, 0.01, 0.0], [0.008, 0.985, 0.007], [0.0, 0.03, 0.97]])
regime = [0]
for _ in range(5999):
    regime.append(rng.choice(3, p=transitions[regime[-1]]))
returns = spreads[regime] * rng.standard_t(4, size=6000)
X = returns[:, None]

# %%
# How many regimes, and which tails?
# ----------------------------------
# The lower AIC and BIC are the better. Tests of residuals say whether something is left
# over: whatever the number of regimes, normal tails miss the rest.

models = {
    f"{n} regimes, {name}": VRHMM(n, emission=emission, random_state=0).fit(X)
    for n in (2, 3)
    for name, emission in (("normal", Gaussian()), ("t", StudentT()))
}
table = compare_models(models, X)
print(table[["parameters", "AIC difference", "BIC difference", "normal p"]].round(3))

# %%
# The regimes
# -----------

hmm = models["3 regimes, t"]
hmm.relabel(np.argsort(hmm.emission_.scale_.ravel()))
print(hmm.summary().round(5))
print(f"{np.mean(hmm.predict(X) == regime):.0%} of the minutes are told right")

figure, axes = plt.subplots(3, figsize=(8, 9), layout="constrained")
colours = plt.get_cmap("tab10").colors
axes[0].plot(returns, color="0.7", lw=0.5)
for state in range(3):
    rows = np.flatnonzero(hmm.predict(X) == state)
    axes[0].plot(rows, returns[rows], ".", ms=2, color=colours[state])
axes[0].set(xlabel="minute", ylabel="return")
EmissionsDisplay.from_estimator(hmm, X, axes=[axes[1]])
axes[1].set(xlim=(-0.002, 0.002), xlabel="return")
ResidualsDisplay.from_estimator(models["3 regimes, normal"], X, ax=axes[2])
ResidualsDisplay.from_estimator(hmm, X, ax=axes[2])
for line, label in zip(axes[2].get_lines()[::2], ("normal", "t"), strict=True):
    line.set_label(label)
axes[2].legend()
plt.show()

# %%
# The next minutes
# ----------------
# A forecast of the spread returns to that of the long run as the regime is forgotten.

ahead = hmm.forecast(X, 120)
plt.plot(ahead.sd.ravel())
plt.xlabel("minutes ahead")
plt.ylabel("standard deviation of the return")
plt.show()
