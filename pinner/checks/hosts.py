"""The host itself: who else places threads, pressure, and the room for pinner's journal. Pure."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from shlex import quote

from pinner.checks.common import (
    MANY,
    NUMA_LOCAL,
    NotKnown,
    command,
    find_each,
    host_subject,
    housekeeping,
    plans,
    roles,
)
from pinner.checks.limits import WARN_PERCENT, Waits, of_services
from pinner.model.cpuset import CpuSet, union
from pinner.model.machine.boot import is_isolated_by_tuned
from pinner.model.machine.process import (
    FULL_CPU,
    PLACERS,
    RESERVING_LOAD,
    Process,
    Thread,
    is_another_pinner,
    is_known_placer,
    is_service,
)
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading
from pinner.model.settings.cpu_weights import DEFAULT, SLICE
from pinner.model.snapshot import vcpu_threads
from pinner.model.text import counted, listed

PRESSURE, PRESSURE_CRITICAL = 10.0, 25.0
FULL_PERCENT, FULL_KIB, ROOMY_KIB = 5.0, 100 * 1024, 10 * 1024**2
PSI = "Linux: Documentation/accounting/psi.rst"


def _of_root(reading: HostReading, is_one: Callable[[Process], bool]) -> Iterator[Process]:
    """Any user may give a process any name, and moves only what is the user's."""
    matching = filter(is_one, reading.snapshot.processes)
    return (process for process in matching if reading.details.are_of_root.get(process.pid, True))


def _should_end(process: Process, message: str, unit: str) -> Found:
    """Without a line where the unit is none of systemd, such as the path of a cgroup."""
    return Found(
        Subject("process", f"{process.name} ({process.pid})"),
        message,
        (Evidence("process", process.pid), Evidence("unit", process.unit)),
        (command(f"systemctl disable --now {quote(unit)}"),) if is_service(unit) else (),
    )


def _placers(reading: HostReading) -> Iterator[Found]:
    for process in _of_root(reading, is_known_placer):
        isolates = process.name == "tuned" and is_isolated_by_tuned(reading.snapshot.topology)
        unit = "" if isolates else f"{process.name}.service"
        yield _should_end(process, f"{process.name} runs: {PLACERS[process.name]}", unit)


def _another_pinner(reading: HostReading) -> Iterator[Found]:
    for process in _of_root(reading, is_another_pinner):
        yield _should_end(process, f"another pinner runs as process {process.pid}", process.unit or "pinner.service")


def _pressure(reading: HostReading) -> Iterator[Found]:
    yield from find_each([reading], host_subject, _waiting_services)


def _waiting_services(reading: HostReading) -> Iterator[Found]:
    """Without what limits explain: to the pressure, a stopped thread waits. Raises NotKnown."""
    whole = reading.now.pressure.get("system.slice.cpu.some")
    if whole is None or whole < PRESSURE:
        return
    limits = of_services(reading)
    limited = sum(limits.stopped.values())
    stalled = whole - limited
    if stalled < PRESSURE:
        raise NotKnown(
            f"CPU limits stop services ({next(iter(limits.stopped))} the most) {limited:.3g} % of the time, "
            "and the pressure counts that as waiting"
        )
    anew = listed(limits.began_anew, 3)
    free = housekeeping(reading)
    guests = union(cpus for _, cpus in roles(reading.snapshot))
    yield Found(
        host_subject(reading),
        f"services of the host wait for a CPU in {stalled:.3g} % of the time",
        (
            Evidence("cpu pressure of system.slice", whole, "%"),
            Evidence("CPUs without guests", str(free)),
            Evidence("CPUs of guests", str(guests)),
            *([Evidence("began anew", f"{anew}, which a limit may have stopped for longer")] if anew else ()),
        ),
        (
            *plans("--minimum-cores 2"),
            *((command("systemctl set-property system.slice CPUWeight=1000"),) if _give_way(reading) else ()),
        ),
        "critical" if stalled >= PRESSURE_CRITICAL else None,
    )


def _give_way(reading: HostReading) -> bool:
    """Whether guests share CPUs with services, nobody preferred them by a weight, and no vCPU is known to wait."""
    snapshot, waits = reading.snapshot, Waits(reading)
    services = (snapshot.baseline or snapshot.topology.online) - snapshot.topology.isolated
    vcpus = list(vcpu_threads(snapshot))

    def is_waiting(vcpu: Thread) -> bool:
        with suppress(NotKnown):
            return waits.of(vcpu.tid).contention >= WARN_PERCENT
        return False

    is_preferred = (snapshot.cpu_weights or {}).get(SLICE, DEFAULT.value) > DEFAULT.value
    shares = any(vcpu.affinity & services for vcpu in vcpus)
    return shares and not is_preferred and not any(map(is_waiting, vcpus))


