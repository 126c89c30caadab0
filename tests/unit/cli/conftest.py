from collections import namedtuple
from contextlib import nullcontext

import pytest
from support.fakes.in_memory_service import InMemoryService

from pinner.cli import main
from pinner.cli.frame import context
from pinner.model.policy import Policy

Result = namedtuple("Result", "status out err")


class SnapshotStoringService(InMemoryService):
    """Stores the snapshot of every plan, as the real service does."""

    def plan(self, host, request, snapshot, sample_seconds, caller, replaces=None):
        plan = super().plan(host, request, snapshot, sample_seconds, caller, replaces)
        if plan.basis.snapshot not in self.snapshots:
            self.snapshots[plan.basis.snapshot] = self.observe(host, sample_seconds or 0.0)
        return plan


@pytest.fixture
def pinner(monkeypatch):
    """An in-memory service, which the command opens in place of a real one. A real host cannot produce a failed run, a
    hostile name or a refused plan on demand."""
    service = SnapshotStoringService()
    service.opened = []

    def open_pinner(called, root):
        service.opened.append((called.config_files, called.url, called.token, root))
        service.where = called.url
        return nullcontext(service)

    monkeypatch.setattr(context, "open_pinner", open_pinner)
    return service


@pytest.fixture(autouse=True)
def without_this_machine(monkeypatch):
    """A command that opens the service of this machine fails: what it answers differs from one machine to the next. A
    captured machine (``root``) is the same everywhere."""
    really_open = context.open_pinner

    def open_captured(called, root):
        assert root is not None, "the service of this machine was opened"
        return really_open(called, root)

    monkeypatch.setattr(context, "open_pinner", open_captured)


@pytest.fixture
def without_service(monkeypatch):
    """Neither a host nor a database: a command that opens the service fails."""

    def refuse(*_):
        raise AssertionError("the service was opened")

    monkeypatch.setattr(context, "open_pinner", refuse)


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs the command in this process: cli("plan", "list") -> Result(status, out, err)."""
    monkeypatch.delenv("PINNER_URL", raising=False)
    monkeypatch.delenv("PINNER_TOKEN", raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*argv):
        capsys.readouterr()
        status = main.main([str(argument) for argument in argv])
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def applied(pinner, cli):
    """The in-memory service after one plan has been made and applied by run-1."""
    assert cli("apply", "--yes").status == 0
    pinner.policies["h1"] = Policy(mode="enforce")
    return pinner
