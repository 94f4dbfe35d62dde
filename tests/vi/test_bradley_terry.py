"""BradleyTerry: answers, intervals, input of every kind, and scikit-learn's manners."""

import pickle
import warnings
from datetime import date

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtr
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from skvrem import BradleyTerry
from skvrem.vi.bradley_terry import _estimator
from skvrem.vi.bradley_terry._inference import differences
from skvrem.vi.bradley_terry._model import outcomes
from skvrem.vi.bradley_terry._model_posterior import LowRankKind
from skvrem.vi.diagnostics._pareto import pareto_k
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank
from tests.watching import Recorder, Untouched, callbacks, needs_callbacks


def season(n_items=8, n=300, seed=0, home=0.0, nu=0.0):
    """Matches of items 0, 1, ...; returns X, y and the skills, which sum to zero."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(size=n_items)
    skill -= skill.mean()
    a = rng.integers(n_items, size=n)
    b = (a + 1 + rng.integers(n_items - 1, size=n)) % n_items
    u = skill[a] - skill[b] + home
    odds = np.stack([np.exp(-u / 2), np.full(n, nu), np.exp(u / 2)])
    ends = np.cumsum(odds / odds.sum(axis=0), axis=0)
    y = 0.5 * (rng.uniform(size=n) > ends[:2]).sum(axis=0)
    return np.stack([a, b], axis=1), y, skill


# Answers

# choix 0.4.1: ep_pairwise(8, winners and losers of season(), 1.0, model="logit"), as
# posterior means and standard deviations.
EP_MEAN = [
    -0.057006,
    -0.681680,
    0.540779,
    -0.381489,
    -0.748454,
    0.100608,
    0.866285,
    0.360957,
]
EP_STD = [
    0.403399,
    0.424357,
    0.418714,
    0.407671,
    0.415379,
    0.418801,
    0.414332,
    0.410833,
]


def test_against_expectation_propagation():
    X, y, _ = season()
    q = BradleyTerry(1.0).fit(X, y).posterior_
    np.testing.assert_allclose(q.mean, EP_MEAN, atol=3e-3)
    np.testing.assert_allclose(q.scale, EP_STD, rtol=6e-3)


def test_choix_still_says_so():
    choix = pytest.importorskip("choix")
    X, y, _ = season()
    won = [tuple(map(int, row)) for row in np.where(y[:, None] == 1.0, X, X[:, ::-1])]
    mean, covariance = choix.ep_pairwise(8, won, 1.0, model="logit")
    np.testing.assert_allclose(mean, EP_MEAN, atol=1e-5)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), EP_STD, atol=1e-5)


def test_intervals_cover():
    inside = []
    for seed in range(20):
        X, y, skill = season(12, 150, seed)
        model = BradleyTerry(1.0).fit(X, y)
        a, b = np.triu_indices(12, 1)
        _, lower, upper = model.difference_interval(a, b)
        inside.append((lower < skill[a] - skill[b]) & (skill[a] - skill[b] < upper))
    # 1,320 intervals that depend on each other: a few of 220 real ones miss.
    assert 0.93 < np.mean(inside) < 0.97


def test_ties_and_home_advantage_are_found():
    X, y, skill = season(6, 20_000, home=0.4, nu=0.8)
    model = BradleyTerry(ties="davidson", home_advantage=True).fit(X, y)
    assert abs(model.tie_parameter_ - 0.8) < 0.05
    assert abs(model.home_advantage_ - 0.4) < 4.0 * model.home_advantage_std_ < 0.1
    z = (model.skill_ - skill) / model.skill_std_
    assert np.abs(z).max() < 4.0
    other = clone(model).set_params(ties="rao-kupper").fit(X, y)
    # Skills are on another scale there, but mean the same.
    assert other.tie_parameter_ > 1.0
    proba, others = model.predict_proba(X[:100]), other.predict_proba(X[:100])
    np.testing.assert_allclose(others, proba, atol=0.03)
    np.testing.assert_array_equal(np.argsort(other.skill_), np.argsort(model.skill_))


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_probabilities_are_those_of_the_definitions(ties):
    X, y, _ = season(nu=0.7)
    model = BradleyTerry(ties=ties).fit(X, y)
    a, b = np.exp(model.skill_[X.T])
    if ties == "davidson":
        middle = model.tie_parameter_ * np.sqrt(a * b)
        expected = np.stack([b, middle, a], axis=1) / (a + b + middle)[:, None]
    else:
        theta = model.tie_parameter_
        win, loss = a / (a + theta * b), b / (b + theta * a)
        expected = np.stack([loss, 1.0 - win - loss, win], axis=1)
    np.testing.assert_allclose(model.predict_proba(X, "plugin"), expected)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert np.abs(proba - expected).max() < 0.1
    assert set(model.classes_) == {0.0, 0.5, 1.0}


def test_predictions_average_over_the_posterior():
    X, y, _ = season(n=40)
    model = BradleyTerry().fit(X, y)
    Z = model.sample_posterior(200_000, random_state=0)["skills"]
    np.testing.assert_allclose(Z.sum(axis=1), 0.0, atol=1e-12)
    for a, b in ((0, 1), (2, 5)):
        found = model.predict_proba([[a, b]])[0, 1]
        np.testing.assert_allclose(found, expit(Z[:, a] - Z[:, b]).mean(), atol=3e-3)
    np.testing.assert_allclose(Z.std(axis=0), model.skill_std_, rtol=0.01)
    np.testing.assert_allclose(Z.mean(axis=0), model.skill_, atol=5e-3)
    log_p = model.predict_log_proba(X)
    each = np.where(y == 1.0, log_p[:, 1], log_p[:, 0])
    np.testing.assert_allclose(model.score(X, y), each.mean())
    np.testing.assert_array_equal(model.predict(X), log_p[:, 1] > log_p[:, 0])


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
def test_kinds_of_posterior(posterior):
    X, y, _ = season(30, 2000)
    model = BradleyTerry(posterior=posterior, rank=5).fit(X, y)
    full = BradleyTerry().fit(X, y)
    assert model.converged_
    np.testing.assert_allclose(model.skill_, full.skill_, atol=0.01)
    kind = type(model.posterior_).__name__
    assert kind.lower() == posterior
    table = str(getattr(model.summary(), "attrs", model.summary()))
    assert ("too small" in table) == (posterior == "meanfield")
    if posterior == "fullrank":
        assert model.elbo_ == full.elbo_
    else:
        assert model.elbo_ < full.elbo_
        assert model.posterior_.scale.mean() < full.posterior_.scale.mean()
    interval = model.difference_interval(3, [4, 5])
    draws = model.posterior_.sample(100_000, random_state=0)
    np.testing.assert_allclose(
        interval.upper - interval.mean,
        1.959964 * (draws[:, [3]] - draws[:, [4, 5]]).std(axis=0),
        rtol=0.02,
    )


# The same matches, told in other ways


def same_fit(a, b, atol=1e-8):
    np.testing.assert_allclose(a.skill_, b.skill_, atol=atol)
    np.testing.assert_allclose(a.skill_std_, b.skill_std_, atol=atol)
    np.testing.assert_allclose(a.elbo_, b.elbo_, rtol=1e-9)


@pytest.mark.parametrize("ties", [None, "davidson", "rao-kupper"])
def test_who_comes_first_does_not_matter(ties, rng):
    X, y, _ = season(nu=0.5)
    model = BradleyTerry(ties=ties)
    swap = rng.uniform(size=len(X)) < 0.5
    order = rng.permutation(len(X))
    X2, y2 = np.where(swap[:, None], X[:, ::-1], X), np.where(swap, 1.0 - y, y)
    same_fit(clone(model).fit(X, y), clone(model).fit(X2[order], y2[order]))


def test_an_advantage_that_only_the_prior_tells_is_told_of():
    X, y, _ = season(home=0.5)
    swap = y == 0.0
    winner_first = np.where(swap[:, None], X[:, ::-1], X)
    home = np.where(swap, -1, 1)[:, None]
    model = BradleyTerry(home_advantage=True)
    with pytest.warns(UserWarning, match="at home won every match"):
        model.fit(winner_first)
    with pytest.warns(UserWarning, match="at home lost every match"):
        model.fit(winner_first, np.zeros(300))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = model.fit(np.hstack([winner_first, home])).home_advantage_
        BradleyTerry().fit(winner_first)
    assert told == pytest.approx(clone(model).fit(X, y).home_advantage_, abs=1e-6)


def test_home_advantage_swaps_sides():
    X, y, _ = season(home=0.5)
    model = BradleyTerry(home_advantage=True, posterior="meanfield")
    one, other = clone(model).fit(X, y), clone(model).fit(X[:, ::-1], 1.0 - y)
    same_fit(one, other)
    np.testing.assert_allclose(one.home_advantage_, -other.home_advantage_, atol=1e-8)


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
def test_a_column_says_who_is_at_home(posterior, rng):
    X, y, _ = season(home=0.5, n=2000)
    params = {"home_advantage": True, "posterior": posterior, "rank": 3}
    model = BradleyTerry(**params, tol=1e-9)
    plain = clone(model).fit(X, y)
    home = np.ones((len(X), 1), int)
    same_fit(clone(model).fit(np.hstack([X, home]), y), plain)
    # Whoever comes first: the home team is the same.
    swap = rng.uniform(size=(len(X), 1)) < 0.5
    X2 = np.where(swap, np.hstack([X[:, ::-1], -home]), np.hstack([X, home]))
    y2 = np.where(swap[:, 0], 1.0 - y, y)
    swapped = clone(model).fit(X2, y2)
    same_fit(swapped, plain)
    np.testing.assert_allclose(swapped.home_advantage_, plain.home_advantage_, 1e-6)
    np.testing.assert_allclose(swapped.score(X2, y2), plain.score(X, y), rtol=1e-8)
    one = plain.predict_proba([[0, 1]])[0]
    there = swapped.predict_proba([[0, 1, 1], [1, 0, -1], [0, 1, 0]])
    np.testing.assert_allclose(there[:2], [one, one[::-1]], rtol=1e-6)
    assert there[2, 1] < there[0, 1] - 0.05


def test_neutral_ground_is_no_advantage():
    X, y, _ = season(home=0.6, n=6000)
    more, z, _ = season(seed=0, n=6000)  # of the same skills
    labels = np.array(list("abcdefgh"))[np.vstack([X, more])]
    home = np.repeat([1, 0], 6000).astype(str)[:, None]
    X, y = np.hstack([labels, home]), np.append(y, z)
    model = BradleyTerry(home_advantage=True).fit(X, y)
    assert model.n_features_in_ == 3
    assert abs(model.home_advantage_ - 0.6) < 4.0 * model.home_advantage_std_ < 0.2
    blind = BradleyTerry(home_advantage=True).fit(X[:, :2], y)
    assert blind.home_advantage_ < 0.4 and blind.elbo_ < model.elbo_ - 30.0
    assert model.pareto_k_ < 0.7
    again = BradleyTerry(home_advantage=True)
    for part in (slice(0, 7000), slice(7000, None)):
        again.partial_fit(X[part], y[part])
    assert abs(again.home_advantage_ - model.home_advantage_) < 0.01


def test_who_is_at_home_is_one_of_three_numbers():
    model = BradleyTerry(home_advantage=True)
    for bad in (2, 0.5, np.nan, "yes"):
        with pytest.raises(ValueError, match=r"third column of X must be.* in row 1"):
            model.fit(np.array([["a", "b", 1], ["b", "c", bad]], dtype=object))
    with pytest.raises(ValueError, match="asks for home_advantage=True"):
        BradleyTerry().fit([["a", "b", 1]])
    model.fit([["a", "b", 1], ["b", "a", 0]])
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.predict([["a", "b"]])


def test_weights_are_repetitions(rng):
    X, y, _ = season(nu=0.5)
    weight = rng.integers(3, size=len(X))
    model = BradleyTerry(ties="davidson", home_advantage=True)
    weighted = clone(model).fit(X, y, weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    same_fit(weighted, repeated)
    np.testing.assert_array_equal(weighted.n_matches_, repeated.n_matches_)
    # A match without weight is none, and its items are not there.
    more = np.concatenate([X, [[98, 99]]])
    again = clone(model).fit(more, np.append(y, 1.0), np.append(weight, 0.0))
    same_fit(again, weighted)
    assert 99 not in again.items_


def test_half_a_win_each():
    X, y, _ = season(nu=0.5)
    tied = y == 0.5
    X2 = np.concatenate([X, X[tied]])
    y2 = np.concatenate([np.where(tied, 0.0, y), np.ones(tied.sum())])
    weight = np.where(np.append(tied, np.ones(tied.sum(), bool)), 0.5, 1.0)
    same_fit(BradleyTerry().fit(X, y), BradleyTerry().fit(X2, y2, weight))


def test_labels_of_every_kind():
    pd = pytest.importorskip("pandas")
    X, y, _ = season()
    reference = BradleyTerry().fit(X, y)
    names = np.array([f"player {i}" for i in range(8)])[X]
    frame = pd.DataFrame(names.astype(object), columns=["winner", "loser"])
    for labels in (names, names.astype(object), frame, frame.astype("category")):
        model = BradleyTerry().fit(labels, y)
        same_fit(model, reference)
        np.testing.assert_array_equal(model.predict(labels), reference.predict(X))
        assert model.items_[3] == "player 3"
        assert model.difference_interval("player 1", "player 2").mean < 10.0
    assert list(model.feature_names_in_) == ["winner", "loser"]
    same_fit(BradleyTerry().fit(X.astype(np.float32), y), reference)
    same_fit(BradleyTerry().fit(X.tolist(), y.tolist()), reference)


@pytest.mark.parametrize("listed", [False, True])
def test_a_tuple_may_be_a_label(listed):
    A, B, C = (1, "a"), (2, "b"), (3, "c")
    won = [(A, B), (B, C), (A, C), (B, A)]
    rows = np.empty((4, 2), object)
    for row, pair in zip(rows, won, strict=True):
        row[0], row[1] = pair
    model = BradleyTerry().fit(won if listed else rows)
    plain = BradleyTerry().fit([["abc"[item[0] - 1] for item in pair] for pair in won])
    assert model.items_.tolist() == [A, B, C]
    np.testing.assert_array_equal(model.skill_, plain.skill_)
    assert model.difference_interval(A, B) == plain.difference_interval("a", "b")
    for several in ([A, B], (A, B), model.items_[:2]):
        found = model.difference_interval(several, C)
        expected = plain.difference_interval(["a", "b"], "c")
        np.testing.assert_array_equal(found, expected)
        found = model.rank_probability(several, 100, 0)
        expected = plain.rank_probability(["a", "b"], 100, 0)
        np.testing.assert_array_equal(found, expected)
    proba = model.predict_proba([(A, C)])
    np.testing.assert_array_equal(proba, plain.predict_proba([["a", "c"]]))
    with pytest.raises(ValueError, match=r"1 items were not in the fit: \(1, 'z'\)"):
        model.difference_interval((1, "z"), B)


def test_all_won_without_y():
    X, y, _ = season()
    won = np.where(y[:, None] == 1.0, X, X[:, ::-1])
    same_fit(BradleyTerry().fit(won), BradleyTerry().fit(X, y))
    np.testing.assert_allclose(
        BradleyTerry().fit(won).score(won), BradleyTerry().fit(X, y).score(X, y)
    )


# Items


def test_unknown_items_have_the_skill_of_the_prior():
    X, y, _ = season()
    model = BradleyTerry(prior_scale=0.7).fit(X, y)
    np.testing.assert_allclose(model.predict_proba([[98, 99]]), 0.5)
    mean, variance = differences(model, np.array([[-1, -1], [2, -1]]))
    np.testing.assert_allclose(mean, [0.0, model.posterior_.mean[2]])
    own = model.posterior_.variance[2]
    np.testing.assert_allclose(variance, [0.98, 0.49 + own])
    model.set_params(handle_unknown="error")
    with pytest.raises(ValueError, match=r"2 items were not in the fit: 98, 99"):
        model.predict([[98, 99], [1, 2]])
    for call in (
        lambda: model.difference_interval(1, 77),
        lambda: model.rank_probability([1, 77]),
    ):
        with pytest.raises(ValueError, match="not in the fit: 77"):
            call()


def test_groups_that_never_meet_are_warned_of():
    with pytest.warns(UserWarning, match=r"2 groups \(3, 2 items\)"):
        model = BradleyTerry().fit([[0, 1], [1, 2], [3, 4]])
    assert np.isfinite(model.skill_).all()


def test_ranks():
    X, y, _ = season(n=60)
    model = BradleyTerry().fit(X, y)
    P = model.rank_probability(n_samples=4000, random_state=0)
    np.testing.assert_allclose(P.sum(axis=0), 1.0)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    two = model.rank_probability([4, 1], n_samples=40_000, random_state=0)
    mean, lower, _ = model.difference_interval(4, 1)
    exact = ndtr(mean / ((mean - lower) / 1.959964))
    np.testing.assert_allclose(two[0, 0], exact, atol=4.0 * 0.5 / 200.0)
    np.testing.assert_array_equal(P, model.rank_probability(None, 4000, 0))


def test_tables():
    pd = pytest.importorskip("pandas")
    X, y, _ = season()
    model = BradleyTerry(home_advantage=True, ties="davidson")
    y[:20] = 0.5
    model.fit(X, y)
    table = model.ranking(level=0.9, top=3)
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["rank", "skill", "sd", "5 %", "95 %", "matches"]
    assert list(table["rank"]) == [1, 2, 3]
    assert table["skill"].is_monotonic_decreasing
    assert table.attrs["tie parameter"] == model.tie_parameter_
    whole = model.summary()
    assert list(whole.index) == list(map(str, model.items_))
    np.testing.assert_allclose(whole["skill"].sum(), 0.0, atol=1e-12)
    assert whole["matches"].sum() == 2 * len(X)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        model.ranking(level=95)


# Streams


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
def test_stream_comes_near_the_fit(posterior):
    X, y, _ = season(n=900, home=0.3, nu=0.6)
    model = BradleyTerry(
        posterior=posterior, rank=3, ties="davidson", home_advantage=True
    )
    whole = clone(model).fit(X, y)
    for start in range(0, 900, 300):
        rows = slice(start, start + 300)
        model.partial_fit(X[rows], y[rows])
    # Independent skills forget what they have in common at every batch.
    atol = 0.15 if posterior == "meanfield" else 0.03
    np.testing.assert_allclose(model.skill_, whole.skill_, atol=atol)
    np.testing.assert_allclose(model.tie_parameter_, whole.tie_parameter_, rtol=0.02)
    np.testing.assert_array_equal(model.n_matches_, whole.n_matches_)
    assert hasattr(whole, "elbo_") and not hasattr(model, "elbo_")
    if posterior != "meanfield":
        np.testing.assert_allclose(model.skill_std_, whole.skill_std_, rtol=0.03)


def test_stream_brings_new_items():
    X, y, _ = season()
    old = (X < 5).all(axis=1)
    model = BradleyTerry(1.0).partial_fit(X[old], y[old])
    model = pickle.loads(pickle.dumps(model)).partial_fit(X[~old], y[~old])
    whole = BradleyTerry(1.0).fit(X, y)
    np.testing.assert_array_equal(model.items_, whole.items_)
    np.testing.assert_allclose(model.skill_, whole.skill_, atol=0.02)
    assert model.partial_fit([[-5, 0]]).items_[-1] == -5
    np.testing.assert_array_equal(model.predict([[-5, 0]]).shape, [1])
    # A fit begins anew.
    same_fit(model.fit(X, y), whole)


def test_a_stream_goes_on_with_the_whole_covariance(monkeypatch):
    """A few matches that bring it beyond are no reason to look for directions of it."""
    monkeypatch.setattr(_estimator, "MOST_FULL", 8)
    monkeypatch.setattr(_estimator, "MOST_ON", 10)
    X, y, _ = season(8, 200)
    model = BradleyTerry().partial_fit(X, y)
    for item, kind in ((8, FullRank), (9, FullRank), (10, LowRank)):
        model.partial_fit([[0, item]], [1.0])
        assert isinstance(model.posterior_, kind)
    # All are seen again by what a fit to them takes.
    model = BradleyTerry().partial_fit(X, y).partial_fit([[0, 8]], [1.0])
    model.partial_fit(X, y)
    assert isinstance(model.posterior_, LowRank)


def test_directions_are_found_a_few_times_a_step(monkeypatch):
    """Not for every short step that is tried, of a fit or a batch."""
    rng = np.random.default_rng(0)
    skill = 3.0 * rng.normal(size=300)
    X = np.stack([rng.choice(300, 2, replace=False) for _ in range(610)])
    y = (rng.logistic(size=610) < -np.diff(skill[X])[:, 0]).astype(float)
    found, best = [], LowRankKind.best
    monkeypatch.setattr(
        LowRankKind, "best", lambda *given: found.append(1) or best(*given)
    )
    model = BradleyTerry(posterior="lowrank", rank=10).fit(X[:600], y[:600])
    assert model.converged_ and len(found) <= 3 * model.n_iter_ + 2
    found.clear()
    model.partial_fit(X[600:], y[600:])
    assert model.converged_ and len(found) <= 3 * model.n_iter_ + 2


def test_a_low_rank_is_turned_round_a_few_times_a_step(monkeypatch):
    """Not for every product of an eigenvalue's search."""
    X, y, _ = season(60, 600)
    model = BradleyTerry(posterior="lowrank", rank=5).fit(X[:590], np.round(y[:590]))
    turned, turn = [], LowRank._correction
    monkeypatch.setattr(
        LowRank, "_correction", lambda self: turned.append(1) or turn(self)
    )
    model.partial_fit(X[590:], np.round(y[590:]))
    assert len(turned) < 20 * (model.n_iter_ + 1)


