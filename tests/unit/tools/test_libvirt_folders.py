"""The machine's folders of libvirt come back after a private libvirtd without mounts, however it ended."""

from pathlib import Path

import libvirt_folders
import pytest
from libvirt_folders import Linked, Unusable


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """A machine whose /etc/libvirt is a folder and whose /var/lib/libvirt is a link; it has no /run/libvirt."""
    folders = {name: str(tmp_path / "machine" / name) for name in ("etc", "lib", "run")}
    monkeypatch.setattr(libvirt_folders, "FOLDERS", folders)
    monkeypatch.setattr(libvirt_folders, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(libvirt_folders, "_SOCKETS", (str(tmp_path / "no-socket"),))
    (tmp_path / "machine/etc").mkdir(parents=True)
    (tmp_path / "machine/etc/qemu.conf").write_text("the machine's")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "machine/lib").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "machine"


def assert_as_before(machine: Path) -> None:
    assert sorted(path.name for path in machine.iterdir()) == ["etc", "lib"]
    assert (machine / "etc/qemu.conf").read_text() == "the machine's"
    assert (machine / "lib").readlink() == machine.parent / "elsewhere"


def own(folder: Path) -> Path:
    for name in ("etc", "lib", "run"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/qemu.conf").write_text("its own")
    return folder


def test_the_folders_are_linked_for_one_daemon_and_come_back(machine, tmp_path):
    with Linked().placed(own(tmp_path / "d")):
        assert (machine / "etc/qemu.conf").read_text() == "its own"
        assert (machine / "run").is_dir()
        with pytest.raises(Unusable, match="one private libvirtd runs already"), Linked().placed(tmp_path / "e"):
            pass
        assert (machine / "etc/qemu.conf").read_text() == "its own"
    assert_as_before(machine)


def test_an_error_brings_the_folders_back(machine, tmp_path):
    with pytest.raises(RuntimeError), Linked().placed(own(tmp_path / "d")):
        raise RuntimeError("broken")
    assert_as_before(machine)


@pytest.mark.parametrize("moved", range(4))
def test_the_next_start_brings_back_what_a_killed_process_left_aside(machine, tmp_path, monkeypatch, moved):
    """The process is killed after it has put ``moved`` folders aside."""
    own(tmp_path / "d")
    for name, path in [*libvirt_folders.FOLDERS.items()][:moved]:
        libvirt_folders._put_aside(Path(path))
        Path(path).symlink_to(tmp_path / "d" / name)
    with Linked().placed(own(tmp_path / "e")):
        assert (machine / "etc").readlink() == tmp_path / "e/etc"
    assert_as_before(machine)


def test_a_running_libvirtd_of_the_machine_stays_untouched(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(libvirt_folders, "_answers", lambda path: True)
    with pytest.raises(Unusable, match="the machine's own libvirtd runs"), Linked().placed(own(tmp_path / "d")):
        pass
    assert_as_before(machine)
