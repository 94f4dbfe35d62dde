"""
SBMLogisticRegression: coefficients with standard errors
========================================================

:class:`~skvrem.SBMLogisticRegression` minimises what
:class:`~sklearn.linear_model.LogisticRegression` does, with its parameters and fitted
attributes. It comes to the optimum in a few passes over the rows, and says how well
each coefficient is known.
"""

# %%
# Breast cancer
# -------------
# 569 tumours, thirty measurements of cells.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from skvrem import ConvergenceDisplay, SBMLogisticRegression

cancer = load_breast_cancer(as_frame=True)
X = StandardScaler().set_output(transform="pandas").fit_transform(cancer.data)
ours = SBMLogisticRegression(compute_std=True, tol=1e-10).fit(X, cancer.target)
theirs = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, cancer.target)
print(f"largest difference of coefficients {abs(ours.coef_ - theirs.coef_).max():.0e}")
print(f"{ours.n_iter_[0]} epochs beside {theirs.n_iter_[0]} iterations of lbfgs")

# %%
# What counts
# -----------
# A coefficient is worth looking at where it is more than two standard errors from zero.

table = ours.summary()
table = table.drop("intercept")
value, error = (table.iloc[:, column].to_numpy(float) for column in (0, 1))
order = np.argsort(value)
sure = np.abs(value) > 2.0 * error

figure, ax = plt.subplots(figsize=(7, 6), layout="constrained")
for shown, colour in ((sure, "C0"), (~sure, "C7")):
    at = np.flatnonzero(shown[order])
    rows = order[at]
    ax.errorbar(value[rows], at, xerr=2.0 * error[rows], fmt="o", color=colour)
ax.axvline(0.0, color="black", linewidth=0.8)
ax.set_yticks(np.arange(len(order)), table.index[order], fontsize=8)
ax.set_xlabel("log-odds of a benign tumour by standard deviation, ± 2 standard errors")
plt.show()

# %%
# Epochs
# ------
# The gap to the end, epoch by epoch.

ConvergenceDisplay.from_estimator(ours)
plt.show()
