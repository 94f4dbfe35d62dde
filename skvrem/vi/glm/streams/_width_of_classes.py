r"""How wide a prior is most likely, of many coefficients of many classes.

They are too many for one posterior of all with their correlations. Independent ones
tell a width, by many rows: but what correlated features say of each other is lost to
their bound, the more of it the wider the prior. So from there wider ones are tried, as
long as Laplace's approximation with all correlations has more evidence of them: by
hundreds of rows, which say little where effects are weak.

It is that of Gaussian processes: with the logits of n rows, one column
:math:`F_c` a class, independent and normal by the prior, of covariance K, the classes'
probabilities P and :math:`D_c = \operatorname{diag}(v \circ P_c)` of rows with weights
v, the mode is where :math:`F_c = K a_c,\ a_c = v \circ (Y_c - P_c)`, and

.. math:: E_c = (D_c^{-1} + K)^{-1}, \quad M = \sum_c E_c

are all that a step to it and the covariance there take, in time of the order
:math:`C n^3` (Williams & Barber 1998; Rasmussen & Williams 2006, Algorithm 3.3).
"""

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import log_softmax

from skvrem.data import as_source, drawn_rows
from skvrem.vi.gaussian._model_posterior import (
    CentredMeanField,
    MeanField,
    cholesky,
    inverse_of,
)
from skvrem.vi.gaussian._width import (
    curvature_about,
    few_steps,
    most_likely_width,
    products_in_units,
)
from skvrem.vi.glm.streams._width import Width, features_of, squares

# Predictors of rows that tell a width by independent coefficients, and numbers of these
# rows in memory; sparse ones with more are not centred.
NUMBERS_TELL, MOST_DENSE = 50_000, 10_000_000
# Products for rows that tell it by Laplace's approximation, and rows a class, at least:
# fewer are explained one by one, by a prior that is far too wide.
PRODUCTS_TELL, ROWS_A_CLASS = 600_000_000, 9
# Steps of a width, at most; what they leave to gain, in nats; the least share of one.
NEWTON_STEPS, LEFT, LEAST = 30, 1e-2, 1e-6
# How much wider, as a logarithm, a prior is tried at a time, and how many times.
WIDER, TIMES = 0.25, 8


def width_of_classes(data, targets, prior_of, k, made_by, rng, before=None):
    """Return how wide a prior is most likely, by some rows of many classes.

    Parameters
    ----------
    data : source
    targets : ndarray of shape (n_rows,)
        Numbers of classes.
    prior_of : callable
        Returns the prior over the coefficients of a predictor, of a width.
    k : int
        Classes.
    made_by : callable, callable
        The family of so many rows and features, and the model of a source, a family and
        what follows.
    rng : Generator
    before : Width, default=None
        Of fewer rows, to start from.

    Returns
    -------
    Width
    """
    about = data, targets, prior_of, k
    log_width, curvature = _by_independent(*about, *made_by, rng, before)
    size = min(int(np.cbrt(PRODUCTS_TELL / k)), data.n_weighted)
    if size >= ROWS_A_CLASS * k:
        laplace = _laplace_of(*about, size, rng)
        log_width, curvature = wider(laplace.evidence, log_width, curvature)
    return Width.of(log_width, curvature, data.n_units)


def wider(evidence, log_width, curvature):
    """Return where the evidence of a width peaks among wider ones than that given.

    And minus its curvature there: both as given where it falls from there on. Far wider
    priors may have more, by which rows are explained one by one.

    Parameters
    ----------
    evidence : callable
        Returns the logarithm of the evidence, given that of a width.
    log_width, curvature : float
    """
    heights = []
    for at in log_width + WIDER * np.arange(TIMES + 1):
        heights.append(evidence(at) - 0.5 * at**2)
        if heights[-1] < max(heights):
            break
    if heights[0] == max(heights):
        return log_width, curvature
    if heights[-1] == max(heights):
        return at, curvature
    before, top, after = heights[-3:]
    bend = 2.0 * top - before - after
    return at - WIDER + 0.5 * WIDER * (after - before) / bend, bend / WIDER**2


