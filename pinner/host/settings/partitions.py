"""The partitions of cgroups, with their CPUs."""

from pinner.host.kernel import cgroups
from pinner.host.settings.row import Access, HostRow
from pinner.model.change import Target
from pinner.model.kinds import PartitionState


def _set(access: Access, target: Target, state: PartitionState) -> None:
    cgroups.set_partition(access.root, target.owner, state, cgroups.allow)


ROW = HostRow(lambda access, target: cgroups.partition(access.root, target.owner), _set)
