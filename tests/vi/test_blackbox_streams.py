"""A user's own model: rows with weights, and rows that come one batch after another."""

import pickle

import numpy as np
import pytest

from skvrem import BayesianLogisticRegression
from skvrem import VariationalInference as VI
from skvrem.vi import MinibatchSteps
from skvrem.vi.blackbox._model_density import DensityBatch, Target
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField
from tests.own_models import (
    Logistic,
    RichLogistic,
    ShortSkills,
    Skills,
    WideSkills,
    logistic_problem,
    skills_problem,
)
from tests.watching import Untouched


class Linear(Logistic):
    """Linear regression with noise of standard deviation 1."""

    def log_likelihood(self, parameters, indices):
        away = self.y[indices] - self.X[indices] @ parameters
        return -0.5 * away**2 - 0.5 * np.log(2.0 * np.pi)

    def gradient(self, parameters, indices):
        X = self.X[indices]
        return X.T @ (self.y[indices] - X @ parameters)


@pytest.mark.parametrize("solver", ["batch", "svrg"])
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield", "lowrank"])
def test_a_row_given_twice_equals_weight_two(posterior, solver):
    X, y = logistic_problem()
    given = {"posterior": posterior, "solver": solver, "rank": 2}
    given["tol"] = 1e-3 if solver == "batch" else 0.02
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, 60)
    twice = VI(
        RichLogistic(X, y), random_state=0, steps=MinibatchSteps(n_draws=64), **given
    )
    model = VI(
        RichLogistic(X, y), random_state=0, steps=MinibatchSteps(n_draws=64), **given
    )
    twice.fit(np.arange(60).repeat(weight))
    model.fit(sample_weight=weight)
    tiny = 1e-6 if solver == "batch" else 0.2
    assert (abs(model.mean_ - twice.mean_) < tiny * twice.std_).all()
    np.testing.assert_allclose(model.std_, twice.std_, rtol=tiny)
    assert model.elbo_ == pytest.approx(twice.elbo_, abs=100.0 * tiny * tiny + 1e-6)
    if solver == "batch":
        assert model.pareto_k_ == pytest.approx(twice.pareto_k_, abs=1e-3)
    rows = np.r_[np.arange(60), 5, 5]
    thrice = model.fit(rows, sample_weight=np.r_[weight, 1.5, 0.5])
    weight[5] += 2
    assert thrice.n_samples_seen_ == 62
    alone = VI(
        RichLogistic(X, y), random_state=0, steps=MinibatchSteps(n_draws=64), **given
    )
    alone.fit(sample_weight=weight)
    np.testing.assert_allclose(thrice.mean_, alone.mean_, atol=tiny)


def test_weights_that_are_no_whole_numbers():
    X, y = logistic_problem()
    weight = np.random.default_rng(0).choice([0.25, 0.5, 2.0], 60)
    exact = BayesianLogisticRegression(1.0, fit_intercept=False, tol=1e-6)
    exact.fit(X, y, sample_weight=weight)
    model = VI(Logistic(X, y), random_state=0, steps=MinibatchSteps(n_draws=400))
    model.fit(sample_weight=weight)
    np.testing.assert_allclose(model.mean_, exact.coef_[0], atol=0.02)
    np.testing.assert_allclose(model.std_, exact.coef_std_[0], rtol=0.03)


