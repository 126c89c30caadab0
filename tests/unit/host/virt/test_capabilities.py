import pytest
from support.roots import two_nodes

from pinner.host.hardware.sysfs import read_topology
from pinner.host.virt.capabilities import disagreements, parse
from pinner.model.errors import Invalid

SAME = """<capabilities><host><cpu/><topology><cells num='2'>
<cell id='0'><memory unit='KiB'>2048</memory><pages unit='KiB' size='4'>512</pages>
 <distances><sibling id='0' value='10'/><sibling id='2' value='21'/></distances>
 <cpus num='4'><cpu id='0' socket_id='0' core_id='0' siblings='0,4'/><cpu id='2' siblings='2,6'/>
  <cpu id='4' siblings='0,4'/><cpu id='6' siblings='2,6'/></cpus></cell>
<cell id='2'><memory unit='KiB'>2048</memory>
 <cpus num='3'><cpu id='1' siblings='1,5'/><cpu id='3' siblings='3'/><cpu id='5' siblings='1,5'/></cpus></cell>
</cells></topology></host></capabilities>"""


def test_the_cells_are_parsed():
    zero, two = parse(SAME)
    assert (zero.id, str(zero.cpus), zero.memory_kib, zero.distances) == (0, "0,2,4,6", 2048, {0: 10, 2: 21})
    assert (two.id, str(two.cpus), str(two.siblings[5]), two.distances) == (2, "1,3,5", "1,5", {})


def test_equal_topologies_give_no_warning(tmp_path):
    assert disagreements(read_topology(two_nodes(tmp_path)), SAME) == ()


@pytest.mark.parametrize(
    ("text", "replacement", "warning"),
    [
        ("<cpu id='3' siblings='3'/>", "", "node 2: libvirt reports CPUs 1,5; sysfs reports CPUs 1,3,5"),
        (
            ">2048</memory><p",
            ">999</memory><p",
            "node 0: libvirt reports 999 KiB of memory; sysfs reports 2048 KiB",
        ),
        (
            "value='21'",
            "value='20'",
            "node 0: libvirt reports distances {0: 10, 2: 20}; sysfs reports distances {0: 10, 2: 21}",
        ),
        (
            "id='3' siblings='3'",
            "id='3' siblings='3,7'",
            "CPU 3: libvirt reports CPUs 3,7 in its core; sysfs reports CPUs 3",
        ),
        ("cell id='2'", "cell id='1'", "libvirt reports nodes 0-1; sysfs reports nodes 0,2"),
        ("<memory unit='KiB'>2048</memory>\n", "", ""),
    ],
)
def test_each_difference_is_a_warning(tmp_path, text, replacement, warning):
    assert text in SAME
    changed = SAME.replace(text, replacement)
    assert disagreements(read_topology(two_nodes(tmp_path)), changed) == ((warning,) if warning else ())


@pytest.mark.parametrize("text", ["", "<capabilities>", "<a><b></a>", SAME.replace("cell id='0'", "cell id='x'")])
def test_other_text_is_refused(text):
    with pytest.raises(Invalid, match="capabilities"):
        parse(text)


def test_entities_are_not_resolved(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("2048")
    hostile = f"<!DOCTYPE c [<!ENTITY x SYSTEM 'file://{secret}'>]>" + SAME.replace(">2048<", ">&x;<")
    with pytest.raises(Invalid, match="capabilities"):
        parse(hostile)
