"""Sweeps over rows that lie elsewhere: a point goes from block to block."""

from functools import partial
from typing import Any

import numpy as np

from skvrem.utils._algebra import accumulate, writeable

# Numbers of noise at once, where the rows are.
NOISE = 1_000_000


class Journeys:
    """What `Sweeps` does where rows lie in blocks elsewhere.

    What an epoch moves travels to one block after the other, in random order, and makes
    all steps of the block's rows there, by a generator whose seed travels with it. What
    is known of rows stays beside them.

    Parameters
    ----------
    model : see `Swept` in ``_protocols.py``
    data : source
    """

    def __init__(self, model, data):
        self.model, self.partition = model, data.chunks()
        sizes, per = self.partition.sizes, model.rows_a_visit
        rounds = getattr(model, "rounds", 1)
        self.steps = [rounds * -(-size // per) for size in sizes]
        #: Of how many rows those of a block are, were all blocks like it: then every
        #: step of an epoch has the same part in the mean, whatever the blocks' sizes.
        shares = zip(sizes, self.steps, strict=True)
        self.n_rows = [size * sum(self.steps) / own for size, own in shares]
        self.table: Any = None

    def know(self, anchor):
        """Return what is known of all rows at an anchor; what of each stays there."""
        self.table = None  # free to go
        anchor = anchor._replace(memory=None)
        total, self.table = self.partition.keep(partial(_know, self.model, anchor))
        return total

    def sweep(self, work, known, pace, rng):
        """Make the steps of an epoch.

        Returns
        -------
        work : object
            What they have moved. What does not travel of it is as it was.
        n_steps, n_rejected : int
        size : float
            Of the last one.
        change : NamedTuple or None
            By how much "saga" changes what is known of all rows.
        """
        table = self.table
        fresh: Any = None if known is None else list(table)
        n_steps = n_rejected = 0
        change, size = None, 1.0
        for visit in self.partition.shuffled(rng):
            block = visit.block
            # Not the sizes themselves: there are as many as rows.
            steps = range(n_steps, n_steps + self.steps[block])
            seed = int(rng.integers(2**63))
            how = work, known, pace, steps, seed, self.n_rows[block]
            visited = partial(_visit, self.model, *how)
            if known is None:
                (moved, rejected, size, _), _ = self.partition.visit(visited, visit)
            else:
                there = visited, visit, table[block]
                answer, fresh[block] = self.partition.renew(*there)
                moved, rejected, size, own = answer
                if own is not None:
                    change = accumulate(change, own)
            vars(work).update(vars(moved))
            n_steps, n_rejected = steps.stop, n_rejected + rejected
        self.fresh = fresh
        return work, n_steps, n_rejected, size, change

    def renew(self):
        """Let what the visits of an epoch have seen take the place of the table."""
        self.table = self.fresh


def _know(model, anchor, batch):
    there = model.at(batch, float(batch.n_units))
    return there.parted(there.know(anchor))


def _visit(model, work, known, pace, steps, seed, n_rows, batch, entry):
    """Make the steps of a block's rows, some at a time."""
    there, rng = model.at(batch, n_rows), np.random.default_rng(seed)
    sizes = np.empty(len(steps))
    sizes[:] = pace(np.arange(steps.start, steps.stop))
    work = writeable(work)  # what has come by wire may not be
    if known is not None:
        known = there.joined(writeable(known), writeable(entry), work)
    visits, per = there.visits(known, rng), model.rows_a_visit
    most, rejected = max(1, NOISE // max(1, model.noise_width)), 0
    for start in range(0, len(sizes), most):
        stop = min(start + most, len(sizes))
        some = visits[start * per : stop * per]
        noise = there.noise(work, some, rng)
        rejected += there.sweep(work, known, some, noise, sizes[start:stop])
    change = None
    if known is not None:
        change, entry = there.seen(known)
    return (work, rejected, float(sizes[-1]), change), entry
