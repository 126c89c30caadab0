# make demo   see pinner place three guests and undo it (KEEP=1 leaves the service running)
# make test   run every test
# make setup  what both share: Debian packages, .venv
# make bench  measure scan, plan and apply

PYTHON ?= /usr/bin/python3
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo --preserve-env=PINNER_MACHINES,PINNER_NOVA_SAMPLES)
ARGS ?=

.PHONY: help demo test setup bench sample lint

help:
	@sed -n 's/^# //p' Makefile

setup: .venv/.ready

.venv/.ready: tools/setup.sh setup.cfg constraints.txt bindep.txt
	@PYTHON=$(PYTHON) sh tools/setup.sh

demo: setup
	@$(SUDO) .venv/bin/python tools/demo.py $(if $(KEEP),--keep) $(ARGS)

test: setup
	$(SUDO) .venv/bin/python -m pytest $(ARGS)

lint: setup
	.venv/bin/tox run -e lint,types

bench: setup
	@$(SUDO) .venv/bin/python tests/benchmarks/run.py $(ARGS)

sample: setup
	.venv/bin/tox run -e docs
