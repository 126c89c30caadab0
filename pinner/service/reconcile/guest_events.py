"""Handles events of guests from libvirt's hook, Nova or a script. Their facts (Nova's identity, the start of a
migration) are stored until the guest is gone."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from pinner import codec
from pinner.model.event import GuestEvent, GuestEventOutcome, GuestHint
from pinner.model.run.audit import AuditAction, AuditEvent, Caller, audit_event
from pinner.planning.policy.event_order import hint_after
from pinner.service.hosts.hosts import Hosts
from pinner.service.reconcile.reconciler import Reconciler
from pinner.store.repositories import Store


class GuestEventHandler:
    def __init__(
        self, hosts: Hosts, reconciler: Reconciler, store: Store, now: Callable[[], datetime], migration: timedelta
    ) -> None:
        self._hosts = hosts
        self._reconciler = reconciler
        self._store = store
        self._now = now
        self._migration = migration

    def handle(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        """Raises NotFound for an unknown host, Invalid where a host must be named."""
        host = self._hosts.only(host)
        agent = self._hosts.agent(host)
        summary = f"{event.event}, reported by {event.source}"
        known = agent.has_guest(event.guest)
        ignored = self._store_hint(host, event, caller, summary, is_here=known)
        run = ""
        if known and event.kind == "leaving" and not ignored:
            run = self._release(host, event, replace(caller, origin=summary))
        if known:
            # Last: the controller that this wakes up must see the stored hint.
            agent.publish_guest_event(event.guest, summary)
        return GuestEventOutcome(host, event.guest, known, run, ignored)

    def _store_hint(self, host: str, event: GuestEvent, caller: Caller, summary: str, *, is_here: bool) -> str:
        """Returns why the event is ignored, or nothing."""
        now = self._now()

        def after(hint: GuestHint | None) -> tuple[GuestHint | None, str]:
            return hint_after(hint, event, host, now, is_here=is_here, migration=self._migration)

        def record(ignored: str) -> AuditEvent:
            nova = codec.dump(event.nova).decode() if event.nova else ""
            result = f"ignored: {ignored}" if ignored else "known" if is_here else "no guest of this host"
            subject = f"guest {event.guest}: {summary}"
            return audit_event(caller, now, AuditAction.GUEST_EVENT, host, subject, result, after=nova)

        return self._store.guest_hints.change(event.guest, host, after, record)

    def _release(self, host: str, event: GuestEvent, caller: Caller) -> str:
        reason = f"the guest migrates to another host ({event.event})"
        run = self._reconciler.release_guest(host, event.guest, event.cpus, reason, caller)
        return run.id if run else ""
