"""Solvers one by one, on models of one number whose answers are known."""

import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skvrem import VRGaussianMixture, solvers
from skvrem.solvers._pace import FORGIVEN, Pace
from skvrem.solvers._prediction import GainPrediction, left_to_gain
from skvrem.solvers._protocols import Anchor
from skvrem.solvers._stream import Streamed, stream_step
from skvrem.solvers.step._quasi_newton import SUFFICIENT


class Sums(NamedTuple):
    value: Any
    objective: float
    entropy: float = 0.0


class At(NamedTuple):
    value: float
    statistics: Any = None
    reference: Any = None
    trials: int = 0


class Once:
    """All data in one batch, of weight 4."""

    total_weight = 4.0

    def chunks(self):
        return self

    def sum(self, function):
        return function(None)


class Hill:
    """A parabola, or another objective of one number, with its top at 0.

    A full step multiplies the number by `rate`; it is also a fixed-point map of one
    statistic, for extrapolation.
    """

    def __init__(self, rate, objective=lambda x: -0.5 * x * x):
        self.rate, self.height, self.seen = rate, objective, 0

    def statistics(self, point, batch, beta):
        self.seen += 1
        assert beta == 1.0  # nothing here is annealed
        value = np.array(4.0 * self.rate * point.value)
        return Sums(value, 4.0 * self.height(point.value))

    def objective(self, point, mean):
        return mean.objective

    def update(self, point, mean, correction, step):
        there = sum(float(part.value) for part in (mean, correction) if part)
        there = point.value + step * (there - point.value)
        return At(there, Sums(np.array(there), 0.0))

    def recentre(self, point):
        return point

    def translate(self, sums, reference, new_reference):
        return sums

    def norm(self, point, sums):
        return abs(float(sums.value))

    def predicted_gain(self, point, mean):
        return 0.5 * point.value**2

    # For quasi-Newton steps, whose metric is `metric` times the curvature.

    metric, metric_cost = 1.0, 2.0

    def gradient(self, point, mean):
        return np.array([-point.value])

    def move(self, point, step):
        return At(point.value + step.item())

    def precondition(self, point, vector):
        return vector / self.metric

    def recondition(self, point, data, rng):
        return point, 0.5


def started(solver, model, value):
    """A solver, and its anchor at a number."""
    solver.start(model, Once(), np.random.default_rng(0))
    anchor = solver.certify(At(value, Sums(np.array(value), 0.0)), 1.0)
    model.seen = 0
    return anchor


def test_ascent_halves_a_step_until_it_gains():
    model, solver = Hill(-4.0), solvers.Ascent()
    anchor = started(solver, model, 4.0)
    assert anchor.predicted_gain == 8.0
    moved = solver.epoch(anchor, None, None)
    # To -16, -6 and -1.
    assert moved.passes == model.seen == 3 and moved.n_steps == 1
    assert moved.point.value == -1.0 and moved.certified.objective == -0.5
    # Of 1/2, as much is left as the fall from 8 to 1/2 predicts.
    left = moved.certified.predicted_gain
    assert left == pytest.approx(0.5 / (1.0 - 1.0 / 16.0))


def test_ascent_remembers_where_the_top_lay():
    """Also of a step that gained, to the other side; and where it was too short."""
    for rate, length in ((-0.5, 1.0 / 1.5), (-4.0, 1.0 / 5.0), (0.5, 1.0)):
        model, solver = Hill(rate), solvers.Ascent()
        model.slope_left = lambda before, after: after.point.value / before.point.value
        moved = solver.epoch(started(solver, model, 4.0), None, None)
        assert solver.length == solver.state()["length"] == pytest.approx(length)
        again = solver.epoch(moved.certified, None, None)
        assert again.passes == 1
        assert rate > 0.0 or again.point.value == pytest.approx(0.0, abs=1e-12)


def test_ascent_begins_at_one_where_no_slope_is_told():
    """However short the last step: what a fit that goes on does as well."""
    model, solver = Hill(-15.0), solvers.Ascent()
    moved = solver.epoch(started(solver, model, 4.0), None, None)
    assert moved.passes >= 4
    assert solver.length == 1.0


def test_ascent_stalls_where_no_length_gains():
    model, solver = Hill(2.0), solvers.Ascent()
    anchor = started(solver, model, 1.0)
    moved = solver.epoch(anchor, None, None)
    assert moved.stalled and moved.n_steps == 0 and moved.certified is anchor
    assert moved.passes == model.seen == 40


def test_ascent_takes_rounding_for_no_fall():
    for fall, passes in ((1e-8, 1), (1e-6, 5)):
        model = Hill(1.0 + fall, lambda x: 1e6 - x)
        solver = solvers.Ascent()
        moved = solver.epoch(started(solver, model, 1.0), None, None)
        assert moved.passes == passes


def test_extrapolation_of_a_line_is_exact():
    model, solver = Hill(0.7), solvers.Squarem()
    moved = solver.epoch(started(solver, model, 1.0), None, None)
    assert moved.point.value == pytest.approx(0.0, abs=1e-15)
    assert moved.passes == model.seen == 2 and solver.longest == 4.0


