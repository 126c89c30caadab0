from benchmarks.peers.generated import Shape
from benchmarks.planning.comparison import REQUEST, Case
from benchmarks.report.timing import clear_caches

from pinner.model import cpuset
from pinner.planning.packing import heuristic, patterns
from pinner.planning.planner import plan
from pinner.planning.strategies.allocator import guest_packing

KEPT = (
    cpuset._read,
    cpuset._written,
    heuristic.fullest,
    guest_packing._improved,
    guest_packing._packed_by_rules,
    patterns.partitions,
)


def test_no_cache_of_an_earlier_plan_is_left_for_a_measurement():
    plan(Case.of(Shape(64, 2, 4), 10, "any").snapshot(), "s", REQUEST)
    assert any(each.cache_info().currsize for each in KEPT)
    clear_caches()
    assert [each.cache_info().currsize for each in KEPT] == [0] * len(KEPT)
