"""Frames of polars, beside those of pandas with the same columns."""

import datetime

import numpy as np
import pandas as pd
import pytest

from skvrem import StatesDisplay, StationaryDisplay, VRGaussianMixture
from skvrem.hmm import (
    VRHMM,
    Covariates,
    Gamma,
    Product,
    Regression,
    VonMises,
    add_lags,
    fill_gaps,
    prepare_tracks,
)
from skvrem.inspection._comparison import sequence_numbers
from skvrem.text._topics import refuse_text

pl = pytest.importorskip("polars")

PARTS = [("step", Gamma(), ["step"]), ("angle", VonMises(mean=0.0), ["angle"])]


@pytest.fixture(scope="module")
def fixes():
    """Positions of two animals, with text, dates and what is missing."""
    rng, n = np.random.default_rng(0), 200
    fast = np.repeat([0, 1, 0, 1], 50)
    step = rng.gamma(np.where(fast, 6.0, 1.5), np.where(fast, 0.08, 0.04))
    turn = np.cumsum(rng.vonmises(0.0, np.where(fast, 6.0, 0.3)))
    columns = {
        "x": np.cumsum(step * np.cos(turn)),
        "y": np.cumsum(step * np.sin(turn)),
        "ID": np.repeat(["a", "b"], n // 2),
        "time": np.tile(np.arange(n // 2).astype("datetime64[h]"), 2),
        "habitat": rng.choice(["wood", "field", "marsh"], n),
        "warm": rng.normal(size=n),
    }
    columns["time"] = columns["time"].astype("datetime64[us]")
    moves = prepare_tracks(np.c_[columns["x"], columns["y"]], groups=columns["ID"])
    columns["step"], columns["angle"] = moves.T
    missing = [
        float("nan") if t % 50 == 7 else v for t, v in enumerate(columns["step"])
    ]
    frames = pd.DataFrame(columns), pl.DataFrame(columns)
    nothing = [None if np.isnan(v) else v for v in missing]
    return (
        frames[0].assign(step=missing),
        frames[1].with_columns(pl.Series("step", nothing)),
    )


def test_tracks_gaps_and_lags_of_frames(fixes):
    pandas, polars = (
        (
            *prepare_tracks(frame[["x", "y"]], groups=frame["ID"], times=frame["time"]),
            *fill_gaps(frame["time"], groups=frame["ID"]),
            add_lags(frame[["x", "step"]], 2, groups=frame["ID"]),
        )
        for frame in fixes
    )
    for one, other in zip(pandas, polars, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("order", ["text", "Categorical", "Enum"])
def test_a_fit_with_text_is_that_of_pandas(fixes, order):
    pandas, polars = fixes
    columns = ["angle", "step", "ID", "habitat", "warm"]
    pandas, polars = pandas[columns], polars[columns]
    if order == "Enum":
        levels = ["wood", "marsh", "field"]
        polars = polars.with_columns(pl.col("habitat").cast(pl.Enum(levels)))
        pandas = pandas.assign(habitat=pd.Categorical(pandas["habitat"], levels))
    elif order == "Categorical":
        polars = polars.with_columns(pl.col("habitat").cast(pl.Categorical))
    hmm = VRHMM(
        2,
        emission=Product(PARTS),
        transitions=Covariates(["habitat", "warm"]),
        groups="ID",
        n_init=1,
        max_iter=30,
        tol=0.0,
        random_state=0,
    )
    found = []
    for frame in (pandas, polars):
        hmm.fit(frame)
        ahead = hmm.stationary_proba(frame[["habitat", "warm"]][:5])
        found += [(hmm.transitions_.coef_, hmm.predict_proba(frame), ahead)]
        assert hmm.transitions_.terms_[-1] == "warm"
        assert hmm.feature_names_in_.tolist() == columns
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_a_regression_on_text_is_that_of_pandas(fixes):
    hmm = VRHMM(
        2,
        emission=Regression("gaussian", ["habitat", "warm"]),
        groups="ID",
        n_init=1,
        random_state=0,
    )
    values = [hmm.fit(f[["x", "ID", "habitat", "warm"]]).emission_.coef_ for f in fixes]
    np.testing.assert_allclose(*values, rtol=1e-12)


@pytest.mark.parametrize("column", ["warm", 1])
def test_displays_draw_what_they_draw_of_pandas(fixes, column):
    pytest.importorskip("matplotlib")
    transitions = Covariates([column])
    hmm = VRHMM(2, transitions=transitions, n_init=1, max_iter=20, random_state=0)
    found = []
    for frame in fixes:
        part = frame[["x", "warm"]]
        hmm.fit(part)
        states = StatesDisplay.from_estimator(hmm, part)
        along = StationaryDisplay.from_estimator(hmm, part)
        found.append((states.values, along.values))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("column", ["ID", 1])
def test_sequences_of_a_column_are_those_of_pandas(fixes, column):
    hmm = VRHMM(2, groups=column)
    both = [sequence_numbers(hmm, frame[["x", "ID"]], None, None) for frame in fixes]
    np.testing.assert_array_equal(*both)
    assert both[0].tolist() == [0] * 100 + [1] * 100


def test_texts_are_no_counts():
    for texts in (pl.Series(["a word"]), pl.DataFrame({"text": ["a word"]})):
        with pytest.raises(ValueError, match="X holds text"):
            refuse_text(texts)
    refuse_text(pl.DataFrame({"word": [1, 2]}))


@pytest.mark.parametrize(
    ("column", "message"),
    [("habitat", "column 'habitat' holds '"), ("time", "'time' holds dates or times")],
)
def test_what_is_no_number_is_named(fixes, column, message):
    frame = fixes[1][["x", column]]
    for model in (VRHMM(2), VRGaussianMixture(2)):
        with pytest.raises(ValueError, match=message):
            model.fit(frame)
    with pytest.raises(ValueError, match=f"positions must be numbers, but.*{message}"):
        prepare_tracks(frame)
    with pytest.raises(ValueError, match=f"X must be numbers, but.*{message}"):
        add_lags(frame)


def test_dates_lead_no_transitions_and_lazy_frames_are_refused(fixes):
    hmm = VRHMM(2, transitions=Covariates(["when"]))
    days = [datetime.date(2024, 1, 1 + t % 28) for t in range(200)]
    dated = fixes[1][["x"]].with_columns(pl.Series("when", days))
    with pytest.raises(ValueError, match="'when' holds dates or times"):
        hmm.fit(dated)
    with pytest.raises(TypeError, match=r"pass X\.collect\(\)"):
        VRHMM(2).fit(fixes[1][["x"]].lazy())
