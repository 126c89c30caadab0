"""The CPU weight of the guests on a lab host: set through systemd, kept over its reload, put back, restored exactly."""

import time
from contextlib import contextmanager

import pytest
from support.system.lab import CALLER, apply, ended, guests, name, plan, rollback, run_server, server

from pinner.model.run.journal import ApplyOptions
from pinner.model.settings.cpu_weights import DEFAULT, RAISED, SLICE, WEIGHT
from pinner.model.states import Number

KERNEL = f"/sys/fs/cgroup/{SLICE}/cpu.weight"
FOLDER = f"/run/systemd/system.control/{SLICE}.d"
SYSTEMCTL, REAL, KILLER = "/usr/bin/systemctl", "/usr/local/bin/real-systemctl", "/usr/local/bin/killing-systemctl"
_KILLER = f"""\
#!/bin/sh
{REAL} "$@"
status=$?
case "$*" in "set-property --runtime -- {SLICE} CPUWeight=$(cat {KILLER}.at)") kill -KILL $PPID;; esac
exit $status
"""
"""systemctl that kills its caller, the agent, once it has set this weight."""


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
    back, state = ended(two_socket, server(two_socket).rollback(run, CALLER))
    assert state.startswith("rolled_back_partly")  # the guests are gone
    (weight,) = [entry for entry in server(two_socket).entries(back) if entry.change.target == WEIGHT]
    assert (weight.state, weight.error) == ("undone", "")
    assert found(two_socket)[1:] == before[1:]
    with guests(two_socket):
        assert found(two_socket) == before


@contextmanager
def kill_after(host, weight):
    """The agent is killed as soon as systemd has this weight; afterwards the server runs again."""
    host.run(f"cp {SYSTEMCTL} {REAL} && cat > {KILLER} && chmod 755 {KILLER}", stdin=_KILLER)
    host.run(f"printf %s {weight} > {KILLER}.at && mount --bind {KILLER} {SYSTEMCTL}")
    try:
        yield
        deadline = time.monotonic() + 240
        # systemd forgets the ended unit only after its last process; until then it starts no other one of that name.
        while host.run(f"{REAL} show --property=LoadState --value pinner").out.strip() != "not-found":
            assert time.monotonic() < deadline, "the agent was not killed"
            time.sleep(1)
    finally:
        host.run(f"umount --lazy {SYSTEMCTL}")
    run_server(host)


def test_a_kill_between_the_weight_and_the_journal_leaves_nothing(two_socket):
    """Neither during an apply nor during its rollback, where systemd's file is still to be removed."""
    with guests(two_socket):
        before = found(two_socket)
        made = plan(two_socket, remedies=("cpu-weights",))
        with kill_after(two_socket, RAISED):
            run = server(two_socket).apply(made.id, ApplyOptions(allow_worse=True), CALLER)
        _, state = ended(two_socket, run)
        assert state.startswith("undone")
        assert found(two_socket) == before

        run, state = apply(two_socket, plan(two_socket, remedies=("cpu-weights",)))
        assert state == "applied"
        with kill_after(two_socket, ""):
            back = server(two_socket).rollback(run, CALLER)
        _, state = ended(two_socket, back)
        assert state.startswith("rolled_back")
        assert found(two_socket) == before


def test_a_weight_that_a_person_sets_later_stays(two_socket):
    with guests(two_socket):
        before = found(two_socket)
        run, state = apply(two_socket, plan(two_socket, remedies=("cpu-weights",)))
        assert state == "applied"
        two_socket.run(f"systemctl set-property --runtime {SLICE} CPUWeight=300")
        again = plan(two_socket, remedies=("cpu-weights",))
        assert weights(again) == []
        assert [left.why for left in again.skipped if left.target == WEIGHT] == [
            "its weight is 300, which somebody has set"
        ]
        ended_as = rollback(two_socket, run)
        assert ended_as.startswith("rolled_back_partly")
        assert f"{WEIGHT} was set to '300' by another program" in ended_as
        assert found(two_socket)[:2] == ("300", "300")
        two_socket.run(f"systemctl revert {SLICE}")
        assert found(two_socket)[:2] == before[:2]
