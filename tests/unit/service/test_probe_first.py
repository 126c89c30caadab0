"""A policy with probe_first: a kind of change that is new on the host is probed on one guest before it is made."""

from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from support.hosts import KERNEL, cpus, guest, plain, process, snapshot
from support.probed_host import HostUnderLoad
from support.values import MEMBER

from pinner.model.audit import Caller
from pinner.model.errors import HostUnreachable, StalePlan
from pinner.model.guest import Cgroup
from pinner.model.page import PageRequest
from pinner.model.policy import Policy
from pinner.model.request import Request
from pinner.outcome.schedule import schedule
from pinner.store.repositories import open_store

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"
PROBING = Policy(Request(), "enforce", probe_first=True)
ALL = cpus("0-15")
ORDER = schedule(6, 7)
"""Of the probe of a person."""
BUSY, CALM, NEW = guest(2, 2, ALL), guest(1, 2, ALL), guest(3, 2, ALL)
DAEMON = process(500, 50.0, "0-15", "0-15", name="daemon")


class Host(HostUnderLoad):
    """A host with two guests and a busy process. The delay of the busier guest follows its placement."""

    def __init__(self, folder):
        taken = snapshot(plain(16), [CALM, BUSY], [DAEMON])
        super().__init__(folder, taken, BUSY.uuid, sample_seconds=5.0, use=150.0)
        self.placed_at_wait = []
        """The guests that were placed at each wait."""

    def has_planned_placement(self):
        return self.is_placed()

    def is_placed(self, which=BUSY):
        return any(
            each.uuid == which.uuid and str(each.vcpus[0].thread.affinity) != "0-15"
            for each in self.agent.snapshot(0).guests
        )

    def placed(self):
        return {each.name for each in self.agent.snapshot(0).guests if self.is_placed(each)}

    def moved_process(self):
        return str(self.agent.snapshot(0).processes[0].threads[0].affinity) != "0-15"

    def start(self, which):
        """A guest starts."""
        self.agent.taken = replace(self.agent.taken, guests=(*self.agent.taken.guests, which))

    def wait(self, event, seconds):
        self.placed_at_wait.append(self.placed())
        return super().wait(event, seconds)


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path / "agent")
    yield made
    made.agent.journal.close()


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as opened:
        yield opened


@pytest.fixture
def parts(host, store):
    with host.compose(store) as made:
        yield made


def reconciled(parts, cause="resync"):
    return parts.reconciler.reconcile(HOST, cause, measured=True)


def enforced(parts, policy=PROBING):
    """The drift of the host after the policy was set."""
    parts.service.set_policy(HOST, policy, ANN)
    return reconciled(parts, "policy set")


def probes(parts):
    names = dict.fromkeys(each.subject for each in records(parts, "probe.begin"))
    return [parts.service.probe_by_id(name) for name in names]


def probed(parts, policy=PROBING):
    """The probe that a policy begins, at its end."""
    waiting = enforced(parts, policy).waiting
    parts.probes.wait(waiting.probe)
    return parts.service.probe_by_id(waiting.probe)


def records(parts, *actions):
    found = parts.service.audit(None, None, None, PageRequest(200, direction="asc")).items
    return [each for each in found if each.action in actions]


def applies(parts):
    """The runs that no probe made."""
    return [run for run in parts.service.runs(HOST, PageRequest(200)).items if not run.origin.startswith("the probe")]


def test_a_policy_does_not_probe_by_default(parts, host):
    report = enforced(parts, Policy(Request(), "enforce"))
    assert (report.waiting, host.placed(), probes(parts)) == (None, {"g1", "g2"}, [])


@pytest.mark.parametrize("mode", ["observe", "propose"])
def test_a_policy_that_changes_nothing_probes_nothing(parts, host, mode):
    report = enforced(parts, replace(PROBING, mode=mode))
    assert (report.waiting, host.placed(), probes(parts)) == (None, set(), [])


