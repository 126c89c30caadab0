"""Every error that pinner raises on purpose: a stable public code, a sentence, and its numbers.

An interface (REST, CLI) shows ``code``, ``str(error)`` and ``details``; it needs no other knowledge of an error.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

_SHOWN = 200
"""The most characters of a wrong value that an error repeats, and the most items of a list."""


def shown(value: Any) -> Any:
    """The value as an error repeats it: a long text or list is cut."""
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[: _SHOWN - 3]}..."
    if isinstance(value, list | tuple) and len(value) > _SHOWN:
        return [*value[: _SHOWN - 1], "..."]
    return value


class PinnerError(Exception):
    """The base class of all errors.

    ``message`` is one sentence for a person, ``details`` are the data that a program needs.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class Invalid(PinnerError):
    """Wrong input: ``field`` names it, ``value`` is the wrong value, ``expected`` describes a valid one."""

    code = "invalid"

    def __init__(self, field: str, value: Any, expected: str, **details: Any) -> None:
        value = shown(value)
        super().__init__(
            f"{field}: {value!r} is not valid: {expected}", field=field, value=value, expected=expected, **details
        )


class OtherRevision(Invalid):
    """Another version of pinner made the database ``where``: its schema has the revision ``found``, and no release
    leads from it to ``newest``. ``renew`` says how to start with an empty database."""

    def __init__(self, where: str, found: str, newest: str, renew: str) -> None:
        PinnerError.__init__(
            self,
            f"database {where}: its revision is {found}, and this version of pinner reads {newest}. Nothing is "
            "changed. Use the pinner that made it, or start afresh: with that pinner, call `pinner rollback --all` and "
            f"`pinner audit export FILE`, and stop it; then {renew}",
            field="database",
            value=where,
            expected=newest,
            found=found,
        )


class NotFound(PinnerError):
    """No object of this ``kind`` (host, strategy, guest, process, plan, run, snapshot) has that ``name``."""

    code = "not_found"

    def __init__(self, kind: str, name: str, known: tuple[str, ...] = ()) -> None:
        name = shown(name)
        hint = f"; known: {', '.join(known)}" if known else ""
        super().__init__(f"{kind}: there is no {name!r}{hint}", kind=kind, name=name, known=list(known))


class NoPolicy(NotFound):
    """The host has no policy."""

    def __init__(self, host: str) -> None:
        PinnerError.__init__(self, f"host {host} has no policy", kind="policy of host", name=host, known=[])


class NoMeasures(NotFound):
    """The host keeps no measures."""

    def __init__(self) -> None:
        why = "this host keeps no measures: `pinner serve` keeps them, unless [agent] keep_measures is false"
        PinnerError.__init__(self, why, kind="measures", name="", known=[])


class TooFewMeasures(NotFound):
    """Too few measures are known now for a watch that undoes a run. In ``seconds`` there are enough."""

    def __init__(self, why: str, seconds: int) -> None:
        text = f"a watch finds nothing worse now, so it undoes nothing: {why}; try again in {seconds} s"
        PinnerError.__init__(self, text, kind="measures", name="", known=[], seconds=seconds)


class NoFit(PinnerError):
    """The host has too few CPUs: ``asked`` is the requested number, ``free`` the free number, ``why`` the reason."""

    code = "no_fit"

    def __init__(self, asked: int, free: int, why: str) -> None:
        super().__init__(f"asked for {asked} CPUs, {free} are free: {why}", asked=asked, free=free, why=why)


class StalePlan(PinnerError):
    """The host has changed since the plan was made; ``moved`` names each change. ``targets`` has the fields of
    each target whose threads or state are no longer as the plan expects."""

    code = "stale_plan"

    def __init__(self, plan: str, moved: tuple[str, ...], targets: tuple[Mapping[str, Any], ...] = ()) -> None:
        super().__init__(
            f"plan {plan} is stale, make a new one: {'; '.join(moved)}",
            plan=plan,
            moved=list(moved),
            targets=list(targets),
        )


class Blocked(PinnerError):
    """The plan cannot be applied as it is, and gives the reason (for instance: a reboot is needed)."""

    code = "plan_blocked"

    def __init__(self, plan: str, why: str) -> None:
        super().__init__(f"plan {plan} cannot be applied: {why}", plan=plan, why=why)


class Refused(PinnerError):
    """The agent does not make a change, because its own rules forbid it: ``target`` is the change's target, ``asked``
    the request, ``why`` the broken rule."""

    code = "refused"

    def __init__(self, target: str, asked: str, why: str) -> None:
        super().__init__(f"{target}: the agent refuses {asked}: {why}", target=target, asked=asked, why=why)


