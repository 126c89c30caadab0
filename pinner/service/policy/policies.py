"""Reads and sets the hosts' policies, refuses runs that an enforced policy would reverse, and excludes guests."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from pinner import codec
from pinner.model.errors import (
    HostUnreachable,
    Invalid,
    NoPolicy,
    NotFound,
    PinnerError,
    PolicyConflict,
    PreconditionFailed,
)
from pinner.model.guest.guest import GuestExclusion
from pinner.model.plan.request import Request
from pinner.model.policy import Expected, Policy, Setback
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.model.run.journal import Run
from pinner.planning import planner
from pinner.service.hosts.hosts import Hosts
from pinner.service.hosts.plan_maker import require_installed
from pinner.store.repositories import Store


class HostPolicies:
    def __init__(self, hosts: Hosts, store: Store, now: Callable[[], datetime]) -> None:
        self._hosts = hosts
        self._store = store
        self._now = now

    def find(self, host: str) -> Policy | None:
        try:
            return self._store.policies.get(host)
        except NotFound:
            return None

    def set(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        self._hosts.require(host)
        require_installed(policy.request.strategy)
        _require_names(policy.request)
        self._change(host, expected, lambda before: self._put(host, before, policy, caller))
        self._publish(host)
        return policy

    def delete(self, host: str, caller: Caller, expected: Expected = None) -> None:
        self._hosts.require(host)
        self._change(host, expected, lambda before: self._delete(host, before, caller))
        self._publish(host)

    def set_back(self, run: Run, why: str, caller: Caller) -> None:
        """Let an enforcing policy only propose: it would repeat the change by which ``run`` made a guest worse."""
        cause = Setback(run.id, self._now(), why)

        def change(before: Policy | None) -> None:
            if before is not None and before.mode == "enforce" and before.undo_if_worse:
                self._put_setback(run.host, before, cause, caller)

        self._change(run.host, None, change)
        self._publish(run.host)

    def _put_setback(self, host: str, before: Policy, cause: Setback, caller: Caller) -> None:
        after, result = replace(before, mode="propose"), f"set to propose, because of run {cause.run}: {cause.why}"
        event = audit_event(
            caller, cause.at, AuditAction.POLICY_SET, host, host, result, before=_summary(before), after=_summary(after)
        )
        self._store.policies.put(host, after, cause.at, event, (revision(before),), cause)

    def _change(self, host: str, expected: Expected, change: Callable[[Policy | None], None]) -> None:
        """Repeated after another caller's change: the audit record names the policy before."""
        while True:
            before = self.find(host)
            if expected is not None and revision(before) not in expected:
                raise PreconditionFailed(f"policy of host {host}", expected, revision(before))
            with suppress(PreconditionFailed):
                change(before)
                return

    def _put(self, host: str, before: Policy | None, policy: Policy, caller: Caller) -> None:
        changed = before is None or before.request != policy.request
        if policy.mode == "observe":
            # It changes nothing, and an operator stops an enforced policy so. Another mode is checked later.
            if changed:
                with suppress(HostUnreachable):
                    self._require_possible(host, policy)
        elif before is None or before.mode == "observe" or changed:
            self._require_possible(host, policy)
        was, now = _summary(before) if before else "", self._now()
        event = audit_event(caller, now, AuditAction.POLICY_SET, host, host, "done", before=was, after=_summary(policy))
        self._store.policies.put(host, policy, now, event, (revision(before),))

    def _delete(self, host: str, before: Policy | None, caller: Caller) -> None:
        if before is None:
            raise NoPolicy(host)
        event = audit_event(caller, self._now(), AuditAction.POLICY_DELETE, host, host, "done", before=_summary(before))
        self._store.policies.delete(host, event, (revision(before),))

    def _require_possible(self, host: str, policy: Policy) -> None:
        planner.require_possible(self._hosts.snapshot(host, 0.0), policy.request)

    def _publish(self, host: str) -> None:
        with suppress(PinnerError):  # the policy controller also reads the policy periodically
            self._hosts.agent(host).publish_policy_set()

    def require_compatible(self, host: str, what: str, request: Request | None) -> None:
        """Raises PolicyConflict where an enforced policy would undo ``what`` at once: anything but a plan of its own
        request (None for a rollback)."""
        policy = self.find(host)
        if policy is None or policy.mode != "enforce":
            return
        if request is None or replace(request, rebalance=False) != policy.request:
            raise PolicyConflict(host, what)


def _require_names(request: Request) -> None:
    """Raises Invalid for a pid: a policy outlives a process, and another one gets its pid."""
    by_hand = [("placement", str(pin), pin.owner) for pin in request.placement if pin.kind == "process"]
    for field, value, owner in (*by_hand, *(("processes", name, name) for name in request.processes)):
        if owner.isdecimal():
            raise Invalid(field, value, "a process by its name in a policy: its pid may become another one's")


def revision(policy: Policy | None) -> str:
    return "" if policy is None else codec.content_hash(policy)


def _summary(policy: Policy) -> str:
    undoing = ", undo if worse" if policy.undo_if_worse else ""
    return f"{policy.mode}{undoing}: {codec.dump(policy.request).decode()}"


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
