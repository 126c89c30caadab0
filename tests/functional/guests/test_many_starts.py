"""The memory of an agent on a host where guests start and end all day.

``python tests/support/guests/many_starts.py FOLDER 12000 1000`` shows the memory of such a day, in an hour.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.guests import many_starts

pytestmark = pytest.mark.fault(73)


def kept(folder: Path, count: int, every: int) -> list[int]:
    """The number of objects about guests after each ``every`` starts."""
    path = os.pathsep.join(sys.path)
    command = [sys.executable, many_starts.__file__, str(folder), str(count), str(every)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line.split()[2]) for line in done.stdout.splitlines()]


def test_nothing_is_kept_of_guests_that_have_ended(tmp_path: Path) -> None:
    early, late = kept(tmp_path, 40, 20)
    assert abs(late - early) < 20, "less than one object a start"
