"""Which guests a plan or a run changes."""

import pytest
from support import hosts
from support.hosts import cpus

from pinner.model.change import Target, guests_of
from pinner.model.settings.inside import (
    RMEM_DEFAULT,
    FlowQueue,
    GuestIrq,
    GuestIrqs,
    GuestQueue,
    GuestRfs,
    GuestRps,
    GuestSysctls,
)

UUID, BOOT = hosts.guest(1, 2, cpus("0-3")).uuid, "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    "settings",
    [
        lambda name: GuestRps(UUID, name, BOOT, queues=(GuestQueue("eth0", 2, 0, cpus("")),)),
        lambda name: GuestRfs(UUID, name, BOOT, queues=(FlowQueue("eth0", 2, 0, 0),)),
        lambda name: GuestIrqs(UUID, name, BOOT, irqs=(GuestIrq(27, "virtio1-input.0", "eth0", 2, 0, cpus("0-3")),)),
        lambda name: GuestSysctls(UUID, name, BOOT, values={RMEM_DEFAULT: 1}),
    ],
)
@pytest.mark.parametrize("name", ["web1", "web rx-1"])
def test_a_guest_whose_inside_changes_is_one_of_them(settings, name):
    for target in settings(name).states:
        assert guests_of([target]) == {UUID: name}


def test_a_process_is_of_no_guest():
    assert guests_of([Target("process", "500", 7, "daemon")]) == {}
