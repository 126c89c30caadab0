import logging
from collections.abc import Callable, Collection, Container, Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

from oslo_config import cfg

from pinner.agent.freed_memory import FreedMemory
from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import Histories, LocalAgent, no_history
from pinner.agent.recorder import Recorder
from pinner.agent.socket.client import AgentClient
from pinner.agent.socket.peers import sleep
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.apply.undo import all_runs
from pinner.conf.options import MOST_PINGED
from pinner.host.inventory import LIVE, SnapshotInputs, take_snapshot
from pinner.host.kernel import tracefs
from pinner.host.kernel.kernel import boot_id
from pinner.host.live import LiveHost
from pinner.host.measure.blame import blame
from pinner.host.measure.meter import HostMeter, no_pings
from pinner.host.measure.pinger import Pinger
from pinner.host.processes.immovable import ForbiddenProcesses
from pinner.host.processes.ovs import Ovsdb
from pinner.host.processes.reservations import AffinityOwners
from pinner.host.processes.sampling import Scanner
from pinner.host.reading.sampler import take_reading
from pinner.host.settings.inside.guests import InsideReader
from pinner.host.settings.row import AskGuests
from pinner.host.virt.libvirt import Libvirt
from pinner.host.virt.libvirt_events import OwnPins
from pinner.host.watch.events import HostWatcher, checks
from pinner.model.errors import StoreUnavailable
from pinner.model.guest.nova import NovaConf, configured
from pinner.model.kinds import TargetKind
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot
from pinner.owners import require_own
from pinner.service.upkeep.retention import cut_chain
from pinner.store.journal.journal import StoredJournal
from pinner.store.journal.opening import (
    JournalRetry,
    LastMasks,
    UnusableJournal,
    open_journal,
    pins_of,
    require_own_state,
    this_host,
)
from pinner.wiring.service import limits_of, start_daily
from pinner.wiring.settings import agent_folder, agent_socket, host_name, nova_reader, nova_sets, now, state_dir
from pinner.worker import Heartbeat, Worker

LOG = logging.getLogger(__name__)
AGENT_SECONDS = 30.0
"""A call to the agent that is no run, besides its sample and its calls of libvirt."""


class TakeSnapshot(Protocol):
    def __call__(
        self, seconds: float, only: Collection[TargetKind] | None = None, inside: Collection[str] | None = None
    ) -> Snapshot: ...


def agent_client(config: cfg.ConfigOpts, path: Path | None = None) -> AgentClient:
    """A scan makes up to two calls of libvirt about the whole host, each six times [libvirt] call_timeout."""
    patience = AGENT_SECONDS + 12 * config.libvirt.call_timeout
    return AgentClient(host_name(config), path or agent_socket(config), patience=patience)


def local_agent(
    config: cfg.ConfigOpts, own: Container[int], undo: ExitStack, threads: list[Heartbeat] | None = None
) -> LocalAgent:
    """After it has recovered an interrupted run. ``own``: pinner's process ids. With ``threads``, which get their
    heartbeats, the agent collects host events. ``undo`` closes everything."""
    libvirt = Libvirt(config.libvirt.uri, config.libvirt.call_timeout)
    journal = _journal(config, undo)
    placed, own_pins, event_queue = LastMasks(journal), OwnPins(), HostEventQueue(now)
    sets, read_nova = nova_sets(config), nova_reader(config)
    host = LiveHost(libvirt, lambda guests: configured(sets, read_nova(), guests), own_pins)
    trail = AgentTrailFile(host_name(config), journal.chain, SigningKey(agent_folder(config) / "signing.key"), now)
    watcher = HostWatcher(config.libvirt.uri, own_pins, event_queue, placed) if threads is not None else None
    pinger = _pinger(config) if threads is not None and config.agent.keep_measures else None
    recorder = _recorder(config, libvirt, pinger) if threads is not None and config.agent.keep_measures else None
    ask_guests = InsideReader(libvirt).read if config.libvirt.guest_agents else None
    take = _snapshots(config, own, libvirt, journal, placed, read_nova, ask_guests)
    agent = LocalAgent(
        take, host, journal, now, event_queue, trail, config.agent.recover,
        name=host_name(config), boot=boot_id(LIVE), checks=lambda: checks(watcher, libvirt) if watcher else (),
        sample=_readings(config, ask_guests), histories=_histories(recorder), trace=partial(blame, LIVE, sleep=sleep),
        take_inventory=partial(take, 0.0),
    )  # fmt: skip
    undo.callback(agent.close)
    tracefs.remove_left(LIVE)
    if isinstance(journal, StoredJournal):
        _recover(agent)
    if threads is not None:
        purge = partial(_purge_journal, config, journal, host, trail)
        threads += start_daily("journal retention", purge, agent_folder(config), undo)
        retry = JournalRetry(agent_folder(config)) if isinstance(journal, UnusableJournal) else None
        threads += _start(watcher, (pinger, recorder, FreedMemory(), retry), undo)
    return agent


