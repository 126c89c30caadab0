"""The service of one process, and what runs beside it."""

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

from oslo_config import cfg

from pinner.agent.protocol import Agent
from pinner.model.errors import NotFound
from pinner.planning.moves import RepackRule
from pinner.service.local import ServiceParts
from pinner.service.reconcile.controller import PolicyController
from pinner.service.upkeep import retention
from pinner.service.upkeep.retention import Calendar, Daily, Limits, Purged
from pinner.store.repositories import open_store
from pinner.store.retention import Retention
from pinner.wiring.settings import host_name, now, state_dir
from pinner.worker import Heartbeat

LOG = logging.getLogger(__name__)


def service_parts(config: cfg.ConfigOpts, agents: Mapping[str, Agent], url: str, undo: ExitStack) -> ServiceParts:
    """An older schema is upgraded."""
    store = undo.enter_context(open_store(url))
    migration = timedelta(seconds=config.policy.migration_seconds)
    rule = RepackRule(mark=config.policy.repack_mark, gain=config.policy.repack_gain)
    parts = ServiceParts(agents, store, now, lambda: uuid.uuid4().hex[:12], config.host.sample_seconds, migration, rule)
    undo.callback(parts.close)
    parts.runs.catch_up()
    return parts


def start_controller(config: cfg.ConfigOpts, parts: ServiceParts, host: str, undo: ExitStack) -> list[Heartbeat]:
    """``undo`` stops it. Returns its heartbeats."""
    controller = PolicyController(
        parts.reconciler,
        host,
        metrics=parts.monitor.metrics,
        resync_seconds=config.policy.resync_seconds,
        measure_seconds=config.policy.measure_seconds,
    )
    controller.start()
    undo.callback(controller.stop)
    return controller.heartbeats


def start_daily(name: str, work: Callable[[datetime], None], folder: Path, undo: ExitStack) -> list[Heartbeat]:
    """Unless the clock is ahead of the last time, which is kept in the folder. ``undo`` stops it."""
    daily = Daily(name, work, Calendar(folder / "last-daily-work", now))
    daily.start()
    undo.callback(daily.stop)
    return [daily.heartbeat]


def purge(config: cfg.ConfigOpts, store: Retention, *, dry_run: bool = False) -> Purged:
    """Audit records stay, and runs whose changes are in place."""
    return retention.purge(store, limits_of(config), now(), lambda _: True, dry_run=dry_run)


def start_retention(config: cfg.ConfigOpts, parts: ServiceParts, agent: Agent, undo: ExitStack) -> list[Heartbeat]:
    """Once a day. A run is kept as long as the agent's journal has it."""

    def is_kept(run: str) -> bool:
        try:
            agent.run(run)
        except NotFound:
            return False
        return True

    def work(today: datetime) -> None:
        limits = limits_of(config)
        LOG.info("deleted %s", retention.purge(parts.store.retention, limits, today, is_kept))
        export = parts.service.export_audit
        if file := retention.export_audit(parts.store.retention, limits, today, host_name(config), export):
            LOG.info("the audit trail is exported to %s, and its old records are deleted", file)
        if hints := retention.purge_hints(parts.store.retention, host_name(config), today, agent.has_guest):
            LOG.info("deleted what earlier events told about %s guests that are gone", hints)

    return start_daily("retention", work, state_dir(config) / "api", undo)


def limits_of(config: cfg.ConfigOpts) -> Limits:
    options = config.retention
    return Limits(
        runs=timedelta(days=options.runs_days),
        plans=timedelta(days=options.plans_days),
        audit=timedelta(days=options.audit_days),
        audit_folder=Path(options.audit_export) if options.audit_export else None,
    )
