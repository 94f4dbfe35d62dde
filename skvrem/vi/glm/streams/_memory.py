r"""What a stream of classes or counts keeps: a Gaussian of all rows, and many of them.

While all rows are kept the posterior is that of a fit to all, where these are seen
again. Later the posterior of the rows before is the prior of a batch, but for a sample
of them, which is seen again: what the Gaussian holds of it is taken out of it. Of a row
the natural parameters of a posterior q hold its curvature, :math:`C_n x_n x_n^T`, and
:math:`(g_n + C_n x_n^T \mu)\, x_n` with its slope g. So with weights w that make the
sample stand for all rows,

.. math:: \log p(y | \theta) \approx \log q(\theta) + \sum_n w_n \left[
          \log p(y_n | x_n^T \theta) - \hat\ell_n(x_n^T \theta) \right]

which is the difference of a control variate, now for a log-likelihood: what the
expansions :math:`\hat\ell` of rows at an earlier posterior get wrong is estimated by
the sample.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.data import MOST_BYTES, KeptRows, StreamRows, as_source
from skvrem.vi.gaussian._model import GaussianModel, as_vector, structure_of
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField

#: Rows that are kept at least, however many bytes they take.
KEPT = 1000
# Share of a posterior's precision that is left, at least, without the rows kept; and
# how far it moves, in squares of its width a coefficient, where expansions are wrong:
# by a batch, and by all since the rows were seen, which one width is expected of.
LEAST, FAR, DRIFT = 1e-3, 1.0, 2.0
# How many times as wide or narrow a prior is before a posterior without its rows takes
# it in the place of its own; share of a precision that is left then, at least.
CHANGED, LEAST_LEFT = 2.0, 1e-12
# The rows kept are seen again where there are so many times as many as when they last
# were: all looks together then take at most six times as long as one at the end. A
# sample of fewer rows a coefficient errs by more than what is to be mended.
GROWTH, ENOUGH = 1.2, 100


class Memory(NamedTuple):
    """Rows of a stream, and what it knew before any of them.

    Attributes
    ----------
    kept : StreamRows or KeptRows
        The second of rows with groups, all of which it has.
    prior : MeanField, or None
        Of the stream, before any rows; None with groups.
    about : MeanField, FullRank or LowRank
        The posterior when the rows kept were last seen.
    n_looked : int
        Rows of the stream then.
    seen : ColumnMoments or ColumnUnits, default=None
        Of the columns of all rows, which the prior follows; None for one that stands.
    """

    kept: StreamRows | KeptRows
    prior: MeanField | None
    about: Any = None
    n_looked: int = 0
    seen: Any = None

    @classmethod
    def of(cls, data, targets, prior, about, before=None):
        """Return the memory of some rows, and of those before.

        about: the posterior that they led to, the family, and whether there is an
        intercept.
        """
        before = cls.nothing(prior) if before is None else before
        how = MOST_BYTES, KEPT, partial(_variances, *about)
        return before._replace(kept=before.kept.after(data, targets, *how))

    def after_groups(self, data, targets, ids):
        """Return the memory of all rows with groups, None where they are too many."""
        n_rows = self.kept.n_seen + data.n_units
        kept = self.kept.after(data, targets, n_rows, ids)
        fits = self.holds(n_rows, kept.n_bytes)
        return self._replace(kept=kept) if fits else None

    @staticmethod
    def holds(n_rows, n_bytes):
        """Whether so many rows with groups are kept, which take so many bytes."""
        return n_rows <= KEPT or n_bytes <= MOST_BYTES

    def looked(self, posterior=None):
        """Return the memory when all rows kept have been seen, which led to this."""
        return self._replace(about=posterior, n_looked=self.kept.n_seen)

    @property
    def short(self):
        """Whether all rows are seen again with each batch."""
        return self.kept.n_seen <= KEPT

    def grown(self, n_new):
        """Whether the stream has grown, with a batch, since the rows kept were seen."""
        return self.kept.n_seen + n_new >= GROWTH * self.n_looked

    @classmethod
    def nothing(cls, prior):
        """Return the memory before any rows, but what a Gaussian knows."""
        return cls(StreamRows(), prior, prior)

    def with_prior(self, prior, posterior):
        """Return the memory with another prior, and the posterior with it.

        Both as they are where rows are not seen again, and the prior is about as wide
        or the posterior independent in parts that the rows are not.
        """
        if self.short:  # the posterior is made anew of all rows
            return self._replace(prior=prior), posterior
        wider = np.abs(np.log(prior.scale / self.prior.scale)).max()
        if wider < np.log(CHANGED) or not isinstance(posterior, FullRank):
            return self, posterior
        return self._replace(prior=prior), _exchanged(posterior, self.prior, prior)

    def prior_and_rows(self, posterior, family, intercept, data, targets):
        """Return the prior of a batch, a source of what is to be seen, and targets.

        The rows kept are seen again while they are few, or where the stream has grown
        or the posterior moved since they were: else little is wrong with its
        expansions.
        """
        kept, about = self.kept, (posterior, family, intercept)
        if not kept.are_all and isinstance(posterior, LowRank):
            return posterior, data, targets
        grown = self.grown(data.n_units)
        tells = kept.are_all or kept.n_kept >= ENOUGH * posterior.n_dim
        due = self.short or (grown and tells)
        if not due and not self._moved(*about, data, targets):
            return posterior, data, targets
        prior = self.prior if kept.are_all else self._without(*about)
        return prior, *kept.beside(data, targets)

    def _moved(self, posterior, family, intercept, data, targets):
        """Whether a batch moves the posterior by more than its width.

        Or this and those before it by more than the width that it had when the rows
        kept were last seen.
        """
        about = posterior, family, intercept
        slope, curvature = _sums(*about, data, targets)
        if isinstance(posterior, FullRank):
            # In the axes where the posterior is round: rates of new rows may be large
            # enough for sums of its precision and theirs to be singular.
            more, axes = _in_axes(posterior.factor, curvature)
            step = (axes.T @ slope) / (1.0 + np.maximum(more, 0.0))
            length, step = step @ step, axes @ step
        else:
            precision = 1.0 / np.square(posterior.scale)
            step = slope / (precision + curvature)
            length = precision @ np.square(step)
        drift = posterior.mean + step - self.about.mean
        drift = drift @ self.about.precision_times(drift)
        return length >= FAR * slope.size or drift >= DRIFT * slope.size

    def _without(self, posterior, family, intercept):
        """Return the Gaussian that is left of a posterior without the rows kept.

        Where the sample has more curvature than the posterior, as it errs, next to none
        is left, and what the rows kept lack of balance at the mean is made up for.
        """
        rows, targets, weight, share = self.kept.whole()
        data = as_source(rows, weight * share)
        about = posterior, family, intercept
        slope, curvature = _sums(*about, data, targets)
        mean = posterior.mean
        if not isinstance(posterior, FullRank):
            precision = 1.0 / np.square(posterior.scale)
            precision *= np.maximum(1.0 - curvature / precision, LEAST)
            return MeanField(mean - slope / precision, 1.0 / np.sqrt(precision))
        return _less(posterior, curvature, slope, LEAST)


def _less(posterior, curvature, slope, least):
    """Return what is left of a posterior without what has a slope and curvature there.

    Of its precision along any axis no less than a share is left.
    """
    less, axes = _in_axes(posterior.factor, curvature)
    axes = axes / np.sqrt(np.maximum(1.0 - less, least))
    covariance = axes @ axes.T
    factor = np.linalg.cholesky(covariance)
    return FullRank(posterior.mean - covariance @ slope, factor)


def _exchanged(posterior, before, now):
    """Return a posterior of the same rows with another prior."""
    old, new = (one.precision_times(one.mean - posterior.mean) for one in (before, now))
    change = before.precision - now.precision
    return _less(posterior, change, old - new, LEAST_LEFT)


def _variances(posterior, family, intercept, rows):
    """Return the variances of rows' predictors, summed over these.

    Rows matter by them where a posterior moves: terms that are not quadratic are of the
    rows whose predictors move.
    """
    model = GaussianModel(family, None, None, 1.0, intercept, *structure_of(posterior))
    point, data = model.point_of(posterior), as_source(rows)
    if point is None:  # a low rank that is taken away, whose rows are not seen again
        return np.zeros(data.n_units)
    moments = data.chunks().map(partial(model.predictors, point.parameters))
    spread = np.concatenate([spread for _, spread in moments])
    return (spread if model.k == 1 else np.square(spread)).sum(axis=1)


def _in_axes(root, curvature):
    """Return curvatures along axes of a posterior's width, which a root of it leads to.

    In these the posterior is round, and the curvature diagonal.
    """
    curvatures, axes = np.linalg.eigh(root.T @ curvature @ root)
    return curvatures, root @ axes


def _sums(posterior, family, intercept, data, targets):
    """Return slope (D,) and curvature, (D, D) or (D,), of rows at a posterior."""
    given = targets, None, data.total_weight, intercept
    model = GaussianModel(family, *given, *structure_of(posterior))
    point = model.point_of(posterior)
    sums = data.chunks().sum(partial(model.statistics, point, beta=1.0))
    curvature = sums.curvature if model.full else as_vector(sums.curvature)
    return as_vector(sums.gradient), curvature
