"""The nested posterior of groups: kernels, arrow, marginal, slope, then intervals."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from skvrem import BayesianLogisticRegression, HierarchicalSoftmaxClassifier
from skvrem.vi.gaussian.nested import _model as nested
from skvrem.vi.gaussian.nested._model_drawn import Drawn
from skvrem.vi.gaussian.nested._model_modes import Quadratic
from skvrem.vi.hierarchical import _model_nested
from skvrem.vi.hierarchical._model import HierarchicalPrior
from skvrem.vi.hierarchical._model_nested import (
    NestedSoftmax,
    SoftmaxRows,
    predictors,
)

M, N_CLASSES = 4, 3

# Of truths that are drawn from the prior, some scales are large.
pytestmark = pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")


def small(weighted=True, past=False, d=2, p=3, seed=0):
    """A model of few rows, and coefficients (2, M, p k) of two points."""
    rng = np.random.default_rng(seed)
    bounds = np.array([0, 9, 9, 20, 31])  # one group has no rows
    X = rng.normal(size=(31, d))
    y = rng.integers(N_CLASSES, size=31).astype(np.int32)
    weight = rng.uniform(0.5, 2.0, 31) if weighted else np.empty(0)
    prior = HierarchicalPrior(rng.uniform(0.5, 2.0, (p, 1)), 0.2, 0.8)
    J = p * N_CLASSES
    if past:
        root = 0.3 * rng.normal(size=(M, J, J))
        at, slope = rng.normal(size=(2, M, J))
        curvature = root @ root.swapaxes(1, 2)
        none = np.zeros(0), np.zeros((M, J, 0)), np.zeros((0, 0))
        past = Quadratic(at, none[0], -1.5, slope, curvature, *none)
    rows = SoftmaxRows(X, y, weight, bounds, (len(prior.variance), N_CLASSES))
    model = NestedSoftmax(rows, len(bounds) - 1, prior, past or None)
    return model, rng.normal(size=(2, M, J)), rng


def likelihood(model, groups):
    """Return log p(y | Z) of one point, from its definition."""
    Z = groups.reshape(M, *model.shape)
    of = model.likelihood
    X = np.column_stack([of.rows, np.ones(len(of.rows))])[:, : model.shape[0]]
    place = np.repeat(np.arange(M), np.diff(of.bounds))
    logs = log_softmax(np.einsum("nj,njk->nk", X, Z[place]), axis=1)
    own = logs[np.arange(len(X)), of.y]
    total = own @ (of.weight if of.weight.size else np.ones(len(X)))
    if model.past is not None:
        away = groups - model.past.at
        total += model.past.level + np.sum(model.past.gradient * away)
        total -= 0.5 * np.einsum("mi,mij,mj->", away, model.past.hessian, away)
    return total


def local(model, groups):
    """Return what a model's rows, and its past, say of groups (2, M, J)."""
    J = groups.shape[2]
    return model._local(np.zeros((len(groups), J)), np.zeros((len(groups), J)), groups)


def differences(function, x, h=1e-5):
    """Return central differences along the last axis of x, of all else at once."""
    out = []
    for j in range(x.shape[-1]):
        step = np.zeros(x.shape[-1])
        step[j] = h
        out.append((function(x + step) - function(x - step)) / (2.0 * h))
    return np.stack(out, axis=-1)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize(("weighted", "p"), [(True, 3), (False, 2)])
def test_likelihood_its_gradient_and_hessian(weighted, p, past):
    model, groups, _ = small(weighted, past, p=p)
    value, gradient, hessian, *_ = local(model, groups)
    np.testing.assert_allclose(value, [likelihood(model, g) for g in groups])
    slopes = differences(lambda z: local(model, z).value, groups)
    np.testing.assert_allclose(gradient.sum(axis=1), slopes, atol=1e-6)
    curvature = -differences(lambda z: local(model, z).gradient, groups)
    np.testing.assert_allclose(hessian, curvature, atol=1e-6)


