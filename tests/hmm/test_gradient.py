"""Free coordinates and the exact gradient, against enumeration of all paths."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.optimize import approx_fprime
from scipy.special import logsumexp

from skvrem import hmm
from skvrem.hmm._input import Sequences
from skvrem.hmm._model import FLAT, NOTHING, HMMModel, Parameters, definite
from skvrem.hmm.forward_backward._source import SequenceSource
from skvrem.hmm.transitions._homogeneous import Initial
from skvrem.solvers.estimate._batch import Batch
from tests.hmm.oracle import enumerate_paths

NAN = np.nan
ROWS = {
    "real": lambda rng, n: rng.normal(size=(n, 2)) @ [[1.0, 0.4], [0.0, 2.0]] + 5.0,
    "counts": lambda rng, n: rng.poisson([2.0, 6.0], (n, 2)),
    "events": lambda rng, n: rng.integers(2, size=(n, 2)),
    "codes": lambda rng, n: rng.integers(3, size=(n, 1)),
    "positive": lambda rng, n: rng.gamma([2.0, 9.0], 3.0, (n, 2)),
    "zeros": lambda rng, n: (
        rng.gamma([2.0, 9.0], 3.0, (n, 2)) * rng.integers(2, size=(n, 2))
    ),
    "angles": lambda rng, n: rng.vonmises([0.5, 3.0], [1.0, 9.0], (n, 2)),
    "mixed": lambda rng, n: np.column_stack(
        [rng.normal(size=n), rng.integers(2, size=n), rng.integers(3, size=n)]
    ),
}
FAMILIES = {
    "diag": ("real", hmm.Gaussian()),
    "full": ("real", hmm.Gaussian("full")),
    "tied": ("real", hmm.Gaussian("tied")),
    "spherical": ("real", hmm.Gaussian("spherical", reg_covar=0.1)),
    "full, much added": ("real", hmm.Gaussian("full", reg_covar=0.3)),
    "fixed means": ("real", hmm.Gaussian("full", mean=[[1.0, NAN], [NAN, NAN]])),
    "fixed covariances": ("real", hmm.Gaussian(covariance=[[1.0, 2.0], [2.0, 1.0]])),
    "mixture": ("real", hmm.MixtureGaussian(2)),
    "mixture, full": ("real", hmm.MixtureGaussian(2, "full")),
    "mixture, tied": ("real", hmm.MixtureGaussian(2, "tied")),
    "product with a mixture": (
        "mixed",
        hmm.Product(
            [
                ("code", hmm.Categorical(), [2]),
                ("depth", hmm.MixtureGaussian(2), [0]),
                ("end", hmm.Bernoulli(), [1]),
            ]
        ),
    ),
    "poisson": ("counts", hmm.Poisson()),
    "fixed rates": ("counts", hmm.Poisson(rate=[[2.0, NAN], [NAN, 7.0]])),
    "bernoulli": ("events", hmm.Bernoulli()),
    "fixed events": ("events", hmm.Bernoulli(probability=[[0.2, NAN], [NAN, NAN]])),
    "categorical": ("codes", hmm.Categorical()),
    "categorical with a prior": ("codes", hmm.Categorical(prior=2.5)),
    "fixed categories": ("codes", hmm.Categorical(probability=[[0.2, 0.3, 0.5]] * 2)),
    "gamma": ("positive", hmm.Gamma()),
    "zero-inflated gamma": ("zeros", hmm.Gamma(zero_inflated=True)),
    "fixed gamma": ("positive", hmm.Gamma(mean=[[5.0, NAN], [NAN, NAN]])),
    "von mises": ("angles", hmm.VonMises()),
    "fixed angles": ("angles", hmm.VonMises(mean=0.3)),
    "product": (
        "mixed",
        hmm.Product(
            [
                ("code", hmm.Categorical(), [2]),
                ("depth", hmm.Gaussian(), [0]),
                ("end", hmm.Bernoulli(probability=[[0.1], [NAN]]), [1]),
            ]
        ),
    ),
}
TRANSITIONS = {
    "free": hmm.Homogeneous(),
    "with a prior": hmm.Homogeneous(prior=3.0),
    "masked": hmm.Homogeneous([[1, 1, 1], [0, 1, 1], [1, 1, 0]]),
    "fixed": hmm.Homogeneous(fixed=[[NAN, 0.2, NAN], [NAN, NAN, NAN], [0.1, 0.9, 0.0]]),
    "left-right": hmm.Homogeneous("left-right"),
}
CHANGING = {
    "segments": hmm.Hierarchical(
        2, 2, 0, coarse=hmm.Homogeneous(prior=2.0), fine=hmm.Homogeneous(prior=1.5)
    ),
    "covariates": hmm.Covariates([0, 1]),
    "covariates with a mask": hmm.Covariates(
        [0], alpha=2.0, mask=np.eye(4)[[1, 0, 2, 3]] + np.eye(4)[[2, 1, 0, 1]]
    ),
    "covariates with given coefficients": hmm.Covariates(
        [0, 1],
        coef=np.where(np.arange(32).reshape(4, 4, 2) % 5 == 3, 0.3, NAN),
        intercept=np.where(
            np.eye(4)[[1, 0, 2, 3]] == 1.0, [[-1.0]] * 2 + [[NAN]] * 2, NAN
        ),
    ),
    "segments that go on": hmm.Hierarchical(1, 3, 0, upper_triangular=True),
}


def make(family, transitions=None, startprob="free", missing=False, n=2, prior=1.0):
    """A model, parameters away from any optimum, and data of three sequences."""
    inputs = None
    kind, emission = family
    rng = np.random.default_rng(3)
    lengths = np.array([3, 1, 4])
    X = np.asarray(ROWS[kind](rng, lengths.sum()), float)
    if missing:
        X[rng.uniform(size=X.shape) < 0.2] = NAN
        X[2] = NAN
    emission = emission.open(X, n)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    weight = np.array([1.0, 0.5, 2.0])
    transitions = (transitions or hmm.Homogeneous()).open(n)
    if transitions.columns:
        inputs = rng.integers(2, size=(len(X), len(transitions.columns))) + 0.0
        transitions.prepare(inputs)
    data = SequenceSource(
        Sequences(X, bounds, weight, None, inputs), emission, transitions
    )
    initial = Initial(startprob, None, prior, n, transitions.first)
    emission = data.emission
    model = HMMModel(emission, data.features, initial, transitions, data.total_weight)
    members = rng.uniform(0.1, 1.0, (n * emission.n_parts, len(X)))
    sums = data.features.expand(members @ data.rows.features(slice(None)))
    sums = emission.complete(sums, emission.blank())
    packed = emission.given_start(emission.maximize(sums, emission.blank(), True))
    guess = rng.integers(n, size=(2, 400))
    at = None if inputs is None else inputs[rng.integers(len(X), size=400)]
    transmat = transitions.start(*guess, at)
    first = initial.maximize(rng.uniform(0.5, 1.0, n), initial.start())
    if initial.stationary:
        first = initial.bind(np.empty(0), None, transmat)
    return model, model.start(Parameters(first, transmat, packed)), data


def objective(model, data, parameters):
    """Penalised log-likelihood a row, by enumeration."""
    total = model.log_prior(parameters)
    joint = data.rows.features(slice(None)) @ model.chain(parameters).theta.T
    joint = logsumexp(joint.reshape(len(joint), len(parameters.startprob), -1), axis=2)
    start, steps = parameters.startprob, parameters.transmat
    for w, (a, b) in zip(data.weight, pairwise(data.rows.bounds), strict=True):
        if data.inputs is not None:
            own = data.inputs[a : b - 1]
            tables, which = model.transitions.tables(parameters.transmat, own)
            steps = tables[which]
        total += w * enumerate_paths(joint[a:b], start, steps)[0]
    return total / model.total


def check(model, point, data):
    parameters = point.parameters
    vector = model.free(parameters)
    again = model.bind(vector, parameters)
    for a, b in zip(again, parameters, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert len(vector) == model.n_parameters()
    solver = Batch()
    solver.start(model, data, None)
    anchor = solver.certify(point, 1.0)
    assert anchor.objective == pytest.approx(objective(model, data, parameters))
    expected = approx_fprime(
        vector, lambda v: objective(model, data, model.bind(v, parameters)), 1e-6
    )
    found = model.gradient(point, anchor.mean)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    moved = model.bind(vector + 0.3, parameters)
    for a, b in zip(model.bind(model.free(moved), parameters), moved, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name):
    check(*make(FAMILIES[name]))


def test_variances_given_in_part():
    check(*make(("real", hmm.Gaussian(covariance=[[1.0, NAN], [NAN, NAN]]))))


@pytest.mark.parametrize(
    "name",
    [
        "diag",
        "spherical",
        "full",
        "tied",
        "mixture, full",
        "poisson",
        "zero-inflated gamma",
        "product",
    ],
)
def test_missing(name):
    check(*make(FAMILIES[name], missing=True))


@pytest.mark.parametrize("startprob", ["free", "stationary", [0.2, 0.3, 0.5]], ids=str)
@pytest.mark.parametrize("name", TRANSITIONS)
def test_transitions(name, startprob):
    if startprob == "stationary" and name == "left-right":
        pytest.skip("it ends in one state")
    check(*make(FAMILIES["diag"], TRANSITIONS[name], startprob, n=3, prior=1.5))


@pytest.mark.parametrize("name", CHANGING)
def test_changing_transitions(name):
    n = 3 if name == "segments that go on" else 4
    check(*make(FAMILIES["diag"], CHANGING[name], n=n, prior=1.5))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 0.5, 1.0, 2.0], [0.5, 0.5, 1.0, 2.0]),
        ([1e-4, 0.9999, 1.0, 2.0], [1e-4, 0.9999, 1.0, 2.0]),
        # No curvature is as little as there may be; that of a minimum, its opposite.
        ([0.0, 0.5, 1.0, 2.5], [2.5 * FLAT, 0.5, 1.0, 2.5]),
        ([-1e-15, 0.5, 1.5, 2.0], [2.0 * FLAT, 0.5, 1.5, 2.0]),
        ([-0.5, 0.5, 1.5, 2.5], [0.5, 0.5, 1.5, 2.5]),
    ],
)
def test_metrics_are_positive_definite(values, expected):
    """By eigenvalues about a unit diagonal, for coordinates of any scale."""
    vectors, unit = hadamard(4) / 2.0, np.array([1e-3, 1.0, 3.0, 1e4])

    def matrix(values):
        return (vectors * values) @ vectors.T

    found = definite(matrix(values) * np.outer(unit, unit)) / np.outer(unit, unit)
    np.testing.assert_allclose(found, matrix(expected), rtol=0.0, atol=1e-14)
    ends = np.linalg.eigvalsh(found)[[0, -1]]
    assert 0.0 < ends[1] < 1.01 * ends[0] / FLAT


def test_metrics_of_coordinates_without_curvature_are_positive():
    found = definite(np.diag([1.0, 0.0, -3.0]))
    np.testing.assert_allclose(found, np.diag([1.0, FLAT * NOTHING, 3.0]), rtol=1e-12)


def test_sums_that_no_rows_have_are_none_of_the_m_step_s():
    """A state of negative weight is refused, or repaired, though others have rows."""
    model, point, data = make(FAMILIES["diag"])
    batch = Batch()
    batch.start(model, data, None)
    mean = batch.certify(point, 1.0).mean
    assert model.maximize(mean, point, False) is not None
    features = mean.features.copy()
    features[1] *= -0.1
    wrong = mean._replace(features=features)
    assert model.maximize(wrong, point, False) is None
    repaired, _ = model.maximize(wrong, point, True)
    assert np.isfinite(repaired.emission).all()
    wrong = mean._replace(start=-mean.start)
    assert model.maximize(wrong, point, False) is None


def test_changes_are_measured_in_shares_of_the_states():
    """Of transitions and starts: squares over the weight of the state they leave."""
    model, point, data = make(FAMILIES["bernoulli"])
    batch = Batch()
    batch.start(model, data, None)
    point = model.update(point, batch.certify(point, 1.0).mean, None, 1.0)
    change = batch.certify(point, 1.0).mean
    zero = change._replace(features=np.zeros_like(change.features))
    weight = model.emission.row_weight(point.statistics.features)
    squares = np.square(change.pairs).sum(axis=1) + np.square(change.start)
    expected = np.sqrt((squares / weight).sum())
    assert model.norm(point, zero) == pytest.approx(expected, rel=1e-12)
    assert model.norm(point, change) > 1.1 * expected
