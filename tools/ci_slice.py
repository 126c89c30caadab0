"""What CI runs for a commit beside `make test` and lint: `make ci-slice` prints it.

The number of the commit chooses: the system on which `make test` runs, one of four slices of the slow tests, one
topology of the lab. The slow tests of the files that recent commits touched run as well.
"""

import argparse
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

SYSTEMS = ("Debian 12", "Debian 13", "Debian 12 in a container")
TOPOLOGIES = ("two-socket", "isolated-boot", "interleaved", "lopsided")
SLICES = 4
RECENT = 4 * 60 * 60
"""Seconds before the commit."""
MOST_TOUCHED = 24
"""Commits that touch more test files than this change all of them alike. Their slow tests together take longer than CI
may: only the slice runs then, and whoever makes such a change runs `make test-all`."""


@dataclass(frozen=True)
class Choice:
    """What CI runs for one commit; ``commits`` are the recent ones, the newest first."""

    system: str
    slow_of: int
    topology: str
    touched: tuple[str, ...]
    commits: tuple[str, ...]


def choose(number: int, touched: Sequence[str], commits: Sequence[str]) -> Choice:
    """The choice for the commit with this number, counted from the first commit."""
    tests = sorted({path for path in touched if _is_test(path)})
    return Choice(
        SYSTEMS[number % len(SYSTEMS)],
        number % SLICES + 1,
        TOPOLOGIES[number // SLICES % len(TOPOLOGIES)],
        tuple(tests) if len(tests) <= MOST_TOUCHED else (),
        tuple(commits),
    )


def _is_test(path: str) -> bool:
    return path.startswith(("tests/unit/", "tests/functional/")) and path.rpartition("/")[2].startswith("test_")


def of_head() -> Choice:
    """The choice for HEAD. Raises subprocess.CalledProcessError where git cannot tell."""
    since = f"--since={int(_git('log', '-1', '--format=%ct')[0]) - RECENT}"
    touched = _git("log", since, "--format=", "--name-only", "--diff-filter=d")
    present = set(_git("ls-files"))
    return choose(
        int(_git("rev-list", "--count", "HEAD")[0]),
        [path for path in touched if path in present],
        _git("log", since, "--no-merges", "--format=%h %s"),
    )


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], check=True, stdout=subprocess.PIPE, text=True)
    return [line for line in done.stdout.splitlines() if line]


def main() -> None:
    """Print the choice for HEAD: as text, one value (for .ci/run), or the arguments of pytest for the slice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("system", "topology", "arguments", "commits"))
    choice, what = of_head(), parser.parse_args().what
    arguments = [f"--slow-of={choice.slow_of}/{SLICES}", *(f"--slow-also={path}" for path in choice.touched)]
    if what == "arguments":
        print(*arguments)
    elif what == "commits":
        print(*choice.commits, sep="\n")
    elif what:
        print(getattr(choice, what))
    else:
        print(f"make test on        {choice.system}")
        print(f"topology of the lab {choice.topology}")
        print(
            f"slow tests          slice {choice.slow_of} of {SLICES}, and those of files touched in the last 4 hours:"
        )
        print(*(f"                    {path}" for path in choice.touched), sep="\n")


if __name__ == "__main__":
    main()
