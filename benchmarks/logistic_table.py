"""Print the table of SBMLogisticRegression beside other packages.

    python benchmarks/logistic_table.py
    python benchmarks/logistic_table.py --rows time --problems dense a9a --threads 2

Both sides of a ratio come from one run. See ``benchmarks/README.md``.
"""

import argparse
import json
import os
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import scale
from threadpoolctl import threadpool_limits

from skvrem import SBMLogisticRegression

sys.path.insert(0, str(Path(__file__).parent / "logistic_regression"))
from benchmark_utils.peers import PEERS
from benchmark_utils.problems import PROBLEMS, Unavailable, objective

GAP = 1e-6
MOST_PARAMETERS = 2000
# No rung of a peer's ladder starts after so many seconds, nor after so many times ours.
PATIENCE, FACTOR = 60.0, 40.0
# SGDClassifier's ten settings: schedules and starting rates.
SGD = [
    {},
    {"average": True},
    *({"learning_rate": "adaptive", "eta0": e} for e in (0.001, 0.01, 0.1, 1.0)),
    *({"learning_rate": "invscaling", "eta0": e} for e in (0.01, 0.1, 1.0, 10.0)),
]


# CPU seconds with one thread, which a busy machine falsifies least; else wall-clock.
clock = time.process_time


def timed(function):
    began = clock()
    result = function()
    return clock() - began, result


def reference(X, y):
    """Return the optimum's objective: two of ours at a tolerance that is far below."""
    fit = SBMLogisticRegression(fit_intercept=False, tol=1e-14, max_iter=3000)
    return objective(X, y, fit.fit(X, y).coef_)


def ours(threads, **params):
    return SBMLogisticRegression(fit_intercept=False, n_jobs=threads, **params)


def time_rows(name, problem, settings):
    """Seconds of whole fits to a relative gap of 1e-6, for "auto" and for peers."""
    X, y = problem.X, problem.y
    best = reference(X, y)

    def gap(coef):
        return objective(X, y, coef) / best - 1.0

    fits = []
    for seed in range(settings.repeats):
        model = ours(settings.threads, random_state=seed)
        fits.append((*timed(lambda model=model: model.fit(X, y)),))
    seconds = float(np.median([t for t, _ in fits]))
    worst = max(gap(model.coef_) for _, model in fits)
    passes = fits[0][1].history_["passes"][-1]
    yield {"solver": "skvrem auto", "seconds": seconds, "gap": worst, "passes": passes}
    for peer, make in PEERS.items():
        if settings.peers and peer not in settings.peers:
            continue
        spent, row = 0.0, None
        for rung, fit in enumerate(make(X, y, settings.threads)):
            if spent > min(PATIENCE, max(2.0, FACTOR * seconds)):
                break
            try:
                taken, coef = timed(fit)
            except Exception as error:
                row = {"solver": peer, "seconds": np.nan, "error": str(error)[:60]}
                break
            spent += taken
            row = {"solver": peer, "seconds": taken, "gap": gap(coef), "rung": rung}
            if row["gap"] <= GAP:
                again = timed(fit)[0] if taken < 1.0 else taken
                row["seconds"] = min(taken, again)
                break
        if row is not None:
            yield row


def lower_bound(X, y):
    """Return what no coefficients are below, and proves a fit where peers give up.

    The objective is the penalty's |theta|^2 / 2 plus what is convex, so it is nowhere
    lower than here by more than half the square of the gradient's norm.
    """
    fit = SBMLogisticRegression(fit_intercept=False, tol=1e-15, max_iter=3000)
    theta = fit.fit(X, y).coef_
    P = fit.predict_proba(X)
    residuals = P - (y[:, None] == fit.classes_)
    gradient = (X.T @ residuals[:, -len(theta) :]).T + theta
    return objective(X, y, theta) - 0.5 * float(np.square(gradient).sum())


