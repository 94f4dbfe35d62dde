"""Skills from tennis matches beside NumPyro: python benchmarks/vi_pairs.py.

169,404 matches of 5,524 players, prior N(0, 1), independent Gaussian posteriors, as in
section 7 of Wang, Geffner and Domke (2024), without the one match of a player against
himself. ELBOs are exact, by quadrature at the posterior of each side. The gap is to the
highest bound that independent Gaussians have; seconds are CPU seconds of the process,
compilation left out on both sides. Without the file the row is left out.

``--rows steps`` is instead what a step by a minibatch of a user's own model of these
matches costs, with `support` and without, and of 10,000 matches of 100,000 players.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np

from skvrem import BradleyTerry, schedules, solvers
from skvrem.solvers._protocols import Anchor
from skvrem.vi.blackbox._model import DrawnModel
from skvrem.vi.blackbox._model_density import Target
from skvrem.vi.blackbox._model_steps import TargetSteps
from skvrem.vi.bradley_terry._input import aggregate
from skvrem.vi.bradley_terry._model import SkillModel
from skvrem.vi.gaussian._model import Diagonal, Point
from skvrem.vi.gaussian._model_posterior import MeanField

GAPS = (1000.0, 100.0, 10.0, 1.0, 0.1)


def tennis():
    """Return winners and losers, or None."""
    path = Path(os.environ.get("SKVREM_DATA", "")) / "tennis_jointcv.npz"
    if not path.exists():
        return None
    with np.load(path) as file:
        X = np.stack([file["winner"], file["loser"]], axis=1).astype(np.int64)
    return X[X[:, 0] != X[:, 1]]


class Judge:
    """Exact bounds of independent Gaussians over the players."""

    def __init__(self, X):
        ones = np.ones(len(X))
        self.matches = aggregate(X, ones, ones, False, False)
        n = int(X.max()) + 1
        prior = MeanField(np.zeros(n), np.ones(n))
        self.model = SkillModel(self.matches, prior, "meanfield")

    def bound(self, mean, scale):
        q = MeanField(mean, scale)
        found = self.model.expectation(
            self.matches.predictor(q.mean), self.matches.variance(q), 0.0
        )
        return found.objective - q.kl(self.model.prior)


def first_times(trace, best):
    """Return the seconds at which each gap was first reached."""
    return {
        gap: next((t for t, bound in trace if best - bound <= gap), None)
        for gap in GAPS
    }


def ours(X, posterior, repeats):
    """Return the fit, its CPU seconds, and its (share of the seconds, bound) trace."""
    BradleyTerry(posterior=posterior, n_jobs=1).fit(X)  # compiles or loads
    seconds = np.inf
    for _ in range(repeats):
        began = time.process_time()
        model = BradleyTerry(posterior=posterior, n_jobs=1).fit(X)
        seconds = min(seconds, time.process_time() - began)
    # Of the wall clock: the input, which comes first, included.
    share = model.history_["seconds"] / model.history_["seconds"][-1]
    trace = zip(share * seconds, model.history_["objective"], strict=True)
    return model, seconds, list(trace)


def numpyro_trace(X, judge, step_size, batch_size, n_steps, every):
    """Return (CPU seconds, bound) of AutoNormal with Adam, and seconds of compiling."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    n, n_players = len(X), int(X.max()) + 1
    winner, loser = (jax.numpy.asarray(c.astype(np.int32)) for c in X.T)

    def model():
        theta = numpyro.sample("theta", dist.Normal(0, 1).expand([n_players]))
        with numpyro.plate("matches", n, subsample_size=batch_size) as rows:
            logits = theta[winner[rows]] - theta[loser[rows]]
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=np.ones(len(rows)))

    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(step_size), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(0))

    @jax.jit
    def steps(state):
        return jax.lax.fori_loop(0, every, lambda _, s: svi.update(s)[0], state)

    began = time.process_time()
    jax.block_until_ready(steps(state))
    compiling = time.process_time() - began
    seconds, trace = 0.0, []
    for _ in range(n_steps // every):
        began = time.process_time()
        state = jax.block_until_ready(steps(state))
        seconds += time.process_time() - began
        params = svi.get_params(state)
        mean = np.asarray(params["theta_auto_loc"], float)
        scale = np.asarray(params["theta_auto_scale"], float)
        trace.append((seconds, judge.bound(mean, scale)))
    return trace, compiling


class Skills:
    """The matches as a model of a user's own; the first of a pair won."""

    def __init__(self, X):
        self.X = X
        self.n_samples, self.n_parameters = len(X), int(X.max()) + 1

    def shares(self, z, rows):
        won, lost = self.X[rows].T
        return 1.0 / (1.0 + np.exp(z[won] - z[lost]))

    def log_likelihood(self, z, rows):
        return np.log1p(-self.shares(z, rows))

    def gradient(self, z, rows):
        p = self.shares(z, rows)
        return self.gather(rows, p, -p)

    def hessian_vector_product(self, z, v, rows):
        won, lost = self.X[rows].T
        p = self.shares(z, rows)
        pull = p * (1.0 - p) * (v[won] - v[lost])
        return self.gather(rows, -pull, pull)

    def hessian_diagonal(self, z, rows):
        p = self.shares(z, rows)
        return self.gather(rows, -p * (1.0 - p), -p * (1.0 - p))

    def gather(self, rows, by_won, by_lost):
        won, lost = self.X[rows].T
        n = self.n_parameters
        return np.bincount(won, by_won, n) + np.bincount(lost, by_lost, n)


class SupportedSkills(Skills):
    """With derivatives by all players."""

    def support(self, rows):
        return np.unique(self.X[rows])


class ShortSkills(SupportedSkills):
    """With derivatives by those of the batch."""

    def gather(self, rows, by_won, by_lost):
        support, place = np.unique(self.X[rows], return_inverse=True)
        won, lost = place.reshape(-1, 2).T
        n = support.size
        return np.bincount(won, by_won, n) + np.bincount(lost, by_lost, n)


def steps_row(label, X, repeats):
    """Show CPU seconds a step of svrg, the anchor's pass over the rows included."""
    models = {
        "without support": Skills(X),
        "with it": SupportedSkills(X),
        "with it, derivatives by it": ShortSkills(X),
    }
    seconds = dict.fromkeys(models, np.inf)
    n = int(X.max()) + 1
    prior = MeanField(np.zeros(n), np.ones(n))
    q = Diagonal(np.zeros((n, 1)), np.full((n, 1), -1.0), np.zeros((n, 1, 0)))
    for _ in range(repeats):
        for name, model in models.items():
            target = Target(model, np.arange(len(X)))
            drawn = DrawnModel(target, prior, "diagonal", np.zeros((1, n)))
            steps = TargetSteps(drawn, "svrg", "taylor", True, "natural", 100)
            began = time.process_time()
            solver, rng = solvers.Sweeps("svrg"), np.random.default_rng(0)
            solver.start(steps, target, rng)
            begin = Anchor(None, np.nan, 0.0, Point(q))
            solver.sweep(begin, schedules.Constant(1e-3), rng)
            took = (time.process_time() - began) / steps.n_batches
            seconds[name] = min(seconds[name], took)
    first = next(iter(seconds.values()))
    cells = [f"{k} {1e6 * s:.0f} us ({first / s:.1f}x)" for k, s in seconds.items()]
    print(f"{label}: {', '.join(cells)}", flush=True)


def show(label, times, best_gap, more=""):
    cells = [
        f"gap {gap:g}: {'not reached' if t is None else f'{t:.3f} s'}"
        for gap, t in times.items()
    ]
    print(f"{label}: {', '.join(cells)}; last gap {best_gap:.3g}{more}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10_000, help="of minibatches")
    parser.add_argument("--full-steps", type=int, default=400, help="of full passes")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--rows", choices=("fits", "steps"), default="fits")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X = tennis()
    if X is None:
        print("tennis_jointcv.npz is not in SKVREM_DATA: left out")
        return
    if options.rows == "steps":
        steps_row(f"{X.max() + 1} players", X, options.repeats)
        rng = np.random.default_rng(0)
        many = rng.choice(100_000, (10_000, 2), replace=False)
        steps_row(f"{many.max() + 1} players", many, options.repeats)
        return
    judge = Judge(X)
    print(f"{len(X)} matches, load average {os.getloadavg()[0]:.1f}")
    reference = BradleyTerry(posterior="meanfield", tol=1e-10).fit(X)
    best = reference.elbo_
    print(f"highest bound of independent Gaussians: {best:.4f}")
    for posterior in ("meanfield", "lowrank"):
        model, seconds, trace = ours(X, posterior, options.repeats)
        more = f", fit {seconds:.3f} s, {model.n_iter_} steps, ELBO {model.elbo_:.3f}"
        times = first_times(trace, best)
        show(f"BradleyTerry, {posterior}", times, best - model.elbo_, more)
    if options.no_peers:
        return
    settings = [
        (0.01, 100, options.steps, 100),
        (0.005, 100, options.steps, 100),
        (0.05, None, options.full_steps, 10),
        (0.02, None, options.full_steps, 10),
    ]
    for step_size, batch_size, n_steps, every in settings:
        trace, compiling = numpyro_trace(
            X, judge, step_size, batch_size or len(X), n_steps, every
        )
        gap = best - max(bound for _, bound in trace)
        rows = f"batches of {batch_size}" if batch_size else "full batch"
        more = f", {n_steps} steps in {trace[-1][0]:.2f} s, compiling {compiling:.1f} s"
        label = f"NumPyro, {rows}, Adam {step_size}"
        show(label, first_times(trace, best), gap, more)


if __name__ == "__main__":
    main()
