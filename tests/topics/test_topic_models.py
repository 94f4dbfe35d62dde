"""What both topic models take, refuse and promise in the same words."""

import pickle
import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvrem import VRPLSA, TemperedLDA
from skvrem.exceptions import FractionalCountsWarning
from skvrem.text import document_completion, match_topics, top_words
from skvrem.topics import _stream
from tests.documents import (
    CONTAINERS,
    arrays_of,
    assert_same_state,
    frame_of,
    normalized,
    of_two_topics,
    planted,
)
from tests.documents import N_TOPICS as K
from tests.documents import N_WORDS as V

# Enough epochs of few short documents.
DEFAULTS = {
    VRPLSA: {"max_iter": 1000},
    TemperedLDA: {"batch_size": 50, "max_iter": 10, "tol": 0.0},
}
# Rounds on a document until nothing moves, and how close fits then are.
EXACT = {
    VRPLSA: ({}, {"rtol": 0.0, "atol": 1e-12}),
    TemperedLDA: (
        {"mean_change_tol": 1e-12, "max_doc_update_iter": 5000},
        {"rtol": 1e-7},
    ),
}
PRIORS = {
    VRPLSA: ("doc_topic_smoothing", "topic_word_smoothing"),
    TemperedLDA: ("doc_topic_prior", "topic_word_prior"),
}
KINDS = pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
FITTING = pytest.mark.parametrize("method", ["fit", "partial_fit"])
SOLVERS = ("batch", "stochastic", "svrg")
TEMPERINGS = (None, "auto", "annealed", "global", "local")
X_BAD = planted(30)[0].astype(float)


def make(kind, **params):
    return kind(**({"n_components": K, "random_state": 0} | DEFAULTS[kind] | params))


@pytest.fixture(scope="module")
def fitted():
    """Models of float64; not to be changed."""
    X, prior = planted()[0].astype(float), [0.1, 0.2, 0.3, 0.4]
    return {kind: make(kind, **{PRIORS[kind][0]: prior}).fit(X) for kind in DEFAULTS}


# Documents


@KINDS
def test_a_document_does_not_depend_on_the_others(kind, fitted):
    X, model = planted(30, seed=2)[0], fitted[kind]
    together = model.transform(X)
    for rows in (np.arange(30)[::-1], [3], [4, 4, 2]):
        np.testing.assert_allclose(model.transform(X[rows]), together[rows], atol=1e-9)


@KINDS
def test_fit_transform_is_fit_and_transform(kind):
    X = planted(300)[0]
    weight = np.arange(300) % 3.0
    one, other = make(kind), make(kind)
    theta = one.fit_transform(X, sample_weight=weight)
    np.testing.assert_array_equal(theta, other.fit(X, None, weight).transform(X))
    assert not np.array_equal(theta, make(kind).fit_transform(X))


@KINDS
def test_a_weight_of_zero_is_no_document(kind):
    X = planted()[0].astype(float)
    weight = np.ones(len(X))
    weight[::3] = 0.0
    exact, _ = EXACT[kind]
    options = {"solver": "batch", "components_init": normalized(X[:K] + 0.1), **exact}
    if kind is TemperedLDA:
        options["components_init"] = X[:K] + 0.1
    one = make(kind, **options).fit(X, sample_weight=weight)
    other = make(kind, **options).fit(X[weight > 0])
    close = {"rtol": 0.0, "atol": 1e-9} if kind is VRPLSA else {"rtol": 1e-7}
    np.testing.assert_allclose(one.components_, other.components_, **close)
    assert one.n_tokens_seen_ == other.n_tokens_seen_ == X[weight > 0].sum()
    if kind is TemperedLDA:
        assert one.n_documents_seen_ == other.n_documents_seen_ == 400


# Streams


@pytest.mark.parametrize("numbers", [int, float])
@KINDS
def test_a_stream_goes_on_from_a_pickle_bit_for_bit(kind, numbers):
    X = planted()[0].astype(numbers)
    whole, parts = make(kind), make(kind)
    for rows in np.array_split(X, 6):
        whole.partial_fit(rows)
        parts = pickle.loads(pickle.dumps(parts.partial_fit(rows)))
        assert_same_state(parts, whole)


@KINDS
def test_weights_on_a_stream_are_repetitions(kind):
    X = planted(60)[0].astype(float)
    weight = np.arange(60) % 3
    exact, close = EXACT[kind]
    one = make(kind, **exact).partial_fit(X, sample_weight=weight)
    other = make(kind, **exact).partial_fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(one.components_, other.components_, **close)
    assert one.n_tokens_seen_ == other.n_tokens_seen_


