"""Counts by their distinct values: a density is evaluated once for each of these."""

from skvrem.utils._jit import kernel


@kernel
def number_counts(x, places, codes, values):
    """Number the distinct counts of x, and return how many there are.

    That is -1 where x holds anything else, counts for which there is no place, or more
    values than there is room for.

    Parameters
    ----------
    x : ndarray of shape (n_rows, n_columns)
        NaN where missing.
    places : ndarray of int of shape (n_counts,)
        All -1.
    codes : ndarray of int of shape (n_rows, n_columns)
        Filled with the numbers of the values, -1 where missing.
    values : ndarray of shape (n_most,)
        Filled with the counts.
    """
    n_rows, d = x.shape
    n = 0
    for row in range(n_rows):
        for j in range(d):
            value = x[row, j]
            if value != value:
                codes[row, j] = -1
                continue
            if not 0.0 <= value < len(places):
                return -1
            count = int(value)
            if count != value:
                return -1
            if places[count] < 0:
                if n == len(values):
                    return -1
                places[count], values[n] = n, value
                n += 1
            codes[row, j] = places[count]
    return n


@kernel
def look_up(codes, table, out):
    """Add to rows and states (n_rows, n_states) what a table holds of the codes.

    It is (n_values, n_states, 1 or n_columns).
    """
    n_rows, d = codes.shape
    _, n, width = table.shape
    for row in range(n_rows):
        for j in range(d):
            code, column = codes[row, j], min(j, width - 1)
            if code >= 0:
                for i in range(n):
                    out[row, i] += table[code, i, column]


@kernel
def tally(codes, weights, out):
    """Add the weights of rows (n_rows, n_states) to those of the codes.

    These are (n_states, n_columns, n_values).
    """
    n_rows, d = codes.shape
    n = weights.shape[1]
    for row in range(n_rows):
        for j in range(d):
            code = codes[row, j]
            if code >= 0:
                for i in range(n):
                    out[i, j, code] += weights[row, i]
