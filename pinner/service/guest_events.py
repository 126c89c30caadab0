"""What becomes of events that others tell of guests.

An event is a hint. What it says about a guest (who it is for Nova, that it is leaving) is kept until it is gone, and
whoever keeps the host looks at once; where everything is in its place already, nothing is done.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from pinner import codec
from pinner.agent.protocol import Agent
from pinner.model.audit import Caller
from pinner.model.errors import Invalid, NotFound
from pinner.model.event import GuestEvent, GuestEventOutcome, GuestHint
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot
from pinner.planning.release import release
from pinner.service.reconciler import Reconciler
from pinner.store.audit import audit_event
from pinner.store.repositories import Store


class GuestEventHandler:
    """Hears events of guests. May be used by several threads."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        store: Store,
        now: Callable[[], datetime],
        migration: timedelta,
        reconciler: Reconciler,
    ) -> None:
        """``migration`` is how long a guest that is leaving is believed to be."""
        self._agents = agents
        self._store = store
        self._now = now
        self._migration = migration
        self._reconciler = reconciler

    def handle(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        """See UseCases.guest_event. Raises NotFound for a host that is not known, Invalid where one must be named."""
        host = self._host(host)
        # A clock that is ahead must not make all that is told later seem old.
        event = replace(event, at=min(event.at, self._now()))
        words = f"{event.event}, told by {event.source}"
        known = self._agents[host].knows(event.guest)
        result = "known" if known else "no guest of this host"
        nova = codec.dump(event.nova).decode() if event.nova else ""
        subject = f"guest {event.guest}: {words}"
        self._store.audit.append(audit_event(caller, self._now(), "guest.event", host, subject, result, after=nova))
        if event.kind == "gone":
            self._store.guest_hints.forget(event.guest, host)
        elif known:
            self._remember(host, event)
        run = (
            self._release(host, event, replace(caller, origin=words)) if known and self._is_leaving(host, event) else ""
        )
        if known:
            # In the end: who looks at once must see it as it is told.
            self._agents[host].publish_guest_event(event.guest, words)
        return GuestEventOutcome(host, event.guest, known, run)

    def _host(self, host: str | None) -> str:
        if host is None and len(self._agents) == 1:
            return next(iter(self._agents))
        if host is None:
            raise Invalid("host", host, f"one of {', '.join(sorted(self._agents))}")
        if host not in self._agents:
            raise NotFound("host", host, tuple(sorted(self._agents)))
        return host

    def _release(self, host: str, event: GuestEvent, caller: Caller) -> str:
        """Give the guest back what it had; the run's id."""
        reason = f"it is being migrated away ({event.event})"

        def make(taken: Snapshot) -> Plan:
            done = self._store.runs.recorded_changes(host, event.guest)
            return release(taken, codec.content_hash(taken), event.guest, done, event.cpus, reason)

        run = self._reconciler.apply_between(host, make, "release", caller)
        return run.id if run else ""

    def _remember(self, host: str, event: GuestEvent) -> None:
        before = self._store.guest_hints.of(host).get(event.guest)
        nova = event.nova or (before.nova if before else None)
        until = self._now() + self._migration if event.kind == "leaving" else None
        if before or nova or until:
            self._store.guest_hints.put(GuestHint(event.guest, host, event.at, nova, until))

    def _is_leaving(self, host: str, event: GuestEvent) -> bool:
        """Whether the event says so, and nothing later says that it stayed."""
        found = self._store.guest_hints.of(host).get(event.guest)
        return event.kind == "leaving" and found is not None and found.leaving_until is not None
