"""Guests migrate between two libvirtds of one machine; the destination has pinner's hook script, and no pinner: a
second pinner would confuse the two QEMUs, which have the same UUID.

The machine has two CPUs. A pin to CPU 5 in the XML of the destination stands for a source with more CPUs.
"""

import time

import private_libvirt
import pytest
from support.guests.migrations import (
    BEYOND,
    BOTH,
    FIRST,
    SECOND,
    Mover,
    NotMigrated,
    arrived,
    destination_at,
    pins,
    vcpus_of,
)
from support.server.policy_host import RARE_RESYNC, fresh_policy_server, guest_on, wait_until
from support.system.kernel import masks

from pinner.host.virt import domain_xml
from pinner.model.cpuset import CpuSet

pytestmark = [
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus", "mounts"),
    pytest.mark.slow("migrations"),
]


@pytest.fixture(scope="module")
def source(module_libvirtd):
    return module_libvirtd


@pytest.fixture(scope="module")
def libvirtd(tmp_path_factory):
    with destination_at(tmp_path_factory.mktemp("libvirt") / "e") as destination:
        yield destination


@pytest.fixture
def destination(libvirtd):
    """A destination with pinner's hook script."""
    libvirtd.hook("install-hooks")
    yield libvirtd
    for name in private_libvirt.virsh(libvirtd.uri, "list", "--name").split():
        if not name.startswith("first-"):
            private_libvirt.virsh(libvirtd.uri, "destroy", name)


@pytest.fixture
def move(source):
    """Starts a guest at the source; it ends with the test."""
    started = []

    def start(**parts):
        started.append(Mover(source, **parts))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.parametrize(
    "how",
    ["tcp://127.0.0.1", "--p2p", "--p2p --tunnelled", "tcp://127.0.0.1 --persistent --undefinesource"],
)
def test_a_guest_that_was_never_released_arrives_free(move, destination, how):
    mover = move()
    assert set(masks(mover.pid()).values()) == {FIRST}
    watch = mover.migrate(destination, *how.split())
    assert arrived(mover, destination).pins == {}
    assert set(watch.last.values()) == {BOTH}
    assert "urn:pinner:pins:1" not in mover.xml(destination.uri)
    if "--persistent" in how:
        private_libvirt.virsh(destination.uri, "undefine", mover.name)


def test_without_the_hook_the_pins_arrive(move, destination):
    destination.hook("remove-hooks")
    mover = move()
    watch = mover.migrate(destination)
    assert set(arrived(mover, destination).pins.values()) == {CpuSet.parse(FIRST)}
    assert set(watch.last.values()) == {FIRST}


@pytest.mark.parametrize("cpus", [BEYOND, f"{FIRST}-{BEYOND}"])
def test_a_guest_goes_to_a_host_with_fewer_cpus(move, destination, tmp_path, cpus):
    """The second one is a guest that was released late, or whose destination did not say which CPUs it has."""
    mover = move()
    wide = mover.xml().replace(f"cpuset='{FIRST}'", f"cpuset='{cpus}'")
    named = wide.replace(f'cpus="{FIRST}"', f'cpus="{cpus}"')
    with pytest.raises(NotMigrated, match=r"Numerical result out of range|Invalid argument"):
        mover.migrate(destination, xml=wide, tmp_path=tmp_path)
    watch = mover.migrate(destination, xml=named, tmp_path=tmp_path)
    assert arrived(mover, destination).pins == {}
    assert watch.seen <= {BOTH}
    assert set(watch.last.values()) == {BOTH}


def test_another_shared_set_at_the_destination_holds_from_the_first_moment(move, destination, tmp_path):
    """Nova writes the destination's shared set to the element <vcpu> (bug 1869804 of Nova)."""
    mover = move()
    xml = mover.xml().replace("<vcpu placement='static'>", f"<vcpu placement='static' cpuset='{SECOND}'>")
    watch = mover.migrate(destination, xml=xml, tmp_path=tmp_path)
    assert arrived(mover, destination).cpuset == CpuSet.parse(SECOND)
    assert watch.seen <= {SECOND, BOTH}
    assert set(vcpus_of(mover, destination).values()) == {SECOND}


