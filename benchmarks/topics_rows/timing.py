"""Seconds of a pass of batch EM, and what a second thread brings."""

import time

from benchmark_utils import peers
from harness import Row
from harness.timing import interleaved, quiet
from threadpoolctl import threadpool_limits

from skvrem import VRPLSA
from topics_rows import each_corpus
from topics_rows.processes import side_by_side

__all__ = ["pass_rows", "thread_rows"]

# Iterations of the shorter and the longer fit, whose difference is what is measured.
OURS, ENSTOP, NMF = (2, 22), (1, 4), (1, 3)
# Online LDA costs the same for every document: it gets so many eighths of the corpus.
EIGHTHS = (1, 3)
PEERS = {"enstop": 10.0, "NMF-KL": 25.0, "online LDA": 80.0}


def ours(X, n_topics, n_threads, solver="batch"):
    """Return a function that makes a fit of so many epochs."""

    def fit(n_iter):
        model = VRPLSA(
            n_topics,
            solver=solver,
            max_iter=n_iter,
            tol=0.0,
            random_state=0,
            n_jobs=n_threads,
        )
        with quiet(), threadpool_limits(n_threads):
            return model.fit(X)

    return fit


def online_lda(X, n_topics):
    """Return a function that shows so many eighths of the documents to online LDA."""

    def fit(n_eighths):
        model = peers.online_lda(X, n_topics)
        with threadpool_limits(1):
            model.partial_fit(X[: n_eighths * X.shape[0] // 8])

    return fit


def pass_rows(settings):
    """Compare a pass of batch EM with what other packages call one."""
    for corpus in each_corpus(settings):
        X = corpus.train
        for n_topics in settings.topics:
            settings.log(f"a pass, {corpus.name}, K={n_topics}")

            def enstop(n_iter, X=X, n_topics=n_topics):
                peers.enstop_fit(X, n_topics, n_iter)

            def nmf(n_iter, X=X, n_topics=n_topics):
                with quiet():
                    peers.nmf_fit(X, n_topics, n_iter)

            sides = [
                (ours(X, n_topics, 1), OURS),
                (enstop, ENSTOP),
                (nmf, NMF),
                (online_lda(X, n_topics), EIGHTHS),
            ]
            mine, *others = interleaved(sides, settings.repeats, time.process_time)
            others[2] *= 8.0
            for (peer, target), other in zip(PEERS.items(), others, strict=True):
                ratio = other / mine
                yield Row(
                    "pass",
                    f"batch EM pass against {peer}, {corpus.name}, K={n_topics}, "
                    "1 thread",
                    f"{ratio:.1f}x ({mine:.4f} s against {other:.3f} s)",
                    f"{target:g}x",
                    ratio >= target,
                    {"ours": mine, peer: other, "ratio": ratio},
                )


def thread_rows(settings):
    """Compare two threads with one, and with two processes that share nothing."""
    for corpus in each_corpus(settings):
        for n_topics in settings.topics:
            for solver, target in (("batch", 1.6), ("svrg", None)):
                settings.log(f"threads, {corpus.name}, K={n_topics}, {solver}")
                sides = [
                    (ours(corpus.train, n_topics, n_threads, solver), OURS)
                    for n_threads in (1, 2)
                ]
                one, two = interleaved(sides, settings.repeats, time.perf_counter)
                what = "batch pass" if solver == "batch" else "svrg epoch"
                yield Row(
                    "threads",
                    f"two threads against one, {what}, {corpus.name}, K={n_topics}",
                    f"{one / two:.2f}x ({two:.4f} s against {one:.4f} s)",
                    f"{target:g}x" if target else "",
                    one / two >= target if target else None,
                    {"one": one, "two": two, "ratio": one / two},
                )
            limit = side_by_side(corpus.train, n_topics)
            yield Row(
                "threads",
                f"two processes at once against one, batch passes, {corpus.name}, "
                f"K={n_topics}",
                f"{limit:.2f}x: what the machine allows",
                "",
                None,
                {"ratio": limit},
            )
