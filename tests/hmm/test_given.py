"""Models of given parameters, draws of paths and of rows, and the long run."""

import pickle
import warnings
from copy import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skvrem import VRHMM
from skvrem.hmm import (
    Bernoulli,
    Binomial,
    Categorical,
    Covariates,
    Exponential,
    Gamma,
    Gaussian,
    Hierarchical,
    Homogeneous,
    LogNormal,
    MixtureGaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    Regression,
    StudentT,
    VonMises,
    Weibull,
    WrappedCauchy,
    ZeroInflatedPoisson,
)
from tests.hmm.oracle import enumerate_paths

TRANSITIONS = np.array([[0.9, 0.1], [0.3, 0.7]])
TWO = [[0.2], [0.7]]
FAMILIES = [
    Gaussian(mean=[[0.0, 1.0], [5.0, 2.0]], covariance=[[1.0, 2.0], [3.0, 1.0]]),
    Gaussian("full", mean=[[0.0, 1.0], [5.0, 2.0]], covariance=[np.eye(2)] * 2),
    Gaussian("tied", mean=[[0.0, 1.0], [5.0, 2.0]], covariance=np.eye(2)),
    Gaussian("spherical", mean=[[0.0, 1.0], [5.0, 2.0]], covariance=[1.0, 2.0]),
    MixtureGaussian(
        2,
        weight=[[0.5, 0.5], [0.1, 0.9]],
        mean=[[[0.0], [3.0]], [[6.0], [9.0]]],
        covariance=np.ones((2, 2, 1)),
    ),
    Poisson(rate=[[1.0], [9.0]]),
    Bernoulli(probability=TWO),
    Binomial(5, probability=TWO),
    Categorical(probability=[[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]),
    Multinomial(probability=[[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]], trials=4),
    ZeroInflatedPoisson(rate=[[1.0], [9.0]], zero=TWO),
    NegativeBinomial(mean=[[1.0], [9.0]], size=2.0),
    Exponential(rate=TWO),
    Gamma(mean=[[1.0], [9.0]], sd=[[1.0], [3.0]]),
    Gamma(True, mean=[[1.0], [9.0]], sd=[[1.0], [3.0]], zero=TWO),
    LogNormal(mean=[[0.0], [3.0]], sd=1.0),
    Weibull(scale=[[1.0], [9.0]], shape=2.0),
    StudentT(location=[[0.0], [9.0]], scale=1.0, df=4.0),
    VonMises(mean=0.0, concentration=[[1.0], [4.0]]),
    WrappedCauchy(mean=0.0, concentration=TWO),
    Product(
        [
            ("a", Gaussian(mean=[[0.0], [5.0]], covariance=[[1.0], [2.0]]), [1]),
            ("b", Poisson(rate=[[1.0], [9.0]]), [0]),
        ]
    ),
]


def given(emission, **options):
    options = {
        "transitions": Homogeneous(fixed=TRANSITIONS),
        "startprob": [0.4, 0.6],
        "random_state": 0,
    } | options
    return VRHMM(2, emission=emission, **options)


@pytest.mark.parametrize("emission", FAMILIES, ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_given_needs_no_fit(emission):
    model = given(emission)
    state = dict(vars(model))
    X, states = model.sample(300)
    assert X.shape[0] == 300 and len(np.unique(states)) == 2
    fitted = given(emission, max_iter=0).fit(X)
    assert fitted.n_parameters_ == 0
    assert model.score(X) == pytest.approx(fitted.score(X), rel=1e-12)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_allclose(
        model.pseudo_residuals(X), fitted.pseudo_residuals(X), rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(model.forecast(X, 3).mean, fitted.forecast(X, 3).mean)
    assert model.aic(X) == pytest.approx(-600.0 * model.score(X))
    np.testing.assert_array_equal(model.transition_proba()[0], TRANSITIONS)
    assert vars(model) == state and not hasattr(model, "transmat_")


@pytest.mark.parametrize(
    "model",
    [
        VRHMM(2),
        given(Gaussian(mean=[[0.0], [1.0]])),
        given(Gaussian(mean=[[0.0], [np.nan]], covariance=[[1.0], [1.0]])),
        given(Poisson(rate=[[1.0], [2.0]]), startprob="free"),
        given(Poisson(rate=[[1.0], [2.0]]), transitions=None),
        given(Poisson(rate=[[1.0], [2.0]]), transitions=Covariates([0])),
        given("poisson"),
    ],
    ids=str,
)
def test_what_is_left_to_fit_must_be_fitted(model):
    for answer in (lambda: model.sample(3), lambda: model.predict([[1.0], [2.0]])):
        with pytest.raises((NotFittedError, ValueError)):
            answer()


def test_the_long_run_may_be_where_sequences_start():
    model = given(Poisson(rate=[[1.0], [9.0]]), startprob="stationary")
    X, states = model.sample(lengths=[1] * 4000)
    assert X.shape == (4000, 1)
    assert states.mean() == pytest.approx(0.25, abs=0.03)


# Paths


@pytest.mark.parametrize("seed", [0, 1])
def test_paths_are_drawn_from_their_distribution(seed):
    rng = np.random.default_rng(seed)
    model = given(Gaussian(mean=[[0.0], [1.5]], covariance=[[1.0], [1.0]]))
    X = rng.normal(size=(6, 1)) + np.array([[0], [0], [1], [2], [0], [1]])
    joint = -0.5 * np.square(X - [0.0, 1.5]) - 0.5 * np.log(2 * np.pi)
    _, gamma, pairs, _, _ = enumerate_paths(joint, np.array([0.4, 0.6]), TRANSITIONS)
    paths = model.sample_states(X, 40_000, random_state=seed)
    assert paths.shape == (40_000, 6)
    np.testing.assert_allclose((paths == 1).mean(axis=0), gamma[:, 1], atol=0.015)
    both = np.zeros((2, 2))
    for t in range(5):
        np.add.at(both, (paths[:, t], paths[:, t + 1]), 1.0)
    np.testing.assert_allclose(both / 40_000, pairs, atol=0.03)


def test_paths_know_sequences_covariates_and_threads():
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=60), rng.normal(size=60)])
    options = {"transitions": Covariates([1]), "random_state": 0, "n_init": 1}
    model = VRHMM(2, tol=1e-3, **options).fit(X, lengths=[20, 40])
    drawn = model.sample_states(X, 5000, random_state=0, lengths=[20, 40])
    expected = model.predict_proba(X, lengths=[20, 40])[:, 1]
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.04)
    model.set_params(n_jobs=2)
    again = model.sample_states(X, 5000, random_state=0, lengths=[20, 40])
    np.testing.assert_array_equal(drawn, again)
    with pytest.raises(ValueError, match="n_paths must be an integer"):
        model.sample_states(X, 0)


