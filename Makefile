# The one front door: `make` lists what can be done here.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
UV := $(VENV)/bin/uv
PYTEST := $(VENV)/bin/pytest
KEEP ?=
ARGS ?=
# Kept apart, so that two commands of one clone write no report over another's.
REPORTS ?= reports
SLOWEST := --durations=30
PARALLEL := -n auto --maxprocesses=8 --dist=loadgroup
# Tests that measure time mostly wait: a few at once, and nothing else beside them.
MEASURING := -n 3 --dist=loadgroup
# These change what a node is, or what runs on it: they have a lab to themselves.
NODE_TESTS := tests/lab/test_lab.py tests/e2e/owned $(patsubst %,tests/e2e/test_%.py,migrating dra_node restarts restored killed accounts)
# The first three boot labs of their own; the others are here because this lane has the time.
BOOTING_TESTS := tests/lab/test_lab_is_gone.py $(patsubst %,tests/e2e/test_%.py,kinds_of_nodes operating faults several_shares)
# What phases at once print, line by line. sed ends with its input, whatever interrupts make.
label = 2>&1 | sed -u 's/^/$(1) | /'
# Where it is set, every process of pytest would rewrite and compile all tests anew.
unexport PYTHONDONTWRITEBYTECODE
# A cluster is used only where it is named on the command line, not because a shell exports one.
CLUSTER := $(if $(filter command,$(origin KUBECONFIG)),$(KUBECONFIG))

# Debian's packages, where this is Debian and we are root; else a word about what is missing.
debian = if test "$$(id -u)" = 0 && command -v apt-get > /dev/null; \
  then echo "setup: $(1) from Debian"; apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends $(1) > /dev/null; \
  else echo "install $(1) (Debian's names), and run this again" >&2; false; fi

