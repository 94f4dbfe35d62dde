"""VRHMM: answers of hmmlearn, sequences, structure, missing values, bad input."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from scipy.stats import multivariate_normal, norm, vonmises
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from skvrem import VRHMM
from skvrem.hmm import (
    Bernoulli,
    Categorical,
    Covariates,
    Gaussian,
    Homogeneous,
    Poisson,
    VonMises,
    WrappedCauchy,
    _stream,
)
from skvrem.hmm._input import open_rows
from skvrem.hmm._model import stationary
from skvrem.hmm._plan import Led
from tests.hmm.hmmlearn_answers import ANSWERS, LENGTHS, START, counts, series
from tests.hmm.oracle import recursions


@pytest.fixture
def jumps():
    """Three states apart, 40 sequences, and ids of the sequences."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(40), rng.integers(5, 60, 40))
    states = rng.integers(3, size=len(ids) // 5 + 1).repeat(5)[: len(ids)]
    X = np.array([0.0, 4.0, 9.0])[states, None] + rng.normal(size=(len(ids), 2))
    return X, ids, states


def fit_quietly(estimator, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(*args, **kwargs)


# Answers of hmmlearn

COVARIANCES = {
    "diag": np.ones((3, 2)),
    "full": np.array([np.eye(2)] * 3),
    "tied": np.eye(2),
    "spherical": np.ones(3),
}


def as_hmmlearn(emission, n):
    return VRHMM(
        n,
        emission=emission,
        startprob_init=START[f"start{n}"],
        transitions=Homogeneous(init=START[f"transitions{n}"]),
        n_init=1,
        solver="batch",
        tol=0.0,
        max_iter=0,
    )


@pytest.mark.parametrize("kind", COVARIANCES)
def test_gaussian_as_hmmlearn(kind):
    X, answer = series(), ANSWERS[kind]
    emission = Gaussian(
        kind,
        mean_init=START["means"],
        covariance_init=COVARIANCES[kind],
        reg_covar=0.0,
    )
    model = as_hmmlearn(emission, 3).fit(X, lengths=LENGTHS)
    close = {"rtol": 1e-8, "atol": 1e-9}
    score = 60 * model.score(X, lengths=LENGTHS)
    np.testing.assert_allclose(score, answer["score_before"], **close)
    log_prob, states = model.decode(X, lengths=LENGTHS)
    np.testing.assert_allclose(log_prob, answer["decode_before"], **close)
    assert "".join(map(str, states)) == answer["path"]
    model = fit_quietly(model.set_params(max_iter=8), X, lengths=LENGTHS)
    score = 60 * model.score(X, lengths=LENGTHS)
    np.testing.assert_allclose(score, answer["score"], **close)
    np.testing.assert_allclose(model.startprob_, answer["start"], **close)
    np.testing.assert_allclose(model.transmat_, answer["trans"], **close)
    np.testing.assert_allclose(model.means_, answer["means"], **close)
    if "var" in answer:
        variances = np.diagonal(model.covars_, axis1=1, axis2=2)
        np.testing.assert_allclose(variances, answer["var"], **close)


def of_counts(emission, X, answer):
    """A fit of eight epochs, whose scores and transitions are hmmlearn's."""
    model = as_hmmlearn(emission, 2).fit(X, lengths=LENGTHS)
    score = 60 * model.score(X, lengths=LENGTHS)
    assert score == pytest.approx(answer["score_before"], rel=1e-8)
    model = fit_quietly(model.set_params(max_iter=8), X, lengths=LENGTHS)
    score = 60 * model.score(X, lengths=LENGTHS)
    assert score == pytest.approx(answer["score"], rel=1e-8)
    np.testing.assert_allclose(model.transmat_, answer["trans"], rtol=1e-7)
    return model


def test_poisson_as_hmmlearn():
    answer = ANSWERS["poisson"]
    model = of_counts(Poisson(rate_init=START["rates"]), counts(), answer)
    np.testing.assert_allclose(model.lambdas_.ravel(), answer["lam"], rtol=1e-7)


def test_categorical_as_hmmlearn():
    X, answer = np.minimum(counts(), 3), ANSWERS["categorical"]
    model = of_counts(Categorical(probability_init=START["categories"]), X, answer)
    np.testing.assert_allclose(model.emissionprob_, answer["prob"], atol=1e-9)
    posterior = model.predict_proba(X, lengths=LENGTHS)
    np.testing.assert_allclose(posterior[:3], answer["post"], atol=1e-8)


# Sequences


def test_groups_lengths_and_a_column_are_the_same(jumps):
    X, ids, _ = jumps
    make = {"n_components": 3, "random_state": 0}
    by_groups = VRHMM(**make).fit(X, groups=ids)
    by_lengths = VRHMM(**make).fit(X, lengths=np.unique(ids, return_counts=True)[1])
    with_ids = np.column_stack([X[:, 0], ids, X[:, 1]])
    by_column = VRHMM(**make, groups=1).fit(with_ids)
    for other in (by_lengths, by_column):
        np.testing.assert_array_equal(other.means_, by_groups.means_)
        np.testing.assert_array_equal(other.transmat_, by_groups.transmat_)
    np.testing.assert_array_equal(
        by_column.predict_proba(with_ids), by_groups.predict_proba(X, groups=ids)
    )
    assert by_column.n_features_in_ == 3
    one = VRHMM(**make).fit(X)
    assert one.score(X) != pytest.approx(by_groups.score(X, groups=ids), rel=1e-6)


def test_a_column_of_a_frame(jumps):
    pd = pytest.importorskip("pandas")
    X, ids, _ = jumps
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.insert(1, "ID", [f"whale {i}" for i in ids])
    model = VRHMM(3, groups="ID", random_state=0).fit(frame)
    np.testing.assert_array_equal(model.feature_names_in_, ["a", "ID", "b"])
    expected = VRHMM(3, random_state=0).fit(X, groups=ids)
    np.testing.assert_array_equal(model.means_, expected.means_)
    assert "b mean" in model.summary().columns and "ID mean" not in model.summary()
    with pytest.raises(ValueError, match="names a column"):
        model.set_params(groups="who").fit(frame)
    with pytest.raises(ValueError, match="no data frame"):
        model.set_params(groups="who").fit(X)


def test_order_of_sequences_does_not_matter(jumps):
    X, ids, _ = jumps
    model = VRHMM(3, random_state=0, n_init=1).fit(X, groups=ids)
    order = np.random.default_rng(0).permutation(40)
    rows = np.concatenate([np.flatnonzero(ids == i) for i in order])
    assert model.score(X[rows], groups=ids[rows]) == pytest.approx(
        model.score(X, groups=ids), rel=1e-12
    )


def test_sequences_as_a_whole_are_weighted(jumps):
    X, ids, _ = jumps
    weight = (ids % 3).astype(float)
    twice = np.concatenate(
        [np.flatnonzero(ids == i) for i in range(40) for _ in range(i % 3)]
    )
    names = np.cumsum(np.concatenate([[0], np.diff(ids[twice]) != 0]))
    repeats = np.concatenate(
        [
            [k] * (ids == i).sum()
            for k, i in enumerate([i for i in range(40) for _ in range(i % 3)])
        ]
    )
    assert len(names) == len(repeats)
    start = {
        "emission": Gaussian(mean_init=[[0, 0], [4, 4], [9, 9]], covariance_init=1.0),
        "transitions": Homogeneous(init=np.full((3, 3), 1 / 3)),
        "n_init": 1,
        "tol": 1e-10,
    }
    weighted = VRHMM(3, **start).fit(X, sample_weight=weight, groups=ids)
    repeated = VRHMM(3, **start).fit(X[twice], groups=repeats)
    np.testing.assert_allclose(weighted.means_, repeated.means_, atol=1e-6)
    np.testing.assert_allclose(weighted.transmat_, repeated.transmat_, atol=1e-6)
    assert weighted.score(X, sample_weight=weight, groups=ids) == pytest.approx(
        repeated.score(X[twice], groups=repeats), rel=1e-6
    )


@pytest.mark.parametrize("routing", [False, True])
def test_grid_search_by_column(jumps, routing):
    X, ids, _ = jumps
    with_ids = np.column_stack([X, ids])
    with config_context(enable_metadata_routing=routing):
        search = GridSearchCV(
            VRHMM(groups=2, random_state=0, n_init=2),
            {"n_components": [1, 3]},
            cv=GroupKFold(3),
        )
        params = {"groups": ids}
        search.fit(with_ids, **params)
    assert search.best_params_ == {"n_components": 3}
    assert search.best_estimator_.predict(with_ids).shape == (len(X),)


@pytest.mark.parametrize("pipeline", [False, True])
def test_grid_search_with_routing(jumps, pipeline):
    X, ids, _ = jumps
    model = VRHMM(random_state=0, n_init=2)
    name = "n_components"
    with config_context(enable_metadata_routing=True):
        if pipeline:
            model, name = make_pipeline(StandardScaler(), model), f"vrhmm__{name}"
        search = GridSearchCV(model, {name: [1, 3]}, cv=GroupKFold(3))
        search.fit(X, groups=ids)
    # By hand: each fold fitted on whole sequences with their own ids.
    best, scores = search.best_estimator_, []
    for train, test in GroupKFold(3).split(X, groups=ids):
        with config_context(enable_metadata_routing=True):
            fold = clone(best).fit(X[train], groups=ids[train])
            scores.append(fold.score(X[test], groups=ids[test]))
    assert search.best_params_ == {name: 3}
    if pipeline and parse_version(sklearn.__version__) < parse_version("1.9"):
        return  # scikit-learn 1.7 hands a pipeline's score no metadata
    np.testing.assert_allclose(search.best_score_, np.mean(scores), rtol=1e-12)


def test_cross_validation_without_routing_takes_the_column(jumps):
    X, ids, _ = jumps
    scores = cross_val_score(
        VRHMM(3, groups=2, n_init=1, random_state=0),
        np.column_stack([X, ids]),
        groups=ids,
        cv=GroupKFold(2),
    )
    assert np.isfinite(scores).all()


# Structure


def test_masked_and_fixed_transitions(jumps):
    X, ids, _ = jumps
    fixed = np.full((3, 3), np.nan)
    fixed[0, 2] = 0.125
    mask = np.ones((3, 3), bool)
    mask[1, 0] = False
    model = VRHMM(
        3, transitions=Homogeneous(mask, fixed=fixed), random_state=0, n_init=1
    ).fit(X, groups=ids)
    assert model.transmat_[0, 2] == 0.125 and model.transmat_[1, 0] == 0.0
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1.0)
    assert model.n_parameters_ == 2 + (1 + 1 + 2) + 12


@pytest.mark.parametrize("mask", ["left-right", "upper-triangular"])
def test_left_right(mask):
    rng = np.random.default_rng(0)
    X = np.repeat([0.0, 5.0, 9.0], 20)[:, None] + rng.normal(size=(60, 1))
    X = np.tile(X, (5, 1))
    model = VRHMM(
        3,
        startprob=[1, 0, 0],
        transitions=Homogeneous(mask),
        emission=Gaussian(mean_init=[[0.0], [5.0], [9.0]]),
        random_state=0,
    ).fit(X, lengths=[60] * 5)
    assert not np.tril(model.transmat_, -1).any()
    path = model.predict(X, lengths=[60] * 5)
    assert (np.diff(path.reshape(5, 60), axis=1) >= 0).all()
    assert model.n_parameters_ == 6 + (2 if mask == "left-right" else 3)


def test_priors_are_the_posterior_mode():
    X = np.array([[0], [0], [1], [0], [1], [1], [1], [0]])
    model = VRHMM(
        1, emission=Categorical(prior=3.0), transitions=Homogeneous(prior=2.0)
    ).fit(X)
    np.testing.assert_allclose(model.emissionprob_, [[6 / 12, 6 / 12]])
    sure = VRHMM(2, transitions=Homogeneous(prior=1e6), random_state=0, max_iter=50)
    rows = np.random.default_rng(0).normal(size=(100, 1))
    np.testing.assert_allclose(fit_quietly(sure, rows).transmat_, 0.5, atol=1e-3)


@pytest.mark.parametrize("prior", [1.0, 1.5, 3.0, [[9.0, 2.0], [1.0, 5.0]]], ids=str)
def test_priors_leave_starting_values_as_they_are_given(prior):
    start = [[0.9, 0.1], [0.25, 0.75]]
    emission = Gaussian(mean_init=[[0.0], [1.0]], covariance_init=[[1.0], [1.0]])
    transitions = Homogeneous(init=start, prior=prior)
    model = VRHMM(2, emission=emission, transitions=transitions, max_iter=0)
    X = np.random.default_rng(0).normal(size=(50, 1))
    np.testing.assert_allclose(model.fit(X).transmat_, start, rtol=1e-12)


def test_fixed_emission_parameters(jumps):
    X, ids, _ = jumps
    mean = [[0.0, 0.0], [4.0, np.nan], [np.nan, np.nan]]
    emission = Gaussian(mean=mean, covariance=np.ones((3, 2)))
    model = VRHMM(3, emission=emission, random_state=0).fit(X, groups=ids)
    assert model.means_[0].tolist() == [0.0, 0.0] and model.means_[1, 0] == 4.0
    assert abs(model.means_[1, 1] - 4.0) < 0.5
    np.testing.assert_array_equal(model.emission_.covariance_, 1.0)
    assert model.n_parameters_ == 2 + 6 + 3
    assert emission.get_params()["mean"] is mean  # nothing was written to it


def test_parameters_of_parts_are_reached(jumps):
    X, ids, _ = jumps
    model = VRHMM(3, emission=Gaussian(), transitions=Homogeneous(), random_state=0)
    model.set_params(emission__covariance_type="tied", transitions__prior=2.0)
    model.fit(X, groups=ids)
    assert model.emission_.covariance_.shape == (2, 2)


# Missing values


def test_missing_values_are_integrated_out(jumps):
    X, ids, states = jumps
    holes = X.copy()
    rng = np.random.default_rng(1)
    holes[rng.uniform(size=X.shape) < 0.2] = np.nan
    holes[30:35] = np.nan
    model = VRHMM(3, random_state=0).fit(holes, groups=ids)
    order = np.argsort(model.means_[:, 0])
    model.relabel(order)
    np.testing.assert_allclose(model.means_[:, 0], [0, 4, 9], atol=0.4)
    assert np.mean(model.predict(holes, groups=ids) == states) > 0.9
    mean, sd = model.means_, np.sqrt(model.emission_.covariance_)
    z = (holes[:, None] - mean) / sd
    joint = np.nansum(-0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi) * 1.0, axis=2)
    joint = np.where(
        np.isnan(z), 0.0, -0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    ).sum(axis=2)
    total = sum(
        recursions(joint[ids == i], model.startprob_, model.transmat_)[0].sum()
        for i in np.unique(ids)
    )
    assert model.score(holes, groups=ids) * len(X) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_whole_rows_may_be_missing(jumps, kind):
    X, ids, _ = jumps
    holes = X.copy()
    holes[::7] = np.nan
    model = VRHMM(3, covariance_type=kind, random_state=0).fit(holes, groups=ids)
    assert np.isfinite(model.covars_).all()
    np.testing.assert_allclose(
        model.score_samples(holes, groups=ids)[::7], 0, atol=1e-9
    )


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_rows_may_be_missing_in_part(jumps, kind):
    """Every row has the density of what is observed of it."""
    X, ids, states = jumps
    rng = np.random.default_rng(1)
    X = np.column_stack([X, X.sum(axis=1) + rng.normal(size=len(X))])
    holes = X.copy()
    holes[rng.uniform(size=X.shape) < 0.2] = np.nan
    holes[30:35] = np.nan
    model = VRHMM(3, covariance_type=kind, solver="batch", random_state=0)
    model.set_params(tol=1e-8).fit(holes, groups=ids)
    assert (np.diff(model.history_["objective"]) > -1e-10).all()
    model.relabel(np.argsort(model.means_[:, 0]))
    joint = np.zeros((len(X), 3))
    for row, values in enumerate(holes):
        seen = np.flatnonzero(~np.isnan(values))
        for k in range(3 if seen.size else 0):
            joint[row, k] = multivariate_normal(
                model.means_[k, seen], model.covars_[k][np.ix_(seen, seen)]
            ).logpdf(values[seen])
    smoothed, total = [], 0.0
    for i in np.unique(ids):
        found = recursions(joint[ids == i], model.startprob_, model.transmat_)
        total += found[0].sum()
        smoothed.append(found[2])
    assert model.score(holes, groups=ids) * len(X) == pytest.approx(total, rel=1e-9)
    np.testing.assert_allclose(
        model.predict_proba(holes, groups=ids), np.concatenate(smoothed), atol=1e-9
    )
    assert np.mean(model.predict(holes, groups=ids) == states) > 0.95
    # Correlations come through the holes, to the precision of fewer rows.
    whole = VRHMM(3, covariance_type=kind, random_state=0).fit(X, groups=ids)
    whole.relabel(np.argsort(whole.means_[:, 0]))
    np.testing.assert_allclose(model.means_, whole.means_, atol=0.3)
    np.testing.assert_allclose(model.covars_, whole.covars_, atol=0.5)
    # Other rows, with other holes, and a stream of them.
    assert np.isfinite(model.score_samples(X[:50])).all()
    model.partial_fit(X[:80]).partial_fit(holes[:80])
    assert model.score(holes, groups=ids) > total / len(X) - 0.2


