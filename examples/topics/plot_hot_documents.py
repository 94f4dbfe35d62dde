"""
TemperedLDA: which documents fit nowhere?
=========================================

With ``tempering="local"`` every document has a temperature of its own. A document whose
words no mixture of topics would write stays hot, and counts less for the topics: the
temperature is a measure of how odd it is.
"""

# %%
# Texts, and some that are none
# -----------------------------
# The documentation of NumPy, SciPy and scikit-learn, and twenty texts made of words
# that are drawn from the vocabulary at random.

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from corpora import docstrings
from sklearn.feature_extraction.text import CountVectorizer

from skvrem import TemperedLDA

texts, modules = docstrings()
vectorizer = CountVectorizer(
    stop_words="english", token_pattern="[a-z]{3,}", min_df=5, max_df=0.25
)
X = vectorizer.fit_transform(texts)
rng = np.random.default_rng(0)
noise = rng.multinomial(100, np.full(X.shape[1], 1 / X.shape[1]), size=20)
both = sp.vstack([X, sp.csr_matrix(noise)]).tocsr()

# %%
# Temperatures
# ------------

lda = TemperedLDA(20, tempering="local", max_iter=15, random_state=0).fit(both)
temperatures = lda.doc_temperature_
plt.hist(
    [temperatures[: len(texts)], temperatures[len(texts) :]],
    bins=30,
    stacked=True,
    label=["texts", "random words"],
)
plt.xlabel("temperature")
plt.ylabel("documents")
plt.yscale("log")
plt.legend()
plt.show()

# %%
# Among the texts themselves, the hottest are those least like the others.

order = np.argsort(-temperatures[: len(texts)])
for d in order[:5]:
    first_line = texts[d].strip().splitlines()[0]
    print(f"{temperatures[d]:.2f}  {modules[d]}: {first_line[:60]}")
print(f"median {np.median(temperatures):.2f}")
