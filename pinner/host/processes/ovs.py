"""The CPUs of Open vSwitch with DPDK: its polling threads, and the masks of its database, from ovsdb-server's Unix
socket (RFC 7047). Nobody trusts it: size and time are bounded, and only one user beside root may write its folder."""

import json
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pinner.model.cpuset import MAX_CPUS, CpuSet, union
from pinner.model.errors import Invalid
from pinner.model.machine.process import Process
from pinner.model.snapshot import OVS_DAEMON, OvsDpdk, OvsMasks
from pinner.owners import owner_of
from pinner.unix_connect import connect

_POLLING = re.compile(r"pmd(?:-c[0-9]+/id:[0-9]*|-?[0-9]+)|>[^/]*/id:[0-9]+", re.ASCII)
"""pmd-c03/id:9 since Open vSwitch 2.12, pmd9 before. Of 15 characters at most: >d-c127/id:1000 since 3.2."""


def dpdk(processes: Iterable[Process], masks: OvsMasks) -> OvsDpdk | None:
    """None without polling threads and masks. Any user can run idle threads of this name: they count if each is pinned
    to one CPU, and the process has privileges or they have worked."""
    polling = union(
        thread.affinity
        for process in processes
        if process.name == OVS_DAEMON and process.reserves
        for thread in process.threads
        if len(thread.affinity) == 1 and _POLLING.fullmatch(thread.name)
    )
    return OvsDpdk(masks, polling) if polling or masks != OvsMasks() else None


ANSWER_SECONDS = 1.0
FRESH_SECONDS = 10.0
RETRY_SECONDS = 60.0
"""No snapshot waits for a silent database more often."""
MAX_ANSWER = 1 << 20
"""Bytes."""
FIELD = "[host] ovsdb"
_MASK = re.compile(rf"(?:0[xX])?([0-9a-fA-F]{{1,{MAX_CPUS // 4}}})", re.ASCII)
_ID = "pinner"
_QUESTION = {
    "id": _ID,
    "method": "transact",
    "params": ["Open_vSwitch", {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["other_config"]}],
}


class Ovsdb:
    """Threads may share it."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._masks = OvsMasks()
        self._ask_at = float("-inf")

    def masks(self) -> OvsMasks:
        """While the database does not answer (it may be restarting), the former masks with the reason."""
        with self._lock:
            if self._clock() >= self._ask_at:
                try:
                    self._masks = read(self._path)
                except FileNotFoundError:
                    before = OvsMasks(self._masks.pmd, self._masks.lcore)
                    why = f"{self._path}: the database has ended" if before != OvsMasks() else ""
                    self._masks = replace(before, error=why)
                except (OSError, ValueError, Invalid) as error:
                    self._masks = OvsMasks(self._masks.pmd, self._masks.lcore, f"{self._path}: {error}")
                wait = RETRY_SECONDS if self._masks.error else FRESH_SECONDS
                self._ask_at = self._clock() + wait
            return self._masks


def read(path: Path) -> OvsMasks:
    """Raises OSError, Invalid for a path that others can write, and ValueError for a wrong answer."""
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise ValueError("it is not a socket")
    owner_of(path.parent, FIELD)
    try:
        config = _config(_ask(path, time.monotonic() + ANSWER_SECONDS))
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
    return OvsMasks(_cpus(config, "pmd-cpu-mask"), _cpus(config, "dpdk-lcore-mask"))


def _ask(path: Path, end: float) -> Any:
    """The server may send questions of its own (echo) before."""
    received = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        connect(sock, str(path), _left(end))
        sock.settimeout(_left(end))
        sock.sendall(json.dumps(_QUESTION).encode())
        while len(received) <= MAX_ANSWER:
            sock.settimeout(_left(end))
            part = sock.recv(65536)
            if not part:
                raise ValueError("the server closed the connection")
            received += part
            # Each attempt reads all messages again: only after a part that can be the end of one.
            if part.rstrip().endswith(b"}") and (answer := _answer(received, end)) is not None:
                return answer
    raise ValueError(f"the answer has more than {MAX_ANSWER} bytes")


def _left(end: float) -> float:
    remaining = end - time.monotonic()
    if remaining <= 0:
        raise TimeoutError(f"no answer within {ANSWER_SECONDS:g} s")
    return remaining


def _answer(received: bytes, end: float) -> Any:
    """None while the answer is incomplete. Raises TimeoutError."""
    text = received.decode("utf-8", "replace")
    decoder, at = json.JSONDecoder(parse_int=_integer), 0
    while at < len(text):
        _left(end)  # an answer can have half a million messages
        try:
            message, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return None
        if isinstance(message, dict) and message.get("id") == _ID and "method" not in message:
            if message.get("error") is not None:
                raise ValueError(f"error {json.dumps(message['error'])[:200]}")
            return message.get("result")
        while at < len(text) and text[at].isspace():
            at += 1
    return None


def _integer(digits: str) -> int:
    # No number of the answer matters; one of many digits would take long to read.
    return int(digits[:18])


def _config(result: Any) -> dict[str, str]:
    try:
        kind, pairs = result[0]["rows"][0]["other_config"]
        if kind != "map":
            raise ValueError(f"other_config is a {str(kind)[:20]!r}")
        return {str(key): str(value) for key, value in pairs}
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the answer has no other_config ({error!r:.100})") from None


def _cpus(config: dict[str, str], name: str) -> CpuSet:
    text = config.get(name, "")
    if not text:
        return CpuSet()
    match = _MASK.fullmatch(text)
    if match is None:
        raise ValueError(f"{name} = {text[:40]!r} is not a mask of at most {MAX_CPUS} CPUs")
    mask = int(match[1], 16)
    return CpuSet(mask)
