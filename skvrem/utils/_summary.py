"""Tables that people read: a pandas frame where pandas is installed, else text."""

import numpy as np

__all__ = ["fit_facts", "summary_table"]


def summary_table(columns, index, facts):
    """Return a labelled table.

    Parameters
    ----------
    columns : dict of str to array-like of shape (n_rows,)
    index : list of str
        Labels of the rows.
    facts : dict
        What concerns the whole fit.

    Returns
    -------
    table : pandas.DataFrame or str
        The frame carries the facts in its ``attrs``; the text ends with them.
    """
    try:
        import pandas as pd
    except ImportError:
        return _text(columns, index, facts)
    frame = pd.DataFrame(columns, index=index)
    frame.attrs.update(facts)
    return frame


def fit_facts(estimator, objective):
    """Return what a fit cost and how many starts reached its objective.

    Nothing for a stream, which has no history.
    """
    if not hasattr(estimator, "history_"):
        return {}
    best = estimator.init_scores_ >= objective - max(estimator._of_fit.tol, 1e-3)
    return {
        "passes": float(estimator.history_["passes"][-1]),
        "starts_at_best": f"{best.sum()} of {best.size}",
    }


def _text(columns, index, facts):
    def cell(value):
        return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)

    table = [
        ["", *columns],
        *([i, *map(cell, row)] for i, row in _rows(columns, index)),
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in table]
    lines += [f"{name}: {cell(value)}" for name, value in facts.items()]
    return "\n".join(lines)


def _rows(columns, index):
    return zip(index, zip(*columns.values(), strict=True), strict=True)
