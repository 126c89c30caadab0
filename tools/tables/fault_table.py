"""A pytest plugin (``make faults``): runs the tests marked ``fault(row, ...)`` and writes a table of their results.

    pytest -p tables.fault_table -m fault --faults docs/faults.md tests/unit tests/functional tests/lab

Tests of the lab need virtual machines and many minutes: without ``--lab`` they are listed as not run.
"""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tables.fault_rows import ROWS

HEAD = """\
# Faults, promises and their tests

Written by `make faults` (`make faults LAB=1` also runs the tests of the lab). Where: P on a plain machine with libvirtd
and QEMU, L in the lab, K with KVM hardware. A row without a test has the result "not tested".

| # | fault | promise | where | test | result |
|---|---|---|---|---|---|
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the table."""
    parser.addoption("--faults", type=Path, required=True, help="the file of the table")
    parser.addoption("--lab", action="store_true", help="also run the tests of the lab")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin with an empty table."""
    config.pluginmanager.register(_Table(config.getoption("--faults"), lab=config.getoption("--lab")))


class _Table:
    def __init__(self, path: Path, *, lab: bool) -> None:
        self._path = path
        self._lab = lab
        self._tests: defaultdict[int, list[str]] = defaultdict(list)
        """The tests of each row, in the order of their collection."""
        self._results: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        run = []
        for item in items:
            for mark in item.iter_markers("fault"):
                for row in mark.args:
                    if _name(item.nodeid) not in self._tests[row]:
                        self._tests[row].append(_name(item.nodeid))
            if self._lab or not item.nodeid.startswith("tests/lab/"):
                run.append(item)
            elif item.get_closest_marker("fault"):
                self._results[_name(item.nodeid)]["not run"] += 1
        config.hook.pytest_deselected(items=[item for item in items if item not in run])
        items[:] = run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._results[_name(report.nodeid)][report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rows = list(self._rows())
        self._path.write_text(HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows), "utf-8")
        terminalreporter.section(f"faults, as written to {self._path}")
        for number, fault, _, where, test, result in rows:
            terminalreporter.write_line(f"{number:>2} {where:3} {result:20} {fault[:50]:50} {test}")

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for row in ROWS:
            for index, test in enumerate(self._tests[row.number] or [""]):
                about = (str(row.number), row.fault, row.promise, row.where) if index == 0 else ("", "", "", "")
                rows.append((*about, f"`{test}`" if test else "", self._result(test)))
        return rows

    def _result(self, test: str) -> str:
        if not test:
            return "not tested"
        counted = self._results[test]
        return ", ".join(f"{number} {outcome}" if number > 1 else outcome for outcome, number in counted.items())


def _name(nodeid: str) -> str:
    """The name of a test with its file below tests/, without parameters, so that all its cases are counted together."""
    return nodeid.partition("[")[0].removeprefix("tests/").replace("::", " ")
