"""Kernels of single rows, for every family and transitions that they know.

Truths are of the model's own features and coordinates, which have nothing in common
with these kernels: posteriors by enumeration of paths, gradients by differences.
"""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from numba import njit
from scipy.optimize import approx_fprime
from scipy.special import i0e, i1e, logsumexp, softmax

from skvrem import VRHMM, hmm
from skvrem.hmm.em_vrso import _kernels as kernels
from skvrem.hmm.em_vrso._model import RowSweeps
from skvrem.hmm.em_vrso._model_rows import NEVER, _of_labels, row_model
from skvrem.solvers._protocols import Anchor
from skvrem.utils._math import bessel
from tests.hmm.oracle import enumerate_paths
from tests.hmm.test_gradient import CHANGING, FAMILIES, NAN, TRANSITIONS, make

MISSING = ("diag", "spherical", "poisson", "fixed events", "categorical", "mixture")
MISSING += ("zero-inflated gamma", "von mises", "product")
CASES = {
    **{n: (FAMILIES[n],) for n in FAMILIES if n != "categorical with a prior"},
    **{f"{name}, missing": (FAMILIES[name], None, "free", True) for name in MISSING},
    **{
        name: (FAMILIES["diag"], TRANSITIONS[name], "free", False, 3)
        for name in TRANSITIONS
        if name != "with a prior"
    },
    "given first states": (FAMILIES["full"], None, [0.3, 0.7]),
    "covariates": (
        FAMILIES["zero-inflated gamma"],
        CHANGING["covariates"],
        "free",
        False,
        4,
    ),
    "covariates with a mask": (
        FAMILIES["poisson"],
        CHANGING["covariates with a mask"],
        "free",
        False,
        4,
    ),
    "segments that go on": (
        FAMILIES["diag"],
        CHANGING["segments that go on"],
        "free",
        False,
        3,
    ),
    "segments, in part fixed": (
        FAMILIES["product with a mixture"],
        hmm.Hierarchical(
            2,
            2,
            0,
            coarse=hmm.Homogeneous(fixed=[[0.3, 0.7], [NAN, NAN]]),
            fine=hmm.Homogeneous(fixed=[[NAN, NAN], [NAN, 0.7]]),
        ),
        "free",
        False,
        4,
    ),
}


class Opened:
    """A model at a point, its sweeps, and what a full pass finds."""

    def __init__(self, name, saga=True):
        self.model, self.point, self.data = make(*CASES[name])
        of_rows = row_model(self.model, self.data)
        options = {"saga": saga, "partial": True, "inner_iter": 1}
        self.steps = RowSweeps(self.model, self.data, of_rows, **options)
        at, mean, self.memory = self.steps.full_pass(self.point, self.data)
        self.anchor = Anchor(mean, 0.0, 1.0, at, self.memory)
        self.known = self.steps.known_at(self.anchor, None)
        self.u = self.model.free(self.point.parameters)
        bounds = self.data.rows.bounds
        self.begins = np.isin(np.arange(bounds[-1]), bounds[:-1])
        weight = np.repeat(self.data.weight, np.diff(bounds))
        self.weight = weight * len(weight) / weight.sum()

    def parts(self, parameters):
        """Log-densities of rows in the states' parts."""
        theta = self.model.chain(parameters).theta
        return self.data.rows.features(slice(None)) @ theta.T

    def matrices(self, parameters):
        """The matrix that leads into each row."""
        packed, inputs = parameters.transmat, self.data.inputs
        tables, which = self.model.transitions.tables(packed, inputs)
        n = len(self.begins)
        into = np.zeros(n, int) if inputs is None else np.roll(which, 1)
        return np.broadcast_to(tables[into], (n, *tables.shape[1:]))

    def losses(self, t):
        """Coordinates, gradients and losses of the chain and of the states in a row."""
        table = self.known.table
        for part, loss in zip(
            self.halves(), (self.chain_loss, self.states_loss), strict=True
        ):
            yield self.u[part], table[t, part], partial(loss, t)

    def halves(self):
        """Where coordinates of the chain stand, and those of the states."""
        return slice(self.steps.cut), slice(self.steps.cut, None)

    def chain_loss(self, t, v):
        """H_t with its share of the penalty, at coordinates of the chain."""
        model, (_, _, gamma, xi) = self.model, self.memory
        parameters = model.bind_chain(v, self.point.parameters)
        loss = -model.log_prior(parameters) / model.total
        n = len(parameters.startprob)
        with np.errstate(divide="ignore"):
            if self.begins[t]:
                counts = gamma[t].reshape(n, -1).sum(axis=1)
                logs = np.log(parameters.startprob)
            else:
                counts, logs = xi[t], np.log(self.matrices(parameters)[t]).ravel()
        return loss - counts[counts > 0.0] @ logs[counts > 0.0]

    def states_loss(self, t, v):
        """G_t at coordinates of the states, less what is the same everywhere."""
        parameters = self.model.bind_emission(v, self.point.parameters)
        gamma, logs = self.memory[2][t], self.parts(parameters)[t]
        return -gamma[gamma > 1e-12] @ logs[gamma > 1e-12]