def _journal(config: cfg.ConfigOpts, undo: ExitStack) -> StoredJournal | UnusableJournal:
    folder = agent_folder(config)
    require_own(folder, "[agent] state_dir")
    require_own_state(folder, this_host(host_name(config)))
    journal = open_journal(folder)
    undo.callback(journal.close)
    return journal


def _purge_journal(
    config: cfg.ConfigOpts,
    journal: StoredJournal | UnusableJournal,
    host: LiveHost,
    trail: AgentTrailFile,
    today: datetime,
) -> None:
    before = today - timedelta(days=config.retention.runs_days)
    if deleted := all_runs.purge(journal, before, host, host_name(config), boot_id(LIVE)):
        LOG.info("deleted %d runs from the journal, none of which can be undone any more", deleted)
    if config.retention.audit_export and isinstance(journal, StoredJournal):
        cut_chain(journal.chain, trail, agent_folder(config), limits_of(config), today)


def _snapshots(
    config: cfg.ConfigOpts,
    own: Container[int],
    libvirt: Libvirt,
    journal: StoredJournal | UnusableJournal,
    placed: LastMasks,
    read_nova: Callable[[], NovaConf | None],
    ask_guests: AskGuests | None,
) -> TakeSnapshot:
    inputs = SnapshotInputs(
        own=own,
        forbidden=ForbiddenProcesses(),
        pins=partial(pins_of, journal),
        sets=nova_sets(config),
        owners=AffinityOwners.of(config.host.affinity_owners),
        minimum_cores=config.host.minimum_cores,
        weights=dict(config.objective),
        ovs_masks=Ovsdb(Path(config.host.ovsdb)).masks,
        scanner=Scanner(LIVE),
        sleep=sleep,
    )

    def take(
        seconds: float, only: Collection[TargetKind] | None = None, inside: Collection[str] | None = None
    ) -> Snapshot:
        ask = partial(ask_guests, among=inside) if ask_guests and inside is not None else ask_guests
        known = replace(inputs, placed=placed(), nova=read_nova(), ask_guests=ask)
        return take_snapshot(LIVE, host_name(config), libvirt, sample_seconds=seconds, now=now, inputs=known, only=only)

    return take


def _readings(config: cfg.ConfigOpts, ask_guests: AskGuests | None) -> Callable[[Snapshot, float], HostReading]:
    return partial(take_reading, LIVE, sleep=sleep, folders=(state_dir(config),), ask_guests=ask_guests)


def _pinger(config: cfg.ConfigOpts) -> Pinger | None:
    pairs = [pinged.rpartition("=") for pinged in config.agent.pinged_guests[:MOST_PINGED]]
    addresses = {name: address for name, _, address in pairs}
    return Pinger(addresses) if addresses else None


def _recorder(config: cfg.ConfigOpts, libvirt: Libvirt, pinger: Pinger | None) -> Recorder | None:
    """None on a host without RRDtool's library: placing needs no measures."""
    try:
        from pinner.store.history import HistoryFiles
    except ImportError as error:
        LOG.warning("nothing is measured: %s; install the package librrd8", error)
        return None
    meter = HostMeter(LIVE, libvirt, pings_of=pinger or no_pings)
    return Recorder(meter, HistoryFiles(agent_folder(config) / "history"), now)


def _histories(recorder: Recorder | None) -> Histories:
    if recorder is None:
        return no_history
    return recorder.measures


def _recover(agent: LocalAgent) -> None:
    try:
        agent.recover()
    except StoreUnavailable as error:
        LOG.error("no plan can be applied and no run rolled back: %s", error)


def _start(watcher: HostWatcher | None, workers: Iterable[Worker | None], undo: ExitStack) -> list[Heartbeat]:
    threads: list[Heartbeat] = []
    if watcher is not None:
        watcher.start()
        undo.callback(watcher.close)
        threads += watcher.heartbeats
    for worker in workers:
        if worker is not None:
            worker.start()
            undo.callback(worker.stop)
            threads.append(worker.heartbeat)
    return threads
