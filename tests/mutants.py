"""Mutation test of the algorithms: what is broken on purpose must fail a test.

    python -m tests.mutants --count 60 --seed 1         # draw, run, report
    python -m tests.mutants --count 60 --seed 1 --list  # only say what is drawn
    python -m tests.mutants --only mixture --count 8    # of some rows of the table

A mutant is the code with one small error: a sign, a lost term, half a correction, a
condition the wrong way round. They are drawn at random from the estimates and steps,
the certificates and the M steps, a quarter from epochs that are compiled, and those of
`FIXED` are always among them. Each is made in a copy of the tree, where the tests that
`TABLE` has for its file run until one fails: the mutant is killed. Those that are
compiled anew are so once, as every copy keeps its own folder of compiled kernels; and
each set of tests must pass on the code as it is before it may judge a mutant.

Survivors are printed with what was changed. One that is no other algorithm (it changes
speed, or a tolerance) belongs into `EXPLAINED`, and counts as a survivor all the same:
the exit code is 1 where fewer than 95 of 100 are killed.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import copy
import difflib
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: CPU seconds for one set of tests. More is a loop without end, and counts as killed.
#: And seconds of the clock, as one may wait for ever, times as many.
TIME_LIMIT, WAIT = 300, 4
#: Bytes of address space: an error may fill a list for ever.
MEMORY = 12 * 2**30
#: Of all mutants, those that must be killed, and those that are in compiled epochs.
ENOUGH, COMPILED = 0.95, 0.25

LAWS = "tests/laws/test_laws.py"
SWEEPS = "tests/laws/test_sweeps.py"


class Row(NamedTuple):
    """Files, and the sets of tests that judge their mutants, the quickest first."""

    patterns: tuple
    tests: tuple


#: A pattern may be of files that do not exist yet, but not all of a row. A file belongs
#: to the first row that has it.
TABLE = {
    "hmm sweeps": Row(
        ("skvrem/hmm/em_vrso/_*.py", "skvrem/hmm/emissions/_kernels_rows.py"),
        (
            (SWEEPS, "-k", "hmm or hidden"),
            ("tests/hmm/test_rows.py", "tests/hmm/test_solvers.py"),
            ("tests/hmm/test_hmm.py", "tests/hmm/test_gradient.py"),
        ),
    ),
    "hmm": Row(
        ("skvrem/hmm/_model.py",),
        (
            ("tests/hmm/test_gradient.py", "tests/hmm/test_solvers.py"),
            (LAWS, "-k", "hmm"),
            ("tests/hmm",),
        ),
    ),
    "vi epochs": Row(
        ("skvrem/vi/gaussian/_kernels_steps.py", "skvrem/vi/gaussian/_model_steps.py"),
        (
            (SWEEPS, "-k", "field or supports or automatic"),
            ("tests/vi/test_steps.py",),
            ("tests/vi/test_dropout.py", "tests/vi/test_variance.py"),
            ("tests/vi/test_logistic_regression.py", "tests/vi/test_regression.py"),
            ("tests/laws/test_estimators.py", "-k", "Bayesian or Dropout"),
        ),
    ),
    "vi blackbox": Row(
        ("skvrem/vi/blackbox/_model_steps.py",),
        (
            (SWEEPS, "-k", "own or supports or automatic"),
            ("tests/vi/test_blackbox.py", "tests/vi/test_blackbox_streams.py"),
            ("tests/vi/test_low_rank.py", "tests/vi/test_variance.py"),
        ),
    ),
    "vi dropout": Row(
        ("skvrem/vi/dropout/_model.py",),
        (
            (SWEEPS, "-k", "dropout"),
            ("tests/vi/test_dropout.py", "tests/vi/test_variance.py"),
            (LAWS, "-k", "dropout"),
            ("tests/laws/test_estimators.py", "-k", "Dropout"),
        ),
    ),
    "vi": Row(
        ("skvrem/vi/gaussian/_model.py",),
        (
            ("tests/vi/test_model.py", "tests/vi/test_answers.py"),
            (LAWS, "-k", "bayesian or hierarchical or dropout"),
            ("tests/vi",),
        ),
    ),
    "groups": Row(
        (
            "skvrem/vi/gaussian/nested/_model*.py",
            "skvrem/vi/glm/groups/_model*.py",
            "skvrem/vi/hierarchical/_model_nested.py",
        ),
        (
            ("tests/vi/test_varying.py", "tests/vi/test_nested.py"),
            ("tests/vi/test_hierarchical.py", "tests/vi/test_arviz.py"),
            ("tests/data/test_dask_estimators.py", "-k", "nested or groups"),
        ),
    ),
    "search": Row(
        ("skvrem/mixture/_moves.py", "skvrem/solvers/_search.py"),
        (("tests/mixture/test_search.py",),),
    ),
    "mixture": Row(
        ("skvrem/mixture/_model*.py",),
        (
            ("tests/mixture/test_search.py",),
            (LAWS, "-k", "(full or tied or spherical or diag) and not hmm"),
            ("tests/mixture/test_gaussian_mixture.py",),
        ),
    ),
    "topics": Row(
        ("skvrem/topics/_model*.py",),
        (
            ("tests/topics/test_model.py",),
            (LAWS, "-k", "documents or dirichlet"),
            ("tests/topics",),
        ),
    ),
    "plsa": Row(
        ("skvrem/topics/plsa/_model*.py",),
        ((LAWS, "-k", "documents and not dirichlet"), ("tests/topics/plsa",)),
    ),
    "lda": Row(
        ("skvrem/topics/lda/_model*.py",),
        ((LAWS, "-k", "dirichlet"), ("tests/topics/lda",)),
    ),
    "factorial": Row(
        ("skvrem/factorial/_model*.py",),
        ((LAWS, "-k", "factors"), ("tests/factorial",)),
    ),
    "linear": Row(
        ("skvrem/linear/_model*.py",),
        (
            ("tests/linear/test_kernels.py",),
            (LAWS, "-k", "logistic or multinomial"),
            ("tests/linear/test_logistic_regression.py", "tests/linear/test_bound.py"),
        ),
    ),
    "checkpoint": Row(
        ("skvrem/checkpoint.py", "skvrem/solvers/_journal.py"),
        (("tests/test_checkpoint.py",),),
    ),
    "logarithms": Row(
        (
            "skvrem/hmm/forward_backward/_model_logs.py",
            "skvrem/hmm/forward_backward/_kernels_logs.py",
        ),
        (
            ("tests/hmm/test_logs.py", "tests/hmm/test_passes.py"),
            ("tests/hmm/test_given.py", "tests/hmm/test_families.py"),
        ),
    ),
    "discrete emissions": Row(
        ("skvrem/hmm/emissions/discrete/_*.py",),
        (
            ("tests/hmm/test_emissions.py",),
            ("tests/hmm/test_families.py", "tests/hmm/test_gradient.py"),
        ),
    ),
    "blocks": Row(
        (
            "skvrem/data/_dask*.py",
            "skvrem/data/_dask/_*.py",
            "skvrem/data/_lazy.py",
            "skvrem/data/_sequences.py",
        ),
        (
            ("tests/data/test_dask.py",),
            ("tests/data/test_dask_estimators.py", "-k", "not guide"),
            ("tests/hmm/test_dask.py", "tests/topics/test_dask.py"),
        ),
    ),
    "solvers": Row(
        ("skvrem/solvers/**/_*.py", "skvrem/utils/_control*.py"),
        (
            ("tests/laws", "-k", "not test_laws and not test_estimators"),
            (LAWS, "-k", "counts or factors or logistic or bayesian or full"),
            (LAWS, "-k", "not (counts or factors or logistic or bayesian or full)"),
            ("tests/laws/test_estimators.py",),
            ("tests/hmm/test_solvers.py", "tests/vi/test_steps.py"),
        ),
    ),
    "sums": Row(
        ("skvrem/utils/_algebra*.py", "skvrem/utils/_averaging*.py"),
        (
            ("tests/utils/test_algebra.py",),
            (LAWS, "-k", "counts or documents or factors"),
            (LAWS,),
        ),
    ),
}
#: What a pattern has too much: no algorithm is in them.
LEFT_OUT = re.compile(r"/(__init__|_plan|_protocols|_minibatches|_starts)\.py$")
#: Always drawn: file pattern, regular expression, and what replaces it.
FIXED = (
    (
        "skvrem/hmm/em_vrso/_kernels*.py",
        r"controlled_inline\(g\[k\], old\[k\], mean\[k\], 1\.0\)",
        r"0.5 * (g[k] - old[k]) + mean[k]",
    ),
)
#: Survivors that are the same algorithm: file, function, operator, line, and why.
EXPLAINED = (
    (
        "skvrem/vi/gaussian/_model.py",
        "GaussianModel._spread",
        "comparison",
        "if k > 1 and low is None and not self.matrix:",
        "roots of diagonal matrices, without their zeros or with them",
    ),
    (
        "skvrem/topics/lda/_model.py",
        "LDAModel._psi",
        "constant",
        "return np.where(totals > 0.0, digamma(np.where(totals > 0.0, totals, 1.0)), "
        "0.0)",
        "what stands where there is nothing is not taken",
    ),
    (
        "skvrem/linear/_model_curvature.py",
        "Factor.__init__",
        "constant",
        "self.scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))",
        "a column of zeros without a ridge has no gradient either",
    ),
    (
        "skvrem/hmm/em_vrso/_kernels.py",
        "_alpha",
        "half",
        "pred += alpha[t - 1, i] * transitions[i * n + j]",
        "what is scaled to sum one may have any scale",
    ),
    (
        "skvrem/data/_lazy.py",
        "_score_of_block",
        "constant",
        "value = score(estimator, rows, **columns, **others) if n > 0.0 else 0.0",
        "what no rows score is multiplied by their number",
    ),
    (
        "skvrem/hmm/emissions/discrete/_categories.py",
        "Categorical.prepare",
        "comparison",
        "self.follows = self.exact = self.n_categories_ > FEW",
        "which of two ways to the same sums is taken for so many categories",
    ),
    (
        "skvrem/hmm/emissions/discrete/_counts.py",
        "_truncated_rate",
        "arithmetic",
        "if np.all(np.abs(new - rate) <= 1e-14 * rate):",
        "a tolerance of Newton's steps, of which there are enough anyway",
    ),
    (
        "skvrem/topics/_model.py",
        "cut_words",
        "comparison",
        "if n_parts == 1 or len(index) < SAMPLE:",
        "who adds which words makes no difference",
    ),
    (
        "skvrem/mixture/_moves.py",
        "_split",
        "half",
        "means = whole.means + np.outer([-1.0, 1.0], deviations * axis)",
        "rows are cut halfway between two means, however far they are apart",
    ),
    (
        "skvrem/mixture/_moves.py",
        "_split",
        "comparison",
        "if len(owned.rows) > SPLIT_ROWS:",
        "all of them in another order, which is sorted",
    ),
    (
        "skvrem/topics/lda/_model.py",
        "LDAModel.calibration",
        "extreme",
        "top = logs[:, :k].max(axis=1)",
        "any number may be taken off the exponents",
    ),
    (
        "skvrem/linear/_model.py",
        "LogisticModel.start",
        "constant",
        "return Point(parameters, Statistics(gradient, self.curvature.zeros(), 0.0))",
        "the objective of a point that has seen nothing, which nobody asks for",
    ),
)


# Mutants

ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
REVERSED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
EXTREMES = {"min": "max", "minimum": "maximum"}
EXTREMES |= {there: here for here, there in EXTREMES.items()}
#: Their arguments are shapes, bounds of loops, or words: errors there raise at once.
CALLS_LEFT_OUT = "empty zeros ones full range isinstance hasattr warn reshape print"
#: Of seconds, of rounding, and of who does how much: no algorithm is in them.
NO_ALGORITHM = re.compile(r"perf_counter|np\.finfo|ROUNDING|[-+] slack$")
TASKS = re.compile(r"^(rows_of_\w+|_pieces)$")
KEYWORDS_LEFT_OUT = "axis keepdims dtype copy strict name"


class Mutant(NamedTuple):
    """One error: the bytes from start to stop of a file, and what replaces them."""

    path: str
    operator: str
    function: str
    line: int
    start: int
    stop: int
    text: str
    row: str = ""

    def source(self, before):
        """Return the file with the error."""
        raw = before.encode()
        return (raw[: self.start] + self.text.encode() + raw[self.stop :]).decode()

    def diff(self, before):
        lines = before.splitlines(), self.source(before).splitlines()
        return "\n".join(list(difflib.unified_diff(*lines, n=1, lineterm=""))[2:])


def _half(node):
    return ast.BinOp(ast.Constant(0.5), ast.Mult(), node)


def _may_be_halved(node):
    # Texts, lists and counts are no corrections.
    numbers = isinstance(node, ast.Constant) and not isinstance(node.value, float)
    return not numbers and not isinstance(node, ast.List | ast.Tuple | ast.JoinedStr)


def _is_count(node):
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", "") == "len"
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name in ("size", "number") or name.startswith("n_")


def _of_operation(node):
    """Yield what may be wrong with a sum, difference, product or quotient."""
    kind = type(node.op)
    if kind in ARITHMETIC:
        yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[kind](), node.right)
    if kind not in (ast.Add, ast.Sub):
        return
    yield "term dropped", node.left
    minus = kind is ast.Sub
    yield "term dropped", ast.UnaryOp(ast.USub(), node.right) if minus else node.right
    if minus:
        yield "swapped", ast.BinOp(node.right, ast.Sub(), node.left)
    if _may_be_halved(node.left):
        yield "half", ast.BinOp(_half(node.left), node.op, node.right)
    if _may_be_halved(node.right):
        yield "half", ast.BinOp(node.left, node.op, _half(node.right))


def _of_comparison(node):
    kind = type(node.ops[0])
    if len(node.ops) == 1 and kind in REVERSED:
        # Equal real numbers are rare: with and without them is the same.
        count = _is_count(node.left) or _is_count(node.comparators[0])
        for other in (REVERSED, BOUNDARY) if count else (REVERSED,):
            yield (
                "comparison",
                ast.Compare(node.left, [other[kind]()], node.comparators),
            )


def _of_constant(node):
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float) and (value == 0.0 or 1e-2 <= value <= 100.0):
        others = {0.5: (1.0,), 1.0: (0.5, 2.0)}.get(value, (value + 1.0,))
        for other in others:
            yield "constant", ast.Constant(other)


def _of_call(node):
    function = node.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name in EXTREMES:
        other = copy.copy(node)
        other.func = copy.copy(function)
        field = "attr" if isinstance(function, ast.Attribute) else "id"
        setattr(other.func, field, EXTREMES[name])
        yield "extreme", other


def _of_augmented(node):
    kind = type(node.op)
    if kind in ARITHMETIC:
        yield (
            "arithmetic",
            ast.AugAssign(node.target, ARITHMETIC[kind](), node.value),
        )
    yield "augmented", ast.Pass()
    yield "augmented", ast.Assign([node.target], node.value, lineno=0)
    if kind in (ast.Add, ast.Sub) and _may_be_halved(node.value):
        yield "half", ast.AugAssign(node.target, node.op, _half(node.value))


OF = {
    ast.BinOp: _of_operation,
    ast.Compare: _of_comparison,
    ast.Constant: _of_constant,
    ast.Call: _of_call,
    ast.AugAssign: _of_augmented,
}
#: Names of all kinds of errors.
OPERATORS = {
    *("arithmetic", "term dropped", "swapped", "half", "comparison"),
    *("constant", "extreme", "augmented", "negated"),
}


class _Finder(ast.NodeVisitor):
    """Find all mutants of one file, in the bodies of its functions."""

    def __init__(self, path, source):
        self.path, self.found, self.functions, self.inside = path, [], [], 0
        self.at = [0]
        for line in source.encode().splitlines(keepends=True):
            self.at.append(self.at[-1] + len(line))
        self.visit(ast.parse(source))

    def add(self, operator, node, other):
        text = ast.unparse(ast.fix_missing_locations(other))
        if NO_ALGORITHM.search(ast.unparse(node)):
            return
        atom = isinstance(other, ast.stmt | ast.Constant | ast.Name | ast.Call)
        self.found.append(
            Mutant(
                self.path,
                operator,
                ".".join(self.functions),
                node.lineno,
                self.at[node.lineno - 1] + node.col_offset,
                self.at[node.end_lineno - 1] + node.end_col_offset,
                text if atom else f"({text})",
            )
        )

    def visit(self, node):
        if self.inside:
            for operator, other in OF.get(type(node), lambda node: ())(node):
                self.add(operator, node, other)
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                # Of types it is no algorithm.
                if not re.search("isinstance|hasattr", ast.unparse(node.test)):
                    other = ast.UnaryOp(ast.Not(), node.test)
                    self.add("negated", node.test, other)
        super().visit(node)

    def visit_FunctionDef(self, node):
        if node.name != "__repr__" and not TASKS.match(node.name):
            self.inside += 1
            self.visit_ClassDef(node)
            self.inside -= 1

    def visit_ClassDef(self, node):
        # Neither decorators nor defaults.
        self.functions.append(node.name)
        for part in node.body:
            self.visit(part)
        self.functions.pop()

    def visit_Call(self, node):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name not in CALLS_LEFT_OUT.split():
            self.generic_visit(node)

    def visit_keyword(self, node):
        if node.arg is None or node.arg not in KEYWORDS_LEFT_OUT.split():
            self.generic_visit(node)

    def visit_BinOp(self, node):
        if not NO_ALGORITHM.search(ast.unparse(node)):
            self.generic_visit(node)

    def visit_Subscript(self, node):
        # An index out of bounds is none of the errors that are looked for.
        self.visit(node.value)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def _skip(self, node):
        pass

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = _skip
    visit_ImportFrom = _skip


def mutants_of(path, source, row=""):
    """Return all mutants of a file."""
    return [mutant._replace(row=row) for mutant in _Finder(path, source).found]


def files():
    """Return the row of every file of the table, by path."""
    found = {}
    for name, row in TABLE.items():
        for pattern in row.patterns:
            for path in sorted(ROOT.glob(pattern)):
                path = path.relative_to(ROOT).as_posix()
                if not LEFT_OUT.search(path):
                    found.setdefault(path, name)
    return found


def is_compiled(source):
    return "skvrem.utils._jit import" in source


def fixed():
    """Return the mutants that are always drawn."""
    found = []
    for pattern, expression, replacement in FIXED:
        for path in sorted(ROOT.glob(pattern)):
            source = path.read_text()
            for match in re.finditer(expression, source):
                start, stop = (len(source[:i].encode()) for i in match.span())
                name = path.relative_to(ROOT).as_posix()
                line = source.count("\n", 0, match.start()) + 1
                text = match.expand(replacement)
                function = re.findall(r"^ *def (\w+)", source[: match.start()], re.M)[
                    -1
                ]
                found.append(
                    Mutant(name, "fixed", function, line, start, stop, text)._replace(
                        row=files()[name]
                    )
                )
    return found


def differs(mutant, source):
    """Whether a mutant is Python, and other than the file."""
    try:
        return ast.dump(ast.parse(mutant.source(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def draw(count, seed, only=""):
    """Return so many mutants, at most one a line.

    The fewer lines a file has, the likelier is each: the shortest are of solvers.
    """
    rng, drawn, lines = random.Random(seed), [], set()
    groups = {True: {}, False: {}}
    for path, row in files().items():
        source = (ROOT / path).read_text()
        if only in row and (found := mutants_of(path, source, row)):
            groups[is_compiled(source)][path] = found

    def take(mutant):
        place = mutant.path, mutant.line
        if place not in lines:
            lines.add(place)
            drawn.append(mutant)

    for mutant in fixed():
        if only in mutant.row:
            take(mutant)
    for compiled, until in ((True, math.ceil(COMPILED * count)), (False, count)):
        group = groups[compiled] or groups[not compiled]
        for _ in range(100 * count):
            if len(drawn) >= until or not group:
                break
            weights = [math.sqrt(len(found)) for found in group.values()]
            path = rng.choices(list(group), weights)[0]
            kinds = sorted({mutant.operator for mutant in group[path]})
            kind = rng.choice(kinds)
            mutant = rng.choice([m for m in group[path] if m.operator == kind])
            if differs(mutant, (ROOT / path).read_text()):
                take(mutant)
    return drawn


def why(mutant):
    """Return why a survivor is the same algorithm, if it is known to be."""
    line = (ROOT / mutant.path).read_text().splitlines()[mutant.line - 1].strip()
    for *where, reason in EXPLAINED:
        if where == [mutant.path, mutant.function, mutant.operator, line]:
            return reason
    return ""


# Running them


class Copy:
    """A copy of the tree, in which one process at a time runs tests."""

    def __init__(self, folder):
        self.folder, self.passed, self.row = Path(folder).resolve(), {}, ""
        self.process = None
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("skvrem", "tests"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            # Times of files are copied: kernels that are kept stay valid.
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.folder / name, ignore=ignored)
        shutil.copy2(ROOT / "pyproject.toml", self.folder)

    def run(self, tests):
        """Return an exit code (None: out of time), and the first test that failed."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no"]
        command += ["-p", "no:cacheprovider", "-m", "not thorough", *tests]
        mutated = tests in self.passed
        # As many processes as cores run already.
        names = ("OMP", "OPENBLAS", "MKL")
        threads = {f"{name}_NUM_THREADS": "1" for name in names}
        self.process = process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ
            | threads
            | {"PYTHONPATH": str(self.folder)}
            # Bytecode is kept of the code as it is only.
            | {"PYTHONDONTWRITEBYTECODE": "1" if mutated else ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        if mutated and hasattr(resource, "prlimit"):
            limits = TIME_LIMIT, TIME_LIMIT
            resource.prlimit(process.pid, resource.RLIMIT_CPU, limits)
        try:
            limit = WAIT * TIME_LIMIT if mutated else None
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end()
            process.communicate()
            return None, "out of time"
        failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", out, re.MULTILINE)
        return process.returncode, failed[1] if failed else f"exit {process.returncode}"

    def end(self):
        """Kill the tests that run, and what they have started."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    @contextlib.contextmanager
    def broken(self, mutant):
        """Have the error in the copy for the while."""
        path = self.folder / mutant.path
        before, times = path.read_bytes(), path.stat()
        path.write_text(mutant.source(before.decode()))
        try:
            yield
        finally:
            path.write_bytes(before)
            # Else the kernels of the file as it is would be compiled once more.
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def judge(self, mutant):
        """Return what killed a mutant, "" if nothing did."""
        for tests in TABLE[mutant.row].tests:
            if tests not in self.passed:
                began = time.monotonic()
                code, failed = self.run(tests)
                if code != 0:
                    raise RuntimeError(
                        f"without any mutant: {' '.join(tests)}: {failed}"
                    )
                self.passed[tests] = time.monotonic() - began
            with self.broken(mutant):
                code, failed = self.run(tests)
            if code != 0:
                return failed
        return ""


def look(drawn, folder, workers, say):
    """Return the mutants that survive, as copies judge them in turn."""
    left, lock, survivors = list(drawn), threading.Lock(), []

    def next_of(copy, copies):
        # Of the row it was at, whose tests have passed and whose kernels it has; else
        # of one where nobody is.
        taken = {other.row for other in copies if other is not copy}
        order = (lambda m: m.row == copy.row, lambda m: m.row not in taken, bool)
        for good in order:
            for mutant in left:
                if good(mutant):
                    left.remove(mutant)
                    copy.row = mutant.row
                    return mutant
        return None

    def work(copy, copies):
        while True:
            with lock:
                mutant = next_of(copy, copies)
            if mutant is None:
                return
            try:
                passed, began = sum(copy.passed.values()), time.monotonic()
                killed = copy.judge(mutant)
            except BaseException:
                with lock:
                    left.clear()
                raise
            # Without the tests of the code as it is.
            took = time.monotonic() - began - sum(copy.passed.values()) + passed
            with lock:
                if not killed:
                    survivors.append(mutant)
                say(mutant, killed, took)

    copies = [Copy(Path(folder) / str(i)) for i in range(workers)]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            for done in [pool.submit(work, copy, copies) for copy in copies]:
                done.result()
        finally:
            # Interrupted, or after an error: nobody goes on.
            left.clear()
            for copy in copies:
                copy.end()
    return survivors


def _say(mutant, killed, took=None):
    took = "" if took is None else f"{took:5.0f} s  "
    place = f"{mutant.path}:{mutant.line} {mutant.function} [{mutant.operator}]"
    print(f"{took}{place}  {killed or 'SURVIVES'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, help="of what is drawn; default: the time")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--folder", help="keeps copies and kernels for another time")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    drawn = draw(options.count, seed, options.only)
    print(f"{len(drawn)} mutants, seed {seed}", flush=True)
    sources = {mutant.path: (ROOT / mutant.path).read_text() for mutant in drawn}
    if options.list:
        for mutant in drawn:
            _say(mutant, "\n" + mutant.diff(sources[mutant.path]))
        return 0
    # The processes of the tests inherit it.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with contextlib.ExitStack() as stack:
        folder = options.folder or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="skvrem-mutants-")
        )
        survivors = look(drawn, folder, options.workers, _say)
    for mutant in survivors:
        print(f"\nsurvivor: {mutant.path}:{mutant.line} {mutant.function}")
        print(mutant.diff(sources[mutant.path]))
        if reason := why(mutant):
            print(f"explained: {reason}")
    n_killed = len(drawn) - len(survivors)
    print(f"\nkilled {n_killed} of {len(drawn)}")
    return int(n_killed < ENOUGH * len(drawn))


if __name__ == "__main__":
    sys.exit(main())
