"""Logistic regression beside other packages.

All problems have C = 1 and no intercept, so that every package has one objective, which
is computed in NumPy; gaps are relative to that of a fit of tolerance 1e-14. The
simulated problems have columns whose standard deviations span 100 ("dense", "wide",
"big") or 10 ("multinomial"); peers that scale columns themselves (glum, snapml) do not
feel it.

- Time: ours is the median of fits with defaults and their own stopping rule. Peers
  are fitted at ever smaller tolerances, each time from scratch, until one reaches a gap
  of 1e-6: that fit's time counts, as if its tolerance had been known.
- Optimum: where solvers end at a tolerance of 1e-16, against newton-cholesky or, where
  its matrix would be too large, a lower bound that the gradient's norm proves.
- One pass: of "stochastic", no tuning, beside the best of ten settings of
  `SGDClassifier`.
- Passes: gaps of "stochastic" after 1 and 10 passes, columns standardised and one of
  ones beside them, over that of the best of 48 settings of averaged stochastic
  gradients.
- Stream: 1e6 rows of 100 columns in blocks of 1,000 through `partial_fit`.
"""

from itertools import product

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import scale

from benchmarks.harness import Row, allocated, fastest, group, quiet, timed
from benchmarks.peers.logistic import PEERS, averaged_sgd
from benchmarks.problems.classes import PROBLEMS, objective
from skvrem import SBMLogisticRegression

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


def ours(threads=1, **params):
    return SBMLogisticRegression(fit_intercept=False, n_jobs=threads, **params)


