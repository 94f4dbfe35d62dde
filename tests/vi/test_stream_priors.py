"""Priors that follow the units of rows, in streams whose first batch has none."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.data import as_source, column_moments
from skvrem.vi.gaussian._model_posterior import FullRank, MeanField
from skvrem.vi.glm.streams import _estimator, _memory
from skvrem.vi.glm.streams._width import Width

UNITS = np.array([1e-2, 1.0, 1e3])
ENDS = [0, 1, 40, 300], [0, 2, 7, 300], [0, 30, 60, 300]


def problem(family, n=300):
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(n, 3))
    X, z = Z * UNITS + [0.0, 0.0, 2e3], Z @ [0.8, -0.5, 0.3]
    if family == "gaussian":
        return X, 1e3 * (z + 0.3 * rng.normal(size=n))
    if family == "logistic":
        return Z + 50.0, rng.random(n) < 1.0 / (1.0 + np.exp(-z))
    return X, rng.poisson(np.exp(1.0 + z))


def model_of(family, **params):
    if family == "logistic":
        return BayesianLogisticRegression(1.0)
    return BayesianGLMRegressor(family, **params)


def streamed(model, X, y, ends, **more):
    for first, last in pairwise(ends):
        own = {name: values[first:last] for name, values in more.items()}
        if isinstance(model, BayesianLogisticRegression):
            own["classes"] = [False, True]
        model.partial_fit(X[first:last], y[first:last], **own)
        model = pickle.loads(pickle.dumps(model))
    return model


def far(one, other):
    return np.abs((one.coef_ - other.coef_) / other.coef_std_).max()


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("width", ["learn", "auto"])
@pytest.mark.parametrize("layout", [np.asarray, csr_array])
def test_the_end_of_a_stream_of_numbers_is_the_fit(ends, width, layout):
    X, y = problem("gaussian")
    y[:30] = 0.0  # a first batch whose targets do not vary
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    whole = BayesianGLMRegressor(prior_scale=width).fit(X, y, weight)
    model = BayesianGLMRegressor(prior_scale=width)
    stream = streamed(model, layout(X), y, ends, sample_weight=weight)
    for name in ("prior_scale_", "coef_std_", "noise_scale_", "noise_df_"):
        np.testing.assert_allclose(getattr(stream, name), getattr(whole, name), 1e-5)
    assert stream.intercept_prior_mean_ == pytest.approx(whole.intercept_prior_mean_)
    assert far(stream, whole) < 1e-4
    # It goes on from a fit likewise.
    begun = BayesianGLMRegressor(prior_scale=width).fit(X[:30], y[:30], weight[:30])
    begun.partial_fit(X[30:], y[30:], weight[30:])
    np.testing.assert_allclose(begun.prior_scale_, whole.prior_scale_, 1e-5)
    assert far(begun, whole) < 1e-4


def test_a_fit_that_was_pickled_keeps_its_prior():
    X, y = problem("gaussian")
    fitted = pickle.loads(pickle.dumps(BayesianGLMRegressor().fit(X[:50], y[:50])))
    before = fitted.prior_scale_
    fitted.partial_fit(X[50:99], y[50:99]).partial_fit(X[99:], y[99:])
    np.testing.assert_array_equal(fitted.prior_scale_, before)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("family", ["poisson", "negative-binomial", "logistic"])
def test_counts_and_classes_have_the_prior_of_all_rows(family, ends):
    X, y = problem(family)
    whole = model_of(family, prior_scale="auto").fit(X, y)
    stream = streamed(model_of(family, prior_scale="auto"), X, y, ends)
    for name in ("prior_scale_", "intercept_prior_scale_"):
        np.testing.assert_allclose(getattr(stream, name), getattr(whole, name), 1e-9)
    assert far(stream, whole) < 0.2


@pytest.mark.parametrize("family", ["poisson", "logistic"])
def test_a_column_may_begin_to_vary_once_rows_have_gone(family, monkeypatch):
    monkeypatch.setattr(_memory, "KEPT", 100)
    X, y = problem(family, 2000)
    X[:500, 0] = X[0, 0]
    ends = np.arange(0, 2001, 50)
    stream = streamed(model_of(family, prior_scale="auto"), X, y, ends)
    whole = model_of(family, prior_scale="auto").fit(X, y)
    ratio = stream.prior_scale_ / whole.prior_scale_
    assert (np.abs(np.log(ratio)) < np.log(_memory.CHANGED)).all()
    known = model_of(family, prior_scale=whole.prior_scale_)
    assert far(stream, streamed(known, X, y, ends)) < 0.05


def learning(family):
    if family == "logistic":
        return BayesianLogisticRegression()
    return BayesianGLMRegressor(family)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("family", ["poisson", "negative-binomial", "logistic"])
def test_a_width_that_is_learned_is_that_of_the_fit(family, ordered):
    """Columns of any units, one of which varies late, in batches of any size."""
    X, y = problem("poisson" if family != "logistic" else family, 3000)
    X = X * [1.0, 1e-3, 1e3]
    X[:1500, 2] = X[0, 2]
    whole = learning(family).fit(X, y)
    order = np.argsort(y, kind="stable") if ordered else np.arange(3000)
    for ends in ([0, 1, 20, 2990, 3000], np.arange(0, 3001, 100)):
        stream = streamed(learning(family), X[order], y[order], ends)
        assert stream._memory.kept.are_all
        ratio = stream.prior_scale_ / whole.prior_scale_
        assert np.abs(np.log(ratio)).max() < 0.15
        assert far(stream, whole) < 0.05
        assert np.abs(np.log(stream.coef_std_ / whole.coef_std_)).max() < 0.05
    # It goes on from a fit likewise.
    more = {"classes": [False, True]} if family == "logistic" else {}
    begun = learning(family).fit(X[:30], y[:30]).partial_fit(X[30:], y[30:], **more)
    assert far(begun, whole) < 0.05


@pytest.mark.parametrize("size", [1.0, 2e4, 2e6])
@pytest.mark.parametrize("family", ["poisson", "negative-binomial", "logistic"])
def test_a_first_row_may_be_far_out(family, size):
    """Of one row no column varies: its unit is its size."""
    rng = np.random.default_rng(0)
    X, y = size * (1.0 + 0.3 * rng.normal(size=(300, 1))), rng.integers(2, size=300)
    y[0] = 0
    whole = learning(family).fit(X, y)
    stream = streamed(learning(family), X, y == 1, [0, 1, 2, 300])
    assert far(stream, whole) < 0.05
    first = streamed(learning(family), X, y == 1, [0, 1])
    assert np.abs(first.coef_std_ * size).max() < 20.0


@pytest.mark.parametrize("family", ["poisson", "logistic"])
def test_a_width_stays_where_rows_have_gone(family, monkeypatch):
    monkeypatch.setattr(_memory, "KEPT", 300)
    monkeypatch.setattr(_memory, "MOST_BYTES", 0)
    X, y = problem(family, 2000)
    model = streamed(learning(family), X, y, [0, 100, 300, 400])
    width = model._width
    model = streamed(model, X, y, np.arange(400, 2001, 100))
    assert not model._memory.kept.are_all and model._width == width
    whole = learning(family).fit(X, y)
    assert np.abs(np.log(model.prior_scale_ / whole.prior_scale_)).max() < 0.5
    assert far(model, whole) < 0.3


def test_a_posterior_tells_how_far_its_width_has_moved(rng):
    """Where the log-likelihood is quadratic, to first order in what has changed."""
    A, towards = rng.normal(size=(9, 4)), rng.normal(size=4)
    unit = np.append(rng.uniform(0.5, 3.0, 3), 5.0)

    def at(log_width, times):
        """Rows that count more, at the posterior of a width."""
        scale = unit * np.append(np.full(3, np.exp(log_width)), 1.0)
        prior = MeanField(np.zeros(4), scale)
        covariance = np.linalg.inv(times * A.T @ A + np.diag(1.0 / scale**2))
        mean = covariance @ (times * towards)
        return FullRank(mean, np.linalg.cholesky(covariance)), prior, 1, True

    def slope(log_width, times):
        q, prior, *_ = at(log_width, times)
        square = (q.mean**2 + q.variance) / prior.variance
        return square[:3].sum() - 3.0 - log_width

    best = brentq(slope, -4.0, 4.0, args=(1.0,))
    curvature = (slope(best - 0.01, 1.0) - slope(best + 0.01, 1.0)) / 0.02
    width = Width.of(best, curvature, 9)
    taken = np.log(width.value)
    assert taken == pytest.approx(best + (curvature - 1.0) / (2.0 * curvature**2))
    assert width.slope == pytest.approx(slope(taken, 1.0), rel=0.1)
    width = width.rested(*at(taken, 1.0))
    assert width.slope == pytest.approx(slope(taken, 1.0))
    assert np.log(width.value) == taken and width.moved(*at(taken, 1.0)) == 0.0
    for times in 0.9, 1.1:
        moved = brentq(slope, -4.0, 4.0, args=(times,)) - best
        assert width.moved(*at(taken, times)) == pytest.approx(moved, rel=0.4)


def test_a_stream_learns_a_width_where_it_has_moved(monkeypatch):
    """Not while all targets are the same, and by few looks at all rows."""
    found, original = [], _estimator.width_of_prior

    def counted(model, data, *given):
        found.append(data.n_units)
        return original(model, data, *given)

    monkeypatch.setattr(_estimator, "width_of_prior", counted)
    X, y = load_breast_cancer(return_X_y=True)
    y, ends = y == 1, [*range(0, len(y), 5), len(y)]
    whole = BayesianLogisticRegression().fit(X, y)
    found.clear()
    for order in (
        np.argsort(y, kind="stable"),
        np.random.default_rng(0).permutation(569),
    ):
        model = streamed(BayesianLogisticRegression(), X[order], y[order], ends)
        first = np.argmax(y[order] != y[order[0]])
        looks, found[:] = list(found), []
        assert first < min(looks) and len(looks) < 0.6 * len(ends)
        assert far(model, whole) < 0.1


def test_the_width_of_like_targets_is_that_of_its_own_prior():
    X, y = problem("poisson")
    stream = streamed(learning("poisson"), X, np.full(len(y), 2.0), [0, 30, 60])
    assert stream._width.value == 1.0
    assert stream.partial_fit(X, y)._width.value < 0.9


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_groups_have_the_prior_of_all_rows(family):
    X, y = problem(family)
    ids = np.arange(len(y)) % 5
    whole = BayesianGLMRegressor(family).fit(X, y, groups=ids)
    stream = streamed(BayesianGLMRegressor(family), X, y, ENDS[0], groups=ids)
    np.testing.assert_allclose(stream.prior_scale_, whole.prior_scale_, 1e-9)
    scales = [model._group_state["scales"] for model in (stream, whole)]
    np.testing.assert_allclose(*scales, 1e-9)
    assert far(stream, whole) < (0.1 if family == "gaussian" else 0.5)


def test_another_prior_is_exact(rng):
    A = rng.normal(size=(6, 4))
    rows, slope = A.T @ A, rng.normal(size=4)

    def posterior(prior):
        covariance = np.linalg.inv(rows + np.diag(1.0 / prior.variance))
        mean = covariance @ (slope + prior.mean / prior.variance)
        return FullRank(mean, np.linalg.cholesky(covariance))

    priors = [MeanField(rng.normal(size=4), rng.uniform(0.01, 9.0, 4)) for _ in "12"]
    found = _memory._exchanged(posterior(priors[0]), *priors)
    np.testing.assert_allclose(found.mean, posterior(priors[1]).mean, 1e-8)
    np.testing.assert_allclose(found.factor, posterior(priors[1]).factor, 1e-8, 1e-12)


def test_moments_of_sparse_rows_are_those_of_dense_ones(rng):
    X, weight = rng.poisson(0.3, (200, 4)).astype(float), rng.uniform(0.1, 2.0, 200)
    X[:, 2] = 3.1
    sparse = csr_array(X)
    sparse.data[np.flatnonzero(sparse.indices == 0)[:5]] = 0.0  # kept as entries
    both = as_source(sparse, weight), as_source(sparse.toarray(), weight)
    for kind in range(2):
        one, other = (column_moments(data)[kind] for data in both)
        assert one.deviation[2] == other.deviation[2] == 0.0
        np.testing.assert_allclose(one.mean, other.mean, 1e-12)
        np.testing.assert_allclose(one.deviation, other.deviation, 1e-12)


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_a_width_that_widens_far_at_once_is_found(seed):
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(120, 20)), rng.normal(size=(20, 5))
    y = np.argmax(X @ W + rng.gumbel(size=(120, 5)), axis=1)
    stream, weight = BayesianLogisticRegression(random_state=0), np.full(40, 20.0)
    for i in range(0, 120, 40):
        batch = X[i : i + 40], y[i : i + 40]
        stream.partial_fit(*batch, classes=range(5), sample_weight=weight)
    whole = BayesianLogisticRegression(random_state=0)
    whole.fit(X, y, np.full(120, 20.0))
    ratio = stream.prior_scale_ / whole.prior_scale_
    assert 0.4 < ratio.min() and ratio.max() < 2.5
