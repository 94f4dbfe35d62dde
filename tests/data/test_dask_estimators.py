"""Every estimator on dask: the answer of memory, and nothing is loaded."""

import os
import pickle
import signal
import threading
import warnings
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    FactorialMixture,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
    VRGaussianMixture,
)
from skvrem.data import is_dask
from tests.kills import repaired

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore:.*groups:skvrem.exceptions.FewGroupsWarning",
)
N, D = 700, 4
CHUNKS = (200, 0, 310, 190)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) + 2.0 * RNG.integers(2, size=(N, 1))
WEIGHT = RNG.uniform(0.2, 2.0, size=N)
Y = (X[:, :3] + RNG.gumbel(size=(N, 3))).argmax(axis=1)
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0])).astype(float)
GROUPS = RNG.choice(np.array(["a", "b", "c", "d", "e"]), N)
PAIRS = np.array([RNG.choice(6, 2, replace=False) for _ in range(N)])
CODES = RNG.integers(2, size=(N, 2)) @ np.array([[2.0, 0, 0, 1], [0, 3.0, 1, 0]])
FACTORS = CODES + 0.3 * RNG.normal(size=(N, D))
LINEAR = {"hidden_layer_sizes": (), "max_iter": 30, "solver": "batch"}


class Case(NamedTuple):
    """An estimator, what it is fitted to, and what it says of rows."""

    name: str
    model: Any
    X: np.ndarray
    y: Any = None
    fitted: tuple = ("coef_", "intercept_")
    answers: tuple = ("predict", "predict_proba", "predict_log_proba")
    beside: dict = {}
    sparse: bool = False
    rtol: float = 1e-9

    def fit(self, lazily, weight=WEIGHT, X=None, **changes):
        """Return the model fitted, to containers of dask where that is asked for."""
        return self.learn("fit", lazily, weight, X, **changes)

    def learn(self, method, lazily, weight=WEIGHT, X=None, more=(), **changes):
        """Return the model after `fit` or `partial_fit`."""
        model = clone(self.model).set_params(**changes)
        rows = self.rows(lazily) if X is None else X
        given = {"sample_weight": weight} | self.beside
        if self.y is not None:
            given["y"] = self.y
        if lazily:
            given = {k: None if v is None else column(v) for k, v in given.items()}
        return getattr(model, method)(rows, **given, **dict(more))

    def rows(self, lazily, chunks=(CHUNKS, 3)):
        """Return the rows."""
        return da.from_array(self.X, chunks=chunks) if lazily else self.X

    def score(self, model, lazily):
        """Return the score of the rows, by weights where it takes them."""
        given = dict(self.beside)
        if self.y is not None:
            given["y"] = self.y
        if not isinstance(model, BayesianPPCA):
            given["sample_weight"] = WEIGHT
        if lazily:
            given = {name: column(values) for name, values in given.items()}
        return model.score(self.rows(lazily), **given)


def column(values):
    """Return what belongs to rows in other chunks than these."""
    return da.from_array(values, chunks=150)


def binary(y):
    return np.where(y > 0, "yes", "no")


