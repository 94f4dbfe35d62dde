"""Mean field: what it finds, beside scikit-learn's and the formulas; what it takes."""

import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma, gammaln, logsumexp
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skvrem import TemperedLDA
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.solvers import Batch
from skvrem.text import document_completion, seed_prior, top_words
from skvrem.topics._documents import as_documents
from skvrem.topics.lda._model import NO_WORDS, LDAModel
from skvrem.utils._algebra import dense
from tests.documents import N_TOPICS as K
from tests.documents import N_WORDS as V
from tests.documents import (
    assert_same_state,
    frame_of,
    hard_corpora,
    matched,
    normalized,
    of_two_topics,
    planted,
)
from tests.laws.cases import CASES

SOLVERS = ("batch", "stochastic", "svrg")
TEMPERINGS = (None, "auto", "annealed", "global", "local")
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# Rounds on a document until nothing moves.
EXACT = {"mean_change_tol": 1e-12, "max_doc_update_iter": 5000}


def lda(**params):
    defaults = {"n_components": K, "random_state": 0, "batch_size": 50}
    defaults |= {"max_iter": 10, "tol": 0.0, "e_step": "mean_field"}
    return TemperedLDA(**(defaults | params))


def start_topics(seed=0):
    return np.random.default_rng(seed).gamma(100.0, 0.01, (K, V))


@pytest.fixture(scope="module")
def fitted():
    """Of float64; not to be changed."""
    prior = [0.1, 0.2, 0.3, 0.4]
    return lda(doc_topic_prior=prior, max_iter=30).fit(planted()[0].astype(float))


# Formulas


def e_log(parameters):
    return digamma(parameters) - digamma(parameters.sum(axis=1, keepdims=True))


def divergence(a, b):
    """KL of Dirichlet distributions, a row each."""
    b = np.broadcast_to(b, a.shape)
    norm = gammaln(a.sum(axis=1)) - gammaln(b.sum(axis=1))
    return norm + np.sum(gammaln(b) - gammaln(a) + (a - b) * e_log(a), axis=1)


def e_step(X, topics, alpha, b=1.0, n_rounds=2000, tol=1e-12):
    """Return γ, the expected counts and Σ_v c_v log Σ_k, each document's."""
    alpha = np.broadcast_to(alpha, len(topics))
    gamma = alpha + X.sum(axis=1, keepdims=True) / len(alpha)
    for _ in range(n_rounds):
        joint = b * (e_log(gamma)[:, :, None] + e_log(topics)[None])
        log_s = logsumexp(joint, axis=1)
        q = np.exp(joint - log_s[:, None])
        counts = X[:, None] * q
        old, gamma = gamma, alpha + b * counts.sum(axis=2)
        if abs(gamma - old).sum(axis=1).max() < tol * len(alpha):
            break
    evidence = np.sum(X * log_s, axis=1)
    return gamma, counts, evidence - divergence(old, alpha)


def lower_bound(X, topics, alpha, eta, weight=1.0, b=1.0):
    """The bound of the user guide, a token."""
    weight = np.broadcast_to(weight, len(X))
    total = weight @ e_step(X, topics, alpha, b)[2] - divergence(topics, eta).sum()
    return total / (weight @ X.sum(axis=1))


# Beside scikit-learn


def twin(**params):
    defaults = {"n_components": K, "random_state": 0, "mean_change_tol": 1e-12}
    defaults |= {"max_doc_update_iter": 5000}
    return LatentDirichletAllocation(**(defaults | params))


def twin_at(topics, **params):
    """A fitted twin with these topics."""
    model = twin(**params).fit(planted(5)[0].astype(float))
    model.components_ = topics.copy()
    model.exp_dirichlet_component_ = np.exp(e_log(topics))
    return model


def test_a_pass_of_batch_is_that_of_the_twin():
    X = planted(80)[0].astype(float)
    start = start_topics()
    ours = lda(solver="batch", components_init=start, max_iter=1, **EXACT).fit(X)
    other = twin_at(start)
    other._em_step(X, total_samples=len(X), batch_update=True)
    np.testing.assert_allclose(ours.components_, other.components_, rtol=1e-6)
    assert ours.n_batch_iter_ == 2


