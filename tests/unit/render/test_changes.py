import pytest
from support.values import MEMBER, cpus, isolated, make_change

from pinner.model.change import MemoryChange, StateChange, Target
from pinner.render import before_and_after

SCOPE = Target("partition", "machine.slice/g1.scope", None, "g1.scope")
WORK = Target("workqueue", "", None, "unbound kernel work")
MEMORY = Target("memory", "uuid-g1", 7, "g1")


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (make_change(before="0-3", after="1", threads=2), ("0-3", "1")),
        (StateChange(SCOPE, MEMBER, isolated("4-7"), "so"), ("member", "isolated 4-7")),
        (StateChange(SCOPE, isolated("4-7"), MEMBER, "so"), ("isolated 4-7", "member")),
        (StateChange(WORK, cpus("0-7"), cpus("0-1"), "so"), ("0-7", "0-1")),
        (MemoryChange(MEMORY, {1: 2048}, 0, "", "so"), ("node 1: 2.0 MiB", "node 0")),
    ],
)
def test_before_and_after_of_each_kind_of_change(change, shown):
    assert before_and_after(change) == shown