def test_moments_of_what_is_missing():
    """One state: EM for a normal sample with holes ends at the maximum."""
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([1.0, -2.0], [[1.0, 0.8], [0.8, 2.0]], size=300)
    X[:100, 1] = np.nan
    X[100:150, 0] = np.nan
    model = VRHMM(1, covariance_type="full", tol=1e-13, reg_covar=0.0).fit(X)
    mean, covariance = model.means_[0], model.covars_[0]

    def likelihood(mean, covariance):
        total = multivariate_normal(mean, covariance).logpdf(X[150:]).sum()
        for j, rows in ((0, slice(100)), (1, slice(100, 150))):
            sd = np.sqrt(covariance[j, j])
            total += norm.logpdf(X[rows, j], mean[j], sd).sum()
        return total / 300

    best = likelihood(mean, covariance)
    assert model.score(X) == pytest.approx(best, rel=1e-12)
    for step in (1e-3, -1e-3):
        for i in range(2):
            assert likelihood(mean + step * np.eye(2)[i], covariance) < best
            for j in range(2):
                moved = covariance.copy()
                moved[i, j] += step
                moved[j, i] = moved[i, j]
                assert likelihood(mean, moved) < best


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "categorical"])
def test_missing_counts(family):
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=60), 10)
    X = (rng.random((600, 1)) < np.where(states, 0.9, 0.1)[:, None]).astype(float)
    X[::9] = np.nan
    model = VRHMM(2, emission=family, random_state=0).fit(X)
    shares = model.score_samples(X)
    np.testing.assert_allclose(shares[::9], 0.0, atol=1e-9)
    assert np.isfinite(shares).all()
    agree = np.mean(model.predict(X) == states)
    assert max(agree, 1.0 - agree) > 0.9


