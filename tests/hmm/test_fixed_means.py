"""Means, of which some columns are fixed, with covariances between columns."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

from skvrem import VRHMM
from skvrem.hmm import Gaussian, MixtureGaussian
from tests.hmm.oracle import fitted_parameters, open_rows

NAN = np.nan
# The columns that are fixed are the same, or others in every state.
SAME = [[NAN, 0.5, NAN]] * 3
OTHERS = [[NAN, 0.5, NAN], [1.0, NAN, -1.0], [NAN, NAN, NAN]]
MATRIX = np.array([[1.0, 0.6, -0.3], [0.6, 2.0, 0.4], [-0.3, 0.4, 1.5]])
SHAPES = {"full": [MATRIX, 2.0 * MATRIX, MATRIX], "tied": MATRIX}
IN_PART = [MATRIX, np.full((3, 3), NAN), np.full((3, 3), NAN)]


def log_densities(X, mean, matrix):
    away = X - mean
    squares = np.einsum("td,de,te->t", away, np.linalg.inv(matrix), away)
    return -0.5 * (squares + np.linalg.slogdet(2.0 * np.pi * matrix)[1])


class Chosen:
    """A family's free parameters, and its Q by densities of rows, as SciPy has it."""

    def __init__(self, family, X, weight):
        self.family, self.X, self.weight = family, X, weight
        n, d = family.n_states_, X.shape[1]
        given = family.covariance
        matrices = np.full((n, d, d), NAN) if given is None else np.array(given)
        self.matrices = np.broadcast_to(matrices, (n, d, d))
        self.free = np.isnan(family.mean)
        self.drawn = np.isnan(self.matrices).all(axis=(1, 2))
        self.tied = family.covariance_type == "tied"
        self.lower = np.tril_indices(d)

    def bind(self, vector):
        mean, matrices = np.array(self.family.mean), np.array(self.matrices)
        cut = self.free.sum()
        mean[self.free] = vector[:cut]
        size = len(self.lower[0])
        for state in np.flatnonzero(self.drawn)[: 1 if self.tied else None]:
            factor = np.zeros(matrices.shape[1:])
            factor[self.lower], cut = vector[cut : cut + size], cut + size
            factor[np.diag_indices(len(factor))] = np.exp(np.diagonal(factor))
            matrices[slice(None) if self.tied else state] = factor @ factor.T
        return mean, matrices

    def n_parameters(self):
        n = 1 if self.tied and self.drawn.any() else self.drawn.sum()
        return self.free.sum() + n * len(self.lower[0])

    def value(self, mean, matrices):
        """Q with the priors, and `reg_covar` as a prior that weighs as much as rows."""
        family, total = self.family, 0.0
        share = 1.0 / len(mean) if self.tied else 1.0
        worth = share * family.covariance_weight
        for state, (m, matrix) in enumerate(zip(mean, matrices, strict=True)):
            weight = self.weight[:, state]
            total += weight @ log_densities(self.X, m, matrix)
            precision = np.linalg.inv(matrix)
            total -= 0.5 * worth * np.linalg.slogdet(matrix)[1]
            if worth:
                prior = share * family.covariance_weight * family.covariance_prior
                total -= 0.5 * np.sum(precision * prior)
            if family.mean_weight:
                away = m - family.mean_prior
                total -= 0.5 * family.mean_weight * away @ precision @ away
            if self.drawn[state]:
                added = np.eye(len(m)) * family.added
                total -= 0.5 * (weight.sum() + worth) * np.sum(precision * added)
        return total

    def largest(self):
        start = np.zeros(self.n_parameters())

        def loss(vector):
            return -self.value(*self.bind(vector)) / len(self.X)

        found = minimize(loss, start, tol=1e-8)
        return -found.fun * len(self.X), *self.bind(found.x)


PRIORS = {
    "mean_prior": 0.4,
    "mean_weight": 7.0,
    "covariance_prior": np.eye(3),
    "covariance_weight": 5.0,
}


MEANS_OF = {"one state": SAME[:1], "same columns": SAME, "other columns": OTHERS}
MORE = {"plain": {}, "added": {"reg_covar": 0.3}, "priors": PRIORS}


