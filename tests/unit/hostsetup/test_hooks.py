"""install-hooks and remove-hooks on the files of an image; tests/functional/guests/test_migration_hook.py has real
guests."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.system.hook_images import NEW, OLD, files, image, install, remove

from pinner.cli import main
from pinner.hostsetup import hooks
from pinner.hostsetup.hooks import HookPaths
from pinner.hostsetup.layout import packaged
from pinner.model.errors import Invalid

pytestmark = pytest.mark.needs("root")

OTHERS = "#!/bin/sh\n# a script of somebody else, which names pinner's hook script for libvirt\n"


def test_script_filter_and_settings_are_installed_and_removed(paths):
    said = install(paths)
    script = "etc/libvirt/hooks/qemu" + ("/pinner" if "usr/lib64" not in str(next(paths.root.glob("usr/*"))) else "")
    script = script.replace("qemu/", "qemu.d/")
    assert files(paths) == {
        script: (packaged("libvirt-qemu-hook"), 0o755),
        "etc/libvirt/hooks/pinner-strip-pins": (packaged("libvirt-strip-pins"), 0o644),
        "etc/pinner/hook.conf": (paths.own_settings, 0o600),
        "etc/libvirt/hooks/pinner-folders": (paths.folders_file.read_text(), 0o644),
    }
    assert "python = /opt/pinner/bin/python" in paths.own_settings
    assert f"done: write {paths.root / script}" in said
    assert "systemctl restart libvirtd" in said[-1]
    steps = [line for line in remove(paths) if not line.startswith("libvirt ")]
    assert all(line.startswith(("done: remove", "nothing to do: remove")) for line in steps)
    assert files(paths) == {}


def test_a_second_call_changes_nothing(paths):
    install(paths)
    paths.settings.write_text("url = http://127.0.0.1:8077\n")
    before = files(paths)
    assert all(line.startswith("nothing to do: ") for line in install(paths)[:-1])
    assert files(paths) == before
    assert f"kept: {paths.settings}, which was changed" in remove(paths)
    assert all(line.startswith(("nothing to do: ", "kept: ")) for line in remove(paths))
    assert list(files(paths)) == ["etc/pinner/hook.conf"]


def test_a_dry_run_writes_nothing(paths):
    assert all(line.startswith(("would write ", "would create ")) for line in install(paths, dry_run=True)[:-1])
    assert files(paths) == {}
    install(paths)
    before = files(paths)
    assert any(line.startswith("would remove ") for line in remove(paths, dry_run=True))
    assert files(paths) == before


def test_files_of_an_older_version_are_replaced(paths):
    install(paths)
    first, second, *_ = packaged("libvirt-qemu-hook").splitlines()
    paths.script().write_text(f"{first}\n{second}\n")
    paths.script().chmod(0o600)
    paths.filter.write_text("\n".join(packaged("libvirt-strip-pins").splitlines()[:2]))
    install(paths)
    assert paths.script().read_text() == packaged("libvirt-qemu-hook")
    assert paths.script().stat().st_mode & 0o777 == 0o755
    assert paths.filter.read_text() == packaged("libvirt-strip-pins")


def test_settings_of_an_older_installation_name_the_new_python(paths):
    """The old Python may be gone, and then no start would be reported."""
    install(replace(paths, python=Path("/opt/older/bin/python")))
    assert f"done: write {paths.settings}" in install(paths)
    assert paths.settings.read_text() == paths.own_settings
    install(paths)
    remove(replace(paths, python=Path("/opt/newer/bin/python")))
    assert files(paths) == {}


@pytest.mark.parametrize(("names", "expected"), [(["python3"], "python3"), (["python", "python3"], "python")])
def test_the_settings_name_a_python_that_exists(paths, tmp_path, monkeypatch, names, expected):
    """Debian's own Python is python3 alone. With another name, no start would be reported."""
    system = tmp_path / "system"
    (system / "bin").mkdir(parents=True)
    for name in names:
        (system / "bin" / name).touch()
    monkeypatch.setattr(hooks.sys, "prefix", str(system))
    monkeypatch.setattr(hooks.sys, "executable", str(system / "bin/python3"))
    install(HookPaths(paths.root))
    assert f"python = {system}/bin/{expected}\n" in paths.settings.read_text()


def test_a_copy_that_was_made_by_hand_is_replaced(tmp_path):
    """Both would report each start. Until now the documents said to copy the script."""
    paths = image(tmp_path, NEW)
    paths.alone.parent.mkdir(parents=True)
    paths.alone.write_text("#!/bin/sh\n# libvirt hook script for pinner. Install it as ...\n")
    assert f"done: remove {paths.alone}, which is pinner's, too" in install(paths)
    assert paths.beside.exists()
    assert not paths.alone.exists()
    paths.alone.write_text(packaged("libvirt-qemu-hook"))
    remove(paths)
    assert files(paths) == {}


