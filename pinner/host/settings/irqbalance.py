"""irqbalance's banned CPUs, read and set through its socket (irqbalance(1)).

It takes new ones at its next look at the interrupts, and forgets them when it ends.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel import files, procfs
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, Invalid, NotPermitted, PinnerError
from pinner.model.machine.interrupts import Balancer
from pinner.model.machine.process import Process
from pinner.unix_connect import connect

LIVE = Path("/")
FOLDER = Path("/run/irqbalance")
_NAME = "irqbalance"
_ENVIRONMENT = 64 * 1024
_BANNED, _BANNED_MASK = b"IRQBALANCE_BANNED_CPULIST", b"IRQBALANCE_BANNED_CPUS"
_KEPT_FREE = ("isolated", "nohz_full")
"""Their CPUs are banned where the configuration names none."""
_PATIENCE = 1.0
"""Seconds. It answers at once, unless it is stopped."""
_LONGEST = 499
"""Bytes of a request."""
_REPLY = 64 * 1024
_SETUP = re.compile(rb"SLEEP (\d{1,6}) .*BANNED ([0-9a-f,]+)\s*", re.DOTALL)
_MOST_SECONDS = 30
"""A run waits no longer for the next look."""
_MARGIN, _STEP = 5.0, 0.2
"""Seconds: how long a look itself may take, and the time between two questions."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred."""


class _Setup(NamedTuple):
    seconds: int
    """Seconds between two looks."""
    banned: CpuSet


def read_balancers(root: Path, processes: Iterable[Process]) -> tuple[Balancer, ...]:
    """Another user's moves no interrupt."""
    return tuple(
        Balancer(process.pid, process.command.partition(" ")[2], _environment(root, process.pid), process.started)
        for process in processes
        if process.name == _NAME and procfs.is_of_root(root, process.pid)
    )


def read_irqbalance(root: Path, balancers: tuple[Balancer, ...]) -> tuple[Balancer, ...]:
    """On another root than this machine's, the CPUs banned now are unknown."""
    if root != LIVE:
        return balancers
    return tuple(replace(balancer, banned_now=_banned_now(balancer)) for balancer in balancers)


def banned_cpus(target: Target) -> CpuSet:
    return _setup(target).banned


def set_banned(
    target: Target,
    cpus: CpuSet,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Waits until irqbalance says so."""
    setup = _setup(target)
    if setup.seconds > _MOST_SECONDS and setup.banned != cpus:
        raise ApplyFailed(str(target), f"it takes new banned CPUs only every {setup.seconds} s")
    # It may not have taken those of an earlier request yet, so it is asked for the same CPUs, too.
    _ask(target, _request(target, cpus))
    deadline = clock() + setup.seconds + _MARGIN
    while (now := _setup(target).banned) != cpus:
        if clock() > deadline:
            says = str(now) or "none"
            raise ApplyFailed(str(target), f"asked to ban CPUs {cpus or 'none'}, irqbalance says {says}", granted=says)
        sleep(_STEP)


def _request(target: Target, cpus: CpuSet) -> bytes:
    """NULL makes irqbalance follow its configuration again."""
    configured = _environment(LIVE, _pid(target)) or _kept_free()
    request = f"settings cpus {'NULL' if not cpus or cpus == configured else cpus}".encode()
    if len(request) > _LONGEST:
        raise ApplyFailed(str(target), f"irqbalance reads {_LONGEST} bytes, and this list of CPUs is longer: {cpus}")
    return request


def _banned_now(balancer: Balancer) -> CpuSet | None:
    try:
        return banned_cpus(balancer.target)
    except PinnerError:
        return None


def _setup(target: Target) -> _Setup:
    reply = _ask(target, b"setup")
    match = _SETUP.fullmatch(reply)
    banned = files.parse_mask(files.decode(match[2])) if match else None
    if match is None or banned is None:
        raise ApplyFailed(str(target), f"irqbalance does not tell its banned CPUs, but: {files.decode(reply[:80])!r}")
    return _Setup(int(match[1]), banned)


def _ask(target: Target, request: bytes) -> bytes:
    pid = _pid(target)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            _connect(connection, pid)
            connection.settimeout(_PATIENCE)
            peer, user, _ = _CREDENTIALS.unpack(
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            )
            # Any user may name a process irqbalance, or take an abstract name.
            if (peer, user) != (pid, 0):
                raise ApplyFailed(str(target), f"process {peer} of user {user} has its socket")
            _require_same(target)
            mine = _CREDENTIALS.pack(os.getpid(), os.geteuid(), os.getegid())
            connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, mine)])
            return _answer(connection)
    except OSError as error:
        _require_same(target)
        raise _unanswered(target, error) from None


def _connect(connection: socket.socket, pid: int) -> None:
    """irqbalance has an abstract socket where it could not make a file."""
    try:
        connect(connection, str(FOLDER / f"irqbalance{pid}.sock"), _PATIENCE)
    except (FileNotFoundError, ConnectionRefusedError):
        connect(connection, f"\0irqbalance{pid}.sock", _PATIENCE)


def _answer(connection: socket.socket) -> bytes:
    deadline = time.monotonic() + _PATIENCE
    reply = b""
    while len(reply) < _REPLY and time.monotonic() < deadline:
        part = connection.recv(4096)
        if not part:
            return reply
        reply += part
    raise TimeoutError("it does not end its answer")


def _unanswered(target: Target, error: OSError) -> PinnerError:
    if isinstance(files.known(error), PermissionError):
        return NotPermitted(str(target), "only root may ask irqbalance")
    return ApplyFailed(str(target), f"irqbalance does not answer on its socket: {error.strerror or error}")


def _pid(target: Target) -> int:
    if target.part is None or not re.fullmatch(r"\d{1,10}", target.owner, re.ASCII):
        raise Invalid("irqbalance", str(target)[:80], "a process id and a start time")
    return int(target.owner)


def _require_same(target: Target) -> None:
    try:
        started = procfs.started(LIVE, _pid(target))
    except Gone:
        started = None
    if started != target.part:
        raise Gone(str(target))


def _kept_free() -> CpuSet:
    lists = (files.cpu_list(LIVE / "sys/devices/system/cpu" / name) for name in _KEPT_FREE)
    return CpuSet.of(cpu for cpus in lists if cpus for cpu in cpus)


def _environment(root: Path, pid: int) -> CpuSet | None:
    """IRQBALANCE_BANNED_CPULIST (since 1.8.0) or the older mask; None: not readable."""
    try:
        data = files.read_start(f"{root}/proc/{pid}/environ", _ENVIRONMENT)
        for name, _, value in (variable.partition(b"=") for variable in data.split(b"\0")):
            if value and name == _BANNED:
                return CpuSet.parse(files.decode(value))
            if value and name == _BANNED_MASK:
                return files.parse_mask(files.decode(value))
    except (OSError, Invalid):
        return None
    return CpuSet()


ROW: HostRow[CpuSet] = HostRow(
    lambda _access, target: banned_cpus(target),
    lambda _access, target, state: set_banned(target, state),
    lambda facts: read_irqbalance(facts.root, facts.balancers),
)
