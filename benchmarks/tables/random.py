"""Small problems drawn at random, whose shapes and flaws are those of users' tables.

Rows are 2 to 5,000, columns 1 to 300, fewer rows than columns too; repeated, constant,
collinear, far from zero, on scales of 1e-8 to 1e8, with heavy tails, whole numbers,
thinned; weights are none, real or whole, some zero; classes are separable, noisy or
rare. A problem is known by its number (`problems/at_random.py`). All fits are defaults,
but those of logistic regressions by "stochastic", to the same end.

What counts is the worst: of logistic regressions how much a row is left to the best of
scikit-learn's solvers and ours, of mixtures and hidden Markov models by how much they
end below one default fit of the peer. Mixtures whose likelihood is bounded by little
but `reg_covar`, as of fewer rows than ten for a component and column, are left out.

Of PPCA and skills it is the log-loss of a third of the rows that fits have not seen:
beside PCA with as many components, on data drawn and on the sets that scikit-learn
brings, and beside choix with the prior N(0, 1), on tournaments of few matches too.
"""

import warnings

import numpy as np
from scipy.special import logsumexp

from benchmarks.harness import Row, group, quiet
from benchmarks.problems import at_random
from skvrem import (
    VRHMM,
    BayesianPPCA,
    BradleyTerry,
    SBMLogisticRegression,
    VRGaussianMixture,
)

#: Problems of a row.
LOGISTIC, MIXTURES, SERIES = 150, 60, 10
TWINS = "newton-cholesky", "lbfgs", "newton-cg"


def loss(coef, intercept, X, y, weight, C):
    """Return what logistic regressions minimise, a unit of weight, in float64."""
    Z = np.asarray(X @ coef.T.astype(float)) + intercept.astype(float)
    if Z.shape[1] == 1:
        Z = np.concatenate([np.zeros_like(Z), Z], axis=1)
    rows = logsumexp(Z, axis=1) - Z[np.arange(len(y)), y]
    ridge = 0.5 * np.square(coef.astype(float)).sum() / C
    return float((weight @ rows + ridge) / weight.sum())


def classification(number, kind):
    """Return the arguments of a fit, and C and fit_intercept."""
    rng = np.random.default_rng([19, number])
    X, _ = at_random.rows(rng)
    if kind == "sparse":
        X = at_random.thinned(rng, X)
    y, weight = at_random.classes_of(rng, X), at_random.weights(rng, X.shape[0])
    if weight is not None:  # no class is without
        first = np.unique(y, return_index=True)[1]
        weight[first] = np.maximum(weight[first], weight.mean())
    given = {"C": 10.0 ** rng.uniform(-4, 6), "fit_intercept": rng.uniform() < 0.8}
    return X.astype(np.float32 if kind == "float32" else float), y, weight, given


