"""What every estimator does, on real and simulated data, beside scikit-learn's own.

``make demo`` runs it, two estimators at a time where there are two cores, and ``make
demo only=VRHMM`` a part. The data are those that
scikit-learn ships, one simulated mixture, and texts: 20 Newsgroups, or without a
network the documentation of NumPy, SciPy and scikit-learn. Tables go to the terminal,
pictures to demo_output/.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import time
import tracemalloc
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import matplotlib
import numba
import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.decomposition import (
    NMF,
    PCA,
    FactorAnalysis,
    LatentDirichletAllocation,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import (
    BayesianRidge,
    HuberRegressor,
    LogisticRegression,
    SGDClassifier,
)
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from topics.corpora import newsgroups_or_docstrings

from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    ComponentsDisplay,
    ConvergenceDisplay,
    FactorialMixture,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
    StatesDisplay,
    TemperedLDA,
    TopicsDisplay,
    VariationalInference,
    VRGaussianMixture,
)
from skvrem.text import coherence, document_completion
from skvrem.utils.discovery import all_estimators

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Ellipse

OUTPUT = Path("demo_output")


def show(text=""):
    """Print at once, so that a long fit does not hold back what came before."""
    print(text, flush=True)


def show_table(title, columns, rows):
    """Print rows of text, with rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        lines = [columns, *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        show(title)
        for line in lines:
            show("  ".join(map(str.ljust, line, widths)).rstrip())
        return
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)  # a pipe has no width of its own
    console.print(table)


def save(figure, name):
    """Write a picture to the output folder."""
    figure.savefig(OUTPUT / name, dpi=120)
    plt.close(figure)
    show(f"saved {OUTPUT / name}")


def seconds_of(function):
    """Return a result and the seconds that it took."""
    began = time.perf_counter()
    result = function()
    return result, time.perf_counter() - began


def peak_memory(estimator, X):
    """Megabytes that a fit of two iterations allocates at its peak, X excluded.

    More iterations need no more. What compiled loops allocate inside, a few hundred
    kilobytes a thread, is not seen by tracemalloc.
    """
    estimator = type(estimator)(**estimator.get_params()).set_params(max_iter=2)
    tracemalloc.start()
    try:
        estimator.fit(X)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def compare(data, X, estimators):
    """Fit every estimator to X; return the fitted ones and their rows of the table.

    BLAS has one thread, which is the better setting for GaussianMixture: it multiplies
    small matrices, and on a busy machine more threads wait for each other.
    """
    fits, rows = [], []
    for estimator in estimators:
        with threadpool_limits(1, "blas"):
            fit, seconds = seconds_of(lambda model=estimator: model.fit(X))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            memory = peak_memory(estimator, X)
        name, passes = type(fit).__name__, fit.n_iter_
        if hasattr(fit, "history_"):
            name += f", {fit.solver_}"
            passes = round(fit.history_["passes"][-1])
        score = f"{fit.score(X):.5f}"
        rows.append([data, name, score, str(passes), f"{seconds:.3f}", f"{memory:.1f}"])
        fits.append(fit)
    return fits, rows


def overlapping_mixture(n, d, k, seed):
    """Draw from a mixture whose components overlap so much that EM is slow."""
    rng = np.random.default_rng(seed)
    means = 0.4 * rng.normal(size=(k, d))
    labels = rng.integers(k, size=n)
    X = np.empty((n, d))
    for component in range(k):
        rows = labels == component
        A = rng.normal(size=(d, d)) / np.sqrt(d)
        factor = np.linalg.cholesky(A @ A.T + 0.5 * np.eye(d))
        X[rows] = means[component] + rng.normal(size=(rows.sum(), d)) @ factor.T
    return X


