"""The scikit-learn shell of LDA: parameters, fit, partial_fit."""

from functools import partial

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.data import as_documents
from skvrem.lda._inference import (
    LDAInference,
    check_doc_prior,
    check_word_prior,
    posteriors,
)
from skvrem.lda._model import LDAModel
from skvrem.lda._model_local import LocallyTemperedLDAModel
from skvrem.lda._tempering import SAMPLE, GlobalTemperature
from skvrem.utils._algebra import scale
from skvrem.utils._base import VersionedPickle
from skvrem.utils._messages import warn_annealing_too_long, warn_not_converged
from skvrem.utils._padding import pad
from skvrem.utils._parallel import threads
from skvrem.utils._progress import CallbackSupportMixin, Progress, with_callbacks
from skvrem.utils._validation import (
    all_or_nothing,
    check_integer,
    check_options,
    check_real,
    check_weight,
)

__all__ = ["TemperedLDA"]

SOLVERS = ("batch", "stochastic", "svrg")
# From so many minibatches on, "auto" is "stochastic".
FEWEST_BLOCKS = 8
# Minibatches of "svrg", and its step times their number.
BLOCKS, BLOCK_DOCUMENTS, STEPS_AN_EPOCH = 20, 64, 7.0
DEFAULT_DECAY, DEFAULT_OFFSET, DEFAULT_BATCH = 0.7, 10.0, 128
DEFAULT_TEMPERATURE, DEFAULT_ANNEALING = 2.0, 5
METHODS = {"batch": "batch", "online": "stochastic"}