@pytest.mark.parametrize("model_class", [Skills, WideSkills, ShortSkills])
def test_weighed_derivatives(model_class):
    pairs, d = skills_problem()
    weight = np.tile([0.0, 1.0, 2.5], 20)
    target = Target(model_class(pairs, d), np.arange(60), weight)
    plain = Target(Skills(pairs, d), np.arange(60))
    rng = np.random.default_rng(0)
    z, v = rng.normal(size=(2, d))
    rows = np.array([3, 4, 5, 8, 10])
    support = target.support(rows) if target.has_support else np.arange(d)
    batch = (
        DensityBatch(rows, 2.0, support)
        if target.has_support
        else DensityBatch(rows, 2.0)
    )
    each = plain.each(z, plain.rows)
    assert target.log_density(z) == pytest.approx(weight @ each)
    for name, more in (("gradient", ()), ("hessian_times", (v,))):
        some = [
            getattr(plain, name)(z, *more, DensityBatch(np.array([i]), 1.0))
            for i in range(60)
        ]
        whole = weight @ some
        np.testing.assert_allclose(getattr(target, name)(z, *more), whole)
        np.testing.assert_allclose(getattr(target, name)(z, *more), whole)
        less = [u[support] for u in more]
        found = getattr(target, name)(z[support], *less, batch)
        expected = 2.0 * weight[rows] @ np.array(some)[rows]
        np.testing.assert_allclose(found, expected[support], atol=1e-12)


def test_wrong_weights():
    model = VI(Logistic(*logistic_problem()), random_state=0).fit()
    untouched = Untouched(model)
    for weight in (np.ones(3), -np.ones(60), np.zeros(60), np.full(60, np.nan)):
        for method in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match="sample_weight"):
                method(sample_weight=weight)
    untouched.check()


@pytest.mark.parametrize("own_prior", [False, True])
@pytest.mark.parametrize("posterior", ["fullrank", "lowrank"])
def test_batches_of_a_gaussian_model_add_up(posterior, own_prior):
    X, y = logistic_problem()
    model = Linear(X, y)
    if own_prior:
        rich = RichLogistic(X, y, 1.0)
        model.log_prior, model.log_prior_gradient = (
            rich.log_prior,
            rich.log_prior_gradient,
        )
    given = {"posterior": posterior, "rank": 3, "tol": 1e-6, "random_state": 0}
    whole = VI(model, **given).fit()
    stream = VI(model, **given)
    for rows in np.array_split(np.arange(60), 3):
        stream.partial_fit(rows)
        stream = pickle.loads(pickle.dumps(stream))
    tiny = 1e-5 if posterior == "fullrank" else 1e-2
    np.testing.assert_allclose(stream.mean_, whole.mean_, atol=tiny)
    np.testing.assert_allclose(
        stream.posterior_.covariance(), whole.posterior_.covariance(), atol=tiny
    )
    assert stream.n_samples_seen_ == 60
    assert not hasattr(stream, "elbo_") and not hasattr(stream, "elbo_se_")


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ({}, FullRank),
        ({"posterior": "lowrank", "rank": 2}, LowRank),
        ({"posterior": "meanfield"}, MeanField),
        ({"solver": "svrg", "tol": 0.05}, FullRank),
        ({"solver": "svrg", "posterior": "meanfield", "tol": 0.05}, MeanField),
    ],
)
def test_batches_of_any_model(params, kind):
    X, y = logistic_problem(200)
    own = RichLogistic(X, y)
    stream = VI(own, random_state=0, **params)
    first = stream.partial_fit(np.arange(100)).mean_
    alone = VI(own, random_state=0, **params).fit(np.arange(100))
    np.testing.assert_array_equal(first, alone.mean_)
    stream.partial_fit(np.arange(100, 200))
    whole = VI(own, random_state=0, **params).fit()
    assert type(stream.posterior_) is kind
    # What a mean field does not know of the first rows' posterior is lost.
    far = 0.6 if kind is MeanField else 0.4
    assert (abs(stream.mean_ - whole.mean_) < far * whole.std_).all()
    np.testing.assert_allclose(stream.std_, whole.std_, rtol=0.2)
    assert not hasattr(stream, "elbo_") and stream.n_samples_seen_ == 200
    assert stream.pareto_k_ < 0.7
    assert stream.fit(np.arange(100)).n_samples_seen_ == 100
    np.testing.assert_array_equal(stream.mean_, alone.mean_)


def test_a_mean_field_keeps_the_steps_of_a_support():
    stream = VI(ShortSkills(*skills_problem()), solver="svrg", tol=0.5, random_state=0)
    stream.partial_fit(np.arange(30)).partial_fit(np.arange(30, 60))
    whole = VI(stream.model, solver="svrg", tol=0.5, random_state=0).fit()
    assert isinstance(stream.posterior_, MeanField)
    assert (abs(stream.mean_ - whole.mean_) < 0.5 * whole.std_).all()


