"""What the EM family does with an estimated mean: average it in, then maximize."""

from typing import Any, NamedTuple

from skvrem.utils._algebra import combination

# Fractions of a correction that are tried in turn. Without any of it the new
# statistics are a convex combination of feasible ones, or with no mean these made
# smaller, so the last always works.
FRACTIONS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.0)


class AveragingPoint(NamedTuple):
    """Where an averaging model stands.

    Attributes
    ----------
    parameters : NamedTuple
        R(statistics), the model's own.
    statistics : NamedTuple
        Mean sufficient statistics a unit.
    reference : Any
        What the statistics are taken about (the components' means of a mixture);
        None for a model that needs none. It stands still within an epoch.
    trials : int
        Fractions of the last correction that were infeasible.
    repaired : tuple of int
        Parts whose own statistics allowed no parameters, left as they were.
    n_reseeded : int
        Parts that have been seeded anew on the way here.
    """

    parameters: Any
    statistics: Any
    reference: Any = None
    trials: int = 0
    repaired: tuple = ()
    n_reseeded: int = 0


class Averaging:
    r"""Update of stochastic EM and its variance-reduced forms.

    .. math:: s \leftarrow (1 - \rho) s + \rho (F + \alpha c), \qquad
              \theta \leftarrow R(s)

    with the mean :math:`F`, the correction :math:`c` and the step :math:`\rho`
    (Chen et al. 2018, Eqs. 3, 4 and 5). A correction can lead out of the feasible
    statistics (a negative weight, an indefinite covariance); then it is scaled,
    by :math:`\alpha = 1, 1/2, 1/4, ...`. Near a fixed point corrections vanish
    and :math:`\alpha = 1`, so scaling moves no fixed point; clipping would.

    A model that inherits this defines ``maximize(statistics, point, repair)``, the
    M step R, which returns ``(parameters, repaired)``, or None where the statistics
    are infeasible and `repair` is false.
    """

    #: Whether the sums of a batch are kept, or what it takes to evaluate it again.
    keep_sums = False
    #: Evaluations that `recall` costs, 0 where the sums are kept.
    recall_passes = 1

    def update(self, point, mean, correction, step):
        """Return the point after one step; see the class."""
        fractions = FRACTIONS if correction is not None else (0.0,)
        own = () if step == 1.0 and mean is not None else (point.statistics,)
        for trials, fraction in enumerate(fractions):
            statistics = combination(
                *((1.0 - step, sums) for sums in own),
                (step, mean),
                (step * fraction, correction),
            )
            solution = self.maximize(statistics, point, fraction == 0.0)
            if solution is not None:
                parameters, repaired = solution
                return point._replace(
                    parameters=parameters,
                    statistics=statistics,
                    trials=trials,
                    repaired=repaired,
                )
        raise AssertionError("maximize must repair where it is asked to")

    def remember(self, point, batch, beta):
        """Return the batch's sums, and what `recall` needs to evaluate them again."""
        sums = self.statistics(point, batch, beta)
        return sums, (sums if self.keep_sums else (point, beta))

    def recall(self, memory, point, batch):
        """Return the sums of `batch` where `memory` was made."""
        if self.keep_sums:
            return memory
        at, beta = memory
        return self.statistics(at, batch, beta)

    def objective(self, point, mean):
        """Return the objective a unit, from statistics taken at `point`."""
        return float(mean.objective)
