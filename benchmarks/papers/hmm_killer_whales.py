r"""The case study of Sidrow et al. (2023, section 6): dives of killer whales.

    SKVREM_DATA=... python -m benchmarks.papers.hmm_killer_whales
    SKVREM_DATA=... python -m benchmarks.papers.hmm_killer_whales --methods "SVRG PE"

Nine states: three types of dives with three phases each (descent, bottom, ascent). A
row is two seconds: the change of depth, normal in each state, and whether the dive ends
there, which only the last phase may do. Within a dive the type stays and the phases go
on; the next dive has a type drawn by a matrix of its own (Eqs. 36 and 37). Starts are
those of section 6.3. The paper's own file is not to be had: `killer_whale_subdive.npz`
holds dives of 30 m and more, on the same kind of tag. Sequences are the rows of a tag
without an hour's gap.

Passes are epochs as the paper counts them. The stochastic M steps visit single rows, in
Algorithm 5: without partial E steps (FE), with them (PE), and with ten visits of every
row between two full E steps (10 T). "Version 2" is Algorithm 6, of which Theorem 1 is:
an attempt is taken only where it has raised Q by a share, here `SHARE`, of what the
closed M step would; how large the share must be follows from constants that nobody
knows. "Blocks" visit 128 rows at a time in NumPy, as all but diagonal Gaussians did
once. What has been measured before stays in the table.
"""

import sys
import time
import warnings
from functools import partial
from itertools import product

import numpy as np
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from benchmarks.harness.data import read
from benchmarks.papers import measured
from benchmarks.papers.hmm_simulation import by_scipy
from skvrem import VRHMM, solvers
from skvrem.hmm import Bernoulli, Gaussian, Hierarchical, Homogeneous, Product
from skvrem.hmm._input import fitted_parameters, open_rows
from skvrem.hmm._plan import _make_sweeps
from skvrem.hmm.em_vrso._model import _SweptModel
from skvrem.schedules import Constant

GAP = 3600.0
# Of version 2: (1 - zeta) / 2 with zeta = 1 / 2, and attempts before steps are halved.
SHARE, ATTEMPTS = 0.25, 10
COLUMNS = ("start", "method", "max_iter", "passes", "value", "seconds")
KINDS = (int, str, int, float, float, float)
TYPES, PHASES = 3, 3
SOLVERS = {
    "Baum-Welch": {"solver": "batch"},
    "SQUAREM": {"acceleration": "squarem"},
    "L-BFGS": {"acceleration": "lbfgs"},
    "incremental": {"solver": "incremental", "batch_size": 2048},
}
# With the passes of an iteration.
STOCHASTIC = {
    "SVRG FE": ({"solver": "svrg", "partial_e_step": False}, 2),
    "SVRG PE": ({"solver": "svrg"}, 3),
    "SVRG PE, 10 T": ({"solver": "svrg", "inner_iter": 10}, 21),
    "SAGA FE": ({"solver": "saga", "partial_e_step": False}, 2),
    "SAGA PE": ({"solver": "saga"}, 3),
    "SAGA PE, 10 T": ({"solver": "saga", "inner_iter": 10}, 21),
}
BLOCKS = {
    "SVRG PE, blocks": ({"solver": "svrg", "batch_size": 128}, 3),
    "SAGA PE, blocks": ({"solver": "saga", "batch_size": 128}, 3),
    "SVRG FE, blocks": (
        {"solver": "svrg", "batch_size": 128, "partial_e_step": False},
        2,
    ),
    "SAGA FE, blocks": (
        {"solver": "saga", "batch_size": 128, "partial_e_step": False},
        2,
    ),
}
VERSION_2 = {"SVRG FE, version 2": 1}
SCIPY = {"BFGS": "BFGS", "conjugate gradients": "CG"}


def load():
    """Rows (change of depth, end of a dive), ids of sequences, and what is drawn."""
    file = read("killer_whale_subdive")
    change, time_ = file["X"][:, 0], file["time"]
    depth, lengths = file["depth_m"], file["lengths"]
    ends = np.zeros(len(change))
    ends[np.cumsum(lengths) - 1] = 1.0
    breaks = np.append(False, np.diff(time_) > GAP) & np.append(False, ends[:-1] > 0)
    return np.column_stack([change, ends]), np.cumsum(breaks), time_, depth, lengths


