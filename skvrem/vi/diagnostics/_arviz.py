"""Posteriors for ArviZ: draws, log-likelihoods and data under the user's names."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import optional


class Draws(NamedTuple):
    """What an estimator says of rows, as ArviZ groups it.

    Attributes
    ----------
    posterior : dict of str to ndarray of shape (n_samples, ...)
    dims : dict of str to list of str
        Names of the axes of each variable, the draws left out.
    coords : dict of str to list
        Labels along the axes.
    log_likelihood : ndarray of shape (n_samples, n_rows)
        Of each row at each draw.
    observed : ndarray of shape (n_rows, ...), or None
    predictive : ndarray of shape (n_samples, n_rows, ...), or None
        New targets of the rows, as numbers.
    """

    posterior: dict
    dims: dict
    coords: dict
    log_likelihood: np.ndarray
    observed: np.ndarray | None
    predictive: np.ndarray | None = None


class ArviZMixin:
    """Estimators with ``_draws(X, y, n_samples, rng)``, which returns `Draws`."""

    def to_arviz(self, X, y=None, n_samples=1000, random_state=None):
        """Return draws from the posterior and what they say of rows, for ArviZ.

        Parameters
        ----------
        X : array-like
            Rows, as in `fit`: those that log-likelihoods are wanted of.
        y : array-like, default=None
            Their targets, as in `fit`.
        n_samples : int, default=1000
            How many draws, independent of each other: one chain.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        data : arviz.InferenceData, or xarray.DataTree from ArviZ 1 on
            With the groups posterior, log_likelihood, observed_data and, of estimators
            with ``sample_predictive``, posterior_predictive; variables are labelled by
            features, classes or items.

        Raises
        ------
        ImportError
            Where ArviZ is not installed.
        """
        check_is_fitted(self)
        arviz = optional("arviz", "arviz", "to_arviz")
        rng = check_random_state(random_state)
        draws = self._draws(X, y, n_samples, rng)
        # An axis of chains goes first.
        posterior = {name: value[None] for name, value in draws.posterior.items()}
        groups, axes = {"posterior": posterior}, ["row"]
        groups["log_likelihood"] = {"y": draws.log_likelihood[None]}
        if draws.observed is not None:
            axes = ["row", "column"][: draws.observed.ndim]
            groups["observed_data"] = {"y": draws.observed}
        if draws.predictive is not None:
            groups["posterior_predictive"] = {"y": draws.predictive[None]}
        labels = {"coords": draws.coords, "dims": {**draws.dims, "y": axes}}
        # Since version 1 the groups are one dictionary, and the answer is a DataTree.
        if int(arviz.__version__.partition(".")[0]) >= 1:
            return arviz.from_dict(groups, **labels)
        return arviz.from_dict(**groups, **labels)
