"""Epochs that hidden Markov models with covariates in their transitions need.

    python -m benchmarks.papers.hmm_covariates

Three states, three features, an intercept and two covariates. Counted as Sidrow et al.
(2024) do: a pass with statistics or gradient is an epoch. A row of the table is a data
set and a start; columns are passes until the norm of the gradient a row, in free
coordinates, is below 1e-2 and 1e-3, with the log-likelihood a row reached there, of

    batch, squarem, incremental   the solvers of VRHMM
    BFGS, L-BFGS-B                scipy's, by the same gradient from the same start
"""

import argparse
import warnings

import numpy as np
from scipy import optimize

from skvrem import VRHMM, schedules, solvers
from skvrem.hmm import Covariates, Gaussian
from skvrem.hmm._input import open_rows
from skvrem.hmm._start import starting_parameters
from skvrem.hmm.forward_backward._source import RowBlockSource

warnings.simplefilter("ignore")
GOALS = (1e-2, 1e-3)


def simulate(n_rows, separation, seed):
    """Draw a series; return it with a start that is far from what it was drawn from."""
    rng = np.random.default_rng(seed)
    n, d, q = 3, 3, 2
    means = separation * rng.normal(size=(n, d))
    Z = rng.normal(size=(n_rows, q))
    coefficients = np.concatenate(
        [np.full((n, n, 1), -2.5), rng.normal(size=(n, n, q))], axis=2
    )
    coefficients[range(n), range(n)] = 0.0
    logits = np.einsum(
        "ijp,tp->tij", coefficients, np.column_stack([np.ones(n_rows), Z])
    )
    edges = np.cumsum(np.exp(logits), axis=2)
    edges /= edges[:, :, -1:]
    states, u = np.zeros(n_rows, int), rng.random(n_rows)
    for t in range(1, n_rows):
        states[t] = np.searchsorted(edges[t - 1, states[t - 1]], u[t])
    X = means[states] + np.exp(-1.0) * rng.normal(size=(n_rows, d))
    return np.column_stack([X, Z])


def open_model(X, seed):
    """The model, its data and the starting point of a fit."""
    rng = np.random.default_rng(seed)
    rows = X[:, :3]
    emission = Gaussian(
        mean_init=rows.mean(axis=0) + rows.std(axis=0) * rng.normal(size=(3, 3)),
        covariance_init=np.tile(rows.var(axis=0), (3, 1)),
    )
    transitions = Covariates([3, 4], init=0.1 + 0.7 * np.eye(3))
    estimator = VRHMM(3, emission=emission, transitions=transitions, n_jobs=1)
    _, data, model = open_rows(estimator, X, fresh=True)
    start = starting_parameters(model, data, "kmeans", rng)
    return model, data, model.start(start)


class Watch:
    """Passes until each goal, and the objective there."""

    def __init__(self):
        self.found = {}

    def see(self, passes, norm, objective):
        for goal in GOALS:
            if norm < goal and goal not in self.found:
                self.found[goal] = passes, objective
        return len(self.found) == len(GOALS)


def ours(name, model, data, point, most):
    watch = Watch()

    def report(epoch, at):
        mean = model.mean(at, data)  # looks on; not counted
        norm = np.linalg.norm(model.gradient(at, mean))
        return watch.see(epoch.passes, norm, model.objective(at, mean))

    made = {
        "batch": lambda: (solvers.Batch(), data),
        "squarem": lambda: (solvers.Squarem(), data),
        "incremental": lambda: (solvers.Incremental(20, 2), RowBlockSource(data)),
    }
    solver, source = made[name]()
    solvers.run(
        model,
        solver,
        source,
        point,
        step_size=schedules.Constant(1.0),
        temperature=schedules.Constant(1.0),
        max_iter=most,
        tol=0.0,
        rng=np.random.default_rng(0),
        report=report,
    )
    return watch.found


def scipys(method, model, data, point, most):
    watch, parameters, passes = Watch(), point.parameters, [0]

    class Enough(Exception):
        pass

    def loss(vector):
        at = point._replace(parameters=model.bind(vector, parameters))
        mean = model.mean(at, data)
        gradient, value = model.gradient(at, mean), model.objective(at, mean)
        passes[0] += 1
        if watch.see(passes[0], np.linalg.norm(gradient), value) or passes[0] >= most:
            raise Enough
        return -value, -gradient

    try:
        optimize.minimize(
            loss,
            model.free(parameters),
            jac=True,
            method=method,
            options={"maxiter": most, "gtol": 1e-9},
        )
    except Enough:
        pass
    return watch.found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--most", type=int, default=200, help="passes at most")
    parser.add_argument("--starts", type=int, default=5)
    arguments = parser.parse_args()
    ratios = {name: [] for name in ("batch", "squarem", "incremental")}
    for separation in (1.0, 0.4):
        X = simulate(arguments.rows, separation, seed=0)
        for seed in range(arguments.starts):
            found = {}
            for name in ratios:
                model, data, point = open_model(X, seed)
                found[name] = ours(name, model, data, point, arguments.most)
            for method in ("BFGS", "L-BFGS-B"):
                model, data, point = open_model(X, seed)
                found[method] = scipys(method, model, data, point, arguments.most)
            print(f"separation {separation}, start {seed}")
            for name, goals in found.items():
                cells = ", ".join(
                    f"{goal:g}: {goals[goal][0]:.0f} ({goals[goal][1]:.5f})"
                    if goal in goals
                    else f"{goal:g}: not in {arguments.most}"
                    for goal in GOALS
                )
                print(f"    {name:12s} {cells}", flush=True)
            most = found["BFGS"].get(1e-3, (arguments.most,))[0]
            for name in ratios:
                own = found[name].get(1e-3, (np.inf,))[0]
                ratios[name].append(own / most)
    for name, values in ratios.items():
        print(f"{name}: {np.median(values):.2f} of BFGS's epochs to 1e-3 in the median")


if __name__ == "__main__":
    main()
