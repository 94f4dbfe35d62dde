"""What a fitted logistic regression says of rows, and of itself."""

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import summary_table
from skvrem.utils._classes import PredictsByProba
from skvrem.utils._remote import refuse_dask
from skvrem.utils._validation import validate_data

__all__ = ["LogisticInference"]


class LogisticInference(PredictsByProba):
    """Methods that use ``coef_``, ``intercept_`` and ``classes_`` only."""

    def decision_function(self, X):
        """Return the logits of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        logits : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, the log-odds of ``classes_[1]``.
        """
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=(np.float64, np.float32)
        )
        Z = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        return Z[:, 0] if Z.shape[1] == 1 else Z

    def _most_probable(self, X):
        Z = self.decision_function(X)
        return (Z > 0).astype(int) if Z.ndim == 1 else Z.argmax(axis=1)

    def predict_proba(self, X):
        """Return the probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        Z = self.decision_function(X)
        if Z.ndim == 1:
            return np.stack([expit(-Z), expit(Z)], axis=1)
        return softmax(Z, axis=1)

    def _log_proba(self, X):
        # Exact where probabilities round to 0.
        Z = self.decision_function(X)
        if Z.ndim == 1:
            return np.stack([log_expit(-Z), log_expit(Z)], axis=1)
        return log_softmax(Z, axis=1)

    def score(self, X, y, sample_weight=None):
        """Return the accuracy.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        score : float
            Share of the rows whose class is predicted.
        """
        refuse_dask(y, sample_weight)
        return super().score(X, y, sample_weight)

    def densify(self):
        """Make ``coef_`` a dense array, as it is after a fit.

        Returns
        -------
        self : SBMLogisticRegression
            The same estimator.
        """
        check_is_fitted(self)
        if sp.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self

    def sparsify(self):
        """Make ``coef_`` a sparse matrix, for coefficients that are mostly zero.

        A quadratic penalty makes few zeros; after setting small coefficients to zero
        this saves memory. `fit` and `partial_fit` make it dense again.

        Returns
        -------
        self : SBMLogisticRegression
            The same estimator.
        """
        check_is_fitted(self)
        self.coef_ = sp.csr_matrix(self.coef_)
        return self

    def summary(self):
        """Return a table of the coefficients.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a feature and, where there is one, the intercept; a column a class
            (one for two classes) with, after ``compute_std=True``, standard errors and
            95 % intervals. The frame's ``attrs`` hold objective, solver, passes and
            convergence; the text ends with them.
        """
        check_is_fitted(self)
        dense = self.coef_.toarray() if sp.issparse(self.coef_) else self.coef_
        names = list(getattr(self, "feature_names_in_", ()))
        names = names or [f"x{j}" for j in range(dense.shape[1])]
        table = np.column_stack([dense, self.intercept_])
        labels = self.classes_[1:] if len(dense) == 1 else self.classes_
        std = getattr(self, "coef_std_", None)
        columns = {}
        for number, label in enumerate(labels):
            columns[f"{label}"] = table[number]
            if std is not None:
                error = np.append(std[number], self.intercept_std_[number])
                columns[f"{label} se"] = error
                columns[f"{label} 2.5 %"] = table[number] - 1.959964 * error
                columns[f"{label} 97.5 %"] = table[number] + 1.959964 * error
        facts = {"objective": self.objective_, "solver": self.solver_}
        if hasattr(self, "history_"):
            facts["passes"] = float(self.history_["passes"][-1])
            facts["converged"] = self.converged_
        return summary_table(columns, [*names, "intercept"], facts)
