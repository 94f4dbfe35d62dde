"""Parameters that are checked by their hints."""

import warnings
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skvrem.utils._validation import check_parameters, validate_data


class Estimator(BaseEstimator):
    def __init__(
        self,
        number: int = 1,
        size: float | Literal["auto"] = "auto",
        kind: Literal["a", "b"] | None = None,
        flag: bool = False,
        prior: float | ArrayLike = 1.0,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        anything: Any = None,
        name: str = "x",
    ):
        self.number = number
        self.size = size
        self.kind = kind
        self.flag = flag
        self.prior = prior
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.anything = anything
        self.name = name


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"number": np.int64(0), "size": 0.0, "kind": "b", "flag": True},
        {"size": 3, "flag": np.True_},
        {"prior": "?", "n_jobs": -1, "random_state": "?", "anything": "?", "name": 0},
    ],
)
def test_what_hints_allow(params):
    check_parameters(Estimator(**params))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"number": -1}, "number of Estimator must be an integer of at least 0, got"),
        ({"number": 1.0}, "number of Estimator must be an integer"),
        ({"number": True}, "number of Estimator must be an integer"),
        ({"size": None}, "a number of at least 0 or 'auto', got None"),
        ({"size": -0.1}, "a number of at least 0 or 'auto'"),
        ({"size": "all"}, "a number of at least 0 or 'auto'"),
        ({"kind": "c"}, "must be 'a' or 'b' or None, got 'c'"),
        ({"flag": 1}, "must be False or True, got 1"),
    ],
)
def test_what_hints_do_not_allow(params, message):
    with pytest.raises(ValueError, match=message):
        check_parameters(Estimator(**params))


def test_ranges():
    with warnings.catch_warnings():  # the bound is beyond what the number's type holds
        warnings.simplefilter("error")
        check_parameters(Estimator(size=np.float32(0.5)), size={"most": 1e150})
    check_parameters(Estimator(number=5, size=1.0), number={"least": 5}, size=None)
    check_parameters(Estimator(kind="c", size=-1.0), kind=None, size=None)
    for name, rule, message in [
        ("number", {"least": 5}, "at least 5, got 3"),
        ("size", {"above": True}, "above 0 or 'auto', got 0.0"),
        ("prior", {"most": 0.5}, None),  # may be an array
    ]:
        estimator = Estimator(number=3, size=0.0)
        if message is None:
            check_parameters(estimator, **{name: rule})
            continue
        with pytest.raises(ValueError, match=message):
            check_parameters(estimator, **{name: rule})


class OtherFrame:
    """A table whose types of columns are not numpy's, as those of polars."""

    columns, dtypes = ("a", "b"), (object(), object())

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


def test_types_of_columns_may_be_any():
    values = np.arange(6.0).reshape(3, 2)
    found = validate_data(Estimator(), OtherFrame(values))
    assert np.array_equal(found, values)
