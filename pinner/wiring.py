"""The composition root: creates pinner's objects from the configuration. No other module reads the configuration."""

import logging
import os
import socket
import tempfile
import uuid
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from oslo_config import cfg

from pinner import conf
from pinner.agent.captured import CapturedAgent
from pinner.agent.client import AgentClient
from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import Histories, LocalAgent, no_history
from pinner.agent.protocol import Agent
from pinner.agent.recorder import Recorder
from pinner.agent.signing import SigningKey
from pinner.agent.trail import AgentTrail
from pinner.agent.waiting import sleep
from pinner.apply import ended
from pinner.conf import rabbit
from pinner.heartbeat import Heartbeat
from pinner.host import nova_conf
from pinner.host.blame import blame
from pinner.host.captured_guests import captured_guests
from pinner.host.events import HostWatcher
from pinner.host.health import checks
from pinner.host.inventory import take_snapshot
from pinner.host.kernel import boot_id
from pinner.host.libvirt import Libvirt
from pinner.host.live import LiveHost
from pinner.host.meter import HostMeter
from pinner.host.ovsdb import Ovsdb
from pinner.host.own_pins import OwnPins
from pinner.host.reading import captured
from pinner.host.reading.sampler import take_reading
from pinner.host.reservations import AffinityOwners
from pinner.host.sampling import Scanner
from pinner.model.errors import Busy, HostUnreachable, Invalid, NotFound, NotPermitted, StoreUnavailable
from pinner.model.nova import NovaConf, NovaSets, configured, cpus
from pinner.model.nova_report import Listening
from pinner.model.reading import HostReading, SavedSamples
from pinner.model.snapshot import Snapshot
from pinner.owners import require_own
from pinner.planning.repack import RepackRule
from pinner.service import retention, saving
from pinner.service.chain_retention import cut_chain
from pinner.service.compose import ServiceParts, compose
from pinner.service.controller import PolicyController
from pinner.service.daily import Daily
from pinner.service.protocol import Service
from pinner.service.retention import Limits, Purged
from pinner.service.saving import SavedMachine
from pinner.store.journal import Journal
from pinner.store.repositories import Retention, open_store
from pinner.store.state_folder import require_own_state, this_host
from pinner.store.unusable_journal import LastMasks, UnusableJournal, open_journal, pins_of

LOG = logging.getLogger(__name__)
LIVE = Path("/")
STATE_OF_ROOT = Path("/var/lib/pinner")
"""The state folder of a server that root starts, unless [agent] state_dir names another one."""
SOCKETS_OF_ROOT = Path("/run/pinner")
"""The folder of the sockets that belong to STATE_OF_ROOT."""
CAPTURE_SECONDS = 2.0
"""The time between the two samples of the counters that a capture holds."""
AGENT_SECONDS = 30.0
"""How long a call to the agent that is no run may take, besides its sample and its calls of libvirt."""


def configuration(files: list[Path] | None = None, into: cfg.ConfigOpts | None = None) -> cfg.ConfigOpts:
    """The configuration from ``files``, or from the default files; see conf.load.

    Root reads no default file that another user can write: HOME can name another user's folder.
    """
    if files is None:
        for file in cfg.find_config_files("pinner") + cfg.find_config_dirs("pinner"):
            require_own(Path(file).parent, "configuration")
    return conf.load(files, into)


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def state_dir(config: cfg.ConfigOpts) -> Path:
    """The folder of the journal and of the default database."""
    if config.agent.state_dir:
        return Path(config.agent.state_dir)
    if os.geteuid() == 0:
        return STATE_OF_ROOT
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "pinner"
    except RuntimeError:
        raise Invalid("[agent] state_dir", "", "a folder, because this user has no home folder") from None


def use_state_of_root(config: cfg.ConfigOpts) -> None:
    """Make root's state folder the default for every user, for a process that serves one part of root's server."""
    if not config.agent.state_dir:
        config.set_override("state_dir", str(STATE_OF_ROOT), "agent")


