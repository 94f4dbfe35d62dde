"""
SBMLogisticRegression: a stream of clicks, without a step size
==============================================================

Advertisements are shown by the million and clicked by few; columns are measured in
whatever unit came first, and what users like changes slowly. A model that learns from
such a stream usually has a step size, and the step size has to be found.

:meth:`SBMLogisticRegression.partial_fit <skvrem.SBMLogisticRegression.partial_fit>`
has none: each block moves the model by its share in all rows seen, in the metric of the
curvature of all rows seen. Here it is beside ``SGDClassifier`` with several of its
settings, on rows as they are and on standardised ones.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.linear_model import SGDClassifier

from skvrem import SBMLogisticRegression

rng = np.random.default_rng(0)
n, d = 100_000, 30
unit = 10.0 ** rng.uniform(-2, 2, size=d)
mix = np.eye(d) + 0.5 * rng.normal(size=(d, d)) / np.sqrt(d)
latent = rng.normal(size=(n + 20_000, d)) @ mix
weights = rng.normal(size=d) / np.sqrt(d) * 1.5
clicked = rng.uniform(size=len(latent)) < 1 / (1 + np.exp(3.5 - latent @ weights))
X, y = latent * unit, clicked.astype(int)
X, X_test, y, y_test = X[:n], X[n:], y[:n], y[n:]
print(f"{100 * y.mean():.1f} % of the rows are clicks")

# %%
# Every model sees each block of 500 rows once. What counts is the log-loss on rows to
# come; it is held against that of the fit to all rows at once.


def log_loss(model, rows):
    z = model.decision_function(rows)
    return np.mean(np.logaddexp(0.0, z) - y_test * z)


def follow(model, rows, test):
    curve = []
    for start in range(0, n, 500):
        block = slice(start, start + 500)
        model.partial_fit(rows[block], y[block], classes=[0, 1])
        if start % 5000 == 4500:
            curve.append(log_loss(model, test))
    return curve


spread = X[:5000].std(axis=0)
best = log_loss(SBMLogisticRegression().fit(X, y), X_test)
curves = {"SBM, rows as they are": follow(SBMLogisticRegression(), X, X_test)}
for eta in (0.001, 0.01, 0.1):
    sgd = SGDClassifier(
        "log_loss", alpha=1 / n, learning_rate="invscaling", eta0=eta, random_state=0
    )
    curves[f"SGD, standardised, eta0={eta}"] = follow(sgd, X / spread, X_test / spread)

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
seen = np.arange(1, len(curves["SBM, rows as they are"]) + 1) * 5000
for label, curve in curves.items():
    ax.plot(seen, np.array(curve) - best, marker=".", label=label)
ax.set(xlabel="rows seen", ylabel="test log-loss above that of the fit to all rows")
ax.set_yscale("symlog", linthresh=1e-4)
ax.legend()

# %%
# The order of the rows matters little either. Sorted by class, with all that were not
# clicked first, is the worst that a stream can do:

order = np.argsort(y, kind="stable")
model = SBMLogisticRegression()
for start in range(0, n, 500):
    block = order[start : start + 500]
    model.partial_fit(X[block], y[block], classes=[0, 1])
print(f"log-loss {log_loss(model, X_test):.4f}, all rows at once {best:.4f}")

# %%
# Regularisation paths
# --------------------
# Each value of C starts from the last solution.

path = SBMLogisticRegression(warm_start=True)
steps, norms = [], []
strengths = np.geomspace(1e-4, 1e2, 13)
for C in strengths:
    path.set_params(C=C).fit(X / spread, y)
    steps.append(int(path.n_iter_[0]))
    norms.append(np.linalg.norm(path.coef_))
print("steps:", steps)

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.semilogx(strengths, norms, marker=".")
ax.set(xlabel="C", ylabel="norm of the coefficients")
plt.show()