@pytest.mark.parametrize("ties", [None, "davidson"])
@pytest.mark.parametrize("home_advantage", [False, True])
def test_a_batch_is_about_who_played(ties, home_advantage, monkeypatch):
    X, y, _ = season(60, 600, home=0.5, nu=0.4)
    y = y if ties else np.round(y)
    model = BradleyTerry(ties=ties, home_advantage=home_advantage, tol=1e-9)
    model.fit(X[:590], y[:590])
    other = pickle.loads(pickle.dumps(model))
    sizes, make = [], _estimator.SkillModel

    def recorded(matches, prior, *given):
        sizes.append(prior.n_dim)
        return make(matches, prior, *given)

    monkeypatch.setattr(_estimator, "SkillModel", recorded)
    model.partial_fit(X[590:], y[590:])
    assert max(sizes) <= 20 + home_advantage
    # Nobody is left out of the same step.
    monkeypatch.setattr(_estimator, "FullRank", type(None))
    other.partial_fit(X[590:], y[590:])
    assert max(sizes) == 60 + home_advantage
    q, p = model.posterior_, other.posterior_
    np.testing.assert_allclose(q.mean, p.mean, atol=1e-6)
    np.testing.assert_allclose(q.covariance(), p.covariance(), atol=1e-6)
    np.testing.assert_allclose(q.factor, np.tril(q.factor))
    assert model.objective_ == pytest.approx(other.objective_, abs=1e-6)
    assert model._eta_precision == pytest.approx(other._eta_precision, rel=1e-5)


