"""
VRHMM: when does an elk travel?
===============================

Positions of an animal say little one by one. Step lengths and turning angles tell
resting, foraging and travelling apart, and a hidden Markov model reads the behaviours
off their sequence. Here the chance to set off depends on the hour of the day, as a
covariate of the transitions.
"""

import matplotlib.pyplot as plt
import numpy as np

from skvrem import VRHMM, EmissionsDisplay, TrackDisplay
from skvrem.hmm import Covariates, Gamma, Product, VonMises, prepare_tracks

# %%
# Data
# ----
#
# Four animals, a position every half hour for forty days. They forage in short steps
# and all directions, and travel in long steps straight ahead, mostly around dawn and
# dusk. Some positions are missing, as where a collar found no satellite.

rng = np.random.default_rng(0)
n_animals, n_steps = 4, 48 * 40
hour = np.arange(n_steps) / 2.0 % 24.0
twilight = np.cos(4.0 * np.pi * (hour - 6.0) / 24.0)

tracks, behaviours = [], []
for _ in range(n_animals):
    state = [0]
    for z in twilight[:-1]:
        leave = (-3.0 + 1.5 * z, -1.5 - 0.8 * z)[state[-1]]
        flip = rng.random() < 1.0 / (1.0 + np.exp(-leave))
        state.append(state[-1] ^ int(flip))
    state = np.array(state)
    step = rng.gamma(np.where(state, 6.0, 1.5), np.where(state, 0.08, 0.04))
    turn = rng.vonmises(0.0, np.where(state, 6.0, 0.3)).cumsum()
    xy = np.cumsum(
        step[:, None] * np.column_stack([np.cos(turn), np.sin(turn)]), axis=0
    )
    xy[rng.random(n_steps) < 0.02] = np.nan
    tracks.append(xy)
    behaviours.append(state)
ids = np.repeat(np.arange(n_animals), n_steps)
moves = prepare_tracks(np.concatenate(tracks), groups=ids)
X = np.column_stack([moves, np.tile(twilight, n_animals)])

# %%
# Two behaviours
# --------------
#
# Steps are gamma distributed, angles von Mises about straight on. The third column
# leads the transitions and is no observed feature.

emission = Product([("step", Gamma(), [0]), ("angle", VonMises(mean=0.0), [1])])
hmm = VRHMM(2, emission=emission, transitions=Covariates([2]), random_state=0)
hmm.fit(X, groups=ids)
hmm.relabel(np.argsort(hmm.emission_["step"].mean_.ravel()))
print(hmm.summary())
print(
    "log-odds of setting off, a unit of twilight:",
    hmm.transitions_.coef_[0, 1].round(2),
)
print("and of settling:", hmm.transitions_.coef_[1, 0].round(2))

plain = VRHMM(2, emission=emission, random_state=0).fit(moves, groups=ids)
print(
    f"BIC with the hour: {hmm.bic(X, groups=ids):.0f}, without: "
    f"{plain.bic(moves, groups=ids):.0f}"
)

# %%
# Through the day
# ---------------
#
# The fitted chance to set off within half an hour, and what it was drawn with.

order = np.argsort(hour[:48])
leave = hmm.transitions_.matrix(twilight[:48, None])[:, 0, 1]
truth = 1.0 / (1.0 + np.exp(3.0 - 1.5 * twilight[:48]))
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(hour[order], leave[order], label="fitted")
left.plot(hour[order], truth[order], "--", label="true")
left.set(xlabel="hour", ylabel="chance to set off")
left.legend()

first = ids == 0
TrackDisplay.from_estimator(hmm, X[first], tracks[0], ax=right)
right.set(xlabel="km east", ylabel="km north")
plt.show()

# %%
# What each behaviour says of a step and of a turn, over all of them.

EmissionsDisplay.from_estimator(hmm, X, groups=ids)
plt.show()

# %%

agree = np.mean(hmm.predict(X, groups=ids) == np.concatenate(behaviours))
print(f"{agree:.1%} of the behaviours are right")
