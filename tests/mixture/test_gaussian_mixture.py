"""VRGaussianMixture beside scikit-learn's, and what it does beyond it."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture

from skvrem import VRGaussianMixture
from skvrem.data import _reservoir, as_source
from skvrem.exceptions import DataScaleWarning
from skvrem.mixture._model import GaussianMixtureModel, Parameters

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
SOLVERS = ("batch", "svrg", "saga", "incremental")


def blobs(n=600, k=3, d=4, seed=0, spread=3.0):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(k, d)) * spread
    X = means[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    X[:, 0] += 0.5 * X[:, 1]
    return X


def inits(X, k, covariance_type, seed=0):
    d = X.shape[1]
    rows = np.random.default_rng(seed).choice(len(X), k, replace=False)
    precisions = {
        "full": np.stack([np.eye(d)] * k),
        "tied": np.eye(d),
        "diag": np.ones((k, d)),
        "spherical": np.ones(k),
    }[covariance_type]
    return {
        "n_components": k,
        "covariance_type": covariance_type,
        "weights_init": np.full(k, 1 / k),
        "means_init": X[rows],
        "precisions_init": precisions / X.var(),
    }


def labels_agree(a, b):
    """Share of equal labels under the best renaming of clusters."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(a, b)
    return table[linear_sum_assignment(-table)].sum() / len(a)


