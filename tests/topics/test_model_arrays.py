"""Where the large arrays of fits lie."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from skvrem.topics import _model_arrays
from skvrem.topics._model_arrays import Pages, pad, padded_empty

N = _model_arrays.LARGE  # float64: eight times what is worth pages


def address(array):
    return array.ctypes.data


def test_large_arrays_of_fits_have_memory_of_their_own():
    places, n = Pages(), N // 4
    with places.reused():
        for size, traced in ((n, False), (n - 1, True)):
            tracemalloc.start()
            try:
                array = places.empty(size, np.float32)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert (peak > N // 2) == traced
            assert array.shape == (size,)
            assert array.dtype == np.float32
            array[:] = 1.0


def test_an_array_takes_the_place_of_one_that_is_gone():
    places = Pages()
    with places.reused():
        first = places.empty(N, np.float64)
        at = address(first)
        rows = first.reshape(-1, 16)[1:]
        del first
        beside = places.empty(N, np.float64)
        assert address(beside) != at  # a view of the first is left
        rows[:] = 1.0
        del rows
        after = places.empty(N - 16, np.float64)
        assert address(after) == at


@pytest.mark.parametrize("size", [N // 2, 3 * N])
def test_places_of_another_size_stay(size):
    places = Pages()
    with places.reused():
        at = address(places.empty(N, np.float64))
        other = places.empty(size, np.float64)
        assert other.size == size
        assert address(places.empty(N, np.float64)) == at


def test_a_place_that_has_become_small_is_given_back():
    places = Pages()
    with places.reused():
        places.empty(N, np.float64)
        places.empty(N + N // 8, np.float64)
        assert [len(place) for place in places._free] == [9 * N]


def test_nothing_is_kept_beyond_the_last_fit():
    places = Pages()
    with places.reused():
        with places.reused():
            places.empty(N, np.float64)
        assert len(places._free) == 1
        kept = places.empty(2 * N, np.float64)
        kept[:] = 3.0
    assert not places._free
    assert np.all(kept == 3.0)
    del kept
    assert not places._free
    assert places.empty(N, np.float64).base is None


def test_threads_share_no_place():
    places = Pages()

    def use(number):
        for _ in range(50):
            array = places.empty(N // 8, np.float64)
            array[::512] = number
            if not np.all(array[::512] == number):
                return False
        return True

    with places.reused(), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(8)))


def test_padding_is_zero_whatever_lay_there():
    places, (n, k) = Pages(), (N // 16, 9)
    with places.reused():
        padded_empty(n, k, np.float64, places.empty)[:] = np.nan
        found = pad(np.ones((n, k)), np.float64, places.empty)
        assert np.all(found[:, :k] == 1.0)
        assert not found[:, k:].any()
