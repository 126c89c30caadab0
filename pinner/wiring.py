"""The one composition root: configuration in, a working pinner out. Nothing else reads the configuration."""

import os
import socket
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from oslo_config import cfg

from pinner import codec, conf
from pinner.agent.captured import CapturedAgent
from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.protocol import Agent
from pinner.host import nova_conf
from pinner.host.capture import capture
from pinner.host.events import Events
from pinner.host.inventory import take_snapshot
from pinner.host.libvirt import Libvirt
from pinner.host.live import LiveHost
from pinner.model.nova import NovaSets, configured, cpus
from pinner.model.nova_report import Listening, NovaReport
from pinner.model.plan import Plan
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import nova_check, planner
from pinner.service.controller import PolicyController
from pinner.service.local import LocalService
from pinner.service.protocol import Service
from pinner.store.journal import Journal
from pinner.store.repositories import open_store

LIVE = Path("/")
configuration = conf.load


def now() -> datetime:
    """The clock of everything that pinner dates."""
    return datetime.now(UTC)


def state_dir(config: cfg.ConfigOpts) -> Path:
    """Where the journal and the default database lie."""
    if config.agent.state_dir:
        return Path(config.agent.state_dir)
    if os.geteuid() == 0:
        return Path("/var/lib/pinner")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "pinner"


def database_url(config: cfg.ConfigOpts) -> str:
    """The central database's URL."""
    return config.database.connection or f"sqlite:///{state_dir(config) / 'api' / 'pinner.sqlite'}"


def host_name(config: cfg.ConfigOpts) -> str:
    """This host's name in pinner."""
    return config.host.name or socket.gethostname()


def nova_sets(config: cfg.ConfigOpts) -> NovaSets:
    """What pinner's own configuration says of Nova's CPU sets. Raises Invalid."""
    sets = (cpus(config.nova[name], f"[nova] {name}") for name in ("cpu_dedicated_set", "cpu_shared_set"))
    return NovaSets(*sets)


def local_agent(config: cfg.ConfigOpts, own: Collection[int], undo: ExitStack, *, watch: bool = False) -> LocalAgent:
    """The agent of this machine, once it has settled what a dead process left open. ``own`` are pinner's process ids,
    and ``watch`` says whether it hears of what happens there. What it opens is closed by ``undo``."""
    libvirt = Libvirt(config.libvirt.uri, config.libvirt.call_timeout)
    journal = Journal(state_dir(config) / "agent")
    undo.callback(journal.close)
    sets, files = nova_sets(config), [Path(file) for file in config.nova.nova_conf]

    def take(sample_seconds: float) -> Snapshot:
        return take_snapshot(
            LIVE,
            host_name(config),
            libvirt,
            sample_seconds=sample_seconds,
            own=own,
            placed=journal.placed(),
            sets=sets,
            nova=nova_conf.read(files),
            now=now,
        )

    host = LiveHost(libvirt, lambda: configured(sets, nova_conf.read(files)))
    event_queue = HostEventQueue(now)
    agent = LocalAgent(take, host, journal, now, event_queue, config.agent.recover)
    undo.callback(agent.close)
    agent.recover()
    if watch:
        events = Events(config.libvirt.uri, host.own_pins, event_queue, journal.placed)
        events.start()
        undo.callback(events.close)
    return agent


def captured_agent(config: cfg.ConfigOpts, root: Path) -> CapturedAgent:
    """The agent of the machine captured below ``root``."""
    sets = nova_sets(config)
    return CapturedAgent(
        lambda seconds: take_snapshot(root, root.resolve().name, None, sample_seconds=seconds, sets=sets, now=now)
    )


def service(config: cfg.ConfigOpts, agents: Mapping[str, Agent], url: str, undo: ExitStack) -> LocalService:
    """The use cases over these agents and the database at ``url``, whose schema is brought up to date."""
    store = undo.enter_context(open_store(url))
    migration = timedelta(seconds=config.policy.migration_seconds)
    made = LocalService(agents, store, now, lambda: uuid.uuid4().hex[:12], config.host.sample_seconds, migration)
    undo.callback(made.close)
    made.catch_up()
    return made


def start_controller(config: cfg.ConfigOpts, made: LocalService, host: str, undo: ExitStack) -> None:
    """Keep the host's policy from now on, until ``undo``."""
    controller = PolicyController(
        made.reconciler,
        host,
        resync_seconds=config.policy.resync_seconds,
        measure_seconds=config.policy.measure_seconds,
    )
    controller.start()
    undo.callback(controller.stop)


@contextmanager
def open_pinner(config_files: list[Path] | None, url: str, token: str, root: Path | None) -> Iterator[Service]:
    """The use cases for one command: of the server at ``url``, else of the machine captured below ``root``, else of
    this machine."""
    with ExitStack() as undo:
        if url:
            # Not above: whoever is on the host itself needs no HTTP client.
            from pinner.service.remote import RemoteService

            remote = RemoteService(url, token or None)
            undo.callback(remote.close)
            yield remote
            return
        config = configuration(config_files)
        if root is not None:
            folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="pinner-"))
            agent: Agent = captured_agent(config, root)
            yield service(config, {root.resolve().name: agent}, f"sqlite:///{folder}/pinner.sqlite", undo)
            return
        agent = local_agent(config, {os.getpid()}, undo)
        yield service(config, {host_name(config): agent}, database_url(config), undo)


def save_machine(root: Path | None, folder: Path, *, scrub: bool) -> int:
    """Save this machine, or the captured one below ``root``, as files; how many."""
    return capture(root or LIVE, folder, scrub=scrub)


def nova_report(snapshot: Snapshot, config_files: list[Path] | None) -> NovaReport:
    """What Nova owns on a host, and what is misconfigured there, or for the listener of this configuration."""
    listener = configuration(config_files).nova_listener
    return nova_check.report(snapshot, Listening(tuple(listener.topics), listener.pool))


def plan_from_snapshot(snapshot: Snapshot, request: Request) -> Plan:
    """A plan for a saved snapshot; needs neither its host nor a database."""
    return planner.plan(snapshot, codec.content_hash(snapshot), request)
