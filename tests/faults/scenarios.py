"""Scenarios: drawn from a seed, run step by step with a check of the host after each, and shortened when they fail."""

import inspect
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random

from faults.actions import Actions
from faults.audit import Audit
from faults.disturbances import Disturbances
from faults.environment import Environment, Violation

STEPS = 25
CHOICES: dict[str, tuple[object, ...]] = {
    "which": tuple(range(6)),
    "part": tuple(range(6)),
    "cpu": (0, 1),
    "excluded": (True, False),
    "persist": (False, False, True),
    "strategy": ("shared-pool", "shared-pool", "numa-local", "isolated"),
    "housekeeping": ("auto", "0", "1"),
    "mode": ("observe", "propose", "enforce", "enforce"),
    "processes": ("both", "agent", "api"),
    "milliseconds": (0, 5, 10, 20, 30, 50, 100, 300),
    "hours": (-24, -1, 0, 1, 24),
}
"""The possible values of an argument, by its name."""
RARE = {
    "a_guest_hangs",
    "a_guest_hangs_during_an_apply",
    "a_plan_is_applied_while_a_process_resets_its_affinity",
    "a_process_resets_its_affinity",
    "a_second_service_starts",
    "idle_processes_claim_cpus",
    "the_clock_steps",
}
"""These steps take seconds."""
OFTEN = {"a_guest_starts", "a_plan_is_applied", "the_last_run_is_rolled_back", "pinner_is_killed_during_an_apply"}


@dataclass(frozen=True)
class Step:
    """The name of a method of Actions, and its arguments."""

    name: str
    arguments: dict[str, object]

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.name.replace('_', ' ')}{f' ({arguments})' if arguments else ''}"


@dataclass
class Outcome:
    """The result of a scenario; ``kind`` is empty where it passed."""

    steps_run: int = 0
    kind: str = ""
    what: str = ""
    log: str = ""
    counts: Counter[str] = field(default_factory=Counter)


def draw(seed: int, scenario: int, steps: int = STEPS) -> list[Step]:
    """The steps of a scenario, which depend only on the seed and the number of the scenario."""
    random = Random(f"{seed}/{scenario}")
    steps_of = {**vars(Disturbances), **vars(Actions)}
    kinds = [(name, kind) for name, kind in steps_of.items() if not name.startswith("_")]
    weights = [1 if name in RARE else 6 if name in OFTEN else 3 for name, _ in kinds]
    drawn = []
    for name, kind in random.choices(kinds, weights, k=steps):
        parameters = [parameter for parameter in inspect.signature(kind).parameters if parameter != "self"]
        drawn.append(Step(name, {parameter: random.choice(CHOICES[parameter]) for parameter in parameters}))
    return drawn


def run_scenario(
    uri: str,
    steps: Sequence[Step],
    *,
    recover: str,
    ends: float = float("inf"),
    before_step: Callable[[Step], object] = lambda _: None,
) -> Outcome:
    """Run the steps in a new environment and check the host after each.

    No step begins after ``ends`` (monotonic time). ``before_step`` is called with each step before it runs.
    """
    outcome = Outcome()
    with closing(Environment(uri, recover)) as environment:
        audit, actions = Audit(environment), Actions(environment, outcome.counts)
        try:
            for step in steps:
                if time.monotonic() > ends:
                    break
                outcome.steps_run += 1
                before_step(step)
                if not getattr(actions, step.name)(**step.arguments):
                    outcome.counts["idle"] += 1
                audit.check()
            audit.end(outcome.counts)
            audit.check()
            environment.stop_pinner()
        except Exception as error:  # every kind of error is a result of the scenario
            outcome.kind = error.kind if isinstance(error, Violation) else type(error).__name__
            outcome.what = str(error) or repr(error)
            outcome.log = environment.last_log_lines()
    return outcome


def shortest(steps: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """The shortest list of steps that still fails, as found by removing some at a time (Zeller's ddmin)."""
    failing, parts = list(steps), 2
    while len(failing) > 1:
        size = -(-len(failing) // parts)
        shorter = [failing[:at] + failing[at + size :] for at in range(0, len(failing), size)]
        if (found := next(filter(fails, shorter), None)) is not None:
            failing, parts = found, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(failing))
    return failing
