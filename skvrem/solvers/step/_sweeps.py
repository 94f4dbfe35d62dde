"""Epochs of steps that a model sweeps through, between passes that certify them."""

import math
import time

import numpy as np

from skvrem.solvers._prediction import left_to_gain, mean_rate
from skvrem.solvers._protocols import Anchor, Moved
from skvrem.solvers.step._journeys import NOISE, Journeys
from skvrem.utils._algebra import accumulate

# A sweep is made in pieces of about so many seconds, between which it can be
# interrupted, and visits of the first.
PIECE_SECONDS, FIRST_PIECE = 0.1, 1000
# Times as many epochs as when EM found more left to gain, until it is asked again.
ASK_AGAIN = 1.2


class Sweeps:
    """Minibatch steps too short, or too special, for a loop over visits.

    An anchor is a full pass without noise, so that the loop can take back an epoch that
    lowered the objective, and halve the steps. The steps between two anchors are the
    model's own, in one kernel where it has one; the solver has what they are controlled
    by. ``_protocols.py`` lists what such a model has (`Swept`).

    Of a hidden Markov model with partial E steps this is EM-VRSO (Algorithm 5 of Sidrow
    et al. 2023); of draws that Taylor's approximation controls, Algorithms 1 and 2 of
    Wang et al. (2024).

    Parameters
    ----------
    kind : {"stochastic", "svrg", "saga"}
        Control by nothing that is known; by what is known of all units at the anchor;
        by what each saw at its visit in the epoch before. The table of "saga" stands
        still within an epoch, as in :class:`~skvrem.solvers.SAGA` and for its reasons.
    tol : float, default=0.0
        Where the fit will stop.
    patience : int, default=10
        Epochs of little gain that end a fit whose model predicts none.
    noisy : bool, default=True
        Whether an epoch can gain little by chance, so that gains are added up.
    make : callable, default=None
        Makes the model of sweeps from the loop's model, the data and a generator, where
        these are two.
    """

    exact = True
    certifies = True
    confirms = 1

    def __init__(self, kind, tol=0.0, *, patience=10, noisy=True, make=None):
        self.kind = self.name = kind
        self.tol, self.patience, self.noisy = tol, patience, noisy
        self.make = make

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        self.model, self.data = model, data
        if self.make is not None:
            self.model = self.make(model, data, rng)
        self.known = None
        far = getattr(data, "remote", False)
        self.journeys = Journeys(self.model, data) if far else None
        self.predictions, self.short, self.n_lost = [], 1.0, 0
        self.n_epochs = self.asks_at = 0
        self._steady()
        self.piece = FIRST_PIECE

    def certify(self, point, beta):
        """Evaluate the mean at the point, and what is left to gain.

        The model's prediction is that of one step. Where it hardly falls from epoch to
        epoch, be it for noise or for a metric that is not the curvature, many steps
        are left.
        """
        self.beta, model = beta, self.model
        point, mean, memory = model.full_pass(point, self.data)
        anchor = Anchor(mean, model.objective(point, mean), 1.0, point, memory)
        self.predictions.append(model.predicted_gain(point, mean))
        if math.isinf(self.predictions[-1]):  # the model has none
            return anchor
        left = self.predictions[-1] / (1.0 - mean_rate(self.predictions))
        if left * self.short < self.tol and hasattr(model, "left_to_gain"):
            # How many times too small predictions are, until one is small enough again.
            self.short = max(1.0, model.left_to_gain(point) / max(left, 1e-300))
            anchor = anchor._replace(passes=anchor.passes + 1.0)
        return anchor._replace(predicted_gain=left * self.short)

    def epoch(self, anchor, pace, rng):
        """Sweep from the anchor, and certify the end."""
        self.n_epochs += 1
        try:
            moved = self.sweep(anchor, pace, rng)
            after = self.certify(moved.point, self.beta)
        except FloatingPointError:  # the steps went too far: an epoch that lost
            known = self.model.known_passes if self.kind == "svrg" else 0.0
            moved = Moved(anchor.point, self.model.sweep_passes + known)
            after = Anchor(None, math.nan, 0.0, anchor.point)
        passes = moved.passes + after.passes
        return moved._replace(point=after.point, passes=passes, certified=after)

    def sweep(self, anchor, pace, rng):
        """Make the steps of an epoch, and certify nothing.

        Returns
        -------
        moved : Moved
        """
        model, passes = self.model, self.model.sweep_passes
        if self.kind == "svrg" or (self.kind == "saga" and self.known is None):
            self.known = None  # free to go
            self.known = self._know(anchor, rng)
            passes += model.known_passes
        opened = model.open(anchor)
        if hasattr(model, "depart"):
            model.depart(opened, anchor)
        work, n_steps, n_rejected, size = self._make_steps(opened, pace, rng)
        point, variance = model.close(work), math.nan
        if hasattr(model, "variance"):
            variance = model.variance(work)
        return Moved(
            point, passes, n_steps, n_rejected, size, gradient_variance=variance
        )

    def _know(self, anchor, rng):
        if self.journeys is not None:
            return self.journeys.know(anchor)
        return self.model.known_at(anchor, rng)

    def _make_steps(self, work, pace, rng):
        """Return what an epoch has moved, steps, those rejected, and the last size."""
        model, saga = self.model, self.kind == "saga"
        if self.journeys is not None:
            *made, change = self.journeys.sweep(work, self.known, pace, rng)
            if saga:
                self.known = accumulate(self.known, change)
                self.journeys.renew()
            return made
        n_steps = n_rejected = 0
        for visits, sizes in self._pieces(model.visits(self.known, rng), pace):
            noise = model.noise(work, visits, rng)
            n_rejected += model.sweep(work, self.known, visits, noise, sizes)
            n_steps += len(sizes)
        if saga:
            self.known = model.renewed(self.known)
        return work, n_steps, n_rejected, float(sizes[-1])

    def _pieces(self, visits, pace):
        """Yield visits, some at a time, with the sizes of their steps."""
        per = self.model.rows_a_visit
        n = -(-len(visits) // per)
        most = max(1, NOISE // max(1, self.model.noise_width))
        start = 0
        while start < n:
            began = time.perf_counter()
            stop = min(start + min(self.piece, most), n)
            sizes = np.empty(stop - start)
            sizes[:] = pace(np.arange(start, stop))
            yield visits[start * per : stop * per], sizes
            if time.perf_counter() - began < 0.5 * PIECE_SECONDS:
                self.piece *= 2
            elif time.perf_counter() - began > PIECE_SECONDS:
                self.piece = max(1, self.piece // 2)
            start = stop

    def may_end(self, anchor, tol):
        """Return whether steps of EM find no more left to gain, and their passes.

        Steps of one size creep along flat directions, and their gains tell of the steep
        ones. Where EM finds more, it is asked again when there have been a share more
        epochs.
        """
        if not hasattr(self.model, "climbed"):
            return True, 0.0
        if self.n_epochs < self.asks_at:
            return False, 0.0
        self.asks_at = math.ceil(ASK_AGAIN * self.n_epochs)
        reached = [anchor.objective, *self.model.climbed(anchor)]
        gains = np.diff(reached).tolist()
        found = left_to_gain(gains, reached[-1], steady=True)
        return found < tol, float(len(gains))

    def restore(self, anchor):
        """Forget what the epoch that is taken back has left, and make less noise."""
        self.known = None
        self.n_lost += 1
        self._steady()

    def _steady(self):
        if hasattr(self.model, "steady"):
            self.model.steady(self.n_lost)

    def state(self):
        """Return predictions; that of the point, and what is known, come anew."""
        names = "short", "n_lost", "n_epochs", "asks_at"
        kept = {name: getattr(self, name) for name in names}
        return kept | {"predictions": self.predictions[:-1]}

    def resume(self, state):
        """Take them back, before the point is certified."""
        vars(self).update(state)
        self._steady()
