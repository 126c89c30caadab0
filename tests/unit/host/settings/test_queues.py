"""Queues of a card whose driver is made up; tests/functional has a card of this machine."""

import ctypes
import errno
import fcntl
import os
import shutil
import struct

import pytest

from pinner.host.settings import cards, queues, states
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.kinds import Number
from pinner.model.settings.queues import CardQueues

SIZE = 36
"""Bytes of struct ethtool_channels."""


class Driver:
    """A driver that takes the kernel's requests."""

    def __init__(self):
        self.name = b"ens1"
        self.values = [1, 2, 3, 8, 4, 5, 6, 1]
        """rx_max, tx_max, other_max, combined_max, rx, tx, other, combined"""
        self.refusal = self.silence = 0
        self.most_made = 1 << 31
        """The driver makes no more queues than that."""

    def ioctl(self, _socket, request, ifreq):
        name, address = struct.unpack("@16sP16x", ifreq)
        assert request == 0x8946
        if name.rstrip(b"\0") != self.name:
            shutil.rmtree(self.folder / "gone1", ignore_errors=True)  # it vanishes after its name was found
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        command, *values = struct.unpack("=9I", ctypes.string_at(address, SIZE))
        if command == 0x3C and self.silence:
            raise OSError(self.silence, os.strerror(self.silence))
        if command == 0x3D:
            if self.refusal:
                raise OSError(self.refusal, os.strerror(self.refusal))
            values[7] = min(values[7], self.most_made)
            self.values = values
        ctypes.memmove(address, struct.pack("=9I", command, *self.values), SIZE)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    for name, index in (("ens1", 2), ("gone1", 3)):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "ifindex").write_text(f"{index}\n")
    (tmp_path / "tap1").mkdir()
    (tmp_path / "tap1/ifindex").write_text("4\n")
    made = Driver()
    monkeypatch.setattr(cards, "FOLDER", tmp_path)
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    made.folder = tmp_path
    return made


def target(name="ens1", index=2):
    return CardQueues(name, index, 1, 8).target


@pytest.mark.parametrize(("state", "is_up"), [(None, True), ("up", True), ("unknown", True), ("down", False)])
def test_the_queues_of_cards_are_read(driver, tmp_path, state, is_up):
    if state:
        (tmp_path / "ens1/operstate").write_text(f"{state}\n")
    assert queues.read_queues(cards.LIVE, []) == (CardQueues("ens1", 2, 1, 8, is_up),)
    assert queues.read_queues(tmp_path, []) is None


def test_a_card_gets_its_queues_and_its_old_ones_back_and_no_other_number_changes(driver):
    before = list(driver.values)
    states.set_state(cards.LIVE, target(), Number(8))
    assert driver.values == [*before[:7], 8]
    assert states.state_of(cards.LIVE, target()) == Number(8)
    states.set_state(cards.LIVE, target(), Number(1))
    assert driver.values == before


@pytest.mark.parametrize("count", [-1, 0, 9, 1 << 40])
def test_a_number_beyond_the_maximum_is_refused_before_the_driver_is_asked(driver, count):
    before = list(driver.values)
    with pytest.raises(ApplyFailed, match=f"queues ens1: asked for {count} queues, and the driver allows 1 to 8"):
        queues.set_count(target(), Number(count))
    assert driver.values == before


@pytest.mark.parametrize(("code", "words"), [(errno.EBUSY, "Device or resource busy"), (errno.EPERM, "not permitted")])
def test_the_drivers_words_say_why_it_refuses(driver, code, words):
    driver.refusal = code
    with pytest.raises(ApplyFailed, match=f"queues ens1: the driver refuses 8: .*{words}"):
        queues.set_count(target(), Number(8))


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.EPERM])
def test_a_card_whose_driver_does_not_answer_now_is_not_gone(driver, code):
    """An undo would call the card gone, and forget its queues."""
    driver.silence = code
    with pytest.raises(ApplyFailed, match=f"queues ens1: the driver does not tell its queues: {os.strerror(code)}"):
        queues.count_of(target())


def test_fewer_queues_than_asked_for_are_a_failure(driver):
    driver.most_made = 4
    with pytest.raises(ApplyFailed, match="asked for 8, the driver says 4"):
        queues.set_count(target(), Number(8))


@pytest.mark.parametrize("other", [target(index=9), target("none1", 8), target("gone1", 3)], ids=str)
def test_a_card_that_is_another_or_has_vanished_is_gone(driver, other):
    before = list(driver.values)
    for act in (queues.count_of, lambda card: queues.set_count(card, Number(4))):
        with pytest.raises(Gone):
            act(other)
    assert driver.values == before


@pytest.mark.parametrize("owner", ["../../etc 2", ".. 2", " 2", "a/b 2", "", "x" * 16 + " 2"])
def test_an_owner_that_is_no_interface_is_refused(driver, owner):
    with pytest.raises(Invalid, match="the name and index of an interface"):
        queues.set_count(Target("queues", owner, None, "x"), Number(4))
