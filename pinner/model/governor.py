"""The state of CPUs that have a frequency governor."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Governor:
    """A frequency governor of the kernel, by its name."""

    name: str
    """The name, such as powersave."""

    def __str__(self) -> str:
        return self.name
