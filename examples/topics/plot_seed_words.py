"""
VRPLSA: topics about given words
================================

A topic model finds the topics that it finds. A few seed words tell it which ones are
wanted, and where: the topics that they name come first, and the others are free.
"""

# %%
# Texts
# -----
# The documentation of NumPy, SciPy and scikit-learn, a text for each function or class.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from corpora import docstrings
from sklearn.feature_extraction.text import CountVectorizer

from skvrem import VRPLSA, TopicsDisplay
from skvrem.text import seed_prior, top_words

texts, modules = docstrings()
vectorizer = CountVectorizer(
    stop_words="english", token_pattern="[a-z]{3,}", min_df=5, max_df=0.25
)
X = vectorizer.fit_transform(texts)
print(f"{X.shape[0]} texts, {X.shape[1]} words, {X.sum()} tokens")

# %%
# Seeds
# -----
# Four of twelve topics get words. A word that was never counted is named in a warning;
# a topic none of whose words were counted would be an error. As much weight as the
# corpus has of each word is a good deal.

seeds = {
    0: ["fft", "fourier", "frequency"],
    1: ["cluster", "clustering", "dendrogram"],
    2: ["hypothesis", "null", "significant"],
    3: ["regression", "ridge", "lasso", "laso"],
}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    prior = seed_prior(seeds, vectorizer, n_components=12, weight=X.sum(axis=0))
print(caught[0].message)

# %%
# The prior adds ``weight`` expected tokens to a word in its topic, and half of a random
# start is what the prior favours. So the four topics are where they were asked for,
# with other random numbers too.

for random_state in range(3):
    plsa = VRPLSA(12, topic_word_smoothing=prior, random_state=random_state).fit(X)
    words = top_words(plsa, vectorizer, n=7)
    for k in seeds:
        print(f"{random_state} topic {k}: {' '.join(words[k])}")

TopicsDisplay.from_estimator(
    plsa,
    feature_names=vectorizer,
    n_words=8,
    n_columns=4,
    titles=[f"{k}: {seeds[k][0]}" if k in seeds else f"{k}" for k in range(12)],
)

# %%
# How much weight?
# ----------------
# The share of a seed word that is in its topic, by weight, from the same random
# numbers. A small weight shapes no more than the start, and that brings most words
# home. One of the order of the words' counts brings those that the corpus uses in other
# ways too. With a weight far above, a topic can become one of nothing but its seeds,
# and the tokens around them go elsewhere.

weights = [0.1, 1.0, 10.0, 100.0, 1000.0]
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
columns = vectorizer.vocabulary_
shares = {word: [] for k in seeds for word in seeds[k][:2]}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # of the word that is misspelt
    for weight in weights:
        prior = seed_prior(seeds, vectorizer, n_components=12, weight=weight)
        plsa = VRPLSA(12, topic_word_smoothing=prior, random_state=0).fit(X)
        p = plsa.components_ * plsa.topic_shares_[:, None]
        for k in seeds:
            for word in seeds[k][:2]:
                column = p[:, columns[word]]
                shares[word].append(column[k] / column.sum())
counts = np.asarray(X.sum(axis=0)).ravel()
for word, values in shares.items():
    ax.plot(weights, values, marker=".", label=f"{word} ({counts[columns[word]]})")
ax.set(xscale="log", xlabel="weight", ylabel="share in its topic", ylim=(0, 1.03))
ax.legend(title="word (count)", fontsize=8)
plt.show()
