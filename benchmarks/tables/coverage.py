"""How often 95 % intervals hold, of Bayesian estimators, on simulated data.

Parameters are drawn from a prior, rows from the model, and the share of the parameters
(or new targets) that lie in their intervals is counted; the standard error takes the
mean of a set for one observation. What is shown is how far the share is from 0.95.

- Regression: standard normal features and coefficients, noise exp(N(0, 1/4)), which is
  learnt; the priors are the default ones, that follow the units of the data.
- Counts: negative binomial with the concentration 2, which is learnt.
- Components: loadings N(0, 1), noise 0.7; those of the fit are turned as near to the
  true ones as they can, as no data tell turns apart.
- Skills: N(0, 1), ties and home advantage, half of the matches on neutral ground; the
  prior has their scale, or learns it.
- Few matches: skills N(0, s^2), two to five matches an item, the scale is learned.
- Many coefficients: two classes, independent standard normal features, coefficients
  N(0, s^2), whose scale is learned; more of them than rows, or than a full rank has.
- Groups: three classes, ten rows a group, two features, independent or with a
  correlation of 0.8; means and logarithms of scales of the population are N(0, 1), as
  the prior has it; contrasts are differences of two classes' coefficients.
- Few rows: two classes, two to ten rows a group; intercepts have a deviation of 2.
"""

import warnings

import numpy as np

from benchmarks.harness import Row, group, quiet, timed
from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    HierarchicalSoftmaxClassifier,
)
from skvrem.exceptions import FewGroupsWarning

LEVEL, WIDTH = 0.95, 1.959964
# How far off a share may be, and simulated sets.
CLOSE, SETS = 0.02, 2000
# Of skills that lie far apart, with two matches or five each, and of coefficients that
# are more than rows.
CLOSE_FEW = 0.05


def rows(run, label, simulate, close=CLOSE, sets=SETS):
    """Yield how far shares are from what intervals promise, by what they are of.

    ``simulate(rng)`` fits a set that it draws, and returns whether things lie in their
    intervals, by what they are.
    """
    shares, seconds = [], []
    with quiet():
        warnings.simplefilter("ignore", FewGroupsWarning)
        for seed in range(run.size(sets, 10)):
            rng = np.random.default_rng(seed)
            took, found = timed(lambda rng=rng: simulate(rng))
            seconds.append(took)
            shares.append({name: np.mean(inside) for name, inside in found.items()})
    for name in shares[0]:
        each = np.array([share[name] for share in shares])
        share, error = each.mean(), each.std() / np.sqrt(len(each))
        note = f"{100 * share:.1f} % +- {100 * error:.1f}"
        numbers = {"share": share, "error": error, "seconds": float(np.median(seconds))}
        # Counts come in steps: their intervals may hold more.
        more = share - LEVEL if name != "new counts" else 0.0
        off = max(LEVEL - share, more)
        yield Row(f"{label}: {name}", off, "", {}, close, note, error, name, numbers)


def inside(truth, interval):
    return (interval[..., 0] <= truth) & (truth <= interval[..., 1])


def around(mean, sd):
    return np.stack([mean - WIDTH * sd, mean + WIDTH * sd], axis=-1)


@group([("6", "2"), ("10", "2"), ("10", "4"), ("30", "4"), ("300", "10")])
def regression(run, n, d):
    """Linear regression: coefficients, and new targets."""
    n, d = int(n), int(d)

    def simulate(rng):
        X, beta = rng.normal(size=(n + 20, d)), rng.normal(size=d)
        noise = np.exp(0.5 * rng.normal())
        y = X @ beta + 1.0 + noise * rng.normal(size=n + 20)
        model = BayesianGLMRegressor().fit(X[:n], y[:n])
        table = model.summary()
        ends = table[["coefficient 2.5 %", "coefficient 97.5 %"]].to_numpy()
        new = inside(y[n:], model.predict_interval(X[n:]))
        return {"coefficients": inside(beta, ends[:d]), "new targets": new}

    yield from rows(run, f"{n} rows, {d} features", simulate)


