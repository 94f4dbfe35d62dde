"""Hidden Markov models of streams: one step of stochastic EM with each batch."""

import numpy as np
from sklearn.utils import check_random_state

from skvrem import solvers
from skvrem.hmm._inference import explain_impossible
from skvrem.hmm._model import Statistics
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Impossible, Passes
from skvrem.utils._algebra import scale
from skvrem.utils._averaging import AveragingPoint
from skvrem.utils._parallel import threads
from skvrem.utils._validation import all_or_nothing

__all__ = ["HMMStream"]


class HMMStream:
    """Fitting piece by piece."""

    def _seen(self):
        return getattr(self, "n_samples_seen_", 0)

    def partial_fit(
        self,
        X,
        y=None,
        *,
        sample_weight=None,
        groups=None,
        lengths=None,
        state_labels=None,
        continues=False,
    ):
        """Update the model with some sequences, or the next rows of an endless one.

        One step of stochastic EM: the statistics move by
        ``step_size * (t + step_offset) ** -step_decay`` towards those of the batch,
        where t is the number of such batches seen. The first batch finds the starting
        values, so it should hold a few hundred rows or more. Goes on from a `fit`.
        What batches may hold later need not be in the first, but the number of
        categories must be given, as ``Categorical(n_categories=...)``, if it is not.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of sequences, one after another; NaN is missing.
        y : Ignored
            Present by convention, with an entry a row; `lengths` go by name.
        sample_weight : array-like of shape (n_samples,), default=None
            Sequences count so many times: the same for all rows of one.
        groups : array-like of shape (n_samples,), default=None
            The id of each row's sequence; None is one sequence.
        lengths : array-like of int, default=None
            Lengths of the sequences, in place of `groups`.
        state_labels : array-like of int of shape (n_samples,), default=None
            States that are known, -1 where they are not.
        continues : bool, default=False
            The first row follows the last row of the last batch, whose state's
            probabilities have been kept.

        Returns
        -------
        self : VRHMM
            The fitted model.
        """
        first = not hasattr(self, "transmat_")
        # What later batches are given to counts as it did for the first.
        structure = None if first else vars(self).get("_fit_parameters")
        with all_or_nothing(self), threads(self.n_jobs):
            self._check_parameters()
            if continues and not hasattr(self, "_carried"):
                raise ValueError(
                    "continues=True needs an earlier partial_fit, whose last row the "
                    "first of these rows follows."
                )
            carried, before = self._carried if continues else (None, None)
            sequences, data, model = self._open(
                X,
                groups,
                lengths,
                sample_weight,
                state_labels,
                first,
                before,
                y,
                drop=False,  # the last row is what the next batch may follow
            )
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            rng = np.random.default_rng(seed)
            if first:
                dtype, seen = sequences.X.dtype, 0
                point = self._starting_point(model, data, self.init_params, rng)
            else:
                dtype, seen = self.transmat_.dtype, self._seen()
                point = AveragingPoint(
                    self._parameters(), Statistics(*self._sums, 0.0, 0.0)
                )
            layout = Layout(
                data.rows, np.arange(data.n_units), sequences.weight, continues
            )

            def expect(point):
                chain = model.chain(point.parameters)
                passes = Passes(layout, chain, carried=carried)
                return passes, model.collect(passes, point)

            try:
                passes, sums = expect(point)
            except Impossible:  # what the batches before did not hold
                mean = data.rows.mean_features()
                relaxed = model.relax(point.parameters, mean)
                try:
                    passes, sums = expect(point._replace(parameters=relaxed))
                except Impossible as error:
                    raise explain_impossible(error, sequences) from None
            mean = scale(sums, 1.0 / data.total_weight)
            if continues and len(sequences.bounds) == 2:
                # Nothing has been seen of how sequences begin.
                mean = mean._replace(start=point.statistics.start)
            objective = float(mean.objective)
            model.total = data.total_weight + seen
            count = seen / len(sequences.X)
            step = solvers.stream_step(self, model, point, data, count, mean=mean)
            inputs = sequences.inputs
            last_inputs = None if inputs is None else inputs[-1].copy()
            found = self._attributes(model, step.point, dtype) | {
                "log_likelihood_": objective,
                "n_parameters_": model.n_parameters(),
                "n_samples_seen_": seen + len(sequences.X),
                "_carried": (passes.last(), last_inputs),
            }
            step.record(self, found)
        if structure is not None:
            self._fit_parameters = structure
        return self
