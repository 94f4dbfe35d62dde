"""
VRHMM: activities from a few labels
===================================

An accelerometer on the chest records all day; somebody has noted the activity for a few
minutes of it. A hidden Markov model learns from both: labelled rows are in known
states, the others in whichever states explain them. Activities are no single cloud of
points, so every state emits a mixture of Gaussians.
"""

import numpy as np

from skvrem import VRHMM, StatesDisplay, VRGaussianMixture
from skvrem.hmm import MixtureGaussian

# %%
# Data
# ----
#
# Ten people; sitting upright or bent, walking in two rhythms, climbing stairs. What is
# seen is one window of signal after another: mean tilt and log of movement.

NAMES = ["sits", "walks", "climbs"]
rng = np.random.default_rng(0)
stay = np.array([[0.97, 0.02, 0.01], [0.03, 0.95, 0.02], [0.02, 0.08, 0.90]])
centres = np.array(
    [[[0.0, -2.0], [1.5, -2.0]], [[0.3, 0.5], [0.4, 1.6]], [[0.9, 0.6], [1.1, 1.4]]]
)
spread = np.array([0.25, 0.35])

X, activity = [], []
for _ in range(10):
    state = [rng.choice(3)]
    for _ in range(599):
        state.append(rng.choice(3, p=stay[state[-1]]))
    which = np.repeat(rng.integers(2, size=60), 10)  # a posture or rhythm lasts a while
    X.append(centres[state, which] + spread * rng.normal(size=(600, 2)))
    activity += state
X, activity = np.concatenate(X), np.array(activity)
person = np.repeat(np.arange(10), 600)

# %%
# Labels for one minute in fifty
# ------------------------------

labels = np.where(rng.random(len(X)) < 0.02, activity, -1)
hmm = VRHMM(3, emission=MixtureGaussian(2, "full"), random_state=0)
hmm.fit(X, groups=person, state_labels=labels)
print(hmm.summary())

unseen = labels < 0
right = np.mean(hmm.predict(X, groups=person)[unseen] == activity[unseen])
print(f"{right:.1%} of the unlabelled windows are right")

# %%
# What the order in time is worth: a mixture with as many components, matched to the
# same labels, sees every window alone.

mixture = VRGaussianMixture(6, random_state=0).fit(X)
component = mixture.predict(X)
votes = np.zeros((6, 3))
np.add.at(votes, (component[~unseen], labels[~unseen]), 1.0)
right = np.mean(votes.argmax(axis=1)[component][unseen] == activity[unseen])
print(f"{right:.1%} without time")

# %%
# Where the doubt is
# ------------------
#
# Windows that are least sure come around changes of activity. Half of those of the
# first person, in their most probable states, and how probable each state is:

some = slice(0, 300)
StatesDisplay.from_estimator(hmm, X[some], names=["tilt", "log movement"])

# %%

sure = hmm.predict_proba(X, groups=person).max(axis=1)
changes = np.append(False, np.diff(activity) != 0) & np.append(
    False, np.diff(person) == 0
)
near = np.convolve(changes, np.ones(3), "same") > 0
print(
    f"mean doubt near a change {1 - sure[near].mean():.3f}, "
    f"elsewhere {1 - sure[~near].mean():.3f}"
)
for name, row in zip(NAMES, hmm.transmat_.round(2), strict=True):
    print(f"after a window that {name}: {dict(zip(NAMES, row.tolist(), strict=True))}")
