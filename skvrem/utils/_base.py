"""What all estimators share beyond scikit-learn's own base class."""

import importlib
import inspect

from skvrem import __version__

__all__ = ["VersionedPickle"]


class VersionedPickle:
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
