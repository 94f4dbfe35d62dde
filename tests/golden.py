"""Histories of every estimator and solver, kept from one version for the next.

    python -m tests.golden store golden.json      # before a change of the core
    python -m tests.golden compare golden.json    # after it

A change of structure leaves fits as they were: rows of histories and fitted numbers
are compared to the ninth digit, and what differs is listed with by how much.
"""

import argparse
import json
import warnings

import numpy as np
from sklearn.base import clone

from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BradleyTerry,
    FactorialMixture,
    GaussianDropoutClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    VariationalInference,
    VRGaussianMixture,
)
from skvrem.vi import MinibatchSteps
from tests.laws.test_estimators import (
    BINARY,
    COUNTS,
    FITS,
    X,
    Y,
    blobs,
    matches,
    regimes,
    topics,
)
from tests.own_models import Logistic, RichLogistic, ShortSkills
from tests.own_models import logistic_problem as problem
from tests.own_models import skills_problem as skills

# Where estimates have noise, a sum in another order leads elsewhere in the end.
CLOSE = 1e-9
IGNORED = ("seconds",)


def _more():
    """Yield names and fits beside those of the laws."""
    for acceleration in ("auto", "squarem"):
        yield (
            f"mixture {acceleration}",
            VRGaussianMixture(
                3, covariance_type="diag", acceleration=acceleration, random_state=0
            ),
            (blobs(),),
        )
    yield (
        "mixture tempered",
        VRGaussianMixture(3, solver="svrg", tempering="annealed", random_state=0),
        (blobs(),),
    )
    yield "mixture starts", VRGaussianMixture(3, n_init=4, random_state=0), (blobs(),)
    for solver in ("svrg", "saga"):
        for partial in (True, False):
            for kind in ("diag", "full"):
                yield (
                    f"hmm {solver} {partial} {kind}",
                    VRHMM(
                        2,
                        solver=solver,
                        covariance_type=kind,
                        partial_e_step=partial,
                        n_init=1,
                        max_iter=12,
                        random_state=0,
                    ),
                    (regimes(),),
                )
    yield "hmm starts", VRHMM(3, random_state=0), (regimes(),)
    for tempering in ("annealed", "global", "local"):
        yield (
            f"lda {tempering}",
            TemperedLDA(4, tempering=tempering, max_iter=20, random_state=0),
            topics(),
        )
    for tempering in ("annealed", "global", None):
        yield (
            f"factorial {tempering}",
            FactorialMixture(2, tempering=tempering, max_iter=30, random_state=0),
            (blobs(),),
        )
    yield "plsa starts", VRPLSA(4, n_init=3, max_iter=20, random_state=0), topics()
    yield (
        "sbm memory",
        SBMLogisticRegression(solver="stochastic", gradient_memory=0.5, random_state=0),
        (X, Y),
    )
    for solver in ("stochastic", "svrg", "saga"):
        for control in (None, "taylor", "antithetic"):
            for optimizer in ("natural", "adam", "sgd"):
                yield (
                    f"bayes {solver} {control} {optimizer}",
                    BayesianLogisticRegression(
                        posterior="meanfield",
                        solver=solver,
                        steps=MinibatchSteps(
                            expectation="mc",
                            control_variate=control,
                            optimizer=optimizer,
                        ),
                        max_iter=8,
                        random_state=0,
                    ),
                    (X, Y if control else BINARY),
                )
        for family, y in (("poisson", COUNTS), ("gaussian", X[:, 0])):
            yield (
                f"glm {solver} {family}",
                BayesianGLMRegressor(
                    family,
                    posterior="meanfield",
                    solver=solver,
                    max_iter=8,
                    random_state=0,
                ),
                (X[:, 1:], y),
            )
        for control in (None, "taylor", "antithetic"):
            for posterior in ("meanfield", "fullrank", "lowrank"):
                for name, model in (
                    ("plain", Logistic(*problem())),
                    ("rich", RichLogistic(*problem())),
                    ("skills", ShortSkills(*skills())),
                ):
                    yield (
                        f"own {solver} {control} {posterior} {name}",
                        VariationalInference(
                            model,
                            prior_scale=1.0,
                            posterior=posterior,
                            rank=2 if posterior == "lowrank" else None,
                            solver=solver,
                            steps=MinibatchSteps(control_variate=control),
                            max_iter=6,
                            random_state=0,
                        ),
                        (),
                    )
    for solver in ("stochastic", "svrg"):
        for hidden in ((), (6,)):
            for expectation in ("mc", "quadrature"):
                for optimizer in ("adam", "sgd"):
                    yield (
                        f"dropout {solver} {hidden} {expectation} {optimizer}",
                        GaussianDropoutClassifier(
                            hidden,
                            solver=solver,
                            steps=MinibatchSteps(
                                expectation=expectation, optimizer=optimizer
                            ),
                            batch_size=30,
                            max_iter=8,
                            random_state=0,
                        ),
                        (X, Y if expectation == "mc" else BINARY),
                    )
    for ties in ("davidson", "rao-kupper"):
        won = np.where(np.arange(300) % 7 == 0, 0.5, 1.0)
        yield f"pairs {ties}", BradleyTerry(ties=ties), (matches(), won)


