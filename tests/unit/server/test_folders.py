"""The parts of the state folder and their owners."""

import os
import pwd
from pathlib import Path

import pytest
from support.server.accounts import api_account

from pinner.model.errors import Invalid
from pinner.server import folders

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def account() -> pwd.struct_passwd:
    return api_account()


def owner_and_mode(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_mode & 0o777


def test_the_state_is_roots_and_its_part_for_the_api_is_the_users(tmp_path: Path, account: pwd.struct_passwd) -> None:
    folders.prepare(tmp_path, account)
    assert owner_and_mode(tmp_path) == (0, 0o711)
    assert owner_and_mode(tmp_path / "agent") == (0, 0o700)
    assert owner_and_mode(tmp_path / "api") == (account.pw_uid, 0o700)


def test_files_of_a_former_user_are_given_to_the_new_one(tmp_path: Path, account: pwd.struct_passwd) -> None:
    file = tmp_path / "api" / "pinner.sqlite"
    file.parent.mkdir()
    file.touch(0o600)
    folders.prepare(tmp_path, account)
    assert owner_and_mode(file) == (account.pw_uid, 0o600)


@pytest.mark.parametrize("kind", ["symlink", "hard link", "folder"])
def test_a_file_of_root_cannot_be_taken_by_a_link(tmp_path: Path, account: pwd.struct_passwd, kind: str) -> None:
    """A former API user could have left a link to a file that it does not own."""
    secret, link = tmp_path / "shadow", tmp_path / "api" / "link"
    secret.touch()
    link.parent.mkdir()
    {"symlink": link.symlink_to, "hard link": link.hardlink_to, "folder": lambda _: link.mkdir()}[kind](secret)
    with pytest.raises(Invalid, match=r"api/link.*remove it"):
        folders.prepare(tmp_path, account)
    assert owner_and_mode(secret)[0] == 0
    assert owner_and_mode(link.parent)[0] == 0, "nobody else changes the folder until it is clean"


def test_the_files_of_the_users_own_folder_are_not_touched(tmp_path: Path, account: pwd.struct_passwd) -> None:
    folders.prepare(tmp_path, account)
    (tmp_path / "api" / "link").symlink_to("/etc/shadow")
    folders.prepare(tmp_path, account)
    assert Path("/etc/shadow").stat().st_uid == 0


def test_the_part_for_the_api_is_not_reached_through_a_symlink(tmp_path: Path, account: pwd.struct_passwd) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "api").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Invalid, match="api"):
        folders.prepare(tmp_path, account)
    assert owner_and_mode(tmp_path / "elsewhere")[0] == 0


def test_a_state_folder_of_another_user_is_refused(tmp_path: Path, account: pwd.struct_passwd) -> None:
    os.chown(tmp_path, account.pw_uid, -1)
    with pytest.raises(Invalid, match="belongs to root"):
        folders.prepare(tmp_path, account)
