"""Posteriors beside those of NUTS, on ten models.

NumPyro's NUTS in double precision, 4 chains of 1,000 draws after 1,000 of warm-up, of
the same log density. Shown is how far our means lie from its, in its standard
deviations, as a root mean square over the parameters; beside it are the standard
deviations, ours over its: the median, the least and the largest. A mean of 4,000 draws
is known to about 0.02.

Rows are simulated from the model but of iris and the eight schools. Contrasts are those
of classes, differences from the mean class, as only the prior knows the rest; log
scales stand for scales, and the square root of a variance for noise that is integrated.
"""

import warnings

import numpy as np
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Row, group, quiet
from benchmarks.peers.numpyro import nuts
from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BradleyTerry,
    HierarchicalSoftmaxClassifier,
    VariationalInference,
)
from skvrem.exceptions import FewGroupsWarning, PosteriorWarning

CHAINS, DRAWS = 4, 1000


def logistic(jnp):
    """Logistic regression, 200 rows, 5 features."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(200, 5)), np.ones(200)])
    y = (X @ rng.normal(size=6) + rng.logistic(size=200) > 0.0).astype(float)
    model = BayesianLogisticRegression(1.0, intercept_prior_scale=1.0).fit(X[:, :-1], y)

    def density(z):
        eta = X @ z
        return y @ eta - jnp.logaddexp(0.0, eta).sum() - 0.5 * z @ z

    return density, 6, None, model.posterior_


def softmax(jnp):
    """Softmax regression, iris: contrasts."""
    X, y = load_iris(return_X_y=True)
    X = np.column_stack([StandardScaler().fit_transform(X), np.ones(150)])
    model = BayesianLogisticRegression(1.0, intercept_prior_scale=1.0).fit(X[:, :-1], y)

    def density(z):
        eta = X @ z.reshape(3, 5).T
        norm = jnp.logaddexp(jnp.logaddexp(eta[:, 0], eta[:, 1]), eta[:, 2])
        return (eta[np.arange(150), y] - norm).sum() - 0.5 * z @ z

    def contrasts(z):
        z = z.reshape(-1, 3, 5)
        return (z - z.mean(axis=1, keepdims=True)).reshape(-1, 15)

    return density, 15, contrasts, model.posterior_


def counts(jnp):
    """Poisson regression, 100 rows, 4 features."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=(100, 4)), np.ones(100)])
    y = rng.poisson(np.exp(X @ (0.5 * rng.normal(size=5)))).astype(float)
    given = {"prior_scale": 1.0, "intercept_prior_scale": 1.0}
    model = BayesianGLMRegressor("poisson", **given).fit(X[:, :-1], y)

    def density(z):
        eta = X @ z
        return y @ eta - jnp.exp(eta).sum() - 0.5 * z @ z

    return density, 5, None, model.posterior_


def regression(jnp):
    """Regression with unknown noise, 15 rows, 3 features."""
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=(15, 3)), np.ones(15)])
    y = X @ rng.normal(size=4) + 0.7 * rng.normal(size=15)
    given = {"prior_scale": 2.0, "intercept_prior_scale": 2.0}
    model = BayesianGLMRegressor(**given).fit(X[:, :-1], y)

    def density(z):  # a flat prior of the logarithm of the noise
        away = y - X @ z[:4]
        square = away @ away + 1e-9
        value = -0.5 * square * jnp.exp(-2.0 * z[4]) - 15.0 * z[4]
        return value - 0.5 * z[:4] @ z[:4] / 4.0

    draws = model.sample_posterior(20_000, random_state=0)
    ours = np.column_stack([draws["coef"], draws["intercept"]])
    return density, 5, lambda z: z[:, :4], ours


