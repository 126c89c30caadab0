"""What is deleted once a day, by the configured limits."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

from oslo_config import cfg

from pinner.agent.protocol import Agent
from pinner.agent.trail.trail import AgentTrailFile
from pinner.apply.undo import kept_runs
from pinner.host.inventory import LIVE
from pinner.host.kernel.kernel import boot_id
from pinner.host.live import LiveHost
from pinner.model.errors import NotFound
from pinner.service.local import ServiceParts
from pinner.service.upkeep import retention
from pinner.service.upkeep.daily import Calendar, Daily
from pinner.service.upkeep.retention import Limits, Purged, cut_chain
from pinner.store.journal.journal import StoredJournal
from pinner.store.journal.unusable_journal import UnusableJournal
from pinner.store.retention import Retention
from pinner.wiring.settings import agent_folder, host_name, now, state_dir
from pinner.worker import Heartbeat

LOG = logging.getLogger(__name__)


def start_daily(name: str, work: Callable[[datetime], None], folder: Path, undo: ExitStack) -> list[Heartbeat]:
    """Unless the clock is ahead of the last time, which is kept in the folder. ``undo`` stops it."""
    daily = Daily(name, work, Calendar(folder / "last-daily-work", now))
    daily.start()
    undo.callback(daily.stop)
    return [daily.heartbeat]


def purge_journal(
    config: cfg.ConfigOpts,
    journal: StoredJournal | UnusableJournal,
    host: LiveHost,
    trail: AgentTrailFile,
    today: datetime,
) -> None:
    before = today - timedelta(days=config.retention.runs_days)
    if deleted := kept_runs.purge(journal, before, host, host_name(config), boot_id(LIVE)):
        LOG.info("deleted %d runs from the journal, none of which can be undone any more", deleted)
    if config.retention.audit_export and isinstance(journal, StoredJournal):
        cut_chain(journal.chain, trail, agent_folder(config), _limits(config), today)


def purge(config: cfg.ConfigOpts, store: Retention, *, dry_run: bool = False) -> Purged:
    """Audit records stay, and runs whose changes are in place."""
    return retention.purge(store, _limits(config), now(), lambda _: True, dry_run=dry_run)


def start_retention(config: cfg.ConfigOpts, parts: ServiceParts, agent: Agent, undo: ExitStack) -> list[Heartbeat]:
    """Once a day. A run is kept as long as the agent's journal has it."""

    def is_kept(run: str) -> bool:
        try:
            agent.run(run)
        except NotFound:
            return False
        return True

    def work(today: datetime) -> None:
        limits = _limits(config)
        LOG.info("deleted %s", retention.purge(parts.store.retention, limits, today, is_kept))
        export = parts.service.export_audit
        if file := retention.export_audit(parts.store.retention, limits, today, host_name(config), export):
            LOG.info("the audit trail is exported to %s, and its old records are deleted", file)
        if hints := retention.purge_hints(parts.store.retention, host_name(config), today, agent.has_guest):
            LOG.info("deleted what earlier events told about %s guests that are gone", hints)

    return start_daily("retention", work, state_dir(config) / "api", undo)


def _limits(config: cfg.ConfigOpts) -> Limits:
    options = config.retention
    return Limits(
        runs=timedelta(days=options.runs_days),
        plans=timedelta(days=options.plans_days),
        audit=timedelta(days=options.audit_days),
        audit_folder=Path(options.audit_export) if options.audit_export else None,
    )