@pytest.mark.parametrize("name", CASES)
def test_the_e_step_is_that_of_all_paths(name):
    case = Opened(name)
    parameters, (_, beta, gamma, xi) = case.point.parameters, case.memory
    n = len(parameters.startprob)
    parts, matrices = case.parts(parameters), case.matrices(parameters)
    joint = logsumexp(parts.reshape(len(parts), n, -1), axis=2)
    inside = np.exp(parts.reshape(len(parts), n, -1) - joint[:, :, None])
    given = case.steps.parts[8].reshape(-1, n, n)  # fixed: these are not counted
    for a, b in pairwise(case.data.rows.bounds):
        _, states, pairs, _, _ = enumerate_paths(
            joint[a:b], parameters.startprob, matrices[a + 1 : b]
        )
        wanted = (states[:, :, None] * inside[a:b]).reshape(b - a, -1)
        wanted *= case.weight[a:b, None]
        np.testing.assert_allclose(gamma[a:b], wanted, atol=1e-12)
        if len(given):
            switched = case.data.rows.switched
            which = np.zeros(b, int) if switched is None else switched.astype(int)
            pairs = np.where(given[which[a + 1 : b]] > 0.0, 0.0, pairs)
        pairs = pairs.reshape(-1, n * n) * case.weight[a + 1 : b, None]
        np.testing.assert_allclose(xi[a + 1 : b], pairs, atol=1e-12)
        np.testing.assert_allclose(beta[b - 1], 1 / n)
        assert not xi[a].any()


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_rows_are_those_of_their_losses(name):
    case = Opened(name)
    for t in (0, 1, 3, 5, 7):
        for u, g, loss in case.losses(t):
            expected = approx_fprime(u, loss, 1e-6) if u.size else []
            np.testing.assert_allclose(g, expected, rtol=2e-4, atol=2e-5)
    slope = case.model.slope(case.point.parameters, case.anchor.mean)
    found = -case.known.table.mean(axis=0)
    np.testing.assert_allclose(found, slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_a_visit_makes_the_messages_of_a_row_anew(name):
    case = Opened(name, saga=False)
    exact, rng = case.memory, np.random.default_rng(0)
    for t in range(len(case.begins)):
        work = case.steps.open(case.anchor)
        for message in work.messages[:2]:
            message[t] = rng.dirichlet(np.ones(message.shape[1]))
        found = case.steps.estimates(work, case.known, np.array([t]), None)
        for message, wanted in zip(work.messages[:2], exact[:2], strict=True):
            np.testing.assert_allclose(message, wanted, atol=1e-12)
        # At the anchor an estimate is the mean, which no row is like.
        np.testing.assert_allclose(found[0], -case.known.mean, atol=1e-9)


def holds(loss, u, g, metric, lipschitz):
    """Eq. 30, in coordinates that the roots of the metric scale."""
    step = g / metric
    return loss(u - step / lipschitz) <= loss(u) - 0.5 * g @ step / lipschitz


@pytest.mark.parametrize("name", CASES)
def test_lipschitz_estimates_double_as_far_as_they_must(name):
    case, doubled = Opened(name), 0
    for t, first in ((0, 0.02), (2, 0.02), (5, 0.02), (5, 1e6)):
        case.steps.lipschitz[:] = first
        work, nowhere = case.steps.open(case.anchor), np.array([1e-300])
        case.steps.sweep(work, case.known, np.array([t]), None, nowhere)
        found = case.steps.lipschitz * 2.0 ** (1.0 / len(case.begins))
        metrics = [work.metric[half] for half in case.halves()]
        for own, metric, row in zip(found, metrics, case.losses(t), strict=True):
            u, g, loss = row
            if g @ (g / metric) < 1e-16:
                assert own == pytest.approx(first)
                continue
            assert holds(loss, u, g, metric, own * (1.0 + 1e-9))
            if own > 1.5 * first:
                doubled += 1
                assert np.log2(own / first) % 1.0 == pytest.approx(0.0, abs=1e-9)
                assert not holds(loss, u, g, metric, 0.5 * own)
    assert doubled > 0 or name == "fixed categories"


def test_the_metric_is_the_information_of_complete_data():
    case = Opened("diag")
    parameters, mean = case.point.parameters, case.anchor.mean
    model, metric = case.model, case.steps.open(case.anchor).metric
    emission, n = model.emission, len(parameters.startprob)
    transmat = parameters.transmat
    seen = mean.pairs.sum(axis=1, keepdims=True)
    moves = (seen * transmat * (1.0 - transmat))[~np.eye(n, dtype=bool)]
    moves = np.maximum(moves, 1.0 / len(case.begins))  # a row's worth
    weight = emission.row_weight(mean.features)
    _, variance = emission.moments(parameters.emission)
    weight = weight.reshape(n, -1)
    means = weight * np.square(emission._width) / variance
    widths = 0.5 * weight * np.square(1.0 - emission.added / variance)
    wanted = np.concatenate([part.ravel() for part in (moves, means, widths)])
    first = model.initial.n_parameters()
    np.testing.assert_allclose(metric[first:], wanted, rtol=1e-5)
    np.testing.assert_array_equal(metric[:first], 1.0)


@pytest.mark.parametrize("name", ["diag", "given first states"])
def test_first_states_depart_from_their_m_step(name):
    case = Opened(name)
    work, first = case.steps.open(case.anchor), case.model.initial.n_parameters()
    case.steps.depart(work, case.anchor)
    np.testing.assert_array_equal(work.u[first : len(case.u)], case.u[first:])
    free = case.anchor.mean.start if first else case.point.parameters.startprob
    found = case.model.bind(work.u[: len(case.u)], case.point.parameters).startprob
    np.testing.assert_allclose(found, free / free.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "emission"),
    [("with a prior", FAMILIES["diag"]), (None, FAMILIES["categorical with a prior"])],
)
def test_what_kernels_of_rows_do_not_know(name, emission):
    opened = make(emission, TRANSITIONS.get(name), n=3 if name else 2)
    assert row_model(opened[0], opened[2]) is None


