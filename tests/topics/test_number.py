"""The number of topics, as held-out documents say."""

import pickle
import warnings
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skvrem import VRPLSA, TemperedLDA, TopicStabilityDisplay
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.text import (
    coherence,
    document_completion_scorer,
    top_words,
    topic_diversity,
)
from skvrem.text._likelihood import log_likelihood
from skvrem.text._topics import with_tokens
from skvrem.topics import _number
from skvrem.topics._documents import as_documents
from tests.documents import N_TOPICS, planted
from tests.watching import Untouched

KINDS = pytest.mark.parametrize(
    "kind", [VRPLSA, TemperedLDA], ids=lambda kind: kind.__name__
)


@pytest.fixture(scope="module")
def X():
    return planted()[0]


@KINDS
def test_the_topics_of_a_simulated_corpus_are_counted(kind, X):
    fits = [kind("auto", random_state=seed).fit(X) for seed in range(2)]
    for fit in fits:
        assert fit.n_components_ == len(fit.components_) == N_TOPICS
        assert fit.topic_shares_.min() > 0.05
        path = fit.completion_path_
        assert path["n_components"][0] == 16 and min(path["n_components"]) <= N_TOPICS
        assert len(path["completion"]) == len(path["n_components"])
        assert fit.history_["passes"][0] > 15


@KINDS
def test_the_number_found_does_not_depend_on_threads(kind, X):
    one, two = (kind("auto", random_state=0, n_jobs=n).fit(X) for n in (1, 2))
    np.testing.assert_array_equal(one.components_, two.components_)
    for name, values in one.completion_path_.items():
        np.testing.assert_array_equal(values, two.completion_path_[name])


@KINDS
def test_a_number_that_was_found_is_that_of_every_answer(kind, X):
    model = kind("auto", random_state=0).fit(X, sample_weight=np.full(X.shape[0], 2.0))
    k = model.n_components_
    assert model.transform(X[:3]).shape == (3, k)
    assert len(model.get_feature_names_out()) == len(model.summary()) == k
    assert top_words(model, n=4).shape == (k, 4)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(X[:3]), model.transform(X[:3]))
    model.partial_fit(X[:50])
    assert model.components_.shape[0] == model.n_components_ == k
    warm = model.set_params(warm_start=True).fit(X)
    assert warm.n_components_ == k and not hasattr(warm, "completion_path_")
    given = clone(model).set_params(components_init=model.components_[:4])
    assert given.fit(X).n_components_ <= 4


@KINDS
def test_a_grid_can_have_it_beside_numbers(kind, X):
    grid = {"n_components": [2, "auto"]}
    search = GridSearchCV(
        kind(random_state=0), grid, cv=2, scoring=document_completion_scorer
    ).fit(X)
    assert search.best_params_ == {"n_components": "auto"}


@KINDS
def test_what_cannot_be_counted_is_refused(kind, X):
    model = kind("auto")
    untouched = Untouched(model)
    with pytest.raises(ValueError, match="call fit before partial_fit"):
        model.partial_fit(X)
    with pytest.raises(ValueError, match=r"needs 20 of two words or more; X has 19"):
        model.fit(X[:19])
    for name in kind._priors:
        with pytest.raises(ValueError, match=f"{name} must be a number"):
            clone(model).set_params(**{name: [0.1, 0.2]}).fit(X)
    with pytest.raises(ValueError, match="n_components"):
        kind("mle").fit(X)
    untouched.check()


def test_mean_field_has_no_number_of_its_own(X):
    with pytest.raises(ValueError, match="e_step='collapsed'"):
        TemperedLDA("auto", e_step="mean_field").fit(X)


class _Fit:
    """A model of given topics and shares."""

    def __init__(self, topics, theta, shares):
        self.components_, self.theta, self.topic_shares_ = topics, theta, shares
        self.history_ = {"passes": np.array([1.0])}

    def transform(self, X):
        return self.theta