@group(["dense", "sparse", "float32", "stochastic"])
def logistic(run, kind):
    """What is left to the optimum, nats a row: the most of all that have converged."""
    from sklearn.linear_model import LogisticRegression

    gaps, refused, open_ = [], 0, 0
    how = {"solver": kind, "random_state": 0} if kind == "stochastic" else {}
    for number in range(run.size(LOGISTIC, 20)):
        X, y, weight, given = classification(number, kind)
        fits, C = [], given["C"]
        with quiet(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ours = SBMLogisticRegression(n_jobs=1, **given, **how)
                ours.fit(X, y, weight)
            except ValueError:  # columns too far from zero to be told apart
                refused += 1
                continue
            X64 = X.astype(float)
            for solver in TWINS:
                twin = LogisticRegression(
                    solver=solver, tol=1e-10, max_iter=500, **given
                )
                rows = X64
                if kind == "sparse" and solver == "newton-cholesky":
                    rows = X64.toarray()
                fits.append(twin.fit(rows, y, weight))
            weight = np.ones(len(y)) if weight is None else weight
            values = [
                loss(fit.coef_, fit.intercept_, X64, y, weight, C)
                for fit in (ours, *fits)
            ]
        if ours.converged_:
            gaps.append(values[0] - min(values))
        else:
            open_ += 1
    yield Row(
        'dense rows, "stochastic"' if how else f"{kind} rows",
        max(gaps),
        "",
        target=2e-6,
        note=f"{len(gaps)} problems, median {np.median(gaps):.0e}; {open_} more did "
        f"not converge, {refused} were refused with advice",
        numbers={"gaps": gaps, "open": open_, "refused": refused},
    )


@group(["full", "tied", "diag", "spherical"])
def mixture(run, covariance_type):
    """By how much default fits end below one of scikit-learn, nats a row: the most."""
    from sklearn.mixture import GaussianMixture

    gaps, number, off = [], 0, 0.0
    while len(gaps) < run.size(MIXTURES, 5):
        rng = np.random.default_rng([20, number])
        number += 1
        X, _ = at_random.rows(
            rng, most_columns=40, entries=60_000, flaws=at_random.BOUNDED
        )
        k = int(rng.choice([2, 3, 5, 8]))
        if len(X) < 10 * k * X.shape[1]:
            continue
        given = {"covariance_type": covariance_type, "random_state": 0}
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = VRGaussianMixture(k, n_jobs=1, **given).fit(X)
            twin = GaussianMixture(k, **given).fit(X)
            score = ours.score(X)
            off = max(off, abs(score - ours.lower_bound_) / max(1.0, abs(score)))
            gaps.append(twin.score(X) - score)
    below = float(np.mean(np.array(gaps) > 0.01))
    yield Row(
        covariance_type,
        max(gaps),
        "",
        note=f"{len(gaps)} problems, {below:.0%} below by 0.01, median "
        f"{-np.median(gaps):+.4f}; lower_bound_ is score to {off:.0e}",
        numbers={"gaps": gaps, "off": off},
    )


def brute_force(model, X, lengths):
    """Return the log-likelihood a row of Gaussian states, a step at a time."""
    logs = np.empty((len(X), len(model.startprob_)))
    for j, (mean, covariance) in enumerate(
        zip(model.means_, model.covars_, strict=True)
    ):
        factor = np.linalg.cholesky(covariance)
        Z = np.linalg.solve(factor, (X - mean).T)
        constant = np.log(2.0 * np.pi) * X.shape[1] / 2.0
        logs[:, j] = -0.5 * np.square(Z).sum(axis=0) - constant
        logs[:, j] -= np.log(np.diag(factor)).sum()
    total, row = 0.0, 0
    with np.errstate(divide="ignore"):
        start, move = np.log(model.startprob_), np.log(model.transmat_)
    for length in lengths:
        ahead = start + logs[row]
        for t in range(row + 1, row + length):
            ahead = logsumexp(ahead[:, None] + move, axis=0) + logs[t]
        total, row = total + logsumexp(ahead), row + length
    return total / len(X)


def series(number):
    """Return the states, rows and lengths of sequences of Gaussian states."""
    rng = np.random.default_rng([22, number])
    k, d = int(rng.choice([2, 3, 4])), int(rng.choice([1, 2, 4]))
    n = at_random.size(rng, 20 * k * d, 1500)
    change = 0.7 * np.eye(k) + 0.3 * rng.dirichlet(np.full(k, 0.3), size=k)
    states = [0]
    for _ in range(n - 1):
        states.append(rng.choice(k, p=change[states[-1]]))
    X = 3.0 * rng.normal(size=(k, d))[states] + rng.normal(size=(n, d))
    X *= 10.0 ** rng.choice([0, 0, -3, 3])
    longest = int(rng.choice([1, 4, 50, n]))
    lengths = [min(longest, n - a) for a in range(0, n, longest)]
    return k, X, lengths


@group(["full", "tied", "diag", "spherical"])
def hmm(run, covariance_type):
    """By how much default fits end below one of hmmlearn, nats a row: the most."""
    from hmmlearn.hmm import GaussianHMM

    gaps, off, broken = [], 0.0, 0
    for number in range(run.size(SERIES, 4)):
        k, X, lengths = series(number)
        n = len(X)
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {"covariance_type": covariance_type, "random_state": 0}
            ours = VRHMM(k, n_jobs=1, **given).fit(X, lengths=lengths)
            score = ours.score(X, lengths=lengths)
            off = max(off, abs(brute_force(ours, X, lengths) - score))
            try:
                twin = GaussianHMM(k, n_iter=300, tol=1e-4, **given).fit(X, lengths)
                gaps.append(twin.score(X, lengths) / n - score)
            except (ValueError, np.linalg.LinAlgError):
                broken += 1  # as of sequences of one row, without a transition
    below = float(np.mean(np.array(gaps) > 0.01))
    yield Row(
        covariance_type,
        max(gaps),
        "",
        note=f"{len(gaps)} problems, {below:.0%} below by 0.01, median "
        f"{-np.median(gaps):+.4f}; scores are those of brute force to {off:.0e}; "
        f"hmmlearn failed in {broken} more",
        numbers={"gaps": gaps, "off": off, "broken": broken},
    )


def factors_of(number):
    """Return rows of few factors, and how many: fewer rows than columns too."""
    rng = np.random.default_rng([24, number])
    n, d = at_random.size(rng, 20, 1000), at_random.size(rng, 3, 200)
    k = min(int(rng.choice([1, 2, 5])), d - 1)
    X = rng.normal(size=(n, k)) @ rng.normal(size=(k, d)) * rng.choice([0.3, 1, 3])
    X += rng.normal(size=d) + rng.normal(size=(n, d))
    return k, X * 10.0 ** rng.choice([-3, 0, 0, 3])


@group(["drawn", "brought"])
def ppca(run, kind):
    """By how much fits are below PCA on unseen rows, nats a column: the most."""
    from sklearn import datasets
    from sklearn.decomposition import PCA
    from sklearn.model_selection import train_test_split

    if kind == "drawn":
        names = [str(number) for number in range(run.size(2 * SERIES, 4))]
        problems = [factors_of(int(name)) for name in names]
    else:
        names = ["iris", "wine", "breast_cancer", "diabetes", "digits"]
        problems = [
            (k, getattr(datasets, f"load_{name}")(return_X_y=True)[0])
            for name, k in zip(names, (2, 4, 5, 4, 10), strict=True)
        ]
        problems = [(k, X[:, X.std(axis=0) > 0.0]) for k, X in problems]
        problems = [(k, (X - X.mean(axis=0)) / X.std(axis=0)) for k, X in problems]
    gaps = {}
    for name, (k, X) in zip(names, problems, strict=True):
        train, test = train_test_split(X, test_size=1 / 3, random_state=0)
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = BayesianPPCA(k, random_state=0).fit(train)
            twin = PCA(k).fit(train)
        gaps[name] = (twin.score(test) - ours.score(test)) / X.shape[1]
    worst = max(gaps, key=gaps.get)
    yield Row(
        kind,
        gaps[worst],
        "",
        note=f"{len(gaps)} problems, median {-np.median(list(gaps.values())):+.4f}, "
        f"the worst is {worst}",
        numbers={"gaps": gaps},
    )


@group()
def skills(run):
    """By how much default fits are below choix on unseen matches, nats: the most."""
    import choix

    gaps = {0.3: [], 1.0: [], 3.0: []}  # by the standard deviation of skills
    for number in range(run.size(2 * SERIES, 4)):
        rng = np.random.default_rng([25, number])
        n = at_random.size(rng, 3, 300)
        m = int(n * rng.choice([0.7, 3, 30]))  # of few, not all have met
        skill, spread = rng.normal(size=n), float(rng.choice(list(gaps)))
        skill *= spread
        pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(3 * m)])
        won = rng.logistic(size=len(pairs)) < skill[pairs[:, 0]] - skill[pairs[:, 1]]
        pairs[~won] = pairs[~won, ::-1]
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = BradleyTerry().fit(pairs[:m])
            twin = choix.opt_pairwise(n, pairs[:m].tolist(), alpha=0.5)
        test = pairs[m:]
        p = ours.predict_proba(test)
        theirs = -np.logaddexp(0.0, twin[test[:, 1]] - twin[test[:, 0]])
        gaps[spread].append(float(np.mean(theirs) - np.mean(np.log(p[:, 1]))))
    for spread, of in gaps.items():
        if of:
            yield Row(
                f"skills of standard deviation {spread:g}, choix with 1",
                max(of),
                "",
                note=f"{len(of)} tournaments, median {-np.median(of):+.4f}",
                key=f"{spread:g}",
                numbers={"gaps": of},
            )
