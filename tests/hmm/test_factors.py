"""Columns of text that rows depend on, against the same models of indicators."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import OneHotEncoder

from skvrem import VRHMM, ResidualsDisplay, StatesDisplay, StationaryDisplay
from skvrem.hmm import Covariates, Gaussian, Product, Regression

pd = pytest.importorskip("pandas")

N = 600
RNG = np.random.default_rng(0)
STATES = np.repeat([0, 1, 0, 1, 0, 1], N // 6)
PLACE = np.array(["bog", "alp", "sea"])[RNG.integers(0, 3, N)]
Z = RNG.normal(size=N)
Y = np.where(STATES, 2.0, -1.0) * Z + np.where(STATES, 3.0, -3.0) * (PLACE == "sea")
Y += 0.5 * RNG.normal(size=N)
FRAME = pd.DataFrame({"y": Y, "z": Z, "place": PLACE})
# Of the columns of the frame, and an indicator for every level but "alp".
HAND = np.column_stack([Y, Z, PLACE == "bog", PLACE == "sea"]).astype(float)
OPTIONS = {"random_state": 0, "n_init": 1, "tol": 1e-5}


def regression(covariates, **options):
    return VRHMM(2, emission=Regression(covariates=covariates, **options), **OPTIONS)


def moved(covariates, **options):
    return VRHMM(2, transitions=Covariates(covariates, **options), **OPTIONS)


def same(found, wanted):
    assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


CONTAINERS = {
    "text": FRAME,
    "objects": FRAME.to_numpy(dtype=object),
    "list": FRAME.to_numpy(dtype=object).tolist(),
    "string": FRAME.astype({"place": "string"}),
    "category": FRAME.astype({"place": "category"}),
}
EACH = pytest.mark.parametrize("X", CONTAINERS.values(), ids=CONTAINERS)


@pytest.fixture(scope="module")
def by_hand():
    return {
        "emission": regression([1, 2, 3]).fit(HAND),
        "transition": moved([1, 2, 3]).fit(HAND),
    }


@EACH
def test_answers_are_those_of_indicators(by_hand, X):
    named = hasattr(X, "columns")
    columns = ["z", "place"] if named else [1, 2]
    wanted, model = by_hand["emission"], regression(columns).fit(X)
    same(model.emission_.coef_, wanted.emission_.coef_)
    ahead = X.iloc[:4] if named else X[:4]
    for method in ("predict_proba", "score_samples", "pseudo_residuals"):
        same(getattr(model, method)(X), getattr(wanted, method)(HAND))
    same(
        model.forecast(X, 4, covariates=ahead).mean,
        wanted.forecast(HAND, 4, covariates=HAND[:4]).mean,
    )
    same(
        model.sample(4, 0, covariates=ahead)[0],
        wanted.sample(4, 0, covariates=HAND[:4])[0],
    )
    assert model.n_parameters_ == wanted.n_parameters_
    terms = ["z", "place_bog", "place_sea"] if named else ["x1", "x2_bog", "x2_sea"]
    assert model.emission_.terms_ == terms
    assert f"{'y' if named else 'x0'} mean ~ {terms[2]}" in model.summary().columns
    assert_array_equal(model.levels_[columns[1]], ["alp", "bog", "sea"])


@pytest.mark.filterwarnings("ignore:The rows say nothing")
@EACH
def test_transitions_are_those_of_indicators(by_hand, X):
    named = hasattr(X, "columns")
    columns = ["z", "place"] if named else [1, 2]
    wanted, model = by_hand["transition"], moved(columns).fit(X)
    same(model.transitions_.coef_, wanted.transitions_.coef_)
    assert model.n_parameters_ == wanted.n_parameters_
    terms = ["z", "place_bog", "place_sea"] if named else ["x1", "x2_bog", "x2_sea"]
    assert model.transitions_.terms_ == terms
    ahead = X.iloc[:4] if named else X[:4]
    same(
        model.forecast(X, 4, covariates=ahead).states,
        wanted.forecast(HAND, 4, covariates=HAND[:4]).states,
    )
    rows, coded = [[0.5, "sea"], [0.5, "alp"]], [[0.5, 0.0, 1.0], [0.5, 0.0, 0.0]]
    given = pd.DataFrame(rows, columns=["z", "place"]) if named else rows
    for method in ("transition_proba", "stationary_proba"):
        found = getattr(model, method)(given, X=X)
        for own, of_hand in zip(
            found, getattr(wanted, method)(coded, X=HAND), strict=True
        ):
            same(own, of_hand)
    same(model.transitions_.matrix(given), wanted.transitions_.matrix(coded))
    same(
        model.forecast(X, 3, inputs=rows).states,
        wanted.forecast(HAND, 3, inputs=coded).states,
    )
    drawn = model.sample(2, 1, inputs=rows), wanted.sample(2, 1, inputs=coded)
    same(drawn[0][0], drawn[1][0])
    same(model.sample(2, 1, covariates=ahead[:2])[0][:1], drawn[0][0][:1])
    same(
        model.confidence_intervals(X).standard_error.transmat,
        wanted.confidence_intervals(HAND).standard_error.transmat,
    )


def test_an_encoder_is_given_the_text():
    both = HAND[:, [0, 2, 3]]
    both = np.column_stack([Y, PLACE == "alp", both[:, 1:]]).astype(float)
    wanted = regression([1, 2, 3]).fit(both)
    encoder = OneHotEncoder()
    model = regression(["place"], transformer=encoder).fit(FRAME[["y", "place"]])
    same(model.emission_.coef_, wanted.emission_.coef_)
    assert model.emission_.terms_ == ["place_alp", "place_bog", "place_sea"]
    assert_array_equal(
        model.emission_.transformer_.categories_[0], model.levels_["place"]
    )
    # Beside numbers, and of two parts of a product.
    pick = ColumnTransformer([("place", encoder, [1])], remainder="passthrough")
    by_pick = regression(["z", "place"], transformer=pick).fit(FRAME)
    wide = np.column_stack([Y, PLACE == "alp", HAND[:, 2:], Z]).astype(float)
    same(by_pick.emission_.coef_, regression([1, 2, 3, 4]).fit(wide).emission_.coef_)


def test_parts_of_a_product():
    frame = FRAME.assign(w=RNG.normal(size=N))
    parts = [
        ("y", Regression(covariates=["z", "place"]), ["y"]),
        ("w", Gaussian(), ["w"]),
    ]
    model = VRHMM(2, emission=Product(parts), **OPTIONS).fit(frame)
    parts = [
        ("y", Regression(covariates=[1, 2, 3]), [0]),
        ("w", Gaussian(), [4]),
    ]
    wanted = VRHMM(2, emission=Product(parts), **OPTIONS)
    wanted.fit(np.column_stack([HAND, frame["w"]]))
    same(model.emission_["y"].coef_, wanted.emission_["y"].coef_)
    taken = [*model.emission.parts[:1], ("text", Gaussian(), ["place"])]
    with pytest.raises(ValueError, match="'place' holds"):
        VRHMM(2, emission=Product(taken), **OPTIONS).fit(frame)


def test_both_depend_on_one_column():
    structure = {"emission": Regression(covariates=["place"])}
    model = VRHMM(2, transitions=Covariates(["place"]), **structure, **OPTIONS)
    model.fit(FRAME[["y", "place"]])
    wanted = VRHMM(
        2,
        transitions=Covariates([1, 2]),
        emission=Regression(covariates=[1, 2]),
        **OPTIONS,
    ).fit(HAND[:, [0, 2, 3]])
    same(model.emission_.coef_, wanted.emission_.coef_)
    same(model.transitions_.coef_, wanted.transitions_.coef_)


def test_groups_stay_text():
    frame = FRAME.assign(id=np.repeat(["ann", "bob"], N // 2))
    model = regression(["z", "place"]).set_params(groups="id").fit(frame)
    wanted = regression([1, 2, 3]).fit(HAND, lengths=[N // 2, N // 2])
    same(model.emission_.coef_, wanted.emission_.coef_)
    assert list(model.levels_) == ["place"]


@pytest.mark.parametrize("make", [regression, moved])
def test_unknown_levels_are_named(make):
    model = make(["z", "place"]).fit(FRAME)
    other = FRAME.iloc[:5].copy()
    other.iloc[3, 2] = "fen"
    message = r"'place' holds 'fen' in row 3.*\['alp', 'bog', 'sea'\]"
    for method in ("predict", "score", "pseudo_residuals"):
        with pytest.raises(ValueError, match=message):
            getattr(model, method)(other)
    with pytest.raises(ValueError, match=message):
        model.forecast(FRAME, 5, covariates=other)
    with pytest.raises(ValueError, match=message):
        model.sample(5, covariates=other)
    before = model.score(FRAME)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(other)
    assert model.score(FRAME) == before
    numbers = FRAME.assign(place=1.0)
    with pytest.raises(ValueError, match=r"'place' holds 1.0 in row 0"):
        model.predict(numbers)
    if make is moved:
        with pytest.raises(ValueError, match=r"'place' holds 'fen' in row 0"):
            model.transition_proba([[0.0, "fen"]])
        with pytest.raises(ValueError, match=r"no columns \['place'\]"):
            model.transition_proba(FRAME[["z"]])


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_missing_text(nothing):
    frame = FRAME.copy()
    frame.loc[[5, 9], "place"] = nothing
    hand = HAND.copy()
    hand[[5, 9], 2:] = np.nan
    model = regression(["z", "place"]).fit(frame)
    same(
        model.emission_.coef_,
        regression([1, 2, 3]).fit(hand).emission_.coef_,
    )
    assert np.isnan(model.pseudo_residuals(frame)[[5, 9]]).all()
    with pytest.raises(ValueError, match="row 5 of column 'place' is not finite"):
        moved(["place"]).fit(frame)


def test_levels_in_the_order_of_a_category():
    order = pd.CategoricalDtype(["sea", "fen", "bog", "alp"])
    model = regression(["place"]).fit(FRAME[["y", "place"]].astype({"place": order}))
    assert_array_equal(model.levels_["place"], ["sea", "bog", "alp"])
    # Numbers are levels where the dtype says so.
    year = pd.Series(2000 + RNG.integers(0, 3, N))
    frame = pd.DataFrame({"y": Y, "year": year})
    plain = moved(["year"]).fit(frame)
    model = moved(["year"]).fit(frame.astype({"year": "category"}))
    assert plain.transitions_.terms_ == ["year"] and not plain.levels_
    assert model.transitions_.terms_ == ["year_2001", "year_2002"]
    assert model.transition_proba([[2001]]).shape == (1, 2, 2)


def test_mixed_columns_are_refused():
    frame = FRAME.astype({"place": object})
    frame.iloc[0, 2] = 1.5
    with pytest.raises(ValueError, match=r"'place' holds text and 1\.5"):
        regression(["place"]).fit(frame)
    model = regression(["z"], offset="place")
    with pytest.raises(ValueError, match="'place' holds"):
        model.fit(FRAME)


def test_a_single_level_says_nothing():
    frame = FRAME.assign(place="sea")
    model = regression(["z", "place"]).fit(frame)
    same(model.emission_.coef_, regression([1]).fit(HAND[:, :2]).emission_.coef_)
    model = moved(["place"]).fit(frame[["y", "place"]])
    assert model.transitions_.coef_.shape == (2, 2, 0)


def test_streams_pickles_and_clones():
    model = moved(["place"]).partial_fit(FRAME[["y", "place"]])
    model.partial_fit(FRAME[["y", "place"]].iloc[:50], continues=True)
    wanted = moved([1, 2]).partial_fit(HAND[:, [0, 2, 3]])
    wanted.partial_fit(HAND[:50, [0, 2, 3]], continues=True)
    same(model.transitions_.coef_, wanted.transitions_.coef_)
    restored = pickle.loads(pickle.dumps(model))
    some = FRAME[["y", "place"]].iloc[:20]
    assert restored.score(some) == model.score(some)
    fresh = clone(model)
    assert not hasattr(fresh, "levels_")
    fresh.fit(FRAME[["y", "place"]])
    # Another fit has other levels, or none; one that goes on has the same.
    on = clone(fresh).set_params(warm_start=True).fit(FRAME[["y", "place"]])
    two = FRAME.loc[PLACE != "alp", ["y", "place"]]
    assert list(fresh.fit(two).levels_["place"]) == ["bog", "sea"]
    assert list(on.fit(two).levels_["place"]) == ["alp", "bog", "sea"]
    with pytest.raises(ValueError, match=r"0.0 in row 0, which is none of the levels"):
        on.fit(two.assign(place=0.0))
    assert list(on.levels_["place"]) == ["alp", "bog", "sea"]
    numbers = clone(on).fit(FRAME.assign(place=Z)[["y", "place"]])
    with pytest.raises(ValueError, match="gone on from with other covariates"):
        numbers.fit(two)


def test_given_coefficients_need_a_frozen_transformer():
    given = {"coef": [[[1.0, 2.0]]], "intercept": [[0.0]], "fixed": {"sd": [[1.0]]}}
    rows = FRAME[["y", "place"]].iloc[:20]
    plain = Regression(covariates=["place"], **given)
    with pytest.raises(ValueError, match="FrozenEstimator"):
        VRHMM(1, emission=plain).score(rows)
    encoder = OneHotEncoder(drop="first").fit(FRAME[["place"]].to_numpy(dtype=object))
    frozen = Regression(
        covariates=["place"], transformer=FrozenEstimator(encoder), **given
    )
    mean = 1.0 * (PLACE[:20] == "bog") + 2.0 * (PLACE[:20] == "sea")
    wanted = -0.5 * np.log(2 * np.pi) - 0.5 * np.square(Y[:20] - mean)
    same(VRHMM(1, emission=frozen).score_samples(rows), wanted)


@pytest.mark.filterwarnings("ignore:The rows say nothing")
def test_displays():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    model = moved(["z", "place"]).fit(FRAME)
    display = StationaryDisplay.from_estimator(model, FRAME, "place")
    assert list(display.values) == ["alp", "bog", "sea"]
    rows = [[Z.mean(), level] for level in display.values]
    same(display.estimate, model.stationary_proba(rows))
    shown = [tick.get_text() for tick in display.ax_.get_xticklabels()]
    assert shown == ["alp", "bog", "sea"]
    level = max(set(PLACE), key=list(PLACE).count)
    display = StationaryDisplay.from_estimator(model, FRAME, "z", n_points=3)
    rows = [[z, level] for z in display.values]
    same(display.estimate, model.stationary_proba(rows))
    residuals = ResidualsDisplay.from_estimator(model, FRAME)
    assert list(residuals.names) == ["y"]
    states = StatesDisplay.from_estimator(model, FRAME)
    assert list(states.names) == ["y"] and len(states.axes_) == 2
    pyplot.close("all")


@pytest.mark.parametrize("kind", ["text", "category", "objects"])
@pytest.mark.parametrize("part", ["emission", "transition", "transformer"])
def test_levels_are_those_of_all_blocks_of_dask(part, kind):
    """A level that only the last block has is one of the fit, and in its place."""
    frames, arrays = (pytest.importorskip(f"dask.{n}") for n in ("dataframe", "array"))
    X = FRAME.copy()
    X.loc[:400, "place"] = X["place"].iloc[:401].replace("alp", "bog")
    X.loc[N - 5, "place"] = "air"
    X["track"] = np.repeat(np.arange(6.0), N // 6)
    covariates = ["z", "place"]
    if kind == "category":
        X["place"] = pd.Categorical(X["place"], ["sea", "bog", "air", "alp", "none"])
    if kind == "objects":
        covariates, X = [1, 2], X.to_numpy(dtype=object)
        lazy = arrays.from_array(X, chunks=(N // 3, -1))
    else:
        lazy = frames.from_pandas(X, npartitions=3)
    make = moved if part == "transition" else regression
    more = {}
    if part == "transformer":
        pick = ColumnTransformer([("place", OneHotEncoder(), [1])], sparse_threshold=0)
        more["transformer"] = pick
    model = make(covariates, **more)
    model.set_params(groups=3 if kind == "objects" else "track")
    here, there = clone(model).fit(X), clone(model).fit(lazy)
    assert {k: [*v] for k, v in there.levels_.items()} == {
        k: [*v] for k, v in here.levels_.items()
    }
    same(there.score(lazy), here.score(X))
    same(there.score(X), here.score(X))
    same(np.asarray(there.predict_proba(lazy)), here.predict_proba(X))
