"""Guests that are migrated live between two hosts of different size, each with a policy of its own."""

import time
from datetime import UTC, datetime

import pytest
from support.lab import CALLER, boot_disk, guests, inventory, name, served

from pinner.model.cpuset import CpuSet
from pinner.model.event import GuestEvent
from pinner.model.policy import Policy
from pinner.model.request import Request

GUEST = "mover"
SECONDS = 60.0


@pytest.fixture(scope="module")
def hosts(lab_host, smaller):
    """The source and its smaller destination, whose libvirtd answers other hosts."""
    # Whoever connects meanwhile would start the service, and then no socket can be added to it.
    smaller.run(
        "echo 'auth_tcp = \"none\"' >> /etc/libvirt/libvirtd.conf && "
        "systemctl stop libvirtd.socket libvirtd.service && "
        "systemctl start libvirtd-tcp.socket libvirtd-ro.socket libvirtd.service"
    )
    boot_disk(smaller)
    return lab_host("two-socket"), smaller


@pytest.fixture
def source(hosts):
    with guests(hosts[0], {GUEST: 3}):
        keep(hosts[0], "enforce")
        wait(lambda: placed(hosts[0]), hosts[0])
        yield hosts[0]
        keep(hosts[0], "observe")


@pytest.fixture
def destination(hosts):
    yield hosts[1]
    keep(hosts[1], "observe")
    hosts[1].run(f"virsh -q destroy {GUEST}", check=False)


def keep(host, mode):
    """A policy for the guest alone: nobody else is busy enough."""
    request = Request("shared-pool", guests=(GUEST,), busy_threshold=1e6)
    served(host).set_policy(name(host), Policy(request, mode), CALLER)


def threads(host):
    """The kernel's word: the CPUs of the guest's vCPUs, and of QEMU's other threads."""
    told = host.run(f"cat /proc/$(cat /run/libvirt/qemu/{GUEST}.pid)/task/*/status").out.splitlines()
    names = [line.split(maxsplit=1)[1] for line in told if line.startswith("Name:")]
    masks = [CpuSet.parse(line.split()[1]) for line in told if line.startswith("Cpus_allowed_list:")]
    found = list(zip(names, masks, strict=True))
    vcpus = {mask for thread, mask in found if thread.startswith("CPU ")}
    return vcpus, {mask for thread, mask in found if not thread.startswith("CPU ")}


def roles(host):
    """Those of the placement that stands, or would; None before the policy was first kept."""
    placement = served(host).drift(name(host)).placement
    return served(host).plan_by_id(placement).roles if placement else None


def placed(host):
    stands = roles(host)
    return stands is not None and threads(host) == ({stands.vcpu}, {stands.emulator})


def wait(so, host):
    deadline = time.monotonic() + SECONDS
    while not so():
        assert time.monotonic() < deadline, (threads(host), roles(host), served(host).drift(name(host)))
        time.sleep(0.5)


def tell(host, kind, event, cpus=CpuSet()):
    uuid = host.run(f"virsh domuuid {GUEST}").out.strip()
    told = GuestEvent(uuid, kind, event, "nova req-1", datetime.now(UTC), cpus=cpus)
    return served(host).guest_event(name(host), told, CALLER)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_it_leaves_its_place_behind_and_gets_one_where_it_arrives(source, destination, mode):
    keep(destination, mode)
    here, there = inventory(source).topology.online, inventory(destination).topology.online
    assert there < here
    assert not roles(source).vcpu <= there
    left = tell(source, "leaving", "instance.live_migration_pre.start", there)
    assert left.known
    assert threads(source) == ({there}, {there})
    address = destination.address
    source.run(f"virsh -q migrate --live {GUEST} qemu+tcp://{address}/system tcp://{address}")
    if mode == "enforce":
        wait(lambda: placed(destination), destination)
        (run, *_) = served(destination).runs(name(destination), 5, "").items
        assert "started: migrated" in run.origin
    else:
        assert threads(destination) == ({there}, {there})
        assert {drift.target.name for drift in served(destination).drift(name(destination)).drifts} == {GUEST}
    assert [each.name for each in inventory(source).guests] == []
