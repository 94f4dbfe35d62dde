"""Coherence, against loops over documents and pairs of words."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvrem.text import coherence, top_words

NAMES = [f"word{v}" for v in range(20)]


@pytest.fixture
def X(rng):
    """Word 3 is in no document, word 5 in all."""
    X = rng.poisson(rng.gamma(0.5, 1.0, (60, 20)))
    X[:, 3], X[:, 5] = 0, 1
    return X


@pytest.fixture
def topics(rng):
    return rng.gamma(0.3, 1.0, (4, 20))


def npmi(D, i, j, n):
    if D(i, j) == 0:
        return -1.0
    if D(i, j) == n:
        return 0.0
    p_i, p_j, p_ij = D(i, i) / n, D(j, j) / n, D(i, j) / n
    return np.log(p_ij / (p_i * p_j)) / -np.log(p_ij)


def umass(D, i, j, n):
    return np.log((D(i, j) + 1) / D(j, j)) if D(j, j) else -np.log(n) + 0.0


def brute_force(topics, X, measure, n_words):
    documents = [set(np.flatnonzero(row)) for row in X]

    def D(i, j):
        return sum({i, j} <= words for words in documents)

    found = []
    for topic in topics:
        top = np.argsort(-topic)[:n_words]
        pairs = [(top[b], top[a]) for b in range(n_words) for a in range(b)]
        found.append(np.mean([measure(D, i, j, len(X)) for i, j in pairs]))
    return found


@pytest.mark.parametrize("measure", [npmi, umass])
@pytest.mark.parametrize("n_words", [2, 5, 20])
def test_against_loops(measure, n_words, topics, X):
    expected = brute_force(topics, X, measure, n_words)
    kwargs = {"measure": measure.__name__, "n_words": n_words}
    np.testing.assert_allclose(coherence(topics, X, **kwargs), expected)
    np.testing.assert_allclose(coherence(9 * topics, 0.5 * X, **kwargs), expected)
    for container in (sp.csr_matrix, sp.coo_array, sp.csc_array):
        sparse = container(X)
        np.testing.assert_allclose(coherence(topics, sparse, **kwargs), expected)


def test_explicit_zeros_and_duplicates_are_no_documents(topics, X):
    sparse = sp.csr_array(X + 1)
    sparse.data -= 1
    np.testing.assert_array_equal(coherence(topics, sparse), coherence(topics, X))
    assert (sparse.data == 0).any()


def test_values_by_hand():
    #             a  b  c  d
    X = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]])
    words = [["a", "b"], ["a", "c"], ["a", "d"], ["d", "a"], ["d", "nothing"]]
    kwargs = {"feature_names": list("abcd")}
    np.testing.assert_allclose(coherence(words, X, **kwargs), [1, -1, -1, -1, -1])
    found = coherence(words, X, measure="umass", **kwargs)
    # A word below another in rank is compared with it; 4 documents.
    np.testing.assert_allclose(np.exp(found), [3 / 2, 1 / 2, 1 / 2, 1 / 4, 1 / 4])


def test_words_of_every_document_tell_nothing():
    X = np.ones((6, 3))
    np.testing.assert_array_equal(coherence([[3, 2, 1]], X, n_words=3), [0.0])


def test_topics_that_were_planted_are_coherent(rng):
    planted = np.kron(np.eye(3), np.ones(8)) + 0.01
    planted /= planted.sum(axis=1, keepdims=True)
    theta = rng.dirichlet(np.full(3, 0.1), 300)
    X = np.array([rng.multinomial(8, p) for p in theta @ planted])
    mixed = planted[:, rng.permutation(24)]
    for measure in ("npmi", "umass"):
        good, bad = (coherence(t, X, measure=measure) for t in (planted, mixed))
        assert good.min() > bad.max()
    for model in (LatentDirichletAllocation(3, random_state=0), NMF(3)):
        assert coherence(model.fit(X), X).min() > 0.1


def test_words_models_and_pipelines_are_the_same(topics, X):
    words = top_words(topics, NAMES, n=6).tolist()
    expected = coherence(topics, X, n_words=6)
    found = coherence(words, X, feature_names=NAMES)
    np.testing.assert_allclose(found, expected)
    more = coherence(
        top_words(topics, NAMES).tolist(), X, n_words=6, feature_names=NAMES
    )
    np.testing.assert_allclose(more, expected)

    texts = ["sun rain wind cloud", "goal ball win", "rain sun"] * 5
    vectorizer = CountVectorizer()
    pipeline = make_pipeline(vectorizer, LatentDirichletAllocation(2, random_state=0))
    expected = coherence(
        pipeline.fit(texts)[-1], vectorizer.transform(texts), n_words=3
    )
    np.testing.assert_array_equal(coherence(pipeline, texts, n_words=3), expected)
    words = top_words(pipeline, n=3).tolist()
    for names in (vectorizer, pipeline, vectorizer.get_feature_names_out()):
        counts = vectorizer.transform(texts)
        found = coherence(words, counts, feature_names=names)
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("names", [NAMES, [str(1990 + v) for v in range(20)]])
def test_arrays_of_words_are_words(names, topics, X):
    """Of digits as well, as many as X has columns or fewer."""
    for n in (5, 20):
        words = top_words(topics, names, n=n)
        assert isinstance(words, np.ndarray)
        expected = coherence(topics, X, n_words=n)
        for array in (words.astype(str), words.astype(object)):
            found = coherence(array, X, n_words=n, feature_names=names)
            np.testing.assert_allclose(found, expected)
    # Numbers stay numbers, in an array of objects too.
    found = coherence(topics.astype(object), X)
    np.testing.assert_array_equal(found, coherence(topics, X))


def test_topics_of_different_lengths_and_unknown_words(X):
    words = [
        ["word0", "word1", "word2"],
        ["word6", "word7"],
        ["word0", "x"],
        ["x", "y"],
    ]
    found = coherence(words, X, feature_names=NAMES)
    for topic, value in zip(words[:2], found[:2], strict=True):
        assert coherence([topic], X, feature_names=NAMES)[0] == pytest.approx(value)
    np.testing.assert_array_equal(found[2:], -1.0)


def test_bad_input(topics, X):
    with pytest.raises(NotFittedError):
        coherence(LatentDirichletAllocation(), X)
    with pytest.raises(ValueError, match="measure must be"):
        coherence(topics, X, measure="c_v")
    for n_words in (1, 2.5, "all"):
        with pytest.raises(ValueError, match="n_words must be"):
            coherence(topics, X, n_words=n_words)
    with pytest.raises(ValueError, match="20 columns, but the topics have 19"):
        coherence(topics[:, 1:], X)
    with pytest.raises(ValueError, match="negative"):
        coherence(topics, -X)
    with pytest.raises(ValueError, match="negative"):
        coherence(-topics, X)
    with pytest.raises(ValueError, match="NaN"):
        coherence(topics, np.where(X > 1, np.nan, X))
    with pytest.raises(ValueError, match="no pairs"):
        coherence(topics[:, :1], X[:, :1])
    with pytest.raises(ValueError, match="need feature_names"):
        coherence([["a", "b"]], X)
    with pytest.raises(ValueError, match="feature_names must be 20 words"):
        coherence([["a", "b"]], X, feature_names=NAMES[1:])
    for words in (
        ["word0", "word1"],
        [["word0"]],
        [["word0", "word0"]],
        [["word0"], []],
        np.array(["word0", "word1"]),
        np.array([["word0", "word0"]]),
        np.array("word0"),
    ):
        with pytest.raises(ValueError, match="two words at least"):
            coherence(words, X, feature_names=NAMES)
    with pytest.raises(ValueError, match="a word twice"):
        coherence([["word0", "word1", "word0"]], X, feature_names=NAMES)


def test_umass_with_another_epsilon():
    """As gensim has it: a pair that never meets weighs far more."""
    X = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1]])
    topics = [[0.6, 0.3, 0.1]]
    for epsilon in (1.0, 4e-12):
        pairs = [(1 + epsilon) / 3, (1 + epsilon) / 3, epsilon / 1]
        found = coherence(topics, X, measure="umass", epsilon=epsilon)
        assert found[0] == pytest.approx(np.mean(np.log(pairs)))
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        coherence(topics, X, measure="umass", epsilon=0.0)
