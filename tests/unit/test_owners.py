"""Who can write a path, with real folders, symlinks and owners."""

import os
from pathlib import Path

import pytest

from pinner import wiring
from pinner.host.captured.capture import capture
from pinner.model.errors import Invalid
from pinner.owners import owner_of, require_closed, require_own

pytestmark = [
    pytest.mark.needs("root"),
    pytest.mark.fault(42),
]
ANN, BOB = 54321, 54322


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state" / "api"
    made.mkdir(parents=True)
    return made


def test_a_folder_of_root_is_of_root(folder: Path) -> None:
    assert owner_of(folder, "here") == 0
    require_own(folder, "here")


@pytest.mark.parametrize("inside", [".", "absent", "absent/deeper", "../api"])
def test_a_folder_of_another_user_is_found(folder: Path, inside: str) -> None:
    os.chown(folder, ANN, -1)
    assert owner_of(folder / inside, "here") == ANN
    with pytest.raises(Invalid, match=f"here: .* only root can write; user id {ANN}"):
        require_own(folder / inside, "here")


def test_the_owner_of_a_folder_above_decides(folder: Path) -> None:
    os.chown(folder.parent, ANN, -1)
    assert owner_of(folder, "here") == ANN


def test_the_owner_of_a_symlink_decides(folder: Path, tmp_path: Path) -> None:
    """The link leads into a folder of root, but its owner chose the folder."""
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert owner_of(link, "here") == 0
    os.chown(link, ANN, -1, follow_symlinks=False)
    assert owner_of(link, "here") == ANN


def test_a_symlink_out_of_a_folder_of_another_user_is_found(folder: Path, tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    (home / "inner").symlink_to(folder)
    os.chown(home, ANN, -1)
    link.symlink_to("home/inner")
    assert owner_of(link, "here") == ANN


def test_folders_of_two_users_are_refused(folder: Path) -> None:
    os.chown(folder.parent, BOB, -1)
    os.chown(folder, ANN, -1)
    with pytest.raises(Invalid, match="one other user at most"):
        owner_of(folder, "here")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_write_is_refused(folder: Path, mode: int) -> None:
    """Also a sticky one: others can create the files that root would open."""
    folder.chmod(mode)
    with pytest.raises(Invalid, match="others can write"):
        owner_of(folder, "here")


def test_a_sticky_folder_above_is_accepted(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert owner_of(folder, "here") == 0
    with pytest.raises(Invalid, match="others can write"):
        owner_of(folder.parent / "absent", "here")


def test_a_loop_of_symlinks_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert owner_of(tmp_path / "loop", "here") == 0


def test_root_reads_no_default_configuration_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME can be another user's, for instance after `su -m`."""
    folder = tmp_path / ".pinner"
    folder.mkdir()
    (folder / "pinner.conf").write_text("[host]\nname = ours\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert wiring.configuration().host.name == "ours"
    os.chown(folder, ANN, -1)
    with pytest.raises(Invalid, match=r"configuration: .*\.pinner.* only root can write"):
        wiring.configuration()


def test_root_captures_into_no_folder_of_another_user(folder: Path) -> None:
    os.chown(folder, ANN, -1)
    with pytest.raises(Invalid, match="a new or empty folder of this user"):
        capture(Path("/"), folder, scrub=True)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
@pytest.mark.parametrize("inside", [".", "absent", "absent/deeper"])
def test_a_folder_that_everybody_can_write_is_refused_by_its_name(folder: Path, mode: int, inside: str) -> None:
    """A sticky folder, too: another user may have made the file."""
    folder.chmod(mode)
    with pytest.raises(Invalid, match=f"here: .*everybody can write {folder};.*o-w {folder}"):
        require_closed(folder / inside, "here", ANN)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775, 0o770])
@pytest.mark.parametrize("owner", [0, ANN, BOB])
def test_a_folder_that_not_everybody_can_write_is_closed(folder: Path, mode: int, owner: int) -> None:
    os.chown(folder, owner, -1)
    folder.chmod(mode)
    require_closed(folder, "here", ANN)


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False)])
def test_in_a_sticky_folder_nobody_replaces_an_own_folder(folder: Path, mode: int, refused: bool) -> None:
    folder.parent.chmod(mode)
    os.chown(folder, ANN, -1)
    if refused:
        with pytest.raises(Invalid, match=f"everybody can write {folder.parent};"):
            require_closed(folder, "here", ANN)
    else:
        require_closed(folder, "here", ANN)


def test_a_folder_that_another_user_made_in_a_sticky_folder_is_refused(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    os.chown(folder, BOB, -1)
    with pytest.raises(Invalid, match=f"{folder} belongs to user id {BOB}"):
        require_closed(folder, "here", ANN)
    link = folder.parent / "link"
    link.symlink_to("/root")
    os.chown(link, BOB, -1, follow_symlinks=False)
    with pytest.raises(Invalid, match=f"{link} belongs to user id {BOB}"):
        require_closed(link, "here", ANN)