class HostBusy(PinnerError):
    """Another run is working on the host; ``run`` names it."""

    code = "host_busy"

    def __init__(self, host: str, run: str) -> None:
        super().__init__(f"run {run} is working on host {host}; wait until it ends", host=host, run=run)


class ProbeBusy(HostBusy):
    """A probe switches the placement of the host; ``probe`` names it."""

    def __init__(self, host: str, probe: str) -> None:
        why = f"probe {probe} is under way on host {host}; wait until it ends, or end it"
        PinnerError.__init__(self, why, host=host, probe=probe)


NOTHING_CHANGED = "it changed nothing, so there is nothing to roll back"
"""Of a run that cannot be rolled back, for a RunConflict."""


class RunConflict(PinnerError):
    """The run is in a state that does not allow the request."""

    code = "run_conflict"

    def __init__(self, run: str, state: str, expected: str) -> None:
        super().__init__(f"run {run} is {state}: {expected}", run=run, state=state, expected=expected)


class PolicyConflict(PinnerError):
    """The host's policy is enforced, and would undo the requested change at once."""

    code = "policy_conflict"

    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"host {host}: its policy is enforced and would undo {what}; "
            "first delete the policy, or set its mode to propose or observe",
            host=host,
            what=what,
        )


class PreconditionFailed(PinnerError):
    """The object is not in the state that the caller expects: another caller changed it meanwhile.

    ``expected`` are the revisions that the caller accepts, ``found`` is the present one. No revision is the empty text.
    """

    code = "precondition_failed"

    def __init__(self, what: str, expected: tuple[str, ...], found: str) -> None:
        wanted = " or ".join(each or "none" for each in expected)
        super().__init__(
            f"{what}: its revision is {found or 'none'}, not {wanted}; read it again",
            what=what,
            expected=list(expected),
            found=found,
        )


class NovaConflict(PinnerError):
    """An action of pinner (``ours``) would use ``cpus`` that belong to Nova (``theirs``)."""

    code = "nova_conflict"

    def __init__(self, ours: str, theirs: str, cpus: object) -> None:
        super().__init__(f"{ours}: in conflict with {theirs} (CPUs {cpus})", ours=ours, theirs=theirs, cpus=str(cpus))


class ApplyFailed(PinnerError):
    """A change failed; ``target`` names it. Earlier changes of the run are undone, or listed."""

    code = "apply_failed"

    def __init__(self, target: str, why: str, **details: Any) -> None:
        super().__init__(f"{target}: {why}", target=target, why=why, **details)


class Busy(PinnerError):
    """A guest or its libvirt did not answer in time, or has another job to end first: try again.

    ``overdue``: the call was made, and its outcome is not known.
    """

    code = "busy"

    def __init__(self, target: str, why: str, *, overdue: bool) -> None:
        super().__init__(f"{target}: {why}; try again later", target=target, why=why, overdue=overdue)


class Overloaded(PinnerError):
    """The server does as much of this as it can at the same time: try again after ``retry_after`` seconds."""

    code = "overloaded"

    def __init__(self, why: str, retry_after: int) -> None:
        super().__init__(f"{why}, which is the limit; try again later", retry_after=retry_after)


class Gone(PinnerError):
    """The guest, process or thread does not exist, or no longer exists."""

    code = "gone"

    def __init__(self, target: str) -> None:
        super().__init__(f"{target} is gone", target=target)


class HostUnreachable(PinnerError):
    """The host's agent or its libvirt does not answer; ``why`` says which, and the remedy."""

    code = "host_unreachable"

    def __init__(self, host: str, why: str, **details: Any) -> None:
        super().__init__(f"host {host}: {why}", host=host, why=why, **details)


class Unanswered(HostUnreachable):
    """The host's agent ended before it answered a request, or is silent: it may have done all of it, a part, or
    nothing. ``seconds``: how long it has been silent."""


class NotPermitted(PinnerError):
    """pinner lacks a right on the host; ``why`` says which, and how to get it."""

    code = "not_permitted"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}", what=what, why=why)


class StoreUnavailable(PinnerError):
    """The database ``where`` cannot be read or written; ``why`` says why."""

    code = "store_unavailable"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"database {where}: {why}", where=where, why=why)


def document(error: PinnerError) -> dict[str, Any]:
    """The error as plain data, for a connection."""
    return {"code": error.code, "message": error.message, "details": dict(error.details)}


def revive(code: str, message: str, details: Mapping[str, Any]) -> PinnerError:
    """The error that a peer sent, of the class with its code (PinnerError where no class has it)."""
    kinds = {kind.code: kind for kind in PinnerError.__subclasses__()}
    kind = kinds.get(code, PinnerError)
    error = kind.__new__(kind)
    PinnerError.__init__(error, message, **details)
    return error
