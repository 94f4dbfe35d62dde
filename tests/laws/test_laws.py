"""Properties that every model and every solver must have."""

import pickle
from copy import deepcopy
from functools import cache, partial, reduce
from pathlib import Path

import numpy as np
import pytest

import skvrem
from skvrem import solvers
from skvrem.data._batch import MemoryPartition
from skvrem.schedules import Constant, Linear
from skvrem.solvers._protocols import recentred
from skvrem.solvers.estimate._batch import Batch
from skvrem.utils._algebra import accumulate, dense, scale
from skvrem.utils._parallel import threads
from tests.laws.cases import CASES, USUAL, cut

# They are of algorithms, which no version of a dependency changes.
pytestmark = pytest.mark.slow

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
# They have no visits: a step is made where it is tried.
TRYING = ("ascent", "quasi-newton", "squarem")
VISITING = sorted(set(EXACT) - set(TRYING))
REDUCED = ("svrg", "saga")


def marked(name):
    return name if name in USUAL else pytest.param(name, marks=pytest.mark.thorough)


@pytest.fixture(params=map(marked, CASES))
def case(request):
    return CASES[request.param]()._replace(name=request.param)


@pytest.fixture
def best(case):
    """The point where a step of batch EM no longer moves anything."""
    if "batch" not in case.solvers:
        pytest.skip("moves along the directions of its solver only")
    return _fixed_point(case.name)


@cache
def _fixed_point(name):
    case = CASES[name]()
    point, last = case.point, np.inf
    close = 1e-13 if case.exact else 1e-9
    for _ in range(3000):
        point = step(case.model, batch_mean(case.model, case.data, point))
        now = parameters(case.model, point)
        if np.max(abs(now - last)) < close * max(1.0, abs(now).max()):
            return point
        last = now
    raise AssertionError("batch EM has not converged")


def skip_unless_it_fits(case, name, bound=False):
    if name not in case.solvers:
        pytest.skip("a solver for models of another family")
    if name in TABLES and not case.exact and bound:
        pytest.skip("a table holds expansions")
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
    return solver.certify(point, beta)


def step(model, anchor):
    return recentred(model, model.update(anchor.point, anchor.mean, None, 1.0))


def fit(
    case, name, *, max_iter=200, tol=1e-9, step_size=0.4, temperature=1.0, point=None
):
    if not callable(temperature):
        temperature = Constant(temperature)
    return solvers.run(
        case.model,
        SOLVERS[name](),
        case.data,
        # A point may own buffers that a fit writes to.
        deepcopy(case.point if point is None else point),
        step_size=Constant(step_size),
        temperature=temperature,
        max_iter=max_iter,
        tol=tol,
        rng=np.random.default_rng(0),
    )


def test_every_model_folder_has_cases():
    rooms = Path(skvrem.__file__).parent
    folders = {p.parent.name for p in rooms.glob("*/_model.py")}
    folders &= {p.parent.name for p in rooms.glob("*/_estimator.py")}
    assert folders <= {make().folder for make in CASES.values()}


def test_every_solver_is_tried():
    public = [getattr(solvers, name) for name in solvers.__all__]
    classes = {c for c in public if isinstance(c, type) and hasattr(c, "epoch")}
    # Compiled steps, and what is made of two solvers, have tests of their own.
    others = {solvers.Sweeps, solvers.Switch}
    assert classes == {type(make()) for make in SOLVERS.values()} | others


