r"""Cuts of a component at an atom of a column: rows that have it, and all others.

Atoms are values that come again for a reason (see `values_of`), at which a component
may be no wider than `reg_covar`. A share a of the w rows of a component, all at an atom
of column j, gains about

.. math:: \frac{w}{2} \left( a \left(\log\frac{v}{\epsilon} + 1\right)
          + (1 - a) \log\frac{\sigma^2}{\sigma'^2} \right) - w H(a)

nats, with the variance v of the column where the others are known, its variance
:math:`\sigma^2`, that of the other rows :math:`\sigma'^2`, :math:`\epsilon`, which is
`reg_covar`, and the entropy H of two shares. EM does not find such a component from
halves of the longest axis, which stands across many columns.
"""

import numpy as np

from skvrem.mixture._cuts import entropy

# Cuts of a component that are looked at in full; three lead no higher.
LIKELY = 1


def likely_cuts(rows, weight, whole, atoms, fewest, model):
    """Return the cuts of a component that gain most, each column by itself.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,)
        Of the rows in the component.
    whole : Parameters
        Of the component alone.
    atoms : ndarray of shape (n_atoms, n_features)
        NaN where a column has fewer.
    fewest : float
        Share of the weight of the rows that each side has at least.
    model : GaussianMixtureModel
        Of matrices or variances ("full" or "diag").

    Returns
    -------
    at : ndarray of shape (n_rows, n_cuts), bool
        Which rows have the atom; at most `LIKELY` cuts, the best first.
    """
    columns, places = np.nonzero(~np.isnan(atoms.T))
    values = atoms[places, columns]
    at = rows[:, columns] == values
    weight = weight / weight.sum()
    shares = np.einsum("i,ij->j", weight, at)
    possible = (shares >= fewest) & (shares <= 1.0 - fewest)
    columns, values, shares = columns[possible], values[possible], shares[possible]
    at = at[:, possible]
    gains = _gains(rows, weight, whole, columns, values, shares, model)
    likely = [cut for cut in np.argsort(-gains, kind="stable") if gains[cut] > 0.0]
    return at[:, likely[:LIKELY]]


def _gains(rows, weight, whole, columns, values, shares, model):
    """Return what cuts gain for each row of the component, nats."""
    least = max(model.reg_covar, np.finfo(float).tiny)
    variances = model.variances(whole)[0]
    free = variances  # where the other columns are known
    if model.dense:
        free = 1.0 / np.square(whole.precisions_cholesky[0]).sum(axis=1)
    # Of the rows that do not have the atom, from moments of all that are not missing.
    centred = rows - whole.means[0]
    known = np.einsum("i,ij->j", weight, ~np.isnan(centred))
    centred = np.nan_to_num(centred)
    sums = np.einsum("i,ij->j", weight, centred)
    squares = np.einsum("i,ij->j", weight, np.square(centred))
    values = values - whole.means[0, columns]
    # None, where all others are missing, but for rounding.
    others = np.maximum(known[columns] - shares, np.finfo(float).eps)
    mean = (sums[columns] - shares * values) / others
    square = (squares[columns] - shares * np.square(values)) / others
    rest = np.maximum(square - np.square(mean), 0.0) + least
    narrower = np.log(np.maximum(free[columns] / least, 1.0))
    shrunk = np.minimum(np.log(variances[columns] / rest), narrower)
    gains = shares * (narrower + 1.0) + (1.0 - shares) * shrunk
    return 0.5 * gains - entropy(shares)
