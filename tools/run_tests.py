"""Runs the tests in parts: `make test` (the fast set), `make test-all`, a slice of the slow tests.

Each part is one run of pytest. A failure in one part keeps no other part from running; the last lines say which failed.
The functional tests run in workers with processes, mounts and a network of their own, where the machine allows it.
They mostly wait, so the fast ones run beside the unit tests. Slow tests load or measure the machine: no other part runs
beside them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import rights
from demo import linux as demo_linux

WORKERS = 3
"""For two CPUs: the tests of a worker wait for libvirt and QEMU while those of the others compute."""
WORKERS_BESIDE = 2
"""Workers of the functional tests beside those of the unit tests."""
_WITH_SLOW = ("--all", "--slow-of")
_NO_TESTS = 5
"""pytest's status where no test was selected."""
_ISOLATED = Path(__file__).parents[1] / "tests/isolated_python"


@dataclass(frozen=True)
class Part:
    """A run of pytest."""

    name: str
    arguments: tuple[str, ...]
    is_beside: bool = False
    """Whether it runs beside the parts that are not, after the other parts that are. Its output follows at the end."""


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
    yield Part("unit", ("tests/unit", "-n", str(WORKERS), "--dist", "worksteal", *common))
    if not is_isolated:
        yield Part("functional", ("tests/functional", *common))
        return
    is_beside = not any(word.startswith(_WITH_SLOW) for word in common)
    # The machine's own come first: the guests of the other ones are processes of the machine, too.
    own = ("tests/functional", "-m", "machine", *common)
    yield Part("functional, in the machine's namespaces", own, is_beside)
    workers = f"{WORKERS_BESIDE if is_beside else WORKERS}*popen//python={_ISOLATED}"
    apart = ("tests/functional", "-m", "not machine", "--tx", workers, "--dist", "loadscope", *common)
    yield Part("functional", apart, is_beside)


def run(part: Part, output: IO[bytes] | None) -> End:
    """Run a part, whose output is the program's own if no other one is given."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", *part.arguments]
    # Images of containers set it often. Then each worker rewrites all tests, and each start of pinner compiles it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    errors = subprocess.STDOUT if output else None
    done = subprocess.run(command, check=False, stdout=output, stderr=errors, env=environment)
    return End(part, done.returncode in (0, _NO_TESTS), time.monotonic() - began)


def run_all(parts: Iterable[Part]) -> list[End]:
    """Run the parts that are ``is_beside`` beside the others."""
    with ThreadPoolExecutor(1) as beside, ExitStack() as outputs:
        kept: list[tuple[Part, IO[bytes], Future[End]]] = []
        ahead = []
        for part in parts:
            if part.is_beside:
                output = outputs.enter_context(tempfile.TemporaryFile())
                kept.append((part, output, beside.submit(run, part, output)))
            else:
                ahead.append(part)
        ended = []
        for part in ahead:
            print(f"== {part.name}", flush=True)
            ended.append(run(part, None))
        for part, output, end in kept:
            print(f"== {part.name}", flush=True)
            ended.append(end.result())
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
    return ended


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
    for word in common:
        if Path(word.partition("::")[0]).exists():
            parser.error(f"{word}: each part has its own files; run `make test ARGS={word}`")
    is_isolated = not rights.lacking("root", "mounts", "pid_namespaces", "network_namespaces")
    prepare()
    ended = run_all(parts(common, is_isolated=is_isolated))
    print(*ended, sep="\n")
    return int(not all(end.passed for end in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
