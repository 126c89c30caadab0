"""Runs the tests in parts: `make test` (the fast set), `make test-all`, a slice of the slow tests.

Each part is one run of pytest. A failure in one part keeps no other part from running; the last lines say which failed.
The functional tests run in workers with processes, mounts and a network of their own, where the machine allows it.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import demo_linux
import rights

WORKERS = 3
"""For two CPUs: the tests of a worker wait for libvirt and QEMU while those of the others compute."""
_NO_TESTS = 5
"""pytest's status where no test was selected."""
_ISOLATED = Path(__file__).parents[1] / "tests/isolated_python"


@dataclass(frozen=True)
class Part:
    """A run of pytest."""

    name: str
    arguments: tuple[str, ...]


def parts(common: Sequence[str], *, is_isolated: bool) -> Iterator[Part]:
    """The parts of a run; ``common`` are arguments of each, ``is_isolated`` says whether workers can be isolated."""
    yield Part("unit", ("tests/unit", "-n", str(WORKERS), "--dist", "worksteal", *common))
    if is_isolated:
        worker = f"popen//python={_ISOLATED}"
        yield Part(
            "functional",
            ("tests/functional", "-m", "not machine", "--tx", f"{WORKERS}*{worker}", "--dist", "loadscope", *common),
        )
        yield Part("functional, in the machine's namespaces", ("tests/functional", "-m", "machine", *common))
    else:
        yield Part("functional", ("tests/functional", *common))


def run(part: Part) -> bool:
    """Run a part; whether no test failed."""
    print(f"== {part.name}", flush=True)
    command = [sys.executable, "-m", "pytest", *part.arguments]
    return subprocess.run(command, check=False).returncode in (0, _NO_TESTS)


def prepare() -> None:
    """Download what the guests of the functional tests boot: the workers have no way to other machines."""
    try:
        demo_linux.parts()
    except demo_linux.NoLinux as error:
        print(f"tests that boot Linux in a guest will fail: {error}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run all parts; the status is 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [ARGUMENTS OF PYTEST]")
    _, common = parser.parse_known_args(arguments)
    is_isolated = not rights.lacking("root", "mounts", "pid_namespaces", "network_namespaces")
    prepare()
    ended = []
    for part in parts(common, is_isolated=is_isolated):
        began = time.monotonic()
        passed = run(part)
        ended.append((passed, f"{part.name}: {'passed' if passed else 'FAILED'}, {time.monotonic() - began:.0f} s"))
    print("\n".join(line for _, line in ended))
    return int(not all(passed for passed, _ in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
