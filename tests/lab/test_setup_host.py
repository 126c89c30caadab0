"""pinner set up from its wheel: an enforced policy holds again after a reboot, and a removal leaves nothing. The agent
has the rights of its unit only."""

import time

import pytest
from private_libvirt import guest_xml
from support.system.lab import boot_disk
from support.system.wheel import wheel

from pinner.model.settings.cpu_weights import SLICE

VENV = "/srv/pinner"
"""Outside of any checkout, in a folder that every user may read."""
INSTALL = f"""\
python3 -m venv --without-pip {VENV}
export PYTHONPATH=/opt/pinner/site-packages
python3 -m pip --python {VENV}/bin/python install -q --no-deps --no-index /tmp/*.whl
rm /tmp/*.whl
echo /opt/pinner/site-packages > $(echo {VENV}/lib/python3.*/site-packages)/others.pth
"""
"""The wheel in a virtual environment; its packages are those of the lab's software."""
UNITS = "pinner-agent.service pinner-api.service pinner-api.socket"
GUEST = "held"
CONFIG = "[libvirt]\ncall_timeout = 120\n[policy]\nresync_seconds = 10\n[host]\nsample_seconds = 1\n"
TRACES = (
    "find /etc/systemd /etc/sysusers.d /etc/tmpfiles.d /etc/pinner /var/lib/pinner /run/pinner -name '*pinner*'; "
    "getent passwd pinner; getent group pinner; systemctl list-unit-files --no-legend 'pinner*'"
)
"""Shows everything that setup-host makes."""
BOUNDS = (
    "for part in agent api; do "
    "cat /sys/fs/cgroup$(systemctl show --value -p ControlGroup pinner-$part)/memory.max "
    "/proc/$(systemctl show --value -p MainPID pinner-$part)/oom_score_adj; done"
)
"""Shows the most memory of agent and API, and how early the kernel ends each where the host has none left."""
WEIGHT = f"cat /sys/fs/cgroup/{SLICE}/cpu.weight; ls /run/systemd/system.control"
"""Shows the weight of the guests, and the folders where systemd has stored settings."""
SECONDS = 240.0


@pytest.fixture(scope="module")
def host(pool, tmp_path_factory):
    """A host that can be rebooted, with pinner installed and a guest that starts with the host."""
    host = pool.host("two-socket", "nr_cpus=8", number=3, reboots=True)
    built = wheel(tmp_path_factory.mktemp("wheel"))
    host.run(f"cat > /tmp/{built.name}", stdin=built.read_bytes())
    host.run(INSTALL)
    xml = guest_xml(GUEST, vcpus=2, memory_mib=32, devices=boot_disk(host))
    host.run(f"virsh -q define /dev/stdin && virsh -q autostart {GUEST} && virsh -q start {GUEST}", stdin=xml)
    return host


def pinner(host, *arguments):
    return host.run(f"{VENV}/bin/pinner {' '.join(arguments)}")


def vcpu_masks(host):
    """The masks of the guest's vCPU threads; empty while it does not run."""
    read = f"grep -H -e Name: -e Cpus_allowed_list: /proc/$(cat /run/libvirt/qemu/{GUEST}.pid)/task/*/status"
    lines = [line.split(maxsplit=1)[1] for line in host.run(read, check=False).out.splitlines()]
    return {mask for name, mask in zip(lines[::2], lines[1::2], strict=True) if name.startswith("CPU ")}


def wait_placed(host, *, placed=True):
    """Wait until the guest's vCPUs are restricted or, without ``placed``, may run anywhere; returns their mask."""
    everywhere = host.run("cat /sys/devices/system/cpu/online").out.strip()
    deadline = time.monotonic() + SECONDS
    while len(found := vcpu_masks(host)) != 1 or (found != {everywhere}) != placed:
        assert time.monotonic() < deadline, (found, host.run("journalctl -b -u 'pinner*' | tail -n 60").out)
        time.sleep(2)
    (mask,) = found
    return mask


def test_an_enforced_policy_holds_after_a_reboot_and_a_removal_leaves_nothing(host):
    manage = f"{VENV}/bin/pinner-manage"
    assert host.run(TRACES, check=False).out == ""
    assert "would create the user" in host.run(f"{manage} setup-host --dry-run").out
    assert host.run(TRACES, check=False).out == ""
    host.run("mkdir /etc/pinner && cat > /etc/pinner/pinner.conf", stdin=CONFIG)
    host.run(f"{manage} setup-host")
    again = host.run(f"{manage} setup-host").out.splitlines()
    assert [line for line in again if line.startswith("done: ")] == ["done: make systemd read the units"]
    assert host.run("cat /etc/pinner/pinner.conf").out == CONFIG
    host.run("systemctl start pinner-agent pinner-api", timeout=900)
    assert host.run("stat -c '%U:%G %a' /run/pinner/api.sock /run/pinner/agent.sock /var/lib/pinner/api").out.split(
        "\n"
    )[:3] == ["root:pinner 660", "pinner:root 600", "pinner:pinner 700"]

    assert host.run(BOUNDS).out.split() == [str(1 << 30), "-500", str(1 << 30), "200"]
    pinner(host, "policy set --yes --mode enforce --with cpu-weights --strategy shared-pool --guest", GUEST)
    mask = wait_placed(host)
    host.reboot(900)
    assert wait_placed(host) == mask
    assert host.run(f"systemctl is-active {UNITS}").out.split() == ["active"] * 3
    assert host.run(WEIGHT).out.split() == ["1000", f"{SLICE}.d"]

    refused = host.run(f"{manage} remove-host --yes", check=False)
    assert refused.status == 1
    assert "still applied" in refused.err
    pinner(host, "policy set --yes --mode observe --strategy shared-pool --guest", GUEST)
    pinner(host, "rollback --all --yes")
    assert host.run(WEIGHT).out.split() == ["100"]
    host.run(f"{manage} remove-host --purge --force --yes")
    assert host.run(TRACES, check=False).out == ""
    assert host.run(f"systemctl is-active {UNITS}", check=False).out.split() == ["inactive"] * 3
