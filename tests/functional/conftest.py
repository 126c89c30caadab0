"""One private libvirtd for all functional tests, and guests of it."""

import os
import select
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import private_libvirt
import pytest
import rights
from support import needs

from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.guest.guest import Guest
from pinner.store.journal.journal import StoredJournal

_numbers = count()
KILLS = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KILLS] = Counter()


@pytest.fixture(scope="session")
def kills(pytestconfig: pytest.Config) -> Counter[str]:
    """The number of killed processes and of their runs by final state; printed at the end."""
    return pytestconfig.stash[KILLS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if counted := dict(config.stash[KILLS]):
        killed = counted.pop("kills")
        ends = ", ".join(f"{number} {state}" for state, number in sorted(counted.items()))
        terminalreporter.section("killed by SIGKILL")
        terminalreporter.write_line(f"{killed} kills; the host was as the journal says after each: {ends}")


class SessionLibvirtd:
    """The private libvirtd of all tests. Without the right to mount there is no other one at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._running = folder, ExitStack()
        self.is_used = False

    def start(self) -> str:
        """Start it; its URI, which is the same each time."""
        self.is_used = True
        return self._running.enter_context(private_libvirt.private_libvirtd(self._folder))

    def stop(self) -> None:
        """Stop it and its guests."""
        self._running.close()

    def make_room(self) -> Iterator[None]:
        """Let another one run."""
        is_in_the_way = self.is_used and rights.lacking("mounts")
        if is_in_the_way:
            self.stop()
        yield
        if is_in_the_way:
            self.start()


@pytest.fixture(scope="session")
def session_libvirtd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionLibvirtd]:
    if why := private_libvirt.missing():
        pytest.skip(f"needs a private libvirtd: {why}")
    daemon = SessionLibvirtd(tmp_path_factory.mktemp("libvirt") / "d")
    yield daemon
    daemon.stop()


@pytest.fixture(scope="session")
def libvirtd(session_libvirtd: SessionLibvirtd) -> str:
    """The URI of a private libvirtd."""
    return session_libvirtd.start()


@pytest.fixture
def room_for_libvirtd(session_libvirtd: SessionLibvirtd) -> Iterator[None]:
    """The test may start a libvirtd."""
    yield from session_libvirtd.make_room()


@pytest.fixture(scope="module")
def module_room_for_libvirtd(session_libvirtd: SessionLibvirtd) -> Iterator[None]:
    """The tests of the module may start a libvirtd, and use no other one."""
    yield from session_libvirtd.make_room()


@pytest.fixture(scope="module")
def module_libvirtd(module_room_for_libvirtd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a libvirtd that only one module has, without the guests of other tests. The module names it
    ``libvirtd``."""
    with private_libvirt.private_libvirtd(tmp_path_factory.mktemp("libvirt") / "m") as uri:
        yield uri


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a second libvirtd, to which the guests of a module migrate."""
    needs.require("mounts")
    with private_libvirt.private_libvirtd(tmp_path_factory.mktemp("libvirt") / "e") as uri:
        # This guest takes the first id: a guest with the same id and name in both libvirtds would share a cgroup.
        private_libvirt.start_guest(uri, private_libvirt.guest_xml(f"first-{os.getpid()}"), paused=True)
        yield uri


@pytest.fixture
def virsh(libvirtd: str) -> Callable[..., str]:
    """Runs virsh and returns its output."""
    return lambda *words: private_libvirt.virsh(libvirtd, *words)


@pytest.fixture
def libvirt(libvirtd: str) -> Libvirt:
    return Libvirt(libvirtd)


@pytest.fixture
def host(libvirt: Libvirt) -> LiveHost:
    return LiveHost(libvirt)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[StoredJournal]:
    journal = StoredJournal(tmp_path)
    yield journal
    journal.close()


StartGuest = Callable[..., Guest]


@pytest.fixture(scope="module")
def qemus(libvirtd: str) -> Iterator[list[int]]:
    """File descriptors of the QEMU processes that a module's tests started.

    They are killed at the end of the module, so that the tests of the next module do not observe them; also those of
    guests that a test restarted. SIGKILL is faster than libvirt, which waits a second or two for each.
    """
    running: list[int] = []
    yield running
    for guest in Libvirt(libvirtd).guests(Path("/")):
        with suppress(ProcessLookupError):
            running.append(os.pidfd_open(guest.pid))
    for qemu in running:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(qemu, signal.SIGKILL)
        os.close(qemu)


@pytest.fixture
def start_guest(libvirtd: str, libvirt: Libvirt, qemus: list[int]) -> StartGuest:
    """Starts a small guest, which may be ``persistent`` or not, and ``paused`` (without any use of the CPU) or not."""

    def start(*, persistent: bool = False, paused: bool = True, **parts: object) -> Guest:
        name = f"test-{os.getpid()}-{next(_numbers)}"
        begin = private_libvirt.define_guest if persistent else private_libvirt.start_guest
        begin(libvirtd, private_libvirt.guest_xml(name, **parts), paused=paused)  # type: ignore[arg-type]
        guest = next(guest for guest in libvirt.guests(Path("/")) if guest.name == name)
        qemus.append(os.pidfd_open(guest.pid))
        return guest

    return start


@pytest.fixture
def kill() -> Callable[[Guest], None]:
    """Kills a guest's QEMU and waits for its end."""

    def kill(guest: Guest) -> None:
        qemu = os.pidfd_open(guest.pid)
        signal.pidfd_send_signal(qemu, signal.SIGKILL)
        select.select([qemu], [], [], 10)
        os.close(qemu)

    return kill
