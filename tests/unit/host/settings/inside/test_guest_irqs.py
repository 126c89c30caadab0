"""Interrupts of virtio cards inside a made-up guest."""

from dataclasses import replace

import pytest
from support.fakes.guest_agents import ANSWERS, BOOT, HUNG, INTERRUPTS, MAC, UUID, MadeUpGuest, guest, irq_path, table
from support.hosts import cpus

from pinner.host.inventory import LIVE
from pinner.host.settings import table as settings
from pinner.host.settings.inside import guest_irqs
from pinner.host.settings.inside.guests import InsideReader
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid
from pinner.model.settings.inside import GuestIrq, GuestIrqs
from pinner.model.states import GuestCpus

INPUT = GuestIrq(27, "virtio1-input.0", "eth0", 2, 0, cpus("0-3"))
TARGET = GuestIrqs(UUID, "g", BOOT).target(INPUT)


def read(made, **more):
    reader = InsideReader(made)
    (found,) = reader.read([guest(**more)], {"guest_irq": guest_irqs.ROW.inside})["guest_irq"]
    return found


def test_the_interrupts_of_the_queues_of_cards_are_read():
    found = read(MadeUpGuest(queues=2))
    assert (found.online, found.unread) == (cpus("0-3"), "")
    assert found.irqs == (
        INPUT,
        replace(INPUT, number=28, name="virtio1-output.0"),
        replace(INPUT, number=29, name="virtio1-input.1", queue=1),
        replace(INPUT, number=30, name="virtio1-output.1", queue=1),
    )


def test_only_as_many_queues_as_vcpus_of_cards_that_libvirt_knows_are_read():
    made = MadeUpGuest(queues=9)
    assert {irq.queue for irq in read(made).irqs} == {0, 1, 2, 3}
    made.files["/sys/bus/virtio/devices/virtio1/net/eth0/ifindex"] = "7\n"
    assert (read(made).irqs, read(made).unread) == ((), "")


