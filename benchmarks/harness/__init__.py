"""What the tables of speed and memory share: rows, timing, measuring processes."""

from harness.table import Row

__all__ = ["Row"]
