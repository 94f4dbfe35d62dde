"""What is left to gain, from what the last epochs have gained."""

import math

import numpy as np

# Epochs over which a rate is measured, and the slowest that is believed of steps whose
# own prediction is scaled by it.
WINDOW, SLOWEST = 5, 0.95
# Believed of gains: beyond it, a fit is far from its end.
SLOWEST_GAINS = 0.999
# Supposed as long as one gain is all that has been seen.
UNKNOWN_RATE = 0.9
# The most epochs over which noisy gains are added up.
MOST_NOISY = 10
# A gain of this share of the tolerance is little even at the slowest rate believed.
TINY, TINY_RATE = 1e-6, 1e-3
# A solver has stalled where so many epochs together gain less than this share of what
# it predicts and of the tolerance.
FLAT, LITTLE = 5, 0.01
# What a decrease of an exact objective tells of its rounding: what may be left is less
# than so many times the changes of the epochs around it.
NOISE = 10.0
# Changes of an objective that are its own rounding, in units of its last place.
ROUNDING = 64.0


def left_to_gain(gains, objective, noisy=0, steady=False):
    """Return what is left to gain: a geometric series of the last gains.

    Parameters
    ----------
    gains : sequence of float
        Of the last epochs, the newest last; all of one objective.
    objective : float
        Now.
    noisy : int, default=0
        Epochs whose gains are added up, where those of single ones are mostly noise:
        then the sum of the last so many is compared with that of those before.
    steady : bool, default=False
        Whether the ratios of gains change from epoch to epoch only as fast directions
        die out: then the newest counts, and where it is heading.

    Returns
    -------
    left : float
        ``gain / (1 - rate)``, with the rate at which the last gains shrank. Infinite
        where they do not fall, 0 where the last one is rounding, NaN without a gain.
    """
    if noisy:
        if len(gains) < 2 * noisy:
            return math.nan
        before, size = abs(sum(gains[-2 * noisy : -noisy])), abs(sum(gains[-noisy:]))
        # Of sums that are noise themselves, the ratio says nothing.
        return size / (1.0 - min(size / max(before, 1e-300), UNKNOWN_RATE))
    if not gains or not math.isfinite(gains[-1]):
        return math.nan
    size = abs(gains[-1])
    if size <= ROUNDING * np.finfo(float).eps * max(1.0, abs(objective)):
        return 0.0
    seen = [abs(gain) for gain in gains[-3:]]
    if len(seen) == 1:
        return size / (1.0 - UNKNOWN_RATE)
    if not min(seen[:-1]) > 0.0:
        return math.inf
    rate = (seen[-1] / seen[0]) ** (1.0 / (len(seen) - 1))
    if steady:
        before, newest = seen[1] / seen[0], seen[-1] / seen[-2]
        # A rate that rises has not yet come to that of the slow directions.
        rate = max(rate, newest, 2.0 * newest - before)
    return math.inf if rate >= 1.0 else size / (1.0 - min(rate, SLOWEST_GAINS))


def left_by_sums(objectives):
    """Return what is left to gain after many steps, from their gains five by five.

    Parameters
    ----------
    objectives : sequence of float
        Of all epochs, the newest last.

    Returns
    -------
    left : float
        What a geometric series of the last two sums of gains goes on to; 0 where there
        are fewer.
    """
    if len(objectives) <= 2 * WINDOW:
        return 0.0
    first, middle, last = (objectives[-1 - i * WINDOW] for i in (2, 1, 0))
    before, size = middle - first, last - middle
    if not before > 0.0 < size:
        return 0.0
    rate = min(size / before, 1.0 - LITTLE)  # where steps are flat, little is left
    return size * rate / (1.0 - rate)


def mean_rate(predictions):
    """Return the mean factor by which an epoch lowers what it predicts, at most 0.95.

    A prediction by a metric that is not quite the curvature is short by one over one
    minus this rate.
    """
    seen = predictions[-WINDOW - 1 :]
    if len(seen) < 2 or not seen[0] > 0.0 < seen[-1]:
        return 0.0
    return min(SLOWEST, (seen[-1] / seen[0]) ** (1.0 / (len(seen) - 1)))


class GainPrediction:
    """What is left to gain by a fit, and whether that is little enough to end it.

    Parameters
    ----------
    tol : float
        What is little, a unit.

    Attributes
    ----------
    left : float
        What is left to gain a unit: by the solver's own prediction, or by the gains of
        the last epochs; NaN where nothing is known of it.
    gains : list of float
        Of the last epochs that can be compared.
    n_small : int
        Epochs in a row that left little.
    enough : bool
        Whether as many as the solver asks for did, and the model has nothing to say
        against it.
    """

    def __init__(self, tol):
        self.tol = tol
        self.gains, self.left = [], math.nan
        self.n_small, self.enough = 0, False

    def begin(self, anchor):
        """Take note of the start: the solver may know what it leaves."""
        own = anchor.predicted_gain
        self.left = own if math.isfinite(own) else math.nan
        self.n_small = int(self.left < self.tol)

    def see(self, anchor, gain, solver, may_end):
        """Take note of an epoch.

        Parameters
        ----------
        anchor : Anchor
            Where it has led to.
        gain : float
            NaN where there is nothing to compare with: then earlier gains are of
            another objective.
        solver : Solver
        may_end : callable
            Whether the model may end there.
        """
        known = not math.isnan(gain)
        self.gains = [*self.gains[1 - 2 * MOST_NOISY :], gain] if known else []
        own = anchor.predicted_gain
        if math.isnan(own):
            needed = 1 if solver.noisy else solver.patience
            noisy = solver.patience if solver.noisy else 0
            steady = getattr(solver, "steady", False)
            left = left_to_gain(self.gains, anchor.objective, noisy, steady)
            self.left = left * getattr(solver, "caution", 1.0)
            if math.isinf(self.left) and abs(self.gains[-1]) < TINY * self.tol:
                # At the end, where gains are rounding, they need not fall.
                self.left = abs(self.gains[-1]) / TINY_RATE
            if solver.exact and min(self.gains[-FLAT:], default=0.0) < 0.0:
                # Steps that climb went down: by rounding, which the gains then are.
                self.left = min(self.left, NOISE * max(map(abs, self.gains[-FLAT:])))
            hidden = self.left == 0.0 and solver.exact
        else:
            needed = solver.confirms
            # What rounding hides is not left.
            hidden = abs(own) <= 1e-14 * max(1.0, abs(anchor.objective))
            self.left = 0.0 if hidden else own
        small = self.left < self.tol
        self.n_small = self.n_small + 1 if small else 0
        # Where rounding hides what is left, no further epoch can show more.
        shown = self.n_small >= needed and may_end(anchor)
        self.enough = small and (shown or hidden)

    def is_flat(self, anchor, solver):
        """Whether steps gain nothing of what the solver predicts.

        As where nodes of quadrature err by more than is left to gain.
        """
        own, last = anchor.predicted_gain, self.gains[-FLAT:]
        if math.isnan(own) or solver.noisy or len(last) < FLAT:
            return False
        return sum(last) < LITTLE * min(self.tol, own)
