"""A model whose derivatives JAX finds."""

from functools import partial

import numpy as np
from scipy.special import logit

from skvrem.utils._base import optional

# What transformations are made of.
PARTS = "numpy", "nn"

# Batches are filled up to a power of two of at least so many rows, so that few shapes
# are compiled; and parameters up to which whole Hessians are formed.
SMALLEST, MATRIX = 16, 1000
# Rows times columns of a Hessian at once.
NUMBERS = 1_000_000


class JaxModel:
    r"""A model by the log-likelihood of one row, with the rest derived by JAX.

    Gradients, products with the Hessian and its diagonal are derived, vectorised over
    rows and compiled, in double precision, which does not change JAX's settings for
    anyone else. Needs ``pip install 'skvrem[jax]'``.

    Parameters
    ----------
    log_likelihood : callable
        ``log_likelihood(parameters, row)`` returns log p(row | parameters), one number,
        by functions of ``jax.numpy``. It must have a second derivative.
    data : array-like, or dict, tuple or list of them
        The rows: `row` is ``data[n]``, or the same structure of each part's ``[n]``.
    parameters : int, or array, dict, tuple or list of arrays
        How many there are; or where to start, in the shapes that `log_likelihood` wants
        them in.
    log_prior : callable, default=None
        ``log_prior(parameters)``, the log density of a prior; None is the Gaussian one
        of the estimator, of what is fitted: see `positive`.
    support : callable, default=None
        ``support(indices)``, the numbers of the parameters that rows depend on, in
        order and each once, as in the vector ``initial``. Steps by minibatches are then
        among these.
    positive, unit_interval : sequence of str, default=()
        Names of parameters that are above zero, or between zero and one: ``"scale"``,
        ``"layer.scale"``, or ``"scale[2]"`` for one number of an array. Their logarithm
        or log-odds is what is fitted, and has a Gaussian posterior; `log_likelihood`
        and `log_prior` get the parameters themselves, to whose density the derivative
        of the transformation is added, and so do draws have them.

    Attributes
    ----------
    n_samples, n_parameters : int
    initial : ndarray of shape (n_parameters,)
        Of what is fitted.
    parameter_names : list of str
        As in ``w[0]``, and ``log scale`` or ``logit share`` of what is transformed.

    Raises
    ------
    ImportError
        Where JAX is not installed.
    ValueError
        For data whose parts have different numbers of rows, no parameters, names of
        parameters that there are not, and starts beyond their bounds.

    See Also
    --------
    skvrem.VariationalInference : Fits it.

    Examples
    --------
    >>> import numpy as np
    >>> import jax.numpy as jnp  # doctest: +SKIP
    >>> from skvrem import VariationalInference
    >>> from skvrem.vi import JaxModel
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=300)
    >>> y = 2.0 * x + 1.0 + 0.5 * rng.normal(size=300)
    >>> def log_likelihood(p, row):
    ...     z = (row["y"] - p["slope"] * row["x"] - p["level"]) / p["scale"]
    ...     return -0.5 * z**2 - jnp.log(p["scale"])
    >>> start = {"slope": 0.0, "level": 0.0, "scale": 1.0}
    >>> data = {"x": x, "y": y}
    >>> model = JaxModel(
    ...     log_likelihood, data, start, positive=["scale"]
    ... )  # doctest: +SKIP
    >>> fitted = VariationalInference(model).fit()  # doctest: +SKIP
    >>> fitted.sample_posterior(1000)["scale"].mean().round(1)  # doctest: +SKIP
    np.float64(0.5)
    """

    def __init__(
        self,
        log_likelihood,
        data,
        parameters,
        log_prior=None,
        support=None,
        *,
        positive=(),
        unit_interval=(),
    ):
        jax = optional("jax", "jax", "JaxModel")
        ravel = optional("jax.flatten_util", "jax", "JaxModel").ravel_pytree
        self._given = (log_likelihood, data, parameters, log_prior, support)
        self._bounded = {"positive": positive, "unit_interval": unit_interval}
        self.support = support
        tree = jax.tree_util
        if np.ndim(parameters) == 0 and isinstance(parameters, int | np.integer):
            parameters = np.zeros(parameters)
        with _double(jax):
            leaves = tree.tree_leaves(data)
            lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in leaves}
            if len(lengths) != 1 or 0 in lengths:
                raise ValueError(
                    "data must be arrays with one and the same number of rows, got "
                    f"{sorted(lengths)}."
                )
            self._data = tree.tree_map(lambda leaf: jax.numpy.asarray(leaf), data)
            start = tree.tree_map(lambda p: jax.numpy.asarray(p, "float64"), parameters)
            flat, self._shaped = ravel(start)
        self.n_samples = lengths.pop()
        initial, names = np.array(flat), _names(tree, start)
        self.n_parameters = initial.size
        if not self.n_parameters:
            raise ValueError("parameters must be at least one number, got none.")
        self._positive = _chosen(names, positive, "positive")
        self._unit = _chosen(names, unit_interval, "unit_interval")
        twice = np.flatnonzero(self._positive & self._unit)
        if twice.size:
            raise ValueError(
                f"{names[twice[0]]} is in both positive and unit_interval."
            )
        beyond = self._positive & ~(initial > 0.0)
        beyond |= self._unit & ~((initial > 0.0) & (initial < 1.0))
        if beyond.any():
            at = int(beyond.argmax())
            raise ValueError(
                f"{names[at]} starts at {initial[at]:g}, which is beyond its bounds."
            )
        with np.errstate(all="ignore"):
            initial = np.where(self._positive, np.log(initial), initial)
            self.initial = np.where(self._unit, logit(initial), initial)
        marks = np.where(self._positive, "log ", np.where(self._unit, "logit ", ""))
        self.parameter_names = [m + n for m, n in zip(marks, names, strict=True)]
        self._compiled = {name: jax.jit(f) for name, f in self._derived(jax).items()}
        if log_prior is None:
            self.log_prior = self.log_prior_gradient = None
        if self.n_parameters > MATRIX:
            self.hessian = self.hessian_diagonal = None

    def __sklearn_clone__(self):
        # Nothing of it changes: a copy would be one of the data.
        return self

    def __reduce__(self):
        return partial(type(self), **self._bounded), self._given

    def _unravel(self, z):
        """Return the parameters of a vector, in their shapes and their bounds."""
        if self._positive.any() or self._unit.any():
            numpy, nn = (optional(f"jax.{name}", "jax", "JaxModel") for name in PARTS)
            # Numbers of others may be too large for the exponential.
            above = numpy.exp(numpy.where(self._positive, z, 0.0))
            z = numpy.where(self._positive, above, z)
            z = numpy.where(self._unit, nn.sigmoid(z), z)
        return self._shaped(z)

    # The protocol of a model

    def log_likelihood(self, parameters, indices):
        """Return log p(row | parameters) of rows.

        Parameters
        ----------
        parameters : array-like of shape (n_parameters,)
            In one vector.
        indices : array-like of int of shape (n_rows,)
            Numbers of rows.

        Returns
        -------
        values : ndarray of shape (n_rows,)
            In the order of the indices.
        """
        return self._call("each", indices, parameters)[: len(indices)]

    def gradient(self, parameters, indices):
        """Return the gradient of the rows' sum.

        Parameters
        ----------
        parameters : array-like of shape (n_parameters,)
            In one vector.
        indices : array-like of int of shape (n_rows,)
            Numbers of rows.

        Returns
        -------
        gradient : ndarray of shape (n_parameters,)
            By the parameters.
        """
        return self._call("gradient", indices, parameters)

    def hessian_vector_product(self, parameters, vector, indices):
        """Return the Hessian of the rows' sum times a vector.

        Parameters
        ----------
        parameters : array-like of shape (n_parameters,)
            In one vector.
        vector : array-like of shape (n_parameters,)
            What the Hessian is multiplied by.
        indices : array-like of int of shape (n_rows,)
            Numbers of rows.

        Returns
        -------
        product : ndarray of shape (n_parameters,)
            In double precision.
        """
        return self._call("product", indices, parameters, vector)

    def hessian_diagonal(self, parameters, indices):
        """Return the diagonal of the Hessian of the rows' sum.

        Parameters
        ----------
        parameters : array-like of shape (n_parameters,)
            In one vector.
        indices : array-like of int of shape (n_rows,)
            Numbers of rows.

        Returns
        -------
        diagonal : ndarray of shape (n_parameters,)
            That of `hessian`.
        """
        return self.hessian(parameters, indices).diagonal().copy()

    def hessian(self, parameters, indices):
        """Return the Hessian of the rows' sum.

        Parameters
        ----------
        parameters : array-like of shape (n_parameters,)
            In one vector.
        indices : array-like of int of shape (n_rows,)
            Numbers of rows.

        Returns
        -------
        hessian : ndarray of shape (n_parameters, n_parameters)
            Formed column by column.
        """
        return self._call("hessian", indices, parameters)

    def log_prior(self, parameters):
        """Return the log density of the prior.

        Parameters
        ----------
        parameters : array-like of shape (n_parameters,)
            In one vector.

        Returns
        -------
        value : ndarray of shape ()
            One number.
        """
        return self._call("prior", None, parameters)

    def log_prior_gradient(self, parameters):
        """Return the gradient of the log density of the prior.

        Parameters
        ----------
        parameters : array-like of shape (n_parameters,)
            In one vector.

        Returns
        -------
        gradient : ndarray of shape (n_parameters,)
            By the parameters.
        """
        return self._call("prior_gradient", None, parameters)

    def unravel(self, parameters):
        """Return vectors of parameters in the shapes that they were given in.

        Parameters
        ----------
        parameters : array-like of shape (n, n_parameters)
            Draws, one a row.

        Returns
        -------
        shaped : ndarray, or dict, tuple or list of them
            As `parameters` of the constructor, behind an axis of n draws.
        """
        jax = optional("jax", "jax", "JaxModel")
        with _double(jax):
            shaped = jax.vmap(self._unravel)(jax.numpy.asarray(parameters))
            return jax.tree_util.tree_map(np.asarray, shaped)

    def _call(self, name, indices, *arguments):
        """Evaluate a function, which is compiled at its first call."""
        with _double(optional("jax", "jax", "JaxModel")):
            if indices is not None:
                n = len(indices)
                rows = np.zeros(max(SMALLEST, 1 << (n - 1).bit_length()), np.int64)
                rows[:n] = indices
                arguments += self._data, rows, n
            return np.asarray(self._compiled[name](*arguments))

    def _derived(self, jax):
        """Return what is to be compiled."""
        log_likelihood, _, _, log_prior, _ = self._given
        numpy, tree = jax.numpy, jax.tree_util

        def prior(z):
            value = log_prior(self._unravel(z))
            value += numpy.where(self._positive, z, 0.0).sum()
            slopes = jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)
            return value + numpy.where(self._unit, slopes, 0.0).sum()

        def each(z, data, rows, n):
            batch = tree.tree_map(lambda part: part[rows], data)
            return jax.vmap(log_likelihood, (None, 0))(self._unravel(z), batch)

        def total(z, data, rows, n):
            known = numpy.arange(rows.size) < n
            return numpy.where(known, each(z, data, rows, n), 0.0).sum()

        gradient = jax.grad(total)

        def product(z, v, *batch):
            return jax.jvp(lambda at: gradient(at, *batch), (z,), (v,))[1]

        def hessian(z, *batch):
            at_once = min(z.size, max(1, NUMBERS // batch[1].size))
            axes = numpy.eye(z.size)
            return jax.lax.map(
                lambda v: product(z, v, *batch), axes, batch_size=at_once
            )

        return {
            "each": each,
            "gradient": gradient,
            "product": product,
            "hessian": hessian,
            "prior": prior,
            "prior_gradient": jax.grad(prior),
        }

    def __repr__(self):
        name = getattr(self._given[0], "__name__", "log_likelihood")
        return f"JaxModel({name}, n_samples={self.n_samples})"


def _chosen(names, chosen, parameter):
    """Return which numbers are those of names, of one number or of a whole array."""
    if isinstance(chosen, str):
        raise ValueError(f"{parameter} must be a list of names, got {chosen!r}.")
    out = np.zeros(len(names), bool)
    for one in chosen:
        own = [name == one or name.startswith(f"{one}[") for name in names]
        if not any(own):
            raise ValueError(
                f"{parameter} names {one!r}, which is none of the parameters {names}."
            )
        out |= own
    return out


def _double(jax):
    """Return a context in which JAX computes in double precision, here only."""
    context = getattr(jax, "enable_x64", None)
    return jax.experimental.enable_x64() if context is None else context(True)


def _names(tree, parameters):
    """Return a name for each number of nested arrays, as w[0] or layer.b[1,2]."""
    names = []
    for path, leaf in tree.tree_flatten_with_path(parameters)[0]:
        name = tree.keystr(path, simple=True, separator=".") or "p"
        for index in np.ndindex(leaf.shape):
            names.append(f"{name}[{','.join(map(str, index))}]" if index else name)
    return names
