"""Forward, backward and Viterbi against enumeration and recursions in log space."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

from skvrem.data._batch import RowBatch
from skvrem.hmm import Gaussian
from skvrem.hmm.forward_backward import _kernels, _model_layout
from skvrem.hmm.forward_backward._kernels import LANES, SMALLEST, STEPS
from skvrem.hmm.forward_backward._model_blocks import BlockChain, RowBlock
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Chain, Impossible, Passes
from skvrem.hmm.forward_backward._model_viterbi import (
    log_densities,
    most_probable_paths,
)
from skvrem.hmm.forward_backward._source import SequenceRows
from skvrem.utils._parallel import threads
from tests.hmm.oracle import enumerate_paths, enumerate_sequences, recursions


def make(lengths, n=3, d=2, seed=0, sticky=0.9, mask=None):
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    X = rng.normal(size=(bounds[-1], d))
    transitions = rng.dirichlet(np.ones(n), size=n) * (1.0 - sticky)
    transitions += sticky * np.eye(n)
    if mask is not None:
        transitions = transitions * mask
        transitions /= transitions.sum(axis=1, keepdims=True)
    start = rng.dirichlet(np.ones(n))
    emission = Gaussian().open(X, n)
    mean, variance = rng.normal(size=(n, d)), rng.uniform(0.5, 2.0, (n, d))
    features = emission.features(False)
    theta = features.collapse(emission.theta(np.hstack([mean, variance])))
    columns = partial(emission.columns, missing=False)
    rows = SequenceRows(X, bounds, columns, features.first, features.second)
    joint = norm.logpdf(X[:, None], mean, np.sqrt(variance)).sum(axis=2)
    return rows, Chain(theta, start, transitions), joint


def expected(rows, chain, joint, weight=None, recurse=recursions):
    """Sums over sequences, one at a time."""
    n = len(chain.start)
    weight = np.ones(len(rows.bounds) - 1) if weight is None else weight
    shares, filtered, gamma = [], [], []
    start, pairs, total = np.zeros(n), np.zeros((n, n)), 0.0
    for w, a, b in zip(weight, rows.bounds[:-1], rows.bounds[1:], strict=True):
        share, f, g, p = recurse(joint[a:b], chain.start, chain.transitions)
        shares.append(share)
        filtered.append(f)
        gamma.append(w * g)
        start += w * g[0]
        pairs += w * p
        total += w * share.sum()
    return total, start, pairs, *map(np.concatenate, (shares, filtered, gamma))


def run(layout, chain):
    passes = Passes(layout, chain, by_row=True)
    total = passes.forward()
    start, pairs, features = passes.backward()
    by_row = passes.shares_by_row(), passes.filtered(), passes.smoothed()
    return (total, start, pairs, *by_row), features


def compare(rows, chain, joint, layout, weight=None):
    found, features = run(layout, chain)
    wanted = expected(rows, chain, joint, weight)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    products = wanted[-1].T @ rows.features(slice(None))
    np.testing.assert_allclose(features, products, rtol=1e-9, atol=1e-8)


def whole(rows, weight=None):
    return Layout(rows, np.arange(len(rows.bounds) - 1), weight)


@pytest.mark.parametrize("beta", [1.0, 0.4])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_enumeration(n, beta):
    rows, chain, joint = make([1, 6, 2, 5], n=n)
    hot = Chain(chain.theta * beta, chain.start**beta, chain.transitions**beta)
    found, _ = run(whole(rows), hot)
    total, *others = enumerate_sequences(rows, chain, joint, beta)
    assert found[0] / beta == pytest.approx(total, rel=1e-12)
    for own, other in zip((found[1], found[2], found[5]), others, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-12)


def test_oracles_agree():
    _, chain, joint = make([6], n=3)
    total, gamma, pairs, *_ = enumerate_paths(joint, chain.start, chain.transitions)
    shares, _, smoothed, xi = recursions(joint, chain.start, chain.transitions)
    assert shares.sum() == pytest.approx(total)
    np.testing.assert_allclose(smoothed, gamma)
    np.testing.assert_allclose(xi, pairs)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_sizes(n, d):
    rows, chain, joint = make([40, 7, 300], n=n, d=d)
    compare(rows, chain, joint, whole(rows))


LENGTHS = {
    "one row": [1],
    "one tile": [8],
    "a row more": [9],
    "lanes cut a sequence": [3000],
    "rows short of lanes": [1025],
    "rows": [1] * 40,
    "many of a length": [20] * 50,
    "long and short": [1500, 1, 2, 3, 700, 1, 1, 900],
    "short, then long": [5] * 30 + [2500],
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_lengths(lengths):
    rows, chain, joint = make(lengths)
    compare(rows, chain, joint, whole(rows))


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_weights(lengths):
    rows, chain, joint = make(lengths)
    weight = np.random.default_rng(1).uniform(0.0, 3.0, len(lengths))
    weight[0] = 0.0 if len(lengths) > 1 else 1.7
    compare(rows, chain, joint, whole(rows, weight), weight)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_whole_sequences_in_lanes(lengths):
    rows, chain, joint = make(lengths)
    layout = whole(rows)
    assert layout.lay_out_whole() or layout.whole
    assert not layout.lay_out_whole()
    compare(rows, chain, joint, layout)


def in_a_row(messages):
    """Lanes of all groups (n_states, n_groups * LANES), from (n_groups, ...)."""
    laid = messages.reshape(len(messages), -1, LANES)
    return np.concatenate(list(laid), axis=1)


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize("carried", [None, np.array([0.25, 0.75])])
def test_messages_are_those_at_the_ends_of_the_lanes_before(n_groups, carried, rng):
    ends, left = rng.random((2, n_groups, 2 * LANES))
    continues = rng.random((n_groups, LANES)) < 0.7
    continues[0, 0] = False
    wanted = np.roll(in_a_row(ends), 1, axis=1) * continues.ravel()
    counts = continues.copy()
    if carried is not None:
        wanted[:, 0], counts[0, 0] = carried, True
    change = np.abs(wanted - in_a_row(left)) / np.maximum(wanted, SMALLEST)
    change = (change * counts.ravel()).max(axis=0).reshape(n_groups, LANES)
    changes = np.empty(n_groups)
    _kernels.hand_on(ends, continues, carried, left, changes)
    np.testing.assert_array_equal(in_a_row(left), wanted)
    np.testing.assert_array_equal(changes, change.max(axis=1))


@pytest.mark.parametrize("n_groups", [1, 3])
def test_errors_are_what_the_heads_of_the_next_lanes_differ_by(n_groups, rng):
    heads, known = rng.random((2, n_groups, 3 * LANES))
    goes_on = rng.random((n_groups, LANES)) < 0.7
    goes_on[-1, -1] = False
    before, ahead = in_a_row(known), np.roll(in_a_row(heads), -1, axis=1)
    wanted = np.where(goes_on.ravel(), ahead - before, 0.0)
    errors, largest = np.empty_like(known), np.empty(n_groups)
    _kernels.hand_back(heads, goes_on, known, errors, largest)
    np.testing.assert_array_equal(in_a_row(errors), wanted)
    now = np.where(goes_on.ravel(), ahead, before)
    np.testing.assert_array_equal(in_a_row(known), now)
    np.testing.assert_array_equal(largest, np.abs(errors).max(axis=1))


def test_shares_of_lanes_are_sums_of_tiles(rng):
    shares = rng.normal(size=(5, LANES))
    step = np.sort(rng.integers(5 * STEPS, size=12))
    lane, before, total = rng.integers(LANES, size=12), rng.normal(size=12), np.ones(16)
    wanted = [
        known + shares[: at // STEPS, where].sum()
        for known, at, where in zip(before, step, lane, strict=True)
    ]
    _kernels.lane_shares(shares.ravel(), step, lane, before, total)
    np.testing.assert_allclose(before, wanted, rtol=1e-13)
    np.testing.assert_allclose(total, shares.sum(axis=0), rtol=1e-13)


def test_several_groups(monkeypatch):
    monkeypatch.setattr(_model_layout, "GROUP_ROWS", 1200)
    rows, chain, joint = make([3000, 40, 2000])
    layout = whole(rows)
    assert len(layout.groups) > 2 and not layout.whole
    compare(rows, chain, joint, layout)
    ends = []
    for n_jobs in (1, 3):
        with threads(n_jobs):
            found, features = run(whole(rows), chain)
        ends.append([*map(np.asarray, found), features])
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_chain_that_never_forgets():
    """Equal densities and no transitions: messages run through every lane."""
    rows, chain, joint = make([2000], n=2, sticky=1.0)
    chain = chain._replace(theta=np.repeat(chain.theta[:1], 2, axis=0))
    joint = np.repeat(joint[:, :1], 2, axis=1)
    layout = whole(rows)
    assert not layout.whole
    compare(rows, chain, joint, layout)
    assert layout.whole


def test_shares_too_small_for_a_product():
    """The product of a tile's densities, of which one logarithm is taken, is 0."""
    rows, chain, joint = make([40, 300, 1, 90], n=2)
    states = np.arange(len(joint)) // 3 % 2
    far = 400.0 * (np.arange(2) != states[:, None])
    columns = np.column_stack([np.ones(len(far)), joint - far])
    none = np.full(3, -1)
    rows = SequenceRows(
        columns, rows.bounds, lambda X, parameters: X, np.arange(3), none
    )
    unlikely = np.array([[1.0, 1e-160], [1e-160, 1.0]])
    chain = Chain(np.eye(3)[1:], chain.start, unlikely)
    log_c = expected(rows, chain, joint - far)[3] - (joint - far).max(axis=1)
    assert log_c[:8].sum() < np.log(np.finfo(float).tiny)
    compare(rows, chain, joint - far, whole(rows))


