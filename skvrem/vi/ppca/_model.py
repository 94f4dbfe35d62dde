r"""Probabilistic principal components with a posterior of the loadings.

Rows are :math:`x \sim N(m, C)` with :math:`C = W W^T + \lambda^2 I`, loadings W (d, k)
with a prior of `_model_prior`. The log-likelihood sees the rows by their second
moments S only,

.. math:: \ell(W) = -\frac n2 \big[ d \log 2 \pi + \log |C| + \mathrm{tr}(C^{-1} S)
          \big],

and with :math:`M = \lambda^2 I + W^T W` (k, k) nothing of size d by d but S is formed.
Expectations under :math:`q = N(\mu, \mathrm{diag}(\sigma^2))` are averages over fixed
draws :math:`\mu \pm \sigma \epsilon_s`, in pairs of opposite sign. A fit goes in turns:
given :math:`\sigma`, the average of the likelihood is a smooth function of :math:`\mu`
for a quasi-Newton method; given :math:`\mu`,

.. math:: \sigma_{ij}^{-2} = T_{jj} - E_q H_{ij,ij}(W)

with the precision T (k, k) of a row of loadings before any data, and the diagonal of
the Hessian (Price's theorem), whose average over few draws is far less noisy than
derivatives by :math:`\sigma` along them. The bound has the second order of the
likelihood about :math:`\mu` as its control variate [1]_: what is left to the draws is
of the fourth order.

.. [1] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
   variational inference. AISTATS.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from skvrem.utils._control import regressed_mean
from skvrem.vi.gaussian._model import PlainModel
from skvrem.vi.gaussian._model_posterior import MeanField

# Rows whose products are taken at a time.
TILE_ROWS = 4096
# Learnt noise is at least this share of the mean variance: rows in a subspace would
# leave none at all, and of less second derivatives are lost to rounding.
LEAST_NOISE = 3e-8
# The same where S has a root, and from which ratio of variances it has one.
LEAST_OF_ROOT, APART = 1e-13, 1e5
# A step may change a logarithm by so much.
LARGEST_CHANGE = 2.0
# A posterior precision is at least this share of the prior's: away from the optimum the
# likelihood may be convex in a loading.
LEAST_PRECISION = 0.1
# Times that prior and deviations are learned from each other, in a turn.
TOGETHER = 5
LOG_2PI = np.log(2.0 * np.pi)


class SecondMoments:
    r"""Second moments S about the mean, as a matrix or as rows R with S = R^T R.

    Those of two batches of the weights a and b and the means m and l have, of all,

    .. math:: (a + b) S = a S_a + b S_b + \frac{a b}{a + b} (m - l) (m - l)^T .

    Parameters
    ----------
    weight : float
        Of all rows.
    mean : ndarray of shape (d,)
    rows : ndarray of shape (n, d), n <= d, or None
    matrix : ndarray of shape (d, d), or None
        One of the two is there: whichever is smaller.
    root : ndarray of shape (r, d), or None
        R with S = R^T R, where units of columns are so far apart that S has lost its
        least eigenvalues.
    """

    def __init__(self, weight, mean, rows=None, matrix=None, root=None):
        self.weight = weight
        self.mean = mean
        self.d = mean.size
        if rows is not None and len(rows) > self.d:
            rows, matrix = None, rows.T @ rows
        self.rows, self.matrix, self.root, self._largest = rows, matrix, root, {}
        if rows is None:
            self.diagonal = np.diagonal(matrix)
        else:
            self.diagonal = np.einsum("ij,ij->j", rows, rows)
        self.trace = float(self.diagonal.sum())
        #: Of noise that is learned.
        share = LEAST_NOISE if root is None else LEAST_OF_ROOT
        self.least_noise = max(share * self.trace / self.d, np.finfo(float).tiny)

    @classmethod
    def of(cls, X, weight=None):
        """Return those of rows (n, d), with weights (n,)."""
        n, d = X.shape
        mean = np.average(X, axis=0, weights=weight).astype(np.float64)
        root = None if weight is None else np.sqrt(weight)
        total = float(n if weight is None else weight.sum())
        if n <= d:
            rows = _centred(X, mean, root).astype(np.float64)
            return cls(total, mean, rows / np.sqrt(total))
        matrix = np.zeros((d, d))
        for start in range(0, n, TILE_ROWS):
            some = slice(start, start + TILE_ROWS)
            tile = _centred(X[some], mean, None if root is None else root[some])
            matrix += tile.T @ tile
        return cls(total, mean, matrix=matrix / total)

    def with_root(self, X, weight=None):
        """Return the same with a root, of the rows it is of, where it needs one."""
        told = self.diagonal[self.diagonal > 0.0]
        if told.max() <= APART * told.min():
            return self
        root, scale = np.zeros((0, self.d)), 1.0 / np.sqrt(self.weight)
        each = np.full(len(X), scale) if weight is None else scale * np.sqrt(weight)
        for start in range(0, len(X), TILE_ROWS):
            some = slice(start, start + TILE_ROWS)
            tile = (X[some] - self.mean) * each[some, None]
            root = np.linalg.qr(np.concatenate([root, tile]), mode="r")
        return SecondMoments(self.weight, self.mean, self.rows, self.matrix, root)

    def merged(self, other):
        """Return those of all rows of two batches."""
        total = self.weight + other.weight
        shares = self.weight / total, other.weight / total
        mean = shares[0] * self.mean + shares[1] * other.mean
        apart = np.sqrt(shares[0] * shares[1]) * (self.mean - other.mean)
        if self.rows is not None and other.rows is not None:
            rows = [np.sqrt(shares[0]) * self.rows, np.sqrt(shares[1]) * other.rows]
            return SecondMoments(total, mean, np.concatenate([*rows, apart[None]]))
        matrix = np.outer(apart, apart)
        for share, part in zip(shares, (self, other), strict=True):
            S = part.matrix
            matrix += share * (part.rows.T @ part.rows if S is None else S)
        return SecondMoments(total, mean, matrix=matrix)

    def largest(self, k):
        """Return the k largest eigenvalues of S, their vectors, and the others' sum."""
        if k not in self._largest:
            self._largest = {k: self._decomposed(k)}
        return self._largest[k]

    def _decomposed(self, k):
        rows = self.rows if self.root is None else self.root
        if rows is not None:
            # Where rows are fewer, any others are orthogonal to theirs.
            few = len(rows) < k
            _, roots, vectors = np.linalg.svd(rows, full_matrices=few)
            values = np.zeros(k)
            values[: roots.size] = np.square(roots[:k])
            vectors, left = vectors[:k].T, np.square(roots[k:]).sum()
        else:
            span = [self.d - k, self.d - 1]
            values, vectors = eigh(self.matrix, subset_by_index=span)
            values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
            left = max(self.trace - values.sum(), 0.0)
        # Signs that do not depend on the decomposition.
        strongest = vectors[np.abs(vectors).argmax(axis=0), np.arange(k)]
        return values, vectors * np.where(strongest < 0.0, -1.0, 1.0), left

    def times(self, V):
        """Return S V, for V of shape (..., d, k)."""
        flat = np.moveaxis(V, -2, 0).reshape(self.d, -1)
        S = self.matrix
        out = S @ flat if S is not None else self.rows.T @ (self.rows @ flat)
        moved = out.reshape(self.d, *V.shape[:-2], V.shape[-1])
        return np.ascontiguousarray(np.moveaxis(moved, 0, -2))


