"""Sources of rows: arrays, CSR matrices, memory maps and dask arrays."""

from skvrem.data._arrays import drawn_rows, rows_of, rows_of_block
from skvrem.data._batch import draw
from skvrem.data._first_rows import begin_stream, fitted_to_some, forget_stream
from skvrem.data._kept import (
    MOST_BYTES,
    KeptRows,
    StreamRows,
    container,
    joined,
    weights_of,
)
from skvrem.data._lazy import (
    averaged,
    beside_rows,
    lazily,
    lives_beside,
    open_remote,
    streamed,
    sum_beside,
    total_over_blocks,
)
from skvrem.data._moments import ColumnMoments, column_moments
from skvrem.data._source import as_source
from skvrem.utils._remote import is_dask, of_dask

__all__ = [
    "MOST_BYTES",
    "ColumnMoments",
    "KeptRows",
    "StreamRows",
    "as_source",
    "averaged",
    "begin_stream",
    "beside_rows",
    "column_moments",
    "container",
    "draw",
    "drawn_rows",
    "fitted_to_some",
    "forget_stream",
    "is_dask",
    "joined",
    "lazily",
    "lives_beside",
    "of_dask",
    "open_remote",
    "rows_of",
    "rows_of_block",
    "streamed",
    "sum_beside",
    "total_over_blocks",
    "weights_of",
]
