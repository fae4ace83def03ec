# Aliases of `train` and others: `train up` is `make up` without the set-up. `make` prints the texts after ##.
STACK ?= dev
PYTHON ?= python3
# Rules that `up` must keep: POLICY=infra/operate/policy; LEVELS is a JSON file with the levels of rules.
RULES = $(if $(POLICY),--policy-pack '$(POLICY)') $(if $(LEVELS),--policy-pack-config '$(LEVELS)')
BIN := .venv/bin
READY := .venv/.ready
# In a copied or renamed checkout the environment's programs still run the original's.
_ := $(shell [ ! -e $(READY) ] || [ "$$(cd -P .venv && pwd)" = "$$(cat $(READY))" ] || rm -f $(READY))
# Without stored byte code, each process compiles PyTorch and Ray again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help python able ready monitoring notebook setup demo course up down preview review policy refresh drift rotate
.PHONY: tunnel scale lint bench lock release site docs record digests audit test test-all test-rest retry test-unit
.PHONY: plan apply drift-issue reap-issue review-up review-down review-sweep

help:
	@awk -F ' ## ' '/^##/ { sub(/^## ?/, ""); print } /^[a-z-]+:.* ## / { sub(/:.*/, "", $$1); printf "make %-12s  %s\n", $$1, $$2 }' Makefile
python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and f"error: $(PYTHON) is Python {v[0]}.{v[1]}; 3.11 or later is needed: make $(MAKECMDGOALS) PYTHON=python3.11")'

# One locked environment; `pulumi up` uses it too (runtime options in Pulumi.yaml). uv's locks stay in TMPDIR.
$(READY): requirements/setup.txt requirements/dev.txt pyproject.toml | python
	@$(PYTHON) -m scripts.new_environment
	TMPDIR='$(CURDIR)/.venv' $(BIN)/uv pip install --quiet --python .venv --no-deps --no-build-isolation -e .
	@$(BIN)/python -m infra.operate.checkout
	@cd -P .venv && pwd >.ready
# A billed stack must end even if no package is available: then by the old environment.
able: python
	@$(MAKE) --no-print-directory setup || { $(BIN)/python -c 'import trainyard.client.cli, engine.cli, infra.operate.checkout' && \
		echo 'warning: make setup failed; the stack is ended by the packages of before' >&2; }

# One epoch, 30 s of processor time: after it, the model knows two thirds of the unseen digits.
demo: python ## bring the stack up, train, show the results and the addresses
	@echo 'make demo: a Ray cluster on this machine, and a training on it'
	@echo '  1  packages into .venv (6 GB)                                once: some minutes'
	@echo '  2  stack $(STACK): Ray head, two workers                          15 s'
	@echo '  3  ResNet-18 learns scanned digits, a worker on each node    30 s'
	@$(MAKE) --no-print-directory setup
	$(BIN)/python -m engine.launch up -s $(STACK)
	$(BIN)/train submit pytorch_distributed_training -s $(STACK) -- --data digits --epochs 1 --batch-size 32
	$(BIN)/train info -s $(STACK)

up: ## bring the stack dev up or change it; STACK=lab selects another one, for all targets
##                    FORCE=1 asks, then restarts the head while jobs run; FORCE=yes does not ask
##                    FIND_PORTS=1 first sets a portOffset with which all ports are free
FORCED = $(if $(FORCE),--force $(if $(filter yes,$(FORCE)),--yes))
up: setup
	$(BIN)/train up -s $(STACK) $(if $(PLAN),--plan '$(PLAN)') $(if $(FIND_PORTS),--find-ports) $(FORCED) $(RULES)
down: able ## end the whole stack; results stay. It asks before it ends jobs, or runs that were
##                    not pulled; YES=1 does not ask about runs, FORCE=1 ends jobs too
	$(BIN)/train down -s $(STACK) $(if $(YES),--yes) $(if $(FORCE),--force)
monitoring: python ## build Prometheus and Alertmanager, once; the next `make up` of processes starts them
	@$(PYTHON) -m infra.machines.go_build
notebook: setup ## install JupyterLab into .venv, once: for `notebook: true` in the file of a stack of processes
	$(BIN)/uv pip install --quiet --require-hashes --python .venv -r docker/jupyter/requirements.txt
