"""How to isolate CPUs from the kernel's scheduler: by boot parameters, or live by a cgroup.

Sources: the kernel's admin-guide/kernel-parameters.txt and cgroup-v2.rst (cpuset.cpus.partition).
"""

import re
from collections.abc import Iterator

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.topology import Kernel, Topology
from pinner.model.plan.plan import Isolation

_ARGUMENT = re.compile(r'(?:[^\s"]|"[^"]*")+')
_REPLACED = frozenset({"isolcpus", "nohz_full", "rcu_nocbs"})
_BOOT_LOADERS_OWN = frozenset({"BOOT_IMAGE", "root", "ro", "initrd"})
"""GRUB adds these by itself."""

_SHELL_SPECIAL = re.compile(r'([\\"$`])')
_ESCAPED = r"\\\1"
"""What a shell interprets inside double quotes."""

_PARTITION = "/sys/fs/cgroup/pinner.partition"
_LIVE = (
    "Live until the next boot: the kernel does not balance load on the CPUs, but their tick (nohz_full), RCU callbacks "
    "(rcu_nocbs) and managed interrupts stay. All other cgroups lose the CPUs: only a guest that starts in the "
    "partition, with <resource><partition>/pinner</partition></resource> in its definition, can use them, and its "
    "emulator threads run there too. Before Linux 6.2 the first command resets every affinity that was set by hand."
)


def describe(kernel: Kernel, wanted: CpuSet, present: CpuSet) -> Isolation:
    commands, note = _partition(kernel, wanted, present)
    return Isolation(
        wanted=wanted,
        present=present & wanted,
        kernel_arguments=arguments(wanted),
        grub_line=grub_line(kernel.command_line, wanted),
        partition=commands,
        partition_note=note,
    )


def no_partitions(kernel: Kernel) -> str:
    here = {
        "v1": "it is mounted as cgroup v1",
        "v2": "the kernel is older",
        "none": "it is not mounted",
    }[kernel.cgroup]
    return f"Needs the cpuset controller of cgroup v2 on Linux 5.15 or later; here ({kernel.release}) {here}."


def arguments(cpus: CpuSet) -> str:
    return f"isolcpus=managed_irq,domain,{cpus} nohz_full={cpus} rcu_nocbs={cpus}"


def grub_line(command_line: str, cpus: CpuSet) -> str:
    """Without the arguments that GRUB adds."""
    present = _ARGUMENT.findall(command_line)
    for_kernel = present[: present.index("--")] if "--" in present else present
    remaining = [argument for argument in for_kernel if _name(argument) not in _REPLACED | _BOOT_LOADERS_OWN]
    line = " ".join([*remaining, arguments(cpus), *present[len(for_kernel) :]])
    return f'GRUB_CMDLINE_LINUX="{_SHELL_SPECIAL.sub(_ESCAPED, line)}"'


def lacking(topology: Topology, cpus: CpuSet) -> Iterator[str]:
    if without_nohz := cpus - topology.nohz_full:
        yield f"isolated CPUs {without_nohz} keep their timer tick: this boot has no nohz_full={without_nohz}"
        if without_nocbs := without_nohz - _rcu_nocbs(topology):
            yield f"isolated CPUs {without_nocbs} run RCU callbacks: this boot has no rcu_nocbs={without_nocbs}"


def _rcu_nocbs(topology: Topology) -> CpuSet:
    """CPUs of nohz_full run no callbacks without this argument."""
    lists = [a.partition("=")[2] for a in _ARGUMENT.findall(topology.kernel.command_line) if _name(a) == "rcu_nocbs"]
    if not lists:
        return CpuSet()
    try:
        return CpuSet.parse(lists[-1])
    except Invalid:
        # "all" and "N" mean every CPU. A list that only the kernel can parse counts as every CPU too.
        return topology.online


def _name(argument: str) -> str:
    """The kernel treats - and _ alike."""
    return argument.partition("=")[0].replace("-", "_")


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
