"""Pings guests once a second by ICMP echo requests (RFC 792, RFC 4443), unprivileged where net.ipv4.ping_group_range
allows it, else by a raw socket. The kernel notes an answer's arrival (SO_TIMESTAMPNS): no wait here counts."""

import ipaddress
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from pinner.host.measure.meter import MeteredGuest
from pinner.model.outcome.measures import PINGS_OF_P99, Pings
from pinner.repeated import Repeated
from pinner.worker import Worker

LOG = logging.getLogger(__name__)

SECONDS = 1.0
"""Between two pings. A later answer is none."""
SILENT_PINGS = 600
"""After so many pings without an answer, a guest is taken for one that filters pings."""

_LONGEST_MS = SECONDS * 1000
_JUMP_SECONDS = 0.1
"""Where the system's clock differs more from the time that passed, no round trip is known."""
_LIMIT_SECONDS = 60.0
_SO_TIMESTAMPNS = 35  # the socket module does not name it
_TIMESTAMP = struct.Struct("@qq")
_HEADER = struct.Struct("!BBHHH")
_MOST_ANSWERS = 64
"""So many are read at a time: a sender must not keep the thread busy."""


class Moment(NamedTuple):
    ns: int
    """The system's clock, as in the kernel's timestamps."""
    passed: float
    """Seconds of a clock that never jumps."""


_NEVER = Moment(0, 0.0)


def _moment() -> Moment:
    return Moment(time.time_ns(), time.monotonic())


class Echoes:
    def __init__(self, address: str) -> None:
        self._is_v6 = ipaddress.ip_address(address).version == 6
        self._request, self._answer = (128, 129) if self._is_v6 else (8, 0)
        self._socket = self._opened()
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._is_raw = self._socket.type == socket.SOCK_RAW
        with suppress(OSError):  # there is no route yet
            self._socket.connect((address, 0))
        self._address = address

    def _opened(self) -> socket.socket:
        family, protocol = (
            (socket.AF_INET6, socket.IPPROTO_ICMPV6) if self._is_v6 else (socket.AF_INET, socket.IPPROTO_ICMP)
        )
        try:
            return socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, protocol)
        except OSError:
            return socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, protocol)

    def send(self, token: bytes) -> None:
        packet = _HEADER.pack(self._request, 0, 0, 0, 1) + token
        # The kernel itself fills the sum in where the socket is not a raw one of IPv4.
        packet = packet[:2] + struct.pack("!H", _sum(packet)) + packet[4:]
        try:
            self._socket.send(packet)
        except OSError:
            # The socket had kept the error of an earlier packet, or was not connected.
            self._socket.connect((self._address, 0))
            self._socket.send(packet)

    def answers(self) -> Iterator[tuple[bytes, int]]:
        """Tokens, and nanoseconds of arrival."""
        for _ in range(_MOST_ANSWERS):
            try:
                packet, notes, _, _ = self._socket.recvmsg(512, 128)
            except BlockingIOError:
                return
            except OSError:  # the error of an earlier packet
                continue
            if self._is_raw and not self._is_v6:
                packet = packet[4 * (packet[0] & 15) :] if packet else packet
            stamps = [data for level, kind, data in notes if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS)]
            if len(packet) > _HEADER.size and packet[0] == self._answer and stamps:
                seconds, nanoseconds = _TIMESTAMP.unpack(stamps[0])
                yield packet[_HEADER.size :], seconds * 10**9 + nanoseconds

    def close(self) -> None:
        self._socket.close()


def _sum(packet: bytes) -> int:
    words = struct.unpack(f"!{len(packet) // 2}H", packet)
    total: int = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(slots=True)
class _PingedGuest:
    echoes: Echoes
    token: bytes = b""
    sent: Moment = _NEVER
    silent: int = 0
    """Pings since the last answer."""
    known: Pings | None = None
    """None until it answers, and while it is taken for one that filters pings."""

    def end_ping(self, now: Moment) -> None:
        arrived = next((at for token, at in self.echoes.answers() if token == self.token), None) if self.token else None
        clock = (now.ns - self.sent.ns) / 1e9
        if not self.token or abs(clock - (now.passed - self.sent.passed)) > _JUMP_SECONDS:
            return
        ms = _LONGEST_MS if arrived is None else (arrived - self.sent.ns) / 1e6
        is_lost = ms >= _LONGEST_MS
        self.silent = self.silent + 1 if is_lost else 0
        if self.silent >= SILENT_PINGS:
            self.known = None
        elif self.known is not None or not is_lost:
            old, ms = self.known or Pings(0, 0, 0.0, ()), min(max(0.0, ms), _LONGEST_MS)
            recent = (*old.recent, ms)[-PINGS_OF_P99:]
            self.known = Pings(old.ended + 1, old.lost + is_lost, old.ms + ms, recent)

    def begin_ping(self, clock: Callable[[], Moment]) -> None:
        """A ping that this host cannot send does not count."""
        self.token, self.sent = os.urandom(8), clock()
        try:
            self.echoes.send(self.token)
        except OSError:
            self.token = b""


_Key = tuple[str, int, int]


class Pinger(Worker):
    def __init__(
        self,
        addresses: Mapping[str, str],
        open_echoes: Callable[[str], Echoes] = Echoes,
        clock: Callable[[], Moment] = _moment,
    ) -> None:
        """``addresses`` are by a guest's name or UUID."""
        super().__init__("pings of guests", _LIMIT_SECONDS)
        self._addresses = addresses
        self._open = open_echoes
        self._clock = clock
        self._lock = threading.Lock()
        self._guests: dict[_Key, _PingedGuest] = {}
        self._failures = Repeated(LOG)

    def __call__(self, guests: Iterable[MeteredGuest]) -> dict[str, Pings]:
        wanted = {_key(guest): address for guest in guests if (address := self._address(guest))}
        with self._lock:
            for key in self._guests.keys() - wanted.keys():
                self._guests.pop(key).echoes.close()
            for key in wanted.keys() - self._guests.keys():
                self._add(key, wanted[key])
            return {uuid: guest.known for (uuid, _, _), guest in self._guests.items() if guest.known is not None}

    def turn(self) -> None:
        with self._lock:
            for guest in self._guests.values():
                guest.end_ping(self._clock())
                guest.begin_ping(self._clock)

    def _address(self, guest: MeteredGuest) -> str | None:
        return self._addresses.get(guest.uuid) or self._addresses.get(guest.name)

    def _add(self, key: _Key, address: str) -> None:
        try:
            self._guests[key] = _PingedGuest(self._open(address))
        except OSError as error:
            self._failures.warn("%s is not pinged: no ICMP socket can be opened: %s", address, error)

    def _repeat(self) -> None:
        while not self._stop.wait(SECONDS):
            self.heartbeat.beat()
            self.turn()
        self(())  # closes all sockets


def _key(guest: MeteredGuest) -> _Key:
    """A restarted guest may filter pings now."""
    return guest.uuid, guest.pid, guest.started
