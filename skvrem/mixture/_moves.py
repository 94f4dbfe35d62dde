r"""Split-merge moves of a Gaussian mixture, out of optima that EM cannot leave.

One component does the work of two where two others share that of one. What it costs
to delete component j, whose rows go to the others, is

.. math:: \ell_j = n \log(1 - \pi_j) - \sum_i w_i \log(1 - r_{ij})

nats, exactly; what splitting component l gains is what two components gain over it
on the rows it owns,

.. math:: g_l = \sum_i w_i r_{il} \log
          \frac{a N(x_i; \mu, \Sigma) + (1 - a) N(x_i; \mu', \Sigma')}
               {N(x_i; \mu_l, \Sigma_l)}

with the halves from a few epochs of EM on some of these rows. Where all share the
covariance it gains as well what this does by shrinking then (see `_cuts`), and halves
may be those of a cut at a value of one column. Where each has its own, they may be the
rows at an atom and all others (see `_atoms`). A move puts the halves
of l in the places of l and j; those of largest :math:`g_l - \ell_j` come first.

Splits alone are a start as well, from one component of all rows. Where columns have
atoms this comes to components at several of them, which no single move does: rows that
leave the others for the first of these give them no more to begin with.
"""

from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from skvrem.data import as_source
from skvrem.mixture._atoms import likely_cuts
from skvrem.mixture._cuts import find_cuts, rows_to_cut, shrinkage
from skvrem.mixture._model import Parameters
from skvrem.mixture._start import HARD, starting_parameters
from skvrem.solvers import ranked_moves
from skvrem.utils._averaging import AveragingPoint

# Rows that halves are fitted to, the posterior of a row that a component owns, epochs.
SPLIT_ROWS, OWNED, SPLIT_EPOCHS = 1000, 0.05, 5
# Rows that are split to start with, of more.
START_ROWS = 2000
# Steps of power iteration, for the direction in which a component is cut.
POWER_STEPS = 5
# Posteriors that are looked at in one piece.
PIECE = 1 << 15


class Split(NamedTuple):
    """Two components in place of one: what they gain a row, and their parameters."""

    gain: float
    parameters: Any = None


class Owned(NamedTuple):
    """Rows that a component owns, their w r, and its log density of each."""

    rows: np.ndarray
    weight: np.ndarray
    log_density: np.ndarray


def moves(model, point, data, rng):
    """Yield points that EM may climb higher from, the most promising first.

    Parameters
    ----------
    model : GaussianMixtureModel
    point : AveragingPoint
    data : ArraySource
    rng : numpy.random.Generator

    Yields
    ------
    proposal : AveragingPoint
        Whoever takes one sends back the point that it has led to.
    """
    k, halves = len(point.parameters.weights), {}
    while True:
        sizes, losses, owned = _look(model, point, data, set(range(k)) - set(halves))
        for part, own in owned.items():
            halves[part] = _split(model, point, data, part, own, rng)
        gains = sizes * [halves[part].gain for part in range(k)]
        for split, merged in ranked_moves(gains[:, None] - losses):
            taken = yield _moved(model, point, split, merged, halves[split].parameters)
            if taken is not None:
                point = taken
                del halves[split], halves[merged]
                break
        else:
            return


