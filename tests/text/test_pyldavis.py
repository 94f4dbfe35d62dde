"""pyLDAvis draws the models of this package. Runs where pyLDAvis is installed."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

from skvrem.utils.discovery import all_estimators

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own imports
    lda_model = pytest.importorskip("pyLDAvis.lda_model")


def topic_models():
    """scikit-learn's model, and every estimator here that has a prior of topics."""
    yield LatentDirichletAllocation
    for _, estimator_class in all_estimators():
        if hasattr(estimator_class, "perplexity"):
            yield estimator_class


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator_class", list(topic_models()))
def test_prepares(estimator_class):
    texts = ["sun rain wind sun cloud", "goal ball goal win team", "rain ball"] * 10
    vectorizer = CountVectorizer()
    X = vectorizer.fit_transform(texts)
    model = estimator_class(3, random_state=0).fit(X)
    prepared = lda_model.prepare(model, X, vectorizer, mds="pcoa", n_jobs=1)
    assert len(prepared.topic_coordinates) == 3
    assert prepared.topic_coordinates["Freq"].sum() == pytest.approx(100.0)
    assert set(prepared.topic_info["Term"]) <= set(vectorizer.vocabulary_)
    assert np.isfinite(prepared.topic_info["Freq"]).all()
