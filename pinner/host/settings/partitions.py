"""The partitions of cgroups, with their CPUs."""

from pinner.host.kernel import partitions
from pinner.host.settings.row import Access, HostRow
from pinner.model.change import Target
from pinner.model.kinds import PartitionState


def _set(access: Access, target: Target, state: PartitionState) -> None:
    partitions.set_partition(access.root, target.owner, state, partitions.allow)


ROW = HostRow(lambda access, target: partitions.partition(access.root, target.owner), _set)
