"""The CPU sets of a request on a host: automatic sets, small hosts, literal sets and their warnings."""

import pytest
from support.hosts import cpus, interleaved, plain, snapshot, topology

from pinner.model.machine.topology import Topology
from pinner.model.plan.request import Request
from pinner.planning.planner import plan


def sets(top: Topology, strategy: str = "shared-pool", **parameters: str) -> tuple[str, str, str]:
    roles = plan(snapshot(top), "s", Request(strategy, **parameters)).roles
    return str(roles.housekeeping), str(roles.emulator), str(roles.vcpu)


SMT_8 = topology({0: [[c, c + 4] for c in range(4)]})
SMALL_NODES = topology({node: [[c, c + 32] for c in range(4 * node, 4 * node + 4)] for node in range(8)})
"""8 nodes of 4 cores with two threads. An eighth of 64 CPUs are 4 cores: nodes 0-3 give housekeeping one each."""
NODES_EMULATORS = "1,5,9,13,16,20,24,28,33,37,41,45,48,52,56,60"
NODES_VCPUS = "2-3,6-7,10-11,14-15,17-19,21-23,25-27,29-31,34-35,38-39,42-43,46-47,49-51,53-55,57-59,61-63"
UNEVEN = topology({0: [[c] for c in range(16)], 3: [[100]], 7: []})
"""A node of 16 CPUs, one of a single CPU, one of none."""


@pytest.mark.parametrize(
    ("top", "strategy", "expected", "note"),
    [
        (plain(32), "shared-pool", ("0-3", "4-7", "8-31"), ""),
        (plain(64, 2), "shared-pool", ("0-3,32-35", "4-7,36-39", "8-31,40-63"), ""),
        (interleaved(16), "shared-pool", ("0-1,16-17", "2-3,18-19", "4-15,20-31"), ""),
        (plain(3), "shared-pool", ("0", "1", "2"), ""),
        (SMALL_NODES, "shared-pool", ("0,4,8,12,32,36,40,44", NODES_EMULATORS, NODES_VCPUS), ""),
        (plain(2), "shared-pool", ("0", "1", "1"), "emulator threads share CPUs 1 with vCPUs"),
        (plain(2), "numa-local", ("0", "1", "1"), "emulator threads share CPUs 1 with vCPUs"),
        (plain(2), "isolated", ("0", "0", "1"), "emulator threads share CPUs 0 with housekeeping"),
        (plain(1), "shared-pool", ("0", "0", "0"), "one free core: housekeeping, emulators, vCPUs share CPUs 0"),
        (SMT_8, "shared-pool", ("0,4", "1,5", "2-3,6-7"), ""),
        (
            topology({0: [[0, 1]]}),
            "shared-pool",
            ("0-1", "0-1", "0-1"),
            "housekeeping, emulators, vCPUs share CPUs 0-1",
        ),
        (UNEVEN, "shared-pool", ("0-1,100", "2-3,100", "4-15,100"), "node 3 has one free core"),
        (UNEVEN, "isolated", ("0-1,100", "2-3,100", "4-15"), "node 3 has one free core: housekeeping, emulators share"),
        (plain(32, isolated="8-31"), "isolated", ("0-3", "4-7", "8-31"), ""),
        (
            plain(32, isolated="8-31"),
            "shared-pool",
            ("0-3", "4-7", "4-7"),
            "emulator threads share CPUs 4-7 with vCPUs",
        ),
        (
            plain(32, isolated="1-31"),
            "isolated",
            ("0", "0", "1-31"),
            "one free core: housekeeping, emulators share CPUs 0",
        ),
        (plain(32, isolated="2-31"), "isolated", ("0", "1", "2-31"), ""),
    ],
)
def test_automatic_sets_are_an_eighth_of_each_node_and_merge_on_small_ones(
    top: Topology, strategy: str, expected: tuple[str, str, str], note: str
) -> None:
    assert sets(top, strategy) == expected
    notes = plan(snapshot(top), "s", Request(strategy)).roles.notes
    assert len(notes) == bool(note)
    assert note in "".join(notes)


def test_dedicated_cpus_count_in_the_eighth_and_are_not_allocated() -> None:
    roles = plan(snapshot(plain(32), dedicated=cpus("1-20")), "s", Request()).roles
    assert (str(roles.housekeeping), str(roles.emulator), str(roles.vcpu)) == ("0,21-23", "24-27", "28-31")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"housekeeping": "0-3"}, ("0-3", "4-7", "8-31")),
        ({"emulator": "0-3"}, ("4-7", "0-3", "8-31")),
        ({"emulator": "30-31"}, ("0-3", "30-31", "4-29")),
    ],
)
def test_an_automatic_set_avoids_the_literal_one(parameters: dict[str, str], expected: tuple[str, str, str]) -> None:
    assert sets(plain(32), **parameters) == expected


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_a_literal_set_that_splits_a_core_or_spans_sockets_gives_a_warning(strategy: str) -> None:
    made = plan(snapshot(interleaved(16)), "s", Request(strategy, housekeeping="0-1", emulator="2,16,18"))
    assert [warning for warning in made.warnings if "splits" in warning or "spans" in warning] == [
        "housekeeping 0-1 splits cores: CPUs 16 of emulator are siblings of its CPUs",
        "housekeeping 0-1 splits cores: CPUs 17 of vCPUs are siblings of its CPUs",
        "housekeeping 0-1 spans sockets 0, 1",
        "emulator 2,16,18 splits cores: CPUs 0 of housekeeping are siblings of its CPUs",
    ]


def test_isolated_cpus_that_stay_unused_give_a_warning() -> None:
    made = plan(snapshot(plain(32, isolated="8-31", nohz_full="6-31")), "s", Request())
    assert "CPUs 8-31 are isolated from the kernel's scheduler and stay unused" in made.warnings[0]
    assert (
        made.warnings[1]
        == "CPUs 6-7 are nohz_full, but several threads share each of them: their timer tick does not stop"
    )


def test_a_baseline_smaller_than_the_host_gives_a_warning() -> None:
    made = plan(snapshot(plain(32), baseline=cpus("0-15")), "s", Request())
    assert "process 1 may not run on CPUs 16-31" in made.warnings[0]


def test_a_parameter_that_the_strategy_does_not_use_gives_a_warning() -> None:
    made = plan(snapshot(plain(32)), "s", Request("shared-pool", isolation="live"))
    assert made.warnings == ("isolation 'live' has no effect: the strategy shared-pool does not use it",)