# Answers


def test_answers_agree_with_recursions(jumps):
    X, ids, _ = jumps
    model = VRHMM(3, random_state=0).fit(X, groups=ids)
    mean, variance = model.means_, model.emission_.covariance_
    joint = -0.5 * ((X[:, None] - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    joint = joint.sum(axis=2)
    smoothed, filtered = (
        model.predict_proba(X, groups=ids),
        model.filter_proba(X, groups=ids),
    )
    shares = model.score_samples(X, groups=ids)
    for i in (0, 7, 39):
        rows = ids == i
        s, f, g, _ = recursions(joint[rows], model.startprob_, model.transmat_)
        np.testing.assert_allclose(shares[rows], s, rtol=1e-9)
        np.testing.assert_allclose(filtered[rows], f, atol=1e-10)
        np.testing.assert_allclose(smoothed[rows], g, atol=1e-10)
    assert shares.mean() == pytest.approx(model.score(X, groups=ids), rel=1e-12)
    n = model.n_parameters_
    assert n == 2 + 6 + 12
    total = shares.sum()
    assert model.aic(X, groups=ids) == pytest.approx(2 * n - 2 * total)
    assert model.bic(X, groups=ids) == pytest.approx(n * np.log(len(X)) - 2 * total)
    # Sequences that weigh more are there so many times.
    times = 1 + ids % 3
    again = [X[ids == i] for i in np.unique(ids) for _ in range(1 + i % 3)]
    lengths = list(map(len, again))
    for criterion in (model.aic, model.bic):
        found = criterion(X, groups=ids, sample_weight=times)
        expected = criterion(np.concatenate(again), lengths=lengths)
        assert found == pytest.approx(expected, rel=1e-12)
        assert found != pytest.approx(criterion(X, groups=ids), rel=1e-2)
    log_prob, states = model.decode(X, groups=ids, algorithm="map")
    np.testing.assert_array_equal(states, smoothed.argmax(axis=1))
    assert log_prob == pytest.approx(smoothed.max(axis=1).sum())
    model.set_params(algorithm="map")
    np.testing.assert_array_equal(model.predict(X, groups=ids), states)


@pytest.mark.parametrize(
    "emission",
    [
        Gaussian("full"),
        Gaussian("tied"),
        Gaussian("spherical"),
        Poisson(),
        Bernoulli(),
        Categorical(),
    ],
    ids=str,
)
def test_a_sample_leads_back_to_its_model(emission):
    rng = np.random.default_rng(0)
    if isinstance(emission, Gaussian):
        X = np.repeat([[0.0, 0.0], [6.0, 3.0]] * 20, 15, axis=0)
        X += rng.normal(size=X.shape)
    elif isinstance(emission, Poisson):
        X = rng.poisson(np.repeat([[1.0, 8.0], [12.0, 2.0]] * 20, 15, axis=0))
    else:
        X = (rng.random((600, 1)) < np.repeat([0.1, 0.9] * 20, 15)[:, None]) + 0.0
    first = VRHMM(2, emission=emission, random_state=0).fit(X)
    drawn, states = first.sample(6000, random_state=1)
    assert drawn.shape == (6000, X.shape[1]) and set(states) == {0, 1}
    again = VRHMM(2, emission=emission, random_state=0).fit(drawn)
    assert again.score(drawn) == pytest.approx(first.score(drawn), abs=5e-3)
    same, _ = first.sample(6000, random_state=1)
    np.testing.assert_array_equal(drawn, same)


def test_relabel(jumps):
    X, ids, _ = jumps
    model = VRHMM(3, random_state=0).fit(X, groups=ids)
    before = clone(model).fit(X, groups=ids)
    model.relabel([2, 0, 1])
    np.testing.assert_array_equal(model.means_, before.means_[[2, 0, 1]])
    np.testing.assert_allclose(
        model.predict_proba(X, groups=ids),
        before.predict_proba(X, groups=ids)[:, [2, 0, 1]],
        atol=1e-12,
    )
    assert model.score(X, groups=ids) == pytest.approx(before.score(X, groups=ids))
    with pytest.raises(ValueError, match="permutation"):
        model.relabel([0, 0, 1])


def test_summary(jumps):
    pytest.importorskip("pandas")
    X, ids, states = jumps
    model = VRHMM(3, random_state=0).fit(X, groups=ids)
    model.relabel(np.argsort(model.means_[:, 0]))
    table = model.summary()
    np.testing.assert_allclose(
        table["share"], np.bincount(states) / len(states), atol=0.01
    )
    np.testing.assert_allclose(table["x0 mean"], model.means_[:, 0])
    assert table.attrs["n_parameters"] == 20


def test_attributes_of_other_families(jumps):
    X, ids, _ = jumps
    model = VRHMM(2, random_state=0).fit(X, groups=ids)
    with pytest.raises(AttributeError, match="Poisson"):
        model.lambdas_  # noqa: B018
    with pytest.raises(NotFittedError):
        VRHMM(2).means_  # noqa: B018


def test_float32(jumps):
    X, ids, _ = jumps
    model = VRHMM(3, random_state=0, n_init=1)
    single = clone(model).fit(X.astype(np.float32), groups=ids)
    double = clone(model).fit(X, groups=ids)
    for name in ("startprob_", "transmat_", "means_"):
        assert getattr(single, name).dtype == np.float32
    assert single.predict_proba(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.means_, double.means_, atol=1e-4)


def test_the_same_bits_for_any_number_of_threads(jumps):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(2, size=1200), 100)[:, None] + rng.normal(
        size=(120_000, 1)
    )
    fits = [
        fit_quietly(VRHMM(2, random_state=0, n_init=1, max_iter=4, n_jobs=n), X)
        for n in (1, 3)
    ]
    np.testing.assert_array_equal(fits[0].transmat_, fits[1].transmat_)
    np.testing.assert_array_equal(fits[0].means_, fits[1].means_)
    np.testing.assert_array_equal(fits[0].predict(X), fits[1].predict(X))


def test_more_starts_are_no_worse(jumps):
    X, ids, _ = jumps
    few = VRHMM(3, random_state=0, n_init=1, init_params="random").fit(X, groups=ids)
    many = VRHMM(3, random_state=0, n_init=10, init_params="random").fit(X, groups=ids)
    assert many.log_likelihood_ >= few.log_likelihood_ - 1e-6
    assert many.init_scores_.shape == (10,)
    assert (np.diff(many.history_["passes"]) >= 1.0).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_default_fit_has_states_of_a_few_extreme_counts(seed):
    """Means of some rows hide such rows, and few starts choose them at random."""
    rng = np.random.default_rng(2)
    busy = np.cumsum(rng.random(365) < 0.1) % 2
    X = rng.poisson(np.where(busy, 12.0, 2.0))
    some = rng.choice(365, 6, replace=False)
    X[some] = np.append(rng.poisson(60.0, 5), 300)
    known = Poisson(rate_init=[[2.0], [12.0], [60.0], [300.0]])
    best = VRHMM(4, emission=known, random_state=0, n_init=1).fit(X[:, None])
    model = VRHMM(4, emission="poisson", random_state=seed).fit(X[:, None])
    assert model.objective_ > best.objective_ - 1e-4


def test_warm_start(jumps):
    X, ids, _ = jumps
    model = VRHMM(3, random_state=0, warm_start=True).fit(X, groups=ids)
    assert model.fit(X, groups=ids).n_iter_ <= 4
    with pytest.raises(ValueError, match="cannot be gone on from"):
        model.set_params(n_components=2).fit(X, groups=ids)


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": [10, 20]}, "add up to 30"),
        ({"lengths": [0, 100]}, "positive"),
        ({"lengths": [50.5, 49.5]}, "whole numbers"),
        (
            {"groups": np.arange(100) % 2},
            "follow each other: id 0 comes again in row 2",
        ),
        ({"groups": np.zeros(3)}, "one id for each"),
        ({"groups": np.r_[np.nan, np.zeros(99)]}, "no id in row 0"),
        ({"groups": np.zeros(100), "lengths": [100]}, "given twice"),
        ({"sample_weight": np.arange(100.0)}, "same for all rows of a sequence"),
        ({"sample_weight": np.zeros(100)}, "zero for every sample"),
    ],
)
def test_sequences_that_do_not_add_up(arguments, message):
    X = np.random.default_rng(0).normal(size=(100, 1))
    model = VRHMM(2)
    with pytest.raises(ValueError, match=message):
        model.fit(X, **arguments)
    assert vars(model) == vars(VRHMM(2))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"emission": "round"}, "emission"),
        ({"emission": 3}, "emission"),
        ({"transitions": np.eye(2)}, "Homogeneous"),
        ({"transitions": Homogeneous(np.ones((3, 3)))}, "shape"),
        ({"transitions": Homogeneous("right")}, "left-right"),
        ({"transitions": Homogeneous([[1, 1], [0, 0]])}, "from state 1 cannot sum"),
        ({"transitions": Homogeneous(fixed=[[0.9, 0.3], [0.5, 0.5]])}, "from state 0"),
        ({"transitions": Homogeneous(prior=0.5)}, "at least 1"),
        ({"transitions": Homogeneous(init=[[1, 1], [0, 1]])}, "init of Homogeneous"),
        ({"startprob": [0.5, 0.6]}, "sum to 1"),
        ({"startprob": "any"}, "'free'"),
        ({"startprob_init": [1.0]}, "startprob_init"),
        ({"groups": [0, 1]}, "name or number of a column"),
        ({"groups": 7}, "which has 1 columns"),
        ({"n_init": "many"}, "n_init"),
        ({"emission": Gaussian(mean=[[1.0]] * 3)}, "mean of Gaussian"),
        ({"emission": Gaussian(covariance=[[1.0], [-1.0]])}, "positive"),
        ({"emission": "poisson"}, "counts 0, 1, 2"),
        ({"emission": "bernoulli"}, "0 or 1"),
        ({"emission": "categorical"}, "codes 0, 1, 2"),
    ],
    ids=str,
)
def test_bad_parameters(params, message):
    X = np.random.default_rng(0).normal(size=(50, 1))
    model = VRHMM(2).set_params(**params)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert vars(model) == before