def test_rows_that_are_missing_in_part_and_other_models_are_not_swept():
    for more in ({"missing": True}, {"startprob": "stationary"}, {"prior": 2.0}):
        model, _, data = make(FAMILIES["full"], **more)
        assert row_model(model, data) is None


def test_probabilities_of_large_log_ratios_are_finite():
    rng = np.random.default_rng(0)
    u = np.append(rng.normal(size=6), 0.0)
    u[:3] = 1000.0, -1000.0, 900.0
    places = np.array([[6, 0, 1], [2, 6, 3], [4, 5, 6]], np.uint64)
    out = np.empty(9)

    @njit
    def fill(u, places, design, out):
        kernels._softmax(u, places, 0, 3, 3, 1, design, 0, out)

    fill(u, places.ravel(), np.empty((0, 0)), out)
    wanted = softmax(u[places], axis=1)
    np.testing.assert_allclose(out.reshape(3, 3), wanted, rtol=1e-12)


def test_bessel_functions():
    x = np.concatenate([[0.0, 1e-300], np.geomspace(1e-8, 1e8, 2001)])
    x = np.append(x, np.linspace(19.9, 20.1, 101))
    found = np.array([bessel(value) for value in x])
    np.testing.assert_allclose(found[:, 0], i0e(x), rtol=2e-15)
    np.testing.assert_allclose(found[1:, 1], (i1e(x) / i0e(x))[1:], rtol=2e-15)
    assert found[0, 1] == 0.0


