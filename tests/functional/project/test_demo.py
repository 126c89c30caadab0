"""The demo, which is the first thing that a newcomer runs: it goes through to its end, and undoes what it did."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import private_libvirt
import pytest
import rights
from demo import environment as demo_environment
from demo.__main__ import NEEDED_FOR_PACKETS
from demo.guest import linux_guest
from demo.traffic import RATE, traffic

TOOLS = os.environ | {"PYTHONPATH": str(Path(private_libvirt.__file__).parent)}

pytestmark = [pytest.mark.usefixtures("module_room_for_libvirtd"), pytest.mark.slow("the whole demo")]


def figure(text: str, name: str) -> tuple[float, float]:
    """The figure of this name before and after the apply."""
    found = re.search(rf"^ +{name} +([\d,.]+) +([\d,.]+)  ", text, re.MULTILINE)
    assert found, f"{name} is missing in:\n{text[-3000:]}"
    before, after = (float(number.replace(",", "")) for number in found.groups())
    return before, after


def test_the_demo_runs_to_its_end():
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--all"],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env=TOOLS,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "threads have their prior mask" in done.stdout
    assert "the demo took" in done.stdout
    if rights.lacking(*NEEDED_FOR_PACKETS):
        assert "no dropped packets and no pings" in done.stdout
        assert figure(done.stdout, r"run delay of demo-\d+-1")
        assert "packets" not in done.stdout.partition("== After")[2]
    else:
        assert_figures(done.stdout)


def test_a_machine_is_too_busy_or_the_demo_fits_on_a_screen():
    command = [sys.executable, "-m", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, env=TOOLS)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert len(done.stdout.splitlines()) <= 40
    if "too busy" in done.stdout:
        assert re.search(r"other programs use [\d.]+ of its \d+ CPUs", done.stdout)
    else:
        assert "threads have their prior mask" in done.stdout
        assert "Observed, not tested" in done.stdout


def assert_figures(text: str) -> None:
    """The figures are there, the guest received packets in both windows, and the verdict praises no loss."""
    assert min(figure(text, "packets that the guest itself counted")) > 0
    assert min(figure(text, "packets that the guest took from the tap")) > 0
    rows = ["packets that the tap dropped", "pings without an answer", "worst ping", r"run delay of demo-\d+-linux"]
    grown = [name for name in rows if len(set(pair := figure(text, name))) == 2 and pair[0] < pair[1]]
    said = re.findall(r"^   Observed, not tested: .*?(?=^   One window)", text, re.MULTILINE | re.DOTALL)
    assert len(said) == 1
    words = " ".join(said[0].split())
    if grown:
        assert "less of" not in words
        assert "no figure became worse" not in words


@pytest.mark.needs(*NEEDED_FOR_PACKETS)
def test_the_packets_are_counted_by_the_tap_and_by_the_guest():
    with (
        demo_environment.scratch() as folder,
        private_libvirt.private_libvirtd(folder / "libvirt") as uri,
        linux_guest(uri, folder) as guest,
    ):
        before = guest.received()
        with traffic(guest.tap) as packets:
            assert guest.tap not in interfaces(), "the tap is not in a namespace of its own"
            for _ in range(10):  # beside much other work the guest may answer no ping of a window
                packets.begin(3)
                load = packets.load()
                if load.pings_lost < load.pings:
                    break
        received = settled(guest)
    assert guest.tap not in interfaces()
    assert load.packets > 0
    assert load.packets <= received - before, "the guest has received less than was taken from its tap"
    assert load.packets + load.drops <= RATE * load.seconds * 1.2
    assert load.pings > load.pings_lost
    assert load.worst_ping_ms > 0


def settled(guest) -> int:
    """The guest's count once no more packets come: two counts in turn are the same."""
    known = len(counts(guest))
    deadline = time.monotonic() + 120
    while len(seen := counts(guest)[known:]) < 3 or seen[-1] != seen[-2]:
        assert time.monotonic() < deadline, seen
        time.sleep(0.5)
    return seen[-1]


def counts(guest) -> list[int]:
    return [int(count) for count in re.findall(r"received (\d+)\r?\n", guest.console.read_text(errors="replace"))]


@pytest.mark.parametrize(
    ("number", "heading"), [(signal.SIGINT, "-1 (2 vCPUs"), (signal.SIGTERM, "measuring for")], ids=["INT", "TERM"]
)
def test_everything_that_the_demo_started_ends_with_it(number, heading):
    with started_demo() as demo:
        seen = ""
        assert demo.stdout
        while heading not in seen:
            chunk = os.read(demo.stdout.fileno(), 4096).decode()
            assert chunk, seen[-2000:]
            seen += chunk
        demo.send_signal(number)
        rest, _ = demo.communicate(timeout=300)
        assert demo.returncode == 130, seen[-1000:] + rest.decode()
        assert left_of(demo.pid) == []
        assert [name for name in interfaces() if name.startswith(f"pd{demo.pid}-")] == []


@pytest.mark.needs("network_namespaces")
def test_the_packets_end_with_the_process_that_asked_for_them():
    command = ["unshare", "--net", sys.executable, "-m", "demo.traffic", "tap0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=TOOLS) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.stdin.close()  # as the kernel does where the demo is killed
        assert process.wait(60) == 0


@contextmanager
def started_demo() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "demo", "--all"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=TOOLS
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def interfaces() -> list[str]:
    return [path.name for path in Path("/sys/class/net").iterdir()]


def left_of(pid: int) -> list[str]:
    """The command lines of processes that name this demo's guests or taps."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"demo-{pid}-" in line or f"pd{pid}-" in line:
            found.append(line)
    return found
