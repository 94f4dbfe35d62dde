"""What a fitted factorial mixture says of rows."""

import numpy as np

from skvrem.factorial._model import rows_of_a_tile
from skvrem.utils._algebra import read_only
from skvrem.utils._parallel import parallel_map, row_chunks

__all__ = ["evaluate_rows"]


def evaluate_rows(model, parameters, X, codes=True):
    """Return the codes of rows and the bounds of their log-likelihood.

    Parameters
    ----------
    model : FactorialModel
    parameters : Parameters
    X : ndarray of shape (n_rows, n_features)
    codes : bool, default=True
        Without them there are none in their place.
    """
    X, cooling = read_only(X), model.cooling(parameters)
    n, k = len(X), len(parameters.activation)
    nu = np.empty((n if codes else 0, k), X.dtype)
    bounds = np.empty(n, X.dtype)

    def fill(rows):
        start, stop = rows
        bounds[start:stop], part = model.bounds(parameters, X[start:stop], cooling)
        if codes:
            nu[start:stop] = part.T

    for _ in parallel_map(fill, row_chunks(0, n, rows_of_a_tile(X.shape[1]))):
        pass
    return nu, bounds
