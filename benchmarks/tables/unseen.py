"""What defaults cost on rows that no fit has seen, beside scikit-learn's.

Problems are drawn by number, forty of a kind, and every model is a default behind a
scaler, but for the prior of the logistic regression that is learned. Skills are beside
choix, eighty problems of each spread.

- Networks: clusters of each class at corners of a cube, shells, moons or circles, 40 to
  1,000 rows, noise columns among them; larger ones have up to 2,000, and twelve more
  up to 20,000.
- Regression, classification: linear predictors of 30 to 2,000 rows with 2 to 200
  columns, fewer rows than columns too, correlated or not, some or all of them without
  effect; noise from little to more than there is signal. Of many classes there are 8 to
  30, ten to thirty rows of each, twelve problems: clusters, and linear predictors of
  all columns.
- Skills: 5 to 100 players of one to thirty matches each on average, with anyone or with
  their three next ones only; log-loss is expected, over pairs of all who have played.
  The prior of choix with alpha=0.5 is N(0, 1), whose posterior's peak it finds.
- Groups: 3 classes, 20 groups of ten to a hundred rows with 5, 30 or 100 columns, whose
  coefficients differ by half as much as they lie from zero; chance is 1.10. Features
  have deviations from .1 to 1,000 where they are said to have units. Pooled is one
  regression of all rows, by group one with columns for the differences of every group.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import expit
from sklearn.datasets import (
    make_blobs,
    make_circles,
    make_classification,
    make_gaussian_quantiles,
    make_moons,
)
from sklearn.linear_model import (
    BayesianRidge,
    LogisticRegression,
    LogisticRegressionCV,
    RidgeCV,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Row, group, quiet
from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BradleyTerry,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
)

UNSEEN, PROBLEMS, FEW = 4000, 40, 12


def clusters(number, sizes=(1.6, 3.0)):
    """Return rows and classes to learn from, and unseen ones.

    sizes: the least and the most rows to learn from, in powers of ten.
    """
    rng = np.random.default_rng([23, number])
    n, seed = int(10.0 ** rng.uniform(*sizes)), int(rng.integers(1 << 30))
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


def linear(number):
    """Return rows to learn from, unseen ones, and predictors of each, k columns."""
    rng = np.random.default_rng([24, number])
    n, d = int(10.0 ** rng.uniform(1.5, 3.3)), int(rng.choice([2, 8, 30, 100, 200]))
    X = rng.normal(size=(n + UNSEEN, d))
    if rng.uniform() < 0.4:
        X = X @ (rng.normal(size=(d, d)) / np.sqrt(d))
    of_effect = rng.uniform(size=(d, 1)) < rng.choice([0.2, 1.0])
    W = rng.normal(size=(d, int(rng.choice([2, 2, 3, 5])))) * of_effect / np.sqrt(d)
    return X[:n], X[n:], X @ W * rng.choice([0.3, 1.0, 5.0]), rng


def numbers(number):
    """Return rows and targets to learn from, and unseen ones."""
    X, X_new, Z, rng = linear(number)
    y = Z[:, 0] + rng.normal(size=len(Z))
    return X, X_new, y[: len(X)], y[len(X) :]


def classes(number):
    """Return rows and classes to learn from, and unseen ones."""
    X, X_new, Z, rng = linear(number)
    y = (Z + rng.gumbel(size=Z.shape)).argmax(axis=1)
    y[: Z.shape[1]] = np.arange(Z.shape[1])
    return X, X_new, y[: len(X)], y[len(X) :]


def many(number):
    """Return rows of many classes to learn from, and unseen ones."""
    rng = np.random.default_rng([25, number])
    k, d = int(rng.integers(8, 31)), int(rng.choice([5, 20, 60]))
    n, seed = k * int(rng.integers(10, 31)), int(rng.integers(1 << 30))
    if number % 2:
        X, y = make_blobs(n + UNSEEN, d, centers=k, random_state=seed)
    else:
        X = rng.normal(size=(n + UNSEEN, d))
        Z = X @ rng.normal(size=(d, k)) * rng.choice([1.0, 3.0]) / np.sqrt(d)
        y = (Z + rng.gumbel(size=Z.shape)).argmax(axis=1)
        y[:k] = y[n : n + k] = np.arange(k)
    return X[:n], X[n:], y[:n], y[n:]


def compared(run, models, problem: Callable, loss: Callable, problems=PROBLEMS):
    """Yield a row a model: the mean of its losses over problems."""
    losses: dict[str, list] = {name: [] for name in models}
    seconds: dict[str, list] = {name: [] for name in models}
    for number in range(run.size(problems, 4)):
        X, X_new, y, y_new = problem(number)
        for name, model in models.items():
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.perf_counter()
                fit = make_pipeline(StandardScaler(), model).fit(X, y)
            seconds[name].append(time.perf_counter() - began)
            losses[name].append(loss(fit, X_new, y_new))
    least = np.min(list(losses.values()), axis=0)
    for name, own in losses.items():
        best = np.mean(np.array(own) <= least + 1e-3)
        yield Row(
            name,
            float(np.mean(own)),
            "",
            note=f"{len(own)} problems; in {best:.0%} at most .001 above the least; a "
            f"fit {1e3 * np.median(seconds[name]):.0f} ms, at most "
            f"{np.max(seconds[name]):.1f} s, what is compiled included",
            numbers={"losses": own, "seconds": seconds[name]},
            key=name,
        )


def of_classes(fit, X, y):
    """Return the log-loss, nats a row."""
    return log_loss(y, fit.predict_proba(X))


def of_numbers(fit, X, y):
    """Return the mean square of errors, as a share of that of the targets."""
    return float(np.mean((fit.predict(X) - y) ** 2) / np.var(y))


@group()
def networks(run):
    """Log-loss of networks on few rows, nats a row."""
    models = {
        "GaussianDropoutClassifier": GaussianDropoutClassifier(random_state=0),
        "the same, alpha=1": GaussianDropoutClassifier(alpha=1.0, random_state=0),
        "MLPClassifier": MLPClassifier(random_state=0),
        "LogisticRegression": LogisticRegression(),
    }
    yield from compared(run, models, clusters, of_classes)


@group()
def larger(run):
    """Log-loss of networks on 1,000 to 2,000 rows, nats a row."""
    problems = partial(clusters, sizes=(3.0, np.log10(2000)))
    yield from compared(run, beside_steps(), problems, of_classes)


@group()
def largest(run):
    """Log-loss of networks on 2,000 to 20,000 rows, nats a row."""
    problems = partial(clusters, sizes=(np.log10(2000), np.log10(20_000)))
    yield from compared(run, beside_steps(), problems, of_classes, FEW)


def beside_steps():
    """Return networks by full passes, by minibatches, and scikit-learn's."""
    steps = GaussianDropoutClassifier(solver="stochastic", random_state=0)
    return {
        "GaussianDropoutClassifier": GaussianDropoutClassifier(random_state=0),
        "the same, solver='stochastic'": steps,
        "MLPClassifier": MLPClassifier(random_state=0),
    }


