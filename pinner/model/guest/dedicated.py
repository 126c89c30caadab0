"""The CPUs that Nova dedicates to a guest, by the guest's pins."""

from collections.abc import Iterable

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid
from pinner.model.guest.guest import EmulatorPolicy, Guest, NovaIdentity
from pinner.model.guest.nova import cpus


def nova_cpus(guest: Guest, online: CpuSet) -> CpuSet:
    """The CPUs that Nova dedicates to a guest that it pinned. pinner's own pins are none of them."""
    ours = own_vcpu_pins(guest)
    vcpus = [vcpu for vcpu in guest.vcpus if vcpu.id not in guest.shared_vcpus]
    pins = [vcpu.pin for vcpu in vcpus if vcpu.pin != ours.get(vcpu.id)]
    pins += [mask for vcpu in vcpus if vcpu.thread and (mask := vcpu.thread.affinity) != ours.get(vcpu.id)]
    return dedicated_cpus(pins, guest.emulator.pin, guest.emulator.policy, online)


def own_vcpu_pins(guest: Guest) -> dict[int, CpuSet]:
    """The CPUs of pinner's own pins by vCPU. They claim no CPUs for the guest."""
    return {pin.part: pin.cpus for pin in guest.own_pins if pin.kind == "vcpu" and pin.part is not None}


def shared_vcpus(nova: NovaIdentity | None, vcpus: int) -> CpuSet:
    """The vCPUs of a guest with so many vCPUs that have no CPU of their own although others have (Nova's mixed policy).

    Their pin can be a single CPU, where cpu_shared_set has only one on their node. The flavor names the vCPUs; where it
    does not, there are none here, and a single CPU counts as the vCPU's own. ``nova`` is that of the guest's metadata:
    an agent reads nothing else, and must come to the same CPUs as a plan.
    """
    specs = nova.extra_specs if nova else {}
    mask = specs.get("hw:cpu_dedicated_mask", "").strip()
    if specs.get("hw:cpu_policy") != "mixed" or not mask:
        return CpuSet()
    try:
        own = cpus(f"0-{vcpus - 1},{mask}" if mask.startswith("^") else mask, "hw:cpu_dedicated_mask")
    except Invalid:
        return CpuSet()
    return CpuSet.of(range(vcpus)) - own


def dedicated_cpus(vcpus: Iterable[CpuSet], emulator: CpuSet, policy: EmulatorPolicy, online: CpuSet) -> CpuSet:
    """The CPUs that Nova dedicates to a guest, by the pins of its vCPUs.

    With Nova's mixed policy, some vCPUs have a CPU of their own and others share many CPUs: only the former CPUs are
    dedicated. Where no vCPU has a CPU of its own, every pin that has fewer CPUs than the host counts.
    """
    pins = list(vcpus)
    own = union(pin for pin in pins if len(pin) == 1) or union(pin for pin in pins if pin and not online <= pin)
    return own | emulator if policy == "isolate" else own
