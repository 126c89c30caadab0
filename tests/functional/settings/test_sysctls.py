"""Sysctls of this machine: set, read from the kernel, and restored exactly."""

from pathlib import Path

import pytest

from pinner.host.settings import sysctls, table
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Invalid
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.states import Number

ROOT = Path("/")
RMEM = SYSCTLS["net.core.rmem_max"].target
FILE = Path("/proc/sys/net/core/rmem_max")

pytestmark = [pytest.mark.needs("root", "sysctls"), pytest.mark.machine("the settings are those of the first network")]


def test_the_values_are_those_of_the_kernel():
    found = sysctls.read_sysctls(ROOT)
    assert "net.core.rmem_max" in found
    for key, value in found.items():
        assert Path("/proc/sys", *key.split(".")).read_text().strip() == str(value)


def test_a_sysctl_is_set_and_restored():
    before = table.state_of(ROOT, RMEM)
    other = Number(before.value + 4096)
    try:
        table.set_state(ROOT, RMEM, other)
        assert FILE.read_text().strip() == str(other)
        assert table.state_of(ROOT, RMEM) == other
    finally:
        table.set_state(ROOT, RMEM, before)
    assert FILE.read_text().strip() == str(before)


def test_the_kernel_refuses_a_value_in_its_own_words():
    before = FILE.read_text()
    with pytest.raises(ApplyFailed, match="the kernel refuses 1: Invalid argument"):
        sysctls.set_value(ROOT, RMEM, Number(1))  # less than SOCK_MIN_RCVBUF
    assert FILE.read_text() == before


def test_a_sysctl_outside_the_table_is_not_touched():
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    with pytest.raises(Invalid):
        sysctls.set_value(ROOT, Target("sysctl", "kernel.core_pattern", None, "core_pattern"), Number(1))
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before