def demonstrate_gaussian_mixture():
    """Compare with GaussianMixture on real data and on a slow simulated problem."""
    scale = StandardScaler().fit_transform
    digits = load_digits()
    pca = PCA(20, random_state=0)
    problems = [
        ("iris", load_iris().data, {"n_components": 3}),
        ("wine", scale(load_wine().data), {"n_components": 3}),
        (
            "breast cancer",
            scale(load_breast_cancer().data),
            {"n_components": 4, "covariance_type": "diag"},
        ),
        (
            "digits",
            pca.fit_transform(digits.data),
            {"n_components": 20, "covariance_type": "tied", "reg_covar": 1e-3},
        ),
    ]
    X = overlapping_mixture(20_000, 10, 10, seed=0)
    _, first = seconds_of(lambda: warm_up(X))
    show(
        f"First call of every kernel: {first:.1f} s to compile it, or to read it from "
        "numba's cache.\nNot counted below. Passes of VRGaussianMixture "
        "include its start,\nand for GaussianMixture they are its iterations."
    )

    rows, fitted = [], {}
    for name, data, options in problems:
        options = {**options, "tol": 1e-5, "max_iter": 1000, "random_state": 0}
        label = f"{name}, {data.shape[0]} x {data.shape[1]}"
        # Defaults: one start there, a search here.
        theirs = GaussianMixture(**options)
        estimators = [theirs, VRGaussianMixture(**options)]
        fits, part = compare(label, data, estimators)
        fitted[name] = fits[1]
        rows += part
    columns = ["data", "estimator", "log-lik. a row", "passes", "seconds", "extra MB"]
    show_table("Real data, default starts", columns, rows)

    options = {"n_components": 10, "tol": 1e-6, "max_iter": 1000, "random_state": 0}
    settings = [
        {"solver": "saga"},
        {"solver": "svrg"},
        {"solver": "batch", "acceleration": "squarem"},
        {"solver": "batch"},
    ]
    options["n_init"] = 1
    estimators = [VRGaussianMixture(**options, **setting) for setting in settings]
    label = f"{X.shape[0]} x {X.shape[1]}"
    fits, rows = compare(label, X, [*estimators, GaussianMixture(**options)])
    show_table("Simulated overlapping mixture, one start, tol=1e-6", columns, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        noisy = VRGaussianMixture(**options, solver="stochastic")
        fits.insert(2, noisy.set_params(max_iter=60).fit(X))

    draw_convergence(fits[:-1], len(X))
    draw_clusters()
    draw_digits(pca, fitted["digits"])


def warm_up(X):
    """Compile or load what the fits below use, on a few rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for kind in ("full", "tied", "diag", "spherical"):
            for solver in ("saga", "batch"):
                mixture = VRGaussianMixture(2, covariance_type=kind, solver=solver)
                mixture.set_params(max_iter=2, random_state=0).fit(X[:1000])
                mixture.score(X[:1000])


def draw_convergence(fits, n_rows):
    """Gap to the best log-likelihood, by passes and by seconds."""
    best = max(fit.objective_ for fit in fits)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    named = {fit.solver_: fit for fit in fits}
    for ax, x in zip(axes, ("passes", "seconds"), strict=True):
        ConvergenceDisplay.from_estimator(named, x=x, y="gap", best=best, ax=ax)
        # Smaller gaps than the tolerance say nothing.
        ax.set_ylim(bottom=1e-6)
        ax.grid(alpha=0.3)
    title = f"Overlapping mixture, {n_rows:,} rows: solvers from the same start"
    figure.suptitle(title)
    save(figure, "convergence.png")


def draw_ellipses(ax, mixture):
    """Draw the region of two standard deviations of each component."""
    for mean, covariance in zip(mixture.means_, mixture.covariances_, strict=True):
        values, vectors = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(*vectors[::-1, 1]))
        width, height = 4.0 * np.sqrt(values[::-1])
        ax.add_patch(
            Ellipse(mean, width, height, angle=angle, fill=False, lw=1.6, ec="black")
        )


def draw_clusters():
    """Two features of iris: species by colour, components as ellipses."""
    iris = load_iris()
    X = iris.data[:, 2:]
    mixture = VRGaussianMixture(3, random_state=0).fit(X)
    figure, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for species, name in enumerate(iris.target_names):
        rows = X[iris.target == species]
        # Lengths are whole millimetres: without a shift points hide each other.
        rows = rows + np.random.default_rng(species).uniform(-0.03, 0.03, rows.shape)
        ax.scatter(*rows.T, s=14, alpha=0.8, label=name)
    draw_ellipses(ax, mixture)
    ax.set(xlabel=iris.feature_names[2], ylabel=iris.feature_names[3])
    ax.set_title("iris: species (colours) and components (two sd)")
    ax.legend()
    save(figure, "iris_components.png")


def draw_digits(pca, mixture):
    """The means of the digits' components as images, by their share."""
    order = np.argsort(-mixture.weights_)
    images = pca.inverse_transform(mixture.means_[order]).reshape(-1, 8, 8)
    figure, axes = plt.subplots(2, 10, figsize=(10, 2.6), layout="constrained")
    for ax, image, share in zip(
        axes.flat, images, mixture.weights_[order], strict=True
    ):
        ax.imshow(image, cmap="gray_r", vmin=0, vmax=16)
        ax.set_title(f"{100 * share:.1f} %", fontsize=8)
        ax.set_axis_off()
    figure.suptitle("digits: means of 20 components and their shares")
    save(figure, "digits_means.png")


def demonstrate_plsa():
    """Compare with LatentDirichletAllocation and NMF on texts; draw the topics."""
    k, seed = 20, {"random_state": 0}
    models = [
        VRPLSA(k, **seed),
        VRPLSA(k, solver="batch", **seed),
        LatentDirichletAllocation(k, learning_method="online", **seed),
        NMF(k, beta_loss="kullback-leibler", solver="mu", init="random", **seed),
    ]
    compare_topics(models, "topics.png")


def demonstrate_lda():
    """Compare with LatentDirichletAllocation on texts; show the hottest of them."""
    k, seed = 20, {"random_state": 0}
    models = [
        TemperedLDA(k, **seed),
        TemperedLDA(k, solver="stochastic", tempering="local", **seed),
        LatentDirichletAllocation(k, learning_method="online", **seed),
    ]
    texts = compare_topics(models, "lda_topics.png")
    temperatures = models[1].doc_temperature_
    show("The hottest texts, which no mixture of topics would write:")
    for d in np.argsort(-temperatures)[:5]:
        show(f"{temperatures[d]:.2f}  {' '.join(texts[d].split())[:70]}")


def compare_topics(models, picture):
    """Print how topic models predict held-out texts; draw the topics of the first."""
    name, texts, _ = newsgroups_or_docstrings()
    texts, _ = train_test_split(
        texts, train_size=min(1500, len(texts) - 1), random_state=0
    )
    train, test = train_test_split(texts, test_size=0.2, random_state=0)
    vectorizer = CountVectorizer(
        stop_words="english", token_pattern="[a-z]{3,}", min_df=5, max_df=0.25
    )
    X, X_test = vectorizer.fit_transform(train), vectorizer.transform(test)
    show(
        f"{name}: {X.shape[0]} texts to learn from, {X_test.shape[0]} to predict, "
        f"{X.shape[1]} words, {X.sum()} tokens.\nHeld-out: the log-likelihood of one "
        "half of an unseen text given the other half.\nCoherence: mean NPMI of the top "
        "10 words on unseen texts."
    )
    k = models[0].n_components
    clone(models[0]).fit(X[:400]).score(X)  # compiled, or read from the cache
    rows = []
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, seconds = seconds_of(lambda model=model: model.fit(X))
        label = type(model).__name__
        if isinstance(model, VRPLSA | TemperedLDA):
            label += f", {model.solver_}"
            for name in ("e_step", "tempering"):
                given = getattr(model, name, None)
                label += f", {given}" if given not in (None, "auto") else ""
        elif isinstance(model, LatentDirichletAllocation):
            label += f", {model.learning_method}"
        # NMF gives some words probability zero.
        held_out = document_completion(model, X_test, smoothing=0.01)
        rows.append(
            [
                label,
                f"{held_out:.4f}",
                f"{np.exp(-held_out):.0f}",
                f"{coherence(model, X_test).mean():.3f}",
                f"{seconds:.2f}",
            ]
        )
    measures = ["held-out", "perplexity", "coherence"]
    columns = ["estimator", *measures, "seconds"]
    show_table(f"{k} topics, held-out in nats a token", columns, rows)
    first = models[0].relabel(np.argsort(-models[0].topic_shares_))
    display = TopicsDisplay.from_estimator(
        first,
        feature_names=vectorizer,
        n_words=8,
        titles=[f"{100 * share:.1f} %" for share in first.topic_shares_],
    )
    display.figure_.suptitle(f"{name}: topics and their shares of the tokens")
    save(display.figure_, picture)
    return train


def demonstrate_logistic_regression():
    """Compare with LogisticRegression, and a stream with SGDClassifier."""
    scale = StandardScaler().fit_transform
    cancer, digits = load_breast_cancer(), load_digits()
    problems = [
        ("breast cancer", scale(cancer.data), cancer.target),
        ("digits", digits.data / 16.0, digits.target),
        ("simulated, ill-conditioned", *clicks(20_000, 100, seed=0)),
    ]
    for _, X, y in problems:  # compile or load
        SBMLogisticRegression(max_iter=2, tol=1.0).fit(X[:500], y[:500])
        first = SBMLogisticRegression(max_iter=1)
        first.partial_fit(X[:500], y[:500], classes=np.unique(y))
    rows = []
    for name, X, y in problems:
        label = f"{name}, {X.shape[0]} x {X.shape[1]}"
        for estimator in (
            LogisticRegression(max_iter=10_000, tol=1e-6),
            LogisticRegression(solver="newton-cholesky", tol=1e-6),
            SBMLogisticRegression(random_state=0),
        ):
            with threadpool_limits(1, "blas"):
                fit, seconds = seconds_of(lambda e=estimator, X=X, y=y: e.fit(X, y))
            solver = getattr(fit, "solver_", fit.solver)
            loss = -np.mean(fit.predict_log_proba(X)[np.arange(len(y)), y])
            loss += 0.5 * np.square(fit.coef_).sum() / len(y)
            name = f"{type(fit).__name__}, {solver}"
            steps = int(np.max(fit.n_iter_))
            rows.append([label, name, f"{loss:.7f}", str(steps), f"{seconds:.3f}"])
    columns = ["data", "estimator", "objective a row", "steps", "seconds"]
    show_table("Fits to convergence", columns, rows)

    _, X, y = problems[-1]
    test = slice(16_000, None)
    rows = []
    for estimator in (
        SGDClassifier("log_loss", alpha=1e-5, random_state=0),
        SGDClassifier("log_loss", alpha=1e-5, average=True, random_state=0),
        SBMLogisticRegression(),
    ):

        def stream(model=estimator):
            for start in range(0, 16_000, 1000):
                block = slice(start, start + 1000)
                model.partial_fit(X[block], y[block], classes=[0, 1])

        with threadpool_limits(1, "blas"):
            _, seconds = seconds_of(stream)
        z = estimator.decision_function(X[test])
        loss = np.mean(np.logaddexp(0.0, z) - y[test] * z)
        error = 100.0 * np.mean((z > 0) != y[test])
        name = type(estimator).__name__
        if getattr(estimator, "average", False):
            name += ", averaged"
        rows.append(["16 blocks of 1000", name, f"{loss:.4f}", f"{error:.2f}"])
        rows[-1].append(f"{seconds:.3f}")
    columns = ["stream", "estimator", "test log-loss", "test error %", "seconds"]
    show_table("One pass of partial_fit, no tuning", columns, rows)


def clicks(n, d, seed):
    """Draw two classes by columns whose spread differs by a factor of 100."""
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1.0, 0.01, d)
    X = rng.normal(size=(n, d)) * scale
    weights = 2.0 * rng.normal(size=d) / scale / np.sqrt(d)
    return X, (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-X @ weights))).astype(int)


