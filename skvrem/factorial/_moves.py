r"""Moves of a factorial mixture, out of optima that coordinate ascent cannot leave.

One component is nothing, or what two others explain as well, where rows share what none
explains. A move takes a component away and puts a binary factor of what the others
leave in its place: the vector v and the rows A that it is active in, which lower

.. math:: \sum_{n \notin A} w_n |r_n|^2 + \sum_{n \in A} w_n |r_n - v|^2, \qquad
          r_n = x_n - \sum_{l \ne k} \nu_{nl} m_l,

with the other components fitted by least squares to rows without it. These are ends of
k-means with a centre that stays at zero, from residuals of random rows on. Moves whose
least squares are lowest come first.
"""

from functools import partial

import numpy as np

from skvrem.factorial._model import from_fractions, to_fractions
from skvrem.factorial._model_bound import Statistics
from skvrem.solvers import Batch, Run, try_out

# Ends whose moves are tried: those below fewer others than that.
ENDS = 3
# Ends that differ by less, in nats a row, are one optimum.
TIED = 1e-4
# Factors that are looked for in the place of a component, and steps of k-means.
FACTORS, STEPS = 6, 8
# Codes of a component that differ by less in the mean are what it had.
SAME = 0.02
# Trials of moves from a point, the most epochs of one, and moves from one end on.
TRIALS, EPOCHS, MOVES = 8, 25, 12
# Epochs that must be left for a fit to go on where moves have led.
LEFT = 50


class FactorMoves:
    """Where moves lead from the end of a start, if it is one of the best.

    Parameters
    ----------
    make : callable
        Returns a FactorialModel.
    data : ArraySource
    least : float
        What a move must gain a row, where that is more than a component gains by
        fitting noise: half a nat for each number in it.
    ends : list of float
        Where starts have ended before, to which this one adds its own.
    """

    def __init__(self, make, data, least, ends):
        self.make, self.data, self.ends = make, data, ends
        noise = 0.5 * (data.n_features + 1) / data.total_weight
        self.least = max(least, noise)
        self.moved = False

    def __call__(self, end, left, search):
        """Return a point to begin from once more, or None, what it cost, and False.

        Parameters
        ----------
        end : skvrem.solvers.Result
        left : int
            Epochs that there may be.
        search : callable
            See :class:`skvrem.solvers.Start`.
        """
        if self.moved or not end.converged or left < LEFT:
            return None, 0.0, False
        self.moved = True
        if not among_best(self.ends, end.objective):
            return None, 0.0, False
        return *search("moves", partial(self._climb, end.point)), False

    def _climb(self, point):
        """Return where moves lead, None if nowhere higher, and the passes made."""
        rng, model = np.random.default_rng(0), self.make()
        # A visit writes to codes, and those of the end are to stay.
        codes = point.codes
        point = point._replace(codes=codes.copy(), after=codes.copy())
        begun = best = self._run(model, point).advance(0)
        passes = best.passes
        for _ in range(MOVES):
            for proposal in proposals(model, best.anchor.point, self.data, rng):
                least = best.anchor.objective + self.least
                trial = try_out(self._run(model, proposal), EPOCHS, least)
                passes += trial.passes
                if trial.anchor.objective > least:
                    best = trial
                    break
            else:
                break
        return None if best is begun else best.anchor.point, passes

    def _run(self, model, point):
        rng = np.random.default_rng(0)
        return Run(model, Batch(), self.data, point, tol=0.0, rng=rng)


def among_best(ends, objective):
    """Whether an end is one of the best that there were, and a new one; note it."""
    gaps = np.array(ends) - objective
    ends.append(objective)
    return (gaps > TIED).sum() < ENDS and not (np.abs(gaps) <= TIED).any()


def proposals(model, point, data, rng):
    """Yield points with a factor in the place of a component, the most promising first.

    Parameters
    ----------
    model : FactorialModel
    point : FactorialPoint
    data : ArraySource
    rng : numpy.random.Generator
    """
    X = np.asarray(data.rows, np.float64)
    weight = data.weight if data.weight.size else np.ones(len(X))
    codes = from_fractions(point.codes)
    ridge = point.parameters.noise / point.parameters.spread
    found = []
    for k in range(codes.shape[1]):
        others = np.delete(codes, k, axis=1)
        rest = X - others @ _least_squares(*_products(others, X, weight), ridge)
        for column in factors(rest, weight, rng).T:
            if np.average(np.abs(column - codes[:, k]), weights=weight) < SAME:
                continue
            moved = codes.copy()
            moved[:, k] = column
            sum_zz, sum_zx = _products(moved, X, weight)
            means = _least_squares(sum_zz, sum_zx, ridge)
            found.append((-np.vdot(means, sum_zx), k, column))
    # Of equal ones the first counts.
    found.sort(key=lambda one: one[:2])
    for _, k, column in found[:TRIALS]:
        moved = codes.copy()
        moved[:, k] = column
        proposal = _point(model, point, moved, X, weight)
        if proposal is not None:
            yield proposal


def factors(rest, weight, rng):
    """Return different codes of binary factors of rows, a column each.

    Parameters
    ----------
    rest : ndarray of shape (n_rows, n_features)
        What is to be explained.
    weight : ndarray of shape (n_rows,)
    rng : numpy.random.Generator

    Returns
    -------
    codes : ndarray of shape (n_rows, n_factors)
        0 or 1; each factor has some rows of weight.
    """
    square = np.einsum("nd,nd->n", rest, rest)
    # In an order of their own: nothing tells weights from repetitions.
    order = np.argsort(square, kind="stable")
    below = np.cumsum((weight * square)[order])
    if not below[-1] > 0.0:
        return np.empty((len(rest), 0))
    drawn = np.searchsorted(below, below[-1] * rng.uniform(size=FACTORS))
    vectors = rest[order[drawn]]
    for _ in range(STEPS):
        codes = rest @ vectors.T > 0.5 * np.einsum("jd,jd->j", vectors, vectors)
        own = weight[:, None] * codes
        size = own.sum(axis=0)[:, None]
        vectors = own.T @ rest / np.where(size > 0.0, size, 1.0)
    found = codes.T[size[:, 0] > 0.0]
    different = {np.packbits(row).tobytes(): row for row in found}
    return np.array([*different.values()], float).reshape(-1, len(rest)).T


def _products(codes, X, weight):
    """Return the sums of w ν νᵀ, whose diagonal is that of w ν, and of w ν xᵀ."""
    own = weight[:, None] * codes
    sum_zz = own.T @ codes
    np.fill_diagonal(sum_zz, own.sum(axis=0))
    return sum_zz, own.T @ X


def _least_squares(sum_zz, sum_zx, ridge):
    return np.linalg.solve(sum_zz + ridge * np.eye(len(sum_zz)), sum_zx)


def _point(model, point, codes, X, weight):
    """Return the point that codes of the rows lead to, or None where there is none."""
    total = weight.sum()
    sum_zz, sum_zx = (sums / total for sums in _products(codes, X, weight))
    sum_xx = weight @ np.einsum("nd,nd->n", X, X) / total
    sums = Statistics(np.diagonal(sum_zz), sum_zz, sum_zx, sum_xx, 1.0, 0.0, 0.0)
    # The second time with the noise that the first has found.
    for _ in range(2):
        found = model.maximize(sums, point, False)
        if found is None:
            return None
        point = point._replace(parameters=found[0])
    kept = to_fractions(codes)
    return point._replace(statistics=sums, codes=kept, after=kept.copy())
