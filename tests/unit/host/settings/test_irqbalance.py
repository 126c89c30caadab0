"""The socket of irqbalance, with a made-up irqbalance behind it; tests/functional has the real one."""

import os
import socket
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from support.hosts import process
from support.roots import write

from pinner.host.kernel import procfs
from pinner.host.settings import irqbalance, table
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.machine.interrupts import Balancer

PID = os.getpid()
RUNNING = Balancer(PID, "", None, procfs.started(irqbalance.LIVE, PID))
CONFIGURED = CpuSet.parse("1")


class Made:
    """An irqbalance that takes new banned CPUs at its next look."""

    def __init__(self, path, first=None):
        """``first`` is work that it does before it accepts a connection; one connection at most waits meanwhile."""
        self.banned = CONFIGURED
        self.asked = []
        self.reply = ""
        self.seconds = 10
        self.looks = True
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(0)
        self._first = first or (lambda: None)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        self._first()
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer, suppress(BrokenPipeError):  # a client that waited for its longest time has gone
                request = peer.recv(500).decode()
                if request == "setup":
                    # The list of banned interrupts stands between the interval and the CPUs.
                    answer = self.reply or f"SLEEP {self.seconds} IRQ 7 LOAD 1 DIFF 2 CLASS 3 BANNED {self.mask()}"
                    peer.sendall(answer.encode())
                else:
                    self.asked.append(request)

    def mask(self):
        digits = f"{self.banned.bits:016x}"
        return f"{digits[:8]},{digits[8:]}"

    def look(self, _seconds=0.0):
        """The time until the next look has passed."""
        if self.looks and self.asked:
            text = self.asked[-1].removeprefix("settings cpus ")
            self.banned = CONFIGURED if text == "NULL" else CpuSet.parse(text)

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def running(tmp_path, monkeypatch):
    monkeypatch.setattr(irqbalance, "FOLDER", tmp_path)
    monkeypatch.setattr(irqbalance, "_environment", lambda *_: CONFIGURED)
    made = Made(tmp_path / f"irqbalance{PID}.sock")
    yield made
    made.close()


pytestmark = pytest.mark.needs("root")


def set_banned(made, text):
    """Set these CPUs; each question after the request finds the time of one more look passed."""
    irqbalance.set_banned(RUNNING.target, CpuSet.parse(text), made.look, iter(range(10_000)).__next__)


def test_the_banned_cpus_are_those_that_irqbalance_tells(running):
    running.banned = CpuSet.parse("2-3,40")
    assert table.state_of(irqbalance.LIVE, RUNNING.target) == CpuSet.parse("2-3,40")


def test_new_cpus_hold_from_its_next_look_and_its_configuration_is_followed_again(running):
    set_banned(running, "1,4-7")
    set_banned(running, "1")
    assert (running.asked, running.banned) == (["settings cpus 1,4-7", "settings cpus NULL"], CONFIGURED)


def test_cpus_that_it_does_not_take_in_time_are_an_error_with_its_word(running):
    running.looks = False
    with pytest.raises(ApplyFailed, match="asked to ban CPUs 4-7, irqbalance says 1"):
        set_banned(running, "4-7")
    with pytest.raises(ApplyFailed, match="asked to ban CPUs none, irqbalance says 1"):
        set_banned(running, "")


def test_a_long_pause_or_a_long_list_is_refused_before_it_is_asked(running):
    running.seconds = 3600
    with pytest.raises(ApplyFailed, match="it takes new banned CPUs only every 3600 s"):
        set_banned(running, "4-7")
    assert running.asked == []
    set_banned(running, "1")  # the undo of a refused change
    running.asked.clear()
    running.seconds = 10
    with pytest.raises(ApplyFailed, match="irqbalance reads 499 bytes"):
        set_banned(running, ",".join(map(str, range(0, 400, 2))))
    assert running.asked == []


@pytest.mark.parametrize(
    "reply", ["SLEEP x BANNED 1", "BANNED 1", "SLEEP 1 BANNED zz", "SLEEP 1 BANNED " + "f" * 20000]
)
def test_a_lie_is_an_error_with_its_beginning(running, reply):
    running.reply = reply
    with pytest.raises(ApplyFailed, match="does not tell its banned CPUs, but: '"):
        irqbalance.banned_cpus(RUNNING.target)


def test_an_endless_answer_ends(running, monkeypatch):
    monkeypatch.setattr(irqbalance, "_REPLY", 4096)
    running.reply = "x" * 100_000
    with pytest.raises(ApplyFailed, match="it does not end its answer"):
        irqbalance.banned_cpus(RUNNING.target)


def test_a_stopped_irqbalance_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(irqbalance, "FOLDER", tmp_path)
    monkeypatch.setattr(irqbalance, "_PATIENCE", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / f"irqbalance{PID}.sock"))
        silent.listen()
        with pytest.raises(ApplyFailed, match="irqbalance does not answer on its socket: timed out"):
            irqbalance.banned_cpus(RUNNING.target)


