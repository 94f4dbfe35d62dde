"""Coefficients by group: bound and gradient, then what a user meets."""

import pickle

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from threadpoolctl import threadpool_info, threadpool_limits

from skvrem import BayesianLogisticRegression, HierarchicalSoftmaxClassifier, solvers
from skvrem.data import as_source
from skvrem.exceptions import FewGroupsWarning
from skvrem.utils._algebra import rescale
from skvrem.vi.gaussian import _model_families
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import Softmax
from skvrem.vi.hierarchical import _estimator, _kernels, _memory
from skvrem.vi.hierarchical._model import (
    GroupPosterior,
    HierarchicalModel,
    HierarchicalPrior,
    Past,
)
from tests.watching import Untouched

POSTERIORS = "nested", "meanfield"


def rows(n=600, n_groups=20, d=2, k=3, seed=0):
    """Rows in random order, and the coefficients (n_groups, d + 1, k) behind them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    group = rng.integers(n_groups, size=n)
    mean = rng.normal(size=(d + 1, k))
    Z = mean + 0.7 * rng.normal(size=(n_groups, d + 1, k))
    z = np.einsum("nj,njk->nk", np.column_stack([X, np.ones(n)]), Z[group])
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return X, y, group, Z


class Normal:
    """Real numbers with two predictors: expectations without an error of nodes."""

    n_predictors = 2

    def expectations(self, a, spread, y, weight):
        w = weight[:, None] if weight.size else np.ones((len(a), 1))
        away = y[:, None] - a
        loss = 0.5 * np.sum(w * (away**2 + spread**2))
        return loss, w * away, w * np.ones_like(a)


def small_model(family, weighted):
    X, y, group, _ = rows(40, 4)
    rng = np.random.default_rng(1)
    data = as_source(X, rng.uniform(0.5, 2.0, 40) if weighted else None)
    prior = HierarchicalPrior(np.array([[1.3], [0.5], [4.0]]), 0.2, 0.8)
    model = HierarchicalModel(
        family, y.astype(np.int32), group, 4, prior, data.total_weight
    )
    q = model.start(data).parameters
    q = GroupPosterior(*(part + 0.2 * rng.normal(size=part.shape) for part in q))
    return model, data, Point(q)


def evaluate(model, data, point):
    sums = data.chunks().sum(lambda batch: model.statistics(point, batch, 1.0))
    mean = rescale(sums, 1.0 / data.total_weight)
    return model.objective(point, mean), mean


# The model


@pytest.mark.parametrize("intercept", [True, False])
def test_kernels_are_the_formulas(intercept):
    rng = np.random.default_rng(0)
    X, place = rng.normal(size=(9, 2)), rng.integers(3, size=5)
    X[X < -0.5] = 0.0
    index = rng.integers(9, size=5)
    mean, variance = (
        rng.normal(size=(3, 2 + intercept, 4)),
        rng.random((3, 2 + intercept, 4)),
    )
    x = np.column_stack([X, np.ones(9)])[index][:, : 2 + intercept]
    a, spread = np.empty((5, 4)), np.empty((5, 4))
    _kernels.group_predictors(X, index, place, mean, variance, a, spread)
    np.testing.assert_allclose(a, np.einsum("nj,njk->nk", x, mean[place]))
    v = np.einsum("nj,njk->nk", x**2, variance[place])
    np.testing.assert_allclose(spread, np.sqrt(v))
    first, second = rng.normal(size=(2, 5, 4))
    sums = np.zeros((2, 3, 2 + intercept, 4))
    _kernels.add_group_sums(X, index, place, first, second, *sums)
    for g in range(3):
        own = place == g
        np.testing.assert_allclose(sums[0, g], x[own].T @ first[own], atol=1e-14)
        np.testing.assert_allclose(sums[1, g], (x**2)[own].T @ second[own], atol=1e-14)


@pytest.mark.parametrize(
    ("family", "atol"),
    [(Normal(), 1e-6), (Softmax(3, 40), 0.1)],
    ids=["exact", "nodes"],
)
@pytest.mark.parametrize("past", [False, True])
def test_gradient_is_that_of_the_bound(family, atol, past):
    model, data, point = small_model(family, weighted=True)
    if past:
        other = GroupPosterior(*(part + 0.1 for part in point.parameters))
        model.past = Past.of(other)
    gradient = model.gradient(point, evaluate(model, data, point)[1])
    numeric = np.empty_like(gradient)
    for i in range(gradient.size):
        step = np.zeros(gradient.size)
        step[i] = 1e-5
        up, down = (
            evaluate(model, data, model.move(point, s))[0] for s in (step, -step)
        )
        numeric[i] = (up - down) / 2e-5
    np.testing.assert_allclose(gradient, numeric, atol=atol)


def test_bound_is_an_average_over_the_posterior():
    """Of log p(y, Z, mu, tau) - log q, term by term by densities of draws."""
    model, data, point = small_model(Softmax(3, 40), weighted=False)
    q, prior = point.parameters, model.prior
    rng = np.random.default_rng(0)
    n = 20_000
    mu, tau, Z = q.sample(n, rng)
    X = np.column_stack([data.rows, np.ones(data.n_units)])
    z = np.einsum("nj,snjk->snk", X, Z[:, model.group])
    value = model.family.log_likelihood(z, model.y).sum(axis=1)
    value += norm.logpdf(Z, mu[:, None], tau[:, None]).sum(axis=(1, 2, 3))
    value += norm.logpdf(mu, 0.0, np.sqrt(prior.variance)).sum(axis=(1, 2))
    value += norm.logpdf(np.log(tau), 0.2, 0.8).sum(axis=(1, 2))
    centre = q.group_mean + q.shares * (mu - q.mean)[:, None]
    value -= norm.logpdf(Z, centre, np.exp(q.group_log_scale)).sum(axis=(1, 2, 3))
    value -= norm.logpdf(mu, q.mean, np.exp(q.log_scale)).sum(axis=(1, 2))
    scale = np.exp(q.log_tau_log_scale)
    value -= norm.logpdf(np.log(tau), q.log_tau, scale).sum(axis=(1, 2))
    error = value.std() / np.sqrt(n)
    assert abs(value.mean() - evaluate(model, data, point)[0]) < 4.0 * error < 0.5
    np.testing.assert_allclose(Z.var(axis=0), q.group_variance, rtol=0.06)


def test_metric_is_symmetric_and_positive():
    model, _, point = small_model(Normal(), weighted=True)
    size = sum(part.size for part in point.parameters)
    metric = np.array([model.precondition(point, row) for row in np.eye(size)])
    np.testing.assert_allclose(metric, metric.T, atol=1e-14)
    assert np.linalg.eigvalsh(metric).min() > 0.0


# The posterior


# Nodes err by more than such a tolerance, and a fit says so where it stalls.
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.StalledWarning")
def test_one_group_with_a_known_scale_is_a_mean_field(monkeypatch):
    """Its coefficients have the prior N(0, 1 + 1), and the mean its exact posterior."""
    monkeypatch.setattr(_model_families, "MOST_REFINED", 0)  # the same nodes for both
    X, y, _, _ = rows(150, 1)
    one = HierarchicalSoftmaxClassifier(
        prior_scale=1.0,
        intercept_prior_scale=1.0,
        population_scale_spread=1e-5,
        posterior="meanfield",
        tol=1e-6,
    )
    with pytest.warns(FewGroupsWarning, match="no groups.*BayesianLogisticRegression"):
        one.fit(X, y)
    other = BayesianLogisticRegression(
        np.sqrt(2.0),
        intercept_prior_scale=np.sqrt(2.0),
        posterior="meanfield",
        tol=1e-7,
    ).fit(X, y)
    assert one.elbo_ == pytest.approx(other.elbo_, abs=2e-3)
    # The nodes of the two err by as much, and in other ways; deviations are 0.3.
    np.testing.assert_allclose(one.group_coef_[0], other.coef_, atol=5e-3)
    np.testing.assert_allclose(one.group_coef_std_[0], other.coef_std_, rtol=5e-3)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=2e-3)


@pytest.fixture(scope="module", params=POSTERIORS)
def fitted(request):
    X, y, group, Z = rows(3000, 60, seed=3)
    model = HierarchicalSoftmaxClassifier(posterior=request.param)
    return model.fit(X, y, groups=group), X, y, group, Z


def test_groups_are_recovered_and_intervals_cover(fitted):
    model, _, _, group, Z = fitted
    # Logits are known up to a constant: compare the differences of classes.
    truth = Z[:, :2] - Z[:, :2].mean(axis=2, keepdims=True)
    draws = model.sample_posterior(400, random_state=0)["group_coef"].swapaxes(2, 3)
    draws = draws - draws.mean(axis=3, keepdims=True)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    covered = np.mean((low < truth) & (truth < high))
    assert 0.90 < covered < 0.99
    means = draws.mean(axis=0)
    assert np.corrcoef(means.ravel(), truth.ravel())[0, 1] > 0.9
    assert model.converged_ and np.array_equal(
        model.n_group_samples_, np.bincount(group)
    )
    assert np.all(np.diff(model.history_["objective"]) > -1e-6)


def test_groups_beat_one_set_of_coefficients(fitted):
    model, X, y, group, _ = fitted
    new = rows(3000, 60, seed=3)[0]
    assert model.score(X, y, groups=group) > model.score(X, y) + 0.05
    p = model.predict_proba(new, groups=group)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    by_draws = model.predict_proba(new, groups=group, method="mc")
    np.testing.assert_allclose(p, by_draws, atol=0.05)
    sure = model.predict_proba(new, groups=group, method="plugin")
    assert sure.max(axis=1).mean() > p.max(axis=1).mean()


def test_an_unseen_group_is_the_populations(fitted):
    model, X = fitted[:2]
    p = model.predict_proba(X[:5], groups=np.full(5, 999))
    np.testing.assert_array_equal(p, model.predict_proba(X[:5]))
    mu, tau, _ = model.posterior_.sample(4000, np.random.default_rng(0))
    Z = mu + tau * np.random.default_rng(1).standard_normal(mu.shape)
    z = np.column_stack([X[:5], np.ones(5)]) @ Z
    np.testing.assert_allclose(p, softmax(z, axis=2).mean(axis=0), atol=0.03)
    # A group of which little is known is between its rows and the population.
    assert model.group_coef_std_.max() < np.sqrt(model.posterior_.new_variance).max()


def test_draws_have_the_moments_of_the_attributes(fitted):
    model = fitted[0]
    draws = model.sample_posterior(2000, groups=[3, 5], random_state=0)
    assert draws["group_intercept"].shape == (2000, 2, 3)
    std = model.group_coef_std_[[3, 5]]
    centre = model.group_coef_[[3, 5]]
    assert abs(draws["group_coef"].mean(axis=0) - centre).max() < 0.12 * std.max()
    np.testing.assert_allclose(draws["group_coef"].std(axis=0), std, rtol=0.08)
    mean = draws["population_mean"].mean(axis=0)
    np.testing.assert_allclose(mean, model.population_mean_, atol=0.05)
    scale = np.median(draws["population_scale"], axis=0)
    np.testing.assert_allclose(scale, model.population_scale_, rtol=0.05)
    with pytest.raises(ValueError, match="not in the fit: \\[999\\]"):
        model.sample_posterior(groups=[999])


def test_new_labels_are_as_frequent_as_they_are_probable(fitted):
    model, X, _, group, _ = fitted
    ids = np.where(np.arange(30) % 3 == 0, 999, group[:30])
    labels = model.sample_predictive(X[:30], 6000, groups=ids, random_state=0)
    assert labels.shape == (6000, 30)
    found = (labels[:, :, None] == model.classes_).mean(axis=0)
    np.testing.assert_allclose(found, model.predict_proba(X[:30], ids), atol=0.05)
    again = model.sample_predictive(X[:30], 6000, groups=ids, random_state=0)
    np.testing.assert_array_equal(again, labels)
    # Rows of a group share its coefficients: of one that is poorly known they agree.
    twice = model.sample_predictive(X[[0, 0]], 4000, groups=[999, 999], random_state=1)
    p = model.predict_proba(X[:1], [999])[0]
    assert np.mean(twice[:, 0] == twice[:, 1]) > p @ p + 0.05


# What a user meets


def attributes(model):
    return {
        name: value
        for name, value in vars(model).items()
        if name.endswith("_") and isinstance(value, np.ndarray)
    }


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_order_of_rows_and_threads_do_not_matter(posterior):
    X, y, group, _ = rows(n_groups=150 if posterior == "nested" else 20)
    model = HierarchicalSoftmaxClassifier(posterior=posterior, tol=1e-5, n_jobs=1)
    model.fit(X, y, group)
    again = clone(model).set_params(n_jobs=3).fit(X, y, group)
    for name, value in attributes(model).items():
        np.testing.assert_array_equal(value, getattr(again, name))
    order = np.random.default_rng(0).permutation(len(X))
    mixed = clone(model).fit(X[order], y[order], group[order])
    np.testing.assert_allclose(mixed.group_coef_, model.group_coef_, atol=5e-3)
    doubled = clone(model).fit(X, y, group, sample_weight=np.full(len(X), 2.0))
    twice = clone(model).fit(*(np.concatenate([a, a]) for a in (X, y, group)))
    np.testing.assert_allclose(doubled.group_coef_, twice.group_coef_, atol=5e-3)


def weightless_rows():
    """Rows, some without weight: a far one, and all of the groups 3 and 11."""
    X, y, group, _ = rows(400, 12)
    weight = np.where(np.isin(group, (3, 11)), 0.0, 1.0)
    weight[::7] *= 2.0
    far = np.flatnonzero(group == 5)[0]
    X[far], weight[far] = 1e6, 0.0
    return X, y, group, weight


def assert_as_if_removed(weighted, removed, X):
    assert weighted.posterior_kind_ == removed.posterior_kind_
    assert weighted.groups_.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    np.testing.assert_array_equal(weighted.n_group_samples_, removed.n_group_samples_)
    for name in ("population_mean_", "population_scale_", "population_log_scale_std_"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(removed, name))
    assert weighted.objective_ == pytest.approx(removed.objective_)
    for group in (5, 3):  # of the latter nothing is known but the population
        p = weighted.predict_proba(X, np.full(len(X), group))
        np.testing.assert_allclose(p, removed.predict_proba(X, np.full(len(X), group)))
    np.testing.assert_allclose(p, weighted.predict_proba(X))


@pytest.mark.parametrize("posterior", ["auto", *POSTERIORS])
def test_rows_of_weight_zero_are_as_if_removed(posterior):
    X, y, group, weight = weightless_rows()
    kept = weight > 0.0
    removed = HierarchicalSoftmaxClassifier(posterior=posterior)
    weighted = clone(removed).fit(X, y, group, sample_weight=weight)
    removed.fit(X[kept], y[kept], group[kept], sample_weight=weight[kept])
    assert_as_if_removed(weighted, removed, X[1:50])
    da = pytest.importorskip("dask.array")
    of_dask = [
        da.from_array(part, chunks=((40,) * 10, -1)[: part.ndim]) for part in (X, y)
    ]
    remote = clone(removed).fit(*of_dask, group, sample_weight=weight)
    assert_as_if_removed(remote, removed, X[1:50])


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_rows_of_weight_zero_are_as_if_removed_from_a_stream(posterior):
    X, y, group, weight = weightless_rows()
    removed = HierarchicalSoftmaxClassifier(posterior=posterior)
    weighted = clone(removed)
    for batch in np.array_split(np.arange(400), 4):
        given = batch[weight[batch] > 0.0]
        for model, some in ((weighted, batch), (removed, given)):
            weights = {"sample_weight": weight[some]}
            model.partial_fit(X[some], y[some], [0, 1, 2], group[some], **weights)
    assert_as_if_removed(weighted, removed, X[1:50])


@pytest.mark.parametrize("remote", [False, True])
def test_heavy_rows_count_in_the_choice_of_the_posterior(remote):
    """As often as they are there: of many light rows a far one says little."""
    X, y, group, _ = rows(200, 5)
    X[0], weight = 2e4, np.full(200, 9.0)
    given = X
    if remote:
        given = pytest.importorskip("dask.array").from_array(X, chunks=(50, -1))
    model = HierarchicalSoftmaxClassifier(prior_scale=1.0, max_iter=1)
    with pytest.warns(ConvergenceWarning):
        model.fit(given, y, group, sample_weight=weight)
    assert model.posterior_kind_ == "meanfield"
    weight[0] = 0.1
    with pytest.warns(ConvergenceWarning):
        model.fit(given, y, group, sample_weight=weight)
    assert model.posterior_kind_ == "nested"


def test_ids_may_be_a_column_of_a_frame():
    pd = pytest.importorskip("pandas")
    X, y, group, _ = rows(300, 5)
    names = np.array(["ann", "bea", "cem", "dan", "eva"])[group]
    frame = pd.DataFrame({"a": X[:, 0], "user": names, "b": X[:, 1]})
    model = HierarchicalSoftmaxClassifier("user").fit(frame, y)
    beside = HierarchicalSoftmaxClassifier().fit(X, y, groups=names)
    np.testing.assert_array_equal(model.group_coef_, beside.group_coef_)
    assert list(model.groups_) == ["ann", "bea", "cem", "dan", "eva"]
    np.testing.assert_array_equal(model.predict(frame), beside.predict(X, names))
    assert model.score(frame, y) == beside.score(X, y, names)
    assert list(model.summary().index[:2]) == ["0, a", "0, b"]
    assert "user" not in " ".join(model.summary().index)
    assert cross_val_score(model, frame, y, cv=3).mean() > 0.5
    number = HierarchicalSoftmaxClassifier(2).fit(np.column_stack([X, group]), y)
    np.testing.assert_array_equal(number.group_coef_, model.group_coef_)
    with pytest.raises(ValueError, match="given twice"):
        model.fit(frame, y, groups=names[::-1])
    with pytest.raises(ValueError, match="names a column of X"):
        HierarchicalSoftmaxClassifier("artist").fit(frame, y)


def test_groups_are_routed():
    X, y, group, _ = rows(300, 6)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            HierarchicalSoftmaxClassifier(),
            {"population_scale": [0.5]},
            cv=GroupKFold(3),
        )
        search.fit(X, y, groups=group)
    assert len(search.best_estimator_.groups_) == 6


def test_float32_and_pickle():
    X, y, group, _ = rows(300, 6)
    model = HierarchicalSoftmaxClassifier(tol=1e-5).fit(X, y, group)
    single = clone(model).fit(X.astype(np.float32), y, group)
    assert single.group_coef_.dtype == single.population_scale_.dtype == np.float32
    np.testing.assert_allclose(single.group_coef_, model.group_coef_, atol=5e-3)
    loaded = pickle.loads(pickle.dumps(model))
    p = model.predict_proba(X, group)
    np.testing.assert_array_equal(loaded.predict_proba(X, group), p)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("scale", ["learn", 1.0])
def test_warm_start_is_near_the_end(posterior, scale):
    X, y, group, _ = rows()
    model = HierarchicalSoftmaxClassifier(
        prior_scale=scale, posterior=posterior, warm_start=True
    )
    model.fit(X, y, group)
    cold, passes = model.n_iter_, model.history_["passes"][-1]
    objective = model.objective_
    model.fit(X, y, group)
    if scale == "learn":  # most steps were those of other widths
        assert model.history_["passes"][-1] <= passes // 2
    else:
        assert model.n_iter_ <= cold // 3
    assert model.objective_ == pytest.approx(objective, abs=0.1)
    model.fit(X, y, group + 1)  # one group less, and a new one
    assert model.converged_


def test_without_intercept_the_intercepts_are_zero():
    X, y, group, _ = rows(200, 4)
    model = HierarchicalSoftmaxClassifier(fit_intercept=False).fit(X, y, group)
    assert (
        not model.group_intercept_.any() and not model.population_intercept_mean_.any()
    )
    assert not model.sample_posterior(2)["group_intercept"].any()
    assert len(model.summary()) == 6 if hasattr(model.summary(), "index") else True


# Nodes err by more than such a tolerance, and a fit says so where it stalls.
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.StalledWarning")
def test_a_constant_column_is_left_to_the_prior():
    X, y, group, _ = rows(200, 4)
    X = np.column_stack([X, np.zeros(len(X))])
    model = HierarchicalSoftmaxClassifier(prior_scale=1.0, tol=1e-6).fit(X, y, group)
    assert abs(model.group_coef_[:, :, 2]).max() < 1e-3
    np.testing.assert_allclose(model.population_mean_std_[:, 2], 1.0, rtol=0.01)


def test_arviz_gets_draws():
    model, X, y = None, *rows(60, 3)[:2]
    ids = rows(60, 3)[2]
    X = np.column_stack([ids, X])
    with pytest.warns(FewGroupsWarning, match="3 groups, too few"):
        model = HierarchicalSoftmaxClassifier(0).fit(X, y)
    draws = model._draws(X, y, 7, np.random.RandomState(0))
    assert draws.log_likelihood.shape == draws.predictive.shape == (7, 60)
    assert draws.posterior["group_coef"].shape == (7, 3, 3, 2)
    assert draws.coords["feature"] == ["x1", "x2"]
    with pytest.raises(ValueError, match="to_arviz"):
        unknown = X.copy()
        unknown[0, 0] = 77
        model._draws(unknown, y, 2, np.random.RandomState(0))


@pytest.mark.filterwarnings("error")
def test_quadrature_is_refined_until_it_errs_little(monkeypatch):
    X, y, group, _ = rows(300, 60)

    def fitted():
        model = HierarchicalSoftmaxClassifier(
            prior_scale=1.0,
            population_scale=3.0,
            intercept_prior_scale=10.0,
            posterior="meanfield",
        )
        return model.fit(X, y, group)

    def exact(model):
        order = np.argsort(group, kind="stable")
        data = as_source(X[order])
        finest = HierarchicalModel(
            Softmax(3, 0, 1 << 13, by_root=False),
            y[order].astype(np.int32),
            group[order],
            60,
            model._last_prior(),
            data.total_weight,
        )
        return evaluate(finest, data, Point(model.posterior_))[0]

    refined = fitted()
    monkeypatch.setattr(HierarchicalModel, "refined", lambda self, point: None)
    plain = fitted()
    assert np.isnan(plain.elbo_error_) and plain.n_iter_ < refined.n_iter_
    assert 0.0 < refined.elbo_error_ < 0.05 < abs(plain.elbo_ - exact(plain))
    assert abs(refined.elbo_ - exact(refined)) < 4.0 * refined.elbo_error_


def test_out_of_steps_warns_with_what_is_left():
    X, y, group, _ = rows()
    with pytest.warns(ConvergenceWarning, match="nats are left to gain"):
        model = HierarchicalSoftmaxClassifier(prior_scale=1.0, max_iter=2)
        model.fit(X, y, group)
    assert not model.converged_ and model.n_iter_ == 2


@pytest.mark.parametrize("state", ["new", "fitted"])
def test_bad_input_is_explained_and_leaves_no_trace(state):
    X, y, group, _ = rows(100, 4)
    model = HierarchicalSoftmaxClassifier()
    if state == "fitted":
        model.fit(X, y, group)
    untouched = Untouched(model)
    missing = X.copy()
    missing[7, 1] = np.nan
    unnamed = group.astype(float)
    unnamed[3] = np.nan
    mixed = np.array(["a", 1] * 50, dtype=object)
    for args, message in [
        ((X, np.zeros(100), group), "only one class"),
        ((missing, y, group), "NaN"),
        ((X, y, group[:50]), "one id for each of the 100 rows"),
        ((X, y, unnamed), "no id in row 3"),
        ((X, y, mixed), "several types"),
        ((X, y[:50], group), "inconsistent"),
        ((X, y, group, -np.ones(100)), "sample_weight"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(*args)
        untouched.check()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prior_scale": 0.0}, "prior_scale"),
        ({"prior_scale": [1.0, 1.0, 1.0]}, "2 features"),
        ({"prior_scale": "auto"}, "must be 'learn', a positive"),
        ({"population_scale": "learn"}, "population_scale"),
        ({"population_scale": -1.0}, "population_scale"),
        ({"population_scale_spread": 0.0}, "population_scale_spread"),
        ({"groups": np.arange(100)}, "name or number of a column"),
        ({"groups": 5}, "2 columns"),
    ],
)
def test_bad_parameters(params, message):
    X, y, group, _ = rows(100, 4)
    with pytest.raises(ValueError, match=message):
        HierarchicalSoftmaxClassifier(**params).fit(X, y, group)


def test_what_answers_refuse():
    X, y, group, _ = rows(100, 4)
    model = HierarchicalSoftmaxClassifier()
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y, group)
    with pytest.raises(ValueError, match="one id for each"):
        model.predict(X, group[:3])
    with pytest.raises(ValueError, match="method"):
        model.predict_proba(X, group, method="guess")


# Streams


def stream_rows(n=600, n_groups=12):
    rng = np.random.default_rng(5)
    group = rng.integers(n_groups, size=n)
    X = rng.normal(size=(n, 2))
    taste = [1.0, -0.5] + 0.7 * rng.normal(size=(n_groups, 2))
    logit = np.sum(X * taste[group], axis=1)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-logit))).astype(int), group


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_stream_is_near_a_fit_to_all_rows(posterior):
    """Its groups may be new, have no rows in a batch, and be seen again."""
    X, y, group = stream_rows()
    order = np.argsort(group >= 8, kind="stable")  # the last groups come later
    whole = HierarchicalSoftmaxClassifier(posterior=posterior).fit(X, y, groups=group)
    stream = clone(whole)
    for some in np.array_split(order, 3):
        stream.partial_fit(X[some], y[some], [0, 1], groups=group[some])
        stream = pickle.loads(pickle.dumps(stream))
    np.testing.assert_array_equal(stream.groups_, whole.groups_)
    np.testing.assert_array_equal(stream.n_group_samples_, whole.n_group_samples_)
    for name in ("group_coef", "population_mean"):
        far = getattr(stream, name + "_") - getattr(whole, name + "_")
        std = getattr(whole, name + "_std_")
        assert abs(far / std).max() < 0.3
        np.testing.assert_allclose(getattr(stream, name + "_std_"), std, rtol=0.1)
    np.testing.assert_allclose(
        stream.population_scale_, whole.population_scale_, rtol=0.15
    )
    assert hasattr(whole, "elbo_") == (posterior == "meanfield")
    assert not hasattr(stream, "elbo_")


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.OneClassWarning")
@pytest.mark.parametrize(
    ("posterior", "worse"), [("nested", 0.03), ("meanfield", 0.06)]
)
@pytest.mark.parametrize("begun", [0, 200])
def test_a_stream_may_be_sorted_by_class(posterior, worse, begun, monkeypatch):
    """One ended .8 to 1.1 nats a row above a fit."""
    monkeypatch.setattr(_memory, "KEPT", 0)  # a sample of each group alone
    X, y, group, _ = rows(900, 12)
    whole = HierarchicalSoftmaxClassifier(posterior=posterior).fit(X, y, group)
    stream = clone(whole)
    if begun:
        stream.fit(X[:begun], y[:begun], group[:begun])
    order = np.argsort(y[begun:], kind="stable") + begun
    for some in np.array_split(order, 15):
        stream.partial_fit(X[some], y[some], [0, 1, 2], groups=group[some])
    kept = stream._memory.kept
    assert kept.n_seen == 900
    most = np.bincount(group).clip(max=4 * stream.posterior_.mean.size)
    np.testing.assert_array_equal(np.bincount(kept.groups), most)
    losses = [log_loss(y, m.predict_proba(X, group)) for m in (whole, stream)]
    assert losses[1] < losses[0] + worse


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_rows_taken_out_of_the_past_and_seen_again_change_little(
    posterior, monkeypatch
):
    """Where a sample has more curvature than all there is nothing left to take out."""
    monkeypatch.setattr(_memory, "FAR", -1.0)  # all groups move
    monkeypatch.setattr(_memory, "GROWTH", np.inf)
    monkeypatch.setattr(_memory, "KEPT", 0)
    X, y, group = stream_rows()
    model = HierarchicalSoftmaxClassifier(posterior=posterior, tol=1e-4)
    model.partial_fit(X, y, [0, 1], groups=group)
    before, objective = model.group_coef_, model.objective_
    std, scale = model.group_coef_std_, model.population_scale_
    model.partial_fit(X[:5], y[:5], groups=group[:5], sample_weight=np.full(5, 1e-9))
    assert len(model._memory.kept.rows) == 24 * 12  # of 600
    assert abs((model.group_coef_ - before) / std).max() < 0.3
    np.testing.assert_allclose(model.group_coef_std_, std, rtol=0.15)
    np.testing.assert_allclose(model.population_scale_, scale, rtol=0.1)
    assert model.objective_ == pytest.approx(objective, abs=5.0)


def test_a_stream_with_few_rows_is_a_fit_to_them():
    """Of whatever kind the first are, and a pickle goes on like the stream."""
    X, y, group = stream_rows(320)
    order = np.argsort(group, kind="stable")
    whole = HierarchicalSoftmaxClassifier(posterior="meanfield").fit(X, y, group)
    one = clone(whole)
    for some in np.split(order, [10, 20, 40, 80, 160]):
        again = pickle.loads(pickle.dumps(one))
        for stream in (one, again):
            stream.partial_fit(X[some], y[some], [0, 1], groups=group[some])
        np.testing.assert_array_equal(again.group_coef_, one.group_coef_)
    np.testing.assert_allclose(one.group_coef_, whole.group_coef_, atol=1e-10)
    np.testing.assert_allclose(one.prior_scale_, whole.prior_scale_)
    assert one.intercept_prior_scale_ == whole.intercept_prior_scale_
    # Rows of a fit do not travel, and its posterior is what a stream goes on from.
    fitted = pickle.loads(pickle.dumps(whole))
    fitted.partial_fit(X[:50], y[:50], groups=group[:50])
    assert fitted._memory.kept.n_seen == 50
    assert fitted.n_group_samples_.sum() == 370


@pytest.mark.parametrize(
    ("posterior", "far", "nats"), [("nested", 0.05, 0.5), ("meanfield", 1e-3, 1e-4)]
)
def test_rows_without_weight_change_nothing(posterior, far, nats):
    """What is kept of earlier rows has the optimum where it was, and its height.

    But for the square of what leads from modes to means, which stands for skewness.
    """
    X, y, group = stream_rows()
    model = HierarchicalSoftmaxClassifier(
        prior_scale=1.0, posterior=posterior, tol=1e-6
    )
    model.fit(X, y, groups=group)
    before, objective = model.group_coef_, model.objective_
    std, scale = model.group_coef_std_, model.population_scale_
    weight = np.where(np.arange(20) < 2, 1e-9, 0.0)
    model.partial_fit(X[:20], y[:20], groups=group[:20], sample_weight=weight)
    np.testing.assert_allclose(model.group_coef_, before, atol=far)
    np.testing.assert_allclose(model.group_coef_std_, std, rtol=far)
    np.testing.assert_allclose(model.population_scale_, scale, rtol=far)
    assert model.objective_ == pytest.approx(objective, abs=nats)


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")
def test_the_past_has_the_gradient_of_its_expectation():
    X, y, group = stream_rows(200, 3)
    model = HierarchicalSoftmaxClassifier(posterior="meanfield")
    q = model.fit(X, y, groups=group).posterior_
    past = Past.of(q)
    rng, h = np.random.default_rng(0), 1e-5
    moved = q._replace(group_mean=q.group_mean + rng.normal(size=q.group_mean.shape))
    direction = rng.normal(size=q.group_mean.shape)
    ahead, behind = (
        past.expected(moved._replace(group_mean=moved.group_mean + s * direction))
        for s in (h, -h)
    )
    found = np.sum(past.slope(moved) * direction)
    assert (ahead - behind) / (2.0 * h) == pytest.approx(found)
    assert past.expected(q) == pytest.approx(
        -0.5 * np.sum(past.curvature * q.group_variance)
    )


def test_wrong_batches_of_a_stream():
    X, y, group = stream_rows(100, 3)
    model = HierarchicalSoftmaxClassifier()
    with pytest.raises(ValueError, match="first call"):
        model.partial_fit(X, y, groups=group)
    model.partial_fit(X, y, [0, 1], groups=group)
    untouched = Untouched(model)
    for params, message in [
        ({"groups": None}, "this one has none"),
        ({"groups": group.astype(str)}, "strings, as .*Convert them"),
        ({"groups": group, "classes": [0, 1, 2]}, "not the same"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(X, y, **params)
        untouched.check()
    model.set_params(fit_intercept=False)
    with pytest.raises(ValueError, match="fit_intercept has changed"):
        model.partial_fit(X, y, groups=group)
    with pytest.warns(FewGroupsWarning, match="no groups"):
        alone = HierarchicalSoftmaxClassifier().fit(X, y)
    alone.partial_fit(X, y)
    assert alone.n_group_samples_.tolist() == [200]
    with pytest.raises(ValueError, match="the first had none"):
        alone.partial_fit(X, y, groups=group)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_blas_has_one_thread_in_a_fit(method, monkeypatch):
    """Of long vectors the threads of one BLAS would wait for those of another."""
    seen = []

    class Spying(solvers.QuasiNewton):
        def epoch(self, *given):
            pools = threadpool_info()
            seen.extend(p["num_threads"] for p in pools if p["user_api"] == "blas")
            return super().epoch(*given)

    monkeypatch.setattr(_estimator.solvers, "QuasiNewton", Spying)
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(60, 2)), np.arange(60) % 3, np.arange(60) % 5
    known = {"classes": np.arange(3)} if method == "partial_fit" else {}
    with threadpool_limits(2, "blas"):
        before = [p["num_threads"] for p in threadpool_info()]
        fit = getattr(HierarchicalSoftmaxClassifier(), method)
        fit(X, y, groups=groups, **known)
        assert [p["num_threads"] for p in threadpool_info()] == before
    assert seen and set(seen) == {1}


@pytest.mark.parametrize(
    "model", [HierarchicalSoftmaxClassifier(), BayesianLogisticRegression(groups=0)]
)
def test_targets_are_asked_for_as_scikit_learn_does(model):
    X = np.arange(12.0).reshape(6, 2)
    with pytest.raises(ValueError, match="requires y to be passed, but the target"):
        model.fit(X, None)