def draw_start(X, rng, **options):
    """An estimator that begins where section 6.3 says."""
    change, ends = X[:, 0], X[:, 1].mean()
    mean, sd, n = np.nanmean(change), np.nanstd(change), TYPES * PHASES
    variances = np.exp(2.0 * rng.normal(np.log(sd), 1.0, (n, 1)))
    fixed = np.tile([0.0, 0.0, np.nan], TYPES)[:, None]
    odds = np.log(ends / (1.0 - ends)) + rng.normal(size=(n, 1))
    chance = np.where(np.isnan(fixed), 1.0 / (1.0 + np.exp(-odds)), fixed)
    coarse = rng.normal(-3.0, 1.0, (TYPES, TYPES))
    fine = rng.normal(-1.0, 1.0, (TYPES, PHASES, PHASES))
    coarse[range(TYPES), range(TYPES)] = 0.0
    fine[:, range(PHASES), range(PHASES)] = 0.0
    fine = np.where(np.triu(np.ones((PHASES, PHASES))) > 0, fine, -np.inf)
    first = np.zeros(n)
    first[::PHASES] = softmax(np.append(0.0, rng.normal(size=TYPES - 1)))
    depth = Gaussian(mean_init=rng.normal(mean, sd, (n, 1)), covariance_init=variances)
    end = Bernoulli(probability=fixed, probability_init=chance)
    transitions = Hierarchical(
        TYPES,
        PHASES,
        1,
        upper_triangular=True,
        observed=True,
        coarse=Homogeneous(init=softmax(coarse, axis=1)),
        fine=Homogeneous(init=softmax(fine, axis=2)),
    )
    return VRHMM(
        n,
        emission=Product([("change", depth, [0]), ("end", end, [1])]),
        transitions=transitions,
        startprob_init=first,
        n_init=1,
        n_jobs=1,
        random_state=int(rng.integers(2**31 - 1)),
        **options,
    )


def fit(X, ids, start, method, max_iter):
    """Fit from a start, by one of our solvers."""
    options = SOLVERS.get(method)
    if options is None:
        options, passes = (STOCHASTIC | BLOCKS)[method]
        max_iter = max_iter // passes
    model = draw_start(X, np.random.default_rng(start), max_iter=max_iter, **options)
    return model.fit(X, groups=ids)


class Version2(solvers.Sweeps):
    """Algorithm 6: from an anchor, again and again, until Q has risen by enough."""

    # Passes of attempts in vain, of which the loop counts one.
    lost = 0.0

    def sweep(self, anchor, pace, rng):
        model, here = self.model.model, anchor.point
        best, _ = model.maximize(anchor.mean, here, True)
        before, least = (
            model.surrogate(point, anchor.mean)
            for point in (here, here._replace(parameters=best))
        )
        least, passes = before + SHARE * (least - before), 0.0
        for _ in range(ATTEMPTS):
            moved = super().sweep(anchor, pace, rng)
            passes += moved.passes
            if model.surrogate(moved.point, anchor.mean) >= least:
                return moved._replace(passes=passes)
        self.lost += passes - moved.passes
        raise FloatingPointError("no attempt has raised Q by enough")


def by_version_2(model, data, parameters, start, inner_iter, most):
    """Return passes and log-likelihood a row of a fit by Algorithm 6."""
    make = partial(
        _make_sweeps, batch_size=1, saga=False, partial=False, inner_iter=inner_iter
    )
    trace, solver = [], Version2("svrg", patience=2, noisy=False, make=make)

    def report(epoch, point):
        trace.append((epoch.passes + solver.lost, epoch.objective))
        return trace[-1][0] >= most

    solvers.run(
        model,
        solver,
        data,
        model.start(parameters),
        step_size=Constant(1.0),
        temperature=Constant(1.0),
        max_iter=most,
        tol=VRHMM(1).tol,
        rng=np.random.default_rng(start),
        report=report,
    )
    return trace[-1][0], max(value for _, value in trace)


