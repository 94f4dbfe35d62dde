r"""Figure 1 of Chen, Zhu, Teh, Zhang (2018): sEM-vr on a mixture with one unknown.

    python -m benchmarks.papers.sem_vr_toy

10,000 draws of 0.2 N(mu, 1) + 0.8 N(-mu, 1) with mu = 0.5, only mu to be found. With
responsibilities g1, g2 the statistics are s = (sum x g1, sum x g2, sum g1, sum g2) / N
and the M step is R(s) = (s1 - s2) / (s3 + s4) (the paper's text lost the signs).

Single rows are minibatches, and a step of the package costs some 30 microseconds in
Python, so the figure's many runs are made by a compiled sweep. That the sweep is what
the package does is checked first: SVRG, Stochastic and Batch of `skvrem.solvers`, run
by `skvrem.solvers.run` on a model of a few lines, pass through the same points.

The paper draws rows with replacement, and so does the figure. The package visits its
fixed minibatches in a new random order every epoch, which is kinder to sEM: the second
table shows it.
"""

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

from skvrem import schedules, solvers
from skvrem.data import as_source
from skvrem.utils._averaging import Averaging, AveragingPoint

WEIGHTS = np.array([0.2, 0.8])
TRUE_MU, START_MU, N_ROWS = 0.5, 1.0, 10_000
RATES = (0.001, 0.003, 0.01, 0.03)
# Points of an epoch at which a run is looked at, so that the staircase shows.
LOOKS = 20
# Squares below the rounding of mu are zero or not by chance.
FLOOR = 1e-32
BEM, SEM = "bEM", "sEM 3/(t+10)"


def name_of(rate):
    return f"sEM-vr ρ={rate:g}"


# The model, as the package wants it


class Statistics(NamedTuple):
    """Sums over rows: x g1, x g2, g1, g2, and the log-likelihood."""

    x1: np.ndarray
    x2: np.ndarray
    g1: np.ndarray
    g2: np.ndarray
    objective: np.ndarray


class TwoNormals(Averaging):
    """0.2 N(mu, 1) + 0.8 N(-mu, 1)."""

    def __init__(self):
        self.visited = []

    def statistics(self, point, batch, beta):
        """Return the sums of a batch."""
        mu = point.parameters
        self.visited.append((batch.block, mu))
        x = batch.rows[batch.ids, 0]
        g1 = responsibility(x, mu)
        g2 = 1.0 - g1
        parts = WEIGHTS[0] * normal(x - mu) + WEIGHTS[1] * normal(x + mu)
        sums = x @ g1, x @ g2, g1.sum(), g2.sum(), np.log(parts).sum()
        return Statistics(*map(np.asarray, sums))

    def maximize(self, statistics, point, repair):
        """Return R(s); every s is feasible."""
        s1, s2, s3, s4, _ = statistics
        return float((s1 - s2) / (s3 + s4)), ()

    @staticmethod
    def start(mu):
        """Return the point whose statistics give mu."""
        a, b = WEIGHTS
        statistics = Statistics(*map(np.asarray, (a * mu, -b * mu, a, b, 0.0)))
        return AveragingPoint(mu, statistics)


def normal(z):
    """Density of the standard normal."""
    return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


@numba.vectorize
def responsibility(x, mu):
    """Probability of the first component, of log odds log(0.2 / 0.8) + 2 mu x."""
    return 1.0 / (1.0 + 4.0 * math.exp(-2.0 * mu * x))


# The same, compiled: g1 + g2 = 1, so that s3 + s4 = 1 and mu = s1 - s2 itself moves


@numba.njit
def share(x, mu):
    """What a row adds to s1 - s2: x (g1 - g2)."""
    return x * (2.0 * responsibility(x, mu) - 1.0)


@numba.njit
def mean_share(x, mu):
    """F(mu), so that mu <- F(mu) is batch EM; summed with error compensation."""
    total, lost = 0.0, 0.0
    for i in range(len(x)):
        term = share(x[i], mu) - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total / len(x)