def test_extrapolations_grow_where_they_are_too_short():
    model, solver = Hill(0.99), solvers.Squarem()
    anchor, longest = started(solver, model, 1.0), []
    for _ in range(4):
        before, anchor = anchor.point.value, solver.epoch(anchor, None, None).certified
        longest.append(solver.longest)
        alpha = min(100.0, 4.0 ** len(longest))
        expected = before * (1.0 - 0.01 * alpha) ** 2
        assert anchor.point.value == pytest.approx(expected, abs=1e-11)
    assert longest == [16.0, 64.0, 256.0, 256.0]
    assert solver.state() == {"longest": 256.0}


def test_extrapolations_that_fall_give_way_to_a_plain_step():
    model, solver = Hill(0.9, lambda x: -abs(x - 0.8)), solvers.Squarem()
    anchor = started(solver, model, 1.0)
    moved = solver.epoch(anchor, None, None)
    assert moved.point.value == pytest.approx(0.81)
    # The bound has grown, as it was met, and shrunk again.
    assert moved.passes == model.seen == 3 and solver.longest == 4.0
    solver.longest = 2.0
    solver.epoch(anchor, None, None)
    assert solver.longest == 2.0


def test_extrapolation_needs_a_map_that_slows_down():
    model, solver = Hill(-0.5), solvers.Squarem()
    moved = solver.epoch(started(solver, model, 1.0), None, None)
    assert moved.point.value == -0.5 and moved.passes == model.seen == 1


@pytest.mark.parametrize("metric", [1.0, 4.0, 0.4])
def test_quasi_newton_learns_the_curvature_of_a_parabola(metric):
    model, solver = Hill(1.0), solvers.QuasiNewton(1e-12)
    model.metric = metric
    anchor = started(solver, model, 1.0)
    assert anchor.passes == 1.5
    assert anchor.predicted_gain == pytest.approx(0.5 / metric)
    first = solver.epoch(anchor, None, None)
    # A step of 2.5 is cut to the top of a parabola through both ends.
    expected = {1.0: 0.0, 4.0: 0.75, 0.4: 0.0}[metric]
    assert first.point.value == pytest.approx(expected, abs=1e-12)
    assert first.passes == model.seen == (2 if metric < 1.0 else 1)
    second = solver.epoch(first.certified, None, None)
    assert second.point.value == pytest.approx(0.0, abs=1e-12)


def test_quasi_newton_steps_are_no_longer_than_the_model_allows():
    model, solver = Hill(1.0), solvers.QuasiNewton(1e-12)
    model.metric, model.longest_step = 1.0, 0.25
    first = solver.epoch(started(solver, model, 1.0), None, None)
    assert first.point.value == pytest.approx(0.75, abs=1e-12)
    second = solver.epoch(first.certified, None, None)
    assert second.point.value == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(("share", "passes"), [(-0.2, 2), (0.75, 2), (1.25, 1)])
def test_quasi_newton_steps_gain_a_share_of_what_the_slope_predicts(share, passes):
    """Across the top, to where little more, or less, than that is gained."""
    model, solver = Hill(1.0), solvers.QuasiNewton(1e-12)
    model.metric = 0.5 * (1.0 + share * SUFFICIENT)
    moved = solver.epoch(started(solver, model, 1.0), None, None)
    assert moved.passes == model.seen == passes
    # What is cut is cut to the top, and by half at least.
    whole, half = 1.0 - 1.0 / model.metric, 1.0 - 0.5 / model.metric
    end = whole if passes == 1 else max(half, 0.0)
    assert moved.point.value == pytest.approx(end, abs=1e-12)


@pytest.mark.parametrize(
    ("before", "now", "cost", "pays"),
    [
        # 20 steps by halves, or 5 by twentieths, to a millionth.
        (2.0, 1.0, 15.0, True),
        (2.0, 1.0, 16.0, False),
        # Fast enough; and not even falling.
        (5.0, 1.0, 0.0, False),
        (1.0, 1.0, 1e9, True),
    ],
)
def test_a_new_metric_must_pay(before, now, cost, pays):
    model, solver = Hill(1.0), solvers.QuasiNewton(1e-6)
    started(solver, model, 1.0)
    model.metric_cost, solver.predictions = cost, [before, now]
    assert solver._is_worth_a_metric() == pays


def test_a_better_point_that_is_known_takes_the_place_of_a_start():
    model, solver = Hill(1.0), solvers.QuasiNewton(1e-6)
    known = At(1.0, Sums(np.array(1.0), 0.0))
    model.better = lambda point, objective: known if objective < -0.5 else None
    moved = solver.epoch(started(solver, model, 4.0), None, None)
    assert moved.point.value == 1.0 and moved.certified.objective == -0.5
    assert moved.passes == 1.5
    moved = solver.epoch(moved.certified, None, None)
    assert moved.point.value == pytest.approx(0.0, abs=1e-12)