def walk_through_images(images, labels, n_sequences, length, seed):
    """Sequences of digits that mostly count up, seen as images."""
    rng = np.random.default_rng(seed)
    rows, digits = [], []
    for _ in range(n_sequences):
        digit = rng.integers(10)
        for _ in range(length):
            rows.append(rng.choice(np.flatnonzero(labels == digit)))
            digits.append(digit)
            digit = (digit + 1) % 10 if rng.random() < 0.9 else rng.integers(10)
    return images[rows], np.array(digits), np.repeat(np.arange(n_sequences), length)


def demonstrate_hidden_markov():
    """Digits in sequences: what the order of rows adds to a mixture of Gaussians."""
    digits = load_digits()
    reduced = PCA(15, random_state=0).fit_transform(digits.data)
    X, truth, ids = walk_through_images(reduced, digits.target, 80, 50, seed=0)
    options = {"covariance_type": "tied", "random_state": 0, "reg_covar": 1e-3}
    mixture = GaussianMixture(10, n_init=8, **options)
    hmm = VRHMM(10, **options)
    warm_up_hidden_markov(X, ids)
    _, seconds = seconds_of(lambda: mixture.fit(X))
    labels = {"GaussianMixture, without order": (mixture.predict(X), seconds)}
    _, seconds = seconds_of(lambda: hmm.fit(X, groups=ids))
    labels["VRHMM, with order"] = (hmm.predict(X, groups=ids), seconds)
    scores = [mixture.score(X), hmm.score(X, groups=ids)]
    rows = [
        [
            f"digits counting up, {X.shape[0]} x {X.shape[1]}",
            name,
            f"{score:.4f}",
            f"{adjusted_rand_score(truth, label):.3f}",
            f"{seconds:.2f}",
        ]
        for (name, (label, seconds)), score in zip(labels.items(), scores, strict=True)
    ]
    columns = ["data", "estimator", "log-lik. a row", "agreement", "seconds"]
    show_table("Ten clusters of digits, best of 8 starts", columns, rows)
    draw_states(hmm, X, ids, truth)


