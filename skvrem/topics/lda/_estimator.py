"""The scikit-learn shell of LDA."""

import warnings
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import psi
from sklearn.utils.validation import check_is_fitted

from skvrem import schedules, solvers
from skvrem.data import lazily, of_dask, total_over_blocks
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.topics._base import TopicModel, documents_as_topics, scattered
from skvrem.topics._input import new_documents
from skvrem.topics._model_arrays import pad
from skvrem.topics.lda._blocks import BlockCollapsedLDAModel, BlockLDAModel
from skvrem.topics.lda._model import LDAModel, LocallyTemperedLDAModel
from skvrem.topics.lda._model_collapsed import ROUNDS, CollapsedLDAModel
from skvrem.utils._columns import MatrixLike
from skvrem.utils._parallel import threads
from skvrem.utils._reports import outside
from skvrem.utils._validation import ABOVE_0, check_aliases

# From so many minibatches on "auto" makes use of them, and from so many epochs on by
# "svrg", whose epochs cost two passes.
FEWEST_BLOCKS, FEWEST_EPOCHS = 8, 4
# Minibatches of "svrg", the fewest documents of one, and its step times their number.
BLOCKS = {"mean_field": (20, 64, 7.0), "collapsed": (40, 16, 14.0)}
# The collapsed step: first epochs without an anchor, the prior of topics, and the
# documents from which on that of shares is learned.
PILOT, WORD_PRIOR, LEARNED_FROM = 1, 0.05, 300
# Mean field, up to so many word counts times topics: of few documents annealing leads
# lower now and then, so that a cold start races with it (some seconds a fit).
COLD_WORK = 20_000_000
DEFAULT_DECAY, DEFAULT_OFFSET, DEFAULT_BATCH = 0.7, 10.0, 128
DEFAULT_ANNEALING = 5
# Bytes that sums of all minibatches may take, where "svrg" is to keep them.
TABLE_BYTES = 1 << 28
# Temperatures that q(y) is a distribution over.
TEMPERATURES = np.geomspace(1.0, 10.0, 100)
# Documents that the data's energy, and where topics part, are estimated from.
SAMPLE, SAMPLE_OF_PARTING = 500, 1000
# Affinity, the sum of roots of products, from which on two topics are the same.
SAME = 0.99
METHODS = {"batch": "batch", "online": "stochastic"}
ALIASES = {
    "learning_method": "solver",
    "learning_decay": "step_decay",
    "learning_offset": "step_offset",
}


