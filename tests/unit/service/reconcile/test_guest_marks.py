"""A guest is marked as excluded, and the trails of centre and agent agree."""

import pytest
from support.fakes.reconciled_host import ANN, HOST, trail

from pinner.model.errors import (
    ApplyFailed,
    HostUnreachable,
    NotFound,
)


@pytest.mark.parametrize("name", ["g1", "00000000-0000-4000-8000-000000000001"])
def test_a_guest_is_marked_by_name_or_uuid(service, agent, name):
    found = service.set_excluded(HOST, name, True, ANN)
    assert (found.name, found.excluded) == ("g1", True)
    assert agent.host.marked == {found.uuid}
    service.set_excluded(HOST, name, False, ANN)
    results = [record.result for record in trail(service, "guest.exclude")]
    assert results == ["excluded: started", "excluded", "included: started", "included"]
    with pytest.raises(NotFound, match="known: g1"):
        service.set_excluded(HOST, "g7", True, ANN)


@pytest.mark.fault(60)
def test_a_mark_that_the_agent_refuses_is_recorded_as_failed(service, agent, monkeypatch):
    """The record is stored before the agent is asked. Both trails still agree."""

    def refuse(_guest, **_):
        raise HostUnreachable(HOST, "no answer")

    monkeypatch.setattr(agent, "set_excluded", refuse)
    with pytest.raises(HostUnreachable):
        service.set_excluded(HOST, "g1", True, ANN)
    records = [record.result for record in trail(service, "guest.exclude")]
    assert records == ["excluded: started", "excluded: failed, host_unreachable"]
    assert service.verify_audit(None).result == "intact"


@pytest.mark.fault(67)
@pytest.mark.parametrize("reached", [False, True], ids=["before the agent is asked", "after the agent has done it"])
def test_a_server_that_is_killed_while_it_marks_a_guest_leaves_trails_that_agree(
    parts, service, agent, monkeypatch, reached
):
    service.set_excluded(HOST, "g1", False, ANN)
    parts.audit_heads.exchange(HOST)  # from now on the agent vouches for each record
    mark = agent.set_excluded

    def die(guest, *, excluded):
        if reached:
            mark(guest, excluded=excluded)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(agent, "set_excluded", die)
        with pytest.raises(SystemExit):
            service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"
    service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"


def test_a_mark_that_fails_at_the_agent_is_recorded_in_both_trails(parts, service, agent):
    service.set_excluded(HOST, "g1", False, ANN)
    parts.audit_heads.exchange(HOST)
    agent.host.mark_failure = ApplyFailed("guest g1", "libvirt: no room")
    with pytest.raises(ApplyFailed):
        service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"
    agent.host.mark_failure = None
    service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"
