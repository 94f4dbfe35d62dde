"""The state of an installation, for bug reports."""


def show_versions():
    """x."""
