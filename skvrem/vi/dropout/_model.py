r"""Networks whose last layer has Gaussian noise on its inputs: bound, gradient, steps.

Hidden layers make x of a row, :math:`x = \phi(\dots \phi(u W_1 + b_1) \dots)`; without
any, x is the row u. The logits are those of Eqs. 54-56 of Wang et al. (2024),

.. math:: z = (\epsilon \circ x) W + b, \qquad \epsilon_j \sim N(1, \sigma^2),

Gaussian with the mean :math:`a = x W + b` and the covariance
:math:`V = \sigma^2 W^T \mathrm{diag}(x^2) W`. The objective is the expected
log-likelihood a row, less :math:`\alpha |W|^2 / 2n`. With the expectations R of
:math:`\nabla \log p(y|z)` and C of minus its Hessian (``_kernels.py``) the gradients of
a row are, by the theorems of Bonnet and Price,

.. math:: x R^T - \sigma^2 \mathrm{diag}(x^2) W C \quad \text{by } W, \qquad
          W R - \sigma^2 x \circ \mathrm{diag}(W C W^T) \quad \text{by } x .

A draw has :math:`(\epsilon \circ x) r^T` and :math:`\epsilon \circ W r` in their place,
:math:`r = \nabla \log p(y | z)`. Taylor's approximation about :math:`\epsilon = 1`
(Eq. 57, with the point of expansion held) has :math:`\tilde r = r(a) - V_y (z - a)`,
with the variance :math:`V_y` of y at a, for r. What it is on average (Eq. 58) are the
first formulas, with R = r(a) and C = :math:`V_y`. The paper prints
:math:`N(1, \sigma I)` below Eq. 56, but :math:`\sigma^2` in Eq. 58: here, too, is
:math:`\sigma` the standard deviation. So with the same noise

====================  ===================================================
naive                 g(w; n, ε)
cv                    g(w; n, ε) - g̃(w; n, ε) + E g̃(w; n, ·)
joint (svrg)          g(w; n, ε) - g̃(w̃; n, ε) + mean over n of E g̃(w̃; n, ·)
====================  ===================================================

are unbiased, for a network as well: its layers before the last are linear in what comes
back from it.
"""

from copy import copy
from functools import cached_property, partial, reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from skvrem.utils._algebra import accumulate, rescale
from skvrem.utils._control import controlled
from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.vi.gaussian import _kernels
from skvrem.vi.gaussian._model import PlainModel, Point, SteppedModel

# Rows a task of a full pass takes.
PASS_ROWS = 2048
# Features up to which the metric of a linear classifier is a matrix.
MATRIX = 1000


class Weights(NamedTuple):
    """All weights and biases, layer by layer.

    Attributes
    ----------
    vector : ndarray of shape (n_weights,)
    """

    vector: np.ndarray


class Gradient(NamedTuple):
    """Sums over rows.

    Attributes
    ----------
    gradient : ndarray of shape (n_weights,)
        Of the expected log-likelihood.
    objective : float
        The expected log-likelihood.
    """

    gradient: np.ndarray
    objective: float


# Functions, and their derivatives by what they return.
ACTIVATIONS = {
    "identity": (lambda z: z, np.ones_like),
    "logistic": (expit, lambda h: h * (1.0 - h)),
    "tanh": (np.tanh, lambda h: 1.0 - h * h),
    "relu": (lambda z: np.maximum(z, 0.0), lambda h: (h > 0.0).astype(h.dtype)),
}


