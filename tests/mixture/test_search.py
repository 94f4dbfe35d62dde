"""The search for a start: moves against brute force, and what it finds by itself."""

import time
from functools import partial

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_diabetes
from sklearn.mixture import GaussianMixture

from skvrem import VRGaussianMixture, solvers
from skvrem.data import as_source
from skvrem.mixture import _estimator, _model, _moves, _search
from skvrem.mixture._model import GaussianMixtureModel, Parameters
from skvrem.solvers import _search as _search_constants
from skvrem.utils import _columns
from skvrem.utils._columns import values_of
from tests.watching import Recorder

COVARIANCE_TYPES = ["full", "tied", "diag", "spherical"]


def start(X, means, covariance_type, weight=None, missing=False):
    """A model, a point with unit covariances about these means, and a source."""
    k, d = np.shape(means)
    model = GaussianMixtureModel(covariance_type, 1e-6, missing)
    shapes = {"full": (k, 1, 1), "tied": (1, 1), "diag": (k, d), "spherical": (k,)}
    unit = np.ones(shapes[covariance_type])
    unit = unit * np.eye(d) if model.dense else unit
    parameters = Parameters(np.full(k, 1.0 / k), np.array(means, float), unit, unit)
    return model, model.start(parameters), as_source(X, weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_what_rows_lose_with_a_component_is_exact(weighted):
    rng = np.random.default_rng(0)
    X, means = rng.normal(size=(200, 2)), rng.normal(size=(4, 2))
    X[0] = 60.0  # which one component explains alone
    weight = rng.uniform(size=200) if weighted else np.ones(200)
    joint = np.log(0.25) + np.stack(
        [multivariate_normal(mean).logpdf(X) for mean in means], axis=1
    )
    total = logsumexp(joint, axis=1)
    owned, lost = _moves._posteriors(joint.copy(), weight if weighted else np.empty(0))
    expected = np.exp(joint - total[:, None]) * weight[:, None]
    np.testing.assert_allclose(owned, expected, atol=1e-14)
    for part in range(4):
        without = logsumexp(np.delete(joint, part, axis=1), axis=1)
        np.testing.assert_allclose(lost[part], weight @ (total - without), rtol=1e-10)


def test_pairs_come_by_what_they_promise():
    promise = np.array([[9.0, 3.0, 2.0], [5.0, 9.0, 4.0], [-np.inf] * 3])
    assert list(solvers.ranked_moves(promise)) == [(1, 0), (0, 1)]
    merged = [
        pair[1]
        for pair in solvers.ranked_moves(np.add.outer(np.zeros(5), np.arange(5.0)))
    ]
    assert max(np.bincount(merged)) == _search_constants.MERGES and len(merged) == 5


def test_a_component_owns_rows_whatever_all_weigh():
    X = np.random.default_rng(0).normal(scale=3.0, size=(400, 2))
    found = []
    for each in (1.0, 64.0):
        weight = np.full(len(X), each)
        model, point, data = start(X, [[-1.0, 0.0], [1.0, 0.0]], "full", weight)
        *_, owned = _moves._look(model, point, data, {0})
        rng = np.random.default_rng(1)
        found.append(_moves._split(model, point, data, 0, owned[0], rng))
    one, other = found
    assert np.isfinite(one.gain)
    np.testing.assert_allclose(one.gain, other.gain, rtol=1e-6)
    np.testing.assert_allclose(one.parameters.means, other.parameters.means, rtol=1e-6)


def test_rows_are_looked_at_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    X, weight = rng.normal(scale=3.0, size=(401, 2)), rng.uniform(0.5, 1.5, size=401)
    given = start(X, [[-1.0, 0.0], [1.0, 0.0], [9.0, 9.0]], "full", weight)
    at_once = _moves._look(*given, {0, 2})
    monkeypatch.setattr(_moves, "PIECE", 150)
    in_pieces = _moves._look(*given, {0, 2})
    for one, other in zip(at_once[:2], in_pieces[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    for part in 0, 2:
        for one, other in zip(at_once[2][part], in_pieces[2][part], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_first_move_is_the_one_that_is_needed(covariance_type, weighted, missing):
    """Two balls have one component, and another has two: EM does not leave that."""
    dense = covariance_type in ("full", "tied")
    if missing and dense:
        pytest.skip("missing values are for diagonal covariances")
    rng = np.random.default_rng(0)
    balls = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 30.0], [30.0, 0.0]])
    X = np.repeat(balls, 150, axis=0) + rng.normal(size=(600, 2))
    weight = rng.uniform(0.5, 1.5, size=600) if weighted else None
    if missing:
        X[rng.uniform(size=X.shape) < 0.05] = np.nan
    means = [[4.0, 0.0], [0.0, 29.0], [0.0, 31.0], [30.0, 0.0]]
    model, point, data = start(X, means, covariance_type, weight, missing)
    run = partial(solvers.Run, model, solvers.Batch(), data, tol=0.0)
    stuck = run(point, rng=rng).advance(50).anchor
    proposal = next(_moves.moves(model, stuck.point, data, rng))
    moved = run(proposal, rng=rng).advance(20).anchor
    assert moved.objective > stuck.objective + 0.1
    found = np.sort(moved.point.parameters.means.sum(axis=1))
    np.testing.assert_allclose(found, [0.0, 8.0, 30.0, 30.0], atol=1.0)


def test_what_halves_gain_is_what_they_gain():
    """The gain of a component of all rows, against densities of the halves."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1)) + np.repeat([[-4.0], [4.0]], 150, axis=0)
    model, _, data = start(X, [[0.0]], "full")
    variance = np.array([[[X.var()]]])
    whole = Parameters(np.ones(1), X.mean(0)[None], variance, 1.0 / np.sqrt(variance))
    density = multivariate_normal(whole.means[0], variance[0]).logpdf(X)
    owned = _moves.Owned(np.arange(300), np.ones(300), density)
    halves = _moves._split(model, model.start(whole), data, 0, owned, rng)
    weights, means, covariances, _ = halves.parameters
    both = [
        np.log(share) + multivariate_normal(mean, covariance).logpdf(X)
        for share, mean, covariance in zip(weights, means, covariances, strict=True)
    ]
    gain = (logsumexp(both, axis=0) - density).mean()
    assert halves.gain == pytest.approx(gain) and gain > 0.3
    np.testing.assert_allclose(np.sort(means[:, 0]), [-4.0, 4.0], atol=0.3)


def test_a_component_is_cut_where_it_is_longest():
    """Beside its mean, which is far from zero in another direction."""
    rng = np.random.default_rng(0)
    X = rng.normal([100.0, 0.0], 1.0, size=(400, 2))
    X[::2, 1] += 8.0
    model, _, data = start(X, [[0.0, 0.0]], "diag")
    variances = X.var(axis=0)[None]
    whole = Parameters(np.ones(1), X.mean(0)[None], variances, 1.0 / np.sqrt(variances))
    owned = _moves.Owned(np.arange(400), np.ones(400), np.zeros(400))
    halves = _moves._split(model, model.start(whole), data, 0, owned, rng)
    means = np.sort(halves.parameters.means, axis=0)
    np.testing.assert_allclose(means, [[100.0, 0.0], [100.0, 8.0]], atol=0.3)


def test_a_component_of_few_rows_is_not_split():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    model, point, data = start(X, [[0.0, 0.0]], "diag")
    for n_rows, can in ((9, False), (11, True)):  # twice five
        rows = np.arange(n_rows)
        owned = _moves.Owned(rows, np.ones(n_rows), np.zeros(n_rows))
        halves = _moves._split(model, point, data, 0, owned, rng)
        assert np.isfinite(halves.gain) == can


def test_moves_are_ranked_by_what_they_gain_and_lose(monkeypatch):
    """Losses against log-likelihoods without a component, its share to the others."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(300, 2)), rng.uniform(0.5, 1.5, size=300)
    means = rng.normal(size=(4, 2))
    model, point, data = start(X, means, "spherical", weight)
    seen = {}

    def spied(promise):
        seen["promise"] = promise.copy()
        return ranked(promise)

    ranked = _moves.ranked_moves
    monkeypatch.setattr(_moves, "ranked_moves", spied)
    proposal = next(_moves.moves(model, point, data, rng))
    densities = [multivariate_normal(mean).logpdf(X) for mean in means]
    joint = np.log(0.25) + np.stack(densities, axis=1)
    whole = weight @ logsumexp(joint, axis=1)
    losses = [
        whole - weight @ (logsumexp(np.delete(joint, part, 1), axis=1) - np.log(0.75))
        for part in range(4)
    ]
    found = seen["promise"][:, :1] - seen["promise"]
    np.testing.assert_allclose(found, [np.subtract(losses, losses[0])] * 4, atol=1e-9)
    # The halves have what the split one had, and all are rescaled to one.
    weights = proposal.parameters.weights
    assert weights.sum() == pytest.approx(1.0)
    kept = np.sort(weights)[::-1][:2]
    np.testing.assert_allclose(kept, 1.0 / 3.0)


def hills():
    """Three balls; a start with two components on one of them, and a good one."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [20.0], [40.0]], 100, axis=0) + rng.normal(size=(300, 1))
    return X, [[10.0], [39.0], [41.0]], [[0.0], [20.0], [40.0]]


def beginning(X, means):
    """Return what begins every run of a search at the same point."""
    model, point, _ = start(X, means, "diag")
    return lambda number, rng: (model, point, 0.0)


@pytest.mark.parametrize(
    ("better", "gain", "tried"),
    [
        ((), 1e-4, "fail"),
        ((2,), 1e-4, "fail after 3"),
        ((2,), 10.0, "fail"),
    ],
)
def test_a_search_ends_where_moves_fail(better, gain, tried, monkeypatch):
    X, stuck, good = hills()
    rng, asked, made = np.random.default_rng(0), [], []

    def watched(*given):
        made.append(try_out(*given).n_iter)
        return given[0]

    try_out = _search_constants.try_out
    monkeypatch.setattr(_search_constants, "try_out", watched)

    def moves(model, point, data, rng):
        while True:
            means = good if len(asked) in better else stuck
            asked.append((yield start(X, means, "diag")[1]))

    found = solvers.search(beginning(X, stuck), moves, gain, as_source(X), rng)
    failing = _search_constants.FAILURES
    many = {"fail": failing, "fail after 3": 3 + failing}[tried]
    # What the last one has come to is not asked for.
    assert len(asked) == many - 1
    assert sum(answer is not None for answer in asked) == (tried != "fail")
    epochs = np.full(solvers.STARTS, _search_constants.EPOCHS)
    epochs[found.number] += _search_constants.MORE
    epochs[found.number] += sum(made)
    # Trials that lead nowhere are given up before their end.
    assert len(made) == many
    assert made.count(_search_constants.TRIAL_EPOCHS) == (tried == "fail after 3")
    np.testing.assert_array_equal(found.epochs, epochs)
    # An epoch is a pass, and every run begins with one.
    assert found.passes == epochs.sum() + solvers.STARTS + many


def test_trials_end_where_what_they_gain_will_not_do():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    model, point, data = start(X, [[0.0], [0.5], [1.0]], "diag")

    def trial():
        return solvers.Run(model, solvers.Batch(), data, point, tol=0.0, rng=rng)

    run = trial().advance(3)
    climb = [epoch.objective for epoch in run.history]
    most = climb[-1] + 5 * (climb[-1] - climb[-2])
    assert solvers.try_out(trial(), 8, most + 1e-9).n_iter == 3
    assert solvers.try_out(trial(), 8, most - 1e-9).n_iter > 3
    assert solvers.try_out(trial(), 8, climb[-1]).n_iter == 8
    assert solvers.try_out(trial(), 2, np.inf).n_iter == 2


def test_a_search_makes_so_many_trials_at_most():
    X, stuck, _ = hills()
    rng, seen = np.random.default_rng(0), []

    def moves(model, point, data, rng):
        while True:
            seen.append((yield start(X, stuck, "diag")[1]))

    solvers.search(beginning(X, stuck), moves, -1.0, as_source(X), rng)
    assert len(seen) == _search_constants.TRIALS - 1  # all were good enough


def test_a_climb_leads_where_a_move_does():
    X, stuck, good = hills()
    model, point, data = start(X, stuck, "diag")
    rng = np.random.default_rng(0)
    run = solvers.Run(model, solvers.Batch(), data, point, tol=0.0, rng=rng)
    point = run.advance(100).anchor.point

    def moves(to, model, point, data, rng):
        yield start(X, to, "diag")[1]

    found = [
        solvers.climb(model, point, partial(moves, to), 1e-4, data, rng, np.inf)
        for to in (good, stuck)
    ]
    (led, passes), (nowhere, cost) = found
    means = np.sort(led.parameters.means[:, 0])
    np.testing.assert_allclose(means, [0.0, 20.0, 40.0], atol=0.5)
    # Every run begins with a pass, and that at the point is one.
    assert passes == 2 + _search_constants.CLIMB_EPOCHS
    assert nowhere is None and 2 + _search_constants.SURE <= cost < passes
    # Of 4 passes, 3 settle the point, and a trial begins with the last of them.
    for most, spent in ((3.0, 3.0), (4.0, 3.0 + passes - 1.0)):
        how = partial(moves, good), 1e-4, data, rng, most, 2
        led, cost = solvers.climb(model, point, *how)
        assert (led is None) == (most == 3.0) and cost == spent


def gone(X, means, passes, n_iter=5, effort=_search.USUAL, rest=None, leaders=1):
    """Return a trail after a search, and the end of the fit that followed."""
    model, point, data = start(X, means, "diag")
    make = partial(GaussianMixtureModel, "diag", 1e-6)
    given = point, 9.0, np.zeros(4), np.full(4, 6), 1, rest or [(0, point)]
    found = solvers.SearchResult(*given, leaders=leaders)
    trail = _search.Trail(found, make, data, effort, lambda point: 0)
    run = solvers.Run(
        model,
        solvers.Batch(),
        data,
        point,
        tol=0.0,
        rng=np.random.default_rng(0),
        passes=passes,
    )
    return trail, run.advance(n_iter).result()


def test_moves_lead_on_from_an_end_while_they_may_cost_more():
    X, stuck, _ = hills()
    trail, end = gone(X, stuck, passes=2.0)
    point, passes, anew = trail.again(end, 1000)
    assert not anew
    means = np.sort(point.parameters.means[:, 0])
    np.testing.assert_allclose(means, [0.0, 20.0, 40.0], atol=0.5)
    assert passes > _search_constants.CLIMB_EPOCHS
    # The end that follows has the epochs of this one too.
    assert trail.again(end._replace(n_iter=12), 1000) == (None, 0.0, False)
    np.testing.assert_array_equal(trail.epochs, [6, 18, 6, 6])
    # Nor do they lead on from what is no higher.
    trail.most = np.inf
    assert trail.again(end, 1000) == (None, 0.0, False)


@pytest.mark.parametrize(("passes", "left"), [(60.0, 1000), (2.0, 9)])
def test_moves_are_not_tried_where_they_cost_much_or_epochs_are_few(passes, left):
    """Beside fits of few passes; and a fit that has converged is to stay so."""
    X, stuck, _ = hills()
    trail, end = gone(X, stuck, passes)
    assert trail.again(end, left) == (None, 0.0, False)
    np.testing.assert_array_equal(trail.epochs, [6, 11, 6, 6])
    assert trail.scores[1] == end.objective


def test_moves_from_an_end_are_tried_on_all_rows_or_so_many(monkeypatch):
    """The same of all, which need no settling; on either, more than noise is a gain."""
    seen = []

    def climb(model, point, moves, gain, data, rng, most, settle):
        seen.append((data.n_units, gain * data.n_units, settle, most))
        return None, 2.0

    monkeypatch.setattr(solvers, "climb", climb)
    X, stuck, _ = hills()
    may = _search.USUAL.cost * 5.0 - 3.0  # five epochs, after three passes
    trail, end = gone(X, stuck, passes=2.0)
    trail.spare = False
    assert trail.again(end, 1000) == (None, 2.0, False)
    monkeypatch.setattr(_search, "MOST_ROWS", 150)
    trail, end = gone(X, stuck, passes=2.0)
    assert trail.again(end, 1000) == (None, 1.0, False)  # half of all rows
    noise = pytest.approx(0.5 * 3)  # a mean, a variance and a weight
    assert seen == [(300, noise, 0, may), (150, noise, _search.SETTLE, 2.0 * may)]


def test_another_start_comes_to_its_end_where_passes_are_left(monkeypatch):
    """One, of few rows: those of many take seconds."""
    monkeypatch.setattr(solvers, "climb", lambda *how: (None, 2.0))
    X, stuck, good = hills()
    other = start(X, good, "diag")[1]
    trail, end = gone(X, stuck, passes=2.0, rest=[(1, other), (3, other), (0, other)])
    point, passes, anew = trail.again(end, 1000)
    assert anew and passes == 2.0 and trail.number == 3
    np.testing.assert_array_equal(point.parameters.means, other.parameters.means)
    lower = end._replace(objective=end.objective - 1.0)
    assert trail.again(lower, 1000) == (None, 0.0, False)
    # As many passes as the end allows are spent on the search and moves, or more.
    most = _search.USUAL.cost * 5.0
    for spent, more in ((most - 4.0, True), (most - 3.0, False)):
        trail, end = gone(X, stuck, passes=spent)
        assert trail.again(end, 1000)[2] is more
    monkeypatch.setattr(_search, "MOST_ROWS", 150)
    trail, end = gone(X, stuck, passes=1.0)
    assert trail.again(end, 1000) == (None, 1.0, False)


def test_ends_of_other_starts_are_looked_at_where_more_than_one_is_wanted():
    """Not of one that moved on or is poor; and no moves lead on from a lower one."""
    X, stuck, good = hills()
    others = [start(X, means, "diag")[1] for means in (stuck, good, good)]
    rest = list(zip((1, 3, 2), others, strict=True))
    trail, end = gone(X, stuck, 60.0, effort=_search.Effort(4, 3, 0.0), rest=rest)
    poor = others[1]
    trail.degenerate = lambda point: point is poor
    point, passes, anew = trail.again(end, 1000)
    assert anew and passes == 0.0 and trail.number == 2
    np.testing.assert_array_equal(point.parameters.means, others[2].parameters.means)
    lower = end._replace(objective=end.objective - 1.0, n_iter=7)
    trail.most = np.inf
    assert trail.again(lower, 1000) == (None, 0.0, True)
    np.testing.assert_array_equal(trail.epochs, [6, 11, 13, 6])
    assert trail.scores[2] == lower.objective


@pytest.mark.parametrize(
    ("n_rows", "n_starts"), [(300, 12), (60, 4), (50_000, 8), (120_000, 4)]
)
def test_short_data_are_searched_far(n_rows, n_starts):
    """But where there are fewer than five rows a parameter, which more starts fit."""
    X = np.random.default_rng(0).normal(size=(n_rows, 3))
    mixture = VRGaussianMixture(2, covariance_type="diag", random_state=0).fit(X)
    assert len(mixture.init_scores_) == n_starts
    assert mixture.objective_ in mixture.init_scores_
    assert mixture.objective_ == pytest.approx(mixture.score(X), abs=1e-9)


@pytest.mark.parametrize(("kind", "numbers"), [("diag", 7), ("tied", 10)])
def test_as_many_ends_are_looked_at_as_take_little_together(kind, numbers):
    each = _search.WORTH // (2 * (_search.FIXED + numbers))  # rows
    for share, ends in ((20, 12), (12, 12), (5, 5), (2, 2)):
        data = as_source(np.zeros((each // share, 3)))
        make = partial(GaussianMixtureModel, kind, 1e-6)
        model = VRGaussianMixture(2, covariance_type=kind)
        effort = _search.plan_search(model, make, data)
        assert effort.ends == ends and effort.starts == min(4 * ends, 12)


def test_of_short_data_all_starts_come_to_their_ends():
    X = hills()[0]
    mixture = VRGaussianMixture(3, random_state=0, max_iter=1000).fit(X)
    model = VRGaussianMixture(3, random_state=0, n_init=1)
    best = max(model.set_params(random_state=s).fit(X).objective_ for s in range(5))
    assert mixture.objective_ >= best - 1e-9
    searched = _search_constants.EPOCHS
    assert (mixture.init_epochs_ > searched).sum() == _search.MOST_ENDS
    assert mixture.n_iter_ <= mixture.init_epochs_.max()
    # A journey is told from the start that led to the end, with the passes of all.
    assert (np.diff(mixture.history_["passes"]) >= 0.0).all()
    assert mixture.history_["passes"][-1] > mixture.init_epochs_.sum() / 2


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("max_iter", [3, 10, 20])
def test_an_end_that_takes_all_epochs_is_among_the_scores(max_iter):
    X = np.random.default_rng(0).normal(size=(300, 2))
    how = {"covariance_type": "diag", "max_iter": max_iter, "tol": 1e-9}
    mixture = VRGaussianMixture(3, random_state=0, **how).fit(X)
    assert not mixture.converged_
    assert mixture.objective_ in mixture.init_scores_
    number = np.argmax(mixture.init_scores_ == mixture.objective_)
    assert mixture.init_epochs_[number] >= mixture.n_iter_ == max_iter


@pytest.mark.parametrize(("n_rows", "weight"), [(100, 1.0), (300, 1.0), (100, 2.0)])
def test_what_moves_must_gain_is_the_noise_of_a_component(n_rows, weight):
    """Half a nat for each of its numbers, in all rows; or a little, of very many."""
    some = as_source(np.zeros((n_rows, 2)), np.full(n_rows, weight))
    model = GaussianMixtureModel("diag", 1e-6)
    assert _search._least(model, some) == pytest.approx(2.5 / (n_rows * weight))
    many = as_source(np.zeros((1, 2)), np.full(1, 1e6))
    assert _search._least(model, many) == _search.GAIN


def test_what_moves_lead_to_from_an_end_is_kept_if_it_is_higher(monkeypatch):
    """And a fit is no lower for having looked."""
    X, how = grid(), {"covariance_type": "diag", "random_state": 0, "max_iter": 1000}
    usual = _search.USUAL
    monkeypatch.setattr(_search, "WORTH", 0)
    monkeypatch.setattr(_search, "USUAL", usual._replace(cost=0.0))
    plain = VRGaussianMixture(7, **how).fit(X)
    monkeypatch.setattr(_search, "USUAL", usual._replace(cost=np.inf))
    led = VRGaussianMixture(7, **how).fit(X)
    assert led.objective_ >= plain.objective_
    assert led.history_["passes"][-1] > plain.history_["passes"][-1]
    assert led.objective_ == pytest.approx(led.score(X), abs=1e-9)
    number = np.argmax(led.init_epochs_)
    assert led.init_epochs_[number] >= led.n_iter_


@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_a_component_without_width_loses(kind):
    X = np.random.default_rng(0).normal(size=(100, 1))
    X[:9] = 6.0  # the same number again and again, but not often enough for an atom
    wide, narrow = [[-1.0], [1.0]], [[6.0], [0.0]]
    degenerate = []
    for means in (wide, narrow):
        model, point, data = start(X, means, kind)
        rng = np.random.default_rng(0)
        run = solvers.Run(model, solvers.Batch(), data, point, tol=0.0, rng=rng)
        point = run.advance(30 if means is narrow else 0).anchor.point
        degenerate.append(model.n_degenerate(point, data))
    assert degenerate == [0, 1]


def test_a_class_in_which_a_column_is_constant_does_not_lose():
    """As of towns with one rate of tax: of many rows, and not among those of others."""
    rng = np.random.default_rng(0)
    for n_rows, at, degenerate in ((60, 6.0, 0), (15, 6.0, 1), (60, 0.0, 1)):
        X = rng.normal(size=(600, 3))
        X[:n_rows, :2] += at
        X[:, 2] = np.round(X[:, 2], 1)  # no value is an atom
        X[:n_rows, 2] = 0.5
        parts = X[:n_rows], X[n_rows:]
        widths = np.stack([np.cov(part.T) + 1e-6 * np.eye(3) for part in parts])
        parameters = Parameters(
            np.array([n_rows, 600.0 - n_rows]) / 600.0,
            np.stack([part.mean(axis=0) for part in parts]),
            widths,
            np.stack([np.linalg.inv(np.linalg.cholesky(one)).T for one in widths]),
        )
        model, data = GaussianMixtureModel("full", 1e-6), as_source(X)
        run = solvers.Run(
            model, solvers.Batch(), data, model.start(parameters), tol=0.0, rng=rng
        )
        assert model.n_degenerate(run.advance(0).anchor.point, data) == degenerate


@pytest.mark.parametrize("kind", ["full", "diag"])
@pytest.mark.parametrize("column", ["codes", "zeros"])
def test_components_of_one_atom_do_not_lose(kind, column, monkeypatch):
    """Of rows with the same code, or without rain, a component needs no width there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    X[:, 1] = rng.integers(2, size=400)
    X[:, 0] += 3.0 * X[:, 1]
    if column == "zeros":
        X[:, 1] *= rng.gamma(4.0, size=400)
    means = [[0.0, 0.0, 0.0], [3.0, 2.0, 0.0]]
    model, point, data = start(X, means, kind)
    run = solvers.Run(model, solvers.Batch(), data, point, tol=0.0, rng=rng)
    point = run.advance(30).anchor.point
    assert model.n_degenerate(point, data) == 0
    assert not model.collapsed(point, data, 2.0).any()
    # Of any other column, and as if there were no atoms, it does, but for a class.
    known, again = values_of(X)
    for atoms in (np.roll(known, 1, axis=1), np.full((1, 3), np.nan)):
        model, _, _ = start(X, means, kind)
        monkeypatch.setattr(_model, "values_of", lambda rows, all=(atoms, again): all)
        narrow = 2 if column == "codes" else 1
        assert model.n_degenerate(point, data) == (narrow if kind == "diag" else 0)


def test_a_column_of_codes_does_not_cost_the_default_its_optimum():
    """Sex, in patients' data; nothing of one start from k-means is to be better."""
    X = load_diabetes().data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    how = {"covariance_type": "diag", "reg_covar": 1e-3, "max_iter": 1000}
    for seed in range(3):
        default = VRGaussianMixture(4, random_state=seed, **how).fit(X)
        twin = GaussianMixture(4, random_state=seed, **how).fit(X)
        assert default.score(X) > twin.score(X) - 1e-3


@pytest.mark.parametrize(("together", "degenerate"), [(0.8, 0), (1.1, 1)])
def test_one_city_among_towns_does_not_lose(together, degenerate, monkeypatch):
    """The same in some columns, as in Boston's data; it would by each of them alone."""
    monkeypatch.setattr(_columns, "TOGETHER", together)
    rng = np.random.default_rng(0)
    X = np.round(2.0 * rng.gamma(4.0, size=(500, 4))) / 2.0 + 0.1
    X[:150, :2] = 4.5, 3.5
    model, point, data = start(X, [[4.5, 3.5, 4.0, 4.0], [4.0] * 4], "diag")
    run = solvers.Run(model, solvers.Batch(), data, point, tol=0.0, rng=rng)
    point = run.advance(60).anchor.point
    assert point.parameters.weights.min() == pytest.approx(0.3, abs=0.01)
    assert model.n_degenerate(point, data) == degenerate


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_zeros_of_many_rows_do_not_cost_the_default_its_optimum(kind):
    """As of rain and of spending: it ends with no start of single fits above it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4)) + rng.normal(size=(4, 4))[rng.integers(4, size=1200)]
    X = np.maximum(X, 0.0)
    how = {"covariance_type": kind, "max_iter": 1000}
    single = [
        VRGaussianMixture(4, n_init=1, random_state=seed, **how).fit(X).score(X)
        for seed in range(6)
    ]
    default = VRGaussianMixture(4, random_state=0, **how).fit(X).score(X)
    assert default > max(single) - 1e-3


def test_planes_of_continuous_rows_are_structure():
    """As of the word hidden in made-up pollen: no chance puts so many rows on one."""
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    for decimals, n_rows, degenerate in ((None, 40, 0), (None, 15, 1), (1, 40, 1)):
        flat = rng.normal(size=(n_rows, 3)) * [0.3, 0.3, 0.0]
        rest = rng.normal(size=(600, 3))
        if decimals is None:
            flat = flat @ turned
        X = np.r_[flat, rest if decimals is None else np.round(rest, decimals)]
        resp = np.arange(len(X)) < n_rows
        model, data = GaussianMixtureModel("full", 1e-6), as_source(X)
        widths = np.stack([np.cov(X[rows].T) for rows in (resp, ~resp)])
        widths += 1e-6 * np.eye(3)
        parameters = Parameters(
            np.array([resp.mean(), 1.0 - resp.mean()]),
            np.stack([X[resp].mean(axis=0), X[~resp].mean(axis=0)]),
            widths,
            np.stack([np.linalg.inv(np.linalg.cholesky(one)).T for one in widths]),
        )
        run = solvers.Run(
            model, solvers.Batch(), data, model.start(parameters), tol=0.0, rng=rng
        )
        point = run.advance(0).anchor.point
        assert model.n_degenerate(point, data) == degenerate
        assert model.collapsed(point, data, 2.0).sum() == degenerate


@pytest.mark.parametrize("n_same", [0, 60])
def test_values_that_rows_share_in_several_columns_are_atoms(n_same):
    """As of one city among towns; not those of any column alone, nor of a few rows."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(400, 3)), 1)
    X[np.isin(X, [0.3, -0.2])] = 0.1
    X[:60, 0] = 0.3
    X[60 - n_same : 120 - n_same, 1] = -0.2
    X[390:, :2] = 9.0
    atoms, again = values_of(X)
    found = [its[~np.isnan(its)].tolist() for its in atoms.T]
    assert found == ([[0.3], [-0.2], []] if n_same else [[], [], []])
    assert again.all()
    assert not values_of(rng.normal(size=(400, 1)))[1].any()


def test_other_starts_have_epochs_of_their_own(monkeypatch):
    """Those of ends that lose are not taken from them; callbacks are told of all."""

    class Losing(_search.Trail):
        """A trail all of whose ends are degenerate."""

        def again(self, end, left, search=None):
            self.degenerate = lambda point: point is end.point
            return super().again(end, left, search)

    monkeypatch.setattr(_estimator, "Trail", Losing)
    monkeypatch.setattr(_search, "WORTH", 0)
    how = {"covariance_type": "diag", "random_state": 0, "max_iter": 8, "tol": 0.0}
    mixture, recorder = VRGaussianMixture(7, **how), Recorder()
    mixture.set_callbacks(recorder).fit(grid())
    n_points = _search.USUAL.n_points
    assert n_points == solvers.STARTS  # which are all that there are
    assert recorder.events.count(("end", "epoch")) == n_points * 8
    assert mixture.n_iter_ == 8


def test_atoms_come_again_for_a_reason():
    rng = np.random.default_rng(0)
    columns = {
        "codes": np.arange(100) % 10,
        "too many codes": np.arange(100) % 11,
        "measured": rng.normal(size=100),
        "one, and gaps": np.where(np.arange(100) % 3, np.nan, 1.0),
        "zeros": np.maximum(rng.normal(size=100), 0.0),
        "cut off at both ends": np.clip(rng.normal(size=100), -0.5, 0.8),
        "rounded": np.round(rng.normal(size=100), 1),
        "counts": rng.poisson(6.0, size=100),
        "seldom": np.r_[np.zeros(9), rng.normal(size=91)],
        "incomes": np.r_[np.zeros(20), np.repeat(np.arange(1.0, 17.0), 5)],
        "inside": np.r_[np.repeat(np.arange(-8.0, 8.0) + 0.5, 5), np.zeros(20)],
        "top, and gaps": np.r_[np.full(9, np.nan), np.ones(30), rng.uniform(size=61)],
    }
    atoms, _ = values_of(np.column_stack(list(columns.values())))
    found = [np.sort(its[~np.isnan(its)]).tolist() for its in atoms.T]
    ten, ends = list(range(10)), [-0.5, 0.8]
    assert found[:6] == [ten, [], [], [1.0], [0.0], ends]
    assert found[6:] == [[], [], [], [0.0], [], [1.0]]
    few, _ = values_of(rng.normal(size=(9, 1)))
    assert np.isnan(few).all()


def test_a_moved_point_sends_on_what_it_led_to():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2)) + rng.choice([-9.0, 0.0, 9.0], size=(500, 2))
    means = rng.normal(scale=6.0, size=(5, 2))
    model, point, data = start(X, means, "diag")
    proposals = _moves.moves(model, point, data, rng)
    seen = next(proposals)
    fit = solvers.Run(model, solvers.Batch(), data, seen, tol=0.0, rng=rng).advance(5)
    after = proposals.send(fit.anchor.point).parameters.means
    # All but two components of it are where the trial left them.
    same = (after[:, None] == fit.anchor.point.parameters.means).all(axis=2).any(axis=1)
    assert same.sum() == 3


