import os

import pytest

from pinner.host.kernel import files
from pinner.model.cpuset import CpuSet


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"3\n", 3),
        (b" 0 ", 0),
        (b"-1\n", None),
        (b"", None),
        (b"\0\0", None),
        (b"three", None),
        (b"0x10", None),
        (b"\xff\xfe", None),
        (b"18446744073709551615", 2**64 - 1),
        (b"18446744073709551616", None),
        (b"9" * 5000, None),
    ],
)
def test_number_in_a_file(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    assert files.number(tmp_path / "file") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"0-2,8\n", "0-2,8"), (b"\n", ""), (b"(null)\n", None), (b"\0\n", None), (b"0-99999\n", None), (b"3-1", None)],
)
def test_cpu_list_in_a_file(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    found = files.cpu_list(tmp_path / "file")
    assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"00000000,0000ffff\n", "0-15"),
        (b"1,00000000\n", "32"),
        (b"0\n", ""),
        (b"\n", None),
        (b"xyz", None),
        (b"-1", None),
        (b"f" * 2049, None),
    ],
)
def test_cpu_mask_in_a_file(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    found = files.cpu_mask(tmp_path / "file")
    assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize("reader", [files.text, files.number, files.cpu_list, files.cpu_mask])
def test_a_file_that_cannot_be_read_is_none(tmp_path, reader):
    assert reader(tmp_path / "missing") is None
    assert reader(tmp_path) is None


def test_a_long_file_is_read_to_its_end(tmp_path):
    cpus = CpuSet.of(range(0, 8192, 2))
    (tmp_path / "file").write_text(str(cpus))
    assert len(str(cpus)) > 16384
    assert files.cpu_list(tmp_path / "file") == cpus


def test_only_numbered_entries_are_returned(tmp_path):
    for name in ("cpu0", "cpu10", "cpu2", "cpufreq", "cpu", "cpu-1", "xcpu3", "gpu7", "cpu٣"):
        (tmp_path / name).mkdir()
    assert list(files.numbered(tmp_path, "cpu")) == [0, 2, 10]
    assert files.numbered(tmp_path / "missing", "cpu") == {}


def test_undecodable_bytes_are_escaped(tmp_path):
    (tmp_path / "file").write_bytes(b"a\xffb")
    assert files.text(tmp_path / "file") == "a\\xffb"


def test_a_file_of_many_records_is_read_to_its_end():
    """The kernel returns numa_maps one page per read."""
    path = "/proc/self/numa_maps"
    assert len(files.read(path)) < len(files.read(path, records=True))
    assert files.read(path, records=True).splitlines()[-1].startswith(b"7ff")


@pytest.mark.parametrize("reader", [files.text, files.number, files.cpu_list, files.cpu_mask])
def test_a_file_that_is_no_file_of_a_captured_machine_is_not_waited_for(tmp_path, monkeypatch, reader):
    monkeypatch.setattr(files, "MOST", 1 << 20)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert not reader(tmp_path / "pipe")
    assert reader(tmp_path / "endless") is None
    assert not files.read_start(str(tmp_path / "pipe"), 100)


class Piece(bytes):
    """A piece of a file that counts the bytes that are copied when something is added to it."""

    copied = 0

    def __add__(self, other):
        Piece.copied += len(self)
        return Piece(super().__add__(other))


def test_each_byte_of_a_file_is_copied_once(tmp_path, monkeypatch):
    """Any user may open so many sockets that their table has tens of megabytes, in pieces of a page."""
    read = os.read
    monkeypatch.setattr(os, "read", lambda file, length: Piece(read(file, min(length, 4096))))
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    Piece.copied = 0
    assert files.read(str(tmp_path / "file"), records=True) == bytes(1 << 20)
    assert Piece.copied <= 1 << 20  # 128 times as many where each piece copies all before it
