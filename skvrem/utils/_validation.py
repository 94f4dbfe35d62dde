"""Checks that raise in `fit`, before any state changes, and say what to do."""

import inspect
import math
import warnings
from contextlib import contextmanager
from functools import cache
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from sklearn import get_config
from sklearn.utils import check_array, check_random_state, column_or_1d, get_tags
from sklearn.utils.validation import validate_data as _validate_data

from skvrem.utils._classes import number_classes, ordered
from skvrem.utils._columns import check_one_each, naming_columns, native
from skvrem.utils._parallel import threads
from skvrem.utils._remote import (
    check_chunks,
    check_has_targets,
    check_table,
    is_frame,
    of_dask,
    refuse_dask,
)


@contextmanager
def all_or_nothing(estimator):
    """Make a fit happen wholly or not at all, around `fit` and `partial_fit`.

    Parameters are checked first, and the block has the estimator's threads; it gets
    what `_check_parameters` returns.

    Every attribute of the estimator is put back if the block does not end well: by an
    error, a KeyboardInterrupt, or a fit that came to numbers that are not finite.
    Fitted arrays must be replaced, not written to, as only the references are kept.
    A fit that ends well remembers its parameters, see
    :class:`~skvrem.utils._base.FitRecord`.
    """
    before = dict(vars(estimator))
    try:
        with threads(getattr(estimator, "n_jobs", 1)):
            yield estimator._check_parameters()
        check_finite_fit(estimator)
        estimator._remember_parameters()
        vars(estimator).pop("_resumed", None)  # what a checkpoint would go on from
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


# Weights that sums can be made of in any precision.
LEAST_WEIGHT, MOST_WEIGHT = 1e-30, 1e30
# Numbers whose squares can be added up.
MOST_VALUE = {"f": 1e17, "d": 1e150}
PRODUCTS = {2: "squares", 4: "products of squares"}
# Largest whole number that a parameter can be.
MOST_INTEGER = int(np.iinfo(np.int64).max)

# Fitted attributes that may hold NaN or infinities: first gains, starts that failed,
# intervals at bounds, what is known of a fit that was not asked for.
MAY_BE_INFINITE = {
    "bound_",  # a perplexity
    "elbo_error_",
    "gap_left_",
    "history_",
    "init_scores_",
    "lower_bounds_",
    "noise_df_",  # of a noise that is given
}


def check_finite_fit(estimator):
    """Check that what a fit has come to are numbers.

    Raises
    ------
    ValueError
        If a fitted attribute holds NaN or an infinity, with the likely cause.
    """
    wrong = sorted(
        name
        for name, value in vars(estimator).items()
        if name.endswith("_")
        and not name.startswith("_")
        and name not in MAY_BE_INFINITE
        and not _finite(value)
    )
    if wrong:
        raise ValueError(
            f"The fit of {type(estimator).__name__} came to numbers that are not "
            f"finite ({', '.join(wrong)}): values of the data, of the weights or of "
            "the priors are too large or too small for floating point. Scale the data "
            "(sklearn.preprocessing.StandardScaler), or look for outliers."
        )


def _finite(value):
    if isinstance(value, list | tuple):
        return all(map(_finite, value))
    if isinstance(value, float | np.floating):
        return bool(np.isfinite(value))
    if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
        return bool(np.isfinite(value).all())
    return True


def validate_data(estimator, X="no_validation", y="no_validation", **kwargs):
    """Validate as scikit-learn does, but load no container of dask in silence.

    Raises
    ------
    ValueError
        Naming the columns that hold something else than numbers, beside all that
        scikit-learn refuses.
    TypeError
        If X or y is one of dask's, and X is to be checked as an array in memory; or if
        scikit-learn is told to compute with another library's arrays.
    """
    if kwargs.get("skip_check_array"):
        if isinstance(X, list | tuple) and not X:
            check_array(X)  # which says so in words
        return _validate_data(estimator, X, y, **kwargs)
    refuse_dask(X, y)
    _refuse_dispatch(X, y)
    if kwargs.get("dtype", "numeric") is None:  # labels
        return _validate_data(estimator, X, y, **kwargs)
    needs = f"{type(estimator).__name__} needs numbers"
    with naming_columns(X, needs, "Encode such columns, or leave them out."):
        found = _validate_data(estimator, X, y, **kwargs)
        checked = found[0] if isinstance(found, tuple) else found
        if checked.dtype.kind not in "biuf":
            raise ValueError(f"{needs}, but X holds {checked.dtype}.")
    if isinstance(found, tuple):
        return native(checked), *found[1:]
    return native(checked)


