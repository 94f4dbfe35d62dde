"""What a stream keeps of its rows, and where it ends."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.data import KeptRows, StreamRows, as_source
from skvrem.vi.gaussian._model_families import (
    FINER,
    MANY_PAIRS,
    PoissonCounts,
    Softmax,
)
from skvrem.vi.glm import _estimator
from skvrem.vi.glm.streams import _gram, _memory


# Classes that a first batch separates leave fits with less to gain than they can tell.
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.StalledWarning")
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
@pytest.mark.parametrize("kept", [1000, 200])
@pytest.mark.parametrize("layout", [np.asarray, csr_array])
def test_streams_end_near_a_fit_in_whatever_order(posterior, kept, layout, monkeypatch):
    monkeypatch.setattr(_memory, "KEPT", kept)
    monkeypatch.setattr(_memory, "MOST_BYTES", 0)  # so many rows, then a sample
    data = np.random.default_rng(0)
    rows = data.normal(size=(1000, 4))
    p = 1.0 / (1.0 + np.exp(-rows @ [2.0, -1.0, 0.5, 0.0]))
    labels = (data.random(1000) < p).astype(int)
    model = BayesianLogisticRegression(1.0, posterior=posterior)
    whole = clone(model).fit(layout(rows), labels)

    def stream(order, begun=0):
        last = clone(model)
        if begun:
            last.fit(layout(rows[order[:begun]]), labels[order[:begun]])
        for part in np.array_split(order[begun:], 10):
            last.partial_fit(layout(rows[part]), labels[part], classes=[0, 1])
        far = np.abs((last.coef_ - whole.coef_) / whole.coef_std_).max()
        spread = np.abs(np.log(last.coef_std_ / whole.coef_std_)).max()
        return far, spread, last.score(rows, labels)

    in_order = np.argsort(labels, kind="stable")
    for order, begun in ((np.arange(1000), 0), (np.arange(1000), 300), (in_order, 0)):
        far, spread, accuracy = stream(order, begun)
        limits = (0.02, 0.02) if kept == 1000 else (0.5, 0.1)
        if kept < 1000 and order is in_order:
            limits = 4.0, 0.5
        assert far < limits[0] and spread < limits[1]
        assert abs(accuracy - whole.score(rows, labels)) < 0.01


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.StalledWarning")
@pytest.mark.parametrize("begun", [0, 400])
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
def test_small_batches_add_up_to_a_move(posterior, begun, monkeypatch):
    """Where none of them moves the posterior far, all of one class do."""
    monkeypatch.setattr(_memory, "KEPT", 300)
    monkeypatch.setattr(_memory, "MOST_BYTES", 0)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 5))
    p = 1.0 / (1.0 + np.exp(-rows @ [2.0, -1.0, 0.5, 0.0, 0.0]))
    labels = (rng.random(2000) < p).astype(int)
    order = np.argsort(labels, kind="stable")
    model = BayesianLogisticRegression(1.0, posterior=posterior)
    whole, stream = clone(model).fit(rows, labels), clone(model)
    order = np.concatenate([np.arange(begun), order[order >= begun]])
    if begun:
        stream.fit(rows[:begun], labels[:begun])
    for part in np.array_split(order[begun:], (2000 - begun) // 5):
        stream.partial_fit(rows[part], labels[part], classes=[0, 1])
    losses = [log_loss(labels, one.predict_proba(rows)) for one in (whole, stream)]
    assert losses[1] < losses[0] + 0.03


def test_what_is_kept_of_a_stream(monkeypatch):
    monkeypatch.setattr(_memory, "MOST_BYTES", 48_000)  # 1200 rows
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(3000, 2)), np.arange(3000) % 2
    model = BayesianLogisticRegression()
    for part in np.array_split(np.arange(3000), 6):
        model.partial_fit(rows[part], labels[part], classes=[0, 1])
        memory = model._memory.kept
        assert memory.n_seen == model.n_samples_seen_
        assert memory.are_all == (memory.n_seen <= 1000)
        assert min(memory.n_seen, 1000) <= memory.n_kept <= 1200
    # Rows of each batch, with their own targets.
    kept = memory.whole()
    place = (rows[:, None, 0] == kept.rows[:, 0]).argmax(axis=0)
    np.testing.assert_array_equal(kept.rows, rows[place])
    np.testing.assert_array_equal(kept.targets, labels[place])
    assert len(np.unique(place)) == len(place)
    in_parts = np.histogram(place, 6, (0, 3000), weights=kept.share)[0]
    assert abs(in_parts - 500).max() < 50
    again = pickle.loads(pickle.dumps(model))
    for one in (model, again):
        one.partial_fit(rows[:50] + 3.0, labels[:50])
    np.testing.assert_array_equal(again.coef_, model.coef_)
    # A pickled fit has no rows, and its posterior is what a stream goes on from.
    fitted = pickle.loads(pickle.dumps(BayesianLogisticRegression().fit(rows, labels)))
    fitted.partial_fit(rows[:500], labels[:500])
    assert fitted._memory.kept.n_seen == 500 and fitted.n_samples_seen_ == 3500
    assert not hasattr(model.fit(rows, labels), "_memory")


@pytest.mark.parametrize("layout", [np.asarray, csr_array])
def test_a_sample_has_the_sums_of_all_rows_on_average(layout):
    """Of any function of rows, and rows that matter more are seldom left out."""
    rng, sums, n_far = np.random.default_rng(0), [], 0
    rows, weight = rng.normal(size=(1000, 3)), rng.uniform(0.0, 2.0, 1000)
    rows[::100] *= 30.0
    weight[::7] = 0.0

    def spread_of(some):
        return np.square(some @ np.ones(3)) + np.square(some[:, [1]] @ np.ones(1))

    def sums_of(some, times):
        return times @ np.column_stack([np.ones(len(some)), some, some**2])

    for seed in range(300):
        order, stream = np.random.default_rng(seed).permutation(1000), StreamRows()
        for part in np.split(order, [300, 301, 450]):
            data = as_source(layout(rows[part]), weight[part])
            stream = stream.after(data, part, 0, 200, spread_of)
        kept = stream.whole()
        assert stream.n_seen == 1000 and stream.n_kept <= 200 and not stream.are_all
        np.testing.assert_array_equal(kept.weight, weight[kept.targets])
        sums.append(sums_of(rows[kept.targets], kept.weight * kept.share))
        n_far += np.isin(kept.targets, np.arange(0, 1000, 100)).sum()
    mean, error = np.mean(sums, axis=0), np.std(sums, axis=0) / np.sqrt(300)
    assert (abs(mean - sums_of(rows, weight)) < 4.0 * error).all()
    # Of ten, two have no weight: in a uniform sample were 1.6.
    assert n_far / 300 > 6.0


def test_a_batch_costs_by_its_own_size():
    """Rows kept before are copied as often as their number has doubled."""
    stream, n_copied = StreamRows(), 0
    for start in range(0, 2000, 2):
        part = np.arange(start, start + 2)
        data, before = as_source(part[:, None] * 1.0), stream.parts
        stream = stream.after(data, part, np.inf, 0, None)
        n_copied += sum(
            part.n_rows
            for part in stream.parts
            if not any(part is other for other in before)
        )
    np.testing.assert_array_equal(stream.whole().targets, np.arange(2000))
    assert stream.are_all and n_copied < 2000 * 12 and len(stream.parts) < 12


@pytest.mark.parametrize("family", ["logistic", "poisson", "negative-binomial"])
def test_streams_of_many_rows_end_at_the_fit(family):
    """In order, and where rows far out have much of the information."""
    rng = np.random.default_rng(0)
    rows = rng.standard_t(3, size=(4000, 3)).clip(-15.0, 15.0)
    z = rows @ [0.3, -0.2, 0.1] - 0.5
    if family == "logistic":
        model, y = BayesianLogisticRegression(1.0), 1.0 * (rng.logistic(size=4000) < z)
        known = {"classes": [0.0, 1.0]}
    else:
        model, y = BayesianGLMRegressor(family, prior_scale=1.0), rng.poisson(np.exp(z))
        known = {}
    order = np.argsort(y, kind="stable")
    whole, stream = clone(model).fit(rows, y), clone(model)
    for part in np.array_split(order, 40):
        stream.partial_fit(rows[part], y[part], **known)
    far = abs(stream.coef_ - whole.coef_) / whole.coef_std_
    assert far.max() < 0.1
    assert abs(np.log(stream.coef_std_ / whole.coef_std_)).max() < 0.05
    assert stream._memory.kept.are_all


def test_each_group_has_a_sample_of_its_own():
    rng, kept = np.random.default_rng(0), KeptRows()
    ids = np.array(["many", "some", "one"])
    group = ids[np.append(rng.choice(2, 2000, p=[0.9, 0.1]), 2)]
    rows = np.arange(2001.0)[:, None]
    for part, most in zip(
        np.array_split(np.arange(2001), 4), (90, 90, 80, 80), strict=True
    ):
        data = as_source(rows[part], None)
        kept = kept.after(data, part, most, group[part])
    np.testing.assert_array_equal(kept.rows[:, 0], kept.targets)
    np.testing.assert_array_equal(kept.groups, group[kept.targets])
    for name, n in zip(ids, (80, 80, 1), strict=True):
        here = kept.groups == name
        assert here.sum() == n
        np.testing.assert_allclose(kept.share[here].sum(), (group == name).sum())
    in_parts = np.histogram(kept.targets[kept.groups == "many"], 4)[0]
    assert abs(in_parts - 20).max() < 12
    assert kept.n_seen == 2001 and not kept.are_all


def test_a_sample_taken_out_and_put_back_changes_nothing():
    """What is left, and the sample's own expansion, are the posterior."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(800, 3)), rng.integers(2, size=800)
    for posterior in ("fullrank", "meanfield"):
        model = BayesianLogisticRegression(posterior=posterior).fit(rows, labels)
        memory = model._memory_before()
        # Few, so that some of the posterior is left.
        kept = memory.kept.whole().some(np.arange(100))
        q, about = model.posterior_, (model._family(100, model), True)
        some = memory.kept._replace(parts=(kept,))
        left = memory._replace(kept=some)._without(q, *about)
        source = as_source(kept.rows, None)
        slope, curvature = _memory._sums(q, *about, source, kept.targets)
        if posterior == "meanfield":
            curvature = np.diag(curvature)
        precision = left.precision + curvature
        np.testing.assert_allclose(precision, q.precision, rtol=1e-6, atol=1e-6)
        towards = left.precision @ left.mean + slope + curvature @ q.mean
        np.testing.assert_allclose(towards, q.precision @ q.mean, atol=1e-6)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("layout", [np.asarray, csr_array])