preview: setup ## show what `make up` would change; PLAN=FILE saves a plan, and limits `make up` to it;
##                    DIFF=1 shows which properties change, and files line by line
	$(BIN)/train preview -s $(STACK) $(if $(DIFF),--diff) $(if $(PLAN),--plan '$(PLAN)') $(RULES)
review: setup ## show what PLAN=FILE changes, costs and opens, as a page for a pull request
	@$(BIN)/train review -s $(STACK) '$(PLAN)' $(RULES)
# It needs protobuf 5, unlike the rest.
policy: setup ## make the environment in which the pulumi CLI runs the rules of infra/operate/policy
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python infra/operate/policy/.venv
	$(BIN)/uv pip install --quiet --require-hashes --python infra/operate/policy/.venv -r infra/operate/policy/requirements.txt
refresh: setup ## compare the stack's state with what runs
	$(BIN)/train refresh -s $(STACK)
drift: setup ## report differences from the state; changes nothing
	$(BIN)/train drift -s $(STACK)
rotate: setup ## list the stack's secrets; SECRET=NAME gives that one a new value, and runs up. It refuses
##                    if Ray would restart while jobs run; FORCE=1 asks, FORCE=yes does not
	$(BIN)/train rotate -s $(STACK) $(if $(SECRET),'$(SECRET)' $(FORCED) $(RULES))
tunnel: setup ## bring the pages of a stack on other machines to this one
	$(BIN)/train tunnel -s $(STACK)
scale: setup ## launch and end the rented machines of a group as Ray requests, until Ctrl-C
	$(BIN)/train scale -s $(STACK)
# Options with which a machine without a GPU runs it in some minutes.
COURSE := --weights none --image-side 64 --loader-processes 0 --total-epochs 3
course: python ## walk the Food-11 course, in the stack course
	@$(MAKE) --no-print-directory setup
	$(BIN)/python -m engine.launch up -s course
	$(BIN)/train submit food11/train_lightning -s course --entrypoint-num-gpus 1 --entrypoint-num-cpus 8 -- $(COURSE)
	$(BIN)/train submit food11/train_ray -s course -- $(COURSE) --num-workers 2 --batch-size 16
	$(BIN)/train submit food11/train_fault_tolerant -s course -- $(COURSE)
	$(BIN)/train submit food11/train_tune -s course -- $(COURSE) --num-samples 4
	$(BIN)/train runs -s course

setup: $(READY) ## make the environment in .venv, from the hash-pinned requirements
	@:
TESTS = $(if $(FROM),--from '$(FROM)') $(if $(LANDING),--landing '$(LANDING)')
lint: setup ## ruff, formatting, mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
test: ## unit tests, and the README's promises on one real stack: minutes
test-all: test test-rest ## all tests that this machine can run, containers where a Docker Engine answers
test-rest: ## the tests of test-all that test lacks. FROM=FOLDER adds the tests that another machine
##                    skipped; the folder has its outcomes. LANDING=FILE leaves out long tests that
##                    tests/landings.py has not chosen
retry: setup ## run the failed tests of test-rest again, alone; AFTER=test: those of test
	@$(BIN)/python -m tests.parts $(or $(AFTER),test-rest) --again $(TESTS)
test-unit: ## unit tests only
test test-rest test-unit: setup
	@$(BIN)/python -m tests.parts $@ $(TESTS)
bench: setup ## measure the ratios of docs/benchmarks.md
	$(BIN)/python -m bench
# uv keeps allowed versions of a lock. Earlier locks are constraints of later ones.
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url \
	--no-emit-find-links --custom-compile-command 'make lock' $(1).in -o $(1).txt
BASE := -c requirements/base.txt
# TPU hosts have other versions of PyTorch and its dependencies.
OF_PYTORCH := torch(vision)?==|triton|nvidia|cuda|setuptools
lock: setup ## pin the requirements again
	set -e; for name in requirements/setup requirements/base requirements/dev requirements/mutants infra/operate/policy/requirements; \
		do $(call COMPILE,$$name); done
	set -e; for name in requirements/host requirements/site docker/ray/torch docker/jupyter/requirements docker/mlflow/requirements; \
		do $(call COMPILE,$$name) $(BASE); done
	$(call COMPILE,docker/ray/requirements) $(BASE) --override requirements/without-torch.in
	mkdir -p build
	sed -nE 's/^([^ #]+==[^\]*).*/\1/p' requirements/base.txt | grep -vE '^($(OF_PYTORCH))' >build/constraints.txt
	$(call COMPILE,requirements/tpu) -c build/constraints.txt
	set -e; for image in ray jupyter mlflow; do cp requirements/setup.txt docker/$$image/; done
