"""VRPLSA: what it finds, against EM written out in NumPy, and what it takes."""

import pickle
import tracemalloc
import warnings

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV

from skvrem import VRPLSA
from skvrem.exceptions import FractionalCountsWarning
from skvrem.text import document_completion, seed_prior, top_words
from skvrem.topics import _model_arrays
from skvrem.topics._documents import ALIKE, as_documents
from skvrem.topics._model import ROOM
from skvrem.topics.plsa import _kernels, _model
from skvrem.topics.plsa._estimator import DEFAULT_TEMPERATURE, SHORT
from tests.documents import N_TOPICS as K
from tests.documents import N_WORDS as V
from tests.documents import (
    assert_same_state,
    frame_of,
    hard_corpora,
    matched,
    nearly_alike,
    normalized,
    of_two_topics,
    planted,
)
from tests.laws.cases import documents

SOLVERS = ("batch", "stochastic", "svrg")
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def plsa(**params):
    # Few short documents take many cheap passes.
    defaults = {"n_components": K, "random_state": 0, "max_iter": 1000}
    return VRPLSA(**(defaults | params))


# EM in NumPy


def objective(X, phi, theta, alpha, beta, weight=1.0):
    """The formula of the user guide, a token."""
    weight = np.broadcast_to(weight, len(X))
    p = theta @ phi
    likelihood = np.sum(X * np.log(np.where(X > 0, p, 1.0)), axis=1)
    shares = np.sum(alpha * np.log(theta), axis=1)
    total = weight @ (likelihood + shares) + np.sum(beta * np.log(phi))
    return total / (weight @ X.sum(axis=1))


def responsibilities(X, phi, theta, b):
    """γ_dvk, an array with an entry for every cell and topic."""
    joint = (theta[:, None, :] * phi.T[None]) ** b
    return X[:, :, None] * joint / joint.sum(axis=2, keepdims=True)


def em_step(X, phi, theta, alpha, beta, *, weight=1.0, b=1.0, doc_steps=1):
    """One step of EM on the topics; return the new topics and shares."""
    for _ in range(doc_steps):
        gamma = responsibilities(X, phi, theta, b)
        theta = gamma.sum(axis=1) + alpha
        theta /= theta.sum(axis=1, keepdims=True)
    weight = np.broadcast_to(weight, len(X))
    phi = np.einsum("d,dvk->kv", weight, gamma) + beta
    return phi / phi.sum(axis=1, keepdims=True), theta


def fold_in(X, phi, alpha, n_steps=5000):
    """Shares of documents by so many EM steps, the topics held."""
    theta = np.full((len(X), len(phi)), 1.0 / len(phi))
    for _ in range(n_steps):
        p = np.where(X > 0, theta @ phi, 1.0)
        new = theta * ((X / p) @ phi.T) + alpha
        new /= new.sum(axis=1, keepdims=True)
        if abs(new - theta).max() < 1e-15:
            break
        theta = new
    return theta


# What it finds


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_planted_topics_are_found(solver):
    X, topics = planted()
    fitted = plsa(solver=solver).fit(X)
    _, distances = matched(fitted.components_, topics)
    assert distances.max() < 0.08
    assert fitted.converged_
    ends = {"auto": "svrg", "stochastic": "batch"}
    assert fitted.solver_ == ends.get(solver, solver)


def test_few_documents_are_fitted_in_batch():
    fitted = plsa(n_components=2).fit(planted(100)[0])
    assert fitted.solver_ == "batch"
    assert fitted.batch_size_ == 100


@quiet
@pytest.mark.parametrize("doc_steps", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("b", [1.0, 0.5])
def test_batch_is_em_step_by_step(b, weighted, doc_steps):
    X = planted(40)[0]
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, 40) if weighted else np.ones(40)
    alpha, beta = rng.uniform(0.1, 1.0, K), rng.uniform(0.1, 1.0, (K, V))
    start = normalized(rng.uniform(0.5, 1.0, (K, V)))
    fitted = plsa(
        solver="batch",
        doc_topic_smoothing=alpha,
        topic_word_smoothing=beta,
        components_init=7.0 * start,
        inner_iter=doc_steps,
        tempering=None if b == 1.0 else "annealed",
        temperature=1 / b,
        annealing_iter=1,
        max_iter=5,
        tol=0.0,
    ).fit(X.astype(float), sample_weight=weight if weighted else None)
    phi, theta = start, np.full((40, K), 1.0 / K)
    for epoch in range(5):
        at = theta
        for _ in range(doc_steps - 1):
            at = em_step(X, phi, at, alpha, beta, b=b if epoch == 0 else 1.0)[1]
        if epoch or b == 1.0:
            # The objective is that of the last step on the shares.
            expected = objective(X, phi, at, alpha, beta, weight)
            found = fitted.history_["objective"][epoch]
            assert found == pytest.approx(expected, rel=1e-12)
        phi, theta = em_step(
            X,
            phi,
            theta,
            alpha,
            beta,
            weight=weight,
            b=b if epoch == 0 else 1.0,
            doc_steps=doc_steps,
        )
    assert fitted.n_iter_ == 5
    np.testing.assert_allclose(fitted.components_, phi, rtol=1e-9)


