"""Rings, queues and coalescing of a card whose driver is made up; tests/functional has a card of this machine."""

import ctypes
import errno
import fcntl
import os
import shutil
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.hosts import snapshot
from support.made_up.readings import host

from pinner.host.settings import cards, coalescing, queues, rings, table
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid
from pinner.model.kinds import KINDS, TargetKind
from pinner.model.settings.cards import NO_ROOM, CardQueues, RefusedSetting, RxCoalescing, RxRing
from pinner.model.states import Coalescing, Number, State


@dataclass(frozen=True)
class Setting:
    kind: TargetKind
    get: int
    """The kernel's number of the request that reads; the next one writes."""
    values: tuple[int, ...]
    """The driver's numbers at first; ``position`` is that of the setting."""
    position: int
    other: int
    """Another number that the driver takes."""
    silence: str
    read: Callable[[Path, list[RefusedSetting]], Any]
    impossible: dict[int, str]
    state: Callable[[int], State] = Number

    @property
    def first(self) -> int:
        return self.values[self.position]


RINGS = Setting(
    "ring",
    0x10,
    (4096, 11, 12, 2048, 512, 13, 14, 1024),  # rx_max, rx_mini_max, rx_jumbo_max, tx_max, rx, rx_mini, rx_jumbo, tx
    4,
    4096,
    "the driver does not tell its size",
    rings.read_rings,
    dict.fromkeys((0, 4097, 1 << 40), "packets, and the driver allows 1 to 4096"),
)
QUEUES = Setting(
    "queues",
    0x3C,
    (1, 2, 3, 8, 4, 5, 6, 1),  # rx_max, tx_max, other_max, combined_max, rx, tx, other, combined
    7,
    8,
    "the driver does not tell its queues",
    queues.read_queues,
    dict.fromkeys((-1, 0, 9, 1 << 40), "queues, and the driver allows 1 to 8"),
)
COALESCING = Setting(
    "coalescing",
    0x0E,
    (0, 7, *range(102, 109), 0, *range(110, 122)),
    0,
    50,
    "the driver does not tell its coalescing",
    coalescing.read_coalescing,
    dict.fromkeys((-1, 1_000_001, 1 << 40), "rx-frames 7, and 0 to 1000000 are possible"),
    lambda usecs: Coalescing(usecs, 7),
)
STATES = {setting.kind: setting.state for setting in (RINGS, QUEUES, COALESCING)}


