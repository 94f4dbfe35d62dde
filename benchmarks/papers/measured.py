"""What was measured: kept in a file, as it takes long, and told with its range."""

import argparse
import csv
import json
from pathlib import Path

import numpy as np

__all__ = ["FIGURES", "Known", "load", "parser", "save", "told"]

FIGURES = Path(__file__).resolve().parent / "figures"


def parser(doc):
    """Return a parser of a module of this docstring, and the folder of its figures."""
    made = argparse.ArgumentParser(description=doc.partition("\n")[0])
    made.add_argument("--figures", type=Path, default=FIGURES)
    return made


def load(path, types):
    """Return the rows of a file, none where there is none.

    Parameters
    ----------
    path : pathlib.Path
    types : tuple of callables
        What makes a value of the text in each column.
    """
    if not path.exists():
        return []
    with open(path, newline="") as file:
        _, *lines = csv.reader(file)
    return [
        tuple(make(text) for make, text in zip(types, line, strict=True))
        for line in lines
    ]


def save(path, names, rows):
    """Write names of columns, and rows, whose floats keep nine digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            writer.writerow([f"{x:.9g}" if isinstance(x, float) else x for x in row])


class Known(dict):
    """A dict that is kept in a JSON file, if there is to be one.

    Parameters
    ----------
    path : pathlib.Path or None
    """

    def __init__(self, path):
        self.path = path
        if path and path.exists():
            self.update(json.loads(path.read_text()))

    def keep(self):
        """Write the file."""
        if self.path:
            self.path.write_text(json.dumps(self, indent=1))


def told(values, form="{:.3g}"):
    """Return a median with its range as text."""
    low, middle, high = (form.format(f(values)) for f in (min, np.median, max))
    return f"{middle} ({low}, {high})"
