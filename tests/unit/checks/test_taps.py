"""Advice about a guest's card: what needs a restart goes where the guest's definition comes from."""

from dataclasses import replace

import pytest
from support.hosts import cpus
from support.made_up.checks.check_cases_network import received
from support.made_up.readings import Seen, counted, findings, nic, placed, reading, tap

from pinner.model.guest.guest import NovaIdentity
from pinner.model.settings.inside import FlowQueue, GuestIrq, GuestIrqs, GuestQueue, GuestRfs, GuestRps

NOVA = NovaIdentity("web", "p", "u", "m1.large")
TAP = nic("tap1", "", tx_queues=1)
XML = "the domain XML of g1, interface tap1"


def found(code, card, **guest):
    losing = reading(
        Seen(nics=(TAP,)), Seen(nics=(counted(TAP, tx_dropped=50, tx_packets=1000),)), [placed(taps=(card,), **guest)]
    )
    return [each for each in findings(losing) if each.code == code]


def lines(code, card, **guest):
    (finding,) = found(code, card, **guest)
    return {each.line: each.where for each in finding.remedies if each.needs.startswith("guest")}


VIRTIO, EMULATED = replace(tap(), model="virtio"), replace(tap(), model="e1000")


@pytest.mark.parametrize("card", [VIRTIO, tap()], ids=["virtio", "not known"])
def test_queues_and_a_larger_ring_are_lines_of_the_xml(card):
    assert lines("tap-single-queue", card) == {
        "<driver name='vhost' queues='4'/>": XML,
        "ethtool -L DEVICE combined 4": "in guest g1",
    }
    assert lines("tap-drops", card)["<driver rx_queue_size='1024'/>"] == XML


def test_nova_writes_the_xml_of_its_guests_so_they_get_properties():
    assert lines("tap-drops", VIRTIO, nova=NOVA) == {
        "hw:vif_multiqueue_enabled=true": "the flavor in Nova",
        "ethtool -L DEVICE combined 4": "in guest g1",
        "rx_queue_size = 1024": "nova.conf [libvirt]",
    }


@pytest.mark.parametrize(
    ("given", "vcpus", "used", "in_xml"),
    [
        (2, "4-7", 4, {"<driver name='vhost' queues='4'/>": XML}),
        (4, "4-7", 4, {}),
        (4, "0-15", 8, {"<driver name='vhost' queues='8'/>": XML}),
        (8, "0-15", 8, {}),
    ],
)
def test_a_guest_that_uses_one_of_its_queues_needs_no_restart_for_the_others(given, vcpus, used, in_xml):
    """QEMU detaches the queues of the tap that the guest does not use."""
    card = replace(VIRTIO, queues=given)
    (finding,) = found("tap-single-queue", card, vcpus=vcpus)
    count = len(cpus(vcpus))
    assert finding.message == f"guest g1 has {count} vCPUs, and uses one of the {given} queues of tap1"
    evidence = {each.name: each.value for each in finding.evidence}
    assert evidence == {"queues": 1, "queues of the card": given, "vCPUs": count}
    commands = in_xml | {f"ethtool -L DEVICE combined {used}": "in guest g1"}
    assert lines("tap-single-queue", card, vcpus=vcpus) == commands
    assert commands.items() <= lines("tap-drops", card, vcpus=vcpus).items()


def test_the_largest_ring_stays():
    assert not any("rx_queue_size" in line for line in lines("tap-drops", replace(VIRTIO, rx_queue_size=1024)))


def test_an_emulated_card_has_no_vhost_queues_or_ring():
    (finding,) = found("tap-without-vhost", EMULATED)
    assert "QEMU emulates cards of guest g1 (e1000), which have no vhost" in finding.message
    assert lines("tap-without-vhost", EMULATED) == {"<model type='virtio'/>": XML}
    assert lines("tap-without-vhost", EMULATED, nova=NOVA) == {"hw_vif_model=virtio": "the image in Nova"}
    assert (found("tap-single-queue", EMULATED), lines("tap-drops", EMULATED)) == ([], {})


def test_a_virtio_card_without_vhost_gets_it():
    assert lines("tap-without-vhost", VIRTIO, vhost_threads=0) == {"<driver name='vhost'/>": XML}


def one_vcpu(*args, **more):
    return [each for each in findings(received(*args, **more)) if each.code == "guest-packets-one-vcpu"]


def test_the_vcpu_that_does_all_the_work_is_named():
    (finding,) = one_vcpu({0: 990, 3: 10})
    assert finding.message == "vCPU 0 of guest g1 does 99 % of the work for packets that come in"
    facts = {evidence.name: evidence.value for evidence in finding.evidence}
    assert facts == {"packets": 200_000, "packets rate": 100_000.0, "share of NET_RX": 99.0, "vCPUs": 4}
    assert finding.remedies[0].line == "pinner apply --guest g1 --with guest-rps --with guest-rfs --with guest-irqs"


def answers(rps="0-3", entries=4096, irq="3", **more):
    """What the agent of g1 tells of its settings."""
    told, vcpus = (placed().uuid, "g1", "b"), cpus("0-3")
    return {
        "guest_rps": (GuestRps(*told, vcpus, (GuestQueue("eth0", 2, 0, cpus(rps)),), **more),),
        "guest_rfs": (GuestRfs(*told, entries, (FlowQueue("eth0", 2, 0, 4096),), **more),),
        "guest_irqs": (GuestIrqs(*told, vcpus, (GuestIrq(27, "virtio0-input.0", "eth0", 2, 0, cpus(irq)),), **more),),
    }


ALL = ("rps", "rfs", "irqs")


@pytest.mark.parametrize(
    ("told", "proposed"),
    [
        (answers(rps=""), ("rps",)),
        (answers(entries=0), ("rfs",)),
        (answers(irq="0-3"), ("irqs",)),
        (answers(unread="it hangs"), ALL),
        ({}, ALL),
    ],
)
def test_only_settings_that_would_change_something_are_proposed(told, proposed):
    (finding,) = one_vcpu({0: 990, 3: 10}, settings=told)
    assert finding.remedies[0].line == " ".join(
        ["pinner apply --guest g1", *(f"--with guest-{each}" for each in proposed)]
    )


def test_few_flows_are_the_rest_where_all_is_set():
    """More queues do not divide a flow."""
    (finding,) = one_vcpu({0: 990, 3: 10}, settings=answers())
    assert "with RPS, RFS and interrupts set there: few flows carry them" in finding.message
    assert finding.remedies == ()


def test_few_packets_and_an_even_share_are_no_fault():
    assert one_vcpu({0: 990}, packets=10_000) == one_vcpu({0: 500, 1: 500}) == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"unread": "guest g1: it runs Windows Server 2022, whose kernel has no such settings"}, "it runs Windows"),
        ({"before": {0: 1000}}, "went back from 1000 to 990"),
        ({"before": {0: 990}}, "tells of no NET_RX"),
    ],
)
def test_a_guest_that_does_not_tell_is_not_known(more, why):
    (finding,) = one_vcpu({0: 990}, **more)
    assert (finding.severity, why in finding.message) == ("unknown", True)