def test_stream_keeps_its_advantage():
    X, y, _ = season()
    model = BradleyTerry().partial_fit(X, y).set_params(home_advantage=True)
    untouched = Untouched(model)
    with pytest.raises(ValueError, match="home_advantage has changed"):
        model.partial_fit(X, y)
    untouched.check()


# Bad input

BAD = {
    "no second column": (([[0], [1]], None), "two columns|expecting 2"),
    "a third column": (([[0, 1, 2]], None), "two columns|expecting 2"),
    "itself": (([[0, 1], [3, 3]], None), "Row 1 of X is a match of .*3.* against"),
    "missing": (([[0.0, 1.0], [np.nan, 2.0]], None), "missing in row 1"),
    "None": ((np.array([["a", "b"], ["a", None]], object), None), "missing in row 1"),
    "NaN in a list": (([("a", np.nan), ("a", "b")], None), "missing in row 0"),
    "NaN in lists of codes": (([[0, 1], [np.nan, 1]], None), "missing in row 1"),
    "mixed": ((np.array([["a", 1], ["b", 2]], object), None), "one type"),
    "mixed in a list": (([(1, "b"), ("a", "b")], None), "one type .* int and str"),
    "winners": (([("a", "b"), ("c", "b")], ["a", "b"]), "'a'. It names the winners"),
    "winners' codes": (([[3, 4], [5, 4]], [3, 4]), "got 3 in row 0. It names"),
    "words": (([("a", "b"), ("c", "b")], ["won", "lost"]), "1 where .* 0 is 'won'"),
    "above": (([[0, 1], [1, 2]], [1.0, 2.0]), "y must be between .* got 2 in row 1"),
    "NaN": (([[0, 1]], [np.nan]), "y contains NaN"),
    "too few results": (([[0, 1], [1, 2]], [1.0]), "one result for each of the 2"),
    "no match": ((np.empty((0, 2)), None), "0 sample"),
    "weights": (([[0, 1]], [1.0], [-1.0]), "sample_weight must not be negative"),
}


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([("a", "b"), ("b", "c")], "U"),
        ([(b"a", b"b")], "S"),
        ([(1, 2), (2, 3)], "i"),
        ([(1, 2.5)], "f"),
        (np.array([["a", "b"]], object), "O"),
    ],
)
def test_labels_of_one_kind_stay_what_they_are(rows, kind):
    items = BradleyTerry().fit(rows).items_
    assert items.dtype.kind == kind
    assert set(items.tolist()) == {label for row in rows for label in row}


