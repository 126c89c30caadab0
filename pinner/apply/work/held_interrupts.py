"""Holds Ctrl-C back while work is under way in several threads."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_interrupts(note: Callable[[BaseException], None]) -> Iterator[None]:
    """Raise what the handler of SIGINT raises, such as KeyboardInterrupt, only at the end; ``note`` gets it at once.

    Python runs the handler in the main thread, between any two of its instructions. An exception from there could leave
    a lock of the threads' library taken, or the wait for the threads; a second one could do so in each except clause.
    In other threads there is nothing to hold back. ``note`` must not take a lock: the main thread may have it.
    """
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
            note(error)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if held:
        raise held[0]