def test_left_right():
    mask = np.triu(np.ones((4, 4))) * np.tri(4, k=1)
    rows, chain, joint = make([1500, 1200], n=4, mask=mask, sticky=0.99)
    compare(rows, chain, joint, whole(rows))


def test_impossible_row():
    """Two states without transitions; the second emits nothing where x is not 0."""
    X = np.zeros((1200, 1))
    X[820] = 1.0
    rows = SequenceRows(
        X, np.array([0, 700, 1200]), lambda X, parameters: X, *[[-1, 0]] * 2
    )
    theta = np.array([[0.0, 0.0], [0.0, -1e100]])
    chain = Chain(theta, np.array([0.5, 0.5]), np.eye(2))
    assert Passes(whole(rows), chain).forward() == pytest.approx(np.log(0.5))
    chain = chain._replace(start=np.array([0.0, 1.0]))
    with pytest.raises(Impossible) as error:
        Passes(whole(rows), chain).forward()
    assert error.value.row == 820


@pytest.mark.parametrize("lengths", [[3000], [700, 1, 2299], [7] * 300])
@pytest.mark.parametrize("by_row", [False, True])
def test_the_first_impossible_row_is_named(lengths, by_row):
    """Lanes of a layout come to them side by side; the lowest is the first in X."""
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    X = np.zeros((bounds[-1], 1))
    X[[1037, 1038, 1500, 2000, 2096]] = 1.0
    rows = SequenceRows(X, bounds, lambda X, parameters: X, *[[-1, 0]] * 2)
    # Emitted by the first state only, which none leads to; or no state emits them.
    one, none = np.array([[0.0, 0.0], [0.0, -1e100]]), np.array([[0.0, -1e100]] * 2)
    even = np.array([0.5, 0.5])
    for theta, start, transitions in (
        (none, even, np.full((2, 2), 0.5)),
        (none, even, np.eye(2)),
        (one, np.array([0.0, 1.0]), np.eye(2)),
        (one, np.array([0.0, 1.0]), np.array([[0.5, 0.5], [0.0, 1.0]])),
    ):
        chain = Chain(theta, start, transitions)
        with pytest.raises(Impossible) as error:
            Passes(whole(rows), chain, by_row=by_row).forward()
        assert error.value.row == 1037
        if theta is none:  # blocks need floating point numbers
            with pytest.raises(Impossible) as error:
                batch = RowBlock(None, 0, full=True)
                BlockChain(whole(rows), 3).passes(batch, chain)
            assert error.value.row == 1037


