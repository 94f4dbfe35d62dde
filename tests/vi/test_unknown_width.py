"""What is not known of the width of a prior, against sums over widths."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.base import clone

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.vi.gaussian._answers import deviation
from skvrem.vi.gaussian._model import Full
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField
from skvrem.vi.gaussian._width import shift_by_width, width_taken, with_unknown_width
from skvrem.vi.glm.streams._width import Told, curvature_about_rows, point_under

# Logarithms of widths to sum over.
LOG_WIDTHS = np.linspace(-3.5, 2.5, 61)


def problem(family, n=40, d=3):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d)) * np.geomspace(0.1, 10.0, d)
    z = (X / X.std(axis=0)) @ (0.6 * rng.normal(size=d))
    if family == "classes":
        return BayesianLogisticRegression(), X, rng.random(n) < expit(2.0 * z)
    if family == "several classes":
        y = (np.outer(z, [2.0, 0.0, -2.0]) + rng.gumbel(size=(n, 3))).argmax(axis=1)
        return BayesianLogisticRegression(), X, y
    if family in ("gaussian", "learnt noise"):
        noise = 1.0 if family == "gaussian" else "learn"
        return BayesianGLMRegressor(noise_scale=noise), X, z + rng.normal(size=n)
    return BayesianGLMRegressor(family), X, rng.poisson(np.exp(0.5 * z + 1.0))


FAMILIES = (
    "classes",
    "several classes",
    "gaussian",
    "learnt noise",
    "poisson",
    "negative-binomial",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_moments_are_those_of_all_widths(family):
    few = {"classes": 40, "several classes": 120}
    model, X, y = problem(family, few.get(family, 14))
    model.fit(X, y)
    unit = model.prior_scale_ / model._width.value
    evidence, means, stds = [], [], []
    for log_width in LOG_WIDTHS:
        one = clone(model).set_params(prior_scale=np.exp(log_width) * unit).fit(X, y)
        assert one.posterior_ is one._given_prior
        evidence.append(one.elbo_ - 0.5 * log_width**2)
        means.append(one.coef_)
        stds.append(one.coef_std_)
    share = np.exp(np.array(evidence) - max(evidence))
    share /= share.sum()
    mean = np.tensordot(share, means, 1)
    square = np.square(stds) + np.square(np.array(means) - mean)
    std = np.sqrt(np.tensordot(share, square, 1))
    # What several classes have in common no rows tell: its deviation is the width.
    rtol = 0.12 if family == "several classes" else 0.08
    np.testing.assert_allclose(model.coef_std_, std, rtol=rtol)
    assert np.abs((model.coef_ - mean) / std).max() < 0.2
    # Not by the posterior given the width: what is wider is no rounding.
    given = clone(model).set_params(prior_scale=model.prior_scale_).fit(X, y)
    wider = model.coef_std_ / given.coef_std_
    assert wider.max() > 1.01
    assert np.abs((model.coef_ - given.coef_) / std).max() < 0.05
    assert model.elbo_ == pytest.approx(given.elbo_, abs=0.02)
    # That of importance weights is the posterior given the width, as its bound.
    one, other = (abs(min(m.pareto_k_, 0.7)) for m in (model, given))
    assert one == pytest.approx(other, abs=0.2) or not np.isfinite(one)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_answers_are_by_what_is_not_known_of_the_width(family):
    model, X, y = problem(family)
    model.fit(X, y)
    std = np.atleast_2d(model.coef_std_)
    draws = model.sample_posterior(100_000, random_state=0)
    found = draws["coef"].std(axis=0)
    np.testing.assert_allclose(np.atleast_2d(found), std, rtol=0.03)
    table = model.summary()
    sd = [table[name] for name in table.columns if str(name).endswith("sd")]
    sd = np.array([own for own in sd if own.name != "prior sd"])
    np.testing.assert_allclose(sd[:, :3], std, rtol=1e-6)
    if family in ("classes", "several classes"):
        rows = np.einsum("sji,ni->snj", draws["coef"][:20_000], X[:5])
        rows = rows + draws["intercept"][:20_000, None]
        if family == "classes":
            expected = np.stack([1.0 - expit(rows), expit(rows)], axis=2)[..., 0]
        else:
            expected = np.exp(rows - rows.max(axis=2, keepdims=True))
            expected /= expected.sum(axis=2, keepdims=True)
        expected = expected.mean(axis=0)
        for method in "quadrature", "mc":
            found = model.predict_proba(X[:5], method=method)
            np.testing.assert_allclose(found, expected, atol=0.02)
    else:
        rows = draws["coef"] @ X[:5].T + draws["intercept"][:, None]
        ends = model.predict_mean_interval(X[:5], level=0.8)
        if family in ("poisson", "negative-binomial"):
            ends = np.log(ends)
        expected = np.quantile(rows, [0.1, 0.9], axis=0).T
        np.testing.assert_allclose(ends, expected, atol=0.05 * std.max() * 10.0)
        same = model.predict_mean_interval(csr_array(X[:5]), level=0.8)
        np.testing.assert_allclose(same, model.predict_mean_interval(X[:5], level=0.8))


def test_a_given_prior_is_known():
    model, X, y = problem("classes")
    model.set_params(prior_scale=1.0).fit(X, y)
    assert model.posterior_ is model._given_prior


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
def test_covariances_of_any_kind(posterior):
    model, X, y = problem("classes", 60, 8)
    model.set_params(posterior=posterior, random_state=0).fit(X, y)
    q, given = model.posterior_, model._given_prior
    if posterior == "meanfield":
        assert q is given
        return
    v = np.append(1.0 / np.square(model.prior_scale_), 0.0) * q.mean
    v = 2.0 * given.covariance() @ v
    expected = given.covariance() + np.outer(v, v) / model._width.curvature
    np.testing.assert_allclose(q.covariance(), expected, rtol=1e-6, atol=1e-12)
    a, half = (
        X @ model.coef_[0] + model.intercept_[0],
        np.sqrt(q.predictor_variance(np.column_stack([X, np.ones(60)]))),
    )
    ends = model.predict_proba_interval(X)[:, 1]
    np.testing.assert_allclose(ends[:, 1], expit(a + 1.959964 * half), rtol=1e-6)


def test_fewer_rows_than_coefficients_have_it_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1200))
    X[:, 0] = np.repeat([1.0, -1.0], 20)
    for model, y in (
        (BayesianLogisticRegression(), X[:, 0] > 0.0),
        (BayesianGLMRegressor(), X[:, 0] + 0.1 * rng.normal(size=40)),
    ):
        model.fit(X, y)
        q, given = model.posterior_, model._given_prior
        assert isinstance(q, LowRank) and (q.variance >= given.variance).all()
        gained = q.variance - given.variance
        scales = np.append(model.prior_scale_, np.inf)
        shift = shift_by_width(given, scales, model._width.curvature)
        np.testing.assert_allclose(gained, np.square(shift), rtol=1e-6, atol=1e-12)
        draws = model.sample_posterior(2000, random_state=0)["coef"]
        found = draws.std(axis=0).ravel() / np.ravel(model.coef_std_)
        assert np.abs(np.log(found)).max() < 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_streams_and_warm_starts_go_on_from_what_is_given_the_width(family):
    model, X, y = problem(family, 150)
    whole = clone(model).fit(X, y)
    more = {"classes": np.unique(y)} if family.endswith("classes") else {}
    begun = clone(model).fit(X[:60], y[:60])
    for some in np.array_split(np.arange(60, 150), 5):
        begun.partial_fit(X[some], y[some], **more)
        begun = pickle.loads(pickle.dumps(begun))
    far = np.abs((begun.coef_ - whole.coef_) / whole.coef_std_).max()
    assert far < 0.05
    np.testing.assert_allclose(begun.coef_std_, whole.coef_std_, rtol=0.05)
    warm = clone(model).set_params(warm_start=True)
    for _ in range(3):
        warm.fit(X, y)
    np.testing.assert_allclose(warm.coef_std_, whole.coef_std_, rtol=0.02)


def test_posteriors_of_a_width_follow_those_of_others():
    """Exactly where rows tell the same of coefficients, by one; on a line, by two."""
    A = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.0], [0.5, 0.0, 1.0]])
    shift = np.array([1.0, -2.0, 0.5])

    def told(log_width):
        prior = MeanField(np.zeros(3), np.exp(log_width) * np.array([1.0, 2.0, 0.5]))
        precision = A + prior.precision
        covariance = np.linalg.inv(precision)
        q = Full((covariance @ shift)[:, None], covariance, precision)
        return Told(log_width, prior, q, np.linalg.cholesky(covariance))

    expected = told(0.7)
    found = point_under(expected.prior, 0.7, [told(0.0)]).parameters
    for a, b in zip(found, expected.q, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    near = point_under(expected.prior, 0.7, [told(0.5), told(0.6)]).parameters
    for a, b in zip(near, expected.q, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.02, atol=0.005)
    far = [t.q.mean for t in (told(0.5), told(0.6))]
    np.testing.assert_allclose(near.mean, 2.0 * far[1] - far[0], atol=1e-12)
    np.testing.assert_allclose(near.covariance @ near.precision, np.eye(3), atol=1e-12)


def test_curvatures_are_differences_where_rows_tell_the_same():
    A = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.0], [0.5, 0.0, 1.0]])
    shift, features = np.array([1.0, -2.0, 0.5]), np.array([True, True, False])

    def slope(log_width, curvature=False):
        scale = np.array([np.exp(log_width), 2.0 * np.exp(log_width), 3.0])
        prior = MeanField(np.zeros(3), scale)
        covariance = np.linalg.inv(A + prior.precision)
        q = Full((covariance @ shift)[:, None], covariance, A + prior.precision)
        if curvature:
            return curvature_about_rows(q, prior, features)
        square = (q.mean[:, 0] ** 2 + covariance.diagonal()) / prior.variance
        return square[:2].sum() - 2.0 - log_width

    expected = (slope(0.3 - 1e-5) - slope(0.3 + 1e-5)) / 2e-5
    assert slope(0.3, True) == pytest.approx(expected, rel=1e-6)


def test_widths_without_rows_are_their_median():
    assert width_taken(0.0, 1.0) == width_taken(0.0, 0.3) == 1.0
    assert width_taken(-1.0, 5.0) == pytest.approx(np.exp(-1.0 + 0.5 * 4.0 / 25.0))


def test_no_digits_of_narrow_axes_are_lost(rng):
    scale = np.geomspace(1e-6, 1e6, 5)
    root = np.linalg.cholesky(np.cov(rng.normal(size=(5, 9)))) * scale[:, None]
    q = FullRank(scale * rng.normal(size=5), root)
    prior = np.append(scale[:4], np.inf)
    found = with_unknown_width(q, prior, 3.0)
    shift = shift_by_width(q, prior, 3.0)
    expected = q.covariance() + np.outer(shift, shift)
    away = (found.covariance() - expected) / np.outer(scale, scale)
    np.testing.assert_allclose(away, 0.0, atol=1e-12)
    independent = MeanField(q.mean, q.scale)
    assert with_unknown_width(independent, prior, 3.0) is independent


def test_a_learnt_noise_adds_to_it():
    """Of Student's t, whose deviation is that of draws."""
    model, X, y = problem("learnt noise", 12)
    model.fit(X, y)
    assert np.isfinite(model.noise_df_)
    scale, df = model._scale_and_df(model.posterior_, model._given_prior)
    np.testing.assert_allclose(model.coef_std_, (deviation(df) * scale)[:3])
    alone, _ = model._scale_and_df(model._given_prior, model._given_prior)
    added = model.posterior_.variance - model._given_prior.variance
    np.testing.assert_allclose(np.square(scale) - np.square(alone), added, atol=1e-12)
