"""Documents in the blocks of dask: the answers of memory for the same passes."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from skvrem import VRPLSA, Checkpoint, TemperedLDA
from tests.watching import Killing, two_workers

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N, V, K = 400, 90, 4
CHUNKS = (100, 0, 180, 120)
PLAIN = {"random_state": 0, "max_iter": 8, "tol": 0.0, "solver": "batch", "n_init": 1}
MAKE = {
    "plsa": lambda **more: VRPLSA(K, **PLAIN | more),
    "lda": lambda **more: TemperedLDA(K, **PLAIN | {"e_step": "mean_field"} | more),
    "collapsed": lambda **more: TemperedLDA(K, **PLAIN | more),
}
KINDS = pytest.mark.parametrize("kind", list(MAKE))


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    topics, shares = rng.dirichlet(np.full(V, 0.1), K), rng.dirichlet(np.ones(K), N)
    counts = [rng.multinomial(rng.integers(10, 60), own @ topics) for own in shares]
    counts = np.stack(counts).astype(float)  # in which sums are made in double
    counts[7] = 0.0
    return counts


def blocks(X, kind="sparse"):
    if kind == "dense":
        return da.from_array(X, chunks=(CHUNKS, 40))
    lazy = da.from_array(X, chunks=(CHUNKS, V)).map_blocks(sp.csr_matrix)
    if kind == "unknown":
        lazy = lazy.map_blocks(lambda block: block, chunks=((np.nan,) * 4, (V,)))
    return lazy


def assert_same(here, there, rtol=1e-9):
    assert there.solver_ == here.solver_ and there.n_iter_ == here.n_iter_
    for name in ("components_", "topic_shares_", "objective_", "n_tokens_seen_"):
        one, other = getattr(here, name), getattr(there, name)
        np.testing.assert_allclose(
            other, one, rtol=rtol, atol=rtol * np.max(np.abs(one))
        )


@KINDS
@pytest.mark.parametrize("dtype", [object, np.float16])
def test_counts_of_types_that_matrices_have_not(X, kind, dtype):
    here = MAKE[kind](max_iter=3).fit(X.astype(dtype))
    assert_same(here, MAKE[kind](max_iter=3).fit(blocks(X.astype(dtype), "dense")))


@KINDS
def test_counts_of_frames_that_are_written_as_text(X, kind):
    frames = pytest.importorskip("dask.dataframe")
    frame = pytest.importorskip("pandas").DataFrame(X.astype(int).astype(str))
    here = MAKE[kind](max_iter=3).fit(X)
    assert_same(here, MAKE[kind](max_iter=3).fit(frames.from_pandas(frame, 150)))


@KINDS
@pytest.mark.parametrize("blocks_of", ["sparse", "dense", "unknown"])
def test_fits_are_those_of_memory(X, kind, blocks_of):
    here = MAKE[kind]().fit(X)
    assert_same(here, MAKE[kind]().fit(blocks(X, blocks_of)))


@KINDS
@pytest.mark.parametrize("weights", ["numpy", "dask"])
def test_weights(X, kind, weights):
    weight = np.random.default_rng(1).integers(0, 3, N) + 0.0
    remote = weight if weights == "numpy" else da.from_array(weight, chunks=150)
    here = MAKE[kind]().fit(X, sample_weight=weight)
    assert_same(here, MAKE[kind]().fit(blocks(X), sample_weight=remote))


@pytest.mark.parametrize("blocks_of", ["sparse", "dense"])
@pytest.mark.parametrize("weighted", [False, True])
def test_short_documents_have_the_prior_of_memory(X, blocks_of, weighted):
    rng = np.random.default_rng(1)
    short = rng.binomial(X.astype(int), 0.15).astype(float)
    assert (short.sum(axis=1) == 0.0).any()
    weight = rng.integers(0, 3, N) + 0.0 if weighted else None
    here, there = (
        MAKE["plsa"](max_iter=3).fit(X, sample_weight=weight)
        for X in (short, blocks(short, blocks_of))
    )
    assert_same(here, there)
    smoothing = here.doc_topic_smoothing_
    np.testing.assert_allclose(there.doc_topic_smoothing_, smoothing, rtol=1e-12)
    assert (smoothing > 1.5 / K).all()


@pytest.mark.parametrize("kind", ["plsa", "collapsed"])
def test_races_are_those_of_memory(X, kind, monkeypatch):
    monkeypatch.setattr("skvrem.topics._base.RACE_WORK", 0)
    more = {"n_init": "auto", "max_iter": 13}
    here = MAKE[kind](**more)
    here._race_epochs = 9
    there = clone(here)
    there._race_epochs = 9
    here.fit(X)
    np.testing.assert_array_equal(np.sort(here.init_epochs_), [9, 9, 9, 13])
    assert_same(here, there.fit(blocks(X)))


@KINDS
def test_tempered_fits_and_starts(X, kind):
    more = {"tempering": "annealed", "annealing_iter": 4, "n_init": 2}
    if kind == "collapsed":
        more = {"n_init": 2}
    here = MAKE[kind](**more).fit(X)
    assert_same(here, MAKE[kind](**more).fit(blocks(X)), rtol=1e-8)


@KINDS
def test_frames_keep_names(X, kind):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame(X, columns=[f"w{v}" for v in range(V)])
    lazy = frames.from_pandas(frame, npartitions=3)
    here, there = MAKE[kind]().fit(frame), MAKE[kind]().fit(lazy)
    assert_same(here, there)
    assert list(there.feature_names_in_) == list(frame)


@KINDS
def test_answers(X, kind):
    model, lazy = MAKE[kind]().fit(X), blocks(X)
    loaded = []

    def load(block):
        loaded.append(block.shape)
        return block

    seen = lazy.map_blocks(load, dtype=float, meta=sp.csr_matrix((0, 0)))
    answer = model.transform(seen)
    assert not loaded and isinstance(answer, da.Array)
    np.testing.assert_allclose(answer.compute(), model.transform(X), rtol=1e-9)
    score, perplexity = model.score(lazy), model.perplexity(lazy)
    assert isinstance(score, float) and isinstance(perplexity, float)
    # pLSA tosses the same coins in every block.
    rtol = 0.05 if kind == "plsa" else 1e-9
    np.testing.assert_allclose(score, model.score(X), rtol=rtol)
    np.testing.assert_allclose(perplexity, model.perplexity(X), rtol=4 * rtol)


def test_completion_of_blocks_is_the_sum_of_blocks(X):
    model = MAKE["plsa"]().fit(X)
    one = da.from_array(X, chunks=(N, V))
    np.testing.assert_allclose(model.score(one), model.score(X), rtol=1e-12)


@KINDS
def test_warm_starts_and_streams(X, kind):
    model = MAKE[kind]().fit(blocks(X))
    before = model.objective_
    model.set_params(warm_start=True, max_iter=4).fit(blocks(X))
    assert model.n_iter_ == 4 and model.objective_ > before - 1e-9
    here, there = MAKE[kind](), MAKE[kind]()
    there.partial_fit(blocks(X))
    for start, size in zip(np.cumsum((0, *CHUNKS[:-1])), CHUNKS, strict=True):
        if size:
            here.partial_fit(X[start : start + size])
    np.testing.assert_allclose(there.components_, here.components_, rtol=1e-6)


@pytest.mark.parametrize("learn", [(None, None), ("learn", "learn"), ("learn", 0.1)])
def test_priors_are_learned_beside_documents(X, learn):
    """Of counts that stay there, to the priors and the bound of memory."""
    names = "doc_topic_prior", "topic_word_prior"
    given = dict(zip(names, learn, strict=True)) | {"max_iter": 12}
    weight = np.random.default_rng(1).uniform(0.5, 2.0, N)
    here = MAKE["collapsed"](**given).fit(X, sample_weight=weight)
    there = MAKE["collapsed"](**given).fit(blocks(X), sample_weight=weight)
    assert_same(here, there)
    for name in (*(f"{one}_" for one in names), "lower_bound_"):
        one, other = getattr(here, name), getattr(there, name)
        np.testing.assert_allclose(other, one, rtol=1e-9)
    if learn[0]:
        assert np.ptp(there.doc_topic_prior_) > 1e-3


def test_a_collapsed_fit_goes_on_from_a_checkpoint(X, tmp_path):
    path, more = tmp_path / "lda.skvrem", {"max_iter": 300, "tol": 1e-4}
    unbroken = MAKE["collapsed"](**more).fit(blocks(X))
    begun = MAKE["collapsed"](**more)
    Checkpoint(path, max_time=0.0).fit(begun, blocks(X))
    assert begun.stop_reason_ == "time" and begun.n_iter_ < 5
    resumed = Checkpoint.load(path).set_params(warm_start=True).fit(blocks(X))
    assert resumed.n_iter_ > begun.n_iter_
    assert abs(resumed.lower_bound_ - unbroken.lower_bound_) < 0.02


def test_shares_that_are_lost_are_found_anew(X, tmp_path):
    """They are in no checkpoint: a resumed fit finds them by its topics."""
    path, more = tmp_path / "plsa.skvrem", {"max_iter": 300, "tol": 1e-6}
    unbroken = MAKE["plsa"](**more).fit(blocks(X))
    begun = MAKE["plsa"](**more)
    Checkpoint(path, max_time=0.0).fit(begun, blocks(X))
    assert begun.stop_reason_ == "time" and begun.n_iter_ < 5
    resumed = Checkpoint.load(path).set_params(warm_start=True).fit(blocks(X))
    assert resumed.n_iter_ > 5
    assert resumed.objective_ > unbroken.objective_ - 0.02


def test_auto_makes_full_passes(X):
    many = np.tile(X, (8, 1))
    lazy = da.from_array(many, chunks=(800, V)).map_blocks(sp.csr_matrix)
    plsa = VRPLSA(K, random_state=0, max_iter=3).fit(lazy)
    lda = TemperedLDA(K, random_state=0, max_iter=3).fit(lazy)
    assert plsa.solver_ == lda.solver_ == "batch" and lda.e_step_ == "collapsed"


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"tempering": "local"}, "choose another tempering"),
        ({"n_components": "auto"}, "give a number"),
    ],
)
def test_what_needs_documents_in_memory_is_refused(X, parameters, message):
    model = TemperedLDA(**{"n_components": K} | parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(blocks(X))
    assert not [name for name in vars(model) if name.endswith("_")]


@KINDS
def test_bad_blocks(X, kind):
    negative, nothing, nan = X.copy(), np.zeros_like(X), X.copy()
    negative[150, 3], nan[250, 2] = -1.0, np.nan
    for rows, message in (
        (negative, "Negative values"),
        (nothing, "no counts"),
        (nan, "NaN"),
    ):
        model = MAKE[kind]()
        with pytest.raises(ValueError, match=message):
            model.fit(blocks(rows))
        assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(ValueError, match="features"):
        MAKE[kind]().fit(X).transform(blocks(X[:, :50], "dense"))


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(X):
    with two_workers() as client:
        lazy, watch = client.persist(blocks(X, "dense")), Killing(client)
        client.compute(lazy.sum()).result()
        there = MAKE["plsa"]()
        there.set_callbacks(watch)
        there.fit(lazy)
        assert watch.killed
    assert_same(MAKE["plsa"]().fit(X), there)
