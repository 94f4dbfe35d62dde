"""
BradleyTerry: a tennis ranking with intervals
=============================================

Who is the best player of a tour, and how sure can one be? Points and ratings are single
numbers. :class:`~skvrem.BradleyTerry` gives every player a skill with a standard
deviation, and answers the question itself: how probable is it that a player is best?

The tour is simulated here; any list of winners and losers will do. All 169,404 matches
of the ATP that Jeff Sackmann has collected (Tennis Abstract), of 5,524 players, take a
third of a second.
"""

import numpy as np
from matplotlib import pyplot as plt

from skvrem import BradleyTerry


def simulate(n_players=300, n_tournaments=120, seed=0):
    """Play knock-out tournaments of 32; better players are asked more often."""
    rng = np.random.default_rng(seed)
    skill = np.sort(rng.normal(size=n_players))[::-1]
    chance = np.exp(0.8 * skill)
    names = np.array([f"player {i + 1:03d}" for i in range(n_players)])
    matches = []
    for _ in range(n_tournaments):
        players = rng.choice(n_players, 32, replace=False, p=chance / chance.sum())
        while players.size > 1:
            a, b = players.reshape(2, -1)
            first = rng.uniform(size=a.size) < 1 / (1 + np.exp(skill[b] - skill[a]))
            winners = np.where(first, a, b)
            matches += list(zip(winners, np.where(first, b, a), strict=True))
            players = winners
    return names[np.array(matches)]


matches = simulate()
print(f"{len(matches)} matches of {np.unique(matches).size} players")

# %%
# The winner stands first in every row, so no y is needed. Players of few matches stay
# near the others of the tour: their skill has the prior's standard deviation still.

model = BradleyTerry().fit(matches)
print(model.ranking(top=10))

# %%
# Intervals of single players say how well each is known. Those of two players may
# overlap although one is better with near certainty.

best = np.argsort(-model.skill_)[:20]
figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
ax.errorbar(
    model.skill_[best],
    np.arange(20),
    xerr=1.96 * model.skill_std_[best],
    fmt="o",
    capsize=3,
)
ax.set_yticks(np.arange(20), model.items_[best])
ax.invert_yaxis()
ax.set_xlabel("skill, with 95 % intervals (1 is odds of 2.7 against 1)")

names = model.items_[best]
for name in names[1:4]:
    gap = model.difference_interval(names[0], name)
    print(f"{names[0]} - {name}: {gap.mean:.2f}, {gap.lower:.2f} to {gap.upper:.2f}")

# %%
# How probable each rank is, from draws of all skills together:

P = model.rank_probability(names[:10], random_state=0)
figure, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
image = ax.imshow(P, cmap="Blues", vmin=0.0)
ax.set_yticks(np.arange(10), names[:10])
ax.set_xticks(np.arange(10), np.arange(1, 11))
ax.set_xlabel("rank among these ten")
figure.colorbar(image, label="probability")

# %%
# A new player is not an error but an open question: the probability is that of the
# prior. And what is little known is not predicted with confidence. A plug-in of the
# means is surer than it should be.

few = model.items_[np.argmin(model.n_matches_ + 1e6 * (model.skill_ > -0.5))]
pairs = [(names[0], names[1]), (names[0], few), (names[0], "a new player")]
for pair, averaged, plugin in zip(
    pairs,
    model.predict_proba(pairs)[:, 1],
    model.predict_proba(pairs, method="plugin")[:, 1],
    strict=True,
):
    print(f"{pair[0]} beats {pair[1]}: {averaged:.3f} (plug-in {plugin:.3f})")

# %%
# The spread of the tour, a parameter of the prior, has been learned with the skills. A
# search by held-out matches comes to the same.

order = np.random.default_rng(0).permutation(len(matches))
train, test = np.split(order, [int(0.8 * order.size)])
print(f"learned: {model.prior_scale_:.2f}")
for scale in (0.25, 0.5, 1.0, 2.0, "learn"):
    score = BradleyTerry(prior_scale=scale).fit(matches[train]).score(matches[test])
    print(f"prior_scale={scale}: {score:.4f} nats a held-out match")
plt.show()
