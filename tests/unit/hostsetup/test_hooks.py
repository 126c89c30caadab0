"""install-hooks and remove-hooks on the files of an image; tests/functional/guests/test_migration_hook.py has real
guests."""

import json
import os
import resource
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pinner.cli import main
from pinner.hostsetup import hooks
from pinner.hostsetup.hooks import HookPaths, install_hooks, remove_hooks
from pinner.hostsetup.layout import packaged
from pinner.model.errors import Invalid

pytestmark = pytest.mark.needs("root")

NEW, OLD = "usr/lib/x86_64-linux-gnu/libvirt.so.0.6005.0", "usr/lib64/libvirt.so.0.6004.1"
OTHERS = "#!/bin/sh\n# a script of somebody else, which names pinner's hook script for libvirt\n"


@pytest.fixture(params=[NEW, OLD], ids=["qemu.d", "qemu"])
def paths(request, tmp_path):
    return image(tmp_path, request.param)


def image(tmp_path, library):
    """An image with a libvirt of one version; empty: none is found."""
    root = tmp_path / "image"
    root.mkdir()
    if library:
        (root / library).parent.mkdir(parents=True)
        (root / library).touch()
    return HookPaths(root, None, Path("/opt/pinner/bin/python"))


def install(paths, *, dry_run=False):
    said = []
    install_hooks(paths, said.append, dry_run=dry_run)
    return said


def remove(paths, *, dry_run=False):
    said = []
    remove_hooks(paths, said.append, dry_run=dry_run)
    return said


def files(paths):
    return {
        str(path.relative_to(paths.root)): (path.read_text(), path.stat().st_mode & 0o777)
        for path in paths.root.rglob("*")
        if path.is_file() and "usr/lib" not in str(path)
    }


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