def _by_independent(data, targets, prior_of, k, family_of, model_of, rng, before):
    """Return a log width and its curvature by independent coefficients.

    Features are about their means, or coefficients and intercepts would depend. As the
    coefficients are many, none is brought near its end: see `few_steps`.
    """
    base, d, size = prior_of(1.0), data.n_features, NUMBERS_TELL // k
    if not data.sparse:
        size = min(size, max(MOST_DENSE // d, ROWS_A_CLASS * k))
    rows, weight, targets = drawn_rows(data, size, rng, targets)
    few = not data.sparse or rows.shape[0] * d <= MOST_DENSE
    centred = few and isinstance(base, CentredMeanField)
    if centred:
        rows = (rows.toarray() if data.sparse else rows) - base.centre
    some = as_source(rows, weight)

    def prior_about(width):
        prior = prior_of(width)
        own = prior.own if centred else MeanField(prior.mean, prior.scale)
        return own.repeated(k)

    prior, intercept = prior_about(1.0), base.n_dim > d
    family = family_of(some.n_units, some.n_features)
    given = family, targets, prior, some.total_weight, intercept
    model = model_of(some, *given, "diagonal")
    point = model.start(prior.mean.reshape(k, -1).T.copy(), some, rng)
    features = features_of(prior, k, intercept)

    def slope(log_width):
        nonlocal point
        own = model.changed(prior=prior_about(np.exp(log_width)))
        point = few_steps(own, some, point).point
        q = own.posterior(point.parameters)
        square = squares(q.mean, q.variance, own.prior)[features]
        return float(square.sum()) - square.size

    begin = (0.0, None) if before is None else before[:2]
    log_width, curvature = most_likely_width(slope, *begin)
    return log_width, curvature_about(slope, log_width, curvature)


def _laplace_of(data, targets, prior_of, k, size, rng):
    """Return Laplace's approximation for so many rows."""
    rows, weight, targets = drawn_rows(data, size, rng, targets)
    base, d = prior_of(1.0), data.n_features
    products = products_in_units(rows, base.own.scale[:d], base.centre)
    weight = np.ones(len(products)) if weight is None else weight
    intercept_variance = float(base.own.variance[d:].sum())
    return LaplaceOfClasses(products, targets, weight, k, intercept_variance)


class LaplaceOfClasses:
    """Laplace's approximation for some rows, of one width after another.

    Parameters
    ----------
    products : ndarray of shape (n, n)
        Of rows, whose coefficients are standard normal at width one.
    y : ndarray of shape (n,)
        Numbers of classes.
    weight : ndarray of shape (n,)
        Positive.
    k : int
        Classes.
    intercept_variance : float
        Of the prior of an intercept, zero without.
    """

    def __init__(self, products, y, weight, k, intercept_variance):
        self.products, self.weight = products, weight[:, None]
        self.indicator = np.eye(k)[y]
        self.intercept_variance = intercept_variance
        #: Where the mode is as K times these (n, k), by the last width.
        self.dual = np.zeros((len(y), k))

    def evidence(self, log_width):
        """Return the logarithm of the evidence of a width, but for a constant."""
        K = np.exp(2.0 * log_width) * self.products + self.intercept_variance
        return self._climb(K)

    def _climb(self, K):
        """Move to the mode of a covariance, and return the evidence there."""
        logits = K @ self.dual
        height = self._height(self.dual, logits)
        for _ in range(NEWTON_STEPS):
            p = np.exp(log_softmax(logits, axis=1))
            parts, volume = self._parts(K, p)
            root = cholesky(parts.sum(axis=0))
            # The gradient at zero of the quadratic whose top is the step's end.
            bent = p * (logits - np.sum(p * logits, axis=1, keepdims=True))
            right = self.weight * (bent + self.indicator - p)
            image = np.einsum("cij,jc->ic", parts, K @ right, optimize=True)
            shared = cho_solve(root, image.sum(axis=1))
            step = right - image + (parts @ shared).T - self.dual
            away = K @ step
            gain, share = -np.inf, 2.0
            while gain < 0.0 and share > LEAST:
                share *= 0.5
                near = self.dual + share * step, logits + share * away
                gain = self._height(*near) - height
            if gain >= 0.0:
                self.dual, logits = near
                height += gain
            if gain < LEFT:
                break
        return height - volume - np.log(root[0].diagonal()).sum()

    def _height(self, dual, logits):
        """Return the log density of rows and logits, but for a constant."""
        told = self.weight * self.indicator * log_softmax(logits, axis=1)
        return float(told.sum() - 0.5 * np.sum(dual * logits))

    def _parts(self, K, p):
        """Return E, of shape (k, n, n), and half of what K and D alone span, a log."""
        parts, volume = np.empty((p.shape[1], *K.shape)), 0.0
        for c, root in enumerate(np.sqrt(self.weight * p).T):
            B = root[:, None] * K * root
            B.flat[:: len(B) + 1] += 1.0
            factor = cholesky(B)
            volume += float(np.log(factor[0].diagonal()).sum())
            parts[c] = root[:, None] * inverse_of(factor) * root
        return parts, volume
