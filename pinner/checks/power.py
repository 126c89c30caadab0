"""Frequencies, idle states, siblings, clocks and real-time policies of the CPUs that run vCPUs. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from pinner.checks.common import (
    EmulatorPins,
    command,
    flavor,
    host_subject,
    housekeeping,
    interrupted,
    kernel_argument,
    own_cores,
    own_cpus,
    plans,
    sysctl_now,
    system_affinity,
)
from pinner.checks.limits import RUNTIME, realtime_share
from pinner.model.cpuset import CpuSet, union
from pinner.model.machine.process import RESERVING_LOAD
from pinner.model.machine.topology import SLOW_GOVERNORS, Cpu
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading
from pinner.model.settings.power import DEEP_US
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.snapshot import Snapshot, restricted, starving_cpus, vcpu_cpus, vcpu_threads
from pinner.model.text import listed

SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


def _of_vcpus(snapshot: Snapshot) -> CpuSet:
    return vcpu_cpus(snapshot) | snapshot.dedicated | snapshot.topology.isolated


def _governor(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    wanted, used = _of_vcpus(snapshot), vcpu_cpus(snapshot)
    groups: defaultdict[tuple[str, Remedy | None, bool], list[int]] = defaultdict(list)
    for cpu in snapshot.topology.cpus:
        if not (cpu.id in wanted and cpu.online and cpu.governor in SLOW_GOVERNORS):
            continue
        # Without a guest Nova lets the CPU save power, and changes the governor when a guest starts on it.
        if not (_sets_governor(snapshot, cpu.id) and cpu.id not in used):
            is_novas = cpu.id in snapshot.power_managed
            groups[cpu.governor, _novas_line(snapshot, cpu), is_novas].append(cpu.id)
    for (governor, line, _), ids in groups.items():
        cpus = CpuSet.of(ids)
        yield Found(
            Subject("cpu", str(cpus)),
            f"CPUs {cpus} of vCPUs have the governor {governor}",
            (Evidence("governor", governor), Evidence("CPUs", str(cpus))),
            (line or command(f"cpupower -c {cpus} frequency-set -g performance"),),
            targets=tuple(setting.target for setting in snapshot.governors or () if setting.cpus & cpus),
        )


def _sets_governor(snapshot: Snapshot, cpu: int) -> bool:
    """Nova never does so for CPU 0."""
    return snapshot.nova is not None and snapshot.nova.sets_governors and cpu in snapshot.dedicated and cpu != 0


def _novas_line(snapshot: Snapshot, cpu: Cpu) -> Remedy | None:
    nova = snapshot.nova
    if nova is None or cpu.id not in snapshot.dedicated or cpu.id == 0:
        return None
    if nova.sets_governors and nova.governor_high == cpu.governor:
        return Remedy("cpu_power_governor_high = performance", "nova.conf [libvirt]", "guest restart")
    # A CPU that Nova takes offline keeps its governor. nova-compute does not start where the CPUs have different ones.
    return kernel_argument("cpufreq.default_governor=performance") if nova.switches_cpus_off else None


def _deep(reading: HostReading) -> Iterator[Found]:
    wanted = _of_vcpus(reading.snapshot)
    before = {(idle.cpu, idle.number): idle.time_us for idle in reading.before.idle} if reading.before else {}
    used: defaultdict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
    for state in reading.now.idle:
        spent = state.time_us - before.get((state.cpu, state.number), state.time_us)
        if state.cpu in wanted and state.latency_us >= DEEP_US and not state.is_disabled and spent > 0:
            used[state.name, state.number, state.latency_us][state.cpu] = spent
    for (name, state_number, latency), spent_by_cpu in sorted(used.items()):
        cpus = CpuSet.of(spent_by_cpu)
        share = 100 * max(spent_by_cpu.values()) / (reading.seconds * 1e6)
        yield Found(
            Subject("cpu", str(cpus)),
            f"CPUs {cpus} of vCPUs sleep in state {name}, from which they need {latency} us to wake",
            (Evidence("wake latency", latency, "us"), Evidence("largest share of the sample", share, "%")),
            (command(f"cpupower -c {cpus} idle-set -d {state_number}"),),
            targets=tuple(each.target for each in reading.snapshot.resume_latency or () if each.cpu in cpus),
        )


def _siblings(reading: HostReading) -> Iterator[Found]:
    owners: dict[int, str] = {}
    for guest in reading.snapshot.guests:
        owners = dict.fromkeys(own_cpus(guest), guest.name) | owners
    seen: set[frozenset[int]] = set()
    for cpu in reading.snapshot.topology.cpus:
        guests = sorted({owners[sibling] for sibling in cpu.siblings if sibling in owners})
        novas = [guest for guest in reading.snapshot.guests if guest.name in guests]
        if len(guests) > 1 and cpu.siblings.ids not in seen:
            seen.add(cpu.siblings.ids)
            yield Found(
                Subject("cpu", str(cpu.siblings)),
                f"guests {' and '.join(guests)} have CPUs of their own that are one core",
                (Evidence("siblings", str(cpu.siblings)), Evidence("guests", len(guests))),
                (*plans("--strategy isolated --smt isolate", ""), *flavor("hw:cpu_thread_policy=isolate", novas)),
            )
    yield from _work_on_cores(reading)


def _work_on_cores(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    cores = {guest.uuid: own_cores(guest, snapshot) for guest in snapshot.guests}
    every = union(cores.values())
    free = reading.roles.emulator - interrupted(reading) if every else CpuSet()
    pins = EmulatorPins(snapshot)
    for guest in snapshot.guests if every else ():
        if (emulator := restricted(guest.emulator.threads, snapshot)) & every:
            others = {other.name: emulator & cores[other.uuid] for other in snapshot.guests if other is not guest}
            is_left = guest.dedicated or guest.operator_pins
            pin = () if is_left else pins.remedies(guest, free)
            what = f"emulator threads of guest {guest.name}"
            yield from _on_cores(Subject("guest", guest.name), what, others, pin)
    for subject, what, cpus in _host_work(snapshot) if every else ():
        owners = {guest.name: cpus & cores[guest.uuid] for guest in snapshot.guests} if cpus & every else {}
        yield from _on_cores(subject, what, owners)


def _host_work(snapshot: Snapshot) -> Iterator[tuple[Subject, str, CpuSet]]:
    for process in snapshot.processes:
        if process.immovable_reason in ("", "restricted", "not-permitted") and not process.kernel:
            busy = [thread for thread in process.threads if thread.load > RESERVING_LOAD]
            load = sum(thread.load for thread in busy)
            subject = Subject("process", f"{process.name} ({process.pid})")
            yield subject, f"{process.name} ({load:.3g} % of a CPU)", restricted(busy, snapshot)
    yield Subject("host", snapshot.host), "every service (CPUAffinity of systemd)", system_affinity(snapshot)


def _on_cores(
    subject: Subject, what: str, owners: Mapping[str, CpuSet], remedies: tuple[Remedy, ...] = ()
) -> Iterator[Found]:
    names = [name for name, cpus in owners.items() if cpus]
    if both := union(owners.values()):
        yield Found(
            subject,
            f"{what} may run on CPUs {both}, which are one core with CPUs of their own of {listed(names, 3)}",
            (Evidence("shared CPUs", str(both)), Evidence("guests", len(names))),
            remedies,
        )


def _clock(reading: HostReading) -> Iterator[Found]:
    folder = "sys/devices/system/clocksource/clocksource0"
    current = reading.details.settings.get(f"{folder}/current_clocksource", "")
    available = reading.details.settings.get(f"{folder}/available_clocksource", "")
    if current in SLOW_CLOCKS:
        faster = next((name for name in ("tsc", "arch_sys_counter") if name in available.split()), "")
        yield Found(
            host_subject(reading),
            f"the host reads the time from {current}",
            (Evidence("clocksource", current), Evidence("available", available)),
            (command(f"echo {faster} > /{folder}/current_clocksource"),)
            if faster
            else (kernel_argument("tsc=reliable"),),
        )


def _rt_throttling(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    realtime = [thread for thread in vcpu_threads(snapshot) if thread.realtime in ("fifo", "rr")]
    runtime, share = sysctl_now(reading, RUNTIME), realtime_share(reading)
    if realtime and runtime is not None and share < 1:
        # Without throttling, threads that have only these CPUs would never run.
        starving = starving_cpus(snapshot)
        yield Found(
            host_subject(reading),
            f"the kernel stops real-time vCPUs, {len(realtime)} on this host, that use {100 * share:.3g} % of a CPU",
            (
                Evidence("real-time vCPUs", len(realtime)),
                Evidence("sched_rt_runtime_us", runtime, "us"),
                *([Evidence("CPUs of starving threads", str(starving))] if starving else ()),
            ),
            () if starving else (command(f"sysctl -w {RUNTIME}=-1"),),
            targets=() if starving else (SYSCTLS[RUNTIME].target,),
        )


def _emulators(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    pins = EmulatorPins(snapshot)
    for guest in snapshot.guests:
        vcpus = own_cpus(guest)
        threads = [thread for thread in guest.emulator.threads if thread.affinity & vcpus]
        own = all(len(vcpu.thread.affinity) == 1 for vcpu in guest.vcpus if vcpu.thread)
        if threads and own and guest.emulator.policy != "isolate":
            free = reading.roles.emulator - vcpu_cpus(snapshot) - interrupted(reading)
            yield Found(
                Subject("guest", guest.name),
                f"emulator threads of guest {guest.name} may run on CPUs that its vCPUs have to themselves",
                (Evidence("threads", len(threads)), Evidence("shared CPUs", str(threads[0].affinity & vcpus))),
                pins.remedies(guest, free),
            )


def _realtime_emulator(reading: HostReading) -> Iterator[Found]:
    """QEMU's own threads never run beside a real-time vCPU."""
    pins = EmulatorPins(reading.snapshot)
    for guest in reading.snapshot.guests:
        threads = (vcpu.thread for vcpu in guest.vcpus if vcpu.thread and vcpu.thread.realtime)
        realtime = union(thread.affinity for thread in threads if len(thread.affinity) == 1)
        emulator = restricted(guest.emulator.threads, reading.snapshot)
        if realtime and emulator and emulator <= realtime:
            free = housekeeping(reading)
            yield Found(
                Subject("guest", guest.name),
                f"emulator threads of guest {guest.name} have only CPUs {emulator}, where real-time vCPUs run",
                (Evidence("emulator", str(emulator)), Evidence("real-time vCPUs", str(realtime))),
                pins.remedies(guest, free),
            )