def test_skewness_is_the_gradient_of_a_trace():
    model, groups, rng = small()
    root = rng.normal(size=(*groups.shape, groups.shape[2]))
    covariance, of = root @ root.swapaxes(2, 3), model.likelihood
    out, _ = of.skewness(groups, np.zeros((2, 0)), covariance, None, None)

    def trace(z):
        return np.einsum("smij,smji->sm", covariance, local(model, z).hessian)

    np.testing.assert_allclose(out, differences(trace, groups), atol=1e-5)


def settled(model, log_tau):
    J = model.prior.variance.size
    start = np.zeros((len(log_tau), J)), np.zeros((len(log_tau), M, J))
    return model.settle(log_tau, *start)


@pytest.mark.parametrize("past", [False, True])
def test_the_arrow_is_the_inverse_of_the_whole_hessian(past):
    model, _, rng = small(past=past)
    J = model.prior.variance.size
    log_tau = 0.5 * rng.normal(size=(2, J))
    modes = settled(model, log_tau)
    for s in range(2):
        T = np.diag(np.exp(-2.0 * log_tau[s]))
        A = np.zeros(((M + 1) * J,) * 2)
        for m in range(M):
            own = slice(m * J, (m + 1) * J)
            A[own, own] = modes.local.hessian[s, m] + T
            A[own, M * J :] = A[M * J :, own] = -T
        A[M * J :, M * J :] = M * T + np.diag(1.0 / model.prior.variance)
        inverse = np.linalg.inv(A)
        np.testing.assert_allclose(modes.of_mean[s], inverse[M * J :, M * J :])
        for against in (0.0, 1.0):
            found = modes.covariances(against)[s, 2]
            pick = np.zeros((J, len(A)))
            pick[:, 2 * J : 3 * J] = np.eye(J)
            pick[:, M * J :] = -against * np.eye(J)
            np.testing.assert_allclose(found, pick @ inverse @ pick.T, atol=1e-12)
        b = rng.normal(size=len(A))
        ahead = np.broadcast_to(b[: M * J].reshape(M, J, 1), (2, M, J, 1))
        groups, mean = modes.solve(ahead, b[M * J :, None])
        x = np.concatenate([groups[s].ravel(), mean[s].ravel()])
        np.testing.assert_allclose(A @ x, b, atol=1e-9)
        # Newton's method has come to rest, and L is Laplace's.
        z, mu = modes.groups[s], modes.mean[s]
        pull = (z - mu) @ T
        np.testing.assert_allclose(modes.local.gradient[s], pull, atol=1e-4)
        np.testing.assert_allclose(
            pull.sum(axis=0), mu / model.prior.variance, atol=1e-4
        )
        away = (log_tau[s] - 0.2) / 0.8
        density = likelihood(model, z) - 0.5 * np.sum((z - mu) * pull)
        density -= M * log_tau[s].sum() + 0.5 * np.log(model.prior.variance).sum()
        density -= 0.5 * np.sum(mu**2 / model.prior.variance + away**2)
        marginal = density - 0.5 * np.linalg.slogdet(A)[1]
        assert modes.objective[s] == pytest.approx(marginal)


@pytest.mark.parametrize("past", [False, True])
def test_the_slope_is_that_of_the_marginal(past, monkeypatch):
    monkeypatch.setattr(nested, "SETTLED", 1e-15)
    model, _, rng = small(past=past)
    log_tau = 0.5 * rng.normal(size=(2, model.prior.variance.size))
    slope = model.slope(settled(model, log_tau))
    numeric = differences(lambda t: settled(model, t).objective, log_tau, 1e-4)
    np.testing.assert_allclose(slope, numeric, atol=1e-6)
    # Modes found at once, from elsewhere, are the same.
    modes = settled(model, log_tau[:1])
    (again,) = model._at(modes, log_tau[1:])
    np.testing.assert_allclose(model.slope(again)[0], slope[1], atol=1e-4)


