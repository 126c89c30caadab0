import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from pinner.host.virt import domain_xml
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.guest.guest import NovaIdentity
from pinner.model.machine.process import CpuQuota

FULL = """<domain type='kvm' id='3'>
  <name>web</name><memory unit='KiB'>2097152</memory>
  <vcpu placement='static' cpuset='0-15,^3' current='2'>4</vcpu>
  <iothreads>2</iothreads>
  <iothreadids><iothread id='2'/><iothread id='7'/></iothreadids>
  <cputune>
    <shares>2048</shares>
    <vcpupin vcpu='0' cpuset='4'/><vcpupin vcpu='3' cpuset='6-7'/>
    <emulatorpin cpuset='1-2'/><iothreadpin iothread='7' cpuset='5'/>
  </cputune>
  <devices>
    <hostdev mode='subsystem' type='pci'><source>
      <address domain='0x0000' bus='0x3b' slot='0x00' function='0x1'/></source></hostdev>
    <hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>
    <interface type='hostdev'><source><address type='pci' domain='0x0001' bus='0x5e' slot='0x1f' function='0x0'/>
      </source><mac address='52:54:00:00:00:02'/></interface>
    <interface type='bridge'><mac address='52:54:00:00:00:01'/><target dev='tap12'/><model type='virtio'/>
      <driver name='vhost' queues='4' rx_queue_size='512'/></interface>
    <interface type='user'/>
  </devices>
</domain>"""


def emulator() -> Target:
    return Target("emulator", "u", None, "web")


def vcpu(part: int) -> Target:
    return Target("vcpu", "u", part, "web")


def iothread(part: int) -> Target:
    return Target("iothread", "u", part, "web")


def test_all_fields_of_a_domain():
    domain = domain_xml.parse(FULL)
    assert domain.memory_kib == 2097152
    assert domain.vcpus == (0, 1, 2, 3)
    assert str(domain.cpuset) == "0-2,4-15"
    assert {id_: str(pin) for id_, pin in domain.vcpu_pins.items()} == {0: "4", 3: "6-7"}
    assert str(domain.emulator_pin) == "1-2"
    assert domain.iothreads == (2, 7)
    assert {id_: str(pin) for id_, pin in domain.iothread_pins.items()} == {7: "5"}
    assert domain.taps == (("tap12", "52:54:00:00:00:01", "virtio", 512, 4),)
    assert domain.pci == ("0000:3b:00.1", "0001:5e:1f.0")
    assert (domain.nova, domain.dedicated) == (None, False)


@pytest.mark.parametrize(
    ("tune", "quotas"),
    [
        ("<period>50000</period><quota>20000</quota>", {"vcpu_quota": CpuQuota(20000, 50000)}),
        ("<quota>-1</quota><global_quota>0</global_quota><emulator_quota>odd</emulator_quota>", {}),
        ("<emulator_period>9</emulator_period><emulator_quota>3000</emulator_quota><iothread_quota>2000</iothread_quota>",
         {"iothread_quota": CpuQuota(2000, 100000), "emulator_quota": CpuQuota(3000, 9)}),
        ("<global_period>0</global_period><global_quota>17592186044415</global_quota>",
         {"global_quota": CpuQuota(17592186044415, 100000)}),
    ],
)  # fmt: skip
def test_a_quota_is_a_limit_where_it_is_positive(tune, quotas):
    assert domain_xml.parse(f"<domain><cputune>{tune}</cputune></domain>").quotas == quotas


NOVA = """<domain><metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
<nova:name>web</nova:name>
<nova:flavor name="m1.small" id="1">{specs}</nova:flavor>
<nova:image uuid="">{properties}</nova:image>
<nova:owner><nova:user uuid="1">ann</nova:user><nova:project uuid="2">shop</nova:project></nova:owner>
</nova:instance></metadata></domain>"""


def nova(specs: dict[str, str] | None = None, properties: dict[str, str] | None = None) -> domain_xml.Domain:
    rows = "".join(f'<nova:extraSpec name="{name}">{text}</nova:extraSpec>' for name, text in (specs or {}).items())
    images = "".join(
        f'<nova:property name="{name}">{text}</nova:property>' for name, text in (properties or {}).items()
    )
    element = "" if specs is None else f"<nova:extraSpecs>{rows}</nova:extraSpecs>"
    return domain_xml.parse(NOVA.format(specs=element, properties=f"<nova:properties>{images}</nova:properties>"))


@pytest.mark.parametrize("specs", [None, {}, {"pinner:excluded": "yes", "hw:mem_page_size": "large", "trait:X": ""}])
def test_the_identity_has_the_extra_specs_of_the_flavor(specs):
    identity = NovaIdentity("web", "shop", "ann", "m1.small", specs or {}, "1", has_specs=specs is not None)
    assert nova(specs).nova == identity
    assert nova(specs).nova.specs_known is (specs is not None)


