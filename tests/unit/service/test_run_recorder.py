import pytest
from support.values import cpus, make_change

from pinner.model.change import Change, MemoryChange, Target
from pinner.service.run_recorder import before_and_after

SCOPE = Target("partition", "machine.slice/g1.scope", None, "g1.scope")
WORK = Target("workqueue", "", None, "unbound kernel work")
MEMORY = Target("memory", "uuid-g1", 7, "g1")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (make_change(before="0-3", after="1", threads=2), ("0-3 (2 threads)", "1")),
        (Change(SCOPE, (), cpus("4-7"), "so", ("member", "isolated 4-7")), ("member", "isolated 4-7")),
        (Change(SCOPE, (), cpus(""), "so", ("isolated 4-7", "member")), ("isolated 4-7", "member")),
        (Change(WORK, (), cpus("0-1"), "so", ("0-7", "0-1")), ("0-7", "0-1")),
        (MemoryChange(MEMORY, {1: 2048}, 0, "", "so"), ("node 1: 2.0 MiB", "node 0")),
    ],
)
def test_the_audit_trail_shows_a_change_before_and_after(change, told):
    assert before_and_after(change) == told
