"""A real guest that an operator pinned is left alone, and pins that pinner made are not taken for an operator's."""

import json
import os
import re
import subprocess
import sys

import private_libvirt
import pytest
from support.kernel import masks
from support.policy_host import NEVER_BUSY
from support.real_guests import ONLINE

PINNER = [sys.executable, "-W", "error", "-c", "import sys; from pinner.cli.main import main; sys.exit(main())"]
LAST = str(ONLINE[-1])

pytestmark = [
    pytest.mark.fault(52),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(len(ONLINE) != 2, reason="needs two CPUs: one for housekeeping, the other for guests"),
]


@pytest.fixture(scope="module")
def libvirtd(tmp_path_factory):
    """The URI of a libvirtd of its own: a plan for all guests moves no guest of another test."""
    if why := private_libvirt.missing():
        pytest.skip(f"needs a private libvirtd: {why}")
    with private_libvirt.private_libvirtd(tmp_path_factory.mktemp("libvirt") / "d") as uri:
        yield uri


@pytest.fixture
def cli(libvirtd, tmp_path):
    """Runs a command and returns its JSON."""
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {libvirtd}\n[host]\nname = here\n")

    def run(*arguments):
        command = [*PINNER, "--json", "--config-file", config, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def plan(cli):
    """A new plan for all guests, or for those that are named; it moves no process of this machine."""

    def plan(*guests):
        named = [word for guest in guests for word in ("--guest", guest.name)]
        return cli("plan", *named, "--busy-threshold", str(NEVER_BUSY), "--sample-seconds", "0")

    return plan


@pytest.fixture
def apply(cli):
    def apply(plan, *options):
        run = cli("apply", plan["id"], "--yes", *options)["run"]
        assert run["state"] == "applied", run
        return run["id"]

    return apply


@pytest.fixture
def virsh(libvirtd):
    return lambda *words: private_libvirt.virsh(libvirtd, *words)


@pytest.fixture
def guest(start_guest, virsh):
    """A guest without pins; it ends with the test."""
    guest = start_guest(persistent=True)
    yield guest
    virsh("destroy", guest.name)


def tuned(*pins):
    return f"<cputune>{''.join(pins)}</cputune>"


def why_skipped(plan, guest):
    """Why the plan skips the guest; empty if the plan places it."""
    assert (guest.uuid in {want["target"]["owner"] for want in plan["wanted"]}) != bool(_skipped(plan, guest))
    return "".join(_skipped(plan, guest))


def _skipped(plan, guest):
    return [left["why"] for left in plan["skipped"] if left["target"]["owner"] == guest.uuid]


def changed(plan, guest):
    return [change for change in plan["changes"] if change["target"]["owner"] == guest.uuid]


def pins(xml):
    return set(re.findall(r"<(\w+pin) .*?cpuset='(\S+?)'", xml))


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_a_guest_with_pins_in_its_xml_is_left_alone_unless_it_is_named(
    start_guest, virsh, plan, apply, cli, persistent
):
    mine = f"<vcpupin vcpu='0' cpuset='{LAST}'/><emulatorpin cpuset='{LAST}'/>"
    guest, other = start_guest(persistent=persistent, extra=tuned(mine)), start_guest()
    before = masks(guest.pid)
    first = plan()
    where = "in its definition" if persistent else "through libvirt while it runs"
    assert why_skipped(first, guest).startswith(f"an operator pinned it {where}: ")
    assert (why_skipped(first, other), LAST in first["roles"]["vcpu"].split("-")) == ("", False)
    apply(first)
    assert masks(guest.pid) == before
    assert not plan()["changes"]

    named = plan(guest)
    assert changed(named, guest)
    run = apply(named)
    assert not plan(guest)["changes"]
    assert cli("drift")["drifts"] == []
    assert cli("rollback", run)["run"]["state"] == "rolled_back"
    assert {tid: mask for tid, mask in masks(guest.pid).items() if tid in before} == before
    for each in (guest, other):
        virsh("destroy", each.name)


@pytest.mark.parametrize(
    ("way", "where"), [("--config", "in its definition"), ("--live", "through libvirt while it runs")]
)
def test_a_pin_by_virsh_before_pinner_comes_is_an_operators(guest, virsh, plan, way, where):
    virsh("vcpupin", guest.name, "0", LAST, way)
    virsh("emulatorpin", guest.name, LAST, way)
    made = plan()
    assert why_skipped(made, guest).startswith(f"an operator pinned it {where}: emulator to {LAST}, vcpu 0 to {LAST};")
    assert not changed(made, guest)


def test_live_pins_of_pinner_are_its_own_also_after_a_restart_of_libvirtd_and_a_rollback(
    guest, libvirtd, virsh, plan, apply, cli
):
    before = masks(guest.pid)
    run = apply(plan())
    placed = masks(guest.pid)
    with private_libvirt.killed(libvirtd):
        pass
    again = plan()
    assert (why_skipped(again, guest), again["changes"], cli("drift")["drifts"]) == ("", [], [])

    virsh("vcpupin", guest.name, "0", str(ONLINE[0]), "--live")
    moved = plan()
    assert (why_skipped(moved, guest), len(changed(moved, guest))) == ("", 1)
    assert [drift["target"]["part"] for drift in cli("drift")["drifts"]] == [0]
    virsh("vcpupin", guest.name, "0", placed[guest.vcpus[0].thread.tid], "--live")
    assert plan()["changes"] == []

    cli("rollback", run)
    assert {tid: mask for tid, mask in masks(guest.pid).items() if tid in before} == before
    assert why_skipped(plan(), guest) == ""


def test_pins_that_pinner_wrote_to_the_definition_are_its_own_and_a_rollback_gives_back_the_operators(
    start_guest, virsh, plan, apply, cli
):
    mine = f"<vcpupin vcpu='1' cpuset='{ONLINE[0]}'/>"
    guest = start_guest(persistent=True, extra=tuned(mine))
    assert "in its definition" in why_skipped(plan(), guest)
    run = apply(plan(guest), "--persist")
    again = plan()
    assert (why_skipped(again, guest), changed(again, guest)) == ("", [])

    virsh("destroy", guest.name)
    virsh("start", guest.name, "--paused")
    restarted = plan()
    assert (why_skipped(restarted, guest), changed(restarted, guest)) == ("", [])

    virsh("vcpupin", guest.name, "0", str(ONLINE[0]), "--config")
    assert f"vcpu 0 to {ONLINE[0]};" in why_skipped(plan(), guest)

    cli("rollback", run)
    assert pins(virsh("dumpxml", "--inactive", guest.name)) == {("vcpupin", str(ONLINE[0]))}
    assert f"vcpu 1 to {ONLINE[0]};" in why_skipped(plan(), guest)
    virsh("destroy", guest.name)