@pytest.mark.parametrize(
    ("specs", "properties", "dedicated"),
    [
        ({"hw:cpu_policy": "dedicated"}, {}, True),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}, {}, True),
        ({"hw:cpu_policy": "shared"}, {}, False),
        ({"resources:PCPU": "4"}, {}, True),
        ({"resources2:PCPU": "4"}, {}, True),
        ({"resources:PCPU": " 4"}, {}, True),
        ({"resources:PCPU": "four"}, {}, False),
        ({"resources:PCPUS": "4"}, {}, True),  # as Nova's pattern, which has no end
        ({"resources_a:PCPU": "4"}, {}, False),
        ({"resources:PCPU": "0", "resources:VCPU": "4"}, {}, False),
        ({}, {"hw_cpu_policy": "dedicated"}, True),
        (None, {"hw_cpu_policy": "mixed"}, True),
        ({}, {"hw_cpu_policy": "shared"}, False),
        (None, {}, False),
    ],
)
def test_flavor_or_image_request_dedicated_cpus(specs, properties, dedicated):
    assert nova(specs, properties).dedicated is dedicated


def test_defaults_of_a_domain_with_few_elements():
    domain = domain_xml.parse("<domain><vcpu>1</vcpu><iothreads>2</iothreads></domain>")
    assert (domain.vcpus, domain.cpuset, domain.emulator_pin) == ((0,), None, None)
    assert domain.iothreads == (1, 2)
    assert domain.taps == domain.pci == ()


def test_a_pin_that_does_not_parse_is_refused():
    with pytest.raises(Invalid, match="vcpupin"):
        domain_xml.parse("<domain><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='many'/></cputune></domain>")


def test_entities_are_not_resolved(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("42")
    bomb = f"<!DOCTYPE d [<!ENTITY x SYSTEM '{secret.as_uri()}'>]><domain><memory>1</memory><name>&x;</name></domain>"
    assert "42" not in domain_xml.with_pin_of(bomb, emulator(), "")


@pytest.mark.parametrize(
    ("target", "saved", "pins"),
    [
        (emulator(), "", "vcpupin 4, vcpupin 6-7, iothreadpin 5"),
        (emulator(), "<emulatorpin cpuset='9'/>", "vcpupin 4, vcpupin 6-7, iothreadpin 5, emulatorpin 9"),
        (vcpu(0), "<vcpupin vcpu='1' cpuset='9'/>", "vcpupin 6-7, emulatorpin 1-2, iothreadpin 5"),
        (vcpu(3), "<vcpupin vcpu='3' cpuset='9'/>", "vcpupin 4, emulatorpin 1-2, iothreadpin 5, vcpupin 9"),
        (iothread(7), "", "vcpupin 4, vcpupin 6-7, emulatorpin 1-2"),
        (iothread(7), "<iothreadpin iothread='2' cpuset='9'/>", "vcpupin 4, vcpupin 6-7, emulatorpin 1-2"),
    ],
)
def test_only_the_pin_of_the_target_is_restored(target, saved, pins):
    tree = etree.fromstring(domain_xml.with_pin_of(FULL, target, saved and f"<cputune>{saved}</cputune>"))
    found = [f"{pin.tag} {pin.get('cpuset')}" for pin in tree.find("cputune") if pin.tag != "shares"]
    assert ", ".join(found) == pins
    assert tree.findtext("cputune/shares") == "2048"
    assert len(tree.find("devices")) == 5


def test_an_empty_cputune_is_removed():
    pinned = "<domain><cputune><emulatorpin cpuset='1'/></cputune></domain>"
    assert domain_xml.cputune(domain_xml.with_pin_of(pinned, emulator(), "")) == ""
    assert domain_xml.cputune("<domain/>") == ""


PINS = st.dictionaries(st.sampled_from([emulator(), vcpu(0), vcpu(1), iothread(1)]), st.integers(0, 99))


def tune(pins: dict[Target, int]) -> str:
    rows = "".join(
        {
            "emulator": f"<emulatorpin cpuset='{cpu}'/>",
            "vcpu": f"<vcpupin vcpu='{target.part}' cpuset='{cpu}'/>",
            "iothread": f"<iothreadpin iothread='{target.part}' cpuset='{cpu}'/>",
        }[target.kind]
        for target, cpu in pins.items()
    )
    return f"<cputune>{rows}</cputune>" if rows else ""


@given(before=PINS, now=PINS)
def test_restoring_all_targets_restores_the_definition(before, now):
    head = "<domain><vcpu>2</vcpu><iothreads>1</iothreads>"
    xml = f"{head}{tune(now)}</domain>"
    for target in (emulator(), vcpu(0), vcpu(1), iothread(1)):
        xml = domain_xml.with_pin_of(xml, target, tune(before))
    restored, wanted = domain_xml.parse(xml), domain_xml.parse(f"{head}{tune(before)}</domain>")
    assert restored == wanted
    assert (domain_xml.cputune(xml) == "") == (not before)
    assert restored.emulator_pin == (CpuSet.of([before[emulator()]]) if emulator() in before else None)
