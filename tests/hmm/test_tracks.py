"""Step lengths and turning angles of tracks."""

import numpy as np
import pytest
from scipy import stats

from skvrem.hmm import (
    VRHMM,
    Covariates,
    Gamma,
    Product,
    VonMises,
    add_lags,
    fill_gaps,
    prepare_tracks,
)
from tests.hmm.oracle import enumerate_paths


def test_a_square_and_a_pause():
    square = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 2], [0, 0]]
    steps = prepare_tracks(square)
    np.testing.assert_allclose(steps[:, 0], [2, 2, 2, 0, 2, np.nan])
    half = np.pi / 2
    np.testing.assert_allclose(
        steps[:, 1], [np.nan, half, half, np.nan, np.nan, np.nan]
    )


def test_back_is_half_a_turn():
    steps = prepare_tracks([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, -1.0]])
    np.testing.assert_allclose(steps[1:3, 1], [np.pi, np.pi / 2])


def test_tracks_do_not_touch():
    rng = np.random.default_rng(0)
    walks = rng.normal(size=(30, 2)).cumsum(axis=0)
    ids = np.repeat([3, 1, 2], 10)
    together = prepare_tracks(walks, groups=ids)
    apart = [prepare_tracks(walks[ids == i]) for i in (3, 1, 2)]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_missing_positions():
    walks = np.random.default_rng(0).normal(size=(9, 2)).cumsum(axis=0)
    walks[4] = np.nan
    steps = prepare_tracks(walks)
    assert np.flatnonzero(np.isnan(steps[:, 0])).tolist() == [3, 4, 8]
    assert np.flatnonzero(np.isnan(steps[:, 1])).tolist() == [0, 3, 4, 5, 8]


def test_the_sphere_is_flat_where_tracks_are_short():
    metres = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
    lon0, lat0 = 12.0, 57.0
    scale = np.radians(1.0) * 6371.0088e3
    degrees = np.column_stack(
        [
            lon0 + metres[:, 0] / scale / np.cos(np.radians(lat0)),
            lat0 + metres[:, 1] / scale,
        ]
    )
    sphere = prepare_tracks(degrees, coordinates="lonlat")
    plane = prepare_tracks(metres)
    np.testing.assert_allclose(1e3 * sphere[:, 0], plane[:, 0], rtol=1e-4)
    np.testing.assert_allclose(sphere[:, 1], plane[:, 1], atol=1e-3)


def test_a_quarter_of_the_equator_and_a_great_circle():
    steps = prepare_tracks([[0, 0], [90, 0], [90, 60]], coordinates="lonlat")
    np.testing.assert_allclose(steps[0, 0], 6371.0088 * np.pi / 2)
    np.testing.assert_allclose(steps[1], [6371.0088 * np.pi / 3, np.pi / 2])
    straight = prepare_tracks([[0, 10], [40, 40], [120, 30]], coordinates="lonlat")
    # A point half-way along a great circle is no turn.
    a, b = (
        np.array([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)])
        for x, y in np.radians([[0, 10], [120, 30]])
    )
    m = (a + b) / np.linalg.norm(a + b)
    middle = np.degrees([np.arctan2(m[1], m[0]), np.arcsin(m[2])])
    along = prepare_tracks([[0, 10], middle, [120, 30]], coordinates="lonlat")
    np.testing.assert_allclose(along[1, 1], 0.0, atol=1e-9)
    assert abs(straight[1, 1]) > 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 2.0, 3.0]],), "2 columns"),
        (([[1.0, 2.0]], "round"), "planar"),
        (([[1.0, 2.0]], "planar", [1, 2]), "one id"),
    ],
)
def test_bad_tracks(arguments, message):
    positions, *rest = arguments
    names = dict(zip(("coordinates", "groups"), rest, strict=False))
    with pytest.raises(ValueError, match=message):
        prepare_tracks(positions, **names)


def test_missed_fixes_become_rows():
    walks = np.random.default_rng(0).normal(size=(10, 2)).cumsum(axis=0)
    kept = [0, 1, 2, 5, 6, 9]
    times = np.datetime64("2026-01-01") + np.timedelta64(1, "h") * np.arange(10)
    steps, rows, missed = prepare_tracks(walks[kept], times=times[kept])
    holes = np.full_like(walks, np.nan)
    holes[kept] = walks[kept]
    np.testing.assert_array_equal(steps, prepare_tracks(holes))
    assert rows.tolist() == [0, 1, 2, 2, 2, 3, 4, 4, 4, 5]
    assert np.flatnonzero(missed).tolist() == [3, 4, 7, 8]
    finer = fill_gaps(times[kept], interval=np.timedelta64(30, "m"))[0]
    assert len(finer) == 2 * len(rows) - 1


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(360, "6 hours"), (60, "1 hour"), (90, "1.5 hours"), (2880, "2 days")],
)
@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_an_interval_of_dates_is_said_in_words(minutes, words, unit):
    interval = np.timedelta64(minutes, "m")
    times = np.datetime64("2026-01-01", unit) + interval * np.array([0, 1, 2, 2, 3])
    assert times.dtype == f"M8[{unit}]"
    for given in (interval, None):  # the median of 1, 1, 0 and 1 of them
        with pytest.raises(ValueError, match=rf"half an interval \({words}\) or more"):
            fill_gaps(times, interval=given)


