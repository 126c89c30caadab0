"""The figures of the demo, before and after the apply, and what they allow to say. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from demo.traffic import Load

_SAME_LOAD = 0.1
"""The part by which the packets of the two windows may differ."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was measured in one window of time."""

    load: Load | None
    """Empty where no guest has a tap."""
    received: int
    """Packets that the Linux guest itself has counted."""
    delays: Mapping[tuple[str, str], float]
    """By guest and role, the milliseconds per second that its threads were ready to run and waited for a CPU."""

    def delay(self, guest: str) -> float:
        """The run delay of all threads of the guest."""
        return sum(delay for (name, _), delay in self.delays.items() if name == guest)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure in both windows, rounded as it is printed. Less is better."""

    name: str
    unit: str
    before: float
    after: float

    def __str__(self) -> str:
        places = 1 if self.unit == "ms" else 0
        word = "less" if self.after < self.before else "more" if self.after > self.before else "the same"
        return f"   {self.name:<44}{self.before:10,.{places}f}{self.after:10,.{places}f}  {self.unit:<8} {word}"


def figures(before: Window, after: Window) -> list[Figure]:
    """Everything that pinner's plan is to make less."""
    guests = list(dict.fromkeys(name for name, _ in before.delays))
    delays = [
        Figure(f"run delay of {name}", "ms/s", round(before.delay(name)), round(after.delay(name))) for name in guests
    ]
    first, second = before.load, after.load
    if not (first and second):
        return delays
    return [
        Figure("packets that the tap dropped", "packets", first.drops, second.drops),
        Figure("pings without an answer", "pings", first.pings_lost, second.pings_lost),
        Figure("worst ping", "ms", round(first.worst_ping_ms, 1), round(second.worst_ping_ms, 1)),
        *delays,
    ]


def summary(window: Window) -> str:
    """What hurts the guests, in one or two lines."""
    waiting = sum(window.delays.values())
    delay = f"the guests' threads waited {waiting:,.0f} ms in each second for a CPU"
    if not (load := window.load):
        return delay
    return (
        f"{load.drops:,} of {load.packets + load.drops:,} packets were dropped, {load.pings_lost} of {load.pings} "
        f"pings had no answer,\nthe worst ping took {load.worst_ping_ms:.1f} ms; {delay}"
    )


def table(before: Window, after: Window, *, every: bool = True) -> Iterator[str]:
    """Both windows, line by line; ``every``: also each role's delay and the packets that were not dropped."""
    yield f"   {'':<44}{'before':>10}{'after':>10}"
    if every:
        for role in before.delays:
            yield f"   {f'waiting: {role[0]} {role[1]}':<44}{before.delays[role]:10.2f}{after.delays[role]:10.2f}  ms/s"
        yield ""
    if every and before.load and after.load:
        for name, first, second in (
            ("packets that were sent to the tap", before.load.offered, after.load.offered),
            ("packets that the guest took from the tap", before.load.taken, after.load.taken),
        ):
            yield f"   {name:<44}{first:10,.0f}{second:10,.0f}  a second"
        yield f"   {'packets that the guest itself counted':<44}{before.received:10,}{after.received:10,}  packets"
    yield from map(str, figures(before, after))


def verdict(before: Window, after: Window) -> str:
    """One sentence. It names what became worse, and nothing that became better beside it."""
    if before.load and after.load and (why := _different(before.load, after.load)):
        return f"Observed, not tested: no verdict, because {why}."
    found = figures(before, after)
    if worse := [figure.name for figure in found if figure.after > figure.before]:
        return f"Observed, not tested: after the plan there is MORE of: {', '.join(worse)}."
    if better := [figure.name for figure in found if figure.after < figure.before]:
        return f"Observed, not tested: after the plan there is less of: {', '.join(better)}; no figure became worse."
    return "Observed, not tested: no figure changed."


def _different(before: Load, after: Load) -> str:
    """Why the two loads cannot be compared; empty if they can."""
    if not before.packets or not after.packets:
        return "the guest received no packets in one of the windows"
    if abs(after.offered - before.offered) > _SAME_LOAD * before.offered:
        return f"{before.offered:,.0f} packets a second were sent before and {after.offered:,.0f} after"
    return ""
