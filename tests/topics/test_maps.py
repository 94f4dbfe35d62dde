"""Counts on disk: a CSR matrix whose parts are memory maps is read where it lies."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from skvrem import VRPLSA, TemperedLDA
from skvrem.topics._documents import as_documents

N_DOCUMENTS, N_WORDS, LENGTH = 6000, 200, 50


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    """Return counts in memory and a map of them, positions of two types."""
    rng = np.random.default_rng(0)
    index = np.argsort(rng.random((N_DOCUMENTS, N_WORDS)), axis=1)[:, :LENGTH]
    index = np.sort(index, axis=1).ravel()
    counts = 1.0 + rng.poisson(1.0, index.size)
    indptr = LENGTH * np.arange(N_DOCUMENTS + 1)
    parts = counts.astype("f4"), index.astype("i4"), indptr.astype("i8")
    shape = N_DOCUMENTS, N_WORDS
    found, folder = sp.csr_array(shape, dtype="f4"), tmp_path_factory.mktemp("map")
    names = "data", "indices", "indptr"
    for name, part in zip(names, parts, strict=True):
        part.tofile(folder / name)
        setattr(found, name, np.memmap(folder / name, part.dtype, "r"))
    return sp.csr_array(parts, shape=shape), found


KINDS = {
    "pLSA batch": (VRPLSA, {"solver": "batch"}),
    "pLSA svrg": (VRPLSA, {"solver": "svrg"}),
    "collapsed": (TemperedLDA, {"solver": "svrg"}),
    "mean field": (TemperedLDA, {"e_step": "mean_field", "solver": "svrg"}),
}
#: Bytes: a weight a nonzero and shares of documents before and after; the tokens of a
#: few documents of "collapsed", and what says where "mean field" begins to anneal.
PEAKS = {
    "pLSA batch": 2.8e6,
    "pLSA svrg": 2.9e6,
    "collapsed": 7.0e6,
    "mean field": 4.6e6,
}


@pytest.mark.parametrize("name", KINDS)
def test_a_map_is_fitted_as_memory_is_and_not_copied(mapped, name):
    kind, params = KINDS[name]
    made = {"max_iter": 2, "tol": 0.0, "random_state": 0, "n_jobs": 1, "n_init": 1}
    made |= params
    peaks, fits = [], []
    for X in mapped:
        kind(2, **made).fit(X[:400])  # compiles
        tracemalloc.start()
        fits.append(kind(2, **made).fit(X))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    for attribute in "components_", "topic_shares_":
        expected, found = (getattr(fit, attribute) for fit in fits)
        np.testing.assert_array_equal(found, expected)
    expected, found = (fit.history_["objective"] for fit in fits)
    np.testing.assert_array_equal(found, expected)
    copies = 8 * mapped[0].nnz
    assert peaks[1] < PEAKS[name]
    # A block of a map is cut by NumPy, which needs room.
    assert peaks[1] < peaks[0] + (0.0 if params["solver"] == "batch" else 0.2 * copies)


@pytest.mark.parametrize("kind", [VRPLSA, TemperedLDA])
def test_answers_of_a_map_are_those_of_memory(mapped, kind):
    X, on_disk = mapped
    model = kind(2, max_iter=1, tol=0.0, random_state=0, n_jobs=1).fit(X[:500])
    np.testing.assert_array_equal(model.transform(on_disk), model.transform(X))
    assert model.score(on_disk) == model.score(X)


def test_a_source_of_a_map_holds_views(mapped):
    source = as_documents(mapped[1], dtype=np.float32)
    (batch,) = source.chunks().batches
    for part in batch.rows[:2]:
        base = part
        while base.base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap)
    weighted = as_documents(mapped[0], np.linspace(0.0, 2.0, N_DOCUMENTS))
    np.testing.assert_allclose(
        weighted.word_totals, mapped[0].T @ np.linspace(0.0, 2.0, N_DOCUMENTS)
    )


def test_words_that_do_not_ascend_are_found_in_every_piece(monkeypatch):
    monkeypatch.setattr("skvrem.topics._documents.PIECE", 3)
    rng = np.random.default_rng(0)
    X = sp.random_array((40, 12), density=0.3, format="csr", rng=rng)
    X.data = np.ceil(9.0 * X.data)
    source = as_documents(X)
    np.testing.assert_array_equal(source.X.toarray(), X.toarray())
    assert source.X.indices is X.indices
    for row in np.flatnonzero(np.diff(X.indptr) > 1):
        start, stop = X.indptr[row : row + 2]
        turned = X.copy()
        turned.data[start:stop] = turned.data[start:stop][::-1]
        turned.indices[start:stop] = turned.indices[start:stop][::-1]
        turned.has_canonical_format = turned.has_sorted_indices = False
        np.testing.assert_array_equal(as_documents(turned).X.toarray(), X.toarray())
        assert (np.diff(as_documents(turned).X.indices[start:stop]) > 0).all()
    lengths = source.chunks().batches[0].lengths
    np.testing.assert_allclose(lengths, X.sum(axis=1))


def test_bounds_of_parts_are_those_of_all(mapped, monkeypatch):
    X = mapped[0][:300]
    made = {"max_iter": 2, "tol": 0.0, "random_state": 0, "n_jobs": 1}
    for more in {}, {"e_step": "mean_field"}:
        whole = TemperedLDA(2, **made, **more).fit(X)
        with monkeypatch.context() as patch:
            patch.setattr("skvrem.topics._documents.PART", 1000)
            parts = TemperedLDA(2, **made, **more).fit(X)
            assert len(as_documents(X).parts()) > 5
            assert parts.score(X) == pytest.approx(whole.score(X), rel=1e-6)
        np.testing.assert_array_equal(parts.components_, whole.components_)
        assert parts.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-6)