# Several sequences, and where they start


def test_sequences_are_drawn_one_after_another():
    model = given(Poisson(rate=[[1.0], [9.0]]), startprob=[1.0, 0.0])
    _, states = model.sample(lengths=[5, 3, 7])
    assert len(states) == 15 and (states[[0, 5, 8]] == 0).all()
    _, states = model.sample(lengths=[5, 3, 7], currstate=[1, 0, 1])
    assert states[[0, 5, 8]].tolist() == [1, 0, 1]
    assert model.sample(4, currstate=1)[1][0] == 1
    one = model.sample(50, random_state=3)[0]
    np.testing.assert_array_equal(one, model.sample(lengths=[50], random_state=3)[0])
    for wrong in (2, [0, 1], "a", -1, 0.5):
        with pytest.raises(ValueError, match="currstate must be"):
            model.sample(3, currstate=wrong)
    with pytest.raises(ValueError, match="lengths must be an integer"):
        model.sample(lengths=[3, 0])


# The long run, by covariates


def covariates_model(**options):
    rng = np.random.default_rng(3)
    z, path = rng.normal(size=2000), [0]
    for value in z[:-1]:
        leave = 1.0 / (1.0 + np.exp(2.0 - 1.5 * value * (1 if path[-1] else -1)))
        path.append((path[-1] + (rng.uniform() < leave)) % 2)
    X = np.column_stack([4.0 * np.array(path) + rng.normal(size=2000), z])
    transitions = Covariates([1], **options)
    return VRHMM(2, transitions=transitions, random_state=0, n_init=1).fit(X), X


@pytest.mark.filterwarnings("ignore:The rows say nothing of")  # of the first state
def test_transitions_along_covariates_with_bands():
    model, X = covariates_model()
    grid = np.array([[-1.0], [0.0], [2.0]])
    found = model.transition_proba(grid)
    np.testing.assert_allclose(found, model.transitions_.matrix(grid))
    long = model.stationary_proba(grid)
    np.testing.assert_allclose(np.einsum("ti,tij->tj", long, found), long, atol=1e-12)
    np.testing.assert_allclose(model.stationary_ @ model.transmat_, model.stationary_)
    band = model.transition_proba(grid, X=X)
    assert (band.lower < found).all() and (band.upper > found).all()
    wide = model.transition_proba(grid, X=X, level=0.999)
    assert (wide.lower < band.lower).all()
    # At the intercept and the slope themselves: standard errors of log-odds.
    errors = model.confidence_intervals(X).standard_error.transmat
    at_zero = model.transition_proba([[0.0]], X=X)
    p = at_zero.estimate[0, 0, 1]
    assert at_zero.standard_error[0, 0, 1] == pytest.approx(
        p * (1.0 - p) * errors[0, 1, 0], rel=1e-4
    )
    for wrong in (None, [1.0], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="covariates must have a column for each"):
            model.transition_proba(wrong)
    with pytest.raises(ValueError, match="covariates must be finite"):
        model.transition_proba([[np.nan]])


