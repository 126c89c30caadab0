from pathlib import Path

from support import roots
from support.system.kernel import THREADS, process

from pinner.host.kernel.netlink import ProgramStarted, ThreadCreated
from pinner.host.watch.sources import Scan


def test_new_programs_and_threads_between_two_scans(tmp_path):
    roots.process(tmp_path, 10, name=b"old")
    roots.process(tmp_path, 11, name=b"sh")
    roots.process(tmp_path, 20, name=b"qemu", threads=(21,))
    roots.process(tmp_path, 30, name=b"other")
    scan = Scan(tmp_path)
    assert list(scan.read([20])) == []
    roots.process(tmp_path, 11, name=b"execd")
    roots.process(tmp_path, 10, name=b"old", started=200)
    roots.process(tmp_path, 40, name=b"new")
    roots.process(tmp_path, 20, name=b"qemu", threads=(21, 22, 23))
    roots.process(tmp_path, 30, name=b"other", threads=(31,))
    assert set(scan.read([20])) == {
        ProgramStarted(10),
        ProgramStarted(11),
        ProgramStarted(40),
        ThreadCreated(20, 22),
        ThreadCreated(20, 23),
    }
    assert list(scan.read([20])) == []


def test_the_first_scan_of_a_process_reports_no_new_threads(tmp_path):
    roots.process(tmp_path, 20, threads=(21,))
    scan = Scan(tmp_path)
    assert list(scan.read([])) == []
    assert list(scan.read([20, 99])) == []


def test_a_real_new_process_is_found():
    scan = Scan(Path("/"))
    with process(THREADS.format(count=2)) as pid:
        assert ProgramStarted(pid) in set(scan.read([]))
