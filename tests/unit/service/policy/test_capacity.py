"""The room of a host as the service reads it: the policy that counts, how long it is kept, and the metrics."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.fakes.hosted_agent import HostedAgent
from support.hosts import GIB, cpus, guest, plain, snapshot

from pinner import wiring
from pinner.model.errors import HostUnreachable, Invalid, NotFound
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.questions import Capacity, GuestShape, NewGuests, Scenario
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts
from pinner.service.policy import capacity
from pinner.store.repositories import open_store

ANN = Caller("ann", "cli", "req-1")
HOST = plain(32, 2)


@pytest.fixture
def agent(tmp_path):
    made = HostedAgent(tmp_path / "agent", snapshot(HOST, [guest(1, 2, cpus("0-31"))]), wiring.now)
    with closing(made.journal):
        yield made


@pytest.fixture
def parts(tmp_path, agent):
    with (
        open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store,
        closing(ServiceParts({"compute1": agent}, store, wiring.now, lambda: uuid.uuid4().hex[:12], 0.0)) as parts,
    ):
        yield parts


@pytest.fixture
def clock(parts, monkeypatch):
    """The reader's clock, which stands still."""
    seconds = [1000.0]
    monkeypatch.setattr(parts.service.capacity.__self__, "_clock", lambda: seconds[0])
    return seconds


def free(found: Capacity, strategy: str = "shared-pool") -> int:
    return next(each.free_vcpus for each in found.strategies if each.strategy == strategy)


def room_metrics(parts) -> dict[tuple[str, ...], float]:
    text = parts.monitor.metrics.text().decode()
    families = [each for each in text_string_to_metric_families(text) if each.name == "pinner_free_vcpus"]
    return {tuple(each.labels.values()): each.value for family in families for each in family.samples}


def test_without_a_policy_the_default_strategy_counts(parts):
    found = parts.service.capacity("compute1")
    assert (found.mode, found.strategy, free(found)) == (None, "shared-pool", 22)
    assert [dict(each.guests) for each in found.strategies if each.strategy == "shared-pool"] == [
        {1: 22, 2: 11, 4: 5, 8: 2, 16: 1, 32: 0}
    ]
    assert {tuple(each.guests) for each in parts.service.capacity("compute1", 3).strategies} == {(3,)}


def test_guests_of_one_shape_are_planned(parts):
    shape = GuestShape(4, 40 * GIB)
    found = parts.service.capacity("compute1", 4, shape)
    fitting = {each.strategy: each.guests for each in found.fitting}
    assert [fitting[name] for name in ("isolated", "numa-local", "shared-pool")] == [0, 2, 3]
    assert (found.shape, parts.service.capacity("compute1").fitting) == (shape, ())


def test_what_if_stores_nothing(parts):
    found = parts.service.what_if("compute1", Request(), Scenario((NewGuests(GuestShape(4), 2),)), 0.0)
    assert (found.before.guests, found.after.guests) == (1, 3)
    assert parts.service.plans("compute1", PageRequest()).items == ()
    with pytest.raises(NotFound):
        parts.service.what_if("elsewhere", Request(), Scenario(), 0.0)


def test_a_stored_plan_is_explained_and_a_plan_of_a_policy_is_not(parts):
    made = parts.service.plan("compute1", Request("numa-local"), None, 0.0, ANN)
    found = parts.service.explain(made.id, "g1")
    assert [each.kind for each in found.alternatives] == ["node", "now"]
    parts.service.set_policy("compute1", Policy(Request("numa-local"), "propose"), ANN)
    parts.reconciler.reconcile("compute1", "started")
    proposed = [each.id for each in parts.service.plans("compute1", PageRequest()).items if each.id != made.id]
    for plan in proposed:
        with pytest.raises(Invalid, match="follows a recorded placement"):
            parts.service.explain(plan, "g1")


def test_the_policy_and_the_recorded_placement_count(parts, clock):
    parts.service.set_policy("compute1", Policy(Request("numa-local", housekeeping="0-7"), "enforce"), ANN)
    parts.reconciler.reconcile("compute1", "started")
    found = parts.service.capacity("compute1")
    assert (found.mode, found.strategy) == ("enforce", "numa-local")
    local = next(each for each in found.strategies if each.strategy == "numa-local")
    assert sum(len(node.cpus) for node in local.nodes) == local.free_vcpus + 2
    assert all(not node.cpus & cpus("0-7") for node in local.nodes)


def test_callers_within_two_seconds_share_one_scan(parts, agent, clock):
    before = parts.service.capacity("compute1")
    agent.host.taken = replace(agent.host.taken, guests=())
    assert parts.service.capacity("compute1") == before
    clock[0] += capacity.FRESH_SECONDS
    assert free(parts.service.capacity("compute1")) == 24


def test_many_callers_at_once_cause_one_scan(parts, agent, clock, monkeypatch):
    taken = agent.snapshot
    scans = []

    def slow(sample_seconds):
        scans.append(sample_seconds)
        time.sleep(0.1)
        return taken(sample_seconds)

    monkeypatch.setattr(agent, "snapshot", slow)
    with ThreadPoolExecutor(20) as pool:
        assert len({free(each) for each in pool.map(parts.service.capacity, ["compute1"] * 20)}) == 1
    assert len(scans) == 1


@pytest.mark.parametrize("vcpus", [0, -1, 8193, 10**30])
def test_an_impossible_size(parts, vcpus):
    with pytest.raises(Invalid, match="a number of vCPUs from 1 to 8192"):
        parts.service.capacity("compute1", vcpus)


def test_an_unknown_host(parts):
    with pytest.raises(NotFound):
        parts.service.capacity("elsewhere")


def test_the_metrics_have_the_room_of_each_node(parts):
    assert room_metrics(parts) == {}
    parts.monitor.check()
    strategies = ("shared-pool", "numa-local", "exclusive")
    assert room_metrics(parts) == {("compute1", node, strategy): 11.0 for strategy in strategies for node in ("0", "1")}


def test_a_host_that_cannot_be_read_has_no_metrics_of_its_room(parts, agent, clock, monkeypatch):
    parts.monitor.check()
    assert room_metrics(parts)
    clock[0] += 60

    def unreachable(_):
        raise HostUnreachable("compute1", "libvirt is gone")

    monkeypatch.setattr(agent, "snapshot", unreachable)
    monkeypatch.setattr(parts.monitor, "_room_at", None)
    parts.monitor.check()
    assert room_metrics(parts) == {}