def warm_up_hidden_markov(X, ids):
    """Compile or load what the fit uses, on a few rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        hmm = VRHMM(2, covariance_type="tied", max_iter=2, random_state=0)
        hmm.fit(X[:500], groups=ids[:500]).predict(X[:500], groups=ids[:500])


def draw_states(hmm, X, ids, truth):
    """A sequence coloured by state, beside the digits that it was drawn from."""
    rows = ids == 0
    display = StatesDisplay.from_estimator(
        hmm, X[rows], values=truth[rows, None], names=["digit"]
    )
    display.axes_[0].set_title("digits of a sequence (height) and states (colour)")
    save(display.figure_, "digits_states.png")


def demonstrate_factorial():
    """Parts of images, simulated and real: what annealing adds to plain inference."""
    rng = np.random.default_rng(0)
    shapes = np.zeros((8, 4, 4))
    shapes[0, 0] = shapes[1, :, 0] = shapes[2, :, 3] = shapes[3, 3] = 1.0
    shapes[4, 1:3, 1:3] = shapes[7, :2, :2] = 1.0
    shapes[5], shapes[6] = np.eye(4), np.eye(4)[::-1]
    codes = rng.uniform(size=(4000, 8)) < 0.3
    toy = codes @ shapes.reshape(8, 16) + 0.15 * rng.normal(size=(4000, 16))
    digits = load_digits().data - load_digits().data.mean()
    problems = [
        ("shapes, 4 x 4", toy, (4, 4), 8),
        ("digits, 8 x 8", digits, (8, 8), 24),
    ]
    FactorialMixture(2, annealing_iter=2).fit(toy).score(toy)  # compiles the kernels
    rows, figure = [], plt.figure(figsize=(10, 6), layout="constrained")
    for part, (name, X, shape, k) in zip(
        figure.subfigures(2, 1, height_ratios=(1, 2.4)), problems, strict=True
    ):
        train, test = X[::2], X[1::2]
        estimators = {
            "PCA (real factors)": PCA(k),
            "FactorialMixture, not annealed": FactorialMixture(k, tempering=None),
            "FactorialMixture": FactorialMixture(k),
        }
        for label, estimator in estimators.items():
            estimator.set_params(random_state=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                _, seconds = seconds_of(partial(estimator.fit, train))
            score = f"{estimator.score(test):.3f}"
            rows.append([f"{name}, {k} factors", label, score, f"{seconds:.2f}"])
        part.suptitle(f"{name}: components")
        axes = part.subplots(-(-k // 8), 8)
        ComponentsDisplay.from_estimator(estimator, shape, titles=[""] * k, ax=axes)
    columns = ["data", "estimator", "held-out log-lik. a row", "seconds"]
    show_table("Binary factors; the scores of the mixtures are bounds", columns, rows)
    save(figure, "factorial_components.png")


# Parameters that say how strong a prior is.
STRENGTHS = ("C", "prior_scale")


def demonstrate_bayesian_logistic_regression():
    """Compare with LogisticRegression where rows are few: how sure, and how right."""
    rows = []
    for name, data in (("breast cancer", load_breast_cancer()), ("wine", load_wine())):
        X = StandardScaler().fit_transform(data.data)
        split = train_test_split(X, data.target, train_size=40, random_state=0)
        X, X_test, y, y_test = split
        for estimator in (
            LogisticRegression(C=np.inf, max_iter=10_000),
            LogisticRegression(),
            BayesianLogisticRegression(random_state=0),
        ):
            fit = estimator.fit(X, y)
            p = fit.predict_proba(X_test)
            with np.errstate(divide="ignore"):
                loss = -np.mean(np.log(p[np.arange(len(p)), y_test]))
            sure = f"{p.max(axis=1).mean():.3f}"
            right = f"{fit.score(X_test, y_test):.3f}"
            strength = {k: v for k, v in fit.get_params().items() if k in STRENGTHS}
            label = f"{type(fit).__name__} {strength}"
            rows.append([f"{name}, 40 rows", label, sure, right, f"{loss:.3f}"])
    columns = ["data", "estimator", "sure", "right", "log-loss"]
    show_table("Rows that were not seen: mean probability of the choice", columns, rows)
    interval = fit.predict_proba_interval(X_test[:1])[0]
    ends = ", ".join(f"{low:.2f} to {high:.2f}" for low, high in interval)
    show(f"95 % intervals of the classes of one row: {ends}")


def demonstrate_bayesian_glm_regressor():
    """Compare with BayesianRidge: learnt noise, and how often intervals cover."""
    rows, rng = [], np.random.default_rng(0)
    for n, d in ((60, 20), (5000, 100)):
        X = rng.normal(size=(n + 1000, d))
        y = X @ rng.normal(size=d) + 2.0 * rng.normal(size=n + 1000)
        for estimator in (BayesianRidge(), BayesianGLMRegressor()):
            fit, seconds = seconds_of(partial(estimator.fit, X[:n], y[:n]))
            mean, std = fit.predict(X[n:], return_std=True)
            inside = np.mean(abs(y[n:] - mean) < 1.96 * std)
            noise = getattr(fit, "noise_scale_", None) or fit.alpha_**-0.5
            cells = [f"{fit.score(X[n:], y[n:]):.3f}", f"{noise:.3f}"]
            cells += [f"{100 * inside:.1f} %", f"{seconds:.3f}"]
            rows.append([f"{n} x {d}, noise 2", type(fit).__name__, *cells])
    columns = ["data", "estimator", "R2", "noise", "in 95 %", "seconds"]
    show_table("Rows that were not seen", columns, rows)


def demonstrate_bradley_terry():
    """Skills of a simulated tour beside ridge regression on signed indicators."""
    rows = []
    for n_players, n in ((20, 2000), (1000, 40_000)):
        X, y, skill = tour(n_players, n, seed=0)
        train, test = slice(0, -n // 10), slice(-n // 10, None)
        model = BradleyTerry()
        model.fit(X[train][:100], y[train][:100])  # compiles the kernels
        _, seconds = seconds_of(lambda m=model, X=X, y=y, t=train: m.fit(X[t], y[t]))
        a, b = np.random.default_rng(1).choice(model.items_, (2, 1000))
        _, lower, upper = model.difference_interval(a, b)
        truth = skill[a] - skill[b]
        inside = np.mean((lower <= truth) & (truth <= upper))
        label = f"{n_players} players, {n} matches"
        score = model.score(X[test], y[test])
        cells = [f"{score:.4f}", f"{100 * inside:.1f} %", f"{seconds:.2f}"]
        rows.append([label, "BradleyTerry", *cells])
        ridge = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000)
        signs = csr_array(
            (np.tile([1.0, -1.0], n), (np.repeat(np.arange(n), 2), X.ravel())),
            shape=(n, n_players),
        )
        _, seconds = seconds_of(
            lambda r=ridge, D=signs, y=y, t=train: r.fit(D[t], y[t])
        )
        score = ridge.predict_log_proba(signs[test])[np.arange(n // 10), y[test]].mean()
        rows.append(
            [label, "LogisticRegression", f"{score:.4f}", "-", f"{seconds:.2f}"]
        )
    columns = ["data", "estimator", "held-out log-lik.", "true differences", "seconds"]
    show_table("Skills; true differences inside 95 % intervals", columns, rows)


def tour(n_players, n_matches, seed):
    """Draw matches, more of the better players, and their results."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(size=n_players)
    chance = np.exp(skill) / np.exp(skill).sum()
    X = rng.choice(n_players, (2 * n_matches, 2), p=chance)
    X = X[X[:, 0] != X[:, 1]][:n_matches]
    u = skill[X[:, 0]] - skill[X[:, 1]]
    return X, (rng.uniform(size=n_matches) < 1 / (1 + np.exp(-u))).astype(int), skill


