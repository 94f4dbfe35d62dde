"""Axes of displays with a picture for each part of a model."""

from skvrem.utils._base import optional

__all__ = ["new_axes"]


def new_axes(name, n_axes, n_columns, size, **kwargs):
    """Return axes on a new figure, `n_columns` in a row, each of the size in inches."""
    pyplot = optional("matplotlib.pyplot", "plot", name)
    n_columns = min(n_columns, n_axes)
    n_rows = -(-n_axes // n_columns)
    width, height = size
    _, axes = pyplot.subplots(
        n_rows,
        n_columns,
        squeeze=False,
        layout="constrained",
        figsize=(width * n_columns, n_rows * (0.3 + height)),
        **kwargs,
    )
    axes = axes.ravel()
    for unused in axes[n_axes:]:
        unused.remove()
    return axes[:n_axes]