.PHONY: help gcc headers jq buildah prometheus chromium setup native native-aarch64 sanitizers lint lint-style lint-types lint-layers lint-native format \
  test-fast test test-parallel test-lab test-lab-nodes test-lab-booting test-serial test-frameworks flaky fault-matrix prove mutants \
  bench bench-cluster bench-lab bench-gpu gpu-tree demo screenshots pythons image release docs clean requirements

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/.ready: requirements/uv.txt requirements/dev.txt requirements/clients.txt pyproject.toml
	@echo "setup: Python packages (pinned, hashed) into $(VENV)"
	@test -x $(VENV)/bin/pip || python3 -m venv $(VENV) > /dev/null 2>&1 || \
	  { $(call debian,python3-venv) && python3 -m venv $(VENV); }
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(UV) pip sync --quiet --compile-bytecode --python $(PYTHON) --require-hashes requirements/dev.txt
	@$(UV) pip sync --quiet --compile-bytecode --python $(PYTHON) --target $(VENV)/clients --require-hashes requirements/clients.txt
	@echo "$(CURDIR)/src" > $$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kubeshare.pth
	@for each in kubeshare:main kubectl-kubeshare:main kubectl-inspect-gpushare:inspect_gpushare \
	    kubectl_complete-kubeshare:complete kubectl_complete-inspect-gpushare:complete_inspect_gpushare; do \
	  name=$${each%:*}; call=$${each#*:}; \
	  printf '#!%s\nimport sys\nfrom kubeshare.cli.main import %s\nsys.exit(%s())\n' "$(CURDIR)/$(PYTHON)" $$call $$call > $(VENV)/bin/$$name; \
	  chmod +x $(VENV)/bin/$$name; done
	@touch $@

# Programs that write no bytecode would compile all that they import anew.
setup: $(VENV)/.ready ## bring the Python environment up to date (instant when it is)
	@$(PYTHON) -m compileall -q src tests/fakes

native: setup headers ## build the device library, the fake GPU and the example workloads; compile the daemon's handover
	@$(MAKE) --no-print-directory -s -j$(shell nproc) -C native ZIG="$(CURDIR)/$(PYTHON) -m ziglang"

sanitizers: native gcc ## build the C that tests run under gcc's sanitizers (two minutes the first time)
	@$(MAKE) --no-print-directory -s -j$(shell nproc) -C native asan tsan ZIG="$(CURDIR)/$(PYTHON) -m ziglang"

# Where the emulator finds libc. The programs are those of `make sanitizers`, for the other machine.
QEMU_LD_PREFIX ?= /usr/aarch64-linux-gnu
AARCH64_TESTS := $(patsubst %,tests/native/device_library/test_%.py,claim drain gate lookup memory memory_rules meter old_drivers oversubscription primary_contexts work)
native-aarch64: setup ## build the device library for aarch64 and run eleven files of its tests under qemu-user (two minutes)
	@$(MAKE) --no-print-directory -s -j$(shell nproc) -C native aarch64 ZIG="$(CURDIR)/$(PYTHON) -m ziglang"
	@{ command -v qemu-aarch64 > /dev/null && test -e $(QEMU_LD_PREFIX)/lib/ld-linux-aarch64.so.1; } || \
	  { $(call debian,qemu-user libc6-arm64-cross); }
	@export QEMU_LD_PREFIX=$(QEMU_LD_PREFIX); tests=native/build/aarch64/tests; \
	qemu-aarch64 $$tests/allocations-test && qemu-aarch64 $$tests/marks-test kernel 500 && \
	qemu-aarch64 $$tests/marks-test launches 500 && \
	KUBESHARE_NATIVE_VARIANT=aarch64 $(PYTEST) -q $(AARCH64_TESTS) -m "not slow" -k "not unseen"

# The second opinion on C and its sanitizers are gcc's.
gcc:
	@command -v gcc > /dev/null || { $(call debian,gcc libc6-dev); }

# With these the token daemon's handover is compiled; without, it runs as pure Python.
headers: setup
	@$(PYTHON) -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' \
	  || { $(call debian,python3-dev) || true; }

# The page on backups pipes through it, and a test runs what the page says.
jq:
	@command -v jq > /dev/null || { $(call debian,jq); }

# The released image is built with it.
buildah:
	@command -v buildah > /dev/null || { $(call debian,buildah); }

# Metrics, alerts and dashboards are tried with it.
prometheus:
	@{ command -v prometheus && command -v promtool; } > /dev/null || { $(call debian,prometheus); }

# The page of `kubeshare web` is opened with it.
chromium:
	@command -v chromium > /dev/null || { $(call debian,chromium); }

lint: native gcc ## ruff, mypy, layers, C format and warnings
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint-types lint-style lint-layers lint-native

lint-types:
	$(VENV)/bin/mypy

lint-style:
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

lint-layers:
	$(VENV)/bin/lint-imports
	$(PYTHON) tools/check_layout.py

lint-native:
	$(MAKE) --no-print-directory -C native lint CLANG_FORMAT="$(CURDIR)/$(VENV)/bin/clang-format"

format: setup ## rewrite Python and C in the project's format
	$(VENV)/bin/ruff check --fix-only --quiet .
	$(VENV)/bin/ruff format .
	$(MAKE) --no-print-directory -C native format CLANG_FORMAT="$(CURDIR)/$(VENV)/bin/clang-format"

# None of these is in a group of pytest-xdist, and without groups it has less to send. Some wait
# for programs and for the fake GPU's time: half as many workers again as there are processors.
FAST := $(shell n=$$(( ($$(nproc) * 3 + 1) / 2 )); echo $$(( n < 8 ? n : 8 )))
test-fast: native ## the tests that need no root, no network and no lab (under a minute)
	$(PYTEST) -q -n $(FAST) --dist=load --hypothesis-profile=few -m "not lab and not apiserver and not slow and not serial and not frameworks" $(ARGS)

# All phases run whatever the others found; the exit status says whether one failed. The labs mostly
# wait, so the parallel phase runs beside them, in the background.
test: lint sanitizers jq prometheus buildah chromium ## everything that can be tested here: lint, fast, slow, API server, lab (ARGS="tests/core -k gang": a part)
ifeq ($(strip $(ARGS)),)
	@failed=; \
	$(MAKE) --no-print-directory -k -j4 test-parallel test-lab test-lab-nodes test-lab-booting || failed="$$failed parallel or lab"; \
	$(MAKE) --no-print-directory test-serial || failed="$$failed serial"; \
	if [ -n "$$failed" ]; then echo "make test: FAILED:$$failed (see $(REPORTS)/)"; exit 1; fi; \
	echo "make test: passed"
else
	$(PYTEST) $(SLOWEST) --junitxml=$(REPORTS)/part.xml $(ARGS)
endif

test-parallel:
	@set -o pipefail; $(PYTHON) tools/background.py $(PYTEST) $(PARALLEL) $(SLOWEST) --junitxml=$(REPORTS)/parallel.xml -m "not (lab or serial or frameworks)" $(call label,parallel)

test-lab:
	@set -o pipefail; $(PYTEST) $(SLOWEST) --junitxml=$(REPORTS)/lab.xml -m "lab and not exhaustive" tests/e2e $(addprefix --ignore=,$(NODE_TESTS) $(BOOTING_TESTS)) $(call label,lab)

# What the programs logged and asked for is read in each lab.
test-lab-nodes:
	@set -o pipefail; $(PYTEST) $(SLOWEST) --junitxml=$(REPORTS)/lab-nodes.xml -m lab $(NODE_TESTS) tests/e2e/test_what_the_programs_*.py $(call label,lab-nodes)

test-lab-booting:
	@set -o pipefail; $(PYTEST) $(SLOWEST) --junitxml=$(REPORTS)/lab-booting.xml -m lab $(BOOTING_TESTS) tests/e2e/test_what_the_programs_*.py $(call label,lab-booting)

test-serial:
	$(PYTEST) $(MEASURING) $(SLOWEST) --junitxml=$(REPORTS)/serial.xml -m "serial and not lab"

# A Python of their own: gigabytes, which nothing else needs.
FRAMEWORKS := $(VENV)/frameworks
$(FRAMEWORKS)/.ready: requirements/frameworks.txt | $(VENV)/.ready
	@echo "setup: PyTorch, JAX, CuPy and numba-cuda (pinned, hashed, 7 GB) into $(FRAMEWORKS)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(FRAMEWORKS)
	@$(UV) pip sync --quiet --python $(FRAMEWORKS)/bin/python --require-hashes requirements/frameworks.txt
	@touch $@

test-frameworks: native $(FRAMEWORKS)/.ready ## PyTorch, JAX, CuPy and compiled numba-cuda under the device library, on a fake GPU (downloads 3 GB once)
	$(PYTEST) -q -m frameworks tests/native/device_library/test_frameworks.py tests/bench/test_gaia_pytorch.py $(ARGS)

# Its packages are for nothing else.
DOCS := $(VENV)/docs
$(DOCS)/.ready: requirements/docs.txt | $(VENV)/.ready
	@echo "setup: mkdocs-material (pinned, hashed) into $(DOCS)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(DOCS)
	@$(UV) pip sync --quiet --python $(DOCS)/bin/python --require-hashes requirements/docs.txt
	@touch $@

SITE ?= site
docs: setup $(DOCS)/.ready ## build the documentation as a site into site/, with a search that needs no network (SITE= another folder)
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict --site-dir "$(abspath $(SITE))"
	@echo "docs: open $(SITE)/index.html"

TIMES ?= 20
FLAKY ?= tests/*/
flaky: native ## every folder of tests TIMES=20 times in random order, beside a load (FLAKY="tests/tokens": some)
	PYTHONPATH=tests $(PYTHON) -m robustness.flaky --times $(TIMES) $(FLAKY)

fault-matrix: setup ## every trouble at every write of every life (an hour; ARGS="LIFE TROUBLE WRITE": a part)
	PYTHONPATH=tests $(PYTHON) -m robustness.fault_matrix $(ARGS)
ifeq ($(strip $(ARGS)),)
	KUBESHARE_WHOLE=1 $(PYTEST) -q $(PARALLEL) tests/robustness/fault_matrix/test_replicas.py
endif

prove: native native-aarch64 fault-matrix ## the device library on aarch64, the whole fault matrix, its points in the lab, floods of one tenant, Kueue and Volcano there; each placement policy beside a slow one on a million random states; fresh examples of hypothesis; all of what make test samples
	$(PYTEST) tests/e2e/test_floods.py tests/e2e/test_kueue.py tests/e2e/test_volcano.py tests/e2e/test_what_the_programs_said.py
	PYTHONPATH=tests $(PYTHON) -m robustness.lab_faults
	KUBESHARE_WHOLE=1 $(PYTEST) -q -m "hypothesis or sampled" --hypothesis-profile=fresh
	PYTHONPATH=tests $(PYTHON) -m robustness.prove

MUTATED ?= core kube scheduler device_manager node tokens
mutants: setup ## break the programs in thousands of small ways; nine in ten must fail a test (MUTATED="kube node", ARGS=--help)
	@failed=; for package in $(MUTATED); do echo "mutants of $$package"; \
	  PYTHONPATH=tests nice $(PYTHON) -m robustness.mutants --package $$package $(ARGS) || failed="$$failed $$package"; \
	done; if [ -n "$$failed" ]; then echo "make mutants: FAILED:$$failed"; exit 1; fi

bench: native ## the numbers, as JSON lines with both sides in one run
	PYTHONPATH=tests $(PYTHON) -m bench

bench-cluster: setup ## SharePods a second on a real API server, and what a large cluster costs (FULL=1: 10 000; NODES=, SHAREPODS=, RUNS=, BEFORE=commit; ONLY=rate, or load with BEFORE)
	$(PYTHON) -m bench.cluster $(if $(FULL),--full) $(if $(NODES),--nodes $(NODES)) $(if $(SHAREPODS),--sharepods $(SHAREPODS)) $(if $(RUNS),--runs $(RUNS)) $(if $(BEFORE),--before $(BEFORE)) $(if $(ONLY),--$(ONLY))

bench-lab: native ## how long pods that share take to run, beside native ones, in the lab (root, ten minutes)
	$(PYTHON) -m bench.lab

# A copy for a machine without network is built, and has no Python of its own: nothing is set up.
COPIED := $(if $(wildcard $(VENV)/.ready),,$(wildcard native/build/burn))
bench-gpu: $(if $(COPIED),,native) ## figures 5, 6, 7 and 12 on this machine's GPU in nine minutes (FAKE=V100x1: on a fake one; ARGS="--only exits": a part)
	$(if $(COPIED),python3,$(PYTHON)) -m bench.gpu $(if $(FAKE),--fake $(FAKE)) $(ARGS)

gpu-tree: native ## pack dist/kubeshare-gpu.tar.gz: the same for a GPU machine without network, pip and make
	$(PYTHON) tools/gpu_tree.py

screenshots: setup chromium ## take the screenshots of docs/web.md anew
	PYTHONPATH=tests $(PYTHON) tools/screenshots.py

demo: native ## watch three pods share one GPU on a real Kubernetes (DEMO=gpushare: by memory; DEMO=gaia: by links; DEMO=operate: with Helm; KEEP=1 keeps it, KUBECONFIG=… uses yours)
	$(PYTHON) -m kubeshare.demo $(DEMO) $(if $(KEEP),--keep) $(if $(CLUSTER),--kubeconfig $(CLUSTER))

pythons: native ## collect all tests and run core and kube on each Python from 3.11 to 3.14 that is here
	$(PYTHON) tools/python_matrix.py

image: native ## write the context of the image into dist/image; build it where BASE=NAME@sha256:… is given (TAG=kubeshare:dev)
	@$(PYTHON) -m tools.image_context dist/image $(if $(BASE),--base $(BASE)) $(if $(TAG),--tag $(TAG))

release: native ## build wheels, sdist, image context, chart, install.yaml, kubectl plugin, SBOM and signed provenance into dist/, and publish nothing (IMAGE=, URL= of the downloads, KEY= that signs, BUILDER=)
	$(PYTHON) -m tools.release $(if $(IMAGE),--image $(IMAGE)) $(if $(URL),--url $(URL)) $(if $(KEY),--key $(KEY)) $(if $(BUILDER),--builder $(BUILDER))

requirements: setup ## compile the pinned, hashed requirements anew
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 requirements/uv.in -o requirements/uv.txt
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 --extra web pyproject.toml -o requirements/runtime.txt
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 --extra simulator --extra web --group dev pyproject.toml -o requirements/dev.txt
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 --group pyproject.toml:clients -o requirements/clients.txt
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 --group pyproject.toml:frameworks -o requirements/frameworks.txt
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 --group pyproject.toml:docs -o requirements/docs.txt
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 --group pyproject.toml:go -o requirements/go.txt
	$(UV) pip compile -q --generate-hashes --no-header --python-version 3.11 --group pyproject.toml:build -o requirements/build.txt

clean: ## remove what was built here (caches under XDG_CACHE_HOME stay)
	rm -rf $(VENV) native/build .mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache reports demo.png dist site
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