def _centred(X, mean, root):
    rows = X - mean.astype(X.dtype)
    return rows if root is None else rows * root[:, None].astype(X.dtype)


class LoadingsLikelihood(NamedTuple):
    """The log-likelihood of a row at stacked loadings W (..., d, k), and its parts.

    Attributes
    ----------
    value : ndarray of shape (...)
        A row's mean log-likelihood.
    gradient : ndarray of shape (..., d, k)
        By W.
    by_noise : ndarray of shape (...)
        By the logarithm of the noise variance.
    a, b : ndarray of shape (..., d, k)
        :math:`C^{-1} W` and :math:`C^{-1} S C^{-1} W`.
    P, Q : ndarray of shape (..., k, k)
        :math:`W^T C^{-1} W` and :math:`W^T C^{-1} S C^{-1} W`.
    SW : ndarray of shape (..., d, k)
    """

    value: np.ndarray
    gradient: np.ndarray
    by_noise: np.ndarray
    a: np.ndarray
    b: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    SW: np.ndarray

    def inverse_times(self, W, noise, V):
        """Return C^-1 V, for V of shape (..., d, k)."""
        return (V - self.a @ (W.T @ V)) / noise

    def twice_times(self, moments, W, noise, V):
        """Return C^-1 V and C^-1 S C^-1 V."""
        once = self.inverse_times(W, noise, V)
        return once, self.inverse_times(W, noise, moments.times(once))

    def diagonals(self, moments, W, noise):
        """Return those of C^-1 and of C^-1 S C^-1, (..., d)."""
        A = (1.0 - (self.a * W).sum(axis=-1)) / noise
        inner = self.a @ (np.swapaxes(W, -1, -2) @ self.SW) - 2.0 * self.SW
        return A, (moments.diagonal + (self.a * inner).sum(axis=-1)) / noise**2


