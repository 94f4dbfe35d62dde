"""Fewer rows than coefficients, against more rows that say nothing."""

import numpy as np
import pytest
from scipy import sparse

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.data import as_source
from skvrem.vi.gaussian._model import GaussianModel
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField
from skvrem.vi.glm._evidence import Evidence, squares_of
from skvrem.vi.glm._span import Span, in_coordinates, in_coordinates_about

N, P = 12, 20


def rows(rng, kind):
    X = rng.normal(size=(N, P))
    u = X[:, 0] - 2.0 * X[:, 1]
    if kind == "poisson":
        return X, rng.poisson(np.exp(0.3 * u)), BayesianGLMRegressor(family="poisson")
    if kind == "gaussian":
        return X, u, BayesianGLMRegressor(noise_scale=0.7)
    classes = 2 if kind == "two classes" else 3
    y = np.digitize(u, [0.0] if classes == 2 else [-1.0, 1.0])
    y[:classes] = np.arange(classes)
    return X, y, BayesianLogisticRegression(1.0)


KINDS = ["poisson", "gaussian", "two classes", "three classes"]
#: What a row of zeros adds to the bound, whose target is 0.
NOTHING = {
    "poisson": -1.0,
    "gaussian": -0.5 * np.log(2.0 * np.pi * 0.49),
    "two classes": -np.log(2.0),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_zeros_change_nothing(kind, weighted, rng):
    X, y, model = rows(rng, kind)
    scale = rng.uniform(0.5, 2.0, P)
    weight = rng.uniform(0.5, 2.0, N) if weighted else np.ones(N)
    model.set_params(prior_scale=scale, fit_intercept=False, tol=1e-9, max_iter=2000)
    few = model.fit(X, y, weight)
    q, mean, bound = few.posterior_, few.coef_.copy(), few.elbo_
    many = model.fit(
        np.vstack([X, np.zeros((P, P))]),
        np.append(y, np.zeros(P)),
        np.append(weight, np.ones(P)),
    )
    assert isinstance(q, FullRank) and q.n_dim == many.posterior_.n_dim
    # Nodes of three classes err by more: they are finer where more is asked for.
    tol = {"atol": 1e-3 if kind == "three classes" else 2e-5}
    np.testing.assert_allclose(mean, many.coef_, **tol)
    np.testing.assert_allclose(q.covariance(), many.posterior_.covariance(), **tol)
    if kind in NOTHING:
        assert bound + P * NOTHING[kind] == pytest.approx(many.elbo_, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_an_intercept_is_a_column_of_ones(kind, rng):
    X, y, model = rows(rng, kind)
    numbers = {"prior_scale": 1.0, "intercept_prior_scale": 3.0}
    model.set_params(tol=1e-9, max_iter=2000, **numbers)
    own = model.fit(X, y)
    intercept, sd, bound = own.intercept_, own.intercept_std_, own.elbo_
    again = model.fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(again.intercept_, intercept, atol=1e-6)
    scale = np.append(np.ones(P), 3.0)
    model.set_params(fit_intercept=False, prior_scale=scale)
    column = model.fit(np.column_stack([X, np.ones(N)]), y)
    tol = 1e-3 if kind == "three classes" else 1e-5
    np.testing.assert_allclose(column.coef_[..., -1], intercept, atol=tol)
    np.testing.assert_allclose(column.coef_std_[..., -1], sd, atol=tol)
    assert column.elbo_ == pytest.approx(bound, abs=tol)


def test_what_is_lifted_is_found_again(rng):
    X, scale = rng.normal(size=(5, 7)), rng.uniform(0.5, 2.0, 8)
    prior = MeanField(rng.normal(size=8), scale)
    span = Span(as_source(X), prior, True)
    rows = np.column_stack([X, np.ones(5)])
    mean = rng.normal(size=(8, 2))
    z = span.means(mean)
    np.testing.assert_allclose(span.data.rows @ z, rows @ mean)
    half = np.tril(rng.normal(size=(10, 10)))
    q = span.lift(FullRank(z.T.ravel(), half), 2)
    both = np.kron(np.eye(2), rows)
    known = np.kron(np.eye(2), span.data.rows)
    np.testing.assert_allclose(both @ q.mean, known @ z.T.ravel())
    np.testing.assert_allclose(q.covariance(both), known @ half @ half.T @ known.T)
    again = span.project(q, 2)
    np.testing.assert_allclose(again.mean, z.T.ravel())
    np.testing.assert_allclose(again.covariance(), half @ half.T)
    # Across the rows it is the prior.
    across = np.linalg.svd(rows * scale)[2][5:] / scale
    across = np.kron(np.eye(2), across)
    np.testing.assert_allclose(q.covariance(across), np.eye(6), atol=1e-12)
    np.testing.assert_allclose(across @ q.mean, across @ np.tile(prior.mean, 2))


def test_warm_starts_and_streams_go_on(rng):
    X, y, model = rows(rng, "two classes")
    first = model.fit(X, y)
    steps, mean = first.n_iter_, first.coef_.copy()
    again = model.set_params(warm_start=True).fit(X, y)
    assert again.n_iter_ == 1 < steps
    np.testing.assert_allclose(again.coef_, mean, atol=0.02)
    stream = BayesianLogisticRegression(1.0)
    for part in (slice(0, 6), slice(6, None)):
        stream.partial_fit(X[part], y[part], classes=[0, 1])
    np.testing.assert_allclose(stream.coef_, mean, atol=0.15)


def test_few_rows_of_several_classes_tell_a_width_in_their_span(rng, monkeypatch):
    X, y, _ = rows(rng, "three classes")
    few = BayesianLogisticRegression(tol=1e-4).fit(X, y)
    learn = BayesianLogisticRegression._learn_width

    def by_coefficients(self, *given):
        return learn(self, *given[:-1], False)

    monkeypatch.setattr(BayesianLogisticRegression, "_learn_width", by_coefficients)
    many = BayesianLogisticRegression(tol=1e-4).fit(X, y)
    assert few._width.log == pytest.approx(many._width.log, abs=0.1)
    assert few.elbo_ == pytest.approx(many.elbo_, abs=0.1)


@pytest.mark.parametrize("prior_scale", [1.0, "learn"])
def test_streams_of_few_rows_stay_in_their_span(prior_scale, rng, monkeypatch):
    X, y, _ = rows(rng, "three classes")
    size, of_full = [], GaussianModel._full

    def counted(self, mean, *given):
        size.append(len(mean))
        return of_full(self, mean, *given)

    monkeypatch.setattr(GaussianModel, "_full", counted)
    stream = BayesianLogisticRegression(prior_scale)
    for part in (slice(0, 6), slice(6, None)):
        stream.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert max(size) <= N + 1 < stream.posterior_.n_dim // 3 == P + 1
    whole = BayesianLogisticRegression(prior_scale).fit(X, y)
    # A width is known to a few hundredths.
    far = 0.02 if prior_scale == 1.0 else 0.1
    np.testing.assert_allclose(stream.coef_, whole.coef_, rtol=far, atol=0.02)
    np.testing.assert_allclose(stream.coef_std_, whole.coef_std_, rtol=far)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_rows_too_large_for_a_basis_are_told_of():
    with pytest.raises(ValueError, match=r"the scale of the prior.*StandardScaler"):
        BayesianGLMRegressor().fit(np.full((3, 40), 1e150), [2.0, 4.0, 1.0])


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_evidence_of_coordinates_is_that_of_coefficients(
    intercept, weighted, as_rows, rng
):
    X, y = rng.normal(size=(N, P)), 3.0 + rng.normal(size=N)
    X[:, 3] = 0.0
    X[4] = X[5]  # fewer coordinates than rows
    weight = rng.uniform(0.5, 2.0, N) if weighted else None
    mean, scale = np.zeros(P), rng.uniform(0.5, 2.0, P)
    if intercept:
        mean, scale = np.append(mean, 2.0), np.append(scale, 30.0)
    prior = MeanField(mean, scale)
    data = as_source(as_rows(X), weight)
    own, of_own = in_coordinates(data, prior)
    of_rows = Evidence(squares_of(data, y, prior, intercept), prior.precision)
    same = of_own(prior)
    of_own_rows = Evidence(squares_of(own, y, same, intercept), same.precision)
    assert own.n_features == N
    for variance in (1e-3, 0.5, 20.0):
        found = of_own_rows.at(variance) - of_own_rows.at(1.0)
        assert found == pytest.approx(of_rows.at(variance) - of_rows.at(1.0))
        assert of_own_rows.freedom(variance) == pytest.approx(of_rows.freedom(variance))
    assert of_own_rows.noise() == pytest.approx(of_rows.noise())
    # Of a prior that is wider for the features, and not for an intercept.
    wider = MeanField(mean, np.append(3.0 * scale[:P], scale[P:]))
    squares = squares_of(own, y, same, intercept)
    of_own_rows = Evidence(squares, of_own(wider).precision)
    of_rows = Evidence(squares_of(data, y, prior, intercept), wider.precision)
    assert of_own_rows.noise() == pytest.approx(of_rows.noise())
    assert of_own_rows.width(1.0) == pytest.approx(of_rows.width(1.0), rel=1e-5)


@pytest.mark.parametrize("kind", [MeanField, FullRank, LowRank])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_evidence_given_what_rows_before_have_told(intercept, kind, rng):
    p = P + intercept
    X, y, mean = rng.normal(size=(N, P)), rng.normal(size=N), rng.normal(size=p)
    half = {
        MeanField: rng.uniform(0.5, 2.0, p),
        FullRank: np.tril(rng.normal(size=(p, p))) + 3.0 * np.eye(p),
        LowRank: rng.normal(size=(p, 2)),
    }[kind]
    own = (mean, np.full(p, 2.0), half) if kind is LowRank else (mean, half)
    prior, data = kind(*own), as_source(X, rng.uniform(0.5, 2.0, N))
    some, left = in_coordinates_about(data, y, prior, intercept)
    of_rows = Evidence(squares_of(data, y, prior, intercept), prior.precision)
    standard = MeanField(np.zeros(N), np.ones(N))
    sums = squares_of(some, left, standard, False)._replace(least=of_rows.least)
    of_some = Evidence(sums, standard.precision)
    for variance in (1e-2, 0.5, 20.0):
        found = of_some.at(variance) - of_some.at(1.0)
        assert found == pytest.approx(of_rows.at(variance) - of_rows.at(1.0))
        assert of_some.freedom(variance) == pytest.approx(of_rows.freedom(variance))
    assert of_some.noise() == pytest.approx(of_rows.noise())


@pytest.mark.parametrize("posterior", ["meanfield", "fullrank"])
def test_a_stream_learns_a_noise_about_what_it_knows(posterior, rng):
    X, y, _ = rows(rng, "gaussian")
    y = y + rng.normal(size=N)
    stream = BayesianGLMRegressor(posterior=posterior, prior_scale=0.5)
    stream.partial_fit(X[:6], y[:6])
    stream._memory = None  # as where there are more coefficients
    prior, before = stream.posterior_, stream.noise_scale_
    stream.partial_fit(X[6:], y[6:])
    data = as_source(X[6:])
    of_rows = Evidence(squares_of(data, y[6:], prior, True), prior.precision)
    assert of_rows.noise() > 2.0 * of_rows.least
    pooled = 0.5 * (before**2 + of_rows.noise())
    assert stream.noise_scale_ == pytest.approx(np.sqrt(pooled), rel=1e-4)
