"""Products of families over columns: mixed observations."""

from collections.abc import Sequence
from copy import copy
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from skvrem.hmm.emissions._base import Emission, published
from skvrem.utils._algebra import pieces
from skvrem.utils._columns import column_number


class Product(Emission):
    """Columns that are independent given the state, each of a family of its own.

    Parameters
    ----------
    parts : list of tuples (name, family, columns)
        Columns are a list of numbers in X or, where X is a data frame, of names. What
        no part takes is left alone, whatever it holds.

    Attributes
    ----------
    parts_ : dict of str to family
        Fitted; ``emission_["step"]`` is one of them.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Bernoulli, Gaussian, Product
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0], 50)
    >>> X = np.column_stack([4.0 * states + rng.normal(size=150), states])
    >>> product = Product([("depth", Gaussian(), [0]), ("end", Bernoulli(), [1])])
    >>> hmm = VRHMM(2, emission=product, random_state=0).fit(X)
    >>> np.sort(hmm.emission_["end"].probability_.ravel()).round(2)
    array([0., 1.])
    """

    def __init__(self, parts: Sequence[tuple[str, BaseEstimator, Any]]):
        self.parts = parts

    def get_params(self, deep=True):
        """Return the parameters, those of the families by name.

        Parameters
        ----------
        deep : bool, default=True
            Also those of the families.

        Returns
        -------
        params : dict
            Names and values.
        """
        params = {"parts": self.parts}
        if deep and isinstance(self.parts, list):
            for name, family, _ in self.parts:
                params[name] = family
                for key, value in family.get_params(deep=True).items():
                    params[f"{name}__{key}"] = value
        return params

    def set_params(self, **params):
        """Set parameters, those of the families as ``name__parameter``.

        Parameters
        ----------
        **params : dict
            Names and values.

        Returns
        -------
        self : Product
            This.
        """
        if "parts" in params:
            self.parts = params.pop("parts")
        families = {name: family for name, family, _ in self.parts}
        for key, value in params.items():
            name, _, rest = key.partition("__")
            if name not in families:
                raise ValueError(f"{name!r} is none of the parts {sorted(families)}.")
            if rest:
                families[name].set_params(**{rest: value})
            else:
                families[name] = value
        self.parts = [
            (name, families[name], columns) for name, _, columns in self.parts
        ]
        return self

    def __getitem__(self, name):
        return self.parts_[name]

    @property
    def allows_nan(self):
        """Whether single values may be missing, and not only whole parts of rows."""
        try:
            families = [family for _, family, _ in self.parts]
        except (TypeError, ValueError):
            return True  # `open` says what is wrong
        return all(getattr(family, "allows_nan", True) for family in families)

    @property
    def excludes(self):
        """Whether parameters can make values impossible that rows may hold."""
        return any(family.excludes for family in self._each())

    @property
    def window(self):
        """Rows that are averaged before they are clustered to find a start."""
        return max(family.window for family in self._each())

    def is_given(self):
        """Whether users gave all parameters of all parts."""
        try:
            return all(family.is_given() for _, family, _ in self.parts)
        except (AttributeError, TypeError, ValueError):
            return False  # `open` says what is wrong

    def n_given(self):
        """Return how many columns the parts take, by number."""
        return 1 + max(j for _, _, columns in self.parts for j in columns)

    def reads(self, names, n_columns, rest):
        """Return the numbers of the columns of X that parts take."""
        taken = self._resolve(names, n_columns, rest)
        return sorted({j for columns in taken.values() for j in columns})

    def factors(self, names, n_columns):
        """Return the numbers of the columns of X that may hold text."""
        text, others = set(), set()
        for _, family, columns in self.parts:
            own = {*family.factors(names, n_columns)}
            use = "A column of a part"
            numbers = [column_number(c, use, names, n_columns) for c in columns]
            text |= own
            others |= {*family.reads(names, n_columns, numbers)} - own
        return sorted(text - others)

    def open(self, X, n_states, names=None, numbers=None):
        """Open every part on its columns."""
        self.n_states_, self.n_columns_ = n_states, X.shape[1]
        numbers = list(range(X.shape[1])) if numbers is None else list(numbers)
        every, n_columns = [None] * (max(numbers) + 1), max(numbers) + 1
        for number, name in zip(numbers, names or [None] * len(numbers), strict=True):
            every[number] = name
        taken = self._resolve(every, n_columns, numbers)
        self._places, self.parts_ = {}, {}
        for name, family, _ in self.parts:
            self._places[name] = places = [numbers.index(j) for j in taken[name]]
            own_names = [names[j] for j in places] if names else None
            self.parts_[name] = own = clone(family)
            own.text_levels = self.text_levels
            own.open(X[:, places], n_states, own_names, taken[name])
        mixed = [name for name, family in self.parts_.items() if family.n_parts > 1]
        if len(mixed) > 1:
            raise ValueError(
                "One part of a Product can be a mixture: put their columns into one, "
                f"got the mixtures {mixed}."
            )
        self._find_places(X)
        return self

    def reorder(self, order):
        """Put what users gave of states into another order."""
        self._note_order(order)
        self.parts_ = {name: copy(family) for name, family in self.parts_.items()}
        for family in self._each():
            family.reorder(order)

    def _find_places(self, X):
        """Find out where the parts' columns are once rows have been entered."""
        self._plain = all(
            type(family).enter is Emission.enter for family in self.parts_.values()
        )
        self._seats = dict(self._places)
        if self._plain:
            return
        first = 0
        for name, family in self.parts_.items():
            width = family.enter(X[:1, self._places[name]]).shape[1]
            self._seats[name] = list(range(first, first + width))
            first += width

    def enter(self, X):
        """Return the rows as the parts want them, side by side."""
        if self._plain:
            return X
        parts = zip(self.parts_.values(), self._places.values(), strict=True)
        return np.hstack([family.enter(X[:, places]) for family, places in parts])

    @property
    def emits(self):
        """Numbers, among the columns it reads, of those that states emit."""
        return sorted(j for columns in self._emitted().values() for j in columns)

    def _emitted(self):
        """The columns that every part emits."""
        return {
            name: [self._places[name][j] for j in family.emits]
            for name, family in self.parts_.items()
        }

    def _outputs(self):
        """Where the columns of every part are among all that are emitted."""
        emits = self.emits
        return [[emits.index(j) for j in own] for own in self._emitted().values()]

    @property
    def n_parts(self):
        """Parts of the family that is a mixture."""
        return max(family.n_parts for family in self._each())

    def _resolve(self, names, n_columns, rest):
        """Return the numbers of the columns of X that every part takes.

        Raises
        ------
        ValueError
            If there is no such column, or two parts emit one.
        """
        places, emitted = {}, []
        known = isinstance(self.parts, list | tuple)
        if not (known and len(self.parts) and all(map(_is_part, self.parts))):
            raise ValueError(
                "parts of Product must be a list of (name, family, columns), where "
                f"columns are a list of names or numbers, got {self.parts!r}."
            )
        for name, family, columns in self.parts:
            if not isinstance(family, Emission):
                raise ValueError(f"Part {name!r} must be a family, got {family!r}.")
            if name in places:
                raise ValueError(f"Two parts have the name {name!r}.")
            use = f"A column of part {name!r}"
            numbers = [column_number(c, use, names, n_columns) for c in columns]
            own = family.reads(names, n_columns, numbers)
            inputs = {*own} - {*numbers}
            emitted += [j for j in numbers if j not in inputs]
            hidden = sorted({*numbers} - {*rest})
            if hidden:
                raise ValueError(
                    f"Part {name!r} takes the columns {_named(hidden, names)}, which "
                    "hold ids of sequences, or inputs of transitions that states do "
                    "not emit (observed=True if they do)."
                )
            places[name] = own
        twice = sorted({j for j in emitted if emitted.count(j) > 1})
        if twice:
            raise ValueError(
                "A column can be emitted by one part only: several take "
                f"{_named(twice, names)}."
            )
        return places

    def _each(self, X=None):
        for name, family in self.parts_.items():
            yield (family, X[:, self._seats[name]]) if X is not None else family

    def check(self, X):
        """Raise a ValueError where a part does not know its values."""
        for family, places in zip(self._each(), self._places.values(), strict=True):
            family.check(X[:, places])

    @property
    def patterned(self):
        """Whether features depend on which values of a row are missing."""
        return any(family.patterned for family in self._each())

    def bound(self, X):
        """Return the families for the values that are missing in X."""
        family = copy(self)
        family.parts_ = {
            name: part.bound(X[:, self._seats[name]])
            for name, part in self.parts_.items()
        }
        return family

    @property
    def follows(self):
        """Whether features of rows depend on the parameters of a part."""
        return any(family.follows for family in self._each())

    @property
    def exact(self):
        """Whether one M step is enough for the parts that follow their parameters."""
        return all(family.exact for family in self._each() if family.follows)

    def columns(self, X, missing, parameters=None):
        """Return the columns of some rows; they follow the parameters if `follows`."""
        X, n = np.asarray(X, np.float64), len(self.parts_)
        own = [None] * n if parameters is None else self._split(parameters)
        parts = [X[:, seats] for seats in self._seats.values()]
        return np.hstack(self._map("columns", parts, [missing] * n, own))

    def features(self, missing):
        """Return the columns of every feature, equal features merged."""
        first, second, offset = [], [], 0
        for name, family in self.parts_.items():
            part = family.features(missing)
            for all_of, own in ((first, part.first), (second, part.second)):
                own = np.where(own >= 0, own + offset, own)[part.merged]
                rows = self.n_states_ if self.follows else 1
                all_of.append(np.broadcast_to(own, (rows, own.shape[1])))
            sample = np.zeros((1, len(self._seats[name])))
            offset += family.columns(sample, missing).shape[1]
        return self._merge(np.stack([np.hstack(first), np.hstack(second)], axis=2))

    def start_columns(self, X):
        """Return what the parts cluster, scaled to the same total variance."""
        columns = []
        for family, part in self._each(X):
            block = family.start_columns(part)
            scale = np.sqrt(block.var(axis=0).sum())
            columns.append(block / (scale if scale > 0.0 else 1.0))
        return np.hstack(columns)

    def narrowing(self, X):
        """Return entered rows; NaN is what no state can come down to in its width."""
        known = np.full(X.shape, np.nan)
        for (family, part), seats in zip(
            self._each(X), self._seats.values(), strict=True
        ):
            known[:, seats] = family.narrowing(part)
        return known

    # Everything else is the parts' own, side by side

    def _map(self, method, *parts):
        """What a method of every part returns of arguments, a list of each."""
        return [
            getattr(family, method)(*own)
            for family, *own in zip(self._each(), *parts, strict=True)
        ]

    def _split(self, parameters):
        return pieces(parameters, [len(family.scales()) for family in self._each()])

    def _split_features(self, features):
        return self._cut(features, self._map("n_features"))

    def _cut(self, features, sizes):
        # Only a mixture tells the parts of a state apart.
        return [
            part
            if family.n_parts == self.n_parts
            else part.reshape(-1, self.n_parts, part.shape[1]).sum(axis=1)
            for family, part in zip(self._each(), pieces(features, sizes), strict=True)
        ]

    def _repeated(self, method, parameters):
        """Rows of the families side by side, repeated for the parts of a mixture."""
        found = self._map(method, self._split(parameters))
        wide = max(map(len, found))
        return np.hstack([np.repeat(rows, wide // len(rows), axis=0) for rows in found])

    def theta(self, parameters):
        """Return the coefficients of the features."""
        return self._repeated("theta", parameters)

    def kernel_theta(self, parameters):
        """Return the coefficients of the features that rows are made into."""
        return self._repeated("kernel_theta", parameters)

    def spread(self, parameters):
        """Return standard deviations of the features."""
        return self._repeated("spread", parameters)

    def n_row_features(self):
        """Return how many features rows are made into."""
        return sum(self._map("n_row_features"))

    def complete(self, sums, parameters, collected=None):
        """Return sums of the families' features from those of the rows' features."""
        sums = self._cut(sums, self._map("n_row_features"))
        own = self._of_following(collected)
        return _side_by_side(self._map("complete", sums, self._split(parameters), own))

    def collect(self, X, weights, parameters):
        """Return the sums of the parts that follow their parameters, side by side."""
        each = zip(self._each(X), self._split(parameters), strict=True)
        sums = [
            family.collect(part, weights, own)
            for (family, part), own in each
            if family.follows
        ]
        return np.hstack(sums)

    def _of_following(self, collected):
        """Cut sums of the parts that follow their parameters; None for the others."""
        sizes = [f.n_features() * f.follows for f in self._each()]
        if collected is None:
            return [None] * len(sizes)
        cut = zip(pieces(collected, sizes), sizes, strict=True)
        return [part if size else None for part, size in cut]

    def model_sums(self, parameters, features):
        """Return the sums that the model expects of states of the same weights."""
        parts = self._split(parameters), self._split_features(features)
        return _side_by_side(self._map("model_sums", *parts))

    def weighted(self, parameters, weight):
        """Return the sums of features to expect where states have such weights."""
        parts = self._split(parameters)
        return _side_by_side(self._map("weighted", parts, [weight] * len(parts)))

    def given_start(self, parameters):
        """Put what the user gave in the place of starting values."""
        return np.hstack(self._map("given_start", self._split(parameters)))

    def log_prior(self, parameters):
        """Return the log-density of the parts' priors."""
        return sum(self._map("log_prior", self._split(parameters)))

    def scales(self):
        """Return the scale of every parameter."""
        return list(chain.from_iterable(self._map("scales")))

    def free(self, parameters):
        """Return the free coordinates, those of the parts one after another."""
        return np.concatenate(self._map("free", self._split(parameters)))

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        vectors = pieces(vector, self._map("n_parameters"))
        return np.hstack(self._map("bind", vectors, self._split(parameters)))

    def slope(self, parameters, features):
        """Return the gradient, in free coordinates, of Q and the priors."""
        parts = self._split(parameters), self._split_features(features)
        return np.concatenate(self._map("slope", *parts))

    def row_pieces(self, X):
        """Return what kernels of single rows take, or None where a part has none."""
        found, offset = [], 0
        for family, part in self._each(np.asarray(X, float)):
            pieces = family.row_pieces(part)
            if pieces is None:
                return None
            for own in pieces:
                index = np.where(own.index >= 0, own.index + offset, own.index)
                found.append(own._replace(index=index))
            offset += family.n_parameters()
        return found

    def moments(self, parameters):
        """Return mean and variance of every emitted column."""
        found = np.empty((2, len(parameters), len(self.emits)))
        parts = self._map("moments", self._split(parameters))
        for outputs, part in zip(self._outputs(), parts, strict=True):
            found[:, :, outputs] = part
        return tuple(found)

    def moments_at(self, parameters, X):
        """Return mean and variance of what is emitted, (n_rows, n_states, n)."""
        found = np.empty((2, len(X), len(parameters), len(self.emits)))
        parts = self._split(parameters), [part for _, part in self._each(X)]
        moments = self._map("moments_at", *parts)
        for outputs, part in zip(self._outputs(), moments, strict=True):
            found[:, :, :, outputs] = part
        return tuple(found)

    def families(self):
        """Return the families that the columns have."""
        return [own for family in self._each() for own in family.families()]

    def is_discrete(self, j):
        """Whether emitted column j has probabilities."""
        for family, outputs in zip(self._each(), self._outputs(), strict=True):
            if j in outputs:
                return family.is_discrete(outputs.index(j))
        raise AssertionError("every column has a part")

    def angles(self):
        """Return which of the emitted columns are angles, bool."""
        found = np.zeros(len(self.emits), bool)
        for outputs, part in zip(self._outputs(), self._map("angles"), strict=True):
            found[outputs] = part
        return found

    def depends_on_rows(self):
        """Whether what a part emits depends on other columns of a row."""
        return any(family.depends_on_rows() for family in self._each())

    def value_places(self):
        """Return where the emitted columns are in rows that have been entered."""
        places = {}
        for outputs, (name, family) in zip(
            self._outputs(), self.parts_.items(), strict=True
        ):
            seats = self._seats[name]
            own = [seats[place] for place in family.value_places()]
            places.update(zip(outputs, own, strict=True))
        return [places[j] for j in range(len(places))]

    def tails_at(self, X, j, parameters):
        """Return the probabilities of less and of more than emitted column j of X."""
        parts = self._each(X), self._outputs(), self._split(parameters)
        for (family, rows), outputs, own in zip(*parts, strict=True):
            if j in outputs:
                return family.tails_at(rows, outputs.index(j), own)
        raise AssertionError("every column has a part")

    def probabilities_at(self, parameters, X):
        """Return the probabilities of categories by name of the part."""
        parts = self._split(parameters), [part for _, part in self._each(X)]
        found = zip(self.parts_, self._map("probabilities_at", *parts), strict=True)
        return {name: own for name, own in found if own is not None} or None

    def row_weight(self, features):
        """Return the states' shares of the rows."""
        return np.max(self._map("row_weight", self._split_features(features)), axis=0)

    def blank(self):
        """Return parameters for states that have no rows at all."""
        return np.hstack(self._map("blank"))

    def maximize(self, features, before, repair):
        """Return the parts' parameters, or None where one has none."""
        parts = self._split_features(features), self._split(before)
        found = self._map("maximize", *parts, [repair] * len(self.parts_))
        return None if any(part is None for part in found) else np.hstack(found)

    def floors(self, parameters, features, names):
        """Yield widths of the data and of the states, and whose the least is."""
        parts = self._split(parameters), self._split_features(features)
        names = [[names[j] for j in places] for places in self._places.values()]
        return chain.from_iterable(self._map("floors", *parts, names))

    def publish(self, parameters, dtype):
        """Set the fitted attributes of the parts."""
        parts = zip(self.parts_.items(), self._split(parameters), strict=True)
        self.parts_ = {
            name: published(family, part, dtype) for (name, family), part in parts
        }

    def parameters(self):
        """Return the fitted parameters."""
        return np.hstack(self._map("parameters"))

    def n_parameters(self):
        """Return the number of free parameters of all states."""
        return sum(self._map("n_parameters"))

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        n_parts = len(self.parts_)
        drawn = self._map(
            "draw", self._split(parameters), [states] * n_parts, [rng] * n_parts
        )
        return self._emit(drawn)

    def draw_at(self, parameters, states, rng, X):
        """Return what is emitted for every state, in rows X."""
        parts = self._split(parameters), [part for _, part in self._each(X)]
        each = zip(self._each(), *parts, strict=True)
        return self._emit([f.draw_at(own, states, rng, rows) for f, own, rows in each])

    def _emit(self, drawn):
        X = np.empty((len(drawn[0]), len(self.emits)))
        for outputs, part in zip(self._outputs(), drawn, strict=True):
            X[:, outputs] = part
        return X

    def describe(self, names):
        """Return columns of a summary: those of the parts."""
        names = [[names[j] for j in places] for places in self._places.values()]
        columns = self._map("describe", names)
        return {name: column for part in columns for name, column in part.items()}


def _is_part(part):
    """Whether something can be a part: (name, family, columns)."""
    return (
        isinstance(part, list | tuple)
        and len(part) == 3
        and isinstance(part[0], str)
        and not isinstance(part[2], str)
        and hasattr(part[2], "__iter__")
    )


def _named(columns, names):
    """Columns by name, or by number where they have none."""
    return [names[j] if names else j for j in columns]


def _side_by_side(sums):
    """Sums of families; of those that are no mixture every part has an equal share."""
    times = [max(map(len, sums)) // len(own) for own in sums]
    parts = zip(sums, times, strict=True)
    return np.hstack([np.repeat(own / k, k, axis=0) for own, k in parts])
