"""Fits of every estimator and solver; run as a program it times some of them.

It imports the package that its process finds, which may be of another checkout, and
nothing else of the benchmarks.
"""

import json
import sys
import time
import warnings
from functools import partial
from itertools import product

import numpy as np

__all__ = ["FEW", "MANY"]

#: Epochs of the short and of the long fit.
FEW, MANY = 2, 12


def fits_by_name():
    """Return fits, each a function of a number of epochs that are made."""
    import skvrem as ours

    rng = np.random.default_rng(0)
    blobs = rng.normal(size=(20_000, 10)) + rng.integers(8, size=(20_000, 1))
    counts = rng.poisson(0.3 * rng.gamma(0.3, size=(2000, 1)), (2000, 400))
    counts[:, 0] += 1
    X = rng.normal(size=(20_000, 50))
    logits = X @ rng.normal(0.0, 0.3, (50, 3))
    classes = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    two = (classes > 0).astype(int)
    count = rng.poisson(np.exp(np.clip(0.3 * logits[:, 0], -4.0, 4.0)))
    steps = rng.normal(np.repeat(rng.integers(3, size=(400, 2)), 50, axis=0))
    sequences = [100] * 200

    def fit(made, X, y=None, **data):
        def run(n):
            model = made(max_iter=n, tol=0.0, random_state=0)
            return model.fit(X, **({} if y is None else {"y": y}), **data)

        return run

    em = ("batch", "stochastic", "svrg", "saga", "incremental")
    fits = {}
    for solver in em:
        for kind in ("diag", "full"):
            made = partial(
                ours.VRGaussianMixture,
                8,
                covariance_type=kind,
                solver=solver,
                n_init=1,
                init_params="random",
            )
            fits[f"mixture {kind} {solver}"] = fit(made, blobs)
    for solver in em[:3]:
        made = partial(ours.FactorialMixture, 4, solver=solver, tempering=None)
        fits[f"factorial {solver}"] = fit(made, blobs)
        made = partial(ours.TemperedLDA, 20, solver=solver, tempering=None)
        fits[f"lda {solver}"] = fit(made, counts)
        made = partial(ours.VRPLSA, 20, solver=solver)
        fits[f"plsa {solver}"] = fit(made, counts)
        made = partial(ours.SBMLogisticRegression, solver=solver)
        fits[f"sbm {solver}"] = fit(made, X, two)
    for solver, e in [("batch", False), *product(("svrg", "saga"), (False, True))]:
        for units, lengths in (("rows", None), ("sequences", sequences)):
            made = partial(
                ours.VRHMM,
                3,
                solver=solver,
                partial_e_step=e,
                n_init=1,
                init_params="random",
            )
            label = f"hmm {units} {solver}{' partial' if e else ''}"
            fits[label] = fit(made, steps, lengths=lengths)
    kinds = [("stochastic", "mc"), *product(("svrg", "saga"), ("quadrature", "mc"))]
    for solver, expectation in kinds:
        options = {"posterior": "meanfield", "solver": solver}
        # A parameter of its own, in checkouts of before there were nested steps.
        how = {"expectation": expectation}
        made = getattr(ours.vi, "MinibatchSteps", None)
        options |= how if made is None else {"steps": made(**how)}
        bayes = partial(ours.BayesianLogisticRegression, 1.0, **options)
        fits[f"bayes two {solver} {expectation}"] = fit(bayes, X, two)
        if expectation == "mc":
            fits[f"bayes three {solver} mc"] = fit(bayes, X, classes)
        made = partial(ours.BayesianGLMRegressor, family="poisson", **options)
        fits[f"bayes poisson {solver} {expectation}"] = fit(made, X, count)
    fits["bayes two batch"] = fit(partial(ours.BayesianLogisticRegression, 1.0), X, two)
    for solver in ("stochastic", "svrg"):
        made = partial(ours.GaussianDropoutClassifier, solver=solver)
        fits[f"dropout {solver}"] = fit(made, X, two)
    return fits


def main(names):
    """Print CPU seconds of a short and a long fit of each name, or all names."""
    import numba

    numba.set_num_threads(1)
    warnings.simplefilter("ignore")
    fits, found = fits_by_name(), {}
    for name in names:
        took = []
        for n in (FEW, FEW, MANY):  # the first compiles
            began = time.process_time()
            fits[name](n)
            took.append(time.process_time() - began)
        found[name] = took[1:]
    print(json.dumps(found if names else list(fits)))


if __name__ == "__main__":
    main(sys.argv[1:])
