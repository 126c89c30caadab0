"""The time that vCPUs wait for a CPU. Pure."""

from collections.abc import Iterator

from pinner.checks.common import NotKnown, each, grown
from pinner.model.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.guest import Guest, Vcpu
from pinner.model.reading import HostReading, HostSample

WARN_PERCENT, CRITICAL_PERCENT = 5.0, 10.0
READY = "Linux: Documentation/scheduler/sched-stats.rst (/proc/<pid>/schedstat); VMware KB 2002181 (CPU ready)"


def waiting(before: HostSample, now: HostSample, tid: int, seconds: float) -> float:
    """Per cent of the sample for which a thread waited for a CPU. Raises NotKnown."""
    earlier, later = before.threads.get(tid), now.threads.get(tid)
    if earlier is None or later is None:
        raise NotKnown(f"/proc/{tid}/schedstat could not be read twice")
    return 100 * grown("run delay", earlier.wait_ns, later.wait_ns) / (seconds * 1e9)


def _run_delay(reading: HostReading) -> Iterator[Found]:
    before, now = reading.before, reading.now
    if before is None or not now.threads:  # a kernel without schedstat
        return

    def find(guest: Guest) -> Iterator[Found]:
        delays = {vcpu.id: _delay(vcpu, before, now, reading.seconds) for vcpu in guest.vcpus if vcpu.thread}
        slow = {vcpu: delay for vcpu, delay in delays.items() if delay >= WARN_PERCENT}
        if slow:
            worst = max(slow.values())
            yield Found(
                Subject("guest", guest.name),
                f"{len(slow)} of {len(delays)} vCPUs of guest {guest.name} wait {worst:.3g} % of the time for a CPU",
                (
                    Evidence("worst run delay", worst, "%"),
                    Evidence("slow vCPUs", len(slow)),
                    *(Evidence(f"vCPU {vcpu} run delay", delay, "%") for vcpu, delay in slow.items()),
                ),
                (
                    Remedy("pinner plan --strategy numa-local", "as root, then pinner apply PLAN_ID"),
                    Remedy("pinner compare", "as any user, to compare the strategies first"),
                ),
                "critical" if worst >= CRITICAL_PERCENT else None,
            )

    yield from each(reading.snapshot.guests, lambda guest: Subject("guest", guest.name), find)


def _delay(vcpu: Vcpu, before: HostSample, now: HostSample, seconds: float) -> float:
    return waiting(before, now, vcpu.thread.tid, seconds) if vcpu.thread else 0.0


CHECKS = (
    HostCheck(
        code="vcpu-run-delay",
        severity="warning",
        summary=f"vCPUs wait {WARN_PERCENT:g} % of the time or more for a CPU",
        why="a guest sees this time as steal: it stands still, and its own locks and timers stand still with it",
        source=READY,
        find=_run_delay,
        critical=f"{CRITICAL_PERCENT:g} % or more",
    ),
)
