"""The supervisor: a thread that never began ends the process, because whoever started it waits for ever."""

import subprocess
import sys
import textwrap

CODE = """
import sys, threading
from pinner.model.errors import PinnerError
from pinner.server.supervisor import Supervisor

class Unlucky(threading.Thread):
    def _bootstrap(self):  # what a new thread calls first
        raise MemoryError

class Odd:
    def __del__(self):
        raise ArithmeticError("odd")

def work():
    Odd()
    {work}

supervisor = Supervisor()
threading.Thread(target=work, daemon=True).start()
try:
    supervisor.wait()
except PinnerError as error:
    sys.exit(str(error))
"""


def run(work):
    code = textwrap.dedent(CODE).replace("{work}", work)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_thread_without_memory_to_begin_ends_the_process_that_would_wait_for_it():
    done = run("Unlucky(name='unlucky').start()")
    assert done.returncode == 1
    assert "a thread ended before it began, by MemoryError: <bound method" in done.stderr
    assert "unlucky" in done.stderr


def test_other_exceptions_that_python_ignores_are_printed_and_end_nothing():
    done = run("import os, signal, time; time.sleep(0.1); os.kill(os.getpid(), signal.SIGTERM)")
    assert done.returncode == 0, done.stderr
    assert "ArithmeticError: odd" in done.stderr


CHECKS = """
import os, select
from pinner.server.supervisor import Supervisor

class Waits(Exception):
    pass

def wait(*arguments):
    print(arguments[3])
    raise Waits

select.select = wait
supervisor = Supervisor()
for variables in ({}, {"WATCHDOG_USEC": "30000000"}, {"WATCHDOG_USEC": "3000000"}, {"WATCHDOG_PID": "1"}):
    os.environ |= variables
    try:
        supervisor.wait()
    except Waits:
        pass
"""


def test_the_watchdog_is_told_three_times_in_its_limit_and_at_least_every_two_seconds():
    """The last limit is that of another process."""
    done = subprocess.run([sys.executable, "-c", CHECKS], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2.0", "2.0", "1.0", "2.0"], done.stderr
