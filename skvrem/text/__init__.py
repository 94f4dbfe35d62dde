"""What topics say and how good they are, for any model with ``components_``.

The functions take scikit-learn's models as well as this package's, bare or as the last
step of a fitted pipeline, and scale every topic and every document to probabilities.
"""

from skvrem.text._coherence import coherence
from skvrem.text._likelihood import (
    document_completion,
    document_completion_scorer,
    left_to_right,
    perplexity,
)
from skvrem.text._matching import match_topics, topic_stability
from skvrem.text._words import (
    seed_prior,
    top_documents,
    top_words,
    topic_diversity,
)

__all__ = [
    "coherence",
    "document_completion",
    "document_completion_scorer",
    "left_to_right",
    "match_topics",
    "perplexity",
    "seed_prior",
    "top_documents",
    "top_words",
    "topic_diversity",
    "topic_stability",
]
