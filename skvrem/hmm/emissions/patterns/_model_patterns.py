r"""Gaussian rows that are missing in part, with covariances between their values.

Rows with the same values observed have one *pattern* o. Their log-density is that of
the marginal distribution, quadratic in what is observed,

.. math:: \log N(y_o; \mu_o, \Sigma_{oo}) ,

so it has features of its own for each pattern. Their sums become those of complete
rows by the conditional moments of the missing values m, with
:math:`B = \Sigma_{mo} \Sigma_{oo}^{-1}`:

.. math:: E[y_m \mid y_o] = \mu_m + B (y_o - \mu_o), \qquad
          \mathrm{Cov}[y_m \mid y_o] = \Sigma_{mm} - B \Sigma_{om}

which is the E step of EM (Little and Rubin 2002, section 11.2).

Features of many patterns are nearly all 0 in every row. There the family follows its
parameters instead: kernels take the log-densities of rows, and the sums of complete
rows are made from the rows and the posteriors of their states.
"""

from itertools import chain

import numpy as np

from skvrem.hmm.emissions.patterns import _kernels_patterns as kernels

# Times the features of complete rows that those of the patterns may be: with more it
# is faster to look at every row by itself.
MOST_FEATURES = 6


class Patterns:
    """The patterns of some rows, those of fewer values first.

    Columns are the values, 0 where missing; these again for every pattern, 0 in rows of
    another; and which pattern a row has.

    Parameters
    ----------
    seen : ndarray of bool of shape (n_rows, n_features)
    """

    def __init__(self, seen):
        order, bounds = _by_pattern(seen)
        found = seen[order[bounds[:-1]]]
        found = found[found.any(axis=1)]
        size = found.sum(axis=1)
        self.n_features = seen.shape[1]
        #: Of patterns of as many values, which these are, (n_patterns, size).
        self.places = [
            np.nonzero(found[size == s])[1].reshape(-1, s) for s in np.unique(size)
        ]
        self.upper = np.triu_indices(self.n_features)

    @property
    def many(self):
        """Whether there are so many that every row is looked at by itself."""
        d = self.n_features
        n_features = sum(
            len(places) * size_of(places.shape[1]) for places in self.places
        )
        return n_features > MOST_FEATURES * size_of(d)

    def columns(self, X):
        """Return the columns of rows that are centred, NaN where missing."""
        seen = ~np.isnan(X)
        X = np.where(seen, X, 0.0)
        own, which = [], []
        for places in chain.from_iterable(self.places):
            whole = np.zeros(self.n_features, bool)
            whole[places] = True
            has = (seen == whole).all(axis=1, keepdims=True)
            own.append(X[:, places] * has)
            which.append(has)
        return np.hstack([X, *own, *which])

    def pairs(self, one):
        """Return the two columns of every feature; `one` is the column of ones."""
        pairs, at = [], self.n_features
        first = at + sum(places.size for places in self.places)
        for number, places in enumerate(chain.from_iterable(self.places)):
            own = at + np.arange(len(places))
            pairs.append((first + number, one))
            pairs += [(column, one) for column in own]
            i, j = np.triu_indices(len(places))
            pairs += list(zip(places[i], own[j], strict=True))
            at += len(places)
        return pairs

    def theta(self, mean, covariance):
        """Return the coefficients, those of each pattern side by side."""
        rows = []
        for places in self.places:
            # Patterns of all states one after another.
            size = places.shape[1]
            inside = covariance[:, places[:, :, None], places[:, None]]
            own = dense_theta(
                mean[:, places].reshape(-1, size), inside.reshape(-1, size, size)
            )
            rows.append(own.reshape(len(mean), -1))
        return np.hstack(rows)

    def complete(self, sums, mean, covariance):
        """Return sums of 1, x and x x^T of complete rows, given the parameters."""
        n, d = mean.shape
        count, total, products = np.zeros(n), np.zeros((n, d)), np.zeros((n, d, d))
        at = 0
        for places in self.places:
            # All arrays (n_states, n_patterns, ...).
            n_patterns, size = places.shape
            i, j = np.triu_indices(size)
            stop = at + n_patterns * (1 + size + len(i))
            own = sums[:, at:stop].reshape(n, n_patterns, -1)
            at = stop
            c, s, packed = own[..., 0], own[..., 1 : 1 + size], own[..., 1 + size :]
            square = np.zeros((n, n_patterns, size, size))
            square[..., i, j] = square[..., j, i] = packed
            about = mean[:, places]
            # x = mu + K r + noise, with r = y_o - mu_o.
            inside = covariance[:, places[:, :, None], places[:, None]]
            across = covariance[:, places]
            gain = np.linalg.solve(inside, across).swapaxes(2, 3)
            noise = covariance[:, None] - gain @ across
            r = s - c[..., None] * about
            cross = s[..., :, None] * about[..., None, :]
            rr = square - cross - cross.swapaxes(2, 3)
            rr += (c[..., None] * about)[..., :, None] * about[..., None, :]
            spread = c[..., None, None] * noise + gain @ rr @ gain.swapaxes(2, 3)
            moved = (gain @ r[..., None])[..., 0].sum(axis=1)
            mixed = mean[:, :, None] * moved[:, None, :]
            c = c.sum(axis=1)
            count += c
            total += c[:, None] * mean + moved
            products += c[:, None, None] * mean[:, :, None] * mean[:, None, :]
            products += spread.sum(axis=1) + mixed + mixed.swapaxes(1, 2)
        return np.hstack([count[:, None], total, products[:, *self.upper]])


