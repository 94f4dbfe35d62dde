r"""How wide a prior is most likely, by what rows of two classes tell each other.

Where coefficients are as many as rows, the peak of a bound is at too small a width: the
bound loses the more the more logits differ. Here the posterior is found by expectation
propagation: rows have sites of precisions h and shifts b in place of their classes (see
`skvrem.vi.gaussian._model_families`). Where these have settled, the derivative of the
log evidence by the log width w is that of a Gaussian model,

.. math:: \frac{|\mu|^2 + \mathrm{tr}(\Sigma)}{w^2} - d, \qquad
          \Sigma^{-1} = P_0 + X^T \mathrm{diag}(h) X, \qquad \mu = \Sigma X^T b .

Beyond some width rows that planes tell apart have the same evidence under any, and the
width's own prior says which.

Of several classes there are pairs of one and the next, whose rows tell of the
difference of two logits alone, with a prior wider by a root of two. They were chosen by
their class, which few rows take for what features say: several for each feature tell.
Of fewer rows than features neither they nor a bound do, but a bound says too little.
"""

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.blas import dsyrk
from scipy.special import log_expit

from skvrem.data import drawn_rows
from skvrem.utils._validation import check_magnitude
from skvrem.vi.gaussian._model_families import cavity_mean, cavity_variance, sites
from skvrem.vi.gaussian._model_posterior import cholesky
from skvrem.vi.gaussian._width import (
    OF_SCALED,
    curvature_about,
    in_own_basis,
    most_likely_width,
)
from skvrem.vi.glm.streams._width import Width

# A normal of variance v lowers logits by the root of 1 + PROBIT v (MacKay 1992).
PROBIT = np.pi / 8.0
# Classes from which on they are too many for pairs.
MANY_CLASSES = 10
# Coefficients of two classes that are many, and rows for each that planes tell apart.
TENS, APART = 50, 4
# Rows of a pair for each feature, at least.
ROWS_TELL = 3
# Products of a round, at most: rows by squares of coefficients.
PRODUCTS = 1_500_000_000
# Where densities of logits are summed, in their standard deviations, and rows at once.
NODES = np.linspace(-10.0, 10.0, 201)
CHUNK = 1 << 10
# Rounds for one width end where what the derivative is heading for changes by less, or
# by such a share; or after so many.
TOL, TOL_SHARE, MOST_ROUNDS = 0.02, 0.01, 30
# Changes of the derivative shrink by this factor a round, at the slowest.
SLOWEST = 0.9


def most_rows(d, k):
    """Return how many rows of a pair of k classes, or of two, are looked at."""
    each = PRODUCTS / k
    return int(max(np.cbrt(each), each / d**2))


def too_few_for_bounds(n_rows, size, k):
    """Whether rows are so few that a bound tells too small a width.

    Of two classes with tens of features so are rows that planes may tell apart, of
    these there are many; a few features are told apart by few.

    Parameters
    ----------
    n_rows : float
    size : int
        Coefficients of each of k predictors; two classes have one.
    """
    return n_rows < (APART * size if k == 1 and size >= TENS else size)


def messages_tell(data, k):
    """Whether rows of classes can tell a width so; k predictors, one of two classes."""
    if k == 1:
        return True
    each = min(2.0 * data.total_weight / k, most_rows(data.n_features, k))
    tell = each >= ROWS_TELL * data.n_features or data.total_weight <= data.n_features
    return tell and k < MANY_CLASSES


def width_by_messages(data, targets, prior_of, k, intercept, rng):
    """Return how wide a prior is most likely, by some rows of classes.

    Parameters
    ----------
    data : source
    targets : ndarray of shape (n_rows,)
        Numbers of classes.
    prior_of : callable
        Returns the prior over the coefficients of a predictor, of a width.
    k : int
        Predictors: one of two classes.
    intercept : bool
    rng : Generator

    Returns
    -------
    Width
    """
    base, d = prior_of(1.0), data.n_features
    pairs = [(0, 1)] if k == 1 else [(c, (c + 1) % k) for c in range(k)]
    size = int(most_rows(d, k) * max(1.0, 0.5 * k))
    rows, weight, targets = drawn_rows(data, size, rng, targets)
    weight = np.ones(len(targets)) if weight is None else weight
    messages = []
    for first, second in pairs:
        of_pair = np.flatnonzero((targets == first) | (targets == second))
        sign = np.where(targets[of_pair] == second, 1.0, -1.0)
        X = _in_units(rows[of_pair], base.scale[:d], base.centre)
        about = X, sign, weight[of_pair], intercept, 1.0 if k == 1 else 2.0
        messages.append(RowMessages(*about))
    share = 0.5 if k > 1 else 1.0  # each row is in two pairs

    def slope(log_width):
        return share * sum(each.slope(log_width) for each in messages)

    log_width, curvature = most_likely_width(slope)
    curvature = curvature_about(slope, log_width, curvature)
    return Width.of(log_width, curvature, data.n_units)


