"""What a fitted LDA says of documents."""

import numpy as np
from scipy.special import psi
from sklearn.utils.validation import check_is_fitted

from skvrem.topics._documents import as_documents
from skvrem.topics._mixin import TopicModelMixin, check_prior
from skvrem.topics._model_padding import pad
from skvrem.topics._model_word_sums import take_rows
from skvrem.topics.lda._model import LDAModel
from skvrem.topics.lda._model_local import LocallyTemperedLDAModel
from skvrem.utils._parallel import threads

__all__ = [
    "LDAInference",
    "check_doc_prior",
    "check_word_prior",
    "perplexity_of",
    "perplexity_stop",
]


def check_doc_prior(prior, n_components):
    """Return the prior of the documents' shares, shape (n_components,).

    Raises
    ------
    ValueError
        If it has another shape, or is not positive and finite.
    """
    prior = 1.0 / n_components if prior is None else prior
    prior = check_prior(prior, "doc_topic_prior", (n_components,), positive=True)
    return np.broadcast_to(prior, n_components).copy()


def check_word_prior(prior, n_components, n_features):
    """Return the prior of the topics' words, shape () or (n_components, n_features).

    Raises
    ------
    ValueError
        If it has another shape, or is not positive and finite.
    """
    prior = 1.0 / n_components if prior is None else prior
    shape = (n_components, n_features)
    return check_prior(prior, "topic_word_prior", shape, positive=True)


def perplexity_of(bound):
    """Return exp(-bound), of a bound in nats a token."""
    with np.errstate(over="ignore"):  # infinite is what it is
        return float(np.exp(-bound))


def posteriors(model, topics, batch):
    """Return γ of documents and their bound, at temperature 1.

    Parameters
    ----------
    model : LDAModel
    topics : ndarray of shape (n_features, K)
        λ, padded.
    batch : batch of documents
    """
    psi_totals = model.psi_totals(topics)
    rows, top = model.expect_log(take_rows(topics, batch.rows.words), psi_totals)
    gamma, bound, _, _ = model.infer(model.temper(rows, 1.0), top, batch, 1.0)
    return gamma[:, : model.n_components], bound


class LDAInference(TopicModelMixin):
    """Methods of a fitted LDA; they use its public attributes only."""

    _by_topic = ("doc_topic_prior_", "topic_word_prior_")
    _objective_name = "lower_bound_"

    @property
    def exp_dirichlet_component_(self):
        """Exponential of the expected log topics, exp(E log β)."""
        if "components_" not in vars(self):
            raise AttributeError("exp_dirichlet_component_ is there after fit.")
        topics = self.components_
        return np.exp(psi(topics) - psi(topics.sum(axis=1, keepdims=True)))

    def _model(self, kind=LDAModel):
        """Return the fitted model."""
        self._check_rounds()
        return kind(
            self.doc_topic_prior_,
            np.asarray(self.topic_word_prior_),
            self.n_tokens_seen_,
            self.components_.dtype,
            self.max_doc_update_iter,
            self.mean_change_tol,
        )

    def _evaluate(self, data):
        """Return γ of documents, their bound, and the divergence of the topics."""
        model = self._model()
        topics = pad(self.components_.T, model.dtype)
        (batch,) = data.chunks().batches
        with threads(self.n_jobs):
            return *posteriors(model, topics, batch), model.divergence(topics)

    def _of_training_data(self, data):
        """Return the attributes that judge the fit, without tempering."""
        _, bound, divergence = self._evaluate(data)
        bound = float((bound - divergence) / data.total_weight)
        found = {"lower_bound_": bound, "bound_": perplexity_of(bound)}
        if self.tempering == "local":
            model = self._model(LocallyTemperedLDAModel)
            topics = pad(self.components_.T, model.dtype)
            (batch,) = data.chunks().batches
            found["doc_temperature_"] = model.temperatures(topics, batch)
        return found

    def _new(self, X):
        """Validate documents that were perhaps not seen; return their source."""
        check_is_fitted(self)
        X = self._check_X(X, reset=False)
        return as_documents(X, dtype=self._dtype(X))

    def fit_transform(self, X, y=None, *, normalize=True, **fit_params):
        """Fit the model and return the topics' shares of its documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts.
        y : Ignored
            Present by convention.
        normalize : bool, default=True
            As in :meth:`transform`.
        **fit_params : dict
            Passed to :meth:`fit`.

        Returns
        -------
        shares : ndarray of shape (n_samples, n_components)
            As :meth:`transform` returns them.
        """
        return self.fit(X, y, **fit_params).transform(X, normalize=normalize)

    def transform(self, X, *, normalize=True):
        """Return the topics' shares of documents, seen before or not.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts.
        normalize : bool, default=True
            False returns the Dirichlet parameters of the shares' posterior, prior
            and expected counts.

        Returns
        -------
        shares : ndarray of shape (n_samples, n_components)
            Posterior means of the shares, rows sum to 1; for an empty document those
            of the prior.
        """
        gamma, *_ = self._evaluate(self._new(X))
        return gamma / gamma.sum(axis=1, keepdims=True) if normalize else gamma.copy()

    def score(self, X, y=None):
        """Return a lower bound of the log-likelihood of documents.

        The divergence of the topics from their prior is a cost of what they have
        learned from the training data. It is shared among the tokens of those, and
        documents here bear as much of it as they have tokens; scikit-learn's model
        charges it whole to any number of documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts.
        y : Ignored
            Present by convention.

        Returns
        -------
        score : float
            In nats, of all documents together. To compare models of different kinds
            use :func:`skvrem.text.document_completion`.
        """
        data = self._new(X)
        _, bound, divergence = self._evaluate(data)
        return bound - divergence * data.total_weight / self.n_tokens_seen_

    def perplexity(self, X, sub_sampling=False):
        """Return the perplexity of documents, from the bound of `score`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts.
        sub_sampling : bool, default=False
            Taken as in scikit-learn, whose True spreads the cost of the topics over
            all the documents of the fit; here it always is, see :meth:`score`.

        Returns
        -------
        perplexity : float
            ``exp(-score(X) / X.sum())``, the lower the better.
        """
        tokens = self._new(X).total_weight
        if tokens == 0.0:
            raise ValueError("X has no counts: there is nothing to be perplexed by.")
        return perplexity_of(self.score(X) / tokens)


def perplexity_stop(evaluate_every, perp_tol):
    """Return the test of scikit-learn's parameters of these names, None for never.

    Epochs at temperature 1 are counted; every `evaluate_every`-th is compared with the
    one before.
    """
    if evaluate_every <= 0:
        return None
    seen = []

    def stop(epoch):
        if epoch.temperature != 1.0 or np.isnan(epoch.objective):
            return False
        seen.append(perplexity_of(epoch.objective))
        looked = seen[::evaluate_every]
        due = (len(seen) - 1) % evaluate_every == 0
        return due and len(looked) > 1 and abs(looked[-1] - looked[-2]) < perp_tol

    return stop
