"""Marks a guest in its libvirt metadata, so that pinner skips it."""

from collections.abc import Callable
from datetime import datetime

from pinner.model.errors import PinnerError
from pinner.model.guest.guest import GuestExclusion
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.service.hosts.hosts import Hosts
from pinner.store.repositories import Store


class GuestExclusions:
    def __init__(self, hosts: Hosts, store: Store, now: Callable[[], datetime]) -> None:
        self._hosts = hosts
        self._store = store
        self._now = now

    def set(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        running = self._hosts.snapshot(host, 0.0).running_guest(guest)
        subject = f"{running.name} ({running.uuid})"

        def record(result: str) -> None:
            event = audit_event(caller, self._now(), AuditAction.GUEST_EXCLUDE, host, subject, result)
            self._store.audit.append(event)

        result = "excluded" if excluded else "included"
        # The mark is no part of the database's transaction: a record without a result is of a server that was killed.
        record(f"{result}: started")
        try:
            self._hosts.agent(host).set_excluded(running.uuid, excluded=excluded)
        except PinnerError as error:
            record(f"{result}: failed, {error.code}")
            raise
        record(result)
        return GuestExclusion(running.uuid, running.name, excluded)