def test_anothers_script_stays_beside_pinners(tmp_path):
    paths = image(tmp_path, NEW)
    others = (paths.alone, paths.beside.with_name("others"))
    paths.beside.parent.mkdir(parents=True)
    for other in others:
        other.write_text(OTHERS)
    install(paths)
    install(paths)
    assert paths.beside.exists()
    remove(paths)
    assert [other.read_text() for other in others] == [OTHERS, OTHERS]
    assert not paths.beside.exists()


@pytest.mark.parametrize("library", [OLD, ""])
def test_anothers_only_script_is_not_overwritten(tmp_path, library):
    paths = image(tmp_path, library)
    paths.alone.parent.mkdir(parents=True)
    paths.alone.write_text(OTHERS)
    with pytest.raises(Invalid, match=r"hooks/qemu.*pinner does not overwrite it.*qemu\.d"):
        install(paths)
    assert list(files(paths)) == ["etc/libvirt/hooks/qemu"]
    remove(paths)
    assert paths.alone.read_text() == OTHERS
    paths.beside.parent.mkdir()
    install(paths)
    assert paths.beside.exists()


def test_an_old_libvirt_gets_the_only_script_although_there_is_a_folder(tmp_path):
    """Scripts of others have such a folder for themselves. libvirt itself runs nothing there before 6.5.0."""
    paths = image(tmp_path, OLD)
    paths.beside.parent.mkdir(parents=True)
    assert not any(line.startswith("warning") for line in install(paths))
    assert (paths.alone.exists(), paths.beside.exists()) == (True, False)
    remove(paths)
    paths.alone.write_text(OTHERS)
    warning = f"warning: libvirt runs {paths.beside} only since 6.5.0, and the library that was found is older"
    assert warning in install(paths)


def test_the_removal_says_when_an_old_libvirt_starts_guests_again(paths):
    """It would run the script that is gone, and take that for a failure."""
    install(paths)
    was_alone = paths.alone.exists()
    for said in (remove(paths, dry_run=True), remove(paths)):
        assert (
            any("6.5.0 starts no guest" in line and "systemctl restart libvirtd" in line for line in said) == was_alone
        )
    assert not any("starts no guest" in line for line in remove(paths))


@pytest.mark.parametrize("name", ["beside", "filter"])
@pytest.mark.parametrize("kind", ["file", "symlink", "folder", "binary", "empty"])
def test_a_file_in_the_way_is_left_alone(tmp_path, name, kind):
    paths = image(tmp_path, NEW)
    path = getattr(paths, name)
    path.parent.mkdir(parents=True)
    match kind:
        case "symlink":
            path.symlink_to("/etc/pinner-hook")
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes({"file": OTHERS.encode(), "binary": b"\x7fELF\n\xff", "empty": b""}[kind])
    for command in (install, remove):
        with pytest.raises(Invalid, match="not pinner's: move it away"):
            command(paths)
    assert os.path.lexists(path)
    assert not paths.settings.exists(), "nothing is written before all is checked"


