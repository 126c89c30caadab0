"""Nova's own code makes the XML for the destinations of a live migration: from JSON on stdin to JSON on stdout.

Input: ``xml`` is the running guest's, ``shared`` has the CPUs of cpu_shared_set for each destination (null: without the
fix of bug 1869804). Output: the XML for each destination.
"""

import json
import sys

from nova import objects
from nova.virt.libvirt import migration


class Source:
    """The part of Nova's Guest that its migration code calls."""

    def __init__(self, xml):
        self._xml = xml

    def get_xml_desc(self, *, dump_migratable):
        assert dump_migratable
        return self._xml


def main():
    objects.register_all()
    given = json.load(sys.stdin)
    print(json.dumps([updated(given["xml"], shared) for shared in given["shared"]]))


def updated(xml, shared):
    data = objects.LibvirtLiveMigrateData(
        bdms=[],
        graphics_listen_addr_vnc="0.0.0.0",
        graphics_listen_addr_spice="0.0.0.0",
        serial_listen_addr="",
        serial_listen_ports=[],
    )
    if shared is not None:
        data.dst_cpu_shared_set_info = set(shared)
    instance = objects.Instance(flavor=objects.Flavor(extra_specs={}))
    return migration.get_updated_guest_xml(instance, Source(xml), data, lambda *_: None)


main()
