"""Moves out of poor optima: what they propose, and what comes of them."""

from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_iris

from skvrem import FactorialMixture
from skvrem.data import as_source
from skvrem.factorial import _moves, _start
from skvrem.factorial._kinds import KindOfStart, kinds_of_starts
from skvrem.factorial._model import FactorialModel, from_fractions
from skvrem.factorial._model_bound import Parameters
from skvrem.factorial._moves import FactorMoves, factors, proposals
from skvrem.factorial._start import moments
from skvrem.solvers import Batch, Run
from tests.factorial import oracle


def _search(name, find):
    return find()


def residual_of(rest, weight, codes):
    """What a binary factor leaves of rows, with its vector at its best."""
    on = codes > 0.5
    left = np.square(rest).sum(axis=1)
    if (weight * on).any():
        vector = np.average(rest[on], axis=0, weights=weight[on])
        left = np.where(on, np.square(rest - vector).sum(axis=1), left)
    return weight @ left


@pytest.mark.parametrize("seed", range(5))
def test_the_best_factor_is_the_best_of_all_codes(seed):
    rng = np.random.default_rng(seed)
    codes = np.arange(10) < 4
    rest = np.outer(codes, [2.0, -1.0, 1.0]) + 0.2 * rng.normal(size=(10, 3))
    weight = rng.uniform(0.5, 2.0, 10)
    best = min(
        residual_of(rest, weight, np.array(code))
        for code in product((0.0, 1.0), repeat=10)
    )
    found = factors(rest, weight, rng)
    left = [residual_of(rest, weight, column) for column in found.T]
    assert min(left) == pytest.approx(best)
    assert len(np.unique(found, axis=1).T) == len(found.T)
    assert not factors(np.zeros((4, 2)), np.ones(4), rng).size


def test_rows_without_weight_have_no_part_in_factors(rng):
    rest = rng.normal(size=(30, 3))
    weight = rng.integers(3, size=30).astype(float)
    weighted = factors(rest, weight, np.random.default_rng(1))
    times = weight.astype(int)
    repeated = np.repeat(rest, times, axis=0)
    repeated = factors(repeated, np.ones(len(repeated)), np.random.default_rng(1))
    np.testing.assert_array_equal(np.repeat(weighted, times, axis=0), repeated)


@pytest.fixture
def poor(rng):
    """Rows of three parts, two of which a component stands for; another is nothing."""
    parts = np.array(
        [[3.0, 3.0, 0.0, 0.0], [0.0, 3.0, 3.0, 0.0], [0.0, 0.0, 3.0, -3.0]]
    )
    codes = rng.uniform(size=(300, 3)) < [0.5, 0.4, 0.3]
    X = codes @ parts + 0.3 * rng.normal(size=(300, 4))
    means = np.array([parts[0], parts[1] + parts[2], np.zeros(4)])
    begun = Parameters(means, None, np.array([0.5, 0.4, 1e-3]), 2.0, 4.0)
    weight = rng.uniform(0.5, 2.0, 300)
    return X, weight, begun


def fitted(poor):
    """Return where plain inference ends."""
    X, weight, begun = poor
    data = as_source(X, weight)

    def make():
        return FactorialModel(data.total_weight, X.dtype, least_noise=1e-6)

    model = make()
    rng = np.random.default_rng(0)
    run = Run(model, Batch(), data, model.start(begun, data), tol=1e-6, rng=rng)
    return make, data, run.advance(300).result()


def test_proposals_are_what_their_codes_lead_to(poor):
    make, data, end = fitted(poor)
    X, weight, _ = poor
    before, model = from_fractions(end.point.codes), make()
    made = list(proposals(model, end.point, data, np.random.default_rng(0)))
    assert made
    for proposal in made:
        nu, parameters = from_fractions(proposal.codes), proposal.parameters
        moved = np.abs(nu - before).max(axis=0) > 0.0
        assert moved.sum() == 1
        assert set(np.unique(nu[:, moved])) <= {0.0, 1.0}
        q = oracle.code_weights(nu)
        codes = oracle.all_codes(3)
        square = np.square(X[:, None] - codes @ parameters.means).sum(axis=2)
        own = np.einsum("zk,kl,zl->z", codes, parameters.covariance, codes)
        square += 4 * own
        noise = weight @ (q * square).sum(axis=1) / (4 * weight.sum())
        assert parameters.noise == pytest.approx(noise)
        share = np.average(nu, axis=0, weights=weight)
        np.testing.assert_allclose(parameters.activation, share, atol=1e-2)


