"""A model whose derivatives JAX finds."""

import numpy as np

from skvrem.utils._base import optional

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
        of the estimator.
    support : callable, default=None
        ``support(indices)``, the numbers of the parameters that rows depend on, in
        order and each once, as in the vector ``initial``. Steps by minibatches are then
        among these.

    Attributes
    ----------
    n_samples, n_parameters : int
    initial : ndarray of shape (n_parameters,)
    parameter_names : list of str
        As in ``w[0]``.

    Raises
    ------
    ImportError
        Where JAX is not installed.
    ValueError
        For data whose parts have different numbers of rows, and no parameters.

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
    ...     scale = jnp.exp(p["log_scale"])
    ...     z = (row["y"] - p["slope"] * row["x"] - p["level"]) / scale
    ...     return -0.5 * z**2 - p["log_scale"]
    >>> start = {"slope": 0.0, "level": 0.0, "log_scale": 0.0}
    >>> model = JaxModel(log_likelihood, {"x": x, "y": y}, start)  # doctest: +SKIP
    >>> fitted = VariationalInference(model).fit()  # doctest: +SKIP
    >>> fitted.sample_posterior(1000)["slope"].mean().round(1)  # doctest: +SKIP
    np.float64(2.0)
    """

    def __init__(self, log_likelihood, data, parameters, log_prior=None, support=None):
        jax = optional("jax", "jax", "JaxModel")
        ravel = optional("jax.flatten_util", "jax", "JaxModel").ravel_pytree
        self._given = (log_likelihood, data, parameters, log_prior, support)
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
            flat, self._unravel = ravel(start)
        self.n_samples = lengths.pop()
        self.initial = np.asarray(flat)
        self.n_parameters = self.initial.size
        if not self.n_parameters:
            raise ValueError("parameters must be at least one number, got none.")
        self.parameter_names = _names(tree, start)
        self._compiled = {name: jax.jit(f) for name, f in self._derived(jax).items()}
        if log_prior is None:
            self.log_prior = self.log_prior_gradient = None
        if self.n_parameters > MATRIX:
            self.hessian = self.hessian_diagonal = None

    def __sklearn_clone__(self):
        # Nothing of it changes: a copy would be one of the data.
        return self

    def __reduce__(self):
        return type(self), self._given

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
            return log_prior(self._unravel(z))

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
