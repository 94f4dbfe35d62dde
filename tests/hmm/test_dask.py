"""Sequences in the blocks of dask: the answers of memory, and nothing is loaded."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from skvrem.data import _sequences
from skvrem.hmm import (
    VRHMM,
    Categorical,
    Covariates,
    Gaussian,
    Hierarchical,
    Homogeneous,
    LogNormal,
    MixtureGaussian,
    NegativeBinomial,
    Product,
    Regression,
    StudentT,
    Weibull,
    _blocks,
    _plan,
    _start,
)
from tests.watching import Killing, two_workers

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
LENGTHS = np.random.default_rng(0).integers(20, 260, 30)
N = int(LENGTHS.sum())
IDS = np.repeat(np.arange(30) * 7 % 31, LENGTHS)
CHUNKS = (700, 0, 1100, 150, N - 1950)
PLAIN = {"random_state": 0, "n_init": 1, "max_iter": 6, "tol": 0.0}
ANSWERS = "predict", "predict_proba", "filter_proba", "score_samples"


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture(scope="module")
def states():
    rng = np.random.default_rng(1)
    switches = rng.random(N) < 0.1
    return np.cumsum(switches * rng.integers(1, 3, N)) % 3


@pytest.fixture(scope="module")
def X(states):
    return np.random.default_rng(2).normal(size=(N, 3)) + 2.0 * states[:, None]


def lazily(X, chunks=CHUNKS):
    return da.from_array(X, chunks=(chunks, 2))


def numbers(hmm):
    """Return all fitted arrays of a model."""
    parts = [hmm.startprob_, hmm.transmat_, hmm.objective_, hmm.emission_.parameters()]
    return [*parts, hmm.n_samples_seen_, *hmm._sums]


def assert_same(a, b, rtol=1e-9):
    for one, other in zip(numbers(a), numbers(b), strict=True):
        np.testing.assert_allclose(
            other, one, rtol=rtol, atol=rtol * np.max(np.abs(one))
        )


def holes(X, share=0.1):
    X = X.copy()
    X[np.random.default_rng(3).random(X.shape) < share] = np.nan
    X[720:725] = np.nan
    return X


def both(X, parameters, given, remote=None, chunks=CHUNKS):
    """Return fits in memory and in blocks."""
    parameters = PLAIN | parameters
    here = VRHMM(3, **parameters).fit(X, **given)
    remote = given if remote is None else remote
    there = VRHMM(3, **parameters).fit(lazily(X, chunks), **remote)
    assert there.solver_ == here.solver_ and there.n_iter_ == here.n_iter_
    return here, there


@pytest.mark.parametrize(
    "case", ["gaussian", "codes", "counts", "labels", "moves", "left-right", "segments"]
)
def test_starts_look_at_the_same_rows(X, states, case, monkeypatch):
    """Of which there are few here: wherever they lie, and whatever goes beside them."""
    monkeypatch.setattr(_start, "MOST_ROWS", 400)
    monkeypatch.setattr(_start, "RUN_ROWS", 20)
    size = np.repeat(1.0 + 3.0 * states[:, None], 2, axis=1)
    counts = np.random.default_rng(4).negative_binomial(size, 0.4).astype(float)
    given, n, how = {"lengths": LENGTHS}, 3, {"n_init": 3}
    if case == "codes":
        X, how["emission"] = counts[:, :1], Categorical()
    elif case == "counts":
        X, how["emission"] = counts, NegativeBinomial()
    elif case == "labels":
        given["state_labels"] = np.where(np.arange(N) % 5, -1, states)
    elif case == "moves":
        n, how = 6, {"n_init": "auto", "max_iter": 30}
    elif case == "left-right":
        how["transitions"] = Homogeneous("left-right")
    elif case == "segments":
        ends = np.arange(N) % 15 == 14
        X, n = np.column_stack([X, ends]), 6
        how["transitions"] = Hierarchical(2, 3, 3)
    here, there = (
        VRHMM(n, **(PLAIN | how)).fit(rows, **given) for rows in (X, lazily(X))
    )
    assert_same(here, there, 1e-7)
    np.testing.assert_allclose(here.init_scores_, there.init_scores_, rtol=1e-8)


@pytest.mark.parametrize("case", ["plain", "weights", "labels", "moves"])
def test_starts_are_compared_on_the_same_rows(X, states, case, monkeypatch):
    """On some where there are many: stretches that stay where they lie."""
    monkeypatch.setattr(_plan, "FEWEST_SAMPLED", 700)
    monkeypatch.setattr(_plan, "ROWS_A_PARAMETER", 1)
    given, n = {"lengths": LENGTHS}, 6 if case == "moves" else 3
    if case == "weights":
        # Of the first blocks 1, and of the last sequence none.
        weight = np.append(np.clip(np.arange(29) - 10, 1, 3), 0).astype(float)
        given["sample_weight"] = np.repeat(weight, LENGTHS)
    elif case == "labels":
        given["state_labels"] = np.where(np.arange(N) % 5, -1, states)
    how = {"random_state": 0, "max_iter": 40}
    here, there = (VRHMM(n, **how).fit(rows, **given) for rows in (X, lazily(X)))
    # Several may lead to one optimum, and rounding says which does first.
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
    np.testing.assert_allclose(here.init_scores_, there.init_scores_, rtol=1e-8)
    for model in (here, there):
        assert model.history_["passes"][0] % 1.0  # some rows have led to the rest


@pytest.mark.parametrize("way", ["lengths", "groups", "dask groups", "other blocks"])
def test_sequences_by_lengths_or_ids(X, way):
    given = {"lengths": LENGTHS} if way == "lengths" else {"groups": IDS}
    remote = dict(given)
    if "groups" in given and way != "groups":
        chunks = (CHUNKS,) if way == "dask groups" else 1000
        remote = {"groups": da.from_array(IDS, chunks=chunks)}
    assert_same(*both(X, {}, given, remote))


def test_ids_in_a_column(X):
    rows = np.column_stack([X, IDS])
    here, there = both(rows, {"groups": 3}, {})
    assert_same(here, there)
    answer = there.predict_proba(lazily(rows))
    np.testing.assert_allclose(answer.compute(), here.predict_proba(rows), atol=1e-9)


def test_one_sequence_is_put_together(X):
    here, there = both(X, {}, {})
    assert_same(here, there)
    assert there.predict(lazily(X)).chunks == ((N,),)


def test_blocks_are_cut_where_sequences_begin(X):
    laid = _sequences.lay(lazily(X), None, None, LENGTHS)
    bounds = np.append(0, np.cumsum(LENGTHS))
    edges = np.append(0, np.cumsum(laid.sizes))
    assert np.isin(edges, bounds).all() and edges[-1] == N
    rows = [block.compute() for block in laid.blocks]
    np.testing.assert_array_equal(np.concatenate(rows), X)
    # No block moves farther than to the end of its last sequence.
    moved = edges[1:-1] - np.unique(np.cumsum(CHUNKS))[: len(edges) - 2]
    assert (moved >= 0).all() and moved.max() < LENGTHS.max()


def test_whole_sequences_in_blocks_are_left_alone(X):
    chunks = tuple(np.add.reduceat(LENGTHS, [0, 7, 20]).tolist())
    lazy = lazily(X, chunks)
    laid = _sequences.lay(lazy.rechunk({1: -1}), None, None, LENGTHS)
    keys = [block.key for block in laid.blocks]
    parts = lazy.rechunk({1: -1}).to_delayed().ravel()
    assert keys == [part.key for part in parts]


@pytest.mark.parametrize(
    "emission",
    [
        Gaussian(),
        Gaussian("full"),
        Gaussian("tied"),
        Gaussian("spherical"),
        MixtureGaussian(2),
        Product([("a", Gaussian("full"), [0, 1]), ("b", Gaussian(), [2])]),
    ],
    ids=lambda emission: f"{type(emission).__name__} {emission.get_params()}"[:40],
)
@pytest.mark.parametrize("missing", [False, True])
def test_families_and_missing_values(X, emission, missing):
    rows = holes(X) if missing else X
    assert_same(*both(rows, {"emission": emission}, {"lengths": LENGTHS}), rtol=1e-8)


@pytest.mark.parametrize("family", ["poisson", "categorical", "many", "gamma", "logs"])
def test_families_of_other_numbers(X, states, family):
    counts = np.random.default_rng(4).poisson(1.0 + 3.0 * states)[:, None] + 0.0
    counts[5, 0] = 20.0  # which one block has alone
    emission, rows = family, counts
    if family == "many":
        emission, rows = Categorical(), 40.0 * np.minimum(counts, 9.0) + IDS[:, None]
    elif family == "gamma":
        rows = np.exp(X / 3.0)
    elif family == "logs":
        emission, rows = LogNormal(), np.exp(X / 3.0)
    assert_same(*both(rows, {"emission": emission}, {"lengths": LENGTHS}))


@pytest.mark.parametrize("emission", [Weibull(), StudentT()])
def test_families_without_a_closed_m_step(X, emission):
    """What their searches end at is known less well than the objective."""
    rows = np.exp(X / 3.0)
    here, there = both(rows, {"emission": emission}, {"lengths": LENGTHS})
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-9)
    assert_same(here, there, rtol=1e-5)


def test_covariates_segments_and_regressions(X):
    rng = np.random.default_rng(5)
    given = {"lengths": LENGTHS}
    rows = np.column_stack([X, 50.0 + 7.0 * rng.normal(size=N)])
    assert_same(*both(rows, {"transitions": Covariates([3])}, given), rtol=1e-8)
    emission = Regression("gaussian", [3])
    assert_same(*both(rows, {"emission": emission}, given), rtol=1e-8)
    rows[:, 3] = rng.random(N) < 0.1
    segments = Hierarchical(1, 3, boundary=3)
    assert_same(*both(rows, {"transitions": segments}, given))


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": "batch"},
        {"acceleration": "lbfgs", "max_iter": 10},
        {"tempering": "annealed"},
        {"startprob": "stationary"},
        {"init_params": "random"},
    ],
)
def test_ways_to_fit(X, parameters):
    assert_same(*both(X, parameters, {"lengths": LENGTHS}), rtol=1e-8)


def test_a_race_of_starts(X):
    here, there = both(X, {"n_init": "auto", "max_iter": 30}, {"lengths": LENGTHS})
    assert abs(here.objective_ - there.objective_) < 1e-9
    np.testing.assert_allclose(there.init_scores_, here.init_scores_, rtol=1e-8)


@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_weights_and_known_states(X, states, kind):
    weight = np.repeat(np.random.default_rng(6).integers(0, 3, 30), LENGTHS) + 0.0
    weight[: CHUNKS[0] + 300] = 0.0  # a whole block
    weight = np.repeat(weight[np.cumsum(LENGTHS) - 1], LENGTHS)
    known = np.where(np.arange(N) % 30 == 0, states, -1)
    known[2000:] = -1  # none in the last blocks
    given = {"lengths": LENGTHS, "sample_weight": weight, "state_labels": known}
    remote = dict(given)
    if kind == "dask":
        for name in ("sample_weight", "state_labels"):
            remote[name] = da.from_array(given[name], chunks=600)
    here, there = both(X, {}, given, remote)
    assert_same(here, there)
    del given["state_labels"], remote["state_labels"]
    score = there.score(lazily(X), **remote)
    np.testing.assert_allclose(score, here.score(X, **given), rtol=1e-12)


def test_unknown_sizes_single_precision_and_warm_starts(X):
    given = {"lengths": LENGTHS}
    lazy = lazily(X).map_blocks(np.array)
    lazy = lazy[da.from_array(np.ones(N, bool), chunks=(CHUNKS,))]
    assert np.isnan(lazy.shape[0])
    here, there = both(X, {}, given)
    assert_same(here, VRHMM(3, **PLAIN).fit(lazy, **given))
    assert_same(*both(X.astype(np.float32), {}, given), rtol=1e-6)
    for hmm, rows in ((here, X), (there, lazy)):
        hmm.set_params(warm_start=True).fit(rows, **given)
    assert_same(here, there)


def test_frames_keep_names(X):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame(X, columns=list("abc"))
    frame["who"] = [f"animal {i}" for i in IDS]
    lazy = frames.from_pandas(frame, npartitions=4)
    parameters = PLAIN | {"groups": "who"}
    here = VRHMM(3, **parameters).fit(frame)
    there = VRHMM(3, **parameters).fit(lazy)
    assert_same(here, there)
    assert list(there.feature_names_in_) == ["a", "b", "c", "who"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = there.predict(lazy).compute()
    np.testing.assert_array_equal(answer, here.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        there.predict(lazy.rename(columns={"a": "z"}))


@pytest.mark.parametrize("method", [*ANSWERS, "pseudo_residuals"])
def test_answers_are_lazy_and_those_of_memory(X, method):
    hmm = VRHMM(3, **PLAIN).fit(X, lengths=LENGTHS)
    loaded = []

    def load(block):
        loaded.append(len(block))
        return block

    lazy = lazily(X).map_blocks(load, dtype=float, meta=X[:0])
    answer = getattr(hmm, method)(lazy, lengths=LENGTHS)
    assert not loaded and isinstance(answer, da.Array)
    expected = getattr(hmm, method)(X, lengths=LENGTHS)
    assert answer.shape == expected.shape and answer.dtype == expected.dtype
    np.testing.assert_allclose(answer.compute(), expected, rtol=1e-9, atol=1e-12)


def test_criteria(X):
    hmm = VRHMM(3, **PLAIN).fit(X, lengths=LENGTHS)
    for method in ("aic", "bic", "score"):
        here = getattr(hmm, method)(X, lengths=LENGTHS)
        there = getattr(hmm, method)(lazily(X), lengths=LENGTHS)
        assert isinstance(there, float)
        np.testing.assert_allclose(there, here, rtol=1e-12)
        weight = np.repeat(1.0 + np.arange(len(LENGTHS)), LENGTHS)
        given = {"lengths": LENGTHS, "sample_weight": weight}
        there = getattr(hmm, method)(lazily(X), **given)
        here = getattr(hmm, method)(X, **given)
        np.testing.assert_allclose(there, here, rtol=1e-12)


def test_models_that_need_no_fit(X):
    emission = Gaussian(mean=[[0.0], [3.0]], covariance=[[1.0], [1.0]])
    fixed = Homogeneous(fixed=[[0.9, 0.1], [0.1, 0.9]])
    hmm = VRHMM(2, emission=emission, startprob=[0.5, 0.5], transitions=fixed)
    lazy = lazily(X[:, :1])
    np.testing.assert_allclose(hmm.aic(lazy), hmm.aic(X[:, :1]))
    np.testing.assert_array_equal(hmm.predict(lazy), hmm.predict(X[:, :1]))


# What is refused


def test_a_sequence_that_is_too_long_is_refused(X, monkeypatch):
    monkeypatch.setattr(_sequences, "LARGEST", 24 * 1000)
    for lengths in (None, [150, N - 150]):
        longest = N if lengths is None else max(lengths)
        message = rf"A sequence of {longest} rows lies in many"
        with pytest.raises(ValueError, match=message):
            VRHMM(3).fit(lazily(X), lengths=lengths)
    # Its user says that it fits.
    VRHMM(3, **PLAIN).fit(lazily(X).rechunk({0: -1}))
    assert_same(*both(X, {}, {"lengths": LENGTHS}))


@pytest.mark.parametrize(
    "method",
    ["partial_fit", "decode", "forecast", "sample_states", "confidence_intervals"],
)
def test_other_methods_refuse_and_load_nothing(X, method):
    hmm = VRHMM(3, **PLAIN).fit(X, lengths=LENGTHS)

    def load(block):
        raise AssertionError("a block was loaded")

    lazy = lazily(X).map_blocks(load, dtype=float, meta=X[:0])
    with pytest.raises(TypeError, match="not a dask Array"):
        getattr(hmm, method)(lazy)
    with pytest.raises(TypeError, match="not a dask Array"):
        hmm.score(X, groups=da.from_array(IDS))


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_sparse_chunks_are_refused(X, lengths):
    sparse = lazily(X).map_blocks(sp.csr_array)
    with pytest.raises(TypeError, match="dense data is required"):
        VRHMM(3).fit(sparse, lengths=lengths)


def test_errors_name_rows_and_leave_the_estimator(X, monkeypatch):
    rows = np.abs(np.rint(X))
    rows[1601, 0] = -1.0
    hmm = VRHMM(3, emission="poisson")
    with pytest.raises(ValueError, match=r"0, 1, 2, \.\.\.: column 0 holds -1"):
        hmm.fit(lazily(rows), lengths=LENGTHS)
    monkeypatch.setattr(_blocks, "MOST_ROWS", 5)  # which it is not among
    with pytest.raises(ValueError, match=r"holds -1\. \(Rows are counted from row \d"):
        hmm.fit(lazily(rows), lengths=LENGTHS)
    assert not [name for name in vars(hmm) if name.endswith("_")]
    with pytest.raises(ValueError, match="inf"):
        VRHMM(3).fit(lazily(np.where(X > 5.0, np.inf, X)))
    with pytest.raises(ValueError, match="add up"):
        VRHMM(3).fit(lazily(X), lengths=[5, 7])
    with pytest.raises(ValueError, match="given twice"):
        VRHMM(3).fit(lazily(X), lengths=LENGTHS, groups=IDS)
    again = np.where(np.arange(N) > N - 5, IDS[0], IDS)
    for groups in (again, da.from_array(again, chunks=(CHUNKS,))):
        with pytest.raises(ValueError, match=f"id {IDS[0]} comes again in row {N - 4}"):
            VRHMM(3).fit(lazily(X), groups=groups)
    with pytest.raises(ValueError, match="one value for each"):
        VRHMM(3).fit(lazily(X), sample_weight=np.ones(N - 1))
    with pytest.raises(ValueError, match="same for all rows"):
        VRHMM(3).fit(lazily(X), lengths=LENGTHS, sample_weight=1.0 + np.arange(N))
    with pytest.raises(ValueError, match="zero for every sample"):
        VRHMM(3).fit(lazily(X), sample_weight=da.zeros(N, chunks=(CHUNKS,)))
    with pytest.raises(ValueError, match="n_samples >= n_components"):
        VRHMM(N + 1).fit(lazily(X))
    with pytest.raises(ValueError, match="NaN"):
        VRHMM(3).fit(lazily(np.full_like(X, np.nan)))
    with pytest.raises(NotFittedError):
        VRHMM(3).predict(lazily(X))
    with pytest.raises(ValueError, match="features"):
        VRHMM(3, **PLAIN).fit(X).predict(lazily(X[:, :2]))


def test_rows_that_no_path_reaches_are_numbered_as_in_memory():
    codes = np.zeros((300, 1))
    codes[250] = 1.0
    emission = Categorical(2, probability=[[1.0, 0.0], [1.0, 0.0]])
    hmm = VRHMM(2, emission=emission, n_init=1, random_state=0)
    given = {"lengths": [100, 100, 100]}
    messages = []
    for rows in (codes, da.from_array(codes, chunks=(100, 1))):
        with pytest.raises(ValueError, match="Row 250 of X") as caught:
            hmm.fit(rows, **given)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


# On a cluster


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(X):
    with two_workers() as client:
        rows, watch = client.persist(lazily(X)), Killing(client)
        client.compute(rows.sum()).result()
        here = VRHMM(3, **PLAIN).fit(X, lengths=LENGTHS)
        there = VRHMM(3, **PLAIN)
        there.set_callbacks(watch)
        there.fit(rows, lengths=LENGTHS)
        assert watch.killed
        assert_same(here, there)
        answer = there.predict(rows, lengths=LENGTHS).compute()
    np.testing.assert_array_equal(answer, here.predict(X, lengths=LENGTHS))
