"""Which CPUs of a host Nova owns, which pinner may use, and which settings of the two conflict (Nova's
nova/conf/compute.py and notifications.py, nova/virt/libvirt/driver.py, nova/rpc.py)."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from shlex import quote

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.guest.guest import Guest
from pinner.model.guest.nova import (
    DEFAULT_TOPIC,
    Finding,
    Listening,
    NovaConf,
    NovaGuest,
    NovaReport,
    NovaSets,
    conflicts,
    cpus,
    set_line,
)
from pinner.model.machine.boot import is_isolated_by_tuned
from pinner.model.nova_sets import are_few, right_sets
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.request.processes import allocatable_cpus, remedy_roles

OURS = "pinner.conf [nova]"
COMPUTE = "nova.conf [compute]"
LIBVIRT = "nova.conf [libvirt]"
QUEUES = "pinner.conf [oslo_messaging_rabbit]"
NOVA_COMPUTE = "nova-compute"
_EXAMPLE = "4-15,^8"
_SENDING = ("messaging", "messagingv2")
_VERSIONED = ("versioned", "both")
_SERVICES: Mapping[str, str] = {
    "irqbalance": "it moves interrupts onto CPUs of vCPUs, and overrides affinities set by hand",
    "numad": "it moves guests' threads and memory",
    "tuned": "its profiles may set the affinity of the same threads",
}
"""Processes that move the threads that pinner places, with their effect."""


def report(snapshot: Snapshot, listening: Listening) -> NovaReport:
    owns, allocatable = snapshot.nova_owns(), allocatable_cpus(snapshot, Request())
    conf, offline = snapshot.nova, snapshot.topology.offline
    return NovaReport(
        host=snapshot.host,
        files=conf.files if conf else (),
        source=conf.source if conf else "",
        dedicated=snapshot.dedicated,
        shared=snapshot.shared,
        guests=owns.guests,
        unused=(snapshot.dedicated | snapshot.shared) & offline,
        for_vcpus=owns.for_vcpus(allocatable.shared),
        for_others=allocatable.shared,
        findings=(
            *_configured(snapshot),
            *_sets(snapshot),
            *_offline(snapshot),
            *_governors(snapshot),
            *_guests(snapshot),
            *_sending(conf, listening),
            *_queues(conf, listening),
            *_services(snapshot),
            *_ovs(snapshot),
        ),
    )


def _configured(snapshot: Snapshot) -> Iterator[Finding]:
    conf = snapshot.nova
    if conf is None:
        return
    novas = _novas(snapshot)
    if conf.is_missing and novas:
        why = f"Nova manages {len(novas)} guests ({novas[0].name} is one), but pinner finds no configuration of Nova"
        yield Finding("nova_conf", why, "nova_conf = /path/of/nova.conf", OURS)
    for line in conf.ignored_processes:
        why = f"pinner does not believe that it is nova-compute: {line}"
        yield Finding(NOVA_COMPUTE, why, "nova_conf = the files of nova-compute", OURS)
    if conf.changed:
        why = f"{', '.join(conf.changed)} changed after its start; Nova uses the earlier content, pinner the new one"
        yield Finding(NOVA_COMPUTE, why, "restart nova-compute", "")
    if conf.error:
        why = f"it cannot be read: {conf.error}"
        files = ",".join(conf.files) or "the files of nova-compute"
        yield Finding("nova.conf", why, f"nova_conf = {files}", f"{OURS}, for a user who may read it")
    for option, error in _malformed(conf):
        yield Finding(option, str(error), f"{option} = a list such as {_EXAMPLE}", _section(option))


def _sets(snapshot: Snapshot) -> Iterator[Finding]:
    nova_sets, ours = _nova_sets(snapshot.nova), NovaSets(snapshot.dedicated, snapshot.shared)
    for option, mine, theirs in (
        ("cpu_dedicated_set", ours.dedicated, nova_sets.dedicated),
        ("cpu_shared_set", ours.shared, nova_sets.shared),
    ):
        if mine and theirs and mine != theirs:
            why = f"pinner.conf has {mine}, which pinner uses, but nova.conf has {theirs}"
            yield Finding(option, why, f"{option} =", f"{OURS} (empty: pinner uses the value of nova.conf)")
    sets = NovaSets(ours.dedicated or nova_sets.dedicated, ours.shared or nova_sets.shared)
    right = _right(replace(snapshot, dedicated=sets.dedicated, shared=sets.shared))
    for conflict in () if _malformed(snapshot.nova) else conflicts(snapshot.nova or NovaConf(()), sets):
        shared = conflict.option == "cpu_shared_set"
        line = set_line("cpu_shared_set", right.shared) if shared else conflict.line
        yield Finding(conflict.option, conflict.why, line, _section(line.split()[0].lstrip("#")))
    known = snapshot.topology.online | snapshot.topology.offline
    for option, mine, wanted in (
        ("cpu_dedicated_set", sets.dedicated, right.dedicated),
        ("cpu_shared_set", sets.shared, right.shared),
    ):
        if absent := mine - known:
            yield Finding(option, f"the host has no CPUs {absent}", set_line(option, wanted), COMPUTE)


def _offline(snapshot: Snapshot) -> Iterator[Finding]:
    conf, offline = snapshot.nova, snapshot.topology.offline
    if conf is None or conf.error or conf.is_missing:
        return
    sets = _nova_sets(conf)
    if both := sets.shared & offline:
        option = "vcpu_pin_set" if conf.pin_set else "cpu_shared_set"
        why = f"CPUs {both} are offline, and Nova does not start with such a set"
        right = _right(replace(snapshot, shared=sets.shared)).shared
        yield Finding(option, why, set_line(option, right), _section(option))
    if (both := sets.dedicated & offline) and conf.sets_governors:
        why = f"CPUs {both} are offline, and Nova does not start then with the strategy governor"
        yield Finding("cpu_dedicated_set", why, f"chcpu --enable {both}", "")
    elif both and not conf.switches_cpus_off:
        why = f"CPUs {both} are offline; Nova accepts that only with cpu_power_management and the strategy cpu_state"
        yield Finding("cpu_dedicated_set", why, set_line("cpu_dedicated_set", sets.dedicated - both), COMPUTE)
    if conf.power_management and not sets.dedicated:
        why = "it powers down CPUs of cpu_dedicated_set, which is not set; Nova 2023.1 does not start then"
        yield Finding("cpu_power_management", why, "cpu_power_management = false", LIBVIRT)


def _governors(snapshot: Snapshot) -> Iterator[Finding]:
    """Source: cpu.api.API of Nova's driver."""
    conf = snapshot.nova
    if conf is None or conf.error or not conf.power_management:
        return
    cpus_by_governor: defaultdict[str | None, set[int]] = defaultdict(set)
    managed = _nova_sets(conf).dedicated - CpuSet.of([0])
    for cpu in snapshot.topology.cpus:
        if cpu.id in managed and cpu.online:
            cpus_by_governor[cpu.governor].add(cpu.id)
    if conf.sets_governors and None in cpus_by_governor:
        why = f"CPUs {CpuSet.of(cpus_by_governor[None])} have no frequency governor, and Nova does not start then"
        line = "cpu_power_management_strategy = cpu_state"
        yield Finding("cpu_power_management_strategy", why, line, LIBVIRT)
    if conf.switches_cpus_off and len(cpus_by_governor) > 1:
        named = ", ".join(f"{governor or 'none'} on {CpuSet.of(ids)}" for governor, ids in cpus_by_governor.items())
        why = f"the CPUs of cpu_dedicated_set have different frequency governors ({named}): Nova does not start then"
        line = f"cpupower -c {managed & snapshot.topology.online} frequency-set -g performance"
        yield Finding("cpu_dedicated_set", why, line, "")