def inverses(covariance):
    """Return symmetric inverses of matrices, and the logarithms of the determinants.

    Columns are brought to one unit first, or rounding would depend on theirs. What it
    makes of one triangle and not of the other is divided among both.
    """
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    scales = scale[:, :, None] * scale[:, None, :]
    precision = np.linalg.inv(covariance / scales)
    precision = 0.5 * (precision + precision.swapaxes(1, 2)) / scales
    logs = np.linalg.slogdet(covariance / scales)[1]
    return precision, logs + 2.0 * np.log(scale).sum(axis=1)


def dense_theta(mean, covariance):
    """Return the coefficients of 1, x and the upper triangle of x x^T.

    Far from zero their terms cancel, as long as all are of the same symmetric matrix.
    """
    d = mean.shape[1]
    precision, logs = inverses(covariance)
    linear = np.einsum("kij,kj->ki", precision, mean)
    constant = logs + (linear * mean).sum(axis=1) + d * kernels.LOG_2PI
    products = -precision
    products[:, range(d), range(d)] *= 0.5
    products = products[:, *np.triu_indices(d)]
    return np.hstack([-0.5 * constant[:, None], linear, products])


def size_of(d):
    """Return the number of features of so many values: 1, x and x x^T."""
    return 1 + d + d * (d + 1) // 2


def log_densities(X, mean, covariance):
    """Return those of centred rows, NaN where missing, (n_rows, n_states)."""
    out = np.empty((len(X), len(mean)))
    kernels.log_densities(X, *_by_pattern(~np.isnan(X)), mean, covariance, out)
    return out


def collect(weights, X, mean, covariance):
    """Return sums of 1, x and x x^T of complete rows, which states weigh so."""
    n, d = mean.shape
    sums = np.zeros(n), np.zeros((n, d)), np.zeros((n, d, d))
    rows = X, *_by_pattern(~np.isnan(X)), np.ascontiguousarray(weights)
    kernels.complete(*rows, mean, covariance, *sums)
    count, total, products = sums
    upper = np.triu_indices(d)
    return np.hstack([count[:, None], total, products[:, *upper]])


def _by_pattern(seen):
    """Return rows in lexicographic order of what is seen, and where patterns begin."""
    bits = np.packbits(seen, axis=1)
    words = np.zeros((len(bits), -(-bits.shape[1] // 2)), ">u2")
    words.view(np.uint8)[:, : bits.shape[1]] = bits
    words = words.astype(np.uint16)  # of 16 bits, which are sorted in linear time
    order = np.lexsort(words.T[::-1])
    words = words[order]
    begins = np.flatnonzero((words[1:] != words[:-1]).any(axis=1)) + 1
    # Without any rows there is no pattern.
    return order, np.unique(np.concatenate([[0], begins, [len(seen)]]))
