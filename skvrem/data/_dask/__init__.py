"""Rows of dask containers: passes travel to the blocks, and minibatches are visited.

A full pass sends the model and its parameters to the blocks once, evaluates each where
it lies and adds the statistics up in a tree, so that only statistics travel. What
belongs to the rows (weights, targets, groups) is sent once and kept beside them. A step
of minibatches sends the point to one of them and brings back what it says; what is
remembered of it stays beside its block. The engine is dask's, whichever scheduler it is
told to use; the array as a whole is never in one place.
"""

from skvrem.data._dask._answers import answers, fetched, total
from skvrem.data._dask._containers import (
    Columns,
    array_of,
    as_rows,
    parts_of,
    stacked,
)
from skvrem.data._dask._partition import DaskPartition, RowState, sum_of_besides
from skvrem.data._dask._source import DaskSource, open_blocks
from skvrem.data._dask._tasks import (
    HeldAway,
    add_up,
    apply,
    call,
    compute,
    keep,
    send,
)

__all__ = [
    "Columns",
    "DaskPartition",
    "DaskSource",
    "HeldAway",
    "RowState",
    "add_up",
    "answers",
    "apply",
    "array_of",
    "as_rows",
    "call",
    "compute",
    "fetched",
    "keep",
    "open_blocks",
    "parts_of",
    "send",
    "stacked",
    "sum_of_besides",
    "total",
]
