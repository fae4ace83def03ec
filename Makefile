# Aliases: each target's commands can be typed as well.
STACK ?= dev
PYTHON ?= python3
# Rules that `up` must keep: POLICY=infra/policy; LEVELS is a JSON file with the levels of rules.
RULES = $(if $(POLICY),--policy-pack '$(POLICY)') $(if $(LEVELS),--policy-pack-config '$(LEVELS)')
BIN := .venv/bin
READY := .venv/.ready
INSTALLED := .venv/.installed
# In a copied or renamed checkout the environment's programs still run the original's.
_ := $(shell [ ! -e $(READY) ] || [ "$$(cd -P .venv && pwd)" = "$$(cat $(READY))" ] || rm -f $(READY))

# Without stored byte code, each process compiles PyTorch and Ray again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

together = $(MAKE) --no-print-directory --jobs 3

# One epoch, 30 s of processor time: after it, the model knows two thirds of the unseen digits.
DEMO := --data digits --epochs 1 --batch-size 32

# Options with which a machine without a GPU runs the Food-11 course in some minutes.
COURSE := --weights none --image-side 64 --loader-processes 0 --total-epochs 3

# One or two parts leave two cores partly idle, so three run at the same time.
# For newcomers: all unit tests, and the README's promises on one real stack.
PROMISES := tests/integration/infra/test_readme.py tests/integration/infra/test_stack.py
# The rest in five parts of similar length. One part has all tests that need the Docker Engine, because
# a test restarts it.
TRAINING := tests/integration/training
INFRA := tests/integration/infra
# Pods and rented machines that come and go miss deadlines of Kubernetes and Ray on a busy machine: these
# run last, and at most two at once.
REST_PODS := $(INFRA)/kubernetes
REST_RENTED := $(INFRA)/test_workflows.py $(INFRA)/lambda_cloud/test_groups.py
REST_ONE := $(sort $(wildcard $(TRAINING)/test_[a-f]*.py)) $(INFRA)/lambda_cloud $(INFRA)/test_autoscaling.py
REST_ONE += --deselect $(INFRA)/lambda_cloud/test_groups.py
REST_TWO := $(filter-out $(REST_ONE),$(sort $(wildcard $(TRAINING)/test_*.py))) $(INFRA)/hosts
REST_THREE := tests/integration/machines
REST_THREE += $(addprefix $(INFRA)/test_,drain.py drift.py drill.py node_groups.py pages.py process.py replica.py tracking.py)
REST_DOCKER := tests/integration/docker tests/integration/engine $(INFRA)
REST_DOCKER += $(addprefix --deselect ,$(PROMISES) $(filter $(INFRA)/%,$(REST_ONE) $(REST_TWO) $(REST_THREE) $(REST_PODS) $(REST_RENTED)))
# Unit tests in two halves of similar length, even before Python has compiled PyTorch and Ray.
UNIT_ONE := $(addprefix tests/unit/,trainyard training docker)
UNIT_TWO := tests/unit $(addprefix --ignore ,$(UNIT_ONE))
LOGS := .pytest_cache/logs
# What each test cost; `python -m tests.cost` sums it by file.
COSTS := .pytest_cache/costs
# Which tests failed, for tests/again.py.
OUTCOMES := .pytest_cache/outcomes
pytest = $(BIN)/pytest --costs $(COSTS)/$@.tsv --outcome $(OUTCOMES)/$@.json
PARTS_OF_test-unit := test-unit-one test-unit-two
PARTS_OF_test := $(PARTS_OF_test-unit) test-promises
LAST := $(addprefix test-rest-,pods rented $(if $(FROM),skipped))
PARTS_OF_test-rest := $(addprefix test-rest-,one docker two three) $(LAST)

define HELP
make demo       bring the stack up, train, show the results and the addresses
make up         bring the stack dev up or change it; STACK=lab selects another one, for all targets
                FORCE=1 asks, then restarts the head while jobs run; FORCE=yes does not ask
make down       end the whole stack; results stay. It asks before it ends jobs, or runs that were
                not pulled; YES=1 does not ask about runs, FORCE=1 ends jobs too
