"""Other packages' estimators, as the benchmarks use them: on one thread.

Curves yield, as training goes on, the CPU seconds of training so far and the topics.
What comes before, such as handing over the documents, is not timed.
"""

import time

import numpy as np
from threadpoolctl import threadpool_limits

__all__ = ["CURVES", "enstop_fit", "nmf_fit", "online_lda"]


def enstop_fit(X, n_topics, n_iter, seed=0):
    """Fit enstop's PLSA by so many EM iterations.

    It is batch EM without priors that keeps an array of nonzeros x topics.
    """
    import numba

    # enstop 0.2.6 uses an alias that NumPy 1.24 took away.
    np.__dict__.setdefault("float", float)
    from enstop import PLSA

    numba.set_num_threads(1)
    model = PLSA(
        n_components=n_topics,
        init="random",
        n_iter=n_iter,
        n_iter_per_test=n_iter + 1,  # of convergence, after the first iteration only
        tolerance=0.0,
        random_state=seed,
    )
    return model.fit(X)


def nmf_fit(X, n_topics, n_iter, seed=0):
    """Fit scikit-learn's NMF by Kullback-Leibler divergence.

    Its multiplicative updates are batch EM of pLSA, one factor after the other.
    """
    from sklearn.decomposition import NMF

    return NMF(
        n_topics,
        init="random",
        solver="mu",
        beta_loss="kullback-leibler",
        max_iter=n_iter,
        tol=0.0,
        random_state=seed,
    ).fit(X)


def online_lda(X, n_topics, seed=0):
    """Return scikit-learn's online variational LDA, its defaults otherwise."""
    from sklearn.decomposition import LatentDirichletAllocation

    return LatentDirichletAllocation(
        n_topics,
        learning_method="online",
        total_samples=X.shape[0],
        n_jobs=1,
        random_state=seed,
    )


def online_lda_curve(corpus, n_topics, n_passes, seed=0):
    """scikit-learn's LatentDirichletAllocation, a point a pass."""
    model = online_lda(corpus.train, n_topics, seed)
    seconds = 0.0
    for _ in range(n_passes):
        began = time.process_time()
        with threadpool_limits(1):
            model.partial_fit(corpus.train)
        seconds += time.process_time() - began
        yield seconds, model.components_


def gensim_curve(corpus, n_topics, n_passes, seed=0):
    """gensim's LdaModel, a point a pass; defaults, without its logged perplexity."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    documents = list(Sparse2Corpus(corpus.train, documents_columns=False))
    names = dict(enumerate(corpus.vocabulary.tolist()))
    model = LdaModel(
        num_topics=n_topics, id2word=names, eval_every=None, random_state=seed
    )
    seconds = 0.0
    for _ in range(n_passes):
        began = time.process_time()
        with threadpool_limits(1):
            model.update(documents)
        seconds += time.process_time() - began
        yield seconds, model.get_topics()


def tomotopy_curve(corpus, n_topics, n_sweeps=100, every=10, seed=0):
    """tomotopy's collapsed Gibbs sampler, priors 1 / n_topics and 0.1."""
    import tomotopy

    model = tomotopy.LDAModel(
        k=n_topics, alpha=1.0 / n_topics, eta=0.1, seed=1 + seed, min_cf=0, rm_top=0
    )
    X, names = corpus.train, corpus.vocabulary
    for d in range(X.shape[0]):
        row = slice(X.indptr[d], X.indptr[d + 1])
        counts = X.data[row].astype(np.int64)
        model.add_doc(np.repeat(names[X.indices[row]], counts).tolist())
    model.train(0, workers=1)
    place = {word: v for v, word in enumerate(names.tolist())}
    columns = [place[word] for word in model.used_vocabs]
    seconds = 0.0
    for _ in range(n_sweeps // every):
        began = time.process_time()
        model.train(every, workers=1)
        seconds += time.process_time() - began
        topics = np.zeros((n_topics, X.shape[1]))
        for k in range(n_topics):
            topics[k, columns] = model.get_topic_word_dist(k)
        yield seconds, topics


#: name in tables -> curve of (corpus, number of topics, passes)
CURVES = {
    "tomotopy": tomotopy_curve,
    "scikit-learn": online_lda_curve,
    "gensim": gensim_curve,
}
