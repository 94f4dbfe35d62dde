"""Displays: pictures of what a fit did and found."""

__all__ = ["ConvergenceDisplay"]


class ConvergenceDisplay:
    """x."""