MIXED = ("predict", "predict_proba", "score_samples")
CASES = [
    Case(
        "mixture",
        VRGaussianMixture(2, n_init=1, random_state=0, max_iter=20, tol=1e-9),
        X,
        fitted=("weights_", "means_", "covariances_"),
        answers=MIXED,
    ),
    Case(
        "mixture-batch",
        VRGaussianMixture(
            2, solver="batch", covariance_type="diag", random_state=0, max_iter=20
        ),
        X,
        fitted=("weights_", "means_", "covariances_"),
        answers=MIXED,
    ),
    Case(
        "factorial",
        # In memory "auto" makes more starts.
        FactorialMixture(2, random_state=0, max_iter=30, n_init=2),
        FACTORS,
        fitted=("components_", "noise_variance_", "activation_prior_"),
        answers=("predict", "transform", "score_samples"),
    ),
    Case(
        "logistic",
        SBMLogisticRegression(random_state=0, compute_std=True),
        X,
        binary(Y),
        fitted=("coef_", "intercept_", "coef_std_", "objective_"),
        answers=("predict", "predict_proba", "predict_log_proba", "decision_function"),
        sparse=True,
    ),
    Case(
        "logistic-classes",
        SBMLogisticRegression(solver="batch", class_weight="balanced"),
        X + np.array([0.0, 0.0, 0.0, 1e3]),
        Y,
        sparse=False,
    ),
    Case(
        "bayes",
        BayesianLogisticRegression(),
        X,
        binary(Y),
        fitted=("coef_", "coef_std_", "elbo_"),
        sparse=True,
    ),
    Case(
        "bayes-classes",
        BayesianLogisticRegression(posterior="lowrank", rank=2, random_state=0),
        X,
        Y,
        fitted=("coef_", "coef_std_", "elbo_"),
        answers=("predict", "predict_proba", "predict_proba_interval"),
        sparse=True,
    ),
    Case(
        "regression",
        BayesianGLMRegressor(),
        X,
        X @ np.arange(4.0) + RNG.normal(size=N),
        fitted=("coef_", "coef_std_", "noise_scale_", "elbo_"),
        answers=("predict", "predict_interval", "predict_mean_interval"),
        sparse=True,
    ),
    Case(
        "counts",
        BayesianGLMRegressor("poisson"),
        X,
        COUNTS,
        fitted=("coef_", "coef_std_", "elbo_"),
        answers=("predict", "predict_interval"),
        beside={"offset": 0.1 * RNG.normal(size=N)},
        sparse=True,
    ),
    Case(
        "overdispersed",
        BayesianGLMRegressor("negative-binomial"),
        X,
        COUNTS,
        fitted=("coef_", "coef_std_"),
        answers=("predict",),
        sparse=True,
    ),
    Case(
        "nested",
        HierarchicalSoftmaxClassifier(),
        X,
        Y,
        fitted=("group_coef_", "population_scale_", "log_marginal_likelihood_"),
        answers=("predict", "predict_proba", "predict_log_proba"),
        beside={"groups": GROUPS},
    ),
    Case(
        "groups",
        HierarchicalSoftmaxClassifier(posterior="meanfield"),
        X,
        Y,
        fitted=("group_coef_", "population_scale_", "elbo_"),
        beside={"groups": GROUPS},
    ),
    Case(
        "dropout",
        GaussianDropoutClassifier(**LINEAR, random_state=0),
        X,
        Y,
        fitted=("coefs_", "intercepts_", "loss_"),
    ),
    Case(
        "ppca",
        BayesianPPCA(2, random_state=0),
        X,
        fitted=("components_", "noise_variance_", "elbo_"),
        answers=("transform", "score_samples"),
    ),
    Case(
        "skills",
        BradleyTerry(),
        PAIRS,
        RNG.choice([0.0, 0.5, 1.0], N),
        fitted=("n_matches_", "elbo_"),
        answers=("predict", "predict_proba", "predict_log_proba"),
    ),
]
VISITED_BY_MEAN_FIELD = BayesianLogisticRegression, BayesianGLMRegressor
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture(scope="module")
def fitted():
    """Fits in memory, one of each case."""
    known = {}

    def fit(case):
        if case.name not in known:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                known[case.name] = case.fit(False)
        return known[case.name]

    return fit


def assert_same(case, here, there, rtol=None):
    rtol = case.rtol if rtol is None else rtol
    for name in case.fitted:
        a, b = getattr(here, name), getattr(there, name)
        parts = zip(a, b, strict=True) if isinstance(a, list) else [(a, b)]
        for one, other in parts:
            scale = max(float(np.abs(one).max()), 1e-3)
            np.testing.assert_allclose(other, one, rtol=rtol, atol=rtol * scale)


# Fits


@every
def test_a_fit_is_that_of_memory(case, fitted):
    here, there = fitted(case), case.fit(True)
    assert np.all(there.n_iter_ == here.n_iter_)
    assert_same(case, here, there)


@every
def test_unknown_sizes_and_columns_in_memory(case, fitted):
    loaded = da.from_array(case.X, chunks=(230, 1))
    rows = loaded[loaded[:, 0] < np.inf]  # nobody knows how many
    assert np.isnan(rows.shape[0])
    given = {"sample_weight": WEIGHT} | case.beside
    given |= {} if case.y is None else {"y": case.y}
    assert_same(case, fitted(case), clone(case.model).fit(rows, **given))
    assert np.isnan(rows.shape[0])  # the caller's array is as it was


