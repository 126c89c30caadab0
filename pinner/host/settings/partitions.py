"""The partitions of cgroups, with their CPUs."""

from pinner.host.kernel import partitions
from pinner.host.settings.row import HostRow
from pinner.model.states import PartitionState

ROW: HostRow[PartitionState] = HostRow(
    lambda access, target: partitions.partition(access.root, target.owner),
    lambda access, target, state: partitions.set_partition(access.root, target.owner, state, partitions.allow),
)
