"""What estimators do with a stream: rows that are seen again, and the prior of all."""

from typing import Any, NamedTuple

from skvrem.data import KeptRows
from skvrem.utils._validation import among
from skvrem.vi.gaussian._guards import StreamsWithoutBound
from skvrem.vi.gaussian._model_families import Logistic, Softmax
from skvrem.vi.gaussian._plan import FULL_RANK
from skvrem.vi.gaussian._width import deviation_of_mode
from skvrem.vi.glm.streams._gram import MOST_IN_GRAM, Gram
from skvrem.vi.glm.streams._memory import GROWTH, Memory
from skvrem.vi.glm.streams._width import Width, width_of_prior
from skvrem.vi.glm.streams._width_by_messages import (
    messages_tell,
    too_few_for_bounds,
    width_by_messages,
)

# The width of a prior is learned again by a batch that makes the rows of a stream so
# many times as many, or where it has moved by such a share of its own deviation.
MUCH, MOVED = 1.1, 0.06
# Fewer rows of a batch tell of nothing but coefficients.
FEW = 100


class Look(NamedTuple):
    """What is looked at for a fit, or for a batch of a stream.

    Attributes
    ----------
    data : source
        Rows, with those before that are seen again, or few that have their sums.
    targets : ndarray of shape (n_rows, ...), or None where batches bring them
    family : object
    one : MeanField, FullRank or LowRank
        The prior of a predictor, of a batch the posterior of the rows before.
    prior : MeanField, FullRank or LowRank
        Of all predictors, before these rows.
    prior_of : callable, default=None
        As `_prior_of` returns, where the width of the prior is to be learned.
    memory : Gram or Memory, default=None
        Of the rows before.
    alone : bool or None, default=True
        Whether there are none but these; None if they tell of coefficients only, as
        there are few, or some of the rows before among them.
    """

    data: Any
    targets: Any
    family: Any
    one: Any
    prior: Any
    prior_of: Any = None
    memory: Any = None
    alone: bool | None = True

    @property
    def afresh(self):
        """Whether a batch is looked at with the prior of the stream."""
        return isinstance(self.memory, Memory) and self.prior is self.memory.prior

    def of_width(self, width):
        """Return the look with the prior of a width."""
        one = self.prior_of(width)
        prior, memory = one.repeated(self.family.n_predictors), self.memory
        if self.afresh:
            memory = memory._replace(prior=prior)
        return self._replace(one=one, prior=prior, memory=memory)


