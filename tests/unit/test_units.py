"""The systemd units that the package has."""

from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[2] / "pinner/etc").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_bounds_its_memory_and_is_watched(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert {"MemoryMax", "OOMScoreAdjust", "WatchdogSec", "SystemCallFilter"} <= names
