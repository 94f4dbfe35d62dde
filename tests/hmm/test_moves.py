"""Moves of states, out of optima that EM does not leave."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.preprocessing import StandardScaler

from skvrem import VRHMM
from skvrem.hmm import (
    Categorical,
    Gaussian,
    Hierarchical,
    Homogeneous,
    MixtureGaussian,
    _plan,
    _start,
)
from skvrem.hmm._input import open_rows
from skvrem.hmm.clusters._lloyd import lloyd
from skvrem.hmm.clusters._model import nearest


def series(n_states, n_features, n, seed, stay=0.8):
    """Rows of states that stay for a while, and what they are drawn from."""
    rng = np.random.default_rng(seed)
    transmat = (1.0 - stay) / (n_states - 1) * rng.gamma(1.0, size=(n_states, n_states))
    np.fill_diagonal(transmat, stay)
    transmat /= transmat.sum(axis=1, keepdims=True)
    means = rng.normal(0.0, 2.5, (n_states, n_features))
    states, sums = np.zeros(n, int), transmat.cumsum(axis=1)
    for t, u in enumerate(rng.random(n - 1)):
        states[t + 1] = np.searchsorted(sums[states[t]], u)
    X = means[states] + rng.normal(size=(n, n_features))
    return X, means, transmat


def moving(model, X, **given):
    model._check_parameters()
    _, data, opened = open_rows(model, X, fresh=True, **given)
    return _plan.plan_fit(model, opened, data, False)[3]


@pytest.mark.parametrize(("most", "n_init"), [(10_000, 22), (2_000, 12)])
def test_phases_of_segments_are_worth_more_starts_where_rows_are_few(
    monkeypatch, most, n_init
):
    for name, value in (("FEWEST_SAMPLED", most), ("SHORT", 0), ("MEDIUM", 0)):
        monkeypatch.setattr(_plan, name, value)
    X, *_ = series(4, 2, 3000, 0)
    X = np.column_stack([X, np.arange(1, 3001) % 6 == 0])
    for transitions, starts in ((Hierarchical(2, 2, 2), n_init), (None, 12)):
        model = VRHMM(4, transitions=transitions)
        model._check_parameters()
        given = X if transitions else X[:, :2]
        _, data, opened = open_rows(model, given, fresh=True)
        assert _plan.plan_fit(model, opened, data, False)[2] == starts


def test_losses_are_those_of_a_mixture():
    rng = np.random.default_rng(0)
    X, means = rng.normal(0.0, 2.0, 50), np.array([-2.0, 0.0, 0.5, 3.0])
    weights = np.array([0.3, 0.2, 0.1, 0.4])
    joint = weights * norm.pdf(X[:, None], means)
    total = np.log(joint.sum(axis=1)).sum()
    found = _start._losses(joint / joint.sum(axis=1, keepdims=True), weights)
    for state, loss in enumerate(found):
        left = np.delete(joint, state, axis=1) / (1.0 - weights[state])
        assert total - np.log(left.sum(axis=1)).sum() == pytest.approx(loss)


def test_halves_gain_where_there_are_two():
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=400)
    Z = rng.normal(size=(400, 2)) + np.outer(6.0 * side - 3.0, [1.0, 0.0])
    own = np.ones(400)
    own[:100] = 0.01  # of others
    gain, centres = _start._halves(Z, own)
    second = nearest(Z, centres)[0] == 1
    assert len(set(side[second])) == 1
    rest, half = Z[100:], 100 + np.flatnonzero(second[100:])

    def density(rows):
        scale = np.sqrt(rows.var(axis=0) + _start.LEAST_VARIANCE)
        return norm.pdf(rest, rows.mean(axis=0), scale).prod(axis=1)

    second = np.isin(np.arange(100, 400), half)
    two = [density(rest[part]) * part.mean() for part in (second, ~second)]
    wanted = np.log(sum(two) / density(rest)).sum()
    assert gain == pytest.approx(wanted, rel=1e-6)
    one = _start._halves(Z[side == 0], np.ones((side == 0).sum()))[0]
    assert one < 0.2 * gain
    assert _start._halves(Z, np.full(400, 0.01))[0] == -np.inf


def test_halves_of_many_rows_are_those_of_some(monkeypatch):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3000, 2)) + np.outer(8.0 * rng.integers(2, size=3000), [1, 1])
    own = rng.uniform(0.2, 1.0, 3000)
    some = _start._halves(Z, own)
    monkeypatch.setattr(_start, "SPLIT_ROWS", 3000)
    every = _start._halves(Z, own)
    assert some[0] == pytest.approx(every[0], rel=0.05)
    np.testing.assert_allclose(some[1], every[1], atol=0.3)


@pytest.mark.parametrize(("seed", "least_moves"), [(0, 0), (6, 1)])
def test_default_fits_find_what_the_truth_leads_to(seed, least_moves):
    """Where single starts end .07 to .1 nats a row below, of most seeds."""
    X, means, transmat = series(12, 5, 3000, seed)
    emission = Gaussian("diag", mean_init=means)
    how = {"emission": emission, "transitions": Homogeneous(init=transmat)}
    truth = VRHMM(12, n_init=1, **how).fit(X)
    n_moves = 0
    for random_state in range(3):
        model = VRHMM(12, random_state=random_state).fit(X)
        assert model.objective_ > truth.objective_ - 1e-3
        assert model.objective_ == pytest.approx(model.score(X), rel=1e-9)
        assert model.init_scores_.shape == (_plan.MANY_STARTS,)
        # One history of all, with a row for each point that was moved to.
        climb = model.history_["objective"]
        assert np.diff(climb).min() > 0.0
        assert model.n_iter_ == model.init_epochs_[model.init_scores_.argmax()]
        n_moves += len(climb) - model.n_iter_ - 1
    assert n_moves >= least_moves


def poor_start():
    """Rows, their means, and means of a state that is two, and two that are one."""
    X, means, _ = series(6, 3, 2000, 0)
    poor = means.copy()
    poor[1] = poor[0] = 0.5 * (means[0] + means[1])
    poor[2], poor[3] = means[2] + 0.1, means[2] - 0.1
    poor[1] = means[3]
    return X, means, Gaussian("diag", mean_init=poor)


@pytest.fixture
def one_start(monkeypatch):
    """One start in a race, and moves though something is known of the states."""
    monkeypatch.setattr(_plan, "can_move", lambda *given: True)
    monkeypatch.setattr(_plan, "STARTS", 1)
    monkeypatch.setattr(_plan, "SHORT", 0)
    monkeypatch.setattr(_plan, "MEDIUM", 0)


def test_the_best_of_several_tries_has_the_least_squared_distances():
    Z = np.random.default_rng(0).normal(size=(300, 2))
    squares = [
        np.square(Z[:, None] - centres).sum(axis=2).min(axis=1).sum()
        for _, centres in lloyd_in_turn(Z, 12, 10)
    ]
    labels, centres = lloyd(Z, 12, "kmeans", None, np.random.default_rng(1), tries=10)
    _, expected = lloyd_in_turn(Z, 12, 10)[int(np.argmin(squares))]
    assert_array_equal(centres, expected)
    assert_array_equal(labels, nearest(Z, centres)[0])


def lloyd_in_turn(Z, n, times):
    rng = np.random.default_rng(1)
    return [lloyd(Z, n, "kmeans", None, rng) for _ in range(times)]


@pytest.mark.parametrize("seed", [0, 2])
def test_many_states_that_overlap_are_found(seed):
    """Clusters of one try miss some of so many, and moves do not lead there."""
    rng, n, k = np.random.default_rng(50), 5000, 15
    states = np.cumsum(rng.random(n) < 0.1) * 7 % k
    X = rng.normal(1.5 * states)[:, None]
    model = VRHMM(k, random_state=seed).fit(X)
    assert_allclose(np.sort(model.means_.ravel()), 1.5 * np.arange(k), atol=0.5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_end_without_epochs_left_does_not_move(one_start):
    X, _, emission = poor_start()
    model = VRHMM(6, emission=emission, max_iter=12, tol=0.0, random_state=0).fit(X)
    assert model.n_iter_ == 12
    assert len(model.history_["objective"]) == 13


def test_moves_lead_out_of_a_poor_optimum(one_start):
    """And only higher."""
    X, means, emission = poor_start()
    ends = [VRHMM(6, emission=emission, n_init=1, random_state=0).fit(X).objective_]
    ends.append(VRHMM(6, emission=emission, random_state=0).fit(X).objective_)
    best = Gaussian("diag", mean_init=means)
    ends.append(VRHMM(6, emission=best, n_init=1, random_state=0).fit(X).objective_)
    assert ends[0] < ends[2] - 0.01
    assert ends[1] > ends[2] - 1e-3


def test_nobody_moves_where_states_are_known():
    X, means, transmat = series(6, 2, 300, 0)
    labels = np.full(300, -1)
    labels[:6] = range(6)
    model = partial(VRHMM, 6, random_state=0)
    assert moving(model(), X)
    assert moving(model(emission="poisson"), np.abs(X).round())
    assert not moving(model(), X, state_labels=labels)
    assert not moving(model(n_init=3), X)
    assert not moving(model(solver="svrg"), X)
    assert not moving(model(acceleration="lbfgs"), X)
    assert not moving(model(tempering="annealed"), X)
    assert not moving(model(emission=Gaussian("diag", mean_init=means)), X)
    assert not moving(model(transitions=Homogeneous("left-right")), X)
    assert not moving(model(transitions=Homogeneous(init=transmat)), X)
    assert not moving(model(startprob_init=np.full(6, 1.0 / 6.0)), X)
    assert moving(model(startprob="stationary", transitions=Homogeneous()), X)
    assert not moving(VRHMM(3), X)


def test_windows_lie_within_sequences():
    """Rows of one sequence are not averaged with those of the next for a start."""
    lengths = np.array([7, 3, 12, 5, 1, 9, 30, 13])
    begins = np.append(0, lengths.cumsum()[:-1])
    number = np.repeat(np.arange(len(lengths)), lengths)
    Z = np.random.default_rng(0).normal(size=(lengths.sum(), 2))
    means, counts = _start._windows(Z, begins, 5, 2)
    edges = np.append(0, counts.cumsum())
    assert edges[-1] == len(Z) and counts.max() == 5
    assert set(begins) <= set(edges)
    assert all(len(set(number[a:b])) == 1 for a, b in pairwise(edges))
    by_hand = [Z[a:b].mean(axis=0) for a, b in pairwise(edges)]
    assert_allclose(means, StandardScaler().fit_transform(by_hand))


def test_codes_are_told_apart_by_what_comes_next():
    """States that alternate: means over windows of codes are the same for both."""
    rng = np.random.default_rng(0)
    transmat = np.array([[0.1, 0.9], [0.8, 0.2]])
    probability = np.zeros((2, 12))
    probability[0, :8], probability[1, 4:] = rng.dirichlet(np.ones(8), size=2)
    states = np.zeros(1500, int)
    for t, u in enumerate(rng.random(1499)):
        states[t + 1] = u > transmat[states[t], 0]
    X = np.array([[rng.choice(12, p=probability[state])] for state in states])
    known = Categorical(probability_init=probability)
    how = {"transitions": Homogeneous(init=transmat), "emission": known, "n_init": 1}
    level = VRHMM(2, **how).fit(X).log_likelihood_ - 1e-3
    for seed in range(3):
        given = {"emission": "categorical", "random_state": seed, "n_init": 1}
        assert VRHMM(2, **given).fit(X).log_likelihood_ > level
        assert VRHMM(2, **given | {"n_init": "auto"}).fit(X).log_likelihood_ > level


def test_chance_gives_every_code_shares_of_all_states():
    codes = np.array([0, 1, 2, 1, 0, 2, 2])
    inside = np.array([1, 2, 3, 5, 6])
    rng = np.random.default_rng(0)
    members, before, after = _start._by_chance(codes, inside, 3, rng)
    assert_allclose(members.sum(axis=1), 1.0)
    assert (members > 0.0).all()
    assert_array_equal(members[0], members[4])
    assert before.shape == after.shape == inside.shape
    # As often as the matrix says that was drawn.
    rng, drawn = (np.random.default_rng(1) for _ in range(2))
    many = np.zeros(60_000, int)
    _, before, after = _start._by_chance(many, np.arange(1, 60_000), 3, rng)
    drawn.dirichlet(np.ones(3), 1)
    counts = np.zeros((3, 3))
    np.add.at(counts, (before, after), 1.0)
    counts /= counts.sum(axis=1, keepdims=True)
    assert_allclose(counts, drawn.dirichlet(np.ones(3), 3), atol=0.02)


def test_neighbours_of_values_that_are_fewer_than_states():
    """Fine clusters may be empty, and have the same neighbours: none is none's."""
    fine, inside = np.zeros(20, int), np.arange(1, 20)
    rng = np.random.default_rng(0)
    assert len(set(_start._by_company(fine, 6, inside, 3, rng))) == 1
    X = np.repeat([[0.0], [1.0]], [30, 20], axis=0)
    model = VRHMM(3, emission=MixtureGaussian(2), random_state=0, n_init=2)
    assert np.isfinite(model.fit(X).log_likelihood_)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_codes_that_come_once():
    model = VRHMM(3, emission="categorical", n_init=3, random_state=0, tol=1.0)
    assert np.isfinite(model.fit(np.arange(12)[:, None]).log_likelihood_)


