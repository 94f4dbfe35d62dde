"""FactorialMixture as its users meet it."""

import pickle
import tracemalloc
from itertools import permutations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils import estimator_checks

from skvrem import FactorialMixture
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.factorial import _start
from tests.factorial import oracle

PARTS = 2.0 * np.kron(np.eye(3), [1.0, 1.0, 0.5])


def rows(n=600, noise=0.3, seed=0, parts=PARTS):
    rng = np.random.default_rng(seed)
    codes = rng.uniform(size=(n, len(parts))) < 0.4
    return codes @ parts + noise * rng.normal(size=(n, parts.shape[1])), codes


def images(seed, n=1000, noise=0.1):
    """Eight 4 x 4 images that overlap, after the toy of Mandt et al. (2016)."""
    rng = np.random.default_rng(seed)
    parts = np.zeros((8, 4, 4))
    parts[0, 0] = parts[1, :, 0] = parts[2, :, 3] = parts[3, 3] = 1.0
    parts[4, 1:3, 1:3] = parts[7, :2, :2] = 1.0
    parts[5], parts[6] = np.eye(4), np.eye(4)[::-1]
    parts = parts.reshape(8, 16) * rng.uniform(0.5, 1.0, (8, 1))
    codes = rng.uniform(size=(n, 8)) < 0.3
    return codes @ parts + np.sqrt(noise) * rng.normal(size=(n, 16))


def mixture(**params):
    return FactorialMixture(**({"n_components": 3, "random_state": 1} | params))


def aligned(fit, parts=PARTS):
    """The order of the fitted components that matches the parts best."""
    return min(
        permutations(range(len(parts))),
        key=lambda order: np.square(fit.components_[list(order)] - parts).sum(),
    )


SOLVERS = [
    {"solver": "batch"},
    {"solver": "svrg", "batch_size": 50},
    {"solver": "stochastic", "batch_size": 50},
    {"tempering": "global"},
    {"tempering": "global", "noise_variance": 0.09},
    {"posterior": "meanfield"},
    {"noise_variance": 0.09, "component_variance": 1.0, "activation_prior": 0.4},
]


@pytest.mark.parametrize("params", SOLVERS, ids=str)
def test_components_and_codes_are_found(params):
    X, codes = rows()
    fit = mixture(**params).fit(X)
    fit.relabel(aligned(fit))
    np.testing.assert_allclose(fit.components_, PARTS, atol=0.12)
    assert (fit.predict(X) == codes).mean() > 0.98
    assert fit.noise_variance_ == pytest.approx(0.09, abs=0.01)
    np.testing.assert_allclose(fit.activation_prior_, 0.4, atol=0.08)
    probabilities = fit.transform(X)
    assert ((probabilities >= 0.0) & (probabilities <= 1.0)).all()
    np.testing.assert_array_equal(fit.predict(X), probabilities > 0.5)
    residual = X - fit.inverse_transform(fit.predict(X))
    assert np.square(residual).mean() < 0.12
    assert fit.history_["temperature"][-1] == 1.0
    assert fit.converged_


def test_given_parameters_stay():
    X, _ = rows()
    prior = np.array([0.2, 0.4, 0.6])
    given = {"noise_variance": 0.2, "component_variance": 3.0}
    fit = mixture(**given, activation_prior=prior).fit(X)
    assert fit.noise_variance_ == 0.2
    assert fit.component_variance_ == 3.0
    np.testing.assert_array_equal(fit.activation_prior_, prior)


def test_annealing_ends_higher_than_plain_inference():
    ends = {None: [], "annealed": []}
    for tempering, scores in ends.items():
        for seed in range(4):
            fit = FactorialMixture(
                8,
                noise_variance=0.01,
                component_variance=0.1225,
                activation_prior=0.3,
                tempering=tempering,
                random_state=seed,
            )
            scores.append(fit.fit(images(seed, noise=0.01)).objective_)
    assert np.mean(ends["annealed"]) > np.mean(ends[None]) + 1.0


