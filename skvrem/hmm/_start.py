r"""Starting values, and moves out of optima that EM cannot leave.

A start is windows of rows, clustered, and the M step on the clusters. Of codes, all as
far apart, those make a state that are followed and preceded by the same ones; or what
states each belongs to, and how states follow each other, are drawn at random. Rows at
values that come again are one state of one start (see ``clusters/_atoms.py``).
Regressions are no clusters of rows where their lines cross: states of most of their
starts fit a few rows each.

One state does the work of two where two others share that of one. What it costs to
leave state j to the others, and what two states in place of l gain on its rows, are
about those of a mixture whose weights are the posteriors :math:`r_{tj}` of the rows,

.. math:: \ell_j = n \log(1 - \pi_j) - \sum_t \log(1 - r_{tj}), \quad
          g_l = \sum_t r_{tl} \log
          \frac{a f(x_t) + (1 - a) f'(x_t)}{f_l(x_t)},

with spheroids f of the columns that starts cluster. A move gives the rows of j to the
others, and half of those of l to j; those of largest :math:`g_l - \ell_j` are tried.
"""

from functools import partial
from itertools import islice, pairwise

import numpy as np
from sklearn.cluster import KMeans

from skvrem.hmm._input import fitted_parameters
from skvrem.hmm._model import SHARED, Parameters
from skvrem.hmm.clusters._atoms import Atoms
from skvrem.hmm.clusters._lloyd import LLOYD_ITERATIONS, climbed, lloyd
from skvrem.hmm.clusters._model import nearest
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.solvers import Batch, Run, ranked_moves, try_out

# Rows that a start looks at, in runs.
MOST_ROWS, RUN_ROWS = 20_000, 100
# Rows of a window where a family's own are single rows.
LONGER = 5
# Of codes: most whose neighbours are compared; and what starts take turns with, where
# the means of windows show states that stay, and single rows those of one code.
MOST_CODES, OF_CODES = 500, ("company", "chance", "rows", "chance", "rows", "chance")
# Where a family has means of rows, which hide the few rows that lie far out: the third
# start of so many, which looks at single rows, is of clusters.
OF_ROWS = 6
# Where states fit a few rows: every start of so many is of clusters.
OF_CLUSTERS = 4
# So many states are seldom found by clusters of one try, and each that is missed is an
# optimum of its own: starts that are of the best of so many tries, of these windows.
MANY_STATES, TRIES, OF_TRIES = 9, 10, {1: 0, 3: 2}
# What keeps neighbours that are the same apart.
ALIKE = 1e-6
# States from which on moves are worth their passes; how many in a row may fail, their
# epochs, and how often a fit goes on.
FEWEST_STATES, FAILURES, EPOCHS, TIMES = 5, 3, 8, 4
# Posterior of a row that a state owns, and how many rows are split.
OWNED, FEWEST_ROWS = 0.05, 20
# Of a state's rows, how many it is split by; steps to the main axis of these.
SPLIT_ROWS, POWER_STEPS = 1000, 5
# Of a column whose variance is one: what a spheroid has at least.
LEAST_VARIANCE = 1e-3
TINY = 1e-12


def given_start(model):
    """Return the parameters that users gave to start from, None if not all of them."""
    emission, none = model.emission, np.empty(0, np.int64)
    packed = emission.given_start(np.full_like(emission.blank(), np.nan))
    if not model.transitions.starts_given or np.isnan(packed).any():
        return None
    pairs = model.transitions.start(none, none, None)
    return Parameters(model.initial.start(), pairs, packed)


