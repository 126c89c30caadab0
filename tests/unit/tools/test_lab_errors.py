"""The lab's errors where it cannot run: one line each, raised before anything is started."""

import pytest
from lab import host, image, topology
from lab.errors import LabError

SHAPE = topology.load("two-socket")


def one_line(caught):
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_error_names_missing_qemu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError) as caught:
        host.check(SHAPE)
    assert "not installed: qemu-system-x86_64" in one_line(caught)


def test_the_error_names_too_little_memory(monkeypatch, tmp_path):
    for tool in ("qemu-system-x86_64", "setpriv"):
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host, "_available_mib", lambda: 100)  # too little for any topology
    with pytest.raises(LabError) as caught:
        host.check(SHAPE)
    assert one_line(caught) == "lab: topology two-socket needs 2816 MiB of memory, 100 MiB are available"


def test_the_error_names_a_cache_that_cannot_be_created(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PINNER_LAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(LabError) as caught:
        image.image(SHAPE.package)
    assert "cannot be written" in one_line(caught)


def test_the_error_names_too_little_disk_space(monkeypatch, tmp_path):
    monkeypatch.setenv("PINNER_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(image, "_NEEDED_MIB", 1 << 40)
    monkeypatch.setattr(image, "check_tools", lambda: None)  # so that the tools need not be installed
    with pytest.raises(LabError) as caught:
        image.image(SHAPE.package)
    assert "MiB free" in one_line(caught)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_the_error_names_missing_mmdebstrap(monkeypatch, tmp_path):
    monkeypatch.setattr(image.shutil, "which", lambda tool, path: None)  # image also searches /usr/sbin
    with pytest.raises(LabError) as caught:
        image.check_tools()
    assert "mmdebstrap" in one_line(caught)
