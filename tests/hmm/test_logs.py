"""The passes in logarithms beside the others, and where they are needed."""

import numpy as np
import pytest
from sklearn.base import clone

from skvrem.hmm import (
    VRHMM,
    Categorical,
    Covariates,
    Gaussian,
    Hierarchical,
    Homogeneous,
    MixtureGaussian,
    Regression,
)
from skvrem.hmm._input import fitted_parameters, open_rows
from skvrem.hmm.forward_backward._model_logs import LogPasses
from skvrem.hmm.forward_backward._model_passes import Passes
from tests.hmm.oracle import enumerate_paths


def columns(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.integers(2, size=n_rows // 10), 10)
    X = 2.0 * states[:, None] + rng.normal(size=(n_rows, 2))
    return np.column_stack([X, rng.random(n_rows) < 0.2])


FAMILIES = {
    "gaussian": VRHMM(2),
    "full": VRHMM(2, covariance_type="full"),
    "mixture": VRHMM(2, emission=MixtureGaussian(2)),
    "regression": VRHMM(2, emission=Regression("poisson", covariates=[0, 1])),
    "covariates": VRHMM(2, transitions=Covariates([2])),
    "segments": VRHMM(4, transitions=Hierarchical(2, 2, 2)),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_same_sums(kind, beta):
    X = columns()
    model = clone(FAMILIES[kind]).set_params(
        n_init=1, max_iter=3, tol=0.0, random_state=0, solver="batch"
    )
    weight = np.repeat([1.0, 2.0, 0.5], [150, 150, 100])
    given = {"sample_weight": weight, "lengths": [150, 150, 100]}
    if kind == "segments":
        X[[149, 299, 399], 2] = 1.0
    model.fit(X, **given)
    _, data, inner = open_rows(model, X, None, weight, None, given["lengths"])
    chain, batch = inner.chain(fitted_parameters(model), beta), data.whole()
    plain = Passes(batch.rows.layout(batch), chain, by_row=True)
    total = plain.forward()
    sums = plain.backward()
    logs = LogPasses(plain.layout, chain)
    assert logs.forward() == -1
    assert logs.objective() == pytest.approx(total, rel=1e-12)
    for a, b in zip(logs.backward(), sums, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(b).max())
    np.testing.assert_allclose(logs.shares, plain.shares_by_row(), atol=1e-9)
    np.testing.assert_allclose(np.exp(logs.alpha), plain.filtered(), atol=1e-9)
    np.testing.assert_allclose(logs.gamma, plain.smoothed(), atol=1e-9)


def far(rare=0.0, lengths=(7,)):
    """A model of given parameters whose rows jump where the chain hardly can."""
    rng = np.random.default_rng(0)
    mean, sd = np.array([[0.0], [1.0]]), 0.02
    X = rng.integers(2, size=(sum(lengths), 1)) + 0.3 * rng.normal(size=(7, 1))
    model = VRHMM(
        2,
        emission=Gaussian(mean=mean, covariance=np.full((2, 1), sd**2)),
        transitions=Homogeneous(fixed=np.where(np.eye(2) > 0.0, 1.0 - rare, rare)),
        startprob=[0.5, 0.5],
    )
    joint = -0.5 * np.square((X - mean.T) / sd) - np.log(sd * np.sqrt(2.0 * np.pi))
    start, transitions = np.full(2, 0.5), model.transitions.fixed
    return model, X, enumerate_paths(joint, start, transitions)


@pytest.mark.parametrize("rare", [0.0, 1e-300, 1e-200])
def test_what_a_model_says_of_rows(rare):
    model, X, (total, gamma, _, path, best) = far(rare)
    assert model.score(X) * len(X) == pytest.approx(total, rel=1e-10)
    np.testing.assert_allclose(model.predict_proba(X), gamma, atol=1e-9)
    value, decoded = model.decode(X)
    assert value == pytest.approx(best, rel=1e-10)
    np.testing.assert_array_equal(decoded, path)
    assert model.score_samples(X).sum() == pytest.approx(total, rel=1e-10)
    if rare == 0.0:  # one path is left
        assert (model.sample_states(X, 20, random_state=0) == path).all()
    last = model.forecast(X).states[0, 0]
    np.testing.assert_allclose(last, gamma[-1] @ model.transitions.fixed, atol=1e-9)
    assert np.isfinite(model.pseudo_residuals(X)).all()


def test_a_fit_that_needs_logarithms_ends_where_one_that_does_not():
    """The likelihood never falls, and states stay where the rows say they are."""
    rng = np.random.default_rng(0)
    states = np.repeat([0, 1, 0, 1], 50)
    X = states[:, None] + 0.1 * rng.normal(size=(200, 1))
    init = np.where(np.eye(2) > 0.0, 1.0, 1e-300)
    emission = Gaussian(mean_init=[[0.0], [1.0]], covariance_init=np.full((2, 1), 1e-5))
    plain = Homogeneous(init=np.full((2, 2), 0.5))
    fits = [
        VRHMM(2, emission=emission, transitions=own, solver="batch", tol=1e-10).fit(X)
        for own in (plain, Homogeneous(init=init))
    ]
    for fit in fits:
        assert (np.diff(fit.history_["objective"]) > -1e-9).all()
    assert fits[0].log_likelihood_ == pytest.approx(fits[1].log_likelihood_, abs=1e-6)


def test_what_no_path_explains_is_impossible_in_logarithms_too():
    model = VRHMM(
        2,
        emission=Categorical(3, probability=[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]),
        transitions=Homogeneous(fixed=np.eye(2)),
        startprob=[0.5, 0.5],
    )
    X = np.array([[0], [1], [1], [2]])
    for ask in (model.score, model.predict_proba, model.score_samples):
        with pytest.raises(ValueError, match=r"\b3\b"):
            ask(X)
    assert model.score(X[:3]) == pytest.approx(np.log(0.0625) / 3.0)
