"""Writes the definitions of guests with Nova's own code, for a made-up host of two NUMA nodes.

Run ``define.py`` by an interpreter that has Nova. It reads one JSON object per line from stdin: ``vcpus``,
``extra_specs``, the image's ``properties``, the host's ``shared`` and ``dedicated`` CPU sets (empty: not set),
and its ``threads`` a core.
It prints one JSON object per line: the definition ``xml``, and ``owned``, the host's CPUs that Nova's own accounting
has given to this guest alone. Where Nova refuses the flavor, the object has its ``refusal``.
"""

import json
import sys

import nova.conf
from nova import exception, objects
from nova.virt import hardware
from nova.virt.libvirt import config as vconfig
from nova.virt.libvirt.driver import LibvirtDriver

UUID = "00000000-0000-4000-8000-000000000001"
_CELL = """<cell id='{id}'><memory unit='KiB'>8388608</memory><pages unit='KiB' size='4'>1572864</pages>
<pages unit='KiB' size='2048'>1024</pages><cpus num='8'>{cpus}</cpus></cell>"""
_CPU = "<cpu id='{id}' socket_id='{node}' core_id='{core}' siblings='{siblings}'/>"


def capabilities(threads):
    """libvirt's capabilities of a host of two nodes with huge pages: CPUs 0-7 and 8-15, with so many of them a core."""
    cells = "".join(_CELL.format(id=node, cpus=_cpus(node, threads)) for node in (0, 1))
    return f"""<capabilities><host><uuid>{UUID}</uuid><cpu><arch>x86_64</arch></cpu>
<topology><cells num='2'>{cells}</cells></topology></host></capabilities>"""


def _cpus(node, threads):
    cores = [range(first, first + threads) for first in range(8 * node, 8 * node + 8, threads)]
    return "".join(
        _CPU.format(id=cpu, node=node, core=core[0], siblings=",".join(map(str, core)))
        for core in cores
        for cpu in core
    )


class Host:
    """The part of nova.virt.libvirt.host.Host that the driver asks: a real one has only the nodes of this machine."""

    def __init__(self, threads):
        self._threads = threads

    def get_capabilities(self):
        """libvirt's capabilities, read by Nova."""
        found = vconfig.LibvirtConfigCaps()
        found.parse_str(capabilities(self._threads))
        return found

    def get_online_cpus(self):
        """All CPUs."""
        return set(range(16))

    def has_min_version(self, *_, **__):
        """Yes: libvirt and QEMU are new enough."""
        return True


def define(vcpus, extra_specs, properties, threads):
    """The definition of a guest of this flavor, from Nova's choice of nodes to the XML, and the CPUs that it owns."""
    server = instance(vcpus, extra_specs, properties)
    flavor, image = server.flavor, objects.ImageMeta.from_instance(server)
    driver = LibvirtDriver.__new__(LibvirtDriver)  # without a connection: the methods that write XML need none
    driver._host, driver._reserved_hugepages = Host(threads), {}
    topology, owned = hardware.numa_get_constraints(flavor, image), []
    if topology is not None:
        host = driver._get_host_numa_topology()
        topology = hardware.numa_fit_instance_to_host(host, topology, {})
        if topology is None:
            raise exception.NovaException("the guest does not fit")
        used = hardware.numa_usage_from_instance_numa(host, topology)
        owned = sorted(cpu for cell in used.cells for cpu in cell.pinned_cpus)
    numa = driver._get_guest_numa_config(topology, flavor, image)
    guest = vconfig.LibvirtConfigGuest()
    guest.virt_type, guest.os_type, guest.uuid, guest.name = "kvm", "hvm", UUID, "i-1"
    guest.memory, guest.vcpus, guest.cpuset = 1 << 20, vcpus, numa.cpuset
    guest.cputune, guest.numatune = numa.cputune, numa.numatune
    guest.cpu = vconfig.LibvirtConfigGuestCPU()
    guest.cpu.numa = numa.numaconfig
    guest.membacking = driver._get_guest_memory_backing_config(topology, numa.numatune, flavor, image)
    guest.metadata.append(driver._get_guest_config_meta(driver.get_instance_driver_metadata(server, [])))
    return {"xml": guest.to_xml(pretty_print=False), "owned": owned}


def instance(vcpus, extra_specs, properties):
    """An instance in memory, with the flavor and the image's properties."""
    flavor = objects.Flavor(
        flavorid="1", name="m1", memory_mb=1024, vcpus=vcpus, root_gb=1, ephemeral_gb=0, swap=0, extra_specs=extra_specs
    )
    system_metadata = {f"image_{name}": value for name, value in properties.items()}
    return objects.Instance(
        uuid=UUID, display_name="web", user_id="u", project_id="p", image_ref=UUID, flavor=flavor,
        system_metadata=system_metadata,
    )  # fmt: skip


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
        try:
            made = define(asked["vcpus"], asked["extra_specs"], asked["properties"], asked["threads"])
        except exception.NovaException as error:
            made = {"refusal": f"{type(error).__name__}: {error}"}
        print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