@pytest.mark.parametrize("kind", ["names", "numbers"])
def test_frames_of_polars(kind):
    pl = pytest.importorskip("polars")
    rows = np.array([[0, 1], [1, 2], [2, 0], [0, 2]])
    if kind == "names":
        rows = np.array(["ann", "bob", "cyd"])[rows]
    frame = pl.DataFrame({"a": rows[:, 0].tolist(), "b": rows[:, 1].tolist()})
    result = [1, 0, 1, 1]
    model, plain = (BradleyTerry().fit(X, result) for X in (frame, rows))
    np.testing.assert_array_equal(model.skill_, plain.skill_)
    np.testing.assert_array_equal(model.predict_proba(frame), plain.predict_proba(rows))
    with pytest.raises(ValueError, match="column of dates"):
        BradleyTerry().fit(frame.with_columns(b=pl.lit(date(2020, 1, 1))), result)


def test_a_column_of_results():
    rows, result = np.array([[0, 1], [1, 2], [2, 0], [0, 2]]), np.array([1, 0, 1, 1])
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = BradleyTerry().fit(rows, result[:, None])
    np.testing.assert_array_equal(model.skill_, BradleyTerry().fit(rows, result).skill_)
    with pytest.raises(ValueError, match="one result for each of the 4 matches"):
        BradleyTerry().fit(rows, np.ones((4, 2)))


