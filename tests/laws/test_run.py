"""The loop itself, with a solver and a model of a few lines."""

from typing import NamedTuple

import numpy as np

from skvrem import solvers
from skvrem.schedules import Constant
from skvrem.solvers._protocols import Anchor, Moved


class Height(NamedTuple):
    value: float
    repaired: tuple = ()


class Still:
    """A model whose batch step stays where it is."""

    def revive(self, point, data, rng):
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
