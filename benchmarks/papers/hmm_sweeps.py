"""Stochastic M steps on real and simulated series: passes, time and where they end.

    SKVREM_DATA=... python -m benchmarks.papers.hmm_sweeps

Killer and pilot whales' are features of dives. The third series is simulated like an
electrocardiogram: five waves that follow each other, of unequal length and height.
"""

import argparse
from functools import partial

import numpy as np

from benchmarks.harness import timed
from benchmarks.harness.data import read
from skvrem import VRHMM
from skvrem.hmm.em_vrso._model import _SweptModel


def electrocardiogram(n_beats=400, seed=0):
    """Waves in cyclic order: flat, P, flat, QRS, T."""
    rng = np.random.default_rng(seed)
    levels, spreads = [0.0, 0.15, 0.0, 1.0, 0.3], [0.03, 0.05, 0.03, 0.5, 0.1]
    lengths = rng.poisson([8, 6, 4, 5, 10], (n_beats, 5)) + 1
    states = np.repeat(np.tile(np.arange(5), n_beats), lengths.ravel())
    X = (
        np.array(levels)[states]
        + rng.normal(size=states.size) * np.array(spreads)[states]
    )
    return X[:, None], None


def load(name):
    """Return dives whose features are all known, standardised, and lengths."""
    data = read(name)
    X, lengths = np.asarray(data["X"], float), data["lengths"]
    if np.isnan(X).any():
        X, lengths = X[~np.isnan(X).any(axis=1)], None
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, lengths


def main():
    """Print a line for every series, solver and kind of E step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    _SweptModel.scaled = False  # the steps of the paper
    settings = parser.parse_args()
    series = {
        "killer whales": (*load("killer_whale_dives"), 3),
        "pilot whales": (*load("pilot_whale_dives"), 3),
        "electrocardiogram": (*electrocardiogram(), 5),
    }
    for name, (X, lengths, k) in series.items():
        print(f"{name}: {X.shape[0]} x {X.shape[1]}, {k} states")
        best = fit(X, lengths, settings.seeds, n_components=k, solver="batch")
        show("batch", best, best[0])
        for solver in ("svrg", "saga"):
            for part in (False, True):
                more = {"solver": solver, "partial_e_step": part}
                found = fit(X, lengths, settings.seeds, n_components=k, **more)
                show(f"{solver}, {'partial' if part else 'full'}", found, best[0])


def fit(X, lengths, seeds, **params):
    """Return log-likelihoods, passes and seconds of fits from one start a seed."""
    rows = []
    for seed in range(seeds):
        model = VRHMM(
            n_init=1,
            init_params="random",
            tol=1e-5,
            max_iter=200,
            random_state=seed,
            **params,
        )
        took, _ = timed(partial(model.fit, X, lengths=lengths), threads=2)
        rows.append((model.log_likelihood_, model.history_["passes"][-1], took))
    return np.array(rows).T


def show(label, found, best):
    """Print medians, and how far the ends are from those of batch."""
    ends, passes, seconds = found
    away = " ".join(f"{a:+.4f}" for a in ends - best)
    print(
        f"  {label:15s} passes {np.median(passes):6.0f}  "
        f"seconds {np.median(seconds):7.3f}  from batch {away}",
        flush=True,
    )


if __name__ == "__main__":
    main()
