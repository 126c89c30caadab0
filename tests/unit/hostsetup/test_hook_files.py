"""Files and folders of others, and an installation that is killed."""

import os
import resource
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.system.hook_images import NEW, files, image, install, remove

from pinner.hostsetup import hooks
from pinner.hostsetup.hooks import HookPaths
from pinner.hostsetup.layout import packaged
from pinner.model.errors import Invalid

pytestmark = pytest.mark.needs("root")


@pytest.mark.parametrize("link", ["etc/libvirt", "etc/libvirt/hooks", "etc/libvirt/hooks/qemu.d", "etc/pinner"])
def test_a_symlink_does_not_lead_out_of_an_image(tmp_path, link):
    paths = image(tmp_path, NEW)
    outside = tmp_path / "outside"
    outside.mkdir()
    (paths.root / link).parent.mkdir(parents=True)
    (paths.root / link).symlink_to(outside)
    with pytest.raises(Invalid, match="a symlink leads to"):
        install(paths)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("link", ["etc/libvirt", "etc/libvirt/hooks", "etc/libvirt/hooks/qemu.d", "etc/pinner"])
def test_a_symlink_to_itself_is_refused_before_anything_is_written(tmp_path, link):
    paths = image(tmp_path, NEW)
    (paths.root / link).parent.mkdir(parents=True)
    (paths.root / link).symlink_to(Path(link).name)
    for command in (install, remove):
        with pytest.raises(Invalid, match="leads to itself"):
            command(paths)
    assert files(paths) == {}


def test_a_folder_that_another_user_can_write_is_refused(paths):
    paths.hooks.mkdir(parents=True)
    paths.hooks.chmod(0o777)
    with pytest.raises(Invalid, match="others can write"):
        install(paths)


@pytest.mark.parametrize(
    ("root", "folder", "field"),
    [("nowhere", None, "--root"), ("file", None, "--root"), ("image", "file", "--hooks")],
)
def test_a_path_that_is_no_folder_is_refused_before_anything_is_written(tmp_path, root, folder, field):
    image(tmp_path, "")
    (tmp_path / "file").touch()
    wrong = HookPaths(tmp_path / root, tmp_path / folder if folder else None)
    for command in (install, remove):
        with pytest.raises(Invalid, match=f"^{field}: .*folder"):
            command(wrong)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "image"]


def test_only_root_may_call_it(paths, monkeypatch):
    # The tests run as root, and a process cannot lay that down and take it back.
    monkeypatch.setattr(hooks.os, "geteuid", lambda: 1000)
    for command in (install, remove):
        with pytest.raises(Invalid, match="root: call it with sudo"):
            command(paths)


