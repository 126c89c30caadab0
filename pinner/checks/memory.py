"""The guests' memory: its node, its pages, and swap. Pure."""

from collections.abc import Iterator

from pinner.checks.common import (
    ROOT,
    command,
    find_each,
    growth,
    host_subject,
    in_xml,
    kernel_argument,
    memory_homes,
    number,
    planned_sysctl,
    sysctl,
    sysctl_now,
)
from pinner.model.machine.boot import arguments
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.snapshot import vcpu_cpus

REMOTE_PERCENT, REMOTE_CRITICAL = 10.0, 50.0
LOW_PERCENT = 5.0
SWAPPED_KIB = 1024
MM = "Linux: Documentation/admin-guide/mm"
KSM, THP = "sys/kernel/mm/ksm/run", "sys/kernel/mm/transparent_hugepage"
BALANCING, SWAPPINESS = "kernel.numa_balancing", "vm.swappiness"


def _balancing(reading: HostReading) -> Iterator[Found]:
    snapshot, value = reading.snapshot, sysctl_now(reading, BALANCING)
    placed = vcpu_cpus(snapshot)
    if value and placed and sum(1 for node in snapshot.topology.nodes if node.cpus and node.memory_kib) > 1:
        yield Found(
            Subject("sysctl", BALANCING),
            f"the kernel moves memory between nodes, and vCPUs are placed on CPUs {placed}",
            (Evidence("numa_balancing", value), Evidence("placed CPUs", str(placed))),
            sysctl(BALANCING, 0),
            targets=(SYSCTLS[BALANCING].target,),
        )


def _ksm(reading: HostReading) -> Iterator[Found]:
    if reading.details.settings.get(KSM) == "1" and vcpu_cpus(reading.snapshot):
        shared = number(reading.details.settings, "sys/kernel/mm/ksm/pages_sharing") or 0
        yield Found(
            host_subject(reading),
            "KSM merges pages of guests that have CPUs of their own",
            (Evidence("ksm run", 1), Evidence("pages saved", shared, "pages")),
            (
                command("echo 2 > /sys/kernel/mm/ksm/run"),
                command("systemctl disable --now ksm.service ksmtuned.service"),
            ),
        )


def _thp(reading: HostReading) -> Iterator[Found]:
    enabled = reading.details.settings.get(f"{THP}/enabled", "")
    small = [guest.name for guest in reading.snapshot.guests if not guest.numa.huge_kib]
    if "[never]" in enabled and small:
        yield Found(
            host_subject(reading),
            f"transparent huge pages are off for guests without huge pages of their own, such as {small[0]}",
            (Evidence("transparent_hugepage", enabled), Evidence("guests", len(small))),
            (command(f"echo madvise > /{THP}/enabled"), kernel_argument("transparent_hugepage=madvise")),
        )


def _defrag(reading: HostReading) -> Iterator[Found]:
    defrag = reading.details.settings.get(f"{THP}/defrag", "")
    enabled = reading.details.settings.get(f"{THP}/enabled", "")
    if "[always]" in defrag and "[never]" not in enabled and reading.snapshot.guests:
        yield Found(
            host_subject(reading),
            "a page fault of a guest waits until the kernel has made room for a huge page",
            (Evidence("transparent_hugepage/defrag", defrag),),
            (command(f"echo defer+madvise > /{THP}/defrag"),),
        )


def _asked(command_line: str) -> Iterator[tuple[int, int]]:
    """The size in KiB and the number of huge pages, where the command line has one size at most. Of several, the order
    counts, which ``arguments`` does not keep."""
    given = arguments(command_line)
    size = {"2M": 2048, "1G": 1 << 20, "": 2048, "2m": 2048, "1g": 1 << 20}.get(given.get("hugepagesz", ""))
    count = given.get("hugepages", "")
    if size and count.isdecimal() and command_line.count("hugepagesz=") <= 1:
        yield size, int(count)