def test_a_column_of_numbers_beside_names():
    rows = [("a", "b", 1), ("b", "c", 0), ("a", "c", -1)]
    model = BradleyTerry(home_advantage=True).fit(rows)
    same = BradleyTerry(home_advantage=True).fit(np.array(rows))
    assert np.array_equal(model.posterior_.mean, same.posterior_.mean)
    assert model.items_.dtype.kind == "U"


def test_winners_as_results():
    rows, winners = [("a", "b"), ("c", "b"), ("a", "c")], ["a", "b", "c"]
    results = np.asarray(winners) == np.asarray(rows)[:, 0]  # as the message has it
    assert results.tolist() == [True, False, False]
    model = BradleyTerry().fit(rows, results)
    first = BradleyTerry().fit([("a", "b"), ("b", "c"), ("c", "a")])
    assert np.allclose(model.posterior_.mean, first.posterior_.mean)


def test_a_stream_goes_on_with_labels_of_its_kind():
    model = BradleyTerry().partial_fit([("a", "b")])
    untouched = Untouched(model)
    with pytest.raises(ValueError, match="one type"):
        model.partial_fit([(1, 2)])
    untouched.check()
    with pytest.raises(ValueError, match="missing in row 0"):
        model.predict_proba([("a", np.nan)])


@pytest.mark.parametrize("state", ["new", "fitted"])
@pytest.mark.parametrize("kind", list(BAD))
def test_bad_matches(kind, state):
    arguments, message = BAD[kind]
    X, y, _ = season()
    model = BradleyTerry()
    if state == "fitted":
        model.fit(X, y)
    untouched = Untouched(model)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=message):
            method(*arguments)
        untouched.check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prior_scale", 0.0),
        ("prior_scale", -1.0),
        ("prior_scale", np.inf),
        ("prior_scale", "auto"),
        ("prior_scale", None),
        ("prior_scale", [1.0, 1.0]),
        ("ties", "half"),
        ("home_advantage", "yes"),
        ("posterior", "full"),
        ("rank", 0),
        ("handle_unknown", "ignore"),
        ("tol", -1.0),
        ("max_iter", 1.5),
        ("n_jobs", 0),
    ],
)
def test_bad_parameters(name, value):
    with pytest.raises(ValueError, match=name):
        BradleyTerry(**{name: value}).fit([[0, 1]])


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
@pytest.mark.parametrize("n_tied", [0, 3, 12])
def test_prior_of_ties(ties, n_tied):
    """Of items that are known to be equal the posterior is one number's."""
    X = [(0, 1)] * 12
    y = np.where(np.arange(12) < n_tied, 0.5, np.arange(12) % 2)

    def loss(log_ratio):
        # A ratio of one gives each of three results a third.
        eta = log_ratio if ties == "davidson" else log_ratio + np.log(3.0)
        lost, tied, _ = outcomes(ties, np.zeros(1), eta)[0]
        likely = n_tied * np.log(tied) + (12 - n_tied) * np.log(lost)
        return 0.5 * log_ratio**2 - likely

    best = np.exp(minimize_scalar(loss, (-1.0, 1.0), tol=1e-10).x)
    model = BradleyTerry(1e-5, ties=ties, tol=1e-12).fit(X, y)
    if ties == "rao-kupper":
        best = np.sqrt(1.0 + 3.0 * best)
    assert model.tie_parameter_ == pytest.approx(best, rel=1e-4)
    assert model.converged_
    if not n_tied:  # a twelfth or so, as of one match more with all results alike
        assert 0.02 < model.predict_proba([(0, 1)])[0, 1] < 0.15


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_stream_whose_first_matches_have_no_tie(ties):
    X, y, _ = season()
    y = np.where((np.arange(len(y)) % 4 == 3) & (np.arange(len(y)) > 30), 0.5, y)
    stream = BradleyTerry(ties=ties, tol=1e-9).partial_fit(X[:30], y[:30])
    np.testing.assert_array_equal(stream.classes_, [0.0, 0.5, 1.0])
    stream.partial_fit(X[30:], y[30:])
    whole = BradleyTerry(ties=ties, tol=1e-9).fit(X, y)
    assert stream.tie_parameter_ == pytest.approx(whole.tie_parameter_, rel=1e-3)
    # Of a stream that keeps no matches the last posterior is the prior, once.
    some = BradleyTerry(1.0, ties=ties, tol=1e-9).fit(X[:200], y[:200])
    some.partial_fit(X[200:], y[200:])
    whole = BradleyTerry(1.0, ties=ties, tol=1e-9).fit(X, y)
    assert some.tie_parameter_ == pytest.approx(whole.tie_parameter_, rel=0.02)
    assert some._eta_precision == pytest.approx(whole._eta_precision, rel=0.05)


