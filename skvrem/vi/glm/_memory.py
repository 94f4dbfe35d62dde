"""Where pickles of streams look for what they keep of rows."""

from skvrem.vi.glm.streams._gram import Gram
from skvrem.vi.glm.streams._memory import Memory

__all__ = ["Gram", "Memory"]