class RootedLikelihood(NamedTuple):
    r"""The same by a root R of S, of columns in units that are far apart.

    With :math:`W = V \mathrm{diag}(s) O^T`, :math:`C^{-1}` is :math:`(s^2 +
    \lambda^2)^{-1}` along V and :math:`\lambda^{-2}` across, so that nothing is a
    difference of the widest column's squares. Rows of :math:`U = R C^{-1}` say all that
    S does.

    Attributes
    ----------
    value, gradient, by_noise, a, b, P, Q
        See `LoadingsLikelihood`.
    U : ndarray of shape (..., r, d)
    V : ndarray of shape (..., d, k)
    squares : ndarray of shape (..., k)
        Variances of a row along V.
    """

    value: np.ndarray
    gradient: np.ndarray
    by_noise: np.ndarray
    a: np.ndarray
    b: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    U: np.ndarray
    V: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, root, W, noise):
        """Return it of a root (r, d) at loadings (..., d, k)."""
        d, k = W.shape[-2:]
        V, s, Ot = np.linalg.svd(W, full_matrices=False)
        Vt, squares = np.swapaxes(V, -1, -2), s**2 + noise
        along = root @ V
        across = root - along @ Vt
        more = across @ V  # once is not enough beside a wide column
        along, across = along + more, across - more @ Vt
        each = squares[..., None, :]
        U = (along / each) @ Vt + across / noise
        shares = (s / squares)[..., None, :]
        a, Ra = (V * shares) @ Ot, (along * shares) @ Ot
        b = np.swapaxes(U, -1, -2) @ Ra
        P = (np.swapaxes(Ot, -1, -2) * (s**2 / squares)[..., None, :]) @ Ot
        log_det = (d - k) * np.log(noise) + np.log(squares).sum(axis=-1)
        misfit = (along**2 / each).sum(axis=(-1, -2))
        misfit += (across**2).sum(axis=(-1, -2)) / noise
        value = -0.5 * (d * LOG_2PI + log_det + misfit)
        trace_a = (1.0 / squares).sum(axis=-1) + (d - k) / noise
        by_noise = -0.5 * noise * (trace_a - (U**2).sum(axis=(-1, -2)))
        Q = np.swapaxes(Ra, -1, -2) @ Ra
        return cls(value, b - a, by_noise, a, b, P, Q, U, V, squares)

    def twice_times(self, moments, W, noise, V):
        """Return C^-1 V and C^-1 S C^-1 V."""
        along = self.V.T @ V
        once = self.V @ (along / self.squares[:, None])
        once += (V - self.V @ along) / noise
        return once, self.U.T @ (self.U @ V)

    def diagonals(self, moments, W, noise):
        """Return those of C^-1 and of C^-1 S C^-1, (..., d)."""
        square = self.V**2
        A = (square / self.squares[..., None, :]).sum(axis=-1)
        A += np.maximum(1.0 - square.sum(axis=-1), 0.0) / noise
        return A, (self.U**2).sum(axis=-2)


