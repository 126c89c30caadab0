"""Works on the entries of several guests at once, and on those of one guest one after the other.

A call of libvirt mostly waits: for libvirtd, for the guest's QEMU, and with a guest that hangs for the timeout. Calls
about different guests do not wait for each other. Processes are changed one after the other: they may be relatives.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pinner.apply.work.held_interrupts import held_interrupts
from pinner.model.kinds import INSIDE
from pinner.model.plan.groups import Group, group_of
from pinner.model.run.journal import Entry

HUNG_AT_ONCE = 32
"""How many guests that do not answer are asked at once. Each of them only waits."""
_SECONDS = 0.2
"""The kernel may give Ctrl-C to any thread, and that does not wake the main one: it looks by itself that often."""


def parts_of(entries: Iterable[Entry]) -> list[list[Entry]]:
    """The entries of each guest, those inside each guest, and those of everything else together; each part in the order
    given."""
    parts: dict[Group | None, list[Entry]] = {}
    for entry in entries:
        group = group_of(entry.change.target)
        parts.setdefault(group if group.kind in ("guest", *INSIDE) else None, []).append(entry)
    return list(parts.values())


def side_by_side(entries: Sequence[Entry], work: Callable[[Entry], None], at_once: int) -> None:
    """Do the work for every entry: for ``at_once`` parts at the same time, or with 1 in the order given.

    After an error or Ctrl-C no more work is begun. The error is raised when the work under way has ended.
    """
    parts = parts_of(entries) if at_once > 1 else []
    if len(parts) < 2:
        for entry in entries:
            work(entry)
        return
    failed: list[BaseException] = []

    def carry_out(part: list[Entry]) -> None:
        for entry in part:
            if failed:
                return
            try:
                work(entry)
            except BaseException as error:
                failed.append(error)
                raise

    with held_interrupts(failed.append), ThreadPoolExecutor(min(at_once, len(parts)), "guest") as workers:
        running: Collection[Future[None]] = [workers.submit(carry_out, part) for part in parts]
        while running:
            done, running = wait(running, _SECONDS, FIRST_COMPLETED)
            for each in done:
                each.result()


def with_busy_last(
    entries: Sequence[Entry], work: Callable[[Entry], None], busy: Collection[Group], at_once: int
) -> None:
    """Like ``side_by_side``; the ``busy`` guests, which do not answer, come last: they must not delay the others."""
    side_by_side([each for each in entries if group_of(each.change.target) not in busy], work, at_once)
    last = [each for each in entries if group_of(each.change.target) in busy]
    side_by_side(last, work, HUNG_AT_ONCE if at_once > 1 else 1)
