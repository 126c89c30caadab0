"""Reports to systemd when a service is ready."""

import os
import socket


def notify_ready() -> None:
    """Tell systemd that this service is ready, if systemd waits for it; see sd_notify(3). Raises OSError."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # A name that begins with @ is in the abstract namespace; see unix(7).
            sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            sender.send(b"READY=1")
