"""Lab hosts for tests, and the table of what was proven on them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from lab import topology
from lab.host import LabHost
from lab.pool import Pool
from support.lab import daemon, guests, stray

BY_SIZE = sorted(topology.known(), key=lambda name: (len(topology.load(name).seats), name))
COLUMNS = ("topology", "strategy", "planned", "applied", "kernel agrees", "rolled back", "kernel agrees", "seconds")
PROOFS = pytest.StashKey[list[tuple[str, ...]]]()
TIMES = pytest.StashKey[list[tuple[str, float]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PROOFS] = []
    config.stash[TIMES] = []


@pytest.fixture(scope="session")
def pool(pytestconfig: pytest.Config) -> Iterator[Pool]:
    with Pool() as made:
        pytestconfig.stash[TIMES] = made.times
        yield made


@pytest.fixture(scope="session")
def lab_host(pool: Pool) -> Callable[..., LabHost]:
    """lab_host(topology, kernel_args, number=1): a running host, the same for the same arguments.

    Two hosts run at a time; those with different numbers reach each other by ``address``.
    """
    return pool.host


@pytest.fixture(scope="session", params=BY_SIZE)
def name(request: pytest.FixtureRequest) -> str:
    """Each topology in turn; all tests of one run before those of the next."""
    return request.param


@pytest.fixture(scope="session")
def host(name: str, lab_host: Callable[..., LabHost]) -> LabHost:
    return lab_host(name)


@pytest.fixture(scope="session")
def busy(host: LabHost) -> Iterator[LabHost]:
    """The host with guests and busy daemons."""
    with ExitStack() as undo:
        for part in (guests(host), stray(host), daemon(host, "busy")):
            undo.enter_context(part)
        yield host


@pytest.fixture(scope="session")
def proofs(pytestconfig: pytest.Config) -> list[tuple[str, ...]]:
    """Rows of the table that is printed at the end."""
    return pytestconfig.stash[PROOFS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = [COLUMNS, *config.stash[PROOFS]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    terminalreporter.section("proven in the lab")
    for row in rows:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    for what, seconds in config.stash[TIMES]:
        terminalreporter.write_line(f"{seconds:6.1f} s  {what}")
