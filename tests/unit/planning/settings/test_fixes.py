"""Plans that cure findings, on made-up hosts: the same checks find nothing afterwards."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus
from support.made_up.checks.check_cases_cpus import CASES as CPUS
from support.made_up.checks.check_cases_hosts import CASES as HOSTS
from support.made_up.checks.check_cases_network import CASES as NETWORK
from support.made_up.readings import CARD, Seen, counted, findings, nic, placed, reading
from support.made_up.readings import host as topology

from pinner import codec
from pinner.model.change import StateChange
from pinner.model.errors import Invalid, Refused
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs
from pinner.model.machine.topology import FrequencyDomain
from pinner.model.plan.request import FIXES, Request
from pinner.model.reading import HostReading, HostSample, IrqCounts
from pinner.model.settings.cards import CardQueues, RpsQueue, RxCoalescing, RxRing
from pinner.model.settings.cpu_weights import SLICE
from pinner.model.settings.power import WakeLimit
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.states import Governor, Number, Word
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.planning.request.processes import pruned
from pinner.service.hosts.checker import installed

CASES = {**NETWORK, **CPUS, **HOSTS}
DEFAULTS = {"net.core.netdev_budget": 300, "net.core.netdev_max_backlog": 1000, "vm.swappiness": 60}
IRQS = (DeviceIrq(40, "ens1-0", CARD, cpus("10")), DeviceIrq(41, "ens1-1", CARD, cpus("3")))
HASTY = RxCoalescing("ens1", 2, 0, 0, is_adaptive=False, rate=90_000.0)
BALANCER = Balancer(812, "--foreground", cpus(""), 7, banned_now=cpus(""))
RING = RxRing("ens1", 2, 512, 4096, has_dropped=True)
QUEUE = RpsQueue("ens1", 2, 0, cpus("8-15"))
DOMAINS = tuple(FrequencyDomain(cpu, cpus(f"{cpu}-{cpu + 1}"), Governor("powersave")) for cpu in range(0, 16, 2))
# The operator has placed the guest: vCPUs on 8-11, emulator on 12. A plan with its pins would have other CPUs.
GUEST = placed("8-11", "12")


def host(irqs=IRQS, queue=QUEUE, domains=DOMAINS, **sysctls):
    busy = hosts.process(500, 50.0, "0-15", name="daemon")
    found = {**DEFAULTS, **{key.replace("__", "."): value for key, value in sysctls.items()}}
    settings = {"irqs": DeviceIrqs(irqs), "rps": (queue,), "sysctls": found, "rings": (RING,)}
    settings |= {
        "governors": domains,
        "coalescing": (HASTY,),
        "irqbalance": (BALANCER,),
        "queues": (CardQueues("ens1", 2, 1, 8),),
        "cpu_weights": {SLICE: 100},
        "resume_latency": tuple(WakeLimit(cpu, Word("0"), 133) for cpu in range(16)),
    }
    return hosts.snapshot(with_governors(topology(), domains), [GUEST], [busy], **settings)


def with_governors(top, domains):
    governors = {cpu: domain.governor.name for domain in domains for cpu in domain.cpus}
    return replace(top, cpus=tuple(replace(cpu, governor=governors.get(cpu.id)) for cpu in top.cpus))


def plan(taken, *codes):
    return planner.plan(taken, codec.content_hash(taken), Request(fix=codes))


def after(taken, made):
    given = {change.target.key: change.after for change in made.changes}
    irqs = tuple(replace(irq, cpus=given.get(irq.target.key, irq.cpus)) for irq in taken.irqs.irqs)
    rps = tuple(replace(queue, cpus=given.get(queue.target.key, queue.cpus)) for queue in taken.rps)
    sysctls = {key: given.get(SYSCTLS[key].target.key, Number(value)).value for key, value in taken.sysctls.items()}
    domains = tuple(replace(each, governor=given.get(each.target.key, each.governor)) for each in taken.governors)
    settings = {"irqs": replace(taken.irqs, irqs=irqs), "rps": rps, "sysctls": sysctls, "governors": domains}
    found = tuple(replace(each, banned_now=given.get(each.target.key, each.banned_now)) for each in taken.irqbalance)
    settings["irqbalance"] = found
    return replace(taken, topology=with_governors(taken.topology, domains), **settings)


def read(taken):
    """What checks see of the host."""
    counts = tuple(IrqCounts(irq.number, irq.name, {irq.cpus.lowest: 5}) for irq in taken.irqs.irqs)
    return HostReading(taken, (HostSample(irqs=counts),))


def codes(taken):
    return {each.code for each in findings(read(taken))}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("irq-on-guest-cpus", "irq"),
        ("irq-off-node", "irq"),
        ("rps-on-guest-cpus", "rps"),
        ("cpu-slow-governor", "governor"),
        ("irqbalance-unbanned", "irqbalance"),
    ],
)
def test_a_plan_cures_the_finding_and_moves_nothing_else(code, kind):
    taken = host()
    assert code in codes(taken)
    made = plan(taken, code)
    assert {change.target.kind for change in made.changes} == {kind}
    assert {want.target.kind for want in made.wanted} == {kind}
    assert code not in codes(after(taken, made))
    assert plan(after(taken, made), code).changes == ()


def test_a_card_on_a_node_where_guests_have_all_cpus_has_no_finding_that_no_plan_cures():
    taken = replace(host(), dedicated=cpus("8-15"))
    made = plan(taken, "irq-on-guest-cpus", "irq-off-node")
    assert [str(change.after) for change in made.changes] == ["0"]
    assert not {"irq-on-guest-cpus", "irq-off-node"} & codes(after(taken, made))


def test_no_plan_cures_the_interrupts_of_a_device_that_is_passed_through():
    theirs = tuple(replace(irq, name=f"vfio-msix[{irq.number}](0000:3b:00.0)") for irq in IRQS)
    found = [each for each in findings(read(host(theirs))) if each.code in ("irq-on-guest-cpus", "irq-off-node")]
    assert {(each.code, each.is_fixable) for each in found} == {("irq-on-guest-cpus", False), ("irq-off-node", False)}
    assert plan(host(theirs), "irq-on-guest-cpus", "irq-off-node").changes == ()


def test_only_the_sysctls_of_the_finding_are_set():
    made = plan(host(), "softnet-drops")
    assert [(str(change.target), str(change.after)) for change in made.changes] == [
        ("sysctl net.core.netdev_max_backlog", "4000")
    ]
    assert made.unplaced == made.skipped == made.warnings == ()


def test_several_findings_are_cured_by_one_plan():
    made = plan(host(), "softnet-drops", "irq-on-guest-cpus", "host-swapping")
    assert sorted({change.target.kind for change in made.changes}) == ["irq", "sysctl"]
    assert [want.target.owner for want in made.wanted if want.target.kind == "sysctl"] == [
        "net.core.netdev_max_backlog",
        "vm.swappiness",
    ]
    assert made.request.fix == ("host-swapping", "irq-on-guest-cpus", "softnet-drops")


@pytest.mark.parametrize("code", ["clocksource-slow", "nic-no-room", "no-such-check", ""])
def test_a_finding_without_a_live_change_is_a_clear_error(code):
    with pytest.raises(Invalid, match=rf"fix: '{code}' is not valid: one of: .*; for other findings, set the lines"):
        Request(fix=("softnet-drops", code))


def test_with_adds_its_changes():
    made = planner.plan(host(), "s", Request(fix=("softnet-drops",), remedies=("rps",)))
    assert [str(change.target) for change in made.changes] == [
        "sysctl net.core.netdev_max_backlog",
        "rps ens1 rx-0",
    ]
    every = planner.plan(host(), "s", Request(fix=("softnet-drops",), remedies=("sysctls",)))
    assert {change.target.owner for change in every.changes} == set(DEFAULTS)
    assert made.warnings == every.warnings == ()


def test_parameters_of_the_placement_have_no_effect():
    made = planner.plan(host(), "s", Request(fix=("softnet-drops",), housekeeping="0-1", with_processes=True))
    assert [warning.partition(" has no effect")[0] for warning in made.warnings] == [
        "housekeeping '0-1'",
        "with_processes True",
    ]


def test_requests_without_fix_keep_their_json():
    assert b"fix" not in codec.dump(Request())
    asked = Request(fix=("softnet-drops",))
    assert codec.load(Request, codec.dump(asked)) == asked


def test_a_policy_that_cures_findings_shows_only_their_drift():
    request = Request(fix=("irq-on-guest-cpus", "softnet-drops"))
    made = planner.plan_from_placement(host(), "s", request, None)
    placement = record(made, host(), None)
    moved = after(host(), made)
    seen = replace(moved, sysctls={**moved.sysctls, "net.core.netdev_max_backlog": 1000, "vm.swappiness": 99})
    again = planner.plan_from_placement(pruned(seen, request, placement), "s2", request, placement)
    assert [str(drift.target) for drift in drifts(again, placement, seen)] == ["sysctl net.core.netdev_max_backlog"]


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize("code", FIXES)
def test_the_agent_admits_the_planners_changes(code):
    assert permit(plan(host(), code), host()) == frozenset()


def test_the_agent_refuses_what_cures_no_finding_of_the_request():
    made = plan(host(), "softnet-drops")
    swappiness = StateChange(SYSCTLS["vm.swappiness"].target, Number(60), Number(1), "so")
    with pytest.raises(Refused, match="it cures none of the findings"):
        permit(replace(made, changes=(swappiness,)), host())
    irq = plan(host(), "irq-on-guest-cpus").changes
    with pytest.raises(Refused, match="does not ask for interrupts"):
        permit(replace(made, changes=irq), host())
    pins = [change for change in planner.plan(host(), "s", Request()).changes if change.target.kind != "partition"]
    for pin in pins:
        with pytest.raises(Refused):
            permit(replace(made, changes=(pin,)), host())
    assert {pin.target.kind for pin in pins} >= {"process", "vcpu", "emulator"}


def test_the_agent_uses_its_own_word_for_the_cpus_of_guests():
    made = plan(host(), "irq-on-guest-cpus")
    (change,) = [each for each in made.changes if each.target.part == 40]
    roles = replace(made.roles, housekeeping=cpus("0-15"), vcpu=cpus(""), emulator=cpus(""))
    for theirs in ("9", "12"):
        with pytest.raises(Refused, match=f"CPUs {theirs} are no online housekeeping CPUs"):
            permit(replace(made, roles=roles, changes=(replace(change, after=cpus(theirs)),)), host())


def test_no_plan_cures_a_card_that_interrupts_for_each_packet_at_any_time():
    for frames, is_fixable in ((0, True), (1, False)):
        card = nic(coalescing=(0, frames, False))
        seen = reading(Seen(nics=(card,)), Seen(nics=(counted(card, rx_packets=10_000_000),)))
        (found,) = [each for each in findings(seen) if each.code == "nic-no-coalescing"]
        assert found.is_fixable is is_fixable


def test_a_plan_cures_no_governor_that_nova_manages():
    conf = NovaConf(("nova.conf",), dedicated="8-9", power_management=True)
    taken = replace(host(), dedicated=cpus("8-9"), nova=conf)
    found = [each for each in findings(read(taken)) if each.code == "cpu-slow-governor"]
    assert {(str(each.subject), each.is_fixable) for each in found} == {("cpu 8-9", False), ("cpu 10-11", True)}
    made = plan(taken, "cpu-slow-governor")
    assert [str(change.target) for change in made.changes] == ["governor of CPUs 10-11"]


def test_the_table_has_codes_of_checks():
    assert set(FIXES) <= {check.code for check in installed()}


@pytest.mark.parametrize("code", CASES)
def test_a_finding_says_whether_a_plan_cures_it(code):
    found = [each for each in findings(CASES[code][0]) if each.code == code]
    assert {each.is_fixable for each in found} == {code in FIXES}
