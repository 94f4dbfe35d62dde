"""What the estimators of topic models share: counts in, topics out."""

import warnings

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    check_non_negative,
)

from skvrem.exceptions import FractionalCountsWarning
from skvrem.text._topics import check_size_of_counts, refuse_text
from skvrem.text._words import top_words
from skvrem.utils._base import fit_facts, summary_table
from skvrem.utils._remote import refuse_dask
from skvrem.utils._validation import (
    check_integer,
    check_options,
    check_order,
    check_real,
    check_weight,
    validate_data,
)

__all__ = ["TopicModelMixin", "check_prior"]

# Counts that are smaller on average are weights.
LEAST_COUNT = 0.5


def check_prior(prior, name, shape, *, positive=False, hint=""):
    """Return a prior as float64, a number or one for every entry.

    Parameters
    ----------
    prior : float or array-like
    name : str
    shape : tuple of int
        Of an array.
    positive : bool, default=False
        Zero is not allowed.
    hint : str, default=""
        What to do about a negative one.

    Raises
    ------
    ValueError
        If it has another shape, is infinite or NaN, negative, or zero.
    """
    prior = np.asarray(prior)
    if prior.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers or None, got {prior.dtype}.")
    if prior.ndim and prior.shape != shape:
        raise ValueError(
            f"{name} must be a number or an array of shape {shape}, got shape "
            f"{prior.shape}."
        )
    low = prior.min() <= 0.0 if positive else prior.min() < 0.0
    if low or not np.isfinite(prior).all():
        rule = "positive" if positive else "not negative"
        raise ValueError(f"{name} must be finite and {rule}.{hint}")
    return prior.astype(np.float64)


class TopicModelMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Methods of a topic model with ``components_``, ``topic_shares_`` and ``_sums``.

    scikit-learn's mixins are bases of this class since `set_output` wraps `transform`
    only where a subclass of theirs defines it.

    A subclass names its other arrays by topic in `_by_topic`, and its objective in
    `_objective_name`.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def _check_common_parameters(self):
        """Check the parameters that all topic models have."""
        self._check_rounds()
        check_integer(self, "n_components", "n_init", "verbose_interval", least=1)
        check_integer(self, "max_iter", "annealing_iter", "verbose")
        check_integer(self, "batch_size", least=1, options=("auto",))
        check_real(self, "tol")
        check_real(self, "step_offset", above=True)
        check_real(self, "temperature", least=1.0)
        check_options(self, warm_start=(False, True))

    def _check_rounds(self):
        """Check the parameters of answers too, which may change after a fit."""
        check_integer(self, "max_doc_update_iter", least=1)
        check_real(self, "mean_change_tol")

    def _check_counts(self, X, sample_weight, reset):
        """Validate counts and weights; return both, and the dtype to compute in."""
        X = self._check_X(X, reset)
        return X, check_weight(sample_weight, X.shape[0]), self._dtype(X, reset)

    def _warn_of_fractions(self, X):
        """Warn of weights in place of counts, CSR, which the priors would drown."""
        if not X.nnz:
            return
        mean = X.data.mean(dtype=np.float64)
        tokens = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
        length = np.median(tokens[tokens > 0.0])
        if mean < LEAST_COUNT or length < 1.0 - 1e-6:
            warnings.warn(
                f"X looks like weights (TF-IDF, shares), not counts of words: its "
                f"entries are {mean:.2g} on average, and half of the documents have "
                f"at most {length:.2g} tokens. The priors of {type(self).__name__} are "
                "in counts and may outweigh them. Pass the counts (CountVectorizer), "
                "or scale X to the lengths of the documents.",
                FractionalCountsWarning,
                stacklevel=5,
            )

    def _check_X(self, X, reset):
        """Validate counts."""
        refuse_dask(X)
        refuse_text(X)
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=reset)
        check_non_negative(X, f"{type(self).__name__} (X must be word counts)")
        check_size_of_counts(X)
        return X

    def _dtype(self, X, reset=False):
        """Return the dtype to compute in: float32 is exact for counts."""
        if not reset:
            return self.components_.dtype
        return np.float32 if X.dtype.kind in "iub" or X.dtype == "f4" else np.float64

    def _given_topics(self, given, name, n_features):
        """Return topics to start from as float64.

        Raises
        ------
        ValueError
            If they have another shape, or are no distributions but for their scale.
        """
        try:
            given = np.asarray(given, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be an array of numbers.") from error
        shape = (self.n_components, n_features)
        if given.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {given.shape}.")
        sums = given.sum(axis=1)
        if not (np.isfinite(given).all() and given.min() >= 0.0 and sums.min() > 0.0):
            raise ValueError(
                f"{name} must be finite and not negative, with a positive entry in "
                "every row."
            )
        return given

    def _start_topics(self, n_features, warm):
        """Topics of the last fit or of the user, None where they are to be drawn."""
        if warm:
            return self._given_topics(
                self.components_, "the last fit's topics", n_features
            )
        if self.components_init is None:
            return None
        return self._given_topics(self.components_init, "components_init", n_features)

    def _check_stream(self):
        """Check that the topics of a stream are as many as before."""
        if len(self.components_) != self.n_components:
            raise ValueError(
                f"n_components={self.n_components}, but the model has "
                f"{len(self.components_)} topics: call fit."
            )

    def _topic_attributes(self, model, point):
        """Return the fitted attributes that the topics of a point give."""
        k = self.n_components
        shares = point.sums.totals[:k]
        total = shares.sum()
        return {
            "components_": np.ascontiguousarray(model.parameters(point).topics.T[:k]),
            "topic_shares_": shares / total if total > 0.0 else shares,
            "_sums": np.ascontiguousarray(point.sums.toarray()[:, :k]),
        }

    def _skip_batch(self, first, **counters):
        """Count a batch without a word, which says nothing about topics.

        Where it would be the first, the stream has not begun yet.
        """
        if first:
            for name in ("n_features_in_", "feature_names_in_"):
                vars(self).pop(name, None)
        else:
            vars(self).update(counters, n_iter_=getattr(self, "n_iter_", 0) + 1)
        return self

    def inverse_transform(self, X):
        r"""Return the word probabilities of documents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Shares of the topics, as :meth:`transform` returns them.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_features)
            :math:`\sum_k \theta_{dk} p(v | k)`; times a document's length, the
            expected counts.
        """
        check_is_fitted(self)
        refuse_dask(X)
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are {len(self.components_)} "
                "topics."
            )
        return X @ (self.components_ / self.components_.sum(axis=1, keepdims=True))

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
        for name in ("components_", "topic_shares_", *self._by_topic):
            value = getattr(self, name)
            if np.ndim(value):
                setattr(self, name, value[order])
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
        objective = getattr(self, self._objective_name)
        facts = {
            self._objective_name.rstrip("_"): objective,
            "solver": self.solver_,
            "converged": self.converged_,
        }
        # Of the starts before the last step, which may have gained a little more.
        best = np.nanmax(getattr(self, "init_scores_", objective))
        facts |= fit_facts(self, best)
        index = [f"topic {k}" for k in range(len(words))]
        return summary_table(columns, index, facts)
