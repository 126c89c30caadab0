"""Whether the lines of a finding may be pasted: it is gone, none as bad has come, and no CPU of others is named."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from support.hosts import applied, cpus, process
from support.made_up.checks.pasted import CannotApplyError, pasted, request
from support.made_up.readings import findings

from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import PinnerError
from pinner.model.machine.process import FULL_CPU
from pinner.model.outcome.check import CheckFinding, Remedy
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.objective_terms import ObjectiveMeasure
from pinner.planning.request.processes import remedy_roles

RANK = {"unknown": 0, "warning": 1, "critical": 2}
Key = tuple[str, str]


def wrong(reading: HostReading) -> Iterator[str]:
    """What is wrong with the remedies of the reading's findings, one sentence each."""
    reading = _as_checked(reading)
    before = findings(reading)
    for finding in before:
        for lines in _groups(finding):
            for problem in _problems(reading, before, finding, lines):
                yield f"{finding.code} ({finding.subject}): {' && '.join(each.line for each in lines)}: {problem}"
    yield from _crowds(reading, before)


def _crowds(reading: HostReading, before: tuple[CheckFinding, ...]) -> Iterator[str]:
    """The emulators' lines of all findings together, with emulators that are busy, leave no less of their CPUs."""
    pins = [each for finding in before for each in finding.remedies if each.line.startswith("virsh emulatorpin")]
    busy = _with_busy_emulators(reading.snapshot)
    after = replace(reading, snapshot=busy)
    for line in pins:
        with suppress(AssertionError):  # a line that is wrong by itself
            after, _ = pasted(after, line)
    overload = [ObjectiveMeasure.of(each, 2.0).values({})["qemu_overload"] for each in (busy, after.snapshot)]
    if pins and overload[1] > overload[0] + 0.01:
        yield f"all of {[each.line for each in pins]}: emulators lack {overload[1]:.2f} CPUs, before {overload[0]:.2f}"


def _with_busy_emulators(snapshot: Snapshot) -> Snapshot:
    """Each uses 40 % of a CPU."""
    busy = (
        replace(
            process(guest.pid, 40.0, "0", name="qemu-kvm", immovable_reason="guest"),
            threads=tuple(replace(each, load=40.0 / len(guest.emulator.threads)) for each in guest.emulator.threads),
        )
        for guest in snapshot.guests
        if guest.emulator.threads
    )
    pids = {guest.pid for guest in snapshot.guests}
    return replace(snapshot, processes=(*(each for each in snapshot.processes if each.pid not in pids), *busy))


def _as_checked(reading: HostReading) -> HostReading:
    return replace(reading, roles=remedy_roles(reading.snapshot))


def _groups(finding: CheckFinding) -> Iterator[tuple[Remedy, ...]]:
    """A plan is one remedy; all other lines belong together."""
    yield from ((remedy,) for remedy in finding.remedies if is_plan(remedy))
    if others := tuple(remedy for remedy in finding.remedies if not is_plan(remedy)):
        yield others


def is_plan(remedy: Remedy) -> bool:
    return remedy.line.startswith("pinner plan")


def _problems(
    reading: HostReading, before: tuple[CheckFinding, ...], finding: CheckFinding, lines: tuple[Remedy, ...]
) -> Iterator[str]:
    try:
        after, named = _planned(reading, *lines) if is_plan(lines[0]) else _pasted(reading, lines)
    except NothingAppliedError:
        return
    except (AssertionError, PinnerError) as error:
        yield str(error)
        return
    # A plan places vCPUs, too.
    if others := named & (
        owned(reading.snapshot) - reading.snapshot.shared
        if is_plan(lines[0])
        else owned(reading.snapshot) | alone(reading.snapshot)
    ):
        yield f"names CPUs {others} of another owner"
    if after == reading:
        yield "changes nothing"
    now = findings(after)
    is_measured = is_plan(lines[0]) and _key(finding) not in map(_key, findings(replace(reading, samples=())))
    left, found = ([_key(each) for each in some].count(_key(finding)) for some in (now, before))
    if left >= found and not is_measured:
        yield "is not gone"
    for each in now:
        if each.code == "irq-off-node" and after.snapshot.irqs == reading.snapshot.irqs:
            continue  # guests that left the node's CPUs show where its interrupts were before
        rank = RANK[each.severity]
        known = (old for old in before if RANK[old.severity] >= rank)
        if rank >= RANK[finding.severity] and not any(_covers(old, each) for old in known):
            yield f"brings {each.severity} {each.code} ({each.subject})"


class NothingAppliedError(Exception):
    """No line changes anything that a reading has."""


def _pasted(reading: HostReading, lines: tuple[Remedy, ...]) -> tuple[HostReading, CpuSet]:
    after, named, applied_ = reading, CpuSet(), 0
    for line in lines:
        with suppress(CannotApplyError):
            after, given = pasted(after, line)
            named, applied_ = named | given, applied_ + 1
    if not applied_:
        raise NothingAppliedError
    # CPUs that the lines take from Nova's dedicated set are the host's then.
    freed = reading.snapshot.dedicated - after.snapshot.dedicated
    lost = reading.snapshot.topology.isolated - after.snapshot.topology.isolated - freed
    ends = any(line.line.startswith("no isolcpus") for line in lines)
    assert ends or not lost, f"takes the isolation from CPUs {lost}"
    return after, named


def _covers(old: CheckFinding, new: CheckFinding) -> bool:
    """Whether the finding is no new one: it may be about fewer CPUs."""
    fewer = old.subject.kind == new.subject.kind == "cpu" and cpus(new.subject.name) <= cpus(old.subject.name)
    return old.code == new.code and (old.subject == new.subject or fewer)


def _key(finding: CheckFinding) -> Key:
    return finding.code, str(finding.subject)


def _planned(reading: HostReading, line: Remedy) -> tuple[HostReading, CpuSet]:
    plan = planner.plan(reading.snapshot, "", request(line.line))
    assert not plan.blocked, f"is blocked: {plan.blocked}"
    assert not plan.worse, f"is refused: {plan.worse}"
    given = union(change.after for change in plan.changes if isinstance(change, AffinityChange))
    return replace(reading, snapshot=applied(reading.snapshot, plan)), given


def owned(snapshot: Snapshot) -> CpuSet:
    """CPUs of Nova's sets, of the switch and of processes that fill theirs, and offline ones."""
    polling = union(
        thread.affinity
        for process in snapshot.processes
        for thread in process.threads
        if process.reserves and thread.load >= FULL_CPU * len(thread.affinity)
    )
    switch = snapshot.ovs.cpus if snapshot.ovs else CpuSet()
    return snapshot.topology.offline | snapshot.dedicated | snapshot.shared | polling | switch


def alone(snapshot: Snapshot) -> CpuSet:
    """CPUs that the kernel isolates, and those of pinned vCPUs. A plan may give them to others."""
    masks = (vcpu.thread.affinity for guest in snapshot.guests for vcpu in guest.vcpus if vcpu.thread)
    return snapshot.topology.isolated | union(mask for mask in masks if len(mask) == 1)


def left_out(reading: HostReading, finding: CheckFinding) -> Iterator[str]:
    """The kinds of lines of the finding that are not applied."""
    reading = _as_checked(reading)
    for remedy in finding.remedies:
        try:
            if not is_plan(remedy):
                pasted(reading, remedy)
        except CannotApplyError as error:
            yield str(error)
