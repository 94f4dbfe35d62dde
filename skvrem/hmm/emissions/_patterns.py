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
"""

import numpy as np


class Patterns:
    """The patterns of some rows.

    Columns are the values, 0 where missing; these again for every pattern, 0 in rows of
    another; and which pattern a row has.

    Parameters
    ----------
    seen : ndarray of bool of shape (n_rows, n_features)
    """

    def __init__(self, seen):
        found = np.unique(seen[seen.any(axis=1)], axis=0)
        self.n_features = seen.shape[1]
        self.places = [np.flatnonzero(pattern) for pattern in found]
        self.upper = np.triu_indices(self.n_features)

    def columns(self, X):
        """Return the columns of rows that are centred, NaN where missing."""
        seen = ~np.isnan(X)
        X = np.where(seen, X, 0.0)
        own, which = [], []
        for places in self.places:
            whole = np.zeros(self.n_features, bool)
            whole[places] = True
            has = (seen == whole).all(axis=1, keepdims=True)
            own.append(X[:, places] * has)
            which.append(has)
        return np.hstack([X, *own, *which])

    def pairs(self, one):
        """Return the two columns of every feature; `one` is the column of ones."""
        pairs, at = [], self.n_features
        first = at + sum(map(len, self.places))
        for number, places in enumerate(self.places):
            own = at + np.arange(len(places))
            pairs.append((first + number, one))
            pairs += [(column, one) for column in own]
            i, j = np.triu_indices(len(places))
            pairs += list(zip(places[i], own[j], strict=True))
            at += len(places)
        return pairs

    def theta(self, mean, covariance, theta):
        """Return the coefficients, those of each pattern by ``theta(mean, cov)``."""
        return np.hstack(
            [
                theta(mean[:, places], covariance[:, places[:, None], places])
                for places in self.places
            ]
        )

    def complete(self, sums, mean, covariance):
        """Return sums of 1, x and x x^T of complete rows, given the parameters."""
        n, d = mean.shape
        count, total, products = np.zeros(n), np.zeros((n, d)), np.zeros((n, d, d))
        at = 0
        for places in self.places:
            size = len(places)
            i, j = np.triu_indices(size)
            c, s, packed = np.split(
                sums[:, at : at + 1 + size + len(i)], [1, 1 + size], axis=1
            )
            at += 1 + size + len(i)
            square = np.zeros((n, size, size))
            square[:, i, j] = square[:, j, i] = packed
            about = mean[:, places]
            # x = mu + K r + noise, with r = y_o - mu_o.
            inside = covariance[:, places[:, None], places]
            gain = np.linalg.solve(inside, covariance[:, places]).swapaxes(1, 2)
            noise = covariance - gain @ covariance[:, places]
            r = s - c * about
            cross = s[:, :, None] * about[:, None, :]
            rr = square - cross - cross.swapaxes(1, 2)
            rr += c[:, :, None] * about[:, :, None] * about[:, None, :]
            moved = np.einsum("kij,kj->ki", gain, r)
            mixed = mean[:, :, None] * moved[:, None, :]
            count += c[:, 0]
            total += c * mean + moved
            products += c[:, :, None] * (noise + mean[:, :, None] * mean[:, None, :])
            products += mixed + mixed.swapaxes(1, 2) + gain @ rr @ gain.swapaxes(1, 2)
        return np.hstack([count[:, None], total, products[:, *self.upper]])
