"""What kernels of single rows take of a model and of its rows."""

from typing import NamedTuple

import numpy as np

from skvrem.hmm.emissions._kernels_rows import BY_NAME, MULTINORMAL, n_derived

# Logit of what there is not.
NEVER = -1e100


class RowModel(NamedTuple):
    """Arguments of the kernels, see ``_kernels.py``, and the constants behind u."""

    rows: tuple
    chain: tuple
    states: tuple
    n_derived: int
    n_parts: int
    constants: np.ndarray


def row_model(model, data, scale=None):
    """Return what kernels of single rows take, or None where they do not know a part.

    Parameters
    ----------
    model : HMMModel
    data : SequenceSource or SequenceBatch
    scale : float, default=None
        What makes the mean weight of all rows 1; None where `data` has all.
    """
    parts = model.emission.row_pieces(data.rows.X)
    first, logits = model.initial.row_logits(), model.transitions.row_logits()
    if parts is None or first is None or logits is None:
        return None
    n, n_parts = len(first[0]), len(first[0]) * model.emission.n_parts
    if model.labelled:
        parts = [*parts, _of_labels(data.rows.labels, n, parts[0])]
    index, given, alpha = logits
    n_first, cut = model.initial.n_parameters(), model.n_chain_coordinates()
    n_coordinates = model.n_parameters()
    constants = [part.constants[part.index < 0] for part in parts]
    constants = np.unique(np.concatenate([[0.0, NEVER], first[1], *constants]))

    def places(index, values, offset):
        """Where coordinates stand: among u, or behind them."""
        behind = n_coordinates + np.searchsorted(constants, values)
        return np.where(index >= 0, index + offset, behind).astype(np.uint64)

    own = np.where(first[0] == -1, 0.0, first[1])
    ridge = np.zeros(cut if alpha else 0)
    ridge[n_first:] = alpha / model.total
    chain = (
        places(index, np.where(index == -2, NEVER, 0.0), n_first).ravel(),
        places(first[0], own, 0),
        given.ravel() if given.any() else np.empty(0),
        1.0 - given.sum(axis=2).ravel(),
        ridge,
    )
    slots = [places(part.index, part.constants, cut) for part in parts]
    states = _states(parts, slots, n_parts)
    return RowModel(_rows(parts, data, scale), chain, *states, n_parts, constants)


def _of_labels(labels, n, like):
    """A table of what is possible in each state, for rows of labels, -1 for none."""
    possible = np.where(np.hstack([np.eye(n), np.ones((n, 1))]) > 0.0, 0.0, NEVER)
    return like._replace(
        kernel="table",
        size=n + 1,
        columns=np.where(labels < 0, n, labels)[:, None].astype(float),
        index=np.full(possible.shape, -1),
        constants=possible,
        fixed=np.empty((0, 0)),
    )


def _rows(parts, data, scale):
    rows = data.rows
    Z = np.hstack([part.columns for part in parts])
    begins, ends = (np.zeros(len(Z), bool) for _ in range(2))
    begins[rows.bounds[:-1]] = True
    ends[np.asarray(rows.bounds[1:]) - 1] = True
    which = np.empty(0) if rows.switched is None else rows.switched
    design = np.empty((0, 0)) if rows.design is None else rows.design
    weight = np.empty(0)
    if data.weight.size:
        weight = np.repeat(data.weight, np.diff(rows.bounds))
        weight *= len(Z) / data.total_weight if scale is None else scale
    return Z, begins, ends, which.astype(np.int64), design, weight


def _states(parts, slots, n_parts):
    """Pieces, slots and constants; how many numbers are derived."""
    pieces, laid, fixed = [], [], []
    sizes = np.zeros(4, int)  # of what comes before
    for part, own in zip(parts, slots, strict=True):
        (n, width), blocks, code = own.shape, 1, BY_NAME[part.kernel]
        if code != MULTINORMAL:
            blocks, width = width // part.size, part.size
        laid.append(own.reshape(n, blocks, width).swapaxes(0, 1).ravel())
        slot, column, constant, derived = sizes.tolist()
        shape = n, n_parts // n, slot, blocks, width, column, part.size
        pieces.append((code, *shape, constant, derived))
        fixed.append(np.repeat(part.fixed, n, axis=0).ravel())
        kinds = n * n_derived(code, part.size)
        sizes += own.size, part.columns.shape[1], fixed[-1].size, kinds
    laid, fixed = np.concatenate(laid), np.concatenate(fixed)
    return (np.array(pieces, np.int64), laid, fixed), int(sizes[3])
