"""What a fitted pLSA says of documents."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvrem.text import document_completion
from skvrem.topics._documents import as_documents
from skvrem.topics._mixin import TopicModelMixin, check_prior
from skvrem.topics.plsa._model import PLSAModel
from skvrem.utils._parallel import threads

__all__ = ["PLSAInference", "check_doc_prior", "check_word_prior"]

DEFAULT_WORD_PRIOR = 0.1
HINT = (
    " It is added to expected counts: the prior is Dirichlet(1 + {0}), so of a "
    "Dirichlet(a) pass a - 1."
)


def check_doc_prior(prior, n_components):
    """Return the prior of the documents' shares, shape (n_components,).

    Raises
    ------
    ValueError
        If it has another shape, or is negative, infinite or NaN.
    """
    name = "doc_topic_prior"
    prior = 1.0 / n_components if prior is None else prior
    prior = check_prior(prior, name, (n_components,), hint=HINT.format(name))
    return np.broadcast_to(prior, n_components).copy()


def check_word_prior(prior, n_components, n_features):
    """Return the prior of the topics' words, shape () or (n_components, n_features).

    Raises
    ------
    ValueError
        If it has another shape, or is negative, infinite or NaN.
    """
    name = "topic_word_prior"
    prior = DEFAULT_WORD_PRIOR if prior is None else prior
    shape = (n_components, n_features)
    return check_prior(prior, name, shape, hint=HINT.format(name))


class PLSAInference(TopicModelMixin):
    """Methods of a fitted pLSA; they use its public attributes only."""

    _by_topic = ("doc_topic_prior_", "topic_word_prior_")
    _objective_name = "objective_"

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
        self._check_rounds()
        X = self._check_X(X, reset=False)
        data = as_documents(X, dtype=self._dtype(X))
        model = PLSAModel(
            self.doc_topic_prior_,
            np.zeros(()),
            1.0,
            data.dtype,
            self.max_doc_update_iter,
            self.mean_change_tol,
        )
        (batch,) = data.chunks().batches
        with threads(self.n_jobs):
            return model.infer(self.components_.T, model.uniform(data.n_units), batch)

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