def test_the_commands(paths, capsys):
    folder = paths.root / "elsewhere"
    where = ["--root", str(paths.root), "--hooks", str(folder)]
    assert main.main(["nova", "install-hooks", *where]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main.main(["nova", "install-hooks", *where, "--dry-run"]) == 0
    assert f"would write {folder}" in capsys.readouterr().out
    assert main.main(["nova", "install-hooks", *where, "--yes"]) == 0
    assert f"done: write {folder}/pinner-strip-pins" in capsys.readouterr().out
    assert not (paths.root / "etc/libvirt").exists()
    assert main.main(["nova", "remove-hooks", *where, "--yes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["steps"]
    assert f"done: remove {folder}/pinner-strip-pins" in said
    assert not folder.exists()
    folder.mkdir()
    (folder / "pinner-strip-pins").write_text(OTHERS)
    assert main.main(["nova", "install-hooks", *where, "--yes"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def folders(paths):
    return {
        str(path.relative_to(paths.root)) for path in paths.root.rglob("*") if path.is_dir() and "usr" not in str(path)
    }


SNAP = "var/snap/openstack-hypervisor/common/etc/libvirt"
SNAPS_LIBRARY = "snap/openstack-hypervisor/x1/usr/lib/libvirt.so.0.{}.0"


def with_snap(tmp_path, version="10000", library=NEW):
    """An image with the snap openstack-hypervisor, and the library of the host's own libvirt, which pinner needs."""
    paths = image(tmp_path, library)
    (paths.root / SNAP).mkdir(parents=True)
    snaps = paths.root / SNAPS_LIBRARY.format(version)
    snaps.parent.mkdir(parents=True)
    snaps.touch()
    (paths.root / "snap/openstack-hypervisor/current").symlink_to("x1")
    return paths


@pytest.mark.parametrize(("version", "script"), [("10000", "qemu.d/pinner"), ("6004", "qemu")])
@pytest.mark.parametrize("library", [NEW, OLD, ""])
def test_the_script_is_installed_for_the_libvirt_of_the_snap(tmp_path, version, script, library):
    paths = with_snap(tmp_path, version, library)
    said = install(paths)
    assert {f"{SNAP}/hooks/{script}", f"{SNAP}/hooks/pinner-strip-pins"} <= files(paths).keys()
    assert not (paths.root / "etc/libvirt").exists()
    assert "snap restart openstack-hypervisor.libvirtd" in said[-1]
    assert "systemctl" not in said[-1]
    remove(paths)
    assert not (paths.root / SNAP / "hooks").exists()
    assert (paths.root / SNAP).exists()


@pytest.mark.parametrize("daemon", ["usr/sbin/libvirtd", "usr/sbin/virtqemud"])
def test_of_two_libvirts_one_must_be_named(tmp_path, daemon):
    paths = with_snap(tmp_path)
    (paths.root / daemon).parent.mkdir(parents=True)
    (paths.root / daemon).touch()
    before = files(paths)
    for command in (install, remove):
        with pytest.raises(Invalid, match=f"--hooks.*etc/libvirt/hooks.*{SNAP}/hooks"):
            command(paths)
    assert files(paths) == before
    for folder in ("etc/libvirt/hooks", f"{SNAP}/hooks"):
        named = replace(paths, folder=paths.root / folder)
        install(named)
        assert f"{folder}/pinner-strip-pins" in files(paths)
        remove(named)
        assert f"{folder}/pinner-strip-pins" not in files(paths)


def test_folders_that_were_made_are_removed_with_the_files(paths):
    assert folders(paths) == set()
    said = install(paths)
    assert f"done: create {paths.settings.parent}" in said
    install(paths)
    assert f"done: remove {paths.hooks.parent}" in remove(paths)
    assert folders(paths) == set()


def test_folders_of_others_and_folders_that_others_use_stay(tmp_path):
    paths = image(tmp_path, NEW)
    paths.hooks.mkdir(parents=True)
    install(paths)
    assert paths.folders_file.read_text().endswith("\n/etc/libvirt/hooks/qemu.d\n/etc/pinner\n")
    (paths.settings.parent / "weigher.conf").touch()
    said = remove(paths)
    assert f"kept: {paths.settings.parent}, which has other files" in said
    assert folders(paths) == {"etc", "etc/libvirt", "etc/libvirt/hooks", "etc/pinner"}
    assert list(files(paths)) == ["etc/pinner/weigher.conf"]


def test_a_list_of_folders_that_somebody_changed_removes_no_other_folder(tmp_path):
    paths = image(tmp_path, NEW)
    install(paths)
    (tmp_path / "others").mkdir()
    (paths.root / "etc/others").mkdir()
    with paths.folders_file.open("a") as file:
        file.write(f"{tmp_path / 'others'}\n/etc/others\n/etc/libvirt/hooks/../../others\n/\n")
    remove(paths)
    assert (tmp_path / "others").is_dir()
    assert folders(paths) == {"etc", "etc/others"}


@pytest.mark.parametrize("moment", ["fsync", "chmod", "replace"])
def test_an_installation_that_is_killed_leaves_no_script_that_libvirt_runs(tmp_path, moment):
    """libvirt runs every executable file in qemu.d. The next call of either command removes what was left."""
    paths = image(tmp_path, NEW)
    for call in range(1, 5):
        killed_at(moment, call, paths)
        executable = [path for path in paths.beside.parent.glob("*") if os.access(path, os.X_OK)]
        assert set(executable) <= {paths.beside}
        if call % 2:
            install(paths)
            assert not list(paths.root.rglob(".pinner-*"))
        remove(paths)
        assert files(paths) == {}


def killed_at(moment, call, paths):
    """Install in a process that is killed before its nth call of a function of os."""
    child = os.fork()
    if child == 0:
        calls = []

        def kill(*_args, **_more):
            calls.append(1)
            if len(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*_args, **_more)

        original = getattr(os, moment)
        setattr(os, moment, kill)
        install(paths)
        os._exit(0)
    os.waitpid(child, 0)