def optimum_rows(name, problem, settings):
    """Where solvers end at tight tolerances, against newton-cholesky's end."""
    X, y = problem.X, problem.y
    k = len(np.unique(y))
    # Its Hessian has (k d)^2 elements.
    n_parameters = X.shape[1] * (k if k > 2 else 1)
    if n_parameters > MOST_PARAMETERS:
        best, name, coef = lower_bound(X, y), "a lower bound", None
    else:
        exact = LogisticRegression(
            solver="newton-cholesky", fit_intercept=False, tol=1e-13, max_iter=100
        )
        coef = exact.fit(X, y).coef_
        best, name = objective(X, y, coef), "newton-cholesky"
    fits = {"auto": {}, "batch": {"solver": "batch"}}
    fits["batch, lbfgs"] = {"solver": "batch", "acceleration": "lbfgs"}
    if not hasattr(X, "indptr") and len(y) >= 20 * X.shape[1]:
        fits["svrg"] = {"solver": "svrg"}
    for solver in ("batch", "svrg"):
        # Where bounds are loose they do not get there: if they are asked for.
        if f"{solver}-bound" in (settings.solvers or ()):
            fits[f"{solver}-bound"] = {"solver": solver, "curvature": "bound"}
    for solver, params in fits.items():
        if settings.solvers and solver not in settings.solvers:
            continue
        model = ours(settings.threads, tol=1e-16, max_iter=settings.max_iter, **params)
        seconds, _ = timed(lambda model=model: model.fit(X, y))
        gap = objective(X, y, model.coef_) / best - 1.0
        row = {"solver": solver, "gap": gap, "against": name, "seconds": seconds}
        row["passes"] = float(model.history_["passes"][-1])
        if coef is not None:
            row["largest difference of coef_"] = float(abs(model.coef_ - coef).max())
        yield row


def one_pass_rows(name, problem, settings):
    """Gap and test error after one pass of "stochastic", beside SGDClassifier's."""
    X, y = problem.X, problem.y
    best = reference(X, y)

    def error(model):
        return float(np.mean(model.predict(problem.X_test) != problem.y_test))

    optimum = ours(None, tol=1e-10).fit(X, y)
    yield {"solver": "optimum", "gap": 0.0, "test error": error(optimum)}
    for seed in range(settings.repeats):
        model = ours(settings.threads, solver="stochastic", max_iter=1)
        seconds, _ = timed(
            lambda m=model, s=seed: m.set_params(random_state=s).fit(X, y)
        )
        value = objective(X, y, model.coef_) / best - 1.0
        row = {
            "solver": "stochastic, one pass",
            "gap": value,
            "test error": error(model),
        }
        yield row | {"seconds": seconds}
    alpha = 1.0 / X.shape[0]
    errors, gaps = [], []
    for setting in SGD:
        model = SGDClassifier(
            "log_loss",
            alpha=alpha,
            fit_intercept=False,
            max_iter=1,
            tol=None,
            random_state=0,
            **setting,
        ).fit(X, y)
        errors.append(error(model))
        if model.coef_.shape[0] == 1:
            gaps.append(objective(X, y, model.coef_) / best - 1.0)
    yield {
        "solver": "SGDClassifier, best of ten, one pass",
        "gap": min(gaps, default=np.nan),
        "test error": min(errors),
    }


def svrg_rows(name, problem, settings):
    """Gap by epoch of "svrg", of the bound alone."""
    X, y = problem.X, problem.y
    best = reference(X, y)
    params = {"solver": "svrg", "curvature": "bound", "tol": 1e-11, "max_iter": 200}
    model = ours(settings.threads, **params)
    seconds, _ = timed(lambda: model.fit(X, y))
    gaps = -len(y) * model.history_["objective"] / best - 1.0
    final = objective(X, y, model.coef_) / best - 1.0
    shown = " ".join(f"{g:.0e}" for g in gaps[:12])
    yield {"solver": "svrg", "seconds": seconds, "gap": final, "by epoch": shown}


def memory_rows(name, problem, settings):
    """Peak of memory that a fit allocates beyond X, and that of d x d float64."""
    X, y = problem.X, problem.y
    for solver, params in {
        "auto": {},
        "curvature_rank=10": {"curvature_rank": 10},
        "stochastic": {"solver": "stochastic"},
    }.items():
        model = ours(1, max_iter=3, **params)
        model.fit(X[:2000], y[:2000])
        tracemalloc.start()
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        square = 8 * X.shape[1] ** 2
        yield {"solver": solver, "MB": peak / 1e6, "d^2 MB": square / 1e6}