def test_information_is_exact_where_rows_are_quadratic(monkeypatch):
    monkeypatch.setattr(nested, "APART", 1e-3)
    model, _, rng = small(past=True)
    model.likelihood.weight = np.zeros(len(model.likelihood.y))
    monkeypatch.setattr(nested, "SETTLED", 1e-15)
    modes = settled(model, 0.3 * rng.normal(size=(1, model.prior.variance.size)))
    T, one = modes.precision[0, 0], np.eye(model.prior.variance.size)
    # What it leaves out: squares that groups share through the population's means.
    K = modes.inverses[0] * T - one
    between = np.einsum("mij,jk,nlk->mnil", K, modes.of_mean[0], K)
    between[np.arange(M), np.arange(M)] = 0.0
    left_out = 2.0 * np.square(between).sum(axis=(0, 1)) * np.outer(T, T)
    exact = model.information(modes) - left_out
    np.testing.assert_allclose(exact, model._differences(modes), atol=1e-3)


def test_modes_that_rounding_hides_are_not_sought_for_long(monkeypatch):
    model, _, _ = small()
    log_tau, calls = np.zeros((1, model.prior.variance.size)), []
    local = model._local

    def noisy(*coefficients):
        # Whatever is looked at after the first is lower, as by rounding of large sums.
        calls.append(1)
        found = local(*coefficients)
        return found._replace(value=found.value - 1e3 * (len(calls) > 1))

    monkeypatch.setattr(model, "_local", noisy)
    modes = settled(model, log_tau)
    assert len(calls) == 1 + nested.HALVINGS
    assert np.isfinite(modes.objective).all()


def test_modes_move_as_they_are_told_to():
    model, _, rng = small()
    log_tau = 0.3 * rng.normal(size=(1, model.prior.variance.size))
    change = rng.normal(size=(log_tau.size, 1))
    moved, of_mean = settled(model, log_tau).response(change)
    ends = [settled(model, log_tau + h * change.T) for h in (1e-3, -1e-3)]
    groups = (ends[0].groups - ends[1].groups) / 2e-3
    mean = (ends[0].mean - ends[1].mean) / 2e-3
    np.testing.assert_allclose(moved[..., 0], groups, atol=2e-3)
    np.testing.assert_allclose(of_mean[..., 0], mean, atol=2e-3)


def rows(rng, n_groups, n=10, k=3, d=2):
    """Rows of a truth that is drawn from the prior: means, log scales, groups'."""
    mean, log_tau = rng.normal(size=(2, d, k))
    Z = mean + np.exp(log_tau) * rng.normal(size=(n_groups, d, k))
    group = np.repeat(np.arange(n_groups), n)
    X = rng.normal(size=(n * n_groups, d))
    z = np.einsum("nj,njk->nk", X, Z[group])
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return X, y, group, mean, log_tau, Z


def fitted(n_groups, seed=0, **params):
    X, y, group, *truth = rows(np.random.default_rng(seed), n_groups)
    given = {"prior_scale": 1.0, "fit_intercept": False, "posterior": "nested"}
    params = given | params
    model = HierarchicalSoftmaxClassifier(**params)
    return model.fit(X, y, groups=group), X, group, truth


def test_draws_of_scales_and_the_linear_form_agree_where_scales_are_known(monkeypatch):
    drawn = fitted(100)[0].posterior_
    monkeypatch.setattr(nested, "N_DRAWS", 1)
    linear = fitted(100)[0].posterior_
    deviations = np.sqrt(drawn.group_variance)
    assert abs((drawn.group_mean - linear.group_mean) / deviations).max() < 0.3
    ratio = np.sqrt(linear.group_variance) / deviations
    assert abs(np.log(ratio)).max() < 0.5 and abs(np.log(ratio)).mean() < 0.1
    np.testing.assert_allclose(drawn.covariance, linear.covariance, atol=0.02)
    sizes = deviations.reshape(100, -1, 1) * np.sqrt(np.diagonal(drawn.covariance))
    # Where a scale is near zero, coefficients turn as its logarithm does not: in few.
    assert abs((drawn.coupling - linear.coupling) / sizes).mean() < 0.02


