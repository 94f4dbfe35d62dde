"""The tail of importance weights, against known tails and ArviZ's answers."""

import pickle

import numpy as np
import pytest
from scipy.stats import genpareto

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    VariationalInference,
)
from skvrem.exceptions import PosteriorWarning
from skvrem.vi.diagnostics._pareto import (
    generalized_pareto,
    pareto_k,
    smoothed_weights,
)


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
    k = pareto_k(log_ratios(name)).shape
    np.testing.assert_allclose(k, STORED[name], rtol=1e-6)
    assert pareto_k(log_ratios(name) + 100.0).shape == pytest.approx(k, rel=1e-9)


def test_degenerate_weights():
    assert pareto_k(np.zeros(100)) == (-np.inf, 0.0, 1.0)  # nothing to correct
    assert pareto_k([0.0, 1.0, 2.0, 3.0]).shape == np.inf  # no tail at all
    assert np.isnan(pareto_k([0.0, np.nan, 1.0]).shape)


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
    assert vars(model)["_pareto_k"].shape == k


@pytest.mark.parametrize("shape", [0.4, 0.9])
def test_the_error_is_that_of_repetitions(shape):
    rng = np.random.default_rng(0)
    found = [
        pareto_k(np.log(genpareto.rvs(shape, size=1000, random_state=rng)))
        for _ in range(200)
    ]
    errors = [tail.error for tail in found]
    spread = np.std([tail.shape for tail in found])
    assert 0.7 < np.mean(errors) / spread < 1.4


class Schools:
    """Eight schools, centred, by the logarithm of the scale: a funnel."""

    n_samples, n_parameters = 8, 10
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_likelihood(self, p, rows):
        return -0.5 * ((self.y - p[2:]) / self.sd)[rows] ** 2

    def gradient(self, p, rows):
        out = np.zeros(10)
        out[2 + rows] = ((self.y - p[2:]) / self.sd**2)[rows]
        return out

    def log_prior(self, p):
        mu, log_tau, theta = p[0], np.clip(p[1], -50.0, 50.0), p[2:]
        away = (theta - mu) * np.exp(-log_tau)
        value = -0.5 * (mu / 5.0) ** 2 - 0.5 * (log_tau - 1.0) ** 2
        return value - 0.5 * away @ away - 8.0 * log_tau

    def log_prior_gradient(self, p):
        mu, log_tau, theta = p[0], np.clip(p[1], -50.0, 50.0), p[2:]
        scale = np.exp(-2.0 * log_tau)
        pull = (theta - mu) * scale
        by_tau = 1.0 - log_tau + (theta - mu) @ pull - 8.0
        return np.concatenate([[pull.sum() - mu / 25.0, by_tau], -pull])


@pytest.mark.parametrize("seed", range(4))
def test_a_funnel_is_told(seed):
    model = VariationalInference(Schools(), random_state=seed)
    with pytest.warns(
        PosteriorWarning, match="far from the exact.*pareto_k_ is"
    ) as caught:
        model.fit()
    assert caught[0].filename == __file__
    assert model.pareto_k_ + model.pareto_k_se_ > 0.7 > model.pareto_k_se_ > 0.0
    assert "+-" in str(getattr(model.summary(), "attrs", model.summary()))


def test_many_rows_are_looked_at_seldom():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 2))
    y = (X[:, 0] + rng.normal(size=40_000) > 0.0).astype(int)
    model = BayesianLogisticRegression().fit(X, y)
    asked, joint = [], model._log_joint
    facts = getattr(model.summary(), "attrs", model.summary())
    assert "not computed" in str(facts)
    model._log_joint = lambda draws: (asked.append(len(draws)), joint(draws))[1]
    assert model.pareto_k_ < 0.7 and sum(asked) == 500
    assert model.pareto_k_se_ > 0.0 and "not computed" not in str(model.summary())


@pytest.mark.parametrize("seed", range(3))
def test_even_weights_have_no_heavy_tail(seed):
    """Of one coefficient few draws see a bend of the log density, no tail."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 1))
    y = rng.poisson(np.exp(1.0 + 0.5 * X[:, 0]))
    model = BayesianGLMRegressor("poisson", fit_intercept=False).fit(X, y)
    assert model.pareto_k_ + model.pareto_k_se_ < 0.7
    assert model._tail().efficiency > 0.99


def test_corrected_draws_are_nearer():
    """Than a Gaussian, to a posterior that leans: the log rate of few counts."""

    class Counts:
        n_samples, n_parameters = 3, 1

        def log_likelihood(self, p, rows):
            return np.array([0.0, 1.0, 0.0])[rows] * p[0] - np.exp(p[0])

        def gradient(self, p, rows):
            return np.array([np.sum(np.array([0.0, 1.0, 0.0])[rows] - np.exp(p[0]))])

    model = VariationalInference(Counts(), prior_scale=1.0, random_state=0).fit()
    grid = np.linspace(-12.0, 5.0, 20_001)
    density = np.exp(grid - 3.0 * np.exp(grid) - grid**2 / 2.0)
    density /= density.sum()
    mean = density @ grid
    third = density @ (grid - mean) ** 3
    draws = [
        model.sample_posterior(20_000, random_state=0, corrected=c)["parameters"][:, 0]
        for c in (False, True)
    ]
    far = [abs(np.mean((one - mean) ** 3) / third - 1.0) for one in draws]
    assert far[1] < 0.2 < 0.6 < far[0] and abs(draws[1].mean() - mean) < 0.03


# arviz 0.23.4: the largest three of exp(arviz.psislw(log_ratios(name))[0]).
SMOOTHED = {
    "wide proposal": [0.001005066810190329, 0.001005066810190329, 0.001005066810190329],
    "narrow proposal": [0.00884434368006058, 0.01200225809050021, 0.02315305483032649],
    "student": [0.002481783669559183, 0.01655045465975981, 0.9796287423601945],
}


def test_smoothed_weights_against_arviz():
    for name, stored in SMOOTHED.items():
        found = np.sort(smoothed_weights(log_ratios(name)))[-3:]
        np.testing.assert_allclose(found, stored, rtol=1e-5)