def _in_units(rows, scale, centre):
    """Return rows less a centre, of coefficients by their scales, or coordinates."""
    if len(scale) >= rows.shape[0]:
        return in_own_basis(rows, scale, centre)
    rows = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows, float)
    rows = (rows - centre if centre.size else rows) * scale
    check_magnitude(rows, OF_SCALED)
    return rows


class RowMessages:
    """Sites of rows of two classes.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Of coefficients whose prior is standard normal at a width of one.
    sign : ndarray of shape (n,)
        1 or -1, of the class.
    weight : ndarray of shape (n,)
    intercept : bool
    times : float
        How many times as large variances of priors are.

    Attributes
    ----------
    spread : float
        Mean variance of the logits of rows at a width of one.
    """

    def __init__(self, X, sign, weight, intercept, times=1.0):
        self.d, self.times, self.sign, self.weight = X.shape[1], times, sign, weight
        total = max(weight.sum(), np.finfo(float).tiny)
        self.spread = float(weight @ np.square(X).sum(axis=1)) / total
        self.X = np.column_stack([X, np.ones((len(X), int(intercept)))])
        both = [0.5 + weight @ (sign == one) for one in (1.0, -1.0)]
        self._offset = float(np.log(both[0] / both[1]))
        # As of logits of zero.
        self.h, self.b = np.full(len(X), 0.25), 0.5 * sign

    def slope(self, log_width):
        """Return the derivative of the log evidence by a log width.

        The prior of an intercept is about what the numbers of the classes tell under
        that width, and widens with the logits: a wide one would cost the less the wider
        logits are, whatever the rows say. Where they are so wide that rows are told
        apart for certain, the evidence is the same for all widths.
        """
        variance = self.times * np.exp(2.0 * log_width)
        wider = PROBIT * variance * self.spread
        prior = np.full(self.X.shape[1], 1.0 / variance)
        prior[self.d :] = 1.0 / (1.0 + wider)
        pull = np.zeros(prior.size)
        pull[self.d :] = self._offset / np.sqrt(1.0 + wider)
        slopes: list = []
        last = np.inf
        for _ in range(MOST_ROUNDS):
            found, of_intercept, mean, variance = self._posterior(prior, pull)
            found += wider / (1.0 + wider) * of_intercept
            slopes = [*slopes[-2:], found]
            heading = _limit(slopes)
            if abs(heading - last) < max(TOL, TOL_SHARE * abs(heading)):
                break
            last = heading
            self._match(mean, variance)
        return heading

    def _posterior(self, prior, pull):
        """Return derivatives by log widths, and means and variances of logits.

        By that of the features' prior, and by that of an intercept's, of a mean that is
        as much larger.
        """
        X, h = self.X, self.weight * self.h
        rows = dsyrk(1.0, np.sqrt(h)[:, None] * X, trans=1, lower=1)
        root, _ = cholesky(np.diag(prior) + rows)
        mean = cho_solve((root, True), X.T @ (self.weight * self.b) + pull)
        half = solve_triangular(root, X.T, lower=True)
        variance = np.einsum("jn,jn->n", half, half)
        # Of tr(Sigma P) = D that of the features' prior; an intercept is the last.
        own = prior[self.d :] / np.square(root[self.d :, self.d :].diagonal())
        left = prior.size - h @ variance - own.sum()
        squares = prior * np.square(mean)
        of_features = float(squares[: self.d].sum() + left) - self.d
        pulled = (squares - pull * mean)[self.d :] + own - 1.0
        return of_features, float(pulled.sum()), X @ mean, variance

    def _match(self, mean, variance):
        """Give rows the sites that have the moments of their classes."""
        for start in range(0, len(mean), CHUNK):
            rows = slice(start, start + CHUNK)
            h, b, sign = self.h[rows], self.b[rows], self.sign[rows, None]
            v = cavity_variance(variance[rows], h)
            m = cavity_mean(mean[rows], v, h, b)
            at = mean[rows, None] + np.sqrt(v / (1.0 + v * h))[:, None] * NODES
            p = log_expit(sign * at) - 0.5 * np.square(at - m[:, None]) / v[:, None]
            p = np.exp(p - p.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            found = np.einsum("nj,nj->n", p, at)
            square = np.einsum("nj,nj->n", p, np.square(at - found[:, None]))
            self.h[rows], self.b[rows] = sites(found, square, m, v)


def _limit(values):
    """Return what three values in a row are heading for, the last one of fewer.

    By Aitken's extrapolation of a geometric series.
    """
    if len(values) < 3:
        return values[-1]
    before, last = values[1] - values[0], values[2] - values[1]
    rate = last / before if before else 0.0
    return (
        values[-1] + last * rate / (1.0 - rate) if 0.0 < rate < SLOWEST else values[-1]
    )