def test_results_are_won_tied_or_lost():
    with pytest.raises(ValueError, match=r"won, tied or lost; got 0\.3 in row 0"):
        BradleyTerry(ties="davidson").fit([[0, 1]], [0.3])


def test_too_few_steps_are_warned_of():
    X, y, _ = season()
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 epochs"):
        model = BradleyTerry(max_iter=1).fit(X, y)
    assert not model.converged_
    # Certain results: the prior keeps skills finite.
    model = BradleyTerry(prior_scale=5.0).fit([[0, 1]] * 1000)
    assert model.converged_ and np.isfinite(model.skill_).all()
    assert BradleyTerry(max_iter=0).fit(X, y).n_iter_ == 0


# scikit-learn's manners


def test_what_the_other_checks_look_for():
    X, y, _ = season()
    X.flags.writeable = y.flags.writeable = False
    model = BradleyTerry()
    params = model.get_params()
    for method in ("predict", "predict_proba", "score", "ranking", "summary"):
        with pytest.raises(NotFittedError):
            arguments = () if method in ("ranking", "summary") else (X,)
            getattr(model, method)(*arguments)
    assert model.fit(X, y) is model
    assert model.get_params() == params
    assert model.n_features_in_ == 2
    before = pickle.dumps(model)
    proba = model.predict_proba(X)
    model.score(X, y), model.summary(), model.rank_probability([1, 2], 10)
    assert pickle.dumps(model) == before
    # Rows are answered one by one, in any order; a second fit is the first.
    np.testing.assert_allclose(
        np.concatenate([model.predict_proba(row[None]) for row in X[:20]]), proba[:20]
    )
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), proba)
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.predict(X[:, :1])
    with pytest.raises(ValueError, match="2D array"):
        model.predict(X[0])


