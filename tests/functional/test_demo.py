"""The demo, which is the first thing that a newcomer runs: it goes through to its end, and undoes what it did."""

import subprocess
import sys
from pathlib import Path

import private_libvirt
import pytest

TOOLS = Path(private_libvirt.__file__).parent

pytestmark = pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing() or "-")


def test_the_demo_runs_to_its_end():
    done = subprocess.run(
        [sys.executable, TOOLS / "demo.py"], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "threads have their previous mask" in done.stdout or "threads have the mask they had" in done.stdout
    assert "the demo took" in done.stdout
