"""BradleyTerry: the scale of skills that is learned from the matches."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skvrem import BradleyTerry, solvers
from skvrem.vi.bradley_terry import _kernels as kernels
from skvrem.vi.bradley_terry import _model_messages, _stream
from skvrem.vi.bradley_terry._inference import differences
from skvrem.vi.bradley_terry._input import aggregate
from skvrem.vi.bradley_terry._model import Matches, SkillModel, outcomes
from skvrem.vi.bradley_terry._model_messages import Messages
from skvrem.vi.bradley_terry._scale import of_scale
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField
from skvrem.vi.gaussian._width import most_likely_width, with_unknown_width
from tests.vi.test_bradley_terry import season


def tour(sd, n_items=20, n=400, seed=0, nu=0.0):
    """Matches of items whose skills have a standard deviation."""
    rng = np.random.default_rng(seed)
    skill = sd * rng.normal(size=n_items)
    X = np.stack([rng.choice(n_items, 2, replace=False) for _ in range(n)])
    y = (rng.logistic(size=n) < -np.diff(skill[X])[:, 0]).astype(float)
    y[rng.uniform(size=n) < nu] = 0.5
    return X, y


def widened(loss, best, step=0.3):
    """Add what the mean of a scale is above its peak, as far as matches tell."""
    c = (loss(best + step) + loss(best - step) - 2.0 * loss(best)) / step**2
    return best + 0.5 * (c - 1.0) / c**2


@pytest.mark.parametrize("sd", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("ties", [None, "davidson", "rao-kupper"])
def test_the_scale_is_that_of_the_evidence(ties, sd):
    """Of three items, whose two differences can be integrated out."""
    X, y = tour(sd, 3, 40, seed=4, nu=0.2 if ties else 0.0)
    model = BradleyTerry(ties=ties).fit(X, y)
    (first, second, _, *counts), *_ = model._rows
    axis = np.linspace(-15.0, 15.0, 301)
    skill = np.stack([*np.meshgrid(axis, axis), np.zeros((301, 301))])
    log_p = np.log(outcomes(ties, skill[first] - skill[second], model._eta))
    log_p = log_p if ties else np.insert(log_p, 1, 0.0, axis=-1)
    wins, losses, tied = counts
    log_p = np.einsum("pijk,kp->ij", log_p, np.stack([losses, tied, wins]))
    square = (skill**2).sum(axis=0) - skill.sum(axis=0) ** 2 / 3.0

    def loss(log_scale):
        each = log_p - 0.5 * square / np.exp(2.0 * log_scale)
        return 0.5 * log_scale**2 + 2.0 * log_scale - logsumexp(each)

    best = minimize_scalar(loss, (-0.5, 0.5), method="brent").x
    assert np.log(model.prior_scale_) == pytest.approx(widened(loss, best), abs=0.04)


@pytest.mark.parametrize("sd", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("ties", [None, "davidson", "rao-kupper"])
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
def test_all_but_the_scale_is_that_of_the_highest_bound(posterior, ties, sd):
    X, y = tour(sd, nu=0.2 if ties else 0.0)
    model = BradleyTerry(posterior=posterior, ties=ties).fit(X, y)
    fixed = clone(model)
    # All else is as if it had been given.
    fixed.set_params(prior_scale=model.prior_scale_).fit(X, y)
    np.testing.assert_allclose(fixed.skill_, model.skill_, atol=0.01)
    np.testing.assert_allclose(fixed.elbo_, model.elbo_, atol=2e-3)
    # But what is not known of it is known of skills neither.
    expected = fixed.posterior_.covariance()
    if posterior == "fullrank":
        low, high = (
            clone(fixed)
            .set_params(prior_scale=model.prior_scale_ * np.exp(change), tol=1e-9)
            .fit(X, y)
            .posterior_.mean
            for change in (-0.05, 0.05)
        )
        expected += np.outer(high - low, high - low) / 0.1**2 / model._of_scale[1]
    found = model.posterior_.covariance()
    # Curvatures move with the scale too, most where an item has lost all its matches.
    atol = (0.1 if sd == 4.0 else 0.02) * expected.max()
    np.testing.assert_allclose(found, expected, atol=atol)


def test_means_move_with_the_scale_as_they_do_where_matches_are_a_gaussian():
    rng = np.random.default_rng(0)
    H, b = np.cov(rng.normal(size=(5, 9))), rng.normal(size=5)

    def posterior(log_scale):
        precision = np.append(1.0, np.full(4, np.exp(-2.0 * log_scale)))
        covariance = np.linalg.inv(H + np.diag(precision))
        return FullRank(covariance @ b, np.linalg.cholesky(covariance))

    q = posterior(0.3)
    v = (posterior(0.3 + 1e-5).mean - posterior(0.3 - 1e-5).mean) / 2e-5
    scale = np.append(np.inf, np.full(4, np.exp(0.3)))
    wider = with_unknown_width(q, scale, 4.0)
    np.testing.assert_array_equal(wider.mean, q.mean)
    expected = q.covariance() + np.outer(v, v) / 4.0
    np.testing.assert_allclose(wider.covariance(), expected, rtol=1e-8)
    independent = MeanField(q.mean, q.scale)
    assert with_unknown_width(independent, scale, 4.0) is independent
    # A low rank has one more.
    size, axes = np.linalg.eigh(q.covariance())
    factor = axes * np.sqrt(size - 0.5 * size[0])
    low = LowRank(q.mean, np.full(5, 0.5 * size[0]), factor)
    found = with_unknown_width(low, scale, 4.0)
    np.testing.assert_allclose(found.covariance(), expected, rtol=1e-8)


def league(n_items, n, sd, seed=0):
    """Few matches of each of many items, and their skills."""
    rng = np.random.default_rng(seed)
    skill, a = rng.normal(0.0, sd, n_items), rng.integers(0, n_items, n)
    b = (a + rng.integers(1, n_items, n)) % n_items
    won = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(skill[b] - skill[a]))
    return np.stack([a, b], axis=1), won.astype(float), skill


def test_every_kind_has_the_same_scale():
    X, y, _ = league(400, 1200, 2.0)
    models = [
        BradleyTerry(posterior=kind, rank=10).fit(X, y)
        for kind in ("fullrank", "lowrank", "meanfield")
    ]
    assert len({model.prior_scale_ for model in models}) == 1
    given = BradleyTerry(models[1].prior_scale_, posterior="lowrank", rank=10).fit(X, y)
    np.testing.assert_allclose(models[1].skill_, given.skill_, atol=0.05)
    np.testing.assert_allclose(models[1].elbo_, given.elbo_, atol=0.2)


@pytest.mark.parametrize(
    ("n", "sd", "mean", "deviation"),
    [(2400, 3.0, 2.55, 0.20), (2400, 1.5, 1.38, 0.10), (6000, 3.0, 2.76, 0.12)],
)
def test_few_matches_of_an_item_tell_the_scale(n, sd, mean, deviation):
    """As Hamiltonian Monte Carlo does; the highest bound is at 1.81, 1.13 and 2.55."""
    X, y, skill = league(1200, n, sd)
    model = BradleyTerry().fit(X, y)
    assert model.prior_scale_ == pytest.approx(mean, abs=0.5 * deviation)
    items = model.items_
    away = abs(skill[items] - skill.mean() - model.skill_)
    assert np.mean(away < 1.96 * model.skill_std_) > 0.9


def test_intervals_cover_where_items_have_few_matches():
    """With the scale of the highest bound 86 % of the time."""
    inside = []
    for seed in range(3):
        X, y, skill = league(200, 400, 3.0, seed)
        model = BradleyTerry().fit(X, y)
        a, b = np.triu_indices(model.items_.size, 1)
        _, lower, upper = model.difference_interval(model.items_[a], model.items_[b])
        truth = skill[model.items_[a]] - skill[model.items_[b]]
        inside.append(np.mean((lower < truth) & (truth < upper)))
    assert 0.9 < np.mean(inside) < 0.97


def test_groups_of_many_matches_are_not_taken_for_known():
    """Of a group's mean matches tell nothing, though messages go round in it."""
    rng = np.random.default_rng(0)
    skill, (i, j) = 2.0 * rng.normal(size=1200), np.triu_indices(4, 1)
    first = 4 * np.arange(300)[:, None]
    X = np.stack([np.tile((first + k).ravel(), 20) for k in (i, j)], axis=1)
    y = rng.logistic(size=len(X)) < -np.diff(skill[X])[:, 0]
    model, point = _skill_model(X, y.astype(float))
    slopes = []
    for most in (10, 2000):
        messages = Messages(model, point)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_model_messages, "MOST_WHOLE", most)
            slopes.append(messages.slope(of_scale(model, 2.0)))
    # A percent of the scale is 20 in the derivative; without signs it is 200 away.
    np.testing.assert_allclose(*slopes, atol=20.0)


