"""Kernels of LDA against the equations written out, a word and a topic at a time."""

from functools import partial

import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp

from skvrem.topics._model_arrays import pad, padded_zeros
from skvrem.topics.lda import _kernels
from skvrem.utils._simd import WIDTH
from tests.documents import batch_of_documents, dense_counts

THOROUGH = partial(pytest.param, marks=pytest.mark.thorough)
DTYPES = [np.float64, np.float32]
RTOL = {np.float64: 1e-10, np.float32: 5e-5}
V = 20
GRID = np.linspace(0.1, 1.0, 10)


def make(dtype=np.float64, k=3, weighted=False):
    """Return a batch of documents, λ of all words, and α."""
    rng = np.random.default_rng(0)
    topics = rng.gamma(0.7, 5.0, size=(V, k)) + 0.02
    return batch_of_documents(dtype, weighted), topics, rng.uniform(0.05, 1.0, k)


def expected_logs(topics):
    """E log β, the whole of it."""
    return digamma(topics) - digamma(topics.sum(axis=0))


def dirichlet_divergence(a, b):
    """KL(Dirichlet(a) | Dirichlet(b))."""
    norm = gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
    return norm + (a - b) @ (digamma(a) - digamma(a.sum()))


def rounds(x, logs, prior, b, n_steps, tol, gamma):
    """Coordinate ascent on one document; return γ before and after the last round.

    `q` is q(z), (n_words, K), and `log_s` the log of its normalizer, full E log θ in.
    """
    seen = np.flatnonzero(x)
    for _ in range(n_steps):
        e_theta = digamma(gamma) - digamma(gamma.sum())
        log_joint = b * (e_theta[None] + logs)
        log_s = logsumexp(log_joint, axis=1)
        q = np.exp(log_joint - log_s[:, None])
        old = gamma
        gamma = prior + b * sum((x[v] * q[v] for v in seen), np.zeros(len(prior)))
        if abs(gamma - old).sum() < tol * len(prior):
            break
    return old, gamma, q, log_s


def infer(batch, topics, prior, *, b=1.0, n_steps=1, tol=0.0, rows=None, dtype=float):
    """Call the kernel as the model does; return what it says and writes."""
    dtype = np.dtype(dtype).type
    logs = expected_logs(topics)[batch.rows.words]
    top = logs.max(axis=1)
    relative = pad(np.exp(b * (logs - top[:, None])), dtype)
    relative[:, topics.shape[1] :] = 0.0
    gamma = padded_zeros(batch.n_units, topics.shape[1], dtype)
    at = padded_zeros(*gamma.shape, dtype)
    w = np.zeros(len(batch.rows.counts), dtype)
    bound = _kernels.infer_documents(
        (*batch.rows[:3], batch.weight.astype(dtype)),
        *(rows or (0, batch.n_units)),
        relative,
        top.astype(dtype),
        pad(prior[None], dtype)[0],
        dtype(b),
        n_steps,
        dtype(tol),
        None,
        gamma,
        at,
        w,
    )
    return bound, gamma, at, w, relative


def oracle(batch, topics, prior, b=1.0, n_steps=1, tol=0.0):
    """Return the bound, γ, and Σ_d c_dv q(z_dv), by the formulas."""
    X, logs = dense_counts(batch), expected_logs(topics)
    weight = batch.weight if batch.weight.size else np.ones(batch.n_units)
    total, gammas, counts = 0.0, [], np.zeros(topics.shape)
    for x, u in zip(X, weight, strict=True):
        start = prior + x.sum() / len(prior)
        old, gamma, q, log_s = rounds(x, logs, prior, b, n_steps, tol, start)
        seen = x > 0
        total += u * (x[seen] @ log_s[seen] - dirichlet_divergence(old, prior))
        gammas.append(gamma)
        counts += u * x[:, None] * q
    return total, np.array(gammas), counts


def assert_close(found, expected, dtype, factor=1.0):
    tol = factor * RTOL[np.dtype(dtype).type]
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)


def check(problem, dtype, **options):
    batch, _, prior = problem
    k = len(prior)
    bound, gamma, at, w, rows = infer(*problem, dtype=dtype, **options)
    expected = oracle(*problem, **options)
    assert_close(bound, expected[0], dtype)
    assert_close(gamma[:, :k], expected[1], dtype, 5)
    assert not gamma[:, k:].any()
    assert not at[:, k:].any()
    # w, t and the rows are what the expected counts are made of.
    counts = np.zeros((V, k))
    for i in range(batch.n_units):
        for j in range(batch.rows.indptr[i], batch.rows.indptr[i + 1]):
            u = batch.rows.index[j]
            counts[batch.rows.words[u]] += w[j] * at[i, :k] * rows[u, :k]
    assert_close(counts, expected[2], dtype, 10)


