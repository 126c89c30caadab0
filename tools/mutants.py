#!/usr/bin/env python3
"""Tests the tests: changes the code in one place at a time, and runs the fast tests that execute this place.

mutmut makes the mutants, and coverage tells which test executes which line. mutmut's own runner is not used: it takes
no sample, knows the tests of a function but not of a line, and calls every function through a wrapper, which makes the
planner's tests slower. cosmic-ray runs the same tests for all mutants, and its parser does not know `match`.
Not changed are the words of messages and the log, nor what mutmut leaves out: annotations, decorators, and functions
with a decorator other than classmethod and staticmethod.
"""

import argparse
import ast
import difflib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import bounded_tests
import libcst as cst
from coverage import CoverageData
from lxml import etree
from mutmut.mutation.file_mutation import create_mutations, deep_replace

ROOT = Path(__file__).parents[1]
CODE = ("pinner/planning", "pinner/apply", "pinner/store", "pinner/agent")
WORKERS = 2
ONE_DATABASE = "not postgresql and not mariadb"
"""SQLite alone: each other server needs seconds to start, and kills no mutant that SQLite does not."""
BATCHES = (slice(0, 8), slice(8, 48), slice(48, None))
"""The tests of a mutant run in so many processes, one after the other: the first one kills most mutants."""
MYPY = (sys.executable, "-m", "mypy", "--strict", "pinner")
MOST_SECONDS = 60.0
"""The tests of one mutant need at most so long without the mutant. The longest ones are left out."""
LEAST_KILLED = 90
SURVIVED, NOT_EXECUTED, NOT_RUN = "survived", "not executed by a fast test", "not run for want of time"
REFUSED = "refused by mypy"
"""No test must find it: the lint of CI does. Only a mutant that survives the tests is asked for."""
CAUGHT = ("killed", "killed by time", REFUSED)


class Mutant(NamedTuple):
    """One changed file, and the first line that differs."""

    file: str
    line: int
    code: str
    mutated: str


def sample(paths: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Mutants of the code under these paths, each as probable as any other."""
    possible = []
    for file in sorted(file for path in paths for file in (ROOT / path).rglob("*.py")):
        module, mutations, _, _ = create_mutations(str(file), code := file.read_text())
        mutations = [each for each in mutations if each.contained_by_top_level_function is not None]
        mutations = [each for each in mutations if not isinstance(each.original_node, cst.BaseString)]
        possible += [(str(file.relative_to(ROOT)), code, module, each) for each in mutations]
    print(f"{len(possible)} mutants are possible; a sample of {count} with SEED={seed}", flush=True)
    made = []
    for file, code, module, each in random.Random(seed).sample(possible, min(count, len(possible))):  # noqa: S311
        mutated = deep_replace(module, each.original_node, each.mutated_node).code
        pairs = enumerate(zip(code.splitlines(), mutated.splitlines(), strict=False), 1)
        made.append(Mutant(file, next(number for number, (old, new) in pairs if old != new), code, mutated))
    return made


def statement(code: str, line: int) -> range:
    """The lines of the innermost statement at this line: without its body, or for a function only its body."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
    node = max((node for node in nodes if node.lineno <= line <= node.end_lineno), key=lambda node: node.lineno)
    if isinstance(node, ast.FunctionDef):
        return range(node.body[0].lineno, node.end_lineno + 1)
    parts = getattr(node, "body", None) or [case.pattern for case in getattr(node, "cases", ())]
    return range(node.lineno, max(parts[0].lineno, node.lineno + 1) if parts else node.end_lineno + 1)


def copy(folder: Path) -> Path:
    """A copy of the source tree. Its compiled files are checked by content: two mutants may have one time stamp."""
    left_out = shutil.ignore_patterns(".git", ".venv", ".tox", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out)
    subprocess.run(MYPY, cwd=folder, check=True, stdout=subprocess.DEVNULL)  # fills its cache, too
    compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "pinner"]
    subprocess.run(compiled, cwd=folder, check=True)
    return folder


def measure(tree: Path, folders: Sequence[str]) -> tuple[CoverageData, dict[str, float]]:
    """Run the fast tests once: the lines that each test executes, and the seconds of each test that passes."""
    covered = (*(f"--cov={path}" for path in CODE), "--cov-context=test", "--cov-report=", "--junitxml=tests.xml")
    options = ("-n", str(WORKERS), "--dist", "worksteal", "-k", ONE_DATABASE)
    _, output = bounded_tests.run(tree, 3600, *options, *covered, *folders)
    print(*output.splitlines()[-5:], sep="\n", flush=True)
    seconds = {
        f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}": float(case.get("time"))
        for case in etree.parse(tree / "tests.xml").iter("testcase")
        if case.find("failure") is None and case.find("error") is None
    }
    coverage = CoverageData(str(tree / ".coverage"))
    coverage.read()
    return coverage, seconds