def grid(seed=0):
    rng = np.random.default_rng(seed)
    centers = np.stack(np.meshgrid(range(5), range(4)), axis=-1).reshape(-1, 2) * 8.0
    return np.repeat(centers, 60, axis=0) + rng.normal(size=(1200, 2))


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_default_fit_finds_what_one_start_misses(covariance_type):
    X, how = grid(), {"covariance_type": covariance_type, "random_state": 0}
    truth = np.unique(np.round(X / 8.0), axis=0) * 8.0
    one = VRGaussianMixture(20, n_init=1, init_params="random_from_data", **how).fit(X)
    ours = VRGaussianMixture(20, init_params="random_from_data", **how).fit(X)
    assert ours.objective_ > one.objective_ + 0.02
    assert ours.init_scores_.shape == ours.init_epochs_.shape == (_search.MOST_ENDS,)
    assert ours.init_scores_.max() == pytest.approx(ours.objective_, abs=1e-12)
    assert ours.objective_ in ours.init_scores_
    assert ours.init_epochs_.max() > ours.n_iter_
    gaps = np.linalg.norm(ours.means_[:, None] - truth, axis=2)
    np.testing.assert_array_equal(np.sort(gaps.argmin(axis=1)), np.arange(20))


def test_a_search_knows_no_threads():
    fits = [
        VRGaussianMixture(20, random_state=3, n_jobs=n_jobs).fit(grid())
        for n_jobs in (1, 2)
    ]
    for name in ("means_", "covariances_", "init_scores_", "objective_"):
        np.testing.assert_array_equal(*(getattr(fit, name) for fit in fits))


