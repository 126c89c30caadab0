"""UDP buffers inside a made-up guest."""

import pytest
from support.fakes.guest_agents import ANSWERS, BOOT, HUNG, RMEM_DEFAULT, RMEM_MAX, SNMP, UUID, MadeUpGuest, guest

from pinner import codec
from pinner.host.inventory import LIVE
from pinner.host.settings import table
from pinner.host.settings.inside import guest_sysctls
from pinner.host.settings.inside.guests import InsideReader
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid
from pinner.model.settings.inside import GuestSysctls
from pinner.model.states import Number

MAX, DEFAULT = "net.core.rmem_max", "net.core.rmem_default"
TARGET = GuestSysctls(UUID, "g", BOOT).target(MAX)


def read(made, **more):
    reader = InsideReader(made)
    (found,) = reader.read([guest(**more)], {"guest_sysctl": guest_sysctls.ROW.inside})["guest_sysctl"]
    return found


@pytest.mark.parametrize("vcpus", [1, 4])
def test_the_buffers_and_the_lost_packets_are_read(vcpus):
    made = MadeUpGuest()
    made.files |= {RMEM_DEFAULT: "2147483647\n", SNMP: "Ip: A\nIp: 1\nUdp: A RcvbufErrors B\nUdp: 1 70 3\n"}
    found = read(made, vcpus=vcpus)
    assert (found.values, found.lost, found.unread) == ({MAX: 212992, DEFAULT: 2147483647}, 70, "")
    assert made.open == {}


@pytest.mark.parametrize(
    "content", ["", "Udp: RcvbufErrors\n", "Udp: A\nUdp: 1\n", f"Udp: RcvbufErrors\nUdp: {'9' * 5000}\n", "Udp: \x1b\n"]
)
def test_counters_that_are_not_known_are_none_lost(content):
    made = MadeUpGuest()
    made.files[SNMP] = content
    assert (read(made).lost, read(made).unread) == (0, "")
    assert codec.content_hash(read(made))


@pytest.mark.parametrize("content", ["", "-1", "212992 1", "9" * 11, "\x1b[2J"])
def test_a_strange_value_is_an_error(content):
    made = MadeUpGuest()
    made.files[RMEM_MAX] = content
    found = read(made)
    assert (found.states, bool(found.unread), found.unread.isprintable()) == ({}, True, True)


@pytest.mark.parametrize("answer", [*ANSWERS.values(), HUNG], ids=[*ANSWERS, "hung"])
def test_a_hostile_answer_is_an_error_of_this_guest_alone(answer):
    made = MadeUpGuest()
    made.hostile["guest-file-read"] = answer
    found = read(made)
    assert (found.states, found.unread.isprintable(), len(found.unread) < 400) == ({}, True, True)
    with pytest.raises((ApplyFailed, Busy, Gone)):
        table.set_state(LIVE, TARGET, Number(1 << 20), made)
    assert made.files[RMEM_MAX] == "212992\n"


def test_a_value_is_set_and_its_former_one_is_given_back():
    made = MadeUpGuest()
    for value in (26214400, 212992):
        table.set_state(LIVE, TARGET, Number(value), made)
        assert table.state_of(LIVE, TARGET, made) == Number(value)
        assert (made.files[RMEM_MAX], made.files[RMEM_DEFAULT], made.open) == (f"{value}\n", "212992\n", {})


def test_a_guest_that_has_restarted_has_lost_the_value():
    made = MadeUpGuest()
    with pytest.raises(Gone):
        table.set_state(LIVE, Target("guest_sysctl", f"{UUID} {UUID} {MAX}", None, "x"), Number(1), made)
    assert made.files[RMEM_MAX] == "212992\n"


@pytest.mark.parametrize("key", ["", "kernel.panic", f"{MAX}/../../x", "net/core/rmem_max", f"{MAX} {MAX}"])
def test_no_other_sysctl_is_read_or_set(key):
    made = MadeUpGuest()
    target = Target("guest_sysctl", f"{UUID} {BOOT} {key}", None, "x")
    for act in (table.state_of, lambda root, key, agents: table.set_state(root, key, Number(1), agents)):
        with pytest.raises(Invalid, match="the UUID and the boot of a guest"):
            act(LIVE, target, made)
    assert made.asked == []