@every
def test_frames_keep_their_names(case, fitted):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    names = list("wxyz")[: case.X.shape[1]]
    frame = pd.DataFrame(case.X, columns=names)
    lazy = dd.from_pandas(frame, npartitions=3)
    there = case.fit(True, X=lazy)
    assert there.feature_names_in_.tolist() == names
    assert_same(case, fitted(case), there)
    answer = getattr(there, case.answers[0])(lazy)
    assert is_dask(answer)
    np.testing.assert_array_equal(
        answer.compute(), getattr(there, case.answers[0])(frame)
    )
    with pytest.raises(ValueError, match="feature names"):
        getattr(there, case.answers[0])(lazy[names[::-1]])


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean"])
def test_frames_that_miss_values_as_only_frames_do(dtype):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(RNG.integers(2, size=(N, 2)), columns=["a", "b"])
    frame = frame.astype(dtype)
    frame.loc[3, "a"] = pd.NA
    lazy = dd.from_pandas(frame, npartitions=3)
    mixture = VRGaussianMixture(1, covariance_type="diag", random_state=0)
    here = clone(mixture).fit(frame).means_
    np.testing.assert_allclose(clone(mixture).fit(lazy).means_, here, rtol=1e-9)
    for rows in (frame, lazy):
        with pytest.raises(ValueError, match="contains NaN"):
            SBMLogisticRegression().fit(rows, Y)


@every
def test_a_lazily_loaded_array_is_read_block_by_block(case):
    alive = []

    def load(block, block_info=None):
        alive.append(block_info[0]["chunk-location"][0])
        return block

    rows = case.rows(True, (CHUNKS, -1)).map_blocks(load, dtype=case.X.dtype)
    with dask.config.set(scheduler="synchronous"):
        model = case.fit(True, X=rows)
        reads = len(alive)
        getattr(model, case.answers[0])(rows)
        assert len(alive) == reads  # asking computes nothing
        case.score(model, True)
    assert reads >= len(CHUNKS)


@every
def test_sparse_chunks_are_taken_or_refused_with_advice(case, fitted):
    if isinstance(case.model, BradleyTerry):
        pytest.skip("labels are no matrix")
    dense = case.rows(True, (CHUNKS, -1))
    rows = dense.map_blocks(sp.csr_matrix, meta=sp.csr_matrix((0, 0)))
    if case.sparse:
        there = case.fit(True, X=rows)
        assert_same(case, case.fit(False, X=sp.csr_matrix(case.X)), there)
        answer = getattr(there, case.answers[0])(rows)
        assert len(answer.compute()) == N
        return
    message = r"chunks of X are sparse .* X.map_blocks\(lambda block: block.toarray"
    if not isinstance(case.model, SBMLogisticRegression):
        with pytest.raises(TypeError, match=message):
            case.fit(True, X=rows)
        with pytest.raises(TypeError, match=message):
            getattr(fitted(case), case.answers[0])(rows).compute()


@every
def test_minibatches_are_visited_where_they_lie(case):
    """Of every estimator that has them in memory."""
    if not hasattr(case.model, "solver"):
        return
    params = {"solver": "svrg", "max_iter": 2}
    if isinstance(case.model, VISITED_BY_MEAN_FIELD):
        params["posterior"] = "meanfield"
    if case.beside:
        with pytest.raises(ValueError, match="takes no offset"):
            case.fit(True, **params)
        return
    if case.name == "overdispersed":
        with pytest.raises(ValueError, match="has no steps for family"):
            case.fit(True, **params)
        return
    assert case.fit(True, **params).solver_ == "svrg"


@every
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_number_changes_nothing(case, value):
    rows = case.X.astype(float)
    rows[456, 1] = value
    model = clone(case.model)
    spoilt = da.from_array(rows, chunks=(CHUNKS, -1))
    given = {} if case.y is None else {"y": case.y}
    if isinstance(model, BradleyTerry) and value == np.inf:
        return  # a label like another
    if case.name == "mixture-batch" and np.isnan(value):
        return  # is missing, which diagonal covariances integrate out
    with pytest.raises(ValueError, match=r"NaN|inf|missing"):
        model.fit(spoilt, **given, **case.beside)
    assert vars(model) == vars(clone(case.model))


