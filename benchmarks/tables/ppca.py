"""Bayesian PPCA beside scikit-learn.

MNIST: 60,000 standardised rows of 784 pixels, 16 components, noise variance 1 and the
prior N(0, 1) as in section 7 of Wang, Geffner and Domke (2024). ELBOs come with the
standard error that their draws leave. Densities of rows are not comparable between
constant pixels with noise and, in FactorAnalysis, without.
"""

from functools import partial

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.model_selection import GridSearchCV

from benchmarks.harness import Row, data, fastest, group
from skvrem import BayesianPPCA
from skvrem.vi.ppca._model_rotations import rotation_entropy

PPCA = partial(BayesianPPCA, 16, prior_scale=1.0, random_state=0)
ESTIMATORS = {
    "BayesianPPCA, learned noise": PPCA(),
    "BayesianPPCA, noise 1": PPCA(noise_variance=1.0),
    "BayesianPPCA, float32": PPCA(),
    "PCA(svd_solver='covariance_eigh')": PCA(16, svd_solver="covariance_eigh"),
    "FactorAnalysis": FactorAnalysis(16, random_state=0),
}


@group()
def fit(run):
    """Seconds of a fit to MNIST, 16 components, one thread."""
    X = data.mnist()[:: run.size(1, 30)].astype(np.float64)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    narrow = X.astype(np.float32)
    sides = {
        name: partial(model.fit, narrow if "float32" in name else X)
        for name, model in ESTIMATORS.items()
    }
    timed = fastest(sides, run)
    peers = dict(list(timed.seconds.items())[3:])
    for name in list(ESTIMATORS)[:3]:
        model = ESTIMATORS[name]
        yield Row(
            name,
            timed.seconds[name],
            "s",
            peers,
            note=f"ELBO {model.elbo_:,.2f} ({model.elbo_se_:.2f})",
            noise=timed.noise,
            key=name,
        )
    for name, model in ESTIMATORS.items():
        score = model.score(X[:10_000])
        yield Row(f"log density a row, {name}", score, "nats", key=f"density {name}")


#: Rows, features, components, and deviation of the loadings; that of the noise is 1.
NUMBERS = [
    (30, 20, 8, 1.0),
    (25, 25, 5, 1.0),
    (60, 15, 5, 1.0),
    (50, 40, 7, 0.7),
    (40, 10, 4, 0.7),
    (80, 50, 12, 0.8),
    (100, 20, 8, 0.4),
    (500, 30, 10, 0.3),
    (1000, 12, 3, 0.2),
]


@group({"-".join(map(str, case[:3])): case for case in NUMBERS})
def number(run, n_rows, n_features, n_components, length):
    """By how much the number of components is off, simulated, mean of 5 draws."""
    off, numbers = {}, range(1, min(n_components + 5, n_features))
    for seed in range(run.size(5, 2)):
        rng = np.random.default_rng(seed)
        loadings = length * rng.normal(size=(n_components, n_features))
        X = rng.normal(size=(n_rows, n_components)) @ loadings
        X += rng.normal(size=X.shape)
        fits = [BayesianPPCA(k, random_state=0).fit(X) for k in numbers]
        q = [(fit.posterior_, fit.components_.shape) for fit in fits]
        gained = [
            rotation_entropy(p.mean.reshape(shape), p.scale.reshape(shape))
            for p, shape in q
        ]
        elbos = np.array([fit.elbo_ for fit in fits])
        search = GridSearchCV(BayesianPPCA(random_state=0), {"n_components": numbers})
        found = {
            "elbo_": numbers[np.argmax(elbos)],
            "bound of one rotation": numbers[np.argmax(elbos - gained)],
            "score of five folds": search.fit(X).best_params_["n_components"],
        }
        if n_rows > n_features:
            found["PCA, Minka"] = PCA("mle").fit(X).n_components_
        for name, k in found.items():
            off.setdefault(name, []).append(abs(k - n_components))
    means = {name: float(np.mean(each)) for name, each in off.items()}
    label = f"{n_rows} rows, {n_features} features, {n_components} components"
    yield Row(f"{label} of {length}", means.pop("elbo_"), "", means, numbers=off)


#: Rows, features, components whose loadings are of the deviations k, k - 1, ..., 1.
LENGTHS = [
    (100, 200, 1),
    (1000, 1000, 1),
    (200, 200, 3),
    (60, 300, 3),
    (200, 1000, 3),
    (60, 30, 3),
    (2000, 100, 5),
]


@group({"-".join(map(str, case)): case for case in LENGTHS})
def lengths(run, n_rows, n_features, n_components):
    """By how much covariances of rows are off, of noise 1, mean of 6 draws.

    In the notes are squared lengths of components over those that there are, and the
    share of loadings that are within 1.96 standard deviations.
    """
    off, ratios, inside = {}, [], []
    for seed in range(run.size(6, 2)):
        rng = np.random.default_rng(seed)
        loadings = rng.normal(size=(n_components, n_features))
        loadings *= np.arange(n_components, 0.0, -1.0)[:, None]
        X = rng.normal(size=(n_rows, n_components)) @ loadings
        X += rng.normal(size=X.shape)
        truth = loadings.T @ loadings + np.eye(n_features)
        shared = np.sqrt(X.var(axis=0).mean() / n_components)
        model = BayesianPPCA(n_components, random_state=0)
        fits = {
            "BayesianPPCA": model.fit(X),
            "of one scale": clone(model).set_params(prior_scale=shared).fit(X),
            "PCA": PCA(n_components, svd_solver="full").fit(X),
        }
        for name, fit in fits.items():
            error = np.linalg.norm(fit.get_covariance() - truth)
            off.setdefault(name, []).append(error / np.linalg.norm(truth))
        squares = np.linalg.eigvalsh(loadings @ loadings.T)[::-1]
        ratios.append(np.square(model.components_).sum(axis=1) / squares)
        u, _, v = np.linalg.svd(model.components_ @ loadings.T)
        error = abs(model.components_ - u @ v @ loadings)
        inside.append(np.mean(error < 1.96 * model.components_std_))
    means = {name: float(np.mean(each)) for name, each in off.items()}
    label = f"{n_rows} rows, {n_features} features, {n_components} components"
    squares = ", ".join(f"{ratio:.2f}" for ratio in np.mean(ratios, axis=0))
    note = f"squares {squares}; within {np.mean(inside):.2f}"
    yield Row(label, means.pop("BayesianPPCA"), "", means, note=note)