def test_a_stream_is_that_of_the_twin():
    X = planted(300)[0].astype(float)
    start = start_topics()
    ours = lda(components_init=start, total_samples=300, **EXACT)
    other = twin_at(start, total_samples=300, learning_method="online")
    other.n_batch_iter_ = 1
    for rows in np.array_split(X, 6):
        ours.partial_fit(rows)
        other.partial_fit(rows)
    # The twin counts a batch 300 / 50 times. Here 300 documents have the mean length of
    # those seen so far, and steps begin one earlier: near, but not the same.
    found, expected = (normalized(m.components_) for m in (ours, other))
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_the_first_batch_of_a_stream_is_that_of_the_twin():
    X = planted(80)[0].astype(float)
    start = start_topics()
    ours = lda(components_init=start, total_samples=500, **EXACT).partial_fit(X)
    other = twin_at(start, total_samples=500)
    other.n_batch_iter_ = 1
    other.partial_fit(X)
    # Its step is (offset + 1) ** -decay, the first of ours offset ** -decay.
    ours_step, step = 10.0**-0.7, 11.0**-0.7
    move = (ours.components_ - start) / ours_step
    np.testing.assert_allclose(move, (other.components_ - start) / step, rtol=1e-6)


def test_bound_transform_and_names_are_those_of_the_twin():
    X = planted(100)[0].astype(float)
    ours = lda(solver="batch", max_iter=20, **EXACT).fit(X)
    other = twin_at(ours.components_)
    np.testing.assert_allclose(
        ours.exp_dirichlet_component_, other.exp_dirichlet_component_, rtol=1e-9
    )
    new = planted(30, seed=3)[0].astype(float)
    np.testing.assert_allclose(ours.transform(new), other.transform(new), atol=1e-7)
    # On the training data both charge the divergence of the topics once.
    assert ours.score(X) == pytest.approx(other.score(X), rel=1e-7)
    assert ours.perplexity(X) == pytest.approx(other.perplexity(X), rel=1e-7)
    assert ours.objective_ == pytest.approx(ours.score(X) / X.sum(), rel=1e-9)
    assert ours.bound_ == pytest.approx(ours.perplexity(X))
    assert all(hasattr(ours, name) for name in vars(other) if name != "_n_components")
    assert other.get_params().keys() <= ours.get_params().keys()
    with pytest.raises(AttributeError):
        _ = lda().exp_dirichlet_component_


def test_the_topics_are_charged_by_the_documents_share():
    X = planted(200)[0].astype(float)
    model = lda(**EXACT).fit(X)
    parts = [model.score(rows) for rows in (X[:50], X[50:])]
    # The twin charges each part for all the topics (its issue 20032).
    assert sum(parts) == pytest.approx(model.score(X), rel=1e-9)
    cost = divergence(model.components_, 1 / K).sum()
    other = twin_at(model.components_)
    short = sum(other.score(rows) for rows in (X[:50], X[50:]))
    assert short == pytest.approx(model.score(X) - cost, rel=1e-6)


def test_names_of_the_twin_are_aliases():
    X = planted(200)[0]
    ours = lda(solver="stochastic", step_decay=0.9, step_offset=5.0).fit(X)
    theirs = lda(learning_method="online", learning_decay=0.9, learning_offset=5.0).fit(
        X
    )
    np.testing.assert_array_equal(ours.components_, theirs.components_)
    assert lda(learning_method="batch").fit(X).solver_ == "batch"
    for alias, name, value in (
        ("learning_method", "solver", "batch"),
        ("learning_decay", "step_decay", 0.6),
        ("learning_offset", "step_offset", 5.0),
    ):
        model = lda(**{alias: value, name: value})
        with pytest.raises(ValueError, match=f"{alias} is another name of {name}"):
            model.fit(X)
        assert not hasattr(model, "components_")


# What it finds


def solver_and_tempering():
    """Pairs: usually all temperings by "auto", and all solvers without."""
    for solver, tempering in product(["auto", *SOLVERS], TEMPERINGS):
        few = solver == "auto" or tempering is None
        if (solver, tempering) != ("svrg", "local"):  # which is refused
            marks = () if few else pytest.mark.thorough
            yield pytest.param(solver, tempering, marks=marks)