@every
def test_what_belongs_to_rows_must_be_as_many(case):
    model, rows = clone(case.model), case.rows(True)
    y = {} if case.y is None else {"y": case.y}
    short = {"sample_weight": da.ones(N - 1, chunks=100)}
    for wrong in (short, {"sample_weight": np.ones(N - 1)}):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(rows, **y, **wrong, **case.beside)
    for weight in (-np.ones(N), np.zeros(N), np.full(N, np.nan)):
        with pytest.raises(ValueError):
            model.fit(rows, **y, sample_weight=column(weight), **case.beside)
    with pytest.raises(TypeError, match="lies in memory"):
        model.fit(case.X, **y, sample_weight=column(WEIGHT), **case.beside)
    assert not [name for name in vars(model) if name.endswith("_")]


@every
def test_a_warm_start_goes_on(case, fitted):
    params = {"warm_start": True, "max_iter": 3}
    here, there = case.fit(False, **params), case.fit(True, **params)
    # In memory it also knows of each row what it found, which no pickle has.
    here = pickle.loads(pickle.dumps(here))
    given = {"sample_weight": WEIGHT} | case.beside
    given |= {} if case.y is None else {"y": case.y}
    here.fit(case.X, **given)
    there.fit(case.rows(True), **given)
    assert_same(case, here, there)


@every
def test_partial_fit_takes_block_by_block(case):
    if isinstance(case.model, VRGaussianMixture):
        pytest.skip("tests/data/test_dask.py: a batch is the whole array")
    params = {"max_iter": 20}
    more = {}
    if hasattr(case.model, "predict_proba") and not isinstance(
        case.model, BradleyTerry | VRGaussianMixture
    ):
        more["classes"] = np.unique(case.y)
    model = clone(case.model).set_params(**params)
    if "class_weight" in model.get_params():
        model.set_params(class_weight=None)
    here = clone(model)
    edges = np.cumsum([0, *CHUNKS])
    whole = isinstance(model, BradleyTerry | BayesianPPCA)
    given = {"sample_weight": WEIGHT} | case.beside
    given |= {} if case.y is None else {"y": case.y}
    model.partial_fit(case.rows(True), **given, **more)
    if whole:
        here.partial_fit(case.X, **given, **more)
    else:
        for start, stop in pairwise(edges):
            if stop > start:
                some = {name: part[start:stop] for name, part in given.items()}
                here.partial_fit(case.X[start:stop], **some, **more)
    names = [name for name in case.fitted if hasattr(here, name)]
    assert_same(case._replace(fitted=tuple(names)), here, model)


# Answers


@every
def test_answers_are_lazy_and_those_of_blocks(case, fitted):
    model, rows = fitted(case), case.rows(True, (CHUNKS, 1))
    edges = np.cumsum([0, *CHUNKS])
    for method in case.answers:
        ask = getattr(model, method)

        def refuse(dsk, keys, **kwargs):
            raise AssertionError("computed")

        with dask.config.set(scheduler=refuse):
            answer = ask(rows, **case.beside)
        assert is_dask(answer)
        found = answer.compute()
        parts = []
        for start, stop in pairwise(edges):
            if stop > start:
                own = {name: part[start:stop] for name, part in case.beside.items()}
                parts.append(ask(case.X[start:stop], **own))
        expected = np.concatenate(parts)
        assert (answer.shape, answer.dtype) == (expected.shape, found.dtype)
        assert answer._meta.dtype == found.dtype
        np.testing.assert_array_equal(found, expected)


@every
def test_a_score_is_that_of_memory(case, fitted):
    model = fitted(case)
    there = case.score(model, True)
    assert isinstance(there, float)
    assert there == pytest.approx(case.score(model, False), rel=1e-9)


def test_a_regression_answers_with_deviations(fitted):
    case = next(case for case in CASES if case.name == "regression")
    mean, deviation = fitted(case).predict(case.rows(True), return_std=True)
    expected = fitted(case).predict(case.X, return_std=True)
    np.testing.assert_allclose(mean.compute(), expected[0], rtol=1e-12)
    np.testing.assert_allclose(deviation.compute(), expected[1], rtol=1e-12)


