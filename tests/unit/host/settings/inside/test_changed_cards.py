"""Settings inside a made-up guest that has changed its cards since, which an undo then finds."""

import pytest
from support.fakes.guest_agents import BOOT, INTERRUPTS, NET, UUID, MadeUpGuest, flow_path, irq_path, queue_path, table
from support.hosts import cpus

from pinner.host.inventory import LIVE
from pinner.host.settings import table as settings
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.states import GuestCpus, Number

RPS = Target("guest_rps", f"{UUID} {BOOT} eth0 2", 1, "g eth0")
RFS = Target("guest_rfs", f"{UUID} {BOOT} eth0 2 1", None, "g eth0 rx-1 rps_flow_cnt")
IRQ = Target("guest_irq", f"{UUID} {BOOT} eth0 2 virtio1-input.1", 29, "g virtio1-input.1")
STATES = {RPS: GuestCpus(cpus("0-3")), RFS: Number(4096), IRQ: GuestCpus(cpus("3"))}
each_kind = pytest.mark.parametrize("target", STATES, ids=lambda target: target.kind)


def moved(made, name):
    """The card has this name now, as after ``ip link set eth0 name``."""
    made.files = {path.replace("/eth0/", f"/{name}/"): content for path, content in made.files.items()}
    made.interfaces[0]["name"] = name


def unplugged(made):
    made.files = {path: content for path, content in made.files.items() if "/eth0/" not in path}
    made.files[INTERRUPTS] = "CPU0\n"
    del made.interfaces[0]


def with_one_queue(made):
    for path in (queue_path(1), flow_path(1)):
        del made.files[path]
    made.files[INTERRUPTS] = table(1)


@each_kind
@pytest.mark.parametrize("change", [unplugged, with_one_queue])
def test_what_a_card_or_queue_had_is_gone_with_it(change, target):
    made = MadeUpGuest(queues=2)
    change(made)
    with pytest.raises(Gone):
        settings.state_of(LIVE, target, made)
    assert made.open == {}


@each_kind
def test_a_renamed_card_is_found(target):
    made = MadeUpGuest(queues=2)
    moved(made, "ens3")
    settings.set_state(LIVE, target, STATES[target], made)
    assert settings.state_of(LIVE, target, made) == STATES[target]
    path = {RPS: queue_path(1, "ens3"), RFS: flow_path(1, "ens3"), IRQ: irq_path(29)}[target]
    assert made.files[path].strip() in {"0000000f", "4096", "3"}


@each_kind
def test_another_card_with_the_name_is_left_alone(target):
    made = MadeUpGuest(queues=2)
    for path in (f"{NET}/eth0/ifindex", "/sys/bus/virtio/devices/virtio1/net/eth0/ifindex"):
        made.files[path] = "3\n"
    with pytest.raises(Gone):
        settings.set_state(LIVE, target, STATES[target], made)


@each_kind
def test_an_agent_that_refuses_hides_nothing(target):
    """What is gone is not undone later."""
    made = MadeUpGuest(queues=2)
    made.hostile["guest-file-open"] = ApplyFailed("guest", "libvirt: failed to open file: Permission denied")
    with pytest.raises(ApplyFailed):
        settings.state_of(LIVE, target, made)


@pytest.mark.parametrize("refused", ["ifindex", "rps_cpus"])
def test_a_card_or_queue_that_the_agent_refuses_once_is_not_gone(refused):
    made = MadeUpGuest(queues=2)
    real = made._do

    def refuse(command, given):
        if command == "guest-file-open" and given["path"].endswith(refused):
            raise ApplyFailed("guest", f"libvirt: failed to open file '{given['path']}': Too many open files")
        return real(command, given)

    made._do = refuse
    with pytest.raises(ApplyFailed, match="Too many open files"):
        settings.state_of(LIVE, RPS, made)
