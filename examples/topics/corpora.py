"""Texts for the examples: 20 Newsgroups, or what needs no network."""

import importlib
import inspect
import socket
import warnings
from contextlib import contextmanager
from functools import cache

from sklearn.datasets import fetch_20newsgroups

MODULES = """
    numpy numpy.linalg numpy.fft numpy.random numpy.ma numpy.polynomial
    scipy.cluster.hierarchy scipy.fft scipy.integrate scipy.interpolate scipy.linalg
    scipy.ndimage scipy.optimize scipy.signal scipy.sparse scipy.sparse.csgraph
    scipy.sparse.linalg scipy.spatial scipy.spatial.distance scipy.special scipy.stats
    sklearn.cluster sklearn.datasets sklearn.decomposition sklearn.ensemble
    sklearn.feature_extraction sklearn.feature_selection sklearn.gaussian_process
    sklearn.linear_model sklearn.manifold sklearn.metrics sklearn.mixture
    sklearn.model_selection sklearn.naive_bayes sklearn.neighbors sklearn.neural_network
    sklearn.pipeline sklearn.preprocessing sklearn.svm sklearn.tree sklearn.utils
""".split()


def docstrings(least_words=60):
    """Return the documentation of NumPy, SciPy and scikit-learn, a text a function.

    Parameters
    ----------
    least_words : int
        Shorter texts are left out.

    Returns
    -------
    texts : list of str
    labels : list of str
        The module of each text.
    """
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # attributes that are deprecated
        for name in MODULES:
            module = importlib.import_module(name)
            for attribute in sorted(getattr(module, "__all__", dir(module))):
                value = vars(module).get(attribute)
                if attribute.startswith("_") or not callable(value):
                    continue
                text = inspect.getdoc(value) or ""
                if len(text.split()) >= least_words:
                    found.setdefault(text, name)
    return list(found), list(found.values())


@contextmanager
def short_wait(seconds):
    """Give up on a network that does not answer."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@cache
def newsgroups_or_docstrings():
    """Return the name, texts and labels of 20 Newsgroups, or else of `docstrings`.

    scikit-learn fetches the newsgroups once and keeps them.
    """
    try:
        with short_wait(10), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Retry downloading"
            bunch = fetch_20newsgroups(
                subset="all",
                remove=("headers", "footers", "quotes"),
                n_retries=1,
                random_state=0,
            )
    except OSError:  # no network
        return "documentation of NumPy, SciPy and scikit-learn", *docstrings()
    labels = [bunch.target_names[target] for target in bunch.target]
    return "20 Newsgroups", bunch.data, labels