class Network:
    """Layers, and noise on the inputs of the last.

    Parameters
    ----------
    sizes : sequence of int
        Features, units of the hidden layers, logits.
    activation : {"identity", "logistic", "tanh", "relu"}
    dropout_scale : float
    """

    def __init__(self, sizes, activation, dropout_scale):
        self.sizes = tuple(sizes)
        self.function, self.derivative = ACTIVATIONS[activation]
        self.noise_variance = dropout_scale**2
        self.shapes = list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
        ends = np.cumsum([size for a, b in self.shapes for size in (a * b, b)])
        self.n_weights, self.ends = int(ends[-1]), ends[:-1]

    def layers(self, vector):
        """Return views of weights and biases, a pair a layer."""
        parts = np.split(vector, self.ends)
        pairs = zip(parts[::2], parts[1::2], self.shapes, strict=True)
        return [(W.reshape(shape), b) for W, b, shape in pairs]

    def vector(self, pairs):
        """Return weights and biases as one vector."""
        return np.concatenate([np.ravel(part) for pair in pairs for part in pair])

    def start(self, rng):
        """Return random weights of the scale that keeps that of the rows."""
        pairs = []
        for before, after in self.shapes:
            bound = np.sqrt(6.0 / (before + after))
            pairs.append((rng.uniform(-bound, bound, (before, after)), np.zeros(after)))
        return self.vector(pairs)

    def forward(self, layers, X):
        """Return the rows, what hidden layers make of them, mean logits (Eq. 56)."""
        inputs = [np.asarray(X, np.float64)]
        for W, b in layers[:-1]:
            inputs.append(self.function(inputs[-1] @ W + b))
        W, b = layers[-1]
        return inputs, inputs[-1] @ W + b

    def spread(self, layers, x):
        """Return variances (m, 1) of one logit of Eq. 56, or roots (m, k * k)."""
        W = layers[-1][0]
        k = W.shape[1]
        products = (W[:, :, None] * W[:, None, :]).reshape(len(W), k * k)
        V = self.noise_variance * (np.square(x) @ products)
        if k > 1:
            _kernels.roots(V, k)
        return V

    def noise(self, shape, rng):
        """Return numbers that inputs of the last layer are multiplied by."""
        noise = rng.standard_normal(shape)
        noise *= np.sqrt(self.noise_variance)
        noise += 1.0
        return noise

    def by_moments(self, layers, x, R, C):
        """Return gradients by the last layer and its inputs, noise integrated out.

        Those of Taylor's approximation on average (Eq. 58), where R and C are at its
        centre.
        """
        W = layers[-1][0]
        d, k = W.shape
        square = (np.square(x).T @ C).reshape(d, k, k)
        by_weights = x.T @ R
        by_weights -= self.noise_variance * (square @ W[:, :, None])[:, :, 0]
        products = (W[:, :, None] * W[:, None, :]).reshape(d, k * k)
        by_inputs = R @ W.T - self.noise_variance * x * (C @ products.T)
        return by_weights, R.sum(axis=0), by_inputs

    def by_taylor(self, layers, x, R, weight, p):
        """Return what `by_moments` does for C = diag(p) - p p^T (Eq. 58), weighted."""
        W, variance = layers[-1][0], self.noise_variance
        weighed, along = weight * p, p @ W.T
        square = np.square(x)
        by_weights = x.T @ R - variance * (W * (square.T @ weighed))
        by_weights += variance * ((square * along).T @ weighed)
        both = weight * (p @ np.square(W).T - np.square(along))
        return by_weights, R.sum(axis=0), R @ W.T - variance * x * both

    def by_noise(self, layers, x, noise, r):
        """Return the same at one draw of the noise of each row."""
        W = layers[-1][0]
        return (noise * x).T @ r, r.sum(axis=0), noise * (r @ W.T)

    def backward(self, layers, inputs, last):
        """Return the gradient by all weights from that by the last layer."""
        by_weights, by_bias, by_inputs = last
        pairs = [(by_weights, by_bias)]
        for number in range(len(layers) - 2, -1, -1):
            by_logits = by_inputs * self.derivative(inputs[number + 1])
            pairs.append((inputs[number].T @ by_logits, by_logits.sum(axis=0)))
            if number:
                by_inputs = by_logits @ layers[number][0].T
        return self.vector(pairs[::-1])


