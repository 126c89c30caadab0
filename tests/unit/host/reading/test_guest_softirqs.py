"""The softirqs of a made-up guest, as its agent tells them."""

from pathlib import Path

import pytest
from support import hosts
from support.fakes.guest_agents import ANSWERS, BOOT, HUNG, SOFTIRQS, UUID, MadeUpGuest, guest

from pinner import codec
from pinner.host.reading.sampler import take_reading
from pinner.host.settings.inside.guests import InsideReader
from pinner.model.reading import GuestSoftirqs, HostSample


def read(made, seconds=1.0, **more):
    taken = hosts.snapshot(hosts.plain(16, 2), [guest(**more)])
    return take_reading(Path("/nowhere"), taken, seconds, ask_guests=InsideReader(made).read).now.softirqs


def test_received_packets_are_counted_by_vcpu():
    assert read(MadeUpGuest()) == (GuestSoftirqs(UUID, "g1", BOOT, {0: 90}),)


def test_one_sample_alone_asks_no_guest():
    made = MadeUpGuest()
    assert (read(made, 0.0), made.asked) == ((), [])


def test_a_guest_with_one_vcpu_is_not_asked():
    made = MadeUpGuest()
    assert (read(made, vcpus=1), made.asked) == ((), [])


def test_vcpus_that_the_guest_lacks_and_its_kernel_could_have_are_left_out():
    """The kernel names each possible CPU."""
    made = MadeUpGuest()
    made.files[SOFTIRQS] = "CPU0 CPU3 CPU4 CPU255\nNET_RX: 90 7 0 0\n"
    assert read(made) == (GuestSoftirqs(UUID, "g1", BOOT, {0: 90, 3: 7}),)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "CPU0\n",
        "CPU0 CPU1\nNET_RX: 1\n",
        "CPU0\nNET_RX: -1\n",
        f"CPU0\nNET_RX: {'9' * 5000}\n",
        "\x1b[2J",
        "NET_RX: 1",
        "CPU0 CPU4\nNET_RX: 1 1\n",
        "CPU0 CPU77777\nNET_RX: 1 1\n",
        "CPU0 CPU0\nNET_RX: 1 2\n",
        "CPU0 CPU00\nNET_RX: 1 2\n",
    ],
)
def test_a_strange_table_is_not_known(content):
    made = MadeUpGuest()
    made.files[SOFTIRQS] = content
    (found,) = read(made)
    assert (found.received, bool(found.unread), found.unread.isprintable()) == ({}, True, True)


@pytest.mark.parametrize("answer", [*ANSWERS.values(), HUNG], ids=[*ANSWERS, "hung"])
def test_a_hostile_answer_is_an_error_of_this_guest_alone(answer):
    made = MadeUpGuest()
    made.hostile["guest-file-read"] = answer
    (found,) = read(made)
    assert (found.received, bool(found.unread), found.unread.isprintable()) == ({}, True, True)
    sample = HostSample(softirqs=(found,))
    assert codec.load(HostSample, codec.dump(sample)) == sample
