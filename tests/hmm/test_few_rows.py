"""Starts of regressions whose states fit a few rows each."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from skvrem import VRHMM
from skvrem.hmm import Hierarchical, Homogeneous, Regression, _start, add_lags
from skvrem.hmm._input import open_rows
from skvrem.hmm._model import SHARED
from skvrem.hmm._start import starting_parameters, take_sample
from skvrem.hmm.emissions.densities._responses import Choice, Event


class OfClusters(Regression):
    few_rows = 0


@pytest.fixture
def no_single_rows(monkeypatch):
    """No clusters of single rows, which only families without few rows begin with."""
    monkeypatch.setattr(_start, "OF_ROWS", 1)


def begun(model, X, number=1, seed=0, **given):
    """Return the parameters of one start."""
    model._check_parameters()
    _, data, opened = open_rows(model, X, fresh=True, **given)
    rng = np.random.default_rng(seed)
    sample = take_sample(opened, data, rng)
    found = starting_parameters(opened, sample, "others", number, rng)
    return found, opened.emission


def lines(n=24):
    rng = np.random.default_rng(3)
    z = rng.normal(4.0, 2.0, n)
    y = np.where(np.arange(n) % 12 < 6, 1.0 + 2.0 * z, 9.0 - z) + rng.normal(size=n)
    return np.column_stack([y, z])


def test_states_fit_rows_that_follow_each_other():
    X = lines()
    y, design = X[:, 0], np.column_stack([np.ones(len(X)), X[:, 1]])
    size = 3
    (start, pairs, packed), emission = begun(
        VRHMM(2, emission=Regression("gaussian", [1], alpha=0.0)), X
    )
    assert emission.few_rows == size
    found = []
    for first in product(range(len(X) - size + 1), repeat=2):
        rows = np.add.outer(first, np.arange(size))
        fits = []
        for own in rows:
            picked = np.append(own, rows)
            weight = np.append(np.ones(size), np.full(2 * size, SHARED / 2))
            root = np.sqrt(weight)[:, None]
            line = np.linalg.lstsq(
                root * design[picked], root[:, 0] * y[picked], rcond=None
            )[0]
            left = np.square(y[picked] - design[picked] @ line)
            fits.append([*line, np.sqrt(np.average(left, weights=weight))])
        found.append(fits)
    distance = np.abs(np.array(found) - packed).max(axis=(1, 2))
    assert distance.min() < 1e-9
    # All rows are in the states of these lines.
    density = [stats.norm.logpdf(y, design @ own[:2], own[2]) for own in packed]
    states, counts = np.argmax(density, axis=0), np.ones((2, 2))
    np.add.at(counts, (states[:-1], states[1:]), 1.0)
    np.testing.assert_allclose(pairs, counts / counts.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(start, 0.5)


@pytest.mark.usefixtures("no_single_rows")
def test_one_of_four_starts_is_of_clusters():
    X = lines()
    for number in range(9):
        own, clustered = (
            begun(VRHMM(2, emission=kind("gaussian", [1])), X, number)[0].emission
            for kind in (Regression, OfClusters)
        )
        assert np.array_equal(own, clustered) == (number % 4 == 0)


@pytest.mark.parametrize("which", ["labels", "order", "segments"])
def test_states_that_something_tells_apart_are_found_by_clusters(which):
    X, given, how = lines(60), {}, {"n_components": 2}
    if which == "labels":
        given["state_labels"] = np.where(np.arange(60) < 9, np.arange(60) % 2, -1)
    elif which == "order":
        how["transitions"] = Homogeneous("left-right")
    else:
        X = np.column_stack([X, np.arange(60) % 6 == 5])
        how |= {"n_components": 4, "transitions": Hierarchical(2, 2, boundary=2)}
    own, clustered = (
        begun(VRHMM(**how, emission=kind("gaussian", [1])), X, **given)[0]
        for kind in (Regression, OfClusters)
    )
    for part, other in zip(own, clustered, strict=True):
        np.testing.assert_array_equal(part, other)


FAMILIES = ["gaussian", "poisson", "bernoulli", "gamma", "categorical", "vonmises"]


@pytest.mark.parametrize("family", FAMILIES)
def test_few_rows_leave_no_state_without_width(family):
    rng = np.random.default_rng(5)
    n, z = 120, rng.normal(size=(120, 2))
    draws = {
        "gaussian": lambda: np.round(rng.normal(size=n)),
        "poisson": lambda: rng.poisson(3.0, n),
        "bernoulli": lambda: rng.integers(2, size=n),
        "gamma": lambda: rng.gamma(2.0, size=n),
        "categorical": lambda: rng.integers(3, size=n),
        "vonmises": lambda: rng.vonmises(0.0, 2.0, n),
    }
    X = np.column_stack([draws[family](), z])
    X[::17, 0] = X[5::31, 1] = np.nan
    for seed in range(5):
        model = VRHMM(3, emission=Regression(family, [1, 2]))
        found, emission = begun(model, X, seed=seed)
        log_density = emission.columns(emission.enter(X), True, found.emission)
        assert np.isfinite(found.emission).all()
        # Of few rows, but not a world of its own: no row is out of the question.
        assert log_density.max(axis=1).min() > -1e3
        assert np.ptp(found.emission, axis=0).max() > 0.0


def test_given_coefficients_are_those_of_starts():
    X = lines()
    emission = Regression("gaussian", [1], coef_init=[[[2.0]], [[np.nan]]])
    found, emission = begun(VRHMM(2, emission=emission), X)
    _, coef, _ = emission._unpack(found.emission)
    assert coef[0, 0, 0] == 2.0 != coef[1, 0, 0]


def autoregression(seed, n=150):
    """Return a series of three autoregressions that take turns, with two lags."""
    rng = np.random.default_rng(seed)
    transmat = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    damping, angle = rng.uniform(0.5, 0.95, 3), rng.uniform(0.3, 1.2, 3)
    coef = np.column_stack([2.0 * damping * np.cos(angle), -np.square(damping)])
    intercept, sd = rng.normal(size=3), rng.uniform(0.2, 1.0, 3)
    y, state = np.zeros(n + 50), 0
    for t in range(2, len(y)):
        state = rng.choice(3, p=transmat[state])
        mean = intercept[state] + coef[state] @ y[[t - 1, t - 2]]
        y[t] = mean + sd[state] * rng.normal()
    return add_lags(y[50:, None], 2)


@pytest.mark.usefixtures("no_single_rows")
@pytest.mark.parametrize("seed", [1, 12])
def test_a_race_finds_higher_optima_of_switching_autoregressions(seed):
    X, fits = autoregression(seed), []
    for kind in Regression, OfClusters:
        emission = kind("gaussian", [1, 2])
        fits.append(VRHMM(3, emission=emission, random_state=0, n_jobs=1).fit(X))
    own, clustered = fits
    assert len(X) * (own.objective_ - clustered.objective_) > 1.0


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
def test_a_row_far_out_is_not_impossible(family):
    """States of few rows tell them apart; the others' probabilities are rounding."""
    rng = np.random.default_rng(0)
    wild = np.cumsum(rng.random(600) < 0.03) % 2
    z = 2.0 * rng.standard_t(2, 600)
    y = rng.random(600) < expit(np.where(wild, 0.5, -0.5) * z)
    X = np.column_stack([y, z])
    model = VRHMM(2, emission=Regression(family, [1]), random_state=0).fit(X)
    assert model.log_likelihood_ * 600 == pytest.approx(-367.4388, abs=1e-3)


@pytest.mark.parametrize("x", [0.0, 1.0])
def test_probabilities_of_rounding(x):
    """Of 0, 1 and between, beside those of log-odds."""
    p = np.array([0.0, 1e-300, 1e-9, 0.3, 1.0 - 1e-9, 1.0])
    found = Event().log_density(x, p)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[2:5], stats.bernoulli(p[2:5]).logpmf(x), rtol=1e-9)
    choice, logits = Choice(2), np.array([-800.0, -30.0, 0.2, 40.0, 800.0])
    choice.n_categories_ = 2
    exact = -np.logaddexp(0.0, logits if x == 0.0 else -logits)
    np.testing.assert_allclose(
        choice.log_density(np.full(5, x), logits), exact, rtol=1e-12, atol=1e-15
    )
