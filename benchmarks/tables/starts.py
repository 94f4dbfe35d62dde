"""Optima: what a default fit finds beside single fits from one start each.

- A default fit has found what an expert would who tries: it ends at or above the upper
  quartile of single fits (``n_init=1``, one start from k-means each), or for hidden
  Markov models within .001 nats a row of the best of eight that one can expect. Its
  cost is CPU seconds, one thread, over the mean of whole single fits, starts included.
  Data that the search was chosen with are told apart from those that were written down
  before they were run.
- Clusters and chains drawn at random, written down before they were run: the share of
  default fits that have not found as much, and their cost, a mean of the problems.
- Chains of many states, chains of codes, short series and clusters of few rows, written
  down before they were run: shares of fits that end within .001 nats a row of the best
  of all fits (and of the one from the truth).
- Topics: few documents, ours by default and with ``n_init=1``, held-out tokens that
  are completed (`benchmarks.problems.evaluation`), means over 8 seeds; the notes tell
  CPU seconds.
- Real tables of R packages, drawn at random: defaults that are below the upper quartile
  of twelve single fits, seconds, and halves that judge each other. The search was
  chosen with other fits of about a third of them.
- Held out: halves at random, one for the fit and one to judge it, in pairs with a
  single k-means start of ours and with scikit-learn's default; the notes say by how
  many standard errors of the 50 differences ours is higher.
"""

from functools import partial
from itertools import product

import numpy as np

from benchmarks.harness import Row, fastest, group, quiet, timed
from benchmarks.problems import corpora, evaluation, optima
from benchmarks.problems import mixtures as problems
from skvrem import VRHMM, VRPLSA, TemperedLDA, VRGaussianMixture
from skvrem.mixture._model import GaussianMixtureModel

# Single fits, default fits; what an objective must reach, up to rounding.
POOL, DEFAULTS, SLACK = 16, 6, 1e-6
# Of hidden Markov models; starts from clusters and from random rows take turns.
HMM_POOL, CLOSE = 24, 1e-3


def expected_best(scores, n=8):
    """Expectation of the best of n that are drawn from scores without replacement."""
    scores, size = np.sort(scores)[::-1], len(scores)
    left = np.array([_choose(size - 1 - i, n - 1) for i in range(size)])
    return float(scores @ (left / left.sum()))


def _choose(n, k):
    if n < k:
        return 0.0
    return float(np.prod([(n - i) / (i + 1) for i in range(k)]))


def fits(make, data, seeds):
    """Return objectives and CPU seconds of fits by their seeds."""
    scores, seconds = [], []
    with quiet():
        for seed in seeds:
            model = make(seed)
            took, _ = timed(lambda model=model: model.fit(**data))
            scores.append(model.objective_)
            seconds.append(took)
    return np.array(scores), np.array(seconds)


def rows(label, level, pool, found, note=""):
    """Yield what share was missed, and what it cost."""
    (scores, seconds), (best, cost) = pool, found
    missed = best < level - SLACK
    numbers = {
        "single": scores.tolist(),
        "default": best.tolist(),
        "level": float(level),
        "gain": float(np.median(best) - np.median(scores)),
        "far": float((best < level - CLOSE).mean()),
    }
    gain = f"median {numbers['gain']:+.4f} nats a row over that of single fits"
    if 0.0 < missed.mean():
        gain += f"; {numbers['far']:.3g} by more than {CLOSE:g} nats"
    share = float(missed.mean())
    yield Row(f"{label}: missed", share, "", {}, 0.05, gain, 0.0, "missed", numbers)
    ratio = float(cost.mean() / seconds.mean())
    yield Row(f"{label}: cost", ratio, "fits", {}, None, note, 0.0, "cost")


