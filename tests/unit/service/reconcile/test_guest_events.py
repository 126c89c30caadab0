"""Guest events on an in-memory host, with the real planner, journal and store."""

import uuid
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot
from support.values import NOON

from pinner.model.errors import Invalid, NotFound
from pinner.model.event import GuestEvent
from pinner.model.guest.guest import NovaIdentity
from pinner.model.page import PageRequest
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts
from pinner.service.upkeep import retention

HOOK = Caller("hook", "127.0.0.1", "req-1")
HOST = "compute1"
GUEST = "00000000-0000-4000-8000-000000000001"
NOVA = NovaIdentity("i-1", "p-1", "u-1", "big", {"pinner:strategy": "isolated"})
FREE, PLACED = {"0-15"}, {"2-3", "4-15"}


@pytest.fixture
def agent(tmp_path, clock):
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, cpus("0-15"))]), clock)
    yield made
    made.journal.close()


@pytest.fixture
def parts(store, agent, clock):
    new_id = lambda: uuid.uuid4().hex[:12]  # noqa: E731
    with closing(ServiceParts({HOST: agent}, store, clock, new_id, 5.0, timedelta(minutes=1))) as made:
        yield made


def event(kind, *, at=NOON, guest=GUEST, **parts):
    return GuestEvent(guest, kind, f"instance.{kind}", "nova req-7", at, **parts)


def kernel(agent):
    (found,) = agent.snapshot(0).guests
    return {str(thread.affinity) for thread in (*found.emulator.threads, *(vcpu.thread for vcpu in found.vcpus))}


@contextmanager
def away(agent):
    """The host without its guests."""
    taken, agent.host.taken = agent.host.taken, replace(agent.host.taken, guests=())
    yield
    agent.host.taken = taken


def trail(service, action):
    return [record for record in service.audit(None, None, None, PageRequest(200)).items if record.action == action]


def enforce(service, reconciler):
    service.set_policy(HOST, Policy(mode="enforce"), HOOK)
    reconciler.reconcile(HOST, "started")


def test_an_event_is_published_and_recorded_in_the_audit_trail(service, reconciler, agent):
    outcome = service.guest_event(HOST, event("started", nova=NOVA), HOOK)
    assert (outcome.host, outcome.guest, outcome.known, outcome.run) == (HOST, GUEST, True, "")
    (published,) = reconciler.host_events(HOST, 0, 0.0)
    assert (published.kind, published.subject, published.detail) == (
        "guest-event",
        GUEST,
        "instance.started, reported by nova req-7",
    )
    (recorded,) = trail(service, "guest.event")
    assert (recorded.actor, recorded.origin, recorded.result) == ("hook", "127.0.0.1", "known")
    assert recorded.subject == f"guest {GUEST}: instance.started, reported by nova req-7"
    assert '"pinner:strategy":"isolated"' in recorded.after
    assert kernel(agent) == FREE


def test_the_only_host_need_not_be_named(service):
    assert service.guest_event(None, event("started"), HOOK).host == HOST
    with pytest.raises(NotFound, match="elsewhere"):
        service.guest_event("elsewhere", event("started"), HOOK)


def test_of_several_hosts_one_must_be_named(store, agent, clock):
    with (
        closing(ServiceParts({HOST: agent, "h2": agent}, store, clock, lambda: "1", 5.0)) as parts,
        pytest.raises(Invalid, match="compute1, h2"),
    ):
        parts.service.guest_event(None, event("started"), HOOK)


@pytest.mark.parametrize("kind", ["started", "leaving", "gone"])
def test_an_event_of_an_unknown_guest_has_no_effect(service, reconciler, store, kind):
    outcome = service.guest_event(HOST, event(kind, guest=GUEST.replace("1", "9"), nova=NOVA), HOOK)
    assert (outcome.known, outcome.run) == (False, "")
    assert reconciler.host_events(HOST, 0, 0.0) == ()
    assert [record.result for record in trail(service, "guest.event")] == ["no guest of this host"]
    assert store.guest_hints.of(HOST) == {}


def test_the_nova_identity_is_stored_until_the_guest_is_gone(service, agent):
    service.guest_event(HOST, event("started", nova=NOVA), HOOK)
    service.guest_event(HOST, event("started"), HOOK)
    assert service.observe(HOST, 0.0).guests[0].nova == NOVA
    with away(agent):
        service.guest_event(HOST, event("gone"), HOOK)
    assert service.observe(HOST, 0.0).guests[0].nova is None


