"""Variances of the data against the constant that is added to those of a model."""

import sys
import warnings

import numpy as np

from skvrem.exceptions import CollapsedComponentWarning, DataScaleWarning

__all__ = ["warn_scale"]

# Share of a column's variance that the constant may be. A larger one than the default
# was chosen, to regularize: of that only so much is said that it is beyond all columns.
SHARE, DEFAULT = 0.01, 1e-6
# A part has collapsed where all its variances are within this factor of the constant,
# those of the columns are beyond that one, and it holds at most such a share of the
# rows, or so many: more are a value that comes often, which is for the part to find.
NARROW, WIDE, FEW_SHARE, FEW = 2.0, 1e4, 0.01, 5.0
# Columns that are named, and deviations in units of the mean that are rounding.
NAMED, ROUNDING = 5, 1e-12


def warn_scale(estimator, reg_covar, variances, means, names, kind, parts, rows):
    """Warn if `reg_covar` does not fit the data, or parts have come down to it.

    Parameters
    ----------
    estimator : estimator
    reg_covar : float
        What is added to the variances.
    variances, means : ndarray of shape (n_features,)
        Of the columns of the data.
    names : list of str
        Of these columns.
    kind : str
        "component" or "state".
    parts : ndarray of shape (n_parts, n_features)
        Variances of each part.
    rows : ndarray of shape (n_parts,)
        How many rows each part has.

    Returns
    -------
    warned : bool
        Whether there was something to warn of.
    """
    varies = variances > np.square(ROUNDING * np.abs(means))
    rivals = varies & (reg_covar > SHARE * variances)
    if reg_covar > DEFAULT and (reg_covar <= variances[varies]).any():
        rivals[:] = False
    if rivals.any():
        found = np.flatnonzero(rivals)
        found = found[np.argsort(variances[found], kind="stable")]
        which = ", ".join(f"{names[j]} ({variances[j]:.3g})" for j in found[:NAMED])
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        warnings.warn(
            f"reg_covar={reg_covar:g} of {type(estimator).__name__} is more than "
            f"{SHARE:.0%} of the variance of some columns: {which}{more}. It is added "
            "to their variances, so narrow "
            f"{kind}s cannot be told apart. Scale the data "
            "(sklearn.preprocessing.StandardScaler), or give a smaller reg_covar.",
            DataScaleWarning,
            stacklevel=_outside(),
        )
        return True
    wide = varies & (variances > WIDE * reg_covar)
    if not reg_covar or not wide.any():
        return False
    few = rows <= max(FEW, FEW_SHARE * rows.sum())
    fallen = few & (rows > 0.5) & (parts[:, wide] <= NARROW * reg_covar).all(axis=1)
    if not fallen.any():
        return False
    which = ", ".join(f"{k} ({rows[k]:.3g} rows)" for k in np.flatnonzero(fallen))
    warnings.warn(
        f"Some {kind}s of {type(estimator).__name__} have collapsed onto single "
        f"points, with no variance but reg_covar={reg_covar:g}: {which}. What they add "
        "to the likelihood is that number's. "
        f"Take fewer {kind}s, more starts (n_init) or a "
        "larger reg_covar, or look for repeated rows.",
        CollapsedComponentWarning,
        stacklevel=_outside(),
    )
    return True


def _outside():
    """Level of the caller's first frame that is neither ours nor scikit-learn's."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _package(frame) in ("skvrem", "sklearn"):
        frame, level = frame.f_back, level + 1
    return level


def _package(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0]
