"""Transitions that change from row to row: segments of rows, and covariates."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone

from skvrem.hmm import (
    VRHMM,
    Bernoulli,
    Covariates,
    Gaussian,
    Hierarchical,
    Homogeneous,
    Product,
)
from skvrem.hmm._input import Sequences, fitted_parameters
from skvrem.hmm._model import HMMModel
from skvrem.hmm.forward_backward import _model_layout
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import long_run
from skvrem.hmm.forward_backward._source import SequenceSource
from tests.hmm.oracle import enumerate_paths, recursions
from tests.hmm.test_passes import run


def segments(lengths, n_coarse=2, n_fine=2, seed=0, rate=0.3, triangular=True):
    """Rows, a model of them with its parameters, and the oracle's transitions."""
    rng = np.random.default_rng(seed)
    n = n_coarse * n_fine
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    flags = (rng.random((bounds[-1], 1)) < rate).astype(float)
    X = rng.normal(size=(bounds[-1], 2))
    family = Hierarchical(n_coarse, n_fine, 0, upper_triangular=triangular).open(n)
    fine = rng.dirichlet(np.ones(n_fine), size=(n_coarse, n_fine))
    fine = fine * (np.triu(np.ones((n_fine, n_fine))) if triangular else 1.0)
    fine /= fine.sum(axis=2, keepdims=True)
    packed = family._join(rng.dirichlet(np.ones(n_coarse), size=n_coarse), fine)
    return rows_of(rng, X, bounds, flags, family, packed)


def rows_of(rng, X, bounds, inputs, family, packed):
    n, d = packed.shape[1], X.shape[1]
    emission = Gaussian().open(X, n)
    mean, variance = rng.normal(size=(n, d)), rng.uniform(0.5, 2.0, (n, d))
    source = SequenceSource(Sequences(X, bounds, inputs=inputs), emission, family)
    model = HMMModel(emission, source.features, None, family, 1.0)
    first = np.ones(n) if family.first is None else family.first.astype(float)
    start = rng.dirichlet(np.ones(n)) * first
    parameters = start / start.sum(), packed, np.hstack([mean, variance])
    joint = norm.logpdf(X[:, None], mean, np.sqrt(variance)).sum(axis=2)
    return source, model, parameters, joint


def matrices(family, packed, inputs):
    tables, which = family.tables(packed, inputs)
    return tables[which]


class _Parameters:
    def __init__(self, parameters):
        self.startprob, self.transmat, self.emission = parameters


def passes_of(source, model, parameters, beta=1.0):
    n_sequences = len(source.rows.bounds) - 1
    chain = model.chain(_Parameters(parameters), beta)
    layout = Layout(source.rows, np.arange(n_sequences), None)
    return layout, chain


@pytest.mark.parametrize("beta", [1.0, 0.4])
@pytest.mark.parametrize("shape", [(2, 2), (3, 1), (1, 3)])
def test_segments_against_enumeration(shape, beta):
    source, model, parameters, joint = segments([1, 6, 2, 5], *shape)
    layout, chain = passes_of(source, model, parameters, beta)
    found, _ = run(layout, chain)
    start, packed, _ = parameters
    flags = source.inputs
    total, gammas, pairs = 0.0, [], np.zeros_like(packed)
    bounds = source.rows.bounds
    for a, b in pairwise(bounds):
        steps = matrices(model.transitions, packed, flags[a : b - 1])
        one = enumerate_paths(joint[a:b], start, steps, beta)
        total += one[0]
        gammas.append(one[1])
        np.add.at(pairs, flags[a : b - 1, 0].astype(int), one[2])
    assert found[0] / beta == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(found[2], pairs, atol=1e-12)
    np.testing.assert_allclose(found[5], np.concatenate(gammas), atol=1e-12)


LENGTHS = {
    "one row": [1],
    "lanes cut a sequence": [3000],
    "rows short of lanes": [1025],
    "long and short": [1500, 1, 2, 3, 700, 1, 1, 900],
}


def compare(make, lengths):
    source, model, parameters, joint = make(lengths)
    layout, chain = passes_of(source, model, parameters)
    found, _ = run(layout, chain)
    start, packed, _ = parameters
    bounds, inputs = source.rows.bounds, source.inputs
    total, parts = 0.0, []
    for a, b in pairwise(bounds):
        steps = matrices(model.transitions, packed, inputs[a : b - 1])
        parts.append(recursions(joint[a:b], start, steps))
        total += parts[-1][0].sum()
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    close(found[0], total)
    for i, j in ((3, 0), (4, 1), (5, 2)):
        close(found[i], np.concatenate([part[j] for part in parts]))
    return source, model, parameters, found, parts