def _refuse_dispatch(*arrays):
    """Raise a TypeError for what scikit-learn would leave an array of its library."""
    if not get_config().get("array_api_dispatch"):
        return
    for X in arrays:
        library = type(X).__module__.partition(".")[0]
        # Tensors of torch and arrays of CuPy have no such method.
        other = hasattr(X, "__array_namespace__") or library in ("torch", "cupy")
        if other and not isinstance(X, np.ndarray | np.generic):
            raise TypeError(
                f"array_api_dispatch is on, but skvrem computes with numpy, not with "
                f"arrays of {library}: pass numpy.asarray(X), or switch it off with "
                "sklearn.config_context(array_api_dispatch=False)."
            )


def _fail(estimator, name, expected):
    value = getattr(estimator, name)
    raise ValueError(
        f"{name} of {type(estimator).__name__} must be {expected}, got {value!r}."
    )


def check_options(estimator, **options):
    """Check that parameters are among their options.

    Parameters
    ----------
    estimator : BaseEstimator
    **options : tuples, by name of parameter
    """
    for name, allowed in options.items():
        value = getattr(estimator, name)
        if isinstance(value, np.bool_):  # of a grid that is an array
            value = bool(value)
        # Types first: an array compares elementwise, and True equals 1.
        if not among(value, allowed):
            _fail(estimator, name, " or ".join(map(repr, allowed)))


def among(value, options):
    """Whether a value is one of some options, and of its type."""
    return any(type(value) is type(a) and value == a for a in options)


def check_aliases(estimator, aliases):
    """Check that no parameter is given under two names.

    Parameters
    ----------
    estimator : estimator
    aliases : dict of str to str
        Names that are None unless given, and the parameters that they stand for.

    Raises
    ------
    ValueError
        If both are given, the second as another value than its default.
    """
    parameters = inspect.signature(type(estimator)).parameters
    for alias, name in aliases.items():
        given = getattr(estimator, alias) is not None
        if given and getattr(estimator, name) != parameters[name].default:
            raise ValueError(
                f"{alias} is another name of {name}: give one of the two, not both."
            )


# Ranges of numbers, as `check_integer` and `check_real` take them; and those that
# parameters of a name have in every estimator, None where others check them.
AT_LEAST_1, ABOVE_0 = {"least": 1}, {"above": True}
USUAL_RANGES = {
    "batch_size": AT_LEAST_1,
    "inner_iter": AT_LEAST_1,
    "max_inner_iter": AT_LEAST_1,
    "n_components": AT_LEAST_1,
    "n_init": AT_LEAST_1,
    "n_jobs": None,
    "rank": AT_LEAST_1,
    "step_decay": {"above": True, "most": 1.0},
    "step_offset": ABOVE_0,
    "step_size": ABOVE_0,
    "temperature": AT_LEAST_1,
    "verbose_interval": AT_LEAST_1,
}


def check_parameters(estimator, **ranges):
    """Check the parameters of a constructor against its type hints, and ranges.

    Numbers are of at least 0 where nothing else is said of them. What has other hints,
    such as arrays, is left to whoever reads it.

    Parameters
    ----------
    estimator : BaseEstimator
    **ranges : dict or None
        What `check_integer` or `check_real` are told of a parameter: `least`, `above`,
        `most`, where that is not usual. None: it is checked elsewhere.
    """
    ranges = USUAL_RANGES | ranges
    for name, default, check, options in _checks_by_hints(type(estimator)):
        told = ranges.get(name, {})
        if told is None or getattr(estimator, name) is default:
            continue  # a batch of a stream takes not much longer than all checks
        if check is None:
            check_options(estimator, **{name: options})
        else:
            check(estimator, name, **told, options=options)


