"""What all estimators share beyond scikit-learn's own base class."""

import importlib
import inspect
from types import SimpleNamespace

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils import check_array

from skvrem import __version__
from skvrem.utils._remote import refuse_dask


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
        "inner_tol",
        "handle_unknown",
        "max_inner_iter",
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


def check_unchanged(estimator, *names):
    """Check that a stream goes on with the parameters that give a model its shape.

    Raises
    ------
    ValueError
        If one of them has another value than in the fit.
    """
    for name in names:
        before, now = getattr(estimator._of_fit, name), getattr(estimator, name)
        if not _same(before, now):
            raise ValueError(
                f"{name} has changed since the first rows, from {before!r} to {now!r}: "
                "fit anew."
            )


def _same(a, b):
    """Whether two parameters are the same, estimators by theirs."""
    if type(a) is not type(b):
        return False
    if isinstance(a, BaseEstimator):
        a, b = a.get_params(deep=False), b.get_params(deep=False)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if hasattr(a, "__array__"):
        a, b = np.asarray(a), np.asarray(b)
        number = a.dtype.kind == b.dtype.kind == "f"
        return np.array_equal(a, b, equal_nan=number)
    return a is b or a == b


class VersionedPickle(FitRecord):
    """Pickles that say which version wrote them, without what a fit knows of its rows.

    A class raises :attr:`_state_format` when a change of its attributes makes older
    pickles meaningless; until then every later version loads them.
    """

    _state_format = 1

    def __getstate__(self):
        state = dict(super().__getstate__())
        state.pop("_of_rows", None)
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
        new = {p.name: p.default for p in parameters if p.default is not p.empty}
        super().__setstate__(new | state)


class ComponentsMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Transformer of rows to weights of ``components_``, and back."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def _mix(self, X, components, name):
        """Return the components mixed by the rows of X, by the name of such parts."""
        refuse_dask(X)
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(components):
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are {len(components)} {name}."
            )
        return X @ components


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


def feature_names(estimator):
    """Return the names of the features of an estimator."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"x{j}" for j in range(estimator.n_features_in_)]
    return list(names)


def summary_table(columns, index, facts):
    """Return a labelled table.

    Parameters
    ----------
    columns : dict of str to array-like of shape (n_rows,)
    index : list of str
        Labels of the rows.
    facts : dict
        What concerns the whole fit.

    Returns
    -------
    table : pandas.DataFrame or str
        The frame carries the facts in its ``attrs``; the text ends with them.
    """
    try:
        import pandas as pd
    except ImportError:
        return _text(columns, index, facts)
    frame = pd.DataFrame(columns, index=index)
    frame.attrs.update(facts)
    return frame


def fit_facts(estimator, objective):
    """Return how a fit went: what it cost, how many starts reached its objective.

    The last two are not known of a stream, which has no history.
    """
    facts = {"solver": estimator.solver_, "converged": estimator.converged_}
    if not hasattr(estimator, "history_"):
        return facts
    best = estimator.init_scores_ >= objective - max(estimator._of_fit.tol, 1e-3)
    return facts | {
        "passes": float(estimator.history_["passes"][-1]),
        "starts_at_best": f"{best.sum()} of {best.size}",
    }


def _text(columns, index, facts):
    def cell(value):
        return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)

    rows = zip(*columns.values(), strict=True)
    table = [["", *columns]]
    table += ([i, *map(cell, row)] for i, row in zip(index, rows, strict=True))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in table]
    lines += [f"{name}: {cell(value)}" for name, value in facts.items()]
    return "\n".join(lines)
