"""Mixtures of Gaussians as emissions: enumeration, hmmlearn, fits."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skvrem import VRHMM
from skvrem.hmm import Bernoulli, Homogeneous, MixtureGaussian, Product
from tests.hmm.hmmlearn_answers import LENGTHS, series
from tests.hmm.oracle import enumerate_paths, recursions

START = {
    "weight_init": [[0.6, 0.4], [0.5, 0.5]],
    "mean_init": [[[0.0, 0.0], [1.0, 1.0]], [[3.0, 1.0], [5.0, 2.0]]],
    "covariance_init": np.ones((2, 2, 2)),
}
KINDS = ("diag", "full", "tied", "spherical")


def crossed(n_runs=60, seed=0):
    """Two states of two components each that are closer to the other state's."""
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.integers(2, size=n_runs), 20)
    means = np.array([[[0.0, 0.0], [4.0, 4.0]], [[0.0, 4.0], [4.0, 0.0]]])
    component = rng.integers(2, size=len(states))
    return means[states, component] + 0.6 * rng.normal(size=(len(states), 2)), states


def crossed_start():
    return VRHMM(
        2,
        emission=MixtureGaussian(2, reg_covar=0.0, **START),
        transitions=Homogeneous(init=[[0.8, 0.2], [0.3, 0.7]]),
        startprob_init=[0.5, 0.5],
        n_init=1,
        solver="batch",
        tol=0.0,
        max_iter=1,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_components_are_found_by_what_follows_them(kind):
    X, states = crossed()
    model = VRHMM(2, emission=MixtureGaussian(2, kind), random_state=0).fit(X)
    agree = np.mean(model.predict(X) == states)
    assert max(agree, 1.0 - agree) > 0.99
    np.testing.assert_allclose(model.emission_.weight_, 0.5, atol=0.06)
    means = model.emission_.mean_.round().reshape(4, 2)
    assert {tuple(np.abs(m)) for m in means} == {(0, 0), (4, 4), (0, 4), (4, 0)}
    shapes = {"diag": (2, 2, 2), "full": (2, 2, 2, 2), "tied": (2, 2, 2)}
    assert model.emission_.covariance_.shape == shapes.get(kind, (2, 2))
    counts = {"diag": 8, "full": 12, "tied": 6, "spherical": 4}
    assert model.n_parameters_ == 1 + 2 + 2 + 8 + counts[kind]
    drawn, _ = model.sample(3000, random_state=0)
    assert model.score(drawn) == pytest.approx(model.score(X), abs=0.1)
    residuals = model.pseudo_residuals(X)
    assert abs(residuals.std(axis=0) - 1.0).max() < 0.05


def test_against_enumeration():
    X, _ = crossed(1)
    X = X[:7]
    X[2, 1] = np.nan
    X[4] = np.nan
    model = VRHMM(2, emission=MixtureGaussian(3), random_state=0, max_iter=20, tol=9)
    model.fit(crossed()[0])
    weight, mean = model.emission_.weight_, model.emission_.mean_
    sd = np.sqrt(model.emission_.covariance_)
    parts = norm.logpdf(X[:, None, None], mean, sd)
    parts = np.where(np.isnan(parts), 0.0, parts).sum(axis=3) + np.log(weight)
    joint = logsumexp(parts, axis=2)
    total, gamma, _, path, score = enumerate_paths(
        joint, model.startprob_, model.transmat_
    )
    assert 7 * model.score(X) == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), gamma, atol=1e-12)
    log_prob, states = model.decode(X)
    np.testing.assert_array_equal(states, path)
    assert log_prob == pytest.approx(score, rel=1e-12)


def test_a_batch_step_is_that_of_all_components():
    """From the same values: responsibilities by hand, then weighted means."""
    X = series()
    model = crossed_start()
    mean, weight = map(np.array, (START["mean_init"], START["weight_init"]))
    parts = norm.logpdf(X[:, None, None], mean, 1.0).sum(axis=3) + np.log(weight)
    joint = logsumexp(parts, axis=2)
    transitions = np.array([[0.8, 0.2], [0.3, 0.7]])
    gamma = np.concatenate(
        [
            recursions(joint[r], np.full(2, 0.5), transitions)[2]
            for r in (slice(25), slice(25, 60))
        ]
    )
    share = gamma[:, :, None] * np.exp(parts - joint[:, :, None])
    model.fit(X, lengths=LENGTHS)
    total = share.sum(axis=0)
    np.testing.assert_allclose(
        model.emission_.weight_, total / total.sum(axis=1, keepdims=True), rtol=1e-9
    )
    found = np.einsum("tkm,td->kmd", share, X) / total[:, :, None]
    np.testing.assert_allclose(model.emission_.mean_, found, rtol=1e-9)


