from pathlib import Path

from support import roots
from support.kernel import THREADS, process

from pinner.host.netlink import Began, Born
from pinner.host.scan import Scan


def test_what_began_between_two_looks(tmp_path):
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
    assert set(scan.read([20])) == {Began(10), Began(11), Began(40), Born(20, 22), Born(20, 23)}
    assert list(scan.read([20])) == []


def test_a_process_that_is_watched_only_now_has_no_births_yet(tmp_path):
    roots.process(tmp_path, 20, threads=(21,))
    scan = Scan(tmp_path)
    assert list(scan.read([])) == []
    assert list(scan.read([20, 99])) == []


def test_a_real_process():
    scan = Scan(Path("/"))
    with process(THREADS.format(count=2)) as pid:
        assert Began(pid) in set(scan.read([]))