@pytest.mark.parametrize(("solver", "tempering"), solver_and_tempering())
def test_planted_topics_are_found(solver, tempering):
    X, topics = planted()
    # One start, untempered ones above all, may leave two topics in one.
    model = lda(
        solver=solver,
        tempering=tempering,
        temperature=1.5,
        max_iter=40,
        n_init=4,
    ).fit(X)
    assert matched(normalized(model.components_), topics)[1].max() < 0.12
    chosen = "stochastic" if tempering == "local" else "svrg"
    assert model.solver_ == (chosen if solver == "auto" else solver)
    assert model.history_["temperature"][-1] == 1.0
    assert ("doc_temperature_" in vars(model)) == (tempering == "local")


def test_few_documents_are_fitted_in_batch():
    model = lda(batch_size="auto").fit(planted(600)[0])
    assert (model.solver_, model.batch_size_) == ("batch", 600)
    model = lda(batch_size="auto", max_iter=1).fit(planted(1100, length=5)[0])
    assert (model.solver_, model.batch_size_) == ("stochastic", 123)
    X = planted(1100, length=5)[0]
    model = lda(batch_size="auto", max_iter=4).fit(X)
    assert (model.solver_, model.batch_size_) == ("svrg", 65)
    model = lda(batch_size="auto", max_iter=4, learning_decay=0.6).fit(X)
    assert model.solver_ == "stochastic"
    model = lda(batch_size="auto", solver="svrg", max_iter=1).fit(planted(640)[0])
    assert (model.batch_size_, model.step_size_) == (64, 0.7)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("b", [1.0, 0.5])
def test_batch_is_variational_em_pass_by_pass(b, weighted):
    X = planted(40)[0].astype(float)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, 40) if weighted else np.ones(40)
    alpha, eta = rng.uniform(0.1, 1.0, K), rng.uniform(0.1, 1.0, (K, V))
    start = start_topics(2)
    model = lda(
        solver="batch",
        doc_topic_prior=alpha,
        topic_word_prior=eta,
        components_init=start,
        tempering=None if b == 1.0 else "annealed",
        temperature=1 / b,
        annealing_iter=1,
        max_iter=4,
        **EXACT,
    ).fit(X, sample_weight=weight if weighted else None)
    topics = start
    for epoch in range(4):
        now = b if epoch == 0 else 1.0
        expected = lower_bound(X, topics, alpha, eta, weight, now)
        assert model.history_["objective"][epoch] == pytest.approx(expected, rel=1e-7)
        counts = np.einsum("d,dkv->kv", weight, e_step(X, topics, alpha, now)[1])
        topics = eta + now * counts
    np.testing.assert_allclose(model.components_, topics, rtol=1e-5)
    expected = lower_bound(X, topics, alpha, eta, weight)
    # It is stated for the documents once each.
    assert model.n_tokens_seen_ == pytest.approx(weight @ X.sum(axis=1))
    if not weighted:
        assert model.objective_ == pytest.approx(expected, rel=1e-7)
    assert model.n_iter_ == 4


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.CollapsedComponentWarning")
@pytest.mark.parametrize("tempering", ["annealed", "local"])
@pytest.mark.parametrize("length", [0.5, 1.25, 2])
def test_temperatures_fall_within_an_epoch(length, tempering, monkeypatch):
    found, statistics = [], LDAModel.statistics

    def watched(self, point, batch, beta):
        found.append(1.0 / beta)
        return statistics(self, point, batch, beta)

    monkeypatch.setattr(LDAModel, "statistics", watched)
    options = {"tempering": tempering, "temperature": 3.0, "annealing_iter": length}
    X = planted(80)[0]
    model = lda(solver="stochastic", batch_size=10, max_iter=3, n_jobs=1, **options)
    model.set_params(tol=0.0).fit(X)
    count = np.arange(24) / 8  # epochs that are over, at every visit
    count = np.floor(count) if length == 2 else count
    expected = np.maximum(1.0, 3.0 - 2.0 * count / length)
    np.testing.assert_allclose(found[:24], expected)
    # Histories have those that epochs begin with.
    np.testing.assert_allclose(model.history_["temperature"][:3], expected[::8])


def test_temperatures_that_fall_within_an_epoch_are_of_solvers_without_an_anchor():
    X = planted(80)[0]
    for options in (
        {"solver": "svrg", "tempering": "annealed"},
        {"solver": "batch", "tempering": "annealed"},
        {"solver": "stochastic", "tempering": "global"},
    ):
        with pytest.raises(ValueError, match=r"annealing_iter=0\.5 is no whole number"):
            lda(annealing_iter=0.5, **options).fit(X)


