"""Estimators of a mean, and the loop that fits with them."""

from skvrem.solvers._history import joined
from skvrem.solvers._journal import (
    checkpointed,
    keep_of_rows,
    of_rows,
    remembered,
)
from skvrem.solvers._plan import (
    BY_NAME,
    FAR_BLOCKS,
    Plan,
    names_for,
    plan_em,
    reduces_variance,
)
from skvrem.solvers._run import Run, run
from skvrem.solvers._runs import Runs, Whole
from skvrem.solvers._search import (
    STARTS,
    SearchResult,
    climb,
    ranked_moves,
    search,
    try_out,
)
from skvrem.solvers._starts import Start, run_starts
from skvrem.solvers._stream import stream_step
from skvrem.solvers._switch import AfterEpochs, Switch, WhenNoisy, WhenSlow
from skvrem.solvers.estimate._batch import Batch
from skvrem.solvers.estimate._incremental import Incremental
from skvrem.solvers.estimate._saga import SAGA
from skvrem.solvers.estimate._stochastic import Stochastic
from skvrem.solvers.estimate._svrg import SVRG
from skvrem.solvers.step._ascent import Ascent
from skvrem.solvers.step._quasi_newton import QuasiNewton
from skvrem.solvers.step._squarem import Squarem
from skvrem.solvers.step._sweeps import Sweeps

__all__ = [
    "BY_NAME",
    "FAR_BLOCKS",
    "SAGA",
    "STARTS",
    "SVRG",
    "AfterEpochs",
    "Ascent",
    "Batch",
    "Incremental",
    "Plan",
    "QuasiNewton",
    "Run",
    "Runs",
    "SearchResult",
    "Squarem",
    "Start",
    "Stochastic",
    "Sweeps",
    "Switch",
    "WhenNoisy",
    "WhenSlow",
    "Whole",
    "checkpointed",
    "climb",
    "joined",
    "keep_of_rows",
    "names_for",
    "of_rows",
    "plan_em",
    "ranked_moves",
    "reduces_variance",
    "remembered",
    "run",
    "run_starts",
    "search",
    "stream_step",
    "try_out",
]
