"""Live migrations between two hosts of different size, each with a policy of its own."""

import time
from datetime import UTC, datetime

import pytest
from support.system.lab import CALLER, boot_disk, guests, inventory, name, server

from pinner.model.cpuset import CpuSet
from pinner.model.event import GuestEvent
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy

GUEST = "mover"
NOBODY = "00000000-0000-4000-8000-000000000000"
"""The UUID of no guest."""
SECONDS = 60.0


@pytest.fixture(scope="module")
def hosts(lab_host, small_host):
    """The source and its smaller destination, whose libvirtd accepts connections from other hosts."""
    # A local connection starts the service, and then no socket can be added to it; so both are stopped first.
    small_host.run(
        "echo 'auth_tcp = \"none\"' >> /etc/libvirt/libvirtd.conf && "
        "systemctl stop libvirtd.socket libvirtd.service && "
        "systemctl start libvirtd-tcp.socket libvirtd-ro.socket libvirtd.service"
    )
    boot_disk(small_host)
    return lab_host("two-socket"), small_host


@pytest.fixture
def source(hosts):
    with guests(hosts[0], {GUEST: 3}):
        set_policy(hosts[0], "enforce")
        wait(lambda: placed(hosts[0]), hosts[0])
        yield hosts[0]
        set_policy(hosts[0], "observe")


@pytest.fixture
def destination(hosts):
    yield hosts[1]
    set_policy(hosts[1], "observe", NOBODY)
    hosts[1].run(f"virsh -q destroy {GUEST}", check=False)


@pytest.fixture
def hooked(destination):
    """The destination with pinner's hook script."""
    destination.run("pinner nova install-hooks --yes && systemctl restart libvirtd.service")
    yield destination
    destination.run("pinner nova remove-hooks --yes && systemctl restart libvirtd.service")


def set_policy(host, mode, guest=GUEST):
    """Set a policy that moves only the guest: by its UUID on a host where it is not yet."""
    request = Request("shared-pool", guests=(guest,))
    server(host).set_policy(name(host), Policy(request, mode), CALLER)


def threads(host):
    """The kernel's masks of the guest's vCPUs, and of QEMU's other threads."""
    lines = host.run(f"cat /proc/$(cat /run/libvirt/qemu/{GUEST}.pid)/task/*/status").out.splitlines()
    names = [line.split(maxsplit=1)[1] for line in lines if line.startswith("Name:")]
    masks = [CpuSet.parse(line.split()[1]) for line in lines if line.startswith("Cpus_allowed_list:")]
    found = list(zip(names, masks, strict=True))
    vcpus = {mask for thread, mask in found if thread.startswith("CPU ")}
    return vcpus, {mask for thread, mask in found if not thread.startswith("CPU ")}


def roles(host):
    """The roles of the recorded or proposed placement; None before the policy's first placement."""
    placement = server(host).drift(name(host)).placement
    return server(host).plan_by_id(placement).roles if placement else None


def placed(host):
    current = roles(host)
    return current is not None and threads(host) == ({current.vcpu}, {current.emulator})


def wait(condition, host):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, (threads(host), roles(host), server(host).drift(name(host)))
        time.sleep(0.5)


def send_event(host, kind, action, cpus=CpuSet()):
    uuid = host.run(f"virsh domuuid {GUEST}").out.strip()
    event = GuestEvent(uuid, kind, action, "nova req-1", datetime.now(UTC), cpus=cpus)
    return server(host).guest_event(name(host), event, CALLER)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_a_guest_leaves_without_its_pins_and_is_placed_on_arrival(source, destination, mode):
    set_policy(destination, mode, source.run(f"virsh domuuid {GUEST}").out.strip())
    here, there = inventory(source).topology.online, inventory(destination).topology.online
    assert there < here
    assert not roles(source).vcpu <= there
    answer = send_event(source, "leaving", "instance.live_migration_pre.start", there)
    assert answer.known
    assert threads(source) == ({there}, {there})
    address = destination.address
    source.run(f"virsh -q migrate --live {GUEST} qemu+tcp://{address}/system tcp://{address}")
    if mode == "enforce":
        wait(lambda: placed(destination), destination)
        (run, *_) = server(destination).runs(name(destination), PageRequest(5)).items
        assert run.origin.endswith((" started: migrated", " resumed: migrated"))
    else:
        assert threads(destination) == ({there}, {there})
        assert {drift.target.name for drift in server(destination).drift(name(destination)).drifts} == {GUEST}
    assert [each.name for each in inventory(source).guests] == []


@pytest.mark.parametrize("released", ["never", "for a host of the same size"])
def test_the_hook_script_frees_a_guest_that_keeps_cpus_which_its_destination_lacks(source, hooked, released):
    """The release is late, or does not know the destination. Without the script libvirt refuses the migration."""
    here, there = inventory(source).topology.online, inventory(hooked).topology.online
    if released == "never":
        assert not roles(source).vcpu <= there
    else:
        assert send_event(source, "leaving", "instance.live_migration_pre.start").known
        assert threads(source) == ({here}, {here})
    migrate = f"virsh -q migrate --live {GUEST} qemu+tcp://{hooked.address}/system tcp://{hooked.address}"
    hooked.run("mv /etc/libvirt/hooks/qemu.d/pinner /root/")
    assert "out of range" in source.run(migrate, check=False).err
    hooked.run("mv /root/pinner /etc/libvirt/hooks/qemu.d/")
    source.run(migrate)
    assert threads(hooked) == ({there}, {there})
    assert "pin " not in hooked.run(f"virsh dumpxml {GUEST}").out
