"""The rows of the table that ``mixture_table.py`` prints.

Each module has one function a group of rows: it takes the `Settings` and yields
`harness.Row`.
"""

import sys
from pathlib import Path
from typing import NamedTuple

# The data is shared with the benchopt benchmark, which has its own import rules.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gaussian_mixture"))

__all__ = ["Settings"]


class Settings(NamedTuple):
    """How to measure.

    Attributes
    ----------
    quick : bool
        Small sizes: to see that everything runs. The targets do not apply.
    repeats : int
        Repetitions of each timing, of which the minimum counts.
    seeds : int
        Starts of each fit whose passes are counted.
    extrapolate : bool
        Multiply scikit-learn's iterations by its seconds an iteration instead of
        running them all.
    log : callable
        Called with a line of text as things happen.
    """

    quick: bool
    repeats: int
    seeds: int
    extrapolate: bool
    log: object
