"""Packets and pings for a guest, from a network namespace that has nothing but the guest's tap.

As a program, `unshare --net python demo_traffic.py TAP` reads commands from its input, and ends with it: so
it ends with the demo, even where the demo is killed.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from demo.environment import ended
from demo.output import Tell

HOST, GUEST = "192.0.2.1", "192.0.2.2"
"""Addresses of the block that is kept for documentation."""
HOST_MAC, GUEST_MAC = "52:54:00:00:02:01", "52:54:00:00:02:02"
RATE = 20_000
"""Packets in a second."""
_PAYLOAD = bytes(18)
"""With it, a packet is an Ethernet frame of 60 bytes, the smallest."""
_DISCARD = 9
"""The port for what nobody wants."""
_PING_SECONDS = 0.02
_TICK_SECONDS = 0.001


class NoTraffic(RuntimeError):
    """The guest's tap cannot be moved or gets no packets; the text says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the tap and ping counted in a window. The tap's counters are the kernel's."""

    seconds: float
    packets: int
    """Packets that the guest's QEMU took from the tap."""
    drops: int
    """Packets that the tap dropped because QEMU had not taken earlier ones."""
    pings: int
    pings_lost: int
    worst_ping_ms: float
    """The longest round trip of a ping that was answered."""

    @property
    def offered(self) -> float:
        """Packets a second that were sent to the tap."""
        return (self.packets + self.drops) / self.seconds

    @property
    def taken(self) -> float:
        """Packets a second that the guest took from the tap."""
        return self.packets / self.seconds


class Traffic:
    """A stream of packets to the guest, which runs until its context ends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, seconds: int) -> None:
        """Begin to count and to ping for this time."""
        assert self._process.stdin
        print(seconds, file=self._process.stdin, flush=True)

    def load(self) -> Load:
        """What was counted since begin(); waits for the end of its time."""
        return Load(**json.loads(_line(self._process)))


@contextmanager
def traffic(tap: str, tell: Tell = print) -> Iterator[Traffic]:
    """Move the tap to a network namespace of its own, and send packets to the guest there."""
    command = ["unshare", "--net", sys.executable, "-m", "demo.traffic", tap]
    pipe, tools = subprocess.PIPE, os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    started = subprocess.Popen(command, text=True, start_new_session=True, stdin=pipe, stdout=pipe, env=tools)
    with ended(started) as process:
        _line(process)  # the namespace exists
        subprocess.run(["ip", "link", "set", tap, "netns", str(process.pid)], check=True)
        assert process.stdin
        print("moved", file=process.stdin, flush=True)
        _line(process)
        tell(f"{RATE:,} packets a second to the guest, in a network namespace with only {tap}")
        yield Traffic(process)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    if line := process.stdout.readline():
        return line
    raise NoTraffic(f"the process that sends packets ended with status {process.wait()}")


def _main(tap: str) -> None:
    """Send packets, and measure for as many seconds as each line of the input says."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Path("/proc/self/comm").write_text("demo-traffic")
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    # The addresses are fixed on both sides: a question for one of them could be dropped, like any packet.
    setup = f"""\
link set dev {tap} address {HOST_MAC} up
address add {HOST}/24 dev {tap}
neighbour add {GUEST} lladdr {GUEST_MAC} dev {tap} nud permanent
"""
    subprocess.run(["ip", "-batch", "-"], input=setup, text=True, check=True)
    threading.Thread(target=_send, daemon=True).start()
    print("sending", flush=True)
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(asdict(_measure(tap, int(line)))), flush=True)


def _send() -> None:
    """Send RATE packets a second, in real time: packets of a real network do not wait for a CPU of this host either."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        last = time.monotonic()
        while True:
            time.sleep(_TICK_SECONDS)
            now = time.monotonic()
            for _ in range(int(RATE * now) - int(RATE * max(last, now - 0.1))):
                sender.sendto(_PAYLOAD, (GUEST, _DISCARD))
            last = now


def _measure(tap: str, seconds: int) -> Load:
    began, first = time.monotonic(), _counters(tap)
    # ping sends so many requests, and waits a second for the last answer. With a deadline it would wait for all.
    count = round(seconds / _PING_SECONDS)
    command = ["ping", "-n", "-q", "-i", str(_PING_SECONDS), "-c", str(count), "-W", "1", GUEST]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"LC_ALL": "C"})
    last, span = _counters(tap), time.monotonic() - began
    return Load(span, last[0] - first[0], last[1] - first[1], *pings(done.stdout))


def pings(text: str) -> tuple[int, int, float]:
    """The numbers of pings and of those without an answer, and the worst round trip, from ping's summary."""
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    sent, answered = (int(count) for count in counts.groups()) if counts else (0, 0)
    worst = re.search(r"= [\d.]+/[\d.]+/([\d.]+)/", text)
    return sent, sent - answered, float(worst[1]) if worst else 0.0


def _counters(tap: str) -> tuple[int, int]:
    """Packets that the guest took, and packets that were dropped on their way to it."""
    sent = _interface(tap)["stats64"]["tx"]
    return sent["packets"], sent["dropped"]


def _interface(tap: str) -> Any:
    """The tap as `ip` shows it, in this process's network namespace."""
    command = ["ip", "-json", "-statistics", "link", "show", "dev", tap]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)[0]


if __name__ == "__main__":
    _main(sys.argv[1])
