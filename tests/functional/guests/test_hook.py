"""The hook script of libvirt, run by the test and by a real libvirtd."""

import os
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import private_libvirt
import pytest
from support.fakes.in_memory_service import InMemoryService
from support.nova.nova_listener import until
from support.server.access import InMemoryTokens, make_control
from support.server.real_service import answering
from support.server.unix_http import served

from pinner.api.app import create_app
from pinner.nova.delivery import handover

ROOT = Path(__file__).parents[3]
HOOK = ROOT / "etc/pinner/libvirt-qemu-hook"
EVIL = "$(touch /tmp/pinner-evil); `reboot`; '\"&|<b>\\"
XML = "<domain type='qemu' id='1'>\n  <name>{name}</name>\n  <uuid>{guest}</uuid>\n{more}</domain>\n"

MORE_NAMES = pytest.mark.slow("one more name for libvirt's hook")
MORE_EVENTS = pytest.mark.slow("one more event of libvirt's hook")

TOKENS = InMemoryTokens()
HOOK_TOKEN = TOKENS.add("hook")


class Hook:
    """A copy of the script that reads a configuration of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.script = folder / "qemu"
        self.script.write_text(HOOK.read_text().replace(handover.CONFIG, f"{folder}/hook.conf"))
        self.script.chmod(0o755)
        python = folder / "python"
        # Drops the first argument, -I, so that Python finds the pinner under test.
        python.write_text(
            f"#!/bin/sh\nwhile [ -e {folder}/hold ]; do sleep 0.1; done\n"
            f'shift; PYTHONPATH={ROOT} exec {sys.executable} "$@" 2>{folder}/errors\n'
        )
        python.chmod(0o755)
        self.configure("http://127.0.0.1:1")

    def configure(self, url, token=""):
        (self.folder / "hook.conf").write_text(f"# ours\nurl = {url}\ntoken={token}\npython = {self.folder}/python\n")

    def run(self, name, event, xml):
        """Run the script, which must succeed without output."""
        done = subprocess.run([self.script, name, event, "begin", "-"], input=xml.encode(), capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    @contextmanager
    def held(self):
        """No report is sent in the block."""
        hold = self.folder / "hold"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def errors(self):
        file = self.folder / "errors"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def hook(tmp_path):
    return Hook(tmp_path)


@pytest.fixture
def pinner():
    return InMemoryService()


@pytest.fixture
def server(pinner):
    with answering(pinner, TOKENS) as url:
        yield url


@pytest.fixture
def unix_server(pinner):
    with served(create_app(pinner, control=make_control(), max_body_bytes=65536)) as running:
        yield running.url


def events_of(pinner, count=1):
    until(lambda: len(pinner.events) >= count, 10)
    return [(event.guest, event.event, event.source) for event in pinner.events]


@pytest.mark.parametrize("event", ["started", "reconnect"])
@pytest.mark.parametrize(
    "name", ["web", EVIL, pytest.param("-n\nname", marks=MORE_NAMES), pytest.param("", marks=MORE_NAMES)]
)
def test_a_started_guest_is_reported(hook, pinner, server, event, name):
    guest = str(uuid.uuid4())
    hook.configure(server, HOOK_TOKEN)
    hook.run(name, event, XML.format(name=escape(name), guest=guest, more=""))
    assert events_of(pinner) == [(guest, event, "libvirt hook")]
    assert not Path("/tmp/pinner-evil").exists()


@pytest.mark.fault(43)
def test_a_started_guest_is_reported_through_the_unix_socket(hook, pinner, unix_server):
    guest = str(uuid.uuid4())
    hook.configure(unix_server)
    hook.run("web", "started", XML.format(name="web", guest=guest, more=""))
    assert events_of(pinner) == [(guest, "started", "libvirt hook")]


def test_a_refused_event_on_the_unix_socket_is_an_error_in_the_log(hook, pinner, unix_server):
    hook.configure(unix_server)
    hook.run("web", "started", XML.format(name="web", guest="-" * 36, more=""))
    until(lambda: "HTTP Error 400" in hook.errors(), 10)
    assert pinner.events == []


def test_huge_xml_is_accepted(hook, pinner, server):
    guest = str(uuid.uuid4())
    hook.configure(server, HOOK_TOKEN)
    hook.run("web", "started", XML.format(name="web", guest=guest, more="  <x/>\n" * 2_000_000))
    assert events_of(pinner) == [(guest, "started", "libvirt hook")]


@pytest.mark.parametrize(
    "event",
    [
        *("prepare", "stopped", "$(id)"),
        *(pytest.param(event, marks=MORE_EVENTS) for event in ("start", "release", "migrate", "restore", "attach", "")),
    ],
)
def test_other_events_are_ignored(hook, pinner, server, event):
    hook.configure(server, HOOK_TOKEN)
    hook.run("web", event, XML.format(name="web", guest=uuid.uuid4(), more=""))
    time.sleep(0.3)
    assert pinner.events == []


@pytest.mark.parametrize(
    "guest", ["", "$(reboot)", pytest.param("x; y", marks=MORE_NAMES), pytest.param("ABC", marks=MORE_NAMES)]
)
def test_xml_without_a_uuid_is_ignored(hook, pinner, server, guest):
    hook.configure(server, HOOK_TOKEN)
    for xml in ("", XML.format(name="web", guest=escape(guest), more=""), "\0\n" * 10):
        hook.run("web", "started", xml)
    time.sleep(0.3)
    assert pinner.events == []


def test_a_wrong_token_is_an_error_in_the_log(hook, pinner, server):
    hook.configure(server, "wrong")
    hook.run("web", "started", XML.format(name="web", guest=uuid.uuid4(), more=""))
    until(lambda: "401" in hook.errors(), 10)
    assert pinner.events == []


@pytest.mark.parametrize("state", ["down", "no socket", "no python"])
def test_the_script_succeeds_without_pinner(hook, state, tmp_path):
    hook.configure(f"unix:{tmp_path}/none" if state == "no socket" else "http://127.0.0.1:1", HOOK_TOKEN)
    if state == "no python":
        (hook.folder / "python").unlink()
    hook.run("web", "started", XML.format(name="web", guest=uuid.uuid4(), more=""))


def test_the_script_does_not_wait_for_its_report(hook, pinner, server):
    """tests/benchmarks/live/spawn.py measures its time."""
    guest = str(uuid.uuid4())
    hook.configure(server, HOOK_TOKEN)
    with hook.held():
        hook.run("web", "started", XML.format(name="web", guest=guest, more=""))
        assert pinner.events == []
    assert events_of(pinner) == [(guest, "started", "libvirt hook")]


@pytest.mark.needs("root")
def test_a_real_libvirtd_calls_the_script(room_for_libvirtd, tmp_path, pinner, server):
    with private_libvirt.private_libvirtd(tmp_path / "d") as uri:
        hooks = tmp_path / "d/etc/hooks"
        hooks.mkdir()
        hook = Hook(hooks)
        hook.configure(server, HOOK_TOKEN)
        # libvirtd searches for hooks only when it starts.
        with private_libvirt.killed(uri):
            pass
        name = f"hook-{os.getpid()}-$(id);`x`&'"
        xml = private_libvirt.guest_xml(escape(name))
        until(lambda: private_libvirt.virsh(uri, "list") is not None, 20)
        private_libvirt.start_guest(uri, xml, paused=True)
        guest = private_libvirt.virsh(uri, "domuuid", name).strip()
        assert events_of(pinner) == [(guest, "started", "libvirt hook")]
        with private_libvirt.killed(uri):
            pass
        assert events_of(pinner, 2)[1] == (guest, "reconnect", "libvirt hook")
        with hook.held():
            private_libvirt.start_guest(uri, private_libvirt.guest_xml(f"hook-{os.getpid()}"), paused=True)
            assert len(pinner.events) == 2, "libvirt waited for the report"
        assert events_of(pinner, 3)[2][1:] == ("started", "libvirt hook")
