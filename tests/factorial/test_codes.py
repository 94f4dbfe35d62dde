"""Codes that are found anew where a fit ends, and starts from a fit of some rows."""

import numpy as np
import pytest

from skvrem import FactorialMixture
from skvrem.data import as_source
from skvrem.factorial import _kinds, _moves, _start
from skvrem.factorial._codes import FreshCodes
from skvrem.factorial._kinds import rows_of_a_sample
from skvrem.factorial._model import FactorialModel, from_fractions, to_fractions
from skvrem.factorial._start import moments
from skvrem.solvers import Batch, run
from tests.factorial import oracle
from tests.factorial.test_model import parts  # noqa: F401


def _search(name, find):
    return find()


def overlapping(seed=0, n=2000, k=8, d=10):
    rng = np.random.default_rng(seed)
    means, share = 1.5 * rng.normal(size=(k, d)), rng.uniform(0.15, 0.6, k)
    return (rng.random((n, k)) < share) @ means + 0.7 * rng.normal(size=(n, d))


def bars(seed, n, side=5):
    rng = np.random.default_rng(seed)
    rows = np.kron(np.eye(side), np.ones(side))
    columns = rows.reshape(side, side, side).transpose(0, 2, 1).reshape(side, -1)
    codes = rng.random((n, 2 * side)) < 0.2
    return codes @ np.vstack([rows, columns]) + 0.3 * rng.normal(size=(n, side**2))


