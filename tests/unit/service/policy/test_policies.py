"""Policies are checked against the host when they are set, and two clients do not overwrite each other's policy."""

import uuid
from contextlib import closing
from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner import codec
from pinner.model.errors import HostUnreachable, Invalid, NoPolicy, NotFound, PreconditionFailed
from pinner.model.guest.guest import InactiveGuest
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request, RequestedPin
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"
ABSENT = ("",)
OFF = "00000000-0000-4000-8000-000000000077"


@pytest.fixture
def agent(tmp_path, clock):
    made = HostedAgent(tmp_path / "agent", snapshot(plain(8), [guest(1, 2, cpus("0-7"))], []), clock)
    yield made
    made.journal.close()


@pytest.fixture
def service(store, agent, clock):
    with closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as parts:
        yield parts.service


def revision(policy):
    return codec.content_hash(policy)


def actions(service):
    return [record.action for record in service.audit(None, None, None, PageRequest(100, "", "asc")).items]


@pytest.mark.parametrize("lists", [{"housekeeping": "99"}, {"emulator": "0,8"}])
def test_a_policy_that_the_host_cannot_follow_is_refused(service, lists):
    with pytest.raises(Invalid):
        service.set_policy(HOST, Policy(Request(**lists), "enforce"), ANN)
    with pytest.raises(NoPolicy):
        service.policy(HOST)
    assert actions(service) == []


@pytest.mark.parametrize("mode", ["observe", "propose", "enforce"])
def test_a_policy_names_no_pid_for_which_it_has_cpus(service, mode):
    """The process ends, and another one gets its pid."""
    pins = [RequestedPin(owner, "process", cpus("0")) for owner in ("daemon", "300")]
    with pytest.raises(Invalid, match="placement: '300 process=0' is not valid: a process by its name"):
        service.set_policy(HOST, Policy(Request(placement=tuple(pins)), mode), ANN)
    assert actions(service) == []
    assert service.set_policy(HOST, Policy(Request(placement=(pins[0],)), mode), ANN).mode == mode


@pytest.mark.parametrize("mode", ["observe", "propose", "enforce"])
def test_a_policy_moves_no_process_by_its_pid(service, mode):
    """A later process with the pid would be moved though it is idle, or its owner restricted it."""
    with pytest.raises(Invalid, match="processes: '300' is not valid: a process by its name"):
        service.set_policy(HOST, Policy(Request(processes=("daemon", "300")), mode), ANN)
    assert actions(service) == []


@pytest.mark.parametrize("guest", ["off", OFF, "8d1c7ba2-0000-4000-8000-000000000001"], ids=["name", "uuid", "later"])
def test_a_policy_may_name_guests_that_do_not_run_now(service, agent, guest):
    """A guest that libvirt does not know yet is named by its UUID."""
    agent.host.taken = replace(agent.host.taken, inactive=(InactiveGuest("off", OFF),))
    policy = Policy(Request(guests=(guest,), processes=("daemon",)), "enforce")
    assert service.set_policy(HOST, policy, ANN) == policy


def test_the_mode_changes_while_the_host_cannot_be_reached(service, agent, monkeypatch):
    service.set_policy(HOST, Policy(mode="enforce"), ANN)

    def unreachable(_seconds):
        raise HostUnreachable(HOST, "its agent does not answer")

    monkeypatch.setattr(agent, "snapshot", unreachable)
    assert service.set_policy(HOST, Policy(mode="propose"), ANN).mode == "propose"
    assert service.set_policy(HOST, Policy(Request("isolated"), "observe"), ANN).mode == "observe"
    with pytest.raises(HostUnreachable):
        service.set_policy(HOST, Policy(Request("isolated"), "propose"), ANN)


def test_the_second_of_two_clients_that_read_the_same_policy_is_refused(service):
    first = service.set_policy(HOST, Policy(), ANN, ABSENT)
    second = service.set_policy(HOST, Policy(mode="propose"), ANN, (revision(first),))
    with pytest.raises(PreconditionFailed) as refused:
        service.set_policy(HOST, Policy(mode="enforce"), ANN, (revision(first),))
    assert refused.value.details["found"] == revision(second)
    assert service.policy(HOST) == second
    for expected in (ABSENT, (revision(first),)):
        with pytest.raises(PreconditionFailed):
            service.delete_policy(HOST, ANN, expected)
    assert actions(service) == ["policy.set", "policy.set"]


def test_a_deleted_policy_is_gone_and_audited(service):
    service.set_policy(HOST, Policy(mode="enforce"), ANN)
    service.delete_policy(HOST, ANN, (revision(Policy(mode="enforce")),))
    for call in (service.policy, lambda host: service.delete_policy(host, ANN)):
        with pytest.raises(NoPolicy):
            call(HOST)
    last = service.audit(None, None, None, PageRequest(1)).items[0]
    assert (last.action, last.actor, last.after) == ("policy.delete", "ann", "")
    assert last.before.startswith("enforce: ")


def chain(service):
    return [(r.before, r.after) for r in service.audit(None, None, None, PageRequest(100, "", "asc")).items]


@pytest.mark.parametrize("other", ["set", "delete"])
def test_the_trail_names_the_policy_before_although_two_callers_change_it_at_once(service, agent, monkeypatch, other):
    """The host is read between the reading of the policy and its change, which takes long on a large host."""
    service.set_policy(HOST, Policy(Request(busy_threshold=1.0), "propose"), ANN)
    read = agent.snapshot

    def another_caller(seconds):
        monkeypatch.setattr(agent, "snapshot", read)
        if other == "set":
            service.set_policy(HOST, Policy(Request(busy_threshold=1.0), "enforce"), ANN)
        else:
            service.delete_policy(HOST, ANN)
        return read(seconds)

    monkeypatch.setattr(agent, "snapshot", another_caller)
    service.set_policy(HOST, Policy(Request(busy_threshold=3.0), "propose"), ANN)
    records = chain(service)
    assert [before for before, _ in records[1:]] == [after for _, after in records[:-1]]
    assert '"busy_threshold":3.0' in records[-1][1]


def test_a_policy_for_a_guest_that_libvirt_does_not_know_is_refused_and_nothing_is_stored(service):
    for mode in ("observe", "propose", "enforce"):
        with pytest.raises(NotFound, match="guest: there is no 'nosuch'; known: g1"):
            service.set_policy(HOST, Policy(Request(guests=("nosuch",)), mode), ANN)
    with pytest.raises(
        Invalid, match=r"busy_threshold: 800000\.0 is not valid: a number of per cent of one CPU from 0"
    ):
        service.set_policy(HOST, Policy(Request(busy_threshold=800_000.0)), ANN)
    with pytest.raises(Invalid, match=r"housekeeping: '0,4096' is not valid: .* 4096 is absent"):
        service.set_policy(HOST, Policy(Request(housekeeping="0,4096")), ANN)
    with pytest.raises(NoPolicy):
        service.policy(HOST)
    assert actions(service) == []


def test_an_enforced_policy_can_be_stopped_after_its_guest_was_removed(service, agent, monkeypatch):
    service.set_policy(HOST, Policy(Request(guests=("g1",)), "enforce"), ANN)
    read = agent.snapshot
    monkeypatch.setattr(agent, "snapshot", lambda seconds: replace(read(seconds), guests=()))
    assert service.set_policy(HOST, Policy(Request(guests=("g1",)), "observe"), ANN).mode == "observe"
    with pytest.raises(NotFound):
        service.set_policy(HOST, Policy(Request(guests=("g1",)), "enforce"), ANN)
