"""Which guests and processes the request, metadata or flavors exclude, and which the request asks for."""

from collections.abc import Container

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest import Guest
from pinner.model.process import Process
from pinner.model.request import Request
from pinner.planning import flavors


def is_excluded_guest(guest: Guest, request: Request) -> bool:
    """Whether pinner does not place the guest."""
    return guest.excluded or guest.leaving or flavors.excluded(guest) or is_named(guest, request.excluded_guests)


def is_named(guest: Guest, names: Container[str]) -> bool:
    """Whether the guest is among these names or UUIDs."""
    return guest.name in names or guest.uuid in names


def is_excluded_process(process: Process, request: Request) -> bool:
    """Whether pinner does not move the process: the request names it or its systemd unit."""
    named = request.excluded_processes
    return process.name in named or (bool(process.unit) and process.unit in named)


def asked_for(process: Process, request: Request) -> bool:
    """Whether the process is to be moved, busy or not: the request names it or its pid."""
    return process.name in request.processes or str(process.pid) in request.processes


def is_left_to_operator(guest: Guest, request: Request) -> bool:
    """Whether an operator pinned the guest, and the request does not name it: its pins stay as they are."""
    return bool(guest.operator_pins) and not guest.dedicated and not is_named(guest, request.guests)


def operators_cpus(guest: Guest) -> CpuSet:
    """The CPUs to which an operator pinned one vCPU each, also those that a pin takes at the next start only."""
    return union(pin.cpus for pin in guest.operator_pins if pin.kind == "vcpu" and len(pin.cpus) == 1)


def own_cpus(guest: Guest) -> CpuSet:
    """The CPUs of the guest's vCPUs that are pinned to one CPU each, without pools of one CPU."""
    masks = (vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread)
    return union(mask for mask in masks if len(mask) == 1) - guest.pooled
