"""Topics of one fit beside those of another."""

from itertools import permutations

import numpy as np
import pytest
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvrem import VRPLSA
from skvrem.text import match_topics, topic_diversity, topic_stability


def distance(p, q):
    p, q = p / p.sum(), q / q.sum()
    return np.sqrt(0.5 * np.square(np.sqrt(p) - np.sqrt(q)).sum())


def test_pairs_are_the_nearest_of_all_pairings(rng):
    first, second = rng.gamma(0.3, size=(2, 5, 12))
    match = match_topics(3.0 * first, second)
    best = min(
        permutations(range(5)),
        key=lambda order: sum(map(distance, first, second[list(order)])),
    )
    np.testing.assert_array_equal(match.first, range(5))
    np.testing.assert_array_equal(match.second, best)
    expected = list(map(distance, first, second[list(best)]))
    np.testing.assert_allclose(match.distance, expected, rtol=1e-12)


def test_the_same_topics_in_another_order(rng):
    topics = rng.dirichlet(np.full(30, 0.2), size=6)
    order = rng.permutation(6)
    match = match_topics(topics, topics[order].astype(np.float32))
    np.testing.assert_array_equal(order[match.second], range(6))
    assert match.distance.max() < 1e-3
    back = match_topics(topics[order], topics)
    np.testing.assert_array_equal(back.second, order)
    assert back.distance.max() < 1e-7


def test_fewer_topics_on_one_side(rng):
    topics = rng.dirichlet(np.full(30, 0.2), size=6)
    few = match_topics(topics, topics[[4, 1]])
    np.testing.assert_array_equal(few.first, [1, 4])
    np.testing.assert_array_equal(few.second, [1, 0])
    many = match_topics(topics[[4, 1]], topics)
    np.testing.assert_array_equal(many.second, [4, 1])
    apart = match_topics([[1.0, 0.0]], [[0.0, 1.0]])
    np.testing.assert_array_equal(apart.distance, [1.0])


def test_models_and_pipelines(rng):
    texts = ["sun rain sun wind", "goal ball goal win", "rain wind sun", "ball win"] * 5
    counts = CountVectorizer()
    X = counts.fit_transform(texts)
    one = VRPLSA(2, random_state=0).fit(X)
    other = make_pipeline(CountVectorizer(), NMF(2, random_state=0)).fit(texts)
    match = match_topics(one, other)
    words = one.components_.argmax(axis=1)
    theirs = other[-1].components_.argmax(axis=1)
    sides = counts.get_feature_names_out()
    weather = {"sun", "rain", "wind"}
    for a, b in zip(match.first, match.second, strict=True):
        assert (sides[words[a]] in weather) == (sides[theirs[b]] in weather)


def test_stability_is_the_mean_of_all_pairs(rng):
    models = rng.dirichlet(np.full(9, 0.3), size=(4, 3))
    found = topic_stability(list(models))
    each = [
        1.0 - match_topics(models[i], models[j]).distance
        for i in range(4)
        for j in range(i)
    ]
    assert found.score == pytest.approx(np.mean(each))
    assert found.similarity.shape == (3, 3)
    second = 1.0 - match_topics(models[0], models[2]).distance
    np.testing.assert_allclose(found.similarity[1], second)
    assert topic_stability([models[0], models[0][::-1]]).score > 1.0 - 1e-7


def test_diversity(rng):
    assert topic_diversity(np.eye(4), n=1) == 1.0
    assert topic_diversity(np.ones((4, 9)), n=3) == 0.25
    topics = rng.random((3, 8))
    top = {j for row in topics for j in np.argsort(-row)[:5]}
    assert topic_diversity(topics, n=5) == len(top) / 15
    assert topic_diversity(topics) == 8 / 24  # no more words than there are


def test_what_is_wrong(rng):
    topics = rng.random((3, 8))
    with pytest.raises(ValueError, match="fit both with one vocabulary"):
        match_topics(topics, topics[:, :7])
    for models in ([topics], [], [topics, topics[:2]]):
        with pytest.raises(ValueError, match="two fits at least with one number"):
            topic_stability(models)
    with pytest.raises(ValueError, match="negative"):
        match_topics(topics, -topics)
    with pytest.raises(ValueError, match="n must be an integer"):
        topic_diversity(topics, n=0)
