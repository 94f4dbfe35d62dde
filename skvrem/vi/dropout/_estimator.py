"""Networks with Gaussian dropout: the scikit-learn shell."""

import time
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.data import as_source, is_dask
from skvrem.solvers._protocols import Anchor
from skvrem.utils._base import VersionedPickle
from skvrem.utils._classes import number_classes, stream_classes
from skvrem.utils._parallel import one_blas_thread, threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    check_integer,
    check_magnitude,
    check_options,
    check_real,
    check_weight,
    validate_data,
)
from skvrem.vi.dropout._inference import DropoutInference
from skvrem.vi.dropout._model import (
    ACTIVATIONS,
    DropoutModel,
    DropoutSteps,
    Network,
    Weights,
)
from skvrem.vi.dropout._plan import Watch, hidden_sizes, plan_dropout
from skvrem.vi.gaussian._guards import (
    CENTRE,
    MOST_SCALE,
    check_in_memory,
    check_unchanged,
    whole_fit,
)
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import Logistic, ScatteredSoftmax

__all__ = ["GaussianDropoutClassifier"]

# Units of a layer that no memory has room for the weights of.
MOST_UNITS = 1 << 32


class GaussianDropoutClassifier(
    DropoutInference,
    ClassifierMixin,
    CallbackSupportMixin,
    VersionedPickle,
    BaseEstimator,
):
    r"""Network, or linear classifier, with Gaussian noise on what its last layer sees.

    Each input of the last layer is multiplied by noise from :math:`N(1, \sigma^2)`,
    and the weights have the largest expected log-likelihood: variational inference
    with a Gaussian posterior whose standard deviations are :math:`\sigma` times the
    weights [2]_. Without hidden layers this is the model of Appendix E of [1]_. The
    noise is integrated out, or drawn and controlled together with that of minibatches;
    predictions average over it.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Units of the hidden layers; ``()`` is a linear classifier.
    activation : {"relu", "tanh", "logistic", "identity"}, default="relu"
        Of hidden layers.
    noise_scale : float, default=0.5
        Standard deviation of the noise. Dropping units with probability p has the same
        variance for :math:`\sqrt{p / (1 - p)}`.
    alpha : float, default=1e-4
        Strength of the L2 penalty, as of scikit-learn's MLPClassifier.
    solver : {"auto", "batch", "stochastic", "svrg"}, default="auto"
        How means over rows are estimated: by full passes, by minibatches, or by those
        with the control variate of Algorithm 2 of [1]_. "auto" is "batch" without
        hidden layers and for up to 200 rows, else "stochastic".
    expectation : {"auto", "quadrature", "mc"}, default="auto"
        How the noise is averaged over. "quadrature" integrates over the logits, "mc"
        draws it anew in each step. "auto" is "quadrature" for "batch" and for two
        classes, else "mc".
    control_variate : {"taylor", None}, default="taylor"
        Of the draws: Taylor's approximation about the network without noise ([1]_,
        Eq. 57). "svrg" with "mc" needs it.
    optimizer : {"auto", "lbfgs", "adam", "sgd"}, default="auto"
        "lbfgs" for "batch", "adam" or "sgd" for minibatches; "auto" is "lbfgs" and
        "adam".
    step_size : float or "auto", default="auto"
        Of minibatches. It is halved wherever an epoch lowers the objective; "auto" is
        0.001 for "adam" (0.01 without hidden layers) and 0.1 for "sgd".
    batch_size : int or "auto", default="auto"
        Rows a minibatch; "auto" is 200, or all if there are fewer.
    max_iter : int, default=200
        Epochs.
    tol : float, default=1e-4
        Converged when the objective changes less in ten epochs one after the other (in
        three steps for "lbfgs"), in nats a row.
    early_stopping : bool, default=False
        Hold rows out, stop when their accuracy has not risen by `tol` for ten epochs,
        and go back to the weights that had the highest.
    validation_fraction : float, default=0.1
        Share of the rows that are held out.
    warm_start : bool, default=False
        Start from the last weights.
    n_jobs : int or None, default=None
        Threads of full passes; None is all cores, and one inside a joblib or dask
        worker. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seeds weights, held-out rows, minibatches and noise.
    verbose : int, default=0
        1: a progress bar, or a line every `verbose_interval` epochs; 2: every epoch.
    verbose_interval : int, default=10
        Epochs between two lines.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coefs_ : list of ndarray of shape (n_inputs, n_units)
        Weights of each layer; the last has one unit for two classes.
    intercepts_ : list of ndarray of shape (n_units,)
    coef_std_ : ndarray of shape (n_inputs, n_units)
        Standard deviations of the weights of the last layer, under the noise.
    loss_ : float
        Expected loss and penalty, in nats a row, of the weights that are returned; of
        a stream, over its last batch. For more than two classes it is a sum over nodes
        that err by some 5e-4 nats a row.
    n_layers_ : int
        With that of the features.
    history_ : dict of ndarray
        passes, seconds, objective (minus the loss), step_size and temperature by epoch.
    validation_scores_ : ndarray
        Accuracy on held-out rows by epoch, with `early_stopping`.
    converged_ : bool
        By `tol`, or by `early_stopping`.
    n_iter_ : int
    solver_, expectation_, optimizer_, step_size_, batch_size_ : str, float, int
        What was used.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has string column names.

    See Also
    --------
    sklearn.neural_network.MLPClassifier : A network without noise.
    skvrem.BayesianLogisticRegression : A posterior with scales that are learnt.

    References
    ----------
    .. [1] Wang, Geffner, Domke (2024). Joint control variate for faster black-box
       variational inference. AISTATS. Appendix E.
    .. [2] Kingma, Salimans, Welling (2015). Variational dropout and the local
       reparameterization trick. NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from skvrem import GaussianDropoutClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianDropoutClassifier((), random_state=0).fit(scale(X), y)
    >>> model.converged_, model.score(scale(X), y) > 0.95
    (True, True)
    """

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: Literal["relu", "tanh", "logistic", "identity"] = "relu",
        *,
        noise_scale: float = 0.5,
        alpha: float = 1e-4,
        solver: Literal["auto", "batch", "stochastic", "svrg"] = "auto",
        expectation: Literal["auto", "quadrature", "mc"] = "auto",
        control_variate: Literal["taylor"] | None = "taylor",
        optimizer: Literal["auto", "lbfgs", "adam", "sgd"] = "auto",
        step_size: float | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.noise_scale = noise_scale
        self.alpha = alpha
        self.solver = solver
        self.expectation = expectation
        self.control_variate = control_variate
        self.optimizer = optimizer
        self.step_size = step_size
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def _check_parameters(self):
        check_integer(self, "max_iter", "verbose")
        check_integer(self, "verbose_interval", least=1)
        check_integer(self, "batch_size", least=1, options=("auto",))
        check_real(self, "tol", "alpha")
        check_real(self, "noise_scale", most=MOST_SCALE)
        check_real(self, "step_size", above=True, options=("auto",))
        check_real(self, "validation_fraction", above=True, most=0.9)
        check_options(
            self,
            activation=tuple(ACTIVATIONS),
            solver=("auto", "batch", "stochastic", "svrg"),
            expectation=("auto", "quadrature", "mc"),
            control_variate=("taylor", None),
            optimizer=("auto", "lbfgs", "adam", "sgd"),
            early_stopping=(True, False),
            warm_start=(True, False),
        )
        sizes = hidden_sizes(self)
        whole = (isinstance(n, Integral) and not isinstance(n, bool) for n in sizes)
        if not all(whole) or min(sizes, default=1) < 1:
            raise ValueError(
                f"hidden_layer_sizes of {type(self).__name__} must be positive whole "
                f"numbers, got {self.hidden_layer_sizes!r}."
            )
        if max(sizes, default=1) > MOST_UNITS:
            raise ValueError(
                f"hidden_layer_sizes of {type(self).__name__} must be at most "
                f"{MOST_UNITS} each, got {self.hidden_layer_sizes!r}."
            )

    def fit(self, X, y, sample_weight=None):
        """Fit the weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, with features on one scale.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : GaussianDropoutClassifier
            The fitted model.

        Raises
        ------
        ValueError
            For parameters out of range or that do not go together, a single class, and
            rows that are not finite. The estimator is then as it was before.
        TypeError
            For a dask array.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        """
        with whole_fit(self, CENTRE), threads(self.n_jobs), one_blas_thread():
            self._check_parameters()
            self._fit(X, y, sample_weight)
        return self

    def _open(self, X, y, sample_weight, reset, known=None):
        """Return rows, numbers of classes and weights."""
        if is_dask(X):
            as_source(X, dask=False)  # says what to do
        check_in_memory(y=y, sample_weight=sample_weight)
        options = {"dtype": (np.float64, np.float32), "order": "C"}
        X, y = validate_data(self, X, y, reset=reset, **options)
        check_magnitude(X)
        weight = check_weight(sample_weight, len(X))
        self.classes_, numbers = number_classes(self, y, weight, known)
        return X, numbers, weight

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        began = time.perf_counter()
        before = vars(self).get("classes_")
        rows, numbers, weight = self._open(X, y, sample_weight, reset=True)
        random = check_random_state(self.random_state)
        rng = np.random.default_rng(random.randint(2**31 - 1))
        held_out = None
        if self.early_stopping:
            self._check_held_out(numbers)
            train, test = train_test_split(
                np.arange(len(rows)),
                test_size=self.validation_fraction,
                stratify=numbers,
                random_state=random,
            )
            held_out = rows[test], numbers[test]
            rows, numbers = rows[train], numbers[train]
            weight = None if weight is None else weight[train]
        plan = plan_dropout(self, len(rows), len(self.classes_))
        model = self._model(rows, numbers, weight)
        point = Point(Weights(self._first(model.network, before, rng)))
        if plan.solver == "batch":
            concave, fitted = len(model.network.shapes) == 1, model
            solver = solvers.QuasiNewton(self.tol, trusted=concave, name="batch")
        else:
            fitted, solver = self._steps(model, plan), solvers.Sweeps(plan.solver)
        watch = Watch(self, model, held_out)
        with Progress(self, X, y, 1) as progress:
            attributes = partial(self._attributes, model.network, dtype=rows.dtype)
            report = progress.start(0, lambda at: attributes(at.parameters))
            result = solvers.run(
                fitted,
                solver,
                model.data,
                point,
                step_size=schedules.Constant(plan.step_size),
                temperature=schedules.Constant(1.0),
                max_iter=self.max_iter,
                tol=self.tol,
                rng=rng,
                report=watch.after(report),
                seconds=time.perf_counter() - began,
            )
            report.end()
        if not watch.ended:
            warn_not_converged(self, result)
        for name in ("_moments", "validation_scores_"):
            vars(self).pop(name, None)
        if held_out is not None:
            self.validation_scores_ = np.array(watch.scores)
        parameters, objective = result.point.parameters, result.objective
        if watch.best is not None:
            parameters, objective = watch.best
        vars(self).update(
            attributes(parameters),
            loss_=-objective,
            **result.attributes(),
            **self._used(plan),
        )

    def _check_held_out(self, numbers):
        """Check that each class has rows to fit and rows to hold out."""
        counts, k = np.bincount(numbers), len(self.classes_)
        few = int(counts.argmin())
        n_test = int(np.ceil(self.validation_fraction * len(numbers)))
        if counts[few] < 2:
            raise ValueError(
                f"early_stopping=True holds rows of each class out, and the class "
                f"{self.classes_.tolist()[few]!r} has {counts[few]}: give it two at "
                "least, leave it out, or choose early_stopping=False."
            )
        if not k <= n_test <= len(numbers) - k:
            raise ValueError(
                f"validation_fraction={self.validation_fraction:g} of {len(numbers)} "
                f"rows holds {n_test} out, and of {k} classes at least {k} are needed "
                "on either side: choose another, or early_stopping=False."
            )

    def _model(self, rows, numbers, weight):
        """Return the model of rows."""
        k = len(self.classes_)
        family = Logistic() if k == 2 else ScatteredSoftmax(k, len(rows))
        targets = numbers.astype(np.float64) if k == 2 else numbers
        sizes = (rows.shape[1], *hidden_sizes(self), family.n_predictors)
        return DropoutModel(
            family,
            targets,
            Network(sizes, self.activation, self.noise_scale),
            self.alpha,
            as_source(rows, weight, dask=False),
        )

    def _steps(self, model, plan):
        """Return what minibatch steps move."""
        drawn = plan.expectation == "mc"
        control = self.control_variate if drawn else "quadrature"
        return DropoutSteps(
            model, plan.solver, control, plan.optimizer, plan.batch_size
        )

    def _used(self, plan):
        return {
            "solver_": plan.solver,
            "expectation_": plan.expectation,
            "optimizer_": plan.optimizer,
            "step_size_": plan.step_size,
            "batch_size_": plan.batch_size,
        }

    def _first(self, network, classes, rng):
        """Return the weights to start from: random, or the last ones."""
        if self.warm_start and hasattr(self, "coefs_"):
            same = np.array_equal(classes, self.classes_)
            if same and [W.shape for W in self.coefs_] == network.shapes:
                return self._weights(network)
        if not hidden_sizes(self):
            return np.zeros(network.n_weights)
        return network.start(rng)

    def _attributes(self, network, parameters, dtype):
        """Return the fitted attributes of weights."""
        layers = network.layers(parameters.vector)
        last = self.noise_scale * abs(layers[-1][0])
        return {
            "classes_": self.classes_,
            "coefs_": [W.astype(dtype) for W, _ in layers],
            "intercepts_": [b.astype(dtype) for _, b in layers],
            "coef_std_": last.astype(dtype),
            "n_layers_": len(network.sizes),
        }

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Make an epoch of minibatch steps over one batch of a stream.

        Goes on from a `fit` or the batch before, with the optimizer's moments. The
        steps are those of "stochastic" and "adam" where the fit makes full passes. The
        posterior of earlier batches is not the prior of later ones, as its standard
        deviations are `noise_scale` times the weights however many rows there were: it
        would hold weights back that few rows have moved, and let go of those that many
        agree on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The batch.
        y : array-like of shape (n_samples,)
            Classes of its rows.
        classes : array-like of shape (n_classes,), default=None
            All classes of the stream, needed in the first call.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        self : GaussianDropoutClassifier
            The fitted model.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call or differs later, or y holds a
            class that is not among them.
        """
        with whole_fit(self, CENTRE), threads(self.n_jobs), one_blas_thread():
            self._check_parameters()
            if hasattr(self, "coefs_"):
                check_unchanged(self, "activation", "hidden_layer_sizes")
            self._step(X, y, stream_classes(self, classes), sample_weight)
        return self

    def _step(self, X, y, classes, sample_weight):
        first = not hasattr(self, "coefs_")
        rows, numbers, weight = self._open(X, y, sample_weight, first, classes)
        plan = plan_dropout(self, len(rows), len(classes), stream=True)
        model = self._model(rows, numbers, weight)
        steps, solver = self._steps(model, plan), solvers.Sweeps(plan.solver)
        random = check_random_state(self.random_state)
        rng = np.random.default_rng(random.randint(2**31 - 1))
        vector = model.network.start(rng) if first else self._weights(model.network)
        point = Point(Weights(vector), moments=vars(self).get("_moments"))
        solver.start(steps, model.data, rng)
        pace = schedules.Constant(plan.step_size)
        begin = Anchor(None, np.nan, 0.0, point)  # of which nothing need be known
        point = solver.sweep(begin, pace, rng).point
        _, mean, _ = steps.full_pass(point, model.data)
        dtype = rows.dtype if first else self.coefs_[0].dtype
        of_fit = ("history_", "stop_reason_", "gap_left_")
        for name in (*of_fit, "validation_scores_"):
            vars(self).pop(name, None)  # they are of a fit that is past
        vars(self).update(
            self._attributes(model.network, point.parameters, dtype),
            loss_=-model.objective(point, mean),
            converged_=False,
            n_iter_=getattr(self, "n_iter_", 0) + 1,
            _moments=point.moments,
            **self._used(plan),
        )
