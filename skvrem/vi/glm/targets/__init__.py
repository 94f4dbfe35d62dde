"""What a regression does that depends on its targets, a family in a module."""

from skvrem.vi.glm.targets._counts import Counts, OverdispersedTargets
from skvrem.vi.glm.targets._numbers import Numbers

#: By the names of `family`. They have no state: the estimator has what is learnt.
TARGETS = {
    "gaussian": Numbers(),
    "poisson": Counts(),
    "negative-binomial": OverdispersedTargets(),
}
