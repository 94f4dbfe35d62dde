"""Classes of rows: found, checked, and numbered."""

from contextlib import contextmanager

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skvrem.utils._columns import MatrixLike

# Labels that are looked at in one piece, so that no copy of all of them is made.
PIECE = 1 << 16


def number_classes(estimator, y, weight, known=None):
    """Return the classes of a fit and the number of each row's.

    Parameters
    ----------
    estimator : BaseEstimator
        Named in messages.
    y : ndarray of shape (n_samples,)
    weight : ndarray of shape (n_samples,) or None
    known : ndarray of shape (n_classes,), default=None
        The classes of a stream, of which y may hold some.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
    numbers : ndarray of shape (n_samples,)
        Of the smallest signed type that holds them.

    Raises
    ------
    ValueError
        If there are fewer than two classes, fewer than two with rows of positive
        weight, one that is not known, or labels that have no order.
    """
    y = column_or_1d(y)
    with ordered(y):
        if known is None:
            classes = _classes(y)
            # Of all labels the check takes as long as numbering, and a copy; it warns
            # where most of them are classes of their own.
            few = 2 * len(classes) <= len(y)
            check_classification_targets(np.repeat(classes, 2) if few else y)
        else:
            classes = known
        numbers = _numbers(y, classes)
    if len(classes) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs samples of at least 2 classes in the "
            f"data, but the data contains only one class: {classes[0]!r}"
        )
    if weight is not None and known is None:
        weighed = np.flatnonzero(count_classes(numbers, len(classes), weight > 0.0))
        if len(weighed) < 2:
            raise ValueError(
                f"Only the class {classes[weighed[0]]!r} has rows of positive "
                "weight: at least 2 classes are needed."
            )
    return classes, numbers


@contextmanager
def ordered(labels):
    """Say which labels there are where they cannot be put in order."""
    try:
        yield
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            "Labels of classes must be all numbers or all strings, got "
            f"{' and '.join(kinds)}: leave out the rows without a label, or give them "
            "one."
        ) from error


def stream_classes(estimator, classes):
    """Return the classes of a stream: given in the first call, the same in later ones.

    Raises
    ------
    ValueError
        If they are missing in the first call, or differ later.
    """
    first = not hasattr(estimator, "classes_")
    if first and classes is None:
        raise ValueError(
            "classes must be passed on the first call to partial_fit: all that "
            "the stream will bring, as y of one batch may not hold them all."
        )
    if classes is None:
        return estimator.classes_
    with ordered(classes):
        classes = np.unique(classes)
    if not first and not np.array_equal(classes, estimator.classes_):
        raise ValueError(
            f"`classes={classes.tolist()}` is not the same as on last "
            f"call to partial_fit, was: {estimator.classes_.tolist()}."
        )
    return classes if first else estimator.classes_


def _pieces(*arrays):
    """Yield pieces of arrays of one length; None stays None."""
    for start in range(0, len(arrays[0]), PIECE):
        rows = slice(start, start + PIECE)
        yield tuple(None if x is None else x[rows] for x in arrays)


def _classes(y):
    """Return the distinct labels, in order."""
    found = [np.unique(labels) for (labels,) in _pieces(y)]
    return np.unique(np.concatenate(found))


def _numbers(y, classes):
    """Return the number of each label among the classes."""
    last = len(classes) - 1
    numbers = np.empty(len(y), smallest_type(last + 1))
    for labels, out in _pieces(y, numbers):
        place = np.minimum(np.searchsorted(classes, labels), last)
        unseen = classes[place] != labels
        if unseen.any():
            raise ValueError(
                f"y holds classes {np.unique(labels[unseen]).tolist()}, which are not "
                f"among the classes {classes.tolist()} of the first call of "
                "partial_fit: give all of them there."
            )
        out[:] = place
    return numbers


def smallest_type(n_classes):
    """Return the smallest signed type that holds the numbers of classes."""
    return np.min_scalar_type(-n_classes)


def count_classes(numbers, n_classes, weight=None):
    """Return how many rows have each number, or what they weigh."""
    counts = np.zeros(n_classes, np.int64 if weight is None else np.float64)
    for some, weights in _pieces(numbers, weight):
        counts += np.bincount(some, weights, n_classes)
    return counts


def check_known(y, classes):
    """Check that targets to be scored are among the classes of the fit.

    Raises
    ------
    ValueError
        With the first row that has another one.
    """
    y = np.asarray(y)
    unknown = ~np.isin(y, classes)
    if unknown.any():
        row = int(unknown.argmax())
        raise ValueError(
            f"y[{row}] is {y.tolist()[row]!r}, which is none of the classes of the "
            f"fit, {classes.tolist()}."
        )


class PredictsByProba:
    """Classifiers whose ``predict_proba(X)`` says all.

    One that knows better has ``_most_probable(X)``, numbers of classes, and
    ``_log_proba(X)``.
    """

    def predict_log_proba(self, X: MatrixLike) -> np.ndarray:
        """Return the logarithms of the probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._log_proba(X)

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Return the most probable class of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        check_is_fitted(self)
        return self.classes_[self._most_probable(X)]

    def _log_proba(self, X):
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _most_probable(self, X):
        return self.predict_proba(X).argmax(axis=1)
