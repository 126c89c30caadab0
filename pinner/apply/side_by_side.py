"""Works on several guests at once: calls of libvirt mostly wait. Processes, perhaps relatives, come one by one."""

import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType

from pinner.model.change import Group, group_of
from pinner.model.kinds import INSIDE
from pinner.model.run.journal import Entry

HUNG_AT_ONCE = 32
"""Guests that do not answer, asked at once: each only waits."""
_SECONDS = 0.2
"""How often the main thread looks for a Ctrl-C that another thread got."""


def parts_of(entries: Iterable[Entry]) -> list[list[Entry]]:
    """The entries of each guest, those inside each guest, and all others together, in the order given. One thread
    asks a guest's agent."""
    parts: dict[Group | str | None, list[Entry]] = {}
    for entry in entries:
        group = group_of(entry.change.target)
        inside = group.owner if group.kind in INSIDE else None
        parts.setdefault(group if group.kind == "guest" else inside, []).append(entry)
    return list(parts.values())


def side_by_side(entries: Sequence[Entry], work: Callable[[Entry], None], at_once: int) -> None:
    """After an error or Ctrl-C no more work begins; the error is raised when the work under way has ended."""
    parts = parts_of(entries) if at_once > 1 else []
    if len(parts) < 2:
        for entry in entries:
            work(entry)
        return
    failed: list[BaseException] = []

    def work_on(part: list[Entry]) -> None:
        for entry in part:
            if failed:
                return
            try:
                work(entry)
            except BaseException as error:
                failed.append(error)
                raise

    with _held_interrupts(failed.append), ThreadPoolExecutor(min(at_once, len(parts)), "guest") as workers:
        running: Collection[Future[None]] = [workers.submit(work_on, part) for part in parts]
        while running:
            done, running = wait(running, _SECONDS, FIRST_COMPLETED)
            for future in done:
                future.result()


def with_busy_last(
    entries: Sequence[Entry], work: Callable[[Entry], None], busy: Collection[Group], at_once: int
) -> None:
    side_by_side([entry for entry in entries if group_of(entry.change.target) not in busy], work, at_once)
    last = [entry for entry in entries if group_of(entry.change.target) in busy]
    side_by_side(last, work, HUNG_AT_ONCE if at_once > 1 else 1)


@contextmanager
def _held_interrupts(on_interrupt: Callable[[BaseException], None]) -> Iterator[None]:
    """Raises at the end what the handler of SIGINT raises; ``on_interrupt`` gets it at once, and must take no lock. An
    exception between any two instructions of the main thread could leave a lock taken, or end its wait for threads."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[BaseException] = []

    def hold(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            held.append(error)
            on_interrupt(error)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if held:
        raise held[0]
