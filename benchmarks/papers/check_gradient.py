"""Check the gradient baselines against NumPy: the gradients, and the lazy steps.

    python -m benchmarks.papers.check_gradient

Of a small random corpus, in float64: one step of one minibatch, divided by the step
size, is the derivative of the MAP objective by central differences; and an epoch of six
minibatches differs from the same epoch with dense steps over all words by an amount of
second order in the step.
"""

import numpy as np

from benchmarks.papers.gradient import GradientDescent
from benchmarks.problems.corpora import simulated
from benchmarks.problems.evaluation import map_objective

ALPHA, BETA = 0.3, 0.2


def differences(X, theta, components, of, mirror):
    """Derivative by log theta or log phi, less its mean where that is free."""
    n_tokens = X.data.sum()
    start = [theta, components]
    result = np.empty_like(start[of])
    for index in np.ndindex(result.shape):
        values = []
        for sign in (1.0, -1.0):
            moved = [part.copy() for part in start]
            # Normalised by the objective: this is the derivative by the logit.
            moved[of][index] *= np.exp(sign * 1e-5)
            values.append(map_objective(X, *moved, ALPHA, BETA) * n_tokens)
        result[index] = (values[0] - values[1]) / 2e-5
    if mirror:
        result /= start[of]
    return result


def centered(log_change):
    return log_change - log_change.mean(axis=1, keepdims=True)


def dense_epoch(run, rho):
    """The epoch that `run` would make next, in NumPy with steps over all words."""
    X, m = run.X.toarray().astype(float), run.n_batches
    members, starts, _, _, _, visits = run.structure
    order = np.random.default_rng(5).permutation(m)
    theta, phi = run.theta.copy(), run.phi.T.copy()
    anchor = theta.copy(), phi.copy()

    def direction(theta, phi, b):
        """u of minibatch b, or of all (None), of words and of documents."""
        docs = np.arange(len(X)) if b is None else members[starts[b] : starts[b + 1]]
        ratio = X[docs] / (theta[docs] @ phi)
        here = np.zeros(X.shape[1]) + (b is None)
        if b is not None:
            here = (X[docs].sum(axis=0) > 0) / visits
        scale = 1 if b is None else m
        g = scale * (theta[docs].T @ ratio + BETA * here / phi)
        u = g - (phi * g).sum(axis=1, keepdims=True)
        h = np.zeros_like(theta)
        h[docs] = scale * (ratio @ phi.T + ALPHA / theta[docs])
        w = h - (theta * h).sum(axis=1, keepdims=True)
        return (w, u) if run.mirror else (w * theta, u * phi)

    for b in order:
        u = direction(theta, phi, b)
        if run.reduced:
            u = [
                now - then + full
                for now, then, full in zip(
                    u, direction(*anchor, b), direction(*anchor, None), strict=True
                )
            ]
        theta = theta * np.exp(rho * u[0])
        phi = phi * np.exp(rho * u[1])
        theta /= theta.sum(axis=1, keepdims=True)
        phi /= phi.sum(axis=1, keepdims=True)
    run.rng = np.random.default_rng(5)
    run.epoch()
    return np.abs(np.log(run.phi.T / phi)).max(), np.abs(
        np.log(run.theta / theta)
    ).max()


def main():
    """Print the gaps; fail where one is too large."""
    X = simulated(60, 40, 3, 25, seed=1).train
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.ones(3), size=X.shape[0])
    components = rng.dirichlet(np.ones(X.shape[1]), size=3)

    def make(rho, n_batches, **options):
        return GradientDescent(
            X, theta, components, ALPHA, BETA, n_batches=n_batches, step_size=rho,
            step_offset=1.0, step_decay=0.0, dtype=np.float64, **options,
        )  # fmt: skip

    worst = 0.0
    for method in ("smd", "rsgd"):
        for reduced in (False, True):
            options = {"method": method, "variance_reduction": reduced}
            rho = 1e-9
            run = make(rho, 1, **options).epoch()
            for of, start, end in (
                (0, theta, run.theta),
                (1, components, run.components),
            ):
                expected = differences(X, theta, components, of, method == "smd")
                moved = np.log(end / start) / rho
                scale = np.abs(expected).max()
                gap = np.abs(centered(moved) - centered(expected)).max() / scale
                worst = max(worst, gap / 1e-4)
                print(f"{options} gradient of {('theta', 'phi')[of]}: {gap:.1e}")
            # Theta is not lazy, but it sees the lazy phi.
            gaps = np.array(
                [dense_epoch(make(rho, 6, **options), rho) for rho in (4e-7, 2e-7)]
            )
            for name, (long, short) in zip(("phi", "theta"), gaps.T, strict=True):
                print(f"{options} {name}, lazy against dense: {long:.1e} {short:.1e}")
                if long > 1e-12:  # else equal to rounding
                    worst = max(worst, 3.5 / (long / short))
    if worst > 1.0:
        raise SystemExit("the gradients are wrong")
    print("right")


if __name__ == "__main__":
    main()
