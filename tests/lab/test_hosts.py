"""The lab itself: the network between hosts, failing commands, and a hung host."""

from pathlib import Path

import pytest
from lab.errors import Hung, LabError

GREET = "import socket; s = socket.create_server(('', 7)); s.accept()[0].sendall(b'hello from the other host')"
LISTEN = "import socket, sys; print(socket.create_connection((sys.argv[1], 7), 20).recv(99).decode())"


def test_two_hosts_reach_each_other(lab_host, small_host):
    one, other = lab_host("two-socket"), small_host
    other.run(f'systemd-run -q --unit=greet python3 -c "{GREET}"')
    assert one.run(f'sleep 2; python3 -c "{LISTEN}" {other.address}').out == "hello from the other host\n"
    assert one.run("hostname").out != other.run("hostname").out


def test_a_command_returns_its_status_and_output(lab_host):
    host = lab_host("two-socket")
    result = host.run("cat; echo out; echo err >&2; exit 3", stdin="in ", check=False)
    assert (result.status, result.out, result.err) == (3, "in out\n", "err\n")
    with pytest.raises(LabError, match="ended with status 3"):
        host.run("exit 3")


def test_a_hung_host_is_killed_and_its_console_log_is_saved(small_host, pool):
    process = Path(f"/proc/{small_host.pid}")
    assert process.exists()
    with pytest.raises(Hung, match=r"gave no answer in 3 s to: sleep 100; console: \S+\.log") as caught:
        small_host.run("sleep 100", timeout=3)
    pool.discard(small_host)
    assert not process.exists()
    console = Path(str(caught.value).rpartition(" ")[2])
    assert "systemd.hostname=lab2" in console.read_text()
    console.unlink()


def test_no_host_writes_to_the_image(lab_host):
    host = lab_host("two-socket")
    root = host.machine.image.root
    before = root.stat()
    host.run("dd if=/dev/zero of=/written bs=1M count=8 && sync")
    after = root.stat()
    assert (before.st_mtime_ns, before.st_blocks) == (after.st_mtime_ns, after.st_blocks)