def test_many_rows_are_searched_on_some(monkeypatch):
    monkeypatch.setattr(_search, "FEWEST_ROWS", 300)
    X, weight = grid(), np.ones(1200)
    weight[::2] = 0.0
    sizes = []

    def spied(start, moves, gain, data, rng, n_starts):
        sizes.append((data.n_units, data.n_weighted))
        return solvers.search(start, moves, gain, data, rng, n_starts)

    spy = type("spy", (), {"search": staticmethod(spied)})
    monkeypatch.setattr(_search, "solvers", spy)
    monkeypatch.setattr(_search, "WORTH", 0)
    monkeypatch.setattr(_search, "USUAL", _search.USUAL._replace(cost=0.0))
    how = {"covariance_type": "spherical", "random_state": 0}
    whole = VRGaussianMixture(5, **how).fit(X)
    VRGaussianMixture(5, **how).fit(X, sample_weight=weight)
    assert sizes[0] == (300, 300)
    assert sizes[1][0] == 600 and 250 < sizes[1][1] < 350
    # A quarter of a pass for each of these epochs, and more for starts.
    assert whole.history_["passes"][0] > 0.25 * 4 * 6
    assert whole.objective_ == pytest.approx(whole.score(X), abs=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_init": 1},
        {"n_components": 1},
        {"max_iter": 0},
        {"means_init": [[0.0, 0.0], [9.0, 9.0], [20.0, 20.0]]},
        {"weights_init": [0.2, 0.3, 0.5]},
        {"tempering": "annealed"},
    ],
)
def test_no_search_where_a_start_is_chosen(parameters):
    model = VRGaussianMixture(**({"n_components": 3, "random_state": 0} | parameters))
    model.fit(grid())
    assert model.init_scores_.shape == (1,)
    assert model.init_epochs_[0] == model.n_iter_


