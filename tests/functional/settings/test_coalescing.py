"""Coalescing of a card of this machine: compared with ethtool's word, set, and restored exactly.

A test that changes a card runs only where PINNER_COALESCING names its interface.
"""

import os
import re
import shutil
import subprocess

import pytest

from pinner.host.settings import cards, coalescing, table
from pinner.model.states import Coalescing

pytestmark = pytest.mark.machine("needs the real cards of the machine")


def read():
    found = coalescing.read_coalescing(cards.LIVE, [])
    if not found or not shutil.which("ethtool"):
        pytest.skip("needs ethtool, and a card that tells about its coalescing")
    return found


def in_ethtool(name):
    said = subprocess.run(["ethtool", "-c", name], capture_output=True, text=True, check=True).stdout
    values = dict(re.findall(r"^(rx-usecs|rx-frames):\s+(\d+)$", said, re.MULTILINE))
    adaptive = re.search(r"^Adaptive RX: (\S+)", said, re.MULTILINE)
    return int(values.get("rx-usecs", 0)), int(values.get("rx-frames", 0)), adaptive[1] == "on"


def test_the_coalescing_is_that_of_ethtool():
    for card in read():
        assert (card.usecs, card.frames, card.is_adaptive) == in_ethtool(card.interface)


def test_the_packets_of_each_card_are_counted():
    cards_with_values = {card.index for card in read()}
    assert cards_with_values <= coalescing.received(cards.LIVE).keys()


@pytest.mark.needs("root")
@pytest.mark.skipif("PINNER_COALESCING" not in os.environ, reason="needs a card that may change")
def test_a_card_gets_its_time_and_its_old_one_back():
    card = next(each for each in read() if each.interface == os.environ["PINNER_COALESCING"])
    before = table.state_of(cards.LIVE, card.target)
    try:
        table.set_state(cards.LIVE, card.target, Coalescing(card.usecs + 8, card.frames))
        assert in_ethtool(card.interface)[0] == card.usecs + 8
    finally:
        table.set_state(cards.LIVE, card.target, before)
    assert table.state_of(cards.LIVE, card.target) == before
