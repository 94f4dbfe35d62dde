"""Features in which a prior is stated, and what is said of them as they are."""

from typing import NamedTuple

import numpy as np


class Units(NamedTuple):
    """Features in which a prior is stated, and how wide it is.

    Attributes
    ----------
    centre, deviation : ndarray of shape (n_features,)
        Of the features; a deviation of 1 where they do not vary, centres of 0 where
        there is no intercept to make up for them.
    width : float
        Standard deviation of a coefficient of such a feature, before any row.
    curvature : float, default=None
        Of the evidence by the logarithm of the width, as far as it is known.
    """

    centre: np.ndarray
    deviation: np.ndarray
    width: float = 1.0
    curvature: float | None = None

    @classmethod
    def of(cls, moments, fit_intercept):
        """Return those of features with `BothMoments`."""
        moments = moments.weighted
        deviation = np.where(moments.deviation > 0.0, moments.deviation, 1.0)
        return cls(moments.mean * fit_intercept, deviation)

    def __call__(self, rows):
        """Return rows in these units."""
        return ((rows - self.centre) / self.deviation).astype(rows.dtype)

    @property
    def axis(self):
        """What coefficients, the intercept behind them, have at features of zero."""
        return np.append(-self.centre / self.deviation, 1.0)

    def of_features(self, parts, q, fit_intercept):
        """Return parts (..., p, k) of a posterior, of features as they are."""
        found = {name: np.array(part) for name, part in parts.items()}
        p = len(self.deviation)
        for name, part in found.items():
            if not name.endswith("log_scale_std"):
                part[..., :p, :] /= self.deviation[:, None]
        if fit_intercept:
            names = "group_{}", "population_{}mean"
            for name, square in zip(names, q.variances_along(self.axis), strict=True):
                found[name][..., p, :] = self.axis @ parts[name]
                found[f"{name}_std"][..., p, :] = np.sqrt(square)
        return found

    def of_draws(self, found, draws, fit_intercept):
        """Return draws by name, of features as they are.

        Parameters
        ----------
        found : dict of str to ndarray
            Those of features in units.
        draws : ndarray of shape (n_draws, n_groups, p, k)
            Of coefficients of groups.
        fit_intercept : bool
        """
        changed = {
            name: part / self.deviation
            for name, part in found.items()
            if name != "group_intercept"
        }
        if fit_intercept:
            changed["group_intercept"] = self.axis @ draws
        return changed


def columns_of(parts, given):
    """Return numbers (..., p, k) of the features by class, and of the intercept.

    The latter are zero where there is none.
    """
    if given.fit_intercept:
        return np.swapaxes(parts[..., :-1, :], -1, -2), parts[..., -1, :]
    return np.swapaxes(parts, -1, -2), 0.0 * parts[..., 0, :]
