"""
VRPLSA: how many topics?
========================

A topic model with more topics fits the documents that it has seen ever better. Three
numbers tell where that stops being knowledge: how well one half of an unseen document
predicts the other, how probable whole unseen documents are, and whether the top words
of a topic go together. They ask different questions, and need not agree.
"""

# %%
# Documents with six topics
# -------------------------
# Every document mixes one to three of six themes with words that all of them use. The
# words of a theme have frequencies that fall like those of a language.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from skvrem import VRPLSA, TopicsDisplay
from skvrem.text import (
    coherence,
    document_completion,
    document_completion_scorer,
    left_to_right,
    perplexity,
    seed_prior,
    top_words,
)

THEMES = """
    rain wind cloud storm sun snow fog thunder forecast drizzle frost breeze
    goal team ball player match coach league season striker referee stadium penalty
    bank market price stock trade profit investor bond loan dividend tax inflation
    doctor patient drug hospital disease treatment surgery nurse vaccine virus dose
    engine car road wheel driver fuel brake gear traffic tyre lane bumper
    guitar song band album singer drum concert melody stage chorus piano lyric
"""
COMMON = "time people year day way thing world life part place case week point number"
themes = [line.split() for line in THEMES.split("\n") if line.strip()]


def documents(n_documents, rng):
    """Draw texts of 20 to 60 words."""
    texts = []
    for _ in range(n_documents):
        chosen = rng.choice(len(themes), rng.integers(1, 4), replace=False)
        shares = rng.dirichlet(np.ones(len(chosen)))
        words = []
        for _ in range(rng.integers(20, 60)):
            source = themes[rng.choice(chosen, p=shares)]
            if rng.random() < 0.3:
                source = COMMON.split()
            frequency = 1.0 / np.arange(2, len(source) + 2)
            words.append(rng.choice(source, p=frequency / frequency.sum()))
        texts.append(" ".join(words))
    return texts


train, test = train_test_split(
    documents(600, np.random.default_rng(0)), random_state=0, test_size=200
)
vectorizer = CountVectorizer()
X_train, X_test = vectorizer.fit_transform(train), vectorizer.transform(test)

# %%
# Three measures
# --------------
# :func:`~skvrem.text.document_completion` is in nats a token, the higher the better.
# :func:`~skvrem.text.left_to_right` gives log-probabilities of whole documents under
# latent Dirichlet allocation with these topics, here turned into nats a token as well.
# :func:`~skvrem.text.coherence` is one number a topic, in the figure the mean and the
# worst.

warnings.simplefilter("ignore", ConvergenceWarning)
counts = [1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 17, 22]
scores = {"document completion": [], "left to right": []}
npmi = []
for n_components in counts:
    model = VRPLSA(n_components, random_state=0).fit(X_train)
    scores["document completion"].append(document_completion(model, X_test))
    whole = left_to_right(model, X_test, doc_topic_prior=0.3)
    scores["left to right"].append(-np.log(perplexity(whole, X_test)))
    npmi.append(coherence(model, X_train))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for label, values in scores.items():
    left.plot(counts, values, marker=".", label=label)
right.plot(counts, [values.mean() for values in npmi], marker=".", label="mean")
right.plot(counts, [values.min() for values in npmi], marker=".", label="worst topic")
left.set(xlabel="topics", ylabel="nats a token", title="prediction")
right.set(xlabel="topics", ylabel="NPMI", title="coherence of the top 10 words")
for ax in (left, right):
    ax.axvline(len(themes), color="lightgray", zorder=0)
    ax.legend()

# %%
# Both predictions are best at the true number, and fall slowly behind it. So does the
# coherence of the worst topic, all at once: the first topic too many is one of words
# that have little to do with each other. The mean of the topics hides it. On real texts
# there is no true number, and the curves are flatter: predictions say how many topics
# the data can bear, coherence which of them a reader will understand.
#
# In a search
# -----------
# :func:`~skvrem.text.document_completion_scorer` is made for ``scoring=``. Of a
# pipeline the tokens are split behind the vectorizer: the search starts from the texts.

search = GridSearchCV(
    make_pipeline(CountVectorizer(), VRPLSA(random_state=0)),
    {"vrplsa__n_components": [2, 4, 6, 8, 12]},
    scoring=document_completion_scorer,
    cv=3,
).fit(train)
table = search.cv_results_
for params, mean, std in zip(
    table["params"], table["mean_test_score"], table["std_test_score"], strict=True
):
    print(f"{params['vrplsa__n_components']:>3} topics {mean:8.3f} ± {std:.3f}")

# %%
# What they are about
# -------------------
# The display takes the whole search and finds the words by itself.

TopicsDisplay.from_estimator(search, n_words=8, n_columns=4)

# %%
# Topics come in any order. Seeds put the ones that matter where they are wanted; words
# that were never counted are named. Some starts end with a seed in a wrong company, so
# there are five, and the best is kept.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    prior = seed_prior(
        {0: ["bank", "market", "tax"], 1: ["doctor", "patient", "aspirin"]},
        vectorizer,
        n_components=6,
        weight=X_train.sum(axis=0),
    )
print(caught[0].message)
seeded = VRPLSA(6, topic_word_smoothing=prior, n_init=5, random_state=0).fit(X_train)
for words in top_words(seeded, vectorizer, n=8)[:2]:
    print(*words)
plt.show()
