"""The kernel's CPUs for unbound work."""

from pinner.host.kernel import cgroups
from pinner.host.settings.row import Access, HostRow
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet


def _set(access: Access, _target: Target, cpus: CpuSet) -> None:
    cgroups.set_unbound(access.root, cpus)


ROW = HostRow(lambda access, _target: cgroups.unbound(access.root), _set)
