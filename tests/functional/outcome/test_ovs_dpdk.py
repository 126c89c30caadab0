"""A real ovs-vswitchd with a real ovsdb-server: pinner finds its mask and its polling threads, and keeps off them."""

import json
import os
from pathlib import Path

import pytest
from support.server import warm
from support.system import ovsdb

from pinner.model.cpuset import CpuSet

STRICT = f"import warnings; warnings.simplefilter('error'); {warm.PINNER}"
ONLINE = CpuSet.parse(Path("/sys/devices/system/cpu/online").read_text())
POLLED, REST = CpuSet.of([max(ONLINE)]), ONLINE - CpuSet.of([max(ONLINE)])

pytestmark = [
    pytest.mark.needs("root", "two_cpus"),
    pytest.mark.skipif(bool(ovsdb.missing_switch()), reason=ovsdb.missing_switch()),
]


@pytest.fixture(scope="module")
def ovs(tmp_path_factory):
    with ovsdb.private_ovsdb(tmp_path_factory.mktemp("ovs") / "ovs") as found:
        yield found


@pytest.fixture
def switch(ovs):
    """The process id of a switch that polls on the last CPU."""
    ovs.set(pmd_cpu_mask=mask(POLLED))
    with ovsdb.polling_switch(ovs) as pid:
        yield pid


@pytest.fixture
def cli(ovs, libvirtd, tmp_path):
    """Runs a command with Nova's sets; returns its JSON. ``pinner nova check`` ends with 1 if it found something."""
    config = tmp_path / "pinner.conf"

    def run(*arguments, status=0, socket=ovs.socket, nova="ignore_nova_conf = true"):
        config.write_text(
            f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {libvirtd}\n[nova]\n{nova}\n[host]\n"
            f"name = here\novsdb = {socket}\n"
        )
        done = warm.run("--json", "--config-file", config, *arguments, code=STRICT)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    return run


def mask(cpus):
    return f"{sum(1 << cpu for cpu in cpus):#x}"


def findings(report):
    return {finding["what"]: finding["why"] for finding in report["findings"]}


def test_the_inventory_names_the_mask_and_the_threads(cli, switch):
    shown = cli("inventory", "--sample-seconds", "0")["ovs"]
    assert shown["polling"] == str(POLLED)
    assert shown["masks"]["pmd"] == str(POLLED)


@pytest.mark.parametrize("source", ["database and threads", "threads"])
def test_no_plan_uses_their_cpus_or_moves_the_threads(cli, switch, start_guest, tmp_path, source):
    guest = start_guest()
    socket = {} if source != "threads" else {"socket": tmp_path / "none"}
    made = cli(
        "plan", "--guest", guest.name, "--with-processes", "--busy-threshold", "0.1", "--sample-seconds", "1", **socket
    )
    assert {want["target"]["name"] for want in made["wanted"]} >= {guest.name}
    assert {want["cpus"] for want in made["wanted"]} == {str(REST)}
    moved = {mask["tid"] for change in made["changes"] for mask in change["before"]}
    names = {int(task.name): (task / "comm").read_text() for task in Path(f"/proc/{switch}/task").iterdir()}
    assert [name for tid, name in names.items() if tid in moved and name.startswith("pmd")] == []


def test_a_mask_without_a_switch_keeps_its_cpus(cli, ovs, start_guest):
    """After a restart of the host the switch starts later than pinner."""
    ovs.set(pmd_cpu_mask=mask(POLLED))
    made = cli("plan", "--guest", start_guest().name, "--sample-seconds", "0")
    assert {want["cpus"] for want in made["wanted"]} == {str(REST)}


def test_the_check_reports_overlaps(cli, ovs, switch):
    sets = f"ignore_nova_conf = true\ncpu_dedicated_set = {POLLED}\ncpu_shared_set = {REST}"
    theirs = f"CPUs {POLLED} are also those of Open vSwitch's polling threads"
    assert theirs in findings(cli("nova", "check", status=1, nova=sets))["cpu_dedicated_set"]
    sets = f"ignore_nova_conf = true\ncpu_shared_set = {ONLINE}"
    assert theirs in findings(cli("nova", "check", status=1, nova=sets))["cpu_shared_set"]


def test_the_check_reports_threads_outside_a_mask_that_does_not_yet_count(cli, ovs, switch):
    """A switch that hangs polls on, whatever its database says meanwhile."""
    os.kill(switch, 19)
    try:
        ovs.set(pmd_cpu_mask=mask(CpuSet.of([min(ONLINE)])))
        assert f"poll on CPUs {POLLED}" in findings(cli("nova", "check", status=1))["pmd-cpu-mask"]
    finally:
        os.kill(switch, 18)
