"""
TemperedLDA: topics that come out of the heat
=============================================

Variational inference ends near where it began, and a topic model begins with topics
that know nothing. Annealing raises the temperature of the likelihood at first: the
topics are all alike, and separate one after the other as it falls.
"""

# %%
# Texts
# -----
# The documentation of NumPy, SciPy and scikit-learn. A fifth of it is held out.

import matplotlib.pyplot as plt
import numpy as np
from corpora import docstrings
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from skvrem import ConvergenceDisplay, TemperedLDA
from skvrem.text import document_completion, top_words

texts, _ = docstrings()
train, test = train_test_split(texts, test_size=0.2, random_state=0)
vectorizer = CountVectorizer(
    stop_words="english", token_pattern="[a-z]{3,}", min_df=5, max_df=0.25
)
X, X_test = vectorizer.fit_transform(train), vectorizer.transform(test)
print(f"{X.shape[0]} texts, {X.shape[1]} words, {X.sum()} tokens")

# %%
# With and without
# ----------------
# Five starts of each, judged by how well half of a held-out text predicts the other.

fits = {"untempered": [], "annealed": []}
for random_state in range(5):
    for name, tempering in (("untempered", None), ("annealed", "annealed")):
        lda = TemperedLDA(
            20,
            solver="stochastic",
            e_step="mean_field",
            batch_size=64,
            tempering=tempering,
            temperature=1.3,
            annealing_iter=8,
            max_iter=16,
            random_state=random_state,
        )
        fits[name].append(lda.fit(X))
for name, models in fits.items():
    values = [document_completion(model, X_test) for model in models]
    print(f"{name}: {np.median(values):.3f} ({min(values):.3f} to {max(values):.3f})")

# %%
# The path
# --------
# While it is hot, the bound is that of a heated model and cannot be compared; what
# counts is where the two end.

first = {name: models[0] for name, models in fits.items()}
fig, (ax, below) = plt.subplots(2, 1, figsize=(6, 6), layout="constrained")
ConvergenceDisplay.from_estimator(first, x="passes", ax=ax)
for name, model in first.items():
    below.plot(model.history_["passes"], model.history_["temperature"], label=name)
below.set(xlabel="passes", ylabel="temperature")
plt.show()

# %%
# Topics
# ------

for words in top_words(first["annealed"], vectorizer, n=7)[:8]:
    print(" ".join(words))
