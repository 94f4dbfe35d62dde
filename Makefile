# Every target makes the virtual environment that it needs, once; a changed
# pyproject.toml installs it anew. PYTHON=/path/to/python picks the interpreter.

PYTHON ?=
VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin/python

# Compiled kernels live in a folder named by a checksum of the sources: numba does not
# see that a function called from another file has changed. The tests do the same.
SOURCES = $(shell find skvrem -name '*.py' | LC_ALL=C sort | xargs cat | cksum)
KERNELS = $(CURDIR)/.cache/numba/make-$(firstword $(SOURCES))
demo doc bench: export NUMBA_CACHE_DIR = $(KERNELS)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint check doctest test-oldest bench doc clean

help:
	@echo "make demo    fit real and simulated data, print a table, save pictures"
	@echo "make test    lint, tests, doctests, tests with the oldest dependencies"
	@echo "make lint    ruff check and ruff format --check"
	@echo "make bench   measure speed and memory against scikit-learn"
	@echo "make doc     build the documentation into doc/_build/html"
	@echo "make clean   remove environments, caches and everything built"

demo: $(VENV)/.with-plot
	$(BIN) examples/demo.py

test: lint check doctest test-oldest

lint: $(VENV)/.with-test
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .

check: $(VENV)/.with-test
	$(BIN) -m pytest tests --durations=15

# The tests' conftest.py has no doctests: it sets the cache folder and plotting backend.
doctest: $(VENV)/.with-test
	$(BIN) -m pytest --doctest-modules skvrem tests/conftest.py

# numba 0.61 and numpy 2.0 have wheels for Python 3.11 and 3.12 only.
test-oldest: pyproject.toml
	@$(call find_python,$(PYTHON) python3.11 python3.12 python3 python,(3$(comma) 13)); \
	if [ -n "$$python" ]; then \
	    $(MAKE) --no-print-directory $(OLDEST)/.with-test PYTHON="$$python" && \
	    $(OLDEST)/bin/python -m pip list --format=freeze | grep -E \
	        '^(joblib|numba|numpy|scikit-learn|scipy|threadpoolctl)==' && \
	    $(OLDEST)/bin/python -m pytest tests -m "not slow"; \
	else \
	    echo "test-oldest skipped: the oldest dependencies need Python 3.11 or 3.12"; \
	fi

bench: $(VENV)/.with-bench
	$(BIN) benchmarks/mixture_table.py

doc: $(VENV)/.with-doc
	$(BIN) -m sphinx -W --keep-going -b html doc doc/_build/html

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
	$(1)/bin/python -c "" 2>/dev/null || { \
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
	$(OLDEST)/bin/python -m pip install $(PIP_FLAGS) --editable ".[$*]" \
	    --constraint $(OLDEST)/floors.txt
	@touch $@