def likelihood(moments, W, noise):
    """Return the `LoadingsLikelihood` of loadings, or the `RootedLikelihood`.

    Parameters
    ----------
    moments : SecondMoments
    W : ndarray of shape (..., d, k)
    noise : float
        Noise variance.
    """
    if moments.root is not None:
        return RootedLikelihood.of(moments.root, W, noise)
    d, k = W.shape[-2:]
    Wt = np.swapaxes(W, -1, -2)
    SW = moments.times(W)
    M = Wt @ W + noise * np.eye(k)
    inverse = np.linalg.inv(M)
    a = W @ inverse
    Y = SW @ inverse
    inner = Wt @ Y
    b = (Y - a @ inner) / noise
    P = np.eye(k) - noise * inverse
    fitted = np.trace(inner, axis1=-2, axis2=-1)
    log_det = (d - k) * np.log(noise) + np.linalg.slogdet(M)[1]
    misfit = (moments.trace - fitted) / noise
    value = -0.5 * (d * LOG_2PI + log_det + misfit)
    trace_a = (d - np.trace(P, axis1=-2, axis2=-1)) / noise
    # tr(C^-1 S C^-1) = (tr(C^-1 S) - tr(W^T C^-1 S C^-1 W)) / noise
    Q = Wt @ b
    trace_b = (misfit - np.trace(Q, axis1=-2, axis2=-1)) / noise
    by_noise = -0.5 * noise * (trace_a - trace_b)
    return LoadingsLikelihood(value, b - a, by_noise, a, b, P, Q, SW)


def hessian_times(moments, W, noise, at, V):
    """Return the Hessian of a row's log-likelihood at W times directions.

    Parameters
    ----------
    moments : SecondMoments
    W : ndarray of shape (d, k)
    noise : float
    at : LoadingsLikelihood or RootedLikelihood
        At W.
    V : ndarray of shape (..., d, k)
    """
    AV, BV = at.twice_times(moments, W, noise, V)
    Va, Vb = np.swapaxes(V, -1, -2) @ at.a, np.swapaxes(V, -1, -2) @ at.b
    by_a = AV - AV @ at.P - at.a @ Va
    by_b = BV - AV @ at.Q - at.a @ Vb - BV @ at.P - at.b @ Va
    return by_b - by_a


def hessian_diagonal(moments, W, noise, at):
    """Return the diagonals (..., d, k) of Hessians of a row's log-likelihood at W."""
    A, B = (part[..., None] for part in at.diagonals(moments, W, noise))
    P, Q = (np.diagonal(M, 0, -2, -1)[..., None, :] for M in (at.P, at.Q))
    by_a = A * (1.0 - P) - at.a**2
    by_b = B * (1.0 - P) - A * Q - 2.0 * at.a * at.b
    return by_b - by_a


def log_densities(rows, components, noise):
    """Return log N(0, V^T V + noise I), (s, n), of rows (n, d) at draws V (s, k, d)."""
    d = rows.shape[1]
    out = np.empty((len(components), len(rows)))
    length = np.einsum("ij,ij->i", rows, rows)
    for i, V in enumerate(components):
        values, vectors = np.linalg.eigh(V @ V.T)
        values = np.maximum(values, 0.0)  # but for rounding they are
        # Woodbury: (x^T V^T) (V V^T + noise I)^-1 (V x) is what V explains.
        along = np.square(rows @ (V.T @ vectors)) @ (1.0 / (values + noise))
        log_det = np.log1p(values / noise).sum() + d * np.log(noise)
        out[i] = -0.5 * (d * LOG_2PI + log_det + (length - along) / noise)
    return out


def start_loadings(axes, weight, prior_scale, noise):
    r"""Return the loadings of the highest posterior density given the noise variance.

    They are along eigenvectors of S; along one with the eigenvalue l their squared
    length is :math:`c - \lambda^2` with :math:`c^2 / s^2 + n c = n l`.

    Parameters
    ----------
    axes : tuple
        As `SecondMoments.largest` returns them.
    weight : float
        Of all rows, n.
    prior_scale : float
    noise : float
    """
    (values, vectors, _), n = axes, weight
    c = 2.0 * n * values / (n + np.sqrt(n**2 + 4.0 * n * values / prior_scale**2))
    # A little length where there is none to find: zero is a saddle point.
    return vectors * np.sqrt(np.maximum(c - noise, 1e-4 * noise))


