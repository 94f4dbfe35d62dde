"""Emissions of counts, of events and of categories."""

from skvrem.hmm.emissions.discrete._categories import Categorical, Multinomial
from skvrem.hmm.emissions.discrete._counts import Poisson, ZeroInflatedPoisson
from skvrem.hmm.emissions.discrete._trials import Bernoulli, Binomial

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Multinomial",
    "Poisson",
    "ZeroInflatedPoisson",
]