@pytest.mark.parametrize("n", [1, 2, 3])
def test_viterbi(n):
    rows, chain, joint = make([1, 6, 2, 5], n=n)
    with np.errstate(divide="ignore"):
        logs = np.log(chain.start), np.log(chain.transitions)
    logs = logs[0], logs[1][None], np.empty(0, np.int64)
    states, scores = most_probable_paths(rows, chain, *logs)
    for i, (a, b) in enumerate(zip(rows.bounds[:-1], rows.bounds[1:], strict=True)):
        *_, path, score = enumerate_paths(joint[a:b], chain.start, chain.transitions)
        np.testing.assert_array_equal(states[a:b], path)
        assert scores[i] == pytest.approx(score, rel=1e-12)


def test_log_densities():
    rows, chain, joint = make([9000])
    np.testing.assert_allclose(log_densities(rows, chain), joint, atol=1e-10)


def test_a_batch_of_some_sequences():
    lengths = [30, 5, 80, 1, 60, 200]
    rows, chain, joint = make(lengths)
    index = np.array([4, 1, 5, 0])
    batch = RowBatch(rows, index, 1, 4, np.empty(0))
    layout = rows.layout(batch)
    assert rows.layout(batch) is layout
    found, _ = run(layout, chain)
    ids = [1, 5, 0]
    parts = [
        recursions(joint[a:b], chain.start, chain.transitions)
        for a, b in zip(rows.bounds[ids], rows.bounds[np.array(ids) + 1], strict=True)
    ]
    assert found[0] == pytest.approx(sum(p[0].sum() for p in parts))
    np.testing.assert_allclose(found[2], sum(p[3] for p in parts), atol=1e-10)
    np.testing.assert_allclose(
        found[3], np.concatenate([p[0] for p in parts]), atol=1e-10
    )