@cache
def _checks_by_hints(kind):
    """Return name, default, check (None for options only) and options of parameters."""
    parameters, checks = inspect.signature(kind).parameters, []
    for name, hint in get_type_hints(kind.__init__).items():
        parts = get_args(hint) if get_origin(hint) is not Literal else ()
        parts, options, numbers = parts or (hint,), [], []
        for part in parts:
            if get_origin(part) is Literal:
                options += get_args(part)
            elif part in (bool, NoneType):
                options += {bool: (False, True), NoneType: (None,)}[part]
            else:
                numbers.append(part)
        found = {(): None, (int,): check_integer, (float,): check_real}
        if tuple(numbers) in found:
            check = found[tuple(numbers)]
            checks.append((name, parameters[name].default, check, tuple(options)))
    return checks


def check_integer(estimator, *names, least=0, options=()):
    """Check that parameters are integers of at least `least`, or among `options`."""
    for name in names:
        value = getattr(estimator, name)
        if among(value, options):
            continue
        if name == "verbose" and isinstance(value, bool | np.bool_):
            continue  # as scikit-learn has it: yes is 1
        ok = isinstance(value, Integral) and not isinstance(value, bool | np.bool_)
        if not (ok and least <= value <= MOST_INTEGER):
            others = "".join(f" or {a!r}" for a in options)
            upper = " that 64 bits hold" if ok and value > least else ""
            _fail(estimator, name, f"an integer of at least {least}{upper}{others}")


def check_real(estimator, *names, least=0.0, above=False, most=np.inf, options=()):
    """Check that parameters are finite numbers in a range, or among `options`.

    Parameters
    ----------
    estimator : BaseEstimator
    *names : str
    least, most : float
        Bounds; with `above`, the lower one is excluded.
    above : bool
    options : tuple
        Other values that are allowed, as "auto" or None.
    """
    for name in names:
        value = getattr(estimator, name)
        if among(value, options):
            continue
        ok = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        if ok and isinstance(value, Integral):  # beyond 64 bits numpy takes none
            ok = abs(int(value)) <= MOST_INTEGER
        # As a Python number: numpy's short ones would be compared in their own type.
        ok = ok and _finite_number(value) and least <= float(value) <= most
        if not ok or (above and float(value) == least):
            lower = f"{'above' if above else 'of at least'} {least:g}"
            upper = "" if most == np.inf else f" and at most {most:g}"
            if isinstance(value, Integral) and abs(int(value)) > MOST_INTEGER:
                upper += ", and if whole, within 64 bits"
            others = "".join(f" or {a!r}" for a in options)
            _fail(estimator, name, f"a number {lower}{upper}{others}")


def _finite_number(value):
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def check_em(estimator, solvers, **ranges):
    """Check the parameters of an estimator of the EM family.

    Parameters
    ----------
    estimator : BaseEstimator
    solvers : tuple of str
        What `solver` may be: more than its hint says, where a solver was added.
    **ranges
        As `check_parameters` takes them.
    """
    check_options(estimator, solver=solvers)
    # Beyond 1 the statistics overshoot; those of "stochastic" are cut there.
    most = np.inf if estimator.solver == "stochastic" else 1.0
    usual = {"solver": None, "step_size": ABOVE_0 | {"most": most}}
    check_parameters(estimator, **(usual | ranges))


