#!/usr/bin/env python3
"""Prints, as JSON, the files and calls between `pinner apply`, or a reconcile, and sched_setaffinity.

    PYTHONPATH=CHECKOUT:CHECKOUT/tests tools/way_of_a_run.py

Command, service, agent, journal and database are whole. The host is in memory, up to the call of the kernel, which is
not made: its one process has the id of this one, whose mask stays.
"""

import io
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from support.fakes.hosted_agent import HostedAgent
from support.hosts import plain, process, snapshot

import pinner
from pinner.cli.frame import context
from pinner.cli.main import main
from pinner.host.kernel import procfs
from pinner.host.live import LiveHost
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts
from pinner.store.repositories import open_store

CODE = str(Path(pinner.__file__).parent)
OTHER_CPUS = "62-63"
ANN = Caller("ann", "way", "")


def files_of(frame: FrameType | None) -> Iterator[str]:
    """The file of each frame of pinner's, the last call first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(CODE):
            yield frame.f_code.co_filename
        frame = frame.f_back


class Trace:
    """What happens until the first call of sched_setaffinity."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.frames, self.way, self.run = 0, set[str](), set[str]()
        self._callers: dict[threading.Thread, set[str]] = {}
        really_submit = ThreadPoolExecutor.submit

        def submit(pool: ThreadPoolExecutor, run: Callable[..., Any], *arguments: Any) -> Any:
            callers = set(files_of(sys._getframe(1)))

            def begin() -> Any:
                self._callers[threading.current_thread()] = callers
                return run(*arguments)

            return really_submit(pool, begin)

        with patch.object(ThreadPoolExecutor, "submit", submit), patch.object(os, "sched_setaffinity", self._place):
            threading.setprofile(self._profile)
            sys.setprofile(self._profile)
            try:
                work()
            finally:
                sys.setprofile(None)
                threading.setprofile(None)

    def _place(self, _tid: int, _cpus: object) -> None:
        if not self.frames:
            stack = list(files_of(sys._getframe(1)))
            self.frames, self.way = len(stack), {*stack, *self._callers.get(threading.current_thread(), ())}

    def _profile(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and not self.frames and frame.f_code.co_filename.startswith(CODE):
            self.run.add(frame.f_code.co_filename)

    def figures(self) -> str:
        return f"{len(self.way)} files, {self.frames} frames in the thread of the run, {len(self.run)} files run code"


def figures() -> dict[str, str]:
    """Of both: the files that call each other up to the system call, pinner's frames in the run's thread at that
    moment, and the files that have run code by then."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as undo:
        folder, pid = Path(name), os.getpid()
        busy = process(pid, 90.0, "0-63")
        started = procfs.started(Path("/"), pid)
        threads = tuple(replace(thread, started=started) for thread in busy.threads)
        busy = replace(busy, started=started, threads=threads)
        agent = HostedAgent(folder / "agent", snapshot(plain(64), (), (busy,)), lambda: datetime.now(UTC))
        undo.callback(agent.journal.close)
        in_memory = agent.host.set_mask
        agent.host.set_mask = lambda thread: (LiveHost.set_mask(thread), in_memory(thread))
        store = undo.enter_context(open_store(f"sqlite:///{folder}/pinner.sqlite"))
        ids = iter(f"run-{number}" for number in range(1, 100))
        made = ServiceParts({"compute1": agent}, store, lambda: datetime.now(UTC), lambda: next(ids), 0.0)
        parts = undo.enter_context(closing(made))
        undo.enter_context(patch.object(context, "open_pinner", lambda *_: nullcontext(parts.service)))
        undo.enter_context(redirect_stdout(io.StringIO()))
        request = Request(housekeeping=OTHER_CPUS)
        plan = parts.service.plan("compute1", request, None, 0.0, ANN)
        applied = Trace(lambda: main(["apply", plan.id, "--yes"]))
        parts.service.set_policy("compute1", Policy(request, "enforce"), ANN)
        agent.host.move(pid, "0-63")
        reconciled = Trace(lambda: parts.reconciler.reconcile("compute1", "resync"))
    return {"pinner apply": applied.figures(), "reconcile": reconciled.figures()}


if __name__ == "__main__":
    print(json.dumps(figures()))
