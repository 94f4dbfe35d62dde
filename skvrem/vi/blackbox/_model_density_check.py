"""What is wrong with a user's own model: found before it is fitted, and named."""

import numpy as np

__all__ = ["Checks", "as_numbers", "for_rows", "parts"]

# Rows that the model is given at once.
ROWS = 16_384
# Rows on which derivatives are compared with differences, and the relative error that
# is more than what differences make.
COMPARED, WRONG = 1024, 1e-2
# Numbers of the vectors by which rows are asked, one by one, for their support.
ASKED = 4_000_000


class Checks:
    """The methods of `Target` that try its model."""

    def curvature_methods(self, whole, products):
        """Return which second derivatives of the model's own a fit asks for.

        Parameters
        ----------
        whole : bool
            For the Hessian.
        products : bool
            For products with it, and where these are all, its diagonal.
        """
        product, diagonal, matrix = (
            name if self._method(name) is not None else None
            for name in ("hessian_vector_product", "hessian_diagonal", "hessian")
        )
        names = {matrix or product} if whole else {diagonal or matrix}
        if products:
            names.add(product)
        return sorted(names - {None})

    def check(self, z, curvatures):
        """Compare values, derivatives and some second derivatives at a point.

        Raises
        ------
        ValueError
            For numbers that are not finite, shapes that do not fit, and derivatives
            that are not those of the log-likelihood, with the method and the row.
        TypeError
            For what is no array of numbers.
        """
        z = z.copy()
        z.setflags(write=False)
        self._check_rows("log_likelihood", z, lambda rows: self.each(z, rows))
        self._check_rows("gradient", z, lambda rows: self._mean("gradient", z, rows))
        if self.has_prior and self.prior is None:
            for name in ("log_prior", "log_prior_gradient"):
                shape = () if name == "log_prior" else z.shape
                self._check_finite(name, self._array(name, shape, z))
        some = _some(self.rows, COMPARED)
        v = np.random.default_rng(0).standard_normal(z.size)
        if self.has_support:
            self._check_support(z, v, some)
        self._compare(
            "gradient",
            "log_likelihood",
            some,
            lambda rows: self._mean("gradient", z, rows) @ v,
            lambda rows: self._difference(lambda at: self.each(at, rows).mean(), z, v),
        )
        if self.has_prior and self.prior is None:
            self._compare(
                "log_prior_gradient",
                "log_prior",
                None,
                lambda _: self._prior_gradient(z) @ v,
                lambda _: self._difference(
                    lambda at: self._array("log_prior", (), at), z, v
                ),
            )
        self._compare_curvature(z, v, some, curvatures)

    def _check_support(self, z, v, some):
        """Raise where a row depends on what is not in its support."""
        every = self.support(some)
        for row in _some(some, max(1, ASKED // z.size)):
            one = np.array([row])
            support = self.support(one)
            if not np.isin(support, every, assume_unique=True).all():
                lost = np.setdiff1d(support, every)[0]
                raise ValueError(
                    f"support of {type(self.model).__name__} has parameter {lost} for "
                    f"row {row}, and not for {some.size} rows with it."
                )
            outside = np.ones(z.size, bool)
            outside[support] = False
            others = np.flatnonzero(outside)

            def depends(numbers, one=one):
                away = np.zeros(z.size)
                away[numbers] = v[numbers]
                change = self._difference(lambda at: self.each(at, one), z, away)
                return np.abs(change).max() > self._slack

            def slopes(numbers, one=one):
                return self._mean("gradient", z, one)[numbers].any()

            kind = type(self.model).__name__
            for what, bad in (
                (f"log_likelihood of {kind} depends on", depends),
                (f"gradient of {kind} is not zero by", slopes),
            ):
                if others.size and bad(others):
                    raise ValueError(
                        f"{what} parameter {_find(bad, others)} in row {row}, which "
                        "its support leaves out."
                    )

    def _compare_curvature(self, z, v, some, curvatures):
        """Compare second derivatives with differences of gradients."""
        axis = np.zeros(z.size)
        axis[int(np.abs(v).argmax())] = 1.0

        def change(vector, rows):
            return self._difference(
                lambda at: self._mean("gradient", at, rows), z, vector
            )

        def compare(name, found, expected):
            if name in curvatures:
                self._compare(name, "gradient", some, found, expected)

        compare(
            "hessian_vector_product",
            lambda rows: self._mean("hessian_vector_product", z, v, rows),
            lambda rows: change(v, rows),
        )
        compare(
            "hessian_diagonal",
            lambda rows: self._mean("hessian_diagonal", z, rows) @ axis,
            lambda rows: change(axis, rows) @ axis,
        )
        compare(
            "hessian",
            lambda rows: self._mean("hessian", z, rows) @ v,
            lambda rows: change(v, rows),
        )

    def _compare(self, name, of, rows, found, expected):
        """Raise where a derivative is not that of a function, with the row."""

        def differ(some):
            a, b = found(some), expected(some)
            scale = max(np.abs(a).max(), np.abs(b).max())
            return not np.abs(a - b).max() <= WRONG * scale + self._slack

        if not differ(rows):
            return
        where = "" if rows is None else f", as in row {_find(differ, rows)}"
        raise ValueError(
            f"{name} of {type(self.model).__name__} is not the derivative of {of}: "
            f"they differ by more than {WRONG:.0%} from what differences of {of} "
            f"say{where}."
        )

    @property
    def _slack(self):
        # Differences lose digits where the function is far larger than its change.
        return 1e-4 if self._step < 1e-4 else 1e-2

    def _check_shape(self, name, array, shape, rows=None, other=()):
        """Raise where a method returns an array of another shape."""
        if array.shape == shape:
            return
        wanted = f"an array of shape {shape}" if shape else "one number"
        if other:
            wanted = f"an array of shape {other} or, of the support, {shape}"
        raise ValueError(
            f"{name} of {type(self.model).__name__} must return {wanted}, got shape "
            f"{array.shape}{for_rows(rows)}."
        )

    def _check_rows(self, name, z, evaluate):
        """Raise where a method is not finite, and say for which row."""

        def bad(rows):
            return not np.isfinite(evaluate(rows)).all()

        for part in parts(self.rows):
            if bad(part):
                self._not_finite(name, f" in row {_find(bad, part)}")

    def _check_finite(self, name, value):
        if not np.isfinite(value).all():
            self._not_finite(name, "")

    def _not_finite(self, name, where):
        raise ValueError(
            f"{name} of {type(self.model).__name__} is not finite{where} at the "
            "parameters that the fit starts from: give the model other `initial` ones, "
            "or look at that row."
        )


def parts(rows):
    """Yield rows, as many at a time as a model is given."""
    return (rows[start : start + ROWS] for start in range(0, rows.size, ROWS))


def as_numbers(name, model, *arguments):
    """Call a method of a model; return an array of real numbers, or raise."""
    out = getattr(model, name)(*arguments)
    try:
        array = np.asarray(out)
        numbers = array.dtype.kind in "iuf"
    except ValueError:  # ragged
        numbers = False
    if not numbers:
        raise TypeError(
            f"{name} of {type(model).__name__} must return real numbers, got "
            f"{type(out).__name__}."
        )
    return array


def for_rows(rows):
    """Say how many rows a method was asked for, if it was for rows."""
    return "" if rows is None else f" for {rows.size} rows, from row {int(rows[0])} on"


def _some(rows, n):
    """Return n of the rows, or a few less, from all over them."""
    return rows[:: -(-rows.size // n)]


def _find(bad, numbers):
    """Return the one for which `bad` is true, as it is for all of them."""
    while numbers.size > 1:
        half = numbers[: numbers.size // 2]
        numbers = half if bad(half) else numbers[numbers.size // 2 :]
    return int(numbers[0])
