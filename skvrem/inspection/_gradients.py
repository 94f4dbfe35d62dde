"""Where the variance of stochastic gradients comes from, and what is left of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skvrem.inspection._axes import one_axis

__all__ = ["GradientVarianceDisplay"]


@dataclass(eq=False, repr=False)
class GradientVarianceDisplay:
    """Variances of gradient estimates, as bars.

    Parameters
    ----------
    variances : dict of str to float
        What ``gradient_variance`` of an estimator returns: the decomposition, whose
        names begin with "V", and the estimators.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    bars_ : matplotlib.container.BarContainer

    Examples
    --------
    >>> from skvrem import GradientVarianceDisplay
    >>> variances = {"V(rows)": 9e4, "V(draws)": 2e3, "naive": 1e5, "joint": 3e2}
    >>> GradientVarianceDisplay(variances).plot().ax_.get_xscale()
    'log'
    """

    variances: Mapping[str, float]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Measure the variances at a fitted posterior and draw them.

        Parameters
        ----------
        estimator : BayesianLogisticRegression or BayesianGLMRegressor
            Fitted.
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their targets.
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        **kwargs : dict
            Passed to the estimator's ``gradient_variance``.

        Returns
        -------
        display : GradientVarianceDisplay
        """
        return cls(estimator.gradient_variance(X, y, **kwargs)).plot(ax=ax)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw a bar for each variance, on a logarithmic scale.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : GradientVarianceDisplay
            With the attributes ``ax_``, ``figure_`` and ``bars_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw.
        """
        if not self.variances:
            raise ValueError("There are no variances to draw.")
        self.ax_, self.figure_ = one_axis(self, ax, layout="constrained")
        names = list(self.variances)
        colors = ["C7" if name.startswith("V(") else "C0" for name in names]
        values = np.array(list(self.variances.values()))
        self.bars_ = self.ax_.barh(names, values, **{"color": colors, **kwargs})
        self.ax_.set(xscale="log", xlabel="variance of the gradient (trace)")
        self.ax_.invert_yaxis()
        return self
