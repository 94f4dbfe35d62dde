"""Shared tools."""

from skvrem.utils._installation import show_versions, warm_up

__all__ = ["show_versions", "warm_up"]
