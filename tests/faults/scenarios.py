"""Stories: drawn from a seed, played step by step with an audit after each, and made short when they fail."""

import inspect
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random

from faults.actions import Actions
from faults.audit import Audit
from faults.environment import Environment, Unsound

STEPS = 25
CHOICES: dict[str, tuple[object, ...]] = {
    "which": tuple(range(6)),
    "part": tuple(range(6)),
    "cpu": (0, 1),
    "alone": (True, False),
    "persist": (False, False, True),
    "strategy": ("shared-pool", "shared-pool", "numa-local", "isolated"),
    "housekeeping": ("auto", "0", "1"),
    "mode": ("observe", "propose", "enforce", "enforce"),
    "who": ("both", "agent", "api"),
    "milliseconds": (0, 5, 10, 20, 30, 50, 100, 300),
}
"""What an argument may be, by its name."""
RARE = {"a_guest_hangs_while_a_plan_is_applied"}
"""It takes seconds."""
OFTEN = {"a_guest_starts", "a_plan_is_applied", "the_last_run_is_taken_back", "pinner_is_killed_while_it_applies"}


@dataclass(frozen=True)
class Step:
    """One kind of Acts, and its arguments."""

    name: str
    arguments: dict[str, object]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.name.replace('_', ' ')}{f' ({given})' if given else ''}"


@dataclass
class Outcome:
    """How a story went; ``kind`` is empty where it was sound."""

    played: int = 0
    kind: str = ""
    what: str = ""
    log: str = ""
    told: Counter[str] = field(default_factory=Counter)


def draw(seed: int, story: int, steps: int = STEPS) -> list[Step]:
    """The same for the same numbers, whatever the host is like."""
    random = Random(f"{seed}/{story}")
    kinds = [(name, kind) for name, kind in vars(Actions).items() if not name.startswith("_")]
    weights = [1 if name in RARE else 6 if name in OFTEN else 3 for name, _ in kinds]
    drawn = []
    for name, kind in random.choices(kinds, weights, k=steps):
        wanted = [each for each in inspect.signature(kind).parameters if each != "self"]
        drawn.append(Step(name, {each: random.choice(CHOICES[each]) for each in wanted}))
    return drawn


def play(
    uri: str,
    steps: Sequence[Step],
    *,
    recover: str,
    ends: float = float("inf"),
    tell: Callable[[Step], object] = lambda _: None,
) -> Outcome:
    """Play the steps on a new stage, an audit after each; none is begun after ``ends`` (monotonic). ``tell`` hears of
    each step before it is played."""
    outcome = Outcome()
    with closing(Environment(uri, recover)) as stage:
        audit, acts = Audit(stage), Actions(stage, outcome.told)
        try:
            for step in steps:
                if time.monotonic() > ends:
                    break
                outcome.played += 1
                tell(step)
                if not getattr(acts, step.name)(**step.arguments):
                    outcome.told["idle"] += 1
                audit.check()
            audit.end(outcome.told)
            audit.check()
            stage.stop_pinner()
        except Exception as error:  # whatever it is, it is what the story is about
            outcome.kind = error.kind if isinstance(error, Unsound) else type(error).__name__
            outcome.what = str(error) or repr(error)
            outcome.log = stage.last_words()
    return outcome


def shortest(steps: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """The fewest of the steps that still fail, as far as leaving some out finds it (Zeller's ddmin)."""
    kept, parts = list(steps), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        rests = [kept[:at] + kept[at + size :] for at in range(0, len(kept), size)]
        if (rest := next(filter(fails, rests), None)) is not None:
            kept, parts = rest, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept
