"""The receive ring of a card of this machine: compared with ethtool's word, set, and restored exactly.

Most drivers restart the card for another size, so a test that changes the ring runs only where PINNER_RINGS names the
interface of a card that may lose its link.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pinner.host.settings import rings, table
from pinner.model.errors import ApplyFailed
from pinner.model.states import Number

pytestmark = pytest.mark.machine("needs the real cards of the machine")

ROOT = Path("/")


def read():
    found = rings.read_rings(ROOT, [])
    if not found:
        pytest.skip("needs a card that tells about its rings")
    return found


def in_ethtool(interface: str) -> tuple[int, int]:
    out = subprocess.run(["ethtool", "-g", interface], capture_output=True, text=True, check=True).stdout
    most, size = re.findall(r"^RX:\s+(\d+)", out, re.MULTILINE)[:2]
    return int(size), int(most)


@pytest.mark.skipif(shutil.which("ethtool") is None, reason="needs ethtool")
def test_the_rings_are_those_of_ethtool():
    for ring in read():
        assert (ring.size, ring.most) == in_ethtool(ring.interface)


@pytest.mark.needs("root")
def test_a_size_beyond_the_maximum_changes_nothing():
    ring = read()[0]
    with pytest.raises(ApplyFailed, match=f"the driver allows 1 to {ring.most}"):
        table.set_state(ROOT, ring.target, Number(ring.most + 1))
    assert table.state_of(ROOT, ring.target) == Number(ring.size)


@pytest.mark.needs("root")
@pytest.mark.skipif("PINNER_RINGS" not in os.environ, reason="needs a card that may lose its link")
def test_a_ring_is_set_and_restored():
    ring = next(each for each in read() if each.interface == os.environ["PINNER_RINGS"])
    other = Number(ring.most if ring.size != ring.most else ring.most // 2)
    before = table.state_of(ROOT, ring.target)
    try:
        table.set_state(ROOT, ring.target, other)
        assert table.state_of(ROOT, ring.target) == other
    finally:
        table.set_state(ROOT, ring.target, before)
    assert table.state_of(ROOT, ring.target) == before