def test_a_regression_in_parts_is_that_of_all_rows(layout, intercept, monkeypatch):
    """The noise that is learnt as well, in any order, with weights and offsets."""
    monkeypatch.setattr(_gram, "AT_ONCE", 40)
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(2.0, 1.0, size=(300, 3)), rng.uniform(0.0, 2.0, 300)
    offset = rng.normal(size=300)
    targets = rows @ [1.0, -2.0, 0.5] + 4.0 + offset + 0.7 * rng.normal(size=300)
    model = BayesianGLMRegressor(prior_scale=2.0, fit_intercept=intercept, tol=1e-8)
    model.set_params(intercept_prior_scale=5.0)
    given = {"sample_weight": weight, "offset": offset}
    whole = clone(model).fit(layout(rows), targets, **given)
    order, stream = np.argsort(targets), clone(model)
    for part in np.split(order, [4, 50, 170]):
        own = {name: values[part] for name, values in given.items()}
        stream.partial_fit(layout(rows[part]), targets[part], **own)
        stream = pickle.loads(pickle.dumps(stream))
    assert len(stream._memory.rows) == 5 and stream.n_samples_seen_ == 300
    for name in ("coef_", "coef_std_", "intercept_", "noise_scale_", "noise_df_"):
        found, wanted = getattr(stream, name), getattr(whole, name)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    # A fit is gone on from by its rows, and a pickled one by its posterior.
    begun = clone(model).fit(rows[:200], targets[:200] - offset[:200])
    ends = [
        one.partial_fit(rows[200:], (targets - offset)[200:])
        for one in (pickle.loads(pickle.dumps(begun)), begun)
    ]
    plain = clone(model).fit(rows, targets - offset)
    np.testing.assert_allclose(ends[1].noise_scale_, plain.noise_scale_, rtol=1e-6)
    np.testing.assert_allclose(ends[0].noise_scale_, plain.noise_scale_, rtol=0.05)
    np.testing.assert_allclose(ends[0].coef_, plain.coef_, rtol=0.05)


