"""The rights of this machine that a test needs, by the names in tools/rights.py: a test without them is left out.

``@pytest.mark.needs("mounts", "taps")`` is for tests, and ``needs.require("mounts")`` for fixtures. The last lines of a
run say how many tests were left out for want of which right.
"""

from collections import Counter
from collections.abc import Generator

import pytest
import rights


class Lacking(pytest.skip.Exception):
    """The test is left out for want of this right."""

    def __init__(self, right: str) -> None:
        super().__init__(f"needs {right}: {rights.RIGHTS[right].allows} ({rights.why(right)})")
        self.right = right


def require(*names: str) -> None:
    """Leave the test out where one of these rights is missing. Raises KeyError for an unknown name."""
    if right := rights.lacking(*names):
        raise Lacking(right)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        require(*marker.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the right into the report, which a worker of pytest-xdist sends to the process that counts."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, Lacking):
        report.lacking = call.excinfo.value.right  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if left_out := Counter(report.lacking for report in skipped if hasattr(report, "lacking")):
        terminalreporter.section(f"{left_out.total()} tests were left out for want of a right")
        for right, count in left_out.most_common():
            terminalreporter.write_line(f"{count:5} {right}: {rights.RIGHTS[right].allows}")
