"""How a program that serves learns that it is to end."""

import os
import signal


def asked_to_end() -> int:
    """A file descriptor that can be read once SIGINT or SIGTERM has come. To be called in the main thread.

    Who waits for a handler instead may wait for ever: Python runs it in the main thread, and where the kernel gives the
    signal to another one, or gives it just before the wait begins, nothing wakes the main thread.
    """
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: None)
    return read