def test_a_guest_that_libvirt_has_is_not_gone(service, reconciler, store):
    """The controller looks at the guest nevertheless."""
    service.guest_event(HOST, event("started", nova=NOVA), HOOK)
    outcome = service.guest_event(HOST, event("gone", at=NOON + timedelta(seconds=1)), HOOK)
    assert (outcome.known, outcome.ignored) == (True, "libvirt has the guest on this host")
    assert service.observe(HOST, 0.0).guests[0].nova == NOVA
    assert trail(service, "guest.event")[0].result == "ignored: libvirt has the guest on this host"
    assert [each.kind for each in reconciler.host_events(HOST, 0, 0.0)] == ["guest-event"] * 2


def test_a_leaving_guest_is_released_and_then_skipped(service, reconciler, agent):
    enforce(service, reconciler)
    assert kernel(agent) == PLACED
    outcome = service.guest_event(HOST, event("leaving"), HOOK)
    assert kernel(agent) == FREE
    run = service.run(outcome.run)
    assert (run.kind, run.state, run.actor) == ("release", "applied", "hook")
    assert run.origin == "instance.leaving, reported by nova req-7"
    assert [record.subject.split()[0] for record in trail(service, "run.release")] == [run.id]
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert kernel(agent) == FREE
    assert service.guest_event(HOST, event("leaving", at=NOON + timedelta(seconds=1)), HOOK).run == ""
    assert service.verify_audit().ok


def test_a_guest_whose_migration_failed_is_placed_again(service, reconciler, agent):
    enforce(service, reconciler)
    service.guest_event(HOST, event("leaving"), HOOK)
    service.guest_event(HOST, event("started", at=NOON + timedelta(seconds=1)), HOOK)
    reconciler.reconcile(HOST, "guest-event")
    assert kernel(agent) == PLACED


@pytest.mark.parametrize("is_seen", [False, True], ids=["not seen leaving", "seen leaving"])
def test_a_guest_whose_migrations_fail_again_and_again_is_placed_each_time(service, reconciler, agent, clock, is_seen):
    """pinner's own release moves the guest, and no other program: nothing to back off from."""
    enforce(service, reconciler)
    for number in range(8):
        clock.at += timedelta(seconds=2)
        service.guest_event(HOST, event("leaving", at=clock.at, request=f"req-{number}"), HOOK)
        assert kernel(agent) == FREE
        if is_seen:
            reconciler.reconcile(HOST, "guest-event")
        clock.at += timedelta(seconds=1)
        service.guest_event(HOST, event("started", at=clock.at, request=f"req-{number}"), HOOK)
        (drift,) = {(each.cause, each.times) for each in reconciler.drift(HOST).drifts}
        assert drift == ("arrived", 0)
        reconciler.reconcile(HOST, "guest-event")
        assert kernel(agent) == PLACED
    assert trail(service, "drift.backoff") == []


def test_a_hint_is_stored_before_its_event_is_published(service, reconciler, agent, monkeypatch):
    """The controller observes the host at once and reads the hints only then."""
    states = []

    def publish(guest, detail):
        states.append((service.observe(HOST, 0.0).guests[0].leaving, kernel(agent)))

    monkeypatch.setattr(agent, "publish_guest_event", publish)
    enforce(service, reconciler)
    service.guest_event(HOST, event("leaving"), HOOK)
    service.guest_event(HOST, event("started", at=NOON + timedelta(seconds=1), nova=NOVA), HOOK)
    assert states == [(True, FREE), (False, FREE)]
    assert service.observe(HOST, 0.0).guests[0].nova == NOVA


def test_a_leaving_guest_is_placed_again_after_the_migration_time(service, reconciler, agent, clock):
    enforce(service, reconciler)
    service.guest_event(HOST, event("leaving"), HOOK)
    clock.at += timedelta(minutes=1)
    reconciler.reconcile(HOST, "resync")
    assert kernel(agent) == PLACED


def test_a_late_event_changes_nothing(service, reconciler, agent):
    enforce(service, reconciler)
    service.guest_event(HOST, event("started", at=NOON + timedelta(seconds=5), nova=NOVA), HOOK)
    assert service.guest_event(HOST, event("leaving"), HOOK).run == ""
    assert kernel(agent) == PLACED
    reconciler.reconcile(HOST, "resync")
    assert kernel(agent) == PLACED