class TemperedLDA(
    LDAInference,
    ClassNamePrefixFeaturesOutMixin,
    CallbackSupportMixin,
    VersionedPickle,
    TransformerMixin,
    BaseEstimator,
):
    def __init__(
        self,
        n_components=10,
        *,
        doc_topic_prior=None,
        topic_word_prior=None,
        solver="auto",
        step_size="auto",
        step_decay=DEFAULT_DECAY,
        step_offset=DEFAULT_OFFSET,
        batch_size="auto",
        max_iter=10,
        tol=0.0,
        mean_change_tol=1e-3,
        max_doc_update_iter=100,
        total_samples=None,
        tempering=None,
        temperature=DEFAULT_TEMPERATURE,
        annealing_iter=DEFAULT_ANNEALING,
        n_init=1,
        components_init=None,
        warm_start=False,
        evaluate_every=-1,
        perp_tol=0.1,
        learning_method=None,
        learning_decay=None,
        learning_offset=None,
        n_jobs=None,
        verbose=0,
        verbose_interval=1,
        random_state=None,
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
        check_integer(self, "n_components", "n_init", "max_doc_update_iter", least=1)
        check_integer(self, "verbose_interval", least=1)
        check_integer(self, "max_iter", "annealing_iter", "verbose")
        check_integer(self, "evaluate_every", least=-(2**31))
        check_integer(self, "batch_size", least=1, options=("auto",))
        check_real(self, "tol", "mean_change_tol", "perp_tol")
        check_real(self, "total_samples", above=True, options=(None,))
        check_real(self, "step_size", above=True, options=("auto",))
        check_real(self, "step_decay", most=1.0)
        check_real(self, "step_offset", above=True)
        check_real(self, "learning_decay", most=1.0, options=(None,))
        check_real(self, "learning_offset", above=True, options=(None,))
        check_real(self, "temperature", least=1.0)
        check_options(
            self,
            solver=("auto", *SOLVERS),
            tempering=(None, "annealed", "global", "local"),
            warm_start=(False, True),
            learning_method=(None, *METHODS),
        )
        for alias, name, default in (
            ("learning_method", "solver", "auto"),
            ("learning_decay", "step_decay", DEFAULT_DECAY),
            ("learning_offset", "step_offset", DEFAULT_OFFSET),
        ):
            given = getattr(self, alias) is not None
            if given and getattr(self, name) != default:
                raise ValueError(
                    f"{alias} is another name of {name}: give one of the two, not both."
                )
        if self.tempering == "local" and self.solver == "svrg":
            raise ValueError(
                "tempering='local' goes with solver='stochastic' or 'batch': the "
                "documents' own temperatures change the objective between epochs, "
                "and solver='svrg' goes by it."
            )
        warn_annealing_too_long(self)

    def fit(self, X, y=None, sample_weight=None):
        with all_or_nothing(self), threads(self.n_jobs):
            self._check_parameters()
            self._fit(X, y, sample_weight)
        return self

    def _open(self, X, sample_weight, reset):
        """Validate counts and weights; return the source of documents."""
        X = self._check_X(X, reset)
        weight = check_weight(sample_weight, X.shape[0])
        documents = as_documents(X, weight, self._dtype(X, reset))
        if documents.total_weight == 0.0:
            raise ValueError(
                "X has no counts: there must be a document with a word in it"
                f"{'' if weight is None else ' and a positive weight'}."
            )
        return documents

    @property
    def _steps(self):
        """Factor, offset and decay of decreasing steps."""
        factor = 1.0 if self.step_size == "auto" else self.step_size
        offset, decay = self.learning_offset, self.learning_decay
        offset = self.step_offset if offset is None else offset
        return factor, offset, self.step_decay if decay is None else decay

    def _plan(self, n_documents):
        """Choose solver, blocks and step."""
        solver = METHODS.get(self.learning_method, self.solver)
        size = DEFAULT_BATCH if self.batch_size == "auto" else self.batch_size
        if solver == "auto":
            many = n_documents >= FEWEST_BLOCKS * size
            solver = "stochastic" if many else "batch"
        if solver == "svrg" and self.batch_size == "auto":
            n_blocks = max(1, min(BLOCKS, n_documents // BLOCK_DOCUMENTS))
            size = n_documents / n_blocks
        step_size = self.step_size
        if step_size == "auto":
            step_size = min(1.0, STEPS_AN_EPOCH * size / n_documents)
            step_size = step_size if solver == "svrg" else 1.0
        _, offset, decay = self._steps
        return solvers.plan_em(
            n_documents,
            1,
            solver=solver,
            step_size=step_size,
            batch_size=size,
            step_decay=decay,
            step_offset=offset,
        )

    def _temperature(self, model, data, rng):
        if self.tempering is None:
            return schedules.Constant(1.0)
        if self.tempering == "global":
            sample = data.sample(SAMPLE, rng)
            return GlobalTemperature(
                model, sample, data.total_weight, self.annealing_iter
            )
        return schedules.Linear(self.temperature, self.annealing_iter)

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        data = self._open(X, sample_weight, reset=True)
        plan = self._plan(data.n_units)
        doc_prior = check_doc_prior(self.doc_topic_prior, self.n_components)
        word_prior = check_word_prior(
            self.topic_word_prior, self.n_components, data.n_features
        )
        kind = LocallyTemperedLDAModel if self.tempering == "local" else LDAModel
        warm = self.warm_start and hasattr(self, "components_")
        given = self._start_topics(data.n_features, warm)
        n_init = 1 if given is not None else self.n_init

        def start(rng):
            model = kind(
                doc_prior,
                word_prior,
                data.total_weight,
                data.dtype,
                self.max_doc_update_iter,
                self.mean_change_tol,
            )
            topics = self._random_topics(data, rng) if given is None else given
            return solvers.Start(
                model,
                model.start((topics.T,)),
                partial(self._attributes, model),
                temperature=self._temperature(model, data, rng),
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
                stop=self._calm() if self.evaluate_every > 0 else None,
            )
        if self.tol > 0.0:
            warn_not_converged(self, best, "token")
        steps = 1 if plan.name == "batch" else plan.n_blocks
        vars(self).update(
            attributes,
            doc_topic_prior_=doc_prior,
            topic_word_prior_=word_prior[()],
            n_batch_iter_=1 + best.n_iter * steps,
            n_tokens_seen_=data.total_weight,
            n_documents_seen_=data.n_weighted,
            random_state_=random_state,
        )
        self._finish(data)

    def _finish(self, data):
        """Evaluate the fit with the untempered model, at the training data."""
        (batch,) = data.chunks().batches
        topics = pad(self.components_.T, data.dtype)
        arguments = (
            self.doc_topic_prior_,
            np.asarray(self.topic_word_prior_),
            self.n_tokens_seen_,
            data.dtype,
            self.max_doc_update_iter,
            self.mean_change_tol,
        )
        model = LDAModel(*arguments)
        _, bound = posteriors(model, topics, batch)
        bound -= model.divergence(topics)
        self.lower_bound_ = float(bound / self.n_tokens_seen_)
        self.bound_ = float(np.exp(-self.lower_bound_))
        vars(self).pop("doc_temperature_", None)
        if self.tempering == "local":
            local = LocallyTemperedLDAModel(*arguments)
            self.doc_temperature_ = local.temperatures(topics, batch)

    def _calm(self):
        """Return the test of scikit-learn's `evaluate_every` and `perp_tol`."""
        seen = []

        def calm(epoch):
            if epoch.temperature == 1.0:
                seen.append(np.exp(-epoch.objective))
            every = seen[:: self.evaluate_every]
            due = len(seen) % self.evaluate_every == 1 or self.evaluate_every == 1
            return due and len(every) > 1 and abs(every[-1] - every[-2]) < self.perp_tol

        return calm

    def _start_topics(self, n_features, warm):
        """Parameters of given topics, None where they are to be drawn."""
        if warm:
            return self._given_topics(
                self.components_, "the last fit's topics", n_features
            )
        if self.components_init is None:
            return None
        return self._given_topics(self.components_init, "components_init", n_features)

    def _random_topics(self, data, rng):
        # Parameters near 1, as scikit-learn's: they are forgotten after a few steps.
        return rng.gamma(100.0, 0.01, (self.n_components, data.n_features))

    def _attributes(self, model, point):
        """Return the fitted attributes of a point."""
        point = model.recentre(point)
        topics = point.parameters.topics[:, : self.n_components]
        sums = point.statistics.sum_z[:, : self.n_components]
        shares = np.maximum(sums, 0.0).sum(axis=0, dtype=np.float64)
        total = shares.sum()
        return {
            "components_": np.ascontiguousarray(topics.T),
            "topic_shares_": shares / total if total > 0.0 else shares,
            "_sums": sums,
        }

    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the topics with one batch of a stream of documents.

        One step of stochastic variational inference at temperature 1. The topics'
        statistics move by ``step_size * (t + step_offset) ** -step_decay`` towards
        those of the batch, where t is the number of batches seen, and count as much as
        `total_samples` documents, by default all seen so far. Goes on from a `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Word counts of the batch, over the same vocabulary each time.
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
            data = self._open(X, sample_weight, reset=first)
            if not first and len(self.components_) != self.n_components:
                raise ValueError(
                    f"n_components={self.n_components}, but the model has "
                    f"{len(self.components_)} topics: call fit."
                )
            doc_prior = check_doc_prior(self.doc_topic_prior, self.n_components)
            word_prior = check_word_prior(
                self.topic_word_prior, self.n_components, data.n_features
            )
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
                    topics = self._random_topics(data, np.random.default_rng(seed))
                self.random_state_ = random_state
                point = model.start((topics.T,))
            else:
                point = model.resume(self._sums)
            (batch,) = data.chunks().batches
            sums = scale(model.statistics(point, batch, 1.0), 1.0 / tokens)
            factor, offset, decay = self._steps
            n_batches = 0 if first else self.n_batch_iter_ - 1
            step = schedules.Power(factor, offset, decay)(n_batches)
            point = model.recentre(model.update(point, None, sums, step))
            for name in ("history_", "init_scores_", "doc_temperature_"):
                vars(self).pop(name, None)  # they are of a fit that is past
            lower_bound = model.objective(point, sums)
            vars(self).update(
                self._attributes(model, point),
                lower_bound_=lower_bound,
                bound_=float(np.exp(-lower_bound)),
                converged_=False,
                n_iter_=getattr(self, "n_iter_", 0) + 1,
                n_batch_iter_=n_batches + 2,
                n_tokens_seen_=seen + tokens,
                n_documents_seen_=documents,
                doc_topic_prior_=doc_prior,
                topic_word_prior_=word_prior[()],
                solver_="stochastic",
                step_size_=step,
                batch_size_=data.n_units,
            )
        return self
