"""Mistakes of the caller are told, and fitted answers belong to the fit."""

import warnings
from copy import deepcopy

import numpy as np
import pytest

from skvrem import VRHMM
from skvrem.hmm import (
    Categorical,
    Covariates,
    Gaussian,
    Hierarchical,
    Poisson,
    Product,
)
from skvrem.hmm._input import Sequences, naming_impossible
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.utils._base import PREDICTION_PARAMETERS


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    states = np.repeat([0, 1] * 5, 20)
    X = 3.0 * states[:, None] + rng.normal(size=(200, 2))
    return VRHMM(2, random_state=0, n_init=1).fit(X), X


# hmmlearn's call


@pytest.mark.parametrize("method", ["fit", "score", "partial_fit"])
@pytest.mark.parametrize("y", [[100, 100], [200], 5, np.zeros((3, 1)), [1.0] * 199])
def test_lengths_in_the_place_of_y(fitted, method, y):
    model, X = fitted
    state = dict(vars(model))
    with pytest.raises(ValueError, match="lengths="):
        getattr(model, method)(X, y)
    assert vars(model) == state


def test_a_y_by_convention_is_ignored(fitted):
    model, X = fitted
    assert model.score(X, np.ones(200)) == model.score(X)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i2", "f4", "f8", "O"])
def test_lengths_of_any_type_of_number(fitted, dtype):
    model, X = fitted
    lengths = np.array([120, 80]).astype(dtype)
    if dtype == "O":
        lengths = [np.uint32(120), np.int8(80)]
    assert model.score(X, lengths=lengths) == model.score(X, lengths=[120, 80])


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2**63 - 1, 2**63 - 1, 202], "add up to 18446744073709551816"),
        (np.array([2**64 - 1, 201], np.uint64), "add up to"),
        ([100.5, 99.5], "whole numbers that add up to the 200 rows"),
        ([np.nan, 200], "whole numbers"),
        ([np.inf], "whole numbers"),
        ([True] * 200, "whole numbers"),
        (["100", "100"], "whole numbers"),
        (200, "whole numbers"),
        ([], "whole numbers"),
    ],
)
def test_lengths_that_are_none(fitted, lengths, message):
    model, X = fitted
    with pytest.raises(ValueError, match=message):
        model.score(X, lengths=lengths)


def test_ids_that_are_missing_or_of_several_types(fitted):
    pd = pytest.importorskip("pandas")
    model, X = fitted
    texts = np.array(["a"] * 100 + ["b"] * 100, dtype=object)
    assert model.score(X, groups=texts) == model.score(X, lengths=[100, 100])
    for nothing in (None, np.nan, pd.NA, pd.NaT):
        groups = texts.copy()
        groups[7] = nothing
        with pytest.raises(ValueError, match="no id in row 7"):
            model.score(X, groups=groups)
    with pytest.raises(ValueError, match="no id in row 7"):
        model.score(X, groups=pd.Series(groups).astype("string"))
    dates = np.repeat(np.array(["2026-01-01", "NaT"], "M8[D]"), 100)
    with pytest.raises(ValueError, match="no id in row 100"):
        model.score(X, groups=dates)
    groups[:100] = 1
    with pytest.raises(ValueError, match="several types, int and str"):
        model.score(X, groups=groups)


# Rows


def test_nothing_observed():
    model = VRHMM(2)
    with pytest.raises(ValueError, match="nothing has been observed"):
        model.fit(np.full((20, 2), np.nan))
    assert vars(model) == vars(VRHMM(2))


def test_a_column_without_values_is_named():
    X = np.full((60, 3), np.nan)
    X[:, 0] = np.repeat([0.0, 5.0, 0.0], 20) + np.random.default_rng(0).random(60)
    parts = [("seen", Gaussian(), [0]), ("empty", Poisson(), [2])]
    with pytest.warns(UserWarning, match="No value of x1, x2 has been observed"):
        VRHMM(2, n_init=1, random_state=0).fit(X)
    with pytest.warns(UserWarning, match="No value of x2 has been observed"):
        VRHMM(2, emission=Product(parts), n_init=1, random_state=0).fit(X)
    with pytest.warns(UserWarning, match="No value of x1, x2 has been observed"):
        VRHMM(2, random_state=0).partial_fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VRHMM(2, emission=Product(parts[:1]), n_init=1, random_state=0).fit(X)


@pytest.mark.parametrize("kind", ["diag", "full", "tied", "spherical"])
def test_numbers_whose_squares_are_none(fitted, kind):
    X = fitted[1].copy()
    model = VRHMM(2, covariance_type=kind)
    for rows in (1e160 * X, 1e300 * X):
        with pytest.raises(ValueError, match=r"Column 0 of Gaussian .* as large as"):
            model.fit(rows)
    X[7, 1] = 1e150
    with pytest.raises(ValueError, match=r"Column 1 .* large as 1e\+150.*outliers"):
        model.fit(X)
    with pytest.raises(ValueError, match="varies by so little"):
        model.set_params(reg_covar=0.0).fit(1e-150 * fitted[1])
    assert not hasattr(model, "transmat_")