def _squeezed(reading: HostReading) -> Iterator[Found]:
    online = reading.snapshot.topology.online
    busy = [
        (process, thread)
        for process in reading.snapshot.processes
        if process.immovable_reason in ("", "restricted", "not-permitted") and not process.kernel
        for thread in process.threads
        if thread.load > RESERVING_LOAD and not online <= thread.affinity
    ]
    for cpus in sorted({thread.affinity for _, thread in busy}, key=str):
        here = [(process, thread) for process, thread in busy if thread.affinity <= cpus]
        load = sum(thread.load for _, thread in here)
        if load >= FULL_CPU * len(cpus) and len(here) > len(cpus):
            names = sorted({process.name for process, _ in here})
            yield Found(
                Subject("cpu", str(cpus)),
                f"{counted(len(here), 'thread')} of {listed(names, 3)} have only CPUs {cpus}, and fill them",
                (
                    Evidence("load", load, "% of a CPU"),
                    Evidence("CPUs", str(cpus)),
                    Evidence("CPUs without guests", str(housekeeping(reading))),
                ),
                _wider(reading, cpus, load, names),
            )


def _wider(reading: HostReading, cpus: CpuSet, load: float, names: list[str]) -> tuple[Remedy, ...]:
    snapshot = reading.snapshot
    if cpus >= snapshot.baseline or cpus in snapshot.placed or load > FULL_CPU * len(housekeeping(reading)):
        return ()
    words = " ".join(f"--process {quote(name)}" for name in names[:MANY])
    return plans(words, f"{NUMA_LOCAL} {words}")


def _full(reading: HostReading) -> Iterator[Found]:
    for storage in (filesystem for filesystem in reading.details.storage if filesystem.total_kib):
        percent = 100 * storage.free_kib / max(storage.total_kib, 1)
        if storage.free_kib < FULL_KIB or (percent < FULL_PERCENT and storage.free_kib < ROOMY_KIB):
            yield Found(
                host_subject(reading),
                f"the file system of {storage.folder} has {storage.free_kib} KiB left",
                (
                    Evidence("free", storage.free_kib, "KiB"),
                    Evidence("share", percent, "%"),
                    Evidence("size", storage.total_kib, "KiB"),
                ),
                (command("journalctl --vacuum-size=200M"),),
                "critical" if storage.free_kib < FULL_KIB else None,
            )


CHECKS = (
    HostCheck(
        code="placer-running",
        severity="warning",
        summary="another program places threads or memory",
        why="it changes what pinner has placed, and each run of pinner changes it back",
        source="tuned(8), numad(8)",
        find=_placers,
    ),
    HostCheck(
        code="another-pinner",
        severity="critical",
        summary="another pinner runs on the host",
        why="two journals do not know of each other's changes, and an undo gives back the wrong masks",
        source="pinner",
        find=_another_pinner,
    ),
    HostCheck(
        code="housekeeping-pressure",
        severity="warning",
        summary=f"services of the host wait for a CPU {PRESSURE:g} % of the time or more",
        why="libvirt, storage and network daemons wait, and with them the guests that they serve",
        source=PSI,
        find=_pressure,
        critical=f"{PRESSURE_CRITICAL:g} % or more",
    ),
    HostCheck(
        code="processes-squeezed",
        severity="warning",
        summary=f"processes of the host fill the few CPUs that somebody gave them ({FULL_CPU:g} % or more of each)",
        why="they wait for each other, and with them the guests that they serve, while other CPUs are idle",
        source="Linux: sched_setaffinity(2)",
        find=_squeezed,
    ),
    HostCheck(
        code="journal-disk-full",
        severity="warning",
        summary=f"the file system of pinner's journal has less than {FULL_PERCENT:g} % and "
        f"{ROOMY_KIB // 1024**2} GiB left",
        why="pinner writes its journal before each change: without room it can change nothing, and undo is at risk",
        source="pinner",
        find=_full,
        critical=f"less than {FULL_KIB // 1024} MiB",
    ),
)
