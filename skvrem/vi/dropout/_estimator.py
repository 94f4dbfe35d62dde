"""Networks with Gaussian dropout: the scikit-learn shell."""

import time
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem import solvers
from skvrem.data import (
    as_source,
    averaged,
    drawn_rows,
    lazily,
    of_dask,
    open_remote,
    streamed,
)
from skvrem.utils._base import VersionedPickle, summary_table
from skvrem.utils._classes import PredictsByProba, number_classes
from skvrem.utils._columns import Given
from skvrem.utils._parallel import one_blas_thread, threads
from skvrem.utils._reports import (
    CallbackSupportMixin,
    Progress,
    warn_not_converged,
    with_callbacks,
)
from skvrem.utils._validation import (
    as_generator,
    check_block,
    check_columns_of,
    check_parameters,
    check_weight,
    check_weighted,
    classes_of,
    numbered,
)
from skvrem.vi.dropout._model import DropoutModel, DropoutSteps, Network, Weights
from skvrem.vi.dropout._plan import (
    EarlyStopping,
    full_passes,
    hidden_sizes,
    plan_dropout,
)
from skvrem.vi.dropout._stream import step
from skvrem.vi.dropout._strength import ROUGH, ROWS, strength_of
from skvrem.vi.gaussian._answers import check_method, in_chunks
from skvrem.vi.gaussian._fit import fit_bound
from skvrem.vi.gaussian._guards import (
    CENTRE,
    MOST_SCALE,
    checked,
    whole_fit,
)
from skvrem.vi.gaussian._minibatch import (
    MinibatchSteps,
    TakesSteps,
    check_steps,
    steps_of,
)
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import (
    Logistic,
    ScatteredSoftmax,
    Softmax,
    expected_probabilities,
    probabilities,
)

# Units of a layer that no memory has room for the weights of.
MOST_UNITS = 1 << 32
# Rows a task of a prediction, and draws of the noise for method="mc".
PREDICT_ROWS, DRAWS = 2048, 200