@pytest.fixture
def search(X):
    """A search whose fits are all the same, of five topics, and its first trial."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(X.shape[1], 0.1), size=5)
    topics[1] = 0.99 * topics[0] + 0.01 * topics[1]
    theta = rng.dirichlet(np.full(5, 0.5), size=30)
    model = _Fit(topics, theta, rng.dirichlet(np.full(5, 5.0)))
    scored = rng.multinomial(200, theta @ topics)
    halves = sp.csr_array(X[30:60]), sp.csr_array(scored)
    found = _number._Search(lambda *_: model, as_documents(X[:30]), halves, 1)
    return found, found.try_(5, 1), model


def test_gains_of_moves_are_those_of_models_that_made_them(search, monkeypatch):
    monkeypatch.setattr(_number, "LEAST_SHARE", -1.0)
    monkeypatch.setattr(_number, "NEIGHBOURS", 4)
    found, trial, model = search
    X, gains = found.scored, {pair: gain for gain, pair in found.gains(trial)}
    before = log_likelihood(model.theta, model.components_, X).sum()
    assert trial.completion == pytest.approx(before / X.sum())
    moves = [*combinations(range(5), 2), *((j, -1) for j in range(5))]
    assert gains.keys() == set(moves)
    for j, k in moves:
        topics, theta = model.components_.copy(), model.theta.copy()
        if k >= 0:
            shares = model.topic_shares_[[j, k]]
            topics[j] = shares @ topics[[j, k]] / shares.sum()
            theta[:, j] += theta[:, k]
        gone = j if k < 0 else k
        topics, theta = np.delete(topics, gone, 0), np.delete(theta, gone, 1)
        theta /= theta.sum(axis=1, keepdims=True)
        after = log_likelihood(theta, topics, X).sum()
        assert gains[j, k] == pytest.approx((after - before) / X.sum(), rel=1e-6)


def test_moves_are_of_different_topics_and_lose_little(search, monkeypatch):
    found, trial, _ = search
    gains = {pair: gain for gain, pair in found.gains(trial)}
    (pair,) = found.moves(trial)
    assert pair == (0, 1)
    for tolerance in (0.3, 5.0):
        monkeypatch.setattr(_number, "TOLERANCE", tolerance)
        monkeypatch.setattr(_number, "MOST_GONE", 1.0)
        moves = found.moves(trial)
        used = [k for move in moves for k in move if k >= 0]
        assert len(used) == len(set(used)) > 2
        assert sum(min(gains[move], 0.0) for move in moves) >= -tolerance
    monkeypatch.setattr(_number, "TOLERANCE", -1.0)  # none would do
    assert found.moves(trial) == [pair]


def test_the_fit_with_the_most_topics_is_merged_though_another_is_better(
    search, monkeypatch
):
    found, trial, _ = search
    monkeypatch.setattr(_number, "START", 2)
    values = {2: -3.0, 4: -2.0, 8: -2.5}

    def try_(n_topics, _):
        return trial._replace(shares=np.ones(n_topics), completion=values[n_topics])

    monkeypatch.setattr(found, "try_", try_)
    assert found.grown().completion == -2.5


@pytest.mark.parametrize(
    ("most", "last", "alive", "warns"),
    [
        (4, -2.0, 4, True),
        (4, -2.9995, 4, False),  # no more to gain
        (4, -2.0, 2, False),  # topics died
        (8, -2.0, 4, False),  # documents are too few for more
    ],
)
def test_a_search_that_ends_with_more_to_gain_warns(
    X, search, monkeypatch, most, last, alive, warns
):
    found, trial, _ = search
    monkeypatch.setattr(_number, "START", 2)
    monkeypatch.setattr(_number, "MOST", most)
    found.train = as_documents(X[: 2 * 8 if most == 4 else 2 * 7])
    completion = {2: -3.0, 4: last}

    def try_(n_topics, _):
        shares = np.ones(alive if n_topics == 4 else n_topics)
        return trial._replace(shares=shares, completion=completion[n_topics])

    monkeypatch.setattr(found, "try_", try_)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert len(found.grown().shares) == alive
    assert [one.category for one in seen] == [ConvergenceWarning] * warns
    for one in seen:
        assert "tries 4 topics at most" in str(one.message)
        assert "gained 1 nats" in str(one.message)
        assert "n_components=8" in str(one.message)


@pytest.mark.parametrize(("same", "left"), [(-1.0, 5), (-2.0, 2)])
def test_epochs_that_lose_are_not_held_against_fewer_topics(
    search, monkeypatch, same, left
):
    """Fewer topics come to -2; the same ones stay at -1, or come to it as well."""
    found, trial, _ = search

    def after(trial, moves):
        shares, completion = trial.shares[len(moves) :], -2.0 if moves else same
        return trial._replace(shares=shares, completion=completion)

    def moves(trial):
        return [(0, 1)] if len(trial.shares) > 2 else []

    monkeypatch.setattr(found, "after", after)
    monkeypatch.setattr(found, "moves", moves)
    assert len(found.merged(trial._replace(completion=-1.0)).shares) == left


def test_topics_after_moves_keep_their_tokens(search):
    _, trial, _ = search
    joint = trial.topics * trial.shares[:, None]
    made = _number._apply(trial, [(0, 1), (3, -1)])
    np.testing.assert_allclose(made, [joint[0] + joint[1], joint[2], joint[4]])


def test_topics_without_tokens_are_not_summed_up(X):
    model = TemperedLDA(8, random_state=0).fit(X)
    model.topic_shares_ = np.append(model.topic_shares_[:7], 1e-9)
    table = model.summary()
    assert len(table) == 7 and table.attrs["topics_without_tokens"] == 1
    assert "topics_without_tokens" not in TemperedLDA(2).fit(X).summary().attrs
    assert with_tokens(np.array([0.0, 1.0]), 0.1).tolist() == [1]


def test_topics_without_tokens_are_left_out_everywhere(X):
    """And said to be, by number; what says nothing of tokens keeps all."""
    model = TemperedLDA(8, random_state=0).fit(X)
    model.topic_shares_ = np.where(np.arange(8) == 2, 1e-9, model.topic_shares_)
    kept = np.delete(np.arange(8), 2)
    measures = [
        lambda topics: top_words(topics, n=3),
        lambda topics: top_words(topics, n=3, ranking="frex"),
        lambda topics: coherence(topics, X, n_words=3),
        lambda topics: topic_diversity(topics, n=3),
    ]
    for measure in measures:
        with pytest.warns(CollapsedComponentWarning, match="keep their order: 2. "):
            found = measure(model)
        np.testing.assert_array_equal(found, measure(model.components_[kept]))
    assert len(top_words(model.components_, n=3)) == 8
    display = TopicStabilityDisplay.from_estimators([model, model])
    assert len(display.labels) == 8