# A drop-in for scikit-learn's


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_same_path_as_scikit_learn_from_the_same_start(covariance_type, dtype):
    X = blobs().astype(dtype)
    start = inits(X, 3, covariance_type)
    theirs = GaussianMixture(**start, tol=1e-5, max_iter=300).fit(X.astype(float))
    ours = VRGaussianMixture(**start, tol=1e-5, max_iter=300, solver="batch").fit(X)
    tight = dtype is np.float64
    path = ours.history_["objective"]
    if tight:
        # Ours begins at the start, too, and goes on until less than tol is left.
        assert ours.n_iter_ >= theirs.n_iter_ - 1
        both = min(len(path), theirs.n_iter_)
        found, expected = path[:both], theirs.lower_bounds_[:both]
        np.testing.assert_allclose(found, expected, atol=1e-10)
    assert ours.converged_ and theirs.converged_
    assert ours.lower_bound_ >= theirs.lower_bound_ - (1e-10 if tight else 1e-4)
    # After as many steps, the same point.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours.set_params(max_iter=theirs.n_iter_, tol=0.0).fit(X)
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert mine.shape == other.shape
        assert mine.dtype == dtype
        tolerance = 1e-10 if tight else 2e-3
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        ours.precisions_, theirs.precisions_, rtol=1e-8 if tight else 5e-3, atol=1e-3
    )


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_same_calls_give_the_same_answers(covariance_type):
    X, new = blobs(), blobs(seed=0)[::-1] + 0.1
    start = inits(X, 3, covariance_type)
    theirs = GaussianMixture(**start, tol=1e-6, max_iter=500).fit(X)
    ours = VRGaussianMixture(
        **start, tol=0.0, max_iter=theirs.n_iter_, solver="batch"
    ).fit(X)
    np.testing.assert_array_equal(ours.predict(new), theirs.predict(new))
    np.testing.assert_allclose(
        ours.predict_proba(new), theirs.predict_proba(new), atol=1e-9
    )
    np.testing.assert_allclose(
        ours.score_samples(new), theirs.score_samples(new), rtol=1e-9
    )
    assert ours.score(new) == pytest.approx(theirs.score(new))
    assert ours.bic(new) == pytest.approx(theirs.bic(new))
    assert ours.aic(new) == pytest.approx(theirs.aic(new))
    assert set(theirs.get_params()) <= set(ours.get_params())
    defaults = GaussianMixture().get_params()
    del defaults["n_init"]  # theirs is 1
    assert defaults == {k: VRGaussianMixture().get_params()[k] for k in defaults}
    fitted = {name for name in vars(theirs) if name.endswith("_") and name[0] != "_"}
    assert all(hasattr(ours, name) for name in fitted)
    public = {n for n in dir(GaussianMixture) if n[0] != "_"}
    assert public <= set(dir(VRGaussianMixture))
    draws, components = ours.sample(50)
    assert draws.shape == (50, 4)
    assert components.shape == (50,)
    np.testing.assert_array_equal(ours.fit_predict(X), ours.predict(X))


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_a_swapped_import_gives_the_same_clusters(load, covariance_type):
    X = load().data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    arguments = {"covariance_type": covariance_type, "n_init": 5, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = GaussianMixture(3, **arguments).fit(X)
        ours = VRGaussianMixture(3, **arguments).fit(X)
    assert ours.solver_ == "batch+squarem"
    assert ours.lower_bound_ > theirs.lower_bound_ - 0.02
    if abs(ours.lower_bound_ - theirs.lower_bound_) < 0.02:
        assert labels_agree(ours.predict(X), theirs.predict(X)) > 0.95


def test_attributes_set_by_hand_are_enough_to_predict():
    X = blobs()
    fitted = VRGaussianMixture(3, random_state=0).fit(X)
    bare = VRGaussianMixture(3)
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
        setattr(bare, name, getattr(fitted, name))
    np.testing.assert_array_equal(bare.predict(X), fitted.predict(X))


def test_no_iterations_leave_the_start():
    X = blobs()
    start = inits(X, 3, "diag")
    mixture = VRGaussianMixture(**start, max_iter=0).fit(X)
    np.testing.assert_array_equal(mixture.means_, start["means_init"])
    assert mixture.n_iter_ == 0
    assert not mixture.converged_


# Solvers


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_ends_where_scikit_learn_does(solver, covariance_type):
    X = blobs(3000, spread=8.0)
    start = inits(X, 3, covariance_type)
    start["means_init"] = VRGaussianMixture(3, max_iter=0, random_state=0).fit(X).means_
    theirs = GaussianMixture(**start, tol=1e-10, max_iter=5000).fit(X)
    ours = VRGaussianMixture(
        **start, tol=1e-10, max_iter=5000, solver=solver, batch_size=150, random_state=0
    ).fit(X)
    assert ours.converged_
    assert ours.solver_ == solver
    assert ours.lower_bound_ == pytest.approx(theirs.lower_bound_, abs=1e-7)
    np.testing.assert_allclose(ours.means_, theirs.means_, atol=1e-3)


def test_auto_reduces_variance_where_rows_are_many():
    X = blobs(40_000)
    assert VRGaussianMixture(3, random_state=0).fit(X).solver_ == "saga"
    assert VRGaussianMixture(3, random_state=0).fit(X[1:]).solver_ == "batch+squarem"


def test_variance_reduction_recomputes_where_memory_is_short(monkeypatch):
    from skvrem.mixture import _estimator

    X = blobs(3000)
    arguments = {"n_components": 3, "solver": "svrg", "random_state": 0, "tol": 1e-9}
    kept = VRGaussianMixture(**arguments, batch_size=100).fit(X)
    monkeypatch.setattr(_estimator, "TABLE_BYTES", 1000)
    again = VRGaussianMixture(**arguments, batch_size=100).fit(X)
    assert again.lower_bound_ == pytest.approx(kept.lower_bound_, abs=1e-7)
    assert np.diff(kept.history_["passes"])[0] == 2.0
    assert np.diff(again.history_["passes"])[0] == 3.0


@pytest.mark.parametrize("solver", ["batch", "svrg", "saga"])
def test_annealing_ends_at_temperature_one(solver):
    X = blobs(2000)
    mixture = VRGaussianMixture(
        3, solver=solver, tempering="annealed", random_state=0, temperature=3.0
    ).fit(X)
    temperatures = mixture.history_["temperature"]
    assert temperatures[0] == 3.0
    assert temperatures[-1] == 1.0
    assert mixture.score(X) >= mixture.lower_bound_ - 1e-6


def test_annealing_longer_than_the_fit_warns():
    with (
        pytest.warns(UserWarning, match="raise max_iter"),
        pytest.warns(ConvergenceWarning),
    ):
        VRGaussianMixture(2, tempering="annealed", max_iter=3).fit(blobs())


def test_history_counts_passes_and_time():
    mixture = VRGaussianMixture(3, solver="svrg", random_state=0, tol=1e-8).fit(blobs())
    history = mixture.history_
    assert set(history) == {
        "passes",
        "seconds",
        "objective",
        "step_size",
        "temperature",
        "predicted_gain",
        "gradient_variance",
        "solver",
    }
    assert (np.diff(history["passes"]) > 0).all()
    assert (np.diff(history["seconds"]) > 0).all()
    assert history["objective"][-1] == mixture.lower_bound_


def test_starts_are_compared():
    X = blobs(k=6, spread=1.5)
    mixture = VRGaussianMixture(6, n_init=4, init_params="random", random_state=0)
    mixture.fit(X)
    assert mixture.init_scores_.shape == (4,)
    assert mixture.lower_bound_ == mixture.init_scores_.max()


@pytest.mark.parametrize(
    "init_params", ["kmeans", "k-means++", "random", "random_from_data"]
)
def test_every_start_works(init_params):
    X = blobs()
    mixture = VRGaussianMixture(3, init_params=init_params, random_state=0).fit(X)
    assert np.isfinite(mixture.lower_bound_)
    assert mixture.weights_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("solver", "acceleration", "used"),
    [
        ("auto", "auto", "batch+squarem"),
        ("auto", "squarem", "batch+squarem"),
        ("auto", None, "batch"),
        ("batch", "auto", "batch"),
        ("batch", None, "batch"),
        ("saga", None, "saga"),
    ],
)
def test_acceleration_is_none_where_it_is_refused(solver, acceleration, used):
    mixture = VRGaussianMixture(
        3, solver=solver, acceleration=acceleration, random_state=0
    )
    mixture.fit(blobs())
    assert mixture.solver_ == used
    objective = mixture.history_["objective"]
    assert mixture.objective_ == mixture.lower_bound_ == objective[-1]
    assert mixture.lower_bounds_ == objective[1:].tolist()