def start_noises(axes, d, least):
    """Return noise variances to start at: that of the highest likelihood first.

    Where k components leave none, as rows lie in a subspace or are no more than
    components, the other is what half of those leave that find anything; and the only
    one where there are as many as columns.

    Parameters
    ----------
    axes : tuple
        As `SecondMoments.largest` returns them.
    d : int
        Columns.
    least : float
        Of a noise variance that is learned.
    """
    values, _, left = axes
    noise = left / max(d - values.size, 1)
    if noise > least:
        return [noise]
    found = np.count_nonzero(values > least)
    rest = max(values[found // 2 :].sum() / (d - found // 2), least)
    return [rest] if found == d else [least, rest]


class Statistics(NamedTuple):
    """The bound and its gradient.

    Attributes
    ----------
    objective : float
    gradient : ndarray of shape (d k + 1,)
        By means and the logarithm of the noise variance.
    """

    objective: float
    gradient: np.ndarray


class Point(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    mean : ndarray of shape (d, k)
    log_noise : float
    repaired : tuple
        Nothing here collapses.
    trials : int
        No step is infeasible.
    scale : ndarray of shape (d, k), or None
        Deviations that go with it, where they are not the model's in this turn.
    prior : GivenScale or UnknownScales, or None
        The same.
    """

    mean: np.ndarray
    log_noise: float
    repaired: tuple = ()
    trials: int = 0
    scale: np.ndarray | None = None
    prior: Any = None


class PPCAModel(PlainModel):
    """Rows with a Gaussian likelihood, loadings with independent Gaussians.

    Parameters
    ----------
    moments : SecondMoments
    prior : GivenScale or UnknownScales
    learn_noise : bool
    draws : ndarray of shape (n_draws, d, k)
        Standard normal numbers; each is used with both signs.
    """

    def __init__(self, moments, prior, learn_noise, draws):
        self.moments = moments
        self.n = moments.weight
        self.prior = prior
        self.learn_noise = learn_noise
        self.draws = draws
        self.scale = np.zeros(draws[0].shape)
        least = moments.least_noise
        self.least_log_noise = float(np.log(least)) if learn_noise else -np.inf

    def start(self, noise=None):
        """Return a point, with the standard deviations of the second order there.

        Of the noises to start at, where none is given, it has that of the best bound.
        """
        found = []
        for point in self._starts(noise):
            self.scale = np.zeros(point.mean.shape)
            self.spread(point, 1.0)
            found.append((point, self.scale, self.prior))
        if len(found) > 1:
            found.sort(key=self._loss_at)
        point, self.scale, self.prior = found[0]
        self._control(point)
        return point

    def _starts(self, noise):
        """Return points of the highest likelihood, or posterior density."""
        moments, prior_scale = self.moments, self.prior.start_scale
        axes = moments.largest(self.scale.shape[1])
        noises = [noise]
        if noise is None:
            noises = start_noises(axes, moments.d, moments.least_noise)
        return [
            Point(
                start_loadings(axes, moments.weight, prior_scale, noise),
                float(np.log(noise)),
            )
            for noise in noises
        ]

    def _loss_at(self, start):
        """Return minus the bound of a point, its standard deviations and a prior."""
        point, self.scale, self.prior = start
        return -self.statistics(point, None, 1.0).objective

    def resume(self, W, scale, noise):
        """Return the point of a posterior that is known."""
        point, self.scale = Point(W, float(np.log(noise))), scale
        self.prior = self.prior.learned(W, scale**2)
        self._control(point)
        return point

    def spread(self, point, step):
        """Move the prior and deviations to their optimum at a point; return the gain.

        Parameters
        ----------
        point : Point
        step : float
            1 is all the way, in the precisions.

        Returns
        -------
        gain : float
            What a whole step gains, in nats, about.
        """
        noise, curvature = np.exp(point.log_noise), 0.0
        for sign in (1.0, -1.0):
            W = point.mean + sign * self.scale * self.draws
            at = likelihood(self.moments, W, noise)
            curvature -= 0.5 * hessian_diagonal(self.moments, W, noise, at).mean(axis=0)
        # Prior and deviations are learned from each other: together, at this curvature.
        before, variance = self.prior, self.scale**2
        for _ in range(TOGETHER):
            self.prior = self.prior.learned(point.mean, variance)
            prior = np.diagonal(self.prior.precision(point.mean, variance))
            precision = np.maximum(self.n * curvature + prior, LEAST_PRECISION * prior)
            variance = 1.0 / precision
        about = point.mean, self.scale**2
        learned = abs(self.prior.expected(*about) - before.expected(*about))
        gain = 0.25 * np.sum((self.scale**2 * precision - 1.0) ** 2)
        if self.scale.any():
            precision = (1.0 - step) * self.scale**-2.0 + step * precision
        self.scale = precision**-0.5
        self._control(point)
        return float(gain + learned)

    def _control(self, point):
        """Take the second order of the likelihood at a point, as a control variate.

        None where loadings are so long beside the noise that draws vary more by it.
        """
        quadratic, level = self._second_order(point, self.draws)
        up, down = self._on_both_sides(point, self.draws)
        each = 0.5 * (up.value + down.value)
        share = float((each - quadratic).std() <= each.std())
        self.quadratic, self.level = share * quadratic, share * level

    def _second_order(self, point, draws):
        """Return the second order of the likelihood at draws, and its expectation."""
        W, noise = point.mean, np.exp(point.log_noise)
        at = likelihood(self.moments, W, noise)
        away = self.scale * draws
        image = hessian_times(self.moments, W, noise, at, away)
        diagonal = hessian_diagonal(self.moments, W, noise, at)
        drawn = 0.5 * np.einsum("sik,sik->s", away, image)
        return drawn, 0.5 * np.sum(self.scale**2 * diagonal)

    def posterior(self, point):
        """Return q over the loadings, row after row."""
        return MeanField(point.mean.ravel(), self.scale.ravel())

    def divergence(self, point):
        """Return that of q from the prior, in nats."""
        entropy = np.log(self.scale).sum() + 0.5 * self.scale.size * (1.0 + LOG_2PI)
        return -entropy - self.prior.expected(point.mean, self.scale**2)

    # What the solver asks for

    def statistics(self, point, batch, beta):
        """Return the bound and its gradient. There is nothing latent to temper."""
        up, down = self._on_both_sides(point, self.draws)
        each = 0.5 * (up.value + down.value) - self.quadratic
        value = self.n * (each.mean() + self.level) - self.divergence(point)
        by_mean = 0.5 * self.n * (up.gradient + down.gradient).mean(axis=0)
        by_mean -= point.mean @ self.prior.precision(point.mean, self.scale**2)
        by_noise = 0.5 * self.n * (up.by_noise + down.by_noise).mean()
        least = point.log_noise <= self.least_log_noise and by_noise < 0.0
        gradient = np.append(by_mean, by_noise if self.learn_noise and not least else 0)
        return Statistics(value, gradient)

    def _on_both_sides(self, point, draws):
        """Return the likelihood at draws of both signs."""
        noise, away = np.exp(point.log_noise), self.scale * draws
        try:
            up = likelihood(self.moments, point.mean + away, noise)
            return up, likelihood(self.moments, point.mean - away, noise)
        except np.linalg.LinAlgError as error:  # loadings too long for the noise
            raise FloatingPointError(str(error)) from error

    def bound(self, point, draws):
        """Return the bound by other draws, (m, d, k), and its standard error.

        Those that the means were led by are good for them, and say too much. How much
        of the second order there is in the likelihood, and of the density of q, whose
        mean is known too, the draws say: loadings that are long beside the noise leave
        the second order soon.
        """
        up, down = self._on_both_sides(point, draws)
        drawn, level = self._second_order(point, draws)
        square = 0.5 * (np.square(draws).sum(axis=(1, 2)) - self.scale.size)
        controls = np.stack([drawn - level, square], axis=1)
        mean, error = regressed_mean(0.5 * (up.value + down.value), controls)
        value = self.n * mean - self.divergence(point)
        return float(value), float(self.n * error)

    def objective(self, point, mean):
        """Return the evidence lower bound, in nats."""
        return float(mean.objective)

    def gradient(self, point, mean):
        """Return the gradient of the bound."""
        return mean.gradient

    def move(self, point, step):
        """Return the point with its parameters moved."""
        change = np.clip(step[-1], -LARGEST_CHANGE, LARGEST_CHANGE)
        mean = point.mean + step[:-1].reshape(point.mean.shape)
        return Point(mean, float(max(point.log_noise + change, self.least_log_noise)))

    @property
    def few(self):
        """Whether there are no more rows than columns."""
        return self.n <= self.moments.d

    def precondition(self, point, vector):
        r"""Multiply by the covariance of q, and by what rows know of the noise.

        Independent loadings know nothing of components that turn or lengthen as a
        whole: along :math:`W A` the likelihood is by orders of magnitude flatter, where
        columns are collinear. n rows tell A to :math:`1 / \sqrt n` about. That is of
        few rows: what turns and does nothing else has steps without end otherwise.
        """
        V, W = vector[:-1].reshape(self.scale.shape), point.mean
        by_mean = self.scale**2 * V
        if self.few:
            by_mean += W @ (W.T @ V) / self.n
        return np.append(by_mean, 2.0 / (self.n * self.moments.d) * vector[-1])