@group({name: (name,) for name in optima.MIXTURES})
def mixture(run, name):
    """Default fits of mixtures below the upper quartile of single fits, and cost."""
    load, k, kind, chosen = optima.MIXTURES[name]
    data = {"X": np.ascontiguousarray(load()[:: run.size(1, 20)])}
    how = {"covariance_type": kind, "max_iter": 1_000, "n_jobs": 1}

    def make(**params):
        return lambda seed: VRGaussianMixture(k, random_state=seed, **how, **params)

    fits(make(), data, [0])  # compiled
    pool = fits(make(n_init=1), data, range(run.size(POOL, 4)))
    found = fits(make(), data, range(100, 100 + run.size(DEFAULTS, 2)))
    note = "of the choice" if chosen else "written down before"
    yield from rows(name, np.quantile(pool[0], 0.75), pool, found, note)


@group([("clusters",), ("chains",), ("short chains",)])
def drawn(run, what):
    """Default fits of problems drawn at random that find less, and their cost."""
    from skvrem.hmm import Gaussian

    hits, close, costs = [], [], []
    for number in range(run.size(16, 2)):
        ways = ["kmeans"]
        if what == "clusters":
            X, k, kind = optima.clusters(9_000 + number)
            made = partial(VRGaussianMixture, k, covariance_type=kind)
        else:
            draw = optima.chain if what == "chains" else optima.short_chain
            X, means, _, kind = draw(2_000 + number)
            made = partial(VRHMM, len(means), emission=Gaussian(kind))
            ways.append("random")

        def default(seed, made=made):
            return made(random_state=seed, max_iter=2_000, n_jobs=1)

        def single(seed, default=default, ways=ways):
            way = ways[seed % len(ways)]
            return default(seed).set_params(n_init=1, init_params=way)

        data = {"X": X}
        fits(default, data, [0])  # compiled
        pool = fits(single, data, range(run.size(POOL, 8)))
        found = fits(default, data, range(100, 100 + run.size(4, 1)))
        level = np.quantile(pool[0], 0.75)
        if what != "clusters":
            level = expected_best(pool[0]) - CLOSE
        hits.extend(found[0] >= level - SLACK)
        close.extend(found[0] >= level - CLOSE)
        costs.append(found[1].mean() / pool[1].mean())
    missed, far = 1.0 - float(np.mean(hits)), 1.0 - float(np.mean(close))
    note = f"{far:.3g} by more than {CLOSE:g} nats a row"
    target = 0.05 if what == "clusters" else 0.15
    yield Row(f"{what}: missed", missed, "", {}, target, note, key="missed")
    note = f"{np.exp(np.mean(np.log(costs))):.3g} in the geometric mean"
    # Of short ones all take next to no seconds.
    target = {"clusters": 2.5, "chains": 3.0}.get(what)
    cost = float(np.mean(costs))
    yield Row(f"{what}: cost", cost, "fits", {}, target, note, key="cost")


@group({name: (name,) for name in optima.HELD_OUT})
def held_out(run, name):
    """Held-out log-likelihood a row of default fits, in pairs with others."""
    from sklearn.mixture import GaussianMixture

    load, k = optima.HELD_OUT[name]
    X = load()
    for kind in ("full", "diag"):
        how = {"covariance_type": kind, "max_iter": 1_000, "reg_covar": 1e-3}
        sides = {
            "default": lambda seed, how=how: VRGaussianMixture(
                k, random_state=seed, **how
            ),
            "one start": lambda seed, how=how: VRGaussianMixture(
                k, n_init=1, random_state=seed, **how
            ),
            "scikit-learn": lambda seed, how=how: GaussianMixture(
                k, random_state=seed, **how
            ),
            # Which stops early otherwise, and fits less of the noise for that.
            "scikit-learn to its end": lambda seed, how=how: GaussianMixture(
                k, random_state=seed, **(how | {"max_iter": 10_000, "tol": 1e-7})
            ),
        }
        scores = {side: [] for side in sides}
        with quiet():
            for seed in range(run.size(50, 3)):
                order = np.random.default_rng(seed).permutation(len(X))
                train, test = np.array_split(X[order], 2)
                for side, made in sides.items():
                    scores[side].append(made(seed).fit(train).score(test))
        ours, *_ = map(np.array, scores.values())
        notes, means = [], {side: float(np.mean(s)) for side, s in scores.items()}
        for side in list(sides)[1:]:
            gaps = ours - np.array(scores[side])
            error = gaps.std(ddof=1) / np.sqrt(len(gaps))
            notes.append(f"{side} {gaps.mean() / max(error, 1e-12):+.1f} errors")
        value = means.pop("default")
        label = f"{name}, {kind}"
        yield Row(label, value, "nats", means, None, ", ".join(notes), key=kind)


