"""Models and data that the laws are tried on, by name.

Every folder of a model has cases here; a test sees to it. A case is a function of
nothing that returns a model, a point away from any optimum, and data.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem import hmm
from skvrem.data import as_source
from skvrem.factorial._model import FactorialModel
from skvrem.factorial._model_bound import Parameters as FactorialParameters
from skvrem.hmm._input import Sequences
from skvrem.hmm._model import HMMModel, Parameters
from skvrem.hmm.forward_backward._source import SequenceSource
from skvrem.hmm.transitions._homogeneous import Initial
from skvrem.linear._model import LogisticModel
from skvrem.linear._model import Parameters as Theta
from skvrem.linear._model_curvature import Curvature
from skvrem.mixture._model import GaussianMixtureModel
from skvrem.mixture._start import _spheres
from skvrem.topics._documents import as_documents
from skvrem.topics.lda._model import LDAModel, LocallyTemperedLDAModel
from skvrem.topics.lda._model_collapsed import ROUNDS, CollapsedLDAModel
from skvrem.topics.plsa._model import PLSAModel
from skvrem.vi.dropout._model import DropoutModel, Network, Weights
from skvrem.vi.gaussian._model import Diagonal, GaussianModel, Point
from skvrem.vi.gaussian._model_families import Logistic, ScatteredSoftmax, Softmax
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._model_steps import SteppingModel
from skvrem.vi.hierarchical._model import HierarchicalModel, HierarchicalPrior
from tests import multinomial_mixture as multinomial
from tests.hmm.own_emissions import Normal


class Case(NamedTuple):
    model: Any
    point: Any
    data: Any
    X: Any
    folder: str
    bounded: bool = True  # a step of batch EM raises one and the same objective
    size: float = 1.0  # of parameters
    solvers: tuple = ("batch", "squarem", "stochastic", "svrg", "saga", "incremental")
    name: str = ""  # in CASES
    exact: bool = True  # or tables hold expansions by differences, no bounds


def gaussian(covariance_type, missing=False, weighted=False, keep_sums=True):
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 4)) * 2.5
    X = means[rng.integers(3, size=300)] + rng.normal(size=(300, 4))
    X[:, 1] += 0.7 * X[:, 0]
    if missing:
        X[rng.uniform(size=X.shape) < 0.2] = np.nan
        X[5] = np.nan
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    model = GaussianMixtureModel(covariance_type, 1e-6, missing, keep_sums)
    start = _spheres(covariance_type, means + rng.normal(size=means.shape), 2.0)
    point = model.start(start._replace(weights=np.array([0.2, 0.3, 0.5])))
    return Case(model, point, as_source(X, weight), X, "mixture")


def counts(keep_sums=True, weighted=False):
    rng = np.random.default_rng(1)
    words = rng.dirichlet(np.full(30, 0.3), size=3)
    X = np.stack([rng.multinomial(20, words[z]) for z in rng.integers(3, size=300)])
    X = sp.csr_matrix(X.astype(float))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    total = 300 if weight is None else weight.sum()
    model = multinomial.MultinomialMixtureModel(0.1, total, keep_sums)
    near = 0.5 * words + 0.5 * rng.dirichlet(np.ones(30), size=3)
    point = model.start(
        multinomial.Parameters(np.array([0.2, 0.3, 0.5]), np.ascontiguousarray(near.T))
    )
    return Case(model, point, as_source(X, weight), X, "tests")


def _planted_topics(rng):
    return rng.dirichlet(np.full(30, 0.2), size=3)


def documents(weighted=False, inner_iter=1, words_of_topics=False):
    rng = np.random.default_rng(2)
    topics = _planted_topics(rng)
    theta = rng.dirichlet(np.full(3, 0.3), size=120)
    lengths = 5 + 20 * theta.argmax(axis=1)
    X = rng.multinomial(lengths, theta @ topics)
    X[7] = 0
    X = sp.csr_array(X.astype(float))
    weight = rng.uniform(0.5, 2.0, 120) if weighted else None
    data = as_documents(X, weight)
    prior = rng.uniform(0.5, 2.0, (3, 30)) if words_of_topics else np.array(0.8)
    model = PLSAModel(
        np.array([0.3, 0.5, 0.2]), prior, data.total_weight, np.float64, inner_iter
    )
    near = 0.5 * topics + 0.5 * rng.dirichlet(np.ones(30), size=3)
    point = model.start((near.T, 0.5 * theta + 0.5 / 3))
    return Case(model, point, data, X, "plsa")


def factors(learn=True, full=True, keep_sums=True, weighted=False):
    rng = np.random.default_rng(3)
    parts = 1.5 * np.kron(np.eye(3), [1.0, 1.0]) + 0.2 * rng.normal(size=(3, 6))
    codes = rng.uniform(size=(300, 3)) < np.array([0.3, 0.5, 0.4])
    X = codes @ parts + 0.4 * rng.normal(size=(300, 6))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    data = as_source(X, weight)
    model = FactorialModel(
        data.total_weight,
        X.dtype,
        learn=(learn,) * 3,
        full=full,
        keep_sums=keep_sums,
        inner_iter=3,
    )
    near = parts + 0.2 * rng.normal(size=parts.shape)
    parameters = FactorialParameters(near, None, np.full(3, 0.4), 0.3, 0.8)
    return Case(model, model.start(parameters, data), data, X, "factorial")


def dirichlet_documents(weighted=False, words_of_topics=False, model=LDAModel):
    like = documents(weighted)
    rng = np.random.default_rng(3)
    prior = rng.uniform(0.5, 2.0, (3, 30)) if words_of_topics else np.array(0.8)
    model = model(
        np.array([1.3, 1.5, 1.2]), prior, like.data.total_weight, np.float64, 2000, 1e-9
    )
    # A document's posterior starts anew at every visit, so it must converge each time,
    # and to the same optimum: with sparse priors it may have several.
    # The start is near what the documents were drawn from: farther away, different
    # solvers may end in different optima.
    near = like.model.parameters(like.point).topics[:, :3]
    mass = like.data.total_weight / 3
    topics = mass * (0.2 * near + 0.8 * _planted_topics(np.random.default_rng(2)).T)
    point = model.start((topics + 0.1,))
    # Temperatures that documents choose change what is maximised.
    bounded = not isinstance(model, LocallyTemperedLDAModel)
    return Case(model, point, like.data, like.X, "lda", bounded, mass)


def collapsed_documents(weighted=False, words_of_topics=False):
    like = documents(weighted)
    rng = np.random.default_rng(3)
    prior = rng.uniform(0.5, 2.0, (3, 30)) if words_of_topics else np.array(0.8)
    model = CollapsedLDAModel(
        np.array([0.3, 0.5, 0.2]), prior, like.data.total_weight, np.float64, ROUNDS
    )
    near = like.model.parameters(like.point).topics[:, :3]
    point = model.start((near,), like.data.n_units)
    return Case(model, point, like.data, like.X, "lda", bounded=False)


def cut(data, batch, n_units):
    """Two blocks in place of one: its first units, and the rest as block 5."""
    if hasattr(batch, "stop"):
        at = batch.start + n_units
        return batch._replace(stop=at), batch._replace(start=at, block=5)
    ids = batch.ids[:n_units], batch.ids[n_units:]
    parts = [as_documents(data.X[i], _weight(data, i)).chunks().batches[0] for i in ids]
    return [
        part._replace(ids=i, block=block)
        for part, i, block in zip(parts, ids, (batch.block, 5), strict=True)
    ]


def _weight(data, ids):
    return data.weight[ids] if data.weight.size else None


SEARCHED = ("batch", "stochastic", "svrg", "quasi-newton")


def logistic(
    kind="gram", k=1, intercept=True, sparse=False, weighted=False, star=False
):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 4)) * [1.0, 2.0, 0.5, 1.0]
    if sparse:
        X = sp.csr_matrix(X * (rng.uniform(size=X.shape) < 0.5))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    p = 4 + intercept
    logits = X @ rng.normal(size=(4, max(2, k)))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1).astype(np.int32)
    ridge = np.ones(p)
    ridge[4:] = 0.0
    curvature = Curvature(kind, p, k if star else 1, rank=2)
    total = 300 if weight is None else weight.sum()
    model = LogisticModel(
        max(2, k), ridge, total, intercept, curvature, sample_rows=300
    )
    model.kind = "star" if star else "bound"
    theta = 0.1 * rng.normal(size=(p, k))
    if k > 1:  # where the ridge keeps it
        theta -= theta.mean(axis=1, keepdims=True)
    point = model.start(Theta(theta))
    return Case(
        model,
        point,
        as_source(X, weight, y),
        X,
        "linear",
        # A star is no bound.
        solvers=("stochastic",) if star else SEARCHED,
    )


def bayesian(structure, k=1, sparse=False, weighted=False):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 3)) * [1.0, 0.5, 0.7]
    if sparse:
        X = sp.csr_matrix(X * (rng.uniform(size=X.shape) < 0.6))
    weight = rng.uniform(0.5, 2.0, 120) if weighted else None
    logits = X @ rng.normal(size=(3, max(2, k)))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    family = Logistic() if k == 1 else Softmax(k, 120)
    y = y.astype(float) if k == 1 else y.astype(np.int32)
    data = as_source(X, weight)
    prior = MeanField(np.zeros(4 * k), np.ones(4 * k))
    model = GaussianModel(family, y, prior, data.total_weight, True, structure)
    point = model.start(0.1 * rng.normal(size=(4, k)), data, rng)
    own = "ascent" if structure == "full" else "quasi-newton"
    # The nodes of several classes give a bound whose slope errs a little.
    bounded = k == 1
    return Case(model, point, data, X, "vi", bounded, solvers=("batch", own))


def hierarchical(weighted=False):
    """Three classes of a few groups, whose sums touch the groups of a batch only."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 2))
    group = np.sort(rng.integers(5, size=120))
    Z = rng.normal(size=(5, 3, 3))
    logits = np.einsum("nj,njk->nk", np.column_stack([X, np.ones(120)]), Z[group])
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1).astype(np.int32)
    data = as_source(X, rng.uniform(0.5, 2.0, 120) if weighted else None)
    prior = HierarchicalPrior(np.ones((3, 1)), 0.0, 1.0)
    model = HierarchicalModel(Softmax(3, 120), y, group, 5, prior, data.total_weight)
    point = model.start(data)
    return Case(model, point, data, X, "vi", False, solvers=("quasi-newton",))


