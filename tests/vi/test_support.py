"""Models who say which parameters rows depend on: the same answers, for less."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit

from skvrem import BradleyTerry
from skvrem import VariationalInference as VI
from skvrem.schedules import Constant
from skvrem.solvers import Sweeps
from skvrem.solvers._protocols import Anchor
from skvrem.vi.blackbox._model import DrawnModel
from skvrem.vi.blackbox._model_density import DensityBatch, Target
from skvrem.vi.blackbox._model_steps import TargetSteps
from skvrem.vi.gaussian import _kernels_steps
from skvrem.vi.gaussian._model import Diagonal, Point
from skvrem.vi.gaussian._model_posterior import MeanField
from tests.own_models import STEPS, ShortSkills, Skills, WideSkills, skills_problem
from tests.watching import Untouched

PRIOR = MeanField(np.linspace(-0.5, 0.5, 9), np.linspace(0.5, 1.5, 9))


def fit(model_class, **params):
    given = {"tol": 0.05, "posterior": "meanfield", "random_state": 0}
    return VI(model_class(*skills_problem()), **(given | params)).fit()


def steps_of(model_class, kind="svrg", control="taylor", scale=True, move="natural"):
    target = Target(model_class(*skills_problem()), np.arange(60))
    model = DrawnModel(target, PRIOR, "diagonal", np.zeros((1, 9)))
    return TargetSteps(model, kind, control, scale, move, 6)


@pytest.fixture(scope="module")
def point():
    """A posterior, and the gradient of its bound by quadrature."""
    rng = np.random.default_rng(2)
    mean, scale = rng.normal(size=9), rng.uniform(0.3, 0.8, 9)
    pairs, _ = skills_problem()
    nodes, weights = hermegauss(40)
    weights = weights / weights.sum()
    gradient = -PRIOR.precision_times(mean - PRIOR.mean)
    precision = PRIOR.precision_diagonal - scale**-2.0
    for won, lost in pairs:
        u = mean[won] - mean[lost] + np.hypot(scale[won], scale[lost]) * nodes
        p = expit(-u)
        gradient[won] += weights @ p
        gradient[lost] -= weights @ p
        precision[[won, lost]] += weights @ (p * (1.0 - p))
    return mean, scale, np.stack([gradient, precision])


def at(mean, scale):
    columns = mean[:, None].copy(), np.log(scale)[:, None], np.zeros((mean.size, 1, 0))
    return Anchor(None, np.nan, 0.0, Point(Diagonal(*columns)))


def swept(steps, anchor, size, rng):
    """Where an epoch of steps leads to."""
    solver = Sweeps(steps.kind)
    solver.start(steps, steps.target, rng)
    return solver.sweep(anchor, Constant(size), rng).point


@pytest.mark.parametrize(("kind", "control", "scale"), STEPS)
def test_steps_are_unbiased(kind, control, scale, point):
    """Over an epoch, prior and entropy included, of means and of scales."""
    mean, std, truth = point
    steps = steps_of(ShortSkills, kind, control, scale)
    steps.optimizer = _kernels_steps.SGD
    rng = np.random.default_rng(3)
    met = np.arange(9) != 6
    earlier = at(mean + 0.2 * np.sin(np.arange(9.0)), std)
    found = []
    for _ in range(80):
        known = None if kind == "stochastic" else steps.known_at(earlier, rng)
        work, visits = steps.open(at(mean, std)), steps.visits(known, rng)
        noise = steps.noise(work, visits, rng)
        assert [draw.size for draw in noise] == [b.support.size for _, b in visits]
        steps.sweep(work, known, visits, noise, np.zeros(len(visits)))  # no length
        np.testing.assert_array_equal(work.mean[0], mean)
        found.append(work.seen[0] / steps.n_batches)
    found = np.array(found)[:, :, met]
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (abs(found.mean(axis=0) - truth[:, met]) < 4.0 * error).all()


@pytest.mark.parametrize("name", ["gradient", "hessian_times", "hessian_diagonal"])
@pytest.mark.parametrize("model_class", [WideSkills, ShortSkills])
def test_derivatives_by_the_support_are_those_by_all(model_class, name):
    pairs, d = skills_problem()
    own, plain = (Target(c(pairs, d), np.arange(60)) for c in (model_class, Skills))
    rng = np.random.default_rng(0)
    z, v, rows = rng.normal(size=d), rng.normal(size=d), np.array([3, 8, 8])
    support = own.support(rows)
    more, less = ((v,), (v[support],)) if name == "hessian_times" else ((), ())
    whole = getattr(plain, name)(z, *more, DensityBatch(rows, 2.0))
    assert support.size < d and not np.delete(whole, support).any()
    factor = np.full(support.size, 2.0)
    found = getattr(own, name)(z[support], *less, DensityBatch(rows, factor, support))
    np.testing.assert_allclose(found, whole[support])
    for batch in (None, DensityBatch(rows, 2.0)):
        np.testing.assert_allclose(
            getattr(own, name)(z, *more, batch), getattr(plain, name)(z, *more, batch)
        )


def test_derived_derivatives_are_by_the_support():
    pairs, d = skills_problem()
    model, rows = ShortSkills(pairs, d), np.array([3, 8, 8])
    known = Target(model, np.arange(60))
    model = ShortSkills(pairs, d)
    model.hessian_vector_product = model.hessian_diagonal = None
    derived, support = Target(model, np.arange(60)), known.support(rows)
    z, v = np.random.default_rng(0).normal(size=(2, support.size))
    batch = DensityBatch(rows, 1.0, support)
    for name, more in (("hessian_times", (v,)), ("hessian_diagonal", ())):
        a, b = (getattr(t, name)(z, *more, batch) for t in (known, derived))
        np.testing.assert_allclose(a, b, atol=1e-8)
    full = np.stack([known.hessian_times(np.zeros(d), axis) for axis in np.eye(d)])
    model.hessian = lambda parameters, indices: full
    found = Target(model, np.arange(60)).hessian_diagonal(z, batch)
    np.testing.assert_allclose(found, full.diagonal()[support])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["stochastic", "svrg", "saga", "batch"])
@pytest.mark.parametrize("model_class", [WideSkills, ShortSkills])
def test_the_same_answers(model_class, solver):
    plain = BradleyTerry(1.0, posterior="meanfield").fit(skills_problem()[0])
    model = fit(model_class, solver=solver, max_iter=15)
    q = plain.posterior_
    mean, std = (
        np.insert(part, 6, extra) for part, extra in ((q.mean, 0.0), (q.scale, 1.0))
    )
    assert model.elbo_ == pytest.approx(plain.elbo_, abs=0.1 + 3 * model.elbo_se_)
    assert (abs(model.mean_ - mean) < 0.2 * std).all()
    np.testing.assert_allclose(model.std_, std, rtol=0.1)


@pytest.mark.parametrize("optimizer", ["natural", "adam", "sgd"])
def test_an_epoch_leads_up_from_afar(optimizer):
    """And moves each parameter, those that no row depends on to their prior."""
    steps = steps_of(ShortSkills, move=optimizer)
    start = at(np.full(9, 2.0), np.full(9, np.exp(-2.0)))
    rng = np.random.default_rng(0)

    def bound(point):
        return steps.model.bound(point, np.random.default_rng(1).normal(size=(200, 9)))[
            0
        ]

    end = swept(steps, start, 0.05, rng)
    q = steps.model.posterior(end.parameters)
    assert bound(end) > bound(start.point) + 5.0
    assert (q.mean != 2.0).all()
    assert q.mean[6] == PRIOR.mean[6]
    assert q.scale[6] == pytest.approx(PRIOR.scale[6])
    visits = end.moments.visits
    assert visits[6] == 0 < visits[0] <= steps.n_batches
    assert start.point.moments is None  # an epoch that is taken back leaves nothing


def test_steps_leave_other_parameters_alone():
    """A model sees what it wants of a batch, and nothing else is drawn or moved."""
    steps = steps_of(WideSkills)
    rows = np.array([3, 8])
    batch = DensityBatch(
        rows, np.ones(steps.target.support(rows).size), steps.target.support(rows)
    )
    asked = []
    gradient = steps.target.model.gradient
    steps.target.model.gradient = lambda z, i: asked.append(z.copy()) or gradient(z, i)
    steps.target.rest(np.full(9, 7.0))
    steps.target.gradient(np.zeros(batch.support.size), batch)
    assert not asked[0][batch.support].any()
    assert (np.delete(asked[0], batch.support) == 7.0).all()


def test_a_prior_of_the_model_is_followed_by_all():
    """It may tie all parameters together: steps are those without a support."""
    pairs, d = skills_problem()

    def own(model_class):
        model = model_class(pairs, d)
        model.log_prior = lambda z: -0.5 * z @ z - 0.5 * d * np.log(2.0 * np.pi)
        model.log_prior_gradient = lambda z: -z
        return VI(model, solver="svrg", max_iter=5, tol=1.0, random_state=0).fit()

    assert Target(own(ShortSkills).model, np.arange(3)).sparse is False
    np.testing.assert_allclose(own(ShortSkills).mean_, own(Skills).mean_, atol=1e-8)


# What is wrong


@pytest.mark.parametrize(
    ("support", "message"),
    [
        (lambda s: s[::-1], "support of ShortSkills .* in order"),
        (lambda s: np.repeat(s, 2), "each once"),
        (lambda s: np.append(s, 9), "parameter 9 .* 0 to 8"),
        (lambda s: np.append(-1, s), "parameter -1 .* 0 to 8"),
        (lambda s: s.astype(float), "integers.* float64"),
        (lambda s: s[None], "integers"),
        (lambda s: ["a", "b"], "integers"),
        (lambda s: s[:-1], "log_likelihood of .* depends on parameter . in row 0"),
        (lambda s: [], "log_likelihood of .* depends on parameter . in row 0"),
        (lambda s: s if s.size < 3 else s[1:], "support of .* has parameter 0 for row"),
    ],
)
@pytest.mark.parametrize("solver", ["svrg", "batch"])
def test_wrong_supports(support, message, solver):
    model = fit(WideSkills, solver="batch")
    wrong = ShortSkills(*skills_problem())
    wrong.support = lambda rows: support(np.unique(wrong.pairs[rows]))
    wrong._gather = WideSkills(*skills_problem())._gather
    model.set_params(model=wrong, solver=solver)
    untouched = Untouched(model)
    with pytest.raises(ValueError, match=message):
        model.fit()
    untouched.check()


def test_derivatives_outside_the_support():
    model = WideSkills(*skills_problem())
    gradient = model.gradient

    def wrong(parameters, indices):
        return gradient(parameters, indices) + 1e-3 * (np.arange(9) == 6)

    model.gradient = wrong
    with pytest.raises(ValueError, match="is not zero by parameter 6 in row 0"):
        VI(model).fit()
    model.gradient = lambda parameters, indices: np.zeros(4)
    with pytest.raises(ValueError, match=r"\(9,\) or, of the support, \(8,\)"):
        VI(model).fit()
    model.gradient, model.support = gradient, 3
    with pytest.raises(TypeError, match=r"support .* must be a method"):
        VI(model).fit()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_that_depend_on_nothing():
    """A support may be empty, and that of a batch."""
    pairs, d = skills_problem()

    class Some(WideSkills):
        """The first half of the matches counts."""

        def log_likelihood(self, parameters, indices):
            return super().log_likelihood(parameters, indices) * (indices < 30)

        def support(self, indices):
            return np.unique(self.pairs[indices[indices < 30]])

        def _gather(self, indices, *sides):
            sides = (side * (indices < 30) for side in sides)
            return super()._gather(indices, *sides)[self.support(indices)]

    found = VI(Some(pairs, d), solver="svrg", batch_size=1, max_iter=9, random_state=0)
    plain = BradleyTerry(1.0, posterior="meanfield").fit(pairs[:30])
    assert found.fit().elbo_ == pytest.approx(plain.elbo_, abs=0.3)