def test_an_outlier_is_named_as_the_cause(fitted):
    X = fitted[1].copy()
    X[7, 1], X[3, 0] = -1e60, np.nan
    message = r"column 1 holds -1e\+60 in row 7, too far"
    for rows, said in ((X, message), (X[8:], "Look at the mask")):
        sequences = Sequences(rows, np.array([0, len(rows)]))
        with pytest.raises(ValueError, match=said), naming_impossible(sequences):
            raise Impossible(0)


@pytest.mark.parametrize("temperature", [10**400, -(10**400), np.inf, 1j])
def test_numbers_beyond_floats(fitted, temperature):
    with pytest.raises(ValueError, match="temperature"):
        VRHMM(2, temperature=temperature).fit(fitted[1])


def test_columns_that_hold_no_numbers_are_named(fitted):
    pd = pytest.importorskip("pandas")
    _, X = fitted
    frame = pd.DataFrame(X[:50], columns=["a", "b"])
    frame["tag"] = ["s1"] * 50
    frame["time"] = pd.date_range("2026", periods=50)
    with pytest.raises(ValueError, match=r"'tag' holds 's1', column 'time' holds date"):
        VRHMM(2).fit(frame)
    with pytest.raises(ValueError, match="column 'time' holds dates or times"):
        VRHMM(2, groups="tag").fit(frame)
    with pytest.raises(ValueError, match="column 'time' holds dates or times"):
        VRHMM(2).fit(frame[["time"]])
    with pytest.raises(ValueError, match="column 'tag' holds 's1'"):
        transitions = Covariates(["tag"], observed=True)
        VRHMM(2, transitions=transitions).fit(frame[["a", "tag"]])
    with pytest.raises(ValueError, match="column 'tag' holds 's1'"):
        VRHMM(2, transitions=Hierarchical(1, 2, "tag")).fit(frame[["a", "tag"]])
    with pytest.raises(ValueError, match="column 1 holds 's1'"):
        VRHMM(2).fit(frame[["a", "tag"]].to_numpy())


def test_a_product_leaves_other_columns_of_a_frame_alone(fitted):
    pd = pytest.importorskip("pandas")
    _, X = fitted
    frame = pd.DataFrame({"t": pd.date_range("2026", periods=200), "b": X[:, 1]})
    frame["tag"], frame["a"] = "s1", X[:, 0]
    product = Product([("a", Gaussian(), ["a"]), ("b", Gaussian(), ["b"])])
    model = VRHMM(2, emission=product, random_state=0, n_init=1).fit(frame)
    plain = VRHMM(2, emission=product, random_state=0, n_init=1).fit(frame[["b", "a"]])
    assert model.score(frame) == plain.score(frame[["b", "a"]])
    assert list(model.summary().columns)[2:] == ["a mean", "a sd", "b mean", "b sd"]
    numbers = Product([("a", Gaussian(), [3]), ("b", Gaussian(), [1])])
    model = VRHMM(2, emission=numbers, random_state=0, n_init=1).fit(frame)
    assert model.score(frame) == plain.score(frame[["b", "a"]])
    by_number = VRHMM(2, emission=numbers, random_state=0, n_init=1, groups=2)
    assert by_number.fit(frame).score(frame) == model.score(frame)
    with pytest.raises(ValueError, match=r"takes the columns \['tag'\]"):
        numbers = Product([("a", Gaussian(), [2])])
        VRHMM(2, emission=numbers, groups="tag").fit(frame)
    with pytest.raises(ValueError, match="must be a list of"):
        VRHMM(2, emission=Product([("a", Gaussian(), "a")])).fit(frame[["a"]])


@pytest.mark.parametrize("n_samples", [2.5, 0, -1, "3", None, True])
def test_draws_are_counted(fitted, n_samples):
    with pytest.raises(ValueError, match="n_samples must be an integer"):
        fitted[0].sample(n_samples)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"startprob": [1.2, np.nan]}, "probabilities that sum to 1"),
        ({"startprob": [0.2, 0.2]}, "probabilities that sum to 1"),
        (
            {"emission": Gaussian("full", covariance=[[[1, np.nan]] * 2] * 2)},
            "as a whole",
        ),
        ({"emission": Gaussian(covariance=-np.ones((2, 2)))}, "positive"),
        ({"emission": Gaussian(mean_weight=-1.0)}, "mean_weight"),
    ],
    ids=str,
)
def test_what_cannot_be_fixed_in_part(fitted, parameters, message):
    with pytest.raises(ValueError, match=message):
        VRHMM(2, **parameters).fit(fitted[1])


