"""What needs a process of its own: memory, the first fit, the import."""

from harness import Row, processes

__all__ = ["first_rows", "memory_rows"]

MEMORY = """
side, covariance_type, n, solver = sys.argv[1:]

import mixture_rows
from benchmark_utils import problems

def make():
    if side == "skvrem":
        from skvrem import VRGaussianMixture
        return VRGaussianMixture(
            10, covariance_type=covariance_type, solver=solver, max_iter=5,
            tol=0.0, random_state=0,
        )
    from sklearn.mixture import GaussianMixture
    return GaussianMixture(
        10, covariance_type=covariance_type, max_iter=2, tol=0.0, random_state=0,
    )

def warm_up():
    make().fit(problems.overlapping(100_000).X)

def load():
    return problems.overlapping(int(n)).X

def fit(X):
    make().fit(X)
"""

IMPORTS = """
import sklearn.mixture
from skvrem import VRGaussianMixture
"""

FIRST = """
def load():
    return np.random.default_rng(0).standard_normal((50_000, 10))

def fit(X):
    covariance_type = sys.argv[1]
    VRGaussianMixture(
        10, covariance_type=covariance_type, max_iter=3, random_state=0
    ).fit(X)
"""


def memory_rows(settings):
    """Peak of the resident memory during fit beyond what was there before."""
    n = 200_000 if settings.quick else 1_000_000
    measure = f"extra memory in fit, n={n:.0e} d=10 k=10".replace("e+0", "e")
    target = "40 MB + 4 bytes a row"
    if not processes.has_proc():
        yield Row("memory", measure, "needs /proc (Linux)", target, None, {})
        return
    for covariance_type in ("full", "diag"):
        settings.log(f"memory, {covariance_type}")
        found = {
            (side, solver): processes.peak_memory(
                MEMORY, side, covariance_type, str(n), solver
            )
            for side, solver in (
                ("skvrem", "auto"),
                ("skvrem", "batch"),
                ("scikit-learn", ""),
            )
        }
        auto, batch, other = (extra / 1e6 for extra in found.values())
        rows = 4e-6 * n
        yield Row(
            "memory",
            f"{measure} {covariance_type}",
            f"{max(auto, batch) - rows:.1f} MB + {rows:.1f} MB of 4 bytes a row (auto "
            f"{auto:.1f} MB, batch {batch:.1f} MB, scikit-learn {other:.0f} MB)",
            target,
            max(auto, batch) - rows <= 40.0,
            {" ".join(key).strip(): value for key, value in found.items()},
        )


def first_rows(settings):
    """Seconds of the first fit, kernels compiled or not, and of the import."""
    repeats = 1 if settings.quick else max(2, settings.repeats - 2)
    for covariance_type in ("full", "diag"):
        settings.log(f"first fit, {covariance_type}")
        yield from processes.first_fits(
            IMPORTS, FIRST, (covariance_type,), f"n=5e4 {covariance_type}", repeats
        )
    settings.log("import")
    yield from processes.import_rows("mixture", settings.repeats)