def test_as_hmmlearn():
    """What hmmlearn 0.3.3 answers from the values below, and after one iteration.

    hmm.GMMHMM(2, 2, covariance_type="diag", n_iter=1, tol=-1, init_params="",
               min_covar=0)

    Its covariances are taken about the means of before, so they are not compared.
    """
    X = series()
    model = crossed_start().set_params(max_iter=0).fit(X, lengths=LENGTHS)
    assert 60 * model.score(X, lengths=LENGTHS) == pytest.approx(-188.1637550483504)
    log_prob, path = model.decode(X, lengths=LENGTHS)
    assert log_prob == pytest.approx(-191.78577111261444)
    answer = "000000000011111111111000000000111111111100000000001111111111"
    assert "".join(map(str, path)) == answer
    posterior = [[0.7350619528570314, 0.2649380471429756]]
    posterior += [[0.8958764155312066, 0.10412358446879787]]
    found = model.predict_proba(X, lengths=LENGTHS)[23:25]
    np.testing.assert_allclose(found, posterior, rtol=1e-9)
    model.set_params(max_iter=1).fit(X, lengths=LENGTHS)
    means = [
        [[0.13808537577753968, -0.03431598959238459]],
        [[1.1630406497718597, 0.8360100621610899]],
        [[2.8753717434049135, 1.4066100398226715]],
        [[4.391164350035284, 2.1719012476446347]],
    ]
    np.testing.assert_allclose(model.emission_.mean_.reshape(4, 1, 2), means, rtol=1e-9)
    np.testing.assert_allclose(
        model.emission_.weight_[:, 0], [0.602873629235709, 0.6084287118215473]
    )
    np.testing.assert_allclose(
        model.transmat_[:, 0], [0.8475498370058344, 0.11759774830901268]
    )


def test_in_a_product_with_holes_and_labels():
    X, states = crossed()
    rng = np.random.default_rng(1)
    events = (rng.random(len(X)) < np.where(states, 0.8, 0.2)).astype(float)
    X = np.column_stack([X[:, 0], events, X[:, 1]])
    X[rng.random(X.shape) < 0.1] = np.nan
    emission = Product(
        [("event", Bernoulli(), [1]), ("place", MixtureGaussian(2), [0, 2])]
    )
    labels = np.full(len(X), -1)
    labels[::40] = states[::40]
    model = VRHMM(2, emission=emission, random_state=0)
    model.fit(X, state_labels=labels)
    assert np.mean(model.predict(X) == states) > 0.97
    probability = model.emission_["event"].probability_.ravel()
    np.testing.assert_allclose(probability, [0.2, 0.8], atol=0.06)
    score = model.score(X)
    model.relabel([1, 0])
    assert model.score(X) == pytest.approx(score)
    model.partial_fit(X)  # from sums in another order
    assert model.score(X) > score - 0.02
    twice = Product([("a", MixtureGaussian(2), [0]), ("b", MixtureGaussian(2), [1, 2])])
    with pytest.raises(ValueError, match="One part of a Product can be a mixture"):
        VRHMM(2, emission=twice).fit(X)


def test_one_component_is_a_gaussian():
    X, _ = crossed()
    one = VRHMM(2, emission=MixtureGaussian(1), random_state=0).fit(X)
    plain = VRHMM(2, random_state=0).fit(X)
    assert one.score(X) == pytest.approx(plain.score(X), abs=1e-6)


@pytest.mark.parametrize(
    ("emission", "message"),
    [
        (MixtureGaussian(0), "n_mix"),
        (MixtureGaussian(2, "round"), "covariance_type"),
        (MixtureGaussian(2, weight_init=[[0.5, 0.6], [0.5, 0.5]]), "sum to 1"),
        (MixtureGaussian(2, mean_init=np.zeros((3, 3))), "mean_init"),
        (MixtureGaussian(2, covariance_init=-np.ones((2, 2, 2))), "positive"),
    ],
    ids=str,
)
def test_bad_mixtures(emission, message):
    with pytest.raises(ValueError, match=message):
        VRHMM(2, emission=emission).fit(crossed(2)[0])


@pytest.mark.parametrize("seed", [1, 4, 7])
def test_states_that_overlap_are_found(seed):
    """By starts of means of some rows: of single rows all led to a poor optimum."""
    rng, ones = np.random.default_rng(seed), np.ones((3, 2, 2))
    mean, weight = 4.0 * rng.normal(size=(3, 2, 2)), np.full((3, 2), 0.5)
    T = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    emission = MixtureGaussian(2, mean=mean, covariance=ones, weight=weight)
    how = {"emission": emission, "transitions": Homogeneous(fixed=T)}
    X, _ = VRHMM(3, startprob="stationary", **how).sample(1000, random_state=seed)
    near = MixtureGaussian(2, mean_init=mean, covariance_init=ones, weight_init=weight)
    how = {"emission": near, "transitions": Homogeneous(init=T)}
    best = VRHMM(3, n_init=1, **how).fit(X).log_likelihood_
    found = VRHMM(3, emission=MixtureGaussian(2), random_state=seed).fit(X)
    assert found.log_likelihood_ > best - 1e-3