@pytest.mark.parametrize("cut", [1, 40, 700, 1999])
def test_a_sequence_goes_on_from_a_carried_message(cut):
    rows, chain, joint = make([2000, 30])
    _, _, _, shares, filtered, _ = expected(rows, chain, joint)
    later = SequenceRows(
        rows.X[cut:],
        np.append(0, rows.bounds[1:] - cut),
        rows.columns,
        rows.first,
        rows.second,
    )
    layout = Layout(later, np.arange(2), opened=True)
    passes = Passes(layout, chain, by_row=True, carried=filtered[cut - 1])
    assert passes.forward() == pytest.approx(shares[cut:].sum(), rel=1e-10)
    start, xi, _ = passes.backward()
    assert start.sum() == pytest.approx(1.0)  # of the second sequence
    assert xi.sum() == pytest.approx(2000 - cut + 29)
    posterior = passes.smoothed()
    _, _, gamma, _ = recursions(joint[:2000], chain.start, chain.transitions)
    np.testing.assert_allclose(posterior[: 2000 - cut], gamma[cut:], atol=1e-9)
    np.testing.assert_allclose(passes.last(), filtered[-1], atol=1e-10)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_parts_are_the_whole(lengths):
    rows, chain, _ = make(lengths)
    layout = whole(rows, np.random.default_rng(1).uniform(0.5, 2.0, len(lengths)))
    expected, wanted = run(layout, chain)
    layout.cut(min(5, layout.n_tiles))
    found, features = run(layout, chain)
    for a, b in zip((*found, features), (*expected, wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def narrow(n, rare, lengths, seed=0, runs=15, jump=1500.0):
    """A chain whose states are narrow, on rows that no state is close to for long."""
    rows, chain, joint = make(lengths, n=n, d=1, seed=seed, sticky=0.0)
    rng = np.random.default_rng(seed)
    truth = np.repeat(rng.integers(n, size=len(joint) // runs + 1), runs)[: len(joint)]
    mean = np.linspace(0.0, 1.0, n)
    X = mean[truth] + rng.normal(scale=0.3, size=len(joint))
    variance = 1.0 / jump
    joint = norm.logpdf(X[:, None], mean, np.sqrt(variance))
    features = Gaussian().open(X[:, None], n).features(False)
    family = Gaussian().open(X[:, None], n)
    packed = np.column_stack([mean, np.full(n, variance)])
    theta = features.collapse(family.theta(packed))
    columns = partial(family.columns, missing=False)
    rows = SequenceRows(X[:, None], rows.bounds, columns, *features[:2])
    transitions = np.where(np.eye(n) > 0.0, 1.0, rare)
    return rows, chain._replace(theta=theta, transitions=transitions), joint


@pytest.mark.parametrize("rare", [1e-100, 1e-150, 1e-200, 1e-300, 0.0])
@pytest.mark.parametrize("lengths", [[900], [300, 1, 200, 40], [25] * 40])
@pytest.mark.parametrize("n", [2, 3])
def test_rare_transitions_and_narrow_states(n, lengths, rare):
    rows, chain, joint = narrow(n, rare, lengths)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(lengths))
    found, features = run(whole(rows, weight), chain)
    wanted = expected(rows, chain, joint, weight)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    products = wanted[-1].T @ rows.features(slice(None))
    np.testing.assert_allclose(features, products, rtol=1e-8, atol=1e-7)
    sums = Passes(whole(rows, weight), chain)
    total = sums.forward()
    for a, b in zip((total, *sums.backward()), (*found[:3], features), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-7)
