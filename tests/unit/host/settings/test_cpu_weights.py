"""The CPU weight of the slice of the guests, in made-up cgroups and with a made-up systemd."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from pinner.host.kernel import cgroups
from pinner.host.settings import cpu_weights, table
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Invalid
from pinner.model.settings.cpu_weights import DEFAULT, RAISED, SLICE, WEIGHT, weight_target
from pinner.model.states import Number

V2 = ("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", f"sys/fs/cgroup/{SLICE}/cpu.weight", 1)
V1 = (
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n",
    f"sys/fs/cgroup/cpu,cpuacct/{SLICE}/cpu.shares",
    10.24,
)
COMMENT = "# This is a drop-in unit file extension, created by systemctl set-property\n# Do not edit.\n"


class Systemd:
    """systemd, as far as it keeps a weight: in the kernel, and in a file for a daemon-reload."""

    def __init__(self, root, mounts, path, factor):
        self.root, self.kernel, self.factor = root, root / path, factor
        self.drop_in = root / cpu_weights.CONTROL / f"{SLICE}.d/50-CPUWeight.conf"
        self.drop_in.parent.mkdir(parents=True)
        (root / "proc").mkdir()
        (root / "proc/mounts").write_text(mounts)
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu io\n")
        self.kernel.parent.mkdir(parents=True)
        self.write(100)

    def write(self, weight):
        self.kernel.write_text(f"{round(weight * self.factor)}\n")

    def set_property(self, unit, assignment):
        assert unit == SLICE
        name, _, value = assignment.partition("=")
        self.drop_in.parent.mkdir(exist_ok=True)
        self.drop_in.write_text(f"{COMMENT}[Slice]\n{name}={value}\n")
        if self.kernel.parent.exists():
            self.write(int(value or 100))

    def show(self):
        value = self.drop_in.read_text().rpartition("=")[2] if self.drop_in.exists() else ""
        return value.strip() or "[not set]"


@pytest.fixture(params=[V1, V2], ids=["v1", "v2"])
def systemd(request, tmp_path, monkeypatch):
    made = Systemd(tmp_path / "root", *request.param)
    monkeypatch.setattr(cpu_weights, "set_property", made.set_property)
    monkeypatch.setattr(cpu_weights, "_shown", made.show)
    return made


def test_the_guests_get_their_weight_and_nothing_is_left_after_the_undo(systemd):
    root = systemd.root
    assert cpu_weights.read_cpu_weights(root) == {SLICE: 100}
    table.set_state(root, WEIGHT, RAISED)
    assert table.state_of(root, WEIGHT) == RAISED
    assert cpu_weights.read_cpu_weights(root) == {SLICE: 1000}
    assert "CPUWeight=1000" in systemd.drop_in.read_text()
    table.set_state(root, WEIGHT, DEFAULT)
    assert table.state_of(root, WEIGHT) == DEFAULT
    assert list((root / cpu_weights.CONTROL).iterdir()) == []


def test_an_undo_without_a_guest_reaches_systemd(systemd):
    """The slice has no cgroup then, and the next guest must not find the weight of the run."""
    table.set_state(systemd.root, WEIGHT, RAISED)
    systemd.kernel.unlink()
    systemd.kernel.parent.rmdir()
    assert cpu_weights.read_cpu_weights(systemd.root) == {}
    assert table.state_of(systemd.root, WEIGHT) == RAISED
    table.set_state(systemd.root, WEIGHT, DEFAULT)
    assert table.state_of(systemd.root, WEIGHT) == DEFAULT
    assert not systemd.drop_in.exists()


def test_an_undo_waits_for_the_end_of_the_slice_of_ended_guests(systemd, monkeypatch):
    """systemd gives no weight to a slice that it has stopped, whose cgroup ends somewhat later."""
    table.set_state(systemd.root, WEIGHT, RAISED)
    monkeypatch.setattr(systemd, "write", lambda _: None)

    def end_of_slice(_):
        systemd.kernel.unlink()
        systemd.kernel.parent.rmdir()

    cpu_weights.set_weight(systemd.root, WEIGHT, DEFAULT, end_of_slice)
    assert table.state_of(systemd.root, WEIGHT) == DEFAULT
    assert not systemd.drop_in.exists()


def test_an_undo_that_the_kernel_does_not_show_leaves_no_file(systemd, monkeypatch):
    table.set_state(systemd.root, WEIGHT, RAISED)
    monkeypatch.setattr(systemd, "write", lambda _: None)
    times = iter(range(100))
    with pytest.raises(ApplyFailed, match=r"weight machine\.slice: asked for 100, the kernel says 1000"):
        cpu_weights.set_weight(systemd.root, WEIGHT, DEFAULT, lambda _: None, lambda: next(times))
    assert not systemd.drop_in.exists()


def test_a_weight_that_systemd_may_still_set_after_its_time_is_unset(systemd, monkeypatch):
    """A killed systemctl takes no request back; the next request comes after it."""
    asked = []

    def set_property(unit, assignment):
        asked.append(assignment)
        systemd.set_property(unit, assignment)
        if len(asked) == 1:
            raise ApplyFailed(f"unit {unit}", "systemd does not answer: timed out after 5 seconds")

    monkeypatch.setattr(cpu_weights, "set_property", set_property)
    with pytest.raises(ApplyFailed, match="timed out after 5 seconds"):
        cpu_weights.set_weight(systemd.root, WEIGHT, RAISED)
    assert asked == ["CPUWeight=1000", "CPUWeight="]
    assert table.state_of(systemd.root, WEIGHT) == DEFAULT
    assert not systemd.drop_in.exists()


def test_the_words_of_a_systemd_that_refuses_both_are_those_of_the_first_refusal(systemd, monkeypatch):
    def set_property(unit, assignment):
        raise ApplyFailed(f"unit {unit}", f"systemd refuses {assignment}")

    monkeypatch.setattr(cpu_weights, "set_property", set_property)
    with pytest.raises(ApplyFailed, match="systemd refuses CPUWeight=1000"):
        cpu_weights.set_weight(systemd.root, WEIGHT, RAISED)


def test_a_weight_of_idle_is_somebodys(tmp_path, monkeypatch):
    """Where no guest runs, systemd says it by a word; the kernel shows 0."""
    monkeypatch.setattr(cpu_weights, "_shown", lambda: "idle\n")
    assert cpu_weights.weight_of(tmp_path, WEIGHT) == Number(0)


@pytest.mark.parametrize("shown", ["[not set]", "18446744073709551615", "", "x"])
def test_systemd_says_in_several_ways_that_nobody_has_set_a_weight(tmp_path, monkeypatch, shown):
    monkeypatch.setattr(cpu_weights, "_shown", lambda: shown)
    assert cpu_weights.weight_of(tmp_path, WEIGHT) == DEFAULT


def test_other_files_of_systemd_stay(systemd):
    cpuset, own = systemd.drop_in.with_name("50-AllowedCPUs.conf"), f"{COMMENT}[Slice]\nCPUWeight=\nCPUQuota=5%\n"
    cpuset.write_text("[Slice]\nAllowedCPUs=0-3\n")
    table.set_state(systemd.root, WEIGHT, DEFAULT)
    assert list(systemd.drop_in.parent.iterdir()) == [cpuset]
    systemd.drop_in.write_text(own)
    cpu_weights._remove_drop_in(systemd.root)
    assert systemd.drop_in.read_text() == own


def test_a_file_that_cannot_be_removed_is_named(systemd, monkeypatch):
    def unlink(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(ApplyFailed, match=r"50-CPUWeight\.conf stays: .*ReadWritePaths=/run/systemd/system\.control"):
        table.set_state(systemd.root, WEIGHT, DEFAULT)
    assert table.state_of(systemd.root, WEIGHT) == DEFAULT


def test_a_weight_that_the_kernel_does_not_show_is_an_error(systemd, monkeypatch):
    monkeypatch.setattr(systemd, "write", lambda _: None)
    times = iter(range(100))
    with pytest.raises(ApplyFailed, match=r"weight machine\.slice: asked for 1000, the kernel says 100"):
        cpu_weights.set_weight(systemd.root, WEIGHT, RAISED, lambda _: None, lambda: next(times))
    assert not systemd.drop_in.exists()


@pytest.mark.parametrize(
    ("target", "weight"),
    [
        (weight_target("system.slice"), 1000),
        (weight_target("../../etc"), 1000),
        (weight_target("--help"), 1000),
        (Target("weight", SLICE, 1, SLICE), 1000),
        (WEIGHT, 0),
        (WEIGHT, 10_001),
        (WEIGHT, -1),
    ],
)
def test_another_slice_or_weight_never_reaches_systemd(systemd, monkeypatch, target, weight):
    monkeypatch.setattr(cpu_weights, "set_property", lambda *_: pytest.fail("systemd is asked"))
    with pytest.raises(Invalid, match="CPU weight"):
        cpu_weights.set_weight(systemd.root, target, Number(weight))


@pytest.mark.parametrize("mounts", ["", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"])
def test_a_host_without_the_slice_has_no_weight(tmp_path, mounts):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text(mounts)
    assert cpu_weights.read_cpu_weights(tmp_path) == {}


def test_systemd_that_refuses_or_does_not_answer_is_an_error(tmp_path, monkeypatch):
    called = []

    def run(command, **_):
        called.append(command)
        raise subprocess.CalledProcessError(1, command, stderr="Failed to set unit properties: Access denied\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(
        ApplyFailed, match="systemd refuses CPUWeight=1000: Failed to set unit properties: Access denied"
    ):
        cgroups.set_property(SLICE, "CPUWeight=1000")
    with pytest.raises(ApplyFailed, match=r"weight machine\.slice: systemd does not tell it: Failed .*: Access denied"):
        cpu_weights.weight_of(tmp_path, WEIGHT)
    assert called[0] == ["systemctl", "set-property", "--runtime", "--", SLICE, "CPUWeight=1000"]


def test_the_unit_of_the_agent_may_remove_the_file():
    unit = (Path(__file__).parents[4] / "etc/pinner/pinner-agent.service").read_text()
    assert f"ReadWritePaths=-/{cpu_weights.CONTROL}\n" in unit
    assert f"ExecStartPre=+/bin/mkdir -p -m 755 /{cpu_weights.CONTROL}\n" in unit
