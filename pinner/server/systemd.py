"""Reports to systemd: that a service is ready, that it still works, that it ends; see sd_notify(3)."""

import os
import socket
from contextlib import suppress

READY = "READY=1"
WATCHDOG = "WATCHDOG=1"
STOPPING = "STOPPING=1"
NOTIFY_SECONDS = 30.0


def notify(state: str, seconds: float = NOTIFY_SECONDS) -> None:
    """Send the state to systemd, if it waits for one. Raises OSError where systemd does not read for ``seconds``."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # A name that begins with @ is in the abstract namespace; see unix(7).
            sender.settimeout(seconds)
            sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            sender.send(state.encode())


def notify_if_possible(state: str) -> None:
    """Like ``notify``, without a wait; where systemd cannot be told, it draws its own conclusions."""
    with suppress(OSError):
        notify(state, 0.0)


def watchdog_seconds() -> float | None:
    """After how many seconds without WATCHDOG systemd ends this process (WatchdogSec=); None: it does not."""
    try:
        seconds = int(os.environ["WATCHDOG_USEC"]) / 1e6
        mine = int(os.environ.get("WATCHDOG_PID", os.getpid())) == os.getpid()
    except (KeyError, ValueError):
        return None
    return seconds if mine and seconds > 0 else None