def skills(jnp):
    """Bradley-Terry, 12 items, 80 matches: differences from the mean item."""
    rng = np.random.default_rng(3)
    first = rng.integers(12, size=80)
    second = (first + rng.integers(1, 12, size=80)) % 12
    skill = rng.normal(size=12)
    won = skill[first] - skill[second] + rng.logistic(size=80) > 0.0
    X = np.column_stack([first, second])
    model = BradleyTerry(1.0).fit(X, won.astype(float))
    sign, scale = np.where(won, 1.0, -1.0), model.prior_scale

    def density(z):
        u = sign * (z[first] - z[second])
        return -jnp.logaddexp(0.0, -u).sum() - 0.5 * z @ z / scale**2

    def centred(z):
        return z - z.mean(axis=1, keepdims=True)

    return (
        density,
        12,
        centred,
        model.sample_posterior(20_000, random_state=0)["skills"],
    )


def groups(jnp):
    """Coefficients by group, 12 groups of 20, 2 features, 3 classes: contrasts."""
    rng, M, k, d = np.random.default_rng(4), 12, 3, 2
    mean, log_tau = rng.normal(size=(k, d)), 0.5 * rng.normal(size=(k, d))
    Z = mean + np.exp(log_tau) * rng.normal(size=(M, k, d))
    place = np.repeat(np.arange(M), 20)
    X = rng.normal(size=(240, d))
    eta = np.einsum("nj,nkj->nk", X, Z[place])
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)
    model = HierarchicalSoftmaxClassifier(prior_scale=1.0, fit_intercept=False)
    model.fit(X, y, groups=place)

    def parts(z):
        mean, log_tau = z[..., :6], z[..., 6:12]
        own = z[..., 12:].reshape(*z.shape[:-1], M, 6)
        return mean, log_tau, mean[..., None, :] + jnp.exp(log_tau)[..., None, :] * own

    def density(z):
        _, _, own = parts(z)
        eta = (own.reshape(M, k, d)[place] * X[:, None]).sum(axis=2)
        norm = jnp.logaddexp(jnp.logaddexp(eta[:, 0], eta[:, 1]), eta[:, 2])
        return (eta[np.arange(240), y] - norm).sum() - 0.5 * z @ z

    def said(mean, log_tau, own):
        shape = (len(mean), -1, k, d)
        both = (np.asarray(part).reshape(shape) for part in (mean, own))
        both = (part - part.mean(axis=2, keepdims=True) for part in both)
        flat = (part.reshape(len(mean), -1) for part in both)
        return np.column_stack([*flat, np.asarray(log_tau).reshape(len(mean), -1)])

    draws = model.sample_posterior(4000, random_state=0)
    names = "population_mean", "population_scale", "group_coef"
    mean, scale, own = (draws[name] for name in names)
    ours = said(mean, np.log(scale), own)
    return density, 12 + 6 * M, lambda z: said(*parts(z)), ours


def varying(jnp, family, estimator, draw, likelihood, n_noise=0):
    """Return what the table wants of intercepts and slopes of 15 groups of 20 rows.

    The posterior's numbers are two scales' logarithms, that of a noise, the means of
    slope, intercept and a second slope, and standard normal numbers of groups.
    """
    rng, M = np.random.default_rng(7), 15
    place, X = np.repeat(np.arange(M), 20), rng.normal(size=(300, 2))
    U = np.array([0.6, 0.4]) * rng.normal(size=(M, 2))
    eta = 0.3 + 0.5 * X @ [1.0, -1.0] + U[place, 0] + U[place, 1] * X[:, 0]
    y = draw(eta, rng)
    scales = {"prior_scale": 1.0, "intercept_prior_scale": 1.0, "population_scale": 0.5}
    model = estimator(**family, **scales, varying=[0]).fit(X, y, groups=place)
    first = 2 + n_noise

    def parts(z):
        tau = 0.5 * jnp.exp(z[..., None, :2])
        own = z[..., first + 3 :].reshape(*z.shape[:-1], M, 2)
        b = z[..., first : first + 3]
        return b, b[..., None, :2] + tau * own

    def density(z):
        b, groups = parts(z)
        eta = groups[place, 0] + groups[place, 1] * X[:, 0] + b[2] * X[:, 1]
        normal = jnp.concatenate([z[:2], z[first:]])
        return likelihood(y, eta, z[2]) - 0.5 * normal @ normal

    def said(z):
        b, groups = parts(z)
        few = np.log(0.5) + np.asarray(z[:, :2]), np.asarray(z[:, 2:first])
        flat = np.asarray(groups).reshape(len(z), -1)
        return np.column_stack([*few, np.asarray(b), flat])

    draws = model.sample_posterior(4000, random_state=0)
    names = "intercept", "coef", "group_intercept", "group_coef"
    intercept, coef, u, v = (draws[name] for name in names)
    scales = draws["population_intercept_scale"], draws["population_scale"][:, 0]
    noise = [np.log(draws["noise_scale"])] if n_noise else []
    groups = np.stack([u, v[..., 0]], axis=2).reshape(len(u), -1)
    ours = np.column_stack([*np.log(scales), *noise, intercept, coef, groups])
    return density, first + 3 + 2 * M, said, ours