@pytest.mark.parametrize("solver", ["batch", "svrg"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_end_is_a_fixed_point_of_em(solver, weighted):
    X = planted()[0]
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X)) if weighted else None
    fitted = plsa(solver=solver, tol=1e-12, max_iter=3000).fit(
        X.astype(float), sample_weight=weight
    )
    assert fitted.converged_
    u = 1.0 if weight is None else weight
    phi, alpha = fitted.components_, fitted.doc_topic_smoothing_
    theta = fold_in(X, phi, alpha)
    again, _ = em_step(X, phi, theta, alpha, 0.1, weight=u)
    np.testing.assert_allclose(again, phi, atol=2e-6)
    expected = objective(X, phi, theta, alpha, 0.1, u)
    assert fitted.objective_ == pytest.approx(expected, abs=1e-9)


@quiet
def test_the_objective_of_stochastic_em_is_exact_at_its_end():
    X = planted(200)[0]
    fitted = plsa(solver="stochastic", batch_size=50, max_iter=3, tol=0.0).fit(X)
    values = fitted.history_["objective"]
    assert len(values) == 5  # the start, an epoch each, and the end
    assert fitted.objective_ == values[-1]
    phi, alpha = fitted.components_, fitted.doc_topic_smoothing_
    best = objective(X, phi, fold_in(X, phi, alpha), alpha, 0.1)
    assert fitted.objective_ <= best + 1e-6


@pytest.mark.parametrize("solver", ["batch", "svrg"])
def test_the_objective_never_falls(solver):
    """At one temperature: that of another is another objective."""
    fitted = plsa(solver=solver, tempering=None, tol=1e-7, max_iter=300)
    objective = fitted.fit(planted()[0].astype(float)).history_["objective"]
    assert np.isnan(objective[0]) == (solver == "svrg")  # an epoch of "stochastic"
    assert (np.diff(objective[solver == "svrg" :]) > -1e-7).all()


@quiet
def test_variance_reduction_begins_with_stochastic_steps_at_random_topics():
    X = planted(400)[0]
    options = {"solver": "svrg", "max_iter": 3, "tol": 0.0}
    fitted = plsa(**options).fit(X)
    n_blocks = -(-400 // fitted.batch_size_)
    assert fitted.step_size_ == min(1.0, 7.0 / n_blocks)
    history = fitted.history_
    assert np.isnan(history["objective"]).tolist() == [True, False, False, False]
    assert history["solver"].tolist() == ["stochastic", "stochastic", "svrg", "svrg"]
    assert (history["step_size"] == fitted.step_size_).all()
    # A pass of visits; then an anchor a pass, and visits that recall it.
    assert np.diff(history["passes"]).tolist() == [2.0, 2.5, 2.5]
    topics = fitted.components_
    for other in (
        plsa(**options, step_size=0.5),
        plsa(**options, components_init=topics),
        fitted.set_params(warm_start=True),
    ):
        assert np.isfinite(other.fit(X).history_["objective"]).all()


@quiet
@pytest.mark.parametrize(
    ("n_documents", "step"), [(2000, 0.35), (10_000, 0.35), (40_000, 0.7), (90_000, 1)]
)
def test_larger_steps_of_larger_minibatches(n_documents, step):
    X = sp.csr_array(np.ones((n_documents, 1)))
    fitted = plsa(solver="svrg", max_iter=1, tol=0.0).fit(X)
    assert fitted.step_size_ == pytest.approx(step)


@quiet
def test_one_epoch_of_variance_reduction_has_an_exact_objective():
    X = planted(400)[0]
    fitted = plsa(solver="svrg", max_iter=1, tol=0.0).fit(X)
    assert fitted.n_iter_ == 1
    assert np.isnan(fitted.history_["objective"]).tolist() == [True, False]
    assert fitted.objective_ == fitted.history_["objective"][-1]


def test_words_may_be_taken_in_parts(monkeypatch):
    X, *_ = planted(100)
    params = {"topic_word_smoothing": 0.3, "solver": "batch", "max_iter": 5, "tol": 0.0}
    whole = plsa(**params).fit(X)
    monkeypatch.setattr(_model, "TASK_WORDS", 7)
    parts = plsa(**params).fit(X)
    assert parts.objective_ == pytest.approx(whole.objective_, rel=1e-12)
    np.testing.assert_allclose(parts.components_, whole.components_, rtol=1e-9)


def test_topic_shares_are_those_of_the_tokens():
    X = planted()[0]
    fitted = plsa(tol=1e-10, max_iter=500).fit(X.astype(float))
    theta = fold_in(X, fitted.components_, fitted.doc_topic_smoothing_)
    gamma = responsibilities(X, fitted.components_, theta, 1.0)
    np.testing.assert_allclose(
        fitted.topic_shares_, gamma.sum(axis=(0, 1)) / X.sum(), atol=1e-5
    )
    assert fitted.topic_shares_.sum() == pytest.approx(1.0)
    assert fitted.n_tokens_seen_ == X.sum()


def test_without_priors_and_with_one_topic_it_is_the_unigram():
    X = planted()[0]
    fitted = plsa(n_components=1, topic_word_smoothing=0.0, solver="batch")
    fitted.fit(X.astype(float))
    np.testing.assert_allclose(fitted.components_[0], X.sum(axis=0) / X.sum())
    np.testing.assert_allclose(fitted.transform(X), 1.0, rtol=1e-15)


# New documents


@pytest.fixture(scope="module")
def fitted():
    """Of float64; not to be changed."""
    return plsa(doc_topic_smoothing=[0.1, 0.2, 0.3, 0.4]).fit(
        planted()[0].astype(float)
    )


@pytest.mark.parametrize("prior", [0.0, 0.3, [0.1, 0.2, 0.3, 2.0]])
def test_transform_is_the_optimum_of_each_document(prior):
    X = planted(50, length=20, seed=5)[0]
    model = plsa(doc_topic_smoothing=prior).fit(planted(200)[0].astype(float))
    model.set_params(inner_tol=0.0, max_inner_iter=5000)
    expected = fold_in(X, model.components_, np.broadcast_to(prior, K))
    found = model.transform(X)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    # With the defaults it is close.
    model.set_params(inner_tol=1e-3, max_inner_iter=100)
    np.testing.assert_allclose(model.transform(X), expected, atol=0.03)


def test_transform_rows_are_probabilities(fitted):
    theta = fitted.transform(planted(seed=1)[0])
    assert theta.shape == (600, K)
    assert (theta >= 0).all()
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-12)