def test_two_cards_that_claim_a_device_get_its_interrupts_once():
    made = MadeUpGuest()
    made.interfaces.append({"name": "eth1", "hardware-address": MAC})
    made.files |= {path.replace("eth0", "eth1"): text for path, text in made.files.items() if "eth0" in path}
    assert [(irq.number, irq.interface) for irq in read(made, taps=guest().taps * 2).irqs] == [
        (27, "eth0"),
        (28, "eth0"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\x1b[2J",
        " 9999999: 1 virtio1-input.0\n",
        " 27: 1 virtio1-input.0, virtio2-input.0\n",
        " 27: 1 virtio99999-input.0\n",
        " 27: 1 virtio1-input.-1\n",
        " ٢٧: 1 virtio1-input.0\n",
        " 27: 1 virtio1-input.00\n",
        " 27: 1 virtio01-input.0\n",
        " 027: 1 virtio1-input.0\n",
        "27" * 200_000,
        "27: " + "virtio1-input.0 " * 30_000 + "x",
    ],
    ids=range(12),
)
def test_a_strange_table_has_no_interrupts(content):
    made = MadeUpGuest()
    made.files[INTERRUPTS] = content
    found = read(made)
    assert (found.irqs, found.unread.isprintable()) == ((), True)


def test_a_table_beyond_the_limit_is_not_known_and_each_answer_has_a_limit():
    """A part of the table would have some of the interrupts, and maybe a part of a name."""
    made = MadeUpGuest()
    made.files[INTERRUPTS] = table(1) + "x" * guest_irqs.MAX_TABLE
    found = read(made)
    assert (found.irqs, f"more than {guest_irqs.MAX_TABLE} bytes for /proc/interrupts" in found.unread) == ((), True)
    with pytest.raises(ApplyFailed, match="bytes for /proc/interrupts"):  # not Gone: nobody has read the rest
        settings.state_of(LIVE, TARGET, made)
    made.hostile["guest-file-read"] = ANSWERS["huge"]
    assert "characters, and at most" in read(made).unread


@pytest.mark.parametrize("content", ["", "0-99999999", "\x1b[2J", "x", "3-1", "9" * 5000])
def test_a_strange_affinity_is_an_error(content):
    made = MadeUpGuest()
    made.files[irq_path(27)] = content
    found = read(made)
    assert (found.irqs, bool(found.unread), found.unread.isprintable()) == ((), True, True)


@pytest.mark.parametrize("answer", [*ANSWERS.values(), HUNG], ids=[*ANSWERS, "hung"])
def test_a_hostile_answer_is_an_error_of_this_guest_alone(answer):
    made = MadeUpGuest()
    made.hostile["guest-file-read"] = answer
    found = read(made)
    assert (found.irqs, found.unread.isprintable(), len(found.unread) < 400) == ((), True, True)
    with pytest.raises((ApplyFailed, Busy, Gone)):
        settings.set_state(LIVE, TARGET, GuestCpus(cpus("3")), made)
    assert made.files[irq_path(27)] == "0-3\n"


def test_a_refusal_is_no_absence():
    made = MadeUpGuest()
    made.refused["/sys/bus/virtio/devices/virtio1/net/eth0/ifindex"] = "Too many open files"
    with pytest.raises(ApplyFailed, match="Too many open files"):
        settings.state_of(LIVE, TARGET, made)
    assert "Too many open files" in read(made).unread
    made.refused.clear()
    made.files["/proc/sys/kernel/random/boot_id"] = ""
    with pytest.raises(ApplyFailed, match="boot_id has ''"):
        settings.state_of(LIVE, TARGET, made)


def test_an_interrupt_gets_its_vcpu_and_its_former_list_back():
    made = MadeUpGuest(queues=2)
    for vcpus in ("3", "0-3"):
        settings.set_state(LIVE, TARGET, GuestCpus(cpus(vcpus)), made)
        assert settings.state_of(LIVE, TARGET, made) == GuestCpus(cpus(vcpus))
        assert (made.files[irq_path(27)], made.files[irq_path(28)], made.open) == (f"{vcpus}\n", "0-3\n", {})


def test_a_guest_that_does_not_do_what_it_says_is_found_out():
    made = MadeUpGuest()
    made.lies = True
    with pytest.raises(ApplyFailed, match="asked for vCPUs 3, the guest says 0-3"):
        settings.set_state(LIVE, TARGET, GuestCpus(cpus("3")), made)


@pytest.mark.parametrize(
    "target",
    [
        replace(TARGET, part=28),
        replace(TARGET, owner=f"{UUID} {UUID} eth0 2 virtio1-input.0"),
        replace(TARGET, owner=f"{UUID} {BOOT} eth0 3 virtio1-input.0"),
        replace(TARGET, owner=f"{UUID} {BOOT} eth0 2 virtio2-input.0"),
    ],
    ids=["number", "boot", "card", "driver"],
)
def test_another_interrupt_with_its_number_is_left_alone(target):
    made = MadeUpGuest()
    with pytest.raises(Gone):
        settings.set_state(LIVE, target, GuestCpus(cpus("3")), made)
    assert {made.files[irq_path(number)] for number in (27, 28)} == {"0-3\n"}


@pytest.mark.parametrize(
    "owner",
    [
        "",
        f"{UUID} {BOOT} eth0 2",
        f"{UUID} {BOOT} eth0 2 ../../x",
        f"{UUID} {BOOT} .. 2 x",
        f"{UUID} {BOOT} eth0 2 virtio1-input.00",
    ],
)
def test_an_owner_that_names_no_interrupt_is_refused_before_the_guest_is_asked(owner):
    made = MadeUpGuest()
    for part in (27, None, -1):
        with pytest.raises(Invalid):
            settings.state_of(LIVE, Target("guest_irq", owner, part, "x"), made)
    assert made.asked == []
