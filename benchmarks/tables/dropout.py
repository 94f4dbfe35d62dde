"""Networks with Gaussian dropout beside scikit-learn's, on few rows.

Problems are drawn by number: clusters of each class at corners of a cube, shells,
moons or circles, 40 to 1,000 rows, noise columns among them. Every model is a default,
behind a scaler; what counts is the log-loss of 4,000 rows that no fit has seen.
"""

import warnings

import numpy as np
from sklearn.datasets import (
    make_circles,
    make_classification,
    make_gaussian_quantiles,
    make_moons,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Row, group, quiet
from skvrem import GaussianDropoutClassifier

UNSEEN, PROBLEMS = 4000, 40


def problem(number):
    """Return rows and classes to learn from, and unseen ones."""
    rng = np.random.default_rng([23, number])
    n, seed = int(10.0 ** rng.uniform(1.6, 3.0)), int(rng.integers(1 << 30))
    given = {"n_samples": n + UNSEEN, "random_state": seed}
    kind = number % 4
    if kind == 0:
        d = int(rng.choice([5, 20, 60]))
        X, y = make_classification(
            **given,
            n_features=d,
            n_informative=min(d, int(rng.choice([4, 10]))),
            n_redundant=0,
            n_classes=int(rng.choice([2, 3, 4])),
            flip_y=rng.choice([0.0, 0.05]),
        )
    elif kind == 1:
        d = int(rng.choice([2, 4, 8]))
        k = int(rng.choice([2, 3]))
        X, y = make_gaussian_quantiles(**given, n_features=d, n_classes=k)
    elif kind == 2:
        X, y = make_moons(**given, noise=rng.uniform(0.1, 0.4))
    else:
        X, y = make_circles(**given, noise=rng.uniform(0.05, 0.2), factor=0.5)
    return train_test_split(X, y, train_size=n, stratify=y, random_state=seed)


@group()
def unseen(run):
    """Log-loss of rows that no fit has seen, nats: the mean over problems."""
    models = {
        "GaussianDropoutClassifier": GaussianDropoutClassifier(random_state=0),
        "the same, alpha=1e-4": GaussianDropoutClassifier(alpha=1e-4, random_state=0),
        "MLPClassifier": MLPClassifier(random_state=0),
        "LogisticRegression": LogisticRegression(),
    }
    losses = {name: [] for name in models}
    for number in range(run.size(PROBLEMS, 4)):
        X, X_new, y, y_new = problem(number)
        for name, model in models.items():
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = make_pipeline(StandardScaler(), model).fit(X, y)
            losses[name].append(log_loss(y_new, fit.predict_proba(X_new)))
    least = np.min(list(losses.values()), axis=0)
    for name, own in losses.items():
        best = np.mean(own <= least)
        yield Row(
            name,
            float(np.mean(own)),
            "nats",
            note=f"{len(own)} problems, the least of all in {best:.0%}",
            numbers={"losses": own},
            key=name,
        )