def test_counts_with_offsets_and_without():
    rng = np.random.default_rng(0)
    rows, offset = rng.normal(size=(200, 2)), np.log(rng.uniform(1.0, 5.0, 200))
    counts = rng.poisson(np.exp(rows @ [0.5, -0.3] + offset))
    rest = rng.poisson(np.exp(rows @ [0.5, -0.3]))
    stream = BayesianGLMRegressor("poisson", prior_scale=1.0, intercept_prior_scale=1.0)
    whole = clone(stream).fit(
        np.concatenate([rows, rows]),
        np.concatenate([counts, rest]),
        offset=np.concatenate([offset, np.zeros(200)]),
    )
    stream.partial_fit(rows, counts, offset=offset).partial_fit(rows, rest)
    np.testing.assert_allclose(stream.coef_, whole.coef_, atol=1e-3)
    stream.partial_fit(rows, counts, offset=offset)
    assert stream._memory.kept.whole().targets.shape == (600, 2)


@pytest.mark.parametrize("size", [1, 10])
def test_counts_of_a_stream_may_begin_with_fewer_rows_than_features(size):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 30))
    counts = rng.poisson(np.exp(1.0 + rows @ rng.normal(size=30) / 6.0))
    stream = BayesianGLMRegressor("poisson", prior_scale=3.0)
    for start in range(0, 150, size):
        part = slice(start, start + size)
        stream.partial_fit(rows[part], counts[part])
    whole = BayesianGLMRegressor("poisson", prior_scale=3.0).fit(rows, counts)
    far = abs(stream.coef_ - whole.coef_) / whole.coef_std_
    assert far.max() < 0.2


