"""Models side by side: criteria, and whether what is left over is noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import summary_table
from skvrem.utils._columns import Given, column_of


def compare_models(
    models: Mapping[str, Any] | Sequence[Any],
    X: ArrayLike,
    *,
    groups: Given = None,
    lengths: Given = None,
    n_lags: int = 10,
) -> Any:
    """Return a table of fitted models by what they say of the same rows.

    Parameters
    ----------
    models : dict of str to estimator, or list of estimators
        Fitted, with `aic` and `bic`: hidden Markov models and mixtures.
    X : array-like of shape (n_samples, n_features)
        Rows that all were fitted to.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence, for hidden Markov models; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.
    n_lags : int, default=10
        Lags of the test of autocorrelation.

    Returns
    -------
    table : pandas.DataFrame, or str where pandas is not installed
        A row a model, that of the lowest AIC first: number of parameters,
        log-likelihood of all rows, AIC, how much it is above the lowest, Akaike's
        weights (the evidence for each, if one of them is right), BIC and its
        difference; of models with pseudo-residuals the p-values of Jarque and Bera's
        test that these are normal and of Ljung and Box's that they are not correlated,
        the smallest of the columns times the number of tests that could be made. A
        small one says that the model misses something. "pairs" is the fewest values
        that have one so many rows before in their sequence, over columns and lags: what
        the latter test rests on. NaN is what a model does not have.

    Raises
    ------
    ValueError
        If there is no model, one cannot be judged so, or was fitted to another number
        of rows, or if models describe different numbers of columns.

    References
    ----------
    Burnham, Anderson (2002). Model Selection and Multimodel Inference. Springer.
    Stoffer, Toloi (1992). A note on the Ljung-Box-Pierce portmanteau statistic with
    missing data. Statistics & Probability Letters, 13.
    Zucchini, MacDonald, Langrock (2016). Hidden Markov Models for Time Series, ch. 6.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import VRHMM, compare_models
    >>> X = np.repeat([[0.0], [5.0], [0.0]], 50, axis=0)
    >>> X += np.random.default_rng(0).normal(size=X.shape)
    >>> models = {f"{n} states": VRHMM(n, random_state=0).fit(X) for n in (1, 2, 3)}
    >>> compare_models(models, X)["parameters"]
    2 states     7
    3 states    14
    1 states     2
    Name: parameters, dtype: int64
    """
    if not isinstance(models, Mapping):
        models = {_name(model, i): model for i, model in enumerate(models)}
    if not models:
        raise ValueError("models must be at least one fitted model, got none.")
    rows = {
        name: _row(name, model, X, groups, lengths, n_lags)
        for name, model in models.items()
    }
    described = {name: row.pop("columns") for name, row in rows.items()}
    if len(set(described.values())) > 1:
        raise ValueError(
            "Likelihoods of different columns cannot be compared. The models describe "
            f"so many: {described}."
        )
    rows = dict(sorted(rows.items(), key=lambda item: item[1]["AIC"]))
    columns = {key: np.array([row[key] for row in rows.values()]) for key in _KEYS}
    above = columns["AIC"] - columns["AIC"].min()
    weights = np.exp(-0.5 * above)
    found = {
        **{key: columns[key] for key in _KEYS[:3]},
        "AIC difference": above,
        "AIC weight": weights / weights.sum(),
        "BIC": columns["BIC"],
        "BIC difference": columns["BIC"] - columns["BIC"].min(),
        **{key: columns[key] for key in _KEYS[4:]},
    }
    return summary_table(found, list(rows), {})


_KEYS = "parameters", "log-likelihood", "AIC", "BIC"
_KEYS += "normal p", "uncorrelated p", "pairs"


def _name(model, number):
    return f"{type(model).__name__} {number}"


def _row(name, model, X, groups, lengths, n_lags):
    if not (hasattr(model, "aic") and hasattr(model, "bic")):
        raise ValueError(
            f"{name} is a {type(model).__name__}, which has no aic and bic: compare "
            "hidden Markov models and mixtures."
        )
    check_is_fitted(model)
    residual = hasattr(model, "pseudo_residuals")
    if not residual and (groups is not None or lengths is not None):
        raise ValueError(f"{name} knows no sequences: leave groups and lengths out.")
    seen = getattr(model, "n_samples_seen_", None)
    if seen is not None and (seen < len(X) or seen % len(X)):  # warm starts see again
        raise ValueError(
            f"{name} was fitted to {seen} rows, X has {len(X)}: criteria are of the "
            "rows of the fit."
        )
    given = {"groups": groups, "lengths": lengths} if residual else {}
    aic, bic = float(model.aic(X, **given)), float(model.bic(X, **given))
    count = getattr(model, "n_parameters_", None)
    count = model._n_parameters() if count is None else count
    row = {
        "parameters": int(count),
        "log-likelihood": count - 0.5 * aic,
        "AIC": aic,
        "BIC": bic,
        "normal p": np.nan,
        "uncorrelated p": np.nan,
        "pairs": np.nan,
        "columns": model.n_features_in_,
    }
    if residual:
        numbers = sequence_numbers(model, X, groups, lengths)
        residuals = np.transpose(model.pseudo_residuals(X, **given))
        row["columns"] = len(residuals)
        normal = [_normality(column) for column in residuals]
        tests = [_independence(column, numbers, n_lags) for column in residuals]
        independent, pairs = zip(*tests, strict=True)
        for key, values in zip(_KEYS[4:6], (normal, independent), strict=True):
            made = [value for value in values if not np.isnan(value)]
            if made:
                row[key] = min(1.0, min(made) * len(made))
        row["pairs"] = float(min(pairs))
    return row


def _normality(column):
    """P-value of Jarque and Bera's test, of what is not missing."""
    column = column[np.isfinite(column)]
    n = len(column)
    if n < 3 or np.ptp(column) == 0.0:
        return np.nan
    centred = column - column.mean()
    variance = np.mean(centred**2)
    skewness = np.mean(centred**3) / variance**1.5
    kurtosis = np.mean(centred**4) / variance**2 - 3.0
    return float(chdtrc(2, n / 6.0 * (skewness**2 + 0.25 * kurtosis**2)))