@pytest.mark.parametrize("solver", ["batch", "svrg"])
def test_the_end_is_a_fixed_point(solver):
    X = planted(300)[0].astype(float)
    options = {"tempering": None, "tol": 1e-11, "max_iter": 2000} | EXACT
    model = lda(solver=solver, **options).fit(X)
    assert model.converged_
    counts = e_step(X, model.components_, 1 / K)[1].sum(axis=0)
    np.testing.assert_allclose(model.components_, 1 / K + counts, atol=1e-2)
    expected = lower_bound(X, model.components_, 1 / K, 1 / K)
    assert model.objective_ == pytest.approx(expected, abs=1e-9)
    assert (np.diff(model.history_["objective"]) > -1e-9).all()


def test_topic_shares_are_those_of_the_tokens():
    X = planted()[0].astype(float)
    model = lda(solver="batch", max_iter=200, **EXACT).fit(X)
    counts = e_step(X, model.components_, 1 / K)[1]
    np.testing.assert_allclose(
        model.topic_shares_, counts.sum(axis=(0, 2)) / X.sum(), atol=1e-3
    )
    assert model.topic_shares_.sum() == pytest.approx(1.0)
    assert model.n_tokens_seen_ == X.sum()
    assert model.n_documents_seen_ == 600


def test_one_topic_is_the_unigram():
    X = planted()[0].astype(float)
    model = lda(n_components=1, topic_word_prior=0.3).fit(X)
    np.testing.assert_allclose(model.components_[0], 0.3 + X.sum(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(model.transform(X), 1.0)


# Temperatures


@pytest.mark.parametrize("solver", SOLVERS)
def test_annealing_ends_at_temperature_one(solver):
    model = lda(
        solver=solver,
        tempering="annealed",
        temperature=1.5,
        annealing_iter=5,
        max_iter=30,
    ).fit(planted()[0])
    temperatures = model.history_["temperature"]
    np.testing.assert_allclose(temperatures[:6], [1.5, 1.4, 1.3, 1.2, 1.1, 1.0])
    assert (temperatures[5:] == 1.0).all()


def test_the_default_anneals_minibatches_only():
    X = planted(200)[0]
    for solver in SOLVERS:
        temperatures = lda(solver=solver).fit(X).history_["temperature"]
        assert temperatures[0] <= np.sqrt(2.0)
        assert (temperatures[0] > 1.0) == (solver != "batch")
        assert (temperatures[5:] == 1.0).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_topics_part_below_the_critical_temperature(rng, weighted):
    """A little hotter, what tells them apart shrinks by as much; colder, it grows."""
    n, v, k = 60, 12, 3
    chances = rng.dirichlet(np.ones(k), n) @ rng.dirichlet(np.full(v, 0.3), k)
    X = rng.poisson(1e5 * chances).astype(float)
    weight = rng.integers(1, 4, n).astype(float) if weighted else None
    data = as_documents(X, weight)
    priors = np.full(k, 1e-3), np.array(1e-3)
    model = LDAModel(*priors, data.total_weight, np.float64, 2000, 1e-10)
    (documents,) = data.chunks().batches
    temperatures = model.critical_temperatures(documents)
    repeated = X if weight is None else np.repeat(X, weight.astype(int), axis=0)
    table = repeated / np.sqrt(np.outer(repeated.sum(axis=1), repeated.sum(axis=0)))
    sigma = np.linalg.svd(table, compute_uv=False)[1:]
    np.testing.assert_allclose(temperatures, 1.0 + sigma, atol=1e-6)
    apart = rng.normal(size=(v, k))
    apart -= apart.mean(axis=1, keepdims=True)
    for edge in (0.02, -0.02):
        b = 1.0 / ((1.0 + edge) * temperatures[0])
        alike = b * repeated.sum(axis=0)[:, None] / k
        point = model.start((alike * (1.0 + 1e-4 * apart),))
        lengths = []
        for _ in range(80):
            batch = Batch()
            batch.start(model, data, rng)
            anchor = batch.certify(point, b)
            point = model.update(anchor.point, anchor.mean, None, 1.0)
            topics = model.parameters(point).topics[:, :k]
            change = topics / topics.mean(axis=1, keepdims=True) - 1.0
            lengths.append(np.linalg.norm(change))
        growth = (lengths[-1] / lengths[-6]) ** 0.2
        expected = b * (1.0 + b * sigma[0] ** 2 / (1.0 - b))
        assert growth == pytest.approx(expected, abs=2e-3)
        assert (growth > 1.0) == (edge < 0.0)


def test_a_warm_start_begins_cold():
    X, _ = planted(1200)
    model = lda(warm_start=True, tempering="annealed").fit(X)
    assert model.history_["temperature"][0] > 1.0
    assert (model.fit(X).history_["temperature"] == 1.0).all()
    model.set_params(temperature=1.5).fit(X)
    assert model.history_["temperature"][0] == 1.5


def test_hot_topics_are_all_the_same():
    X = planted()[0]
    model = lda(
        solver="batch", tempering="annealed", temperature=20.0, annealing_iter=40
    )
    with (
        pytest.warns(CollapsedComponentWarning, match="Leave temperature='auto'"),
        pytest.warns(UserWarning, match="annealing_iter=40.*raise max_iter"),
    ):
        model.set_params(max_iter=10).fit(X)
    topics = normalized(model.components_)
    np.testing.assert_allclose(topics, topics[:1].repeat(K, axis=0), atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(3))
def test_the_global_temperature_comes_down_and_ends_at_one(seed, solver):
    X = planted(400, seed=seed)[0]
    model = lda(solver=solver, tempering="global", annealing_iter=5, max_iter=15).fit(X)
    temperatures = model.history_["temperature"]
    assert temperatures[0] == pytest.approx(2.56, abs=0.05)  # of a uniform posterior
    assert (np.diff(temperatures) <= 0).all()
    assert temperatures[3] < 1.5
    assert (temperatures[8:] == 1.0).all()


def test_long_documents_of_the_topics_are_not_hot():
    model = lda(tempering="local", temperature=1.5, max_iter=20)
    T = model.fit(40 * planted(200)[0]).doc_temperature_
    assert T.min() == 1.0 and np.median(T) == pytest.approx(1.0, abs=1e-3)


def with_outlier():
    """Documents of the four topics, and one whose words are drawn at random."""
    X = planted(300)[0]
    rng = np.random.default_rng(5)
    return np.vstack([X, rng.multinomial(60, np.full(V, 1 / V))])


@pytest.mark.parametrize("solver", ["batch", "stochastic"])
def test_outliers_are_hot(solver):
    X = with_outlier()
    model = lda(solver=solver, tempering="local", temperature=1.5, max_iter=20).fit(X)
    T = model.doc_temperature_
    assert T.shape == (301,)
    assert (T >= 1.0).all()
    assert T.argmax() == 300
    assert T[300] > 1.5 * np.median(T)
    # A later fit without temperatures says nothing of them.
    model.set_params(tempering=None).fit(X)
    assert not hasattr(model, "doc_temperature_")


def test_temperatures_of_documents_need_a_solver_without_a_certificate():
    with pytest.raises(ValueError, match="goes with solver='stochastic' or 'batch'"):
        lda(tempering="local", solver="svrg").fit(planted(50)[0])


def test_annealing_longer_than_the_fit_warns():
    for tempering in TEMPERINGS[2:]:
        with pytest.warns(UserWarning, match="raise max_iter"):
            lda(tempering=tempering, max_iter=3).fit(planted(50)[0])


# New documents


@pytest.mark.parametrize("prior", [0.05, 3.0, [0.1, 0.2, 0.3, 2.0]])
def test_transform_is_the_posterior_of_each_document(prior):
    X = planted(50, length=20, seed=5)[0]
    model = lda(doc_topic_prior=prior).fit(planted(200)[0].astype(float))
    model.set_params(**EXACT)
    gamma = e_step(X, model.components_, prior)[0]
    found = model.transform(X, normalize=False)
    np.testing.assert_allclose(found, gamma, atol=1e-6)
    np.testing.assert_allclose(model.transform(X), normalized(gamma), atol=1e-7)
    # With the defaults it is close.
    model.set_params(mean_change_tol=1e-3, max_doc_update_iter=100)
    np.testing.assert_allclose(model.transform(X), normalized(gamma), atol=0.03)


def test_score_and_perplexity_are_the_formula(fitted):
    X = planted(seed=4)[0].astype(float)
    model = pickle.loads(pickle.dumps(fitted)).set_params(**EXACT)
    documents = e_step(X, model.components_, model.doc_topic_prior_)[2].sum()
    cost = divergence(model.components_, 1 / K).sum() / model.n_tokens_seen_
    assert model.score(X) == pytest.approx(documents - cost * X.sum(), rel=1e-8)
    expected = np.exp(-model.score(X) / X.sum())
    assert model.perplexity(X) == pytest.approx(expected)
    assert model.score(sp.csr_array(X)) == model.score(X)
    assert model.score(0 * X) == 0.0
    with pytest.raises(ValueError, match="X has no counts"):
        model.perplexity(0 * X)


def test_empty_documents_get_the_prior(fitted):
    X = np.zeros((3, V))
    X[1, 5] = 2
    theta = fitted.transform(X)
    np.testing.assert_allclose(theta[[0, 2]], [[0.1, 0.2, 0.3, 0.4]] * 2)
    assert abs(theta[1] - theta[0]).max() > 0.1
    gamma = fitted.transform(X, normalize=False)
    np.testing.assert_allclose(gamma.sum(axis=1), [1.0, 3.0, 1.0])


def test_inverse_transform_mixes_topics(fitted):
    p = fitted.inverse_transform(np.vstack([np.eye(K), np.full(K, 1 / K)]))
    np.testing.assert_allclose(p[:K], normalized(fitted.components_))
    np.testing.assert_allclose(p[K], p[:K].mean(axis=0))


def test_a_grid_search_finds_the_number_of_topics():
    X = planted(300)[0]
    search = GridSearchCV(
        lda(max_iter=20), {"n_components": [1, 2, 4]}, cv=3, n_jobs=1
    ).fit(X)
    assert search.best_params_ == {"n_components": K}


# Streams


def test_a_stream_learns():
    X, topics = planted(4000, length=40)
    start = 0.5 * topics + 0.5 * topics.mean(axis=0)
    stream = lda(components_init=100.0 * start)
    scores = []
    for i, rows in enumerate(np.array_split(X, 40)):
        stream.partial_fit(rows)
        if i in (0, 5, 39):
            scores.append(document_completion(stream, X[:500]))
    assert scores[0] < scores[1] < scores[2]
    assert stream.n_tokens_seen_ == X.sum()
    assert stream.n_documents_seen_ == 4000
    assert (stream.n_iter_, stream.n_batch_iter_) == (40, 41)
    assert matched(normalized(stream.components_), topics)[1].max() < 0.1


def test_the_mass_of_a_stream():
    X = planted(100)[0].astype(float)
    prior = V  # over all words of a topic, with a prior of 1 each
    for total, expected in ((None, X.sum()), (1000, 10 * X.sum())):
        model = lda(total_samples=total, topic_word_prior=1.0, step_size=1e9)
        model.partial_fit(X[:50]).partial_fit(X[50:])
        found = model.components_.sum() - K * prior
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("tempering", TEMPERINGS)
def test_a_stream_goes_on_from_a_fit(tempering):
    X = planted()[0]
    model = lda(tempering=tempering, n_jobs=1).fit(X)
    before = normalized(model.components_)
    model.partial_fit(planted(100, seed=1)[0])
    moved = abs(normalized(model.components_) - before).sum(axis=1) / 2
    assert 0.0 < moved.mean() < 0.1
    assert model.step_size_ == pytest.approx((120 + 10) ** -0.7)
    assert not hasattr(model, "history_")
    assert not hasattr(model, "doc_temperature_")
    assert model.solver_ == "stochastic"
    assert model.n_tokens_seen_ > X.sum()
    again = pickle.loads(pickle.dumps(lda(tempering=tempering, n_jobs=1).fit(X)))
    again.partial_fit(planted(100, seed=1)[0])
    assert_same_state(again, model)


# Names


def test_relabel_takes_everything_along():
    X = planted()[0].astype(float)
    priors = {
        "doc_topic_prior": [0.1, 0.2, 0.3, 0.4],
        "topic_word_prior": np.random.default_rng(0).uniform(0.1, 1.0, (K, V)),
    }
    prior = priors["topic_word_prior"]
    model = lda(**priors, **EXACT).fit(X)
    before = pickle.loads(pickle.dumps(model))
    order = np.argsort(-model.topic_shares_)
    assert not np.array_equal(order, np.arange(K))
    model.relabel(order)
    np.testing.assert_array_equal(model.components_, before.components_[order])
    np.testing.assert_array_equal(model.topic_word_prior_, prior[order])
    np.testing.assert_allclose(
        model.transform(X), before.transform(X)[:, order], atol=1e-4
    )
    assert model.score(X) == pytest.approx(before.score(X), rel=1e-5)
    for one in (model, before):
        one.partial_fit(X[:100])
    np.testing.assert_allclose(model.components_, before.components_[order], rtol=1e-5)


def test_summary():
    pytest.importorskip("pandas")
    model = lda(n_init=2).fit(frame_of(planted()[0]))
    table = model.summary(n_words=3)
    assert list(table.columns) == ["share", "words"]
    assert table["share"].sum() == pytest.approx(1.0)
    assert table.attrs["objective"] == model.objective_
    assert table.attrs["starts_at_best"] in ("1 of 2", "2 of 2")


# Priors and starts


def test_defaults_of_the_priors():
    model = lda().fit(planted(50)[0])
    np.testing.assert_array_equal(model.doc_topic_prior_, np.full(K, 1.0 / K))
    assert model.topic_word_prior_ == 1.0 / K


def test_seeds_say_which_topic_is_which():
    X, topics = planted()
    names = [f"word{v}" for v in range(V)]
    seeds = {
        k: [names[v] for v in np.argsort(-topics[3 - k])[:2]] for k in range(K - 1)
    }
    prior = seed_prior(seeds, names, K, base=0.1)
    model = lda(topic_word_prior=prior, max_iter=30).fit(X)
    words = [set(row) for row in top_words(model, names, n=8)]
    assert all(set(seeds[k]) <= words[k] for k in seeds)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_prior_larger_than_the_start_leaves_topics_different(solver):
    model = lda(solver=solver, topic_word_prior=5.0, n_init=4, max_iter=30)
    model.fit(planted(length=200)[0])
    assert matched(normalized(model.components_), planted()[1])[1].max() < 0.2


def test_components_init_is_where_it_starts():
    X, topics = planted()
    given = 50.0 * topics[::-1] + 1.0
    model = lda(components_init=given, max_iter=0).fit(X)
    np.testing.assert_allclose(model.components_, given, rtol=1e-4)
    assert model.n_iter_ == 0
    model = lda(components_init=given, n_init=3).fit(X)
    found = normalized(model.components_)
    assert list(matched(found, topics[::-1])[0]) == list(range(K))
    assert len(model.init_scores_) == 1  # the same start thrice is one


def test_warm_start_goes_on():
    X = planted()[0].astype(float)
    model = lda(warm_start=True, max_iter=2, solver="batch")
    values = [model.fit(X).objective_ for _ in range(5)]
    assert (np.diff(values) > 0).all()
    whole = lda(max_iter=10, solver="batch").fit(X)
    np.testing.assert_allclose(model.components_, whole.components_, rtol=1e-6)
    with pytest.raises(ValueError, match="last fit's topics must have shape"):
        model.set_params(n_components=3).fit(X)


def test_the_best_of_several_starts_is_kept():
    X = planted(200)[0].astype(float)
    model = lda(n_components=6, n_init=4, max_iter=20, solver="batch").fit(X)
    assert model.init_scores_.shape == (4,)
    assert np.ptp(model.init_scores_) > 0
    best = model.init_scores_.max()
    assert model.objective_ == pytest.approx(best, rel=1e-12)


def test_perplexity_that_stands_still_ends_a_fit():
    X = planted()[0]
    options = {"solver": "batch", "evaluate_every": 2, "max_iter": 200}
    model = lda(perp_tol=0.01, **options).fit(X)
    assert 3 < model.n_iter_ < 200
    assert model.n_iter_ % 2 == 1
    values = np.exp(-model.history_["objective"])
    assert abs(values[-1] - values[-3]) < 0.01
    assert abs(values[-3] - values[-5]) >= 0.01
    assert lda(perp_tol=0.0, **(options | {"max_iter": 9})).fit(X).n_iter_ == 9


# Numbers and containers


@pytest.mark.parametrize("tempering", TEMPERINGS)
def test_float32_agrees_with_float64(tempering):
    X = planted()[0]
    # From uniform topics rounding would decide where symmetry breaks.
    start = 100.0 * planted()[1] + 1.0
    options = {"solver": "batch", "tempering": tempering, "max_iter": 30}
    options["components_init"] = start
    low, high = lda(**options).fit(X), lda(**options).fit(X.astype(float))
    assert low.objective_ == pytest.approx(high.objective_, abs=1e-4)
    p, q = normalized(low.components_), normalized(high.components_)
    np.testing.assert_allclose(p, q, atol=5e-3)
    np.testing.assert_allclose(low.transform(X), high.transform(X), atol=0.05)


# Bad input


X_BAD = planted(30)[0].astype(float)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"doc_topic_prior": 0.0}, "doc_topic_prior must be finite and positive"),
        ({"doc_topic_prior": -1.0}, "doc_topic_prior must be finite and positive"),
        ({"topic_word_prior": 0}, "topic_word_prior must be finite and positive"),
        ({"topic_word_prior": np.zeros((K, V))}, "topic_word_prior must be finite and"),
        ({"learning_method": "svi"}, "learning_method"),
        ({"learning_decay": 2.0}, "learning_decay"),
        ({"learning_offset": 0.0}, "learning_offset"),
        ({"perp_tol": -1.0}, "perp_tol"),
        ({"evaluate_every": 0.5}, "evaluate_every"),
        ({"max_doc_update_iter": 0}, "max_doc_update_iter"),
        ({"mean_change_tol": np.nan}, "mean_change_tol"),
        ({"total_samples": 0}, "total_samples"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_parameters(params, match):
    model = lda(**params)
    with pytest.raises(ValueError, match=match):
        model.fit(X_BAD)
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "components_")


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.FractionalCountsWarning")
@pytest.mark.parametrize("tempering", [None, "global", "local"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_corpora_give_a_finite_answer(solver, tempering):
    if (solver, tempering) == ("svrg", "local"):
        pytest.skip("refused")
    for name, counts in hard_corpora().items():
        for prior in (None, 1e-3, 50.0):
            model = lda(
                solver=solver,
                tempering=tempering,
                doc_topic_prior=prior,
                topic_word_prior=prior,
                batch_size=20,
            )
            model.fit(counts)
            theta = model.transform(counts)
            assert np.isfinite(model.objective_), name
            assert np.isfinite(model.components_).all(), name
            assert (model.components_ > 0).all(), name
            np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-4, err_msg=name)


def test_not_converged_warns_where_a_tolerance_was_asked_for():
    with pytest.warns(ConvergenceWarning, match=r"a token.*Raise max_iter"):
        lda(solver="batch", max_iter=2, tol=1e-12).fit(planted(50)[0])


# Streams with pauses, weights in place of counts


def test_an_empty_batch_leaves_the_topics():
    X = of_two_topics()
    empty = sp.csr_matrix((3, X.shape[1]), dtype=int)
    model = TemperedLDA(2, random_state=0).partial_fit(X)
    before, n = model.components_, model.n_batch_iter_
    model.partial_fit(empty)
    np.testing.assert_array_equal(model.components_, before)
    assert (model.n_batch_iter_, model.n_iter_) == (n + 1, 2)  # as the twin counts
    assert np.abs(model.partial_fit(X).components_ - before).max() > 0.0


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet weighted"])
@pytest.mark.parametrize("beta", [1.0, 0.6])
def test_the_energy_of_a_learned_temperature(name, beta):
    """Of topics and shares at their means, from each document's expected counts."""
    case = CASES[name]()
    model, k = case.model, case.model.n_components
    point = model.recentre(case.point)
    topics = model._topics(point.sums, NO_WORDS)[:, :k]
    means = topics / topics.sum(axis=0)
    energy = n_tokens = 0.0
    partition = case.data.blocks(case.data.n_units, np.random.default_rng(0))
    for document in partition.batches:
        counts = dense(model.statistics(point, document, beta))[0][:, :k] / beta
        weight = float(document.weight[0]) if document.weight.size else 1.0
        spent = counts.sum(axis=0) / weight
        gamma = model.doc_prior[:k] + beta * spent
        shares = gamma / gamma.sum()
        energy += weight * spent @ np.log(shares) + np.sum(counts * np.log(means))
        n_tokens += counts.sum()
    (whole,) = case.data.chunks().batches
    found, _ = model.calibration(point, whole, beta, np.array([0.5, 1.0]))
    assert found == pytest.approx(energy / n_tokens, rel=1e-9)
