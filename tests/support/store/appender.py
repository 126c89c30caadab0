"""A writer of the audit trail that a test can start in a separate process."""

from support.values import NOON

from pinner.model.run.audit import AuditAction, AuditEvent
from pinner.store.audit.audit import Audit
from pinner.store.database.engine import connect


def append_pairs(url: str, actor: str, times: int) -> None:
    engine = connect(url)
    event = AuditEvent(NOON, actor, "cli", AuditAction.RUN_CHANGE, "h1", "process busy", "0-3", "0", "done", "req-1")
    for _ in range(times):
        Audit(engine).append(event, event)
    engine.dispose()
