"""The filter of libvirt's hook script as a program: its bounds, its failures, and what the script reports."""

import ast
import os
import subprocess
import sys
import time

import pytest
from support.guests.named_pins import ETC, NAMED, PINNED, domain, pin

SECONDS = 15.0
"""The hook script gives the filter three seconds of CPU time, and ends it after eight seconds in any case."""


def test_the_filter_runs_with_the_pythons_of_old_hosts():
    ast.parse((ETC / "libvirt-strip-pins").read_text(), feature_version=(3, 6))


def run(xml):
    """The hook script's output for a migrating guest. It must end well, without a word, and within its bounds."""
    began = time.monotonic()
    done = subprocess.run(
        [run.script, "web", "migrate", "begin", "-"], input=xml, capture_output=True, timeout=4 * SECONDS
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - began < SECONDS
    return done.stdout


@pytest.fixture(autouse=True)
def script(tmp_path):
    """The installed files."""
    folder = tmp_path / "hooks/qemu.d"
    folder.mkdir(parents=True)
    (folder / "pinner").write_text((ETC / "libvirt-qemu-hook").read_text().replace("/etc/pinner", str(tmp_path)))
    (folder / "pinner").chmod(0o755)
    (tmp_path / "hooks/pinner-strip-pins").write_bytes((ETC / "libvirt-strip-pins").read_bytes())
    run.script = folder / "pinner"
    return folder / "pinner"


OURS = domain(PINNED[0], NAMED[0])


def test_the_script_prints_the_changed_xml():
    assert run(OURS.encode()) == domain().encode()
    assert run(domain("".join(PINNED)).encode()) == b"", "libvirt keeps the XML if the script prints nothing"


BOMB = "<!DOCTYPE domain [<!ENTITY a0 'ha'>{}]>".format(
    "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 30))
)


@pytest.mark.parametrize(
    "xml",
    [
        b"",
        b"\0" * 1000,
        OURS.encode()[:-20],
        OURS.encode() + b"<more/>",
        (BOMB + OURS.replace("web", "&a29;")).encode(),
        ("<!DOCTYPE domain SYSTEM 'file:///etc/passwd'>" + OURS).encode(),
        OURS.encode("utf-16"),
        ("<?xml version='1.0' encoding='utf-16'?>" + OURS).encode("utf-16"),
        OURS.encode("latin-1"),
        OURS.replace("web", "\x01").encode(),
        OURS.encode().replace(b"web", b"\xff\xfe\xc0"),
        domain(PINNED[0], NAMED[0], "<x>" * 500_000).encode(),
        b"<a y='urn:pinner:pins:1'" + b" x='1'" * 200_000 + b"/>",
        b"urn:pinner:pins:1" + b"x" * (40 << 20),
    ],
)  # fmt: skip
def test_hostile_xml_is_left_as_it_is(xml):
    assert run(xml) == b""


@pytest.mark.parametrize(
    "more",
    [
        "<x/>" * 300_000,
        "<x>" * 200_000 + "</x>" * 200_000,
        "<y a='" + "&amp;" * 200_000 + "'/>",
        "<p:pins xmlns:p='urn:pinner:pins:1'>" + "<p:pin kind='vcpu' cpus='0-16383'/>" * 20_000 + "</p:pins>",
    ],
)
def test_a_megabyte_of_xml_is_filtered_in_time(more):
    """Such XML needs more than a mebibyte, which some hosts have never tried."""
    after = run(domain(PINNED[0], NAMED[0], more).encode()).decode()
    assert after == domain(more="" if "urn:pinner" in more else more)


@pytest.mark.parametrize("pins", [20_000, 200_000])
def test_any_number_of_pins_ends_in_time(pins):
    xml = domain("".join(pin("vcpu", number, "0-16383") for number in range(pins)), NAMED[0])
    assert run(xml.encode()) in (b"", domain("".join(pin("vcpu", n, "0-16383") for n in range(pins))).encode())


def test_memory_is_bounded():
    """A program between measures the hook: the peak of a child counts what its parent had when the child began."""
    program = "import resource, subprocess, sys; subprocess.run(sys.argv[1:]); "
    program += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    command = [sys.executable, "-c", program, run.script, "web", "migrate", "begin", "-"]
    xml = b"<domain><!-- urn:pinner:pins:1 -->" + b"<x>" * (5 << 20)
    assert int(subprocess.run(command, input=xml, capture_output=True, check=True).stdout) <= 512 << 10, "KiB"


@pytest.mark.parametrize(
    "crash",
    [
        "raise SystemExit(3)",
        "import os; os.kill(os.getpid(), 11)",
        "while True: pass",
        "print('<domain>', flush=True); raise SystemExit(1)",
        "import nothing",
        "x = (",
    ],
)
def test_the_guest_migrates_though_the_filter_crashes(script, crash):
    (script.parents[1] / "pinner-strip-pins").write_text(crash)
    assert run(OURS.encode()) == b""


@pytest.mark.parametrize("missing", ["filter", "python", "stdin"])
def test_a_missing_part_changes_nothing(script, missing, tmp_path):
    if missing == "filter":
        (script.parents[1] / "pinner-strip-pins").unlink()
    if missing == "python":
        broken = tmp_path / "broken"
        broken.write_text("#!/no/such/interpreter\n")
        broken.chmod(0o755)
        (tmp_path / "hook.conf").write_text(f"python = {broken}\n")
    assert run(b"" if missing == "stdin" else OURS.encode()) == b""


def test_a_python_that_does_not_exist_is_replaced_by_the_systems(tmp_path):
    (tmp_path / "hook.conf").write_text("python = /opt/gone/bin/python\n")
    assert run(OURS.encode()) == domain().encode()


def test_stdin_that_never_ends_does_not_hold_libvirt(script):
    read, write = os.pipe()
    try:
        began = time.monotonic()
        done = subprocess.run([script, "web", "migrate", "begin", "-"], stdin=read, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert time.monotonic() - began < SECONDS
    finally:
        os.close(read)
        os.close(write)


@pytest.fixture
def reported(tmp_path):
    """Runs the script for a guest that starts; the UUIDs that it reports."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$4" >>{tmp_path}/reported\n')
    python.chmod(0o755)
    (tmp_path / "hook.conf").write_text(f"python = {python}\n")

    def start(xml, seconds=2.0):
        done = subprocess.run(
            [run.script, "web", "started", "begin", "-"], input=xml, capture_output=True, timeout=4 * SECONDS
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        found, until = tmp_path / "reported", time.monotonic() + seconds
        while not found.exists() and time.monotonic() < until:
            time.sleep(0.02)
        return found.read_text().split() if found.exists() else []

    return start


GUEST = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("more", ["", "\n<x/>" * 300_000, "<uuid>x</uuid>", "\0"], ids=["usual", "long", "two", "nul"])
def test_a_guest_that_starts_is_reported(reported, more):
    assert reported(f"<domain>\n  <name>a</name>\n  <uuid>{GUEST}</uuid>\n{more}</domain>".encode(), 60.0) == [GUEST]


@pytest.mark.parametrize(
    "xml",
    [
        b"",
        GUEST.encode(),
        b"<uuid>" * 200_000,
        b"</uuid>" + b"<uuid>" * 200_000,
        f"<uuid>\n{GUEST}</uuid>".encode(),
        f"<uuid>{GUEST}; id</uuid>".encode(),
    ],
    ids=["empty", "no element", "many", "reversed", "blank", "command"],
)
def test_xml_without_a_uuid_is_not_reported(reported, xml):
    assert reported(xml) == []