def test_statistics_are_additive_and_know_no_order(case):
    statistics = partial(case.model.statistics, case.point, beta=1.0)
    whole = case.data.chunks().sum(lambda b: statistics(batch=b))
    parts = case.data.blocks(7, np.random.default_rng(3))
    total = reduce(accumulate, [statistics(batch=b) for b in parts.batches], None)
    np.testing.assert_allclose(flat(total), flat(whole), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(total.objective, whole.objective, rtol=1e-12)
    # And so do weights, of which means are made.
    weights = sum(batch.total_weight for batch in parts.batches)
    assert weights == pytest.approx(parts.total_weight, rel=1e-12)


def test_what_is_left_of_a_point_is_enough_for_a_whole_step(case):
    model = case.model
    if not hasattr(model, "spent"):
        pytest.skip("keeps its points")
    mean = batch_mean(model, case.data, case.point).mean
    moved = [
        recentred(model, model.update(point, mean, None, 1.0))
        for point in (case.point, model.spent(case.point))
    ]
    there = [batch_mean(model, case.data, point) for point in moved]
    np.testing.assert_array_equal(*(flat(anchor.mean) for anchor in there))
    assert there[0].objective == there[1].objective


@pytest.mark.parametrize("name", REDUCED)
def test_estimates_average_to_the_mean_away_from_the_anchor(case, name):
    skip_unless_it_fits(case, name)
    model, rng = case.model, np.random.default_rng(0)
    solver = SOLVERS[name]()
    solver.start(model, case.data, rng)
    anchor = solver.certify(recentred(model, case.point), 1.0)
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
        anchor = solver.certify(recentred(model, point), 1.0)
        point = anchor.point
        for visit in solver.visits(rng):
            mean, correction = solver.estimate(visit, point)
            if correction is not None and name in REDUCED:
                assert abs(flat(correction)).max() < 1e-7
            rho = 1.0 if solver.unit_step else 0.5
            point = model.update(point, mean, correction, rho)
    np.testing.assert_allclose(parameters(model, point), before, atol=1e-8)


# Others climb in directions where the objective is flat to its last digits.
@pytest.mark.parametrize("name", [*VISITING, "squarem"])
def test_an_epoch_at_a_fixed_point_stays(case, best, name):
    skip_unless_it_fits(case, name)
    model, rng = case.model, np.random.default_rng(0)
    solver = SOLVERS[name]()
    solver.start(model, case.data, rng)
    anchor = solver.certify(recentred(model, best), 1.0)
    for _ in range(2):
        moved = solver.epoch(anchor, lambda number: 0.5, rng)
        anchor = moved.certified
        if anchor is None:
            anchor = solver.certify(recentred(model, moved.point), 1.0)
    np.testing.assert_allclose(
        parameters(model, anchor.point), parameters(model, best), atol=1e-6 * case.size
    )


@pytest.mark.parametrize("name", SOLVERS)
def test_what_is_returned_is_what_is_reported(case, name):
    skip_unless_it_fits(case, name)
    for max_iter in (0, 1, 6):
        result = fit(case, name, max_iter=max_iter, tol=0.0)
        exact = batch_mean(case.model, case.data, recentred(case.model, result.point))
        several = getattr(case.model, "inner_iter", 1) > 1
        if case.folder == "factorial" or (several and name == "svrg"):
            # Codes and shares of topics go on from where they are: evaluated anew, the
            # bound is higher.
            assert -1e-10 < exact.objective - result.objective < 0.1
        else:
            expected = pytest.approx(exact.objective, rel=1e-10, abs=1e-10)
            assert result.objective == expected
        assert result.history[-1].objective == result.objective
        assert result.n_iter == max_iter
        assert result.reason == "max_iter"
        assert not result.converged
        start, end = (parameters(case.model, p) for p in (case.point, result.point))
        assert np.array_equal(start, end) == (max_iter == 0)


@pytest.mark.parametrize("name", SOLVERS)
def test_passes_are_those_that_were_made(case, name, monkeypatch):
    """By the weight of the units that were evaluated; a metric says its own cost."""
    skip_unless_it_fits(case, name)
    model, made, inside = case.model, [], []

    def counting(method, cost):
        honest = getattr(model, method)

        def counted(*arguments, **options):
            if inside:
                return honest(*arguments, **options)
            inside.append(method)
            try:
                told = honest(*arguments, **options)
            finally:
                inside.pop()
            made.append(cost(told, *arguments))
            return told

        monkeypatch.setattr(model, method, counted)

    def share(batch):
        return batch.total_weight / case.data.total_weight

    counting("statistics", lambda told, point, batch, *_: share(batch))
    counting("remember", lambda told, point, batch, *_: share(batch))
    if name in TABLES + REDUCED:
        # Topics say what part of a pass it is; others keep sums, or evaluate again.
        part = model.recall_passes
        again = part if 0 < part < 1 else 0 if model.keep_sums else 1
        counting("recall", lambda told, at, point, batch: again * share(batch))
    if hasattr(model, "recondition"):
        counting("recondition", lambda told, *_: told[1])
    with threads(1):
        result = fit(case, name, max_iter=6, tol=0.0)
    assert result.history[-1].passes == pytest.approx(sum(made), rel=1e-12)
    assert np.all(np.diff([row.passes for row in result.history]) > 0.0)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_fit_can_pause(case, name):
    skip_unless_it_fits(case, name)

    def run():
        return solvers.Run(
            case.model,
            SOLVERS[name](),
            case.data,
            deepcopy(case.point),
            step_size=Constant(0.4),
            temperature=Constant(1.0),
            tol=0.0,
            rng=np.random.default_rng(0),
        )

    whole, parted = run().advance(5), run().advance(2)
    assert parted.n_iter == 2
    parted.advance(0).advance(3)
    ends = whole.result(), parted.result()
    np.testing.assert_array_equal(*(parameters(case.model, e.point) for e in ends))
    assert ends[0].objective == ends[1].objective
    state = parted.state()
    assert state["n_iter"] == 5
    assert state["history"][-1].solver == ends[1].history[-1].solver
    pickle.dumps(state)


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
def test_a_fit_climbs_and_converges_at_a_fixed_point(case, name):
    """Three laws: a fit never falls, ends within tol, and goes on to an end."""
    skip_without_bound(case)
    skip_unless_it_fits(case, name)
    tol = 1e-5
    result = fit(case, name, max_iter=2000, tol=tol)
    assert result.converged
    assert result.left < tol
    rest = fit(case, name, max_iter=2000, tol=1e-12, point=result.point)
    assert rest.converged
    assert rest.objective - result.objective < 2.0 * tol
    if name not in (*TABLES, "batch"):
        # A table has a bound; batch, whose step is tried below, nothing to go back to.
        objective = [row.objective for row in solvers.joined([result, rest]).history]
        assert (np.diff(objective) >= -1e-9 * max(1.0, abs(objective[-1]))).all()
    if "batch" in case.solvers:
        again = step(case.model, batch_mean(case.model, case.data, rest.point))
        np.testing.assert_allclose(
            parameters(case.model, again),
            parameters(case.model, rest.point),
            atol=2e-5 * case.size,
        )
        best = _fixed_point(case.name)
        assert rest.objective == pytest.approx(
            batch_mean(case.model, case.data, best).objective, abs=1e-8
        )


@pytest.mark.parametrize("epochs", [14, 17, 19])
def test_a_probability_that_comes_to_zero_is_no_end(epochs):
    """What control variates leave of its count is rounding, of either sign."""
    case = CASES["hmm categorical"]()
    begun = fit(case, "saga", max_iter=epochs, tol=0.0)
    result = fit(case, "saga", max_iter=2000, tol=1e-12, point=begun.point)
    assert result.point.parameters.emission.min() < 1e-12
    best = batch_mean(case.model, case.data, _fixed_point("hmm categorical")).objective
    assert result.converged and result.objective == pytest.approx(best, abs=1e-8)
    assert max(row.objective for row in result.history) < best + 1e-8
    sums = batch_mean(case.model, case.data, result.point).mean
    features = sums.features.copy()
    lowest = np.unravel_index(features.argmin(), features.shape)
    for left, is_rounding in ((-1e-24, True), (1e-24, True), (-1e-6, False)):
        features[lowest] = left
        other = sums._replace(features=features)
        found = case.model.maximize(other, result.point, False)
        assert (found is not None) == is_rounding
        if is_rounding:
            values = (
                case.model.surrogate(result.point, each) for each in (sums, other)
            )
            assert next(values) == pytest.approx(next(values), abs=1e-12)


def test_stochastic_comes_near(case):
    """Near the fixed point that is above it, of which a model may have several."""
    skip_without_bound(case)
    start = batch_mean(case.model, case.data, case.point).objective
    result = fit(case, "stochastic", max_iter=30, tol=0.0, step_size=0.05)
    point = result.point._replace(trials=0, repaired=())
    best = fit(case, "batch", point=point, max_iter=1000).objective
    assert best - result.objective < 0.05 * (best - start)


def test_stochastic_reports_what_its_visits_saw(case):
    """Each weighed by its rows, and where the point was by then."""
    skip_unless_it_fits(case, "stochastic")
    model, solver = case.model, SOLVERS["stochastic"]()
    solver.start(model, case.data, np.random.default_rng(0))
    partition = solver.partition
    short, rest = cut(case.data, partition.batches[0], 1)
    batches = [short, *partition.batches[1:], rest]
    solver.partition = partition = MemoryPartition(batches, partition.total_weight)
    point, objectives, weights = case.point, [], []
    for epoch in range(3):
        anchor = solver.certify(recentred(model, point), 1.0)
        if epoch:
            assert sum(weights) == pytest.approx(case.data.total_weight)
            expected = np.average(objectives, weights=weights)
            assert anchor.objective == pytest.approx(expected, rel=1e-12)
        point, objectives, weights = anchor.point, [], []
        for visit in solver.visits(np.random.default_rng(epoch)):
            nothing, mean = solver.estimate(visit, point)
            objectives.append(model.objective(point, mean))
            weights.append(visit.total_weight)
            point = model.update(point, nothing, mean, 0.3)
        assert np.ptp(weights) > 0.0


@pytest.mark.parametrize("name", TABLES)
def test_the_certificate_is_a_bound_and_tight_at_a_fixed_point(case, best, name):
    model, rng = case.model, np.random.default_rng(0)
    skip_unless_it_fits(case, name, bound=True)
    solver = SOLVERS[name]()
    solver.start(model, case.data, rng)
    point = case.point
    for _ in range(4):
        anchor = solver.certify(recentred(model, point), 1.0)
        top = model.update(anchor.point, anchor.mean, None, 1.0)
        exact = batch_mean(model, case.data, recentred(model, top))
        assert anchor.objective <= exact.objective + 1e-6
        # The highest of its kind: the surrogate of the table's mean, maximized.
        for length in (0.5, 1.0):
            other = model.update(anchor.point, anchor.mean, None, length)
            other = float(anchor.mean.entropy) + model.surrogate(other, anchor.mean)
            assert other <= anchor.objective + 1e-7
        point = anchor.point
        for visit in solver.visits(rng):
            mean, correction = solver.estimate(visit, point)
            rho = 1.0 if solver.unit_step else 0.3
            point = model.update(point, mean, correction, rho)
    solver.start(model, case.data, rng)
    best = recentred(model, best)
    exact = batch_mean(model, case.data, best).objective
    assert solver.certify(best, 1.0).objective == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("name", ["squarem", "svrg", "saga"])
def test_a_bad_step_is_taken_back(case, best, name, monkeypatch):
    """An estimate that leads astray costs an epoch, not the fit."""
    skip_without_bound(case)
    skip_unless_it_fits(case, name, bound=True)
    cls = {"squarem": solvers.Squarem, **solvers.BY_NAME}[name]
    astray = {"calls": 0}
    step_of = "_extrapolated" if name == "squarem" else "estimate"
    honest = getattr(cls, step_of)

    def sabotage(self, *arguments):
        told = honest(self, *arguments)
        astray["calls"] += 1
        if astray["calls"] not in (4, 5):
            return told
        point = arguments[-1]
        point = point.point if name == "squarem" else point
        far = case.model.start(parts(case.model, case.point)).statistics
        if point.reference is not None:
            far = case.model.translate(far, case.point.parameters[1], point.reference)
        return far if name == "squarem" else (far, None)

    monkeypatch.setattr(cls, step_of, sabotage)
    result = fit(case, name, max_iter=500, tol=1e-10)
    exact = batch_mean(case.model, case.data, best).objective
    assert result.objective == pytest.approx(exact, abs=1e-6)


def test_moved_statistics_equal_statistics_taken_there(case):
    model = case.model
    anchor = batch_mean(model, case.data, case.point)
    moved = model.update(anchor.point, anchor.mean, None, 1.0)
    if moved.reference is None:
        pytest.skip("no reference")
    there = recentred(model, moved)
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
    assert solver.certify(case.point, 0.5).passes == 1.0
    anchor = solver.certify(case.point, 1.0)
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
    batches = [short, *partition.batches[1:], rest]
    solver.partition = partition = MemoryPartition(batches, partition.total_weight)
    anchor = solver.certify(recentred(case.model, case.point), 1.0)
    away = case.model.update(anchor.point, anchor.mean, None, 1.0)
    total = None
    for visit in partition.batches:
        _, correction = solver.estimate(visit, away)
        total = accumulate(total, correction)
    estimate = flat(anchor.mean) + flat(scale(total, 1 / len(partition)))
    expected = flat(batch_mean(case.model, case.data, away).mean)
    np.testing.assert_allclose(estimate, expected, atol=1e-11)
