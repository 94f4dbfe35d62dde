"""The scikit-learn shell of LDA: parameters, fit, partial_fit."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.topics._documents import open_documents
from skvrem.topics.lda._inference import (
    LDAInference,
    check_doc_prior,
    check_word_prior,
    perplexity_of,
    perplexity_stop,
)
from skvrem.topics.lda._model import LDAModel
from skvrem.topics.lda._model_local import LocallyTemperedLDAModel
from skvrem.topics.lda._tempering import learned_temperature
from skvrem.utils._base import VersionedPickle
from skvrem.utils._parallel import threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_annealing_too_long,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    all_or_nothing,
    check_aliases,
    check_integer,
    check_options,
    check_real,
)

__all__ = ["TemperedLDA"]

# From so many minibatches on "auto" makes use of them, and from so many epochs on by
# "svrg", whose epochs cost two passes.
FEWEST_BLOCKS, FEWEST_EPOCHS = 8, 4
# Minibatches of "svrg", and its step times their number.
BLOCKS, BLOCK_DOCUMENTS, STEPS_AN_EPOCH = 20, 64, 7.0
DEFAULT_DECAY, DEFAULT_OFFSET, DEFAULT_BATCH = 0.7, 10.0, 128
# Measured on three corpora (python benchmarks/papers/tempering_lda.py): hotter, topics
# are all the same.
DEFAULT_TEMPERATURE, DEFAULT_ANNEALING = 1.3, 5
METHODS = {"batch": "batch", "online": "stochastic"}
ALIASES = {
    "learning_method": "solver",
    "learning_decay": "step_decay",
    "learning_offset": "step_offset",
}


class TemperedLDA(
    LDAInference,
    ClassNamePrefixFeaturesOutMixin,
    CallbackSupportMixin,
    VersionedPickle,
    TransformerMixin,
    BaseEstimator,
):
    r"""Latent Dirichlet allocation by annealed and tempered variational inference.

    A drop-in for :class:`sklearn.decomposition.LatentDirichletAllocation`: the same
    parameters, attributes and methods, with passes several times as fast.

    A token of document d is word v with probability
    :math:`\sum_k \theta_{dk} \beta_{kv}`, where the documents' shares
    :math:`\theta_d` and the topics :math:`\beta_k` have Dirichlet priors, over which a
    factorised posterior integrates.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    doc_topic_prior : float or array-like of shape (n_components,), default=None
        Dirichlet prior of the documents' shares, any positive numbers; None for
        1 / n_components. In :class:`VRPLSA` the prior is Dirichlet(1 + a): a model
        with ``a`` there has ``doc_topic_prior=1 + a`` here.
    topic_word_prior : float or array-like, default=None
        Dirichlet prior of the topics, any positive numbers; None for
        1 / n_components. An array of shape (n_components, n_features) gives topics
        their own words, see :func:`skvrem.text.seed_prior`.
    solver : {"auto", "batch", "stochastic", "svrg"}, default="auto"
        How the mean of the topics' statistics is estimated. "batch" is variational
        EM; "stochastic" is stochastic variational inference [2]_; "svrg" is its
        variance-reduced form; "auto" is "batch" for fewer than 8 minibatches, then
        "svrg" where `max_iter` is at least 4, else "stochastic" (as it is where
        `step_decay` or `step_offset` is given, or `tempering` is "local").
    step_size : float, default="auto"
        For "svrg" the constant step, "auto" is 7 / n_batches, at most 1; for
        "stochastic" and `partial_fit` the factor of the decreasing step, "auto" is 1.
    step_decay, step_offset : float, default=0.7, 10.0
        Step t of "stochastic" is
        ``step_size * (t + step_offset) ** -step_decay``, at most 1.
    batch_size : int, default="auto"
        Documents a minibatch; "auto" is 128, and for "svrg" makes 20 minibatches of
        at least 64.
    max_iter : int, default=100
        Epochs: passes for "batch", passes over the minibatches for the others.
    tol : float, default=1e-4
        Converged when less is left to gain, in nats a token, as the gains of the last
        epochs tell; 0 makes `max_iter` epochs, without a warning. A "stochastic" epoch
        has no exact objective: the gains of a few are added up.
    mean_change_tol : float, default=1e-3
        The rounds on a document end when one changes the parameters of its shares by
        less than this a topic.
    max_doc_update_iter : int, default=100
        Most rounds on a document.
    total_samples : float, default=None
        Documents of the stream that `partial_fit` is to count; None for those seen so
        far.
    tempering : {"auto", None, "annealed", "global", "local"}, default="auto"
        None is the temperature 1. "annealed" starts hotter (annealed variational
        inference, [1]_): posteriors depend less on a start that knows nothing.
        "global" learns one temperature, "local" one of each document, of which none
        is colder than an annealed one. All end at 1 but those of documents, which are
        in ``doc_temperature_``. "auto" is "annealed" for at most half of the epochs,
        and None for "batch", which few documents are fitted by, as the twin is.
    temperature : float, default=1.3
        Temperature at the start; it falls linearly to 1.
    annealing_iter : int, default=5
        Epochs until the temperature is 1; for "global", about.
    n_init : int, default=1
        Starts, of which the best is kept; see ``init_scores_``.
    components_init : array-like of shape (n_components, n_features), default=None
        Pseudo-counts to start from, in place of random ones, as `components_` has them.
    warm_start : bool, default=False
        Start from the topics of the last fit.
    evaluate_every : int, default=-1
        Every so many epochs `perp_tol` is looked at; not at all if not positive.
    perp_tol : float, default=0.1
        A fit ends when the perplexity changes by less from one look to the next.
    learning_method : {"batch", "online"}, default=None
        Name of `solver` in scikit-learn; "online" is "stochastic".
    learning_decay, learning_offset : float, default=None
        Names of `step_decay` and `step_offset` in scikit-learn.
    n_jobs : int, default=None
        Threads; None is all cores, or one inside a joblib or dask worker. The result
        does not depend on it.
    verbose : int, default=0
        1: a progress bar, or lines for the first epoch, every `verbose_interval`-th and
        the last; 2: every epoch.
    verbose_interval : int, default=1
        Epochs between two lines.
    random_state : int, RandomState instance or None, default=None
        Seeds the start and the minibatches.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Parameters of the topics' posterior: the prior and the expected counts of words
        from topics. Rows divided by their sums are the topics' probabilities. float32
        for counts of an integer type or float32, else float64.
    exp_dirichlet_component_ : ndarray of shape (n_components, n_features)
        Exponential of the expected log topics.
    topic_shares_ : ndarray of shape (n_components,)
        Share of the tokens that each topic explains.
    lower_bound_ : float
        Bound of the log-likelihood of the training data at temperature 1, in nats a
        token; after `partial_fit` that of the last batch.
    bound_ : float
        Perplexity of the training data by that bound, ``exp(-lower_bound_)``.
    doc_temperature_ : ndarray of shape (n_samples,)
        Temperatures of the documents, for ``tempering="local"``: the less a document
        is like what its topics would write, the hotter.
    doc_topic_prior_ : ndarray of shape (n_components,)
        The prior used.
    topic_word_prior_ : float or ndarray of shape (n_components, n_features)
        The prior used.
    n_iter_ : int
        Epochs made; batches seen, on a stream.
    n_batch_iter_ : int
        One more than the minibatches visited; numbers the steps of `partial_fit`.
    converged_ : bool
        Whether an epoch gained less than `tol`.
    history_ : dict of ndarrays
        By epoch: "passes", "seconds", "objective" (the tempered bound), "step_size",
        "temperature".
    init_scores_ : ndarray of shape (n_init,)
        Bound that each start reached.
    solver_, step_size_, batch_size_ : str, float, int
        What was used.
    n_tokens_seen_ : float
        Tokens seen, each as its document's weight.
    n_documents_seen_ : int
        Documents seen.
    random_state_ : RandomState instance
        The generator used.
    n_features_in_ : int
        Size of the vocabulary.
    feature_names_in_ : ndarray of shape (n_features,)
        Words, where X had column names.

    See Also
    --------
    VRPLSA : The posterior's mode in place of the posterior: faster, and often as good.
    sklearn.decomposition.LatentDirichletAllocation : The twin.

    Notes
    -----
    What differs from the twin: `solver="auto"` takes minibatches where the documents
    are many (the twin's default is "batch"), and anneals there; `total_samples` is
    inferred; priors may be arrays and larger than 1; the divergence of the topics from
    their prior, a cost of the training data, is shared among its tokens, while the twin
    charges it whole to whatever documents `score` and `perplexity` are given.

    A minibatch costs its nonzeros times `n_components` and the rounds, whatever the
    vocabulary. Memory beyond X: a few arrays like the topics, 12 bytes a nonzero.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering.
       AISTATS.
    .. [2] Hoffman, Blei, Wang, Paisley (2013). Stochastic variational inference. JMLR.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from skvrem import TemperedLDA
    >>> from skvrem.text import top_words
    >>> texts = ["sun rain wind sun rain", "goal ball team goal ball"] * 10
    >>> vectorizer = CountVectorizer().fit(texts)
    >>> lda = TemperedLDA(2, random_state=0).fit(vectorizer.transform(texts))
    >>> sorted(sorted(words) for words in top_words(lda, vectorizer, n=2))
    [['ball', 'goal'], ['rain', 'sun']]
    >>> lda.transform(vectorizer.transform(["rain and wind"])).shape
    (1, 2)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: float | ArrayLike | None = None,
        topic_word_prior: float | ArrayLike | None = None,
        solver: Literal["auto", "batch", "stochastic", "svrg"] = "auto",
        step_size: float | Literal["auto"] = "auto",
        step_decay: float = DEFAULT_DECAY,
        step_offset: float = DEFAULT_OFFSET,
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        mean_change_tol: float = 1e-3,
        max_doc_update_iter: int = 100,
        total_samples: float | None = None,
        tempering: Literal["auto", "annealed", "global", "local"] | None = "auto",
        temperature: float = DEFAULT_TEMPERATURE,
        annealing_iter: int = DEFAULT_ANNEALING,
        n_init: int = 1,
        components_init: ArrayLike | None = None,
        warm_start: bool = False,
        evaluate_every: int = -1,
        perp_tol: float = 0.1,
        learning_method: Literal["batch", "online"] | None = None,
        learning_decay: float | None = None,
        learning_offset: float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        verbose_interval: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.solver = solver
        self.step_size = step_size
        self.step_decay = step_decay
        self.step_offset = step_offset
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.mean_change_tol = mean_change_tol
        self.max_doc_update_iter = max_doc_update_iter
        self.total_samples = total_samples
        self.tempering = tempering
        self.temperature = temperature
        self.annealing_iter = annealing_iter
        self.n_init = n_init
        self.components_init = components_init
        self.warm_start = warm_start
        self.evaluate_every = evaluate_every
        self.perp_tol = perp_tol
        self.learning_method = learning_method
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.random_state = random_state

    def _check_parameters(self):
        self._check_common_parameters()
        check_options(self, solver=solvers.names_for(LDAModel))
        check_integer(self, "evaluate_every", least=-(2**31))
        check_real(self, "perp_tol")
        check_real(self, "total_samples", above=True, options=(None,))
        check_real(self, "step_size", above=True, options=("auto",))
        check_real(self, "step_decay", most=1.0)
        check_real(self, "learning_decay", most=1.0, options=(None,))
        check_real(self, "learning_offset", above=True, options=(None,))
        check_options(
            self,
            tempering=("auto", None, "annealed", "global", "local"),
            learning_method=(None, *METHODS),
        )
        check_aliases(self, ALIASES)
        certifies = getattr(solvers.BY_NAME.get(self.solver), "certifies", False)
        if self.tempering == "local" and certifies:
            raise ValueError(
                "tempering='local' goes with solver='stochastic' or 'batch': the "
                "documents' own temperatures change the objective between epochs, "
                f"and solver={self.solver!r} goes by it."
            )
        warn_annealing_too_long(self)

    def fit(self, X, y=None, sample_weight=None):
        """Find the topics of documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts, integers or not, but no TF-IDF: priors are counts.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Documents count so many times for the topics.

        Returns
        -------
        self : TemperedLDA
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range, counts that are negative, NaN or infinite, or
            a matrix without any. The estimator is then as it was before.

        Warns
        -----
        FractionalCountsWarning
            If X looks like weights, as TF-IDF: priors are counts.
        ConvergenceWarning
            If `tol` is positive and `max_iter` epochs were not enough.
        """
        with all_or_nothing(self), threads(self.n_jobs):
            self._check_parameters()
            self._fit(X, y, sample_weight)
        return self

    @property
    def _decay(self):
        """Offset and decay of decreasing steps."""
        offset, decay = self.learning_offset, self.learning_decay
        offset = self.step_offset if offset is None else offset
        return offset, self.step_decay if decay is None else decay

    def _plan(self, n_documents):
        """Choose solver, blocks and step."""
        solver = METHODS.get(self.learning_method, self.solver)
        offset, decay = self._decay
        size = DEFAULT_BATCH if self.batch_size == "auto" else self.batch_size
        if solver == "auto":
            solver = "batch"
            if n_documents >= FEWEST_BLOCKS * size:
                reduced = self.max_iter >= FEWEST_EPOCHS and self.tempering != "local"
                decreasing = (offset, decay) != (DEFAULT_OFFSET, DEFAULT_DECAY)
                solver = "svrg" if reduced and not decreasing else "stochastic"
        reduced = solvers.reduces_variance(solver)
        if reduced and self.batch_size == "auto":
            n_blocks = max(1, min(BLOCKS, n_documents // BLOCK_DOCUMENTS))
            size = n_documents / n_blocks
        step_size = self.step_size
        if step_size == "auto":
            step_size = min(1.0, STEPS_AN_EPOCH * size / n_documents)
            step_size = step_size if reduced else 1.0
        return solvers.plan_em(
            n_documents,
            1,
            solver=solver,
            step_size=step_size,
            batch_size=size,
            step_decay=decay,
            step_offset=offset,
        )

    def _temperature(self, tempering, length, model, data, rng):
        if tempering is None:
            return schedules.Constant(1.0)
        if tempering == "global":
            return learned_temperature(model, data, length, rng)
        return schedules.Linear(self.temperature, length)

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        data = open_documents(*self._check_counts(X, sample_weight, reset=True))
        self._warn_of_fractions(data.X)
        plan = self._plan(data.n_units)
        doc_prior, word_prior = self._priors(data.n_features)
        tempering = self.tempering
        length = self.annealing_iter
        if tempering == "auto":
            tempering = None if plan.name == "batch" else "annealed"
            length = min(length, self.max_iter // 2)
        kind = LocallyTemperedLDAModel if self.tempering == "local" else LDAModel
        warm = self.warm_start and hasattr(self, "components_")
        given = self._start_topics(data.n_features, warm)
        n_init = 1 if given is not None else self.n_init
        # What answers to documents need beside the topics; callbacks ask mid-fit.
        constants = {
            "doc_topic_prior_": doc_prior,
            "topic_word_prior_": word_prior[()],
            "n_tokens_seen_": data.total_weight,
            "n_documents_seen_": data.n_weighted,
        }

        def start(rng):
            model = kind(
                doc_prior,
                word_prior,
                data.total_weight,
                data.dtype,
                self.max_doc_update_iter,
                self.mean_change_tol,
            )
            topics = (
                self._random_topics(data, rng, word_prior) if given is None else given
            )
            return solvers.Start(
                model,
                model.start((topics.T,)),
                lambda point: (
                    self._topic_attributes(model, model.recentre(point)) | constants
                ),
                temperature=self._temperature(tempering, length, model, data, rng),
            )

        random_state = check_random_state(self.random_state)
        with Progress(self, X, y, n_init) as progress:
            best, attributes = solvers.run_starts(
                start,
                n_init,
                plan=plan,
                data=data,
                progress=progress,
                random_state=random_state,
                max_iter=self.max_iter,
                tol=self.tol,
                stop=perplexity_stop(self.evaluate_every, self.perp_tol),
            )
        warn_not_converged(self, best, "token")
        steps = 1 if plan.name == "batch" else plan.n_blocks
        vars(self).update(
            attributes,
            n_batch_iter_=1 + best.n_iter * steps,
            random_state_=random_state,
        )
        vars(self).pop("doc_temperature_", None)
        vars(self).update(self._of_training_data(data))

    def _priors(self, n_features):
        """Validate the priors of shares and topics."""
        k = self.n_components
        return (
            check_doc_prior(self.doc_topic_prior, k),
            check_word_prior(self.topic_word_prior, k, n_features),
        )

    def _random_topics(self, data, rng, word_prior):
        # Parameters near 1, as scikit-learn's: they are forgotten after a few steps.
        topics = rng.gamma(100.0, 0.01, (self.n_components, data.n_features))
        return topics + (word_prior - word_prior.min())  # what seeds have more

    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the topics with one batch of a stream of documents.

        One step of stochastic variational inference at temperature 1. The topics'
        statistics move by ``step_size * (t + step_offset) ** -step_decay`` towards
        those of the batch, where t is the number of batches seen, and count as much as
        `total_samples` documents, by default all seen so far. Goes on from a `fit`,
        with its priors.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts of the batch, over the same vocabulary each time. A batch of
            empty documents leaves the topics as they are.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Documents count so many times for the topics.

        Returns
        -------
        self : TemperedLDA
            The fitted model.

        Raises
        ------
        ValueError
            As `fit`, or for another number of words or topics than before.
        """
        first = not hasattr(self, "components_")
        with all_or_nothing(self), threads(self.n_jobs):
            self._check_parameters()
            counts = self._check_counts(X, sample_weight, reset=first)
            data = open_documents(*counts, empty=True)
            if not first:
                self._check_stream()
            if data.total_weight == 0.0:
                return self._skip_batch(
                    first,
                    n_batch_iter_=getattr(self, "n_batch_iter_", 1) + 1,
                    n_documents_seen_=getattr(self, "n_documents_seen_", 0)
                    + data.n_weighted,
                )
            if first:
                self._warn_of_fractions(data.X)
            doc_prior, word_prior = self._priors(data.n_features)
            if not first:  # in the order of the topics, which may have been relabelled
                doc_prior = self.doc_topic_prior_
                word_prior = np.asarray(self.topic_word_prior_)
            tokens, documents = data.total_weight, data.n_weighted
            seen = 0.0 if first else self.n_tokens_seen_
            documents += 0 if first else self.n_documents_seen_
            mass = seen + tokens
            if self.total_samples is not None:
                mass *= self.total_samples / documents
            model = LDAModel(
                doc_prior,
                word_prior,
                mass,
                data.dtype,
                self.max_doc_update_iter,
                self.mean_change_tol,
            )
            if first:
                random_state = check_random_state(self.random_state)
                seed = random_state.randint(2**31 - 1)
                topics = self._start_topics(data.n_features, False)
                if topics is None:
                    topics = self._random_topics(
                        data, np.random.default_rng(seed), word_prior
                    )
                self.random_state_ = random_state
                point = model.start((topics.T,))
            else:
                point = model.resume(self._sums)
            n_batches = 0 if first else self.n_batch_iter_ - 1
            offset, decay = self._decay
            step = solvers.stream_step(
                model,
                point,
                data,
                n_batches,
                step_size=self.step_size,
                step_offset=offset,
                step_decay=decay,
            )
            point = model.recentre(step.point)
            lower_bound = model.objective(point, step.mean)
            found = self._topic_attributes(model, point) | {
                "lower_bound_": lower_bound,
                "bound_": perplexity_of(lower_bound),
                "n_batch_iter_": n_batches + 2,
                "n_documents_seen_": documents,
                "n_tokens_seen_": seen + tokens,
                "doc_topic_prior_": doc_prior,
                "topic_word_prior_": word_prior[()],
            }
            step.record(self, found, data.n_units, past=("doc_temperature_",))
        return self
