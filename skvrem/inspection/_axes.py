"""What displays draw on: the caller's axes, or those of a new figure."""

from skvrem.utils._base import optional


def one_axis(display, ax, **kwargs):
    """Return a display's axis, of a new figure where `ax` is None, and its figure."""
    if ax is None:
        pyplot = optional("matplotlib.pyplot", "plot", type(display).__name__)
        _, ax = pyplot.subplots(**kwargs)
    return ax, ax.figure
