"""The loop itself, with a solver and a model of a few lines."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from skvrem import solvers
from skvrem.schedules import Constant
from skvrem.solvers._protocols import Anchor, Moved
from skvrem.solvers.estimate._visiting import Visiting
from skvrem.solvers.step import _sweeps


class Height(NamedTuple):
    value: float
    repaired: tuple = ()
    trials: int = 0


class Still:
    """A model whose batch step stays where it is."""

    def reseed(self, point, data, rng):
        return point

    def recentre(self, point):
        return point

    def update(self, point, mean, correction, step):
        return point


class Astray:
    """A solver each of whose epochs loses a nat, however short its steps."""

    exact = certifies = True
    noisy = False
    patience = confirms = 1
    name = "astray"

    def start(self, model, data, rng):
        self.restored = 0

    def certify(self, point, beta):
        return Anchor(point, point.value, 1.0, point)

    def epoch(self, anchor, pace, rng):
        self.shortest = pace(0)
        return Moved(Height(anchor.point.value - 1.0), 1.0)

    def restore(self, anchor):
        self.restored += 1


def test_steps_that_have_shrunk_to_nothing_end_a_fit():
    solver = Astray()
    result = solvers.run(
        Still(),
        solver,
        None,
        Height(3.0),
        step_size=Constant(1.0),
        temperature=Constant(1.0),
        max_iter=1000,
        tol=1e-3,
        rng=np.random.default_rng(0),
    )
    assert result.reason == "stalled" and result.n_iter < 60
    # Every epoch was taken back, and tried with shorter steps.
    assert result.objective == result.point.value == 3.0
    assert solver.restored == result.n_iter and solver.shortest < 1e-5


class Sinking(Astray):
    """A solver each of whose epochs loses as much as it is told."""

    loss = 0.0

    def epoch(self, anchor, pace, rng):
        return Moved(Height(anchor.point.value - self.loss), 1.0)


@pytest.mark.parametrize(
    ("height", "loss", "back"),
    [(1e6, 5e-5, 0), (1e6, 2e-4, 1), (1e-3, 5e-11, 0), (1e-3, 2e-10, 1)],
)
def test_a_loss_of_rounding_is_none(height, loss, back):
    """Of the ten leading digits, or of a nat where the objective is smaller."""
    solver = Sinking()
    solver.loss = loss
    rng = np.random.default_rng(0)
    fit = solvers.Run(Still(), solver, None, Height(height), tol=0.0, rng=rng)
    fit.advance(1)
    assert solver.restored == back


def test_runs_that_go_on_share_their_epochs():
    fit, passes = solvers.Runs(5, 0.0, tol=0.0, rng=np.random.default_rng(0)), 0.0
    for n_epochs, left in ((3, 2), (1, 1), (1, 0)):
        most = iter([False] * (n_epochs - 1) + [True])
        solver, report = Sinking(), lambda *_, m=most: next(m)
        found = fit.go_on(Still(), solver, Height(1.0), passes=0.5, report=report)
        # What the point has cost, its certificate, and the epochs.
        assert found.history[0].passes > passes + 0.5
        assert found.history[-1].passes > found.history[0].passes
        passes = found.history[-1].passes
        assert fit.ended  # as it was asked for
        fit.results[-1] = fit.results[-1]._replace(reason=None)
        assert fit.ended == (left == 0)
    assert fit.result().n_iter == 5


class Told:
    """A model that returns the step it is to make."""

    def update(self, point, table, mean, step):
        return point, mean, step


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_steps_of_a_stream_fall_and_shares_of_one_forget_as_much(share):
    estimator = SimpleNamespace(step_size=0.8, step_offset=1.0, step_decay=0.5)
    how = {"mean": 5.0, "share": share}
    whole = 0.8 * (3.0 + 1.0) ** -0.5
    found = solvers.stream_step(estimator, Told(), "point", None, 3.0, **how)
    assert found.step_size == pytest.approx(1.0 - (1.0 - whole) ** share)
    assert found.point == ("point", 5.0, found.step_size)
    first = solvers.stream_step(estimator, Told(), "point", None, None, **how)
    assert first.step_size == 1.0
    estimator.step_size = "auto"
    found = solvers.stream_step(
        estimator, Told(), "point", None, 3.0, decay=(13.0, 0.25), **how
    )
    assert found.step_size == pytest.approx(1.0 - (1.0 - 0.5) ** share)


class Visited(Visiting):
    """Four visits an epoch, which move nothing."""

    exact = certifies = True
    name, patience, passes = "visited", 1, 1.0

    def start(self, model, data, rng):
        self.model = model

    def certify(self, point, beta):
        return Anchor(point, point.value, 1.0, point)

    def visits(self, rng):
        return range(4)

    def estimate(self, visit, point):
        return None, None


class Swept(Still):
    """The same, as a sweep of eight rows, two a visit."""

    sweep_passes, rows_a_visit, noise_width = 1.0, 2, 0

    def full_pass(self, point, data):
        return point, None, None

    def objective(self, point, mean):
        return point.value

    def predicted_gain(self, point, mean):
        return np.inf

    def visits(self, known, rng):
        return np.arange(8)

    def noise(self, work, visits, rng):
        pass

    def open(self, anchor):
        return anchor.point

    def sweep(self, work, known, visits, noise, sizes):
        assert len(visits) == 2 * len(sizes)
        return 0

    def variance(self, work):
        return np.nan

    def close(self, work):
        return work


def of_single_visits(monkeypatch):
    """Have an epoch of sweeps made of as many pieces as there are visits."""
    monkeypatch.setattr(_sweeps, "FIRST_PIECE", 1)
    monkeypatch.setattr(_sweeps, "PIECE_SECONDS", 0.0)


@pytest.mark.parametrize("kind", ["visits", "sweeps"])
def test_steps_are_counted_over_epochs_and_pauses(kind, monkeypatch):
    of_single_visits(monkeypatch)
    counts = []

    def step_size(count):
        counts.extend(np.atleast_1d(count))
        return 1.0 / (1.0 + count)

    visits = kind == "visits"
    fit = solvers.Run(
        Still() if visits else Swept(),
        Visited() if visits else solvers.Sweeps("stochastic"),
        None,
        Height(1.0),
        step_size=step_size,
        temperature=Constant(1.0),
        tol=0.0,
        rng=np.random.default_rng(0),
    )
    fit.advance(2).advance(3)
    # The first is what the history shows of the start.
    assert counts == [0, *range(5 * 4)]
    assert [row.step_size for row in fit.history] == [
        1,
        1 / 4,
        1 / 8,
        1 / 12,
        1 / 16,
        1 / 20,
    ]
    assert fit.n_steps == fit.state()["n_steps"] == 20


def test_rejected_steps_of_all_pieces_are_counted(monkeypatch):
    of_single_visits(monkeypatch)
    monkeypatch.setattr(Swept, "sweep", lambda *arguments: 1)
    solver = solvers.Sweeps("stochastic")
    solver.start(Swept(), None, None)
    anchor = solver.certify(Height(0.0), 1.0)
    moved = solver.sweep(anchor, lambda count: 1.0 / (1.0 + count), None)
    assert (moved.n_steps, moved.n_rejected, moved.step_size) == (4, 4, 0.25)


def test_rejected_visits_are_counted():
    solver, infeasible = Visited(), Still()
    trials = iter([2, 1, 0, 1])
    infeasible.update = lambda point, *_: point._replace(trials=next(trials))
    solver.start(infeasible, None, None)
    anchor = solver.certify(Height(0.0), 1.0)
    moved = solver.epoch(anchor, Constant(1.0), None)
    assert (moved.n_steps, moved.n_rejected) == (4, 3)


@pytest.mark.parametrize("exact", [True, False])
def test_one_dip_of_a_bound_means_nothing(exact):
    """The second in a row sends the fit back, to before both."""
    solver = Astray()
    solver.exact = exact
    fit = solvers.Run(
        Still(),
        solver,
        None,
        Height(3.0),
        step_size=Constant(1.0),
        temperature=Constant(1.0),
        tol=0.0,
        rng=np.random.default_rng(0),
    )
    restored, at = [], []
    for _ in range(4):
        fit.advance(1)
        restored.append(solver.restored)
        at.append(fit.anchor.point.value)
    assert restored == ([1, 2, 3, 4] if exact else [0, 1, 1, 2])
    assert at == ([3.0] * 4 if exact else [2.0, 3.0, 2.0, 3.0])


@pytest.mark.parametrize(("kind", "passes"), [("stochastic", 2.0), ("svrg", 2.5)])
def test_sweeps_predict_as_their_predictions_fall(kind, passes, monkeypatch):
    predictions = iter([8.0, 4.0, 1.0])
    monkeypatch.setattr(Swept, "predicted_gain", lambda *_: next(predictions))
    model, solver = Swept(), solvers.Sweeps(kind)
    model.known_at, model.known_passes = lambda anchor, rng: (), 0.5
    solver.start(model, None, None)
    anchor = solver.certify(Height(0.0), 1.0)
    assert anchor.predicted_gain == 8.0 and anchor.passes == 1.0
    for left in (4.0 / (1.0 - 0.5), 1.0 / (1.0 - np.sqrt(1.0 / 8.0))):
        moved = solver.epoch(anchor, Constant(1.0), None)
        anchor = moved.certified
        assert anchor.predicted_gain == pytest.approx(left)
        # Sweep, certificate, and what controls the steps.
        assert moved.passes == passes


class Climbing(Astray):
    """Each epoch gains a nat."""

    def __init__(self, name):
        self.name = name

    def epoch(self, anchor, pace, rng):
        return Moved(Height(anchor.point.value + 1.0), 1.0)


class Ends:
    """Progress that counts starts begun and ended."""

    def __init__(self, n_init):
        self.n_init = n_init
        self.began, self.ended, self.epochs = 0, 0, []

    def start(self, number, attributes, stop=None, most=None):
        def report(epoch, point):
            self.epochs.append((number, point.value))

        def end():
            self.ended += 1

        self.began += 1
        report.end = end
        return report


class Units:
    n_units = 10


def starts(heights, plan, max_iter):
    """Fit from these heights; return the result, its attributes, the progress."""
    progress, heights = Ends(len(heights)), iter(heights)

    def start(rng):
        return solvers.Start(
            Still(), Height(next(heights)), lambda p, _: {"at_": p.value}
        )

    estimator = SimpleNamespace(max_iter=max_iter, tol=1e-3)
    rng = np.random.RandomState(0)
    best, attributes = solvers.run_starts(
        estimator, start, plan, Units(), progress, rng
    )
    return best, attributes, progress


def race(*rungs):
    return solvers.Plan(
        "main", Climbing("main"), lead=lambda: Climbing("lead"), rungs=rungs
    )


def test_the_best_of_a_race_goes_on():
    best, attributes, progress = starts([0.0, 5.0, np.nan], race((2, 1)), 6)
    np.testing.assert_equal(attributes["init_scores_"], [2.0, 11.0, np.nan])
    assert attributes["init_epochs_"].tolist() == [2, 6, 2]
    assert attributes["at_"] == best.objective == 11.0
    assert best.n_iter == 6 and attributes["solver_"] == "main"
    assert attributes["history_"]["solver"].tolist() == ["lead"] * 3 + ["main"] * 4
    assert attributes["history_"]["objective"].tolist() == list(range(5, 12))
    # The start's certificate, a pass an epoch, and those of certificates.
    assert np.all(np.diff(attributes["history_"]["passes"]) > 0.0)
    assert progress.began == progress.ended == 3
    assert "step_size_" not in attributes  # the plan knows of none


def test_rungs_of_a_race_leave_fewer_and_fewer():
    heights, plan = [3.0, 0.0, 5.0, np.nan, 5.0], race((2, 3), (3, 2))
    best, attributes, progress = starts(heights, plan, 9)
    assert attributes["init_epochs_"].tolist() == [5, 2, 9, 2, 9]
    np.testing.assert_equal(attributes["init_scores_"], [8.0, 2.0, 14.0, np.nan, 14.0])
    assert best.objective == 14.0 and progress.ended == 5


def test_nobody_goes_on_to_whom_the_first_is_out_of_reach():
    """If as many epochs again, of some, all gain as much as the last has."""
    cases = (
        (9, 9.0, [14, 11, 14]),
        (10, 10.0 - 1e-9, [15, 10, 15]),
        (10, 10.0, [10, 10, 15]),
    )
    for n, behind, epochs in cases:
        heights, plan = [20.0 - behind, 0.0, 20.0], race((n, 3), (2, 2))
        _, attributes, progress = starts(heights, plan, n + 5)
        assert attributes["init_epochs_"].tolist() == epochs
        assert progress.ended == 3


def test_a_race_takes_no_more_epochs_than_there_are():
    best, attributes, _ = starts([0.0, 5.0, 2.0], race((9, 1)), 4)
    assert best.n_iter == 4 and attributes["solver_"] == "lead"
    best, attributes, _ = starts([0.0, 5.0, 2.0], race((3, 2), (3, 1)), 4)
    assert attributes["init_epochs_"].tolist() == [3, 4, 4]


@pytest.mark.parametrize("rungs", [(), ((1, 2),), ((1, 1),)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_of_starts_that_are_equal_but_for_rounding_the_first_is_kept(rungs, sign):
    """As that of sums depends on where rows lie."""
    off = sign * 3e-15
    _, attributes, _ = starts([0.0, 5.0, 5.0 + off, 5.0 - off], race(*rungs), 3)
    assert attributes["at_"] == 8.0
    _, attributes, _ = starts([0.0, 5.0, 5.0 + 1e-9], race(*rungs), 3)
    assert attributes["at_"] == 8.0 + 1e-9


def test_all_starts_are_long_without_a_lead():
    plan = solvers.Plan("main", Climbing("main"), Constant(0.5), 3)
    best, attributes, progress = starts([0.0, 5.0, 2.0], plan, 4)
    assert attributes["init_scores_"].tolist() == [4.0, 9.0, 6.0]
    assert best.objective == 9.0 and progress.ended == 3
    assert attributes["step_size_"] == 0.5 and attributes["batch_size_"] == 4


def test_predictions_that_are_too_small_are_scaled():
    """By all of the curvature, which is asked for once while that leaves much."""
    asked = []

    class Promising:
        predictions = iter([1.0, 5e-3, 2.5e-3, 1e-5])

        def full_pass(self, point, data):
            return point, None, None

        def objective(self, point, mean):
            return 0.0

        def predicted_gain(self, point, mean):
            return next(self.predictions)

        def left_to_gain(self, point):
            asked.append(point)
            return 1.0 if len(asked) == 1 else 2e-5

    solver = solvers.Sweeps("stochastic", 0.01)
    solver.start(Promising(), None, None)
    anchors = [solver.certify(number, 1.0) for number in range(4)]
    left = [anchor.predicted_gain for anchor in anchors]
    assert left[0] == 1.0 and left[1] == 1.0
    assert 0.4 < left[2] < 0.6 and left[3] < 1e-4
    assert asked == [1, 3] and [a.passes for a in anchors] == [1.0, 2.0, 1.0, 2.0]


def starting_at(heights):
    """Starts at these heights, of which ends above 8 are degenerate."""
    left = iter(heights)

    def start(rng):
        return solvers.Start(
            Still(),
            Height(next(left)),
            lambda p, _: {"at_": p.value},
            degenerate=lambda p: p.value > 8.0,
        )

    return start


@pytest.mark.parametrize("heights", [[5.0, 1.0, 2.0], [5.0, 4.0, 3.5]])
def test_starts_left_behind_go_on_where_all_others_end_degenerate(heights):
    """The first is ahead of them until it is."""
    estimator = SimpleNamespace(max_iter=6, tol=1e-3)
    rng, progress = np.random.RandomState(0), Ends(3)
    best, attributes = solvers.run_starts(
        estimator, starting_at(heights), race((1, 1)), Units(), progress, rng
    )
    ends = 6.0 + np.array(heights)
    honest = ends[ends <= 8.0]
    # One, as had gone on before, the most promising; of degenerate ends the highest.
    assert best.objective == attributes["at_"] == max(honest, default=ends.max())
    assert progress.began == progress.ended == 3
    gone = [number for number, value in progress.epochs if value == ends[number]]
    assert gone == ([0, 2] if honest.size else [0, 1])


def test_a_degenerate_start_loses_to_any_other():
    for plan in (race((1, 2)), solvers.Plan("main", Climbing("main"))):
        start = starting_at([1.0, 9.0, 2.0])
        estimator = SimpleNamespace(max_iter=3, tol=1e-3)
        rng, progress = np.random.RandomState(0), Ends(3)
        best, _ = solvers.run_starts(estimator, start, plan, Units(), progress, rng)
        assert best.objective == 5.0


@pytest.mark.parametrize(("height", "epochs"), [(2.0, 6), (0.7, 6), (-3.0, 1)])
def test_a_start_beside_a_race_takes_no_place_of_others(height, epochs):
    """Two of three go on, whatever it is; it does by its place among all."""
    heights = [1.0, 0.5, 0.0, height]
    begun, beside = starting_at(heights), iter([False, False, False, True])

    def start(rng):
        return begun(rng)._replace(beside=next(beside), degenerate=None)

    estimator = SimpleNamespace(max_iter=6, tol=1e-3)
    rng, progress = np.random.RandomState(0), Ends(4)
    best, attributes = solvers.run_starts(
        estimator, start, race((1, 2)), Units(), progress, rng
    )
    assert attributes["init_epochs_"].tolist() == [6, 6, 1, epochs]
    assert best.objective == 6.0 + max(heights)
    assert progress.began == progress.ended == 4
