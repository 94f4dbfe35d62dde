"""The tail of importance weights, against known tails and ArviZ's answers."""

import pickle

import numpy as np
import pytest
from scipy.stats import genpareto

from skvrem import BayesianLogisticRegression
from skvrem.vi.diagnostics._pareto import generalized_pareto, pareto_k


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.4, 0.9])
def test_fit_finds_the_shape(shape):
    n = 20_000
    x = genpareto.rvs(shape, scale=2.0, size=n, random_state=0)
    found, scale = generalized_pareto(x)
    # The asymptotic sd of the maximum-likelihood shape is (1 + k) / sqrt(n).
    assert abs(found - shape) < 4.0 * (1.0 + abs(shape)) / np.sqrt(n) + 0.001
    assert abs(scale - 2.0) < 0.1


def log_ratios(name):
    rng = np.random.default_rng(3)
    if name == "wide proposal":
        z = 2.0 * rng.standard_normal(2000)
        return -0.5 * z**2 + 0.125 * z**2
    if name == "narrow proposal":
        z = 0.6 * rng.standard_normal(2000)
        return -0.5 * z**2 + 0.5 * (z / 0.6) ** 2
    return rng.standard_t(2.0, size=500)


# arviz 0.23.4: k of arviz.psislw(log_ratios(name)).
STORED = {
    "wide proposal": -1.661337521688425,
    "narrow proposal": 0.5986670257804463,
    "student": 3.7144695136232904,
}


@pytest.mark.parametrize("name", list(STORED))
def test_against_arviz(name):
    k = pareto_k(log_ratios(name))
    np.testing.assert_allclose(k, STORED[name], rtol=1e-6)
    assert pareto_k(log_ratios(name) + 100.0) == pytest.approx(k, rel=1e-9)


def test_degenerate_weights():
    assert pareto_k(np.zeros(100)) == np.inf  # no tail at all
    assert np.isnan(pareto_k([0.0, np.nan, 1.0]))


def test_the_answer_is_kept_until_the_next_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = (X[:, 0] + rng.normal(size=50) > 0.0).astype(int)
    model = BayesianLogisticRegression().fit(X, y)
    fitted = set(vars(model))
    k = model.pareto_k_
    assert set(vars(model)) - fitted == {"_pareto_k"}
    # Pickles have what has been asked for, though not the rows.
    again = pickle.loads(pickle.dumps(model))
    assert again.pareto_k_ == model.pareto_k_ == k
    for answer in (model.predict, model.predict_proba, model.predict_proba_interval):
        before = set(vars(again))
        answer(X)
        assert set(vars(again)) == before
    assert set(vars(model.fit(X, 1 - y))) == fitted
    assert model.partial_fit(X[:20], y[:20]).pareto_k_ != k
    # A fit that fails leaves it as it was.
    k = model.pareto_k_
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full_like(X, np.nan), y)
    assert vars(model)["_pareto_k"] == k
