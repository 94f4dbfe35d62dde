# Every target makes the virtual environment that it needs, once; a changed
# pyproject.toml installs it anew. PYTHON=/path/to/python picks the interpreter.

PYTHON ?=
VENV := .venv
OLDEST := .venv-oldest
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)/python
# A process for each core; neighbouring tests, which share kernels, stay together.
PARALLEL := -n auto --dist worksteal

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint check doctest test-oldest thorough fuzz mutants bench \
	bench-compare doc site-check release-check clean

help:
	@echo "make demo      fit real and simulated data, print tables, save pictures (only=VRHMM)"
	@echo "make test      lint, tests, doctests, tests with the oldest dependencies"
	@echo "make thorough  laws and checks for every case, of which test takes one of a kind"
	@echo "make kills     kills workers and clients of dask during fits, KILLS=50 times"
	@echo "make lint      ruff check, ruff format --check, mypy of the solvers"
	@echo "make fuzz      estimators, data and calls at random (SECONDS=600 SEED=100000)"
	@echo "make mutants   errors made on purpose, which a test must see (COUNT=60 SEED=1)"
	@echo "make bench     measure speed and memory beside other packages (only=hmm quick=1)"
	@echo "make bench-compare  measurements that moved (against=HEAD, or old= and new=)"
	@echo "make release-check  build, check and try what would be published (publish=1)"
	@echo "make doc       build the documentation into doc/_build/html"
	@echo "make site-check  build it, and check links, search and widths"
	@echo "make clean     remove environments, caches and everything built"

demo: $(VENV)/.with-plot
	$(BIN) examples/demo.py $(only)

test: lint check doctest test-oldest

lint: $(VENV)/.with-dev
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(BIN) -m mypy

check: $(VENV)/.with-dev
	$(BIN) -m pytest tests $(PARALLEL) -m "not thorough" --durations=15

# The tests' conftest.py has no doctests: it sets the cache folder and plotting backend.
doctest: $(VENV)/.with-dev
	$(BIN) -m pytest --doctest-modules skvrem tests/conftest.py

# What dependencies can change, from validation to pickles, of every estimator, and fits
# of some; algorithms by themselves are the same with any.
OLDEST_TESTS := tests/laws tests/test_common.py tests/test_inspection.py tests/test_persistence.py \
	tests/test_public.py tests/test_transactions.py tests/utils tests/data/test_sources.py \
	tests/mixture/test_gaussian_mixture.py tests/hmm/test_hmm.py tests/topics/plsa/test_plsa.py \
	tests/linear/test_logistic_regression.py tests/vi/test_logistic_regression.py

# numba 0.61 and numpy 2.0 have wheels for Python 3.11 and 3.12 only.
test-oldest: pyproject.toml
	@$(call find_python,$(PYTHON) python3.11 python3.12 python3 python,(3$(comma) 13)); \
	if [ -n "$$python" ]; then \
	    $(MAKE) --no-print-directory $(OLDEST)/.with-test PYTHON="$$python" && \
	    $(OLDEST)/$(SCRIPTS)/python -m pip list --format=freeze | grep -E \
	        '^(joblib|numba|numpy|scikit-learn|scipy|threadpoolctl)==' && \
	    $(OLDEST)/$(SCRIPTS)/python -m pytest $(OLDEST_TESTS) $(PARALLEL) -m "not slow"; \
	else \
	    echo "test-oldest skipped: the oldest dependencies need Python 3.11 or 3.12"; \
	fi

# What `check` leaves out: further cases of what it has one of.
thorough: $(VENV)/.with-dev
	$(BIN) -m pytest tests $(PARALLEL) -m thorough

SECONDS := 600
SEED := 100000

fuzz: $(VENV)/.with-dev
	$(BIN) -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

COUNT := 60

# Every time others, unless SEED is given; at most 90 minutes on two cores.
mutants: $(VENV)/.with-dev
	$(BIN) -m tests.mutants --count $(COUNT) $(if $(filter-out file,$(origin SEED)),--seed $(SEED))

# Fits on a cluster of dask, whose workers and clients are killed at random moments.
KILLS := 50
kills: $(VENV)/.with-dev
	$(BIN) -m tests.kills --count $(KILLS) $(if $(filter-out file,$(origin SEED)),--seed $(SEED))

# Without only= every table, which takes hours; quick=1 takes small sizes.
bench: $(VENV)/.with-bench
	$(BIN) -m benchmarks run $(only) $(if $(quick),--quick)
	$(if $(quick),,$(BIN) -m benchmarks readme)

# Stored results against those of a commit, or of two files or folders.
bench-compare: $(VENV)/.with-bench
	$(BIN) -m benchmarks compare $(or $(old),$(against),HEAD) $(only) $(if $(new),--new $(new))

doc: $(VENV)/.with-doc
	$(BIN) -m sphinx -W --keep-going -b html doc doc/_build/html

site-check: doc
	$(BIN) -m tests.site doc/_build/html

# Leaves dist/. For a publication (publish=1) the addresses of pyproject.toml must exist.
release-check: $(VENV)/.with-dev
	$(BIN) -m tests.release $(if $(publish),--publish)

clean:
	rm -rf $(VENV) $(OLDEST) .cache .pytest_cache .ruff_cache build dist demo_output
	rm -rf doc/_build doc/auto_examples doc/generated doc/sg_execution_times.rst
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environments ---------------------------------------------------------------------

comma := ,
PIP_FLAGS := --quiet --disable-pip-version-check

# Sets the shell variable `python` to the first of the commands $(1) that is Python 3.11
# or later, earlier than version $(2), and able to make an environment with pip in it.
find_python = \
	for python in $(1); do \
	    "$$python" -c "import ensurepip, sys, venv; \
	sys.exit(not (3, 11) <= sys.version_info < $(2))" 2>/dev/null && break; \
	    python=; \
	done

# Makes the environment $(1) unless it works already.
make_venv = \
	$(1)/$(SCRIPTS)/python -c "" 2>/dev/null || { \
	    $(call find_python,$(or $(PYTHON),python3 python python3.14 python3.13 \
	        python3.12 python3.11),(4$(comma))); \
	    if [ -z "$$python" ]; then \
	        echo "skvrem needs Python 3.11 or later with venv and pip:" \
	            "$(or $(PYTHON),none found); name one with PYTHON=/path/to/python" >&2; \
	        exit 1; \
	    fi; \
	    echo "making $(1) with $$($$python -c 'import sys; print(sys.executable)')"; \
	    "$$python" -m venv --clear $(1); \
	}

# One stamp per set of extras.
$(VENV)/.with-%: pyproject.toml
	@$(call make_venv,$(VENV))
	$(BIN) -m pip install $(PIP_FLAGS) --editable ".[$*]"
	@touch $@

$(OLDEST)/.with-%: pyproject.toml
	@$(call make_venv,$(OLDEST))
	@sed -n '/^dependencies/,/^]/ s/.*"\(.*\)>=\(.*\)".*/\1==\2/p' pyproject.toml \
	    > $(OLDEST)/floors.txt
	$(OLDEST)/$(SCRIPTS)/python -m pip install $(PIP_FLAGS) --editable ".[$*]" \
	    --constraint $(OLDEST)/floors.txt
	@touch $@
