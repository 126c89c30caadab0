"""The lab's client repeats calls while an emulated host stands still, but no call that changes the host."""

import pytest
from support.system.lab import REPEATABLE, begun, patient
from support.values import make_run

from pinner.model.errors import HostUnreachable
from pinner.model.page import Page
from pinner.model.run.journal import ApplyOptions
from pinner.service.remote.remote import RemoteService

SILENT = HostUnreachable("lab1", "the agent has given no sign of life for 10 s")


class Silent:
    """A service whose first calls fail. It replaces an emulated host, whose silence no test can cause in time."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    def __getattr__(self, name: str):
        return self.call

    def call(self, host: str = "", *, fast: bool = False):
        self.calls += 1
        if self.calls <= self.failures:
            raise SILENT
        return host, fast


@pytest.mark.parametrize("name", REPEATABLE)
def test_a_call_that_changes_nothing_is_repeated_until_the_agent_answers(name):
    assert callable(getattr(RemoteService, name))
    service = patient(Silent(3), 5, 0.01)
    assert getattr(service, name)("h1", fast=True) == ("h1", True)
    assert service.calls == 4


def test_it_is_not_repeated_for_ever():
    service = patient(Silent(10**6), 0.1, 0.01)
    with pytest.raises(HostUnreachable):
        service.drift("h1")


@pytest.mark.parametrize("name", ["apply", "rollback", "rollback_all", "guest_event"])
def test_a_call_that_changes_the_host_is_made_once(name):
    service = patient(Silent(1), 5, 0.01)
    with pytest.raises(HostUnreachable):
        getattr(service, name)("h1")
    assert service.calls == 1


class SilentApplies:
    """The agent is silent at the first apply; the server stores that the run is open, and later its end."""

    def __init__(self, end: str) -> None:
        self.states, self.applied = ["running", "running", end], 0

    def apply(self, *_):
        self.applied += 1
        if self.applied == 1:
            raise SILENT
        return make_run(f"run-{self.applied}", plan="plan-1")

    def runs(self, *_):
        return Page((make_run("run-0", plan="other"), self.run("run-1")), None)

    def run(self, run: str):
        return make_run(run, plan="plan-1", state=self.states.pop(0))


@pytest.mark.parametrize(("end", "run", "applied"), [("failed", "run-2", 2), ("applied", "run-1", 1)])
def test_an_apply_is_repeated_only_if_the_run_that_was_stored_changed_nothing(end, run, applied):
    service = SilentApplies(end)
    assert begun(service, "plan-1", ApplyOptions(), 5, 0.0).id == run
    assert service.applied == applied


def test_an_apply_is_not_repeated_for_ever():
    service = SilentApplies("running")
    with pytest.raises(HostUnreachable):
        begun(service, "plan-1", ApplyOptions(), 0.0, 0.0)
    assert service.applied == 1
