"""
VRHMM: kinds of dives of a whale, and phases within
===================================================

A recorder on a whale notes the change of depth every few seconds. Dives are of several
kinds, and each goes down, stays, and comes up. A hierarchical hidden Markov model has
both: a state is a kind of dive and a phase of it. The model is that of the case study
of Sidrow et al. (2024), on simulated dives.
"""

import matplotlib.pyplot as plt
import numpy as np

from skvrem import VRHMM, ConvergenceDisplay
from skvrem.hmm import Bernoulli, Gaussian, Hierarchical, Product

# %%
# Data
# ----
#
# 150 dives of two kinds: shallow ones to breathe and deep ones to hunt. The second
# column is 1 in the last row of a dive.

rng = np.random.default_rng(0)
rates = np.array([[1.5, 0.0, -1.5], [6.0, 0.5, -5.0]])
noise = np.array([[0.6, 0.5, 0.6], [1.5, 3.0, 1.5]])
lengths = np.array([[5, 4, 5], [25, 40, 30]])

kind, rows, states = 0, [], []
for _ in range(150):
    kind = rng.choice(2, p=[[0.8, 0.2], [0.5, 0.5]][kind])
    phases = np.repeat(np.arange(3), rng.poisson(lengths[kind]) + 1)
    change = rates[kind, phases] + noise[kind, phases] * rng.normal(size=len(phases))
    end = np.arange(len(phases)) == len(phases) - 1
    rows.append(np.column_stack([change, end]))
    states.append(3 * kind + phases)
X, states = np.concatenate(rows), np.concatenate(states)

# %%
# The model
# ---------
#
# Within a dive phases only go on; where a dive ends, the next begins with its first
# phase. Only last phases can end a dive: the probability of that is fixed at 0
# elsewhere.

ends = np.tile([[0.0], [0.0], [np.nan]], (2, 1))
emission = Product([("change", Gaussian(), [0]), ("end", Bernoulli(ends), [1])])
transitions = Hierarchical(2, 3, boundary=1, upper_triangular=True, observed=True)
hmm = VRHMM(6, emission=emission, transitions=transitions, random_state=0).fit(X)

# States have no order of their own: here kinds are put by how fast they go down.
if hmm.emission_["change"].mean_[0, 0] > hmm.emission_["change"].mean_[3, 0]:
    hmm.relabel([3, 4, 5, 0, 1, 2])
print(hmm.summary())
print("from kind to kind:")
print(hmm.transitions_.coarse_transmat_.round(2))
path = hmm.predict(X)
print(
    f"{np.mean(path // 3 == states // 3):.1%} of the kinds are right, "
    f"{np.mean(path == states):.1%} of the phases"
)

# %%
# The first dives
# ---------------

depth = -np.concatenate([np.cumsum(row[:, 0]) for row in rows])
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
time = np.arange(600)
ax.plot(time, depth[:600], color="0.8")
for state in range(6):
    here = path[:600] == state
    name = f"{('shallow', 'deep')[state // 3]}, {('down', 'bottom', 'up')[state % 3]}"
    ax.scatter(time[here], depth[:600][here], s=6, label=name)
ax.set(xlabel="row", ylabel="depth")
ax.legend(ncols=2)
plt.show()

# %%
# Solvers
# -------
#
# All of them come to the same model; incremental passes over blocks of rows need fewer
# than Baum-Welch.

figure, ax = plt.subplots(layout="constrained")
for solver in ("batch", "incremental"):
    model = VRHMM(
        6,
        emission=emission,
        transitions=transitions,
        solver=solver,
        n_init=1,
        random_state=0,
    ).fit(X)
    ConvergenceDisplay.from_estimator(model, ax=ax, name=solver)
    print(f"{solver}: {model.log_likelihood_:.5f} nats a row")
plt.show()
