"""The kernel's events over netlink: new programs and threads, and CPUs that go online or offline (linux/connector.h,
cn_proc.h, filter.h, lib/kobject_uevent.c). The sockets never block. Messages of other senders are ignored: any process
may send."""

import ctypes
import errno
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from pinner.model.errors import NotPermitted

_BUFFER = 8192
_QUEUE = 1 << 20
"""Bytes: some thousand events."""
_BATCH = 512
"""Messages per call, so that one source does not delay the others."""

_CONNECTOR, _UEVENT = 11, 15
_KERNEL_UEVENTS = 1
_PROCESSES = (1, 1)
"""CN_IDX_PROC, also the multicast group, and CN_VAL_PROC."""
_DONE, _LISTEN = 3, 1
"""NLMSG_DONE, PROC_CN_MCAST_LISTEN."""
_ACKNOWLEDGED, _FORK, _EXEC, _COMM = 0x0, 0x1, 0x2, 0x200
_ANSWERS, _KIND, _DATA = 28, 36, 52
"""Offsets in a message of the number that it answers (ack of struct cn_msg), the kind of event, and its data: thread id
and process id; of a fork the parent's, then the child's."""
_ANSWER_SECONDS = 1.0

_SO_ATTACH_FILTER = 26
_LOAD, _TO_X, _IF_EQUAL, _IF_X, _RETURN = 0x20, 0x07, 0x15, 0x1D, 0x06
"""Classic BPF: load a word of the message, copy it to X, compare with a constant or with X, return the result."""
_CPU = re.compile(rb"(online|offline|add|remove)@/devices/system/cpu/cpu(\d+)\0")


class ThreadCreated(NamedTuple):
    pid: int
    tid: int


class ProgramStarted(NamedTuple):
    """A process called exec, or its main thread got a new name."""

    pid: int


class CpuChanged(NamedTuple):
    """``online``, ``offline``, ``add`` (plugged in) or ``remove``."""

    cpu: int
    action: str


class EventsLost(NamedTuple):
    what: str


class _NetlinkSource:
    _socket: socket.socket

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class ProcessEvents(_NetlinkSource):
    """Raises NotPermitted without root, in a user or PID namespace of its own, or without CONFIG_PROC_EVENTS."""

    def __init__(self) -> None:
        try:
            self._socket = _open(_CONNECTOR, _PROCESSES[0])
        except OSError as error:
            raise NotPermitted("process events", f"the kernel's process connector cannot be opened: {error}") from None
        try:
            self._subscribe()
            _attach(self._socket, _event_filter())
        except OSError as error:
            self._socket.close()
            raise NotPermitted("process events", f"the kernel's process connector does not answer: {error}") from None

    def read(self) -> Iterator[ThreadCreated | ProgramStarted | EventsLost]:
        for message in _messages(self._socket):
            if not message:
                yield EventsLost("process events")
                continue
            _, pid, child, child_pid = struct.unpack_from("=4I", message, _DATA)
            yield ThreadCreated(child_pid, child) if _kind(message) == _FORK else ProgramStarted(pid)

    def _subscribe(self) -> None:
        """A kernel that refuses may not answer. Its answer has pinner's number: the socket also receives others'."""
        number = int.from_bytes(os.urandom(3))
        body = struct.pack("=4I2HI", *_PROCESSES, 0, number, 4, 0, _LISTEN)
        self._socket.send(struct.pack("=I2H2I", 16 + len(body), _DONE, 0, 0, 0) + body)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while (remaining := deadline - time.monotonic()) > 0:
            self._socket.settimeout(remaining)
            message, (sender, _) = self._socket.recvfrom(_BUFFER)
            if sender == 0 and _kind(message) == _ACKNOWLEDGED and _at(message, _ANSWERS) == number + 1:
                break
        else:
            raise TimeoutError("timed out")
        self._socket.settimeout(0)
        if refused := _at(message, _DATA):
            raise OSError(refused, os.strerror(refused))


class CpuEvents(_NetlinkSource):
    """Uevents of subsystem cpu (core-api/cpu_hotplug.rst). Raises NotPermitted without a socket."""

    def __init__(self) -> None:
        try:
            self._socket = _open(_UEVENT, _KERNEL_UEVENTS)
        except OSError as error:
            raise NotPermitted("CPU events", f"the socket of the kernel's uevents cannot be opened: {error}") from None

    def read(self) -> Iterator[CpuChanged | EventsLost]:
        for message in _messages(self._socket):
            if not message:
                yield EventsLost("CPU events")
            elif match := _CPU.match(message):
                yield CpuChanged(int(match[2]), match[1].decode())


def _open(protocol: int, groups: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE)
        opened.bind((0, groups))
    except OSError:
        opened.close()
        raise
    return opened


def _messages(source: socket.socket) -> Iterator[bytes]:
    for _ in range(_BATCH):
        try:
            message, (sender, _groups) = source.recvfrom(_BUFFER)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            message, sender = b"", 0
        if sender == 0:
            yield message


def _kind(message: bytes) -> int:
    return _at(message, _KIND)


def _at(message: bytes, offset: int) -> int:
    (value,) = struct.unpack_from("=I", message, offset)
    return int(value)


def _event_filter() -> list[tuple[int, int, int, int]]:
    """Rows of (operation, then, else, constant). The kernel drops forks and exits before they wake pinner."""
    thread, process, child, child_process = range(_DATA, _DATA + 16, 4)
    accept, drop = (_RETURN, 0, 0, 0xFFFF), (_RETURN, 0, 0, 0)
    return [
        (_LOAD, 0, 0, _KIND),
        (_IF_EQUAL, 3, 0, _word(_EXEC)),
        (_IF_EQUAL, 3, 0, _word(_COMM)),
        (_IF_EQUAL, 8, 0, _word(_FORK)),
        drop,
        accept,
        (_LOAD, 0, 0, thread),
        (_TO_X, 0, 0, 0),
        (_LOAD, 0, 0, process),
        (_IF_X, 0, 1, 0),
        accept,
        drop,
        (_LOAD, 0, 0, child),
        (_TO_X, 0, 0, 0),
        (_LOAD, 0, 0, child_process),
        (_IF_X, 0, 1, 0),
        drop,
        accept,
    ]


def _word(value: int) -> int:
    """BPF reads words in network byte order, the kernel writes them in host byte order."""
    return int.from_bytes(value.to_bytes(4, sys.byteorder), "big")


def _attach(source: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    # The buffer must exist until the kernel has copied it, so a variable refers to it.
    buffer = ctypes.create_string_buffer(code, len(code))
    source.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(buffer)))
