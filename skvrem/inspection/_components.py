"""Components that are images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skvrem.inspection._axes import numbers_of_parts, titled_axes
from skvrem.text._words import check_size

__all__ = ["ComponentsDisplay"]


@dataclass(eq=False, repr=False)
class ComponentsDisplay:
    """Components that are images, one picture a component.

    Use :meth:`from_estimator` to make one from a fitted model.

    Parameters
    ----------
    components : array-like of shape (n_components, n_features)
        The images, row by row.
    image_shape : tuple of int
        (height, width) of an image, whose product is n_features.
    titles : list of str, default=None
        By default "component 0", "component 1" and so on.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes of shape (n_components,)
    figure_ : matplotlib.figure.Figure
    images_ : list of matplotlib.image.AxesImage
        One for each component.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import ComponentsDisplay
    >>> display = ComponentsDisplay(np.eye(3, 6), (2, 3)).plot()
    >>> [ax.get_title() for ax in display.axes_]
    ['component 0', 'component 1', 'component 2']
    """

    components: ArrayLike
    image_shape: tuple[int, int]
    titles: Sequence[str] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        image_shape: tuple[int, int],
        *,
        components: ArrayLike | None = None,
        titles: Sequence[str] | None = None,
        ax: Any = None,
        n_columns: int = 8,
        **kwargs: Any,
    ) -> Self:
        """Draw the components of a fitted model.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``components_`` or ``means_``.
        image_shape : tuple of int
            (height, width) of an image.
        components : array-like of int, default=None
            Those to draw, all of them by default.
        titles : list of str, default=None
            Titles of these; by default their numbers.
        ax : array-like of matplotlib Axes, default=None
            One for each component; drawn on a new figure if None.
        n_columns : int, default=8
            Pictures in a row of the new figure.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.imshow`.

        Returns
        -------
        display : ComponentsDisplay

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        ValueError
            If it has no components or no such one, or shapes do not match.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from skvrem import ComponentsDisplay, VRGaussianMixture
        >>> X = load_digits().data
        >>> mixture = VRGaussianMixture(4, covariance_type="diag", reg_covar=1.0)
        >>> mixture = mixture.set_params(random_state=0).fit(X)
        >>> display = ComponentsDisplay.from_estimator(mixture, (8, 8), components=[2])
        >>> len(display.images_)
        1
        """
        check_is_fitted(estimator)
        rows = getattr(estimator, "components_", getattr(estimator, "means_", None))
        if rows is None:
            raise ValueError(
                f"This {type(estimator).__name__} has neither components_ nor means_."
            )
        numbers = numbers_of_parts(components, len(rows), "component")
        if titles is None:
            titles = [f"component {number}" for number in numbers]
        display = cls(np.asarray(rows)[numbers], image_shape, titles)
        return display.plot(ax=ax, n_columns=n_columns, **kwargs)

    def plot(self, ax: Any = None, *, n_columns: int = 8, **kwargs: Any) -> Self:
        """Draw the images.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            One for each component; drawn on a new figure if None.
        n_columns : int, default=8
            Pictures in a row of the new figure.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.imshow`. Without `vmin` and `vmax`
            all images share one symmetric scale, so that zero has one colour.

        Returns
        -------
        display : ComponentsDisplay
            With the attributes ``axes_``, ``figure_`` and ``images_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw, or shapes or numbers of titles or axes do not
            match.
        """
        check_size("n_columns", n_columns)
        rows = np.asarray(self.components, dtype=float)
        height, width = self.image_shape
        if rows.ndim != 2 or not rows.size or rows.shape[1] != height * width:
            raise ValueError(
                f"components must have shape (n_components, {height} * {width}) for "
                f"images of shape {(height, width)}, got {rows.shape}."
            )
        size = 1.3, 1.3 * height / width
        self.axes_, self.figure_ = titled_axes(
            self, ax, len(rows), "component", n_columns, size
        )
        most = np.abs(rows).max()
        kwargs = {"cmap": "RdBu_r", "vmin": -most, "vmax": most, **kwargs}
        self.images_ = []
        for one, row in zip(self.axes_, rows, strict=True):
            self.images_.append(one.imshow(row.reshape(height, width), **kwargs))
            one.set(xticks=[], yticks=[])
        return self
