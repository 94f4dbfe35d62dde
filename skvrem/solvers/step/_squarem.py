"""SQUAREM (Varadhan and Roland 2008) on the fixed point of batch passes."""

from skvrem.solvers._protocols import Moved, recentred
from skvrem.solvers.estimate._batch import Batch
from skvrem.utils._algebra import combination, difference

# A decrease of the objective, relative to it, that is its rounding.
ROUNDING = 1e-12


class Squarem(Batch):
    r"""Squared extrapolation of any fixed-point map, here :math:`s \to F(R(s))`.

    From :math:`s_0` and two applications :math:`s_1, s_2`, with
    :math:`r = s_1 - s_0`, :math:`v = (s_2 - s_1) - r`, the next point is

    .. math:: s' = s_0 - 2 \alpha r + \alpha^2 v, \qquad
              \alpha = -\max(1, \|r\| / \|v\|)

    (scheme S3). It is the mean :math:`s_2` plus a correction, so a model scales it
    until it is feasible. An epoch is two passes: a plain step, and the pass that says
    whether the extrapolation is higher still. Where it is not, a second plain step
    takes its place: as safe as the map itself.
    """

    name = "batch+squarem"
    # Short extrapolations and long ones take turns, and gains fall faster than what is
    # left in slow directions. Of 210 fits of mixtures with tol=1e-3 (from one start or
    # a search) 6 % end with more than that left; of four epochs without caution 20 %,
    # for a sixth fewer passes.
    steady, patience = False, 3
    caution = 30.0
    lasting = ("longest",)

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.longest = 4.0

    def epoch(self, anchor, pace, rng):
        """Make a plain step, then an extrapolated one if that is better."""
        # Before the update, which may write to what the point is made of.
        s0, reference = anchor.point.statistics, anchor.point.reference
        plain = self._evaluate(self.model.update(anchor.point, anchor.mean, None, 1.0))
        target = self._extrapolated(s0, anchor.mean, reference, plain)
        if target is None:
            return Moved(plain.point, 1.0, certified=plain)
        correction = difference(target, plain.mean)
        far = self.model.update(plain.point, plain.mean, correction, 1.0)
        far, passes = self._evaluate(far), 2.0
        slack = ROUNDING * max(1.0, abs(plain.objective))
        # Written so that NaN counts as a decrease.
        if not far.objective >= plain.objective - slack:
            self.longest = max(1.0, self.longest / 4.0)
            again = self.model.update(plain.point, plain.mean, None, 1.0)
            far, passes = self._evaluate(again), 3.0
        return Moved(far.point, passes, certified=far)

    def _evaluate(self, point):
        return self.certify(recentred(self.model, point), self.beta)

    def _extrapolated(self, s0, s1, reference, plain):
        """Return s' about the reference of the plain step, whose mean is s2.

        None where the map is not seen to slow down.
        """
        new = plain.point.reference
        if new is not reference:
            s0, s1 = (self.model.translate(s, reference, new) for s in (s0, s1))
        r = difference(s1, s0)
        v = difference(difference(plain.mean, s1), r)
        norm_r = self.model.norm(plain.point, r)
        norm_v = self.model.norm(plain.point, v)
        if not norm_r > norm_v > 0.0:
            return None
        alpha = -min(norm_r / norm_v, self.longest)
        if -alpha == self.longest:
            self.longest *= 4.0
        return combination((1.0, s0), (-2.0 * alpha, r), (alpha * alpha, v))
