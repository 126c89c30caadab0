"""Frequency governors in a made-up sysfs: the machines of the tests have none."""

import errno
import os
from pathlib import Path

import pytest
from support.values import cpus

from pinner.host.captured.capture import capture
from pinner.host.hardware.sysfs import read_topology
from pinner.host.settings import table
from pinner.host.settings.power import governors
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.machine.topology import FrequencyDomain
from pinner.model.states import Governor

FAST = Governor("performance")


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root" / governors.FOLDER
    for number, related, governor in ((0, "0 1", "powersave"), (10, "10", "ondemand"), (2, "2 3", "powersave")):
        (folder / f"policy{number}").mkdir(parents=True)
        (folder / f"policy{number}/related_cpus").write_text(f"{related} \n")
        (folder / f"policy{number}/scaling_governor").write_text(f"{governor}\n")
    (folder / "ondemand").mkdir()
    return tmp_path / "root"


OF_CPUS = {0: "powersave", 1: "powersave", 2: "powersave", 3: "powersave", 10: "ondemand"}


def target(mask="2-3", number=2):
    return FrequencyDomain(number, cpus(mask), FAST).target


def of_machine(root):
    of_cpus = {cpu.id: cpu.governor for cpu in read_topology(root).cpus if cpu.governor}
    return governors.read_governors(root, of_cpus)


def now(root, number=2):
    return (root / governors.FOLDER / f"policy{number}/scaling_governor").read_text().strip()


def test_the_governors_are_read(root, tmp_path):
    assert governors.read_governors(root, OF_CPUS) == (
        FrequencyDomain(0, cpus("0-1"), Governor("powersave")),
        FrequencyDomain(2, cpus("2-3"), Governor("powersave")),
        FrequencyDomain(10, cpus("10"), Governor("ondemand")),
    )
    assert governors.read_governors(tmp_path / "nothing", OF_CPUS) == ()


def test_a_capture_of_an_older_pinner_has_no_known_governors(root):
    for related in root.glob(f"{governors.FOLDER}/*/related_cpus"):
        related.unlink()
    assert governors.read_governors(root, OF_CPUS) is None


def test_offline_cpus_and_malformed_files_are_left_out(root):
    folder = root / governors.FOLDER
    (folder / "policy0/related_cpus").unlink()
    (folder / "policy10/related_cpus").write_text("99999999\n")
    assert [domain.number for domain in governors.read_governors(root, OF_CPUS)] == [2]
    assert [domain.number for domain in governors.read_governors(root, {3: "powersave"})] == [2]
    assert governors.read_governors(root, {0: "powersave"}) is None
    assert governors.read_governors(root, OF_CPUS | {2: "<unsupported>"}) is None


def test_cpus_get_their_governor_and_their_old_one_back(root):
    table.set_state(root, target(), FAST)
    assert (now(root), now(root, 0), table.state_of(root, target())) == ("performance", "powersave", FAST)
    table.set_state(root, target(), Governor("powersave"))
    assert now(root) == "powersave"


@pytest.mark.parametrize("other", [target("2"), target("2-4"), target("4", 4)], ids=str)
def test_cpus_that_are_others_now_are_gone(root, other):
    for act in (governors.governor_of, lambda *args: governors.set_governor(*args, FAST)):
        with pytest.raises(Gone, match="governor of CPUs"):
            act(root, other)
    assert now(root) == "powersave"


@pytest.mark.parametrize("file", ["related_cpus", "scaling_governor"])
def test_cpus_that_are_offline_are_not_gone(root, file):
    """An undo would call them gone, and forget their governor."""
    (root / governors.FOLDER / "policy2" / file).unlink()
    with pytest.raises(ApplyFailed, match="are all its CPUs offline"):
        governors.governor_of(root, target())


@pytest.mark.parametrize(
    ("asked", "governor"),
    [
        (Target("governor", "2-3", None, "x"), FAST),
        (Target("governor", "2-3", -1, "x"), FAST),
        (target(), Governor("../../x")),
        (target(), Governor("")),
        (target(), Governor("performance\n1")),
        (target(), Governor("x" * 16)),
    ],
)
def test_a_target_or_governor_of_another_form_is_refused(root, asked, governor):
    with pytest.raises(Invalid, match="governor"):
        governors.set_governor(root, asked, governor)
    assert now(root) == "powersave"


def test_a_link_is_not_followed(root, tmp_path):
    outside = tmp_path / "outside"
    (root / governors.FOLDER / "policy2").rename(outside)
    (root / governors.FOLDER / "policy2").symlink_to(outside)
    with pytest.raises(Gone):
        governors.set_governor(root, target(), FAST)
    assert (outside / "scaling_governor").read_text() == "powersave\n"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EINVAL, ApplyFailed, "the kernel refuses performance: Invalid argument; does the kernel have this"),
        (errno.EPERM, ApplyFailed, "the kernel refuses performance: Operation not permitted"),
        (errno.EROFS, ApplyFailed, "lacks ReadWritePaths=/sys/devices/system/cpu: renew it with pinner-manage"),
        (errno.ENOENT, Gone, "governor of CPUs 2-3"),
    ],
)
def test_the_kernels_words_say_why_it_refuses(root, monkeypatch, code, kind, words):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(kind, match=words):
        governors.set_governor(root, target(), FAST)


def test_a_governor_that_the_kernel_does_not_take_is_a_failure(root, monkeypatch):
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(ApplyFailed, match="asked for performance, the kernel says"):
        governors.set_governor(root, target(), FAST)


def test_a_capture_has_the_governors(root, tmp_path):
    cpu = root / "sys/devices/system/cpu/cpu0"
    cpu.mkdir()
    (cpu / "cpufreq").symlink_to("../cpufreq/policy0")
    (root / "sys/devices/system/cpu/present").write_text("0\n")
    capture(root, tmp_path / "captured", scrub=True)
    (captured,) = of_machine(tmp_path / "captured")
    assert (captured,) == of_machine(root)


def test_the_unit_of_the_agent_may_write_the_governors():
    unit = Path(__file__).parents[5] / "etc/pinner/pinner-agent.service"
    assert "ReadWritePaths=-/sys/devices/system/cpu\n" in unit.read_text()
