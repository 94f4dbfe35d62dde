"""What displays draw on: the caller's axes, or those of a new figure."""

import numpy as np

from skvrem.utils._base import optional


def state_colours(display, n_states):
    """Return a colour for each state, the same in all displays."""
    pyplot = optional("matplotlib.pyplot", "plot", type(display).__name__)
    colours = pyplot.get_cmap("tab10" if n_states <= 10 else "tab20").colors
    return [colours[state % len(colours)] for state in range(n_states)]


def one_axis(display, ax, **kwargs):
    """Return a display's axis, of a new figure where `ax` is None, and its figure."""
    if ax is None:
        pyplot = optional("matplotlib.pyplot", "plot", type(display).__name__)
        _, ax = pyplot.subplots(**kwargs)
    return ax, ax.figure


def check_axes(axes, n_parts, parts, name="axes"):
    """Return axes of any arrangement in one dimension, one for each part.

    Raises
    ------
    ValueError
        If there are more or fewer.
    """
    axes = np.array(axes, dtype=object).ravel()
    if len(axes) != n_parts:
        raise ValueError(
            f"{name} must hold one axis for each of the {n_parts} {parts}, got "
            f"{len(axes)}."
        )
    return axes