def test_a_late_end_of_a_guest_keeps_what_a_later_event_told(service, agent):
    service.guest_event(HOST, event("started", at=NOON + timedelta(milliseconds=5), nova=NOVA), HOOK)
    with away(agent):
        service.guest_event(HOST, event("gone"), HOOK)
    assert service.observe(HOST, 0.0).guests[0].nova == NOVA
    with away(agent):
        service.guest_event(HOST, event("gone", at=NOON + timedelta(milliseconds=6)), HOOK)
    assert service.observe(HOST, 0.0).guests[0].nova is None


def test_an_end_from_a_clock_that_was_set_back_is_not_late(service, agent, clock):
    clock.at += timedelta(days=1)
    service.guest_event(HOST, event("started", at=clock.at, nova=NOVA), HOOK)
    clock.at -= timedelta(days=1)
    with away(agent):
        service.guest_event(HOST, event("gone", at=clock.at), HOOK)
    assert service.observe(HOST, 0.0).guests[0].nova is None


def test_a_late_begin_of_a_migration_that_failed_changes_nothing(service, reconciler, agent):
    """The events of a script name no Nova identity."""
    enforce(service, reconciler)
    service.guest_event(HOST, event("started", at=NOON + timedelta(milliseconds=5)), HOOK)
    assert service.guest_event(HOST, event("leaving"), HOOK).run == ""
    assert kernel(agent) == PLACED
    assert not service.observe(HOST, 0.0).guests[0].leaving


def test_an_event_from_a_clock_that_is_ahead_does_not_outdate_later_events(service, clock):
    service.guest_event(HOST, event("started", at=NOON + timedelta(days=900), nova=NOVA), HOOK)
    clock.at += timedelta(minutes=1)
    service.guest_event(HOST, event("leaving", at=clock.at), HOOK)
    assert service.observe(HOST, 0.0).guests[0].leaving


@pytest.mark.parametrize("mode", [None, "observe", "propose"])
def test_a_placement_by_an_operator_is_released_and_then_nothing_drifts(service, reconciler, agent, mode):
    if mode:
        service.set_policy(HOST, Policy(mode=mode), HOOK)
    plan = service.plan(HOST, Policy().request, None, 0.0, HOOK)
    list(service.follow(service.apply(plan.id, ApplyOptions(), HOOK).id))
    service.guest_event(HOST, event("leaving"), HOOK)
    assert kernel(agent) == FREE
    report = reconciler.reconcile(HOST, "resync")
    assert (report.drifts, report.error, report.placement) == ((), "", plan.id)


def test_a_placement_that_was_rolled_back_is_not_released(service, agent):
    plan = service.plan(HOST, Policy().request, None, 0.0, HOOK)
    run = service.apply(plan.id, ApplyOptions(), HOOK)
    list(service.follow(run.id))
    list(service.follow(service.rollback(run.id, HOOK).id))
    assert service.guest_event(HOST, event("leaving"), HOOK).run == ""


def test_a_release_for_a_destination_with_fewer_cpus(service, reconciler, agent):
    enforce(service, reconciler)
    service.guest_event(HOST, replace(event("leaving"), cpus=cpus("0-3")), HOOK)
    assert kernel(agent) == {"0-3"}


def test_a_gone_event_keeps_the_hint_of_another_host(store, agent, clock):
    with closing(ServiceParts({HOST: agent, "h2": agent}, store, clock, lambda: "1", 5.0)) as parts:
        parts.service.guest_event("h2", event("started", nova=NOVA), HOOK)
        parts.service.guest_event(HOST, event("started", nova=replace(NOVA, flavor="small")), HOOK)
        with away(agent):
            parts.service.guest_event(HOST, event("gone"), HOOK)
    assert store.guest_hints.of("h2")[GUEST].nova == NOVA
    assert store.guest_hints.of(HOST) == {}


def test_hints_on_guests_that_are_gone_are_deleted_after_an_hour(service, store, agent, clock):
    """A guest that libvirt's hook reported has no end that anybody reports."""
    service.guest_event(HOST, event("started"), HOOK)

    def purge():
        return retention.purge_hints(store.retention, HOST, clock.at, agent.has_guest)

    clock.at += timedelta(hours=2)
    assert purge() == 0
    with away(agent):
        assert purge() == 1
    assert store.guest_hints.of(HOST) == {}
    service.guest_event(HOST, event("started", at=clock.at), HOOK)
    with away(agent):
        assert purge() == 0


