r"""Blocks of consecutive rows that hand on their messages.

A block is a stretch of every lane, and leans on its neighbours: on
:math:`\alpha` in the row before it and on the message m of the row behind it (see
``_kernels.py``). Both are kept. A *visit* runs forward over the block from the one and
back from the other, so that its sums are those of the chain at hand, but for what its
neighbours have not yet heard of it (Sidrow et al. 2023, Eqs. 19-22, for blocks of
rows). A *full* pass makes all messages exact.

The scale of a message means nothing: from the right it is normalised so that the
posteriors of the block's last row sum to the sequence's weight. Otherwise an error of
scale would never die out.
"""

from typing import Any, NamedTuple

import numpy as np

from skvrem.hmm.forward_backward._kernels import (
    LANES,
    STEPS,
    TILE,
    hand_back,
    hand_on,
)
from skvrem.hmm.forward_backward._model_layout import NONE
from skvrem.hmm.forward_backward._model_passes import (
    UNUSED,
    Impossible,
    Passes,
    weighted_shares,
)
from skvrem.utils._parallel import parallel_map


class OutOfRange(ValueError, FloatingPointError):
    """Blocks cannot be passed over in floating point numbers.

    Solvers that try how far they can go take it for a sign of having gone too far.
    """

    def __init__(self):
        super().__init__(
            "The likeliest paths take transitions of a probability of 0, or nearly, "
            "after states that are less likely than floating point numbers hold. "
            "Blocks of rows cannot be passed over then: use solver='batch'."
        )


class RowBlock(NamedTuple):
    """A batch that is one of blocks that hand on messages.

    Attributes
    ----------
    rows : BlockChain
    block : int
    full : bool
        Its sums are to be exact: all blocks are evaluated, in order, at one point.
    """

    rows: Any
    block: int
    full: bool = False


class BlockChain:
    """A layout cut into blocks, and the messages between them.

    Parameters
    ----------
    layout : Layout
    n_blocks : int
        A block has at least a tile.
    """

    def __init__(self, layout, n_blocks):
        layout.fill()
        self.layout = layout
        self.n_blocks = max(1, min(n_blocks, layout.n_tiles))
        layout.cut(self.n_blocks)
        self.full = self.alpha = self.messages = None

    def passes(self, batch, chain, by_row=False):
        """Return the passes over a block, not yet run."""
        if not batch.full:
            return BlockPasses(self, batch.block, chain)
        if batch.block == 0:
            self._run(chain)
        return BlockShare(self, batch.block)

    def _run(self, chain):
        """Run over all blocks, exactly."""
        full = Passes(self.layout, chain)
        try:
            full.run_forward()
        except Impossible as error:
            full.forward_logs(error)  # which row is the first, if any is
            raise OutOfRange from None
        if len(self.layout.parts) != self.n_blocks:  # it has been laid out anew
            self.layout.cut(self.n_blocks)
        full.run_backward()
        if not full.used <= UNUSED:
            raise OutOfRange
        self.full, self.alpha, self.messages = full, full.alpha, full.messages


class BlockShare(NamedTuple):
    """What a block had in the last full pass."""

    blocks: BlockChain
    block: int

    def forward(self):
        """Return the log-likelihood of the block's rows given those before."""
        full, part = self.blocks.full, self.blocks.layout.parts[self.block]
        tiles = part.first, part.first + part.n_tiles
        total = 0.0
        for g, group in enumerate(part.groups):
            shares = self.blocks.layout.of_tiles(full.shares[g], *tiles)
            events = self.blocks.layout.groups[g].step
            a, b = np.searchsorted(events, [tiles[0] * STEPS, tiles[1] * STEPS])
            total += weighted_shares(group, shares, full.before[g][a:b])
        return total

    def backward(self):
        """Return the block's sums."""
        return self.blocks.full.added[self.block]


class BlockPasses(Passes):
    """The passes over a block from what its neighbours have left it (Eqs. 19-22)."""

    def __init__(self, blocks, number, chain):
        super().__init__(blocks.layout, chain)
        self.blocks, self.alpha = blocks, blocks.alpha
        self.number = number

    def forward(self):
        """Run forward; return the log-likelihood of the rows given those before.

        Raises
        ------
        Impossible
            If a row has probability zero.
        """
        part = self.layout.parts[self.number]
        at, groups = part.first or self.layout.n_tiles, range(len(part.groups))
        self.left = left = np.stack([self.steps_before(at, g) for g in groups])
        if not part.first:
            self.left, changes = np.zeros_like(left), np.empty(len(left))
            hand_on(left, self.layout.continues, None, self.left, changes)
        self._run_forward(part)
        return self._objective()

    def backward(self):
        """Run backward; return sums of first states, pairs of states and features."""
        groups = range(len(self.part.groups))
        sums = [self.no_sums(self.part.n_tiles) for _ in groups]
        self.posteriors = [NONE for _ in groups]
        if self.follows is not None:
            size = self.layout.n_tiles * self.n * TILE
            buffers = [((g, "posteriors"), size) for g in groups]
            self.posteriors = [self.layout.buffer(*own) for own in buffers]
            for laid in self.posteriors:
                self._of_part(laid, self.part)[:] = 0.0
        right = self._right()
        messages = self.blocks.messages[self.number]

        def run(g):
            return self._backward_part(
                self.part, g, self.left[g], right[g], sums[g], messages[g]
            )

        list(parallel_map(run, groups))
        return self.add_up(self.part, sums)

    def _right(self):
        """The message from the right, on the scale of what is to its left."""
        groups, n = self.part.groups, self.n
        weight = np.stack([group.weight for group in groups])
        messages = self.blocks.messages
        if self.number + 1 < len(messages):
            right = messages[self.number + 1]
        else:
            right = np.tile(weight, n)
            errors, largest = np.empty_like(right), np.empty(len(right))
            hand_back(messages[0], self.layout.goes_on, right, errors, largest)
        right, weight = right.reshape(len(groups), n, LANES), weight[:, None]
        ends = self.ends.reshape(len(groups), n, LANES)
        total = (ends * right).sum(axis=1, keepdims=True)
        known = total > 0.0
        right = np.where(known, right * (weight / np.where(known, total, 1.0)), weight)
        return right.reshape(len(groups), -1)
