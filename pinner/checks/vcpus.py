"""The time that vCPUs wait for a CPU, and the time that processes of the host take there. Pure."""

from collections.abc import Iterator

from pinner.checks.common import NotKnown, command, find_each, grown, host_subject
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading, HostSample
from pinner.model.settings.cpu_weights import RAISED, SLICE, WEIGHT, why_not
from pinner.model.snapshot import vcpu_threads
from pinner.model.text import counted

WARN_PERCENT, CRITICAL_PERCENT = 5.0, 10.0
HOST_PERCENT = 5.0
"""Per cent of the time of the CPUs on which vCPUs wait."""
READY = "Linux: Documentation/scheduler/sched-stats.rst (/proc/<pid>/schedstat); VMware KB 2002181 (CPU ready)"


def waiting(before: HostSample, now: HostSample, tid: int, seconds: float) -> float:
    """Per cent of the sample. Raises NotKnown."""
    earlier, later = before.threads.get(tid), now.threads.get(tid)
    if earlier is None or later is None:
        raise NotKnown(f"/proc/{tid}/schedstat could not be read twice")
    return 100 * grown("run delay", earlier.wait_ns, later.wait_ns) / (seconds * 1e9)


def _run_delay(reading: HostReading) -> Iterator[Found]:
    before, now = reading.before, reading.now
    if before is None or not now.threads:  # a kernel without schedstat
        return

    def find(guest: Guest) -> Iterator[Found]:
        delays = {
            vcpu.id: waiting(before, now, vcpu.thread.tid, reading.seconds) for vcpu in guest.vcpus if vcpu.thread
        }
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

    yield from find_each(reading.snapshot.guests, lambda guest: Subject("guest", guest.name), find)


def _host_load(reading: HostReading) -> Iterator[Found]:
    yield from find_each([reading], host_subject, _beside_vcpus)


def _beside_vcpus(reading: HostReading) -> Iterator[Found]:
    """Raises NotKnown."""
    before, now = reading.before, reading.now
    if before is None:
        return
    isolated, vcpus = reading.snapshot.topology.isolated, list(vcpu_threads(reading.snapshot))
    if not all(vcpu.tid in before.threads and vcpu.tid in now.threads for vcpu in vcpus):
        return  # the check of the run delay says so
    slow = [vcpu for vcpu in vcpus if waiting(before, now, vcpu.tid, reading.seconds) >= WARN_PERCENT]
    shared = union(vcpu.affinity for vcpu in slow) - isolated
    cpus = CpuSet.of(cpu for cpu in shared if cpu in before.spare_ms and cpu in now.spare_ms)
    if not cpus or (used := _used_by_host(reading, before, cpus)) < HOST_PERCENT * len(cpus):
        return
    weight = (reading.snapshot.cpu_weights or {}).get(SLICE)
    balanced = reading.snapshot.topology.online - isolated
    why = why_not(weight, union(vcpu.affinity for vcpu in vcpus), balanced, reading.snapshot.slices)
    yield Found(
        host_subject(reading),
        f"processes of the host take {used:.3g} % of a CPU on CPUs {cpus}, where {counted(len(slow), 'vCPU')} wait",
        (
            Evidence("processes of the host", used, "% of a CPU"),
            Evidence("CPUs", str(cpus)),
            Evidence("waiting vCPUs", len(slow)),
            Evidence(f"weight of {SLICE}", "not known" if weight is None else weight),
        ),
        (
            Remedy("pinner plan", "as root, then pinner apply PLAN_ID"),
            *(() if why else (command(f"systemctl set-property {SLICE} CPUWeight={RAISED}"),)),
        ),
        targets=(WEIGHT,),
    )


def _used_by_host(reading: HostReading, before: HostSample, cpus: CpuSet) -> float:
    """At least so many per cent of one CPU: the run time of guests and kernel threads that may use these CPUs is taken
    off, wherever they ran."""
    now, snapshot = reading.now, reading.snapshot
    elsewhere = {t.tid for p in snapshot.processes for t in p.threads if t.affinity and not t.affinity & cpus}
    ran = sum(
        # A shorter time is that of a new thread with the id of one that has ended.
        now.threads[tid].run_ns - (old.run_ns if old.run_ns <= now.threads[tid].run_ns else 0)
        for tid, old in before.threads.items()
        if tid in now.threads and tid not in elsewhere
    )
    spare = sum(now.spare_ms[cpu] - before.spare_ms[cpu] for cpu in cpus)
    return 100 * (len(cpus) - (spare / 1e3 + ran / 1e9) / reading.seconds)


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
    HostCheck(
        code="host-delays-vcpus",
        severity="warning",
        summary=f"processes of the host take {HOST_PERCENT:g} % or more of the CPUs on which vCPUs wait",
        why="all guests together are one slice, and the kernel gives it no more of a CPU than each slice of the host",
        source="Linux: Documentation/admin-guide/cgroup-v2.rst (cpu.weight); systemd.resource-control(5)",
        find=_host_load,
    ),
)
