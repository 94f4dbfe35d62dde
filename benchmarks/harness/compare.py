"""Which rows of two results differ by more than noise."""

from typing import NamedTuple

from benchmarks.harness.readme import BUSY
from benchmarks.harness.rows import HIGHER, ratio, show, show_ratio

__all__ = ["Move", "moved"]

#: What two runs of the same code differ by, at least: shares, on an idle machine and on
#: a busy one, and nats.
IDLE, LOADED, NATS = 0.05, 0.2, 0.002
#: Of a count, which is the same each time but for the order of sums, and of a gap.
COUNT, GAP = 0.02, 1.0


class Move(NamedTuple):
    """A row that moved: by which share (nats: by how much) it became better."""

    place: str
    change: float
    text: str


def moved(old, new):
    """Yield a `Move` for each row of both that moved beyond noise.

    Rows with peers are compared by their ratios to them, which the machine's state
    moves least; others by their values.

    Parameters
    ----------
    old, new : Stored
    """
    for place in [place for place in new if place in old]:
        before, after = old[place], new[place]
        loads = [s.about[place]["load"] or 0.0 for s in (old, new)]
        shared = [name for name in after.peers if name in before.peers]
        pairs = [
            (f"against {name}", ratio(before, name), ratio(after, name))
            for name in shared
        ] or [("", before.value, after.value)]
        for what, a, b in pairs:
            if after.unit in HIGHER:
                change, limit = b - a, NATS
            else:
                if not (a > 0.0 and b > 0.0):
                    continue
                change = b / a - 1.0 if shared else a / b - 1.0
                time = LOADED if max(loads) > BUSY else IDLE
                floor = {"s": time, "": GAP}.get(after.unit, COUNT)
                limit = max(floor, 2.0 * (before.noise + after.noise))
            if abs(change) <= limit:
                continue
            form = show_ratio if shared else show
            text = f"{form(a, after.unit)} -> {form(b, after.unit)} {what}".rstrip()
            yield Move(place, change, text)
