"""What every model must have whose epochs are sweeps of its own, compiled or not.

The estimates that steps are made of come from the same code as the steps, with the
point standing still.
"""

from copy import deepcopy
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

from skvrem import hmm, solvers
from skvrem.data import as_source
from skvrem.hmm._model import HMMModel
from skvrem.hmm.em_vrso._model import BlockSweeps, RowSweeps
from skvrem.hmm.em_vrso._model_rows import row_model
from skvrem.hmm.forward_backward._source import RowBlockSource
from skvrem.schedules import Constant
from skvrem.solvers._protocols import Anchor
from skvrem.solvers._runs import Whole
from skvrem.solvers.step import _sweeps
from skvrem.utils._parallel import threads
from skvrem.vi.blackbox._model import DrawnModel
from skvrem.vi.blackbox._model_density import Target
from skvrem.vi.blackbox._model_steps import MeanSteps, TargetSteps
from skvrem.vi.dropout._model import DropoutModel, DropoutSteps, Network, Weights
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    Logistic,
    PoissonCounts,
    ScatteredSoftmax,
    Softmax,
)
from skvrem.vi.gaussian._model_posterior import FullRank, MeanField
from skvrem.vi.gaussian._model_steps import SteppingModel
from tests.laws.cases import hidden_markov, posterior, stepping
from tests.own_models import RichLogistic, ShortSkills, skills_problem

pytestmark = pytest.mark.slow

KINDS = ("stochastic", "svrg", "saga")


class Swept(NamedTuple):
    """A model of sweeps at a point.

    Attributes
    ----------
    steps : see ``Swept`` in ``_protocols.py``
    data : source
    point, away : Point
        Where estimates are made, and where an anchor is.
    truth : callable
        The mean that is estimated, at a point; see `exact`.
    kind : str
    noisy : bool
        Estimates have noise beside that of the minibatches.
    size : float
        Of steps that do not go too far.
    fresh : bool
        Steps have draws of their own, whatever a pass has.
    """

    steps: Any
    data: Any
    point: Any
    away: Any
    truth: Any
    kind: str
    noisy: bool = False
    size: float = 0.1
    fresh: bool = False

    def anchor(self, point):
        """Return what a full pass finds at a point, but its mean if draws are fresh."""
        at, mean, memory = self.steps.full_pass(point, self.data)
        known = None if self.fresh else mean
        return Anchor(known, self.steps.objective(at, mean), 1.0, at, memory)

    def known(self, point, rng):
        """Return what is known of all units where an anchor is."""
        if self.kind == "stochastic":
            return None
        return self.steps.known_at(self.anchor(point), rng)

    def epoch(self, anchor, known, rng):
        """Return the estimates of an epoch of which no step is made."""
        steps, work = self.steps, self.steps.open(anchor)
        visits = steps.visits(known, rng)
        return steps.estimates(work, known, visits, steps.noise(work, visits, rng))


# Hidden Markov models


def rows_or_blocks(rows, kind, partial_e, family="gaussian", **more):
    model, point, data, *_ = hidden_markov(family, **more)
    options = {"saga": kind == "saga", "partial": partial_e, "inner_iter": 1}
    if rows:
        steps = RowSweeps(model, data, row_model(model, data), **options)
    else:
        partition = RowBlockSource(data).blocks(6, np.random.default_rng(0))
        assert len(partition) > 3
        steps = BlockSweeps(model, data, partition, **options)
    u = model.free(point.parameters)
    u = u + 0.2 * np.sin(np.arange(u.size))
    away = point._replace(parameters=model.bind(u, point.parameters))

    def truth(at):
        mean = model.mean(at, data)
        return model.slope(at.parameters, mean)

    return Swept(steps, data, point, away, truth, kind, size=1.0)


# Mean fields


def moved(point, by):
    q = point.parameters
    return Point(q._replace(mean=q.mean + by, log_scale=q.log_scale - by))