@group()
def regression(run):
    """Mean square of errors, as a share of that of the targets."""
    models = {
        "BayesianGLMRegressor": BayesianGLMRegressor(),
        "the same, prior_scale='auto'": BayesianGLMRegressor(prior_scale="auto"),
        "BayesianRidge": BayesianRidge(),
        "RidgeCV, 13 strengths": RidgeCV(np.logspace(-3, 3, 13)),
    }
    yield from compared(run, models, numbers, of_numbers)


@group()
def classification(run):
    """Log-loss, nats a row."""
    fixed = BayesianLogisticRegression(prior_scale=1.0)
    models = {
        "BayesianLogisticRegression": BayesianLogisticRegression(),
        "BayesianLogisticRegression, prior_scale=1.0": fixed,
        "LogisticRegression": LogisticRegression(max_iter=1000),
        "LogisticRegressionCV, 10 strengths": LogisticRegressionCV(
            scoring="neg_log_loss", max_iter=1000
        ),
    }
    yield from compared(run, models, classes, of_classes)


@group()
def many_classes(run):
    """Log-loss of 8 to 30 classes, nats a row."""
    models = {
        "BayesianLogisticRegression": BayesianLogisticRegression(random_state=0),
        "LogisticRegression": LogisticRegression(max_iter=1000),
        "LogisticRegressionCV, 10 strengths": LogisticRegressionCV(
            scoring="neg_log_loss", max_iter=1000
        ),
    }
    yield from compared(run, models, many, of_classes, FEW)


def tournament(number, spread):
    """Return winners and losers, unseen pairs, and the chance of the first of these."""
    rng = np.random.default_rng([29, number])
    n = int(rng.choice([5, 10, 20, 50, 100]))
    m, skill = int(n * rng.choice([0.5, 1.5, 5, 15])), spread * rng.normal(size=n)
    first, reach = rng.integers(n, size=m), int(rng.choice([3, n - 1]))
    pairs = np.stack([first, (first + rng.integers(1, reach + 1, m)) % n], axis=1)
    lost = rng.logistic(size=m) > -np.diff(skill[pairs])[:, 0]
    pairs[lost] = pairs[lost, ::-1]
    new = rng.choice(np.unique(pairs), (2000, 2))
    new = new[new[:, 0] != new[:, 1]]
    return pairs, new, expit(-np.diff(skill[new])[:, 0])