def _guests(snapshot: Snapshot) -> Iterator[Finding]:
    conf, dedicated = snapshot.nova, snapshot.dedicated
    floating = [guest.name for guest in _novas(snapshot) if not guest.dedicated]
    if dedicated and floating and not snapshot.shared and conf is not None:
        why = f"guest {floating[0]} has no CPUs of its own, and Nova does not start without a set for such guests"
        shared = _right(snapshot).shared
        line = (set_line("cpu_shared_set", shared), COMPUTE) if shared else ("", "")
        yield Finding("cpu_shared_set", why, *line)
    if not dedicated and (conf is None or conf.error or conf.pin_set):
        return
    for guest in snapshot.nova_owns().guests:
        if outside := guest.cpus - dedicated:
            why = f"Nova pinned it to CPUs {outside}, outside cpu_dedicated_set ({dedicated or 'not set'})"
            why = f"{why}: Nova may allocate them to other guests"
            left = snapshot.topology.online - dedicated - outside - snapshot.topology.isolated
            if outside & (_polled(snapshot) | snapshot.shared) or are_few(snapshot.topology, left):
                yield Finding(f"guest {guest.name}", why, _pin_anew(guest), "")
            else:
                yield Finding(f"guest {guest.name}", why, f"cpu_dedicated_set = {dedicated | outside}", COMPUTE)