def test_warm_start_goes_on():
    X = blobs(2000, spread=1.0)
    mixture = VRGaussianMixture(3, warm_start=True, max_iter=2, solver="batch")
    mixture.set_params(random_state=0)
    scores = []
    for _ in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            scores.append(mixture.fit(X).lower_bound_)
    assert (np.diff(scores) > -1e-12).all()
    assert scores[-1] > scores[0]


def test_an_earlier_fit_that_does_not_fit_is_refused():
    X = blobs()
    mixture = VRGaussianMixture(3, warm_start=True, random_state=0).fit(X)
    for changes in ({"n_components": 4}, {"covariance_type": "diag"}):
        before = dict(vars(mixture))
        mixture.set_params(**changes)
        for method in (mixture.fit, mixture.partial_fit):
            with pytest.raises(ValueError, match="cannot be gone on from"):
                method(X)
        vars(mixture).update(before)
    with pytest.raises(ValueError, match="cannot be gone on from"):
        mixture.fit(X[:, :2])


def test_a_stream_may_bring_single_rows():
    X = blobs()
    mixture = VRGaussianMixture(3, random_state=0).partial_fit(X[:100])
    for row in X[100:110]:
        mixture.partial_fit(row[None])
    assert mixture.n_samples_seen_ == 110
    assert np.isfinite(mixture.score(X))


def test_not_converged_warns_with_what_to_do():
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        VRGaussianMixture(3, n_init=1, max_iter=2, tol=1e-12).fit(blobs())


# Beyond scikit-learn's


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_weight_is_a_repetition(covariance_type):
    X = blobs()
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    start = inits(X, 3, covariance_type)
    arguments = {**start, "solver": "batch", "tol": 1e-10, "max_iter": 500}
    weighted = VRGaussianMixture(**arguments).fit(X, sample_weight=weight)
    repeated = VRGaussianMixture(**arguments).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(weighted.means_, repeated.means_, atol=1e-9)
    np.testing.assert_allclose(weighted.covariances_, repeated.covariances_, atol=1e-9)
    assert weighted.score(X, sample_weight=weight) == pytest.approx(
        repeated.score(np.repeat(X, weight, axis=0))
    )


def test_weights_of_any_scale_are_the_same():
    X = blobs()
    weight = np.random.default_rng(1).uniform(size=len(X))
    a = VRGaussianMixture(3, random_state=0).fit(X, sample_weight=weight)
    b = VRGaussianMixture(3, random_state=0).fit(X, sample_weight=1e-6 * weight)
    np.testing.assert_allclose(a.means_, b.means_, atol=1e-6)


def test_a_stream_comes_to_the_same_mixture():
    X = blobs(40_000)
    whole = VRGaussianMixture(3, random_state=0).fit(X)
    stream = VRGaussianMixture(3, random_state=0)
    for rows in np.array_split(X, 80):
        stream.partial_fit(rows)
    assert stream.n_samples_seen_ == len(X)
    assert whole.score(X) - stream.score(X) < 2e-3


@pytest.mark.parametrize("size", [10, 300])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_stream_begins_well_with_batches_of_any_size(covariance_type, size):
    X = blobs(4000, k=10, spread=5.0)
    whole = VRGaussianMixture(10, covariance_type=covariance_type, random_state=0)
    stream = clone(whole)
    for start in range(0, len(X), size):
        stream.partial_fit(X[start : start + size])
    assert whole.fit(X).score(X) - stream.score(X) < 0.05
    assert stream._first_rows is None and stream.n_samples_seen_ == len(X)


def test_a_stream_of_few_rows_is_a_fit_to_them():
    X = blobs(600)
    stream = VRGaussianMixture(3, random_state=0)
    for rows in (X[:100], X[100:150], X[150:600]):
        stream.partial_fit(rows, sample_weight=np.ones(len(rows)))
    assert len(stream._first_rows.rows) == 600
    whole = VRGaussianMixture(3, random_state=0).fit(X)
    assert abs(whole.score(X) - stream.score(X)) < 1e-3
    assert stream.fit(X).score(X) == whole.score(X)
    assert not hasattr(stream, "_first_rows")


