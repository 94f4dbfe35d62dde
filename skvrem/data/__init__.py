"""Sources of rows: arrays, CSR matrices, memory maps, dask arrays and documents."""

from skvrem.data._documents import as_documents, open_documents
from skvrem.data._source import as_source, known_sizes
from skvrem.utils._remote import is_dask

__all__ = ["as_documents", "as_source", "is_dask", "known_sizes", "open_documents"]