def demonstrate_ppca():
    """Held-out densities beside PCA and FactorAnalysis, with many rows and few."""
    digits, cancer = load_digits().data / 4.0, load_breast_cancer().data
    cancer = StandardScaler().fit_transform(cancer)
    rows = []
    for name, X, n, k in (
        ("digits", digits, 900, 10),
        ("digits", digits, 60, 10),
        ("breast cancer", cancer, 300, 5),
        ("breast cancer", cancer, 20, 5),
    ):
        order = np.random.default_rng(0).permutation(len(X))
        train, test = X[order[:n]], X[order[-len(X) // 2 :]]
        for estimator in (PCA(k), FactorAnalysis(k), BayesianPPCA(k, random_state=0)):
            _, seconds = seconds_of(partial(estimator.fit, train))
            score = f"{estimator.score(test):.2f}"
            label = f"{name}, {n} x {X.shape[1]}, {k} components"
            rows.append([label, type(estimator).__name__, score, f"{seconds:.3f}"])
    columns = ["data", "estimator", "held-out log-density a row", "seconds"]
    show_table("Components; few rows is where a posterior matters", columns, rows)


def demonstrate_groups():
    """Ratings by users with tastes of their own, beside one fit and fits with users."""
    rows = []
    for n_users, n in ((50, 2000), (300, 6000)):
        X, user, y = ratings(n_users, 2 * n, seed=0)
        # The features, and behind them once more for each user.
        columns = 6 * (user[:, None] + 1) + np.arange(6)
        values = np.concatenate([X.ravel(), X.ravel()])
        columns = np.concatenate([np.tile(np.arange(6), 2 * n), columns.ravel()])
        number = np.tile(np.repeat(np.arange(2 * n), 6), 2)
        own = csr_array((values, (number, columns)), (2 * n, 6 * n_users + 6))
        for label, estimator, data, groups in (
            ("one for all", LogisticRegression(max_iter=1000), X, None),
            ("and by user, ridge", LogisticRegression(max_iter=1000), own, None),
            ("", HierarchicalSoftmaxClassifier(), X, user),
        ):
            known = {} if groups is None else {"groups": groups[:n]}
            fit, seconds = seconds_of(
                lambda e=estimator, d=data, y=y, k=known, n=n: e.fit(d[:n], y[:n], **k)
            )
            new = {} if groups is None else {"groups": groups[n:]}
            p = fit.predict_proba(data[n:], **new)
            loss = -np.mean(np.log(p[np.arange(n), y[n:]]))
            name = f"{type(fit).__name__} {label}".strip()
            rows.append(
                [f"{n_users} users, {n} rows", name, f"{loss:.4f}", f"{seconds:.2f}"]
            )
    columns = ["data", "estimator", "log-loss of new rows", "seconds"]
    show_table("Ratings from 1 to 3 by users with tastes", columns, rows)


def ratings(n_users, n, seed):
    """Draw films with genres, and ratings by users with tastes of their own."""
    rng = np.random.default_rng(seed)
    user = rng.choice(n_users, n, p=rng.dirichlet(np.ones(n_users)))
    taste = rng.normal([1.0, 0.5, 0.0, 0.0, -0.5, -1.0], 1.0, (n_users, 6))
    X = (rng.uniform(size=(n, 6)) < 0.4).astype(float)
    liking = np.sum(X * taste[user], axis=1) + rng.logistic(size=n)
    return X, user, np.digitize(liking, [-1.0, 1.0])


def demonstrate_dropout():
    """Compare with MLPClassifier: how right, and how right the probabilities are."""
    rows = []
    for name, data in (
        ("breast cancer", load_breast_cancer()),
        ("digits", load_digits()),
    ):
        X = StandardScaler().fit_transform(data.data)
        split = train_test_split(X, data.target, train_size=300, random_state=0)
        X, X_test, y, y_test = split
        for estimator in (
            MLPClassifier(random_state=0),
            GaussianDropoutClassifier(random_state=0),
            GaussianDropoutClassifier((), random_state=0),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                fit, seconds = seconds_of(partial(estimator.fit, X, y))
            p = fit.predict_proba(X_test)
            loss = -np.mean(np.log(p[np.arange(len(p)), y_test]))
            cells = [
                f"{fit.score(X_test, y_test):.3f}",
                f"{loss:.3f}",
                f"{seconds:.2f}",
            ]
            hidden = f"{type(fit).__name__} {fit.hidden_layer_sizes}"
            rows.append([name, f"{hidden} {getattr(fit, 'solver_', '')}", *cells])
    columns = ["data", "estimator", "right", "log-loss", "seconds"]
    show_table("Rows that were not seen", columns, rows)


class RobustRegression:
    """Linear regression with Student's t of 3 degrees of freedom for its noise."""

    def __init__(self, X, y):
        self.X, self.y = np.column_stack([np.ones(len(X)), X]), y
        self.n_samples, self.n_parameters = len(y), self.X.shape[1] + 1

    def log_likelihood(self, parameters, indices):
        r = self._residuals(parameters, indices)
        return -2.0 * np.log1p(r**2 / 3.0) - parameters[-1]

    def gradient(self, parameters, indices):
        r = self._residuals(parameters, indices)
        pull = 4.0 * r / (3.0 + r**2)
        by_line = self.X[indices].T @ pull / np.exp(parameters[-1])
        return np.append(by_line, (pull * r - 1.0).sum())

    def _residuals(self, parameters, indices):
        away = self.y[indices] - self.X[indices] @ parameters[:-1]
        return away / np.exp(parameters[-1])


def demonstrate_own_model():
    """Rows of diabetes, some of them spoilt: a likelihood of one's own."""
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), (y - y.mean()) / y.std()
    rows, rng = [], np.random.default_rng(0)
    for share in (0.0, 0.1):
        order = rng.permutation(len(y))
        train, test = order[:300], order[300:]
        spoilt = y[train] + 10.0 * (rng.random(300) < share) * rng.normal(size=300)
        own = VariationalInference(RobustRegression(X[train], spoilt), random_state=0)
        _, seconds = seconds_of(own.fit)
        mean = own.mean_[0] + X[test] @ own.mean_[1:-1]
        label = f"diabetes, {share:.0%} spoilt"
        fits = [("VariationalInference, Student's t", mean, seconds)]
        for peer in (BayesianRidge(), HuberRegressor(max_iter=1000)):
            _, seconds = seconds_of(partial(peer.fit, X[train], spoilt))
            fits.append((type(peer).__name__, peer.predict(X[test]), seconds))
        for name, mean, seconds in fits:
            error = f"{np.abs(y[test] - mean).mean():.3f}"
            rows.append([label, name, error, f"{seconds:.3f}"])
        show(
            f"{label}: sd of slopes {own.std_[1:-1].mean():.3f}, k {own.pareto_k_:.2f}"
        )
    columns = ["data", "estimator", "mean absolute error", "seconds"]
    show_table("Rows that were not seen", columns, rows)


DEMONSTRATIONS = {
    "BayesianGLMRegressor": demonstrate_bayesian_glm_regressor,
    "BayesianLogisticRegression": demonstrate_bayesian_logistic_regression,
    "BayesianPPCA": demonstrate_ppca,
    "BradleyTerry": demonstrate_bradley_terry,
    "TemperedLDA": demonstrate_lda,
    "FactorialMixture": demonstrate_factorial,
    "GaussianDropoutClassifier": demonstrate_dropout,
    "HierarchicalSoftmaxClassifier": demonstrate_groups,
    "SBMLogisticRegression": demonstrate_logistic_regression,
    "VRGaussianMixture": demonstrate_gaussian_mixture,
    "VRHMM": demonstrate_hidden_markov,
    "VRPLSA": demonstrate_plsa,
    "VariationalInference": demonstrate_own_model,
}


def main():
    """Demonstrate every estimator, or those that are named."""
    names = [name for name, _ in all_estimators()]
    missing = [name for name in names if name not in DEMONSTRATIONS]
    if missing:
        raise SystemExit(f"{missing[0]} has no demonstration in examples/demo.py")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="estimator", choices=[*names, []])
    OUTPUT.mkdir(exist_ok=True)
    wanted = parser.parse_args().names or names
    if len(wanted) == 1 or os.cpu_count() == 1:
        for name in wanted:
            demonstrate(name)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context, initializer=take_half) as pool:
        for text in pool.map(demonstrate_aside, wanted):
            show(text.rstrip())


def take_half():
    """Leave half of the cores to the other process."""
    half = max(1, os.cpu_count() // 2)
    numba.set_num_threads(min(half, numba.config.NUMBA_NUM_THREADS))
    threadpool_limits(half)


def demonstrate(name):
    """Demonstrate one estimator."""
    show(f"\n{name}\n{'=' * len(name)}")
    _, seconds = seconds_of(DEMONSTRATIONS[name])
    show(f"{name}: {seconds:.0f} s")


def demonstrate_aside(name):
    """Demonstrate one estimator in a process of its own; return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        demonstrate(name)
    return printed.getvalue()


if __name__ == "__main__":
    main()
