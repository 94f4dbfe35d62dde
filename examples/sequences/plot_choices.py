"""
VRHMM: does a mouse look at the screen?
=======================================

An animal that has to say whether a stimulus was left or right does so by what it saw,
but not always: for dozens of trials it may answer one side whatever comes. Generalized
linear models of the choices, of which a hidden state chooses one (a GLM-HMM), tell
when.
"""

# %%
# Choices
# -------
# Simulated: twelve sessions of 250 trials, three strategies. Who is engaged follows the
# stimulus; the other two prefer a side.

import matplotlib.pyplot as plt
import numpy as np

from skvrem import VRHMM
from skvrem.hmm import Regression

rng = np.random.default_rng(0)
slopes, biases = np.array([5.0, 0.5, 0.5]), np.array([0.0, -2.0, 2.0])
stay = np.array([[0.97, 0.015, 0.015], [0.04, 0.95, 0.01], [0.04, 0.01, 0.95]])
n_sessions, n_trials = 12, 250
states = []
for _ in range(n_sessions):
    state = [0]
    for _ in range(n_trials - 1):
        state.append(rng.choice(3, p=stay[state[-1]]))
    states += state
states = np.array(states)
stimulus = rng.choice(
    [-1.0, -0.5, -0.25, -0.12, 0.12, 0.25, 0.5, 1.0], size=len(states)
)
chance = 1 / (1 + np.exp(-slopes[states] * stimulus - biases[states]))
right = (rng.uniform(size=len(states)) < chance).astype(float)
trials = np.column_stack([right, stimulus])
lengths = [n_trials] * n_sessions

# %%
# One regression, or three?
# -------------------------
# The first column is the choice, the second what it depends on.

choices = Regression("bernoulli", covariates=[1])
fits = {
    n: VRHMM(n, emission=choices, random_state=0).fit(trials, lengths=lengths)
    for n in (1, 2, 3, 4)
}
for n, fit in fits.items():
    print(f"{n} states: BIC {fit.bic(trials, lengths=lengths):.0f}")

hmm = fits[3]
engaged = hmm.emission_.coef_.ravel().argmax()
by_side = np.argsort(hmm.emission_.intercept_.ravel())
hmm.relabel([engaged, *by_side[by_side != engaged]])
print(hmm.summary().round(2))

# %%
# Psychometric curves
# -------------------
# What each state answers by the stimulus, and a session in which the states change.

grid = np.linspace(-1, 1, 100)
slope, bias = hmm.emission_.coef_.ravel(), hmm.emission_.intercept_.ravel()
figure, (left, below) = plt.subplots(
    1, 2, figsize=(10, 3.6), width_ratios=[1, 2], layout="constrained"
)
for state in range(3):
    curve = 1 / (1 + np.exp(-slope[state] * grid - bias[state]))
    left.plot(grid, curve, label=f"state {state}")
truth = 1 / (1 + np.exp(-slopes * grid[:, None] - biases))
left.plot(grid, truth, "k--", lw=0.8)
left.set(xlabel="stimulus, left to right", ylabel="answers right")
left.legend(fontsize="small")
session = slice(0, n_trials)
probabilities = hmm.predict_proba(trials, lengths=lengths)[session]
below.stackplot(np.arange(n_trials), probabilities.T)
below.set(xlabel="trial", ylabel="probability of the states", ylim=(0, 1))
plt.show()

# %%

best = hmm.predict(trials, lengths=lengths)
print(f"{np.mean(best == states):.0%} of the trials are told right")
