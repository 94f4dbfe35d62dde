"""A stream of frames whose words are not known beforehand."""

import copy

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from skvrem import VRPLSA, TemperedLDA
from tests.documents import planted
from tests.watching import Untouched

KINDS = pytest.mark.parametrize(
    "kind", [VRPLSA, TemperedLDA], ids=lambda kind: kind.__name__
)
WORDS = [f"w{v}" for v in range(60)]
KNOWN = WORDS[::2]


@pytest.fixture
def batches():
    X = pd.DataFrame(planted(200)[0], columns=WORDS)
    return X[:100][KNOWN], X[100:]


def begun(kind, batches, **params):
    return kind(4, random_state=0, **params).partial_fit(batches[0])


@KINDS
def test_new_words_are_as_if_they_had_been_there_without_counts(kind, batches):
    model = begun(kind, batches)
    whole = copy.deepcopy(model)
    whole._sums = np.zeros((60, 4), model._sums.dtype)
    whole._sums[::2] = model._sums
    whole._first_documents = model._first_documents.with_words(range(0, 60, 2))
    del whole.feature_names_in_
    whole.n_features_in_ = 60
    model.partial_fit(batches[1])
    whole.partial_fit(batches[1].to_numpy())
    np.testing.assert_array_equal(model.components_, whole.components_)
    assert list(model.feature_names_in_) == WORDS
    assert model.n_features_in_ == model.components_.shape[1] == 60
    assert model.transform(batches[1]).shape == (100, 4)


@KINDS
def test_columns_go_by_their_names(kind, batches):
    order = np.random.default_rng(0).permutation(60)
    one, other = (kind(4, random_state=0).fit(batches[0]) for _ in range(2))
    one.partial_fit(batches[1])
    other.partial_fit(batches[1].iloc[:, order])
    assert list(other.feature_names_in_) == [WORDS[v] for v in order]
    np.testing.assert_allclose(
        other.components_, one.components_[:, order], rtol=1e-3, atol=1e-4
    )
    sparse = batches[1].astype(pd.SparseDtype(int, 0))
    again = kind(4, random_state=0).fit(batches[0]).partial_fit(sparse)
    np.testing.assert_array_equal(again.components_, one.components_)
    # Of documents that are kept, too.
    one, other = begun(kind, batches), begun(kind, batches)
    one.partial_fit(batches[1][:5])
    other.partial_fit(batches[1].iloc[:5, order])
    sizes = one._first_documents.sizes
    first = slice(sizes[:100].sum())
    words = order[other._first_documents.words[first]]
    np.testing.assert_array_equal(words, one._first_documents.words[first])
    np.testing.assert_array_equal(other._first_documents.sizes, sizes)


def test_a_word_that_has_not_come_has_the_prior(batches):
    frame = batches[1].assign(never=0)
    model = begun(TemperedLDA, batches).partial_fit(frame)
    np.testing.assert_allclose(model.components_[:, -1], 0.05, rtol=1e-6)
    prior = np.linspace(0.1, 0.4, 4 * 30).reshape(4, 30)
    model = begun(TemperedLDA, batches, topic_word_prior=prior).partial_fit(frame)
    np.testing.assert_array_equal(model.topic_word_prior_[:, :60:2], prior)
    np.testing.assert_array_equal(model.topic_word_prior_[:, -1], prior[:, 0])
    np.testing.assert_allclose(model.components_[:, -1], prior[:, 0], rtol=1e-6)
    assert model.partial_fit(frame).components_.shape == (4, 61)


@KINDS
def test_an_empty_batch_brings_no_words(kind, batches):
    model = begun(kind, batches)
    n_iter = model.n_iter_
    model.partial_fit(0 * batches[1])
    assert list(model.feature_names_in_) == KNOWN and model.n_iter_ == n_iter + 1
    assert model.transform(batches[0]).shape == (100, 4)
    assert model.partial_fit(batches[1]).components_.shape == (4, 60)


@KINDS
def test_words_that_cannot_be_told_are_refused(kind, batches):
    first, second = batches
    model = begun(kind, batches)
    untouched = Untouched(model)
    for X, message in (
        (second.to_numpy(), "New words are told by their names"),
        (sp.csr_array(second.to_numpy()), "X has 60 features, but .* is expecting 30"),
        (second.drop(columns=["w0", "w4"]), "yet now missing"),
        (second[KNOWN[::-1]], "must be in the same order"),
        (second.set_axis([*WORDS[:-1], "w1"], axis=1), "same name"),
        (second - 1, "Negative"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(X)
        untouched.check()
    nameless = kind(4, random_state=0).partial_fit(first.to_numpy())
    with pytest.raises(ValueError, match="from the first batch on"):
        nameless.partial_fit(second)
    assert model.partial_fit(first).components_.shape == (4, 30)