make monitoring  build Prometheus and Alertmanager, once; the next `make up` of processes starts them
make preview    show what `make up` would change; PLAN=FILE saves a plan, and limits `make up` to it
make review     show what PLAN=FILE changes, costs and opens, as a page for a pull request
make policy     make the environment in which the pulumi CLI runs the rules of infra/policy
make refresh    compare the stack's state with what runs
make drift      report differences from the state; changes nothing
make rotate     list the stack's secrets; SECRET=NAME gives that one a new value, and runs up. It refuses
                if Ray would restart while jobs run; FORCE=1 asks, FORCE=yes does not
make tunnel     bring the pages of a stack on other machines to this one
make scale      launch and end the rented machines of a group as Ray requests, until Ctrl-C
make course     walk the Food-11 course, in the stack course
make setup      make the environment in .venv, from the hash-pinned requirements
make lint       ruff, formatting, mypy --strict
make test       unit tests, and the README's promises on one real stack: minutes
make test-all   all tests that this machine can run, containers where a Docker Engine answers
make test-rest  the tests of test-all that test lacks. FROM=FOLDER adds the tests that another machine
                skipped; the folder has its outcomes
make retry      run the failed tests of test-rest again, alone; AFTER=test: those of test
make test-unit  unit tests only
make bench      measure the ratios of docs/benchmarks.md
make lock       pin the requirements again
make docs       write the generated parts of docs/configuration.md, engine.md and promises.md
make digests    ask the registries for the digests of third-party images
make audit      look for advisories on the locked packages

POLICY=infra/policy has up, preview, review, rotate, plan, apply and review-up keep the rules of that folder.

For runners of a team, as the workflows in .github use them (docs/gitops.md):
make plan          plan of STACK, and its page, into the folder OUT; REFRESH=1 and UNLOCK=1 mend first
make apply         apply the plan in OUT, then run the job SMOKE
make drift-issue   open, update or close an issue about the drift of STACK
make reap-issue    the same about machines that no stack knows; ends machines past their end
make review-up     bring the stack of the pull request NUMBER up
make review-down   end the stack of the pull request NUMBER
make review-sweep  end the stacks of closed pull requests, and stacks past their ttlHours
endef
export HELP

.DEFAULT_GOAL := help
.PHONY: help python able store monitoring setup demo course up down preview review policy refresh drift rotate tunnel scale lint bench lock docs digests audit
.PHONY: plan apply drift-issue reap-issue review-up review-down review-sweep
.PHONY: test test-all test-rest retry test-unit

help:
	@echo "$$HELP"

setup: $(READY)
	@:

python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and f"error: $(PYTHON) is Python {v[0]}.{v[1]}; 3.11 or later is needed: make $(MAKECMDGOALS) PYTHON=python3.11")'

# One locked environment; `pulumi up` uses it too (runtime options in Pulumi.yaml).
# On a terminal uv shows bars; elsewhere a line every 10 s replaces its hundreds of lines. Its locks stay
# in TMPDIR.
$(READY): requirements/setup.txt requirements/dev.txt pyproject.toml | python
	@rm -f $(INSTALLED)
	@$(PYTHON) -m infra.new_environment
	@echo 'installing the packages of requirements/dev.txt'; \
	export TMPDIR='$(CURDIR)/.venv'; \
	install() { $(BIN)/uv pip install --require-hashes --python .venv -r requirements/dev.txt && touch $(INSTALLED); }; \
	if [ -t 2 ]; then install; else install 2>&1 | $(PYTHON) -m infra.downloads; fi; test -e $(INSTALLED)
	TMPDIR='$(CURDIR)/.venv' $(BIN)/uv pip install --quiet --python .venv --no-deps --no-build-isolation -e .
	@$(BIN)/python -m infra.checkout
	@cd -P .venv && pwd >.ready

# A billed stack must end even if no package is available: then by the old environment.
able: python
	@$(MAKE) --no-print-directory setup || { $(BIN)/python -c 'import trainyard.client.cli, engine.cli, infra.checkout' && \
		echo 'warning: make setup failed; the stack is ended by the packages of before' >&2; }

