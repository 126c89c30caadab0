"""Runs random scenarios against a real host; the same seed gives the same scenarios.

Run ``python tests/faults/run.py`` as root (make test-faults). Without a seed the command draws some, prints them, and
runs the scenarios of each until its minutes are up; a seed that fails is never replaced. ``--seed 7`` runs the
scenarios of that seed alone. Guests and daemons start and end, plans are applied and rolled back, policies change,
other programs move threads, guests hang, processes resist and fork, the clock steps, and pinner, libvirtd and QEMUs are
killed. After each step the host is checked. A failing scenario is reported with the fewest steps that still fail.
"""

import sys
import tempfile
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import sample

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
from faults.scenarios import STEPS, Outcome, Step, draw, run_scenario, shortest
from support.guests.real_guests import ONLINE

TRIES = 2
"""How often a shorter scenario runs before it counts as passed: the timing of threads and kills differs each time."""
SHORTEN_MINUTES = 5.0


def main() -> int:
    """Run the scenarios of all seeds; returns 0 if every one passed."""
    arguments = _parse_arguments()
    if ONLINE != [0, 1] or private_libvirt.missing():
        print(f"not run: {private_libvirt.missing() or 'it needs CPUs 0 and 1 and no other'}", file=sys.stderr)
        return 0
    seeds = [arguments.seed] if arguments.seed is not None else sample(range(1_000_000), arguments.seeds)
    print(f"seeds: {' '.join(map(str, seeds))}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pinner-faults-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        with private_libvirt.private_libvirtd(Path(name) / "d") as uri:
            if arguments.scenario is not None:
                return _run_one(uri, arguments)
            results = {seed: _run_seed(uri, seed, arguments.minutes) for seed in seeds}
    print("\n".join(f"seed {seed}: {result}" for seed, (_, result) in results.items()))
    failed = [seed for seed, (passed, _) in results.items() if not passed]
    print(f"{len(seeds) - len(failed)} of {len(seeds)} seeds passed{f'; failed: {failed}' if failed else ''}")
    return bool(failed)


def _run_seed(uri: str, seed: int, minutes: float) -> tuple[bool, str]:
    """Run the scenarios of a seed until the minutes are up or one fails; whether all passed, and a summary."""
    counts: Counter[str] = Counter()
    ends = time.monotonic() + 60 * minutes
    for scenario in count():
        steps = draw(seed, scenario)
        outcome = run_scenario(uri, steps, recover=_recover(scenario), ends=ends)
        counts += outcome.counts + Counter(scenarios=1, steps=outcome.steps_run)
        if outcome.kind:
            _report_failure(uri, seed, scenario, steps[: outcome.steps_run], outcome)
            return False, f"FAILED in scenario {scenario}: {outcome.kind} after {steps[outcome.steps_run - 1]}"
        print(f"seed {seed}, scenario {scenario}: {outcome.steps_run} steps, passed", flush=True)
        if time.monotonic() > ends:
            break
    if not counts["steps"]:
        return False, f"NOT RUN: no step began within {minutes:g} minutes"
    return True, f"passed: {', '.join(f'{number} {what}' for what, number in sorted(counts.items()))}"


def _parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="run the scenarios of this seed alone")
    which.add_argument("--seeds", type=_positive, default=20, help="how many seeds to draw (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=5.0, help="the time of each seed (default: %(default)g)")
    parser.add_argument("--scenario", type=int, help="run only this scenario of the seed")
    parser.add_argument("--steps", type=_numbers, help="run only these steps of that scenario, by number: 3,7,8")
    arguments = parser.parse_args()
    if arguments.scenario is not None and arguments.seed is None:
        parser.error("--scenario needs --seed: a scenario belongs to a seed")
    if arguments.steps is not None and arguments.scenario is None:
        parser.error("--steps needs --scenario: the steps belong to a scenario")
    return arguments


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"not a number from 1: {text!r}")
    return int(text)


def _numbers(text: str) -> list[int]:
    found = text.split(",")
    if not all(each.isdecimal() and int(each) < STEPS for each in found):
        raise ArgumentTypeError(f"not numbers from 0 to {STEPS - 1}, separated by commas: {text!r}")
    return list(map(int, found))


def _recover(scenario: int) -> str:
    return "forward" if scenario % 2 else "back"


def _run_one(uri: str, arguments: Namespace) -> int:
    numbers = arguments.steps or list(range(STEPS))
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