@pytest.mark.parametrize("given", [[0.7, 0.7, np.nan], [0.5, 0.2, 0.2], [-1, 1, 1]])
def test_probabilities_that_cannot_sum_to_1(given):
    emission = Categorical(3, probability=[given, [np.nan] * 3])
    with pytest.raises(ValueError, match="probability of Categorical must be rows of"):
        VRHMM(2, emission=emission).fit([[0], [1], [2]])


# Fitted answers


def answers(model, X):
    intervals = model.confidence_intervals(X)
    forecast = model.forecast(X, 3)
    found = [
        model.predict(X),
        model.predict_proba(X),
        model.filter_proba(X),
        model.score(X),
        model.score_samples(X),
        *model.decode(X),
        *model.decode(X, algorithm="map"),
        model.aic(X),
        model.bic(X),
        *forecast,
        model.pseudo_residuals(X),
        intervals.lower.transmat,
        intervals.standard_error.startprob,
        str(model.summary()),
    ]
    if not model.transitions_.columns:
        found.extend(model.sample(20, random_state=1))
        found += [model.means_, model.covars_]
    return found


@pytest.fixture(scope="module")
def answered():
    """Fitted models, their rows and what they answer."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = 3.0 * np.repeat([0, 1] * 5, 12)[:, None] + rng.normal(size=(120, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["heat"] = np.sin(np.arange(120))
    frame["id"], frame["tag"] = np.repeat(["u", "v"], 60), "text"
    options = {"random_state": 0, "n_init": 1, "tol": 1e-4}
    parts = [("a", Gaussian(), ["a"]), ("b", Gaussian("full"), ["b"])]
    structure = {"transitions": Covariates(["heat"]), "groups": "id"}
    by_column = VRHMM(2, emission=Product(parts), **structure, **options)
    kinds = {"plain": (VRHMM(2, **options), X), "columns": (by_column, frame)}
    return {
        name: (model.fit(rows), rows, answers(model, rows))
        for name, (model, rows) in kinds.items()
    }


@pytest.mark.filterwarnings("ignore:The rows say nothing")
@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("plain", ()),
        ("plain", 1.0),
        ("plain", np.arange(4.0)),
        ("columns", ()),
        ("columns", "odd"),
        ("columns", None),
    ],
    ids=str,
)
def test_answers_stay_those_of_the_fit(answered, kind, odd):
    model, X, before = answered[kind]
    model = deepcopy(model)
    names = set(model.get_params(deep=False)) - PREDICTION_PARAMETERS
    model.set_params(**dict.fromkeys(names, odd))
    for old, new in zip(before, answers(model, X), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.filterwarnings("ignore:The rows say nothing")
def test_answers_stay_where_parameters_of_parts_change(fitted):
    _, X = fitted
    parts = [("a", Gaussian(), [0]), ("b", Gaussian(), [1])]
    model = VRHMM(2, emission=Product(parts), random_state=0, n_init=1).fit(X)
    before = model.score(X), model.confidence_intervals(X).lower.transmat
    model.set_params(emission__a__reg_covar=9.0, emission__b__covariance_type="full")
    assert model.score(X) == before[0]
    after = model.confidence_intervals(X).lower.transmat
    np.testing.assert_array_equal(after, before[1])


@pytest.mark.parametrize(
    "params",
    [
        {"n_components": 3},
        {"emission": "poisson"},
        {"emission": Gaussian("full")},
        {"emission__reg_covar": 0.1},
        {"covariance_type": "full"},
        {"transitions": Covariates([1])},
        {"startprob": "stationary"},
        {"startprob": np.array([0.5, 0.5])},
        {"groups": 0},
    ],
)
def test_a_stream_keeps_the_parameters_that_shape_it(fitted, params):
    _, X = fitted
    emission = Gaussian() if "emission__reg_covar" in params else "gaussian"
    model = VRHMM(2, emission=emission, random_state=0).partial_fit(X)
    # The same ones, in other objects, are no change.
    again = emission if isinstance(emission, str) else Gaussian()
    model = deepcopy(model).set_params(emission=again).partial_fit(X)
    before = model.score(X)
    model.set_params(**params)
    with pytest.raises(ValueError, match="has changed since the first rows"):
        model.partial_fit(X)
    assert model.score(X) == before


@pytest.mark.parametrize("groups", [True, False, 1.0, [0, 1]])
def test_a_column_has_a_name_or_a_number(fitted, groups):
    _, X = fitted
    with pytest.raises(ValueError, match="name or number of a column"):
        VRHMM(2, groups=groups).fit(X)
    with pytest.raises(ValueError, match="0 to 1"):
        VRHMM(2, groups=-1).fit(X)
