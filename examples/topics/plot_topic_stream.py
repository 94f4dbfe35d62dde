"""
VRPLSA: topics of a stream of texts
===================================

``partial_fit`` takes texts as they come. It keeps the counts of the first ones, 10,000
at most, and fits them as they become more; after that it makes a step with each batch.
What it has learned can be pickled at any time, and goes on from there.
"""

# %%
# A stream
# --------
# The documentation of NumPy, SciPy and scikit-learn, in random order, 50 texts a batch.
# A vocabulary has to be the same for the whole stream; it is taken from the first third
# of the texts here. Where there is none,
# :class:`~sklearn.feature_extraction.text.HashingVectorizer` does without (of
# ``dtype=np.float32``, with ``alternate_sign=False`` and ``norm=None``).

import pickle

import matplotlib.pyplot as plt
import numpy as np
from corpora import docstrings
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from skvrem import VRPLSA
from skvrem.text import top_words

texts, modules = docstrings()
order = np.random.default_rng(0).permutation(len(texts))
texts = [texts[i] for i in order]
held_out, stream = texts[:300], texts[300:]
vectorizer = CountVectorizer(
    stop_words="english", token_pattern="[a-z]{3,}", min_df=3, max_df=0.25
).fit(stream[: len(stream) // 3])
X_held_out = vectorizer.transform(held_out)


def batches(texts, size=50):
    """Yield counts of so many texts at a time."""
    for start in range(0, len(texts), size):
        yield vectorizer.transform(texts[start : start + size])


# %%
# Held-out texts after every batch
# --------------------------------
# Three passes over the stream; a real one would bring new texts. By default a stream
# comes near a fit to all texts at once, and has all batches count alike. Steps that
# hardly decrease forget what is some 100,000 tokens old.

streams = {
    "default": VRPLSA(15, random_state=0),
    "nearly constant steps": VRPLSA(
        15, step_size=0.9, step_decay=0.001, random_state=0
    ),
}
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for label, plsa in streams.items():
    tokens, scores, sizes = [], [], []
    for _ in range(3):
        for X in batches(stream):
            plsa.partial_fit(X)
            tokens.append(plsa.n_tokens_seen_)
            scores.append(plsa.score(X_held_out))
            sizes.append(len(pickle.dumps(plsa)))
    ax.plot(tokens, scores, label=label)
    print(f"{label}: {scores[-1]:.3f} nats a token, {max(sizes) / 1e6:.2f} MB at most")
whole = VRPLSA(15, random_state=0).fit(vectorizer.transform(stream))
ax.axhline(whole.score(X_held_out), color="gray", ls="--", label="fit to all at once")
ax.set(xlabel="tokens seen", ylabel="held-out nats a token")
ax.legend()

for words in top_words(streams["default"], vectorizer, n=8)[:5]:
    print(*words)

# %%
# Pickled on the way
# ------------------
# A copy that went through a file at batch 20 ends with the same bits.

plsa = VRPLSA(15, random_state=0)
for t, X in enumerate(batches(stream)):
    plsa.partial_fit(X)
    if t == 19:
        frozen = pickle.dumps(plsa)
copy = pickle.loads(frozen)
for t, X in enumerate(batches(stream)):
    if t > 19:
        copy.partial_fit(X)
print("the same topics:", np.array_equal(copy.components_, plsa.components_))

# %%
# In the order of their subjects
# ------------------------------
# One pass over the same texts, shuffled and module after module. As long as the default
# keeps its documents their order matters little. With steps of one's own, and later,
# a sorted stream teaches the last subjects best and the first ones are half forgotten:
# shuffle what can be shuffled.

modules = [modules[i] for i in order][300:]
by_module = [stream[i] for i in np.argsort(modules, kind="stable")]
for label, plsa in streams.items():
    for name, ordered in {"shuffled": stream, "by module": by_module}.items():
        once = clone(plsa)
        for X in batches(ordered):
            once.partial_fit(X)
        print(f"{label}, {name}: {once.score(X_held_out):.3f} nats a token")
plt.show()
