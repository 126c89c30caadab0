"""Values to JSON and back, their hashes, and a whole command, each beside the least that Python needs for it.

Run ``python tests/benchmarks/planning/serialisation.py``. Every value is read anew before each measurement, so that
nothing computed for an earlier one helps. The peers are json and hashlib on the same data as dicts, lists and strings,
and an interpreter that only starts and ends.
"""

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.peers.generated import Shape
from benchmarks.planning import plan as plan_benchmark
from benchmarks.planning.comparison import Case
from benchmarks.report.timing import Row, Time, clear_caches, in_turns, line, timed
from support.hosts import applied

from pinner import codec
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan
from pinner.store.plans import pack

COMMAND = "import sys; from pinner.cli.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Input:
    """A snapshot as JSON, and the request for its plan."""

    name: str
    text: bytes
    request: Request

    def snapshot(self) -> Snapshot:
        """The snapshot, read anew and without the caches of an earlier plan."""
        clear_caches()
        return codec.load(Snapshot, self.text)

    def plan(self) -> Plan:
        """The plan, made anew."""
        return plan(self.snapshot(), "s", self.request)


def inputs() -> Iterator[Input]:
    """A host whose guests are on their nodes already, where CPU numbers alternate between nodes, so that masks are long
    texts; and a very large host whose guests are not placed yet."""
    request = Request("numa-local")
    before = plan_benchmark.host(request.strategy)
    text = codec.dump(applied(before, plan(before, "s", request)))
    yield Input("512 CPUs, 100 guests, numa-local", text, request)
    yield Input("1024 CPUs, 400 guests, isolated", Case.of(Shape(1024, 8, 8), 400, "any").text, Request("isolated"))


def values(given: Input) -> Iterator[Row]:
    """Hash, dump and load of a snapshot and of its plan."""
    made = codec.dump(given.plan())
    kinds: tuple[tuple[str, type, Callable[[], object], bytes], ...] = (
        ("snapshot", Snapshot, given.snapshot, given.text),
        ("plan", Plan, given.plan, made),
    )
    for name, kind, anew, text in kinds:
        bare = json.loads(text)
        calls: dict[str, tuple[Callable[[], Time], Callable[[], Time], str]] = {
            "hash": (
                lambda anew=anew: timed(codec.content_hash, anew())[0],
                lambda bare=bare: timed(_bare_hash, bare)[0],
                "json and hashlib",
            ),
            "dump": (
                lambda anew=anew: timed(codec.dump, anew())[0],
                lambda bare=bare: timed(json.dumps, bare)[0],
                "json",
            ),
            "load": (
                lambda kind=kind, text=text: _load(kind, text),
                lambda text=text: timed(json.loads, text)[0],
                "json",
            ),
        }
        for what, (mine, least, peer) in calls.items():
            times = in_turns({"ours": mine, "theirs": least})
            yield line(f"{what} of a {name}, {given.name}", times["ours"], peer=peer, theirs=times["theirs"])


def sizes(given: Input) -> Iterator[Row]:
    """A snapshot and its plan as the database stores them, beside their JSON."""
    for name, text in (("snapshot", given.text), ("plan", codec.dump(given.plan()))):
        stored = len(pack(text))
        yield {
            "what": f"size of a stored {name}, {given.name}",
            "ours": f"{stored / 1024:.1f} KiB",
            "peer": "json",
            "theirs": f"{len(text) / 1024:.1f} KiB",
            "theirs / ours": f"{len(text) / stored:.2f}",
        }


def command(given: Input) -> Row:
    """`pinner plan` from a snapshot file, beside an interpreter that does nothing."""
    with tempfile.NamedTemporaryFile(prefix="pinner-bench-", suffix=".json") as file:
        Path(file.name).write_bytes(given.text)
        asked = ["plan", "--snapshot", file.name, "--strategy", given.request.strategy]
        # -P: a pinner in the working directory is not imported instead of the one that is measured.
        python = [sys.executable, "-P", "-c"]
        planning, nothing = [*python, COMMAND, *asked], [*python, "pass"]
        times = in_turns({"ours": lambda: _run(planning), "theirs": lambda: _run(nothing)})
    return line(f"pinner plan --snapshot, {given.name}", times["ours"], peer="python -c pass", theirs=times["theirs"])


def rows() -> Iterator[Row]:
    """The rows of a large and of a very large host."""
    for given in inputs():
        yield from values(given)
        yield from sizes(given)
        yield command(given)


def _load(kind: type, text: bytes) -> Time:
    clear_caches()
    return timed(codec.load, kind, text)[0]


def _bare_hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _run(arguments: list[str]) -> Time:
    """The time of a process. Its CPU time includes its children.

    The process may keep compiled modules, as an installed pinner does: else it compiles pinner's each time.
    """
    keeping = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=keeping)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return Time(cpu * 1000, wall * 1000)


if __name__ == "__main__":
    for row in rows():
        print(", ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