def test_a_stream_keeps_its_own_rows():
    X = blobs(200)
    batch = X[:100].copy()
    stream = VRGaussianMixture(3, random_state=0).partial_fit(batch)
    batch[:] = 0.0
    other = VRGaussianMixture(3, random_state=0).partial_fit(X[:100])
    for model in (stream, other):
        model.partial_fit(X[100:])
    np.testing.assert_array_equal(stream.means_, other.means_)


@pytest.mark.parametrize("size", [100, 1000])
def test_a_stream_of_sorted_rows_comes_near(size):
    X = blobs(10_000, k=10, spread=4.0)
    X = X[np.argsort(VRGaussianMixture(10, random_state=0).fit_predict(X))]
    stream = VRGaussianMixture(10, random_state=0)
    for start in range(0, len(X), size):
        stream.partial_fit(X[start : start + size])
        if start == 5000:
            stream = pickle.loads(pickle.dumps(stream))
    whole = VRGaussianMixture(10, random_state=0).fit(X)
    assert whole.score(X) - stream.score(X) < 0.1
    assert len(stream._reservoir.rows) == 5000


@pytest.mark.parametrize("size", [20, 500, 2000])
def test_a_stream_sorted_by_a_feature_comes_near(size):
    """Small batches do not surprise: they come near one that steps have followed."""
    X = blobs(6000, k=5, spread=1.5)
    whole = VRGaussianMixture(5, random_state=0).fit(X)
    stream, order = clone(whole), np.argsort(X[:, 0])
    for start in range(0, len(X), size):
        stream.partial_fit(X[order[start : start + size]])
    assert whole.score(X) - stream.score(X) < 0.1
    assert stream._reservoir.ordered


def test_rows_that_surprise_one_by_one_are_not_fitted_each_time():
    X = blobs(2500)
    stream = VRGaussianMixture(3, random_state=0).partial_fit(X[:2000])
    fitted = set()
    for row in X[2000:] + 30.0:
        stream.partial_fit(row[None])
        fitted.add(stream._reservoir.n_fitted)
    assert fitted == {2000, 2200}
    assert stream._reservoir.ordered


def test_a_sample_is_fitted_in_the_precision_of_the_stream():
    X = blobs(6000, k=5, spread=1.5)
    X = X[np.argsort(X[:, 0])]
    stream = VRGaussianMixture(5, random_state=0)
    stream.partial_fit(X[:2000].astype(np.float32))
    for rows in (X[2000:4000], X[4000:]):
        stream.partial_fit(rows)
    assert stream._reservoir.n_fitted == 6000
    assert stream.means_.dtype == stream.covariances_.dtype == np.float32


def test_a_stream_that_is_to_forget_does_not_begin_again():
    X = blobs(5000, k=2) + np.linspace(0.0, 10.0, 5000)[:, None]
    stream = VRGaussianMixture(2, step_size=0.5, step_decay=0.1, random_state=0)
    plain = clone(stream)
    for start in range(0, len(X), 100):
        for one in (stream, plain):
            one.partial_fit(X[start : start + 100])
        if start > 1500:
            calm = stream._reservoir._replace(level=-1e9)  # no batch surprises
            stream._reservoir, plain._reservoir = calm, None
    np.testing.assert_array_equal(stream.means_, plain.means_)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_in_random_order_begins_again_where_that_is_better(seed):
    """Not as a fit explains its own rows better than others, and as tails surprise."""
    rng = np.random.default_rng(seed)
    tails, others = rng.standard_t(2.5, (6000, 5)), rng.standard_t(2.5, (20_000, 5))
    for X in (blobs(6000, d=20, k=5, seed=seed, spread=1.0), tails):
        stream = VRGaussianMixture(5, random_state=0)
        plain = clone(stream)
        for start in range(0, len(X), 200):
            stream.partial_fit(X[start : start + 200])
            plain.partial_fit(X[start : start + 200])
            if start > 2000:
                surprised = stream._reservoir._replace(surprised=True)
                stream._reservoir, plain._reservoir = surprised, None
        if X is tails and (stream.means_ != plain.means_).any():
            assert stream.score(others) > plain.score(others) + 0.01
        else:
            np.testing.assert_array_equal(stream.means_, plain.means_)
        assert stream._reservoir.n_fitted > 4000


def test_a_stream_keeps_a_uniform_sample(monkeypatch):
    monkeypatch.setattr(_reservoir, "SAMPLE", 1000)
    X = np.column_stack([np.arange(8000.0), blobs(8000)])
    stream = VRGaussianMixture(2, covariance_type="diag", random_state=0)
    for start in range(0, len(X), 50):
        rows = X[start : start + 50].copy()
        stream.partial_fit(rows, sample_weight=1.0 + (rows[:, 0] < 4000.0))
        rows[:] = 0.0
    kept = np.array(stream._reservoir.rows)
    shares = np.histogram(kept[:, 0], bins=8, range=(0.0, 8000.0))[0]
    assert len(np.unique(kept[:, 0])) == 1000
    assert abs(shares - 125).max() < 50  # more than four standard deviations
    weight = np.array(stream._reservoir.weight)
    np.testing.assert_array_equal(weight, 1.0 + (kept[:, 0] < 4000.0))


