"""The memory of an agent on a host where guests start and end all day."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import many_starts

pytestmark = pytest.mark.fault(73)

KIB_A_MIB = 1024


def measured(folder: Path, count: int, every: int) -> list[tuple[int, int]]:
    """The memory in KiB and the number of objects about guests after each ``every`` starts."""
    path = os.pathsep.join(sys.path)
    command = [sys.executable, many_starts.__file__, str(folder), str(count), str(every)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(int(pss), int(objects)) for _, pss, objects in rows]


def test_nothing_is_kept_of_guests_that_have_ended(tmp_path: Path) -> None:
    (_, early), (_, late) = measured(tmp_path, 40, 20)
    assert abs(late - early) < 20, "less than one object a start"


@pytest.mark.slow("12,000 starts of guests")
def test_the_memory_after_a_day_of_starts_is_that_after_half_a_day(tmp_path: Path) -> None:
    found = [pss for pss, _ in measured(tmp_path, 12_000, 1000)]
    assert abs(found[11] - found[5]) < 2 * KIB_A_MIB, found
