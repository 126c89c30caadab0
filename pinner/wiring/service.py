import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta

from oslo_config import cfg

from pinner.agent.protocol import Agent
from pinner.planning.policy.repack import RepackRule
from pinner.service.local import ServiceParts
from pinner.service.reconcile.controller import PolicyController
from pinner.store.repositories import open_store
from pinner.wiring.settings import now
from pinner.worker import Heartbeat


def service_parts(config: cfg.ConfigOpts, agents: Mapping[str, Agent], url: str, undo: ExitStack) -> ServiceParts:
    """The schema of the database at ``url`` is upgraded where it is older."""
    store = undo.enter_context(open_store(url))
    migration = timedelta(seconds=config.policy.migration_seconds)
    rule = RepackRule(mark=config.policy.repack_mark, gain=config.policy.repack_gain)
    parts = ServiceParts(agents, store, now, lambda: uuid.uuid4().hex[:12], config.host.sample_seconds, migration, rule)
    undo.callback(parts.close)
    parts.runs.catch_up()
    return parts


def start_controller(config: cfg.ConfigOpts, parts: ServiceParts, host: str, undo: ExitStack) -> list[Heartbeat]:
    """``undo`` stops it. Returns the heartbeats of its threads."""
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
