"""Bayesian PPCA of MNIST beside scikit-learn.

60,000 standardised rows of 784 pixels, 16 components, noise variance 1 and the prior
N(0, 1) as in section 7 of Wang, Geffner and Domke (2024). ELBOs come with the standard
error that their draws leave. Densities of rows are not comparable between constant
pixels with noise and, in FactorAnalysis, without.
"""

from functools import partial

import numpy as np
from sklearn.decomposition import PCA, FactorAnalysis

from benchmarks.harness import Row, data, fastest, group
from skvrem import BayesianPPCA

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