@pytest.mark.filterwarnings("ignore:The rows say nothing of")  # of the first state
def test_bands_of_homogeneous_transitions_are_intervals():
    model = given(Gaussian(mean_init=[[0.0], [5.0]]), transitions=None)
    X = np.repeat([[0.0], [5.0]] * 8, 10, axis=0)
    X = X + np.random.default_rng(4).normal(size=X.shape)
    model.fit(X)
    band, limits = model.transition_proba(X=X), model.confidence_intervals(X)
    np.testing.assert_allclose(band.lower[0], limits.lower.transmat, rtol=1e-6)
    np.testing.assert_allclose(band.upper[0], limits.upper.transmat, rtol=1e-6)
    assert model.stationary_proba(X=X).standard_error.shape == (1, 2)
    with pytest.raises(ValueError, match="depend on no columns"):
        model.transition_proba([[1.0]])


def test_boundaries_choose_the_matrix():
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=80), np.tile([0, 0, 0, 1], 20)])
    X[:, 0] += np.repeat([0.0, 9.0], 2).repeat(1)[np.arange(80) % 4]
    hierarchy = Hierarchical(2, 2, boundary=1)
    options = {"random_state": 0, "n_init": 1, "tol": 1e-2, "reg_covar": 0.1}
    model = VRHMM(4, transitions=hierarchy, **options)
    with warnings.catch_warnings(action="ignore"):
        model.fit(X)
    within, between = model.transition_proba([[0.0], [1.0]])
    np.testing.assert_allclose(within, model.transmat_)
    assert (between[:, [1, 3]] == 0.0).all()


@pytest.mark.parametrize("reference", [0, 1, 2])
def test_a_reference_state_is_another_way_to_say_the_same(reference):
    rng = np.random.default_rng(6)
    states = np.repeat(rng.integers(3, size=200), 4)
    X = np.column_stack([5.0 * states + rng.normal(size=800), rng.normal(size=800)])
    options = {"random_state": 0, "n_init": 1, "tol": 1e-11}
    staying = VRHMM(3, transitions=Covariates([1], alpha=0.0), **options).fit(X)
    against = Covariates([1], alpha=0.0, reference=reference)
    model = VRHMM(3, transitions=against, **options).fit(X)
    assert model.objective_ == pytest.approx(staying.objective_, abs=1e-8)
    assert (model.transitions_.coef_[:, reference] == 0.0).all()
    grid = [[-1.0], [1.0]]
    np.testing.assert_allclose(
        model.transition_proba(grid), staying.transition_proba(grid), atol=1e-3
    )
    before = model.transition_proba(grid)
    order = np.array([2, 0, 1])
    after = model.relabel(order).transition_proba(grid)
    np.testing.assert_allclose(after, before[:, order][:, :, order], atol=1e-12)
    moved = int(np.flatnonzero(order == reference)[0])
    assert (model.transitions_.coef_[:, moved] == 0.0).all()
    with pytest.raises(ValueError, match="reference of Covariates"):
        VRHMM(3, transitions=Covariates([1], reference=3)).fit(X)


def test_the_last_covariate_of_a_sequence_may_be_missing():
    model, X = covariates_model()
    holes = X.copy()
    holes[[-1, 999], 1] = np.nan
    lengths = [1000, 1000]
    assert model.score(holes, lengths=lengths) == model.score(X, lengths=lengths)
    again = VRHMM(2, transitions=Covariates([1]), random_state=0, n_init=1)
    assert np.isfinite(again.fit(holes, lengths=lengths).objective_)
    holes[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 5 of column 1 is not finite"):
        model.score(holes, lengths=lengths)
    with pytest.raises(ValueError, match="row 999"):
        model.score(
            np.where(np.isnan(holes) & (holes[:, :1] == X[5, 0]), X, holes) * 1.0
        )


def half(emission):
    """Return the family with what is given of its second state free."""
    if isinstance(emission, Product):
        return Product([(name, half(part), at) for name, part, at in emission.parts])
    emission = clone(emission)
    for name, value in emission.get_params().items():
        if name == "covariance" and emission.covariance_type == "tied":
            emission.set_params(covariance=None)
        elif np.ndim(value) and len(value) == 2:
            value = np.array(value, float)
            value[1] = np.nan
            emission.set_params(**{name: value})
    return emission


def state_of(model):
    parts = model.startprob_, model.transmat_, model.emission_.parameters()
    return [np.asarray(part, float) for part in parts]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("emission", FAMILIES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "warm start"])
