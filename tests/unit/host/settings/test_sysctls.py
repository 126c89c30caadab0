"""Sysctls in a made-up /proc/sys; tests/functional has those of the kernel."""

import errno
import os
from pathlib import Path

import pytest

from pinner.host.settings import sysctls, table
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.states import Number

RMEM = SYSCTLS["net.core.rmem_max"].target
RUNTIME = SYSCTLS["kernel.sched_rt_runtime_us"].target


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    for path, value in (
        ("net/core/rmem_max", "212992"),
        ("kernel/sched_rt_runtime_us", "950000"),
        ("vm/swappiness", "x"),
    ):
        (made / "proc/sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (made / "proc/sys" / path).write_text(f"{value}\n")
    return made


def test_the_sysctls_of_the_table_are_read_without_those_that_the_kernel_lacks(root, tmp_path):
    assert sysctls.read_sysctls(root) == {"net.core.rmem_max": 212992, "kernel.sched_rt_runtime_us": 950000}
    assert sysctls.read_sysctls(tmp_path / "nothing") is None


def test_a_sysctl_gets_its_value_and_its_old_one_back(root):
    file = root / "proc/sys/kernel/sched_rt_runtime_us"
    before = table.state_of(root, RUNTIME)
    table.set_state(root, RUNTIME, Number(-1))
    assert (before, file.read_text(), table.state_of(root, RUNTIME)) == (Number(950000), "-1", Number(-1))
    table.set_state(root, RUNTIME, before)
    assert (file.read_text(), table.state_of(root, RUNTIME)) == ("950000", before)


@pytest.mark.parametrize("key", ["net.core.somaxconn", "vm.swappiness"])
def test_a_sysctl_that_this_kernel_lacks_is_gone(root, key):
    target = SYSCTLS[key].target
    with pytest.raises(Gone, match=f"sysctl {key} is gone"):
        sysctls.value_of(root, target)
    (root / "proc/sys/vm/swappiness").unlink(missing_ok=True)
    with pytest.raises(Gone):
        sysctls.set_value(root, target, Number(1))
    assert not (root / "proc/sys/vm/swappiness").exists()


@pytest.mark.parametrize(
    "target",
    [
        Target("sysctl", "kernel.core_pattern", None, "x"),
        Target("sysctl", "../../etc/passwd", None, "x"),
        Target("sysctl", "net/core/rmem_max", None, "x"),
        Target("sysctl", "", None, "x"),
        Target("sysctl", "net.core.rmem_max", 1, "x"),
    ],
    ids=str,
)
def test_no_other_file_is_opened(root, target, monkeypatch):
    monkeypatch.setattr(os, "open", None)
    for act in (sysctls.value_of, lambda *args: sysctls.set_value(*args, Number(1))):
        with pytest.raises(Invalid, match=r"one of: kernel\.numa_balancing"):
            act(root, target)


def test_a_link_in_the_place_of_the_file_or_folder_is_not_followed(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "rmem_max").write_text("7\n")
    (root / "proc/sys/net/core/rmem_max").unlink()
    (root / "proc/sys/net/core/rmem_max").symlink_to(outside / "rmem_max")
    with pytest.raises(ApplyFailed):
        sysctls.set_value(root, RMEM, Number(9))
    (root / "proc/sys/net/core/rmem_max").unlink()
    (root / "proc/sys/net/core").rmdir()
    (root / "proc/sys/net/core").symlink_to(outside)
    with pytest.raises(ApplyFailed):
        sysctls.set_value(root, RMEM, Number(9))
    assert (outside / "rmem_max").read_text() == "7\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EINVAL, "the kernel refuses 9: Invalid argument$"),
        (errno.EBUSY, "the kernel refuses 9: Device or resource busy$"),
        (errno.ENOMEM, "the kernel refuses 9: Cannot allocate memory$"),
        (errno.EROFS, "the kernel refuses 9: Read-only file system; the unit of the agent lacks this file"),
        (errno.EPERM, "the kernel refuses 9: Operation not permitted; the agent may need CAP_SYS_ADMIN"),
        (errno.EACCES, "the kernel refuses 9: Permission denied; the file may be written by root only, or by nobody"),
    ],
)
def test_the_kernels_words_say_why_it_refuses(root, monkeypatch, code, words):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(ApplyFailed, match=words):
        sysctls.set_value(root, RMEM, Number(9))


def test_a_value_that_the_kernel_changes_is_a_failure(root, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, _: write(file, b"2304"))
    with pytest.raises(ApplyFailed, match=r"sysctl net\.core\.rmem_max: asked for 9, the kernel says 2304"):
        sysctls.set_value(root, RMEM, Number(9))


def test_the_unit_of_the_agent_may_write_the_sysctls_of_the_table_and_no_others():
    unit = Path(__file__).parents[4] / "etc/pinner/pinner-agent.service"
    lines = [line for line in unit.read_text().splitlines() if line.startswith("ReadWritePaths=")]
    paths = {path for line in lines for path in line.partition("=")[2].split() if "/proc/sys" in path}
    assert paths == {f"-/proc/sys/{key.replace('.', '/')}" for key in SYSCTLS}
