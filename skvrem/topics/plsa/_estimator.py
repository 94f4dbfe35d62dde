"""The scikit-learn shell of pLSA."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skvrem import schedules, solvers
from skvrem.data import lazily, of_dask, total_over_blocks
from skvrem.text import document_completion
from skvrem.text._likelihood import completion_sums
from skvrem.topics._base import TopicModel, documents_as_topics, scattered
from skvrem.topics._input import check_counts, new_documents
from skvrem.topics._model_arrays import padded_empty, places
from skvrem.topics.plsa._blocks import BlockPLSAModel
from skvrem.topics.plsa._model import PLSAModel
from skvrem.utils._columns import MatrixLike
from skvrem.utils._parallel import threads

# Chosen by the objective that is reached in the time of 60 batch passes: 20 minibatches
# of at least 64 documents, a step of 7 / n_blocks, 8 EM steps on a document a visit.
# The noise of a minibatch falls with the root of its documents: many allow more.
BLOCKS, BLOCK_DOCUMENTS, FEWEST_BLOCKS = 20, 64, 5
STEPS_AN_EPOCH, MANY_DOCUMENTS, DOC_STEPS = 7.0, 500, 8
# First epochs without an anchor: that of random topics is soon forgotten.
PILOT = 1
# Of every word, at the start of a search: EM cannot leave zero.
LEAST_TOKENS = 0.1
DEFAULT_TEMPERATURE, DEFAULT_ANNEALING = 1.35, 10
# Tokens a document up to which annealing gains; of longer ones some corpora lose by it.
SHORT = 128.0
# The least smoothing of shares, times tokens a document and the root of the topics: by
# less, shares fit few tokens too closely to foretell others, by much more, topics are
# alike. One constant for 5 to 50 tokens and 10 to 100 topics: half or twice of it is
# about as good.
SHORT_SMOOTHING = 8.0


class VRPLSA(TopicModel):
    r"""Probabilistic latent semantic analysis by variance-reduced EM.

    A token of document d is word v with probability
    :math:`\sum_k \theta_{dk} \varphi_{kv}`. Topics :math:`\varphi` and the documents'
    shares :math:`\theta` maximise the likelihood times Dirichlet priors (MAP).

    Parameters
    ----------
    n_components : int or "auto", default=10
        Number of topics. "auto" finds it by held-out documents: a tenth of them (200 to
        2,000, at most a quarter) is kept from fits with ever more topics, as many as
        documents and 1,024 at most, until it is no more likely, or a few if 16 are no
        better than one; then topics that it does not miss are merged or left out. As
        many random topics take the place of the merged ones where it is likelier by
        them, and race with them where it is hardly less so and `n_init` makes several
        starts. All documents are fitted last. It takes as long as some three fits with
        more topics than that, and 20 documents. Topics without tokens are dropped.
        Topics to start from (`components_init`, `warm_start`) give their own number.
    doc_topic_smoothing : float or array-like of shape (n_components,), default=None
        :math:`\alpha \ge 0`. None is 1 / n_components or, if that is more,
        8 / (length * sqrt(n_components)) with the mean length of the documents that are
        not empty, in tokens: the most likely shares fit few tokens too closely to
        foretell others. It is more for ten topics below 25 tokens, for a hundred below
        80. The prior of a document is Dirichlet(1 + alpha) here and Dirichlet(alpha) in
        latent Dirichlet allocation, whose prior ``a`` is ``doc_topic_smoothing=a - 1``
        here (for a of at least 1).
    topic_word_smoothing : float or array-like, default=None
        :math:`\beta \ge 0`, None for 0.1; an array of shape (n_components, n_features)
        gives topics their own words, see :func:`skvrem.text.seed_prior`. The prior of
        a topic is Dirichlet(1 + beta).
    solver : {"auto", "batch", "stochastic", "svrg"}, default="auto"
        How the mean of the topics' statistics is estimated. "batch" is EM;
        "stochastic" is stochastic EM (SCVB0), and "batch" from where that would end by
        `tol`; "svrg" is sEM-vr [1]_, with a first epoch of stochastic EM at the same
        step, as an anchor at random topics is soon forgotten; "auto" is "svrg" from 320
        documents on, "batch" below.
    step_size : float, default="auto"
        For "svrg" the constant step, at most 1: "auto" is 7 / n_batches, times the root
        of a minibatch's documents over 500 where there are more; a number of one's own
        has an anchor from the first epoch on. For "stochastic" and `partial_fit` the
        factor of the decreasing step, "auto" is 1.
    step_decay, step_offset : float, default=0.6, 2.0
        Step t of "stochastic" is
        ``step_size * (t + step_offset) ** -step_decay``, at most 1.
    batch_size : int, default="auto"
        Documents a minibatch; "auto" makes 20 minibatches of at least 64.
    inner_iter : int, default="auto"
        EM steps on a document's shares at a visit; "auto" is 1 for "batch", which is
        classical EM, and 8 for the others.
    max_iter : int, default=500
        Most epochs: passes for "batch", passes over the minibatches for the others.
    tol : float, default=1e-4
        Converged when less than this is left to gain, in nats a token, as the last
        gains tell.
    max_inner_iter : int, default=100
        Most EM steps on a new document, in `transform` and `partial_fit`.
    inner_tol : float, default=1e-3
        They end when a step changes the document's shares by less than this, in sum.
    tempering : {"auto", None, "annealed"}, default="auto"
        "annealed" starts the posteriors at a higher temperature (deterministic
        annealing), for a solution that depends less on the start; None is the
        temperature 1. "auto" anneals random topics where documents have at most 128
        tokens on average, as most starts of short ones end low, for at most half of the
        epochs.
    temperature : float, default=1.35
        Temperature at the start; it falls linearly to 1.
    annealing_iter : int, default=10
        Epochs until the temperature is 1.
    n_init : int or "auto", default="auto"
        Starts, of which the best is kept; see ``init_scores_``. "auto" makes four of
        short fits, whose word counts that are not zero times `n_components` are at most
        2e6: all go 50 epochs or more, and the best to its end. One start is made of
        longer fits, and with ``tempering="annealed"``.
    components_init : array-like of shape (n_components, n_features), default=None
        Topics to start from, in any scale, in place of random ones. The shares that
        are best for them are found first; of "batch" they are equal.
    warm_start : bool, default=False
        Start from the topics of the last fit and, where that was of the same X in this
        process, from the shares of its documents; else from those that are best.
    random_state : int, RandomState instance or None, default=None
        Seeds the start and the minibatches. Topics start as uniform draws or, where
        documents tell less than 0.02 nats a token from each other (their mutual
        information with words), as random documents with a tenth of the mean of all:
        random topics would all be the same mixture of these.
    n_jobs : int, default=None
        Threads; None is all cores, or one inside a joblib or dask worker. The result
        does not depend on it.
    verbose : int, default=0
        1: a progress bar, or lines for the first epoch, every `verbose_interval`-th and
        the last; 2: every epoch.
    verbose_interval : int, default=10
        Epochs between two lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Topics: probabilities of the words, rows sum to 1. (Pseudo-counts in latent
        Dirichlet allocation; dividing its rows by their sums gives these.) float32
        for counts of an integer type or float32, else float64.
    topic_shares_ : ndarray of shape (n_components,)
        Share of the tokens that each topic explains.
    n_components_ : int
        Number of topics.
    completion_path_ : dict of ndarrays
        Of n_components="auto": "n_components" and "completion", numbers of topics that
        were tried and the log-likelihood of held-out documents, one half given the
        other, in nats a token.
    objective_ : float
        What is maximised, in nats a token: log-likelihood and log priors, the latter
        up to constants; after `partial_fit` that of the last batch.
    doc_topic_smoothing_ : ndarray of shape (n_components,)
        The prior used.
    topic_word_smoothing_ : float or ndarray of shape (n_components, n_features)
        The prior used.
    n_iter_ : int
        Epochs made; batches seen, on a stream.
    converged_ : bool
        Whether less than `tol` was left to gain.
    history_ : dict of ndarrays
        By epoch: "passes", "seconds", "objective", "step_size", "temperature". The
        objective is that of the epoch's beginning, NaN at the first of stochastic EM.
    init_scores_ : ndarray of shape (n_init,)
        Objective that each start reached.
    init_epochs_ : ndarray of shape (n_init,)
        Epochs that each start made.
    solver_, step_size_, batch_size_ : str, float, int
        What was used.
    n_tokens_seen_ : float
        Tokens seen, each as its document's weight.
    n_features_in_ : int
        Size of the vocabulary.
    feature_names_in_ : ndarray of shape (n_features,)
        Words, where X had column names.

    See Also
    --------
    TemperedLDA : Integrates over shares and topics: better where documents are short,
        of fewer than some forty tokens, which a most likely share fits too closely.
    sklearn.decomposition.LatentDirichletAllocation : Does so by mean field.
    sklearn.decomposition.NMF : With the Kullback-Leibler loss, the same likelihood
        without priors.

    Notes
    -----
    The shares of a document are its own parameters, which no other document says
    anything about. A visit therefore takes whole EM steps on them, where Eq. 5 of [1]_,
    read literally, would scale their change by the number of minibatches and leave the
    simplex; the fixed points are the same. Under variance reduction a statistic can
    be negative for a while; what counts is then its projection to zero, from which the
    next epoch goes on.

    On a stream (`partial_fit`) the prior of the topics is shared among all tokens seen
    so far.

    A minibatch costs its nonzeros times `n_components`, whatever the vocabulary. Memory
    beyond X: three ("batch") or four arrays of the size of the topics, `n_components`
    rounded up to a multiple of 8, two of the shares, and up to 12 bytes a nonzero; 4
    where X is a CSR matrix whose parts are memory maps, which is read where it lies.

    References
    ----------
    .. [1] Chen, Zhu, Teh, Zhang (2018). Stochastic expectation maximization with
       variance reduction. NeurIPS.
    .. [2] Hofmann (1999). Probabilistic latent semantic indexing. SIGIR.
    .. [3] Foulds, Boyles, DuBois, Smyth, Welling (2013). Stochastic collapsed
       variational Bayesian inference for latent Dirichlet allocation. KDD.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from skvrem import VRPLSA
    >>> from skvrem.text import top_words
    >>> texts = ["sun rain wind sun rain", "goal ball team goal ball"] * 10
    >>> vectorizer = CountVectorizer().fit(texts)
    >>> plsa = VRPLSA(n_components=2, random_state=0).fit(vectorizer.transform(texts))
    >>> sorted(sorted(words) for words in top_words(plsa, vectorizer, n=2))
    [['ball', 'goal'], ['rain', 'sun']]
    >>> plsa.transform(vectorizer.transform(["rain and wind"])).shape
    (1, 2)
    """

    _model = PLSAModel
    _priors, _positive = ("doc_topic_smoothing", "topic_word_smoothing"), False
    _word_default = 0.1
    _rounds = ("max_inner_iter", "inner_tol")
    _race_epochs = 50  # it climbs slowly, and ranks change on the way
    _search_parts = 1  # topics that are not needed do not die, but overfit

    def __init__(
        self,
        n_components: int | Literal["auto"] = 10,
        *,
        doc_topic_smoothing: float | ArrayLike | None = None,
        topic_word_smoothing: float | ArrayLike | None = None,
        solver: Literal["auto", "batch", "stochastic", "svrg"] = "auto",
        step_size: float | Literal["auto"] = "auto",
        step_decay: float = 0.6,
        step_offset: float = 2.0,
        batch_size: int | Literal["auto"] = "auto",
        inner_iter: int | Literal["auto"] = "auto",
        max_iter: int = 500,
        tol: float = 1e-4,
        max_inner_iter: int = 100,
        inner_tol: float = 1e-3,
        tempering: Literal["auto", "annealed"] | None = "auto",
        temperature: float = DEFAULT_TEMPERATURE,
        annealing_iter: int = DEFAULT_ANNEALING,
        n_init: int | Literal["auto"] = "auto",
        components_init: ArrayLike | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.n_components = n_components
        self.doc_topic_smoothing = doc_topic_smoothing
        self.topic_word_smoothing = topic_word_smoothing
        self.solver = solver
        self.step_size = step_size
        self.step_decay = step_decay
        self.step_offset = step_offset
        self.batch_size = batch_size
        self.inner_iter = inner_iter
        self.max_iter = max_iter
        self.tol = tol
        self.max_inner_iter = max_inner_iter
        self.inner_tol = inner_tol
        self.tempering = tempering
        self.temperature = temperature
        self.annealing_iter = annealing_iter
        self.n_init = n_init
        self.components_init = components_init
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def _doc_default(self, data):
        k = self.n_components_
        return max(1.0 / k, SHORT_SMOOTHING / (data.mean_length * k**0.5))

    def _plan(self, n_documents, random):
        """Choose solver, blocks and step."""
        n_blocks = max(1, min(BLOCKS, n_documents // BLOCK_DOCUMENTS))
        batch_size = self.batch_size
        if batch_size == "auto":
            batch_size = n_documents / n_blocks
        n_blocks = max(1, round(n_documents / batch_size))
        solver = self.solver
        if solver == "auto":
            reduced = n_blocks >= FEWEST_BLOCKS and not self._remote
            solver = "svrg" if reduced else "batch"
        step_size = self.step_size
        pilot = PILOT if step_size == "auto" and random else 0
        if step_size == "auto":
            steps = STEPS_AN_EPOCH * max(1.0, (batch_size / MANY_DOCUMENTS) ** 0.5)
            reduced = solvers.reduces_variance(solver)
            step_size = min(1.0, steps / n_blocks) if reduced else 1.0
        chosen = {"solver": solver, "step_size": step_size, "batch_size": batch_size}
        return solvers.plan_em(self, n_documents, 1, pilot=pilot, **chosen)

    def _racing(self, n_documents):
        starts, most_work = super()._racing(n_documents)
        return starts, 0 if self.tempering == "annealed" else most_work

    def _new_model(self, priors, mass, dtype, plan=None):
        if plan is None:
            return super()._new_model(priors, mass, dtype)
        steps = self.inner_iter
        if steps == "auto":
            steps = 1 if plan.name == "batch" else DOC_STEPS
        kind = BlockPLSAModel if self._remote else PLSAModel
        once = plan.name == "svrg" and not self._remote
        return kind(*priors, mass, dtype, steps, once=once)

    def _start(self, model, topics, data, stream=False):
        if stream:
            return model.resume(topics / model.n_components, data.n_units)
        return model.start((topics, model.uniform(data.n_units)))

    def _temperature(self, plan, model, data, rng, left, known):
        annealing = 0 if self.tempering is None else self.annealing_iter
        if self.tempering == "auto":
            # Heat would blur topics that are known, and those that hardly differ.
            cold = known or data.mean_length > SHORT or data.alike
            annealing = 0 if cold else min(annealing, self.max_iter // 2)
        return schedules.Linear(self.temperature, annealing)

    def _given_topics(self, n_features, warm):
        given = super()._given_topics(n_features, warm)
        return None if given is None else given / given.sum(axis=1, keepdims=True)

    def _random_topics(self, word_prior, data, rng):
        # Gamma(1), normalised: a uniform draw from the simplex. Closer to uniform
        # topics, EM spends its first epochs on a plateau. Of documents that are alike
        # all such topics make the same.
        k = self.n_components_
        documents = documents_as_topics(k, data, rng)
        topics = padded_empty(data.n_features, k, data.dtype, places.empty).T[:k]
        for topic in topics:  # all at once, in float64, would be the largest array
            if documents is None:
                drawn = rng.standard_gamma(1.0, data.n_features)
            else:
                drawn = next(documents)
            topic[:] = drawn / drawn.sum()
        if word_prior.ndim:
            # Half of a topic are the words that its prior favours: a prior alone does
            # not move EM out of another optimum, where the corpus has more of a word.
            excess = word_prior - word_prior.min(axis=1, keepdims=True)
            sums = excess.sum(axis=1, keepdims=True)
            favoured = np.divide(excess, sums, out=topics.copy(), where=sums > 0.0)
            topics = 0.5 * (topics + favoured)
        return topics

    def _refills(self, plan, data, known):
        return data.alike if not known else super()._refills(plan, data, known)

    def _search_topics(self, word_prior, data, rng):
        if data.alike:
            return self._random_topics(word_prior, data, rng)
        # A uniform draw has topics of words, not of documents, where they are many.
        return scattered(self.n_components_, data, rng) + LEAST_TOKENS

    def _constants(self, priors, data, warm):
        seen = data.total_weight + (self.n_tokens_seen_ if warm else 0.0)
        return super()._constants(priors, data, warm) | {"n_tokens_seen_": seen}

    def _count_batch(self, first, seen, data, random_state):
        return None, seen + data.total_weight, {}

    @lazily
    def transform(self, X: MatrixLike) -> np.ndarray:
        """Return the topics' shares of documents, seen before or not.

        EM steps on each document alone, with the topics held: at most
        `max_inner_iter`, until the shares move by less than `inner_tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts. Words that no topic expects say nothing.

        Returns
        -------
        shares : ndarray of shape (n_samples, n_components)
            Probabilities, rows sum to 1; for an empty document those of the prior.
        """
        data, model = new_documents(self, X), self._fitted_model()
        (batch,) = data.chunks().batches
        with threads(self.n_jobs):
            return model.infer(self.components_.T, model.uniform(data.n_units), batch)

    def score(self, X: MatrixLike, y: Any = None) -> float:
        """Return the log-likelihood of one half of each document given the other.

        Document completion, see :func:`skvrem.text.document_completion`: tokens go by
        a fair coin (the same at every call) to an observed and a scored half.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask array} of shape (n_samples, n_features)
            Word counts of held-out documents. The coin falls the same way for every
            chunk of a dask array, and so otherwise than for all documents at once.
        y : Ignored
            Present by convention.

        Returns
        -------
        score : float
            In nats a token.
        """
        check_is_fitted(self)
        if of_dask(X):
            total, n_tokens = total_over_blocks(self, _completion_of_block, X)
            if not n_tokens:
                raise ValueError("No token is left to score.")
            return float(total / n_tokens)
        check_counts(self, X, reset=False)
        return document_completion(self, X, n_jobs=self.n_jobs)

    def perplexity(self, X: MatrixLike) -> float:
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


def _completion_of_block(estimator, rows):
    """Return what `score` adds up of a block: nats, and tokens."""
    if not rows.shape[0]:
        return np.zeros(2)
    check_counts(estimator, rows, reset=False)
    return np.array(completion_sums(estimator, rows, n_jobs=estimator.n_jobs))