def test_unseen_categories():
    model = VRHMM(1, emission="categorical").fit([[0], [1], [1]])
    with pytest.raises(ValueError, match="codes from 0 to 1: row 1, column 0 holds 2"):
        model.predict([[0], [2]])
    more = VRHMM(1, emission=Categorical(4)).fit([[0], [1], [1]])
    assert more.emissionprob_.shape == (1, 4)
    with pytest.raises(ValueError, match="row 1 of sequence 0"):
        more.score([[0], [3]])
    with pytest.raises(ValueError, match="one column"):
        VRHMM(1, emission="categorical").fit([[0, 1], [1, 0]])


def test_a_sequence_that_the_mask_forbids():
    X = np.array([[0.0], [0.0], [9.0], [9.0], [0.0]])
    emission = Categorical(
        10, probability=np.eye(2, 10)[:, [0, 2, 3, 4, 5, 6, 7, 8, 9, 1]]
    )
    model = VRHMM(
        2, emission=emission, startprob=[1, 0], transitions=Homogeneous("left-right")
    )
    with pytest.raises(ValueError, match=r"Row 4 of X \(row 4 of sequence 0\)"):
        model.fit(X)
    assert not hasattr(model, "transmat_")


def test_fewer_rows_than_states():
    with pytest.raises(ValueError, match="n_samples >= n_components"):
        VRHMM(3).fit([[1.0], [2.0]])
    one = VRHMM(1).fit([[1.0]])
    assert np.isfinite(one.score([[1.0]]))


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.CollapsedComponentWarning")
def test_constant_data_and_lonely_rows():
    model = fit_quietly(VRHMM(2, random_state=0), np.ones((30, 2)))
    for value in (model.means_, model.transmat_, model.startprob_, model.covars_):
        assert np.isfinite(value).all()
    X = np.random.default_rng(0).normal(size=(30, 1))
    alone = fit_quietly(VRHMM(2, random_state=0), X, lengths=[1] * 30)
    assert np.isfinite(alone.transmat_).all()
    np.testing.assert_allclose(alone.transmat_.sum(axis=1), 1.0)


