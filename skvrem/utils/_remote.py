"""Dask arrays, known without importing dask."""

__all__ = ["is_dask", "refuse_dask"]


def is_dask(X):
    """Whether X is a dask array, found out without importing dask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "to_delayed")


def refuse_dask(X):
    """Raise a TypeError for a dask array, which validation would load silently."""
    if is_dask(X):
        raise TypeError(
            "This model takes documents in memory, not a dask array: pass "
            "X.compute(), or its blocks one by one to partial_fit."
        )
