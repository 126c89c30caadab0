"""Every error that pinner raises on purpose. REST and CLI show only ``code``, ``str(error)`` and ``details``."""

from collections.abc import Mapping
from typing import Any, ClassVar

_SHOWN = 200
"""Characters of a wrong value, or items of a list, that an error repeats."""


def shown(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[: _SHOWN - 3]}..."
    if isinstance(value, list | tuple) and len(value) > _SHOWN:
        return [*value[: _SHOWN - 1], "..."]
    return value


class PinnerError(Exception):
    """``message`` is one sentence for a person; programs read ``details``."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class Invalid(PinnerError):
    """``expected`` describes a valid value."""

    code = "invalid"

    def __init__(self, field: str, value: Any, expected: str, **details: Any) -> None:
        value = shown(value)
        super().__init__(
            f"{field}: {value!r} is not valid: {expected}", field=field, value=value, expected=expected, **details
        )


class OtherRevision(Invalid):
    """Another version of pinner made the database ``where``; ``renew`` says how to start anew."""

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
    """``kind``: host, strategy, guest, process, plan, run or snapshot."""

    code = "not_found"

    def __init__(self, kind: str, name: str, known: tuple[str, ...] = ()) -> None:
        name = shown(name)
        hint = f"; known: {', '.join(known)}" if known else ""
        super().__init__(f"{kind}: there is no {name!r}{hint}", kind=kind, name=name, known=list(known))


class NoPolicy(NotFound):
    def __init__(self, host: str) -> None:
        PinnerError.__init__(self, f"host {host} has no policy", kind="policy of host", name=host, known=[])


class NoMeasures(NotFound):
    def __init__(self) -> None:
        why = "this host keeps no measures: `pinner serve` keeps them, unless [agent] keep_measures is false"
        PinnerError.__init__(self, why, kind="measures", name="", known=[])


class TooFewMeasures(NotFound):
    def __init__(self, why: str, seconds: int) -> None:
        text = f"a watch finds nothing worse now, so it undoes nothing: {why}; try again in {seconds} s"
        PinnerError.__init__(self, text, kind="measures", name="", known=[], seconds=seconds)


class NoFit(PinnerError):
    code = "no_fit"

    def __init__(self, asked: int, free: int, why: str) -> None:
        super().__init__(f"asked for {asked} CPUs, {free} are free: {why}", asked=asked, free=free, why=why)


class StalePlan(PinnerError):
    """``moved`` names each change of the host since the plan was made, ``targets`` has each changed target's fields."""

    code = "stale_plan"

    def __init__(self, plan: str, moved: tuple[str, ...], targets: tuple[Mapping[str, Any], ...] = ()) -> None:
        super().__init__(
            f"plan {plan} is stale, make a new one: {'; '.join(moved)}",
            plan=plan,
            moved=list(moved),
            targets=list(targets),
        )


class Blocked(PinnerError):
    """The plan cannot be applied as it is; it may need a reboot."""

    code = "plan_blocked"

    def __init__(self, plan: str, why: str) -> None:
        super().__init__(f"plan {plan} cannot be applied: {why}", plan=plan, why=why)


class WorsePlan(PinnerError):
    """``terms``: those of the objective that get worse."""

    code = "plan_worse"

    def __init__(self, plan: str, why: str, terms: tuple[Mapping[str, Any], ...]) -> None:
        super().__init__(
            f"plan {plan} is not applied, because it makes the objective worse: {why}, or allow it (apply --worse, "
            "allow_worse in REST)",
            plan=plan,
            why=why,
            terms=list(terms),
        )


class Refused(PinnerError):
    """The agent's own rules forbid the change ``asked``; ``why`` is the broken rule."""

    code = "refused"

    def __init__(self, target: str, asked: str, why: str) -> None:
        super().__init__(f"{target}: {_REFUSES} {asked}: {why}", target=target, asked=asked, why=why)


_REFUSES = "the agent refuses"


def asks_for_another_plan(plan: str, error: str) -> bool:
    """Whether this is the text of a StalePlan of the plan, or of a Refused: a run keeps only the text."""
    return error.startswith(f"plan {plan} is stale, ") or f": {_REFUSES} " in error


class HostBusy(PinnerError):
    code = "host_busy"

    def __init__(self, host: str, run: str) -> None:
        super().__init__(f"run {run} is working on host {host}; wait until it ends", host=host, run=run)


class ProbeBusy(HostBusy):
    def __init__(self, host: str, probe: str) -> None:
        why = f"probe {probe} is under way on host {host}; wait until it ends, or end it"
        PinnerError.__init__(self, why, host=host, probe=probe)


NOTHING_CHANGED = "it changed nothing, so there is nothing to roll back"


class RunConflict(PinnerError):
    code = "run_conflict"

    def __init__(self, run: str, state: str, expected: str) -> None:
        super().__init__(f"run {run} is {state}: {expected}", run=run, state=state, expected=expected)


class PolicyConflict(PinnerError):
    """The policy would undo the requested change at once."""

    code = "policy_conflict"

    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"host {host}: its policy is enforced and would undo {what}; "
            "first delete the policy, or set its mode to propose or observe",
            host=host,
            what=what,
        )


class PreconditionFailed(PinnerError):
    """Another caller changed the object meanwhile. ``expected``: the caller's revisions; empty: none."""

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
    """An action of pinner (``ours``) would use ``cpus`` of Nova (``theirs``)."""

    code = "nova_conflict"

    def __init__(self, ours: str, theirs: str, cpus: object) -> None:
        super().__init__(f"{ours}: in conflict with {theirs} (CPUs {cpus})", ours=ours, theirs=theirs, cpus=str(cpus))


class ApplyFailed(PinnerError):
    """A change failed. Earlier changes of the run are undone, or listed."""

    code = "apply_failed"

    def __init__(self, target: str, why: str, **details: Any) -> None:
        super().__init__(f"{target}: {why}", target=target, why=why, **details)


class Busy(PinnerError):
    """A guest or its libvirt did not answer in time, or has another job. ``overdue``: made, with unknown outcome."""

    code = "busy"

    def __init__(self, target: str, why: str, *, overdue: bool) -> None:
        super().__init__(f"{target}: {why}; try again later", target=target, why=why, overdue=overdue)


class Overloaded(PinnerError):
    """``retry_after`` is in seconds."""

    code = "overloaded"

    def __init__(self, why: str, retry_after: int) -> None:
        super().__init__(f"{why}, which is the limit; try again later", retry_after=retry_after)


class Gone(PinnerError):
    code = "gone"

    def __init__(self, target: str) -> None:
        super().__init__(f"{target} is gone", target=target)


class HostUnreachable(PinnerError):
    code = "host_unreachable"

    def __init__(self, host: str, why: str, **details: Any) -> None:
        super().__init__(f"host {host}: {why}", host=host, why=why, **details)


class Unanswered(HostUnreachable):
    """The agent ended, or was silent for ``seconds``: it may have done all of the request, a part, or nothing."""


class NotPermitted(PinnerError):
    code = "not_permitted"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}", what=what, why=why)


class StoreUnavailable(PinnerError):
    code = "store_unavailable"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"database {where}: {why}", where=where, why=why)


def document(error: PinnerError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "details": dict(error.details)}


def revive(code: str, message: str, details: Mapping[str, Any]) -> PinnerError:
    """The error that a peer sent; PinnerError where no class has its code."""
    kinds = {kind.code: kind for kind in PinnerError.__subclasses__()}
    kind = kinds.get(code, PinnerError)
    error = kind.__new__(kind)
    PinnerError.__init__(error, message, **details)
    return error
