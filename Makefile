# `make` lists the targets. Those that run something first build .venv, once; after that nothing needs a network.
# Written for GNU make 3.81 or newer and any POSIX shell: Linux and macOS as they come.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# What a user may set, for example: make trace PROMPT="Why is the sky blue?" ARGS="--max-tokens 20"
PYTHON ?=
TORCH_INDEX ?=
LOCK ?=
EXTRAS := engine,test,docs,tested
VLLM_ENV := .vllm-env
MINUTES := 30
PROMPT :=
ARGS :=
export PROMPT

# Torch comes first, by its exact pin: so pip takes a CPU build where the index has one.
TORCH := $(shell sed -n 's/^tested = .*"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
CPU_INDEX := https://download.pytorch.org/whl/cpu
PIP := $(PY) -m pip install --disable-pip-version-check
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
# PyTorch's CUDA build for Linux requires one exact triton. Where torch requires none, the tested one is taken.
TRITON_EXTRA := from importlib.metadata import requires; \
	print("" if any(r.startswith("triton") for r in requires("torch")) else ",tested-triton")

# Another folder or other extras than at the last time: install again.
INSTALLED := $(CURDIR) $(EXTRAS)
STALE := $(if $(filter-out x$(INSTALLED),x$(shell cat $(STAMP) 2>/dev/null)),reinstall)

.DEFAULT_GOAL := help
.PHONY: help setup lock trace test test-vllm lint soak mutants vllm-env kernels-full labs-full traces refs notebooks docs screenshots format clean distclean reinstall

help: ## this list
	@echo "minivllm: the life of one request, traced. Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 |\2/p' Makefile | awk -F'|' '{ printf "%-20s%s\n", $$1, $$2 }'
	@echo
	@echo "Settings, written behind the target:"
	@echo '  PROMPT="..."      the prompt of make trace'
	@echo '  ARGS="..."        more arguments: for minivllm trace (make trace) or for pytest (make test)'
	@echo "  MINUTES=3         how long make soak runs; 30 unless you say so"
	@echo "  LOCK=FILE         install what a list of versions and hashes says: .ci/requirements.lock (Linux, as CI does)"
	@echo "  PYTHON=python3.12 the Python that .venv is made with; it must be 3.11 or newer"
	@echo "  TORCH_INDEX=URL   one more package index to take torch from. On Linux the plain index gives the CUDA build"
	@echo "                    (several GB); without a GPU: TORCH_INDEX=$(CPU_INDEX)"

setup: $(STAMP) ## build .venv, without running anything (the others do it by themselves)
	@echo "$(VENV) is ready: $(VENV)/bin/minivllm --help"

trace: $(STAMP) ## run one request on the default model and write its trace to traces/out/
	@$(PY) -m minivllm trace $(if $(PROMPT),"$$PROMPT") $(ARGS)

test: lint ## lint, then all tests
	@$(PY) -m pytest $(ARGS)

test-vllm: $(STAMP) ## vLLM 0.22.0's own unit tests on minivllm's classes (its source is fetched once, 35 MB; 10 minutes)
	@$(PY) tests/vllm_own/run.py $(ARGS)

lock: $(STAMP) ## write .ci/requirements.lock anew from what .venv holds
	@.ci/lock

lint: $(STAMP) ## ruff, and the rules of which layer may import which
	@$(PY) -m ruff check .
	@$(PY) $(VENV)/bin/lint-imports --no-logo

soak: $(STAMP) ## engines made, used, abused and ended at random, for half an hour, or MINUTES=3
	@$(PY) tests/soak.py --minutes $(MINUTES) $(ARGS)

mutants: $(STAMP) ## plant every wrong edit of tests/mutants in turn, and see that the tests notice (a quarter of an hour)
	@$(PY) tests/mutants/run.py $(ARGS)

vllm-env: ## build, in VLLM_ENV (default .vllm-env), an environment with the real vLLM 0.22.0 for CPU to record from
	@bash traces/vllm-0.22.0/vllm_env.sh "$(VLLM_ENV)"

kernels-full: $(STAMP) ## the kernels over all combinations of shapes (half an hour or so; make test takes a cover of them)
	@KERNELS_FULL=1 $(PY) -m pytest tests/kernels $(ARGS)

traces: $(STAMP) ## record the traces in traces/ again
	@$(PY) -m minivllm record --all --out traces

refs: $(STAMP) ## check the references to vLLM's source, and write docs/vllm-map.md and docs/drift.md anew
	@$(PY) -m minivllm refs check
	@$(PY) -m minivllm refs map
	@$(PY) -m minivllm refs drift --page

labs-full: $(STAMP) ## the labs with all seeds, and a longer search (several minutes; make test takes a part of them)
	@LABS_FULL=1 $(PY) -m pytest tests/course/grader $(ARGS)

notebooks: $(STAMP) ## execute all notebooks and write their outputs anew (notebooks/NN_name.py is what one edits)
	@$(PY) -m minivllm.course.notebook.build $(ARGS)

docs: $(STAMP) ## write the numbers in the docs anew from the traces, and build the site: build/docs/docs/index.html
	@$(PY) docs/facts.py
	@$(PY) tests/faults.py
	@$(PY) -m sphinx -q -W --keep-going -b html -c docs . build/docs

screenshots: $(STAMP) ## take the pictures of the page in README.md and docs/ anew (needs Chromium and its driver)
	@$(PY) docs/screenshots.py

format: $(STAMP) ## let ruff lay out the code
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

clean: ## remove caches and build products
	rm -rf build dist *.egg-info .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## remove .venv and the traces in traces/out/ as well
	rm -rf $(VENV) traces/out

reinstall:

$(STAMP): pyproject.toml $(STALE)
	@{ $(PY) -c '$(NEW_ENOUGH)' && { $(PY) -m pip --version || $(PY) -m ensurepip; }; } >/dev/null 2>&1 || { \
	  new= usable=; \
	  for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.14); do \
	    "$$python" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 || continue; \
	    new=$$python; \
	    "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || continue; \
	    usable=$$python; break; \
	  done; \
	  if [ -z "$$new" ]; then \
	    echo "minivllm needs Python 3.11 or newer, and $(if $(PYTHON),$(PYTHON) is not one,none was found as python3)." >&2; \
	    echo "Install one, or say where it is: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; \
	  fi; \
	  if [ -z "$$usable" ]; then \
	    echo "$$new cannot make a virtual environment: its venv or ensurepip module is missing." >&2; \
	    echo "On Debian and Ubuntu they are a package of their own: apt-get install python3-venv" >&2; exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$usable"; \
	  "$$usable" -m venv --clear $(VENV); }
	@echo "Installing $(TORCH) into $(VENV); the first time this takes some minutes."
ifeq ($(TORCH_INDEX)$(shell uname -s),Linux)
	@echo "(Large files? That is the CUDA build. Without a GPU: make TORCH_INDEX=$(CPU_INDEX) $(MAKECMDGOALS))"
endif
ifneq ($(LOCK),)
	@$(PIP) --require-hashes --no-deps -r "$(LOCK)"
endif
	@$(PIP) "$(TORCH)" $(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)")
ifneq ($(LOCK),)
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(PY) -m pip check --disable-pip-version-check
else
	@$(PIP) -e ".[$(EXTRAS)$$($(PY) -c '$(TRITON_EXTRA)')]"
endif
	@echo "$(INSTALLED)" > $(STAMP)
