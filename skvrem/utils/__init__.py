"""Shared tools."""

from skvrem.utils._versions import show_versions

__all__ = ["show_versions"]
