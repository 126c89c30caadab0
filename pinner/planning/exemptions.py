"""Who is to be left alone: by the request, by the mark in a guest's metadata, or by its flavor."""

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest import Guest
from pinner.model.process import Process
from pinner.model.request import Request
from pinner.planning import flavors


def exempt_guest(guest: Guest, request: Request) -> bool:
    """Whether the guest's CPUs are left alone."""
    return (
        guest.exempt
        or flavors.exempt(guest)
        or guest.name in request.exempt_guests
        or guest.uuid in request.exempt_guests
    )


def exempt_process(process: Process, request: Request) -> bool:
    """Whether the process is left alone, by its name or its systemd unit."""
    named = request.exempt_processes
    return process.name in named or (bool(process.unit) and process.unit in named)


def own_cpus(guest: Guest) -> CpuSet:
    """The CPUs that vCPUs of the guest have for themselves: pinned one by one."""
    masks = (vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread)
    return union(mask for mask in masks if len(mask) == 1)