def segments(rng, n=40):
    """Segments of two kinds, with flags where they end and an event that is likely."""
    kinds = rng.integers(2, size=n)
    rows = [
        np.column_stack([(1 + 3 * k) * np.repeat([1.0, -1.0], 6), np.arange(12) == 11])
        for k in kinds
    ]
    X = np.vstack(rows)
    X[:, 0] += 0.5 * rng.normal(size=len(X))
    return np.column_stack([X, rng.poisson(1 + 3 * np.repeat(kinds, 12))])


def hierarchy(**more):
    emission = hmm.Product(
        [
            ("move", hmm.Gaussian(), [0]),
            ("end", hmm.Bernoulli([[0.0], [NAN], [0.0], [NAN]]), [1]),
            ("count", hmm.Poisson(), [2]),
        ]
    )
    transitions = hmm.Hierarchical(2, 2, 1, upper_triangular=True, observed=True)
    settings = {"n_init": 1, "random_state": 0, "init_params": "random"} | more
    return VRHMM(4, emission=emission, transitions=transitions, **settings)


@pytest.mark.parametrize("solver", ["svrg", "saga"])
def test_sweeps_of_a_hierarchy_come_to_its_optimum_and_stay(solver):
    X, rows = segments(np.random.default_rng(0)), {"solver": solver, "batch_size": 1}
    best = hierarchy(tol=1e-11, max_iter=2000).fit(X)
    optimum = best.history_["objective"][-1]
    swept = hierarchy(**rows, inner_iter=5, max_iter=40, tol=0.0).fit(X)
    objective = swept.history_["objective"]
    assert np.diff(objective).min() > -1e-9
    assert objective[-1] == pytest.approx(optimum, abs=1e-3)
    assert objective[-1] - objective[0] > 0.2
    best.set_params(**rows, warm_start=True, max_iter=3, tol=0.0).fit(X)
    np.testing.assert_allclose(best.history_["objective"], optimum, atol=1e-9)


def test_steps_that_went_too_far_are_taken_back():
    X = segments(np.random.default_rng(1))
    model = hierarchy(solver="svrg", batch_size=1, step_size=40.0, max_iter=12, tol=0.0)
    objective = model.fit(X).history_["objective"]
    assert np.diff(objective).min() > -1e-9
    assert objective[-1] > objective[0]
    assert model.history_["step_size"][-1] < 40.0


def test_other_densities_and_priors_are_no_rows():
    X = np.random.default_rng(0).poisson(3.0, size=(60, 1)).astype(float)

    class Twice(hmm.Poisson):
        def theta(self, parameters):
            return 2.0 * super().theta(parameters)

    class Named(hmm.Gaussian):
        def theta(self, parameters):
            return super().theta(parameters)

    known = hmm.Poisson(), hmm.Gaussian()
    others = (
        Twice(),
        Named(),
        hmm.Poisson(rate_weight=2.0),
        hmm.Gaussian(mean_weight=2.0),
        hmm.Gaussian(covariance_weight=2.0),
    )
    for emission in known:
        assert emission.open(X, 2).row_pieces(X) is not None
    for emission in others:
        assert emission.open(X, 2).row_pieces(X) is None


def test_a_known_state_is_the_only_one_that_is_possible():
    X = np.zeros((4, 1))
    like = hmm.Poisson().open(X, 3).row_pieces(X)[0]
    made = _of_labels(np.array([-1, 0, 2, 1]), 3, like)
    of_rows = made.constants[:, made.columns[:, 0].astype(int)].T
    only = np.where(np.eye(3) > 0.0, 0.0, NEVER)
    np.testing.assert_array_equal(of_rows, [np.zeros(3), only[0], only[2], only[1]])
    assert made.size == made.constants.shape[1]
    assert (made.index == -1).all()
