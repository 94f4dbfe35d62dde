"""Groups by a column of a frame of pandas, polars or pyarrow."""

import numpy as np
import pandas as pd
import pytest

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    HierarchicalSoftmaxClassifier,
)

NAMES = ["age", "site", "dose"]


def frames(kind):
    """Return rows whose groups are words, and numbers, and targets."""
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(5), 24)
    X = rng.normal(size=(120, 2))
    y = X @ [1.0, -0.5] + rng.normal(size=5)[number] + 0.1 * rng.normal(size=120)
    columns = {"age": X[:, 0], "site": np.array(list("abcde"))[number], "dose": X[:, 1]}
    if kind == "polars":
        made = pytest.importorskip("polars").DataFrame
    elif kind == "pyarrow":
        made = pytest.importorskip("pyarrow").table
    elif kind == "pandas with pyarrow":
        pytest.importorskip("pyarrow")

        def made(columns):
            return pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow")
    else:
        made = pd.DataFrame
    return made(columns), made(columns | {"site": number}), y


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "pandas with pyarrow"])
@pytest.mark.parametrize(
    "model",
    [
        BayesianGLMRegressor(varying=["dose"]),
        BayesianLogisticRegression(),
        HierarchicalSoftmaxClassifier(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_groups_by_a_column_are_those_of_pandas(model, kind):
    words, numbers, y = frames("pandas")
    others = frames(kind)
    if not isinstance(model, BayesianGLMRegressor):
        y = y > 0.0
    for pandas, other in zip((words, numbers), others[:2], strict=True):
        for column in ("site", 1):
            model.set_params(groups=column).fit(pandas, y)
            assert model.feature_names_in_.tolist() == NAMES
            answer = getattr(model, "predict_proba", model.predict)
            expected = answer(pandas), model.groups_
            model.fit(other, y)
            assert model.feature_names_in_.tolist() == NAMES
            found = answer(other), model.groups_
            for one, same in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, same)


def test_a_name_that_no_column_has():
    frame, _, y = frames("polars")
    with pytest.raises(ValueError, match=r"X has the columns .*'age', 'site'"):
        BayesianGLMRegressor(groups="town").fit(frame, y)
