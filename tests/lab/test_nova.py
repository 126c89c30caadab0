"""A guest that Nova pinned and floating guests, on a host whose nova.conf has CPU sets."""

import json
from contextlib import ExitStack, contextmanager

import pytest
from private_libvirt import guest_xml
from support.system.lab import (
    CALLER,
    apply,
    boot_disk,
    guests,
    inventory,
    masks,
    name,
    pinner,
    plan,
    planned,
    rollback,
    server,
    wrong,
)

from pinner.model.cpuset import CpuSet
from pinner.model.errors import NovaConflict
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.journal import ApplyOptions

CONF = "/etc/nova/nova.conf"
METADATA = """<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>i</nova:name>
<nova:flavor name="m1" id="1"><nova:extraSpecs><nova:extraSpec name="hw:cpu_policy">dedicated</nova:extraSpec>
</nova:extraSpecs></nova:flavor></nova:instance></metadata>"""


@contextmanager
def nova_conf(host, **sets):
    """A nova.conf with these sets."""
    lines = "\n".join(["[compute]", *(f"{option} = {cpus}" for option, cpus in sets.items())])
    host.run(f"mkdir -p {CONF.rpartition('/')[0]} && cat > {CONF}", stdin=f"{lines}\n")
    try:
        yield
    finally:
        host.run(f"rm {CONF}")


@contextmanager
def pinned_guest(host, *cpus):
    """Guest nova as Nova defines it: each vCPU on a CPU of its own, and QEMU's own threads on all these CPUs."""
    disk = boot_disk(host)
    every = ",".join(map(str, cpus))
    pins = "".join(f"<vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>" for vcpu, cpu in enumerate(cpus))
    tune = f"<cputune>{pins}<emulatorpin cpuset='{every}'/><iothreadpin iothread='1' cpuset='{every}'/></cputune>"
    xml = guest_xml("nova", vcpus=len(cpus), memory_mib=32, extra=METADATA + tune, devices=disk)
    host.run("virsh -q create /dev/stdin", stdin=xml)
    try:
        yield
    finally:
        host.run("virsh -q destroy nova")


@contextmanager
def powered_down(host, cpu):
    """An offline CPU, like the CPUs without a guest under Nova's cpu_power_management."""
    host.run(f"echo 0 > /sys/devices/system/cpu/cpu{cpu}/online")
    try:
        yield
    finally:
        host.run(f"echo 1 > /sys/devices/system/cpu/cpu{cpu}/online")


@pytest.fixture(scope="module")
def nova_host(lab_host):
    """The host with Nova's guest and floating guests, and Nova's dedicated and shared CPUs."""
    host = lab_host("two-socket")
    online = sorted(inventory(host).topology.online)
    dedicated, shared, own = CpuSet.of(online[-4:]), CpuSet.of(online[4:-4]), online[-2:]
    with ExitStack() as undo:
        undo.enter_context(nova_conf(host, cpu_dedicated_set=dedicated, cpu_shared_set=shared))
        undo.enter_context(pinned_guest(host, *own))
        undo.enter_context(guests(host, {"alpha": 2, "beta": 1}))
        yield host, dedicated, shared


@pytest.mark.fault(15)
@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_plan_apply_and_drift_never_touch_novas_guest_and_cpus(nova_host, strategy):
    host, dedicated, shared = nova_host
    before = masks(host)
    new_plan = plan(host, strategy)
    assert {want.target.name for want in new_plan.wanted if want.target.kind == "vcpu"} == {"alpha", "beta"}
    assert not any(want.target.name == "nova" for want in new_plan.wanted)
    assert new_plan.roles.vcpu <= shared
    assert not new_plan.roles.cpus & dedicated
    run, state = apply(host, new_plan)
    assert state == "applied"
    assert wrong(planned(before, new_plan), masks(host)) == []
    server(host).set_policy(name(host), Policy(Request(strategy), "observe"), CALLER)
    assert [str(drift.target) for drift in server(host).drift(name(host)).drifts] == []
    assert rollback(host, run) == "rolled_back"
    assert wrong(before, masks(host)) == []


@pytest.mark.fault(15)
def test_an_apply_is_refused_after_a_set_of_nova_has_grown(nova_host):
    host, dedicated, shared = nova_host
    new_plan, before = plan(host), masks(host)
    grown = dedicated | CpuSet.of([max(shared)])
    with nova_conf(host, cpu_dedicated_set=grown, cpu_shared_set=shared - grown):
        with pytest.raises(NovaConflict, match=f"cpu_dedicated_set {grown}"):
            server(host).apply(new_plan.id, ApplyOptions(), CALLER)
        with pytest.raises(NovaConflict, match=f"housekeeping {max(shared)}"):
            plan(host, housekeeping=str(max(shared)))
    host.run(f"printf '[compute]\\ncpu_dedicated_set = {dedicated}\\ncpu_shared_set = {shared}\\n' > {CONF}")
    assert wrong(before, masks(host)) == []


def test_the_nova_check_shows_sets_guests_and_unused_cpus(nova_host):
    host, dedicated, shared = nova_host
    with powered_down(host, min(dedicated)):
        result = pinner(host, "nova", "check", "--json", check=False)
        assert not any(want.cpus & dedicated for want in plan(host).wanted)
    report = json.loads(result.out)
    assert (report["dedicated"], report["shared"]) == (str(dedicated), str(shared))
    assert [(guest["name"], guest["floating"]) for guest in report["guests"]] == [("nova", True)]
    assert report["unused"] == str(min(dedicated))
    assert {"notification_format", "driver"} <= {finding["what"] for finding in report["findings"]}
    assert result.status == 1
