"""The queues of cards of this machine: compared with ethtool's word. A number beyond the maximum changes nothing."""

import re
import shutil
import subprocess

import pytest

from pinner.host.settings import cards, queues, table
from pinner.model.errors import ApplyFailed
from pinner.model.states import Number

pytestmark = pytest.mark.machine("needs the real cards of the machine")


def read():
    return queues.read_queues(cards.LIVE, []) or pytest.skip("needs a card that tells about its queues")


def in_ethtool(name):
    said = subprocess.run(["ethtool", "-l", name], capture_output=True, text=True, check=True).stdout
    most, now = re.findall(r"^Combined:\s+(\S+)$", said, re.MULTILINE)
    return tuple(int(each) if each.isdecimal() else 0 for each in (now, most))


@pytest.mark.skipif(shutil.which("ethtool") is None, reason="needs ethtool")
def test_the_queues_are_those_of_ethtool():
    for card in read():
        assert (card.count, card.most) == in_ethtool(card.interface)


@pytest.mark.needs("root")
def test_a_number_beyond_the_maximum_changes_nothing():
    card = read()[0]
    with pytest.raises(ApplyFailed, match=f"the driver allows 1 to {card.most}"):
        table.set_state(cards.LIVE, card.target, Number(card.most + 1))
    assert table.state_of(cards.LIVE, card.target) == Number(card.count)