# The default object store: Go builds it once, without the environment.
store: python
	@$(PYTHON) -m infra.hosts.go_build

monitoring: python
	@$(PYTHON) -m infra.hosts.go_build monitoring

up preview: setup
	$(if $(FORCE),@$(BIN)/python -m trainyard.client.forced -s $(STACK) $(if $(filter yes,$(FORCE)),--yes))
	$(if $(FORCE),TRAINYARD_FORCE=1 )$(BIN)/python -m engine.launch $@ -s $(STACK) $(if $(PLAN),--plan '$(PLAN)') $(RULES)

review: setup
	@$(BIN)/python -m infra.review -s $(STACK) '$(PLAN)' $(RULES)

# `up` and `preview` run the program, which hides the salt that the CLI writes. These two do not.
refresh: setup
	$(BIN)/python -m engine.launch $@ -s $(STACK)
	@$(BIN)/python -m infra.checkout $(STACK)

drift: setup
	$(BIN)/python -m infra.drift -s $(STACK)

down: able
	@$(BIN)/python -m trainyard.client.pull.unpulled -s $(STACK)$(if $(YES), --yes)$(if $(FORCE), --force)
	$(BIN)/python -m engine.launch destroy -s $(STACK)
	@$(BIN)/python -m infra.checkout $(STACK)

rotate: setup
	@$(BIN)/python -m infra.rotate -s $(STACK)$(if $(SECRET), --secret '$(SECRET)')$(if $(FORCE), --force)$(if $(filter yes,$(FORCE)), --yes)
	$(if $(SECRET),$(if $(FORCE),TRAINYARD_FORCE=1 )$(BIN)/python -m engine.launch up -s $(STACK) $(RULES))

# It needs protobuf 5, unlike the rest.
policy: setup
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python infra/policy/.venv
	$(BIN)/uv pip install --quiet --require-hashes --python infra/policy/.venv -r infra/policy/requirements.txt

# For the workflows in .github and for runners of any forge. They use the embedded engine, whose plans
# can be shown to a reviewer.
OUT ?= out
SMOKE ?= cpu_example -- 2
OWNER ?=
OF := PULUMI# or REVIEW: prefix of the variables and secrets for the states
WAIT := --yes --wait 10m
ENGINE := $(BIN)/python -m engine
# A failed command ends the recipe: a stack that could not be listed may exist.
exists = stacks=$$($(ENGINE) stack ls) || exit 1; printf '%s\n' "$$stacks" | grep -qxF

# The defaults are on the runner's own disk, which may be gone after the job, and the state with it.
define ON_RUNNER
@for name in PULUMI_BACKEND_URL PULUMI_CONFIG_PASSPHRASE; do \
	if [ -z "$$(printenv $$name)" ]; then \
		echo "error: $$name is empty: set the variable $(OF)_BACKEND_URL and the secret $(OF)_CONFIG_PASSPHRASE of the repository (docs/gitops.md)" >&2; exit 1; \
	fi; \
done
@if [ -n "$$SSH_KEY" ]; then umask 077 && mkdir -p ~/.ssh && printenv SSH_KEY >~/.ssh/trainyard-runner.pem; fi
endef

# If it fails, the page says so: an earlier page would show a plan that does not exist.
define NO_PLAN
<!-- trainyard: preview of $(STACK) -->
## $(STACK): no plan, the preview failed
The log of its run says why.
endef
export NO_PLAN

plan: setup
	$(ON_RUNNER)
	@rm -rf '$(OUT)' && mkdir -p '$(OUT)' && echo "$$NO_PLAN" >'$(OUT)/page.md'
	$(if $(UNLOCK),$(ENGINE) cancel -s $(STACK))
	$(if $(REFRESH),$(exists) '$(STACK)' || exit 0; $(ENGINE) refresh -s $(STACK) $(WAIT))
	$(ENGINE) preview -s $(STACK) --save-plan '$(OUT)/plan.json'
	$(BIN)/python -m infra.review -s $(STACK) '$(OUT)/plan.json' $(RULES) >'$(OUT)/page.new'; \
		refused=$$?; [ ! -s '$(OUT)/page.new' ] || cp '$(OUT)/page.new' '$(OUT)/page.md'; rm '$(OUT)/page.new'; exit $$refused