@pytest.mark.parametrize(("effect", "judgement"), [(-40.0, "better"), (0.0, "no matter")])
def test_a_new_kind_of_plan_is_probed_on_the_busiest_guest_and_then_applied(parts, host, effect, judgement):
    host.effect = effect
    probe = probed(parts)
    assert (probe.state, probe.outcome.judgement, probe.guests, probe.actor) == ("ended", judgement, ("g2",), "policy")
    assert {frozenset(each) for each in host.placed_at_wait} == {frozenset(), frozenset({"g2"})}
    assert (host.placed(), host.moved_process(), applies(parts)) == (set(), False, [])
    report = reconciled(parts)
    assert (host.placed(), host.moved_process(), report.waiting, report.drifts) == ({"g1", "g2"}, True, None, ())
    assert parts.service.policy(HOST) == PROBING
    assert len(probes(parts)) == 1


def test_the_audit_trail_has_the_probe_of_the_policy(parts):
    probe = probed(parts)
    (begin,), (end,) = records(parts, "probe.begin"), records(parts, "probe.end")
    assert (begin.actor, begin.origin, begin.subject) == ("policy", "policy set", probe.id)
    assert (end.actor, end.origin, end.result) == ("policy", f"the probe {probe.id}", "ended: no matter")


def test_a_kind_is_probed_once(parts, host):
    probed(parts)
    reconciled(parts)
    host.start(NEW)
    report = reconciled(parts)
    assert (host.placed(), report.waiting, len(probes(parts))) == ({"g1", "g2", "g3"}, None, 1)


def test_another_name_in_the_request_makes_no_new_kind(parts, host):
    probed(parts)
    reconciled(parts)
    host.start(NEW)
    report = enforced(parts, replace(PROBING, request=Request(excluded_guests=("g1",))))
    assert (host.is_placed(NEW), report.waiting, len(probes(parts))) == (True, None, 1)


def test_another_parameter_makes_a_new_kind(parts, host):
    probed(parts)
    reconciled(parts)
    report = enforced(parts, replace(PROBING, request=Request(housekeeping="0-7")))
    assert report.waiting.probe == probes(parts)[1].id
    parts.probes.wait(report.waiting.probe)


def test_an_inconclusive_verdict_keeps_the_plan(parts, host):
    host.at_wait[0] = lambda: setattr(host.agent, "histories", None)
    probe = probed(parts)
    assert probe.outcome.judgement == "inconclusive"
    reconciled(parts)
    assert (host.placed(), len(probes(parts))) == ({"g1", "g2"}, 1)


# -- worse --


def test_a_plan_that_is_worse_is_not_kept_and_the_policy_proposes(parts, host):
    host.effect = 40.0
    probe = probed(parts)
    report = reconciled(parts)
    assert (host.placed(), host.moved_process(), applies(parts)) == (set(), False, [])
    assert parts.service.policy(HOST) == replace(PROBING, mode="propose")
    assert (report.mode, report.setback.probe, report.setback.run) == ("propose", probe.id, "")
    assert report.setback.why == "worse than the placement that the probe found: run_delay"
    assert report.proposed != ""
    first, second = records(parts, "policy.set")
    assert (second.actor, second.origin) == ("policy", f"the probe {probe.id}")
    assert second.result == f"set to propose, because of probe {probe.id}: {report.setback.why}"
    assert (second.before, second.after) == (first.after, first.after.replace("enforce", "propose"))
    reconciled(parts)
    assert len(probes(parts)) == 1


def test_a_policy_that_a_person_sets_again_after_worse_probes_again(parts, host):
    host.effect = 40.0
    probed(parts)
    reconciled(parts)
    host.effect = 0.0
    assert probed(parts).outcome.judgement == "no matter"
    reconciled(parts)
    assert (parts.service.policy(HOST), host.placed(), len(probes(parts))) == (PROBING, {"g1", "g2"}, 2)


def test_a_mode_that_a_person_sets_after_a_worse_probe_stays(parts, host):
    host.effect = 40.0
    probed(parts)
    parts.service.set_policy(HOST, replace(PROBING, mode="observe"), ANN)
    reconciled(parts)
    report = reconciled(parts)
    assert (parts.service.policy(HOST).mode, report.setback) == ("observe", None)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("method", ["policies.put", "trials.put"])
def test_a_server_that_dies_when_it_stores_the_verdict_stores_it_later(parts, host, store, monkeypatch, method):
    host.effect = 40.0
    probed(parts)
    table, name = method.split(".")

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(getattr(store, table), name, die)
        reconciled(parts)
    with host.compose(store) as again:
        report = reconciled(again)
        assert (report.mode, host.placed(), len(probes(again))) == ("propose", set(), 1)
        assert len(records(again, "policy.set")) == 2
        host.effect = 0.0
        assert probed(again).outcome.judgement == "no matter"


