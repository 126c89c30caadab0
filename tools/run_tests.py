"""Runs the tests in parts: `make test` (the fast set), `make test-all`, a slice of the slow tests.

Each part is one run of pytest. A failure in one part keeps no other part from running; the last lines say which failed.
The functional tests run in workers with processes, mounts and a network of their own, where the machine allows it.
Those that need the machine's own mostly wait: they run beside the unit tests.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
    is_beside: bool = False
    """Whether it runs beside the next part, which prints while it works; this one prints at its end."""


@dataclass(frozen=True)
class End:
    """How a part ended; ``seconds`` is the time that it took."""

    part: Part
    passed: bool
    seconds: float

    def __str__(self) -> str:
        return f"{self.part.name}: {'passed' if self.passed else 'FAILED'}, {self.seconds:.0f} s"


def parts(common: Sequence[str], *, is_isolated: bool) -> Iterator[Part]:
    """The parts of a run; ``common`` are arguments of each, ``is_isolated`` says whether workers can be isolated."""
    if is_isolated:
        own = ("tests/functional", "-m", "machine", *common)
        yield Part("functional, in the machine's namespaces", own, is_beside=True)
    yield Part("unit", ("tests/unit", "-n", str(WORKERS), "--dist", "worksteal", *common))
    if is_isolated:
        worker = f"popen//python={_ISOLATED}"
        yield Part(
            "functional",
            ("tests/functional", "-m", "not machine", "--tx", f"{WORKERS}*{worker}", "--dist", "loadscope", *common),
        )
    else:
        yield Part("functional", ("tests/functional", *common))


def run(part: Part) -> End:
    """Run a part."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", *part.arguments]
    with tempfile.TemporaryFile() as kept:
        if not part.is_beside:
            print(f"== {part.name}", flush=True)
        done = subprocess.run(command, check=False, stdout=kept if part.is_beside else None, stderr=subprocess.STDOUT)
        if part.is_beside:
            kept.seek(0)
            print(f"== {part.name}", flush=True)
            shutil.copyfileobj(kept, sys.stdout.buffer)
    return End(part, done.returncode in (0, _NO_TESTS), time.monotonic() - began)


def run_all(parts: Iterable[Part]) -> list[End]:
    """Run the parts, each that is ``is_beside`` beside the next one."""
    ended: list[Future[End]] = []
    with ThreadPoolExecutor() as beside:
        for part in parts:
            ended.append(beside.submit(run, part))
            if not part.is_beside:
                wait(ended)
    return [each.result() for each in ended]


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
    ended = run_all(parts(common, is_isolated=is_isolated))
    print(*ended, sep="\n")
    return int(not all(end.passed for end in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
