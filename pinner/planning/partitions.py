"""Cgroup v2 partitions and the work queues' CPUs: what they are, and the commands that change them."""

from collections.abc import Iterator

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot

WORK = Target("workqueue", "", None, "unbound kernel work")
_MOUNT = "/sys/fs/cgroup"
_POSSIBLE = "/sys/devices/system/cpu/possible"
_WORKQUEUE = "/sys/devices/virtual/workqueue/cpumask"


def settings(snapshot: Snapshot) -> dict[Target, str]:
    """Everything that has a state, with its state: the cgroups of the guests' units, and the work queues."""
    found = {cgroup_target(cgroup.path): cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups}
    unbound = snapshot.topology.kernel.unbound
    return found | ({WORK: str(unbound)} if unbound else {})


def cgroup_target(path: str) -> Target:
    """The cgroup at ``path``."""
    return Target("partition", path, None, path.rpartition("/")[2])


def partitioned(snapshot: Snapshot, request: Request) -> CpuSet:
    """The CPUs in partitions of guests' units, where the request is about those: it may share them out anew."""
    if request.isolation != "live":
        return CpuSet()
    states = (cgroup.state.split(" ") for guest in snapshot.guests for cgroup in guest.cgroups)
    return union(CpuSet.parse(state[1]) for state in states if len(state) == 2 and state[0] in ("root", "isolated"))


def commands(target: Target, state: str) -> Iterator[str]:
    """The shell commands that give the target this state."""
    if target.kind == "workqueue":
        yield f"echo {CpuSet.parse(state).mask()} > {_WORKQUEUE}"
        return
    kind, _, cpus = state.partition(" ")
    allow = f"systemctl set-property --runtime '{target.name}' AllowedCPUs={cpus}"
    folder = f"{_MOUNT}/{target.owner}"
    become = f"echo {kind} > '{folder}/cpuset.cpus.partition'"
    if kind == "member":
        own = cpus or f"$(cat {_POSSIBLE})"
        yield from (become, allow, f"echo {own} > '{folder}/cpuset.cpus'")
    else:
        yield from (allow, become, f"cat '{folder}/cpuset.cpus.partition'  # must say: {kind}; else it says why not")
