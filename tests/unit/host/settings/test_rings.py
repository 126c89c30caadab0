"""Receive rings of a card whose driver is made up; tests/functional has a card of this machine."""

import ctypes
import errno
import fcntl
import os
import shutil
import socket
import struct

import pytest

from pinner.host.settings import cards, rings, states
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid
from pinner.model.kinds import Number
from pinner.model.settings.refusal import RefusedSetting
from pinner.model.settings.rings import RxRing

SIZE = 36
"""Bytes of struct ethtool_ringparam."""


class Driver:
    """A driver that takes the kernel's requests."""

    def __init__(self):
        self.name = b"ens1"
        self.values = [4096, 11, 12, 2048, 512, 13, 14, 1024]
        """rx_max, rx_mini_max, rx_jumbo_max, tx_max, rx, rx_mini, rx_jumbo, tx"""
        self.refusal = 0
        self.silence = 0
        """The error with which the driver answers to a question."""
        self.step = 1
        """The driver makes sizes multiples of it."""

    def ioctl(self, _socket, request, ifreq):
        name, address = struct.unpack("@16sP16x", ifreq)
        assert request == 0x8946
        if name.rstrip(b"\0") != self.name:
            shutil.rmtree(self.folder / "gone1", ignore_errors=True)  # it vanishes after its name was found
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        command, *values = struct.unpack("=9I", ctypes.string_at(address, SIZE))
        if command == 0x10 and self.silence:
            raise OSError(self.silence, os.strerror(self.silence))
        if command == 0x11:
            if self.refusal:
                raise OSError(self.refusal, os.strerror(self.refusal))
            values[4] -= values[4] % self.step
            self.values = values
        ctypes.memmove(address, struct.pack("=9I", command, *self.values), SIZE)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    for name, index in (("ens1", 2), ("gone1", 3)):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "statistics").mkdir()
        (tmp_path / name / "ifindex").write_text(f"{index}\n")
        for counter in rings.NO_ROOM:
            (tmp_path / name / "statistics" / counter).write_text("0\n")
    (tmp_path / "tap1").mkdir()
    (tmp_path / "tap1/ifindex").write_text("4\n")
    made = Driver()
    monkeypatch.setattr(cards, "FOLDER", tmp_path)
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    made.folder = tmp_path
    return made


def target(name="ens1", index=2):
    return RxRing(name, index, 0, 0, has_dropped=False).target


def test_the_rings_of_cards_are_read(driver, tmp_path):
    assert rings.read_rings(cards.LIVE, []) == (RxRing("ens1", 2, 512, 4096, has_dropped=False),)
    (driver.folder / "ens1/statistics/rx_missed_errors").write_text("7\n")
    assert rings.read_rings(cards.LIVE, [])[0].has_dropped
    assert rings.read_rings(tmp_path, []) is None


def test_a_ring_gets_its_size_and_its_old_one_back_and_no_other_ring_changes(driver):
    before = list(driver.values)
    states.set_state(cards.LIVE, target(), Number(4096))
    assert driver.values == [*before[:4], 4096, *before[5:]]
    assert states.state_of(cards.LIVE, target()) == Number(4096)
    states.set_state(cards.LIVE, target(), Number(512))
    assert driver.values == before


@pytest.mark.parametrize("size", [0, 4097, 1 << 40])
def test_a_size_beyond_the_maximum_is_refused_before_the_driver_is_asked(driver, size):
    before = list(driver.values)
    with pytest.raises(ApplyFailed, match=f"ring ens1: asked for {size} packets, and the driver allows 1 to 4096"):
        rings.set_size(target(), Number(size))
    assert driver.values == before


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EBUSY, "Device or resource busy"),
        (errno.EPERM, "not permitted"),
        (errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_the_drivers_words_say_why_it_refuses(driver, code, words):
    driver.refusal = code
    with pytest.raises(ApplyFailed, match=f"ring ens1: the driver refuses 1024: .*{words}"):
        rings.set_size(target(), Number(1024))


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.EPERM])
def test_a_card_whose_driver_does_not_answer_now_is_not_gone(driver, code):
    """An undo would call the ring gone, and forget it."""
    driver.silence = code
    with pytest.raises(ApplyFailed, match=f"ring ens1: the driver does not tell its size: {os.strerror(code)}"):
        rings.size_of(target())


def test_a_driver_without_memory_hides_no_other_card(driver):
    driver.silence = errno.ENOMEM
    assert rings.read_rings(cards.LIVE, refused := []) == ()
    assert refused == [RefusedSetting("ens1", "rings", "Cannot allocate memory")]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENODEV])
def test_a_driver_without_rings_and_a_card_that_has_ended_refuse_nothing(driver, code):
    driver.silence = code
    assert rings.read_rings(cards.LIVE, refused := []) == ()
    assert refused == []


def test_a_process_without_descriptors_knows_nothing_about_a_card(driver, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", refuse)
    for act in (lambda: rings.read_rings(cards.LIVE, []), lambda: rings.size_of(target())):
        with pytest.raises(Busy, match="no file can be opened"):
            act()


def test_a_size_that_the_driver_rounds_is_a_failure(driver):
    driver.step = 1000
    with pytest.raises(ApplyFailed, match="asked for 4096, the driver says 4000"):
        rings.set_size(target(), Number(4096))


@pytest.mark.parametrize("other", [target(index=9), target("none1", 8), target("gone1", 3)], ids=str)
def test_a_card_that_is_another_or_has_vanished_is_gone(driver, other):
    before = list(driver.values)
    for act in (rings.size_of, lambda ring: rings.set_size(ring, Number(9))):
        with pytest.raises(Gone):
            act(other)
    assert driver.values == before


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ENXIO, errno.ENOENT])
def test_a_card_that_its_driver_restarts_is_not_gone(driver, code):
    """The kernel says that there is no such device meanwhile. A rollback would never restore what it calls gone."""
    driver.silence = code
    for act in (rings.size_of, lambda ring: rings.set_size(ring, Number(9))):
        with pytest.raises(ApplyFailed, match="does its driver restart the card just now"):
            act(target())


@pytest.mark.parametrize("owner", ["../../etc 2", ".. 2", " 2", "a/b 2", "", "x" * 16 + " 2"])
def test_an_owner_that_is_no_interface_is_refused(driver, owner):
    with pytest.raises(Invalid, match="the name and index of an interface"):
        rings.set_size(Target("ring", owner, None, "x"), Number(9))


def test_a_card_that_was_renamed_since_the_apply_gets_its_old_size_back(driver):
    """A rollback has the name of the plan. The kernel gives the index of an interface to no other one."""
    states.set_state(cards.LIVE, target(), Number(4096))
    (driver.folder / "ens1").rename(driver.folder / "lan0")
    driver.name = b"lan0"
    assert states.state_of(cards.LIVE, target()) == Number(4096)
    states.set_state(cards.LIVE, target(), Number(512))
    assert driver.values[4] == 512


@pytest.mark.parametrize("index", ["None", "", "-1", "²", "2 "])
def test_an_index_that_is_no_number_finds_no_card(driver, index):
    (driver.folder / "bonding_masters").write_text("")
    with pytest.raises(Gone):
        rings.set_size(Target("ring", f"ens1 {index}", None, "ens1"), Number(9))