@group([("50", "2"), ("500", "5")])
def counts(run, n, d):
    """Negative binomial regression: coefficients, and new counts (at least 95 %)."""
    n, d = int(n), int(d)

    def simulate(rng):
        X, beta = rng.normal(size=(n + 20, d)), 0.3 * rng.normal(size=d)
        mean = np.exp(X @ beta + 1.5)
        y = rng.negative_binomial(2.0, 2.0 / (2.0 + mean))
        model = BayesianGLMRegressor("negative-binomial").fit(X[:n], y[:n])
        coefficients = inside(beta, around(model.coef_, model.coef_std_))
        new = inside(y[n:], model.predict_interval(X[n:]))
        return {"coefficients": coefficients, "new counts": new}

    yield from rows(run, f"{n} rows, {d} features", simulate)


@group([("20", "6", "1"), ("200", "6", "1"), ("150", "6", "2"), ("500", "8", "3")])
def components(run, n, d, k):
    """Probabilistic principal components: loadings."""
    n, d, k = int(n), int(d), int(k)

    def simulate(rng):
        W = rng.normal(size=(k, d))
        X = rng.normal(size=(n, k)) @ W + 0.7 * rng.normal(size=(n, d))
        model = BayesianPPCA(k, prior_scale=1.0, random_state=0).fit(X)
        u, _, v = np.linalg.svd(model.components_ @ W.T)
        alone = model.posterior_.scale.reshape(k, d)
        found = {"loadings": model.components_std_, "of independent loadings": alone}
        truth = u @ v @ W
        return {
            name: inside(truth, around(model.components_, sd))
            for name, sd in found.items()
        }

    for row in rows(run, f"{n} rows, {d} features, {k} components", simulate):
        yield row._replace(target=CLOSE if row.key == "loadings" else None)


@group(
    {
        "8-60": (8, 60, 1.0),
        "20-600": (20, 600, 1.0),
        "8-60-learned": (8, 60, "learn"),
        "20-600-learned": (20, 600, "learn"),
    }
)
def skills(run, n_items, n, scale):
    """Bradley-Terry: differences of skills, and the advantage of being at home."""

    def simulate(rng):
        skill, home = rng.normal(size=n_items), 0.4
        a = rng.integers(n_items, size=n)
        b = (a + rng.integers(1, n_items, size=n)) % n_items
        at_home = rng.integers(2, size=n)
        u = skill[a] - skill[b] + home * at_home
        odds = np.stack([np.exp(-u / 2), np.full(n, 0.5), np.exp(u / 2)])
        ends = np.cumsum(odds / odds.sum(axis=0), axis=0)
        y = 0.5 * (rng.uniform(size=n) > ends[:2]).sum(axis=0)
        model = BradleyTerry(scale, ties="davidson", home_advantage=True)
        model.fit(np.stack([a, b, at_home], axis=1), y)
        items = model.items_
        first, second = np.triu_indices(len(items), 1)
        found = model.difference_interval(items[first], items[second])
        truth = skill[items[first]] - skill[items[second]]
        ends = np.stack([found.lower, found.upper], axis=1)
        mean, sd = model.home_advantage_, model.home_advantage_std_
        return {
            "differences": inside(truth, ends),
            "home advantage": inside(home, around(mean, sd)),
        }

    learned = ", learned scale" if scale == "learn" else ""
    yield from rows(run, f"{n} matches of {n_items}{learned}", simulate)


