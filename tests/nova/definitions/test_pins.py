"""Nova's own code makes the XML for the destination of a live migration: pinner knows its pins in it."""

import json
import subprocess
import sys
from pathlib import Path

import private_libvirt
import pytest
from support.guests.real_guests import FIRST, ONLINE, SECOND, apply, plan_of, whole

from pinner.host.live import ROOT, LiveHost
from pinner.host.virt import domain_xml
from pinner.host.virt.libvirt import Libvirt
from pinner.store.journal.journal import StoredJournal

pytestmark = [
    pytest.mark.fault(76),
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus"),
]

BEFORE_32 = """<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>i</nova:name>
<nova:flavor name="m1" id="1"/></nova:instance></metadata>"""


@pytest.fixture(scope="module")
def libvirtd(tmp_path_factory):
    # "nova" alone would import this folder, which has the same name.
    pytest.importorskip("nova.conf", reason="needs Nova itself (tox -e nova)")
    with private_libvirt.private_libvirtd(tmp_path_factory.mktemp("libvirt") / "d") as uri:
        yield uri


def test_the_xml_of_the_destination_names_the_pins_that_are_in_it(libvirtd, tmp_path):
    private_libvirt.define_guest(libvirtd, private_libvirt.guest_xml("pins", extra=BEFORE_32), paused=True)
    host = LiveHost(Libvirt(libvirtd))
    guest = Libvirt(libvirtd).guests(ROOT)[0]
    journal = StoredJournal(tmp_path)
    assert apply(plan_of(host, whole(host, guest)), host, journal).state == "applied"
    journal.close()

    live = private_libvirt.virsh(libvirtd, "dumpxml", "--migratable", "pins")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("migrated_xml.py"))]
    given = json.dumps({"xml": live, "shared": [None, [], ONLINE[1:]]})
    made = subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
    found = [domain_xml.parse(xml) for xml in json.loads(made)]
    assert [each.cpuset for each in found] == [None, None, SECOND]
    for each in found:
        assert each.own_pins == each.pins
        assert set(each.pins.values()) == {FIRST, SECOND}
        assert each.without_own_pins.pins == {}