# Documents


@pytest.mark.parametrize("k", [1, 2, 3, 15, 16, 17, 40])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_round(dtype, weighted, k):
    check(make(dtype, k, weighted), dtype)


@pytest.mark.parametrize("n_steps", [2, 9])
@pytest.mark.parametrize("b", [0.3, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounds_and_temperatures(dtype, weighted, b, n_steps):
    check(make(dtype, weighted=weighted), dtype, b=b, n_steps=n_steps)


@pytest.mark.parametrize("tol", [1e-3, 0.05, 10.0])
def test_rounds_end_at_a_small_one(tol):
    problem = make()
    batch, topics, prior = problem
    found = infer(*problem, n_steps=500, tol=tol)
    if tol == 10.0:
        one = infer(*problem)
        assert all(np.array_equal(a, b) for a, b in zip(found, one, strict=True))
        return
    bound, gamma, *_ = found
    logs, k = expected_logs(topics), len(prior)
    for x, shares in zip(dense_counts(batch), gamma[:, :k], strict=True):
        _, after, *_ = rounds(x, logs, prior, 1.0, 1, 0.0, shares)
        assert abs(after - shares).sum() < tol * k
    best = oracle(*problem, n_steps=500)[0]
    assert best - 20 * tol < bound <= best + 1e-9


def test_tiny_parameters_do_not_underflow():
    """ψ(0.001) is -1000: its exponential is no float32, nor a float64 squared."""
    batch, topics, prior = make(np.float32)
    topics[:, 1:] = 1e-3
    topics[5] = 1e-3
    check((batch, topics, 1e-3 * prior), np.float32, n_steps=5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranges_add_up(dtype):
    problem = make(dtype)
    whole = infer(*problem, n_steps=3, dtype=dtype)
    parts = [
        infer(*problem, n_steps=3, rows=rows, dtype=dtype)
        for rows in ((0, 3), (3, 4), (4, 10), (5, 5))
    ]
    assert sum(part[0] for part in parts) == pytest.approx(whole[0], rel=1e-12)
    for i in (1, 2, 3):
        assert np.array_equal(sum(part[i] for part in parts), whole[i])


def test_a_round_never_lowers_the_bound():
    problem = make(weighted=True)
    for b in (0.4, 1.0):
        bounds = [infer(*problem, b=b, n_steps=n)[0] for n in range(1, 40)]
        assert (np.diff(bounds) > -1e-10).all()
        assert bounds[-1] > bounds[0] + 0.1


# Documents with temperatures of their own


def log_partition(topics):
    """S_k(b) = Σ_v exp(b E log β_kv) for the grid."""
    logs = expected_logs(topics)
    return np.array([np.exp(b * logs).sum(axis=0) for b in GRID])


def infer_tempered(batch, topics, prior, *, n_steps=1, tol=0.0, dtype=float):
    dtype = np.dtype(dtype).type
    k = len(prior)
    logs = expected_logs(topics)[batch.rows.words]
    top = logs.max(axis=1)
    relative = padded_zeros(*logs.shape, dtype)
    relative[:] = -np.inf
    relative[:, :k] = logs - top[:, None]
    gamma = padded_zeros(batch.n_units, k, dtype)
    at = padded_zeros(*gamma.shape, dtype)
    w = np.zeros(len(batch.rows.counts), dtype)
    inverse = np.zeros(batch.n_units, dtype)
    bound = _kernels.infer_documents(
        (*batch.rows[:3], batch.weight.astype(dtype)),
        0,
        batch.n_units,
        relative,
        top.astype(dtype),
        pad(prior[None], dtype)[0],
        dtype(1.0),
        n_steps,
        dtype(tol),
        (GRID, pad(log_partition(topics), np.float64), inverse),
        gamma,
        at,
        w,
    )
    return bound, gamma, at, w, inverse, relative


def tempered_oracle(batch, topics, prior, n_steps, tol):
    """Eqs. 10 and 11 of Mandt et al. (2016), a document and a temperature at a time."""
    X, logs = dense_counts(batch), expected_logs(topics)
    weight = batch.weight if batch.weight.size else np.ones(batch.n_units)
    S = log_partition(topics)
    total, gammas, inverse = 0.0, [], []
    counts = np.zeros(topics.shape)
    for x, u in zip(X, weight, strict=True):
        gamma, b = prior + x.sum() / len(prior), GRID[len(GRID) // 2]
        for turn in range(_kernels.TURNS):
            old, gamma, q, log_s = rounds(x, logs, prior, b, n_steps, tol, gamma)
            if turn == _kernels.TURNS - 1 or not x.any():
                break
            e_theta = digamma(old) - digamma(old.sum())
            energy = np.sum(x[:, None] * q * (e_theta + logs))
            log_r = np.array(
                [
                    c * energy - x.sum() * np.log(np.exp(c * e_theta) @ S[m])
                    for m, c in enumerate(GRID)
                ]
            )
            r = np.exp(log_r - log_r.max())
            b = r @ GRID / r.sum()
        seen = x > 0
        total += u * (x[seen] @ log_s[seen] - dirichlet_divergence(old, prior))
        gammas.append(gamma)
        inverse.append(b)
        counts += u * b * x[:, None] * q
    return total, np.array(gammas), np.array(inverse), counts


@pytest.mark.parametrize("k", [1, THOROUGH(3), THOROUGH(16), 17])
@pytest.mark.parametrize("weighted", [THOROUGH(False), True])
@pytest.mark.parametrize(("n_steps", "tol"), [(1, 0.0), (60, 0.0), (5000, 1e-12)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_documents_with_temperatures(dtype, n_steps, tol, weighted, k):
    if tol and dtype == np.float32:
        pytest.skip("rounding keeps float32 from coming to rest")
    batch, topics, prior = make(dtype, k, weighted)
    found = infer_tempered(batch, topics, prior, n_steps=n_steps, tol=tol, dtype=dtype)
    bound, gamma, at, w, inverse, relative = found
    expected = tempered_oracle(batch, topics, prior, n_steps, tol)
    assert_close(bound, expected[0], dtype)
    assert_close(gamma[:, :k], expected[1], dtype, 10)
    assert_close(inverse, expected[2], dtype, 5)
    assert np.ptp(inverse) > 0.05
    sums = padded_zeros(len(batch.rows.words), k, dtype)
    arrays = w, batch.rows.index, batch.rows.indptr, at, inverse, relative
    for part in {(0, WIDTH), (WIDTH, sums.shape[1])} - {(WIDTH, WIDTH)}:
        _kernels.sum_tempered_words(*arrays, *part, sums)
    assert_close(sums[:, :k], expected[3][batch.rows.words], dtype, 10)


# Topics


@pytest.mark.parametrize("k", [3, 17])
@pytest.mark.parametrize("dtype", DTYPES)
def test_expect_log_and_temper(dtype, k):
    topics = make(k=k)[1]
    padded = pad(topics, dtype)
    psi = pad(digamma(topics.sum(axis=0))[None], dtype)[0]
    out, top = padded_zeros(V, k, dtype), np.zeros(V, dtype)
    for part in ((0, 7), (7, V)):
        _kernels.expect_log(padded, psi, *part, out, top)
    expected = expected_logs(topics)
    assert_close(top, expected.max(axis=1), dtype)
    assert_close(out[:, :k], expected - expected.max(axis=1, keepdims=True), dtype)
    assert np.isneginf(out[:, k:]).all()
    _kernels.temper(dtype(0.3), 0, V, out)
    power = np.exp(0.3 * (expected - expected.max(axis=1, keepdims=True)))
    assert_close(out[:, :k], power, dtype)
    assert not out[:, k:].any()


@pytest.mark.parametrize("per_word", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_divergences(dtype, per_word, rng):
    topics = make(k=5)[1]
    prior = rng.uniform(0.1, 1.0, (V if per_word else 1, 5))
    whole = np.broadcast_to(prior, topics.shape)
    expected = sum(
        dirichlet_divergence(a, b) for a, b in zip(topics.T, whole.T, strict=True)
    )
    psi = pad(digamma(topics.sum(axis=0))[None], dtype)[0]
    arguments = pad(topics, dtype), pad(prior, dtype), psi
    found = sum(
        _kernels.divergence_of_topics(*arguments, *part) for part in ((0, 7), (7, V))
    )
    found += np.sum(gammaln(topics.sum(axis=0)) - gammaln(whole.sum(axis=0)))
    assert_close(found, expected, dtype)
    gamma, alpha = pad(topics[:1], dtype)[0], pad(whole[:1], dtype)[0]
    normaliser = _kernels.log_beta(alpha, alpha)
    found = _kernels.divergence_of_shares(gamma, alpha, normaliser)
    assert_close(found, dirichlet_divergence(topics[0], whole[0]), dtype)
    assert _kernels.divergence_of_shares(alpha, alpha, normaliser) == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_partition_function(dtype):
    topics = make()[1]
    logs = expected_logs(topics)
    top = logs.max(axis=1)
    relative = padded_zeros(V, 3, dtype)
    relative[:] = -np.inf
    relative[:, :3] = logs - top[:, None]
    out = np.zeros((len(GRID), relative.shape[1]))
    for part in ((0, 11), (11, V)):
        _kernels.partition_function(relative, top.astype(dtype), GRID, *part, out)
    assert_close(out[:, :3], log_partition(topics), dtype)
    assert not out[:, 3:].any()