@pytest.mark.parametrize("posterior", ["auto", "meanfield"])
def test_a_gaussian_regression_is_of_sums_over_blocks(posterior, monkeypatch):
    """One pass makes them, and the fit goes on here, whatever its epochs."""
    from skvrem.data._dask import DaskPartition

    calls = []
    for name in ("sum", "reduce"):
        method = getattr(DaskPartition, name)

        def counted(partition, *given, method=method):
            calls.append(partition)
            return method(partition, *given)

        monkeypatch.setattr(DaskPartition, name, counted)
    weight = WEIGHT * (np.arange(N) >= 250)  # the first block weighs nothing
    y = X @ np.arange(4.0) + RNG.normal(size=N)
    model = BayesianGLMRegressor(posterior=posterior)
    here = clone(model).fit(X, y, sample_weight=weight)
    with dask.config.set(scheduler="synchronous"):
        there = clone(model).fit(da.from_array(X, (CHUNKS, 2)), y, sample_weight=weight)
    assert len(calls) == 2  # of moments, which are checked, and of sums
    assert there.n_samples_seen_ == there.batch_size_ == N
    for name in ("coef_", "coef_std_", "intercept_std_", "noise_scale_", "elbo_"):
        np.testing.assert_allclose(
            getattr(there, name), getattr(here, name), rtol=1e-9, err_msg=name
        )
    # The sums go on with a stream.
    for one in (here, there):
        one.partial_fit(X[:100] + 0.1, y[:100])
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-9)


def test_fewer_rows_than_coefficients():
    rng = np.random.default_rng(1)
    rows, y = rng.normal(size=(30, 50)), np.arange(30) % 2
    here = BayesianLogisticRegression().fit(rows, y)
    there = BayesianLogisticRegression().fit(da.from_array(rows, chunks=(9, 20)), y)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Dask currently has limited support")
def test_groups_in_a_column_of_a_frame():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=list("wxyz")).assign(place=GROUPS)
    lazy = dd.from_pandas(frame, npartitions=4)
    for model, y in (
        (HierarchicalSoftmaxClassifier(groups="place"), Y),
        (BayesianLogisticRegression(groups="place", varying=["x"]), binary(Y)),
    ):
        here, there = clone(model).fit(frame, y), clone(model).fit(lazy, y)
        np.testing.assert_allclose(there.group_coef_, here.group_coef_, rtol=1e-9)
        assert there.groups_.tolist() == list("abcde")
        np.testing.assert_array_equal(there.predict(lazy), here.predict(frame))


OVERDISPERSED = np.random.default_rng(1).negative_binomial(2, 0.3, N).astype(float)
VARYING = {
    "logistic": (BayesianLogisticRegression(varying="all"), binary(Y)),
    "gaussian": (BayesianGLMRegressor(varying=[1]), X[:, 0] + COUNTS),
    "known noise": (BayesianGLMRegressor(noise_scale=0.5), X[:, 0] + COUNTS),
    "poisson": (BayesianGLMRegressor("poisson", varying=[0, 2]), COUNTS),
    "counts": (BayesianGLMRegressor("negative-binomial"), OVERDISPERSED),
}
OF_GROUPS = (
    "coef_",
    "coef_std_",
    "intercept_",
    "group_coef_",
    "group_intercept_",
    "group_intercept_std_",
    "population_scale_",
    "population_intercept_scale_",
    "log_marginal_likelihood_",
    "groups_",
    "n_group_samples_",
    "n_iter_",
)


