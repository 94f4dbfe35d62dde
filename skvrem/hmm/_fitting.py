"""How a hidden Markov model is fitted: opened on rows, started, gone on with."""

from functools import partial
from itertools import cycle

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.hmm._inference import explain_impossible
from skvrem.hmm._model import HMMModel
from skvrem.hmm._plan import count_starts, plan_fit
from skvrem.hmm._start import starting_parameters
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.hmm.forward_backward._source import SequenceSource, open_sequences
from skvrem.hmm.transitions._homogeneous import Homogeneous, Initial
from skvrem.utils._reports import (
    Progress,
    warn_not_converged,
    warn_scale,
    with_callbacks,
)

__all__ = ["HMMFitting"]


class HMMFitting:
    """From validated parameters to fitted attributes."""

    def _open(
        self,
        X,
        groups,
        lengths,
        sample_weight,
        state_labels,
        first=True,
        carried=None,
        y=None,
        drop=True,
    ):
        """Validate everything; return the source, the model and the dtype."""
        sequences = open_sequences(
            self,
            X,
            groups,
            lengths,
            sample_weight,
            state_labels,
            reset=first,
            y=y,
            drop=drop,
        )
        n_rows = len(sequences.X)
        if first and n_rows < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = "
                f"{self.n_components}, n_samples = {n_rows}."
            )
        nothing = np.isnan(sequences.X[0]).all() and np.isnan(sequences.X).all()
        if first and nothing:
            raise ValueError(
                "All values of X are NaN, which stands for missing: nothing has been "
                "observed that a model could be fitted to."
            )
        if first:
            names = self._observed_names(self)
            emission = self._family().open(sequences.X, self.n_components, names)
        else:
            emission = self.emission_
            emission.check(sequences.X)
        fitted = vars(self).get("transitions_")
        if first or fitted is None:
            transitions = clone(self.transitions or Homogeneous())
            transitions.open(self.n_components)
            transitions.prepare(sequences.inputs, fitted if self.warm_start else None)
        else:
            transitions = fitted
        structure = self if first else self._of_fit
        initial = Initial(
            structure.startprob,
            structure.startprob_init,
            structure.startprob_prior,
            structure.n_components,
            transitions.first,
        )
        data = SequenceSource(sequences, emission, transitions, carried)
        model = HMMModel(
            data.emission,
            data.features,
            initial,
            transitions,
            data.total_weight,
            labelled=sequences.labels is not None,
        )
        return sequences, data, model

    @with_callbacks
    def _fit(self, X, y, sample_weight, groups, lengths, state_labels):
        sequences, data, model = self._open(
            X, groups, lengths, sample_weight, state_labels, y=y
        )
        dtype = sequences.X.dtype
        warm = self.warm_start and hasattr(self, "transmat_")
        n_init = 1 if warm else count_starts(self)
        plan, visited = plan_fit(self, model, data, n_init)
        describe = partial(self._attributes, model, dtype=dtype)
        temperature = schedules.Constant(1.0)
        if self.tempering is not None:
            temperature = schedules.Linear(self.temperature, self.annealing_iter)
        methods = cycle((self.init_params, "random"))

        def start(rng):
            point = self._starting_point(model, data, next(methods), rng, warm)
            return solvers.Start(model, point, describe, temperature=temperature)

        with Progress(self, X, y, n_init) as progress:
            try:
                random_state = check_random_state(self.random_state)
                best, attributes = solvers.run_starts(
                    self, start, plan, visited, progress, random_state
                )
                if self.acceleration == "lbfgs":  # whose points have no statistics
                    statistics = model.mean(best.point, data)
                    point = best.point._replace(statistics=statistics)
                    best = best._replace(point=point)
                    attributes |= describe(point)
            except Impossible as error:
                raise explain_impossible(error, sequences) from None
        warn_not_converged(self, best)
        if best.converged:
            self._warn_widths(model, best.point)
        prior = model.log_prior(best.point.parameters) / model.total
        vars(self).pop("_carried", None)  # it is of a stream that is past
        vars(self).update(
            attributes,
            log_likelihood_=best.objective - prior,
            n_parameters_=model.n_parameters(),
            n_samples_seen_=len(sequences.X) + (self._seen() if warm else 0),
        )

    def _warn_widths(self, model, point):
        """Warn of variances that are those of reg_covar."""
        emission, features = point.parameters.emission, point.statistics.features
        names = self._observed_names(self)
        for *about, weight in model.emission.widths(emission, features, names):
            if warn_scale(self, *about, weight * model.total):
                break

    def _starting_point(self, model, data, method, rng, warm=False):
        if warm:
            parameters = self._parameters()
            emission = model.emission.blank()
            same = parameters.emission.shape == emission.shape
            same = same and len(parameters.startprob) == self.n_components
            if type(self._fitted_transitions()) is not type(model.transitions):
                same = False
            if not same:
                raise ValueError(
                    "The earlier fit cannot be gone on from with these parameters and "
                    "features: use a new estimator, or warm_start=False."
                )
            (batch,) = data.chunks().batches
            try:
                model.passes(parameters, batch).forward()
            except Impossible:  # what the earlier rows did not hold
                parameters = model.relax(parameters, data.rows.mean_features())
            return model.start(parameters)
        return model.start(
            starting_parameters(model, data.rows, method, rng, data.inputs)
        )

    def _attributes(self, model, point, dtype):
        """Return the fitted attributes of a point, and its statistics."""
        startprob, transmat, packed = point.parameters
        dtype = np.result_type(dtype, np.float32)
        emission, transitions = clone(model.emission), clone(model.transitions)
        vars(emission).update(vars(model.emission))
        vars(transitions).update(vars(model.transitions))
        emission.publish(packed, dtype)
        return {
            "startprob_": startprob.astype(dtype),
            "transmat_": transitions.publish(transmat, dtype),
            "transitions_": transitions,
            "emission_": emission,
            "_sums": tuple(point.statistics[:3]),
        }