class Products(NamedTuple):
    """Sums of squares and products of rows with a one behind them."""

    square: np.ndarray
    gram: np.ndarray


def _products(d, total_weight, most, batch):
    """Return those of a batch of d features, as shares of the weight of all.

    There are no products where features are more than `most`.
    """
    size = d + 1 if d <= most else 0
    square, gram = np.zeros(d + 1), np.zeros((size, size))
    for start, stop in row_chunks(batch.start, batch.stop, PASS_ROWS):
        X = np.ones((stop - start, d + 1))
        X[:, :d] = batch.rows[start:stop]
        some = np.ones(1)
        if batch.weight.size:
            some = batch.weight[start:stop, None]
        some = some / total_weight
        square += np.sum(some * np.square(X), axis=0)
        if size:
            gram += X.T @ (some * X)
    return Products(square, gram)


class DropoutModel(PlainModel):
    """Rows and a network: sums over them, and steps along these.

    Parameters
    ----------
    family : Logistic or ScatteredSoftmax
    y : ndarray of shape (n,), or None
        As the family wants them; None where batches bring them.
    network : Network
    alpha : float
        Strength of the L2 penalty.
    data : source
        Dense rows. Minibatches want them in memory.
    times : float, default=1.0
        So many times the rows are those that share the penalty.
    """

    def __init__(self, family, y, network, alpha, data, times=1.0):
        self.family = family
        self.network = network
        self.data = data
        self.total_weight = data.total_weight
        self.y = self.weight = self.sets = None
        if not data.remote:
            self._take(data, y)
        #: What a weight's square costs a row; biases are free.
        self.penalty = network.vector(
            [(np.full(s, alpha), np.zeros(s[1])) for s in network.shapes]
        )
        self.penalty /= times * self.total_weight

    def _take(self, data, y):
        """Take rows, of a source in memory or a batch, for those of the model."""
        n = len(data.rows)
        self.data, self.y = data, y
        self.weight = data.weight if data.weight.size else np.ones(n)
        if self.family.n_predictors > 1:
            chunks = row_chunks(0, n, PASS_ROWS)
            parts = [self.family.sets_of(data.rows[slice(*one)]) for one in chunks]
            self.sets = np.concatenate(parts)

    def __getstate__(self):
        if self.y is not None:
            return vars(self)
        found = "curvature", "widths"
        return {k: v for k, v in vars(self).items() if k not in found} | {
            "data": None  # rows stay where they are
        }

    @cached_property
    def curvature(self):
        """Return a bound of the curvature of a linear classifier, the same by class.

        A Cholesky factor, or a diagonal where features are many; None for a network.
        """
        if len(self.network.shapes) > 1:
            return None
        most = 0.25 if self.family.n_predictors == 1 else 0.5
        d, variance = self.network.sizes[0], self.network.noise_variance
        products = partial(_products, d, self.total_weight, MATRIX)
        square, gram = self.data.chunks().sum(products)
        diagonal = most * variance * square + self.penalty[:: self.network.sizes[1]]
        diagonal[d] = 0.0  # the bias sees no noise
        # A column of zeros has no curvature, nor have some of collinear ones.
        diagonal += np.where(square > 0.0, 1e-12 * square, 1.0)
        if d > MATRIX:
            return most * square + diagonal
        gram *= most
        gram.flat[:: d + 2] += diagonal
        return cho_factor(gram)

    @cached_property
    def widths(self):
        """Return mean squares of what weights multiply, where they are above 1.

        Of features: steps and starts that are divided by them are the same whatever
        the units of wide columns, but for the penalty.
        """
        d = self.network.sizes[0]
        products = partial(_products, d, self.total_weight, 0)
        square, _ = self.data.chunks().sum(products)
        widths = np.ones(self.network.n_weights)
        W, _ = self.network.layers(widths)[0]
        W *= np.maximum(square[:d, None], 1.0)
        return widths

    def start(self, rng):
        """Return random weights, as of features that are no wider than 1."""
        return self.network.start(rng) / np.sqrt(self.widths)

    # Sums over rows

    def statistics(self, point, batch, beta):
        """Return the sums of a batch, without noise."""
        return self.at(batch).total(point.parameters.vector, batch.ids, "full")

    def losses(self, point, batch):
        """Return the sums of a batch, without noise and gradient."""
        return self.at(batch).total(point.parameters.vector, batch.ids, "loss")

    def at(self, batch):
        """Return the model of the rows of a batch, where these bring their own."""
        if self.y is not None:
            return self
        model = copy(self)
        model._take(batch, batch.targets)
        return model

    def total(self, vector, ids, kind):
        """Return sums over rows.

        Parameters
        ----------
        vector : ndarray of shape (n_weights,)
        ids : ndarray of int
        kind : {"full", "loss", "taylor"}
            Objective and gradient; no gradient; that of Taylor's approximation, noise
            integrated out.
        """
        evaluate = partial(self._sums, self.network.layers(vector), ids, kind)
        chunks = row_chunks(0, len(ids), PASS_ROWS)
        return reduce(accumulate, parallel_map(evaluate, chunks), None)

    def _sums(self, layers, ids, kind, chunk):
        rows = ids[slice(*chunk)]
        inputs, a = self.network.forward(layers, self.data.rows[rows])
        x = inputs[-1]
        if kind == "loss":
            how = self._expectation_of(layers, x, a, rows)
            return Gradient(np.zeros(0), -self.family.expected_loss(*how))
        if kind == "taylor":
            loss, last = 0.0, self.taylor(layers, x, a, rows)
        else:
            loss, last = self.expected(layers, x, a, rows)
        return Gradient(self.network.backward(layers, inputs, last), -loss)

    def _expectation_of(self, layers, x, a, rows):
        """Return what the family takes expectations of."""
        half, sets = self.network.spread(layers, x), ()
        if self.sets is not None:
            sets = (self.sets[rows],)
        return a, half, self.y[rows], self.weight[rows], *sets

    def expected(self, layers, x, a, rows):
        """Return loss and gradients by the last layer, the noise integrated out."""
        how = self._expectation_of(layers, x, a, rows)
        loss, R, C = self.family.expectations(*how)
        return loss, self.network.by_moments(layers, x, R, C)

    def taylor(self, layers, x, a, rows):
        """Return what gradients of Taylor's approximation are on average."""
        R, p = self.residual(a, rows), self.family.mean(a)
        weight = self.weight[rows, None]
        if p.shape[1] == 1:
            return self.network.by_moments(layers, x, R, weight * p * (1.0 - p))
        return self.network.by_taylor(layers, x, R, weight, p)

    def residual(self, z, rows):
        """Return r at logits, times the weights of the rows."""
        return self.family.residual(z, self.y[rows]) * self.weight[rows, None]

    def approximation(self, a, t, rows):
        """Return Taylor's r (Eq. 57) at logits a + t, times the weights of the rows."""
        change = self.family.variance_times(self.family.mean(a), t)
        r = self.family.residual(a, self.y[rows]) - change
        return r * self.weight[rows, None]

    # What the solvers ask for

    def objective(self, point, mean):
        """Return the penalised expected log-likelihood, in nats a row."""
        vector = point.parameters.vector
        return float(mean.objective - 0.5 * self.penalty @ np.square(vector))

    def gradient(self, point, mean):
        """Return its gradient."""
        return mean.gradient - self.penalty * point.parameters.vector

    def move(self, point, step):
        """Return the point with its weights moved."""
        return Point(Weights(point.parameters.vector + step))

    def precondition(self, point, vector):
        """Divide by a bound of the curvature, where there is one."""
        if self.curvature is None:
            return vector / self.widths
        columns = vector.reshape(-1, self.network.sizes[1])
        if isinstance(self.curvature, tuple):
            return cho_solve(self.curvature, columns).ravel()
        return (columns / self.curvature[:, None]).ravel()

    def update(self, point, mean, correction, step):
        """Return the point after a step along a mean gradient."""
        sums = mean if correction is None else accumulate(mean, correction)
        direction = self.precondition(point, self.gradient(point, sums))
        return self.move(point, step * direction)

    def towards(self, point, n_seen):
        """Return the point after the step of a batch, the last rows of so many.

        From the optimum of those before, along what the batch adds to the gradient.
        """
        vector = point.parameters.vector
        sums = self.total(vector, np.arange(self.data.n_units), "full")
        step = self.precondition(point, sums.gradient / self.total_weight)
        moved = self.move(point, (self.data.n_units / n_seen) * step)
        return moved._replace(moments=point.moments)


