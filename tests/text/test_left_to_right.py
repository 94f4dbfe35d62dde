"""The left-to-right estimate, against enumerations of all topic assignments."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvrem.text import _kernels, left_to_right, perplexity

CASES = {
    "two alike": ([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]], [0.5, 0.5], [0, 2, 0, 1, 2]),
    "small prior": ([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]], [0.05, 0.05], [0, 2, 2, 0, 1]),
    "own priors": ([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], [2.0, 0.3, 0.7],
                   [0, 1, 2, 1]),
    "impossible": ([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], [0.4, 0.2], [0, 1, 2, 1]),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request):
    topics, prior, tokens = CASES[request.param]
    return np.array(topics), np.array(prior), np.array(tokens)


def exact(topics, prior, tokens):
    """log p(tokens): the sum over all assignments, Dirichlet-multinomial."""
    terms = []
    for z in product(range(len(prior)), repeat=len(tokens)):
        n = np.bincount(z, minlength=len(prior))
        log_prior = gammaln(prior.sum()) - gammaln(prior.sum() + n.sum())
        log_prior += (gammaln(prior + n) - gammaln(prior)).sum()
        with np.errstate(divide="ignore"):
            terms.append(log_prior + np.log(topics[z, tokens]).sum())
    return logsumexp(terms)


def expected(topics, prior, tokens):
    """What more particles tend to without selection, in this order of the tokens.

    The distribution of one particle over all assignments so far, drawn anew position by
    position, then the probability of the next token averaged over it.
    """

    def conditional(others, v):
        n = np.bincount(others, minlength=len(prior))
        return topics[:, v] * (n + prior)

    particles, log_likelihood = {(): 1.0}, 0.0
    for n, v in enumerate(tokens):
        for m in range(n):
            moved = {}
            for z, q in particles.items():
                p = conditional(z[:m] + z[m + 1 :], tokens[m])
                for k, share in enumerate(p / p.sum()):
                    to = (*z[:m], k, *z[m + 1 :])
                    moved[to] = moved.get(to, 0.0) + q * share
            particles = moved
        total, extended = 0.0, {}
        for z, q in particles.items():
            p = conditional(z, v)
            total += q * p.sum()
            for k, share in enumerate(p / p.sum()):
                extended[(*z, k)] = q * share
        log_likelihood += np.log(total / (n + prior.sum()))
        particles = extended
    return log_likelihood


def run_kernel(topics, prior, tokens, n_particles, seed=0, selection=True):
    tokens = np.asarray(tokens, dtype=np.int32)
    return _kernels.left_to_right(
        *read_only(tokens, np.ascontiguousarray(topics.T)),
        np.tile(prior, (n_particles, 1)),
        np.empty((len(tokens), n_particles), np.int32),
        selection,
        np.uint64(seed),
    )


def read_only(*arrays):
    for array in arrays:
        array.flags.writeable = False
    return arrays


def test_many_particles_tend_to_the_exact_value(case):
    # Standard error about 1e-3 in the worst case.
    assert run_kernel(*case, n_particles=300_000) == pytest.approx(
        exact(*case), abs=5e-3
    )


def test_few_particles_are_right_on_average(case):
    found = np.exp([run_kernel(*case, n_particles=3, seed=s) for s in range(30_000)])
    error = found.std() / found.mean() / np.sqrt(found.size)
    assert error < 0.02
    assert found.mean() / np.exp(exact(*case)) == pytest.approx(1.0, abs=4 * error)


def test_published_algorithm_tends_to_its_own_expectation(case):
    found = run_kernel(*case, n_particles=300_000, selection=False)
    assert found == pytest.approx(expected(*case), abs=5e-3)


def test_published_algorithm_is_too_high_where_a_token_surprises():
    topics, prior, tokens = (np.array(part) for part in CASES["small prior"])
    assert expected(topics, prior, tokens) > exact(topics, prior, tokens) + 0.4


def test_two_tokens_are_without_bias(case):
    topics, prior, tokens = case
    pair = tokens[:2]
    assert expected(topics, prior, pair) == pytest.approx(exact(topics, prior, pair))


def test_mean_over_the_vocabulary_is_one_at_each_token(case):
    # sum_w p(w | before) = 1, whatever the particles: the probabilities are proper.
    topics, prior, tokens = case
    before = run_kernel(topics, prior, tokens, 10)
    with np.errstate(divide="ignore"):
        after = [run_kernel(topics, prior, [*tokens, v], 10) for v in range(3)]
    assert logsumexp(np.array(after) - before) == pytest.approx(0.0, abs=1e-12)


def test_one_token_and_one_topic_are_exact(rng):
    topics, prior = rng.dirichlet(np.ones(5), 3), np.array([0.2, 1.0, 3.0])
    found = left_to_right(topics, np.eye(5, dtype=int), doc_topic_prior=prior)
    np.testing.assert_allclose(found, np.log(prior @ topics / prior.sum()))
    X = rng.integers(4, size=(6, 5))
    found = left_to_right(topics[:1], X, doc_topic_prior=0.3)
    np.testing.assert_allclose(found, X @ np.log(topics[0]))


def test_function_is_near_the_exact_value(case):
    topics, prior, tokens = case
    X = np.bincount(tokens, minlength=3)[None]
    found = left_to_right(topics, X, doc_topic_prior=prior, n_particles=20_000)
    assert found[0] == pytest.approx(exact(*case), abs=0.03)


def test_particles_lower_the_variance(rng):
    topics, prior, tokens = (np.array(part) for part in CASES["own priors"])
    few, many = (
        np.std([run_kernel(topics, prior, tokens, n, seed=s) for s in range(200)])
        for n in (5, 80)
    )
    assert few / many == pytest.approx(4.0, rel=0.3)


def test_uniform_numbers():
    u = np.array([_kernels._uniform(np.uint64(9), np.uint64(i)) for i in range(20_000)])
    assert u.min() >= 0.0 and u.max() < 1.0
    assert np.unique(u).size == u.size
    np.testing.assert_allclose(np.histogram(u, 10)[0] / u.size, 0.1, atol=0.01)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.03


# The function


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(30, 0.2), 4)
    theta = rng.dirichlet(np.full(4, 0.3), 25)
    X = np.array([rng.multinomial(20, p) for p in theta @ topics])
    X[3] = 0
    return topics, X


def test_same_bits_for_any_number_of_threads_and_container(problem):
    topics, X = problem
    kwargs = {"doc_topic_prior": 0.3, "n_particles": 7}
    reference = left_to_right(topics, X, n_jobs=1, **kwargs)
    assert np.isfinite(reference).all() and reference[3] == 0.0
    for other in (X.astype(float), sp.csr_array(X), sp.coo_matrix(X)):
        found = left_to_right(topics, other, n_jobs=3, **kwargs)
        np.testing.assert_array_equal(found, reference)
    found = left_to_right(1000 * topics, X, **kwargs)
    np.testing.assert_allclose(found, reference, rtol=1e-6)
    assert (left_to_right(topics, X, random_state=1, **kwargs) != reference).sum() == 24
    # Equal documents have random numbers of their own.
    twice = left_to_right(topics, np.tile(X[:1], (2, 1)), **kwargs)
    assert twice[0] != twice[1]


def test_true_topics_and_prior_are_best(problem):
    topics, X = problem
    score = left_to_right(topics, X, doc_topic_prior=0.3).sum()
    for other, prior in ((topics[:2], 0.3), (topics[::-1, ::-1], 0.3), (topics, 50.0)):
        assert left_to_right(other, X, doc_topic_prior=prior).sum() < score - 5


def test_impossible_words():
    topics = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    X = np.array([[2, 2, 0], [2, 1, 1], [0, 0, 3]])
    found = left_to_right(topics, X, doc_topic_prior=0.5)
    assert np.isfinite(found[0])
    np.testing.assert_array_equal(found[1:], -np.inf)


def test_models_and_pipelines(problem):
    _, X = problem
    lda = LatentDirichletAllocation(4, random_state=0).fit(X)
    prior = lda.doc_topic_prior_
    np.testing.assert_array_equal(
        left_to_right(lda, X, doc_topic_prior=prior),
        left_to_right(lda.components_, X, doc_topic_prior=prior),
    )
    texts = ["sun rain wind", "goal ball win"] * 5
    pipeline = make_pipeline(CountVectorizer(), LatentDirichletAllocation(2)).fit(texts)
    np.testing.assert_array_equal(
        left_to_right(pipeline, texts, doc_topic_prior=0.5),
        left_to_right(pipeline[-1], pipeline[0].transform(texts), doc_topic_prior=0.5),
    )


def test_bad_input(problem):
    topics, X = problem
    kwargs = {"doc_topic_prior": 0.3}
    with pytest.raises(NotFittedError):
        left_to_right(LatentDirichletAllocation(), X, **kwargs)
    with pytest.raises(ValueError, match="whole numbers"):
        left_to_right(topics, X + 0.5, **kwargs)
    with pytest.raises(ValueError, match="negative"):
        left_to_right(topics, -X, **kwargs)
    with pytest.raises(ValueError, match="NaN"):
        left_to_right(topics * np.nan, X, **kwargs)
    with pytest.raises(ValueError, match="29 columns, but the topics have 30 words"):
        left_to_right(topics, X[:, 1:], **kwargs)
    for n_particles in (0, 2.5, "many"):
        with pytest.raises(ValueError, match="n_particles must be"):
            left_to_right(topics, X, n_particles=n_particles, **kwargs)
    for prior in (0.0, -1.0, [0.1, 0.2], [[0.1, 0.2]]):
        with pytest.raises(ValueError, match=r"above 0, or one for each of the 4"):
            left_to_right(topics, X, doc_topic_prior=prior)
    with pytest.raises(ValueError, match="NaN"):
        left_to_right(topics, X, doc_topic_prior=np.nan)


# perplexity


def test_perplexity_of_a_uniform_model_is_the_vocabulary():
    X = sp.csr_array([[1, 2, 0, 0], [0, 0, 0, 3]])
    found = left_to_right(np.ones((2, 4)), X, doc_topic_prior=0.1)
    assert perplexity(found, X) == pytest.approx(4.0)


def test_perplexity_checks_its_input():
    with pytest.raises(ValueError, match="one number for each of the 2"):
        perplexity([1.0], [[1], [1]])
    with pytest.raises(ValueError, match="for 0 tokens"):
        perplexity([0.0], [[0, 0]])