def test_empty_documents_get_the_prior(fitted):
    X = np.zeros((3, V))
    X[1, 5] = 2
    theta = fitted.transform(X)
    np.testing.assert_allclose(theta[[0, 2]], [[0.1, 0.2, 0.3, 0.4]] * 2)
    assert abs(theta[1] - theta[0]).max() > 0.1
    model = plsa(doc_topic_smoothing=0.0).fit(planted(50)[0])
    np.testing.assert_array_equal(model.transform(np.zeros((2, V), int)), 1.0 / K)


def test_words_never_seen_say_nothing():
    X = planted()[0]
    X[:, 7] = 0
    # Steps of minibatches leave some 1e-43 of the start.
    model = plsa(topic_word_smoothing=0.0, solver="batch").fit(X)
    assert not model.components_[:, 7].any()
    new = planted(20, seed=1)[0]
    new[:, 7] = 0
    with_it = new.copy()
    with_it[:, 7] = 3
    theta = model.transform(with_it)
    np.testing.assert_allclose(theta, model.transform(new), atol=1e-6)
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-6)
    assert model.score(with_it) == -np.inf
    # The default prior expects every word of the vocabulary.
    model = plsa().fit(X)
    assert (model.components_ > 0).all()
    assert np.isfinite(model.score(with_it))


def test_inverse_transform_mixes_topics(fitted):
    p = fitted.inverse_transform(np.vstack([np.eye(K), np.full(K, 1 / K)]))
    np.testing.assert_allclose(p[:K], fitted.components_)
    np.testing.assert_allclose(p[K], fitted.components_.mean(axis=0))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    X = planted(seed=3)[0]
    expected = fitted.inverse_transform(fitted.transform(X)) * X.sum(1, keepdims=True)
    unigram = np.outer(X.sum(axis=1), X.sum(axis=0) / X.sum())
    assert np.square(X - expected).sum() < 0.3 * np.square(X - unigram).sum()
    with pytest.raises(ValueError, match="X has 3 columns, but there are 4 topics"):
        fitted.inverse_transform(np.ones((2, 3)))


def test_score_and_perplexity_are_document_completion(fitted):
    X = planted(seed=4)[0]
    assert fitted.score(X) == document_completion(fitted, X)
    assert fitted.perplexity(X) == pytest.approx(np.exp(-fitted.score(X)))
    assert fitted.score(sp.csr_array(X)) == fitted.score(X)
    uniform = plsa(max_iter=0, components_init=np.ones((K, V))).fit(X)
    assert uniform.perplexity(X) == pytest.approx(V)
    assert fitted.perplexity(X) < V / 2


def test_a_grid_search_finds_the_number_of_topics():
    X = planted()[0]
    search = GridSearchCV(
        plsa(max_iter=300), {"n_components": [1, 2, 4, 12]}, cv=3, n_jobs=1
    ).fit(X)
    assert search.best_params_ == {"n_components": K}
    assert search.score(X) > search.cv_results_["mean_test_score"][0]


# Streams


def test_a_stream_learns():
    X, topics = planted(4000, length=40)
    unseen, _ = planted(1000, length=40, seed=1)
    stream = plsa()
    scores = []
    for i, rows in enumerate(np.array_split(X, 40)):
        stream.partial_fit(rows)
        if i in (0, 5, 39):
            scores.append(stream.score(unseen))
    assert scores[0] < scores[1] < scores[2]
    assert stream.n_tokens_seen_ == X.sum()
    assert stream.n_iter_ == 40
    assert matched(stream.components_, topics)[1].max() < 0.1
    assert plsa().fit(X).score(unseen) - scores[-1] < 0.005


def test_a_stream_goes_on_from_a_fit():
    X = planted()[0]
    model = plsa().fit(X)
    before = model.components_.copy()
    model.partial_fit(planted(5, seed=1)[0])
    moved = abs(model.components_ - before).max()
    assert 0.0 < moved < 0.02  # five documents after six hundred
    assert not hasattr(model, "history_")
    assert model.solver_ == "stochastic"
    assert model.n_tokens_seen_ > X.sum()
    again = pickle.loads(pickle.dumps(plsa().fit(X)))
    again.partial_fit(planted(5, seed=1)[0])
    assert_same_state(again, model)


def test_a_stream_goes_on_with_relabelled_priors():
    X = planted(300)[0]
    order = [2, 0, 3, 1]
    prior = np.random.default_rng(0).uniform(0.1, 5.0, (K, V))
    model = plsa(
        doc_topic_smoothing=[0.1, 1.0, 4.0, 2.0], topic_word_smoothing=prior
    ).fit(X)
    other = pickle.loads(pickle.dumps(model)).relabel(order).partial_fit(X[:20])
    model.partial_fit(X[:20]).relabel(order)
    np.testing.assert_allclose(other.components_, model.components_, rtol=1e-6)