def test_few_codes_of_many_states():
    """No more codes than states: there is nothing to cluster by its neighbours."""
    X = np.random.default_rng(0).integers(2, size=(200, 1))
    for n_init in 1, 6:
        model = VRHMM(3, emission="categorical", n_init=n_init, random_state=0).fit(X)
        assert np.isfinite(model.log_likelihood_)


def test_what_is_looked_at_begins_anywhere(monkeypatch):
    """The states that a sequence never begins with begin stretches within it."""
    monkeypatch.setattr(_start, "RUN_ROWS", 10)
    rng = np.random.default_rng(26)
    probability = rng.dirichlet(np.full(8, 0.3), 5)
    transmat, states = rng.dirichlet(np.full(5, 0.5), 5), [0]
    for _ in range(299):
        states.append(rng.choice(5, p=transmat[states[-1]]))
    X = np.array([rng.choice(8, p=probability[state]) for state in states])
    codes = np.unique(X, return_inverse=True)[1].reshape(-1, 1)
    model = VRHMM(5, emission="categorical", random_state=0).fit(codes)
    assert model.startprob_.max() > 0.999
    assert np.isfinite(model.log_likelihood_)


@pytest.mark.parametrize(
    ("rows", "n_init", "left"), [(3_000, 32, [16, 8]), (60_000, 12, [6, 3])]
)
def test_which_start_of_codes_is_best_is_known_late(rows, n_init, left):
    codes = np.random.default_rng(0).integers(3, size=(rows, 1))
    model = VRHMM(4, emission="categorical")
    model._check_parameters()
    _, data, opened = open_rows(model, codes, fresh=True)
    plan, _, starts, *_ = _plan.plan_fit(model, opened, data, False)
    assert starts == n_init
    assert [n for _, n in plan.rungs] == left
    assert [epochs for epochs, _ in plan.rungs] == list(_plan.SHORT_HALVED)
