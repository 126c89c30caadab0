"""A capture of this machine holds its guests: they are read again with their pins, threads and memory."""

import json
import subprocess
import sys

import pytest

PINNER = [sys.executable, "-W", "error", "-c", "import sys; from pinner.cli.main import main; sys.exit(main())"]

pytestmark = pytest.mark.needs("two_cpus")


@pytest.fixture
def pinner(libvirtd, tmp_path):
    """Runs a command with --json; returns the parsed document."""
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {libvirtd}\n[host]\nname = here\n")

    def run(*arguments):
        command = [*PINNER, "--json", "--config-file", config, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
        return json.loads(done.stdout)

    return run


def steady(guest):
    """The guest without what changes while it runs: its times, and the amount of its memory."""
    threads = [vcpu["thread"] for vcpu in guest["vcpus"]] + [each["thread"] for each in guest["iothreads"]]
    for thread in (*threads, *guest["emulator"]["threads"]):
        thread.update(run_ns=0, delay_ns=0, load=0)
    return guest | {"memory_per_node": sorted(guest["memory_per_node"])}


@pytest.mark.slow("a capture of the whole machine")
def test_a_capture_holds_the_guests(pinner, start_guest, libvirtd, tmp_path):
    guest = start_guest()
    subprocess.run(["virsh", "-q", "-c", libvirtd, "vcpupin", guest.name, "1", "1"], check=True)
    (live,) = (each for each in pinner("guest", "list")["items"] if each["name"] == guest.name)
    copy, again, scrubbed = (tmp_path / name for name in ("copy", "again", "scrubbed"))
    assert pinner("capture", copy)["guests"] >= 1
    assert pinner("capture", again, "--root", copy)["guests"] >= 1
    for root in (copy, again):
        (captured,) = (each for each in pinner("inventory", "--root", root)["guests"] if each["name"] == guest.name)
        assert steady(captured) == steady(live)
    plan = pinner("plan", "--root", copy, "--guest", guest.name)
    assert {change["target"]["name"] for change in plan["changes"]} == {guest.name}

    pinner("capture", scrubbed, "--root", copy, "--scrub")
    found = pinner("inventory", "--root", scrubbed)["guests"]
    assert [each["pid"] for each in found if each["pid"] == guest.pid] == [guest.pid]
    texts = b"".join(path.read_bytes() for path in scrubbed.rglob("*") if path.is_file())
    for name in (guest.name, guest.uuid):
        assert name.encode() not in texts


def test_a_capture_without_libvirt_warns(tmp_path):
    config = tmp_path / "pinner.conf"
    config.write_text(f"[libvirt]\nuri = qemu+unix:///system?socket={tmp_path}/no\n")
    command = [*PINNER, "--json", "--config-file", config, "capture", tmp_path / "copy"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["guests"] == 0
    assert f"libvirt does not answer at qemu+unix:///system?socket={tmp_path}/no" in done.stderr
    assert "guests are not saved" in done.stderr
