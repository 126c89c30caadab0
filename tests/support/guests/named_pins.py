"""A guest's XML with pins that pinner's metadata names."""

from pathlib import Path

ETC = Path(__file__).parents[3] / "etc/pinner"

NUMATUNE = "<numatune><memory mode='strict' nodeset='0'/></numatune>"


def domain(pins="", named="", more="", mark="pinner:pins xmlns:pinner='urn:pinner:pins:1'"):
    """A guest's XML. ``named`` are the pins in pinner's metadata."""
    pinner = f"<{mark}>{named}</{mark.split()[0]}>" if named else ""
    return (
        f"<domain type='qemu' id='1'>\n  <name>web &amp; &lt;pinner&gt; ü</name>\n  <metadata>{pinner}\n"
        f"    <nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'/>{more}</metadata>\n"
        f"  <vcpu cpuset='1'>4</vcpu>\n  <cputune>\n    <shares>2048</shares>{pins}</cputune>\n"
        f"  {NUMATUNE}\n</domain>\n"
    )


def pin(kind, part, cpus):
    number = "" if part is None else f" {kind}='{part}'"
    return f"<{kind}pin{number} cpuset='{cpus}'/>"


def named(kind, part, cpus):
    number = "" if part is None else f" part='{part}'"
    return f"<pinner:pin kind='{kind}'{number} cpus='{cpus}'/>"


PINNED = (pin("vcpu", 0, "0-3"), pin("vcpu", 1, "4"), pin("emulator", None, "0-1"), pin("iothread", 1, "0,2"))

NAMED = (named("vcpu", 0, "0-3"), named("vcpu", 1, "4"), named("emulator", None, "0-1"), named("iothread", 1, "0,2"))
