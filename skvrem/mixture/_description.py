"""What a fitted Gaussian mixture says of itself: draws, conditionals, a summary."""

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.special import log_softmax
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.data import as_source
from skvrem.mixture._model import GaussianMixtureModel, Parameters, precisions_cholesky
from skvrem.utils._base import fit_facts, summary_table
from skvrem.utils._remote import refuse_dask
from skvrem.utils._validation import check_order

__all__ = ["ConditionalGaussian", "GaussianMixtureDescription"]


class ConditionalGaussian(NamedTuple):
    """Distribution of some features given the others, for n rows of given values.

    Attributes
    ----------
    features : ndarray of int of shape (n_free,)
        Columns that the rest describes, in the order of X.
    mean : ndarray of shape (n, n_free)
        Conditional expectation: the regression on the given features.
    covariance : ndarray of shape (n, n_free, n_free)
        Conditional covariance of the mixture, spread between components included.
    weights : ndarray of shape (n, n_components)
        Probabilities of the components given the values.
    means : ndarray of shape (n, n_components, n_free)
        Conditional means of the components.
    covariances : ndarray of shape (n_components, n_free, n_free)
        Conditional covariances of the components; they do not depend on the values.
    """

    features: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class GaussianMixtureDescription:
    """Methods of a fitted mixture that need no rows."""

    def _parameters(self):
        check_is_fitted(self)
        # Copies: kernels are compiled anew for arrays that are mapped read-only.
        names = ("weights_", "means_", "covariances_", "precisions_cholesky_")
        return Parameters(*(np.array(getattr(self, n), np.float64) for n in names))

    def _dense_covariances(self):
        """Covariances as matrices, shape (n_components, n_features, n_features)."""
        k, d = self.means_.shape
        covariances = np.asarray(self.covariances_, np.float64)
        kind = self._of_fit.covariance_type
        if kind == "tied":
            covariances = np.broadcast_to(covariances, (k, d, d))
        elif kind == "diag":
            covariances = covariances[:, :, None] * np.eye(d)
        elif kind == "spherical":
            covariances = covariances[:, None, None] * np.eye(d)
        return covariances

    def sample(self, n_samples=1):
        """Draw from the fitted mixture.

        Parameters
        ----------
        n_samples : int, default=1
            How many to draw.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The draws.
        y : ndarray of int of shape (n_samples,)
            Component of each draw; draws come sorted by it.
        """
        weights, means, _, _ = self._parameters()
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        rng = check_random_state(self.random_state)
        counts = rng.multinomial(n_samples, weights / weights.sum())
        y = np.repeat(np.arange(len(weights)), counts)
        X = means[y]
        draws = rng.standard_normal(X.shape)
        # Those of columns of very different widths are positive only but for rounding.
        values, vectors = np.linalg.eigh(self._dense_covariances())
        factors = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        for k, rows in enumerate(np.split(np.arange(len(y)), np.cumsum(counts)[:-1])):
            X[rows] += draws[rows] @ factors[k].T
        return X, y

    def condition(self, given, values):
        """Return the distribution of the other features given some.

        Parameters
        ----------
        given : array-like of int or of str
            Columns that are known, by number or by name.
        values : array-like of shape (n, n_given)
            What they are known to be; one row is enough.

        Returns
        -------
        conditional : ConditionalGaussian
            Conditional means and covariances, of the mixture and of its components.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import VRGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=500)
        >>> mixture = VRGaussianMixture().fit(np.column_stack([x, 2 * x]))
        >>> mixture.condition(given=[0], values=[[1.0]]).mean.round(3)
        array([[2.]])
        """
        weights, means, _, _ = self._parameters()
        known = self._feature_numbers(given)
        refuse_dask(values)
        values = check_array(values, dtype=np.float64, input_name="values")
        if values.shape[1] != len(known):
            raise ValueError(
                f"values must have one column for each of the {len(known)} given "
                f"features, got {values.shape[1]}."
            )
        free = np.setdiff1d(np.arange(means.shape[1]), known)
        if not len(free):
            raise ValueError("Every feature is given: nothing is left to describe.")
        covariances = self._dense_covariances()
        inner = covariances[:, known[:, None], known]
        cross = covariances[:, free[:, None], known]
        marginal = Parameters(
            weights, means[:, known], inner, precisions_cholesky(inner)[0]
        )
        model = GaussianMixtureModel("full", 0.0)
        batch = as_source(np.ascontiguousarray(values)).batch(0, len(values))
        log_joint = model.log_joint(marginal, batch, np.float64)
        share = np.exp(log_softmax(log_joint, axis=1))
        gain = np.stack(
            [
                linalg.solve(a, b.T, assume_a="pos").T
                for a, b in zip(inner, cross, strict=True)
            ]
        )
        offset = values[:, None, :] - means[:, known]
        components = means[:, free] + np.einsum("kfg,nkg->nkf", gain, offset)
        spread = covariances[:, free[:, None], free] - gain @ cross.transpose(0, 2, 1)
        mean = np.einsum("nk,nkf->nf", share, components)
        apart = components - mean[:, None]
        covariance = np.einsum("nk,kfg->nfg", share, spread)
        covariance += np.einsum("nk,nkf,nkg->nfg", share, apart, apart)
        return ConditionalGaussian(free, mean, covariance, share, components, spread)

    def _feature_numbers(self, features):
        features = np.atleast_1d(np.asarray(features))
        if features.dtype.kind in "OUS":
            names = list(getattr(self, "feature_names_in_", ()))
            unknown = [f for f in features if f not in names]
            if unknown:
                raise ValueError(
                    f"Unknown features {unknown}: the mixture was fitted on "
                    f"{names or 'an array without feature names'}."
                )
            features = np.array([names.index(f) for f in features])
        d = self.means_.shape[1]
        if features.dtype.kind not in "iu" or not np.isin(features, np.arange(d)).all():
            raise ValueError(f"given must name columns from 0 to {d - 1}.")
        if len(np.unique(features)) != len(features):
            raise ValueError("given names a feature twice.")
        return features

    def relabel(self, order):
        """Put the components into another order, in place.

        Parameters
        ----------
        order : array-like of int of shape (n_components,)
            ``order[0]`` is the component that becomes the first.

        Returns
        -------
        self : estimator
            The same, with every fitted array in the new order.
        """
        check_is_fitted(self)
        order = check_order(order, len(self.weights_))
        names = ["weights_", "means_"]
        if self._of_fit.covariance_type != "tied":
            names += ["covariances_", "precisions_", "precisions_cholesky_"]
        for name in names:
            setattr(self, name, getattr(self, name)[order])
        self._sums = tuple(part[order] for part in self._sums)
        return self

    def summary(self):
        """Return a table of the components.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a component: its share, then mean and standard deviation of every
            feature. The frame's ``attrs`` hold log-likelihood, solver, convergence,
            passes and how many starts reached the best; the text ends with them.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(self.means_.shape[1])]
        deviations = np.sqrt(np.diagonal(self._dense_covariances(), axis1=1, axis2=2))
        columns = {"share": self.weights_}
        for j, name in enumerate(names):
            columns[f"{name} mean"] = self.means_[:, j]
            columns[f"{name} sd"] = deviations[:, j]
        facts = {
            "log_likelihood": self.lower_bound_,
            "solver": self.solver_,
            "converged": self.converged_,
        }
        facts |= fit_facts(self, self.lower_bound_)
        index = [f"component {k}" for k in range(len(self.weights_))]
        return summary_table(columns, index, facts)
