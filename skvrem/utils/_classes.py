"""Classes of rows: found, checked, and numbered."""

from contextlib import contextmanager

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._columns import MatrixLike


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
    numbers : ndarray of int32 of shape (n_samples,)

    Raises
    ------
    ValueError
        If there are fewer than two classes, fewer than two with rows of positive
        weight, one that is not known, or labels that have no order.
    """
    with _ordered(y):
        if known is not None:
            classes, numbers = known, _numbers(y, known)
        else:
            classes, numbers = np.unique(y, return_inverse=True)
            integers = isinstance(y, np.ndarray) and y.dtype.kind in "biu"
            if not integers or 2 * len(classes) > len(y):
                check_classification_targets(y)  # which takes as long as numbering
    if len(classes) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs samples of at least 2 classes in the "
            f"data, but the data contains only one class: {classes[0]!r}"
        )
    numbers = numbers.astype(np.int32)
    if weight is not None and known is None:
        weighed = np.unique(numbers[weight > 0.0])
        if len(weighed) < 2:
            raise ValueError(
                f"Only the class {classes[weighed[0]]!r} has rows of positive "
                "weight: at least 2 classes are needed."
            )
    return classes, numbers


@contextmanager
def _ordered(labels):
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
    with _ordered(classes):
        classes = np.unique(classes)
    if not first and not np.array_equal(classes, estimator.classes_):
        raise ValueError(
            f"`classes={classes.tolist()}` is not the same as on last "
            f"call to partial_fit, was: {estimator.classes_.tolist()}."
        )
    return classes if first else estimator.classes_


def _numbers(y, classes):
    """Return the numbers of classes that are known already."""
    numbers = np.searchsorted(classes, y)
    np.minimum(numbers, len(classes) - 1, out=numbers)
    unseen = classes[numbers] != y
    if unseen.any():
        raise ValueError(
            f"y holds classes {np.unique(y[unseen]).tolist()}, which are not among the "
            f"classes {classes.tolist()} of the first call of partial_fit: give all of "
            "them there."
        )
    return numbers


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