def agent_socket(config: cfg.ConfigOpts) -> Path:
    """The Unix socket of the agent's process."""
    return Path(config.agent.socket) if config.agent.socket else socket_dir(config) / "agent.sock"


def api_socket(config: cfg.ConfigOpts) -> Path:
    """The API's Unix socket of a server with this configuration."""
    return Path(config.api.socket) if config.api.socket else socket_dir(config) / "api.sock"


def has_own_state(config: cfg.ConfigOpts) -> bool:
    """Whether this is the configuration of a user who has a state folder beside root's."""
    return not (config.api.socket or config.agent.state_dir) and state_dir(config) != STATE_OF_ROOT


def socket_dir(config: cfg.ConfigOpts) -> Path:
    """The folder of the Unix sockets that the configuration does not name."""
    state = state_dir(config)
    return SOCKETS_OF_ROOT if state == STATE_OF_ROOT else state


def database_url(config: cfg.ConfigOpts) -> str:
    """The central database's URL."""
    return config.database.connection or f"sqlite:///{state_dir(config) / 'api' / 'pinner.sqlite'}"


def host_name(config: cfg.ConfigOpts) -> str:
    """This host's name in pinner."""
    return config.host.name or socket.gethostname()


def agent_client(config: cfg.ConfigOpts, path: Path | None = None) -> AgentClient:
    """The client of this host's agent at ``path``, by default the configured socket.

    A scan of the host makes up to two calls of libvirt about the whole host, each six times [libvirt] call_timeout.
    """
    patience = AGENT_SECONDS + 12 * config.libvirt.call_timeout
    return AgentClient(host_name(config), path or agent_socket(config), patience=patience)


def nova_sets(config: cfg.ConfigOpts) -> NovaSets:
    """Nova's CPU sets as pinner's own configuration has them. Raises Invalid."""
    sets = (cpus(config.nova[name], f"[nova] {name}") for name in ("cpu_dedicated_set", "cpu_shared_set"))
    return NovaSets(*sets)


def nova_reader(config: cfg.ConfigOpts) -> Callable[[], NovaConf | None]:
    """A function that reads Nova's configuration on this host now; it returns None where pinner's says to ignore it."""
    if config.nova.ignore_nova_conf:
        return lambda: None
    return nova_conf.Reader([Path(file) for file in config.nova.nova_conf])


def local_agent(
    config: cfg.ConfigOpts, own: Container[int], undo: ExitStack, threads: list[Heartbeat] | None = None
) -> LocalAgent:
    """The agent of this machine, after it has recovered a run that a dead process left open.

    ``own`` are pinner's process ids. With ``threads`` the agent collects host events; the list gets the heartbeats of
    its threads. ``undo`` closes everything.
    """
    libvirt = Libvirt(config.libvirt.uri, config.libvirt.call_timeout)
    require_own(state_dir(config) / "agent", "[agent] state_dir")
    require_own_state(state_dir(config) / "agent", this_host(host_name(config)))
    journal = open_journal(state_dir(config) / "agent")
    undo.callback(journal.close)
    placed = LastMasks(journal)
    sets, read_nova = nova_sets(config), nova_reader(config)
    owners = AffinityOwners.of(config.host.affinity_owners)
    ovsdb, scanner = Ovsdb(Path(config.host.ovsdb)), Scanner(LIVE)

    def take(sample_seconds: float) -> Snapshot:
        return take_snapshot(
            LIVE,
            host_name(config),
            libvirt,
            sample_seconds=sample_seconds,
            own=own,
            placed=placed(),
            pins=partial(pins_of, journal),
            sets=sets,
            nova=read_nova(),
            owners=owners,
            minimum_cores=config.host.minimum_cores,
            weights=dict(config.objective),
            ovs_masks=ovsdb.masks,
            scanner=scanner,
            now=now,
            sleep=sleep,
        )

    def sample(snapshot: Snapshot, seconds: float) -> HostReading:
        return take_reading(LIVE, snapshot, seconds, sleep=sleep, folders=(state_dir(config),))

    own_pins = OwnPins()
    host = LiveHost(libvirt, lambda guests: configured(sets, read_nova(), guests), own_pins)
    event_queue = HostEventQueue(now)
    key = SigningKey(state_dir(config) / "agent" / "signing.key")
    trail = AgentTrail(host_name(config), journal.chain, key, now)
    recorder = _recorder(config, libvirt) if threads is not None and config.agent.keep_measures else None
    watcher = HostWatcher(config.libvirt.uri, own_pins, event_queue, placed) if threads is not None else None
    agent = LocalAgent(
        take, host, journal, now, event_queue, trail, config.agent.recover, name=host_name(config),
        boot=boot_id(LIVE), checks=lambda: checks(watcher, libvirt) if watcher else (), sample=sample,
        histories=_histories(recorder), trace=partial(blame, LIVE),
    )  # fmt: skip
    undo.callback(agent.close)
    try:
        agent.recover()
    except StoreUnavailable as error:
        LOG.error("no plan can be applied and no run rolled back: %s", error)
    if threads is not None and watcher is not None:
        threads += start_daily("journal retention", lambda: _purge_journal(config, journal, host, trail), undo)
        watcher.start()
        undo.callback(watcher.close)
        threads += watcher.heartbeats
    if threads is not None and recorder is not None:
        recorder.start()
        undo.callback(recorder.stop)
        threads.append(recorder.heartbeat)
    return agent


