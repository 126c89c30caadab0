"""vCPUs: how long they wait for a CPU, what the host takes there, and whether they run where the guest's cells, cores
and devices are. Pure."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping

from pinner.checks.common import (
    NUMA_LOCAL,
    command,
    device_node,
    find_each,
    flavor,
    homes,
    host_subject,
    in_xml,
    memory_homes,
    own_cpus,
    plans,
)
from pinner.checks.limits import WARN_PERCENT, Waits, find_limits, idle, split
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest, Vcpu
from pinner.model.guest.guest_numa import GuestTopology
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading, HostSample
from pinner.model.settings.cpu_weights import RAISED, SLICE, WEIGHT, why_not
from pinner.model.snapshot import Snapshot, vcpu_threads
from pinner.model.text import counted, listed

CRITICAL_PERCENT = 10.0
HOST_PERCENT = 5.0
"""Per cent of the time of the CPUs on which vCPUs wait."""
READY = "Linux: Documentation/scheduler/sched-stats.rst (/proc/<pid>/schedstat); VMware KB 2002181 (CPU ready)"


def _run_delay(reading: HostReading) -> Iterator[Found]:
    if reading.before is None or not reading.now.threads:  # a kernel without schedstat
        return
    waits, is_full = Waits(reading), _is_full(reading, reading.before)

    def find(guest: Guest) -> Iterator[Found]:
        delays = {vcpu.id: waits.of(vcpu.thread.tid) for vcpu in guest.vcpus if vcpu.thread}
        slow = {vcpu: delay for vcpu, delay in delays.items() if delay.contention >= WARN_PERCENT}
        if slow:
            worst = max(slow.values(), key=lambda delay: delay.contention)
            stolen = _stolen(reading, union(vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread))
            why = f", while a hypervisor takes {stolen:.3g} % of the time of its CPUs" if stolen >= WARN_PERCENT else ""
            why += ", and guests and the kernel take all CPUs" if is_full else ""
            why += ", while it is migrating" if guest.is_migrating else ""
            is_hopeless = is_full or guest.is_migrating or worst.contention - stolen < WARN_PERCENT
            yield Found(
                Subject("guest", guest.name),
                f"{len(slow)} of {len(delays)} vCPUs of guest {guest.name} wait {worst.contention:.3g} % of the time "
                f"for a CPU{why}",
                (
                    *split(worst),
                    *([Evidence("stolen", stolen, "%")] if stolen else ()),
                    Evidence("slow vCPUs", len(slow)),
                    *(Evidence(f"vCPU {vcpu} run delay", delay.contention, "%") for vcpu, delay in slow.items()),
                ),
                ()
                if is_hopeless
                else (*plans(NUMA_LOCAL), Remedy("pinner compare", "as any user, to compare the strategies first")),
                "critical" if worst.contention >= CRITICAL_PERCENT else None,
            )

    yield from find_each(reading.snapshot.guests, lambda guest: Subject("guest", guest.name), find)


def _is_full(reading: HostReading, before: HostSample) -> bool:
    """Whether neither idle time nor that of the host's processes is left to give to a vCPU."""
    cpus = CpuSet.of(before.spare_ms.keys() & reading.now.spare_ms.keys() & {*reading.snapshot.topology.online})
    left = idle(reading, cpus) + max(_used_by_host(reading, before, cpus), 0)
    return bool(cpus) and left < HOST_PERCENT * len(cpus)


def _stolen(reading: HostReading, cpus: CpuSet) -> float:
    """Per cent of these CPUs."""
    before, now = (sample.stolen_ms for sample in (reading.before or HostSample(), reading.now))
    known = [now[cpu] - before[cpu] for cpu in cpus if cpu in before and cpu in now]
    return sum(known) / len(known) / reading.seconds / 10 if known else 0.0


def _host_load(reading: HostReading) -> Iterator[Found]:
    yield from find_each([reading], host_subject, _beside_vcpus)


def _beside_vcpus(reading: HostReading) -> Iterator[Found]:
    before, now = reading.before, reading.now
    if before is None:
        return
    isolated, vcpus = reading.snapshot.topology.isolated, list(vcpu_threads(reading.snapshot))
    if not all(vcpu.tid in before.threads and vcpu.tid in now.threads for vcpu in vcpus):
        return  # the check of the run delay says so
    waits = Waits(reading)
    slow = [vcpu for vcpu in vcpus if waits.of(vcpu.tid).contention >= WARN_PERCENT]
    shared = union(vcpu.affinity for vcpu in slow) - isolated
    cpus = CpuSet.of(cpu for cpu in shared if cpu in before.spare_ms and cpu in now.spare_ms)
    if not cpus or (used := _used_by_host(reading, before, cpus)) < HOST_PERCENT * len(cpus):
        return
    weight = (reading.snapshot.cpu_weights or {}).get(SLICE)
    balanced = reading.snapshot.topology.online - isolated
    why = why_not(weight, union(vcpu.affinity for vcpu in vcpus), balanced, reading.snapshot.slices)
    realtime = _realtime(reading.snapshot, cpus)
    # A weight divides the time that real-time threads leave.
    is_divided = used - sum(realtime.values()) >= HOST_PERCENT * len(cpus) and not all(each.realtime for each in slow)
    yield Found(
        host_subject(reading),
        f"processes of the host take {used:.3g} % of a CPU on CPUs {cpus}, where {counted(len(slow), 'vCPU')} wait",
        (
            Evidence("processes of the host", used, "% of a CPU"),
            Evidence("CPUs", str(cpus)),
            Evidence("waiting vCPUs", len(slow)),
            Evidence(f"weight of {SLICE}", "not known" if weight is None else weight),
            *([Evidence("real-time processes", listed(list(realtime), 3))] if realtime else ()),
        ),
        (
            *plans(""),
            *((command(f"systemctl set-property {SLICE} CPUWeight={RAISED}"),) if is_divided and not why else ()),
        ),
        targets=(WEIGHT,) if is_divided else (),
    )


def _realtime(snapshot: Snapshot, cpus: CpuSet) -> dict[str, float]:
    """The load of real-time threads of the host that may use these CPUs, by process, in per cent of a CPU."""
    loads: defaultdict[str, float] = defaultdict(float)
    for process in snapshot.processes:
        if not process.kernel and process.immovable_reason != "guest":
            for thread in process.threads:
                if thread.realtime and thread.load and thread.affinity & cpus:
                    loads[process.name] += thread.load
    return dict(loads)


def _used_by_host(reading: HostReading, before: HostSample, cpus: CpuSet) -> float:
    """At least so many per cent of one CPU, without the run time of guests and kernel threads that may use these
    CPUs."""
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


def _no_cells(reading: HostReading) -> Iterator[Found]:
    for guest in reading.snapshot.guests:
        nodes = homes(guest.vcpus, reading.snapshot)
        if len(nodes) > 1 and len(guest.numa.cells) < 2 and len(guest.vcpus) > 1:
            yield Found(
                Subject("guest", guest.name),
                f"guest {guest.name} runs on {len(nodes)} nodes, and sees one",
                (
                    Evidence("nodes", ",".join(map(str, sorted(nodes)))),
                    Evidence("cells", len(guest.numa.cells)),
                    Evidence("vCPUs", len(guest.vcpus)),
                ),
                (*_cells(guest, reading.snapshot), *plans(NUMA_LOCAL)),
            )