def _huge_missing(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    for size, wanted in _asked(topology.kernel.command_line):
        pools = {node.id: pool for node in topology.nodes for pool in node.hugepages if pool.size_kib == size}
        there = sum(pool.total for pool in pools.values())
        if pools and there < wanted:
            yield Found(
                host_subject(reading),
                f"the boot asked for {wanted} huge pages of {size} KiB, and {there} are there",
                (
                    Evidence("asked", wanted, "pages"),
                    Evidence("there", there, "pages"),
                    *(Evidence(f"on node {node}", pool.total, "pages") for node, pool in pools.items()),
                ),
                (kernel_argument(f"hugepagesz={size}K hugepages={there}"),),
            )


def _huge_node(reading: HostReading) -> Iterator[Found]:
    nodes = {node.id: node for node in reading.snapshot.topology.nodes}
    for guest in reading.snapshot.guests:
        here = memory_homes(guest.vcpus, reading.snapshot)
        away = {node: kib for node, kib in guest.numa.huge_kib.items() if kib and here and node not in here}
        if not away:
            continue
        pools = {home: pool for home in sorted(here) for pool in nodes[home].hugepages if pool.total or pool.free}
        wanted = sum(away.values()) // len(here)
        path = "/sys/devices/system/node"
        yield Found(
            Subject("guest", guest.name),
            f"huge pages of guest {guest.name} are on nodes where none of its vCPUs is",
            (
                *(Evidence(f"on node {node}", kib, "KiB") for node, kib in away.items()),
                *(Evidence(f"free on node {node}", pool.free * pool.size_kib, "KiB") for node, pool in pools.items()),
            ),
            tuple(
                Remedy(
                    f"echo {pool.total + wanted // pool.size_kib - pool.free} > "
                    f"{path}/node{home}/hugepages/hugepages-{pool.size_kib}kB/nr_hugepages",
                    ROOT,
                    "guest restart",
                )
                for home, pool in pools.items()
                if pool.free * pool.size_kib < wanted
            ),
        )


def _remote(reading: HostReading) -> Iterator[Found]:
    for guest in reading.snapshot.guests:
        here, whole = memory_homes(guest.vcpus, reading.snapshot), sum(guest.memory_per_node.values())
        away = sum(kib for node, kib in guest.memory_per_node.items() if node not in here)
        if not here or not whole or 100 * away / whole < REMOTE_PERCENT:
            continue
        percent = 100 * away / whole
        yield Found(
            Subject("guest", guest.name),
            f"{percent:.3g} % of the memory of guest {guest.name} is on nodes where none of its vCPUs is",
            (
                Evidence("remote memory", percent, "%"),
                Evidence("nodes of the vCPUs", ",".join(map(str, sorted(here)))),
                *(Evidence(f"on node {node}", kib, "KiB") for node, kib in sorted(guest.memory_per_node.items())),
            ),
            (
                command("pinner apply PLAN_ID --migrate-memory"),
                command(f"migratepages {guest.pid} all {min(here)}"),
            ),
            "critical" if percent >= REMOTE_CRITICAL else None,
        )


def _swapping(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        if reading.before is None or not reading.snapshot.guests:
            return
        moved = {name: growth(reading.before.counters, reading.now.counters, name) for name in ("pswpin", "pswpout")}
        if any(moved.values()):
            # Where pages only come back, the shortage is over.
            is_short = moved["pswpout"] > 0
            facts = (Evidence(name, count / reading.seconds, "pages/s") for name, count in moved.items())
            yield Found(
                host_subject(reading),
                f"the host {'swaps' if is_short else 'reads pages back from swap'} while guests run",
                (*facts, *_whose(reading)),
                planned_sysctl(SWAPPINESS, sysctl_now(reading, SWAPPINESS)) if is_short else (),
                targets=(SYSCTLS[SWAPPINESS].target,) if is_short else (),
            )

    yield from find_each([reading], host_subject, find)


def _whose(reading: HostReading) -> Iterator[Evidence]:
    """What tells the host's shortage from the limit of a cgroup, and guests' pages from others."""
    swapped = [reading.now.swapped_kib.get(guest.pid) for guest in reading.snapshot.guests]
    known = [kib for kib in swapped if kib is not None]
    if len(known) == len(swapped):
        yield Evidence("of guests", sum(known), "KiB")
    for name in ("MemAvailable", "MemTotal"):
        if (kib := reading.now.counters.get(name)) is not None:
            yield Evidence(name, kib, "KiB")


def _swapped(reading: HostReading) -> Iterator[Found]:
    for guest in reading.snapshot.guests:
        if (swapped := reading.now.swapped_kib.get(guest.pid, 0)) >= SWAPPED_KIB:
            yield Found(
                Subject("guest", guest.name),
                f"{swapped} KiB of guest {guest.name} are in the host's swap",
                (Evidence("swapped", swapped, "KiB"),),
                (in_xml(guest, "<memoryBacking><locked/></memoryBacking>"), command("swapoff -a && swapon -a")),
            )


def _low(reading: HostReading) -> Iterator[Found]:
    free, total = (reading.now.counters.get(name) for name in ("MemAvailable", "MemTotal"))
    pools = (pool for node in reading.snapshot.topology.nodes for pool in node.hugepages)
    huge = sum(pool.total * pool.size_kib for pool in pools)
    # The pools of huge pages are reserved for guests: MemAvailable never counts them.
    if free is not None and total and 100 * free < LOW_PERCENT * (total - huge):
        yield Found(
            host_subject(reading),
            f"{100 * free / (total - huge):.3g} % of the host's memory are available",
            (
                Evidence("MemAvailable", free, "KiB"),
                Evidence("MemTotal", total, "KiB"),
                Evidence("huge pages", huge, "KiB"),
            ),
            (Remedy("reserved_host_memory_mb = 4096", "nova.conf [DEFAULT]"),),
        )


CHECKS = (
    HostCheck(
        code="numa-balancing",
        severity="warning",
        summary="the kernel balances NUMA memory on a host with placed vCPUs",
        why="it takes access to pages away to learn who uses them: each such page costs a placed guest a fault",
        source="Linux: Documentation/admin-guide/sysctl/kernel.rst (numa_balancing)",
        find=_balancing,
    ),
    HostCheck(
        code="ksm-merging",
        severity="warning",
        summary="KSM runs on a host with placed vCPUs",
        why="a merged page may lie on another node, a write to it costs a copy, and ksmd needs a CPU",
        source=f"{MM}/ksm.rst",
        find=_ksm,
    ),
    HostCheck(
        code="thp-never",
        severity="warning",
        summary="transparent huge pages are off for guests without huge pages",
        why="with small pages, each miss of the TLB walks the tables of guest and host",
        source=f"{MM}/transhuge.rst",
        find=_thp,
    ),
    HostCheck(
        code="thp-defrag",
        severity="warning",
        summary="page faults wait for huge pages",
        why="a guest stands still while the kernel moves other pages away for it",
        source=f"{MM}/transhuge.rst",
        find=_defrag,
    ),
    HostCheck(
        code="hugepages-missing",
        severity="warning",
        summary="the host has fewer huge pages than its boot asked for",
        why="guests that need them do not start, or start on another node",
        source=f"{MM}/hugetlbpage.rst",
        find=_huge_missing,
    ),
    HostCheck(
        code="hugepages-remote",
        severity="warning",
        summary="huge pages of a guest are on another node than its vCPUs",
        why="each access crosses the link between the nodes, and the kernel does not migrate these pages by itself",
        source=f"{MM}/hugetlbpage.rst",
        find=_huge_node,
    ),
    HostCheck(
        code="memory-remote",
        severity="warning",
        summary=f"{REMOTE_PERCENT:g} % or more of a guest's memory is on nodes where none of its vCPUs is",
        why="each access crosses the link between the nodes",
        source="Linux: Documentation/admin-guide/mm/numa_memory_policy.rst",
        find=_remote,
        critical=f"{REMOTE_CRITICAL:g} % or more",
    ),
    HostCheck(
        code="host-swapping",
        severity="critical",
        summary="the host swaps while guests run",
        why="a vCPU whose page is in swap stands still for milliseconds",
        source="Linux: Documentation/admin-guide/sysctl/vm.rst (swappiness)",
        find=_swapping,
    ),
    HostCheck(
        code="guest-swapped",
        severity="warning",
        summary="memory of a guest is in the host's swap",
        why="the guest stands still at its next access to these pages",
        source="libvirt: formatdomain.html (memoryBacking locked)",
        find=_swapped,
    ),
    HostCheck(
        code="memory-low",
        severity="critical",
        summary=f"less than {LOW_PERCENT:g} % of the host's memory, without the pools of huge pages, are available",
        why="the kernel may end a guest, or the service that holds pinner's journal",
        source="Linux: Documentation/filesystems/proc.rst (MemAvailable)",
        find=_low,
    ),
)