def test_a_stream_of_single_documents():
    X = planted(300)[0]
    model = plsa(n_components=2)
    for row in X:
        model.partial_fit(row[None])
    assert model.n_iter_ == 300
    assert model.n_tokens_seen_ == X.sum()
    assert model.score(X) > plsa(n_components=1).fit(X).score(X)


def test_the_first_batch_moves_the_start_by_the_formula():
    X = planted(30)[0].astype(float)
    start = normalized(np.random.default_rng(0).uniform(0.5, 1.0, (K, V)))
    model = plsa(components_init=start, inner_tol=0.0, max_inner_iter=7)
    model.partial_fit(X)
    phi = normalized(start / K + 0.1 / X.sum())
    theta = np.full((30, K), 1.0 / K)
    for _ in range(7):
        gamma = responsibilities(X, phi, theta, 1.0)
        theta = normalized(gamma.sum(axis=1) + 1.0 / K)
    step = 2.0**-0.6
    s = (1 - step) * start / K + step * gamma.sum(axis=0).T / X.sum()
    np.testing.assert_allclose(
        model.components_, normalized(s + 0.1 / X.sum()), rtol=1e-9
    )
    assert model.step_size_ == step


# Names


def test_relabel_takes_everything_along():
    X = planted()[0]
    prior = np.random.default_rng(0).uniform(0.1, 1.0, (K, V))
    model = plsa(
        doc_topic_smoothing=[0.1, 0.2, 0.3, 0.4], topic_word_smoothing=prior
    ).fit(X)
    before = pickle.loads(pickle.dumps(model))
    order = np.argsort(-model.topic_shares_)
    assert not np.array_equal(order, np.arange(K))
    assert model.relabel(order) is model
    assert (np.diff(model.topic_shares_) <= 0).all()
    np.testing.assert_array_equal(model.components_, before.components_[order])
    np.testing.assert_array_equal(model.topic_word_smoothing_, prior[order])
    np.testing.assert_allclose(
        model.transform(X), before.transform(X)[:, order], atol=1e-5
    )
    assert model.summary()["share"].iloc[0] == before.summary()["share"].iloc[order[0]]
    assert model.score(X) == pytest.approx(before.score(X), abs=1e-6)
    with pytest.raises(ValueError, match="permutation"):
        model.relabel([0, 0, 1, 2])


def test_a_relabelled_stream_goes_on():
    X = planted()[0].astype(float)
    one, other = (plsa().partial_fit(X[:300]) for _ in range(2))
    order = np.array([2, 0, 3, 1])
    one.partial_fit(X[300:]).relabel(order)
    other.relabel(order).partial_fit(X[300:])
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-10)
    np.testing.assert_allclose(one.topic_shares_, other.topic_shares_, atol=1e-10)


def test_summary():
    pytest.importorskip("pandas")
    X, topics = planted()
    model = plsa(n_init=2).fit(frame_of(X))
    table = model.summary(n_words=3)
    assert list(table.columns) == ["share", "words"]
    assert list(table.index) == [f"topic {k}" for k in range(K)]
    assert table["share"].sum() == pytest.approx(1.0)
    order, _ = matched(model.components_, topics)
    best = f"word{topics[0].argmax()}"
    assert best in table["words"].iloc[order[0]].split()
    assert table.attrs["solver"] == "svrg"
    assert table.attrs["converged"]
    assert table.attrs["starts_at_best"] in ("1 of 2", "2 of 2")
    names = [f"w{v}" for v in range(V)]
    assert model.summary(names)["words"].iloc[0].startswith("w")
    stream = plsa().partial_fit(X)
    assert "passes" not in stream.summary().attrs


def test_summary_without_pandas(monkeypatch):
    import builtins

    model = plsa().fit(planted()[0])
    real = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    text = model.summary()
    assert isinstance(text, str)
    assert "topic 3" in text
    assert "objective" in text


# Priors and starts


def test_defaults_of_the_priors():
    X = planted(50)[0]
    model = plsa().fit(X)
    np.testing.assert_array_equal(model.doc_topic_smoothing_, np.full(K, 1.0 / K))
    assert model.topic_word_smoothing_ == 0.1


@quiet
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.FractionalCountsWarning")
def test_shares_of_short_documents_are_smoothed_more_by_default():
    X, rng = planted(80, length=5)[0], np.random.default_rng(0)

    def default(X, weight=None, **params):
        model = plsa(max_iter=1, n_init=1, **params).fit(X, sample_weight=weight)
        assert np.ptp(model.doc_topic_smoothing_) == 0.0
        return model.doc_topic_smoothing_[0]

    want = 8.0 / (X.sum() / len(X) * np.sqrt(K))
    assert want > 2.0 / K
    assert default(X) == pytest.approx(want, rel=1e-12)
    nothing, many = np.zeros_like(X), rng.integers(0, 4, len(X))
    # Empty documents, their order, copies and weights say nothing of the others.
    assert default(np.vstack([nothing, X[::-1], nothing])) == default(X)
    assert default(np.repeat(X, 2, axis=0)) == default(X, np.full(len(X), 2.0))
    assert default(np.repeat(X, many, axis=0)) == default(X, many)
    assert default(np.vstack([X, nothing]), np.tile(many, 2)) == default(X, many)
    # Of weights in place of counts the words tell the length.
    words = np.count_nonzero(X) / len(X)
    assert default(X / 100) == pytest.approx(8.0 / (words * np.sqrt(K)), rel=1e-12)
    # Long documents, large counts, and one's own.
    assert default(np.vstack([X, X, 90 * X])) == 1.0 / K
    assert default(100 * X) == 1.0 / K
    assert default(X, doc_topic_smoothing=0.01) == 0.01