class GaussianDropoutClassifier(
    TakesSteps,
    PredictsByProba,
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
    dropout_scale : float, default=0.5
        Standard deviation of the noise. Dropping units with probability p has the same
        variance for :math:`\sqrt{p / (1 - p)}`.
    alpha : float or "auto", default="auto"
        Strength of the L2 penalty, as of scikit-learn's MLPClassifier. 1 is a standard
        normal prior on weights: what comes before the noise is held by nothing else,
        and with next to none networks of a hundred rows learn them by heart. "auto"
        is the one of 0.1, 0.3, 1, 3, 10 and 30 that foretells fifths of the rows best,
        of 500 of them if there are more; 1 below twenty of different features. Rows of
        the same features are in one fifth, and the fifths do not depend on
        `random_state`. A warm start keeps it, a stream chooses anew as its rows double,
        up to 500.
    solver : {"auto", "batch", "stochastic", "svrg"}, default="auto"
        How means over rows are estimated: by full passes, by minibatches, or by those
        with the control variate of Algorithm 2 of [1]_. "auto" is "batch" without
        hidden layers and for up to 20,000 rows, else "stochastic".
    steps : MinibatchSteps or None, default=None
        How steps are made, :class:`skvrem.vi.MinibatchSteps`; None is its defaults. Its
        ``expectation`` by "quadrature" integrates over the logits, "mc" draws the noise
        anew in each step; "auto" is "quadrature" for "batch" and for two classes. Its
        ``control_variate`` of the draws is "taylor", the approximation about the
        network without noise ([1]_, Eq. 57), or None; "svrg" with "mc" needs it. Its
        ``optimizer`` is "lbfgs" for "batch" and "adam" or "sgd" for minibatches; "auto"
        is "lbfgs" and "adam". It has no use for ``control_scale`` and ``n_draws``.
    step_size : float or "auto", default="auto"
        Of minibatches. It is halved wherever an epoch lowers the objective; "auto" is
        0.001 for "adam" (0.01 without hidden layers, 0.003 in a stream of networks) and
        0.1 for "sgd".
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
    objective_ : float
        Minus ``loss_``: the penalised expected log-likelihood, in nats a row.
    alpha_ : float
        Strength of the penalty that was used.
    n_layers_ : int
        With that of the features.
    history_ : dict of ndarray
        passes, seconds, objective (minus the loss), step_size and temperature by epoch.
    validation_scores_ : ndarray
        Accuracy on held-out rows by epoch, with `early_stopping`.
    converged_ : bool
        By `tol`. Where `early_stopping` ended the fit, ``stop_reason_`` is "callback".
    n_iter_ : int
    solver_, expectation_, optimizer_, step_size_, batch_size_ : str, float, int
        What was used.
    n_samples_seen_ : int
        Rows of the fit, or of the stream so far.
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
        dropout_scale: float = 0.5,
        alpha: float | Literal["auto"] = "auto",
        solver: Literal["auto", "batch", "stochastic", "svrg"] = "auto",
        steps: MinibatchSteps | None = None,
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
        self.dropout_scale = dropout_scale
        self.alpha = alpha
        self.solver = solver
        self.steps = steps
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

    def _see(self, learn, *rows):
        """Learn from rows, wholly or not at all."""
        with whole_fit(self, CENTRE), one_blas_thread():
            with solvers.checkpointed(self, *rows, stream=learn != self._fit):
                learn(*rows)
        return self

    def _check_parameters(self):
        check_parameters(
            self,
            dropout_scale={"most": MOST_SCALE},
            validation_fraction={"above": True, "most": 0.9},
        )
        check_steps(
            self,
            unused=("control_scale", "n_draws"),
            control_variate=("taylor", None),
            optimizer=("auto", "lbfgs", "adam", "sgd"),
        )
        sizes = hidden_sizes(self)
        whole = (isinstance(n, Integral) and not isinstance(n, bool) for n in sizes)
        if not all(whole) or not all(1 <= n <= MOST_UNITS for n in sizes):
            raise ValueError(
                f"hidden_layer_sizes of {type(self).__name__} must be whole numbers, "
                f"from 1 to at most {MOST_UNITS}, got {self.hidden_layer_sizes!r}."
            )

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: Given = None) -> Self:
        """Fit the weights.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
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

        Warns
        -----
        ConvergenceWarning
            If `max_iter` epochs were not enough.
        """
        return self._see(self._fit, X, y, sample_weight)

    def _open(self, X, y, sample_weight, reset, known=None):
        """Return rows, numbers of classes and weights."""
        X, y = checked(self, X, y, reset=reset)
        weight = check_weight(sample_weight, len(X))
        self.classes_, numbers = number_classes(self, y, weight, known)
        if weight is not None and not weight.all():
            told = weight > 0.0
            X, numbers, weight = X[told], numbers[told], weight[told]
        return X, numbers.astype(np.int32), weight

    def _open_blocks(self, X, y, sample_weight):
        """Return a source of rows of dask, with the numbers of their classes."""
        if self.early_stopping:
            raise ValueError(
                "early_stopping=True holds rows out of X in memory: choose "
                "early_stopping=False for a dask array."
            )
        y, weight = check_columns_of(self, X, y, sample_weight, reset=True)
        data, seen = open_remote(X, partial(check_block, y="labels"), weight, y)
        check_weighted(data)
        self.classes_, _ = classes_of(self, seen)
        dtype = np.float64 if len(self.classes_) == 2 else np.int32
        return data.with_columns(partial(numbered, self.classes_, dtype=dtype))

    @with_callbacks
    def _fit(self, X, y, sample_weight):
        began = time.perf_counter()
        before = vars(self).get("classes_")
        remote = any(map(of_dask, (X, y, sample_weight)))
        if remote:
            data = self._open_blocks(X, y, sample_weight)
            n_rows, dtype = data.n_units, data.dtype
        else:
            rows, numbers, weight = self._open(X, y, sample_weight, reset=True)
            n_rows, dtype = len(rows), rows.dtype
        random = check_random_state(self.random_state)
        rng = as_generator(random)
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
            weight, n_rows = None if weight is None else weight[train], len(rows)
        plan = plan_dropout(self, n_rows, len(self.classes_), remote=remote)
        if not remote:
            data = as_source(rows, weight)
        numbers = None if remote else numbers
        alpha = self._alpha(data, numbers, keep=self.warm_start)
        model = self._model(data, numbers, alpha)
        point = Point(Weights(self._first(model, before, rng)))
        fitted = model if plan.name == "batch" else self._steps(model, plan)

        def describe(parameters, objective):
            found = self._attributes(model.network, parameters, dtype)
            objectives = {"loss_": -objective, "objective_": objective}
            found |= {"alpha_": alpha, "n_samples_seen_": n_rows}
            return found | objectives | plan.attributes()

        with Progress(self, X, y, 1) as progress:
            report = progress.start(
                0, lambda at, objective: describe(at.parameters, objective)
            )
            watch = EarlyStopping(self, model.network, held_out, report)
            how = {"step_size": plan.step_size, "rng": rng}
            result, *_ = fit_bound(
                self, fitted, model.data, plan.solver, point, watch, began, **how
            )
        if not watch.ended:
            warn_not_converged(self, result)
        stream = "_moments", "_kept", "_begun", "_curvature", "_asked"
        for name in (*stream, "_rows", "validation_scores_"):
            vars(self).pop(name, None)
        if not remote:
            self._rows = rows, numbers, weight
        parameters, objective = result.point.parameters, result.objective
        if held_out is not None:
            self.validation_scores_ = np.array(watch.scores)
        if watch.best is not None:
            parameters, objective = watch.best
        vars(self).update(
            describe(parameters, objective),
            **result.attributes(),
        )

    def __getstate__(self):
        state = super().__getstate__()
        state.pop("_rows", None)  # which stay where they are
        return state

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

    def _alpha(self, data, numbers, keep):
        """Return the strength of the penalty, the last one if that is to be kept."""
        if self.alpha != "auto":
            return float(self.alpha)
        if keep and hasattr(self, "alpha_"):
            return self.alpha_
        # Parts of the rows are the same for any `random_state`, as in cross-validation:
        # where no layer is hidden nothing else is drawn, and two fits agree.
        # Repeated rows take more to draw, and no other parts than weights do.
        draws, parts = np.random.default_rng(0).spawn(2)

        def choose():
            rows, weight, some = drawn_rows(data, ROWS, draws, numbers)
            how = (rows, some, weight), full_passes(self, ROUGH), parts
            return strength_of(self._model, self._random, *how)

        with threads(self.n_jobs):
            return solvers.remembered("alpha", choose, draws)

    def _model(self, data, numbers, alpha, times=1.0):
        """Return the model of a source, and the numbers of classes if these are here.

        times: so many times the rows are those of the stream.
        """
        k = len(self.classes_)
        if numbers is not None and k == 2:
            numbers = numbers.astype(np.float64)
        family = Logistic() if k == 2 else ScatteredSoftmax(k, data.n_units)
        sizes = (data.n_features, *hidden_sizes(self), family.n_predictors)
        network = Network(sizes, self.activation, self.dropout_scale)
        return DropoutModel(family, numbers, network, alpha, data, times)

    def _steps(self, model, plan, n_visits=None):
        """Return what minibatch steps move."""
        drawn = plan.expectation == "mc"
        control = steps_of(self).control_variate if drawn else "quadrature"
        how = plan.name, control, plan.optimizer, plan.batch_size
        return DropoutSteps(model, *how, n_visits)

    def _first(self, model, classes, rng):
        """Return the weights to start from: random, or the last ones."""
        if self.warm_start and hasattr(self, "coefs_"):
            same = np.array_equal(classes, self.classes_)
            if same and [W.shape for W in self.coefs_] == model.network.shapes:
                return self._weights(model.network)
        return self._random(model, rng)

    def _random(self, model, rng):
        if not hidden_sizes(self):
            return np.zeros(model.network.n_weights)
        return model.start(rng)

    def _attributes(self, network, parameters, dtype):
        """Return the fitted attributes of weights."""
        layers = network.layers(parameters.vector)
        last = self.dropout_scale * abs(layers[-1][0])
        return {
            "classes_": self.classes_,
            "coefs_": [W.astype(dtype) for W, _ in layers],
            "intercepts_": [b.astype(dtype) for _, b in layers],
            "coef_std_": last.astype(dtype),
            "n_layers_": len(network.sizes),
        }

    @streamed
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: Given = None,
        sample_weight: Given = None,
    ) -> Self:
        """Update the weights with one batch of a stream.

        Of the rows seen 5,000 are kept, all with the same probability. Up to 2,000 rows
        the weights are those of a fit to all that goes on from the last ones. Of more,
        steps of minibatches visit new rows and those kept, fifty times as many as are
        new, with the optimizer's moments: those of "stochastic" and "adam" where the
        fit makes full passes. As long as all rows are kept, it begins anew with a class
        that is new, and where rows have become twice as many. Without hidden layers
        full passes fit all rows with a class that is new and where they are a tenth
        more, as long as all are kept; a batch between makes one step of its own, along
        the curvature of the last fit.

        Goes on from a `fit`, whose rows are seen again unless it has been pickled. The
        posterior of earlier batches is not the prior of later ones, as its standard
        deviations are `dropout_scale` times the weights however many rows there were:
        it would hold weights back that few rows have moved, and let go of those that
        many agree on.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
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
        return self._see(partial(step, self), X, y, classes, sample_weight)

    # Answers

    predict = lazily(PredictsByProba.predict)
    predict_log_proba = lazily(PredictsByProba.predict_log_proba)

    @lazily
    def predict_proba(
        self, X: ArrayLike, method: Literal["quadrature", "mc", "plugin"] = "quadrature"
    ) -> np.ndarray:
        """Return the probabilities of the classes, averaged over the noise.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
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
        check_method(method)
        X = checked(self, X)
        sizes = (len(self.coefs_[0]), *(len(b) for b in self.intercepts_))
        given, k = self._of_fit, len(self.classes_)
        network = Network(sizes, given.activation, given.dropout_scale)
        layers = network.layers(self._weights(network))
        family = Logistic() if k == 2 else Softmax(k)
        seed = check_random_state(self.random_state).randint(2**31 - 1)

        def evaluate(chunk):
            inputs, a = network.forward(layers, X[slice(*chunk)])
            x, (W, b) = inputs[-1], layers[-1]
            if method == "plugin":
                return probabilities(family, a)
            if method == "quadrature":
                return expected_probabilities(family, a, network.spread(layers, x))
            total, rng = 0.0, np.random.default_rng([seed, chunk[0]])
            for _ in range(DRAWS):
                z = (network.noise(x.shape, rng) * x) @ W + b
                total = total + probabilities(family, z)
            return total / DRAWS

        return in_chunks(self, evaluate, len(X), PREDICT_ROWS)

    @averaged
    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: Given = None) -> float:
        """Return the share of rows whose class is the most probable one.

        Parameters
        ----------
        X : {array-like, dask array} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their classes. One that was not in the fit is never right.
        sample_weight : array-like of shape (n_samples,), default=None
            Rows count so many times.

        Returns
        -------
        accuracy : float
            Between 0 and 1.
        """
        check_is_fitted(self)
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
            "alpha": self.alpha_,
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