def _sending(conf: NovaConf | None, listening: Listening) -> Iterator[Finding]:
    if conf is None or conf.error or conf.is_missing:
        return
    if conf.format not in _VERSIONED:
        why = (
            f"it is {conf.format}: pinner reads versioned notifications; with both, Nova sends the unversioned ones too"
        )
        yield Finding("notification_format", why, "notification_format = both", "nova.conf [notifications]")
    by_new_name = list((Counter(conf.drivers) - Counter(conf.old_drivers)).elements())
    if not set(by_new_name) & set(_SENDING):
        why = f"it is {', '.join(conf.drivers) or 'not set'}: Nova sends no notification to its broker"
        if set(conf.old_drivers) & set(_SENDING):
            why = (
                "only [DEFAULT] notification_driver sets it: Nova 31 (2025.1) and newer ignore that name, and send none"
            )
        yield Finding("driver", why, "driver = messagingv2", "nova.conf [oslo_messaging_notifications]")
    if not set(conf.topics) & set(listening.topics):
        why = f"Nova sends to {', '.join(conf.topics)}, and pinner listens to {', '.join(listening.topics)}"
        line = f"versioned_notifications_topics = {','.join((*conf.topics, *listening.topics))}"
        yield Finding("versioned_notifications_topics", why, line, "nova.conf [notifications]")
    elif not listening.pool and DEFAULT_TOPIC in listening.topics:
        why = f"without a pool, pinner consumes messages of {DEFAULT_TOPIC} that other listeners then miss"
        yield Finding("pool", why, "pool = pinner", "pinner.conf [nova_listener]")


def _queues(conf: NovaConf | None, listening: Listening) -> Iterator[Finding]:
    """Two declarations of one exchange, or queue, must agree."""
    if conf is None or conf.error or conf.is_missing:
        return
    option = "rabbit_quorum_queue" if conf.is_quorum or listening.is_quorum else "amqp_durable_queues"
    theirs, mine = (conf.is_durable, conf.is_quorum), (listening.is_durable, listening.is_quorum)
    # A pool has queues of its own, but the exchange is Nova's.
    if theirs[0] != mine[0] or (not listening.pool and theirs != mine):
        value = str(conf.is_quorum if option == "rabbit_quorum_queue" else conf.is_durable).lower()
        why = f"Nova's and the listener's differ ({_kind(*theirs)} and {_kind(*mine)}): the broker refuses one of them"
        yield Finding(option, f"{why} (406 PRECONDITION_FAILED)", f"{option} = {value}", QUEUES)


def _kind(is_durable: bool, is_quorum: bool) -> str:
    return "quorum queues" if is_quorum else "durable queues" if is_durable else "transient queues"