def test_another_model_must_have_the_same_parameters():
    model = VI(Logistic(*logistic_problem()), random_state=0).partial_fit()
    model.set_params(model=Logistic(*logistic_problem(d=4)))
    untouched = Untouched(model)
    with pytest.raises(ValueError, match="4 parameters, and the posterior 3"):
        model.partial_fit()
    untouched.check()
    other = Logistic(*logistic_problem(80))
    assert model.set_params(model=other).partial_fit().n_samples_seen_ == 140


def test_a_log_prior_of_none_is_none():
    """As JaxModel has it."""
    problem = skills_problem()
    streams = []
    for own in ({}, {"log_prior": None}):
        model = ShortSkills(*problem)
        vars(model).update(own)
        stream = VI(model, solver="svrg", posterior="meanfield", random_state=0)
        stream.partial_fit(np.arange(30)).partial_fit(np.arange(30, 60))
        streams.append(stream)
    np.testing.assert_array_equal(streams[0].mean_, streams[1].mean_)
    np.testing.assert_array_equal(streams[0].std_, streams[1].std_)


def sorted_stream(own, n_batches, weight=None, **params):
    """A stream whose rows come by target, and the fit to all."""
    given = {"random_state": 0, **params}
    stream, order = VI(own, **given), np.argsort(own.y, kind="stable")
    for rows in np.array_split(order, n_batches):
        some = None if weight is None else weight[rows]
        stream = pickle.loads(pickle.dumps(stream.partial_fit(rows, None, some)))
        own = stream.model
    return stream, VI(own, **given).fit(sample_weight=weight)


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize(
    ("params", "prior_scale", "weighted"),
    [
        ({}, None, False),
        ({}, 0.7, True),
        ({"posterior": "meanfield"}, None, True),
        ({"posterior": "lowrank", "rank": 1}, 0.7, False),
        ({"solver": "svrg"}, None, False),
    ],
)
def test_a_sorted_stream_ends_at_the_fit(
    params, prior_scale, weighted, few, monkeypatch
):
    """Rows of one class lead far away, and those before are seen again."""
    monkeypatch.setattr("skvrem.vi.blackbox._stream.FEW", few)
    X, y = logistic_problem(300)
    weight = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 300) if weighted else None
    stream, whole = sorted_stream(RichLogistic(X, y, prior_scale), 6, weight, **params)
    # What a mean field does not know of its Gaussian is lost between two looks.
    lost = params.get("posterior") == "meanfield" and not few
    far = 0.6 if lost else 0.1
    assert (abs(stream.mean_ - whole.mean_) < far * whole.std_).all()
    np.testing.assert_allclose(stream.std_, whole.std_, rtol=0.5 * far)
    assert stream.n_samples_seen_ == 300


def test_rows_of_a_stream_that_is_shuffled_are_seen_again_where_they_double():
    X, y = logistic_problem(4000)
    stream, seen = VI(RichLogistic(X, y), random_state=0), []
    for rows in np.array_split(np.random.default_rng(0).permutation(4000), 8):
        seen.append(stream.partial_fit(rows)._rows[0].size)
    assert seen == [500, 1000, 500, 2000, 500, 500, 500, 4000]


def test_rows_that_have_changed_are_not_seen_again():
    """A model may have others in their place: then a Gaussian is all there is."""
    X, y = logistic_problem(200)
    own = RichLogistic(X[:100], y[:100])
    stream = VI(own, random_state=0).partial_fit()
    before = stream.posterior_
    own.X, own.y = X[100:], y[100:]
    stream.partial_fit()
    other = VI(own, random_state=0).fit()
    vars(other).update(posterior_=before, _seen=None)
    other.partial_fit()
    np.testing.assert_array_equal(stream.mean_, other.mean_)
    # And go on with the new ones.
    assert stream.partial_fit([3])._rows[0].size == 101
