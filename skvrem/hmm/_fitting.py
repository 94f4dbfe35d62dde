"""How a hidden Markov model is fitted: opened on rows, started, gone on with."""

import time
from functools import partial

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.hmm._inference import explain_impossible
from skvrem.hmm._model import HMMModel
from skvrem.hmm._model_passes import Impossible
from skvrem.hmm._plan import plan_fit
from skvrem.hmm._sequences import SequenceSource, open_sequences
from skvrem.hmm._start import starting_parameters
from skvrem.hmm._transitions import Homogeneous, Initial
from skvrem.utils._messages import warn_not_converged
from skvrem.utils._progress import Progress, with_callbacks
from skvrem.utils._scale import warn_scale

__all__ = ["HMMFitting"]

# Starts of "auto", and epochs of each before the best goes on.
STARTS, SHORT = 8, 6


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
        plan = plan_fit(self, data)
        dtype = sequences.X.dtype
        random_state = check_random_state(self.random_state)
        warm = self.warm_start and hasattr(self, "transmat_")
        n_init = self.n_init
        if n_init == "auto":
            one = self.n_components == 1 or self.tempering is not None
            n_init = 1 if one else STARTS
        n_init = 1 if warm else n_init
        short = (n_init > 1 or plan.leads) and self.tempering is None
        temperature = schedules.Constant(1.0)
        if self.tempering is not None:
            temperature = schedules.Linear(self.temperature, self.annealing_iter)
        results, seconds = [], []
        with Progress(self, X, y, n_init) as progress:

            def run(solver, report, point, rng, max_iter, began, passes=0.0):
                return solvers.run(
                    model,
                    solver,
                    plan.data,
                    point,
                    step_size=schedules.Constant(plan.step_size),
                    temperature=temperature,
                    max_iter=max_iter,
                    tol=self.tol,
                    rng=rng,
                    report=report,
                    passes=passes,
                    seconds=time.perf_counter() - began,
                )

            attributes = partial(self._attributes, model, dtype=dtype)
            try:
                for number in range(n_init):
                    began = time.perf_counter()
                    rng = np.random.default_rng(random_state.randint(2**31 - 1))
                    point = self._starting_point(model, data, number, rng, warm)
                    report = progress.start(number, attributes)
                    epochs = min(SHORT, self.max_iter) if short else self.max_iter
                    solver = plan.lead if short else plan.solver
                    results.append(run(solver, report, point, rng, epochs, began))
                    seconds.append(began)
                    if not short and report.end():
                        break
                scores = np.array([result.objective for result in results])
                chosen = int(np.where(np.isnan(scores), -np.inf, scores).argmax())
                best = results[chosen]
                if short and not (best.converged or best.stopped):
                    more = partial(run, plan.solver, report)
                    best = self._continue(more, best, seconds[chosen], rng)
                if best.history and plan.leads:  # a point without its statistics
                    statistics = model.mean(best.point, data)
                    best = best._replace(
                        point=best.point._replace(statistics=statistics)
                    )
                if short:
                    report.end()
            except Impossible as error:
                raise explain_impossible(error, sequences) from None
        warn_not_converged(self, best)
        if best.converged:
            self._warn_widths(model, best.point)
        prior = model.log_prior(best.point.parameters) / model.total
        vars(self).pop("_carried", None)  # it is of a stream that is past
        vars(self).update(
            self._attributes(model, best.point, dtype),
            **best.attributes(),
            log_likelihood_=best.objective - prior,
            solver_=best.history[-1].solver,
            init_scores_=scores,
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

    def _continue(self, run, best, began, rng):
        """Go on from the best of the short starts."""
        left = self.max_iter - best.n_iter
        if left <= 0:
            return best
        passes = best.history[-1].passes
        more = run(best.point, rng, left, began, passes)
        return solvers.joined([best, more])

    def _starting_point(self, model, data, number, rng, warm):
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
        method = self.init_params if number % 2 == 0 else "random"
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