def _skill_model(X, y):
    """The model of independent skills, and the point that it starts from."""
    nothing = np.zeros(X.max() + 1)
    matches = aggregate(X, np.empty(0), y, np.ones(len(y)), False)
    model = SkillModel(matches, MeanField(nothing, nothing + 1.0), "meanfield")
    return model, model.start(nothing, 0.0)


@pytest.mark.parametrize("ties", [None, "davidson", "rao-kupper"])
@pytest.mark.parametrize("sd", [0.5, 10.0])
def test_moments_beside_a_match(ties, sd):
    counts = np.array([[5.0, 0.0, 1.0], [0.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    counts = counts if ties else counts * [[1.0], [1.0], [0.0]]
    nothing, ones = np.zeros(3), np.ones(3)
    matches = Matches(*np.zeros((2, 3), np.int32), np.empty(0), *counts)
    found = np.empty((2, 3))
    given = _model_messages.counts_of(matches, ties, -0.3)
    at = nothing + 0.5 * sd
    before = at, sd**2 * ones
    near = at, 0.7 * sd * ones
    for _ in range(4):  # sums follow what they have found
        kernels.tilted_moments(*given, *before, *near, _model_messages.NODES, *found)
        near = found[0].copy(), np.sqrt(found[1])
    u = np.linspace(-8.0, 8.0, 20_001) * sd
    log_p = np.log(outcomes(ties, u, -0.3))
    log_p = log_p if ties else np.insert(log_p, 1, 0.0, axis=-1)
    p = counts[[1, 2, 0]].T @ log_p.T - 0.5 * (u - 0.5 * sd) ** 2 / sd**2
    p = np.exp(p - p.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    mean = p @ u
    variance = (p * (u - mean[:, None]) ** 2).sum(axis=1)
    np.testing.assert_allclose(found[0], mean, atol=5e-3 * sd)
    np.testing.assert_allclose(found[1], variance, rtol=5e-3)


def test_the_advantage_keeps_its_prior():
    X, y, _ = season(40, 800, home=0.6)
    model = BradleyTerry(home_advantage=True, tol=1e-8).fit(X, y)
    matches, prior, _ = model._rows
    np.testing.assert_array_equal(prior.scale[1:], model.prior_scale_)
    assert prior.scale[0] == 1.0 and model.prior_scale_ != 1.0
    given = BradleyTerry(0.3, home_advantage=True).fit(X, y)
    np.testing.assert_allclose(given._rows[1].scale, 0.3)

    def loss(log_scale):
        other = of_scale(SkillModel(matches, prior, "fullrank"), np.exp(log_scale))
        runs = solvers.Runs(60, 0.0, tol=1e-8, rng=None)
        point = other.start(prior.mean, 0.0)
        return log_scale**2 / 2 - runs.go_on(other, solvers.Ascent(), point).objective

    best = minimize_scalar(loss, (-0.5, 0.0), method="brent").x
    assert np.log(model.prior_scale_) == pytest.approx(widened(loss, best), abs=0.02)


@pytest.mark.parametrize("sd", [0.1, 3.0])
def test_unseen_matches_are_predicted_better(sd):
    gains = []
    for seed in range(5):
        X, y = tour(sd, n=600, seed=seed)
        learned, fixed = (BradleyTerry(s).fit(X[:300], y[:300]) for s in ("learn", 1.0))
        gains.append(learned.score(X[300:], y[300:]) - fixed.score(X[300:], y[300:]))
    assert np.mean(gains) > 0.01


def test_intervals_of_a_learned_scale_cover():
    inside = {"learn": [], 1.0: []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        skill = 2.5 * rng.normal(size=15)
        X = np.stack([rng.choice(15, 2, replace=False) for _ in range(300)])
        y = rng.logistic(size=300) < -np.diff(skill[X])[:, 0]
        a, b = np.triu_indices(15, 1)
        for scale, of in inside.items():
            model = BradleyTerry(scale).fit(X, y.astype(float))
            _, lower, upper = model.difference_interval(a, b)
            truth = skill[a] - skill[b]
            of.append((lower < truth) & (truth < upper))
    assert 0.9 < np.mean(inside["learn"]) < 0.97
    assert np.mean(inside[1.0]) < 0.8


EXTREMES = {
    "a match": ([[0, 1]], None, 0.5, 2.0),
    "one wins always": ([[0, 1]] * 100, None, 1.0, 20.0),
    "nobody wins more often": ([[0, 1], [1, 0]] * 200, None, 0.05, 0.6),
    "half a win each": ([[0, 1], [1, 2], [2, 0]] * 50, [0.5] * 150, 0.05, 0.6),
    "an order": ([[i, j] for j in range(30) for i in range(j)], None, 3.0, 100.0),
}


@pytest.mark.parametrize("name", list(EXTREMES))
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
def test_the_scale_is_finite(name, posterior):
    X, y, low, high = EXTREMES[name]
    model = BradleyTerry(posterior=posterior).fit(X, y)
    assert low < model.prior_scale_ < high
    assert model.converged_ and np.isfinite(model.skill_std_).all()
    assert np.isfinite(model.predict_log_proba([[0, 1], [0, 999]])).all()


def test_groups_that_never_meet_have_one_scale():
    X, y = tour(3.0)
    with pytest.warns(UserWarning, match="2 groups"):
        both = BradleyTerry().fit(np.vstack([X, X + 100]), np.append(y, y))
    alone = BradleyTerry().fit(X, y)
    # Twice as much is known of it: its own prior pulls half as much.
    assert alone.prior_scale_ < both.prior_scale_ < 1.2 * alone.prior_scale_


def test_weights_blocks_and_repeats_have_the_same_scale():
    X, y = tour(2.0)
    weight = np.random.default_rng(0).integers(3, size=len(X))
    weighted = BradleyTerry(tol=1e-9).fit(X, y, weight)
    repeated = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    same = [BradleyTerry(tol=1e-9, n_jobs=n).fit(*repeated) for n in (1, 2)]
    assert same[0].prior_scale_ == same[1].prior_scale_
    da = pytest.importorskip("dask.array")
    blocks = [da.from_array(part, chunks=len(part) // 3) for part in (X, y, weight)]
    blocks[0] = blocks[0].rechunk({1: 2})
    for other in (*same, BradleyTerry(tol=1e-9).fit(*blocks)):
        np.testing.assert_allclose(other.prior_scale_, weighted.prior_scale_, 1e-9)
        np.testing.assert_allclose(other.skill_, weighted.skill_, atol=1e-9)


def test_unknown_items_and_streams_have_the_learned_scale():
    X, y = tour(3.0)
    model = BradleyTerry().partial_fit(X[:200], y[:200])
    first = BradleyTerry().fit(X[:200], y[:200])
    assert model.prior_scale_ == first.prior_scale_ > 1.5
    _, variance = differences(model, np.array([[-1, -1]]))
    np.testing.assert_allclose(variance, 2.0 * first.prior_scale_**2)
    # A new item has it too, while matches have not grown by much.
    model = pickle.loads(pickle.dumps(model)).partial_fit([[0, 50]], [1.0])
    assert model.prior_scale_ == first.prior_scale_
    assert 1.5 < model.posterior_.scale[-1] < first.prior_scale_
    model.set_params(prior_scale=0.2).partial_fit([[0, 51]], [1.0])
    assert model.prior_scale_ == 0.2 and model.posterior_.scale[-1] < 0.2
    assert BradleyTerry(0.7).fit(X, y).prior_scale_ == 0.7


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
@pytest.mark.parametrize("size", [3, 40])
def test_a_stream_that_has_grown_is_the_fit(posterior, size):
    """First matches tell little of the scale, and what a posterior has lost is lost."""
    X, y = tour(2.0, nu=0.2)
    given = {"posterior": posterior, "ties": "davidson", "home_advantage": True}
    given["rank"] = 19  # with less a fit to few matches takes its time
    whole = BradleyTerry(**given).fit(X, y)
    stream = BradleyTerry(**given)
    stream.partial_fit(X[:40], y[:40])
    for first in range(40, len(X), size):
        rows = slice(first, first + size)
        stream.partial_fit(X[rows], y[rows])
        if first == 200:
            stream = pickle.loads(pickle.dumps(stream))
    # The last look is at five sixths of the matches at least; at one more it is at all.
    stream.partial_fit(X, y)
    whole.fit(np.tile(X, (2, 1)), np.tile(y, 2))
    np.testing.assert_array_equal(stream.n_matches_, whole.n_matches_)
    assert stream.prior_scale_ == pytest.approx(whole.prior_scale_, rel=0.01)
    near = {"atol": 0.02 * whole.skill_std_.mean()}
    np.testing.assert_allclose(stream.skill_, whole.skill_, **near)
    np.testing.assert_allclose(stream.skill_std_, whole.skill_std_, rtol=0.02)
    assert stream.tie_parameter_ == pytest.approx(whole.tie_parameter_, rel=1e-3)
    assert stream.home_advantage_ == pytest.approx(whole.home_advantage_, abs=1e-3)


def test_a_stream_of_too_many_matches_goes_on_without_them(monkeypatch):
    monkeypatch.setattr(_stream, "MOST_BYTES", 3000)
    X, y = tour(1.0)
    stream = BradleyTerry().partial_fit(X[:50], y[:50])
    assert stream._kept.matches.first.size <= 50
    stream.partial_fit(X[50:], y[50:])
    assert stream._kept is None and stream.n_matches_.sum() == 2 * len(X)
    scale = stream.prior_scale_
    stream.partial_fit(X, y)
    assert stream.prior_scale_ == scale


def test_kept_matches_are_those_of_all_batches():
    X, y = tour(1.0, 6, 60)
    X, y = np.vstack([X, X[:, ::-1]]), np.append(y, y)
    codes, home, one = X, np.tile([1.0, 0.0, -1.0], 40), np.ones(len(X))
    kept, whole = _stream.KeptMatches(), aggregate(codes, home, y, one, True)
    for rows in (slice(0, 7), slice(7, 8), slice(8, None)):
        some = codes[rows], home[rows], y[rows], one[rows], True
        kept = kept.after(aggregate(*some))
    for part, of_all in zip(kept.matches, whole, strict=True):
        np.testing.assert_array_equal(part, of_all)
    assert kept.weight == len(X) and kept.due and not kept.looked_at().due


@pytest.mark.parametrize("ties", [None, "davidson"])
def test_a_warm_start_keeps_the_scale_of_the_same_matches(ties):
    X, y = tour(2.0, nu=0.1)
    model = BradleyTerry(ties=ties, warm_start=True).fit(X, y)
    scale, passes = model.prior_scale_, model.history_["passes"][-1]
    model.fit(X, y)
    assert model.prior_scale_ == scale and model.history_["passes"][-1] < passes / 2
    # Others have their own; so have all where it was given before.
    cold = BradleyTerry(ties=ties).fit(X[:150], y[:150])
    model.fit(X[:150], y[:150])
    assert model.prior_scale_ == pytest.approx(cold.prior_scale_, rel=0.02) != scale
    model.set_params(prior_scale=5.0).fit(X, y)
    assert model.prior_scale_ == 5.0
    model.set_params(prior_scale="learn").fit(X, y)
    assert model.prior_scale_ == pytest.approx(scale, rel=0.02)


def test_learning_costs_a_few_passes():
    for sd in (0.1, 1.0, 3.0):
        X, y = tour(sd, 100, 1500)
        learned, fixed = (
            BradleyTerry(scale).fit(X, y).history_["passes"][-1]
            for scale in ("learn", 1.0)
        )
        assert learned < 4.0 * fixed


def test_a_search_has_it_among_numbers():
    X, y = tour(3.0)
    search = GridSearchCV(BradleyTerry(), {"prior_scale": [0.01, "learn"]}).fit(X, y)
    assert search.best_params_ == {"prior_scale": "learn"}
    assert clone(search.best_estimator_).prior_scale == "learn"


@pytest.mark.parametrize("top", [-5.0, -2.0, 0.0, 0.01, 3.0, 6.0])
@pytest.mark.parametrize("steepness", [0.0, 1.0, 1e4])
def test_the_peak_is_found(top, steepness):
    calls = []

    def slope(at):
        calls.append(at)
        return steepness * np.tanh(top - at)

    at, curvature = most_likely_width(slope)
    grid = np.linspace(-7.0, 7.0, 140_001)
    peak = grid[np.argmin(np.abs(slope(grid) - grid))]
    assert at == pytest.approx(peak, abs=0.02) and len(calls) < 15
    if curvature > 1.0:  # which spares what leads there
        calls.clear()
        again, _ = most_likely_width(slope, at, curvature)
        assert again == pytest.approx(peak, abs=0.02) and len(calls) < 3


def test_no_search_ends_by_a_secant_from_a_slope_that_errs():
    calls = []

    def slope(at):
        calls.append(at)
        return 10.0 * np.tanh(-2.0 - at) - (40.0 if len(calls) == 1 else 0.0)

    at, _ = most_likely_width(slope, first=lambda: 300.0, rough=lambda: len(calls) == 1)
    grid = np.linspace(-7.0, 7.0, 140_001)
    peak = grid[np.argmin(np.abs(10.0 * np.tanh(-2.0 - grid) - grid))]
    assert at == pytest.approx(peak, abs=0.05)


def test_a_width_has_an_end():
    for sign in (-1.0, 1.0):
        at, _ = most_likely_width(lambda at, sign=sign: 1e6 * sign)
        assert 6.9 < sign * at <= 7.0
