"""Every estimator of the package, for tests and tables that cover them all."""

import inspect
import pkgutil
from importlib import import_module
from operator import itemgetter

from sklearn.base import BaseEstimator

__all__ = ["all_estimators"]


def all_estimators():
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


def _public_modules(package):
    """Import the modules below a package whose names have no private part."""
    prefix = package.__name__ + "."
    for module in pkgutil.iter_modules(package.__path__, prefix):
        if not module.name.rpartition(".")[2].startswith("_"):
            loaded = import_module(module.name)
            yield loaded
            if module.ispkg:
                yield from _public_modules(loaded)
