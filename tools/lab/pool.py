"""The lab hosts of a session: each is booted once; the least recently used one ends when another one is needed."""

import shutil
import tempfile
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from lab import topology
from lab.host import LabHost, software

_NETWORKS = (19000, 29000)
"""The range of ports for networks; a session's port is computed from the inode of its folder."""


class Pool:
    """Hosts by topology and kernel arguments; running hosts reach each other by ``LabHost.address``."""

    def __init__(self, limit: int = 2) -> None:
        self._limit = limit
        self._hosts: OrderedDict[tuple[object, ...], LabHost] = OrderedDict()
        self._folder = Path(tempfile.mkdtemp(prefix="pinner-lab-", dir="/tmp"))
        first, last = _NETWORKS
        self._port = first + self._folder.stat().st_ino % (last - first)
        self._disk: Path | None = None
        self._booted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for host in self._hosts.values():
            host.close()
        shutil.rmtree(self._folder)

    def host(self, name: str, kernel: str = "", *, number: int = 1, reboots: bool = False) -> LabHost:
        """The running host of this topology, kernel arguments and number; it is booted if needed.

        With ``reboots`` it can be rebooted. Raises LabError, and Hung if the host does not boot.
        """
        shape = topology.load(name)
        key = (replace(shape, name="", kernel=f"{shape.kernel} {kernel}".strip()), number, reboots)
        if key not in self._hosts:
            self._make_room()
            self._hosts[key] = self._boot(shape, kernel, number, reboots=reboots)
        self._hosts.move_to_end(key)
        return self._hosts[key]

    def discard(self, host: LabHost) -> None:
        """End a host that must not be used again."""
        host.close()
        self._hosts = OrderedDict((key, other) for key, other in self._hosts.items() if other is not host)

    def _make_room(self) -> None:
        while len(self._hosts) >= self._limit:
            _, oldest = self._hosts.popitem(last=False)
            oldest.close()

    def _boot(self, shape: topology.LabTopology, kernel: str, number: int, *, reboots: bool) -> LabHost:
        self._disk = self._disk or software(self._folder)
        self._booted += 1
        host = LabHost(
            shape,
            self._folder / f"{self._booted}",
            self._disk,
            kernel=kernel,
            number=number,
            port=self._port,
            reboots=reboots,
        )
        host.wait()
        return host