@pytest.mark.parametrize(
    "model",
    [
        BayesianLogisticRegression(),
        BayesianGLMRegressor("poisson", prior_scale=1.0, intercept_prior_scale=1.0),
        BayesianGLMRegressor(),
    ],
)
def test_arrays_of_a_batch_may_be_used_again(model):
    """What has been seen of them is kept, not the arrays."""
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(60, 3)), np.arange(60.0) % 2
    weight = rng.uniform(0.5, 1.5, 60)
    streams, known = [clone(model), clone(model)], {}
    if isinstance(model, BayesianLogisticRegression):
        known = {"classes": [0.0, 1.0]}
    used = [part[:4].copy() for part in (rows, targets, weight)]
    for start in range(0, 60, 4):
        batch = [part[start : start + 4].copy() for part in (rows, targets, weight)]
        for own, new in zip(used, batch, strict=True):
            own[:] = new
        for stream, (X, y, w) in zip(streams, (batch, used), strict=True):
            stream.partial_fit(X, y, sample_weight=w, **known)
    np.testing.assert_array_equal(streams[0].coef_, streams[1].coef_)


@pytest.mark.parametrize("size", [10, 100])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_few_counts_do_not_tell_how_much_they_vary(size, ordered, monkeypatch):
    monkeypatch.setattr(_memory, "KEPT", 500)
    monkeypatch.setattr(_memory, "MOST_BYTES", 0)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1500, 5))
    rate = np.exp(1.0 + rows @ rng.normal(size=5) / 3.0)
    counts = rng.negative_binomial(2, 2.0 / (2.0 + rate)).astype(float)
    whole = BayesianGLMRegressor("negative-binomial").fit(rows, counts)
    stream, order = clone(whole), np.arange(1500)
    if ordered:
        order = np.argsort(counts, kind="stable")
    for part in np.array_split(order, 1500 // size):
        stream.partial_fit(rows[part], counts[part])
    far = abs(stream.coef_ - whole.coef_) / whole.coef_std_
    off = abs(np.log(stream.concentration_ / whole.concentration_))
    assert far.max() < (3.0 if ordered else 0.3)
    assert off < (0.5 if ordered else 0.2)


@pytest.mark.parametrize("seed", [0, 1])
def test_counts_may_come_after_zeros(seed):
    """Of which all rows are kept no more, and that tell nothing of how counts vary."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(4200, 2))
    mean = np.exp(1.0 + 0.5 * rows[:, 0])
    counts = rng.negative_binomial(1, 1.0 / (1.0 + mean)).astype(float)
    counts[:1200] = 0.0
    whole = BayesianGLMRegressor("negative-binomial").fit(rows, counts)
    stream = clone(whole)
    for start in range(0, 4200, 100):
        part = slice(start, start + 100)
        stream.partial_fit(rows[part], counts[part])
    assert abs(stream.intercept_ - whole.intercept_) < 3.0 * whole.intercept_std_
    assert (abs(stream.coef_ - whole.coef_) < 3.0 * whole.coef_std_).all()
    assert abs(np.log(stream.concentration_ / whole.concentration_)) < 0.3


@pytest.mark.parametrize("seed", [1, 2])
def test_rare_counts_of_a_stream_have_their_rate(seed):
    """Where a batch has one or two counts, and none tells how much they vary."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20_000, 4))
    counts = rng.poisson(np.exp(-7.0 + rows @ [0.5, -0.3, 0.8, 0.0])).astype(float)
    stream = BayesianGLMRegressor("negative-binomial", prior_scale="auto")
    for part in np.array_split(np.arange(20_000), 20):
        stream.partial_fit(rows[part], counts[part])
    assert 0.8 < stream.predict(rows).mean() / counts.mean() < 1.25
    whole = clone(stream).fit(rows, counts)
    assert (stream.coef_std_ / whole.coef_std_).max() < 1.2


@pytest.mark.parametrize("value", [0.5, 4.0])
def test_a_batch_may_have_rates_beyond_all_digits(value, monkeypatch):
    """Of coefficients that rows have not told yet: no precision is left beside them."""
    monkeypatch.setattr(_memory, "KEPT", 200)
    monkeypatch.setattr(_memory, "MOST_BYTES", 0)
    monkeypatch.setattr(_memory, "GROWTH", np.inf)
    rows = 0.01 * np.random.default_rng(0).normal(size=(300, 2))
    stream = BayesianGLMRegressor("poisson", prior_scale=2.5, posterior="fullrank")
    for part in np.array_split(rows, 3):
        stream.partial_fit(part, np.zeros(len(part)))
    about = stream.posterior_, PoissonCounts(), True
    data = as_source(np.full((100, 2), value), None)
    _, seen, targets = stream._memory.prior_and_rows(*about, data, np.zeros(100))
    # Rates that hardly are above zero move the posterior by less than its width.
    assert seen.n_units == len(targets) == (100 if value < 1.0 else 300)


def test_a_class_that_has_not_come_is_not_what_nodes_are_spent_on(monkeypatch):
    """Nothing tells where it is: no number of nodes is enough for its logits."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:40]
    n_nodes, sums, bound = [], Softmax._sums, _estimator.fit_bound

    def counted(self, *given):
        n_nodes.append(given[-1].shape[1])
        return sums(self, *given)

    def of_all_rows(self, model, data, *given, **how):
        assert model.family.n_rows == data.n_units
        return bound(self, model, data, *given, **how)

    monkeypatch.setattr(Softmax, "_sums", counted)
    monkeypatch.setattr(_estimator, "fit_bound", of_all_rows)
    stream = BayesianLogisticRegression(random_state=0)
    for part in np.split(order, 4):
        stream.partial_fit(X[part], y[part], classes=[0, 1, 2, 3])
    assert max(n_nodes) == FINER * 2 * MANY_PAIRS
    assert stream.converged_ and stream.score(X, y) > 0.9
