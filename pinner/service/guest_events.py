"""GuestEventHandler: handles the events that libvirt's hook, Nova or a script reports about guests.

An event is a hint. pinner stores its facts about the guest (the Nova identity, the start of a migration) until the
guest is gone, and the policy controller observes the host at once. If every thread is in its place, nothing changes.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from pinner import codec
from pinner.model.audit import AuditAction, Caller, audit_event
from pinner.model.event import GuestEvent, GuestEventOutcome, GuestHint
from pinner.service.hosts import Hosts
from pinner.service.reconciler import Reconciler
from pinner.store.repositories import Store


class GuestEventHandler:
    """Handles guest events of all hosts. Several threads may use it."""

    def __init__(
        self, hosts: Hosts, reconciler: Reconciler, store: Store, now: Callable[[], datetime], migration: timedelta
    ) -> None:
        """``migration`` is how long a guest counts as leaving after its migration was reported."""
        self._hosts = hosts
        self._reconciler = reconciler
        self._store = store
        self._now = now
        self._migration = migration

    def handle(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        """See Service.guest_event. Raises NotFound for an unknown host, Invalid where a host must be named."""
        host = self._hosts.only(host)
        agent = self._hosts.agent(host)
        # An event from a clock that is ahead must not make all later events seem old.
        event = replace(event, at=min(event.at, self._now()))
        summary = f"{event.event}, reported by {event.source}"
        known = agent.has_guest(event.guest)
        result = "known" if known else "no guest of this host"
        nova = codec.dump(event.nova).decode() if event.nova else ""
        subject = f"guest {event.guest}: {summary}"
        reported = audit_event(caller, self._now(), AuditAction.GUEST_EVENT, host, subject, result, after=nova)
        if event.kind == "gone":
            self._store.guest_hints.forget(event.guest, host, event.at, [reported], now=self._now())
        elif known:
            self._store.guest_hints.put(self._hint(host, event), [reported], now=self._now())
        else:
            self._store.audit.append(reported)
        run = ""
        if known and self._is_leaving(host, event):
            run = self._release(host, event, replace(caller, origin=summary))
        if known:
            # Last: the controller that this wakes up must see the stored hint.
            agent.publish_guest_event(event.guest, summary)
        return GuestEventOutcome(host, event.guest, known, run)

    def _release(self, host: str, event: GuestEvent, caller: Caller) -> str:
        """Restore the affinities that the guest had before its placement; the run's id, empty where none is needed."""
        reason = f"the guest migrates to another host ({event.event})"
        run = self._reconciler.release_guest(host, event.guest, event.cpus, reason, caller)
        return run.id if run else ""

    def _hint(self, host: str, event: GuestEvent) -> GuestHint:
        """What the event tells about the guest, together with what is known. The time of an event that tells no more
        is needed, too: an older event may come later."""
        before = self._store.guest_hints.of(host).get(event.guest)
        nova = event.nova or (before.nova if before else None)
        until = self._now() + self._migration if event.kind == "leaving" else None
        return GuestHint(event.guest, host, event.at, nova, until)

    def _is_leaving(self, host: str, event: GuestEvent) -> bool:
        """Whether the event says that the guest leaves, and no later event says that it stayed."""
        hint = self._store.guest_hints.of(host).get(event.guest)
        return event.kind == "leaving" and hint is not None and hint.leaving_until is not None