def _independence(column, sequences, n_lags):
    r"""P-value of Ljung and Box's test within sequences, and the fewest pairs of a lag.

    With :math:`m_k` pairs at lag k that are both seen and correlations r over these,
    the statistic is :math:`(n + 2) / n \sum_k m_k r_k^2`: where nothing is missing that
    of Ljung and Box, else Stoffer and Toloi's.
    """
    n = int(np.isfinite(column).sum())
    n_lags = min(n_lags, n - 2)
    if n_lags < 1:
        return np.nan, 0
    values, pairs = autocorrelations(column, sequences, n_lags)
    seen = np.isfinite(values)
    if not seen.any():
        return np.nan, 0
    statistic = (n + 2.0) / n * np.sum(pairs[seen] * values[seen] ** 2)
    return float(chdtrc(seen.sum(), statistic)), int(pairs.min())


def autocorrelations(column, sequences, n_lags):
    """Return correlations with the values so many rows before, within sequences.

    Parameters
    ----------
    column : ndarray of shape (n_samples,)
        NaN is missing.
    sequences : ndarray of int of shape (n_samples,), or None
        Number of each row's sequence.
    n_lags : int

    Returns
    -------
    values : ndarray of shape (n_lags,)
        Means of products over the pairs of values that are both seen, divided by the
        mean of squares; NaN where there are none.
    pairs : ndarray of int of shape (n_lags,)
        How many pairs there are.
    """
    known = np.isfinite(column)
    centred = np.where(known, column - column[known].mean(), 0.0)
    scale = np.mean(centred[known] ** 2)
    values, pairs = np.full(n_lags, np.nan), np.zeros(n_lags, int)
    for lag in range(1, n_lags + 1):
        both = known[lag:] & known[:-lag]
        if sequences is not None:
            both &= sequences[lag:] == sequences[:-lag]
        pairs[lag - 1] = both.sum()
        if pairs[lag - 1] and scale:
            products = centred[lag:] * centred[:-lag]
            values[lag - 1] = products[both].mean() / scale
    return values, pairs


def sequence_numbers(estimator, X, groups, lengths):
    """Return the number of each row's sequence, of ids in a column of X too."""
    n_rows, column = len(X), getattr(estimator, "groups", None)
    if lengths is not None:
        lengths = np.asarray(lengths)
        return np.repeat(np.arange(len(lengths)), lengths)
    if groups is None and column is not None:
        if not hasattr(X, "columns"):
            X = np.asarray(X)
        groups = X[column] if isinstance(column, str) else column_of(X, column)
    if groups is None:
        return np.zeros(n_rows, int)
    return np.unique(np.asarray(groups), return_inverse=True)[1].ravel()