def test_short_documents_of_a_stream_have_the_prior_of_all_that_are_kept():
    X = np.vstack([planted(40, length=length)[0] for length in (4, 9)])
    stream, smoothing = plsa(), []
    for batch in (X[:40], X[40:]):
        smoothing.append(stream.partial_fit(batch).doc_topic_smoothing_)
    np.testing.assert_array_equal(smoothing[0], plsa().fit(X[:40]).doc_topic_smoothing_)
    np.testing.assert_array_equal(smoothing[1], plsa().fit(X).doc_topic_smoothing_)
    assert (smoothing[0] > smoothing[1]).all()
    # From a fit the prior stays.
    model = plsa().fit(X[:40])
    before = model.doc_topic_smoothing_
    after = model.partial_fit(X[40:]).doc_topic_smoothing_
    np.testing.assert_array_equal(after, before)


def test_topics_of_short_documents_foretell_more_than_one_topic():
    rng = np.random.default_rng(0)
    n, n_words, n_topics, length = 3000, 200, 20, 7
    frequencies = 1.0 / np.arange(1.0, n_words + 1.0)
    prior = 6.0 * frequencies / frequencies.sum() + 1e-3
    topics = rng.dirichlet(prior, n_topics)
    theta = rng.dirichlet(np.full(n_topics, 0.1), n)
    X = rng.multinomial(length, theta @ topics)
    train, test = X[:-400], X[-400:]
    one = VRPLSA(1).fit(train).score(test)
    default, sparse = (
        VRPLSA(n_topics, doc_topic_smoothing=alpha, n_init=1, random_state=0)
        .fit(train)
        .score(test)
        for alpha in (None, 1.0 / n_topics)
    )
    assert default > one + 0.02
    assert sparse < one - 0.2


def test_a_large_prior_wins():
    X = planted(200)[0]
    model = plsa(doc_topic_smoothing=[1e6, 1.0, 1.0, 1.0]).fit(X)
    assert model.transform(X)[:, 0].min() > 0.99
    flat = plsa(topic_word_smoothing=1e9).fit(X)
    np.testing.assert_allclose(flat.components_, 1.0 / V, rtol=1e-3)


def test_seeds_say_which_topic_is_which():
    X, topics = planted()
    names = [f"word{v}" for v in range(V)]
    telling = topics**2 / topics.sum(axis=0)
    seeds = {k: [names[v] for v in np.argsort(-telling[3 - k])[:2]] for k in range(3)}
    hits = {True: 0, False: 0}
    for seed in range(10):
        for seeded in hits:
            prior = seed_prior(seeds, names, K) if seeded else None
            model = plsa(topic_word_smoothing=prior, random_state=seed, n_init=1)
            model.fit(X)
            distance = abs(model.components_[:, None] - topics[None]).sum(axis=2)
            hits[seeded] += list(distance.argmin(axis=1)) == [3, 2, 1, 0]
    assert hits[True] >= 8
    assert hits[False] <= 2
    stream = plsa(topic_word_smoothing=seed_prior(seeds, names, K)).partial_fit(X)
    words = [set(row) for row in top_words(stream, names, n=10)]
    assert all(set(seeds[k]) <= words[k] for k in seeds)


@pytest.mark.parametrize("factor", [1e-2, 1.0, 1e4])
@pytest.mark.parametrize("n_documents", [100, 400])
def test_topics_of_documents_that_are_alike_part(n_documents, factor):
    """Random topics make the same of all documents, and slowly anything else."""
    X, topics = nearly_alike(n_documents)
    model = VRPLSA(3, random_state=0).fit(factor * X)
    assert model.solver_ == ("batch" if n_documents == 100 else "svrg")
    one = X.sum(axis=0) / X.sum()
    excess = model.components_ - one
    for topic in topics - one:  # in the plane of the true ones
        found = np.linalg.lstsq(excess.T, topic, rcond=None)[0] @ excess
        assert np.linalg.norm(found - topic) < 0.2 * np.linalg.norm(topic)


def test_documents_that_are_alike():
    """Mutual information of documents and words, whatever the unit and the weights."""
    rng = np.random.default_rng(0)
    for spread in (0.1, 0.3, 1.0):
        p = rng.dirichlet(np.ones(30)) * np.exp(spread * rng.standard_normal((40, 30)))
        X, weight = p * rng.uniform(1.0, 9.0, size=(40, 1)), rng.integers(0, 3, size=40)
        X[3] = 0.0
        joint = weight[:, None] * X
        joint /= joint.sum()
        both = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
        at = joint > 0
        told = np.sum(joint[at] * np.log(joint[at] / both[at]))
        for factor in (1e-3, 1e6):
            alike = as_documents(factor * X, weight).alike
            assert alike == (told < ALIKE)
            assert as_documents(np.repeat(factor * X, weight, axis=0)).alike == alike
        assert alike == (spread == 0.1)