def test_what_is_given_moves_with_the_states(emission, stream):
    rows = [given(emission, random_state=seed).sample(150)[0] for seed in (1, 2)]
    transitions = Homogeneous(fixed=[[0.9, 0.1], [np.nan, np.nan]])
    model = given(half(emission), transitions=transitions, n_init=1, max_iter=5)
    # Learned in the second state, so that the order is one of fixed and of free.
    first, then = clone(model).fit(rows[0]), clone(model).fit(rows[0])
    n_free = first.n_parameters_
    goes_on = "partial_fit" if stream else "fit"
    for fit in (first, then):
        fit.set_params(warm_start=not stream)
    getattr(first.relabel([1, 0]), goes_on)(rows[1])
    getattr(then, goes_on)(rows[1]).relabel([1, 0])
    for one, other in zip(state_of(first), state_of(then), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert first.n_parameters_ == then.n_parameters_ == n_free
    again = [state_of(fit.relabel([1, 0])) for fit in (first, then)]
    np.testing.assert_allclose(again[0][0], [0.4, 0.6])
    np.testing.assert_allclose(again[0][1][0], [0.9, 0.1])


SHARED = [
    *((emission, None) for emission in FAMILIES),
    (Regression("gaussian", [1], coef_init=[[[1.0]], [[-1.0]]]), None),
    (Gaussian(), Covariates([1])),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("emission", "transitions"), SHARED, ids=lambda part: type(part).__name__
)
def test_copies_share_nothing_that_relabel_writes_to(emission, transitions):
    """A shallow copy holds the same parts as its original."""
    X = np.random.default_rng(0).normal(size=(150, 2))
    how = {"n_init": 1, "max_iter": 3, "random_state": 0}
    if emission in FAMILIES:
        X, how = (
            given(emission, random_state=1).sample(150)[0],
            how | {"startprob": [0.4, 0.6]},
        )
        emission = half(emission)
    transitions = transitions or Homogeneous(fixed=[[0.9, 0.1], [np.nan, np.nan]])
    model = VRHMM(2, emission=emission, transitions=transitions, **how).fit(X)
    before, own = pickle.dumps(model), model.predict_proba(X)
    other = copy(model).relabel([1, 0])
    assert pickle.dumps(model) == before
    np.testing.assert_array_equal(model.predict_proba(X), own)
    np.testing.assert_allclose(other.predict_proba(X), own[:, ::-1], atol=1e-12)


def test_copies_share_no_kinds_that_relabel_writes_to():
    kinds = np.repeat(np.arange(40) % 2, 10)
    X = np.random.default_rng(0).normal(5.0 * kinds + np.arange(400) % 2)[:, None]
    X = np.column_stack([X, np.arange(400) % 10 == 9])
    model = VRHMM(4, transitions=Hierarchical(2, 2, boundary=1), n_init=1, max_iter=3)
    with warnings.catch_warnings(action="ignore"):
        model.fit(X)
    before = pickle.dumps(model)
    copy(model).relabel([2, 3, 0, 1])
    assert pickle.dumps(model) == before
    with pytest.raises(ValueError, match="kinds as a whole"):
        model.relabel([1, 0, 2, 3])
    assert pickle.dumps(model) == before


def test_a_relabelled_stream_goes_on_from_its_last_row():
    """The probabilities of the last row's state are in the new order, too."""
    rng = np.random.default_rng(0)
    states = np.cumsum(rng.random(4000) < 0.01) % 2
    X = rng.normal(1.0 * states, 1.0)[:, None]
    first = VRHMM(2, n_init=1, random_state=0).partial_fit(X[:3000])
    then = copy(first)
    first.relabel([1, 0]).partial_fit(X[3000:], continues=True)
    then.partial_fit(X[3000:], continues=True).relabel([1, 0])
    for one, other in zip(state_of(first), state_of(then), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_what_was_fixed_stays_so_where_it_moved_to():
    emission = Poisson(rate=[[1.0], [np.nan], [np.nan]])
    X = given(Poisson(rate=[[1.0], [9.0]])).sample(300)[0]
    model = VRHMM(3, emission=emission, startprob=[0.2, 0.3, 0.5], random_state=0)
    model.fit(X).relabel([1, 2, 0]).partial_fit(X + 1.0)
    assert model.emission_.rate_[2, 0] == 1.0
    np.testing.assert_array_equal(model.startprob_, [0.3, 0.5, 0.2])
    model.set_params(warm_start=True).fit(X).relabel([1, 2, 0])
    assert model.emission_.rate_[1, 0] == 1.0
    model.set_params(warm_start=False).fit(X)
    assert model.emission_.rate_[0, 0] == 1.0