def test_a_state_without_rows_keeps_its_parameters():
    X = np.random.default_rng(0).normal(size=(50, 1))
    model = VRHMM(
        2,
        emission=Gaussian(mean_init=[[0.0], [1e6]], covariance_init=[[1.0], [1.0]]),
        n_init=1,
        random_state=0,
    )
    model.fit(X)
    assert model.means_[1, 0] == 1e6
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1.0)


def test_not_converged_warns_and_says_so(jumps):
    X, ids, _ = jumps
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = VRHMM(3, random_state=0, max_iter=2).fit(X, groups=ids)
    assert not model.converged_ and model.n_iter_ == 2


def test_interrupted_fit_leaves_the_model(jumps, monkeypatch):
    X, ids, _ = jumps
    model = VRHMM(3, random_state=0).fit(X, groups=ids)
    before = dict(vars(model))
    from skvrem.hmm._model import HMMModel

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(HMMModel, "maximize", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(2.0 * X, groups=ids)
    assert vars(model) == before


# Labels, streams, annealing


def test_known_states(jumps):
    X, ids, states = jumps
    labels = np.full(len(X), -1)
    labels[::6] = (states[::6] + 1) % 3
    model = VRHMM(3, random_state=0).fit(X, groups=ids, state_labels=labels)
    np.testing.assert_allclose(model.means_[:, 0], [9.0, 0.0, 4.0], atol=0.3)
    # With every state known the fit is that of frequencies and means.
    known = VRHMM(3, random_state=0).fit(X, groups=ids, state_labels=states)
    for k in range(3):
        np.testing.assert_allclose(known.means_[k], X[states == k].mean(axis=0))
    inside = np.flatnonzero(np.diff(ids) == 0)
    counts = np.zeros((3, 3))
    np.add.at(counts, (states[inside], states[inside + 1]), 1)
    np.testing.assert_allclose(
        known.transmat_, counts / counts.sum(axis=1, keepdims=True)
    )
    for wrong in ([0], np.full(len(X), 3), np.full(len(X), 0.5)):
        with pytest.raises(ValueError, match="state_labels"):
            VRHMM(3).fit(X, groups=ids, state_labels=wrong)


def test_stream_of_sequences(jumps):
    X, ids, _ = jumps
    best = VRHMM(3, random_state=0).fit(X, groups=ids)
    model = VRHMM(3, random_state=0)
    for _ in range(6):
        for part in range(8):
            rows = ids // 5 == part
            model.partial_fit(X[rows], groups=ids[rows])
    assert model.n_samples_seen_ == 6 * len(X)
    assert model.score(X, groups=ids) > best.score(X, groups=ids) - 0.02
    assert "passes" not in getattr(model.summary(), "attrs", {})


def chain_of_six(n):
    rng = np.random.default_rng(6)
    states = np.cumsum(rng.uniform(size=n) < 0.1) * 5 % 6
    return 2.0 * rng.normal(size=(6, 4))[states] + rng.normal(size=(n, 4))


@pytest.mark.parametrize("continues", [False, True])
def test_a_stream_begins_well_with_small_batches(continues):
    X = chain_of_six(4000)
    lengths = np.full(400, 10)
    stream = VRHMM(6, random_state=0)
    for start in range(0, len(X), 10):
        stream.partial_fit(X[start : start + 10], continues=continues and start > 0)
    how = {} if continues else {"lengths": lengths}
    whole = VRHMM(6, random_state=0).fit(X, **how)
    assert whole.score(X, **how) - stream.score(X, **how) < 0.02
    assert stream._first is None and stream.n_samples_seen_ == len(X)


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_races_on_first_rows_of_a_stream_are_few_and_lose_nothing(size, monkeypatch):
    X, fits = chain_of_six(1000)[:, :2], []
    whole = VRHMM(4, random_state=0).fit(X)

    def fitted(*given):
        fits.append(fit_first(*given))
        return fits[-1]

    fit_first = _stream._fitted
    monkeypatch.setattr(_stream, "_fitted", fitted)
    stream = clone(whole)
    for start in range(0, 1000, size):
        stream.partial_fit(X[start : start + size], continues=start > 0)
    n_starts = [len(fit.init_epochs_) for fit in fits]
    n_fits, of_one = len(n_starts), len(whole.init_epochs_)
    assert n_fits == {10: 8, 100: 5, 1000: 1}[size]
    # One more in each is the winner before, and one may be so by rounding.
    assert sum(n_starts) <= 2.5 * of_one + 2 * n_fits
    # The last race is that of a fit: whoever leads has no part in it.
    found = fits[-1].init_scores_[:of_one], fits[-1].init_epochs_[:of_one]
    np.testing.assert_allclose(found[0], whole.init_scores_, rtol=1e-12)
    np.testing.assert_array_equal(found[1], whole.init_epochs_)
    assert n_starts[-1] == of_one + (size < 1000)
    assert fits[-1].objective_ >= whole.objective_ - 1e-12


def test_what_leads_a_race_finds_what_it_had_held_impossible():
    """Transitions of probability zero, which EM does not leave."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=60), 5)
    X = 5.0 * states[:, None] + rng.normal(size=(300, 1))
    best = VRHMM(2, random_state=0).fit(X)
    before = VRHMM(2, random_state=0).fit(X)
    before.transmat_ = np.eye(2)
    sequences = open_rows(before, X, fresh=True)[0]
    model = clone(best)
    model.n_features_in_ = 1
    model._fit(sequences, None, led=Led(before, 0.1))
    assert len(model.init_scores_) == 5
    assert model.init_scores_[-1] == pytest.approx(best.objective_, abs=1e-4)


def test_a_stream_of_few_sequences_is_a_fit_to_them():
    """With labels, weights and inputs of some, and in the midst of one."""
    rng = np.random.default_rng(0)
    X = np.column_stack([chain_of_six(600)[:, 0], rng.normal(size=600)])
    labels = np.where(rng.uniform(size=600) < 0.1, X[:, 0] > 0.0, -1)
    weight = np.repeat([2.0, 2.0, 1.0], [100, 200, 300])
    whole = VRHMM(2, transitions=Covariates([1]), random_state=0)
    stream = clone(whole)
    batch = X[:100].copy()
    stream.partial_fit(batch, sample_weight=weight[:100], state_labels=labels[:100])
    batch[:] = 0.0  # the stream keeps its own
    more = {"sample_weight": weight[100:300], "state_labels": labels[100:300]}
    stream.partial_fit(X[100:300], continues=True, **more)
    stream = pickle.loads(pickle.dumps(stream))
    stream.partial_fit(X[300:], lengths=[150, 150], state_labels=labels[300:])
    first = stream._first.sequences
    np.testing.assert_array_equal(first.X[:, 0], X[:, 0])
    np.testing.assert_array_equal(first.bounds, [0, 300, 450, 600])
    np.testing.assert_array_equal(first.weight, [2.0, 1.0, 1.0])
    np.testing.assert_array_equal(first.labels, labels)
    lengths = [300, 150, 150]
    whole.fit(X, lengths=lengths, sample_weight=weight, state_labels=labels)
    near = stream.score(X, lengths=lengths), whole.score(X, lengths=lengths)
    assert near[0] == pytest.approx(near[1], abs=2e-3)
    assert not hasattr(stream.fit(X), "_first")


def test_a_stream_whose_states_are_relabelled_keeps_their_order():
    X = chain_of_six(900)
    stream = VRHMM(3, random_state=0).partial_fit(X[:300])
    means = stream.means_[::-1]
    stream.relabel([2, 1, 0]).partial_fit(X[300:])
    near = np.square(stream.means_[:, None] - means).sum(axis=2)
    np.testing.assert_array_equal(near.argmin(axis=1), [0, 1, 2])


def test_small_batches_of_a_stream_are_shares_of_a_step():
    X = chain_of_six(5000)
    one = VRHMM(6, random_state=0).fit(X[:4000])
    many = clone(one).fit(X[:4000])
    one.partial_fit(X[4000:])
    for start in range(4000, 5000, 50):
        many.partial_fit(X[start : start + 50], continues=start > 4000)
    np.testing.assert_allclose(many.means_, one.means_, atol=0.05)


def test_stream_of_one_endless_sequence():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=400), 10)
    X = 5.0 * states[:, None] + rng.normal(size=(4000, 1))
    model = VRHMM(2, random_state=0)
    with pytest.raises(ValueError, match="earlier partial_fit"):
        model.partial_fit(X[:400], continues=True)
    model.partial_fit(X[:1000])
    start = model.startprob_
    for part in np.array_split(X[1000:], 9):
        model.partial_fit(part, continues=True)
    np.testing.assert_allclose(model.startprob_, start)
    with pytest.raises(ValueError, match="earlier partial_fit"):
        clone(model).fit(X).partial_fit(X[:10], continues=True)
    assert model.score(X) > VRHMM(2, random_state=0).fit(X).score(X) - 0.02


def test_annealing_ends_at_temperature_one(jumps):
    X, ids, _ = jumps
    model = VRHMM(
        3, tempering="annealed", annealing_iter=5, init_params="random", random_state=0
    ).fit(X, groups=ids)
    assert model.history_["temperature"][0] == 3.0
    assert model.history_["temperature"][-1] == 1.0 and model.converged_
    best = VRHMM(3, random_state=0).fit(X, groups=ids)
    assert model.log_likelihood_ == pytest.approx(best.log_likelihood_, abs=1e-4)


# Looking ahead


def test_forecast(jumps):
    X, ids, _ = jumps
    model = VRHMM(3, random_state=0).fit(X, groups=ids)
    forecast = model.forecast(X, horizon=200, groups=ids)
    ends = np.append(np.flatnonzero(np.diff(ids)), len(ids) - 1)
    last = model.filter_proba(X, groups=ids)[ends]
    np.testing.assert_allclose(forecast.states[:, 0], last @ model.transmat_)
    np.testing.assert_allclose(
        forecast.mean[:, 0], forecast.states[:, 0] @ model.means_
    )
    # Far ahead everything is as in the long run.
    drawn, _ = model.sample(100_000, random_state=0)
    np.testing.assert_allclose(forecast.mean[3, -1], drawn.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(forecast.sd[3, -1], drawn.std(axis=0), atol=0.1)
    with pytest.raises(ValueError, match="horizon"):
        model.forecast(X, horizon=0)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_pseudo_residuals_are_normal_where_the_model_is_right(family):
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=300), 20)
    if family == "gaussian":
        X = 4.0 * states[:, None] + rng.normal(size=(6000, 2))
    else:
        X = rng.poisson(np.where(states, 400.0, 100.0))[:, None].astype(float)
    X[7, 0] = np.nan
    model = VRHMM(2, emission=family, random_state=0).fit(X)
    residuals = model.pseudo_residuals(X)
    assert np.isnan(residuals[7, 0]) and np.isnan(residuals).sum() == 1
    kept = residuals[~np.isnan(residuals)]
    assert abs(kept.mean()) < 0.05 and abs(kept.std() - 1.0) < 0.05
    wrong = VRHMM(1, emission=family).fit(X).pseudo_residuals(X)
    assert abs(np.nanmean(wrong**4) - 3.0) > 0.5


def turning(family, centre, n=3000):
    """Angles of two states about a mean direction: one is anywhere, one near to it."""
    rng = np.random.default_rng(0)
    states = np.cumsum(rng.random(n) < 0.05) % 2
    if family is VonMises:
        return rng.vonmises(centre, np.where(states, 6.0, 0.5))[:, None]
    width = -np.log(np.where(states, 0.7, 0.2))
    return np.angle(np.exp(1j * (centre + width * rng.standard_cauchy(n))))[:, None]


def rounded(X):
    """Angles in whole tens of degrees, of which half a turn is one."""
    return np.radians(10.0 * np.round(np.degrees(X) / 10.0))


@pytest.mark.parametrize("centre", [0.0, 1.0, np.pi])
@pytest.mark.parametrize("family", [VonMises, WrappedCauchy])
@pytest.mark.parametrize("fixed", [True, False])
def test_residuals_of_rounded_angles(centre, family, fixed):
    """None is extreme for lying where -pi and pi meet, however many do."""
    X = rounded(turning(family, centre))
    assert (np.abs(X) > 3.14).sum() > 10
    emission = family(mean=centre) if fixed else family()
    model = VRHMM(2, emission=emission, random_state=0).fit(X)
    residuals = model.pseudo_residuals(X)
    missing = np.isnan(residuals)
    opposite = np.abs(np.angle(-np.exp(1j * (X - centre)))) < 1e-5
    np.testing.assert_array_equal(missing, opposite if fixed else False)
    wrapped = model.pseudo_residuals(X % (2.0 * np.pi))
    np.testing.assert_allclose(wrapped, residuals, rtol=1e-6, atol=1e-9)
    assert np.nanmax(np.abs(residuals)) < 5.0
    assert np.nanstd(residuals) == pytest.approx(1.0, abs=0.05)
    assert abs(np.nanmean(residuals)) < 0.06


def test_residuals_of_angles_are_measured_from_opposite_to_their_mean():
    """By sums over a fine grid of angles, one row after the other."""
    X = turning(VonMises, 1.0, 40)
    emission = VonMises([[1.0], [-2.5]], concentration=[[0.5], [6.0]])
    chain = Homogeneous([[0.95, 0.05], [0.05, 0.95]])
    model = VRHMM(2, emission=emission, transitions=chain).fit(X)
    residuals = model.pseudo_residuals(X)
    filtered, transmat = model.filter_proba(X), model.transmat_
    predicted = np.vstack([model.startprob_, filtered[:-1] @ transmat])
    grid = np.linspace(0.0, 2.0 * np.pi, 200_001)[:-1]
    densities = np.array(
        [vonmises.pdf(grid, *own) for own in zip([0.5, 6.0], [1.0, -2.5], strict=True)]
    )
    for row, shares in enumerate(predicted):
        density = shares @ densities / (shares @ densities).sum()
        cut = np.angle(-density @ np.exp(1j * grid))
        turned = (grid - cut) % (2.0 * np.pi)
        u = density[turned <= (X[row, 0] - cut) % (2.0 * np.pi)].sum()
        assert norm.cdf(residuals[row, 0]) == pytest.approx(u, abs=1e-4)


def test_residuals_of_angles_far_from_all():
    """On the side that they are of, and missing at the point between the two."""
    known = VonMises([[0.5]], concentration=[[1e4]])
    model = VRHMM(1, emission=known).fit([[0.5], [0.5]])
    X = np.array([[0.4], [-2.0], [0.5 - 3.1], [0.5 - np.pi], [0.5 + 3.1], [2.0]])
    residuals = model.pseudo_residuals(X)[:, 0]
    assert np.isnan(residuals[3])
    np.testing.assert_allclose(
        np.delete(residuals, 3), [-7.94] * 3 + [7.94] * 2, atol=0.1
    )


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
def test_tails_of_events_add_up(family):
    X = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]] * 20)
    model = VRHMM(1, emission=family).fit(X)
    below, above = model.emission_.tails(X[:, 0], 0, model.emission_.parameters())
    np.testing.assert_allclose(below + above, 1.0)
    np.testing.assert_allclose(below[:2, 0], [0.2, 0.7])


def test_the_first_state_as_in_the_long_run(jumps):
    X, ids, _ = jumps
    model = VRHMM(
        3, startprob="stationary", solver="batch", random_state=0, tol=1e-9
    ).fit(X, groups=ids)
    np.testing.assert_allclose(
        model.startprob_ @ model.transmat_, model.startprob_, atol=1e-10
    )
    assert model.n_parameters_ == 6 + 12
    assert (np.diff(model.history_["objective"][-20:]) > -1e-9).all()
    # No matrix near it, with its own stationary distribution, is better.
    best = model.score(X, groups=ids)
    rng = np.random.default_rng(0)
    found = model.transmat_
    for _ in range(20):
        near = found * np.exp(0.03 * rng.normal(size=(3, 3)))
        model.transmat_ = near / near.sum(axis=1, keepdims=True)
        model.startprob_ = stationary(model.transmat_)
        assert model.score(X, groups=ids) <= best + 1e-9


@pytest.mark.parametrize("covariance_type", ["diag", "full", "tied", "spherical"])
def test_states_do_not_depend_on_the_unit(covariance_type):
    """Such as returns of a minute, whose variances are below any fixed number."""
    rng = np.random.default_rng(3)
    states = np.repeat([0, 1] * 10, 60)
    X = rng.normal(size=(len(states), 2)) + 4.0 * states[:, None]
    params = {"covariance_type": covariance_type, "random_state": 0}

    def found(unit):
        model = VRHMM(2, **params).fit(X * unit)
        order = np.argsort(model.means_[:, 0])
        path = np.argsort(order)[model.predict(X * unit)]
        return model.means_[order] / unit, model.covars_[order] / unit**2, path

    means, covars, path = found(1.0)
    for unit in (2.0**-40, 2.0**30):
        other = found(unit)
        np.testing.assert_allclose(other[0], means, rtol=1e-6)
        np.testing.assert_allclose(other[1], covars, rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(other[2], path)
    # A column that does not vary has no unit, and a given number is that.
    flat = np.column_stack([X, np.full(len(X), 3.0)])
    found = VRHMM(2, **params).fit(flat)
    spreads = np.append(X.var(axis=0), X.var(axis=0).min())
    spreads = spreads.min() if covariance_type == "spherical" else spreads
    np.testing.assert_allclose(found.emission_.added, 1e-6 * spreads)
    assert VRHMM(2, reg_covar=0.1, **params).fit(X).emission_.added == 0.1
    assert VRHMM(2, **params).fit(np.ones((30, 1))).emission_.added == 1e-6
    with pytest.raises(ValueError, match="reg_covar"):
        VRHMM(2, reg_covar="small").fit(X)


@pytest.mark.parametrize("solver", ["batch", "svrg"])
@pytest.mark.parametrize("covariance_type", ["diag", "full", "tied"])
def test_columns_may_be_of_different_units(covariance_type, solver):
    """Where likelihoods lean on what is added: on lines, and on ties."""
    rng = np.random.default_rng(3)
    states = np.repeat([0, 1, 2] * 10, 30)
    X = rng.normal(size=(len(states), 1)) + 4.0 * (states[:, None] == 1)
    X = X + np.array([0.0, 1.0]) * 2e-3 * rng.normal(size=(len(states), 2))
    X[states == 2] = -5.0
    params = {"covariance_type": covariance_type, "solver": solver, "random_state": 0}
    # Optima are 5e-5 apart, and rounding ranks many starts; by "svrg" a single one of a
    # full covariance comes to none in 500 epochs.
    apart = 1e-4
    if solver == "batch":
        params["n_init"], apart = 1, 1e-6
    units = np.array([1.0, 1.0]), np.array([2.0**-10, 2.0**20])
    one, other = (VRHMM(3, **params).fit(X * unit) for unit in units)
    lost = one.score(X) - (other.score(X * units[1]) + np.log(units[1]).sum())
    assert abs(lost) < apart
    means, others = (np.sort(model.means_, axis=0) for model in (one, other))
    np.testing.assert_allclose(others / units[1], means, rtol=1e-4)
