"""Properties that every model and every solver must have."""

from copy import deepcopy
from functools import cache, partial, reduce
from pathlib import Path

import numpy as np
import pytest

import skvrem
from skvrem import solvers
from skvrem.schedules import Constant, Linear
from skvrem.solvers._batch import Batch
from skvrem.utils._algebra import accumulate, dense, scale
from skvrem.utils._parallel import threads
from tests.laws.cases import CASES, cut

N_BLOCKS = 12
SOLVERS = {
    "batch": solvers.Batch,
    "squarem": solvers.Squarem,
    "quasi-newton": partial(solvers.QuasiNewton, 1e-12),
    "ascent": solvers.Ascent,
    **{name: partial(cls, N_BLOCKS) for name, cls in solvers.BY_NAME.items()},
}
TABLES = ("saga", "incremental")
# Stochastic EM forgets the other batches and has no fixed point.
EXACT = sorted(set(SOLVERS) - {"stochastic"})
# They have no visits: a step is made where its length is tried.
VISITING = sorted(set(EXACT) - {"quasi-newton", "ascent"})
REDUCED = ("svrg", "saga")


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]()


@pytest.fixture
def best(request, case):
    """The point where a step of batch EM no longer moves anything."""
    if "batch" not in case.solvers:
        pytest.skip("moves along the directions of its solver only")
    return _fixed_point(request.node.callspec.params["case"])


@cache
def _fixed_point(name):
    case = CASES[name]()
    point, last = case.point, np.inf
    for _ in range(3000):
        point = step(case.model, batch_mean(case.model, case.data, point))
        now = parameters(case.model, point)
        if np.max(abs(now - last)) < 1e-13 * max(1.0, abs(now).max()):
            return point
        last = now
    raise AssertionError("batch EM has not converged")


def skip_unless_it_fits(case, name):
    if name not in case.solvers:
        pytest.skip("a solver for models of another family")
    if name in TABLES and not case.model.keep_sums:
        pytest.skip("a table is made of sums")


def skip_without_bound(case):
    if not case.bounded:
        pytest.skip("no one objective that steps raise")


def flat(sums):
    """Statistics as one vector, numbers left out."""
    return np.concatenate([np.ravel(part) for part in dense(sums)[:3] if np.ndim(part)])


def parts(model, point):
    """The parameters of a point, which topic models make where they are needed."""
    return model.parameters(point) if hasattr(model, "parameters") else point.parameters


def parameters(model, point):
    return np.concatenate([np.ravel(part) for part in parts(model, point)])


def batch_mean(model, data, point, beta=1.0):
    solver = Batch()
    solver.start(model, data, None)
    return solver.begin(point, beta)


def step(model, anchor):
    return model.recentre(model.update(anchor.point, anchor.mean, None, 1.0))


def fit(case, name, *, max_iter=200, tol=1e-9, step_size=0.4, temperature=1.0):
    if not callable(temperature):
        temperature = Constant(temperature)
    return solvers.run(
        case.model,
        SOLVERS[name](),
        case.data,
        deepcopy(case.point),  # a point may own buffers that a fit writes to
        step_size=Constant(step_size),
        temperature=temperature,
        max_iter=max_iter,
        tol=tol,
        rng=np.random.default_rng(0),
    )


def test_every_model_folder_has_cases():
    folders = {p.parent.name for p in Path(skvrem.__file__).parent.glob("*/_model.py")}
    assert folders <= {make().folder for make in CASES.values()}


def test_every_solver_is_tried():
    public = [getattr(solvers, name) for name in solvers.__all__]
    classes = {c for c in public if isinstance(c, type) and hasattr(c, "estimate")}
    # Compiled steps, and what is made of two solvers, have tests of their own.
    others = {solvers.Sweeps, solvers.HandOver}
    assert classes == {type(make()) for make in SOLVERS.values()} | others