def load(run, name):
    """Return X, y and the optimum's objective; compiles what is timed later."""
    problem = PROBLEMS[name]()
    if run.quick and problem.X.shape[0] > 2000:
        problem = problem._replace(X=problem.X[:2000], y=problem.y[:2000])
    X, y = problem.X, problem.y
    some = slice(None, None, max(1, X.shape[0] // 2000))  # of all classes
    with quiet():
        for solver in ("auto", "stochastic"):
            ours(solver=solver, max_iter=2).fit(X[some], y[some])
        best = ours(tol=1e-14, max_iter=3000).fit(X, y).coef_
    return problem, objective(X, y, best)


def ladder(make, X, y, best, threads, ours_took):
    """Return seconds and gap of a peer's first fit within the gap, or of its last."""
    spent, found = 0.0, None
    for fit in make(X, y, threads):
        if spent > min(PATIENCE, max(2.0, FACTOR * ours_took)):
            break
        try:
            seconds, coef = timed(fit, threads)
        except Exception as error:
            return {"seconds": np.inf, "error": str(error)[:60]}
        spent += seconds
        found = {"seconds": np.inf, "gap": objective(X, y, coef) / best - 1.0}
        if found["gap"] <= GAP:
            again = timed(fit, threads)[0] if seconds < 1.0 else seconds
            return found | {"seconds": min(seconds, again)}
    return found


def least(found, prefix=""):
    """Return the name and the seconds of the fastest peer."""
    found = {k: v["seconds"] for k, v in found.items() if k.startswith(prefix)}
    name = min(found, key=found.get)
    return name, found[name]


@group(list(PROBLEMS))
def time_(run, name):
    """Seconds of a whole fit to a relative gap of 1e-6."""
    (X, y, *_), best = load(run, name)
    models = [ours(run.threads, random_state=seed) for seed in range(run.seeds)]
    times = [timed(lambda m=m: m.fit(X, y), run.threads)[0] for m in models]
    seconds = float(np.median(times))
    gap = max(objective(X, y, model.coef_) / best - 1.0 for model in models)
    passes = float(models[0].history_["passes"][-1])
    found = {
        peer: ladder(make, X, y, best, run.threads, seconds)
        for peer, make in PEERS.items()
    }
    found = {peer: result for peer, result in found.items() if result}
    twin, others = least(found, "sklearn"), least(found)
    yield Row(
        f"{name}, {X.shape[0]} x {X.shape[1]}, {len(np.unique(y))} classes",
        seconds,
        "s",
        {"best of scikit-learn": twin[1], "best of all": others[1]},
        None,
        f"gap {gap:.0e}, {passes:.1f} passes; {twin[0]}; {others[0]}",
        max(times) / min(times) - 1.0,
        numbers={"gap": gap, "passes": passes, "peers": found},
    )


def lower_bound(X, y):
    """Return what no coefficients are below, and proves a fit where peers give up.

    The objective is the penalty's |theta|^2 / 2 plus what is convex, so it is nowhere
    lower than here by more than half the square of the gradient's norm.
    """
    fit = ours(tol=1e-15, max_iter=3000)
    theta = fit.fit(X, y).coef_
    P = fit.predict_proba(X)
    residuals = P - (y[:, None] == fit.classes_)
    gradient = (X.T @ residuals[:, -len(theta) :]).T + theta
    return objective(X, y, theta) - 0.5 * float(np.square(gradient).sum())


SOLVERS = {
    "auto": {},
    "batch": {"solver": "batch"},
    "batch, lbfgs": {"solver": "batch", "acceleration": "lbfgs"},
    "svrg": {"solver": "svrg"},
    # Where bounds are loose they do not get there.
    "svrg-bound": {"solver": "svrg", "curvature": "bound"},
    "batch-bound": {"solver": "batch", "curvature": "bound"},
}


def optimum_rows(run, name, solvers, max_iter):
    (X, y, *_), _ = load(run, name)
    k = len(np.unique(y))
    # newton-cholesky's Hessian has (k d)^2 elements.
    coef, against = None, "a lower bound"
    if X.shape[1] * (k if k > 2 else 1) <= MOST_PARAMETERS:
        exact = LogisticRegression(
            solver="newton-cholesky", fit_intercept=False, tol=1e-13, max_iter=100
        )
        with quiet():
            coef, against = exact.fit(X, y).coef_, "newton-cholesky"
    best = lower_bound(X, y) if coef is None else objective(X, y, coef)
    for solver in solvers:
        model = ours(run.threads, tol=1e-16, max_iter=max_iter, **SOLVERS[solver])
        seconds, _ = timed(lambda m=model: m.fit(X, y), run.threads)
        note = f"against {against}; {model.history_['passes'][-1]:.0f} passes"
        if coef is not None:
            note += f"; coef_ differs by {abs(model.coef_ - coef).max():.0e}"
        gap = objective(X, y, model.coef_) / best - 1.0
        numbers = {"seconds": seconds}
        label = f"{name}, {solver}"
        yield Row(label, gap, "", note=note, key=solver, numbers=numbers)


@group(list(PROBLEMS))
def optimum(run, name):
    """Relative gap of solvers at a tight tolerance."""
    X = PROBLEMS[name]().X
    solvers = ["auto", "batch", "batch, lbfgs"]
    if not hasattr(X, "indptr") and X.shape[0] >= 20 * X.shape[1]:
        solvers.append("svrg")
    yield from optimum_rows(run, name, solvers, 3000)


@group(product(PROBLEMS, (100, 500)), asked=True)
def bound(run, name, max_iter):
    """Relative gap of steps by the bound alone after so many epochs."""
    solvers = ["svrg-bound", "batch-bound"]
    yield from optimum_rows(run, name, solvers, run.size(max_iter, 10))


@group(list(PROBLEMS))
def one_pass(run, name):
    """One pass of "stochastic": relative gap, share of the test rows that are wrong."""
    problem, best = load(run, name)
    X, y = problem.X, problem.y

    def judge(model):
        gap = np.nan
        if model.coef_.shape[0] == 1 or isinstance(model, SBMLogisticRegression):
            gap = objective(X, y, model.coef_) / best - 1.0
        return gap, float(np.mean(model.predict(problem.X_test) != problem.y_test))

    def fit(seed):
        params = {"solver": "stochastic", "max_iter": 1, "random_state": seed}
        seconds, model = timed(lambda: ours(run.threads, **params).fit(X, y))
        return *judge(model), seconds

    def sgd(setting):
        params = {"max_iter": 1, "tol": None, "random_state": 0, "alpha": 1 / len(y)}
        model = SGDClassifier("log_loss", fit_intercept=False, **params, **setting)
        return judge(model.fit(X, y))

    mine = np.median([fit(seed) for seed in range(run.seeds)], axis=0)
    theirs = np.array([sgd(setting) for setting in SGD]).min(axis=0)
    with quiet():
        end = judge(ours(tol=1e-10).fit(X, y))
    peer, numbers = "best of ten of SGDClassifier", {"seconds": mine[2]}
    gaps = {peer: theirs[0]} if theirs[0] > 0.0 else {}  # of two classes only
    yield Row(f"{name}, gap", mine[0], "", gaps, key="gap", numbers=numbers)
    errors = {peer: theirs[1], "at the optimum": end[1]}
    yield Row(f"{name}, test error", mine[1], "", errors, key="error")


@group(("a9a", "secstr", "mnist", "dense", "multinomial", "digits"))
def passes(run, name):
    """Relative gap of "stochastic" after 1 and 10 passes."""
    X, y, *_ = PROBLEMS[name]()
    rows = np.random.default_rng(0).permutation(len(y))[: run.size(20_000, 1000)]
    X, y = X[rows], y[rows]
    X = X.toarray() if hasattr(X, "indptr") else X
    X = np.column_stack([scale(X[:, np.ptp(X, axis=0) > 0.0]), np.ones(len(y))])
    epochs = (1, 10)
    with quiet():
        best = objective(X, y, ours(tol=1e-9, max_iter=1000).fit(X, y).coef_)
        theirs = {
            setting: [objective(X, y, coefs[e - 1]) / best - 1.0 for e in epochs]
            for setting, coefs in averaged_sgd(X, y, epochs[-1])
        }
    for number, max_iter in enumerate(epochs):
        gaps = []
        for seed in range(run.seeds):
            params = {"max_iter": max_iter, "tol": 0.0, "random_state": seed}
            model = ours(run.threads, solver="stochastic", **params)
            with quiet():
                model.fit(X, y)
            gaps.append(objective(X, y, model.coef_) / best - 1.0)
        setting = min(
            theirs, key=lambda s: np.nan_to_num(theirs[s][number], nan=np.inf)
        )
        rate, power, begin = setting
        yield Row(
            f"{name}, {max_iter} passes" if max_iter > 1 else f"{name}, 1 pass",
            float(np.median(gaps)),
            "",
            {"averaged SGD, best of 48": theirs[setting][number]},
            1.0 / 1.5,
            f"rate {rate:g}, power {power:g}, averaged from {begin:g}",
            max(gaps) / min(gaps) - 1.0,
            key=str(max_iter),
        )


@group(list(PROBLEMS))
def svrg(run, name):
    """Relative gap of "svrg" by the bound alone."""
    (X, y, *_), best = load(run, name)
    params = {"solver": "svrg", "curvature": "bound", "tol": 1e-11}
    model = ours(run.threads, max_iter=run.size(200, 10), **params)
    seconds, _ = timed(lambda: model.fit(X, y), run.threads)
    gaps = -len(y) * model.history_["objective"] / best - 1.0
    shown = " ".join(f"{gap:.0e}" for gap in gaps[:12])
    final = objective(X, y, model.coef_) / best - 1.0
    numbers = {"by epoch": gaps.tolist(), "seconds": seconds}
    yield Row(name, final, "", note=f"by epoch {shown}", numbers=numbers)


@group(product(PROBLEMS, ("auto", "curvature_rank=10", "stochastic")))
def memory(run, name, kind):
    """Peak that a fit allocates beyond X."""
    (X, y, *_), _ = load(run, name)
    params = {
        "curvature_rank=10": {"curvature_rank": 10},
        "stochastic": {"solver": "stochastic"},
    }
    model = ours(max_iter=3, **params.get(kind, {}))
    with quiet():
        step = max(1, X.shape[0] // 2_000)  # all classes, in whatever order
        model.fit(X[::step], y[::step])
    peak = allocated(lambda: model.fit(X, y))
    note = f"d x d {8e-6 * X.shape[1] ** 2:.1f} MB"
    yield Row(f"{name}, {kind}", peak, "bytes", note=note)


@group()
def stream(run):
    """Seconds of `partial_fit` over 1e6 rows of 100 columns in blocks of 1,000."""
    X, y, X_test, y_test = PROBLEMS["dense"](run.size(1_000_000, 20_000), 100, 5)
    classes, losses = np.array([0, 1]), {}
    models = {
        "ours": SBMLogisticRegression(n_jobs=1),
        "SGDClassifier": SGDClassifier("log_loss", alpha=1e-6, random_state=0),
        "averaged": SGDClassifier("log_loss", alpha=1e-6, average=True),
    }

    def stream(name):
        model = type(models[name])(**models[name].get_params())
        for start in range(0, len(y), 1000):
            rows = slice(start, start + 1000)
            model.partial_fit(X[rows], y[rows], classes=classes)
        z = model.decision_function(X_test)
        losses[name] = float(np.mean(np.logaddexp(0.0, z) - y_test * z))

    found = fastest({name: lambda name=name: stream(name) for name in models}, run)
    listed = ", ".join(f"{loss:.3f}" for loss in losses.values())
    yield found.row("SBMLogisticRegression", note=f"test log-loss {listed}")


@group(product(("iris", "wine", "breast_cancer", "digits"), (1e-4, 1e-6, 1e-8, 1e-10)))
def tolerance(run, name, tol):
    """Largest error of a coefficient by `tol`, "auto"."""
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X = scale(X)
    with quiet():
        exact = LogisticRegression(solver="newton-cg", tol=1e-14, max_iter=100_000)
        coef = exact.fit(X, y).coef_
        fit = SBMLogisticRegression(tol=tol, n_jobs=1).fit(X, y)
        twin = LogisticRegression(tol=tol, max_iter=10_000).fit(X, y)
    yield Row(
        f"{name}, tol={tol:g}",
        float(abs(fit.coef_ - coef).max()),
        "",
        {"scikit-learn lbfgs": float(abs(twin.coef_ - coef).max())},
        note=f"{fit.n_iter_[0]} epochs against {twin.n_iter_[0]}",
    )