#: Corpus, documents (those that are simulated have topics of about 100 tokens), topics.
TOPICS = {
    "AP": (300, 10),
    "NIPS": (200, 10),
    "20 Newsgroups": (1_000, 20),
    "simulated": (150, 8),
}


@group(product(TOPICS, (VRPLSA.__name__, TemperedLDA.__name__)))
def topics(run, name, kind):
    """Default fits of few documents beside single ones, held out."""
    n_documents, n_topics = TOPICS[name]
    keys = {title: key for key, (_, title) in corpora.CORPORA.items()}
    if name in keys:
        corpus = corpora.completion(keys[name], n_documents)
    else:
        held_out = n_documents + 430
        corpus = corpora.simulated(held_out, 300, n_topics, 40, seed=1)
        corpus = corpora.split(corpus.train, corpus.vocabulary, name, n_test=430)
    halves = evaluation.halve(corpus.test)
    made = {"VRPLSA": VRPLSA, "TemperedLDA": TemperedLDA}[kind]
    scores, seconds = {}, {}
    for side, n_init in (("default", "auto"), ("one start", 1)):
        found, took = [], 0.0
        for seed in range(run.size(8, 2)):
            model = made(n_topics, n_init=n_init, random_state=seed, n_jobs=1)
            with quiet():
                spent, _ = timed(lambda model=model: model.fit(corpus.train))
            took += spent / run.size(8, 2)
            found.append(evaluation.complete(halves, model.components_, 1 / n_topics))
        scores[side], seconds[side] = float(np.mean(found)), took
    value = scores.pop("default")
    note = ", ".join(f"{side} {took:.2g} s" for side, took in seconds.items())
    label = f"{kind}, {name}, {corpus.train.shape[0]} documents, {n_topics} topics"
    yield Row(label, value, "nats", scores, None, note)


HMMS = {
    "killer whales, 4 states": ("killer whales", 4, "diag"),
    "killer whales, 6 states": ("killer whales", 6, "diag"),
    "dives, 3 states": ("dives", 3, "full"),
    "dives, 5 states": ("dives", 5, "diag"),
    "accelerometer, 5 states": ("accelerometer", 5, "diag"),
    "accelerometer, 6 states": ("accelerometer", 6, "full"),
    "accelerometer, 8 states": ("accelerometer", 8, "diag"),
    "overlapping, 5 states": ("overlapping", 5, "diag"),
    "separate, 8 states": ("separate", 8, "full"),
    "bent, 8 states": ("bent", 8, "diag"),
}


def small(d, kind):
    """Return rows of ten overlapping components, fewer than ten thousand."""
    return problems.overlapping(9_999, d).X, {"covariance_type": kind, "n_jobs": 1}


@group([("20", "full"), ("20", "diag"), ("5", "full")])
def seconds(run, d, kind):
    """Seconds of a default fit of small data, one thread."""
    from sklearn.mixture import GaussianMixture

    X, how = small(int(d), kind)
    ours = VRGaussianMixture(10, random_state=0, **how)
    theirs = GaussianMixture(10, covariance_type=kind, random_state=0)
    sides = {"ours": lambda: ours.fit(X), "scikit-learn": lambda: theirs.fit(X)}
    found = fastest(sides, run).seconds
    gain = f"{ours.objective_ - theirs.lower_bound_:+.4f} nats a row"
    mine = found.pop("ours")
    yield Row(f"n=9999 d={d} k=10 {kind}", mine, "s", found, None, gain)


