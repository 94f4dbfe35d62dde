"""Top words and documents, names of columns, and word priors from seeds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
)
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skvrem import VRPLSA
from skvrem.text import seed_prior, top_documents, top_words
from skvrem.text._topics import check_names, largest

TEXTS = ["sun rain wind sun cloud", "goal ball goal win team"] * 10


@pytest.fixture(scope="module")
def pipeline():
    model = LatentDirichletAllocation(2, random_state=0)
    return make_pipeline(CountVectorizer(), model).fit(TEXTS)


# largest


@pytest.mark.parametrize("n", [1, 3, 12, 50])
def test_largest_is_a_stable_sort(n, rng):
    rows = rng.integers(4, size=(30, 12)).astype(float)
    expected = np.argsort(-rows, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(largest(rows, n), expected)


# top_words


def test_top_words(pipeline):
    words = top_words(pipeline, n=2)
    assert words.shape == (2, 2)
    assert sorted(words[:, 0]) == ["goal", "sun"]
    assert top_words(pipeline, n=100).shape == (2, 8)
    names = pipeline[0].get_feature_names_out()
    numbered = top_words(pipeline[-1].components_, n=2)
    np.testing.assert_array_equal(
        names[[int(x[1:]) for x in numbered.flat]], words.flat
    )


def test_names_from_wherever_they_are(pipeline):
    expected = top_words(pipeline, n=3)
    vectorizer, model = pipeline
    search = GridSearchCV(
        pipeline, {"latentdirichletallocation__n_components": [2]}, cv=2
    )
    search.fit(TEXTS)
    for names in (
        pipeline,
        search,
        vectorizer,
        vectorizer.get_feature_names_out(),
        list(vectorizer.get_feature_names_out()),
        pd.Index(vectorizer.get_feature_names_out()),
        make_pipeline(vectorizer),
        make_pipeline(vectorizer, TfidfTransformer().fit(vectorizer.transform(TEXTS))),
    ):
        np.testing.assert_array_equal(top_words(model, names, n=3), expected)
    frame = pd.DataFrame(
        vectorizer.transform(TEXTS).toarray(),
        columns=vectorizer.get_feature_names_out(),
    )
    of_frame = LatentDirichletAllocation(2, random_state=0).fit(frame)
    np.testing.assert_array_equal(top_words(of_frame, n=3), expected)
    alone = make_pipeline(LatentDirichletAllocation(2, random_state=0)).fit(frame)
    np.testing.assert_array_equal(top_words(alone, n=3), expected)
    np.testing.assert_array_equal(top_words(alone, alone, n=3), expected)


def test_names_that_enter_the_last_step():
    selected = make_pipeline(
        CountVectorizer(), SelectKBest(chi2, k=3), LatentDirichletAllocation(2)
    ).fit(TEXTS, [0, 1] * 10)
    entering = set(selected[:-1].get_feature_names_out())
    assert len(entering) == 3 and set(top_words(selected).ravel()) == entering
    # Without a topic model at its end, a pipeline names what comes out.
    assert set(check_names(selected[:-1])) == entering


def test_columns_without_names():
    model = LatentDirichletAllocation(1).fit(np.diag([1.0, 2.0, 5.0]))
    np.testing.assert_array_equal(top_words(model, n=1), [["x2"]])
    hashing = HashingVectorizer(n_features=8, alternate_sign=False)
    hashed = make_pipeline(hashing, LatentDirichletAllocation(2)).fit(TEXTS)
    with pytest.raises(AttributeError, match="get_feature_names_out"):
        top_words(hashed)
    assert top_words(hashed[-1], hashed[0]).shape == (2, 8)  # x0 to x7


def test_top_words_checks_its_input(pipeline):
    with pytest.raises(NotFittedError):
        top_words(NMF())
    with pytest.raises(NotFittedError):
        top_words(pipeline[-1], CountVectorizer())
    with pytest.raises(ValueError, match=r"8 words, .* shape \(2,\)"):
        top_words(pipeline[-1], ["a", "b"])
    with pytest.raises(ValueError, match=r"8 words, .* shape \(\)"):
        top_words(pipeline[-1], "vocabulary")
    for n in (0, -1, 2.5, None):
        with pytest.raises(ValueError, match="n must be an integer"):
            top_words(pipeline, n=n)


# top_documents


def test_top_documents(pipeline):
    found = top_documents(pipeline, TEXTS, n=3)
    theta = pipeline.transform(TEXTS)
    np.testing.assert_array_equal(found, top_documents(theta, n=3))
    np.testing.assert_array_equal(found, top_documents(5 * theta, n=3))
    assert {TEXTS[d] for d in found[0]} != {TEXTS[d] for d in found[1]}
    assert all(len({TEXTS[d] for d in row}) == 1 for row in found)
    assert top_documents(theta, n=100).shape == (2, 20)


def test_shares_of_nmf_do_not_depend_on_the_scale_of_its_factors(rng):
    X = rng.poisson(rng.gamma(0.3, 2.0, (30, 6)))
    model = NMF(2, init="random", random_state=0, max_iter=2000).fit(X)
    expected = top_documents(model, X, n=5)
    scale = np.array([100.0, 0.01])
    model.components_ = model.components_ * scale[:, None]
    np.testing.assert_array_equal(top_documents(model, X, n=5), expected)


def test_top_documents_checks_its_input(pipeline):
    with pytest.raises(ValueError, match="Give an estimator and X"):
        top_documents(pipeline)
    with pytest.raises(ValueError, match="Give an estimator and X"):
        top_documents([[0.5, 0.5]], TEXTS)
    with pytest.raises(ValueError, match="must not be negative"):
        top_documents([[0.5, -0.5]])
    with pytest.raises(NotFittedError):
        top_documents(NMF(), np.eye(3))


# seed_prior

NAMES = ["ball", "goal", "rain", "sun", "tax"]


def test_seed_prior():
    prior = seed_prior({0: ["tax"], 2: ("sun", "rain")}, NAMES, 4, weight=7, base=0.5)
    expected = np.full((4, 5), 0.5)
    expected[0, 4] = expected[2, 2] = expected[2, 3] = 7.5
    np.testing.assert_array_equal(prior, expected)
    assert seed_prior({}, NAMES, 2).shape == (2, 5)
    assert np.unique(seed_prior({}, NAMES, 2)).size == 1


def test_seeds_weighed_by_their_counts(pipeline):
    X = pipeline[0].transform(TEXTS)
    prior = seed_prior({1: ["sun", "rain"]}, pipeline, 2, weight=X.sum(axis=0), base=0)
    assert sorted(prior[prior > 0]) == [10, 20]


def test_seeds_draw_a_topic_to_their_words():
    vectorizer = CountVectorizer()
    X = vectorizer.fit_transform(TEXTS)
    for topic in (0, 1):
        seeds = {topic: ["sun"], 1 - topic: ["goal"]}
        prior = seed_prior(seeds, vectorizer, 2, weight=X.sum(axis=0))
        model = VRPLSA(2, topic_word_smoothing=prior, random_state=0).fit(X)
        words = top_words(model, vectorizer, n=4)
        assert set(words[topic]) == {"sun", "rain", "wind", "cloud"}
        assert set(words[1 - topic]) == {"goal", "ball", "win", "team"}


def test_seed_prior_takes_vectorizers_and_pipelines(pipeline):
    names = pipeline[0].get_feature_names_out()
    expected = seed_prior({1: ["sun"]}, names, 2)
    assert expected[1].argmax() == list(names).index("sun")
    for source in (pipeline, pipeline[0], pd.Index(names)):
        np.testing.assert_array_equal(seed_prior({1: ["sun"]}, source, 2), expected)


def test_missing_seed_words_are_named():
    with pytest.warns(UserWarning, match=r"\(topic 0: 'vat', 'Tax'; topic 1: 'snow'\)"):
        prior = seed_prior({0: ["tax", "vat", "Tax"], 1: ["snow", "sun"]}, NAMES, 2)
    np.testing.assert_array_equal(prior.argmax(axis=1), [4, 3])
    with pytest.raises(ValueError, match="topic 1 is in the vocabulary: 'Tax'"):
        seed_prior({0: ["tax"], 1: ["Tax"]}, NAMES, 2)


def test_seed_prior_checks_its_input():
    for topic in (-1, 2, "tax", 0.5):
        with pytest.raises(ValueError, match="Seeds are for topics 0 to 1"):
            seed_prior({topic: ["tax"]}, NAMES, 2)
    for words in ("tax", []):
        with pytest.raises(ValueError, match="needs a list of words"):
            seed_prior({0: words}, NAMES, 2)
    for wrong in (-1.0, np.inf, np.nan, "big", None):
        for name in ("weight", "base"):
            with pytest.raises(ValueError, match=f"{name} must be finite and not neg"):
                seed_prior({0: ["tax"]}, NAMES, 2, **{name: wrong})
    for weight in (0.0, [1, 1, 1, 1, 0]):
        with pytest.raises(ValueError, match="above 0 for the seeds of topic 0"):
            seed_prior({0: ["tax"]}, NAMES, 2, weight=weight)
    with pytest.raises(ValueError, match="one for each of the 5 words, got 2"):
        seed_prior({0: ["tax"]}, NAMES, 2, weight=[1, 2])
    with pytest.raises(ValueError, match="base must be one number, got 2"):
        seed_prior({0: ["tax"]}, NAMES, 2, base=[1, 2])
    with pytest.raises(ValueError, match="n_components must be"):
        seed_prior({0: ["tax"]}, NAMES, 0)
    with pytest.raises(ValueError, match="feature_names must be the words"):
        seed_prior({0: ["tax"]}, None, 2)


def test_relevance_weighs_probability_against_lift(rng):
    topics = rng.gamma(0.5, size=(3, 12))
    names = np.array([f"w{j}" for j in range(12)])
    p = topics / topics.sum(axis=1, keepdims=True)
    overall = topics.sum(axis=0) / topics.sum()
    for weight in (0.0, 0.3, None, 1.0):
        w = 0.6 if weight is None else weight
        score = w * np.log(p) + (1.0 - w) * np.log(p / overall)
        expected = names[np.argsort(-score, axis=1, kind="stable")[:, :5]]
        found = top_words(topics, names, 5, ranking="relevance", weight=weight)
        np.testing.assert_array_equal(found, expected)
    plain = top_words(topics, names, 5)
    same = top_words(topics, names, 5, ranking="relevance", weight=1.0)
    np.testing.assert_array_equal(plain, same)


def test_frex_is_the_harmonic_mean_of_ranks(rng):
    topics = rng.gamma(0.5, size=(3, 12))
    names = np.array([f"w{j}" for j in range(12)])
    p = topics / topics.sum(axis=1, keepdims=True)
    share = p / p.sum(axis=0)
    for weight in (0.2, None):
        w = 0.5 if weight is None else weight
        score = np.empty(p.shape)
        for k, j in np.ndindex(p.shape):
            exclusive = np.mean(share[k] <= share[k, j])
            frequent = np.mean(p[k] <= p[k, j])
            score[k, j] = 1.0 / (w / exclusive + (1.0 - w) / frequent)
        expected = names[np.argsort(-score, axis=1, kind="stable")[:, :4]]
        found = top_words(topics, names, 4, ranking="frex", weight=weight)
        np.testing.assert_array_equal(found, expected)


def test_rankings_of_words_that_are_nowhere():
    topics = np.array([[2.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 3.0]])
    for ranking in ("relevance", "frex"):
        found = top_words(topics, list("abcd"), 2, ranking=ranking)
        np.testing.assert_array_equal(found, [["a", "c"], ["d", "c"]])
    with pytest.raises(ValueError, match="ranking must be one of 'probability', 'rel"):
        top_words(topics, ranking="lift")
    with pytest.raises(ValueError, match="weight must lie between 0 and 1"):
        top_words(topics, ranking="frex", weight=1.5)
    with pytest.raises(ValueError, match="weight is of ranking="):
        top_words(topics, weight=0.5)
