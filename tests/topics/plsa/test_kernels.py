"""Kernels of pLSA against sums over tokens and topics written out in NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from skvrem.topics._documents import as_documents
from skvrem.topics._kernels import sum_over_words
from skvrem.topics._model_arrays import pad, padded_zeros
from skvrem.topics.plsa import _kernels
from tests.documents import dense_counts

DTYPES = [np.float64, np.float32]
RTOL = {np.float64: 1e-11, np.float32: 2e-5}
RNG = np.random.default_rng(0)
WHOLE_VOCABULARY = np.empty(0, np.int32)


def make(dtype=np.float64, k=3, weighted=False, documents=None, seed=0):
    """Return a batch of documents 9 to 0 or of those given, φ, θ and α.

    Document 4 is empty; the others have 1 to 12 different words, so that every
    remainder of a division by four occurs. Words 0 and 19 occur nowhere.
    """
    rng = np.random.default_rng(seed)
    X = np.zeros((10, 20))
    for d, n_words in enumerate([5, 1, 2, 3, 0, 4, 7, 8, 9, 12]):
        words = 1 + rng.choice(18, n_words, replace=False)
        X[d, words] = rng.integers(1, 9, n_words) - 0.25
    weight = rng.uniform(0.5, 2.0, 10) if weighted else None
    data = as_documents(sp.csr_array(X), weight, dtype)
    ids = np.arange(10)[::-1] if documents is None else np.array(documents)
    batch = data.compact(ids.astype(np.int32), 0)
    phi = rng.dirichlet(np.full(20, 0.5), size=k).T
    theta = rng.dirichlet(np.full(k, 0.7), size=10)
    return batch, phi, theta, rng.uniform(0.1, 1.0, k)


def infer_topics(
    batch, phi, theta, prior, *, b=1.0, n_steps=1, tol=0.0, rows=None, dtype=np.float64
):
    """Call the kernel as the model does; return what it says and writes."""
    start, stop = rows or (0, batch.n_units)
    power = pad(phi[batch.rows.words] ** b, dtype)
    theta = pad(theta, dtype)
    at = padded_zeros(batch.n_units, theta.shape[1], dtype)
    after = padded_zeros(*theta.shape, dtype)
    w = np.zeros(len(batch.rows.counts), dtype)
    objective = _kernels.infer_topics(
        (*batch.rows[:3], batch.weight.astype(dtype)),
        start,
        stop,
        batch.ids,
        power,
        theta,
        after,
        pad(prior[None], dtype)[0],
        dtype(b),
        n_steps,
        dtype(tol),
        at,
        w,
    )
    return objective, at, after, w


def log_prior(prior, theta):
    """Σ_k α_k log θ_k, up to a constant; 0 log 0 is 0."""
    return prior[prior > 0] @ np.log(theta[prior > 0])


def oracle(batch, phi, theta, prior, b=1.0, n_steps=1, tol=0.0):
    """EM steps of each document, one token of it and one topic at a time.

    Returns the objective, θ^b before the last step, θ after it, w and the sums of γ
    over the documents, (n_features, K).
    """
    X, k = dense_counts(batch), len(prior)
    weight = batch.weight if batch.weight.size else np.ones(batch.n_units)
    before = np.zeros((batch.n_units, k))
    after = np.zeros((batch.n_units, k))
    W, gamma_v = np.zeros(X.shape), np.zeros((X.shape[1], k))
    total = 0.0
    for i, d in enumerate(batch.ids):
        t = theta[d]
        if not X[i].any():
            before[i] = after[i] = mode = prior / prior.sum() if prior.sum() else t
            total += weight[i] * log_prior(prior, mode)
            continue
        for _ in range(n_steps):
            gamma = np.zeros((X.shape[1], k))
            s = np.zeros(X.shape[1])
            for v in np.flatnonzero(X[i]):
                joint = [t[c] ** b * phi[v, c] ** b for c in range(k)]
                s[v] = sum(joint)
                gamma[v] = X[i, v] * np.array(joint) / s[v]
            new = (gamma.sum(axis=0) + prior) / (X[i].sum() + prior.sum())
            before[i], after[i], last = t**b, new, t
            t = new
            if np.sum(abs(new - last)) < tol:
                break
        seen = X[i] > 0
        W[i, seen] = weight[i] * X[i, seen] / s[seen]
        gamma_v += weight[i] * gamma
        log_likelihood = X[i, seen] @ np.log(s[seen])
        total += weight[i] * (log_likelihood / b + log_prior(prior, last))
    w = np.concatenate(
        [
            W[i, batch.rows.words[batch.rows.index[a:e]]]
            for i, (a, e) in enumerate(
                zip(batch.rows.indptr[:-1], batch.rows.indptr[1:], strict=True)
            )
        ]
    )
    return total, before, after, w, gamma_v


def assert_close(found, expected, dtype, factor=1.0):
    np.testing.assert_allclose(
        found, expected, rtol=factor * RTOL[dtype], atol=factor * RTOL[dtype] * 1e-2
    )


def check_infer(batch, phi, theta, prior, dtype, **options):
    found = infer_topics(batch, phi, theta, prior, dtype=dtype, **options)
    expected = oracle(batch, phi, theta, prior, **options)
    k = len(prior)
    objective, at, after, w = found
    assert_close(objective, expected[0], dtype)
    assert_close(at[:, :k], expected[1], dtype)
    assert_close(after[batch.ids, :k], expected[2], dtype)
    assert_close(w, expected[3], dtype, 10)
    assert not at[:, k:].any()
    assert not after[:, k:].any()
    others = np.setdiff1d(np.arange(len(theta)), batch.ids)
    assert not after[others].any()


# Steps on the shares of documents


@pytest.mark.parametrize("k", [1, 2, 3, 15, 16, 17, 40])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_step(dtype, weighted, k):
    check_infer(*make(dtype, k, weighted), dtype)


@pytest.mark.parametrize("n_steps", [2, 7])
@pytest.mark.parametrize("b", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_and_temperatures(dtype, weighted, b, n_steps):
    check_infer(*make(dtype, weighted=weighted), dtype, b=b, n_steps=n_steps)


@pytest.mark.parametrize("tol", [1e-3, 0.05, 10.0])
def test_steps_end_at_a_small_one(tol):
    problem = make()
    check_infer(*problem, np.float64, n_steps=200, tol=tol)
    if tol == 10.0:
        found = infer_topics(*problem, n_steps=200, tol=tol)
        one = infer_topics(*problem)
        assert all(np.array_equal(a, b) for a, b in zip(found, one, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_documents_of_a_batch(dtype):
    problem = make(dtype, weighted=True, documents=[2, 3, 8])
    check_infer(*problem, dtype, n_steps=3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranges_add_up(dtype):
    batch, phi, theta, prior = make(dtype)
    whole = infer_topics(batch, phi, theta, prior, dtype=dtype)
    parts = [
        infer_topics(batch, phi, theta, prior, rows=rows, dtype=dtype)
        for rows in ((0, 3), (3, 4), (4, 10), (5, 5))
    ]
    assert sum(part[0] for part in parts) == pytest.approx(whole[0], rel=1e-12)
    for i in (1, 2, 3):
        assert np.array_equal(sum(part[i] for part in parts), whole[i])


@pytest.mark.parametrize("b", [0.5, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_prior_and_topics_that_a_document_lacks(dtype, b):
    batch, phi, theta, prior = make(dtype)
    theta[:, 1] = 0.0
    theta /= theta.sum(axis=1, keepdims=True)
    theta[:, 1] = 0.0
    check_infer(batch, phi, theta, 0.0 * prior, dtype, b=b, n_steps=3)
    after = infer_topics(batch, phi, theta, 0.0 * prior, b=b, dtype=dtype)[2]
    assert not after[:, 1].any()  # what is zero stays zero
    empty = infer_topics(batch, phi, theta, 0.0 * prior, dtype=dtype)[2][4, :3]
    assert_close(empty, theta[4], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_documents_get_the_prior(dtype):
    batch, phi, theta, prior = make(dtype, documents=[4])
    objective, at, after, w = infer_topics(batch, phi, theta, prior, dtype=dtype)
    mode = prior / prior.sum()
    assert_close(objective, log_prior(prior, mode), dtype)
    assert w.size == 0
    assert_close(after[4, :3], mode, dtype)
    assert_close(at[0, :3], mode, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_words_that_no_topic_expects_say_nothing(dtype):
    batch, phi, theta, prior = make(dtype)
    lost = batch.rows.words[0]
    phi[lost] = 0.0
    arrays = infer_topics(batch, phi, theta, prior, n_steps=3, dtype=dtype)
    assert all(np.isfinite(part).all() for part in arrays)
    assert arrays[0] < infer_topics(*make(dtype), n_steps=3, dtype=dtype)[0] - 10
    assert_close(arrays[2][:, :3].sum(axis=1), 1.0, dtype)
    # As if the documents did not have it.
    X = dense_counts(batch)
    X[:, lost] = 0.0
    (others,) = as_documents(sp.csr_array(X), dtype=dtype).blocks(1, RNG).batches
    without = infer_topics(others, phi, theta[batch.ids], prior, n_steps=3, dtype=dtype)
    assert_close(arrays[2][batch.ids], without[2], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_known_and_no_prior_leaves_the_shares(dtype):
    batch, phi, theta, prior = make(dtype, documents=[1])
    after = infer_topics(batch, 0.0 * phi, theta, 0.0 * prior, n_steps=3, dtype=dtype)
    assert_close(after[2][1, :3], theta[1], dtype)


# Sums over documents


@pytest.mark.parametrize("b", [0.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_words(dtype, weighted, b):
    batch, phi, theta, prior = make(dtype, 20, weighted)
    _, at, _, w = infer_topics(batch, phi, theta, prior, b=b, dtype=dtype)
    n_words = len(batch.rows.words)
    out = padded_zeros(n_words, 20, dtype) + 7.0  # written, not added to
    rows = pad(phi[batch.rows.words] ** b, dtype)
    for part in ((0, 2), (2, n_words)):
        sums = out[slice(*part)]
        sum_over_words(w, batch.rows.index, batch.rows.indptr, at, None, *part, sums)
    out *= rows
    gamma = oracle(batch, phi, theta, prior, b=b)[4]
    assert_close(out[:, :20], gamma[batch.rows.words], dtype, 10)
    assert not out[:, 20:].any()


# M step


def make_statistics(dtype, k=3, per_topic=False):
    """Statistics of 20 words, of which some are negative, and β."""
    rng = np.random.default_rng(1)
    base = rng.uniform(0.0, 1.0, (20, k))
    deviation = rng.normal(0.0, 1.0, (20, k))
    prior = rng.uniform(0.01, 0.1, (20 if per_topic else 1, k))
    return base, deviation, 0.7, prior


@pytest.mark.parametrize("b", [0.5, 2.0])
@pytest.mark.parametrize("k", [3, 17])
@pytest.mark.parametrize("dtype", DTYPES)
def test_temper(dtype, k, b):
    rows = np.random.default_rng(0).dirichlet(np.ones(k), size=9)
    rows[4, 1] = 0.0
    found = pad(rows, dtype)
    for part in ((0, 2), (2, 9)):
        _kernels.temper(dtype(b), *part, found)
    assert_close(found[:, :k], rows**b, dtype, 10)
    assert found[4, 1] == 0.0
    assert not found[:, k:].any()


@pytest.mark.parametrize("per_topic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_log_prior(dtype, per_topic):
    *_, prior = make_statistics(dtype, per_topic=per_topic)
    phi = np.random.default_rng(0).dirichlet(np.ones(20), size=3).T
    found = _kernels.log_prior(pad(phi, dtype), pad(prior, dtype))
    expected = sum(
        prior[v if per_topic else 0, c] * np.log(phi[v, c])
        for v in range(20)
        for c in range(3)
    )
    assert_close(found, expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_prior_of_words_without_probability(dtype):
    phi, prior = np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((1, 2))
    assert _kernels.log_prior(pad(phi, dtype), pad(prior, dtype)) == 0.0
    found = _kernels.log_prior(pad(phi, dtype), pad(prior + 0.5, dtype))
    assert -np.inf < found < -50.0