@pytest.mark.parametrize(
    ("kind", "means", "given"),
    [
        *product(["full", "tied"], MEANS_OF, [None, "all"]),
        *product(["full"], ["same columns", "other columns"], ["in part"]),
    ],
)
@pytest.mark.parametrize("more", MORE)
def test_the_m_step_is_the_maximum(kind, means, given, more):
    mean = MEANS_OF[means]
    n = len(mean)
    covariance = {None: None, "all": SHAPES[kind], "in part": IN_PART}[given]
    if given and kind == "full":
        covariance = covariance[:n]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) @ np.linalg.cholesky(MATRIX).T + [3.0, 1.0, 2.0]
    weight = rng.dirichlet(np.ones(n), size=60)
    options = {"reg_covar": 0.0, "mean": mean, "covariance": covariance} | MORE[more]
    family = Gaussian(kind, **options).open(X, n)
    columns = np.hstack([family.columns(X, False), np.ones((60, 1))])
    first, second, merged = family.features(False)
    sums = weight.T @ (columns[:, first] * columns[:, second])[:, merged[0]]
    model = Chosen(family, X, weight)
    packed = family.given_start(family.blank())
    values = [model.value(*family._split(packed))]
    # One matrix of states whose fixed columns are others has no closed form.
    many = kind == "tied" and mean is OTHERS and not given
    for _ in range(40 if many else 1):
        packed = family.maximize(sums, packed, False)
        values.append(model.value(*family._split(packed)))
    assert np.diff(values).min() > -1e-9
    best, means, matrices = model.largest()
    assert values[-1] == pytest.approx(best, abs=1e-6)
    found_means, found_matrices = family._split(packed)
    np.testing.assert_allclose(found_means, means, atol=2e-4)
    np.testing.assert_allclose(found_matrices, matrices, atol=2e-3)
    again = family.maximize(sums, packed, False)
    np.testing.assert_allclose(again, packed, atol=1e-6)


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_sums_that_no_rows_have_are_refused_or_repaired(kind):
    family = Gaussian(kind, mean=[[NAN, 0.5]], reg_covar=0.0)
    family.open(np.random.default_rng(0).normal(size=(50, 2)), 1)
    before = family.given_start(family.blank())
    # Of 1, x and x x^T: no variance where the means are free, some about the fixed one.
    sums = np.array([[1.0, 0.0, 3.0, 1.0, 0.0, 9.0]])
    assert family.maximize(sums, before, False) is None
    repaired = family.maximize(sums, before, True)
    assert np.isfinite(repaired).all()
    assert repaired[0, 1] == pytest.approx(0.5)
    empty = family.maximize(0.0 * sums, before, True)
    np.testing.assert_allclose(empty, before)


def one_state(kind, given=None):
    """The families that are one Gaussian."""
    covariance = None if given is None else SHAPES[kind]
    if kind == "full" and given is not None:
        covariance = covariance[:1]
    yield Gaussian(kind, mean=SAME[:1], covariance=covariance, reg_covar=0.0)
    more = None if given is None else [covariance]
    yield MixtureGaussian(1, kind, mean=[SAME[:1]], covariance=more, reg_covar=0.0)


