"""The guests that share a pool of one CPU, because pinner placed them there. Their vCPUs look as if pinned alone; only
the agent's journal tells the difference."""

from contextlib import suppress
from dataclasses import replace

from pinner.apply.ports import Journal
from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import StoreUnavailable
from pinner.model.guest.guest import Guest, Vcpu
from pinner.model.snapshot import Snapshot


def with_pools(snapshot: Snapshot, journal: Journal) -> Snapshot:
    """Sets ``Guest.pooled``. The journal is read only for guests with several threads on one CPU."""
    return replace(snapshot, guests=tuple(_with_pool(guest, journal) for guest in snapshot.guests))


def _with_pool(guest: Guest, journal: Journal) -> Guest:
    crowded = [vcpu for vcpu in guest.vcpus if _shares_its_cpu(vcpu, guest)]
    if not crowded:
        return guest
    # Without the journal the guest's CPUs stay its own, as those of a guest that pinner never placed.
    with suppress(StoreUnavailable):
        changes = [entry.change for entry in journal.changes_of(guest.uuid) if entry.change.target.kind == "vcpu"]
        placed = {change.target.part: change for change in changes if isinstance(change, AffinityChange)}
        return replace(guest, pooled=union(_given(vcpu, placed.get(vcpu.id)) for vcpu in crowded))
    return guest


def _shares_its_cpu(vcpu: Vcpu, guest: Guest) -> bool:
    if vcpu.thread is None or len(vcpu.thread.affinity) != 1:
        return False
    others = (*guest.emulator.threads, *(each.thread for each in guest.vcpus if each.thread and each is not vcpu))
    return any(thread.affinity == vcpu.thread.affinity for thread in others)


def _given(vcpu: Vcpu, last: AffinityChange | None) -> CpuSet:
    """The CPU of the vCPU, if the last run that changed its thread gave it; else none."""
    thread = vcpu.thread
    if thread is None or last is None or last.after != thread.affinity:
        return CpuSet()
    return thread.affinity if any(mask.key == thread.key for mask in last.before) else CpuSet()
