"""What a network with dropout says of rows, and of itself."""

import numpy as np
from scipy.special import expit, softmax
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import summary_table
from skvrem.utils._classes import PredictsByProba, check_known
from skvrem.utils._parallel import one_blas_thread, parallel_map, row_chunks, threads
from skvrem.utils._validation import check_magnitude, validate_data
from skvrem.vi.dropout._model import Network
from skvrem.vi.gaussian._guards import check_in_memory
from skvrem.vi.gaussian._model_families import Logistic, Softmax, expected_probabilities

__all__ = ["DropoutInference"]

# Rows a task of a prediction, and draws of the noise for method="mc".
PREDICT_ROWS, DRAWS = 2048, 200


class DropoutInference(PredictsByProba):
    """Methods that use fitted attributes only."""

    def predict_proba(self, X, method="quadrature"):
        """Return the probabilities of the classes, averaged over the noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        method : {"quadrature", "mc", "plugin"}, default="quadrature"
            "quadrature" integrates over the logits of a row, "mc" averages over 200
            draws of the noise, "plugin" leaves it out, as dropout usually does.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        if method not in ("quadrature", "mc", "plugin"):
            raise ValueError(
                f"method must be 'quadrature', 'mc' or 'plugin', got {method!r}."
            )
        options = {"dtype": (np.float64, np.float32), "order": "C"}
        X = validate_data(self, X, reset=False, **options)
        check_magnitude(X)
        sizes = (len(self.coefs_[0]), *(len(b) for b in self.intercepts_))
        given = self._of_fit
        network = Network(sizes, given.activation, given.dropout_scale)
        seed = check_random_state(self.random_state).randint(2**31 - 1)

        def evaluate(chunk):
            rng = np.random.default_rng([seed, chunk[0]])
            return self._probabilities(network, X[slice(*chunk)], method, rng)

        with threads(self.n_jobs), one_blas_thread():
            chunks = row_chunks(0, len(X), PREDICT_ROWS)
            return np.concatenate(list(parallel_map(evaluate, chunks)))

    def _probabilities(self, network, X, method, rng):
        layers = network.layers(self._weights(network))
        inputs, a = network.forward(layers, X)
        x, (W, b) = inputs[-1], layers[-1]
        if method == "plugin":
            return _outcomes(a)
        if method == "quadrature":
            k = len(self.classes_)
            family = Logistic() if k == 2 else Softmax(k, 0)
            return expected_probabilities(family, a, network.spread(layers, x))
        total, scale = 0.0, np.sqrt(network.noise_variance)
        for _ in range(DRAWS):
            noise = 1.0 + scale * rng.standard_normal(x.shape)
            total = total + _outcomes((noise * x) @ W + b)
        return total / DRAWS

    def score(self, X, y, sample_weight=None):
        """Return the share of rows whose class is the most probable one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        accuracy : float
            Between 0 and 1.

        Raises
        ------
        ValueError
            If y has a class that was not in the fit.
        """
        check_is_fitted(self)
        check_in_memory(y=y, sample_weight=sample_weight)
        check_known(y, self.classes_)
        return super().score(X, y, sample_weight)

    def summary(self):
        """Return a table of the layers.

        Returns
        -------
        table : pandas.DataFrame, or str where pandas is not installed
            A row a layer: inputs, units, weights and their root mean square. The
            frame's ``attrs`` hold the loss, solver and convergence; the text ends with
            them.
        """
        check_is_fitted(self)
        columns = {
            "inputs": [len(W) for W in self.coefs_],
            "units": [W.shape[1] for W in self.coefs_],
            "weights": [W.size + W.shape[1] for W in self.coefs_],
            "size": [float(np.sqrt(np.mean(np.square(W)))) for W in self.coefs_],
        }
        names = [f"hidden {i + 1}" for i in range(len(self.coefs_) - 1)] + ["output"]
        facts = {
            "loss": self.loss_,
            "dropout_scale": self._of_fit.dropout_scale,
            "solver": self.solver_,
            "expectation": self.expectation_,
            "epochs": self.n_iter_,
            "converged": self.converged_,
        }
        return summary_table(columns, names, facts)

    def _weights(self, network):
        """Return the fitted weights as one vector."""
        pairs = zip(self.coefs_, self.intercepts_, strict=True)
        return network.vector(pairs).astype(np.float64)


def _outcomes(z):
    """Return probabilities (m, n_classes) at logits."""
    if z.shape[1] > 1:
        return softmax(z, axis=1)
    return np.column_stack([expit(-z[:, 0]), expit(z[:, 0])])
