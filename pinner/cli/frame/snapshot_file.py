"""Snapshots in the files that ``pinner inventory --save`` wrote."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import reason
from pinner.model.cpuset import MAX_CPUS
from pinner.model.errors import Invalid
from pinner.model.snapshot import Snapshot

if TYPE_CHECKING:
    from pinner.model.machine.topology import Topology

MAX_BYTES = 1024**3
"""The largest file that is read; the snapshot of a host with 10,000 processes has about 10 MiB."""


def read_snapshot(file: Path) -> Snapshot:
    """The snapshot in a file. Raises Invalid with the file and the wrong field."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise Invalid("--snapshot", str(file), f"a file that can be read ({reason(error)})") from None
    if len(content) > MAX_BYTES:
        raise Invalid("--snapshot", str(file), f"a file of at most {MAX_BYTES} bytes")
    try:
        snapshot = codec.load(Snapshot, content, field="snapshot", exact=True)
    except Invalid as error:
        raise _invalid(file, str(error)) from None
    for why in _contradictions(snapshot.topology):
        raise _invalid(file, f"snapshot.topology: {why}")
    return snapshot


def _contradictions(topology: "Topology") -> Iterator[str]:
    """What no machine can be: a file that was edited may say it."""
    cpus, nodes = [cpu.id for cpu in topology.cpus], [node.id for node in topology.nodes]
    for cpu in cpus:
        if not 0 <= cpu < MAX_CPUS:
            yield f"CPU {cpu} has no number from 0 to {MAX_CPUS - 1}"
    if not topology.online:
        yield "no CPU is online"
    for name, ids in (("CPU", cpus), ("node", nodes)):
        if twice := [id_ for id_, count in Counter(ids).items() if count > 1]:
            yield f"{name} {twice[0]} is listed twice"
    for each in topology.cpus:
        if each.node is not None and each.node not in nodes:
            yield f"CPU {each.id} is on node {each.node}, which is not listed"
        if each.l3 is not None and not 0 <= each.l3 < len(topology.l3_domains):
            yield f"CPU {each.id} is in level-3 domain {each.l3}, which is not listed"


def _invalid(file: Path, why: str) -> Invalid:
    return Invalid("--snapshot", str(file), f"a file that `pinner inventory --save` wrote ({why})")
