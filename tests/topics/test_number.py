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
        assert path["n_components"][:2].tolist() == [1, 16]
        assert min(path["n_components"][1:]) <= N_TOPICS
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
    part = _number._SearchPart(as_documents(X[:30]), *halves)
    found = _number._Search(lambda *_: model, [part], 1)
    return found, found.try_(5, 1), model


def _of_so_many(trial, n_topics, completion, n_documents=1):
    """A trial of so many topics, whose documents all have the same completion."""
    fit = trial.fits[0]._replace(shares=np.ones(n_topics))
    judged = np.full(n_documents, float(completion))
    return _number._Trial([fit] * len(trial.fits), completion, judged)


def test_gains_of_moves_are_those_of_models_that_made_them(search, monkeypatch):
    monkeypatch.setattr(_number, "LEAST_SHARE", -1.0)
    monkeypatch.setattr(_number, "NEIGHBOURS", 4)
    found, trial, model = search
    (part,), (fit,) = found.parts, trial.fits
    X, gains = part.scored, {pair: gain for gain, pair in found.gains(part, fit)}
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
    given = found.parts[0], trial.fits[0]
    gains = {pair: gain for gain, pair in found.gains(*given)}
    (pair,) = found.moves(*given)
    assert pair == (0, 1)
    for tolerance in (0.3, 5.0):
        monkeypatch.setattr(_number, "TOLERANCE", tolerance)
        monkeypatch.setattr(_number, "MOST_GONE", 1.0)
        moves = found.moves(*given)
        used = [k for move in moves for k in move if k >= 0]
        assert len(used) == len(set(used)) > 2
        assert sum(min(gains[move], 0.0) for move in moves) >= -tolerance
    monkeypatch.setattr(_number, "TOLERANCE", -1.0)  # none would do
    assert found.moves(*given) == [pair]


def test_the_fit_with_the_most_topics_is_merged_though_another_is_better(
    search, monkeypatch
):
    found, trial, _ = search
    monkeypatch.setattr(_number, "START", 2)
    values = {1: -4.0, 2: -3.0, 4: -2.0, 8: -2.5}

    def try_(n_topics, _):
        return _of_so_many(trial, n_topics, values[n_topics])

    monkeypatch.setattr(found, "try_", try_)
    assert found.grown().completion == -2.5
    assert found.best.completion == -2.0 and found.best_number == 4


@pytest.mark.parametrize(
    ("most", "last", "alive", "warns"),
    [
        (4, -2.0, 4, True),
        (4, -2.9995, 4, False),  # no more to gain
        (4, -2.0, 2, False),  # topics died
        (8, -2.0, 4, True),  # as many as documents
        (8, -2.9995, 4, False),
    ],
)
def test_a_search_that_ends_with_more_to_gain_warns(
    X, search, monkeypatch, most, last, alive, warns
):
    found, trial, _ = search
    monkeypatch.setattr(_number, "START", 2)
    monkeypatch.setattr(_number, "MOST", most)
    train = as_documents(X[: 8 if most == 4 else 4])
    found.parts = [found.parts[0]._replace(train=train)]
    completion = {1: -4.0, 2: -3.0, 4: last}

    def try_(n_topics, _):
        left = alive if n_topics == 4 else n_topics
        return _of_so_many(trial, left, completion[n_topics])

    monkeypatch.setattr(found, "try_", try_)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert found.grown().number == alive
    assert [one.category for one in seen] == [ConvergenceWarning] * warns
    for one in seen:
        at_most, more = "tries 4 topics at most", 8
        if most != 4:
            at_most, more = "no more topics than the 4 documents", 4
        assert at_most in str(one.message)
        assert "gained 1 nats" in str(one.message)
        assert f"n_components={more} or more" in str(one.message)


