"""The history of measurements: a file of JSON lines, one for each run."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report.timing import Row

ROOT = Path(__file__).parents[3]
HISTORY = ROOT / ".benchmarks/history.jsonl"


def machine() -> dict[str, object]:
    """The machine of a measurement."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpus": os.cpu_count(),
        "model": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def machine_text() -> str:
    """The machine of a measurement in words."""
    return "{cpus} CPUs ({model}), Linux {kernel}, Python {python}".format(**machine())


def revision() -> str:
    """The commit of the working tree, with ``+`` if files differ from it; empty outside a repository."""
    head = git("rev-parse", "HEAD")
    return head + "+" if head and git("status", "--porcelain") else head


def git(*arguments: str) -> str:
    """What a command of git prints; empty where it fails, or where there is no git."""
    if shutil.which("git") is None:
        return ""
    # The repository can belong to the user who called sudo.
    command = ["git", "--no-optional-locks", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def append(file: Path, before: Sequence[float], rows: Sequence[Row]) -> None:
    """Add a run to the history. ``before`` is the machine's load (1, 5 and 15 minutes) when the run began."""
    file.parent.mkdir(parents=True, exist_ok=True)
    run = {
        "revision": revision(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_before": list(before),
        "load_after": list(os.getloadavg()),
        "rows": list(rows),
    }
    with file.open("a") as history:
        print(json.dumps(run), file=history)
