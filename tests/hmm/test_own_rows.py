"""No start, M step, extrapolation or stream makes rows of its own impossible."""

import numpy as np
import pytest
from scipy.special import logsumexp

from skvrem.hmm import (
    VRHMM,
    Bernoulli,
    Categorical,
    Gamma,
    Gaussian,
    Homogeneous,
    Poisson,
    Product,
)
from skvrem.hmm import _start as start
from skvrem.hmm._input import fitted_parameters, open_rows


def rare(family, n=600):
    """Rows, one of which holds what the others do not."""
    rng = np.random.default_rng(0)
    X = {
        "categorical": lambda: rng.integers(0, 3, (n, 1)),
        "poisson": lambda: np.zeros((n, 1)),
        "bernoulli": lambda: np.zeros((n, 1)),
        "gamma": lambda: rng.gamma(2.0, 1.0, (n, 1)),
    }[family]()
    X = X.astype(float)
    X[2 * n // 3] = {"categorical": 3, "poisson": 4, "bernoulli": 1, "gamma": 0}[family]
    return X


FAMILIES = {
    "categorical": Categorical(),
    "poisson": Poisson(),
    "bernoulli": Bernoulli(),
    "gamma": Gamma(zero_inflated=True),
}


def small_sample(monkeypatch):
    """Let starts look at 40 rows."""
    monkeypatch.setattr(start, "MOST_ROWS", 40)
    monkeypatch.setattr(start, "RUN_ROWS", 20)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_start_has_not_seen(family, monkeypatch):
    small_sample(monkeypatch)
    X = rare(family)
    model = VRHMM(2, emission=FAMILIES[family], random_state=0, n_init=3, max_iter=5)
    assert np.isfinite(model.fit(X).score(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"solver": "batch"},
        {"solver": "svrg"},
        {"solver": "incremental"},
        {"acceleration": "lbfgs"},
        {"tempering": "annealed", "annealing_iter": 4},
    ],
    ids=str,
)
def test_any_solver_keeps_its_rows(options, monkeypatch):
    small_sample(monkeypatch)
    X = rare("categorical", 1500)
    model = VRHMM(
        2, emission="categorical", random_state=0, n_init=1, max_iter=8, **options
    )
    assert np.isfinite(model.fit(X).score(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_codes_and_a_product(monkeypatch):
    small_sample(monkeypatch)
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=600), rng.permutation(600) % 200])
    product = Product([("x", Gaussian(), [0]), ("code", Categorical(), [1])])
    model = VRHMM(2, emission=product, random_state=0, n_init=1, max_iter=3).fit(X)
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize(
    ("emission", "before", "after"),
    [
        (Categorical(4), [0, 1, 0, 2, 1], [3, 0, 3]),
        (Poisson(), [0, 0, 0], [2, 0, 1]),
        (Bernoulli(), [1, 1, 1], [0, 1, 0]),
        (Gamma(zero_inflated=True), [1.0, 2.0, 3.0], [0.0, 2.0]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_stream_takes_what_comes_later(emission, before, after):
    before = np.tile(before, 30)[:, None]
    after = np.asarray(after, float)[:, None]
    model = VRHMM(2, emission=emission, random_state=0)
    model.partial_fit(before).partial_fit(after)
    assert np.isfinite(model.score(after)) and np.isfinite(model.score(before))


def test_a_stream_takes_an_order_that_was_never_seen():
    X = np.repeat([[0.0], [1.0]], 50, axis=0)
    emission = Categorical(2, probability=np.eye(2))
    model = VRHMM(2, emission=emission, random_state=0).fit(X)
    with pytest.raises(ValueError, match="probability zero"):
        model.score(X[::-1])
    assert np.isfinite(model.partial_fit(X[::-1]).score(X[::-1]))
    masked = VRHMM(
        2,
        emission=emission,
        startprob=[1.0, 0.0],
        transitions=Homogeneous("left-right"),
        random_state=0,
    ).fit(X)
    state = dict(vars(masked))
    with pytest.raises(ValueError, match="probability zero"):
        masked.partial_fit(X[::-1])
    assert vars(masked) == state


def test_a_warm_start_on_other_rows():
    model = VRHMM(2, emission=Categorical(3), random_state=0, warm_start=True)
    model.fit(np.tile([0, 1, 1], 20)[:, None])
    X = np.tile([2, 0, 1], 20)[:, None]
    assert np.isfinite(model.fit(X).score(X))


def test_a_code_beyond_those_of_the_first_batch_is_named():
    model = VRHMM(2, emission="categorical", random_state=0)
    model.partial_fit(np.tile([0, 1, 2], 20)[:, None])
    state = dict(vars(model))
    with pytest.raises(ValueError, match=r"row 1, column 0 holds 7.*n_categories="):
        model.partial_fit([[0], [7]])
    assert vars(model) == state


def test_relaxed_parameters_are_distributions():
    X = np.repeat([[0.0], [1.0]], 50, axis=0)
    model = VRHMM(2, emission=Categorical(2), random_state=0).fit(X)
    _, data, inner = open_rows(model, X)
    relaxed = inner.relax(fitted_parameters(model), data.rows)
    for part in relaxed:
        assert part.min() > 0.0
        np.testing.assert_allclose(logsumexp(np.log(part), axis=-1), 0.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_sequences_of_weight_zero_need_not_be_possible():
    X = np.tile([0, 1, 0, 2, 1], 12)[:, None]
    X[20] = 3
    weight = np.ones(60)
    weight[20] = 0.0
    lengths = [20, 1, 39]
    model = VRHMM(2, emission=Categorical(4), random_state=0, n_init=2, max_iter=4)
    model.fit(X, sample_weight=weight, lengths=lengths)
    score = model.score(X, sample_weight=weight, lengths=lengths)
    rest = np.delete(X, 20, axis=0)
    assert score == model.score(rest, lengths=[20, 39])
    assert model.emissionprob_[:, 3].max() == 0.0
    X[30] = 3
    with pytest.raises(ValueError, match=r"Row 30 of X \(row 9 of sequence 2\)"):
        model.score(X, sample_weight=weight, lengths=lengths)