docs: setup ## write the generated pages and parts of pages in docs/
	$(BIN)/python -m scripts.settings_page
	$(BIN)/python -m scripts.resources_page
	$(BIN)/python -m tests.course_page
	$(BIN)/python -m tests.items --write
	$(BIN)/python -m tests.ui_pictures
# Each recording differs, and takes a minute: `make docs` leaves it out.
record: setup ## record a real `make demo` as docs/demo.svg, then end the stack
	$(BIN)/uv tool run termtosvg-ng==1.4.1 docs/demo.svg --screen-geometry 110x40 --template window_frame \
		--max-frame-duration 1000 --loop-delay 20000 --command \
		"sh -c 'echo $$ make demo; unset MAKEFLAGS MAKELEVEL; PATH=\"$(CURDIR)/$(BIN):$$PATH\" make demo'"
	@$(MAKE) --no-print-directory down YES=1
release: setup ## check the tagged version and build it into out/dist; publishes nothing
	$(BIN)/python -m scripts.release
	$(BIN)/uv tool run --quiet twine==7.0.0 check --strict out/dist/trainyard_ray-*
SITE_ENVIRONMENT := out/site-environment
site: setup ## build the site of docs/ and its references into out/site; warnings are errors
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SITE_ENVIRONMENT)
	$(BIN)/uv pip install --quiet --require-hashes --python $(SITE_ENVIRONMENT) -r requirements/site.txt
	$(SITE_ENVIRONMENT)/bin/python -m scripts.website
digests: setup ## ask the registries for the digests of third-party images
	$(BIN)/python -m scripts.registry
# A mirror may lack PyPI's advisories: --strict makes an unknown package an error, not a pass.
audit: setup ## look for advisories on the locked packages
	$(BIN)/uv tool run pip-audit==2.10.1 --strict --disable-pip --require-hashes --progress-spinner off $(foreach lock,requirements/dev.txt docker/mlflow/requirements.txt docker/jupyter/requirements.txt infra/operate/policy/requirements.txt,-r $(lock))

##
## POLICY=infra/operate/policy has up, preview, review, rotate, plan, apply and review-up keep the rules of that folder.
##
## For runners of a team, as the workflows in .github use them (docs/gitops.md):
OUT ?= out
SMOKE ?= cpu_example -- 2
OF := PULUMI# or REVIEW: prefix of the variables and secrets for the states
GITOPS := $(BIN)/python -m infra.operate.gitops
ready: setup
	@$(GITOPS) ready $(OF)
plan: ready ## plan of STACK, and its page, into the folder OUT; REFRESH=1 and UNLOCK=1 mend first
	@$(GITOPS) preview$(if $(UNLOCK), --unlock)$(if $(REFRESH), --refresh) $(STACK) '$(OUT)' -- $(RULES)
apply: ready ## apply the plan in OUT, then run the job SMOKE
	$(BIN)/python -m engine up -s $(STACK) --yes --wait 10m --plan '$(OUT)/plan.json' $(RULES)
	$(BIN)/train submit -s $(STACK) $(SMOKE)
drift-issue: ready ## open, update or close an issue about the drift of STACK
	$(GITOPS) issue $(if $(REPAIR),--repair '$(STACK)') 'Drift of $(STACK)' $(BIN)/python -m infra.operate.drift -s $(STACK)
reap-issue: ready ## the same about machines that no stack knows; ends machines past their end
	$(GITOPS) issue 'Unknown to every stack, or past its end$(if $(filter REVIEW,$(OF)), (of pull requests))' $(BIN)/python -m infra.operate.reap --past-end $(if $(OWNER),--owner '$(OWNER)')
# The state of a pull request's stack has its own place: the pull request's code may write everything there.
review-up review-down review-sweep: OF := REVIEW
review-up: ready ## bring the stack of the pull request NUMBER up
	@$(GITOPS) up '$(NUMBER)' -- $(RULES)
review-down: ready ## end the stack of the pull request NUMBER
	@$(GITOPS) down '$(NUMBER)'
review-sweep: ready ## end the stacks of closed pull requests, and stacks past their ttlHours
	@$(GITOPS) sweep
