"""Every strategy on every topology: planned, applied and rolled back, with the masks read from the kernel."""

import time
from contextlib import ExitStack

import pytest
from support.system.lab import apply, daemon, guests, masks, plan, planned, rollback, shell_process, wrong


def verify(host, strategy, row):
    """Plan, apply and roll back on one host; ``row`` gets the result of each step."""
    before = masks(host)
    new_plan = plan(host, strategy)
    row.append("yes" if not new_plan.blocked else "blocked")
    assert not new_plan.blocked
    assert new_plan.changes
    run, state = apply(host, new_plan)
    row.append(state)
    assert state == "applied"
    after = masks(host)
    row.append("yes" if not wrong(planned(before, new_plan), after) else "NO")
    assert wrong(planned(before, new_plan), after) == []
    assert not {change.target for change in new_plan.changes} & {
        change.target for change in plan(host, strategy).changes
    }
    state = rollback(host, run)
    row.append(state)
    assert state == "rolled_back"
    last = masks(host)
    row.append("yes" if not wrong(before, last) else "NO")
    assert wrong(before, last) == []
    return new_plan


@pytest.fixture
def row(record_property, name, request):
    """This test's row of the table of results."""
    began = time.monotonic()
    cells = [name, request.node.name.partition("[")[2].split("-", 1)[-1]]
    yield cells
    cells += ["-"] * (7 - len(cells))
    record_property("result", [*cells, f"{time.monotonic() - began:.0f}"])


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_strategy_is_applied_without_a_reboot(busy, strategy, row):
    row[1] = strategy
    # A node of one core has none to spare: where a privileged process owns a thread of it, every plan is blocked.
    owned = max(max(busy.topology.nodes, key=lambda node: len(node.cpus)).cpus)
    with daemon(busy, "owned", cpu=owned):
        new_plan = verify(busy, strategy, row)
        assert any("owned" in skipped.label or str(owned) in skipped.why for skipped in new_plan.skipped)
        assert all(owned not in want.cpus for want in new_plan.wanted)


def test_isolated_is_applied_with_boot_parameters(busy, load, name, lab_host, pool, row):
    row[1] = "isolated"
    proposed = plan(busy, "isolated")
    if not proposed.blocked:
        assert "isolcpus" in busy.topology.kernel
        verify(busy, "isolated", row)
        return
    arguments = proposed.isolation.kernel_arguments
    assert f"reboot with {arguments}" in proposed.blocked
    load.close()
    pool.discard(busy)
    rebooted = lab_host(name, arguments)
    with ExitStack() as undo:
        for part in (guests(rebooted), shell_process(rebooted), daemon(rebooted, "busy")):
            undo.enter_context(part)
        new_plan = verify(rebooted, "isolated", row)
    assert new_plan.isolation.present == proposed.isolation.wanted
