"""What a fitted factorial mixture says of rows and of its components."""

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.data import as_source, is_dask
from skvrem.factorial._model import FactorialModel, rows_of_a_tile
from skvrem.factorial._model_bound import Parameters
from skvrem.utils._algebra import read_only
from skvrem.utils._base import fit_facts, summary_table
from skvrem.utils._parallel import one_blas_thread, parallel_map, row_chunks, threads
from skvrem.utils._remote import refuse_dask
from skvrem.utils._validation import (
    check_integer,
    check_magnitude,
    check_order,
    check_real,
    check_weight,
    validate_data,
)

__all__ = ["FactorialInference"]


class FactorialInference(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Methods of a fitted factorial mixture; they use its public attributes only.

    scikit-learn's mixins are bases of this class since `set_output` wraps `transform`
    only where a subclass of theirs defines it.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def _check_X(self, X, reset):
        if is_dask(X):
            as_source(X, dask=False)  # says what to do instead
        X = validate_data(
            self, X, reset=reset, dtype=(np.float64, np.float32), order="C"
        )
        check_magnitude(X)
        return X

    def _check_codes(self):
        """Check the parameters of answers too, which may change after a fit."""
        check_integer(self, "max_code_iter", least=1)
        check_real(self, "code_tol")

    def _parameters(self):
        check_is_fitted(self)
        return Parameters(
            np.array(self.components_, np.float64),
            np.array(self.components_covariance_, np.float64),
            np.array(self.activation_prior_, np.float64),
            float(self.noise_variance_),
            float(self.component_variance_),
        )

    def _evaluate(self, X, codes=True):
        """Return the codes of rows and the bounds of their log-likelihood."""
        parameters = self._parameters()
        self._check_codes()
        X = read_only(self._check_X(X, reset=False))
        model = FactorialModel(
            1.0, X.dtype, code_iter=self.max_code_iter, code_tol=self.code_tol
        )
        cooling = model.cooling(parameters)
        n, k = len(X), len(parameters.activation)
        nu = np.empty((n if codes else 0, k), X.dtype)
        bounds = np.empty(n, X.dtype)

        def fill(rows):
            start, stop = rows
            bounds[start:stop], part = model.bounds(parameters, X[start:stop], cooling)
            if codes:
                nu[start:stop] = part.T

        with one_blas_thread(), threads(self.n_jobs):
            for _ in parallel_map(fill, row_chunks(0, n, rows_of_a_tile(X.shape[1]))):
                pass
        return nu, bounds

    def transform(self, X):
        r"""Return the probabilities that the components are active in each row.

        The mean field :math:`\nu` of a row given the components: coordinate ascent, at
        most `max_code_iter` sweeps, until none moves by `code_tol`; once from the
        prior, and once through ten falling temperatures, of which the better bound
        counts. The more features a row has, the more ascent from the prior alone would
        end in a poor optimum.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_components)
            Between 0 and 1; rows do not sum to anything.
        """
        return self._evaluate(X)[0]

    def predict(self, X):
        """Return the binary codes of rows: which components are active.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        codes : ndarray of int of shape (n_samples, n_components)
            1 where the activation probability is above a half.
        """
        return (self._evaluate(X)[0] > 0.5).astype(np.int64)

    def inverse_transform(self, X):
        """Return the rows that codes, or activation probabilities, stand for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Codes, or what :meth:`transform` returns.

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features)
            Sums of the active components.
        """
        check_is_fitted(self)
        refuse_dask(X)
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are {len(self.components_)} "
                "components."
            )
        return X @ self.components_

    def score_samples(self, X):
        r"""Return a lower bound of the predictive log-likelihood of each row.

        .. math:: \log p(x^* | X) \ge \max_\nu E_q[\log p(x^*, Z^* | \mu)] + H(\nu)

        with the posterior of the components, whose uncertainty counts, and the codes
        of :meth:`transform`. Deterministic; the more of the row's codes are certain,
        the closer it is.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, seen before or not.

        Returns
        -------
        bounds : ndarray of shape (n_samples,)
            In nats.
        """
        return self._evaluate(X, codes=False)[1]

    def score(self, X, y=None, sample_weight=None):
        """Return the average of :meth:`score_samples`, in nats a row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Held-out rows.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        score : float
            The higher, the better.
        """
        bounds = self.score_samples(X)
        weight = check_weight(sample_weight, len(bounds))
        return float(np.average(bounds.astype(np.float64), weights=weight))

    def sample(self, n_samples=1):
        """Draw from the fitted mixture, its components at their means.

        Parameters
        ----------
        n_samples : int, default=1
            How many to draw.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The draws.
        codes : ndarray of int of shape (n_samples, n_components)
            The components that are active in each.
        """
        parameters = self._parameters()
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        rng = check_random_state(self.random_state)
        means, activation = parameters.means, parameters.activation
        codes = (rng.uniform(size=(n_samples, len(means))) < activation).astype(int)
        X = codes @ means
        X += np.sqrt(parameters.noise) * rng.standard_normal(X.shape)
        return X, codes

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
        order = check_order(order, len(self.components_))
        for name in ("components_", "components_variance_", "activation_prior_"):
            setattr(self, name, getattr(self, name)[order])
        square = np.ix_(order, order)
        self.components_covariance_ = self.components_covariance_[square]
        sum_z, sum_zz, sum_zx, *rest = self._sums
        self._sums = (sum_z[order], sum_zz[square], sum_zx[order], *rest)
        return self

    def summary(self):
        """Return a table of the components.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a component: how often it is active, its length, the share of the
            model's variance that it brings, and the posterior standard deviation of
            its values. The frame's ``attrs`` hold the bound, the noise, solver,
            convergence, passes and how many starts reached the best; the text ends
            with them.
        """
        parameters = self._parameters()
        activation, means = parameters.activation, parameters.means
        square = np.einsum("kd,kd->k", means, means)
        variance = activation * (1.0 - activation) * square
        total = variance.sum() + means.shape[1] * parameters.noise
        columns = {
            "active": activation,
            "length": np.sqrt(square),
            "variance share": variance / total,
            "sd": np.sqrt(np.diagonal(parameters.covariance)),
        }
        facts = {
            "lower_bound": self.lower_bound_,
            "noise_variance": parameters.noise,
            "solver": self.solver_,
            "converged": self.converged_,
        }
        facts |= fit_facts(self, self.lower_bound_)
        index = [f"component {k}" for k in range(len(means))]
        return summary_table(columns, index, facts)