class Driver:
    """A driver that takes the kernel's requests."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        self.setting, self.folder = setting, folder
        self.name = b"ens1"
        self.values = list(setting.values)
        self.refusal = self.silence = 0
        """The errors with which the driver answers to a change, and to a question."""
        self.step = 1
        """The driver makes numbers multiples of it."""

    def ioctl(self, _socket, request, ifreq):
        name, address = struct.unpack("@16sP16x", ifreq)
        assert request == 0x8946
        if name.rstrip(b"\0") != self.name:
            shutil.rmtree(self.folder / "gone1", ignore_errors=True)  # it vanishes after its name was found
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        layout = struct.Struct(f"={1 + len(self.values)}I")
        command, *values = layout.unpack(ctypes.string_at(address, layout.size))
        if command == self.setting.get and self.silence:
            raise OSError(self.silence, os.strerror(self.silence))
        if command == self.setting.get + 1:
            if self.refusal:
                raise OSError(self.refusal, os.strerror(self.refusal))
            values[self.setting.position] -= values[self.setting.position] % self.step
            self.values = values
        ctypes.memmove(address, layout.pack(command, *self.values), layout.size)


@pytest.fixture(params=[RINGS, QUEUES, COALESCING], ids=lambda setting: setting.kind)
def setting(request) -> Setting:
    return request.param


@pytest.fixture
def driver(setting, tmp_path, monkeypatch):
    for name, index in (("ens1", 2), ("gone1", 3)):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "statistics").mkdir()
        (tmp_path / name / "ifindex").write_text(f"{index}\n")
        for counter in NO_ROOM:
            (tmp_path / name / "statistics" / counter).write_text("0\n")
        (tmp_path / name / "statistics/rx_packets").write_text("1000\n")
    (tmp_path / "tap1").mkdir()
    (tmp_path / "tap1/ifindex").write_text("4\n")
    made = Driver(setting, tmp_path)
    monkeypatch.setattr(cards, "FOLDER", tmp_path)
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    return made


def target(setting, name="ens1", index: object = 2):
    return Target(setting.kind, f"{name} {index}", None, name)


def state(card) -> State:
    return table.state_of(cards.LIVE, card)


def give(card, number: int) -> None:
    table.set_state(cards.LIVE, card, STATES[card.kind](number))


def test_the_setting_changes_and_comes_back_and_no_other_value_of_the_card_does(driver, setting):
    give(target(setting), setting.other)
    expected = list(setting.values)
    expected[setting.position] = setting.other
    assert driver.values == expected
    assert state(target(setting)) == setting.state(setting.other)
    give(target(setting), setting.first)
    assert driver.values == list(setting.values)


def test_a_number_that_is_impossible_is_refused_before_the_driver_is_asked(driver, setting):
    for number, why in setting.impossible.items():
        with pytest.raises(ApplyFailed, match=f"{setting.kind} ens1: asked for .*{number} {why}"):
            give(target(setting), number)
    assert driver.values == list(setting.values)


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EPERM, errno.ENOMEM, errno.EINVAL])
def test_the_drivers_words_say_why_it_refuses(driver, setting, code):
    driver.refusal = code
    why = f"{setting.kind} ens1: the driver refuses {setting.state(setting.other)}: .*{os.strerror(code)}"
    with pytest.raises(ApplyFailed, match=why):
        give(target(setting), setting.other)


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.EPERM])
def test_a_card_whose_driver_does_not_answer_now_is_not_gone(driver, setting, code):
    """An undo would call the card gone, and forget its setting."""
    driver.silence = code
    with pytest.raises(ApplyFailed, match=f"{setting.kind} ens1: {setting.silence}: {os.strerror(code)}"):
        state(target(setting))


def test_a_driver_without_memory_hides_no_other_card(driver, setting):
    driver.silence = errno.ENOMEM
    assert setting.read(cards.LIVE, refused := []) == ()
    assert refused == [RefusedSetting("ens1", KINDS[setting.kind].module, "Cannot allocate memory")]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENODEV])
def test_a_driver_without_the_setting_and_a_card_that_has_ended_refuse_nothing(driver, setting, code):
    driver.silence = code
    assert setting.read(cards.LIVE, refused := []) == ()
    assert refused == []


def test_a_process_without_descriptors_knows_nothing_about_a_card(driver, setting, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", refuse)
    for act in (lambda: setting.read(cards.LIVE, []), lambda: state(target(setting))):
        with pytest.raises(Busy, match="no file can be opened"):
            act()


def test_a_number_that_the_driver_rounds_is_a_failure(driver, setting):
    driver.step = 3
    rounded = setting.other - setting.other % 3
    why = f"asked for {setting.state(setting.other)}, the driver says {setting.state(rounded)}"
    with pytest.raises(ApplyFailed, match=why):
        give(target(setting), setting.other)


@pytest.mark.parametrize(("name", "index"), [("ens1", 9), ("none1", 8), ("gone1", 3)])
def test_a_card_that_is_another_or_has_vanished_is_gone(driver, setting, name, index):
    for act in (state, lambda card: give(card, setting.other)):
        with pytest.raises(Gone):
            act(target(setting, name, index))
    assert driver.values == list(setting.values)


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ENXIO, errno.ENOENT])
def test_a_card_that_its_driver_restarts_is_not_gone(driver, setting, code):
    """The kernel says that there is no such device meanwhile. A rollback would never restore what it calls gone."""
    driver.silence = code
    for act in (state, lambda card: give(card, setting.other)):
        with pytest.raises(ApplyFailed, match="does its driver restart the card just now"):
            act(target(setting))


@pytest.mark.parametrize("owner", ["../../etc 2", ".. 2", " 2", "a/b 2", "", "x" * 16 + " 2"])
def test_an_owner_that_is_no_interface_is_refused(driver, setting, owner):
    with pytest.raises(Invalid, match="the name and index of an interface"):
        give(Target(setting.kind, owner, None, "x"), setting.other)


def test_a_card_that_was_renamed_since_the_apply_gets_its_old_setting_back(driver, setting):
    """A rollback has the name of the plan. The kernel gives the index of an interface to no other one."""
    give(target(setting), setting.other)
    (driver.folder / "ens1").rename(driver.folder / "lan0")
    driver.name = b"lan0"
    assert state(target(setting)) == setting.state(setting.other)
    give(target(setting), setting.first)
    assert driver.values == list(setting.values)


@pytest.mark.parametrize("index", ["None", "", "-1", "²", "2 "])
def test_an_index_that_is_no_number_finds_no_card(driver, setting, index):
    (driver.folder / "bonding_masters").write_text("")
    with pytest.raises(Gone):
        give(target(setting, index=index), setting.other)


@pytest.mark.parametrize("setting", [RINGS], indirect=True, ids=["ring"])
def test_the_rings_of_cards_are_read(driver, tmp_path):
    assert rings.read_rings(cards.LIVE, []) == (RxRing("ens1", 2, 512, 4096, has_dropped=False),)
    (driver.folder / "ens1/statistics/rx_missed_errors").write_text("7\n")
    assert rings.read_rings(cards.LIVE, [])[0].has_dropped
    assert rings.read_rings(tmp_path, []) is None


@pytest.mark.parametrize("setting", [QUEUES], indirect=True, ids=["queues"])
@pytest.mark.parametrize(("operstate", "is_up"), [(None, True), ("up", True), ("unknown", True), ("down", False)])
def test_the_queues_of_cards_are_read(driver, tmp_path, operstate, is_up):
    if operstate:
        (tmp_path / "ens1/operstate").write_text(f"{operstate}\n")
    assert queues.read_queues(cards.LIVE, []) == (CardQueues("ens1", 2, 1, 8, is_up),)
    assert queues.read_queues(tmp_path, []) is None


@pytest.mark.parametrize("setting", [COALESCING], indirect=True, ids=["coalescing"])
def test_the_coalescing_of_cards_is_read(driver, tmp_path):
    assert coalescing.read_coalescing(cards.LIVE, []) == (RxCoalescing("ens1", 2, 0, 7, is_adaptive=False),)
    driver.values[9] = 1
    (adaptive,) = coalescing.read_coalescing(cards.LIVE, [])
    assert adaptive.is_adaptive
    assert coalescing.read_coalescing(tmp_path, []) is None


@pytest.mark.parametrize("setting", [COALESCING], indirect=True, ids=["coalescing"])
def test_the_packets_a_second_of_cards_are_those_between_two_counts(driver, tmp_path):
    def rate(before, seconds=2.0):
        rated = coalescing.with_packet_rates(taken, before, coalescing.received(cards.LIVE), seconds)
        return [card.rate for card in rated.coalescing]

    before = coalescing.received(cards.LIVE)
    assert before == {2: 1000, 3: 1000}
    taken = snapshot(host(), coalescing=coalescing.read_coalescing(cards.LIVE, []))
    (tmp_path / "ens1/statistics/rx_packets").write_text("161000\n")
    assert (rate(before), rate({}), rate(before, 0.0)) == ([80_000.0], [0.0], [0.0])
    (tmp_path / "ens1/statistics/rx_packets").write_text("1\n")
    assert rate(before) == [0.0]
    assert coalescing.received(tmp_path) == {}


ADAPTING = Coalescing(0, 7, is_adaptive=True)


@pytest.mark.parametrize("setting", [COALESCING], indirect=True, ids=["coalescing"])
@pytest.mark.parametrize("is_strict", [False, True], ids=["", "as ice"])
def test_the_adaption_of_a_driver_ends_and_begins_again(driver, setting, is_strict, monkeypatch):
    """ice refuses other numbers in one request with the adaption."""
    driver.values[9] = 1
    real = driver.ioctl

    def strict(control, request, ifreq):
        address = struct.unpack("@16sP16x", ifreq)[1]
        command, usecs, *others = struct.unpack("=23I", ctypes.string_at(address, 92))
        if command == setting.get + 1 and others[8] and usecs != driver.values[0]:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(control, request, ifreq)

    if is_strict:
        monkeypatch.setattr(fcntl, "ioctl", strict)
    before = list(driver.values)
    assert state(target(setting)) == ADAPTING
    table.set_state(cards.LIVE, target(setting), Coalescing(32, 32))
    assert (driver.values[0], driver.values[1], driver.values[9]) == (32, 32, 0)
    table.set_state(cards.LIVE, target(setting), ADAPTING)
    assert driver.values == before