class TemperedLDA(TopicModel):
    r"""Latent Dirichlet allocation, collapsed or by tempered variational inference.

    A drop-in for :class:`sklearn.decomposition.LatentDirichletAllocation`: the same
    parameters, attributes and methods, with passes several times as fast.

    A token of document d is word v with probability
    :math:`\sum_k \theta_{dk} \beta_{kv}`, where the documents' shares
    :math:`\theta_d` and the topics :math:`\beta_k` have Dirichlet priors, over which a
    factorised posterior integrates.

    Parameters
    ----------
    n_components : int or "auto", default=10
        Number of topics. "auto" finds it by held-out documents, with the collapsed
        E step: a tenth of them (200 to 2,000, at most a quarter) is kept from fits with
        ever more topics, 1,024 at most, until it is no more likely; then topics that it
        does not miss are merged or left out, and the others are fitted to all
        documents. From 100 documents to 1,000, or to 100,000 tokens, all are kept in
        turn, a quarter at a time, and random topics are fitted as well. It takes as
        long as one or two fits with more topics than that, of few documents several
        times that, and needs 20 documents. Topics without tokens are dropped. Topics to
        start from (`components_init`, `warm_start`) give their own number.
    doc_topic_prior : float, array-like or "learn", default=None
        Dirichlet prior of the documents' shares, any positive numbers: one, or an array
        of shape (n_components,). "learn" fits one number a topic, with the collapsed E
        step, from the fourth epoch on; None is "learn" there from 300 documents with a
        weight on, and else 1 / n_components. In :class:`VRPLSA` the prior is
        Dirichlet(1 + a): a model with ``doc_topic_smoothing=a`` there has
        ``doc_topic_prior=1 + a`` here.
    topic_word_prior : float, array-like or "learn", default=None
        Dirichlet prior of the topics, any positive numbers. "learn" fits one number,
        with the collapsed E step; None is 0.05 there, and else 1 / n_components. An
        array of shape (n_components, n_features) gives topics their own words, see
        :func:`skvrem.text.seed_prior`.
    e_step : {"auto", "collapsed", "mean_field"}, default="auto"
        How a token's topic is judged. "collapsed" integrates the shares and the topics
        out, and goes by the counts of all other tokens (CVB0 [3]_): better topics in
        less time, but for many more than there are in long documents of few words,
        where it fits noise: ``n_components="auto"`` finds their number then.
        "mean_field" is the twin's, with posteriors of shares and topics; tempering is
        of it alone. "auto" is "collapsed" unless `learning_method`,
        `temperature`, or a `tempering` but "auto" and None is given.
    solver : {"auto", "batch", "stochastic", "svrg"}, default="auto"
        How the mean of the topics' statistics is estimated. "batch" is variational
        EM; "stochastic" is stochastic variational inference [2]_; "svrg" is its
        variance-reduced form; "auto" is "batch" for fewer than 8 minibatches, then
        "svrg" where `max_iter` is at least 4, else "stochastic" (as it is where
        `step_decay` or `step_offset` is given, or `tempering` is "local"). From random
        topics, with the collapsed E step and no step of one's own, the first epoch of
        "svrg" has no anchor. Collapsed "svrg" has momentum from epoch to epoch.
    step_size : float, default="auto"
        For "svrg" the constant step, "auto" is 14 / n_batches, of mean field
        7 / n_batches, at most 1; for
        "stochastic" and `partial_fit` the factor of the decreasing step, "auto" is 1.
    step_decay, step_offset : float, default=0.7, 10.0
        Step t of "stochastic" is
        ``step_size * (t + step_offset) ** -step_decay``, at most 1.
    batch_size : int, default="auto"
        Documents a minibatch; "auto" is 128, and for "svrg" makes 40 minibatches of
        at least 16, of mean field 20 of at least 64.
    max_iter : int, default=500
        Most epochs: passes for "batch", passes over the minibatches for the others.
    tol : float, default=1e-3
        Converged when less is left to gain, in nats a token, as the gains of the last
        epochs tell, and by the collapsed E step a pass moves a smaller share of the
        tokens to other topics; 0 makes `max_iter` epochs, without a warning. A
        "stochastic" epoch has no exact objective: the gains of a few are added up, and
        where they say that little is left, passes of "batch" find the end.
    mean_change_tol : float, default=1e-3
        The rounds on a document end when one changes the parameters of its shares by
        less than this a topic.
    max_doc_update_iter : int, default=100
        Most rounds on a document. A collapsed E step of `fit` takes four, whatever
        these say.
    total_samples : float, default=None
        Documents of the stream that `partial_fit` is to count; None for those seen so
        far.
    tempering : {"auto", None, "annealed", "global", "local"}, default="auto"
        None is the temperature 1. "annealed" starts hotter (annealed variational
        inference, [1]_): posteriors depend less on a start that knows nothing.
        "global" learns one temperature, "local" one of each document, of which none
        is colder than an annealed one. All end at 1 but those of documents, which are
        in ``doc_temperature_``. "auto" is None for the collapsed E step; for mean
        field it is "annealed" for at most half of the epochs, and None for "batch",
        which few documents are fitted by, as the twin is.
    temperature : float or "auto", default="auto"
        Temperature at the start; it falls linearly to 1. "auto" finds it from the
        documents: half-way, in ratios, from 1 to where topics that are the same can
        part in as many directions as there are topics. That is :math:`1 + \sigma`,
        with the `n_components`-th singular value of the counts over the roots of the
        totals of their rows and columns.
    annealing_iter : float, default=5
        Epochs until the temperature is 1; for "global", about. A whole number changes
        it between epochs; any other, of the solver "stochastic" alone, at every
        minibatch, so that it may fall within a part of the first pass.
    n_init : int or "auto", default="auto"
        Starts, of which the best is kept; see ``init_scores_``. "auto" makes four of
        short fits, whose word counts that are not zero times `n_components` are at most
        2e6: all go 10 epochs or more, and the best to its end. Of mean field by "svrg"
        with ``tempering="auto"`` and `annealing_iter` up to 5 it makes two up to 2e7, a
        cold one, below which no fit ends then, and one that is annealed: few documents
        may end higher without. One start is made of longer fits. Topics that
        ``n_components="auto"`` has found of few documents are one start more, and of
        many the only one.
    components_init : array-like of shape (n_components, n_features), default=None
        Pseudo-counts to start from, in place of random ones, as `components_` has them;
        with the collapsed E step in any scale.
    warm_start : bool, default=False
        Start from the topics of the last fit; cold, unless `temperature` is a number.
        Where that was of the same X in this process, the collapsed E step also starts
        from the counts of its documents.
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
    n_components_ : int
        Number of topics.
    completion_path_ : dict of ndarrays
        Of n_components="auto": "n_components" and "completion", numbers of topics that
        were tried and the log-likelihood of held-out documents, one half given the
        other, in nats a token.
    objective_ : float
        What the fit goes by, in nats a token; after `partial_fit` that of the last
        batch. Of mean field the bound of the log-likelihood of the training data at
        temperature 1; of the collapsed E step their leave-one-out log-likelihood, the
        mean over tokens of the log probability that all others give it. That is a
        pseudo-likelihood, and too high for new documents.
    lower_bound_ : float
        Bound of the log-likelihood of the training data, in nats a token, for the
        tokens' topics that the fit came to; not there after `partial_fit`. It is no
        guide to better topics, nor comparable between E steps.
    bound_ : float
        Perplexity of the training data by that bound, ``exp(-lower_bound_)``.
    e_step_ : str
        The E step used.
    doc_temperature_ : ndarray of shape (n_samples,)
        Temperatures of the documents, for ``tempering="local"``: the less a document
        is like what its topics would write, the hotter.
    doc_topic_prior_ : ndarray of shape (n_components,)
        The prior used, or learned.
    topic_word_prior_ : float or ndarray of shape (n_components, n_features)
        The prior used, or learned.
    n_iter_ : int
        Epochs made; batches seen, on a stream.
    n_batch_iter_ : int
        One more than the minibatches visited; numbers the steps of `partial_fit`.
    converged_ : bool
        Whether less than `tol` was left to gain.
    history_ : dict of ndarrays
        By epoch: "passes", "seconds", "objective" (of mean field tempered),
        "step_size", "temperature".
    init_scores_ : ndarray of shape (n_init,)
        Objective that each start reached.
    init_epochs_ : ndarray of shape (n_init,)
        Epochs that each start made.
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
    VRPLSA : The posterior's mode in place of the posterior: faster, and nearly as good
        where documents are long.
    sklearn.decomposition.LatentDirichletAllocation : The twin.

    Notes
    -----
    What differs from the twin: the default E step and its priors; `solver="auto"` takes
    minibatches where the documents are many (the twin's default is "batch"), where mean
    field anneals; `total_samples` is inferred; priors may be arrays and larger than 1;
    the divergence of the topics from their prior, a cost of the training data, is
    shared among its tokens, while the twin charges it whole to whatever documents
    `score` and `perplexity` are given.

    A fit that was given its temperature warns of topics that are the same in the end.

    On a stream (`partial_fit`) the statistics count as much as `total_samples`
    documents, by default all seen so far. Priors are learned as long as its documents
    are kept, and then stay what they are. Of a batch nothing is left out of the topics,
    which are to be given documents that they have not seen.

    A minibatch costs its nonzeros times `n_components` and the rounds, whatever the
    vocabulary. Memory beyond X: a few arrays like the topics, two of the shares, or one
    by collapsed "svrg", and 12 bytes a nonzero; 4 where X is a CSR matrix whose parts
    are memory maps, which is read where it lies. Collapsed "svrg" also keeps the sums
    of its minibatches where they take 256 MB at most, which spares a pass of three.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering.
       AISTATS.
    .. [2] Hoffman, Blei, Wang, Paisley (2013). Stochastic variational inference. JMLR.
    .. [3] Asuncion, Welling, Smyth, Teh (2009). On smoothing and inference for topic
       models. UAI.

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

    _model = CollapsedLDAModel
    _priors, _positive = ("doc_topic_prior", "topic_word_prior"), True
    _rounds = ("max_doc_update_iter", "mean_change_tol")
    _race_epochs, _search_parts = 10, 4
    _of_a_fit = ("doc_temperature_", "lower_bound_")

    def __init__(
        self,
        n_components: int | Literal["auto"] = 10,
        *,
        doc_topic_prior: float | ArrayLike | Literal["learn"] | None = None,
        topic_word_prior: float | ArrayLike | Literal["learn"] | None = None,
        e_step: Literal["auto", "collapsed", "mean_field"] = "auto",
        solver: Literal["auto", "batch", "stochastic", "svrg"] = "auto",
        step_size: float | Literal["auto"] = "auto",
        step_decay: float = DEFAULT_DECAY,
        step_offset: float = DEFAULT_OFFSET,
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 500,
        tol: float = 1e-3,
        mean_change_tol: float = 1e-3,
        max_doc_update_iter: int = 100,
        total_samples: float | None = None,
        tempering: Literal["auto", "annealed", "global", "local"] | None = "auto",
        temperature: float | Literal["auto"] = "auto",
        annealing_iter: float = DEFAULT_ANNEALING,
        n_init: int | Literal["auto"] = "auto",
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
        self.e_step = e_step
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

    def __setstate__(self, state):
        # What was fitted before there was a choice.
        old = {"e_step_": "mean_field"} if "components_" in state else {}
        super().__setstate__(old | state)

    def _check_parameters(self):
        super()._check_parameters(
            evaluate_every={"least": -(2**31)},
            learning_decay={"most": 1.0},
            learning_offset=ABOVE_0,
            step_decay={"most": 1.0},
            step_size=ABOVE_0,
            total_samples=ABOVE_0,
        )
        check_aliases(self, ALIASES)
        self._check_e_step()
        certifies = getattr(solvers.BY_NAME.get(self.solver), "certifies", False)
        if self.tempering == "local" and certifies:
            raise ValueError(
                "tempering='local' goes with solver='stochastic' or 'batch': the "
                "documents' own temperatures change the objective between epochs, "
                f"and solver={self.solver!r} goes by it."
            )

    def _check_e_step(self):
        if self.n_components == "auto" and not self._collapsed:
            raise ValueError("n_components='auto' goes with e_step='collapsed'.")
        if self._collapsed:
            if not self._untempered:
                raise ValueError(
                    "e_step='collapsed' is of the temperature 1: leave tempering and "
                    f"temperature alone, got {self.tempering!r}, {self.temperature!r}."
                )
            return
        for name in self._priors:
            if isinstance(getattr(self, name), str):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} goes with e_step='collapsed': "
                    "priors learned by mean field make held-out documents less likely."
                )

    @property
    def _untempered(self):
        return self.tempering in ("auto", None) and self.temperature == "auto"

    @property
    def _e_step(self):
        if self.e_step != "auto":
            return self.e_step
        collapsed = self.learning_method is None and self._untempered
        return "collapsed" if collapsed else "mean_field"

    @property
    def _collapsed(self):
        return self._e_step == "collapsed"

    def _racing(self, n_documents):
        if self._collapsed:
            return super()._racing(n_documents)
        by_default = self.tempering == "auto" and self._untempered
        # They are compared at the temperature 1, when both have been there for a while.
        by_default = by_default and 2 * self.annealing_iter <= self._race_epochs
        by_default = by_default and self._plan(n_documents, True).name == "svrg"
        return 2, COLD_WORK if by_default else 0

    def _as_of(self, n_documents):
        learns = self.doc_topic_prior is None and n_documents >= LEARNED_FROM
        return {"doc_topic_prior": "learn"} if learns else {}

    @property
    def _learns(self):
        return self._collapsed

    @property
    def _word_default(self):
        return WORD_PRIOR if self._collapsed else None

    @property
    def _decay(self):
        """Offset and decay of decreasing steps."""
        offset, decay = self.learning_offset, self.learning_decay
        offset = self.step_offset if offset is None else offset
        return offset, self.step_decay if decay is None else decay

    def _plan(self, n_documents, random):
        """Choose solver, blocks and step."""
        solver = METHODS.get(self.learning_method, self.solver)
        collapsed, (offset, decay) = self._collapsed, self._decay
        most, few, an_epoch = BLOCKS[self._e_step]
        size = DEFAULT_BATCH if self.batch_size == "auto" else self.batch_size
        if solver == "auto":
            solver, least = "batch", FEWEST_BLOCKS * size
            if collapsed and self.batch_size == "auto":
                least = FEWEST_BLOCKS * few
            if n_documents >= least and not self._remote:
                reduced = self.max_iter >= FEWEST_EPOCHS and self.tempering != "local"
                decreasing = (offset, decay) != (DEFAULT_OFFSET, DEFAULT_DECAY)
                solver = "svrg" if reduced and not decreasing else "stochastic"
        reduced = solvers.reduces_variance(solver)
        if reduced and self.batch_size == "auto":
            n_blocks = max(1, min(most, n_documents // few))
            size = n_documents / n_blocks
        elif self._remote and self.batch_size == "auto":
            size = max(size, n_documents / solvers.FAR_BLOCKS)
        step_size = self.step_size
        pilot = PILOT if collapsed and random and step_size == "auto" else 0
        if step_size == "auto":
            step_size = min(1.0, an_epoch * size / n_documents)
            step_size = step_size if reduced else 1.0
        steps = {"step_size": step_size, "step_decay": decay, "step_offset": offset}
        chosen = {"solver": solver, "batch_size": size, "pilot": pilot} | steps
        return solvers.plan_em(self, n_documents, 1, **chosen)

    def _check_remote(self, X):
        super()._check_remote(X)
        if self._remote and self.tempering == "local":
            raise ValueError(
                "tempering='local' has a temperature of every document in memory: on a "
                "dask array choose another tempering."
            )

    def _new_model(self, priors, mass, dtype, plan=None):
        rounds = self.max_doc_update_iter, self.mean_change_tol
        fitted = plan is None and "e_step_" in vars(self)
        e_step = self.e_step_ if fitted else self._e_step
        if e_step == "collapsed" and plan is None:
            return CollapsedLDAModel(*priors, mass, dtype, *rounds, new=True)
        if e_step == "collapsed":
            if self._remote:
                given = *priors, mass, dtype, ROUNDS
                return BlockCollapsedLDAModel(*given, keep_sums=True)
            once = plan.name == "svrg"
            # A minibatch has no more words than tokens.
            words = min(mass, plan.n_blocks * self.n_features_in_)
            kept = words * self.n_components_ * np.dtype(dtype).itemsize <= TABLE_BYTES
            how = {"once": once, "keep_sums": once and kept}
            return CollapsedLDAModel(*priors, mass, dtype, ROUNDS, **how)
        local = plan is not None and self.tempering == "local"
        kind = LocallyTemperedLDAModel if local else LDAModel
        if plan is not None and self._remote:
            kind = BlockLDAModel
        return kind(*priors, mass, dtype, *rounds)

    def _start(self, model, topics, data, stream=False):
        if not isinstance(model, CollapsedLDAModel):
            return model.start((topics,))
        given = (getattr(self, name) for name in self._priors)
        doc, word = (None if x is None else isinstance(x, str) for x in given)
        doc = data.n_weighted >= LEARNED_FROM if doc is None else doc
        if stream:
            # Little enough to be forgotten: of few tokens, as much as the twin's start.
            share = topics.size / max(model.n_tokens, topics.size)
            return model.start((topics,), data.n_units, share=share)
        return model.start((topics,), data.n_units, (doc, bool(word)))

    def _temperature(self, plan, model, data, rng, left, known):
        tempering, length = self.tempering, self.annealing_iter
        cold = self.n_init == "auto" and left > 0  # the last of a race is annealed
        if self._collapsed or cold:
            return schedules.Constant(1.0)
        if not float(length).is_integer() and (
            plan.name != "stochastic" or tempering == "global"
        ):
            raise ValueError(
                f"annealing_iter={length} is no whole number of epochs: that goes with "
                "solver='stochastic', and a tempering but 'global'."
            )
        if tempering == "auto":
            tempering = None if plan.name == "batch" else "annealed"
            length = min(length, self.max_iter // 2)
        if tempering == "global":
            return _learned_temperature(model, data, length, rng)
        highest = self.temperature
        warm = self.warm_start and hasattr(self, "components_")
        if tempering is None or (warm and highest == "auto"):
            return schedules.Constant(1.0)
        if highest == "auto":
            parting = model.critical_temperatures(data.sample(SAMPLE_OF_PARTING, rng))
            last = parting[: model.n_components - 1][-1:]
            highest = float(np.sqrt(last.max(initial=1.0)))
        return schedules.Linear(highest, length)

    def _random_topics(self, word_prior, data, rng):
        k, n_features = self.n_components_, data.n_features
        if not self._collapsed:
            # Parameters near 1, as scikit-learn's: soon forgotten.
            topics = rng.gamma(100.0, 0.01, (k, n_features))
            return topics + (word_prior - word_prior.min())  # what seeds have more
        documents = documents_as_topics(k, data, rng)
        if documents is None:
            return scattered(k, data, rng) + word_prior
        return np.stack([*documents]) * (data.total_weight / k) + word_prior

    def _stop(self):
        """Return the test of scikit-learn's parameters, None for never.

        Epochs at temperature 1 are counted; every `evaluate_every`-th is compared with
        the one before.
        """
        every, seen = self.evaluate_every, []

        def stop(epoch):
            if epoch.temperature != 1.0 or np.isnan(epoch.objective):
                return False
            seen.append(_perplexity_of(epoch.objective))
            looked = seen[::every]
            due = len(looked) > 1 and (len(seen) - 1) % every == 0
            return due and abs(looked[-1] - looked[-2]) < self.perp_tol

        return stop if every > 0 else None

    def _constants(self, priors, data, warm):
        known = {"n_documents_seen_": data.n_weighted, "e_step_": self._e_step}
        return super()._constants(priors, data, warm) | known

    def _attributes(self, model, point, constants):
        found = super()._attributes(model, point, constants)
        if isinstance(model, CollapsedLDAModel):
            k, own = model.n_components, point.own
            if own.learn[0]:
                found["doc_topic_prior_"] = own.doc_prior[:k].astype(float)
            if own.learn[1]:
                found["topic_word_prior_"] = float(own.word_prior[0, 0])
        return found

    def _finish(self, data, best, plan, random_state):
        """Judge the fit by its training data, without tempering; count its steps."""
        made = best.history[1 : 1 + best.n_iter]
        steps = sum(1 if e.solver == "batch" else plan.n_blocks for e in made)
        if self._collapsed:
            priors, dtype = self._fitted_priors(), self.components_.dtype
            model = self._new_model(priors, data.total_weight, dtype, plan)
            with threads(self.n_jobs):
                bound = model.lower_bound(best.point, data)
        else:
            bound = np.subtract(*self._bound(data))
            self.objective_ = float(bound / data.total_weight)
        vars(self).update(
            lower_bound_=float(bound / data.total_weight),
            n_batch_iter_=1 + steps,
            random_state_=random_state,
        )
        if self.temperature != "auto" and best.history[0].temperature > 1.0:
            self._warn_vanished()
        vars(self).pop("doc_temperature_", None)
        if self.tempering == "local":
            priors, dtype = self._fitted_priors(), self.components_.dtype
            model = self._new_model(priors, data.total_weight, dtype, plan)
            (batch,) = data.chunks().batches
            topics = pad(self.components_.T, model.dtype)
            self.doc_temperature_ = model.temperatures(topics, batch)

    def _warn_vanished(self):
        topics = self.components_ / self.components_.sum(axis=1, keepdims=True)
        roots = np.sqrt(topics)
        same = np.tril(roots @ roots.T, -1).max(axis=1) > SAME
        vanished = np.flatnonzero(same)
        if vanished.size:
            warnings.warn(
                "After annealing some topics of TemperedLDA are the same as another: "
                f"{', '.join(map(str, vanished))}. Leave temperature='auto', or raise "
                "annealing_iter and max_iter; if they stay, take fewer topics.",
                CollapsedComponentWarning,
                stacklevel=outside(),
            )

    def _n_batches(self):
        """One more than the minibatches visited; of a checkpoint, about."""
        steps = max(1, round(self.n_documents_seen_ / self.batch_size_))
        return vars(self).get("n_batch_iter_", 1 + self.n_iter_ * steps)

    def _count_batch(self, first, seen, data, random_state):
        n_batches = 0 if first else self._n_batches() - 1
        documents = data.n_weighted + (0 if first else self.n_documents_seen_)
        mass = seen + data.total_weight
        if self.total_samples is not None:
            mass *= self.total_samples / documents
        counters = {"n_batch_iter_": n_batches + 2, "n_documents_seen_": documents}
        if first:
            counters["random_state_"] = random_state
        return None if self._collapsed else n_batches, mass, counters

    @property
    def exp_dirichlet_component_(self):
        """Exponential of the expected log topics, exp(E log β)."""
        if "components_" not in vars(self):
            raise AttributeError("exp_dirichlet_component_ is there after fit.")
        topics = self.components_
        return np.exp(psi(topics) - psi(topics.sum(axis=1, keepdims=True)))

    @property
    def bound_(self):
        """Perplexity of the training data, ``exp(-lower_bound_)``."""
        is_bound = self.e_step_ == "mean_field"  # of a batch of a stream, too
        return _perplexity_of(self.objective_ if is_bound else self.lower_bound_)

    def _posterior(self):
        """Return the model of mean field, and the topics as it takes them."""
        self._check_rounds()
        rounds = self.max_doc_update_iter, self.mean_change_tol
        given = self.n_tokens_seen_, self.components_.dtype, *rounds
        model = LDAModel(*self._fitted_priors(), *given)
        return model, pad(self.components_.T, model.dtype)

    def _bound(self, data):
        """Return the bound of documents, and the divergence of the topics."""
        model, topics = self._posterior()
        with threads(self.n_jobs):
            bound = data.parts().sum(partial(model.bound_of, topics))
            return float(bound.value), model.divergence(topics)

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
            As :meth:`transform` returns them: the topics are held, and nothing of a
            document is left out of them, though they have been learned from it.
        """
        return self.fit(X, y, **fit_params).transform(X, normalize=normalize)

    @lazily
    def transform(self, X: MatrixLike, *, normalize: bool = True) -> np.ndarray:
        """Return the topics' shares of documents, seen before or not.

        Rounds on each document alone, with the topics held. In the collapsed ones every
        token is judged by the others of its document.

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
        data = new_documents(self, X)
        if self.e_step_ == "collapsed":
            model, (batch,) = self._fitted_model(), data.chunks().batches
            topics = pad(self.components_.T, model.dtype)
            with threads(self.n_jobs):
                gamma = model.posteriors(topics, batch)
        else:
            (batch,), (model, topics) = data.chunks().batches, self._posterior()
            with threads(self.n_jobs):
                gamma, _ = model.posteriors(topics, batch)
        return gamma / gamma.sum(axis=1, keepdims=True) if normalize else gamma.copy()

    def score(self, X: MatrixLike, y: Any = None) -> float:
        """Return a lower bound of the log-likelihood of documents.

        That of mean field, by the posterior of the topics that ``components_`` has,
        whatever the E step of the fit.

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

        Raises
        ------
        ValueError
            If there is no document, or they are no counts of as many words as in `fit`.
        """
        return self._score(X)[0]

    def _score(self, X):
        """Return what `score` does, and the tokens of X."""
        check_is_fitted(self)
        of_rows = _score_of_block if of_dask(X) else _score_of
        score, tokens = total_over_blocks(self, of_rows, X)
        return float(score), float(tokens)

    def perplexity(self, X: MatrixLike, sub_sampling: bool = False) -> float:
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
        score, tokens = self._score(X)
        if tokens == 0.0:
            raise ValueError("X has no counts: there is nothing to be perplexed by.")
        return _perplexity_of(score / tokens)


def _score_of_block(estimator, rows):
    """Return what a block adds to the score and the tokens; it may be empty."""
    return _score_of(estimator, rows) if rows.shape[0] else np.zeros(2)


def _score_of(estimator, rows):
    """Return the score of documents, and their tokens."""
    data = new_documents(estimator, rows)
    bound, divergence = estimator._bound(data)
    tokens = data.total_weight
    return np.array([bound - divergence * tokens / estimator.n_tokens_seen_, tokens])


def _perplexity_of(bound):
    """Return exp(-bound), of a bound in nats a token."""
    with np.errstate(over="ignore"):  # infinite is what it is
        return float(np.exp(-bound))


def _learned_temperature(model, data, length, rng):
    r"""Return a temperature that is learned, with a uniform r at the start.

    It has two changes to Eq. 9 of Mandt et al. (2016), without which the data stay hot
    or cool at once: the partition function is that of the model where it stands and
    not of its prior, and r moves by a share of the way. Energy and partition function
    then agree near T = 1 almost from the start, so the temperature falls at the rate
    of :math:`\kappa`: by a factor e^-4 of what is above zero inverse temperature in
    `length` epochs.

    Parameters
    ----------
    model : LDAModel
    data : source of documents
    length : float
        Epochs that cooling takes, about.
    rng : numpy.random.Generator
        Draws the documents that the energy is estimated from.

    Returns
    -------
    temperature : LearnedTemperature
    """
    sample, inverse = data.sample(SAMPLE, rng), 1.0 / TEMPERATURES
    return schedules.LearnedTemperature(
        TEMPERATURES,
        np.full(len(TEMPERATURES), 1.0 / len(TEMPERATURES)),
        lambda point, t: model.calibration(point, sample, 1.0 / t, inverse),
        total_weight=data.total_weight,
        rate=-np.expm1(-4.0 / max(length, 1)),
    )