# -- meanwhile --


def meanwhile(host, work, wait=5):
    """Let something happen in the probe; returns what it returned, or the error."""
    found = []

    def at_wait():
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    host.at_wait[wait] = at_wait
    return found


def test_a_reconcile_leaves_the_targets_of_the_probe_alone(parts, host):
    """Neither does it place what waits, nor does it correct what the probe placed."""
    reports = []

    def reconcile():
        before = host.placed(), host.moved_process()
        reports.append(reconciled(parts))
        assert (host.placed(), host.moved_process()) == before

    host.at_wait[0] = reconcile
    probe = probed(parts)
    assert (probe.state, probe.outcome.judgement, probe.outcome.void) == ("ended", "no matter", ())
    assert {(report.waiting.probe, report.error) for report in reports} == {(probe.id, "")}
    assert {drift.cause for report in reports for drift in report.drifts} <= {"arrived", "busy"}
    assert len(probes(parts)) == 1
    assert reconciled(parts).drifts == ()
    assert records(parts, "drift.backoff") == []


def test_the_report_says_what_waits_and_for_what(parts, host):
    found = meanwhile(host, lambda: parts.service.drift(HOST))
    probe = probed(parts)
    (report,) = found
    assert report.waiting.probe == probe.id
    assert report.waiting.changes == len(report.drifts) > 4
    assert report.waiting.why == f"probe {probe.id} tests such changes on guest g2 first"


def test_a_guest_that_starts_is_placed_at_once_where_its_kind_is_known(parts, host):
    """A probe of the process is under way. The changes of guests have a verdict."""
    host.agent.taken = replace(host.agent.taken, processes=())
    probed(parts)
    reconciled(parts)
    host.agent.taken = replace(host.agent.taken, processes=(DAEMON,))

    def start():
        host.start(NEW)
        return reconciled(parts, "guest-started"), host.is_placed(NEW)

    found = meanwhile(host, start, host.waits + 5)
    report = reconciled(parts)
    assert report.waiting.probe
    parts.probes.wait(report.waiting.probe)
    ((during, is_placed),) = found
    assert (is_placed, during.waiting.probe) == (True, report.waiting.probe)
    assert {drift.target.kind for drift in during.drifts} <= {"process"}
    probe = parts.service.probe_by_id(report.waiting.probe)
    assert probe.state == "ended"
    assert any("changed the host" in why or "came" in why for why in probe.outcome.void)
    reconciled(parts)
    assert host.moved_process()


def test_what_is_tested_is_placed_before_the_probe_of_something_new_begins(parts, host):
    host.agent.taken = replace(host.agent.taken, processes=())
    probed(parts)
    reconciled(parts)
    host.agent.taken = replace(host.agent.taken, processes=(DAEMON,))
    host.start(NEW)
    report = reconciled(parts)
    assert (host.is_placed(NEW), report.waiting.probe, len(probes(parts))) == (True, "", 1)
    assert {drift.target.kind for drift in report.drifts} == {"process"}, "what waits has not ended"
    host.at += timedelta(seconds=60)
    probe = probed(parts)
    assert (probe.state, probe.outcome.void, probe.guests) == ("ended", (), ())
    reconciled(parts)
    assert host.moved_process()


def test_a_probe_waits_until_the_watch_of_a_run_is_over(parts, host):
    """Else its first run would end the watch."""
    policy = replace(PROBING, undo_if_worse=True)
    host.agent.taken = replace(host.agent.taken, processes=())
    probed(parts, policy)
    reconciled(parts)
    (run,) = applies(parts)
    host.agent.taken = replace(host.agent.taken, processes=(DAEMON,))
    waiting = reconciled(parts).waiting
    assert (waiting.probe, run.watch_seconds) == ("", 30)
    host.at += timedelta(seconds=60)
    parts.outcomes.make_pass()
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, "steps before the run are missing" in watch.why) == ("stopped", True)
    report = reconciled(parts)
    parts.probes.wait(report.waiting.probe)
    assert parts.service.probe_by_id(report.waiting.probe).state == "ended"


