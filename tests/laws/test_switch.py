"""One solver until it is slow, then another."""

import numpy as np
import pytest

from skvrem.solvers import SVRG, AfterEpochs, Stochastic, Switch, WhenNoisy, WhenSlow
from skvrem.solvers._protocols import Anchor, Moved
from skvrem.solvers._switch import MOST_EPOCHS


class Falling:
    """Objectives that end at zero, by a rate."""

    patience = 1

    def __init__(self, rate, name):
        self.rate, self.name = rate, name
        self.models = []

    def start(self, model, data, rng):
        self.models.append(model)

    def certify(self, point, beta):
        point = point * self.rate
        return Anchor(self.name, -point, 2.0, point)


@pytest.mark.parametrize(
    ("rate", "tol", "last"),
    [
        (0.9, 1e-6, "second"),
        (0.9, 0.2, "first"),  # it would be there in a few epochs
        (0.3, 1e-6, "first"),
        (0.5, 1e-300, "second"),
    ],
)
def test_the_second_takes_over_where_the_first_is_slow(rate, tol, last):
    first, second = Falling(rate, "first"), Falling(0.1, "second")
    solver = Switch(first, second, WhenSlow(tol), "its model")
    rng = np.random.default_rng(0)
    solver.start("model", "data", rng)
    point, passes = 1.0, []
    for _ in range(8):
        anchor = solver.certify(point, 1.0)
        point = anchor.point
        passes.append(anchor.passes)
    assert solver.name == anchor.mean == last
    assert first.models == ["model"]
    if last == "second":
        assert second.models == ["its model"]
        # The epoch of the change has the passes of both.
        assert passes == [2.0, 2.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    else:
        assert not second.models
        assert passes == [2.0] * 8


def test_a_second_fit_begins_with_the_first_again():
    solver = Switch(Falling(0.99, "first"), Falling(0.1, "second"), WhenSlow(1e-9))
    for _ in range(2):
        solver.start(None, None, None)
        names = [solver.certify(1.0, 1.0).mean for _ in range(2)]
        assert names == ["first", "first"]


@pytest.mark.parametrize("n_epochs", [1, 3])
def test_the_second_takes_over_after_so_many_epochs(n_epochs):
    first, second = Falling(0.3, "first"), Falling(0.1, "second")
    solver = Switch(first, second, AfterEpochs(n_epochs))
    solver.start("model", "data", None)
    names = [solver.certify(1.0, 1.0).mean for _ in range(5)]
    assert names == ["first"] * n_epochs + ["second"] * (5 - n_epochs)
    assert second.models == ["model"]


def test_minibatches_are_cut_once():
    class Data:
        cuts = 0

        def blocks(self, n_blocks, rng):
            self.cuts += 1
            return ["block"] * n_blocks

    class Model:
        recall_passes = 0.5

    data, solver = Data(), Switch(Stochastic(3), SVRG(3), AfterEpochs(1))
    solver.start(Model(), data, None)
    assert solver.active.passes == 1.0
    assert solver.certify(None, 1.0).mean is None
    solver.first.seen = (-1.0, 1.0)  # by its visits
    solver.second.certify = lambda point, beta: Anchor(None, 0.0, 1.0, point)
    solver.certify(None, 1.0)
    assert solver.active is solver.second
    assert solver.second.partition is solver.first.partition
    assert solver.active.passes == 1.5
    assert data.cuts == 1


class Stepping(Falling):
    """Epochs that end with a certificate of their own."""

    def epoch(self, anchor, pace, rng):
        after = Falling.certify(self, anchor.point, 1.0)
        return Moved(after.point, 3.0, certified=after)


def test_the_second_takes_over_after_an_epoch_that_certifies_itself():
    solver = Switch(Stepping(0.9, "first"), Stepping(0.1, "second"), AfterEpochs(2))
    solver.start(None, None, None)
    anchor = solver.certify(1.0, 1.0)
    seen = []
    for _ in range(4):
        moved = solver.epoch(anchor, None, None)
        anchor = moved.certified
        assert moved.point == anchor.point
        seen.append((anchor.mean, moved.passes))
    # The second's own pass comes on top of the first's step.
    assert seen == [("first", 3.0), ("second", 5.0), ("second", 3.0), ("second", 3.0)]


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("height", [0.0, 100.0])
def test_slow_is_what_takes_more_epochs_than_may_be(window, height):
    """Gains that shrink by 0.8: what is left is 4 times the last one."""
    rate, last = 0.8, 1e-3
    gains = last * np.array([1.0 / rate, 1.0])
    seen = height + np.cumsum(np.insert(gains, 0, -gains.sum()))
    objectives = np.repeat(seen, window)[window - 1 :]
    for epochs, slow in ((MOST_EPOCHS - 1, False), (MOST_EPOCHS + 1, True)):
        tol = last / (1.0 - rate) * rate ** (epochs / window)
        assert WhenSlow(tol, window)(list(objectives)) == slow
    assert not WhenSlow(1e-6, window)(list(objectives[window:]))  # too few
    # Where the gains are rounding, nothing is left for a second solver.
    tiny = [height, height + 1e-15, height + 2e-15]
    assert not WhenSlow(1e-30)(tiny)
    assert WhenSlow(1e-30)([1e-3 * value for value in seen - height])


@pytest.mark.parametrize("power", [1.5, 3.0, 8.0])
@pytest.mark.parametrize("n", [3, 7])
def test_gains_that_fall_as_a_power_are_slow_where_many_are_left(power, n):
    """What is left is the rest of the series, as far as its integral tells."""
    epochs = np.arange(1.0, n + 1.0)
    objectives = np.cumsum(np.append(-1.0, epochs[1:] ** -power))
    for further, slow in ((MOST_EPOCHS - 1, False), (MOST_EPOCHS + 1, True)):
        tol = (n + further) ** (1.0 - power) / (power - 1.0)
        assert WhenSlow(tol, power=True)(list(objectives)) == slow
    assert not WhenSlow(1e-9, power=True)(list(objectives[:2]))  # too few
    # That fall no faster than as one over the epochs do not come to an end.
    endless = list(np.cumsum(np.append(-1.0, 1.0 / epochs[1:])))
    assert WhenSlow(0.5, power=True)(endless)


def test_noise_is_not_an_end():
    """Of gains that fall by half: slow, noise, or little where a fit would end."""
    objectives = [np.nan, *-(0.5 ** np.arange(16.0))]
    fast = WhenNoisy(1e-6, 2, WhenSlow(1e-6))
    few, many = objectives[:6], objectives[:12]
    assert not fast(objectives[:3]) and not fast(few) and not fast(many)
    # What the loop would take for the end is another's to certify, however early.
    assert WhenNoisy(0.3, 2, WhenSlow(0.3))(few)
    assert WhenNoisy(0.3, 2)(few)
    # So is what an epoch without a gain leaves, and what takes long.
    for seen in [np.nan, -1.0, -1.0], [*many, -2.0]:
        assert WhenNoisy(0.0, 2, WhenSlow(0.0))(seen)
        assert not WhenNoisy(0.0, 2)(seen)
        assert not WhenNoisy(0.0, 2, WhenSlow(0.0))(seen[:2])
        n = len(seen) - 1
        assert WhenNoisy(0.0, 2, WhenSlow(0.0), least=n)(seen)
        assert not WhenNoisy(0.0, 2, WhenSlow(0.0), least=n + 1)(seen)
    slow = [np.nan, *-(0.9 ** np.arange(11.0))]
    assert WhenNoisy(1e-6, 2, WhenSlow(1e-6))(slow[:4])
    assert not WhenNoisy(1e-6, 2, WhenSlow(1e-6))(slow[:3])
    assert not WhenNoisy(1e-6, 2)(slow)


def test_objectives_of_two_temperatures_do_not_compare():
    """What was seen until a temperature changed tells nothing of what is left."""
    until = WhenNoisy(0.1, 2)
    solver = Switch(Falling(1.0, "first"), Falling(0.1, "second"), until)
    solver.start(None, None, None)
    for beta in 0.25, 0.5, 0.75:
        for _ in range(4):
            assert solver.certify(1.0, beta).mean == "first"
    resumed = Switch(Falling(1.0, "first"), Falling(0.1, "second"), until)
    resumed.start(None, None, None)
    solver.first.state = lambda: {}
    resumed.first.resume = lambda state: None
    resumed.resume(solver.state())
    # After the first, which the temperature before had a part in, five of one.
    assert resumed.certify(1.0, 0.75).mean == "first"
    assert resumed.certify(1.0, 0.75).mean == "first"
    assert resumed.certify(1.0, 0.75).mean == "second"


def test_what_batches_saw_is_known_after_a_pause():
    class Data:
        def blocks(self, n_blocks, rng):
            return []

    def begun():
        solver = Switch(Stochastic(3), Falling(0.1, "second"), AfterEpochs(5))
        solver.start(None, Data(), None)
        return solver

    whole = begun()
    for seen in None, (-6.0, 2.0), (-3.0, 2.0):  # by visits
        whole.first.seen = seen
        whole.certify(None, 1.0)
    resumed = begun()
    resumed.resume(whole.state())
    assert resumed.certify(None, 1.0).objective == -1.5
    np.testing.assert_array_equal(resumed.objectives, [np.nan, -3.0, -1.5])