def _look(model, point, data, parts):
    """Return the sum of w r and the loss of each component, and the rows of some."""
    weights = point.parameters.weights
    k, found = len(weights), {part: [] for part in parts}
    sizes, losses = np.zeros(k), data.total_weight * np.log1p(-weights)
    size = max(1, PIECE // k)
    for start in range(0, data.n_units, size):
        batch = data.batch(start, min(start + size, data.n_units))
        joint = model.log_joint(point.parameters, batch, np.float64)
        weight = data.weight[batch.start : batch.stop]
        owned, lost = _posteriors(joint, weight)
        sizes += owned.sum(axis=0)
        losses += lost
        for part, own in found.items():
            of_part = owned[:, part]
            rows = np.flatnonzero(of_part > OWNED * (weight if weight.size else 1.0))
            own.append((start + rows, of_part[rows], joint[rows, part]))
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    owned = {}
    for part in parts:
        own = zip(*found.pop(part), strict=True)
        rows, weight, joint = map(np.concatenate, own)
        owned[part] = Owned(rows, weight, joint - logs[part])
    return sizes, losses, owned


def _posteriors(joint, weight):
    """Return w r, and what rows lose with each of their components."""
    rows, best = np.arange(len(joint)), joint.argmax(axis=1)
    joint = joint - joint.max(axis=1, keepdims=True)
    np.exp(joint, out=joint)
    # One minus the largest, without cancellation.
    joint[rows, best] = 0.0
    others = joint.sum(axis=1)
    joint[rows, best] = 1.0
    joint /= (1.0 + others)[:, None]
    rest = 1.0 - joint
    rest[rows, best] = np.maximum(others, np.finfo(float).tiny) / (1.0 + others)
    np.log(rest, out=rest)
    if weight.size:
        joint *= weight[:, None]
        rest *= weight[:, None]
    return joint, -rest.sum(axis=0)


def _split(model, point, data, part, owned, rng):
    """Return the halves of a component, which some of its rows are fitted with."""
    total, fewest = owned.weight.sum(), model.fewest_rows(data.n_features)
    if total < 2.0 * fewest:
        return Split(-np.inf)
    if len(owned.rows) > SPLIT_ROWS:
        some = np.sort(rng.choice(len(owned.rows), SPLIT_ROWS, replace=False))
        owned = Owned(*(values[some] for values in owned))
    X, weight = data.rows[owned.rows], owned.weight
    whole = _only(model, point.parameters, part)
    deviations = np.sqrt(model.variances(whole)[0])
    Z = np.nan_to_num((X - whole.means) / deviations)
    axis = np.ones(Z.shape[1])
    for _ in range(POWER_STEPS):
        # Not by BLAS, whose sums depend on the number of threads.
        axis = np.einsum("ij,i->j", Z, weight * np.einsum("ij,j->i", Z, axis))
        axis /= max(np.sqrt(np.square(axis).sum()), np.finfo(float).tiny)
    means = whole.means + np.outer([-1.0, 1.0], deviations * axis)
    some, cut = as_source(X, weight), _twice(whole, means, model.covariance_type)
    cut, _ = _few_epochs(model, cut, some, 1, HARD)
    halves, objective = _few_epochs(model, cut, some, SPLIT_EPOCHS)
    if model.covariance_type == "tied":  # to all components, of which these are two
        shared = whole._asdict()
        shared = {name: shared[name] for name in ("covariances", "precisions_cholesky")}
        halves, objective = _few_epochs(model, halves._replace(**shared), some, 0)
    gain = objective - np.average(owned.log_density, weights=weight)
    split, fewest = Split(gain, halves), fewest / total
    if model.covariance_type == "tied":
        share = point.parameters.weights[part]
        return _shrinking(model, split, X, weight, share, fewest)
    if not model.has_atoms(data):
        return split
    cuts = likely_cuts(X, weight, whole, model.seen(data)[0], fewest, model)
    splits = [split, *(_cut(model, whole, owned, some, at) for at in cuts.T)]
    return max(splits, key=attrgetter("gain"))


def _cut(model, whole, owned, some, at):
    """Return the halves of a component in which some of its rows are one, of all."""
    gain, parts = -np.average(owned.log_density, weights=owned.weight), []
    for side in (at, ~at):
        rows = as_source(some.rows[side], some.weight[side])
        part, objective = _few_epochs(model, whole, rows, 1)
        share = rows.total_weight / some.total_weight
        gain += share * (objective + np.log(share))
        parts.append(part._replace(weights=np.array([share])))
    return Split(gain, _together(parts))


def _together(parts):
    """Return components, each of which has its own covariance, as one mixture."""
    return Parameters(*map(np.concatenate, zip(*parts, strict=True)))


def _shrinking(model, split, X, weight, share, fewest):
    """Return halves of a component that gain by shrinking a shared covariance as well.

    Those that are given, or if they gain more those of a cut along one column, each of
    which has `fewest` of the rows, as a share.
    """
    parameters = split.parameters
    cuts = find_cuts(X, weight, np.diag(parameters.covariances), share, fewest)
    if not cuts.shares.size:
        return split
    shrink = share, parameters.precisions_cholesky, model.reg_covar
    differences = np.diff(parameters.means, axis=0)
    q = shrinkage(parameters.weights[:1], differences, *shrink)[0]
    # The distances of the rows, of which q goes, are in the gain already.
    gain = split.gain + 0.5 * (-np.log1p(-q) - q) / share
    gains = cuts.gains(*shrink) / share
    if gains.max() <= gain:
        return Split(gain, parameters)
    best = gains.argmax()
    weights = np.array([cuts.shares[best], 1.0 - cuts.shares[best]])
    cut = parameters._replace(weights=weights, means=cuts.means[:, best])
    return Split(gains[best], cut)


def _few_epochs(model, parameters, data, n_epochs, beta=1.0):
    """Return parameters after epochs of EM on a few rows, and their objective a unit.

    There the loop of solvers would take most of the time.
    """
    batch = data.batch(0, data.n_units)

    def look():
        point = AveragingPoint(parameters, None, parameters.means)
        return point, model.statistics(point, batch, beta)

    for _ in range(n_epochs):
        point, sums = look()
        parameters, _ = model.maximize(sums, point, True)
    return parameters, look()[1].objective / data.total_weight


def _only(model, parameters, part):
    """Return the parameters of one component, as a mixture of it alone."""
    _, means, *rest = parameters
    if model.covariance_type != "tied":
        rest = [array[part : part + 1] for array in rest]
    return Parameters(np.ones(1), means[part : part + 1], *rest)


def _twice(whole, means, covariance_type):
    """Return two components with the covariance of one, about two means."""
    rest = whole[2:]
    if covariance_type != "tied":
        rest = [np.repeat(array, 2, axis=0) for array in rest]
    return Parameters(np.full(2, 0.5), means, *rest)


def _moved(model, point, split, merged, halves):
    """Return the point with halves in the places of two components."""
    places = [split, merged]
    before = point.parameters
    after = Parameters(*(array.copy() for array in before))
    after.weights[places] = before.weights[split] * halves.weights
    after.means[places] = halves.means
    if model.covariance_type != "tied":
        after.covariances[places] = halves.covariances
        after.precisions_cholesky[places] = halves.precisions_cholesky
    return model.start(after._replace(weights=after.weights / after.weights.sum()))


class _SplitPart(NamedTuple):
    """Rows that are one component, which has `share` of all, and its split."""

    rows: np.ndarray
    share: float
    parameters: Parameters
    split: Split


def split_start(model, data, n_components, rng):
    """Return parameters of components that one is split into, the best split first.

    Parameters
    ----------
    model : GaussianMixtureModel
        Each component of which has its own covariance.
    data : ArraySource
    n_components : int
    rng : numpy.random.Generator

    Returns
    -------
    parameters : Parameters
        None where rows are too few for so many splits.
    passes : float
    """
    X, weight = rows_to_cut(data, START_ROWS, rng)
    size, some = len(X), as_source(X, weight)
    fewest = model.fewest_rows(X.shape[1])
    begun, passes = starting_parameters(model, some, 1, "random_from_data", rng)
    passes *= size

    def part_of(rows, parameters, last):
        own = as_source(X[rows], some.weight[rows])
        parameters, _ = _few_epochs(model, parameters, own, 1)
        share, split = own.total_weight / some.total_weight, Split(-np.inf)
        if not last:
            log_density = _log_joint(model, parameters, own)[:, 0]
            owned = Owned(rows, own.weight, log_density)
            point = AveragingPoint(parameters, None, parameters.means)
            split = _split(model, point, some, 0, owned, rng)
        return _SplitPart(rows, share, parameters, split)

    parts = [part_of(np.arange(size), begun, n_components == 1)]
    while len(parts) < n_components:
        promises = [part.share * part.split.gain for part in parts]
        at = int(np.argmax(promises))
        if promises[at] == -np.inf:
            return None, passes / data.n_units
        rows, _, whole, split = parts[at]
        own = as_source(X[rows], some.weight[rows])
        first = _log_joint(model, split.parameters, own).argmax(axis=1) == 0
        passes += 2 * len(rows)
        if min(own.weight[first].sum(), own.weight[~first].sum()) < fewest:
            parts[at] = parts[at]._replace(split=Split(-np.inf))
            continue
        last = len(parts) + 1 == n_components
        sides = [part_of(rows[side], whole, last) for side in (first, ~first)]
        parts[at : at + 1] = sides
    shares = np.array([part.share for part in parts])
    together = _together([part.parameters for part in parts])
    return together._replace(weights=shares), passes / data.n_units


def _log_joint(model, parameters, data):
    return model.log_joint(parameters, data.batch(0, data.n_units), np.float64)