def mean_field(name, kind, control, scale=True, optimizer="natural"):
    families = {
        "logistic": Logistic,
        "poisson": PoissonCounts,
        "gaussian": partial(GaussianNoise, 0.7),
        "softmax": partial(Softmax, 3, 0, 1 << 13),
    }
    given = kind, control, scale, optimizer
    steps, point = stepping(families[name](), *given, batch_size=6, n_draws=2)
    model, data = steps.model, steps.data

    def truth(at):
        batch = solvers.Batch()
        batch.start(model, data, None)
        sums = batch.certify(at, 1.0).mean
        total = np.stack([sums.gradient.T, sums.curvature.T])
        return (data.total_weight * total).ravel()

    noisy = control != "quadrature"
    return Swept(steps, data, point, moved(point, 0.1), truth, kind, noisy, 0.05)


# Own models


def own(kind, control, scale, optimizer="natural"):
    """Logistic regression with two parameters; the truth by quadrature over both."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 2)), rng.integers(2, size=24).astype(float)
    target = Target(RichLogistic(X, y, 0.7), np.arange(24))
    prior = MeanField(np.zeros(2), np.ones(2))
    model = DrawnModel(target, prior, "diagonal", np.zeros((1, 2)))
    steps = TargetSteps(model, kind, control, scale, optimizer, 4)
    point = posterior(rng, 2, 1)

    def truth(at):
        q = at.parameters
        mean, deviation = q.mean[:, 0], np.exp(q.log_scale[:, 0])
        nodes, weights = hermegauss(40)
        weights = np.multiply.outer(weights, weights).ravel() / weights.sum() ** 2
        z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
        z = mean + deviation * z
        gradient = weights @ [target.gradient(v) for v in z]
        curvature = -(weights @ [target.hessian_diagonal(v) for v in z])
        return np.concatenate([gradient, curvature])

    away = moved(point, 0.2)
    return Swept(steps, Whole(), point, away, truth, kind, True, 0.02, True)


def own_by_passes(kind, scale):
    """The same by the draws of passes; the truth is a pass, controlled as steps are."""
    case = own(kind, "taylor", scale)
    steps, model = case.steps, case.steps.model
    model.draws = np.random.default_rng(1).normal(size=(3, 2))

    def truth(at):
        steps.full_pass(case.away, case.data)  # the control variate stands there
        sums = model.statistics(at, None, 1.0)
        return np.concatenate([sums.gradient[:, 0], sums.curvature[:, 0]])

    return case._replace(truth=truth, fresh=False)


def own_means_by_passes(kind):
    case = own_means(kind, "taylor")

    def truth(at):
        return case.steps.model.statistics(at, None, 1.0).gradient[:, 0]

    return case._replace(truth=truth, fresh=False)


def own_means(kind, control):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 2)), rng.integers(2, size=24).astype(float)
    target = Target(RichLogistic(X, y, 0.7), np.arange(24))
    prior = MeanField(np.zeros(2), np.ones(2))
    model = DrawnModel(target, prior, "full", rng.normal(size=(1, 2)))
    steps = MeanSteps(model, kind, control, True, "natural", 4)
    factor = np.array([[0.5, 0.0], [0.2, 0.4]])
    at, away = (
        model.point_of(FullRank(np.array(mean), factor))
        for mean in ([0.2, -0.3], [0.4, -0.2])
    )

    def truth(at):
        q = model.posterior(at.parameters)
        nodes, weights = hermegauss(40)
        weights = np.multiply.outer(weights, weights).ravel() / weights.sum() ** 2
        z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
        return weights @ [target.gradient(q.mean + q.factor @ v) for v in z]

    return Swept(steps, Whole(), at, away, truth, kind, True, 0.02, True)


# Dropout


def dropout(kind, control, k=2, hidden=()):
    rng = np.random.default_rng(0)
    n = 24
    X, y = rng.normal(size=(n, 4)), rng.integers(k, size=n)
    family = Logistic() if k == 2 else ScatteredSoftmax(k, n)
    y = y.astype(float) if k == 2 else y.astype(np.int32)
    data = as_source(X, rng.uniform(0.5, 2.0, n))
    network = Network((4, *hidden, family.n_predictors), "tanh", 0.6)
    model = DropoutModel(family, y, network, 0.3, data)
    steps = DropoutSteps(model, kind, control, "adam", 6)
    vector = 2.0 * network.start(rng)
    point, away = (
        Point(Weights(v)) for v in (vector, vector + 0.1 * rng.normal(size=vector.size))
    )

    def truth(at):
        total = model.total(at.parameters.vector, np.arange(n), "full")
        return total.gradient / model.total_weight

    noisy = control != "quadrature"
    return Swept(steps, data, point, away, truth, kind, noisy, 0.02)


# Every branch of the kernels of rows.
SWEPT_ROWS = {
    **{
        family: {"family": family}
        for family in (
            "full",
            "tied",
            "poisson",
            "bernoulli",
            "categorical",
            "gamma",
            "von mises",
            "mixture",
            "product",
        )
    },
    "missing": {"family": "gaussian", "missing": True},
    "codes missing": {"family": "categorical", "missing": True},
    "weighted": {"family": "gaussian", "weighted": True},
    "segments": {"transitions": hmm.Hierarchical(2, 2, 0), "n": 4},
    "covariates": {"transitions": hmm.Covariates([0, 1])},
    "masked, in part fixed": {
        "transitions": hmm.Homogeneous(
            [[1, 1, 1], [0, 1, 1], [1, 1, 0]],
            fixed=[[np.nan, 0.2, np.nan], [np.nan] * 3, [np.nan] * 3],
        )
    },
}
CASES = {
    **{
        f"hmm {'rows' if rows else 'blocks'} {kind} {'partial' if e else 'full'}": (
            partial(rows_or_blocks, rows, kind, e)
        )
        for rows, kind, e in product((True, False), KINDS[1:], (True, False))
    },
    "hmm blocks of codes": partial(rows_or_blocks, False, "saga", True, "categorical"),
    **{
        f"hmm rows, {name}": partial(
            rows_or_blocks, True, KINDS[1 + number % 2], number % 3 > 0, **more
        )
        for number, (name, more) in enumerate(SWEPT_ROWS.items())
    },
    **{
        f"mean field {name} {kind} {control} {scale}": partial(
            mean_field, name, kind, control, scale
        )
        for name, (kind, control, scale) in product(
            ("logistic", "poisson", "gaussian", "softmax"),
            [
                ("stochastic", None, True),
                ("stochastic", "taylor", True),
                ("stochastic", "antithetic", True),
                ("stochastic", "quadrature", True),
                *product(KINDS[1:], ("taylor", "antithetic", "quadrature"), (True,)),
                ("svrg", "taylor", False),
            ],
        )
    },
    **{
        f"own {kind} {control} {scale}": partial(own, kind, control, scale)
        for kind, control, scale in (
            ("stochastic", None, True),
            ("stochastic", "taylor", True),
            ("stochastic", "antithetic", True),
            *product(KINDS[1:], ("taylor",), (True, False)),
            *product(KINDS[1:], ("antithetic",), (True,)),
        )
    },
    **{
        f"own means {kind} {control}": partial(own_means, kind, control)
        for kind, control in product(KINDS, ("taylor", "antithetic"))
    },
    **{
        f"passes own {kind} {scale}": partial(own_by_passes, kind, scale)
        for kind, scale in product(KINDS[1:], (True, False))
    },
    **{
        f"passes means {kind}": partial(own_means_by_passes, kind) for kind in KINDS[1:]
    },
    **{
        f"dropout {kind} {control} {k} {hidden}": partial(
            dropout, kind, control, k, hidden
        )
        for kind, control, k, hidden in (
            ("stochastic", None, 2, ()),
            ("stochastic", "taylor", 2, (3,)),
            ("stochastic", "quadrature", 2, ()),
            ("svrg", "taylor", 2, (3,)),
            ("svrg", "taylor", 2, ()),
            ("svrg", "quadrature", 2, (3,)),
            ("svrg", "quadrature", 3, ()),
        )
    },
}
# The kernel is one for all families: some of one kind are as good as all.
RARE = [n for n in CASES if n.startswith(("mean field poisson", "mean field gauss"))]
RARE += ["dropout stochastic None 2 ()", "dropout svrg quadrature 3 ()"]
RARE = set(RARE) - {
    "mean field poisson saga quadrature True",
    "mean field gaussian svrg taylor True",
}


def marked(names):
    """Names as parameters, the rare ones for `make thorough`."""
    rare = pytest.mark.thorough
    return [pytest.param(name, marks=rare) if name in RARE else name for name in names]


EXACT = [name for name in CASES if "hmm" in name or "quadrature" in name]
CONTROLLED = [name for name in CASES if "stochastic" not in name]
PASSES = [name for name in CASES if "passes" in name]
TABLES = [name for name in CASES if "saga" in name and name not in PASSES]


@pytest.fixture(params=marked(CASES))
def case(request):
    return CASES[request.param]()


def numbers(point):
    """The numbers of a point, one vector."""
    parameters = point.parameters
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in parameters])


def leaves(part):
    """All arrays in tuples, lists and arrays of arrays."""
    if isinstance(part, np.ndarray):
        return [part]
    if isinstance(part, list | tuple):
        return [leaf for each in part for leaf in leaves(each)]
    return []


def frozen(point):
    """A copy that a sweep may not change."""
    return deepcopy(point)


@pytest.mark.parametrize("name", marked(EXACT))
def test_estimates_average_to_the_mean(name):
    """Over all visits of an epoch, away from the anchor, exactly."""
    case, rng = CASES[name](), np.random.default_rng(0)
    known, here = case.known(case.away, rng), case.anchor(case.point)
    for _ in range(2):
        found = case.epoch(here, known, rng)
        found = found.reshape(len(found), -1).mean(axis=0)
        truth = case.truth(case.point)
        close = 1e-9 * max(1.0, abs(truth).max())
        np.testing.assert_allclose(found, truth, atol=close, rtol=1e-9)


@pytest.mark.parametrize("name", marked(n for n in CASES if n not in EXACT))
def test_estimates_average_to_the_mean_over_noise(name):
    case, rng = CASES[name](), np.random.default_rng(5)
    known, here, found = case.known(case.away, rng), case.anchor(case.point), []
    for _ in range(300):
        epoch = case.epoch(here, known, rng)
        found.append(epoch.reshape(len(epoch), -1).mean(axis=0))
    found, truth = np.array(found), case.truth(case.point)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (abs(found.mean(axis=0) - truth) < 4.5 * error + 1e-9).all()
    # A bias of a tenth of what is estimated would be seen.
    assert np.median(error) < 0.05 * max(1.0, abs(truth).max())


def of_signs(steps, work, noise, signs):
    """A set of noise in the place of one that was drawn: the same signs for all."""
    if isinstance(steps, DropoutSteps):
        deviation = np.sqrt(steps.model.network.noise_variance)
        return np.broadcast_to(1.0 + deviation * signs, noise.shape).copy()
    if isinstance(steps, SteppingModel):
        return np.broadcast_to(signs, noise.shape).copy()
    draw = work.posterior.factor @ signs if isinstance(steps, MeanSteps) else signs
    return [draw] * len(noise)


def over_signs(case):
    """The mean of an epoch's estimates, over all signs that the noise may have."""
    steps, rng = case.steps, np.random.default_rng(0)
    known, here = case.known(case.away, rng), case.anchor(case.point)
    work = steps.open(here)
    visits = steps.visits(known, rng)
    noise = steps.noise(work, visits, rng)
    all_signs = product((-1.0, 1.0), repeat=np.shape(noise)[-1])
    found = [
        steps.estimates(
            steps.open(here),
            known,
            visits,
            of_signs(steps, work, noise, np.array(signs)),
        ).mean(axis=0)
        for signs in all_signs
    ]
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    "name",
    marked(n for n in CASES if n not in EXACT + PASSES and "None" not in n),
)
def test_estimates_average_to_those_without_control(name):
    """Over all visits, away from the anchor, exactly for one set of noise.

    Signs have the moments that control variates have known means for.
    """
    made = CASES[name]
    kind = made.func is mean_field
    head = made.args[:1] if kind else ()
    tail = made.args[3:] if kind else made.args[2:]
    plain = made.func(*head, "stochastic", None, *tail)
    truth = over_signs(plain)
    close = 1e-9 * max(1.0, abs(truth).max())
    np.testing.assert_allclose(over_signs(made()), truth, atol=close, rtol=1e-9)


