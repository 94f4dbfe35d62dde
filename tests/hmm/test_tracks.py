"""Step lengths and turning angles of tracks."""

import datetime

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


HOURS = ("UTC", "2024-01-01"), ("Europe/Berlin", "2024-10-26 22:00")


def forms(dates):
    """A column of times with a zone, as it is held."""
    pd = pytest.importorskip("pandas")
    yield dates
    yield pd.Series(dates)
    yield list(dates)
    yield list(dates.to_pydatetime())
    yield dates.as_unit("ns")


@pytest.mark.parametrize(("zone", "start"), HOURS)
def test_times_with_a_zone_are_instants(zone, start):
    pd = pytest.importorskip("pandas")
    # In Berlin there are two hours that begin at 2.
    dates = pd.date_range(start, periods=10, freq="h", tz=zone).delete([1, 4, 5])
    walk = np.random.default_rng(0).normal(size=(7, 2)).cumsum(axis=0)
    wanted = prepare_tracks(walk, times=np.delete(np.arange(10), [1, 4, 5]))
    assert wanted[1].tolist() == [0, 0, 1, 2, 2, 2, 3, 4, 5, 6]
    for times in forms(dates):
        for own, other in zip(prepare_tracks(walk, times=times), wanted, strict=True):
            np.testing.assert_array_equal(own, other)
        hour = pd.Timedelta("1h")
        np.testing.assert_array_equal(fill_gaps(times, interval=hour)[0], wanted[1])


def test_nanoseconds_of_times_with_a_zone_count():
    pd = pytest.importorskip("pandas")
    dates = pd.to_datetime([1, 2, 4, 5], unit="ns", utc=True)
    for times in (dates, list(dates)):
        assert fill_gaps(times)[0].tolist() == [0, 1, 1, 2, 3]


def test_dates_of_the_standard_library():
    days = [datetime.date(2024, 1, day) for day in (1, 2, 4)]
    assert fill_gaps(days)[0].tolist() == [0, 1, 1, 2]
    midnights = [datetime.datetime(day.year, 1, day.day) for day in days]
    day = datetime.timedelta(days=1)
    assert fill_gaps(midnights, interval=day)[0].tolist() == [0, 1, 1, 2]
    midnights[1] = midnights[1].replace(tzinfo=datetime.UTC)
    with pytest.raises(ValueError, match="without: those of rows 1 and 0"):
        fill_gaps(midnights)


DATES = np.array(["2024-01-01", "NaT", "2024-01-03"], "M8[s]")


@pytest.mark.parametrize(
    ("times", "interval", "message"),
    [
        ([0.0, np.nan, 2.0, np.inf], None, "rows 1, 3: the first is nan"),
        (np.full(8, np.nan), 1.0, "rows 0, 1, 2, 3, 4 and 3 more"),
        (DATES, None, "rows 1: the first is NaT"),
        ([datetime.date(2024, 1, 1), None], None, "rows 1: the first is NaT"),
        ([0, 1, 2], 0, "interval must be positive"),
        ([0, 1, 2], -1.0, "interval must be positive"),
        ([0, 1, 2], np.nan, "interval must be positive"),
        ([0, 1, 2], np.inf, "interval must be positive"),
        (DATES[::2], np.timedelta64(0, "h"), "interval must be positive"),
        (DATES[::2], np.timedelta64("NaT"), "interval must be positive"),
        (DATES[::2], 5, "interval must be a timedelta"),
        ([0, 1, 2], np.timedelta64(1, "h"), "interval must be a number"),
        ([1, 1, 1], None, "increase: those of rows 0 and 1 are 1 and 1"),
        (DATES[::-2], None, "increase: those of rows 0 and 1"),
        (np.array([5, 6, 0], "u8"), 1.0, "rows 1 and 2 are 6 and 0"),
    ],
)
def test_times_and_intervals_are_looked_at_first(times, interval, message):
    with pytest.raises(ValueError, match=message):
        fill_gaps(times, interval=interval)


def test_small_integers_do_not_wrap_around():
    assert fill_gaps(np.array([-100, 100], "i1"), interval=100)[1].sum() == 1


def test_latitudes_come_second():
    good = [[-180.0, 90.0], [95.0, -90.0], [np.nan, np.nan]]
    prepare_tracks(good, coordinates="lonlat")
    prepare_tracks([[10, 95.0], [11, 96]])
    with pytest.raises(ValueError, match=r"of row 1 is 96.*longitude comes first"):
        prepare_tracks([[10, -6.0], [11, 96]], coordinates="lonlat")


@pytest.mark.parametrize("ids", [[0, 1, 0, 1], ["a", "b", "b", "a"]])
def test_sequences_that_come_apart_are_refused_as_by_a_fit(ids):
    X = np.arange(8.0).reshape(4, 2)
    calls = (
        VRHMM().fit,
        prepare_tracks,
        lambda X, groups: prepare_tracks(X, times=np.arange(4), groups=groups),
        lambda X, groups: fill_gaps(np.arange(4), groups=groups),
        lambda X, groups: add_lags(X, groups=groups),
    )
    said = set()
    for call in calls:
        with pytest.raises(ValueError, match="must follow each other") as caught:
            call(X, groups=ids)
        said.add(str(caught.value))
    assert len(said) == 1
    with pytest.raises(ValueError, match="no id in row 1"):
        add_lags(X, groups=[0.0, np.nan, 1.0, 1.0])


def test_one_time_for_each_position():
    with pytest.raises(ValueError, match="each of the 4 positions"):
        prepare_tracks(np.ones((4, 2)), times=[0, 1, 2])


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