class Sample:
    """Rows that all starts of a fit look at.

    Parameters
    ----------
    emission : Emission
    picked : ndarray of int
        Their numbers.
    place : ndarray
        Where in its sequence each is, from 0, where that begins, to 1.
    means : tuple of (ndarray, ndarray or None), or None
        Of the features over all rows, and of what the family collects under its blank
        parameters, where what all rows hold must be known.
    source : SequenceSource
        These rows, in stretches.
    """

    def __init__(self, emission, picked, place, means, source):
        self.source, self.place = source, place
        self.rows, self.known = source.rows, source.rows.labels
        if means is not None:
            self.rows.means, collected = means
            if collected is not None:
                collected = collected - _mean_collected(emission, self.rows)
                self.rows.beyond = collected
        #: Where among them a stretch begins that does not follow the one before.
        self.edges = self.rows.bounds[:-1]
        #: Whether the row before, or nothing, is known to come before each.
        self.follows = np.append(False, np.diff(picked) == 1)
        #: What is clustered to find a start, standardised.
        self.Z = _standard(
            emission.start_columns(np.asarray(self.rows.X, dtype=np.float64))
        )
        # States that overlap show in the means of some rows, and those that come and go
        # in single rows: two starts of three are as the family has it.
        usual, other = emission.window, LONGER if emission.window == 1 else 1
        sizes = (usual, usual, other) if self.known is None else (1,)
        #: Whether a row does not go on from the one before.
        self.begins = ~self.follows | (place == 0.0)
        begins = np.flatnonzero(self.begins)
        windows = {
            size: _windows(self.Z, begins, size, emission.n_states_)
            for size in set(sizes)
        }
        #: Means of Z over windows, standardised, and how many rows a window has; Z
        #: itself where a window is a row. Starts take turns with them.
        self.windows = [windows[size] for size in sizes]
        #: What has been made of the rows, for the starts to come.
        self.kept = {}

    @property
    def inside(self):
        """Which rows follow the one before in a stretch."""
        return np.delete(np.arange(1, len(self.Z)), self.edges[1:] - 1)

    def pairs(self, labels):
        """Return labels of rows that others follow, and of those that follow."""
        return labels[self.inside - 1], labels[self.inside]

    def codes(self, emission):
        """Return a number for each row, None where rows are no codes without order."""
        if "codes" not in self.kept:
            codes = None
            if emission.unordered:
                _, codes = np.unique(self.Z, axis=0, return_inverse=True)
                codes = codes.ravel() if codes.max() < MOST_CODES else None
            self.kept["codes"] = codes
        return self.kept["codes"]

    def parameters(self, model, members, before, after, shared=SHARED):
        """Return those of the M step on clusters, and on states that follow others."""
        every = np.arange(len(self.Z))
        packed = model.fit_clusters(self.rows, every, members, self.kept, shared)
        return self.followed(model, before, after, packed)

    def of_all(self, model):
        """Return the emissions' parameters where every state fits all rows."""
        if "packed" not in self.kept:
            members = np.ones((len(self.Z), model.emission.n_states_))
            model.fit_clusters(self.rows, np.arange(len(members)), members, self.kept)
        return self.kept["packed"]

    def followed(self, model, before, after, packed):
        """Return parameters of emissions, and of states that follow others."""
        inputs = self.source.inputs
        if inputs is not None:
            inputs = inputs[self.inside - 1]
        pairs = model.transitions.start(before, after, inputs)
        return Parameters(model.initial.start(), pairs, packed)


def take_sample(model, data, rng):
    """Return the `Sample` of the starts of a fit, held where its rows are."""
    bounds, emission = data.rows.bounds, model.emission
    runs = pick_runs(bounds, rng, MOST_ROWS, RUN_ROWS)
    picked = np.concatenate([np.arange(a, b) for a, b in runs])
    sequence = np.searchsorted(bounds, picked, side="right") - 1
    place = (picked - bounds[sequence]) / np.diff(bounds)[sequence]
    means = None
    if emission.excludes:
        # What no picked row holds must not be impossible in every state.
        collected = _mean_collected(emission, data.rows) if emission.follows else None
        means = data.rows.mean_features(), collected
    return data.hold(runs, partial(Sample, emission, picked, place, means))


def _mean_collected(emission, rows):
    return rows.mean_collected(emission.n_states_, emission.blank())


