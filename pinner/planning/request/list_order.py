"""A plan does not depend on the order in which libvirt and the kernel list things."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Process
from pinner.model.machine.topology import Topology
from pinner.model.snapshot import Snapshot

T = TypeVar("T")
_ID, _TID = attrgetter("id"), attrgetter("tid")


def in_order(snapshot: Snapshot) -> Snapshot:
    """Sorted by UUIDs and ids. What is in order already stays the same object, because it keeps derived tables."""
    return replace(
        snapshot,
        topology=_topology(snapshot.topology),
        guests=_by_key(map(_guest, snapshot.guests), attrgetter("uuid")),
        processes=_by_key(map(_process, snapshot.processes), attrgetter("pid", "started")),
    )


def _topology(topology: Topology) -> Topology:
    cpus = _by_key(topology.cpus, _ID)
    nodes = _by_key(topology.nodes, _ID)
    devices = _by_key(topology.devices, attrgetter("kind", "name"))
    if (cpus, nodes, devices) == (topology.cpus, topology.nodes, topology.devices):
        return topology
    return replace(topology, cpus=cpus, nodes=nodes, devices=devices)


def _guest(guest: Guest) -> Guest:
    vcpus = _by_key(guest.vcpus, _ID)
    emulators = _by_key(guest.emulator.threads, _TID)
    iothreads = _by_key(guest.iothreads, _ID)
    vhosts = _by_key(guest.vhost_threads, _TID)
    memory, pci = tuple(sorted(guest.memory_per_node.items())), tuple(sorted(guest.pci))
    now = guest.vcpus, guest.emulator.threads, guest.iothreads, guest.vhost_threads
    if (vcpus, emulators, iothreads, vhosts) == now and (memory, pci) == (
        tuple(guest.memory_per_node.items()),
        guest.pci,
    ):
        return guest
    return replace(
        guest,
        vcpus=vcpus,
        emulator=replace(guest.emulator, threads=emulators),
        iothreads=iothreads,
        vhost_threads=vhosts,
        memory_per_node=dict(memory),
        pci=pci,
    )


def _process(process: Process) -> Process:
    threads = _by_key(process.threads, _TID)
    return process if threads == process.threads else replace(process, threads=threads)


def _by_key(values: Iterable[T], key: Callable[[T], Any]) -> tuple[T, ...]:
    return tuple(sorted(values, key=key))
