"""Every estimator of the package, and which common checks it cannot pass."""

import inspect
import pkgutil
from importlib import import_module
from operator import itemgetter

from sklearn.base import BaseEstimator

__all__ = ["all_estimators", "expected_failed_checks"]


def all_estimators() -> list[tuple[str, type]]:
    """Return all public estimators of the package.

    These are the subclasses of :class:`sklearn.base.BaseEstimator` that can be fitted,
    are not abstract, and that a public module, ``skvrem`` itself or one of its folders,
    lists in its ``__all__``.

    Returns
    -------
    estimators : list of tuples (name, class)
        Sorted by name, each class once.

    Examples
    --------
    >>> from skvrem.utils.discovery import all_estimators
    >>> dict(all_estimators())["VRGaussianMixture"]
    <class 'skvrem.mixture._estimator.VRGaussianMixture'>
    """
    package = import_module(__name__.partition(".")[0])
    found = {}
    for module in (package, *_public_modules(package)):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if (
                inspect.isclass(value)
                and issubclass(value, BaseEstimator)
                and hasattr(value, "fit")
                and not inspect.isabstract(value)
            ):
                found[value.__name__] = value
    return sorted(found.items(), key=itemgetter(0))


WEIGHTS = "check_sample_weight_equivalence_on_"
OTHER_START = "the start is drawn from the rows, of which there is another number"
OTHER_BLOCKS = "minibatches are drawn from rows, of which there is another number"
ONE_WEIGHT = "a sequence counts as a whole: its rows have one weight"


def expected_failed_checks(estimator: BaseEstimator) -> dict[str, str]:
    """Return which of scikit-learn's common checks an estimator cannot pass, and why.

    The checks compare a fit of weighted rows with one of repeated rows. Starting values
    of a mixture, and minibatches of any model, are drawn from the rows there are, and
    another number of rows means other draws, as for scikit-learn's KMeans. Given the
    draws, both fits are the same. Rows of a hidden Markov model belong to sequences,
    and those are what weights are of.

    Parameters
    ----------
    estimator : estimator
        Of this package.

    Returns
    -------
    expected_failed_checks : dict of str to str
        Reasons by the names of checks, as
        :func:`~sklearn.utils.estimator_checks.check_estimator` takes them;
        :func:`~sklearn.utils.estimator_checks.parametrize_with_checks` takes this
        function.

    Examples
    --------
    >>> from skvrem import VRHMM, VRPLSA
    >>> from skvrem.utils.discovery import expected_failed_checks
    >>> expected_failed_checks(VRPLSA())
    {}
    >>> sorted(expected_failed_checks(VRHMM()))[0]
    'check_sample_weight_equivalence_on_dense_data'
    """
    kinds = {kind.__name__ for kind in type(estimator).__mro__}
    solver = getattr(estimator, "solver", None)
    dense, sparse = WEIGHTS + "dense_data", WEIGHTS + "sparse_data"
    if "VRHMM" in kinds:
        return {dense: ONE_WEIGHT, "check_sample_weights_not_overwritten": ONE_WEIGHT}
    if "VRGaussianMixture" in kinds and estimator.n_components > 1:
        return {dense: OTHER_START}
    if kinds & {"VRPLSA", "TemperedLDA", "SBMLogisticRegression"}:
        draws = solver in ("stochastic", "svrg")
    elif "BayesianLogisticRegression" in kinds:
        draws = solver not in ("auto", "batch")
    else:
        draws = False
    if draws:
        return {dense: OTHER_BLOCKS, sparse: OTHER_BLOCKS}
    if "GaussianDropoutClassifier" in kinds and solver == "svrg":
        return {dense: OTHER_BLOCKS}
    return {}


def _public_modules(package):
    """Import the modules below a package whose names have no private part."""
    prefix = package.__name__ + "."
    for module in pkgutil.iter_modules(package.__path__, prefix):
        if not module.name.rpartition(".")[2].startswith("_"):
            loaded = import_module(module.name)
            yield loaded
            if module.ispkg:
                yield from _public_modules(loaded)
