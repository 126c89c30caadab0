"""Nova's own code as a contender: it fits and books each guest, in a process of the interpreter that has Nova.

The interpreter is the one that PINNER_NOVA_PYTHON names, else that of ``tox run -e nova``, else this one.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.quality import Places

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology

SCRIPT = Path(__file__).with_name("nova_fit.py")
TOX = Path(__file__).parents[3] / ".tox/nova/bin/python"
HOW = "Nova is not installed (`tox run -e nova --notest` installs it; PINNER_NOVA_PYTHON names another interpreter)"
_KIB = 1024


class NovaMissing(Exception):
    """No interpreter has Nova; the message says how to get one."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One placement of all guests, and its time in milliseconds."""

    cpu_ms: float
    wall_ms: float
    fitting_ms: float
    """The part of the CPU time for fitting alone, without booking."""
    places: Places


class Nova:
    """A running process with Nova's code."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert process.stdout is not None
        self.version = process.stdout.readline().strip()
        if not self.version:
            raise NovaMissing(HOW)

    def place(self, hardware: Topology, pool: CpuSet, guests: Iterable[Guest]) -> Fitted:
        """Place the guests one after the other, in this order, on an empty host."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request(hardware, pool, guests)), file=self._process.stdin, flush=True)
        return Fitted(**json.loads(self._process.stdout.readline()))


def request(hardware: Topology, pool: CpuSet, guests: Iterable[Guest]) -> dict[str, object]:
    """The host's cells and the guests, as nova_fit.py reads them."""
    siblings = {cpu.id: cpu.siblings for cpu in hardware.cpus}
    sockets = {cpu.node: cpu.socket for cpu in hardware.cpus}
    cells = [
        {
            "id": node.id,
            "socket": sockets[node.id],
            "memory_mib": node.memory_kib // _KIB,
            "cores": sorted({tuple(siblings[cpu] & pool) for cpu in node.cpus & pool}),
        }
        for node in hardware.nodes
    ]
    asked = [{"name": one.name, "vcpus": len(one.vcpus), "memory_mib": one.memory_kib // _KIB} for one in guests]
    return {"cells": cells, "guests": asked}


@contextlib.contextmanager
def running() -> Iterator[Nova]:
    """Nova's process. Raises NovaMissing."""
    command = [_interpreter(), "-W", "ignore", str(SCRIPT)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            yield Nova(process)
        finally:
            process.kill()


def _interpreter() -> str:
    if named := os.environ.get("PINNER_NOVA_PYTHON"):
        if not os.access(named, os.X_OK):
            raise NovaMissing(f"PINNER_NOVA_PYTHON names {named}, which is not an executable file")
        return named
    if TOX.exists():
        return str(TOX)
    if importlib.util.find_spec("oslo_versionedobjects") is not None:
        return sys.executable
    raise NovaMissing(HOW)
