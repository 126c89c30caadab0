"""The schemas of guests' events."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from pinner.api.schemas.base import Input
from pinner.api.schemas.field_types import Name, ShortText, Timestamp
from pinner.model.cpuset import MAX_LENGTH, CpuSet
from pinner.model.guest.guest import NovaIdentity
from pinner.model.policy.event import GuestEvent, GuestEventKind
from pinner.model.run.audit import Caller

UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
MAX_SPECS = 128
"""The most extra specs that an event may carry."""


class NewIdentity(Input):
    """An instance, as Nova describes it."""

    instance: Annotated[ShortText, Field(description="The name of the instance.")] = ""
    project: Annotated[ShortText, Field(description="The name of the project.")] = ""
    user: Annotated[ShortText, Field(description="The name of the user.")] = ""
    flavor: Annotated[ShortText, Field(description="The name of the flavor.")] = ""
    flavor_id: Annotated[ShortText, Field(description="The id of the flavor, Nova's flavorid.")] = ""
    extra_specs: Annotated[
        dict[ShortText, ShortText],
        Field(default_factory=dict, max_length=MAX_SPECS, description="The extra specs of the flavor."),
    ]
    has_specs: Annotated[
        bool, Field(description="Whether extra_specs is the flavor's whole list, also where it is empty.")
    ] = False


class NewEvent(Input):
    """An event of a guest."""

    host: Annotated[
        Name | None, Field(description="The guest's host. It may be left out if the server has a single host.")
    ] = None
    guest: Annotated[str, Field(pattern=UUID, description="The guest's UUID.")]
    event: Annotated[ShortText, Field(description="The event as its source names it, such as instance.reboot.end.")]
    source: Annotated[
        ShortText, Field(description="The source of the event, for the audit trail. By default the request's actor.")
    ] = ""
    at: Annotated[
        Timestamp | None,
        Field(
            description="The time of the event by the clock of its publisher. By default the current time. An event "
            "that is late, older than a day, or more than a minute ahead changes nothing that pinner knows."
        ),
    ] = None
    publisher: Annotated[
        ShortText,
        Field(description="The host whose clock the time is from. Times of two publishers are not compared."),
    ] = ""
    request: Annotated[ShortText, Field(description="Nova's request id, which all events of one operation share.")] = ""
    nova: Annotated[NewIdentity | None, Field(description="The instance, if Nova reported the event.")] = None

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        """The event for the service."""
        nova = NovaIdentity(**self.nova.model_dump()) if self.nova else None
        at = self.at or datetime.now(UTC)
        source, guest = self.source or caller.actor, self.guest.lower()
        return GuestEvent(guest, kind, self.event, source, at, nova, publisher=self.publisher, request=self.request)


class NewLeavingEvent(NewEvent):
    """An event of a guest that is about to be migrated to another host."""

    cpus: Annotated[
        str,
        Field(
            max_length=MAX_LENGTH,
            json_schema_extra={"format": "cpu-ids"},
            description="The CPUs of the destination, if they are known.",
        ),
    ] = ""

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        """The event for the service. Raises Invalid."""
        return replace(super().to_event(kind, caller), cpus=CpuSet.parse(self.cpus, "cpus"))