def stream_rows(settings):
    """Throughput of partial_fit on 1e6 rows of 100 columns in blocks of 1,000."""
    problem = PROBLEMS["dense"](1_000_000, 100, 5)
    X, y, classes = problem.X, problem.y, np.array([0, 1])
    models = {
        "SBMLogisticRegression": SBMLogisticRegression(n_jobs=1),
        "SGDClassifier": SGDClassifier("log_loss", alpha=1e-6, random_state=0),
        "SGDClassifier, averaged": SGDClassifier("log_loss", alpha=1e-6, average=True),
    }
    for name, model in models.items():
        model.partial_fit(X[:1000], y[:1000], classes=classes)  # compiles
        model = type(model)(**model.get_params())

        def stream(model=model):
            for start in range(0, len(y), 1000):
                rows = slice(start, start + 1000)
                model.partial_fit(X[rows], y[rows], classes=classes)

        seconds, _ = timed(stream)
        z = model.decision_function(problem.X_test)
        loss = float(np.mean(np.logaddexp(0.0, z) - problem.y_test * z))
        yield {"solver": name, "seconds": seconds, "test log-loss": loss}


def tolerance_rows(settings):
    """Largest error of a coefficient by `tol`: "auto", and scikit-learn's "lbfgs"."""
    for load in (load_iris, load_wine, load_breast_cancer, load_digits):
        X, y = load(return_X_y=True)
        X = scale(X)
        exact = LogisticRegression(solver="newton-cg", tol=1e-14, max_iter=100_000)
        coef = exact.fit(X, y).coef_
        for tol in (1e-4, 1e-6, 1e-8, 1e-10):
            fit = SBMLogisticRegression(tol=tol, n_jobs=settings.threads).fit(X, y)
            twin = LogisticRegression(tol=tol, max_iter=10_000).fit(X, y)
            yield {
                "solver": load.__name__.removeprefix("load_"),
                "tol": tol,
                "auto": float(abs(fit.coef_ - coef).max()),
                "epochs": float(fit.n_iter_[0]),
                "lbfgs": float(abs(twin.coef_ - coef).max()),
                "its epochs": float(twin.n_iter_[0]),
            }


GROUPS = {
    "time": time_rows,
    "optimum": optimum_rows,
    "one-pass": one_pass_rows,
    "svrg": svrg_rows,
    "memory": memory_rows,
}


def show(row):
    cells = [
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
        if key not in ("group", "problem", "solver")
    ]
    return f"{row['group']:9} {row['problem']:12} {row['solver']:28} " + ", ".join(
        cells
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*GROUPS, "stream", "tolerance"]
    parser.add_argument("--rows", nargs="+", choices=names, default=names)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--peers", nargs="+", help="only these")
    parser.add_argument("--solvers", nargs="+", help="only these, in 'optimum'")
    parser.add_argument("--max-iter", type=int, default=3000, help="of 'optimum'")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    settings = parser.parse_args()
    warnings.simplefilter("ignore")
    global clock
    clock = time.process_time if settings.threads == 1 else time.perf_counter
    rows = []

    def keep(group, problem, found):
        for row in found:
            rows.append({"group": group, "problem": problem, **row})
            print(show(rows[-1]), flush=True)
            if settings.json:
                Path(settings.json).write_text(json.dumps(rows, indent=1))

    print(f"threads {settings.threads}, load {os.getloadavg()[0]:.2f}", flush=True)
    with threadpool_limits(settings.threads):
        small = PROBLEMS["digits"]()
        for solver in ("auto", "batch", "stochastic", "svrg"):
            ours(1, solver=solver, max_iter=2).fit(small.X, small.y)  # compiles
            ours(1, solver=solver, max_iter=2).fit(small.X, small.y > 4)
        LogisticRegression().fit(small.X[:50], small.y[:50])
        groups = [group for group in settings.rows if group in GROUPS]
        for name in settings.problems if groups else ():
            try:
                problem = PROBLEMS[name]()
            except Unavailable as error:
                print(f"{name}: left out, {error}")
                continue
            for group in groups:
                keep(group, name, GROUPS[group](name, problem, settings))
        if "stream" in settings.rows:
            keep("stream", "1e6 x 100", stream_rows(settings))
        if "tolerance" in settings.rows:
            keep("tolerance", "bundled", tolerance_rows(settings))


if __name__ == "__main__":
    main()