def test_a_search_costs_passes_and_seconds(monkeypatch):
    def slow(*arguments):
        time.sleep(0.05)
        return _search.search(*arguments)

    monkeypatch.setattr(_estimator, "search", slow)
    history = VRGaussianMixture(3, random_state=0).fit(grid()).history_
    assert history["seconds"][0] >= 0.05 and history["passes"][0] > 24.0


@pytest.mark.parametrize("n_rows", [80, 100])
def test_starts_are_less_alike_where_rows_are_few(monkeypatch, n_rows):
    """Than five a parameter, of which there are 18."""
    X, seen = np.random.default_rng(0).normal(size=(n_rows, 2)), []

    def watched(model, data, n_components, method, rng, n_iter):
        seen.append(method)
        return begin(model, data, n_components, method, rng, n_iter)

    begin = _search.starting_parameters
    monkeypatch.setattr(_search, "starting_parameters", watched)
    monkeypatch.setattr(_search, "WORTH", 0)
    VRGaussianMixture(3, random_state=0, n_jobs=1, tol=0.1).fit(X)
    kinds = _search.FEW_ROWS_KINDS if n_rows < 90 else _search.KINDS
    assert sorted(seen) == sorted(["kmeans", *kinds])


def test_no_search_from_an_earlier_fit():
    model = VRGaussianMixture(3, random_state=0, warm_start=True).fit(grid())
    before = model.objective_
    assert model.fit(grid()).init_scores_.shape == (1,)
    assert model.objective_ >= before - 1e-12 and model.n_iter_ < 5


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_components_of_few_rows_count_for_nothing(covariance_type):
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [rng.normal(size=(400, 6)), 40.0 + 1e-3 * rng.normal(size=(4, 6))]
    )
    model, point, data = start(X, [[0.0] * 6, [40.0] * 6], covariance_type)
    point = (
        solvers.Run(model, solvers.Batch(), data, point, tol=0.0, rng=rng)
        .advance(3)
        .anchor.point
    )
    # A covariance that all share is not made small by a few rows.
    assert model.n_degenerate(point, data) == (covariance_type != "tied")


