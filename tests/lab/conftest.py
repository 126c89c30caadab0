"""Lab hosts for tests, and the table of their results."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from lab import topology
from lab.host import LabHost
from lab.pool import Pool
from support.system.lab import daemon, guests, shell_process, start_server
from xdist.scheduler import LoadScopeScheduling

BY_SIZE = sorted(topology.known(), key=lambda name: (-len(topology.load(name).positions), name))
"""The largest topology first, because its tests take longest: then two workers end at about the same time."""
COLUMNS = ("topology", "strategy", "planned", "applied", "kernel agrees", "rolled back", "kernel agrees", "seconds")
RESULT = "result"
"""The property of a test's report that contains its row of the table; a worker process sends it to the main process."""


class ByHost(LoadScopeScheduling):
    """Gives all tests that can share a host to the same worker process, because booting a host is slow."""

    def _split_scope(self, nodeid: str) -> str:
        if "test_cgroup_v1" in nodeid:
            return "a host of its own"
        named = (name for name in BY_SIZE if f"[{name}" in nodeid)
        if "test_devices" in nodeid:
            return "devices"
        return next(named, "isolated-boot" if "isolated" in nodeid else "two-socket")


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByHost:
    return ByHost(config, log)


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with Pool() as pool:
        yield pool


@pytest.fixture(scope="session")
def lab_host(pool: Pool) -> Callable[..., LabHost]:
    """lab_host(topology, kernel_args, number=1) returns a running host, whose server may still be starting.

    The same arguments give the same host. Two hosts run at a time; hosts with different numbers reach each other by
    ``address``.
    """

    def running(*arguments: str, number: int = 1) -> LabHost:
        host = pool.host(*arguments, number=number)
        start_server(host)
        return host

    return running


@pytest.fixture(scope="module")
def small_host(lab_host: Callable[..., LabHost]) -> LabHost:
    """A second host, with eight CPUs; no guest has run there before test_first_guest."""
    return lab_host("two-socket", "nr_cpus=8", number=2)


@pytest.fixture(scope="session", params=BY_SIZE)
def name(request: pytest.FixtureRequest) -> str:
    """Each topology in turn; all tests of one topology run before those of the next."""
    return request.param


@pytest.fixture
def host(name: str, lab_host: Callable[..., LabHost]) -> LabHost:
    return lab_host(name)


@pytest.fixture(scope="module")
def load(name: str, lab_host: Callable[..., LabHost]) -> Iterator[ExitStack]:
    """Guests and busy daemons on the host; they end when this stack is closed."""
    host = lab_host(name)
    with ExitStack() as undo:
        for part in (guests(host), shell_process(host), daemon(host, "busy")):
            undo.enter_context(part)
        yield undo


@pytest.fixture
def busy(load: ExitStack, host: LabHost) -> LabHost:
    """The host with guests and busy daemons."""
    return host


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # The row is complete only in the report of the test's teardown, which pytest files under the empty name.
    reports = [report for kind in ("", "error") for report in terminalreporter.getreports(kind)]
    results = {tuple(row) for report in reports for kind, row in report.user_properties if kind == RESULT}
    rows = [COLUMNS, *sorted(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    terminalreporter.section("results of the lab")
    for row in rows:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
