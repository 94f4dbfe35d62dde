r"""Measure Figure 1 of Mandt et al. (2016): what a temperature does to the bound.

    python -m benchmarks.papers.annealing_landscape

200 draws of 0.3 N(-4, 1) + 0.7 N(4, 1), of which only the means are unknown, with
priors N(0, 100): the paper gives no numbers, and these make its four temperatures what
it draws. The bound is that of Eq. 4 at the best q(z) and the best variances of q(mu).
Coordinate ascent from a grid of starts is made by `skvrem.solvers.run`, plain and from
T = 20 linearly to 1.
"""

from typing import NamedTuple

import numpy as np
from scipy.ndimage import maximum_filter

from benchmarks.papers import measured
from skvrem import schedules, solvers
from skvrem.data import as_source
from skvrem.utils._averaging import Averaging, AveragingPoint

WEIGHTS, TRUTH, N_ROWS, PRIOR = np.array([0.3, 0.7]), 4.0, 200, 100.0
TEMPERATURES = (20.0, 13.0, 8.5, 1.0)
#: Of the landscape; starts are every tenth of it both ways.
GRID = np.linspace(-8.0, 8.0, 81)
#: Epochs of annealing, and those after it.
LENGTHS, EPOCHS, SETTLE = (0, 40, 100, 200), 60, 30


class Posterior(NamedTuple):
    """Means and variances of q(mu), each (..., 2)."""

    m: np.ndarray
    v: np.ndarray


class Statistics(NamedTuple):
    """Tempered means over rows: shares, shares times x, and the likelihood's bound."""

    shares: np.ndarray
    x: np.ndarray
    objective: np.ndarray


class TwoMeans(Averaging):
    """Variational posterior of the means."""

    def statistics(self, point, batch, beta):
        """Return the sums of a batch."""
        return sums(batch.rows[batch.ids, 0], point.parameters, beta)

    def maximize(self, statistics, point, repair):
        """Return q(mu); all statistics are feasible."""
        v = variances(N_ROWS * statistics.shares)
        return Posterior(N_ROWS * v * statistics.x, v), ()

    def objective(self, point, mean):
        """Return the bound a row."""
        return float(mean.objective - divergence(point.parameters) / N_ROWS)

    def start(self, m):
        """Return the point of given means, whose variances are those of halved rows."""
        shares = np.full(2, 0.5)
        v = variances(N_ROWS * shares)
        zero = Statistics(shares, m / (N_ROWS * v), np.zeros(()))
        return AveragingPoint(Posterior(m, v), zero)


def variances(shares):
    """Variances of q(mu) from tempered sums of shares."""
    return 1.0 / (1.0 / PRIOR + shares)


def sums(x, q, beta):
    """Return `Statistics` of rows x, (n,), summed, at the inverse temperature."""
    squares = (x - q.m[..., None]) ** 2 + q.v[..., None]
    joint = np.log(WEIGHTS)[:, None] - 0.5 * squares - 0.5 * np.log(2.0 * np.pi)
    norm = np.logaddexp.reduce(beta * joint, axis=-2)
    shares = beta * np.exp(beta * joint - norm[..., None, :])
    return Statistics(shares.sum(-1), shares @ x, norm.sum(-1))


def divergence(q):
    """KL(q(mu) | p(mu)), in nats."""
    share = q.v / PRIOR
    return 0.5 * (share + q.m**2 / PRIOR - 1.0 - np.log(share)).sum(-1)


def landscape(x, temperature):
    """Return the annealed bound a row by both means, at the best of the rest."""
    m = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), axis=-1)
    q = Posterior(m, np.full(m.shape, 1.0 / N_ROWS))
    for _ in range(SETTLE):
        q = q._replace(v=variances(sums(x, q, 1.0 / temperature).shares))
    return (sums(x, q, 1.0 / temperature).objective - divergence(q)) / N_ROWS


def optima(values):
    """Return the places of the maxima of a landscape, the highest first."""
    at = np.argwhere(maximum_filter(values, 3) == values)
    return GRID[at[np.argsort(-values[tuple(at.T)])]]


def draw_rows(seed):
    """Return the data."""
    rng = np.random.default_rng(seed)
    side = np.where(rng.random(N_ROWS) < WEIGHTS[0], -TRUTH, TRUTH)
    return side + rng.normal(size=N_ROWS)


def share_at_the_best(x, length):
    """Return the share of starts from which ascent comes to the highest bound."""
    model, ends = TwoMeans(), []
    hot = schedules.Linear(TEMPERATURES[0], length)
    for a in GRID[::10]:
        for b in GRID[::10]:
            fit = solvers.run(
                model,
                solvers.Batch(),
                as_source(x[:, None]),
                model.start(np.array([a, b])),
                temperature=hot,
                max_iter=length + EPOCHS,
                tol=0.0,
                rng=np.random.default_rng(0),
            )
            ends.append(fit.objective)
    return np.mean(np.array(ends) > max(ends) - 1e-3)


def draw(x, path):
    """Landscapes of the temperatures, their highest place marked."""
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
    for ax, temperature in zip(axes, TEMPERATURES, strict=True):
        values = landscape(x, temperature)
        levels = np.quantile(values, np.linspace(0.0, 1.0, 30))
        ax.contourf(GRID, GRID, values.T, levels=np.unique(levels))
        ax.plot(*optima(values).T, "wo", markersize=4)
        ax.plot(*optima(values)[0], "ro")
        ax.set(title=f"T = {temperature:g}", xlabel="first mean")
    axes[0].set_ylabel("second mean")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def main():
    """Print the optima and where ascent ends, and draw the figure."""
    parser = measured.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="data sets")
    options = parser.parse_args()
    data = [draw_rows(seed) for seed in range(options.seeds)]
    print("| T | optima, by data set | the highest, of the first |\n|---|---|---|")
    for temperature in TEMPERATURES:
        found = [optima(landscape(x, temperature)) for x in data]
        a, b = found[0][0]
        print(
            f"| {temperature:g} | {', '.join(str(len(at)) for at in found)} | "
            f"{a:.1f}, {b:.1f} |"
        )
    print("\n| epochs from T = 20 to 1 | starts that come to the best |\n|---|---|")
    for length in LENGTHS:
        shares = [100.0 * share_at_the_best(x, length) for x in data]
        print(f"| {length or 'plain'} | {measured.told(shares, '{:.0f}%')} |")
    draw(data[0], options.figures / "annealing_landscape.png")


if __name__ == "__main__":
    main()
