import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.roots import two_nodes

from pinner.host.hardware.disagreements import parse, with_libnuma, with_libvirt
from pinner.host.hardware.sysfs import read_topology
from pinner.model.cpuset import CpuSet
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
    assert with_libvirt(read_topology(two_nodes(tmp_path)), SAME) == ()


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
    assert with_libvirt(read_topology(two_nodes(tmp_path)), changed) == ((warning,) if warning else ())


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


@pytest.fixture
def here():
    return read_topology(Path("/"))


def test_the_live_machine_agrees_with_libnuma(here):
    assert with_libnuma(here) == ()


def test_each_difference_from_libnuma_is_a_warning(here):
    cpu, *others = here.cpus
    node, *nodes = here.nodes
    assert (cpu.node, node.id) == (0, 0)
    wrong = replace(
        here,
        cpus=(replace(cpu, node=1), *others),
        nodes=(replace(node, memory_kib=1, distances={0: 11}), *nodes),
    )
    assert with_libnuma(wrong) == (
        f"CPU {cpu.id}: libnuma reports node 0; sysfs reports node 1",
        f"node 0: libnuma reports {node.memory_kib} KiB of memory; sysfs reports 1 KiB",
        "distance from node 0 to 0: libnuma reports 10; sysfs reports 11",
    )


def test_a_node_that_libnuma_does_not_know(here):
    unknown = replace(here.nodes[0], id=63, cpus=CpuSet(), memory_kib=5, distances={63: 10})
    warnings = with_libnuma(replace(here, nodes=(*here.nodes, unknown)))
    assert warnings[0].startswith("node 63: libnuma reports ")
    assert warnings[-1].startswith("distance from node 63 to 63")


def test_a_machine_without_libnuma_gives_one_warning(tmp_path):
    """A new interpreter whose loader finds no library: the import of py-libnuma fails."""
    script = (
        "import ctypes.util, pathlib\n"
        "ctypes.util.find_library = lambda name: None\n"
        "from pinner.host.hardware import disagreements, sysfs\n"
        "print(disagreements.with_libnuma(sysfs.read_topology(pathlib.Path('/'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert "libnuma cannot be used" in done.stdout