def tests_of(mutant: Mutant, coverage: CoverageData, seconds: dict[str, float]) -> list[str]:
    """The tests that execute the changed statement: one case of each function first, and the shortest first."""
    contexts = coverage.contexts_by_lineno(mutant.file)
    names = {each.partition("|")[0] for line in statement(mutant.code, mutant.line) for each in contexts.get(line, ())}
    cases: Counter[str] = Counter()
    ranked, left = [], MOST_SECONDS
    for test in sorted(names & seconds.keys(), key=lambda test: (seconds[test], test)):
        if (left := left - seconds[test]) > 0 or not ranked:
            ranked.append((cases[test.partition("[")[0]], len(ranked), test))
            cases[test.partition("[")[0]] += 1
    return [test for _, _, test in sorted(ranked)]


def verdict(mutant: Mutant, tree: Path, coverage: CoverageData, seconds: dict[str, float]) -> str:
    """What the tests in this copy of the source tree say about the mutant."""
    tests = tests_of(mutant, coverage, seconds)
    (tree / mutant.file).write_text(mutant.mutated)
    try:
        for batch in filter(None, (tests[part] for part in BATCHES)):
            status, _ = bounded_tests.run(tree, 20 + sum(seconds[test] for test in batch), "-x", *batch)
            if status:
                return "killed" if status in (1, 2, 3, 4) else "killed by time"
        if subprocess.run(MYPY, cwd=tree, check=False, stdout=subprocess.DEVNULL).returncode:
            return REFUSED
        return SURVIVED if tests else NOT_EXECUTED
    finally:
        (tree / mutant.file).write_text(mutant.code)


def judge(mutants: Sequence[Mutant], end: float, folders: Sequence[str]) -> Iterator[str]:
    """The verdicts, from as many copies of the source tree as tests may run at a time; ``end`` is the time to stop."""
    trees: SimpleQueue[Path] = SimpleQueue()

    def judged(verdict: Callable[[Mutant, Path], str], mutant: Mutant) -> str:
        tree = trees.get()
        try:
            return verdict(mutant, tree) if time.monotonic() < end else NOT_RUN
        finally:
            trees.put(tree)

    with tempfile.TemporaryDirectory(prefix="pinner-mutants-") as folder, ThreadPoolExecutor(WORKERS) as pool:
        for number in range(WORKERS):
            trees.put(copy(Path(folder, str(number))))
        coverage, seconds = measure(Path(folder, "0"), folders)
        yield from pool.map(partial(judged, partial(verdict, coverage=coverage, seconds=seconds)), mutants)


def show(why: str, mutant: Mutant) -> None:
    """Print the changed lines."""
    texts = mutant.code.splitlines(), mutant.mutated.splitlines()
    changed = list(difflib.unified_diff(*texts, n=0, lineterm=""))[3:]
    print("", f"{mutant.file}:{mutant.line} {why}", *changed, sep="\n", flush=True)


def report(verdicts: Iterable[tuple[str, Mutant]]) -> bool:
    """Print the survivors, those that no test executes last, and the numbers; whether enough mutants are killed."""
    found = []
    for why, mutant in verdicts:
        found.append((why, mutant))
        if why == SURVIVED:
            show(why, mutant)
    for why, mutant in sorted(each for each in found if each[0] == NOT_EXECUTED):
        show(why, mutant)
    counts = Counter(why for why, _ in found)
    run, killed = len(found) - counts[NOT_RUN], sum(counts[why] for why in CAUGHT)
    print("\n" + ", ".join(f"{count} {why}" for why, count in counts.most_common()))
    print(f"{100 * killed / max(run, 1):.1f} % of {run} mutants are noticed; at least {LEAST_KILLED} % must be")
    return 100 * killed >= LEAST_KILLED * run > 0


def main() -> int:
    """Judge a sample of mutants."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60, help="no mutant is begun in the last seven of them")
    parser.add_argument("--tests", nargs="+", default=["tests/unit"], help="folders and files of tests")
    parser.add_argument("paths", nargs="*", default=CODE, help="the code to change")
    given, begin = parser.parse_args(), time.monotonic()
    mutants = sample(given.paths, given.count, given.seed)
    verdicts = judge(mutants, begin + 60 * (given.minutes - 7), given.tests)
    return 0 if report(zip(verdicts, mutants, strict=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
