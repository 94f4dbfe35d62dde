"""Document completion: the split, the likelihood, and the scorer in a search."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.decomposition import NMF, LatentDirichletAllocation, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from skvrem.text import document_completion, document_completion_scorer
from skvrem.text._likelihood import completion_split, log_likelihood
from skvrem.text._topics import check_counts, document_shares, word_probabilities

N_TOPICS, N_WORDS = 3, 40


def corpus(rng, n_documents=120, n_tokens=30, n_topics=N_TOPICS):
    """Documents of LDA, one empty and one of a single token among them."""
    topics = rng.dirichlet(np.full(N_WORDS, 0.1), n_topics)
    theta = rng.dirichlet(np.full(n_topics, 0.2), n_documents)
    X = np.array([rng.multinomial(n_tokens, p) for p in theta @ topics])
    X[0] = 0
    X[1] = np.eye(N_WORDS, dtype=int)[7]
    return X


@pytest.fixture(scope="module")
def X():
    return corpus(np.random.default_rng(0))


@pytest.fixture(scope="module")
def lda(X):
    return LatentDirichletAllocation(N_TOPICS, random_state=0).fit(X)


def brute_force(theta, phi, X):
    """Log-likelihood of each document, token type by token type."""
    return np.array(
        [
            sum(n * np.log(t @ phi[:, v]) for v, n in enumerate(row) if n)
            for t, row in zip(theta, X, strict=True)
        ]
    )


# The likelihood


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_topics", [1, 5])
def test_log_likelihood_is_that_of_a_loop(dtype, n_topics, X, rng):
    theta = rng.dirichlet(np.ones(n_topics), len(X)).astype(dtype)
    phi = rng.dirichlet(np.ones(N_WORDS), n_topics).astype(dtype)
    found = log_likelihood(theta, phi, check_counts(X))
    expected = brute_force(theta.astype(float), phi.astype(float), X)
    np.testing.assert_allclose(
        found, expected, rtol=2e-6 if dtype is np.float32 else 1e-12
    )
    assert found.dtype == np.float64


def test_log_likelihood_does_not_mind_the_scale_of_topics(X, rng):
    theta = rng.dirichlet(np.ones(4), len(X))
    phi = rng.dirichlet(np.ones(N_WORDS), 4)
    counts = check_counts(X)
    expected = log_likelihood(theta, phi, counts)
    scale = np.array([3.0, 0.1, 500.0, 1.0])
    found = log_likelihood(theta, phi * scale[:, None], counts)
    np.testing.assert_allclose(found, expected)
    # Factors W H, as NMF returns them: what one loses in scale the other has gained.
    found = log_likelihood(7.0 * theta / scale, phi * scale[:, None], counts)
    np.testing.assert_allclose(found, expected)


def test_topics_and_documents_without_weight_are_uniform():
    words, sums = word_probabilities(np.array([[0.0, 0.0], [1.0, 3.0]]))
    np.testing.assert_array_equal(words, [[0.5, 0.25], [0.5, 0.75]])
    np.testing.assert_array_equal(sums, [0.0, 4.0])
    shares = document_shares([[0.0, 0.0], [2.0, 6.0]])
    np.testing.assert_array_equal(shares, [[0.5, 0.5], [0.25, 0.75]])


def test_a_word_of_probability_zero():
    counts = check_counts([[1, 0], [0, 1]])
    found = log_likelihood([[1.0], [1.0]], np.array([[1.0, 0.0]]), counts)
    np.testing.assert_array_equal(found, [0.0, -np.inf])
    found = log_likelihood([[1.0], [1.0]], np.array([[1.0, 0.0]]), counts, 0.2)
    np.testing.assert_allclose(found, np.log([0.9, 0.1]))


def test_log_likelihood_checks_shapes(X):
    with pytest.raises(ValueError, match=r"theta must have shape \(120, 3\)"):
        log_likelihood(np.ones((5, 3)), np.ones((3, N_WORDS)), check_counts(X))


# The split


def split(X, seed=0):
    return completion_split(check_counts(X), np.random.default_rng(seed))


def test_halves_sum_to_the_counts_and_are_fair(rng):
    X = rng.poisson(3.0, (300, 50))
    observed, scored = split(X)
    np.testing.assert_array_equal((observed + scored).toarray(), X)
    for half in (observed, scored):
        assert half.dtype == X.dtype and half.data.min() > 0
    # Binomial(n, 1/2): the mean n / 2 and the variance n / 4.
    excess = observed.toarray() - X / 2
    n = X.sum()
    assert abs(excess.sum()) < 4 * np.sqrt(n / 4)
    assert (excess**2).sum() == pytest.approx(n / 4, rel=0.05)


def test_split_of_counts_that_are_no_whole_numbers():
    X = np.full((4000, 1), 2.7)
    observed, scored = (half.toarray().ravel() for half in split(X))
    np.testing.assert_allclose(observed + scored, 2.7)
    values, times = np.unique(observed.round(6), return_counts=True)
    np.testing.assert_allclose(values, [0, 0.7, 1, 1.7, 2, 2.7])
    np.testing.assert_allclose(
        times / 4000, np.array([1, 1, 2, 2, 1, 1]) / 8, atol=0.03
    )


def test_one_seed_is_one_split_of_any_container(X, rng):
    reference = [half.toarray() for half in split(X)]
    csr = sp.csr_matrix(X)
    order = np.concatenate([rng.permutation(np.arange(*ends)) for ends in ends_of(csr)])
    shuffled = sp.csr_matrix((csr.data[order], csr.indices[order], csr.indptr))
    shuffled.resize(X.shape)
    twice = sp.csr_matrix(
        (np.repeat(csr.data, 2) / 2, np.repeat(csr.indices, 2), 2 * csr.indptr), X.shape
    )
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype("i8"), wide.indptr.astype("i8")
    zeros = sp.csr_matrix(X + 1)
    zeros.data -= 1
    others = [
        X.astype(np.float32),
        X.astype(np.uint8),
        pd.DataFrame(X),
        sp.csc_array(X),
        sp.coo_matrix(X),
        shuffled,
        twice,
        wide,
        zeros,
    ]
    for other in others:
        before = other.copy()
        for half, expected in zip(split(other), reference, strict=True):
            np.testing.assert_array_equal(half.toarray(), expected)
        assert_same(other, before)
    assert not np.array_equal(split(X, 1)[0].toarray(), reference[0])


def ends_of(csr):
    return zip(csr.indptr[:-1], csr.indptr[1:], strict=True)


def assert_same(a, b):
    if not sp.issparse(a):
        np.testing.assert_array_equal(a, b)
        return
    names = ("row", "col") if a.format == "coo" else ("indices", "indptr")
    for name in ("data", *names):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert getattr(a, name).dtype == getattr(b, name).dtype


def test_split_of_true_and_false():
    observed, scored = split(np.ones((200, 3), dtype=bool))
    assert observed.dtype == np.int64
    assert observed.sum() + scored.sum() == 600 and 200 < observed.sum() < 400


# document_completion


def test_score_is_that_of_its_parts(lda, X):
    observed, scored = split(X, np.random.RandomState(5).randint(2**31 - 1))
    theta = lda.transform(observed)
    phi = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    expected = brute_force(theta, phi, scored.toarray()).sum() / scored.sum()
    assert document_completion(lda, X, random_state=5) == pytest.approx(expected)


def test_same_for_any_container_and_number_of_threads(lda, X):
    expected = document_completion(lda, X)
    assert np.isfinite(expected)
    assert document_completion(lda, X.astype(float)) == expected
    assert document_completion(lda, sp.csr_matrix(X)) == pytest.approx(expected)
    assert document_completion(lda, np.tile(X, (20, 1)), n_jobs=1) == (
        document_completion(lda, np.tile(X, (20, 1)), n_jobs=3)
    )
    assert document_completion(lda, X, random_state=1) != expected
    generator = np.random.RandomState(3)
    assert document_completion(lda, X, random_state=generator) != (
        document_completion(lda, X, random_state=generator)
    )


def test_model_of_a_frame_gets_a_frame(X):
    frame = pd.DataFrame(X, columns=[f"word {v}" for v in range(N_WORDS)])
    lda = LatentDirichletAllocation(N_TOPICS, random_state=0).set_output(
        transform="pandas"
    )
    score = document_completion(lda.fit(frame), frame)  # no warning about names
    assert score == document_completion(
        LatentDirichletAllocation(N_TOPICS, random_state=0).fit(X), X
    )
    with pytest.raises(ValueError, match="feature names"):
        document_completion(lda, frame[frame.columns[::-1]])


def test_empty_halves(lda):
    # Of 400 one-token documents about half have an empty observed half, and are scored
    # by the topics in equal shares; the others have nothing to score.
    X = np.tile(np.eye(N_WORDS, dtype=int), (10, 1))
    _, scored = split(X, np.random.RandomState(0).randint(2**31 - 1))
    assert 100 < scored.sum() < 300
    phi = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    expected = (scored @ np.log(phi.mean(axis=0))).sum() / scored.sum()
    assert document_completion(lda, X) == pytest.approx(expected)


def test_nothing_to_score(lda):
    with pytest.raises(ValueError, match="No token is left to score"):
        document_completion(lda, np.zeros((3, N_WORDS)))


def test_pipeline_splits_what_reaches_the_model():
    texts = ["sun rain wind cloud rain wind", "goal ball team goal win team"] * 20
    vectorizer = CountVectorizer()
    lda = LatentDirichletAllocation(2, random_state=0)
    pipeline = make_pipeline(vectorizer, lda).fit(texts)
    expected = document_completion(lda, vectorizer.transform(texts))
    assert document_completion(pipeline, texts) == expected
    assert document_completion_scorer(pipeline, texts) == expected
    alone = make_pipeline(LatentDirichletAllocation(2, random_state=0))
    alone.fit(vectorizer.transform(texts))
    assert document_completion(alone, vectorizer.transform(texts)) == expected
    weighted = make_pipeline(CountVectorizer(), TfidfTransformer(), lda).fit(texts)
    assert np.isfinite(document_completion(weighted, texts))


def test_nmf_needs_smoothing_where_it_excludes_words(X):
    nmf = NMF(3, init="random", solver="mu", beta_loss="kullback-leibler", max_iter=400)
    nmf.set_params(random_state=0, tol=1e-8).fit(X)
    nmf.components_[:, 7] = 0.0
    assert document_completion(nmf, np.tile(X, (3, 1))) == -np.inf
    score = document_completion(nmf, np.tile(X, (3, 1)), smoothing=0.01)
    assert -np.log(N_WORDS) < score < 0.0
    assert document_completion(nmf, X, smoothing=1.0) == pytest.approx(-np.log(N_WORDS))


# In searches


def test_search_finds_the_number_of_topics(rng):
    X = corpus(rng, 150, 60)
    search = GridSearchCV(
        LatentDirichletAllocation(doc_topic_prior=0.2, random_state=0, max_iter=15),
        {"n_components": [1, 3]},
        scoring=document_completion_scorer,
        cv=2,
    ).fit(X)
    assert search.best_params_ == {"n_components": 3}
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] > scores[0] + 0.2
    assert document_completion(search, X) == (
        document_completion(search.best_estimator_, X)
    )


def test_options_of_the_scorer(lda, X):
    scoring = partial(document_completion_scorer, random_state=7, smoothing=0.5)
    (score,) = cross_val_score(
        lda, X, scoring=scoring, cv=[(np.arange(len(X)), np.arange(len(X)))]
    )
    assert score == document_completion(lda, X, random_state=7, smoothing=0.5)


# Bad input


def test_bad_counts(lda, X):
    negative, missing = X.astype(float), X.astype(float)
    negative[3, 5], missing[3, 5] = -1.0, np.nan
    for wrong in (negative, sp.csr_array(negative), sp.csc_matrix(negative)):
        with pytest.raises(ValueError, match="must not be negative, got -1 in row 3"):
            document_completion(lda, wrong)
    with pytest.raises(ValueError, match="NaN"):
        document_completion(lda, missing)
    with pytest.raises(ValueError, match="NaN"):
        document_completion(lda, sp.csr_array(missing))
    with pytest.raises(ValueError, match=r"infinity|inf"):
        document_completion(lda, np.where(X > 2, np.inf, X))
    with pytest.raises(ValueError, match="39 columns, but the topics have 40"):
        document_completion(lda, X[:, 1:])
    with pytest.raises(ValueError, match="0 sample"):
        document_completion(lda, X[:0])
    with pytest.raises(ValueError, match="2D array"):
        document_completion(lda, X[0])


def test_bad_models(X):
    with pytest.raises(NotFittedError):
        document_completion(LatentDirichletAllocation(), X)
    with pytest.raises(NotFittedError):
        document_completion(make_pipeline(TfidfTransformer(), NMF()), X)
    with pytest.raises(ValueError, match="Expected a fitted topic model"):
        document_completion(TfidfTransformer().fit(X), X)
    with pytest.raises(ValueError, match="Expected a fitted topic model"):
        document_completion("lda", X)
    with pytest.raises(ValueError, match="must not have negative entries"):
        document_completion(TruncatedSVD(2).fit(X), X)


@pytest.mark.parametrize("smoothing", [-0.1, 1.5, np.nan, "a", None])
def test_bad_smoothing(smoothing, lda, X):
    with pytest.raises(ValueError, match="smoothing must be"):
        document_completion(lda, X, smoothing=smoothing)