def varying_logistic(jnp):
    """Logistic regression, 15 groups of 20 with intercepts and slopes."""

    def draw(eta, rng):
        return (rng.random(eta.shape) < 1.0 / (1.0 + np.exp(-eta))).astype(float)

    def likelihood(y, eta, _):
        return (y * eta - jnp.logaddexp(0.0, eta)).sum()

    return varying(jnp, {}, BayesianLogisticRegression, draw, likelihood)


def varying_counts(jnp):
    """Poisson regression, 15 groups of 20 with intercepts and slopes."""

    def draw(eta, rng):
        return rng.poisson(np.exp(eta)).astype(float)

    def likelihood(y, eta, _):
        return (y * eta - jnp.exp(eta)).sum()

    family = {"family": "poisson"}
    return varying(jnp, family, BayesianGLMRegressor, draw, likelihood)


def varying_means(jnp):
    """Regression with unknown noise, 15 groups of 20 with intercepts and slopes."""

    def draw(eta, rng):
        return eta + 0.5 * rng.normal(size=eta.shape)

    def likelihood(y, eta, log_noise):
        square = ((y - eta) ** 2).sum() * jnp.exp(-2.0 * log_noise)
        return -0.5 * square - y.size * log_noise

    return varying(jnp, {}, BayesianGLMRegressor, draw, likelihood, n_noise=1)


def own(likelihood, data, start, **given):
    """Fit a model of one's own."""
    from skvrem.vi import JaxModel

    model = JaxModel(likelihood, data, start, **given)
    return VariationalInference(model, random_state=0).fit()


def robust(jnp):
    """Student t regression with unknown scale, by JaxModel."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=80)
    y = 1.0 + 2.0 * x + 0.5 * rng.standard_t(3.0, size=80)

    def likelihood(p, row):
        r = (row["y"] - p["a"] - p["b"] * row["x"]) / p["scale"]
        return -2.0 * jnp.log1p(r**2 / 3.0) - jnp.log(p["scale"])

    def prior(p):  # of the logarithm of the scale, N(0, 1), with the derivative
        log_scale = jnp.log(p["scale"])
        return -0.5 * (p["a"] ** 2 + p["b"] ** 2 + log_scale**2) - log_scale

    start = {"a": 0.0, "b": 0.0, "scale": 1.0}
    given = {"log_prior": prior, "positive": ["scale"]}
    fitted = own(likelihood, {"x": x, "y": y}, start, **given)

    def density(z):
        r = (y - z[0] - z[1] * x) * jnp.exp(-z[2])
        value = (-2.0 * jnp.log1p(r**2 / 3.0)).sum() - 80.0 * z[2]
        return value - 0.5 * z @ z

    return density, 3, None, fitted.posterior_


def schools(jnp):
    """Eight schools, not centred, by JaxModel."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def likelihood(p, row):
        effect = p["mu"] + jnp.exp(p["log_tau"]) * p["own"][row["school"]]
        return -0.5 * ((row["y"] - effect) / row["sd"]) ** 2

    def prior(p):
        of_population = (p["mu"] / 5.0) ** 2 + (p["log_tau"] - 1.0) ** 2
        return -0.5 * (of_population + p["own"] @ p["own"])

    start = {"log_tau": 0.0, "mu": 0.0, "own": np.zeros(8)}
    data = {"school": np.arange(8), "sd": sd, "y": y}
    fitted = own(likelihood, data, start, log_prior=prior)

    def density(z):
        effect = z[1] + jnp.exp(z[0]) * z[2:]
        value = -0.5 * jnp.sum(((y - effect) / sd) ** 2)
        of_population = (z[1] / 5.0) ** 2 + (z[0] - 1.0) ** 2
        return value - 0.5 * (of_population + z[2:] @ z[2:])

    return density, 10, None, fitted.posterior_