def _services(snapshot: Snapshot) -> Iterator[Finding]:
    running = {process.name for process in snapshot.processes}
    for name, why in _SERVICES.items():
        if name in running:
            isolates = name == "tuned" and is_isolated_by_tuned(snapshot.topology)
            line = "" if isolates else f"systemctl disable --now {name}.service"
            yield Finding(name, f"it runs: {why}", line, "")


def _ovs(snapshot: Snapshot) -> Iterator[Finding]:
    ovs = snapshot.ovs
    if ovs is None:
        return
    if ovs.masks.error:
        why = f"pinner cannot read pmd-cpu-mask: {ovs.masks.error}"
        yield Finding("ovsdb", why, "ovsdb = /path/of/db.sock", "pinner.conf [host]")
    if ovs.masks.pmd and (outside := ovs.polling - ovs.masks.pmd):
        why = f"threads of Open vSwitch poll on CPUs {outside}, outside pmd-cpu-mask ({ovs.masks.pmd})"
        allowed = outside - snapshot.dedicated - snapshot.shared
        line = _set_mask(ovs.masks.pmd | allowed) if allowed else "systemctl restart ovs-vswitchd.service"
        yield Finding("pmd-cpu-mask", why, line, "")
    right = _right(snapshot)
    wanted = {"cpu_dedicated_set": right.dedicated, "cpu_shared_set": right.shared}
    for option, use, both in ovs.in_sets(snapshot.nova_owns().sets):
        why = f"CPUs {both} are also those of Open vSwitch's {use}: guests would share them"
        # Without both sets Nova gives floating guests every CPU.
        remedy = (set_line(option, wanted[option]), COMPUTE) if any(wanted.values()) else ("", "")
        yield Finding(option, why, *remedy)
    for guest in snapshot.nova_owns().guests:
        if both := guest.cpus & ovs.cpus:
            why = f"Nova pinned it to CPUs {both}, which Open vSwitch uses for DPDK"
            yield Finding(f"guest {guest.name}", why, _pin_anew(guest), "")


def _polled(snapshot: Snapshot) -> CpuSet:
    return snapshot.ovs.cpus if snapshot.ovs else CpuSet()


def _pin_anew(guest: NovaGuest) -> str:
    """Nova keeps a guest's CPUs until it moves."""
    return f"openstack server migrate {quote(guest.uuid)}"


def _right(snapshot: Snapshot) -> NovaSets:
    """Floating guests may have a plan's CPUs for vCPUs, never those of the host."""
    return right_sets(snapshot, remedy_roles(snapshot).vcpu)


def _set_mask(wanted: CpuSet) -> str:
    mask = sum(1 << cpu for cpu in wanted)
    return f"ovs-vsctl set Open_vSwitch . other_config:pmd-cpu-mask={mask:#x}"


def _options(conf: NovaConf | None) -> Iterator[tuple[str, str]]:
    if conf is not None:
        yield from (("cpu_dedicated_set", conf.dedicated), ("cpu_shared_set", conf.shared))
        yield "vcpu_pin_set", conf.pin_set


def _malformed(conf: NovaConf | None) -> list[tuple[str, Invalid]]:
    malformed = []
    for option, value in _options(conf):
        try:
            cpus(value, option)
        except Invalid as error:
            malformed.append((option, error))
    return malformed


def _nova_sets(conf: NovaConf | None) -> NovaSets:
    sets: dict[str, CpuSet] = {}
    for option, value in _options(conf):
        with suppress(Invalid):
            sets[option] = cpus(value, option)
    dedicated, shared, pin_set = (sets.get(option, CpuSet()) for option, _ in _options(NovaConf(())))
    return NovaSets(dedicated, pin_set or shared)


def _novas(snapshot: Snapshot) -> list[Guest]:
    return [guest for guest in snapshot.guests if guest.nova is not None]


def _section(option: str) -> str:
    return "nova.conf [DEFAULT]" if option in ("vcpu_pin_set", "reserved_host_cpus") else COMPUTE
