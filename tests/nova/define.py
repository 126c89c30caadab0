"""Writes the definitions of guests with Nova's own code, for a made-up host of two NUMA nodes.

Run ``define.py`` by an interpreter that has Nova. It reads one JSON object per line from stdin: ``vcpus``,
``extra_specs``, and the host's ``shared`` and ``dedicated`` CPU sets (empty: not configured). It prints the definition
on one line after each.
"""

import json
import sys

import nova.conf
from nova import objects
from nova.virt import driver as virt
from nova.virt import hardware
from nova.virt.libvirt import config as vconfig
from nova.virt.libvirt.driver import LibvirtDriver

UUID = "00000000-0000-4000-8000-000000000001"
_CELL = """<cell id='{id}'><memory unit='KiB'>8388608</memory><pages unit='KiB' size='4'>1572864</pages>
<pages unit='KiB' size='2048'>1024</pages><cpus num='8'>{cpus}</cpus></cell>"""
_CPU = "<cpu id='{id}' socket_id='{node}' core_id='{id}' siblings='{id}'/>"
CELLS = "".join(
    _CELL.format(id=node, cpus="".join(_CPU.format(id=cpu, node=node) for cpu in range(8 * node, 8 * node + 8)))
    for node in (0, 1)
)
CAPABILITIES = f"""<capabilities><host><uuid>{UUID}</uuid><cpu><arch>x86_64</arch></cpu>
<topology><cells num='2'>{CELLS}</cells></topology></host></capabilities>"""
"""libvirt's capabilities of a host of two nodes: CPUs 0-7 and 8-15, with huge pages."""


class Host:
    """The part of nova.virt.libvirt.host.Host that the driver asks: a real one has only the nodes of this machine."""

    def get_capabilities(self):
        """libvirt's capabilities, read by Nova."""
        capabilities = vconfig.LibvirtConfigCaps()
        capabilities.parse_str(CAPABILITIES)
        return capabilities

    def get_online_cpus(self):
        """All CPUs."""
        return set(range(16))

    def has_min_version(self, *_, **__):
        """Yes: libvirt and QEMU are new enough."""
        return True


def define(vcpus, extra_specs):
    """The definition of a guest of this flavor, from Nova's choice of nodes to the XML."""
    flavor = objects.Flavor(
        flavorid="1", name="m1", memory_mb=1024, vcpus=vcpus, root_gb=1, ephemeral_gb=0, swap=0, extra_specs=extra_specs
    )
    image = objects.ImageMeta.from_dict({"properties": {}})
    driver = LibvirtDriver.__new__(LibvirtDriver)  # without a connection: the methods that write XML need none
    driver._host, driver._reserved_hugepages = Host(), {}
    topology = hardware.numa_get_constraints(flavor, image)
    if topology is not None:
        topology = hardware.numa_fit_instance_to_host(driver._get_host_numa_topology(), topology, {})
    numa = driver._get_guest_numa_config(topology, flavor, image)
    guest = vconfig.LibvirtConfigGuest()
    guest.virt_type, guest.os_type, guest.uuid, guest.name = "kvm", "hvm", UUID, "i-1"
    guest.memory, guest.vcpus, guest.cpuset = 1 << 20, vcpus, numa.cpuset
    guest.cputune, guest.numatune = numa.cputune, numa.numatune
    guest.cpu = vconfig.LibvirtConfigGuestCPU()
    guest.cpu.numa = numa.numaconfig
    guest.membacking = driver._get_guest_memory_backing_config(topology, numa.numatune, flavor, image)
    guest.metadata.append(driver._get_guest_config_meta(_metadata(flavor)))
    return guest.to_xml(pretty_print=False)


def _metadata(flavor):
    return virt.InstanceDriverMetadata(
        root_type="image",
        root_id=UUID,
        instance_meta=virt.NovaInstanceMeta(name="web", uuid=UUID),
        owner=virt.OwnerMeta(userid="u", username="ann", projectid="p", projectname="web"),
        image=None,
        flavor=flavor,
        network_info=[],
    )


def main():
    """Write the definitions that stdin asks for."""
    conf = nova.conf.CONF
    conf([], project="nova", default_config_files=[])
    nova.conf.neutron.register_dynamic_opts(conf)
    objects.register_all()
    for line in sys.stdin:
        asked = json.loads(line)
        for kind in ("shared", "dedicated"):
            conf.set_override(f"cpu_{kind}_set", asked[kind] or None, "compute")
        print(define(asked["vcpus"], asked["extra_specs"]).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