@pytest.mark.fault(55)
def test_a_hint_from_before_the_clock_was_set_back_hides_no_later_one(service, agent, store, clock):
    clock.at += timedelta(days=1)
    service.guest_event(HOST, event("started", at=clock.at, nova=NOVA), HOOK)
    clock.at -= timedelta(days=1)
    later = replace(NOVA, flavor="small")
    service.guest_event(HOST, event("started", at=clock.at, nova=later), HOOK)
    assert store.guest_hints.of(HOST)[GUEST].nova == later


@pytest.mark.fault(55)
def test_a_clock_that_is_set_back_lets_no_guest_leave_for_longer(service, reconciler, agent, clock):
    enforce(service, reconciler)
    service.guest_event(HOST, event("leaving", at=clock.at), HOOK)
    clock.at -= timedelta(days=1)
    reconciler.reconcile(HOST, "resync")
    assert kernel(agent) == FREE
    clock.at += timedelta(minutes=2)
    reconciler.reconcile(HOST, "resync")
    assert kernel(agent) == PLACED


def test_the_strategy_of_the_flavor_holds_from_the_event_on(service, reconciler, agent):
    """Some versions of Nova do not write extra specs into the metadata."""
    agent.host.taken = snapshot(plain(16, 2), [guest(1, 2, cpus("0-15")), guest(2, 2, cpus("0-15"))])
    enforce(service, reconciler)

    def vcpus():
        return {each.name: {str(v.thread.affinity) for v in each.vcpus} for each in agent.snapshot(0).guests}

    assert vcpus() == {"g1": {"2-7,10-15"}, "g2": {"2-7,10-15"}}
    asked = replace(NOVA, extra_specs={"pinner:strategy": "numa-local"})
    service.guest_event(HOST, event("started", nova=asked), HOOK)
    reconciler.reconcile(HOST, "guest-event")
    assert vcpus() == {"g1": {"2-7"}, "g2": {"2-7,10-15"}}
    service.guest_event(HOST, event("started", nova=replace(NOVA, extra_specs={"pinner:excluded": "true"})), HOOK)
    agent.host.move(guest(1, 2, cpus("0")).vcpus[0].thread.tid, "9")
    reconciler.reconcile(HOST, "guest-event")
    assert vcpus()["g1"] == {"9", "2-7"}


EARLIER = timedelta(seconds=3)


def test_a_migration_is_released_also_if_the_clock_of_its_destination_is_behind(service, reconciler, agent):
    """The destination publishes the event. Its clock is not the one of the guest's host."""
    enforce(service, reconciler)
    service.guest_event(HOST, event("started", publisher=HOST, request="req-1"), HOOK)
    leaving = event("leaving", at=NOON - EARLIER, publisher="compute2", request="req-2")
    assert service.guest_event(HOST, leaving, HOOK).run
    assert kernel(agent) == FREE
    stayed = event("started", at=NOON - 2 * EARLIER, publisher="compute3", request="req-2")
    service.guest_event(HOST, stayed, HOOK)
    reconciler.reconcile(HOST, "guest-event")
    assert kernel(agent) == PLACED


@pytest.mark.fault(55)
def test_a_begin_of_a_migration_that_is_a_minute_old_releases_nothing(service, reconciler, agent):
    enforce(service, reconciler)
    leaving = event("leaving", at=NOON - timedelta(minutes=1), publisher="compute2", request="req-2")
    outcome = service.guest_event(HOST, leaving, HOOK)
    assert (outcome.run, outcome.ignored) == (
        "",
        "it is late: it was sent 60 s ago, and a migration begins at once",
    )
    assert not service.observe(HOST, 0.0).guests[0].leaving
    assert kernel(agent) == PLACED


@pytest.mark.parametrize("year", [1970, 2100])
@pytest.mark.parametrize("kind", ["started", "leaving", "gone"])
def test_an_impossible_time_is_reported_and_changes_nothing(service, reconciler, agent, store, year, kind):
    enforce(service, reconciler)
    service.guest_event(HOST, event("started", nova=NOVA, publisher=HOST), HOOK)
    before, seen = store.guest_hints.of(HOST), len(reconciler.host_events(HOST, 0, 0.0))
    wrong = event(kind, at=NOON.replace(year=year), nova=replace(NOVA, flavor="small"), publisher=HOST)
    outcome = service.guest_event(HOST, wrong, HOOK)
    assert f"its time {year}-" in outcome.ignored
    assert outcome.ignored in trail(service, "guest.event")[0].result
    assert store.guest_hints.of(HOST) == before
    assert kernel(agent) == PLACED
    assert len(reconciler.host_events(HOST, 0, 0.0)) == seen + 1, "the host is checked nevertheless"
