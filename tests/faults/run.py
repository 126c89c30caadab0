"""Runs random scenarios against a real host until the time is up; the same seed gives the same scenarios.

Run ``python tests/faults/run.py --seed 7 --minutes 10`` as root (make test-faults SEED=7 MINUTES=10). Guests and
daemons start and end, plans are applied and rolled back, policies change, other programs move threads, and pinner,
libvirtd and QEMUs are killed. After each step the host is checked. A failing scenario is reported with the fewest
steps that still fail.
"""

import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import randrange

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
from faults.scenarios import STEPS, Outcome, Step, draw, run_scenario, shortest
from support.real_guests import ONLINE

TRIES = 2
"""How often a shorter scenario runs before it counts as passed: the timing of threads and kills differs each time."""
SHORTEN_MINUTES = 5.0


def main() -> int:
    """Run scenarios; returns 0 if every one passed."""
    arguments = _parse_arguments()
    if ONLINE != [0, 1] or private_libvirt.missing():
        print(f"not run: {private_libvirt.missing() or 'it needs CPUs 0 and 1 and no other'}", file=sys.stderr)
        return 0
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pinner-faults-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        with private_libvirt.private_libvirtd(Path(name) / "d") as uri:
            if arguments.scenario is not None:
                return _run_one(uri, arguments)
            ends = time.monotonic() + 60 * arguments.minutes
            for scenario in count():
                steps = draw(arguments.seed, scenario)
                outcome = run_scenario(uri, steps, recover=_recover(scenario), ends=ends)
                counts += outcome.counts + Counter(scenarios=1, steps=outcome.steps_run)
                if outcome.kind:
                    _report_failure(uri, arguments.seed, scenario, steps[: outcome.steps_run], outcome)
                    return 1
                print(f"seed {arguments.seed}, scenario {scenario}: {outcome.steps_run} steps, passed", flush=True)
                if time.monotonic() > ends:
                    break
    print(f"seed {arguments.seed}: {', '.join(f'{number} {what}' for what, number in sorted(counts.items()))}")
    return 0


def _parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one each time, which is printed")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--scenario", type=int, help="run only this scenario of the seed")
    parser.add_argument("--steps", help="run only these steps of that scenario, by number: 3,7,8")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = randrange(1_000_000)
    return arguments


def _recover(scenario: int) -> str:
    return "forward" if scenario % 2 else "back"


def _run_one(uri: str, arguments: Namespace) -> int:
    numbers = list(map(int, arguments.steps.split(","))) if arguments.steps else list(range(STEPS))
    steps = draw(arguments.seed, arguments.scenario)
    outcome = run_scenario(
        uri, [steps[number] for number in numbers], recover=_recover(arguments.scenario), before_step=print
    )
    print(f"{outcome.kind or 'passed'} after {outcome.steps_run} steps\n{outcome.what}\n{outcome.log}")
    return bool(outcome.kind)


def _report_failure(uri: str, seed: int, scenario: int, steps: Sequence[Step], outcome: Outcome) -> None:
    print(
        f"seed {seed}, scenario {scenario} fails at step {outcome.steps_run - 1}: {outcome.what}\n{outcome.log}",
        flush=True,
    )
    ends = time.monotonic() + 60 * SHORTEN_MINUTES

    def fails(numbers: Sequence[int]) -> bool:
        for _ in range(TRIES if time.monotonic() < ends else 0):
            again = run_scenario(uri, [steps[number] for number in numbers], recover=_recover(scenario))
            if again.kind == outcome.kind:
                return True
        return False

    numbers = shortest(range(len(steps)), fails)
    shorter = len(numbers) < len(steps)
    print("The shortest scenario that fails this way:" if shorter else "It did not fail again with fewer steps:")
    for number in numbers:
        print(f"{number:>4}  {steps[number]}")
    listed = ",".join(map(str, numbers))
    print(f"To run it again: make test-faults SEED={seed} ARGS='--scenario {scenario} --steps {listed}'")


if __name__ == "__main__":
    sys.exit(main())
