"""What a fitted pLSA says of documents and of its topics."""

import numpy as np
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    check_non_negative,
    validate_data,
)

from skvrem.data import as_documents
from skvrem.plsa._model import PLSAModel
from skvrem.text import document_completion, top_words
from skvrem.utils._parallel import threads
from skvrem.utils._summary import fit_facts, summary_table
from skvrem.utils._validation import check_order

__all__ = ["PLSAInference", "check_doc_prior", "check_word_prior"]

DEFAULT_WORD_PRIOR = 0.1


def _check_prior(prior, name, shape):
    prior = np.asarray(prior)
    if prior.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers or None, got {prior.dtype}.")
    if prior.ndim and prior.shape != shape:
        raise ValueError(
            f"{name} must be a number or an array of shape {shape}, got shape "
            f"{prior.shape}."
        )
    if not (np.isfinite(prior).all() and prior.min() >= 0.0):
        raise ValueError(
            f"{name} must be finite and not negative: it is added to expected counts. "
            f"The prior is Dirichlet(1 + {name}); of a Dirichlet(a), pass a - 1."
        )
    return prior.astype(np.float64)


def check_doc_prior(prior, n_components):
    """Return the prior of the documents' shares, shape (n_components,).

    Raises
    ------
    ValueError
        If it has another shape, or is negative, infinite or NaN.
    """
    prior = 1.0 / n_components if prior is None else prior
    prior = _check_prior(prior, "doc_topic_prior", (n_components,))
    return np.broadcast_to(prior, n_components).copy()


def check_word_prior(prior, n_components, n_features):
    """Return the prior of the topics' words, shape () or (n_components, n_features).

    Raises
    ------
    ValueError
        If it has another shape, or is negative, infinite or NaN.
    """
    prior = DEFAULT_WORD_PRIOR if prior is None else prior
    return _check_prior(prior, "topic_word_prior", (n_components, n_features))


class PLSAInference:
    """Methods of a fitted pLSA; they use its public attributes only."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def _check_X(self, X, reset):
        """Validate counts."""
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=reset)
        check_non_negative(X, f"{type(self).__name__} (X must be word counts)")
        return X

    def _dtype(self, X, reset=False):
        """Return the dtype to compute in: float32 is exact for counts."""
        if not reset:
            return self.components_.dtype
        return np.float32 if X.dtype.kind in "iub" or X.dtype == "f4" else np.float64

    def _infer(self, X):
        """Return the shares of new documents, θ, padded."""
        k = len(self.components_)
        data = as_documents(X, dtype=self._dtype(X))
        model = PLSAModel(
            self.doc_topic_prior_,
            np.zeros(()),
            1.0,
            data.dtype,
            self.max_doc_update_iter,
            self.mean_change_tol,
        )
        theta = np.full((data.n_units, k), 1.0 / k, data.dtype)
        return model.infer(self.components_.T, theta, data.chunks().batches[0])

    def transform(self, X):
        """Return the topics' shares of documents, seen before or not.

        EM steps on each document alone, with the topics held: at most
        `max_doc_update_iter`, until the shares move by less than `mean_change_tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts. Words that no topic expects say nothing.

        Returns
        -------
        shares : ndarray of shape (n_samples, n_components)
            Probabilities, rows sum to 1; for an empty document those of the prior.
        """
        check_is_fitted(self)
        X = self._check_X(X, reset=False)
        with threads(self.n_jobs):
            return self._infer(X)

    def inverse_transform(self, X):
        r"""Return the word probabilities of documents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Shares of the topics, as :meth:`transform` returns them.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_features)
            :math:`\sum_k \theta_{dk} \varphi_{kv}`; times a document's length, the
            expected counts.
        """
        check_is_fitted(self)
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are {len(self.components_)} "
                "topics."
            )
        return X @ self.components_

    def score(self, X, y=None):
        """Return the log-likelihood of one half of each document given the other.

        Document completion, see :func:`skvrem.text.document_completion`: tokens go by
        a fair coin (the same at every call) to an observed and a scored half.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts of held-out documents.
        y : Ignored
            Present by convention.

        Returns
        -------
        score : float
            In nats a token.
        """
        check_is_fitted(self)
        self._check_X(X, reset=False)
        return document_completion(self, X, n_jobs=self.n_jobs)

    def perplexity(self, X):
        """Return the perplexity of held-out documents, ``exp(-score(X))``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts.

        Returns
        -------
        perplexity : float
            The lower the better; the size of the vocabulary for a uniform guess.
        """
        return float(np.exp(-self.score(X)))

    def relabel(self, order):
        """Put the topics into another order, in place.

        Parameters
        ----------
        order : array-like of int of shape (n_components,)
            ``order[0]`` is the topic that becomes the first.

        Returns
        -------
        self : estimator
            The same, with every fitted array in the new order.
        """
        check_is_fitted(self)
        order = check_order(order, len(self.components_))
        for name in ("components_", "topic_shares_", "doc_topic_prior_"):
            setattr(self, name, getattr(self, name)[order])
        if np.ndim(self.topic_word_prior_):
            self.topic_word_prior_ = self.topic_word_prior_[order]
        self._sums = self._sums[:, order]
        return self

    def summary(self, feature_names=None, n_words=8):
        """Return a table of the topics.

        Parameters
        ----------
        feature_names : array-like of str, fitted vectorizer or Pipeline, default=None
            Words of the columns; by default the names that `fit` saw.
        n_words : int, default=8
            Words shown of each topic.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a topic: its share of the tokens and its most probable words. The
            frame's ``attrs`` hold objective, solver, convergence, passes and how many
            starts reached the best; the text ends with them.
        """
        check_is_fitted(self)
        words = top_words(self, feature_names, n_words)
        columns = {
            "share": self.topic_shares_,
            "words": [" ".join(map(str, row)) for row in words],
        }
        facts = {
            "objective": self.objective_,
            "solver": self.solver_,
            "converged": self.converged_,
        }
        facts |= fit_facts(self, self.objective_)
        index = [f"topic {k}" for k in range(len(words))]
        return summary_table(columns, index, facts)
