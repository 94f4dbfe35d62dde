"""What displays draw on: the caller's axes, or those of a new figure."""

import numpy as np

from skvrem.utils._base import optional

__all__ = ["numbers_of_parts", "one_axis", "titled_axes"]


def one_axis(display, ax, **kwargs):
    """Give a display its axis, that of a new figure where `ax` is None."""
    if ax is None:
        pyplot = optional("matplotlib.pyplot", "plot", type(display).__name__)
        _, ax = pyplot.subplots(**kwargs)
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def titled_axes(display, ax, n_parts, part, n_columns, size, **kwargs):
    """Give a display with `titles` an axis for each part of a model, with its title.

    Where `ax` is None they are those of a new figure, `n_columns` in a row, each of the
    size in inches.

    Raises
    ------
    ValueError
        If there are other numbers of titles or axes.
    """
    titles = display.titles
    if titles is None:
        titles = [f"{part} {k}" for k in range(n_parts)]
    if len(titles) != n_parts:
        raise ValueError(f"Expected {n_parts} titles, got {len(titles)}.")
    if ax is None:
        pyplot = optional("matplotlib.pyplot", "plot", type(display).__name__)
        n_columns = min(n_columns, n_parts)
        n_rows = -(-n_parts // n_columns)
        _, grid = pyplot.subplots(
            n_rows,
            n_columns,
            squeeze=False,
            layout="constrained",
            figsize=(size[0] * n_columns, n_rows * (0.3 + size[1])),
            **kwargs,
        )
        ax = grid.ravel()[:n_parts]
        for unused in grid.ravel()[n_parts:]:
            unused.remove()
    axes = np.array(ax, dtype=object).ravel()
    if len(axes) != n_parts:
        raise ValueError(
            f"ax must hold one axis for each of the {n_parts} {part}s, got {len(axes)}."
        )
    for one, title in zip(axes, titles, strict=True):
        one.set_title(title)
    display.axes_, display.figure_ = axes, axes[0].figure
    return axes


def numbers_of_parts(chosen, n_parts, part):
    """Return the numbers of the parts to draw, all where none are chosen.

    Raises
    ------
    ValueError
        If there is no such part.
    """
    numbers = np.arange(n_parts) if chosen is None else np.asarray(chosen)
    if numbers.ndim != 1 or not np.isin(numbers, np.arange(n_parts)).all():
        raise ValueError(
            f"{part}s must be a list of numbers from 0 to {n_parts - 1}, got "
            f"{numbers.tolist()}."
        )
    return numbers
