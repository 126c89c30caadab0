"""Pins that pinner's metadata names are neither Nova's dedication nor an operator's, wherever they occur."""

import pytest
from support.roots import process, two_nodes

from pinner.host.kernel.partitions import UnitReader
from pinner.host.processes import qemu
from pinner.host.virt import domain_xml
from pinner.host.virt.guests import ActiveDomain, pinned_by_nova, read_guest
from pinner.model.change import PartPin
from pinner.model.cpuset import CpuSet

pytestmark = pytest.mark.fault(76)

UUID = "00000000-0000-4000-8000-000000000001"
QEMU = b"qemu-system-x86_64\0-uuid\0" + UUID.encode() + b"\0"
NO_SPECS, EMPTY = None, ""
POLICY = '<n:extraSpec name="hw:cpu_policy">dedicated</n:extraSpec>'
OTHER_SPEC = '<n:extraSpec name="hw:mem_page_size">large</n:extraSpec>'
NOT_NOVAS = "-"


def xml(*pins: str, named: tuple[str, ...] = (), specs: str | None = NO_SPECS) -> domain_xml.Domain:
    """A guest of two vCPUs. A pin, and a pin that pinner's metadata names, is "vcpu 0 4-5" or "emulator 4"."""
    tune = names = ""
    for pin in pins:
        kind, *part, cpus = pin.split()
        number = f" {kind}='{part[0]}'" if part else ""
        tune += f"<{kind}pin{number} cpuset='{cpus}'/>"
    for pin in named:
        kind, *part, cpus = pin.split()
        number = f" part='{part[0]}'" if part else ""
        names += f"<p:pin kind='{kind}'{number} cpus='{cpus}'/>"
    specs_element = "" if specs is None else f"<n:extraSpecs>{specs}</n:extraSpecs>"
    nova = (
        "<n:instance xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'><n:name>web</n:name>"
        f"<n:flavor name='m1'>{specs_element}</n:flavor></n:instance>"
    )
    return domain_xml.parse(
        f"<domain><metadata>{'' if specs == NOT_NOVAS else nova}"
        f"<p:pins xmlns:p='urn:pinner:pins:1'>{names}</p:pins></metadata>"
        f"<vcpu>2</vcpu><iothreads>1</iothreads><cputune>{tune}</cputune></domain>"
    )


def read(tmp_path, live, definition):
    root = two_nodes(tmp_path)  # CPUs 0-6 are online
    process(root, 100, command=QEMU)
    domain = ActiveDomain(UUID, "vm", "running", live, definition)
    return root, domain, read_guest(root, domain, qemu.find(root, {UUID}), UnitReader(root))


ONE = ("vcpu 0 4", "vcpu 1 5", "emulator 4-5")


@pytest.mark.parametrize(
    ("definition", "dedicated"),
    [
        pytest.param(xml(*ONE), True, id="Nova before 32 pinned it"),
        pytest.param(xml(*ONE, named=ONE), False, id="pinner pinned it"),
        pytest.param(xml(*ONE, named=("vcpu 0 4",)), True, id="pinner pinned one vCPU, Nova the other"),
        pytest.param(xml(*ONE, named=("vcpu 0 5", "vcpu 1 4")), True, id="an operator changed pinner's pins"),
        pytest.param(xml(*ONE, named=("iothread 0 4", "iothread 1 5")), True, id="pinner named other parts"),
        pytest.param(xml(*ONE, specs=EMPTY), False, id="extra specs are known to be empty"),
        pytest.param(xml(*ONE, specs=OTHER_SPEC), False, id="extra specs have no CPU policy"),
        pytest.param(xml(*ONE, specs=POLICY), True, id="extra specs have a CPU policy"),
        pytest.param(xml(*ONE, named=ONE, specs=POLICY), True, id="a policy, and pins of pinner"),
        pytest.param(xml(specs=POLICY), True, id="a policy without pins"),
        pytest.param(xml("vcpu 0 4-5", "vcpu 1 4-5"), False, id="pins of several CPUs"),
        pytest.param(xml(*ONE, specs=NOT_NOVAS), False, id="no guest of Nova"),
    ],
)
@pytest.mark.parametrize("persistent", [True, False])
def test_what_counts_as_novas_dedication(tmp_path, definition, dedicated, persistent):
    root, domain, guest = read(tmp_path, definition, definition if persistent else None)
    assert guest.dedicated is dedicated
    assert [each.uuid for each in pinned_by_nova(root, [domain])] == [UUID] * dedicated
    assert guest.operator_pins == () or guest.nova is None


def test_the_pins_of_a_guest_with_mixed_pins_that_are_novas_are_its_cpus(tmp_path):
    definition = xml(*ONE, named=("vcpu 0 4",))
    root, domain, _ = read(tmp_path, definition, definition)
    (found,) = pinned_by_nova(root, [domain])
    assert found.cpus == CpuSet.parse("5")


def test_an_emulator_pin_of_pinner_is_no_policy_of_nova(tmp_path):
    pins = ("vcpu 0 4", "vcpu 1 5", "emulator 0")
    assert read(tmp_path / "a", xml(*pins), xml(*pins))[2].emulator.policy == "isolate"
    own = xml(*pins, named=("emulator 0",))
    assert read(tmp_path / "b", own, own)[2].emulator.policy == ""


def test_extra_specs_that_are_known_decide_about_the_emulator_too(tmp_path):
    image = xml("vcpu 0 4", "vcpu 1 5", "emulator 0", specs=OTHER_SPEC + POLICY)
    assert read(tmp_path, image, image)[2].emulator.policy == ""


@pytest.mark.parametrize("persistent", [True, False])
def test_pins_that_agree_are_not_an_operators_and_others_are(tmp_path, persistent):
    named = ("vcpu 0 4", "vcpu 1 5", "emulator 4")
    found = xml("vcpu 0 4", "vcpu 1 6", "emulator 4", named=named, specs=NOT_NOVAS)
    guest = read(tmp_path, found, found if persistent else None)[2]
    assert [(pin.kind, pin.part, str(pin.cpus)) for pin in guest.operator_pins] == [("vcpu", 1, "6")]
    assert guest.own_pins == (PartPin("vcpu", 0, CpuSet.parse("4")), PartPin("emulator", None, CpuSet.parse("4")))
