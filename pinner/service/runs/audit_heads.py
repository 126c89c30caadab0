"""Exchanges the heads of the audit trails between the centre and the agents. The API's user cannot write the agent's
chain, so a change or cut of the centre's records contradicts the head there. The centre stores the agent's head."""

import logging

from pinner.model.errors import NotFound, PinnerError, StoreUnavailable
from pinner.model.run.agent_audit import SignedHead
from pinner.service.hosts.hosts import Hosts
from pinner.store.repositories import Store
from pinner.worker import Worker

LOG = logging.getLogger(__name__)

EXCHANGE_SECONDS = 60.0
"""Each end of a run exchanges the heads, too."""
STOP_SECONDS = 5.0
HANGS_SECONDS = 1800.0
"""An exchange asks each agent once, and waits for the database."""


class AuditHeads(Worker):
    """Exchanges the heads at its start and each EXCHANGE_SECONDS. Several threads may use it."""

    def __init__(self, hosts: Hosts, store: Store) -> None:
        super().__init__("audit-heads", HANGS_SECONDS)
        self._hosts = hosts
        self._store = store

    def stop(self) -> None:
        """An agent that does not answer delays it by at most STOP_SECONDS."""
        super().stop()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def exchange(self, host: str) -> SignedHead | None:
        """The agent's signed head, after it got the centre's; None where the agent does not answer or has no audit
        trail: a run must not fail because of that."""
        try:
            return self._hosts.agent(host).audit_head(self._store.audit.head())
        except NotFound:
            return None
        except PinnerError as error:
            LOG.warning("host %s: the heads of the audit trails cannot be exchanged now: %s", host, error)
            return None

    def _repeat(self) -> None:
        while not self._stop.is_set():
            self.heartbeat.beat()
            for host in self._hosts.names():
                self._exchange_and_store(host)
            self._stop.wait(EXCHANGE_SECONDS)

    def _exchange_and_store(self, host: str) -> None:
        try:
            if head := self.exchange(host):
                self._store.agent_heads.add(head)
        except StoreUnavailable as error:
            LOG.warning("host %s: the head of the agent's audit trail is not stored: %s", host, error)
        except Exception:
            # Whatever an agent answers, the heads of the next minute are exchanged again.
            LOG.exception("host %s: the heads of the audit trails are not exchanged", host)
