from collections import namedtuple
from contextlib import nullcontext

import pytest
from support.in_memory_service import InMemoryService

from pinner.cli import context, main
from pinner.model.policy import Policy

Result = namedtuple("Result", "status out err")


class Keeping(InMemoryService):
    """Keeps the snapshot behind every plan, as the service does."""

    def plan(self, host, request, snapshot, sample_seconds, caller):
        plan = super().plan(host, request, snapshot, sample_seconds, caller)
        if plan.basis.snapshot not in self.snapshots:
            self.snapshots[plan.basis.snapshot] = self.observe(host, sample_seconds or 0.0)
        return plan


@pytest.fixture
def pinner(monkeypatch):
    """The use cases behind the command. They stand in for a host at the one place where the command opens them: a run
    that fails, a hostile name or a plan that is refused cannot be had of a real host at will."""
    made = Keeping()
    made.opened = []
    monkeypatch.setattr(context, "open_pinner", lambda *arguments: made.opened.append(arguments) or nullcontext(made))
    return made


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
    """The use cases after one plan was made and applied: run-1."""
    assert cli("apply").status == 0
    pinner.policies["h1"] = Policy(mode="enforce")
    return pinner
