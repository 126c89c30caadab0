"""How a run finds a setting inside a guest again, reads it and sets it."""

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from pinner.host.settings.inside.agent import Agents, GuestAgent, NoSuchFile
from pinner.host.settings.inside.guests import BOOT, NET, UUID, Question, agent_of, interfaces_of
from pinner.host.settings.row import Access, HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.states import GuestCpus, State

S = TypeVar("S", bound=State)
_EXPECTED = "the UUID and the boot of a guest, and the name of a setting inside it"


def row(
    question: Question,
    file: Callable[[Agents | None, Target], tuple[GuestAgent, str]],
    read: Callable[[GuestAgent, str], S],
    content: Callable[[S], str] = str,
) -> HostRow[S]:
    """``file`` is where the setting lies; ``content`` is what is written there."""

    def state(access: Access, target: Target) -> S:
        agent, path = file(access.agents, target)
        try:
            return read(agent, path)
        except NoSuchFile:
            raise Gone(str(target)) from None

    def set_state(access: Access, target: Target, wanted: S) -> None:
        agent, path = file(access.agents, target)
        agent.write(path, f"{content(wanted)}\n")
        if (now := read(agent, path)) != wanted:
            requested, says = (str(each) or "none" for each in (wanted, now))
            noun = "vCPUs " if isinstance(wanted, GuestCpus) else ""
            raise ApplyFailed(str(target), f"asked for {noun}{requested}, the guest says {says}", granted=says)

    return HostRow(state, set_state, inside=question)


def conversation(agents: Agents | None, target: Target, *rules: re.Pattern[str]) -> tuple[GuestAgent, list[str]]:
    """With the words of the target's owner that follow the guest's UUID and boot. Raises Invalid, ApplyFailed, Busy;
    Gone also where the guest has restarted."""
    words, rules = target.owner.split(" "), (UUID, UUID, *rules)
    if len(words) != len(rules) or not all(rule.fullmatch(word) for rule, word in zip(rules, words, strict=True)):
        raise Invalid(target.kind, str(target)[:80], _EXPECTED)
    agent = agent_of(agents, words[0], str(target))
    if agent.matching(UUID, BOOT) != words[1]:
        raise Gone(str(target))
    return agent, words[2:]


def name_now(agent: GuestAgent, target: Target, interface: str, index: str) -> str:
    """Of a card, by its ifindex. Raises Gone where it has left the guest."""
    for name in chain([interface], (name for name, _ in interfaces_of(agent))):
        with suppress(NoSuchFile):
            if agent.number(f"{NET}/{name}/ifindex") == int(index):
                return name
    raise Gone(str(target))
