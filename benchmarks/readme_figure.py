"""Draw the picture of the README: the gap to the end by passes, for four solvers.

python -m benchmarks.readme_figure
"""

import warnings
from pathlib import Path

import matplotlib
from sklearn.exceptions import ConvergenceWarning

matplotlib.use("Agg")

from benchmarks.problems import mixtures as problems
from skvrem import ConvergenceDisplay, VRGaussianMixture

SOLVERS = {
    "batch EM": {"solver": "batch"},
    "batch EM + SQUAREM": {"solver": "batch", "acceleration": "squarem"},
    "svrg (sEM-vr)": {"solver": "svrg"},
    "saga (the default here)": {"solver": "saga"},
}


def main():
    """Fit the overlapping mixture with every solver from one start."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    X = problems.overlapping(200_000).X
    fits = {
        name: VRGaussianMixture(
            10, n_init=1, tol=1e-9, max_iter=400, random_state=0, **options
        ).fit(X)
        for name, options in SOLVERS.items()
    }
    display = ConvergenceDisplay.from_estimator(fits, x="passes", y="gap")
    display.ax_.set(
        xlabel="passes over the data",
        ylabel="gap of the log-likelihood, nats a row",
        title="200,000 rows, 10 overlapping full Gaussians in 10 dimensions",
        ylim=(1e-8, None),
        xscale="log",
    )
    display.figure_.set_size_inches(7, 4)
    display.figure_.set_layout_engine("constrained")
    target = Path(__file__).parents[1] / "doc" / "_static" / "readme.png"
    display.figure_.savefig(target, dpi=120)


if __name__ == "__main__":
    main()
