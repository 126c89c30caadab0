import pytest

from pinner import codec
from pinner.model.change import MemoryChange, Target
from pinner.model.run.journal import Entry, NodeMemory, memory_moved, moved_text
from pinner.model.text import memory_by_node, mib


def test_two_readings_are_compared_node_by_node():
    parts = memory_moved({1: 500, 0: 20}, {0: 510, 4: 10})
    assert parts == (NodeMemory(0, 20, -490, 510), NodeMemory(1, 500, 500, 0), NodeMemory(4, 0, -10, 10))
    assert moved_text(parts) == "node 1: 500 KiB moved, 0 KiB stayed"


def test_memory_that_stayed_is_shown():
    assert moved_text(memory_moved({1: 2048}, {1: 2048})) == "node 1: 0 KiB moved, 2.0 MiB stayed"


@pytest.mark.parametrize(("kib", "text"), [(0, "0 KiB"), (1023, "1023 KiB"), (1536, "1.5 MiB"), (4 << 10, "4.0 MiB")])
def test_sizes_are_shown_in_kib_or_mib(kib, text):
    assert mib(kib) == text


def test_memory_is_shown_by_node():
    assert memory_by_node({4: 2048, 0: 3}) == "node 0: 3 KiB, node 4: 2.0 MiB"
    assert memory_by_node({}) == "nowhere"


def test_a_stored_memory_change_loads_as_a_memory_change(entry_text):
    read = codec.load(Entry, entry_text)
    assert read.change == MemoryChange(Target("memory", "u", 7, "g1"), {1: 5}, 0, "0-1", "so")


@pytest.fixture
def entry_text():
    return """{"run": "r", "seq": 1, "state": "done", "at": "2026-11-21T12:00:00Z", "change":
        {"target": {"kind": "memory", "owner": "u", "part": 7, "name": "g1"}, "before": {"1": 5}, "node": 0,
         "numatune": "0-1", "reason": "so"}}"""