def _histories(recorder: Recorder | None) -> Histories:
    if recorder is None:
        return no_history
    return recorder.measures


def _recorder(config: cfg.ConfigOpts, libvirt: Libvirt) -> Recorder | None:
    """The recorder of measures; None on a host without RRDtool's library: placing needs no measures."""
    try:
        from pinner.store.history import HistoryFiles
    except ImportError as error:
        LOG.warning("nothing is measured: %s; install the package librrd8", error)
        return None
    return Recorder(HostMeter(LIVE, libvirt), HistoryFiles(state_dir(config) / "agent" / "history"), now)


def _purge_journal(
    config: cfg.ConfigOpts, journal: Journal | UnusableJournal, host: LiveHost, trail: AgentTrail
) -> None:
    before = now() - timedelta(days=config.retention.runs_days)
    if deleted := ended.purge(journal, before, host, host_name(config), boot_id(LIVE)):
        LOG.info("deleted %d runs from the journal, none of which can be undone any more", deleted)
    if config.retention.audit_export and isinstance(journal, Journal):
        cut_chain(journal.chain, trail, state_dir(config) / "agent", _limits(config), now())


def start_daily(name: str, work: Callable[[], None], undo: ExitStack) -> list[Heartbeat]:
    """Do the work once a day; ``undo`` stops it. Returns the heartbeat of its thread."""
    daily = Daily(name, work)
    daily.start()
    undo.callback(daily.stop)
    return [daily.heartbeat]


def _limits(config: cfg.ConfigOpts) -> Limits:
    options = config.retention
    return Limits(
        runs=timedelta(days=options.runs_days),
        plans=timedelta(days=options.plans_days),
        audit=timedelta(days=options.audit_days),
        audit_folder=Path(options.audit_export) if options.audit_export else None,
    )


def purge(
    config: cfg.ConfigOpts, store: Retention, is_kept: Callable[[str], bool] = lambda _: True, *, dry_run: bool = False
) -> Purged:
    """Delete from the central database what is older than the configured limits, except audit records. By default, a
    run whose changes are in place is kept."""
    return retention.purge(store, _limits(config), now(), is_kept, dry_run=dry_run)


def start_retention(config: cfg.ConfigOpts, parts: ServiceParts, agent: Agent, undo: ExitStack) -> list[Heartbeat]:
    """Purge the central database once a day. A run is kept as long as the agent's journal has it.

    Returns the heartbeat of the thread.
    """

    def is_kept(run: str) -> bool:
        try:
            agent.run(run)
        except NotFound:
            return False
        return True

    def work() -> None:
        LOG.info("deleted %s", purge(config, parts.retention, is_kept))
        export = parts.service.export_audit
        if file := retention.export_audit(parts.retention, _limits(config), now(), host_name(config), export):
            LOG.info("the audit trail is exported to %s, and its old records are deleted", file)
        if hints := retention.purge_hints(parts.retention, host_name(config), now(), agent.has_guest):
            LOG.info("deleted what earlier events told about %s guests that are gone", hints)

    return start_daily("retention", work, undo)