def test_searches():
    X, y, _ = season()
    assert cross_val_score(BradleyTerry(), X, y).mean() > np.log(0.5)
    search = GridSearchCV(BradleyTerry(), {"prior_scale": [0.01, 1.0]}).fit(X, y)
    assert search.best_params_ == {"prior_scale": 1.0}


def test_threads_and_repeats_give_the_same_bits(monkeypatch):
    monkeypatch.setattr("skvrem.vi.bradley_terry._model.CHUNK", 7)
    X, y, _ = season(30, 2000, nu=0.4)
    fits = [
        BradleyTerry(ties="davidson", posterior="lowrank", n_jobs=n).fit(X, y)
        for n in (1, 2, 1)
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.skill_, fits[0].skill_)
        np.testing.assert_array_equal(other.skill_std_, fits[0].skill_std_)
    monkeypatch.undo()
    same_fit(BradleyTerry(ties="davidson", posterior="lowrank").fit(X, y), fits[0])


def test_interrupt_leaves_no_trace(monkeypatch):
    X, y, _ = season()
    model = BradleyTerry().fit(X, y)
    untouched = Untouched(model)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "skvrem.vi.bradley_terry._model.SkillModel.predicted_gain", interrupt
    )
    for method in (model.fit, model.partial_fit):
        with pytest.raises(KeyboardInterrupt):
            method(X, y)
        untouched.check()


@needs_callbacks
def test_callbacks_see_the_skills():
    X, y, _ = season()
    recorder = Recorder(X)
    model = BradleyTerry().set_callbacks(recorder).fit(X, y)
    assert callbacks is not None and model.converged_


def test_history_and_lines(capsys):
    X, y, _ = season()
    model = BradleyTerry(1.0, verbose=2).fit(X, y)
    assert capsys.readouterr().out.count("objective") == model.n_iter_
    assert (np.diff(model.history_["objective"]) > 0.0).all()
    assert model.history_["objective"][-1] == model.elbo_
    gains = model.history_["predicted_gain"]
    assert 0.0 < gains[-1] < model.tol < gains[0]
    assert len(model.history_["passes"]) == model.n_iter_ + 1


# How far the posterior can be trusted


