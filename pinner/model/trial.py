"""A trial: the probe of a kind of change that a policy has never tested on a host, and its verdict."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, assert_never

from pinner.model.change import Target
from pinner.model.outcome import Judgement
from pinner.model.request import Request

ChangeKind = Literal[
    "guests",
    "processes",
    "interrupts",
    "receive queues",
    "sysctls",
    "rings",
    "governors",
    "coalescing",
    "host",
]
"""What a plan changes: the CPUs of guests, of processes, of interrupts or of receive queues, sysctls, rings or
queues of cards, frequency governors, the coalescing of cards, or the host itself (partitions, work queues and CPU
weights)."""

KEEPING: tuple[Judgement, ...] = ("better", "no matter", "inconclusive")
"""The verdicts after which a policy makes such changes without a probe. After ``worse`` the policy no longer enforces;
if a person lets it enforce again, it probes again."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One kind of change under one request on a host, and the last probe that tested it."""

    host: str
    """The name of the host."""
    request: Request
    """The strategy with its parameters; without names, see ``without_names``."""
    kind: ChangeKind
    """What the probed plan changes."""
    probe: str
    """The id of the last probe."""
    attempts: int
    """How many probes were begun since the last verdict."""
    judgement: Judgement | None = None
    """The verdict; None: the probe has none, or it is not stored yet."""


def change_kind(target: Target) -> ChangeKind:
    """The kind of the changes of a target."""
    match target.kind:
        case "emulator" | "vcpu" | "iothread" | "vhost" | "memory" | "guest" | "metadata":
            return "guests"
        case "process":
            return "processes"
        case "irq" | "irqbalance":
            return "interrupts"
        case "rps" | "guest_rps":
            return "receive queues"
        case "sysctl":
            return "sysctls"
        case "ring" | "queues":
            return "rings"
        case "governor":
            return "governors"
        case "coalescing":
            return "coalescing"
        case "workqueue" | "partition" | "weight":
            return "host"
    assert_never(target.kind)


def without_names(request: Request) -> Request:
    """The request without the names of guests and processes: these say what is placed, and not how."""
    return replace(request, guests=(), processes=(), excluded_guests=(), excluded_processes=())


@dataclass(frozen=True, slots=True)
class Waiting:
    """The changes of a policy that wait for the verdict of a probe."""

    probe: str
    """The id of the probe; empty: none is under way."""
    until: datetime | None
    """The time before which no other probe begins, after one without a verdict; null: there is no such time."""
    changes: int
    """The number of the changes that wait."""
    why: str
    """Why they wait, in words."""