def test_topics_that_are_no_better_than_one_do_not_grow(search, monkeypatch):
    """Twice as many gain on them, but few topics are better."""
    found, trial, _ = search
    values = {1: -2.0, 2: -1.9, 4: -3.0, 8: -3.5, 16: -4.0, 32: -3.5}
    tried = []

    def try_(n_topics, _):
        tried.append(n_topics)
        return _of_so_many(trial, n_topics, values[n_topics])

    monkeypatch.setattr(found, "try_", try_)
    assert found.grown().number == 16 and tried == [1, 16, 2, 4, 8]
    assert found.best.completion == -1.9 and found.best_number == 2


@pytest.mark.parametrize(
    ("few", "best", "merged"),
    [
        (False, -2.5, [5, 2]),
        (False, -3.5, [5]),  # merged ones are better
        (True, -2.5, [5]),  # begin as they are
    ],
)
def test_where_merging_has_stuck_the_best_random_topics_are_merged(
    X, search, monkeypatch, few, best, merged
):
    one, trial, _ = search
    monkeypatch.setattr(_number, "_Search", lambda *_: one)
    monkeypatch.setattr(one, "grown", lambda: trial)
    seen = []

    def merge(trial):
        seen.append(round(trial.number))
        return trial._replace(completion=-3.0) if len(seen) == 1 else trial

    monkeypatch.setattr(one, "merged", merge)
    one.few, one.best, one.best_number = few, _of_so_many(trial, 2, best), 2
    best_fit = trial.fits[0]._replace(topics=np.eye(2, 3), shares=np.ones(2))
    one.best = one.best._replace(fits=[best_fit])
    data, rng = as_documents(X), np.random.default_rng(0)
    found = _number.find_number(None, data, rng)
    assert seen == merged
    assert found.n_topics == (2 if best > -3.0 else 5)
    assert (found.topics is None) == few


def test_topics_that_documents_do_not_have_are_not_found():
    """Far too many of them are better than too many, and worse than one or two."""
    for n_topics, seed in ((1, 3), (2, 1)):
        rng = np.random.default_rng(100 + seed)
        prior = np.full(27, 1.0 if n_topics == 1 else 0.5)
        topics = rng.dirichlet(prior, size=n_topics)
        theta = rng.dirichlet(np.full(n_topics, 0.5), size=900)
        X = np.array([rng.multinomial(20, p) for p in theta @ topics])
        fit = VRPLSA("auto", random_state=seed).fit(X)
        assert fit.n_components_ == n_topics
        assert max(fit.completion_path_["n_components"]) == 16


def test_growth_ends_with_as_many_topics_as_documents(X, search, monkeypatch):
    found, trial, _ = search
    monkeypatch.setattr(_number, "START", 2)
    found.parts = [found.parts[0]._replace(train=as_documents(X[:5]))]
    tried = []

    def try_(n_topics, _):
        tried.append(n_topics)
        return _of_so_many(trial, n_topics, float(n_topics))

    monkeypatch.setattr(found, "try_", try_)
    with pytest.warns(ConvergenceWarning, match="than the 5 documents"):
        assert found.grown().number == 5
    assert tried == [1, 2, 4, 5]


