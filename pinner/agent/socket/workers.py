"""Threads that are started before there is work. `Thread.start` waits until the new thread runs: where the kernel has
no memory for its first steps, it ends before that, and the caller waits for ever."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

LOG = logging.getLogger(__name__)

Job = Callable[[], None]
_Jobs = SimpleQueue[Job | None]


class Workers:
    def __init__(self, count: int, name: str) -> None:
        # A new job goes to the thread that was busy last: its memory is warm, and that of the others stays small.
        self._idle: list[_Jobs] = [SimpleQueue() for _ in range(count)]
        self._all = tuple(
            (jobs, threading.Thread(target=self._work, args=(jobs,), name=name, daemon=True)) for jobs in self._idle
        )

    @property
    def busy(self) -> int:
        return len(self._all) - len(self._idle)

    def start(self) -> None:
        for _, thread in self._all:
            thread.start()

    def begin(self, job: Job) -> bool:
        """False where no thread is idle. Never waits."""
        try:
            jobs = self._idle.pop()
        except IndexError:
            return False
        try:
            jobs.put(job)
        except MemoryError:
            self._idle.append(jobs)
            raise
        return True

    def end(self, seconds: float) -> bool:
        """Whether all threads, each after its job, ended within so many seconds."""
        deadline = time.monotonic() + seconds
        for jobs, _ in self._all:
            jobs.put(None)
        for _, thread in self._all:
            if thread.ident is not None:  # it was started
                thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for _, thread in self._all)

    def _work(self, jobs: _Jobs) -> None:
        while (job := jobs.get()) is not None:
            try:
                job()
            except Exception:
                with suppress(Exception):  # no memory is left for the log, either
                    LOG.exception("a job failed")
            del job  # it holds the values of its call
            self._idle.append(jobs)