def test_the_installed_script_is_a_valid_shell_script(paths):
    install(paths)
    subprocess.run(["sh", "-n", paths.script()], check=True)
    done = subprocess.run([paths.script(), "web", "migrate", "begin", "-"], input=b"<domain/>", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_python_that_another_user_can_write_is_warned_of(paths, tmp_path):
    """The hook runs it as root at the start of each guest."""
    assert not any(line.startswith("warning") for line in install(paths))
    (folder := tmp_path / "home" / "bin").mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    said = install(replace(paths, python=folder / "python"))
    assert any(f"runs {folder}/python as root: user id 65534 can write it" in line for line in said)
    folder.chmod(0o777)
    assert any("others can write" in line for line in install(replace(paths, python=folder / "python")))


def test_a_python_that_leads_to_another_users_is_warned_of(paths, tmp_path):
    """A virtual environment of root that was made with another user's Python."""
    (theirs := tmp_path / "home").mkdir()
    os.chown(theirs, 65534, 65534)
    (theirs / "python3").touch()
    (own := tmp_path / "own").mkdir()
    (own / "python").symlink_to(theirs / "python3")
    said = install(replace(paths, python=own / "python"))
    assert any(f"runs {own}/python as root: user id 65534 can write it" in line for line in said)


def test_a_python_that_its_group_can_write_is_warned_of(paths, tmp_path):
    python = tmp_path / "python"
    python.touch()
    python.chmod(0o775)
    assert any(f"others can write {python}" in line for line in install(replace(paths, python=python)))


@pytest.mark.parametrize("most", [20, 1000], ids=["the settings", "the scripts"])
def test_a_file_that_cannot_be_written_whole_leaves_nothing_behind(paths, most):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(Invalid, match="File too large"):
            install(paths)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [name for name in files(paths) if ".pinner-" in name]
    install(paths)
    # The list of folders names only those that it could be written for.
    assert len(files(paths)) == (3 if most == 20 else 4)


def test_a_file_of_pinner_that_is_not_utf8_is_replaced(paths):
    install(paths)
    paths.script().write_bytes(b"#!/bin/sh\n# pinner's hook script for libvirt, f\xfcr Debian\n")
    install(paths)
    assert paths.script().read_text() == packaged("libvirt-qemu-hook")


def test_drafts_of_a_killed_installation_are_removed_and_files_of_others_stay(tmp_path):
    paths = image(tmp_path, NEW)
    install(paths)
    names = (f".pinner-draft-{end}" for end in ("abcdefg8", "symlink_", "a_folder"))
    draft, link, folder = map(paths.filter.with_name, names)
    edited = [paths.filter.with_name(".pinner-strip-pins.swp"), paths.settings.with_name(".pinner-agent.conf.swp")]
    for file in (draft, *edited):
        file.write_text(packaged("libvirt-qemu-hook"))
    link.symlink_to("/etc/hosts")
    folder.mkdir()
    assert f"done: remove {draft}, which an installation that was killed has left" in remove(paths)
    assert (draft.exists(), link.is_symlink(), folder.is_dir()) == (False, True, True)
    assert all(file.exists() for file in edited), "what an editor has not saved yet"


@pytest.mark.parametrize("name", ["beside", "filter", "settings"])
def test_a_file_of_another_user_is_written_again(tmp_path, name):
    """libvirt runs the script as root, and the script runs the Python that the settings name."""
    paths = image(tmp_path, NEW)
    install(paths)
    path = getattr(paths, name)
    os.chown(path, 65534, 65534)
    assert f"done: write {path}" in install(paths)
    assert path.stat().st_uid == 0
    assert all(line.startswith("nothing to do: ") for line in install(paths)[:-1])


@pytest.mark.parametrize(("owner", "mode"), [(65534, 0o600), (0, 0o666), (0, 0o620)])
def test_changed_settings_that_another_user_can_write_are_refused(tmp_path, owner, mode):
    paths = image(tmp_path, NEW)
    install(paths)
    paths.settings.write_text("python = /home/ann/python\n")
    os.chown(paths.settings, owner, owner)
    paths.settings.chmod(mode)
    with pytest.raises(Invalid, match=r"hook\.conf.*only root can write.*chown root and chmod 600"):
        install(paths)
    assert f"kept: {paths.settings}, which was changed" in remove(paths)


def test_the_python_of_changed_settings_is_warned_of(tmp_path):
    paths = image(tmp_path, NEW)
    (folder := tmp_path / "home").mkdir()
    os.chown(folder, 65534, 65534)
    paths.settings.parent.mkdir(parents=True)
    paths.settings.write_text(f"# ours\npython = {folder}/python\n")
    paths.settings.chmod(0o600)
    assert any(f"runs {folder}/python as root: user id 65534 can write it" in line for line in install(paths))


def test_an_edited_script_is_reported_where_it_is_replaced_or_removed(tmp_path):
    paths = image(tmp_path, NEW)
    install(paths)
    said = f"{paths.beside}, which differs from the one of this version (an older one, or edited)"
    for command, verb in ((install, "write"), (remove, "remove")):
        with paths.beside.open("a") as file:
            file.write("# edited\n")
        assert f"done: {verb} {said}" in command(paths)


@pytest.mark.parametrize("name", ["etc", "etc/libvirt", "etc/libvirt/hooks", "etc/libvirt/hooks/qemu.d", "etc/pinner"])
def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_is_written(tmp_path, name):
    paths = image(tmp_path, NEW)
    (paths.root / name).parent.mkdir(parents=True, exist_ok=True)
    (paths.root / name).touch()
    before = sorted(paths.root.rglob("*"))
    for command in (install, remove):
        with pytest.raises(Invalid, match=f"{name}.*(in the way|no folder)"):
            command(paths)
    assert sorted(paths.root.rglob("*")) == before


@pytest.mark.parametrize("kind", ["folder", "pipe", "symlink"])
def test_settings_that_are_no_file_are_refused_before_anything_is_written(tmp_path, kind):
    paths = image(tmp_path, NEW)
    paths.settings.parent.mkdir(parents=True)
    match kind:
        case "folder":
            paths.settings.mkdir()
        case "pipe":
            os.mkfifo(paths.settings)
        case "symlink":
            paths.settings.symlink_to("/nowhere")
    for command in (install, remove):
        with pytest.raises(Invalid, match=r"hook\.conf.*in the way: move it away"):
            command(paths)
    assert not paths.hooks.exists()


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path):
    """Nobody can make a folder in /proc, nor on a read-only file system."""
    paths = HookPaths(image(tmp_path, NEW).root, Path("/proc/pinner/hooks"))
    with pytest.raises(Invalid, match=r"/proc/pinner.*a path that root can change \(No such file or directory\)"):
        install(paths)


@pytest.mark.needs("immutable_files")
def test_a_file_that_cannot_be_removed_is_an_error_that_names_it(tmp_path):
    paths = image(tmp_path, NEW)
    install(paths)
    subprocess.run(["chattr", "+i", paths.filter], check=True)
    try:
        with pytest.raises(Invalid, match=r"pinner-strip-pins.*root can change \(Operation not permitted\)"):
            remove(paths)
    finally:
        subprocess.run(["chattr", "-i", paths.filter], check=True)
    remove(paths)
    assert files(paths) == {}
