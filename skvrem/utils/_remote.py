"""Dask's containers, known without importing dask."""


def of_dask(X):
    """Whether X is a container of dask."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


class LostBesideRows(RuntimeError):
    """What was kept beside rows is lost, and an epoch cannot go on."""


def is_dask(X):
    """Whether X is a dask array, found out without importing dask."""
    return of_dask(X) and hasattr(X, "to_delayed") and hasattr(X, "dtype")


def is_frame(X):
    """Whether X is a frame, or a series, of dask."""
    return of_dask(X) and hasattr(X, "to_dask_array")


def refuse_dask(*containers):
    """Raise a TypeError for a container of dask, which numpy would load in silence."""
    for X in containers:
        if of_dask(X):
            raise TypeError(
                f"This method takes data in memory, not a dask {type(X).__name__}: "
                "pass X.compute(), or its partitions one by one (fit them with "
                "partial_fit)."
            )


def check_chunks(rows, sparse):
    """Check that a block is of numpy or, where `sparse` rows can be, a CSR matrix.

    Raises
    ------
    TypeError
        If it is not.
    """
    csr = hasattr(rows, "tocsr")
    if hasattr(rows, "todense") and not (csr and sparse):
        raise TypeError(
            f"The chunks of X are sparse ({type(rows).__name__}), and this model needs "
            f"{'CSR matrices or ' if sparse else ''}dense ones: pass "
            "X.map_blocks(lambda block: block.toarray())."
        )


def check_table(X):
    """Check that a container of dask has rows and columns.

    Raises
    ------
    ValueError
        If it is a Series, say.
    TypeError
        If it is no array and no DataFrame.
    """
    if is_frame(X):
        if X.ndim != 2:
            raise ValueError(
                f"X must have two dimensions, got a dask {type(X).__name__}: pass a "
                "DataFrame, as X.to_frame()."
            )
    elif not hasattr(X, "numblocks"):
        raise TypeError(
            f"X must be a dask array or DataFrame, got a dask {type(X).__name__}: its "
            "partitions, one by one, go to partial_fit."
        )


def check_has_targets(estimator, y, required):
    """Check that targets are given with rows of dask.

    Raises
    ------
    ValueError
        If they are not, and are required.
    """
    if required and y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but "
            "the target y is None."
        )