def test_an_irqbalance_whose_queue_of_connections_is_full_is_waited_for(tmp_path, monkeypatch):
    """Its queue has room for one: the second of two requests finds it full while irqbalance looks at interrupts."""
    monkeypatch.setattr(irqbalance, "FOLDER", tmp_path)
    monkeypatch.setattr(irqbalance, "_PATIENCE", 60.0)
    path, asked = tmp_path / f"irqbalance{PID}.sock", threading.Event()
    made = Made(path, asked.wait)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(str(path))
        other.sendall(b"settings cpus NULL")
        threading.Timer(0.2, asked.set).start()
        assert irqbalance.banned_cpus(RUNNING.target) == CONFIGURED
    made.close()


def test_without_a_socket_it_is_an_error_and_an_ended_process_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(irqbalance, "FOLDER", tmp_path)
    with pytest.raises(ApplyFailed, match="does not answer on its socket: Connection refused"):
        irqbalance.banned_cpus(RUNNING.target)
    for owner, started in ((str(PID), RUNNING.started + 1), ("4194304", 1)):
        with pytest.raises(Gone):
            irqbalance.banned_cpus(Target("irqbalance", owner, started, "irqbalance"))


def test_another_process_with_its_socket_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(irqbalance, "FOLDER", tmp_path)
    made = Made(tmp_path / "irqbalance1.sock")
    one = Target("irqbalance", "1", procfs.started(irqbalance.LIVE, 1), "irqbalance")
    with pytest.raises(ApplyFailed, match=f"process {PID} of user 0 has its socket"):
        irqbalance.banned_cpus(one)
    made.close()


def test_a_socket_with_an_abstract_name_serves_too(tmp_path, monkeypatch):
    monkeypatch.setattr(irqbalance, "FOLDER", tmp_path)
    made = Made(f"\0irqbalance{PID}.sock")
    assert irqbalance.banned_cpus(RUNNING.target) == CONFIGURED
    made.close()


@pytest.mark.parametrize("owner", ["", "../1", "\u0661", "-1", "12345678901"])
def test_a_target_without_a_process_is_refused(owner):
    with pytest.raises(Invalid):
        irqbalance.banned_cpus(Target("irqbalance", owner, 7, "irqbalance"))
    with pytest.raises(Invalid):
        irqbalance.banned_cpus(Target("irqbalance", "1", None, "irqbalance"))


def test_the_cpus_that_irqbalance_does_not_use(tmp_path):
    balancer = replace(process(80, 0.0, "0-3", name="irqbalance"), command="/usr/sbin/irqbalance --foreground")
    for text, banned in (
        ("A=1\0IRQBALANCE_BANNED_CPULIST=4-7\0", CpuSet.parse("4-7")),
        ("IRQBALANCE_BANNED_CPUS=1,00000003\0", CpuSet.parse("0-1,32")),
        ("A=1\0", CpuSet()),
        ("IRQBALANCE_BANNED_CPUS=\0", CpuSet()),
        ("IRQBALANCE_BANNED_CPULIST=\0IRQBALANCE_BANNED_CPUS=3\0", CpuSet.parse("0-1")),
        ("IRQBALANCE_BANNED_CPULIST=all\0", None),
        ("IRQBALANCE_BANNED_CPUS=" + "f" * 60_000, None),
    ):
        root = write(tmp_path, {"proc/80/environ": text})
        (found,) = irqbalance.read_balancers(root, [balancer, process(81, 0.0, "0-3")])
        assert (found.pid, found.arguments, found.banned) == (80, "--foreground", banned)
    (unreadable,) = irqbalance.read_balancers(tmp_path / "none", [balancer])
    assert unreadable.banned is None


@pytest.mark.parametrize(
    ("users", "found"),
    [("0 0 0 0", 1), ("1000 1000 1000 1000", 0), ("1000 0 0 0", 0), ("100000 100000 100000 100000", 0)],
    ids=["root", "a user", "a setuid program of a user", "root of a user namespace"],
)
def test_a_process_that_a_user_has_named_irqbalance_is_not_asked(tmp_path, monkeypatch, users, found):
    """Each such process would cost every snapshot the second that irqbalance has for its answer."""
    asked = []
    monkeypatch.setattr(irqbalance, "_banned_now", asked.append)
    monkeypatch.setattr(irqbalance, "LIVE", tmp_path)
    root = write(tmp_path, {"proc/80/status": f"Name:\tirqbalance\nUid:\t{users}\n", "proc/80/environ": "A=1\0"})
    balancers = irqbalance.read_balancers(root, [process(80, 0.0, "0-3", name="irqbalance")])
    assert len(irqbalance.read_irqbalance(root, balancers)) == found
    assert len(asked) == found