@pytest.mark.parametrize("rate", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_segments_against_recursions(lengths, rate, monkeypatch):
    monkeypatch.setattr(_model_layout, "GROUP_ROWS", 1200)
    make = partial(segments, rate=rate, triangular=False)
    source, _, parameters, found, parts = compare(make, lengths)
    pairs = np.zeros_like(parameters[1])
    bounds, flags = source.rows.bounds, source.inputs[:, 0].astype(int)
    for a, b, part in zip(bounds[:-1], bounds[1:], parts, strict=True):
        np.add.at(pairs, flags[a : b - 1], part[3])
    np.testing.assert_allclose(found[2], pairs, rtol=1e-9, atol=1e-9)


def dives(n_segments=60, length=20, seed=0):
    """Segments of two kinds, each of them down and up; the flag is the last column."""
    rng = np.random.default_rng(seed)
    kinds = np.repeat(rng.integers(2, size=n_segments), length)
    up = np.tile(np.arange(length) >= length // 2, n_segments)
    depth = (1 + 4 * kinds) * np.where(up, -1.0, 1.0)
    X = depth + 0.7 * rng.normal(size=len(kinds))
    ends = np.tile(np.arange(length) == length - 1, n_segments).astype(float)
    return np.column_stack([X, ends]), 2 * kinds + up


@pytest.fixture(scope="module")
def dived():
    X, states = dives()
    ids = np.repeat([0, 1, 2], 400)
    transitions = Hierarchical(2, 2, boundary=1, upper_triangular=True)
    model = VRHMM(4, transitions=transitions, random_state=0)
    model.fit(X, groups=ids)
    if model.means_[0, 0] > model.means_[2, 0]:
        model.relabel([2, 3, 0, 1])
    return model, X, ids, states


def test_segments_are_found(dived):
    model, X, ids, states = dived
    assert np.mean(model.predict(X, groups=ids) == states) > 0.99
    np.testing.assert_allclose(model.means_[:, 0], [1, -1, 5, -5], atol=0.2)
    assert not model.startprob_[1::2].any()
    within, fine = model.transmat_, model.transitions_.fine_transmat_
    assert not within[:2, 2:].any() and not within[2:, :2].any()
    assert not np.tril(within, -1).any()
    np.testing.assert_array_equal(fine[0], within[:2, :2])
    np.testing.assert_allclose(fine[:, 0, 1], 0.1, atol=0.02)
    # 1 first kind, 2 rows of kinds, 1 phase that goes on in each kind, 4 means, 4 sd
    assert model.n_parameters_ == 1 + 2 + 2 + 8
    kinds, flags = states // 2, X[:, 1] > 0
    inside = np.flatnonzero(flags[:-1] & (np.diff(ids) == 0))
    counts = np.zeros((2, 2))
    np.add.at(counts, (kinds[inside], kinds[inside + 1]), 1)
    np.testing.assert_allclose(
        model.transitions_.coarse_transmat_,
        counts / counts.sum(axis=1, keepdims=True),
        atol=1e-3,
    )


def test_answers_of_segments_agree_with_recursions(dived):
    model, X, ids, _ = dived
    parameters = fitted_parameters(model)
    mean, sd = model.means_, np.sqrt(model.emission_.covariance_)
    joint = norm.logpdf(X[:, :1], mean[:, 0], sd[:, 0])
    rows = ids == 1
    steps = parameters.transmat[X[rows, 1].astype(int)][:-1]
    shares, filtered, smoothed, _ = recursions(joint[rows], model.startprob_, steps)
    one = X[rows]
    np.testing.assert_allclose(model.score_samples(one), shares, atol=1e-10)
    np.testing.assert_allclose(model.filter_proba(one), filtered, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(one), smoothed, atol=1e-10)
    short = joint[rows][15:23]
    path, score = enumerate_paths(short, model.startprob_, steps[15:22])[3:]
    log_prob, states = model.decode(one[15:23])
    np.testing.assert_array_equal(states, path)
    assert log_prob == pytest.approx(score, rel=1e-12)


def test_segments_ahead(dived):
    model, X, *_ = dived
    packed = fitted_parameters(model).transmat
    cut = X[:35]  # in the middle of a segment
    last = model.filter_proba(cut)[-1]
    ahead = model.forecast(cut, 3)
    np.testing.assert_allclose(ahead.states[0, 0], last @ packed[0])
    np.testing.assert_allclose(
        ahead.states[0, 2], last @ np.linalg.matrix_power(packed[0], 3)
    )
    told = model.forecast(cut, 3, inputs=[[0], [1]])
    np.testing.assert_allclose(
        told.states[0, 2], last @ packed[0] @ packed[0] @ packed[1]
    )
    with pytest.raises(ValueError, match=r"of shape \(1, 2, 1\)"):
        model.forecast(cut, 3, inputs=[[0]])
    with pytest.raises(ValueError, match="must be 0 or 1"):
        model.forecast(cut, 3, inputs=[[0], [2]])
    residuals = model.pseudo_residuals(X)
    assert residuals.shape == (len(X), 1) and abs(residuals.std() - 1.0) < 0.05


def test_samples_of_segments(dived):
    model, X, *_ = dived
    drawn, states = model.sample(1200, random_state=0, inputs=X[:, 1])
    assert drawn.shape == (1200, 1)
    inside = X[:-1, 1] == 0
    assert (states[:-1][inside] // 2 == states[1:][inside] // 2).all()
    assert (states[1:][~inside] % 2 == 0).all()
    drawn = np.column_stack([drawn, X[:, 1]])
    again = clone(model).fit(drawn)
    assert again.score(drawn) == pytest.approx(model.score(drawn), abs=0.01)
    with pytest.raises(ValueError, match="give them as inputs"):
        model.sample(10)


def test_observed_boundaries():
    """Only last phases end segments, as in Sidrow et al., section 6."""
    X, _ = dives()
    emission = Product(
        [
            ("depth", Gaussian(), [0]),
            ("end", Bernoulli([[0.0], [np.nan], [0.0], [np.nan]]), [1]),
        ]
    )
    transitions = Hierarchical(2, 2, 1, upper_triangular=True, observed=True)
    model = VRHMM(4, emission=emission, transitions=transitions, random_state=0)
    model.fit(X)
    ends = model.emission_["end"].probability_[:, 0]
    np.testing.assert_allclose(ends, [0, 0.1, 0, 0.1], atol=0.03)
    drawn, states = model.sample(3000, random_state=0)
    flags = drawn[:-1, 1] > 0
    assert (states[:-1][flags] % 2 == 1).all() and (states[1:][flags] % 2 == 0).all()
    assert model.score(drawn) == pytest.approx(model.score(X), abs=0.05)
    # Without flags ahead, they come with the probabilities of the states.
    packed, state = fitted_parameters(model).transmat, model.filter_proba(X)[-1]
    state = state @ packed[1]  # the last row ends a segment
    expected = []
    for _ in range(3):
        expected.append(state)
        state = state @ ((1 - ends[:, None]) * packed[0] + ends[:, None] * packed[1])
    np.testing.assert_allclose(model.forecast(X, 3).states[0], expected, atol=1e-12)


def test_segments_in_a_stream():
    X, _ = dives(200)
    transitions = Hierarchical(2, 2, 1, upper_triangular=True)
    model = VRHMM(4, transitions=transitions, random_state=0)
    whole = clone(model).fit(X)
    model.partial_fit(X[:1010])
    for part in np.array_split(X[1010:], 7):
        model.partial_fit(part, continues=True)
    assert model.score(X) > whole.score(X) - 0.05
    # The flag of the last row is carried on: the sums are those of the whole.
    first = clone(whole).set_params(step_size=1e-9)
    vars(first).update(vars(whole))
    filtered = whole.filter_proba(X)
    first.set_params(step_size=1e-9).partial_fit(X[:1020])
    np.testing.assert_allclose(first._carried[0], filtered[1019], atol=1e-6)
    first.partial_fit(X[1020:1500], continues=True)
    np.testing.assert_allclose(first._carried[0], filtered[1499], atol=1e-6)


def test_kinds_have_masks_priors_and_starting_values():
    X, _ = dives()
    fixed = np.array([[0.875, 0.125], [np.nan, np.nan]])
    transitions = Hierarchical(
        2,
        2,
        1,
        coarse=Homogeneous(prior=1e6),
        fine=Homogeneous(fixed=[fixed, np.full((2, 2), np.nan)]),
    )
    model = VRHMM(4, transitions=transitions, random_state=0, n_init=2).fit(X)
    np.testing.assert_allclose(model.transitions_.coarse_transmat_, 0.5, atol=1e-3)
    np.testing.assert_array_equal(model.transmat_[0, :2], [0.875, 0.125])
    assert model.n_parameters_ == 1 + 2 + (1 + 2) + 8
    model.set_params(transitions__coarse__prior=1.0).fit(X)
    assert abs(model.transitions_.coarse_transmat_ - 0.5).max() > 1e-3


def test_segments_in_a_frame(dived):
    pd = pytest.importorskip("pandas")
    model, X, ids, _ = dived
    frame = pd.DataFrame({"end": X[:, 1], "who": ids.astype(str), "depth": X[:, 0]})
    named = clone(model).set_params(groups="who", transitions__boundary="end")
    named.fit(frame)
    assert named.score(frame) == pytest.approx(model.score(X, groups=ids), abs=1e-9)
    assert [c for c in named.summary() if "mean" in c] == ["depth mean"]
    with pytest.raises(ValueError, match="names a column of X"):
        named.set_params(transitions__boundary="stop").fit(frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": 3}, "has 4 states: set n_components to that, not to 3"),
        ({"transitions": Hierarchical(2, 2, 2)}, "Hierarchical=2 is the number of a"),
        ({"transitions": Hierarchical(2, 2, "end")}, "no data frame"),
        ({"transitions": Hierarchical(2, 2, 0)}, "must be 0 or 1"),
        ({"transitions": Hierarchical(2, 0, 1)}, "n_fine"),
        ({"transitions": Hierarchical(2, 2, 1, fine="any")}, "fine of Hierarchical"),
        ({"groups": 1}, "named twice"),
        ({"startprob": "stationary"}, "always the same"),
        ({"startprob_init": [0.25] * 4}, "cannot start in state 1"),
    ],
    ids=str,
)
def test_bad_segments(change, message):
    X, _ = dives(10)
    model = VRHMM(4, transitions=Hierarchical(2, 2, 1)).set_params(**change)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert vars(model) == before


def test_flags_must_be_known(dived):
    model, X, *_ = dived
    X = X.copy()
    X[7, 1] = np.nan
    with pytest.raises(ValueError, match="row 7 of column 1 is not finite"):
        model.predict(X)
    with pytest.raises(ValueError, match="move kinds as a whole"):
        clone(model).set_params(n_init=1).fit(dives()[0]).relabel([1, 0, 2, 3])


def test_no_other_parameters_near_are_better(dived):
    """The M step is closed: EM ends where the likelihood is stationary."""
    model, X, ids, _ = dived
    model = clone(model).set_params(tol=1e-10, solver="batch").fit(X, groups=ids)
    best = model.score(X, groups=ids)
    transitions = model.transitions_
    rng = np.random.default_rng(0)
    for name in ("coarse_transmat_", "fine_transmat_"):
        kept = getattr(transitions, name)
        for _ in range(10):
            near = kept * np.exp(0.05 * rng.normal(size=kept.shape))
            near /= near.sum(axis=-1, keepdims=True)
            setattr(transitions, name, near)
            assert model.score(X, groups=ids) <= best + 1e-10
        setattr(transitions, name, kept)


# Covariates


def explained(lengths, n=3, n_inputs=2, seed=0, mask=None):
    """Rows whose transitions depend on covariates, and a model of them."""
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    inputs = rng.normal(size=(bounds[-1], n_inputs)) * 3.0 + 100.0
    X = rng.normal(size=(bounds[-1], 2))
    family = Covariates(list(range(n_inputs)), mask=mask).open(n)
    family.prepare(inputs)
    packed = rng.normal(size=(n, n, 1 + n_inputs))
    packed[~family._varies] = 0.0
    return rows_of(rng, X, bounds, inputs, family, packed)


@pytest.mark.parametrize("beta", [1.0, 0.4])
@pytest.mark.parametrize(
    "mask", [None, "left-right", [[0, 1, 1], [1, 1, 0], [0, 1, 1]]]
)
def test_covariates_against_enumeration(mask, beta):
    source, model, parameters, joint = explained([1, 6, 2, 5], mask=mask)
    layout, chain = passes_of(source, model, parameters, beta)
    found, _ = run(layout, chain)
    start, packed, _ = parameters
    total, gammas, pairs, inputs = 0.0, [], [], source.inputs
    for a, b in pairwise(source.rows.bounds):
        steps = matrices(model.transitions, packed, inputs[a : b - 1])
        one = enumerate_paths(joint[a:b], start, steps, beta)
        total += one[0]
        gammas.append(one[1])
        pairs.append((one[2], inputs[a : b - 1]))
    assert found[0] / beta == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(found[5], np.concatenate(gammas), atol=1e-12)
    # The statistics: xi, and the expected log-likelihood with two derivatives.
    family = model.transitions
    sums = family.complete(found[2], packed)
    counts = sum(xi.sum(axis=0) for xi, _ in pairs)
    np.testing.assert_allclose(family._parts(sums)[0], counts, atol=1e-12)

    def expected(vector):
        coefficients = family.bind(vector, packed)
        value = 0.0
        for xi, z in pairs:
            p = matrices(family, coefficients, z)
            value += np.sum(xi[xi > 0] * np.log(p[xi > 0]))
        return value

    vector = family.free(packed)
    assert family.log_likelihood(sums, packed) == pytest.approx(expected(vector))
    family.alpha = 0.0
    step, eye = 1e-4, np.eye(len(vector))
    slope = [
        (expected(vector + step * e) - expected(vector - step * e)) / (2 * step)
        for e in eye
    ]
    np.testing.assert_allclose(family.slope(packed, sums), slope, atol=1e-6)
    for e in eye:  # the surrogate's curvature is that of what it stands for
        ahead, back = (family.bind(vector + s * e, packed) for s in (0.1, -0.1))
        surrogate = family.log_likelihood(sums, ahead)
        surrogate += family.log_likelihood(sums, back) - 2 * expected(vector)
        exact = expected(vector + step * e) + expected(vector - step * e)
        exact = (exact - 2 * expected(vector)) / step**2
        assert surrogate / 0.01 == pytest.approx(exact, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_covariates_against_recursions(lengths, monkeypatch):
    monkeypatch.setattr(_model_layout, "GROUP_ROWS", 1200)
    _, model, parameters, found, parts = compare(explained, lengths)
    sums = model.transitions.complete(found[2], parameters[1])
    counts = sum(part[3].sum(axis=0) for part in parts)
    np.testing.assert_allclose(
        model.transitions._parts(sums)[0], counts, rtol=1e-9, atol=1e-9
    )


def light(n_rows=3000, seed=0):
    """Two covariates, one in front and one behind the observed column, and states."""
    rng = np.random.default_rng(seed)
    Z = np.column_stack([rng.normal(20.0, 5.0, n_rows), rng.integers(2, size=n_rows)])
    intercept = np.array([[0.0, -6.0], [-1.0, 0.0]])
    coef = np.array([[[0.0, 0.0], [0.2, -1.0]], [[-0.1, 2.0], [0.0, 0.0]]])
    states = [0]
    for z, u in zip(Z[:-1], rng.random(n_rows - 1), strict=True):
        row = np.exp(intercept[states[-1]] + coef[states[-1]] @ z)
        states.append(int(u > row[0] / row.sum()))
    X = 3.0 * np.array(states) + rng.normal(size=n_rows)
    return np.column_stack([Z[:, 0], X, Z[:, 1]]), np.array(states), intercept, coef


@pytest.fixture(scope="module")
def lit():
    X, states, intercept, coef = light()
    model = VRHMM(2, transitions=Covariates([0, 2]), random_state=0, tol=1e-9)
    model.fit(X)
    model.relabel(np.argsort(model.means_[:, 0]))
    return model, X, states, intercept, coef


def test_coefficients_come_back(lit):
    model, X, _, _, coef = lit
    found = model.transitions_
    # Within three standard errors, roughly: sd / sqrt(rows * p (1 - p)).
    np.testing.assert_allclose(found.coef_, coef, atol=0.6)
    np.testing.assert_allclose(found.coef_[..., 0], coef[..., 0], atol=0.06)
    assert not found.coef_[[0, 1], [0, 1]].any()
    assert not np.diagonal(found.intercept_).any()
    assert model.n_parameters_ == 1 + 2 * 3 + 4
    assert model.converged_ and model.means_.shape == (2, 1)
    plain = VRHMM(2, random_state=0).fit(X[:, 1:2])
    assert model.score(X) > plain.score(X[:, 1:2]) + 0.01
    # The matrix at given covariates, and at their mean.
    shares = found.matrix(X[:, [0, 2]].mean(axis=0, keepdims=True))[0]
    np.testing.assert_allclose(shares, model.transmat_, atol=1e-12)
    logits = found.intercept_ + found.coef_ @ [25.0, 1.0]
    weight = np.exp(logits)
    np.testing.assert_allclose(
        found.matrix([[25.0, 1.0]])[0], weight / weight.sum(axis=1, keepdims=True)
    )
    with pytest.raises(ValueError, match="a column for each"):
        found.matrix([[25.0]])


def test_answers_of_covariates_agree_with_recursions(lit):
    model, X, *_ = lit
    steps = model.transitions_.matrix(X[:-1, [0, 2]])
    mean, sd = model.means_[:, 0], np.sqrt(model.emission_.covariance_[:, 0])
    joint = norm.logpdf(X[:, 1:2], mean, sd)
    shares, filtered, smoothed, _ = recursions(joint, model.startprob_, steps)
    np.testing.assert_allclose(model.score_samples(X), shares, atol=1e-9)
    np.testing.assert_allclose(model.filter_proba(X), filtered, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), smoothed, atol=1e-9)
    path, score = enumerate_paths(joint[:11], model.startprob_, steps[:10])[3:]
    log_prob, found = model.decode(X[:11])
    np.testing.assert_array_equal(found, path)
    assert log_prob == pytest.approx(score, rel=1e-12)
    ahead = model.forecast(X, 3, inputs=[[20, 0], [30, 1]]).states[0]
    last = model.transitions_.matrix([X[-1, [0, 2]], [20, 0], [30, 1]])
    state = filtered[-1]
    for matrix, row in zip(last, ahead, strict=True):
        state = state @ matrix
        np.testing.assert_allclose(row, state, atol=1e-9)
    same = model.forecast(X, 2).states[0]
    np.testing.assert_allclose(same[1], filtered[-1] @ last[0] @ last[0], atol=1e-9)


def test_every_step_with_covariates_goes_up():
    X, *_ = light(800, seed=1)
    model = VRHMM(
        2, transitions=Covariates([0, 2]), solver="batch", n_init=1, random_state=1
    ).fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.converged_


def without(array, *places):
    """NaN everywhere but in some places of an array."""
    given = np.full_like(array, np.nan)
    for place in places:
        given[place] = array[place]
    return given


@pytest.fixture(scope="module")
def unpenalised():
    X = light(1500, seed=3)[0]
    options = {"random_state": 0, "tol": 1e-10, "n_init": 1, "max_iter": 2000}
    options["startprob"] = [0.5, 0.5]
    free = VRHMM(2, transitions=Covariates([0, 2], alpha=0.0), **options).fit(X)
    return free.relabel(np.argsort(free.means_[:, 0])), X, options


@pytest.mark.parametrize("what", ["a slope", "an intercept", "one of each"])
def test_given_coefficients_are_kept(unpenalised, what):
    """Given those of the optimum, it is the optimum; given others, one is lower."""
    free, X, options = unpenalised
    fitted = free.transitions_
    fixed = {}
    if what != "an intercept":
        fixed["coef"] = without(fitted.coef_, (0, 1, 1))
    if what != "a slope":
        fixed["intercept"] = without(fitted.intercept_, (1, 0))
    emission = Gaussian(mean_init=free.means_)
    start = {"emission": emission, **options}
    same = VRHMM(2, transitions=Covariates([0, 2], alpha=0.0, **fixed), **start)
    same.fit(X)
    found = same.transitions_
    assert same.n_parameters_ == free.n_parameters_ - len(fixed)
    np.testing.assert_allclose(found.coef_, fitted.coef_, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(found.intercept_, fitted.intercept_, rtol=2e-3)
    assert same.score(X) == pytest.approx(free.score(X), abs=1e-7)
    limits = same.confidence_intervals(X)
    for name, values in fixed.items():
        own = getattr(found, f"{name}_")
        given = ~np.isnan(values)
        np.testing.assert_array_equal(own[given], values[given])
        for part in (limits.lower, limits.upper):
            ends = part.transmat[..., 1:] if name == "coef" else part.transmat[..., 0]
            np.testing.assert_array_equal(ends[given], values[given])
    other = {name: values + 0.3 for name, values in fixed.items()}
    moved = VRHMM(2, transitions=Covariates([0, 2], alpha=0.0, **other), **start)
    moved.fit(X)
    assert moved.score(X) < free.score(X) - 1e-5
    # They go where the states go.
    before, matrix = moved.score(X), moved.transitions_.matrix([[20.0, 1.0]])[0]
    moved.relabel([1, 0])
    assert moved.score(X) == pytest.approx(before, abs=1e-12)
    again = moved.transitions_.matrix([[20.0, 1.0]])[0]
    np.testing.assert_allclose(again, matrix[::-1, ::-1], atol=1e-12)
    warm = moved.set_params(warm_start=True, max_iter=3).fit(X)
    assert warm.score(X) > before - 1e-8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["svrg", "saga", "stochastic", "incremental"])
@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_every_solver_keeps_given_coefficients(unpenalised, solver, slope):
    _, X, options = unpenalised
    coef = np.full((2, 2, 2), np.nan)
    coef[0, 1, 0] = slope
    transitions = Covariates([0, 2], coef=coef)
    model = VRHMM(2, transitions=transitions, **options)
    model.set_params(solver=solver, max_iter=5).fit(X)
    found = model.transitions_.coef_
    assert found[0, 1, 0] == slope
    assert np.isfinite(found).all() and found[0, 1, 1] != 0.0 and found[1, 0].all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_starting_coefficients(unpenalised):
    free, X, options = unpenalised
    fitted = free.transitions_
    near = Covariates([0, 2], alpha=0.0, init=free.transmat_, coef_init=fitted.coef_)
    emission = Gaussian(
        mean_init=free.means_, covariance_init=free.emission_.covariance_
    )
    model = VRHMM(2, emission=emission, transitions=near, **options | {"max_iter": 1})
    model.set_params(solver="batch", acceleration=None, tol=0.0).fit(X)
    assert model.history_["objective"][0] > free.objective_ - 1e-3


def test_given_coefficients_make_a_model_without_rows(unpenalised):
    free, X, _ = unpenalised
    fitted = free.transitions_
    transitions = Covariates([1, 2], intercept=fitted.intercept_, coef=fitted.coef_)
    model = VRHMM(
        2,
        emission=Gaussian(mean=free.means_, covariance=free.emission_.covariance_),
        transitions=transitions,
        startprob=free.startprob_,
    )
    X = X[:, [1, 0, 2]]
    assert model.score(X) == pytest.approx(free.score(X[:, [1, 0, 2]]), abs=1e-12)
    drawn, states = model.sample(50, random_state=0, inputs=X[:50, 1:])
    assert drawn.shape == (50, 1) and set(states) == {0, 1}
    assert not hasattr(model, "transitions_")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coef": np.zeros((2, 2, 3))}, "coef of Covariates must be numbers of shape"),
        ({"intercept": [[0.0, np.inf], [0.0, 0.0]]}, "must be finite"),
        ({"intercept": [[1.0, np.nan], [np.nan, 0.0]]}, "must be 0 or NaN where"),
        ({"coef_init": "high"}, "coef_init of Covariates must be numbers"),
    ],
)
def test_coefficients_that_cannot_be_given(unpenalised, given, message):
    _, X, options = unpenalised
    model = VRHMM(2, transitions=Covariates([0, 2], **given), **options)
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert not hasattr(model, "transmat_")


