"""Coalescing of a card whose driver is made up; tests/functional has a card of this machine."""

import ctypes
import errno
import fcntl
import os
import struct

import pytest

from pinner.host.settings import cards, coalescing, states
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.kinds import Number
from pinner.model.settings.coalescing import RxCoalescing

SIZE = 92
"""Bytes of struct ethtool_coalesce."""


class Driver:
    """A driver that takes the kernel's requests."""

    def __init__(self):
        self.name = b"ens1"
        self.values = list(range(100, 122))
        self.values[0], self.values[1], self.values[9] = 0, 7, 0
        self.refusal = self.silence = 0
        self.step = 1
        """The driver makes times multiples of it."""

    def ioctl(self, _socket, request, ifreq):
        name, address = struct.unpack("@16sP16x", ifreq)
        assert request == 0x8946
        if name.rstrip(b"\0") != self.name:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        command, *values = struct.unpack("=23I", ctypes.string_at(address, SIZE))
        if command == 0x0E and self.silence:
            raise OSError(self.silence, os.strerror(self.silence))
        if command == 0x0F:
            if self.refusal:
                raise OSError(self.refusal, os.strerror(self.refusal))
            values[0] -= values[0] % self.step
            self.values = values
        ctypes.memmove(address, struct.pack("=23I", command, *self.values), SIZE)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    for name, index in (("ens1", 2), ("quiet1", 3)):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "statistics").mkdir()
        (tmp_path / name / "ifindex").write_text(f"{index}\n")
        (tmp_path / name / "statistics/rx_packets").write_text("1000\n")
    (tmp_path / "tap1").mkdir()
    (tmp_path / "tap1/ifindex").write_text("4\n")
    made = Driver()
    monkeypatch.setattr(cards, "FOLDER", tmp_path)
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    made.folder = tmp_path
    return made


def target(name="ens1", index=2):
    return RxCoalescing(name, index, 0, 0, is_adaptive=False).target


def test_the_cards_are_read_with_their_packets_a_second(driver, tmp_path):
    before = coalescing.received(cards.LIVE)
    assert before == {2: 1000, 3: 1000}
    (tmp_path / "ens1/statistics/rx_packets").write_text("161000\n")
    assert coalescing.read_coalescing(cards.LIVE, before, 2.0, []) == (
        RxCoalescing("ens1", 2, 0, 7, is_adaptive=False, rate=80_000.0),
    )
    driver.values[9] = 1
    (seen,) = coalescing.read_coalescing(cards.LIVE, {}, 2.0, [])
    assert (seen.is_adaptive, seen.rate) == (True, 0.0)
    (tmp_path / "ens1/statistics/rx_packets").write_text("1\n")
    assert coalescing.read_coalescing(cards.LIVE, before, 2.0, [])[0].rate == 0.0
    assert coalescing.read_coalescing(tmp_path, {}, 0.0, []) is None
    assert coalescing.received(tmp_path) == {}


def test_a_card_gets_its_time_and_its_old_one_back_and_no_other_value_changes(driver):
    before = list(driver.values)
    states.set_state(cards.LIVE, target(), Number(50))
    assert driver.values == [50, *before[1:]]
    assert states.state_of(cards.LIVE, target()) == Number(50)
    states.set_state(cards.LIVE, target(), Number(0))
    assert driver.values == before


@pytest.mark.parametrize("usecs", [-1, 1_000_001, 1 << 40])
def test_a_time_that_no_card_has_is_refused_before_the_driver_is_asked(driver, usecs):
    before = list(driver.values)
    with pytest.raises(ApplyFailed, match=f"coalescing ens1: asked for {usecs} us"):
        coalescing.set_usecs(target(), Number(usecs))
    assert driver.values == before


@pytest.mark.parametrize(("code", "words"), [(errno.EINVAL, "Invalid argument"), (errno.EPERM, "not permitted")])
def test_the_drivers_words_say_why_it_refuses(driver, code, words):
    driver.refusal = code
    with pytest.raises(ApplyFailed, match=f"coalescing ens1: the driver refuses 50 us: .*{words}"):
        coalescing.set_usecs(target(), Number(50))


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.EPERM])
def test_a_card_whose_driver_does_not_answer_now_is_not_gone(driver, code):
    """An undo would call the card gone, and forget its time."""
    driver.silence = code
    with pytest.raises(ApplyFailed, match=f"the driver does not tell its coalescing: {os.strerror(code)}"):
        coalescing.usecs_of(target())


def test_a_time_that_the_driver_rounds_is_a_failure(driver):
    driver.step = 8
    with pytest.raises(ApplyFailed, match="asked for 50 us, the driver says 48"):
        coalescing.set_usecs(target(), Number(50))


@pytest.mark.parametrize("other", [target(index=9), target("none1", 8)], ids=str)
def test_a_card_that_is_another_or_has_vanished_is_gone(driver, other):
    before = list(driver.values)
    for act in (coalescing.usecs_of, lambda card: coalescing.set_usecs(card, Number(9))):
        with pytest.raises(Gone):
            act(other)
    assert driver.values == before


@pytest.mark.parametrize("owner", ["../../etc 2", ".. 2", " 2", "a/b 2", "", "x" * 16 + " 2"])
def test_an_owner_that_is_no_interface_is_refused(driver, owner):
    with pytest.raises(Invalid, match="the name and index of an interface"):
        coalescing.set_usecs(Target("coalescing", owner, None, "x"), Number(9))


def test_a_card_that_was_renamed_since_the_apply_gets_its_old_time_back(driver):
    """A rollback has the name of the plan. The kernel gives the index of an interface to no other one."""
    states.set_state(cards.LIVE, target(), Number(50))
    (driver.folder / "ens1").rename(driver.folder / "lan0")
    driver.name = b"lan0"
    assert states.state_of(cards.LIVE, target()) == Number(50)
    states.set_state(cards.LIVE, target(), Number(0))
    assert driver.values[0] == 0


@pytest.mark.parametrize("index", ["None", "", "-1", "²", "2 "])
def test_an_index_that_is_no_number_finds_no_card(driver, index):
    (driver.folder / "bonding_masters").write_text("")
    with pytest.raises(Gone):
        coalescing.set_usecs(Target("coalescing", f"ens1 {index}", None, "ens1"), Number(9))
