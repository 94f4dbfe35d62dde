"""Displays of hidden Markov models, and tables of models."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from skvrem import (
    VRHMM,
    BayesianPPCA,
    EmissionsDisplay,
    ResidualsDisplay,
    TrackDisplay,
    VRGaussianMixture,
    compare_models,
)
from skvrem.hmm import (
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    Regression,
    _curves,
)
from skvrem.inspection._comparison import _independence, _normality, autocorrelations
from tests.hmm.test_given import FAMILIES, given

plt = pytest.importorskip("matplotlib.pyplot")
pd = pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(0)
    states = np.repeat([0, 1, 0, 1], 60)
    return rng.normal(size=(240, 1)) + 5.0 * states[:, None], states


WITH_DENSITIES = [e for e in FAMILIES if not isinstance(e, Multinomial)]


@pytest.mark.parametrize("emission", WITH_DENSITIES, ids=lambda e: type(e).__name__)
def test_densities_are_those_of_draws(emission):
    model = given(emission)
    X, _ = model.sample(4000)
    for values, points, density, discrete, _ in zip(
        *model._emission_curves(X), strict=True
    ):
        total = density.sum(axis=1)
        if discrete:
            seen = np.bincount(values.astype(int), minlength=len(points)) / len(values)
            np.testing.assert_allclose(total, seen, atol=0.04)
            continue
        # Shares of the values between their quantiles.
        reached = np.diff(points) * 0.5 * (total[1:] + total[:-1])
        reached = np.concatenate([[0.0], np.cumsum(reached)])
        edges = np.quantile(values[values != 0.0], np.linspace(0.02, 0.98, 9))
        at = np.diff(np.interp(edges, points, reached))
        between = [np.mean((values > a) & (values <= b)) for a, b in pairwise(edges)]
        np.testing.assert_allclose(at, between, atol=0.03)


def test_probabilities_are_exact():
    model = given(Poisson(rate=[[1.0], [9.0]]))
    X, _ = model.sample(300)
    *_, points, densities, discrete, _ = model._emission_curves(X)
    share = model.predict_proba(X).mean(axis=0)
    expected = share * stats.poisson.pmf(points[0][:, None], [1.0, 9.0])
    np.testing.assert_allclose(densities[0], expected, atol=1e-12)
    assert discrete == [True]


def test_densities_of_regressions_are_those_of_rows_on_average():
    rng = np.random.default_rng(0)
    z = rng.normal(size=2000)
    X = np.column_stack([2.0 * z + rng.normal(size=2000), z])
    model = VRHMM(1, emission=Regression("gaussian", covariates=[1])).fit(X)
    values, points, densities, *_ = model._emission_curves(X)
    assert len(values) == 1
    expected = stats.norm.pdf(points[0], scale=np.sqrt(5.0))
    np.testing.assert_allclose(densities[0].ravel(), expected, atol=0.02)


def test_emissions_are_drawn(series):
    X, _ = series
    counts = np.random.default_rng(0).poisson(3.0, size=(240, 1))
    display = EmissionsDisplay.from_estimator(VRHMM(2, random_state=0).fit(X), X)
    (ax,) = display.axes_
    assert len(ax.get_lines()) == 3 and ax.get_xlabel() == "x0"
    frame = pd.DataFrame({"calls": counts.ravel()})
    hmm = VRHMM(2, emission="poisson", random_state=0).fit(frame)
    _, given_ax = plt.subplots()
    display = EmissionsDisplay.from_estimator(hmm, frame, axes=[given_ax])
    assert display.axes_[0] is given_ax and given_ax.get_xlabel() == "calls"
    assert given_ax.get_ylabel() == "probability"
    display.figure_.canvas.draw()


@pytest.mark.parametrize("mean", [1e4, 1e8])
def test_large_counts_have_densities(mean):
    counts = stats.nbinom(5.0, 5.0 / (5.0 + mean)).rvs((300, 1), random_state=0)
    model = VRHMM(1, emission=NegativeBinomial([[mean]], [[5.0]])).fit(counts)
    display = EmissionsDisplay.from_estimator(model, counts)
    (points,), (density,) = display.points, display.densities
    assert len(points) <= 400 and (points == np.round(points)).all()
    expected = stats.nbinom.pmf(points, 5.0, 5.0 / (5.0 + mean))
    # At the ends it is the mean of one side.
    np.testing.assert_allclose(density[1:-1, 0], expected[1:-1], rtol=1e-3)
    (ax,) = display.axes_
    assert len(ax.patches) < 50 and ax.get_ylabel() == "probability"
    assert sum(bar.get_width() * bar.get_height() for bar in ax.patches) == (
        pytest.approx(1.0)
    )
    assert all(bar.get_x() % 1.0 == 0.5 for bar in ax.patches)


def test_zeros_of_large_counts_leave_the_curve():
    points = _curves._points(np.array([0.0] * 50 + [1.0, 900.0]), True)
    assert points[0] == 1.0

    def below(x):  # a half is zero, the others are 1 to 1000
        return np.where(x > 0, 0.5 + (x - 0.5) / 2000.0, 0.25)[:, None]

    found = _curves._mean_densities(below, points, True)
    np.testing.assert_allclose(found, 1.0 / 2000.0)


def test_axes_of_any_arrangement_one_for_each_column(series):
    X, _ = series
    hmm = VRHMM(1).fit(X)
    axes = plt.subplots(squeeze=False)[1]
    assert EmissionsDisplay.from_estimator(hmm, X, axes=axes).axes_[0] is axes[0, 0]
    with pytest.raises(ValueError, match="each of the 1 columns, got 2"):
        EmissionsDisplay.from_estimator(hmm, X, axes=plt.subplots(2)[1])


def test_multinomial_counts_have_no_densities():
    model = given(FAMILIES[9])
    X, _ = model.sample(50)
    with pytest.raises(ValueError, match="multinomial"):
        model._emission_curves(X)


def test_a_track_by_state(series):
    X, _ = series
    hmm = VRHMM(2, random_state=0).fit(X)
    display = TrackDisplay.from_estimator(hmm, X, X.ravel(), lengths=[120, 120])
    assert len(display.ax_.get_lines()) == 2  # one a sequence
    assert [len(c.get_offsets()) for c in display.ax_.collections] == [
        (display.states == state).sum() for state in range(2)
    ]
    where = pd.DataFrame(np.cumsum(np.hstack([X, -X]), axis=0), columns=["lon", "lat"])
    display = TrackDisplay.from_estimator(hmm, X, where)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("lon", "lat")
    assert display.ax_.get_aspect() == 1.0
    for bad in (X[:10], np.ones((240, 3))):
        with pytest.raises(ValueError, match="two coordinates for each of the 240"):
            TrackDisplay.from_estimator(hmm, X, bad)


def test_autocorrelations_stay_within_sequences():
    x = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    values, pairs = autocorrelations(x, None, 2)
    np.testing.assert_allclose(values, [-1.0, 1.0])
    assert pairs.tolist() == [5, 4]
    values, pairs = autocorrelations(x, np.array([0, 0, 0, 1, 1, 1]), 3)
    np.testing.assert_allclose(values, [-1.0, 1.0, np.nan])
    assert pairs.tolist() == [4, 2, 0]


def test_pairs_of_which_one_is_missing_do_not_count():
    x = np.array([1.0, -1.0, np.nan, -1.0, 1.0, np.nan, 1.0, -1.0])
    values, pairs = autocorrelations(x, None, 3)
    np.testing.assert_allclose(values, [-1.0, 1.0, -1.0])
    assert pairs.tolist() == [3, 2, 4]


@pytest.mark.parametrize("kind", ["missing", "short"])
def test_the_size_of_the_test_with_few_pairs(kind):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(50), 8) if kind == "short" else None
    found = []
    for _ in range(400):
        x = rng.normal(size=400)
        if kind == "missing":
            x[rng.random(400) < 0.5] = np.nan
        found.append(_independence(x, ids, 5))
    assert 0.025 < np.mean([p < 0.05 for p, _ in found]) < 0.085
    assert 60 < found[0][1] <= 150


def test_tests_have_the_p_values_of_scipy():
    rng = np.random.default_rng(0)
    x = rng.gamma(5.0, size=400)
    assert _normality(x) == pytest.approx(stats.jarque_bera(x).pvalue)
    z = rng.normal(size=200)
    c, k = z - z.mean(), np.arange(1, 11)
    rho = np.array([np.sum(c[lag:] * c[:-lag]) for lag in k]) / np.sum(c * c)
    wanted = stats.chi2.sf(200 * 202 * np.sum(rho**2 / (200 - k)), 10)
    assert _independence(z, None, 10) == (pytest.approx(wanted), 190)
    sizes = [
        _independence(rng.normal(size=200), None, 10)[0] < 0.05 for _ in range(300)
    ]
    assert 0.02 < np.mean(sizes) < 0.09
    assert _independence(np.cumsum(x - x.mean()), None, 10)[0] < 1e-10


def test_residuals_by_lag(series):
    X, _ = series
    one, two = (VRHMM(n, random_state=0).fit(X) for n in (1, 2))
    largest = [
        np.abs(
            ResidualsDisplay.from_estimator(model, X, kind="autocorrelation")
            .ax_.get_lines()[0]
            .get_ydata()
        ).max()
        for model in (one, two)
    ]
    assert largest[0] > 0.5 > 0.25 > largest[1]
    with pytest.raises(ValueError, match="kind must be"):
        ResidualsDisplay.from_estimator(one, X, kind="density")


def test_models_side_by_side(series):
    X, _ = series
    models = {n: VRHMM(n, random_state=0).fit(X) for n in (1, 2)}
    table = compare_models({f"{n} states": model for n, model in models.items()}, X)
    assert list(table.index) == ["2 states", "1 states"]
    assert table["pairs"].tolist() == [230.0, 230.0]
    best = table.loc["2 states"]
    assert best["AIC"] == pytest.approx(models[2].aic(X))
    assert best["BIC"] == pytest.approx(models[2].bic(X))
    assert best["log-likelihood"] == pytest.approx(240 * models[2].score(X))
    assert best["AIC difference"] == 0.0 and best["AIC weight"] > 0.99
    assert table["AIC weight"].sum() == pytest.approx(1.0)
    assert table.loc["1 states", "uncorrelated p"] < 1e-10 < best["uncorrelated p"]
    mixture = VRGaussianMixture(2, random_state=0).fit(X)
    table = compare_models([models[2], mixture], X)
    assert list(table.index) == ["VRHMM 0", "VRGaussianMixture 1"]
    assert np.isnan(table.loc["VRGaussianMixture 1", "normal p"])
    assert table.loc["VRGaussianMixture 1", "AIC"] == pytest.approx(mixture.aic(X))


def test_what_cannot_be_compared_is_said(series):
    X, _ = series
    with pytest.raises(ValueError, match="at least one"):
        compare_models([], X)
    with pytest.raises(ValueError, match="no aic and bic"):
        compare_models([BayesianPPCA(1)], X)
    mixture = VRGaussianMixture(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="knows no sequences"):
        compare_models([mixture], X, lengths=[120, 120])
    with pytest.raises(ValueError, match="fitted to 240 rows, X has 239"):
        compare_models([mixture], X[1:])
    both = np.hstack([X, X])
    part = VRHMM(1, emission=Product([("x", Gaussian(), [0])])).fit(both)
    with pytest.raises(ValueError, match="Likelihoods of different columns"):
        compare_models([part, VRHMM(1).fit(both)], both)


@pytest.mark.filterwarnings("error")
def test_tests_that_cannot_be_made_have_no_p_value():
    X = np.random.default_rng(4).gamma(1.0, size=(200, 1))
    ones = np.ones(200, int)
    model = VRHMM(1).fit(X, lengths=ones)
    row = compare_models([model], X, lengths=ones).iloc[0]
    assert np.isnan(row["uncorrelated p"]) and row["pairs"] == 0.0
    assert row["normal p"] < 0.05
    row = compare_models([VRHMM(1).fit(X[:2])], X[:2]).iloc[0]
    assert np.isnan(row["normal p"]) and np.isnan(row["uncorrelated p"])


def test_p_values_count_the_tests_that_are_made():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    X[2:, 1] = np.nan
    model = VRHMM(1, emission=Gaussian("diag")).fit(X)
    first = model.pseudo_residuals(X)[:, 0]
    row = compare_models([model], X).iloc[0]
    assert row["normal p"] == pytest.approx(_normality(first))


def test_a_warm_start_has_seen_the_same_rows(series):
    X, _ = series
    hmm = VRHMM(1, warm_start=True).fit(X).fit(X)
    assert hmm.n_samples_seen_ == 480
    assert compare_models([hmm], X) is not None


@pytest.mark.parametrize("column", [0, "animal"])
def test_ids_in_a_column_part_sequences(column):
    rng = np.random.default_rng(0)
    ids = np.repeat([1.0, 2.0, 3.0], 40)
    # Values alternate in sequences, and not from one to the next.
    values = np.tile([1.0, -1.0], 60) * np.repeat([1.0, 1.0, -1.0], 40)
    X = np.column_stack([ids, values + 0.1 * rng.normal(size=120)])
    if column == "animal":
        X = pd.DataFrame(X, columns=["animal", "value"])
    hmm = VRHMM(1, groups=column).fit(X)
    display = TrackDisplay.from_estimator(hmm, X, values)
    assert [len(line.get_xdata()) for line in display.ax_.get_lines()] == [40, 40, 40]
    shown = ResidualsDisplay.from_estimator(hmm, X)
    np.testing.assert_array_equal(shown.sequences, ids.astype(int) - 1)
    z = hmm.pseudo_residuals(X)[:, 0]
    expected = _independence(z, ids.astype(int), 10)
    row = compare_models([hmm], X).iloc[0]
    assert (row["uncorrelated p"], row["pairs"]) == pytest.approx(expected)