@pytest.mark.parametrize(
    ("params", "nu"),
    [
        ({}, 0.0),
        ({"posterior": "lowrank", "rank": 3, "home_advantage": True}, 0.0),
        ({"ties": "davidson", "prior_scale": 0.5}, 0.7),
        ({"ties": "rao-kupper", "home_advantage": True}, 0.7),
    ],
)
def test_pareto_k_from_one_match_after_the_other(params, nu):
    X, y, _ = season(nu=nu, home=0.4)
    model = BradleyTerry(**params).fit(X, y)
    q, sd = model._given_prior, np.full(8 + model._offset, model.prior_scale_)
    sd[: model._offset] = 1.0
    draws = q.sample(1000, np.random.default_rng(0))
    log_p = -0.5 * np.square(draws / sd).sum(axis=1) - np.log(sd).sum()
    for (a, b), won in zip(X, y, strict=True):
        skill = draws[:, model._offset :]
        u = skill[:, a] - skill[:, b]
        if model.home_advantage:
            u = u + draws[:, 0]
        t = model.tie_parameter_ if nu else 0.0
        if model.ties == "rao-kupper":
            win, loss = expit(u - np.log(t)), expit(-u - np.log(t))
        else:
            odds = np.exp(u / 2.0), np.exp(-u / 2.0)
            win, loss = (one / (sum(odds) + t) for one in odds)
        log_p += np.log({0.0: loss, 0.5: 1.0 - win - loss, 1.0: win}[won])
    assert model.pareto_k_ == pytest.approx(
        pareto_k(log_p - q.logpdf(draws)).shape, abs=1e-6
    )
    assert model.pareto_k_ < 0.7


@pytest.mark.parametrize("ties", [None, "davidson"])
def test_new_results_are_as_probable_as_predicted(ties):
    X, y, _ = season(nu=0.7 if ties else 0.0, home=0.4)
    model = BradleyTerry(ties=ties, home_advantage=True).fit(X, y)
    matches = [[0, 1], [5, 2], [3, 99], [99, 98]]
    new = model.sample_predictive(matches, 40_000, random_state=0)
    assert new.shape == (40_000, 4)
    shares = (new[..., None] == model.classes_).mean(axis=0)
    np.testing.assert_allclose(shares, model.predict_proba(matches), atol=0.012)
    # An unknown item has one skill in a draw.
    twice = model.sample_predictive([[99, 0]] * 2, 20_000, random_state=0)
    assert np.mean(twice[:, 0] == twice[:, 1]) > 0.02 + sum(
        np.mean(twice[:, 0] == c) ** 2 for c in model.classes_
    )
    with pytest.raises(ValueError, match="not in the fit"):
        model.set_params(handle_unknown="error").sample_predictive(matches)


def test_pareto_k_tells_what_independent_skills_leave_out():
    X, y, _ = season(n_items=40, n=4000)
    k = [
        BradleyTerry(posterior=p).fit(X, y).pareto_k_ for p in ("fullrank", "meanfield")
    ]
    assert k[0] < 0.5 and k[1] > k[0] + 0.2


def test_pareto_k_is_that_of_the_last_matches():
    X, y, _ = season()
    model = BradleyTerry().fit(X[:100], y[:100])
    before = model.pareto_k_
    assert model.partial_fit(X[100:], y[100:]).pareto_k_ != before
    again = pickle.loads(pickle.dumps(model))
    assert again.pareto_k_ == model.pareto_k_
    small = len(pickle.dumps(model))
    model.fit(np.tile(X, (50, 1)), np.tile(y, 50))
    assert len(pickle.dumps(model)) < small + 2000
    fresh = pickle.loads(pickle.dumps(model))
    with pytest.raises(AttributeError, match="rows of the fit"):
        fresh.pareto_k_  # noqa: B018
    with pytest.raises(NotFittedError):
        BradleyTerry().pareto_k_  # noqa: B018


@pytest.mark.parametrize("ties", [None, "davidson"])
def test_a_warm_start_goes_on(ties):
    rng = np.random.default_rng(0)
    X = np.stack([rng.permutation(15)[:2] for _ in range(300)])
    y = (X[:, 0] > X[:, 1]).astype(float)
    y[::9] = 0.5
    model = BradleyTerry(ties=ties, home_advantage=True, warm_start=True).fit(X, y)
    first, objective = model.n_iter_, model.objective_
    assert model.fit(X, y).n_iter_ < first
    np.testing.assert_allclose(model.objective_, objective, atol=model.tol)
    # Two times six steps are twelve.
    short = {"tol": 0.0, "ties": ties, "home_advantage": True, "warm_start": True}
    parted = BradleyTerry(max_iter=6, **short).fit(X, y).fit(X, y)
    whole = BradleyTerry(max_iter=12, **short).fit(X, y)
    np.testing.assert_allclose(parted.objective_, whole.objective_, rtol=1e-9)
    # Items come and go.
    other = model.fit(X + 3, y)
    cold = BradleyTerry(ties=ties, home_advantage=True).fit(X + 3, y)
    np.testing.assert_allclose(other.objective_, cold.objective_, atol=model.tol)
    model.set_params(home_advantage=False).fit(X.astype(str), y)
    assert model.items_.size == 15
