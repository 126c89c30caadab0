"""The fast set of tests: all tests but those with the marker ``slow(reason)``, which ``--all`` adds.

A test is slow because of its cost alone; the reason says what it adds to the fast tests. The last lines of a run say
how many tests were left out, by reason.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

_LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run the tests that are marked as slow")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = Counter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("all"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.stash[_LEFT_OUT].update(_reason(item) for item in slow)
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("slow")]


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
