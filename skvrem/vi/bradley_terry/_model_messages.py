r"""How far skills lie apart, by what matches tell each other.

The peak of a bound is at too small a scale where items have a few matches each: the
bound loses the more the further skills lie apart. Here the posterior is found by
expectation propagation: matches have sites of precisions h and shifts b in place of
their likelihoods (see `skvrem.vi.gaussian._model_families`). Where these have settled,
the derivative of the log evidence by :math:`\log s` is that of a Gaussian model,

.. math:: \frac{|\mu|^2 + \mathrm{tr}(\Sigma)}{s^2} - d, \qquad
          \Sigma^{-1} = P_0 + X^T \mathrm{diag}(h) X, \qquad \mu = \Sigma X^T b .

Means are those of all items together. The variance of a cavity, a predictor without its
match, is found by messages between items (Herbrich, Minka and Graepel 2006), as if no
chain of matches led back to an item. So it is in a tree, and nearly so where chains are
long or matches many.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from skvrem.utils._parallel import parallel_each, row_chunks
from skvrem.vi.bradley_terry import _kernels as kernels
from skvrem.vi.gaussian._model_families import cavity_mean, cavity_variance, sites

# Where densities of predictors are summed, in their standard deviations.
NODES = np.linspace(-8.0, 8.0, 33)
# Rounds for one scale end where the derivative changes by less for each parameter, as
# that of the scale's peak does for as many parts of the scale; or after so many.
TOL_EACH, MOST_ROUNDS = 5e-4, 30
# Matches that a thread takes at a time.
CHUNK = 1 << 11
# Parameters up to which the whole covariance is at hand, and the vectors of random
# signs that its trace is found by beyond.
MOST_WHOLE, PROBES = 300, 8


def counts_of(matches, ties, eta):
    """Return what `tilted_moments` takes for the likelihood of matches."""
    win, loss, tie = matches[3:]
    none = np.zeros(win.size)
    if ties == "rao-kupper":
        t = 0.5 * np.logaddexp(0.0, eta)
        return none, none, win + tie, loss + tie, float(t), 0.0
    nu = float(np.exp(eta)) if ties else 0.0
    return 0.5 * (win - loss), win + loss + tie, none, none, 0.0, nu


class Messages:
    """Sites of matches.

    Parameters
    ----------
    model : SkillModel
        Of independent skills.
    point : Point
        Near its posterior: they start as what it takes matches for.

    Attributes
    ----------
    mean : ndarray of shape (n_dim,)
        Of the parameters.
    eta : float
        Tie parameter, which follows.
    rounds : int
        So far.
    """

    def __init__(self, model, point):
        found = model.statistics(point, None, 1.0)
        self.mean, self.eta, self.rounds = point.posterior.mean, point.eta, 0
        self._precision = found.curvature
        predictor = model.matches.predictor(self.mean)
        self._pull = found.slope + found.curvature * predictor
        # To the first items, the second ones and the advantage of being at home.
        self._sent = np.tile(0.5 * found.curvature, (3, 1))

    def slope(self, model):
        """Return the derivative of the log evidence by the log scale of a model."""
        last, far, before = np.inf, True, self.rounds
        while far:
            self.rounds += 1
            now = self._round(model)
            far = abs(now - last) > TOL_EACH * self.mean.size
            far, last = far and self.rounds - before < MOST_ROUNDS, now
        if self.mean.size > MOST_WHOLE:
            return self._slope(model, self._share_by_signs(model))
        return now

    def _slope(self, model, share):
        """Return the derivative where tr(Sigma) / s^2, of skills, is a `share`."""
        skills = slice(model.n_others, None)
        squares = (np.square(self.mean) / model.prior.variance)[skills]
        return float(squares.sum()) + share - squares.size

    def _round(self, model):
        """Find the sites of matches, and the means then; return about the slope."""
        matches, h = model.matches, self._precision
        if self.mean.size > MOST_WHOLE:
            without, variance = self._by_messages(model)
        else:
            without, variance = self._by_covariance(model)
        u = matches.predictor(self.mean)
        mean = cavity_mean(u, without, h, self._pull)
        sd = np.sqrt(without / (1.0 + without * h))
        moments, every = np.empty((2, u.size)), counts_of(matches, model.ties, self.eta)

        def find(start, stop):
            rows = slice(start, stop)
            counts = (c[rows] if np.ndim(c) else c for c in every)
            given = (part[rows] for part in (mean, without, u, sd))
            kernels.tilted_moments(*counts, *given, NODES, *moments[:, rows])

        parallel_each(find, row_chunks(0, u.size, CHUNK))
        found, spread = moments
        self._precision, self._pull = h, b = sites(found, spread, mean, without)
        gradient = matches.gather(b - h * u, self.mean.size)
        gradient -= model.prior.precision_times(self.mean)
        self.mean = self.mean + model.kind.divide(h, gradient, None)
        if model.ties is not None:
            self._follow(model, model.expectation(found, spread, self.eta))
        n = model.n_others
        return self._slope(model, float((variance / model.prior.variance)[n:].sum()))

    def _follow(self, model, found):
        """Move the tie parameter by the expectations of the matches."""
        away = self.eta - model.eta_mean
        slope = found.tie_slope - model.eta_precision * away
        self.eta += slope / (found.tie_curvature + model.eta_precision)

    def _by_messages(self, model):
        """Return variances of predictors without their match, and of parameters."""
        (first, second, home), d = model.matches[:3], self.mean.size
        squares = np.square(home)
        precision = model.prior.precision_diagonal.copy()
        for ends, sent in zip((first, second), self._sent, strict=False):
            precision += np.bincount(ends, sent, d)
        each = np.zeros((3, first.size))
        each[0] = 1.0 / (precision[first] - self._sent[0])
        each[1] = 1.0 / (precision[second] - self._sent[1])
        if home.size:
            precision[0] += squares @ self._sent[2]
            each[2] = squares / (precision[0] - squares * self._sent[2])
        without = each.sum(axis=0)
        self._sent = 1.0 / (1.0 / self._precision + without - each)
        return without, 1.0 / precision

    def _by_covariance(self, model):
        """Return the same by the covariance of all parameters."""
        P = np.diag(model.prior.precision_diagonal)
        P += model.matches.curvature_matrix(self._precision, len(P))
        covariance = cho_solve(cho_factor(P), np.eye(len(P)))
        variance = kernels.full_variances(*model.matches[:3], covariance)
        return cavity_variance(variance, self._precision), np.diagonal(covariance)

    def _share_by_signs(self, model):
        """Return tr(Sigma) / s^2, of skills, by products with vectors of signs."""
        rng = np.random.default_rng(0)
        signs = rng.choice((-1.0, 1.0), (PROBES, self.mean.size))
        signs[:, : model.n_others] = 0.0
        signs /= model.prior.scale
        divide, h = model.kind.divide, self._precision
        return float(np.mean([probe @ divide(h, probe, None) for probe in signs]))