def check_weight(sample_weight, n_samples):
    """Return sample weights as float64, or None where all are the same 1.

    Raises
    ------
    ValueError
        If they are not one finite, non-negative number a sample, all zero, or so large
        or small that sums of them overflow or vanish.
    TypeError
        For a container of dask.
    """
    if sample_weight is None:
        return None
    refuse_dask(sample_weight)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_samples, sample_weight)
    weight = _as_weights(sample_weight)
    check_one_each(weight, "sample_weight must have one number", n_samples, "samples")
    if weight.min() < 0.0:
        raise ValueError(
            f"sample_weight must not be negative, got {weight.min():g} in row "
            f"{int(weight.argmin())}."
        )
    if not weight.any():
        raise ValueError("sample_weight is zero for every sample: nothing to fit.")
    _check_largest(weight, LEAST_WEIGHT)
    return weight


def _as_weights(given):
    needs, advice = "sample_weight must be numbers", "Say how often each sample counts."
    with naming_columns(given, needs, advice):
        return check_array(
            given, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
        )


def _check_largest(weight, least=0.0):
    if not least <= weight.max() <= MOST_WEIGHT:
        raise ValueError(
            f"sample_weight is {weight.max():g} at most: sums of such weights are lost "
            "in floating point. Scale them, as by their mean."
        )


def check_magnitude(X, name="X", power=2):
    """Check that squares of numbers, NaN left out, and sums of them stay finite.

    Parameters
    ----------
    X : ndarray or CSR matrix, of floats
    name : str
    power : {2, 4}
        4 where squares are squared.

    Raises
    ------
    ValueError
        With the largest of them.
    """
    if hasattr(X, "tocsr"):
        X = X.data
    if not X.size:
        return
    most = MOST_VALUE[X.dtype.char] ** (2.0 / power)
    # Without a temporary of X's size.
    highest, lowest = np.fmax.reduce(X, axis=None), np.fmin.reduce(X, axis=None)
    largest = max(abs(float(highest)), abs(float(lowest)))
    if largest > most:
        raise ValueError(
            f"{name} holds {largest:.3g}: {PRODUCTS[power]} of numbers above {most:g} "
            f"are infinite in {X.dtype.name}. Scale it "
            "(sklearn.preprocessing.StandardScaler), or look for outliers."
        )


def check_size(name, value, least=1):
    """Check that an argument is an integer, how many there are of something."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise ValueError(
            f"{name} must be an integer of at least {least}, got {value!r}."
        )


def as_generator(random_state):
    """Return a Generator that what scikit-learn calls a random state has seeded."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))


def check_given(value, name, shape):
    """Return what a fit is to start from as float64, or None where it is None.

    Raises
    ------
    ValueError
        For another shape, or what are no finite numbers.
    """
    if value is None:
        return None
    options = {"dtype": np.float64, "ensure_2d": False, "allow_nd": True}
    with naming_columns(value, f"{name} holds numbers", "Pass an array."):
        value = check_array(value, **options, ensure_min_samples=0, input_name=name)
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {value.shape}.")
    return value


def check_order(order, n_parts):
    """Return a permutation of the parts of a model as an array.

    Raises
    ------
    ValueError
        If it is none.
    """
    order = np.asarray(order)
    if order.shape != (n_parts,) or not np.array_equal(
        np.sort(order), np.arange(n_parts)
    ):
        raise ValueError(
            f"order must be a permutation of 0 to {n_parts - 1}, got {order.tolist()}."
        )
    return order


# Rows that lie in blocks elsewhere: each is checked where it lies.

FLOATS = (np.float64, np.float32)


class CheckedBlock(NamedTuple):
    """What has been seen of a block.

    Attributes
    ----------
    missing : bool
        Whether it has NaN, where these are allowed.
    labels : ndarray or None
        Those of classes, each once.
    counts : ndarray or None
        Weights of their rows.
    """

    missing: bool = False
    labels: Any = None
    counts: Any = None