@pytest.mark.parametrize("kind", VARYING)
@pytest.mark.parametrize("many", [False, True])
def test_groups_of_linear_models_across_chunks(kind, many, monkeypatch):
    """Groups lie in several blocks, and the answer is that of memory."""
    if many:  # some of the groups are looked at first
        monkeypatch.setattr("skvrem.vi.glm.groups._estimator.MANY_GROUPS", 5)
        monkeypatch.setattr("skvrem.vi.glm.groups._estimator.ONE_IN", 2)
    model, y = VARYING[kind]
    # The search of a concentration ends sooner.
    rtol = 1e-9
    beside = {"sample_weight": WEIGHT, "groups": GROUPS}
    if kind in ("poisson", "known noise"):
        beside["offset"] = 0.1 * X[:, 3]
    there = {name: da.from_array(v, (CHUNKS,)) for name, v in beside.items()}
    lazy = da.from_array(X, (CHUNKS, 2))
    with dask.config.set(scheduler="synchronous"):
        here, far = clone(model).fit(X, y, **beside), clone(model).fit(lazy, y, **there)
        names = list(OF_GROUPS)
        names += {"gaussian": ["noise_scale_"], "counts": ["concentration_"]}.get(
            kind, []
        )
        for name in names:
            own, other = getattr(here, name), getattr(far, name)
            if np.asarray(own).dtype.kind in "fi":
                np.testing.assert_allclose(other, own, rtol=rtol, atol=rtol)
            else:
                np.testing.assert_array_equal(other, own)
        np.testing.assert_allclose(
            far.history_["objective"], here.history_["objective"], rtol=rtol
        )
        del beside["sample_weight"], there["sample_weight"]
        found = far.predict(lazy, **there)
        assert isinstance(found, da.Array)
        answer = here.predict(X, **beside)
        if kind == "logistic":
            np.testing.assert_array_equal(found.compute(), answer)
        else:
            np.testing.assert_allclose(found.compute(), answer, rtol=10.0 * rtol)


def test_groups_of_linear_models_that_blocks_cannot_have():
    model, y = BayesianLogisticRegression(), binary(Y)
    lazy = da.from_array(X, (CHUNKS, D))
    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(TypeError, match="sparse"):
            model.fit(lazy.map_blocks(sp.csr_matrix), y, groups=GROUPS)
        ids = da.from_array(np.where(np.arange(N) == 300, np.nan, 1.0), (CHUNKS,))
        with pytest.raises(ValueError, match="no id"):
            model.fit(lazy, y, groups=ids)
        with pytest.raises(ValueError, match="two classes"):
            model.fit(lazy, Y, groups=GROUPS)
        with pytest.raises(ValueError, match="given twice"):
            clone(model).set_params(groups=1).fit(lazy, y, groups=GROUPS)
    assert not hasattr(model, "posterior_")


def test_classes_are_those_of_all_blocks():
    y = np.sort(Y)  # each block has some
    model = SBMLogisticRegression().fit(da.from_array(X, chunks=(100, D)), y)
    assert model.classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="only one class"):
        SBMLogisticRegression().fit(da.from_array(X), np.zeros(N))
    with pytest.raises(ValueError, match="Unknown label type"):
        SBMLogisticRegression().fit(da.from_array(X), X[:, 0])
    y = np.where(Y > 0, Y.astype(object), None)
    with pytest.raises(ValueError, match="got NoneType and int: leave out the rows"):
        SBMLogisticRegression().fit(da.from_array(X), y)


def test_draws_of_new_targets_are_of_rows_in_memory():
    model = BayesianGLMRegressor("poisson").fit(X, COUNTS)
    lazy = da.from_array(X, chunks=(CHUNKS, D)).map_blocks(
        lambda block: block, chunks=((np.nan,) * 4, (D,))
    )
    for more in {}, {"offset": np.zeros(N)}:
        with pytest.raises(TypeError, match="data in memory, not a dask Array"):
            model.sample_predictive(lazy, **more)


def test_a_checkpoint_goes_on_with_an_array_that_is_loaded_again(tmp_path):
    from skvrem import Checkpoint

    for case in CASES[:4]:
        path = tmp_path / case.name
        params = {"max_iter": 8}
        if "n_init" in case.model.get_params() and case.name == "mixture":
            params["tol"] = 0.0
        whole = case.fit(True, weight=None, **params)
        part = clone(case.model).set_params(**params | {"max_iter": 3})
        given = (case.rows(True),) if case.y is None else (case.rows(True), case.y)
        Checkpoint(path, every=1).fit(part, *given)
        resumed = Checkpoint.load(path).set_params(warm_start=True, max_iter=8)
        resumed.fit(case.rows(True), *given[1:])
        if case.name != "factorial":  # whose codes begin anew
            # Quasi-Newton steps take their metric anew.
            assert_same(case, whole, resumed, rtol=1e-4)


# The table of the guide

GUIDE = Path(__file__).parents[2] / "doc" / "user_guide" / "beyond_memory.rst"
COLUMNS = "fit", "sparse chunks", "minibatches", "partial_fit", "lazy answers", "score"