def test_fewer_documents_than_topics_start_as_random_topics():
    X = nearly_alike(2)[0]
    topics = VRPLSA(3, random_state=0).fit(X).components_
    assert len(np.unique(topics, axis=0)) == 3
    # A document without weight is none to start from.
    X = np.vstack([X, X[:1]])
    model = VRPLSA(3, random_state=0).fit(X, sample_weight=[1, 1, 0])
    np.testing.assert_allclose(model.components_, topics, rtol=1e-3)


def test_components_init_is_where_it_starts():
    X, topics = planted()
    given = 5.0 * topics[::-1] + 0.01
    model = plsa(components_init=given, max_iter=0).fit(X)
    np.testing.assert_allclose(model.components_, normalized(given), rtol=1e-4)
    assert model.n_iter_ == 0
    model = plsa(components_init=given, n_init=3).fit(X)
    assert list(matched(model.components_, topics[::-1])[0]) == list(range(K))
    assert len(model.init_scores_) == 1  # the same start thrice is one


@quiet
def test_given_topics_meet_the_shares_that_are_best_for_them():
    X = planted()[0]
    first = plsa(max_iter=30, solver="svrg", batch_size=20).fit(X)
    given = plsa(components_init=first.components_, solver="svrg", batch_size=20)
    given.set_params(max_iter=1, random_state=1).fit(X)
    # Equal shares would blur the topics in the first pass.
    np.testing.assert_allclose(given.components_, first.components_, atol=2e-3)
    # A pickle does not have the shares; in memory they are those of the fit.
    warm = pickle.loads(pickle.dumps(first))
    for model, atol in ((warm, 1e-6), (first, 2e-3)):
        model.set_params(warm_start=True, max_iter=1, random_state=1).fit(X)
        np.testing.assert_allclose(model.components_, given.components_, atol=atol)


@quiet
def test_warm_start_goes_on():
    X = planted()[0]
    model = plsa(warm_start=True, max_iter=2, solver="batch")
    values = [model.fit(X).objective_ for _ in range(5)]
    assert (np.diff(values) > 0).all()
    # From a converged fit there is nothing left to do.
    model = plsa(warm_start=True, tol=1e-5, max_iter=300, solver="batch").fit(X)
    first = model.objective_, model.n_iter_, model.components_
    model.fit(X)
    assert model.objective_ >= first[0] - 1e-5
    assert model.n_iter_ < first[1] / 2
    np.testing.assert_allclose(model.components_, first[2], atol=1e-3)
    assert model.n_tokens_seen_ == 2 * X.sum()
    with pytest.raises(ValueError, match="last fit's topics must have shape"):
        model.set_params(n_components=3).fit(X)


def test_the_best_of_several_starts_is_kept():
    X = planted()[0]
    model = plsa(n_components=6, n_init=4).fit(X)
    assert model.init_scores_.shape == (4,)
    assert np.ptp(model.init_scores_) > 0
    assert model.objective_ == model.init_scores_.max()


@pytest.mark.parametrize("solver", SOLVERS)
def test_annealing_ends_at_temperature_one(solver):
    model = plsa(
        solver=solver,
        tempering="annealed",
        temperature=1.5,
        annealing_iter=5,
        max_iter=300,
    ).fit(planted()[0])
    temperatures = model.history_["temperature"]
    np.testing.assert_allclose(temperatures[:6], [1.5, 1.4, 1.3, 1.2, 1.1, 1.0])
    assert (temperatures[5:] == 1.0).all()
    assert matched(model.components_, planted()[1])[1].max() < 0.1


# Numbers and containers


def test_float32_agrees_with_float64():
    X = planted()[0]
    # Which of several starts is best, rounding says.
    options = {"tol": 1e-7, "max_iter": 300, "n_init": 1}
    low, high = plsa(**options).fit(X), plsa(**options).fit(X.astype(float))
    assert low.objective_ == pytest.approx(high.objective_, abs=1e-5)
    np.testing.assert_allclose(low.components_, high.components_, atol=2e-3)
    np.testing.assert_allclose(low.transform(X), high.transform(X), atol=0.02)


def test_explicit_zeros_are_none():
    X = planted(100)[0]
    X[3] = 0
    rows, columns = np.indices(X.shape).reshape(2, -1)
    full = sp.csr_array(sp.coo_array((X.ravel(), (rows, columns)), shape=X.shape))
    assert full.nnz == X.size
    one, other = plsa().fit(full), plsa().fit(sp.csr_array(X))
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.transform(full), other.transform(X))


def test_a_dense_matrix_of_any_positive_numbers():
    # Nothing is assumed of counts but that they are not negative.
    X = np.random.default_rng(0).gamma(0.5, scale=4.0, size=(100, 20))
    how = {"tempering": None}  # the default depends on how many tokens there are
    model = plsa(**how).fit(X)
    assert np.isfinite(model.objective_)
    how |= {"doc_topic_smoothing": 100 / K, "topic_word_smoothing": 10.0}
    scaled = plsa(**how).fit(100 * X)
    np.testing.assert_allclose(scaled.components_, model.components_, atol=1e-6)


