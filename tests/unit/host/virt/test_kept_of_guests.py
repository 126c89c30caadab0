"""What is kept of guests is kept while they run."""

import os
from dataclasses import replace

import pytest

from pinner.host.kernel import affinity
from pinner.host.kernel.cpu_clocks import KnownMasks
from pinner.host.virt import libvirt_connections
from pinner.host.virt.guests import DomainDescription
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import Target

pytestmark = pytest.mark.fault(73)
FIRST = DomainDescription("u1", "g1", "running", "<domain><vcpu>2</vcpu></domain>", "<domain><vcpu>3</vcpu></domain>")
SECOND = replace(FIRST, uuid="u2", name="g2", xml="<domain><vcpu>4</vcpu></domain>", definition=None)


def test_an_xml_is_read_once_while_a_guest_has_it(monkeypatch):
    libvirt, listed = Libvirt("test:///default"), [FIRST, SECOND]
    monkeypatch.setattr(libvirt, "descriptions", lambda: listed)
    first, second = libvirt.active()
    again = libvirt.active()
    assert [each.xml for each in again] == [first.xml, second.xml]
    assert again[0].xml is first.xml
    assert again[0].definition is first.definition
    listed.remove(FIRST)
    assert libvirt.active()[0].xml is second.xml
    listed.append(FIRST)
    assert libvirt.active()[1].xml is not first.xml


def test_masks_are_kept_of_the_guests_that_run():
    known, process = KnownMasks(), affinity.mask(os.getpid()).key
    targets = [Target("emulator", uuid, None, uuid) for uuid in ("u1", "u2")]
    for target in targets:
        known.masks(target, process, lambda: (affinity.mask(os.getpid()),))
    assert set(known._known) == set(targets)
    known.keep({"u2"})
    assert set(known._known) == {targets[1]}


def test_a_connection_keeps_some_domains(monkeypatch):
    monkeypatch.setattr(libvirt_connections, "_MOST_DOMAINS", 2)
    asked = []

    class Connection:
        def lookupByUUIDString(self, uuid):  # noqa: N802
            asked.append(uuid)
            return object()

    link = libvirt_connections._Link(Connection())
    for uuid in ("a", "a", "b", "c", "a"):
        link.domain(uuid)
    assert asked == ["a", "b", "c", "a"]
