"""A state folder is used only by the host that made it."""

import json

import pytest

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.store.journal.opening import OWNER_FILE, StateOwner, require_own_state, this_host

HERE, THERE = StateOwner("compute1", "a" * 64), StateOwner("compute2", "b" * 64)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state" / "agent"


def test_the_host_that_made_the_folder_uses_it_again(folder):
    for _ in range(2):
        require_own_state(folder, HERE)
    assert json.loads((folder / OWNER_FILE).read_text()) == {"name": "compute1", "machine": "a" * 64}
    assert (folder / OWNER_FILE).stat().st_mode & 0o777 == 0o600


def test_a_folder_of_another_host_is_refused(folder):
    require_own_state(folder, THERE)
    with pytest.raises(Invalid) as caught:
        require_own_state(folder, HERE)
    for part in (str(folder.parent), "compute1", "compute2", "b" * 12, str(folder / OWNER_FILE)):
        assert part in caught.value.message
    assert caught.value.details["value"] == str(folder.parent)
    assert [path.name for path in folder.iterdir()] == [OWNER_FILE]


def test_a_renamed_host_learns_how_to_keep_its_runs(folder):
    require_own_state(folder, HERE)
    with pytest.raises(Invalid, match=r"\[host\] name = compute1") as caught:
        require_own_state(folder, StateOwner("new", HERE.machine))
    assert caught.value.details["value"] == str(folder.parent)


@pytest.mark.parametrize(("before", "after"), [("", "a"), ("a", "")])
def test_a_machine_without_an_id_is_known_by_its_name(folder, before, after):
    require_own_state(folder, StateOwner("compute1", before))
    require_own_state(folder, StateOwner("compute1", after))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"name": "compute1"}'])
def test_a_damaged_file_is_named(folder, text):
    folder.mkdir(parents=True)
    (folder / OWNER_FILE).write_text(text)
    with pytest.raises(StoreUnavailable, match=OWNER_FILE):
        require_own_state(folder, HERE)


def test_the_machine_id_is_not_stored_itself(tmp_path):
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    host = this_host("compute1", tmp_path / "machine-id")
    assert len(host.machine) == 64
    assert "0123456789abcdef" not in host.machine
    assert this_host("compute1", tmp_path / "missing") == StateOwner("compute1", "")


def test_a_folder_that_cannot_be_made_is_named_with_the_kernels_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="Not a directory") as caught:
        require_own_state(tmp_path / "file" / "state", HERE)
    assert "Errno" not in caught.value.message