def check_columns_of(estimator, X, y=None, sample_weight=None, *, reset):
    """Check what can be checked of containers of dask before their blocks are seen.

    Names and number of columns are those of the fit, or become it (`reset`).

    Returns
    -------
    y, weight : as given, or arrays that have been checked
    """
    if not of_dask(X):
        raise TypeError(
            "X lies in memory, and what belongs to its rows in a container of dask: "
            "pass both as arrays, or both as dask arrays."
        )
    check_table(X)
    check_has_targets(estimator, y, get_tags(estimator).target_tags.required)
    named = X._meta if is_frame(X) else X
    if named.ndim == 2:  # else dimensions are told of where blocks are opened
        validate_data(estimator, named, reset=reset, skip_check_array=True)
    if y is not None and not of_dask(y):
        y = column_or_1d(y, warn=True)
    if sample_weight is not None and not of_dask(sample_weight):
        n = np.size(sample_weight)
        if not np.ndim(sample_weight):  # one number for all is none
            return y, None
        sample_weight = check_weight(sample_weight, n)
    return y, sample_weight


def check_block(rows, columns, *, sparse=False, missing=False, power=2, y=None):
    """Check a block of rows, and what belongs to them; return the `CheckedBlock`.

    Parameters
    ----------
    rows : ndarray or sparse matrix
    columns : skvrem.data._dask.Columns
    sparse : bool
        Sparse rows may be.
    missing : bool
        NaN may be.
    power : {2, 4} or None
        See :func:`~skvrem.utils._validation.check_magnitude`.
    y : {"labels", "numbers"} or None
        What targets are.
    """
    check_chunks(rows, sparse)
    if not rows.shape[0]:
        return CheckedBlock()
    rows = check_array(
        rows,
        accept_sparse="csr" if sparse else False,
        dtype=None if getattr(rows, "dtype", None) in FLOATS else FLOATS,
        ensure_all_finite="allow-nan" if missing else True,
        input_name="X",
    )
    if power is not None:
        check_magnitude(rows, power=power)
    weight = columns.weight
    if weight is not None:
        weight = _check_weights(weight)
    seen = CheckedBlock(bool(missing and np.isnan(rows.sum()) and np.isnan(rows).any()))
    if y == "labels":
        return seen._replace(**_labels(columns.targets, weight))
    if y == "numbers":
        check_numbers(columns.targets)
    return seen


def _check_weights(weight):
    weight = _as_weights(weight)
    if weight.min() < 0.0:
        raise ValueError(f"sample_weight must not be negative, got {weight.min():g}.")
    _check_largest(weight)
    return weight


def check_numbers(y):
    """Check targets that are numbers."""
    y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    check_magnitude(y, "y")


def _labels(y, weight):
    if y.dtype.kind == "f":
        check_array(y, ensure_2d=False, input_name="y")
    with ordered(y):
        labels, numbers = np.unique(y, return_inverse=True)
    return {"labels": labels, "counts": np.bincount(numbers, weight, len(labels))}


def check_weighted(data):
    """Check that some row of a source has weight."""
    if not data.n_units:
        raise ValueError("Found array with 0 sample(s): X has no rows.")
    if not data.n_weighted or not np.isfinite(data.total_weight):
        raise ValueError("sample_weight is zero for every sample: nothing to fit.")


def classes_of(estimator, seen):
    """Return the classes that blocks have, and the weights of their rows.

    Parameters
    ----------
    estimator : BaseEstimator
        Named in messages.
    seen : list of CheckedBlock

    Raises
    ------
    ValueError
        As :func:`~skvrem.utils._classes.number_classes`.
    """
    parts = [one for one in seen if one.labels is not None]
    labels = np.concatenate([one.labels for one in parts])
    weight = np.concatenate([one.counts for one in parts]).astype(float)
    with warnings.catch_warnings():  # that there are as many classes as rows
        warnings.simplefilter("ignore", UserWarning)
        classes, numbers = number_classes(estimator, labels, weight)
    return classes, np.bincount(numbers, weight, len(classes))


def numbered(classes, columns, dtype=np.int32, factors=None):
    """Return the columns of a block with the numbers of classes for labels.

    Weights are multiplied by the `factors` of the classes.
    """
    numbers = np.searchsorted(classes, columns.targets)
    weight = columns.weight
    if factors is not None:
        weight = factors[numbers] * (1.0 if weight is None else weight)
    return columns._replace(targets=numbers.astype(dtype), weight=weight)
