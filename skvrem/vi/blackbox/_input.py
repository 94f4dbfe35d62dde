"""What a user's own model and its rows must be: found before a fit, and named."""

import inspect
from functools import partial
from numbers import Integral

import numpy as np

from skvrem.vi.blackbox._model_density import find_bad, parts

# Rows on which derivatives are compared with differences, and the relative error that
# is more than what differences make.
COMPARED, WRONG = 1024, 1e-2
# Lengths of differences, as shares of what they are at first, where the prior of some
# parameter is so much wider than what rows say of it; and the share of each that has to
# say the same, as rounding, which takes over in the end, does not.
SHORTER, AGAIN = (1e-2, 1e-4, 1e-6, 1e-8), 0.3
# How far from the start they are compared again, in deviations of each one's prior.
AWAY = 0.3
# Numbers of the vectors by which rows are asked, one by one, for their support.
ASKED = 4_000_000

SIZES = ("n_samples", "n_parameters")
METHODS = ("log_likelihood", "gradient")
OPTIONAL = (
    "log_prior",
    "log_prior_gradient",
    "hessian_vector_product",
    "hessian_diagonal",
    "hessian",
    "support",
    "unravel",
)


def check_model(model):
    """Check that a model has what is needed.

    Raises
    ------
    TypeError
        If something is missing or is not what it should be.
    ValueError
        For a number of rows or parameters that is none.
    """
    if model is None:
        raise TypeError(
            "VariationalInference needs a model: an object with n_samples, "
            "n_parameters, log_likelihood(parameters, indices) and "
            "gradient(parameters, indices)."
        )
    if inspect.isclass(model):
        raise TypeError(
            f"model must be an object, got the class {model.__name__}: call it first."
        )
    kind = type(model).__name__
    missing = [name for name in (*SIZES, *METHODS) if not hasattr(model, name)]
    if missing:
        raise TypeError(f"the model {kind} has no {', '.join(missing)}.")
    there = {name: getattr(model, name, None) for name in (*METHODS, *OPTIONAL)}
    for name, method in there.items():
        if not callable(method) and (name in METHODS or method is not None):
            raise TypeError(f"{name} of the model {kind} must be a method.")
    for name in SIZES:
        value = getattr(model, name)
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not (whole and value > 0):
            raise ValueError(
                f"{name} of the model {kind} must be a positive integer, got {value!r}."
            )
    if callable(there["log_prior"]) != callable(there["log_prior_gradient"]):
        raise TypeError(
            f"log_prior and log_prior_gradient of the model {kind} go together: it has "
            "one of them."
        )


def check_rows(X, model):
    """Return numbers of rows of a model; None is all of them."""
    n = int(model.n_samples)
    if X is None:
        return np.arange(n)
    rows = np.asarray(X)
    rows = rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows
    ok = rows.ndim == 1 and rows.size and np.issubdtype(rows.dtype, np.number)
    if not ok or not np.array_equal(rows, np.floor(rows.real)):
        raise ValueError(
            "X must be numbers of rows of the model, one integer a row, or None for "
            f"all {n}: data belong to the model."
        )
    wrong = (rows < 0) | (rows >= n)
    if wrong.any():
        raise ValueError(
            f"X has row {rows[wrong][0]:g}, and the model has rows 0 to {n - 1}."
        )
    return rows.astype(np.intp)


def weigh_rows(rows, weight):
    """Return rows that count, once each, and how many times they do; None is once."""
    if weight is None:
        return rows, None
    rows, numbers = np.unique(rows, return_inverse=True)
    weight = np.bincount(numbers, weight)
    return rows[weight > 0.0], weight[weight > 0.0]


def check_vector(value, n_dim, name):
    """Return one finite number for each parameter, float64."""
    try:
        vector = np.broadcast_to(np.asarray(value, np.float64), n_dim).copy()
    except (TypeError, ValueError):
        vector = np.array([np.nan])
    if not np.isfinite(vector).all():
        raise ValueError(
            f"{name} must be a finite number, or one for each of the {n_dim} "
            f"parameters, got {value!r}."
        )
    return vector


def check_names(model):
    """Return the names of a model's parameters."""
    n_dim, names = int(model.n_parameters), getattr(model, "parameter_names", None)
    names = [f"p{j}" for j in range(n_dim)] if names is None else list(map(str, names))
    if len(names) != n_dim:
        raise ValueError(
            f"parameter_names of the model must be {n_dim} names, got {len(names)}."
        )
    return names


