r"""Variances of gradient estimates at one point, and where they come from.

With independent coefficients, one draw :math:`\epsilon` for a whole batch B of rows and
:math:`\theta = \mu + \sigma \epsilon`, the gradient of the expected log-likelihood by
:math:`(\mu, \log\sigma)` is estimated by

.. math:: \frac{N}{|B|} \sum_{n \in B} \big(g_n, \; g_n \sigma \epsilon\big),
          \qquad g_n = r_n x_n ,

and its variance is the mean over draws of that over batches, plus the variance over
draws of the full sum (the law of total variance). The first is a sum over rows and is
not sampled. Prior and entropy are taken in closed form and vary not at all.
"""

import numpy as np

ESTIMATORS = ("naive", "cv", "joint", "joint, scales", "antithetic", "quadrature")


def decompose(family, X, y, weight, mean, scale, names, batch_size, n_draws, rng):
    """Return traces of variances by name: the decomposition, then the estimators.

    Those of joint and cv are Eqs. 6 and 10 of Wang et al. (2024), measured.

    Parameters
    ----------
    family : object
        Of ``_model_families.py``.
    X : ndarray of shape (n, p)
    y : ndarray of shape (n,), or (n, 2) with an offset
    weight : ndarray of shape (n,)
    mean, scale : ndarray of shape (p, k)
    names : sequence of str
        Among `ESTIMATORS`.
    batch_size, n_draws : int
    rng : numpy.random.Generator
    """
    rows = _Batches(X, weight, batch_size)
    a, y = family.without_offset(X @ mean, y)
    v = rows.squares @ np.square(scale)
    half = np.sqrt(v) if family.n_predictors > 1 else v
    _, residual, curvature = family.expectations(a, half, y, np.empty(0))
    by_rows = rows.variance(residual, curvature, np.square(scale), drawn=False)
    wanted = {"naive", *names} - {"quadrature"}
    within = dict.fromkeys(wanted, 0.0)
    sums = {name: [] for name in wanted}
    base, at = family.mean(a), family.residual(a, y)
    for _ in range(n_draws):
        noise = scale * rng.standard_normal(mean.shape)
        t = X @ noise
        r = family.residual(a + t, y)
        taylor = at - family.variance_times(base, t)
        pair = 0.5 * (family.mean(a + t) - family.mean(a - t))
        anti = at - pair / family.dispersion
        parts = {  # what stands in place of r, by the means and by the scales
            "naive": (r, r),
            "cv": (r - taylor + at, r),
            "joint": (r - taylor, r),
            "joint, scales": (r - taylor, r - taylor),
            "antithetic": (r - anti, r),
        }
        for name in wanted:
            first, second = parts[name]
            within[name] += rows.variance(first, second, noise) / n_draws
            sums[name].append(rows.total(first, second, noise))
    draws = {name: float(np.var(sums[name], axis=0, ddof=1).sum()) for name in wanted}
    out = {name: within[name] + draws[name] for name in wanted}
    out["quadrature"] = by_rows
    table = {"V(rows, draws)": out["naive"], "V(rows)": by_rows}
    table["V(draws)"] = draws["naive"]
    return table | {name: out[name] for name in names}


class _Batches:
    """Rows with weights, and the variance of sums over batches of them.

    A row's part of a sum is first x by the means, and second b scale by the scales: b
    is x where the scale is that of a draw, x^2 where draws are integrated out.
    """

    def __init__(self, X, weight, batch_size):
        self.X, self.squares = X, np.square(X)
        self.weight = weight[:, None] if weight.size else np.ones((len(X), 1))
        n = len(X)
        # Of a sum over all, from batches drawn without replacement.
        self.factor = n / batch_size * (n - batch_size) / max(1, n - 1)

    def total(self, first, second, scale, drawn=True):
        """Return the sum over rows, of the means and the scales."""
        basis = self.X if drawn else self.squares
        by_mean = self.X.T @ (self.weight * first)
        by_scale = basis.T @ (self.weight * second) * scale
        return np.concatenate([by_mean.ravel(), by_scale.ravel()])

    def variance(self, first, second, scale, drawn=True):
        """Return the trace of the variance of a batch's estimate."""
        n = len(self.X)
        basis = self.squares if drawn else np.square(self.squares)
        squares = self.squares.T @ np.square(self.weight * first)
        squares += basis.T @ np.square(self.weight * second) * np.square(scale)
        mean = self.total(first, second, scale, drawn) / n
        return self.factor * (float(squares.sum()) - n * float(mean @ mean))