def captured_agent(config: cfg.ConfigOpts, root: Path) -> CapturedAgent:
    """The agent of the machine captured below ``root``."""
    configured_values = partial(
        take_snapshot,
        sets=nova_sets(config),
        minimum_cores=config.host.minimum_cores,
        weights=dict(config.objective),
    )
    name, guests = root.resolve().name, captured_guests(root)

    def take(seconds: float) -> Snapshot:
        return configured_values(root, name, guests, sample_seconds=seconds, now=now)

    return CapturedAgent(take, lambda snapshot: captured.captured_reading(root, snapshot))


def save_machine(config_files: list[Path] | None, root: Path | None, folder: Path, *, scrub: bool) -> SavedMachine:
    """Save this machine with its guests, or the captured machine below ``root``, as files in ``folder``."""
    options = configuration(config_files).libvirt
    if root is not None:
        return saving.save_machine(root, folder, captured_guests(root), partial(captured.samples, root), scrub=scrub)
    libvirt = Libvirt(options.uri, options.call_timeout)
    return saving.save_machine(None, folder, libvirt, partial(_samples_of_this_host, libvirt), scrub=scrub)


def _samples_of_this_host(libvirt: Libvirt) -> SavedSamples:
    """The counters for the checks; those of guests are missing where libvirt does not answer."""
    take = partial(take_snapshot, LIVE, socket.gethostname(), sample_seconds=0.0, now=now)
    try:
        snapshot = take(libvirt)
    except (HostUnreachable, NotPermitted, Busy):
        snapshot = take(None)
    reading = take_reading(LIVE, snapshot, CAPTURE_SECONDS)
    return SavedSamples(reading.samples, reading.seconds)


def service_parts(config: cfg.ConfigOpts, agents: Mapping[str, Agent], url: str, undo: ExitStack) -> ServiceParts:
    """The local service over these agents and the database at ``url``, whose schema is upgraded where it is older."""
    store = undo.enter_context(open_store(url))
    migration = timedelta(seconds=config.policy.migration_seconds)
    policy = config.policy
    rule = RepackRule(
        policy.repack_mark,
        timedelta(seconds=policy.repack_after_seconds),
        policy.repack_gain,
        timedelta(seconds=policy.repack_pause_seconds),
    )
    parts = compose(agents, store, now, lambda: uuid.uuid4().hex[:12], config.host.sample_seconds, migration, rule)
    undo.callback(parts.close)
    parts.runs.catch_up()
    return parts


def start_controller(config: cfg.ConfigOpts, parts: ServiceParts, host: str, undo: ExitStack) -> list[Heartbeat]:
    """Start the policy controller of the host; ``undo`` stops it. Returns the heartbeats of its threads."""
    controller = PolicyController(
        parts.reconciler,
        host,
        note=parts.monitor.metrics,
        resync_seconds=config.policy.resync_seconds,
        measure_seconds=config.policy.measure_seconds,
    )
    controller.start()
    undo.callback(controller.stop)
    return controller.heartbeats


@contextmanager
def open_captured(config_files: list[Path] | None, root: Path) -> Iterator[Service]:
    """The service of the machine captured below ``root``, for one command."""
    config = configuration(config_files)
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="pinner-"))
        agent: Agent = captured_agent(config, root)
        url = f"sqlite:///{folder}/pinner.sqlite"
        yield service_parts(config, {root.resolve().name: agent}, url, undo).service


def listening(config_files: list[Path] | None) -> Listening:
    """The topics and the pool of pinner's Nova listener, as configured."""
    config = rabbit.register(configuration(config_files))
    listener, queues = config.nova_listener, config[rabbit.NAME]
    is_durable = queues.amqp_durable_queues or queues.rabbit_quorum_queue
    return Listening(tuple(listener.topics), listener.pool, is_durable, queues.rabbit_quorum_queue)
