"""Skills of tennis players beside NumPyro.

169,404 matches of 5,524 players, prior N(0, 1), independent Gaussian posteriors, as in
section 7 of Wang, Geffner and Domke (2024), without the one match of a player against
himself. ELBOs are exact, by quadrature at the posterior of each side. The gap is to the
highest bound that independent Gaussians have; seconds are CPU seconds of the process,
compilation left out on both sides. The low-rank posterior's gap is negative: its bound
is higher than that of any independent Gaussians.

Steps are by minibatches of a user's own model of these matches (svrg with Taylor's
control variate of means and scales, batches of 100), the anchor's pass over the rows
included: with `support` and without, and of 10,000 matches of 100,000 players.
"""

import time
from functools import lru_cache, partial

import numpy as np

from benchmarks.harness import Row, fastest, group, timed
from benchmarks.harness.data import read
from benchmarks.peers import numpyro as peer
from skvrem import BradleyTerry, schedules, solvers
from skvrem.solvers._protocols import Anchor
from skvrem.vi.blackbox._model import DrawnModel
from skvrem.vi.blackbox._model_density import Target
from skvrem.vi.blackbox._model_steps import TargetSteps
from skvrem.vi.bradley_terry._input import aggregate
from skvrem.vi.bradley_terry._model import SkillModel
from skvrem.vi.gaussian._model import Diagonal, Point
from skvrem.vi.gaussian._model_posterior import MeanField

GAPS = (1000.0, 100.0, 1.0, 0.1)


@lru_cache(maxsize=1)
def tennis(quick):
    """Return winners and losers, and the highest bound of independent Gaussians."""
    file = read("tennis_jointcv")
    X = np.stack([file["winner"], file["loser"]], axis=1).astype(np.int64)
    X = X[X[:, 0] != X[:, 1]][: 5000 if quick else None]
    _, X = np.unique(X, return_inverse=True)
    X = X.reshape(-1, 2)
    return X, BradleyTerry(1.0, posterior="meanfield", tol=1e-10).fit(X).elbo_


def judge(X):
    """Return the exact bound of independent Gaussians as a function."""
    ones = np.ones(len(X))
    pairs = aggregate(X, np.empty(0), ones, ones, False)
    n = int(X.max()) + 1
    model = SkillModel(pairs, MeanField(np.zeros(n), np.ones(n)), "meanfield")

    def bound(mean, scale):
        q = MeanField(mean, scale)
        at = pairs.predictor(q.mean), pairs.variance(q)
        return model.expectation(*at, 0.0).objective - q.kl(model.prior)

    return bound


def gap_row(label, seconds, trace, best, note, noise=0.0):
    """Return the row of a fit: its seconds, and those to each gap."""
    first = {
        gap: next((t for t, bound in trace if best - bound <= gap), np.inf)
        for gap in GAPS
    }
    listed = ", ".join(f"{gap:g}: {t:.3f} s" for gap, t in first.items() if t < np.inf)
    least = best - max(bound for _, bound in trace)
    note = f"to gaps {listed or 'none'}; least gap {least:.3g}; {note}"
    numbers = {"to gaps": {str(gap): t for gap, t in first.items()}, "gap": least}
    return Row(label, seconds, "s", note=note, noise=noise, numbers=numbers)


@group(["meanfield", "lowrank"])
def fit(run, posterior):
    """Seconds of a fit of ours, 169,404 matches of 5,524 players, one thread."""
    X, best = tennis(run.quick)
    model = BradleyTerry(1.0, posterior=posterior, n_jobs=1)
    found = fastest({"ours": partial(model.fit, X)}, run)
    seconds, history = found.seconds["ours"], model.history_
    # Of the wall clock: the input, which comes first, included.
    share = history["seconds"] / history["seconds"][-1]
    trace = list(zip(share * seconds, history["objective"], strict=True))
    note = f"{model.n_iter_} steps, ELBO {model.elbo_:.3f}"
    yield gap_row(posterior, seconds, trace, best, note, found.noise)


@group(
    {
        "batches-of-100-0.01": (0.01, 100, 10_000, 100),
        "batches-of-100-0.005": (0.005, 100, 10_000, 100),
        "all-rows-0.05": (0.05, None, 400, 10),
        "all-rows-0.02": (0.02, None, 400, 10),
    }
)
def numpyro(run, size, batch_size, n_steps, every):
    """Seconds of NumPyro's AutoNormal with Adam, the same matches."""
    X, best = tennis(run.quick)
    model, bound = peer.matches(X, batch_size or len(X)), judge(X)
    n_steps = run.size(n_steps, 2 * every)
    steps = peer.steps(model, size, n_steps, every, time.process_time)
    trace = [(seconds, bound(mean, scale)) for _, seconds, mean, scale in steps]
    rows = f"batches of {batch_size}" if batch_size else "all rows"
    yield gap_row(f"{rows}, Adam {size}", trace[-1][0], trace, best, f"{n_steps} steps")


@group()
def full(run):
    """ELBO of all posteriors of ours."""
    X, best = tennis(run.quick)
    for posterior in ("lowrank", "fullrank"):
        model = BradleyTerry(1.0, posterior=posterior, n_jobs=1)
        seconds, _ = timed(partial(model.fit, X))
        peers, numbers = {"independent Gaussians": best}, {"seconds": seconds}
        yield Row(posterior, model.elbo_, "nats", peers, key=posterior, numbers=numbers)


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


@group(["tennis", "many-players"])
def steps(run, name):
    """Seconds a step of a user's own model of matches, batches of 100."""
    X = tennis(run.quick)[0]
    if name == "many-players":
        rng = np.random.default_rng(0)
        X = rng.choice(100_000, (10_000, 2), replace=False)
    n = int(X.max()) + 1
    prior = MeanField(np.zeros(n), np.ones(n))
    q = Diagonal(np.zeros((n, 1)), np.full((n, 1), -1.0), np.zeros((n, 1, 0)))
    n_steps = set()

    def epoch(kind):
        target = Target(kind(X), np.arange(len(X)))
        drawn = DrawnModel(target, prior, "diagonal", np.zeros((1, n)))
        made = TargetSteps(drawn, "svrg", "taylor", True, "natural", 100)
        solver, rng = solvers.Sweeps("svrg"), np.random.default_rng(0)
        solver.start(made, target, rng)
        begin = Anchor(None, np.nan, 0.0, Point(q))
        solver.sweep(begin, schedules.Constant(1e-3), rng)
        n_steps.add(made.n_batches)

    kinds = {
        "support": SupportedSkills,
        "no support": Skills,
        "derivatives by it as well": ShortSkills,
    }
    found = fastest({key: partial(epoch, kind) for key, kind in kinds.items()}, run)
    for key in found.seconds:
        found.seconds[key] /= max(n_steps)
    yield found.row(f"{n} players, {len(X)} matches")