apply: setup
	$(ON_RUNNER)
	$(ENGINE) up -s $(STACK) $(WAIT) --plan '$(OUT)/plan.json' $(RULES)
	$(BIN)/train submit -s $(STACK) $(SMOKE)

drift-issue: setup
	$(ON_RUNNER)
	$(BIN)/python -m infra.gitops issue 'Drift of $(STACK)' $(BIN)/python -m infra.drift -s $(STACK)

reap-issue: setup
	$(ON_RUNNER)
	$(BIN)/python -m infra.gitops issue 'Unknown to every stack, or past its end$(if $(filter REVIEW,$(OF)), (of pull requests))' $(BIN)/python -m infra.reap --past-end $(if $(OWNER),--owner '$(OWNER)')

# The stack of the pull request NUMBER has the settings of Pulumi.review.yaml, and its own place for the
# state: the pull request's code may write everything there.
review-up review-down review-sweep: OF := REVIEW
review-up review-down: STACK = $(or $(shell $(PYTHON) -m infra.gitops stack '$(NUMBER)'),$(error name the pull request: NUMBER=12))
review-up: setup
	$(ON_RUNNER)
	stacks=$$($(ENGINE) stack ls) || exit 1; printf '%s\n' "$$stacks" | $(BIN)/python -m infra.gitops apart
	cp Pulumi.review.yaml Pulumi.$(STACK).yaml
	$(ENGINE) up -s $(STACK) $(WAIT) --refresh $(RULES)

review-down: setup
	$(ON_RUNNER)
	cp Pulumi.review.yaml Pulumi.$(STACK).yaml
	$(exists) '$(STACK)' || exit 0; $(ENGINE) destroy -s $(STACK) $(WAIT) && $(ENGINE) stack rm -s $(STACK) --yes

# A stack that cannot be judged or ended does not keep the others running.
review-sweep: setup
	$(ON_RUNNER)
	stacks=$$($(ENGINE) stack ls) || exit 1; failed=0; \
	expired=$$($(BIN)/python -m infra.expired) || failed=1; \
	numbers=$$(printf '%s\n' "$$stacks" | $(BIN)/python -m infra.gitops closed --expired $$expired) || failed=1; \
	for number in $$numbers; do $(MAKE) review-down NUMBER=$$number || failed=1; done; exit $$failed

tunnel: setup
	$(BIN)/train tunnel -s $(STACK)

scale: setup
	@$(BIN)/python -m infra.scale -s $(STACK)

define AGENDA
make demo: a Ray cluster on this machine, and a training on it
  1  packages into .venv (6 GB), and the object store, built by Go     once: some minutes
  2  stack $(STACK): object store, Ray head, two workers                   15 s
  3  ResNet-18 learns scanned digits, a worker on each node           30 s
endef
export AGENDA

demo: python
	@echo "$$AGENDA"
	@$(together) setup store
	$(BIN)/python -m engine.launch up -s $(STACK)
	$(BIN)/train submit pytorch_distributed_training -s $(STACK) -- $(DEMO)
	$(BIN)/train info -s $(STACK)

course: python
	@$(together) setup store
	$(BIN)/python -m engine.launch up -s course
	$(BIN)/train submit food11/train_lightning -s course --entrypoint-num-gpus 1 --entrypoint-num-cpus 8 -- $(COURSE)
	$(BIN)/train submit food11/train_ray -s course -- $(COURSE) --num-workers 2 --batch-size 16
	$(BIN)/train submit food11/train_fault_tolerant -s course -- $(COURSE)
	$(BIN)/train submit food11/train_tune -s course -- $(COURSE) --num-samples 4
	$(BIN)/train runs -s course