@group(HMMS)
def hmm(run, name, states, kind):
    """Default fits of hidden Markov models below the best of eight, and cost."""
    from skvrem.hmm import Gaussian

    X, lengths = optima.series(name)
    if run.quick:
        X, lengths = X[:1500], None
    data = {"X": X, "lengths": lengths}

    def single(seed):
        start = "random" if seed % 2 else "kmeans"
        return default(seed).set_params(n_init=1, init_params=start)

    def default(seed):
        how = {"random_state": seed, "max_iter": 2_000, "n_jobs": 1}
        return VRHMM(states, emission=Gaussian(kind), **how)

    fits(single, data, [0])  # compiled
    pool = fits(single, data, range(run.size(HMM_POOL, 8)))
    found = fits(default, data, range(100, 100 + run.size(DEFAULTS, 2)))
    level = expected_best(pool[0]) - CLOSE
    yield from rows(f"{name}, {states} states, {kind}", level, pool, found)


def _chain_model(k, seed, **params):
    return VRHMM(k, random_state=seed, n_jobs=1, **params)


def _mixture_model(k, kind, seed, **params):
    return VRGaussianMixture(
        k, covariance_type=kind, random_state=seed, n_jobs=1, **params
    )


def near_best(label, problems):
    """Yield which share of fits from two seeds ends near the best, by how they start.

    A problem is rows, functions of a seed that make a model, by how it starts, and the
    highest objective known.
    """
    close, seconds, gaps = {}, {}, {}
    for X, sides, known in problems:
        found = {side: fits(made, {"X": X}, range(2)) for side, made in sides.items()}
        best = max(known, *(scores.max() for scores, _ in found.values()))
        for side, (scores, took) in found.items():
            close.setdefault(side, []).extend(scores > best - CLOSE)
            gaps.setdefault(side, []).extend(best - scores)
            seconds.setdefault(side, []).extend(took)
    shares = {side: float(np.mean(hits)) for side, hits in close.items()}
    note = ", ".join(
        f"{side} {np.sum(took):.1f} s, {np.mean(gaps[side]):.4f} nats below in the mean"
        for side, took in seconds.items()
    )
    yield Row(label, shares.pop("default"), "", shares, None, note)


@group()
def states(run):
    """Fits of 5 to 20 states within .001 nats a row of the best that was found."""
    from skvrem.hmm import Gaussian, Homogeneous

    n_chains = run.size(30, 3)

    def problems():
        for number in range(n_chains):
            X, means, transmat, kind = optima.chain(1000 + number)
            make = partial(_chain_model, len(means), emission=Gaussian(kind))
            known = Gaussian(kind, mean_init=means)
            how = {"emission": known, "transitions": Homogeneous(init=transmat)}
            truth = fits(partial(make, n_init=1, **how), {"X": X}, [0])[0]
            sides = {
                "default": make,
                "best of 12": partial(make, n_init=12),
                "one start": partial(make, n_init=1),
            }
            yield X, sides, truth[0]

    yield from near_best(f"{n_chains} simulated chains, two seeds", problems())


@group()
def codes(run):
    """Fits of codes within .001 nats a row of the best that was found."""
    n_chains = run.size(30, 3)

    def problems():
        for number in range(n_chains):
            X, k = optima.codes(number)
            make = partial(_chain_model, k, emission="categorical")
            chance = partial(make, init_params="random")
            sides = {
                "default": make,
                "best of 12 at random": partial(chance, n_init=12),
                "one at random": partial(chance, n_init=1),
            }
            yield X, sides, -np.inf

    yield from near_best(f"{n_chains} chains of codes, two seeds", problems())


