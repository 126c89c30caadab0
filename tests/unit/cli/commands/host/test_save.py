"""The files that commands write: no device and no symlink is replaced by a file."""

import os

import pytest

from pinner.cli.commands.host.inventory import save
from pinner.model.errors import Invalid


@pytest.mark.parametrize("kind", ["fifo", "symlink", "folder", "dangling"])
def test_another_kind_of_file_stays(tmp_path, kind):
    place, target = tmp_path / "host.json", tmp_path / "target"
    match kind:
        case "fifo":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "symlink":
            target.write_text("kept")
            place.symlink_to(target)
        case "dangling":
            place.symlink_to(target)
    before = place.lstat()
    with pytest.raises(Invalid, match="another kind of file is there"):
        save(b"{}", place)
    assert place.lstat() == before


def test_a_regular_file_is_replaced(tmp_path):
    place = tmp_path / "host.json"
    place.write_text("old")
    save(b"{}", place)
    assert place.read_bytes() == b"{}"