# A part that runs next to another prints its whole output at its end.
beside = mkdir -p $(LOGS); status=0; $(pytest) $(1) >$(LOGS)/$@.txt 2>&1 || status=$$?; cat $(LOGS)/$@.txt; exit $$status

# The skipped tests show what this machine lacks.
skips = $(BIN)/python -m tests.skipped $(patsubst %,$(OUTCOMES)/%.json,$(1))

test: setup
	@$(together) $(PARTS_OF_test); status=$$?; $(call skips,$(PARTS_OF_test)); exit $$status
	@echo 'Not run: jobs in depth, containers, other machines, a fake cloud, faults one by one. make test-all runs all that this machine can.'

test-unit: setup
	@$(together) $(PARTS_OF_test-unit); status=$$?; $(call skips,$(PARTS_OF_test-unit)); exit $$status

test-all: test test-rest

test-rest: setup
	@failed=0; \
	$(together) --keep-going $(filter-out $(LAST),$(PARTS_OF_test-rest)) || failed=1; \
	$(MAKE) --no-print-directory --keep-going --jobs 2 $(LAST) || failed=1; \
	$(call skips,$(PARTS_OF_test-rest)); exit $$failed

AFTER ?= test-rest
retry: setup
	@$(BIN)/python -m tests.again $(PARTS_OF_$(AFTER):%=$(OUTCOMES)/%.json)

test-promises:
	@$(call beside,$(PROMISES))

test-unit-one:
	@$(pytest) $(UNIT_ONE)

test-unit-two:
	@$(call beside,$(UNIT_TWO))

test-rest-one:
	@$(pytest) $(REST_ONE)

test-rest-two:
	@$(call beside,$(REST_TWO))

test-rest-three:
	@$(call beside,$(REST_THREE))

test-rest-docker:
	@$(call beside,$(REST_DOCKER))

# Assertions about a stack depend on what it runs: its tests are for both machines.
test-rest-skipped:
	@mkdir -p $(OUTCOMES) && $(BIN)/python -m tests.skipped --list $(wildcard $(FROM)/*.json) >$(OUTCOMES)/skipped.txt
	@$(call beside,$(INFRA)/test_stack.py @$(OUTCOMES)/skipped.txt)

test-rest-pods:
	@$(pytest) $(REST_PODS)

test-rest-rented:
	@$(call beside,$(REST_RENTED))

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench

# Advisories on the locked packages. It has to reach PyPI's advisories, which a mirror may not have:
# --strict makes an unknown package an error, not a pass.
audit: setup
	$(BIN)/uv tool run pip-audit==2.10.1 --strict --disable-pip --require-hashes --progress-spinner off $(foreach lock,requirements/dev.txt docker/mlflow/requirements.txt docker/jupyter/requirements.txt infra/policy/requirements.txt,-r $(lock))

digests: setup
	$(BIN)/python -m infra.images

docs: setup
	$(BIN)/python -m infra.settings_page
	$(BIN)/python -m engine.resources_page
	$(BIN)/python -m tests.items --write

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock: setup
	for name in setup base dev; do $(COMPILE) requirements/$$name.in -o requirements/$$name.txt; done
	for name in ray/torch jupyter/requirements mlflow/requirements; do $(COMPILE) -c requirements/base.txt docker/$$name.in -o docker/$$name.txt; done
	$(COMPILE) -c requirements/base.txt --override requirements/without-torch.in docker/ray/requirements.in -o docker/ray/requirements.txt
	$(COMPILE) -c requirements/base.txt requirements/host.in -o requirements/host.txt
	mkdir -p build && grep -E '^[^ #]+==' requirements/base.txt | grep -Ev '^(torch==|torchvision==|triton|nvidia|cuda|setuptools)' | tr -d '\\' >build/constraints.txt
	$(COMPILE) -c build/constraints.txt requirements/tpu.in -o requirements/tpu.txt
	$(COMPILE) infra/policy/requirements.in -o infra/policy/requirements.txt
	for name in ray jupyter mlflow; do cp requirements/setup.txt docker/$$name/; done
