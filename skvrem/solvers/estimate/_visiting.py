"""What solvers share whose epoch is a loop over visits: estimate, update."""

from collections.abc import Callable
from typing import Any

from skvrem.solvers._protocols import Moved
from skvrem.utils._remote import LostBesideRows


class Visiting:
    """An epoch of minibatch steps, each ``update(point, *estimate(visit, point))``.

    A solver says what is visited and how the mean is estimated there:

    - ``visits(rng)`` yields what `estimate` is called with during an epoch;
    - ``estimate(visit, point)`` returns (mean, correction) of the estimate at a point;
    - ``passes``: over the data that the visits of an epoch cost;
    - ``unit_step``: the step is always 1, whatever the pace;
    - ``lasting``: attributes that an epoch leaves to the next, beside its point.
    """

    model: Any
    visits: Callable[..., Any]
    estimate: Callable[..., Any]
    partition: Any = None  # of solvers that visit none
    passes: float
    unit_step = False
    noisy = False
    confirms = 1
    lasting: tuple = ()

    def epoch(self, anchor, pace, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        point, size = anchor.point, 1.0
        del anchor  # free to go, but for what the solver keeps of it
        n_steps = n_rejected = 0
        for visit in self.visits(rng):
            if not self.unit_step:
                size = pace(n_steps)
            try:
                # In one line, so that no name keeps the estimate longer than its step.
                point = self.model.update(point, *self.estimate(visit, point), size)
            except LostBesideRows:  # the epoch ends here: the next certificate remakes
                self.lose()
                break
            n_rejected += point.trials > 0
            n_steps += 1
        return Moved(point, self.passes, n_steps, n_rejected, size)

    def lose(self):
        """Forget a table that is lost in part."""

    def remade(self):
        """Whether something beside rows was made anew since this was last asked."""
        remade = getattr(self.partition, "remade", False)
        if remade:
            self.partition.remade = False
        return remade

    def restore(self, anchor):
        """Nothing to restore: the next epoch makes what it needs."""

    def state(self):
        """What an epoch leaves to the next one; see `Solver`."""
        return {name: getattr(self, name) for name in self.lasting}

    def resume(self, state):
        """Take it back, before the point is certified."""
        vars(self).update(state)