def check_density(target, z, whole, products):
    """Compare values, derivatives and what second derivatives a fit asks for.

    Parameters
    ----------
    target : Target
    z : ndarray of shape (n_parameters,)
        Where.
    whole : bool
        A fit asks for the Hessian.
    products : bool
        It asks for products with it, and where these are all, for its diagonal.

    Raises
    ------
    ValueError
        For numbers that are not finite, shapes that do not fit, and derivatives that
        are not those of the log-likelihood, with the method and the row.
    TypeError
        For what is no array of numbers.
    """
    z = z.copy()
    z.setflags(write=False)
    gradients = partial(target.mean, "gradient")
    values = {"log_likelihood": target.each, "gradient": gradients}
    for name, evaluate in values.items():

        def bad(rows, evaluate=evaluate):
            return not np.isfinite(evaluate(z, rows)).all()

        for part in parts(target.rows):
            if bad(part):
                _not_finite(target, name, f" in row {find_bad(bad, part)}")
    if target.model_has_prior:
        for name, shape in (("log_prior", ()), ("log_prior_gradient", z.shape)):
            if not np.isfinite(target.ask(name, shape, z)).all():
                _not_finite(target, name)
    some = _some(target.rows, COMPARED)
    v = np.random.default_rng(0).standard_normal(z.size)
    if target.has_support:
        _check_support(target, z, v, some)
    axis = np.zeros(z.size)
    axis[int(np.abs(v).argmax())] = 1.0

    def found(name, z, rows):
        if name == "log_prior_gradient":
            return target.prior_gradient(z) @ v
        if name == "hessian_vector_product":
            return target.mean(name, z, v, rows)
        return target.mean(name, z, rows) @ (axis if name == "hessian_diagonal" else v)

    def expected(name, z, rows):
        if name == "log_prior_gradient":
            return target.difference(target.log_prior, z, v)
        if name == "gradient":
            return target.difference(lambda at: target.each(at, rows).mean(), z, v)
        along = axis if name == "hessian_diagonal" else v
        change = target.difference(lambda at: gradients(at, rows), z, along)
        return change @ axis if name == "hessian_diagonal" else change

    product, diagonal, matrix = (
        name if target.has(name) else None
        for name in ("hessian_vector_product", "hessian_diagonal", "hessian")
    )
    asked = {matrix or product} if whole else {diagonal or matrix}
    if products:
        asked.add(product)
    names = ["gradient", *sorted(asked - {None})]
    if target.model_has_prior:
        names.append("log_prior_gradient")
    for name in names:
        of, rows = "gradient", some
        if name == "gradient":
            of = "log_likelihood"
        elif name == "log_prior_gradient":
            of, rows = "log_prior", None
        for at, sure in ((z, True), (_away(z), False)):
            both = partial(found, name, at), partial(expected, name, at)
            _compare(target, name, of, rows, *both, sure)
    if not (target.has("hessian_vector_product") or (target.units == 1.0).all()):
        _shorten(target, lambda: target.difference(lambda x: gradients(x, some), z, v))


def _shorten(target, product):
    """Let differences of gradients be so short that shorter ones say the same, too.

    Those of a function may be right whatever their length, where it is symmetric.
    """
    first = target.step
    for share in (1.0, *SHORTER):
        target.step = AGAIN * share * first
        shorter = product()
        target.step = share * first
        longer = product()
        scale = max(np.abs(shorter).max(), np.abs(longer).max())
        if np.abs(shorter - longer).max() <= WRONG * scale + _slack(target):
            return
    target.step = first


def _away(z):
    """Return a point near another one, which may be zero.

    There a factor of exp(z) that has been forgotten is one, and a prior about zero has
    no gradient of any sign.
    """
    away = z + AWAY * np.random.default_rng(1).standard_normal(z.size)
    away.setflags(write=False)
    return away


def _check_support(target, z, v, some):
    """Raise where a row depends on what is not in its support."""
    every, kind = target.support(some), type(target.model).__name__
    for row in _some(some, max(1, ASKED // z.size)):
        one = np.array([row])
        support = target.support(one)
        lost = np.setdiff1d(support, every)
        if lost.size:
            raise ValueError(
                f"support of {kind} has parameter {lost[0]} for row {row}, and not for "
                f"{some.size} rows with it."
            )
        others = np.delete(np.arange(z.size), support)

        def depends(numbers, one=one):
            away = np.zeros(z.size)
            away[numbers] = v[numbers]
            change = target.difference(lambda at: target.each(at, one), z, away)
            return np.abs(change).max() > _slack(target)

        def slopes(numbers, one=one):
            return target.mean("gradient", z, one)[numbers].any()

        for what, bad in (
            (f"log_likelihood of {kind} depends on", depends),
            (f"gradient of {kind} is not zero by", slopes),
        ):
            if others.size and bad(others):
                raise ValueError(
                    f"{what} parameter {find_bad(bad, others)} in row {row}, which its "
                    "support leaves out."
                )


def _compare(target, name, of, rows, found, expected, sure):
    """Raise where a derivative is not that of a function, with the row.

    Where a fit is not sure to come, both may be infinite, or an error. Differences that
    are found to be too long are shorter from then on.
    """

    def near(a, b):
        if not (sure or (np.isfinite(a).all() and np.isfinite(b).all())):
            return True
        scale = max(np.abs(a).max(), np.abs(b).max())
        return np.abs(a - b).max() <= WRONG * scale + _slack(target)

    def agree(some):
        with np.errstate(all="warn" if sure else "ignore"):
            a = found(some)
        with np.errstate(all="ignore"):
            if near(a, expected(some)):
                return True
            first = target.step
            for share in SHORTER:
                target.step = AGAIN * share * first
                shorter = near(a, expected(some))
                target.step = share * first
                if shorter and near(a, expected(some)):
                    return True
        target.step = first
        return False

    def differ(some):
        first = target.step
        try:
            return not agree(some)
        except (ArithmeticError, ValueError):
            if sure:
                raise
            return False
        finally:
            if not sure:
                target.step = first

    if differ(rows):
        where = "" if rows is None else f", as in row {find_bad(differ, rows)}"
        raise ValueError(
            f"{name} of {type(target.model).__name__} is not the derivative of {of}: "
            f"they differ by more than {WRONG:.0%} from what differences of {of} "
            f"say{where}."
        )


def _slack(target):
    # Differences lose digits where the function is far larger than its change.
    return 1e-4 if target.step < 1e-4 else 1e-2


def _not_finite(target, name, where=""):
    raise ValueError(
        f"{name} of {type(target.model).__name__} is not finite{where} at the "
        "parameters that the fit starts from: give the model other `initial` ones, or "
        "look at that row."
    )


def _some(rows, n):
    """Return n of the rows, or a few less, from all over them."""
    return rows[:: -(-rows.size // n)]