def _windows(Z, begins, size, n):
    """Return means of Z over windows of at most so many rows, and counts of rows.

    A window lies within what goes on from one of the rows that begin it.
    """
    size = max(1, min(size, len(Z) // (4 * n)))
    ends = np.append(begins[1:], len(Z))
    first = [np.arange(*ab, size) for ab in zip(begins, ends, strict=True)]
    first = np.concatenate(first)
    counts = np.diff(np.append(first, len(Z)))
    if size == 1:
        return Z, counts
    return _standard(np.add.reduceat(Z, first, axis=0) / counts[:, None]), counts


def starting_parameters(model, sample, method, number, rng):
    """Return the parameters that a fit starts from.

    Parameters
    ----------
    model : HMMModel
    sample : Held
        Of `take_sample`.
    method : {"kmeans", "others", "random"} or Atoms
        Clusters of rows; or the clusters of randomly chosen rows, in place of which the
        "others" are, of codes, what takes turns, of many states two that are the best
        of several tries, and now and then clusters of single rows; or a state of the
        rows at atoms.
    number : int
        Which start of the fit it is.
    rng : numpy.random.Generator

    Returns
    -------
    parameters : Parameters
    """
    return sample.ask(partial(_begun, model, method, number), rng)


def _begun(model, method, number, sample, rng):
    emission, n = model.emission, model.emission.n_states_
    Z, known = sample.Z, sample.known
    if isinstance(method, Atoms):
        return _beside_atoms(model, method, sample, rng)
    phases, parts = model.transitions.phases, emission.n_parts
    codes, turn = sample.codes(emission), "rows"
    free = known is None and phases is None and not model.transitions.ordered
    if codes is not None and free:
        turn = "chance" if method == "random" else OF_CODES[number % len(OF_CODES)]
    if emission.few_rows and free and number % OF_CLUSTERS:
        return _of_few_rows(model, sample, rng)
    tries, many = 1, n >= MANY_STATES and codes is None and phases is None
    if method == "others" and many and number in OF_TRIES:
        method, number, tries = "kmeans", OF_TRIES[number], TRIES
    if method == "others":
        means = emission.window > 1 and not (emission.unordered or emission.few_rows)
        clusters = means and number % OF_ROWS == 2
        method = "kmeans" if clusters else "random"
    if turn == "chance":
        found = sample.parameters(model, *_by_chance(codes, sample.inside, n, rng))
        return found._replace(emission=emission.given_start(found.emission))
    if phases is not None and known is None:
        labels = _in_segments(Z, *_segments(sample), phases, method, rng)
    elif turn == "company" and codes.max() >= n:
        labels = _by_company(codes, codes.max() + 1, sample.inside, n, rng)
    else:
        standard, counts = sample.windows[number % len(sample.windows)]
        labels, _ = lloyd(standard, n, method, known, rng, tries)
        labels = np.repeat(labels, counts)
    if parts > 1 and known is None and method == "kmeans":
        fine, _ = lloyd(Z, n * parts, "kmeans", None, rng)
        labels = _by_company(fine, n * parts, sample.inside, n, rng)
    if model.transitions.ordered and known is None:
        labels = _ordered_clusters(labels, sample.place, n)
    inner = labels
    if parts > 1:
        inner = _parts(Z, labels, n, parts, rng)
    members = (inner[:, None] == np.arange(n * parts)).astype(float)
    found = sample.parameters(model, members, *sample.pairs(labels))
    return found._replace(emission=emission.given_start(found.emission))


def _of_few_rows(model, sample, rng):
    """Return parameters of states that each fit a few rows, one after the other.

    They are followed as the states that all rows are most likely in.
    """
    emission, rows = model.emission, sample.rows
    n, n_rows = emission.n_states_, len(sample.Z)
    size = max(1, min(emission.few_rows, n_rows // n))
    first = rng.integers(n_rows - size + 1, size=n)
    picked = (first[:, None] + np.arange(size)).ravel()
    members = np.repeat(np.eye(n), size, axis=0)
    kept = {"packed": sample.of_all(model)}
    packed = model.fit_clusters(rows, picked, members, kept)
    packed = emission.given_start(packed)
    labels = rows.columns(rows.X, parameters=packed).argmax(axis=1)
    return sample.followed(model, *sample.pairs(labels), packed)


def _beside_atoms(model, atoms, sample, rng):
    """Return parameters of a state at atoms, and of clusters of the other rows.

    Of means of a few, in which states that overlap show: there is one such start.
    """
    n, at = model.emission.n_states_, atoms.at(sample.rows.X)
    stretch = np.cumsum(sample.begins)[~at]
    begins = np.flatnonzero(np.diff(stretch, prepend=-1))
    standard, counts = _windows(sample.Z[~at], begins, LONGER, n)
    labels = np.zeros(len(at), np.int64)
    clusters, _ = lloyd(standard, n - 1, "kmeans", None, rng)
    labels[~at] = 1 + np.repeat(clusters, counts)
    members = (labels[:, None] == np.arange(n)).astype(float)
    # Of all rows it would take what is near to the atoms, and stay wide for it.
    shared = np.append(0.0, np.full(n - 1, SHARED))
    return sample.parameters(model, members, *sample.pairs(labels), shared)


def _ordered_clusters(labels, place, n):
    """Number clusters by where their rows lie on average."""
    total = np.bincount(labels, weights=place, minlength=n)
    mean = total / np.maximum(np.bincount(labels, minlength=n), 1)
    return np.argsort(np.argsort(mean))[labels]


def pick_runs(bounds, rng, most_rows, run_rows):
    """Return stretches of sequences, of about so many rows altogether."""
    runs = []
    for a, b in pairwise(bounds):
        edges = np.arange(a, b, run_rows)
        runs += [(start, min(start + run_rows, b)) for start in edges]
    most = max(1, most_rows // run_rows)
    if bounds[-1] > most_rows and len(runs) > most:
        chosen = rng.choice(len(runs), most, replace=False)
        runs = [runs[i] for i in np.sort(chosen)]
    return runs


def _segments(sample):
    """Return where segments start among the rows, and which are whole."""
    ends = sample.source.inputs[:, 0] > 0.0
    edges = np.union1d(sample.edges, np.flatnonzero(ends[:-1]) + 1)
    begins = ends[edges - 1] & sample.follows[edges]
    begins |= sample.place[edges] == 0.0
    return edges, begins & ends[np.append(edges[1:], len(ends)) - 1]


def _in_segments(Z, edges, whole, phases, method, rng):
    """Return labels kind * n_phases + phase of rows of segments that start at edges.

    Kinds are clusters of whole segments, by mean, spread and length; phases clusters of
    a kind's rows, by where they lie as well, in order of that.
    """
    counts = np.diff(np.append(edges, len(Z)))
    segment = np.repeat(np.arange(len(edges)), counts)
    mean = np.add.reduceat(Z, edges, axis=0) / counts[:, None]
    spread = np.add.reduceat(np.square(Z - mean[segment]), edges, axis=0)
    spread = np.sqrt(spread / counts[:, None])
    about = _standard(np.hstack([mean, spread, np.log(counts)[:, None]]))
    some = about[whole] if whole.sum() >= phases[0] else about
    _, centres = lloyd(some, phases[0], method, None, rng)
    kinds = nearest(about, centres)[0][segment]
    place = (np.arange(len(Z)) - edges[segment] + 0.5) / counts[segment]
    Z = np.hstack([Z, _standard(place[:, None])])
    labels = np.empty(len(Z), np.int64)
    for kind in np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        found, _ = lloyd(Z[rows], phases[1], method, None, rng)
        phase = _ordered_clusters(found, place[rows], phases[1])
        labels[rows] = kind * phases[1] + phase
    return labels


def _by_company(fine, n_fine, inside, n, rng):
    """Return labels of states, each of several fine clusters or codes.

    Those of a state are followed, and preceded, by much the same ones.
    """
    rows = np.bincount(fine, minlength=n_fine)
    counts = np.full((n_fine, n_fine), 1.0 / n_fine)
    np.add.at(counts, (fine[inside - 1], fine[inside]), 1.0)
    after = counts / counts.sum(axis=1, keepdims=True)
    before = counts.T / counts.sum(axis=0)[:, None]
    # Distances of roots are Hellinger's. No two are the same: n clusters can differ.
    roots = np.sqrt(np.hstack([after, before]))
    roots += ALIKE * rng.standard_normal(roots.shape)
    seed = int(rng.integers(2**31 - 1))
    means = KMeans(n, n_init=1, max_iter=LLOYD_ITERATIONS, random_state=seed)
    return means.fit(roots, sample_weight=rows + 1.0).labels_[fine]


def _by_chance(codes, inside, n, rng):
    """Return random shares of every row in n states, and states that follow others."""
    members = rng.dirichlet(np.ones(n), codes.max() + 1)[codes]
    sums = rng.dirichlet(np.ones(n), n).cumsum(axis=1)
    before = rng.integers(n, size=len(inside))
    after = (rng.random(len(inside))[:, None] > sums[before, :-1]).sum(axis=1)
    return members, before, after


def _parts(Z, labels, n, parts, rng):
    """Return labels state * parts + part, clusters of the rows of each state."""
    inner = labels * parts
    for state in range(n):
        rows = np.flatnonzero(labels == state)
        if rows.size:
            inner[rows] += lloyd(Z[rows], parts, "kmeans", None, rng)[0]
    return inner


def _standard(Z):
    """Return columns of mean 0 and variance 1, in one copy of them."""
    Z = Z - Z.mean(axis=0)
    scale = np.sqrt(np.einsum("ij,ij->j", Z, Z) / len(Z))
    Z /= np.where(scale > 0.0, scale, 1.0)
    return Z


def is_like(estimator, model):
    """Whether parameters of an estimator are those of a model."""
    parameters = fitted_parameters(estimator)
    same = parameters.emission.shape == model.emission.blank().shape
    same = same and len(parameters.startprob) == model.emission.n_states_
    return same and type(estimator.transitions_) is type(model.transitions)


def warm_parameters(estimator, model, data):
    """Return the parameters of the last fit, under which no row is impossible."""
    parameters = fitted_parameters(estimator)
    if not is_like(estimator, model):
        raise ValueError(
            "The earlier fit cannot be gone on from with these parameters and "
            "features: use a new estimator, or warm_start=False."
        )
    try:
        model.log_likelihood(parameters, data)
    except Impossible:  # what the earlier rows did not hold
        return model.relax(parameters, data.rows)
    return parameters


def can_move(estimator, model, data):
    """Whether states can change their places, and are so many that it is worth it."""
    many = model.emission.n_states_ >= FEWEST_STATES
    return many and are_alike(estimator, model, data)


def are_alike(estimator, model, data):
    """Whether nothing says which state is which."""
    emission = model.emission
    if emission.n_parts > 1:
        return False
    if data.inputs is not None or data.rows.labels is not None:
        return False
    if not isinstance(estimator.startprob, str) or estimator.startprob_init is not None:
        return False
    given = emission.given_start(np.full_like(emission.blank(), np.nan))
    return model.transitions.alike and bool(np.isnan(given).all())


class Moves:
    """Where to begin once more, as long as moves lead higher.

    Parameters
    ----------
    model : HMMModel
    data : source of sequences
    sample : Held
        Of the rows that moves are found with (`take_sample`).
    seen : source
        What trials are run on.
    """

    def __init__(self, model, data, sample, seen):
        self.model, self.sample, self.seen = model, sample, seen
        self.share = seen.total_weight / data.total_weight
        self.left, self.best = TIMES, -np.inf

    def __call__(self, end, left, search):
        """Return a point to begin from once more, or None, what it cost, and False.

        None is where no move is worth it; all others lead on from the end.

        Parameters
        ----------
        end : skvrem.solvers.Result
        left : int
            Epochs that there may be.
        search : callable
            See :class:`skvrem.solvers.Start`.
        """
        if left < 1 or not self.left or end.objective <= self.best:
            return None, 0.0, False
        self.left, self.best = self.left - 1, end.objective
        return *search("moves", partial(self._climb, end.point)), False

    def _climb(self, point):
        """Return where a move leads, None if none leads higher, and the passes made."""
        rng, passes = np.random.default_rng(0), 0.0
        # Half a nat for each parameter of a state is what it gains by fitting noise.
        own = self.model.n_parameters() / self.model.emission.n_states_
        least = self._run(point, rng).advance(0).anchor.objective
        least += 0.5 * own / self.seen.total_weight
        proposed = partial(_proposed, self.model, point.parameters)
        for parameters in self.sample.ask(proposed, rng):
            run = self._run(self.model.start(parameters), rng)
            passes += self.share * try_out(run, EPOCHS, least).passes
            if run.anchor.objective > least:
                return run.anchor.point, passes
        return None, passes

    def _run(self, point, rng):
        return Run(self.model, Batch(), self.seen, point, tol=0.0, rng=rng)


def _proposed(model, parameters, sample, rng):
    """Return parameters that EM may climb higher from, the most promising first."""
    # Stretches of the sample begin anywhere, and not as sequences do.
    anywhere = np.full_like(parameters.startprob, 1.0 / parameters.startprob.size)
    parameters = parameters._replace(startprob=anywhere)
    passes = model.passes(parameters, sample.source.whole(), by_row=True)
    passes.forward()
    passes.backward()
    posteriors = np.asarray(passes.smoothed(), np.float64)
    halves = [_halves(sample.Z, own) for own in posteriors.T]
    promise = np.array([gain for gain, _ in halves])[:, None]
    promise = promise - _losses(posteriors, posteriors.mean(axis=0))
    moves = islice(ranked_moves(promise), FAILURES)
    return [
        _moved(model, sample, posteriors, split, merged, halves[split][1])
        for split, merged in moves
    ]


def _moved(model, sample, posteriors, split, merged, centres):
    """Return parameters where a state is given up, and gets half of another."""
    members = posteriors.copy()
    members[:, merged] = 0.0
    left = np.einsum("ij->i", members)[:, None]
    lost = left[:, 0] <= TINY
    members /= np.where(left > TINY, left, 1.0)
    members[lost] = 1.0 / (members.shape[1] - 1)
    members[lost, merged] = 0.0
    half = np.flatnonzero(posteriors[:, split] > OWNED)
    half = half[nearest(sample.Z[half], centres)[0] == 1]
    members[half, merged] = members[half, split]
    members[half, split] = 0.0
    return sample.parameters(model, members, *sample.pairs(members.argmax(axis=1)))


def _losses(posteriors, weights):
    """Return what it costs to leave each state to the others, in nats."""
    rest = np.log(np.maximum(1.0 - posteriors, TINY)).sum(axis=0)
    return len(posteriors) * np.log1p(-np.minimum(weights, 1.0 - TINY)) - rest


def _halves(Z, own):
    """Return what two spheroids gain over one, and the means of the two."""
    rows = np.flatnonzero(own > OWNED)
    if len(rows) < FEWEST_ROWS:
        return -np.inf, None
    total = own[rows].sum()
    if len(rows) > SPLIT_ROWS:
        rows = rows[np.linspace(0, len(rows) - 1, SPLIT_ROWS).astype(np.int64)]
    Z, own = Z[rows], own[rows]
    _, centres = climbed(Z, _along_axis(Z))
    second = nearest(Z, centres)[0] == 1
    densities = []
    for part in ~second, second:
        weight = own[part].sum()
        if weight < FEWEST_ROWS / 4:
            return -np.inf, None
        log_density = _log_density(Z, Z[part], own[part])
        densities.append(log_density + np.log(weight / own.sum()))
    gain = own @ (np.logaddexp(*densities) - _log_density(Z, Z, own))
    return float(gain) * total / own.sum(), centres


def _along_axis(Z):
    """Return two points on the main axis of rows, on either side of their mean."""
    mean = Z.mean(axis=0)
    Z = Z - mean
    axis = np.ones(Z.shape[1])
    for _ in range(POWER_STEPS):
        # Not by BLAS, whose sums depend on the number of threads.
        axis = np.einsum("ij,i->j", Z, np.einsum("ij,j->i", Z, axis))
        axis /= max(np.sqrt(np.square(axis).sum()), TINY)
    spread = np.sqrt(np.square(np.einsum("ij,j->i", Z, axis)).mean())
    return mean + np.outer([-spread, spread], axis)


def _log_density(Z, of, weight):
    """Return the log density, up to a constant, of a spheroid of some rows."""
    mean = np.average(of, axis=0, weights=weight)
    variance = np.average(np.square(of - mean), axis=0, weights=weight) + LEAST_VARIANCE
    return -0.5 * (np.square(Z - mean) / variance + np.log(variance)).sum(axis=1)