def at(row, column, value, shape=(3, 3)):
    array = np.full(shape, np.nan)
    array[row, column] = value
    return array


def with_one_fixed(mask):
    """Transitions of which a value from state 0 to state 2 is fixed."""
    return {
        "fixed": lambda value: Homogeneous(mask, fixed=at(0, 2, value)),
        "intercept": lambda value: Covariates(
            [1], mask=mask, intercept=at(0, 2, value)
        ),
        "coef": lambda value: Covariates(
            [1], mask=mask, coef=at(0, 2, value, (3, 3, 1))
        ),
    }


BANDED = np.triu(np.tri(3, k=1, dtype=bool))


@pytest.mark.parametrize("mask", ["left-right", BANDED], ids=["left-right", "array"])
@pytest.mark.parametrize("name", with_one_fixed(None))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_fixed_is_not_lost_under_a_mask(name, mask):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.repeat([0.0, 5.0, 9.0], 40), rng.normal(size=120)])
    X[:, 0] += rng.normal(size=120)
    make = with_one_fixed(mask)[name]
    model = VRHMM(3, transitions=make(0.2), random_state=0, n_init=1, max_iter=3)
    message = f"{name} of .* is 0.2 from state 0 to state 2, where mask.* allows no"
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert not hasattr(model, "transmat_")
    model.set_params(transitions=make(0.0)).fit(X)
    state = {key: value for key, value in vars(model).items() if key.endswith("_")}
    assert model.transmat_[0, 2] == 0.0
    model.set_params(transitions=make(0.2))
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert all(vars(model)[key] is value for key, value in state.items())