def test_an_interval_of_months():
    times = np.array(["2026-01", "2026-02", "2026-03", "2026-03"], "M8[M]")
    with pytest.raises(ValueError, match=r"half an interval \(1 months\) or more"):
        fill_gaps(times)


def test_gaps_are_of_a_sequence():
    ids = [0, 0, 0, 1, 1, 1]
    rows, missed = fill_gaps([0.0, 1.1, 2.0, 50.0, 52.9, 54.0], groups=ids)
    assert np.take(ids, rows).tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert np.flatnonzero(missed).tolist() == [4, 5]
    assert not fill_gaps([3.0])[1].any()


@pytest.mark.parametrize(
    "times", [[0.0, 1.0, 1.1, 2.0], [0.0, -1.0], ["a", "b"], [[0]]]
)
def test_times_that_do_not_increase(times):
    with pytest.raises(ValueError, match=r"[Tt]imes"):
        fill_gaps(times, interval=1.0)


def test_lags_do_not_reach_into_another_sequence():
    X = np.arange(12.0).reshape(6, 2)
    lagged = add_lags(X, [1, 3], groups=[0, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(lagged[:, :2], X)
    np.testing.assert_array_equal(lagged[1:4, 2:4], X[:3])
    assert np.isnan(lagged[[0, 4], 2:4]).all() and (lagged[5, 2:4] == X[4]).all()
    np.testing.assert_array_equal(lagged[3, 4:], X[0])
    assert np.isnan(lagged[[0, 1, 2, 4, 5], 4:]).all()


def test_covariates_of_the_next_row_are_those_of_other_packages():
    """Where covariates lead into their row, as in moveHMM, by all paths."""
    rng, ids = np.random.default_rng(0), np.repeat([0, 1], [9, 7])
    ways = rng.normal(size=(16, 2))
    ways[[3, 12]] = 0.0  # the animal stays, and a step has length 0
    moves = prepare_tracks(ways.cumsum(axis=0), groups=ids)
    assert np.sum(moves[:, 0] == 0.0) == 2
    assert np.isnan(moves[[2, 3, 11, 12], 1]).all()
    water = rng.normal(size=16)
    mean, sd, zero = np.array([[0.5, 2.0], [0.7, 1.5], [0.1, 0.05]])
    angle, concentration = np.array([[-2.9, 0.1], [0.6, 1.2]])
    first, intercept, slope = np.array([[0.3, 0.7], [-1.0, -0.7], [-0.4, 1.1]])

    behind = np.append(ids[1:] != ids[:-1], True)
    after = np.where(behind, np.nan, np.roll(water, -1))
    step = Gamma(True, mean=np.c_[mean], sd=np.c_[sd], zero=np.c_[zero])
    turn = VonMises(mean=np.c_[angle], concentration=np.c_[concentration])
    emission = Product([("step", step, [0]), ("turn", turn, [1])])
    hmm = VRHMM(2, emission=emission, transitions=Covariates([2]), max_iter=1, tol=0.0)
    X = np.column_stack([moves, after])
    hmm.fit(X, groups=ids)
    hmm.startprob_ = first
    hmm.transitions_.intercept_[[0, 1], [1, 0]] = intercept
    hmm.transitions_.coef_[[0, 1], [1, 0], 0] = slope

    leave = 1.0 / (1.0 + np.exp(-(intercept + slope * water[:, None])))
    into = np.stack(
        [np.c_[1 - leave[:, 0], leave[:, 0]], np.c_[leave[:, 1], 1 - leave[:, 1]]], 1
    )
    length, turned = moves[:, :1], moves[:, 1:]
    dense = (1 - zero) * stats.gamma.pdf(length, (mean / sd) ** 2, scale=sd**2 / mean)
    dense = np.where(length == 0.0, zero, np.where(np.isnan(length), 1.0, dense))
    around = stats.vonmises.pdf(turned, concentration, loc=angle)
    joint = np.log(dense * np.where(np.isnan(turned), 1.0, around))
    posteriors, log_likelihood = hmm.predict_proba(X, groups=ids), 0.0
    for i in (0, 1):
        rows = ids == i
        total, gamma, *_ = enumerate_paths(joint[rows], first, into[rows][1:])
        np.testing.assert_allclose(posteriors[rows], gamma, atol=1e-12)
        log_likelihood += total
    found = hmm.score_samples(X, groups=ids).sum()
    assert found == pytest.approx(log_likelihood, abs=1e-10)
