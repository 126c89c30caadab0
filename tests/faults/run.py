"""Plays random stories against a real host, the same for the same seed, until the time is up.

Run ``python tests/faults/run.py --seed 7 --minutes 10`` as root (make test-faults SEED=7 MINUTES=10). Guests and
daemons come and go, plans are applied and taken back, policies change, others meddle, and pinner, libvirtd and QEMUs
are killed. After each step the host is audited. A story that fails is told in the fewest steps that still fail.
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

# ruff: noqa: E402 - what follows is found through the path above
import private_libvirt
from faults.scenarios import STEPS, Outcome, Step, draw, play, shortest
from support.real_guests import ONLINE

TRIES = 2
"""How often a shorter story is played before it counts as sound: threads and kills meet otherwise each time."""
SHORTEN_MINUTES = 5.0


def main() -> int:
    """0: every story was sound."""
    asked = _asked()
    if ONLINE != [0, 1] or private_libvirt.missing():
        print(f"not played: {private_libvirt.missing() or 'it needs CPUs 0 and 1 and no other'}", file=sys.stderr)
        return 0
    told: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pinner-faults-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        with private_libvirt.private_libvirtd(Path(name) / "d") as uri:
            if asked.story is not None:
                return _once(uri, asked)
            ends = time.monotonic() + 60 * asked.minutes
            for story in count():
                steps = draw(asked.seed, story)
                outcome = play(uri, steps, recover=_recover(story), ends=ends)
                told += outcome.told + Counter(stories=1, steps=outcome.played)
                if outcome.kind:
                    _tell(uri, asked.seed, story, steps[: outcome.played], outcome)
                    return 1
                print(f"seed {asked.seed}, story {story}: {outcome.played} steps, sound", flush=True)
                if time.monotonic() > ends:
                    break
    print(f"seed {asked.seed}: {', '.join(f'{number} {what}' for what, number in sorted(told.items()))}")
    return 0


def _asked() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--story", type=int, help="play this one story of the seed alone")
    parser.add_argument("--steps", help="of that story these steps alone, by number: 3,7,8")
    asked = parser.parse_args()
    if asked.seed is None:
        asked.seed = randrange(1_000_000)
    return asked


def _recover(story: int) -> str:
    return "forward" if story % 2 else "back"


def _once(uri: str, asked: Namespace) -> int:
    numbers = list(map(int, asked.steps.split(","))) if asked.steps else list(range(STEPS))
    steps = draw(asked.seed, asked.story)
    outcome = play(uri, [steps[number] for number in numbers], recover=_recover(asked.story), tell=print)
    print(f"{outcome.kind or 'sound'} after {outcome.played} steps\n{outcome.what}\n{outcome.log}")
    return bool(outcome.kind)


def _tell(uri: str, seed: int, story: int, steps: Sequence[Step], outcome: Outcome) -> None:
    print(f"seed {seed}, story {story} fails at step {outcome.played - 1}: {outcome.what}\n{outcome.log}", flush=True)
    ends = time.monotonic() + 60 * SHORTEN_MINUTES

    def fails(numbers: Sequence[int]) -> bool:
        for _ in range(TRIES if time.monotonic() < ends else 0):
            again = play(uri, [steps[number] for number in numbers], recover=_recover(story))
            if again.kind == outcome.kind:
                return True
        return False

    numbers = shortest(range(len(steps)), fails)
    again = len(numbers) < len(steps)
    print("The shortest story that fails so:" if again else "It did not fail again with fewer steps than these:")
    for number in numbers:
        print(f"{number:>4}  {steps[number]}")
    listed = ",".join(map(str, numbers))
    print(f"Again: make test-faults SEED={seed} ARGS='--story {story} --steps {listed}'")


if __name__ == "__main__":
    sys.exit(main())