@group(["0.1", "0.3", "1", "3"])
def skills(run, spread):
    """Skills: log-loss above that of the true probabilities, nats a match."""
    import choix

    def ours(pairs, new, prior_scale):
        return BradleyTerry(prior_scale).fit(pairs).predict_proba(new)[:, 1]

    def theirs(pairs, new, fit, alpha):
        found = fit(pairs.max() + 1, pairs.tolist(), alpha=alpha)
        return expit(-np.diff(found[new])[:, 0])

    models = {
        "BradleyTerry": (ours, "learn"),
        "BradleyTerry(1.0)": (ours, 1.0),
        "choix, opt_pairwise, alpha=0.5": (theirs, choix.opt_pairwise, 0.5),
        "choix, ilsr_pairwise, alpha=0.01": (theirs, choix.ilsr_pairwise, 0.01),
    }
    losses: dict[str, list] = {name: [] for name in models}
    for number in range(run.size(2 * PROBLEMS, 4)):
        pairs, new, p = tournament(number, float(spread))
        for name, (model, *how) in models.items():
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                q = np.clip(model(pairs, new, *how), 1e-12, 1.0 - 1e-12)
            worse = p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q))
            losses[name].append(float(worse.mean()))
    for name, own in losses.items():
        more = np.subtract(own, losses["BradleyTerry"])
        error = more.std() / np.sqrt(len(more))
        than = f"; {more.mean():+.4f} +- {error:.4f} more than by default"
        yield Row(
            f"spread {spread}: {name}",
            float(np.mean(own)),
            "",
            note=f"{len(own)} problems{than * (name != 'BradleyTerry')}",
            numbers={"losses": own},
            key=name,
        )


#: Columns, rows of a group, size of the signal, and whether features have units.
GROUPED = {
    "5 columns": (5, 60, 2.0, False),
    "5 columns, few rows": (5, 10, 2.0, False),
    "5 columns with units": (5, 10, 2.0, True),
    "30 columns": (30, 60, 3.0, False),
    "30 columns, little signal": (30, 60, 0.3, False),
    "100 columns, few rows": (100, 10, 1.0, False),
    "100 columns": (100, 100, 2.0, False),
}


def of_groups(number, d, each, size, units, n_groups=20):
    """Return rows, classes and groups to learn from, and unseen ones."""
    rng = np.random.default_rng([31, number, d, each])
    mean, away = rng.normal(size=(2, n_groups, d + 1, 3)) * size / np.sqrt(d)
    coefficients = mean[:1] + 0.5 * away
    n = n_groups * each
    X, group = rng.normal(size=(n + UNSEEN, d)), np.arange(n + UNSEEN) % n_groups
    z = np.einsum("nj,njk->nk", X, coefficients[group, :d]) + coefficients[group, d]
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    if units:
        X = X * 10.0 ** rng.uniform(-1.0, 3.0, d)
    return (X[:n], y[:n], group[:n]), (X[n:], y[n:], group[n:])


def beside_groups(X, group):
    """Return rows with the differences of every group as columns."""
    own = np.eye(group.max() + 1)[group]
    products = own[:, :, None] * X[:, None]
    return np.column_stack([X, own, products.reshape(len(X), -1)])


@group(list(GROUPED))
def groups(run, kind):
    """Coefficients by group: log-loss, nats a row; sklearn's behind a scaler."""

    def ours(seen, new, prior_scale):
        model = HierarchicalSoftmaxClassifier(prior_scale=prior_scale)
        X, y, groups = seen
        return model.fit(X, y, groups=groups).predict_proba(new[0], groups=new[2])

    def theirs(seen, new, columns):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        X, X_new = (columns(rows, groups) for rows, _, groups in (seen, new))
        return model.fit(X, seen[1]).predict_proba(X_new)

    models = {
        "HierarchicalSoftmaxClassifier": (ours, "learn"),
        "HierarchicalSoftmaxClassifier(prior_scale=1)": (ours, 1.0),
        "LogisticRegression, pooled": (theirs, lambda X, groups: X),
        "LogisticRegression, by group": (theirs, beside_groups),
    }
    problems = [of_groups(number, *GROUPED[kind]) for number in range(run.size(2, 1))]
    for name, (model, how) in models.items():
        losses, seconds = [], []
        for seen, new in problems:
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.perf_counter()
                p = model(seen, new, how)
            seconds.append(time.perf_counter() - began)
            losses.append(log_loss(new[1], p))
        yield Row(
            f"{kind}: {name}",
            float(np.mean(losses)),
            "",
            note=f"{len(losses)} problems; fit and answers {np.median(seconds):.2f} s",
            numbers={"losses": losses, "seconds": seconds},
            key=name,
        )
