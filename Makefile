# make demo   watch pinner place three guests and roll back (KEEP=1 leaves the service running)
# make test   run the fast set of tests, about 8 minutes on two CPUs (ARGS=tests/unit/planning: only these)
# make test-all  run all tests but those of the targets below
# make ci-slice  show what CI runs for this commit beside `make test`
# make setup  install the Debian packages and .venv that pinner and its demo need; the other targets add what they need
# make bench  measure scan, plan, apply and more beside their peers, as one table (ARGS=plan: only that)
# make bench-compare REV=main  report what became slower since a revision (ARGS=plan: only that)
# make test-kills  SIGKILL at every point of an apply, a rollback and a recovery
# make test-probes  probes of real guests: a better and a worse plan, a kill in a window, 20 plans without effect
# make test-faults  random scenarios of guests, daemons, plans, faults and kills: 20 new seeds, 5 minutes each (SEEDS=3 MINUTES=1, or SEED=7)
# make test-hung  one guest hangs for an hour under an enforced policy while others start (MINUTES=5)
# make fuzz-agent  100,000 hostile messages to the agent, as the API's user (SEED=7 MESSAGES=100000)
# make mutants  change the code in 200 places (SEED=7: other ones), and list those that no fast test and no type notices; an hour
# make faults  write docs/faults.md: every fault with its tests and their results (LAB=1: also the tests of the lab)
# make checks  write the table of docs/checks.md: every check of `pinner check`
# make roles   write the table of roles of docs/rest.md
# make lab    a shell on a virtual machine with several NUMA nodes (TOPOLOGY=two-socket)
# make captures  save lab hosts as the captured machines of the tests (ARGS="two-socket offline")
# make test-lab  test every strategy on every topology of the lab (ARGS="-k two-socket")

PYTHON ?= /usr/bin/python3
SUDO := $(shell [ "$$(id -u)" = 0 ] || ! command -v sudo >/dev/null || echo sudo --preserve-env=PINNER_MACHINES,PINNER_NOVA_PYTHON,PINNER_NOVA_SAMPLES,PINNER_LAB_CACHE)
ARGS ?=
TOPOLOGY ?= two-socket
SEEDS ?= 20
MESSAGES ?= 100000

.PHONY: help demo test test-all ci-slice setup setup-test setup-lint test-kills test-probes test-faults test-hung fuzz-agent mutants faults checks roles bench bench-compare lab captures test-lab sample lint

help:
	@sed -n 's/^# //p' Makefile

setup: .venv/.ready
setup-test: .venv/.ready-test
setup-lint: .venv/.ready-lint

.venv/.ready: tools/setup.sh setup.cfg constraints.txt bindep.txt
	@PYTHON=$(PYTHON) sh tools/setup.sh

.venv/.ready-%: tools/setup.sh setup.cfg constraints.txt bindep.txt
	@PYTHON=$(PYTHON) sh tools/setup.sh $*

demo: setup
	@$(SUDO) env PYTHONPATH=tools .venv/bin/python -m demo $(if $(KEEP),--keep) $(ARGS)

test: setup-test
	@$(SUDO) .venv/bin/python $(if $(ARGS),-m pytest $(ARGS),tools/run_tests.py)

test-all: setup-test
	@$(SUDO) .venv/bin/python tools/run_tests.py --all $(ARGS)

ci-slice:
	@$(PYTHON) tools/ci_slice.py

test-kills: setup-test
	$(SUDO) env PINNER_KILLS=all .venv/bin/python -m pytest --all tests/functional/apply/test_kills.py $(ARGS)

test-probes: setup-test
	$(SUDO) env PINNER_PROBES=all .venv/bin/python -m pytest tests/functional/outcome/test_probe.py \
		tests/functional/outcome/test_probe_aa.py --all -s $(ARGS)

mutants: setup-test setup-lint
	@.venv/bin/python -c "import mutmut, pytest_cov" 2>/dev/null || .venv/bin/pip install -q -c constraints.txt -e '.[mutants]'
	@$(SUDO) .venv/bin/python tools/mutants.py --seed $(or $(SEED),1) $(ARGS)

test-faults: setup-test
	@$(SUDO) .venv/bin/python tests/faults/run.py --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

test-hung: setup-test
	@$(SUDO) .venv/bin/python tests/faults/hung.py --minutes $(or $(MINUTES),60) $(ARGS)

fuzz-agent: setup-test
	$(SUDO) env PINNER_FUZZ_MESSAGES=$(MESSAGES) PINNER_FUZZ_SEED=$(if $(SEED),$(SEED),1) .venv/bin/python -m pytest \
		tests/functional/server/test_agent_fuzz.py $(ARGS)

faults: setup-test
	$(SUDO) env PYTHONPATH=tools .venv/bin/python -m pytest --all -p tables.fault_table -m fault --faults docs/faults.md \
		$(if $(LAB),--lab) tests/unit tests/functional tests/lab $(ARGS)

checks: setup
	PYTHONPATH=tools .venv/bin/python -m tables.check_table

roles: setup
	PYTHONPATH=tools .venv/bin/python -m tables.role_table

lint: setup-lint
	.venv/bin/tox run -e lint,types

lab: setup-test
	@$(SUDO) env PYTHONPATH=tools:. .venv/bin/python -m lab.shell $(TOPOLOGY) $(ARGS)

captures: setup-test
	$(SUDO) env PYTHONPATH=tools:. .venv/bin/python -m lab.captures $(ARGS)

test-lab: setup-test
	$(SUDO) .venv/bin/python -m pytest tests/lab -n 2 --durations=0 --durations-min=1 $(ARGS)

bench: setup-test
	@$(SUDO) .venv/bin/python tests/benchmarks/run.py $(ARGS)

bench-compare: setup-test
	@test -n "$(REV)" || { echo "bench-compare: name a revision, for instance REV=main" >&2; exit 2; }
	@.venv/bin/python tests/benchmarks/compare.py $(REV) $(ARGS)

sample: setup-lint
	.venv/bin/tox run -e docs