@group(
    {
        "200-400": (200, 400, 3.0, 200),
        "1200-2400": (1200, 2400, 3.0, 20),
        "1200-2400-nearer": (1200, 2400, 1.5, 20),
        "1200-6000": (1200, 6000, 3.0, 20),
        "3000-6000": (3000, 6000, 3.0, 10),
    }
)
def few_matches(run, n_items, n, spread, sets):
    """Skills of items with a few matches each, whose scale is learned."""

    def simulate(rng):
        skill = spread * rng.normal(size=n_items)
        a = rng.integers(n_items, size=n)
        b = (a + rng.integers(1, n_items, size=n)) % n_items
        y = (skill[a] - skill[b] + rng.logistic(size=n) > 0.0) + 0.0
        warnings.filterwarnings("ignore", "The items fall into")
        model = BradleyTerry().fit(np.stack([a, b], axis=1), y)
        truth = skill[model.items_]
        truth = truth - truth.mean()
        return {"skills": inside(truth, around(model.skill_, model.skill_std_))}

    label = f"{n} matches of {n_items}, spread {spread:g}"
    yield from rows(run, label, simulate, close=CLOSE_FEW, sets=sets)


@group(
    [
        ("80", "160", "0.4", "200"),
        ("150", "400", "0.2", "200"),
        ("400", "600", "0.2", "100"),
        ("6000", "1001", "0.3", "5"),
    ]
)
def many_coefficients(run, n, d, spread, sets):
    """Classification of more coefficients than rows, or than a full rank has."""
    n, d, spread = int(n), int(d), float(spread)

    def simulate(rng):
        coef, X = spread * rng.normal(size=d), rng.normal(size=(n, d))
        y = X @ coef > rng.logistic(size=n)
        fit = BayesianLogisticRegression(random_state=0).fit(X, y)
        return {"coefficients": inside(coef, around(fit.coef_[0], fit.coef_std_[0]))}

    label = f"{n} rows, {d} coefficients N(0, {spread}^2)"
    yield from rows(run, label, simulate, CLOSE_FEW, int(sets))


@group(
    [
        ("12", "0", "fit"),
        ("12", "0.8", "fit"),
        ("50", "0", "fit"),
        ("300", "0", "fit"),
        ("12", "0", "stream"),
        ("12", "0", "meanfield"),
        ("50", "0", "meanfield"),
    ]
)
def groups(run, n_groups, correlation, how):
    """Coefficients by group: population, groups, and contrasts of classes."""
    n_groups, correlation = int(n_groups), float(correlation)
    d, k, each = 2, 3, 10
    mix = np.linalg.cholesky(correlation + (1.0 - correlation) * np.eye(d))

    def simulate(rng):
        mean, log_tau = rng.normal(size=(2, k, d))
        Z = mean + np.exp(log_tau) * rng.normal(size=(n_groups, k, d))
        group = np.repeat(np.arange(n_groups), each)
        X = rng.normal(size=(each * n_groups, d)) @ mix.T
        z = np.einsum("nj,nkj->nk", X, Z[group])
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        posterior = "meanfield" if how == "meanfield" else "nested"
        model = HierarchicalSoftmaxClassifier(
            prior_scale=1.0, fit_intercept=False, posterior=posterior
        )
        if how == "stream":
            for batch in np.array_split(rng.permutation(len(X)), 5):
                model.partial_fit(X[batch], y[batch], np.arange(k), groups=group[batch])
        else:
            model.fit(X, y, groups=group)
        of_mean = around(model.population_mean_, model.population_mean_std_)
        of_group = around(model.group_coef_, model.group_coef_std_)
        sd = model.population_log_scale_std_
        of_scale = around(np.log(model.population_scale_), sd)
        draws = model.sample_posterior(500, random_state=0)["group_coef"]
        ends = np.quantile(draws[:, :, 0] - draws[:, :, 1], [0.025, 0.975], axis=0)
        return {
            "means": inside(mean, of_mean),
            "groups": inside(Z, of_group),
            "contrasts": inside(Z[:, 0] - Z[:, 1], np.moveaxis(ends, 0, -1)),
            "log scales": inside(log_tau, of_scale),
        }

    kind = {"fit": "", "stream": ", five batches", "meanfield": ", mean field"}[how]
    alike = f", correlated {correlation:g}" if correlation else ""
    sets = SETS if n_groups < 300 else 400
    for row in rows(run, f"{n_groups} groups{alike}{kind}", simulate, sets=sets):
        close = 0.05 if row.key == "log scales" else CLOSE
        yield row._replace(target=close if how == "fit" else None)


