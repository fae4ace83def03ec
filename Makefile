# Aliases: what each target does can be typed as well.
STACK ?= dev
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
INSTALLED := .venv/.installed

# Where Python keeps no byte code, each process compiles PyTorch and Ray anew: seconds of each.
unexport PYTHONDONTWRITEBYTECODE

# One epoch, 30 s of processor time: then it knows two thirds of the digits that it has not seen.
DEMO := --data digits --epochs 1 --batch-size 32

# Of the Food-11 course, what a machine without a GPU does in some minutes.
COURSE := --weights none --image-side 64 --loader-processes 0 --total-epochs 3

# One run by itself leaves a part of two cores idle, so two parts run side by side.
# All that needs the Docker Engine is in one of them, for a test restarts it.
PART_ONE := tests/integration/training tests/unit
PART_TWO := tests/integration/docker tests/integration/engine tests/integration/infra tests/integration/machines
PART_TWO_LOG := .pytest_cache/part-two.txt
# What each test cost; `python -m tests.cost` sums it by file.
COSTS := .pytest_cache/costs

define HELP
make demo       bring the stack up, train, show the results and the addresses
make up         bring the stack dev up or change it; STACK=lab means another one, for all targets
make down       end everything of the stack; results stay
make preview    show what `make up` would change
make refresh    compare the stack's state with what runs
make tunnel     bring the pages of a stack on other machines to this one
make course     walk the Food-11 course, in the stack course
make setup      make the environment in .venv, from the hash-pinned requirements
make lint       ruff, formatting, mypy --strict
make test       all tests that this machine can run
make test-one   the half of them that trains, and all unit tests
make test-two   the half of them that brings stacks up
make test-unit  unit tests only
make bench      measure the ratios of docs/benchmarks.md
make lock       pin the requirements anew
make digests    ask the registries for the digests of the images of others
make audit      look for advisories on the locked packages
endef
export HELP

.DEFAULT_GOAL := help
.PHONY: help python store setup demo course up down preview refresh tunnel test test-one test-two test-unit lint bench lock digests audit

help:
	@echo "$$HELP"

setup: $(READY)
	@:

python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and f"error: $(PYTHON) is Python {v[0]}.{v[1]}; 3.11 or later is needed: make $(MAKECMDGOALS) PYTHON=python3.11")'

# One locked environment; `pulumi up` uses it too (runtime options in Pulumi.yaml).
# uv tells what it downloads; its list of all packages at the end is left out.
$(READY): requirements/setup.txt requirements/dev.txt pyproject.toml | python
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements/setup.txt
	{ $(BIN)/uv pip install --require-hashes --python .venv -r requirements/dev.txt && touch $(INSTALLED); } 2>&1 | grep --line-buffered -v '^ + '; test -e $(INSTALLED)
	$(BIN)/uv pip install --quiet --python .venv --no-deps --no-build-isolation -e .
	@$(BIN)/python -m infra.checkout
	@touch $(READY)

# The default object store, which Go builds once: nothing of the environment is needed for it.
store: python
	@$(PYTHON) -m infra.hosts.go_build

up preview refresh: setup
	$(BIN)/python -m engine.launch $@ -s $(STACK)

down: setup
	$(BIN)/python -m engine.launch destroy -s $(STACK)

tunnel: setup
	$(BIN)/train tunnel -s $(STACK)

define PLAN
make demo: a Ray cluster on this machine, and a training on it
  1  packages into .venv (6 GB), beside it the object store, by Go    once: some minutes
  2  stack $(STACK): object store, Ray head, two workers                   15 s
  3  ResNet-18 learns scanned digits, a worker on each node           30 s
endef
export PLAN

demo: python
	@echo "$$PLAN"
	@$(MAKE) --no-print-directory -j 2 setup store
	$(BIN)/python -m engine.launch up -s $(STACK)
	$(BIN)/train submit pytorch_distributed_training -s $(STACK) -- $(DEMO)
	$(BIN)/train info -s $(STACK)

course: python
	@$(MAKE) --no-print-directory -j 2 setup store
	$(BIN)/python -m engine.launch up -s course
	$(BIN)/train submit food11/train_lightning -s course --entrypoint-num-gpus 1 --entrypoint-num-cpus 8 -- $(COURSE)
	$(BIN)/train submit food11/train_ray -s course -- $(COURSE) --num-workers 2
	$(BIN)/train submit food11/train_fault_tolerant -s course -- $(COURSE)
	$(BIN)/train submit food11/train_tune -s course -- $(COURSE) --num-samples 4
	$(BIN)/train runs -s course

test: setup
	@$(MAKE) --no-print-directory -j 2 test-one test-two

test-one: setup
	$(BIN)/pytest --costs $(COSTS)/one.tsv $(PART_ONE)

# What it says comes at its end, not between the lines of the other part.
test-two: setup
	@mkdir -p $(dir $(PART_TWO_LOG))
	@status=0; $(BIN)/pytest --costs $(COSTS)/two.tsv $(PART_TWO) >$(PART_TWO_LOG) 2>&1 || status=$$?; cat $(PART_TWO_LOG); exit $$status

test-unit: setup
	$(BIN)/pytest tests/unit

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench

# Advisories on what the locks hold. It has to reach PyPI's advisories, which a mirror may not have:
# --strict makes a package that is not known there an error, not a pass.
audit: setup
	$(BIN)/uv tool run pip-audit==2.10.1 --strict --disable-pip --require-hashes --progress-spinner off $(foreach lock,requirements/dev.txt docker/mlflow/requirements.txt docker/jupyter/requirements.txt,-r $(lock))

digests: setup
	$(BIN)/python -m infra.images

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock: setup
	for name in setup base dev; do $(COMPILE) requirements/$$name.in -o requirements/$$name.txt; done
	for name in ray/torch jupyter/requirements mlflow/requirements; do $(COMPILE) -c requirements/base.txt docker/$$name.in -o docker/$$name.txt; done
	$(COMPILE) -c requirements/base.txt --override requirements/without-torch.in docker/ray/requirements.in -o docker/ray/requirements.txt
	$(COMPILE) -c requirements/base.txt requirements/host.in -o requirements/host.txt
	for name in ray jupyter mlflow; do cp requirements/setup.txt docker/$$name/; done
