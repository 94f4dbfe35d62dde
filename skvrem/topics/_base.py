"""The scikit-learn shell of topic models: counts in, topics out."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import solvers
from skvrem.data import of_dask, streamed
from skvrem.text._topics import (
    check_names,
    with_tokens,
)
from skvrem.text._words import top_words
from skvrem.topics._input import open_counts
from skvrem.topics._model_arrays import places
from skvrem.topics._number import BATCH_FACTOR, TOL_TO_THE_END, find_number
from skvrem.topics._stream import STEP_TOKENS, begin, meet_words
from skvrem.utils._base import (
    ComponentsMixin,
    VersionedPickle,
    fit_facts,
    summary_table,
)
from skvrem.utils._columns import MatrixLike
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_annealing_too_long,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    all_or_nothing,
    check_em,
    check_given,
    check_integer,
    check_order,
    check_real,
)

# Starts of "auto" where an epoch is short, of so many nonzeros times topics at most,
# and what each is worth before all but one are dropped: tenths of a second a fit, of
# objectives .01 to .02 nats a token apart (``benchmarks run starts/topics``).
STARTS, MOST_WORK, RACE_WORK = 4, 2_000_000, 10_000_000
# Mean of the counts that are not zero from which documents are scattered over topics in
# place of tokens, and the parameter of the Dirichlet that their topics have then.
MANY_TOKENS, FEW_TOPICS = 100.0, 0.1
# What topics that begin as documents have of the mean of all: a word that is in none of
# them stays possible.
MEAN_SHARE = 0.1
NOT_NEGATIVE = (
    "not negative. It is added to expected counts: the prior is Dirichlet(1 + {0}), so "
    "of a Dirichlet(a) pass a - 1."
)


def scattered(n_topics, data, rng):
    """Return counts of words by topic, of tokens that are scattered over topics.

    A start that knows nothing, far from the plateau of equal topics: every token is at
    a topic of its own. Where counts are large, and what so many tokens leave of chance
    is nothing, every document is, but for what a Dirichlet gives to others.
    """
    if not data.remote and data.mean_count >= MANY_TOKENS:
        shares = rng.dirichlet(np.full(n_topics, FEW_TOPICS), data.n_units)
        if data.weight.size:
            shares *= data.weight[:, None]
        return np.asarray(data.X.T @ shares, np.float64).T
    tokens = data.word_totals
    n = np.maximum(np.rint(tokens), 1.0)
    draws = rng.multinomial(n.astype(np.int64), np.full(n_topics, 1.0 / n_topics))
    return (draws * (tokens / n)[:, None]).T


def documents_as_topics(n_topics, data, rng):
    """Return an iterator of topics to begin with, None where documents differ enough.

    Random topics are the same mixture of alike documents each. A pass of EM leaves that
    saddle by factors of 1 + rho^2 of a canonical correlation rho of documents and
    words, here so slowly that it looks like convergence.
    """
    if not data.alike:
        return None
    mass = data.lengths
    if data.weight.size:
        mass = mass * data.weight
    if np.count_nonzero(mass) < n_topics:
        return None
    some = rng.choice(data.n_units, n_topics, replace=False, p=mass / mass.sum())
    mean = MEAN_SHARE * data.word_totals / data.total_weight
    rest = (1.0 - MEAN_SHARE) / data.lengths[some]
    rows = zip(some, rest, strict=True)
    return (mean + data.X[[i]].toarray()[0] * share for i, share in rows)


class TopicModel(ComponentsMixin, CallbackSupportMixin, VersionedPickle, BaseEstimator):
    """Estimator of topics with ``components_``, ``topic_shares_`` and ``_sums``.

    A subclass has its model class (`_model`), the names of its two priors (`_priors`),
    whether they must be positive, what that of words is by default (`_word_default`),
    the names of the parameters that end the rounds on a document (`_rounds`), and
    how many starts of "auto" race and up to which word counts times topics (`_racing`,
    of the number of documents), for how many epochs at least (`_race_epochs`), and in
    how many parts a search of their number holds out few documents (`_search_parts`),
    which are fitted with the parameters that all of them would be (`_as_of`). It makes
    a plan from the number of documents and whether topics are random (`_plan`), draws
    topics (`_random_topics`), makes a temperature of a start by how many are to come
    and whether its topics are known (`_temperature`), and counts batches
    (`_count_batch`, which returns how many of this size there have been, the tokens
    that the topics are learned from, and fitted attributes).
    """

    _learns = False  # priors, where they are "learn"
    _word_default = None  # as that of the shares, 1 / n_components
    _of_a_fit = ()  # attributes that a stream does not keep
    _decay = None  # as the parameters say
    _remote = False  # of the last fit: where its documents lay

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _check_parameters(self, **ranges):
        check_em(self, solvers.names_for(self._model), **ranges)
        for name in self._priors if self.n_components == "auto" else ():
            if np.ndim(getattr(self, name)):
                raise ValueError(
                    f"{name} must be a number where n_components='auto', got an array."
                )
        self._check_rounds()
        warn_annealing_too_long(self)

    def _check_rounds(self):
        """Check the parameters of answers too, which may change after a fit."""
        check_integer(self, self._rounds[0], least=1)
        check_real(self, self._rounds[1])

    def _check_priors(self, n_features, data):
        """Return the priors of a document's shares and of the topics' words."""
        k, (doc_name, word_name) = self.n_components_, self._priors
        doc_prior = self._check_prior(doc_name, (k,), self._doc_default(data))
        default = self._word_default or 1.0 / k
        word_prior = self._check_prior(word_name, (k, n_features), default)
        return np.broadcast_to(doc_prior, k).copy(), word_prior

    def _doc_default(self, data):
        """Return the prior of the shares where none is given."""
        return 1.0 / self.n_components_

    def _check_prior(self, name, shape, default):
        """Return a prior as float64, a number or one for every entry.

        Raises
        ------
        ValueError
            If it has another shape, is infinite or NaN, negative, or zero where it
            must be positive.
        """
        prior = getattr(self, name)
        learned = isinstance(prior, str) and prior == "learn" and self._learns
        prior = np.asarray(default if prior is None or learned else prior)
        if prior.dtype.kind not in "fiu":
            also = " or 'learn'" if self._learns else ""
            raise ValueError(
                f"{name} must be numbers or None{also}, got {prior.dtype}."
            )
        if prior.ndim and prior.shape != shape:
            raise ValueError(
                f"{name} must be a number or an array of shape {shape}, got shape "
                f"{prior.shape}."
            )
        low = prior.min() <= 0.0 if self._positive else prior.min() < 0.0
        if low or not np.isfinite(prior).all():
            rule = "positive." if self._positive else NOT_NEGATIVE.format(name)
            raise ValueError(f"{name} must be finite and {rule}")
        return prior.astype(np.float64)

    def _fitted_priors(self):
        # In the order of the topics, which may have been relabelled.
        return tuple(np.asarray(getattr(self, f"{name}_")) for name in self._priors)

    def _given_topics(self, n_features, warm):
        """Topics of the last fit or of the user, None where they are to be drawn.

        Raises
        ------
        ValueError
            If they have another shape, or are no distributions but for their scale.
        """
        given, name = self.components_init, "components_init"
        if warm:
            given, name = self.components_, "the last fit's topics"
        if given is None:
            return None
        k = self.n_components
        k = len(given) if k == "auto" and np.ndim(given) == 2 else k
        given = check_given(given, name, (k, n_features))
        if not (given.min() >= 0.0 and given.sum(axis=1).min() > 0.0):
            raise ValueError(
                f"{name} must be finite and not negative, with a positive entry in "
                "every row."
            )
        return given

    def _search_topics(self, word_prior, data, rng):
        """Return random topics for a search of their number."""
        return self._random_topics(word_prior, data, rng)

    def _new_model(self, priors, mass, dtype, plan=None):
        """Return the model of a fit by a plan, or of a visit to documents."""
        rounds = (getattr(self, name) for name in self._rounds)
        return self._model(*priors, mass, dtype, *rounds)

    def _fitted_model(self):
        self._check_rounds()
        dtype = self.components_.dtype
        return self._new_model(self._fitted_priors(), self.n_tokens_seen_, dtype)

    def _refills(self, plan, data, known):
        """Whether shares that are best for the topics of a start are found first.

        A first pass by shares that know nothing would blur what topics know; "batch"
        is EM to the letter.
        """
        return known and plan.name != "batch"

    def _start(self, model, topics, data, stream=False):
        """Return the point of topics, word by word, where a fit or a stream begins."""
        return model.start((topics,))

    def _stop(self):
        """Return what may end a fit besides, see `solvers.run_starts`."""

    def fit(
        self, X: MatrixLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Find the topics of documents.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Word counts, integers or not, but no TF-IDF: priors are counts. Chunks of
            a dask array may be sparse; documents are evaluated where they lie.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Documents count so many times for the topics.

        Returns
        -------
        self : estimator
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, counts that are negative, NaN or infinite, a
            matrix without any, or fewer than 20 documents for ``n_components="auto"``.
            The estimator is then as it was before.

        Warns
        -----
        FractionalCountsWarning
            If X looks like weights, as TF-IDF: priors are counts.
        ConvergenceWarning
            If `tol` is positive and `max_iter` epochs were not enough, or if
            ``n_components="auto"`` has ended at the most topics that it tries (1,024,
            or as many as documents) while held-out documents still gained by more.
        CollapsedComponentWarning
            If topics of TemperedLDA are the same after a `temperature` of one's own.
        UserWarning
            If `annealing_iter` is more than `max_iter`.
        """
        with (
            all_or_nothing(self),
            solvers.checkpointed(self, X, sample_weight),
            places.reused(),
        ):
            self._fit(X, y, sample_weight)
        return self

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        self._check_remote(X)
        data = open_counts(self, X, sample_weight, first=True, empty=False)
        warm = self.warm_start and hasattr(self, "components_")
        own = solvers.of_rows(self, (X, sample_weight), "components_") if warm else None
        given, passes = self._given_topics(data.n_features, warm), 0.0
        random_state = check_random_state(self.random_state)
        for name in ("completion_path_", "_first_documents"):
            vars(self).pop(name, None)
        k, found = self.n_components if given is None else len(given), None
        if given is None and k == "auto":
            given, k, races, passes, path = self._find_number(data, random_state)
            self.completion_path_ = path
            if races:
                given, found = None, given
        self.n_components_ = k if isinstance(k, str) else int(k)
        n_init = self._n_starts(data, given) + (found is not None)
        with Progress(self, X, y, n_init) as progress:
            best, plan, own = self._fit_to(
                data, given, random_state, progress, passes, warm, own, found=found
            )
        warn_not_converged(self, best, "token")
        self._finish(data, best, plan, random_state)
        if own is not None:
            solvers.keep_of_rows(self, (X, sample_weight), "components_", own)
        if self.n_components == "auto":
            alive = with_tokens(self.topic_shares_, data.total_weight)
            self._take(alive)
            self.n_components_ = len(alive)

    def _n_starts(self, data, given):
        """Return how many starts there are: of "auto" several where a fit is short."""
        if given is not None:
            return 1
        return self._n_random_starts(data, self.n_components_)

    def _n_random_starts(self, data, n_topics):
        """Return how many starts there are of so many random topics."""
        if self.n_init != "auto":
            return self.n_init
        n_starts, most_work = self._racing(data.n_units)
        return n_starts if data.n_nonzeros * n_topics <= most_work else 1

    def _as_of(self, n_documents):
        """Return parameters by which fewer documents are fitted as so many would be."""
        return {}

    def _racing(self, n_documents):
        return STARTS, MOST_WORK

    def _check_remote(self, X):
        """Remember whether documents lie elsewhere, and check that a fit can be made.

        Raises
        ------
        ValueError
            If parameters need them in memory.
        """
        self._remote = of_dask(X)
        if self._remote and self.n_components == "auto":
            raise ValueError(
                "n_components='auto' splits documents in memory: on a dask array give "
                "a number, as one found on some of the documents."
            )

    def _fit_to(
        self,
        data,
        given,
        random_state,
        progress,
        passes=0.0,
        warm=False,
        own=None,
        draw=None,
        found=None,
    ):
        """Find so many topics as `n_components_` says, and set what is found.

        Without given topics `draw` is what draws them, by default `_random_topics`,
        but for those of the first start, where some are `found`: it goes to its end.
        `own` is what the last fit has found of the same documents.

        Returns
        -------
        best : Result
        plan : Plan
        own : Any
            What it has found of the documents, None where that is nothing.
        """
        draw = self._random_topics if draw is None else draw
        priors = self._check_priors(data.n_features, data)
        plan = self._plan(data.n_units, given is None)
        if self.n_init == "auto" and progress.n_init > 1:
            work = max(1, data.n_nonzeros * self.n_components_)
            plan = plan.racing(max(self._race_epochs, RACE_WORK // work))
        constants = self._constants(priors, data, warm)
        left = iter(range(progress.n_init - 1, -1, -1))

        def start(rng):
            model = self._new_model(priors, data.total_weight, data.dtype, plan)
            n_left = next(left)
            first = found is not None and n_left == progress.n_init - 1
            topics = found if first else given
            known = topics is not None
            if topics is None:
                topics = draw(priors[1], data, rng)
            point, extra = self._start(model, topics.T, data), 0.0
            refilled = warm or self._refills(plan, data, known)
            if own is not None:
                point = model.gone_on(self._sums, own)
            elif refilled and hasattr(model, "refill"):
                point, extra = model.refill(point, data)
            return solvers.Start(
                model,
                point,
                lambda point, objective: self._attributes(
                    model, model.recentre(point), constants
                ),
                passes=passes + extra,
                temperature=self._temperature(plan, model, data, rng, n_left, known),
                apart=first,
            )

        best, attributes = solvers.run_starts(
            self, start, plan, data, progress, random_state, self._stop()
        )
        vars(self).update(attributes)
        model = self._new_model(priors, data.total_weight, data.dtype, plan)
        keeps = hasattr(model, "pack") and not self._remote
        return best, plan, model.pack(best.point).own if keeps else None

    def _find_number(self, data, random_state):
        """Return topics for a fit to begin with, as many as documents need."""
        seed = random_state.randint(2**31 - 1)
        plain = {"tol": 0.0, "n_init": 1, "verbose": 0, "tempering": None}
        params = self.get_params(deep=False) | plain | self._as_of(data.n_weighted)

        def fit(part, n_topics, n_epochs, given):
            if n_epochs is None:
                tol = max(self.tol, TOL_TO_THE_END)
                ends = {"tol": tol, "tempering": self.tempering}
            else:
                ends = {"max_iter": min(n_epochs, self.max_iter)}
            trial = type(self)(**params | ends)
            trial.n_components_, trial.n_features_in_ = n_topics, part.n_features
            rng = np.random.RandomState(seed)
            # No checkpoint follows it, but keeps what has been found.
            with (
                solvers.checkpointed(trial),
                Progress(trial, None, None, 1) as progress,
            ):
                trial._fit_to(part, given, rng, progress, draw=trial._search_topics)
            return trial

        def race(n_topics):
            return self._n_random_starts(data, n_topics) > 1

        batch = self._plan(data.n_units, True).name == "batch"
        factor, races = BATCH_FACTOR if batch else 1, None
        if self._search_parts == 1:
            races = race
        rng = np.random.default_rng(random_state.randint(2**31 - 1))
        return solvers.remembered(
            "topics",
            lambda: find_number(fit, data, rng, factor, self._search_parts, races),
            rng,
        )

    def _constants(self, priors, data, warm):
        """Return what answers need beside the topics; callbacks ask mid-fit."""
        own = zip(self._priors, priors, strict=True)
        known = {f"{name}_": prior[()] for name, prior in own}
        count = {"n_components_": self.n_components_}
        return known | count | {"n_tokens_seen_": data.total_weight}

    def _finish(self, data, best, plan, random_state):
        """Set what else is known after a fit."""

    def _attributes(self, model, point, constants):
        """Return the fitted attributes that a point gives, and constants."""
        k = model.n_components
        shares = point.sums.totals[:k]
        return constants | {
            "components_": model.components(point),
            "topic_shares_": shares / (shares.sum() or 1.0),
            "_sums": np.ascontiguousarray(point.sums.toarray()[:, :k]),
        }

    @streamed
    def partial_fit(
        self, X: MatrixLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Update the topics with one batch of a stream of documents.

        A stream that begins without topics keeps its first documents, 10,000 of them or
        2 million counts that are not zero (1,000 documents where `step_size` is
        given). They are fitted from random topics, by 15 epochs, when there are 1.05
        times as many and all these fits are worth no more than 60 passes over them: at
        each of the first batches, then when there are a third more. So batches may be
        of any size from the first on, and come sorted; topics keep their numbers.
        Between fits the counts of a batch are added.

        After them, from a `fit`, whose priors stay, or from `components_init` it makes
        a step of stochastic EM (SCVB0), or of stochastic variational inference, at
        temperature 1: the shares of the documents are found as `transform` finds them,
        and the topics' statistics move by
        ``step_size * (t + step_offset) ** -step_decay`` towards those of the batch.
        Such a step is of 100,000 tokens, or of as many as were seen before or the batch
        has, and t is the number of tokens seen in these; a smaller batch makes its
        share of a step. By mean field a step is of any batch, and t their number.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts of the batch, over the same vocabulary each time. A frame may
            name new words, beside all known ones: they begin at the prior (of an array,
            at the topic's least), and ``feature_names_in_`` is as in X from then on. A
            batch of empty documents leaves the topics as they are, and its new words
            out.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Documents count so many times for the topics.

        Returns
        -------
        self : estimator
            The fitted model.

        Raises
        ------
        ValueError
            As `fit`, for another number of topics than before, or
            ``n_components="auto"`` before `fit`; for another number of words, if they
            have no names, or known ones are missing.
        """
        first = not hasattr(self, "components_")
        with all_or_nothing(self):
            before = {} if first else meet_words(self, X)
            data = open_counts(self, X, sample_weight, first)
            self._check_number(first)
            seen = 0.0 if first else self.n_tokens_seen_
            # Seeding takes as long as a visit to a few documents.
            random_state = check_random_state(self.random_state) if first else None
            count, mass, counters = self._count_batch(first, seen, data, random_state)
            tokens = size = data.total_weight
            if tokens == 0.0:
                return self._skip_batch(first, before | counters)
            n_words = data.n_features if first else self._n_words_of_prior()
            priors, topics = self._check_priors(n_words, data), None
            known, kept = self, vars(self).get("_first_documents")
            if first:
                topics = self._given_topics(data.n_features, False)
            decay = self._decay
            if kept is not None or (first and topics is None):
                known, kept = begin(self, data)
                # Their counts are added, unless they have been fitted.
                scale = 1.0 if self.step_size == "auto" else self.step_size
                added = scale * (1.0 + seen / tokens)
                count, decay = added if known is self else math.inf, (0.0, 1.0)
            elif count is None:
                size = max(tokens, min(seen, STEP_TOKENS))
                count = seen / size
            if topics is None:
                priors = known._fitted_priors()
            model = self._new_model(priors, mass, data.dtype)
            if topics is None:
                point = model.resume(known._sums, data.n_units)
            else:
                point = self._start(model, topics.T, data, stream=True)
            how = {"decay": decay, "share": tokens / size}
            step = solvers.stream_step(self, model, point, data, count, **how)
            moved = model.recentre(step.point)
            constants = self._constants(priors, data, False) | counters
            constants["objective_"] = model.objective(point, step.mean)
            constants["n_tokens_seen_"] = seen + tokens
            found = self._attributes(model, moved, constants)
            found["_first_documents"] = kept
            for name in self._of_a_fit:
                vars(self).pop(name, None)
            step.record(self, found, data.n_units)
        return self

    def _n_words_of_prior(self):
        """Return how many words the prior may have: fewer, where new ones came."""
        prior, n_words = getattr(self, self._priors[1]), self.n_features_in_
        grows = np.ndim(prior) == 2 and hasattr(self, "feature_names_in_")
        return min(np.shape(prior)[1], n_words) if grows else n_words

    def _check_number(self, first):
        """Check that the number of topics is known, and that of the model."""
        if self.n_components == "auto":
            if first:
                raise ValueError(
                    "n_components='auto' needs all documents at once: call fit before "
                    "partial_fit, or give a number."
                )
        elif not first and len(self.components_) != self.n_components:
            raise ValueError(
                f"n_components={self.n_components}, but the model has "
                f"{len(self.components_)} topics: call fit."
            )
        k = self.n_components if first else len(self.components_)
        self.n_components_ = k

    def _skip_batch(self, first, counters):
        """Count a batch without a word, which says nothing about topics.

        Where it would be the first, the stream has not begun yet.
        """
        if first:
            for name in ("n_features_in_", "feature_names_in_", "n_components_"):
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
        topics = self.components_ / self.components_.sum(axis=1, keepdims=True)
        return self._mix(X, topics, "topics")

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
        self._take(check_order(order, len(self.components_)))
        return self

    def _take(self, order):
        """Keep these topics of every fitted array, in this order."""
        priors = (f"{name}_" for name in self._priors)
        for name in ("components_", "topic_shares_", *priors):
            value = getattr(self, name)
            if np.ndim(value):
                setattr(self, name, value[order])
        self._sums = self._sums[:, order]

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
            A row a topic that has tokens: its share of these and its most probable
            words. The frame's ``attrs`` hold objective, solver, convergence, passes,
            how many starts reached the best and how many topics have no tokens; the
            text ends with them.
        """
        check_is_fitted(self)
        alive = with_tokens(self.topic_shares_, self.n_tokens_seen_)
        names = check_names(feature_names, self.n_features_in_, self)
        words = top_words(self.components_[alive], names, n_words)
        columns = {
            "share": self.topic_shares_[alive],
            "words": [" ".join(map(str, row)) for row in words],
        }
        # Of the starts before the last step, which may have gained a little more.
        best = np.nanmax(getattr(self, "init_scores_", self.objective_))
        facts = {"objective": self.objective_} | fit_facts(self, best)
        n_topics = len(self.components_)
        if len(alive) < n_topics:
            facts["topics_without_tokens"] = n_topics - len(alive)
        index = [f"topic {k}" for k in alive]
        return summary_table(columns, index, facts)
