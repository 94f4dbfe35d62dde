"""Answers for containers of dask: an estimator's own, block by block.

A method that says something of each row says it of a block as of an array in memory.
`lazily` makes a lazy dask array of its answers, `averaged` one number of scores that
are means over rows.
"""

import copy
import inspect
import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np

from skvrem.utils._remote import (
    check_chunks,
    check_has_targets,
    check_table,
    is_frame,
    of_dask,
    refuse_dask,
)

Method = TypeVar("Method", bound=Callable[..., Any])
#: Arguments with one value for each row of X.
PER_ROW = ("y", "sample_weight", "groups", "offset")


def lazily(method: Method) -> Method:
    """Let a method of an estimator, that answers row by row, take X of dask.

    Its answer is a lazy dask array then. What it raises of an example (not fitted,
    other columns) it raises at once; what is wrong with rows, when they are computed.
    """
    signature = inspect.signature(method)

    @wraps(method)
    def answer(self, X, *args, **kwargs):
        if not any(map(of_dask, (X, *args, *kwargs.values()))):
            return method(self, X, *args, **kwargs)
        X, columns, others = _split(signature, self, X, args, kwargs)
        rows, own = _example(self, X, columns)
        with warnings.catch_warnings():
            # Of a single row, there may be more to say than of many.
            warnings.filterwarnings("ignore", category=RuntimeWarning)
            like = np.asarray(method(self, rows, **own, **others))
        function = partial(_answer_of_block, method, _light(self, X), others)
        from skvrem.data._dask import answers

        return answers(function, X, columns, like.shape[1:], like.dtype)

    return cast(Method, answer)


def averaged(score: Method) -> Method:
    """Let a score, a mean over rows, take X of dask, y and weights of either kind."""
    signature = inspect.signature(score)

    @wraps(score)
    def mean(self, X, *args, **kwargs):
        if not any(map(of_dask, (X, *args, *kwargs.values()))):
            return score(self, X, *args, **kwargs)
        X, columns, others = _split(signature, self, X, args, kwargs)
        function = partial(_score_of_block, others, score)
        value, weight = total_over_blocks(self, function, X, **columns)
        if not weight > 0.0:
            raise ValueError(
                "sample_weight is zero for every sample: nothing to score."
            )
        return float(value / weight)

    return cast(Method, mean)


def total_over_blocks(estimator, function, X, **columns):
    """Return the sum of what a function of an estimator and rows returns.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    function : callable
        ``function(estimator, rows, **columns)`` returns an array.
    X : dask array or DataFrame, or rows in memory, which are one block
    **columns : array-like or dask array of shape (n_rows,), or None
    """
    if not of_dask(X):
        refuse_dask(*columns.values())
        return function(estimator, X, **columns)
    X = _as_table(X)
    _check_example(estimator, X)
    from skvrem.data._dask import total

    return total(partial(_of_block, function, _light(estimator, X)), X, columns)


def _as_table(X):
    """Return a frame of dask as it is, an array whose blocks are of whole rows."""
    check_table(X)
    if is_frame(X):
        return X
    from skvrem.data._dask import as_rows

    return as_rows(X)


def _split(signature, estimator, X, args, kwargs):
    """Return X, what belongs to its rows, and other arguments."""
    given = signature.bind(estimator, X, *args, **kwargs).arguments
    names = list(given)
    X = given[names[1]]
    others = {name: given[name] for name in names[2:]}
    columns = {name: others.pop(name) for name in PER_ROW if name in others}
    if not of_dask(X):
        refuse_dask(*columns.values())  # which are, then
    X = _as_table(X)
    return X, columns, others


def _light(estimator, X):
    """Return a copy that travels: nothing but what answers need."""
    light = copy.copy(estimator)
    for name in ("_rows", "history_", *(() if is_frame(X) else ("feature_names_in_",))):
        vars(light).pop(name, None)
    for name in [name for name in vars(light) if name.startswith(("_skl_", "_callb"))]:
        del vars(light)[name]
    if hasattr(light, "n_jobs"):
        light.n_jobs = 1  # blocks run side by side
    return light


def _example(estimator, X, columns):
    """Return arguments for a row or two that could be of X."""
    if hasattr(estimator, "_example_rows"):
        rows = estimator._example_rows()
        if is_frame(X):
            rows = type(X._meta)(rows, columns=X.columns)
    elif is_frame(X):
        rows = X._meta_nonempty.iloc[:1]
    else:
        dtype = X.dtype if X.dtype.kind in "fiub" else np.float64
        rows = np.zeros((1, X.shape[1]), dtype)
    known = {"groups": vars(estimator).get("groups_", np.zeros(1))}
    found = {}
    for name, values in columns.items():
        like = np.resize(known.get(name, np.zeros(1)), len(rows))
        found[name] = None if values is None else like
    return rows, found


def _check_example(estimator, X):
    """Check, by a method that answers, that X has the columns of the fit."""
    ask = getattr(estimator, "predict", None) or estimator.transform
    ask(_example(estimator, X, {})[0])


def _answer_of_block(method, estimator, others, rows, **columns):
    check_chunks(rows, _takes_sparse(estimator))
    return np.asarray(method(estimator, rows, **columns, **others))


def _of_block(function, estimator, rows, **columns):
    check_chunks(rows, _takes_sparse(estimator))
    return function(estimator, rows, **columns)


def _score_of_block(others, score, estimator, rows, **columns):
    """Return the score of a block times its weight, and the weight."""
    weight = columns.get("sample_weight")
    n = float(rows.shape[0] if weight is None else np.sum(weight))
    value = score(estimator, rows, **columns, **others) if n > 0.0 else 0.0
    return np.array([n * value, n])


def _takes_sparse(estimator):
    return estimator.__sklearn_tags__().input_tags.sparse


def open_remote(
    X, look, weight=None, targets=None, groups=None, numbers=True, offset=None
):
    """Return a source of rows of dask, and what `look` has seen of each block.

    See :func:`skvrem.data._dask.open_blocks`.
    """
    from skvrem.data._dask import Columns, open_blocks

    return open_blocks(X, look, Columns(weight, targets, groups, offset), numbers)


def beside_rows(fresh):
    """Return numbers of each row of dask that stay there: ``fresh(n_rows)`` of a block.

    See :class:`skvrem.data._dask.RowState`.
    """
    from skvrem.data._dask import RowState

    return RowState(fresh)


def lives_beside(numbers):
    """Whether numbers are such."""
    return hasattr(numbers, "fresh")


def sum_beside(function, *numbers):
    """Return the sum of ``function(*numbers)`` of blocks, found where they are."""
    from skvrem.data._dask import sum_of_besides

    return sum_of_besides(function, numbers)


def streamed(partial_fit: Method) -> Method:
    """Let `partial_fit` take X of dask: its blocks are batches, one after the other."""
    signature = inspect.signature(partial_fit)
    y = signature.parameters.get("y")
    required = y is not None and y.default is y.empty

    @wraps(partial_fit)
    def learn(self, X, *args, **kwargs):
        if not any(map(of_dask, (X, *args, *kwargs.values()))):
            return partial_fit(self, X, *args, **kwargs)
        X, columns, others = _split(signature, self, X, args, kwargs)
        check_has_targets(self, columns.get("y"), required)
        from skvrem.data._dask import fetched

        before, n_blocks = dict(vars(self)), 0
        try:
            for rows, own in fetched(X, columns):
                partial_fit(self, rows, **own, **others)
                n_blocks += 1
            if not n_blocks:
                raise ValueError("Found array with 0 sample(s): X has no rows.")
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    return cast(Method, learn)
