"""The passes that keep no rows, beside enumeration, recursions and the other passes."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from skvrem.hmm import VRHMM, Gaussian, Homogeneous
from skvrem.hmm.forward_backward import _model_layout, _model_sums
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Chain, Impossible, Passes
from skvrem.hmm.forward_backward._model_sums import SummedPasses
from skvrem.hmm.forward_backward._source import SequenceRows
from skvrem.utils._parallel import threads
from tests.hmm.oracle import enumerate_sequences
from tests.hmm.test_passes import LENGTHS, expected, make, narrow, whole


@pytest.fixture
def always(monkeypatch):
    """Let few rows go this way."""
    monkeypatch.setattr(_model_sums, "FEWEST_ROWS", 0)


@pytest.fixture
def many_lanes(monkeypatch):
    """Let few rows fill several groups."""
    monkeypatch.setattr(_model_layout, "GROUP_ROWS", 1200)


def run(layout, chain):
    sums = SummedPasses(layout, chain)
    found = sums.forward(), *sums.backward()
    assert sums.passes is None
    return found


def recursion(logs, start, transitions):
    """The scaled recursions, in long doubles: log-likelihood, gamma and xi."""
    n_rows, n = logs.shape
    start, transitions = np.longdouble(start), np.longdouble(transitions)
    top = logs.max(axis=1)
    b, alpha, m = np.exp(logs - top[:, None]), np.empty_like(logs), np.ones(n)
    c, gamma, xi = np.empty_like(top), np.empty_like(logs), np.zeros((n, n))
    for t in range(n_rows):
        alpha[t] = (alpha[t - 1] @ transitions if t else start) * b[t]
        c[t] = alpha[t].sum()
        alpha[t] /= c[t]
    for t in range(n_rows - 1, -1, -1):
        gamma[t] = alpha[t] * m
        rho = b[t] * m / c[t]
        if t:
            xi += alpha[t - 1][:, None] * transitions * rho
            m = np.where(alpha[t - 1] > 0.0, transitions @ rho, 0.0)
    return (np.log(c) + top).sum(), gamma, xi


def wanted(rows, chain, weight=None):
    """Sums over sequences, one at a time."""
    n = len(chain.start)
    total, start, pairs = 0.0, np.zeros(n), np.zeros((n, n))
    features = np.zeros(chain.theta.shape)
    weight = np.ones(len(rows.bounds) - 1) if weight is None else weight
    for w, a, b in zip(weight, rows.bounds[:-1], rows.bounds[1:], strict=True):
        F = np.longdouble(rows.features(slice(a, b)))
        logs = F @ np.longdouble(chain.theta).T
        value, gamma, xi = recursion(logs, chain.start, chain.transitions)
        total += w * value
        start = start + w * gamma[0]
        pairs = pairs + w * xi
        features = features + w * gamma.T @ F
    return total, start, pairs, features


def agree(found, expected, rtol=1e-12):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


def compare(rows, chain, layout, weight=None, rtol=1e-12):
    agree(run(layout, chain), wanted(rows, chain, weight), rtol)


def series(mean, sd, transitions, X, bounds=None):
    """Rows and chain of Gaussian states."""
    n = len(mean)
    emission = Gaussian().open(X, n)
    features = emission.features(False)
    parameters = np.hstack([mean, np.square(sd)])
    theta = features.collapse(emission.theta(parameters))
    bounds = np.array([0, len(X)]) if bounds is None else bounds
    columns = partial(emission.columns, missing=False)
    rows = SequenceRows(X, bounds, columns, features.first, features.second)
    return rows, Chain(theta, np.full(n, 1.0 / n), np.asarray(transitions))


@pytest.mark.parametrize("beta", [1.0, 0.4])
@pytest.mark.parametrize("n", [2, 3])
def test_enumeration(n, beta):
    rows, chain, joint = make([1, 6, 2, 5], n=n)
    hot = Chain(chain.theta * beta, chain.start**beta, chain.transitions**beta)
    found = run(whole(rows), hot)
    *sums, gamma = enumerate_sequences(rows, chain, joint, beta)
    features = gamma.T @ rows.features(slice(None))
    agree((found[0] / beta, *found[1:]), (*sums, features))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("d", [1, 4])
def test_sizes(n, d, many_lanes):
    rows, chain, _ = make([3000, 7, 700], n=n, d=d)
    compare(rows, chain, whole(rows))


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_lengths_and_weights(lengths):
    rows, chain, _ = make(lengths)
    weight = np.random.default_rng(1).uniform(0.5, 3.0, len(lengths))
    for w in (None, weight):
        layout = whole(rows, w)
        compare(rows, chain, layout, w)
        layout.lay_out_whole()
        compare(rows, chain, layout, w)


@pytest.mark.parametrize("state", [None, 0, 1, 2])
def test_any_state_does_as_reference(state, monkeypatch):
    monkeypatch.setattr(SummedPasses, "_reference", lambda self, theta: state)
    rows, chain, _ = make([900, 7, 300], n=3)
    weight = np.array([2.0, 0.5, 1.0])
    compare(rows, chain, whole(rows, weight), weight)


@pytest.mark.parametrize(
    ("far", "sd", "tried"), [(9.0, 0.1, [0]), (90.0, 0.1, [None]), (9.0, 40.0, [1])]
)
def test_the_reference_is_nowhere_much_less_likely(far, sd, tried, monkeypatch):
    mean, states = np.array([[0.0], [far]]), np.repeat([0, 1, 0], 400)
    noise = np.random.default_rng(0).normal(size=(1200, 1))
    X = mean[states] + np.array([[1.0], [sd]])[states] * noise
    rows, chain = series(mean, np.array([[1.0], [sd]]), [[0.9, 0.1], [0.1, 0.9]], X)
    assert references(monkeypatch, rows, chain) == tried


def test_a_reference_that_fails_somewhere_is_given_up(monkeypatch):
    """What is far in few rows is not among those that are looked at."""
    X = np.random.default_rng(0).normal(size=(3000, 1))
    X[[1001, 1002]] = 90.0
    rows, chain = series([[0.0], [90.0]], np.ones((2, 1)), [[0.9, 0.1], [0.1, 0.9]], X)
    assert rows.some_features.max() < 90.0
    assert references(monkeypatch, rows, chain) == [0, None]


def references(monkeypatch, rows, chain):
    """Which states were tried, after sums have been compared."""
    tried, run_once = [], SummedPasses._run

    def spied(self, theta, reference, raised):
        tried.append(reference)
        return run_once(self, theta, reference, raised)

    monkeypatch.setattr(SummedPasses, "_run", spied)
    compare(rows, chain, whole(rows))
    return tried


def draw(n, n_rows, stay, seed=0):
    rng = np.random.default_rng(seed)
    jumps = np.append(True, rng.random(n_rows - 1) > stay)
    states = rng.integers(n, size=jumps.sum())[np.cumsum(jumps) - 1]
    return states, rng


OFF = np.array([[1.0, 1e-200, 0.0], [1e-200, 1.0, 1e-200], [0.0, 1e-200, 1.0]])
CASES = {
    # standard deviations, transitions, distance of spikes
    "forgets slowly": (9.0, 0.999, 0.0),
    "hardly forgets": (9.0, 0.99999, 0.0),
    "spikes": (0.4, 0.99, 40.0),
    "far spikes, narrow states": (1e-3, 0.99, 1e3),
    "almost no transitions": (9.0, OFF, 0.0),
    "a way without return": (3.0, np.triu(np.full((3, 3), 0.001)) + np.eye(3), 0.0),
    "no transitions": (3.0, np.eye(3), 0.0),
    "there and back": (1.0, np.roll(np.eye(3), 1, axis=1), 0.0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_hard(case, many_lanes):
    sd, transitions, spike = case
    mean = np.array([[0.0, 0.0], [1.0, -1.0], [2.0, 1.0]])
    states, rng = draw(3, 4000, 0.99)
    X = mean[states] + sd * rng.normal(size=(4000, 2))
    X[500::700] += spike
    if np.ndim(transitions) == 0:
        transitions = np.full((3, 3), (1.0 - transitions) / 3) + transitions * np.eye(3)
    transitions = transitions / transitions.sum(axis=1, keepdims=True)
    rows, chain = series(mean, np.full((3, 2), sd), transitions, X)
    layout = whole(rows)
    assert len(layout.groups) > 2 and not layout.whole
    compare(rows, chain, layout, rtol=1e-10 if spike else 1e-11)


def test_a_message_is_handed_over_relatively(many_lanes):
    """What is 1e-200 here is certain where evidence turns, lanes further on."""
    mean, A = np.array([[0.0], [1.0]]), np.array([[1.0, 1e-100], [1e-100, 1.0]])
    X = np.zeros((4000, 1))
    X[2000:] = 1.0
    rows, chain = series(mean, np.full((2, 1), 2.0), A, X)
    compare(rows, chain, whole(rows))


def test_some_rows_of_lanes_are_padding(many_lanes):
    rows, chain, _ = make([2443, 3, 1201])
    compare(rows, chain, whole(rows))


def test_any_number_of_threads_gives_the_same_bits(many_lanes):
    rows, chain, _ = make([3000, 40, 2000])
    ends = []
    for n_jobs in (1, 3):
        with threads(n_jobs):
            ends.append(run(whole(rows), chain))
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


def test_impossible_row():
    X = np.zeros((1200, 1))
    X[820] = 1.0
    bounds = np.array([0, 700, 1200])
    rows = SequenceRows(X, bounds, lambda X, parameters: X, *[[-1, 0]] * 2)
    theta = np.array([[0.0, 0.0], [0.0, -1e100]])
    chain = Chain(theta, np.array([0.5, 0.5]), np.eye(2))
    assert run(whole(rows), chain)[0] == pytest.approx(np.log(0.5))
    with pytest.raises(Impossible) as error:
        SummedPasses(whole(rows), chain._replace(start=np.array([0.0, 1.0]))).forward()
    assert error.value.row == 820
    nowhere = chain._replace(theta=np.array([[0.0, -1e100]] * 2))
    with pytest.raises(Impossible):
        SummedPasses(whole(rows), nowhere).forward()


def test_messages_that_leave_the_numbers_are_taken_in_logarithms():
    """No path leads to the state that all rows are close to."""
    mean, sd = np.array([[0.0], [90.0]]), np.ones((2, 1))
    X = np.zeros((3000, 1))
    rows, chain = series(mean, sd, [[1.0, 0.0], [0.0, 1.0]], X)
    chain = chain._replace(start=np.array([0.0, 1.0]))
    wanted = 3000 * (-0.5 * 90.0**2 - 0.5 * np.log(2.0 * np.pi))
    for passes in (Passes(whole(rows), chain), SummedPasses(whole(rows), chain)):
        assert passes.forward() == pytest.approx(wanted, rel=1e-12)
        start, pairs, _ = passes.backward()
        np.testing.assert_allclose(start, [0.0, 1.0])
        np.testing.assert_allclose(pairs, [[0.0, 0.0], [0.0, 2999.0]])


@pytest.mark.parametrize("rare", [1e-120, 1e-200, 0.0])
def test_rare_transitions_and_narrow_states(rare):
    n = 3
    rows, chain, joint = narrow(n, rare, [2000, 300], runs=40)
    sums = SummedPasses(whole(rows), chain)
    found = sums.forward(), *sums.backward()
    total, start, pairs, *_, gamma = expected(rows, chain, joint)
    products = gamma.T @ rows.features(slice(None))
    for a, b in zip(found, (total, start, pairs, products), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-6)


def test_known_states_are_exact(always):
    states, rng = draw(3, 900, 0.95)
    X = 1.0 * states[:, None] + rng.normal(size=(900, 2))
    labels = np.where(rng.random(900) < 0.5, states, -1)
    hmm = VRHMM(3, solver="batch", max_iter=3, tol=0.0, random_state=0)
    hmm.fit(X, state_labels=labels)
    known = VRHMM(3, solver="batch", max_iter=1, tol=0.0, random_state=0)
    known.fit(X, state_labels=states)
    for k in range(3):
        np.testing.assert_allclose(
            known.emission_.mean_[k], X[states == k].mean(axis=0), rtol=1e-10
        )
    assert np.isfinite(hmm.log_likelihood_)


@pytest.mark.parametrize("kind", ["diag", "full"])
@pytest.mark.parametrize("given", ["nothing", "labels", "missing", "weights"])
def test_fits_are_the_same_either_way(kind, given, monkeypatch):
    states, rng = draw(3, 1500, 0.95)
    X = 2.0 * states[:, None] + rng.normal(size=(1500, 2))
    fit = {"lengths": [900, 1, 599]}
    if given == "labels":
        fit["state_labels"] = np.where(rng.random(1500) < 0.3, states, -1)
    if given == "missing":
        X[rng.random(X.shape) < 0.1] = np.nan
    if given == "weights":
        fit["sample_weight"] = np.repeat([1.0, 0.5, 2.0], fit["lengths"])
    ends = []
    for fewest in (0, 10**9):
        monkeypatch.setattr(_model_sums, "FEWEST_ROWS", fewest)
        hmm = VRHMM(
            3,
            covariance_type=kind,
            transitions=Homogeneous(init=np.full((3, 3), 0.1) + 0.7 * np.eye(3)),
            solver="batch",
            n_init=1,
            max_iter=4,
            tol=0.0,
            random_state=0,
        )
        ends.append(hmm.fit(X, **fit))
    a, b = ends
    assert a.log_likelihood_ == pytest.approx(b.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(a.transmat_, b.transmat_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.emission_.mean_, b.emission_.mean_, rtol=1e-9)


def test_who_goes_this_way(always):
    rows, chain, _ = make([300], n=3)
    layout = whole(rows)
    assert _model_sums.suits(layout, chain)
    assert not _model_sums.suits(layout, chain._replace(other=chain.transitions))
    assert not _model_sums.suits(
        layout, chain._replace(theta=np.repeat(chain.theta, 2, axis=0))
    )
    nine = Chain(np.zeros((9, chain.theta.shape[1])), np.ones(9) / 9, np.eye(9))
    assert not _model_sums.suits(layout, nine)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["batch", "incremental"])
def test_a_memory_map_is_not_kept(tmp_path, solver, always, many_lanes):
    states, rng = draw(2, 5000, 0.95)
    X = 2.0 * states[:, None] + rng.normal(size=(5000, 3))
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    ends = [
        VRHMM(2, solver=solver, max_iter=3, random_state=0).fit(data)
        for data in (X, mapped)
    ]
    assert ends[0].log_likelihood_ == ends[1].log_likelihood_
    np.testing.assert_array_equal(ends[0].transmat_, ends[1].transmat_)
    np.testing.assert_array_equal(ends[0].predict(X), ends[0].predict(mapped))


def test_the_columns_of_a_memory_map_are_lent(tmp_path, many_lanes):
    rows, chain, _ = make([4000])
    np.save(tmp_path / "X.npy", rows.X)
    mapped = SequenceRows(
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        rows.bounds,
        rows.columns,
        rows.first,
        rows.second,
    )
    layout = Layout(mapped, np.array([0]))
    compare(rows, chain, layout)
    layout = Layout(mapped, np.array([0]))
    run(layout, chain)
    assert all(not group.columns.size for group in layout.groups)
    Passes(layout, chain).forward()
    assert all(group.columns.size for group in layout.groups)


@pytest.mark.parametrize(
    ("sticky", "flat", "laid"),
    [(0.6, 1.0, 2), (0.8, 0.1, 2), (0.999, 0.0, 4)],
    ids=["forgets", "slowly", "hardly"],
)
@pytest.mark.parametrize(
    "lengths", [[20000], [9000, 7, 4000, 1, 1, 3000, 3991]], ids=str
)
def test_the_ends_of_lanes_are_enough(
    monkeypatch, tmp_path, sticky, flat, laid, lengths
):
    monkeypatch.setattr(_model_layout, "GROUP_ROWS", 10_000)
    rows, chain, _ = make(lengths, sticky=sticky)
    chain = chain._replace(theta=flat * chain.theta)
    np.save(tmp_path / "X.npy", rows.X)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    mapped = SequenceRows(X, rows.bounds, rows.columns, rows.first, rows.second)
    calls, laid_out = [], Layout._of_rows
    monkeypatch.setattr(
        Layout, "_of_rows", lambda *given: calls.append(1) or laid_out(*given)
    )
    found = run(whole(mapped), chain)
    # Once in a pass a group, and before where its ends do not say enough.
    assert len(calls) == laid
    for own, other in zip(found, run(whole(rows), chain), strict=True):
        np.testing.assert_array_equal(own, other)


def by_half(halves):
    """Yield the events of each half."""
    *events, bounds = halves.events
    for begin, end in pairwise(bounds):
        yield [part[begin:end] for part in events]


@pytest.mark.parametrize("lengths", [[5000], [2000, 3, 1, 1500, 1496]], ids=str)
def test_ends_are_those_of_the_lanes(lengths, many_lanes):
    rows, _, _ = make(lengths)
    layout = whole(rows)
    for number, group in enumerate(layout.groups):
        columns, halves = layout.ends(number, 2)
        size = len(columns) // 4
        np.testing.assert_array_equal(columns[: 2 * size], group.columns[: 2 * size])
        np.testing.assert_array_equal(columns[2 * size :], group.columns[-2 * size :])
        steps = layout.n_tiles * _model_layout.STEPS
        whole_halves = layout.halves.of_groups(number, number + 1)
        for half, every in zip(by_half(halves), by_half(whole_halves), strict=True):
            step, lane, *_ = every
            first, last = step < 16, step >= steps - 16
            wanted = np.append(step[first], step[last] - steps + 32)
            np.testing.assert_array_equal(half[0], wanted)
            wanted = np.append(lane[first], lane[last])
            np.testing.assert_array_equal(half[1], wanted)