class NetworkWork:
    """What an epoch of steps moves.

    Attributes
    ----------
    vector : ndarray of shape (n_weights,)
    moments : ndarray of shape (2, n_weights), or (2, 0)
        Adam's.
    count : int
        Steps so far.
    """

    def __init__(self, point, n_moments):
        self.vector, last = point.parameters.vector.copy(), point.moments
        fresh = last is None or last[0].shape[1] != n_moments
        self.moments = np.zeros((2, n_moments)) if fresh else last[0].copy()
        self.count = 0 if fresh else last[1]

    def close(self):
        """Return the point that the epoch has led to."""
        return Point(Weights(self.vector), moments=(self.moments, self.count))


class DropoutSteps(SteppedModel):
    """A `DropoutModel` whose weights are moved by minibatch steps.

    Parameters
    ----------
    model : DropoutModel
    kind : {"stochastic", "svrg"}
    control : {None, "taylor", "quadrature"}
        "quadrature" has no noise.
    optimizer : {"adam", "sgd"}
    batch_size : int
    n_visits : int, default=None
        Rows visited in an epoch, each as often as the others; None is each once.
    """

    def __init__(self, model, kind, control, optimizer, batch_size, n_visits=None):
        self.model = model
        self.control = control
        self.adam = optimizer == "adam"
        self.rows_a_visit, self.n_visits = batch_size, n_visits
        #: Where rows are visited, they are evaluated here, and at the anchor.
        self.sweep_passes = 2.0 if kind == "svrg" else 1.0
        drawn = 0 if control == "quadrature" else model.network.sizes[-2]
        self.noise_width = batch_size * drawn
        self.n_rows = float(model.data.n_units)

    # What the solver asks for

    def full_pass(self, point, data):
        """Return the point, and the objective's mean without noise, no gradient."""
        total = data.chunks().sum(partial(self.model.losses, point))
        return point, rescale(total, 1.0 / self.model.total_weight), None

    def predicted_gain(self, point, mean):
        """Return infinity: nobody knows what is left to gain."""
        return np.inf

    # A sweep

    def known_at(self, anchor, rng):
        """Return weights, and the mean over rows and noise of what controls there."""
        vector, model = anchor.point.parameters.vector, self.model
        kind = "taylor" if self.control == "taylor" else "full"
        total = model.total(vector, np.arange(model.data.n_units), kind)
        return vector, total.gradient / model.total_weight

    def open(self, anchor):
        """Return what an epoch moves."""
        n_moments = self.model.network.n_weights if self.adam else 0
        return NetworkWork(anchor.point, n_moments)

    def visits(self, known, rng):
        """Return rows in random order, those visited twice in rounds."""
        n = self.model.data.n_units
        left = n if self.n_visits is None else self.n_visits
        rounds = [rng.permutation(n)[: left - done] for done in range(0, left, n)]
        return np.concatenate(rounds)

    def noise(self, work, rows, rng):
        """Return the noise of rows, None for quadrature."""
        if not self.noise_width:
            return None
        network = self.model.network
        return network.noise((len(rows), network.sizes[-2]), rng)

    def sweep(self, work, known, rows, noise, sizes):
        """Make a step for each batch of some rows; none can be rejected."""
        seen = self._each(work, known, rows, noise)
        for gradient, size in zip(seen, sizes, strict=True):
            gradient -= self.model.penalty * work.vector
            work.vector += self._step(work, gradient, size)
        return 0

    def estimates(self, work, known, rows, noise):
        """Return what steps would be made of, (m, n_weights)."""
        return np.stack(list(self._each(work, known, rows, noise)))

    def _each(self, work, known, rows, noise):
        """Yield the estimates of batches, each where the steps before it have led."""
        for start in range(0, len(rows), self.rows_a_visit):
            batch = slice(start, start + self.rows_a_visit)
            own = None if noise is None else noise[batch]
            yield self.estimate(work.vector, rows[batch], own, known)

    def estimate(self, vector, rows, noise, known=None):
        """Return an unbiased estimate of the gradient of the mean log-likelihood.

        Naive, cv (Eq. 9) or joint (Eq. 5 of Wang et al. 2024; their Algorithm 3, with
        an anchor in the place of a table), with Taylor's approximation (Eq. 57).

        Parameters
        ----------
        vector : ndarray of shape (n_weights,)
        rows : ndarray of int
            Numbers of the rows of a minibatch.
        noise : ndarray of shape (m, n_inputs) or None
            Of the inputs of the last layer; None integrates it out.
        known : tuple (vector, gradient), default=None
            What `known_at` returns.
        """
        here = self.control if known is None else None
        gradient = self._gradient(vector, rows, noise, here)
        scale = self.n_rows / (len(rows) * self.model.total_weight)
        if known is None:
            return scale * gradient
        before, mean = known
        then = self._gradient(before, rows, noise, approximate=True)
        return controlled(gradient, then, mean, scale)

    def _gradient(self, vector, rows, noise, control=None, approximate=False):
        """Return the gradient of a minibatch's log-likelihood at draws of the noise.

        control : what it is controlled by at this very point. approximate: that of
        Taylor's approximation in its place.
        """
        model, network = self.model, self.model.network
        layers = network.layers(vector)
        inputs, a = network.forward(layers, model.data.rows[rows])
        x, (W, b) = inputs[-1], layers[-1]
        if noise is None:
            last = model.expected(layers, x, a, rows)[1]
        elif approximate:
            r = model.approximation(a, ((noise - 1.0) * x) @ W, rows)
            last = network.by_noise(layers, x, noise, r)
        else:
            z = (noise * x) @ W + b
            r = model.residual(z, rows)
            if control == "taylor":
                r = r - model.approximation(a, z - a, rows)
            last = network.by_noise(layers, x, noise, r)
            if control == "taylor":
                last = tuple(map(np.add, last, model.taylor(layers, x, a, rows)))
        return network.backward(layers, inputs, last)

    # Where rows lie elsewhere

    def at(self, batch, n_rows):
        """Return the model of the rows of a batch, which stand for so many in all."""
        there = copy(self)
        there.model, there.n_rows = self.model.at(batch), n_rows
        return there

    def know(self, anchor):
        """Return what is known of the rows at an anchor."""
        return self.known_at(anchor, None)

    def parted(self, known):
        """Return the mean of what is known, a sum of shares, and where it is of."""
        vector, mean = known
        return Gradient(mean, 0.0), vector

    def joined(self, sums, own, work):
        """Return what `known_at` does, of all rows."""
        return own, sums.gradient

    def seen(self, known):
        """Return that visits change nothing of it."""
        return None, known[0]

    def _step(self, work, gradient, size):
        if not self.adam:
            return size * gradient
        first, second = work.moments
        work.count += 1
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient * gradient - second)
        size = size / (1.0 - 0.9**work.count)
        root = np.sqrt(second / (1.0 - 0.999**work.count))
        return size * first / (root + 1e-8)
