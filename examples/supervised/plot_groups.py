"""
HierarchicalSoftmaxClassifier: users who have rated little
==========================================================

Ratings of films depend on taste. A fit to each user alone knows nothing of those who
have rated five films; one fit to all knows no tastes. Coefficients by user that are
drawn from a population are between the two, by as much as each user's rows deserve.
The ratings here are simulated, so that the tastes are known.
"""

from itertools import pairwise

import numpy as np
from matplotlib import pyplot as plt
from sklearn.linear_model import LogisticRegression

from skvrem import ConvergenceDisplay, HierarchicalSoftmaxClassifier

rng = np.random.default_rng(0)
n_users, genres = 150, ["action", "comedy", "drama", "horror"]
taste = rng.normal([0.5, 0.0, 0.5, -1.0], [0.2, 0.8, 0.8, 1.5], (n_users, 4))
n_rated = np.round(np.exp(rng.uniform(np.log(4), np.log(120), n_users))).astype(int)
user = np.repeat(np.arange(n_users), n_rated)


def rate(user):
    """Draw films with one to four genres, and who liked them: 0, 1 or 2 stars."""
    films = rng.uniform(size=(user.size, 4)) < 0.4
    liking = np.sum(films * taste[user], axis=1) + rng.logistic(size=user.size)
    return films.astype(float), np.digitize(liking, [-0.7, 0.7])


X, y = rate(user)
model = HierarchicalSoftmaxClassifier().fit(X, y, groups=user)
print(model.summary())

# %%
# Log-loss on new films, by how many each user has rated before: of one fit to all, of
# fits to each user alone, and of coefficients by user.

new_user = np.repeat(np.arange(n_users), 60)
new_X, new_y = rate(new_user)


def loss(p):
    """Minus the log probability of what users gave."""
    return -np.log(p[np.arange(len(p)), new_y])


found = {"all users as one": loss(LogisticRegression().fit(X, y).predict_proba(new_X))}
alone = np.empty((len(new_X), 3))
for number in range(n_users):
    own, new = user == number, new_user == number
    if len(set(y[own])) == 3:
        alone[new] = LogisticRegression().fit(X[own], y[own]).predict_proba(new_X[new])
    else:  # a rating that the user has not given yet
        alone[new] = (np.bincount(y[own], minlength=3) + 1.0) / (own.sum() + 3.0)
found["each user alone"] = loss(alone)
found["drawn from a population"] = loss(model.predict_proba(new_X, groups=new_user))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
edges = [4, 8, 16, 32, 64, 121]
for name, each in found.items():
    print(f"{name:<24} {each.mean():.4f}")
    means = [
        each[(n_rated[new_user] >= a) & (n_rated[new_user] < b)].mean()
        for a, b in pairwise(edges)
    ]
    left.plot(np.sqrt(np.multiply(edges[:-1], edges[1:])), means, "o-", label=name)
left.set(xscale="log", xlabel="films rated", ylabel="log-loss of new ratings")
left.legend()

# %%
# How far users differ, by genre, as it is learnt for the highest rating: horror divides
# them, action does not.

right.barh(genres, model.population_scale_[2], color="C2")
right.set(xlabel="scale of users' coefficients", title="two stars")
print(f"a user without ratings: {model.predict_proba(new_X[:1], [-1]).round(2)}")

# %%
# The fit: a bound without noise, until less than 0.01 nats are left to gain.

ConvergenceDisplay.from_estimator(model)
