"""Interrupts and NAPI threads by device, node and role."""

from dataclasses import replace

from support.hosts import cpus
from support.made_up.checks.check_cases_hosts import kernel_thread
from support.made_up.readings import CARD, DISK, Seen, host, irq, nic, placed, reading

from pinner.checks.irqs import interrupt_map
from pinner.model.machine.interrupts import RoleCpus


def test_interrupts_have_the_roles_of_their_cpus_and_their_nearness():
    sample = Seen(
        irqs=(irq(40, "2-5,12", {5: 10}), irq(41, "9", {9: 7}), irq(50, "0", {}, DISK, managed=True)), nics=(nic(),)
    )
    card, disk = interrupt_map(reading(sample, guests=[placed("4-7", "2-3")])).devices
    assert (card.device, card.interface, card.node, card.queues) == (CARD, "ens1", 1, 4)
    wide, near = card.interrupts
    assert wide.roles == (
        RoleCpus("vcpu", cpus("4-5")),
        RoleCpus("emulator", cpus("2-3")),
        RoleCpus("housekeeping", cpus("12")),
    )
    assert (wide.is_local, wide.count, near.is_local) == (False, 10, True)
    assert (disk.interface, disk.queues, disk.interrupts[0].managed) == ("", 0, True)


def test_napi_threads_belong_to_their_device():
    sample = Seen(irqs=(irq(40, "9", {9: 1}),), nics=(nic(),))
    found = interrupt_map(reading(sample, processes=(kernel_thread("napi/ens1-8193", "8-15", 77),)))
    (card,) = found.devices
    assert [(each.kind, each.number, each.is_local) for each in card.interrupts] == [
        ("irq", 40, True),
        ("napi", 77, True),
    ]


def test_threads_of_users_and_unknown_interfaces_are_no_napi_threads():
    fake = replace(kernel_thread("napi/ens1-8193", "8-15"), kernel=False)
    other = kernel_thread("napi/gone-1", "0")
    assert interrupt_map(reading(Seen(nics=(nic(),)), processes=(fake, other))).devices == ()


def test_a_device_without_a_node_is_neither_near_nor_far():
    top = replace(host(), devices=())
    (card,) = interrupt_map(reading(Seen(irqs=(irq(40, "9", {9: 1}),)), top=top)).devices
    assert (card.node, card.interrupts[0].is_local) == (None, None)


def test_offline_cpus_take_no_interrupts():
    (card,) = interrupt_map(reading(Seen(irqs=(irq(40, "8-9", {}),)), top=host(offline="9"))).devices
    assert card.interrupts[0].cpus == cpus("8")