def test_a_run_whose_watch_nobody_ended_holds_no_probe_up(parts, host):
    """No server ran for a day, and then nobody looks at the run any more."""
    policy = replace(PROBING, undo_if_worse=True)
    host.agent.taken = replace(host.agent.taken, processes=())
    probed(parts, policy)
    reconciled(parts)
    host.at += timedelta(days=2)
    parts.outcomes.make_pass()
    host.agent.taken = replace(host.agent.taken, processes=(DAEMON,))
    report = reconciled(parts)
    parts.probes.wait(report.waiting.probe)
    assert parts.service.probe_by_id(report.waiting.probe).state == "ended"


def test_a_guest_that_starts_in_the_first_probe_waits_for_the_verdict(parts, host):
    def start():
        host.start(NEW)
        return reconciled(parts, "guest-started").waiting, host.is_placed(NEW)

    found = meanwhile(host, start)
    probe = probed(parts)
    ((waiting, is_placed),) = found
    assert (waiting.probe, is_placed, probe.state) == (probe.id, False, "ended")
    reconciled(parts)
    assert host.placed() == {"g1", "g2", "g3"}


@pytest.mark.parametrize(
    "policy",
    [replace(PROBING, mode="observe"), replace(PROBING, probe_first=False), Policy(Request("numa-local")), None],
)
def test_a_probe_ends_when_its_policy_is_changed(parts, host, policy):
    def change():
        if policy is None:
            parts.service.delete_policy(HOST, ANN)
        else:
            parts.service.set_policy(HOST, policy, ANN)

    meanwhile(host, change, 7)
    probe = probed(parts)
    assert (probe.state, probe.why, probe.left) == ("cancelled", "the policy was changed", "")
    assert (host.placed(), host.waits) == (set(), 7)


# -- a probe without a verdict --


def test_a_host_that_measures_nothing_yet_waits(parts, host):
    known, host.agent.histories = host.agent.histories, None
    report = enforced(parts)
    assert (host.placed(), probes(parts)) == (set(), [])
    assert report.waiting.why == "no probe has tested such changes yet"
    host.agent.histories = known
    assert probed(parts).state == "ended"


def test_a_policy_waits_for_the_probe_of_a_person(parts, host):
    parts.service.set_policy(HOST, replace(PROBING, mode="propose"), ANN)
    plan = reconciled(parts).proposed
    found = meanwhile(host, lambda: enforced(parts), 2 * ORDER.index("current") + 1)
    begun = parts.service.probe(plan, 6, 30, ANN)
    parts.probes.wait(begun.id)
    (report,) = found
    assert (report.waiting.probe, len(probes(parts))) == ("", 1)


