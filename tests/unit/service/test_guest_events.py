"""Events of guests: on a host in memory, with the real planner, journal and store."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.hosts import cpus, guest, plain, snapshot
from support.in_memory_agent import InMemoryAgent
from support.values import NOON

from pinner.model.audit import Caller
from pinner.model.errors import Invalid, NotFound
from pinner.model.event import GuestEvent
from pinner.model.guest import NovaIdentity
from pinner.model.policy import Policy
from pinner.service.compose import ServiceParts, compose

HOOK = Caller("hook", "127.0.0.1", "req-1")
HOST = "compute1"
GUEST = "00000000-0000-4000-8000-000000000001"
NOVA = NovaIdentity("i-1", "p-1", "u-1", "big", {"pinner:strategy": "isolated"})
FREE, PLACED = {"0-15"}, {"2-3", "4-15"}


@pytest.fixture
def agent(tmp_path, clock):
    made = InMemoryAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, cpus("0-15"))]), clock)
    yield made
    made.journal.close()


@pytest.fixture
def parts(store, agent, clock):
    new_id = lambda: uuid.uuid4().hex[:12]  # noqa: E731
    with closing(compose({HOST: agent}, store, clock, new_id, 5.0, timedelta(minutes=1))) as made:
        yield made


@pytest.fixture
def service(parts: ServiceParts):
    return parts.service


@pytest.fixture
def reconciler(parts: ServiceParts):
    return parts.reconciler


def event(kind, *, at=NOON, guest=GUEST, **parts):
    return GuestEvent(guest, kind, f"instance.{kind}", "nova req-7", at, **parts)


def kernel(agent):
    (found,) = agent.snapshot(0).guests
    return {str(thread.affinity) for thread in (*found.emulator.threads, *(vcpu.thread for vcpu in found.vcpus))}


def trail(service, action):
    return [record for record in service.audit(None, None, None, 200, "").items if record.action == action]


def enforce(service, reconciler):
    service.set_policy(HOST, Policy(mode="enforce"), HOOK)
    reconciler.reconcile(HOST, "started")


def test_an_event_is_news_and_stands_in_the_audit_trail(service, reconciler, agent):
    heard = service.guest_event(HOST, event("started", nova=NOVA), HOOK)
    assert (heard.host, heard.guest, heard.known, heard.run) == (HOST, GUEST, True, "")
    (news,) = reconciler.host_events(HOST, 0, 0.0)
    assert (news.kind, news.subject, news.detail) == ("guest-event", GUEST, "instance.started, reported by nova req-7")
    (told,) = trail(service, "guest.event")
    assert (told.actor, told.origin, told.result) == ("hook", "127.0.0.1", "known")
    assert told.subject == f"guest {GUEST}: instance.started, reported by nova req-7"
    assert '"pinner:strategy":"isolated"' in told.after
    assert kernel(agent) == FREE


def test_the_only_host_need_not_be_named(service):
    assert service.guest_event(None, event("started"), HOOK).host == HOST
    with pytest.raises(NotFound, match="elsewhere"):
        service.guest_event("elsewhere", event("started"), HOOK)


def test_of_several_hosts_one_must_be_named(store, agent, clock):
    with (
        closing(compose({HOST: agent, "h2": agent}, store, clock, lambda: "1", 5.0)) as parts,
        pytest.raises(Invalid, match="compute1, h2"),
    ):
        parts.service.guest_event(None, event("started"), HOOK)


@pytest.mark.parametrize("kind", ["started", "leaving", "gone"])
def test_a_guest_that_is_not_there_has_no_effect(service, reconciler, store, kind):
    heard = service.guest_event(HOST, event(kind, guest=GUEST.replace("1", "9"), nova=NOVA), HOOK)
    assert (heard.known, heard.run) == (False, "")
    assert reconciler.host_events(HOST, 0, 0.0) == ()
    assert [record.result for record in trail(service, "guest.event")] == ["no guest of this host"]
    assert store.guest_hints.of(HOST) == {}


def test_who_it_is_for_nova_is_known_until_it_is_gone(service):
    service.guest_event(HOST, event("started", nova=NOVA), HOOK)
    service.guest_event(HOST, event("started"), HOOK)
    assert service.observe(HOST, 0.0).guests[0].nova == NOVA
    service.guest_event(HOST, event("gone"), HOOK)
    assert service.observe(HOST, 0.0).guests[0].nova is None


def test_a_guest_that_leaves_gets_back_what_it_had_and_is_let_be(service, reconciler, agent):
    enforce(service, reconciler)
    assert kernel(agent) == PLACED
    heard = service.guest_event(HOST, event("leaving"), HOOK)
    assert kernel(agent) == FREE
    run = service.run(heard.run)
    assert (run.kind, run.state, run.actor) == ("release", "applied", "hook")
    assert run.origin == "instance.leaving, reported by nova req-7"
    assert [record.subject.split()[0] for record in trail(service, "run.release")] == [run.id]
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert kernel(agent) == FREE
    assert service.guest_event(HOST, event("leaving", at=NOON + timedelta(seconds=1)), HOOK).run == ""
    assert service.verify_audit().ok


def test_a_guest_that_stayed_is_placed_again(service, reconciler, agent):
    enforce(service, reconciler)
    service.guest_event(HOST, event("leaving"), HOOK)
    service.guest_event(HOST, event("started", at=NOON + timedelta(seconds=1)), HOOK)
    reconciler.reconcile(HOST, "guest-event")
    assert kernel(agent) == PLACED


def test_who_looks_at_the_news_sees_it_as_it_was_told(service, reconciler, agent, monkeypatch):
    """It is looked at once, and not again."""
    looks = []

    def look(guest, words):
        looks.append((service.observe(HOST, 0.0).guests[0].leaving, kernel(agent)))

    monkeypatch.setattr(agent, "publish_guest_event", look)
    enforce(service, reconciler)
    service.guest_event(HOST, event("leaving"), HOOK)
    service.guest_event(HOST, event("started", at=NOON + timedelta(seconds=1), nova=NOVA), HOOK)
    assert looks == [(True, FREE), (False, FREE)]
    assert service.observe(HOST, 0.0).guests[0].nova == NOVA


def test_a_migration_that_never_ends_is_not_waited_for_for_ever(service, reconciler, agent, clock):
    enforce(service, reconciler)
    service.guest_event(HOST, event("leaving"), HOOK)
    clock.at += timedelta(minutes=1)
    reconciler.reconcile(HOST, "resync")
    assert kernel(agent) == PLACED


def test_what_is_told_late_changes_nothing(service, reconciler, agent):
    enforce(service, reconciler)
    service.guest_event(HOST, event("started", at=NOON + timedelta(seconds=5), nova=NOVA), HOOK)
    assert service.guest_event(HOST, event("leaving"), HOOK).run == ""
    assert kernel(agent) == PLACED
    reconciler.reconcile(HOST, "resync")
    assert kernel(agent) == PLACED


def test_a_teller_whose_clock_is_ahead_does_not_have_the_last_word(service, clock):
    service.guest_event(HOST, event("started", at=NOON + timedelta(days=900), nova=NOVA), HOOK)
    clock.at += timedelta(minutes=1)
    service.guest_event(HOST, event("leaving", at=clock.at), HOOK)
    assert service.observe(HOST, 0.0).guests[0].leaving


@pytest.mark.parametrize("mode", [None, "observe", "propose"])
def test_what_a_person_applied_is_released_too_and_nothing_drifts_then(service, reconciler, agent, mode):
    if mode:
        service.set_policy(HOST, Policy(mode=mode), HOOK)
    plan = service.plan(HOST, Policy().request, None, 0.0, HOOK)
    list(service.follow(service.apply(plan.id, False, HOOK).id))
    service.guest_event(HOST, event("leaving"), HOOK)
    assert kernel(agent) == FREE
    report = reconciler.reconcile(HOST, "resync")
    assert (report.drifts, report.error, report.placement) == ((), "", plan.id)


def test_what_was_taken_back_already_is_not_given_back_again(service, agent):
    plan = service.plan(HOST, Policy().request, None, 0.0, HOOK)
    run = service.apply(plan.id, False, HOOK)
    list(service.follow(run.id))
    list(service.follow(service.rollback(run.id, HOOK).id))
    assert service.guest_event(HOST, event("leaving"), HOOK).run == ""


def test_a_destination_that_has_fewer_cpus(service, reconciler, agent):
    enforce(service, reconciler)
    service.guest_event(HOST, replace(event("leaving"), cpus=cpus("0-3")), HOOK)
    assert kernel(agent) == {"0-3"}


def test_the_one_on_another_host_is_not_forgotten(store):
    from pinner.model.event import GuestHint

    store.guest_hints.put(GuestHint(GUEST, "h2", NOON, NOVA))
    store.guest_hints.forget(GUEST, HOST)
    assert store.guest_hints.of("h2")[GUEST].nova == NOVA
    store.guest_hints.put(GuestHint(GUEST, HOST, NOON - timedelta(seconds=1)))
    assert store.guest_hints.of(HOST) == {}


def test_what_the_flavor_asks_for_holds_from_the_event_on(service, reconciler, agent):
    """As with a Nova that does not write extra specs into the metadata."""
    agent.taken = snapshot(plain(16, 2), [guest(1, 2, cpus("0-15")), guest(2, 2, cpus("0-15"))])
    enforce(service, reconciler)

    def vcpus():
        return {each.name: {str(v.thread.affinity) for v in each.vcpus} for each in agent.snapshot(0).guests}

    assert vcpus() == {"g1": {"2-7,10-15"}, "g2": {"2-7,10-15"}}
    asked = replace(NOVA, extra_specs={"pinner:strategy": "numa-local"})
    service.guest_event(HOST, event("started", nova=asked), HOOK)
    reconciler.reconcile(HOST, "guest-event")
    assert vcpus() == {"g1": {"2-7"}, "g2": {"2-7,10-15"}}
    service.guest_event(HOST, event("started", nova=replace(NOVA, extra_specs={"pinner:excluded": "true"})), HOOK)
    agent.masks[guest(1, 2, cpus("0")).vcpus[0].thread.tid] = cpus("9")
    reconciler.reconcile(HOST, "guest-event")
    assert vcpus()["g1"] == {"9", "2-7"}
