"""What all tables share: rows, timing, measuring processes, stored results."""

from benchmarks.harness.rows import Row, Unavailable, group
from benchmarks.harness.timing import allocated, an_iteration, fastest, quiet, timed

__all__ = [
    "Row",
    "Unavailable",
    "allocated",
    "an_iteration",
    "fastest",
    "group",
    "quiet",
    "timed",
]
