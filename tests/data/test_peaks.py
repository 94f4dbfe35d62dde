"""What the client holds while rows lie on workers: never more than about a chunk."""

import tracemalloc

import numpy as np
import pytest

from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    FactorialMixture,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    VRGaussianMixture,
)

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
deploy = pytest.importorskip("distributed.deploy")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning"),
]
#: Rows and chunks of 4 MB, of features and of words.
N_CHUNKS, CHUNK_BYTES, N_FEATURES, N_WIDE, N_WORDS = 6, 1 << 22, 8, 64, 128
N_ROWS = CHUNK_BYTES // 8 // N_FEATURES
#: Sequences of a hundred rows and the rest, which end where chunks do.
LENGTHS = ([100] * (N_ROWS // 100) + [N_ROWS % 100]) * N_CHUNKS
VISITING = "svrg", "saga", "incremental", "stochastic"
SEED = {"max_iter": 3, "random_state": 0}
#: As their users fit them, and what their rows are.
DEFAULTS = {
    "mixture": (VRGaussianMixture(3, **SEED), "points"),
    "factorial": (FactorialMixture(3, **SEED), "points"),
    "logistic": (SBMLogisticRegression(**SEED), "classes"),
    "plsa": (VRPLSA(3, **SEED), "words"),
    "lda": (TemperedLDA(3, **SEED), "words"),
    "hmm": (VRHMM(3, **SEED), "sequences"),
    "bayes": (BayesianLogisticRegression(**SEED), "classes"),
    "bayes, svrg": (BayesianLogisticRegression(solver="svrg", **SEED), "classes"),
    "regression": (BayesianGLMRegressor(), "numbers"),
    "counts": (BayesianGLMRegressor("poisson"), "counts"),
    "overdispersed": (BayesianGLMRegressor("negative-binomial"), "counts"),
    "groups": (HierarchicalSoftmaxClassifier(max_iter=3), "groups"),
    "dropout": (GaussianDropoutClassifier(**SEED), "classes"),
    "ppca": (BayesianPPCA(2, random_state=0), "points"),
    "skills": (BradleyTerry(), "pairs"),
}


def cases():
    """Yield a name, an estimator, and what its rows are."""
    for solver in VISITING:
        how = {"solver": solver, "max_iter": 2, "random_state": 0}
        mark = () if solver == "svrg" else pytest.mark.thorough
        mixture = VRGaussianMixture(3, n_init=1, **how)
        yield pytest.param(mixture, "points", id=f"mixture, {solver}", marks=mark)
        factorial = FactorialMixture(3, n_init=1, tempering=None, **how)
        yield pytest.param(factorial, "points", id=f"factorial, {solver}", marks=mark)
        if solver in ("svrg", "stochastic"):
            logistic = SBMLogisticRegression(**how)
            yield pytest.param(
                logistic, "classes", id=f"logistic, {solver}", marks=mark
            )
            lda = TemperedLDA(3, e_step="collapsed", **how)
            yield pytest.param(lda, "words", id=f"lda, {solver}", marks=mark)
            for name, topics in (
                ("plsa", VRPLSA(3, **how)),
                ("lda, mean field", TemperedLDA(3, e_step="mean_field", **how)),
            ):
                about = {"id": f"{name}, {solver}", "marks": pytest.mark.thorough}
                yield pytest.param(topics, "words", **about)
        hmm = VRHMM(3, n_init=1, **how)
        yield pytest.param(hmm, "sequences", id=f"hmm, {solver}", marks=mark)
    for name, (model, kind) in DEFAULTS.items():
        yield pytest.param(model, kind, id=name, marks=pytest.mark.thorough)
    # All starts together look at more rows than a chunk has.
    yield pytest.param(VRGaussianMixture(3, **SEED), "wide", id="mixture, wide")
    # Five states or more change their places, of which a fit looks at rows again.
    yield pytest.param(VRHMM(5, **SEED), "wide sequences", id="hmm, wide")


@pytest.fixture(scope="module")
def given():
    """Rows of each kind, kept by two workers; the scheduler is a process, too."""
    with (
        deploy.SubprocessCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        n, draw = N_ROWS, da.random.default_rng(0)
        labels = draw.integers(3, size=N_CHUNKS * n, chunks=n)
        X = draw.normal(size=(N_CHUNKS * n, N_FEATURES), chunks=(n, -1))
        X = X + 4.0 * labels[:, None]
        n = CHUNK_BYTES // 8 // N_WORDS
        words = draw.poisson(0.2, size=(N_CHUNKS * n, N_WORDS), chunks=(n, -1))
        words = words.astype(float)
        pairs = draw.integers(50, size=(N_CHUNKS * N_ROWS, 2), chunks=(N_ROWS, -1))
        pairs = pairs + np.array([0, 50])  # none against itself
        n = CHUNK_BYTES // 8 // N_WIDE
        wide = draw.normal(size=(N_CHUNKS * n, N_WIDE), chunks=(n, -1))
        kept = client.persist((X, labels, words, pairs, wide))
        X, labels, words, pairs, wide = kept
        distributed.wait(kept)
        groups = {"groups": da.arange(len(X), chunks=N_ROWS) % 20}
        yield {
            "points": ((X,), {}),
            "wide": ((wide,), {}),
            "wide sequences": ((wide,), {"lengths": [n] * N_CHUNKS}),
            "classes": ((X, labels), {}),
            "numbers": ((X, X @ np.arange(N_FEATURES)), {}),
            "counts": ((X, labels), {}),
            "groups": ((X, labels), groups),
            "sequences": ((X,), {"lengths": LENGTHS}),
            "words": ((words,), {}),
            "pairs": ((pairs, (pairs.sum(axis=1) % 3 > 0).astype(float)), {}),
        }


def numbers(values):
    """How many numbers there are, in lists of lists."""
    if isinstance(values, list | tuple):
        return sum(map(numbers, values))
    return np.size(values)


def grown(work):
    """Bytes that a piece of work has needed at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("model, kind", cases())
def test_the_client_holds_no_more_than_a_chunk(model, kind, given):
    (X, *y), beside = given[kind]
    model.fit(X, *y, **beside).score(X, *y, **beside)  # imports, and kernels
    fitted = [value for name, value in vars(model).items() if name.endswith("_")]
    n_numbers = numbers(fitted)
    # Parameters, and statistics of as many numbers, and a chunk.
    most = 1.5 * 8 * (2 * n_numbers + np.prod(X.chunksize))
    ask = getattr(model, "predict", None) or model.transform
    assert grown(lambda: model.fit(X, *y, **beside)) < most
    assert grown(lambda: ask(X, **beside).sum().compute()) < most
    assert grown(lambda: model.score(X, *y, **beside)) < most