CHECKS = (
    HostCheck(
        code="cpu-slow-governor",
        severity="warning",
        summary="CPUs of vCPUs have a governor that lowers their frequency",
        why="a vCPU that wakes runs slowly until the governor has seen its load; in the guest the CPU looks idle",
        source="Linux: Documentation/admin-guide/pm/cpufreq.rst",
        find=_governor,
    ),
    HostCheck(
        code="cpu-deep-idle",
        severity="warning",
        summary=f"CPUs of vCPUs sleep in states with {DEEP_US} us or more to wake",
        why="each interrupt or packet for a sleeping vCPU waits for that time first",
        source="Linux: Documentation/admin-guide/pm/cpuidle.rst",
        find=_deep,
    ),
    HostCheck(
        code="smt-shared-core",
        severity="warning",
        summary="a guest with CPUs of its own shares a core with another guest, or with work of the host",
        why="siblings share the units and caches of a core: each slows down with the other's load",
        source="OpenStack Nova: admin/cpu-topologies.html (hw:cpu_thread_policy)",
        find=_siblings,
    ),
    HostCheck(
        code="clocksource-slow",
        severity="warning",
        summary="the host reads the time from a slow clock",
        why="reading the HPET or the ACPI timer takes about a microsecond, and guests cannot read the TSC safely",
        source="Linux: Documentation/virt/kvm/x86/timekeeping.rst",
        find=_clock,
    ),
    HostCheck(
        code="rt-throttling",
        severity="warning",
        summary="real-time vCPUs are throttled",
        why="the kernel takes 5 % of each second from real-time threads by default",
        source="Linux: Documentation/scheduler/sched-rt-group.rst",
        find=_rt_throttling,
    ),
    HostCheck(
        code="emulator-on-vcpus",
        severity="warning",
        summary="emulator threads share the CPUs that vCPUs have to themselves",
        why="QEMU's own work, such as disk and migration, stops the vCPU on that CPU",
        source="libvirt: formatdomain.html (emulatorpin); OpenStack Nova: hw:emulator_threads_policy",
        find=_emulators,
    ),
    HostCheck(
        code="realtime-starves-emulator",
        severity="critical",
        summary="emulator threads have only CPUs with real-time vCPUs",
        why="a real-time vCPU that polls never lets QEMU's own threads run: the guest's boot does not end",
        source="libvirt: formatdomain.html (vcpusched, emulatorpin)",
        find=_realtime_emulator,
    ),
)
