"""What the solvers on minibatches share: a fixed partition, visited in random order."""

from functools import partial

from skvrem.solvers.estimate._visiting import Visiting
from skvrem.utils._algebra import accumulate


class Minibatches(Visiting):
    """A solver that visits each block of a fixed partition once an epoch.

    Parameters
    ----------
    n_blocks : int
        Minibatches an epoch, about: a source may make a few more.
    """

    def __init__(self, n_blocks):
        self.n_blocks = n_blocks

    def start(self, model, data, rng):
        """Cut the data into blocks."""
        self.take(model, data.blocks(self.n_blocks, rng))

    def take(self, model, partition):
        """Begin with a partition that another solver has made."""
        self.model = model
        self.partition = partition

    def visits(self, rng):
        """Each block once."""
        return self.partition.shuffled(rng)

    def remembered(self, point, beta):
        """Return the sums of all blocks, by a full pass, and what is kept of each."""
        total, kept = None, []
        evaluate = partial(self.model.remember, point, beta=beta)
        for sums, memory in self.partition.map(evaluate):
            total = accumulate(total, sums)
            kept.append(self.entry(memory, sums))
            del sums  # before the next are made
        return total, kept

    def entry(self, memory, sums):
        """Return what is kept of a visit."""
        return memory