def dropout(k, hidden=()):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(120, 3)) * [1.0, 0.5, 0.7]
    logits = X @ rng.normal(size=(3, k))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    family = Logistic() if k == 2 else ScatteredSoftmax(k, 120)
    y = y.astype(float) if k == 2 else y.astype(np.int32)
    data = as_source(X, rng.uniform(0.5, 2.0, 120))
    network = Network((3, *hidden, family.n_predictors), "tanh", 0.5)
    model = DropoutModel(family, y, network, 10.0, data)
    point = Point(Weights(network.start(rng)))
    # The nodes of several classes give an objective whose slope errs a little, and
    # biases may move together by rounding.
    bounded = k == 2 and not hidden
    own = ("batch", "quasi-newton") if bounded else ("quasi-newton",)
    return Case(model, point, data, X, "vi", bounded, solvers=own)


def hidden_markov(
    family,
    keep_sums=True,
    missing=False,
    weighted=False,
    prior=1.0,
    transitions=None,
    n=3,
):
    """Sixty sequences of some states that are apart."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(5, 30, 60)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    states = rng.integers(n, size=bounds[-1] // 4 + 1).repeat(4)[: bounds[-1]]
    kinds = {
        "gaussian": hmm.Gaussian(),
        "full": hmm.Gaussian("full"),
        "tied": hmm.Gaussian("tied"),
        "poisson": hmm.Poisson(),
        "bernoulli": hmm.Bernoulli(),
        "categorical": hmm.Categorical(prior=prior),
        "gamma": hmm.Gamma(zero_inflated=True),
        "von mises": hmm.VonMises(),
        "mixture": hmm.MixtureGaussian(2),
        "density": Normal(),
        "codes": hmm.Categorical(prior=1.5),
        "regression": hmm.Regression("gaussian", [1]),
        "counts by covariates": hmm.Regression("poisson", [1]),
        "product": hmm.Product(
            [("depth", hmm.Gaussian(), [1]), ("end", hmm.Bernoulli(), [0])]
        ),
    }
    if family == "gamma":
        X = rng.gamma(5.0, np.array([[1, 9], [4, 2], [16, 0.5]])[states])
        X[rng.uniform(size=X.shape) < 0.1] = 0.0
    elif family == "von mises":
        X = rng.vonmises(np.array([[0.0, 1.0], [2.0, -1.0], [-2.0, 3.0]])[states], 6.0)
    elif family == "product":
        X = 3.0 * states[:, None] + rng.normal(size=(len(states), 2))
        X[:, 0] = rng.random(len(states)) < np.array([0.1, 0.5, 0.9])[states]
    elif family == "poisson":
        X = rng.poisson(np.array([[1, 4], [9, 2], [20, 30]])[states])
    elif family == "bernoulli":
        X = rng.random((len(states), 6)) < np.where(
            states[:, None] == [0, 0, 1, 1, 2, 2], 0.9, 0.1
        )
    elif family == "categorical":
        edges = np.cumsum(np.full((n, 4), 0.05) + 0.8 * np.eye(n, 4), axis=1)
        X = (rng.random((len(states), 1)) > edges[states][:, :-1]).sum(1, keepdims=True)
    elif family == "codes":
        X = (8 * states + rng.integers(12, size=len(states)))[:, None]
    elif family in ("regression", "counts by covariates"):
        z = rng.normal(size=len(states))
        mean = 1.5 * states + np.array([-0.5, 0.0, 0.5])[states] * z
        y = mean + 0.5 * rng.normal(size=len(states))
        X = np.column_stack(
            [y if family == "regression" else rng.poisson(np.exp(mean)), z]
        )
    else:
        X = 3.0 * states[:, None] + rng.normal(size=(len(states), 2))
        X[:, 1] -= 0.4 * X[:, 0]
    X = X.astype(float)
    if missing:
        X[rng.uniform(size=X.shape) < 0.1] = np.nan
        X[5] = np.nan
    weight = rng.uniform(0.5, 2.0, len(lengths)) if weighted else None
    emission = kinds[family].open(X, n)
    X = emission.enter(X)
    inputs = None
    if transitions is None:
        transitions = hmm.Homogeneous(prior=prior)
    else:
        inputs = rng.integers(2, size=(len(X), len(transitions.columns))) + 0.0
    transitions = transitions.open(n)
    transitions.prepare(inputs)
    sequences = Sequences(X, bounds, weight, None, inputs)
    data = SequenceSource(sequences, emission, transitions)
    emission = data.emission
    initial = Initial("free", None, prior, n, transitions.first)
    model = HMMModel(
        emission,
        data.features,
        initial,
        transitions,
        data.total_weight,
        keep_sums=keep_sums,
    )
    guess = np.where(rng.uniform(size=len(states)) < 0.6, states, rng.integers(n))
    guess = guess * emission.n_parts + rng.integers(emission.n_parts, size=len(guess))
    members = (guess == np.arange(n * emission.n_parts)[:, None]).astype(float)
    guess //= emission.n_parts
    other = np.full((n, n), 0.2) + 0.4 * np.eye(n), np.array([0.2, 0.3, 0.5])
    if inputs is not None:
        other = transitions.start(guess[:-1], guess[1:], inputs[:-1]), initial.start()
    parameters = Parameters(
        other[1],
        other[0],
        model.fit_clusters(data.rows, np.arange(len(X)), members.T, {}),
    )
    solvers = (*Case._field_defaults["solvers"], "quasi-newton")
    start, exact = model.start(parameters), emission.exact or not emission.follows
    return Case(model, start, data, X, "hmm", solvers=solvers, exact=exact)


CASES = {
    "full": lambda: gaussian("full"),
    "tied": lambda: gaussian("tied"),
    "diag": lambda: gaussian("diag"),
    "spherical": lambda: gaussian("spherical"),
    "diag missing": lambda: gaussian("diag", missing=True),
    "spherical missing": lambda: gaussian("spherical", missing=True),
    "full weighted": lambda: gaussian("full", weighted=True),
    "diag recomputed": lambda: gaussian("diag", keep_sums=False),
    "counts": counts,
    "counts weighted": lambda: counts(weighted=True),
    "counts recomputed": lambda: counts(keep_sums=False),
    "factors": factors,
    "factors given": lambda: factors(learn=False, full=False),
    "factors weighted": lambda: factors(weighted=True),
    "factors recomputed": lambda: factors(keep_sums=False),
    "documents": documents,
    "documents weighted": lambda: documents(weighted=True),
    "documents, words of topics": lambda: documents(words_of_topics=True),
    "documents, 4 steps a visit": lambda: documents(inner_iter=4),
    "dirichlet": dirichlet_documents,
    "dirichlet weighted": lambda: dirichlet_documents(weighted=True),
    "dirichlet, words of topics": lambda: dirichlet_documents(words_of_topics=True),
    "dirichlet, temperatures of documents": lambda: dirichlet_documents(
        model=LocallyTemperedLDAModel
    ),
    "collapsed": collapsed_documents,
    "collapsed weighted": lambda: collapsed_documents(weighted=True),
    "collapsed, words of topics": lambda: collapsed_documents(words_of_topics=True),
    "logistic": logistic,
    "logistic sparse": lambda: logistic(sparse=True),
    "logistic weighted": lambda: logistic(weighted=True, intercept=False),
    "multinomial": lambda: logistic(k=3),
    "multinomial sparse": lambda: logistic(k=3, sparse=True),
    "stars": lambda: logistic("joint", k=3, star=True),
    "stars sparse weighted": lambda: logistic(sparse=True, weighted=True, star=True),
    "bayesian": lambda: bayesian("full", sparse=True, weighted=True),
    "bayesian diagonal": lambda: bayesian("diagonal"),
    "bayesian classes": lambda: bayesian("full", k=3),
    "hierarchical": lambda: hierarchical(),
    "hierarchical weighted": lambda: hierarchical(weighted=True),
    "dropout": lambda: dropout(2),
    "dropout classes": lambda: dropout(3),
    "dropout network": lambda: dropout(3, (4,)),
    "hmm gaussian": lambda: hidden_markov("gaussian"),
    "hmm full": lambda: hidden_markov("full"),
    "hmm tied": lambda: hidden_markov("tied"),
    "hmm poisson": lambda: hidden_markov("poisson"),
    "hmm bernoulli": lambda: hidden_markov("bernoulli"),
    "hmm categorical": lambda: hidden_markov("categorical"),
    "hmm gamma": lambda: hidden_markov("gamma"),
    "hmm von mises": lambda: hidden_markov("von mises"),
    "hmm mixture": lambda: hidden_markov("mixture"),
    "hmm density": lambda: hidden_markov("density"),
    "hmm codes": lambda: hidden_markov("codes"),
    "hmm regression": lambda: hidden_markov("regression"),
    "hmm counts by covariates": lambda: hidden_markov("counts by covariates"),
    "hmm product": lambda: hidden_markov("product"),
    "hmm with priors": lambda: hidden_markov("categorical", prior=2.0),
    "hmm missing": lambda: hidden_markov("gaussian", missing=True),
    "hmm missing in part": lambda: hidden_markov("full", missing=True),
    "hmm weighted": lambda: hidden_markov("gaussian", weighted=True),
    "hmm segments": lambda: hidden_markov(
        "gaussian", transitions=hmm.Hierarchical(2, 2, 0), n=4
    ),
    "hmm covariates": lambda: hidden_markov(
        "gaussian", transitions=hmm.Covariates([0, 1])
    ),
    "hmm recomputed": lambda: hidden_markov("gaussian", keep_sums=False),
}

# One of every family and of every branch of an algorithm; `make thorough` takes all.
USUAL = (
    "full",
    "tied",
    "spherical",
    "diag missing",
    "full weighted",
    "diag recomputed",
    "counts",
    "factors",
    "factors recomputed",
    "documents",
    "documents weighted",
    "dirichlet",
    "dirichlet, temperatures of documents",
    "collapsed",
    "collapsed weighted",
    "logistic",
    "multinomial sparse",
    "bayesian",
    "bayesian classes",
    "hierarchical",
    "dropout classes",
    "hmm gaussian",
    "hmm categorical",
    "hmm product",
    "hmm density",
    "hmm missing in part",
    "hmm weighted",
    "hmm recomputed",
    "hmm covariates",
)


# Minibatch steps of mean fields


def posterior(rng, p, k):
    mean, log_scale = 0.3 * rng.normal(size=(p, k)), rng.normal(-1.0, 0.2, (p, k))
    return Point(Diagonal(mean, log_scale, np.zeros((p, k, 0))))


def stepping(
    family, kind, control, scale=True, optimizer="sgd", n_draws=1, batch_size=7
):
    """Return the steps of a regression on sixty rows, and a point."""
    rng = np.random.default_rng(2)
    k, n = family.n_predictors, 60
    X = 0.6 * rng.normal(size=(n, 2))
    y = rng.integers(3, size=n)
    y = y.astype(np.int32) if k > 1 else np.minimum(y, 1 + (k == 1)).astype(float)
    y = np.minimum(y, 1.0) if isinstance(family, Logistic) else y
    data = as_source(X, rng.uniform(0.5, 2.0, n))
    prior = MeanField(0.1 * rng.normal(size=3 * k), rng.uniform(0.5, 2.0, 3 * k))
    model = GaussianModel(family, y, prior, data.total_weight, True, "diagonal")
    given = model, data, kind, control, scale, optimizer, batch_size, n_draws
    return SteppingModel(*given), posterior(rng, 3, k)
