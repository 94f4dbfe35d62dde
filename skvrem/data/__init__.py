"""Sources of rows: arrays, CSR matrices, memory maps and dask arrays."""

from skvrem.data._source import as_source
from skvrem.utils._remote import is_dask

__all__ = ["as_source", "is_dask"]
