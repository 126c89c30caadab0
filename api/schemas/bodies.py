"""The schemas of small request bodies, of guests' events and of an anchor."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from pinner.api.schemas.inputs import Input, Name, Seconds, ShortText, Timestamp, Whole
from pinner.model.cpuset import MAX_LENGTH, CpuSet
from pinner.model.event import GuestEvent, GuestEventKind
from pinner.model.guest.guest import NovaIdentity
from pinner.model.outcome.outcome import DEFAULT_SECONDS as DEFAULT_WINDOW
from pinner.model.outcome.outcome import (
    DEFAULT_WINDOWS,
    MAX_PLANS,
    MAX_WINDOWS,
    MIN_WINDOWS,
    TOURNAMENT_WINDOWS,
    ProbeOptions,
)
from pinner.model.outcome.outcome import MAX_SECONDS as MAX_WINDOW
from pinner.model.outcome.outcome import MIN_SECONDS as MIN_WINDOW
from pinner.model.run.agent_audit import Anchor, SignedHead
from pinner.model.run.audit import Caller
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS as DEFAULT_SECONDS
from pinner.model.run.journal import MAX_WATCH_SECONDS as MAX_SECONDS
from pinner.model.run.journal import MIN_WATCH_SECONDS as MIN_SECONDS
from pinner.model.run.journal import WATCH_FOLD as FOLD
from pinner.model.run.journal import ApplyOptions


class NewSnapshot(Input):
    """The duration of the CPU use measurement; the default is configured."""

    sample_seconds: Seconds | None = None
    """Seconds over which CPU use is measured; 0: it is not measured. Default: [host] sample_seconds."""


class NewExclusion(Input):
    """Whether pinner must not change the guest's CPUs."""

    excluded: bool = True
    """true: exclude the guest; false: include it again."""


class NewApply(Input):
    """The options of an apply."""

    persist: bool = False
    """Also write the pins into the guests' persistent definitions."""
    migrate_memory: bool = False
    """Also move each guest's memory to the NUMA node that the plan gives to its vCPUs."""
    all_or_nothing: bool = False
    """true: if a change fails, undo all changes; false: undo those of its guest or process."""
    watch_seconds: Annotated[
        Annotated[int, Field(ge=MIN_SECONDS, le=MAX_SECONDS), Whole] | None,
        Field(
            description="How long the server watches run delay and drops after the run; null: not at all. A measure is "
            f"watched if it is known before the run for {FOLD} times as long."
        ),
    ] = None
    undo_if_worse: Annotated[
        bool,
        Field(
            description="Roll the run back if a measure becomes worse within `watch_seconds` "
            f"({DEFAULT_SECONDS} if null). Refused while no measure is known for long enough."
        ),
    ] = False

    allow_worse: bool = False
    """Also apply a plan that makes the objective worse (`worse` of the plan says so). Else such a plan is refused."""

    def options(self) -> ApplyOptions:
        return ApplyOptions(**self.model_dump() | {"watch_seconds": self.watch_seconds or 0})


class NewProbe(Input):
    """The windows of a probe, and the plans to rank with its plan."""

    windows: Annotated[
        Annotated[int, Field(ge=MIN_WINDOWS, le=MAX_WINDOWS), Whole] | None,
        Field(
            description="The number of windows of each placement, even with rivals. Four measures need five at least, "
            f"or ten with rivals. Null: {DEFAULT_WINDOWS}, or {TOURNAMENT_WINDOWS} with rivals."
        ),
    ] = None
    seconds: Annotated[int, Field(ge=MIN_WINDOW, le=MAX_WINDOW), Whole] = DEFAULT_WINDOW
    rivals: Annotated[tuple[Name, ...], Field(max_length=MAX_PLANS - 1)] = ()
    keep: bool = False

    def options(self) -> ProbeOptions:
        windows = self.windows or (TOURNAMENT_WINDOWS if self.rivals else DEFAULT_WINDOWS)
        return ProbeOptions(windows, self.seconds, self.rivals, self.keep)


class NewRollback(Input):
    """A rollback has no options."""


MAX_HEADS = 16
"""The most heads of an anchor; they fit into the largest request body."""
_Number = Annotated[int, Field(ge=0, lt=2**53), Whole]
"""A signature expresses no larger one (RFC 8785)."""
_Hash = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
_HostName = Annotated[str, Field(max_length=255)]
_Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=]{0,88}$")]


class SignedHeadInput(Input):
    """The signed head of an agent's audit trail, from `GET /v1/audit/anchor`."""

    host: _HostName
    seq: _Number
    hash: _Hash
    centre_seq: _Number
    centre_hash: _Hash
    at: Annotated[str, Field(max_length=40)]
    key: _Base64
    signature: _Base64


class AnchorInput(Input):
    """An anchor from `GET /v1/audit/anchor`."""

    version: Annotated[int, Field(ge=1, le=1), Whole]
    heads: Annotated[tuple[SignedHeadInput, ...], Field(min_length=1, max_length=MAX_HEADS)]

    def value(self) -> Anchor:
        return Anchor(self.version, tuple(SignedHead(**head.model_dump()) for head in self.heads))


UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
MAX_SPECS = 128
"""The most extra specs of an event."""


class NewIdentity(Input):
    """An instance, as Nova describes it."""

    instance: ShortText = ""
    project: ShortText = ""
    user: ShortText = ""
    flavor: ShortText = ""
    flavor_id: ShortText = ""
    extra_specs: Annotated[dict[ShortText, ShortText], Field(default_factory=dict, max_length=MAX_SPECS)]
    has_specs: bool = False


class NewEvent(Input):
    """An event of a guest."""

    host: Name | None = None
    """The guest's host. It may be left out if the server has a single host."""
    guest: Annotated[str, Field(pattern=UUID)]
    event: ShortText
    source: ShortText = ""
    """The source of the event, for the audit trail. By default the request's actor."""
    at: Timestamp | None = None
    """The time of the event by the clock of its publisher. By default the current time. An event that is late, older
    than a day, or more than a minute ahead changes nothing that pinner knows."""
    publisher: ShortText = ""
    request: ShortText = ""
    nova: NewIdentity | None = None
    """The instance, if Nova reported the event."""

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        nova = NovaIdentity(**self.nova.model_dump()) if self.nova else None
        at = self.at or datetime.now(UTC)
        source, guest = self.source or caller.actor, self.guest.lower()
        return GuestEvent(guest, kind, self.event, source, at, nova, publisher=self.publisher, request=self.request)


class NewLeavingEvent(NewEvent):
    """An event of a guest that is about to be migrated to another host."""

    cpus: Annotated[str, Field(max_length=MAX_LENGTH, json_schema_extra={"format": "cpu-ids"})] = ""

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        """Raises Invalid."""
        return replace(super().to_event(kind, caller), cpus=CpuSet.parse(self.cpus, "cpus"))