def fits():
    """Yield names, estimators, and what `fit` takes."""
    for name, (estimator, data, given) in FITS.items():
        yield name, clone(estimator), data, given
    for name, estimator, data in _more():
        yield name, estimator, data, {}


def _numbers(value):
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return np.asarray(value, float).ravel()
    if isinstance(value, float | int | np.number):
        return np.array([float(value)])
    return None


def digest(estimator):
    """Return the fitted numbers of an estimator, its history among them, by name."""
    found = {}
    for name, value in vars(estimator).items():
        if name == "history_":
            for column, rows in value.items():
                if column not in IGNORED:
                    rows = rows.tolist() if rows.dtype.kind == "U" else rows
                    found[f"history {column}"] = list(rows)
        elif name.endswith("_") and (numbers := _numbers(value)) is not None:
            found[name] = numbers[:2000].tolist()
    return found


def run(only=""):
    """Return the digests of all fits whose name holds `only`."""
    found = {}
    for name, estimator, data, given in fits():
        if only in name:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found[name] = digest(estimator.fit(*data, **given))
                except ValueError as error:
                    found[name] = {"error": [str(error)]}
    return found


def difference(before, after):
    """Return by how much two columns differ, relative to the larger."""
    if len(before) != len(after):
        return np.inf
    if any(isinstance(x, str) for x in before):
        return 0.0 if list(before) == list(after) else np.inf
    a, b = np.array(before, float), np.array(after, float)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not a.size:
        return 0.0
    return float(np.max(np.abs(a - b)) / max(1e-300, np.abs(a).max(), np.abs(b).max()))


def main():
    """Store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("store", "compare"))
    parser.add_argument("path")
    parser.add_argument("--only", default="", help="fits whose name holds this")
    arguments = parser.parse_args()
    found = run(arguments.only)
    if arguments.what == "store":
        with open(arguments.path, "w") as file:
            json.dump(found, file)
        print(f"{len(found)} fits stored")
        return
    with open(arguments.path) as file:
        kept = {k: v for k, v in json.load(file).items() if arguments.only in k}
    found = json.loads(json.dumps(found))
    same = 0
    for name, before in kept.items():
        after = found.get(name, {})
        off = {c: difference(v, after.get(c, [])) for c, v in before.items()}
        worst = max(off.values(), default=0.0)
        same += worst == 0.0
        if worst > CLOSE:
            names = ", ".join(f"{c} {d:.1e}" for c, d in off.items() if d > CLOSE)
            print(f"{name}: {names}")
    print(f"{len(kept)} fits compared, {same} the same to the last bit")


if __name__ == "__main__":
    main()
