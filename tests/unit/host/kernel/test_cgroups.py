import pytest

from pinner.host.kernel import cgroups
from pinner.host.kernel.cgroups import Part


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("emulator", Part("emulator", None)),
        ("vcpu0", Part("vcpu", 0)),
        ("vcpu127", Part("vcpu", 127)),
        ("iothread1", Part("iothread", 1)),
        ("libvirt", None),
        ("vcpu", None),
        ("vcpu1x", None),
        ("machine-qemu.scope", None),
    ],
)
def test_the_folder_name_gives_the_part(name, part):
    assert cgroups.part_of(name) == part