def test_a_fit_and_another_order_end_what_a_stream_keeps():
    X = blobs(2000)
    for end in (lambda m: m.fit(X), lambda m: m.relabel([2, 0, 1])):
        for n in (500, 2000):
            stream = VRGaussianMixture(3, random_state=0).partial_fit(X[:n])
            stream = end(stream).partial_fit(X)
            assert stream._first_rows is None and stream._reservoir is None


def test_small_batches_of_a_stream_are_shares_of_a_step():
    X = blobs(5000)
    one = VRGaussianMixture(3, random_state=0).fit(X[:4000])
    many = clone(one).fit(X[:4000])
    one.partial_fit(X[4000:])
    for start in range(4000, 5000, 10):
        many.partial_fit(X[start : start + 10])
    np.testing.assert_allclose(many.means_, one.means_, atol=0.05)
    np.testing.assert_allclose(many.weights_, one.weights_, atol=0.01)


def test_a_component_that_a_small_batch_does_not_hold_is_not_gone():
    X = blobs(4000, k=20, spread=20.0)
    stream = VRGaussianMixture(20, random_state=0).fit(X)
    before = stream.means_.copy()
    for start in range(0, 100, 5):
        stream.partial_fit(X[start : start + 5])
    assert abs(stream.means_ - before).max() < 0.5


def test_a_stream_with_missing_values_among_its_first_rows_only():
    X = blobs(1000)
    X[:5, 1] = np.nan
    stream = VRGaussianMixture(3, covariance_type="diag", random_state=0)
    for start in range(0, 1000, 100):
        stream.partial_fit(X[start : start + 100])
    assert np.isfinite(stream.score(X))


def test_a_stream_may_change_batch_size_and_follow_a_fit():
    X = blobs(10_000)
    mixture = VRGaussianMixture(3, random_state=0).fit(X)
    before = mixture.means_.copy()
    mixture.partial_fit(X[:10], sample_weight=np.ones(10))
    moved = abs(mixture.means_ - before).max()
    assert 0.0 < moved < 0.1  # ten rows after ten thousand are not much


def marginal_log_density(mixture, X):
    """Density of the observed entries, by scipy, one row at a time."""
    out = []
    for row in X:
        seen = ~np.isnan(row)
        if not seen.any():
            out.append(0.0)
            continue
        parts = [
            np.log(w)
            + multivariate_normal(m[seen], c[np.ix_(seen, seen)]).logpdf(row[seen])
            for w, m, c in zip(
                mixture.weights_,
                mixture.means_,
                mixture._covariances(),
                strict=True,
            )
        ]
        out.append(np.logaddexp.reduce(parts))
    return np.array(out)


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
@pytest.mark.parametrize("solver", ["batch", "saga"])
def test_missing_values_are_integrated_out(covariance_type, solver):
    rng = np.random.default_rng(0)
    complete = blobs(2000)
    X = complete.copy()
    X[rng.uniform(size=X.shape) < 0.25] = np.nan
    mixture = VRGaussianMixture(
        3,
        covariance_type=covariance_type,
        solver=solver,
        batch_size=200,
        tol=1e-8,
        max_iter=500,
        random_state=0,
    ).fit(X)
    np.testing.assert_allclose(
        mixture.score_samples(X[:50]), marginal_log_density(mixture, X[:50]), atol=1e-9
    )
    full = VRGaussianMixture(
        3, covariance_type=covariance_type, tol=1e-8, max_iter=500, random_state=0
    ).fit(complete)
    assert mixture.score(complete) == pytest.approx(full.score(complete), abs=0.02)
    # Exact EM: the likelihood of the observed entries never falls.
    bounds = np.array(mixture.lower_bounds_)
    if solver == "batch":
        assert (np.diff(bounds) > -1e-7).all()


def test_missing_values_need_axis_parallel_covariances():
    X = blobs()
    X[0, 0] = np.nan
    for covariance_type in ("full", "tied"):
        with pytest.raises(ValueError, match="covariance_type='diag'"):
            VRGaussianMixture(2, covariance_type=covariance_type).fit(X)
    mixture = VRGaussianMixture(2).fit(X[1:])
    with pytest.raises(ValueError, match="NaN"):
        mixture.predict(X)