def test_where_no_step_gains_the_metric_is_taken_anew():
    model, solver = Hill(1.0), solvers.QuasiNewton(1e-6)
    model.metric = 2.0
    anchor = solver.epoch(started(solver, model, 4.0), None, None).certified
    assert anchor.point.value == 2.0
    move, metrics = model.move, iter([1.0])

    def fail(point, step):
        raise FloatingPointError

    def recondition(point, data, rng):
        model.metric, model.move = next(metrics), move
        return point, 0.5

    model.move, model.recondition = fail, recondition
    solver.pairs.clear()
    moved = solver.epoch(anchor, None, None)
    assert not moved.stalled and moved.point.value == 2.0
    moved = solver.epoch(moved.certified, None, None)
    assert moved.point.value == pytest.approx(0.0, abs=1e-12)
    # Nothing is left to try with a metric that was taken there.
    model.recondition = lambda point, data, rng: (point, 0.5)
    anchor = started(solver, model, 4.0)
    model.move = fail
    assert solver.epoch(anchor, None, None).stalled


def test_steps_are_slowed_for_good_after_some_dips():
    pace = Pace()
    for _ in range(FORGIVEN):
        pace.slow_down()
    assert pace.factor == 0.5**FORGIVEN
    for times in range(1, FORGIVEN + 2):
        pace.adapt(0.0)
        assert pace.factor == min(1.0, 2.0**times * 0.5**FORGIVEN)
    pace.adapt(0.2)  # too many are infeasible
    assert pace.factor == 0.5
    pace.adapt(0.05)
    assert pace.factor == 0.5
    pace.slow_down()
    for _ in range(4):
        pace.adapt(0.0)
    assert pace.factor == pace.ceiling == 0.7
    pace.slow_down()
    for _ in range(4):
        pace.adapt(0.0)
    assert pace.factor == pace.ceiling == 0.7 * 0.7


def test_sweeps_over_blocks_that_lean_on_each_other_are_exact():
    alone, leaning = solvers.Incremental(3), solvers.Incremental(3, sweeps=5)
    assert (alone.exact, alone.passes, alone.patience) == (False, 1.0, 2)
    assert (leaning.exact, leaning.passes, leaning.patience) == (True, 5.0, 2)


def test_an_extrapolation_may_lose_what_is_rounded():
    """It is kept where the objective is lower by the last digits only."""
    for lost, end in ((1e-14, 0.0), (1e-6, 0.5)):
        model = Hill(0.5, lambda x, lost=lost: 1.0 - lost * (abs(x) < 1e-9))
        solver = solvers.Squarem()
        moved = solver.epoch(started(solver, model, 2.0), None, None)
        assert moved.point.value == pytest.approx(end, abs=1e-12)


def test_a_step_of_a_stream_is_towards_the_mean_of_the_batch():
    fitted = SimpleNamespace(step_size=0.8, step_offset=1.0, step_decay=1.0)
    step = stream_step(fitted, Hill(0.5), At(2.0), Once(), 3.0)
    assert step.step_size == pytest.approx(0.2)
    assert float(step.mean.value) == 1.0 and step.mean.objective == -2.0
    assert step.point.value == pytest.approx(1.8)


def test_a_stream_counts_its_batches():
    fitted = SimpleNamespace(history_={}, gap_left_=0.0, n_iter_=7)
    step = Streamed(None, None, 0.25)
    for n_iter in (8, 9):
        step.record(fitted, {"means_": 2}, 40)
        assert vars(fitted) == {
            "step_size_": 0.25,
            "batch_size_": 40,
            "means_": 2,
            "converged_": False,
            "n_iter_": n_iter,
            "solver_": "stochastic",
        }
    fresh = SimpleNamespace()
    step.record(fresh, {})
    assert vars(fresh) == {"converged_": False, "n_iter_": 1, "solver_": "stochastic"}


def test_what_extrapolated_gains_say_is_taken_with_caution():
    """They fall faster than what slow directions hold."""
    gains = [1.0, 0.1, 0.01]
    for solver, factor in ((solvers.Batch(), 1.0), (solvers.Squarem(), 30.0)):
        prospect = GainPrediction(1e-9)
        for gain in gains:
            anchor = Anchor(None, 0.0, 1.0, None)
            prospect.see(anchor, gain, solver, lambda anchor: True)
        assert prospect.left == pytest.approx(factor * left_to_gain(gains, 0.0))


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_stochastic_fits_that_say_they_converged_have(tol):
    """Their shrinking steps gain little long before; full passes tell what is left."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2)) + 1.5 * rng.integers(3, size=(3000, 1))
    model = VRGaussianMixture(
        3, solver="stochastic", tol=tol, batch_size=300, random_state=0, max_iter=2000
    ).fit(X)
    assert model.converged_ and model.gap_left_ < tol
    made = model.history_["solver"]
    assert made[1] == "stochastic" and made[-1] == "batch+squarem"
    end = model.objective_
    model.set_params(solver="batch", acceleration=None, warm_start=True, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rest = model.set_params(tol=0.0).fit(X)
    assert 0.0 <= rest.objective_ - end + 1e-12 < tol
