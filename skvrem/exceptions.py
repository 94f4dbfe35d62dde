"""Warnings of the package, a class for each cause.

All can be silenced or made errors one by one, with :func:`warnings.filterwarnings`.
Warnings that a fit did not end at an optimum are scikit-learn's
:class:`~sklearn.exceptions.ConvergenceWarning` as well.
"""

from sklearn.exceptions import ConvergenceWarning

__all__ = [
    "CheckpointWarning",
    "CollapsedComponentWarning",
    "DataScaleWarning",
    "FewGroupsWarning",
    "FractionalCountsWarning",
    "MaxIterWarning",
    "OneClassWarning",
    "PosteriorWarning",
    "StalledWarning",
]


class MaxIterWarning(ConvergenceWarning):
    """The epochs allowed by ``max_iter`` were not enough."""


class StalledWarning(ConvergenceWarning):
    """No step gained any more, though more was predicted."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the fit goes on."""


class CollapsedComponentWarning(UserWarning):
    """A component or state is nothing, or as narrow as regularization lets it be."""


class DataScaleWarning(UserWarning):
    """A parameter in the data's units does not fit the scale of the data."""


class FewGroupsWarning(UserWarning):
    """Groups are missing, or too few to tell what groups have in common."""


class OneClassWarning(UserWarning):
    """A stream begins with rows of a single class."""


class PosteriorWarning(UserWarning):
    """The Gaussian posterior of a model is far from the exact one, or very wide."""


class FractionalCountsWarning(UserWarning):
    """Weights such as TF-IDF stand where priors are measured in counts."""