def effects(jnp):
    """Poisson counts of 30 units with an effect each, by JaxModel."""
    rng = np.random.default_rng(6)
    unit = np.repeat(np.arange(30), 3)
    y = rng.poisson(np.exp(1.0 + 0.6 * rng.normal(size=30))[unit]).astype(float)

    def likelihood(p, row):
        eta = p["mean"] + jnp.exp(p["log_scale"]) * p["own"][row["unit"]]
        return row["y"] * eta - jnp.exp(eta)

    def prior(p):
        return -0.5 * (p["mean"] ** 2 + p["log_scale"] ** 2 + p["own"] @ p["own"])

    start = {"log_scale": 0.0, "mean": 0.0, "own": np.zeros(30)}
    fitted = own(likelihood, {"unit": unit, "y": y}, start, log_prior=prior)

    def density(z):
        eta = z[1] + jnp.exp(z[0]) * z[2:][unit]
        return y @ eta - jnp.exp(eta).sum() - 0.5 * z @ z

    return density, 32, None, fitted.posterior_


def shares(jnp):
    """A mixture's share and two rates, by JaxModel."""
    rng = np.random.default_rng(7)
    y = rng.poisson(np.where(rng.random(150) < 0.3, 9.0, 2.0)).astype(float)

    def each(q, low, high, y):
        first = jnp.log1p(-q) + y * jnp.log(low) - low
        return jnp.logaddexp(first, jnp.log(q) + y * jnp.log(high) - high)

    def likelihood(p, row):
        return each(p["q"], p["low"], p["high"], row)

    def prior(p):  # flat of the share, exponential of the rates
        return -0.1 * (p["low"] + p["high"])

    start = {"high": 8.0, "low": 2.0, "q": 0.4}
    given = {"positive": ["low", "high"], "unit_interval": ["q"]}
    fitted = own(likelihood, y, start, log_prior=prior, **given)

    def density(z):
        high, low, q = jnp.exp(z[0]), jnp.exp(z[1]), 1.0 / (1.0 + jnp.exp(-z[2]))
        value = each(q, low, high, y).sum() - 0.1 * (low + high)
        return value + z[0] + z[1] + jnp.log(q) + jnp.log1p(-q)

    begin = np.array([np.log(8.0), np.log(2.0), 0.0])
    return density, begin, None, fitted.posterior_


MODELS = (
    logistic,
    softmax,
    counts,
    regression,
    skills,
    groups,
    varying_logistic,
    varying_counts,
    varying_means,
    robust,
    schools,
    effects,
    shares,
)


@group([model.__name__ for model in MODELS])
def means(run, name):
    """How far means are from those of NUTS, in its standard deviations."""
    import jax

    with jax.enable_x64(True), quiet():
        for kind in (FewGroupsWarning, PosteriorWarning):
            warnings.simplefilter("ignore", kind)
        model = next(model for model in MODELS if model.__name__ == name)
        density, start, said, ours = model(jax.numpy)
        start = np.zeros(start) if isinstance(start, int) else start
        draws = nuts(density, start, CHAINS, run.size(DRAWS, 100))
    draws = draws if said is None else said(draws)
    if hasattr(ours, "sample"):
        ours = ours.sample(20_000, np.random.default_rng(0))
        ours = ours if said is None else said(ours)
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    far = np.sqrt(np.mean(np.square((ours.mean(axis=0) - mean) / sd)))
    ratio = ours.std(axis=0) / sd
    note = f"deviations {np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f})"
    label = model.__doc__.strip().rstrip(".")
    yield Row(label, float(far), "", {}, 0.2, note, key=name)