def table():
    """Return rows of the guide's table, as the cases here have them."""
    found = {}
    for case in CASES:
        kind = type(case.model)
        known = found.setdefault(kind.__name__, dict.fromkeys(COLUMNS, ""))
        counts = "of matches" if kind is BradleyTerry else "full passes"
        if kind is BayesianGLMRegressor:
            counts = "full passes; Gaussian of sums"
        known["fit"] = "of moments" if kind is BayesianPPCA else counts
        known["sparse chunks"] = "yes" if case.sparse or known["sparse chunks"] else ""
        known["minibatches"] = "visited" if hasattr(case.model, "solver") else "none"
        if hasattr(kind, "partial_fit"):
            whole = kind in (BradleyTerry, BayesianPPCA, VRGaussianMixture)
            known["partial_fit"] = "the whole" if whole else "by blocks"
        asked = known["lazy answers"].split(", ") if known["lazy answers"] else []
        asked += [f"``{name}``" for name in case.answers]
        known["lazy answers"] = ", ".join(sorted(set(asked)))
        known["score"] = "a number"
    return found


def test_the_guide_has_the_table_of_these_tests():
    text = " ".join(GUIDE.read_text(encoding="utf-8").split())
    for name, cells in sorted(table().items()):
        row = f"* - :class:`~skvrem.{name}`"
        for column in COLUMNS:
            row += f" - {cells[column] or 'no'}"
        assert row in text, row


# What is sent, and faults


@contextmanager
def closing(cluster):
    """Close a cluster, some of whose workers have been killed."""
    try:
        yield cluster
    finally:
        try:
            cluster.close()
        except KeyError:  # its own list of workers may lose one twice
            cluster.status = type(cluster.status).closed


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        dask.config.set(
            {"distributed.comm.timeouts.connect": "60s", "scheduler": None}
        ),
        closing(
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                memory_limit="1GiB",
            )
        ) as cluster,
        distributed.Client(cluster, timeout=60) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield client


FAULTY = [case for case in CASES if case.name in ("logistic", "factorial", "groups")]


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(cluster):
    for case in FAULTY:
        undisturbed = case.fit(True)
        with killing(cluster, type(undisturbed)):
            there = case.fit(True)
        # Blocks lie elsewhere in memory, which BLAS may see in the last bit.
        assert_same(case, undisturbed, there, rtol=1e-12)


class killing:
    """Kills a worker during the second pass of a fit."""

    def __init__(self, client, kind):
        self.client, self.passes = client, 0

    def __enter__(self):
        from skvrem.data._dask import DaskPartition

        self.partition, self.sum = DaskPartition, DaskPartition.sum

        def counted(partition, function):
            self.passes += 1
            if self.passes == 2:
                pid = next(iter(self.client.run(os.getpid).values()))
                threading.Timer(0.02, os.kill, (pid, signal.SIGKILL)).start()
            return self.sum(partition, function)

        DaskPartition.sum = counted

    def __exit__(self, *error):
        self.partition.sum = self.sum
        repaired(self.client.cluster, self.client)
        assert self.passes > 2


@pytest.mark.slow
def test_a_closed_cluster_is_one_clear_error():
    distributed = pytest.importorskip("distributed")
    from skvrem.data._dask import DaskPartition

    case = next(case for case in CASES if case.name == "logistic")
    model, plain = clone(case.model), DaskPartition.sum
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        client = distributed.Client(cluster, timeout=60)
        calls = []

        def closing(partition, function):
            calls.append(1)
            if len(calls) == 2:
                client.close()
                cluster.close()
            return plain(partition, function)

        rows = case.rows(True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DaskPartition, "sum", closing)
            with (
                dask.config.set(scheduler=None),
                pytest.raises(RuntimeError, match="cluster was closed"),
            ):
                model.fit(rows, case.y)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "kind",
    [
        BayesianGLMRegressor,
        BayesianLogisticRegression,
        GaussianDropoutClassifier,
        HierarchicalSoftmaxClassifier,
        SBMLogisticRegression,
    ],
)
def test_targets_that_are_not_there_are_asked_for(kind, method):
    rows = da.zeros((6, 2), chunks=3)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y"):
        getattr(kind(), method)(rows, None)
