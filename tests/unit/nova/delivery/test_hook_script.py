"""libvirt's hook script never reads more of a guest's XML than it needs, and always ends: libvirt waits for it."""

import itertools
import os
import re
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support.nova.nova_listener import until

from pinner.nova.delivery import handover

ETC = Path(__file__).parents[4] / "etc/pinner"
GUEST = "6a5b7a0e-0000-4000-8000-000000000001"
HEAD = "<domain type='qemu' id='1'>\n  <name>web</name>\n"
UUID = f"  <uuid>{GUEST}</uuid>\n"
READS = 16384
"""The bytes of the XML in which the script looks for the UUID."""
ENOUGH = 60.0
"""Seconds: a script that did not end by then waits for the end of its input."""
ENDLESS = 1 << 30
"""Bytes: more than the script may read before it ends."""


class Hook:
    """A copy of the script, with a Python that only writes down how it was called."""

    def __init__(self, folder, seconds):
        self.called, self.script = folder / "called", folder / "qemu"
        text = (ETC / "libvirt-qemu-hook").read_text().replace(handover.CONFIG, f"{folder}/hook.conf")
        self.script.write_text(re.sub(r"timeout -k 1 \d+ ", f"timeout -k 1 {seconds} ", text))
        (folder / "pinner-strip-pins").write_text((ETC / "libvirt-strip-pins").read_text())
        python = folder / "python"
        python.write_text(
            f'#!/bin/sh\ncase "$1" in -IS) exec /usr/bin/python3 "$@" ;; esac\n'
            f'printf "%s\\n" "$4 $5" >{self.called}.new; mv {self.called}.new {self.called}\n'
        )
        (folder / "hook.conf").write_text(f"python = {python}\n")
        for file in (self.script, python):
            file.chmod(0o755)

    def run(self, xml, *words):
        """The output and how many bytes of the input were read, or lay in the pipe. ``xml``: text, or its parts."""
        command = [self.script, "web", *words, "-"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            written = [0]
            writing = threading.Thread(target=self._write, args=(process, xml, written))
            writing.start()
            try:
                # Not communicate(), which would also write.
                assert process.wait(ENOUGH) == 0
                assert process.stderr.read() == b""
                return process.stdout.read().decode(), written[0]
            finally:
                process.kill()
                writing.join()

    @staticmethod
    def _write(process, xml, written):
        with suppress(BrokenPipeError):
            for part in [xml] if isinstance(xml, str) else xml:
                written[0] += os.write(process.stdin.fileno(), part.encode())
        if isinstance(xml, str):
            with suppress(BrokenPipeError):
                process.stdin.close()

    def reported(self):
        return self.called.read_text().split() if self.called.exists() else []


@pytest.fixture
def hook(tmp_path):
    return Hook(tmp_path, 8)


def endless(*first):
    """The parts of an XML that does not end, up to 1 GiB."""
    return itertools.chain(first, itertools.repeat("a" * 65536, ENDLESS // 65536))


@pytest.mark.parametrize("event", ["started", "reconnect"])
@pytest.mark.parametrize("more", ["", "<x/>\n" * 200_000, "x" * 2_000_000], ids=["short", "1 MiB", "one long line"])
def test_a_start_is_reported_however_long_the_xml_is(hook, event, more):
    assert hook.run(HEAD + UUID + more + "</domain>\n", event, "begin")[0] == ""
    until(lambda: hook.reported() == [GUEST, event], 20, hook.reported)


@pytest.mark.parametrize("event", ["started", "reconnect"])
@pytest.mark.parametrize(
    "first",
    [(), ("<uuid>" * 1000,), (HEAD, "\n" * 100), ("<uuid>" + GUEST[:8],), (HEAD + " " * READS + UUID,)],
    ids=["no line", "begins of UUIDs", "no UUID", "no end of the UUID", "a late UUID"],
)
def test_a_start_with_an_endless_xml_is_not_read_to_its_end(hook, event, first):
    output, written = hook.run(endless(*first), event, "begin")
    assert (output, hook.reported()) == ("", [])
    # The pipe itself takes up to 64 KiB, and the writer has one part more under way.
    assert written <= READS + 3 * 65536


@pytest.mark.parametrize("words", [("started", "begin"), ("reconnect", "begin"), ("migrate", "begin")])
def test_an_input_that_stays_open_is_not_waited_for(tmp_path, words):
    """The test shortens the script's eight seconds."""
    hook = Hook(tmp_path, 1)
    assert hook.run((HEAD,), *words)[0] == ""
    assert hook.reported() == []


@pytest.mark.parametrize("first", ["", "trap '' TERM"], ids=["usual", "ignores SIGTERM"])
def test_a_report_that_does_not_end_is_ended_and_logged(tmp_path, monkeypatch, first):
    """A name server that does not answer keeps the report waiting. The test shortens the script's minute."""
    hook, log, running = Hook(tmp_path, 1), tmp_path / "log", tmp_path / "running"
    (tmp_path / "python").write_text(f"#!/bin/sh\n{first}\necho $$ >{running}\nexec sleep {ENOUGH}\n")
    (tmp_path / "bin").mkdir()
    logger = tmp_path / "bin/logger"
    logger.write_text(f"#!/bin/sh\ncat >{log}\n")
    logger.chmod(0o755)
    monkeypatch.setenv("PATH", f"{logger.parent}:{os.environ['PATH']}")
    hook.run(HEAD + UUID, "started", "begin")
    until(lambda: log.exists() and log.read_text().endswith("killed\n"), 20, running.read_text)
    said = f"guest {GUEST}, started: the report to pinner did not end within 60 s, or was killed"
    assert said in log.read_text().splitlines()
    # Its parent may have been killed, too: then another process ends it for good.
    until(lambda: not Path(f"/proc/{running.read_text().strip()}").exists(), 20, running.read_text)


@pytest.mark.parametrize("event", ["prepare", "start", "stopped", "release", "attach", "restore", "migrate"])
def test_other_events_read_nothing(hook, event):
    output, written = hook.run(endless(HEAD + UUID), event, "end")
    assert (output, hook.reported()) == ("", [])
    assert written <= 3 * 65536


def test_a_migration_reads_at_most_16_mib(hook):
    output, written = hook.run(endless(HEAD, "urn:pinner:pins:1"), "migrate", "begin")
    assert output == ""
    assert written <= (16 << 20) + 5 * 65536


@pytest.mark.parametrize("guest", ["", "a", GUEST[:-1], GUEST + "0", "a" * 10_000, GUEST.upper(), "$(reboot)", "../x"])
def test_a_text_that_is_no_uuid_is_not_reported(hook, guest):
    assert hook.run(f"{HEAD}<uuid>{guest}</uuid>\n</domain>\n", "started", "begin")[0] == ""
    assert hook.run(f"{HEAD}{UUID}</domain>\n", "reconnect", "begin")[0] == ""
    until(lambda: hook.reported() == [GUEST, "reconnect"], 20, hook.reported)


@pytest.mark.parametrize(
    "text",
    [
        "python = {python}",
        "url = unix:/x\r\npython = {python}\r\n",
        "\tpython\t=\t{python}\t\n",
        "python={python}\n",
        "# python = /nonexistent\npython = {python}\npython\n",
        "python = /nonexistent\npython = {python}\n",
    ],
    ids=["no end of line", "Windows", "tabs", "no blanks", "comment", "last"],
)
def test_the_script_and_the_program_read_the_same_settings(hook, tmp_path, text):
    python = str(tmp_path / "python")
    (tmp_path / "hook.conf").write_bytes(text.format(python=python).encode())
    assert handover.settings(str(tmp_path / "hook.conf"))["python"] == python
    hook.run(HEAD + UUID + "</domain>\n", "started", "begin")
    until(lambda: hook.reported() == [GUEST, "started"], 20, hook.reported)