def test_memory_is_that_of_the_parameters():
    """No array has an entry for each nonzero and topic."""
    k, n, v = 100, 2000, 2000
    rng = np.random.default_rng(0)
    X = rng.integers(1, 4, size=(n, v)) * (rng.uniform(size=(n, v)) < 0.1)
    X = sp.csr_array(X.astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for solver in ("batch", "svrg"):
            model = plsa(n_components=k, solver=solver, max_iter=2, n_jobs=1)
            model.fit(X[:200])  # compiled beforehand
            tracemalloc.start()
            try:
                model.fit(X)
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.reset_peak()
                model.transform(X)
                in_transform = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            cube = 4 * k * X.nnz
            assert peak < 0.15 * cube
            assert in_transform < 0.15 * cube


def test_svrg_keeps_three_arrays_of_topics(monkeypatch):
    """Of the last mean, the point and its anchor; of a nonzero one weight."""
    monkeypatch.setattr(_model_arrays, "LARGE", 1 << 40)  # traced, as all are then
    k, n, v = 96, 1000, 4000
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.05, (n, v)).astype(np.float32))
    model = plsa(n_components=k, solver="svrg", max_iter=3, tol=0.0, n_jobs=1)
    model.fit(X[:100])  # compiled beforehand
    tracemalloc.start()
    try:
        model.fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (batch, *_) = as_documents(X).blocks(20, rng).batches
    topics, shares, of_batch = (4 * k * m for m in (v, n, len(batch.rows.words)))
    kept = 3 * topics + shares + 4 * X.nnz
    # A visit has sums of its words, and some of theirs of then; and its counts.
    assert kept < peak < kept + of_batch + 12 * ROOM + 300_000


def test_random_topics_take_the_room_of_topics(monkeypatch):
    monkeypatch.setattr(_model_arrays, "LARGE", 1 << 40)
    k, v = 96, 20_000
    data = as_documents(sp.csr_array(np.ones((2, v), np.float32)), dtype=np.float32)
    model = plsa(n_components=k)
    model.n_components_ = k
    tracemalloc.start()
    try:
        rng = np.random.RandomState(0)
        topics = model._random_topics(np.array(0.1), data, rng)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(topics.sum(axis=1), 1.0, rtol=1e-4)
    drawn = np.random.RandomState(0).standard_gamma(1.0, (k, v))
    drawn /= drawn.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(topics, drawn.astype(np.float32))
    assert peak < 1.1 * 4 * k * v


# Bad input


X_BAD = planted(30)[0].astype(float)


def test_nothing_left_to_score(fitted):
    with pytest.raises(ValueError, match="No token is left to score"):
        fitted.score(np.zeros((3, V)))


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_components": 2.5}, "n_components"),
        (
            {"doc_topic_smoothing": -0.1},
            "doc_topic_smoothing must be finite and not negative",
        ),
        (
            {"topic_word_smoothing": -1},
            "topic_word_smoothing must be finite and not negative",
        ),
        ({"topic_word_smoothing": np.ones((3, V))}, r"\(4, 60\), got shape \(3, 60\)"),
        (
            {"topic_word_smoothing": np.full((K, V), np.inf)},
            "topic_word_smoothing must be fin",
        ),
        ({"step_size": 2.0, "solver": "svrg"}, "step_size"),
        ({"step_decay": 0.0}, "step_decay"),
        ({"inner_iter": 0}, "inner_iter"),
        ({"max_inner_iter": 0}, "max_inner_iter"),
        ({"inner_tol": np.nan}, "inner_tol"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_parameters(params, match):
    model = plsa(**params)
    with pytest.raises(ValueError, match=match):
        model.fit(X_BAD)
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "components_")


def test_more_topics_than_words_or_documents():
    X = planted(6)[0][:, :5] + 1
    model = plsa(n_components=20, max_iter=500).fit(X)
    assert model.components_.shape == (20, 5)
    assert np.isfinite(model.objective_)
    np.testing.assert_allclose(model.transform(X).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.FractionalCountsWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_corpora_give_a_finite_answer(solver):
    for name, counts in hard_corpora().items():
        for prior in (None, 0.0):
            model = plsa(
                solver=solver,
                doc_topic_smoothing=prior,
                topic_word_smoothing=prior,
                batch_size=20,
                max_iter=30,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(counts)
            theta = model.transform(counts)
            assert np.isfinite(model.objective_), name
            assert np.isfinite(model.components_).all(), name
            assert (model.components_ >= 0).all(), name
            sums = model.components_.sum(axis=1)
            np.testing.assert_allclose(sums, 1.0, rtol=1e-4, err_msg=name)
            np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-4, err_msg=name)


def test_not_converged_warns_with_what_to_do():
    with pytest.warns(ConvergenceWarning, match=r"nats|a token.*Raise max_iter"):
        plsa(max_iter=2, tol=1e-12).fit(planted(50)[0])


@pytest.mark.parametrize("length", [60, 150])
def test_few_documents_converge_by_default(length):
    # Passes of EM are cheap there, and many.
    fitted = VRPLSA(8, random_state=0).fit(planted(300, length)[0])
    assert fitted.solver_ == "batch"
    assert fitted.converged_
    assert fitted.n_iter_ > 100


def test_short_documents_are_annealed_by_default():
    """All starts of the race; None is cold, and so are long fits and given topics."""
    X = planted(60)[0]
    how = {"random_state": 0, "max_iter": 30, "tol": 0.0}

    def first(X=X, **more):
        model = VRPLSA(K, **how | more).fit(X)
        return model.history_["temperature"][0], len(model.init_scores_)

    assert 1.0 < X.sum(axis=1).mean() < SHORT
    assert first() == (DEFAULT_TEMPERATURE, 4)
    assert first(temperature=1.2, n_init=2) == (1.2, 2)
    assert first(tempering="annealed") == (DEFAULT_TEMPERATURE, 1)
    assert first(tempering=None) == (1.0, 4)
    assert first(components_init=planted(60)[1]) == (1.0, 1)
    longer = np.ceil(SHORT / X.sum(axis=1).mean()).astype(int) * X
    assert first(longer) == (1.0, 4)
    assert first(longer, tempering="annealed")[0] == DEFAULT_TEMPERATURE
    brief = VRPLSA(K, **how | {"max_iter": 6}).fit(X)
    assert (brief.history_["temperature"] > 1.0).tolist() == [True] * 3 + [False] * 4
    model = VRPLSA(K, **how, warm_start=True).fit(X)
    assert model.history_["temperature"][0] == DEFAULT_TEMPERATURE
    assert model.fit(X).history_["temperature"][0] == 1.0


def test_annealed_starts_of_short_documents_end_higher():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(400, 0.05), 20)
    theta = rng.dirichlet(np.full(20, 0.05), 1200)
    X = np.stack([rng.multinomial(6, p / p.sum()) for p in theta @ topics])
    train, test = X[:1000], X[1000:]
    for seed in range(2):
        fits = [
            VRPLSA(
                20, doc_topic_smoothing=0.05, tempering=tempering, random_state=seed
            ).fit(train)
            for tempering in ("auto", None)
        ]
        annealed, cold = fits
        assert annealed.objective_ > cold.objective_ + 0.1
        assert annealed.score(test) > cold.score(test) + 0.2


