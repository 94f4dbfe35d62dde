"""What every estimator refuses in words, whatever the model."""

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from skvrem.utils.discovery import all_estimators

N = 40
X = np.random.default_rng(0).poisson(3.0, size=(N, 3)) + 0.0
y = np.arange(N) % 2
ARRAYS = [
    estimator_class
    for _, estimator_class in all_estimators()
    if get_tags(estimator_class()).input_tags.two_d_array
]
EVERY = pytest.mark.parametrize("estimator_class", ARRAYS, ids=lambda c: c.__name__)


def refused(estimator_class, rows, match):
    estimator = estimator_class()
    with pytest.raises(ValueError, match=match):
        estimator.fit(rows, y)
    assert not [name for name in vars(estimator) if name.endswith("_")]


@EVERY
def test_columns_that_are_no_numbers_are_named(estimator_class):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["day"] = pd.date_range("2020-01-01", periods=N)
    refused(estimator_class, frame, "column 'day' holds dates or times")
    refused(estimator_class, frame.to_numpy()[:, 2:], "column 1 holds")
    frame["place"] = "Bergen"
    refused(estimator_class, frame[["a", "place"]], "holds 'Bergen'|CountVectorizer")
    refused(estimator_class, frame[[]], "no columns|minimum of 1")


@EVERY
@pytest.mark.parametrize("container", [np.asarray, np.ndarray.tolist])
def test_integers_beyond_floating_point(estimator_class, container):
    rows = X.astype(object)
    rows[3, 1] = -(10**400)
    refused(estimator_class, container(rows), "column 1 holds .* of about -1e400")


@pytest.mark.parametrize(
    "estimator_class",
    [c for c in ARRAYS if has_fit_parameter(c(), "sample_weight")],
    ids=lambda c: c.__name__,
)
@pytest.mark.parametrize(
    ("weight", "match"),
    [
        ([1.0] * (N - 1) + ["heavy"], "element 39 is 'heavy'"),
        ([1.0] * (N - 1) + [10**400], "element 39 .* 1e400"),
        (np.full(N, np.datetime64("2020-01-01")), "element 0 is .*date"),
        ("balanced", "in an array, but got the text 'balanced'"),
    ],
)
def test_weights_that_are_no_numbers_are_named(estimator_class, weight, match):
    with pytest.raises(ValueError, match=f"sample_weight must be numbers, .*{match}"):
        estimator_class().fit(X, y, sample_weight=weight)


@EVERY
def test_one_column_of_a_frame(estimator_class):
    column = pd.DataFrame(X, columns=["a", "b", "c"])["a"]
    refused(estimator_class, column, "2-dimensional|2D array")
    refused(estimator_class, column.to_numpy(), "2D array")


@EVERY
def test_numbers_whose_squares_are_infinite(estimator_class):
    if estimator_class.__name__ == "SBMLogisticRegression":
        pytest.skip("squares none: columns are scaled first")
    refused(estimator_class, 1e200 * (1.0 + X), "beyond|squares|count of|scale")


@EVERY
def test_a_list_without_rows(estimator_class):
    no_rows = "Expected 2D array|minimum of 1 is required"
    refused(estimator_class, [], no_rows)
    if "groups" in estimator_class().get_params():
        with pytest.raises(ValueError, match=no_rows):
            estimator_class(groups=-1).fit([], y)


@pytest.mark.parametrize("estimator_class", ARRAYS, ids=lambda c: c.__name__)
def test_parameters_of_answers_are_checked_there(estimator_class):
    names = {"max_doc_update_iter", "mean_change_tol", "max_inner_iter", "inner_tol"}
    names &= set(estimator_class().get_params())
    if not names:
        pytest.skip("its answers have no parameters that a fit would check")
    for name in names:
        estimator = estimator_class(2, tol=0.0, max_iter=3).fit(X)
        estimator.set_params(**{name: "1"})
        with pytest.raises(ValueError, match=name):
            estimator.transform(X)


@EVERY
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")
def test_no_rows_have_no_answer(estimator_class):
    estimator = estimator_class()
    if "max_iter" in estimator.get_params():
        estimator.set_params(max_iter=3)
    estimator.fit(X, y)
    for name in ("predict", "transform", "score", "perplexity"):
        if hasattr(estimator, name):
            given = (y[:0],) if name == "score" else ()
            with pytest.raises(ValueError, match="0 sample"):
                getattr(estimator, name)(X[:0], *given)


@EVERY
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_small_integers_are_not_refused(estimator_class):
    """Not those of eight bits, which products with others overflow."""
    estimator = estimator_class()
    if "n_components" not in estimator.get_params():
        pytest.skip("has no components")
    estimator.set_params(n_components=np.int8(2))
    if "max_iter" in estimator.get_params():
        estimator.set_params(max_iter=3)
    assert estimator.fit(X, y) is estimator
    if hasattr(estimator, "partial_fit"):
        assert estimator.partial_fit(X) is estimator
