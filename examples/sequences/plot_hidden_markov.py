"""
VRHMM: states of a series
=========================

A series of two measurements switches between regimes that are not observed. A hidden
Markov model finds the regimes, how long they last, and where each begins. How many
there are is asked of sequences that the fit has not seen.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, GroupKFold

from skvrem import VRHMM, ResidualsDisplay, StatesDisplay

# %%
# Data
# ----
#
# Twelve sequences of three regimes: quiet, active and a rare burst. Some values are
# missing.

rng = np.random.default_rng(0)
transitions = np.array([[0.97, 0.03, 0.0], [0.04, 0.93, 0.03], [0.0, 0.2, 0.8]])
level = np.array([[0.0, 1.0], [2.5, 1.5], [5.0, -1.0]])
spread = np.array([[0.6, 0.4], [0.9, 0.8], [0.7, 1.2]])

sequences, truth = [], []
for _ in range(12):
    state = [0]
    for _ in range(399):
        state.append(rng.choice(3, p=transitions[state[-1]]))
    truth += state
    sequences.append(level[state] + spread[state] * rng.normal(size=(400, 2)))
X = np.concatenate(sequences)
X[rng.uniform(size=X.shape) < 0.05] = np.nan
ids = np.repeat(np.arange(12), 400)

# %%
# How many states
# ---------------
#
# The ids of the sequences stand in a column of X, so that the search cuts them with the
# rows. The score is the log-likelihood a row of the sequences left out.

with_ids = np.column_stack([X, ids])
search = GridSearchCV(
    VRHMM(groups=2, random_state=0), {"n_components": [1, 2, 3, 4]}, cv=GroupKFold(3)
).fit(with_ids, groups=ids)
for n, score in enumerate(search.cv_results_["mean_test_score"], start=1):
    print(f"{n} states: {score:.4f} nats a row")

# %%
# The states
# ----------
#
# States have no order of their own: here they are put by their first mean.

hmm = VRHMM(3, random_state=0).fit(X, groups=ids)
hmm.relabel(np.argsort(hmm.means_[:, 0]))
print(hmm.summary())
print(hmm.transmat_.round(3))

# %%
# The first sequence, and how sure the model is of its states:

first = ids == 0
StatesDisplay.from_estimator(hmm, X[first], names=["speed", "turn"])
path = hmm.predict(X, groups=ids)
print(f"{np.mean(path == np.array(truth)):.1%} of the states are right")

# %%
# Does the model fit?
# -------------------
#
# Pseudo-residuals are standard normal where it does. Two states are too few, which the
# tails show.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, n in zip(axes, (2, 3), strict=True):
    model = VRHMM(n, random_state=0).fit(X, groups=ids)
    ResidualsDisplay.from_estimator(model, X, groups=ids, ax=ax)
    ax.set_title(f"{n} states")
plt.show()

# %%
# Looking ahead
# -------------
#
# After the end of the first sequence, the further ahead the closer to the long run:

forecast = hmm.forecast(X[first], horizon=30)
figure, ax = plt.subplots(layout="constrained")
steps = np.arange(1, 31)
mean, sd = forecast.mean[0, :, 0], forecast.sd[0, :, 0]
ax.plot(steps, mean, label="mean")
ax.fill_between(steps, mean - sd, mean + sd, alpha=0.3, label="one sd")
ax.set(xlabel="rows ahead", ylabel="speed")
ax.legend()
plt.show()