def test_what_is_fixed_of_phases_is_not_lost():
    X = np.random.default_rng(0).normal(size=(40, 2)) > 0.0
    fixed = Homogeneous(fixed=at(1, 0, 0.2, (2, 2)))
    back = Homogeneous(np.ones((2, 2), bool))
    for part, message in (
        ({"fine": fixed}, "fine of Hierarchical with upper_triangular=True: fixed of"),
        ({"fine": back}, "upper_triangular=True of Hierarchical .* mask of `fine`"),
        (
            {"coarse": Homogeneous("left-right", fixed=at(1, 0, 0.2, (2, 2)))},
            "coarse of Hierarchical: fixed of Homogeneous is 0.2 from state 1 to",
        ),
    ):
        family = Hierarchical(2, 2, 1, upper_triangular=True, **part)
        with pytest.raises(ValueError, match=message):
            VRHMM(4, transitions=family).fit(X.astype(float))
    Hierarchical(2, 2, 1, fine=fixed).open(4)
    own = Homogeneous("left-right")
    Hierarchical(2, 2, 1, upper_triangular=True, fine=own).open(4)


def test_starting_values_under_a_mask_share_what_is_left():
    init = np.full((3, 3), 1.0 / 3.0)
    family = Homogeneous("left-right", fixed=at(1, 1, 0.8), init=init).open(3)
    expected = [[0.5, 0.5, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]]
    np.testing.assert_allclose(family.start_counts(np.zeros((3, 3))), expected)


