"""The rows of the table that ``topics_table.py`` prints.

Each module has one function a group of rows: it takes the `Settings` and yields
`harness.Row`.
"""

import sys
from pathlib import Path
from typing import NamedTuple

# The corpora are shared with the benchopt benchmark, which has its own import rules.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plsa"))

from benchmark_utils import corpora

__all__ = ["Settings", "each_corpus"]


class Settings(NamedTuple):
    """How to measure.

    Attributes
    ----------
    quick : bool
        Small corpora: to see that everything runs. The targets do not apply.
    repeats : int
        Repetitions of each timing, of which the minimum counts.
    seeds : int
        Starts of our fits to a level.
    corpora : list of str
    topics : list of int
    log : callable
        Called with a line of text as things happen.
    temperings : iterable of str
        Names of those compared in "lda-temperings".
    epochs : int or None
        Of their fits; None is what each has by default.
    peers : iterable of str
        Names of those compared in "held-out".
    """

    quick: bool
    repeats: int
    seeds: int
    corpora: list
    topics: list
    log: object
    temperings: object
    epochs: int | None
    peers: object


def each_corpus(settings):
    """Yield the corpora asked for that are there."""
    for key in settings.corpora:
        try:
            yield corpora.load(key, 500 if settings.quick else None)
        except corpora.Unavailable as error:
            settings.log(f"left out: {error}")