@group({"ten-a-parameter": (True,), "fewer": (False,)})
def few_rows(run, many):
    """Fits of few rows within .001 nats a row of the best that was found."""
    n_problems = run.size(80, 10)

    def problems():
        for number in range(1_000, 1_000 + n_problems):
            X, k, kind = optima.few_rows(number)
            own = GaussianMixtureModel(kind, 0.0).n_own_parameters(X.shape[1])
            if (len(X) >= 10 * k * own) is not many:
                continue
            make = partial(_mixture_model, k, kind)
            sides = {
                "default": make,
                "best of 30": partial(make, n_init=30),
                "best of 10": partial(make, n_init=10),
                "one start": partial(make, n_init=1),
            }
            yield X, sides, -np.inf

    rows = "ten rows a parameter or more" if many else "fewer rows"
    yield from near_best(f"100 to 3,000 rows, {rows}", problems())


@group({"five-a-parameter": (True,), "fewer": (False,)})
def tables(run, many):
    """Default fits of real tables below the upper quartile of single fits; held out."""
    sides = {"default": "auto", "one start": 1, "ten starts": 10}
    missed, far, seconds = [], [], {side: [] for side in sides}
    held_out = {side: [] for side in sides}
    n_tables = run.size(120, 6)
    for X, k, kind in optima.tables(n_tables):
        own = GaussianMixtureModel(kind, 0.0).n_own_parameters(X.shape[1])
        if (len(X) >= 5 * k * own) is not many:
            continue
        made = {
            side: partial(_mixture_model, k, kind, n_init=n_init, max_iter=1_000)
            for side, n_init in sides.items()
        }
        fits(made["default"], {"X": X}, [0])  # compiled
        numbers = {"default": 4, "one start": 12, "ten starts": 2}
        found = {
            side: fits(made[side], {"X": X}, range(n)) for side, n in numbers.items()
        }
        level = np.quantile(found["one start"][0], 0.75)
        missed.extend(found["default"][0] < level - SLACK)
        far.extend(found["default"][0] < level - CLOSE)
        halves = np.array_split(np.random.default_rng(0).permutation(len(X)), 2)
        for side, (_, took) in found.items():
            seconds[side].append(took.mean())
            with quiet():
                scores = [
                    made[side](seed).fit(X[one]).score(X[other])
                    for one, other in (halves, halves[::-1])
                    for seed in range(2)
                ]
            held_out[side].append(np.mean(scores))
    ours = np.array(held_out.pop("default"))
    label = f"{len(ours)} of {n_tables} tables"
    note = f"{np.mean(far):.3g} by more than {CLOSE:g} nats a row"
    yield Row(
        f"{label}: missed", float(np.mean(missed)), "", {}, 0.05, note, key="missed"
    )
    took = {side: float(np.mean(each)) for side, each in seconds.items()}
    yield Row(f"{label}: a fit", took.pop("default"), "s", took, None, key="seconds")
    for side, theirs in held_out.items():
        gaps = ours - np.array(theirs)
        higher, middle = float(np.mean(gaps > 0.01)), float(np.median(gaps))
        note = f"above it in {higher:.3g}, median {middle:+.4f} nats"
        told = f"{label}: held out below {side} by .01 nats"
        lower = float(np.mean(gaps < -0.01))
        yield Row(told, lower, "", {}, None, note, 0.0, side.replace(" ", "-"))


@group({f"{k}-states": (k,) for k in (2, 3, 4, 6)})
def short(run, k):
    """Fits of short series within .001 nats a row of the best that was found."""
    from skvrem.hmm import Gaussian

    n_series = run.size(20, 3)

    def problems():
        for number in range(n_series):
            X, *_, kind = optima.chain(6_000 + number)
            n = 60 + 40 * number  # rows, of more states than are fitted
            make = partial(_chain_model, k, emission=Gaussian(kind))
            sides = {
                "default": make,
                "best of 30": partial(make, n_init=30),
                "one start": partial(make, n_init=1),
            }
            yield X[:n], sides, -np.inf

    yield from near_best(f"{k} states, {n_series} series of 60 to 820 rows", problems())
