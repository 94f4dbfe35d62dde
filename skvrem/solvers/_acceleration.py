"""SQUAREM (Varadhan and Roland 2008) on the fixed point of batch passes."""

from skvrem.solvers._batch import Batch
from skvrem.utils._algebra import combination, difference

__all__ = ["Squarem"]


class Squarem(Batch):
    r"""Squared extrapolation of any fixed-point map, here :math:`s \to F(R(s))`.

    From :math:`s_0` and two applications :math:`s_1, s_2`, with
    :math:`r = s_1 - s_0`, :math:`v = (s_2 - s_1) - r`, the next point is

    .. math:: s' = s_0 - 2 \alpha r + \alpha^2 v, \qquad
              \alpha = -\max(1, \|r\| / \|v\|)

    (scheme S3). It is handed on as the mean :math:`s_2` plus a correction, so a model
    scales it until it is feasible, and where the objective falls the loop returns to
    :math:`R(s_2)`: as safe as the map itself. Two passes a cycle: the pass that checks
    an extrapolation is the first of the next cycle.
    """

    certifies = True
    # A short plain step and a long extrapolated one take turns.
    patience = 2

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.previous = None
        self.longest = 4.0

    def estimate(self, visit, point):
        """Return s_1, or s_2 with the extrapolation as its correction."""
        image = self.anchor.mean
        if self.previous is None:
            self.previous = self.anchor
            return image, None
        translate = self.model.translate
        reference = self.previous.point.reference
        s0 = translate(self.previous.point.statistics, reference, point.reference)
        self.previous = None
        s1 = point.statistics
        r = difference(s1, s0)
        v = difference(difference(image, s1), r)
        norm_r, norm_v = self.model.norm(point, r), self.model.norm(point, v)
        if not norm_r > norm_v > 0.0:
            return image, None
        alpha = -min(norm_r / norm_v, self.longest)
        if -alpha == self.longest:
            self.longest *= 4.0
        target = combination((1.0, s0), (-2.0 * alpha, r), (alpha * alpha, v))
        return image, difference(target, image)

    def restore(self, anchor):
        """Begin a new cycle, with shorter extrapolations."""
        self.previous = None
        self.longest = max(1.0, self.longest / 4.0)