def test_conditional_distributions():
    X = blobs(3000, spread=1.0)
    mixture = VRGaussianMixture(3, n_init=1, random_state=0).fit(X)
    values = X[:5][:, [1, 3]]
    result = mixture.condition(given=[1, 3], values=values)
    np.testing.assert_array_equal(result.features, [0, 2])
    # Against numerical integration of the joint density over a grid.
    grid = np.linspace(-12, 12, 161)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    for i, (x1, x3) in enumerate(values):
        points = np.column_stack(
            [a.ravel(), np.full(a.size, x1), b.ravel(), np.full(a.size, x3)]
        )
        share = np.exp(mixture.score_samples(points))
        share /= share.sum()
        free = points[:, [0, 2]]
        mean = share @ free
        np.testing.assert_allclose(result.mean[i], mean, atol=1e-6)
        spread = (free - mean).T @ (share[:, None] * (free - mean))
        np.testing.assert_allclose(result.covariance[i], spread, atol=1e-6)
    assert result.weights.sum(axis=1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_conditionals_of_every_covariance_type(covariance_type):
    X = blobs()
    mixture = VRGaussianMixture(2, covariance_type=covariance_type, random_state=0)
    result = mixture.fit(X).condition(given=[0], values=X[:3, [0]])
    assert result.mean.shape == (3, 3)
    assert result.covariances.shape == (2, 3, 3)
    assert (np.linalg.eigvalsh(result.covariance) > 0).all()


def test_conditioning_by_name():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(blobs(), columns=["a", "b", "c", "d"])
    mixture = VRGaussianMixture(2, random_state=0).fit(X)
    by_name = mixture.condition(given=["b"], values=[[0.5]])
    by_number = mixture.condition(given=[1], values=[[0.5]])
    np.testing.assert_array_equal(by_name.mean, by_number.mean)
    with pytest.raises(ValueError, match=r"Unknown features \['e'\]: "):
        mixture.condition(given=["e"], values=[[0.5]])


@pytest.mark.parametrize(
    ("given", "values", "match"),
    [
        ([0, 0], [[1.0, 1.0]], "twice"),
        ([9], [[1.0]], "from 0 to 3"),
        ([0], [[1.0, 2.0]], "one column for each"),
        ([0, 1, 2, 3], [[1.0] * 4], "nothing is left"),
        ([0], [[np.nan]], "NaN"),
    ],
)
def test_impossible_conditions(given, values, match):
    mixture = VRGaussianMixture(2, random_state=0).fit(blobs())
    with pytest.raises(ValueError, match=match):
        mixture.condition(given=given, values=values)


def test_collapsed_components_are_seeded_anew():
    """scikit-learn raises where a component shrinks to a point without a floor."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)), np.full((40, 2), 7.0)])
    start = {
        "means_init": [[0.0, 0.0], [7.0, 7.0]],
        "weights_init": [0.5, 0.5],
        "precisions_init": np.stack([np.eye(2)] * 2),
    }
    with pytest.raises(ValueError, match="ill-defined"):
        GaussianMixture(2, reg_covar=0.0, **start).fit(X)
    for solver in ("batch", "saga"):
        mixture = VRGaussianMixture(2, reg_covar=0.0, solver=solver, **start)
        mixture.set_params(random_state=0, batch_size=50)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(X)
        assert np.isfinite(mixture.lower_bound_)
        assert np.isfinite(mixture.covariances_).all()


def test_a_component_without_rows_is_seeded_anew():
    X = blobs()
    start = inits(X, 3, "full")
    start["means_init"] = np.vstack([start["means_init"][:2], np.full(4, 1e6)])
    mixture = VRGaussianMixture(**start, random_state=0, max_iter=500).fit(X)
    assert mixture.weights_.min() > 1.0 / len(X)
    assert abs(mixture.means_).max() < 1e3


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("solver", ["auto", "saga", "svrg"])
def test_hard_data_give_a_finite_answer(covariance_type, solver):
    rng = np.random.default_rng(0)
    X = blobs(500)
    constant = X.copy()
    constant[:, 2] = 3.0
    hard = {
        "constant column": constant,
        "all rows the same": np.ones((50, 3)),
        "duplicates": np.repeat(X[:10], 20, axis=0),
        "huge offset": X + 1e8,
        "tiny scale": X * 1e-3,
        "wide scale": X * 1e6,
        "binary": rng.integers(0, 2, (200, 3)).astype(float),
        "one column": X[:, :1].copy(),
    }
    for name, rows in hard.items():
        mixture = VRGaussianMixture(
            3, covariance_type=covariance_type, solver=solver, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", DataScaleWarning)  # of the tiny scale
            mixture.fit(rows)
        assert np.isfinite(mixture.lower_bound_), name
        assert np.isfinite(mixture.predict_proba(rows)).all(), name


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_an_offset_changes_nothing(covariance_type):
    X = blobs()
    here = VRGaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X)
    far = VRGaussianMixture(3, covariance_type=covariance_type, random_state=0)
    far.fit(X + 1e8)
    assert here.lower_bound_ == pytest.approx(far.lower_bound_, abs=1e-5)
    np.testing.assert_allclose(here.covariances_, far.covariances_, atol=1e-4)


def test_float32_does_not_cancel():
    """E[x^2] - mu^2 would give negative variances here."""
    rng = np.random.default_rng(0)
    X = (1000.0 + 0.01 * rng.normal(size=(5000, 2))).astype(np.float32)
    mixture = VRGaussianMixture(1, covariance_type="diag", reg_covar=0.0).fit(X)
    np.testing.assert_allclose(
        mixture.covariances_[0], X.astype(float).var(0), rtol=1e-3
    )


def test_one_component_is_the_sample_mean_and_covariance():
    X = blobs()
    mixture = VRGaussianMixture(reg_covar=0.0).fit(X)
    np.testing.assert_allclose(mixture.means_[0], X.mean(axis=0))
    np.testing.assert_allclose(mixture.covariances_[0], np.cov(X.T, bias=True))


def test_relabel_puts_components_in_order():
    X = blobs()
    mixture = VRGaussianMixture(3, random_state=0).fit(X)
    before = mixture.score(X), mixture.means_.copy()
    order = np.argsort(mixture.weights_)
    mixture.relabel(order)
    assert (np.diff(mixture.weights_) >= 0).all()
    np.testing.assert_array_equal(mixture.means_, before[1][order])
    assert mixture.score(X) == pytest.approx(before[0])
    mixture.partial_fit(X)  # the statistics have followed
    assert mixture.score(X) == pytest.approx(before[0], abs=0.01)
    with pytest.raises(ValueError, match="permutation"):
        mixture.relabel([0, 0, 1])


def test_summary_names_features():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(blobs(), columns=["a", "b", "c", "d"])
    mixture = VRGaussianMixture(3, random_state=0).fit(X)
    table = mixture.summary()
    assert list(table.columns[:3]) == ["share", "a mean", "a sd"]
    assert table.attrs["converged"]
    np.testing.assert_allclose(table["share"].sum(), 1.0)


def test_summary_without_pandas(monkeypatch):
    import sys

    mixture = VRGaussianMixture(3, random_state=0).fit(blobs())
    monkeypatch.setitem(sys.modules, "pandas", None)
    text = mixture.summary()
    assert isinstance(text, str)
    assert "log_likelihood" in text
    assert "component 2" in text


def test_samples_have_the_moments_of_the_mixture():
    X = blobs(5000)
    for covariance_type in COVARIANCE_TYPES:
        mixture = VRGaussianMixture(3, covariance_type=covariance_type, random_state=0)
        draws, labels = mixture.fit(X).sample(50_000)
        np.testing.assert_allclose(draws.mean(axis=0), X.mean(axis=0), atol=0.15)
        shares = np.bincount(labels) / len(labels)
        np.testing.assert_allclose(shares, mixture.weights_, atol=0.02)
    with pytest.raises(ValueError, match="at least 1"):
        mixture.sample(0)


# Bad input


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"covariance_type": "round"}, "'full' or 'tied'"),
        ({"tol": -1.0}, "tol"),
        ({"reg_covar": np.nan}, "reg_covar"),
        ({"max_iter": -1}, "max_iter"),
        ({"n_init": 0}, "n_init"),
        ({"init_params": "best"}, "init_params"),
        ({"solver": "lbfgs"}, "solver"),
        ({"solver": "saga", "acceleration": "squarem"}, "full passes"),
        ({"step_size": 0.0}, "step_size"),
        ({"solver": "svrg", "step_size": 2.0}, "step_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"tempering": "hot"}, "tempering"),
        ({"temperature": 0.5}, "temperature"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"weights_init": [0.5, 0.6]}, "sum to 1"),
        ({"weights_init": [1.0]}, "shape"),
        ({"means_init": [[0.0]]}, "shape"),
        ({"precisions_init": -np.stack([np.eye(4)] * 2)}, "positive-definite"),
        (
            {"covariance_type": "diag", "precisions_init": np.zeros((2, 4))},
            "must be positive",
        ),
    ],
)
def test_impossible_parameters(parameters, match):
    mixture = VRGaussianMixture(**{"n_components": 2, **parameters})
    with pytest.raises(ValueError, match=match):
        mixture.fit(blobs())
    assert not hasattr(mixture, "n_features_in_")


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (np.ones(5), "2D"),
        (np.ones((1, 2)), "minimum of 2|n_components"),
        (np.array([[1.0, np.inf]] * 5), "infinity"),
        (np.array([[1.0, np.nan]] * 5), "NaN"),
        (np.array([["a", "b"]] * 5), "column 0 holds 'a', column 1 holds 'b'"),
        (np.ones((0, 2)), "0 sample"),
        (np.ones((5, 2)) * 1j, "Complex"),
    ],
)
def test_impossible_rows(X, match):
    mixture = VRGaussianMixture(2)
    with pytest.raises(ValueError, match=match):
        mixture.fit(X)
    assert not hasattr(mixture, "n_features_in_")


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (-np.ones(600), "negative"),
        (np.zeros(600), "zero"),
        (np.ones(3), "one number for each"),
        (np.full(600, np.nan), "NaN"),
        (np.r_[1.0, np.zeros(599)], "positive weight"),
    ],
)
def test_impossible_weights(weight, match):
    with pytest.raises(ValueError, match=match):
        VRGaussianMixture(2).fit(blobs(), sample_weight=weight)


def test_unfitted_use_says_so():
    for method in ("predict", "predict_proba", "score", "score_samples", "bic", "aic"):
        with pytest.raises(NotFittedError):
            getattr(VRGaussianMixture(), method)(blobs())
    for method in ("sample", "summary"):
        with pytest.raises(NotFittedError):
            getattr(VRGaussianMixture(), method)()


def test_other_features_than_in_fit():
    mixture = VRGaussianMixture(2).fit(blobs())
    with pytest.raises(ValueError, match="4 features"):
        mixture.predict(np.ones((3, 2)))
    with pytest.raises(ValueError, match="4 features"):
        mixture.partial_fit(np.ones((3, 2)))


def test_the_callers_rows_are_never_changed():
    X = np.asfortranarray(blobs())
    copy = X.copy()
    VRGaussianMixture(3, solver="saga").fit(X).predict(X)
    np.testing.assert_array_equal(X, copy)


def test_digits_are_found():
    X, y = load_digits(return_X_y=True)
    mixture = VRGaussianMixture(
        10, covariance_type="tied", reg_covar=1e-2, random_state=0
    ).fit(X)
    assert labels_agree(mixture.predict(X), y) > 0.6


@pytest.mark.parametrize(
    ("dtype", "factor"), [(np.float64, 1e160), (np.float64, -1e160), (np.float32, 1e30)]
)
@pytest.mark.parametrize("outlier", [False, True])
def test_numbers_whose_squares_overflow(dtype, factor, outlier):
    X = blobs()
    good = VRGaussianMixture(2, random_state=0).fit(X)
    if outlier:
        X[7, 0] *= factor
    else:
        X = X * factor
    X = X.astype(dtype)
    for model, method in ((VRGaussianMixture(2), "fit"), (good, "predict_proba")):
        with pytest.raises(ValueError, match="squares of numbers above"):
            getattr(model, method)(X)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_no_variance_and_no_regularisation(covariance_type, method):
    parameters = {"covariance_type": covariance_type, "random_state": 0}
    same, two = np.ones((40, 3)), np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0)
    for X, k in ((same, 5), (two, 4)):
        model = VRGaussianMixture(k, reg_covar=0.0, **parameters)
        with pytest.raises(ValueError, match=r"ill-defined .* Increase reg_covar"):
            getattr(model, method)(X)
    regularised = VRGaussianMixture(2, reg_covar=1e-6, **parameters)
    getattr(regularised, method)(same)


def test_components_are_seeded_anew_once_each_on_average():
    """Where the density is lowest, with the average covariance; or not at all."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(60, 2)), [[30.0, 30.0], [-40.0, 0.0]]])
    model = GaussianMixtureModel("full", 1e-6, False, True)
    weights = np.array([0.7, 0.0, 0.3, 0.0])
    covariances = np.array([np.eye(2) * c for c in (1.0, 1e-9, 2.0, 1e-9)])
    factors, _ = model.precisions_cholesky(covariances)
    start = model.start(Parameters(weights, np.zeros((4, 2)), covariances, factors))
    data = as_source(X)
    point = model.reseed(start, data, rng)
    assert point.repaired == (1, 3) and point.n_reseeded == 2
    found = point.parameters
    assert {tuple(row) for row in found.means[[1, 3]]} == {(30.0, 30.0), (-40.0, 0.0)}
    np.testing.assert_allclose(found.weights, np.array([0.7, 0.125, 0.3, 0.125]) / 1.25)
    np.testing.assert_allclose(found.covariances[1], np.eye(2) * 1.3)
    last = model.reseed(start._replace(n_reseeded=2), data, rng)
    assert last.repaired == (1, 3) and last.n_reseeded == 4  # of 4
    for n_reseeded in 3, 4:
        spent = model.reseed(start._replace(n_reseeded=n_reseeded), data, rng)
        assert spent.repaired == () and spent.n_reseeded == n_reseeded
    for rows, dead in ((0.7, ()), (0.3, (3,))):  # half a row is enough to stay
        weights = np.array([0.5, 0.25, 0.25, rows / 62])
        parameters = start.parameters._replace(weights=weights)
        assert model.reseed(model.start(parameters), data, rng).repaired == dead