def test_a_cancelled_probe_is_repeated_after_a_while_that_becomes_longer(parts, host):
    gaps = []
    for _ in range(4):
        meanwhile(host, lambda: parts.service.cancel_probe(probes(parts)[-1].id, ANN), host.waits + 3)
        report = reconciled(parts) if gaps else enforced(parts)
        parts.probes.wait(report.waiting.probe)
        probe = probes(parts)[-1]
        assert (probe.state, host.placed()) == ("cancelled", set())
        waiting = reconciled(parts).waiting
        assert (waiting.probe, len(probes(parts))) == ("", len(gaps) + 1)
        assert waiting.why.startswith(f"probe {probe.id} is cancelled: cancelled by ann; the next one begins after ")
        gaps.append((waiting.until - probe.ended_at).total_seconds())
        host.at = waiting.until
    assert gaps == [5, 10, 20, 40]
    report = reconciled(parts)
    parts.probes.wait(report.waiting.probe)
    reconciled(parts)
    assert host.placed() == {"g1", "g2"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("wait", range(1, 12))
def test_after_a_kill_the_next_server_puts_the_placement_back_and_probes_again(parts, host, store, wait):
    """Although the policy is enforced, which refuses the rollbacks of others."""

    def die():
        host.at_wait.clear()
        raise Killed

    host.at_wait[wait] = die
    left = probed(parts)
    assert left.state == "running"
    with host.compose(store) as again:
        report = reconciled(again)  # before the first pass of the probes
        assert (report.waiting.probe, len(probes(again))) == (left.id, 1)
        again.probes.make_pass()
        found = again.service.probe_by_id(left.id)
        assert (found.state, found.left, host.placed()) == ("interrupted", "", set())
        waiting = reconciled(again).waiting
        assert (waiting.probe, host.placed()) == ("", set())
        host.at = waiting.until
        second = reconciled(again).waiting.probe
        again.probes.wait(second)
        reconciled(again)
        assert (host.placed(), again.service.probe_by_id(second).state) == ({"g1", "g2"}, "ended")


def test_an_agent_that_breaks_in_the_probe_leaves_the_placement(parts, host):
    def refuse():
        host.agent.refusal = HostUnreachable(HOST, "its agent does not answer")

    host.at_wait[3] = refuse
    probe = probed(parts)
    assert (probe.state, probe.left, host.placed()) == ("failed", "", set())
    host.agent.refusal = None
    host.at = reconciled(parts).waiting.until
    report = reconciled(parts)
    parts.probes.wait(report.waiting.probe)
    reconciled(parts)
    assert host.placed() == {"g1", "g2"}


def test_a_purged_probe_keeps_its_verdict(parts, host, store):
    probed(parts)
    reconciled(parts)
    store.retention.purge_probes(host.at + timedelta(days=1))
    host.start(NEW)
    reconciled(parts)
    assert (host.is_placed(NEW), len(records(parts, "probe.begin"))) == (True, 1)


def test_a_clock_that_is_set_back_delays_no_probe(parts, host):
    meanwhile(host, lambda: parts.service.cancel_probe(probes(parts)[-1].id, ANN), 3)
    assert probed(parts).state == "cancelled"
    host.at -= timedelta(days=1)
    report = reconciled(parts)
    parts.probes.wait(report.waiting.probe)
    assert (reconciled(parts).waiting, host.placed()) == (None, {"g1", "g2"})


# -- a guest that cannot be placed --


def worked(parts, host):
    """Let the policy work until nothing waits, for an hour at most; returns the last report."""
    report = None
    for _ in range(30):
        report = reconciled(parts)
        if report.waiting is None:
            return report
        if report.waiting.probe:
            parts.probes.wait(report.waiting.probe)
        else:
            host.at += timedelta(seconds=120)
            host.passed += 120
    return report


def test_a_guest_that_cannot_be_placed_does_not_hold_up_the_others(parts, host):
    host.agent.failing[BUSY.uuid] = "the guest hangs"
    parts.service.set_policy(HOST, PROBING, ANN)
    worked(parts, host)
    assert [(each.guests, each.state) for each in probes(parts)] == [(("g2",), "failed"), (("g1",), "ended")]
    assert (host.placed(), host.moved_process()) == ({"g1"}, True)
    host.agent.failing.clear()
    host.at += timedelta(minutes=1)
    reconciled(parts)
    assert host.placed() == {"g1", "g2"}


def test_a_guest_that_cannot_be_placed_backs_off_with_the_true_cause(parts, host):
    host.agent.failing[BUSY.uuid] = "the guest hangs"
    failed = probed(parts)
    report = parts.service.drift(HOST)
    assert {(each.cause, each.detail) for each in report.drifts if each.target.owner == BUSY.uuid} == {
        ("failed", "the guest hangs")
    }
    assert all(each.backoff_until is None for each in report.drifts if each.target.owner != BUSY.uuid)
    (record,) = records(parts, "drift.backoff")
    assert (record.subject, record.actor, record.origin) == ("guest g2", "policy", failed.mark)
    assert record.result.startswith("attempt 1 failed, skipped until ")
    assert record.result.endswith(": the guest hangs")


def test_guests_that_cannot_be_placed_do_not_take_turns_for_ever(parts, host):
    host.agent.failing |= dict.fromkeys((BUSY.uuid, CALM.uuid), "the guest hangs")
    host.start(NEW)
    parts.service.set_policy(HOST, PROBING, ANN)
    worked(parts, host)
    assert [each.guests for each in probes(parts)] == [("g2",), ("g1",), ("g3",)]
    assert (host.placed(), host.moved_process()) == ({"g3"}, True)


def test_a_guest_that_cannot_be_placed_backs_off_for_longer_each_time(parts, host):
    """No other guest could be the canary, and no process waits."""
    host.agent.taken = replace(host.agent.taken, guests=(BUSY,), processes=())
    host.agent.failing[BUSY.uuid] = "the guest hangs"
    gaps = []
    for _ in range(4):
        failed = probed(parts)
        assert reconciled(parts).waiting.probe == ""
        (until,) = {each.backoff_until for each in parts.service.drift(HOST).drifts if each.target.owner == BUSY.uuid}
        gaps.append((until - failed.ended_at).total_seconds())
        host.at = until
    assert gaps == [5, 10, 20, 40]


def test_the_probe_of_a_person_makes_no_guest_back_off(parts, host):
    parts.service.set_policy(HOST, replace(PROBING, mode="propose"), ANN)
    host.agent.failing[BUSY.uuid] = "the guest hangs"
    begun = parts.service.probe(reconciled(parts).proposed, 6, 30, ANN)
    parts.probes.wait(begun.id)
    assert parts.service.probe_by_id(begun.id).state == "failed"
    assert records(parts, "drift.backoff") == []
    assert {each.cause for each in parts.service.drift(HOST).drifts} == {"arrived", "busy"}


@pytest.mark.parametrize("which", ["500", BUSY.uuid])
def test_what_another_program_keeps_moving_holds_no_other_guest_up(parts, host, monkeypatch, which):
    """Each plan that moves it is stale."""
    apply = host.agent.apply

    def refusing(plan, run, progress):
        for change in plan.changes:
            if change.target.owner == which:
                raise StalePlan(plan.id, (f"{change.target} is on other CPUs",), (asdict(change.target),))
        return apply(plan, run, progress)

    monkeypatch.setattr(host.agent, "apply", refusing)
    parts.service.set_policy(HOST, PROBING, ANN)
    with suppress(StalePlan):
        worked(parts, host)
    assert host.is_placed(CALM)
    assert {each.state for each in probes(parts)} == {"failed", "ended"}


def test_while_a_change_of_the_host_itself_backs_off_nothing_is_probed(parts, host):
    """The other changes need it."""
    groups = {each: (Cgroup("machine.slice", MEMBER), Cgroup(f"machine.slice/{each}.scope", MEMBER)) for each in "12"}
    both = (guest(int(number), 2, ALL, cgroups=found) for number, found in groups.items())
    host.agent.taken = snapshot(plain(16, kernel=replace(KERNEL, unbound=ALL)), both)
    host.agent.failing[""] = "the kernel refuses"
    failed = probed(parts, replace(PROBING, request=Request("isolated", isolation="live")))
    assert (failed.state, failed.guests) == ("failed", ("g1", "g2"))
    report = reconciled(parts)
    (until,) = {each.backoff_until for each in report.drifts if each.target.kind == "workqueue"}
    assert (report.waiting.probe, report.waiting.until, host.placed()) == ("", until, set())
    assert report.waiting.why == "workqueue unbound kernel work could not be changed: the kernel refuses"
    host.agent.failing.clear()
    host.at = until
    parts.probes.wait(reconciled(parts).waiting.probe)
    assert probes(parts)[-1].state == "ended"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_dies_after_a_failure_tests_another_guest_next(parts, host, store, monkeypatch):
    host.agent.failing[BUSY.uuid] = "the guest hangs"

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("pinner.service.probe_execution.put_back", die)
        assert probed(parts).state == "running"
    with host.compose(store) as again:
        again.probes.make_pass()
        second = reconciled(again).waiting.probe
        again.probes.wait(second)
        assert again.service.probe_by_id(second).guests == ("g1",)
        assert again.service.probe_by_id(second).state == "ended"


@pytest.mark.parametrize("back", [timedelta(minutes=2), timedelta(hours=1), timedelta(days=1)])
def test_a_watch_before_a_step_of_the_clock_holds_no_probe_up(parts, host, back):
    policy = replace(PROBING, undo_if_worse=True)
    host.agent.taken = replace(host.agent.taken, processes=())
    probed(parts, policy)
    reconciled(parts)
    host.at -= back
    parts.outcomes.make_pass()
    host.agent.taken = replace(host.agent.taken, processes=(DAEMON,))
    report = reconciled(parts)
    parts.probes.wait(report.waiting.probe)
    assert parts.service.probe_by_id(report.waiting.probe).state == "ended"