def bound_of_codes(X, nu, parameters):
    """The bound of each row, by all codes that there are."""
    q, codes = oracle.code_weights(nu), oracle.all_codes(nu.shape[1])
    square = np.square(X[:, None] - codes @ parameters.means).sum(axis=2)
    square += X.shape[1] * np.einsum("zk,kl,zl->z", codes, parameters.covariance, codes)
    prior = np.where(codes > 0.5, parameters.activation, 1.0 - parameters.activation)
    joint = np.log(prior).sum(axis=1) - 0.5 * square / parameters.noise
    joint -= 0.5 * X.shape[1] * np.log(2.0 * np.pi * parameters.noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(q > 0.0, q * np.log(q), 0.0)
    return (q * joint + entropy).sum(axis=1)


def test_codes_are_kept_where_they_are_better(parts, rng):  # noqa: F811
    X, weight, parameters = parts
    data = as_source(X, weight)
    model = FactorialModel(data.total_weight, X.dtype, inner_tol=0.0, inner_iter=1)
    point = model.start(parameters, data)
    kept = to_fractions(rng.uniform(size=(len(X), 3)))

    def bounds(**how):
        found, _ = model.refill(point, data, **how)
        nu = from_fractions(found.codes)
        return found.codes, bound_of_codes(X, nu, point.parameters)

    fresh, value = bounds()
    nu = from_fractions(kept)
    oracle.sweep(X, nu, point.parameters, 1.0)
    old = bound_of_codes(X, nu, point.parameters)
    best, better = bounds(kept=kept)
    stays = old > value + 1e-3
    assert stays.any()
    assert (old < value - 1e-3).any()
    np.testing.assert_allclose(better, np.maximum(old, value), atol=1e-3)
    np.testing.assert_allclose(from_fractions(best[stays]), nu[stays], atol=1e-4)
    assert (best[old < value - 1e-3] == fresh[old < value - 1e-3]).all()


@pytest.mark.parametrize("given", [{"n_init": 1, "tempering": None}, {}], ids=str)
def test_rows_in_another_order_gain_nothing(given):
    """Whose codes are found anew: those of a fit are no worse."""
    X = overlapping()
    fit = FactorialMixture(8, random_state=0, warm_start=True, **given).fit(X)
    before = fit.objective_
    assert fit.converged_
    assert fit.objective_ == fit.history_["objective"][-1]
    fit.fit(X[::-1].copy())
    assert fit.objective_ < before + 0.05


def ended(solver=None):
    X = overlapping(n=500)
    data = as_source(X, None)

    def make():
        return FactorialModel(data.total_weight, X.dtype)

    model, rng = make(), np.random.default_rng(0)
    kind = _kinds.KindOfStart(1.0, "isotropic")
    fit = FactorialMixture(8)
    begun = _start.starting_parameters(fit, moments(data), data, rng, kind)
    start = model.start(begun, data)
    end = run(model, Batch(), data, start, tol=1e-3, rng=rng, max_iter=300)
    return make, data, end


def test_codes_are_found_anew_at_the_best_ends_while_the_bound_rises():
    make, data, end = ended()
    at, kept = end.objective, end.point.codes.copy()

    def tried(ends, end=end, left=300):
        return FreshCodes(make, data, 1e-3, ends)(end, left, _search)[1] > 0.0

    assert tried([at + 1.0, at + 2.0, at - 1.0])
    assert not tried([at + 1.0, at + 2.0, at + 3.0])
    assert not tried([at + 0.5 * _moves.TIED])
    assert not tried([], left=_moves.LEFT - 1)
    assert not tried([], end=end._replace(reason="max_iter"))
    ends = []
    again = FreshCodes(make, data, 1e-3, ends)
    point, passes, anew = again(end, 300, _search)
    np.testing.assert_array_equal(end.point.codes, kept)
    assert passes > 0.0
    assert not anew
    assert ends == [at]
    # No more of them where the last have not led higher.
    assert again(end, 300, _search) == (None, 0.0, False)
    rng = np.random.default_rng(0)
    led = run(make(), Batch(), data, point, tol=1e-3, rng=rng, max_iter=0)
    assert led.objective > at + 1e-3
    least = 2.0 * (led.objective - at)
    assert FreshCodes(make, data, least, [])(end, 300, _search)[0] is None


@pytest.mark.parametrize("solver", ["stochastic", "svrg", "saga", "incremental"])
def test_other_solvers_do_not_begin_again(solver, monkeypatch):
    found = []
    monkeypatch.setattr(_start, "FreshCodes", lambda *_: found.append(1))
    X = overlapping(n=300)
    how = {"random_state": 0, "n_init": 1}
    FactorialMixture(3, solver=solver, **how).fit(X)
    assert not found
    FactorialMixture(3, solver="batch", **how).fit(X)
    assert found


def test_more_rows_end_no_lower():
    X, held_out = bars(0, 4100), bars(99, 1000)
    fit = FactorialMixture(10, random_state=0).fit(X)
    assert fit.score(held_out) > -10.6  # as those of less than a million numbers do
    again = FactorialMixture(10, random_state=0, n_jobs=1).fit(X)
    np.testing.assert_array_equal(fit.components_, again.components_)


def test_samples_are_of_large_data_with_nothing_given():
    def size(n, d=25, **given):
        X = np.random.default_rng(0).normal(size=(n, d))
        data = as_source(X - X.mean(axis=0), None)
        return rows_of_a_sample(FactorialMixture(10, **given), data, moments(data))

    assert size(3900) == 0
    assert size(4100) == 2000
    assert 0 < size(4100, 60) < 1000
    assert size(2000, 200) == 0  # of which too few would be left
    for given in {"n_init": 3}, {"solver": "batch"}, {"solver": "svrg"}:
        assert size(4100, **given) == 2000
    for given in (
        {"n_init": 1},
        {"temperature": 5.0},
        {"tempering": None},
        {"components_init": np.eye(10, 25)},
    ):
        assert size(4100, **given) == 0


@pytest.mark.parametrize("given", [{"n_init": 2}, {"solver": "svrg"}], ids=str)
def test_a_solver_or_a_number_of_starts_finds_no_less(given):
    X = bars(0, n=4000)
    default = FactorialMixture(10, random_state=0).fit(X)
    fit = FactorialMixture(10, random_state=0, **given).fit(X)
    assert fit.objective_ > default.objective_ - 0.01
    without = FactorialMixture(10, random_state=0, n_init=1).fit(X)
    assert without.objective_ < default.objective_ - 0.1


def test_a_sample_that_has_no_fit_is_none(monkeypatch):
    """As where all rows that are drawn are the same."""
    monkeypatch.setattr(_kinds, "WORTH", 40_000)
    monkeypatch.setattr(_kinds, "SAMPLE_WORTH", 200)
    X = np.zeros((2000, 5))
    X[:2] = [[1.0, 2.0, 0.0, 0.0, 1.0], [0.0, 1.0, 3.0, 1.0, 0.0]]
    data = as_source(X, None)
    fit = FactorialMixture(2, random_state=0)
    n_rows = rows_of_a_sample(fit, data, moments(data))
    assert n_rows == 0
    monkeypatch.setattr(_kinds, "FEWEST_SAMPLED", 1)
    n_rows = rows_of_a_sample(fit, data, moments(data))
    assert n_rows == 20
    rng = np.random.default_rng(0)
    assert _start.fit_of_sample(fit, data, n_rows, rng) == (None, 0.0)
    assert np.isfinite(fit.fit(X).objective_)