def test_what_draws_add_is_what_it_leads_to():
    drawn, other = (fitted(12, seed)[0].posterior_.parts for seed in range(2))
    added = Drawn.of(drawn, other, 100)
    again = added.on(other)
    for name in ("groups", "of_groups", "mean", "scales", "covariance"):
        expected = getattr(drawn, name)
        np.testing.assert_allclose(getattr(again, name), expected, atol=1e-10)
    # What one Gaussian turns into is one.
    left = again.coupling @ np.linalg.solve(
        again.covariance, again.coupling.swapaxes(1, 2)
    )
    assert np.linalg.eigvalsh(again.of_groups - left).min() > -1e-10
    # Of other units, and with a group that is new.
    wider = added.spread(np.arange(1, 13), 13)
    np.testing.assert_array_equal(wider.groups[0], 0.0)
    np.testing.assert_array_equal(wider.of_groups[0], np.eye(6))
    np.testing.assert_array_equal(wider.of_groups[1:], added.of_groups)


@pytest.mark.parametrize("kind", ["softmax", "logistic"])
def test_batches_of_a_stream_keep_what_draws_have_added(kind, monkeypatch):
    """A pass in batches of ten cost 150 fits, nearly all of them draws."""
    X, y, group, *_ = rows(np.random.default_rng(0), 20, n=20)
    k, turn = 3, np.random.default_rng(1).permutation(400)
    if kind == "logistic":
        k, y = 2, np.minimum(y, 1)
    drawn, mixture = [], nested.NestedModel._mixture
    monkeypatch.setattr(
        nested.NestedModel,
        "_mixture",
        lambda self, *given: drawn.append(1) or mixture(self, *given),
    )

    def stream():
        model = HierarchicalSoftmaxClassifier()
        if kind == "logistic":
            model = BayesianLogisticRegression(varying="all")
        for some in np.array_split(turn, 40):
            model.partial_fit(X[some], y[some], np.arange(k), groups=group[some])
        return model

    model = stream()
    assert 1 < len(drawn) < 15
    monkeypatch.setattr(Drawn, "is_of", lambda self, n_seen: False)
    drawn.clear()
    other = stream()
    assert len(drawn) == 40
    # What of coefficients rows can tell: not a shift of all classes'.
    one, both = (m.predict_proba(X, groups=group) for m in (model, other))
    assert abs(one - both).mean() < 0.01


def test_draws_have_the_covariances():
    q = fitted(12)[0].posterior_
    means, scales, groups = q.sample(40_000, np.random.default_rng(0))
    J = q.mean.size
    u = np.hstack([part.reshape(-1, J) for part in (means, np.log(scales))])
    z = groups[:, 3].reshape(-1, J)
    both = np.cov(np.hstack([u, z]).T)
    sizes = np.sqrt(np.diagonal(both))
    expected = np.block(
        [[q.covariance, q.coupling[3].T], [q.coupling[3], q.group_covariance[3]]]
    )
    np.testing.assert_allclose(
        both / np.outer(sizes, sizes), expected / np.outer(sizes, sizes), atol=0.03
    )
    np.testing.assert_allclose(groups.mean(axis=0), q.group_mean, atol=0.1)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_predictors_have_the_variances_of_differences(k):
    rng = np.random.default_rng(k)
    X, place = rng.normal(size=(5, 2)), np.array([0, 1, 1, 0, 1])
    # Of classes that go together, beside a shift of all of them, without probabilities.
    within = rng.normal(size=(k, k))
    within = within @ within.T + 3.0
    root = rng.normal(size=(2, 3, 3))
    covariance = np.kron(root @ root.swapaxes(1, 2), within)
    mean = rng.normal(size=(2, 3, k))

    class Batch:
        rows, ids = X, np.arange(5)

    a, half = predictors(mean, covariance, Batch, place)
    x = np.column_stack([X, np.ones(5)])
    np.testing.assert_allclose(a, np.einsum("nj,njk->nk", x, mean[place]))
    size = np.einsum("nj,njl,nl->n", x, (root @ root.swapaxes(1, 2))[place], x)
    found = np.tril(half.reshape(5, k, k))
    V = found @ found.swapaxes(1, 2)
    contrasts = np.eye(k)[:-1] - np.eye(k)[-1]
    np.testing.assert_allclose(
        contrasts @ V @ contrasts.T,
        size[:, None, None] * (contrasts @ within @ contrasts.T),
        rtol=1e-9,
    )