@numba.njit
def sweep_vr(x, order, mu, rate, every):
    """One epoch of sEM-vr (Eq. 5); returns mu, the anchor and mu at the looks."""
    anchor = mu
    full = mean_share(x, anchor)
    looks = np.empty(len(order) // every)
    for t in range(len(order)):
        if t % every == 0:
            looks[t // every] = mu
        row = x[order[t]]
        mu += rate * (share(row, mu) - share(row, anchor) + full - mu)
    return mu, anchor, looks


@numba.njit
def sweep_stochastic(x, order, mu, t0, every):
    """One epoch of sEM (Eq. 4) with rho_t = min(1, 3 / (t + 10))."""
    looks = np.empty(len(order) // every)
    for t in range(len(order)):
        if t % every == 0:
            looks[t // every] = mu
        rate = min(1.0, 3.0 / (t0 + t + 10.0))
        mu += rate * (share(x[order[t]], mu) - mu)
    return mu, looks


@numba.njit
def variance(x, mu, anchor, reduced):
    """Var_t[mu_{t+1}] / rho_t^2 over the row drawn next, by a pass over all rows."""
    first, second = 0.0, 0.0
    for i in range(len(x)):
        value = share(x[i], mu)
        if reduced:
            value -= share(x[i], anchor)
        first += value
        second += value * value
    return max(0.0, second / len(x) - (first / len(x)) ** 2)


def draw(n_rows):
    """Draw the data."""
    rng = np.random.default_rng(0)
    signs = np.where(rng.random(n_rows) < WEIGHTS[0], 1.0, -1.0)
    return signs * TRUE_MU + rng.standard_normal(n_rows)


def maximum_likelihood(x):
    """Return the MLE, to which batch EM converges to double precision."""
    mu = START_MU
    for _ in range(1000):
        mu, before = mean_share(x, mu), mu
        if mu == before:
            break
    return mu


def check_against_package(x, n_epochs):
    """Compare the compiled sweeps with the solvers of the package, point by point."""
    data = as_source(np.ascontiguousarray(x[:, None]))
    n = len(x)
    worst = {}
    for name, solver, schedule in (
        ("batch", solvers.Batch(), schedules.Constant(1.0)),
        ("svrg", solvers.SVRG(n), schedules.Constant(0.003)),
        ("stochastic", solvers.Stochastic(n), schedules.Power(3.0, 10.0, 1.0)),
    ):
        model = TwoNormals()
        solvers.run(
            model,
            solver,
            data,
            model.start(START_MU),
            step_size=schedule,
            temperature=schedules.Constant(1.0),
            # The epoch at which it stops makes no visits.
            max_iter=n_epochs + (name != "stochastic"),
            tol=0.0,
            rng=np.random.default_rng(0),
        )
        if name == "batch":
            visits = model.visited[:: len(data.chunks())]
            theirs = [mu for _, mu in visits]
            mine = [START_MU]
            for _ in theirs[1:]:
                mine.append(mean_share(x, mine[-1]))
        else:
            batches = solver.partition.batches
            rows = np.array([int(batch.ids[0]) for batch in batches])
            theirs, mine, mu = [], [], START_MU
            visits = list(_visits(model.visited, name, n))
            for epoch in range(n_epochs):
                part = visits[n * epoch : n * (epoch + 1)]
                order = rows[[block for block, _ in part]]
                theirs += [at for _, at in part]
                if name == "svrg":
                    mu, _, looks = sweep_vr(x, order, mu, 0.003, 1)
                else:
                    mu, looks = sweep_stochastic(x, order, mu, n * epoch, 1)
                mine += looks.tolist()
        worst[name] = float(np.abs(np.subtract(mine, theirs)).max())
    return worst


def _visits(visited, name, n):
    """Yield block and mu of the evaluations that were steps.

    svrg evaluates every row at the anchor first, then each visit twice: at the
    current point, and at the anchor again (`recall`). Both end with one full pass,
    of svrg an anchor.
    """
    if name == "stochastic":
        yield from visited[: len(visited) // n * n]
        return
    for start in range(0, len(visited) - 3 * n + 1, 3 * n):
        yield from visited[start + n : start + 3 * n : 2]


def simulate(x, mle, n_epochs, n_seeds, replace=True, rates=RATES):
    """Return squared errors and variances: name -> array (seeds, looks).

    Rows are drawn with replacement, or else visited in a new order every epoch.
    """
    n = len(x)
    every = n // LOOKS
    errors, variances = {}, {}

    def look(name, seed, mus, anchor=0.0, reduced=False):
        errors.setdefault(name, [[] for _ in range(n_seeds)])[seed] += [
            (mu - mle) ** 2 for mu in mus
        ]
        variances.setdefault(name, [[] for _ in range(n_seeds)])[seed] += [
            variance(x, mu, anchor, reduced) for mu in mus
        ]

    for seed in range(n_seeds):
        rng = np.random.default_rng(1 + seed)
        orders = [
            rng.integers(n, size=n) if replace else rng.permutation(n)
            for _ in range(n_epochs)
        ]
        mu = START_MU
        for epoch, order in enumerate(orders):
            mu, looks = sweep_stochastic(x, order, mu, n * epoch, every)
            look(SEM, seed, looks)
        look(SEM, seed, [mu])
        for rate in rates:
            mu = anchor = START_MU
            for order in orders:
                mu, anchor, looks = sweep_vr(x, order, mu, rate, every)
                look(name_of(rate), seed, looks, anchor, True)
            look(name_of(rate), seed, [mu], anchor, True)
    mu = START_MU
    batch = [mu]
    for _ in range(n_epochs):
        mu = mean_share(x, mu)
        batch.append(mu)
    errors = {name: np.array(value) for name, value in errors.items()}
    errors[BEM] = np.square(np.array(batch) - mle)[None]
    return errors, {name: np.array(value) for name, value in variances.items()}


def log10(values):
    """Logarithm of the mean over seeds."""
    return np.log10(np.maximum(values.mean(axis=0), FLOOR))


def print_table(title, curves, n_epochs, offset=0):
    """Print a Markdown table of log10 by epoch; `offset` is where in it to look."""
    epochs = range(n_epochs + (offset == 0))
    print(f"\n{title}\n")
    print("| epoch | " + " | ".join(str(epoch) for epoch in epochs) + " |")
    print("|---" * (1 + len(epochs)) + "|")
    for name, values in curves.items():
        curve = log10(values)
        stride = 1 if name == BEM else LOOKS
        cells = (f"{curve[stride * epoch + offset]:.1f}" for epoch in epochs)
        print(f"| {name} | " + " | ".join(cells) + " |")


def draw_picture(errors, variances, n_epochs, path):
    """Save the two panels of Figure 1."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    fine = np.arange(LOOKS * n_epochs + 1) / LOOKS
    colors = {name_of(rate): f"C{i}" for i, rate in enumerate(RATES)}
    colors |= {BEM: "0.35", SEM: "C5"}
    for name in (BEM, SEM, *map(name_of, RATES)):
        style = {"color": colors[name], "label": name, "lw": 1.5}
        if name == name_of(0.003):
            style["lw"] = 2.5
        if name == BEM:
            left.plot(range(n_epochs + 1), log10(errors[name]), "o-", ms=3, **style)
        else:
            left.plot(fine, log10(errors[name]), **style)
            curve = log10(variances[name])
            if name != SEM:
                curve[::LOOKS] = np.nan  # zero at the anchors: a gap, not a spike
            right.plot(fine, curve, **style)
    left.set_ylabel(r"$\log_{10}\ \mathrm{E}\,|\mu_t - \mu^*|^2$")
    right.set_ylabel(r"$\log_{10}\ \mathrm{Var}_t[\mu_{t+1}] / \rho_t^2$")
    right.set_ylim(-30, 1)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.set_xlim(0, n_epochs)
        axes.grid(alpha=0.3)
    left.legend(fontsize=8, loc="lower left")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main():
    """Check, run, print the tables and save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--check-epochs", type=int, default=2)
    here = Path(__file__).resolve().parent
    parser.add_argument("--figure", default=here / "figures" / "sem_vr_toy.png")
    options = parser.parse_args()

    x = draw(N_ROWS)
    mle = maximum_likelihood(x)
    rate = 1.0 - (mean_share(x, mle + 1e-5) - mean_share(x, mle - 1e-5)) / 2e-5
    print(f"MLE {mle:.15f}; batch EM contracts by {1.0 - rate:.3f} an iteration")
    worst = check_against_package(x, options.check_epochs)
    for name, gap in worst.items():
        print(f"skvrem's {name} and the compiled sweep: largest gap {gap:.1e}")
    if max(worst.values()) > 1e-12:
        raise SystemExit("the compiled sweep is not what the package does")
    errors, variances = simulate(x, mle, options.epochs, options.seeds)
    names = (BEM, SEM, *map(name_of, RATES))
    print_table(
        f"log10 of the mean squared error to the MLE, {options.seeds} runs",
        {name: errors[name] for name in names},
        options.epochs,
    )
    shuffled, _ = simulate(
        x, mle, options.epochs, options.seeds, replace=False, rates=(0.003,)
    )
    shuffled.pop(BEM)
    print_table(
        "The same with every row visited once an epoch", shuffled, options.epochs
    )
    print_table(
        "log10 of Var_t[mu_{t+1}] / rho_t^2 in the middle of an epoch",
        {name: variances[name] for name in names if name != BEM},
        options.epochs,
        LOOKS // 2,
    )
    Path(options.figure).parent.mkdir(parents=True, exist_ok=True)
    draw_picture(errors, variances, options.epochs, options.figure)
    if options.epochs >= 10:
        reduced = log10(errors[name_of(0.003)])[8 * LOOKS]
        plain = log10(errors[SEM])[10 * LOOKS]
        print(f"\nsEM-vr ρ=0.003 below 1e-20 by epoch 8: {reduced:.1f}", reduced < -20)
        print(f"sEM above 1e-6 at epoch 10: {plain:.1f}", plain > -6)


if __name__ == "__main__":
    main()
