"""The CPU weight of the guests on a lab host: set through systemd, kept over its reload, put back, restored exactly."""

import pytest
from support.lab import apply, guests, name, plan, rollback, server

from pinner.model.change import Number
from pinner.model.cpu_weight import DEFAULT, RAISED, SLICE, WEIGHT

KERNEL = f"/sys/fs/cgroup/{SLICE}/cpu.weight"
FOLDER = f"/run/systemd/system.control/{SLICE}.d"


@pytest.fixture(scope="module")
def two_socket(lab_host):
    return lab_host("two-socket")


def found(host):
    """The kernel's weight, systemd's weight, and the files of systemd."""
    kernel = host.run(f"cat {KERNEL}", check=False).out.strip()
    property_ = host.run(f"systemctl show --property=CPUWeight --value {SLICE}").out.strip()
    return kernel, property_, host.run(f"ls {FOLDER}", check=False).out.split()


def weights(made):
    return [(change.before, change.after) for change in made.changes if change.target == WEIGHT]


def test_the_weight_is_set_kept_over_a_reload_shown_as_drift_and_restored(two_socket):
    with guests(two_socket):
        before = found(two_socket)
        assert before[0] == "100"
        made = plan(two_socket, remedies=("cpu-weights",))
        assert weights(made) == [(DEFAULT, RAISED)]
        run, state = apply(two_socket, made)
        assert state == "applied"
        assert found(two_socket)[:2] == ("1000", "1000")
        two_socket.run("systemctl daemon-reload")
        assert found(two_socket)[:2] == ("1000", "1000")
        assert weights(plan(two_socket, remedies=("cpu-weights",))) == []
        two_socket.run(f"echo 100 > {KERNEL}")
        drifts = {drift.target: drift.states for drift in server(two_socket).drift(name(two_socket)).drifts}
        assert drifts[WEIGHT] == (Number(100), Number(1000))
        two_socket.run(f"echo 1000 > {KERNEL}")
        assert rollback(two_socket, run) == "rolled_back"
        assert found(two_socket) == before
        two_socket.run("systemctl daemon-reload")
        assert found(two_socket) == before


def test_a_rollback_without_guests_leaves_nothing_for_the_next_one(two_socket):
    with guests(two_socket):
        before = found(two_socket)
        run, state = apply(two_socket, plan(two_socket, remedies=("cpu-weights",)))
        assert state == "applied"
    ended = rollback(two_socket, run)
    assert ended.startswith("rolled_back_partly")  # the guests are gone
    assert str(WEIGHT) not in ended
    assert found(two_socket)[1:] == before[1:]
    with guests(two_socket):
        assert found(two_socket) == before