def test_probabilities_are_those_of_draws():
    model, X, group, _ = fitted(12)
    draws = model.sample_posterior(4000, random_state=0)["group_coef"]
    z = np.einsum("nj,snkj->snk", X, draws[:, group])
    expected = softmax(z, axis=2).mean(axis=0)
    found = model.predict_proba(X, groups=group)
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert abs(found - expected).mean() < 0.006


def test_middle_classes_are_those_of_draws():
    """Of ordered classes predictors go together, whose covariances are not small."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.digitize(X[:, 0] + 0.2 * rng.normal(size=60), [-0.7, 0.0, 0.7])
    model = HierarchicalSoftmaxClassifier().fit(X, y)
    draws = model.sample_posterior(20_000, random_state=0)
    rows = 2.0 * rng.normal(size=(100, 2))
    z = rows @ draws["group_coef"][:, 0].swapaxes(1, 2)
    z += draws["group_intercept"][:, 0][:, None]
    expected = softmax(z, axis=2).mean(axis=0)
    np.testing.assert_allclose(model.predict_proba(rows), expected, atol=0.025)


def test_intervals_hold():
    """Of truths drawn from the prior; independent coefficients hold half as many."""
    covered = []
    for seed in range(40):
        model, _, _, (mean, log_tau, Z) = fitted(12, seed)
        q = model.posterior_
        pairs = (
            (mean - q.mean, np.exp(q.log_scale)),
            (log_tau - q.log_tau, np.exp(q.log_tau_log_scale)),
            (Z - q.group_mean, np.sqrt(q.group_variance)),
        )
        covered.append([np.mean(abs(away) < 1.96 * sd) for away, sd in pairs])
    means, scales, groups = np.mean(covered, axis=0)
    assert means > 0.92 and scales > 0.87 and 0.93 < groups < 0.975


def test_a_fit_ends_where_nothing_is_left():
    ends = [fitted(30, tol=tol)[0] for tol in (1e-2, 1e-6)]
    near, exact = (model.objective_ for model in ends)
    assert 0.0 <= exact - near < 0.02
    assert ends[0].converged_ and ends[0].n_iter_ < ends[1].n_iter_ < 60
    # Steps that are told of the information need few evaluations.
    assert ends[0].history_["passes"][-1] < 2.0 * ends[0].n_iter_ + 2.0
    # The marginal likelihood is L with the scales integrated out.
    q = ends[1].posterior_
    size = q.mean.size
    spread = np.linalg.slogdet(q.covariance[size:, size:])[1]
    found = ends[1].log_marginal_likelihood_
    assert found == pytest.approx(exact + 0.5 * spread)


def test_what_is_large_keeps_independent_coefficients():
    rng = np.random.default_rng(0)
    X, y, group = rng.normal(size=(400, 49)), rng.integers(2, size=400), np.arange(400)
    model = HierarchicalSoftmaxClassifier(max_iter=3, tol=1e9)
    assert model.fit(X, y, groups=group % 8).posterior_kind_ == "nested"
    more = np.column_stack([X, X[:, :1]])
    assert model.fit(more, y, groups=group % 8).posterior_kind_ == "meanfield"
    model.set_params(posterior="nested")
    assert model.fit(more, y, groups=group % 8).posterior_kind_ == "nested"
    with pytest.raises(AttributeError, match="log_marginal_likelihood_"):
        _ = model.elbo_
    with pytest.raises(ValueError, match="posterior"):
        model.set_params(posterior="laplace").fit(X, y, groups=group % 8)


def test_features_far_from_the_priors_scale():
    X, y, group, *_ = rows(np.random.default_rng(0), 8)
    far = X * [1.0, 1e4]
    model = HierarchicalSoftmaxClassifier(prior_scale=1.0)
    assert model.fit(far, y, groups=group).posterior_kind_ == "meanfield"
    assert np.isfinite(model.group_coef_).all()
    model.set_params(posterior="nested")
    with pytest.raises(ValueError, match=r"at most 500: .* x1 is .*StandardScaler"):
        model.fit(far, y, groups=group)
    near = model.fit(X * [1.0, 100.0], y, groups=group)
    assert (
        near.posterior_kind_ == "nested" and near.score(X * [1, 100.0], y, group) > 0.5
    )


def test_the_intercepts_prior_follows_the_frequencies_of_classes():
    X, y, group, *_ = rows(np.random.default_rng(0), 8, n=30)
    y = np.where(y == 2, 1, y)
    model = HierarchicalSoftmaxClassifier().fit(X, y, groups=group)
    counts = np.bincount(y) + 1.0
    expected = 1.0 + 0.5 * abs(np.log(counts[0] / counts[1]))
    assert model.intercept_prior_scale_ == pytest.approx(expected)
    stream = HierarchicalSoftmaxClassifier()
    stream.partial_fit(X[:60], y[:60], [0, 1], groups=group[:60])
    first = stream.intercept_prior_scale_
    stream.partial_fit(X[60:100], y[60:100], groups=group[60:100])
    assert stream.intercept_prior_scale_ == first != expected
    stream.partial_fit(X[100:], y[100:], groups=group[100:])
    assert stream.intercept_prior_scale_ == pytest.approx(expected)
    given = HierarchicalSoftmaxClassifier(intercept_prior_scale=3).fit(X, y, group)
    assert given.intercept_prior_scale_ == 3.0


def test_threads_change_nothing(monkeypatch):
    """More groups than a thread takes: the same bits."""
    monkeypatch.setattr(_model_nested, "GROUPS", 5)
    one, many = (fitted(23, n_jobs=n)[0] for n in (1, 2))
    for a, b in zip(one.posterior_, many.posterior_, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_unseen_group_is_judged_as_by_draws():
    """Of few groups, whose scales are poorly known."""
    model, X, _, _ = fitted(5)
    means, scales, _ = model.posterior_.sample(20_000, np.random.default_rng(0))
    Z = means + scales * np.random.default_rng(1).standard_normal(means.shape)
    expected = softmax(X @ Z, axis=2).mean(axis=0)
    found = model.predict_proba(X, groups=np.full(len(X), 77))
    assert abs(found - expected).mean() < 0.02


def test_classes_that_can_be_separated_in_all_groups():
    """Their coefficients have no end but the prior's, which scales let go far."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(400, 2)), rng.integers(10, size=400)
    y = (X[:, 0] > 0.0).astype(int)
    train = np.arange(400) < 200
    model = HierarchicalSoftmaxClassifier()
    model.fit(X[train], y[train], groups=group[train])
    p = model.predict_proba(X[~train], groups=group[~train])
    assert np.log(p[np.arange(200), y[~train]]).mean() > -0.2
    assert abs(model.group_coef_).max() < 50.0
