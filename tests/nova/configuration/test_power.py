"""What `[libvirt] cpu_power_management` does to dedicated CPUs, done by Nova's own code in a made-up sysfs that pinner
reads, too."""

import shutil

import pytest
from support.hosts import snapshot
from support.made_up.readings import reading

from pinner.checks.power import CHECKS
from pinner.host.hardware.sysfs import read_topology
from pinner.model.cpuset import CpuSet
from pinner.model.guest.nova import Listening, NovaConf
from pinner.planning.questions.nova_check import report

core = pytest.importorskip("nova.virt.libvirt.cpu.core", reason="needs Nova itself (tox -e nova)")
api = pytest.importorskip("nova.virt.libvirt.cpu.api")
filesystem = pytest.importorskip("nova.filesystem")
exception = pytest.importorskip("nova.exception")
nova_conf = pytest.importorskip("nova.conf")
privsep = pytest.importorskip("nova.privsep")

CPUS = range(8)
(SLOW,) = (check for check in CHECKS if check.code == "cpu-slow-governor")


class Sysfs:
    """The CPUs of a made-up kernel: an offline CPU has no governor, and gets its earlier one back."""

    def __init__(self, root, offline, governors):
        self.root, self.folder = root, root / "sys/devices/system/cpu"
        self.governors = dict.fromkeys(CPUS, governors) if isinstance(governors, str) else governors
        self.folder.mkdir(parents=True)
        (self.folder / "present").write_text("0-7\n")
        for cpu in CPUS:
            self.switch(cpu, cpu not in offline)

    def switch(self, cpu, is_online):
        here = self.folder / f"cpu{cpu}"
        here.mkdir(exist_ok=True)
        if cpu:  # the kernel never takes CPU 0 offline
            (here / "online").write_text(f"{is_online:d}\n")
        if is_online and cpu in self.governors:
            (here / "cpufreq").mkdir(exist_ok=True)
            (here / "cpufreq/scaling_governor").write_text(self.governors[cpu] + "\n")
        elif not is_online and (here / "cpufreq").exists():
            self.governors[cpu] = (here / "cpufreq/scaling_governor").read_text().strip()
            shutil.rmtree(here / "cpufreq")

    def write(self, path, data):
        """In the place of nova.filesystem.write_sys, which would write into the real sysfs."""
        cpu, _, name = path.removeprefix(f"{self.folder}/cpu").partition("/")
        if name == "online":
            self.switch(int(cpu), data == "1")
        elif not (self.folder / f"cpu{cpu}/cpufreq").exists():
            raise exception.FileNotFound(file_path=path)
        else:
            (self.folder / f"cpu{cpu}/{name}").write_text(data + "\n")


@pytest.fixture
def host(tmp_path, monkeypatch):
    conf = nova_conf.CONF

    def make(strategy, dedicated, offline, governors):
        sysfs = Sysfs(tmp_path / "h", CpuSet.parse(offline), governors)
        monkeypatch.setattr(filesystem, "write_sys", sysfs.write)
        monkeypatch.setattr(core, "CPU_PATH_TEMPLATE", f"{sysfs.folder}/cpu%(core)s")
        monkeypatch.setattr(core, "AVAILABLE_PATH", f"{sysfs.folder}/present")
        conf.set_override("cpu_power_management", True, "libvirt")
        conf.set_override("cpu_power_management_strategy", strategy, "libvirt")
        conf.set_override("cpu_dedicated_set", dedicated, "compute")
        return sysfs

    privsep.sys_admin_pctxt.set_client_mode(False)
    yield make
    privsep.sys_admin_pctxt.set_client_mode(True)
    for name in ("cpu_power_management", "cpu_power_management_strategy"):
        conf.clear_override(name, "libvirt")
    conf.clear_override("cpu_dedicated_set", "compute")


def start(dedicated):
    """Do what nova-compute does to the CPUs when it starts (LibvirtDriver.init_host); why it does not start."""
    cpus = set(CpuSet.parse(dedicated))
    try:
        api.API().power_up(cpus)
        api.API().validate_all_dedicated_cpus()
        api.API().power_down_all_dedicated_cpus()
    except (exception.InvalidConfiguration, exception.FileNotFound) as error:
        return str(error)
    return ""


def seen(sysfs, strategy, dedicated):
    """The host as pinner sees it."""
    conf = NovaConf(
        ("nova.conf",),
        dedicated=dedicated,
        format="both",
        topics=("versioned_notifications",),
        drivers=("messagingv2",),
        power_management=True,
        power_strategy=strategy,
    )
    return snapshot(read_topology(sysfs.root), dedicated=CpuSet.parse(dedicated), nova=conf)


MIXED = {cpu: "performance" if cpu < 6 else "powersave" for cpu in CPUS}


@pytest.mark.parametrize("strategy", ["cpu_state", "governor"])
@pytest.mark.parametrize("dedicated", ["4-7", "0,4-7"])
@pytest.mark.parametrize("offline", ["", "6-7", "5", "2"])
@pytest.mark.parametrize("governors", ["performance", "powersave", MIXED, {}], ids=["fast", "slow", "mixed", "none"])
def test_nova_starts_where_pinner_finds_nothing(host, strategy, dedicated, offline, governors):
    sysfs = host(strategy, dedicated, offline, governors)
    found = report(seen(sysfs, strategy, dedicated), Listening()).findings
    if governors is MIXED and offline == "6-7" and strategy == "cpu_state":
        # The kernel does not tell the governor of an offline CPU.
        assert start(dedicated)
        return
    assert bool(start(dedicated)) == bool(found), found


@pytest.mark.parametrize("strategy", ["cpu_state", "governor"])
def test_no_cpu_that_nova_powered_down_is_used_or_reported(host, strategy):
    sysfs = host(strategy, "4-7", "", "performance")
    assert start("4-7") == ""
    now = seen(sysfs, strategy, "4-7")
    checked = report(now, Listening())
    assert (str(checked.for_vcpus), str(checked.for_others)) == ("0-3", "0-3")
    assert str(checked.unused) == ("4-7" if strategy == "cpu_state" else "")
    assert checked.findings == ()
    assert {cpu.governor for cpu in now.topology.cpus if cpu.id >= 4} == {
        None if strategy == "cpu_state" else "powersave"
    }
    assert list(SLOW.find(reading(top=now.topology, dedicated=now.dedicated, nova=now.nova))) == []
