"""Atoms of the data: values of a column that come again for a reason.

A component all of whose rows have one is no wider than ``reg_covar`` along that column,
and no worse for it, as the next rows will have it too; unlike one on a value that some
rows share by chance, or as they were rounded.
"""

import numpy as np

# Rows that are looked at.
LOOK = 2000
# All values of codes are atoms, as of classes and answers: few, of many rows each.
MOST_CODES, ROWS_A_CODE = 10, 10
# Else two at most, so many times as frequent as any other: zeros of rainfall, and both
# ends of a scale where measurements are cut off.
MOST_ENDS, TIMES = 2, 10


def atoms_of(data):
    """Return atoms of a source of rows, of some where there are many.

    Returns
    -------
    atoms : ndarray of shape (MOST_CODES, n_features)
        NaN where a column has fewer.
    """
    sample = data.sample(LOOK, np.random.default_rng(0))
    rows = sample.rows[sample.ids]
    atoms = np.full((MOST_CODES, rows.shape[1]), np.nan)
    for column, found in zip(rows.T, atoms.T, strict=True):
        values, counts = np.unique(column, return_counts=True)
        if len(values) > min(MOST_CODES, len(rows) // ROWS_A_CODE):
            often = np.argsort(counts)[::-1]
            others = counts[often[MOST_ENDS:]].max(initial=1)
            ends = often[:MOST_ENDS]
            values = values[ends[counts[ends] >= TIMES * others]]
        found[: len(values)] = values
    return atoms