def measure(X, ids, start, method, max_iter):
    """Return a row of the table."""
    began = time.process_time()
    if method in SCIPY or method in VERSION_2:
        model = draw_start(X, np.random.default_rng(start), max_iter=0)
        model.fit(X, groups=ids)
        _, data, inner = open_rows(model, X, groups=ids)
        at = fitted_parameters(model)
    if method in VERSION_2:
        visits = VERSION_2[method]
        passes, value = by_version_2(inner, data, at, start, visits, max_iter)
    elif method in SCIPY:
        trace = by_scipy(SCIPY[method], inner, data, at, start, 1e-5, max_iter)
        passes, value = trace[-1][0], max(value for _, value, _ in trace)
    else:
        model = fit(X, ids, start, method, max_iter)
        passes, value = model.history_["passes"][-1], model.score(X, groups=ids)
    seconds = time.process_time() - began
    print(
        f"start {start}, {method}: {passes:g} passes, {value:.5f} nats a row, "
        f"{seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )
    return start, method, max_iter, float(passes), float(value), seconds


def summarise(rows):
    """Print passes, log-likelihoods and seconds."""
    top = max(row[4] for row in rows)
    print(f"\nBest log-likelihood {top:.5f} nats a row.\n")
    print("| method | starts | passes | below the best | within 1e-3 | CPU s |")
    print("|---|---|---|---|---|---|")
    for name in [*SOLVERS, *STOCHASTIC, *VERSION_2, *BLOCKS, *SCIPY]:
        own = np.array([row[3:] for row in rows if row[1] == name])
        if not own.size:
            continue
        gap = top - own[:, 1]
        print(
            f"| {name} | {len(own)} | {np.median(own[:, 0]):g} | {np.median(gap):.4f} "
            f"({gap.min():.4f}) | {np.mean(gap < 1e-3):.0%} | "
            f"{np.median(own[:, 2]):.2f} |"
        )
    print("\nMedians over starts, in brackets the best of them.")


def draw(model, X, ids, depth, lengths, path):
    """Depth and change of depth by type of dive and by phase, as in Figure 5."""
    import matplotlib.pyplot as plt

    states = model.predict(X, groups=ids)
    types, phases = states // PHASES, states % PHASES
    deepest = [depth[types == k].max(initial=0.0) for k in range(TYPES)]
    types = np.argsort(np.argsort(deepest))[types]
    # The tag with the most dives.
    whale = np.bincount(ids, weights=X[:, 1]).argmax()
    rows = np.flatnonzero(ids == whale)[: int(lengths.mean() * 12)]
    minutes = np.arange(len(rows)) * 2.0 / 60.0
    figure, axes = plt.subplots(4, 1, figsize=(9, 8), sharex=True)
    panels = [
        (depth, types, "depth, m", ["shallow", "medium", "deep"]),
        (depth, phases, "depth, m", ["descent", "bottom", "ascent"]),
        (X[:, 0], types, "change, m", None),
        (X[:, 0], phases, "change, m", None),
    ]
    for axis, (values, kind, label, names) in zip(axes, panels, strict=True):
        for k in range(3):
            mine = kind[rows] == k
            name = None if names is None else names[k]
            axis.scatter(minutes[mine], values[rows][mine], s=4, label=name)
        axis.set_ylabel(label)
        if names is not None:
            axis.invert_yaxis()
            axis.legend(fontsize=7, loc="lower right")
    axes[-1].set_xlabel("minutes under water")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    """Run, print the table and save the picture."""
    parser = measured.parser(__doc__)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--max-iter", type=int, default=300, help="passes")
    parser.add_argument("--slow-iter", type=int, default=90, help="of blocks")
    every = [*SOLVERS, *STOCHASTIC, *VERSION_2, *BLOCKS, *SCIPY]
    parser.add_argument("--methods", nargs="+", choices=every, default=every)
    _SweptModel.scaled = False  # the steps of the paper
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", RuntimeWarning)
    X, ids, _, depth, lengths = load()
    print(f"{len(X)} rows, {len(lengths)} dives, {ids[-1] + 1} sequences")
    path = options.figures / "hmm_killer_whales.csv"
    for start, method in product(range(options.starts), options.methods):
        if any(row[:2] == (start, method) for row in measured.load(path, KINDS)):
            continue
        slow = method in BLOCKS
        max_iter = options.slow_iter if slow else options.max_iter
        row = measure(X, ids, start, method, max_iter)
        # Read now: methods may be measured side by side.
        rows = sorted([*measured.load(path, KINDS), row])
        measured.save(path, COLUMNS, rows)
    rows = measured.load(path, KINDS)
    summarise(rows)
    ours = [row for row in rows if row[1] not in (*SCIPY, *VERSION_2)]
    best = fit(X, ids, *max(ours, key=lambda row: row[4])[:3])
    emission, transitions = best.emission_, best.transitions_
    print("\nmean change of depth (m in 2 s), type x phase:")
    print(emission["change"].mean_.reshape(TYPES, PHASES).round(2))
    print("coarse transitions:")
    print(transitions.coarse_transmat_.round(2))
    draw(best, X, ids, depth, lengths, options.figures / "hmm_killer_whales.png")


if __name__ == "__main__":
    main()
