"""The fast set of tests: all tests but those with the marker ``slow(reason)``, which ``--all`` adds.

A test is slow because of its cost alone; the reason says what it adds to the fast tests. The last lines of a run say
how many tests were left out, by reason. ``--slow-of 2/4`` runs slow tests alone: those of the files in the second of
four slices. Each file is in one slice, whatever other files exist.
"""

from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import pytest

_LEFT_OUT = pytest.StashKey[Counter[str]]()


@dataclass(frozen=True)
class Slice:
    """One of several parts of the test files."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Slice":
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise ArgumentTypeError(f"{text!r} must be K/N, with K from 1 to N")
        return cls(int(number), int(count))

    def has(self, path: str) -> bool:
        """Whether the file, by its path below the root of the project, is in the slice."""
        return crc32(path.encode()) % self.count == self.number - 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run the tests that are marked as slow")
    parser.addoption(
        "--slow-of", type=Slice.parse, metavar="K/N", help="run the slow tests alone, of slice K of N of the test files"
    )
    parser.addoption(
        "--slow-also",
        action="append",
        default=[],
        metavar="FILE",
        help="with --slow-of: the slow tests of this file, too",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = Counter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("all"):
        return
    wanted = _in_slice if config.getoption("slow_of") else _is_fast
    left_out = [item for item in items if not wanted(item)]
    config.stash[_LEFT_OUT].update(_reason(item) for item in left_out if not _is_fast(item))
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if wanted(item)]


def _is_fast(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is None


def _in_slice(item: pytest.Item) -> bool:
    if _is_fast(item):
        return False
    path = item.path.relative_to(item.config.rootpath).as_posix()
    return item.config.getoption("slow_of").has(path) or path in item.config.getoption("slow_also")


def _reason(item: pytest.Item) -> str:
    marker = item.get_closest_marker("slow")
    assert marker
    (reason,) = marker.args  # a marker without a reason is a mistake
    return str(reason)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the numbers of a worker of pytest-xdist to the process that prints them."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["slow"] = dict(session.config.stash[_LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take the numbers of a worker; each worker has collected the same tests."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    config.stash[_LEFT_OUT] |= Counter(getattr(node, "workeroutput", {}).get("slow", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left_out := config.stash[_LEFT_OUT]:
        terminalreporter.section(f"{left_out.total()} slow tests were left out; --all runs them")
        for line in _lines(left_out.items()):
            terminalreporter.write_line(line)


def _lines(left_out: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{count:5} {reason}" for reason, count in sorted(left_out, key=lambda pair: (-pair[1], pair[0]))]