def test_pins_that_are_not_pinners_arrive(move, destination):
    tune = (
        f"<cputune><shares>512</shares><vcpupin vcpu='0' cpuset='{SECOND}'/><vcpupin vcpu='1' cpuset='{FIRST}'/>"
        f"<emulatorpin cpuset='{FIRST}'/><iothreadpin iothread='1' cpuset='{FIRST}'/></cputune>"
        f"<numatune><memory mode='preferred' nodeset='0'/></numatune>"
    )
    mover = move(extra=tune, named=False)
    named = (f"kind='vcpu' part='0' cpus='{FIRST}'", f"kind='emulator' cpus='{FIRST}'")
    mover.set_metadata("urn:pinner:pins:1", "pinner", pins(*named))
    mover.migrate(destination)
    found = arrived(mover, destination)
    one, two = CpuSet.parse(FIRST), CpuSet.parse(SECOND)
    assert found.pins == {("vcpu", 0): two, ("vcpu", 1): one, ("iothread", 1): one}
    assert "<shares>512</shares>" in mover.xml(destination.uri)
    assert "nodeset='0'" in mover.xml(destination.uri)


@pytest.mark.parametrize("more", ["1 MiB", "deep", "pins of another namespace"])
def test_a_guest_with_much_metadata_migrates(move, destination, more):
    mover = move()
    words = {
        "1 MiB": "<y>" + "<x a='&lt;pinner&gt;'/>" * 50_000 + "</y>",
        "deep": "<x>" * 200 + "</x>" * 200,
        "pins of another namespace": pins(f"kind='vcpu' part='0' cpus='{FIRST}'"),
    }
    mover.set_metadata("urn:other", "other", words[more])
    size = len(mover.xml())
    assert size > 1 << 20 or more != "1 MiB"
    began = time.monotonic()
    mover.migrate(destination)
    assert time.monotonic() - began < 30
    assert arrived(mover, destination).pins == {}
    assert len(mover.xml(destination.uri)) > 0.9 * size - 2000


@pytest.mark.parametrize("crash", ["filter", "script", "output", "hangs"])
def test_a_guest_migrates_although_the_hook_crashes(move, destination, crash):
    """Its pins arrive, as without the hook."""
    broken = {
        "filter": "import os; os.kill(os.getpid(), 11)",
        "script": "",
        "output": "print('<domain>', flush=True); raise SystemExit(1)",
        "hangs": "while True: pass",
    }
    (destination.hooks / "pinner-strip-pins").write_text(broken[crash])
    if crash == "script":
        (destination.hooks / "pinner-strip-pins").unlink()
    mover = move()
    try:
        mover.migrate(destination)
    finally:
        (destination.hooks / "pinner-strip-pins").unlink(missing_ok=True)
    assert set(arrived(mover, destination).pins.values()) == {CpuSet.parse(FIRST)}


def test_anothers_script_and_pinners_both_change_the_guest(move, destination):
    """libvirt gives the output of one script to the next one."""
    other = destination.hooks / "qemu"
    other.write_text("#!/bin/sh\n[ \"$2\" = migrate ] || exit 0\nsed 's,<title>.*</title>,<title>there</title>,'\n")
    other.chmod(0o755)
    try:
        mover = move(extra="<title>here</title>")
        mover.migrate(destination)
    finally:
        other.unlink()
    assert arrived(mover, destination).pins == {}
    assert "<title>there</title>" in mover.xml(destination.uri)


@pytest.fixture(scope="module")
def pinner(source):
    """A pinner at the source."""
    with fresh_policy_server(source, RARE_RESYNC) as server:
        yield server


@pytest.mark.parametrize("released", ["never", "for all CPUs"])
def test_the_pins_that_a_real_pinner_makes_do_not_arrive(source, pinner, move, destination, released):
    """The release leaves explicit pins, because libvirt cannot remove one. The metadata names those, too."""
    mover = move(extra="<cputune><shares>512</shares></cputune>", named=False)
    pinner.policy("enforce", [mover.name], housekeeping=FIRST)
    pid = mover.pid()
    assert wait_until(lambda: guest_on(pid, SECOND, SECOND), 60) < 60, pinner.drift()
    uuid = private_libvirt.virsh(source, "domuuid", mover.name).strip()
    if released != "never":
        body = {"guest": uuid, "event": "instance.live_migration_pre.start", "cpus": BOTH}
        assert pinner.http.post("/events/guest-leaving", json=body).json()["run"]
        assert set(masks(pid).values()) == {BOTH}
    assert domain_xml.parse(mover.xml()).pins
    mover.migrate(destination)
    pinner.policy("observe", [uuid])
    assert arrived(mover, destination).pins == {}
    assert set(vcpus_of(mover, destination).values()) == {BOTH}