def test_a_sample_with_covariates(lit):
    model, X, *_ = lit
    drawn, states = model.sample(3000, random_state=0, inputs=X[:, [0, 2]])
    assert drawn.shape == (3000, 1)
    shares = model.transitions_.matrix(X[:-1, [0, 2]])
    expected = shares[np.arange(2999), states[:-1], 1]
    assert abs(np.mean(states[1:] - expected)) < 0.03
    with pytest.raises(ValueError, match=r"of shape \(5, 2\)"):
        model.sample(5)


def test_states_with_covariates_in_another_order(lit):
    model, X, *_ = lit
    other = clone(model).set_params(max_iter=5, n_init=1, tol=1.0, n_components=3)
    other.set_params(transitions__mask=[[0, 1, 1], [1, 1, 0], [1, 1, 1]])
    other.fit(X)
    score, matrix = other.score(X), other.transitions_.matrix([[20.0, 1.0]])[0]
    order = [2, 0, 1]
    other.relabel(order)
    assert other.score(X) == pytest.approx(score, abs=1e-12)
    again = other.transitions_.matrix([[20.0, 1.0]])[0]
    np.testing.assert_allclose(again, matrix[np.ix_(order, order)], atol=1e-12)
    other.partial_fit(X)  # from the sums, which have another order as well
    assert other.score(X) >= score - 1e-3


