"""Every strategy on every topology: planned, applied, read back from the kernel, taken back, read back again."""

import time
from contextlib import ExitStack

import pytest
from support.lab import apply, daemon, guests, masks, plan, planned, rollback, stray, wrong


def prove(host, strategy, row):
    """The whole way on one host; ``row`` tells how far it came."""
    before = masks(host)
    made = plan(host, strategy)
    row.append("yes" if not made.blocked else "blocked")
    assert not made.blocked
    assert made.changes
    run, state = apply(host, made)
    row.append(state)
    assert state == "applied"
    after = masks(host)
    row.append("yes" if not wrong(planned(before, made), after) else "NO")
    assert wrong(planned(before, made), after) == []
    assert not {change.target for change in made.changes} & {change.target for change in plan(host, strategy).changes}
    state = rollback(host, run)
    row.append(state)
    assert state == "rolled_back"
    last = masks(host)
    row.append("yes" if not wrong(before, last) else "NO")
    assert wrong(before, last) == []
    return made


@pytest.fixture
def row(record_property, name, request):
    """This test's row of the table."""
    began = time.monotonic()
    cells = [name, request.node.name.partition("[")[2].split("-", 1)[-1]]
    yield cells
    cells += ["-"] * (7 - len(cells))
    record_property("proof", [*cells, f"{time.monotonic() - began:.0f}"])


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_strategy_without_a_reboot(busy, strategy, row):
    row[1] = strategy
    owned = len(busy.topology.seats) - 1
    with daemon(busy, "owned", cpu=owned):
        made = prove(busy, strategy, row)
        assert any("owned" in left.name or str(owned) in left.why for left in made.skipped)
        assert all(owned not in want.cpus for want in made.wanted)


def test_isolation_by_boot_parameters(busy, load, name, lab_host, pool, row):
    row[1] = "isolated"
    asked = plan(busy, "isolated")
    if not asked.blocked:
        assert "isolcpus" in busy.topology.kernel
        prove(busy, "isolated", row)
        return
    arguments = asked.isolation.kernel_arguments
    assert f"reboot with {arguments}" in asked.blocked
    load.close()
    pool.discard(busy)
    rebooted = lab_host(name, arguments)
    with ExitStack() as undo:
        for part in (guests(rebooted), stray(rebooted), daemon(rebooted, "busy")):
            undo.enter_context(part)
        made = prove(rebooted, "isolated", row)
    assert made.isolation.present == asked.isolation.wanted