def test_tied_components_may_be_of_few_rows():
    """Two rows far out are a component, as in scikit-learn's default fit."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 10))
    X[:2] += 30.0
    given = {"n_components": 3, "covariance_type": "tied", "random_state": 0}
    twin = GaussianMixture(**given).fit(X)
    assert VRGaussianMixture(**given).fit(X).score(X) > twin.score(X)


def test_a_start_with_outliers_loses_to_any_without():
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [20.0], [40.0]], 100, axis=0) + rng.normal(size=(300, 1))
    stuck, good = [[10.0], [39.0], [41.0]], [[0.0], [20.0], [40.0]]
    data = as_source(X)

    def begin(number, rng):
        model, point, _ = start(X, good if number else stuck, "diag")
        model.n_degenerate = lambda point, data: int(number > 0)
        return model, point, 0.0

    def moves(model, point, data, rng):
        yield start(X, good, "diag")[1]

    def none(*_):
        yield from ()

    found = solvers.search(begin, none, 0.0, data, rng)
    assert found.number == 0 and found.scores[0] < found.scores[1]
    # A move there may be, if it adds none.
    moved = solvers.search(begin, moves, 1e-4, data, rng)
    assert moved.number == 0 and moved.scores[0] == pytest.approx(moved.scores[1])

    def outlying(number, rng):
        """All starts are stuck, and what moves lead to is said to have outliers."""
        model, point, _ = start(X, stuck, "diag")
        model.n_degenerate = lambda point, data: int(point.parameters.means[0, 0] < 5.0)
        return model, point, 0.0

    refused = solvers.search(outlying, moves, 1e-4, data, rng)
    assert refused.scores.max() == pytest.approx(found.scores[0], abs=1e-3)


@pytest.mark.parametrize(
    ("scores", "degenerate", "first"),
    [
        ((-1.0, -2.0), (False, False), 0),
        ((-2.0, -1.0), (False, False), 1),
        ((-2.0, -1.0), (False, True), 0),
        ((-1.0, -1.0), (True, False), 1),
    ],
)
def test_two_searches_are_one_with_two_leaders(scores, degenerate, first):
    """The starts of the second follow those of the first."""
    one = solvers.SearchResult(
        "a", 5.0, np.array([-9.0, scores[0]]), np.array([6, 8]), 1, [(0, "b")]
    )
    other = solvers.SearchResult("c", 2.0, np.array([scores[1]]), np.array([7]), 0, [])
    one, other = (
        each._replace(degenerate=bad)
        for each, bad in zip((one, other), degenerate, strict=True)
    )
    found = one.beside(other)
    leaders = [(1, "a"), (2, "c")]
    assert (found.number, found.point) == leaders[first]
    assert found.rest == [leaders[1 - first], (0, "b")]
    assert found.leaders == 2 and found.passes == 7.0
    assert found.degenerate == degenerate[first]
    np.testing.assert_array_equal(found.scores, [-9.0, *scores])
    np.testing.assert_array_equal(found.epochs, [6, 8, 7])


def test_both_leaders_of_a_search_come_to_their_ends():
    X, stuck, good = hills()
    _, second, _ = start(X, good, "diag")
    trail, end = gone(X, stuck, passes=60.0, rest=[(2, second)])
    assert trail.again(end, 1000)[0] is None  # what search and moves may cost is spent
    trail, end = gone(X, stuck, passes=60.0, rest=[(2, second)], leaders=2)
    point, _, anew = trail.again(end, 1000)
    assert anew and trail.number == 2
    np.testing.assert_array_equal(point.parameters.means, second.parameters.means)
    assert trail.again(end, 1000)[0] is None
