"""The XML of a captured guest has what pinner reads, and no secret; scrubbed, it has no name either."""

from dataclasses import replace

import pytest
from lxml import etree

from pinner.host.captured import scrub
from pinner.host.captured.scrub import Alias
from pinner.host.virt import domain_xml

XML = """
<domain type='kvm' id='3' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>acme-db</name><uuid>6a5b7a0e-0000-4000-8000-00000000acce</uuid>
  <title>acme</title><description>acme s3cret</description>
  <metadata>
    <nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>
      <nova:name>acme-db</nova:name>
      <nova:flavor name='acme.big'>
        <nova:extraSpecs><nova:extraSpec name='hw:cpu_policy'>dedicated</nova:extraSpec></nova:extraSpecs>
      </nova:flavor>
      <nova:owner><nova:user uuid='1'>acme-user</nova:user><nova:project uuid='2'>acme</nova:project></nova:owner>
    </nova:instance>
    <cpus xmlns='urn:pinner:domain:1' leave='alone'/>
    <other xmlns='http://acme.example/'>s3cret</other>
  </metadata>
  <memory unit='KiB'>2048</memory><vcpu placement='static' cpuset='0-3'>2</vcpu><iothreads>1</iothreads>
  <cputune><vcpupin vcpu='1' cpuset='2'/><emulatorpin cpuset='0'/><iothreadpin iothread='1' cpuset='3'/></cputune>
  <numatune><memory mode='strict' nodeset='1'/></numatune>
  <cpu><numa><cell id='0' cpus='0-1' memory='2048' unit='KiB'/></numa></cpu>
  <os><cmdline>password=s3cret</cmdline></os>
  <sysinfo type='smbios'><system><entry name='serial'>s3cret</entry></system></sysinfo>
  <devices>
    <disk><source file='/acme/s3cret.qcow2'/><auth username='s3cret'/><serial>s3cret</serial></disk>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:01'/><source bridge='acme'/><target dev='tap-acme'/>
    </interface>
    <hostdev><source><address domain='0x0000' bus='0x3b' slot='0x02' function='0x1'/></source></hostdev>
    <graphics type='vnc' passwd='s3cret'/>
  </devices>
  <seclabel model='dac'><label>acme:acme</label></seclabel>
  <seclabel model='selinux'><label>s3cret</label></seclabel>
  <qemu:commandline><qemu:arg value='s3cret'/></qemu:commandline>
</domain>"""


def test_everything_that_pinner_reads_is_kept_and_nothing_secret():
    kept = scrub.reduced(XML)
    assert domain_xml.parse(kept) == domain_xml.parse(XML)
    assert "s3cret" not in kept
    assert "numatune" in kept
    assert "<cell" in kept


def test_with_an_alias_no_name_is_kept():
    kept = scrub.reduced(XML, Alias("guest-1", "00000000-0000-4000-8000-000000000001"))
    for name in ("s3cret", "acme", "acce", "52:54"):
        assert name not in kept
    now, before = domain_xml.parse(kept), domain_xml.parse(XML)
    unnamed = replace(before.nova, instance="", project="", user="", flavor="")
    assert now == replace(before, nova=unnamed, taps=(), user="")
    assert etree.fromstring(kept).findtext("name") == "guest-1"


def test_the_capabilities_are_reduced_to_the_topology():
    cell = "<cells num='1'><cell id='0'><cpus><cpu id='0'/></cpus></cell></cells>"
    host = f"<host><uuid>s3cret</uuid><topology>{cell}</topology><secmodel><label>s3cret</label></secmodel></host>"
    kept = scrub.capabilities(f"<capabilities>{host}<guest>s3cret</guest></capabilities>")
    assert kept == f"<capabilities><host><topology>{cell}</topology></host></capabilities>".replace("'", '"')


@pytest.mark.parametrize(
    "entity", ["<!DOCTYPE d [<!ENTITY e SYSTEM 'file:///etc/hostname'>]><domain><name>&e;</name></domain>"]
)
def test_entities_are_not_read(entity):
    assert "file:" not in scrub.reduced(entity)
