"""A guest with <vcpu cpuset>, and one without, on a node of 32 CPUs, each in a scope of machine.slice."""

from support.hosts import cpus, guest, plain, process, snapshot
from support.values import MEMBER

from pinner.model.guest.guest import Cgroup
from pinner.model.snapshot import Snapshot


def _scopes(name: str) -> tuple[Cgroup, ...]:
    return tuple(Cgroup(path, MEMBER) for path in ("machine.slice", f"machine.slice/machine-qemu-{name}.scope"))


def host(inside: str, vcpus: int, others: int = 4) -> Snapshot:
    mine = guest(1, vcpus, cpus(inside), restriction=cpus(inside), cgroups=_scopes("g1"))
    other = guest(2, others, cpus("0-31"), cgroups=_scopes("g2"))
    return snapshot(plain(32), [mine, other], [process(300, 40.0, "0-31")])


# vCPUs with CPUs of their own share none with QEMU's own threads, and these cannot leave the definition's CPUs. So the
# emulator set, an eighth outside, also has the first core inside that the vCPUs can spare.
CASES = [("8-15", 4, ("0-3", "4-8")), ("8-15", 7, ("0-3", "4-8")), ("0-7", 4, ("8-11", "0,12-15"))]
# Eight vCPUs can spare none of eight CPUs.
WHY_FULL = (
    "the guest has CPUs 8-15 from its definition (<vcpu cpuset>), where the emulator set (4-7) has no CPU; to lift the "
    "restriction, name the guest in released_guests (--release-cpuset)"
)
