"""What all estimators share beyond scikit-learn's own base class."""

import importlib
import inspect
from types import SimpleNamespace

from sklearn.base import BaseEstimator, clone

from skvrem import __version__

__all__ = ["FitRecord", "VersionedPickle"]


class FitRecord:
    """Parameters as they were when the estimator was fitted.

    Answers of a fitted estimator belong to its fit: what they need of the constructor's
    parameters they read from `_of_fit`, not from the estimator, so that
    `set_params` leaves them as they are. The exceptions are parameters *of* prediction,
    `PREDICTION_PARAMETERS`, which count as they are now.
    """

    def _remember_parameters(self):
        """Keep the parameters of a fit that has ended well."""
        vars(self).update(self._record_of_fit())

    def _record_of_fit(self):
        """Return what keeps the parameters that a fit has now, by name."""
        now = self.get_params(deep=False)
        return {"_fit_parameters": {name: _kept(now[name]) for name in now}}

    @property
    def _of_fit(self):
        """Parameters of the last fit; without a fit, those of now."""
        now = self.get_params(deep=False)
        kept = vars(self).get("_fit_parameters", {})
        kept = {k: v for k, v in kept.items() if k not in PREDICTION_PARAMETERS}
        return SimpleNamespace(**(now | kept))


#: Constructor parameters that are read when an answer is asked for.
PREDICTION_PARAMETERS = frozenset(
    {
        "algorithm",
        "code_tol",
        "handle_unknown",
        "max_code_iter",
        "max_doc_update_iter",
        "mean_change_tol",
        "n_jobs",
        "random_state",
        "verbose",
    }
)


def _kept(value):
    """A parameter that later changes of the estimator do not reach."""
    # Only what set_params can change is copied: an own model may be large.
    return clone(value) if isinstance(value, BaseEstimator) else value


class VersionedPickle(FitRecord):
    """Pickles that say which version wrote them.

    A class raises :attr:`_state_format` when a change of its attributes makes older
    pickles meaningless; until then every later version loads them.
    """

    _state_format = 1

    def __getstate__(self):
        state = super().__getstate__()
        return {
            **state,
            "_skvrem_version": __version__,
            "_skvrem_state_format": self._state_format,
        }

    def __setstate__(self, state):
        state = dict(state)
        version = state.pop("_skvrem_version", "unknown")
        written = state.pop("_skvrem_state_format", None)
        if written != self._state_format:
            raise ValueError(
                f"This {type(self).__name__} was pickled by skvrem {version} (state "
                f"format {written}), and skvrem {__version__} reads format "
                f"{self._state_format}. Fit it again, or load it with "
                f"skvrem {version}."
            )
        # Parameters that have come since have their defaults.
        parameters = inspect.signature(type(self).__init__).parameters.values()
        kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        new = {
            p.name: p.default
            for p in parameters
            if p.kind not in kinds and p.default is not inspect.Parameter.empty
        }
        super().__setstate__(new | state)


def optional(module, extra, purpose):
    """Import an optional dependency, or say which extra brings it.

    Raises
    ------
    ImportError
        With the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module}: pip install 'skvrem[{extra}]'"
        ) from error
