"""What a user's own model is asked for, on one page."""

from typing import Protocol


class UserModel(Protocol):
    """A model of rows with real parameters: what `VariationalInference` fits.

    Data belong to the model; rows are asked for by number. Parameters are one vector
    without constraints: a scale is its logarithm, say. Units may be any that the
    `prior_scale` of the estimator is in, too; with a `log_prior`, parameters should be
    about as large as one. Four members are required, two go together, and the others
    each save something. Only what is there is asked for: nothing need be inherited.

    Attributes
    ----------
    n_samples, n_parameters : int
        Required.
    initial : array-like of shape (n_parameters,)
        Where a fit starts; by default the mean of the prior.
    parameter_names : list of str
        Names for `summary` and ArviZ; by default "p0", "p1", ...
    """

    n_samples: int
    n_parameters: int

    def log_likelihood(self, parameters, indices):
        """Return log p(row | parameters) of rows, an array (len(indices),). Required.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,)
            float64, not to be changed.
        indices : ndarray of shape (n_rows,)
            Numbers of rows, in any order and perhaps several times.
        """

    def gradient(self, parameters, indices):
        """Return the gradient of the rows' sum, an array (n_parameters,). Required."""

    def log_prior(self, parameters):
        """Return the log density of a prior, in place of the Gaussian one.

        By default the prior is the estimator's, by `prior_mean` and `prior_scale`.
        """

    def log_prior_gradient(self, parameters):
        """Return its gradient, an array (n_parameters,). Required with `log_prior`."""

    def hessian_vector_product(self, parameters, vector, indices):
        """Return the Hessian of the rows' sum times a vector, (n_parameters,).

        Saves a gradient: without it, two gradients at opposite sides are subtracted.
        """

    def hessian_diagonal(self, parameters, indices):
        """Return the diagonal of the Hessian of the rows' sum, (n_parameters,).

        Steps by minibatches control the scales' gradient with it. Without it, that is
        done for up to 32 parameters only, by differences of gradients.
        """

    def hessian(self, parameters, indices):
        """Return the Hessian of the rows' sum, (n_parameters, n_parameters).

        Saves as many products as there are parameters, once or twice a fit.
        """

    def support(self, indices):
        """Return which parameters rows depend on: their numbers, in order, each once.

        Where a row depends on few of many parameters, as a match does on two players,
        a step by a minibatch then costs no more than these do. Derivatives of rows,
        but for `hessian`, may be by the parameters of the rows' support instead, in its
        order. What the other parameters are in `parameters` and `vector` is then of no
        account, and the arrays may be filled anew for the next call. It saves nothing
        beside a `log_prior`, which may tie all parameters together.
        """

    def unravel(self, parameters):
        """Return parameters (n, n_parameters) in the shapes that a user thinks in.

        `sample_posterior` returns what this makes of its draws; where that is a dict of
        arrays (n, ...), ArviZ gets its variables.
        """