@pytest.mark.parametrize("name", marked(n for n in EXACT if n in CONTROLLED) + PASSES)
def test_at_the_anchor_nothing_varies(name):
    case, rng = CASES[name](), np.random.default_rng(0)
    here = case.anchor(case.point)
    found = case.epoch(here, case.known(case.point, rng), rng)
    found = found.reshape(len(found), -1)
    close = 1e-9 * max(1.0, abs(found).max())
    np.testing.assert_allclose(found, np.tile(found[0], (len(found), 1)), atol=close)


@pytest.mark.parametrize("name", marked(TABLES))
def test_a_table_stands_still_within_an_epoch(name):
    """And afterwards is what the visits have seen."""
    case, rng = CASES[name](), np.random.default_rng(0)
    known = case.known(case.away, rng)
    steps, before = case.steps, deepcopy(known)
    work, visits = steps.open(case.anchor(case.point)), steps.visits(known, rng)
    n = -(-len(visits) // steps.rows_a_visit)
    noise = steps.noise(work, visits, rng)
    steps.sweep(work, known, visits, noise, np.full(n, 1e-300))  # to nowhere
    fresh = case.known(case.point, np.random.default_rng(1))
    after = steps.renewed(known)
    if hasattr(known, "partition"):  # of batches of its own
        assert all(map(np.array_equal, known.earlier[2:3], before.earlier[2:3]))
        np.testing.assert_allclose(after.earlier[2], fresh.earlier[2], atol=1e-8)
        return
    table, mean = (1, 0) if hasattr(known, "memory") else ("table", "mean")
    part = (lambda k, i: k[i]) if hasattr(known, "memory") else getattr
    np.testing.assert_array_equal(part(known, table), part(before, table))
    np.testing.assert_allclose(part(after, table), part(fresh, table), atol=1e-8)
    means = (np.asarray(part(k, mean)[0]) for k in (after, fresh))
    np.testing.assert_allclose(*means, atol=1e-8)


VARYING = [name for name in CASES if "hmm" not in name and "dropout" not in name]
SUPPORTS = [f"own supports {kind}" for kind in KINDS]


def sparse(kind, fresh=False):
    """Skills, of which a batch touches few."""
    target = Target(ShortSkills(*skills_problem()), np.arange(60))
    prior = MeanField(np.zeros(9), np.ones(9))
    model = DrawnModel(target, prior, "diagonal", np.zeros((1, 9)))
    point = posterior(np.random.default_rng(0), 9, 1)
    steps = TargetSteps(model, kind, "taylor", True, "natural", 6)
    away = moved(point, 0.2)
    return Swept(steps, Whole(), point, away, None, kind, fresh=fresh)


def with_prior(steps, work, visits, found):
    """Where parameters are met by some batches only, what varies has the prior."""
    mean, scale, prior = work.mean[0], work.scale[0], work.prior[:, 0]
    own = -prior[1] * (mean - prior[0]), prior[1] - 1.0 / scale**2
    for row, (_, batch) in zip(found, visits, strict=True):
        on = batch.support
        row[:, on] += steps.n_batches / batch.factor * np.stack(own)[:, on]
    return found


@pytest.mark.parametrize("name", marked(VARYING) + SUPPORTS)
def test_the_variance_is_that_of_the_estimates_of_an_epoch(name):
    """Swept in two pieces, by a point that stands still."""
    case = CASES[name]() if name in CASES else sparse(name.split()[-1])
    steps, rng = case.steps, np.random.default_rng(0)
    known, anchor = case.known(case.away, rng), case.anchor(case.point)
    work, visits = steps.open(anchor), steps.visits(known, rng)
    noise = steps.noise(work, visits, rng)
    found = steps.estimates(steps.open(anchor), known, visits, noise)
    if name not in CASES:
        found = with_prior(steps, work, visits, found)
    for piece in np.split(np.arange(len(found)), [1]):
        rows = slice(*(steps.rows_a_visit * (piece[[0, -1]] + [0, 1])))
        # Quadrature has no noise.
        own = noise[rows] if len(noise) else noise
        assert steps.sweep(work, known, visits[rows], own, np.zeros(len(piece))) == 0
        if len(piece) == 1:  # one estimate does not vary
            assert abs(steps.variance(work)) < 1e-9 * np.square(found[0]).sum()
    if isinstance(steps, SteppingModel):  # of what moves the means
        found = found[:, 0]
    expected = found.reshape(len(found), -1).var(axis=0).sum()
    assert steps.variance(work) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "make", [partial(mean_field, "logistic"), own], ids=["field", "own"]
)
def test_adam_counts_the_steps_of_all_epochs(make):
    case = make("svrg", "taylor", True, optimizer="adam")
    steps, rng, point = case.steps, np.random.default_rng(0), case.point
    for epoch in range(2):
        known, work = case.known(case.away, rng), steps.open(case.anchor(point))
        visits = steps.visits(known, rng)
        n = -(-len(visits) // steps.rows_a_visit)
        noise = steps.noise(work, visits, rng)
        steps.sweep(work, known, visits, noise, np.full(n, 0.01))
        point = steps.close(work)
        assert point.moments.count == (epoch + 1) * n


@pytest.mark.parametrize("optimizer", ["natural", "adam", "sgd"])
@pytest.mark.parametrize("kind", KINDS)
def test_own_models_move_as_their_optimizer_says(kind, optimizer):
    """One step from where the estimates are made; the natural one in a full metric."""
    case, rng, size = (
        own(kind, "taylor", True, optimizer),
        np.random.default_rng(0),
        0.3,
    )
    known, here, steps = case.known(case.away, rng), case.anchor(case.point), case.steps
    work, visits = steps.open(here), steps.visits(known, rng)[:1]
    noise = steps.noise(work, visits, rng)
    ((g, c),) = steps.estimates(steps.open(here), known, visits, noise)
    steps.sweep(work, known, visits, noise, np.array([size]))
    q = case.point.parameters
    mean, log_scale = q.mean[:, 0], q.log_scale[:, 0]
    slope, turn = g - mean, 1.0 - np.exp(2.0 * log_scale) * (1.0 + c)
    if optimizer == "natural":
        metric = np.eye(2) - case.steps.target.hessian(mean)
        moves = (
            np.linalg.solve(metric, slope),
            np.clip(0.5 * turn, -0.25 / size, 0.25 / size),
        )
    else:
        moves = (
            (np.sign(slope), np.sign(turn)) if optimizer == "adam" else (slope, turn)
        )
    np.testing.assert_allclose(work.mean[0], mean + size * moves[0], rtol=1e-6)
    np.testing.assert_allclose(
        work.log_scale[0], log_scale + size * moves[1], rtol=1e-6
    )


def swept(case, point, n_jobs=1, seed=0, size=None):
    """The solver after two epochs without certificates, and where they lead."""
    solver, rng = solvers.Sweeps(case.kind), np.random.default_rng(seed)
    solver.start(case.steps, case.data, rng)
    pace = Constant(case.size if size is None else size)
    with threads(n_jobs):
        for _ in range(2):
            point = solver.sweep(case.anchor(point), pace, rng).point
    return point


def test_the_same_bits_in_any_pieces_and_threads(case, monkeypatch):
    whole = numbers(swept(case, case.point))
    case.steps.lipschitz = np.full(2, 100.0 / 3.0)  # where there is one
    monkeypatch.setattr(_sweeps, "FIRST_PIECE", 1)
    monkeypatch.setattr(_sweeps, "PIECE_SECONDS", 0.0)
    np.testing.assert_array_equal(numbers(swept(case, case.point, 3)), whole)


def test_an_epoch_leaves_its_anchor_alone(case, monkeypatch):
    """Interrupted between pieces, as at its end."""
    monkeypatch.setattr(_sweeps, "FIRST_PIECE", 1)
    monkeypatch.setattr(_sweeps, "PIECE_SECONDS", 0.0)
    before, anchor = numbers(case.point).copy(), case.anchor(case.point)
    noise, asked = case.steps.noise, []

    def interrupted(*arguments):
        asked.append(1)
        if len(asked) > 2:
            raise KeyboardInterrupt
        return noise(*arguments)

    rng, solver = np.random.default_rng(0), solvers.Sweeps(case.kind)
    solver.start(case.steps, case.data, rng)
    monkeypatch.setattr(case.steps, "noise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solver.sweep(anchor, Constant(case.size), rng)
    np.testing.assert_array_equal(numbers(anchor.point), before)
    monkeypatch.setattr(case.steps, "noise", noise)
    memory = leaves(anchor.memory)
    kept = [leaf.copy() for leaf in memory]
    end = solver.sweep(anchor, Constant(case.size), rng).point
    assert (numbers(end) != before).any()
    np.testing.assert_array_equal(numbers(anchor.point), before)
    for now, then in zip(memory, kept, strict=True):
        np.testing.assert_array_equal(now, then)


def run(case, point, max_iter, size=None, tol=0.0):
    loop = getattr(case.steps, "model", None)
    hidden = isinstance(loop, HMMModel)
    make = (lambda *_: case.steps) if hidden else None
    solver = solvers.Sweeps(case.kind, patience=2, noisy=not hidden, make=make)
    return solvers.run(
        loop if hidden else case.steps,
        solver,
        case.data,
        frozen(point),
        step_size=Constant(case.size if size is None else size),
        temperature=Constant(1.0),
        max_iter=max_iter,
        tol=tol,
        rng=np.random.default_rng(0),
    )


def test_what_is_returned_is_what_is_reported(case):
    for max_iter in (0, 1, 4):
        result = run(case, case.point, max_iter)
        exact = case.anchor(result.point).objective
        assert result.objective == pytest.approx(exact, rel=1e-10, abs=1e-10)
        assert result.history[-1].objective == result.objective
        assert result.n_iter == max_iter


def test_steps_that_go_too_far_are_taken_back(case):
    with np.errstate(all="ignore"):
        result = run(case, case.point, 8, size=50.0 * case.size)
    objective = np.array([epoch.objective for epoch in result.history])
    good = np.maximum.accumulate(objective)
    slack = 1e-9 * max(1.0, abs(objective).max())
    assert np.isfinite(objective).all()
    # One decrease is followed by its being taken back.
    assert (objective[1:] >= good[:-1] - slack).all()


def test_steps_that_leave_the_numbers_are_an_epoch_that_lost(monkeypatch):
    """It is taken back, and the history of variances has a row for it."""
    case = CASES["mean field logistic svrg quadrature True"]()
    close, calls = case.steps.close, []

    def far(work):
        calls.append(1)
        if len(calls) == 2:
            raise FloatingPointError("too far")
        return close(work)

    monkeypatch.setattr(case.steps, "close", far)
    solver = solvers.Sweeps("svrg", 0.0)
    result = solvers.run(
        case.steps,
        solver,
        case.data,
        frozen(case.point),
        step_size=Constant(case.size),
        temperature=Constant(1.0),
        max_iter=3,
        tol=0.0,
        rng=np.random.default_rng(0),
    )
    objective = [epoch.objective for epoch in result.history]
    assert objective[2] == objective[1] < objective[3]
    # Sweep, what controls it, certificate; where it is taken back, of the last good.
    assert np.diff([epoch.passes for epoch in result.history]).tolist() == [3.0] * 3
    variances = [epoch.gradient_variance for epoch in result.history]
    assert np.isnan(variances).tolist() == [True, False, True, False]
    assert [epoch.step_size for epoch in result.history][3] == 0.5 * case.size


@cache
def top(name):
    """Where batches end that have no noise: the same end for all."""
    case = CASES[name]()
    if "hmm" in name:
        point = case.point
        model = case.steps.model
        last = -np.inf
        for _ in range(1000):
            mean = model.mean(point, case.data)
            now = model.objective(point, mean)
            if now - last < 1e-13:
                break
            point, last = model.update(point, mean, None, 1.0), now
        return point, case.anchor(point).objective
    best = run(case._replace(size=0.5 * case.size), case.point, 400)
    return best.point, best.objective


@pytest.mark.parametrize(
    "name",
    [
        "hmm rows svrg partial",
        "hmm rows svrg full",
        "hmm rows saga partial",
        "hmm rows saga full",
        "hmm blocks svrg partial",
        "hmm blocks saga partial",
        "mean field logistic svrg quadrature True",
        "mean field poisson saga quadrature True",
        "mean field gaussian svrg taylor True",
        "mean field gaussian saga taylor True",
    ],
)
def test_a_fixed_point_stays(name):
    case = CASES[name]()
    point, best = top(name)
    result = run(case, point, 3)
    assert result.objective == pytest.approx(best, abs=1e-7 * max(1.0, abs(best)))
    np.testing.assert_allclose(numbers(result.point), numbers(point), atol=2e-3)


@pytest.mark.parametrize("kind", ["svrg", "saga"])
@pytest.mark.parametrize("rows", [True, False])
def test_hidden_markov_models_end_where_batches_do(rows, kind):
    case = rows_or_blocks(rows, kind, True)
    name = f"hmm {'rows' if rows else 'blocks'} {kind} partial"
    _, best = top(name)
    result = run(case, case.point, 60)
    assert result.objective == pytest.approx(best, abs=2e-3)


def test_supports_are_counted():
    """Estimates of batches that touch few parameters average to those of all."""
    rng, found = np.random.default_rng(0), {}
    for kind in KINDS:
        case = sparse(kind, fresh=True)
        known, epochs, here = case.known(case.away, rng), [], case.anchor(case.point)
        for _ in range(400):
            epochs.append(case.epoch(here, known, rng).mean(axis=0))
        epochs = np.array(epochs)
        found[kind] = epochs.mean(axis=0), epochs.std(axis=0) / np.sqrt(len(epochs))
    for kind in KINDS[1:]:
        off = abs(found[kind][0] - found["stochastic"][0])
        error = np.hypot(found[kind][1], found["stochastic"][1])
        assert (off < 4.5 * error + 1e-9).all()


def test_automatic_steps_are_short_where_many_coefficients_are_led_by_rows():
    """Half of one over the effective number of coefficients, by oracles with loops."""
    case = mean_field("softmax", "svrg", "taylor")
    q, prior = case.point.parameters, case.steps.model.prior
    effective = 0.0
    for c in range(3):
        for j in range(3):
            held = np.exp(2.0 * q.log_scale[j, c]) * prior.precision_diagonal[3 * c + j]
            effective += max(0.0, 1.0 - held)
    size = 0.5 / (1.0 + effective / np.sqrt(6.0))
    assert case.steps.auto_step(case.point) == pytest.approx(size, rel=1e-12)
    narrowest = np.exp(2.0 * q.log_scale.min())
    for optimizer, wanted in (("adam", 0.02), ("sgd", size * narrowest)):
        other = mean_field("softmax", "svrg", "taylor", optimizer=optimizer)
        assert other.steps.auto_step(other.point) == pytest.approx(wanted, rel=1e-12)
    case = own_means("svrg", "taylor")
    posterior = case.steps.model.posterior(case.point.parameters)
    covariance = posterior.factor @ posterior.factor.T
    size = 0.5 / (1.0 + (2.0 - np.trace(covariance)) / 2.0)
    assert case.steps.auto_step(case.point) == pytest.approx(size, rel=1e-12)
