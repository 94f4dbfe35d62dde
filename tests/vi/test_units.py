"""Units of features, in which a prior is as wide for all of them."""

import numpy as np
import pytest
import scipy.sparse as sp

from skvrem import BayesianLogisticRegression
from skvrem.data import as_source
from skvrem.vi.glm._input import REACH, ColumnUnits


def columns(rng, n=600):
    """Columns: noise, a far value, a category, rare amounts, long tails, a constant."""
    X = rng.normal(size=(n, 6))
    X[0, 1] = 100.0
    X[:, 2] = np.where(np.arange(n) % 50 == 7, 1.0, 0.0)
    X[:, 3] = np.where(np.arange(n) % 40 == 3, -3.0 * np.exp(X[:, 3]), 2.0)
    X[:, 4] = np.exp(2.0 * X[:, 4])
    X[:, 5] = 4.0
    return X


def plain(X):
    found = X.std(axis=0)
    found[5] = 4.0  # of a constant its size
    for j in 2, 3:
        values, counts = np.unique(X[:, j], return_counts=True)
        rest = X[X[:, j] != values[counts.argmax()], j]
        away = np.sqrt(np.mean(np.square(rest - X[:, j].mean())))
        assert away / REACH > found[j]
        found[j] = away / REACH
    return found


def test_units_are_deviations_but_of_rare_features(rng):
    X = columns(rng)
    np.testing.assert_allclose(ColumnUnits.of(as_source(X)).units, plain(X))


@pytest.mark.parametrize("layout", ["weights", "sparse", "dask", "merged"])
def test_units_are_the_same_however_rows_are_given(rng, layout):
    X = columns(rng)
    if layout == "weights":
        weight = rng.integers(0, 4, len(X)).astype(float)
        found = ColumnUnits.of(as_source(X, weight))
        X = np.repeat(X, weight.astype(int), axis=0)
    elif layout == "sparse":
        X[:, 3] -= 2.0
        found = ColumnUnits.of(as_source(sp.csr_array(X)))
    elif layout == "dask":
        dask = pytest.importorskip("dask.array")
        rows = dask.from_array(X, chunks=(70, -1))
        model = BayesianLogisticRegression().fit(rows, np.arange(len(X)) % 2)
        units = 1.0 / model.prior_scale_
        expected = plain(X)
        np.testing.assert_allclose(units / units[0], expected / expected[0])
        return
    else:
        parts = [ColumnUnits.of(as_source(part)) for part in np.split(X, 5)]
        found = parts[0]
        for part in parts[1:]:
            found = found.merged(part)
    np.testing.assert_allclose(found.units, plain(X))


@pytest.mark.parametrize("rare", [1.0, 0.0])
@pytest.mark.parametrize("size", [5, 20, 300])
def test_units_of_rare_features_are_the_same_where_blocks_are_sorted(size, rare):
    """What the first blocks have most is not what most rows have."""
    X = np.where(np.arange(600) < 20, rare, 1.0 - rare)[:, None]
    for rows in X, X[::-1]:
        parts = [
            ColumnUnits.of(as_source(rows[first : first + size].copy()))
            for first in range(0, 600, size)
        ]
        found = parts[0]
        for part in parts[1:]:
            found = found.merged(part)
        np.testing.assert_allclose(found.units, (1.0 - 20 / 600) / REACH)


@pytest.mark.parametrize("seed", range(3))
def test_one_far_value_leaves_a_feature_its_slope(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(500, 6))
    X[0, 0] = 100.0
    y = X @ [0.5, 0.5, -0.4, 0.3, 0.0, 0.0] > rng.logistic(size=500)
    model = BayesianLogisticRegression().fit(X, y)
    assert model.coef_[0, 0] > 0.25
    of_one = BayesianLogisticRegression(1.0).fit(X, y)
    assert model.elbo_ > of_one.elbo_ - 1.0
