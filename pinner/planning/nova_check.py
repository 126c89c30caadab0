"""Which CPUs of a host Nova owns, which pinner may use, and which settings of the two conflict. Pure.

Sources of the rules: Nova's nova/conf/compute.py and notifications.py, nova/virt/libvirt/driver.py, nova/rpc.py.
"""

from collections.abc import Iterator, Mapping

from pinner.model.errors import Invalid
from pinner.model.nova import NovaConf, NovaSets, cpus
from pinner.model.nova_report import DEFAULT_TOPIC, Finding, Listening, NovaReport
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.processes import allocatable_cpus

OURS = "pinner.conf [nova]"
COMPUTE = "nova.conf [compute]"
_EXAMPLE = "4-15,^8"
_SENDING = ("messaging", "messagingv2")
_VERSIONED = ("versioned", "both")
_SERVICES: Mapping[str, str] = {
    "irqbalance": "it moves interrupts onto CPUs of vCPUs, and overrides affinities set by hand",
    "numad": "it moves guests' threads and memory",
    "tuned": "its profiles may set the affinity of the same threads",
}
"""Services that move the threads that pinner places, by their processes' names, and their effect."""


def report(snapshot: Snapshot, listening: Listening) -> NovaReport:
    """The CPUs of Nova and of pinner, and every finding."""
    owns, allocatable = snapshot.nova_owns(), allocatable_cpus(snapshot, Request())
    conf, offline = snapshot.nova, snapshot.topology.offline
    return NovaReport(
        host=snapshot.host,
        files=conf.files if conf else (),
        dedicated=snapshot.dedicated,
        shared=snapshot.shared,
        guests=owns.guests,
        unused=(snapshot.dedicated | snapshot.shared) & offline,
        for_vcpus=owns.for_vcpus(allocatable.shared),
        for_others=allocatable.shared,
        findings=(
            *_configured(snapshot),
            *_sets(snapshot),
            *_guests(snapshot),
            *_sending(conf, listening),
            *_services(snapshot),
        ),
    )


def _configured(snapshot: Snapshot) -> Iterator[Finding]:
    """Whether nova.conf is there and can be read."""
    conf = snapshot.nova
    novas = [guest.name for guest in snapshot.guests if guest.nova is not None]
    if conf is None and novas:
        why = f"Nova manages {len(novas)} guests ({novas[0]} is one), but pinner finds no nova.conf"
        yield Finding("nova_conf", why, "nova_conf = /path/of/nova.conf", OURS)
    if conf is not None and conf.error:
        why = f"it cannot be read: {conf.error}"
        yield Finding("nova.conf", why, "nova_conf = " + ",".join(conf.files), f"{OURS}, for a user who may read it")
    for option, value in _options(conf):
        try:
            cpus(value, option)
        except Invalid as error:
            yield Finding(option, str(error), f"{option} = a list such as {_EXAMPLE}", _section(option))


def _sets(snapshot: Snapshot) -> Iterator[Finding]:
    """Whether the sets fit each other, the host and the guests."""
    nova_sets, ours = _nova_sets(snapshot.nova), NovaSets(snapshot.dedicated, snapshot.shared)
    for option, mine, theirs in (
        ("cpu_dedicated_set", ours.dedicated, nova_sets.dedicated),
        ("cpu_shared_set", ours.shared, nova_sets.shared),
    ):
        if theirs and mine != theirs:
            why = f"pinner.conf has {mine}, which pinner uses, but nova.conf has {theirs}"
            yield Finding(option, why, f"{option} =", f"{OURS} (empty: pinner uses the value of nova.conf)")
    if both := ours.dedicated & ours.shared:
        why = f"CPUs {both} are also in cpu_dedicated_set: other guests would share a CPU that Nova dedicates to one"
        yield Finding("cpu_shared_set", why, f"cpu_shared_set = {ours.shared - both}", COMPUTE)
    if snapshot.nova is not None and snapshot.nova.pin_set and nova_sets.dedicated:
        why = "Nova does not start with both vcpu_pin_set and cpu_dedicated_set; use cpu_shared_set instead"
        yield Finding("vcpu_pin_set", why, f"cpu_shared_set = {nova_sets.shared - nova_sets.dedicated}", COMPUTE)
    known = snapshot.topology.online | snapshot.topology.offline
    for option, mine in (("cpu_dedicated_set", ours.dedicated), ("cpu_shared_set", ours.shared)):
        if absent := mine - known:
            why = f"the host has no CPUs {absent}"
            yield Finding(option, why, f"{option} = {mine & known}", COMPUTE)


def _guests(snapshot: Snapshot) -> Iterator[Finding]:
    """Whether Nova's guests are on CPUs of cpu_dedicated_set."""
    conf, dedicated = snapshot.nova, snapshot.dedicated
    if not dedicated and (conf is None or conf.error or conf.pin_set):
        return
    for guest in snapshot.nova_owns().guests:
        if outside := guest.cpus - dedicated:
            why = f"Nova pinned it to CPUs {outside}, outside cpu_dedicated_set ({dedicated or 'not set'})"
            why = f"{why}: Nova may allocate them to other guests"
            yield Finding(f"guest {guest.name}", why, f"cpu_dedicated_set = {dedicated | outside}", COMPUTE)


def _sending(conf: NovaConf | None, listening: Listening) -> Iterator[Finding]:
    """Whether Nova's notifications reach pinner."""
    if conf is None or conf.error:
        return
    if conf.format not in _VERSIONED:
        why = (
            f"it is {conf.format}: pinner reads versioned notifications; with both, Nova sends the unversioned ones too"
        )
        yield Finding("notification_format", why, "notification_format = both", "nova.conf [notifications]")
    if not set(conf.drivers) & set(_SENDING):
        why = f"it is {', '.join(conf.drivers) or 'not set'}: Nova sends no notification to its broker"
        yield Finding("driver", why, "driver = messagingv2", "nova.conf [oslo_messaging_notifications]")
    if not set(conf.topics) & set(listening.topics):
        why = f"Nova sends to {', '.join(conf.topics)}, and pinner listens to {', '.join(listening.topics)}"
        line = f"versioned_notifications_topics = {','.join((*conf.topics, *listening.topics))}"
        yield Finding("versioned_notifications_topics", why, line, "nova.conf [notifications]")
    elif not listening.pool and DEFAULT_TOPIC in listening.topics:
        why = f"without a pool, pinner consumes messages of {DEFAULT_TOPIC} that other listeners then miss"
        yield Finding("pool", why, "pool = pinner", "pinner.conf [nova_listener]")


def _services(snapshot: Snapshot) -> Iterator[Finding]:
    running = {process.name for process in snapshot.processes}
    for name, why in _SERVICES.items():
        if name in running:
            yield Finding(name, f"it runs: {why}", f"systemctl disable --now {name}.service", "")


def _options(conf: NovaConf | None) -> Iterator[tuple[str, str]]:
    if conf is not None:
        yield from (("cpu_dedicated_set", conf.dedicated), ("cpu_shared_set", conf.shared))
        yield "vcpu_pin_set", conf.pin_set


def _nova_sets(conf: NovaConf | None) -> NovaSets:
    try:
        return conf.sets() if conf else NovaSets()
    except Invalid:
        return NovaSets()


def _section(option: str) -> str:
    return "nova.conf [DEFAULT]" if option == "vcpu_pin_set" else COMPUTE