def _cells(guest: Guest, snapshot: Snapshot) -> Iterator[Remedy]:
    """The fewest cells that fit nodes. Nova divides vCPUs and MiB evenly, or refuses the flavor."""
    topology, size, mib = snapshot.topology, len(guest.vcpus), guest.memory_kib // 1024
    pool = (snapshot.dedicated if guest.dedicated else snapshot.shared) or topology.online
    nodes = {
        node: (len(cpus & pool), topology.local_memory.get(node)) for node, cpus in topology.online_by_node.items()
    }
    for count in range(len(guest.numa.cells) + 1, len(nodes) + 1):
        fits = [
            cpus * count >= size and (memory is None or memory // 1024 * count >= mib)
            for cpus, memory in nodes.values()
        ]
        if not (size % count or mib % count) and sum(fits) >= count:
            yield from flavor(f"hw:numa_nodes={count}", [guest])
            return


def _wrong_cells(reading: HostReading) -> Iterator[Found]:
    cells = ((guest, cell) for guest in reading.snapshot.guests for cell in guest.numa.cells)
    for guest, cell in cells:
        vcpus = [vcpu for vcpu in guest.vcpus if vcpu.id in cell.vcpus]
        nodes, bound = memory_homes(vcpus, reading.snapshot), set(cell.memory.nodes) if cell.memory else set()
        is_split = len(guest.numa.cells) > 1 and len({*_own_nodes(vcpus, reading.snapshot)}) > 1
        if nodes and ((bound and not nodes & bound) or (is_split and not nodes <= bound)):
            yield Found(
                Subject("guest", guest.name),
                f"cell {cell.id} of guest {guest.name} has vCPUs on nodes {_listed(nodes)}, "
                f"and memory of {f'nodes {_listed(bound)}' if bound else 'any node'}",
                (Evidence("nodes of the memory", _listed(bound)), Evidence("nodes of the vCPUs", _listed(nodes))),
                plans(NUMA_LOCAL),
            )


def _own_nodes(vcpus: Iterable[Vcpu], snapshot: Snapshot) -> Iterator[int]:
    for vcpu in vcpus:
        if len(nodes := homes((vcpu,), snapshot)) == 1:
            yield from nodes


def _listed(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _wrong_topology(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    for guest in snapshot.guests:
        if (sees := guest.topology) is None or min(sees.sockets, sees.cores, sees.threads) < 1:
            continue
        own = own_cpus(guest)
        placed = ((vcpu, mask) for vcpu, mask in guest.vcpu_affinities.items() if len(mask) == 1 and mask <= own)
        cores = {vcpu: snapshot.topology.online_cores.get(mask.lowest, mask) for vcpu, mask in placed}
        apart, together = _against(cores, sees.threads)
        sockets = _sockets_apart(guest, sees, snapshot)
        facts = (
            ("cores of the guest on several cores of the host", apart),
            ("cores of the host that are several of the guest", together),
            ("sockets of the guest on several nodes", sockets),
        )
        if wrong := [Evidence(name, count) for name, count in facts if count]:
            seen = ", ".join(map(counted, (sees.sockets, sees.cores, sees.threads), ("socket", "core", "thread")))
            yield Found(
                Subject("guest", guest.name),
                f"the topology of guest {guest.name} ({seen}) is not that of its CPUs",
                (*wrong, Evidence("vCPUs with a CPU of their own", len(cores))),
                () if sockets else tuple(_topology_of(guest, sees, cores)),
            )


def _against(cores: Mapping[int, CpuSet], threads: int) -> tuple[int, int]:
    """How many of the guest's cores are on several of the host, and the other way round. ``cores``: the host's core of
    each vCPU; ``threads``: vCPUs of a core of the guest."""
    apart = _several((vcpu // threads, core) for vcpu, core in cores.items())
    return apart, _several((core, vcpu // threads) for vcpu, core in cores.items())


def _several(pairs: Iterable[tuple[Hashable, Hashable]]) -> int:
    seconds: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    for first, second in pairs:
        seconds[first].add(second)
    return sum(len(those) > 1 for those in seconds.values())


def _sockets_apart(guest: Guest, sees: GuestTopology, snapshot: Snapshot) -> int:
    """A single socket and cells have checks of their own."""
    if sees.sockets < 2 or len(guest.numa.cells) > 1:
        return 0
    size = sees.cores * sees.threads
    return _several((vcpu.id // size, node) for vcpu in guest.vcpus for node in _own_nodes((vcpu,), snapshot))


def _topology_of(guest: Guest, sees: GuestTopology, cores: Mapping[int, CpuSet]) -> Iterator[Remedy]:
    """The threads that make each core of the guest one of the host. Nova writes the XML of its guests."""
    size = sees.cores * sees.threads
    for threads in (1, 2, 4, 8) if not guest.nova and len(cores) == sees.sockets * size else ():
        if size % threads == 0 and not any(_against(cores, threads)):
            line = f"<topology sockets='{sees.sockets}' cores='{size // threads}' threads='{threads}'/>"
            yield in_xml(guest, line, ", in <cpu>")


def _remote_device(reading: HostReading) -> Iterator[Found]:
    snapshot, nodes = reading.snapshot, reading.snapshot.topology.node_by_id
    for guest in snapshot.guests:
        used = homes(guest.vcpus, snapshot) if guest.pci else set()
        found = ((device, device_node(device, snapshot)) for device in guest.pci)
        known = {device: node for device, node in found if node is not None and node in nodes}
        for device, node in known.items():
            if not _is_remote(node, used, snapshot):
                continue
            distances = nodes[node].distances
            yield Found(
                Subject("guest", guest.name),
                f"device {device} of guest {guest.name} is on node {node}, and its vCPUs are on {_listed(used)}",
                (
                    Evidence(device, f"node {node}"),
                    Evidence("nodes of the vCPUs", _listed(used)),
                    Evidence("distance", min((distances[near] for near in used if near in distances), default="")),
                ),
                plans(NUMA_LOCAL),
            )


def _is_remote(node: int, used: set[int], snapshot: Snapshot) -> bool:
    """A node without CPUs or memory has no place for a guest."""
    topology = snapshot.topology
    has_place = node in topology.online_by_node and topology.memory_sources.get(node, node) == node
    return has_place and bool(used) and node not in used


CHECKS = (
    HostCheck(
        code="vcpu-run-delay",
        severity="warning",
        summary=f"vCPUs wait {WARN_PERCENT:g} % of the time or more for a CPU, not counting what a CPU limit or "
        "real-time throttling takes",
        why="a guest sees this time as steal: it stands still, and its own locks and timers stand still with it",
        source=READY,
        find=_run_delay,
        critical=f"{CRITICAL_PERCENT:g} % or more",
    ),
    HostCheck(
        code="guest-cpu-limit",
        severity="warning",
        summary=f"a CPU limit stops threads of a guest {WARN_PERCENT:g} % of the time or more",
        why="the guest sees this time as steal, and no other placement gives it back: only a higher limit does",
        source="Linux: Documentation/scheduler/sched-bwc.rst; libvirt: formatdomain.html (cputune quota)",
        find=find_limits,
    ),
    HostCheck(
        code="host-delays-vcpus",
        severity="warning",
        summary=f"processes of the host take {HOST_PERCENT:g} % or more of the CPUs on which vCPUs wait",
        why="all guests together are one slice, and the kernel gives it no more of a CPU than each slice of the host",
        source="Linux: Documentation/admin-guide/cgroup-v2.rst (cpu.weight); systemd.resource-control(5)",
        find=_host_load,
    ),
    HostCheck(
        code="guest-without-cells",
        severity="warning",
        summary="a guest runs on several nodes and sees one",
        why="the guest's kernel cannot keep a program beside its memory",
        source="libvirt: formatdomain.html (cpu numa)",
        find=_no_cells,
    ),
    HostCheck(
        code="guest-cells-contradict",
        severity="warning",
        summary="vCPUs of a cell are on several nodes, or on another one than the cell's memory",
        why="the guest's kernel takes remote memory for local",
        source="libvirt: formatdomain.html (numatune memnode)",
        find=_wrong_cells,
    ),
    HostCheck(
        code="guest-topology-contradicts",
        severity="warning",
        summary="the sockets, cores or threads that a guest sees are not those of its CPUs",
        why="the guest's kernel puts two programs on one core while another core is idle",
        source="libvirt: formatdomain.html (cpu topology); OpenStack Nova: hw:cpu_threads",
        find=_wrong_topology,
    ),
    HostCheck(
        code="guest-device-remote",
        severity="warning",
        summary="a passed-through device is on another node than the guest's vCPUs",
        why="each access to the device and each of its interrupts cross the link between the nodes",
        source="OpenStack Nova: admin/pci-passthrough.html (pci_numa_affinity_policy)",
        find=_remote_device,
    ),
)