def test_statistics_are_additive_and_know_no_order(case):
    statistics = partial(case.model.statistics, case.point, beta=1.0)
    whole = case.data.chunks().sum(lambda b: statistics(batch=b))
    parts = case.data.blocks(7, np.random.default_rng(3))
    total = reduce(accumulate, [statistics(batch=b) for b in parts.batches], None)
    np.testing.assert_allclose(flat(total), flat(whole), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(total.objective, whole.objective, rtol=1e-12)


@pytest.mark.parametrize("name", REDUCED)
def test_estimates_average_to_the_mean_away_from_the_anchor(case, name):
    skip_unless_it_fits(case, name)
    model, rng = case.model, np.random.default_rng(0)
    solver = SOLVERS[name]()
    solver.start(model, case.data, rng)
    anchor = solver.begin(model.recentre(case.point), 1.0)
    away = model.update(anchor.point, anchor.mean, None, 1.0)
    expected = flat(batch_mean(model, case.data, away).mean)
    estimates = []
    for visit in solver.visits(rng):
        mean, correction = solver.estimate(visit, away)
        estimates.append(flat(mean) + flat(correction))
    assert np.std(estimates, axis=0).max() > 1e-6  # away indeed
    np.testing.assert_allclose(np.mean(estimates, axis=0), expected, atol=1e-11)


@pytest.mark.parametrize("name", VISITING)
def test_a_fixed_point_stays(case, best, name):
    skip_unless_it_fits(case, name)
    model, rng = case.model, np.random.default_rng(0)
    point, before = best, parameters(model, best)
    solver = SOLVERS[name]()
    solver.start(model, case.data, rng)
    for _ in range(3):
        anchor = solver.begin(model.recentre(point), 1.0)
        point = anchor.point
        for visit in solver.visits(rng):
            mean, correction = solver.estimate(visit, point)
            if correction is not None and name in REDUCED:
                assert abs(flat(correction)).max() < 1e-7
            rho = 1.0 if solver.unit_step else 0.5
            point = model.update(point, mean, correction, rho)
    np.testing.assert_allclose(parameters(model, point), before, atol=1e-8)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_a_batch_step_never_lowers_the_objective(case, temperature):
    skip_without_bound(case)
    point, last = case.point, -np.inf
    for _ in range(40):
        anchor = batch_mean(case.model, case.data, point, 1.0 / temperature)
        # reg_covar is added after the maximum has been found
        assert anchor.objective >= last - 1e-8
        last = anchor.objective
        point = step(case.model, anchor)


@pytest.mark.parametrize("name", EXACT)
def test_every_solver_ends_at_a_fixed_point_of_batch(case, best, name):
    skip_without_bound(case)
    skip_unless_it_fits(case, name)
    result = fit(case, name, max_iter=2000, tol=1e-12)
    assert result.converged
    again = step(case.model, batch_mean(case.model, case.data, result.point))
    np.testing.assert_allclose(
        parameters(case.model, again),
        parameters(case.model, result.point),
        atol=2e-5 * case.size,
    )
    assert result.objective == pytest.approx(
        batch_mean(case.model, case.data, best).objective, abs=1e-8
    )


def test_stochastic_comes_near(case, best):
    skip_without_bound(case)
    best = batch_mean(case.model, case.data, best).objective
    start = batch_mean(case.model, case.data, case.point).objective
    result = fit(case, "stochastic", max_iter=30, tol=0.0, step_size=0.05)
    assert best - result.objective < 0.05 * (best - start)


@pytest.mark.parametrize("name", TABLES)
def test_the_certificate_is_a_bound_and_tight_at_a_fixed_point(case, best, name):
    model, rng = case.model, np.random.default_rng(0)
    skip_unless_it_fits(case, name)
    solver = SOLVERS[name]()
    solver.start(model, case.data, rng)
    point = case.point
    for _ in range(4):
        anchor = solver.begin(model.recentre(point), 1.0)
        top = model.update(anchor.point, anchor.mean, None, 1.0)
        exact = batch_mean(model, case.data, model.recentre(top))
        assert anchor.objective <= exact.objective + 1e-6
        point = anchor.point
        for visit in solver.visits(rng):
            mean, correction = solver.estimate(visit, point)
            rho = 1.0 if solver.unit_step else 0.3
            point = model.update(point, mean, correction, rho)
    solver.start(model, case.data, rng)
    best = model.recentre(best)
    exact = batch_mean(model, case.data, best).objective
    assert solver.begin(best, 1.0).objective == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("name", ["squarem", "svrg", "saga"])
def test_a_bad_step_is_taken_back(case, best, name, monkeypatch):
    """An estimate that leads astray costs an epoch, not the fit."""
    skip_without_bound(case)
    skip_unless_it_fits(case, name)
    cls = {"squarem": solvers.Squarem, **solvers.BY_NAME}[name]
    astray = {"calls": 0}
    estimate = cls.estimate

    def sabotage(self, visit, point):
        mean, correction = estimate(self, visit, point)
        astray["calls"] += 1
        if astray["calls"] in (4, 5):
            far = case.model.start(parts(case.model, case.point)).statistics
            far = (
                case.model.translate(far, case.point.parameters[1], point.reference)
                if point.reference is not None
                else far
            )
            return far, None
        return mean, correction

    monkeypatch.setattr(cls, "estimate", sabotage)
    result = fit(case, name, max_iter=500, tol=1e-10)
    exact = batch_mean(case.model, case.data, best).objective
    assert result.objective == pytest.approx(exact, abs=1e-6)


def test_moved_statistics_equal_statistics_taken_there(case):
    model = case.model
    anchor = batch_mean(model, case.data, case.point)
    moved = model.update(anchor.point, anchor.mean, None, 1.0)
    if moved.reference is None:
        pytest.skip("no reference")
    there = model.recentre(moved)
    for at in (moved, there):
        partition = case.data.chunks()
        evaluate = partial(model.statistics, at, beta=1.0)
        sums = partition.sum(lambda b, evaluate=evaluate: evaluate(batch=b))
        if at is moved:
            sums = model.translate(sums, moved.reference, there.reference)
            first = sums
    np.testing.assert_allclose(flat(first), flat(sums), rtol=1e-10, atol=1e-9)


def test_the_temperature_stands_still_within_an_epoch(case):
    skip_without_bound(case)
    result = fit(case, "svrg", max_iter=200, temperature=Linear(3.0, 4), tol=1e-6)
    seen = [row.temperature for row in result.history]
    assert seen[:5] == [3.0, 2.5, 2.0, 1.5, 1.0]
    assert set(seen[4:]) == {1.0}
    assert result.converged


def test_a_table_of_another_temperature_is_refilled(case):
    skip_unless_it_fits(case, "saga")
    solver = SOLVERS["saga"]()
    solver.start(case.model, case.data, np.random.default_rng(0))
    assert solver.begin(case.point, 0.5).passes == 1.0
    anchor = solver.begin(case.point, 1.0)
    assert anchor.passes == 1.0
    exact = batch_mean(case.model, case.data, case.point)
    np.testing.assert_allclose(flat(anchor.mean), flat(exact.mean), atol=1e-12)


def test_the_temperature_one_is_no_temperature(case):
    partition = case.data.chunks()
    plain = partition.sum(lambda b: case.model.statistics(case.point, b, 1.0))
    near = partition.sum(lambda b: case.model.statistics(case.point, b, 1.0 + 1e-13))
    np.testing.assert_allclose(flat(plain), flat(near), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SOLVERS)
def test_the_same_bits_for_any_number_of_threads(case, name):
    skip_unless_it_fits(case, name)
    ends = []
    for n_jobs in (1, 3):
        with threads(n_jobs):
            ends.append(fit(case, name, max_iter=4, tol=0.0))
    np.testing.assert_array_equal(*(parameters(case.model, e.point) for e in ends))
    assert ends[0].objective == ends[1].objective


def test_unequal_blocks_do_not_bias(case):
    """The correction counts a block by its weight, not by its rows."""
    solver = solvers.SVRG(5)
    solver.start(case.model, case.data, np.random.default_rng(0))
    partition = solver.partition
    short, rest = cut(case.data, partition.batches[0], 10)
    partition.batches = [short, *partition.batches[1:], rest]
    anchor = solver.begin(case.model.recentre(case.point), 1.0)
    away = case.model.update(anchor.point, anchor.mean, None, 1.0)
    total = None
    for visit in partition.batches:
        _, correction = solver.estimate(visit, away)
        total = accumulate(total, correction)
    estimate = flat(anchor.mean) + flat(scale(total, 1 / len(partition)))
    expected = flat(batch_mean(case.model, case.data, away).mean)
    np.testing.assert_allclose(estimate, expected, atol=1e-11)