def test_documents_too_few_for_more_than_the_first_topics_do_not_warn(
    X, search, monkeypatch
):
    found, trial, _ = search
    monkeypatch.setattr(_number, "START", 2)
    found.parts = [found.parts[0]._replace(train=as_documents(X[:2]))]
    monkeypatch.setattr(found, "try_", lambda n, _: _of_so_many(trial, n, float(n)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found.grown().number == 2


@pytest.mark.parametrize(
    ("random", "several", "scored", "given", "races"),
    [
        (-1.9, False, 5000, False, True),  # likelier
        (-2.005, True, 5000, True, True),  # hardly worse
        (-2.005, False, 5000, True, False),
        (-2.5, True, 5000, True, False),
        (-2.5, True, 500, True, True),  # by a few words
    ],
)
def test_random_topics_take_the_place_of_merged_ones_or_race(
    X, search, monkeypatch, random, several, scored, given, races
):
    one, trial, _ = search
    monkeypatch.setattr(_number, "_Search", lambda *_: one)
    monkeypatch.setattr(one, "grown", lambda: trial)
    monkeypatch.setattr(one, "merged", lambda _: trial._replace(completion=-2.0))
    numbers = []

    def try_(n_topics, n_epochs):
        assert n_epochs is None  # to their end
        numbers.append(n_topics)
        return _of_so_many(trial, n_topics, random)

    monkeypatch.setattr(one, "try_", try_)
    one.scored, one.best = float(scored), _of_so_many(trial, 16, -3.0)
    data, rng = as_documents(X), np.random.default_rng(0)
    found = _number.find_number(None, data, rng, races=lambda _: several)
    assert (found.topics is not None) == given
    assert found.n_topics == 5 and found.races == races and numbers == [5]


def test_only_random_topics_are_annealed():
    """Heat would blur those that are known."""
    data = as_documents(planted()[0])
    plan = VRPLSA()._plan(data.n_units, True)
    for known in (False, True):
        beta = VRPLSA("auto")._temperature(plan, None, data, None, 0, known)
        assert (beta.length > 0) != known


@pytest.mark.parametrize(("same", "left"), [(-1.0, 5), (-2.0, 2)])
def test_epochs_that_lose_are_not_held_against_fewer_topics(
    search, monkeypatch, same, left
):
    """Fewer topics come to -2; the same ones stay at -1, or come to it as well."""
    found, trial, _ = search

    def after(trial, moves):
        (moves,) = moves
        left = int(trial.number) - len(moves)
        return _of_so_many(trial, left, -2.0 if moves else same)

    def moves(part, fit):
        return [(0, 1)] if len(fit.shares) > 2 else []

    monkeypatch.setattr(found, "after", after)
    monkeypatch.setattr(found, "moves", moves)
    monkeypatch.setattr(found, "scored", 1.0)
    assert found.merged(_of_so_many(trial, 5, -1.0)).number == left


def test_topics_after_moves_keep_their_tokens(search):
    _, trial, _ = search
    (fit,) = trial.fits
    joint = fit.topics * fit.shares[:, None]
    made = _number._apply(fit, [(0, 1), (3, -1)])
    np.testing.assert_allclose(made, [joint[0] + joint[1], joint[2], joint[4]])


def _parts(X, n_parts=4):
    return _number._hold_out(as_documents(X), np.random.default_rng(0), n_parts)


def test_all_parts_come_to_one_number(search, monkeypatch):
    """Of parts with five, four and four topics the first one has more to lose."""
    found, trial, _ = search
    fits = [_of_so_many(trial, n, 0.0).fits[0] for n in (5, 4, 4)]
    found.parts *= 3
    moved = []

    def after(trial, moves):
        moved.append([len(some) for some in moves])
        return trial

    monkeypatch.setattr(found, "after", after)
    monkeypatch.setattr(found, "moves", lambda part, fit: [(0, 1), (2, 3)])
    monkeypatch.setattr(found, "will_do", lambda *_: False)
    assert found.fewer(trial._replace(fits=fits), trial) is None
    assert moved == [[2, 2, 2], [2, 1, 1]]


def test_each_of_few_documents_is_held_out_once(X, monkeypatch):
    """By the words that some other document has, and fitted in all other parts."""
    assert len(_parts(X[:99])) == 1 and len(_parts(X[:110])) == 4
    monkeypatch.setattr(_number, "LEAST_IN_PARTS", 40)
    X = np.where(np.arange(41)[:, None] == 7, 0.0, X[:41])
    X = sp.csr_array(X)
    parts = _parts(X)
    assert [part.observed.shape[0] for part in parts] == [10] * 4
    rows = [{tuple(row) for row in part.train.X.toarray()} for part in parts]
    assert all(len(some) == 30 for some in rows)
    whole = {tuple(row) for row in X.toarray()} - {(0.0,) * X.shape[1]}
    assert set.union(*rows) == whole
    for some, part in zip(rows, parts, strict=True):
        known = part.train.X.toarray().any(axis=0)
        halves = (part.observed + part.scored).toarray()
        assert not halves[:, ~known].any()
        left_out = np.array(sorted(whole - some)) * known
        np.testing.assert_array_equal(
            sorted(map(tuple, halves)), sorted(map(tuple, left_out))
        )
        ids = np.arange(10)
        both = [*ids[part.choosing], *ids[part.judging]]
        assert both == ids.tolist() and len(ids[part.choosing]) == 5


@pytest.mark.parametrize(("name", "few"), [("FEW_DOCUMENTS", 0), ("FEW_TOKENS", 0)])
def test_documents_are_few_by_number_or_by_tokens(X, monkeypatch, name, few):
    monkeypatch.setattr(_number, name, few)
    assert len(_parts(X, 3)) == 3
    assert len(_parts(X, 1)) == 1
    monkeypatch.setattr(_number, "FEW_DOCUMENTS", 0)
    monkeypatch.setattr(_number, "FEW_TOKENS", 0)
    (part,) = _parts(X)
    n = part.observed.shape[0]
    assert n == min(200, X.shape[0] // 4) and part.train.n_units == X.shape[0] - n


def test_few_documents_are_to_gain_by_fewer_topics(search):
    """More than a standard error; many are to lose no more than the tolerance."""
    found, trial, _ = search
    before = trial._replace(judged=np.zeros(100))
    gains = np.random.default_rng(0).normal(0.0, 1.0, 100)
    gains -= gains.mean()
    error = gains.std() / 10.0
    for few, least in ((True, error), (False, -_number.TOLERANCE * found.scored / 100)):
        found.few = few
        for off, well in ((1e-6, True), (-1e-6, False)):
            after = before._replace(judged=gains + least + off)
            assert found.will_do(after, before) == well


def test_moves_are_chosen_by_documents_that_do_not_judge_them(search):
    found, trial, model = search
    (part,), (fit,) = found.parts, trial.fits
    part = part._replace(choosing=slice(20), judging=slice(20, None))
    some = part._replace(observed=part.observed[:20], scored=part.scored[:20])
    some = some._replace(choosing=slice(None))
    first = found.gains(some, fit._replace(theta=fit.theta[:20]))
    assert found.gains(part, fit) == first
    found.parts = [part]
    each = log_likelihood(model.theta, model.components_, part.scored)
    np.testing.assert_array_equal(found.try_(5, 1).judged, each[20:])


def test_topics_of_few_documents_race_with_random_ones(X, monkeypatch):
    """Those that were found go to their end; without any, random ones begin."""
    few, rng = X[:150], np.random.default_rng(0)
    topics = rng.random((N_TOPICS, X.shape[1]))
    path = {"n_components": np.array([3]), "completion": np.array([-5.0])}
    starts = len(TemperedLDA(N_TOPICS, random_state=0).fit(few).init_scores_)
    for given, races, n in (
        (topics, True, starts + 1),
        (topics, False, 1),
        (None, True, starts),
    ):
        found = _number.StartingTopics(given, N_TOPICS, races, 1.0, path)
        monkeypatch.setattr(TemperedLDA, "_find_number", lambda *_, found=found: found)
        model = TemperedLDA("auto", random_state=0).fit(few)
        assert len(model.init_scores_) == n
        assert model.objective_ == max(model.init_scores_)


def test_parts_have_the_priors_of_all_documents():
    """That of shares is learned from a number of documents on, which parts may miss."""
    assert TemperedLDA("auto")._as_of(300) == {"doc_topic_prior": "learn"}
    assert TemperedLDA("auto")._as_of(299) == {}
    assert TemperedLDA("auto", doc_topic_prior=0.1)._as_of(300) == {}


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
