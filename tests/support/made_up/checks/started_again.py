"""What a line does to the counters of the next samples, to memory, and to guests that start with another definition."""

from dataclasses import replace

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import IoThread
from pinner.model.guest.guest_numa import GuestTopology
from pinner.model.machine.process import Thread
from pinner.model.machine.topology import Node
from pinner.model.reading import HostReading

Changed = tuple[HostReading, CpuSet]


def ended(reading: HostReading, *fields: str) -> HostReading:
    """The counters of these fields of a sample grow no more."""
    if (before := reading.before) is None:
        return reading
    now = reading.now
    return replace(reading, samples=(replace(before, **{field: getattr(now, field) for field in fields}), now))


_EASED = {
    "net.core.netdev_budget": ("softnet",),
    "net.core.netdev_max_backlog": ("softnet",),
    "net.core.rmem_default": ("counters", "sockets"),
    "net.core.rmem_max": ("counters", "sockets"),
    "net.core.somaxconn": ("counters",),
    "net.core.wmem_default": ("counters",),
    "net.core.wmem_max": ("counters",),
    "net.ipv4.udp_mem": ("counters",),
    "vm.swappiness": ("counters",),
}
"""The fields of a sample in which a higher value ends the growth; a lower one of vm.swappiness."""


def sysctl(reading: HostReading, key: str, value: str) -> Changed:
    known, settings = reading.snapshot.sysctls or {}, reading.details.settings
    path = f"proc/sys/{key.replace('.', '/')}"
    before, after = (tuple(map(int, str(text).split())) for text in (known.get(key, settings.get(path, "")), value))
    if key in _EASED and (after < before if key == "vm.swappiness" else after > before):
        reading = ended(reading, *_EASED[key])
    snapshot = reading.snapshot
    if key in known:
        snapshot = replace(snapshot, sysctls={**known, key: int(value)})
    details = replace(reading.details, settings={**settings, path: value})
    return replace(reading, snapshot=snapshot, details=details), CpuSet()


def _guest(reading: HostReading, name: str, **more: object) -> Changed:
    guests = (replace(guest, **more) if guest.name == name else guest for guest in reading.snapshot.guests)
    return replace(reading, snapshot=replace(reading.snapshot, guests=tuple(guests))), CpuSet()


def seen_topology(reading: HostReading, name: str, sockets: str, cores: str, threads: str) -> Changed:
    return _guest(reading, name, topology=GuestTopology(int(sockets), int(cores), int(threads)))


def iothreads(reading: HostReading, name: str, count: str) -> Changed:
    threads = tuple(IoThread(number + 1, None, CpuSet()) for number in range(int(count)))
    return _guest(ended(reading, "threads"), name, iothreads=threads)


def vhost(reading: HostReading, name: str, tap: str) -> Changed:
    guest = next(guest for guest in reading.snapshot.guests if guest.name == name)
    assert tap in {each.name for each in guest.taps}, f"guest {name} has no tap {tap}"
    thread = Thread(guest.pid + 600, 7, f"vhost-{guest.pid}", guest.emulator.pin, immovable_reason="guest")
    return _guest(reading, name, vhost_threads=(thread,))


def tap_queues(reading: HostReading, _: str, tap: str, count: str) -> Changed:
    nics = (replace(nic, tx_queues=int(count)) if nic.name == tap else nic for nic in reading.details.nics)
    return replace(reading, details=replace(reading.details, nics=tuple(nics))), CpuSet()


def unlimited(reading: HostReading) -> Changed:
    """The CPUs have the time that the limit took."""
    return ended(reading, "threads", "throttled"), CpuSet()


def weight(reading: HostReading, uuid: str, shares: str) -> Changed:
    path = reading.snapshot.running_guest(uuid).cgroups[-1].path
    return weight_of(reading, path, shares)


def weight_of(reading: HostReading, path: str, shares: str) -> Changed:
    weights = {**reading.details.weights, path: int(shares)}
    return replace(reading, details=replace(reading.details, weights=weights)), CpuSet()


def swapped_in(reading: HostReading, *_: str) -> Changed:
    return replace(reading, samples=tuple(replace(each, swapped_kib={}) for each in reading.samples)), CpuSet()


def migrated(reading: HostReading, pid: str, node: str) -> Changed:
    guest = next(guest for guest in reading.snapshot.guests if guest.pid == int(pid))
    return _guest(reading, guest.name, memory_per_node={int(node): sum(guest.memory_per_node.values())})


def huge_pages(reading: HostReading, total: str, node: str, size: str) -> Changed:
    """The guests without huge pages on the node of their vCPUs start again, and get those that are free."""
    top = reading.snapshot.topology
    nodes = tuple(_with_pages(each, int(total), int(size)) if each.id == int(node) else each for each in top.nodes)
    pool = next(each for each in nodes[int(node)].hugepages if each.size_kib == int(size))
    here = top.cpus_by_node[int(node)]
    guests = tuple(
        replace(guest, numa=replace(guest.numa, huge_kib={int(node): kib}))
        if (kib := sum(guest.numa.huge_kib.values())) <= pool.free * pool.size_kib
        and all(mask <= here for mask in guest.vcpu_affinities.values())
        else guest
        for guest in reading.snapshot.guests
    )
    changed = replace(reading.snapshot, topology=replace(top, nodes=nodes), guests=guests)
    return replace(reading, snapshot=changed), CpuSet()


def _with_pages(node: Node, total: int, size: int) -> Node:
    pools = (
        replace(each, total=total, free=each.free + total - each.total) if each.size_kib == size else each
        for each in node.hugepages
    )
    return replace(node, hugepages=tuple(pools))


def booted_with_pages(reading: HostReading, line: str) -> Changed:
    top = reading.snapshot.topology
    kernel = replace(top.kernel, command_line=f"{top.kernel.command_line} {line}")
    return replace(reading, snapshot=replace(reading.snapshot, topology=replace(top, kernel=kernel))), CpuSet()
