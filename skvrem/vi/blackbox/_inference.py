"""What the posterior of a user's own model says: of rows, and of itself."""

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import summary_table
from skvrem.vi.blackbox._input import check_rows
from skvrem.vi.blackbox._model_density import Target
from skvrem.vi.diagnostics._arviz import ArviZMixin, Draws
from skvrem.vi.diagnostics._pareto import ParetoMixin
from skvrem.vi.gaussian._guards import check_in_memory

__all__ = ["OwnInference"]

# Draws that predictive densities are taken from.
PREDICT_DRAWS = 100


class OwnInference(ParetoMixin, ArviZMixin):
    """Methods of `VariationalInference` that use fitted attributes and the model."""

    def sample_posterior(self, n_samples=1, random_state=None):
        """Draw parameters from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            How many draws.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        draws : dict of str to ndarray of shape (n_samples, ...)
            "parameters" (n_parameters), or the dict that ``unravel`` of the model
            makes of them; where that makes something else, it is "parameters".
        """
        check_is_fitted(self)
        draws = self.posterior_.sample(n_samples, check_random_state(random_state))
        unravel = getattr(self._of_fit.model, "unravel", None)
        shaped = draws if unravel is None else unravel(draws)
        return shaped if isinstance(shaped, dict) else {"parameters": shaped}

    def score_samples(self, X=None):
        """Return the log predictive density of rows, averaged over the posterior.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of rows, as in `fit`.

        Returns
        -------
        log_density : ndarray of shape (n_rows,)
            In nats, from 100 draws that are always the same.
        """
        check_is_fitted(self)
        each = self._log_likelihoods(
            X, self.posterior_.sample(PREDICT_DRAWS, np.random.default_rng(0))
        )
        return np.logaddexp.reduce(each, axis=0) - np.log(PREDICT_DRAWS)

    def score(self, X=None, y=None):
        """Return the mean log predictive density of rows, in nats a row.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of rows, as in `fit`: those that were left out of it, say.
        y : None
            Ignored.

        Returns
        -------
        score : float
            The mean of `score_samples`.
        """
        return float(self.score_samples(X).mean())

    def _log_likelihoods(self, X, draws):
        """Return log p(row | draw), (n_draws, n_rows)."""
        check_in_memory(X=X)
        model = self._of_fit.model
        target = Target(model, check_rows(X, model))
        return np.stack([target.each(z, target.rows) for z in draws])

    def _log_joint(self, draws):
        """See `ParetoMixin`."""
        *rows, prior = self._rows
        target = Target(self._of_fit.model, *rows)
        each = np.array([target.log_density(z) for z in draws])
        return each + prior.logpdf(draws)

    def to_arviz(self, X=None, n_samples=1000, random_state=None):
        """Return draws from the posterior and what they say of rows, for ArviZ.

        Parameters
        ----------
        X : array-like of int of shape (n_rows,), default=None
            Numbers of rows that log-likelihoods are wanted of, as in `fit`.
        n_samples : int, default=1000
            How many draws, independent of each other: one chain.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.

        Returns
        -------
        data : arviz.InferenceData
            With the groups posterior and log_likelihood: one variable, "parameters",
            or those of the dict that ``unravel`` of the model returns.

        Raises
        ------
        ImportError
            Where ArviZ is not installed.
        """
        return super().to_arviz(X, None, n_samples, random_state)

    def _draws(self, X, y, n_samples, rng):
        """See `ArviZMixin`."""
        draws = self.posterior_.sample(n_samples, rng)
        each = self._log_likelihoods(X, draws)
        shaped = draws
        model = self._of_fit.model
        if hasattr(model, "unravel"):
            shaped = model.unravel(draws)
        if isinstance(shaped, dict):
            return Draws(shaped, {}, {}, each, None)
        dims = {"parameters": ["parameter"]}
        coords = {"parameter": self.parameter_names_}
        return Draws({"parameters": draws}, dims, coords, each, None)

    def summary(self):
        """Return a table of the parameters.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a parameter with its mean, standard deviation and 95 % interval. The
            frame's ``attrs`` hold the bound, its standard error, the solver and
            convergence; the text ends with them.
        """
        check_is_fitted(self)
        columns = {
            "mean": self.mean_,
            "sd": self.std_,
            "2.5 %": self.mean_ - 1.959964 * self.std_,
            "97.5 %": self.mean_ + 1.959964 * self.std_,
        }
        kind = type(self.posterior_).__name__
        facts = {}
        if hasattr(self, "elbo_"):
            facts = {"elbo": self.elbo_, "its se": self.elbo_se_}
        facts |= {
            "posterior": kind,
            "solver": self.solver_,
            "passes": self.n_passes_,
            "converged": self.converged_,
        }
        if kind == "MeanField":
            facts["note"] = (
                "a mean-field posterior has standard deviations that are too small "
                "where parameters go together"
            )
        return summary_table(columns, self.parameter_names_, facts)
