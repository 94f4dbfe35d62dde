"""Products of families over columns: mixed observations."""

from collections.abc import Sequence
from copy import copy
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from skvrem.hmm.emissions._base import Emission, published
from skvrem.utils._algebra import pieces


class Product(Emission):
    """Columns that are independent given the state, each of a family of its own.

    Parameters
    ----------
    parts : list of tuples (name, family, columns)
        Columns are a list of numbers or, where X is a data frame, of names. Numbers
        are those in X, ids of sequences left out, and every column needs a part. If
        all are names, other columns of X are left alone, whatever they hold.

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

    @property
    def column_names(self):
        """Names of the columns that the parts take, None where some are numbers."""
        try:
            columns = [c for _, _, columns in self.parts for c in columns]
        except (TypeError, ValueError):
            return None  # `open` says what is wrong
        return set(columns) if all(isinstance(c, str) for c in columns) else None

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

    def open(self, X, n_states, names=None):
        """Open every part on its columns."""
        self.n_states_, self.n_columns_ = n_states, X.shape[1]
        self._places = self._resolve(names, X.shape[1])
        self.parts_ = {}
        for name, family, _ in self.parts:
            if not isinstance(family, Emission):
                raise ValueError(f"Part {name!r} must be a family, got {family!r}.")
            part = X[:, self._places[name]]
            self.parts_[name] = clone(family).open(part, n_states)
        mixed = [name for name, family in self.parts_.items() if family.n_parts > 1]
        if len(mixed) > 1:
            raise ValueError(
                "One part of a Product can be a mixture: put their columns into one, "
                f"got the mixtures {mixed}."
            )
        return self

    @property
    def n_parts(self):
        """Parts of the family that is a mixture."""
        return max(family.n_parts for family in self._each())

    def _resolve(self, names, n_columns):
        """Return the numbers of the columns of every part."""
        places = {}
        known = isinstance(self.parts, list | tuple)
        if not (known and all(map(_is_part, self.parts))):
            raise ValueError(
                "parts of Product must be a list of (name, family, columns), where "
                f"columns are a list of names or numbers, got {self.parts!r}."
            )
        for name, _, columns in self.parts:
            numbers = []
            for column in columns:
                if isinstance(column, str):
                    if names is None or column not in names:
                        raise ValueError(
                            f"Part {name!r} names the column {column!r}: X has "
                            f"{'no names' if names is None else names}."
                        )
                    column = names.index(column)
                if not 0 <= column < n_columns:
                    raise ValueError(
                        f"Part {name!r} asks for column {column}; X has {n_columns} "
                        "observed columns."
                    )
                numbers.append(int(column))
            if name in places:
                raise ValueError(f"Two parts have the name {name!r}.")
            places[name] = numbers
        used = sorted(chain.from_iterable(places.values()))
        if used != list(range(n_columns)):
            left = [j for j in range(n_columns) if j not in used]
            twice = sorted({j for j in used if used.count(j) > 1})
            wrong = [
                f"{what} {[j if names is None else names[j] for j in which]}"
                for what, which in (("no part takes", left), ("several take", twice))
                if which
            ]
            raise ValueError(
                f"The parts must take each of the {n_columns} observed columns once, "
                f"they take {used}: {' and '.join(wrong)}. Parts that name all their "
                "columns leave the others of a data frame alone."
            )
        return places

    def _each(self, X=None):
        for name, family in self.parts_.items():
            yield (family, X[:, self._places[name]]) if X is not None else family

    def check(self, X):
        """Raise a ValueError where a part does not know its values."""
        for family, part in self._each(X):
            family.check(part)

    def bound(self, X):
        """Return the families for the values that are missing in X."""
        family = copy(self)
        family.parts_ = {
            name: part.bound(X[:, self._places[name]])
            for name, part in self.parts_.items()
        }
        return family

    @property
    def follows(self):
        """Whether features of rows depend on the parameters of a part."""
        return any(family.follows for family in self._each())

    def columns(self, X, missing, parameters=None):
        """Return the columns of some rows; they follow the parameters if `follows`."""
        X, n = np.asarray(X, np.float64), len(self.parts_)
        own = [None] * n if parameters is None else self._split(parameters)
        parts = [X[:, places] for places in self._places.values()]
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
            sample = np.zeros((1, len(self._places[name])))
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
        return self._cut(features, [len(family._pairs()) for family in self._each()])

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

    def complete(self, sums, parameters):
        """Return sums of the families' features from those of the rows' features."""
        sums = self._cut(sums, self._map("n_row_features"))
        return _side_by_side(self._map("complete", sums, self._split(parameters)))

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
        """Return mean and variance of every feature."""
        found = np.empty((2, len(parameters), self.n_columns_))
        for places, part in zip(
            self._places.values(),
            self._map("moments", self._split(parameters)),
            strict=True,
        ):
            found[:, :, places] = part
        return tuple(found)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in feature j."""
        for family, places, part in zip(
            self._each(), self._places.values(), self._split(parameters), strict=True
        ):
            if j in places:
                return family.tails(x, places.index(j), part)
        raise AssertionError("every column has a part")

    def weight(self, features):
        """Return the states' shares of the rows."""
        return np.max(self._map("weight", self._split_features(features)), axis=0)

    def blank(self):
        """Return parameters for states that have no rows at all."""
        return np.hstack(self._map("blank"))

    def maximize(self, features, before, repair):
        """Return the parts' parameters, or None where one has none."""
        parts = self._split_features(features), self._split(before)
        found = self._map("maximize", *parts, [repair] * len(self.parts_))
        return None if any(part is None for part in found) else np.hstack(found)

    def widths(self, parameters, features, names):
        """Yield variances of the data and of the states, of every Gaussian part."""
        parts = self._split(parameters), self._split_features(features)
        names = [[names[j] for j in places] for places in self._places.values()]
        return chain.from_iterable(self._map("widths", *parts, names))

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
        X, n_parts = np.empty((len(states), self.n_columns_)), len(self.parts_)
        drawn = self._map(
            "draw", self._split(parameters), [states] * n_parts, [rng] * n_parts
        )
        for places, part in zip(self._places.values(), drawn, strict=True):
            X[:, places] = part
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


def _side_by_side(sums):
    """Sums of families; of those that are no mixture every part has an equal share."""
    times = [max(map(len, sums)) // len(own) for own in sums]
    parts = zip(sums, times, strict=True)
    return np.hstack([np.repeat(own / k, k, axis=0) for own, k in parts])