class StreamsWithMemory(StreamsWithoutBound):
    """Streams that keep rows, or sums of them, and the prior that all of them have.

    The estimator of a class that inherits this has what a fit needs of a prior, as
    :class:`GaussianPosterior`: ``_prior_of``, ``_moments``, ``_learn``, ``_keep_prior``
    and ``_family``; ``_given_prior``, the posterior without what is not known of the
    width of its prior, which rows are added to; ``_start``, from where a width is
    learned; ``_width_by_some``, of more coefficients than a full rank is for; and
    ``_in_span``, whether there are more of these than rows.
    """

    #: What has been learned of the width of the prior; not of rows with groups.
    _width: Width | None = None

    @property
    def _has_gram(self):
        """Whether sums of squares and products of rows say all of them."""
        return False

    def _begin(self, data, targets, stream):
        """Return the `Look` at the rows of a fit, or at the first ones of a stream."""
        self._width = None
        learned = among(self.prior_scale, ("learn",))
        prior_of = self._prior_of(data, targets, learned)
        prior = prior_of()
        # The width of a batch that is not kept is not that of the rows to come.
        learned = learned and (not stream or self._keeps_rows(data, prior))
        prior_of = prior_of if learned else None
        one = self._learn(data, targets, prior, 0, prior_of)
        self._keep_prior(one)
        family = self._family(self, data.n_units, data.n_features)
        prior = one.repeated(family.n_predictors)
        return Look(data, targets, family, one, prior, prior_of)

    def _recall(self, data, targets, last):
        """Return the `Look` at a batch, and at rows before it that are seen again.

        last: the posterior that it starts from.
        """
        memory = self._memory_before()
        if isinstance(memory, Gram):
            return self._recall_sums(memory, data, targets)
        prior, before = self._given_prior, None
        if memory is not None and memory.seen is not None:
            before = memory.prior
            memory, prior = self._prior_anew(memory, prior, data, targets)
        n_seen, n_new = self.n_samples_seen_, data.n_units
        one = self._learn(data, targets, prior, n_seen)
        family = self._family(self, n_new, data.n_features)
        if memory is None:
            return Look(data, targets, family, one, one, alone=False)
        about, batch, prior_of = (one, family, self.fit_intercept), data, None
        prior, data, targets = memory.prior_and_rows(*about, data, targets)
        given = memory, data, last, before, family.n_predictors
        if prior is memory.prior and self._learns_anew(*given):
            prior_of = self._prior_of(data, targets, True, memory.seen)
        again = data is not batch
        family = self._family(self, data.n_units, data.n_features)
        # Of a fit that was pickled none are here.
        complete = again and memory.kept.n_seen == n_seen
        alone = complete or (None if again or data.n_units < FEW else False)
        return Look(data, targets, family, one, prior, prior_of, memory, alone)

    def _recall_sums(self, memory, data, targets):
        """Return the `Look` at a batch and at the sums of the rows before."""
        new, prior_of = (data, targets), None
        prior, data, targets = memory.prior_and_rows(data, targets)
        anew = memory.seen is not None
        if anew:
            moments = memory.seen.merged(self._moments(*new))
            one_of = self._prior_of(data, targets, seen=moments)
            prior = one_of()
            prior_of = one_of if among(self.prior_scale, ("learn",)) else None
        prior = self._learn(data, targets, prior, 0, prior_of)
        if anew:
            self._keep_prior(prior)
            memory = memory._replace(prior=prior, seen=moments)
        family = self._family(self, data.n_units, data.n_features)
        about = prior, prior, prior_of, memory, False
        return Look(data, targets, family, *about)

    def _prior_anew(self, memory, posterior, data, targets):
        """Return a memory and a posterior whose prior follows a batch as well."""
        if memory.short:
            seen = self._moments(*memory.kept.beside(data, targets))
        else:
            seen = memory.seen.merged(self._moments(data, targets))
        memory = memory._replace(seen=seen)
        width = self._width if among(self.prior_scale, ("learn",)) else None
        prior_of = self._prior_of(data, targets, width is not None, seen)
        one = prior_of() if width is None else prior_of(width.value)
        prior = one.repeated(memory.prior.n_dim // one.n_dim)
        memory, posterior = memory.with_prior(prior, posterior)
        if memory.prior is prior:
            self._keep_prior(one)
        return memory, posterior

    def _learns_anew(self, memory, data, posterior, prior, k):
        """Whether the width of a prior is learned by all rows of a stream, again.

        Where there are many more of them than when it was, or in this batch, or their
        posterior, by the prior that it has, tells of another by now.
        """
        before, n_rows = self._width, data.n_units
        if not among(self.prior_scale, ("learn",)) or memory.seen is None:
            return False
        if before is None or n_rows >= GROWTH * before.n_rows:
            return True
        # Of many coefficients some rows tell it, which are not those of the posterior.
        if prior.n_dim > FULL_RANK:
            return False
        if n_rows >= MUCH * memory.kept.n_seen:
            return True
        moved = before.moved(posterior, prior, k, self.fit_intercept)
        return abs(moved) > MOVED * deviation_of_mode(before.curvature)

    def _learn_width(self, look, model_of, mean, last, rng, stream, spanned):
        """Learn how wide a prior is, by more than sums.

        Parameters
        ----------
        look : Look
        model_of : callable
            Returns the model of a source and what follows.
        mean : ndarray of shape (p, k)
            Of the coefficients, to start from.
        last : MeanField, FullRank or LowRank, or None
            The posterior to start from.
        rng : Generator
        stream : bool
        spanned : bool
            Whether rows are so few that the coefficients of their span tell it sooner.

        Returns
        -------
        look : Look
            With the prior of that width, and what the family has learned with it.
        near : Point, or None
            Where the posterior is then, about.
        passes : float
            Made over the rows.
        """
        data, targets, family, _, prior, prior_of, *_ = look
        near, passes = None, 0.0
        if stream and targets is not None and not _vary(targets):
            self._width = Width.of(0.0, 1.0, 0)  # that of its own prior
        elif self._tell_by_messages(data, prior, family):
            given = data, targets, prior_of, family.n_predictors, self.fit_intercept
            self._width = width_by_messages(*given, rng)
        elif prior.n_dim <= FULL_RANK and not spanned:
            given = family, targets, prior, data.total_weight, self.fit_intercept
            whole = model_of(data, *given, "full")
            start = self._start(whole, data, mean, last if look.afresh else None, rng)
            found = width_of_prior(whole, data, start, prior_of, self._width)
            self._width, near, family, passes = found
        else:
            given = data, targets, prior_of, family.n_predictors, rng
            self._width = self._width_by_some(model_of, *given)
        look = look._replace(family=family).of_width(self._width.value)
        self._keep_prior(look.one)
        return look, near, passes

    def _tell_by_messages(self, data, prior, family):
        """Whether coefficients of classes are too many for a bound to tell a width."""
        k = family.n_predictors
        few = too_few_for_bounds(data.total_weight, prior.n_dim // k, k)
        if k > 1 and among(self.posterior, ("lowrank",)):
            few = False  # it has many optima under a wide prior
        many = few or prior.n_dim > FULL_RANK
        of_classes = isinstance(family, Logistic | Softmax)
        return many and of_classes and messages_tell(data, k)

    def _keeps_rows(self, data, prior, n_before=0):
        """Whether a stream keeps rows, or sums of all of them."""
        few = prior.n_dim <= MOST_IN_GRAM
        return not self._has_gram or few or self._in_span(data, prior, n_before)

    def _memory_of(self, data, targets, prior, before=None):
        """Return what is kept of rows, and of those before; None is the posterior."""
        if not self._has_gram:
            family = self._family(self, data.n_units, data.n_features)
            about = self._given_prior, family, self.fit_intercept
            return Memory.of(data, targets, prior, about, before)
        if isinstance(before, Memory):
            return None
        about = (prior,) if before is None else (before.prior, len(before.rows))
        if not self._keeps_rows(data, *about):
            return None
        if data.remote:  # those of a fit
            return Gram.of_blocks(data)._replace(prior=prior)
        return Gram.of(data, targets, prior, before)

    def _keep_for_a_stream(self, opened):
        """Keep rows of a fit with groups that a stream may go on from, if they are few.

        They are a copy, in the order of their groups.
        """
        data = opened.data
        if self._has_gram or data.remote:
            return
        if Memory.holds(data.n_units, data.rows.nbytes):
            self._rows = data, opened.targets, opened.ids

    def _memory_of_groups(self, go_on):
        """Return the `Memory` of all rows before a batch with groups.

        None where they are not kept: as they are too many, of a fit on dask or one that
        was pickled, or the sums of squares and products say all of them.
        """
        none = Memory(KeptRows(), None)
        if self._has_gram or not go_on:
            return None if self._has_gram else none
        if "_memory" in vars(self):
            return self._memory
        rows = vars(self).get("_rows")  # rows of a fit do not travel
        if rows is None:
            return None
        memory = none.after_groups(*rows)
        return None if memory is None else memory.looked()

    def _memory_before(self):
        """Return what is kept of the rows before a batch."""
        if "_memory" in vars(self):
            return self._memory
        rows = vars(self).get("_rows")  # rows of a fit do not travel
        if self._has_gram:
            found = None if rows is None else self._memory_of(*rows)
        elif rows is None or rows[0].remote:
            return Memory.nothing(self._given_prior)
        else:
            found = self._memory_of(*rows).looked(self._given_prior)
        return None if found is None else found._replace(seen=self._moments(*rows[:2]))

    def _remember(self, new, look, go_on):
        """Keep of a batch, and of rows before it, what the next one is to see.

        Parameters
        ----------
        new : tuple (data, targets)
            The batch.
        look : Look
            At these rows, which has led to the posterior.
        go_on : bool
            Whether there were rows before.
        """
        self._forget_bound()
        memory = self._memory_of(*new, look.prior, look.memory)
        if not go_on and memory is not None:
            memory = memory._replace(seen=self._moments(*new))
        if isinstance(memory, Memory) and (not go_on or look.data is not new[0]):
            memory = memory.looked(self._given_prior)
        self._memory = memory


def _vary(targets):
    """Whether targets (n,) differ, or their first column (n, 2)."""
    first = targets if targets.ndim == 1 else targets[:, 0]
    return bool((first != first[0]).any())
