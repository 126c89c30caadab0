"""How to isolate CPUs from the kernel's scheduler: by boot parameters, or live by a cgroup
(admin-guide/kernel-parameters.txt and cgroup-v2.rst)."""

import re
from collections.abc import Iterator

from pinner.model.cpuset import CpuSet, union
from pinner.model.machine import boot
from pinner.model.machine.topology import Kernel, Topology
from pinner.model.plan.plan import Isolation
from pinner.model.snapshot import Snapshot

_REPLACED = ("isolcpus", "nohz_full", "rcu_nocbs")
_BOOT_LOADERS_OWN = frozenset({"BOOT_IMAGE", "root", "ro", "initrd"})
"""GRUB adds these by itself."""

_SHELL_SPECIAL = re.compile(r'([\\"$`])')
_ESCAPED = r"\\\1"
"""What a shell interprets inside double quotes."""

_SEPARATE = (5, 18)
"""Before this Linux, the kernel ignores the later of isolcpus and nohz_full unless both have the same CPUs."""

_PARTITION = "/sys/fs/cgroup/pinner.partition"
_LIVE = (
    "Live until the next boot: the kernel does not balance load on the CPUs, but their tick (nohz_full), RCU callbacks "
    "(rcu_nocbs) and managed interrupts stay. All other cgroups lose the CPUs: only a guest that starts in the "
    "partition, with <resource><partition>/pinner</partition></resource> in its definition, can use them, and its "
    "emulator threads run there too. Before Linux 6.2 the first command resets every affinity that was set by hand."
)


def describe(snapshot: Snapshot, wanted: CpuSet, present: CpuSet) -> Isolation | None:
    if not wanted:
        return None
    by_boot = for_boot(snapshot, wanted)
    commands, note = _partition(snapshot.topology.kernel, wanted, present)
    return Isolation(
        wanted=wanted,
        present=present & wanted,
        kernel_arguments=arguments(snapshot, by_boot) if by_boot else "",
        grub_line=grub_line(snapshot, by_boot) if by_boot else "",
        partition=commands,
        partition_note=note,
    )


def for_boot(snapshot: Snapshot, cpus: CpuSet) -> CpuSet:
    """Not Nova's shared CPUs, unless they are isolated already: without load balancing, floating guests gather on one
    of them."""
    return cpus - (snapshot.shared - _isolated_by_boot(snapshot))


def _isolated_by_boot(snapshot: Snapshot) -> CpuSet:
    """Without the partitions of guests, which end with these."""
    states = (cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups)
    return snapshot.topology.isolated - union(state.cpus for state in states if state.kind == "isolated")


def no_partitions(kernel: Kernel) -> str:
    here = {
        "v1": "it is mounted as cgroup v1",
        "v2": "the kernel is older",
        "none": "it is not mounted",
    }[kernel.cgroup]
    return f"Needs the cpuset controller of cgroup v2 on Linux 5.15 or later; here ({kernel.release}) {here}."


def arguments(snapshot: Snapshot, cpus: CpuSet) -> str:
    """The isolation that this boot has, whoever owns the CPUs, and that of ``cpus``."""
    topology = snapshot.topology
    known = topology.online | topology.offline
    standing = {name: boot.argument_cpus(topology, name) & known for name in _REPLACED}
    flags = boot.isolcpus_flags(topology)
    isolated = cpus | _isolated_by_boot(snapshot)
    if not flags or "domain" in flags:
        isolated |= standing["isolcpus"]
    tickless = isolated | standing["nohz_full"] if _may_differ(topology) else isolated
    wanted = (("isolcpus", isolated), ("nohz_full", tickless), ("rcu_nocbs", isolated | standing["rcu_nocbs"]))
    return " ".join(boot.argument(topology, name, each, "domain") for name, each in wanted)


def _may_differ(topology: Topology) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", topology.kernel.release)
    is_new = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _SEPARATE
    return is_new and "nohz" not in boot.isolcpus_flags(topology)


def grub_line(snapshot: Snapshot, cpus: CpuSet) -> str:
    """Without the arguments that GRUB adds. Empty where a capture left values out: the line would lose them."""
    for_kernel, for_init = boot.words(snapshot.topology.kernel.command_line)
    remaining = [word for word in for_kernel if boot.name_of(word) not in {*_REPLACED, *_BOOT_LOADERS_OWN}]
    if any(word.endswith("=") for word in remaining):
        return ""
    line = " ".join([*remaining, arguments(snapshot, cpus), *for_init])
    return f'GRUB_CMDLINE_LINUX="{_SHELL_SPECIAL.sub(_ESCAPED, line)}"'


def lacking(topology: Topology, cpus: CpuSet) -> Iterator[str]:
    if without_nohz := cpus - topology.nohz_full:
        yield f"isolated CPUs {without_nohz} keep their timer tick: nohz_full={without_nohz} is not in force"
        # CPUs of nohz_full run no callbacks without this argument.
        if without_nocbs := without_nohz - boot.argument_cpus(topology, "rcu_nocbs"):
            yield f"isolated CPUs {without_nocbs} run RCU callbacks: this boot has no rcu_nocbs={without_nocbs}"


def _partition(kernel: Kernel, wanted: CpuSet, present: CpuSet) -> tuple[tuple[str, ...], str]:
    if wanted <= present:
        return (), "Not needed: the CPUs are isolated now."
    if not kernel.partitions:
        return (), no_partitions(kernel)
    commands = (
        "echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control",
        f"mkdir -p {_PARTITION}",
        f"echo {wanted} > {_PARTITION}/cpuset.cpus",
        f"echo isolated > {_PARTITION}/cpuset.cpus.partition",
        f"cat {_PARTITION}/cpuset.cpus.partition  # must say: isolated; else it says why not",
    )
    return commands, _LIVE
