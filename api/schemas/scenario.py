"""The schema of a question about a host that is not so."""

from typing import Annotated

from pydantic import ConfigDict, Field

from pinner.api.schemas.base import Input
from pinner.api.schemas.field_types import Name, Names, Seconds, Whole
from pinner.api.schemas.plan import AskedRequest
from pinner.model.cpuset import MAX_CPUS, MAX_LENGTH, CpuSet
from pinner.model.questions.whatif import MAX_MEMORY_KIB, MAX_NEW_GUESTS, GuestShape, NewGuests, Scenario

_MOST = 64
"""The most shapes of new guests, and the most nodes, of one question."""


class NewShape(Input):
    """The size of a guest."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["page_kib"], "properties": {"page_kib": {"exclusiveMinimum": 0}}},
            "then": {"required": ["memory_kib"], "properties": {"memory_kib": {"exclusiveMinimum": 0}}},
        }
    )

    vcpus: Annotated[int, Field(ge=1, le=MAX_CPUS, description="The number of vCPUs."), Whole]
    memory_kib: Annotated[
        int, Field(ge=0, le=MAX_MEMORY_KIB, description="The memory; 0: memory does not count."), Whole
    ] = 0
    page_kib: Annotated[
        int,
        Field(
            ge=0, le=MAX_MEMORY_KIB, description="The size of its huge pages; 0: normal pages. Only with `memory_kib`."
        ),
        Whole,
    ] = 0


class AddedGuests(Input):
    """Guests of one shape that have just started."""

    shape: Annotated[NewShape, Field(description="The size of each guest.")]
    count: Annotated[int, Field(ge=1, le=MAX_NEW_GUESTS, description="The number of guests."), Whole] = 1
    strategy: Annotated[Name, Field(description="The strategy that their flavor asks for; empty: none.")] = ""

    def guests(self) -> NewGuests:
        """The guests as a value. Raises Invalid."""
        shape = GuestShape(self.shape.vcpus, self.shape.memory_kib, self.shape.page_kib)
        return NewGuests(shape, self.count, self.strategy)


class NewScenario(Input):
    """A request for a host, and the differences of the host of the question."""

    request: Annotated[
        AskedRequest, Field(default_factory=AskedRequest, description="The request for the host as it is.")
    ]
    then: Annotated[
        AskedRequest | None, Field(description="The request for the host of the question; null: the same.")
    ] = None
    add: Annotated[
        tuple[AddedGuests, ...], Field(max_length=_MOST, description="The guests that the host also has.")
    ] = ()
    remove: Annotated[Names, Field(description="Names or UUIDs of the guests that it does not have.")] = ()
    without_nodes: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MAX_CPUS), Whole], ...],
        Field(max_length=_MOST, description="The NUMA nodes that it does not have, with their CPUs and memory."),
    ] = ()
    without_cpus: Annotated[
        str,
        Field(
            max_length=MAX_LENGTH,
            json_schema_extra={"format": "cpu-ids"},
            description="The CPUs that are switched off, such as 0-3,8; empty: none.",
        ),
    ] = ""
    sample_seconds: Seconds = 0.0

    def scenario(self) -> Scenario:
        """The differences as a value. Raises Invalid."""
        return Scenario(
            tuple(each.guests() for each in self.add),
            self.remove,
            self.without_nodes,
            CpuSet.parse(self.without_cpus, "without_cpus"),
            None if self.then is None else self.then.request(),
        )