def test_the_bound_is_at_a_temperature_of_one():
    X, _ = rows()
    fit = mixture(tol=1e-8, inner_tol=1e-8).fit(X)
    again = mixture(tol=1e-8, inner_tol=1e-8, tempering=None, warm_start=True)
    vars(again).update({k: v for k, v in vars(fit).items() if k.endswith("_")})
    again._sums = fit._sums
    again.fit(X)
    assert again.objective_ == pytest.approx(fit.objective_, abs=1e-5)
    # Codes of the fit and codes found anew agree on rows that are clear.
    nu = fit.transform(X).astype(np.float64)
    assert oracle.bound(X, nu, fit._parameters()) == pytest.approx(
        fit.objective_, abs=1e-4
    )


@pytest.mark.parametrize("temperature", ["auto", 50.0, 1000.0])
def test_no_two_components_stay_the_same_after_a_hot_start(temperature):
    X, _ = rows()
    fit = mixture(temperature=temperature, annealing_iter=30).fit(X)
    fit.relabel(aligned(fit))
    np.testing.assert_allclose(fit.components_, PARTS, atol=0.12)


def table(seed, n=300):
    """A small dense table without parts, of columns of one scale."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 8)) + rng.normal(size=(n, 8))
    return (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("given", [{}, {"noise_variance": 0.3}], ids=str)
def test_no_fit_ends_below_plain_inference(seed, given, monkeypatch):
    for X in (table(seed), images(seed, n=500)):
        fits = (mixture(**given, tempering=t).fit(X) for t in (None, "annealed"))
        plain, annealed = fits
        assert annealed.objective_ >= plain.objective_
        same = annealed.init_scores_[: len(plain.init_scores_)]
        # Moves may lead on from where it ends.
        assert (same >= plain.init_scores_).all()
        with monkeypatch.context() as patch:
            patch.setattr(_start, "moves_lead_on", lambda *_: False)
            annealed.fit(X)
        same = annealed.init_scores_[: len(plain.init_scores_)]
        np.testing.assert_array_equal(same, plain.init_scores_)


@pytest.mark.parametrize("seed", range(3))
def test_a_hot_start_does_not_collapse(seed):
    X = table(seed)
    plain = mixture(tempering=None).fit(X)
    hot = mixture(temperature=20.0).fit(X)
    assert hot.objective_ > plain.objective_ - 0.1


def test_what_has_collapsed_is_reported():
    X = table(0)
    with pytest.warns(CollapsedComponentWarning, match="Leave temperature='auto'"):
        mixture(temperature=1e6, annealing_iter=30).fit(X)


def test_a_warm_start_begins_cold():
    X, _ = rows()
    fit = mixture(warm_start=True).fit(X)
    assert (fit.fit(X).history_["temperature"] == 1.0).all()
    assert fit.set_params(temperature=5.0).fit(X).history_["temperature"][0] == 5.0


def test_history_comes_down_by_the_schedule():
    X, _ = rows()
    fit = mixture(noise_variance=0.09, annealing_iter=10, n_init=1).fit(X)
    temperature = fit.history_["temperature"]
    largest = np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1]
    spread = (X.var(axis=0) + X.mean(axis=0) ** 2).mean() / (3 * 0.3)
    half = len(X) * spread / 8
    critical = (np.sqrt(half * (half + 2.0 * largest)) - half) / 0.09
    expected = np.sqrt(critical * 0.3 * X.var(axis=0).mean() / 0.09)
    assert temperature[0] == pytest.approx(expected)
    np.testing.assert_allclose(np.diff(temperature[:11]), -(expected - 1.0) / 10)
    assert (temperature[10:] == 1.0).all()
    objective = fit.history_["objective"][10:]
    assert (np.diff(objective) > -1e-9).all()


def test_a_fit_that_ends_hot_is_cooled():
    X, _ = rows()
    with pytest.warns(ConvergenceWarning, match="did not converge in 5 epochs"):
        fit = mixture(max_iter=5, tol=1e-9, n_init=2).fit(X)
    assert fit.history_["temperature"][-1] == 1.0
    with (
        pytest.warns(UserWarning, match="annealing_iter=20 epochs"),
        pytest.warns(ConvergenceWarning),
    ):
        fit = mixture(max_iter=5, annealing_iter=20, n_init=2).fit(X)
    assert fit.history_["temperature"][-1] == 1.0


def test_scores_are_bounds_of_the_likelihood():
    X, _ = rows(200)
    fit = mixture().fit(X)
    held_out, _ = rows(100, seed=1)
    exact = oracle.log_likelihood(
        held_out, fit.components_, fit.activation_prior_, fit.noise_variance_
    )
    bounds = fit.score_samples(held_out)
    assert (bounds <= exact + 1e-9).all()
    assert np.mean(exact - bounds) < 0.5
    assert fit.score(held_out) == pytest.approx(bounds.mean())
    weight = np.arange(100.0)
    expected = np.average(bounds, weights=weight)
    assert fit.score(held_out, sample_weight=weight) == pytest.approx(expected)
    # Other data are less probable.
    assert fit.score(held_out[:, ::-1].copy()) < fit.score(held_out) - 1.0


def test_draws_are_of_the_model():
    X, _ = rows(2000)
    fit = mixture().fit(X)
    draws, codes = fit.sample(4000)
    assert draws.shape == (4000, 9) and codes.shape == (4000, 3)
    np.testing.assert_allclose(draws.mean(axis=0), X.mean(axis=0), atol=0.12)
    np.testing.assert_allclose(np.cov(draws.T), np.cov(X.T), atol=0.2)
    noise = draws - codes @ fit.components_
    assert noise.var() == pytest.approx(fit.noise_variance_, rel=0.05)
    with pytest.raises(ValueError, match="at least 1"):
        fit.sample(0)


def test_weights_are_repetitions():
    X, _ = rows(200)
    weight = np.random.default_rng(0).integers(3, size=200)
    weighted = mixture(tol=1e-7).fit(X, sample_weight=weight)
    repeated = mixture(tol=1e-7).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(
        weighted.components_, repeated.components_, rtol=0, atol=1e-9
    )
    assert weighted.objective_ == pytest.approx(repeated.objective_, abs=1e-9)


@pytest.mark.parametrize("params", SOLVERS[:4], ids=str)
def test_threads_do_not_change_a_bit(params):
    X, _ = rows(3000)
    fits = [mixture(**params, n_jobs=n, annealing_iter=5).fit(X) for n in (1, 3)]
    for name in ("components_", "components_covariance_", "activation_prior_"):
        np.testing.assert_array_equal(*(getattr(fit, name) for fit in fits))
    np.testing.assert_array_equal(*(fit.score_samples(X) for fit in fits))


def test_float32_stays_and_agrees():
    X, _ = rows()
    single, double = (mixture().fit(X.astype(t)) for t in (np.float32, np.float64))
    assert single.components_.dtype == np.float32
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.components_, double.components_, atol=1e-3)
    assert single.objective_ == pytest.approx(double.objective_, abs=1e-2)


def test_numbers_may_be_short_ones_of_numpy():
    X, _ = rows()
    fits = [mixture(n_components=k).fit(X) for k in (2, np.int8(2))]
    np.testing.assert_array_equal(*(fit.components_ for fit in fits))


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.CollapsedComponentWarning")
def test_memory_does_not_grow_with_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4000)).astype(np.float32)
    X[:200] += 1.0
    fit = FactorialMixture(16, max_iter=3, annealing_iter=1, tol=0.0, n_jobs=1)
    fit.fit(X)
    tracemalloc.start()
    clone(fit).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # X has 6.4 MB; rows times components times features would be 100 MB.
    assert peak < 2e7


def test_the_posterior_of_a_stream_counts_weights():
    X, _ = rows(400)

    def stream(weight, padding=0):
        fit = mixture()
        for i in range(0, 400, 40):
            batch = np.vstack([X[i : i + 40], np.repeat(X[i : i + 1], padding, axis=0)])
            own = np.repeat([weight, 0.0], [40, padding])
            fit.partial_fit(batch, sample_weight=own)
        return np.trace(fit.components_covariance_)

    alone = stream(1.0)
    assert stream(1.0, padding=100) == pytest.approx(alone, rel=1e-6)
    assert stream(50.0) == pytest.approx(alone / 50.0, rel=0.1)


def test_a_stream_comes_near():
    X, codes = rows(20_000)
    stream = mixture(step_decay=0.7)
    for start in range(0, len(X), 500):
        stream.partial_fit(X[start : start + 500])
    assert stream.n_iter_ == 40
    assert stream.n_samples_seen_ == 20_000
    stream = pickle.loads(pickle.dumps(stream)).partial_fit(X[:500])
    stream.relabel(aligned(stream))
    np.testing.assert_allclose(stream.components_, PARTS, atol=0.15)
    assert (stream.predict(X) == codes).mean() > 0.97
    before = mixture().fit(X[:1000])
    after = clone(before).fit(X[:1000]).partial_fit(X[1000:1500])
    assert after.score(X) > before.score(X) - 0.1
    assert not hasattr(after, "history_")


@pytest.mark.parametrize("size", [10, 1000])
def test_a_stream_begins_well_with_batches_of_any_size(size):
    X = images(0, 3000)
    stream = FactorialMixture(8, random_state=0)
    for start in range(0, len(X), size):
        stream.partial_fit(X[start : start + size])
    whole = FactorialMixture(8, random_state=0).fit(X)
    assert whole.score(X) - stream.score(X) < 0.3
    assert stream._first_rows is None


@pytest.mark.parametrize("size", [500, 2000])
def test_a_stream_of_sorted_rows_comes_near(size):
    parts = np.random.default_rng(0).normal(size=(6, 12))
    X, codes = rows(8000, 0.5, parts=parts)
    X = X[np.lexsort(codes.T)]
    whole = FactorialMixture(6, random_state=0).fit(X)
    stream = clone(whole)
    for start in range(0, len(X), size):
        stream.partial_fit(X[start : start + size])
    assert whole.score(X) - stream.score(X) < 0.3
    assert stream.relabel([1, 0, 2, 3, 4, 5]).partial_fit(X)._reservoir is None


def test_warm_start_goes_on():
    X, _ = rows()
    fit = mixture(warm_start=True).fit(X)
    first = fit.objective_
    fit.set_params(tempering=None).fit(X)
    assert fit.n_iter_ <= 5
    assert fit.objective_ == pytest.approx(first, abs=1e-2)
    assert fit.n_samples_seen_ == 1200
    with pytest.raises(ValueError, match="without warm_start"):
        fit.set_params(n_components=4).fit(X)
    assert len(fit.components_) == 3


def test_components_init_is_where_it_begins():
    X, _ = rows()
    fit = mixture(components_init=PARTS, tempering=None).fit(X)
    np.testing.assert_allclose(fit.components_, PARTS, atol=0.12)
    with pytest.raises(ValueError, match=r"shape \(3, 9\)"):
        mixture(components_init=PARTS[:2]).fit(X)
    with pytest.raises(ValueError, match="components_init contains NaN"):
        mixture(components_init=PARTS * np.nan).fit(X)


def test_the_best_of_several_starts_is_kept():
    X = images(0, n=500)
    fit = mixture(n_components=8, n_init=3, tempering=None).fit(X)
    assert len(fit.init_scores_) == 3
    assert np.ptp(fit.init_scores_) > 0.01
    assert fit.objective_ == fit.init_scores_.max()


def test_relabel_permutes_everything():
    X, _ = rows()
    fit = mixture().fit(X)
    before, bound = fit.transform(X), fit.score(X)
    order = [2, 0, 1]
    fit.relabel(order)
    np.testing.assert_allclose(fit.transform(X), before[:, order], atol=1e-3)
    assert fit.score(X) == pytest.approx(bound, abs=1e-4)
    np.testing.assert_array_equal(
        fit.components_variance_, np.diag(fit.components_covariance_)
    )
    stream = fit.partial_fit(X)
    np.testing.assert_allclose(stream.transform(X), before[:, order], atol=0.2)
    with pytest.raises(ValueError, match="permutation"):
        fit.relabel([0, 0, 1])


def test_summary_names_components():
    X, _ = rows()
    table = mixture().fit(X).summary()
    assert list(table.index) == [f"component {k}" for k in range(3)]
    assert list(table.columns) == ["active", "length", "variance share", "sd"]
    assert 0.5 < table["variance share"].sum() < 1.0
    assert table.attrs["converged"]


def test_more_components_than_there_are_do_no_harm():
    X, _ = rows()
    fit = mixture(n_components=6)
    with pytest.warns(CollapsedComponentWarning, match="nothing: .* take fewer"):
        fit.fit(X)
    assert fit.score(X) > mixture().fit(X).score(X) - 0.3


@pytest.mark.parametrize("given", [{}, {"tempering": None}, {"n_init": 2}], ids=str)
def test_components_that_carry_nothing_are_named(given):
    X, _ = rows()
    fit = mixture(n_components=8, **given)
    with pytest.warns(CollapsedComponentWarning) as found:
        fit.fit(X)
    idle = np.flatnonzero(np.abs(fit.components_).max(axis=1) < 1e-6)
    assert idle.size
    (warning,) = found
    assert f": {', '.join(map(str, idle))}. " in str(warning.message)


def test_it_works_in_a_grid_search():
    X, _ = rows(300)
    grid = {"n_components": [1, 3]}
    search = GridSearchCV(mixture(annealing_iter=10), grid, cv=2).fit(X)
    assert search.best_params_ == {"n_components": 3}


BAD = {
    "n_components": [0, 2.5, True],
    "noise_variance": [0.0, -1.0, np.nan, "auto", None],
    "component_variance": [0.0, np.inf, None],
    "activation_prior": [0.0, 1.0, [0.5, 0.5], "x", [0.1, 0.2, 1.5], None],
    "posterior": ["full", None],
    "solver": ["squarem", "lbfgs"],
    "tempering": ["local", True],
    "temperature": [0.5, np.inf, None],
    "annealing_iter": [-1, 1.5],
    "step_size": [0.0, 1.5],
    "inner_iter": [0],
    "inner_tol": [-1.0],
    "batch_size": [0],
    "max_iter": [-1],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, v) for name, values in BAD.items() for v in values]
)
def test_bad_parameters_are_refused(name, value):
    X, _ = rows(50)
    estimator = mixture(**{name: value})
    with pytest.raises(ValueError, match=name):
        estimator.fit(X)
    assert not hasattr(estimator, "n_features_in_")


@pytest.mark.parametrize("constant", [0.0, 3.7])
def test_rows_without_variance_are_refused(constant):
    with pytest.raises(ValueError, match="zero variance"):
        mixture().fit(np.full((20, 4), constant))


def test_what_is_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        mixture().transform(np.zeros((2, 9)))
    X, _ = rows(50)
    fit = mixture(max_iter=20, annealing_iter=5, tol=0.1).fit(X)
    with pytest.raises(ValueError, match="3 components"):
        fit.inverse_transform(np.zeros((2, 4)))


@pytest.mark.parametrize(
    "check",
    [
        "check_set_output_transform",
        "check_set_output_transform_pandas",
        "check_global_output_transform_pandas",
    ],
)
@pytest.mark.filterwarnings("ignore:X .*feature names")  # arrays after frames
def test_it_obeys_set_output_as_scikit_learn_checks(check):
    pytest.importorskip("pandas")
    check = getattr(estimator_checks, check)
    check("FactorialMixture", FactorialMixture(2, max_iter=5, tol=10.0))


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.CollapsedComponentWarning")
def test_transform_gives_frames_where_they_are_asked_for():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rows(30)[0][:, ::3], columns=list("abc"))
    model = FactorialMixture(2, random_state=0).set_output(transform="pandas").fit(X)
    frame = model.transform(X)
    assert list(frame.columns) == ["factorialmixture0", "factorialmixture1"]
    with config_context(transform_output="pandas"):
        assert list(FactorialMixture(2).fit(X).transform(X).columns) == list(frame)


@pytest.mark.parametrize(
    ("factor", "match"), [(1e160, "squares of numbers"), (1e-160, "too small")]
)
def test_numbers_beyond_floating_point(factor, match):
    with pytest.raises(ValueError, match=match):
        FactorialMixture(2).fit(rows(n=50)[0] * factor)
