"""What the solvers on minibatches share: a fixed partition, visited in random order."""

from functools import partial

from skvrem.solvers.estimate._visiting import Visiting


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
        remember = partial(self.model.remember, self.for_batches(point), beta=beta)
        return self.partition.keep(remember)

    def for_batches(self, point, visit=None):
        """Return what of a point goes to a batch, or to all."""
        if not hasattr(self.model, "for_batches"):
            return point
        return self.model.for_batches(point, visit)
