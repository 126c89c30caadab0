"""An observation and a list page with a year of runs and audit records, compared with an empty database.

    python tests/benchmarks/live/years.py

The rows are inserted in bulk; the last rows are written by pinner itself.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine, insert

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.page import PageRequest
from pinner.model.run.journal import Entry, Run
from pinner.store.audit.audit import Audit
from pinner.store.database import schema, tables
from pinner.store.database.engine import connect, writing
from pinner.store.journal.journal import StoredJournal
from pinner.store.runs.entries import entry_row
from pinner.store.runs.runs import Runs, _run_row

RUNS, RECORDS = 100_000, 1_000_000
BATCH = 5000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("compute1", "compute2", "compute3")
MASKS = [CpuSet.parse(text) for text in ("0-3", "4-7", "8-15", "16-31")]


def run(number: int) -> Run:
    """An applied run; they are minutes apart."""
    at = BEGAN + timedelta(minutes=5 * number)
    host = HOSTS[number % len(HOSTS)]
    return Run(f"run-{number:012d}", "apply", host, f"plan-{number}", "policy", "resync", "applied", at, at)


def entries(number: int) -> list[Entry]:
    """Two changes: a process and a guest's vCPU."""
    mask = MASKS[number % len(MASKS)]
    targets = (
        Target("process", str(1000 + number), number, "ovs"),
        Target("vcpu", f"00000000-0000-4000-8000-{number % 2000:012d}", 0, "vm"),
    )
    made = []
    for seq, target in enumerate(targets, 1):
        before = (ThreadMask(1000 + number, number, CpuSet.parse("0-31")),)
        made.append(
            Entry(run(number).id, seq, AffinityChange(target, before, mask, "drift"), "done", run(number).started_at)
        )
    return made


def fill_runs(engine: Engine, count: int) -> None:
    """Insert the runs with their entries."""
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        with writing(engine) as connection:
            connection.execute(insert(tables.runs), [_run_row(run(number)) for number in numbers])
            rows = [entry_row(entry) for number in numbers for entry in entries(number)]
            connection.execute(insert(tables.entries), rows)


def fill_audit(engine: Engine, count: int) -> None:
    """Insert the records. Their hashes have the right length only: no observation and no page reads them."""
    for start in range(1, count + 1, BATCH):
        rows = []
        for seq in range(start, min(start + BATCH, count + 1)):
            row = {
                "seq": seq,
                "at": BEGAN + timedelta(seconds=30 * seq),
                "actor": "policy",
                "origin": "resync",
                "action": "run.change",
                "host": HOSTS[seq % len(HOSTS)],
                "subject": f"run-{seq // 10:012d}: process ovs ({seq})",
                "before": "0-31 (1 thread)",
                "after": "0-3",
                "result": "done",
                "request_id": f"req-{seq:012d}",
                "previous": f"{seq - 1:064x}",
                "hash": f"{seq:064x}",
            }
            rows.append(row)
        with writing(engine) as connection:
            connection.execute(insert(tables.audit), rows)
            connection.execute(tables.audit_chain.update().values(seq=rows[-1]["seq"], hash=rows[-1]["hash"]))


def best(call: Callable[[], object], times: int = 40) -> float:
    """The median time of a call in milliseconds."""
    call()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def readings(folder: Path, runs: int, records: int) -> tuple[dict[str, float], int]:
    """Milliseconds by what is done, and the bytes of both files."""
    engine = connect(f"sqlite:///{folder}/pinner.sqlite")
    schema.ensure(engine)
    # The page of an empty database is as long as a page of a full one.
    fill_runs(engine, max(runs, 200))
    fill_audit(engine, max(records, 200))
    with closing(StoredJournal(folder / "agent")) as journal:
        fill_runs(journal._engine, max(runs, 200))
        stored, trail, guest = Runs(engine), Audit(engine), "00000000-0000-4000-8000-000000000007"
        figures = {
            "the journal's masks (each observation)": best(journal.placed),
            "the journal's moved processes (each apply)": best(journal.moved_processes),
            "the journal's CPUs (each apply)": best(journal.allocated),
            "the last applied run (each observation)": best(lambda: stored.last_applied("compute1")),
            "changes of a guest": best(lambda: stored.recorded_changes("compute1", guest)),
            "a page of 50 runs": best(lambda: stored.list("compute1", PageRequest())),
            "a page of 50 audit records": best(lambda: trail.list(None, None, None, PageRequest(50))),
            "the same, of a host": best(lambda: trail.list("compute1", None, None, PageRequest(50))),
            "the same, of an actor": best(lambda: trail.list(None, "policy", None, PageRequest(50))),
            "the same, of an unknown actor": best(lambda: trail.list(None, "nobody", None, PageRequest(50))),
        }
    engine.dispose()
    return figures, sum(file.stat().st_size for file in folder.rglob("*.sqlite"))


def rows() -> list[dict[str, str]]:
    """The rows of the benchmarks' table."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as year:
        empty, _ = readings(Path(first), 0, 0)
        full, size = readings(Path(year), RUNS, RECORDS)
    made = [
        {"what": f"{name}, a year's rows", "ours": f"{full[name]:.2f} ms", "few rows": f"{empty[name]:.2f} ms",
         "ours / few rows": f"{full[name] / empty[name]:.2f}"}
        for name in empty
    ]  # fmt: skip
    return [
        *made,
        {"what": f"{RUNS:,} runs twice and {RECORDS:,} records on disk", "ours": f"{size / 2**20:.0f} MiB"},
    ]


if __name__ == "__main__":
    for row in rows():
        print("  ".join(f"{name}: {value}" for name, value in row.items()), file=sys.stdout, flush=True)
