"""Waits for the signals that end a server."""

import os
import signal


def asked_to_end() -> int:
    """A file descriptor that can be read once SIGINT or SIGTERM has arrived. Call it in the main thread.

    A wait for a signal handler can last for ever. Python runs handlers in the main thread: when the kernel delivers the
    signal to another thread, or just before the wait begins, nothing wakes the main thread.
    """
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: None)
    return read