@pytest.mark.parametrize("size", [7, 300])
@KINDS
def test_a_stream_comes_near_a_fit_in_batches_of_any_size(kind, size):
    X, unseen = planted(1000, length=30)[0], planted(1000, seed=1)[0]
    stream, whole = kind(K, random_state=0), kind(K, random_state=0).fit(X)
    for start in range(0, len(X), size):
        stream.partial_fit(X[start : start + size])
    gap = document_completion(whole, unseen) - document_completion(stream, unseen)
    assert gap < 0.01
    assert stream.n_tokens_seen_ == X.sum()
    assert len(stream._first_documents.sizes) == len(X)
    assert "_first_documents" not in vars(clone(stream))
    stream.fit(X)
    assert "_first_documents" not in vars(stream)
    np.testing.assert_array_equal(stream.components_, whole.components_)


@KINDS
def test_few_documents_of_a_stream_are_fitted_to_the_end(kind):
    """EM needs many epochs of few."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(300, 0.08), 8)
    shares = rng.dirichlet(np.full(8, 0.3), 700)
    counts = np.array([rng.multinomial(50, p) for p in shares @ topics])
    for n in (80, 200):
        stream, whole = kind(8, random_state=0), kind(8, random_state=0)
        for i in range(0, n, 40):
            stream.partial_fit(counts[i : min(i + 40, n)])
        found = document_completion(stream, counts[200:])
        expected = document_completion(whole.fit(counts[:n]), counts[200:])
        assert found > expected - 0.02


@KINDS
def test_a_stream_finds_the_theme_of_its_last_batch(kind):
    X, unseen = planted(1200, length=30)[0], planted(1000, seed=1)[0]
    whole = kind(K, random_state=0).fit(X)
    order = np.argsort(whole.transform(X).argmax(axis=1), kind="stable")
    stream = kind(K, random_state=0)
    for rows in np.split(X[order], 6):
        stream.partial_fit(rows)
        assert stream.step_size_ == 0.0  # they have been fitted anew
    gap = document_completion(whole, unseen) - document_completion(stream, unseen)
    assert gap < 0.01


@KINDS
def test_what_a_stream_keeps(kind, monkeypatch):
    X = planted(200)[0]
    batch = X[:100].copy()
    stream, other = (kind(K, random_state=0) for _ in range(2))
    stream.partial_fit(batch)
    batch[:] = 0
    for rows in (X[:100], X[100:]):
        other.partial_fit(rows)
    stream.partial_fit(X[100:])
    assert_same_state(stream, other)
    given = kind(K, components_init=stream.components_).partial_fit(X)
    assert given._first_documents is None
    for name, most in (("MOST", 150), ("MOST_NONZEROS", np.count_nonzero(X[:150]))):
        with monkeypatch.context() as few:
            few.setattr(_stream, name, most)
            stream = kind(K, random_state=0).partial_fit(X[:149])
            assert len(stream._first_documents.sizes) == 149
            stream.partial_fit(X[149:150])
            assert stream._first_documents is None
            assert stream.partial_fit(X[150:])._first_documents is None


@KINDS
def test_topics_of_a_stream_keep_their_numbers(kind):
    X = planted(400)[0]
    stream = kind(K, random_state=0).partial_fit(X[:100]).relabel([2, 0, 3, 1])
    for rows in (X[100:200], X[200:]):
        before = stream.components_
        stream.partial_fit(rows)
        assert stream.step_size_ == 0.0  # they have been fitted anew
        np.testing.assert_array_equal(match_topics(before, stream).second, np.arange(K))


@KINDS
def test_small_batches_forget_what_a_large_one_does(kind):
    X = planted(700)[0]
    one, other = (kind(K, random_state=0).fit(X[:600]) for _ in range(2))
    tokens, seen = X[600:].sum(), X[:600].sum()
    offset, decay = one.step_offset, one.step_decay
    one.partial_fit(X[600:])
    step = -np.expm1(tokens / seen * np.log1p(-((1.0 + offset) ** -decay)))
    assert one.step_size_ == pytest.approx(step)
    kept = 1.0
    for rows in X[600:]:
        other.partial_fit(rows[None])
        kept *= 1.0 - other.step_size_
    assert 1.0 - kept == pytest.approx(step, rel=0.1)


@KINDS
def test_a_stream_begins_with_the_first_word(kind):
    X = of_two_topics()
    model = kind(2, random_state=0).partial_fit(np.zeros((3, X.shape[1])))
    with pytest.raises(NotFittedError):
        model.transform(X)
    model.partial_fit(X)
    other = kind(2, random_state=0).partial_fit(X)
    np.testing.assert_array_equal(model.components_, other.components_)


@KINDS
def test_a_stream_may_begin_with_all_documents(kind):
    X, _ = planted(2000)
    stream = kind(K, random_state=0).partial_fit(X)
    whole = kind(K, random_state=0).fit(X).score(X)
    assert whole - stream.score(X) < 0.05 * abs(whole)
    # One batch does not undo topics that are given.
    given = stream.components_
    kept = kind(K, components_init=given, random_state=0).partial_fit(X[:20])
    assert abs(normalized(kept.components_) - normalized(given)).sum(axis=1).max() < 0.5


# Names


@KINDS
def test_names_of_words_and_of_topics(kind):
    X = planted(50)[0]
    model = make(kind).fit(frame_of(X))
    assert list(model.feature_names_in_[:2]) == ["word0", "word1"]
    names = [f"{kind.__name__.lower()}{k}" for k in range(K)]
    assert list(model.get_feature_names_out()) == names
    with pytest.warns(UserWarning, match="feature names"):
        model.transform(X)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame_of(X)[[f"word{v}" for v in range(V)][::-1]])


@KINDS
def test_set_output(kind):
    frame = frame_of(planted(50)[0])
    model = make(kind).set_output(transform="pandas").fit(frame)
    table = model.transform(frame)
    assert list(table.columns) == [f"{kind.__name__.lower()}{k}" for k in range(K)]
    assert (table.index == frame.index).all()
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-5)
    assert np.isfinite(model.score(frame))


@KINDS
def test_in_a_pipeline_with_a_vectorizer(kind):
    texts = ["sun rain wind sun rain cloud", "goal ball team goal ball win"] * 10
    model = make_pipeline(CountVectorizer(), make(kind, n_components=2)).fit(texts)
    topics = {frozenset(words) for words in top_words(model, n=2)}
    assert topics == {frozenset({"sun", "rain"}), frozenset({"goal", "ball"})}
    theta = model.transform(["rain and sun", "ball", "nothing known"])
    assert theta[0].argmax() != theta[1].argmax()
    np.testing.assert_allclose(theta[2], 0.5)
    assert model.score(texts) < 0.0
    assert len(model.get_feature_names_out()) == 2


@KINDS
def test_scalars_are_constant_arrays(kind):
    X = planted(200)[0].astype(float)
    doc, word = PRIORS[kind]
    plsa = kind is VRPLSA
    b, close = (0.7, {"rtol": 0, "atol": 1e-10}) if plsa else (1.7, {"rtol": 1e-6})
    scalars = make(kind, **{doc: 0.3, word: b}).fit(X)
    arrays = {doc: np.full(K, 0.3), word: np.full((K, V), b)}
    arrays = make(kind, **arrays).fit(X)
    np.testing.assert_allclose(scalars.components_, arrays.components_, **close)
    rtol = 0.0 if plsa else 1e-6
    np.testing.assert_allclose(scalars.transform(X), arrays.transform(X), rtol=rtol)
    assert getattr(arrays, f"{word}_").shape == (K, V)


# Numbers and containers


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (np.int64, np.float32),
        (np.int32, np.float32),
        (np.uint8, np.float32),
        (bool, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("kind", "params"),
    [(VRPLSA, {}), *((TemperedLDA, {"tempering": t}) for t in (None, "local"))],
)
def test_dtypes(kind, params, form, numbers, expected):
    X = form(np.minimum(planted(80)[0], 200).astype(numbers))
    model = make(kind, **params).fit(X)
    assert model.components_.dtype == expected
    assert model.transform(X).dtype == expected
    # Fitted in one precision, it answers in it.
    assert model.transform(planted(5)[0].astype(float)).dtype == expected
    assert make(kind).partial_fit(X).components_.dtype == expected
    if kind is VRPLSA:
        np.testing.assert_allclose(model.components_.sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("form", CONTAINERS)
@KINDS
def test_containers_agree_and_are_left_alone(kind, form):
    X = planted(400)[0]
    reference = make(kind).fit(sp.csr_array(X))
    given = form(X)
    before = [array.copy() for array in arrays_of(given)]
    model = make(kind).fit(given)
    close = {"rtol": 0.0, "atol": 1e-3} if kind is VRPLSA else {"rtol": 0.02}
    np.testing.assert_allclose(model.components_, reference.components_, **close)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a frame has names
        np.testing.assert_allclose(
            model.transform(given), reference.transform(X), atol=5e-3
        )
    close = {"abs": 1e-3} if kind is VRPLSA else {"rel": 1e-4}
    assert model.score(given) == pytest.approx(reference.score(X), **close)
    model.partial_fit(given)
    for array, old in zip(arrays_of(given), before, strict=True):
        assert array.dtype == old.dtype
        assert np.array_equal(array, old)


@pytest.mark.parametrize(
    ("kind", "solver", "params"),
    [
        *((VRPLSA, solver, {"max_iter": 200, "tol": 0.0}) for solver in SOLVERS),
        *(
            (TemperedLDA, solver, {"tempering": tempering})
            for solver, tempering in product(SOLVERS, TEMPERINGS)
            if (solver, tempering) != ("svrg", "local")  # which is refused
        ),
    ],
)
def test_the_same_bits_for_any_number_of_threads(kind, solver, params):
    X, params = planted(300)[0], params | {"n_components": 20, "solver": solver}
    fits = [make(kind, n_jobs=n_jobs, **params).fit(X) for n_jobs in (1, 3)]
    for name in ("components_", "topic_shares_", "objective_"):
        np.testing.assert_array_equal(*(getattr(fit, name) for fit in fits))
    np.testing.assert_array_equal(*(fit.transform(X) for fit in fits))
    np.testing.assert_array_equal(
        *(fit.partial_fit(X[:50]).components_ for fit in fits)
    )


@pytest.mark.parametrize("dtype", ["float16", ">f8", ">f4", ">i4", "longdouble"])
@KINDS
def test_numbers_of_any_machine(kind, dtype):
    # Of starts that end alike rounding chooses one, and with it the order of topics.
    X, how = of_two_topics(), {"random_state": 0, "n_init": 1}
    model = kind(2, **how).fit(X.astype(dtype))
    other = kind(2, **how).fit(X.astype(float))
    atol = 1e-5 if kind is VRPLSA else 1e-4
    np.testing.assert_allclose(model.components_, other.components_, atol=atol)
    assert np.isfinite(model.score(X.astype(dtype)))


# Bad input


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_components": 0}, "n_components of {} must be an integer of at least"),
        ({"solver": "saga"}, "solver of {} must be 'auto' or 'batch' or"),
        ({"step_size": 0.0}, "step_size"),
        ({"step_decay": 1.5}, "step_decay"),
        ({"step_offset": 0.0}, "step_offset"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": "all"}, "batch_size"),
        ({"max_iter": -1}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"tempering": "hot"}, "tempering"),
        ({"temperature": 0.5}, "temperature"),
        ({"annealing_iter": -1}, "annealing_iter"),
        ({"n_init": 0}, "n_init"),
        ({"components_init": np.ones((2, V))}, "components_init must have shape"),
        ({"components_init": np.zeros((K, V))}, "components_init must be finite"),
        ({"components_init": -np.ones((K, V))}, "components_init must be finite"),
        ({"warm_start": "yes"}, "warm_start"),
        ({"random_state": "seven"}, "seed"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"verbose": -1}, "verbose"),
        ({"verbose_interval": 0}, "verbose_interval"),
        ({0: np.nan}, "{} must be finite"),
        ({0: [0.1, 0.2]}, r"{} must .* of shape \(4,\), got shape \(2,\)"),
        ({0: "auto"}, "{} must be numbers or None"),
        ({1: np.ones(V)}, r"{} must .* of shape \(4, 60\), got shape \(60,\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@KINDS
def test_impossible_parameters(kind, params, match):
    ((name, value),) = params.items()
    called = kind.__name__
    if name in (0, 1):  # the prior of a document's shares, of the topics' words
        name = called = PRIORS[kind][name]
    model = make(kind, **{name: value})
    with pytest.raises(ValueError, match=match.format(called)):
        model.fit(X_BAD)
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "components_")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("value", "match"),
    [
        (-1.0, "Negative values in data passed to {} .*word counts"),
        (np.nan, "NaN"),
        (np.inf, "infinity"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform", "score"])
@KINDS
def test_impossible_counts(kind, method, value, match, form, fitted):
    X = X_BAD.copy()
    X[3, 4] = value
    model = fitted[kind] if method in ("transform", "score") else make(kind)
    with pytest.raises(ValueError, match=match.format(kind.__name__)):
        getattr(model, method)(form(X))


@pytest.mark.parametrize("X", [np.zeros((5, 3)), sp.csr_array((5, 3))])
@KINDS
def test_no_counts(kind, X):
    model = make(kind)
    with pytest.raises(ValueError, match="X has no counts"):
        model.fit(X)
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (np.ones(5), "2D"),
        (np.ones((0, 3)), "0 sample"),
        (np.ones((3, 0)), "0 feature"),
        ([["a", "b"]], "CountVectorizer"),
        (["some text"], "CountVectorizer"),
        (np.ones((3, 2)) * 1j, "Complex"),
    ],
)
@FITTING
@KINDS
def test_impossible_matrices(kind, method, X, match):
    model = make(kind)
    with pytest.raises(ValueError, match=match):
        getattr(model, method)(X)
    assert not hasattr(model, "n_features_in_")


TEXTS = ["a b c", "d e f"]


@pytest.mark.parametrize(
    "texts", [TEXTS, tuple(TEXTS), np.array(TEXTS), np.array([TEXTS], object).T]
)
@KINDS
def test_texts_are_to_be_counted_first(kind, texts):
    for method in ("fit", "partial_fit", "fit_transform"):
        with pytest.raises(ValueError, match="CountVectorizer"):
            getattr(kind(2), method)(texts)


@pytest.mark.parametrize("big", [1e19, 1e200, 1e308])
@KINDS
def test_counts_that_cannot_be_added_up(kind, big, fitted):
    X = np.full((2, V), big)
    with pytest.raises(ValueError, match="a count of"):
        kind(2).fit(X)
    for method in ("score", "perplexity", "transform", "partial_fit"):
        with pytest.raises(ValueError, match="a count of"):
            getattr(fitted[kind], method)(X)


@KINDS
def test_counts_lost_in_rounding(kind):
    for tiny in ([[5e-324]], np.full((2, 3), 1e-200)):
        with pytest.raises(ValueError, match="tokens in all"):
            kind(2).fit(tiny)
    with pytest.raises(ValueError, match="lost in floating point"):
        kind(2).fit(of_two_topics(), sample_weight=np.full(40, 1e300))


@pytest.mark.parametrize("factor", [0.01, 1e-6])
@KINDS
def test_fractions_of_counts_are_told(kind, factor):
    X = of_two_topics() + 1
    told = f"priors of {kind.__name__} are in counts"
    with pytest.warns(FractionalCountsWarning, match=told):
        kind(2, random_state=0).fit(X * factor)
    with pytest.warns(FractionalCountsWarning):
        kind(2, random_state=0).partial_fit(X * factor).partial_fit(X)


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (-np.ones(30), "negative"),
        (np.zeros(30), "zero"),
        (np.ones(3), "one number for each"),
        (np.full(30, np.nan), "NaN"),
    ],
)
@FITTING
@KINDS
def test_impossible_weights(kind, method, weight, match):
    X = X_BAD.copy()
    X[0] = 0.0
    with pytest.raises(ValueError, match=match):
        getattr(make(kind), method)(X, sample_weight=weight)


@KINDS
def test_no_word_of_positive_weight(kind):
    X, weight = X_BAD.copy(), np.r_[1.0, np.zeros(29)]
    X[0] = 0.0
    with pytest.raises(ValueError, match="positive weight"):
        make(kind).fit(X, sample_weight=weight)
    model = make(kind).partial_fit(X)
    before = model.components_
    model.partial_fit(X, sample_weight=weight)  # a batch that says nothing
    np.testing.assert_array_equal(model.components_, before)


@KINDS
def test_other_widths_and_numbers_of_topics_than_before(kind, fitted):
    model = pickle.loads(pickle.dumps(fitted[kind]))
    for method in ("transform", "score", "perplexity", "partial_fit"):
        with pytest.raises(ValueError, match=r"5 features.*60 features"):
            getattr(model, method)(np.ones((3, 5)))
    model.set_params(n_components=3, **{PRIORS[kind][0]: None})
    with pytest.raises(ValueError, match="but the model has 4 topics: call fit"):
        model.partial_fit(X_BAD)


@KINDS
def test_unfitted_use_says_so(kind):
    for method in ("transform", "inverse_transform", "score", "perplexity"):
        with pytest.raises(NotFittedError):
            getattr(make(kind), method)(X_BAD)
    for method in ("summary", "get_feature_names_out"):
        with pytest.raises(NotFittedError):
            getattr(make(kind), method)()
    with pytest.raises(NotFittedError):
        make(kind).relabel([0])


@pytest.mark.parametrize("estimator", [TemperedLDA, VRPLSA])
def test_counts_that_round_to_nothing_are_none(estimator, rng):
    """A document of float64 counts too small for a model in float32 is empty."""
    X = rng.poisson(1.0, size=(30, 12)).astype(np.float32)
    model = estimator(3, random_state=0).fit(X)
    tiny = np.zeros((3, 12))
    tiny[0, 3:5], tiny[1] = 1e-300, X[1]
    tiny[1, 0] = 1e-60
    before = tiny.copy()
    shares = model.transform(tiny)
    np.testing.assert_array_equal(shares[0], shares[2])
    assert np.isfinite(shares).all()
    np.testing.assert_array_equal(tiny, before)


@pytest.mark.parametrize("kind", [VRPLSA, TemperedLDA])
def test_short_fits_race_by_default(kind):
    """Topics that are known: four starts end higher than most of them alone."""
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(200, 0.05), size=12)
    shares = rng.dirichlet(np.full(12, 0.1), size=120)
    X = np.stack([rng.multinomial(30, p / p.sum()) for p in shares @ topics])
    single = [kind(12, n_init=1, random_state=s).fit(X).objective_ for s in range(8)]
    found = [kind(12, random_state=s).fit(X) for s in range(4)]
    best = [model.objective_ for model in found]
    assert np.median(best) > np.mean(single) + 1e-2
    assert np.median(best) > max(single) - 1e-3
    for model in found:
        assert np.nanmax(model.init_scores_) <= model.objective_ + 1e-12
        assert model.init_scores_.shape == (4,)


def test_a_cold_start_races_with_the_annealed_one(monkeypatch):
    """Of mean field by minibatches the higher of both is kept; if long, annealed."""
    X = np.random.default_rng(0).poisson(0.3, size=(1_100, 20))
    how = {"e_step": "mean_field", "tol": 0.0, "random_state": 0, "max_iter": 10}
    both = TemperedLDA(2, **how).fit(X)
    assert both.solver_ == "svrg"
    assert both.init_scores_.shape == (2,)
    assert both.objective_ == pytest.approx(both.init_scores_.max(), abs=1e-12)
    cold = TemperedLDA(2, n_init=1, **how | {"tempering": None}).fit(X)
    assert cold.objective_ == pytest.approx(both.init_scores_[0], abs=1e-12)
    # The second seed, with temperatures.
    annealed = TemperedLDA(2, n_init=2, **how).fit(X)
    assert annealed.history_["temperature"][0] > 1.0
    assert annealed.init_scores_[1] == pytest.approx(both.init_scores_[1], abs=1e-12)
    for more in (
        {"tempering": "annealed"},
        {"temperature": 1.2},
        {"solver": "batch"},
        {"annealing_iter": 6, "max_iter": 12},  # not cold where they are compared
    ):
        assert TemperedLDA(2, **how | more).fit(X).init_scores_.shape == (1,)
    work = 2 * np.count_nonzero(X)
    monkeypatch.setattr("skvrem.topics.lda._estimator.COLD_WORK", work - 1)
    assert TemperedLDA(2, **how).fit(X).init_scores_.shape == (1,)


@pytest.mark.parametrize("kind", [VRPLSA, TemperedLDA])
def test_one_start_where_a_race_is_long_or_pointless(kind, monkeypatch):
    X = np.random.default_rng(0).poisson(1.0, size=(60, 20))
    how = {"max_iter": 2, "tol": 0.0, "random_state": 0}
    tempered = kind(2, tempering="annealed", annealing_iter=1, **how).fit(X)
    given = kind(2, components_init=np.ones((2, 20)) + np.arange(20), **how).fit(X)
    monkeypatch.setattr("skvrem.topics._base.MOST_WORK", 2 * np.count_nonzero(X) - 1)
    long = kind(2, **how).fit(X)
    for model in tempered, given, long:
        assert model.init_scores_.shape == (1,)
    monkeypatch.undo()
    assert kind(2, **how).fit(X).init_scores_.shape == (4,)
    np.testing.assert_array_equal(
        long.components_, kind(2, n_init=1, **how).fit(X).components_
    )
