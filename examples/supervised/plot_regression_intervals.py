"""
BayesianGLMRegressor: counts, and how far they may be off
=========================================================

A regression gives a number; :class:`~skvrem.BayesianGLMRegressor` gives its
distribution: of the mean, where the coefficients are not known exactly, and of the next
count, which varies about the mean.
"""

# %%
# Calls at a help desk
# --------------------
# A count every hour of three weeks: a rhythm of the day, quiet Sundays, and more noise
# than Poisson counts have.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skvrem import BayesianGLMRegressor

rng = np.random.default_rng(0)
hour = np.arange(21 * 24.0)
sunday = (hour // 24) % 7 == 6
mean = np.exp(2.0 + np.sin(2 * np.pi * (hour - 8) / 24) - 1.2 * sunday)
calls = rng.poisson(mean * rng.gamma(6.0, 1 / 6.0, size=hour.size))


def rhythm(hour):
    """Return two waves of the day, and Sundays."""
    angle = 2 * np.pi * hour / 24
    waves = [f(k * angle) for k in (1, 2) for f in (np.sin, np.cos)]
    return np.column_stack([*waves, (hour // 24) % 7 == 6])


features = make_pipeline(FunctionTransformer(rhythm), StandardScaler())
X = features.fit_transform(hour)

# %%
# Poisson or negative binomial?
# -----------------------------
# Two weeks are learned from, the third is held out. A 90 % interval should hold nine
# counts of ten; Poisson's are too narrow here.

known, new = hour < 14 * 24, hour >= 14 * 24
figure, axes = plt.subplots(2, figsize=(8, 6), sharex=True, layout="constrained")
for ax, family in zip(axes, ("poisson", "negative-binomial"), strict=True):
    model = BayesianGLMRegressor(family, random_state=0).fit(X[known], calls[known])
    low, high = model.predict_interval(X[new], level=0.9).T
    inside = (low <= calls[new]) & (calls[new] <= high)
    day = hour[new] / 24
    ax.fill_between(day, low, high, color="C0", alpha=0.25, label="90 % of counts")
    ax.plot(day, model.predict(X[new]), color="C0", label="mean")
    ax.plot(day, calls[new], "k.", markersize=3, label="calls")
    ax.set(ylabel="calls", title=f"{family}: {100 * inside.mean():.0f} % inside")
axes[0].legend()
axes[1].set_xlabel("day")
plt.show()
