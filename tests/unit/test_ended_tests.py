import os
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import subprocess
import pytest

@pytest.fixture(scope="session")
def started():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()

def test_that_does_not_end(started, capfd):
    with capfd.disabled():
        print(started.pid, flush=True)
    started.wait()
"""


def test_tests_that_get_a_sigterm_end_what_they_have_started(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the conftest imports tests/support
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        started = Path(f"/proc/{int(tests.stdout.readline())}")
        assert started.exists()
        tests.terminate()
        assert tests.wait(120) == 2
    assert not started.exists()
