"""Who may import whom: the rule that keeps models, solvers and data apart.

Every module under ``skvrem`` has a place, read off its path. An import is compared with
what its place may use, in functions as well as at module level. Only optional packages
make a difference between the two: they are imported where they are used.
"""

import ast
import re
import sys
import textwrap
from collections import namedtuple
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "skvrem"

Module = namedtuple("Module", "name path place folder imports")
Import = namedtuple("Import", "name line lazy")
Rule = namedtuple("Rule", "skvrem packages because")

# A place names the other places it may use: "own model" is the model of its own folder.
RULES = {
    "package": Rule(
        {"api", "checkpoint", "inspection", "utils"},
        set(),
        "skvrem/__init__.py gathers the public names and does nothing else",
    ),
    "api": Rule(
        {"own estimator"},
        set(),
        "the __init__.py of a model folder names its estimators and nothing else",
    ),
    "estimator": Rule(
        {"own estimator", "own model", "solvers", "schedules", "data", "text", "utils"},
        {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl"},
        "an estimator uses its own model, solvers, schedules, data, text and utils",
    ),
    "model": Rule(
        {"own model", "own kernels", "utils"},
        {"numpy", "scipy"},
        "a model uses its own kernels and utils, and knows no solver, data source, "
        "scikit-learn or other model",
    ),
    "kernels": Rule(
        {"kernel utils", "own kernels"},
        {"numpy", "numba"},
        "kernels use numpy, numba, math, other kernels of their folder and those of "
        "utils: nothing else can be compiled",
    ),
    "solvers": Rule(
        {"solvers", "schedules", "utils"},
        {"numpy", "scipy"},
        "a solver uses utils, schedules and the solvers' protocols, never a model, a "
        "data source, numba or scikit-learn",
    ),
    "checkpoint": Rule(
        {"solvers", "utils"},
        set(),
        "a checkpoint writes what the solvers' journal knows",
    ),
    "schedules": Rule(
        {"utils"},
        {"numpy", "scipy"},
        "schedules are plain functions of a count",
    ),
    "data": Rule(
        {"data", "utils"},
        {"numpy", "scipy", "joblib", "threadpoolctl"},
        "a data source uses utils; dask is imported in data/_dask only",
    ),
    "text": Rule(
        {"text", "text kernels", "utils"},
        {"numpy", "scipy", "sklearn", "joblib"},
        "text sees fitted attributes and counts, not the classes behind them",
    ),
    "text kernels": Rule(
        {"kernel utils"},
        {"numpy", "numba"},
        "kernels use numpy, numba, math and the kernels of utils, as models' do",
    ),
    "inspection": Rule(
        {"inspection", "text", "utils"},
        {"numpy", "scipy", "sklearn"},
        "displays see fitted attributes, not the classes behind them",
    ),
    "kernel utils": Rule(
        {"kernel utils"},
        {"llvmlite", "numpy", "scipy", "numba"},
        "the kernels of utils serve kernels, which use numpy and numba only",
    ),
    "utils": Rule(
        {"kernel utils", "utils"},
        {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl"},
        "utils serve every place and so depend on none",
    ),
}
KERNEL_UTILS = ("_control", "_jit", "_math", "_simd", "_tiles")
KERNEL_STDLIB = {"__future__", "math"}
DASK = {"dask", "distributed"}
# Inside functions only, and only where users meet them.
OPTIONAL = {"jax", "matplotlib", "pandas", "rich"}
OPTIONAL_PLACES = {"estimator", "inspection", "utils"}
# Rooms of a model folder that other rooms of it build on, the lowest first. All others
# import from their own room only and the rooms in it; a folder's own modules stand
# above its rooms.
SHARED_ROOMS = {
    "hmm": (
        "clusters",
        "emissions/patterns",
        "emissions",
        "emissions/continuous",
        "emissions/discrete",
        "emissions/densities",
        "forward_backward",
        "transitions",
        "em_vrso",
    ),
    "topics": ("",),
    "vi": ("gaussian", "gaussian/nested", "diagnostics"),
}
# What a place must not reach through a module of utils either.
NOT_THROUGH_UTILS = {
    "model": {"sklearn"},
    "solvers": {"sklearn", "numba"},
    "schedules": {"sklearn", "numba"},
    "data": {"sklearn", "numba"},
}


def may_use(folder, other):
    """Whether a room, such as "vi/glm", may import from another one."""
    (top, _, room), (other_top, _, other_room) = (
        name.partition("/") for name in (folder, other)
    )
    if top != other_top:
        return False
    shared = SHARED_ROOMS.get(top, ())
    if room == other_room:
        return True
    if not room and "" not in shared:
        return True  # from above
    if room in shared and other_room in shared:
        return shared.index(other_room) < shared.index(room)
    # A room stands above the rooms in it, as a folder does.
    return other_room in shared or other_room.startswith(f"{room}/")


def place_of(parts):
    """Return (place, model folder or None) of a path such as ("mixture", "_model")."""
    top, last = parts[0], parts[-1]
    if len(parts) == 1:
        place = "package" if top == "__init__" else top
        if top == "exceptions":
            return "utils", None
        known = ("package", "checkpoint", "schedules")
        return (place if place in known else None), None
    if top == "utils":
        return ("kernel utils" if last in KERNEL_UTILS else "utils"), None
    if top in ("solvers", "data", "inspection"):
        return top, None
    if top == "text":
        return ("text kernels" if last.startswith("_kernels") else "text"), None
    folder = "/".join(parts[:-1])
    if last == "__init__":
        return "api", folder
    if last.startswith("_model"):
        return "model", folder
    if last.startswith("_kernels"):
        return "kernels", folder
    return "estimator", folder


def imports_of(tree, name, is_package, modules):
    """Yield every import of a module as an absolute name, at any depth."""

    def visit(node, lazy):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, lazy)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = name.split(".")
                    above = above[: len(above) - child.level + is_package]
                    base = ".".join([*above, base] if base else above)
                for alias in child.names:
                    full = f"{base}.{alias.name}"
                    is_name = full not in modules and full != "skvrem.__version__"
                    yield Import(base if is_name else full, child.lineno, lazy)
            else:
                deferred = isinstance(
                    child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
                )
                for_types = isinstance(child, ast.If) and ast.unparse(
                    child.test
                ).endswith("TYPE_CHECKING")
                yield from visit(child, lazy or deferred or for_types)

    yield from visit(tree, False)


def read_package(root):
    """Return the modules under root by their name."""
    paths = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        shown = parts[:-1] if parts[-1] == "__init__" else parts
        paths[".".join(["skvrem", *shown])] = path, parts
    modules = {}
    for name, (path, parts) in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = list(imports_of(tree, name, parts[-1] == "__init__", paths))
        shown = Path("skvrem", *parts).with_suffix(".py").as_posix()
        modules[name] = Module(name, shown, *place_of(parts), imports)
    return modules


def packages_behind(name, modules, seen=()):
    """Return the packages that importing a module of utils imports, through utils."""
    found = set()
    for item in modules[name].imports:
        if item.lazy:
            continue
        if item.name.split(".")[0] != "skvrem":
            found.add(item.name.split(".")[0])
        elif item.name in modules and item.name not in (name, *seen):
            if modules[item.name].place in ("utils", "kernel utils"):
                found |= packages_behind(item.name, modules, (name, *seen))
    return found


def reason_against_package(module, name, lazy):
    """Return why a module may not import a package other than skvrem, or None."""
    rule = RULES[module.place]
    if name in sys.stdlib_module_names:
        allowed = "kernels" not in module.place or name in KERNEL_STDLIB
    elif name in DASK:
        if not module.path.startswith("skvrem/data/_dask/"):
            return "dask is imported in data/_dask only"
        allowed = True
    elif name in OPTIONAL:
        if module.place in OPTIONAL_PLACES and not lazy:
            return f"{name} is optional: import it in the function that uses it"
        allowed = module.place in OPTIONAL_PLACES
    elif name == "numba" and module.place == "utils":
        allowed = lazy  # to report its version and state
    else:
        allowed = name in rule.packages
    return None if allowed else rule.because


def reason_against_module(module, name, lazy, modules):
    """Return why a module may not import another one of skvrem, or None."""
    rule = RULES[module.place]
    if name == "skvrem.__version__" and "kernels" not in module.place:
        return None
    if name == "skvrem":
        # Whatever lists estimators looks at the whole package, once that is imported.
        allowed = module.place == "utils" and lazy
        if not allowed:
            return "that is a cycle (`from skvrem import __version__` is none)"
        return None
    if name not in modules:
        return "there is no such module"
    own = module.path.startswith("skvrem/data/_dask/")
    if name.startswith("skvrem.data._dask") and not (lazy or own):
        return "dask is optional: import data/_dask in the function that uses it"
    target = modules[name]
    place = target.place
    if target.folder is not None and module.place != "package":
        within = place == "api" and target.folder.startswith(f"{module.folder}/")
        if within and module.place == "api":
            return None  # a folder names what its rooms have
        if module.folder is not None and not may_use(module.folder, target.folder):
            return "model folders never import each other"
        place = f"own {place}" if module.folder else place
    # Those that serve kernels are utils for whoever may use utils.
    places = {place, "utils"} if place == "kernel utils" else {place}
    if not places & rule.skvrem:
        return rule.because
    if "utils" in places:
        hidden = packages_behind(name, modules)
        hidden &= NOT_THROUGH_UTILS.get(module.place, set())
        if hidden:
            return f"it imports {', '.join(sorted(hidden))}, and {rule.because}"
    return None


def violations(root):
    """Return one line for each import under root that breaks the rule."""
    modules = read_package(root)
    found = []
    for module in modules.values():
        if module.place is None:
            found.append(f"{module.path} has no place in tests/test_imports.py")
            continue
        for item in module.imports:
            top = item.name.split(".")[0]
            if top == "skvrem":
                reason = reason_against_module(module, item.name, item.lazy, modules)
            else:
                reason = reason_against_package(module, top, item.lazy)
            if reason:
                found.append(
                    f"{module.path}:{item.line} imports {item.name}: "
                    f"not allowed because {reason}"
                )
    return list(dict.fromkeys(found))  # `from x import a, b` is two imports of x


def test_skvrem_keeps_the_rule():
    assert read_package(ROOT), "no modules found"
    found = violations(ROOT)
    assert not found, "\n".join(["", *found])


CLEAN = {
    "__init__.py": """
        __version__ = "0"
        from skvrem.inspection import Display
        from skvrem.mixture import Mixture
        from skvrem.utils import show
    """,
    "inspection/__init__.py": "from skvrem.inspection._display import Display",
    "inspection/_display.py": """
        from skvrem.text._score import score
        class Display:
            def plot(self):
                import matplotlib.pyplot as plt
    """,
    "schedules.py": "import numpy as np",
    "data/__init__.py": "from skvrem.data._source import as_source",
    "data/_dask/__init__.py": """
        import dask.array as da
        from distributed import get_client
    """,
    "data/_source.py": """
        import scipy.sparse as sp
        from skvrem.utils._algebra import add
        def as_source(X):
            from skvrem.data._dask import DaskSource
    """,
    "solvers/__init__.py": "",
    "solvers/_run.py": """
        from typing import TYPE_CHECKING
        from .. import schedules
        from ..utils import _algebra
        from ._svrg import SVRG
    """,
    "solvers/_svrg.py": "from skvrem.utils._algebra import add",
    "text/__init__.py": "from skvrem.text._score import score",
    "text/_kernels.py": """
        import math
        import numba
        from skvrem.utils._jit import kernel
    """,
    "text/_score.py": """
        from sklearn.utils import check_array
        from skvrem.text import _kernels
        from skvrem.utils._parallel import parallel_map
    """,
    "utils/__init__.py": "from skvrem.utils._show import show",
    "utils/_algebra.py": "import numpy as np",
    "utils/_jit.py": "import os\nfrom numba import njit",
    "utils/_math.py": "from skvrem.utils._jit import kernel",
    "utils/_parallel.py": "from joblib import cpu_count",
    "utils/_show.py": "def show():\n    import numba, skvrem",
    "utils/_validation.py": "from sklearn.utils.validation import validate_data",
    "mixture/__init__.py": "from skvrem.mixture._estimator import Mixture",
    "mixture/_estimator.py": """
        import numpy as np
        from sklearn.base import BaseEstimator
        from skvrem import __version__, schedules
        from skvrem.data import as_source
        from skvrem.mixture import _start
        from skvrem.mixture._model import Model
        from skvrem.solvers._run import run
        from skvrem.text._score import score
        from skvrem.utils._validation import check
        def summary():
            import pandas as pd
    """,
    "mixture/_kernels.py": """
        import math
        import numpy as np
        from numba import prange
        from skvrem.utils._jit import kernel
        from ..utils._math import exp
    """,
    "mixture/_model.py": """
        from scipy.special import gammaln
        from skvrem.mixture import _kernels
        from skvrem.utils._algebra import add
        from skvrem.utils._math import digamma
    """,
    "mixture/_start.py": "from skvrem.mixture._model import Parameters",
    "topics/__init__.py": "from skvrem.topics.lda import LDA",
    "topics/_kernels.py": "from skvrem.utils._jit import kernel",
    "topics/_mixin.py": "import numpy as np",
    "topics/lda/__init__.py": "from skvrem.topics.lda._estimator import LDA",
    "topics/lda/_estimator.py": "from skvrem.topics._mixin import Topics",
    "topics/lda/_kernels.py": "from skvrem.topics._kernels import f",
    "topics/slda/_model.py": "import numpy as np",
    "hmm/_estimator.py": "from skvrem.hmm.emissions._normal import Normal",
    "hmm/emissions/_normal.py": "import numpy as np",
    "hmm/chains/_estimator.py": "from skvrem.hmm.chains.long._chain import Long",
    "hmm/chains/long/_chain.py": "from skvrem.hmm.emissions._normal import Normal",
    "hmm/transitions/_markov.py": "from skvrem.hmm.emissions._normal import Normal",
    "plsa/__init__.py": "from skvrem.plsa._estimator import PLSA",
    "plsa/_estimator.py": "from sklearn.base import BaseEstimator",
    "plsa/_kernels.py": "import numpy as np",
    "plsa/_model.py": "from skvrem.plsa._kernels import f",
}


def write_package(root, files):
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
    return root


def test_allowed_imports_pass(tmp_path):
    assert violations(write_package(tmp_path, CLEAN)) == []


PLANTED = [
    # path, what it imports against the rule, part of the reason
    ("__init__.py", "import numpy", "gathers the public names"),
    ("__init__.py", "from skvrem.mixture._model import Model", "the public names"),
    ("inspection/_display.py", "import matplotlib", "matplotlib is optional"),
    ("inspection/_display.py", "from skvrem.mixture import Mixture", "displays see"),
    ("schedules.py", "import sklearn", "plain functions of a count"),
    ("data/_source.py", "def f():\n    import dask", "in data/_dask only"),
    ("data/_source.py", "from ._dask import DaskSource", "dask is optional"),
    ("data/_source.py", "from sklearn.utils import check_array", "a data source uses"),
    ("data/_source.py", "import requests", "a data source uses"),
    ("solvers/_svrg.py", "import numba", "a solver uses"),
    ("solvers/_svrg.py", "from sklearn.base import clone", "a solver uses"),
    ("solvers/_svrg.py", "from skvrem.mixture._model import M", "a solver uses"),
    ("solvers/_svrg.py", "from skvrem.utils._math import exp", "it imports numba"),
    ("solvers/_run.py", "from ..data import as_source", "a solver uses"),
    ("solvers/_run.py", "def f():\n    import rich", "a solver uses"),
    ("text/_score.py", "from ..mixture import Mixture", "text sees"),
    ("text/_score.py", "from ..data import as_source", "text sees"),
    ("text/_score.py", "import numba", "text sees"),
    ("text/_score.py", "def f():\n    import pandas", "text sees"),
    ("text/_kernels.py", "import os", "kernels use"),
    ("text/_kernels.py", "from ._score import score", "kernels use"),
    ("text/_kernels.py", "from ..mixture import _kernels", "kernels use"),
    ("mixture/_model.py", "from ..text import _score", "a model uses"),
    ("mixture/_estimator.py", "from ..text import _kernels", "an estimator uses"),
    ("utils/_algebra.py", "import numba", "utils serve every place"),
    ("utils/_algebra.py", "from .. import schedules", "utils serve every place"),
    ("utils/_jit.py", "import sklearn", "serve kernels"),
    ("utils/_show.py", "import skvrem", "a cycle"),
    ("utils/_show.py", "try:\n    import rich\nfinally:\n    pass", "rich is optional"),
    ("mixture/__init__.py", "from ._model import Model", "names its estimators"),
    ("mixture/_estimator.py", "import numba", "an estimator uses"),
    ("mixture/_estimator.py", "from ._kernels import f", "an estimator uses"),
    ("mixture/_estimator.py", "from ..plsa import PLSA", "never import each other"),
    ("mixture/_start.py", "import pandas as pd", "pandas is optional"),
    ("mixture/_model.py", "import sklearn.base", "a model uses"),
    ("mixture/_model.py", "from ..data import as_source", "a model uses"),
    ("mixture/_model.py", "def f():\n    from ..solvers import _run", "a model uses"),
    ("mixture/_model.py", "from skvrem.utils import _validation", "imports sklearn"),
    ("mixture/_model.py", "from ._start import start", "a model uses"),
    ("mixture/_model.py", "from ..plsa import _model", "never import each other"),
    ("mixture/_model.py", "import skvrem.plsa._kernels", "never import each other"),
    ("mixture/_model.py", "import skvrem.missing", "no such module"),
    ("topics/__init__.py", "from .lda._estimator import LDA", "never import each"),
    ("topics/lda/_estimator.py", "from ..slda._model import M", "never import each"),
    ("topics/lda/_kernels.py", "from .._mixin import Topics", "kernels use"),
    ("topics/_mixin.py", "from .lda import LDA", "never import each other"),
    ("hmm/emissions/_normal.py", "from ..transitions import _markov", "never import"),
    ("hmm/emissions/_normal.py", "from .. import _estimator", "never import each"),
    ("hmm/chains/long/_chain.py", "from .._estimator import E", "never import each"),
    ("hmm/trees/_tree.py", "from ..chains.long._chain import L", "never import each"),
    ("mixture/_kernels.py", "import scipy.special", "kernels use"),
    ("mixture/_kernels.py", "import os", "kernels use"),
    ("mixture/_kernels.py", "from ..utils._algebra import add", "kernels use"),
    ("mixture/_kernels.py", "from ..plsa import _kernels", "never import each other"),
]


@pytest.mark.parametrize(("path", "source", "reason"), PLANTED)
def test_a_planted_violation_is_reported(tmp_path, path, source, reason):
    found = violations(write_package(tmp_path, {**CLEAN, path: source}))
    # Modules that a planted import of utils reaches may be reported as well.
    (line,) = (line for line in found if line.startswith(f"skvrem/{path}:"))
    assert re.search(r" imports [\w.]+: not allowed because ", line)
    assert reason in line


def test_no_modules_import_each_other():
    modules = read_package(ROOT)
    above, done = [], set()

    def visit(name):
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name in done or name not in modules:
            return
        above.append(name)
        for item in modules[name].imports:
            if item.name not in ("skvrem", "skvrem.__version__"):
                visit(item.name)
        done.add(above.pop())

    for name in modules:
        visit(name)


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in ROOT.rglob("*.py")}), ids=lambda p: p.name
)
def test_a_folder_has_a_dozen_modules(folder):
    most = 16 if folder.name == "utils" else 12
    assert len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) <= most


def test_a_module_without_a_place_is_reported(tmp_path):
    (found,) = violations(write_package(tmp_path, {**CLEAN, "helpers.py": ""}))
    assert "skvrem/helpers.py has no place" in found