def test_moves_lead_out_of_a_poor_optimum(poor):
    make, data, end = fitted(poor)
    best = FactorialMixture(3, n_init=10, random_state=0).fit(*poor[:1], None, poor[1])
    assert end.objective < best.objective_ - 0.5  # or there is nothing to leave
    kept = end.point.codes.copy()
    point, passes, anew = FactorMoves(make, data, 1e-3, [])(end, 300, _search)
    np.testing.assert_array_equal(end.point.codes, kept)
    assert passes > 0.0
    assert not anew
    run = Run(make(), Batch(), data, point, tol=1e-4, rng=np.random.default_rng(0))
    assert run.advance(100).anchor.objective > best.objective_ - 0.01


def test_only_the_best_ends_are_moved_and_none_twice(poor):
    make, data, end = fitted(poor)
    at, nothing = end.objective, (None, 0.0, False)

    def tried(ends, end=end, left=300):
        return FactorMoves(make, data, 1e-3, ends)(end, left, _search)[1] > 0.0

    assert tried([])
    assert tried([at + 1.0, at + 2.0, at - 1.0])
    assert not tried([at + 1.0, at + 2.0, at + 3.0])
    assert not tried([at + 0.5 * _moves.TIED])
    assert not tried([], left=_moves.LEFT - 1)
    assert not tried([], end=end._replace(reason="max_iter"))
    ends = []
    moves = FactorMoves(make, data, 1e-3, ends)
    moves(end, 300, _search)
    assert moves(end, 300, _search) == nothing
    assert ends == [at]


def binary(seed=0):
    """A table of answers that are right or wrong."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=(300, 1))
    return (ability + rng.normal(size=(300, 5)) > -1.0).astype(float)


def test_no_start_ends_lower_with_moves_and_the_best_higher(monkeypatch):
    X, fit = binary(), FactorialMixture(6, random_state=0)
    moved = fit.fit(X).init_scores_
    assert fit.converged_
    assert fit.objective_ == moved.max()
    monkeypatch.setattr(_start, "FreshCodes", lambda *_: None)
    plain = fit.fit(X).init_scores_
    assert (moved >= plain - 1e-9).all()
    assert moved.max() > plain.max() + 0.01


def test_a_tempered_start_goes_on_at_a_temperature_of_1(monkeypatch):
    """Moves lead on from where it has cooled, and its history says so."""
    kinds = [KindOfStart("auto", "isotropic")]
    monkeypatch.setattr(_start, "kinds_of_starts", lambda *_: kinds)
    X = binary()
    fit = FactorialMixture(5, random_state=0).fit(X)
    temperature, objective = (fit.history_[n] for n in ("temperature", "objective"))
    assert temperature[0] > 1.0
    assert (np.diff(temperature) <= 0.0).all()
    # The row of the point that they have led to is beside those of epochs.
    assert len(temperature) == fit.n_iter_ + 2
    assert fit.objective_ == fit.init_scores_[0] == objective[-1]
    assert (np.diff(fit.history_["passes"]) > 0.0).all()
    assert fit.converged_
    monkeypatch.setattr(_start, "FactorMoves", lambda *_: None)
    assert fit.objective_ > fit.fit(X).objective_ + 0.01


def test_moves_are_the_same_wherever_rows_are(tmp_path):
    X = load_iris().data
    np.save(tmp_path / "X.npy", X)

    def fit(X, **given):
        return FactorialMixture(5, random_state=0, **given).fit(X)

    expected = fit(X, n_jobs=1)
    for other in (fit(X, n_jobs=3), fit(np.load(tmp_path / "X.npy", mmap_mode="r"))):
        np.testing.assert_array_equal(other.components_, expected.components_)
        np.testing.assert_array_equal(other.init_scores_, expected.init_scores_)


@pytest.mark.parametrize(
    "given",
    [
        {"n_init": 1},
        {"solver": "svrg"},
        {"temperature": 5.0},
        {"tempering": None},
        {"components_init": np.eye(4, 5)},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_is_given_has_no_moves(given, monkeypatch):
    X = binary() - 0.5
    found = []
    monkeypatch.setattr(_start, "FactorMoves", lambda *_: found.append(1))
    fit = FactorialMixture(4, random_state=0, **given).fit(X)
    assert not found
    assert len(fit.init_scores_) <= 12
    fit.set_params(warm_start=True, **dict.fromkeys(given.keys() & {"n_init"}, "auto"))
    fit.fit(X)
    assert not found
    for n_init in ("auto", 3):
        found.clear()
        FactorialMixture(4, n_init=n_init, random_state=0).fit(X)
        assert found


def test_starts_without_tempering_follow_where_data_are_small():
    def kinds(n):
        X = np.random.default_rng(0).normal(size=(n, 10))
        X -= X.mean(axis=0)
        data = as_source(X, None)
        return kinds_of_starts(FactorialMixture(10), data, moments(data), warm=False)

    small, middle, large = kinds(200), kinds(9_000), kinds(15_000)
    assert [len(some) for some in (small, middle, large)] == [30, 7, 5]
    assert large[-1].directions == "sample"
    assert small[:6] == middle[:6]
    assert all(kind.temperature == 1.0 for kind in small[6:])