@pytest.mark.parametrize("given", [None, "all"])
@pytest.mark.parametrize("kind", ["full", "tied"])
def test_one_state_ends_where_scipy_does(kind, given):
    """With values missing, by the densities of those that are seen."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3)) @ np.linalg.cholesky(MATRIX).T
    X[rng.uniform(size=X.shape) < 0.2] = NAN
    families = list(one_state(kind, given))
    seen = ~np.isnan(X)
    X = X[seen.any(axis=1)]
    patterns = [(p, (~np.isnan(X) == p).all(axis=1)) for p in np.unique(seen, axis=0)]
    model = Chosen(families[0].open(X, 1), X, np.ones((len(X), 1)))

    def loss(vector):
        (mean,), (matrix,) = model.bind(vector)
        return -sum(
            log_densities(X[rows][:, p], mean[p], matrix[p][:, p]).sum()
            for p, rows in patterns
            if rows.any()
        )

    best = minimize(loss, np.zeros(model.n_parameters()), tol=1e-4)
    for family in families:
        for solver in ("auto", "batch", "svrg"):
            fit = VRHMM(1, emission=family, solver=solver, tol=1e-8, random_state=0)
            fit.fit(X)
            assert len(X) * fit.log_likelihood_ == pytest.approx(-best.fun, abs=2e-3)
            means = fit.emission_.mean_.reshape(1, 3)
            np.testing.assert_allclose(means, model.bind(best.x)[0], atol=0.01)


PLACES = np.array([[0.0, 0.0, 0.0], [4.0, 1.0, 0.0], [0.0, 4.0, 3.0]])


def three_states():
    rng = np.random.default_rng(2)
    states = np.repeat(rng.integers(3, size=40), 15)
    X = PLACES[states] + 0.7 * rng.normal(size=(600, 3)) @ np.linalg.cholesky(MATRIX).T
    return X, rng


def slope_of(model, X):
    _, data, inner = open_rows(model, X)
    point = inner.start(fitted_parameters(model))
    return np.abs(inner.gradient(point, inner.mean(point, data))).max()


MEANS = [[NAN, 0.3, NAN], [4.4, NAN, NAN], [NAN, NAN, NAN]]


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
@pytest.mark.parametrize("kind", ["full", "tied"])
def test_fits_end_where_the_gradient_is_0(kind, missing):
    X, rng = three_states()
    if missing:
        X[rng.uniform(size=X.shape) < 0.1] = NAN
    emission = Gaussian(kind, mean=MEANS, mean_init=PLACES, reg_covar=0.0)
    options = {"emission": emission, "random_state": 0, "n_init": 1, "tol": 1e-9}
    ends = []
    for way in ({}, {"solver": "batch"}, {"solver": "batch", "acceleration": "lbfgs"}):
        model = VRHMM(3, **options, **way).fit(X)
        assert model.converged_ and slope_of(model, X) < 2e-5
        fixed = ~np.isnan(MEANS)
        found = model.emission_.mean_[fixed]
        np.testing.assert_allclose(found, np.array(MEANS)[fixed], rtol=1e-14)
        ends.append(600 * model.log_likelihood_)
        if way == {"solver": "batch"}:
            assert np.diff(model.history_["objective"]).min() > -1e-12
    np.testing.assert_allclose(ends, ends[0], atol=1e-4)
    if missing:
        return
    for solver in ("svrg", "incremental", "stochastic"):
        model = VRHMM(3, **options | {"tol": 1e-6}, solver=solver).fit(X)
        assert 600 * model.log_likelihood_ == pytest.approx(ends[0], abs=0.05)


def test_streams_and_weights():
    rng = np.random.default_rng(3)
    X = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.9], [0.9, 1.0]], 4000)
    emission = Gaussian("full", mean=[[NAN, 0.5]], reg_covar=0.0)
    lengths, weight = [2000, 2000], np.repeat([1.0, 3.0], 2000)

    def expected(weight):
        middle = np.average(X, axis=0, weights=weight)
        scatter = np.cov(X.T, aweights=weight)
        return middle[0] - scatter[0, 1] / scatter[1, 1] * (middle[1] - 0.5)

    model = VRHMM(1, emission=emission, random_state=0)
    model.fit(X, lengths=lengths, sample_weight=weight)
    assert model.means_[0, 0] == pytest.approx(expected(weight), abs=1e-9)
    stream = VRHMM(1, emission=emission, random_state=0)
    for rows in np.split(X, 40):
        stream.partial_fit(rows)
    assert stream.means_[0, 0] == pytest.approx(expected(None), abs=0.03)
    assert stream.means_[0, 1] == pytest.approx(0.5, rel=1e-14)


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_components_of_mixtures_have_fixed_columns(kind):
    X, _ = three_states()
    mean = [[[NAN, 0.3, NAN], [NAN, NAN, NAN]], [[4.4, NAN, NAN], [NAN, 4.5, 3.0]]]
    places = PLACES[[[0, 0], [1, 2]]] + [[[0.0], [0.5]], [[0.0], [0.0]]]
    emission = MixtureGaussian(2, kind, mean=mean, mean_init=places, reg_covar=0.0)
    options = {"random_state": 0, "n_init": 1, "tol": 1e-9, "max_iter": 1000}
    model = VRHMM(2, emission=emission, solver="batch", **options).fit(X)
    assert model.converged_ and slope_of(model, X) < 2e-5
    assert np.diff(model.history_["objective"]).min() > -1e-12
    fixed = ~np.isnan(mean)
    found = model.emission_.mean_[fixed]
    np.testing.assert_allclose(found, np.array(mean)[fixed], rtol=1e-14)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("mean", [None, [NAN, 0.5], [0.0, 0.5]], ids=str)
@pytest.mark.parametrize("mixture", [False, True])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gradient_methods_know_given_covariances(kind, mean, mixture):
    matrix = np.array([[1.0, 0.9], [0.9, 1.0]])
    X = np.random.default_rng(0).multivariate_normal([0, 0], matrix, 200)
    shapes = {"full": [matrix], "tied": matrix, "diag": [[1.0, 1.0]]}
    given = {"covariance": np.array(shapes.get(kind, [1.0]))}
    if mean is not None:
        given["mean"] = np.array([mean])
    if mixture:
        given = {name: value[None] for name, value in given.items()}
        family = MixtureGaussian(1, kind, **given)
    else:
        family = Gaussian(kind, **given)
    for n in (1, 2):
        for way in ({"solver": "svrg"}, {"solver": "batch", "acceleration": "lbfgs"}):
            own = {name: np.repeat(value, n, axis=0) for name, value in given.items()}
            if kind == "tied" and not mixture:
                own["covariance"] = matrix
            options = {"n_init": 1, "random_state": 0, "max_iter": 3} | way
            model = VRHMM(n, emission=clone(family).set_params(**own), **options)
            model.fit(X)
            assert np.isfinite(model.log_likelihood_)
            found = model.emission_.covariance_
            np.testing.assert_array_equal(found, own["covariance"])


@pytest.mark.parametrize("name", ["mean", "mean_init"])
def test_means_are_finite(name):
    given = {name: [[np.nan, np.inf]]}
    with pytest.raises(ValueError, match=f"{name} of Gaussian must be finite"):
        VRHMM(1, emission=Gaussian("full", **given)).fit(np.eye(2))
