"""
VRPLSA: what is a corpus about?
===============================

From texts to topics in one pipeline: count words, fit, look at the topics' words, at
the documents that show them best, and at what the documents' own labels say.
"""

# %%
# Texts
# -----
# The documentation of NumPy, SciPy and scikit-learn, a text for each function and
# class. Labels are the modules, and are not shown to the model.

import matplotlib.pyplot as plt
import numpy as np
from corpora import docstrings
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skvrem import VRPLSA, TopicsDisplay
from skvrem.text import coherence, top_documents, top_words

texts, labels = docstrings()
train, test, train_labels, _ = train_test_split(
    texts, labels, test_size=0.1, random_state=0
)
print(f"{len(texts)} texts with {len(set(labels))} labels")

# %%
# Words that are in a quarter of all texts say little about any, and words of less than
# five texts too little.

model = make_pipeline(
    CountVectorizer(
        stop_words="english", token_pattern="[a-z]{3,}", min_df=5, max_df=0.25
    ),
    VRPLSA(n_components=20, random_state=0),
)
model.fit(train)
plsa = model[-1]
print(
    f"{plsa.n_features_in_} words; {plsa.n_iter_} epochs of {plsa.solver_} in "
    f"{plsa.history_['seconds'][-1]:.1f} s; perplexity of unseen texts "
    f"{np.exp(-model.score(test)):.0f}"
)

# %%
# Topics
# ------
# Sorted by how many of the tokens they explain. All bars have one scale.

plsa.relabel(np.argsort(-plsa.topic_shares_))
TopicsDisplay.from_estimator(model, n_words=8)

# %%
# :meth:`~skvrem.VRPLSA.summary` has the same as a table.
# :func:`~skvrem.text.coherence` says which topics have words that do occur together;
# the lowest ones are those to distrust.

coherences = coherence(model, train)
words = top_words(model, n=6)
for k in np.argsort(-coherences)[[0, 1, 2, -3, -2, -1]]:
    print(f"topic {k:>2}, coherence {coherences[k]:.2f}: {' '.join(words[k])}")

# %%
# Documents
# ---------
# The shares of the topics in a document are probabilities. Those of the texts that show
# a topic best are close to 1.

theta = model.transform(train)
best = top_documents(theta, n=1)[:, 0]
for k in range(3):
    text = " ".join(train[best[k]].split())[:60]
    print(f"topic {k}: {theta[best[k], k]:.2f} of {train_labels[best[k]]}: {text}...")

# %%
# Do the topics know the labels?
# ------------------------------
# The mean shares of the topics in the texts of each label: most labels have one to
# three topics of their own.

names = sorted(set(train_labels))
rows = np.array(train_labels)
means = np.array([theta[rows == label].mean(axis=0) for label in names])
order = np.argsort(means.argmax(axis=1), kind="stable")
figure, ax = plt.subplots(figsize=(9, 0.22 * len(names) + 1.2), layout="constrained")
image = ax.imshow(means[order], aspect="auto", cmap="Blues", vmin=0, vmax=0.8)
ax.set_yticks(range(len(names)), [names[i] for i in order], fontsize=8)
ax.set_xticks(range(theta.shape[1]), [row[0] for row in words], rotation=90, fontsize=8)
figure.colorbar(image, label="mean share")
plt.show()