VARYING = [
    ("logistic", "12"),
    ("gaussian", "12"),
    ("poisson", "12"),
    ("logistic", "50"),
]


@group(VARYING)
def varying(run, family, n_groups):
    """Intercepts and slopes by group, ten rows each: population, groups, scales."""
    n_groups, each = int(n_groups), 10
    # Rates of counts are to have no more than some dozens of standard deviations.
    size = {"logistic": 1.0, "gaussian": 1.0, "poisson": 0.4}[family]
    prior = ("prior_scale", "intercept_prior_scale", "population_scale")

    def simulate(rng):
        b, log_tau = size * rng.normal(size=3), np.log(size) + rng.normal(size=2)
        Z = b[:2] + np.exp(log_tau) * rng.normal(size=(n_groups, 2))
        place = np.repeat(np.arange(n_groups), each)
        X = rng.normal(size=(place.size, 2))
        eta = Z[place, 0] + Z[place, 1] * X[:, 0] + b[2] * X[:, 1]
        how = dict.fromkeys(prior, size) | {"varying": [0]}
        if family == "logistic":
            p, y = 1.0 / (1.0 + np.exp(-eta)), np.zeros(eta.size, int)
            while y.min() == y.max():  # some sets have hardly a second class
                y = (rng.random(eta.size) < p).astype(int)
            model = BayesianLogisticRegression(**how)
        elif family == "poisson":
            y = rng.poisson(np.exp(np.minimum(eta, 12.0)))
            model = BayesianGLMRegressor("poisson", **how)
        else:
            y = eta + np.exp(rng.normal()) * rng.normal(size=eta.size)
            model = BayesianGLMRegressor(**how)
        model.fit(X, y, groups=place)
        mean = np.append(model.intercept_, model.coef_)
        sd = np.append(model.intercept_std_, model.coef_std_)
        own = np.column_stack([model.group_intercept_, model.group_coef_[:, 0]])
        spread = [model.group_intercept_std_, model.group_coef_std_[:, 0]]
        scale = [model.population_intercept_scale_, model.population_scale_[0]]
        of_scale = np.array(
            [
                model.population_intercept_log_scale_std_,
                model.population_log_scale_std_[0],
            ]
        )
        return {
            "means": inside(b, around(mean, sd)),
            "groups": inside(Z, around(own, np.column_stack(spread))),
            "log scales": inside(log_tau, around(np.log(scale), of_scale)),
        }

    for row in rows(run, f"{family}, {n_groups} groups, varying", simulate):
        yield row._replace(target=0.06 if row.key == "log scales" else CLOSE)


@group({f"{each}-rows": (each,) for each in (2, 4, 10)})
def few_rows(run, each):
    """Two classes by group, of few rows each, intercepts 2 apart: the scale found."""
    b, tau, n_groups = np.array([0.0, 1.0]), 2.0, 600
    scales = []

    def simulate(rng):
        place = np.repeat(np.arange(n_groups), each)
        X = rng.normal(size=(place.size, 1))
        eta = b[0] + tau * rng.normal(size=n_groups)[place] + b[1] * X[:, 0]
        y = (rng.random(eta.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
        model = BayesianLogisticRegression().fit(X, y, groups=place)
        scale = model.population_intercept_scale_
        spread = model.population_intercept_log_scale_std_
        scales.append(scale)
        sd = np.append(model.intercept_std_, model.coef_std_)
        return {
            "means": inside(b, around(np.append(model.intercept_, model.coef_), sd)),
            "log scale": inside(np.log(tau), around(np.log(scale), spread)),
        }

    for row in rows(run, f"{n_groups} groups of {each} rows", simulate, sets=100):
        found = f"; scales of {np.mean(scales):.2f} for {tau:g}"
        yield row._replace(
            note=row.note + found if row.key == "log scale" else row.note
        )