def test_covariates_in_a_stream_and_from_the_last_solution(lit):
    model, X, *_ = lit
    stream = VRHMM(2, transitions=Covariates([0, 2]), random_state=0)
    stream.partial_fit(X[:600])
    for part in np.array_split(X[600:], 8):
        stream.partial_fit(part, continues=True)
    assert stream.score(X) > model.score(X) - 0.03
    kept = clone(model).set_params(step_size=1e-9)
    vars(kept).update({k: v for k, v in vars(model).items() if k.endswith("_")})
    vars(kept).update(_sums=model._sums, step_size=1e-9)
    filtered = model.filter_proba(X)
    kept.partial_fit(X[:700]).partial_fit(X[700:1500], continues=True)
    np.testing.assert_allclose(kept._carried[0], filtered[1499], atol=1e-6)
    warm = clone(model).set_params(warm_start=True, tol=1e-7).fit(X)
    assert warm.fit(X[:2000]).n_iter_ < 10
    with pytest.raises(ValueError, match="cannot be gone on from"):
        warm.set_params(transitions=None).fit(X)


def test_covariates_that_say_nothing():
    """A constant column, and a transition that never happens, keep all finite."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [8.0]], 100, axis=0) + rng.normal(size=(200, 1))
    X = np.column_stack([X, np.full(200, 7.0), rng.normal(size=200)])
    model = VRHMM(2, transitions=Covariates([1, 2]), random_state=0, max_iter=3000)
    model.fit(X)
    assert np.isfinite(model.transitions_.coef_).all()
    assert np.isfinite(model.score(X)) and model.converged_


@pytest.mark.parametrize(
    ("transitions", "message"),
    [
        (Covariates([3]), "which has 3 columns"),
        (Covariates([]), "must be a list of names or numbers"),
        (Covariates("light"), "must be a list"),
        (Covariates([0, 0]), "named twice"),
        (Covariates([0], alpha=-1), "alpha"),
        (Covariates([0], mask="right"), "left-right"),
    ],
    ids=str,
)
def test_bad_covariates(transitions, message):
    X, *_ = light(50)
    with pytest.raises(ValueError, match=message):
        VRHMM(2, transitions=transitions).fit(X)


# Solvers and intervals


@pytest.mark.parametrize(
    "solver",
    [
        {"acceleration": "lbfgs"},
        {"solver": "incremental"},
        {"solver": "incremental", "batch_size": 90},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["segments", "covariates"])
def test_all_solvers_come_to_one_optimum(kind, solver):
    if kind == "segments":
        X, n, transitions = dives()[0], 4, Hierarchical(2, 2, 1, upper_triangular=True)
        means = [[1.0], [-1.0], [5.0], [-5.0]]
    else:
        X, n, transitions = light(1200)[0], 2, Covariates([0, 2])
        means = [[0.0], [3.0]]
    model = VRHMM(
        n,
        emission=Gaussian(mean_init=means, covariance_init=np.ones((n, 1))),
        transitions=transitions,
        n_init=1,
        tol=1e-9,
        max_iter=2000,
        random_state=0,
    )
    best = clone(model).set_params(solver="batch").fit(X, lengths=[500, 1, 699])
    found = clone(model).set_params(**solver).fit(X, lengths=[500, 1, 699])
    assert found.converged_
    assert found.log_likelihood_ == pytest.approx(best.log_likelihood_, abs=1e-6)
    np.testing.assert_allclose(found.transmat_, best.transmat_, atol=2e-2)


def test_intervals_of_coefficients(lit):
    model, X, _, intercept, coef = lit
    with pytest.warns(UserWarning, match="say nothing"):  # of the first state
        found = model.confidence_intervals(X)
    errors = found.standard_error.transmat
    assert not errors[[0, 1], [0, 1]].any()
    truth = np.concatenate([intercept[..., None], coef], axis=2)
    centre = np.concatenate(
        [model.transitions_.intercept_[..., None], model.transitions_.coef_], axis=2
    )
    off = ~np.eye(2, dtype=bool)
    z = (centre - truth)[off] / errors[off]
    assert np.abs(z).max() < 3.5 and np.abs(z).max() > 0.1
    np.testing.assert_allclose(
        found.upper.transmat[off], (centre + 1.959964 * errors)[off], rtol=1e-5
    )


def test_updates_of_stationary_chains_are_short(monkeypatch):
    """Some evaluations do for each, which climbs, and some tens lead to the top."""
    from skvrem.hmm.transitions import _homogeneous

    calls, long_run = [], _homogeneous.long_run
    monkeypatch.setattr(
        _homogeneous, "long_run", lambda P: calls.append(0) or long_run(P)
    )
    rng, n = np.random.default_rng(0), 4
    for most in (1.0, 60.0):
        counts = rng.uniform(50.0, 900.0, (n, 1)) * rng.dirichlet(np.ones(n), n)
        first = rng.uniform(0.0, most, n)
        transitions = Homogeneous()
        transitions.open(n)

        def value(P, counts=counts, first=first):
            return np.vdot(counts, np.log(P)) + first @ np.log(long_run(P)[0])

        found, seen = np.full((n, n), 1.0 / n), []
        calls.clear()
        while len(seen) < 2 or seen[-1] > seen[-2]:
            found = transitions.maximize_stationary(counts, first, found)
            seen.append(value(found))
            assert len(seen) > 1 or len(calls) < 12
            assert len(calls) < 60
        # The first has gained nearly all there is.
        before = value(np.full((n, n), 1.0 / n))
        assert seen[0] - before > 0.999 * (seen[-1] - before)
        assert np.abs(transitions.slope(found, counts, first)).max() < 1e-4


def test_the_long_run_of_states_that_never_meet():
    """It is the shortest of those that stay, and changes of it are finite."""
    apart = np.array([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]])
    first, last = np.array([0.75, 0.25, 0.0]), np.array([0.0, 0.0, 1.0])
    share = first @ first / (1.0 + first @ first)  # of the last, of the least square
    for linked in (0.0, 1e-15):
        transmat = apart + linked * np.array([[-1, 0, 1], [0, 0, 0], [1, 0, -1]])
        delta, inverse = long_run(transmat)
        assert np.abs(inverse).max() < 1e3
        np.testing.assert_allclose(delta @ transmat, delta, atol=1e-12)
        if not linked:
            np.testing.assert_allclose(delta, (1.0 - share) * first + share * last)
    np.testing.assert_allclose(long_run(np.eye(4))[0], 0.25)