def test_annealing_longer_than_the_fit_warns():
    with (
        pytest.warns(UserWarning, match="raise max_iter"),
        pytest.warns(ConvergenceWarning),
    ):
        plsa(tempering="annealed", max_iter=3).fit(planted(50)[0])


def test_loaded_as_read_only_memory_map(tmp_path):
    X = planted(200)[0]
    model = plsa(n_components=2, warm_start=True).fit(X)
    joblib.dump(model, tmp_path / "plsa")
    mapped = joblib.load(tmp_path / "plsa", mmap_mode="r")
    assert not mapped.components_.flags.writeable
    compiled = len(_kernels.infer_topics.signatures)
    np.testing.assert_allclose(mapped.transform(X), model.transform(X), atol=1e-6)
    for method in ("partial_fit", "fit"):
        for one in (mapped, model):
            getattr(one, method)(X)
        np.testing.assert_allclose(mapped.components_, model.components_, atol=1e-5)
    # Read-only parameters must not be new types for which numba compiles again.
    assert len(_kernels.infer_topics.signatures) == compiled


# Streams with pauses, words that come late, weights in place of counts


def test_an_empty_batch_leaves_the_topics():
    X = of_two_topics()
    empty = sp.csr_matrix((3, X.shape[1]), dtype=int)
    a = VRPLSA(2, random_state=0).partial_fit(X).partial_fit(empty).partial_fit(X)
    b = VRPLSA(2, random_state=0).partial_fit(X).partial_fit(X)
    np.testing.assert_array_equal(a.components_, b.components_)
    assert (a.n_iter_, a.n_tokens_seen_) == (3, b.n_tokens_seen_)


NO_PRIOR = {"doc_topic_smoothing": 0.0, "topic_word_smoothing": 0.0}


@pytest.mark.parametrize("solver", ["batch", "stochastic", "svrg"])
@pytest.mark.parametrize("dtype", [int, float])
def test_no_start_makes_words_impossible(solver, dtype):
    X = of_two_topics().astype(dtype)
    start = np.c_[np.ones((2, 4)), np.zeros((2, 4))]
    start[1, 0] = 0.0
    model = VRPLSA(
        2, components_init=start, solver=solver, batch_size=8, random_state=0
    )
    model.set_params(**NO_PRIOR, tol=1e-3).fit(X)
    best = VRPLSA(2, solver="batch", random_state=0, **NO_PRIOR).fit(X)
    assert model.components_.sum(axis=0).min() > 1e-3
    assert model.score(X) > best.score(X) - 0.5


def test_no_stream_makes_words_impossible():
    X = of_two_topics()
    model = VRPLSA(2, random_state=0, step_offset=1.0, **NO_PRIOR)
    model.partial_fit(X[:20])
    for _ in range(3):
        model.partial_fit(X)
    assert model.components_.sum(axis=0).min() > 1e-3
    assert np.isfinite(model.score(X))


def test_weights_by_inverse_frequency_are_told():
    X = TfidfTransformer().fit_transform(of_two_topics() + 1)
    with pytest.warns(FractionalCountsWarning, match="CountVectorizer"):
        VRPLSA(2, random_state=0).fit(X)


@pytest.mark.parametrize("factor", [1.0, 0.7, 2.5])
def test_counts_with_fractions_are_counts(factor):
    VRPLSA(2, random_state=0).fit(of_two_topics() * factor)


@pytest.mark.parametrize("words_of_topics", [False, True])
def test_the_prior_of_topics_is_added_up_over_all_words(words_of_topics, monkeypatch):
    case = documents(words_of_topics=words_of_topics)
    model, sums = case.model, case.point.sums
    topics = model.parameters(case.point).topics
    prior, k = model.word_prior, model.n_components
    expected = np.sum(prior[:, :k] * np.log(topics[:, :k]))
    for size in (2048, 7):
        monkeypatch.setattr(_model, "TASK_WORDS", size)
        assert model.of_topics(sums) == pytest.approx(expected, rel=1e-10)
